"""Arrays from safetensors files: one, or several with an index; nothing in them is run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, FileError
from mha_numpy.nn.params_file import PathLike

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
INSTALL = "pip install 'mha-numpy[pretrained]'"


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
        bfloat16, which NumPy does not have, becomes float32; nothing else is changed.

    Raises
    ------
    FileError
        A file is missing or is not a whole safetensors file.
    ConfigError
        The package safetensors is not installed.
    """
    path = Path(path)
    if not path.is_dir():
        return _read_one(path)
    if (path / ONE).exists() or not (path / INDEX).exists():
        return _read_one(path / ONE)
    places = read_json(path / INDEX).get("weight_map")
    names = set(map(str, places.values())) if isinstance(places, dict) else set()
    if not isinstance(places, dict) or any(Path(name).name != name for name in names):
        raise FileError(f"{path / INDEX}: expected a weight_map of names to files beside it")
    found: dict[str, Array] = {}
    for name in sorted(names):
        found |= _read_one(path / name)
    if missing := [name for name in places if name not in found]:
        raise FileError(f"{path / INDEX}: expected {missing[0]} in {places[missing[0]]}")
    return found


def write_safetensors(path: PathLike, arrays: Mapping[str, Array]) -> None:
    """Write arrays to a safetensors file."""
    try:
        from safetensors.numpy import save_file
    except ImportError as reason:
        raise ConfigError(f"safetensors: expected it to be installed; {INSTALL}") from reason
    try:
        save_file({name: np.ascontiguousarray(a) for name, a in arrays.items()}, path)
    except Exception as reason:  # of its own kind, which is no OSError
        raise FileError(f"{path}: expected to write it; got {reason}") from reason


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as reason:
        raise FileError(f"{path}: expected a file; got {reason.strerror or reason}") from reason
    except ValueError as reason:
        raise FileError(f"{path}: expected JSON; got {reason}") from reason
    if not isinstance(found, dict):
        raise FileError(f"{path}: expected a JSON object; got {type(found).__name__}")
    return found


def _read_one(path: Path) -> dict[str, Array]:
    """Read one file, through memory that is mapped to it."""
    try:
        import ml_dtypes  # noqa: F401  tells NumPy what bfloat16 is
        from safetensors import safe_open
    except ImportError as reason:
        raise ConfigError(f"safetensors: expected it to be installed; {INSTALL}") from reason
    if not path.is_file():
        raise FileError(f"{path}: expected a file; got nothing there")
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as reason:  # of its own kind
        raise FileError(
            f"{path}: expected a whole safetensors file; got a damaged or foreign one: {reason}"
        ) from reason
    return {
        name: array.astype(np.float32) if array.dtype.name == "bfloat16" else array
        for name, array in arrays.items()
    }
