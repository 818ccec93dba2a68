"""Backward passes of attention's own steps: scores, softmax, dropout, and all of them at once."""

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "scores-backward",
    title="Back through the scores",
    difficulty=2,
    minutes=10,
    needs=("scores",),
    hints=Hints(
        where="The scores are a matrix product with a number before it: docs/attention.md, "
        'Backward, step 1; notebook 06, "The scale in backward".',
        question="Take one query and two keys. The query is used in both scores. By what was it "
        "multiplied in each? Its gradient is a sum of two vectors: which, and with which factors?",
        mistake="scale left out of backward",
        fix="scale = 1 / np.sqrt(q.shape[-1]); d_q = scale * d_scores @ k; "
        "d_k = scale * d_scores.swapaxes(-1, -2) @ q",
    ),
)
def scores_backward(d_scores: Array, q: Array, k: Array) -> tuple[Array, Array]:
    """Return the gradients of q and k, from that of their scores.

    Forward was ``scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])``, for every sequence and
    head on its own. There may be fewer or more queries than keys.

    Parameters
    ----------
    d_scores : (B, H, T_q, T_k)
    q : (B, H, T_q, d_k)
    k : (B, H, T_k, d_k)

    Returns
    -------
    d_q, d_k : arrays like q and k
        Their gradients, in this order.
    """
    raise NotImplementedError


@exercise(
    "softmax-backward",
    title="Back through softmax",
    difficulty=3,
    minutes=20,
    needs=("softmax",),
    hints=Hints(
        where="A score appears in every weight of its row, as they share one sum: docs/softmax.md, "
        'Backward; notebook 11, "Multiplying without building".',
        question="If all weights of a row get the same upstream gradient, what must d_scores be? "
        "(They sum to 1 whatever you do.)",
        mistake="row sum left out",
        fix="weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))",
    ),
)
def softmax_backward(d_weights: Array, weights: Array) -> Array:
    """Return the gradient of the scores, from that of the weights.

    Forward was ``weights = softmax(scores)`` along the last axis, with a mask or without. A hidden
    cell has weight 0, and in a row that sees nothing all weights are 0. The gradient of such cells
    is 0.

    Parameters
    ----------
    d_weights : (..., T_q, T_k)
        Any numbers, in hidden cells too.
    weights : (..., T_q, T_k)
        What softmax returned.

    Returns
    -------
    d_scores : (..., T_q, T_k)
    """
    raise NotImplementedError


@exercise(
    "dropout-backward",
    title="Back through dropout",
    difficulty=1,
    minutes=5,
    needs=("softmax-backward",),
    hints=Hints(
        where="Forward multiplies each weight by a number that does not depend on it: "
        "docs/attention.md, Backward, step 5.",
        question="With p = 0.75, a weight of 0.2 that is kept becomes 0.8. If it grows by 0.01, by "
        "how much does the output grow? And by how much if the weight is dropped?",
        mistake="dropout not undone by 1/(1-p)",
        fix="d_dropped * keep / (1 - p)",
    ),
)
def dropout_backward(d_dropped: Array, keep: Array, p: float) -> Array:
    """Return the gradient of the weights, from that of the weights after dropout.

    Forward was ``dropped = weights * keep / (1 - p)``: each weight was dropped with probability
    `p`, and the others were enlarged, so that the mean stays the same.

    Parameters
    ----------
    d_dropped : (B, H, T_q, T_k)
    keep : (B, H, T_q, T_k) bool
        True = the weight was kept.
    p : float
        From 0 to below 1.

    Returns
    -------
    d_weights : (B, H, T_q, T_k)
    """
    raise NotImplementedError


@exercise(
    "attention-backward",
    title="Back through attention",
    difficulty=4,
    minutes=35,
    needs=("attention", "scores-backward", "softmax-backward"),
    hints=Hints(
        where="Forward has three lines, so backward has three steps, the last line first: "
        'docs/attention.md, Backward, steps 6, 4 and 1; notebook 12, "Forward and backward side by '
        'side".',
        question="heads = weights @ v is a product of (T_q, T_k) and (T_k, d_v), and d_heads is "
        "(T_q, d_v). With T_q = 2, T_k = 3, d_v = 4, which products have the shapes of weights and "
        "of v? What is left then is softmax and scores, whose backward you know.",
        mistake="scale left out of backward",
        fix="d_v = weights.swapaxes(-1, -2) @ d_heads; d_weights = d_heads @ v.swapaxes(-1, "
        "-2)\n"
        "then softmax's backward gives d_scores, and that of the scores d_q and d_k, both "
        "with:\n"
        "1 / np.sqrt(q.shape[-1])",
    ),
)
def attention_backward(
    d_heads: Array, q: Array, k: Array, v: Array, weights: Array
) -> tuple[Array, Array, Array]:
    """Return the gradients of q, k and v, from that of the heads.

    Forward was, for every sequence and head on its own::

        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        weights = softmax(scores)  # along the last axis; with a mask or without
        heads = weights @ v

    A hidden cell has weight 0, and in a row that sees nothing all weights are 0. So backward does
    not need the mask.

    Parameters
    ----------
    d_heads : (B, H, T_q, d_v)
    q : (B, H, T_q, d_k)
    k : (B, H, T_k, d_k)
    v : (B, H, T_k, d_v)
    weights : (B, H, T_q, T_k)
        As forward computed them.

    Returns
    -------
    d_q, d_k, d_v : arrays like q, k and v
        Their gradients, in this order.
    """
    raise NotImplementedError


@exercise(
    "backward-from-lse",
    title="Backward without stored weights",
    difficulty=5,
    minutes=45,
    needs=("attention-backward", "softmax-with-lse"),
    hints=Hints(
        where="The lse of a row is enough to compute its weights again, and the row sum of "
        "softmax's backward follows from two of the arguments: docs/softmax.md, lse; notebook 12, "
        '"Backward without stored weights".',
        question="Softmax's backward needs, for each query, the sum over the keys of "
        "weights * d_weights, and d_weights = d_heads @ v.T. Write the sum out with all indices "
        "and sum over the keys first: which of the arguments appears?",
        mistake="mask forgotten in backward",
        fix="weights = np.exp(np.where(mask, scores - np.where(np.isinf(lse), 0, lse)[..., None], "
        "-np.inf)); d_scores = weights * (d_weights - (d_heads * heads).sum(axis=-1, "
        "keepdims=True))",
    ),
)
def backward_from_lse(
    d_heads: Array, q: Array, k: Array, v: Array, heads: Array, lse: Array, mask: Array
) -> tuple[Array, Array, Array]:
    """Return the gradients of q, k and v without having the weights.

    Forward was, for every sequence and head on its own::

        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        scores = np.where(mask, scores, -np.inf)
        lse = np.log(np.exp(scores).sum(axis=-1))  # written so that nothing overflows
        weights = softmax(scores)  # along the last axis
        heads = weights @ v

    Forward did not keep the weights. It kept heads, and one number for each row, lse. A row that
    sees nothing has lse -inf and heads 0, and its gradients are 0. The scores may be large,
    those of hidden cells too; no gradient is NaN or inf.

    Parameters
    ----------
    d_heads : (B, H, T_q, d_v)
    q : (B, H, T_q, d_k)
    k : (B, H, T_k, d_k)
    v : (B, H, T_k, d_v)
    heads : (B, H, T_q, d_v)
    lse : (B, H, T_q)
    mask : (T_q, T_k) bool
        True = may attend.

    Returns
    -------
    d_q, d_k, d_v : arrays like q, k and v
        Their gradients, in this order.
    """
    raise NotImplementedError
