"""Numbers with fewer digits."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Arrays, Hints, Inputs, Law, Mistake, Task


def round_to_digits(x: Array, digits: int) -> Array:
    """Round each number to the nearest one with this number of binary digits.

    A number is ``m * 2^e`` with ``1 <= m < 2``, and its binary digits are those of m, the leading 1
    included: in binary, 5 is 1.01 times 2^2, which has three. If two are equally near, take the one
    whose last kept digit is 0. A 0 stays 0. Any power e is allowed.

    Parameters
    ----------
    x : float array of any shape
    digits : int
        1 to 52; bfloat16 keeps 8, float16 keeps 11.

    Returns
    -------
    rounded : array like `x`
    """
    _, exponent = np.frexp(x)  # x = m 2^exponent with m from 1/2 to 1
    last = np.ldexp(1.0, exponent - digits)
    return np.rint(x / last) * last


def _draw(rng: np.random.Generator) -> list[Inputs]:
    """Draw large and small numbers, and whole ones, many of which are exactly halfway."""
    sizes = 2.0 ** rng.integers(-20, 20, size=(4, 5))
    whole = np.arange(-15.0, 16.0)  # three digits: 9 is between 8 and 10, 11 between 10 and 12
    return [
        {"x": rng.normal(size=(2, 3, 4)), "digits": 8},
        {"x": whole, "digits": 3},
        {"x": sizes * rng.normal(size=sizes.shape), "digits": 11},
        {"x": rng.normal(size=(5, 3)), "digits": 30},  # more than float32 has
    ]


def _beyond(inputs: Inputs, arrays: Arrays) -> Array:
    """Return by how much a number moves more than it may."""
    x, rounded = inputs["x"], arrays[""]
    beyond: Array = np.maximum(np.abs(rounded - x) - 2.0 ** -inputs["digits"] * np.abs(x), 0)
    return beyond


MISTAKES = [
    Mistake("digits cut off", "the digits beyond the last one are cut off, not rounded",
            "np.rint(x / last) * last", {"np.rint(": "np.trunc("}),
    Mistake("digits rounded down", "every number is rounded down, even where the next one above is nearer",
            "np.rint(x / last) * last", {"np.rint(": "np.floor("}),
    Mistake("digits rounded up", "every number is rounded up, even where the next one below is nearer",
            "np.rint(x / last) * last", {"np.rint(": "np.ceil("}),
    Mistake("middle away from 0", "a number exactly halfway goes away from 0, not to the one whose last digit is 0",
            "np.rint, which takes the even one", {"np.rint(x / last)": "np.trunc(x / last + np.copysign(0.5, x))"}),
    Mistake("middle upwards", "a number exactly halfway goes up, not to the one whose last digit is 0",
            "np.rint, which takes the even one", {"np.rint(x / last)": "np.floor(x / last + 0.5)"}),
    Mistake("middle downwards", "a number exactly halfway goes down, not to the one whose last digit is 0",
            "np.rint, which takes the even one", {"np.rint(x / last)": "np.ceil(x / last - 0.5)"}),
    Mistake("one digit too many", "one digit more is kept: the leading 1 counts as one of the digits",
            "the last digit is worth 2^(1 - digits) times the leading digit", {"exponent - digits": "exponent - digits - 1"}),
    Mistake("one digit too few", "one digit too few is kept",
            "the last digit is worth 2^(1 - digits) times the leading digit", {"exponent - digits": "exponent - digits + 1"}),
    Mistake("digits after the point", "the number of digits after the point is fixed, though large numbers need fewer there",
            "let the last digit follow the size of each number", {"exponent - digits": "0 * exponent - digits"}),
    Mistake("digits of the largest", "every number is rounded to the last digit of the largest one",
            "an exponent for each number", {"np.frexp(x)": "np.frexp(np.abs(x).max())"}),
    Mistake("decimal digits", "decimal digits are kept, not binary ones",
            "powers of 2, not of 10",
            {"np.ldexp(1.0, exponent - digits)": "10.0 ** np.ceil(np.log10(np.abs(np.where(x, x, 1.0))) - digits)"}),
    Mistake("not scaled back", "the numbers are left as multiples of their last digit",
            "np.rint(x / last) * last", {"np.rint(x / last) * last": "np.rint(x / last)"}),
]  # fmt: skip

TASK = Task(
    round_to_digits,
    place=460,
    difficulty=2,
    minutes=15,
    hints=Hints(
        where='Notebook 35, "Digits and powers of two". np.frexp(x) splits each number into f and p '
        "with x = f * 2^p. Its f lies between 1/2 and 1, so p is one more than the e of the task.",
        question="Keep three digits of 9, which is 1.001 in binary, times 2^3. What is the last "
        "kept digit worth? Which multiples of that are next to 9, and which of them is even?",
        mistake="digits after the point",
        fix="last = np.ldexp(1.0, exponent - digits)\nnp.rint(x / last) * last",
    ),
    draw=_draw,
    laws=[Law("no number moves by more than 2^-digits of its size", _beyond)],
    mistakes=MISTAKES,
)
