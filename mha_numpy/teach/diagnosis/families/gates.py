"""Gradients of what multiplies weights and heads: dropout, gates, importance."""

import numpy as np

from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Inputs, Law, Piece, Slope


def _draw_weights(rng: np.random.Generator) -> list[Inputs]:
    """Draw rows that sum to 1: all sizes different, and a square with as many heads."""
    powers = [rng.random(shape) for shape in ((2, 3, 5), (4, 4, 4))]
    return [{"weights": array / array.sum(axis=-1, keepdims=True)} for array in powers]


def _draw_dropout(rng: np.random.Generator) -> list[Inputs]:
    """Draw which weights were kept, a few and most."""
    return [
        {"d_dropped": rng.normal(size=shape), "keep": rng.random(shape) >= p, "p": p}
        for shape, p in (((2, 3, 4, 5), 0.25), ((3, 2, 5, 4), 0.6))
    ]


def _draw_gated(rng: np.random.Generator) -> list[Inputs]:
    """Draw heads and the gradient of the gated ones: all sizes different, and B = H."""
    return [
        {"d_gated": rng.normal(size=shape), "heads": rng.normal(size=shape)}
        for shape in ((5, 3, 4, 2), (4, 4, 3, 2))
    ]


def _slope_of_dropout(inputs: Inputs) -> Slope:
    """Differentiate the product with what is kept."""
    keep, p = inputs["keep"], inputs["p"]
    weights = np.random.default_rng(0).random(size=keep.shape)
    at = {"weights": weights}
    return Slope(lambda weights: weights * keep / (1 - p), at, inputs["d_dropped"])


def _slope_of_gate(inputs: Inputs) -> Slope:
    """Differentiate gated heads by gates of 1."""
    heads = inputs["heads"]
    gate = np.ones(heads.shape[1])
    return Slope(lambda gate: heads * gate[:, None, None], {"gate": gate}, inputs["d_gated"])


PIECES = [
    Piece("strongest_keys", _draw_weights, result="keys"),
    Piece(
        "dropout_backward",
        _draw_dropout,
        result="d_weights",
        laws=[
            Law(
                "dropped weights have no gradient",
                lambda inputs, arrays: np.where(inputs["keep"], 0, arrays[""]),
            )
        ],
        slope=_slope_of_dropout,
    ),
    Piece("d_head_gate", _draw_gated, result="d_gate", slope=_slope_of_gate),
    Piece(
        "head_importance",
        _draw_gated,
        result="importance",
        laws=[Law("no importance is negative", lambda _, arrays: np.minimum(arrays[""], 0))],
    ),
]

