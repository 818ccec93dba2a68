"""The bank of known mistakes: an implementation that makes them, and one that names them."""

from mha_numpy.mistakes.bank import BANK, Mistake
from mha_numpy.mistakes.diagnose import Diagnosis, diagnose, fingerprints, right_answers
from mha_numpy.mistakes.pieces import PIECES, Piece

__all__ = [
    "BANK", "PIECES", "Diagnosis", "Mistake", "Piece", "diagnose", "fingerprints",
    "right_answers",
]  # fmt: skip
