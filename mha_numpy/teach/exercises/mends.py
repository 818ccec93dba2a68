"""Mends: a change in one place of a student's own text, and whether it works.

What a message or some numbers only suggest, a changed copy proves: if the function runs with
`keepdims=True` in one of its lines, that is what was missing there.
"""

import ast
import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from textwrap import dedent
from typing import Any, NamedTuple

from mha_numpy.checking import agrees
from mha_numpy.teach.diagnosis import find_task, right_answers
from mha_numpy.teach.diagnosis.changes import changes_of
from mha_numpy.teach.diagnosis.fingerprints import TOLERANCE
from mha_numpy.teach.exercises.child.messages import Call
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.task import Inputs

MOST = 8  # changes that are tried
SECONDS = 3.0  # after which no further one is
SMALL = 5_000  # small changes that are tried on one input
LINE = 80  # characters of a line that is quoted
Works = Callable[[str], int]  # how well a changed text works: 0 not, 1 it runs, 2 shapes are right
Attempts = Callable[[Sequence[Inputs]], Sequence[Call]]  # calls, each of a text with inputs


class Mend(NamedTuple):
    """An expression of a text, and what to write instead."""

    node: ast.expr
    new: str


def changed(text: str, mends: Iterable[Mend]) -> str:
    r"""Return a text with some of its expressions replaced; none may be inside of another.

    Examples
    --------
    >>> text = "é = f(x / 2)"
    >>> node = ast.parse(text).body[0].value.args[0]
    >>> changed(text, [Mend(node, "x // 2")])
    'é = f(x // 2)'
    """
    data = text.encode()
    starts = [0]
    for line in data.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    spots = [
        (
            starts[one.node.lineno - 1] + one.node.col_offset,
            starts[(one.node.end_lineno or 0) - 1] + (one.node.end_col_offset or 0),
            one.new.encode(),
        )
        for one in mends
    ]
    for begin, end, new in sorted(spots, reverse=True):
        data = data[:begin] + new + data[end:]
    return data.decode()


def first_that_works(text: str, mends: Iterable[Mend], works: Works, least: int = 1) -> list[Mend]:
    """Return the one mend that works, or all of them if they work together; else none."""
    tried, ends = list(islice(mends, MOST)), time.monotonic() + SECONDS
    for one in tried:
        if time.monotonic() > ends:
            return []
        if works(changed(text, [one])) >= least:
            return [one]
    is_nested = any(a is not b and a.node in ast.walk(b.node) for a in tried for b in tried)
    if len(tried) > 1 and not is_nested and works(changed(text, tried)) >= least:
        return tried
    return []


def line_of(text: str, number: int) -> str:
    """Return a line of a text, to be quoted."""
    lines = text.split("\n")
    return lines[number - 1].strip()[:LINE] if 0 < number <= len(lines) else ""


def source_of(function: Callable[..., Any]) -> str:
    """Return the text of a function, on the lines where it is in its file; "" if it has none."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return ""
    return "\n" * (first - 1) + dedent("".join(lines))


def remade(function: Callable[..., Any], text: str) -> Callable[..., Any]:
    """Return a function made from a changed text, with the names that it knew."""
    (definition,) = ast.parse(text).body
    if not isinstance(definition, ast.FunctionDef):  # a lambda in a line that does more
        raise TypeError(text)
    names = dict(function.__globals__)
    exec(compile(text, function.__code__.co_filename, "exec"), names)
    return names[definition.name]


class Mended(NamedTuple):
    """A change of one line that makes a student's function right."""

    slip: str  # its kind
    line: int
    old: str  # all of the line
    new: str  # what to write instead; "" to leave it out

    @property
    def place(self) -> str:
        """The slip and its line, in words."""
        return f"{self.slip}, in line {self.line} of your code: `{self.old}`"


def attempting(name: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Return a function that calls the one of this name in a text, which may use some names.

    Its source also runs where this package is not to be seen.
    """
    import signal

    def end(*_: object) -> None:
        raise TimeoutError

    def attempt(text: str, *given: Any) -> Any:
        signal.signal(signal.SIGVTALRM, end)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.5)  # some changes never come to an end
        try:
            known = dict(names)
            exec(compile(text, "changed", "exec"), known)
            return known[name](*given)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    return attempt


def attempting_source(name: str) -> str:
    """Return `attempting` as a text that has a function of this name."""
    return f"{inspect.getsource(attempting)}\n{name} = attempting({name!r}, {{}})\n"


def find_mended(
    exercise: Exercise,
    text: str,
    number: int,
    attempts: Attempts,
    is_right: Callable[[str], bool],
) -> Mended | None:
    """Return a change in one place of a student's text that makes it right, if there is one.

    Parameters
    ----------
    exercise : Exercise
    text : str
        With line numbers as the student knows them.
    number : int
        Of a probe on which it is wrong.
    attempts : callable
        Makes a call for each of some inputs, the first of which is the changed text.
    is_right : callable
        Whether a changed text passes the whole check.
    """
    try:
        changes = changes_of(text, exercise.stub_source)[:SMALL]
    except (SyntaxError, ValueError, RecursionError):
        return None
    task = find_task(exercise.task)
    probe, expected = task.probes()[number], right_answers(exercise.task)[number]
    calls = attempts([{"the text": one.text, **probe} for one in changes])
    fitting = (
        one
        for one, call in zip(changes, calls, strict=False)
        if not call.error and agrees(call.answer, expected, tolerance=TOLERANCE)
    )
    for one in islice(fitting, MOST):
        if is_right(one.text):
            return Mended(one.slip, one.line, line_of(text, one.line), one.new)
    return None
