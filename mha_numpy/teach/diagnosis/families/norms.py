"""Norms, and layer norm's way back."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.edits import Edits
from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Inputs, Law, Piece, Reaction, Slope, moved


def _draw_layer_norm(rng: np.random.Generator) -> list[Inputs]:
    """Draw tokens whose mean is not 0, with an eps that matters."""
    return [
        {"x": 1 + rng.normal(size=shape), "gain": rng.normal(size=shape[-1]),
         "bias": rng.normal(size=shape[-1]), "eps": eps}
        for shape, eps in (((2, 3, 5), 0.1), ((3, 4, 4), 0.5))
    ]  # fmt: skip


def _draw_rms_norm(rng: np.random.Generator) -> list[Inputs]:
    """Draw the same, without a bias."""
    return [
        {name: value for name, value in inputs.items() if name != "bias"}
        for inputs in _draw_layer_norm(rng)
    ]


def _draw_layer_norm_backward(rng: np.random.Generator) -> list[Inputs]:
    """Draw what layer norm's backward gets, with an eps that matters."""
    return [
        {"d_out": rng.normal(size=shape), "x": 1 + rng.normal(size=shape),
         "gain": rng.normal(size=shape[-1]), "eps": eps}
        for shape, eps in (((2, 3, 5), 0.1), ((3, 4, 4), 0.5))
    ]  # fmt: skip


def _slope_of_layer_norm(inputs: Inputs) -> Slope:
    """Differentiate layer norm, with a bias of 0."""

    def forward(x: Array, gain: Array, bias: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + inputs["eps"]) * gain + bias

    x, gain = inputs["x"], inputs["gain"]
    return Slope(forward, {"x": x, "gain": gain, "bias": np.zeros_like(gain)}, inputs["d_out"])


EACH_ALONE = Reaction(
    "a change of the last token changes no other token",
    moved("x", np.s_[:, -1, 0]),
    lambda _, arrays: arrays[""][:, :-1],
)

PIECES = [
    Piece(
        "layer_norm",
        _draw_layer_norm,
        result="out",
        laws=[
            Law(
                "without gain and bias, the features of each token sum to 0",
                lambda inputs, arrays: ((arrays[""] - inputs["bias"]) / inputs["gain"]).sum(
                    axis=-1
                ),
            )
        ],
        reactions=[EACH_ALONE],
    ),
    Piece("rms_norm", _draw_rms_norm, result="out", reactions=[EACH_ALONE]),
    Piece(
        "layer_norm_backward",
        _draw_layer_norm_backward,
        laws=[
            Law(
                "d_x sums to 0 over the features, as adding one number to all of them changes nothing",
                lambda _, arrays: arrays["d_x"].sum(axis=-1),
            )
        ],
        slope=_slope_of_layer_norm,
    ),
]


def _norm_over(axis: str) -> Edits:
    """Take the means of both norms, forward and backward, over other axes."""
    means = ("x.mean", "(x**2).mean", "(centred**2).mean", "d_x_hat.mean", "(d_x_hat * x_hat).mean")
    return {f" {mean}(axis=-1": f" {mean}(axis={axis}" for mean in means}


