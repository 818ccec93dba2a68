"""Back through dropout."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Again, Hints, Law, Mistake, Reaction, Slope, Task


def dropout_backward(d_dropped: Array, keep: Array, p: float) -> Array:
    """Return the gradient of the weights, from the gradient of the weights after dropout.

    Forward was ``dropped = weights * keep / (1 - p)``: each weight was dropped with probability
    `p`, and the others were enlarged to keep the mean the same.

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
    return d_dropped * keep / (1 - p)


MISTAKES: list[Mistake | Again] = [
    Mistake("dropout not undone by 1/(1-p)", "the factor 1 / (1 - p) of the kept weights is missing",
            "d_dropped * keep / (1 - p)", {" * keep / (1 - p)": " * keep"}),
    Mistake("dropout: times 1-p", "d_weights is multiplied by 1 - p instead of divided by it",
            "d_dropped * keep / (1 - p)", {" * keep / (1 - p)": " * keep * (1 - p)"}),
    Mistake("dropout: divided by p", "d_weights is divided by p, the share that was dropped, not by 1 - p",
            "d_dropped * keep / (1 - p)", {" * keep / (1 - p)": " * keep / p"}),
    Mistake("keep not applied", "dropped weights get gradients too: keep is not applied",
            "d_dropped * keep / (1 - p)", {" * keep / (1 - p)": " / (1 - p)"}),
    Mistake("keep inverted", "dropped weights get gradients, and kept ones get none",
            "keep is True where a weight was kept", {" * keep / (1 - p)": " * ~keep / (1 - p)"}),
    Mistake("dropout ignored in backward", "d_weights is d_dropped: dropout is skipped", "d_dropped * keep / (1 - p)",
            {" * keep / (1 - p)": ""}),
    Again("everything divided by B", {"return d_dropped": "return d_dropped / len(d_dropped)"}),
]  # fmt: skip

TASK = Task(
    dropout_backward,
    place=150,
    difficulty=1,
    minutes=5,
    needs=("softmax-backward",),
    hints=Hints(
        where="Forward multiplies each weight by a number that does not depend on it: "
        "docs/attention.md, step 5.",
        question="With p = 0.75, a weight of 0.2 that is kept becomes 0.8. If it grows by 0.01, by "
        "how much does the output grow? And by how much if the weight is dropped?",
        mistake="dropout not undone by 1/(1-p)",
        fix="d_dropped * keep / (1 - p)",
    ),
    draw=lambda rng: [  # a few were dropped, most, half
        {"d_dropped": rng.normal(size=shape), "keep": rng.random(shape) >= p, "p": p}
        for shape, p in (
            ((2, 3, 4, 5), 0.25),
            ((3, 2, 5, 4), 0.6),
            ((1, 4, 6, 2), 0.5),
            ((4, 1, 1, 3), 0.1),
        )
    ],
    laws=[
        Law(
            "dropped weights have no gradient",
            lambda inputs, arrays: np.where(inputs["keep"], 0, arrays[""]),
        )
    ],
    reactions=[
        Reaction(
            "whatever p is, dropped weights have no gradient",
            lambda inputs: {**inputs, "p": 0.0},
            lambda inputs, arrays: np.where(inputs["keep"], 0, arrays[""]),
        )
    ],
    slope=lambda inputs: Slope(
        lambda weights: weights * inputs["keep"] / (1 - inputs["p"]),
        {"weights": np.random.default_rng(0).random(size=inputs["keep"].shape)},
        inputs["d_dropped"],
    ),
    mistakes=MISTAKES,
)
