"""Functions that compute with given settings, without a source, as `identify` meets them."""

import numpy as np

from mha_numpy.identifying.family import AXES, Problem, Sizes, evaluate

ROLES = {  # of arguments whose name is not that of their role
    "q": "query", "k": "key", "v": "value", "qkv": "packed", "num_heads": "H", "num_kv_heads": "G",
    "valid_lens": "lengths", "past_k": "cache_k", "past_v": "cache_v", "rel_bias": "bias_table",
}  # fmt: skip
SIGNATURES = {
    "heads": "q, k, v",
    "masked": "q, k, v, mask",
    "optional mask": "q, k, v, mask=None, is_causal=False",
    "lengths": "q, k, v, valid_lens=None",
    "bias": "q, k, v, bias=None",
    "dropped": "q, k, v, dropout_mask=None",
    "gated": "q, k, v, head_gate=None",
    "scaled": "q, k, v, scale=None",
    "window": "q, k, v, window=None",
    "placed": "q, k, v, offset=0",
    "tables": "q, k, v, cos, sin",
    "table": "q, k, v, rel_bias",
    "cache": "q, k, v, past_k, past_v",
    "wide": "query, key, value, num_heads",
    "self": "x, w_q, w_k, w_v, w_o, num_heads",
    "params": "x, memory, w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o, num_heads",
    "three inputs": "query, key, value, w_q, w_k, w_v, w_o, num_heads",
    "packed": "qkv, num_heads",
    "packed params": "x, w_qkv, w_o, num_heads",
    "grouped params": "x, w_q, w_k, w_v, w_o, num_heads, num_kv_heads",
}


def make_foreign(signature, settings, **numbers):
    """Return a function of these arguments that computes with these settings.

    `numbers` are its globals, where identify finds numbers that may be conventions.
    """

    def compute(arguments, *numbers):
        problem = problem_of(arguments)
        values = evaluate(problem, settings)
        if values is None:
            raise ValueError("not with these arrays")
        return values["out" if "query" in problem.given else "projected"]

    names = [part.split("=")[0] for part in signature.split(", ")]
    passed = f"{{{', '.join(f'{name!r}: {name}' for name in names)}}}"
    scope = {"compute": compute, **numbers}
    exec(f"def foreign({signature}): return compute({', '.join([passed, *numbers])})", scope)
    return scope["foreign"]


def problem_of(arguments):
    """Return the problem that arguments with the usual axes of their roles are."""
    given = {ROLES.get(name, name): value for name, value in arguments.items() if value is not None}
    if "H" in given and "query" in given:  # heads inside
        prefix = "x" if "w_q" in given else "wide"
        for role in ("query", "key", "value"):
            given[f"{prefix}_{role[0]}"] = given.pop(role)
    lengths = {}
    for role, value in given.items():
        if role in ("H", "G"):
            lengths[role] = value
        elif isinstance(value, np.ndarray):
            axes = AXES[role].split()
            if value.ndim != len(axes) or (role == "mask" and value.dtype != bool):
                raise ValueError(f"{role} {value.shape} is not {axes}")
            for axis, size in zip(axes, value.shape, strict=True):
                if lengths.setdefault(axis, size) not in (size, 1):
                    raise ValueError(f"{axis} is {lengths[axis]} and {size}")
                lengths[axis] = max(size, lengths[axis])
    H = lengths.get("H", 1)
    G = lengths.setdefault("G", H)
    if "P" in lengths:
        lengths["d"] = lengths["e"] = lengths["P"] // (H + 2 * G)
    if "M" in lengths:
        lengths["d"] = lengths["M"] // H
    if "O" in lengths:
        lengths["e"] = lengths["O"] // G
    lengths.setdefault("S", lengths.get("T"))
    sizes = Sizes(**{axis: size for axis, size in lengths.items() if axis in Sizes._fields})
    arrays = {role: value for role, value in given.items() if role not in ("H", "G")}
    return Problem(sizes, arrays)
