"""The pieces of attention's backward."""

from functools import partial

import numpy as np

from mha_numpy.mistakes import flawed
from mha_numpy.mistakes.pieces.draw import causal_mask, draw_heads, large_scores, random_mask
from mha_numpy.mistakes.pieces.piece import Inputs, Piece


def _draw_d_scores(rng: np.random.Generator) -> list[Inputs]:
    """Draw what the scores' backward gets: all sizes different, and a square."""
    return [
        {"d_scores": rng.normal(size=(B, H, T_q, T_k)), "q": rng.normal(size=(B, H, T_q, d_k)),
         "k": rng.normal(size=(B, H, T_k, d_k))}
        for B, H, T_q, T_k, d_k in ((2, 3, 5, 7, 4), (3, 2, 5, 5, 5))
    ]  # fmt: skip


def _draw_d_weights(rng: np.random.Generator) -> list[Inputs]:
    """Draw weights as softmax makes them: without a mask, with one, of rank 2."""
    probes = []
    for shape, is_masked in (((2, 3, 4, 6), False), ((3, 2, 5, 5), True), ((3, 4), False)):
        mask = random_mask(rng, shape) if is_masked else None
        weights = flawed.softmax(rng.normal(size=shape), mask)
        probes.append({"d_weights": rng.normal(size=shape), "weights": weights})
    return probes


def _draw_with_weights(
    rng: np.random.Generator, *, rect: tuple[int, int, int], square: tuple[int, int, int]
) -> list[Inputs]:
    """Draw what attention's backward gets; in the square, row 0 sees nothing."""
    probes = []
    for first, given in enumerate(draw_heads(rng, rect=rect, square=square)):
        mask = causal_mask(given["q"].shape[2], given["k"].shape[2], first=first)
        weights, heads = flawed.attend(**given, mask=mask)
        probes.append({"d_heads": rng.normal(size=heads.shape), **given, "weights": weights})
    return probes


def _draw_with_lse(rng: np.random.Generator) -> list[Inputs]:
    """Draw what the backward without weights gets; in the square, row 0 sees nothing."""
    q, k = large_scores(rng, (2, 2, 3, 4), (2, 2, 6, 4))
    large = {"q": q, "k": k, "v": rng.normal(size=(2, 2, 6, 3))}
    masks = causal_mask(5, 7), causal_mask(5, 5, first=1), np.ones((3, 6), dtype=bool)
    masks[2][2, 0] = False  # where the score is far above what the row sees
    large["q"][..., 2, 0], large["k"][..., 0, 0] = 30, 100
    probes = []
    drawn = [*draw_heads(rng, rect=(2, 3, 3), square=(3, 2, 2)), large]
    for given, mask in zip(drawn, masks, strict=True):
        heads = flawed.attend(**given, mask=mask).heads
        lse = flawed.softmax_with_lse(flawed.scores(given["q"], given["k"]), mask).lse
        d_heads = rng.normal(size=heads.shape)
        probes.append({"d_heads": d_heads, **given, "heads": heads, "lse": lse, "mask": mask})
    return probes


def _draw_linear(rng: np.random.Generator) -> list[Inputs]:
    """Draw a rectangular map and a square one."""
    shapes = ((3, 4, 5, 6), (2, 4, 5, 5))
    return [
        {"d_out": rng.normal(size=(B, T, m)), "x": rng.normal(size=(B, T, n)),
         "w": rng.normal(size=(n, m))}
        for B, T, n, m in shapes
    ]  # fmt: skip


def _draw_groups(rng: np.random.Generator) -> list[Inputs]:
    """Draw gradients of query heads: 3 groups of 2, and 2 of 3."""
    return [
        {"d_per_query_head": rng.normal(size=shape), "num_kv_heads": H_kv}
        for shape, H_kv in (((2, 6, 5, 4), 3), ((3, 6, 5, 2), 2))
    ]


def _draw_dropout(rng: np.random.Generator) -> list[Inputs]:
    """Draw which weights were kept, a few and most."""
    return [
        {"d_dropped": rng.normal(size=shape), "keep": rng.random(shape) >= p, "p": p}
        for shape, p in (((2, 3, 4, 5), 0.25), ((3, 2, 5, 4), 0.6))
    ]


BACKWARD = [
    Piece("scores_backward", flawed.scores_backward, _draw_d_scores, ""),
    Piece("softmax_backward", flawed.softmax_backward, _draw_d_weights, "d_scores"),
    Piece("dropout_backward", flawed.dropout_backward, _draw_dropout, "d_weights"),
    Piece(
        "attention_backward", flawed.attention_backward,
        partial(_draw_with_weights, rect=(3, 2, 2), square=(2, 3, 3)), "",
    ),
    Piece("linear_backward", flawed.linear_backward, _draw_linear, ""),
    Piece("sum_over_group", flawed.sum_over_group, _draw_groups, "d_shared"),
    Piece(
        "grouped_backward", flawed.grouped_backward,
        partial(_draw_with_weights, rect=(2, 6, 3), square=(3, 6, 2)), "",
    ),
    Piece("backward_from_lse", flawed.backward_from_lse, _draw_with_lse, ""),
]  # fmt: skip
