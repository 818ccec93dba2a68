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
    emit_constant,
    emit_fetch,
    emit_load_some,
    emit_multiply_add,
    emit_pointer,
    emit_shuffle,
    emit_splat,
    lanes,
    vector_of,
)

ROWS, VECTORS = 6, HOST.vectors  # of the block of sums in registers
HALF = VECTORS // 2
TALL, TALLEST = 8, 16  # rows, where there are half as many columns, and where one Vector is left
AT_ONCE = 8  # dot products, each of which waits for its own sum


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
        while i + TALL <= m:
            multiply_block(c, a, b, start, i, j, TALL, HALF, adds)
            i += TALL
        while i + 4 <= m:
            multiply_block(c, a, b, start, i, j, 4, HALF, adds)
            i += 4
        while i + 2 <= m:
            multiply_block(c, a, b, start, i, j, 2, HALF, adds)
            i += 2
        if i < m:
            multiply_block(c, a, b, start, i, j, 1, HALF, adds)
        j += HALF * L
    while j < n:
        i = 0
        while i + TALLEST <= m:
            multiply_block(c, a, b, start, i, j, TALLEST, 1, adds)
            i += TALLEST
        while i + 4 <= m:
            multiply_block(c, a, b, start, i, j, 4, 1, adds)
            i += 4
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
                emit_fetch(builder, at(c_row, v), writes=True)
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


@intrinsic
def dot_with_rows(typingctx, dots, row, column, a, first, b):
    """Write the dot products of rows of a, from the first on, with a row of b into one of dots.

    They fill a Vector. Rows of a and b are contiguous, those of b whole Vectors.
    """
    vector = vector_of(dots.dtype)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        dots, row, column, a, first, b = args
        register = context.get_value_type(vector)
        a_type, b_type = sig.args[3], sig.args[5]
        a_array = context.make_array(a_type)(context, builder, a)
        _, width = cgutils.unpack_tuple(builder, a_array.shape)
        stride, _ = cgutils.unpack_tuple(builder, a_array.strides)
        zero, size = row.type(0), row.type(vector.lanes * vector.dtype.bitwidth // 8)
        whole = builder.sdiv(width, width.type(vector.lanes))
        rest = builder.srem(width, width.type(vector.lanes))
        first_row = emit_pointer(context, builder, a_type, a, first, zero)
        b_row = emit_pointer(context, builder, b_type, b, row, zero)
        nothing = emit_constant(register, 0.0)

        def vector_at(pointer: Any, number: Any) -> Any:
            pointer = cgutils.pointer_add(builder, pointer, builder.mul(number, size))
            return builder.bitcast(pointer, register.as_pointer())

        sums = []
        for group in range(0, vector.lanes, AT_ONCE):
            rows_of_group = range(group, min(group + AT_ONCE, vector.lanes))
            rows_ = [
                cgutils.pointer_add(builder, first_row, builder.mul(stride, stride.type(t)))
                for t in rows_of_group
            ]
            of_rows = [cgutils.alloca_once_value(builder, nothing) for _ in rows_]
            with cgutils.for_range(builder, whole) as loop:
                factor = builder.load(vector_at(b_row, loop.index), align=1)
                for a_row, sum_ in zip(rows_, of_rows, strict=True):
                    numbers = builder.load(vector_at(a_row, loop.index), align=1)
                    more = emit_multiply_add(builder, numbers, factor, builder.load(sum_))
                    builder.store(more, sum_)
            with builder.if_then(builder.icmp_signed(">", rest, zero)):
                factor = builder.load(vector_at(b_row, whole), align=1)
                for a_row, sum_ in zip(rows_, of_rows, strict=True):
                    numbers = emit_load_some(builder, vector_at(a_row, whole), rest, register)
                    more = emit_multiply_add(builder, numbers, factor, builder.load(sum_))
                    builder.store(more, sum_)
            sums += [builder.load(sum_) for sum_ in of_rows]
        total = emit_sums_of_each(builder, sums)
        pointer = emit_pointer(context, builder, sig.args[0], dots, row, column, lanes=vector.lanes)
        builder.store(total, builder.bitcast(pointer, register.as_pointer()), align=1)
        return context.get_dummy_value()

    size = types.intp
    return types.none(dots, size, size, a, size, b), codegen


def emit_sums_of_each(builder: Any, registers: list[Any]) -> Any:
    """Return a register with the sum of each of as many registers as it has lanes.

    As in `sum_of_lanes` halves are added up, then theirs; here those of two registers at once.
    """
    lanes = half = len(registers)
    while half > 1:
        half //= 2
        low = [t for t in range(2 * lanes) if not t & half]
        high = [t + half for t in low]
        registers = [
            builder.fadd(emit_shuffle(builder, a, b, low), emit_shuffle(builder, a, b, high))
            for a, b in zip(registers[::2], registers[1::2], strict=True)
        ]
    return registers[0]
