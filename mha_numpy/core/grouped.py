"""Products between H query heads and H_kv key/value heads, without a copy of the latter.

Query head h reads key/value head ``h // G``. Sharing is a broadcast in forward, and therefore a
sum over the group in backward: the two functions are each other's gradient.
"""

import numpy as np

from mha_numpy.dtypes import Array


def shared_matmul(a: Array, b: Array, visible: Array | None = None) -> Array:
    """Multiply each query head's `a` by its group's `b`: (B,H,m,n) @ (B,H_kv,n,p) -> (B,H,m,p).

    `visible` says which cells of `a` may attend; the hidden ones, which are 0, add nothing even
    where `b` contains NaN or inf.
    """
    if a.shape[:-2] == b.shape[:-2]:
        return matmul_visible(a, b, visible)
    num_kv_heads = b.shape[1]
    if visible is not None:
        visible = group_heads(np.broadcast_to(visible, a.shape), num_kv_heads)
    product = matmul_visible(group_heads(a, num_kv_heads), b[:, :, None], visible)
    return product.reshape(*a.shape[:-1], b.shape[-1])  # (B, H_kv, G, m, p) -> (B, H, m, p)


def summed_matmul(
    a: Array, b: Array, leading: tuple[int, ...], visible: Array | None = None
) -> Array:
    """Multiply head by head and add up each group: (B,H,m,n) @ (B,H,n,p) -> (B,H_kv,m,p).

    `leading` is the (B, H_kv) of the result; without heads it is () or (B,).
    """
    product = matmul_visible(a, b, visible)
    if product.shape[:-2] == leading:
        return product
    return group_heads(product, leading[1]).sum(axis=2)


def group_heads(x: Array, num_kv_heads: int) -> Array:
    """Split the head axis into groups of neighbours, a view: (B, H, ...) -> (B, H_kv, G, ...)."""
    B, H, *rest = x.shape
    return x.reshape(B, num_kv_heads, H // num_kv_heads, *rest)


@np.errstate(invalid="ignore")  # inf - inf: NaN says it, where somebody sees the cell
def matmul_visible(a: Array, b: Array, visible: Array | None) -> Array:
    """Return a @ b, where a hidden cell of `a` adds nothing, though 0 * NaN and 0 * inf are NaN."""
    if visible is None:
        return a @ b
    finite = np.asarray(np.isfinite(b).all(axis=-1))  # (..., n)
    if finite.all():
        return a @ b
    product = a @ np.where(finite[..., None], b, 0)
    visible = np.broadcast_to(visible, a.shape)
    for n in np.flatnonzero(~finite.all(axis=tuple(range(finite.ndim - 1)))):  # seldom many
        row = np.where(finite[..., n, None], 0, b[..., n, :])[..., None, :]  # (..., 1, p)
        share = np.zeros_like(product)
        np.multiply(a[..., n, None], row, out=share, where=visible[..., n, None])
        product = product + share
    return product
