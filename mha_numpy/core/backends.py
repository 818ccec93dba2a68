"""Backends: who computes steps 1 to 6 of attention and large products; the one door to kernels."""

import functools
import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from mha_numpy.core.attention_types import AttentionInputs
from mha_numpy.core.shapes import broadcast_axes, sum_to_shape
from mha_numpy.core.steps import step
from mha_numpy.dtypes import LARGEST, Array
from mha_numpy.errors import BackendError, describe

KERNELS = {"loops": "mha_numpy.kernels.loops", "numba": "mha_numpy.kernels.tiled"}
MATMUL_KERNELS = {"numba": "mha_numpy.kernels.matmul"}
BACKENDS = ("numpy", *KERNELS)
COVERED = (np.dtype(np.float32), np.dtype(np.float64))

# by rank: put in the axes that rank 4 has more, take them out again
ADD_AXES: dict[int, tuple[slice | None, ...]] = {2: (None, None), 3: (slice(None), None)}
DROP_AXES: dict[int, tuple[slice | int, ...]] = {2: (0, 0), 3: (slice(None), 0)}


def check_backend(backend: Any) -> str:
    """Return the name of a backend, or raise a BackendError."""
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise BackendError(f"backend: expected one of {BACKENDS}; got {describe(backend)}")
    return backend


def find_kernels(backend: str, inputs: AttentionInputs) -> ModuleType | None:
    """Return the module that holds a backend's kernels, or None where the reference computes.

    The reference also computes what the kernels do not cover: dtypes other than float32 and
    float64 (longdouble; complex in a gradient check), and empty axes.
    """
    q, k, v = inputs.q, inputs.k, inputs.v
    if backend == "numpy" or q.dtype not in COVERED or not (q.size and k.size and v.size):
        return None
    return _load(backend, KERNELS[backend])


def matmul(a: Array, b: Array, backend: str) -> Array:
    """Return ``a @ b``: (..., K), (K, N) -> (..., N); by tiles where the backend has them.

    "loops" has none: NumPy's product is as easy to read, and quicker than a loop.
    """
    is_covered = a.dtype == b.dtype in COVERED and a.size and b.size
    if backend not in MATMUL_KERNELS or not is_covered:
        return a @ b
    product = _load(backend, MATMUL_KERNELS[backend]).matmul(a.reshape(-1, len(b)), b)
    return product.reshape(*a.shape[:-1], b.shape[1])


@functools.cache
def _load(backend: str, kernels: str) -> ModuleType:
    """Import a backend's kernels, and numba with them, at the first use."""
    try:
        return importlib.import_module(kernels)
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise BackendError(
            f"backend: {backend!r} needs numba, and its import says: {reason}; "
            "pip install numba, or write backend='numpy'"
        ) from error


def kernel_forward(kernels: ModuleType, inputs: AttentionInputs) -> tuple[Array, Array]:
    """Let a kernel compute steps 1 to 6: heads and lse."""
    heads, lse = kernels.attention_forward(*_kernel_arguments(inputs))
    rank, axes = inputs.q.ndim, inputs.axes
    if rank < 4:
        heads, lse = heads[DROP_AXES[rank]], lse[DROP_AXES[rank]]
    # backward reads them, and without a head gate they are the output
    heads.flags.writeable = False
    step("heads", heads, axes.heads, "attention(q, k, v)")
    return heads, lse


def kernel_backward(
    kernels: ModuleType, d_heads: Array, heads: Array, lse: Array, inputs: AttentionInputs
) -> tuple[Array, Array, Array, Array | None]:
    """Let a kernel pull back through steps 6 to 1: d_q, d_k, d_v, d_bias."""
    rank, axes, bias = inputs.q.ndim, inputs.axes, inputs.bias
    rows = [d_heads.astype(heads.dtype, copy=False), heads, lse]
    if rank < 4:
        rows = [x[ADD_AXES[rank]] for x in rows]
    d_inputs = kernels.attention_backward(*rows, *_kernel_arguments(inputs))
    if rank < 4:
        d_inputs = [x if x is None else x[DROP_AXES[rank]] for x in d_inputs]
    d_q, d_k, d_v, d_biased = d_inputs
    step("d_q", d_q, axes.q, "attention_backward(d_heads)")
    step("d_k", d_k, axes.k, "attention_backward(d_heads)")
    step("d_v", d_v, axes.v, "attention_backward(d_heads)")
    if bias is None:
        return d_q, d_k, d_v, None
    d_bias = sum_to_shape(d_biased, bias.shape)
    bias_axes = broadcast_axes(bias.shape, axes.cells, inputs.cells_shape)
    step("d_bias", d_bias, bias_axes, "attention_backward(d_heads)")
    return d_q, d_k, d_v, d_bias


def _kernel_arguments(inputs: AttentionInputs) -> Sequence[Any]:
    """Return what every kernel takes: arrays of rank 4, no side of the window unbounded."""
    q, k, v, mask, bias, window, q_offset, scale, softcap, dropout_mask, *_ = inputs
    if mask is not None:
        mask = np.broadcast_to(mask, inputs.cells_shape)
    if bias is not None:
        bias = np.broadcast_to(bias, inputs.cells_shape)
    if dropout_mask is not None:
        dropout_mask = np.broadcast_to(dropout_mask, inputs.cells_shape)
    if q.ndim < 4:
        added = ADD_AXES[q.ndim]
        q, k, v = q[added], k[added], v[added]
        mask, bias, dropout_mask = (
            x if x is None else x[added] for x in (mask, bias, dropout_mask)
        )
    # an open side is beyond every distance: positions reach to LARGEST themselves
    left, right = (2 * LARGEST if side is None else side for side in window or (None, None))
    offsets = q_offset if q_offset.ndim else q_offset.repeat(len(q))  # (B,)
    return q, k, v, mask, bias, dropout_mask, left, right, offsets, scale, softcap
