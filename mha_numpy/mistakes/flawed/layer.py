"""Multi-head attention: project, split, attend, merge, project, and back."""

from typing import NamedTuple

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.mistakes.flawed.backward import attention_backward, linear_backward
from mha_numpy.mistakes.flawed.forward import attend
from mha_numpy.mistakes.flawed.heads import merge_heads, split_heads
from mha_numpy.mistakes.flawed.made import RIGHT, Made, by_batch
from mha_numpy.mistakes.saved import Saved


def project(x: Array, letter: str, params: MultiHeadParams, made: Made = RIGHT) -> Array:
    """Return x @ w + b with the params of one letter: q, k, v or o."""
    w, b = getattr(params, f"w_{letter}"), getattr(params, f"b_{letter}")
    if f"w_{letter} transposed" in made:
        w = w.T
    if f"b_{letter} left out" in made or "all biases left out" in made:
        return x @ w
    return x @ w + b


def run_layer(
    y: Array,
    x: Array,
    params: MultiHeadParams,
    num_heads: int,
    mask: Array | None = None,
    made: Made = RIGHT,
) -> tuple[Array, Saved]:
    """Attend from y (B, T_q, D) to x (B, T_k, kdim): the output, and what backward needs."""
    if "source ignored" in made:
        x = y
    if "source alone" in made:
        y = x
    if "queries from the source" in made:
        y, x = x, y
    k_from = y if "keys from the queries' input" in made else x
    v_from = y if "values from the queries' input" in made else x
    q = project(y, "q", params, made)
    k = project(k_from, "q" if "keys by w_q" in made else "k", params, made)
    v = project(v_from, "k" if "values by w_k" in made else "v", params, made)

    q, k, v = (split_heads(part, num_heads, made) for part in (q, k, v))
    if "scale 1/sqrt(D) of the input" in made:
        q = q * np.sqrt(q.shape[-1] / y.shape[-1])
    weights, heads = attend(q, k, v, mask, made=made)
    if "heads left behind the tokens" in made:  # (B, T, H, d)
        merged = heads.reshape(*heads.shape[:2], -1)
    else:
        merged = merge_heads(heads, made)
    out = merged if "output projection left out" in made else project(merged, "o", params, made)
    return out, Saved(x, q, k, v, weights, merged)


def multi_head(
    x: Array, params: MultiHeadParams, num_heads: int, mask: Array, made: Made = RIGHT
) -> Array:
    """Let the tokens of x (B, T, D) attend to one another, as the mask (T, T) lets them."""
    return run_layer(x, x, params, num_heads, mask, made)[0]


def cross_attention(
    y: Array, x: Array, params: MultiHeadParams, num_heads: int, made: Made = RIGHT
) -> Array:
    """Let the tokens of y (B, T_y, D) attend to those of x (B, T_x, kdim)."""
    return run_layer(y, x, params, num_heads, made=made)[0]


def input_gradient(
    d_q: Array, d_k: Array, d_v: Array, params: MultiHeadParams, made: Made = RIGHT
) -> Array:
    """Sum what comes back to x through the three maps that made q, k, v of it."""
    maps = {"q": params.w_q, "k": params.w_k, "v": params.w_v}
    if "w_k and w_v swapped in backward" in made:
        maps = {"q": params.w_q, "k": params.w_v, "v": params.w_k}
    if "w_q for all branches" in made:
        maps = dict.fromkeys(maps, params.w_q)
    if "d_x by w, not its transpose" not in made:
        maps = {letter: w.T for letter, w in maps.items()}
    branches = {
        letter: merge_heads(d, made) @ maps[letter]
        for letter, d in (("q", d_q), ("k", d_k), ("v", d_v))
    }
    for letter in "qkv":
        if f"branch of {letter} forgotten" in made:
            branches.pop(letter, None)
        if f"branch of {letter} alone" in made:
            branches = {letter: branches.get(letter, np.zeros(()))}
    d_x = np.sum(list(branches.values()), axis=0)
    return d_x / 3 if "mean of the branches" in made else d_x


class SelfGrads(NamedTuple):
    """Gradients of multi-head self-attention."""

    d_x: Array
    d_params: MultiHeadParams


def multi_head_backward(
    d_out: Array, params: MultiHeadParams, saved: Saved, made: Made = RIGHT
) -> SelfGrads:
    """Pull back through multi-head self-attention."""
    d_out, made = by_batch(d_out, made)
    d_merged, d_w_o, d_b_o = linear_backward(d_out, saved.merged, params.w_o, made)
    if "output projection skipped in backward" in made:
        d_merged = d_out
    if "d_w_o from the output" in made:
        out = project(saved.merged, "o", params)
        d_w_o = linear_backward(d_out, out, params.w_o, made).d_w
    d_heads = split_heads(d_merged, saved.q.shape[1], made)
    d_q, d_k, d_v = attention_backward(d_heads, *saved[1:5], made)
    d_x = input_gradient(d_q, d_k, d_v, params, made)
    if "params of k from d_q" in made:
        d_k = d_q
    (_, d_w_q, d_b_q), (_, d_w_k, d_b_k), (_, d_w_v, d_b_v) = (
        linear_backward(merge_heads(d, made), saved.x, w, made)
        for d, w in ((d_q, params.w_q), (d_k, params.w_k), (d_v, params.w_v))
    )
    return SelfGrads(d_x, MultiHeadParams(d_w_q, d_b_q, d_w_k, d_b_k, d_w_v, d_b_v, d_w_o, d_b_o))
