"""Turns: how arrays are written under a convention, and the way back.

A convention is a different way of writing a function's inputs and results: a mask in which True
hides, or heads after the tokens. So it translates some inputs and results, and back again, and
everything known about the usual function holds for the other one too: its right answers, its
mistakes, its laws and its slope. Its words do the same for what a student reads.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.trees import leaves, replaced

Inputs = dict[str, Any]
Rewrite = Callable[[Any, Inputs], Any]  # of one array or number, given all inputs
Words = Mapping[str, str | Callable[[re.Match[str]], str]]  # patterns, and what to say instead


class Turn(NamedTuple):
    """How an array is written under a convention, and the way back."""

    there: Rewrite
    back: Rewrite


class Turns(NamedTuple):
    """The arrays that are written differently, by name: "params.w_o", or "" for a single result."""

    inputs: Mapping[str, Turn]
    results: Mapping[str, Turn] = {}


@dataclass(frozen=True, eq=False)
class Convention:
    """A convention that differs from the usual one, and the functions that it applies to."""

    name: str
    sentence: str  # to the student, with a library or a text that has it
    decides: frozenset[str]  # what it is about; two conventions about one thing exclude each other
    at: Mapping[str, Turns]  # by the name of a task
    words: Words  # for docstrings, hints, laws and verdicts, in this order
    false_here: frozenset[str] = field(default=frozenset())  # mistakes whose words would be false
    source: Mapping[str, str] = field(default_factory=dict)  # of solutions; in place of turns
    same: frozenset[str] = field(default=frozenset())  # tasks with the usual code, after all

    @property
    def ignored(self) -> str:
        """The name of the mistake of following the usual convention instead."""
        return f"not followed: {self.name}"

    def excludes(self, other: "Convention") -> bool:
        """Return whether both decide the same thing."""
        return self is not other and not self.decides.isdisjoint(other.decides)


def give_inputs(task: str, conventions: Sequence[Convention], inputs: Inputs) -> Inputs:
    """Return the usual inputs as they are written under some conventions."""
    for convention in conventions:
        inputs = turned(inputs, convention.at[task].inputs, inputs, there=True)
    return inputs


def take_inputs(task: str, conventions: Sequence[Convention], inputs: Inputs) -> Inputs:
    """Return inputs as they are usually written."""
    for convention in reversed(conventions):
        inputs = turned(inputs, convention.at[task].inputs, inputs, there=False)
    return inputs


def give_result(task: str, conventions: Sequence[Convention], result: Any, inputs: Inputs) -> Any:
    """Return a usual result, of usual inputs, as it is written under some conventions."""
    for convention in conventions:
        result = turned(result, convention.at[task].results, inputs, there=True)
    return result


def take_result(task: str, conventions: Sequence[Convention], result: Any, inputs: Inputs) -> Any:
    """Return a result, of usual inputs, as it is usually written."""
    for convention in reversed(conventions):
        result = turned(result, convention.at[task].results, inputs, there=False)
    return result


def follow(
    task: str, conventions: Sequence[Convention], function: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that follows some conventions, from one that follows the usual ones.

    Conventions that change the source of solutions are left out: the function has them already.
    """
    conventions = [convention for convention in conventions if not convention.source]
    if not conventions:
        return function
    parameters = signature(function)

    @wraps(function)
    def following(*by_place: Any, **by_name: Any) -> Any:
        given = parameters.bind(*by_place, **by_name)
        given.apply_defaults()
        usual = take_inputs(task, conventions, dict(given.arguments))
        return give_result(task, conventions, function(**usual), usual)

    return following


def turned(tree: Any, turns: Mapping[str, Turn], inputs: Inputs, *, there: bool) -> Any:
    """Rewrite some leaves of a tree, those that are not None; arrays lie in memory as usual."""
    if not turns:
        return tree
    is_flat = isinstance(tree, dict) and turns.keys() <= tree.keys()  # by dotted names
    found, new = tree if is_flat else leaves(tree), {}
    for name, turn in turns.items():
        if found[name] is not None:
            written = (turn.there if there else turn.back)(found[name], inputs)
            is_array = isinstance(written, np.ndarray)
            new[name] = np.asarray(written, order="C") if is_array else written
    return tree | new if is_flat else replaced(tree, new)
