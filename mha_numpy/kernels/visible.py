"""Who sees whom in a block of cells: a 64-bit word a key, a bit a query."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.problem import BLOCK
from mha_numpy.kernels.product import multiply
from mha_numpy.kernels.simd import (
    bits_from_lanes,
    emit_pointer,
    lanes,
    lanes_from_bits,
    load,
    select,
    store,
)
from mha_numpy.kernels.tile import is_finite

NOTHING, SOMETHING, EVERYTHING = 0, 1, 2
ONE, NONE_SET = np.uint64(1), np.uint64(0)


@inner
def find_visible(seen, rows, problem, tile, bias, j, n):
    """Fill `seen` with a word for each of the keys j to j + n; return how much is visible.

    `bias` is the block's, a row a query; `rows` is scratch. After EVERYTHING `seen` is void.
    """
    inside = (
        tile.position + tile.queries - 1 - problem.left <= j
        and j + n - 1 <= tile.position + problem.right
    )
    if inside and problem.mask.size == 0 and problem.bias.size == 0:
        return EVERYTHING
    find_in_window(seen, problem, tile, j, n)
    if problem.mask.size > 0:
        for g in range(tile.heads):
            for i in range(tile.queries):
                mask = problem.mask[tile.b, tile.head + g, tile.query + i]
                rows[g * tile.queries + i] = mask_bits(mask, j, n)
        keep_only(seen, rows)
    if problem.bias.size > 0:
        for r in range(tile.heads * tile.queries):
            rows[r] = bias_bits(bias, r)
        keep_only(seen, rows)
    every, some = seen[0], NONE_SET
    for key in range(n):
        every &= seen[key]
        some |= seen[key]
    if some == NONE_SET:
        return NOTHING
    return EVERYTHING if every == first_bits(tile.heads * tile.queries) else SOMETHING


@inner
def find_in_window(seen, problem, tile, j, n):
    """Note who sees the keys j to j + n by their distance alone."""
    for key in range(n):
        distance = j + key - tile.position
        first = min(max(distance - problem.right, 0), tile.queries)
        last = min(max(distance + problem.left + 1, first), tile.queries)
        word = first_bits(last) & ~first_bits(first)
        seen[key] = word
        for g in range(1, tile.heads):
            seen[key] |= word << np.uint64(g * tile.queries)


@inner
def first_bits(n):
    """Return a word whose lowest n bits are set."""
    return ~NONE_SET if n == BLOCK else (ONE << np.uint64(n)) - ONE


@inner
def keep_only(seen, rows):
    """Hide what `rows` does not show, which has a word a query and a bit a key."""
    transpose_bits(rows)
    for key in range(BLOCK):
        seen[key] &= rows[key]


@inner
def mask_bits(mask, j, n):
    """Return a row of a mask, from key j on, as bits."""
    if n == BLOCK and mask.strides[0] == 1:
        return pack_block(mask, j)
    word = NONE_SET
    for key in range(n):
        word |= np.uint64(mask[j + key]) << np.uint64(key)
    return word


@inner
def bias_bits(bias, r):
    """Return where a row of bias hides nothing, as bits."""
    word = NONE_SET
    for c in range(0, BLOCK, lanes(bias)):
        word |= bits_from_lanes(load(bias, r, c) != -np.inf) << np.uint64(c)
    return word


@inner
def transpose_bits(words):
    """Turn over a matrix of 64 x 64 bits: swap its quarters, then theirs, and so on."""
    side, left = 32, np.uint64(0xFFFFFFFF)  # left: the columns on the left of each pair
    while side > 0:
        shift = np.uint64(side)
        for r in range(BLOCK):
            if r & side == 0:
                swap = ((words[r] >> shift) ^ words[r + side]) & left
                words[r + side] ^= swap
                words[r] ^= swap << shift
        side //= 2
        left ^= left << np.uint64(side)


@inner
def hide(cells, seen, visible, value):
    """Put `value` into the cells, a row a key, that are not seen."""
    if visible == EVERYTHING:
        return
    for key in range(cells.shape[0]):
        for c in range(0, cells.shape[1], lanes(cells)):
            is_seen = lanes_from_bits(cells, seen[key], c)
            store(cells, key, c, select(is_seen, load(cells, key, c), value))


@inner
def add_product(c, a, b, seen, visible, rows_are_keys):
    """Do ``c += a @ b``, where hidden cells of a, which are 0, add nothing: not even 0 * NaN.

    A row of a is a key and a column a query, or the other way round.
    """
    if visible == EVERYTHING or is_finite(b):
        multiply(c, a, b, 1.0)
        return
    for row in range(min(a.shape[0], c.shape[0])):
        for column in range(a.shape[1]):
            key, query = (row, column) if rows_are_keys else (column, row)
            if seen[key] >> np.uint64(query) & ONE:
                for x in range(c.shape[1]):
                    c[row, x] += a[row, column] * b[column, x]


@intrinsic
def pack_block(typingctx, mask, j):
    """Return the 64 bools from j on as the bits of a word."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = emit_pointer(context, builder, sig.args[0], *args, lanes=BLOCK)
        block = ir.VectorType(ir.IntType(8), BLOCK)
        bytes_ = builder.load(builder.bitcast(pointer, block.as_pointer()), align=1)
        is_set = builder.icmp_unsigned("!=", bytes_, ir.Constant(block, [0] * BLOCK))
        return builder.bitcast(is_set, ir.IntType(BLOCK))

    return types.uint64(mask, types.intp), codegen
