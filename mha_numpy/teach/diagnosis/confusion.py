"""How well mistakes are named: known ones, pairs, unknown slips; to be printed and as a page."""

import warnings
from collections.abc import Sequence
from itertools import combinations
from time import process_time
from typing import NamedTuple

import numpy as np

from mha_numpy.progress import progress
from mha_numpy.tables import Table
from mha_numpy.teach.conventions import Variant, using
from mha_numpy.teach.diagnosis.bank import BANK
from mha_numpy.teach.diagnosis.clues import find_clues
from mha_numpy.teach.diagnosis.diagnose import Diagnosis, diagnose
from mha_numpy.teach.diagnosis.fingerprints import Answer, answers_with, fingerprints, fits
from mha_numpy.teach.diagnosis.search import Candidate, candidates, have, made_edits
from mha_numpy.teach.diagnosis.small_edits import GROUPS

ANOTHER_SEED = 1  # whose numbers tell an explanation that fits by chance
PAGE = """# Which mistakes are named

Written by `mha-numpy mistakes --confusion --write docs/confusion.md`. The command makes every known
mistake in each function that it changes, and hands the answers to `diagnose`, which sees nothing
else. A mistake is *on top* if `diagnose` names it first. It is *among* the names if it is one of
several with the same numbers, for example because two mistakes turn the code into the same
function. Pairs are drawn at random. A pair is *named* if the first alternative contains one of its
two mistakes, or if a single small edit gives the same numbers and is named instead.

The mistakes are edits of the right implementation, both here and where `diagnose` compares. So this
page shows how well mistakes can be told apart, not that students make them in exactly this way. The
exhibits of the museum are separate code with one bug each, and all of them get the right name
(`tests/teach/exercises/test_catalogue.py`). [Exercises](exercises.md) explains how a check works.

"""

HELD_OUT = (
    "If no known mistake gives a student's numbers, the check searches small edits of the right "
    "function. How does it handle a slip that we did not think of? Here we make edits of each kind "
    "and search without that kind. *Named* means that a known mistake gives the same numbers, and "
    "*another edit* that an edit of a different kind does. With *clues* the check points out a "
    "step, a place in an array or a pattern; with *nothing* it finds none of these. An explanation "
    "counts as wrong if it no longer gives the same answers once different numbers are drawn."
)


class Counts(NamedTuple):
    """How many mistakes were made in a function, and how they were named."""

    singles: int  # mistakes that change something
    rejected: int
    on_top: int  # of the singles: the first name given is the right one
    among: int  # of the singles: the right name is among those given
    pairs: int  # of two mistakes that were made
    pairs_rejected: int
    pairs_named: int  # of the rejected: one of the two is named first, or one edit gives the same


class Confusion(NamedTuple):
    """The results for the mistakes made in one function."""

    task: str
    counts: Counts
    mixed_up: list[tuple[str, list[str]]]  # each mistake that is not on top, and what was named
    slowest: float  # seconds of a processor for a diagnosis


def find_confusion(tasks: Sequence[str], pairs: int = 100, seed: int = 0) -> list[Confusion]:
    """Make every mistake, and some pairs of them, and count how they are named.

    Parameters
    ----------
    tasks : names of ``TASKS``
    pairs : int
        How many pairs of mistakes to draw for each task, at most; alternatives, and those that
        fail on every probe, are no pairs.
    seed : int

    Returns
    -------
    list of Confusion
        One for each task.

    Examples
    --------
    >>> (found,) = find_confusion(["softmax_backward"], pairs=10)
    >>> found.counts.rejected == found.counts.on_top == found.counts.singles
    True
    """
    each = progress(list(tasks), len(tasks), "making mistakes")
    return [_confusion(task, pairs, seed) for task in each]


def _confusion(task: str, pairs: int, seed: int) -> Confusion:
    rng = np.random.default_rng([seed, *task.encode()])  # independent of the other tasks
    names, seconds = list(fingerprints(task)), [0.0]

    def diagnosed(answers: list[Answer]) -> Diagnosis:
        start = process_time()
        found = diagnose(task, answers)
        seconds.append(process_time() - start)
        return found

    rejected = on_top = among = 0
    mixed_up = []
    for name in names:
        found = diagnosed(fingerprints(task)[name])
        is_on_top = bool(found.causes) and found.causes[0] == {name}
        rejected += not found.is_right
        on_top += is_on_top
        among += frozenset({name}) in found.causes
        if not is_on_top:
            mixed_up.append((name, [" + ".join(sorted(cause)) for cause in found.causes]))

    both = list(combinations(names, 2))
    tried = pairs_rejected = pairs_named = 0
    for pair in (frozenset(both[i]) for i in rng.permutation(len(both))):
        if tried == pairs:
            break
        answers = answers_with(task, pair)
        if all(answer is None for answer in answers):  # or there is none: they are alternatives
            continue
        found = diagnosed(answers)
        tried += 1
        pairs_rejected += not found.is_right
        pairs_named += (
            bool(found.causes[0] & pair) if found.causes else bool(found.edit or found.apart)
        )
    counts = Counts(len(names), rejected, on_top, among, tried, pairs_rejected, pairs_named)
    return Confusion(task, counts, mixed_up, max(seconds))


