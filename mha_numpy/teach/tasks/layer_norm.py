"""Layer norm."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Task, each_alone


def layer_norm(x: Array, gain: Array, bias: Array, eps: float) -> Array:
    """Give each token mean 0 and variance 1, then scale and shift its features.

    ``out = (x - mean) / sqrt(variance + eps) * gain + bias``. Mean and variance are those of the D
    features of one token; the variance is the mean of the squared distances from the mean.

    Parameters
    ----------
    x : (B, T, D)
    gain : (D,)
    bias : (D,)
    eps : float
        Above 0; not always small compared with the variance.

    Returns
    -------
    out : (B, T, D)
    """
    x_hat, _ = normalise(x, eps)
    scaled = x_hat * gain
    return scaled + bias


def normalise(x: Array, eps: float) -> tuple[Array, Array]:
    """Return (x - mean) / sqrt(var + eps) of each token, and 1 / sqrt(var + eps)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    inverse_std = 1 / np.sqrt(variance + eps)
    return centred * inverse_std, inverse_std


def draw_layer_norm(rng: np.random.Generator) -> list[Inputs]:
    """Draw tokens whose mean is not 0, with an eps that matters, and one that is the larger part."""
    return [
        {"x": 1 + rng.normal(size=shape), "gain": rng.normal(size=shape[-1]),
         "bias": rng.normal(size=shape[-1]), "eps": eps}
        for shape, eps in (((2, 3, 5), 0.1), ((3, 4, 4), 0.5), ((1, 1, 3), 3.0))
    ]  # fmt: skip


EACH_ALONE = each_alone("x", np.s_[:, -1, 0], others=np.s_[:, :-1])

MISTAKES = [
    Mistake("eps left out", "eps is not used", "eps under the root: np.sqrt(var + eps)",
            {"np.sqrt(variance + eps)": "np.sqrt(variance)"}),
    Mistake("eps outside the root", "eps is added to the root, not under it", "np.sqrt(var + eps)",
            {"np.sqrt(variance + eps)": "(np.sqrt(variance) + eps)"}),
    Mistake("variance with n - 1", "the variance is computed with n - 1 instead of n",
            "var(-1, keepdims=True), with ddof=0",
            {"(centred**2).mean(axis=-1, keepdims=True)": "(centred**2).sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)"}),
    Mistake("norm over the tokens", "the means are taken over the tokens instead of the features", "axis=-1",
            {" x.mean(axis=-1": " x.mean(axis=-2", " (centred**2).mean(axis=-1": " (centred**2).mean(axis=-2"}),
    Mistake("norm over batch and tokens", "the means are taken over batch and tokens, as in batch norm",
            "axis=-1",
            {" x.mean(axis=-1": " x.mean(axis=(0, 1)", " (centred**2).mean(axis=-1": " (centred**2).mean(axis=(0, 1)"}),
    Mistake("mean not subtracted", "the mean is not subtracted, so the variance is the mean square",
            "x - x.mean(-1, keepdims=True)", {"centred = x - x.mean(axis=-1, keepdims=True)": "centred = x"}),
    Mistake("mean subtracted only under the root", "the variance is right, but the mean is not subtracted from x before it is divided",
            "(x - mean) / np.sqrt(var + eps)", {"return centred * inverse_std": "return x * inverse_std"}),
    Mistake("divided by the variance", "x - mean is divided by the variance, not by its root",
            "(x - mean) / np.sqrt(var + eps)", {"1 / np.sqrt(variance + eps)": "1 / (variance + eps)"}),
    Mistake("norm without gain", "the gain is left out", "multiply by the gain",
            {"scaled = x_hat * gain": "scaled = x_hat"}),
    Mistake("norm without bias", "the bias is left out", "normed * gain + bias", {"return scaled + bias": "return scaled"}),
    Mistake("bias before the gain", "the bias is added before the gain multiplies", "normed * gain + bias",
            {"scaled = x_hat * gain": "scaled = (x_hat + bias) * gain", "return scaled + bias": "return scaled"}),
    Mistake("1 + gain", "the token is multiplied by 1 + gain, as in Gemma",
            "multiply by the gain itself",
            {"scaled = x_hat * gain": "scaled = x_hat * (1 + gain)"}),
    Mistake("absolute distances for the variance", "the variance is the mean of the absolute distances, not of the squared ones",
            "(centred ** 2).mean(axis=-1, keepdims=True)",
            {"(centred**2).mean(axis=-1, keepdims=True)": "np.abs(centred).mean(axis=-1, keepdims=True)"}),
    Mistake("absolute distances for the deviation", "x - mean is divided by the mean absolute distance instead of the root of the variance",
            "np.sqrt(variance + eps)",
            {"(centred**2).mean(axis=-1, keepdims=True)": "np.abs(centred).mean(axis=-1, keepdims=True) ** 2"}),
    Mistake("eps as a lower bound", "eps is a lower bound of the variance, not added to it",
            "variance + eps",
            {"np.sqrt(variance + eps)": "np.sqrt(np.maximum(variance, eps))"}),
]  # fmt: skip

TASK = Task(
    layer_norm,
    place=350,
    difficulty=1,
    minutes=10,
    hints=Hints(
        where="On which axis do the features lie? Mean and variance run along this axis only. "
        "Look up keepdims.",
        question="A token is (1, 3). What are its mean and its variance? What is its output with "
        "gain (10, 1), bias (0, 5) and eps 0? Does the output change if a second token joins the "
        "batch?",
        mistake="variance with n - 1",
        fix="centred = x - x.mean(axis=-1, keepdims=True); centred / np.sqrt((centred**2)."
        "mean(axis=-1, keepdims=True) + eps) * gain + bias",
    ),
    draw=draw_layer_norm,
    laws=[
        Law(
            "without gain and bias, the features of each token sum to 0",
            lambda inputs, arrays: ((arrays[""] - inputs["bias"]) / inputs["gain"]).sum(axis=-1),
        )
    ],
    reactions=[EACH_ALONE],
    mistakes=MISTAKES,
)
