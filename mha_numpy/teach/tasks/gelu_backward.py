"""Back through GELU."""

import math

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import gelu_forward
from mha_numpy.teach.task import Again, Hints, Mistake, Slope, Task
from mha_numpy.teach.tasks.gelu import draw_gelu, gelu_argument


def gelu_backward(d_out: Array, x: Array) -> Array:
    """Return the gradient of GELU's input.

    Forward was ``out = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2``, for each element
    separately.

    Parameters
    ----------
    d_out : (..., F)
    x : (..., F)

    Returns
    -------
    d_x : (..., F)
    """
    tanh = np.tanh(gelu_argument(x))
    share = (1 + tanh) / 2
    share_slope = (1 - tanh**2) / 2 * gelu_argument_slope(x)
    return d_out * (share + x * share_slope)


def gelu_argument_slope(x: Array) -> Array:
    """Return the derivative of tanh's argument."""
    slope = math.sqrt(2 / math.pi)
    return slope * (1 + 3 * 0.044715 * x**2)


CUBE = "slope * (1 + 3 * 0.044715 * x**2)"

SLOPE = "(share + x * share_slope)"

MISTAKES: list[Mistake | Again] = [
    Mistake("GELU: share taken as constant", "the gradient through the share is left out: GELU is x * share, and the share depends on x too",
            "d_out * (share + x * slope of the share)", {SLOPE: "share"}),
    Mistake("GELU: only the gradient through the share", "d_out * share is left out: GELU is x * share, and x is a factor too",
            "d_out * (share + x * slope of the share)", {SLOPE: "(x * share_slope)"}),
    Mistake("GELU: factor x left out", "the slope of the share is not multiplied by x",
            "d_out * (share + x * slope of the share)", {SLOPE: "(share + share_slope)"}),
    Mistake("GELU: d_out left out", "the upstream gradient is left out", "d_out * (share + x * slope of the share)",
            {"return d_out * (share": "return (share"}),
    Mistake("GELU: inner derivative left out", "the derivative of tanh's argument, the last factor of the chain rule, is left out",
            "(1 - tanh**2) / 2 * sqrt(2 / pi) * (1 + 3 * 0.044715 * x**2)", {" / 2 * gelu_argument_slope(x)": " / 2"}),
    Mistake("GELU: 3 of the cube left out", "the derivative of the cube lacks its factor 3", "1 + 3 * 0.044715 * x**2",
            {CUBE: CUBE.replace("3 * ", "")}),
    Mistake("GELU: tanh not squared", "the derivative of tanh is taken to be 1 - tanh", "1 - tanh**2",
            {"(1 - tanh**2)": "(1 - tanh)"}),
    Mistake("GELU: half of the slope forgotten", "the slope of the share lacks the factor 1 / 2", "(1 - tanh**2) / 2 * ...",
            {"(1 - tanh**2) / 2": "(1 - tanh**2)"}),
    Again("GELU: 0.44715 for 0.044715", {"slope * (1 + 3 * 0.044715 * x**2)": "slope * (1 + 3 * 0.44715 * x**2)"}),
    Again("GELU: square for cube", {"slope * (1 + 3 * 0.044715 * x**2)": "slope * (1 + 2 * 0.044715 * x)"}),
    Again("GELU: cube outside of the product", {"slope * (1 + 3 * 0.044715 * x**2)": "slope + 3 * 0.044715 * x**2"}),
    Again("GELU: cube left out", {"slope * (1 + 3 * 0.044715 * x**2)": "slope"}),
    Again("GELU: factor left out", {"slope = math.sqrt(2 / math.pi)": "slope = 1.0"}),
    Again("GELU: 2 / pi without the root", {"slope = math.sqrt(2 / math.pi)": "slope = 2 / math.pi"}),
    Again("GELU: 1 / sqrt(2 pi) for sqrt(2 / pi)", {"slope = math.sqrt(2 / math.pi)": "slope = 1 / math.sqrt(2 * math.pi)"}),
    Again("GELU: half forgotten", {"(share + x * share_slope)": "2 * (share + x * share_slope)"}),
    Again("GELU: 1 forgotten", {"share = (1 + tanh) / 2": "share = tanh / 2"}),
    Again("exact GELU", {"(share + x * share_slope)": "((1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2 + x * np.exp(-x**2 / 2) / math.sqrt(2 * math.pi))"}),
    Again("GELU by a sigmoid", {"(share + x * share_slope)": "(1 + 1.702 * x / (1 + np.exp(1.702 * x))) / (1 + np.exp(-1.702 * x))"}),
    Again("ReLU for GELU", {"(share + x * share_slope)": "(x > 0)"}),
    Mistake("GELU: slope of tanh at x", "the slope of tanh is taken at x, not at its argument",
            "1 - tanh(argument) ** 2",
            {"(1 - tanh**2)": "(1 - np.tanh(x) ** 2)"}),
    Mistake("GELU: argument for the factor x", "the slope of the share is multiplied by tanh's argument instead of x",
            "x * share_slope",
            {"x * share_slope": "gelu_argument(x) * share_slope"}),
    Mistake("GELU: factor s of s (1 - s) left out", "of the slope s (1 - s) of the share s, the factor s is missing",
            "(1 - tanh**2) / 2",
            {"(1 - tanh**2) / 2": "(1 - tanh)"}),
]  # fmt: skip

TASK = Task(
    gelu_backward,
    place=390,
    difficulty=3,
    minutes=20,
    needs=("gelu",),
    hints=Hints(
        where="out is a product of two things that both depend on x, and one of them chains three "
        "functions.",
        question="What is the derivative of x * f(x)? Of f(g(x))? Of tanh(y), in terms of "
        "tanh(y)? And of y + c y^3?",
        mistake="GELU: inner derivative left out",
        fix="tanh = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)); slope = np.sqrt(2 / np.pi)"
        " * (1 + 3 * 0.044715 * x**2); d_out * ((1 + tanh) / 2 + x * (1 - tanh**2) / 2 * slope)",
    ),
    draw=lambda rng: [
        {"d_out": rng.normal(size=one["x"].shape), "x": one["x"]} for one in draw_gelu(rng)
    ],
    slope=lambda inputs: Slope(
        lambda x: gelu_forward(x, approximate="tanh")[0], {"x": inputs["x"]}, inputs["d_out"]
    ),
    mistakes=MISTAKES,
)
