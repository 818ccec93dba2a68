"""Attention backward: scores, softmax, all at once, heads that share, and without the weights."""

from functools import partial

import numpy as np

from mha_numpy.core import attention_forward, softmax_forward
from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.draws import causal_mask, draw_heads, large_scores, random_mask
from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Arrays, Inputs, Law, Piece, Slope
from mha_numpy.teach.diagnosis.right.attention import attend, scores, softmax, softmax_with_lse


def _draw_d_scores(rng: np.random.Generator) -> list[Inputs]:
    """Draw what the scores' backward gets: all sizes different, and a square."""
    return [
        {"d_scores": rng.normal(size=(B, H, T_q, T_k)), "q": rng.normal(size=(B, H, T_q, d_k)),
         "k": rng.normal(size=(B, H, T_k, d_k))}
        for B, H, T_q, T_k, d_k in ((2, 3, 5, 7, 4), (3, 2, 5, 5, 5))
    ]  # fmt: skip


def _draw_d_weights(rng: np.random.Generator) -> list[Inputs]:
    """Draw weights as softmax makes them: without a mask, with one, of rank 2."""
    probes = []
    for shape, is_masked in (((2, 3, 4, 6), False), ((3, 2, 5, 5), True), ((3, 4), False)):
        mask = random_mask(rng, shape) if is_masked else None
        weights = softmax(rng.normal(size=shape), mask)
        probes.append({"d_weights": rng.normal(size=shape), "weights": weights})
    return probes


def _draw_with_weights(
    rng: np.random.Generator, *, rect: tuple[int, int, int], square: tuple[int, int, int]
) -> list[Inputs]:
    """Draw what attention's backward gets; in the square, row 0 sees nothing."""
    probes = []
    for first, inputs in enumerate(draw_heads(rng, rect=rect, square=square)):
        mask = causal_mask(inputs["q"].shape[2], inputs["k"].shape[2], first=first)
        weights, heads = attend(**inputs, mask=mask)
        probes.append({"d_heads": rng.normal(size=heads.shape), **inputs, "weights": weights})
    return probes


def _draw_groups(rng: np.random.Generator) -> list[Inputs]:
    """Draw gradients of query heads: 3 groups of 2, and 2 of 3."""
    return [
        {"d_per_query_head": rng.normal(size=shape), "num_kv_heads": H_kv}
        for shape, H_kv in (((2, 6, 5, 4), 3), ((3, 6, 5, 2), 2))
    ]


def _draw_with_lse(rng: np.random.Generator) -> list[Inputs]:
    """Draw what the backward without weights gets; in the square, row 0 sees nothing."""
    q, k = large_scores(rng, (2, 2, 3, 4), (2, 2, 6, 4))
    large = {"q": q, "k": k, "v": rng.normal(size=(2, 2, 6, 3))}
    masks = causal_mask(5, 7), causal_mask(5, 5, first=1), np.ones((3, 6), dtype=bool)
    masks[2][2, 0] = False  # where the score is far above what the row sees
    large["q"][..., 2, 0], large["k"][..., 0, 0] = 30, 100
    probes = []
    drawn = [*draw_heads(rng, rect=(2, 3, 3), square=(3, 2, 2)), large]
    for inputs, mask in zip(drawn, masks, strict=True):
        heads = attend(**inputs, mask=mask).heads
        lse = softmax_with_lse(scores(inputs["q"], inputs["k"]), mask).lse
        d_heads = rng.normal(size=heads.shape)
        probes.append({"d_heads": d_heads, **inputs, "heads": heads, "lse": lse, "mask": mask})
    return probes


def _euler(inputs: Inputs, arrays: Arrays) -> Array:
    """Return sum(d_q * q) - sum(d_k * k): both are sum(d_scores * scores)."""
    return np.asarray((arrays["d_q"] * inputs["q"]).sum() - (arrays["d_k"] * inputs["k"]).sum())


