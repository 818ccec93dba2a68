"""RMS norm."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Again, Hints, Mistake, Task
from mha_numpy.teach.tasks.layer_norm import EACH_ALONE, draw_layer_norm


def rms_norm(x: Array, gain: Array, eps: float) -> Array:
    """Give each token mean square 1, then scale its features, as Llama does.

    ``out = x / sqrt(mean_square + eps) * gain``, with the mean square of one token's D features.

    Parameters
    ----------
    x : (B, T, D)
    gain : (D,)
    eps : float
        Above 0; not always small compared with the mean square.

    Returns
    -------
    out : (B, T, D)
    """
    mean_square = (x**2).mean(axis=-1, keepdims=True)
    normed = x / np.sqrt(mean_square + eps)
    return normed * gain


MISTAKES: list[Mistake | Again] = [
    Mistake("RMS norm: mean subtracted", "the mean is subtracted, as in layer norm", "x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)",
            {"mean_square = (x**2)": "x = x - x.mean(axis=-1, keepdims=True)\n    mean_square = (x**2)"}),
    Mistake("RMS norm: mean subtracted under the root", "x is divided by its standard deviation, not by the root of its mean square",
            "x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)",
            {"mean_square = (x**2).mean(axis=-1, keepdims=True)": "mean_square = x.var(axis=-1, keepdims=True)"}),
    Mistake("RMS norm: sum of squares", "x is divided by the root of the sum of squares, so each token has length 1",
            "the mean of the squares", {"mean_square = (x**2).mean(": "mean_square = (x**2).sum("}),
    Mistake("RMS norm: root left out", "x is divided by the mean square, not by its root",
            "x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)", {"np.sqrt(mean_square + eps)": "(mean_square + eps)"}),
    Again("eps left out", {"np.sqrt(mean_square + eps)": "np.sqrt(mean_square)"}),
    Again("eps outside the root", {"np.sqrt(mean_square + eps)": "(np.sqrt(mean_square) + eps)"}),
    Again("norm over the tokens", {" (x**2).mean(axis=-1": " (x**2).mean(axis=-2"}),
    Again("norm over batch and tokens", {" (x**2).mean(axis=-1": " (x**2).mean(axis=(0, 1)"}),
    Again("norm without gain", {"return normed * gain": "return normed"}),
    Again("1 + gain", {"return normed * gain": "return normed * (1 + gain)"}),
    Mistake("RMS norm: divided by the number of tokens", "the sum of squares is divided by the number of tokens instead of features",
            "the mean over the features",
            {"(x**2).mean(axis=-1, keepdims=True)": "(x**2).sum(axis=-1, keepdims=True) / x.shape[1]"}),
    Mistake("RMS norm: sum starts at 1", "the sum of squares starts at 1 instead of 0",
            "start with 0",
            {"(x**2).mean(axis=-1, keepdims=True)": "((x**2).sum(axis=-1, keepdims=True) + 1) / x.shape[-1]"}),
    Mistake("RMS norm: length for its square", "the length is divided by D instead of its square",
            "(x ** 2).mean(axis=-1, keepdims=True)",
            {"(x**2).mean(axis=-1, keepdims=True)": "np.linalg.norm(x, axis=-1, keepdims=True) / x.shape[-1]"}),
    Mistake("RMS norm: twice", "the tokens are normalised twice",
            "once is enough",
            {"return normed * gain": "return normed / np.sqrt((normed**2).mean(axis=-1, keepdims=True) + eps) * gain"}),
    Mistake("RMS norm: eps as a lower bound", "eps is a lower bound of the mean square, not added to it",
            "mean_square + eps",
            {"mean_square + eps": "np.maximum(mean_square, eps)"}),
]  # fmt: skip

TASK = Task(
    rms_norm,
    place=370,
    difficulty=1,
    minutes=5,
    needs=("layer-norm",),
    hints=Hints(
        where="RMS norm is layer norm without two things: look for mean and bias in the formula.",
        question="A token is (3, 4). What is the mean of its squares, and what is it divided by "
        "if eps is 0? Is its mean 0 afterwards, and should it be?",
        mistake="RMS norm: sum of squares",
        fix="x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * gain",
    ),
    draw=lambda rng: [
        {name: value for name, value in inputs.items() if name != "bias"}
        for inputs in draw_layer_norm(rng)
    ],
    reactions=[EACH_ALONE],
    mistakes=MISTAKES,
)
