"""Attention forward: scores, softmax, one head, heads that share, and a mask and a softcap."""

from functools import partial

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.draws import draw_heads, large_scores, random_mask
from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Inputs, Law, Piece, Reaction, moved, reversed_tokens


def _draw_q_and_k(rng: np.random.Generator) -> list[Inputs]:
    """Draw queries and keys: all sizes different, and a square."""
    return [
        {"q": rng.normal(size=(B, H, T_q, d_k)), "k": rng.normal(size=(B, H, T_k, d_k))}
        for B, H, T_q, T_k, d_k in ((2, 3, 5, 7, 4), (2, 4, 3, 3, 3))
    ]


def _draw_scores(rng: np.random.Generator) -> list[Inputs]:
    """Draw scores of size 1, without a mask and with one, of rank 2; and large ones."""
    shape, square = (2, 3, 4, 6), (2, 3, 5, 5)
    large, mask = 400 * rng.normal(size=square), random_mask(rng, square)
    large[0, 0, 1] -= 5000.0  # a row far below the others, and a row far below what is hidden
    large[1, 2, 3, 4], mask[1, 2, 3, 4] = 3000.0, False
    return [
        {"scores": rng.normal(size=shape), "mask": None},
        {"scores": rng.normal(size=shape), "mask": random_mask(rng, shape)},
        {"scores": large, "mask": mask},
        {"scores": rng.normal(size=(3, 3)), "mask": None},
    ]


def _draw_heads(
    rng: np.random.Generator, *, rect: tuple[int, int, int], square: tuple[int, int, int]
) -> list[Inputs]:
    """Draw queries, keys and values, and some whose scores are large; rect is B, H, H_kv."""
    B, H, H_kv = rect
    q, k = large_scores(rng, (B, H, 4, 4), (B, H_kv, 6, 4))
    large = {"q": q, "k": k, "v": rng.normal(size=(B, H_kv, 6, 5))}
    return [*draw_heads(rng, rect=rect, square=square), large]


def _draw_one_head(rng: np.random.Generator) -> list[Inputs]:
    """Draw queries, keys and values of rank 2."""
    probes = _draw_heads(rng, rect=(1, 1, 1), square=(1, 1, 1))
    return [{name: array[0, 0] for name, array in inputs.items()} for inputs in probes]


def _draw_one_query(rng: np.random.Generator) -> list[Inputs]:
    """Draw a single query beside its keys and values; large scores above 0, and below."""
    drawn = _draw_one_head(rng)
    return [{**inputs, "q": inputs["q"][i]} for inputs in drawn for i in (0, 1)]


def _draw_masked(rng: np.random.Generator) -> list[Inputs]:
    """Draw masks beside queries, keys and values, and a softcap for the square."""
    probes = []
    drawn = _draw_heads(rng, rect=(2, 6, 3), square=(6, 6, 2))
    for inputs, softcap in zip(drawn, (None, 1.5, None), strict=True):
        B, T_q, T_k = len(inputs["q"]), inputs["q"].shape[2], inputs["k"].shape[2]
        mask = random_mask(rng, (B, 1, T_q, T_k))
        probes.append({**inputs, "mask": mask, "softcap": softcap})
    # in row 0 the first three keys score highest: a maximum that lies far above what is visible
    probes[2]["mask"][1, 0, 0] = [False, False, False, True, True, False]
    return probes


def _row_sums(inputs: Inputs, weights: Array) -> Array:
    """Return how far rows that see something are from the sum 1, and the others from 0."""
    mask = inputs["mask"]
    sees_any = True if mask is None else np.broadcast_to(mask, weights.shape).any(axis=-1)
    return weights.sum(axis=-1) - np.where(sees_any, 1.0, 0.0)


def _hidden_weights(inputs: Inputs, weights: Array) -> Array:
    """Return where the mask hides and a weight is not exactly 0."""
    mask = inputs["mask"]
    return np.zeros(()) if mask is None else np.where(mask, 0.0, weights != 0)


