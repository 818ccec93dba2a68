"""Back through layer norm."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Again, Hints, Inputs, Law, Mistake, Slope, Task
from mha_numpy.teach.tasks.layer_norm import normalise


class LayerNormGrads(NamedTuple):
    """Gradients of layer norm's input, gain and bias."""

    d_x: Array
    d_gain: Array
    d_bias: Array


def layer_norm_backward(d_out: Array, x: Array, gain: Array, eps: float) -> LayerNormGrads:
    """Return the gradients of layer norm's input, gain and bias.

    Forward computed, separately for every token::

        mean = x.mean(axis=-1, keepdims=True)
        var = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
        normed = (x - mean) / np.sqrt(var + eps)
        out = normed * gain + bias

    with one gain and one bias for all tokens of all sequences.

    Parameters
    ----------
    d_out : (B, T, D)
    x : (B, T, D)
    gain : (D,)
    eps : float
        Above 0; not always small compared with the variance.

    Returns
    -------
    d_x : (B, T, D)
    d_gain : (D,)
    d_bias : (D,)
    """
    x_hat, inverse_std = normalise(x, eps)
    d_x = through_norm(d_out * gain, x_hat, inverse_std)
    d_gain = (d_out * x_hat).sum(axis=(0, 1))
    d_bias = d_out.sum(axis=(0, 1))
    return LayerNormGrads(d_x, d_gain, d_bias)


def through_norm(d_x_hat: Array, x_hat: Array, inverse_std: Array) -> Array:
    """Pull back through the normalisation: a feature moves its token's mean and variance too."""
    by_mean = d_x_hat.mean(axis=-1, keepdims=True)
    by_variance = x_hat * (d_x_hat * x_hat).mean(axis=-1, keepdims=True)
    return inverse_std * (d_x_hat - by_mean - by_variance)


def _slope_of_layer_norm(inputs: Inputs) -> Slope:
    """Differentiate layer norm, with a bias of 0."""

    def forward(x: Array, gain: Array, bias: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + inputs["eps"]) * gain + bias

    x, gain = inputs["x"], inputs["gain"]
    return Slope(forward, {"x": x, "gain": gain, "bias": np.zeros_like(gain)}, inputs["d_out"])


MISTAKES: list[Mistake | Again] = [
    Mistake("gradient through the mean left out", "d_x lacks the part that goes through the mean, which depends on x too",
            "subtract d_x_hat.mean(-1, keepdims=True)", {" - by_mean": ""}),
    Mistake("gradient through the variance left out", "d_x lacks the part that goes through the variance, which depends on x too",
            "subtract x_hat * (d_x_hat * x_hat).mean(-1, keepdims=True)", {" - by_variance": ""}),
    Mistake("norm: sums instead of means", "the two terms of d_x are sums over the features instead of means",
            "mean(-1, keepdims=True) in both",
            {"d_x_hat.mean(": "d_x_hat.sum(", "(d_x_hat * x_hat).mean(": "(d_x_hat * x_hat).sum("}),
    Mistake("gain forgotten", "d_x lacks the gain", "d_x_hat = d_out * gain", {"d_out * gain": "d_out"}),
    Mistake("1/std left out", "d_x lacks the factor 1 / sqrt(var + eps)", "multiply by 1 / np.sqrt(var + eps)",
            {"inverse_std * (d_x_hat": "(d_x_hat"}),
    Mistake("d_gain made from x", "d_gain is computed from x instead of x_hat", "(d_out * x_hat).sum(axis=(0, 1))",
            {"(d_out * x_hat)": "(d_out * x)"}),
    Mistake("d_gain from the last sequence only", "d_gain is computed from the last sequence only", "sum over the batch",
            {").sum(axis=(0, 1))": ")[-1].sum(axis=0)"}),
    Mistake("d_bias from the last sequence only", "d_bias is computed from the last sequence only", "sum over the batch",
            {"d_bias = d_out.sum(axis=(0, 1))": "d_bias = d_out[-1].sum(axis=0)"}),
    Mistake("d_gain over the batch only", "d_gain is summed over the batch only", "sum over batch and tokens",
            {").sum(axis=(0, 1))": ").sum(axis=0)"}),
    Mistake("d_bias over the batch only", "d_bias is summed over the batch only", "sum over batch and tokens",
            {"d_bias = d_out.sum(axis=(0, 1))": "d_bias = d_out.sum(axis=0)"}),
    Mistake("d_gain: mean", "d_gain is a mean over batch and tokens", "sum over both",
            {").sum(axis=(0, 1))": ").mean(axis=(0, 1))"}),
    Mistake("d_bias: mean", "d_bias is a mean over batch and tokens", "sum over both",
            {"d_bias = d_out.sum(axis=(0, 1))": "d_bias = d_out.mean(axis=(0, 1))"}),
    Again("everything divided by B", {"x_hat, inverse_std = normalise(": "d_out = d_out / len(d_out)\n    x_hat, inverse_std = normalise("}),
    Again("norm over the tokens", {" d_x_hat.mean(axis=-1": " d_x_hat.mean(axis=-2", " (d_x_hat * x_hat).mean(axis=-1": " (d_x_hat * x_hat).mean(axis=-2"}),
    Again("norm over batch and tokens", {" d_x_hat.mean(axis=-1": " d_x_hat.mean(axis=(0, 1)", " (d_x_hat * x_hat).mean(axis=-1": " (d_x_hat * x_hat).mean(axis=(0, 1)"}),
]  # fmt: skip

TASK = Task(
    layer_norm_backward,
    place=360,
    difficulty=4,
    minutes=40,
    needs=("softmax-backward", "linear-backward"),
    hints=Hints(
        where="A feature changes the output of its token in three ways: directly, through the mean "
        "and through the variance. In softmax there were two: directly and through the row sum.",
        question="Add 1 to all features of a token: how does out change? And how does it change "
        "if eps is 0 and you double them? So which two vectors must have a dot product of 0 with "
        "each row of d_x?",
        mistake="gradient through the variance left out",
        fix="d_normed = d_out * gain; d_x = (d_normed - d_normed.mean(axis=-1, keepdims=True) - "
        "normed * (d_normed * normed).mean(axis=-1, keepdims=True)) / np.sqrt(var + eps)",
    ),
    returns="tuple[Array, Array, Array]",
    draw=lambda rng: [  # an eps that matters
        {
            "d_out": rng.normal(size=shape),
            "x": 1 + rng.normal(size=shape),
            "gain": rng.normal(size=shape[-1]),
            "eps": eps,
        }
        for shape, eps in (((2, 3, 5), 0.1), ((3, 4, 4), 0.5), ((1, 6, 3), 0.02))
    ],
    laws=[
        Law(
            "d_x sums to 0 over the features, because adding one number to all of them changes nothing",
            lambda _, arrays: arrays["d_x"].sum(axis=-1),
        )
    ],
    slope=_slope_of_layer_norm,
    mistakes=MISTAKES,
)
