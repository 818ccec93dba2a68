"""One sequence asks, another answers."""

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import draw_params, normal, opposite_params, opposite_tokens
from mha_numpy.teach.task import Hints, Inputs, Reaction, Task, reversed_tokens
from mha_numpy.teach.tasks.multi_head import run_layer


def cross_attention(y: Array, x: Array, params: MultiHeadParams, num_heads: int) -> Array:
    """Let the tokens of one sequence attend to those of another, with several heads.

    Queries are ``y @ w_q + b_q``; keys and values are projected from `x`, each with its own params.
    Head h takes the h-th block of their columns, d_k wide for queries and keys and d_v for values,
    and returns ``softmax(q k^T / sqrt(d_k)) v`` with softmax over the keys. No key is hidden. The
    heads, side by side in their order, are ``merged``; the output is ``merged @ w_o + b_o``. Large
    scores must not overflow.

    Use NumPy and your own functions.

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
    return run_layer(y, x, params, num_heads)[0]


def _draw_cross(rng: np.random.Generator) -> list[Inputs]:
    """Draw cross-attention: all sizes different, all but D equal, large scores, one head."""
    probes = []
    for B, T_y, T_x, D, kdim, H, d_k, d_v in ((2, 5, 7, 11, 10, 3, 4, 6), (3, 3, 3, 9, 9, 3, 3, 3)):
        both = normal(rng, y=(B, T_y, D), x=(B, T_x, kdim))
        params = draw_params(rng, D, H * d_k, kdim=kdim, v_width=H * d_v)
        probes.append(both | {"params": params, "num_heads": H})
    y, x = opposite_tokens(rng, (2, 4, 8)), 2 * np.abs(opposite_tokens(rng, (2, 5, 6)))
    params = opposite_params(draw_params(rng, 8, 8, kdim=6))
    probes.append({"y": y, "x": x, "params": params, "num_heads": 2})
    one = normal(rng, y=(1, 6, 5), x=(1, 2, 4)) | {
        "params": draw_params(rng, 5, 3, kdim=4, v_width=2)
    }
    return [*probes, one | {"num_heads": 1}]


TASK = Task(
    cross_attention,
    place=100,
    difficulty=2,
    minutes=10,
    needs=("multi-head",),
    hints=Hints(
        where="There are three products and two inputs. The width of an input shows which params "
        'fit. Notebook 15, "One asks, the other answers".',
        question="Seven words are translated into four: how many rows must the output have, and "
        "how many columns do the weights have? Which of q, k, v have four rows?",
        mistake="queries from the source",
        fix="q = y @ params.w_q + params.b_q; k = x @ params.w_k + params.b_k; v = x @ "
        "params.w_v + params.b_v",
    ),
    draw=_draw_cross,
    reactions=[Reaction("the order of the source's tokens does not matter", reversed_tokens("x"))],
)