class HeldOut(NamedTuple):
    """The results for the edits of one kind."""

    group: str
    made: int
    named: int  # by a known mistake that gives the same
    edited: int  # by an edit of another kind that gives the same
    clues: int  # steps, places or a pattern are shown
    nothing: int
    wrongly: int  # of the named and edited: other numbers are drawn, and it gives something else


def hold_out(tasks: Sequence[str], each: int = 2, seed: int = 0) -> list[HeldOut]:
    """Make edits of every kind, and search for them without that kind.

    Parameters
    ----------
    tasks : names of ``TASKS``
    each : int
        How many edits of each kind to draw for each task.
    seed : int

    Returns
    -------
    list of HeldOut
        One for each kind of edits.

    Examples
    --------
    >>> found = hold_out(["gelu"])
    >>> all(one.wrongly == 0 for one in found), sum(one.made for one in found) > 20
    (True, True)
    """
    counts = {group: np.zeros(6, dtype=int) for group in GROUPS}
    for task in progress(list(tasks), len(tasks), "holding out"):
        rng = np.random.default_rng([seed, *task.encode()])
        edits, (rows, numbers, _) = candidates(task), made_edits(task)
        groups = np.array([edits[row].edit.group for row in rows])
        for group in GROUPS:
            drawn = rng.permutation(np.flatnonzero(groups == group))[:each]
            for i in drawn:
                others = rows[have(numbers, numbers[i]) & (groups != group)]
                ranked = sorted(others, key=lambda row: edits[row].edit.rank)
                counts[group] += _told(task, edits[rows[i]], [edits[row] for row in ranked])
    return [HeldOut(group, *map(int, count)) for group, count in counts.items() if count[0]]


def _told(task: str, made: Candidate, others: Sequence[Candidate]) -> list[int]:
    """Return the counts of one edit, as in HeldOut."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = list(made.answers(task))
        names = [name for name, known in fingerprints(task).items() if fits(answers, known)]
        fitting = (one for one in others if fits(answers, list(one.answers(task))))
        other = None if names else next(fitting, None)
        if names or other:
            with using(Variant(ANOTHER_SEED)):
                told = list(other.answers(task)) if other else answers_with(task, names[:1])
                wrongly = not fits(list(made.answers(task)), told)
            return [1, bool(names), not names, 0, 0, wrongly]
    has_clue = bool(find_clues(task, answers))
    return [1, 0, 0, has_clue, not has_clue, 0]


def bank_table(tasks: Sequence[str]) -> Table:
    """Return the mistakes that show in some functions, each with its fix."""
    names = dict.fromkeys(name for task in tasks for name in fingerprints(task))
    rows = [[name, BANK[name].verdict, BANK[name].fix] for name in names]
    of = tasks[0] if len(tasks) == 1 else f"{len(tasks)} functions"
    return Table(f"{len(rows)} known mistakes in {of}", ["mistake", "what was done", "fix"], rows)


def confusion_sections(found: Sequence[Confusion]) -> list[Table | str]:
    """Return the counts of each function, their sums, and the mistakes that were mixed up."""
    total = Counts(*(sum(counts) for counts in zip(*(c.counts for c in found), strict=True)))
    slowest = max(c.slowest for c in found)
    rows = [_row(c.task, c.counts, c.slowest) for c in found] + [_row("all", total, slowest)]
    columns = [
        "function", "mistakes", "rejected", "on top", "among", "pairs", "rejected", "named",
        "slowest",
    ]  # fmt: skip
    on_top, among, named = (
        f"{count / max(of, 1):.1%}"
        for count, of in (
            (total.on_top, total.singles),
            (total.among, total.singles),
            (total.pairs_named, total.pairs_rejected),
        )
    )
    text = (
        f"{total.rejected} of {total.singles} mistakes are rejected; {on_top} are named first, and "
        f"{among} are among the names. Of {total.pairs_rejected} pairs that do not cancel out, "
        f"{named} have one of the two named first."
    )
    mixed = [
        [c.task, name, "; ".join(named) or "nothing"] for c in found for name, named in c.mixed_up
    ]
    sections: list[Table | str] = [Table("Mistakes made and named", columns, rows), text]
    if mixed:
        sections.append(Table("Not on top", ["function", "mistake", "named"], mixed))
    return sections


def held_out_sections(found: Sequence[HeldOut]) -> list[Table | str]:
    """Return the explanations of edits whose kind the search did not know."""
    total = HeldOut("all", *(sum(counts) for counts in list(zip(*found, strict=True))[1:]))
    rows = [[one.group, *map(str, one[1:])] for one in (*found, total)]
    columns = ["kind of edit", "made", "named", "another edit", "clues", "nothing", "wrongly"]
    explained = total.named + total.edited + total.clues
    text = (
        f"Of {total.made} edits, {explained / total.made:.1%} are explained, {total.wrongly} of "
        "them wrongly. For the others, the check says that no known cause fits."
    )
    return [Table("Edits of a held-out kind", columns, rows), HELD_OUT, text]


def _row(name: str, counts: Counts, slowest: float) -> list[str]:
    return [name, *map(str, counts), f"{1000 * slowest:.0f} ms"]


def to_markdown(sections: Sequence[Table | str]) -> str:
    """Return the page docs/confusion.md."""
    parts = [part if isinstance(part, str) else part.to_markdown() for part in sections]
    return PAGE + "\n\n".join(parts) + "\n"
