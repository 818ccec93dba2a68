"""Arrays from safetensors files: one, or several with an index; nothing in them is run."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, FileError, describe, one_line
from mha_numpy.layers.params_file import PathLike, as_path

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
INSTALL = "pip install 'mha-numpy[pretrained]'"
DTYPES = {  # in a file's header, and of the arrays that are read
    "F64": "f8", "F32": "f4", "F16": "f2", "BF16": "f4", "C64": "c8", "BOOL": "?",
    "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
    "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1",
}  # fmt: skip


def read_safetensors(path: PathLike) -> dict[str, Array]:
    """Read the arrays of a safetensors file, or of a folder's `model.safetensors`.

    Parameters
    ----------
    path : str or path
        A file, or a folder; there the arrays may be in several files that
        `model.safetensors.index.json` lists.

    Returns
    -------
    dict from names to arrays
        bfloat16, which NumPy does not have, becomes float32; nothing else changes.
    """
    return _read(as_path("path", path), _whole)


def read_header(path: PathLike) -> dict[str, Array]:
    """Read the names, shapes and dtypes that `read_safetensors` returns, without the numbers.

    Each array is a read-only view of a single zero and takes no memory.
    """
    return _read(as_path("path", path), _outline)


def write_safetensors(path: PathLike, arrays: Mapping[str, Array]) -> None:
    """Write arrays to a safetensors file."""
    path = as_path("path", path)
    try:
        from safetensors.numpy import save_file
    except ImportError as reason:
        raise ConfigError(f"safetensors is not installed; {INSTALL}") from reason
    try:
        save_file({name: np.ascontiguousarray(a) for name, a in arrays.items()}, path)
    except Exception as reason:  # a type of the library's own, no OSError
        raise FileError(f"{path}: cannot write it: {one_line(reason)}") from reason


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as reason:
        raise FileError(
            f"{path}: expected a readable file: {reason.strerror or reason}"
        ) from reason
    except ValueError as reason:
        raise FileError(f"{path}: expected JSON; got {one_line(reason)}") from reason
    except RecursionError as reason:
        raise FileError(f"{path}: expected JSON; got brackets nested too deeply") from reason
    if not isinstance(found, dict):
        raise FileError(f"{path}: expected a JSON object; got {type(found).__name__}")
    return found


def _read(path: Path, take: Callable[[Any, str], Array]) -> dict[str, Array]:
    if not os.path.isdir(path):
        return _read_one(path, take)
    if os.path.exists(path / ONE) or not os.path.exists(path / INDEX):
        return _read_one(path / ONE, take)
    places = read_json(path / INDEX).get("weight_map")
    expected = f"{path / INDEX}: expected a weight_map of names to files beside it"
    if not isinstance(places, dict):
        raise FileError(expected)
    if wrong := [name for name in places.values() if not _is_file_name(name)]:
        raise FileError(f"{expected}; got {describe(wrong[0])}")
    found: dict[str, Array] = {}
    for name in sorted(set(places.values())):
        arrays = _read_one(path / name, take)
        if twice := [array for array in arrays if array in found]:
            raise FileError(
                f"{path / name}: expected no array that is also in another file; got {twice[0]}"
            )
        found |= arrays
    if missing := [name for name in places if name not in found]:
        raise FileError(f"{path / INDEX}: expected {one_line(missing[0])} in {places[missing[0]]}")
    return found


def _is_file_name(name: Any) -> bool:
    is_name = isinstance(name, str) and 0 < len(name) < 256 and name.isprintable()
    return is_name and Path(name).name == name


def _read_one(path: Path, take: Callable[[Any, str], Array]) -> dict[str, Array]:
    """Read every array of one file through mapped memory."""
    try:
        import ml_dtypes  # noqa: F401  adds bfloat16 to NumPy
        from safetensors import safe_open
    except ImportError as reason:
        raise ConfigError(f"safetensors is not installed; {INSTALL}") from reason
    if not os.path.isfile(path):  # False for a name too long, where a Path raises
        raise FileError(f"{path}: expected a file; there is none")
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: take(file, name) for name in file.keys()}  # noqa: SIM118
    except Exception as reason:  # of its own kind
        raise FileError(
            f"{path}: expected a whole safetensors file; got a damaged or foreign one: "
            f"{one_line(reason)}"
        ) from reason


def _whole(file: Any, name: str) -> Array:
    array = file.get_tensor(name)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _outline(file: Any, name: str) -> Array:
    """Return a zero in the shape of a file's array."""
    header = file.get_slice(name)
    if header.get_dtype() not in DTYPES:
        raise ValueError(f"NumPy has no {header.get_dtype()}, the kind of numbers in {name}")
    return np.broadcast_to(np.zeros((), DTYPES[header.get_dtype()]), header.get_shape())
