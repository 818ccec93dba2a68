"""What a benchmark prints and writes: tables, Markdown, JSON, the generated part of a page."""

import json
from collections.abc import Iterator

from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.results import Cell, Results
from mha_numpy.errors import ConfigError
from mha_numpy.tables import Table

BEGIN, END = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"


def sections(results: Results) -> Iterator[Table | str]:
    """Yield the parts of the report in order: lines of text, and tables."""
    yield summary(results)
    for other in dict.fromkeys(cell.other for cell in results.cells):
        yield ratio_table(results, other)
    if results.cells:
        yield times_table(results)
    if results.facts:
        yield facts_table(results)
    for other, install in results.settings.absent.items():
        yield f"{CONTESTANTS[other].label} is not installed: {install}"


def summary(results: Results) -> str:
    """Return the command and the machine, a line each."""
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


def times_table(results: Results) -> Table:
    """Return our own times: shapes down, cases across."""
    ours = CONTESTANTS[results.settings.ours].label
    first: dict[tuple[str, str], str] = {}
    for cell in results.cells:
        first.setdefault((cell.shape, cell.case), _figure(cell.ours_ms))
    return _grid(f"Time of {ours}, median, in ms", results.cells, first)


def facts_table(results: Results) -> Table:
    """Return the single figures."""
    rows = [
        [what, who, note if value is None else f"{_figure(value)} {unit}"]
        for what, who, value, unit, note in results.facts
    ]
    return Table("Single figures", ["what", "who", "figure"], rows)


def to_markdown(results: Results) -> str:
    """Return the report in Markdown."""
    parts = [f"Measured by `{results.settings.command}` on:", ""]
    parts += [f"- {name}: {value}" for name, value in results.machine.items()]
    for section in list(sections(results))[1:]:
        parts.append("")
        parts.append(section if isinstance(section, str) else section.to_markdown())
    return "\n".join(parts) + "\n"


def to_json(results: Results) -> str:
    """Return all that was found as JSON."""
    return json.dumps(results.as_dict(), indent=1, allow_nan=False) + "\n"


def replace_generated(page: str, markdown: str) -> str:
    r"""Put the report between the two markers of a page.

    Parameters
    ----------
    page : str
        Markdown with a line `BEGIN` and, below it, a line `END`.
    markdown : str
        What comes between them, instead of what is there.

    Returns
    -------
    str

    Raises
    ------
    ConfigError
        A marker is missing or not there once.

    Examples
    --------
    >>> print(replace_generated(f"above\n{BEGIN}\nold\n{END}\nbelow", "new\n"))
    above
    <!-- benchmark: begin -->
    new
    <!-- benchmark: end -->
    below
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ConfigError(f"write: expected a page with one line {BEGIN} and below it one {END}")
    return f"{page[: page.index(BEGIN)]}{BEGIN}\n{markdown}{page[page.index(END) :]}"


def _grid(title: str, cells: list[Cell], texts: dict[tuple[str, str], str]) -> Table:
    """Return a table of texts by (shape, case)."""
    shapes = list(dict.fromkeys(cell.shape for cell in cells))
    cases = list(dict.fromkeys(cell.case for cell in cells))
    rows = [[shape, *(texts.get((shape, case), "") for case in cases)] for shape in shapes]
    return Table(title, ["shape", *cases], rows)


def _ratio(cell: Cell) -> str:
    """Return a ratio with its quartiles, or that the results differ."""
    if cell.agrees:
        return f"{cell.ratio.median:.2f} ({cell.ratio.low:.2f}-{cell.ratio.high:.2f})"
    apart = "NaN" if cell.difference is None else f"{cell.difference:.0e}"
    return f"RESULTS DIFFER: {apart}"


def _figure(value: float) -> str:
    """Return a number with three digits, or with all before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
