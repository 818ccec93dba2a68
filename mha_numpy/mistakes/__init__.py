"""The bank of known mistakes: an implementation that makes them, and one that names them."""

from mha_numpy.mistakes.bank import BANK, MANNERS, Mistake
from mha_numpy.mistakes.confusion import find_confusion
from mha_numpy.mistakes.diagnose import Diagnosis, diagnose, fingerprints, right_answers
from mha_numpy.mistakes.make import make
from mha_numpy.mistakes.pieces import PIECES, Piece, find_piece

__all__ = [
    "BANK", "MANNERS", "PIECES", "Diagnosis", "Mistake", "Piece", "diagnose", "find_confusion",
    "find_piece", "fingerprints", "make", "right_answers",
]  # fmt: skip
