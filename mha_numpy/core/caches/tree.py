"""Trees of drafted tokens: several guesses at how a text goes on, checked in one forward."""

from typing import Any

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array, as_integer_array
from mha_numpy.errors import ConfigError, ShapeError


def tree_mask(parents: Array, past: int = 0) -> Array:
    """Let each drafted token see the past, its ancestors and itself.

    Parameters
    ----------
    parents : (T,) int array
        The token before each token of the tree: an earlier one, or -1 if it follows the past.
    past : int
        Number of tokens before the tree, which a KV cache has.

    Returns
    -------
    (T, past + T) bool array

    Notes
    -----
    Source: Miao et al. 2023, *SpecInfer*, section 4. More: ``docs/caches.md``.

    Examples
    --------
    >>> tree_mask([-1, 0, 0, 1], past=2).astype(int)  # 0 is followed by 1 or 2, and 1 by 3
    array([[1, 1, 1, 0, 0, 0],
           [1, 1, 1, 1, 0, 0],
           [1, 1, 1, 0, 1, 0],
           [1, 1, 1, 1, 0, 1]])
    """
    parents = _check_parents(parents)
    mask = np.eye(len(parents), dtype=bool)
    for token, parent in enumerate(parents):
        if parent >= 0:
            mask[token] |= mask[parent]
    return np.pad(mask, ((0, 0), (check_count("past", past, least=0), 0)), constant_values=True)


def tree_positions(parents: Array, past: int = 0) -> Array:
    """Return the position of each drafted token in its text: the past and its depth in the tree.

    Parameters
    ----------
    parents, past
        As for `tree_mask`.

    Returns
    -------
    (T,) int array

    Examples
    --------
    >>> tree_positions([-1, 0, 0, 1], past=2)
    array([2, 3, 3, 4])
    """
    return tree_mask(parents, past).sum(axis=-1) - 1


def accepted_path(parents: Array, ids: Array, chosen: Array) -> Array:
    """Return the tokens of the tree that the model would have written itself, root to leaf.

    Parameters
    ----------
    parents : (T,) int array
        As for `tree_mask`. Token 0 is the root and accepted: the last token of the text, whose keys
        no KV cache has yet.
    ids : (T,) int array
        The drafted entries of the vocabulary.
    chosen : (T,) int array
        What the model writes after each of them, by one forward over the tree.

    Returns
    -------
    (n,) int array
        Places in the tree, at least the root's. ``chosen[path]`` continues the text by n tokens,
        and ``kv_cache.keep([*range(past), *(past + path)])`` forgets the others.

    Notes
    -----
    If `chosen` is the likeliest token, the text is exactly the one without drafts. Source: Miao et
    al. 2023, *SpecInfer*, section 4 (VerifyGreedy).

    Examples
    --------
    >>> accepted_path([-1, 0, 0, 2], ids=[5, 8, 6, 7], chosen=[6, 1, 7, 4])  # 6, 7 and then 4
    array([0, 2, 3])
    """
    parents = _check_parents(parents)
    ids, chosen = _as_row("ids", ids), _as_row("chosen", chosen)
    for name, row in {"ids": ids, "chosen": chosen}.items():
        if row.shape != parents.shape:
            raise ShapeError(
                f"{name}: expected (T={len(parents)},) to match parents; got {row.shape}"
            )
    if not len(parents) or (parents[1:] < 0).any():
        raise ConfigError(
            "parents: expected one root, token 0, and -1 for no other; got "
            f"{int((parents < 0).sum())} roots"
        )
    path = [0]
    for token in range(1, len(parents)):  # parents come before their children
        if parents[token] == path[-1] and ids[token] == chosen[path[-1]]:
            path.append(token)
    return np.array(path)


def _as_row(name: str, value: Any) -> Array:
    is_empty = isinstance(value, (list, tuple)) and not value  # which NumPy takes for floats
    row = as_integer_array(
        name, np.zeros(0, int) if is_empty else value, "a (T,) array of integers"
    )
    if row.ndim != 1:
        raise ShapeError(f"{name}: expected (T,); got {row.shape}")
    return row


def _check_parents(parents: Any) -> Array:
    """Return the parents, each an earlier token or -1, or raise an error."""
    parents = _as_row("parents", parents)
    wrong = np.flatnonzero((parents < -1) | (parents >= np.arange(len(parents))))
    if wrong.size:
        token = wrong[0]
        raise ConfigError(
            f"parents: expected an earlier token, or -1 for none, before each one; "
            f"got {parents[token]} for token {token}"
        )
    return parents
