"""Random attention problems that reach every option, and every pair of them sooner or later."""

import numpy as np

from mha_numpy import attention_backward, attention_forward, attention_jvp

SEEDS = range(240)
# of problems of many tiles
LENGTHS, WIDTHS = (1, 63, 64, 65, 130, 200, 300), (1, 15, 16, 17, 48, 64, 80)
WINDOWS = [(1, 0), (2, 1), (None, 2), (0, None), (3, 3)]
WIDE_WINDOWS = [(20, 0), (64, 1), (None, 100), (0, None), (63, 64)]


def attention_configuration(seed, *, many_tiles=False):
    """Return (inputs to differentiate by, options) of one random problem.

    Sizes are 1 to 6, or with `many_tiles` those at which tiles begin and end.
    """
    rng = np.random.default_rng(seed)
    rank = 4 if many_tiles else (4, 4, 4, 3, 2)[seed % 5]
    B, H_kv, G = rng.integers(1, 3), rng.integers(1, 4), rng.integers(1, 4)
    if seed % 7 == 0:
        H_kv = 1  # multi-query
    elif seed % 7 == 1:
        G = 1  # multi-head
    if many_tiles:
        T_q, T_k, d_k, d_v = map(int, [*rng.choice(LENGTHS, 2), *rng.choice(WIDTHS, 2)])
    else:
        T_q, T_k, d_k, d_v = (int(n) for n in rng.choice([1, 2, 3, 4, 5, 6], size=4))
    query = {4: (B, H_kv * G), 3: (B,), 2: ()}[rank]
    key = {4: (B, H_kv), 3: (B,), 2: ()}[rank]
    cells = (*query, T_q, T_k)
    spread = 1.0 if many_tiles else (1.0, 3.0)[rng.integers(2)]

    def some(chance):
        return rng.random() < chance

    def broadcasting(shape):
        kept = tuple(n if rng.random() < 0.6 else 1 for n in shape)
        return kept[rng.integers(len(shape)) :] if some(0.3) else kept

    inputs = {
        "q": spread * rng.normal(size=(*query, T_q, d_k)),
        "k": rng.normal(size=(*key, T_k, d_k)),
        "v": rng.normal(size=(*key, T_k, d_v)),
    }
    options = {}
    if some(0.5):
        inputs["bias"] = rng.normal(size=broadcasting(cells))
        if some(0.3):
            inputs["bias"][rng.random(inputs["bias"].shape) < 0.2] = -np.inf
    if rank == 4 and not many_tiles and some(0.5):
        inputs["head_gate"] = rng.normal(size=query if some(0.5) else query[1:])
    if some(0.5):
        options["mask"] = rng.random(broadcasting(cells)) < 0.7
        if many_tiles and some(0.5):  # whole blocks are hidden
            shown = rng.random((-(-T_q // 64), -(-T_k // 64))) < 0.5
            shown = shown.repeat(64, axis=0)[:T_q].repeat(64, axis=1)[:, :T_k]
            options["mask"] = options["mask"] & shown
        if some(0.4):
            options["mask"] = np.broadcast_to(options["mask"], cells).copy()
            options["mask"][..., rng.integers(T_q), :] = False  # a row that sees nothing
    if some(0.5):
        options["is_causal"] = True
    if some(0.4):
        options["window"] = (WIDE_WINDOWS if many_tiles else WINDOWS)[rng.integers(5)]
    if some(0.5):
        offsets = (-T_q - 5, T_k + 5) if many_tiles else (-2, 5)
        options["q_offset"] = int(rng.integers(*offsets))
        if rank > 2 and some(0.5):
            options["q_offset"] = rng.integers(*offsets, size=B)
    if some(0.4):
        options["softcap"] = float(rng.uniform(0.5, 4))
    if some(0.3):
        options["scale"] = float(rng.uniform(0.1, 0.5 if many_tiles else 1.5))
    if some(0.3):
        options["dropout_mask"] = (rng.random(broadcasting(cells)) > 0.3) / 0.7
    if rank == 4 and some(0.4):
        inputs["sink"] = spread * rng.normal(size=query if some(0.5) else query[1:])
        if some(0.3):
            inputs["sink"][..., 0] = -np.inf  # none for this head
    if many_tiles:  # floats of float32, so that one reference serves both dtypes
        return tuple(as_dtype(as_dtype(x, np.float32), np.float64) for x in (inputs, options))
    return inputs, options


def is_array(value):
    return isinstance(value, np.ndarray)


def as_dtype(arrays, dtype):
    """Return a dict with all its float arrays in this dtype."""
    return {
        name: value.astype(dtype) if is_array(value) and value.dtype.kind == "f" else value
        for name, value in arrays.items()
    }


@np.errstate(invalid="ignore")
def tangent_of(array, dtype):
    """Return a tangent for each number, by the number itself; NaN where it is not finite."""
    return np.cos(3 * array.astype(np.float64) + 1).astype(np.float32).astype(dtype)


def results(
    inputs, options, forward="numpy", backward=None, *, d_out=None, d_lse=None, layout=None
):
    """Return out, lse, their tangents and the gradients by name; fail if an argument has changed.

    `forward` and `backward` are backends; d_lse may be one number. `layout` is a function that puts
    each array elsewhere in memory.
    """
    arguments = {
        name: layout(value) if layout and is_array(value) and value.ndim else value
        for name, value in (inputs | options).items()
    }
    before = {name: x.tobytes() for name, x in arguments.items() if is_array(x)}
    out, cache = attention_forward(**arguments, backend=forward)
    if d_out is None:
        d_out = np.random.default_rng(7).normal(size=out.shape).astype(np.float32)
    d_out = d_out.astype(out.dtype)
    if d_lse is None:
        d_lse = np.cos(np.arange(cache.lse.size)).reshape(cache.lse.shape)
    d_lse = np.full(cache.lse.shape, d_lse, out.dtype)
    if layout:
        d_out, d_lse = layout(d_out), layout(d_lse)
    tangents = {name: tangent_of(x, out.dtype) for name, x in inputs.items()}
    tangents = {name: layout(x) if layout and x.ndim else x for name, x in tangents.items()}
    upstream = {"d_out": d_out, "d_lse": d_lse, "out": out}
    upstream |= {f"{name}_dot": x for name, x in tangents.items()}
    arguments |= upstream
    before |= {name: x.tobytes() for name, x in upstream.items()}
    dots = attention_jvp(tangents, cache, backend=backward)._asdict()
    grads = attention_backward(d_out, cache, d_lse=d_lse, backend=backward)._asdict()
    for name, bytes_ in before.items():
        assert arguments[name].tobytes() == bytes_, f"{name} has changed"
    found = {"out": out, "lse": cache.lse, **dots, **grads}
    return {name: array for name, array in found.items() if array is not None}
