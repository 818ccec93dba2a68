"""Back through softmax."""

from functools import partial

import numpy as np

from mha_numpy.core import softmax_forward
from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import random_mask
from mha_numpy.teach.task import Again, Hints, Inputs, Law, Mistake, Slope, Task
from mha_numpy.teach.tasks.softmax import softmax


def softmax_backward(d_weights: Array, weights: Array) -> Array:
    """Return the gradient of the scores, from the gradient of the weights.

    Forward was ``weights = softmax(scores)`` along the last axis, with a mask or without. A hidden
    cell has weight 0, and in a row that sees nothing all weights are 0. Such cells have gradient 0.

    Parameters
    ----------
    d_weights : (..., T_q, T_k)
        Any numbers, in hidden cells too.
    weights : (..., T_q, T_k)
        What softmax returned.

    Returns
    -------
    d_scores : (..., T_q, T_k)
    """
    mean = find_row_sum(d_weights, weights)
    return through_softmax(d_weights, weights, mean)


def find_row_sum(d_weights: Array, weights: Array) -> Array:
    """Return sum_j weights_j d_weights_j of each row: (..., T_q, 1)."""
    return (weights * d_weights).sum(axis=-1, keepdims=True)


def through_softmax(d_weights: Array, weights: Array, row_sum: Array) -> Array:
    """Pull back through softmax, whose row sum is known."""
    return weights * (d_weights - row_sum)


def _draw_d_weights(rng: np.random.Generator) -> list[Inputs]:
    """Draw weights as softmax makes them: without a mask, with one, of rank 2, tall."""
    probes = []
    for shape, is_masked in (
        ((2, 3, 4, 6), False),
        ((3, 2, 5, 5), True),
        ((3, 4), False),
        ((1, 4, 6, 2), True),
    ):
        mask = random_mask(rng, shape) if is_masked else None
        weights = softmax(rng.normal(size=shape), mask)
        probes.append({"d_weights": rng.normal(size=shape), "weights": weights})
    return probes


def _slope_of_softmax(inputs: Inputs) -> Slope:
    """Differentiate softmax at scores that have the given weights."""
    weights = inputs["weights"]
    mask = weights > 0
    scores = np.log(np.where(mask, weights, 1.0))
    return Slope(partial(softmax_forward, mask=mask), {"scores": scores}, inputs["d_weights"])


MISTAKES: list[Mistake | Again] = [
    Mistake("row sum left out", "the row sum of softmax is left out, so rows of d_scores do not sum to 0",
            "weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True))",
            {"(d_weights - row_sum)": "d_weights"}),
    Mistake("row sum over queries", "the row sum of softmax is taken over the queries", "sum over the last axis",
            {"(weights * d_weights).sum(axis=-1, keepdims=True)": "(weights * d_weights).sum(axis=-2, keepdims=True)"}),
    Mistake("row sum unweighted", "the row sum of softmax sums only d_weights, without the weights", "sum weights * d_weights",
            {"(weights * d_weights).sum(axis=-1, keepdims=True)": "d_weights.sum(axis=-1, keepdims=True)"}),
    Mistake("row sum added", "the row sum of softmax is added to d_weights, not subtracted",
            "weights * (d_weights - row_sum)", {"(d_weights - row_sum)": "(d_weights + row_sum)"}),
    Mistake("row mean instead of the weighted sum",
            "the plain mean of d_weights is subtracted, not the weighted mean", "sum weights * d_weights",
            {"(weights * d_weights).sum(axis=-1, keepdims=True)": "d_weights.mean(axis=-1, keepdims=True)"}),
    Mistake("only the diagonal of the Jacobian", "only the diagonal p (1 - p) of softmax's Jacobian is used",
            "add the share of the row's other scores: -p_i p_j",
            {"(d_weights - row_sum)": "(1 - weights) * d_weights"}),
    Mistake("factor p left out", "d_scores lacks the factor weights, so hidden cells get gradients",
            "weights * (d_weights - ...)", {"weights * (d_weights - row_sum)": "(d_weights - row_sum)"}),
    Mistake("softmax skipped in backward", "d_weights is returned as d_scores: softmax is skipped",
            "weights * (d_weights - ...)", {"weights * (d_weights - row_sum)": "d_weights"}),
    Mistake("softmax of the weights", "softmax is applied to the weights again, as if they were scores",
            "the weights are already softmax's output",
            {"mean = find_row_sum": "weights = softmax(weights, None)\n    mean = find_row_sum"}),
    Mistake("sign of d_scores", "d_scores has the wrong sign", "d_weights minus its mean, not the other way",
            {"return weights *": "return -weights *"}),
    Again("everything divided by B", {"through_softmax(d_weights, weights, mean)": "through_softmax(d_weights, weights, mean) / len(weights)"}),
]  # fmt: skip

TASK = Task(
    softmax_backward,
    place=140,
    difficulty=3,
    minutes=20,
    needs=("softmax",),
    hints=Hints(
        where="A score appears in every weight of its row, because they share one sum: "
        'docs/softmax.md, Backward; notebook 11, "Multiplying without building".',
        question="If all weights of a row get the same upstream gradient, what must d_scores be? "
        "(They sum to 1 whatever you do.)",
        mistake="row sum left out",
        fix="weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))",
    ),
    draw=_draw_d_weights,
    laws=[
        Law("rows of d_scores sum to 0", lambda _, arrays: arrays[""].sum(axis=-1)),
        Law(
            "hidden cells have no gradient",
            lambda inputs, arrays: np.where(inputs["weights"] == 0, arrays[""], 0),
        ),
    ],
    slope=_slope_of_softmax,
    mistakes=MISTAKES,
)
