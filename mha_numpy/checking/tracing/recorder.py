"""The recorder behind `with trace() as t:`."""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from mha_numpy.checking.tracing.equations import evaluate, moved_name, names_in, parse, resolved
from mha_numpy.checking.tracing.sources import NOT_KNOWN, Origin, origin_of
from mha_numpy.checking.tracing.step import Step
from mha_numpy.checking.tracing.words import explain
from mha_numpy.checks import check_shape
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, MissingStepError, describe, did_you_mean
from mha_numpy.steps import watching
from mha_numpy.tables import Table

BY_NUMBER = attrgetter("number")


class Trace:
    """The steps recorded so far; prints as a table, in a notebook as an HTML table.

    ``t["scores"]`` is the array of that name (the last one recorded); ``t.steps`` has all steps.
    ``t.constants`` are the params and numbers that equations name and no step computes.

    In a model a name says where the array was computed: ``t["blocks.0.attention.scores"]``. If
    only one place has scores, ``t["scores"]`` finds them. ``t.part("blocks.0.attention")`` is the
    trace of one place.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.constants: list[Step] = []  # each with the number of the step that follows it

    def __getitem__(self, name: str) -> Array:
        return self._last(name).array

    def __contains__(self, wanted: object) -> bool:
        """Whether a step, or one with this name, is on record; the place may be left out."""
        if isinstance(wanted, str):
            return any(_is_called(step, wanted) for step in self.steps)
        return any(step is wanted for step in self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of every named axis; without those that differ between the places of a model.

        A ShapeError says that two steps of one place disagree, or that axes do not fit an array.
        """
        of_places: dict[str, dict[str, int]] = {}
        for step in self.steps:
            sizes = of_places.setdefault(step.place, {})
            check_shape(step.name, step.array, step.axes, sizes, to_match="the steps before")
        found = {axis: size for sizes in of_places.values() for axis, size in sizes.items()}
        return {
            axis: size for axis, size in found.items()
            if all(sizes.get(axis, size) == size for sizes in of_places.values())
        }  # fmt: skip

    def record(self, name: str, array: Array, axes: str, equation: str) -> None:
        """Note one step; an input that is already on record under its name is not noted again.

        The input of a place in a model is what another place computed, if that is on record.
        """
        before = next((s.array for s in reversed(self.steps) if s.name == name), None)
        if not equation and before is not None:
            is_cast = before.dtype != array.dtype and _same_numbers(before, array)
            if before is array or is_cast:
                return
        place = name.rpartition(".")[0]
        if not equation:
            equation = self._computed_elsewhere(array, place)
        if place:  # names of its own place are written without it
            equation = re.sub(rf"(?<![\w.]){re.escape(place)}\.", "", equation)
        memory = self._memory_of(array, equation, place)
        self.steps.append(Step(len(self.steps) + 1, name, axes, equation, array, memory))

    def record_constant(self, name: str, array: Array, axes: str) -> None:
        """Note a copy of a value that equations name and no step computes; params may change."""
        self.constants.append(Step(len(self.steps) + 1, name, axes, "", array.copy(), "constant"))

    def name_of(self, array: Array, place: str | None = None) -> str:
        """Return the name under which an array was last recorded, "" if it was not.

        If a place in a model is given, the array's first name there comes before all others.
        """
        names = [step.name for step in self.steps if step.array is array]
        of_place = (name for name in names if name.rpartition(".")[0] == place)
        return next(of_place, names[-1] if names else "")

    def _computed_elsewhere(self, array: Array, place: str) -> str:
        """Return the equation of an input that another place of the model computed, "" if none did.

        Between float16 layers, which compute in float32, numbers are rounded.
        """
        others = [step for step in reversed(self.steps) if step.place != place]
        twin = next((step.name for step in others if step.array is array), "")
        rounded = (step.name for step in others if _is_rounded(array, step.array))
        return twin or next((f"{name}.astype(np.float16)" for name in rounded), "")

    def part(self, place: str) -> "Trace":
        """Return what one place of a model recorded, under the names that it has there.

        Parameters
        ----------
        place : str
            Such as "blocks.0.attention".

        Returns
        -------
        Trace
            Its inputs are inputs, wherever they were computed.

        Examples
        --------
        >>> from mha_numpy.layers import EncoderBlock
        >>> with trace() as t:
        ...     out = EncoderBlock(4, num_heads=2, rng=0)(np.ones((1, 3, 4)))
        >>> [step.name for step in t.part("attention")][-4:]
        ['heads_by_token', 'merged', 'out', 'sum']
        """
        found = Trace()
        for step in sorted([*self.constants, *self.steps], key=BY_NUMBER):
            if step.place != place:
                continue
            own: dict[str, Any] = {"name": step.own_name, "number": len(found.steps) + 1}
            if step.is_constant:
                found.constants.append(replace(step, **own))
                continue
            if self._is_from_elsewhere(step):
                own |= {"equation": "", "memory": "input"}
            elif place:
                own["memory"] = step.memory.replace(f"{place}.", "")
            found.steps.append(replace(step, **own))
        if not found.steps:
            places = {step.place for step in self.steps}
            advice = _nearest(place, places, "{step.place for step in t} has the places")
            raise MissingStepError(f"nothing was recorded at {place!r}; {advice}")
        return found

    def _is_from_elsewhere(self, step: Step) -> bool:
        tree = self.tree_of(step)
        known = self.known_before(step)
        return tree is not None and any(
            known[name].place != step.place for name in names_in(tree) if name in known
        )

    def evaluate(self, name: str | Step) -> Array:
        """Compute the equation of a step from the arrays on record.

        Parameters
        ----------
        name : str or Step
            Of a step with an equation; of several with that name the last.

        Returns
        -------
        array
            The array that the step recorded, to rounding; the tests compare the two.

        Examples
        --------
        >>> from mha_numpy.core import scaled_dot_product_attention
        >>> x = np.eye(3)
        >>> with trace() as t:
        ...     out = scaled_dot_product_attention(x, x.copy(), x.copy())
        >>> np.allclose(t.evaluate("scores"), t["scores"])
        True
        """
        step = name if isinstance(name, Step) else self._last(name)
        tree = self.tree_of(step)
        if tree is None:
            what = f"`{step.equation}`" if step.equation else "an input"
            raise ConfigError(f"name: expected a step with an equation; {step.name} is {what}")
        arrays = {name: known.array for name, known in self.known_before(step).items()}
        return np.asarray(self._computed(step, tree, arrays))

    def _computed(self, step: Step, tree: ast.expr, arrays: Mapping[str, Any]) -> Any:
        try:
            return evaluate(tree, arrays)
        except NOT_KNOWN as error:
            raise ConfigError(f"{step.name}: its equation cannot be computed: {error}") from error

    def recompute(self, change: Callable[[Step, Any], Any]) -> dict[str, Any]:
        """Compute all steps again, from the inputs on, each result changed by a function.

        Parameters
        ----------
        change : callable
            ``change(step, array)`` returns what later steps read in place of the array: another
            array, or any object that acts like one.

        Returns
        -------
        dict
            The changed array of each step, by its name; of several with that name the last.

        Examples
        --------
        >>> from mha_numpy.core import scaled_dot_product_attention
        >>> x = np.eye(3)
        >>> with trace() as t:
        ...     out = scaled_dot_product_attention(x, x.copy(), x.copy())
        >>> found = t.recompute(lambda step, array: 0 * array if step.name == "scores" else array)
        >>> found["heads"].round(3)  # equal scores: the mean of the values
        array([[0.333, 0.333, 0.333],
               [0.333, 0.333, 0.333],
               [0.333, 0.333, 0.333]])
        """
        changed: dict[int, Any] = {}  # by the number of a step
        for step in self.steps:
            tree, result = self.tree_of(step), step.array
            if tree is not None:
                known = self.known_before(step)
                arrays = {
                    name: of.array if of.is_constant else changed[of.number]
                    for name, of in known.items()
                }
                result = self._computed(step, tree, arrays)
            changed[step.number] = change(step, result)
        return {step.name: changed[step.number] for step in self.steps}

    def tree_of(self, step: Step) -> ast.expr | None:
        """Return the syntax tree of a step's equation: whole names, and sizes for axes.

        None if there is no equation, or if it is free text.
        """
        tree = parse(step.equation) if step.equation else None
        if tree is None:
            return None
        return resolved(tree, self.sizes_before(step), step.place, self.known_before(step))

    def origin_of(self, step: Step) -> Origin:
        """Derive which cells of earlier arrays each cell of a step was computed from."""
        return origin_of(step, self.tree_of(step), self.known_before(step))

    def explain(self, name: str, index: Sequence[int]) -> str:
        """Say which cells of earlier arrays one cell was computed from.

        Parameters
        ----------
        name : str
            Of a step; of several with that name the last.
        index : sequence of int
            One for each axis, from 0.

        Returns
        -------
        str

        Notes
        -----
        The answer is derived from the equations; if they give none, the text says so. A cell that
        only moved is explained by what it was computed from.

        Examples
        --------
        >>> from mha_numpy.core import scaled_dot_product_attention
        >>> x = np.eye(3)
        >>> with trace() as t:
        ...     out = scaled_dot_product_attention(x, x.copy(), x.copy())
        >>> t.explain("scores", (0, 2))
        'scores[0,2] came from q[0,:] and k[2,:]'
        >>> t.explain("weights", (0, 2))
        'weights[0,2] came from scores[0,:], the whole row'
        """
        return explain(self.origin_of, self._last(name), index)

    def table(self, *, backward: bool | None = None) -> Table:
        """Return the steps as a table: all, or only those of forward or of backward."""
        chosen = [s for s in self.steps if backward is None or s.is_backward == backward]
        rows = [
            [
                str(s.number),
                s.name,
                s.equation or s.memory,
                f"[{', '.join(s.axes.split())}]",
                str(s.array.shape),
                s.memory,
                str(s.array.strides),
                str(s.array.nbytes),
            ]
            for s in chosen
        ]
        dtypes = sorted({str(s.array.dtype) for s in chosen})
        title = f"{len(chosen)} steps, {', '.join(dtypes)}; strides and sizes in bytes"
        columns = ["#", "step", "equation", "axes", "shape", "memory", "strides", "bytes"]
        return Table(title, columns, rows)

    def to_json(self, *, values: bool = False) -> str:
        """Return all steps as JSON, with the numbers themselves on request.

        JSON has no NaN and no infinities: these are written as the strings "nan", "inf", "-inf".
        """
        return json.dumps([step.as_dict(values=values) for step in self.steps], indent=1)

    def __repr__(self) -> str:
        ends = f": {self.steps[0].name} ... {self.steps[-1].name}" if self.steps else ""
        return f"Trace({len(self)} steps{ends})"

    def __str__(self) -> str:
        return self.table().to_text()

    def _repr_html_(self) -> str:
        return self.table().to_html()

    def _last(self, name: str) -> Step:
        """Return the last step with a name, which may lack the place if only one place has it."""
        if not isinstance(name, str):
            raise MissingStepError(
                f"name: expected the name of a step, such as 'scores'; got {describe(name)}"
            )
        found = [step for step in self.steps if _is_called(step, name)]
        whole = [step for step in found if step.name == name]
        wholes = list(dict.fromkeys(step.name for step in whole or found))
        if len(wholes) == 1:
            return (whole or found)[-1]
        if wholes:
            raise MissingStepError(
                f"{len(wholes)} steps are named {name!r}; write one of {', '.join(wholes[:3])}"
                + ", ..." * (len(wholes) > 3)
            )
        known = {each for step in self.steps for each in (step.name, step.own_name)}
        advice = _nearest(name, known, "[step.name for step in t] has the names")
        raise MissingStepError(f"no step is named {name!r}; {advice}")

    def known_before(self, step: Step) -> dict[str, Step]:
        """Return all that an equation can name: the last step or constant of each name before it.

        After several forward passes a backward, or a forward mode, could mean any of them, so such
        names are left out.
        """
        before = [c for c in self.constants if c.number <= step.number]
        before += self.steps[: step.number - 1]
        found = {known.name: known for known in sorted(before, key=BY_NUMBER)}
        if step.is_backward or step.is_tangent:
            for known in before:
                last, is_forward = found.get(known.name, known), known.is_forward
                if is_forward and not _same_numbers(last.array, known.array):
                    del found[known.name]
        return found

    def sizes_before(self, step: Step) -> dict[str, int]:
        """Return the sizes of a step's axes, and of the arrays of its place in its equation."""
        known_before = sorted(self.known_before(step).values(), key=BY_NUMBER)
        return {
            axis: size
            for known in (*(known for known in known_before if known.place == step.place), step)
            for axis, size in zip(known.axes.split(), known.array.shape, strict=False)
        }

    def _memory_of(self, array: Array, equation: str, place: str) -> str:
        """Find out whether the array is an earlier step's, or shares its memory.

        A new array is a copy if the step only moves elements, and all are the source's.
        """
        if twin := self.name_of(array):
            return f"is {twin}"
        for step in reversed(self.steps):
            if _share_memory(step.array, array):
                return f"view of {step.name}"
        tree = parse(equation)
        names = {step.name for step in self.steps}
        moved = moved_name(None if tree is None else resolved(tree, {}, place, names))
        if any(s.name == moved and _same_elements(s.array, array) for s in self.steps):
            return f"copy of {moved}"
        return "new" if equation else "input"


