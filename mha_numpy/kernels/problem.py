"""Problem: what the kernels are given. Tile: the piece of it that is worked on at a time."""

from typing import Any, NamedTuple

from numba import types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

from mha_numpy.kernels.compile import inner

BLOCK = 64  # queries in a tile, and keys in a block: as many as a word has bits


class Problem(NamedTuple):
    """The inputs of attention; an array that was not given has size 0."""

    q: Any  # (B, H, T_q, d_k)
    k: Any  # (B, H_kv, T_k, d_k)
    v: Any  # (B, H_kv, T_k, d_v)
    mask: Any  # (B, H, T_q, T_k) bool
    bias: Any  # (B, H, T_q, T_k)
    dropout_mask: Any  # (B, H, T_q, T_k)
    q_offset: Any  # (B,) position of the first query among the keys
    left: Any  # a query sees keys from its position - left
    right: Any  # to its position + right
    scale: Any
    softcap: Any  # 0 where there is none


INPUTS = len(Problem._fields)


class Tile(NamedTuple):
    """Up to BLOCK queries that share one key/value head.

    Of one query head where there are many queries, of several where there are few: row
    ``g * queries + i`` is query ``query + i`` of query head ``head + g``.
    """

    b: Any
    kv_head: Any
    head: Any
    heads: Any
    query: Any
    queries: Any
    position: Any  # of the first query among the keys


@inner
def problem_of(arguments):
    """Return the problem that a kernel's arguments begin with."""
    q, k, v, mask, bias, dropout_mask, q_offset, left, right, scale, softcap = arguments[:INPUTS]
    return Problem(
        same_type(q), same_type(k), same_type(v), mask, same_type(bias), same_type(dropout_mask),
        q_offset, left, right, scale, softcap,
    )  # fmt: skip


@inner
def group_size(problem):
    """Return G, the query heads of a group."""
    return problem.q.shape[1] // problem.k.shape[1]


@inner
def tile_shape(problem):
    """Return how many query heads, and how many queries of each, a tile holds at most."""
    queries = min(BLOCK, problem.q.shape[2])
    return min(BLOCK // queries, group_size(problem)), queries


@inner
def count_tiles(problem):
    """Return the number of tiles of one key/value head."""
    heads, queries = tile_shape(problem)
    return divide_up(group_size(problem), heads) * divide_up(problem.q.shape[2], queries)


@inner
def tile_of(problem, b, kv_head, number):
    """Return one of the tiles of a key/value head."""
    heads, queries = tile_shape(problem)
    in_a_row = divide_up(problem.q.shape[2], queries)
    g, query = number // in_a_row * heads, number % in_a_row * queries
    return Tile(
        b, kv_head,
        kv_head * group_size(problem) + g, min(heads, group_size(problem) - g),
        query, min(queries, problem.q.shape[2] - query),
        problem.q_offset[b] + query,
    )  # fmt: skip


@inner
def keys_in_sight(problem, tile, first, last):
    """Return, of the keys from first to last (exclusive), those that the tile may see.

    The first one is moved down to the beginning of its block.
    """
    low = max(first, tile.position - problem.left)
    high = min(last, tile.position + tile.queries + problem.right)
    return low - (low - first) % BLOCK, high


@inner
def divide_up(n, by):
    """Return n / by, rounded up."""
    return (n + by - 1) // by


@intrinsic
def same_type(typingctx, array):
    """Return the array as one of the type that all matrices and tensors of the kernels have.

    Inputs are not written to, but functions that take them take scratch tiles too, and one type
    for both means that they are compiled once.
    """
    one_type = types.Array(array.dtype, array.ndim, "A")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return impl_ret_borrowed(context, builder, one_type, args[0])

    return one_type(array), codegen
