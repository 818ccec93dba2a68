"""Hints: where to look, a question, the mistake that many make, the line that fixes it."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import dedent, indent

from mha_numpy.checking import agrees
from mha_numpy.checking.compare import matched
from mha_numpy.errors import ConfigError
from mha_numpy.tables import Table
from mha_numpy.teach.diagnosis import BANK, TASKS, Mistake, fingerprints, right_answers
from mha_numpy.teach.diagnosis.fingerprints import TOLERANCE
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.verdict import Difference, code_block, find_difference, paragraph

COUNT = 4
CODE = "    "  # before a line of code
WORDS = (ast.And, ast.In, ast.Is, ast.Not, ast.Or)  # no line that fixes needs one
MADE = ("right", "with this mistake")


@dataclass(frozen=True, repr=False)
class Hint:
    """One of the four hints, the third with a picture."""

    exercise: Exercise
    number: int  # 1 to 4
    text: str
    difference: Difference | None = None
    is_given: bool = True  # else the text says what to do first

    @property
    def sections(self) -> list[Table | str]:
        """The printed form: the text, and the numbers in the picture."""
        return [str(self), self.difference.table()] if self.difference else [str(self)]

    @property
    def title(self) -> str:
        """The title of the hint."""
        which = f"hint {self.number} of {COUNT}" if self.is_given else "no hint yet"
        return f"{self.exercise.id}, {which}:"

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        begin = "\n" if self.text.startswith(CODE) else " "
        return f"{self.title}{begin}{self.text}"

    def _repr_html_(self) -> str:
        picture = self.difference.draw()._repr_html_() if self.difference else ""
        told, label = "", f"{self.title} "
        for is_code, lines in groupby(self.text.split("\n"), lambda line: line.startswith(CODE)):
            text = "\n".join(lines)
            if is_code:
                told += paragraph(label, "") * bool(label) + code_block(dedent(text))
            else:
                told += paragraph(label, text)
            label = ""
        return told + picture


def give_hint(exercise: Exercise, number: int, mistakes: Sequence[str] = ()) -> Hint:
    """Return a hint; the third and the fourth are about the student's own mistake, if known.

    Parameters
    ----------
    exercise : Exercise
    number : int
        1 to 4.
    mistakes : names of the bank
        What the last check found to be the likely cause.

    Returns
    -------
    Hint

    Examples
    --------
    >>> from mha_numpy.teach.exercises import find_exercise
    >>> print(give_hint(find_exercise("softmax-backward"), 4))
    softmax-backward, hint 4 of 4:
        weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
    """
    if not 1 <= number <= COUNT:
        raise ConfigError(f"number: expected 1 to {COUNT}; got {number}")
    hints = exercise.hints
    if number == 1:
        return Hint(exercise, number, hints.where)
    if number == 2:
        return Hint(exercise, number, hints.question)
    own = [BANK[name] for name in mistakes if name in BANK]
    if number == 3:
        shown = own or [BANK[hints.mistake]]
        text = ", and ".join(mistake.verdict for mistake in shown)
        return Hint(
            exercise, number, f"{_whose(exercise, own)}: {text}.", _picture(exercise, shown[0].name)
        )
    fixed = [line for mistake in own for line in (f"{mistake.verdict}; better:", mistake.fix)]
    lines = [*fixed, *["the whole answer:"] * bool(fixed), *hints.fix.split("\n")]
    return Hint(exercise, number, "\n".join(map(_set_apart, lines)))


def _set_apart(line: str) -> str:
    """Return a line of words as it is, and a line of Python as indented lines, by statement."""
    try:
        found = ast.walk(ast.parse(line))
    except SyntaxError:
        return line
    is_prose = any(isinstance(node, WORDS) for node in found)  # as in "argmax, not argmin"
    return line if is_prose else indent(line.replace("; ", "\n"), CODE)


def _whose(exercise: Exercise, own: Sequence[Mistake]) -> str:
    """Say where the mistake of the third hint comes from."""
    if own and exercise.kind != "museum":
        return "the mistake that your last answer shows"
    others = {"tests": "a mistake that many tests miss", "museum": "the bug here"}
    return others.get(exercise.kind, "a mistake that many make here, perhaps not you")


def _picture(exercise: Exercise, mistake: str) -> Difference | None:
    """Return the first array that a mistake changes, right and wrong."""
    name = TASKS[exercise.task].result or "result"
    wrong = fingerprints(exercise.task).get(mistake, [])
    for right, made in zip(right_answers(exercise.task), wrong, strict=False):
        for title, actual, expected in matched(made, right, name) if made is not None else ():
            found = find_difference(title, actual, expected)
            if found is not None and not agrees(actual, expected, tolerance=TOLERANCE):
                return Difference(found.title, found.expected, found.actual, MADE)
    return None
