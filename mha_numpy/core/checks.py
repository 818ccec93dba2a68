"""Checks of single values: counts, numbers, flags, caches."""

import math
from typing import Any

import numpy as np

from mha_numpy.core.dtypes import LARGEST
from mha_numpy.errors import ConfigError, describe


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


def check_number(name: str, value: Any, *, positive: bool = False) -> float:
    """Return `value` as a finite float, or raise a ConfigError that names it."""
    is_real = isinstance(value, (int, float, np.integer, np.floating))
    try:
        is_finite = is_real and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond float64
        is_finite = False
    if not is_finite:
        raise ConfigError(f"{name}: expected a finite number; got {describe(value)}")
    if positive and value <= 0:
        raise ConfigError(f"{name}: expected a number > 0; got {describe(value)}")
    return float(value)


def check_flag(name: str, value: Any) -> bool:
    """Return `value` as a bool, or raise a ConfigError that names it."""
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{name}: expected True or False; got {describe(value)}")
    return bool(value)


def check_type(name: str, value: Any, expected: type, source: str) -> None:
    """Raise a ConfigError unless `value` is of the type that `source` returns."""
    if not isinstance(value, expected):
        raise ConfigError(
            f"{name}: expected the {expected.__name__} of {source}; got {describe(value)}"
        )
