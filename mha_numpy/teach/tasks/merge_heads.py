"""The heads side by side again."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Mistake, Task, each_alone


def merge_heads(heads: Array) -> Array:
    """Lay the heads of every token side by side.

    Head 0 has the first d columns, head 1 the next, and so on: ``merged[b, t, h*d + c]`` is
    ``heads[b, h, t, c]``. This undoes the split into heads.

    Parameters
    ----------
    heads : (B, H, T, d)

    Returns
    -------
    merged : (B, T, H*d)
    """
    B, H, T, d = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)


MISTAKES = [
    Mistake("merge without transpose", "heads are merged with reshape only, which mixes the tokens",
            "heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)", {"heads.transpose(0, 2, 1, 3)": "heads"}),
    Mistake("heads not merged", "the axes of tokens and heads are exchanged, but the heads are not merged: the result is (B, T, H, d)",
            "heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)", {".reshape(B, T, H * d)": ""}),
    Mistake("heads merged in reverse", "the heads are concatenated from last to first",
            "head 0 has the first d columns", {"B, H, T, d = heads.shape": "B, H, T, d = heads.shape\n    heads = heads[:, ::-1]"}),
    Mistake("heads interleaved when merged", "the heads' columns alternate instead of lying in blocks",
            "transpose to (B, T, H, d), not to (B, T, d, H)", {"heads.transpose(0, 2, 1, 3)": "heads.transpose(0, 2, 3, 1)"}),
    Mistake("only the last head merged", "only the last head is there, in its own columns; those of the other heads are 0",
            "keep what is already merged",
            {"B, H, T, d = heads.shape": "B, H, T, d = heads.shape\n    heads = heads * (np.arange(H) == H - 1)[:, None, None]"}),
    Mistake("all heads in the first columns", "every head is written into the first d columns, so only the last one is left there; the other columns are 0",
            "head h has the columns from h*d on",
            {"B, H, T, d = heads.shape": "B, H, T, d = heads.shape\n    heads = heads[:, ::-1] * (np.arange(H) == 0)[:, None, None]"}),
    Mistake("one head returned", "only the last head is returned", "lay all heads side by side",
            {"heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)": "heads[:, H - 1].reshape(B, T, d)"}),
    Mistake("heads averaged instead of concatenated", "every head is replaced by the mean of all heads",
            "lay the heads side by side",
            {"B, H, T, d = heads.shape": "B, H, T, d = heads.shape\n    heads = np.repeat(heads.mean(axis=1, keepdims=True), H, axis=1)"}),
]  # fmt: skip

TASK = Task(
    merge_heads,
    place=20,
    difficulty=1,
    minutes=5,
    needs=("split-heads",),
    hints=Hints(
        where="A reshape can join only neighbouring axes. Of B, H, T, d, you have to join H and "
        "d. Notebook 09 shows a right and a wrong way to merge.",
        question="Two heads of width 1 with two tokens, heads[0] = [[[1], [2]], [[3], [4]]]: "
        "which two numbers belong to token 0? Which two are in heads.reshape(1, 2, 2)[0, 0]?",
        mistake="merge without transpose",
        fix="heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)",
    ),
    draw=lambda rng: [
        {"heads": rng.normal(size=shape)}
        for shape in ((2, 3, 5, 4), (3, 5, 4, 2), (1, 4, 3, 1), (4, 1, 1, 3))
    ],
    reactions=[each_alone("heads", np.s_[:, :, -1], others=np.s_[:, :-1])],
    mistakes=MISTAKES,
)
