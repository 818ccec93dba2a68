"""Removing heads for good."""

from typing import cast

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import draw_params
from mha_numpy.teach.task import Hints, Mistake, Task


def prune_heads(params: MultiHeadParams, num_heads: int, heads: Array) -> MultiHeadParams:
    """Return the params of a layer without some of its heads.

    The smaller layer computes what the whole one computes if the removed heads have gates of 0. The
    other heads keep their order. The widths d_k and d_v may differ.

    Parameters
    ----------
    params : MultiHeadParams
        w_q, w_k (D, H*d_k), w_v (D, H*d_v), w_o (H*d_v, D), b_q, b_k (H*d_k,), b_v (H*d_v,),
        b_o (D,).
    num_heads : int
        H.
    heads : whole numbers
        The heads to remove, counted from 0, in any order; at least one head stays.

    Returns
    -------
    params : MultiHeadParams
        ``MultiHeadParams(w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o)``.
    """
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = cast(tuple[Array, ...], params)
    stays = np.isin(np.arange(num_heads), heads, invert=True)  # (H,)
    of_qk = np.repeat(stays, w_q.shape[1] // num_heads)  # (H * d_k,)
    of_v = np.repeat(stays, w_v.shape[1] // num_heads)  # (H * d_v,)
    return MultiHeadParams(
        w_q[:, of_qk], b_q[of_qk], w_k[:, of_qk], b_k[of_qk],
        w_v[:, of_v], b_v[of_v], w_o[of_v], b_o,
    )  # fmt: skip


MISTAKES = [
    Mistake("heads kept that should go", "the heads to remove are kept, and the others are removed", "np.isin(..., invert=True)",
            {"heads, invert=True)": "heads)"}),
    Mistake("every H-th column removed", "every H-th column is removed, but the columns of one head are next to each other",
            "np.repeat(stays, d_k), not np.tile",
            {"np.repeat(stays, w_q.shape[1] // num_heads)": "np.tile(stays, w_q.shape[1] // num_heads)",
             "np.repeat(stays, w_v.shape[1] // num_heads)": "np.tile(stays, w_v.shape[1] // num_heads)"}),
    Mistake("rows of w_q, w_k, w_v removed", "rows of w_q, w_k and w_v are removed, as if they were (outputs, inputs)",
            "w_q[:, stays], and the same for w_k and w_v",
            {"w_q[:, of_qk]": "w_q[of_qk]", "w_k[:, of_qk]": "w_k[of_qk]", "w_v[:, of_v]": "w_v[of_v]"}),
    Mistake("columns of w_o removed", "columns of w_o are removed, but a head goes through the rows of w_o", "w_o[stays]",
            {"w_o[of_v]": "w_o[:, of_v]"}),
    Mistake("w_o left whole", "w_o keeps the rows of the removed heads", "w_o[stays]", {"w_o[of_v]": "w_o"}),
    Mistake("b_o cut too", "b_o is shortened, but it belongs to the D features of the output, not to heads", "b_o stays whole",
            {"w_o[of_v], b_o,": "w_o[of_v], b_o[of_v],"}),
    Mistake("biases left whole", "b_q, b_k and b_v keep the numbers of the removed heads", "b_q[stays], b_k[stays], b_v[stays]",
            {"b_q[of_qk]": "b_q", "b_k[of_qk]": "b_k", "b_v[of_v]": "b_v"}),
    Mistake("only w_o pruned", "only w_o is shortened, so the removed heads would still be computed",
            "remove the columns of w_q, w_k, w_v and the numbers of their biases too",
            {"w_q[:, of_qk], b_q[of_qk]": "w_q, b_q", "w_k[:, of_qk], b_k[of_qk]": "w_k, b_k", "w_v[:, of_v], b_v[of_v]": "w_v, b_v"}),
    Mistake("only the queries pruned", "w_k and w_v stay whole, although no query reads the removed heads any more",
            "w_k and w_v lose the same heads",
            {"w_k[:, of_qk], b_k[of_qk]": "w_k, b_k", "w_v[:, of_v], b_v[of_v]": "w_v, b_v"}),
    Mistake("heads set to 0, not removed", "the params of the removed heads are set to 0 but keep their shapes", "remove them: w_q[:, stays]",
            {"w_q[:, of_qk], b_q[of_qk]": "w_q * of_qk, b_q * of_qk", "w_k[:, of_qk], b_k[of_qk]": "w_k * of_qk, b_k * of_qk",
             "w_v[:, of_v], b_v[of_v]": "w_v * of_v, b_v * of_v", "w_o[of_v]": "w_o * of_v[:, None]"}),
    Mistake("the last heads removed", "the right number of heads is removed, but always the last ones", "np.isin(np.arange(num_heads), heads, invert=True)",
            {"np.isin(np.arange(num_heads), heads, invert=True)": "np.arange(num_heads) < num_heads - len(heads)"}),
    Mistake("heads counted from 1", "heads are counted from 1, so head h is read as head h - 1", "np.arange(num_heads)",
            {"np.isin(np.arange(num_heads), heads": "np.isin(np.arange(1, num_heads + 1), heads"}),
    Mistake("heads taken for columns", "head h is read as column h, so single columns are removed", "np.repeat(stays, d_k)",
            {"np.repeat(stays, w_q.shape[1] // num_heads)": "np.isin(np.arange(w_q.shape[1]), heads, invert=True)",
             "np.repeat(stays, w_v.shape[1] // num_heads)": "np.isin(np.arange(w_v.shape[1]), heads, invert=True)"}),
    Mistake("heads removed one after another",
            "the heads are removed one after another, but each removal moves the heads after it to smaller numbers",
            "np.isin(np.arange(num_heads), heads), all at once",
            {"stays = np.isin(np.arange(num_heads), heads, invert=True)": "left = np.arange(num_heads)\n    for head in heads:\n        left = np.delete(left, np.s_[head : head + 1])\n    stays = np.isin(np.arange(num_heads), left)"}),
    Mistake("only one of several heads removed", "only the first of the heads to remove is removed", "remove all of `heads`",
            {"heads, invert=True)": "heads[:1], invert=True)"}),
]  # fmt: skip

TASK = Task(
    prune_heads,
    place=310,
    difficulty=2,
    minutes=10,
    needs=("multi-head",),
    hints=Hints(
        where='Which numbers belong only to head h? Notebook 24, "Cut for good"; notebook 10, '
        '"Switching a head off".',
        question="A layer has two heads with d_k = d_v = 3 and D = 5; remove head 0. Which "
        "columns of w_q are left, and which rows of w_o? What shapes do w_q, b_q, w_o and b_o "
        "have then?",
        mistake="every H-th column removed",
        fix="stays = np.repeat(~np.isin(np.arange(num_heads), heads), d_k); w_q[:, stays]; "
        "b_q[stays]\n"
        "and the same for k, and for v with d_v instead of d_k; from w_o take the rows, also with "
        "d_v:\n"
        "w_o[stays]\n"
        "b_o stays whole",
    ),
    draw=lambda rng: [  # all sizes different; all of the width D; in any order; none to remove
        {
            "params": draw_params(rng, D, H * d_k, v_width=H * d_v),
            "num_heads": H,
            "heads": np.array(heads, dtype=int),
        }
        for D, H, d_k, d_v, heads in (
            (10, 3, 4, 5, [1]),
            (12, 4, 3, 3, [2, 0]),
            (7, 5, 2, 3, [1, 3]),
            (9, 6, 3, 1, [3, 0, 4]),
            (4, 1, 2, 3, []),
        )
    ],
    mistakes=MISTAKES,
)
