"""Back through the scores."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import normal
from mha_numpy.teach.task import Hints, Mistake, Slope, Task, same_sum


class ScoresGrads(NamedTuple):
    """Gradients of q and k."""

    d_q: Array
    d_k: Array


def scores_backward(d_scores: Array, q: Array, k: Array) -> ScoresGrads:
    """Return the gradients of q and k, from the gradient of their scores.

    Forward was ``scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])``, separately for every
    sequence and head. There may be fewer or more queries than keys.

    Parameters
    ----------
    d_scores : (B, H, T_q, T_k)
    q : (B, H, T_q, d_k)
    k : (B, H, T_k, d_k)

    Returns
    -------
    d_q, d_k : arrays like q and k
        Their gradients, in this order.
    """
    return through_scores(d_scores, q, k)


def through_scores(d_scores: Array, q: Array, k: Array) -> ScoresGrads:
    """Multiply by the other factor; the scale appears in both."""
    scaled = d_scores / np.sqrt(q.shape[-1])
    d_q = scaled @ k
    d_k = scaled.swapaxes(-1, -2) @ q
    return ScoresGrads(d_q, d_k)


EULER = same_sum("q", "k")  # that of d_scores * scores


MISTAKES = [
    Mistake("scale left out of backward",
            "d_q and d_k are too large by the root of a head's width: the scale is missing in both",
            "scale * d_scores @ k", {"d_scores / np.sqrt(q.shape[-1])": "d_scores"}),
    Mistake("scale left out of d_q", "d_q is too large by the root of a head's width: its scale is missing",
            "scale * d_scores @ k", {"d_q = scaled": "d_q = d_scores"}),
    Mistake("scale left out of d_k", "d_k is too large by the root of a head's width: its scale is missing",
            "scale * d_scores.T @ q", {"d_k = scaled": "d_k = d_scores"}),
    Mistake("scale twice in backward",
            "d_q and d_k are too small by the root of a head's width: the scale is applied twice, or its square is used",
            "scale once: in d_scores or in d_q and d_k",
            {"d_scores / np.sqrt(q.shape[-1])": "d_scores / q.shape[-1]"}),
    Mistake("scale inverted in backward", "d_q and d_k are multiplied by the root of a head's width instead of divided by it",
            "scale * d_scores @ k, with scale = 1/sqrt(d_k)",
            {"d_scores / np.sqrt(q.shape[-1])": "d_scores * np.sqrt(q.shape[-1])"}),
    Mistake("sign of d_q", "d_q has the wrong sign", "scale * d_scores @ k", {"ScoresGrads(d_q": "ScoresGrads(-d_q"}),
    Mistake("sign of d_k", "d_k has the wrong sign", "scale * d_scores.T @ q", {" d_k)\n": " -d_k)\n"}),
    Mistake("d_q and d_k swapped", "d_q and d_k are swapped",
            "d_q = scale * d_scores @ k, d_k = scale * d_scores.T @ q",
            {"ScoresGrads(d_q, d_k)": "ScoresGrads(d_k, d_q)"}),
    Mistake("d_q made from q", "d_q is computed from q instead of k", "scale * d_scores @ k", {"@ k\n": "@ q\n"}),
    Mistake("d_k made from k", "d_k is computed from k instead of q", "scale * d_scores.T @ q", {"@ q\n": "@ k\n"}),
    Mistake("d_scores not transposed", "d_scores is not transposed in d_k",
            "d_scores.swapaxes(-1, -2) @ q", {"scaled.swapaxes(-1, -2)": "scaled"}),
    Mistake("everything divided by B", "all gradients are divided by the batch size",
            "a mean over the batch belongs to the loss, not to the layer",
            {"return through_scores(d_scores,": "return through_scores(d_scores / len(d_scores),"}),
]  # fmt: skip

TASK = Task(
    scores_backward,
    place=130,
    difficulty=2,
    minutes=10,
    needs=("scores",),
    hints=Hints(
        where="The scores are a matrix product with a number in front: docs/attention.md, "
        'step 1; notebook 06, "The scale in backward".',
        question="Take one query and two keys, so that the query is used in both scores. What was "
        "it multiplied by in each? Its gradient is a sum of two vectors: which ones, and with "
        "which factors?",
        mistake="scale left out of backward",
        fix="scale = 1 / np.sqrt(q.shape[-1]); d_q = scale * d_scores @ k; "
        "d_k = scale * d_scores.swapaxes(-1, -2) @ q",
    ),
    returns="tuple[Array, Array]",
    draw=lambda rng: [  # all sizes different, a square, more queries than keys, single ones
        normal(rng, d_scores=(B, H, T_q, T_k), q=(B, H, T_q, d_k), k=(B, H, T_k, d_k))
        for B, H, T_q, T_k, d_k in (
            (2, 3, 5, 7, 4),
            (3, 2, 5, 5, 5),
            (1, 4, 6, 2, 3),
            (4, 1, 1, 3, 2),
        )
    ],
    laws=[EULER],
    slope=lambda inputs: Slope(
        lambda q, k: q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]),
        {"q": inputs["q"], "k": inputs["k"]},
        inputs["d_scores"],
    ),
    mistakes=MISTAKES,
)
