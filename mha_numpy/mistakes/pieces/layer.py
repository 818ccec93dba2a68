"""The pieces of multi-head attention, its backward, its decode step, and its params elsewhere."""

import numpy as np

from mha_numpy.mistakes import flawed
from mha_numpy.mistakes.pieces.draw import (
    causal_mask,
    draw_params,
    opposite_params,
    opposite_tokens,
)
from mha_numpy.mistakes.pieces.piece import Inputs, Piece


def _draw_self(rng: np.random.Generator, *, value_dim: int = 6) -> list[Inputs]:
    """Draw causal self-attention: all sizes different, all but D equal, and large scores."""
    probes = []
    for B, T, D, H, d_k, d_v in ((2, 5, 10, 3, 4, value_dim), (3, 3, 9, 3, 3, 3)):
        x, params = rng.normal(size=(B, T, D)), draw_params(rng, D, H * d_k, v_width=H * d_v)
        probes.append({"x": x, "params": params, "num_heads": H, "mask": causal_mask(T, T)})
    x, params = opposite_tokens(rng, (2, 4, 8)), opposite_params(draw_params(rng, 8, 8))
    return [*probes, {"x": x, "params": params, "num_heads": 2, "mask": causal_mask(4, 4)}]


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


def _draw_branches(rng: np.random.Generator) -> list[Inputs]:
    """Draw gradients of q, k and v: H*d other than D, and all sizes but D equal."""
    probes = []
    for (B, H, T, d), D in (((2, 3, 5, 4), 10), ((3, 3, 3, 3), 9)):
        d_q, d_k, d_v = rng.normal(size=(3, B, H, T, d))
        params = draw_params(rng, D, H * d)
        probes.append({"d_q": d_q, "d_k": d_k, "d_v": d_v, "params": params})
    return probes


def _draw_backward(rng: np.random.Generator) -> list[Inputs]:
    """Draw what the layer's backward gets; in the second, row 0 sees nothing."""
    probes = []
    for first, given in enumerate(_draw_self(rng, value_dim=4)[:2]):
        x, params, num_heads, _ = given.values()
        mask = causal_mask(x.shape[1], x.shape[1], first=first)
        out, saved = flawed.run_layer(x, x, params, num_heads, mask)
        probes.append({"d_out": rng.normal(size=out.shape), "params": params, "saved": saved})
    return probes


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


def _draw_gpt2(rng: np.random.Generator) -> list[Inputs]:
    """Draw GPT-2's params for D = 6."""
    shapes = {"c_attn_w": (6, 18), "c_attn_b": (18,), "c_proj_w": (6, 6), "c_proj_b": (6,)}
    return [{name: rng.normal(size=shape) for name, shape in shapes.items()}]


LAYER = [
    Piece("multi_head", flawed.multi_head, _draw_self, "out"),
    Piece("cross_attention", flawed.cross_attention, _draw_cross, "out"),
    Piece("input_gradient", flawed.input_gradient, _draw_branches, "d_x"),
    Piece("multi_head_backward", flawed.multi_head_backward, _draw_backward, ""),
    Piece("decode_step", flawed.decode_step, _draw_decode, ""),
    Piece("from_gpt2", flawed.from_gpt2, _draw_gpt2, ""),
    Piece("to_gpt2", flawed.to_gpt2, lambda rng: [{"params": draw_params(rng, 6, 6)}], ""),
]
