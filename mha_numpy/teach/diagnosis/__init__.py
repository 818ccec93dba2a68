"""The bank of known mistakes: an implementation that makes them, and one that names them."""

from mha_numpy.teach.diagnosis.answers import fingerprints, right_answers
from mha_numpy.teach.diagnosis.confusion import find_confusion
from mha_numpy.teach.diagnosis.conventions import CONVENTIONS, Convention
from mha_numpy.teach.diagnosis.diagnose import Diagnosis, diagnose
from mha_numpy.teach.diagnosis.families import BANK, PIECES, find_piece
from mha_numpy.teach.diagnosis.make import make
from mha_numpy.teach.diagnosis.manners import MANNERS
from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Piece
from mha_numpy.teach.diagnosis.using import Variant, using

__all__ = [
    "BANK", "CONVENTIONS", "MANNERS", "PIECES", "Convention", "Diagnosis", "Mistake", "Piece",
    "Variant", "diagnose", "find_confusion", "find_piece", "fingerprints", "make", "right_answers",
    "using",
]  # fmt: skip
