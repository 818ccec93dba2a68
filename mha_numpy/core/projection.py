"""Between tokens and heads: project and split, merge and project; forward and backward."""

from typing import NamedTuple

from mha_numpy.core.linear import LinearCache, LinearGrads, linear_backward, linear_forward
from mha_numpy.core.shapes import merge_heads, split_heads
from mha_numpy.core.steps import step
from mha_numpy.dtypes import Array


class Projection(NamedTuple):
    """The names of one projection's steps and axes."""

    name: str  # of the heads
    x: str  # of the input
    letter: str  # of the params: w_<letter>, b_<letter>
    tokens: str
    inputs: str  # width of the input
    heads: str
    width: str  # of a head


QUERY = Projection("q", "x_q", "q", "T_q", "D", "H", "d_k")
KEY = Projection("k", "x_k", "k", "T_k", "kdim", "H_kv", "d_k")
VALUE = Projection("v", "x_v", "v", "T_k", "vdim", "H_kv", "d_v")
# when decoding, keys and values of the new tokens alone
NEW_KEY = Projection("k_new", "x_q", "k", "T_q", "D", "H_kv", "d_k")
NEW_VALUE = Projection("v_new", "x_q", "v", "T_q", "D", "H_kv", "d_v")


def project_heads_forward(
    projection: Projection, x: Array, w: Array, b: Array | None, num_heads: int, backend: str
) -> tuple[Array, LinearCache]:
    """Project and split: (B, T, D) -> (B, T, H*d) -> (B, T, H, d) -> (B, H, T, d).

    One wide product does what H narrow ones would do: block h of w's columns belongs to head h.
    """
    name, x_name, letter, T, _, H, d = projection
    # 1. project
    projected, cache = linear_forward(x, w, b, backend=backend)
    step(f"{name}_projected", projected, f"B {T} {H}*{d}", f"{x_name} @ w_{letter} + b_{letter}")
    # 2. split; by_token is heads as they were before the head axis moved, a view
    heads = split_heads(projected, num_heads)
    by_token = heads.swapaxes(1, 2)
    reshaped = f"{name}_projected.reshape(B, {T}, {H}, {d})"
    step(f"{name}_by_token", by_token, f"B {T} {H} {d}", reshaped)
    step(name, heads, f"B {H} {T} {d}", f"{name}_by_token.transpose(0, 2, 1, 3)")
    return heads, cache


def project_heads_backward(
    projection: Projection, d_heads: Array, cache: LinearCache
) -> LinearGrads:
    """Merge and pull back through the projection: the gradients of x, w and b."""
    name, x_name, letter, T, D, H, d = projection
    # 2. heads = split_heads(projected)
    transposed = f"d_{name}.transpose(0, 2, 1, 3)"
    step(f"d_{name}_by_token", d_heads.swapaxes(1, 2), f"B {T} {H} {d}", transposed)
    d_projected = merge_heads(d_heads)
    reshaped = f"d_{name}_by_token.reshape(B, {T}, {H}*{d})"
    step(f"d_{name}_projected", d_projected, f"B {T} {H}*{d}", reshaped)
    # 1. projected = x @ w + b
    grads = linear_backward(d_projected, cache)
    product = f"{x_name}.T @ d_{name}_projected, summed over B and {T}"
    step(f"d_w_{letter}", grads.d_w, f"{D} {H}*{d}", product)
    if grads.d_b is not None:
        step(f"d_b_{letter}", grads.d_b, f"{H}*{d}", f"d_{name}_projected summed over B and {T}")
    step(f"d_{x_name}", grads.d_x, f"B {T} {D}", f"d_{name}_projected @ w_{letter}.T")
    return grads


def merge_project_forward(
    heads: Array, w_o: Array, b_o: Array | None, backend: str
) -> tuple[Array, LinearCache]:
    """Merge and project: (B, H, T, d) -> (B, T, H, d) -> (B, T, H*d) -> (B, T, D_out)."""
    # 1. merge
    step("heads_by_token", heads.swapaxes(1, 2), "B T_q H d_v", "heads.transpose(0, 2, 1, 3)")
    merged = merge_heads(heads)
    step("merged", merged, "B T_q H*d_v", "heads_by_token.reshape(B, T_q, H*d_v)")
    # 2. project
    out, cache = linear_forward(merged, w_o, b_o, backend=backend)
    step("out", out, "B T_q D_out", "merged @ w_o + b_o")
    return out, cache


def merge_project_backward(
    d_out: Array, cache: LinearCache, num_heads: int
) -> tuple[Array, Array, Array | None]:
    """Pull back through the output projection and split: the gradients of heads, w_o and b_o."""
    step("d_out", d_out, "B T_q D_out")
    # 2. out = merged @ w_o + b_o
    d_merged, d_w_o, d_b_o = linear_backward(d_out, cache)
    step("d_merged", d_merged, "B T_q H*d_v", "d_out @ w_o.T")
    step("d_w_o", d_w_o, "H*d_v D_out", "merged.T @ d_out, summed over B and T_q")
    if d_b_o is not None:
        step("d_b_o", d_b_o, "D_out", "d_out summed over B and T_q")
    # 1. merged = merge_heads(heads)
    d_heads = split_heads(d_merged, num_heads)
    by_token = d_heads.swapaxes(1, 2)
    step("d_heads_by_token", by_token, "B T_q H d_v", "d_merged.reshape(B, T_q, H, d_v)")
    step("d_heads", d_heads, "B H T_q d_v", "d_heads_by_token.transpose(0, 2, 1, 3)")
    return d_heads, d_w_o, d_b_o
