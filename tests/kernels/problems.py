"""Attention problems of chosen sizes, and arrays that lie in memory in every way."""

import numpy as np


def random_inputs(B, H, H_kv, T_q, T_k, d_k, d_v):
    """Return q, k, v by name; their floats are float32's."""
    rng = np.random.default_rng(3)
    shapes = {"q": (B, H, T_q, d_k), "k": (B, H_kv, T_k, d_k), "v": (B, H_kv, T_k, d_v)}
    return {
        name: rng.normal(size=shape).astype(np.float32).astype(np.float64)
        for name, shape in shapes.items()
    }


def array_options(B, H, T_q, T_k):
    """Return every option that is an array, of full size."""
    rng = np.random.default_rng(4)
    bias = rng.normal(size=(B, H, T_q, T_k)).astype(np.float32)
    bias[rng.random(bias.shape) < 0.2] = -np.inf
    return {
        "mask": rng.random(bias.shape) < 0.7,
        "bias": bias.astype(np.float64),
        "dropout_mask": (rng.random(bias.shape) < 0.75) * 1.5,
        "q_offset": rng.integers(-9, 9, size=B),
    }


# --- layouts: the same numbers, elsewhere -------------------------------------------------------


def unaligned(array):
    """Return a copy that begins at an odd address."""
    buffer = bytearray(array.nbytes + 1)
    copy = np.frombuffer(buffer, array.dtype, array.size, offset=1).reshape(array.shape)
    copy[...] = array
    return copy


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def backwards(array):
    every = (slice(None, None, -1),) * array.ndim
    return array[every].copy()[every]


def every_second(array):
    """Return a copy that uses every second number of its memory; between them are NaNs or 42."""
    wider = np.full((*array.shape, 2), np.nan if array.dtype.kind == "f" else 42, array.dtype)
    wider[..., 1] = array
    return wider[..., 1]


def heads_inside(array):
    """Return (..., H, T, d) that lies in memory as (..., T, H, d), as splitting heads leaves it."""
    if array.ndim < 3:
        return array.copy()
    return array.swapaxes(-3, -2).copy().swapaxes(-3, -2)


LAYOUTS = {
    "contiguous": np.copy,
    "Fortran": np.asfortranarray,
    "heads inside": heads_inside,
    "backwards": backwards,
    "every second": every_second,
    "read-only": read_only,
    "unaligned": unaligned,
}
