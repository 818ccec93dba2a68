"""Task: a function to write, its solution, and the known facts about right and wrong answers."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from inspect import cleandoc
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.trees import leaves, without_d
from mha_numpy.dtypes import Array
from mha_numpy.teach.conventions import conventions_of, told, variant_in_force
from mha_numpy.teach.turns import Convention, give_inputs, take_inputs, take_result, turned
from mha_numpy.teach.turns import Inputs as Inputs

KEPT = 64  # tasks and variants whose arrays are kept; more than there are tasks

Arrays = dict[str, Array]  # what a function returned, by name; a single array has the name ""
Asked = Callable[[Inputs, Arrays], Array]
Edits = Mapping[str, str]  # the text in the source: the text to write instead


class Mistake(NamedTuple):
    """A mistake that people make in attention, as edits of the solution of a task.

    Each text that is replaced occurs exactly once in the solution's file. Two mistakes together are
    the edits of both. If their texts overlap they are alternatives, and cannot be made together.
    """

    name: str
    verdict: str  # what was done
    fix: str  # what to do instead, in one line
    edits: Edits
    is_first: bool = False  # named before others that give the same numbers


class Again(NamedTuple):
    """A mistake of another file that can be made in this one too."""

    name: str
    edits: Edits


class Law(NamedTuple):
    """A rule that every right answer obeys, and an array that is 0 where it holds."""

    statement: str
    residual: Asked


def the_array(_: Inputs, arrays: Arrays) -> Array:
    """Return all of an answer that is one array."""
    return arrays[""]


class Reaction(NamedTuple):
    """A change to the inputs, and the part of the answer that must not react to it."""

    statement: str
    change: Callable[[Inputs], Inputs]
    unmoved: Asked = the_array


class Slope(NamedTuple):
    """What a backward differentiates: a forward, its inputs, and the upstream gradient."""

    forward: Callable[..., Any]
    inputs: Inputs  # in the order in which their gradients are returned
    d_out: Array


class Hints(NamedTuple):
    """Four hints, each more direct than the one before."""

    where: str  # where to look
    question: str  # whose answer is the way
    mistake: str  # the name of one that many make here; it is shown with a picture
    fix: str  # the lines, or their key parts; lines of Python are shown as code


@dataclass(frozen=True, eq=False)
class Task:
    """A function to write, inputs that reveal mistakes, and rules that right answers obey.

    The solution's docstring is the text of the task, and its signature is the stub's.
    """

    solution: Callable[..., Any]
    place: int  # among the exercises, as they are best done; there is room between two for others
    difficulty: int  # 1 (a line or two) to 5 (an evening)
    minutes: int
    hints: Hints
    draw: Callable[[np.random.Generator], list[Inputs]]
    needs: tuple[str, ...] = ()  # ids of the exercises before it
    id: str = ""  # of the exercise; the name with dashes unless another is given
    returns: str = ""  # what the stub's signature says, where the solution's says more
    laws: Sequence[Law] = ()
    reactions: Sequence[Reaction] = ()
    slope: Callable[[Inputs], Slope] | None = None  # of a backward, for numerical differentiation
    mistakes: Sequence[Mistake | Again] = ()  # in this file; those of what it calls show, too
    named: Callable[[Any], Any] | None = None  # gives a plain tuple's parts their names

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.solution.__name__

    @property
    def title(self) -> str:
        """The first line of the file."""
        return str(sys.modules[self.solution.__module__].__doc__).removesuffix(".")

    @property
    def results(self) -> list[str]:
        """The names of the results, as in the docstring."""
        _, described = cleandoc(str(self.solution.__doc__)).split("Returns\n-------\n")
        described, *_ = re.split(r"\n\n\S.*\n---", described)  # before the next section
        lines = [line for line in described.splitlines() if not line.startswith(" ")]
        return [name for line in lines for name in line.partition(" : ")[0].split(", ")]

    @property
    def result(self) -> str:
        """The name of the array that is returned; "" where several are."""
        return self.results[0] if self.solution.__annotations__["return"] is Array else ""

    def probes(self) -> list[Inputs]:
        """Return the inputs, those of the variant in force, the same each time and read-only."""
        return _drawn(self.name, self.draw, variant_in_force().seed, conventions_of(self.name))

    def varied(self) -> "Task":
        """Return the task with the laws, reactions and slope of the variant in force.

        They are those of the usual task, applied after translation to the usual conventions.
        """
        conventions = conventions_of(self.name)
        if not conventions:
            return self

        def asked(ask: Asked) -> Asked:
            def as_usual(inputs: Inputs, arrays: Arrays) -> Array:
                usual = take_inputs(self.name, conventions, inputs)
                return ask(usual, take_result(self.name, conventions, arrays, usual))

            return as_usual

        def changing(change: Callable[[Inputs], Inputs]) -> Callable[[Inputs], Inputs]:
            return lambda inputs: give_inputs(
                self.name, conventions, change(take_inputs(self.name, conventions, inputs))
            )

        return replace(
            self,
            laws=[Law(told(self.name, law.statement), asked(law.residual)) for law in self.laws],
            reactions=[
                Reaction(told(self.name, one.statement), changing(one.change), asked(one.unmoved))
                for one in self.reactions
            ],
            slope=self.slope and _varied_slope(self.name, conventions, self.slope),
        )


@lru_cache(maxsize=KEPT)
def _drawn(
    name: str,
    draw: Callable[[np.random.Generator], list[Inputs]],
    seed: int,
    conventions: tuple[Convention, ...],
) -> list[Inputs]:
    drawn = draw(np.random.default_rng(seed))
    probes = [give_inputs(name, conventions, inputs) for inputs in drawn]
    for inputs in probes:
        for array in leaves(inputs).values():
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
    return probes


def _varied_slope(
    name: str, conventions: Sequence[Convention], slope: Callable[[Inputs], Slope]
) -> Callable[[Inputs], Slope]:
    """Differentiate by inputs as a variant has them, or else written as their gradients."""

    def varied(inputs: Inputs) -> Slope:
        usual = take_inputs(name, conventions, inputs)
        forward, at, d_out = slope(usual)
        (only, *_) = leaves(at)
        turns = [
            {
                of: one.at[name].inputs.get(of, turn)
                for result, turn in one.at[name].results.items()
                for of in (without_d(result) or only,)
            }
            for one in conventions
        ]

        def varied_forward(**given: Any) -> Any:
            for of_one in reversed(turns):
                given = turned(given, of_one, usual, there=False)
            return forward(**given)

        for of_one in turns:
            at = turned(at, of_one, usual, there=True)
        return Slope(varied_forward, at, d_out)

    return varied


def same_sum(one: str, other: str) -> Law:
    """Return the law for the gradients of two factors of one product (Euler)."""

    def residual(inputs: Inputs, arrays: Arrays) -> Array:
        sums = ((arrays[f"d_{name}"] * inputs[name]).sum() for name in (one, other))
        return np.asarray(np.subtract(*sums))

    return Law(f"d_{one} * {one} and d_{other} * {other} have the same sum", residual)


def moved(name: str, index: Any) -> Callable[[Inputs], Inputs]:
    """Return a function that changes some cells of an input."""

    def change(inputs: Inputs) -> Inputs:
        array = inputs[name].copy()
        array[index] += 1.0
        return {**inputs, name: array}

    return change


def each_alone(name: str, last: Any, *, others: Any) -> Reaction:
    """Return the reaction of a function that computes each token separately."""
    statement = "changing the last token changes no other token"
    return Reaction(statement, moved(name, last), lambda _, arrays: arrays[""][others])


def reversed_tokens(*names: str) -> Callable[[Inputs], Inputs]:
    """Return a function that reverses the last axis but one of some inputs."""
    return lambda inputs: {
        name: value[..., ::-1, :] if name in names else value for name, value in inputs.items()
    }
