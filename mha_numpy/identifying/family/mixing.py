"""From weights to the output: values, merging heads, the last projection."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.family.inputs import norm
from mha_numpy.identifying.family.problem import Problem
from mha_numpy.identifying.family.stages import stage


@stage(
    mixed=("weights @ v", "weights.T @ v", "v reshaped", "summed apart"),
    head_gate=("output", "ignored"),
    rows=("", "padded queries zero"),
)
def mix(x: SimpleNamespace, s: SimpleNamespace, problem: Problem) -> dict[str, Any]:
    """Mix the values of each query."""
    left = x.dropped.swapaxes(-1, -2) if s.mixed == "weights.T @ v" else x.dropped
    values = x.values
    if s.mixed == "v reshaped":
        B, H, S, e = values.shape
        values = values.reshape(B, H, e, S).swapaxes(-1, -2)
    heads = left @ values
    if s.mixed == "summed apart":
        heads = left.sum(-1, keepdims=True) * values.sum(-2, keepdims=True)
    gate = problem.get("head_gate")
    if gate is not None and s.head_gate == "output":
        heads = heads * gate[..., None, None]
    if s.rows:
        heads = heads * x.visible.any(1, keepdims=True).any(2, keepdims=True).swapaxes(-1, -2)
    return {"heads": heads}


MERGES = (
    "columns", "reshape without transpose", "features before heads", "mean of heads",
    "sum of heads",
)  # fmt: skip


@stage(
    merge=MERGES,
    w_o=("applied", "left out"),
    b_o=("added", "left out"),
    beside=("output, x", "x, output"),
    after=("", "+ x", "+ x, layer norm", "layer norm", "tanh"),
)
def finish(x: SimpleNamespace, s: SimpleNamespace, problem: Problem) -> dict[str, Any]:
    """Merge the heads and project, where the inputs had no axis of heads."""
    heads, has_heads = x.heads, problem.get("query") is not None
    if x.goes_back and heads.shape[1] != problem.sizes.H:  # heads within each token
        heads = heads.reshape(len(heads), problem.sizes.H, -1, heads.shape[-1])
    if s.after and has_heads:
        if s.after != "+ x":
            raise ValueError("only where heads are inside")
        heads = heads + x.whole_q
    out = {"out": heads, "merged": merge_heads(heads, MERGES[1] if x.goes_back else s.merge)}
    last = out["merged"]
    w_o, b_o, w_g = (problem.get(role) for role in ("w_o", "b_o", "w_g"))
    if w_g is not None:  # Jumper et al. (2021), Qiu et al. (2025)
        added = 0 if problem.get("b_g") is None else x.b_g
        last = last / (1 + np.exp(-x.from_q @ w_g - added))
    if problem.get("w_c") is not None:  # Luong et al. (2015), equation 5
        both = {"output": last, "x": x.whole_q}
        last = np.concatenate([both[name] for name in s.beside.split(", ")], -1) @ x.w_c
    if w_o is not None and s.w_o != "left out":
        last = last @ w_o
    if b_o is not None and s.b_o == "added":
        last = last + b_o
    if s.after.startswith("+ x") and not has_heads:
        last = last + x.whole_q
    if "layer norm" in s.after:
        last = norm(last, "layer norm", problem)
    if s.after == "tanh":
        last = np.tanh(last)
    return {**out, "projected": last}


def merge_heads(heads: Array, how: str) -> Array:
    """Return heads (B, H, T, e) as one axis of features."""
    B, H, T, d = heads.shape
    if how == "columns":
        return heads.swapaxes(1, 2).reshape(B, T, H * d)
    if how == "features before heads":
        return heads.transpose(0, 2, 3, 1).reshape(B, T, H * d)
    if how == "reshape without transpose":
        return heads.reshape(B, T, H * d)
    return heads.mean(1) if how == "mean of heads" else heads.sum(1)
