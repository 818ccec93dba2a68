"""From tokens to one head's queries, keys or values: project and split, forward and backward."""

from mha_numpy.core.dtypes import Array
from mha_numpy.core.linear import LinearCache, LinearGrads, linear_backward, linear_forward
from mha_numpy.core.shapes import merge_heads, split_heads
from mha_numpy.core.steps import step

# name: tokens, width of the input, heads, width of a head
AXES = {
    "q": ("T_q", "D", "H", "d_k"),
    "k": ("T_k", "kdim", "H_kv", "d_k"),
    "v": ("T_k", "vdim", "H_kv", "d_v"),
}


def project_heads_forward(
    name: str, x: Array, w: Array, b: Array | None, num_heads: int
) -> tuple[Array, LinearCache]:
    """Project and split: (B, T, D) -> (B, T, H*d) -> (B, T, H, d) -> (B, H, T, d).

    `name` is "q", "k" or "v", for the steps' sake. One wide product does what H narrow ones
    would do: block h of w's columns belongs to head h.
    """
    T, _, H, d = AXES[name]
    # 1. project
    projected, cache = linear_forward(x, w, b)
    step(f"{name}_projected", projected, f"B {T} {H}*{d}", f"x_{name} @ w_{name} + b_{name}")
    # 2. split
    heads = split_heads(projected, num_heads)
    by_token = heads.swapaxes(1, 2)  # the array that split_heads made on its way
    step(
        f"{name}_by_token",
        by_token,
        f"B {T} {H} {d}",
        f"{name}_projected.reshape(B, {T}, {H}, {d})",
    )
    step(name, heads, f"B {H} {T} {d}", f"{name}_by_token.transpose(0, 2, 1, 3)")
    return heads, cache


def project_heads_backward(name: str, d_heads: Array, cache: LinearCache) -> LinearGrads:
    """Merge and pull back through the projection: the gradients of x, w and b."""
    T, D, H, d = AXES[name]
    # 2. heads = split_heads(projected)
    d_projected = merge_heads(d_heads)
    step(
        f"d_{name}_by_token",
        d_heads.swapaxes(1, 2),
        f"B {T} {H} {d}",
        f"d_{name}.transpose(0, 2, 1, 3)",
    )
    step(
        f"d_{name}_projected",
        d_projected,
        f"B {T} {H}*{d}",
        f"d_{name}_by_token.reshape(B, {T}, {H}*{d})",
    )
    # 1. projected = x @ w + b
    grads = linear_backward(d_projected, cache)
    step(
        f"d_w_{name}",
        grads.d_w,
        f"{D} {H}*{d}",
        f"x_{name}.T @ d_{name}_projected, summed over B and {T}",
    )
    if grads.d_b is not None:
        step(f"d_b_{name}", grads.d_b, f"{H}*{d}", f"d_{name}_projected summed over B and {T}")
    step(f"d_x_{name}", grads.d_x, f"B {T} {D}", f"d_{name}_projected @ w_{name}.T")
    return grads
