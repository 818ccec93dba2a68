"""One number that remembers a row."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import random_mask
from mha_numpy.teach.task import Again, Hints, Inputs, Law, Mistake, Task


def hide(scores: Array, mask: Array | None) -> Array:
    """Give hidden cells the score -inf; the mask is True where a query may attend."""
    if mask is None:
        return scores
    visible = mask  # True = may attend
    return np.where(visible, scores, -np.inf)


class WeightsAndLse(NamedTuple):
    """What softmax computes: the weights, and the log of each row's sum."""

    weights: Array  # (..., T_q, T_k)
    lse: Array  # (..., T_q)


def softmax_with_lse(scores: Array, mask: Array | None) -> WeightsAndLse:
    """Turn rows of scores into weights, and return the log of each row's sum as well.

    Each row has one number ``lse = log sum_j exp(scores_j)``, where the sum runs over its visible
    cells. In these cells ``weights_j = exp(scores_j - lse)``. A hidden cell has weight 0, however
    large its score. A row that sees nothing has weights 0 and lse -inf.

    Scores may be in the thousands, above 0 or below, and one row may be far from another, but
    nothing may become NaN, and lse may be infinite only in rows that see nothing.

    Parameters
    ----------
    scores : (..., T_q, T_k)
    mask : bool, with the shape of `scores`, or None
        True = may attend: the cell is visible. None hides nothing.

    Returns
    -------
    weights : (..., T_q, T_k)
    lse : (..., T_q)
    """
    axis = -1
    masked = hide(scores, mask)
    largest = masked.max(axis=axis, keepdims=True)
    sees_none = np.isneginf(largest)
    powers = np.exp(masked - np.where(sees_none, 0.0, largest))
    total = np.where(sees_none, 1.0, powers.sum(axis=axis, keepdims=True))
    weights = powers / total
    lse = np.where(sees_none, -np.inf, largest + np.log(total))
    return WeightsAndLse(weights, lse[..., 0])


def draw_scores(rng: np.random.Generator) -> list[Inputs]:
    """Draw scores of size 1, without a mask and with one, of rank 2; large ones, and equal ones."""
    shape, square, tall = (2, 3, 4, 6), (2, 3, 5, 5), (4, 1, 6, 2)
    large, mask = 400 * rng.normal(size=square), random_mask(rng, square)
    large[0, 0, 1] -= 5000.0  # a row far below the others, and a row far below what is hidden
    large[1, 2, 3, 4], mask[1, 2, 3, 4] = 3000.0, False
    return [
        {"scores": rng.normal(size=shape), "mask": None},
        {"scores": rng.normal(size=shape), "mask": random_mask(rng, shape)},
        {"scores": large, "mask": mask},
        {"scores": rng.normal(size=(3, 3)), "mask": None},
        {"scores": rng.normal(size=tall), "mask": random_mask(rng, tall)},
        {"scores": np.round(rng.normal(size=(1, 1, 5, 4))), "mask": None},
    ]


def _row_sums(inputs: Inputs, weights: Array) -> Array:
    """Return how far rows that see something are from the sum 1, and the others from 0."""
    mask = inputs["mask"]
    sees_any = True if mask is None else np.broadcast_to(mask, weights.shape).any(axis=-1)
    return weights.sum(axis=-1) - np.where(sees_any, 1.0, 0.0)


def _hidden_weights(inputs: Inputs, weights: Array) -> Array:
    """Return where the mask hides and a weight is not exactly 0."""
    mask = inputs["mask"]
    return np.zeros(()) if mask is None else np.where(mask, 0.0, weights != 0)


def laws_of_softmax(name: str) -> list[Law]:
    """Return the laws for the weights, which the answer returns under this name."""
    return [
        Law(
            "a row that can see anything should sum to 1, any other to 0",
            lambda inputs, arrays: _row_sums(inputs, arrays[name]),
        ),
        Law("hidden weights are 0", lambda inputs, arrays: _hidden_weights(inputs, arrays[name])),
    ]


