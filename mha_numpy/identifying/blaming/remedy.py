"""What to write instead of a line: a small edit with which the function computes what is right."""

import ast
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from mha_numpy.identifying.blaming.edits import Edit, Text, edited, edits_of
from mha_numpy.identifying.blaming.values import functions_of, replaced, source_around
from mha_numpy.identifying.calling.subject import Called, Subject
from mha_numpy.identifying.searching.search import Seen

SECONDS = 1.5
LONGEST = 200_000  # characters of a file


class Remedy(NamedTuple):
    """A line, what it is, and what to write there."""

    line: int
    code: str
    text: str


def find_remedy(
    subject: Subject, calls: Sequence[Seen], line: int, is_right: Callable[[Seen], Any],
    about: str = "",
) -> Remedy | None:  # fmt: skip
    """Return the first edit of a line with which all calls are right.

    If no edit of it is, the lines are tried that make what it reads. If the line
    is not known, all are tried, those that read the argument `about` first.
    """
    with contextlib.suppress(Exception), subject.within(SECONDS):
        source = source_around(subject)
        text = Text(source if len(source) < LONGEST else "")
        functions = functions_of(subject.inner.__code__.co_filename)
        for at in _lines(text, line) if line else _all_lines(text, subject, about):
            for edits in edits_of(text, at):
                if subject.left < 0:
                    return None
                if _cures(subject, functions, text.edited(edits), calls, is_right):
                    return _remedy(text, at, edits)
    return None


def _cures(
    subject: Subject, functions: Sequence[Any], new: str, calls: Sequence[Seen],
    is_right: Callable[[Seen], Any],
) -> bool:  # fmt: skip
    """Return whether all calls are right with another text of the file."""
    with contextlib.suppress(SyntaxError, ValueError):
        code = compile(new, subject.inner.__code__.co_filename, "exec", dont_inherit=True)
        with replaced(subject, functions, code):
            return all(is_right(_again(subject, seen)) for seen in calls)
    return False


def _lines(text: Text, line: int) -> Iterator[int]:
    """Yield a line, and those before it in its function that make the names that it reads."""
    yield line
    read = {n.id for n in ast.walk(text.statement(line)) if isinstance(n, ast.Name)}
    made: list[Any] = [
        node
        for node in ast.walk(text.function(line))
        if isinstance(node, ast.Assign) and node.lineno < line
    ]
    for node in sorted(made, key=lambda node: -node.lineno):
        targets = {n.id for each in node.targets for n in ast.walk(each) if isinstance(n, ast.Name)}
        if targets & read:
            yield node.lineno


def _all_lines(text: Text, subject: Subject, about: str) -> Iterator[int]:
    """Yield the lines of a function in which simple statements begin."""
    nodes = ast.walk(text.function(subject.inner.__code__.co_firstlineno))
    own = [n for n in nodes if isinstance(n, ast.stmt) and not hasattr(n, "body")]
    reads = re.compile(rf"\b{about}\b")
    own.sort(key=lambda node: (not reads.search(text.of(node)), node.lineno))
    yield from (node.lineno for node in own)


def _again(subject: Subject, seen: Seen) -> Seen:
    """Call the function again as before."""
    called = subject.call(seen.way.given(seen.problem), seen.way.argument("result"))
    return seen._replace(called=called if called.arrays else Called([], called.trouble))


def _remedy(text: Text, line: int, edits: Sequence[Edit]) -> Remedy:
    """Return the edited statement in one line, and which other lines need the same."""
    statement = text.statement(line)
    start, end = text.span(statement)
    own = [e._replace(start=e.start - start, end=e.end - start) for e in edits
           if start <= e.start < end]  # fmt: skip
    new = edited(text.bytes[start:end], own)
    others = sorted({text.line(e) for e in edits if not start <= e.start < end})
    also = f" (the same in line {' and '.join(map(str, others))})" if others else ""
    code = text.bytes.decode().splitlines()[line - 1].strip()
    return Remedy(line, code, " ".join(new.split()) + also)
