"""The output of a benchmark: tables, Markdown, JSON, and a processor family's report in a page."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.results import Cell, Results, in_digits, in_quartiles, in_words
from mha_numpy.bench.spread import sweep_tables
from mha_numpy.errors import ConfigError
from mha_numpy.tables import Table

MARKER = "<!-- benchmark: {}: {} -->"
REPORT = re.compile(
    MARKER.format("(?P<family>[^\n]+)", "begin") + ".*?" + MARKER.format("(?P=family)", "end"),
    re.DOTALL,
)
ABOVE_MARK = "[1]"
ABOVE = (
    "Above 100%: the peak was measured too low here, so both shares are too high. It is read off "
    "calls of a millisecond. When another program takes a core, all threads of such a call wait "
    "for one, which costs it more of its time than a long call. A clock that speeds up between two "
    "turns does the same. Measure again when nothing else is running."
)


def sections(results: Results) -> Iterator[Table | str]:
    """Yield the parts of the report in order: lines of text, and tables."""
    yield summary(results)
    for other in dict.fromkeys(cell.other for cell in results.cells):
        if results.settings.sweep:
            yield from sweep_tables(results, other)
            continue
        yield ratio_table(results, other)
        yield from fractions_table(results, other)
    if results.cells and not results.settings.sweep:
        yield times_table(results)
    if results.facts:
        yield facts_table(results)
    for other, install in results.settings.absent.items():
        yield f"{CONTESTANTS[other].label} is not installed: {install}"


def summary(results: Results) -> str:
    """Return the command and the machine, one line each."""
    described = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    return f"{results.settings.command}\n{described}"


def ratio_table(results: Results, other: str) -> Table:
    """Return how many times longer another takes: shapes down, cases across."""
    ours = CONTESTANTS[results.settings.ours].label
    cells = [cell for cell in results.cells if cell.other == other]
    title = f"{CONTESTANTS[other].label}: its time / that of {ours}, median (quartiles)"
    table = _grid(title, cells, {(c.shape, c.case): _ratio(c) for c in cells})
    wrong = {cell.shape for cell in cells if not cell.agrees}
    bad = (number for number, row in enumerate(table.rows) if row[0] in wrong)
    return table._replace(bad_rows=frozenset(bad))


def fractions_table(results: Results, other: str) -> Iterator[Table | str]:
    """Yield the parts of the processor's peak that ours and another reach, if known."""
    cells = [cell for cell in results.cells if cell.other == other and cell.peak and cell.agrees]
    texts = {(cell.shape, cell.case): _fractions(cell) for cell in cells}
    labels = f"{CONTESTANTS[results.settings.ours].label} / {CONTESTANTS[other].label}"
    if cells:
        yield _grid(f"Parts of the FMA peak: {labels}, median", cells, texts)
    if any(text.endswith(ABOVE_MARK) for text in texts.values()):
        yield f"{ABOVE_MARK} {ABOVE}"


def times_table(results: Results) -> Table:
    """Return our own times: shapes down, cases across."""
    ours = CONTESTANTS[results.settings.ours].label
    first: dict[tuple[str, str], str] = {}
    for cell in results.cells:
        first.setdefault((cell.shape, cell.case), in_digits(cell.ours_ms))
    return _grid(f"Time of {ours}, median, in ms", results.cells, first)


def facts_table(results: Results) -> Table:
    """Return the single figures."""
    rows = [
        [what, who, note if value is None else f"{in_digits(value)} {unit}"]
        for what, who, value, unit, note in results.facts
    ]
    return Table("Single figures", ["what", "who", "figure"], rows)


def to_markdown(results: Results) -> str:
    """Return the report in Markdown, under the processor's family."""
    described = dict(results.machine)
    del described["family"]
    parts = [f"### {name_of(results)}", ""]
    parts += [f"Measured by `{results.settings.command}` on:", ""]
    parts += [f"- {name}: {value}" for name, value in described.items()]
    for section in list(sections(results))[1:]:
        parts.append("")
        parts.append(section if isinstance(section, str) else section.to_markdown())
    return "\n".join(parts) + "\n"


def name_of(results: Results) -> str:
    """Return the name of a report in a page: the processor's family, and whether it is a sweep."""
    sweep = ", random calls" if results.settings.sweep else ""
    return results.machine["family"] + sweep


def to_json(results: Results) -> str:
    """Return all results as JSON."""
    settings = results.settings
    found = {
        "command": settings.command,
        "settings": {field.name: getattr(settings, field.name) for field in fields(settings)},
        "machine": results.machine,
        "absent": settings.absent,
        "cells": [{**cell._asdict(), "ratio": cell.ratio._asdict()} for cell in results.cells],
        "facts": [fact._asdict() for fact in results.facts],
    }
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


