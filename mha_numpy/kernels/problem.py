"""Problem: the arguments of the kernels."""

from typing import Any, NamedTuple

from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from mha_numpy.kernels.compile import inner


class Problem(NamedTuple):
    """The inputs of attention; a missing array has size 0.

    An axis of mask, bias, dropout_mask, sink and q_offset may also have length 1: `problem_of`
    stretches it, because NumPy would take a seventh of a small call for that.
    """

    q: Any  # (B, H, T_q, d_k)
    k: Any  # (B, H_kv, T_k, d_k)
    v: Any  # (B, H_kv, T_k, d_v)
    mask: Any  # (B, H, T_q, T_k) bool
    bias: Any  # (B, H, T_q, T_k)
    dropout_mask: Any  # (B, H, T_q, T_k)
    sink: Any  # (B, H)
    q_offset: Any  # (B,) position of the first query among the keys
    left: Any  # a query sees keys from its position - left
    right: Any  # to its position + right
    scale: Any
    softcap: Any  # 0 where there is none


NUM_INPUTS = len(Problem._fields)


@inner
def problem_of(arguments):
    """Return the problem at the start of a kernel's arguments."""
    q, k, v, mask, bias, dropout_mask, sink, q_offset = arguments[:8]
    B, H, T_q, _ = q.shape
    cells = B, H, T_q, k.shape[2]
    return Problem(
        like_scratch(q), like_scratch(k), like_scratch(v),
        stretched(mask, cells), stretched(bias, cells), stretched(dropout_mask, cells),
        stretched(sink, (B, H)), stretched(q_offset, (B,)),
        *arguments[8:NUM_INPUTS],
    )  # fmt: skip


@inner
def divide_up(n, by):
    """Return n / by, rounded up."""
    return (n + by - 1) // by


@inner
def items_of(thread, threads, groups, of_each):
    """Return a thread's items: whole groups of neighbours, or every `threads`-th item.

    They are neighbours if all threads get the same number. Then each thread finds its own results
    of the last product or attention in its cache, and no two write to one line of the cache.
    """
    if groups % threads == 0:
        share = groups // threads * of_each
        return range(thread * share, (thread + 1) * share, 1)
    return range(thread, groups * of_each, threads)


@intrinsic
def like_scratch(typingctx, array):
    """Return an input as an array of the type that scratch has: any strides, writable.

    No kernel writes to it, but a function that takes both inputs and tiles is then compiled once.
    """
    one_type = types.Array(array.dtype, array.ndim, "A")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return impl_ret_borrowed(context, builder, one_type, args[0])

    return one_type(array), codegen


@intrinsic
def stretched(typingctx, array, shape):
    """Return an input, each axis of length 1 repeated as often as the shape says; cf. like_scratch.

    As `numpy.broadcast_to` does, but an array of size 0 stays as it is.
    """
    one_type = types.Array(array.dtype, array.ndim, "A")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        given = context.make_array(sig.args[0])(context, builder, args[0])
        wanted = cgutils.unpack_tuple(builder, args[1])
        lengths, strides = (cgutils.unpack_tuple(builder, x) for x in (given.shape, given.strides))
        is_one = [builder.icmp_signed("==", n, n.type(1)) for n in lengths]
        result = context.make_array(one_type)(context, builder)
        populate_array(
            result,
            data=given.data,
            shape=[*map(builder.select, is_one, wanted, lengths)],
            strides=[
                builder.select(one, by.type(0), by) for one, by in zip(is_one, strides, strict=True)
            ],
            itemsize=given.itemsize,
            meminfo=given.meminfo,
            parent=given.parent,
        )
        return impl_ret_borrowed(context, builder, one_type, result._getvalue())

    return one_type(array, shape), codegen
