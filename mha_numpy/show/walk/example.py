"""A sentence whose numbers mean something: features with names, and heads set by hand."""

from typing import TypeAlias

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.show.walk.result import Setting

TOKENS = ["the", "cat", "sat", "on", "the", "mat"]
FEATURES = ["article", "noun", "verb", "preposition", "animal", "thing", "cos", "sin"]
IS = {
    "the": ["article"], "cat": ["noun", "animal"], "sat": ["verb"], "on": ["preposition"],
    "mat": ["noun", "thing"],
}  # fmt: skip
POSITIONS = [  # cos and sin of 45 degrees more for each token, to one decimal
    (1.0, 0.0), (0.7, 0.7), (0.0, 1.0), (-0.7, 0.7), (-1.0, 0.0), (-0.7, -0.7)
]  # fmt: skip
NOTE = "Set by hand, not trained: head 0 looks by meaning, head 1 at the word before."

Table: TypeAlias = dict[str, dict[int, float]]  # {feature: {column: number}}

# columns 0 to 3 are head 0, columns 4 to 7 are head 1
QUERIES: Table = {
    # head 0: a verb asks for an animal, a preposition for a thing, a noun for a verb, "the" for a
    # noun
    "verb": {0: 2}, "preposition": {1: 2}, "noun": {2: 2}, "article": {3: 2},
    # head 1: one's own position, turned back by 45 degrees
    "cos": {4: 4, 5: -4}, "sin": {4: 4, 5: 4},
}  # fmt: skip
KEYS: Table = {
    "animal": {0: 3}, "thing": {1: 3}, "verb": {2: 3}, "noun": {3: 3},  # what a word can offer
    "cos": {4: 4}, "sin": {5: 4},  # where it stands
}  # fmt: skip
VALUES: Table = {
    "noun": {0: 1, 5: 1}, "verb": {1: 1, 6: 1}, "animal": {2: 1}, "thing": {3: 1},
    "article": {4: 1}, "preposition": {7: 1},
}  # fmt: skip
OUTPUTS: Table = {  # what head 0 found counts whole, what head 1 found counts half
    "noun": {0: 1, 5: 0.5}, "verb": {1: 1, 6: 0.5}, "animal": {2: 1}, "thing": {3: 1},
    "article": {4: 0.5}, "preposition": {7: 0.5},
}  # fmt: skip


def example_setting(seed: int = 0) -> Setting:
    """Return "the cat sat on the mat" and a layer of two heads, all numbers set by hand.

    The loss is about one token: it grows if "sat" finds a noun and an animal, and falls if it finds
    a thing.

    Examples
    --------
    >>> setting = example_setting()
    >>> dict(zip(setting.features, setting.inputs["x_q"][0, 1].tolist()))["animal"]
    1.0
    """
    layer = MultiHeadAttention(len(FEATURES), 2, bias=False)
    tables = {"w_q": QUERIES, "w_k": KEYS, "w_v": VALUES}
    layer.params = {name: _by_feature(table) for name, table in tables.items()}
    layer.params["w_o"] = _by_feature(OUTPUTS).T
    x = np.array([[float(feature in IS[token]) for feature in FEATURES] for token in TOKENS])
    x[:, -2:] = POSITIONS
    d_out = np.zeros((1, *x.shape))
    for feature, number in {"noun": 1, "animal": 1, "thing": -1}.items():
        d_out[0, TOKENS.index("sat"), FEATURES.index(feature)] = number
    return Setting(
        layer=layer,
        inputs={"x_q": x[None]},
        tokens=TOKENS,
        source_tokens=TOKENS,
        features=FEATURES,
        d_out=d_out,
        seed=seed,
        about=(
            "All numbers are set by hand, and nothing is trained. Head 0 looks by meaning: a verb "
            "asks for an animal, a preposition for a thing. Head 1 looks at the word before. The "
            "upstream gradient is about one word: L grows if 'sat' finds a noun and an animal, and "
            "falls if it finds a thing."
        ),
        note=NOTE,
    )


def _by_feature(table: Table) -> Array:
    matrix = np.zeros((len(FEATURES), len(FEATURES)))
    for feature, columns in table.items():
        for column, number in columns.items():
            matrix[FEATURES.index(feature), column] = number
    return matrix
