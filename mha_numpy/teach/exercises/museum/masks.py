"""Museum: masks that hid too little or too much. Each has one bug that really shipped."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import exhibit
from mha_numpy.teach.task import Hints


@exhibit(
    "museum-cached-mask",
    title="Find the bug: the past disappeared",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Look at the positions of queries and keys, before they are compared.",
        question="Three keys are in the cache and one query comes after them. At which position is "
        "it, where does this code put it, and which keys does it see?",
        mistake="q_offset ignored",
        fix="query = np.arange(T_q)[:, None] + q_offset",
    ),
)
def make_mask(lengths: Array, T_q: int, T_k: int, q_offset: int, left: int) -> Array:
    """Repair a decoder's mask of the keys that each query may attend to.

    The NumPy program that defines ONNX's operator Attention made causal masks like this until
    #7297. Whole sequences came out right, but after a cache of past keys most of the past was
    hidden. Its tests had caches too, but took their expected numbers from the program itself.
    """
    query = np.arange(T_q)[:, None]
    key = np.arange(T_k)[None, :]
    is_past = key <= query
    is_near = query - key <= left
    is_token = key < np.asarray(lengths)[:, None, None, None]  # (B, 1, 1, T_k)
    return is_past & is_near & is_token


@exhibit(
    "museum-softcap",
    title="Find the bug: a hidden key with a weight",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Look at the order of the steps: docs/attention.md, Seven steps.",
        question="Follow one hidden score through the lines, with a cap of 5: after which line is "
        "it no longer -inf, and what weight does that leave it next to a score of 5?",
        mistake="softcap after the mask",
        fix="swap the two steps: cap the scores first, and then:\nnp.where(mask, scores, -np.inf)",
    ),
)
def masked_attention(q: Array, k: Array, v: Array, mask: Array, softcap: float | None) -> Array:
    """Repair attention with a mask and a softcap.

    ONNX's operator Attention was defined like this until #7867, in words, as a graph and in NumPy,
    and a runtime implemented it that way. Its tests had a softcap only together with masks of
    finite numbers, which are added to the scores and hide no key, and their expected numbers came
    from the NumPy program itself.
    """
    G = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, G, axis=1), np.repeat(v, G, axis=1)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(mask, scores, -np.inf)
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    largest = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ v


@exhibit(
    "museum-float-mask",
    title="Find the bug: a mask that means the opposite",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="The mask changes its dtype twice before it is applied to the scores.",
        question="A visible cell is True. What number is it after the first step, and what does "
        "bool() make of that number? And of -inf?",
        mistake="mask inverted",
        fix="visible = additive == 0",
    ),
)
def softmax(scores: Array, mask: Array | None) -> Array:
    """Repair softmax, which turns every row of scores into weights that sum to 1.

    Since #20511 Keras' MultiHeadAttention turns every mask into bool. For a mask of zeros and ones
    that is right. But it also accepts a mask of zeros and -inf, which PyTorch adds to the scores,
    and here that means something else. No test with masks of zeros and ones can find this. The
    function here uses both kinds of masks.
    """
    visible = np.ones(scores.shape, dtype=bool)
    if mask is not None:
        additive = np.where(mask, 0.0, -np.inf)  # to be added to the scores
        visible = additive.astype(bool)
    largest = np.where(visible, scores, -np.inf).max(axis=-1, keepdims=True)
    shifted = scores - np.where(np.isinf(largest), 0, largest)
    powers = np.exp(np.where(visible, shifted, -np.inf))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)