# fmt: off
MISTAKES = [
    Mistake("gradient through the mean left out", "d_x lacks the part that goes through the mean, which depends on x, too",
            "subtract d_x_hat.mean(-1, keepdims=True)", {" - by_mean": ""}),
    Mistake("gradient through the variance left out", "d_x lacks the part that goes through the variance, which depends on x, too",
            "subtract x_hat * (d_x_hat * x_hat).mean(-1, keepdims=True)", {" - by_variance": ""}),
    Mistake("norm: sums instead of means", "the two terms of d_x are sums over the features instead of means",
            "mean(-1, keepdims=True) in both",
            {"d_x_hat.mean(": "d_x_hat.sum(", "(d_x_hat * x_hat).mean(": "(d_x_hat * x_hat).sum("}),
    Mistake("gain forgotten", "d_x lacks the gain", "d_x_hat = d_out * gain", {"d_out * gain": "d_out"}),
    Mistake("1/std left out", "d_x lacks the factor 1 / sqrt(var + eps)", "multiply by 1 / np.sqrt(var + eps)",
            {"inverse_std * (d_x_hat": "(d_x_hat"}),
    Mistake("eps left out", "eps is not used", "eps under the root: np.sqrt(var + eps)",
            {"np.sqrt(variance + eps)": "np.sqrt(variance)", "np.sqrt(mean_square + eps)": "np.sqrt(mean_square)"}),
    Mistake("eps outside the root", "eps is added to the root, not under it", "np.sqrt(var + eps)",
            {"np.sqrt(variance + eps)": "(np.sqrt(variance) + eps)", "np.sqrt(mean_square + eps)": "(np.sqrt(mean_square) + eps)"}),
    Mistake("variance by n - 1", "the variance is divided by n - 1 instead of n",
            "var(-1, keepdims=True), with ddof=0",
            {"(centred**2).mean(axis=-1, keepdims=True)": "(centred**2).sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)"}),
    Mistake("norm over the tokens", "the means are taken over the tokens", "axis=-1", _norm_over("-2")),
    Mistake("norm over batch and tokens", "the means are taken over batch and tokens, as batch norm does",
            "axis=-1", _norm_over("(0, 1)")),
    Mistake("d_gain made from x", "d_gain is computed from x instead of x_hat", "(d_out * x_hat).sum(axis=(0, 1))",
            {"(d_out * x_hat)": "(d_out * x)"}),
    Mistake("d_gain of the last sequence alone", "d_gain is computed from the last sequence alone", "sum over the batch",
            {").sum(axis=(0, 1))": ")[-1].sum(axis=0)"}),
    Mistake("d_bias of the last sequence alone", "d_bias is computed from the last sequence alone", "sum over the batch",
            {"d_bias = d_out.sum(axis=(0, 1))": "d_bias = d_out[-1].sum(axis=0)"}),
    Mistake("d_gain over the batch alone", "d_gain is summed over the batch alone", "sum over batch and tokens",
            {").sum(axis=(0, 1))": ").sum(axis=0)"}),
    Mistake("d_bias over the batch alone", "d_bias is summed over the batch alone", "sum over batch and tokens",
            {"d_bias = d_out.sum(axis=(0, 1))": "d_bias = d_out.sum(axis=0)"}),
    Mistake("d_gain: mean", "d_gain is a mean over batch and tokens", "sum over both",
            {").sum(axis=(0, 1))": ").mean(axis=(0, 1))"}),
    Mistake("d_bias: mean", "d_bias is a mean over batch and tokens", "sum over both",
            {"d_bias = d_out.sum(axis=(0, 1))": "d_bias = d_out.mean(axis=(0, 1))"}),
    Mistake("mean not subtracted", "the mean is not subtracted, so the variance is the mean square",
            "x - x.mean(-1, keepdims=True)", {"centred = x - x.mean(axis=-1, keepdims=True)": "centred = x"}),
    Mistake("mean subtracted under the root alone", "the variance is right, but x is divided without its mean subtracted",
            "(x - mean) / np.sqrt(var + eps)", {"return centred * inverse_std": "return x * inverse_std"}),
    Mistake("divided by the variance", "x - mean is divided by the variance, not by its root",
            "(x - mean) / np.sqrt(var + eps)", {"1 / np.sqrt(variance + eps)": "1 / (variance + eps)"}),
    Mistake("norm without gain", "the gain is left out", "multiply by the gain",
            {"scaled = x_hat * gain": "scaled = x_hat", "return normed * gain": "return normed"}),
    Mistake("norm without bias", "the bias is left out", "normed * gain + bias", {"return scaled + bias": "return scaled"}),
    Mistake("bias before the gain", "the bias is added before the gain multiplies", "normed * gain + bias",
            {"scaled = x_hat * gain": "scaled = (x_hat + bias) * gain", "return scaled + bias": "return scaled"}),
    Mistake("1 + gain", "the token is multiplied by 1 + gain, as in Gemma", "multiply by the gain itself",
            {"scaled = x_hat * gain": "scaled = x_hat * (1 + gain)", "return normed * gain": "return normed * (1 + gain)"}),
    Mistake("RMS norm: mean subtracted", "the mean is subtracted, as in layer norm", "x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)",
            {"mean_square = (x**2)": "x = x - x.mean(axis=-1, keepdims=True)\n    mean_square = (x**2)"}),
    Mistake("RMS norm: mean subtracted under the root", "x is divided by its standard deviation, not by the root of its mean square",
            "x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)",
            {"mean_square = (x**2).mean(axis=-1, keepdims=True)": "mean_square = x.var(axis=-1, keepdims=True)"}),
    Mistake("RMS norm: sum of squares", "x is divided by the root of the sum of squares, so that each token has length 1",
            "the mean of the squares", {"mean_square = (x**2).mean(": "mean_square = (x**2).sum("}),
    Mistake("RMS norm: root left out", "x is divided by the mean square, not by its root",
            "x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)", {"np.sqrt(mean_square + eps)": "(mean_square + eps)"}),
]
# fmt: on