# fmt: off
MISTAKES = [
    Mistake("queries taken for keys", "the largest weight of each column is taken, over the queries",
            "a row is a query: weights.argmax(axis=-1)", {"weights.argmax(axis=2)": "weights.argmax(axis=1)"}),
    Mistake("one key for all heads", "the heads are averaged first, so that all of them look at one key",
            "weights.argmax(axis=-1) keeps the heads apart",
            {"weights.argmax(axis=2)": "np.tile(weights.mean(axis=0).argmax(axis=1), (len(weights), 1))"}),
    Mistake("weakest keys", "the key with the smallest weight is taken", "argmax, not argmin",
            {"weights.argmax(axis=2)": "weights.argmin(axis=2)"}),
    Mistake("keys counted from 1", "the first key has the number 1 instead of 0", "weights.argmax(axis=-1)",
            {"weights.argmax(axis=2)": "weights.argmax(axis=2) + 1"}),
    Mistake("the weight, not its key", "the largest weight is returned instead of the number of its key",
            "weights.argmax(axis=-1), not max", {"weights.argmax(axis=2)": "weights.max(axis=2)"}),
    Mistake("dropout not undone by 1/(1-p)", "the factor 1 / (1 - p) of the kept weights is missing",
            "d_dropped * keep / (1 - p)", {" * keep / (1 - p)": " * keep"}),
    Mistake("dropout: times 1-p", "d_weights is multiplied by 1 - p where it is divided by it",
            "d_dropped * keep / (1 - p)", {" * keep / (1 - p)": " * keep * (1 - p)"}),
    Mistake("dropout: divided by p", "d_weights is divided by p, the share that was dropped, not by 1 - p",
            "d_dropped * keep / (1 - p)", {" * keep / (1 - p)": " * keep / p"}),
    Mistake("keep not applied", "dropped weights get gradients too: keep is not applied",
            "d_dropped * keep / (1 - p)", {" * keep / (1 - p)": " / (1 - p)"}),
    Mistake("keep inverted", "dropped weights get the gradients, and the kept ones none",
            "keep is True where a weight was kept", {" * keep / (1 - p)": " * ~keep / (1 - p)"}),
    Mistake("dropout ignored in backward", "d_weights is d_dropped: dropout is skipped", "d_dropped * keep / (1 - p)",
            {" * keep / (1 - p)": ""}),
    Mistake("gate gradient from d_gated alone", "d_gate is the sum of d_gated: the factor heads is missing",
            "(d_gated * heads).sum(axis=(0, 2, 3))", {"d_gates = d_gated * heads": "d_gates = d_gated"}),
    Mistake("gate gradient from heads alone", "d_gate is the sum of the heads: the factor d_gated is missing",
            "(d_gated * heads).sum(axis=(0, 2, 3))", {"d_gates = d_gated * heads": "d_gates = heads"}),
    Mistake("gate gradient not summed", "d_gate is d_gated * heads, not summed: a gate multiplies a whole head",
            "sum over all axes but that of the heads", {"d_gates.sum(axis=(0, 2, 3))": "d_gates"}),
    Mistake("gate gradient of each sequence", "d_gate is (B, H): the sum over the batch is missing",
            "sum over all axes but that of the heads", {"d_gates.sum(axis=(0, 2, 3))": "d_gates.sum(axis=(2, 3))"}),
    Mistake("gate gradient of each feature", "d_gate is (H, d): the sum over the features is missing",
            "sum over all axes but that of the heads", {"d_gates.sum(axis=(0, 2, 3))": "d_gates.sum(axis=(0, 2))"}),
    Mistake("gate gradient summed over the heads", "d_gate is (B,): the sum is over the heads instead of the batch",
            "axis=(0, 2, 3)", {"d_gates.sum(axis=(0, 2, 3))": "d_gates.sum(axis=(1, 2, 3))"}),
    Mistake("gate gradient of the last sequence alone", "d_gate is computed from the last sequence alone", "sum over the batch",
            {"d_gates.sum(axis=(0, 2, 3))": "d_gates[-1].sum(axis=(1, 2))"}),
    Mistake("gate gradient: mean over the batch", "d_gate is the mean over the batch instead of the sum",
            "sum over the batch", {"d_gates.sum(axis=(0, 2, 3))": "d_gates.sum(axis=(2, 3)).mean(axis=0)"}),
    Mistake("gate gradient: mean", "d_gate is a mean over sequences, tokens and features", "sum over them",
            {"d_gates.sum(axis=(0, 2, 3))": "d_gates.mean(axis=(0, 2, 3))"}),
    Mistake("importance from d_gated alone", "the importance is computed from d_gated alone: the factor heads is missing",
            "d_gated * heads", {"shares = d_gated * heads": "shares = d_gated"}),
    Mistake("importance from heads alone",
            "the importance is computed from the heads alone: the factor d_gated is missing", "d_gated * heads",
            {"shares = d_gated * heads": "shares = heads"}),
    Mistake("absolute value of each number",
            "the absolute value is taken of each number, before the sum over tokens and features",
            "np.abs of each sequence's sum", {"shares.sum(axis=(2, 3))": "np.abs(shares).sum(axis=(2, 3))"}),
    Mistake("absolute value of each token",
            "the absolute value is taken of each token's share, before the sum over the tokens",
            "np.abs of each sequence's sum", {"shares.sum(axis=(2, 3))": "np.abs(shares.sum(axis=3)).sum(axis=2)"}),
    Mistake("absolute value after the sum",
            "the absolute value is taken of the sum over all sequences, where gradients of opposite sign cancel",
            "np.abs first, then the mean over the batch",
            {"np.abs(of_each).mean(axis=0)": "np.abs(of_each.sum(axis=0))"}),
    Mistake("absolute value after the mean",
            "the absolute value is taken of the mean over the sequences, where gradients of opposite sign cancel",
            "np.abs first, then the mean over the batch",
            {"np.abs(of_each).mean(axis=0)": "np.abs(of_each.mean(axis=0))"}),
    Mistake("no absolute value", "no absolute value is taken, so gradients of opposite sign cancel", "np.abs of each sequence's sum",
            {"np.abs(of_each)": "of_each"}),
    Mistake("squares for absolute values", "the importance is a mean of squares instead of absolute values", "np.abs",
            {"np.abs(of_each)": "(of_each**2)"}),
    Mistake("importance summed over the batch", "the importance is a sum over the batch instead of the mean",
            "mean over the batch", {"np.abs(of_each).mean(axis=0)": "np.abs(of_each).sum(axis=0)"}),
    Mistake("importance: mean over the tokens",
            "each sequence's gradient is a mean over its tokens instead of the sum", "sum over tokens and features",
            {"shares.sum(axis=(2, 3))": "shares.sum(axis=3).mean(axis=2)"}),
    Mistake("importance: mean over the heads", "the mean is taken over the heads instead of the batch",
            "mean(axis=0)", {"np.abs(of_each).mean(axis=0)": "np.abs(of_each).mean(axis=1)"}),
    Mistake("importance divided by its norm", "the importance is divided by its norm over the heads",
            "leave it as it is: norms are for comparing layers",
            {"np.abs(of_each).mean(axis=0)": "np.abs(of_each).mean(axis=0) / np.linalg.norm(np.abs(of_each).mean(axis=0))"}),
]
# fmt: on
