"""Back through grouped attention."""

from functools import partial

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Task
from mha_numpy.teach.tasks.attention_backward import (
    SHIFT,
    UNSEEN,
    InputGrads,
    attention_backward,
    draw_with_weights,
    slope_of_attention,
)
from mha_numpy.teach.tasks.scores_backward import EULER


def grouped_backward(d_heads: Array, q: Array, k: Array, v: Array, weights: Array) -> InputGrads:
    """Return the gradients of q, k and v, where query heads share keys and values.

    Query head h read key/value head ``g = h // (H // H_kv)``. For each query head, forward was::

        scores = q[:, h] @ k[:, g].swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        weights = softmax(scores)  # along the last axis; with a mask or without
        heads = weights @ v[:, g]

    A hidden cell has weight 0, and in a row that sees nothing all weights are 0.

    Parameters
    ----------
    d_heads : (B, H, T_q, d_v)
    q : (B, H, T_q, d_k)
    k : (B, H_kv, T_k, d_k)
    v : (B, H_kv, T_k, d_v)
    weights : (B, H, T_q, T_k)
        As forward computed them.

    Returns
    -------
    d_q, d_k, d_v : arrays like q, k and v
        Their gradients, in this order.
    """
    return attention_backward(d_heads, q, k, v, weights)


TASK = Task(
    grouped_backward,
    place=210,
    difficulty=4,
    minutes=25,
    needs=("attention-backward", "sum-over-group"),
    hints=Hints(
        where="Two of the three gradients have fewer heads than d_heads: docs/grouped.md, "
        'Backward; notebook 16, "Backward: what was shared is summed".',
        question="If you copied k and v first, one copy for each query head, you could use the "
        "backward that you already have. What does it return for the copies, and what becomes of "
        "copying on the way back?",
        mistake="mean over the group",
        fix="k, v = np.repeat(k, H // H_kv, axis=1), np.repeat(v, H // H_kv, axis=1)\n"
        "then attention_backward, and with its d_k:\n"
        "d_k.reshape(B, H_kv, H // H_kv, T_k, -1).sum(axis=2)\n"
        "and d_v in the same way; d_q stays as it is",
    ),
    returns="tuple[Array, Array, Array]",
    draw=partial(draw_with_weights, rect=(2, 6, 3), square=(3, 6, 2)),
    laws=[UNSEEN, SHIFT, EULER],
    slope=slope_of_attention,
)
