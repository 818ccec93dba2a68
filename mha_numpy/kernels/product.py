"""The one product of all kernels, for tiles: c = start + a @ b.

A block of `rows` x `vectors` registers holds sums; for every k it takes one number of each of its
rows of a, and one Vector of each of its columns of b. Only b and c are read as Vectors, so a may
have any strides: a transposed view costs nothing.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.host import HOST
from mha_numpy.kernels.simd import (
    emit_multiply_add,
    emit_pointer,
    emit_splat,
    lanes,
    vector_of,
)

ROWS, VECTORS = 6, HOST.vectors  # of the block of sums in registers
HALF = VECTORS // 2
TALL = 2 * ROWS


@inner
def multiply(c, a, b, start, adds):
    """Do ``c = a @ b``, or ``c = start + a @ b`` where `adds`: (m, k), (k, n); start may be c.

    Rows of b, c and start are contiguous, and n is a multiple of the lanes.
    """
    m, n = c.shape
    L = lanes(c)
    j = 0
    while j + VECTORS * L <= n:
        i = 0
        while i + ROWS <= m:
            multiply_block(c, a, b, start, i, j, ROWS, VECTORS, adds)
            i += ROWS
        while i + 2 <= m:
            multiply_block(c, a, b, start, i, j, 2, VECTORS, adds)
            i += 2
        if i < m:
            multiply_block(c, a, b, start, i, j, 1, VECTORS, adds)
        j += VECTORS * L
    while j + HALF * L <= n:
        i = 0
        while i + ROWS <= m:
            multiply_block(c, a, b, start, i, j, ROWS, HALF, adds)
            i += ROWS
        while i < m:
            multiply_block(c, a, b, start, i, j, 1, HALF, adds)
            i += 1
        j += HALF * L
    while j < n:
        i = 0
        while i + TALL <= m:
            multiply_block(c, a, b, start, i, j, TALL, 1, adds)
            i += TALL
        while i < m:
            multiply_block(c, a, b, start, i, j, 1, 1, adds)
            i += 1
        j += L


@intrinsic(prefer_literal=True)
def multiply_block(typingctx, c, a, b, start, i, j, rows, vectors, adds):
    """Compute `rows` rows and `vectors` Vectors of c, from row i and column j on."""
    vector = vector_of(c.dtype)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        c, a, b, start, i, j, _, _, adds = args
        c_type, a_type, b_type, start_type = sig.args[:4]
        register = context.get_value_type(vector)
        block_rows, block_vectors = range(rows.literal_value), range(vectors.literal_value)
        a_array = context.make_array(a_type)(context, builder, a)
        b_array = context.make_array(b_type)(context, builder, b)
        _, depth = cgutils.unpack_tuple(builder, a_array.shape)
        _, a_step = cgutils.unpack_tuple(builder, a_array.strides)
        b_step, _ = cgutils.unpack_tuple(builder, b_array.strides)
        zero = i.type(0)

        def row(r: int) -> Any:
            return builder.add(i, i.type(r))

        def at(pointer: Any, v: int) -> Any:
            pointer = builder.bitcast(pointer, register.as_pointer())
            return builder.gep(pointer, [i.type(v)])

        width = vector.lanes * len(block_vectors)
        a_rows = [emit_pointer(context, builder, a_type, a, row(r), zero) for r in block_rows]
        b_row = emit_pointer(context, builder, b_type, b, zero, j, lanes=width)
        c_rows = [
            emit_pointer(context, builder, c_type, c, row(r), j, lanes=width) for r in block_rows
        ]
        for c_row in c_rows:  # on its way while sums are taken
            for v in block_vectors:
                emit_prefetch(builder, at(c_row, v))
        nothing = ir.Constant(register, [0.0] * vector.lanes)
        sums = [
            [cgutils.alloca_once_value(builder, nothing) for _ in block_vectors] for _ in block_rows
        ]
        with cgutils.for_range(builder, depth) as loop:
            b_now = cgutils.pointer_add(builder, b_row, builder.mul(loop.index, b_step))
            columns = [builder.load(at(b_now, v), align=1) for v in block_vectors]
            offset = builder.mul(loop.index, a_step)
            for a_row, row_sums in zip(a_rows, sums, strict=True):
                number = builder.load(cgutils.pointer_add(builder, a_row, offset), align=1)
                factor = emit_splat(builder, number, vector.lanes)
                for column, sum_ in zip(columns, row_sums, strict=True):
                    more = emit_multiply_add(builder, factor, column, builder.load(sum_))
                    builder.store(more, sum_)
        for r in block_rows:
            with builder.if_then(adds):
                start_row = emit_pointer(
                    context, builder, start_type, start, row(r), j, lanes=width
                )
                for v in block_vectors:
                    before = builder.load(at(start_row, v), align=1)
                    builder.store(builder.fadd(before, builder.load(sums[r][v])), sums[r][v])
            for v in block_vectors:
                builder.store(builder.load(sums[r][v]), at(c_rows[r], v), align=1)
        return context.get_dummy_value()

    return types.none(c, a, b, start, i, j, rows, vectors, types.boolean), codegen


def emit_prefetch(builder: Any, pointer: Any) -> None:
    """Ask for the line of the first-level cache that will be written to at this address."""
    flag = ir.IntType(32)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, flag, flag, flag]),
        "llvm.prefetch.p0i8",
    )
    write, keep, data = flag(1), flag(3), flag(1)
    builder.call(function, [builder.bitcast(pointer, cgutils.voidptr_t), write, keep, data])
