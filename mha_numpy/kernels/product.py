"""The one product of all kernels, for tiles: c = beta * c + a @ b.

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

ROWS, VECTORS = HOST.rows, HOST.vectors
HALF = VECTORS // 2
TALL = 2 * ROWS


@inner
def multiply(c, a, b, beta):
    """Do ``c = beta * c + a @ b``: (m, n), (m, k), (k, n); with beta 0, c need not be finite.

    Rows of b and c are contiguous, and n is a multiple of the lanes.
    """
    m, n = c.shape
    L = lanes(c)
    whole = m - m % ROWS
    j = 0
    while j + VECTORS * L <= n:
        for i in range(0, whole, ROWS):
            multiply_block(c, a, b, i, j, ROWS, VECTORS, beta)
        for i in range(whole, m):
            multiply_block(c, a, b, i, j, 1, VECTORS, beta)
        j += VECTORS * L
    while j + HALF * L <= n:
        for i in range(0, whole, ROWS):
            multiply_block(c, a, b, i, j, ROWS, HALF, beta)
        for i in range(whole, m):
            multiply_block(c, a, b, i, j, 1, HALF, beta)
        j += HALF * L
    while j < n:
        i = 0
        while i + TALL <= m:
            multiply_block(c, a, b, i, j, TALL, 1, beta)
            i += TALL
        while i < m:
            multiply_block(c, a, b, i, j, 1, 1, beta)
            i += 1
        j += L


@intrinsic(prefer_literal=True)
def multiply_block(typingctx, c, a, b, i, j, rows, vectors, beta):
    """Compute `rows` rows and `vectors` Vectors of c, from row i and column j on."""
    vector = vector_of(c.dtype)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        c, a, b, i, j, _, _, beta = args
        c_type, a_type, b_type = sig.args[:3]
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
        keeps = builder.fcmp_ordered("!=", beta, beta.type(0.0))
        factor = emit_splat(builder, beta, vector.lanes)
        for r in block_rows:
            c_row = emit_pointer(context, builder, c_type, c, row(r), j, lanes=width)
            for v in block_vectors:
                with builder.if_then(keeps):
                    before = builder.load(at(c_row, v), align=1)
                    with_before = emit_multiply_add(
                        builder, before, factor, builder.load(sums[r][v])
                    )
                    builder.store(with_before, sums[r][v])
                builder.store(builder.load(sums[r][v]), at(c_row, v), align=1)
        return context.get_dummy_value()

    return types.none(c, a, b, i, j, rows, vectors, c.dtype), codegen
