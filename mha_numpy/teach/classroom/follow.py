"""follows: whether a backward is right for the student's own forward, which has a mistake.

Whoever leaves out the scale in the forward, and derives the backward of just that, has made one
mistake and not two. So the backward is called with what the own forward computes, and compared with
numeric differentiation of the own forward.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.trees import leaves
from mha_numpy.dtypes import Array
from mha_numpy.teach.conventions import conventions_of, give_inputs, take_inputs, take_result
from mha_numpy.teach.diagnosis import find_task, right_answers
from mha_numpy.teach.exercises.catalogue import find_exercise
from mha_numpy.teach.exercises.sandbox import Run
from mha_numpy.teach.task import Inputs

DIRECTIONS = 6  # random ones, through all inputs at once
STEP = 1e-5
TOLERANCE = 1e-6  # of the largest slope


class Pair(NamedTuple):
    """A backward's forward, and how it is called; all in the usual conventions."""

    forward: str  # id of the exercise
    varied: tuple[str, ...]  # inputs of the forward, in the order of the gradients
    call: Callable[[Inputs], Inputs]  # inputs of the backward -> of the forward
    saved: str = ""  # an input of the backward that the forward computes
    call_for_saved: Callable[[Inputs], Inputs] | None = None


def _of_softmax(given: Inputs) -> Inputs:
    """Return scores that have the given weights."""
    mask = given["weights"] > 0
    return {"scores": np.log(np.where(mask, given["weights"], 1.0)), "mask": mask}


def _of_attention(given: Inputs) -> Inputs:
    return {name: given[name] for name in "qkv"}


def _of_weights(given: Inputs) -> Inputs:
    """Return inputs for which attention returns its weights: v is the identity."""
    *before, T_k, _ = given["v"].shape
    identity = np.broadcast_to(np.eye(T_k), (*before, T_k, T_k)).copy()
    return {"q": given["q"], "k": given["k"], "v": identity}


def _of_rope(given: Inputs) -> Inputs:
    x = np.random.default_rng(0).normal(size=given["d_out"].shape)
    return {"x": x, "positions": given["positions"], "base": given["base"]}


def _of_norm(given: Inputs) -> Inputs:
    bias = np.zeros_like(given["gain"])
    return {"x": given["x"], "gain": given["gain"], "bias": bias, "eps": given["eps"]}


PAIRS = {
    "scores-backward": Pair("scores", ("q", "k"), lambda given: {n: given[n] for n in "qk"}),
    "softmax-backward": Pair("softmax", ("scores",), _of_softmax, "weights", _of_softmax),
    "attention-backward": Pair(
        "attention", ("q", "k", "v"), _of_attention, "weights", _of_weights
    ),
    "rope-backward": Pair("rope", ("x",), _of_rope),
    "layer-norm-backward": Pair("layer-norm", ("x", "gain", "bias"), _of_norm),
    "gelu-backward": Pair("gelu", ("x",), lambda given: {"x": given["x"]}),
}  # fmt: skip

Caller = Callable[[str, Sequence[Inputs]], Run]  # id of an exercise, inputs of all calls


def follows(backward: str, call: Caller) -> bool:
    """Return whether a backward of ``PAIRS`` gives the gradients of the student's own forward.

    It does not where one of the two does not run, or returns other arrays than it should. `call`
    takes the id of an exercise and the inputs of all calls, and runs the student's function.
    """
    try:
        with np.errstate(all="ignore"):
            return _agrees(backward, PAIRS[backward], call)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):  # no answer that fits
        return False


def _agrees(backward: str, pair: Pair, call: Caller) -> bool:
    piece = find_exercise(backward).task
    conventions = conventions_of(piece)
    given = take_inputs(piece, conventions, find_task(piece).probes()[0])
    d_out = next(iter(given.values()))
    at, rng = pair.call(given), np.random.default_rng(0)
    ways = [
        {name: rng.normal(size=at[name].shape) for name in pair.varied} for _ in range(DIRECTIONS)
    ]
    moves = [_moved(at, way, step) for way in ways for step in (STEP, -STEP)]
    extra = [] if pair.call_for_saved is None else [pair.call_for_saved(given)]
    found = _own(pair.forward, [*moves, *extra], call)
    if extra:
        given = {**given, pair.saved: found.pop()[""]}
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


def _moved(at: Inputs, way: dict[str, Array], step: float) -> Inputs:
    return {**at, **{name: at[name] + step * part for name, part in way.items()}}


def _own(exercise_id: str, usual: Sequence[Inputs], call: Caller) -> list[dict[str, Any]]:
    """Call a student's function with inputs as the student's variant has them, and read them."""
    piece = find_exercise(exercise_id).task
    conventions = conventions_of(piece)
    run = call(exercise_id, [give_inputs(piece, conventions, inputs) for inputs in usual])
    names = list(leaves(right_answers(piece)[0]))
    answers = []
    for made, inputs in zip(run.calls, usual, strict=True):
        arrays = dict(zip(names, leaves(made.answer).values(), strict=True))
        answers.append(take_result(piece, conventions, arrays, inputs))
    return answers
