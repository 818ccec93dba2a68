"""Which line of the source is to blame for a mistake, and examples of what was found."""

import time
from collections.abc import Iterable, Iterator, Sequence

from mha_numpy.identifying.blame import Blame, find_blame, find_change, find_first_nan
from mha_numpy.identifying.examples import Example, make_example
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


def add_examples(looked: Looked, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield rows with an example of each that is not usual; those of mistakes are made first."""
    until = time.process_time() + EXAMPLES
    findings = [looked.found, *(option.found for option in looked.options)]
    made: dict[int, Example | None] = {}
    for at in sorted(range(len(rows)), key=lambda at: rows[at].kind != "mistake"):
        row = rows[at]
        for found in findings if row.kind != "usual" else ():
            is_about = found and (not row.argument or row.argument in found.seen.way.slots)
            if found and is_about and not made.get(at) and time.process_time() < until:
                made[at] = make_example(looked.subject, found, row.setting, row.value)
    for at, row in enumerate(rows):
        yield row._replace(example=made.get(at))


EXAMPLES = 2.0  # seconds of the processor
NOT_FINITE = ("not finite", "nan", "other numbers")


def _finding(looked: Looked, row: Row) -> Found | None:
    """Return the call that showed a setting that is not usual."""
    if row.setting not in SETTINGS or row.value == USUAL[row.setting]:
        return None
    options = [each.found for each in looked.options if each.argument == row.argument]
    return next((found for found in options if found), looked.found)
