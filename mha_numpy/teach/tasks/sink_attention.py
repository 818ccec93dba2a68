"""Attention with a learned sink."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Again, Arrays, Hints, Inputs, Law, Mistake, Reaction, Task, moved


class SinkAttended(NamedTuple):
    """The weights of the keys, and the mix of the values."""

    weights: Array  # (B, H, T_q, T_k)
    heads: Array  # (B, H, T_q, d_v)


def sink_attention(scores: Array, v: Array, sink: Array) -> SinkAttended:
    """Turn scores into weights next to a learned sink, and mix the values with them.

    Each head has a *sink*: one more score, which joins the softmax of every row of this head and
    has no value. Its weight is not returned, so rows of weights sum to less than 1::

        weights_j = exp(scores_j) / (exp(sink) + sum_l exp(scores_l))
        heads = weights @ v

    A hidden cell has the score -inf. A row that sees nothing leaves everything to the sink: its
    weights are 0. Scores and sinks may be in the thousands, above 0 or below, but nothing may
    become NaN.

    Parameters
    ----------
    scores : (B, H, T_q, T_k)
        Already scaled; -inf where hidden.
    v : (B, H, T_k, d_v)
    sink : (H,)

    Returns
    -------
    weights : (B, H, T_q, T_k)
    heads : (B, H, T_q, d_v)
    """
    beta = sink[:, None, None]
    largest = np.maximum(scores.max(axis=-1, keepdims=True), beta)
    powers = np.exp(scores - largest)
    total = powers.sum(axis=-1, keepdims=True) + np.exp(beta - largest)
    weights = powers / total
    return SinkAttended(weights, weights @ v)


def draw_sinks(rng: np.random.Generator) -> list[Inputs]:
    """Draw scores, values and sinks: all sizes different, all equal, large ones, one key, no mask.

    In the first three, row 0 of the first head sees nothing.
    """
    probes = []
    for B, H, T_q, T_k, d_v in ((2, 3, 5, 4, 6), (3, 3, 3, 3, 3), (2, 4, 3, 5, 2), (4, 2, 3, 1, 5)):
        scores = rng.normal(size=(B, H, T_q, T_k))
        scores = np.where(rng.random(scores.shape) < 0.3, -np.inf, scores)
        scores[:, :, :, 0] = rng.normal(size=(B, H, T_q))
        scores[0, 0, 0] = -np.inf
        v, sink = rng.normal(size=(B, H, T_k, d_v)), rng.normal(size=H)
        probes.append({"scores": scores, "v": v, "sink": sink})
    large = probes[2]  # one row far above its sink, one far below it, and a tie in the thousands
    large["sink"] = np.array([0.5, 2000.0, -2000.0, 1500.0])
    large["scores"][0, 0, 1, 0], large["scores"][1, 1, 2] = 2500.0, -2500.0
    large["scores"][0, 2, 0] = -np.inf  # only the low sink is left
    large["scores"][1, 2, 0, 0], large["scores"][0, 3, 1, :2] = -2000.0, 1501.0
    scores, v = rng.normal(size=(1, 2, 6, 3)), rng.normal(size=(1, 2, 3, 4))
    return [*probes, {"scores": scores, "v": v, "sink": 2 * rng.normal(size=2)}]


def _share_of_the_sink(inputs: Inputs, arrays: Arrays) -> Array:
    """Return where rows of weights sum to more than 1."""
    return np.maximum(arrays["weights"].sum(axis=-1) - 1, 0)


def _raise_a_sink(inputs: Inputs) -> Inputs:
    return moved("sink", 0)(inputs)


def _sink_far_below(inputs: Inputs) -> Inputs:
    """Lower the first head's sink, so that e^sink is 0 unless the sink itself is subtracted."""
    return {**inputs, "sink": np.append(-2000.0, inputs["sink"][1:])}


def _of_the_empty_row(_: Inputs, arrays: Arrays) -> Array:
    """Return the weights and the output of the row that sees nothing in the first probe."""
    return np.concatenate([arrays[name][0, 0, 0] for name in ("weights", "heads")])