def _laws_of_softmax(name: str) -> list[Law]:
    """Return what holds for the weights, which are returned by a name."""
    return [
        Law(
            "rows that see something sum to 1, the others to 0",
            lambda inputs, arrays: _row_sums(inputs, arrays[name]),
        ),
        Law("hidden weights are 0", lambda inputs, arrays: _hidden_weights(inputs, arrays[name])),
    ]


def _outside(inputs: Inputs, heads: Array) -> Array:
    """Return how far heads lie outside of the values that they are means of."""
    v = inputs["v"]
    if v.ndim == 4:
        v = v.repeat(inputs["q"].shape[1] // v.shape[1], axis=1)
    low = np.minimum(v.min(axis=-2, keepdims=True), 0)  # a row that sees nothing is 0
    high = np.maximum(v.max(axis=-2, keepdims=True), 0)
    return np.maximum(heads - high, 0) + np.maximum(low - heads, 0)


MEANS = Law(
    "heads lie between the smallest and the largest value",
    lambda inputs, arrays: _outside(inputs, arrays[""]),
)

PIECES = [
    Piece(
        "scores",
        _draw_q_and_k,
        result="scores",
        reactions=[
            Reaction(
                "a change of the last key changes only the last column",
                moved("k", np.s_[:, :, -1]),
                lambda _, arrays: arrays[""][..., :-1],
            )
        ],
    ),
    Piece("softmax", _draw_scores, result="weights", laws=_laws_of_softmax("")),
    Piece("softmax_with_lse", _draw_scores, laws=_laws_of_softmax("weights")),
    Piece(
        "attention",
        _draw_one_head,
        result="heads",
        laws=[MEANS],
        reactions=[
            Reaction(
                "reversing keys and values together changes nothing",
                reversed_tokens("k", "v"),
                lambda _, arrays: arrays[""],
            )
        ],
    ),
    Piece(
        "one_query",
        _draw_one_query,
        result="out",
        laws=[MEANS],
        reactions=[
            Reaction(
                "reversing keys and values together changes nothing",
                reversed_tokens("k", "v"),
                lambda _, arrays: arrays[""],
            )
        ],
    ),
    Piece("masked_attention", _draw_masked, result="heads", laws=[MEANS]),
    Piece(
        "grouped_attention",
        partial(_draw_heads, rect=(2, 6, 3), square=(3, 6, 2)),
        result="heads",
        laws=[MEANS],
        reactions=[
            Reaction(
                "a change of the first key/value head changes only the first group",
                moved("v", np.s_[:, 0]),
                lambda inputs, arrays: arrays[""][
                    :, inputs["q"].shape[1] // inputs["v"].shape[1] :
                ],
            )
        ],
    ),
]

POWERS_TIMES_MASK = (
    "e^scores is multiplied by the mask, and no maximum is subtracted: large scores overflow, "
    "and where they are hidden inf * 0 is NaN"
)
POWERS = "powers = np.exp(masked - np.where(sees_none, 0.0, largest))"
TIMES_MASK = (  # without a mask, it would be the mistake that no maximum is subtracted
    "largest = largest if mask is None else np.zeros_like(largest)\n"
    "    powers = np.exp(scores - largest) * (1 if mask is None else mask)"
)
NO_ROW_LEFT_OUT = "sees_none = np.zeros_like(sees_none)\n    "

# fmt: off
MISTAKES = [
    Mistake("mask forgotten", "the mask is not used", "np.where(mask, scores, -np.inf) before softmax",
            {"np.where(visible, scores, -np.inf)": "scores"}),
    Mistake("mask transposed", "the mask is transposed: its rows are taken for keys",
            "rows of the mask are queries, as in the scores", {"visible = mask": "visible = mask.swapaxes(-1, -2)"}),
    Mistake("mask's batch axis lined up with the heads",
            "the mask has lost its axis of size 1, so its sequences are taken for heads",
            "leave the mask (B, 1, T_q, T_k), or mask[:, None] where it is (B, T_q, T_k)",
            {"visible = mask": "visible = mask.squeeze(1)"}),
    Mistake("mask after softmax", "the mask is applied to the weights, so rows sum to less than 1",
            "np.where(mask, scores, -np.inf) before softmax",
            {"np.where(visible, scores, -np.inf)": "scores",
             "weights = powers / total": "weights = powers / total * (1 if mask is None else mask)"}),
    Mistake("mask multiplied into the scores",
            "the mask is multiplied into the scores: a hidden score becomes 0, and e^0 is 1",
            "np.where(mask, scores, -np.inf), not scores * mask",
            {"np.where(visible, scores, -np.inf)": "scores * visible"}),
    Mistake("mask added to the scores", "the mask is added to the scores: True counts 1, and nothing is hidden",
            "np.where(mask, scores, -np.inf), not scores + mask",
            {"np.where(visible, scores, -np.inf)": "scores + visible"}),
    Mistake("hidden scores lowered by 10", "hidden scores are lowered by 10, so hidden keys keep some weight", "use -np.inf",
            {"np.where(visible, scores, -np.inf)": "np.where(visible, scores, scores - 10)"}),
    Mistake("-1e9 for -inf", "-1e9 stands for -inf, so a row that sees nothing gets equal weights instead of 0",
            "use -np.inf, and decide rows that see nothing from the mask",
            {"np.where(visible, scores, -np.inf)": "np.where(visible, scores, -1e9)"}),
    Mistake("-1e9 added to the scores",
            "-1e9 is added to hidden scores, so a row that sees nothing attends as if it saw all",
            "use np.where with -np.inf, and decide rows that see nothing from the mask",
            {"np.where(visible, scores, -np.inf)": "scores + np.where(visible, 0.0, -1e9)"}),
    Mistake("0 times -inf",
            "the mask is turned into a bias by (1 - mask) * -inf, and where the mask is True that is 0 * -inf = NaN",
            "np.where(mask, scores, -np.inf)",
            {"np.where(visible, scores, -np.inf)": "scores + (1 - visible) * -np.inf"}),
    Mistake("NaN in a row that sees nothing",
            "a row that sees nothing becomes NaN: its largest score is -inf, and -inf - -inf is NaN",
            "its weights are 0: np.where(mask.any(axis=-1, keepdims=True), weights, 0)",
            {"masked - np.where(sees_none, 0.0, largest)": "masked - largest",
             "sees_none, -np.inf, largest": "sees_none, np.nan, largest"}),
    Mistake("the mean in a row that sees nothing", "a row that sees nothing takes the mean of all values",
            "its weights are 0",
            {"weights = powers / total": "weights = np.where(sees_none, 1 / scores.shape[-1], powers / total)"}),
    Mistake("scale missing", "the scale 1/sqrt(d_k) is missing", "divide the scores by np.sqrt(d_k)",
            {"scale = 1 / np.sqrt(q.shape[-1])": "scale = 1.0"}),
    Mistake("scale 1/d_k", "the scores are divided by d_k instead of its root", "divide the scores by np.sqrt(d_k)",
            {"scale = 1 / np.sqrt(q.shape[-1])": "scale = 1 / q.shape[-1]"}),
    Mistake("scale 1/sqrt(D)", "the scores are divided by the root of the width of all heads together",
            "d_k is the width of one head",
            {"scale = 1 / np.sqrt(q.shape[-1])": "scale = 1 / np.sqrt(q.shape[-1] * (q.shape[1] if q.ndim == 4 else 1))"}),
    Mistake("scale 1/sqrt(T_k)", "the scores are divided by the root of the number of keys", "d_k is q.shape[-1]",
            {"scale = 1 / np.sqrt(q.shape[-1])": "scale = 1 / np.sqrt(k.shape[-2])",
             "scores(q, k[keys])": "scores(q, k[keys]) * np.sqrt(len(k[keys]) / T_k)"}),
    Mistake("scale times sqrt(d_k)", "the scores are multiplied by sqrt(d_k)", "divide the scores by np.sqrt(d_k)",
            {"scale = 1 / np.sqrt(q.shape[-1])": "scale = np.sqrt(q.shape[-1])"}),
    Mistake("scale after softmax", "the weights are scaled instead of the scores, so rows sum to 1/sqrt(d_k)",
            "divide by np.sqrt(d_k) before softmax",
            {"cap(scores(q, k), softcap)": "cap(scores(q, k) * np.sqrt(q.shape[-1]), softcap)",
             "softmax(capped, mask)": "softmax(capped, mask) / np.sqrt(q.shape[-1])"}),
    Mistake("k reshaped, not transposed", "k is reshaped to (d_k, T_k), not transposed", "k.swapaxes(-1, -2)",
            {"scale * q @ k.swapaxes(-1, -2)": "scale * q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])"}),
    Mistake("q and k swapped", "the scores are k q^T: rows are keys", "q @ k.swapaxes(-1, -2)",
            {"scale * q @ k.swapaxes(-1, -2)": "scale * k @ q.swapaxes(-1, -2)"}),
    Mistake("k and v swapped", "keys and values have changed places", "match with k, mix v",
            {"if q.ndim == 4:": "k, v = v, k\n    if q.ndim == 4:",
             "T_q, T_k = len(q), len(k)": "k, v = v, k\n    T_q, T_k = len(q), len(k)"}),
    Mistake("keys mixed instead of values", "the weights mix the keys instead of the values", "weights @ v",
            {"weights @ v)": "weights @ k)"}),
    Mistake("softcap ignored", "softcap is not used", "softcap * np.tanh(scores / softcap)",
            {"softcap * np.tanh(scores / softcap)": "scores"}),
    Mistake("softcap before the scale", "softcap bounds the scores before they are scaled", "scale, then softcap",
            {"cap(scores(q, k), softcap)": "cap(scores(q, k) * np.sqrt(q.shape[-1]), softcap) / np.sqrt(q.shape[-1])"}),
    Mistake("softcap after the mask",
            "softcap comes after the mask, so that a hidden score is -softcap instead of -inf", "softcap, then mask",
            {"cap(scores(q, k), softcap)": "cap(scores(q, k) if softcap is None else hide(scores(q, k), mask), softcap)",
             "softmax(capped, mask)": "softmax(capped, mask if softcap is None else None)"}),
    Mistake("softcap drops the mask", "the mask is not used where there is a softcap", "apply both: softcap, then mask",
            {"softmax(capped, mask)": "softmax(capped, mask if softcap is None else None)"}),
    Mistake("softcap without its factor", "the scores become tanh(scores / softcap): the factor softcap is missing",
            "softcap * np.tanh(scores / softcap)", {"softcap * np.tanh": "np.tanh"}),
    Mistake("softcap without its divisor",
            "the scores become softcap * tanh(scores): they are not divided by softcap first",
            "softcap * np.tanh(scores / softcap)", {"np.tanh(scores / softcap)": "np.tanh(scores)"}),
    Mistake("softcap by clipping", "the scores are clipped at softcap",
            "softcap * np.tanh(scores / softcap) bends smoothly",
            {"softcap * np.tanh(scores / softcap)": "np.clip(scores, -softcap, softcap)"}),
    Mistake("softmax over queries", "softmax runs over the queries: columns sum to 1, rows do not", "axis=-1",
            {"axis = -1": "axis = -2"}),
    Mistake("softmax over heads", "softmax runs over the heads", "axis=-1", {"axis = -1": "axis = 1"}),
    Mistake("softmax over the whole matrix", "softmax runs over the whole matrix", "axis=-1",
            {"axis = -1": "axis = (-2, -1)"}),
    Mistake("softmax left out", "the scores themselves mix the values: softmax is left out",
            "weights = softmax(scores)",
            {"softmax(capped, mask)": "capped if mask is None else np.where(mask, capped, 0.0)"}),
    Mistake("no maximum subtracted",
            "no maximum is subtracted, so that large scores overflow, and rows of very low ones become 0/0: both are NaN",
            "subtract each row's maximum",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = np.zeros_like(largest)",
             "before, largest = largest, np.maximum(largest, of_block.max(axis=-1, keepdims=True))": "before = largest = np.zeros((T_q, 1))"}),
    Mistake("no maximum subtracted, lost rows 0",
            "no maximum is subtracted, so that large scores overflow to NaN, and rows of very low ones sum to 0 and are taken for rows that see nothing",
            "subtract each row's maximum",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = np.zeros_like(largest)",
             "weights = powers / total": "weights = np.where(total == 0, 0.0, powers / total)"}),
    Mistake("maximum at least 0",
            "the search for the largest score begins at 0, so that rows far below it become 0/0, which is NaN",
            "begin with -inf, or with the row's first visible score",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = np.maximum(largest, 0.0)"}),
    Mistake("one maximum for all",
            "one maximum is subtracted for all rows, so that rows far below it become 0/0, which is NaN",
            "subtract each row's own maximum: axis=-1, keepdims=True",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = masked.max(keepdims=True)"}),
    Mistake("one maximum for all, lost rows 0",
            "one maximum is subtracted for all rows, so that rows far below it sum to 0 and are taken for rows that see nothing",
            "subtract each row's own maximum: axis=-1, keepdims=True",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = masked.max(keepdims=True)",
             "weights = powers / total": "weights = np.where(total == 0, 0.0, powers / total)"}),
    Mistake("maximum of hidden scores too",
            "the maximum that is subtracted counts hidden scores, so that rows far below it become 0/0",
            "mask first, then take the maximum",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = scores.max(axis=axis, keepdims=True)"}),
    Mistake("maximum of hidden scores too, lost rows 0",
            "the maximum that is subtracted counts hidden scores, so that rows far below it sum to 0 and are taken for rows that see nothing",
            "mask first, then take the maximum",
            {"sees_none = np.isneginf(largest)": "sees_none = np.isneginf(largest)\n    largest = scores.max(axis=axis, keepdims=True)",
             "weights = powers / total": "weights = np.where(total == 0, 0.0, powers / total)"}),
    Mistake("maximum of hidden scores too, no row left out",
            "the maximum that is subtracted counts hidden scores, so that rows far below it become 0/0, as rows that see nothing do",
            "mask first, then take the maximum; rows that see nothing are 0",
            {"sees_none = np.isneginf(largest)": "largest = scores.max(axis=axis, keepdims=True)\n    sees_none = np.zeros_like(largest, bool)"}),
    Mistake("powers times the mask",
            f"{POWERS_TIMES_MASK}, and a row that sees nothing is 0/0", "np.where(mask, scores, -np.inf) first, then subtract each row's maximum",
            {POWERS: NO_ROW_LEFT_OUT + TIMES_MASK}),
    Mistake("powers times the mask, lost rows 0",
            f"{POWERS_TIMES_MASK}, and rows of very low scores sum to 0 and are taken for rows that see nothing",
            "np.where(mask, scores, -np.inf) first, then subtract each row's maximum",
            {POWERS: NO_ROW_LEFT_OUT + TIMES_MASK,
             "weights = powers / total": "weights = np.where(total == 0, 0.0, powers / total)"}),
    Mistake("powers times the mask, but for rows that see nothing", POWERS_TIMES_MASK,
            "np.where(mask, scores, -np.inf) first, then subtract each row's maximum",
            {POWERS: TIMES_MASK, "weights = powers / total": "weights = np.where(sees_none, 0.0, powers / total)"}),
    Mistake("log-weights", "the weights are scores - lse: exp is left out, so they are logs", "np.exp(scores - lse)",
            {"return WeightsAndLse(weights,": "return WeightsAndLse(masked - lse,"}),
    Mistake("log of the weights", "the log of the weights is returned instead of the weights", "leave np.log to lse",
            {"return WeightsAndLse(weights,": "return WeightsAndLse(np.log(weights),"}),
    Mistake("normalised by the mean", "rows are divided by their mean instead of their sum",
            "divide by the row's sum",
            {"powers.sum(axis=axis, keepdims=True)": "powers.mean(axis=axis, keepdims=True)"}),
    Mistake("keepdims forgotten", "column j is divided by the sum of row j: the sum has lost its axis",
            "sum(axis=-1, keepdims=True)",
            {"weights = powers / total": "weights = powers / (total[..., 0] if scores.ndim == 2 else total)"}),
    Mistake("lse without the maximum", "lse lacks the maximum that was subtracted", "lse = largest + np.log(total)",
            {"largest + np.log(total)": "np.log(total)"}),
    Mistake("lse without the log", "lse has the sum itself where its log belongs", "lse = largest + np.log(total)",
            {"largest + np.log(total)": "largest + total"}),
    Mistake("lse: the maximum subtracted", "the maximum is subtracted from lse, not added",
            "lse = largest + np.log(total)", {"largest + np.log(total)": "np.log(total) - largest"}),
    Mistake("lse: the maximum alone", "lse is the largest score alone", "lse = largest + np.log(total)",
            {"largest + np.log(total)": "largest"}),
    Mistake("lse of hidden scores too", "lse counts the hidden scores too", "take the sum after the mask",
            {"lse = np.where(sees_none, -np.inf, largest + np.log(total))":
             "top = scores.max(axis=axis, keepdims=True)\n    lse = top + np.log(np.exp(scores - top).sum(axis=axis, keepdims=True))"}),
    Mistake("lse 0 in a row that sees nothing", "lse is 0 in a row that sees nothing, as if one key had the score 0",
            "log(0) = -np.inf", {"sees_none, -np.inf, largest": "sees_none, 0.0, largest"}),
    Mistake("lse NaN in a row that sees nothing", "lse is NaN in a row that sees nothing",
            "log(0) = -np.inf, without -inf - -inf on the way",
            {"sees_none, -np.inf, largest": "sees_none, np.nan, largest"}),
    Mistake("lse keeps the axis of the keys", "lse is (..., T_q, 1): the axis of the keys is still there",
            "lse[..., 0]", {"lse[..., 0]": "lse"}),
    Mistake("weights transposed in the mix", "the weights are transposed before they mix the values", "weights @ v",
            {"weights @ v)": "weights.swapaxes(-1, -2) @ v)"}),
    Mistake("weights averaged over the heads", "all heads mix with the mean of their weights",
            "each head mixes with its own weights",
            {"return Attended(weights": "weights = weights.mean(axis=-3, keepdims=True) + np.zeros_like(weights)\n    return Attended(weights"}),
    Mistake("groups tiled, not repeated", "key/value heads are tiled: query head h reads h % H_kv",
            "query head h reads h // G: np.repeat",
            {"np.repeat(x, num_heads // H_kv, axis=1)": "np.tile(x, (1, num_heads // H_kv, 1, 1))"}),
    Mistake("first key/value head for all", "every query head reads key/value head 0", "query head h reads h // G",
            {"np.repeat(x, num_heads // H_kv, axis=1)": "np.repeat(x[:, :1], num_heads, axis=1)"}),
    Mistake("key/value heads averaged", "every query head reads the mean of all key/value heads",
            "query head h reads h // G",
            {"np.repeat(x, num_heads // H_kv, axis=1)": "np.repeat(x.mean(axis=1, keepdims=True), num_heads, axis=1)"}),
]
# fmt: on
