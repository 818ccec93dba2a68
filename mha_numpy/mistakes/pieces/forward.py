"""The pieces of attention's forward."""

from functools import partial

import numpy as np

from mha_numpy.mistakes import flawed
from mha_numpy.mistakes.pieces.draw import draw_heads, large_scores, random_mask
from mha_numpy.mistakes.pieces.piece import Inputs, Piece


def _draw_masks(rng: np.random.Generator) -> list[Inputs]:
    """Return lengths with and without padding, queries that begin later, and some by chance.

    A mask has no numbers to tell mistakes apart by: it takes more of them.
    """
    by_chance = []
    for _ in range(8):
        T_q = int(rng.integers(3, 8))
        T_k = int(rng.integers(T_q, 10))
        lengths, (offset, left) = rng.integers(1, T_k + 1, 3), rng.integers(0, 5, 2).tolist()
        sizes = {"T_q": T_q, "T_k": T_k, "q_offset": offset, "left": left}
        by_chance.append({"lengths": lengths, **sizes})
    return by_chance + [
        {"lengths": np.array(n), "T_q": T_q, "T_k": T_k, "q_offset": offset, "left": left}
        for n, T_q, T_k, offset, left in (
            ([4, 6, 2], 6, 6, 0, 9), ([5, 7], 4, 7, 2, 1), ([3, 8], 3, 8, 5, 3),
        )
    ]  # fmt: skip


def _draw_q_and_k(rng: np.random.Generator) -> list[Inputs]:
    """Draw queries and keys: all sizes different, and a square."""
    return [
        {"q": rng.normal(size=(B, H, T_q, d_k)), "k": rng.normal(size=(B, H, T_k, d_k))}
        for B, H, T_q, T_k, d_k in ((2, 3, 5, 7, 4), (2, 4, 3, 3, 3))
    ]


def _draw_scores(rng: np.random.Generator) -> list[Inputs]:
    """Draw scores of size 1, without a mask and with one, of rank 2; and large ones."""
    shape, square = (2, 3, 4, 6), (2, 3, 5, 5)
    large, mask = 400 * rng.normal(size=square), random_mask(rng, square)
    large[0, 0, 1] -= 5000.0  # a row far below the others, and a row far below what is hidden
    large[1, 2, 3, 4], mask[1, 2, 3, 4] = 3000.0, False
    return [
        {"scores": rng.normal(size=shape), "mask": None},
        {"scores": rng.normal(size=shape), "mask": random_mask(rng, shape)},
        {"scores": large, "mask": mask},
        {"scores": rng.normal(size=(3, 3)), "mask": None},
    ]


def _draw_heads(
    rng: np.random.Generator, *, rect: tuple[int, int, int], square: tuple[int, int, int]
) -> list[Inputs]:
    """Draw queries, keys and values, and some whose scores are large; B, H, H_kv are given."""
    B, H, H_kv = rect
    q, k = large_scores(rng, (B, H, 4, 4), (B, H_kv, 6, 4))
    large = {"q": q, "k": k, "v": rng.normal(size=(B, H_kv, 6, 5))}
    return [*draw_heads(rng, rect=rect, square=square), large]


def _draw_one_head(rng: np.random.Generator) -> list[Inputs]:
    """Draw queries, keys and values of rank 2."""
    probes = _draw_heads(rng, rect=(1, 1, 1), square=(1, 1, 1))
    return [{name: array[0, 0] for name, array in given.items()} for given in probes]


def _draw_masked(rng: np.random.Generator) -> list[Inputs]:
    """Draw masks beside queries, keys and values, and a softcap for the square."""
    probes = []
    drawn = _draw_heads(rng, rect=(2, 6, 3), square=(6, 6, 2))
    for given, softcap in zip(drawn, (None, 1.5, None), strict=True):
        B, T_q, T_k = len(given["q"]), given["q"].shape[2], given["k"].shape[2]
        mask = random_mask(rng, (B, 1, T_q, T_k))
        probes.append({**given, "mask": mask, "softcap": softcap})
    # in row 0 the first three keys score highest: a maximum that lies far above what is visible
    probes[2]["mask"][1, 0, 0] = [False, False, False, True, True, False]
    return probes


def _draw_blocks(rng: np.random.Generator) -> list[Inputs]:
    """Draw a last block that is short, a square block, and large scores."""
    probes = []
    for T_q, T_k, d_k, d_v, block in ((5, 7, 4, 3, 3), (5, 10, 5, 5, 5)):
        shapes = (T_q, d_k), (T_k, d_k), (T_k, d_v)
        q, k, v = (rng.normal(size=shape) for shape in shapes)
        probes.append({"q": q, "k": k, "v": v, "block": block})
    q, k = large_scores(rng, (5, 4), (7, 4))
    return [*probes, {"q": q, "k": k, "v": rng.normal(size=(7, 3)), "block": 2}]


FORWARD = [
    Piece(
        "split_heads", flawed.split_heads,
        lambda rng: [
            {"x": rng.normal(size=shape), "num_heads": H}
            for shape, H in (((2, 5, 12), 3), ((3, 4, 10), 5))
        ], "heads",
    ),
    Piece(
        "merge_heads", flawed.merge_heads,
        lambda rng: [{"heads": rng.normal(size=shape)} for shape in ((2, 3, 5, 4), (3, 5, 4, 2))],
        "merged",
    ),
    Piece("scores", flawed.scores, _draw_q_and_k, "scores"),
    Piece("softmax", flawed.softmax, _draw_scores, "weights"),
    Piece("softmax_with_lse", flawed.softmax_with_lse, _draw_scores, ""),
    Piece("make_mask", flawed.make_mask, _draw_masks, "mask"),
    Piece("attention", flawed.attention, _draw_one_head, "heads"),
    Piece("masked_attention", flawed.masked_attention, _draw_masked, "heads"),
    Piece(
        "grouped_attention", flawed.grouped_attention,
        partial(_draw_heads, rect=(2, 6, 3), square=(3, 6, 2)), "heads",
    ),
    Piece("online_attention", flawed.online_attention, _draw_blocks, "heads"),
]  # fmt: skip
