"""Heads: cutting the width into them, and laying them side by side again."""

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "split-heads",
    title="A block of columns for every head",
    difficulty=1,
    minutes=5,
    hints=Hints(
        where="The last axis of x holds two things, head and column of the head; in the result the "
        'heads stand second. Notebook 09, "Splitting into heads".',
        question="One sequence of two tokens, [1, 2, 3, 4] and [5, 6, 7, 8], and two heads: which "
        "four numbers must head 0 hold? Which does x.reshape(1, 2, 2, 2)[0, 0] hold?",
        mistake="split without transpose",
        fix="x.reshape(B, T, num_heads, d).transpose(0, 2, 1, 3)",
    ),
)
def split_heads(x: Array, num_heads: int) -> Array:
    """Cut every token's vector into one piece for each head.

    Head h gets columns ``h*d`` to ``(h + 1)*d - 1`` of every token, and the tokens keep their
    order: ``heads[b, h, t, c]`` is ``x[b, t, h*d + c]``.

    Parameters
    ----------
    x : (B, T, H*d)
    num_heads : int
        H; it divides the last axis of `x`.

    Returns
    -------
    heads : (B, H, T, d)
    """
    raise NotImplementedError


@exercise(
    "merge-heads",
    title="The heads side by side again",
    difficulty=1,
    minutes=5,
    needs=("split-heads",),
    hints=Hints(
        where="A reshape can join only axes that are neighbours. Of B, H, T, d, the axes H and d "
        "must be joined. Notebook 09 shows a right and a wrong way to merge.",
        question="Two heads of width 1 with two tokens, heads[0] = [[[1], [2]], [[3], [4]]]: which "
        "two numbers belong to token 0? Which does heads.reshape(1, 2, 2)[0, 0] hold?",
        mistake="merge without transpose",
        fix="heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)",
    ),
)
def merge_heads(heads: Array) -> Array:
    """Lay the heads of every token side by side.

    Head 0 has the first d columns, head 1 the next, and so on: ``merged[b, t, h*d + c]`` is
    ``heads[b, h, t, c]``. It undoes the splitting into heads.

    Parameters
    ----------
    heads : (B, H, T, d)

    Returns
    -------
    merged : (B, T, H*d)
    """
    raise NotImplementedError
