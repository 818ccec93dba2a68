"""What the docstring of a task says of its arrays and numbers."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import cleandoc
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.teach.task import Inputs

Sizes = dict[str, int]  # of the letters of shapes
LINE = re.compile(r"^(\w[\w, ]*) : (.*)$")
SHAPES = re.compile(r"^(?:[a-z ]* )?\(")  # how a line goes on that has shapes
RANGE = re.compile(r"\b(from|at least|above|to|at most|below) (-?\d+(?:\.\d+)?)\b", re.IGNORECASE)
COMPARED: dict[str, Callable[[float, float], bool]] = {
    "from": operator.ge, "at least": operator.ge, "above": operator.gt,
    "to": operator.le, "at most": operator.le, "below": operator.lt,
}  # fmt: skip


class Said(NamedTuple):
    """A line of a docstring, such as ``x : (T, D)``, with the lines below it."""

    kind: str  # "(T, D)"
    about: str

    @property
    def shapes(self) -> list[list[str]]:
        """The shapes, of which one has to fit."""
        found = re.findall(r"\(([^()]*)\)", self.kind) if SHAPES.match(self.kind) else []
        return [[part.strip() for part in one.split(",") if part.strip()] for one in found]


def said_of(docstring: str) -> tuple[dict[str, Said], dict[str, Said]]:
    r"""Return what a docstring says of each argument, and of each result.

    Examples
    --------
    >>> given, _ = said_of("Parameters\n---\nk : int\n    From 1.\n\nReturns\n---\no : (k,)")
    >>> given["k"].about
    'From 1.'
    """
    asked, _, told = cleandoc(docstring).partition("\nReturns\n---")
    return _said_in(asked.partition("Parameters\n---")[2]), _said_in(told)


def _said_in(section: str) -> dict[str, Said]:
    found: dict[str, Said] = {}
    names: list[str] = []
    for line in section.splitlines():
        if match := LINE.match(line):
            names = [name.strip() for name in match[1].split(",")]
            found |= {name: Said(match[2], "") for name in names}
        elif line.startswith(" "):
            about = {name: f"{found[name].about} {line.strip()}".strip() for name in names}
            found |= {name: found[name]._replace(about=text) for name, text in about.items()}
        elif line:
            names = []
    return found


def are_allowed(inputs: Inputs, said: Mapping[str, Said]) -> bool:
    """Return whether no number is out of the range that is written below its name."""
    return all(
        COMPARED[word.lower()](value, float(limit))
        for name, value in inputs.items()
        if isinstance(value, int | float) and name in said
        for word, limit in RANGE.findall(said[name].about)
    )


def sizes_of_letters(
    arrays: Iterable[tuple[str, Any, Said]], known: Sizes
) -> tuple[list[Sizes], str]:
    """Return the sizes that the letters of some shapes may have, or the first array that has none.

    Parameters
    ----------
    arrays : iterable
        Each with its name, and what is said of it.
    known : {name: int}
        Sizes that are known before, which are arguments.
    """
    ways = [known]
    for name, array, said in arrays:
        is_plain = said.kind.startswith("(") and isinstance(array, int | float | np.generic)
        if not said.shapes or not (is_plain or isinstance(array, np.ndarray)):
            continue
        tried = [_with(way, axes, np.shape(array)) for way in ways for axes in said.shapes]
        if not any(one is not None for one in tried):
            letters = list(chain.from_iterable(said.shapes))
            found = [f"{one} = {size}" for one, size in ways[0].items() if one in letters]
            shape = ("a number", f"of shape {np.shape(array)}")[np.ndim(array) > 0]
            where = f", where {', '.join(found)}" * bool(found)
            return [], f"its docstring says `{name} : {said.kind}`, and it is {shape}{where}"
        ways = [one for one in tried if one is not None]
    return ways, ""


def _with(known: Sizes, axes: list[str], shape: tuple[int, ...]) -> Sizes | None:
    """Return sizes with those that a shape adds; None if it does not fit."""
    if "..." in axes:
        after = len(axes) - axes.index("...") - 1
        axes, shape = axes[len(axes) - after :], shape[max(len(shape) - after, 0) :]
    if len(axes) != len(shape):
        return None
    found = dict(known)
    for axis, size in zip(axes, shape, strict=True):
        meant = found.setdefault(axis, size) if axis.isidentifier() else size  # not of "T + 1"
        if meant != size or (axis.isdigit() and int(axis) != size):
            return None
    return found


def equal_letters(each: Sequence[Sizes], said: Mapping[str, Said]) -> list[list[str]]:
    """Return the letters of shapes that are the same size in every input, those of each size."""
    found: dict[tuple[int, ...], dict[str, None]] = {}
    shapes = chain.from_iterable(one.shapes for one in said.values())
    for letter in chain.from_iterable(shapes):
        if all(letter in sizes for sizes in each):
            found.setdefault(tuple(sizes[letter] for sizes in each), {})[letter] = None
    return [list(letters) for letters in found.values() if len(letters) > 1]
