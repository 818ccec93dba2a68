"""One query meets the keys."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Inputs, Reaction, Task, reversed_tokens
from mha_numpy.teach.tasks.attention import MEANS, attend, draw_one_head


def one_query(q: Array, k: Array, v: Array) -> Array:
    """Give a single query a weighted mean of the values.

    The score of key j is ``q . k_j / sqrt(d_k)``. Softmax turns the scores into weights, and the
    result is the sum of ``weight_j * v_j``. Large scores must not overflow.

    Parameters
    ----------
    q : (d_k,)
    k : (T_k, d_k)
    v : (T_k, d_v)

    Returns
    -------
    out : (d_v,)
    """
    return attend(q[None], k, v).heads[0]


def _draw_one_query(rng: np.random.Generator) -> list[Inputs]:
    """Draw a single query with its keys and values; large scores above 0, and below."""
    drawn = draw_one_head(rng)
    return [
        {**inputs, "q": inputs["q"][i]} for inputs in drawn for i in range(len(inputs["q"][:2]))
    ]


TASK = Task(
    one_query,
    place=70,
    difficulty=1,
    minutes=5,
    hints=Hints(
        where="The function needs three lines: the scores, the weights, the mean of the values. "
        'Write the shape next to each. Notebook 01, "By hand".',
        question="With a query of shape (2,) and keys of shape (3, 2), how many scores are there? "
        "What must the weights sum to, and along which axis of the values do you take the mean?",
        mistake="scale missing",
        fix="scores = k @ q / np.sqrt(len(q)); powers = np.exp(scores - scores.max()); "
        "powers / powers.sum() @ v",
    ),
    draw=_draw_one_query,
    laws=[MEANS],
    reactions=[
        Reaction("reversing keys and values together changes nothing", reversed_tokens("k", "v"))
    ],
)