LEFT_OUT = "the weights of each row sum to 1, so the sink takes nothing: it is left out, or it is added to every score, which changes no weight"
ROW_SUM = "powers.sum(axis=-1, keepdims=True) + np.exp(beta - largest)"

MISTAKES: list[Mistake | Again] = [
    Mistake("sink left out", LEFT_OUT, "add np.exp(sink - largest), once, to the sum of each row",
            {" + np.exp(beta - largest)": ""}),
    Mistake("sink left out, rows that see nothing made 0",
            "the weights of each row that sees something sum to 1: the sink is left out, or it is added to every score, which changes no weight",
            "add np.exp(sink - largest), once, to the sum of each row",
            {"total = powers.sum(axis=-1, keepdims=True) + np.exp(beta - largest)": "beta = np.where(np.isinf(scores.max(axis=-1, keepdims=True)), 0.0, -np.inf)\n    powers = np.exp(scores - np.maximum(scores.max(axis=-1, keepdims=True), beta))\n    total = powers.sum(axis=-1, keepdims=True) + np.exp(beta)"}),
    Mistake("1 added to the shifted sum", "1 is added to the sum of the powers after the maximum was subtracted, as if the sink were always the largest score",
            "np.exp(sink - largest)", {"np.exp(beta - largest)": "1.0"}),
    Mistake("sink counted once for each key", "the sink is added to the power of every key, so the sum of a row has it T_k times",
            "powers.sum(axis=-1, keepdims=True) + np.exp(sink - largest)",
            {ROW_SUM: "(powers + np.exp(beta - largest)).sum(axis=-1, keepdims=True)"}),
    Mistake("sink added without exp", "the sink itself is added to the sum of the powers, but it is a score",
            "np.exp(sink - largest)", {"np.exp(beta - largest)": "beta"}),
    Mistake("maximum not subtracted from the sink", "the largest score is subtracted from the keys' scores, but not from the sink",
            "np.exp(sink - largest)", {"np.exp(beta - largest)": "np.exp(beta)"}),
    Mistake("maximum without the sink",
            "the subtracted maximum leaves out the sink, so a row that sees nothing becomes -inf - -inf = NaN",
            "np.maximum(scores.max(axis=-1, keepdims=True), sink[:, None, None])",
            {"np.maximum(scores.max(axis=-1, keepdims=True), beta)": "scores.max(axis=-1, keepdims=True)"}),
    Mistake("maximum without the sink, 0 where nothing is seen",
            "the subtracted maximum leaves out the sink, and a row that sees nothing subtracts 0, so the power of a low sink becomes 0, and 0 / 0 is NaN",
            "np.maximum(scores.max(axis=-1, keepdims=True), sink[:, None, None])",
            {"np.maximum(scores.max(axis=-1, keepdims=True), beta)": "np.where(np.isinf(scores.max(axis=-1, keepdims=True)), 0.0, scores.max(axis=-1, keepdims=True))"}),
    Mistake("only the sink subtracted", "the sink is subtracted instead of the row's maximum, so scores far above it overflow",
            "np.maximum(scores.max(axis=-1, keepdims=True), sink[:, None, None])",
            {"np.maximum(scores.max(axis=-1, keepdims=True), beta)": "beta + np.zeros_like(scores[..., :1])"}),
    Mistake("sink fixed at 0", "every sink counts as 0: the sum of each row gets the power e^0",
            "np.exp(sink - largest)",
            {"beta = sink[:, None, None]": "beta = 0 * sink[:, None, None]"}),
    Mistake("sign of the sink", "the sink has the wrong sign: a larger sink takes less", "np.exp(sink - largest)",
            {"beta = sink[:, None, None]": "beta = -sink[:, None, None]"}),
    Mistake("first sink for all heads", "every head has the sink of head 0", "sink[:, None, None]",
            {"sink[:, None, None]": "sink[0]"}),
    Mistake("mean of the sinks for all heads", "every head has the mean of all sinks", "sink[:, None, None]",
            {"sink[:, None, None]": "sink.mean()"}),
    Mistake("sinks lined up with the queries", "sink h belongs to query h instead of head h, because one axis is missing",
            "sink[:, None, None]",
            {"sink[:, None, None]": "sink[:, None] if len(sink) == scores.shape[2] else sink[:, None, None]"}),
    Mistake("sinks lined up with the keys", "sink h is laid along the keys instead of the heads", "sink[:, None, None]",
            {ROW_SUM: "(powers.sum(axis=-1, keepdims=True) + np.exp((sink if len(sink) == scores.shape[3] else beta) - largest))"}),
    Mistake("sinks lined up with the sequences", "sink h belongs to sequence h instead of head h", "sink[:, None, None]",
            {"sink[:, None, None]": "sink[:, None, None, None] if len(sink) == len(scores) else sink[:, None, None]"}),
    Mistake("sink gates by itself", "softmax without the sink is multiplied by 1 / (1 + e^sink), which does not know how large the row's scores are",
            "the sink belongs in the sum of each row: 1 / (1 + np.exp(sink - lse))",
            {"weights = powers / total": "total = total - np.exp(beta - largest)\n    weights = powers / np.where(total == 0, 1, total) / (1 + np.exp(beta))"}),
    Mistake("sink's weight given to the first key", "the weight of the sink is added to key 0", "leave it out: the sink has no value",
            {"weights = powers / total": "weights = powers / total\n    weights[..., 0] += 1 - weights.sum(axis=-1)"}),
    Mistake("sink has the mean of the values", "the sink mixes in the mean of all values", "the sink has no value: weights @ v",
            {"weights @ v)": "weights @ v + (1 - weights.sum(axis=-1, keepdims=True)) * v.mean(axis=-2, keepdims=True))"}),
    Mistake("sink has a value of ones", "the sink mixes in a value of ones", "the sink has no value: weights @ v",
            {"weights @ v)": "weights @ v + (1 - weights.sum(axis=-1, keepdims=True)))"}),
    Mistake("heads without the sink", "the weights are right, but the heads are mixed as if there were no sink", "weights @ v",
            {"weights @ v)": "weights / np.where(weights.sum(axis=-1, keepdims=True) == 0, 1, weights.sum(axis=-1, keepdims=True)) @ v)"}),
    Mistake("sink kept among the weights", "the weights are (B, H, T_q, T_k + 1): the sink's column is still there",
            "drop it before you return: weights[..., :-1]",
            {"return SinkAttended(weights,": "return SinkAttended(np.append(weights, 1 - weights.sum(axis=-1, keepdims=True), axis=-1),"}),
    Again("no maximum subtracted", {"np.maximum(scores.max(axis=-1, keepdims=True), beta)": "0.0"}),
    Again("softmax over queries", {
        "np.maximum(scores.max(axis=-1, keepdims=True), beta)": "np.maximum(scores.max(axis=-2, keepdims=True), beta)",
        ROW_SUM: "powers.sum(axis=-2, keepdims=True) + np.exp(beta - largest)"}),
]  # fmt: skip

