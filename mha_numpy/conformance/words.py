"""The conventions that cases test, in words that a program can compare.

The first word of each is the one of all cases. The others are what a function that is tested may
declare instead.
"""

ORDER = "scale, softcap, bias, mask, softmax, dropout, mix, head gate"

WORDS: dict[str, dict[str, str]] = {
    "layout": {
        "B H T d": "q, k, v and out have heads before tokens",
        "B T H d": "q, k, v and out have tokens before heads",
    },
    "scale": {"1 / sqrt(d_k)": "the scale if none is given; d_k is the width of q and k"},
    "order": {ORDER: "the order of the operations on a score"},
    "mask": {
        "true = attend": "where the mask is true, the query sees the key",
        "true = blocked": "where the mask is true, the query does not see the key",
    },
    "bias": {"added": "added to the scores; -inf hides a cell as the mask does"},
    "combination": {"and": "a key is hidden if mask, is_causal, window or a bias of -inf hides it"},
    "causal_alignment": {
        "top-left": "query i is at key i",
        "bottom-right": "query i is at key i + T_k - T_q",
        "q_offset": "query i is at key i + q_offset, one number or one for each sequence",
    },
    "window": {
        "left, right": "how many keys to see before and after the query's own, None = all",
        "count": "one number: how many keys to see up to the query's own, which counts too",
    },
    "blind_rows": {
        "zeros": "a query that sees nothing has output 0, weights 0, gradients 0 and lse -inf",
        "nan": "it has NaN",
        "mean": "it has the mean of all values",
    },
    "hidden_numbers": {
        "not read": "NaN and infinity in what no query sees reach no result",
        "read": "they may reach a result",
    },
    "grouping": {
        "repeat": "query head h reads key/value head h // (H / H_kv)",
        "tile": "query head h reads key/value head h % H_kv",
    },
    "weights": {"before dropout": "the weights that are returned have not been dropped"},
    "sink": {"value 0": "one more score in each softmax, included in lse; its value is 0"},
    "head_gate": {"output": "each head's output times a number"},
    "rope": {
        "halves": "feature i is turned with feature i + d_k / 2",
        "pairs": "feature 2 i is turned with feature 2 i + 1",
    },
}
USUAL = {name: next(iter(words)) for name, words in WORDS.items()}
