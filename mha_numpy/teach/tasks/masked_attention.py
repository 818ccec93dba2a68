"""Attention with everything in it."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import random_mask
from mha_numpy.teach.task import Hints, Inputs, Task
from mha_numpy.teach.tasks.attention import MEANS, attend, draw_with_large_scores
from mha_numpy.teach.tasks.grouped_attention import OF_ONE_HEAD


def masked_attention(q: Array, k: Array, v: Array, mask: Array, softcap: float | None) -> Array:
    """Attend under a mask, with fewer key/value heads than query heads, and with a softcap.

    The scores are ``q k^T / sqrt(d_k)``. If `softcap` is a number c, they become
    ``c * tanh(scores / c)``; None leaves them as they are. The weights of a query are the softmax
    of its scores over the keys that the mask lets it see; hidden keys have weight 0. Each query
    returns the mean of the values, weighted by its weights, and 0 if it sees nothing.

    Query head h reads key/value head ``h // G``, where ``G = H // H_kv``. Scores may be large, but
    nothing may become NaN.

    Parameters
    ----------
    q : (B, H, T_q, d_k)
    k : (B, H_kv, T_k, d_k)
    v : (B, H_kv, T_k, d_v)
        H_kv divides H.
    mask : (B, 1, T_q, T_k) bool
        True = may attend; the same for all heads.
    softcap : float or None

    Returns
    -------
    heads : (B, H, T_q, d_v)
    """
    return attend(q, k, v, mask, softcap).heads


def _draw_masked(rng: np.random.Generator) -> list[Inputs]:
    """Draw masks with queries, keys and values, and a softcap for the square."""
    probes = []
    drawn = draw_with_large_scores(rng, rect=(2, 6, 3), square=(6, 6, 2))
    for inputs, softcap in zip(drawn, (None, 1.5, None, 0.7, None), strict=True):
        B, T_q, T_k = len(inputs["q"]), inputs["q"].shape[2], inputs["k"].shape[2]
        mask = random_mask(rng, (B, 1, T_q, T_k))
        probes.append({**inputs, "mask": mask, "softcap": softcap})
    # in row 0 the first three keys score highest: a maximum that lies far above what is visible
    probes[2]["mask"][1, 0, 0] = [False, False, False, True, True, False]
    return probes


TASK = Task(
    masked_attention,
    place=120,
    difficulty=3,
    minutes=30,
    needs=("masks", "softmax", "grouped-attention"),
    hints=Hints(
        where="Look at the order of the steps: docs/attention.md, Seven steps. Then ask what each does "
        "to a hidden score of -inf, and what -inf - -inf is.",
        question="A cell is hidden, and softcap is 2. What is its score if the cap comes after "
        "the mask, and what if it comes before? And what is the largest score of a row that sees "
        "nothing?",
        mistake="softcap after the mask",
        fix="where there is a softcap:\n"
        "scores = softcap * np.tanh(scores / softcap)\n"
        "then, before your softmax:\n"
        "scores = np.where(mask, scores, -np.inf)",
    ),
    draw=_draw_masked,
    laws=[MEANS],
    reactions=[OF_ONE_HEAD],
)
