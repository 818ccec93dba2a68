"""Scores: how well a query matches a key."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import normal
from mha_numpy.teach.task import Hints, Mistake, Reaction, Task, moved


def scores(q: Array, k: Array) -> Array:
    """Match every query with every key of its head.

    ``scores[b, h, i, j]`` is the dot product of query i and key j, both of sequence b and head h,
    divided by the square root of d_k.

    Parameters
    ----------
    q : (B, H, T_q, d_k)
    k : (B, H, T_k, d_k)

    Returns
    -------
    scores : (B, H, T_q, T_k)
    """
    scale = 1 / np.sqrt(q.shape[-1])
    return scale * q @ k.swapaxes(-1, -2)


MISTAKES = [
    Mistake("scale missing", "the scale 1/sqrt(d_k) is missing", "divide the scores by np.sqrt(d_k)",
            {"scale = 1 / np.sqrt(q.shape[-1])": "scale = 1.0"}),
    Mistake("scale 1/d_k", "the scores are divided by d_k instead of its root", "divide the scores by np.sqrt(d_k)",
            {"scale = 1 / np.sqrt(q.shape[-1])": "scale = 1 / q.shape[-1]"}),
    Mistake("scale 1/sqrt(D)", "the scores are divided by the root of the width of all heads together",
            "d_k is the width of one head",
            {"scale = 1 / np.sqrt(q.shape[-1])": "scale = 1 / np.sqrt(q.shape[-1] * (q.shape[1] if q.ndim == 4 else 1))"}),
    Mistake("scale 1/sqrt(T_k)", "the scores are divided by the root of the number of keys",
            "d_k is q.shape[-1]",
            {"scale = 1 / np.sqrt(q.shape[-1])": "scale = 1 / np.sqrt(k.shape[-2])"}),
    Mistake("scale times sqrt(d_k)", "the scores are multiplied by sqrt(d_k)", "divide the scores by np.sqrt(d_k)",
            {"scale = 1 / np.sqrt(q.shape[-1])": "scale = np.sqrt(q.shape[-1])"}),
    Mistake("k reshaped, not transposed", "k is reshaped to (d_k, T_k), not transposed", "k.swapaxes(-1, -2)",
            {"scale * q @ k.swapaxes(-1, -2)": "scale * q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])"}),
    Mistake("q and k swapped", "the scores are k q^T, so rows are keys", "q @ k.swapaxes(-1, -2)",
            {"scale * q @ k.swapaxes(-1, -2)": "scale * k @ q.swapaxes(-1, -2)"}),
    Mistake("q and k added", "queries and keys are added instead of multiplied",
            "q @ k.swapaxes(-1, -2)",
            {"scale * q @ k.swapaxes(-1, -2)": "scale * (q[..., :, None, :] + k[..., None, :, :]).sum(axis=-1)"}),
    Mistake("distances for scores", "the scores are minus the distances between queries and keys",
            "a dot product: q @ k.swapaxes(-1, -2)",
            {"scale * q @ k.swapaxes(-1, -2)": "-scale * np.linalg.norm(q[..., :, None, :] - k[..., None, :, :], axis=-1)"}),
    Mistake("scale 2/d_k", "the scores are divided by d_k * 0.5 instead of d_k ** 0.5",
            "np.sqrt(d_k), or d_k ** 0.5",
            {"np.sqrt(q.shape[-1])": "(q.shape[-1] * 0.5)"}),
    Mistake("cosines for scores", "queries and keys are brought to length 1 first, so the scores are cosines",
            "q @ k.swapaxes(-1, -2), of the vectors as they are",
            {"scale * q @ k.swapaxes(-1, -2)": "scale * (q / np.linalg.norm(q, axis=-1, keepdims=True)) @ (k / np.linalg.norm(k, axis=-1, keepdims=True)).swapaxes(-1, -2)"}),
    Mistake("keys with themselves", "a key's score is its product with itself: the query is not used",
            "q @ k.swapaxes(-1, -2)",
            {"scale * q @ k.swapaxes(-1, -2)": "scale * (k * k).sum(axis=-1)[..., None, :] + 0 * q[..., :1]"}),
]  # fmt: skip

TASK = Task(
    scores,
    place=30,
    difficulty=1,
    minutes=5,
    hints=Hints(
        where="Eq. 1 of Vaswani et al. 2017: look at what is inside softmax. If arrays have rank "
        '4, NumPy multiplies the matrices of their last two axes. Notebook 06, "Divide by what?".',
        question="A query and a key have d_k = 64 numbers each, all independent with mean 0 and "
        "variance 1. What is the standard deviation of their dot product? What must you divide by "
        "to make it 1?",
        mistake="scale missing",
        fix="q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])",
    ),
    draw=lambda rng: [  # all sizes different, a square, more queries than keys, single ones
        normal(rng, q=(B, H, T_q, d_k), k=(B, H, T_k, d_k))
        for B, H, T_q, T_k, d_k in (
            (2, 3, 5, 7, 4),
            (2, 4, 3, 3, 3),
            (1, 2, 6, 2, 5),
            (3, 1, 1, 4, 1),
        )
    ],
    reactions=[
        Reaction(
            "changing the last key changes only the last column",
            moved("k", np.s_[:, :, -1]),
            lambda _, arrays: arrays[""][..., :-1],
        )
    ],
    mistakes=MISTAKES,
)
