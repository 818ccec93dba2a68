"""The layer: many heads, on one sequence and across two."""

from mha_numpy.core import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "multi-head",
    title="Project, split, attend, merge, project",
    difficulty=2,
    minutes=20,
    needs=("split-heads", "merge-heads", "attention"),
    hints=Hints(
        where="Section 3.2.2 of Vaswani et al. 2017; docs/multi-head.md has the shape after every "
        'step. Notebook 03, "Seven shapes, all numbers in view".',
        question="D = 6 and two heads of width 3: which columns of w_q does head 1 read? After "
        "attending, head 1's numbers of token 0 lie at heads[b, 1, 0]: in which columns of merged "
        "must they be?",
        mistake="merge without transpose",
        fix="q = (x @ params.w_q + params.b_q).reshape(B, T, num_heads, -1).transpose(0, 2, "
        "1, 3)\n"
        "k and v likewise; at the end:\n"
        "heads.transpose(0, 2, 1, 3).reshape(B, T, -1) @ params.w_o + params.b_o",
    ),
)
def multi_head(x: Array, params: MultiHeadParams, num_heads: int, mask: Array) -> Array:
    """Let every token attend to its sequence, with several heads.

    Queries, keys and values are each ``x @ w + b``, with params of their own. Head h takes the h-th
    block of their columns, d_k wide for queries and keys and d_v for values, and returns
    ``softmax(q k^T / sqrt(d_k)) v``, where softmax runs over the keys that `mask` lets the query
    see. The heads, side by side in their order, are ``merged``; the output is
    ``merged @ w_o + b_o``. Large scores must not overflow.

    Use NumPy and functions of your own.

    Parameters
    ----------
    x : (B, T, D)
    params : MultiHeadParams
        ``params.w_q`` and ``params.w_k`` (D, H*d_k), ``params.w_v`` (D, H*d_v), ``params.w_o``
        (H*d_v, D); four biases, ``params.b_q`` to ``params.b_o``, each with one number
        for each column of its ``w``.
    num_heads : int
        H.
    mask : (T, T) bool
        Rows are queries, columns keys; True = may attend. It holds for all sequences and heads.
        Every token sees at least one.

    Returns
    -------
    out : (B, T, D)
    """
    raise NotImplementedError


@exercise(
    "cross-attention",
    title="One sequence asks, another answers",
    difficulty=2,
    minutes=10,
    needs=("multi-head",),
    hints=Hints(
        where="There are three products and two inputs. The width of an input shows which params "
        'fit. Notebook 15, "One asks, the other answers".',
        question="A text of 7 words is translated into one of 4: how many rows must the output "
        "have, and how many columns the weights? Which of q, k, v have 4 rows?",
        mistake="queries from the source",
        fix="q = y @ params.w_q + params.b_q; k = x @ params.w_k + params.b_k; v = x @ "
        "params.w_v + params.b_v",
    ),
)
def cross_attention(y: Array, x: Array, params: MultiHeadParams, num_heads: int) -> Array:
    """Let the tokens of one sequence attend to those of another, with several heads.

    Queries are ``y @ w_q + b_q``; keys and values are projected from `x`, each with its own params.
    Head h takes the h-th block of their columns, d_k wide for queries and keys and d_v for values,
    and returns ``softmax(q k^T / sqrt(d_k)) v`` with softmax over the keys. Nothing is hidden. The
    heads, side by side in their order, are ``merged``; the output is ``merged @ w_o + b_o``. Large
    scores must not overflow.

    Use NumPy and functions of your own.

    Parameters
    ----------
    y : (B, T_y, D)
        The sequence of the queries.
    x : (B, T_x, kdim)
        The sequence of the keys and values; its length and width may differ from those of `y`.
    params : MultiHeadParams
        ``params.w_q`` (D, H*d_k), ``params.w_k`` (kdim, H*d_k), ``params.w_v`` (kdim, H*d_v),
        ``params.w_o`` (H*d_v, D); four biases, ``params.b_q`` to ``params.b_o``, each with one
        number for each column of its ``w``.
    num_heads : int
        H.

    Returns
    -------
    out : (B, T_y, D)
    """
    raise NotImplementedError
