"""Steps 1 and 2 of attention, for forward and for backward alike: scores of keys and queries."""

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.exponential import tanh
from mha_numpy.kernels.product import dot_with_rows, multiply
from mha_numpy.kernels.rows import scale_rows
from mha_numpy.kernels.simd import lanes, load, store
from mha_numpy.kernels.tile import load_queries
from mha_numpy.kernels.transpose import transpose

DEEP = 512  # bytes of a column: 128 numbers of 4, or 64 of 8
FEW = 8  # rows of a tile: with more, a Vector of them is full enough for the product of tiles


@inner
def is_in_vectors(x):
    """Return whether rows are contiguous whole Vectors."""
    return x.strides[1] == x.itemsize and x.shape[1] % lanes(x) == 0


@inner(in_place=True)
def load_scaled(q, q_T, problem, tile):
    """Load ``scale * q`` of a tile's queries, and its transpose."""
    load_queries(q, problem.q, tile)
    scale_rows(q, problem.scale)
    transpose(q_T, q)


@inner
def match(scores, k, q_T):
    """Do ``scores = k @ q_T``, one row per key; columns beyond the queries contain anything.

    Forward and backward have to round alike, because backward takes the exponential of a score
    minus forward's lse. So both match here, or for a few queries in `match_rows`.
    """
    multiply_deep(scores, k, q_T[: k.shape[1]], False)


@inner
def multiply_deep(c, a, b, adds):
    """Do ``c = a @ b``, or where `adds` ``c += a @ b``, for a tile of b of any depth.

    Every few rows of a go through all of b, so it is taken in parts that stay in the first-level
    cache.
    """
    depth = DEEP // b.itemsize
    for first in range(0, len(b), depth):
        part = slice(first, min(first + depth, len(b)))
        multiply(c, a[:, part], b[part], c, adds or first > 0)


@inner
def match_rows(cells, rows, of_keys):
    """Do ``cells[:, :keys] = rows @ of_keys.T`` for as many keys as a Vector holds, or more."""
    last = len(of_keys) - lanes(cells)
    for r in range(cells.shape[0]):
        for c in range(0, len(of_keys), lanes(cells)):
            first = min(c, last)  # what the one before has, too, is the same
            dot_with_rows(cells, r, first, of_keys, first, rows)


@inner
def cap(cells, slope, softcap):
    """Do ``cells = softcap * tanh(cells / softcap)``; keep the derivative, if there is room."""
    for j in range(cells.shape[0]):
        for c in range(0, cells.shape[1], lanes(cells)):
            bent = tanh(load(cells, j, c) / softcap)
            store(cells, j, c, bent * softcap)
            if slope.shape[0] > 0:
                store(slope, j, c, 1.0 - bent * bent)
