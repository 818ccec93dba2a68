"""Kinds of KV cache besides `KVCache`, and the trees of drafts that a cache can be pruned to."""

from mha_numpy.core.caches.int8 import Int8Bounds, Int8KVCache, dequantise, int8_bounds, quantise
from mha_numpy.core.caches.paged import BlockPool, PagedKVCache, pad_batch
from mha_numpy.core.caches.rolling import RollingKVCache
from mha_numpy.core.caches.tree import accepted_path, tree_mask, tree_positions

__all__ = [
    "BlockPool", "Int8Bounds", "Int8KVCache", "PagedKVCache", "RollingKVCache", "accepted_path",
    "dequantise", "int8_bounds", "pad_batch", "quantise", "tree_mask", "tree_positions",
]  # fmt: skip
