"""Between tokens and heads: project and split, merge and project; forward and backward."""

from typing import NamedTuple

from mha_numpy.core.linear import LinearCache, LinearGrads, linear_backward, linear_forward
from mha_numpy.core.shapes import merge_heads, split_heads
from mha_numpy.core.steps import constant, is_watched, step
from mha_numpy.dtypes import Array


class Projection(NamedTuple):
    """The names of one projection's steps and axes, as a recorder is shown them."""

    name: str  # of the projected array
    heads_name: str
    x: str  # of the input
    letter: str  # of the params: w_<letter>, b_<letter>
    tokens: str
    inputs: str  # width of the input
    heads: str
    width: str  # of a head

    @property
    def unrotated(self) -> "Projection":
        """The same, where RoPE turns the heads later."""
        return self._replace(heads_name=f"{self.heads_name}_unrotated")


QUERY = Projection("q", "q", "x_q", "q", "T_q", "D", "H", "d_k")
KEY = Projection("k", "k", "x_k", "k", "T_k", "kdim", "H_kv", "d_k")
VALUE = Projection("v", "v", "x_v", "v", "T_k", "vdim", "H_kv", "d_v")
# when decoding, keys and values of the new tokens alone
NEW_KEY = Projection("k_new", "k_new", "x_q", "k", "T_q", "D", "H_kv", "d_k")
NEW_VALUE = Projection("v_new", "v_new", "x_q", "v", "T_q", "D", "H_kv", "d_v")


def project_heads_forward(
    names: Projection, x: Array, w: Array, b: Array | None, num_heads: int, backend: str
) -> tuple[Array, LinearCache]:
    """Project and split: (B, T, D) -> (B, T, H*d) -> (B, T, H, d) -> (B, H, T, d).

    One wide product does what H narrow ones would do: block h of w's columns belongs to head h.
    """
    # 1. project
    projected, cache = linear_forward(x, w, b, backend=backend)
    # 2. split
    heads = split_heads(projected, num_heads)
    if is_watched():
        _record(names, w, b, projected, heads)
    return heads, cache


def project_heads_backward(names: Projection, d_heads: Array, cache: LinearCache) -> LinearGrads:
    """Merge and pull back through the projection: the gradients of x, w and b."""
    # 2. heads = split_heads(projected)
    d_projected = merge_heads(d_heads)
    # 1. projected = x @ w + b
    grads = linear_backward(d_projected, cache)
    if is_watched():
        _record_backward(names, d_heads, d_projected, grads)
    return grads


def merge_project_forward(
    heads: Array, w_o: Array, b_o: Array | None, backend: str, *, name: str = "heads"
) -> tuple[Array, LinearCache]:
    """Merge and project: (B, H, T, d) -> (B, T, H, d) -> (B, T, H*d) -> (B, T, D_out).

    `name` is what a recorder knows the heads by.
    """
    # 1. merge
    merged = merge_heads(heads)
    # 2. project
    out, cache = linear_forward(merged, w_o, b_o, backend=backend)
    if is_watched():
        _record_params("o", w_o, b_o, "H*d_v", "D_out")
        by_token = heads.swapaxes(1, 2)
        step(f"{name}_by_token", by_token, "B T_q H d_v", f"{name}.transpose(0, 2, 1, 3)")
        step("merged", merged, "B T_q H*d_v", f"{name}_by_token.reshape(B, T_q, H * d_v)")
        step("out", out, "B T_q D_out", "merged @ w_o" + (" + b_o" if b_o is not None else ""))
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
        step("d_out", d_out, "B T_q D_out")
        step("d_merged", d_merged, "B T_q H*d_v", "d_out @ w_o.T")
        rows, d_rows = "merged.reshape(B * T_q, H * d_v)", "d_out.reshape(B * T_q, D_out)"
        step("d_w_o", d_w_o, "H*d_v D_out", f"{rows}.T @ {d_rows}")
        if d_b_o is not None:
            step("d_b_o", d_b_o, "D_out", "d_out.sum(axis=(0, 1))")
        by_token = d_heads.swapaxes(1, 2)
        step(f"d_{name}_by_token", by_token, "B T_q H d_v", "d_merged.reshape(B, T_q, H, d_v)")
        step(f"d_{name}", d_heads, "B H T_q d_v", f"d_{name}_by_token.transpose(0, 2, 1, 3)")
    return d_heads, d_w_o, d_b_o


def _record_params(letter: str, w: Array, b: Array | None, inputs: str, outputs: str) -> None:
    """Record the params of a projection."""
    constant(f"w_{letter}", w, f"{inputs} {outputs}")
    if b is not None:
        constant(f"b_{letter}", b, outputs)


def _record(names: Projection, w: Array, b: Array | None, projected: Array, heads: Array) -> None:
    """Record a projection and the split into heads."""
    name, heads_name, x, letter, T, D, H, d = names
    _record_params(letter, w, b, D, f"{H}*{d}")
    product = f"{x} @ w_{letter}" + (f" + b_{letter}" if b is not None else "")
    step(f"{name}_projected", projected, f"B {T} {H}*{d}", product)
    by_token = heads.swapaxes(1, 2)  # the heads before their axis moved, a view
    reshaped = f"{name}_projected.reshape(B, {T}, {H}, {d})"
    step(f"{name}_by_token", by_token, f"B {T} {H} {d}", reshaped)
    step(heads_name, heads, f"B {H} {T} {d}", f"{name}_by_token.transpose(0, 2, 1, 3)")


def _record_backward(
    names: Projection, d_heads: Array, d_projected: Array, grads: LinearGrads
) -> None:
    """Record the merge of the heads' gradients and the way back through the projection."""
    name, heads_name, x, letter, T, D, H, d = names
    by_token = d_heads.swapaxes(1, 2)
    step(f"d_{name}_by_token", by_token, f"B {T} {H} {d}", f"d_{heads_name}.transpose(0, 2, 1, 3)")
    reshaped = f"d_{name}_by_token.reshape(B, {T}, {H} * {d})"
    step(f"d_{name}_projected", d_projected, f"B {T} {H}*{d}", reshaped)
    rows = f"{x}.reshape(B * {T}, {D}).T"
    d_rows = f"d_{name}_projected.reshape(B * {T}, {H} * {d})"
    step(f"d_w_{letter}", grads.d_w, f"{D} {H}*{d}", f"{rows} @ {d_rows}")
    if grads.d_b is not None:
        step(f"d_b_{letter}", grads.d_b, f"{H}*{d}", f"d_{name}_projected.sum(axis=(0, 1))")
    step(f"d_{x}", grads.d_x, f"B {T} {D}", f"d_{name}_projected @ w_{letter}.T")
