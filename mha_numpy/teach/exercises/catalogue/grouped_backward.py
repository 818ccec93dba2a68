"""Backward passes where several query heads share one key/value head."""

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "sum-over-group",
    title="What a shared head collects",
    difficulty=1,
    minutes=5,
    needs=("grouped-attention",),
    hints=Hints(
        where="Look at the head axis, axis 1, on which neighbours share: docs/grouped.md, "
        'Backward; notebook 16, "Backward: what was shared is summed".',
        question="Four query heads, two key/value heads: which query heads read key/value head 0? "
        "Their gradients are 2 and 5: what is the gradient of the head that both read?",
        mistake="gradients summed as if tiled",
        fix="d_per_query_head.reshape(B, num_kv_heads, H // num_kv_heads, T, d).sum(axis=2)",
    ),
)
def sum_over_group(d_per_query_head: Array, num_kv_heads: int) -> Array:
    """Return the gradient of each key/value head, summed over its query heads.

    Forward let query head h read key/value head h // G, with ``G = H // num_kv_heads``. Backward
    has computed, for each query head, the gradient of the keys (or values) that it read.

    Parameters
    ----------
    d_per_query_head : (B, H, T, d)
    num_kv_heads : int
        H_kv, a divisor of H; 1 and H are possible.

    Returns
    -------
    d_shared : (B, H_kv, T, d)
    """
    raise NotImplementedError


@exercise(
    "grouped-backward",
    title="Back through grouped attention",
    difficulty=4,
    minutes=25,
    needs=("attention-backward", "sum-over-group"),
    hints=Hints(
        where="Two of the three gradients have fewer heads than d_heads: docs/grouped.md, "
        'Backward; notebook 16, "Backward: what was shared is summed".',
        question="If k and v were copied first, one copy for each query head, you could use the "
        "backward that you have. What does it return for the copies, and what does copying do on "
        "the way back?",
        mistake="mean over the group",
        fix="k, v = np.repeat(k, H // H_kv, axis=1), np.repeat(v, H // H_kv, axis=1)\n"
        "then attention_backward, and of its d_k:\n"
        "d_k.reshape(B, H_kv, H // H_kv, T_k, -1).sum(axis=2)\n"
        "and d_v likewise; d_q stays",
    ),
)
def grouped_backward(
    d_heads: Array, q: Array, k: Array, v: Array, weights: Array
) -> tuple[Array, Array, Array]:
    """Return the gradients of q, k and v, where query heads share keys and values.

    Query head h read key/value head ``g = h // (H // H_kv)``. Forward was, for each query head::

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
    raise NotImplementedError
