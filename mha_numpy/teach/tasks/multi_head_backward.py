"""The whole layer's backward."""

from typing import NamedTuple

import numpy as np

from mha_numpy.core import multi_head_attention_forward
from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import causal_mask, draw_self
from mha_numpy.teach.saved import Saved
from mha_numpy.teach.task import Again, Hints, Inputs, Law, Mistake, Slope, Task
from mha_numpy.teach.tasks.attention_backward import through_attention
from mha_numpy.teach.tasks.input_gradient import input_gradient
from mha_numpy.teach.tasks.linear_backward import through_linear
from mha_numpy.teach.tasks.merge_heads import merge_heads
from mha_numpy.teach.tasks.multi_head import run_layer
from mha_numpy.teach.tasks.split_heads import split_heads


class SelfGrads(NamedTuple):
    """Gradients of multi-head self-attention."""

    d_x: Array
    d_params: MultiHeadParams


def multi_head_backward(d_out: Array, params: MultiHeadParams, saved: Saved) -> SelfGrads:
    """Return the gradients of self-attention's input and of all its params.

    Forward was::

        q = split_heads(x @ params.w_q + params.b_q)  # the same for k: w_k, b_k, and v: w_v, b_v
        weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))  # some cells hidden
        merged = merge_heads(weights @ v)
        out = merged @ params.w_o + params.b_o

    where split_heads is ``.reshape(B, T, H, d).transpose(0, 2, 1, 3)`` and merge_heads is
    its inverse. Softmax ran along the last axis. A hidden cell has weight 0, and in a row that sees
    nothing all weights are 0.

    Parameters
    ----------
    d_out : (B, T, D)
    params : MultiHeadParams
        w_q, w_k, w_v (D, H*d), w_o (H*d, D), b_q, b_k, b_v (H*d,), b_o (D,).
    saved : NamedTuple
        What forward kept: x (B, T, D); q, k, v (B, H, T, d); weights (B, H, T, T); merged
        (B, T, H*d).

    Returns
    -------
    d_x : (B, T, D)
    d_params : MultiHeadParams
        Each gradient in the place of its array: w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o. A plain
        tuple in this order will do.
    """
    d_merged, d_w_o, d_b_o = through_linear(d_out, saved.merged, params.w_o)
    d_heads = split_heads(d_merged, saved.q.shape[1])
    d_q, d_k, d_v = through_attention(d_heads, saved.q, saved.k, saved.v, saved.weights)
    d_x = input_gradient(d_q, d_k, d_v, params)
    _, d_w_q, d_b_q = through_linear(merge_heads(d_q), saved.x, params.w_q)
    _, d_w_k, d_b_k = through_linear(merge_heads(d_k), saved.x, params.w_k)
    _, d_w_v, d_b_v = through_linear(merge_heads(d_v), saved.x, params.w_v)
    return SelfGrads(d_x, MultiHeadParams(d_w_q, d_b_q, d_w_k, d_b_k, d_w_v, d_b_v, d_w_o, d_b_o))


def _draw_backward(rng: np.random.Generator) -> list[Inputs]:
    """Draw the inputs of the layer's backward; in the second, row 0 sees nothing."""
    probes = []
    several, square, _, alone = draw_self(rng, value_dim=4)
    for first, inputs in zip((0, 1, 0), (several, square, alone), strict=True):
        x, params, num_heads, _ = inputs.values()
        mask = causal_mask(x.shape[1], x.shape[1], first=first)
        out, saved = run_layer(x, x, params, num_heads, mask)
        probes.append({"d_out": rng.normal(size=out.shape), "params": params, "saved": saved})
    return probes


def _slope_of_layer(inputs: Inputs) -> Slope:
    saved = inputs["saved"]

    def forward(x: Array, params: MultiHeadParams) -> tuple[Array, object]:
        H, mask = saved.q.shape[1], saved.weights > 0
        return multi_head_attention_forward(x, params=params, num_heads=H, mask=mask)

    return Slope(forward, {"x": saved.x, "params": inputs["params"]}, inputs["d_out"])


MISTAKES: list[Mistake | Again] = [
    Mistake("d_w_o from the output", "d_w_o is computed from the layer's output instead of merged", "merged.T @ d_out",
            {"through_linear(d_out, saved.merged, params.w_o)":
             "through_linear(d_out, saved.merged, params.w_o)\n    d_w_o = through_linear(d_out, project_o(saved.merged, params), params.w_o).d_w"}),
    Mistake("output projection skipped in backward", "d_merged is d_out: the output projection is skipped",
            "d_out @ w_o.T", {"split_heads(d_merged,": "split_heads(d_out,"}),
    Mistake("params of k from d_q", "d_w_k and d_b_k are computed from d_q instead of d_k", "d_w_k from d_k",
            {"merge_heads(d_k), saved.x": "merge_heads(d_q), saved.x"}),
    Again("everything divided by B", {"d_merged, d_w_o, d_b_o = ": "d_out = d_out / len(d_out)\n    d_merged, d_w_o, d_b_o = "}),
]  # fmt: skip

TASK = Task(
    multi_head_backward,
    place=190,
    difficulty=5,
    minutes=60,
    needs=("multi-head", "attention-backward", "input-gradient"),
    hints=Hints(
        where="Write down forward's lines from last to first, and put the backward of each next "
        "to it: docs/multi-head.md, The whole way back; notebook 14, 'The whole way, step by "
        "step'.",
        question="Each of the four linear maps has a gradient for its w. What was the input of "
        "each map, x or something else? (One of the four read merged.) And from which array does "
        "each get its d_out?",
        mistake="d_w_o from the output",
        fix="d_merged, d_w_o, d_b_o = linear_backward(d_out, saved.merged, params.w_o); d_heads = "
        "split_heads(d_merged); d_q, d_k, d_v = attention_backward(d_heads, saved.q, saved.k, "
        "saved.v, saved.weights); d_x_q, d_w_q, d_b_q = linear_backward(merge_heads(d_q), "
        "saved.x, params.w_q)\n"
        "and the same for k and v; at the end:\n"
        "d_x = d_x_q + d_x_k + d_x_v",
    ),
    returns="tuple[Array, MultiHeadParams]",
    draw=_draw_backward,
    laws=[
        Law(
            "d_b_k is 0, because a bias of the keys adds one number to all scores of a row",
            lambda _, arrays: arrays["d_params.b_k"],
        )
    ],
    slope=_slope_of_layer,
    mistakes=MISTAKES,
)
