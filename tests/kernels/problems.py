"""Random attention problems of more than one tile, and arrays that lie in memory in every way."""

import numpy as np

from mha_numpy import attention_backward, attention_forward

LENGTHS = (1, 63, 64, 65, 130, 200, 300)
WIDTHS = (1, 15, 16, 17, 48, 64, 80)
MASKS = ("mask", "padding", "rows", "blocks")


def tiled_problem(seed):
    """Return (inputs to differentiate by, options) that reach every option sooner or later.

    All floats are float32's, so that one reference serves both dtypes.
    """
    rng = np.random.default_rng(seed)
    B, H_kv, G = [(1, 2, 1), (2, 1, 3), (1, 1, 5), (2, 3, 1), (1, 2, 3), (2, 1, 5)][seed % 6]
    T_q, T_k = (int(n) for n in rng.choice(LENGTHS, size=2))
    d_k, d_v = (int(n) for n in rng.choice(WIDTHS, size=2, replace=False))
    cells = (B, H_kv * G, T_q, T_k)

    def some(chance):
        return rng.random() < chance

    def broadcasting():
        kept = tuple(n if some(0.6) else 1 for n in cells)
        return kept[rng.integers(4) :] if some(0.3) else kept

    inputs = {
        "q": rng.normal(size=(*cells[:3], d_k)),
        "k": rng.normal(size=(B, H_kv, T_k, d_k)),
        "v": rng.normal(size=(B, H_kv, T_k, d_v)),
    }
    options = {}
    if some(0.4):
        inputs["bias"] = rng.normal(size=broadcasting())
        if some(0.5):
            inputs["bias"][rng.random(inputs["bias"].shape) < 0.3] = -np.inf
    if some(0.6):
        options["mask"] = random_mask(rng, cells, MASKS[rng.integers(4)], broadcasting())
    if some(0.4):
        options["is_causal"] = True
    if some(0.3):
        sides = [None, 0, 1, 20, 64, 100]
        options["window"] = tuple(sides[rng.integers(6)] for _ in range(2))
    if some(0.6):
        options["q_offset"] = (
            T_k - T_q if some(0.3) else rng.integers(-T_q - 5, T_k + 5, size=B if some(0.7) else ())
        )
    if some(0.3):
        options["softcap"] = float(rng.uniform(0.5, 4))
    if some(0.3):
        options["scale"] = float(rng.uniform(0.1, 0.5))
    if some(0.3):
        options["dropout_mask"] = (rng.random(broadcasting()) > 0.3) / 0.7
    wide = np.float64
    return [as_dtype(as_dtype(arrays, np.float32), wide) for arrays in (inputs, options)]


def random_mask(rng, cells, kind, broadcasting):
    """Return a mask with scattered cells, padded keys, rows that see nothing, or whole blocks."""
    B, H, T_q, T_k = cells
    if kind == "mask":
        return rng.random(broadcasting) < 0.7
    if kind == "padding":
        return (np.arange(T_k) < rng.integers(T_k + 1, size=(B, 1, 1, 1)))[:, :, :, :]
    mask = rng.random(cells) < 0.8
    if kind == "rows":
        mask[:, :, rng.random(T_q) < 0.3] = False
        return mask
    shown = rng.random((-(-T_q // 64), -(-T_k // 64))) < 0.5
    return mask & shown.repeat(64, axis=0)[:T_q].repeat(64, axis=1)[:, :T_k]


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


# --- running ------------------------------------------------------------------------------------


def as_dtype(arrays, dtype):
    """Return a dict with all its float arrays in this dtype."""
    return {
        name: value.astype(dtype) if is_array(value) and value.dtype.kind == "f" else value
        for name, value in arrays.items()
    }


def is_array(value):
    return isinstance(value, np.ndarray)


def results(inputs, options, backend, *, d_out=None, layout=None):
    """Return out, lse and the gradients by name; fail if an argument has changed.

    `layout` is a function that puts each array elsewhere in memory.
    """
    arguments = {
        name: layout(value) if layout and is_array(value) and value.ndim else value
        for name, value in (inputs | options).items()
    }
    before = {n: a.tobytes() for n, a in arguments.items() if is_array(a)}
    out, cache = attention_forward(**arguments, backend=backend)
    if d_out is None:
        d_out = np.random.default_rng(7).normal(size=out.shape).astype(np.float32)
    d_out = d_out.astype(out.dtype)
    if layout:
        d_out = layout(d_out)
    before["d_out"], arguments["d_out"] = d_out.tobytes(), d_out
    before["out"], arguments["out"] = out.tobytes(), out
    grads = attention_backward(d_out, cache)._asdict()
    for name, bytes_ in before.items():
        assert arguments[name].tobytes() == bytes_, f"{name} has changed"
    found = {"out": out, "lse": cache.lse, **grads}
    return {name: array for name, array in found.items() if array is not None}