def _is_called(step: Step, name: str) -> bool:
    """Return whether a step has this name, with or without its place."""
    return step.name == name or step.name.endswith(f".{name}")


def _nearest(name: object, known: Iterable[str], otherwise: str) -> str:
    return did_you_mean(str(name), sorted(known), most=3) or otherwise


def _same_numbers(a: Array, b: Array) -> bool:
    """Return whether two arrays contain the same numbers, in any dtype."""
    return a is b or (a.shape == b.shape and bool(np.all((a == b) | ((a != a) & (b != b)))))


def _is_rounded(array: Array, before: Array) -> bool:
    """Return whether an array is another one rounded to float16, and not the same array."""
    if array.shape != before.shape or array.dtype.kind != "f" or before.dtype.kind != "f":
        return False
    with np.errstate(over="ignore"):
        is_half = _same_numbers(array, before.astype(np.float16))
    return is_half and (array.dtype != before.dtype or not _same_numbers(array, before))


def _share_memory(a: Array, b: Array) -> bool:
    """Return whether two arrays have an element in common, not only a buffer."""
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _same_elements(a: Array, b: Array) -> bool:
    """Return whether two arrays contain the same numbers in the same order, in any shapes."""
    return a.size == b.size and _same_numbers(a.ravel(), b.ravel())


