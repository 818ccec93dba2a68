"""Backward passes of a layer's parts: the linear map, heads and branches, the whole."""

from mha_numpy.core import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.saved import Saved
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "linear-backward",
    title="Back through a linear map",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="w and b serve every token of every sequence: docs/multi-head.md, Backward of the "
        'linear map; notebook 14, "Why sums?".',
        question="Two tokens (2, 0) and (5, 1) meet a w of one column; the upstream gradients are "
        "3 and -1. If w[0, 0] grows by 0.1, by how much does the loss? You added two numbers: what "
        "is that as a product of matrices?",
        mistake="d_w: mean over the batch",
        fix="d_x = d_out @ w.T; d_w = x.reshape(-1, x.shape[-1]).T @ "
        "d_out.reshape(-1, d_out.shape[-1]); d_b = d_out.sum(axis=(0, 1))",
    ),
)
def linear_backward(d_out: Array, x: Array, w: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of a linear map's input, weights and bias.

    Forward was ``out = x @ w + b``, the same `w` and `b` for all tokens of all sequences. I and O
    are the widths of input and output.

    Parameters
    ----------
    d_out : (B, T, O)
    x : (B, T, I)
    w : (I, O)

    Returns
    -------
    d_x : (B, T, I)
    d_w : (I, O)
    d_b : (O,)
    """
    raise NotImplementedError


@exercise(
    "input-gradient",
    title="One input, three branches",
    difficulty=3,
    minutes=15,
    needs=("merge-heads", "linear-backward"),
    hints=Hints(
        where="In self-attention one x is read three times: docs/multi-head.md, Backward of split "
        'and merge; notebook 04, "One x, used three times".',
        question="y = 2 x and z = 5 x, and the loss grows with y at rate 10 and with z at rate 1. "
        "At which rate does it grow with x?",
        mistake="branch of v forgotten",
        fix="merge(d_q) @ params.w_q.T + merge(d_k) @ params.w_k.T + merge(d_v) @ "
        "params.w_v.T\n"
        "where merge(d) is:\n"
        "d.transpose(0, 2, 1, 3).reshape(B, T, H * d.shape[-1])",
    ),
)
def input_gradient(d_q: Array, d_k: Array, d_v: Array, params: MultiHeadParams) -> Array:
    """Return the gradient of self-attention's input, from those of its queries, keys and values.

    Forward computed all three from one x, (B, T, D). For the queries it was::

        q = (x @ params.w_q + params.b_q).reshape(B, T, H, d).transpose(0, 2, 1, 3)

    and likewise k by w_k and b_k, v by w_v and b_v.

    Parameters
    ----------
    d_q : (B, H, T, d)
    d_k : (B, H, T, d)
    d_v : (B, H, T, d)
    params : MultiHeadParams
        Its weights w_q, w_k and w_v are (D, H*d). It has biases b_q, b_k, b_v too, and w_o and b_o.

    Returns
    -------
    d_x : (B, T, D)
    """
    raise NotImplementedError


@exercise(
    "multi-head-backward",
    title="The whole layer's backward",
    difficulty=5,
    minutes=60,
    needs=("multi-head", "attention-backward", "input-gradient"),
    hints=Hints(
        where="Write forward's lines down from last to first and put the backward of each beside "
        "it: docs/multi-head.md, The whole way back; notebook 14, 'The whole way, step by step'.",
        question="Each of the four linear maps has a gradient for its weights. What was the input "
        "of each, x or something else? (One of the four read merged.) And from which array does "
        "each get its d_out?",
        mistake="d_w_o from the output",
        fix="d_merged, d_w_o, d_b_o = linear_backward(d_out, saved.merged, params.w_o); "
        "d_heads = split_heads(d_merged); d_q, d_k, d_v = attention_backward(d_heads, "
        "saved.q, saved.k, saved.v, saved.weights); d_x_q, d_w_q, d_b_q = "
        "linear_backward(merge_heads(d_q), saved.x, params.w_q)\n"
        "and so for k and v; at the end:\n"
        "d_x = d_x_q + d_x_k + d_x_v",
    ),
)
def multi_head_backward(
    d_out: Array, params: MultiHeadParams, saved: Saved
) -> tuple[Array, MultiHeadParams]:
    """Return the gradients of self-attention's input and of all its params.

    Forward was::

        q = split_heads(x @ params.w_q + params.b_q)  # likewise k by w_k, b_k; v by w_v, b_v
        weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))  # some cells hidden
        merged = merge_heads(weights @ v)
        out = merged @ params.w_o + params.b_o

    where split_heads is ``.reshape(B, T, H, d).transpose(0, 2, 1, 3)`` and merge_heads is
    its inverse. softmax ran along the last axis. A hidden cell has weight 0, and in a row that sees
    nothing all weights are 0.

    Parameters
    ----------
    d_out : (B, T, D)
    params : MultiHeadParams
        w_q, w_k, w_v (D, H*d), w_o (H*d, D), b_q, b_k, b_v (H*d,), b_o (D,).
    saved : NamedTuple
        What forward kept: x (B, T, D); q, k, v (B, H, T, d); weights (B, H, T, T); merged
        (B, T, H*d).

    Returns
    -------
    d_x : (B, T, D)
    d_params : MultiHeadParams
        Each gradient in the place of its array: w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o. A plain
        tuple in this order will do.
    """
    raise NotImplementedError
