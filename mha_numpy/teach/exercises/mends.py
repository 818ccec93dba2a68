"""Mends: a change in one place of a student's own text, and whether it works.

What a message or some numbers only suggest, a changed copy proves: if the function runs with
`keepdims=True` in one of its lines, that is what was missing there.
"""

import ast
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from textwrap import dedent
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking import agrees
from mha_numpy.checking.trees import leaves
from mha_numpy.teach.conventions import using, variant_in_force
from mha_numpy.teach.diagnosis import find_task, right_answers
from mha_numpy.teach.diagnosis.changes import Change, changes_of
from mha_numpy.teach.diagnosis.fingerprints import TOLERANCE
from mha_numpy.teach.exercises.child.values import PARTS, TEXT
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.sandbox import Run
from mha_numpy.teach.task import Inputs

MOST = 8  # changes that are tried
SECONDS = 3.0  # after which no further one is
OTHERS = (1, 2)  # seeds, with which what is told has to be true as well
SMALL = 5_000  # small changes that are tried on one input
NUMPY = "import numpy as np\n"  # which a change may use where the text does not
ONE = "One change there makes your function pass"
TIMES = ("", "", "in two places", "in three places", "in four places")
LINE = 80  # characters of a line that is quoted
Works = Callable[[str], int]  # how well a changed text works: 0 not, 1 it runs, 2 shapes are right


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
    names = {"np": np, **function.__globals__}
    exec(compile(text, function.__code__.co_filename, "exec"), names)
    return names[definition.name]


class Mended(NamedTuple):
    """A change of one line that makes a student's function right."""

    slip: str  # its kind
    line: int
    old: str  # all of the line
    new: str | None  # what to write instead; "" to leave it out, None if several lines change
    places: int = 1  # of the text that are changed in the same way
    part: str = ""  # of the line, in whose place other numbers belong
    ours: str = ""  # what they are in our solution
    relation: str = ""  # of the student's numbers to those

    @property
    def place(self) -> str:
        """The slip and its line, in words."""
        if self.part:
            of = f" ({self.relation})" * bool(self.relation)
            where = f"in line {self.line} of your code: `{self.old}`"
            return f"other numbers belong in place of `{self.part}`{of}, {where}"
        often = f", {TIMES[self.places]}" if self.places > 1 else ""
        return f"{self.slip}{often}, in line {self.line} of your code: `{self.old}`"

    @property
    def told(self) -> str:
        """The slip, its line, and what to write instead."""
        if self.ours:
            return f"{self.place}. With {self.ours}, your function passes"
        if self.new is None:
            return f"{self.place}. {ONE}"
        change = f"With `{self.new}` in its place" if self.new else "Without it"
        return f"{self.place}. {change}, your function passes"


def attempting(name: str, names: dict[str, Any]) -> Callable[..., list[Any]]:
    """Return a function that calls the one of this name in each of some texts, with names they use.

    Its source also runs where this package is not to be seen.
    """
    import copy
    import signal

    def end(*_: object) -> None:
        raise TimeoutError

    def attempt(texts: Sequence[str], *given: Any) -> list[Any]:
        answers, late = list[Any](), 0
        signal.signal(signal.SIGVTALRM, end)
        for text in texts:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.5)  # some changes never come to an end
            try:
                known = dict(names)
                exec(compile(text, "changed", "exec"), known)
                answers.append(known[name](*copy.deepcopy(given)))
            except BaseException as error:
                answers.append(None)
                late += isinstance(error, TimeoutError)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if late > 5:
                break
        return answers

    return attempt


def attempting_source(name: str) -> str:
    """Return `attempting` as a text that has a function of this name."""
    return (
        "from collections.abc import Callable, Sequence\nfrom typing import Any\n\n"
        f"{NUMPY}{inspect.getsource(attempting)}\n{name} = attempting({name!r}, {{'np': np}})\n"
    )


def find_mended(
    exercise: Exercise,
    text: str,
    number: int,
    attempt: Callable[[Inputs], Run],
    is_right: Callable[[str], bool],
    only_cancels: Callable[[int], bool] = lambda line: False,
) -> Mended | None:
    """Return a change in one place of a student's text that makes it right, if there is one.

    Parameters
    ----------
    exercise : Exercise
    text : str
        With line numbers as the student knows them.
    number : int
        Of a probe on which it is wrong.
    attempt : callable
        Makes the call of `attempting`, whose first input is the texts.
    is_right : callable
        Whether a changed text passes the whole check, with the seed that is in force then.
    only_cancels : callable
        Whether what a line sets is right, so that a change there only cancels a mistake elsewhere.
        Then it is returned only if no other change helps.
    """
    task = find_task(exercise.task)
    probe, expected = task.probes()[number], right_answers(exercise.task)[number]
    changes, kept = islice(changes_of(text, exercise.stub_source), SMALL), None

    def is_right_on_all(text: str) -> bool:
        variant = variant_in_force()
        for one in (variant, *(variant._replace(seed=seed) for seed in OTHERS)):
            with using(one):
                if not is_right(text):
                    return False
        return True

    while some := _next(changes, most_texts(text, expected)):
        fitting = those_with([one.text for one in some], probe, expected, attempt)
        for one in islice((some[i] for i in fitting), MOST):
            if not is_right_on_all(one.text):
                continue
            old = line_of(text, one.line)
            mended = Mended(one.slip, one.line, old, one.new, places=one.places)
            if not only_cancels(one.line):
                return mended
            kept = kept or mended
    return kept


def most_texts(text: str, expected: Any) -> int:
    """Return how many texts are attempted at once, half of what messages have room for."""
    room = min(PARTS // (len(leaves(expected)) + 2), TEXT // (len(text) + 1), 1_000)
    return max(1, room // 2)


def those_with(
    texts: Sequence[str], probe: Inputs, expected: Any, attempt: Callable[[Inputs], Run]
) -> list[int]:
    """Return which of some texts have a function that gives the expected answer."""
    calls = attempt({"the texts": tuple(texts), **probe}).calls
    answers = calls[0].answer if calls and isinstance(calls[0].answer, list) else []
    return [
        i
        for i, answer in enumerate(answers)
        if answer is not None and agrees(answer, expected, tolerance=TOLERANCE)
    ]


def _next(changes: Iterator[Change], most: int) -> list[Change]:
    """Return the next changes; none if the text can't be read."""
    try:
        return list(islice(changes, most))
    except (SyntaxError, ValueError, RecursionError):
        return []
