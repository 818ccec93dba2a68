"""What to write in the line of a mistake, where a small edit makes the function right."""

from collections.abc import Mapping
from typing import Any

from mha_numpy.identifying.blaming.blame import find_blame
from mha_numpy.identifying.blaming.remedy import Remedy, find_remedy
from mha_numpy.identifying.facts.feeding import of_heads
from mha_numpy.identifying.family import SETTINGS, USUAL, Problem
from mha_numpy.identifying.look import Looked, other_lengths
from mha_numpy.identifying.reporting.rows import Row
from mha_numpy.identifying.searching.search import Found, Seen, explain

OF_SCORES = ("large_scores", "uneven_scores")
MEANT = {  # what a mistake of a setting should have been, where that is not the usual
    "causal": ("past and itself",), "rotation": ("halves", "pairs"), "qk_norm": ("l2",),
    "alibi": ("slopes from 2^(-8/H)",), "scale": ("1/sqrt(d)",),
}  # fmt: skip


def mended_cache(looked: Looked, row: Row) -> Row:
    """Return the row of a cache with its line: the one that shows the cause, or that mends it."""
    fact = next((fact for fact in looked.facts if fact.name == "cache"), None)
    if looked.found is None or fact is None or fact.seen is None or row.value == "differs":
        return row
    if fact.first:
        with looked.subject.after(fact.first):
            return _mended_cache(looked, row, fact.seen, looked.found.settings)
    return _mended_cache(looked, row, fact.seen, looked.found.settings)


def _mended_cache(looked: Looked, row: Row, seen: Seen, settings: Mapping[str, Any]) -> Row:
    subject, right, blame = looked.subject, of_heads(settings), None
    if row.value == "top left":
        wrong = of_heads(settings, "top left")
        blame = find_blame(subject, seen, wrong, "alignment", "bottom right")
    if row.value == "positions":
        sizes, given = seen.problem.sizes, seen.problem.given
        tokens = {role: given[role][:, :, -sizes.T :] for role in ("query", "key", "value")}
        late = seen._replace(problem=Problem(sizes._replace(S=sizes.T), tokens))
        for start in (0, sizes.H):
            wrong = {**settings, "first_position": start}
            blame = blame or find_blame(subject, late, wrong, "first_position", sizes.S - sizes.T)
    row = row._replace(line=blame.line, code=blame.text) if blame else row
    own = [seen], row.line, lambda seen: explain(seen, right), row.argument
    return _with(row, find_remedy(subject, *own))


def _with(row: Row, remedy: Remedy | None) -> Row:
    if remedy is None:
        return row
    return row._replace(edit=remedy.text, line=remedy.line, code=remedy.code)


def mended(looked: Looked, row: Row, found: Found | None, right: Any) -> Row:
    """Return a row of a mistake with the right line, if an edit gives the right numbers.

    `right` is what was promised; None is the usual. Other mistakes may stay as they are.
    """
    if found is None or not row.line:
        return row
    subject, calls = looked.subject, [found.seen]
    meant: list[dict[str, Any]] = [found.settings]
    if row.setting in SETTINGS:
        values = MEANT.get(row.setting, (USUAL[row.setting],)) if right is None else (right,)
        meant = [{**found.settings, row.setting: value} for value in values]
        calls += other_lengths(subject, found)
    elif row.setting in OF_SCORES:
        calls += [fact.seen for fact in looked.facts if fact.name == row.setting and fact.seen]
    else:
        return row

    def is_right(seen: Seen) -> bool:
        return any(explain(seen, settings) for settings in meant)

    shows = [seen for seen in calls if not is_right(seen)]
    if not shows:
        return row
    remedy = find_remedy(subject, [*shows[:2], calls[0]], row.line, is_right)
    return _with(row, remedy)
