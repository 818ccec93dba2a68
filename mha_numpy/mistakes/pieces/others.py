"""The pieces beside attention itself: positions, gates, layer norm, costs."""

from functools import partial

import numpy as np

from mha_numpy.mistakes import flawed
from mha_numpy.mistakes.pieces.piece import Inputs, Piece


def _draw_rope(rng: np.random.Generator, *, name: str) -> list[Inputs]:
    """Draw vectors at positions with gaps, and as many tokens as heads."""
    return [
        {name: rng.normal(size=shape), "positions": np.array(positions), "base": base}
        for shape, positions, base in (
            ((2, 3, 5, 8), [3, 4, 9, 1, 12], 100.0), ((2, 4, 4, 6), [3, 4, 5, 6], 50.0),
        )
    ]  # fmt: skip


def _draw_gated(rng: np.random.Generator) -> list[Inputs]:
    """Draw heads and the gradient of the gated ones: all sizes different, and B = H."""
    return [
        {"d_gated": rng.normal(size=shape), "heads": rng.normal(size=shape)}
        for shape in ((5, 3, 4, 2), (4, 4, 3, 2))
    ]


def _draw_layer_norm(rng: np.random.Generator) -> list[Inputs]:
    """Draw what layer norm's backward gets, with an eps that matters."""
    return [
        {"d_out": rng.normal(size=shape), "x": 1 + rng.normal(size=shape),
         "gain": rng.normal(size=shape[-1]), "eps": eps}
        for shape, eps in (((2, 3, 5), 0.1), ((3, 4, 4), 0.5))
    ]  # fmt: skip


def _draw_costs(_: np.random.Generator) -> list[Inputs]:
    """Return sizes with H*d other than D, and with H*d = D."""
    names = ("B", "T", "D", "H", "H_kv", "d", "itemsize")
    sizes = ((5, 7, 20, 9, 3, 6, 4), (2, 10, 32, 8, 4, 4, 2))
    return [dict(zip(names, given, strict=True)) for given in sizes]


OTHERS = [
    Piece("rope", flawed.rope, partial(_draw_rope, name="x"), "out"),
    Piece("rope_backward", flawed.rope_backward, partial(_draw_rope, name="d_out"), "d_x"),
    Piece("d_head_gate", flawed.d_head_gate, _draw_gated, "d_gate"),
    Piece("head_importance", flawed.head_importance, _draw_gated, "importance"),
    Piece("layer_norm_backward", flawed.layer_norm_backward, _draw_layer_norm, ""),
    Piece("cost_table", flawed.cost_table, _draw_costs, ""),
]
