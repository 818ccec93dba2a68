"""Back through attention."""

from functools import partial
from typing import NamedTuple

import numpy as np

from mha_numpy.core import attention_forward
from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import causal_mask, draw_heads, draw_odd_heads
from mha_numpy.teach.task import Again, Arrays, Hints, Inputs, Law, Mistake, Slope, Task
from mha_numpy.teach.tasks.attention import attend, share
from mha_numpy.teach.tasks.scores_backward import EULER, through_scores
from mha_numpy.teach.tasks.softmax_backward import find_row_sum, through_softmax
from mha_numpy.teach.tasks.sum_over_group import sum_over_group


class InputGrads(NamedTuple):
    """Gradients of attention's three inputs."""

    d_q: Array
    d_k: Array
    d_v: Array


def attention_backward(d_heads: Array, q: Array, k: Array, v: Array, weights: Array) -> InputGrads:
    """Return the gradients of q, k and v, from the gradient of the heads.

    Forward computed, separately for every sequence and head::

        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        weights = softmax(scores)  # along the last axis; with a mask or without
        heads = weights @ v

    A hidden cell has weight 0, and in a row that sees nothing all weights are 0, so backward does
    not need the mask.

    Parameters
    ----------
    d_heads : (B, H, T_q, d_v)
    q : (B, H, T_q, d_k)
    k : (B, H, T_k, d_k)
    v : (B, H, T_k, d_v)
    weights : (B, H, T_q, T_k)
        As forward computed them.

    Returns
    -------
    d_q, d_k, d_v : arrays like q, k and v
        Their gradients, in this order.
    """
    return through_attention(d_heads, q, k, v, weights)


def through_attention(
    d_heads: Array, q: Array, k: Array, v: Array, weights: Array, row_sum: Array | None = None
) -> InputGrads:
    """Pull back through attention; `row_sum` is the row sum of softmax, if it is known already."""
    H, H_kv = q.shape[1], k.shape[1]
    k, v = share(k, H), share(v, H)
    d_weights = d_heads @ v.swapaxes(-1, -2)
    if row_sum is None:
        row_sum = find_row_sum(d_weights, weights)
    d_scores = through_softmax(d_weights, weights, row_sum)
    d_v = weights.swapaxes(-1, -2) @ d_heads
    d_q, d_k = through_scores(d_scores, q, k)
    if H_kv != H:
        d_k, d_v = sum_over_group(d_k, H_kv), sum_over_group(d_v, H_kv)
    return InputGrads(d_q, d_k, d_v)


def draw_with_weights(
    rng: np.random.Generator, *, rect: tuple[int, int, int], square: tuple[int, int, int]
) -> list[Inputs]:
    """Draw the inputs of attention's backward; in the square, row 0 sees nothing.

    Odd ones follow, which all see all: with one key head, or as many as query heads.
    """
    probes = []
    odd = draw_odd_heads(rng, tall=(1, 4, 1 if rect[1] > rect[2] else 4), low=(4, 2, 2))
    for first, inputs in enumerate([*draw_heads(rng, rect=rect, square=square), *odd]):
        mask = causal_mask(inputs["q"].shape[2], inputs["k"].shape[2], first=first)
        mask |= first > 1
        weights, heads = attend(**inputs, mask=mask)
        probes.append({"d_heads": rng.normal(size=heads.shape), **inputs, "weights": weights})
    return probes


def _unseen_keys(inputs: Inputs, arrays: Arrays) -> Array:
    """Return where d_k and d_v are not 0, although no query sees the key."""
    weights = inputs["weights"]
    H_kv, (B, H, _, T_k) = inputs["k"].shape[1], weights.shape
    is_seen = (weights != 0).reshape(B, H_kv, H // H_kv, -1, T_k).any(axis=(2, 3))[..., None]
    parts = [np.where(is_seen, 0.0, arrays[name] != 0) for name in ("d_k", "d_v")]
    return np.concatenate(parts, axis=-1)


SHIFT = Law(
    "d_k sums to 0 over the keys, because adding one vector to all keys changes no weight",
    lambda _, arrays: arrays["d_k"].sum(axis=-2),
)

UNSEEN = Law("keys that no query sees have no gradient", _unseen_keys)


def slope_of_attention(inputs: Inputs) -> Slope:
    """Differentiate attention; a weight of 0 is hidden, as a numerical derivative cannot see it."""
    mask = inputs["mask"] if "mask" in inputs else inputs["weights"] > 0
    forward = partial(attention_forward, mask=mask)
    return Slope(forward, {name: inputs[name] for name in "qkv"}, inputs["d_heads"])


MISTAKES: list[Mistake | Again] = [
    Mistake("mask forgotten in backward", "the weights are recomputed without the mask, so hidden keys get gradients",
            "a weight of 0 passes nothing back",
            {"row_sum = find_row_sum(": "weights = softmax(scores(q, k), None)\n        row_sum = find_row_sum("}),
    Mistake("d_k and d_v swapped", "d_k and d_v are swapped",
            "d_v = weights.T @ d_heads, d_k = scale * d_scores.T @ q",
            {"InputGrads(d_q, d_k, d_v)": "InputGrads(d_q, d_v, d_k)"}),
    Mistake("d_v made from d_scores", "d_v is computed from d_scores instead of weights",
            "weights.swapaxes(-1, -2) @ d_heads", {"d_v = weights": "d_v = d_scores"}),
    Mistake("weights not transposed", "the weights are not transposed in d_v",
            "weights.swapaxes(-1, -2) @ d_heads", {"weights.swapaxes(-1, -2) @ d_heads": "weights @ d_heads"}),
    Mistake("v not transposed", "v is not transposed in d_weights", "d_heads @ v.swapaxes(-1, -2)",
            {"d_heads @ v.swapaxes(-1, -2)": "d_heads @ v"}),
    Mistake("d_scores divided by B",
            "d_scores is divided by the batch size, so d_q and d_k are B times too small, while d_v is right",
            "a mean over the batch belongs to the loss, not to softmax",
            {"d_scores = through_softmax(": "d_scores = 1 / len(d_heads) * through_softmax("}),
    Again("everything divided by B", {"return through_attention(d_heads, q, k, v, weights)": "return through_attention(d_heads / len(d_heads), q, k, v, weights)"}),
]  # fmt: skip

TASK = Task(
    attention_backward,
    place=160,
    difficulty=4,
    minutes=35,
    needs=("attention", "scores-backward", "softmax-backward"),
    hints=Hints(
        where="Forward has three lines, so backward has three steps, the last line first: "
        'docs/attention.md, steps 6, 4 and 1; notebook 12, "Forward and backward side by '
        'side".',
        question="heads = weights @ v is a product of (T_q, T_k) and (T_k, d_v), and d_heads is "
        "(T_q, d_v). With T_q = 2, T_k = 3, d_v = 4, which products have the shapes of weights "
        "and of v? What is left then is softmax and scores, and you already have their backward.",
        mistake="scale left out of backward",
        fix="d_v = weights.swapaxes(-1, -2) @ d_heads; d_weights = d_heads @ v.swapaxes(-1, -2)\n"
        "then softmax's backward turns d_weights into d_scores, and the backward of the scores "
        "returns d_q and d_k, both with:\n"
        "1 / np.sqrt(q.shape[-1])",
    ),
    returns="tuple[Array, Array, Array]",
    draw=partial(draw_with_weights, rect=(3, 2, 2), square=(2, 3, 3)),
    laws=[UNSEEN, SHIFT, EULER],
    slope=slope_of_attention,
    mistakes=MISTAKES,
)
