"""Query heads that share a key head."""

from functools import partial

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Reaction, Task, moved
from mha_numpy.teach.tasks.attention import MEANS, attend, draw_with_large_scores


def grouped_attention(q: Array, k: Array, v: Array) -> Array:
    """Attend with more query heads than key and value heads.

    H_kv divides H, and ``G = H // H_kv`` neighbouring query heads share a key head and a value
    head: query head h reads number ``h // G`` of both. Query head h returns
    ``softmax(q k^T / sqrt(d_k)) v`` with softmax over the keys. No key is hidden. Large scores
    must not overflow.

    Parameters
    ----------
    q : (B, H, T_q, d_k)
    k : (B, H_kv, T_k, d_k)
    v : (B, H_kv, T_k, d_v)

    Returns
    -------
    heads : (B, H, T_q, d_v)
    """
    return attend(q, k, v).heads


OF_ONE_HEAD = Reaction(  # as a maximum that heads share would
    "scores of the first query head in the thousands change no other head",
    lambda inputs: {
        **inputs,
        "q": np.concatenate([4e3 * inputs["q"][:, :1], inputs["q"][:, 1:]], 1),
    },
    lambda _, arrays: arrays[""][:, 1:],
)

TASK = Task(
    grouped_attention,
    place=110,
    difficulty=2,
    minutes=15,
    needs=("attention",),
    hints=Hints(
        where="Compare the head axis of q with that of k and v: docs/grouped.md, the table of who "
        'reads what. Notebook 16, "Repeat, never tile".',
        question="H = 6 and H_kv = 2: which three query heads read key head 0? Are they "
        "neighbours? And which heads read it after your code has lengthened k?",
        mistake="groups tiled, not repeated",
        fix="np.repeat(k, G, axis=1)\n"
        "and v in the same way; or without a copy, with q and k as:\n"
        "q.reshape(B, H_kv, G, T_q, d_k); k[:, :, None]",
    ),
    draw=partial(draw_with_large_scores, rect=(2, 6, 3), square=(3, 6, 2)),
    laws=[MEANS],
    reactions=[
        Reaction(
            "changing the first value head changes only the first group",
            moved("v", np.s_[:, 0]),
            lambda inputs, arrays: arrays[""][:, inputs["q"].shape[1] // inputs["v"].shape[1] :],
        ),
        OF_ONE_HEAD,
    ],
)
