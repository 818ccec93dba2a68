"""Small tasks that a transformer learns in a minute: the inputs, and the right answers."""

from mha_numpy.models.train.tasks.induction import Induction
from mha_numpy.models.train.tasks.numbers import ENGLISH, GERMAN, Numbers, english, german
from mha_numpy.models.train.tasks.reverse import Reverse
from mha_numpy.models.train.tasks.scenes import Scenes
from mha_numpy.models.train.tasks.text import Text

__all__ = [
    "ENGLISH", "GERMAN", "Induction", "Numbers", "Reverse", "Scenes", "Text", "english", "german",
]  # fmt: skip
