"""Who sees whom, as bits, against dense masks."""

import functools
import itertools

import numba
import numpy as np
import pytest
from numba import types

from mha_numpy.kernels.problem import divide_up, problem_of
from mha_numpy.kernels.simd import lanes
from mha_numpy.kernels.tile import (
    BLOCK,
    count_tiles,
    keys_in_sight,
    load_cells,
    tile_of,
    tile_shape,
)
from mha_numpy.kernels.visible import (
    EVERYTHING,
    NONE_SET,
    SOMETHING,
    find_visible,
    first_bits,
)
from tests.kernels.drivers import DTYPES, by_dtype, matrix, number

pytestmark = pytest.mark.slow  # numba compiles single functions for these tests alone
words = types.Array(types.uint64, 1, "C")
FAR = 2**61  # a side of the window without bound


WRONG = 42


@functools.cache
def walk(dtype):
    """Compile what asks for every block of every tile, and fills an array of all cells.

    With 0 and 1 for hidden and visible, WRONG in a block of which too little was said.
    """
    cells = types.Array(number(dtype), 4, "A", readonly=True, aligned=False)
    mask = types.Array(types.boolean, 4, "A", readonly=True, aligned=False)
    sink = types.Array(number(dtype), 2, "A", readonly=True, aligned=False)
    offsets = types.Array(types.int64, 1, "A", readonly=True, aligned=False)
    problem = types.Tuple(
        (cells, cells, cells, mask, cells, cells, sink, offsets, types.intp, types.intp,
         number(dtype), number(dtype))
    )  # fmt: skip
    shown = types.Array(types.int8, 4, "C")

    @numba.njit(_nrt=False)
    def visit(shown, seen, rows, by_key, by_query, arguments):
        problem = problem_of(arguments)
        (B, H_kv, T_k, _), tiles = problem.k.shape, count_tiles(problem)
        heads, queries = tile_shape(problem)
        width = divide_up(heads * queries, lanes(problem.q)) * lanes(problem.q)
        for item in range(B * H_kv * tiles):
            b, kv_head, t = item // tiles // H_kv, item // tiles % H_kv, item % tiles
            tile = tile_of(problem, b, kv_head, t)
            first, last = keys_in_sight(problem, tile, 0, T_k)
            for j in range(0, T_k, BLOCK):
                n = min(BLOCK, T_k - j)
                if problem.bias.size > 0:
                    load_cells(by_key, by_query[:width], problem.bias, tile, j, n)
                visible = find_visible(seen, rows, problem, tile, by_query, j, width)
                if visible != SOMETHING:
                    for key in range(n):
                        seen[key] = first_bits(width) if visible == EVERYTHING else NONE_SET
                count = 0
                for key, column in np.ndindex(n, width):
                    count += np.int64(seen[key] >> np.uint64(column)) & 1
                is_whole_or_none = count == 0 or count == n * width
                for g, i, key in np.ndindex(tile.num_heads, tile.num_queries, n):
                    column = np.uint64(g * tile.num_queries + i)
                    bit = np.int64(seen[key] >> column) & 1
                    count -= bit
                    if bit and not first <= j + key < last:  # left out by keys_in_sight
                        bit = WRONG
                    if (visible == SOMETHING) == is_whole_or_none:
                        bit = WRONG
                    shown[b, tile.first_head + g, tile.first_query + i, j + key] = bit
                if count:  # columns beyond the tile's queries see nothing
                    shown[b, tile.first_head, tile.first_query, j] = WRONG

    scratch = matrix(dtype)
    return visit.compile(types.none(shown, words, words, scratch, scratch, problem))


