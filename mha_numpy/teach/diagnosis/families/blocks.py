"""GELU there and back, and the way back into an embedding."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import gelu_forward
from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Arrays, Inputs, Law, Piece, Slope


def _draw_gelu(rng: np.random.Generator) -> list[Inputs]:
    """Draw numbers, then their opposites; the second time large ones."""
    halves = (2 * rng.normal(size=(2, 3, 4)), np.array([[0.0, 3.0, 40.0]]))
    return [{"x": np.concatenate([half, -half], axis=-1)} for half in halves]


def _draw_gelu_backward(rng: np.random.Generator) -> list[Inputs]:
    """Draw numbers, and large ones."""
    return [{"d_out": rng.normal(size=i["x"].shape), "x": i["x"]} for i in _draw_gelu(rng)]


def _draw_embedding(rng: np.random.Generator) -> list[Inputs]:
    """Draw tokens of which some come twice, in a sequence or in two, and some not at all."""
    return [
        {"d_out": rng.normal(size=(*np.shape(ids), D)), "ids": np.array(ids), "V": V}
        for ids, D, V in (
            ([[3, 1, 3, 0], [1, 5, 3, 5], [4, 4, 4, 0]], 5, 7), ([[2, 1, 2], [0, 2, 1]], 3, 3),
        )
    ]  # fmt: skip


def _slope_of_gelu(inputs: Inputs) -> Slope:
    """Differentiate GELU."""
    return Slope(
        lambda x: gelu_forward(x, approximate="tanh")[0], {"x": inputs["x"]}, inputs["d_out"]
    )


def _slope_of_embedding(inputs: Inputs) -> Slope:
    """Differentiate the rows taken by the table."""
    d_out, ids = inputs["d_out"], inputs["ids"]
    table = np.random.default_rng(0).normal(size=(inputs["V"], d_out.shape[-1]))
    return Slope(lambda table: table[ids], {"table": table}, d_out)


def _off_by_opposites(inputs: Inputs, arrays: Arrays) -> Array:
    """Return gelu(x) - gelu(-x) - x."""
    (x, _), (out, of_opposite) = (np.split(a, 2, axis=-1) for a in (inputs["x"], arrays[""]))
    return out - of_opposite - x


PIECES = [
    Piece(
        "gelu",
        _draw_gelu,
        result="out",
        laws=[Law("gelu(x) - gelu(-x) is x", _off_by_opposites)],
    ),
    Piece("gelu_backward", _draw_gelu_backward, result="d_x", slope=_slope_of_gelu),
    Piece(
        "embedding_backward",
        _draw_embedding,
        result="d_table",
        laws=[
            Law(
                "the rows of d_table sum to the sum of d_out over all tokens",
                lambda inputs, arrays: arrays[""].sum(axis=0) - inputs["d_out"].sum(axis=(0, 1)),
            )
        ],
        slope=_slope_of_embedding,
    ),
]

ROOT, CUBE = "root * (x + 0.044715 * x**3)", "slope * (1 + 3 * 0.044715 * x**2)"  # of the argument
PASSES, SLOPE = "x * (1 + np.tanh(gelu_argument(x))) / 2", "(share + x * share_slope)"
ROWS = "np.add.at(d_table, ids, d_out)"

# fmt: off
MISTAKES = [
    Mistake("GELU: 0.44715 for 0.044715", "the factor of the cube is 0.44715: a zero is missing", "0.044715",
            {ROOT: ROOT.replace("0.04", "0.4"), CUBE: CUBE.replace("0.04", "0.4")}),
    Mistake("GELU: square for cube", "the square of x stands where its cube belongs", "x + 0.044715 * x**3",
            {ROOT: ROOT.replace("**3", "**2"), CUBE: CUBE.replace("3 * 0.044715 * x**2", "2 * 0.044715 * x")}),
    Mistake("GELU: cube outside of the product", "the root of 2 / pi multiplies x alone, not the cube",
            "sqrt(2 / pi) * (x + 0.044715 * x**3)",
            {ROOT: "root * x + 0.044715 * x**3", CUBE: "slope + 3 * 0.044715 * x**2"}),
    Mistake("GELU: cube left out", "the term with the cube is left out", "sqrt(2 / pi) * (x + 0.044715 * x**3)",
            {ROOT: "root * x", CUBE: "slope"}),
    Mistake("GELU: factor left out", "the factor sqrt(2 / pi) is left out", "sqrt(2 / pi) * (x + 0.044715 * x**3)",
            {"root = math.sqrt(2 / math.pi)": "root = 1.0", "slope = math.sqrt(2 / math.pi)": "slope = 1.0"}),
    Mistake("GELU: 2 / pi without the root", "the factor is 2 / pi instead of its root", "math.sqrt(2 / math.pi)",
            {"root = math.sqrt(2 / math.pi)": "root = 2 / math.pi", "slope = math.sqrt(2 / math.pi)": "slope = 2 / math.pi"}),
    Mistake("GELU: 1 / sqrt(2 pi) for sqrt(2 / pi)", "the factor is 1 / sqrt(2 pi), that of the normal density",
            "math.sqrt(2 / math.pi)",
            {"root = math.sqrt(2 / math.pi)": "root = 1 / math.sqrt(2 * math.pi)",
             "slope = math.sqrt(2 / math.pi)": "slope = 1 / math.sqrt(2 * math.pi)"}),
    Mistake("GELU: half forgotten", "the factor 1 / 2 is left out", "x * (1 + tanh(...)) / 2",
            {PASSES: PASSES[:-4], SLOPE: "2 * " + SLOPE}),
    Mistake("GELU: 1 forgotten", "the 1 beside tanh is left out, so that the function is even", "x * (1 + tanh(...)) / 2",
            {PASSES: "x * np.tanh(gelu_argument(x)) / 2", "share = (1 + tanh) / 2": "share = tanh / 2"}),
    Mistake("exact GELU", "the exact form with erf is computed, not the tanh form of GPT-2", "x * (1 + tanh(...)) / 2",
            {PASSES: "x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2",
             SLOPE: "((1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2 + x * np.exp(-x**2 / 2) / math.sqrt(2 * math.pi))"}),
    Mistake("GELU by a sigmoid", "x * sigmoid(1.702 x) is computed, which is another approximation",
            "x * (1 + tanh(...)) / 2",
            {PASSES: "x / (1 + np.exp(-1.702 * x))",
             SLOPE: "(1 + 1.702 * x / (1 + np.exp(1.702 * x))) / (1 + np.exp(-1.702 * x))"}),
    Mistake("ReLU for GELU", "ReLU is computed", "x * (1 + tanh(...)) / 2", {PASSES: "np.maximum(x, 0)", SLOPE: "(x > 0)"}),
    Mistake("GELU: share taken for constant", "the gradient through the share is left out: GELU is x * share, and the share depends on x, too",
            "d_out * (share + x * slope of the share)", {SLOPE: "share"}),
    Mistake("GELU: way through the share alone", "d_out * share is left out: GELU is x * share, and x is a factor, too",
            "d_out * (share + x * slope of the share)", {SLOPE: "(x * share_slope)"}),
    Mistake("GELU: factor x left out", "the slope of the share is not multiplied by x",
            "d_out * (share + x * slope of the share)", {SLOPE: "(share + share_slope)"}),
    Mistake("GELU: d_out left out", "the upstream gradient is left out", "d_out * (share + x * slope of the share)",
            {"return d_out * (share": "return (share"}),
    Mistake("GELU: inner derivative left out", "the derivative of tanh's argument, the last factor of the chain rule, is left out",
            "(1 - tanh**2) / 2 * sqrt(2 / pi) * (1 + 3 * 0.044715 * x**2)", {" / 2 * gelu_argument_slope(x)": " / 2"}),
    Mistake("GELU: 3 of the cube left out", "the derivative of the cube lacks its factor 3", "1 + 3 * 0.044715 * x**2",
            {CUBE: CUBE.replace("3 * ", "")}),
    Mistake("GELU: tanh not squared", "the derivative of tanh is taken to be 1 - tanh", "1 - tanh**2",
            {"(1 - tanh**2)": "(1 - tanh)"}),
    Mistake("GELU: half of the slope forgotten", "the slope of the share lacks the factor 1 / 2", "(1 - tanh**2) / 2 * ...",
            {"(1 - tanh**2) / 2": "(1 - tanh**2)"}),
    Mistake("the last of equal tokens counts", "a row that was taken several times gets the gradient of the last token alone: d_table[ids] += d_out adds to a row only once",
            "np.add.at(d_table, ids, d_out)", {ROWS: "d_table[ids] += d_out"}),
    Mistake("the last of equal tokens of a sequence counts",
            "a row that was taken twice in one sequence gets the gradient of the last token alone",
            "np.add.at(d_table, ids, d_out)", {ROWS: "for row, d in zip(ids, d_out, strict=True):\n        d_table[row] += d"}),
    Mistake("the first of equal tokens counts", "a row that was taken several times gets the gradient of the first token alone",
            "np.add.at(d_table, ids, d_out)",
            {ROWS: "d_table[ids.ravel()[::-1]] = d_out.reshape(-1, d_out.shape[-1])[::-1]"}),
    Mistake("mean over equal tokens", "a row gets the mean over its tokens instead of their sum", "sum over the tokens of a row",
            {"return d_table": "return d_table / np.maximum(np.bincount(ids.ravel(), minlength=V), 1)[:, None]"}),
    Mistake("d_table: mean over the batch", "d_table is divided by the batch size", "a sum, not a mean",
            {"return d_table": "return d_table / len(ids)"}),
    Mistake("d_table: mean over the tokens", "d_table is divided by the number of tokens", "a sum, not a mean",
            {"return d_table": "return d_table / ids.size"}),
    Mistake("d_table of the last sequence alone", "d_table is computed from the last sequence alone", "sum over the batch",
            {ROWS: "np.add.at(d_table, ids[-1], d_out[-1])"}),
    Mistake("row 0 taken for padding", "row 0 gets no gradient, as if its token were padding", "every row learns from its tokens",
            {"return d_table": "d_table[0] = 0\n    return d_table"}),
    Mistake("rows counted from 1", "each gradient is added to the row after its token's", "row ids, counted from 0",
            {ROWS: "np.add.at(d_table, (ids + 1) % V, d_out)"}),
    Mistake("d_table transposed", "d_table is (D, V)", "(V, D), as the table", {"return d_table": "return d_table.T"}),
    Mistake("rows of the tokens that occur", "d_table has rows only for the tokens that occur", "V rows; 0 where a token does not occur",
            {"return d_table": "return d_table[np.unique(ids)]"}),
    Mistake("gradients not collected", "d_table is (B, T, D): the gradients of the tokens are not added to their rows",
            "np.add.at(d_table, ids, d_out)", {ROWS: "d_table = d_out"}),
]
# fmt: on
