"""Problem: the arguments of the kernels."""

from typing import Any, NamedTuple

from numba import types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

from mha_numpy.kernels.compile import inner


class Problem(NamedTuple):
    """The inputs of attention; a missing array has size 0."""

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
    q, k, v, mask, bias, dropout_mask = arguments[:6]
    return Problem(
        like_scratch(q), like_scratch(k), like_scratch(v),
        mask, like_scratch(bias), like_scratch(dropout_mask),
        *arguments[6:NUM_INPUTS],
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
