"""A class that writes every product as an einsum."""

import numpy as np


class SelfAttention:
    def __init__(self, embed_size, heads, seed=0):
        self.embed_size, self.heads = embed_size, heads
        self.head_dim = embed_size // heads
        rng = np.random.default_rng(seed)
        self.w_values, self.w_keys, self.w_queries, self.fc_out = rng.normal(
            size=(4, embed_size, embed_size)
        )

    def __call__(self, values, keys, query, mask=None):
        N = query.shape[0]
        shape = (N, -1, self.heads, self.head_dim)
        values = (values @ self.w_values).reshape(shape)
        keys = (keys @ self.w_keys).reshape(shape)
        queries = (query @ self.w_queries).reshape(shape)

        energy = np.einsum("nqhd,nkhd->nhqk", queries, keys)
        if mask is not None:
            energy = np.where(mask == 0, 1e-20, energy)
        energy = energy / self.head_dim ** (1 / 2)
        energy = np.exp(energy - energy.max(axis=3, keepdims=True))
        attention = energy / energy.sum(axis=3, keepdims=True)

        out = np.einsum("nhql,nlhd->nqhd", attention, values)
        return out.reshape(N, query.shape[1], self.embed_size) @ self.fc_out
