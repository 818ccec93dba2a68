"""The params of GPT-2."""

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import normal
from mha_numpy.teach.task import Again, Hints, Mistake, Task


def from_gpt2(
    c_attn_w: Array, c_attn_b: Array, c_proj_w: Array, c_proj_b: Array
) -> MultiHeadParams:
    """Take apart the attention params of GPT-2, as Hugging Face stores them.

    GPT-2 computes queries, keys and values at once, ``x @ c_attn_w + c_attn_b``: the first D
    columns are the queries, the next D the keys, the last D the values. Its output is
    ``merged @ c_proj_w + c_proj_b``. Our maps are ``x @ w + b`` too, one for each of the four. In
    both layouts head h has the h-th block of columns of the queries, keys and values.

    Parameters
    ----------
    c_attn_w : (D, 3*D)
    c_attn_b : (3*D,)
    c_proj_w : (D, D)
    c_proj_b : (D,)

    Returns
    -------
    params : MultiHeadParams
        ``MultiHeadParams(w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o)``; every w (D, D), every b (D,).
    """
    w_q, w_k, w_v = np.split(c_attn_w, 3, axis=1)
    b_q, b_k, b_v = np.split(c_attn_b, 3)
    w_o, b_o = c_proj_w, c_proj_b
    return MultiHeadParams(w_q=w_q, b_q=b_q, w_k=w_k, b_k=b_k, w_v=w_v, b_v=b_v, w_o=w_o, b_o=b_o)


MISTAKES: list[Mistake | Again] = [
    Mistake("every w transposed", "every w is transposed, as if GPT-2 stored (outputs, inputs)",
            "GPT-2 computes x @ w too: do not transpose",
            {f"w_{x}=w_{x}": f"w_{x}=w_{x}.T" for x in "qkvo"}),
    Mistake("in the order k, q, v", "queries and keys are swapped: the order is q, k, v",
            "q, k, v",
            {"w_q, w_k, w_v = ": "w_k, w_q, w_v = ", "b_q, b_k, b_v = ": "b_k, b_q, b_v = "}),
    Mistake("in the order q, v, k", "keys and values are swapped: the order is q, k, v",
            "q, k, v",
            {"w_q, w_k, w_v = ": "w_q, w_v, w_k = ", "b_q, b_k, b_v = ": "b_q, b_v, b_k = "}),
    Mistake("in the order v, k, q", "queries and values are swapped: the order is q, k, v",
            "q, k, v",
            {"w_q, w_k, w_v = ": "w_v, w_k, w_q = ", "b_q, b_k, b_v = ": "b_v, b_k, b_q = "}),
    Mistake("columns of q, k, v alternate", "columns of q, k and v are taken in turn instead of in blocks of D",
            "np.split(c_attn_w, 3, axis=1), np.concatenate(..., axis=1)",
            {"np.split(c_attn_w, 3, axis=1)": "(c_attn_w[:, i::3] for i in range(3))", "np.split(c_attn_b, 3)": "(c_attn_b[i::3] for i in range(3))"}),
    Mistake("q, k, v by reshape only", "reshape to or from (3, D, D) splits the rows of c_attn_w, not its columns",
            "np.split(c_attn_w, 3, axis=1), np.concatenate(..., axis=1)",
            {"np.split(c_attn_w, 3, axis=1)": "c_attn_w.reshape(3, len(c_attn_w), -1)"}),
    Mistake("q, k, v along the rows", "q, k and v are stacked on top of one another instead of side by side",
            "axis=1", {"np.split(c_attn_w, 3, axis=1)": "np.split(c_attn_w, 3, axis=0)"}),
    Mistake("biases left out", "the biases are 0", "c_attn_b holds b_q, b_k, b_v; c_proj_b is b_o",
            {f"b_{x}=b_{x}": f"b_{x}=np.zeros_like(b_{x})" for x in "qkvo"}),
    *(Again(f"b_{x} left out", {f"b_{x}=b_{x}": f"b_{x}=np.zeros_like(b_{x})"}) for x in "qkvo"),
    *(Again(f"w_{x} transposed", {f"w_{x}=w_{x}": f"w_{x}=w_{x}.T"}) for x in "qkvo"),
]  # fmt: skip

TASK = Task(
    from_gpt2,
    place=330,
    difficulty=1,
    minutes=5,
    needs=("multi-head",),
    hints=Hints(
        where="One axis of c_attn_w has length 3*D: does it belong to the inputs or to the "
        "outputs? docs/conventions.md, params; notebook 27.",
        question="Take D = 2: c_attn maps a token to 6 numbers. Which of them are its key, and "
        "from which columns of c_attn_w do they come?",
        mistake="every w transposed",
        fix="w_q, w_k, w_v = np.split(c_attn_w, 3, axis=1); b_q, b_k, b_v = np.split(c_attn_b, 3)",
    ),
    draw=lambda rng: [
        normal(rng, c_attn_w=(D, 3 * D), c_attn_b=(3 * D,), c_proj_w=(D, D), c_proj_b=(D,))
        for D in (6, 4)
    ],
    mistakes=MISTAKES,
)
