"""Transposing tiles: rows become columns, one square of registers at a time."""

from typing import Any

from numba import types
from numba.extending import intrinsic

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.simd import emit_pointer, emit_shuffle, lanes, vector_of


@inner
def transpose(target, source):
    """Do ``target[:] = source.T`` for a source whose sides are multiples of the lanes."""
    L = lanes(source)
    for i in range(0, source.shape[0], L):
        for j in range(0, source.shape[1], L):
            transpose_square(target, source, i, j)


@intrinsic
def transpose_square(typingctx, target, source, i, j):
    """Transpose the square of lanes x lanes numbers at row i, column j of source."""
    vector = vector_of(source.dtype)
    L = vector.lanes

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        target, source, i, j = args
        register = context.get_value_type(vector)

        def pointer(ty: Any, array: Any, row: Any, column: Any, r: int) -> Any:
            row = builder.add(row, row.type(r))
            address = emit_pointer(context, builder, ty, array, row, column, lanes=L)
            return builder.bitcast(address, register.as_pointer())

        rows = [builder.load(pointer(sig.args[1], source, i, j, r), align=1) for r in range(L)]
        # swap the off-diagonal quarters of the square, then of each quarter, and so on
        side = L // 2
        while side:
            for r in (r for r in range(L) if not r & side):
                upper, lower = rows[r], rows[r + side]
                rows[r] = emit_shuffle(builder, upper, lower, [
                    t if not t & side else L + t - side for t in range(L)
                ])  # fmt: skip
                rows[r + side] = emit_shuffle(builder, upper, lower, [
                    t + side if not t & side else L + t for t in range(L)
                ])  # fmt: skip
            side //= 2
        for r, row in enumerate(rows):
            builder.store(row, pointer(sig.args[0], target, j, i, r), align=1)
        return context.get_dummy_value()

    return types.none(target, source, types.intp, types.intp), codegen
