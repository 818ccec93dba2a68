"""The arguments and results of an attention kernel."""

from types import ModuleType
from typing import Any

import numpy as np

from mha_numpy.backends import KERNELS, find_kernels
from mha_numpy.core.masks import only_visible
from mha_numpy.core.merge import merge_steps
from mha_numpy.core.options import AttentionInputs
from mha_numpy.core.shapes import sum_to_shape
from mha_numpy.dtypes import LARGEST, Array

# of a window without limit: beyond every distance, for positions reach to LARGEST themselves
OPEN = 2 * LARGEST

# by rank: put in the axes that rank 4 has more, take them out again
ADD_AXES: dict[int, tuple[slice | None, ...]] = {2: (None, None), 3: (slice(None), None)}
DROP_AXES: dict[int, tuple[slice | int, ...]] = {2: (0, 0), 3: (slice(None), 0)}


def find_attention_kernels(inputs: AttentionInputs, backend: str) -> ModuleType | None:
    """Return the backend's kernels, or None if the equations compute."""
    if not inputs.in_kernels:
        return None
    return find_kernels(KERNELS, inputs.q, inputs.k, inputs.v, backend=backend)


def kernel_forward(kernels: ModuleType, inputs: AttentionInputs) -> tuple[Array, Array]:
    """Let a kernel compute steps 1 to 6: heads and lse."""
    heads, lse = kernels.attention_forward(*_kernel_inputs(inputs))
    if heads.ndim > 4:  # of several parts of the keys, where few queries see many
        heads, lse, _ = merge_steps(heads, lse)
    rank = inputs.q.ndim
    if rank < 4:
        heads, lse = heads[DROP_AXES[rank]], lse[DROP_AXES[rank]]
    # backward reads them, and without a head gate they are the output
    heads.setflags(write=False)
    return heads, lse


def kernel_backward(
    kernels: ModuleType,
    d_heads: Array,
    d_lse: Array | None,
    heads: Array,
    lse: Array,
    inputs: AttentionInputs,
) -> dict[str, Array | None]:
    """Let a kernel pull back through steps 6 to 1, to the inputs and options, by name."""
    rank, bias = inputs.q.ndim, inputs.bias
    d_heads = d_heads.astype(heads.dtype, copy=False)
    d_lse = np.zeros_like(lse) if d_lse is None else d_lse.astype(lse.dtype, copy=False)
    of_rows: tuple[Array, ...] = (d_heads, d_lse, heads, lse)
    if rank < 4:
        of_rows = tuple(x[ADD_AXES[rank]] for x in of_rows)
    d_inputs = kernels.attention_backward(*of_rows, *_kernel_inputs(inputs))
    if rank < 4:
        d_inputs = [x if x is None else x[DROP_AXES[rank]] for x in d_inputs]
    d_q, d_k, d_v, d_biased, row_mean = d_inputs
    d_bias = None if bias is None else sum_to_shape(d_biased, bias.shape)
    return {"d_q": d_q, "d_k": d_k, "d_v": d_v, "d_bias": d_bias, "row_mean": row_mean}


def kernel_jvp(
    kernels: ModuleType, dots: dict[str, Any], heads: Array, lse: Array, inputs: AttentionInputs
) -> tuple[Array, Array]:
    """Let a kernel push tangents through steps 1 to 6: heads_dot and lse_dot."""
    rank, sink_dot = inputs.q.ndim, dots["sink"]
    of_rank_4 = [
        None if dots[name] is None else _of_rank_4(dots[name].astype(heads.dtype, copy=False), rank)
        for name in ("q", "k", "v", "bias")
    ]
    if sink_dot is not None:
        sink_dot = np.atleast_2d(sink_dot.astype(heads.dtype, copy=False))  # (B or 1, H)
    of_rows: tuple[Array, ...] = (heads, lse)
    if rank < 4:
        of_rows = tuple(x[ADD_AXES[rank]] for x in of_rows)
    heads_dot, lse_dot = kernels.attention_jvp(
        *of_rank_4, sink_dot, *of_rows, *_kernel_inputs(inputs)
    )
    if rank < 4:
        heads_dot, lse_dot = heads_dot[DROP_AXES[rank]], lse_dot[DROP_AXES[rank]]
    if inputs.sink is not None and not np.isfinite(lse_dot).all():
        # a row that sees its sink alone stands still, and the kernel's 0 * lse_dot is NaN
        visible = True if inputs.visible is None else inputs.visible
        cells = np.broadcast_to(visible, inputs.cells_shape)
        sees_any = np.any(cells, axis=-1, keepdims=True)
        heads_dot = only_visible(heads_dot, sees_any)
    return heads_dot, lse_dot


def _kernel_inputs(inputs: AttentionInputs) -> tuple[Any, ...]:
    """Return every kernel's arguments, in order: axes that may be 1, limits on both sides."""
    cells = inputs.mask, inputs.bias, inputs.dropout_mask
    arrays: tuple[Array | None, ...] = (inputs.q, inputs.k, inputs.v, *cells)
    rank, sink, offsets = inputs.q.ndim, inputs.sink, inputs.q_offset
    if rank < 4 or not cells[0] is cells[1] is cells[2] is None:
        arrays = tuple(x if x is None else _of_rank_4(x, rank) for x in arrays)
    sink = sink if sink is None or sink.ndim == 2 else sink[None]  # (B or 1, H)
    offsets = offsets if offsets.ndim else offsets[None]  # (B or 1,)
    left, right = inputs.window or (None, None)
    left, right = OPEN if left is None else left, OPEN if right is None else right
    return (*arrays, sink, offsets, left, right, inputs.scale, inputs.softcap)


def _of_rank_4(x: Array, rank: int) -> Array:
    """Return an input with as many axes of length 1 as it lacks, where q has this rank."""
    if x.ndim < rank:
        x = x[(None,) * (rank - x.ndim)]
    return x[ADD_AXES[rank]] if rank < 4 else x
