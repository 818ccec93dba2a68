"""All exercises, in the recommended order."""

from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.teach.exercises import break_my_attention
from mha_numpy.teach.exercises.exercise import Exercise, exercise_of
from mha_numpy.teach.exercises.museum import MUSEUM
from mha_numpy.teach.tasks import TASKS

EXERCISES = [*map(exercise_of, TASKS.values()), *MUSEUM, break_my_attention.EXERCISE]


def find_exercise(exercise_id: str) -> Exercise:
    """Return an exercise by its id, its number, or its file's name.

    Parameters
    ----------
    exercise_id : str

    Returns
    -------
    Exercise

    Examples
    --------
    >>> find_exercise("softmax-backward").title
    'Back through softmax'
    >>> find_exercise("4").id, find_exercise("04_softmax.py").id
    ('softmax', 'softmax')
    """
    by_id = {exercise.id: exercise for exercise in EXERCISES}
    asked = str(exercise_id).removesuffix(".py")
    number, _, name = asked.partition("_") if asked[:1].isdigit() else ("", "", asked)
    if not name and number.isdecimal() and 1 <= int(number) <= len(EXERCISES):
        return EXERCISES[int(number) - 1]
    if name.replace("_", "-") in by_id:
        return by_id[name.replace("_", "-")]
    meant = did_you_mean(str(exercise_id), by_id) or "`mha-numpy exercises` lists them"
    raise ConfigError(f"id: expected the id of an exercise; got {exercise_id!r}; {meant}")
