"""Arrays in a file: written whole or not at all, read whole or not at all."""

import io
import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mha_numpy.dtypes import Array, float_dtype
from mha_numpy.errors import ConfigError, FileError, describe, one_line

PathLike = str | os.PathLike[str]
PARAMS = "params/"  # where a checkpoint has the params


def as_path(name: str, value: Any) -> Path:
    """Return `value` as a path, or raise a ConfigError if no file can have that name."""
    try:
        path = Path(value)
        if b"\0" in os.fsencode(path):
            raise ValueError
    except (TypeError, ValueError) as reason:
        raise ConfigError(f"{name}: expected a path; got {describe(value)}") from reason
    return path


def write_arrays(path: PathLike, arrays: Mapping[str, Array], *, compressed: bool = False) -> None:
    """Write a .npz file; on any failure the file that was there before stays.

    The arrays first go to `path`.part in the same folder. Once the disk has them all, that file
    replaces `path` in a single step of the file system.
    """
    path = as_path("path", path)
    part = path.parent / (path.name + ".part")
    save = np.savez_compressed if compressed else np.savez
    try:
        try:
            with part.open("wb") as file:
                save(file, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, ValueError) as reason:  # a ValueError is of a name that no file can have
        what = getattr(reason, "strerror", None) or reason
        raise FileError(
            f"{path}: cannot write it: {what}; a file that was there before is unchanged"
        ) from reason


def read_arrays(
    path: PathLike, expected: Mapping[str, Array], *, more: int, folder: str = ""
) -> dict[str, Array]:
    """Read all arrays of a .npz file, and check its checksums; nothing in it is run.

    If the file has a folder of this name, such as "params/", only the arrays in it are read.
    Nothing is unpacked beyond the size of the expected arrays, in any float dtype, plus `more`
    bytes.
    """
    path = as_path("path", path)
    most = more + sum(array.size * np.dtype(np.longdouble).itemsize for array in expected.values())
    try:
        with zipfile.ZipFile(path) as file:
            parts = file.infolist()
            parts = [part for part in parts if part.filename.startswith(folder)] or parts
            if sum(part.file_size for part in parts) > most:
                raise ValueError(f"it unpacks to more than {most:,} bytes")
            return {
                part.filename.removeprefix(folder).removesuffix(".npy"): np.load(
                    io.BytesIO(file.read(part)), allow_pickle=False
                )
                for part in parts
            }
    except OSError as reason:
        raise FileError(
            f"{path}: expected a readable file: {reason.strerror or reason}"
        ) from reason
    except Exception as reason:  # the readers raise anything on foreign bytes
        what = one_line(reason) or type(reason).__name__
        raise FileError(
            f"{path}: expected a whole .npz file of arrays; got a damaged or foreign one: {what}"
        ) from reason


def check_arrays(
    path: PathLike,
    found: Mapping[str, Array],
    expected: Mapping[str, Array],
    *,
    same_dtype: bool = False,
) -> None:
    """Raise a FileError unless the file has the expected names and shapes."""
    if wrong := mismatch(found, expected, same_dtype=same_dtype):
        raise FileError(
            f"{path}: expected {len(expected)} arrays with the layer's names and shapes; "
            f"got {wrong}"
        )


def mismatch(
    found: Mapping[str, Array], expected: Mapping[str, Array], *, same_dtype: bool = False
) -> str:
    """Return what is missing, extra, or of a different shape or kind; "" if all arrays fit."""
    wrong = []
    if missing := [name for name in expected if name not in found]:
        wrong.append(f"missing {_listed(missing)}")
    if extra := [name for name in found if name not in expected]:
        wrong.append(f"extra {_listed(extra)}")
    for name in [name for name in expected if name in found]:
        ours, theirs = expected[name], found[name]
        fits = theirs.shape == ours.shape and theirs.dtype.kind == "f"
        if not fits or (same_dtype and theirs.dtype != ours.dtype):
            wrong.append(f"{name} {_kind(theirs)} for {_kind(ours)}")
    return "; ".join(wrong[:3]) + "; and more" * (len(wrong) > 3)


def save_params(
    path: PathLike, params: Iterable[tuple[str, Array]], dtype: npt.DTypeLike | None = None
) -> None:
    """Write named params; if a float dtype is given, convert to it and compress the file."""
    arrays = dict(params)
    if dtype is not None:
        dtype = float_dtype(dtype)
        for name, array in arrays.items():
            arrays[name] = in_dtype(name, array, dtype)
    for name, array in arrays.items():  # NumPy's files know no bfloat16, and float32 contains it
        arrays[name] = array.astype(np.float32) if array.dtype.kind == "V" else array
    write_arrays(path, arrays, compressed=dtype is not None)


def load_params(path: PathLike, params: Iterable[tuple[str, Array]]) -> None:
    """Read named params into their own arrays and dtypes, all of them or none."""
    expected = dict(params)
    found = read_arrays(path, expected, more=2**20, folder=PARAMS)
    check_arrays(path, found, expected)
    try:
        for name, array in expected.items():
            found[name] = in_dtype(name, found[name], array.dtype)
    except ConfigError as reason:
        raise FileError(f"{path}: {reason}") from reason
    for name, array in expected.items():
        array[...] = found[name]


def in_dtype(name: str, array: Array, dtype: npt.DTypeLike) -> Array:
    """Return an array in a float dtype, or raise a ConfigError if a number does not fit."""
    with np.errstate(over="ignore"):
        found = array.astype(dtype, copy=False)
    if (np.isinf(found) & np.isfinite(array)).any():
        most = np.abs(array[np.isfinite(array)]).max()
        raise ConfigError(
            f"dtype: expected one that holds the numbers of {name}, up to {most:.1e}; "
            f"got {np.dtype(dtype)}"
        )
    return found


def _kind(array: Array) -> str:
    return f"{array.shape} of {array.dtype}"


def _listed(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(one_line, names[:3])) + more
