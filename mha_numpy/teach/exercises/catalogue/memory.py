"""What attention holds in memory: past keys and values, and not the weights."""

from mha_numpy.core import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "decode-step",
    title="One more token",
    difficulty=3,
    minutes=20,
    needs=("multi-head", "grouped-attention"),
    hints=Hints(
        where="Ask which of q, k, v are new, and which axis of k and v holds the tokens: notebook "
        '17, "What is kept".',
        question="Three tokens are kept and a fourth comes: how many rows has q, how many k? Is "
        "the fourth token among the keys that it attends to? What must the step return if none is "
        "kept?",
        mistake="own key not seen",
        fix="k, v = np.concatenate([k_past, k_new], axis=2), np.concatenate([v_past, "
        "v_new], axis=2)\n"
        "then the one query of each head attends to all of k and v",
    ),
)
def decode_step(
    x: Array, k_past: Array, v_past: Array, params: MultiHeadParams, num_heads: int
) -> tuple[Array, Array, Array]:
    """Attend from one new token to all tokens so far, whose keys and values were kept.

    Query, key and value of the new token are ``x @ w + b``, each with its own params, and head h
    has the h-th block of d columns. Its key and value come behind those of the T tokens before it;
    T may be 0. Its query attends to all T + 1 tokens: query head h reads key and value head
    ``h // (H // H_kv)`` and returns ``softmax(q k^T / sqrt(d)) v``. The H heads, side by side in
    their order, are ``merged``; the output is ``merged @ w_o + b_o``. Large scores must not
    overflow.

    The inputs stay as they are. Use NumPy and functions of your own.

    Parameters
    ----------
    x : (B, 1, D)
    k_past, v_past : (B, H_kv, T, d)
        Split into heads already; H_kv divides H.
    params : MultiHeadParams
        ``params.w_q`` (D, H*d), ``params.w_k`` and ``params.w_v`` (D, H_kv*d), ``params.w_o``
        (H*d, D); four biases, ``params.b_q`` to ``params.b_o``, each with one number for each
        column of its ``w``.
    num_heads : int
        H.

    Returns
    -------
    out : (B, 1, D)
    k, v : (B, H_kv, T + 1, d)
        Keys and values of all tokens, for the next step.
    """
    raise NotImplementedError


@exercise(
    "online-attention",
    title="Attention that never holds a row of weights",
    difficulty=4,
    minutes=40,
    needs=("attention", "softmax-with-lse"),
    hints=Hints(
        where="Ask what you must keep of a block of keys for each query: docs/kernels.md, the "
        'table by hand. Notebook 26, "Online softmax".',
        question="Take one query with the scores 0, 1, 5, and blocks of two keys. After the first "
        "block you hold a sum of exp(s - 1). The second brings a maximum of 5: what factor turns "
        "that sum into one of exp(s - 5)? What else has to be multiplied by it?",
        mistake="old mixture not rescaled",
        fix="factor = np.exp(largest_before - largest); total = total * factor + "
        "powers.sum(axis=-1, keepdims=True); head = head * factor + powers @ v_block\n"
        "the first largest_before is -inf; at the end:\n"
        "head / total",
    ),
)
def online_attention(q: Array, k: Array, v: Array, block: int) -> Array:
    """Compute attention from `block` keys at a time, without ever holding all scores of a query.

    The result is ``softmax(q k^T / sqrt(d_k)) v`` for one head, as if computed at once; nothing is
    hidden. Go through the keys once, and never hold scores of more than `block` of them. The last
    block is shorter where `block` does not divide T_k, and there is only one where T_k is not
    larger. Large scores must not overflow, in whichever block they stand.

    Parameters
    ----------
    q : (T_q, d_k)
    k : (T_k, d_k)
    v : (T_k, d_v)
    block : int
        1 or more.

    Returns
    -------
    heads : (T_q, d_v)
    """
    raise NotImplementedError
