"""Rules that every right answer obeys."""


def mean_is_zero(inputs, result):
    """Minus the bias and divided by the gain, the numbers along the axis sum to 0."""
    normed = (result - inputs["bias"]) / inputs["gain"]
    return normed.sum(axis=inputs["axis"])
