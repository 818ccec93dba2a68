"""Bridges: params as other libraries store them, in our names and back."""

from mha_numpy.core import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "from-gpt2",
    title="The params of GPT-2",
    difficulty=1,
    minutes=5,
    needs=("multi-head",),
    hints=Hints(
        where="One axis of c_attn_w is 3D long: is it that of the inputs or of the outputs? "
        "docs/conventions.md, params; notebook 27.",
        question="Take D = 2: c_attn maps a token to 6 numbers. Which of them are its key, and "
        "from which columns of c_attn_w do they come?",
        mistake="every w transposed",
        fix="w_q, w_k, w_v = np.split(c_attn_w, 3, axis=1); b_q, b_k, b_v = np.split(c_attn_b, 3)",
    ),
)
def from_gpt2(
    c_attn_w: Array, c_attn_b: Array, c_proj_w: Array, c_proj_b: Array
) -> MultiHeadParams:
    """Take apart the attention params of GPT-2, as Hugging Face stores them.

    GPT-2 computes queries, keys and values at once, ``x @ c_attn_w + c_attn_b``: the first D
    columns are the queries, the next D the keys, the last D the values. Its output is
    ``merged @ c_proj_w + c_proj_b``. Our maps are ``x @ w + b`` as well, one for each of the four.
    In both layouts head h has the h-th block of columns of the queries, keys and values.

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
    raise NotImplementedError


@exercise(
    "to-gpt2",
    title="And back to GPT-2",
    difficulty=1,
    minutes=5,
    needs=("from-gpt2",),
    hints=Hints(
        where="This is the inverse of from_gpt2: it joins the arrays along the axis along which "
        "from_gpt2 cuts. Notebook 27.",
        question="w_q, w_k and w_v are (D, D) each, c_attn_w is (D, 3*D). Along which axis must "
        "you join them? In which columns of ``x @ c_attn_w`` must the key of a token stand?",
        mistake="q, k, v by reshape alone",
        fix="np.concatenate([params.w_q, params.w_k, params.w_v], axis=1); "
        "np.concatenate([params.b_q, params.b_k, params.b_v])",
    ),
)
def to_gpt2(params: MultiHeadParams) -> tuple[Array, Array, Array, Array]:
    """Put params together as GPT-2 stores its attention.

    GPT-2, as in Hugging Face, computes queries, keys and values at once,
    ``x @ c_attn_w + c_attn_b``: the first D columns are the queries, the next D the keys, the last
    D the values. Its output is ``merged @ c_proj_w + c_proj_b``. Our maps are ``x @ w + b`` as
    well, one for each of the four. In both layouts head h has the h-th block of columns of the
    queries, keys and values.

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
    raise NotImplementedError
