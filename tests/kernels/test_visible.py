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
    NOTHING,
    SOMETHING,
    add_product,
    find_visible,
    first_bits,
    hide,
    mask_bits,
    transpose_bits,
)
from tests.kernels.drivers import DTYPES, by_dtype, count_lanes, driver, matrix, number, random_tile

pytestmark = pytest.mark.slow  # numba compiles single functions for these tests alone
words = types.Array(types.uint64, 1, "C")
FAR = 2**61  # a side of the window without bound


def to_words(bits):
    """Return (..., 64) bools as words, the first one in the lowest bit."""
    return np.packbits(bits, axis=-1, bitorder="little").view(np.uint64)[..., 0]


def to_bits(found):
    """Return words as (..., 64) bools."""
    return np.unpackbits(found[..., None].view(np.uint8), axis=-1, bitorder="little") == 1


@driver(words)
def apply_transpose(given):
    transpose_bits(given)


@driver(words)
def fill_with_first_bits(out):
    for n in range(len(out)):
        out[n] = first_bits(n)


@driver(words, types.Array(types.boolean, 1, "A", readonly=True), types.intp, types.intp)
def pack(out, mask, j, n):
    out[0] = mask_bits(mask, j, n)


@driver(matrix, words, types.intp, number)
def apply_hide(cells, seen, visible, value):
    hide(cells, seen, visible, value)


class TestBits:
    def test_transpose(self, rng):
        single = np.zeros((25, 64, 64), bool)
        for one, (i, j) in zip(
            single, itertools.product((0, 1, 31, 32, 63), repeat=2), strict=True
        ):
            one[i, j] = True
        drawn = [rng.random((64, 64)) < chance for chance in (0.0, 0.02, 0.5, 1.0)]
        for bits in (*single, *drawn):
            given = to_words(bits)
            apply_transpose(None)(given)
            np.testing.assert_array_equal(to_bits(given), bits.T)

    def test_first_bits(self):
        out = np.zeros(BLOCK + 1, np.uint64)
        fill_with_first_bits(None)(out)
        assert [int(word) for word in out] == [2**n - 1 for n in range(BLOCK + 1)]

    @pytest.mark.parametrize("step", [1, 2, -1, 0])
    def test_of_a_row_of_a_mask(self, rng, step):
        given = rng.random(400) < 0.5
        row = given[::step] if step else np.broadcast_to(given[1:2], 200)
        out = np.zeros(1, np.uint64)
        for n, j in itertools.product((1, 5, 63, 64), (0, 1, 64, 130)):
            pack(None)(out, row, j, n)
            assert to_bits(out)[0, :n].tolist() == row[j : j + n].tolist()
            assert not to_bits(out)[0, n:].any()

    @by_dtype
    def test_hide(self, rng, dtype):
        for value in (-np.inf, 0.0):
            for width in range(count_lanes(dtype), BLOCK + 1, count_lanes(dtype)):
                cells = random_tile(rng, dtype, 33, width)
                bits = rng.random((BLOCK, BLOCK)) < 0.5
                cells[~bits[:33, :width]] = np.nan
                expected = np.where(bits[:33, :width], cells, value)
                apply_hide(dtype)(cells, to_words(bits), SOMETHING, value)
                np.testing.assert_array_equal(cells, expected)
                apply_hide(dtype)(cells, to_words(~bits), EVERYTHING, 42.0)
                np.testing.assert_array_equal(cells, expected)


@driver(matrix, matrix, matrix, words, types.intp, types.boolean)
def apply_add_product(target, cells, b, seen, visible, to_queries):
    add_product(target, cells, b, seen, visible, to_queries)


