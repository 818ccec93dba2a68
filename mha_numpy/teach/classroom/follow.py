"""follows: whether a backward is right for the student's own forward, which has a mistake.

A student who leaves out the scale in the forward, and derives the backward of exactly that, has
made one mistake and not two. So the backward is called with what the student's own forward
computes, and compared with numerical differentiation of that forward.
"""

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np

from mha_numpy.checking.trees import leaves
from mha_numpy.dtypes import Array
from mha_numpy.teach.conventions import conventions_of
from mha_numpy.teach.diagnosis import TASKS, find_task, right_answers
from mha_numpy.teach.exercises.catalogue import find_exercise
from mha_numpy.teach.exercises.sandbox import Run
from mha_numpy.teach.task import Inputs
from mha_numpy.teach.turns import give_inputs, take_inputs, take_result

DIRECTIONS = 6  # random ones, through all inputs at once
STEP = 1e-5
TOLERANCE = 1e-6  # of the largest slope


PAIRS = {  # ids of a backward and of its forward
    f"{forward}-backward": forward
    for forward in ("scores", "softmax", "attention", "rope", "layer-norm", "gelu")
}

Caller = Callable[[str, Sequence[Inputs]], Run]  # id of an exercise, inputs of all calls


def follows(backward: str, call: Caller) -> bool:
    """Return whether a backward of ``PAIRS`` gives the gradients of the student's own forward.

    It does not if one of the two fails, or returns different arrays from those it should. `call`
    takes the id of an exercise and the inputs of all calls, and runs the student's function.
    """
    try:
        with np.errstate(all="ignore"):
            return _agrees(backward, call)
    except (
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
    ):  # no answer that fits
        return False


def _agrees(backward: str, call: Caller) -> bool:
    piece, forward = find_exercise(backward).task, find_exercise(PAIRS[backward]).task
    given = take_inputs(piece, conventions_of(piece), find_task(piece).probes()[0])
    at, varied, d_out = _forward_inputs(piece, forward, given)
    rng = np.random.default_rng(0)
    ways = [{name: rng.normal(size=at[name].shape) for name in varied} for _ in range(DIRECTIONS)]
    moves = [_moved(at, way, step) for way in ways for step in (STEP, -STEP)]
    extra = [_for_weights(at)] if "weights" in given else []
    found = _own(PAIRS[backward], [*moves, *extra], call)
    if extra:
        given = {**given, "weights": found.pop()[""]}
    (gradients,) = _own(backward, [given], call)
    outs = [arrays[""] for arrays in found]
    slopes = [
        float((d_out * (plus - minus)).sum() / (2 * STEP))
        for plus, minus in zip(outs[::2], outs[1::2], strict=True)
    ]
    pairs = [list(zip(gradients.values(), way.values(), strict=True)) for way in ways]
    told = [sum(float((gradient * part).sum()) for gradient, part in one) for one in pairs]
    if any(gradient.shape != part.shape for gradient, part in pairs[0]):
        return False
    largest = float(np.abs(slopes).max())
    return largest > 0 and bool((np.abs(np.subtract(slopes, told)) <= TOLERANCE * largest).all())


def _forward_inputs(piece: str, forward: str, given: Inputs) -> tuple[Inputs, list[str], Array]:
    """Return a forward's arguments, the names of those to differentiate, and d_out.

    All are in the usual conventions: numerical differentiation in the backward's task needs them.
    """
    differentiate = TASKS[piece].slope
    if differentiate is None:
        raise KeyError(piece)
    slope = differentiate(given)
    known = {**given, **getattr(slope.forward, "keywords", {}), **slope.inputs}
    names = signature(TASKS[forward].solution).parameters
    return {name: known[name] for name in names}, list(slope.inputs), slope.d_out


def _for_weights(at: Inputs) -> Inputs:
    """Return inputs for which a forward returns its weights: for attention, v is the identity."""
    if "v" not in at:
        return at
    *before, T_k, _ = at["v"].shape
    return {**at, "v": np.broadcast_to(np.eye(T_k), (*before, T_k, T_k)).copy()}


def _moved(at: Inputs, way: dict[str, Array], step: float) -> Inputs:
    return {**at, **{name: at[name] + step * part for name, part in way.items()}}


def _own(exercise_id: str, usual: Sequence[Inputs], call: Caller) -> list[dict[str, Any]]:
    """Call a student's function with inputs as the student's variant has them, and read them.

    A function that the task states for one matrix gets one at a time, because `k.T` is right there.
    """
    piece = find_exercise(exercise_id).task
    conventions = conventions_of(piece)
    lead = _leading(piece, usual[0])
    single = [_at(inputs, cell) for inputs in usual for cell in np.ndindex(lead)]
    run = call(exercise_id, [give_inputs(piece, conventions, inputs) for inputs in single])
    names = list(leaves(right_answers(piece)[0]))
    answers = []
    for made, inputs in zip(run.calls, single, strict=True):
        arrays = dict(zip(names, leaves(made.answer).values(), strict=True))
        answers.append(take_result(piece, conventions, arrays, inputs))
    count = math.prod(lead)
    together = [answers[start : start + count] for start in range(0, len(answers), count)]
    return [
        {name: np.reshape([one[name] for one in of_all], lead + np.shape(of_all[0][name]))
         for name in names}
        for of_all in together
    ]  # fmt: skip


def _leading(piece: str, inputs: Inputs) -> tuple[int, ...]:
    """Return the sizes of the axes before those that a task states for its inputs."""
    first, stated = next(iter(inputs.items())), TASKS[piece].probes()[0]
    name, array = first
    return tuple(array.shape[: array.ndim - stated[name].ndim])


def _at(inputs: Inputs, cell: tuple[int, ...]) -> Inputs:
    """Return the arrays of one sequence and head; () for all."""
    return {name: value[cell] if cell else value for name, value in inputs.items()}
