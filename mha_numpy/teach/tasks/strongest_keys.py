"""Where does each query look?"""  # noqa: D400

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Inputs, Mistake, Reaction, Task


def strongest_keys(weights: Array) -> Array:
    """Return the number of the key with the largest weight, for each query in each head.

    Keys are counted from 0.

    Parameters
    ----------
    weights : (H, T_q, T_k)

    Returns
    -------
    keys : (H, T_q), whole numbers
    """
    return weights.argmax(axis=2)


def _draw_weights(rng: np.random.Generator) -> list[Inputs]:
    """Draw rows that sum to 1: all sizes different, and a square with as many heads."""
    powers = [rng.random(shape) for shape in ((2, 3, 5), (4, 4, 4), (1, 6, 2), (3, 1, 7))]
    return [{"weights": array / array.sum(axis=-1, keepdims=True)} for array in powers]


MISTAKES = [
    Mistake("queries taken for keys", "the largest weight is taken over the queries, in each column",
            "a row is a query: weights.argmax(axis=-1)", {"weights.argmax(axis=2)": "weights.argmax(axis=1)"}),
    Mistake("one key for all heads", "the heads are averaged first, so all of them look at the same keys",
            "weights.argmax(axis=-1) keeps the heads apart",
            {"weights.argmax(axis=2)": "np.tile(weights.mean(axis=0).argmax(axis=1), (len(weights), 1))"}),
    Mistake("weakest keys", "the key with the smallest weight is taken", "argmax, not argmin",
            {"weights.argmax(axis=2)": "weights.argmin(axis=2)"}),
    Mistake("keys counted from 1", "keys are counted from 1 instead of 0", "weights.argmax(axis=-1)",
            {"weights.argmax(axis=2)": "weights.argmax(axis=2) + 1"}),
    Mistake("the weight, not its key", "the largest weight is returned instead of the number of its key",
            "weights.argmax(axis=-1), not max", {"weights.argmax(axis=2)": "weights.max(axis=2)"}),
    Mistake("one index for a whole head", "the largest weight is searched in a whole head at once, not for each query",
            "argmax(axis=2)",
            {"weights.argmax(axis=2)": "weights.reshape(len(weights), -1).argmax(axis=1)[:, None] + np.zeros(weights.shape[:2], dtype=int)"}),
]  # fmt: skip

TASK = Task(
    strongest_keys,
    place=270,
    difficulty=1,
    minutes=3,
    hints=Hints(
        where="In a picture of weights, a row is a query and a column is a key. Notebook 00, the "
        "picture of the translator.",
        question="Take two queries and three keys, so one row of the weights could be (0.1, 0.7, "
        "0.2). Which key has the largest weight, counted from 0? Along which of the axes (H, T_q, "
        "T_k) did you compare?",
        mistake="queries taken for keys",
        fix="weights.argmax(axis=-1)",
    ),
    draw=_draw_weights,
    reactions=[
        Reaction(  # more keys than an int8 can count
            "200 keys without weight in front add 200 to every answer",
            lambda inputs: {"weights": np.pad(inputs["weights"], ((0, 0), (0, 0), (200, 0)))},
            lambda _, arrays: arrays[""].astype(float) % 200,
        )
    ],
    mistakes=MISTAKES,
)
