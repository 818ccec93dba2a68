"""Where a head looks, and what it is worth: gradients of gates."""

from mha_numpy.dtypes import Array
from mha_numpy.exercises.exercise import Hints, exercise


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
