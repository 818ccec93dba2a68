"""Features that turn with the position."""

from functools import partial

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Task


def rope(x: Array, positions: Array, base: float) -> Array:
    """Turn pairs of features by angles that grow with the position (RoPE).

    The layout is *halves*: for i from 0 to ``d/2 - 1``, features i and ``i + d/2`` form pair i.
    At position p it turns by the angle ``a = p * base^(-2 i / d)``: the pair ``(x1, x2)`` becomes
    ``(x1 cos a - x2 sin a, x1 sin a + x2 cos a)``, in the same places.

    Parameters
    ----------
    x : (B, H, T, d)
        d is even.
    positions : (T,)
        The position of each token; they need not start at 0.
    base : float

    Returns
    -------
    out : (B, H, T, d)
    """
    return turn(x, find_angles(positions, base, x.shape[-1] // 2))


def find_angles(positions: Array, base: float, half: int) -> Array:
    """Return the angle of each token and pair: (T, d/2)."""
    exponent = np.arange(half) / half
    frequency = base**-exponent
    return positions[:, None] * frequency


def turn(x: Array, angles: Array) -> Array:
    """Turn the pairs of each token by their angles."""
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = np.split(x, 2, axis=-1)
    turned = [first * cos - second * sin, first * sin + second * cos]
    return np.concatenate(turned, axis=-1)


def draw_rope(rng: np.random.Generator, *, name: str) -> list[Inputs]:
    """Draw vectors at positions with gaps, as many tokens as heads, and single sizes."""
    return [
        {name: rng.normal(size=shape), "positions": np.array(positions), "base": base}
        for shape, positions, base in (
            ((2, 3, 5, 8), [3, 4, 9, 1, 12], 100.0), ((2, 4, 4, 6), [3, 4, 5, 6], 50.0),
            ((1, 1, 3, 2), [7, 0, 2], 10.0), ((3, 2, 1, 4), [5], 1000.0),
        )
    ]  # fmt: skip


def _pair_lengths(x: Array) -> Array:
    """Return the squared length of each pair of features i and i + d/2."""
    first, second = np.split(x, 2, axis=-1)
    return first**2 + second**2


def keeps_lengths(name: str) -> Law:
    """Return the law that turning pairs of an input's features obeys."""
    return Law(
        "the pairs keep their lengths",
        lambda inputs, arrays: _pair_lengths(arrays[""]) - _pair_lengths(inputs[name]),
    )


MISTAKES = [
    Mistake("frequencies over d, not d/2", "the frequencies fall too slowly: the exponent is -i / d",
            "base ** (-2 i / d) for i < d / 2",
            {"exponent = np.arange(half) / half": "exponent = np.arange(half) / (2 * half)"}),
    Mistake("frequencies shifted by one", "the frequencies start at i = 1",
            "i starts at 0: the first pair turns by the position itself",
            {"exponent = np.arange(half)": "exponent = (np.arange(half) + 1)"}),
    Mistake("frequencies inverted", "the frequencies rise instead of falling", "base ** -(2 i / d)",
            {"base**-exponent": "base**exponent"}),
    Mistake("frequencies repeated, not tiled",
            "the frequencies are in a different order from the pairs: features 2i and 2i + 1 turn by the same one, but i and i + d / 2 are a pair",
            "features i and i + d / 2 turn by frequency i: np.concatenate([angles, angles], axis=-1)",
            {"return np.concatenate(turned, axis=-1)":
             "return x * np.repeat(cos, 2, axis=-1) + np.concatenate([-second, first], axis=-1) * np.repeat(sin, 2, axis=-1)"}),
    Mistake("base ignored", "the base is 10000, whatever the argument says", "base ** -(2 i / d)",
            {"frequency = base": "frequency = 10000.0"}),
    Mistake("positions ignored", "the argument positions is not used",
            "angles are positions times frequencies", {"positions[:, None]": "np.arange(len(positions))[:, None]"}),
    Mistake("turned by head, not by token", "head h is turned by position h, because the angles lie along the heads",
            "angles (T, d / 2) broadcast against (..., T, d / 2)",
            {"np.cos(angles), np.sin(angles)": "np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]"}),
    Mistake("turned the other way", "the pairs are turned by minus the angle", "first * cos - second * sin",
            {"turn(x, find_angles": "turn(x, -find_angles"}),
    Mistake("sine and cosine swapped", "sine and cosine are swapped", "first * cos - second * sin",
            {"cos, sin = ": "sin, cos = "}),
    Mistake("pairs interleaved", "features 2i and 2i + 1 are paired", "pair i with i + d / 2",
            {"np.split(x, 2, axis=-1)": "x[..., 0::2], x[..., 1::2]",
             "np.concatenate(turned, axis=-1)": "np.stack(turned, axis=-1).reshape(x.shape)"}),
    Mistake("wrong sign in the first half of the rotation",
            "the sign in the first half of the rotation is wrong, so lengths change",
            "first half: first * cos - second * sin", {"first * cos - second * sin": "first * cos + second * sin"}),
    Mistake("wrong sign in the second half of the rotation", "the sign in the second half of the rotation is wrong, so lengths change",
            "second half: first * sin + second * cos", {"first * sin + second * cos": "second * cos - first * sin"}),
    Mistake("a misplaced power of the base", "the frequencies are base^(-2) * i / d: the power ends too early",
            "base ** (-2 * i / d)",
            {"base**-exponent": "base**-2.0 * exponent / 2"}),
    Mistake("positions in reverse order", "the positions are used in reverse order",
            "positions[:, None]",
            {"positions[:, None] * frequency": "positions[::-1, None] * frequency"}),
    Mistake("second half from the turned first", "the second half is computed from the first half that is already turned",
            "keep the old first half",
            {"first * sin + second * cos]": "(first * cos - second * sin) * sin + second * cos]"}),
    Mistake("halves written as neighbours", "the pairs are read as halves, but written next to each other",
            "np.concatenate([first, second], axis=-1)",
            {"np.concatenate(turned, axis=-1)": "np.stack(turned, axis=-1).reshape(x.shape)"}),
    Mistake("pairs from both ends", "feature i is paired with feature d - 1 - i, from the end",
            "pair i with i + d / 2",
            {"np.split(x, 2, axis=-1)": "np.split(np.concatenate([x[..., : x.shape[-1] // 2], x[..., : x.shape[-1] // 2 - 1 : -1]], axis=-1), 2, axis=-1)"}),
]  # fmt: skip

TASK = Task(
    rope,
    place=220,
    difficulty=3,
    minutes=25,
    hints=Hints(
        where="Read docs/rope.md, steps 1 and 2, and its table of two layouts; notebook 19, "
        '"Turn queries and keys". Angles have an axis for tokens and one for pairs.',
        question="Take d = 4. Which two features form pair 0, and which form pair 1? With base "
        "100, by what angle does each pair turn at position 3?",
        mistake="pairs interleaved",
        fix="angles = positions[:, None] * base ** (-2 * np.arange(d // 2) / d); new_first = "
        "first * np.cos(angles) - second * np.sin(angles); new_second = first * "
        "np.sin(angles) + second * np.cos(angles)",
    ),
    draw=partial(draw_rope, name="x"),
    laws=[keeps_lengths("x")],
    mistakes=MISTAKES,
)
