"""Museum: one hidden key, and NaN everywhere. Each has one bug that really shipped."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import exhibit
from mha_numpy.teach.task import Hints


@exhibit(
    "museum-nan-row",
    title="Find the bug: one row spoils a model",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Follow a row in which every cell is hidden, line by line.",
        question="In such a row, what is the largest score? Compute in Python what is left when "
        "you subtract it. Does the guard in the last line help?",
        mistake="NaN in a row that sees nothing",
        fix="powers = np.exp(scores - np.where(np.isinf(largest), 0, largest))",
    ),
)
def softmax(scores: Array, mask: Array | None) -> Array:
    """Repair softmax, which turns every row of scores into weights that sum to 1.

    PyTorch's nn.MultiheadAttention does this (issue #41508, opened in 2020). Padding together with
    a mask can hide every key from a padding query. A NaN in its own output would do no harm,
    because that output is not used. But backward goes through it, 0 times NaN is NaN, and so the
    gradients of all params become NaN. A test without such a query does not find the bug.
    """
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - largest)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


@exhibit(
    "museum-zero-times-inf",
    title="Find the bug: visible cells vanish",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Look at how the mask becomes numbers that are added to the scores.",
        question="What should be added to the score of a visible cell? Compute in Python what this "
        "code adds.",
        mistake="0 times -inf",
        fix="additive = np.where(mask, 0.0, -np.inf)",
    ),
)
def masked_attention(q: Array, k: Array, v: Array, mask: Array, softcap: float | None) -> Array:
    """Repair attention with a mask and a softcap.

    Until #8068 the NumPy program that defines ONNX's operator Attention turned a bool mask into
    numbers like this, but only if attention was also causal; otherwise a different line did it, and
    was right. There were tests of bool masks and tests of causality, but none of both together.
    """
    G = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, G, axis=1), np.repeat(v, G, axis=1)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    additive = (1.0 - mask) * -np.inf
    scores = scores + additive
    largest = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ v
