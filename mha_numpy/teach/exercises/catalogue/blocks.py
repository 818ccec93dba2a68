"""What stands beside attention: GELU and back, and the way back into an embedding."""

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "gelu",
    title="GELU, as GPT-2 has it",
    difficulty=1,
    minutes=5,
    hints=Hints(
        where="Look at the brackets of the formula: what does the root multiply, and what does the "
        "1 / 2 multiply?",
        question="What is tanh of 1000, and of -1000? So what is gelu(100), and what is "
        "gelu(-100)?",
        mistake="GELU: cube outside of the product",
        fix="0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))",
    ),
)
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
    raise NotImplementedError


@exercise(
    "gelu-backward",
    title="Back through GELU",
    difficulty=3,
    minutes=20,
    needs=("gelu",),
    hints=Hints(
        where="out is a product of two things that both depend on x, and one of them is a chain of "
        "three functions.",
        question="What is the derivative of x * f(x)? Of f(g(x))? Of tanh(y), written with "
        "tanh(y)? And of y + c y^3?",
        mistake="GELU: inner derivative left out",
        fix="tanh = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)); slope = np.sqrt(2 / np.pi)"
        " * (1 + 3 * 0.044715 * x**2); d_out * ((1 + tanh) / 2 + x * (1 - tanh**2) / 2 * slope)",
    ),
)
def gelu_backward(d_out: Array, x: Array) -> Array:
    """Return the gradient of GELU's input.

    Forward was ``out = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2``, number by number.

    Parameters
    ----------
    d_out : (..., F)
    x : (..., F)

    Returns
    -------
    d_x : (..., F)
    """
    raise NotImplementedError


@exercise(
    "embedding-backward",
    title="Back into an embedding",
    difficulty=2,
    minutes=10,
    needs=("linear-backward",),
    hints=Hints(
        where="A token that occurs three times has read one row three times.",
        question="Type into Python: a = np.zeros(3); a[[1, 1]] += 5. What should a[1] be, what is "
        "it, and which function of NumPy adds both?",
        mistake="the last of equal tokens counts",
        fix="d_table = np.zeros((V, D)); np.add.at(d_table, ids, d_out)",
    ),
)
def embedding_backward(d_out: Array, ids: Array, V: int) -> Array:
    """Return the gradient of the table from which tokens took their rows.

    Forward was ``out = table[ids]``: each token took the row of its id.

    Parameters
    ----------
    d_out : (B, T, D)
    ids : (B, T) int
        0 to V - 1. Some occur several times, some not at all.
    V : int
        Rows of the table.

    Returns
    -------
    d_table : (V, D)
    """
    raise NotImplementedError
