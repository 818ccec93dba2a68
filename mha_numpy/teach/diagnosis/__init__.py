"""The bank of known mistakes: solutions that make them, and a search that names them."""

from mha_numpy.teach.conventions import CONVENTIONS, Variant, using
from mha_numpy.teach.diagnosis.bank import BANK, MISBEHAVIOURS
from mha_numpy.teach.diagnosis.confusion import find_confusion
from mha_numpy.teach.diagnosis.diagnose import Diagnosis, diagnose
from mha_numpy.teach.diagnosis.fingerprints import fingerprints, right_answers
from mha_numpy.teach.diagnosis.mutants import make
from mha_numpy.teach.task import Hints, Mistake, Task
from mha_numpy.teach.tasks import TASKS, find_task
from mha_numpy.teach.turns import Convention

__all__ = [
    "BANK", "CONVENTIONS", "MISBEHAVIOURS", "TASKS", "Convention", "Diagnosis", "Hints", "Mistake",
    "Task", "Variant", "diagnose", "find_confusion", "find_task", "fingerprints", "make",
    "right_answers", "using",
]  # fmt: skip
