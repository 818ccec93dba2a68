"""Back through a linear map."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import normal
from mha_numpy.teach.task import Again, Hints, Mistake, Slope, Task, same_sum


class LinearGrads(NamedTuple):
    """Gradients of a linear map."""

    d_x: Array
    d_w: Array
    d_b: Array


def linear_backward(d_out: Array, x: Array, w: Array) -> LinearGrads:
    """Return the gradients of a linear map's input, matrix and bias.

    Forward was ``out = x @ w + b``, with the same `w` and `b` for all tokens of all sequences. I
    and O are the widths of input and output.

    Parameters
    ----------
    d_out : (B, T, O)
    x : (B, T, I)
    w : (I, O)

    Returns
    -------
    d_x : (B, T, I)
    d_w : (I, O)
    d_b : (O,)
    """
    return through_linear(d_out, x, w)


def through_linear(d_out: Array, x: Array, w: Array) -> LinearGrads:
    """Pull back through a linear map, whose w and b all tokens share."""
    d_x = d_out @ w.T
    d_w = (x.swapaxes(-1, -2) @ d_out).sum(axis=0)  # of (B, inputs, outputs)
    d_b = d_out.sum(axis=(0, 1))
    return LinearGrads(d_x, d_w, d_b)


MISTAKES: list[Mistake | Again] = [
    Mistake("d_x through w, not its transpose", "the gradient goes back through w instead of w.T",
            "d_out @ w.T", {"d_out @ w.T": "d_out @ w"}),
    Mistake("d_w from the last sequence only", "d_w is computed from the last sequence only", "sum over the batch",
            {"@ d_out).sum(axis=0)": "@ d_out)[-1]"}),
    Mistake("d_w not summed over the batch", "d_w is (B, inputs, outputs): the sum over the batch is left out",
            "sum over the batch", {"@ d_out).sum(axis=0)": "@ d_out)"}),
    Mistake("d_w: mean over the batch", "d_w is the mean over the batch instead of the sum", "sum over the batch",
            {"@ d_out).sum(axis=0)": "@ d_out).mean(axis=0)"}),
    Mistake("d_w: mean over batch and tokens", "d_w is a mean over batch and tokens", "sum over both",
            {"@ d_out).sum(axis=0)": "@ d_out).mean(axis=0) / x.shape[1]"}),
    Mistake("d_w transposed", "d_w is transposed", "x.T @ d_out, (inputs, outputs)",
            {"@ d_out).sum(axis=0)": "@ d_out).sum(axis=0).T"}),
    Mistake("d_b from the last sequence only", "d_b is computed from the last sequence only", "sum over the batch",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out[-1].sum(axis=0)"}),
    Mistake("d_b from the last tokens only", "d_b is computed from the last tokens only", "sum over the tokens",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out[:, -1].sum(axis=0)"}),
    Mistake("d_b: mean", "d_b is a mean over batch and tokens", "sum over both",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out.mean(axis=(0, 1))"}),
    Mistake("d_b: mean over the batch", "d_b is the mean over the batch instead of the sum", "sum over the batch",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out.mean(axis=0).sum(axis=0)"}),
    Mistake("d_b: zero", "d_b is 0", "d_out.sum(axis=(0, 1))",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = np.zeros(d_out.shape[-1])"}),
    Mistake("d_b over the batch only", "d_b is summed over the batch only", "sum over batch and tokens",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out.sum(axis=0)"}),
    Mistake("d_b over the tokens only", "d_b is summed over the tokens only", "sum over batch and tokens",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out.sum(axis=1)"}),
    Again("everything divided by B", {"return through_linear(d_out,": "return through_linear(d_out / len(d_out),"}),
]  # fmt: skip

TASK = Task(
    linear_backward,
    place=170,
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="w and b serve every token of every sequence: docs/multi-head.md, Backward of the "
        'linear map; notebook 14, "Why sums?".',
        question="Two tokens (2, 0) and (5, 1) meet a w with one column; the upstream gradients are "
        "3 and -1. If w[0, 0] grows by 0.1, by how much does the loss grow? You added two "
        "numbers: how do you write that as a product of matrices?",
        mistake="d_w: mean over the batch",
        fix="d_x = d_out @ w.T; d_w = x.reshape(-1, x.shape[-1]).T @ "
        "d_out.reshape(-1, d_out.shape[-1]); d_b = d_out.sum(axis=(0, 1))",
    ),
    returns="tuple[Array, Array, Array]",
    draw=lambda rng: [  # a rectangular map, a square one, and single sizes
        normal(rng, d_out=(B, T, m), x=(B, T, n), w=(n, m))
        for B, T, n, m in ((3, 4, 5, 6), (2, 4, 5, 5), (1, 6, 2, 3), (4, 1, 3, 1))
    ],
    laws=[same_sum("x", "w")],
    slope=lambda inputs: Slope(
        lambda x, w, b: x @ w + b,
        {"x": inputs["x"], "w": inputs["w"], "b": np.zeros(inputs["w"].shape[1])},
        inputs["d_out"],
    ),
    mistakes=MISTAKES,
)
