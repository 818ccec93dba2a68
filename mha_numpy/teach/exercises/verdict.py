"""Verdict: the result of a check, as text, as HTML and as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.checking.differences import distances, largest_of
from mha_numpy.dtypes import Array
from mha_numpy.tables import Table, plain
from mha_numpy.teach.diagnosis import BANK
from mha_numpy.teach.diagnosis.fingerprints import TOLERANCE
from mha_numpy.teach.diagnosis.search import SmallEdit
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.mends import Mended
from mha_numpy.teach.exercises.stages import Stage

if TYPE_CHECKING:
    from mha_numpy.show.pictures import Picture


ROWS, COLUMNS = 6, 8  # of a matrix in text
PRINTED = 12  # lines of what the student's code printed
LIBRARY = "uses the library"  # a remark


@dataclass(frozen=True)
class Difference:
    """The first array that differs: one matrix of it, expected and actual."""

    title: str  # "d_k, sequence 0, head 2"
    expected: Array
    actual: Array
    names: tuple[str, str] = ("expected", "yours")

    def table(self) -> Table:
        """Return both in text: the rows that differ most, and columns with the first difference."""
        expected, actual = np.atleast_2d(self.expected), np.atleast_2d(self.actual)
        off = _distances(actual, expected)
        worst = off.max(axis=1)
        order = np.argsort(-worst, kind="stable")[:ROWS]
        largest = float(largest_of(expected.astype(float)))
        shown = sorted(int(i) for i in order if worst[i] > TOLERANCE * largest)
        wrong = np.flatnonzero((off[shown] > TOLERANCE * largest).any(axis=0))
        last = max(COLUMNS, int(wrong[0]) + 1 if wrong.size else 0)
        names = [name.ljust(max(map(len, self.names))) for name in self.names]
        rows = [
            [f"row {i}" if name == names[0] else "", name, _numbers(array[i], last - COLUMNS, last)]
            for i in shown
            for name, array in zip(names, (expected, actual), strict=True)
        ]
        bad = frozenset(range(1, len(rows), 2))
        return Table(self.title, ["", "", "numbers"], rows, bad)

    def draw(self) -> "Picture":
        """Draw the expected matrix, the actual one, and their difference."""
        from mha_numpy.show.pictures import matrices

        panels = dict(zip(self.names, (self.expected, self.actual), strict=True))
        if self.expected.dtype != bool:
            panels["difference"] = self.actual - self.expected
        return matrices(panels, title=self.title)


@dataclass(frozen=True, repr=False)
class Verdict:
    """The stages of a check, the likely cause or a clue, and remarks; true if all is right."""

    exercise: Exercise
    stages: list[Stage]
    printed: str  # what the student's code printed
    remarks: dict[str, str] = field(default_factory=dict)  # "likely cause" or "clue": a sentence
    mistakes: frozenset[str] = frozenset()  # of the bank: the likely cause; none if nothing fits
    difference: Difference | None = None
    unwritten: str = ""  # in which words the function is still as it was handed out
    share: float | None = None  # of the points, where an exercise counts them in its own way
    edit: SmallEdit | None = None  # of the right function, which gives the same numbers
    mended: Mended | None = None  # the student's function in one line, which makes it right
    seconds: float = 0.0  # that the check took

    @property
    def passed(self) -> bool:
        """Whether no stage failed."""
        return all(stage.passed for stage in self.stages)

    @property
    def is_unwritten(self) -> bool:
        """Whether the function is still as handed out: a stub, or the museum's code."""
        return bool(self.unwritten)

    @property
    def kind(self) -> str:
        """The kind of slip that explains the answer, or the known mistakes; "" without any."""
        slip = self.edit.group if self.edit else self.mended.slip if self.mended else ""
        return ", ".join([*sorted(self.mistakes), *[slip] * bool(slip)])

    @property
    def summary(self) -> str:
        """The verdict in one line: the cause if it is known, else a clue or the first finding."""
        if self.is_unwritten:
            return self.unwritten
        if self.passed:
            return f"right, but {self.remarks[LIBRARY]}" if LIBRARY in self.remarks else "right"
        first = next(stage for stage in self.stages if not stage.passed)
        if first.name == "runs":
            return first.finding
        why = self.remarks.get("likely cause", self.remarks.get("clue"))
        return why or f"{first.name}: {first.finding}"

    @property
    def title(self) -> str:
        """The title of the table: the exercise and its state."""
        state = "right" if self.passed else self.unwritten or "not right"
        return f"{self.exercise.id}: {state}"

    @property
    def sections(self) -> list[Table | str]:
        """The printed form: the stages as a table, and the remarks."""
        if self.unwritten and not self._told:
            return [self.title]
        table = stages_table(self.title, self.stages)
        lines = [f"{name}: {text}" for name, text in self._told.items()]
        told = "\n".join(lines).replace(": \n", ":\n")  # a list starts on a new line
        return [table, told] if told else [table]

    @property
    def _told(self) -> dict[str, str]:
        """The remarks, and what the student's code printed."""
        lines = self.printed.strip().splitlines()
        more = [f"... and {len(lines) - PRINTED} more lines"] if len(lines) > PRINTED else []
        printed = "\n".join([*lines[:PRINTED], *more])
        label = "your code printed (every input runs twice)"
        return {**self.remarks, label: printed} if printed else self.remarks

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict for a program, as `mha-numpy check --json` prints it.

        Returns
        -------
        dict
            ``exercise``, ``passed``, ``stages``, ``likely_cause``, ``clue``, ``causes``, ``edit``,
            ``mend``, ``evidence``, ``seconds``: only texts, numbers, bools and None, in lists and
            dicts. A later version may add keys.

        Examples
        --------
        >>> from mha_numpy.teach.exercises import find_exercise, judge
        >>> mine = lambda d_weights, weights: weights * d_weights
        >>> found = judge(find_exercise("softmax-backward"), lambda: mine).as_dict()
        >>> found["passed"], [cause["name"] for cause in found["causes"]]
        (False, ['row sum left out'])
        """
        named = () if self.is_unwritten else sorted(self.mistakes)  # no bug is given away
        return {
            "exercise": self.exercise.id,
            "passed": self.passed,
            "stages": [
                {"name": stage.name, "passed": stage.passed, "finding": stage.finding}
                for stage in self.stages
            ],
            "likely_cause": self.remarks.get("likely cause"),
            "clue": self.remarks.get("clue"),
            "causes": [{"name": name, "words": BANK[name].verdict} for name in named],
            "edit": self.edit
            and {"group": self.edit.group, "wrong": self.edit.wrong, "right": self.edit.right},
            "mend": self.mended and self.mended._asdict(),
            "evidence": self.remarks.get("evidence"),
            "seconds": self.seconds,
        }

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return plain(self.sections)

    def _repr_html_(self) -> str:
        """Show the table, the remarks and the picture in a notebook."""
        table, *_ = self.sections
        parts = [paragraph("", table) if isinstance(table, str) else table.to_html()]
        parts += [paragraph(f"{name}: ", text) for name, text in self._told.items()]
        if self.difference is not None:
            parts.append(self.difference.draw()._repr_html_())
        return "".join(parts)


def stages_table(title: str, stages: Sequence[Stage]) -> Table:
    """Return a line for each stage: its mark, its name and what it found."""
    marks = {True: "ok", False: "FAIL", None: "-"}
    rows = [[marks[stage.passed], stage.name, stage.finding] for stage in stages]
    bad = frozenset(number for number, stage in enumerate(stages) if stage.passed is False)
    return Table(title, ["", "stage", "finding"], rows, bad)


def as_list(texts: Sequence[str]) -> str:
    """Return a text, or several as a list."""
    return texts[0] if len(texts) == 1 else "".join(f"\n- {text}" for text in texts)


def paragraph(label: str, text: str) -> str:
    """Return a line of HTML with its label in bold, in the colours of the page around it."""
    style = "margin:0;padding:2px 0;white-space:pre-wrap"
    return f'<p style="{style}"><b>{escape(label)}</b>{escape(text)}</p>'


def code_block(text: str) -> str:
    """Return lines of code as HTML, in the colours of the page around it."""
    style = "color:inherit;background:rgba(128,128,128,0.12);margin:0;padding:2px 6px"
    return f'<pre style="{style}"><code>{escape(text)}</code></pre>'


def _numbers(row: Array, first: int, last: int) -> str:
    texts = [f"{x:7}" if row.dtype == bool else f"{x:7.3g}" for x in row[first:last].tolist()]
    return "... " * (first > 0) + " ".join(texts) + " ..." * (len(row) > last)


def _distances(actual: Array, expected: Array) -> Array:
    """Return how far each number is off; infinity where that is not a number."""
    return np.nan_to_num(distances(actual, expected), nan=np.inf, posinf=np.inf)


def find_difference(name: str, actual: Any, expected: Array) -> Difference | None:
    """Return the matrix of an array that is furthest off, if the shapes fit."""
    actual = np.asarray(actual)
    is_fit = actual.shape == expected.shape and actual.dtype.kind == expected.dtype.kind
    if not is_fit or expected.ndim == 0 or max(expected.shape[-2:]) > 64:
        return None
    off = _distances(actual, expected)
    index = np.unravel_index(off.argmax(), off.shape)[: max(expected.ndim - 2, 0)]
    where = ("sequence", "head")[: len(index)] if len(index) < 3 else ("",) * len(index)
    title = ", ".join([name, *(f"{word} {i}" for word, i in zip(where, index, strict=True))])
    return Difference(title, expected[index], actual[index])
