"""Back into an embedding."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Slope, Task


def embedding_backward(d_out: Array, ids: Array, V: int) -> Array:
    """Return the gradient of the table that the tokens took their rows from.

    Forward was ``out = table[ids]``: each token took the row of its id.

    Parameters
    ----------
    d_out : (B, T, D)
    ids : (B, T) int
        0 to V - 1. Some occur several times, some not at all.
    V : int
        The number of rows of the table.

    Returns
    -------
    d_table : (V, D)
    """
    d_table = np.zeros((V, d_out.shape[-1]))
    np.add.at(d_table, ids, d_out)
    return d_table


def _slope_of_embedding(inputs: Inputs) -> Slope:
    d_out, ids = inputs["d_out"], inputs["ids"]
    table = np.random.default_rng(0).normal(size=(inputs["V"], d_out.shape[-1]))
    return Slope(lambda table: table[ids], {"table": table}, d_out)


ROWS = "np.add.at(d_table, ids, d_out)"

MISTAKES = [
    Mistake("the last of equal tokens counts", "a row that several tokens took gets only the last token's gradient: d_table[ids] += d_out adds to a row only once",
            "np.add.at(d_table, ids, d_out)", {ROWS: "d_table[ids] += d_out"}),
    Mistake("the last of equal tokens of a sequence counts",
            "a row that was taken twice in one sequence gets only the last token's gradient",
            "np.add.at(d_table, ids, d_out)", {ROWS: "for row, d in zip(ids, d_out, strict=True):\n        d_table[row] += d"}),
    Mistake("the first of equal tokens counts", "a row that several tokens took gets only the first token's gradient",
            "np.add.at(d_table, ids, d_out)",
            {ROWS: "d_table[ids.ravel()[::-1]] = d_out.reshape(-1, d_out.shape[-1])[::-1]"}),
    Mistake("mean over equal tokens", "a row gets the mean over its tokens instead of their sum", "sum over the tokens of a row",
            {"return d_table": "return d_table / np.maximum(np.bincount(ids.ravel(), minlength=V), 1)[:, None]"}),
    Mistake("d_table: mean over the batch", "d_table is divided by the batch size", "a sum, not a mean",
            {"return d_table": "return d_table / len(ids)"}),
    Mistake("d_table: mean over the tokens", "d_table is divided by the number of tokens", "a sum, not a mean",
            {"return d_table": "return d_table / ids.size"}),
    Mistake("d_table from the last sequence only", "d_table is computed from the last sequence only", "sum over the batch",
            {ROWS: "np.add.at(d_table, ids[-1], d_out[-1])"}),
    Mistake("row 0 taken for padding", "row 0 gets no gradient, as if its token were padding", "every row learns from its tokens",
            {"return d_table": "d_table[0] = 0\n    return d_table"}),
    Mistake("rows counted from 1", "each gradient is added to the row after the right one", "row ids, counted from 0",
            {ROWS: "np.add.at(d_table, (ids + 1) % V, d_out)"}),
    Mistake("d_table transposed", "d_table is (D, V)", "(V, D), like the table", {"return d_table": "return d_table.T"}),
    Mistake("rows of the tokens that occur", "d_table has rows only for the tokens that occur", "V rows; 0 where a token does not occur",
            {"return d_table": "return d_table[np.unique(ids)]"}),
    Mistake("gradients not collected", "d_table is (B, T, D): the gradients of the tokens are not added to their rows",
            "np.add.at(d_table, ids, d_out)", {ROWS: "d_table = d_out"}),
]  # fmt: skip

TASK = Task(
    embedding_backward,
    place=400,
    difficulty=2,
    minutes=10,
    needs=("linear-backward",),
    hints=Hints(
        where="A token that occurs three times has read one row three times.",
        question="Type into Python: a = np.zeros(3); a[[1, 1]] += 5. What would you expect in "
        "a[1], what do you find there, and which NumPy function adds both?",
        mistake="the last of equal tokens counts",
        fix="d_table = np.zeros((V, D)); np.add.at(d_table, ids, d_out)",
    ),
    draw=lambda rng: [  # some come twice, in a sequence or in two, and some not at all
        {"d_out": rng.normal(size=(*np.shape(ids), D)), "ids": np.array(ids), "V": V}
        for ids, D, V in (
            ([[3, 1, 3, 0], [1, 5, 3, 5], [4, 4, 4, 0]], 5, 7),
            ([[2, 1, 2], [0, 2, 1]], 3, 3),
            ([[2, 0, 2, 5]], 2, 6),
            ([[1], [0], [1]], 1, 2),
        )
    ],
    laws=[
        Law(
            "the rows of d_table sum to the sum of d_out over all tokens",
            lambda inputs, arrays: arrays[""].sum(axis=0) - inputs["d_out"].sum(axis=(0, 1)),
        )
    ],
    slope=_slope_of_embedding,
    mistakes=MISTAKES,
)
