"""Project, split, attend, merge, project."""

from functools import partial

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import draw_self
from mha_numpy.teach.saved import Saved
from mha_numpy.teach.task import Again, Hints, Mistake, Reaction, Task, moved
from mha_numpy.teach.tasks.attention import attend
from mha_numpy.teach.tasks.merge_heads import merge_heads
from mha_numpy.teach.tasks.split_heads import split_heads


def project_q(x: Array, params: MultiHeadParams) -> Array:
    """Make queries, all heads side by side."""
    return x @ params.w_q + params.b_q


def project_k(x: Array, params: MultiHeadParams) -> Array:
    """Make keys."""
    return x @ params.w_k + params.b_k


def project_v(x: Array, params: MultiHeadParams) -> Array:
    """Make values."""
    return x @ params.w_v + params.b_v


def project_o(x: Array, params: MultiHeadParams) -> Array:
    """Make the output of the merged heads."""
    return x @ params.w_o + params.b_o


def run_layer(
    y: Array, x: Array, params: MultiHeadParams, num_heads: int, mask: Array | None = None
) -> tuple[Array, Saved]:
    """Attend from y (B, T_q, D) to x (B, T_k, kdim): the output, and what backward needs."""
    q = split_heads(project_q(y, params), num_heads)
    k = split_heads(project_k(x, params), num_heads)
    v = split_heads(project_v(x, params), num_heads)
    weights, heads = attend(q, k, v, mask)
    merged = merge_heads(heads)
    return project_o(merged, params), Saved(x, q, k, v, weights, merged)


def multi_head(x: Array, params: MultiHeadParams, num_heads: int, mask: Array) -> Array:
    """Let every token attend to its sequence, with several heads.

    Queries, keys and values are ``x @ w + b``, each with its own params. Head h takes the h-th
    block of their columns, d_k wide for queries and keys and d_v for values, and returns
    ``softmax(q k^T / sqrt(d_k)) v``, where softmax runs over the keys that `mask` lets the query
    see. The heads, side by side in their order, are ``merged``; the output is
    ``merged @ w_o + b_o``. Large scores must not overflow.

    Use NumPy and your own functions.

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
        Rows are queries, columns are keys; True = may attend. The mask applies to all sequences and
        heads. Every token sees at least one key.

    Returns
    -------
    out : (B, T, D)
    """
    return run_layer(x, x, params, num_heads, mask)[0]


