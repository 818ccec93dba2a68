"""The cases as files that any language can read."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy.conformance.case import TOLERANCES, Case, solve
from mha_numpy.conformance.cases import VERSION, cases
from mha_numpy.conformance.words import WORDS
from mha_numpy.errors import ConfigError, FileError

HERE = Path(__file__).parent
FORMAT = "mha_numpy conformance vectors"
UNBOUNDED = -1  # of a window, in npz, which has no null


def write_vectors(folder: str | os.PathLike[str]) -> Path:
    """Write all cases as JSON and npz, with a manifest, a schema and a README.

    Parameters
    ----------
    folder : str or path
        A new or empty folder, or one that this function wrote before.

    Returns
    -------
    Path
        Of the manifest.

    Raises
    ------
    FileError
        If the folder cannot be written.

    Notes
    -----
    Each run on a machine writes the same bytes. On another processor, the last digit of an
    expected number may differ. The files have about 640 kB.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     manifest = json.loads(write_vectors(folder).read_text())
    >>> manifest["version"], manifest["cases"][0]["json"]
    (1, 'cases/plain.json')
    """
    folder = Path(folder)
    _check_ours(folder)
    try:
        (folder / "cases").mkdir(parents=True, exist_ok=True)
        for name, text in _texts().items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
        for case in cases():
            np.savez(folder / "cases" / f"{case.name}.npz", **_arrays_of(case))
    except OSError as error:
        raise FileError(f"folder: cannot write to {folder}: {error.strerror}") from error
    return folder / "manifest.json"


def _check_ours(folder: Path) -> None:
    """Raise an error rather than put a README into a folder of other things."""
    try:
        is_foreign = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        manifest = folder / "manifest.json"
        if is_foreign and FORMAT not in (manifest.read_text("utf-8") if manifest.exists() else ""):
            raise ConfigError(f"folder: expected a new or empty one; {folder} has other files")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"folder: cannot read {folder}: {error}") from error


def _texts() -> dict[str, str]:
    """Return the content of each text file, by its path in the folder."""
    schema = json.loads((HERE / "schema.json").read_text("utf-8"))
    words = {name: {"enum": [*known]} for name, known in WORDS.items()}
    schema["$defs"]["conventions"]["properties"] = words
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "words": WORDS,
        "cases": [_entry(case) for case in cases()],
    }
    texts = {f"cases/{case.name}.json": to_json(_contents(case)) for case in cases()}
    texts["schema.json"] = json.dumps(schema, indent=2) + "\n"
    texts["README.md"] = (HERE / "vectors.md").read_text("utf-8")
    return texts | {"manifest.json": to_json(manifest)}


def _entry(case: Case) -> dict[str, Any]:
    """Return the entry of a case in the manifest."""
    arguments = [name for name in (*case.inputs, *case.options) if name not in ("q", "k", "v")]
    path = f"cases/{case.name}"
    return {
        "name": case.name,
        "about": case.about,
        "arguments": arguments,
        "conventions": case.conventions,
        "json": f"{path}.json",
        "npz": f"{path}.npz",
    }


def _contents(case: Case) -> dict[str, Any]:
    """Return the JSON of a case."""
    return {
        "name": case.name,
        "about": case.about,
        "version": VERSION,
        "conventions": case.conventions,
        "tolerances": TOLERANCES,
        "inputs": _encoded(case.inputs),
        "options": _encoded(case.options),
        "d_out": _encode(case.d_out),
        "expected": _encoded(solve(case)),
    }


def _encoded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _encode(value) for name, value in values.items()}


def _encode(value: Any) -> Any:
    """Return an array as JSON has it; everything else is JSON already."""
    if not isinstance(value, np.ndarray):
        return value
    data = [_portable(number) for number in value.ravel().tolist()]
    return {"dtype": value.dtype.name, "shape": [*value.shape], "data": data}


def _portable(number: Any) -> Any:
    """Return a number of JSON, which has no NaN and no infinity, or the word for it."""
    if number != number:
        return "NaN"
    return {np.inf: "Infinity", -np.inf: "-Infinity"}.get(number, number)


def _arrays_of(case: Case) -> dict[str, Any]:
    """Return the arrays of an npz file."""
    options = dict(case.options)
    if "window" in options:
        options["window"] = [UNBOUNDED if side is None else side for side in options["window"]]
    arrays = {name: np.asarray(value) for name, value in options.items()}
    return {**case.inputs, **arrays, "d_out": case.d_out, **solve(case)}


def to_json(value: Any, depth: int = 2, indent: str = "") -> str:
    """Return JSON in which each array, and each entry of a list, has one line."""
    inner = indent + " "
    if depth and isinstance(value, dict) and value and "data" not in value:
        parts = [f"{json.dumps(k)}: {to_json(v, depth - 1, inner)}" for k, v in value.items()]
    elif depth and isinstance(value, list) and value:
        parts = [json.dumps(entry) for entry in value]
    else:
        return json.dumps(value, allow_nan=False)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    text = f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{closing}"
    return text if indent else text + "\n"
