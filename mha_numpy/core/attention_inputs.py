"""What attention accepts: each argument checked once, with the reason in one line."""

import math
from typing import Any

import numpy as np

from mha_numpy.backends import COVERED
from mha_numpy.checks import check_broadcast, check_flag, check_number, check_shape
from mha_numpy.core.attention_types import AXES, AttentionInputs
from mha_numpy.core.masks import Window, check_mask, check_offset, check_window
from mha_numpy.dtypes import Array, as_float_array, compute_dtype, result_dtype
from mha_numpy.errors import ConfigError, ShapeError

NO_OFFSET = np.array(0, np.int64)  # shared by all plain calls without one, so it is read-only
NO_OFFSET.flags.writeable = False


def check_attention_inputs(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    is_causal: Any = False,
    q_offset: Any = 0,
    window: Any = None,
    softcap: Any = None,
    scale: Any = None,
    dropout_mask: Any = None,
    head_gate: Any = None,
) -> AttentionInputs:
    """Check all arguments of `attention_forward`; raise the first error found."""
    if mask is bias is window is softcap is scale is dropout_mask is head_gate is None:
        plain = plain_inputs(q, k, v, is_causal, q_offset)
        if plain is not None:
            return plain
    q, k, v = as_float_array("q", q), as_float_array("k", k), as_float_array("v", v)
    _check_qkv(q, k, v)
    mask = _check_mask(mask, q, k)
    bias = _check_cells("bias", bias, q, k)
    dropout_mask = _check_cells("dropout_mask", dropout_mask, q, k)
    head_gate = _check_head_gate(head_gate, q)
    window = _check_band(window, is_causal)
    q_offset = check_offset(q_offset, q.shape[:1] if q.ndim > 2 else ())
    scale = _default_scale(q) if scale is None else check_number("scale", scale)

    arrays = (q, k, v, bias, dropout_mask, head_gate)
    dtype = result_dtype(*arrays)
    computed_in = compute_dtype(dtype)
    if softcap is not None:
        softcap = check_number("softcap", softcap, positive=True)
        limits = np.finfo(computed_in)
        least, largest = float(limits.smallest_subnormal), float(limits.max)
        if not least <= softcap <= largest:
            raise ConfigError(
                f"softcap: expected {least:.1e} to {largest:.1e}, as {dtype}; got {softcap}"
            )
    q, k, v, bias, dropout_mask, head_gate = [
        x if x is None else x.astype(computed_in, copy=False) for x in arrays
    ]
    return AttentionInputs(
        q=q, k=k, v=v, mask=mask, bias=bias, window=window, q_offset=q_offset, scale=scale,
        softcap=softcap, dropout_mask=dropout_mask, head_gate=head_gate, dtype=dtype,
    )  # fmt: skip


def plain_inputs(q: Any, k: Any, v: Any, is_causal: Any, q_offset: Any) -> AttentionInputs | None:
    """Return the inputs of a call without other options if nothing is wrong; else None.

    Everything at one look: on tiny arrays one check after the other takes as long as a kernel.
    """
    is_plain = (
        type(q) is type(k) is type(v) is np.ndarray
        and q.dtype == k.dtype == v.dtype
        and q.dtype in COVERED
        and _fit(q, k, v)
        and type(is_causal) is bool
        and type(q_offset) is int
    )
    if not is_plain:
        return None
    window = (None, 0) if is_causal else None
    offset = check_offset(q_offset) if q_offset else NO_OFFSET
    # by position, which takes half as long: no mask, bias, softcap, dropout_mask, head_gate
    return AttentionInputs(
        q, k, v, None, None, window, offset, _default_scale(q), None, None, None, q.dtype
    )


def _default_scale(q: Array) -> float:
    """Return 1 / sqrt(d_k); without a single feature every score is 0, whatever the scale."""
    return 1 / math.sqrt(q.shape[-1] or 1)


def _fit(q: Array, k: Array, v: Array) -> bool:
    """Return whether three arrays of rank 4 fit each other."""
    if not q.ndim == k.ndim == v.ndim == 4:
        return False
    (B, H, _, d_k), (B_k, H_kv, T_k, width) = q.shape, k.shape
    fits = v.shape[:3] == (B, H_kv, T_k) and B_k == B and d_k == width
    return fits and H_kv > 0 and H % H_kv == 0


def _check_qkv(q: Array, k: Array, v: Array) -> None:
    """Check that the shapes of the three fit each other."""
    if _fit(q, k, v):
        return
    # of another rank, or wrong: by the names of the axes
    if q.ndim not in AXES:
        raise ShapeError(
            f"q: expected (B, H, T_q, d_k), (B, T_q, d_k) or (T_q, d_k); got {q.shape}"
        )
    axes = AXES[q.ndim]
    sizes: dict[str, int] = {}
    check_shape("q", q, axes.q, sizes)
    check_shape("k", k, axes.k, sizes, to_match=f"q {q.shape}")
    if q.ndim == 4 and (sizes["H_kv"] == 0 or sizes["H"] % sizes["H_kv"]):
        advice = ""
        if k.shape[2] and q.shape[2] % k.shape[2] == 0:  # as the heads of JAX's and Keras' layout
            advice = "; if these are (B, T, H, d), write q.swapaxes(1, 2), and so for k and v"
        raise ShapeError(
            f"k: expected (B, H_kv, T_k, d_k) with H_kv dividing H={sizes['H']} to match "
            f"q {q.shape}; got {k.shape}{advice}"
        )
    check_shape("v", v, axes.v, sizes, to_match=f"q {q.shape} and k {k.shape}")


def _check_mask(mask: Any, q: Array, k: Array) -> Array | None:
    """Check a bool array that broadcasts to the scores."""
    if mask is None:
        return None
    return check_mask("mask", mask, (*q.shape[:-1], k.shape[-2]), AXES[q.ndim].cells)


def _check_cells(name: str, cells: Any, q: Array, k: Array) -> Array | None:
    """Check a float array that broadcasts to the scores."""
    if cells is None:
        return None
    cells = as_float_array(name, cells)
    check_broadcast(name, cells, (*q.shape[:-1], k.shape[-2]), AXES[q.ndim].cells)
    return cells


def _check_head_gate(head_gate: Any, q: Array) -> Array | None:
    """Check a multiplier for each head, or for each head of each sequence."""
    if head_gate is None:
        return None
    head_gate = as_float_array("head_gate", head_gate)
    if q.ndim < 4:
        raise ShapeError(
            "head_gate: expected q of rank 4, (B, H, T_q, d_k); a lower rank has no heads"
        )
    B, H, *_ = q.shape
    axes = "H" if head_gate.ndim == 1 else "B H"
    check_shape("head_gate", head_gate, axes, {"B": B, "H": H})
    return head_gate


def _check_band(window: Any, is_causal: Any) -> Window | None:
    """Combine window and causality: how far a query sees to either side; None without limits."""
    left, right = (None, None) if window is None else check_window(window)
    if check_flag("is_causal", is_causal):
        right = 0
    return None if left is None and right is None else (left, right)
