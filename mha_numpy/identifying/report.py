"""A datasheet as text for the terminal, and as a dict for JSON."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from shutil import get_terminal_size
from textwrap import fill
from typing import Any

from mha_numpy.identifying.datasheet import ROLES, Datasheet, Named, Row
from mha_numpy.tables import Table

WIDTH = 100  # the most characters of a line
FRAMEWORKS = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX", "keras": "Keras"}
FEATURES = {  # settings that a headline names, if they are not usual
    "rotation": "rotary positions", "alibi": "ALiBi", "buckets": "T5's position bias",
    "window": "a window", "softcap": "a softcap", "qk_norm": "normalised queries and keys",
}  # fmt: skip
PROMINENT = ("scale", "causal")  # told among the conventions even where they are usual


def to_text(sheet: Datasheet) -> str:
    """Return a datasheet as text, as wide as the terminal and at most 100 characters."""
    width = min(WIDTH, get_terminal_size((WIDTH, 24)).columns)
    parts = (p if isinstance(p, Table) else fill(p, width) for p in sections(sheet))
    return "\n\n".join(p.to_text(width) if isinstance(p, Table) else p for p in parts) + "\n"


def sections(sheet: Datasheet) -> list[Table | str]:
    """Return the parts of the text, the most important first."""
    first = f"{visible(sheet.name)} ({FRAMEWORKS.get(sheet.framework, sheet.framework)})"
    if not sheet.is_found:
        return [f"{visible(sheet.name)}: {visible(sheet.saw)}"]
    mistakes = [line for row in sheet.mistakes for line in _mistake(row)]
    parts = {
        "What looks like a mistake": mistakes,
        "Arguments": _listed(sheet.arguments),
        "Returns": _listed(sheet.returns),
        "Conventions": [list(pair) for pair in _named_once(conventions(sheet))],
    }
    tables = []
    for title, rows in parts.items():
        bad = [i for i, (name, *_) in enumerate(rows) if rows is mistakes and name]
        if rows:
            tables.append(Table(title, [""] * len(rows[0]), rows, frozenset(bad)))
    quiet = "; ".join(f"{row.name} {row.says}" for row in usual(sheet))
    last = [f"As usual: {quiet}."] if quiet else []
    return [f"{first}: {headline(sheet)}. {verdict(sheet)}", *tables, *last]


def headline(sheet: Datasheet) -> str:
    """Return what a function computes in a few words: "causal self-attention with ALiBi"."""
    own = {row.setting: row for row in sheet.rows if not row.argument and row.kind != "usual"}
    what = {named.what for named in sheet.arguments}
    kind = "attention"
    if ROLES["memory"] in what:
        kind = "cross-attention"
    elif ROLES["x"] in what:
        kind = "self-attention"
    if "normaliser" in own and own["normaliser"].says.startswith("no softmax: linear"):
        kind = f"linear {kind}"
    kind = f"causal {kind}" if "causal" in own else kind
    features = [words for setting, words in FEATURES.items() if setting in own]
    return f"{kind} with {' and '.join(features)}" if features else kind


def verdict(sheet: Datasheet) -> str:
    """Return a sentence about the mistakes."""
    names = list(dict.fromkeys(row.name for row in sheet.mistakes))
    if not names:
        return "Nothing looks like a mistake."
    if len(sheet.mistakes) == 1:
        return f"One thing looks like a mistake: {names[0]}."
    return f"{len(sheet.mistakes)} things look like mistakes: {', '.join(names)}."


def conventions(sheet: Datasheet) -> list[Row]:
    """Return the rows that another function may do in another way, mistakes left out."""
    return [row for row in sheet.rows if row.kind != "mistake" and not _is_quiet(row)]


def usual(sheet: Datasheet) -> list[Row]:
    """Return the rows in which almost all functions agree."""
    return [row for row in sheet.rows if _is_quiet(row)]


def _is_quiet(row: Row) -> bool:
    return row.kind == "usual" and not row.argument and row.setting not in PROMINENT


def visible(text: object) -> str:
    """Return a stranger's text without characters that a terminal or a page would obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))


def name_of(row: Row) -> str:
    """Return the name of a row, with the argument that it is about."""
    is_own = row.argument and row.argument != row.name
    return f"{row.name} ({visible(row.argument)})" if is_own else row.name


def _named_once(rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
    """Yield names and texts; of rows with one name, only the first says it."""
    for name, group in groupby(rows, name_of):
        for number, says in enumerate(map(attrgetter("says"), group)):
            yield "" if number else name, visible(says)


def _listed(named: tuple[Named, ...]) -> list[list[str]]:
    return [
        [visible(each.name), each.axes, each.what + f" ({visible(each.note)})" * bool(each.note)]
        for each in named
    ]


def _mistake(row: Row) -> Iterator[list[str]]:
    yield [name_of(row), visible(row.says)]
    if row.line:
        yield ["", f"line {row.line}: {visible(row.code)}"]
    if row.instead:
        yield ["", f"instead: {visible(row.instead)}"]


def to_dict(sheet: Datasheet) -> dict[str, Any]:
    """Return a datasheet as what JSON knows."""
    found = sheet._asdict()
    for part in ("arguments", "returns", "rows"):
        found[part] = [each._asdict() for each in found[part]]
    found["mistakes"] = [row._asdict() for row in sheet.mistakes]
    return found
