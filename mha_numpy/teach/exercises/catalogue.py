"""All exercises, in the order in which they are best done."""

from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.teach.exercises import break_my_attention
from mha_numpy.teach.exercises.exercise import Exercise, exercise_of
from mha_numpy.teach.exercises.museum import MUSEUM
from mha_numpy.teach.tasks import TASKS

ORDER = """
split_heads merge_heads scores softmax softmax_with_lse make_mask one_query attention multi_head
cross_attention grouped_attention masked_attention
scores_backward softmax_backward dropout_backward attention_backward linear_backward
input_gradient multi_head_backward sum_over_group grouped_backward
rope rope_backward decode_step online_attention backward_from_lse strongest_keys d_head_gate
head_importance weights_times_norm prune_heads cost_table from_gpt2 to_gpt2
layer_norm layer_norm_backward rms_norm gelu gelu_backward embedding_backward cross_entropy
cross_entropy_backward adam_step train_steps train_with_adam
"""
EXERCISES: list[Exercise] = [
    *(exercise_of(TASKS[name]) for name in ORDER.split()),
    *MUSEUM,
    break_my_attention.EXERCISE,
]


def find_exercise(exercise_id: str) -> Exercise:
    """Return the exercise of an id, of its number, or of a file's name.

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
