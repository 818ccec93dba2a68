"""Rules that every right answer obeys."""


def mean_is_zero(inputs, result):
    """Without gain and bias, the numbers along the axis sum to 0."""
    normed = (result - inputs["bias"]) / inputs["gain"]
    return normed.sum(axis=inputs["axis"])
