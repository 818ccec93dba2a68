"""The words on a picture: names and numbers, checked and cut short."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mha_numpy.dtypes import Array, as_array
from mha_numpy.errors import ConfigError, DTypeError, describe

LONGEST = 24  # characters of a label
MINUS = "\N{MINUS SIGN}"


def printable(label: object, longest: int = LONGEST) -> str:
    """Return a label as one visible line of bounded length."""
    text = str(label)
    text = text if text.strip() and text.isprintable() else repr(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def short_number(value: float) -> str:
    """Return a number in three digits: 2.5, 0.31, 20, 1,234, 1.2e-9.

    >>> [short_number(x) for x in (2.5, 0.31, 20, 1234, 0, 999.7, -1.2e-9, 4.56e12)]
    ['2.5', '0.31', '20', '1,234', '0', '1,000', '-1.2e-9', '4.56e12']
    """
    rounded = float(f"{value:.3g}")
    if rounded != 0 and not 1e-3 <= abs(rounded) < 1e9:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"


def decimal(value: float, places: int = 2) -> str:
    """Return a number in few characters: .31, -.31, 1.00, and 0 for exactly 0."""
    if value == 0:
        return "0"
    digits = f"{abs(value):.{places}f}"
    return (MINUS if value < 0 else "") + (digits.removeprefix("0") if places else digits)


def of_batch(sequence: int, batch: int | None) -> str:
    """Return what a title says of a drawn sequence, "" if it is the only one."""
    return f", sequence {sequence} of a batch of {batch}" if batch is not None and batch > 1 else ""


def sentences(*parts: str) -> str:
    """Return what is not empty as sentences: they begin an alt text."""
    return " ".join(f"{part.rstrip('.')}." for part in parts if part)


def named_arrays(name: str, arrays: Mapping[str, Array], kinds: str) -> dict[str, Array]:
    """Return the arrays of a Mapping, numbers as float64, or raise an error that names one."""
    if not isinstance(arrays, Mapping) or not arrays:
        raise ConfigError(
            f"{name}: expected a Mapping of at least one name to its array; got {describe(arrays)}"
        )
    return {str(key): as_numbers(f"{name}[{key!r}]", array, kinds) for key, array in arrays.items()}


def as_numbers(name: str, value: object, kinds: str = "iuf") -> Array:
    """Return an array whose dtype is of one of the kinds: bool as it is, numbers as float64."""
    array = as_array(name, value, "an array of numbers", DTypeError)
    if array.dtype.kind not in kinds:
        expected = "numbers or bools" if "b" in kinds else "numbers"
        raise DTypeError(f"{name}: expected an array of {expected}; got {describe(value)}")
    with np.errstate(over="ignore"):  # longdouble beyond float64
        return array if array.dtype.kind == "b" else array.astype(np.float64)


def check_text(name: str, value: str) -> str:
    """Return a string as one line, or raise a ConfigError that names it."""
    if not isinstance(value, str):
        raise ConfigError(f"{name}: expected a string; got {describe(value)}")
    return " ".join(value.split())


def check_labels(name: str, labels: Sequence[object], **axis: int) -> list[str]:
    """Return printable labels, as many as the given axis is long, or raise a ConfigError."""
    if not isinstance(labels, Iterable):
        raise ConfigError(f"{name}: expected a list of strings; got {describe(labels)}")
    found = [printable(label) for label in labels]
    for letter, size in axis.items():
        if len(found) != size:
            raise ConfigError(f"{name}: expected {letter}={size} of them; got {len(found)}")
    return found
