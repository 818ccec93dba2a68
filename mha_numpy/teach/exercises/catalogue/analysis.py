"""Where a head looks, what it takes, what it is worth, and a layer without it."""

from mha_numpy.core import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "strongest-keys",
    title="Where does each query look?",
    difficulty=1,
    minutes=3,
    hints=Hints(
        where="A row of a picture of weights is a query, a column is a key. Notebook 00, the "
        "picture of the translator.",
        question="Take two queries and three keys: one row of the weights is (0.1, 0.7, 0.2). "
        "Which key has the largest weight, counted from 0? Along which of the axes (H, T_q, T_k) "
        "did you compare?",
        mistake="queries taken for keys",
        fix="weights.argmax(axis=-1)",
    ),
)
def strongest_keys(weights: Array) -> Array:
    """Return for each query, in each head, the number of the key that has the largest weight.

    Keys are counted from 0.

    Parameters
    ----------
    weights : (H, T_q, T_k)

    Returns
    -------
    keys : (H, T_q), whole numbers
    """
    raise NotImplementedError


@exercise(
    "head-gates",
    title="The gradient of a head's gate",
    difficulty=2,
    minutes=10,
    needs=("linear-backward",),
    hints=Hints(
        where="One gate scales a whole head, in all sequences: docs/attention.md, Backward, step "
        '7; notebook 10, "How much does a head matter?".',
        question="A head is (3, 5), its gate 1, the upstream gradient (10, 1). If the gate grows "
        "by 0.1, by how much do both numbers grow, and by how much does the loss?",
        mistake="gate gradient of the last sequence alone",
        fix="(d_gated * heads).sum(axis=(0, 2, 3))",
    ),
)
def d_head_gate(d_gated: Array, heads: Array) -> Array:
    """Return the gradient of the gates, one for each head.

    Forward was ``gated = heads * gate[:, None, None]``. Each head has one gate, the same for all
    sequences, queries and features.

    Parameters
    ----------
    d_gated : (B, H, T_q, d_v)
    heads : (B, H, T_q, d_v)

    Returns
    -------
    d_gate : (H,)
    """
    raise NotImplementedError


@exercise(
    "head-importance",
    title="Which heads matter",
    difficulty=2,
    minutes=10,
    needs=("head-gates",),
    hints=Hints(
        where="Begin as for the gate's gradient. Then look at which axis is still there when the "
        "absolute value is taken: Michel et al. 2019, section 4.1; notebook 10, "
        '"How much does a head matter?".',
        question="A head helps sequence 0 (gradient -3) and hurts sequence 1 (gradient 3). What is "
        "the gradient over both, and does the head matter?",
        mistake="absolute value after the mean",
        fix="np.abs((d_gated * heads).sum(axis=(2, 3))).mean(axis=0)",
    ),
)
def head_importance(d_gated: Array, heads: Array) -> Array:
    """Return how much each head matters, by the gradients of its gate (Michel et al. 2019).

    Forward was ``gated = heads * gate[:, None, None]`` with all gates 1. Each sequence on its own
    gives every gate a gradient, summed over the queries and features of that sequence. A head's
    importance is the mean, over the sequences, of the absolute value of this gradient.

    Parameters
    ----------
    d_gated : (B, H, T_q, d_v)
    heads : (B, H, T_q, d_v)

    Returns
    -------
    importance : (H,)
    """
    raise NotImplementedError


@exercise(
    "weights-times-norm",
    title="What a head takes",
    difficulty=2,
    minutes=10,
    needs=("strongest-keys",),
    hints=Hints(
        where="A head writes the sum of its weights times v_j w_o^h. The length of each of these "
        'vectors is asked for: notebook 23, "Where it looks, and what it takes".',
        question="Head 1 of two, with d_v = 3: by which rows of w_o does it write? A value there "
        "is (0, 0, 0). What does its token bring, if its weight is 0.9?",
        mistake="length of v without w_o",
        fix="weights * np.linalg.norm(v @ w_o.reshape(H, d_v, -1), axis=-1)[:, :, None, :]",
    ),
)
def weights_times_norm(weights: Array, v: Array, w_o: Array) -> Array:
    """Return each weight times the length of what it brings (Kobayashi et al. 2020).

    Head h writes ``sum_j weights_ij (v_j w_o^h)`` into token i, where w_o^h is the h-th block of
    d_v rows of w_o. Of each term return the length: ``weights_ij |v_j w_o^h|``.

    Parameters
    ----------
    weights : (B, H, T_q, T_k)
    v : (B, H, T_k, d_v)
    w_o : (H*d_v, D)

    Returns
    -------
    brought : (B, H, T_q, T_k)
    """
    raise NotImplementedError


@exercise(
    "prune-heads",
    title="Heads that go for good",
    difficulty=2,
    minutes=10,
    needs=("multi-head",),
    hints=Hints(
        where='Which numbers belong to head h alone? Notebook 24, "Cut for good"; notebook 10, '
        '"Switching a head off".',
        question="Two heads with d_k = d_v = 3 and D = 5; head 0 goes. Which of w_q's columns are "
        "left, and which of w_o's rows? Which shapes do w_q, b_q, w_o and b_o have then?",
        mistake="every H-th column removed",
        fix="stays = np.repeat(~np.isin(np.arange(num_heads), heads), d_k); w_q[:, stays]; "
        "b_q[stays]\n"
        "and so for k, and for v with d_v for d_k; of w_o, with d_v too, the rows:\n"
        "w_o[stays]\n"
        "b_o stays whole",
    ),
)
def prune_heads(params: MultiHeadParams, num_heads: int, heads: Array) -> MultiHeadParams:
    """Return the smaller params of a layer without some of its heads.

    The smaller layer computes what the whole one computes with gates of 0. The other heads keep
    their order. The widths d_k and d_v may differ.

    Parameters
    ----------
    params : MultiHeadParams
        w_q, w_k (D, H*d_k), w_v (D, H*d_v), w_o (H*d_v, D), b_q, b_k (H*d_k,), b_v (H*d_v,),
        b_o (D,).
    num_heads : int
        H.
    heads : whole numbers
        Which heads go, counted from 0, in any order; at least one head stays.

    Returns
    -------
    params : MultiHeadParams
        ``MultiHeadParams(w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o)``.
    """
    raise NotImplementedError
