"""Forward mode of attention."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Again, Hints, Inputs, Mistake, Task


def forward_mode(q: Array, k: Array, v: Array, q_dot: Array, k_dot: Array, v_dot: Array) -> Array:
    """Return how fast the heads move while queries, keys and values move.

    Forward was ``heads = softmax(q k^T / sqrt(d_k)) v``, with one weight of each query for each
    key, and no key hidden. A tangent, such as `q_dot`, says how fast each number of its array
    moves.

    Parameters
    ----------
    q : (B, T_q, d_k)
    k : (B, T_k, d_k)
    v : (B, T_k, d_v)
    q_dot : (B, T_q, d_k)
    k_dot : (B, T_k, d_k)
    v_dot : (B, T_k, d_v)

    Returns
    -------
    heads_dot : (B, T_q, d_v)
    """
    scale = 1 / np.sqrt(q.shape[-1])
    scores = scale * (q @ k.swapaxes(1, 2))
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    by_q, by_k = q_dot @ k.swapaxes(1, 2), q @ k_dot.swapaxes(1, 2)
    scores_dot = scale * (by_q + by_k)
    mean = (weights * scores_dot).sum(axis=-1, keepdims=True)
    weights_dot = weights * (scores_dot - mean)
    return weights_dot @ v + weights @ v_dot


def _draw(rng: np.random.Generator) -> list[Inputs]:
    """Draw arrays and tangents: all sizes differ, then a square, then a step of decoding."""
    probes = []
    for B, T_q, T_k, d_k, d_v in ((2, 3, 4, 5, 6), (2, 4, 4, 4, 4), (3, 1, 5, 2, 3)):
        shapes = {"q": (T_q, d_k), "k": (T_k, d_k), "v": (T_k, d_v)}
        arrays = {name: rng.normal(size=(B, *shape)) for name, shape in shapes.items()}
        dots = {f"{name}_dot": rng.normal(size=x.shape) for name, x in arrays.items()}
        probes.append(arrays | dots)
    return probes


MISTAKES: list[Mistake | Again] = [
    Mistake("forward mode: the keys at rest", "the scores move only with the queries: q @ k_dot^T is missing",
            "q_dot @ k^T + q @ k_dot^T", {"(by_q + by_k)": "by_q"}),
    Mistake("forward mode: the queries at rest", "the scores move only with the keys: q_dot @ k^T is missing",
            "q_dot @ k^T + q @ k_dot^T", {"(by_q + by_k)": "by_k"}),
    Mistake("forward mode: the values at rest", "the heads move only with the weights: weights @ v_dot is missing",
            "weights_dot @ v + weights @ v_dot", {"weights_dot @ v + weights @ v_dot": "weights_dot @ v"}),
    Mistake("forward mode: the weights at rest", "the heads move only with the values: weights_dot @ v is missing",
            "weights_dot @ v + weights @ v_dot", {"weights_dot @ v + weights @ v_dot": "weights @ v_dot"}),
    Mistake("forward mode: product of the tangents", "q_dot meets k_dot: a product's tangent has two terms, with one tangent each",
            "q_dot @ k^T + q @ k_dot^T",
            {"by_q, by_k = q_dot @ k.swapaxes(1, 2), q @ k_dot.swapaxes(1, 2)": "by_q, by_k = q_dot @ k_dot.swapaxes(1, 2), 0"}),
    Mistake("forward mode: mean left out", "the row's mean is left out, so rows of weights_dot do not sum to 0",
            "weights * (scores_dot - (weights * scores_dot).sum(-1, keepdims=True))",
            {"(scores_dot - mean)": "scores_dot"}),
    Mistake("forward mode: mean unweighted", "the plain mean of scores_dot is subtracted, not the one weighted by weights",
            "sum weights * scores_dot",
            {"(weights * scores_dot).sum(axis=-1, keepdims=True)": "scores_dot.mean(axis=-1, keepdims=True)"}),
    Mistake("forward mode: mean over the queries", "the mean is taken over the queries instead of the keys", "sum over the last axis",
            {"(weights * scores_dot).sum(axis=-1, keepdims=True)": "(weights * scores_dot).sum(axis=-2, keepdims=True)"}),
    Mistake("forward mode: mean added", "the row's mean is added to scores_dot, not subtracted",
            "weights * (scores_dot - mean)", {"(scores_dot - mean)": "(scores_dot + mean)"}),
    Mistake("forward mode: softmax of the tangents", "softmax is applied to scores_dot, as if it were a function of it",
            "weights * (scores_dot - mean)", {"weights * (scores_dot - mean)": "np.exp(scores_dot) / np.exp(scores_dot).sum(axis=-1, keepdims=True)"}),
    Mistake("forward mode: softmax at rest", "scores_dot is used as weights_dot: softmax is skipped",
            "weights * (scores_dot - mean)", {"weights * (scores_dot - mean)": "scores_dot"}),
    Mistake("forward mode: tangents not scaled", "scores_dot lacks the factor 1 / sqrt(d_k)",
            "scale * (q_dot @ k^T + q @ k_dot^T)", {"scores_dot = scale * ": "scores_dot = "}),
    Mistake("forward mode: scale on one term", "only one of the two terms of scores_dot has the factor 1 / sqrt(d_k)",
            "scale * (q_dot @ k^T + q @ k_dot^T)", {"scale * (by_q + by_k)": "scale * by_q + by_k"}),
    Again("softmax over queries",
          {"scores.max(axis=-1": "scores.max(axis=-2", "powers.sum(axis=-1": "powers.sum(axis=-2"}),
    Mistake("forward mode: heads returned", "the heads themselves are returned, not how fast they move",
            "weights_dot @ v + weights @ v_dot", {"weights_dot @ v + weights @ v_dot": "weights @ v"}),
]  # fmt: skip

TASK = Task(
    forward_mode,
    place=165,
    difficulty=3,
    minutes=20,
    needs=("softmax",),
    hints=Hints(
        where="Differentiate forward line by line, in its own order: docs/forward-mode.md, Seven "
        'steps; notebook 34, "A velocity for every number".',
        question="The weights of a row sum to 1 all the time. So what do their tangents sum to?",
        mistake="forward mode: mean left out",
        fix="weights * (scores_dot - (weights * scores_dot).sum(axis=-1, keepdims=True))",
    ),
    draw=_draw,
    mistakes=MISTAKES,
)
