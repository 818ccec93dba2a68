"""Backends: who computes the equations; the one door to kernels."""

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np

from mha_numpy.checks import check_choice
from mha_numpy.core.attention_types import AttentionInputs
from mha_numpy.core.shapes import sum_to_shape
from mha_numpy.dtypes import LARGEST, Array
from mha_numpy.errors import BackendError
from mha_numpy.steps import is_watched

# where there are no loops to read, NumPy's line is as easy to read, and quicker than a loop
KERNELS = {"loops": "mha_numpy.kernels.loops", "numba": "mha_numpy.kernels.tiled"}  # attention
LINEAR_KERNELS = {"numba": "mha_numpy.kernels.matmul"}
ONE_PASS_KERNELS = {"numba": "mha_numpy.kernels.one_pass"}  # activations, norms, sums, loss, Adam
BACKENDS = ("numpy", *KERNELS)
COVERED = (np.dtype(np.float32), np.dtype(np.float64))

# of a window without limit: beyond every distance, for positions reach to LARGEST themselves
OPEN = 2 * LARGEST

# by rank: put in the axes that rank 4 has more, take them out again
ADD_AXES: dict[int, tuple[slice | None, ...]] = {2: (None, None), 3: (slice(None), None)}
DROP_AXES: dict[int, tuple[slice | int, ...]] = {2: (0, 0), 3: (slice(None), 0)}


def check_backend(backend: Any) -> str:
    """Return the name of a backend, or raise a ConfigError."""
    return check_choice("backend", backend, BACKENDS)


def find_kernels(modules: dict[str, str], backend: str, *arrays: Array | None) -> ModuleType | None:
    """Return the module that holds a backend's kernels, or None where the equations compute.

    The equations also compute what the kernels do not cover: dtypes other than float32 and float64
    (longdouble; complex in a gradient check), two dtypes at once, and empty axes; and whatever a
    recorder watches, for a kernel has no steps to show.
    """
    if backend not in modules or is_watched():
        return None
    given = [x for x in arrays if x is not None]
    dtype = given[0].dtype
    if dtype not in COVERED:
        return None
    for x in given:
        if x.dtype != dtype or x.size == 0:
            return None
    return _load(backend, modules[backend])


@functools.cache
def _load(backend: str, kernels: str) -> ModuleType:
    """Import a backend's kernels, and numba with them, at the first use."""
    try:
        return importlib.import_module(kernels)
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise BackendError(
            f"backend: {backend!r} needs numba, whose import failed: {reason}; "
            "pip install numba, or write backend='numpy'"
        ) from error


def kernel_forward(kernels: ModuleType, inputs: AttentionInputs) -> tuple[Array, Array]:
    """Let a kernel compute steps 1 to 6: heads and lse."""
    heads, lse = kernels.attention_forward(*_kernel_inputs(inputs))
    rank = inputs.q.ndim
    if rank < 4:
        heads, lse = heads[DROP_AXES[rank]], lse[DROP_AXES[rank]]
    # backward reads them, and without a head gate they are the output
    heads.setflags(write=False)
    return heads, lse


def kernel_backward(
    kernels: ModuleType, d_heads: Array, heads: Array, lse: Array, inputs: AttentionInputs
) -> tuple[Array, Array, Array, Array | None]:
    """Let a kernel pull back through steps 6 to 1: d_q, d_k, d_v, d_bias."""
    rank, bias = inputs.q.ndim, inputs.bias
    d_heads = d_heads.astype(heads.dtype, copy=False)
    if rank < 4:
        d_heads, heads, lse = (x[ADD_AXES[rank]] for x in (d_heads, heads, lse))
    d_inputs = kernels.attention_backward(d_heads, heads, lse, *_kernel_inputs(inputs))
    if rank < 4:
        d_inputs = [x if x is None else x[DROP_AXES[rank]] for x in d_inputs]
    d_q, d_k, d_v, d_biased = d_inputs
    return d_q, d_k, d_v, None if bias is None else sum_to_shape(d_biased, bias.shape)


def _kernel_inputs(inputs: AttentionInputs) -> tuple[Any, ...]:
    """Return what every kernel takes, in its order: arrays of rank 4, limits on both sides."""
    q, k, v, mask, bias, window, q_offset, scale, softcap, dropout_mask, *_ = inputs
    cells: tuple[Array | None, ...] = (mask, bias, dropout_mask)
    if not mask is bias is dropout_mask is None:
        cells = tuple(x if x is None else np.broadcast_to(x, inputs.cells_shape) for x in cells)
    arrays: tuple[Array | None, ...] = (q, k, v, *cells)
    rank = q.ndim
    if rank < 4:
        arrays = tuple(x if x is None else x[ADD_AXES[rank]] for x in arrays)
    B = len(q) if rank > 2 else 1
    offsets = q_offset if q_offset.ndim else q_offset.repeat(B)  # (B,)
    left, right = window or (None, None)
    left, right = OPEN if left is None else left, OPEN if right is None else right
    return (*arrays, offsets, left, right, scale, softcap)
