"""Museum: wrong gradients that still trained. Each has one bug that really shipped."""

import numpy as np

from mha_numpy.core import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import exhibit
from mha_numpy.teach.saved import Saved
from mha_numpy.teach.task import Hints


@exhibit(
    "museum-jacobian",
    title="Find the bug: half a derivative",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Look at the matrix of one row: entry (i, j) is the derivative of weight i with "
        "respect to score j.",
        question="If score 0 rises, what happens to weight 1? And which entry of the "
        "matrix here says so?",
        mistake="only the diagonal of the Jacobian",
        fix="jacobian = np.diag(p) - np.outer(p, p)",
    ),
)
def softmax_backward(d_weights: Array, weights: Array) -> Array:
    """Repair softmax's backward, which returns the gradient of the scores.

    The native library under Deeplearning4j computed softmax's derivative like this
    (deeplearning4j/libnd4j, issue #440). The first answer to the report asked for a test, which
    was then written. A test of how each weight reacts to its own score does not find the bug.
    """
    d_scores = np.empty_like(d_weights)
    for row in np.ndindex(weights.shape[:-1]):
        p = weights[row]  # (T_k,)
        jacobian = np.diag(p * (1 - p))  # (T_k, T_k)
        d_scores[row] = jacobian.T @ d_weights[row]
    return d_scores


@exhibit(
    "museum-batch-mean",
    title="Find the bug: one mean too many",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Compare the gradient of a sequence by itself with its gradient in a batch.",
        question="A sequence is in a batch of 3, and no other sequence affects it. Does the "
        "gradient of its loss with respect to its own q change if you take out the other two?",
        mistake="everything divided by B",
        fix="Leave out the division: a mean over the batch belongs to the loss, and d_heads "
        "already has it.",
    ),
)
def attention_backward(
    d_heads: Array, q: Array, k: Array, v: Array, weights: Array
) -> tuple[Array, Array, Array]:
    """Repair attention's backward, which returns the gradients of q, k and v.

    A transformer written in NumPy has such a line in its backward. It trains, because a gradient
    that is too small by one factor acts like a smaller learning rate, and with an optimizer like
    Adam it changes almost nothing. A test on a single sequence cannot find it either.
    """
    batch_size, _, _, width = q.shape
    d_heads = d_heads / batch_size
    d_v = weights.swapaxes(-1, -2) @ d_heads
    d_weights = d_heads @ v.swapaxes(-1, -2)
    row_sum = (weights * d_weights).sum(axis=-1, keepdims=True)
    d_scores = weights * (d_weights - row_sum) / np.sqrt(width)
    d_q = d_scores @ k
    d_k = d_scores.swapaxes(-1, -2) @ q
    return d_q, d_k, d_v


@exhibit(
    "museum-one-token",
    title="Find the bug: tested with one token",
    difficulty=4,
    minutes=25,
    hints=Hints(
        where="Look at the lines of backward that go from tokens to heads or from heads to tokens.",
        question="For one sequence, merged has two tokens of two heads, (a0 b0) and (a1 b1), where "
        "a0 is head a's output for token 0. What does the reshape here give to head a? And what if "
        "there is only one token?",
        mistake="split without transpose",
        fix="d_heads = (d_out @ params.w_o.T).reshape(B, T, H, d).transpose(0, 2, 1, 3)",
    ),
)
def multi_head_backward(
    d_out: Array, params: MultiHeadParams, saved: Saved
) -> tuple[Array, MultiHeadParams]:
    """Repair the layer's backward, which returns the gradients of its input and all its params.

    numpy-ml 0.1.2 goes from tokens to heads like this in the backward of its multi-head attention.
    Its test compares about thirty arrays with PyTorch's, but each sequence in it has a single
    token. Then all weights are 1, no gradient reaches queries or keys, and this line is right.
    """
    x, q, k, v, weights = saved.x, saved.q, saved.k, saved.v, saved.weights
    B, H, T, d = q.shape
    d_heads = (d_out @ params.w_o.T).reshape(B, H, T, d)
    d_weights = d_heads @ v.swapaxes(-1, -2)
    row_sum = (weights * d_weights).sum(axis=-1, keepdims=True)
    d_scores = weights * (d_weights - row_sum) / np.sqrt(d)

    d_x, d_params = np.zeros_like(x), []
    for d_branch, w in (
        (d_scores @ k, params.w_q),
        (d_scores.swapaxes(-1, -2) @ q, params.w_k),
        (weights.swapaxes(-1, -2) @ d_heads, params.w_v),
    ):
        d_projected = d_branch.transpose(0, 2, 1, 3).reshape(B, T, H * d)
        d_x = d_x + d_projected @ w.T
        d_params += [np.einsum("bti,bto->io", x, d_projected), d_projected.sum(axis=(0, 1))]
    d_params += [np.einsum("bti,bto->io", saved.merged, d_out), d_out.sum(axis=(0, 1))]
    return d_x, MultiHeadParams(*d_params)
