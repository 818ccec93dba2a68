"""Checks of arguments: counts, numbers, words, caches, files, tokens, shapes by named axes."""

import functools
import inspect
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy.dtypes import LARGEST, Array, as_integer_array
from mha_numpy.errors import ConfigError, MhaError, ShapeError, describe


def check_integer(name: str, value: Any) -> int:
    """Return `value` as an int, or raise a ConfigError that names it."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise ConfigError(f"{name}: expected an integer; got {describe(value)}")
    if abs(int(value)) > LARGEST:
        raise ConfigError(f"{name}: expected numbers up to 2^60; got {describe(value)}")
    return int(value)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return `value` as an int of at least `least`, or raise a ConfigError that names it."""
    if check_integer(name, value) < least:
        raise ConfigError(f"{name}: expected an integer >= {least}; got {describe(value)}")
    return int(value)


def count_or(name: str, value: Any, default: int) -> int:
    """Return `value` as an int of at least 1, or the default where it is None."""
    return default if value is None else check_count(name, value)


def check_number(
    name: str, value: Any, *, positive: bool = False, least: float = -math.inf
) -> float:
    """Return `value` as a finite float >= `least`, or raise a ConfigError that names it."""
    is_real = isinstance(value, (int, float, np.integer, np.floating))
    try:
        is_finite = is_real and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond float64
        is_finite = False
    if not is_finite:
        raise ConfigError(f"{name}: expected a finite number; got {describe(value)}")
    if positive and value <= 0:
        raise ConfigError(f"{name}: expected a number > 0; got {describe(value)}")
    if value < least:
        raise ConfigError(f"{name}: expected a number >= {least}; got {describe(value)}")
    return float(value)


def check_flag(name: str, value: Any) -> bool:
    """Return `value` as a bool, or raise a ConfigError that names it."""
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{name}: expected True or False; got {describe(value)}")
    return bool(value)


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return `value` if it is one of these words, or raise a ConfigError that lists them."""
    words = tuple(choices)
    if not isinstance(value, str) or value not in words:
        raise ConfigError(f"{name}: expected one of {words}; got {describe(value)}")
    return value


def check_share(name: str, value: Any, *, symbol: str = "") -> float:
    """Return `value` as a float that is at least 0 and below 1, or raise a ConfigError."""
    if not 0 <= check_number(name, value) < 1:
        raise ConfigError(f"{name}: expected 0 <= {symbol or name} < 1; got {value}")
    return float(value)


def check_function(name: str, value: Any, *inputs: str) -> None:
    """Raise a ConfigError unless `value` can be called with these inputs."""
    try:
        inspect.signature(value).bind(*inputs)
    except TypeError as reason:
        raise ConfigError(
            f"{name}: expected a function of {' and '.join(inputs)}; got {describe(value)}"
        ) from reason
    except ValueError:  # some functions written in C do not say what they take
        return


def check_absent(folder: Path, names: Iterable[str], *, force: bool) -> None:
    """Raise a ConfigError if files of these names would be overwritten."""
    taken = [name for name in names if os.path.lexists(folder / name)]
    if taken and not force:
        raise ConfigError(f"save: {folder} already has {taken[0]}; add --force to overwrite it")


def read_text(name: str, path: Path, advice: str = "") -> str:
    """Return the text of a file in UTF-8, or raise a ConfigError that names the argument."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: expected text in UTF-8 in {path}{advice}") from error


def check_type(name: str, value: Any, expected: type, source: str) -> None:
    """Raise a ConfigError unless `value` is of the type that `source` returns."""
    if not isinstance(value, expected):
        raise ConfigError(
            f"{name}: expected the {expected.__name__} of {source}; got {describe(value)}"
        )


def check_shape(
    name: str, array: Array, axes: str, sizes: dict[str, int], *, to_match: str = ""
) -> None:
    """Read `array`'s shape by axis names; known sizes must agree, and new ones are noted.

    `axes` is like "B H_kv T_k d_k"; an axis "H*d_k" is a product. "... T D" are the last two of any
    number.
    """
    check_axes(name, array.shape, axes, sizes, to_match=to_match)


