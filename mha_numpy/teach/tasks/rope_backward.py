"""Turning the gradient back."""

from functools import partial

import numpy as np

from mha_numpy.core import rope_forward
from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Mistake, Slope, Task
from mha_numpy.teach.tasks.rope import draw_rope, find_angles, keeps_lengths, turn


def rope_backward(d_out: Array, positions: Array, base: float) -> Array:
    """Return the gradient of a rotary embedding's input, from the gradient of its output.

    For i from 0 to ``d/2 - 1``, let ``x1`` and ``x2`` be features i and ``i + d/2`` of a token at
    position p. Forward turned ``(x1, x2)`` into ``(x1 cos a - x2 sin a, x1 sin a + x2 cos a)``, in
    the same places, with the angle ``a = p * base^(-2 i / d)``.

    Parameters
    ----------
    d_out : (B, H, T, d)
        d is even.
    positions : (T,)
        The position of each token; they need not start at 0.
    base : float

    Returns
    -------
    d_x : (B, H, T, d)
    """
    return turn(d_out, -find_angles(positions, base, d_out.shape[-1] // 2))


MISTAKES = [
    Mistake("gradient turned forward", "the gradient is turned forward again, not back",
            "turn by minus the angle", {"turn(d_out, -find_angles": "turn(d_out, find_angles"}),
    Mistake("gradient not turned", "d_x is d_out: the gradient is not turned back", "turn by minus the angle",
            {"turn(d_out, -find_angles(positions, base, d_out.shape[-1] // 2))": "d_out"}),
]  # fmt: skip

TASK = Task(
    rope_backward,
    place=230,
    difficulty=2,
    minutes=10,
    needs=("rope",),
    hints=Hints(
        where="Forward is out = R x with a rotation R for each pair, so backward needs the "
        "transpose of R: docs/rope.md, backward.",
        question="At a quarter turn the pair (x1, x2) becomes (-x2, x1). If the loss is the first "
        "of the two new numbers, what are its derivatives with respect to x1 and x2? Which turn "
        "maps (1, 0) to them?",
        mistake="gradient turned forward",
        fix="the same rotation by -positions:\n"
        "new_first = first * np.cos(angles) + second * np.sin(angles); new_second = second * "
        "np.cos(angles) - first * np.sin(angles)",
    ),
    draw=partial(draw_rope, name="d_out"),
    laws=[keeps_lengths("d_out")],
    slope=lambda inputs: Slope(
        partial(rope_forward, positions=inputs["positions"], base=inputs["base"]),
        {"x": np.random.default_rng(0).normal(size=inputs["d_out"].shape)},
        inputs["d_out"],
    ),
    mistakes=MISTAKES,
)
