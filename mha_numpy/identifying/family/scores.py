"""Scores: how well queries fit keys, with scale, softcap and bias."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.family.problem import Problem
from mha_numpy.identifying.family.stages import stage

SCALES: dict[str, Callable[[dict[str, int]], float]] = {
    "1/sqrt(d)": lambda n: n["d"] ** -0.5,
    "1": lambda n: 1.0,
    "1/d": lambda n: 1 / n["d"],
    "sqrt(d)": lambda n: n["d"] ** 0.5,
    "1/sqrt(D)": lambda n: n["D"] ** -0.5,
    "1/D": lambda n: 1 / n["D"],
    "1/sqrt(T_k)": lambda n: n["S"] ** -0.5,
    "1/sqrt(T_q)": lambda n: n["T"] ** -0.5,
    "1/sqrt(H)": lambda n: n["H"] ** -0.5,
    "1/sqrt(d_v)": lambda n: n["e"] ** -0.5,
    "1/sqrt(2 d)": lambda n: (2 * n["d"]) ** -0.5,
    "1/sqrt(H_kv d)": lambda n: (n["G"] * n["d"]) ** -0.5,
    "d^(-1/4)": lambda n: n["d"] ** -0.25,
    "1/d^2": lambda n: n["d"] ** -2.0,
    "d": lambda n: float(n["d"]),
    "after the softmax": lambda n: 1.0,
}
ALIBI = ("", "slopes from 2^(-8/H)", "slopes from 1", "both sides", "wrong sign")


@stage(
    scale=tuple(SCALES),
    product=("q k^T", "k reshaped", "additive", "summed apart"),
    scale_given=(
        "times", "divided by", "times, and 1/sqrt(d)", "divided by, and 1/sqrt(d)", "ignored",
        "times exp", "divided by the root",
    ),
    bias=("added after the scale", "added before the scale", "subtracted", "ignored"),
    softcap=(None,),
    softcap_at=("before the bias", "after the bias"),
    alibi=ALIBI,
    buckets=("both sides", "past", "j - i", "i - j"),
    most_distance=(128,),
)  # fmt: skip
def match(x: SimpleNamespace, s: SimpleNamespace, problem: Problem) -> dict[str, Any]:
    """Compute the scores of all cells."""
    q, k = x.turned_q, x.keys
    (_, H, T, d), S = q.shape, k.shape[2]
    kT = k.swapaxes(-1, -2)
    if s.product == "k reshaped":
        kT = k.reshape(kT.shape)
    sizes = {"H": H, "T": T, "S": S, "d": d, "e": x.values.shape[-1], "G": problem.sizes.G,
             "D": problem.sizes.of("D")}  # fmt: skip
    scale: Any = (
        SCALES[s.scale](sizes) if isinstance(s.scale, str) else np.reshape(s.scale, (-1, 1, 1))
    )
    if problem.get("scale") is not None and s.scale_given != "ignored":
        given = np.reshape(x.scale, (-1, 1, 1))  # one for all heads, or one for each
        scale = {"times": given * (1 if s.scale == "1/sqrt(d)" else scale),
                 "times exp": np.exp(given), "divided by": 1 / given,
                 "divided by the root": given**-0.5,
                 "times, and 1/sqrt(d)": given * d**-0.5,
                 "divided by, and 1/sqrt(d)": d**-0.5 / given}[s.scale_given]  # fmt: skip
    scores = q @ kT
    if s.product == "summed apart":
        scores = q.sum(-1)[..., None] * k.sum(-1)[:, :, None]
    if s.product == "additive":
        scores, scale = np.tanh(q[:, :, :, None] + k[:, :, None]) @ x.w_a, 1.0
    if problem.get("read") is not None:
        scores, scale = x.read, 1.0
    bias = problem.get("bias")
    own: Any = 0 if bias is None else bias
    if problem.get("bias_table") is not None:
        bias = own = own + _bucketed(x.bias_table, s.buckets, s.most_distance, T, S)
    if problem.get("more_bias") is not None:
        bias = own = own + x.more_bias
    if s.alibi or problem.get("slopes") is not None:
        bias = own + _alibi(s.alibi, problem, H, T, S)
    if bias is not None and s.bias == "added before the scale":
        scores = scores + bias
    scores = scores * scale
    cap = problem.get("softcap") or s.softcap
    if cap and s.softcap_at == "before the bias":
        scores = cap * np.tanh(scores / cap)
    if bias is not None and s.bias == "added after the scale":
        scores = scores + bias
    if bias is not None and s.bias == "subtracted":
        scores = scores - bias
    if cap and s.softcap_at == "after the bias":
        scores = cap * np.tanh(scores / cap)
    late = d**-0.5 if s.scale == "after the softmax" else 1.0
    floor = -cap if cap and s.softcap_at == "after the bias" else -np.inf  # of hidden cells
    return {"scores": scores, "late_scale": late, "floor": floor}


def _alibi(kind: str, problem: Problem, H: int, T: int, S: int) -> Array:
    """Return a bias that falls with the distance, with a slope for each head."""
    first = 0 if kind == "slopes from 1" else 1
    given, at = problem.get("slopes"), problem.get("positions")
    slopes = 2.0 ** (-8 * (np.arange(H) + first) / H) if given is None else np.array(given)
    i, j = (np.arange(T), np.arange(S)) if at is None else (at[:, None], at[:, None])
    distance = j[..., None, :] - i[..., None]  # (T, S), or (B, 1, T, S)
    if kind == "both sides":
        distance = -abs(distance)
    if kind == "wrong sign":
        distance = -distance
    return slopes.reshape(-1, 1, 1) * distance


def _bucketed(table: Array, buckets: str, most: float, T: int, S: int) -> Array:
    """Return the bias of a table by buckets of distances: T5 (Raffel et al. 2020, section 2.1).

    Or by the distances themselves, clipped: Shaw et al. (2018), section 3.2.
    """
    distance = np.arange(S) - np.arange(T)[:, None]  # j - i
    count = len(table)
    if "-" in buckets:
        most = (count - 1) // 2
        distance = distance if buckets == "j - i" else -distance
        return table[most + distance.clip(-most, most)].transpose(2, 0, 1)
    first = np.zeros((T, S), int)
    if buckets == "both sides":
        count //= 2
        first = np.where(distance > 0, count, 0)
        distance = abs(distance)
    else:
        distance = -distance.clip(max=0)
    exact = count // 2
    ratio = np.log(distance.clip(min=1) / exact) / np.log(most / exact)
    wide = (exact + (ratio * (count - exact)).astype(int)).clip(max=count - 1)
    bucket = first + np.where(distance < exact, distance, wide)
    return table[bucket].transpose(2, 0, 1)
