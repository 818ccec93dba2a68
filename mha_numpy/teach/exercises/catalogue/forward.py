"""One head, step by step: scores, softmax, attention."""

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "scores",
    title="Scores: how well a query matches a key",
    difficulty=1,
    minutes=5,
    hints=Hints(
        where="Eq. 1 of Vaswani et al. 2017: look at what stands inside softmax. If arrays have "
        'rank 4, NumPy multiplies the matrices of their last two axes. Notebook 06, "Divide by '
        'what?".',
        question="A query and a key of d_k = 64 numbers each, independent, mean 0, variance 1: "
        "what is the standard deviation of their dot product? What must you divide by to make it "
        "1?",
        mistake="scale missing",
        fix="q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])",
    ),
)
def scores(q: Array, k: Array) -> Array:
    """Match every query with every key of its head.

    ``scores[b, h, i, j]`` is the dot product of query i and key j, both of sequence b and head h,
    divided by the square root of d_k.

    Parameters
    ----------
    q : (B, H, T_q, d_k)
    k : (B, H, T_k, d_k)

    Returns
    -------
    scores : (B, H, T_q, T_k)
    """
    raise NotImplementedError


@exercise(
    "softmax",
    title="A softmax that never overflows",
    difficulty=2,
    minutes=20,
    hints=Hints(
        where="Compute exp(1000) and 0 / 0 in NumPy; then read docs/softmax.md, steps 1 to 4. "
        'Notebook 07, "Adding a constant changes nothing" and "A row that may attend to nothing".',
        question="What are the weights of the scores (1000, 1001), and what those of (0, 1)? In a "
        "row whose cells are all hidden, what is the largest visible score, and what is the sum of "
        "all powers?",
        mistake="NaN in a row that sees nothing",
        fix="masked = np.where(mask, scores, -np.inf); sees_any = mask.any(axis=-1, "
        "keepdims=True); powers = np.exp(masked - np.where(sees_any, masked.max(axis=-1, "
        "keepdims=True), 0)); powers / np.where(sees_any, powers.sum(axis=-1, "
        "keepdims=True), 1)\n"
        "and before, where the mask is None:\n"
        "mask = np.ones(scores.shape, dtype=bool)",
    ),
)
def softmax(scores: Array, mask: Array | None) -> Array:
    """Turn every row of scores into weights that sum to 1.

    Along the last axis, ``weights_j = exp(scores_j) / sum_l exp(scores_l)``; the sum is over the
    visible cells of the row. A hidden cell has weight 0, however large its score. A row that sees
    nothing has weights 0.

    Scores may be in the thousands, above 0 or below, and one row far from another: nothing may
    become NaN.

    Parameters
    ----------
    scores : (..., T_q, T_k)
    mask : bool, of the shape of `scores`, or None
        True = may attend: the cell is visible. None hides nothing.

    Returns
    -------
    weights : (..., T_q, T_k)
    """
    raise NotImplementedError


@exercise(
    "softmax-with-lse",
    title="One number that remembers a row",
    difficulty=2,
    minutes=10,
    needs=("softmax",),
    hints=Hints(
        where="Look at the sum that your softmax divides by: is it the sum of exp(scores)? "
        'docs/softmax.md, lse; notebook 07, "lse: the log of the sum".',
        question="Two scores of 1000: their sum of exp(scores - 1000) is 2. What is the log of "
        "exp(1000) + exp(1000), and how do you get it from 2?",
        mistake="lse without the maximum",
        fix="lse = np.where(sees_any, largest + np.log(total), -np.inf)[..., 0]",
    ),
)
def softmax_with_lse(scores: Array, mask: Array | None) -> tuple[Array, Array]:
    """Turn rows of scores into weights, and return the log of each row's sum as well.

    ``lse = log sum_j exp(scores_j)``, over the visible cells of a row, is one number for each row.
    In these cells ``weights_j = exp(scores_j - lse)``. A hidden cell has weight 0, however large
    its score. A row that sees nothing has weights 0 and lse -inf.

    Scores may be in the thousands, above 0 or below, and one row far from another: nothing may
    become NaN, and lse is infinite only in rows that see nothing.

    Parameters
    ----------
    scores : (..., T_q, T_k)
    mask : bool, of the shape of `scores`, or None
        True = may attend: the cell is visible. None hides nothing.

    Returns
    -------
    weights : (..., T_q, T_k)
    lse : (..., T_q)
    """
    raise NotImplementedError


@exercise(
    "one-query",
    title="One query meets the keys",
    difficulty=1,
    minutes=5,
    hints=Hints(
        where="The function needs three lines: the scores, the weights, the mean of the values. "
        'Write the shape beside each. Notebook 01, "By hand".',
        question="A query of shape (2,) and keys of shape (3, 2): how many scores are there? What "
        "must the weights sum to, and along which axis of the values do you take the mean?",
        mistake="scale missing",
        fix="scores = k @ q / np.sqrt(len(q)); powers = np.exp(scores - scores.max()); "
        "powers / powers.sum() @ v",
    ),
)
def one_query(q: Array, k: Array, v: Array) -> Array:
    """Let a single query take a weighted mean of the values.

    The score of key j is ``q . k_j / sqrt(d_k)``. Softmax turns the scores into weights, and the
    result is the sum of ``weight_j * v_j``. Large scores must not overflow.

    Parameters
    ----------
    q : (d_k,)
    k : (T_k, d_k)
    v : (T_k, d_v)

    Returns
    -------
    out : (d_v,)
    """
    raise NotImplementedError


@exercise(
    "attention",
    title="One head",
    difficulty=1,
    minutes=10,
    needs=("scores", "softmax"),
    hints=Hints(
        where="Write Eq. 1 of Vaswani et al. 2017 from the inside out, with the shape beside each "
        'step. Notebook 02, "All queries at once".',
        question="Two queries and three keys: what shape have the weights? Which of them "
        "belong to one mean of the values, and must therefore sum to 1?",
        mistake="softmax over queries",
        fix="powers = np.exp(scores - scores.max(axis=-1, keepdims=True)); powers / "
        "powers.sum(axis=-1, keepdims=True) @ v",
    ),
)
def attention(q: Array, k: Array, v: Array) -> Array:
    """Let every query take a weighted mean of the values.

    ``softmax(q k^T / sqrt(d_k)) v``, for one head of one sequence: the weights of each query, one
    for each key, sum to 1. Nothing is hidden. Large scores must not overflow.

    Parameters
    ----------
    q : (T_q, d_k)
    k : (T_k, d_k)
    v : (T_k, d_v)

    Returns
    -------
    heads : (T_q, d_v)
    """
    raise NotImplementedError