def _unseen_keys(inputs: Inputs, arrays: Arrays) -> Array:
    """Return where d_k and d_v are not 0 though no query sees the key."""
    weights = inputs["weights"]
    H_kv, (B, H, _, T_k) = inputs["k"].shape[1], weights.shape
    is_seen = (weights != 0).reshape(B, H_kv, H // H_kv, -1, T_k).any(axis=(2, 3))[..., None]
    parts = [np.where(is_seen, 0.0, arrays[name] != 0) for name in ("d_k", "d_v")]
    return np.concatenate(parts, axis=-1)


SHIFT = Law(
    "d_k sums to 0 over the keys, as adding one vector to all keys changes no weight",
    lambda _, arrays: arrays["d_k"].sum(axis=-2),
)
EULER = Law("d_q * q and d_k * k have the same sum", _euler)
UNSEEN = Law("keys that no query sees have no gradient", _unseen_keys)


def _slope_of_scores(inputs: Inputs) -> Slope:
    """Differentiate the product and its scale."""

    def forward(q: Array, k: Array) -> Array:
        return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])

    return Slope(forward, {"q": inputs["q"], "k": inputs["k"]}, inputs["d_scores"])


def _slope_of_softmax(inputs: Inputs) -> Slope:
    """Differentiate softmax at scores that have the given weights."""
    weights = inputs["weights"]
    mask = weights > 0
    scores = np.log(np.where(mask, weights, 1.0))
    return Slope(partial(softmax_forward, mask=mask), {"scores": scores}, inputs["d_weights"])


def _slope_of_attention(inputs: Inputs) -> Slope:
    """Differentiate attention; a weight of 0 is hidden, as a numeric derivative cannot see it."""
    mask = inputs["mask"] if "mask" in inputs else inputs["weights"] > 0
    forward = partial(attention_forward, mask=mask)
    return Slope(forward, {name: inputs[name] for name in "qkv"}, inputs["d_heads"])


