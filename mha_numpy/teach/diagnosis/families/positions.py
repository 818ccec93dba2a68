"""Rotary positions, there and back."""

from functools import partial

import numpy as np

from mha_numpy.core import rope_forward
from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Inputs, Law, Piece, Slope


def _draw_rope(rng: np.random.Generator, *, name: str) -> list[Inputs]:
    """Draw vectors at positions with gaps, and as many tokens as heads."""
    return [
        {name: rng.normal(size=shape), "positions": np.array(positions), "base": base}
        for shape, positions, base in (
            ((2, 3, 5, 8), [3, 4, 9, 1, 12], 100.0), ((2, 4, 4, 6), [3, 4, 5, 6], 50.0),
        )
    ]  # fmt: skip


def _pair_lengths(x: Array) -> Array:
    """Return the squared length of each pair of features i and i + d/2."""
    first, second = np.split(x, 2, axis=-1)
    return first**2 + second**2


def _keeps_lengths(name: str) -> Law:
    """Return what holds where pairs of an input's features were turned."""
    return Law(
        "the pairs keep their lengths",
        lambda inputs, arrays: _pair_lengths(arrays[""]) - _pair_lengths(inputs[name]),
    )


def _slope_of_rope(inputs: Inputs) -> Slope:
    """Differentiate the rotation."""
    forward = partial(rope_forward, positions=inputs["positions"], base=inputs["base"])
    x = np.random.default_rng(0).normal(size=inputs["d_out"].shape)
    return Slope(forward, {"x": x}, inputs["d_out"])


PIECES = [
    Piece("rope", partial(_draw_rope, name="x"), result="out", laws=[_keeps_lengths("x")]),
    Piece(
        "rope_backward",
        partial(_draw_rope, name="d_out"),
        result="d_x",
        laws=[_keeps_lengths("d_out")],
        slope=_slope_of_rope,
    ),
]

# fmt: off
MISTAKES = [
    Mistake("frequencies over d, not d/2", "the frequencies fall too slowly: the exponent is -i / d",
            "base ** (-2 i / d) for i < d / 2",
            {"exponent = np.arange(half) / half": "exponent = np.arange(half) / (2 * half)"}),
    Mistake("frequencies shifted by one", "the frequencies begin with i = 1",
            "i begins with 0: the first pair turns by the position itself",
            {"exponent = np.arange(half)": "exponent = (np.arange(half) + 1)"}),
    Mistake("frequencies inverted", "the frequencies rise instead of falling", "base ** -(2 i / d)",
            {"base**-exponent": "base**exponent"}),
    Mistake("frequencies repeated, not tiled",
            "the frequencies are in another order than the pairs: features 2i and 2i + 1 turn by the same one, but i and i + d / 2 are a pair",
            "features i and i + d / 2 turn by frequency i: np.concatenate([angles, angles], axis=-1)",
            {"return np.concatenate(turned, axis=-1)":
             "return x * np.repeat(cos, 2, axis=-1) + np.concatenate([-second, first], axis=-1) * np.repeat(sin, 2, axis=-1)"}),
    Mistake("base ignored", "the base is 10000, whatever the argument says", "base ** -(2 i / d)",
            {"frequency = base": "frequency = 10000.0"}),
    Mistake("positions ignored", "the argument positions is not used",
            "angles are positions times frequencies", {"positions[:, None]": "np.arange(len(positions))[:, None]"}),
    Mistake("turned by head, not by token", "head h is turned by position h: the angles lie along the heads",
            "angles (T, d / 2) broadcast against (..., T, d / 2)",
            {"np.cos(angles), np.sin(angles)": "np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]"}),
    Mistake("turned the other way", "the pairs are turned by minus the angle", "first * cos - second * sin",
            {"turn(x, find_angles": "turn(x, -find_angles"}),
    Mistake("sine and cosine swapped", "sine and cosine have changed places", "first * cos - second * sin",
            {"cos, sin = ": "sin, cos = "}),
    Mistake("pairs interleaved", "features 2i and 2i + 1 are paired", "pair i with i + d / 2",
            {"np.split(x, 2, axis=-1)": "x[..., 0::2], x[..., 1::2]",
             "np.concatenate(turned, axis=-1)": "np.stack(turned, axis=-1).reshape(x.shape)"}),
    Mistake("the other sign of the rotation",
            "the sign in the first half of the rotation is wrong, so lengths change",
            "first half: first * cos - second * sin", {"first * cos - second * sin": "first * cos + second * sin"}),
    Mistake("a sign of the rotation", "the sign in the second half of the rotation is wrong, so lengths change",
            "second half: first * sin + second * cos", {"first * sin + second * cos": "second * cos - first * sin"}),
    Mistake("gradient turned forward", "the gradient is turned forward once more, not back",
            "turn by minus the angle", {"turn(d_out, -find_angles": "turn(d_out, find_angles"}),
    Mistake("gradient not turned", "d_x is d_out: the gradient is not turned back", "turn by minus the angle",
            {"turn(d_out, -find_angles(positions, base, d_out.shape[-1] // 2))": "d_out"}),
]
# fmt: on
