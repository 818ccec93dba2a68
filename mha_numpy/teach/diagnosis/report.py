"""The bank and the confusion table, to be printed and as a page."""

from collections.abc import Sequence

from mha_numpy.tables import Table
from mha_numpy.teach.diagnosis.bank import BANK
from mha_numpy.teach.diagnosis.confusion import Confusion, Counts, HeldOut
from mha_numpy.teach.diagnosis.fingerprints import fingerprints

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
