"""Split into heads and merge them again."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.mistakes.flawed.made import RIGHT, Made


def split_heads(x: Array, num_heads: int, made: Made = RIGHT) -> Array:
    """Split: (B, T, H*d) -> (B, H, T, d)."""
    B, T, width = x.shape
    d = width // num_heads
    if "split without transpose" in made:
        return x.reshape(B, num_heads, T, d)
    if "heads interleaved when split" in made:
        return x.reshape(B, T, d, num_heads).transpose(0, 3, 1, 2)
    if "heads left behind the tokens" in made:
        return x.reshape(B, T, num_heads, d)
    if "heads before the batch" in made:
        return x.reshape(B, T, num_heads, d).transpose(2, 0, 1, 3)
    if "tokens reversed when split" in made:
        x = x[:, ::-1]
    return x.reshape(B, T, num_heads, d).transpose(0, 2, 1, 3)


def merge_heads(heads: Array, made: Made = RIGHT) -> Array:
    """Merge: (B, H, T, d) -> (B, T, H*d)."""
    B, H, T, d = heads.shape
    if "merge without transpose" in made:
        return heads.reshape(B, T, H * d)
    if "heads merged in reverse" in made:
        heads = heads[:, ::-1]
    if "heads interleaved when merged" in made:
        return heads.transpose(0, 2, 3, 1).reshape(B, T, d * H)
    if "heads averaged instead of concatenated" in made:
        heads = np.broadcast_to(heads.mean(axis=1, keepdims=True), heads.shape)
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)
