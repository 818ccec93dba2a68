"""All exercises, in the order in which they are best done."""

from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.teach.exercises.catalogue import (
    analysis,
    backward,
    blocks,
    bridges,
    costs,
    forward,
    grouped,
    grouped_backward,
    heads,
    layer,
    layer_backward,
    loss,
    masks,
    memory,
    museum_gradients,
    museum_heads,
    museum_loops,
    museum_losses,
    museum_masks,
    museum_nan,
    museum_tokens,
    norms,
    positions,
    training,
)
from mha_numpy.teach.exercises.catalogue.break_my_attention import break_my_attention
from mha_numpy.teach.exercises.exercise import Exercise

EXERCISES: list[Exercise] = [
    # forward
    heads.split_heads,
    heads.merge_heads,
    forward.scores,
    forward.softmax,
    forward.softmax_with_lse,
    masks.make_mask,
    forward.one_query,
    forward.attention,
    layer.multi_head,
    layer.cross_attention,
    grouped.grouped_attention,
    masks.masked_attention,
    # backward
    backward.scores_backward,
    backward.softmax_backward,
    backward.dropout_backward,
    backward.attention_backward,
    layer_backward.linear_backward,
    layer_backward.input_gradient,
    layer_backward.multi_head_backward,
    grouped_backward.sum_over_group,
    grouped_backward.grouped_backward,
    # positions, decoding, memory, importance, costs, other layouts
    positions.rope,
    positions.rope_backward,
    memory.decode_step,
    memory.online_attention,
    backward.backward_from_lse,
    analysis.strongest_keys,
    analysis.d_head_gate,
    analysis.head_importance,
    analysis.weights_times_norm,
    analysis.prune_heads,
    costs.cost_table,
    bridges.from_gpt2,
    bridges.to_gpt2,
    # what stands around attention, and training
    norms.layer_norm,
    norms.layer_norm_backward,
    norms.rms_norm,
    blocks.gelu,
    blocks.gelu_backward,
    blocks.embedding_backward,
    loss.cross_entropy,
    loss.cross_entropy_backward,
    training.adam_step,
    training.train_steps,
    training.train_with_adam,
    # the museum: bugs that shipped
    museum_heads.split_heads,
    museum_heads.multi_head,
    museum_heads.attention,
    museum_heads.grouped_attention,
    museum_masks.make_mask,
    museum_masks.masked_attention,
    museum_masks.softmax,
    museum_nan.softmax,
    museum_nan.masked_attention,
    museum_gradients.softmax_backward,
    museum_gradients.attention_backward,
    museum_gradients.multi_head_backward,
    museum_tokens.embedding_backward,
    museum_tokens.cross_entropy,
    museum_losses.train_steps,
    museum_loops.train_steps,
    museum_loops.train_with_adam,
    museum_losses.train_with_adam,
    # tests of one's own
    break_my_attention,
]


def find_exercise(exercise_id: str) -> Exercise:
    """Return the exercise of an id, of its number, or of a file's name.

    Parameters
    ----------
    exercise_id : str

    Returns
    -------
    Exercise

    Raises
    ------
    ConfigError
        There is none; the message names one that is spelled alike.

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
