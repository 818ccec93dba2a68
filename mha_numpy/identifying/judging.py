"""Which rows are mistakes, and which line of the source is to blame."""

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from mha_numpy.identifying.blame import Blame, find_blame, find_change, find_first_nan
from mha_numpy.identifying.family import USUAL
from mha_numpy.identifying.look import Looked
from mha_numpy.identifying.promises import Promise, find_promises
from mha_numpy.identifying.rows import Row, make_row
from mha_numpy.identifying.search import Found
from mha_numpy.identifying.subject import Subject

NOT_FINITE = ("not finite", "nan", "other numbers")
KEPT_BY: dict[tuple[str, Any], tuple[str, tuple[Any, ...]]] = {  # promises in the words of rows
    ("window_keys", "w keys, itself included"): ("window_given", ("w-1 before",)),
    ("window_keys", "w before and itself"): ("window_given", ("w before",)),
    ("blind", "mean"): ("blind", ("mean of all values",)),
    ("half", "fine"): ("half_masked", ()),
    ("weights_sum", "one"): ("hide", ("-inf",)),
    ("dropout", "in training only"): (
        "dropout_when",
        ("in train()", "if True", "if False", "with a rate"),
    ),
    ("dropout", "scaled by 1/(1-p)"): ("dropout_scale", ("1/(1-p)",)),
}
QUIET = ("rotation", "softcap_at")  # no row says that they are usual


def judge(looked: Looked, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows; those that break a promise as mistakes, and mistakes with their line."""
    rows = [*rows]
    for promise in promises_of(looked.subject):
        setting, values = KEPT_BY.get(
            (promise.setting, promise.values[0]), (promise.setting, promise.values)
        )
        rows = [*_held_to(rows, looked, promise, setting, values)]
    for row in rows:
        blame = _blame(looked, row) if row.kind == "mistake" else None
        yield row._replace(line=blame.line, code=blame.text) if blame else row


def promises_of(subject: Subject) -> list[Promise]:
    """Return what a function says of itself, in its own text and in those around it."""
    holder = getattr(subject.function, "__self__", subject.function)
    around = [subject.inner, type(holder) if not inspect.isroutine(holder) else None]
    around.append(inspect.getmodule(subject.inner))
    texts = [inspect.getdoc(each) or "" for each in around if each is not None]
    names = [argument.name for argument in subject.arguments]
    return find_promises(subject.name, "\n\n".join(texts), names, subject.source)


def _held_to(
    rows: list[Row], looked: Looked, promise: Promise, setting: str, values: tuple[Any, ...]
) -> Iterator[Row]:
    """Yield rows; those that a promise is about, and that break it, as mistakes."""
    says = f"but it says: {promise.quote.strip()!r}"
    same = [row for row in rows if row.setting == setting]
    about = [row for row in same if row.argument == promise.argument]
    if not about and not (setting == "causal" and promise.argument):  # a flag that is off
        about = [row for row in same if not row.argument or not promise.argument]
    for row in rows:
        is_moot = (setting, row.value) == ("alignment", "error")
        if row in about and row.value not in values and row.kind != "mistake" and not is_moot:
            instead = make_row(setting, values[0]).says if values else ""
            row = row._replace(kind="mistake", says=f"{row.says}; {says}", instead=instead)
        yield row
    if setting in QUIET and not about and USUAL[setting] not in values:
        row, instead = make_row(setting, USUAL[setting]), make_row(setting, values[0]).says
        yield row._replace(kind="mistake", says=f"{row.says}; {says}", instead=instead)


def _blame(looked: Looked, row: Row) -> Blame | None:
    """Find the line in which a row shows."""
    if row.setting == "inputs":
        return find_change(looked.subject, row.argument)
    setting = row.setting
    if setting == "alignment" and row.value == USUAL[setting]:
        setting = "causal"  # the line that lets a query see no key after its own
    found = _finding(looked, row, setting)
    if found and setting in found.settings:
        return find_blame(looked.subject, found.seen, found.settings, setting)
    facts = (f for f in looked.facts if (f.name, f.argument) == (row.setting, row.argument))
    seen = next((fact.seen for fact in facts), None)
    if seen is None or row.value not in NOT_FINITE:
        return None
    own = looked.subject.dtype
    looked.subject.dtype = "float16" if setting == "half_masked" else own
    try:
        return find_first_nan(looked.subject, seen)
    finally:
        looked.subject.dtype = own


def _finding(looked: Looked, row: Row, setting: str) -> Found | None:
    """Return the call that showed a setting that is not usual."""
    calls = [each.found for each in looked.options if each.argument == row.argument]
    calls += [looked.found, *(each.found for each in looked.options)]
    return next((found for found in calls if found and found.settings.get(setting)), None)