TASK = Task(
    sink_attention,
    place=262,
    difficulty=2,
    minutes=15,
    needs=("softmax",),
    hints=Hints(
        where="Write the row of scores with the sink as one more cell, and ask where this cell "
        'appears in the formula: notebook 30, "Repair 2: a window, and a score without a value"; '
        "docs/merging.md, A sink is a part without an output.",
        question="A row has the scores (0, 0), and its sink is 0. What are the two weights, and "
        "what do they sum to? What are they if the scores are (-inf, -inf), and what is then the "
        "largest number of the row?",
        mistake="maximum without the sink",
        fix="sink = sink[:, None, None]\n"
        "largest = np.maximum(scores.max(axis=-1, keepdims=True), sink)\n"
        "powers = np.exp(scores - largest)\n"
        "weights = powers / (powers.sum(axis=-1, keepdims=True) + np.exp(sink - largest))",
    ),
    returns="tuple[Array, Array]",
    draw=draw_sinks,
    laws=[Law("no row of weights sums to more than 1", _share_of_the_sink)],
    reactions=[
        Reaction(
            "changing the first head's sink changes no other head",
            _raise_a_sink,
            lambda _, arrays: arrays["weights"][:, 1:],
        ),
        Reaction(
            "a row that sees nothing stays 0 when its sink falls to -2000",
            _sink_far_below,
            _of_the_empty_row,
        ),
    ],
    mistakes=MISTAKES,
)
