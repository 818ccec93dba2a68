"""What a child process tells: calls and their answers, as plain values, packed into bytes."""

import io
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.trees import children
from mha_numpy.dtypes import Array
from mha_numpy.errors import describe
from mha_numpy.exercises.raised import one_line

HEADER = 8  # bytes that tell a message's length
DEEPEST = 50  # lists in lists of an answer
NUMBERS = "biufc"  # the kinds of dtypes that an answer may have


@dataclass(frozen=True)
class Foreign:
    """Stands for a value that is no array, number or text; its repr says what it was."""

    text: str

    def __repr__(self) -> str:
        return self.text


class Call(NamedTuple):
    """What came of one call."""

    answer: Any  # None where the call failed, ... where the function is not written yet
    error: str  # in a line, with the line that raised it; "" without one
    changed: tuple[str, ...]  # dotted names of inputs that the function changed in place
    seconds: float


Message = Call | str | None  # a call, why there are no more, or that the function is loaded


def plain(answer: Any) -> Any:
    """Return an answer in builtins and plain arrays, with `Foreign` for all else."""
    try:
        return _plain_tree(answer, DEEPEST)
    except RecursionError:
        return Foreign(f"a {type(answer).__name__} nested too deep")
    except MemoryError:
        raise
    except Exception:  # anybody's methods
        return Foreign(f"an object of type {type(answer).__name__}")


def _plain_tree(value: Any, depth: int) -> Any:
    """Return a value and all in it, down to a depth."""
    if value is None or value is ... or type(value) in (bool, int, float, complex, str):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        if hasattr(value, "mask"):  # not asked of np.ma, which would have to be loaded first
            return Foreign(f"a masked array {value.shape}: x.filled(0) is plain")
        is_known = value.dtype.kind in NUMBERS
        return np.array(value, order="C") if is_known else Foreign(describe(value))
    parts = children(value)
    if parts is None:
        return Foreign(_description(value))
    if depth == 0:
        raise RecursionError
    parts = {name: _plain_tree(part, depth - 1) for name, part in parts.items()}
    if isinstance(value, Mapping) or hasattr(value, "_asdict"):
        return parts
    return (list if isinstance(value, list) else tuple)(parts.values())


def _description(value: object) -> str:
    """Return what a value is, in a line: with its repr where that says more than an address."""
    try:
        text = repr(value)
    except Exception:  # anybody's __repr__
        text = "<>"
    what = "an object" if text.startswith("<") else one_line(text, 80)
    return f"{what} of type {type(value).__name__}"


def pack(message: Message) -> bytes:
    """Return a message as bytes."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5)
    pickler.dispatch_table = {np.ndarray: _unmake}
    pickler.dump(tuple(message) if isinstance(message, Call) else message)
    return stream.getvalue()


def _unmake(array: Array) -> tuple[Any, ...]:
    """Return how pickle is to make a C-contiguous array again."""
    return _make, (array.dtype.str, array.shape, pickle.PickleBuffer(array.data))


def _make(dtype: str, shape: tuple[int, ...], data: bytearray) -> Array:
    """Make an array of what `_unmake` took apart."""
    return np.frombuffer(data, dtype).reshape(shape)


def read_messages(unread: bytearray) -> Iterator[Message]:
    """Take all messages that are complete from what has come."""
    while len(unread) >= HEADER:
        end = HEADER + int.from_bytes(unread[:HEADER])
        if len(unread) < end:
            return
        with memoryview(unread) as view:
            message = _Unpickler(io.BytesIO(view[HEADER:end])).load()
        del unread[:end]
        yield Call(*message) if isinstance(message, tuple) else message


class _Unpickler(pickle.Unpickler):
    """Makes builtins, arrays and `Foreign`, and nothing else."""

    KNOWN: Mapping[str, Any] = {
        "_make": _make, "Foreign": Foreign, "complex": complex, "Ellipsis": ...,
    }  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the few; a KeyError stops the rest."""
        return self.KNOWN[name]
