"""And back to GPT-2."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import draw_params
from mha_numpy.teach.task import Again, Hints, Task


class GPT2Params(NamedTuple):
    """The params of GPT-2's attention, as Hugging Face names them."""

    c_attn_w: Array  # (D, 3*D)
    c_attn_b: Array  # (3*D,)
    c_proj_w: Array  # (D, D)
    c_proj_b: Array | None  # (D,)


def to_gpt2(params: MultiHeadParams) -> GPT2Params:
    """Put params together as GPT-2 stores its attention.

    GPT-2, as in Hugging Face, computes queries, keys and values at once,
    ``x @ c_attn_w + c_attn_b``: the first D columns are the queries, the next D the keys, the last
    D the values. Its output is ``merged @ c_proj_w + c_proj_b``. Our maps are ``x @ w + b`` too,
    one for each of the four. In both layouts head h has the h-th block of columns of the queries,
    keys and values.

    Parameters
    ----------
    params : MultiHeadParams
        ``params.w_q``, ``params.w_k``, ``params.w_v``, ``params.w_o`` (D, D), and ``params.b_q``,
        ``params.b_k``, ``params.b_v``, ``params.b_o`` (D,).

    Returns
    -------
    c_attn_w : (D, 3*D)
    c_attn_b : (3*D,)
    c_proj_w : (D, D)
    c_proj_b : (D,)
    """
    w_q, b_q = params.w_q, params.b_q
    w_k, b_k = params.w_k, params.b_k
    w_v, b_v = params.w_v, params.b_v
    w_o, b_o = params.w_o, params.b_o
    ws: list[Any] = [w_q, w_k, w_v]
    bs: list[Any] = [b_q, b_k, b_v]
    c_attn_w = np.concatenate(ws, axis=1)
    c_attn_b = np.concatenate(bs)
    return GPT2Params(c_attn_w, c_attn_b, w_o, b_o)


MISTAKES = [
    Again("every w transposed", {f"= params.w_{x}, ": f"= params.w_{x}.T, " for x in "qkvo"}),
    Again("in the order k, q, v", {"[w_q, w_k, w_v]": "[w_k, w_q, w_v]", "[b_q, b_k, b_v]": "[b_k, b_q, b_v]"}),
    Again("in the order q, v, k", {"[w_q, w_k, w_v]": "[w_q, w_v, w_k]", "[b_q, b_k, b_v]": "[b_q, b_v, b_k]"}),
    Again("in the order v, k, q", {"[w_q, w_k, w_v]": "[w_v, w_k, w_q]", "[b_q, b_k, b_v]": "[b_v, b_k, b_q]"}),
    Again("columns of q, k, v alternate", {"np.concatenate(ws, axis=1)": "np.stack(ws, axis=-1).reshape(len(w_q), -1)", "np.concatenate(bs)": "np.stack(bs, axis=-1).ravel()"}),
    Again("q, k, v by reshape only", {"np.concatenate(ws, axis=1)": "np.stack(ws).reshape(len(w_q), -1)"}),
    Again("q, k, v along the rows", {"np.concatenate(ws, axis=1)": "np.concatenate(ws, axis=0)"}),
    Again("biases left out", {f", params.b_{x}\n": f", np.zeros_like(params.b_{x})\n" for x in "qkvo"}),
    *(Again(f"b_{x} left out", {f", params.b_{x}\n": f", np.zeros_like(params.b_{x})\n"}) for x in "qkvo"),
    *(Again(f"w_{x} transposed", {f"= params.w_{x}, ": f"= params.w_{x}.T, "}) for x in "qkvo"),
]  # fmt: skip

TASK = Task(
    to_gpt2,
    place=340,
    difficulty=1,
    minutes=5,
    needs=("from-gpt2",),
    hints=Hints(
        where="This is the inverse of from_gpt2: it joins the arrays along the axis that "
        "from_gpt2 splits. Notebook 27.",
        question="Each of w_q, w_k and w_v is (D, D), and c_attn_w is (D, 3*D). Along which axis "
        "must you join them? In which columns of ``x @ c_attn_w`` is a token's key?",
        mistake="q, k, v by reshape only",
        fix="np.concatenate([params.w_q, params.w_k, params.w_v], axis=1); "
        "np.concatenate([params.b_q, params.b_k, params.b_v])",
    ),
    returns="tuple[Array, Array, Array, Array]",
    draw=lambda rng: [{"params": draw_params(rng, D, D)} for D in (6, 4)],
    mistakes=MISTAKES,
)
