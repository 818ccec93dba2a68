"""Backward without stored weights."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import causal_mask, draw_heads, draw_odd_heads, large_scores
from mha_numpy.teach.task import Again, Hints, Inputs, Mistake, Task
from mha_numpy.teach.tasks.attention import attend
from mha_numpy.teach.tasks.attention_backward import (
    SHIFT,
    InputGrads,
    slope_of_attention,
    through_attention,
)
from mha_numpy.teach.tasks.scores import scores
from mha_numpy.teach.tasks.scores_backward import EULER
from mha_numpy.teach.tasks.softmax_with_lse import softmax_with_lse


def backward_from_lse(
    d_heads: Array, q: Array, k: Array, v: Array, heads: Array, lse: Array, mask: Array
) -> InputGrads:
    """Return the gradients of q, k and v without stored weights.

    Forward computed, separately for every sequence and head::

        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        scores = np.where(mask, scores, -np.inf)
        lse = np.log(np.exp(scores).sum(axis=-1))  # written so that nothing overflows
        weights = softmax(scores)  # along the last axis
        heads = weights @ v

    Forward did not keep the weights, only heads and one number for each row, lse. A row that sees
    nothing has lse -inf and heads 0, and its gradients are 0. Scores may be large, even in hidden
    cells, but no gradient may be NaN or inf.

    Parameters
    ----------
    d_heads : (B, H, T_q, d_v)
    q : (B, H, T_q, d_k)
    k : (B, H, T_k, d_k)
    v : (B, H, T_k, d_v)
    heads : (B, H, T_q, d_v)
    lse : (B, H, T_q)
    mask : (T_q, T_k) bool
        True = may attend.

    Returns
    -------
    d_q, d_k, d_v : arrays like q, k and v
        Their gradients, in this order.
    """
    weights = recompute_weights(q, k, lse[..., None], mask)
    return through_attention(d_heads, q, k, v, weights, delta(d_heads, heads))


def recompute_weights(q: Array, k: Array, lse: Array, mask: Array) -> Array:
    """Return the weights e^(scores - lse), 0 where hidden."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return np.exp(np.where(mask, scores - lse, -np.inf))


def delta(d_heads: Array, heads: Array) -> Array:
    """Return the row sum of softmax, which is sum(d_heads * heads): (B, H, T_q, 1)."""
    return (d_heads * heads).sum(axis=-1, keepdims=True)


def _draw_with_lse(rng: np.random.Generator) -> list[Inputs]:
    """Draw the inputs of the backward without weights; in the square, row 0 sees nothing."""
    q, k = large_scores(rng, (2, 2, 3, 4), (2, 2, 6, 4))
    large = {"q": q, "k": k, "v": rng.normal(size=(2, 2, 6, 3))}
    masks = [causal_mask(5, 7), causal_mask(5, 5, first=1), np.ones((3, 6), dtype=bool)]
    masks += [causal_mask(6, 2), causal_mask(1, 4) | True]
    masks[2][2, 0] = False  # where the score is far above what the row sees
    large["q"][..., 2, 0], large["k"][..., 0, 0] = 30, 100
    probes = []
    drawn = [*draw_heads(rng, rect=(2, 3, 3), square=(3, 2, 2)), large]
    drawn += draw_odd_heads(rng, tall=(1, 4, 4), low=(4, 1, 1))
    for inputs, mask in zip(drawn, masks, strict=True):
        heads = attend(**inputs, mask=mask).heads
        lse = softmax_with_lse(scores(inputs["q"], inputs["k"]), mask).lse
        d_heads = rng.normal(size=heads.shape)
        probes.append({"d_heads": d_heads, **inputs, "heads": heads, "lse": lse, "mask": mask})
    return probes