def _slope_of_sharing(inputs: Inputs) -> Slope:
    """Differentiate the repetition of shared heads."""
    d_out, H_kv = inputs["d_per_query_head"], inputs["num_kv_heads"]
    B, H, T, d = d_out.shape
    shared = np.random.default_rng(0).normal(size=(B, H_kv, T, d))
    return Slope(lambda shared: shared.repeat(H // H_kv, axis=1), {"shared": shared}, d_out)


PIECES = [
    Piece("scores_backward", _draw_d_scores, laws=[EULER], slope=_slope_of_scores),
    Piece(
        "softmax_backward",
        _draw_d_weights,
        result="d_scores",
        laws=[
            Law("rows of d_scores sum to 0", lambda _, arrays: arrays[""].sum(axis=-1)),
            Law(
                "hidden cells have no gradient",
                lambda inputs, arrays: np.where(inputs["weights"] == 0, arrays[""], 0),
            ),
        ],
        slope=_slope_of_softmax,
    ),
    Piece(
        "attention_backward",
        partial(_draw_with_weights, rect=(3, 2, 2), square=(2, 3, 3)),
        laws=[UNSEEN, SHIFT, EULER],
        slope=_slope_of_attention,
    ),
    Piece(
        "sum_over_group",
        _draw_groups,
        result="d_shared",
        laws=[
            Law(
                "the sum over all heads stays the same",
                lambda inputs, arrays: (
                    arrays[""].sum(axis=1) - inputs["d_per_query_head"].sum(axis=1)
                ),
            )
        ],
        slope=_slope_of_sharing,
    ),
    Piece(
        "grouped_backward",
        partial(_draw_with_weights, rect=(2, 6, 3), square=(3, 6, 2)),
        laws=[UNSEEN, SHIFT, EULER],
        slope=_slope_of_attention,
    ),
    Piece("backward_from_lse", _draw_with_lse, laws=[SHIFT, EULER], slope=_slope_of_attention),
]

# fmt: off
MISTAKES = [
    Mistake("row sum left out", "the row sum of softmax is left out, so rows of d_scores do not sum to 0",
            "weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True))",
            {"(d_weights - row_sum)": "d_weights"}),
    Mistake("row sum over queries", "softmax's sum is taken over the queries", "sum over the last axis",
            {"(weights * d_weights).sum(axis=-1, keepdims=True)": "(weights * d_weights).sum(axis=-2, keepdims=True)"}),
    Mistake("row sum unweighted", "softmax's sum is that of d_weights alone, without the weights", "sum weights * d_weights",
            {"(weights * d_weights).sum(axis=-1, keepdims=True)": "d_weights.sum(axis=-1, keepdims=True)"}),
    Mistake("row sum added", "softmax's row sum is added to d_weights, not subtracted",
            "weights * (d_weights - row_sum)", {"(d_weights - row_sum)": "(d_weights + row_sum)"}),
    Mistake("row mean instead of the weighted sum",
            "the plain mean of d_weights is subtracted, not the mean under the weights", "sum weights * d_weights",
            {"(weights * d_weights).sum(axis=-1, keepdims=True)": "d_weights.mean(axis=-1, keepdims=True)"}),
    Mistake("diagonal of the Jacobian alone", "only the diagonal p (1 - p) of softmax's Jacobian is used",
            "add what the other scores of the row do: -p_i p_j",
            {"(d_weights - row_sum)": "(1 - weights) * d_weights"}),
    Mistake("factor p left out", "d_scores lacks the factor weights, so hidden cells get gradients",
            "weights * (d_weights - ...)", {"weights * (d_weights - row_sum)": "(d_weights - row_sum)"}),
    Mistake("softmax skipped in backward", "d_weights is taken for d_scores: softmax is skipped",
            "weights * (d_weights - ...)", {"weights * (d_weights - row_sum)": "d_weights"}),
    Mistake("softmax of the weights", "softmax is applied to the weights once more, as if they were scores",
            "the weights are softmax's output already",
            {"mean = find_row_sum": "weights = softmax(weights, None)\n    mean = find_row_sum"}),
    Mistake("mask forgotten in backward",
            "the weights are computed anew without the mask, so hidden keys get gradients",
            "a weight of 0 passes nothing back",
            {"row_sum = find_row_sum(": "weights = softmax(scores(q, k), None)\n        row_sum = find_row_sum(",
             "np.where(mask, scores - lse, -np.inf)": "scores - lse"}),
    Mistake("sign of d_scores", "d_scores has the wrong sign", "d_weights minus its mean, not the other way",
            {"return weights *": "return -weights *"}),
    Mistake("scale left out of backward",
            "d_q and d_k are too large, by the root of a head's width: the scale is missing in both",
            "scale * d_scores @ k", {"d_scores / np.sqrt(q.shape[-1])": "d_scores"}),
    Mistake("scale left out of d_q", "d_q is too large, by the root of a head's width: the scale is missing in it",
            "scale * d_scores @ k", {"d_q = scaled": "d_q = d_scores"}),
    Mistake("scale left out of d_k", "d_k is too large, by the root of a head's width: the scale is missing in it",
            "scale * d_scores.T @ q", {"d_k = scaled": "d_k = d_scores"}),
    Mistake("scale twice in backward",
            "d_q and d_k are too small, by the root of a head's width: the scale is applied twice, or its square is used",
            "scale once: in d_scores or in d_q and d_k",
            {"d_scores / np.sqrt(q.shape[-1])": "d_scores / q.shape[-1]"}),
    Mistake("scale inverted in backward", "d_q and d_k are multiplied by the root of a head's width, not divided",
            "scale * d_scores @ k, with scale = 1/sqrt(d_k)",
            {"d_scores / np.sqrt(q.shape[-1])": "d_scores * np.sqrt(q.shape[-1])"}),
    Mistake("sign of d_q", "d_q has the wrong sign", "scale * d_scores @ k", {"ScoresGrads(d_q": "ScoresGrads(-d_q"}),
    Mistake("sign of d_k", "d_k has the wrong sign", "scale * d_scores.T @ q", {" d_k)\n": " -d_k)\n"}),
    Mistake("d_q and d_k swapped", "d_q and d_k have changed places",
            "d_q = scale * d_scores @ k, d_k = scale * d_scores.T @ q",
            {"ScoresGrads(d_q, d_k)": "ScoresGrads(d_k, d_q)"}),
    Mistake("d_q made from q", "d_q is computed from q where k belongs", "scale * d_scores @ k", {"@ k\n": "@ q\n"}),
    Mistake("d_k made from k", "d_k is computed from k where q belongs", "scale * d_scores.T @ q", {"@ q\n": "@ k\n"}),
    Mistake("d_k and d_v swapped", "d_k and d_v have changed places",
            "d_v = weights.T @ d_heads, d_k = scale * d_scores.T @ q",
            {"InputGrads(d_q, d_k, d_v)": "InputGrads(d_q, d_v, d_k)"}),
    Mistake("d_v made from d_scores", "d_v is computed from d_scores where weights belong",
            "weights.swapaxes(-1, -2) @ d_heads", {"d_v = weights": "d_v = d_scores"}),
    Mistake("weights not transposed", "d_v is computed with weights that are not transposed",
            "weights.swapaxes(-1, -2) @ d_heads", {"weights.swapaxes(-1, -2) @ d_heads": "weights @ d_heads"}),
    Mistake("d_scores not transposed", "d_k is computed with d_scores that are not transposed",
            "d_scores.swapaxes(-1, -2) @ q", {"scaled.swapaxes(-1, -2)": "scaled"}),
    Mistake("v not transposed", "d_weights is computed with v that is not transposed", "d_heads @ v.swapaxes(-1, -2)",
            {"d_heads @ v.swapaxes(-1, -2)": "d_heads @ v"}),
    Mistake("first of the group alone", "a shared head gets the gradient of the first query head of its group alone",
            "sum over the group", {"grouped.sum(axis=2)": "grouped[:, :, 0]"}),
    Mistake("last of the group alone", "a shared head gets the gradient of the last query head of its group alone",
            "sum over the group", {"grouped.sum(axis=2)": "grouped[:, :, -1]"}),
    Mistake("mean over the group", "a shared head gets the mean over its group instead of the sum",
            "sum over the group", {"grouped.sum(axis=2)": "grouped.mean(axis=2)"}),
    Mistake("group not summed", "gradients of shared heads have H heads: the sum over each group is left out",
            "reshape to (B, H_kv, G, T, d), sum axis 2", {"grouped.sum(axis=2)": "d_per_query_head"}),
    Mistake("gradients summed as if tiled",
            "gradients are summed over heads h, h + H_kv, ..., as if heads were tiled",
            "reshape to (B, H_kv, G, T, d), sum axis 2",
            {"(B, num_kv_heads, H // num_kv_heads, T, d)": "(B, H // num_kv_heads, num_kv_heads, T, d).swapaxes(1, 2)"}),
    Mistake("summed over the groups, not within",
            "gradients are summed over the groups, which leaves G heads instead of H_kv",
            "reshape to (B, H_kv, G, T, d), sum axis 2", {"grouped.sum(axis=2)": "grouped.sum(axis=1)"}),
    Mistake("everything divided by B", "all gradients are divided by the batch size",
            "a mean over the batch belongs to the loss, not to the layer",
            {"return through_scores(d_scores,": "return through_scores(d_scores / len(d_scores),",
             "through_softmax(d_weights, weights, mean)": "through_softmax(d_weights, weights, mean) / len(weights)",
             "return through_attention(d_heads, q, k, v, weights)": "return through_attention(d_heads / len(d_heads), q, k, v, weights)",
             "weights = recompute_weights(": "d_heads = d_heads / len(d_heads)\n    weights = recompute_weights(",
             "return through_linear(d_out,": "return through_linear(d_out / len(d_out),",
             "d_merged, d_w_o, d_b_o = ": "d_out = d_out / len(d_out)\n    d_merged, d_w_o, d_b_o = ",
             "x_hat, inverse_std = normalise(": "d_out = d_out / len(d_out)\n    x_hat, inverse_std = normalise(",
             "return d_dropped": "return d_dropped / len(d_dropped)"}),
    Mistake("d_scores divided by B",
            "d_scores is divided by the batch size: d_q and d_k are B times too small, and d_v is right",
            "a mean over the batch belongs to the loss, not to softmax",
            {"d_scores = through_softmax(": "d_scores = 1 / len(d_heads) * through_softmax("}),
    Mistake("hidden cells recomputed, too",
            "hidden cells get weights when the weights are computed anew: lse does not know the mask",
            "0 where the mask is False", {"np.where(mask, scores - lse": "np.where(np.isfinite(lse), scores - lse"}),
    Mistake("mask forgotten, weights cut off at 1",
            "hidden cells get weights when the weights are computed anew, and those above 1 are cut off at 1: it is the mask that is missing",
            "0 where the mask is False",
            {"np.exp(np.where(mask, scores - lse, -np.inf))": "np.minimum(np.exp(scores - lse), 1.0)"}),
    Mistake("hidden cells made 0 after exp",
            "hidden cells are multiplied by 0 after exp, which may be inf there: inf * 0 is NaN",
            "np.exp(np.where(mask, scores - lse, -np.inf))",
            {"np.exp(np.where(mask, scores - lse, -np.inf))": "np.exp(scores - np.where(np.isneginf(lse), 0.0, lse)) * mask"}),
    Mistake("scale missing in the recomputed scores", "the weights are computed anew from scores without their scale",
            "exp(q k^T / sqrt(d_k) - lse)",
            {"q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])": "q @ k.swapaxes(-1, -2)"}),
    Mistake("-inf minus -inf", "in a row that sees nothing the weights are e^(-inf - -inf) = NaN",
            "np.where(mask, scores - lse, -np.inf)",
            {"np.where(mask, scores - lse, -np.inf)": "np.where(mask, scores, -np.inf) - lse"}),
    Mistake("divided by lse", "the weights are e^scores / lse: lse is a log already", "np.exp(scores - lse)",
            {"np.exp(np.where(mask, scores - lse, -np.inf))": "np.where(mask, np.exp(scores) / lse, 0.0)"}),
    Mistake("e^scores over e^lse", "the weights are e^scores / e^lse, which overflows to NaN where scores are large",
            "np.exp(scores - lse)",
            {"np.exp(np.where(mask, scores - lse, -np.inf))": "np.where(mask, np.exp(scores) / np.exp(lse), 0.0)"}),
    Mistake("delta from v, not heads", "the row sum of softmax is computed from d_heads * v",
            "(d_heads * heads).sum(-1, keepdims=True)", {"delta(d_heads, heads)": "delta(d_heads, v)"}),
    Mistake("delta from d_heads alone", "the row sum of softmax is computed from d_heads alone",
            "(d_heads * heads).sum(-1, keepdims=True)",
            {"(d_heads * heads).sum(axis=-1, keepdims=True)": "d_heads.sum(axis=-1, keepdims=True)"}),
    Mistake("delta summed over queries", "d_heads * heads is summed over the queries, not over the features",
            "(d_heads * heads).sum(-1, keepdims=True)",
            {"(d_heads * heads).sum(axis=-1, keepdims=True)": "(d_heads * heads).sum(axis=-2, keepdims=True)"}),
    Mistake("delta laid along the keys", "the row sum of query j is subtracted in column j: it has lost its axis",
            "(d_heads * heads).sum(-1, keepdims=True)",
            {"(d_heads * heads).sum(axis=-1, keepdims=True)": "(d_heads * heads).sum(axis=-1)[..., None, :]"}),
]
# fmt: on
