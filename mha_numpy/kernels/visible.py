"""Visible cells of a block, as a 64-bit word per key with a bit per query; and care for NaN."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.product import multiply
from mha_numpy.kernels.rows import fill, is_finite
from mha_numpy.kernels.simd import (
    as_written,
    bits_from_lanes,
    emit_pointer,
    lanes,
    lanes_from_bits,
    load,
    select,
    store,
)
from mha_numpy.kernels.tile import BLOCK

NOTHING, SOMETHING, EVERYTHING = 0, 1, 2
ONE, NONE_SET = np.uint64(1), np.uint64(0)


@inner(in_place=True)
def find_visible(seen_by_key, seen_by_query, problem, tile, bias, j, width):
    """Fill `seen_by_key` with a word for each key from j on in the block; return how much shows.

    `bias` is the block's, one row per query. `seen_by_query` is scratch, a word per query and a bit
    per key. The columns of the block up to `width` that are beyond the tile's queries see nothing.
    """
    as_written()
    n = min(BLOCK, problem.k.shape[2] - j)
    rows = tile.num_heads * tile.num_queries
    inside = (
        tile.position + tile.num_queries - 1 - problem.left <= j
        and j + n - 1 <= tile.position + problem.right
    )
    if rows == width and inside and problem.mask.size == 0 and problem.bias.size == 0:
        return EVERYTHING
    find_in_window(seen_by_key, problem, tile, j, n)
    if problem.mask.size > 0:
        for g in range(tile.num_heads):
            for i in range(tile.num_queries):
                mask = problem.mask[tile.b, tile.first_head + g, tile.first_query + i]
                seen_by_query[g * tile.num_queries + i] = mask_bits(mask, j, n)
        keep_only(seen_by_key, seen_by_query)
    if problem.bias.size > 0:
        for r in range(rows):
            seen_by_query[r] = bias_bits(bias, r)
        keep_only(seen_by_key, seen_by_query)
    every, some = ~NONE_SET, NONE_SET
    for key in range(n):
        every &= seen_by_key[key]
        some |= seen_by_key[key]
    if some == NONE_SET:
        return NOTHING
    return EVERYTHING if every == first_bits(width) else SOMETHING


@inner(in_place=True)
def find_in_window(seen_by_key, problem, tile, j, n):
    """Note which queries see the keys j to j + n, judging only by distance."""
    for key in range(n):
        distance = j + key - tile.position
        first = min(max(distance - problem.right, 0), tile.num_queries)
        last = min(max(distance + problem.left + 1, first), tile.num_queries)
        word = first_bits(last) & ~first_bits(first)
        seen_by_key[key] = word
        for g in range(1, tile.num_heads):
            seen_by_key[key] |= word << np.uint64(g * tile.num_queries)


@inner
def first_bits(n):
    """Return a word whose lowest n bits are set."""
    return ~NONE_SET if n == BLOCK else (ONE << np.uint64(n)) - ONE


@intrinsic
def length(typingctx, word):
    """Return how many bits a word has up to the last that is set."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        zeros = builder.ctlz(args[0], ir.IntType(1)(0))  # before it
        return builder.sub(zeros.type(BLOCK), zeros)

    return types.intp(types.uint64), codegen


@inner
def keep_only(seen_by_key, seen_by_query):
    """Hide the cells that the second hides; it is transposed on the way."""
    transpose_bits(seen_by_query)
    for key in range(BLOCK):
        seen_by_key[key] &= seen_by_query[key]


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
    """Transpose a matrix of 64 x 64 bits: swap its quarters, then theirs, and so on."""
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
def hide(cells, seen_by_row, visible, value):
    """Put `value` into the hidden cells; a row of them is a key, or a query."""
    if visible == EVERYTHING:
        return
    for row in range(cells.shape[0]):
        for c in range(0, cells.shape[1], lanes(cells)):
            is_seen = lanes_from_bits(cells, seen_by_row[row], c)
            store(cells, row, c, select(is_seen, load(cells, row, c), value))


@inner
def add_product(target, cells, b, seen_by_row, visible, transposed):
    """Do ``target += cells @ b``, or ``target += cells.T @ b`` where `transposed`.

    A hidden cell, which is 0, adds nothing, not even 0 * NaN.
    """
    multiply_visible(target, cells, b, seen_by_row, visible, transposed, True)


@inner
def multiply_visible(target, cells, b, seen_by_row, visible, transposed, adds):
    """Do what `add_product` does, or where not `adds`, write the product to target."""
    if visible == EVERYTHING or is_finite(b):
        if transposed:
            multiply(target, cells.T, b, target, adds)
        else:
            multiply(target, cells, b, target, adds)
        return
    if not adds:
        fill(target, 0.0)
    for row in range(cells.shape[0]):
        for column in range(cells.shape[1]):
            if seen_by_row[row] >> np.uint64(column) & ONE:
                to, of = (column, row) if transposed else (row, column)
                for c in range(target.shape[1]):
                    target[to, c] += cells[row, column] * b[of, c]


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