class TestAddProduct:
    @by_dtype
    @pytest.mark.parametrize("to_queries", [False, True])
    @pytest.mark.parametrize("odd", [0.5, np.nan, np.inf, -np.inf])
    def test_hidden_cells_add_nothing(self, rng, dtype, to_queries, odd):
        L = count_lanes(dtype)
        for keys, queries in itertools.product((1, 37, 64), repeat=2):
            shown = rng.random((BLOCK, BLOCK)) < 0.6
            inside = shown[:keys, :queries]
            cells = np.where(inside, random_tile(rng, dtype, keys, queries), 0).astype(dtype)
            a, shown_a = (cells.T, inside.T) if to_queries else (cells, inside)
            b = random_tile(rng, dtype, a.shape[1], 3 * L)
            b[a.shape[1] // 2] = odd  # all of a row, as of padding
            b[0, 1] = odd
            target = random_tile(rng, dtype, a.shape[0], 3 * L)
            with np.errstate(invalid="ignore"):
                products = a[:, :, None].astype(float) * b  # (rows, inner, columns)
                expected = target + np.where(shown_a[:, :, None], products, 0).sum(axis=1)
            apply_add_product(dtype)(target, cells, b, to_words(shown), SOMETHING, to_queries)
            np.testing.assert_allclose(target, expected, rtol=0, atol=200 * np.finfo(dtype).eps)

    @by_dtype
    @pytest.mark.parametrize("to_queries", [False, True])
    def test_where_everything_is_visible_all_is_multiplied(self, rng, dtype, to_queries):
        L = count_lanes(dtype)
        cells, b = random_tile(rng, dtype, 64, 64), random_tile(rng, dtype, 64, L)
        b[7] = np.nan
        target = np.zeros((64, L), dtype)
        nobody = np.zeros(64, np.uint64)
        apply_add_product(dtype)(target, cells, b, nobody, EVERYTHING, to_queries)
        assert np.isnan(target).all()


# --- find_visible ---------------------------------------------------------------------------------


@functools.cache
def walk(dtype):
    """Compile what asks for every block of every tile; see `found_by`."""
    cells = types.Array(number(dtype), 4, "A", readonly=True, aligned=False)
    mask = types.Array(types.boolean, 4, "A", readonly=True, aligned=False)
    offsets = types.Array(types.int64, 1, "A", readonly=True, aligned=False)
    problem = types.Tuple(
        (cells, cells, cells, mask, cells, cells, offsets, types.intp, types.intp,
         number(dtype), number(dtype))
    )  # fmt: skip
    answers = types.Array(types.int64, 2, "C")
    seen = types.Array(types.uint64, 3, "C")
    scratch = matrix(dtype)

    @numba.njit(_nrt=False)
    def visit(answers, seen, rows, by_key, by_query, arguments):
        problem = problem_of(arguments)
        (B, H_kv, T_k, _), tiles = problem.k.shape, count_tiles(problem)
        blocks = (T_k + BLOCK - 1) // BLOCK
        heads, queries = tile_shape(problem)
        width = divide_up(heads * queries, lanes(problem.q)) * lanes(problem.q)
        for item in range(B * H_kv * tiles):
            b, kv_head, t = item // tiles // H_kv, item // tiles % H_kv, item % tiles
            tile = tile_of(problem, b, kv_head, t)
            first, last = keys_in_sight(problem, tile, 0, T_k)
            for block in range(blocks):
                j = block * BLOCK
                n = min(BLOCK, T_k - j)
                if problem.bias.size > 0:
                    load_cells(by_key, by_query[:width], problem.bias, tile, j, n)
                at = item * blocks + block
                answers[at, 0], answers[at, 1], answers[at, 2] = b, tile.first_head, tile.num_heads
                answers[at, 3], answers[at, 4] = tile.first_query, tile.num_queries
                answers[at, 5], answers[at, 10] = j, width
                answers[at, 6], answers[at, 7], answers[at, 8] = n, first, last
                answers[at, 9] = find_visible(seen[at, 0], rows, problem, tile, by_query, j, width)

    return visit.compile(types.none(answers, seen, words, scratch, scratch, problem))


def found_by(dtype, shape, *, mask=None, bias=None, left=FAR, right=FAR, q_offset=0):
    """Return what find_visible says of each block of each tile, and the seen cells.

    Scratch begins as junk: what was not written must not be read.
    """
    B, H, H_kv, T_q, T_k = shape
    q, k = np.zeros((B, H, T_q, 1), dtype), np.zeros((B, H_kv, T_k, 1), dtype)
    nothing = np.zeros((0,) * 4, dtype)
    offsets = np.broadcast_to(np.asarray(q_offset, np.int64), B)

    def stretch(cells):
        return np.broadcast_to(cells, (B, H, T_q, T_k))

    arguments = (
        q, k, k, np.zeros((0,) * 4, bool) if mask is None else stretch(mask),
        nothing if bias is None else stretch(bias), nothing,
        offsets, left, right, 1.0, 0.0,
    )  # fmt: skip
    most = B * H * T_q * -(-T_k // BLOCK)  # were each query a tile
    answers = np.full((most, 11), -1)
    seen = np.full((most, 1, BLOCK), 0xA5A5A5A5A5A5A5A5, np.uint64)
    rows = np.full(BLOCK, 0x5A5A5A5A5A5A5A5A, np.uint64)
    by_key, by_query = (np.full((BLOCK, BLOCK), junk, dtype) for junk in (np.nan, -np.inf))
    walk(dtype)(answers, seen, rows, by_key, by_query, arguments)
    count = (answers[:, 0] >= 0).sum()
    return answers[:count], seen[:count, 0]


def dense(shape, *, mask=None, bias=None, left=FAR, right=FAR, q_offset=0):
    """Return who sees whom as (B, H, T_q, T_k) bools."""
    B, H, H_kv, T_q, T_k = shape
    position = np.arange(T_q)[:, None] + np.broadcast_to(q_offset, B)[:, None, None, None]
    distance = np.arange(T_k) - position
    visible = np.broadcast_to((distance >= -left) & (distance <= right), (B, H, T_q, T_k))
    if mask is not None:
        visible = visible & mask
    if bias is not None:
        visible = visible & (bias != -np.inf)
    return visible


def assert_visible(dtype, shape, **options):
    """Compare all blocks of all tiles; return what was said of them."""
    B, H, H_kv, T_q, T_k = shape
    expected = dense(shape, **options)
    answers, seen = found_by(dtype, shape, **options)
    met = np.zeros((B, H, T_q, T_k), int)
    for (b, head, heads, query, queries, j, n, first, last, visible, width), word in zip(
        answers, seen, strict=True
    ):
        # columns beyond the queries are never visible: then SOMETHING is all that can be said
        is_whole = heads * queries == width
        assert heads * queries <= BLOCK
        assert head // (H // H_kv) == (head + heads - 1) // (H // H_kv)  # of one group
        here = (b, slice(head, head + heads), slice(query, query + queries), slice(j, j + n))
        met[here] += 1
        block = expected[here]
        outside = np.arange(j, j + n)[(np.arange(j, j + n) < first) | (np.arange(j, j + n) >= last)]
        assert not expected[(*here[:3], outside)].any()  # keys_in_sight leaves nobody out
        assert (first % BLOCK == 0) or first >= last
        if visible != SOMETHING:
            assert block.all() and is_whole if visible == EVERYTHING else not block.any()
            continue
        assert block.any()
        assert not (block.all() and is_whole)
        bits = to_bits(word[:n])
        found = bits[:, : heads * queries].T.reshape(heads, queries, n)
        np.testing.assert_array_equal(found, block)
        assert not bits[:, heads * queries :].any()
    assert (met == 1).all()  # every cell is in one block
    return set(answers[:, 9].tolist())


SHAPES = [  # B, H, H_kv, T_q, T_k
    (1, 1, 1, 1, 1), (2, 2, 1, 1, 70), (1, 5, 1, 20, 65), (2, 6, 2, 13, 64), (1, 70, 1, 1, 130),
    (1, 3, 1, 63, 63), (2, 2, 2, 64, 64), (1, 2, 1, 65, 129), (1, 3, 3, 130, 200),
]  # fmt: skip
by_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
by_one_dtype = pytest.mark.parametrize("dtype", DTYPES[:1])  # the bits are the same for both


@by_shape
@by_one_dtype
def test_everything_without_options(dtype, shape):
    assert assert_visible(dtype, shape) <= {SOMETHING, EVERYTHING}


@by_shape
@by_one_dtype
def test_windows_and_offsets(rng, dtype, shape):
    B, T_q, T_k = shape[0], shape[3], shape[4]
    said = set()
    sides = [FAR, 0, 1, 30, 63, 64, 65, 100]
    for left, right in itertools.product(sides, sides):
        for q_offset in (0, T_k - T_q, -3, rng.integers(-T_q - 5, T_k + 5, size=B)):
            said |= assert_visible(dtype, shape, left=left, right=right, q_offset=q_offset)
    for q_offset in (-(2**60), 2**60, -T_q - 64, T_k + 64):
        said |= assert_visible(dtype, shape, left=3, right=0, q_offset=q_offset)
        said |= assert_visible(dtype, shape, left=FAR, right=0, q_offset=q_offset)
    assert NOTHING in said


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
    said = set()
    for draw, chance in itertools.product(strides_of(shape), (0.0, 0.02, 0.5, 1.0)):
        said |= assert_visible(dtype, shape, mask=draw(rng, chance))
        said |= assert_visible(dtype, shape, mask=draw(rng, chance), left=9, right=40, q_offset=11)
    assert NOTHING in said


@by_dtype
@by_shape
def test_a_bias_of_minus_infinity(rng, dtype, shape):
    said = set()
    for draw, chance in itertools.product(strides_of(shape), (0.0, 0.5, 1.0)):
        shown = draw(rng, chance)
        bias = np.where(shown, rng.normal(size=shown.shape), -np.inf).astype(dtype)
        bias[shown & (rng.random(shown.shape) < 0.1)] = rng.choice([np.nan, np.inf, 0])
        said |= assert_visible(dtype, shape, bias=bias)
        mask = draw(rng, 0.8)
        said |= assert_visible(dtype, shape, bias=bias, mask=mask, left=70, right=0, q_offset=5)
    assert NOTHING in said
