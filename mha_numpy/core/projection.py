"""Between tokens and heads: project and split, merge and project; forward and backward."""

from mha_numpy.core.linear import LinearCache, LinearGrads, linear_backward, linear_forward
from mha_numpy.core.recording import (
    Projection,
    record_merge,
    record_merge_backward,
    record_projection,
    record_projection_backward,
)
from mha_numpy.core.shapes import merge_heads, split_heads
from mha_numpy.dtypes import Array
from mha_numpy.steps import is_watched


def project_heads_forward(
    names: Projection, x: Array, w: Array, b: Array | None, num_heads: int
) -> tuple[Array, LinearCache]:
    """Project and split: (B, T, D) -> (B, T, H*d) -> (B, T, H, d) -> (B, H, T, d).

    One wide product does what H narrow ones would do: block h of w's columns belongs to head h.
    """
    # 1. project
    projected, cache = linear_forward(x, w, b)
    # 2. split
    heads = split_heads(projected, num_heads)
    if is_watched():
        record_projection(names, w, b, projected, heads)
    return heads, cache


def project_heads_backward(names: Projection, d_heads: Array, cache: LinearCache) -> LinearGrads:
    """Merge and pull back through the projection: the gradients of x, w and b."""
    # 2. heads = split_heads(projected)
    d_projected = merge_heads(d_heads)
    # 1. projected = x @ w + b
    grads = linear_backward(d_projected, cache)
    if is_watched():
        record_projection_backward(names, d_heads, d_projected, grads)
    return grads


def merge_project_forward(
    heads: Array, w_o: Array, b_o: Array | None, *, name: str = "heads"
) -> tuple[Array, LinearCache]:
    """Merge and project: (B, H, T, d) -> (B, T, H, d) -> (B, T, H*d) -> (B, T, D_out).

    `name` is what a recorder knows the heads by.
    """
    # 1. merge
    merged = merge_heads(heads)
    # 2. project
    out, cache = linear_forward(merged, w_o, b_o)
    if is_watched():
        record_merge(name, heads, merged, w_o, b_o, out)
    return out, cache


def merge_project_backward(
    d_out: Array, cache: LinearCache, num_heads: int, *, name: str = "heads"
) -> tuple[Array, Array, Array | None]:
    """Pull back through the output projection and split: the gradients of heads, w_o and b_o."""
    # 2. out = merged @ w_o + b_o
    d_merged, d_w_o, d_b_o = linear_backward(d_out, cache)
    # 1. merged = merge_heads(heads)
    d_heads = split_heads(d_merged, num_heads)
    if is_watched():
        record_merge_backward(name, d_out, d_merged, d_w_o, d_b_o, d_heads)
    return d_heads, d_w_o, d_b_o
