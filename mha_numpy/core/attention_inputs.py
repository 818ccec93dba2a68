"""What attention accepts: each argument checked once, with the reason in one line."""

from typing import Any

import numpy as np

from mha_numpy.core.attention_types import LEADING_AXES, AttentionInputs
from mha_numpy.core.checks import check_number
from mha_numpy.core.dtypes import Array, as_float_array, compute_dtype, result_dtype
from mha_numpy.core.shapes import check_broadcast, check_shape
from mha_numpy.core.visibility import visible_cells
from mha_numpy.errors import BackendError, ConfigError, ShapeError, describe

BACKENDS = ("numpy",)


def check_attention_inputs(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any,
    bias: Any,
    is_causal: Any,
    q_offset: Any,
    window: Any,
    softcap: Any,
    scale: Any,
    dropout_mask: Any,
    head_gate: Any,
    backend: Any,
) -> AttentionInputs:
    """Check all arguments of `attention_forward`; raise the first error found."""
    if backend not in BACKENDS:
        raise BackendError(f"backend: expected one of {BACKENDS}; got {describe(backend)}")
    q, k, v = (as_float_array(name, x) for name, x in (("q", q), ("k", k), ("v", v)))
    sizes = _check_qkv(q, k, v)
    per_query = LEADING_AXES[q.ndim][0]
    axes = f"{per_query} T_q T_k"
    scores_shape = tuple(sizes[axis] for axis in axes.split())

    bias = _check_cells("bias", bias, scores_shape, axes)
    dropout_mask = _check_cells("dropout_mask", dropout_mask, scores_shape, axes)
    head_gate = _check_head_gate(head_gate, q.ndim, sizes)
    visible = visible_cells(
        scores_shape, axes,
        mask=mask, bias=bias, is_causal=is_causal, q_offset=q_offset, window=window,
    )  # fmt: skip
    if scale is None:
        # without a single feature every score is 0, whatever the scale
        scale = 1 / np.sqrt(max(sizes["d_k"], 1))
    scale = check_number("scale", scale)
    softcap = None if softcap is None else check_number("softcap", softcap, positive=True)

    arrays = (q, k, v, bias, dropout_mask, head_gate)
    dtype = result_dtype(*arrays)
    largest = float(np.finfo(compute_dtype(dtype)).max)
    if softcap is not None and softcap > largest:
        raise ConfigError(f"softcap: expected at most {largest:.1e}, as {dtype}; got {softcap}")
    q, k, v, bias, dropout_mask, head_gate = (
        x if x is None else x.astype(compute_dtype(dtype), copy=False) for x in arrays
    )
    return AttentionInputs(
        q=q, k=k, v=v, bias=bias, visible=visible, scale=scale, softcap=softcap,
        dropout_mask=dropout_mask, head_gate=head_gate, dtype=dtype,
    )  # fmt: skip


def _check_qkv(q: Array, k: Array, v: Array) -> dict[str, int]:
    """Return the sizes of all axes, or raise a ShapeError."""
    if q.ndim not in LEADING_AXES:
        raise ShapeError(
            f"q: expected (B, H, T_q, d_k), (B, T_q, d_k) or (T_q, d_k); got {q.shape}"
        )
    per_query, per_key = LEADING_AXES[q.ndim]
    sizes: dict[str, int] = {}
    check_shape("q", q, f"{per_query} T_q d_k", sizes)
    check_shape("k", k, f"{per_key} T_k d_k", sizes, to_match=f"q {q.shape}")
    if q.ndim == 4 and (sizes["H_kv"] == 0 or sizes["H"] % sizes["H_kv"]):
        raise ShapeError(
            f"k: expected (B, H_kv, T_k, d_k) with H_kv dividing H={sizes['H']} to match "
            f"q {q.shape}; got {k.shape}"
        )
    check_shape("v", v, f"{per_key} T_k d_v", sizes, to_match=f"q {q.shape} and k {k.shape}")
    return sizes


def _check_cells(name: str, cells: Any, scores_shape: tuple[int, ...], axes: str) -> Array | None:
    """Check a float array that broadcasts to the scores."""
    if cells is None:
        return None
    cells = as_float_array(name, cells)
    check_broadcast(name, cells, scores_shape, axes)
    return cells


def _check_head_gate(head_gate: Any, rank: int, sizes: dict[str, int]) -> Array | None:
    """Check a multiplier for each head, or for each head of each sequence."""
    if head_gate is None:
        return None
    head_gate = as_float_array("head_gate", head_gate)
    if rank < 4:
        raise ShapeError("head_gate: expected q of rank 4, (B, H, T_q, d_k); without it no heads")
    check_shape("head_gate", head_gate, "H" if head_gate.ndim == 1 else "B H", dict(sizes))
    return head_gate
