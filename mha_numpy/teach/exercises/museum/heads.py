"""Museum: programs that mixed up heads and axes. Each has one bug that really shipped."""

import numpy as np

from mha_numpy.core import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import exhibit
from mha_numpy.teach.task import Hints


@exhibit(
    "museum-softmax-axis",
    title="Find the bug: the pictures looked the same",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Look between the scores and the weighted mean: which weights belong to one mean?",
        question="Call it with two queries and three keys, and add up the weights of query 0. What "
        "should the sum be, and which sums have this value here?",
        mistake="softmax over queries",
        fix="weights = softmax(scores, axis=-1)",
    ),
)
def attention(q: Array, k: Array, v: Array) -> Array:
    """Repair this head, which gives every query a weighted mean of the values.

    A diffusion model in labml's annotated papers had this bug in the self-attention of its U-Net
    (labmlai/annotated_deep_learning_paper_implementations, issue #146). Nothing failed, and it drew
    good images. The reader who saw the line trained both models on CIFAR-10 and measured no
    difference in their quality, because training can make up for such a bug. No test looked at the
    weights.
    """

    def softmax(scores: Array, axis: int) -> Array:
        powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
        return powers / powers.sum(axis=axis, keepdims=True)

    scores = np.einsum("id,jd->ij", q, k) / np.sqrt(q.shape[-1])
    weights = softmax(scores, axis=0)
    return np.einsum("ij,jc->ic", weights, v)


@exhibit(
    "museum-split",
    title="Find the bug: a shape that was right",
    difficulty=1,
    minutes=5,
    hints=Hints(
        where="The right shape says nothing about where the numbers went: notebook 09.",
        question="Take one sequence of two tokens, (1, 2, 3, 4) and (5, 6, 7, 8), and two heads. "
        "How many tokens do the numbers in head 0 come from afterwards?",
        mistake="split without transpose",
        fix="return x.reshape(B, T, num_heads, head_size).transpose(0, 2, 1, 3)",
    ),
)
def split_heads(x: Array, num_heads: int) -> Array:
    """Repair the split of every token's vector into one piece for each head.

    ONNX defines an operator Attention, and a NumPy program says what it means. If all heads were in
    the last axis of its inputs, that program split them like this (issue #7118, fixed in #7142),
    and so did the graph that the operator expands to. The tests took their expected numbers from
    the program itself.
    """
    B, T, width = x.shape
    if width % num_heads:
        raise ValueError(f"{num_heads} heads do not divide a width of {width}")
    head_size = width // num_heads
    return x.reshape(B, num_heads, T, head_size)


@exhibit(
    "museum-merge",
    title="Find the bug: the training test passed",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Follow one token through the shapes. Every reshape reads the axes in their order.",
        question="After the mix, where are the numbers of token 0: in one block of memory, or in "
        "one for each head? What does the last reshape put side by side?",
        mistake="merge without transpose",
        fix="merged = values.transpose(0, 2, 1, 3).reshape(B, T, -1)",
    ),
)
def multi_head(x: Array, params: MultiHeadParams, num_heads: int, mask: Array) -> Array:
    """Repair the layer, in which every token attends to its sequence with several heads.

    A transformer written to teach (jsbaan/transformer-from-scratch) had this bug until #6. Its test
    trained a model to copy its input, and passed. Its author suspects why: the task is easy, and a
    model with params to spare learns to undo the damage.
    """
    B, T, _ = x.shape

    def project(w: Array, b: Array | None) -> Array:
        return (x @ w + b).reshape(B, T, num_heads, -1).transpose(0, 2, 1, 3)

    q = project(params.w_q, params.b_q)
    k = project(params.w_k, params.b_k)
    v = project(params.w_v, params.b_v)
    scores = np.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    values = powers / powers.sum(axis=-1, keepdims=True) @ v
    merged = values.reshape(B, T, -1)
    return merged @ params.w_o + params.b_o


@exhibit(
    "museum-repeat",
    title="Find the bug: nine heads read three",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Look at the line that lengthens the head axis: docs/grouped.md, Who reads what.",
        question="With six query heads and two key/value heads a and b, write down which of them "
        "each query head reads here. Are the readers of a neighbours?",
        mistake="groups tiled, not repeated",
        fix="k, v = np.repeat(k, H // H_kv, axis=1), np.repeat(v, H // H_kv, axis=1)",
    ),
)
def grouped_attention(q: Array, k: Array, v: Array) -> Array:
    """Repair grouped attention, in which query heads share key and value heads.

    The NumPy program that defines ONNX's operator Attention did this until #7274; PyTorch does
    something else. The tests had nine query heads and three key/value heads, which is enough to
    find the bug, but they took their expected numbers from the program itself.
    """
    H, H_kv = q.shape[1], k.shape[1]
    if H % H_kv:
        raise ValueError(f"{H_kv} key/value heads do not divide {H} query heads")
    copies = (1, H // H_kv, 1, 1)
    k, v = np.tile(k, copies), np.tile(v, copies)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights @ v
