"""Sizes of a task's inputs, and the factors that can be made of them.

The docstring of a solution says which axis has which name: ``q : (B, H, T_q, d_k)``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from inspect import getdoc
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.conventions import conventions_of
from mha_numpy.teach.documented import said_of
from mha_numpy.teach.in_force import cached
from mha_numpy.teach.task import Inputs
from mha_numpy.teach.tasks import TASKS
from mha_numpy.teach.turns import take_inputs

COUNTS = {"num_heads": "H", "num_kv_heads": "H_kv"}
NAME = re.compile(r"[A-Za-z]\w*")
WORDS = {  # of one index of an axis, and of several
    "B": ("sequence", "sequences"), "H": ("head", "heads"), "H_kv": ("key head", "key heads"),
    "T_q": ("query", "queries"), "T_k": ("key", "keys"), "T": ("token", "tokens"),
    "T_y": ("token", "tokens"), "T_x": ("token", "tokens"), "N": ("batch", "batches"),
    "V": ("entry", "entries"), "T + 1": ("key", "keys"),
}  # fmt: skip
FACTOR = 1e-9  # how far apart two factors may be that are the same
SLIGHT = 1e-6  # a factor that is closer to 1 comes from a small number that was added


@cached()
def axes_of(task: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the axes of a task's inputs, and of its results after `out `."""
    given, told = said_of(getdoc(TASKS[task].solution) or "")
    found = {name: tuple(said.shapes[0]) for name, said in given.items() if said.shapes}
    for name, said in told.items():
        if said.shapes:
            found["out " + name] = tuple(said.shapes[0])
        elif said.kind.startswith("arrays like"):
            found["out " + name] = found.get(name.removeprefix("d_"), ())
    return found


def axis_names(task: str, name: str, ndim: int) -> tuple[str, ...]:
    """Return the names of a result's axes, as far as the docstring says them."""
    axes = axes_of(task).get(f"out {name}", ())
    is_usual = len(axes) == ndim and not conventions_of(task)
    return axes if is_usual else ("",) * ndim


def indices_of(task: str, name: str, ndim: int, axis: int) -> tuple[str, str]:
    """Return the words for one index of a result's axis, and for several."""
    letter = axis_names(task, name, ndim)[axis]
    where = f"of axis {axis} (of {ndim} axes)" if ndim > 1 else ""
    return WORDS.get(letter, (f"index {where}".strip(), f"indices {where}".strip()))


def words_of(letter: str) -> tuple[str, str]:
    """Return the words for one index of an axis with a name, and for several."""
    return WORDS.get(letter, (f"index of axis {letter}", f"indices of axis {letter}"))


def sizes_of(task: str, probe: Inputs) -> dict[str, float]:
    """Return the sizes that an input has, and its numbers, by name."""
    inputs = take_inputs(task, conventions_of(task), probe)
    found: dict[str, float] = {}
    for name, axes in axes_of(task).items():
        value = inputs.get(name)
        if isinstance(value, np.ndarray) and (value.ndim == len(axes) or "..." in axes):
            pairs = zip(reversed(axes), reversed(value.shape), strict=False)  # "..." is first
            found |= {axis: size for axis, size in pairs if NAME.fullmatch(axis)}
    found |= {letter: inputs[name] for name, letter in COUNTS.items() if name in inputs}
    params = inputs.get("params")
    if params is not None and hasattr(params, "w_q"):
        H, H_kv = found.get("H"), found.get("H_kv", found.get("H"))
        found["D"] = params.w_q.shape[0]
        if H and H_kv:
            found |= {"d_k": params.w_q.shape[1] // H, "d_v": params.w_v.shape[1] // H_kv}
    if "H_kv" in found and "H" in found:
        found["(H // H_kv)"] = found["H"] // found["H_kv"]
    numbers = {n: v for n, v in inputs.items() if isinstance(v, int | float) and v is not True}
    found |= {n: float(v) for n, v in numbers.items() if n not in ("ignored", *COUNTS)}
    if "p" in numbers:
        found["(1 - p)"] = 1 - numbers["p"]
    return {name: float(size) for name, size in found.items()}


def factors(sizes: Sequence[Mapping[str, float]]) -> Iterator[tuple[str, Array]]:
    """Yield factors made of the sizes of some inputs, the simplest first, one number for each."""
    with np.errstate(all="ignore"):
        parts: list[tuple[str, Array]] = []
        for name in sizes[0]:
            if all(name in one for one in sizes):
                size = np.array([one[name] for one in sizes])
                parts += [(name, size), (f"np.sqrt({name.strip('()')})", np.sqrt(size))]
        over = [(f"1 / {name}", 1 / size) for name, size in parts]
        halves = [("2", np.full(len(sizes), 2.0)), ("0.5", np.full(len(sizes), 0.5))]
        pairs = [
            made
            for i, (a, x) in enumerate(parts)
            for b, y in parts[i:]
            for made in (
                (f"{a} * {b}", x * y), (f"1 / ({a} * {b})", 1 / x / y), (f"{a} / {b}", x / y),
                (f"{b} / {a}", y / x),
            )
        ]  # fmt: skip
        fewer = [(f"({name} - 1)", size - 1) for name, size in parts if "sqrt" not in name]
        for text, numbers in [*halves, *parts, *over, *fewer, *pairs]:
            if np.isfinite(numbers).all() and (np.abs(np.log(np.abs(numbers))) > FACTOR).any():
                yield text, numbers
                yield f"-{text}" if "/" not in text else f"-({text})", -numbers


def factor_of(sizes: Sequence[Mapping[str, float]], found: Sequence[float | None]) -> str:
    """Name the factor that has these values for inputs of these sizes; None fits any.

    Empty if none has.
    """
    known = [i for i, value in enumerate(found) if value is not None]
    values = np.array([found[i] for i in known], dtype=float)
    if not known or not np.isfinite(values).all() or (np.abs(values - 1) < SLIGHT).all():
        return ""
    if (np.abs(values + 1) < FACTOR).all():
        return "-1"
    for text, numbers in factors([sizes[i] for i in known]):
        if (np.abs(numbers - values) <= FACTOR * np.abs(values)).all():
            return text
    is_one = len(known) > 1 and np.ptp(values) <= FACTOR * abs(values[0])
    return f"{values[0]:.6g}" if is_one else ""


def ratio(mine: Any, other: Any, largest: float) -> float | None:
    """Return the factor between two arrays; NaN if there is none, None if any would do.

    What is rounding beside the largest number counts as 0.
    """
    mine, other = np.asarray(mine, dtype=float), np.asarray(other, dtype=float)
    if mine.shape != other.shape or not np.array_equal(np.isfinite(mine), np.isfinite(other)):
        return float("nan")
    a, b = mine[np.isfinite(mine)], other[np.isfinite(mine)]
    size, mine_size = float(np.abs(b).max(initial=0)), float(np.abs(a).max(initial=0))
    if size <= 1e-12 * largest:
        return None if mine_size <= 1e-9 * largest else float("nan")
    c = float((a / size) @ (b / size) / ((b / size) @ (b / size)))
    is_one = c != 0 and np.abs(a - c * b).max() <= 1e-10 * abs(c) * size
    return c if is_one else float("nan")
