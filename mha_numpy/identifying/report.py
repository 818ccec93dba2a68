"""A datasheet as text for the terminal, and as a dict for JSON."""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from shutil import get_terminal_size
from typing import Any

from mha_numpy.identifying.datasheet import TELLING, Findings, Named
from mha_numpy.identifying.libraries import drop_in, in_libraries, in_words
from mha_numpy.identifying.rows import ROLES, Row
from mha_numpy.tables import Table

WIDTH = 100  # the most characters of a line
FRAMEWORK_NAMES = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX", "keras": "Keras"}
FEATURES = {  # settings that a headline names, if they are not usual
    "rotation": "rotary positions", "alibi": "ALiBi", "buckets": "T5's position bias",
    "window": "a window", "softcap": "a softcap", "qk_norm": "normalised queries and keys",
}  # fmt: skip
LOUD = ("scale", "causal", *TELLING.values())  # no row of these is quiet


def to_text(sheet: Findings) -> str:
    """Return a datasheet as text, as wide as the terminal and at most 100 characters."""
    width = min(WIDTH, get_terminal_size((WIDTH, 24)).columns)
    return "\n\n".join(part.to_text(width) for part in sections(sheet)) + "\n"


def sections(sheet: Findings) -> list[Table]:
    """Return the parts of the text, the most important first."""
    name = visible(sheet.name)
    if not sheet.is_found:
        return [Table("", (), [[f"{name}: {visible(sheet.saw)}"]])]
    framework = FRAMEWORK_NAMES.get(sheet.framework, sheet.framework)
    mistakes = [line for row in sheet.mistakes for line in _mistake(row)]
    parts = {
        "What looks like a mistake": mistakes,
        "Arguments": _listed(sheet.arguments),
        "Returns": _listed(sheet.returns),
        "Conventions": [*_named_once(sheet)],
        "Gradients": [[visible(row.says)] for row in gradients(sheet)],
    }
    bad = frozenset(i for i, (name, _) in enumerate(mistakes) if name)
    tables = [Table("", (), [[f"{name} ({framework}): {headline(sheet)}. {verdict(sheet)}"]])]
    for title, rows in parts.items():
        if rows:  # indented by a column without text
            indented = [["", *row] for row in rows]
            tables.append(Table(title, (), indented, bad if rows is mistakes else frozenset()))
    quiet = usual(sheet)
    said = drop_in(sheet)
    last = [f"{said[0].upper()}{said[1:]}."] + [f"As usual: {'; '.join(quiet)}."] * bool(quiet)
    return [*tables, *(Table("", (), [[line]]) for line in last)]


def headline(sheet: Findings) -> str:
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


def verdict(sheet: Findings) -> str:
    """Return a sentence about the mistakes."""
    names = list(dict.fromkeys(row.name for row in sheet.mistakes))
    if not names:
        return "Nothing looks like a mistake."
    count = len(sheet.mistakes)
    looks = "One thing looks like a mistake" if count == 1 else f"{count} things look like mistakes"
    return f"{looks}: {', '.join(names)}."


def conventions(sheet: Findings) -> list[Row]:
    """Return the rows that another function may do in another way, mistakes left out."""
    return [row for row in sheet.rows if row.kind != "mistake" and not _is_quiet(row)]


def gradients(sheet: Findings) -> list[Row]:
    """Return the rows about gradients that are right."""
    return [row for row in sheet.rows if row.setting == "gradients"]


def usual(sheet: Findings) -> list[str]:
    """Return what almost all functions agree in, as short sentences."""
    quiet = [row for row in sheet.rows if _is_quiet(row) and row.setting != "gradients"]
    groups = groupby(quiet, attrgetter("name"))
    return [f"{name} {' and '.join(row.says for row in rows)}" for name, rows in groups]


def _is_quiet(row: Row) -> bool:
    return row.kind == "usual" and not row.argument and row.setting not in LOUD


def visible(text: object) -> str:
    """Return a stranger's text without characters that a terminal or a page would obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))


def label_of(row: Row) -> str:
    """Return the name of a row, with the argument that it is about."""
    is_own = row.argument and row.argument != row.name
    return f"{row.name} ({visible(row.argument)})" if is_own else row.name


def _named_once(sheet: Findings) -> Iterator[list[str]]:
    """Yield names and texts; of rows with one name, only the first says it.

    A line below says what libraries do, where one of them differs.
    """
    rows = conventions(sheet)
    beside = iter(in_libraries(sheet, rows))
    for name, group in groupby(rows, label_of):
        for number, row in enumerate(group):
            yield ["" if number else name, visible(row.says)]
            yield from (["", line] for line in _example(row))
            there = next(beside)
            if any(each.value != row.value for each in there.values()):
                yield ["", f"({in_words(row, there)})"]


def _listed(named: tuple[Named, ...]) -> list[list[str]]:
    return [
        [visible(each.name), each.axes, each.what + f" ({visible(each.note)})" * bool(each.note)]
        for each in named
    ]


def _mistake(row: Row) -> Iterator[list[str]]:
    yield [label_of(row), visible(row.says)]
    if row.line:
        yield ["", f"line {row.line}: {visible(row.code)}"]
    if row.instead:
        yield ["", f"instead: {visible(row.instead)}"]
    yield from (["", line] for line in _example(row))


def _example(row: Row) -> list[str]:
    text = f"for example, {row.example}" if row.example else ""
    return [visible(line) for line in text.splitlines()]


def to_dict(sheet: Findings) -> dict[str, Any]:
    """Return a datasheet as what JSON knows."""
    found = sheet._asdict()
    for part in ("arguments", "returns", "rows"):
        found[part] = [_as_dict(each) for each in found[part]]
    for row, there in zip(found["rows"], in_libraries(sheet, sheet.rows), strict=True):
        row["libraries"] = {library: each.value for library, each in there.items()}
    found["drop_in"] = drop_in(sheet)
    found["mistakes"] = [_as_dict(row) for row in sheet.mistakes]
    return found


def _as_dict(each: Row | Named) -> dict[str, Any]:
    """Return the fields; that of an example only where there is one."""
    found = each._asdict()
    example = found.pop("example", None)
    return {**found, "example": example.to_dict()} if example else found
