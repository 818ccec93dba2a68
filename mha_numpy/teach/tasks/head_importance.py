"""Which heads matter."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Law, Mistake, Task
from mha_numpy.teach.tasks.d_head_gate import draw_gated


def head_importance(d_gated: Array, heads: Array) -> Array:
    """Return how much each head matters, by the gradients of its gate (Michel et al. 2019).

    Forward was ``gated = heads * gate[:, None, None]`` with all gates 1. Each sequence
    gives every gate its own gradient, summed over the queries and features of that sequence. A
    head's importance is the mean, over the sequences, of the absolute value of this gradient.

    Parameters
    ----------
    d_gated : (B, H, T_q, d_v)
    heads : (B, H, T_q, d_v)

    Returns
    -------
    importance : (H,)
    """
    shares = d_gated * heads  # (B, H, T, d)
    of_each = shares.sum(axis=(2, 3))  # (B, H)
    return np.abs(of_each).mean(axis=0)


MISTAKES = [
    Mistake("importance from d_gated only", "the importance is computed from d_gated only: the factor heads is missing",
            "d_gated * heads", {"shares = d_gated * heads": "shares = d_gated"}),
    Mistake("importance from the heads only",
            "the importance is computed from the heads only: the factor d_gated is missing", "d_gated * heads",
            {"shares = d_gated * heads": "shares = heads"}),
    Mistake("absolute value of each number",
            "the absolute value of each number is taken, before the sum over tokens and features",
            "np.abs of each sequence's sum", {"shares.sum(axis=(2, 3))": "np.abs(shares).sum(axis=(2, 3))"}),
    Mistake("absolute value of each token",
            "the absolute value of each token's share is taken, before the sum over the tokens",
            "np.abs of each sequence's sum", {"shares.sum(axis=(2, 3))": "np.abs(shares.sum(axis=3)).sum(axis=2)"}),
    Mistake("absolute value after the sum",
            "the absolute value is taken after the sum over all sequences, in which gradients of opposite sign cancel",
            "np.abs first, then the mean over the batch",
            {"np.abs(of_each).mean(axis=0)": "np.abs(of_each.sum(axis=0))"}),
    Mistake("absolute value after the mean",
            "the absolute value is taken after the mean over the sequences, in which gradients of opposite sign cancel",
            "np.abs first, then the mean over the batch",
            {"np.abs(of_each).mean(axis=0)": "np.abs(of_each.mean(axis=0))"}),
    Mistake("no absolute value", "no absolute value is taken, so gradients of opposite sign cancel", "np.abs of each sequence's sum",
            {"np.abs(of_each)": "of_each"}),
    Mistake("squares for absolute values", "the importance is a mean of squares instead of absolute values", "np.abs",
            {"np.abs(of_each)": "(of_each**2)"}),
    Mistake("importance summed over the batch", "the importance is a sum over the batch instead of the mean",
            "mean over the batch", {"np.abs(of_each).mean(axis=0)": "np.abs(of_each).sum(axis=0)"}),
    Mistake("importance: mean over the tokens",
            "each sequence's gradient is a mean over its tokens instead of the sum", "sum over tokens and features",
            {"shares.sum(axis=(2, 3))": "shares.sum(axis=3).mean(axis=2)"}),
    Mistake("importance: mean over the heads", "the mean is taken over the heads instead of the batch",
            "mean(axis=0)", {"np.abs(of_each).mean(axis=0)": "np.abs(of_each).mean(axis=1)"}),
    Mistake("importance divided by its norm", "the importance is divided by its norm over the heads",
            "leave it as it is: norms are for comparing layers",
            {"np.abs(of_each).mean(axis=0)": "np.abs(of_each).mean(axis=0) / np.linalg.norm(np.abs(of_each).mean(axis=0))"}),
    Mistake("importance: product of sums", "d_gated and heads are summed apart, and the sums are multiplied",
            "multiply first, then sum",
            {"shares.sum(axis=(2, 3))": "d_gated.sum(axis=(2, 3)) * heads.sum(axis=(2, 3))"}),
]  # fmt: skip

TASK = Task(
    head_importance,
    place=290,
    difficulty=2,
    minutes=10,
    needs=("head-gates",),
    hints=Hints(
        where="Start as for the gate's gradient. Then check which axis is left when you take the "
        'absolute value: Michel et al. 2019, section 4.1; notebook 10, "How much does a head '
        'matter?".',
        question="A head helps sequence 0 (gradient -3) and hurts sequence 1 (gradient 3). What "
        "is the gradient over both sequences, and does the head matter?",
        mistake="absolute value after the mean",
        fix="np.abs((d_gated * heads).sum(axis=(2, 3))).mean(axis=0)",
    ),
    draw=draw_gated,
    laws=[Law("no importance is negative", lambda _, arrays: np.minimum(arrays[""], 0))],
    mistakes=MISTAKES,
)
