"""One head."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import draw_heads, draw_odd_heads, large_scores
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Reaction, Task, reversed_tokens
from mha_numpy.teach.tasks.scores import scores
from mha_numpy.teach.tasks.softmax import softmax


def cap(scores: Array, softcap: float | None) -> Array:
    """Bound the scores smoothly."""
    if softcap is None:
        return scores
    return softcap * np.tanh(scores / softcap)


def share(x: Array, num_heads: int) -> Array:
    """Give query head h key/value head h // G: (B, H_kv, T, d) -> (B, H, T, d)."""
    H_kv = x.shape[1]
    if num_heads == H_kv:
        return x
    return np.repeat(x, num_heads // H_kv, axis=1)


class Attended(NamedTuple):
    """Weights and heads, as forward computes them."""

    weights: Array
    heads: Array


def attend(
    q: Array, k: Array, v: Array, mask: Array | None = None, softcap: float | None = None
) -> Attended:
    """Attend, grouped where k has fewer heads; of rank 2 or 4."""
    if q.ndim == 4:
        k, v = share(k, q.shape[1]), share(v, q.shape[1])
    capped = cap(scores(q, k), softcap)
    weights = softmax(capped, mask)
    return Attended(weights, weights @ v)


def attention(q: Array, k: Array, v: Array) -> Array:
    """Give every query a weighted mean of the values.

    Return ``softmax(q k^T / sqrt(d_k)) v`` for one head of one sequence. Each query has one weight
    for each key, and its weights sum to 1. No key is hidden. Large scores must not overflow.

    Parameters
    ----------
    q : (T_q, d_k)
    k : (T_k, d_k)
    v : (T_k, d_v)

    Returns
    -------
    heads : (T_q, d_v)
    """
    return attend(q, k, v).heads


def draw_with_large_scores(
    rng: np.random.Generator, *, rect: tuple[int, int, int], square: tuple[int, int, int]
) -> list[Inputs]:
    """Draw queries, keys and values, some whose scores are large, and odd ones, with one key head.

    `rect` and `square` are B, H, H_kv.
    """
    B, H, H_kv = rect
    q, k = large_scores(rng, (B, H, 4, 4), (B, H_kv, 6, 4))
    large = {"q": q, "k": k, "v": rng.normal(size=(B, H_kv, 6, 5))}
    usual = draw_heads(rng, rect=rect, square=square)
    return [*usual, large, *draw_odd_heads(rng, tall=(1, 4, 1), low=(2, 2, 2))]


def draw_one_head(rng: np.random.Generator) -> list[Inputs]:
    """Draw queries, keys and values of rank 2."""
    probes = draw_with_large_scores(rng, rect=(1, 1, 1), square=(1, 1, 1))
    return [{name: array[0, 0] for name, array in inputs.items()} for inputs in probes]


def _outside(inputs: Inputs, heads: Array) -> Array:
    """Return how far heads lie outside the range of the values that they average."""
    v = inputs["v"]
    if v.ndim == 4:
        v = v.repeat(inputs["q"].shape[1] // v.shape[1], axis=1)
    low = np.minimum(v.min(axis=-2, keepdims=True), 0)  # a row that sees nothing is 0
    high = np.maximum(v.max(axis=-2, keepdims=True), 0)
    return np.maximum(heads - high, 0) + np.maximum(low - heads, 0)


MEANS = Law(
    "heads lie between the smallest and the largest value",
    lambda inputs, arrays: _outside(inputs, arrays[""]),
)

MISTAKES = [
    Mistake("scale after softmax", "the weights are scaled instead of the scores, so rows sum to 1/sqrt(d_k)",
            "divide by np.sqrt(d_k) before softmax",
            {"cap(scores(q, k), softcap)": "cap(scores(q, k) * np.sqrt(q.shape[-1]), softcap)",
             "softmax(capped, mask)": "softmax(capped, mask) / np.sqrt(q.shape[-1])"}),
    Mistake("k and v swapped", "keys and values are swapped", "match with k, mix v",
            {"if q.ndim == 4:": "k, v = v, k\n    if q.ndim == 4:"}),
    Mistake("keys mixed instead of values", "the weights mix the keys instead of the values", "weights @ v",
            {"weights @ v)": "weights @ k)"}),
    Mistake("softcap ignored", "softcap is not used", "softcap * np.tanh(scores / softcap)",
            {"softcap * np.tanh(scores / softcap)": "scores"}),
    Mistake("softcap before the scale", "softcap bounds the scores before they are scaled", "scale, then softcap",
            {"cap(scores(q, k), softcap)": "cap(scores(q, k) * np.sqrt(q.shape[-1]), softcap) / np.sqrt(q.shape[-1])"}),
    Mistake("softcap after the mask",
            "softcap comes after the mask, so a hidden score is -softcap instead of -inf", "softcap, then mask",
            {"cap(scores(q, k), softcap)": "cap(scores(q, k) if softcap is None else hide(scores(q, k), mask), softcap)",
             "softmax(capped, mask)": "softmax(capped, mask if softcap is None else None)"}),
    Mistake("softcap drops the mask", "the mask is ignored whenever there is a softcap", "apply both: softcap, then mask",
            {"softmax(capped, mask)": "softmax(capped, mask if softcap is None else None)"}),
    Mistake("softcap without its factor", "the scores become tanh(scores / softcap): the factor softcap is missing",
            "softcap * np.tanh(scores / softcap)", {"softcap * np.tanh": "np.tanh"}),
    Mistake("softcap without its divisor",
            "the scores become softcap * tanh(scores): they are not divided by softcap first",
            "softcap * np.tanh(scores / softcap)", {"np.tanh(scores / softcap)": "np.tanh(scores)"}),
    Mistake("softcap by clipping", "the scores are clipped at softcap",
            "softcap * np.tanh(scores / softcap) bends smoothly",
            {"softcap * np.tanh(scores / softcap)": "np.clip(scores, -softcap, softcap)"}),
    Mistake("softmax left out", "the scores themselves mix the values: softmax is left out",
            "weights = softmax(scores)",
            {"softmax(capped, mask)": "capped if mask is None else np.where(mask, capped, 0.0)"}),
    Mistake("weights transposed in the mix", "the weights are transposed before they mix the values", "weights @ v",
            {"weights @ v)": "weights.swapaxes(-1, -2) @ v)"}),
    Mistake("weights averaged over the heads", "every head mixes with the mean of all heads' weights",
            "each head mixes with its own weights",
            {"return Attended(weights": "weights = weights.mean(axis=-3, keepdims=True) + np.zeros_like(weights)\n    return Attended(weights"}),
    Mistake("groups tiled, not repeated", "key/value heads are tiled: query head h reads h % H_kv",
            "query head h reads h // G: np.repeat",
            {"np.repeat(x, num_heads // H_kv, axis=1)": "np.tile(x, (1, num_heads // H_kv, 1, 1))"}),
    Mistake("first key/value head for all", "every query head reads key/value head 0", "query head h reads h // G",
            {"np.repeat(x, num_heads // H_kv, axis=1)": "np.repeat(x[:, :1], num_heads, axis=1)"}),
    Mistake("key/value heads averaged", "every query head reads the mean of all key/value heads",
            "query head h reads h // G",
            {"np.repeat(x, num_heads // H_kv, axis=1)": "np.repeat(x.mean(axis=1, keepdims=True), num_heads, axis=1)"}),
]  # fmt: skip

TASK = Task(
    attention,
    place=80,
    difficulty=1,
    minutes=10,
    needs=("scores", "softmax"),
    hints=Hints(
        where="Write Eq. 1 of Vaswani et al. 2017 from the inside out, with the shape next to "
        'each step. Notebook 02, "All queries at once".',
        question="With two queries and three keys, what shape do the weights have? Which of them "
        "belong to the same mean of the values, and must therefore sum to 1?",
        mistake="softmax over queries",
        fix="powers = np.exp(scores - scores.max(axis=-1, keepdims=True)); powers / "
        "powers.sum(axis=-1, keepdims=True) @ v",
    ),
    draw=draw_one_head,
    laws=[MEANS],
    reactions=[
        Reaction("reversing keys and values together changes nothing", reversed_tokens("k", "v"))
    ],
    mistakes=MISTAKES,
)
