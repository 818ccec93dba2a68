"""Exercise: a function to write, with its task and its hints."""

import inspect
import re
from collections.abc import Callable
from textwrap import dedent
from typing import Any, Literal, NamedTuple

Kind = Literal[
    "code",  # a stub is handed out, to be written
    "museum",  # code with a bug is handed out, to be mended
    "tests",  # a function that tests a piece is to be written
]


class Hints(NamedTuple):
    """Four hints, each more direct than the one before."""

    where: str  # where to look
    question: str  # whose answer is the way
    mistake: str  # a name of the bank: what many do here; it is shown with a picture
    fix: str  # the lines, or what stands in them: those that are Python are shown as code


class Exercise(NamedTuple):
    """One function to write: the stub is handed out, the piece knows its probes and mistakes."""

    id: str
    kind: Kind
    title: str
    difficulty: int  # 1 (a line or two) to 5 (an evening)
    minutes: int
    needs: tuple[str, ...]  # ids of the exercises before it
    hints: Hints
    piece: str  # a key of `mistakes.PIECES`
    stub: Callable[..., Any]

    @property
    def function_name(self) -> str:
        """What a student's function is called."""
        return self.stub.__name__

    @property
    def stub_source(self) -> str:
        """The stub as text, without the decorator that made it an exercise."""
        source = dedent(inspect.getsource(self.stub))
        return re.sub(r"\A@.*?^(?=def )", "", source, flags=re.DOTALL | re.MULTILINE)


def exercise(
    exercise_id: str,
    *,
    title: str,
    difficulty: int,
    minutes: int,
    hints: Hints,
    needs: tuple[str, ...] = (),
    piece: str = "",
    kind: Kind = "code",
) -> Callable[[Callable[..., Any]], Exercise]:
    """Turn the function below, a stub or a text with a bug, into an exercise.

    Its docstring is the task. It is of the piece of its own name unless `piece` says another.
    """

    def enter(stub: Callable[..., Any]) -> Exercise:
        of_piece = piece or stub.__name__
        return Exercise(exercise_id, kind, title, difficulty, minutes, needs, hints, of_piece, stub)

    return enter