def check_axes(
    name: str, shape: tuple[int, ...], axes: str, sizes: dict[str, int], *, to_match: str = ""
) -> None:
    """Do what `check_shape` does, with the shape instead of an array."""
    new = _new_sizes(shape, axes, tuple(sizes.items()))
    if new is None:
        leading = "..., " if axes.startswith("...") else ""
        known_sizes = [(axis, size_of(axis, sizes)) for axis, _ in _names_of(axes)]
        parts = [axis if n is None else f"{axis}={n}" for axis, n in known_sizes]
        expected = leading + ", ".join(parts) + ("," if len(parts) == 1 and not leading else "")
        reason = f" to match {to_match}" if to_match else ""
        raise ShapeError(f"{name}: expected ({expected}){reason}; got {shape}")
    sizes.update(new)


@functools.lru_cache(maxsize=4096)  # a look at all axes takes as long as a step of a small layer
def _new_sizes(
    shape: tuple[int, ...], axes: str, known: tuple[tuple[str, int], ...]
) -> dict[str, int] | None:
    """Return the sizes that a shape adds to those that are known; None if they do not agree."""
    names, sizes, new = _names_of(axes), dict(known), {}
    if axes.startswith("..."):
        shape = shape[max(len(shape) - len(names), 0) :]
    if len(names) != len(shape):
        return None
    for (axis, is_name), actual in zip(names, shape, strict=True):
        if size_of(axis, sizes) not in (None, actual):
            return None
        if is_name:
            new[axis] = actual
    return new


def check_positions(name: str, T: int, offset: int, N: int, limit: str) -> None:
    """Raise a ShapeError unless T tokens, the first at `offset`, have one of N positions each."""
    if offset + T > N:
        raise ShapeError(
            f"{name}: expected at most {limit}; got T={T} tokens"
            + (f" from position {offset}" if offset else "")
        )


def check_ids(name: str, ids: Any, V: int, advice: str = "") -> Array:
    """Return ids as integers between 0 and V - 1, or raise a ConfigError that names one."""
    ids = as_integer_array(name, ids, "an integer array")
    wrong = ids[(ids < 0) | (ids >= V)]
    if wrong.size:
        raise ConfigError(f"{name}: expected 0 <= id < V={V}; got {wrong[0]}{advice}")
    return ids


def check_tokens(name: str, ids: Any, max_tokens: int, *, offset: int = 0) -> Array:
    """Return a model's tokens as an integer array (B, T), T up to `max_tokens`; or raise an error.

    `offset` is the position of the first one: the number of tokens that a KV cache holds.
    """
    ids = as_integer_array(name, ids, "an integer array (B, T)")
    if ids.ndim != 2:
        advice = f"; for one sequence write {name}[None]" if ids.ndim == 1 else ""
        raise ShapeError(f"{name}: expected (B, T); got {ids.shape}{advice}")
    check_positions(name, ids.shape[1], offset, max_tokens, f"max_tokens={max_tokens} positions")
    return ids


@functools.cache
def _names_of(axes: str) -> list[tuple[str, bool]]:
    """Return each axis, and whether it is one name."""
    return [(axis, axis.isidentifier()) for axis in axes.split() if axis != "..."]


def size_of(axis: str, sizes: dict[str, int]) -> int | None:
    """Return the size of an axis such as "T_q", "H*d_k" or "1"; None if it is not known yet."""
    if axis.isidentifier():
        return sizes.get(axis)
    factors = [int(f) if f.isdigit() else sizes.get(f) for f in axis.split("*")]
    return None if None in factors else math.prod(f for f in factors if f is not None)


def check_broadcast(
    name: str, array: Array, shape: tuple[int, ...], axes: str, error: type[MhaError] = ShapeError
) -> None:
    """Check that `array` stretches to `shape`, with last axes aligned, and does not enlarge it."""
    if not _broadcasts(array.shape, shape):
        sizes = zip(axes.split(), shape, strict=True)
        target = ", ".join(f"{axis}={n}" for axis, n in sizes)
        raise error(
            f"{name}: expected a shape that broadcasts to ({target}): "
            f"last axes aligned, each axis full or 1; got {array.shape}"
        )


@functools.lru_cache(maxsize=1024)  # for a tiny call a look at all axes takes as long as a kernel
def _broadcasts(from_shape: tuple[int, ...], to_shape: tuple[int, ...]) -> bool:
    """Return whether an array stretches to a shape without enlarging it."""
    tail = to_shape[len(to_shape) - len(from_shape) :]
    return len(from_shape) <= len(to_shape) and all(
        n in (1, size) for n, size in zip(from_shape, tail, strict=True)
    )
