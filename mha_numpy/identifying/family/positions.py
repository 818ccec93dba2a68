"""Rotation of queries and keys, and which key/value head a query head reads."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.family.problem import Problem
from mha_numpy.identifying.family.stages import stage

ROTATIONS = (
    "", "halves", "pairs", "halves of q, pairs of k", "pairs of q, halves of k",
    "halves of q, moved pairs of k", "moved pairs of q, halves of k",
)  # fmt: skip


@stage(
    rotation=ROTATIONS,
    angles=("of the pair", "in the other order"),
    rotated=("q and k", "q", "k", "q, k and v"),
    direction=("", "backwards", "q backwards", "k backwards", "no minus"),
    first_position=(0, 1),
    q_position=("from the first key", "to the last key", "after the cache", "from the offset"),
    base=(10000.0,),
    frequencies=("base^(-2i/d)", "base^(-i/d)", "base^(-4i/d)"),
    rotation_axis=("tokens", "heads"),
    turned=(None,),  # how many features; other values come from numbers in the source
)
def rotate(x: SimpleNamespace, s: SimpleNamespace, problem: Problem) -> dict[str, Any]:
    """Rotate pairs of features by an angle that grows with the position."""
    given = _given(problem)
    if not s.rotation:
        return _with_cache({"turned_q": x.q, "turned_k": x.k, "turned_v": x.v}, problem)
    T, S = x.q.shape[2], x.k.shape[2]
    first = s.first_position + (problem.get("offset") or 0)
    first += problem.sizes.Z * (s.q_position == "after the cache")
    starts = {"q": first + (S - T if s.q_position == "to the last key" else 0)}
    starts["k"] = starts["v"] = s.first_position if s.q_position == "from the offset" else first
    positions = problem.get("positions")
    base = problem.get("base") or s.base
    out = {"turned_v": x.v}
    for name in "qkv":
        array = getattr(x, name)
        if name not in s.rotated.replace("and", ""):  # "q, k and v"
            out[f"turned_{name}"] = array
            continue
        sign = -1 if s.direction in ("backwards", f"{name} backwards") else 1
        width = turned_width(array.shape[-1], problem.get("rotary") or s.turned)
        if given:
            cos, sin = (part[: array.shape[2], : width // 2] for part in given)
        else:
            length = array.shape[1 if s.rotation_axis == "heads" else 2]
            own = problem.get("k_positions") if name != "q" else None
            own = positions if own is None else own
            places = starts[name] + np.arange(length) if own is None else own[:, None]
            angles = _angles(places, width, base, s.frequencies)
            cos, sin = np.cos(angles), np.sin(angles)
        if s.rotation_axis == "heads":
            cos, sin = cos[:, None], sin[:, None]
        turned = _turn(array[..., :width], cos, sign * sin, kind_of(s.rotation, name), s)
        out[f"turned_{name}"] = np.concatenate([turned, array[..., width:]], -1)
    return _with_cache(out, problem)


def _with_cache(out: dict[str, Any], problem: Problem) -> dict[str, Any]:
    """Put the keys and values of a cache before the others."""
    if problem.get("cache_k") is None:
        return out
    return {
        **out, "turned_k": np.concatenate([problem.given["cache_k"], out["turned_k"]], axis=2),
        "turned_v": np.concatenate([problem.given["cache_v"], out["turned_v"]], axis=2),
    }  # fmt: skip


def _given(problem: Problem) -> tuple[Array, ...]:
    """Return the cosines and sines that are given; complex numbers are both."""
    both = problem.get("cos_sin")
    if both is not None:
        return both.real, both.imag
    return () if problem.get("cos") is None else (problem.get("cos"), problem.get("sin"))


def turned_width(width: int, turned: float | None) -> int:
    """Return how many features are turned: all, a number of them or a share."""
    if turned is None:
        return width
    count = int(turned * width if turned < 1 else turned)
    if count % 2 or not 0 < count < width:
        raise ValueError("pairs, and not all of them")
    return count


def _angles(positions: Array, width: int, base: float, frequencies: str) -> Array:
    i = np.arange(width // 2)
    power = {"base^(-2i/d)": 2, "base^(-i/d)": 1, "base^(-4i/d)": 4}[frequencies]
    return positions[..., None] * base ** (-power * i / width)


def kind_of(rotation: str, name: str) -> str:
    """Return the kind that a rotation has for q, k or v, as in "halves of q, pairs of k"."""
    kinds = rotation.split(", ")
    return next((k for k in kinds if k.endswith(f" of {name}")), kinds[-1]).partition(" of")[0]


def pairs_of(array: Array, kind: str) -> tuple[Array, Array]:
    """Return the first and the second feature of each pair, as views."""
    half = array.shape[-1] // 2
    if kind == "halves":
        return array[..., :half], array[..., half:]
    return array[..., ::2], array[..., 1::2]


def _turn(array: Array, cos: Array, sin: Array, kind: str, s: SimpleNamespace) -> Array:
    """Return features that are turned in pairs; moved pairs are put together as halves."""
    out = array.copy()
    to = "halves" if kind.startswith("moved") else kind
    (x, y), (turned_x, turned_y) = pairs_of(array, kind), pairs_of(out, to)
    in_halves = (kind == "halves") == (s.angles == "of the pair")
    both = (np.concatenate([a, a], -1) if in_halves else a.repeat(2, -1) for a in (cos, sin))
    (cos_x, cos_y), (sin_x, sin_y) = (pairs_of(each, kind) for each in both)
    turned_x[:] = x * cos_x + y * (sin_x if s.direction == "no minus" else -sin_x)
    turned_y[:] = y * cos_y + x * sin_y
    return out


@stage(grouping=("repeat", "tile", "only the first", "mean"))
def group(x: SimpleNamespace, s: SimpleNamespace, problem: Problem) -> dict[str, Any]:
    """Give each query head its key/value head."""
    H, G = x.turned_q.shape[1], x.turned_k.shape[1]
    if G in (1, H):
        return {"keys": x.turned_k, "values": x.turned_v}  # one head broadcasts
    head = {"repeat": np.arange(H) // (H // G), "tile": np.arange(H) % G,
            "only the first": np.zeros(H, int)}.get(s.grouping)  # fmt: skip
    if head is None:
        means = (np.repeat(a.mean(1, keepdims=True), H, 1) for a in (x.turned_k, x.turned_v))
        return dict(zip(("keys", "values"), means, strict=True))
    return {"keys": x.turned_k[:, head], "values": x.turned_v[:, head]}
