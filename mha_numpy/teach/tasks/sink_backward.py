"""Back to a learned sink."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Again, Arrays, Hints, Inputs, Law, Mistake, Slope, Task
from mha_numpy.teach.tasks.sink_attention import draw_sinks, sink_attention
from mha_numpy.teach.tasks.softmax_backward import find_row_sum, through_softmax


class SinkGrads(NamedTuple):
    """Gradients of the scores and of the sinks."""

    d_scores: Array  # (B, H, T_q, T_k)
    d_sink: Array  # (H,)


def sink_backward(d_weights: Array, weights: Array) -> SinkGrads:
    """Return the gradients of scores and sinks, from the gradient of the weights.

    Forward was, in each row of head h::

        weights_j = exp(scores_j) / (exp(sink_h) + sum_l exp(scores_l))

    so rows of weights sum to less than 1, and the rest went to the sink. The same sink joins every
    row of its head, in all sequences. A hidden cell has weight 0 and gradient 0. In a row that sees
    nothing all weights are 0.

    Parameters
    ----------
    d_weights : (B, H, T_q, T_k)
        Any numbers, in hidden cells too.
    weights : (B, H, T_q, T_k)
        As forward computed them.

    Returns
    -------
    d_scores : (B, H, T_q, T_k)
    d_sink : (H,)
    """
    row_sum = find_row_sum(d_weights, weights)
    d_scores = through_softmax(d_weights, weights, row_sum)
    of_sink = 1 - weights.sum(axis=-1)  # (B, H, T_q): the weight of the sink
    d_sink = -(of_sink * row_sum[..., 0]).sum(axis=(0, 2))
    return SinkGrads(d_scores, d_sink)


def _draw_with_sink(rng: np.random.Generator) -> list[Inputs]:
    """Draw weights with sinks of moderate size; row 0 of the first head sees nothing."""
    probes = []
    for inputs in draw_sinks(rng):
        scores, v, sink = inputs["scores"], inputs["v"], np.clip(inputs["sink"], -1, 1)
        weights = sink_attention(np.minimum(scores, 2), v, sink).weights
        probes.append({"d_weights": rng.normal(size=weights.shape), "weights": weights})
    return probes


def _slope(inputs: Inputs) -> Slope:
    """Differentiate the softmax of scores and sinks that have the given weights.

    They are only known up to a constant for each row, so the sinks are 0, and the gradient of each
    row's own sink is summed.
    """
    weights = inputs["weights"]
    is_seen = weights > 0
    rest = 1 - weights.sum(axis=-1, keepdims=True)
    scores = np.log(np.where(is_seen, weights, 1) / rest)

    def forward(scores: Array, sink: Array) -> Array:
        powers = np.where(is_seen, np.exp(scores), 0)
        return powers / (np.exp(sink)[:, None, None] + powers.sum(axis=-1, keepdims=True))

    at = {"scores": scores, "sink": np.zeros(weights.shape[1])}
    return Slope(forward, at, inputs["d_weights"])


def _sums(_: Inputs, arrays: Arrays) -> Array:
    return arrays["d_scores"].sum(axis=(0, 2, 3)) + arrays["d_sink"]


D_SINK = "-(of_sink * row_sum[..., 0]).sum(axis=(0, 2))"

MISTAKES: list[Mistake | Again] = [
    Mistake("sign of d_sink", "d_sink has the wrong sign", "-(sink's weight * row sum), because the sink has no value",
            {D_SINK: "(of_sink * row_sum[..., 0]).sum(axis=(0, 2))"}),
    Mistake("d_sink without the sink's weight", "d_sink sums the row sums: the factor, the weight of the sink, is missing",
            "1 - weights.sum(axis=-1) is the weight of the sink",
            {"(of_sink * row_sum[..., 0])": "row_sum[..., 0]"}),
    Mistake("d_sink with the keys' weight", "d_sink has the weight of all keys as its factor instead of the weight of the sink",
            "1 - weights.sum(axis=-1)", {"1 - weights.sum(axis=-1)": "weights.sum(axis=-1)"}),
    Mistake("d_sink from the sink's weight only", "d_sink sums the weights of the sink: the row sum of weights * d_weights is missing",
            "multiply by the row sum", {"(of_sink * row_sum[..., 0])": "of_sink"}),
    Mistake("d_sink as if the sink had a value", "the gradient of the sink's weight is taken as 1 instead of 0, as if the sink had a value",
            "append 0, not 1, to d_weights",
            {"row_sum = find_row_sum(d_weights, weights)": "row_sum = find_row_sum(d_weights, weights) + 1 - weights.sum(axis=-1, keepdims=True)",
             D_SINK: "(of_sink * (1 - row_sum[..., 0])).sum(axis=(0, 2))"}),
    Mistake("d_sink from the unweighted row sum", "the row sum in d_sink sums only d_weights, without the weights",
            "(weights * d_weights).sum(axis=-1)", {"row_sum[..., 0]": "d_weights.sum(axis=-1)"}),
    Mistake("d_sink of each sequence", "d_sink is (B, H): the sum over the batch is missing", "sum over every axis except that of the heads",
            {D_SINK: "-(of_sink * row_sum[..., 0]).sum(axis=2)"}),
    Mistake("d_sink of each query", "d_sink is (H, T_q): the sum over the queries is missing", "sum over every axis except that of the heads",
            {D_SINK: "-(of_sink * row_sum[..., 0]).sum(axis=0)"}),
    Mistake("d_sink not summed", "d_sink is (B, H, T_q): the same sink joins every row, so its gradients add up",
            "sum over every axis except that of the heads", {D_SINK: "-(of_sink * row_sum[..., 0])"}),
    Mistake("d_sink from the last sequence only", "d_sink is computed from the last sequence only", "sum over the batch",
            {D_SINK: "-(of_sink * row_sum[..., 0])[-1].sum(axis=-1)"}),
    Mistake("d_sink from the last row only", "d_sink is computed from the last query of the last sequence only, as if each row overwrote it", "d_sink[h] += ...",
            {D_SINK: "-(of_sink * row_sum[..., 0])[-1, :, -1]"}),
    Mistake("d_sink: mean over the batch", "d_sink is the mean over the batch instead of the sum", "sum over the batch",
            {D_SINK: "-(of_sink * row_sum[..., 0]).sum(axis=2).mean(axis=0)"}),
    Mistake("d_sink: mean over the queries", "d_sink is the mean over the queries instead of the sum", "sum over the queries",
            {D_SINK: "-(of_sink * row_sum[..., 0]).mean(axis=2).sum(axis=0)"}),
    Mistake("d_sink: mean", "d_sink is a mean over sequences and queries", "sum over them",
            {D_SINK: "-(of_sink * row_sum[..., 0]).mean(axis=(0, 2))"}),
    Mistake("d_sink summed over the heads", "d_sink is (B,): the sum is over the heads instead of the batch", "axis=(0, 2)",
            {D_SINK: "-(of_sink * row_sum[..., 0]).sum(axis=(1, 2))"}),
    Mistake("d_sink: product of sums", "the weights of the sink and the row sums are summed apart, and the sums are multiplied",
            "multiply first, then sum", {D_SINK: "-of_sink.sum(axis=(0, 2)) * row_sum[..., 0].sum(axis=(0, 2))"}),
    Mistake("d_sink 0", "d_sink is 0, as if the sink took no part in the softmax", "-(sink's weight * row sum), summed",
            {D_SINK: "0 * (of_sink * row_sum[..., 0]).sum(axis=(0, 2))"}),
    Mistake("d_scores as without a sink", "the row sum is divided by the weight of the keys, so rows of d_scores sum to 0, as they would without a sink",
            "weights * (d_weights - row_sum), although rows of weights sum to less than 1",
            {"through_softmax(d_weights, weights, row_sum)": "through_softmax(d_weights, weights, row_sum / np.where(weights.any(axis=-1, keepdims=True), weights.sum(axis=-1, keepdims=True), 1))"}),
]  # fmt: skip

TASK = Task(
    sink_backward,
    place=264,
    difficulty=3,
    minutes=20,
    needs=("softmax-backward", "sink-attention"),
    hints=Hints(
        where="The sink is one more cell of each row, and its weight is not used again: docs/merging.md, "
        "A sink is a part without an output; notebook 11 for softmax's backward.",
        question="Append the sink's weight to a row, and to the gradients of the weights the "
        "gradient of a weight that changes nothing. What is this gradient? What does softmax's "
        "backward give in the last cell, and how many rows share one sink?",
        mistake="d_sink without the sink's weight",
        fix="row_sum = (weights * d_weights).sum(axis=-1, keepdims=True)\n"
        "d_scores = weights * (d_weights - row_sum)\n"
        "d_sink = -((1 - weights.sum(axis=-1)) * row_sum[..., 0]).sum(axis=(0, 2))",
    ),
    returns="tuple[Array, Array]",
    draw=_draw_with_sink,
    laws=[
        Law(
            "d_sink and a head's d_scores sum to 0, because adding one number to all changes no weight",
            _sums,
        )
    ],
    slope=_slope,
    mistakes=MISTAKES,
)
