"""Compiling all kernels ahead of their first use."""

from collections.abc import Iterator

import numpy as np

from mha_numpy.kernels import linear_chunks, loops, matmul, one_pass, tiled
from mha_numpy.kernels.compile import NOTICE


def compile_all() -> Iterator[str]:
    """Compile every part that is not on disk yet, and yield its name when it is done."""
    NOTICE.stop()  # the user has asked for it
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        for kernel in tiled.KERNELS:
            tiled.compiled(kernel, dtype)
            yield f"numba, {dtype}: {kernel.__name__}"
        matmul.compiled(dtype)
        yield f"numba, {dtype}: multiply_strips"
        for kernel in one_pass.KERNELS:
            one_pass.compiled(kernel, dtype)
        yield f"numba, {dtype}: norms, activations, loss, Adam"
        for kernel in linear_chunks.KERNELS:
            linear_chunks.compiled(kernel, dtype)
            yield f"numba, {dtype}: {kernel.__name__}"
        for function in (loops.forward, loops.backward):
            loops.compiled(function, dtype)
        yield f"loops, {dtype}"
