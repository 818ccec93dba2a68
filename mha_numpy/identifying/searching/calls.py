"""A call of a function in one way."""

from collections.abc import Callable

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.roles import TOKENS
from mha_numpy.identifying.calling.subject import Called, Subject
from mha_numpy.identifying.calling.ways import Way
from mha_numpy.identifying.family import Problem
from mha_numpy.identifying.searching.search import Seen

Change = Callable[[Problem], Problem]


def call_way(
    subject: Subject, way: Way, trouble: str = "", seed: int = 0, change: Change | None = None
) -> tuple[Seen | None, str]:
    """Call a function in one way; return what was seen, or the trouble.

    `change` changes the problem first; then numbers that are not finite may come back.
    """
    try:
        problem = way.problem(subject, seed)
        stored = {slot.role: problem.given[slot.role] for slot in way.hidden.values()}
        problem = change(problem).but(**stored) if change else problem
        kept = subject.chance.kept
        problem = problem.but(dropout_mask=np.full((1, 1, 1, 1), kept)) if kept != 1 else problem
        problem = subject.complete(problem)
        called = call_with(subject, way, problem)
    except (ValueError, IndexError, KeyError):  # sizes that do not fit, or what is not there
        return None, trouble
    first = called.arrays[0][1] if called.arrays else np.empty(0)
    is_fine = called.arrays and (change or np.isfinite(first).sum() > 0.4 * first.size)
    return (Seen(way, problem, called) if is_fine else None), called.trouble or trouble


def call_with(subject: Subject, way: Way, problem: Problem) -> Called:
    """Pass a problem in one way; return what the call did."""
    called = subject.call(way.given(problem), way.argument("result"))
    return called._replace(arrays=[(path, _unflat(x, way)) for path, x in called.arrays])


def _unflat(array: Array, way: Way) -> Array:
    """Return an output with one axis, as C writes it, with the axes of the queries.

    Two axes of sequences become one.
    """
    layout = next((slot.layout for slot in way.slots.values() if slot.role in TOKENS), "")
    shape = way.sizes.shape(layout.replace("d", "e").replace("P", "U"))
    if len(shape) > 1 and array.shape == (np.prod(shape),):
        return array.reshape(shape)
    if "n m" in layout and array.shape[:2] == way.sizes.shape("n m"):
        return array.reshape(-1, *array.shape[2:])
    return array


def with_sizes(subject: Subject, way: Way, **sizes: int) -> Seen | None:
    """Call a function in a way with other lengths; return what was seen, if anything was."""
    return call_way(subject, way._replace(sizes=way.sizes._replace(**sizes)))[0]
