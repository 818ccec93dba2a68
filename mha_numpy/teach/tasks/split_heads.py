"""A block of columns for every head."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Mistake, Task, each_alone


def split_heads(x: Array, num_heads: int) -> Array:
    """Split every token's vector into one piece for each head.

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
    B, T, width = x.shape
    d = width // num_heads
    return x.reshape(B, T, num_heads, d).transpose(0, 2, 1, 3)


MISTAKES = [
    Mistake("split without transpose", "heads are split with reshape only, which deals out the numbers in memory order",
            "x.reshape(B, T, H, d).transpose(0, 2, 1, 3)",
            {"x.reshape(B, T, num_heads, d).transpose(0, 2, 1, 3)": "x.reshape(B, num_heads, T, d)"}),
    Mistake("heads interleaved when split", "each head takes every H-th column instead of a block of d columns",
            "reshape to (B, T, H, d), not to (B, T, d, H)",
            {"num_heads, d).transpose(0, 2, 1, 3)": "d, num_heads).transpose(0, 3, 1, 2)"}),
    Mistake("heads left after the tokens", "the axis of the heads stays after that of the tokens, (B, T, H, d), so a token's heads would attend to one another",
            "after the reshape to (B, T, H, d): .transpose(0, 2, 1, 3)",
            {"num_heads, d).transpose(0, 2, 1, 3)": "num_heads, d)"}),
    Mistake("heads before the batch", "the axis of the heads comes before that of the batch: (H, B, T, d)",
            "x.reshape(B, T, H, d).transpose(0, 2, 1, 3), or np.stack(np.split(...), axis=1)",
            {"num_heads, d).transpose(0, 2, 1, 3)": "num_heads, d).transpose(2, 0, 1, 3)"}),
    Mistake("tokens reversed when split", "the tokens are in reverse order",
            "leave the token axis as it is", {"x.reshape(B, T, num_heads": "x[:, ::-1].reshape(B, T, num_heads"}),
]  # fmt: skip

TASK = Task(
    split_heads,
    place=10,
    difficulty=1,
    minutes=5,
    hints=Hints(
        where="The last axis of x holds two things, the head and the column within the head; in "
        'the result the heads come second. Notebook 09, "Splitting into heads".',
        question="One sequence has two tokens, [1, 2, 3, 4] and [5, 6, 7, 8], and there are two "
        "heads. Which four numbers must head 0 hold? Which four are in x.reshape(1, 2, 2, 2)[0, "
        "0]?",
        mistake="split without transpose",
        fix="x.reshape(B, T, num_heads, d).transpose(0, 2, 1, 3)",
    ),
    draw=lambda rng: [
        {"x": rng.normal(size=shape), "num_heads": H}
        for shape, H in (((2, 5, 12), 3), ((3, 4, 10), 5), ((1, 3, 4), 4), ((4, 1, 3), 1))
    ],
    reactions=[each_alone("x", np.s_[:, -1], others=np.s_[:, :, :-1])],
    mistakes=MISTAKES,
)
