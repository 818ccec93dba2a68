"""Scratch: the tiles that a thread works on, in memory that it fetches itself.

The rows of a tile are whole registers, aligned to registers.
"""

from collections import namedtuple
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.host import HOST
from mha_numpy.kernels.rows import fill
from mha_numpy.kernels.tile import BLOCK

ALIGNMENT = HOST.register_bytes


class Layout:
    """A kernel's tiles by their names, with the names of their sizes: "rows columns".

    In a kernel ``layout.new_tiles(like, sizes)`` returns the address of their memory and the tiles
    by their names, of the array's dtype, with any numbers in them. `names` says what the sizes
    are, in order; "block" is BLOCK. At the end the kernel gives the address to `free`.
    """

    def __init__(self, names: str, **tiles: str) -> None:
        axes_of_tiles = [axes.split() for axes in tiles.values()]
        self.new_tiles = _maker(names.split(), axes_of_tiles, namedtuple("Tiles", tiles))


@cache
def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next call, by freeing a large array once.

    glibc keeps unused memory up to twice the largest array that was ever freed, at most 64 MiB. The
    rest goes back to the system, and is fetched page by page at the next call.
    """
    np.empty(2**25 - 2**13, np.uint8)  # nothing is written, so this costs nothing


def _maker(names: list[str], axes_of_tiles: list[list[str]], named: Any) -> Any:
    """Return a function that makes new tiles, named by a namedtuple."""

    @inner
    def new_tiles(like, sizes):
        shapes = shapes_from(sizes)
        numbers = 0
        for rows, columns in shapes:
            numbers += rows * columns
        memory = allocate(numbers * like.itemsize + ALIGNMENT)
        if memory == 0:
            raise MemoryError("scratch: there is no memory for it")
        return memory, tiles_at(memory + -memory % ALIGNMENT, like, shapes)

    @intrinsic
    def shapes_from(typingctx, sizes):
        shapes = types.UniTuple(types.UniTuple(types.intp, 2), len(axes_of_tiles))

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            known = dict(zip(names, cgutils.unpack_tuple(builder, args[0]), strict=True))
            known |= {"block": cgutils.intp_t(BLOCK), "1": cgutils.intp_t(1)}
            pairs = [[known[axis] for axis in axes] for axes in axes_of_tiles]
            made = [context.make_tuple(builder, shapes.dtype, pair) for pair in pairs]
            return context.make_tuple(builder, shapes, made)

        return shapes(sizes), codegen

    @intrinsic
    def tiles_at(typingctx, address, like, shapes):
        tile_type = types.Array(like.dtype, 2, "A")
        tiles_type = types.NamedUniTuple(tile_type, len(axes_of_tiles), named)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            at, size, made = args[0], cgutils.intp_t(like.dtype.bitwidth // 8), []
            for shape in cgutils.unpack_tuple(builder, args[2]):
                rows, columns = cgutils.unpack_tuple(builder, shape)
                tile = context.make_array(tile_type)(context, builder)
                stride = builder.mul(columns, size)
                populate_array(
                    tile,
                    data=builder.inttoptr(at, tile.data.type),
                    shape=(rows, columns), strides=(stride, size), itemsize=size, meminfo=None,
                )  # fmt: skip
                made.append(tile._getvalue())
                at = builder.add(at, builder.mul(rows, stride))
            return context.make_tuple(builder, tiles_type, made)

        return tiles_type(address, like, shapes), codegen

    return new_tiles


@intrinsic
def new_words(typingctx):
    """Return BLOCK words, each with a bit for each query or key of a block, on the stack."""
    words = types.Array(types.uint64, 1, "C")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = context.make_array(words)(context, builder)
        data = cgutils.alloca_once(builder, ir.IntType(64), size=BLOCK)
        length, size = cgutils.intp_t(BLOCK), cgutils.intp_t(8)
        populate_array(
            made, data=data, shape=(length,), strides=(size,), itemsize=size, meminfo=None
        )
        return made._getvalue()

    return words(), codegen


@intrinsic
def allocate(typingctx, size):
    """Return the address of new memory, from numba's allocator; 0 if there is no room."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(cgutils.voidptr_t, [cgutils.intp_t])
        function = cgutils.get_or_insert_function(builder.module, kind, "NRT_Allocate")
        return builder.ptrtoint(builder.call(function, args), cgutils.intp_t)

    return types.intp(types.intp), codegen


@intrinsic
def free(typingctx, address):
    """Give back what `allocate` returned."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
        function = cgutils.get_or_insert_function(builder.module, kind, "NRT_Free")
        builder.call(function, [builder.inttoptr(args[0], cgutils.voidptr_t)])
        return context.get_dummy_value()

    return types.none(types.intp), codegen


@inner
def clear(tiles):
    """Fill all tiles with 0."""
    for tile in tiles:
        fill(tile, 0.0)
