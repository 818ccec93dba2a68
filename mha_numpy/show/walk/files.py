"""The walk's files: reads an array of yours, writes pictures and JSON."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, MhaError
from mha_numpy.show.walk.result import Walk

PICTURES = ("shape-film", "backward-film", "weights")
LARGEST = 1e100  # of a number in a file: beyond it, squares overflow
FILES = [f"{stem}.svg" for stem in PICTURES] + ["trace.json"]


def read_input(path: Path, dim: int | None) -> Array:
    """Read a (T, D) or (B, T, D) array of numbers as (B, T, D) float64.

    An .npz file must hold one array, or one named x.
    """
    try:
        with path.open("rb") as stream:
            loaded = _one_array(np.load(stream, allow_pickle=False), path)
    except OSError as error:
        raise ConfigError(f"input: cannot read {path}: {error.strerror}") from error
    except MhaError:
        raise
    except (EOFError, ValueError, zipfile.BadZipFile) as error:
        reason = "not an array of numbers that np.save wrote"
        raise ConfigError(f"input: cannot read {path} as .npy or .npz: {reason}") from error
    if loaded.dtype.kind not in "fiu" or loaded.ndim not in (2, 3) or 0 in loaded.shape:
        raise ConfigError(
            f"input: expected numbers of shape (T, D) or (B, T, D) in {path}; "
            f"got {loaded.shape} {loaded.dtype}"
        )
    if dim is not None and dim != loaded.shape[-1]:
        raise ConfigError(f"dim: expected none, or D={loaded.shape[-1]} of {path}; got {dim}")
    if not (np.abs(loaded) <= LARGEST).all():
        raise ConfigError(f"input: expected numbers up to {LARGEST:.0e} in {path}; got others")
    return loaded.astype(np.float64).reshape((1,) * (3 - loaded.ndim) + loaded.shape)


def _one_array(loaded: Any, path: Path) -> Array:
    """Return the array of an .npy file, or the one that an .npz file is about."""
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        return np.asarray(loaded)
    names = loaded.files
    if "x" not in names and len(names) != 1:
        raise ConfigError(f"input: expected one array or one named x in {path}; got {names}")
    return np.asarray(loaded["x" if "x" in names else names[0]])


def save(seen: Walk, folder: Path) -> list[Path]:
    """Write the pictures as SVG and the trace as JSON; return the paths."""
    from mha_numpy.show.pictures import backward_film, shape_film, weights_by_head
    from mha_numpy.show.pictures.save import save_all

    names: dict[str, Any] = {"tokens": seen.tokens, "source_tokens": seen.source_tokens}
    axes: dict[str, Any] = {"query_name": seen.query_name, "key_name": seen.key_name}
    figures = {
        "shape-film": shape_film(seen.trace, **names, note=seen.note),
        "backward-film": backward_film(seen.trace, note=seen.page_note),
        "weights": weights_by_head(
            seen.weights, *names.values(), visible=seen.visible, **axes, note=seen.note
        ),
    }
    described = {
        **names,
        "model": seen.model,
        "layer": repr(seen.layer),
        "is_causal": seen.is_causal,
        "sizes": seen.trace.sizes,
        "steps": [step.as_dict(values=True) for step in seen.trace],
    }
    return save_all(folder, figures, {"trace.json": json.dumps(described)})
