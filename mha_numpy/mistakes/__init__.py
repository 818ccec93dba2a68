"""The bank of known mistakes: an implementation that makes them, and one that names them."""

from mha_numpy.mistakes.answers import fingerprints, right_answers
from mha_numpy.mistakes.confusion import find_confusion
from mha_numpy.mistakes.conventions import CONVENTIONS, Convention
from mha_numpy.mistakes.diagnose import Diagnosis, diagnose
from mha_numpy.mistakes.families import BANK, PIECES, find_piece
from mha_numpy.mistakes.make import make
from mha_numpy.mistakes.manners import MANNERS
from mha_numpy.mistakes.mistake import Mistake
from mha_numpy.mistakes.piece import Piece
from mha_numpy.mistakes.using import Variant, using

__all__ = [
    "BANK", "CONVENTIONS", "MANNERS", "PIECES", "Convention", "Diagnosis", "Mistake", "Piece",
    "Variant", "diagnose", "find_confusion", "find_piece", "fingerprints", "make", "right_answers",
    "using",
]  # fmt: skip
