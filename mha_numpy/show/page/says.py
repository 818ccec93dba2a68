"""What each array means, in one plain sentence: the page shows it beside the array's name."""

from mha_numpy.core.options import OPTIONS

SAYS = {  # an option that is not here says what its declaration says
    "x_q": "The input has one row for each token, and a number for each of its features.",
    "x_k": "The input that keys are made of: the same tokens, or those of another sequence.",
    "x_v": "The input that values are made of: as a rule the same rows as for the keys.",
    "x": "The input has one row for each token.",
    "out": "Each token's new row: what all heads found for it, put together.",
    "scores": "A row of q meets a row of k: the sum of their products says how well the two fit.",
    "capped": "Large scores are bent back smoothly, so that none is larger than the softcap.",
    "bias": "A number for each pair of tokens that is added to its score.",
    "biased": "The scores with the bias added.",
    "mask": "True means that this query may look at this key; False hides the key from it.",
    "visible": "All reasons to hide a key put together: True means that the query may look at it.",
    "masked": "Where a key is hidden, minus infinity takes the place of its score, and its weight "
    "becomes 0.",
    "weights": "Softmax turns each row of scores into shares that sum to 1: how much this query "
    "takes from each key.",
    "dropout_mask": "Some weights are dropped at random (0), and the others are enlarged to make "
    "up for it.",
    "dropped": "The weights after dropout.",
    "heads": "Each head's answer: the mean of the values, mixed by the weights of the row.",
    "head_gate": "One number for each head multiplies what it found: 1 leaves it, 0 switches it "
    "off.",
    "gated": "What each head found, times the gate of that head.",
    "merged": "The answers of all heads stand side by side again, in one row for each token.",
    "scale": "Scores are multiplied by this, 1 / sqrt(d_k) as a rule, so that they do not grow "
    "with the width of a head.",
    "softcap": "No score can be larger than this, or less than minus this.",
    "G": "So many query heads share one head of keys and values.",
    "left": "So many tokens before its own a query may see.",
    "right": "So many tokens after its own a query may see.",
    "q_offset": "The place of the first query among the keys.",
    "w_q": "Learned numbers that make the queries: each column is one feature of one head.",
    "w_k": "Learned numbers that make the keys: each column is one feature of one head.",
    "w_v": "Learned numbers that make the values: each column is one feature of one head.",
    "w_o": "Learned numbers that mix the answers of all heads into one row.",
    "b_o": "A learned number for each feature, added to the mixed answers.",
    "pairs": "RoPE turns features in pairs: this says which feature is the other one of the pair.",
    "d_out": "How much L changes with each number of out: backward starts with it, and L is the "
    "sum of d_out times out.",
    "d_x": "The input is used for queries, keys and values: its gradient is the sum of what all "
    "three ask for.",
    "d_x_kv": "The same input made keys and values: its gradient is the sum of both.",
    "d_weights": "How much L changes with each weight: the gradient of a head's answer meets the "
    "value of that key.",
    "d_scores": "A score gains where its weight's gradient is above the mean of its row, and loses "
    "where it is below; each row sums to 0.",
}

ROLES = {"q": ("query", "what a token asks"), "k": ("key", "what a token offers"),
         "v": ("value", "what a token gives")}  # fmt: skip
for letter, (role, what) in ROLES.items():
    roles = "queries" if role == "query" else f"{role}s"
    SAYS |= {
        letter: f"One {role} for each head and token: {what}.",
        f"{letter}_unrotated": f"The {role} of each head before RoPE turns it.",
        f"{letter}_projected": f"One long row for each token: the {roles} of all heads side by "
        "side, before they are cut.",
        f"{letter}_by_token": "The long row is cut into heads: no number moves in memory, only "
        "the shape is new.",
        f"b_{letter}": f"A learned number that is added to each feature of the {roles}.",
        f"cos_{letter}": f"The cosines of the angles by which the {roles} are turned, by position.",
        f"sin_{letter}": f"The sines of the angles by which the {roles} are turned, by position.",
        f"{letter}_past": f"The {roles} of earlier tokens, kept from before.",
        f"{letter}_new": f"The {roles} of the new tokens.",
    }
for name in ("heads", "gated"):
    SAYS[f"{name}_by_token"] = "The head axis moves behind the tokens, so that heads can be merged."


def says(name: str) -> str:
    """Return what an array of that name means, "" where nobody knows.

    Examples
    --------
    >>> says("d_q")
    'How much L changes with each number of q.'
    """
    if name in SAYS or not name.startswith("d_"):
        return SAYS.get(name) or (OPTIONS[name].text if name in OPTIONS else "")
    return f"How much L changes with each number of {name[2:]}."
