"""Attention that remembers: a decode step with kept keys and values, and attention in blocks."""

import numpy as np

from mha_numpy.teach.diagnosis.draws import (
    draw_params,
    large_scores,
    opposite_params,
    opposite_tokens,
)
from mha_numpy.teach.diagnosis.families.attention import MEANS
from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Inputs, Law, Piece


def _draw_decode(rng: np.random.Generator) -> list[Inputs]:
    """Draw shared heads, a past of nothing, and large scores where all but D are equal."""
    probes = []
    for B, T, D, d, H, H_kv in ((2, 5, 10, 3, 4, 2), (2, 0, 12, 3, 6, 2)):
        past = B, H_kv, T, d
        x, k, v = rng.normal(size=(B, 1, D)), rng.normal(size=past), rng.normal(size=past)
        params = draw_params(rng, D, H * d, kv_width=H_kv * d)
        probes.append({"x": x, "k_past": k, "v_past": v, "params": params, "num_heads": H})
    x, params = opposite_tokens(rng, (4, 1, 16)), opposite_params(draw_params(rng, 16, 16))
    k, v = rng.integers(-40, -30, (4, 4, 4, 4)).astype(float), rng.normal(size=(4, 4, 4, 4))
    return [*probes, {"x": x, "k_past": k, "v_past": v, "params": params, "num_heads": 4}]


def _draw_blocks(rng: np.random.Generator) -> list[Inputs]:
    """Draw a last block that is short, a square block, a single one, and large scores."""
    probes = []
    for T_q, T_k, d_k, d_v, block in ((5, 7, 4, 3, 3), (5, 10, 5, 5, 5), (3, 4, 5, 2, 6)):
        shapes = (T_q, d_k), (T_k, d_k), (T_k, d_v)
        q, k, v = (rng.normal(size=shape) for shape in shapes)
        probes.append({"q": q, "k": k, "v": v, "block": block})
    q, k = large_scores(rng, (5, 4), (7, 4))
    return [*probes, {"q": q, "k": k, "v": rng.normal(size=(7, 3)), "block": 2}]


PIECES = [
    Piece("online_attention", _draw_blocks, result="heads", laws=[MEANS]),
    Piece(
        "decode_step",
        _draw_decode,
        laws=[
            Law(
                "the past keys and values come first, unchanged",
                lambda inputs, arrays: np.concatenate(
                    [
                        arrays["k"][:, :, :-1] - inputs["k_past"],
                        arrays["v"][:, :, :-1] - inputs["v_past"],
                    ]
                ),
            )
        ],
    ),
]

# fmt: off
MISTAKES = [
    Mistake("past forgotten", "the new token sees itself alone: the past keys and values are not used",
            "np.concatenate([k_past, k_new], axis=2)", {"np.concatenate([past, new], axis=2)": "new"}),
    Mistake("new key before the past", "the new key and value are put before the past instead of behind it",
            "np.concatenate([k_past, k_new], axis=2)", {"[past, new]": "[new, past]"}),
    Mistake("last of the past overwritten", "the new key and value stand in the place of the last ones",
            "np.concatenate([k_past, k_new], axis=2)", {"[past, new]": "[past[:, :, :-1], new]"}),
    Mistake("first of the past dropped", "the first key and value of the past are dropped",
            "np.concatenate([k_past, k_new], axis=2)", {"[past, new]": "[past[:, :, 1:], new]"}),
    Mistake("own key not seen", "the new token attends to the past alone, not to itself", "append first, then attend",
            {"attend(q, k, v).heads)": "attend(q, k_past, v_past).heads)"}),
    Mistake("decoded as position 0", "the new token is masked as if it were the first: it sees the first key alone",
            "it stands at position T and sees all T + 1 keys",
            {"attend(q, k, v).heads)": "attend(q, k[:, :, :1], v[:, :, :1]).heads)"}),
    Mistake("new value not kept", "the v that is returned lacks the new value",
            "return v with the new value behind the past", {"Decoded(out, k, v)": "Decoded(out, k, v_past)"}),
    Mistake("nothing new is kept", "the k and v that are returned lack the new token",
            "return k and v with the new token behind the past",
            {"Decoded(out, k, v)": "Decoded(out, k_past, v_past)"}),
    Mistake("old sum not rescaled", "the running sum is not rescaled when the maximum rises",
            "total * np.exp(before - largest)", {"shrink * total": "total"}),
    Mistake("old mixture not rescaled", "the running mixture is not rescaled when the maximum rises",
            "mixture * np.exp(before - largest)", {"shrink * mixture": "mixture"}),
    Mistake("rescaled the wrong way", "sum and mixture are multiplied by e^(new - old maximum), not by e^(old - new)",
            "np.exp(before - largest)",
            {"np.exp(before - largest)": "np.exp(largest - before if start else before - largest)"}),
    Mistake("block by its own maximum",
            "a block's powers use its own maximum, while the sum refers to the running maximum",
            "np.exp(scores - largest), largest = np.maximum(before, of_block)",
            {"np.exp(of_block - largest)": "np.exp(of_block - of_block.max(axis=-1, keepdims=True))"}),
    Mistake("maximum of the block alone",
            "the maximum is that of the block alone, so that e^(old - new) overflows where a block lies far below",
            "np.maximum(before, of_block)",
            {"np.maximum(largest, of_block.max(axis=-1, keepdims=True))": "of_block.max(axis=-1, keepdims=True)"}),
    Mistake("maximum begins with 0", "the running maximum begins with 0, so that rows of very low scores become 0/0",
            "begin with -np.inf", {"np.full((T_q, 1), -np.inf)": "np.zeros((T_q, 1))"}),
    Mistake("sum begins with 1", "the running sum begins with 1, as if there were one more key of score 0",
            "total = 0, largest = -np.inf",
            {"np.full((T_q, 1), -np.inf)": "np.zeros((T_q, 1))", "total = np.zeros": "total = np.ones"}),
    Mistake("last short block dropped", "the keys behind the last whole block are dropped", "range(0, T_k, block)",
            {"range(0, T_k, block)": "range(0, T_k - T_k % block, block)"}),
    Mistake("normalised in each block", "each block is normalised by itself, and the blocks are added",
            "normalise once, at the end",
            {"np.exp(of_block - largest)": "softmax(of_block, None)", "np.exp(before - largest)": "1.0",
             "return mixture / total": "return mixture"}),
    Mistake("blocks averaged", "each block is normalised by itself, and the blocks are averaged",
            "normalise once, at the end",
            {"np.exp(of_block - largest)": "softmax(of_block, None)", "np.exp(before - largest)": "1.0"}),
    Mistake("not normalised at the end", "the mixture is not divided by the sum", "mixture / total",
            {"return mixture / total": "return mixture"}),
]
# fmt: on