MISTAKES: list[Mistake | Again] = [
    Mistake("hidden cells recomputed too",
            "hidden cells get weights, because the mask is not applied when the weights are recomputed",
            "0 where the mask is False", {"np.where(mask, scores - lse": "np.where(np.isfinite(lse), scores - lse"}),
    Mistake("mask forgotten, weights cut off at 1",
            "hidden cells get weights, because the mask is not applied when the weights are recomputed, and those above 1 are cut off at 1",
            "0 where the mask is False",
            {"np.exp(np.where(mask, scores - lse, -np.inf))": "np.minimum(np.exp(scores - lse), 1.0)"}),
    Mistake("hidden cells made 0 after exp",
            "hidden cells are multiplied by 0 only after exp, which may be inf there, and inf * 0 is NaN",
            "np.exp(np.where(mask, scores - lse, -np.inf))",
            {"np.exp(np.where(mask, scores - lse, -np.inf))": "np.exp(scores - np.where(np.isneginf(lse), 0.0, lse)) * mask"}),
    Mistake("scale missing in the recomputed scores", "the weights are recomputed from scores without their scale",
            "exp(q k^T / sqrt(d_k) - lse)",
            {"q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])": "q @ k.swapaxes(-1, -2)"}),
    Mistake("-inf minus -inf", "in a row that sees nothing the weights are e^(-inf - -inf) = NaN",
            "np.where(mask, scores - lse, -np.inf)",
            {"np.where(mask, scores - lse, -np.inf)": "np.where(mask, scores, -np.inf) - lse"}),
    Mistake("divided by lse", "the weights are e^scores / lse, but lse is already a log", "np.exp(scores - lse)",
            {"np.exp(np.where(mask, scores - lse, -np.inf))": "np.where(mask, np.exp(scores) / lse, 0.0)"}),
    Mistake("e^scores over e^lse", "the weights are e^scores / e^lse, which overflows to NaN where scores are large",
            "np.exp(scores - lse)",
            {"np.exp(np.where(mask, scores - lse, -np.inf))": "np.where(mask, np.exp(scores) / np.exp(lse), 0.0)"}),
    Mistake("delta from v, not heads", "the row sum of softmax is computed from d_heads * v",
            "(d_heads * heads).sum(-1, keepdims=True)", {"delta(d_heads, heads)": "delta(d_heads, v)"}),
    Mistake("delta from d_heads only", "the row sum of softmax sums d_heads only: the factor heads is missing",
            "(d_heads * heads).sum(-1, keepdims=True)",
            {"(d_heads * heads).sum(axis=-1, keepdims=True)": "d_heads.sum(axis=-1, keepdims=True)"}),
    Mistake("delta summed over queries", "d_heads * heads is summed over the queries, not over the features",
            "(d_heads * heads).sum(-1, keepdims=True)",
            {"(d_heads * heads).sum(axis=-1, keepdims=True)": "(d_heads * heads).sum(axis=-2, keepdims=True)"}),
    Mistake("delta laid along the keys", "the row sum of query j is subtracted in column j, because it has lost its axis",
            "(d_heads * heads).sum(-1, keepdims=True)",
            {"(d_heads * heads).sum(axis=-1, keepdims=True)": "(d_heads * heads).sum(axis=-1)[..., None, :]"}),
    Again("mask forgotten in backward", {"np.where(mask, scores - lse, -np.inf)": "scores - lse"}),
    Again("everything divided by B", {"weights = recompute_weights(": "d_heads = d_heads / len(d_heads)\n    weights = recompute_weights("}),
    Again("mask inverted", {"np.where(mask, scores - lse": "np.where(~mask, scores - lse"}),
]  # fmt: skip

TASK = Task(
    backward_from_lse,
    place=260,
    difficulty=5,
    minutes=45,
    needs=("attention-backward", "softmax-with-lse"),
    hints=Hints(
        where="The lse of a row is all you need to recompute its weights, and the row sum of "
        "softmax's backward follows from two of the arguments: docs/softmax.md, lse; notebook 12, "
        '"Backward without stored weights".',
        question="Softmax's backward needs, for each query, the sum over the keys of weights * "
        "d_weights, and d_weights = d_heads @ v.T. Write out that sum with all indices and do the "
        "sum over the keys first. Which of the arguments appears?",
        mistake="mask forgotten in backward",
        fix="weights = np.exp(np.where(mask, scores - np.where(np.isinf(lse), 0, lse)[..., None], "
        "-np.inf)); d_scores = weights * (d_weights - (d_heads * heads).sum(axis=-1, "
        "keepdims=True))",
    ),
    returns="tuple[Array, Array, Array]",
    draw=_draw_with_lse,
    laws=[SHIFT, EULER],
    slope=slope_of_attention,
    mistakes=MISTAKES,
)
