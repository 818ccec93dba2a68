"""What each array means, in one plain sentence: the page shows it with the array's name."""

from mha_numpy.core.options import OPTIONS

SAYS = {  # an option that is not here says what its declaration says
    "x_q": "The input: one row for each token, with a number for each of its features.",
    "x_k": "The input for the keys: the same tokens, or those of another sequence.",
    "x_v": "The input for the values, usually the same rows as for the keys.",
    "x": "The input: one row for each token.",
    "out": "Each token's new row: what all heads bring to it, put together.",
    "scores": "A row of q meets a row of k: the sum of their products says how well they match.",
    "capped": "Large scores are bent back smoothly, so that none exceeds the softcap.",
    "bias": "A number for each pair of tokens, added to its score.",
    "biased": "The scores with the bias added.",
    "mask": "True means that this query may look at this key; False hides the key from it.",
    "visible": "All reasons for hiding a key together: True means that the query may look at it.",
    "masked": "Where a key is hidden, its score becomes minus infinity, and its weight becomes 0.",
    "weights": "Softmax turns each row of scores into shares that sum to 1: how much this query "
    "takes from each key.",
    "dropout_mask": "Some weights become 0 at random, and the others grow by a fixed factor, so "
    "that each is right on average.",
    "dropped": "The weights after dropout.",
    "heads": "Each head's answer: the mean of the values, weighted by the row of weights.",
    "head_gate": "One number for each head multiplies its answer: 1 keeps it, 0 switches it off.",
    "gated": "Each head's answer times its gate.",
    "merged": "The answers of all heads, side by side again in one row for each token.",
    "scale": "Scores are multiplied by this, usually 1 / sqrt(d_k), so that they do not grow with "
    "the width of a head.",
    "softcap": "No score can be above this, or below minus this.",
    "G": "How many query heads share a key/value head.",
    "left": "How many earlier tokens a query may see.",
    "right": "How many later tokens a query may see.",
    "q_offset": "The place of the first query among the keys.",
    "w_q": "Learned numbers that make the queries: each column is one feature of one head.",
    "w_k": "Learned numbers that make the keys: each column is one feature of one head.",
    "w_v": "Learned numbers that make the values: each column is one feature of one head.",
    "w_o": "Learned numbers that mix the answers of all heads into one row.",
    "b_o": "A learned number for each feature, added to the mixed answers.",
    "pairs": "RoPE rotates features in pairs: this names each feature's partner.",
    "d_out": "How much L changes with each number of out. Backward starts here; L is the sum of "
    "d_out times out.",
    "d_x": "The input feeds queries, keys and values, so its gradient is the sum of all three.",
    "d_x_kv": "The same input feeds keys and values, so its gradient is the sum of both.",
    "d_weights": "How much L changes with each weight: the gradient of a head's answer meets the "
    "value of that key.",
    "d_scores": "L grows with a score whose weight's gradient is above the mean of its row, and "
    "falls with one below it; each row sums to 0.",
}

ROLES = {"q": ("query", "what a token asks"), "k": ("key", "what a token offers"),
         "v": ("value", "what a token gives")}  # fmt: skip
for letter, (role, what) in ROLES.items():
    roles = "queries" if role == "query" else f"{role}s"
    SAYS |= {
        letter: f"One {role} for each head and token: {what}.",
        f"{letter}_unrotated": f"The {role} of each head before RoPE rotates it.",
        f"{letter}_projected": f"One long row for each token: the {roles} of all heads side by "
        "side, before the split into heads.",
        f"{letter}_by_token": "The long row, split into heads: no number moves in memory, only "
        "the shape is new.",
        f"b_{letter}": f"A learned number for each feature, added to the {roles}.",
        f"cos_{letter}": f"The cosines of the angles that rotate the {roles}, by position.",
        f"sin_{letter}": f"The sines of the angles that rotate the {roles}, by position.",
        f"{letter}_past": f"The {roles} of earlier tokens, kept from before.",
        f"{letter}_new": f"The {roles} of the new tokens.",
    }
for name in ("heads", "gated"):
    SAYS[f"{name}_by_token"] = "The head axis moves behind the tokens, so that heads can be merged."


def says(name: str) -> str:
    """Return what an array of that name means, "" where it is not known.

    Examples
    --------
    >>> says("d_q")
    'How much L changes with each number of q.'
    """
    if name in SAYS or not name.startswith("d_"):
        return SAYS.get(name) or (OPTIONS[name].text if name in OPTIONS else "")
    return f"How much L changes with each number of {name[2:]}."
