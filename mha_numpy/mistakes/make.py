"""make: a function of the bank that makes the mistakes asked for."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.errors import ConfigError
from mha_numpy.mistakes.bank import ACCUMULATES, BANK, FLOAT32, IN_PLACE
from mha_numpy.mistakes.pieces import PIECES, find_piece

Function = Callable[..., Any]


def make(piece: str, mistakes: Iterable[str] = ()) -> Function:
    """Return one of the functions that people write, with some mistakes in it.

    Parameters
    ----------
    piece : str
        A key of ``PIECES``.
    mistakes : names of the bank
        Without any, the function is right.

    Returns
    -------
    callable
        Takes what the piece's probes hold, by place or by name.

    Raises
    ------
    ConfigError
        There is no such piece, or no such mistake.

    Examples
    --------
    >>> softmax = make("softmax", ["softmax over queries"])
    >>> softmax(np.zeros((1, 1, 2, 3)), None).sum(axis=-2)
    array([[[1., 1., 1.]]])
    """
    names = frozenset(mistakes)
    unknown = sorted(names - set(BANK))
    if unknown:
        raise ConfigError(f"mistakes: expected names of the bank; got {unknown[0]!r}")
    arguments = list(find_piece(piece).probes()[0])

    def function(*by_place: Any, **by_name: Any) -> Any:
        if len(by_place) > len(arguments):
            raise TypeError(f"{piece}: expected ({', '.join(arguments)})")
        given = dict(zip(arguments, by_place, strict=False)) | by_name
        with np.errstate(all="ignore"):
            return PIECES[piece].write(**given, made=names - set(BEHAVIOURS))

    for name, behave in BEHAVIOURS.items():
        function = behave(function) if name in names else function
    return function


def _narrow(function: Function) -> Function:
    """Compute in float32 and return float64, as if nothing were."""

    def narrowed(*arguments: Any, **named: Any) -> Any:
        narrow = _cast([list(arguments), named], np.float32)
        return _cast(_cast(function(*narrow[0], **narrow[1]), np.float32), np.float64)

    return narrowed


def _cast(tree: Any, dtype: Any) -> Any:
    """Return a tree whose float arrays have another dtype."""
    arrays = {name: leaf for name, leaf in leaves(tree).items() if isinstance(leaf, np.ndarray)}
    floats = {name: leaf.astype(dtype) for name, leaf in arrays.items() if leaf.dtype.kind == "f"}
    return replaced(tree, floats)


def _in_place(function: Function) -> Function:
    """Compute rightly, and leave the first float array doubled."""

    def changing(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        given = [*leaves(list(arguments)).values(), *leaves(named).values()]
        for leaf in given:
            if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" and leaf.flags.writeable:
                leaf *= 2
                break
        return result

    return changing


def _accumulating(function: Function) -> Function:
    """Add to each result those before it, as long as the shapes are the same."""
    kept: dict[str, Any] = {}

    def adding(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        now = {name: np.array(leaf) for name, leaf in leaves(result).items()}
        for name, leaf in now.items():
            before = kept.get(name)
            if before is not None and before.shape == leaf.shape and leaf.dtype.kind == "f":
                now[name] = before + leaf
        kept.update(now)
        return replaced(result, now)

    return adding


BEHAVIOURS: dict[str, Callable[[Function], Function]] = {
    FLOAT32: _narrow,
    IN_PLACE: _in_place,
    ACCUMULATES: _accumulating,
}
