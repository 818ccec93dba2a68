"""Positions: rotary embedding, there and back."""

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "rope",
    title="Features that turn with the position",
    difficulty=3,
    minutes=25,
    hints=Hints(
        where="Read docs/rope.md, steps 1 and 2, and its table of two layouts; notebook 19, "
        '"Turn queries and keys". Angles have an axis for tokens and one for pairs.',
        question="Take d = 4. Which two features form pair 0, and which pair 1? With base 100, by "
        "what angle does each pair turn at position 3?",
        mistake="pairs interleaved",
        fix="angles = positions[:, None] * base ** (-2 * np.arange(d // 2) / d); new_first = "
        "first * np.cos(angles) - second * np.sin(angles); new_second = first * "
        "np.sin(angles) + second * np.cos(angles)",
    ),
)
def rope(x: Array, positions: Array, base: float) -> Array:
    """Turn pairs of features by angles that grow with the position (RoPE).

    The layout is *halves*: for i from 0 to ``d/2 - 1``, features i and ``i + d/2`` form pair i.
    At position p it turns by the angle ``a = p * base^(-2 i / d)``: the pair ``(x1, x2)`` becomes
    ``(x1 cos a - x2 sin a, x1 sin a + x2 cos a)``, in the places where it was.

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
    raise NotImplementedError


@exercise(
    "rope-backward",
    title="Turning the gradient back",
    difficulty=2,
    minutes=10,
    needs=("rope",),
    hints=Hints(
        where="Forward is out = R x with a rotation R for each pair, so backward needs the "
        "transpose of R: docs/rope.md, backward.",
        question="At a quarter turn the pair (x1, x2) becomes (-x2, x1). If the loss is the first "
        "number of that, what are its derivatives by x1 and by x2? Which turn maps (1, 0) to them?",
        mistake="gradient turned forward",
        fix="the same rotation by -positions:\n"
        "new_first = first * np.cos(angles) + second * np.sin(angles); new_second = second * "
        "np.cos(angles) - first * np.sin(angles)",
    ),
)
def rope_backward(d_out: Array, positions: Array, base: float) -> Array:
    """Return the gradient of the input of a rotary embedding, from that of its output.

    Forward was, for i from 0 to ``d/2 - 1``, with ``x1`` and ``x2`` features i and ``i + d/2`` of a
    token at position p: ``(x1, x2)`` became ``(x1 cos a - x2 sin a, x1 sin a + x2 cos a)``, in the
    same places, with the angle ``a = p * base^(-2 i / d)``.

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
    raise NotImplementedError
