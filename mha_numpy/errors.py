"""Every error that the package raises on purpose."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches


class MhaError(Exception):
    """Base of all errors raised here; catch it to catch them all.

    Every public function raises one of its subclasses for an argument of the wrong kind, shape or
    value; the message names the argument. Docstrings list only errors that have other reasons.
    """


class ShapeError(MhaError, ValueError):
    """An array has the wrong rank or a size that does not fit the others."""


class MaskError(MhaError, ValueError):
    """A mask has the wrong kind (it must be bool, True = may attend) or the wrong shape."""


class ConfigError(MhaError, ValueError):
    """An option has a value that makes no sense, by itself or with the others."""


class DTypeError(MhaError, TypeError):
    """Something is not an array of floats."""


class BackendError(MhaError, RuntimeError):
    """A backend cannot run here: numba is missing, or its compiler is switched off."""


class SandboxError(MhaError, RuntimeError):
    """A submission could not be run, but not because of its code."""


class MissingAttributeError(MhaError, AttributeError):
    """A layer, an optimizer or a package has no attribute of this name."""


class MissingStepError(MhaError, KeyError):
    """A trace has no step of this name."""

    __str__ = Exception.__str__  # that of KeyError adds quotes


class FileError(MhaError, OSError):
    """A file cannot be read or written, or its content is not of the expected kind."""


class TrainingError(MhaError, ArithmeticError):
    """A loss or a gradient is no longer a finite number."""


def one_line(value: object) -> str:
    """Return text, such as the error of another library, so that it fits into one of ours."""
    text = str(value).encode(errors="backslashreplace").decode()  # or it could not be printed
    return " ".join(text.split())[:200]


def describe(value: object) -> str:
    """Describe a value for an error, in one line; arrays and containers of arrays by their kind.

    Arrays are shown by shape and dtype, caches and other tuples of arrays by their type's name.
    """
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array {value.shape} of {value.dtype}"
    is_named = hasattr(value, "_fields")
    if isinstance(value, tuple) and (is_named or any(hasattr(item, "shape") for item in value)):
        name = type(value).__name__
        return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
    return " ".join(repr(value).split())[:80]


def did_you_mean(name: str, known: Iterable[str], most: int = 1) -> str:
    """Return "did you mean 'walk'?" for the known names spelled most like `name`, if any."""
    close = get_close_matches(name, known, n=most, cutoff=0.4)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""


def what_to_write(name: str, advice: Mapping[str, str], known: Iterable[str]) -> str:
    """Return "; write ..." for a name with advice, else "; did you mean ...?", else ""."""
    text = f"write {advice[name]}" if name in advice else did_you_mean(name, known)
    return f"; {text}" if text else ""
