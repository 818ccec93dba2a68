"""A softmax that never overflows."""

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Task
from mha_numpy.teach.tasks.softmax_with_lse import draw_scores, laws_of_softmax, softmax_with_lse


def softmax(scores: Array, mask: Array | None) -> Array:
    """Turn every row of scores into weights that sum to 1.

    Along the last axis, ``weights_j = exp(scores_j) / sum_l exp(scores_l)``, where the sum runs
    over the visible cells of the row. A hidden cell has weight 0, however large its score. A row
    that sees nothing has weights 0.

    Scores may be in the thousands, above 0 or below, and one row may be far from another, but
    nothing may become NaN.

    Parameters
    ----------
    scores : (..., T_q, T_k)
    mask : bool, with the shape of `scores`, or None
        True = may attend: the cell is visible. None hides nothing.

    Returns
    -------
    weights : (..., T_q, T_k)
    """
    return softmax_with_lse(scores, mask).weights


TASK = Task(
    softmax,
    place=40,
    difficulty=2,
    minutes=20,
    hints=Hints(
        where="Compute exp(1000) and 0 / 0 in NumPy; then read docs/softmax.md, steps 1 to 4. "
        'Notebook 07, "Adding a constant changes nothing" and "A row that may attend to nothing".',
        question="What are the weights of the scores (1000, 1001), and what are those of (0, 1)? "
        "In a row whose cells are all hidden, what is the largest visible score, and what is the "
        "sum of all powers?",
        mistake="NaN in a row that sees nothing",
        fix="masked = np.where(mask, scores, -np.inf); sees_any = mask.any(axis=-1, "
        "keepdims=True); powers = np.exp(masked - np.where(sees_any, masked.max(axis=-1, "
        "keepdims=True), 0)); powers / np.where(sees_any, powers.sum(axis=-1, keepdims=True), 1)\n"
        "and before that, where the mask is None:\n"
        "mask = np.ones(scores.shape, dtype=bool)",
    ),
    draw=draw_scores,
    laws=laws_of_softmax(""),
)