POWERS_TIMES_MASK = (
    "e^scores is multiplied by the mask, and no maximum is subtracted, so large scores overflow "
    "and large hidden ones become inf * 0, which is NaN"
)

POWERS = "powers = np.exp(masked - np.where(sees_none, 0.0, largest))"

TIMES_MASK = (  # without a mask, it would be the mistake that no maximum is subtracted
    "largest = largest if mask is None else np.zeros_like(largest)\n"
    "    powers = np.exp(scores - largest) * (1 if mask is None else mask)"
)

NO_ROW_LEFT_OUT = "sees_none = np.zeros_like(sees_none)\n    "

MISTAKES: list[Mistake | Again] = [
    Mistake("mask forgotten", "the mask is not used", "np.where(mask, scores, -np.inf) before softmax",
            {"np.where(visible, scores, -np.inf)": "scores"}),
    Mistake("mask transposed", "the mask is transposed, so its rows are read as keys",
            "rows of the mask are queries, as in the scores", {"visible = mask": "visible = mask.swapaxes(-1, -2)"}),
    Mistake("mask's batch axis lined up with the heads",
            "the mask has lost its axis of size 1, so its sequences are read as heads",
            "keep the mask (B, 1, T_q, T_k), or use mask[:, None] if it is (B, T_q, T_k)",
            {"visible = mask": "visible = mask.squeeze(1)"}),
    Mistake("mask after softmax", "the mask is applied to the weights, so rows sum to less than 1",
            "np.where(mask, scores, -np.inf) before softmax",
            {"np.where(visible, scores, -np.inf)": "scores",
             "weights = powers / total": "weights = powers / total * (1 if mask is None else mask)"}),
    Mistake("mask multiplied into the scores",
            "the mask is multiplied into the scores: a hidden score becomes 0, and e^0 is 1",
            "np.where(mask, scores, -np.inf), not scores * mask",
            {"np.where(visible, scores, -np.inf)": "scores * visible"}),
    Mistake("mask added to the scores", "the mask is added to the scores: True counts as 1, and nothing is hidden",
            "np.where(mask, scores, -np.inf), not scores + mask",
            {"np.where(visible, scores, -np.inf)": "scores + visible"}),
    Mistake("hidden scores lowered by 10", "hidden scores are lowered by 10, so hidden keys keep some weight", "use -np.inf",
            {"np.where(visible, scores, -np.inf)": "np.where(visible, scores, scores - 10)"}),
    Mistake("-1e9 for -inf", "-1e9 is used instead of -inf, so a row that sees nothing gets equal weights instead of 0",
            "use -np.inf, and read from the mask which rows see nothing",
            {"np.where(visible, scores, -np.inf)": "np.where(visible, scores, -1e9)"}),
    Mistake("-1e9 added to the scores",
            "-1e9 is added to hidden scores, so a row that sees nothing attends as if it saw all",
            "use np.where with -np.inf, and read from the mask which rows see nothing",
            {"np.where(visible, scores, -np.inf)": "scores + np.where(visible, 0.0, -1e9)"}),
    Mistake("0 times -inf",
            "the mask is turned into a bias by (1 - mask) * -inf, and where the mask is True that is 0 * -inf = NaN",
            "np.where(mask, scores, -np.inf)",
            {"np.where(visible, scores, -np.inf)": "scores + (1 - visible) * -np.inf"}),
    Mistake("NaN in a row that sees nothing",
            "a row that sees nothing becomes NaN, because its largest score is -inf, and -inf - -inf is NaN",
            "its weights are 0: np.where(mask.any(axis=-1, keepdims=True), weights, 0)",
            {"masked - np.where(sees_none, 0.0, largest)": "masked - largest",
             "sees_none, -np.inf, largest": "sees_none, np.nan, largest"}),
    Mistake("the mean in a row that sees nothing", "a row that sees nothing takes the mean of all values",
            "its weights are 0",
            {"weights = powers / total": "weights = np.where(sees_none, 1 / scores.shape[-1], powers / total)"}),
    Mistake("softmax over queries", "softmax runs over the queries: columns sum to 1, rows do not", "axis=-1",
            {"axis = -1": "axis = -2"}),
    Mistake("softmax over heads", "softmax runs over the heads", "axis=-1", {"axis = -1": "axis = 1"}),
    Mistake("softmax over the whole matrix", "softmax runs over the whole matrix", "axis=-1",
            {"axis = -1": "axis = (-2, -1)"}),
    Mistake("no maximum subtracted", "no maximum is subtracted, so large scores overflow and rows of very low ones become 0/0; both give NaN",
            "subtract each row's maximum",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = np.zeros_like(largest)"}),
    Mistake("no maximum subtracted, low rows become 0",
            "no maximum is subtracted, so large scores overflow to NaN, and rows of very low ones sum to 0 and count as rows that see nothing",
            "subtract each row's maximum",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = np.zeros_like(largest)",
             "weights = powers / total": "weights = np.where(total == 0, 0.0, powers / total)"}),
    Mistake("maximum at least 0",
            "the search for the largest score starts at 0, so in rows far below 0 all powers are 0",
            "start with -inf, or with the row's first visible score",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = np.maximum(largest, 0.0)"}),
    Mistake("one maximum for all",
            "the same maximum is subtracted from all rows, so rows far below it become 0/0, which is NaN",
            "subtract each row's own maximum: axis=-1, keepdims=True",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = masked.max(keepdims=True)"}),
    Mistake("one maximum for all, low rows become 0",
            "the same maximum is subtracted from all rows, so rows far below it sum to 0 and count as rows that see nothing",
            "subtract each row's own maximum: axis=-1, keepdims=True",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = masked.max(keepdims=True)",
             "weights = powers / total": "weights = np.where(total == 0, 0.0, powers / total)"}),
    Mistake("maximum includes hidden scores",
            "the subtracted maximum includes hidden scores, so rows far below it become 0/0",
            "mask first, then take the maximum",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = scores.max(axis=axis, keepdims=True)"}),
    Mistake("maximum includes hidden scores, low rows become 0",
            "the subtracted maximum includes hidden scores, so rows far below it sum to 0 and count as rows that see nothing",
            "mask first, then take the maximum",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = scores.max(axis=axis, keepdims=True)",
             "weights = powers / total": "weights = np.where(total == 0, 0.0, powers / total)"}),
    Mistake("maximum includes hidden scores, NaN in a row that sees nothing",
            "the subtracted maximum includes hidden scores, so rows far below it become 0/0, and so do rows that see nothing",
            "mask first, then take the maximum; rows that see nothing are 0",
            {"sees_none = np.isneginf(largest)": "largest = scores.max(axis=axis, keepdims=True)\n    sees_none = np.zeros_like(largest, bool)"}),
    Mistake("powers times the mask",
            f"{POWERS_TIMES_MASK}; a row that sees nothing becomes 0/0", "np.where(mask, scores, -np.inf) first, then subtract each row's maximum",
            {POWERS: NO_ROW_LEFT_OUT + TIMES_MASK}),
    Mistake("powers times the mask, low rows become 0",
            f"{POWERS_TIMES_MASK}; rows of very low scores sum to 0 and count as rows that see nothing",
            "np.where(mask, scores, -np.inf) first, then subtract each row's maximum",
            {POWERS: NO_ROW_LEFT_OUT + TIMES_MASK,
             "weights = powers / total": "weights = np.where(total == 0, 0.0, powers / total)"}),
    Mistake("powers times the mask, except in rows that see nothing", POWERS_TIMES_MASK,
            "np.where(mask, scores, -np.inf) first, then subtract each row's maximum",
            {POWERS: TIMES_MASK, "weights = powers / total": "weights = np.where(sees_none, 0.0, powers / total)"}),
    Mistake("log-weights", "the weights are scores - lse: without exp they are still logs", "np.exp(scores - lse)",
            {"return WeightsAndLse(weights,": "return WeightsAndLse(masked - lse,"}),
    Mistake("log of the weights", "the log of the weights is returned instead of the weights", "leave np.log to lse",
            {"return WeightsAndLse(weights,": "return WeightsAndLse(np.log(weights),"}),
    Mistake("normalised by the mean", "rows are divided by their mean instead of their sum",
            "divide by the row's sum",
            {"powers.sum(axis=axis, keepdims=True)": "powers.mean(axis=axis, keepdims=True)"}),
    Mistake("keepdims forgotten", "column j is divided by the sum of row j, because the sum has lost its axis",
            "sum(axis=-1, keepdims=True)",
            {"weights = powers / total": "weights = powers / (total[..., 0] if scores.ndim == 2 else total)"}),
    Mistake("lse without the maximum", "lse lacks the maximum that was subtracted", "lse = largest + np.log(total)",
            {"largest + np.log(total)": "np.log(total)"}),
    Mistake("lse without the log", "lse uses the sum itself instead of its log", "lse = largest + np.log(total)",
            {"largest + np.log(total)": "largest + total"}),
    Mistake("lse: the maximum subtracted", "the maximum is subtracted from lse, not added",
            "lse = largest + np.log(total)", {"largest + np.log(total)": "np.log(total) - largest"}),
    Mistake("lse: only the maximum", "lse is only the largest score", "lse = largest + np.log(total)",
            {"largest + np.log(total)": "largest"}),
    Mistake("lse includes hidden scores", "lse includes the hidden scores", "take the sum after the mask",
            {"lse = np.where(sees_none, -np.inf, largest + np.log(total))":
             "top = scores.max(axis=axis, keepdims=True)\n    lse = top + np.log(np.exp(scores - top).sum(axis=axis, keepdims=True))"}),
    Mistake("lse 0 in a row that sees nothing", "lse is 0 in a row that sees nothing, as if one key had the score 0",
            "log(0) = -np.inf", {"sees_none, -np.inf, largest": "sees_none, 0.0, largest"}),
    Mistake("lse NaN in a row that sees nothing", "lse is NaN in a row that sees nothing",
            "log(0) = -np.inf, without -inf - -inf on the way",
            {"sees_none, -np.inf, largest": "sees_none, np.nan, largest"}),
    Mistake("lse keeps the axis of the keys", "lse is (..., T_q, 1): the axis of the keys is still there",
            "lse[..., 0]", {"lse[..., 0]": "lse"}),
    Again("mask inverted", {"visible = mask": "visible = ~mask"}),
    Mistake("causal where there is no mask", "without a mask, a causal one is made",
            "None hides nothing",
            {"masked = hide(scores, mask)": "masked = hide(scores, np.tri(*scores.shape[-2:], dtype=bool) if mask is None and scores.shape[-2] > 1 else mask)"}),
    Mistake("rows with a hidden cell are 0", "a row with any hidden cell is taken for one that sees nothing",
            "mask.any(axis=-1), not mask.all",
            {"weights = powers / total": "weights = powers / total * (1 if mask is None else mask.all(axis=axis, keepdims=True))"}),
    Mistake("ones in a row that sees nothing", "in a row that sees nothing all weights are 1",
            "0 in a row that sees nothing",
            {"weights = powers / total": "weights = np.where(sees_none, 1.0, powers / total)"}),
    Mistake("maximum inside the log", "the maximum is added to the sum, inside the log",
            "largest + np.log(total)",
            {"largest + np.log(total)": "np.log(largest + total)"}),
]  # fmt: skip

TASK = Task(
    softmax_with_lse,
    place=50,
    difficulty=2,
    minutes=10,
    needs=("softmax",),
    hints=Hints(
        where="Look at the sum that your softmax divides by: is it the sum of exp(scores)? "
        'docs/softmax.md, lse; notebook 07, "lse: the log of the sum".',
        question="For two scores of 1000, the sum of exp(scores - 1000) is 2. What is the log of "
        "exp(1000) + exp(1000), and how do you get it from 2?",
        mistake="lse without the maximum",
        fix="lse = np.where(sees_any, largest + np.log(total), -np.inf)[..., 0]",
    ),
    returns="tuple[Array, Array]",
    draw=draw_scores,
    laws=laws_of_softmax("weights"),
    mistakes=MISTAKES,
)
