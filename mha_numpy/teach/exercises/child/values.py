"""Answers as plain values, and these as bytes: a tree in JSON, then the arrays' numbers."""

import io
import json
import math
import re
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import numpy as np

from .errors import LONGEST, one_line

DEEPEST = 50  # lists in lists of an answer
TEXT, PARTS = 2**22, 2**13  # bytes of a tree, and how many values are in it
HEADER = 8  # bytes that tell a length
NUMBERS = "biufc"  # the kinds of dtypes that an answer may have
NUMERIC = re.compile(rf"[<>|][{NUMBERS}]\d+")


@dataclass(frozen=True)
class Foreign:
    """Replaces a value that is not an array, number or text; its repr says what it was."""

    text: str

    def __repr__(self) -> str:
        return self.text


def parts_of(tree: Any) -> dict[str, Any] | None:
    """Return the parts of a container, by name; None for anything else."""
    if isinstance(tree, Mapping):
        return {str(name): part for name, part in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_asdict"):
        return dict(tree._asdict())
    if isinstance(tree, (tuple, list)):
        return {str(i): part for i, part in enumerate(tree)}
    return None


def plain(answer: Any) -> Any:
    """Return an answer in builtins and plain arrays, with `Foreign` for all else."""
    try:
        return _plain_tree(answer, DEEPEST)
    except RecursionError:
        return Foreign(f"a {type(answer).__name__} nested too deeply")
    except MemoryError:
        raise
    except Exception:  # anybody's methods
        return Foreign(f"an object of type {type(answer).__name__}")


def _plain_tree(value: Any, depth: int) -> Any:
    if value is None or value is ... or type(value) in (bool, int, float, complex, str):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        if hasattr(value, "mask"):  # not asked of np.ma, which would have to be loaded first
            return Foreign(f"a masked array {value.shape}: return x.filled(0) instead")
        is_known = value.dtype.kind in NUMBERS
        text = f"an array {value.shape} of {value.dtype}"
        return np.array(value, order="C") if is_known else Foreign(text)
    parts = parts_of(value)
    if parts is None:
        return Foreign(_description(value))
    if depth == 0:
        raise RecursionError
    if len(parts) > PARTS:
        return Foreign(f"a {type(value).__name__} of {len(parts)} parts")
    parts = {name: _plain_tree(part, depth - 1) for name, part in parts.items()}
    if isinstance(value, Mapping) or hasattr(value, "_asdict"):
        return parts
    return (list if isinstance(value, list) else tuple)(parts.values())


def _description(value: object) -> str:
    """Describe a value in one line, with its repr if that is more than an address."""
    try:
        text = repr(value)
    except Exception:  # anybody's __repr__
        text = "<>"
    what = "an object" if text.startswith("<") else one_line(text, 80)
    return f"{what} of type {type(value).__name__}"


def pack(value: Any) -> bytes:
    """Return a plain value as bytes: the length of a tree, the tree, and the arrays' numbers."""
    arrays: list[bytes] = []
    tree = json.dumps(_as_json(value, arrays)).encode()
    return b"".join([len(tree).to_bytes(HEADER), tree, *arrays])


def _as_json(value: Any, arrays: list[bytes]) -> Any:
    """Return a value as JSON knows it; the numbers of its arrays go into the list."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if value is ...:
        return {"unwritten": True}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, np.ndarray) and value.dtype.kind in NUMBERS:
        arrays.append(value.tobytes())
        return {"array": [value.dtype.str, *value.shape]}
    if isinstance(value, Foreign):
        return {"foreign": value.text}
    found = parts_of(value)
    if found is None:
        raise TypeError(f"an object of type {type(value).__name__} cannot be packed")
    parts = {name: _as_json(part, arrays) for name, part in found.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {"named": [type(value).__name__, parts]}
    kind = "dict" if isinstance(value, Mapping) else type(value).__name__
    return {kind: parts if kind == "dict" else list(parts.values())}


def refuse(name: str, *_: str) -> NoReturn:
    """Refuse to make a NamedTuple from foreign bytes."""
    raise ValueError(f"a NamedTuple {name}")


@cache
def record(name: str, *fields: str) -> Callable[..., Any]:
    """Return the NamedTuple of a name, the same each time."""
    return namedtuple(name, fields)


def unpack(packed: bytes, record: Callable[..., Callable[..., Any]] = refuse) -> Any:
    """Return the value that `pack` packed; any error if the bytes are something else.

    The bytes become only builtins, arrays of numbers and `Foreign`, and NamedTuples if `record`
    makes these. The value is not much longer than the bytes, because each byte is used once, and it
    has few enough parts to be checked in time.
    """
    begin = HEADER + int.from_bytes(packed[:HEADER])
    if begin > min(len(packed), TEXT):
        raise ValueError("a long tree, or one that is cut off")
    numbers, parts_left = io.BytesIO(packed[begin:]), PARTS

    def array(told: list[Any]) -> Any:
        if not NUMERIC.fullmatch(told[0]) or min(told[1:], default=0) < 0:
            raise ValueError("an array of something else than numbers, or of a negative shape")
        dtype, shape = np.dtype(told[0]), told[1:]
        content = bytearray(numbers.read(dtype.itemsize * math.prod(shape)))
        return np.frombuffer(content, dtype).reshape(shape)

    def build(tree: Any, depth: int) -> Any:
        nonlocal parts_left
        parts_left -= 1
        if isinstance(tree, list) or depth == 0 or parts_left < 0:
            raise ValueError("a bare list, nested too deep, or too many parts")
        if not isinstance(tree, dict):
            return tree
        ((kind, inner),) = tree.items()
        if kind in ("list", "tuple"):
            items = [build(part, depth - 1) for part in inner]
            return items if kind == "list" else tuple(items)
        if kind in ("dict", "named"):
            parts = inner if kind == "dict" else inner[1]
            found = {name: build(part, depth - 1) for name, part in parts.items()}
            return found if kind == "dict" else record(inner[0], *found)(**found)
        made: dict[str, Callable[[Any], Any]] = {
            "unwritten": lambda _: ..., "complex": lambda pair: complex(*pair), "array": array,
            "foreign": lambda text: Foreign(one_line(text, LONGEST)),
        }  # fmt: skip
        return made[kind](inner)

    return build(json.loads(packed[HEADER:begin]), DEEPEST + 4)