@contextmanager
def trace() -> Iterator[Trace]:
    """Record every step inside the block, forward and backward.

    Yields
    ------
    Trace
        Filled as the computation goes. Its steps keep the computation's own arrays, so changes that
        you make in place show there too; it keeps copies of params and numbers.

    Notes
    -----
    Attention, softmax, multi-head attention, decoding, the pairs of ``layers`` and all layers and
    models have steps, forward and backward, and attention those of forward mode, too;
    `linear_forward` or `rope_forward` by itself has none. Only the innermost block records.
    Computations of other threads are not recorded.

    Examples
    --------
    >>> import numpy as np
    >>> from mha_numpy.core import scaled_dot_product_attention
    >>> x = np.eye(3)
    >>> with trace() as t:
    ...     out = scaled_dot_product_attention(x, x, x)
    >>> [step.name for step in t]
    ['q', 'k', 'v', 'scores', 'weights', 'heads']
    >>> t["scores"].shape, t.sizes["T_k"]
    ((3, 3), 3)

    A whole model:

    >>> from mha_numpy.models import TransformerLM
    >>> model = TransformerLM(vocab_size=7, max_tokens=5, embed_dim=8, num_heads=2)
    >>> with trace() as t:
    ...     model.backward(model(np.array([[3, 1, 4, 1]])))
    >>> t["blocks.1.attention.scores"].shape, t["embedding.d_table"].shape
    ((1, 2, 4, 4), (7, 8))
    >>> all(np.allclose(t.evaluate(step), step.array) for step in t if step.equation)
    True
    """
    recorded = Trace()
    with watching(recorded):
        yield recorded
