"""The gradient of a head's gate."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import normal
from mha_numpy.teach.task import Hints, Inputs, Mistake, Slope, Task


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
    d_gates = d_gated * heads  # (B, H, T, d)
    return d_gates.sum(axis=(0, 2, 3))


def draw_gated(rng: np.random.Generator) -> list[Inputs]:
    """Draw heads and the gradient of the gated ones: all sizes different, and B = H."""
    return [
        normal(rng, d_gated=shape, heads=shape)
        for shape in ((5, 3, 4, 2), (4, 4, 3, 2), (1, 2, 6, 5))
    ]


MISTAKES = [
    Mistake("gate gradient from d_gated only", "d_gate sums d_gated only: the factor heads is missing",
            "(d_gated * heads).sum(axis=(0, 2, 3))", {"d_gates = d_gated * heads": "d_gates = d_gated"}),
    Mistake("gate gradient from the heads only", "d_gate sums the heads only: the factor d_gated is missing",
            "(d_gated * heads).sum(axis=(0, 2, 3))", {"d_gates = d_gated * heads": "d_gates = heads"}),
    Mistake("gate gradient not summed", "d_gate is d_gated * heads, not summed: a gate multiplies a whole head",
            "sum over every axis except that of the heads", {"d_gates.sum(axis=(0, 2, 3))": "d_gates"}),
    Mistake("gate gradient of each sequence", "d_gate is (B, H): the sum over the batch is missing",
            "sum over every axis except that of the heads", {"d_gates.sum(axis=(0, 2, 3))": "d_gates.sum(axis=(2, 3))"}),
    Mistake("gate gradient of each feature", "d_gate is (H, d): the sum over the features is missing",
            "sum over every axis except that of the heads", {"d_gates.sum(axis=(0, 2, 3))": "d_gates.sum(axis=(0, 2))"}),
    Mistake("gate gradient summed over the heads", "d_gate is (B,): the sum is over the heads instead of the batch",
            "axis=(0, 2, 3)", {"d_gates.sum(axis=(0, 2, 3))": "d_gates.sum(axis=(1, 2, 3))"}),
    Mistake("gate gradient from the last sequence only", "d_gate is computed from the last sequence only", "sum over the batch",
            {"d_gates.sum(axis=(0, 2, 3))": "d_gates[-1].sum(axis=(1, 2))"}),
    Mistake("gate gradient: mean over the batch", "d_gate is the mean over the batch instead of the sum",
            "sum over the batch", {"d_gates.sum(axis=(0, 2, 3))": "d_gates.sum(axis=(2, 3)).mean(axis=0)"}),
    Mistake("gate gradient: mean", "d_gate is a mean over sequences, tokens and features", "sum over them",
            {"d_gates.sum(axis=(0, 2, 3))": "d_gates.mean(axis=(0, 2, 3))"}),
    Mistake("gate gradient: product of sums", "d_gated and heads are summed apart, and the sums are multiplied",
            "multiply first, then sum",
            {"return d_gates.sum(axis=(0, 2, 3))": "return d_gated.sum(axis=(0, 2, 3)) * heads.sum(axis=(0, 2, 3))"}),
    Mistake("gate gradient: largest of the batch", "d_gate is the largest of the sequences' gradients instead of their sum",
            "sum over the batch",
            {"d_gates.sum(axis=(0, 2, 3))": "d_gates.sum(axis=(2, 3)).max(axis=0)"}),
]  # fmt: skip

TASK = Task(
    d_head_gate,
    place=280,
    id="head-gates",
    difficulty=2,
    minutes=10,
    needs=("linear-backward",),
    hints=Hints(
        where="One gate scales a whole head, in all sequences: docs/attention.md, step "
        '7; notebook 10, "How much does a head matter?".',
        question="A head is (3, 5), its gate is 1, and the upstream gradient is (10, 1). If the "
        "gate grows by 0.1, by how much does each of the two numbers grow, and by how much does "
        "the loss?",
        mistake="gate gradient from the last sequence only",
        fix="(d_gated * heads).sum(axis=(0, 2, 3))",
    ),
    draw=draw_gated,
    slope=lambda inputs: Slope(
        lambda gate: inputs["heads"] * gate[:, None, None],
        {"gate": np.ones(inputs["heads"].shape[1])},
        inputs["d_gated"],
    ),
    mistakes=MISTAKES,
)
