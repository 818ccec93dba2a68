"""The functions that people write, and inputs on which mistakes show themselves.

Sizes are pairwise different, as equal ones hide transposes, and one square case is there for those
that only a square lets run; upstream gradients are random, biases are not zero, and where there is
a mask, one row sees nothing and one probe has large scores.
"""

from mha_numpy.errors import ConfigError
from mha_numpy.mistakes.pieces.backward import BACKWARD
from mha_numpy.mistakes.pieces.forward import FORWARD
from mha_numpy.mistakes.pieces.layer import LAYER
from mha_numpy.mistakes.pieces.others import OTHERS
from mha_numpy.mistakes.pieces.piece import Inputs, Piece

PIECES = {piece.name: piece for piece in [*FORWARD, *BACKWARD, *LAYER, *OTHERS]}

__all__ = ["PIECES", "Inputs", "Piece", "find_piece"]


def find_piece(name: str) -> Piece:
    """Return one of the functions by its name; raise a ConfigError if there is none."""
    if name not in PIECES:
        raise ConfigError(f"piece: expected one of {', '.join(PIECES)}; got {name!r}")
    return PIECES[name]
