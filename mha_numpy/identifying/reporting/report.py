"""A datasheet as text for the terminal, and as a dict for JSON."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from operator import attrgetter
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

from mha_numpy.identifying.facts.feeding import holder_of
from mha_numpy.identifying.facts.options import UNCLEAR
from mha_numpy.identifying.reporting.datasheet import ALWAYS, TELLING, Findings, Named
from mha_numpy.identifying.reporting.libraries import (
    MARK,
    in_libraries,
    in_words,
    nearest,
    which_libraries,
)
from mha_numpy.identifying.reporting.rows import ROLES, Row
from mha_numpy.tables import Table

MISTAKES = "What looks like a mistake"  # the title of this part
COMPARED = "Compared with "  # a library, in the title of another part
COMMON = "As in most functions"  # the title of the last part
WIDTH = 100  # the most characters of a line
LABEL = 42  # the most characters of a line of a label
FRAMEWORK_NAMES = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX", "keras": "Keras"}
FEATURES = {  # settings that a headline names, if they are not usual
    "rotation": "rotary positions", "alibi": "ALiBi", "buckets": "a position bias",
    "window": "a window", "softcap": "a softcap", "qk_norm": "normalised queries and keys",
}  # fmt: skip
MOST_NAMED = 3  # arguments in a verdict
UNUSUAL = ("additive", "linear", "sigmoid")  # kinds of attention
LOUD = ("scale", "causal", "alignment", "grouping", *TELLING.values())  # no row of these is quiet


def to_text(sheet: Findings) -> str:
    """Return a datasheet as text, as wide as the terminal and at most 100 characters."""
    width = min(WIDTH, get_terminal_size((WIDTH, 24)).columns)
    return "\n\n".join(part.to_text(width) for part in sections(sheet)) + "\n"


def sections(sheet: Findings) -> list[Table]:
    """Return the parts of the text, the most important first."""
    name = visible(sheet.name)
    framework = FRAMEWORK_NAMES.get(sheet.framework, sheet.framework)
    first = f"{name} ({framework}): {headline(sheet)}. {verdict(sheet)}"
    says = [first if sheet.is_found else f"{name}: {visible(sheet.saw)}", *beginning(sheet)]
    tables = [Table("", (), [[text]]) for text in says]
    for title, part in parts(sheet).items():
        lines = LINES.get(title, _compared if title.startswith(COMPARED) else None)
        if part and lines:  # indented by a column without text
            rows = [["", *row] for row in lines(part)]
            bad = (i for i, row in enumerate(rows) if row[1] and title == MISTAKES)
            tables.append(Table(title, (), rows, frozenset(bad)))
            if title == "Conventions" and any(there for _, there in part):
                tables.append(Table("", (), [[which_libraries(sheet)]]))
        elif part:
            said = f"{title}: {'; '.join(part)}."
            tables.append(Table("", (), [[said]]))
    return tables


def parts(sheet: Findings) -> dict[str, Sequence[Any]]:
    """Return the parts of a report by their titles: rows, what has a name, or sentences."""
    near = nearest(sheet)
    found = {
        MISTAKES: sheet.mistakes,
        "Arguments": sheet.arguments,
        "Returns": sheet.returns,
        "Conventions": [*_beside(sheet)],
        "Gradients": [row.says for row in sheet.rows if row.setting == "gradients"],
        **({COMPARED + near.library.partition(MARK)[0]: near.lines()} if near else {}),
        COMMON: usual(sheet),
    }
    return found if sheet.rows else {}


def beginning(sheet: Findings) -> list[str]:
    """Return what is said first, in sentences: what differs from a library, and notes."""
    near = nearest(sheet)
    unknown = "No known library takes such arguments, so there is nothing to compare it with."
    differs = [near.in_short() if near else unknown] if sheet.is_found else []
    return [*differs, *map(visible, sheet.notes)]


def headline(sheet: Findings) -> str:
    """Return what a function computes in a few words: "causal self-attention with ALiBi"."""
    if not sheet.is_found:
        return "attention with unknown scores" if sheet.rows else "not identified"
    own = {row.setting: row for row in sheet.rows if not row.argument and row.kind != "usual"}
    what = {named.what for named in sheet.arguments}
    kind = "attention"
    if ROLES["memory"] in what:
        kind = "cross-attention"
    elif ROLES["x"] in what:
        kind = "self-attention"
    says = " ".join(own[name].says for name in ("product", "normaliser") if name in own)
    kind = " ".join([*(word for word in UNUSUAL if word in says), kind])
    kind = f"causal {kind}" if "causal" in own else kind
    features = [words for setting, words in FEATURES.items() if setting in own]
    return f"{kind} with {' and '.join(features)}" if features else kind


def verdict(sheet: Findings) -> str:
    """Return a sentence about the mistakes."""
    names = list(dict.fromkeys(row.name for row in sheet.mistakes))
    if not names:
        return f"Nothing looks like a mistake{_but_not_found(sheet)}."
    count = len(sheet.mistakes)
    looks = "One thing looks like a mistake" if count == 1 else f"{count} things look like mistakes"
    return f"{looks}: {', '.join(names)}."


def _but_not_found(sheet: Findings) -> str:
    """Return ", but ..." about arguments that are passed whole, and whose role was not found."""
    unclear = (each for each in sheet.arguments if each.note.startswith(UNCLEAR))
    *others, last = [*dict.fromkeys(visible(holder_of(each.name)) for each in unclear)] or [""]
    if not last:
        return ""
    if len(others) >= MOST_NAMED:
        return f", but what {len(others) + 1} of its arguments do was not found out"
    does = f"{', '.join(others)} and {last} do" if others else f"{last} does"
    return f", but what {does} was not found out"


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
    is_own = row.argument and (row.argument != row.name or row.name in ALWAYS)
    return f"{row.name} ({visible(row.argument)})" if is_own else row.name


def _beside(sheet: Findings) -> Iterator[tuple[Row, str]]:
    """Yield the conventions, those of several arguments as one, and where libraries differ."""
    rows = [row for row in sheet.rows if row.kind != "mistake" and row.setting != "gradients"]
    rows = [row for row in rows if not _is_quiet(row)]
    abouts: dict[tuple[str, str], list[str]] = {}  # the arguments that share a name and a text
    for row in rows:
        abouts.setdefault((row.name, row.says), []).append(row.argument)
    said: list[tuple[str, dict[str, Any]]] = []
    for row, there in zip(rows, in_libraries(sheet, rows), strict=True):
        about = abouts.pop((row.name, row.says), None)
        if about:
            values = row.name, {library: each.value for library, each in there.items()}
            differs = values not in said and any(v != row.value for v in values[1].values())
            said.append(values)
            merged = row._replace(argument=", ".join(filter(None, dict.fromkeys(about))))
            yield merged, in_words(row, there) if differs else ""


def _named_once(part: Iterable[tuple[Row, str]]) -> Iterator[list[str]]:
    """Yield names and texts; of rows with one name, only the first says it."""
    for name, group in groupby(part, lambda each: label_of(each[0])):
        labels = wrap(name, LABEL)
        texts = [""] * (len(labels) - 1) + [
            text
            for row, there in group
            for text in (visible(row.says) + f" ({there})" * bool(there), *_example(row))
        ]
        yield from map(list, zip_longest(labels, texts, fillvalue=""))


def _listed(part: Iterable[Named]) -> Iterator[list[str]]:
    for each in part:
        note = f" ({visible(each.note)})" * bool(each.note)
        yield [visible(each.name), each.axes, each.what + note]


def _compared(part: Iterable[tuple[str, str, str]]) -> Iterator[list[str]]:
    for name, here, there in part:
        yield [visible(name), visible(here)]
        if there:
            yield ["", visible(there)]


def _mistakes(part: Iterable[Row]) -> Iterator[list[str]]:
    for row in part:
        yield [label_of(row), visible(row.says)]
        if row.line:
            yield ["", f"line {row.line}: {visible(row.code)}"]
        if row.instead:
            yield ["", f"instead: {visible(row.instead)}"]
        if row.edit:
            yield ["", f"line {row.line} then is: {visible(row.edit)}"]
        yield from (["", line] for line in _example(row))


LINES: dict[str, Callable[[Any], Iterable[list[str]]]] = {  # of each part that has a title
    MISTAKES: _mistakes, "Arguments": _listed, "Returns": _listed, "Conventions": _named_once,
    "Gradients": lambda part: [[visible(says)] for says in part],
}  # fmt: skip


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
    near = nearest(sheet)
    found["nearest"] = {
        "library": near.library, "rows": [row.setting for row, _ in near.rows],
        "lacks": near.lacks, "says": near.in_short(),
    } if near else None  # fmt: skip
    found["mistakes"] = [_as_dict(row) for row in sheet.mistakes]
    return found


def _as_dict(each: Row | Named) -> dict[str, Any]:
    """Return the fields; that of an example only where there is one."""
    found = each._asdict()
    if found.get("value") == "":  # as causal, where nothing is hidden
        found["value"] = "none"
    example = found.pop("example", None)
    return {**found, "example": example.to_dict()} if example else found
