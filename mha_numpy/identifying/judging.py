"""Which rows are mistakes, and which line of the source is to blame."""

from collections.abc import Iterable, Iterator

from mha_numpy.identifying.blame import Blame, find_blame, find_change, find_first_nan
from mha_numpy.identifying.family import SETTINGS, USUAL
from mha_numpy.identifying.look import Looked
from mha_numpy.identifying.rows import Row
from mha_numpy.identifying.search import Found


def judge(looked: Looked, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows, mistakes with the line that is to blame."""
    for row in rows:
        if row.kind == "mistake":
            blame = _blame(looked, row)
            if blame:
                row = row._replace(line=blame.line, code=blame.text)
        yield row


def _blame(looked: Looked, row: Row) -> Blame | None:
    """Find the line in which a row shows."""
    if row.setting == "inputs":
        return find_change(looked.subject, row.argument)
    found = _finding(looked, row)
    if found and found.settings.get(row.setting) == row.value:
        return find_blame(looked.subject, found.seen, found.settings, row.setting)
    facts = (f for f in looked.facts if (f.name, f.argument) == (row.setting, row.argument))
    seen = next((fact.seen for fact in facts), None)
    return find_first_nan(looked.subject, seen) if seen and row.value in NOT_FINITE else None


NOT_FINITE = ("not finite", "nan", "other numbers")


def _finding(looked: Looked, row: Row) -> Found | None:
    """Return the call that showed a setting that is not usual."""
    if row.setting not in SETTINGS or row.value == USUAL[row.setting]:
        return None
    options = [each.found for each in looked.options if each.argument == row.argument]
    return next((found for found in options if found), looked.found)