MISTAKES: list[Mistake | Again] = [
    Mistake("all biases left out", "no bias is added anywhere", "x @ w + b, in all four projections",
            {f" + params.b_{letter}": "" for letter in "qkvo"}),
    Mistake("scale 1/sqrt(D) of the input",
            "the scores are divided by the root of D, the width of x, not of one head's width",
            "d_k is the width of one head: q.shape[-1] after the split",
            {"weights, heads = attend(q, k, v, mask)": "q = q * np.sqrt(q.shape[-1] / y.shape[-1])\n    weights, heads = attend(q, k, v, mask)"}),
    *(Mistake(f"b_{x} left out", f"the bias b_{x} is left out", f"x @ w_{x} + b_{x}", {f" + params.b_{x}": ""})
      for x in "qkvo"),
    *(Mistake(f"w_{x} transposed", f"w_{x} is used transposed", f"x @ w_{x}, with w_{x} (inputs, outputs)",
              {f"x @ params.w_{x} +": f"x @ params.w_{x}.T +"}) for x in "qkvo"),
    Mistake("keys from w_q", "the keys are projected with w_q and b_q", "k = x @ w_k + b_k",
            {"x @ params.w_k + params.b_k": "x @ params.w_q + params.b_q"}),
    Mistake("values from w_k", "the values are projected with w_k and b_k", "v = x @ w_v + b_v",
            {"x @ params.w_v + params.b_v": "x @ params.w_k + params.b_k"}),
    Mistake("source ignored", "keys and values come from the queries' input, so the source is not used",
            "project k and v from the source",
            {"q = split_heads(project_q(y,": "x = y\n    q = split_heads(project_q(y,"}),
    Mistake("only the source", "queries come from the source too, so their own input is not used",
            "project q from the first input",
            {"q = split_heads(project_q(y,": "y = x\n    q = split_heads(project_q(y,"}),
    Mistake("queries from the source", "the two inputs are swapped", "queries come from the first input",
            {"q = split_heads(project_q(y,": "y, x = x, y\n    q = split_heads(project_q(y,"}),
    Mistake("keys from the queries' input", "the keys come from the queries' input", "project k from the source",
            {"k = split_heads(project_k(x,": "k = split_heads(project_k(y,"}),
    Mistake("values from the queries' input", "the values come from the queries' input", "project v from the source",
            {"v = split_heads(project_v(x,": "v = split_heads(project_v(y,"}),
    Mistake("output projection left out", "the output projection is left out: merged is returned",
            "merged @ w_o + b_o", {"x @ params.w_o + params.b_o": "x"}),
    Again("heads left after the tokens", {"merged = merge_heads(heads)": "merged = heads.reshape(*heads.shape[:2], -1)"}),
    Mistake("biases subtracted", "the biases are subtracted instead of added",
            "x @ w + b",
            {"x @ params.w_q + params.b_q": "x @ params.w_q - params.b_q", "x @ params.w_k + params.b_k": "x @ params.w_k - params.b_k", "x @ params.w_v + params.b_v": "x @ params.w_v - params.b_v", "x @ params.w_o + params.b_o": "x @ params.w_o - params.b_o"}),
    Mistake("biases in the weights", "the biases are added to the weights",
            "x @ w + b",
            {"x @ params.w_q + params.b_q": "x @ (params.w_q + params.b_q)", "x @ params.w_k + params.b_k": "x @ (params.w_k + params.b_k)", "x @ params.w_v + params.b_v": "x @ (params.w_v + params.b_v)", "x @ params.w_o + params.b_o": "x @ (params.w_o + params.b_o)"}),
    Mistake("query bias not scaled", "the queries are scaled before their bias is added, so the bias is not",
            "scale the scores, after all biases are in",
            {"split_heads(project_q(y, params), num_heads)": "split_heads(project_q(y, params) + (np.sqrt(params.w_q.shape[1] // num_heads) - 1) * params.b_q, num_heads)"}),
    Mistake("causal, whatever the mask says", "the mask is not used: each token sees itself and those before it",
            "use the mask that is given",
            {"attend(q, k, v, mask)": "attend(q, k, v, None if mask is None else np.tri(*mask.shape, dtype=bool))"}),
]  # fmt: skip

TASK = Task(
    multi_head,
    place=90,
    difficulty=2,
    minutes=20,
    needs=("split-heads", "merge-heads", "attention"),
    hints=Hints(
        where="Section 3.2.2 of Vaswani et al. 2017; docs/multi-head.md has the shape after every "
        'step. Notebook 03, "Split, attend, merge".',
        question="Take D = 6 and two heads of width 3: which columns of w_q does head 1 read? "
        "After attending, head 1's numbers for token 0 are in heads[b, 1, 0]: in which columns of "
        "merged do they have to be?",
        mistake="merge without transpose",
        fix="q = (x @ params.w_q + params.b_q).reshape(B, T, num_heads, -1).transpose(0, 2, 1, "
        "3)\n"
        "k and v in the same way; at the end:\n"
        "heads.transpose(0, 2, 1, 3).reshape(B, T, -1) @ params.w_o + params.b_o",
    ),
    draw=partial(draw_self, value_dim=6),
    reactions=[
        Reaction(
            "changing the last token changes no output before it, because the mask is causal",
            moved("x", np.s_[:, -1]),
            lambda _, arrays: arrays[""][:, :-1],
        )
    ],
    mistakes=MISTAKES,
)
