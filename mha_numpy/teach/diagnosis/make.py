"""make: a function of `right` that makes the mistakes asked for."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from mha_numpy.errors import ConfigError
from mha_numpy.teach.diagnosis.families import BANK, find_piece
from mha_numpy.teach.diagnosis.manners import BEHAVIOURS, Function
from mha_numpy.teach.diagnosis.variant import variant


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
        There is no such piece, or no such mistake, or two of the mistakes are alternatives.

    Examples
    --------
    >>> softmax = make("softmax", ["softmax over queries"])
    >>> softmax(np.zeros((1, 1, 2, 3)), None).sum(axis=-2)
    array([[[1., 1., 1.]]])
    """
    names = set(mistakes)
    unknown = sorted(names - set(BANK))
    if unknown:
        raise ConfigError(f"mistakes: expected names of the bank; got {unknown[0]!r}")
    edited = variant(find_piece(piece).name, sorted(names - set(BEHAVIOURS)))
    if edited is None:
        raise ConfigError(f"mistakes: expected edits of different texts; got {sorted(names)}")

    def function(*by_place: Any, **by_name: Any) -> Any:
        with np.errstate(all="ignore"):
            return edited(*by_place, **by_name)

    for name, behave in BEHAVIOURS.items():
        function = behave(function) if name in names else function
    return function
