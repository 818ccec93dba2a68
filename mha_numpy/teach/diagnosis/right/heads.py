"""Split into heads and merge them again."""

from mha_numpy.dtypes import Array


def split_heads(x: Array, num_heads: int) -> Array:
    """Split: (B, T, H*d) -> (B, H, T, d)."""
    B, T, width = x.shape
    d = width // num_heads
    return x.reshape(B, T, num_heads, d).transpose(0, 2, 1, 3)


def merge_heads(heads: Array) -> Array:
    """Merge: (B, H, T, d) -> (B, T, H*d)."""
    B, H, T, d = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)
