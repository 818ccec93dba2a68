"""Multi-head attention, to oneself and to a source."""

from functools import partial

import numpy as np

from mha_numpy.teach.diagnosis.draws import draw_params, draw_self, opposite_params, opposite_tokens
from mha_numpy.teach.diagnosis.mistake import Mistake, for_each
from mha_numpy.teach.diagnosis.piece import Inputs, Piece, Reaction, moved, reversed_tokens


def _draw_cross(rng: np.random.Generator) -> list[Inputs]:
    """Draw cross-attention: all sizes different, all but D equal, and large scores."""
    probes = []
    for B, T_y, T_x, D, kdim, H, d_k, d_v in ((2, 5, 7, 11, 10, 3, 4, 6), (3, 3, 3, 9, 9, 3, 3, 3)):
        y, x = rng.normal(size=(B, T_y, D)), rng.normal(size=(B, T_x, kdim))
        params = draw_params(rng, D, H * d_k, kdim=kdim, v_width=H * d_v)
        probes.append({"y": y, "x": x, "params": params, "num_heads": H})
    y, x = opposite_tokens(rng, (2, 4, 8)), 2 * np.abs(opposite_tokens(rng, (2, 5, 6)))
    params = opposite_params(draw_params(rng, 8, 8, kdim=6))
    return [*probes, {"y": y, "x": x, "params": params, "num_heads": 2}]


PIECES = [
    Piece(
        "multi_head",
        partial(draw_self, value_dim=6),
        result="out",
        reactions=[
            Reaction(
                "a change of the last token changes no output before it, as the mask is causal",
                moved("x", np.s_[:, -1]),
                lambda _, arrays: arrays[""][:, :-1],
            )
        ],
    ),
    Piece(
        "cross_attention",
        _draw_cross,
        result="out",
        reactions=[
            Reaction(
                "the order of the source's tokens does not matter",
                reversed_tokens("x"),
                lambda _, arrays: arrays[""],
            )
        ],
    ),
]

# fmt: off
MISTAKES = [
    Mistake("all biases left out", "no bias is added anywhere", "x @ w + b, in all four projections",
            {f" + params.b_{letter}": "" for letter in "qkvo"}),
    Mistake("scale 1/sqrt(D) of the input",
            "the scores are divided by the root of D, the width of x, not of one head's width",
            "d_k is the width of one head: q.shape[-1] after the split",
            {"weights, heads = attend(q, k, v, mask)": "q = q * np.sqrt(q.shape[-1] / y.shape[-1])\n    weights, heads = attend(q, k, v, mask)"}),
    *for_each([*"qkvo"], "b_? left out", "the bias b_? is left out", "x @ w_? + b_?",
            {" + params.b_?": "", "b_?=b_?": "b_?=np.zeros_like(b_?)", ", params.b_?\n": ", np.zeros_like(params.b_?)\n"}),
    *for_each([*"qkvo"], "w_? transposed", "w_? is used transposed", "x @ w_?, with w_? (inputs, outputs)",
            {"x @ params.w_? +": "x @ params.w_?.T +", "w_?=w_?": "w_?=w_?.T", "= params.w_?, ": "= params.w_?.T, "}),
    Mistake("keys by w_q", "the keys are projected by w_q and b_q", "k = x @ w_k + b_k",
            {"x @ params.w_k + params.b_k": "x @ params.w_q + params.b_q"}),
    Mistake("values by w_k", "the values are projected by w_k and b_k", "v = x @ w_v + b_v",
            {"x @ params.w_v + params.b_v": "x @ params.w_k + params.b_k"}),
    Mistake("source ignored", "keys and values come from the queries' input: the source is not used",
            "project k and v from the source",
            {"q = split_heads(project_q(y,": "x = y\n    q = split_heads(project_q(y,"}),
    Mistake("source alone", "queries come from the source as well: their own input is not used",
            "project q from the first input",
            {"q = split_heads(project_q(y,": "y = x\n    q = split_heads(project_q(y,"}),
    Mistake("queries from the source", "the two inputs have changed places", "queries come from the first input",
            {"q = split_heads(project_q(y,": "y, x = x, y\n    q = split_heads(project_q(y,"}),
    Mistake("keys from the queries' input", "the keys come from the queries' input", "project k from the source",
            {"k = split_heads(project_k(x,": "k = split_heads(project_k(y,"}),
    Mistake("values from the queries' input", "the values come from the queries' input", "project v from the source",
            {"v = split_heads(project_v(x,": "v = split_heads(project_v(y,"}),
    Mistake("output projection left out", "the output projection is left out: merged is returned",
            "merged @ w_o + b_o", {"x @ params.w_o + params.b_o": "x"}),
]
# fmt: on
