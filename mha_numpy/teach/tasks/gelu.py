"""GELU, as in GPT-2."""

import math

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Arrays, Hints, Inputs, Law, Mistake, Task


def gelu(x: Array) -> Array:
    """Multiply each number by about the share of normally distributed numbers below it.

    ``out = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2``. GPT-2 was trained with this
    form, which differs from the exact one by at most 0.0005.

    Parameters
    ----------
    x : (..., F)

    Returns
    -------
    out : (..., F)
    """
    return x * (1 + np.tanh(gelu_argument(x))) / 2


def gelu_argument(x: Array) -> Array:
    """Return the argument of tanh."""
    root = math.sqrt(2 / math.pi)
    return root * (x + 0.044715 * x**3)


def draw_gelu(rng: np.random.Generator) -> list[Inputs]:
    """Draw numbers, then their opposites; the second time large ones."""
    halves = (2 * rng.normal(size=(2, 3, 4)), np.array([[0.0, 3.0, 40.0]]))
    return [{"x": np.concatenate([half, -half], axis=-1)} for half in halves]


def _off_by_opposites(inputs: Inputs, arrays: Arrays) -> Array:
    (x, _), (out, of_opposite) = (np.split(a, 2, axis=-1) for a in (inputs["x"], arrays[""]))
    return out - of_opposite - x


MISTAKES = [
    Mistake("GELU: 0.44715 for 0.044715", "the factor of the cube is 0.44715: a zero is missing",
            "0.044715", {"root * (x + 0.044715 * x**3)": "root * (x + 0.44715 * x**3)"}),
    Mistake("GELU: square for cube", "x is squared instead of cubed",
            "x + 0.044715 * x**3",
            {"root * (x + 0.044715 * x**3)": "root * (x + 0.044715 * x**2)"}),
    Mistake("GELU: cube outside of the product", "the root of 2 / pi multiplies only x, not the cube",
            "sqrt(2 / pi) * (x + 0.044715 * x**3)",
            {"root * (x + 0.044715 * x**3)": "root * x + 0.044715 * x**3"}),
    Mistake("GELU: cube left out", "the term with the cube is left out",
            "sqrt(2 / pi) * (x + 0.044715 * x**3)", {"root * (x + 0.044715 * x**3)": "root * x"}),
    Mistake("GELU: factor left out", "the factor sqrt(2 / pi) is left out",
            "sqrt(2 / pi) * (x + 0.044715 * x**3)",
            {"root = math.sqrt(2 / math.pi)": "root = 1.0"}),
    Mistake("GELU: 2 / pi without the root", "the factor is 2 / pi instead of its root",
            "math.sqrt(2 / math.pi)", {"root = math.sqrt(2 / math.pi)": "root = 2 / math.pi"}),
    Mistake("GELU: 1 / sqrt(2 pi) for sqrt(2 / pi)", "the factor is 1 / sqrt(2 pi), that of the normal density",
            "math.sqrt(2 / math.pi)",
            {"root = math.sqrt(2 / math.pi)": "root = 1 / math.sqrt(2 * math.pi)"}),
    Mistake("GELU: half forgotten", "the factor 1 / 2 is left out", "x * (1 + tanh(...)) / 2",
            {"x * (1 + np.tanh(gelu_argument(x))) / 2": "x * (1 + np.tanh(gelu_argument(x)))"}),
    Mistake("GELU: 1 forgotten", "the 1 before tanh is left out, so the function is even",
            "x * (1 + tanh(...)) / 2",
            {"x * (1 + np.tanh(gelu_argument(x))) / 2": "x * np.tanh(gelu_argument(x)) / 2"}),
    Mistake("exact GELU", "the exact form with erf is computed, not the tanh form of GPT-2",
            "x * (1 + tanh(...)) / 2",
            {"x * (1 + np.tanh(gelu_argument(x))) / 2": "x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2"}),
    Mistake("GELU by a sigmoid", "x * sigmoid(1.702 x) is computed, which is a different approximation",
            "x * (1 + tanh(...)) / 2",
            {"x * (1 + np.tanh(gelu_argument(x))) / 2": "x / (1 + np.exp(-1.702 * x))"}),
    Mistake("ReLU for GELU", "ReLU is computed instead of GELU", "x * (1 + tanh(...)) / 2",
            {"x * (1 + np.tanh(gelu_argument(x))) / 2": "np.maximum(x, 0)"}),
]  # fmt: skip

TASK = Task(
    gelu,
    place=380,
    difficulty=1,
    minutes=5,
    hints=Hints(
        where="Look at the brackets of the formula: what does the root multiply, and what does the "
        "1 / 2 multiply?",
        question="What is tanh of 1000, and of -1000? So what are gelu(100) and gelu(-100)?",
        mistake="GELU: cube outside of the product",
        fix="0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))",
    ),
    draw=draw_gelu,
    laws=[Law("gelu(x) - gelu(-x) is x", _off_by_opposites)],
    mistakes=MISTAKES,
)
