"""A step of Adam."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Inputs, Mistake, Reaction, Task, moved


class AdamStep(NamedTuple):
    """A param after a step, and what the next step needs."""

    param: Array
    mean: Array  # of the gradients, running
    square: Array  # of the gradients, running


def adam_step(
    param: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    t: int,
    learning_rate: float,
    beta_1: float,
    beta_2: float,
    eps: float,
) -> AdamStep:
    """Move a param by one step of Adam.

    ``mean`` becomes ``beta_1 * mean + (1 - beta_1) * gradient``, and ``square`` becomes
    ``beta_2 * square + (1 - beta_2) * gradient^2``. Both start at 0, so they are too small in the
    first steps. The step corrects this with ``mean_hat = mean / (1 - beta_1^t)``, and in the same
    way ``square_hat`` with beta_2. The new param is::

        param - learning_rate * mean_hat / (sqrt(square_hat) + eps)

    Parameters
    ----------
    param, gradient, mean, square : arrays of one shape
        `mean` and `square` are what the previous step returned; 0 in the first step.
    t : int
        The number of this step, counted from 1.
    learning_rate, beta_1, beta_2, eps : float

    Returns
    -------
    param, mean, square : arrays of that shape
        `mean` and `square` go into the next step.
    """
    mean = beta_1 * mean + (1 - beta_1) * gradient
    square = beta_2 * square + (1 - beta_2) * gradient**2
    mean_hat = mean / (1 - beta_1**t)
    square_hat = square / (1 - beta_2**t)
    step = learning_rate * mean_hat / (np.sqrt(square_hat) + eps)
    return AdamStep(param - step, mean, square)


def _draw_adam(rng: np.random.Generator) -> list[Inputs]:
    """Draw the first step, and a later one; an eps that matters, and betas that differ."""
    probes = []
    for shape, t, rate, betas, eps in (
        ((3, 4), 1, 0.3, (0.8, 0.95), 0.1), ((5,), 4, 0.3, (0.8, 0.95), 0.02),
        ((2, 1, 3), 2, 0.05, (0.6, 0.7), 0.5),
    ):  # fmt: skip
        param, gradient, mean = rng.normal(size=(3, *shape))
        mean, square = (0 * mean, 0 * mean) if t == 1 else (mean, rng.random(shape))
        probes.append(
            {"param": param, "gradient": gradient, "mean": mean, "square": square, "t": t,
             "learning_rate": rate, "beta_1": betas[0], "beta_2": betas[1], "eps": eps}
        )  # fmt: skip
    return probes


MEAN_HAT = "mean_hat = mean / (1 - beta_1**t)"

SQUARE_HAT = "square_hat = square / (1 - beta_2**t)"

LEFT_OUT = {MEAN_HAT: "mean_hat = mean", SQUARE_HAT: "square_hat = square"}

ROOT = "(np.sqrt(square_hat) + eps)"

MISTAKES = [
    Mistake("no bias correction", "the running means are not corrected for starting at 0",
            "mean / (1 - beta_1**t) and square / (1 - beta_2**t)", LEFT_OUT),
    Mistake("square not corrected", "the running square is not corrected for starting at 0", "square / (1 - beta_2**t)",
            {SQUARE_HAT: LEFT_OUT[SQUARE_HAT]}),
    Mistake("mean not corrected", "the running mean is not corrected for starting at 0", "mean / (1 - beta_1**t)",
            {MEAN_HAT: LEFT_OUT[MEAN_HAT]}),
    Mistake("corrected by 1 - beta", "every step is corrected like the first: t stays at 1, or is left out", "1 - beta**t, with t counting the steps",
            {MEAN_HAT: MEAN_HAT.replace("**t", ""), SQUARE_HAT: SQUARE_HAT.replace("**t", "")}),
    Mistake("t one too large", "each step uses the correction of the step after it", "t is 1 in the first step",
            {MEAN_HAT: MEAN_HAT.replace("**t", "**(t + 1)"), SQUARE_HAT: SQUARE_HAT.replace("**t", "**(t + 1)")}),
    Mistake("corrected means kept", "the corrected means are passed on to the next step, so the corrections pile up",
            "correct only within the step, and return mean and square uncorrected",
            {"AdamStep(param - step, mean, square)": "AdamStep(param - step, mean_hat, square_hat)"}),
    Mistake("betas swapped", "beta_1 and beta_2 are swapped", "beta_1 for the mean, beta_2 for the square",
            {"mean = beta_1 * mean": "beta_1, beta_2 = beta_2, beta_1\n    mean = beta_1 * mean"}),
    Mistake("beta and 1 - beta swapped", "beta multiplies the new gradient, and 1 - beta the running mean",
            "beta_1 * mean + (1 - beta_1) * gradient",
            {"beta_1 * mean + (1 - beta_1) *": "(1 - beta_1) * mean + beta_1 *",
             "beta_2 * square + (1 - beta_2) *": "(1 - beta_2) * square + beta_2 *"}),
    Mistake("1 - beta left out", "the whole new gradient is added, as in momentum", "beta_1 * mean + (1 - beta_1) * gradient",
            {"(1 - beta_1) * gradient": "gradient", "(1 - beta_2) * gradient**2": "gradient**2"}),
    Mistake("gradient not squared", "the running square averages the gradients, not their squares", "gradient**2",
            {"gradient**2": "gradient"}),
    Mistake("square of the mean", "the running square averages the squared mean, not the squared gradient", "gradient**2",
            {"* gradient**2": "* mean**2"}),
    Mistake("root of the square left out", "the mean is divided by the square, not by its root", "np.sqrt(square_hat) + eps",
            {ROOT: "(square_hat + eps)"}),
    Mistake("Adam: eps under the root", "eps is added under the root", "np.sqrt(square_hat) + eps", {ROOT: "np.sqrt(square_hat + eps)"}),
    Mistake("Adam: eps before the correction",
            "eps is added to the root of the uncorrected square, as in the paper's other form",
            "np.sqrt(square_hat) + eps", {ROOT: "((np.sqrt(square) + eps) / np.sqrt(1 - beta_2**t))"}),
    Mistake("Adam: eps left out", "eps is not used", "np.sqrt(square_hat) + eps", {ROOT: "np.sqrt(square_hat)"}),
    Mistake("Adam: gradient instead of its mean", "the step uses the gradient itself, not its running mean", "mean_hat",
            {MEAN_HAT: "mean_hat = gradient"}),
    Mistake("steps uphill", "the params move along the gradient, so the loss rises",
            "param - learning_rate * gradient", {"param - step": "param + step"}, is_first=True),
    Mistake("learning rate left out", "the learning rate is left out",
            "param - learning_rate * gradient",
            {"step = learning_rate * mean_hat": "step = mean_hat"}),
]  # fmt: skip

TASK = Task(
    adam_step,
    place=430,
    difficulty=2,
    minutes=15,
    hints=Hints(
        where="Algorithm 1 of Kingma and Ba 2015 has six lines. Which numbers go on to the next "
        "step, and which are used only in this one?",
        question="Before the first step mean and square are 0, and the gradient is 5. With beta_1 "
        "= 0.9, what is the mean after the step, and what do you have to divide it by to get 5 "
        "again?",
        mistake="corrected means kept",
        fix="mean = beta_1 * mean + (1 - beta_1) * gradient; square = beta_2 * square + (1 - "
        "beta_2) * gradient**2; param - learning_rate * (mean / (1 - beta_1**t)) / (np.sqrt("
        "square / (1 - beta_2**t)) + eps), mean, square",
    ),
    returns="tuple[Array, Array, Array]",
    draw=_draw_adam,
    reactions=[
        Reaction(
            "changing the param changes neither mean nor square",
            moved("param", 0),
            lambda _, arrays: np.stack([arrays["mean"], arrays["square"]]),
        )
    ],
    mistakes=MISTAKES,
)