def replace_report(page: str, family: str, markdown: str) -> str:
    r"""Replace the page's report on the same family of processors.

    Parameters
    ----------
    page : str
        Markdown with at least one report, each between two lines that name its family.
    family : str
        If the page has no report on it, the new one comes after the last.
    markdown : str
        The new report.

    Returns
    -------
    str

    Examples
    --------
    >>> page = "<!-- benchmark: Z80: begin -->\nold\n<!-- benchmark: Z80: end -->\nbelow"
    >>> print(replace_report(page, "Z80", "new\n"))
    <!-- benchmark: Z80: begin -->
    new
    <!-- benchmark: Z80: end -->
    below
    """
    reports = {found["family"]: found.span() for found in REPORT.finditer(page)}
    if not reports or page.count(MARKER.partition("{")[0]) != 2 * len(reports):
        raise ConfigError(
            "write: expected a page with reports, one for each FAMILY, between lines "
            f"{MARKER.format('FAMILY', 'begin')} and {MARKER.format('FAMILY', 'end')}"
        )
    _, last = max(reports.values())
    start, end = reports.get(family, (last, last))
    gap = "" if family in reports else "\n\n"
    report = f"{MARKER.format(family, 'begin')}\n{markdown}{MARKER.format(family, 'end')}"
    return f"{page[:start]}{gap}{report}{page[end:]}"


def _grid(title: str, cells: list[Cell], texts: dict[tuple[str, str], str]) -> Table:
    shapes = list(dict.fromkeys(cell.shape for cell in cells))
    cases = list(dict.fromkeys(cell.case for cell in cells))
    rows = [[shape, *(texts.get((shape, case), "") for case in cases)] for shape in shapes]
    return Table(title, ["shape", *cases], rows)


def _ratio(cell: Cell) -> str:
    """Return a ratio with its quartiles, or that the results differ."""
    return in_quartiles(cell.ratio) if cell.agrees else in_words(cell.difference)


def _fractions(cell: Cell) -> str:
    """Return both parts of the peak, marked if one exceeds 100%."""
    fractions = [cell.ours_fraction or 0.0, cell.other_fraction or 0.0]
    text = " / ".join(f"{fraction:.0%}" for fraction in fractions)
    return f"{text} {ABOVE_MARK}" if round(max(fractions), 2) > 1 else text


@dataclass(frozen=True)
class Files:
    """The files to write: checked before minutes of measuring, written afterwards.

    Parameters
    ----------
    json, markdown : Path, optional
        All figures, and the report.
    write : Path, optional
        A page where the report replaces the one on the same family of processors.
    chart : Path, optional
        An .svg file.
    """

    json: Path | None = None
    markdown: Path | None = None
    write: Path | None = None
    chart: Path | None = None

    def __post_init__(self) -> None:
        given = {name: path for name, path in vars(self).items() if path is not None}
        places = [path.resolve() for path in given.values()]
        for name, path in given.items():
            if path.is_dir() or not path.parent.is_dir():
                raise ConfigError(f"{name}: expected a file in a folder that exists; got {path}")
            if places.count(path.resolve()) > 1:
                raise ConfigError(f"{name}: expected a separate file; got {path} twice")
        if self.chart is not None and self.chart.suffix != ".svg":
            raise ConfigError(f"chart: expected an .svg file; got {self.chart}")
        if self.write is not None:
            replace_report(_read(self.write), "", "")

    def save(self, results: Results) -> list[Path]:
        """Write all files and return their paths; without one that agrees there is no chart."""
        markdown, name = to_markdown(results), name_of(results)
        texts = {self.json: to_json(results), self.markdown: markdown}
        if self.write:
            texts[self.write] = replace_report(_read(self.write), name, markdown)
        saved = [path for path in texts if path]
        try:
            for path in saved:
                path.write_text(texts[path], encoding="utf-8")
            if self.chart and any(cell.agrees for cell in results.cells):
                # matplotlib takes a second
                from mha_numpy.bench.chart import ratio_chart, sweep_chart
                from mha_numpy.show.pictures import save_figure

                draw = sweep_chart if results.settings.sweep else ratio_chart
                saved += save_figure(draw(results), self.chart.with_suffix(""))
        except OSError as error:
            raise ConfigError(f"cannot write {error.filename}: {error.strerror}") from error
        return saved


def _read(page: Path) -> str:
    try:
        return page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"write: cannot read {page} as text") from error