def assert_visible(dtype, shape, *, mask=None, bias=None, left=FAR, right=FAR, q_offset=0):
    """Compare all blocks of all tiles with dense masks.

    Scratch begins as junk: what was not written must not be read.
    """
    B, H, H_kv, T_q, T_k = shape
    position = np.arange(T_q)[:, None] + np.broadcast_to(q_offset, B)[:, None, None, None]
    distance = np.arange(T_k) - position
    expected = np.broadcast_to((distance >= -left) & (distance <= right), (B, H, T_q, T_k))
    q, k = np.zeros((B, H, T_q, 1), dtype), np.zeros((B, H_kv, T_k, 1), dtype)
    nothing, no_mask = np.zeros((0,) * 4, dtype), np.zeros((0,) * 4, bool)
    if mask is not None:
        expected, no_mask = expected & mask, np.broadcast_to(mask, expected.shape)
    biases = nothing
    if bias is not None:
        expected, biases = expected & (bias != -np.inf), np.broadcast_to(bias, expected.shape)
    offsets = np.broadcast_to(np.asarray(q_offset, np.int64), B)
    no_sink = np.zeros((0, 0), dtype)
    arguments = q, k, k, no_mask, biases, nothing, no_sink, offsets, left, right, 1.0, 0.0
    seen, rows = (np.full(BLOCK, junk, np.uint64) for junk in (0xA5A5A5A5A5A5A5A5, 0x5A5A5A5A))
    by_key, by_query = (np.full((BLOCK, BLOCK), junk, dtype) for junk in (np.nan, -np.inf))
    shown = np.full(expected.shape, WRONG, np.int8)
    walk(dtype)(shown, seen, rows, by_key, by_query, arguments)
    np.testing.assert_array_equal(shown, expected)


SHAPES = [  # B, H, H_kv, T_q, T_k
    (1, 1, 1, 1, 1), (2, 2, 1, 1, 70), (1, 5, 1, 20, 65), (2, 6, 2, 13, 64), (1, 70, 1, 1, 130),
    (1, 3, 1, 63, 63), (2, 2, 2, 64, 64), (1, 2, 1, 65, 129), (1, 3, 3, 130, 200),
]  # fmt: skip
by_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
by_one_dtype = pytest.mark.parametrize("dtype", DTYPES[:1])  # the bits are the same for both


@by_shape
@by_one_dtype
def test_windows_and_offsets(rng, dtype, shape):
    B, T_q, T_k = shape[0], shape[3], shape[4]
    sides = [FAR, 0, 1, 30, 63, 64, 65, 100]
    for left, right in itertools.product(sides, sides):
        for q_offset in (0, T_k - T_q, -3, rng.integers(-T_q - 5, T_k + 5, size=B)):
            assert_visible(dtype, shape, left=left, right=right, q_offset=q_offset)
    for q_offset in (-(2**60), 2**60, -T_q - 64, T_k + 64):
        assert_visible(dtype, shape, left=3, right=0, q_offset=q_offset)
        assert_visible(dtype, shape, left=FAR, right=0, q_offset=q_offset)


def strides_of(shape):
    """Return functions of (rng, chance) that draw a mask: every broadcast, several orders."""
    B, H, _, T_q, T_k = shape
    full = (B, H, T_q, T_k)

    def draw(kept):
        return lambda rng, chance: rng.random(kept) < chance

    kept = [tuple(n if keep else 1 for n, keep in zip(full, keeps, strict=True))
            for keeps in itertools.product((True, False), repeat=4)]  # fmt: skip
    orders = [
        lambda rng, chance: np.asfortranarray(rng.random(full) < chance),
        lambda rng, chance: (rng.random(full) < chance)[::-1, ::-1, ::-1, ::-1],
        lambda rng, chance: (rng.random((B, H, T_q, 3 * T_k)) < chance)[..., 1::3],
        lambda rng, chance: (rng.random((B, T_q, H, T_k + 1)) < chance).swapaxes(1, 2)[..., 1:],
    ]
    return [*map(draw, kept), *orders]


@by_shape
@by_one_dtype
def test_masks_of_any_strides(rng, dtype, shape):
    for draw, chance in itertools.product(strides_of(shape), (0.0, 0.02, 0.5, 1.0)):
        assert_visible(dtype, shape, mask=draw(rng, chance))
        assert_visible(dtype, shape, mask=draw(rng, chance), left=9, right=40, q_offset=11)


@by_dtype
@by_shape
def test_a_bias_of_minus_infinity(rng, dtype, shape):
    for draw, chance in itertools.product(strides_of(shape), (0.0, 0.5, 1.0)):
        shown = draw(rng, chance)
        bias = np.where(shown, rng.normal(size=shown.shape), -np.inf).astype(dtype)
        bias[shown & (rng.random(shown.shape) < 0.1)] = rng.choice([np.nan, np.inf, 0])
        assert_visible(dtype, shape, bias=bias)
        mask = draw(rng, 0.8)
        assert_visible(dtype, shape, bias=bias, mask=mask, left=70, right=0, q_offset=5)
