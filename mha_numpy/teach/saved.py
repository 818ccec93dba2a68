"""What multi-head attention keeps for its backward."""

from typing import NamedTuple

from mha_numpy.dtypes import Array


class Saved(NamedTuple):
    """What multi-head self-attention's backward needs."""

    x: Array  # (B, T, D)
    q: Array  # (B, H, T, d)
    k: Array
    v: Array
    weights: Array  # (B, H, T, T)
    merged: Array  # (B, T, H*d)
