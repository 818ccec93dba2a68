"""The processor's peak: multiply-adds of float32 numbers that never leave their registers."""

from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from mha_numpy.bench.timing import take_turn
from mha_numpy.dtypes import Array
from mha_numpy.kernels.parallel import parallel
from mha_numpy.kernels.product import ROWS, VECTORS
from mha_numpy.kernels.simd import emit_constant, emit_multiply_add, emit_splat, store, vector_of

# 24 of 32 registers, or 12 of 16: a multiply-add takes up to 5 cycles, and each cycle begins two,
# on Arm four; so fewer sums would wait for themselves
SUMS = ROWS * VECTORS
ROUNDS = 2**18  # of a call: about a millisecond
TURN = 0.008  # seconds


def peak_rate(threads: int) -> float:
    """Return how many operations a second these threads reach, two for each multiply-add."""
    multiply_adds = count_up(threads, ROUNDS).sum(dtype=int)  # compiles, starts threads
    return float(2 * multiply_adds / take_turn(partial(count_up, threads, ROUNDS), TURN))


def count_up(threads: int, rounds: int) -> Array:
    """Count multiply-adds by doing them: the result (threads, lanes) adds up to their number."""
    counts = np.empty((threads, vector_of(types.float32).lanes), np.float32)
    # the 1 comes after compiling: if it were known then, nothing would be multiplied by it
    compiled()(threads, (counts, np.float32(1), rounds))
    return counts


@lru_cache
def compiled() -> Any:
    """Compile the loop."""
    arguments = (types.Array(types.float32, 2, "C"), types.float32, types.intp)
    return parallel(count_in_thread, types.Tuple(arguments))


@njit(_nrt=False)  # not kept on disk: the cache notices changes only in the kernels' files
def count_in_thread(thread, threads, arguments):
    """Fill a thread's row of counts."""
    counts, one, rounds = arguments
    store(counts, thread, 0, count_in_registers(one, rounds))


@intrinsic
def count_in_registers(typingctx, one, rounds):
    """Do ``sum = sum * one + one`` for all sums in each round; return their total."""
    vector = vector_of(one)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        register = context.get_value_type(vector)
        # their total is 0; they differ, for equal sums would become one
        starts = [emit_constant(register, number - (SUMS - 1) / 2) for number in range(SUMS)]
        sums = [cgutils.alloca_once_value(builder, start) for start in starts]
        ones = emit_splat(builder, args[0], vector.lanes)
        with cgutils.for_range(builder, args[1]):
            for sum_ in sums:
                builder.store(emit_multiply_add(builder, builder.load(sum_), ones, ones), sum_)
        return reduce(builder.fadd, map(builder.load, sums))

    return vector(one, rounds), codegen
