"""Nested inputs and gradients, read as flat dicts from a dotted name to an array."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array, is_float


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """Return every leaf of nested dicts, tuples and lists under its dotted name."""
    parts = children(tree)
    if parts is None:
        return {path: tree}
    found: dict[str, Any] = {}
    for name, child in parts.items():
        found.update(leaves(child, f"{path}.{name}" if path else name))
    return found


def replaced(tree: Any, new: Mapping[str, Array], path: str = "") -> Any:
    """Return a copy of the tree in which the leaves named in `new` are replaced."""
    parts = children(tree)
    if parts is None:
        return new.get(path, tree)
    parts = {
        name: replaced(child, new, f"{path}.{name}" if path else name)
        for name, child in parts.items()
    }
    if isinstance(tree, Mapping):
        return parts
    if hasattr(tree, "_make"):
        return tree._make(parts.values())
    return type(tree)(parts.values())


def without_d(name: str) -> str:
    """Return the name of the array that a gradient belongs to: "d_params.w_q" -> "params.w_q"."""
    return ".".join(part.removeprefix("d_") for part in name.split("."))


def is_float_array(leaf: Any) -> bool:
    """Return whether a leaf can be differentiated with respect to."""
    return isinstance(leaf, (np.ndarray, np.generic)) and is_float(leaf.dtype)


def children(tree: Any) -> dict[str, Any] | None:
    """Return a container's children by name, or None for a leaf."""
    if isinstance(tree, Mapping):
        return {str(name): child for name, child in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_asdict"):
        return dict(tree._asdict())
    if isinstance(tree, (tuple, list)):
        return {str(i): child for i, child in enumerate(tree)}
    return None
