"""From what a function is given to q, k and v: projecting, unpacking, splitting into heads."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.family.problem import Problem, Sizes
from mha_numpy.identifying.family.stages import stage

ORDERS = ("qkv", "qvk", "kqv", "kvq", "vqk", "vkq")


@stage(
    exchanged=("", "k v", "q k", "q v", "q k v", "k := q", "v := q", "k, v := q", "v := k"),
    before=("", "layer norm", "rms norm"),  # or a number of groups, from the source
)
def take(x: SimpleNamespace, s: SimpleNamespace, problem: Problem) -> dict[str, Any]:
    """Take queries, keys and values from the inputs."""
    if problem.get("packed") is not None:
        return {"from_q": x.packed, "from_k": x.packed, "from_v": x.packed, "whole_q": x.packed}
    whole = problem.get("x")
    memory = problem.get("memory")
    none = None if problem.get("w_a") is None else np.zeros((1, 1, problem.sizes.of("M")))
    q = _first(problem, "query", "x_q", "wide_q", whole, none)
    own = whole if memory is None else memory
    own = problem.get("key_value") if own is None else own
    k = _first(problem, "key", "x_k", "wide_k", own, "value", "x_v", "wide_v")
    v = _first(problem, "value", "x_v", "wide_v", own)
    q, k, v = {
        "": (q, k, v), "k v": (q, v, k), "q k": (k, q, v), "q v": (v, k, q), "q k v": (v, q, k),
        "k := q": (q, q, v), "v := q": (q, k, q), "k, v := q": (q, q, q), "v := k": (q, k, k),
    }[s.exchanged]  # fmt: skip
    whole_q = q  # a residual adds it as it came
    if s.before:
        q, k, v = (norm(each, s.before, problem) for each in (q, k, v))
    return {"from_q": q, "from_k": k, "from_v": v, "whole_q": whole_q}


def norm(x: Array, kind: str | int, problem: Problem) -> Array:
    """Return tokens of a usual size: each of its own, or all in groups of features."""
    if x.ndim != 3:
        raise ValueError("only where heads are inside")
    B, T, D = x.shape
    parts = x.reshape(B, T, kind, D // kind) if isinstance(kind, int) else x[:, :, None]
    axes = (1, 3) if isinstance(kind, int) else (3,)
    centred = parts - (0 if kind == "rms norm" else parts.mean(axes, keepdims=True))
    size = np.sqrt((centred**2).mean(axes, keepdims=True) + problem.given.get("norm_eps", 1e-5))
    normed: Array = (centred / size).reshape(x.shape)
    return normed


def _first(problem: Problem, *choices: Any) -> Any:
    """Return the first that is there: an array, or the array of a role."""
    for choice in choices:
        found = problem.get(choice) if isinstance(choice, str) else choice
        if found is not None:
            return found
    raise KeyError(choices)


@stage(
    params=("", "k v", "q k", "q v", "q k v", "k := q", "v := k", "v := q"),
    left_out=("", "w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "biases"),
    packing=(*ORDERS, *(f"{order} in each head" for order in ORDERS), "qkv in each feature"),
    joined=("q, k", "k, q"),
)
def project(x: SimpleNamespace, s: SimpleNamespace, problem: Problem) -> dict[str, Any]:
    """Multiply by the params, where there are any, and unpack."""
    sizes = problem.sizes
    if problem.get("packed") is not None:
        parts = _unpack(x.packed, s.packing, sizes)
        return {f"wide_{name}": parts[name] for name in "qkv"}
    params = {name: problem.get(name) for name in PROJECTIONS}
    for role, kinds in (("qkv", "qkv"), ("kv", "kv")):
        for kind in "wb":
            joined = problem.get(f"{kind}_{role}")
            if joined is not None:
                order = s.packing if role == "qkv" else s.packing.replace("q", "", 1)
                parts = _unpack(joined, order, sizes)
                params |= {f"{kind}_{name}": parts[name] for name in kinds}
    if problem.get("w_qk") is not None:  # w_qk @ [q; k] = w_q @ q + w_k @ k
        width = (x.from_q if s.joined == "q, k" else x.from_k).shape[-1]
        own = dict(zip(s.joined.split(", "), np.split(x.w_qk, [width]), strict=True))
        params |= {"w_q": own["q"], "w_k": own["k"]}
    names = {
        "": "qkv", "k v": "qvk", "q k": "kqv", "q v": "vkq", "q k v": "vqk",
        "k := q": "qqv", "v := k": "qkk", "v := q": "qkq",
    }[s.params]  # fmt: skip
    made = {}
    for to, name in zip("qkv", names, strict=True):
        w = None if s.left_out == f"w_{to}" else params[f"w_{name}"]
        b = None if s.left_out in (f"b_{to}", "biases") else params[f"b_{name}"]
        made[f"wide_{to}"] = _linear(getattr(x, f"from_{to}"), w, b)
    return made


PROJECTIONS = ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v")


def _linear(x: Array, w: Array | None, b: Array | None) -> Array:
    x = x if w is None else x @ w
    return x if b is None else x + b


def _unpack(packed: Array, packing: str, sizes: Sizes) -> dict[str, Array]:
    """Take the columns of q, k and v out of one array."""
    order = packing.split()[0]
    widths = {"q": sizes.H * sizes.d, "k": sizes.G * sizes.d, "v": sizes.G * sizes.e}
    if packing == order:
        ends = np.cumsum([widths[name] for name in order])
        parts = np.split(packed, ends[:-1], axis=-1)
    else:
        leading, count = packed.shape[:-1], len(order)
        if packing.endswith("head"):
            pieces = packed.reshape(*leading, sizes.G, count, sizes.d)
        else:
            pieces = packed.reshape(*leading, sizes.G, sizes.d, count).swapaxes(-1, -2)
        parts = [pieces[..., i, :].reshape(*leading, -1) for i in range(count)]
    return dict(zip(order, parts, strict=True))


SPLITS = (
    "columns", "reshape without transpose", "reshape without transpose, and back",
    "features before heads", "tokens mixed with batch", "batch mixed with tokens",
    "heads within each token", "reshape of q", "reshape of k", "reshape of v",
    "features before heads in q", "features before heads in k", "features before heads in v",
)  # fmt: skip


NORMS = (
    "", "l2", "rms", "mean and variance", "l2 of q", "l2 of k", "l2 over heads", "l2 over tokens",
)  # fmt: skip
L2_AXES = {"l2": -1, "l2 over heads": 1, "l2 over tokens": 2}


@stage(split=SPLITS, qk_norm=NORMS)
def split(x: SimpleNamespace, s: SimpleNamespace, problem: Problem) -> dict[str, Any]:
    """Split the width into heads, where no axis of heads is given; normalise."""
    sizes = problem.sizes
    counts = {"q": sizes.H, "k": sizes.G, "v": sizes.G}
    how = {f"reshape of {name}": {name: "reshape without transpose"} for name in "qkv"}
    how |= {f"features before heads in {n}": {n: "features before heads"} for n in "qkv"}
    of = dict.fromkeys("qkv", "columns" if s.split in how else s.split) | how.get(s.split, {})
    heads = {name: _split(getattr(x, f"wide_{name}"), counts[name], of[name]) for name in "qkv"}
    for name in "qk":
        if s.qk_norm in (*L2_AXES, f"l2 of {name}"):
            axis = L2_AXES.get(s.qk_norm, -1)
            heads[name] = heads[name] / np.linalg.norm(heads[name], axis=axis, keepdims=True)
        if s.qk_norm == "rms":
            heads[name] = heads[name] / np.sqrt((heads[name] ** 2).mean(-1, keepdims=True))
        if s.qk_norm == "mean and variance":
            centred = heads[name] - heads[name].mean(-1, keepdims=True)
            heads[name] = centred / np.sqrt((centred**2).mean(-1, keepdims=True))
        gain = problem.get(f"g_{name}")
        heads[name] = heads[name] if gain is None else heads[name] * gain
    return {**heads, "goes_back": s.split.endswith(("and back", "each token"))}


def _split(wide: Array, count: int, how: str) -> Array:
    if wide.ndim == 4:
        return wide
    B, T, width = wide.shape
    d = width // count
    if how == "columns":
        return wide.reshape(B, T, count, d).swapaxes(1, 2)
    if how == "heads within each token":  # tokens take the axis of heads
        return wide.reshape(B, T, count, d)
    if how == "features before heads":
        return wide.reshape(B, T, d, count).transpose(0, 3, 1, 2)
    if how == "tokens mixed with batch":  # (B, T, H d) cut as if it were (T, B, H d)
        return wide.reshape(T, B, count, d).transpose(1, 2, 0, 3)
    if how == "batch mixed with tokens":  # (T, B, H d) cut as if it were (B, T, H d)
        return wide.swapaxes(0, 1).reshape(B, T, count, d).swapaxes(1, 2)
    return wide.reshape(B, count, T, d)
