"""Norms: each token by its own numbers, and back."""

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "layer-norm",
    title="Layer norm",
    difficulty=1,
    minutes=10,
    hints=Hints(
        where="On which axis do the features lie? Mean and variance run along this axis alone. "
        "Look up keepdims.",
        question="A token is (1, 3). What are its mean and its variance? What is its output with "
        "gain (10, 1), bias (0, 5) and eps 0? Does the output change if the batch holds another "
        "token?",
        mistake="variance by n - 1",
        fix="centred = x - x.mean(axis=-1, keepdims=True); centred / np.sqrt((centred**2)."
        "mean(axis=-1, keepdims=True) + eps) * gain + bias",
    ),
)
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
        Above 0; not always small beside the variance.

    Returns
    -------
    out : (B, T, D)
    """
    raise NotImplementedError


@exercise(
    "layer-norm-backward",
    title="Back through layer norm",
    difficulty=4,
    minutes=40,
    needs=("softmax-backward", "linear-backward"),
    hints=Hints(
        where="A feature changes the output of its token in three ways: directly, through the mean "
        "and through the variance. In softmax there were two: directly and through the row sum.",
        question="Add 1 to all features of a token: how does out change? How does it change if eps "
        "is 0 and you double them? So with which two vectors must each row of d_x have the dot "
        "product 0?",
        mistake="gradient through the variance left out",
        fix="d_normed = d_out * gain; d_x = (d_normed - d_normed.mean(axis=-1, keepdims=True) - "
        "normed * (d_normed * normed).mean(axis=-1, keepdims=True)) / np.sqrt(var + eps)",
    ),
)
def layer_norm_backward(
    d_out: Array, x: Array, gain: Array, eps: float
) -> tuple[Array, Array, Array]:
    """Return the gradients of layer norm's input, gain and bias.

    Forward was, for every token on its own::

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
        Above 0; not always small beside the variance.

    Returns
    -------
    d_x : (B, T, D)
    d_gain : (D,)
    d_bias : (D,)
    """
    raise NotImplementedError


@exercise(
    "rms-norm",
    title="RMS norm",
    difficulty=1,
    minutes=5,
    needs=("layer-norm",),
    hints=Hints(
        where="RMS norm is layer norm without two things: look for mean and bias in the formula.",
        question="A token is (3, 4). What is the mean of its squares, and by what is it divided if "
        "eps is 0? Is its mean 0 afterwards, and should it be?",
        mistake="RMS norm: sum of squares",
        fix="x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * gain",
    ),
)
def rms_norm(x: Array, gain: Array, eps: float) -> Array:
    """Give each token mean square 1, then scale its features, as Llama does.

    ``out = x / sqrt(mean_square + eps) * gain``, the mean square of the D features of one token.

    Parameters
    ----------
    x : (B, T, D)
    gain : (D,)
    eps : float
        Above 0; not always small beside the mean square.

    Returns
    -------
    out : (B, T, D)
    """
    raise NotImplementedError
