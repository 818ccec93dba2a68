"""Step 1 of attention, for forward and for backward alike: how well each key fits each query."""

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.product import multiply
from mha_numpy.kernels.rows import row_dots
from mha_numpy.kernels.simd import lanes

FEW = 8  # queries: with more, a Vector of them is full enough for the product of tiles


@inner
def is_in_vectors(x):
    """Return whether rows are contiguous whole Vectors."""
    return x.strides[1] == x.itemsize and x.shape[1] % lanes(x) == 0


@inner
def suits_few(k, queries):
    """Return whether k is matched along its rows: queries are few, and rows whole Vectors."""
    return queries <= FEW and is_in_vectors(k)


@inner
def match(scores, k, q, q_T, queries, along_rows):
    """Do ``scores = k @ q.T``: a row a key; columns beyond the queries are left to chance.

    q_T is q turned over. Forward and backward have to round alike, for backward takes the
    exponential of a score minus forward's lse: so both tell by the same k which product it is.
    """
    if along_rows:
        row_dots(scores, k, q[: queries + queries % 2])
    else:
        multiply(scores, k, q_T[: k.shape[1]], scores, adds=False)
