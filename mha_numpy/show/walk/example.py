"""The sentence with a question in it: features with names, and two heads set by hand."""

from typing import TypeAlias

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.show.walk.result import Meaning, Setting

TOKENS = ["The", "cat", "ate", "fish", "It", "purred"]
SENTENCE = "The cat ate fish. It purred."
FEATURES = ["article", "thing", "action", "stand-in", "alive", "food", "place x", "place y"]
IS = {
    "The": ["article"], "cat": ["thing", "alive"], "ate": ["action"], "fish": ["thing", "food"],
    "It": ["stand-in"], "purred": ["action"],
}  # fmt: skip
PLACES = [  # cos and sin of 45 degrees more for each token, to one decimal
    (1.0, 0.0), (0.7, 0.7), (0.0, 1.0), (-0.7, 0.7), (-1.0, 0.0), (-0.7, -0.7)
]  # fmt: skip
NOTE = "Set by hand, not trained: head 0 asks who is meant, head 1 asks for the word before."

Table: TypeAlias = dict[str, dict[int, float]]  # {feature: {column: number}}

# columns 0 to 3 are head 0, columns 4 to 7 are head 1
QUERIES: Table = {
    # head 0: an article asks for its thing, a thing for its action, an action for its thing, and a
    # stand-in for a thing that is alive
    "article": {0: 2}, "thing": {1: 2}, "action": {0: 2}, "stand-in": {0: 2, 2: 1},
    # head 1: the token's own place, turned back by 45 degrees
    "place x": {4: 4, 5: -4}, "place y": {4: 4, 5: 4},
}  # fmt: skip
KEYS: Table = {
    "thing": {0: 3}, "action": {1: 3}, "stand-in": {0: 1}, "alive": {2: 3}, "food": {3: 3},
    "place x": {4: 4}, "place y": {5: 4},
}  # fmt: skip
VALUES: Table = {
    "thing": {0: 1, 5: 1}, "action": {1: 1, 6: 1}, "stand-in": {0: 1, 7: 1}, "alive": {2: 1},
    "food": {3: 1}, "article": {4: 1},
}  # fmt: skip
OUTPUTS: Table = {  # what head 0 brings counts whole, what head 1 brings counts half
    "thing": {0: 1, 5: 0.5}, "action": {1: 1, 6: 0.5}, "alive": {2: 1}, "food": {3: 1},
    "article": {4: 0.5}, "stand-in": {7: 0.5},
}  # fmt: skip
MEANING = Meaning(
    features=FEATURES,
    heads=["who is meant", "the word before"],
    matched=[["thing", "action", "alive", "food"], ["place x", "place y", "unused", "unused"]],
    handed=[["thing", "action", "alive", "food"], ["article", "thing", "action", "stand-in"]],
    asks=[
        ["which thing?", "what does it do?", "who does it?", "what happens to it?",
         "which living thing?", "who does it?"],
        ["which word comes before me, or failing that, is nearest?",
         *["which word comes before?"] * 5],
    ],
    asker=TOKENS.index("It"),
    wish="we want the new row for It to say alive, not food",
    goal="alive \N{MINUS SIGN} food",
    written=SENTENCE.split(),
    dare="make the fish alive, and see where It looks",
)  # fmt: skip


def example_setting(seed: int = 0) -> Setting:
    """Return "The cat ate fish. It purred." and a layer of two heads, all numbers set by hand.

    Who is "It"? L is a wish about the answer: it grows if the new row of "It" says alive,
    and falls if it says food.

    Examples
    --------
    >>> setting = example_setting()
    >>> dict(zip(setting.features, setting.inputs["x_q"][0, 1].tolist()))["alive"]
    1.0
    """
    layer = MultiHeadAttention(len(FEATURES), 2, bias=False)
    tables = {"w_q": QUERIES, "w_k": KEYS, "w_v": VALUES}
    layer.params = {name: _by_feature(table) for name, table in tables.items()}
    layer.params["w_o"] = _by_feature(OUTPUTS).T
    x = np.array([[float(feature in IS[token]) for feature in FEATURES] for token in TOKENS])
    x[:, -2:] = PLACES
    d_out = np.zeros((1, *x.shape))
    for feature, number in {"alive": 1, "food": -1}.items():
        d_out[0, TOKENS.index("It"), FEATURES.index(feature)] = number
    return Setting(
        layer=layer,
        inputs={"x_q": x[None]},
        tokens=TOKENS,
        source_tokens=TOKENS,
        meaning=MEANING,
        d_out=d_out,
        seed=seed,
        about=(
            f"{SENTENCE} Who is It? Each word looks at the others through two heads: head 0 asks "
            "who is meant, head 1 asks for the word before. We set every number by hand, so you "
            "can read them all."
        ),
        note=NOTE,
    )


def _by_feature(table: Table) -> Array:
    matrix = np.zeros((len(FEATURES), len(FEATURES)))
    for feature, columns in table.items():
        for column, number in columns.items():
            matrix[FEATURES.index(feature), column] = number
    return matrix
