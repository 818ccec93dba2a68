"""Who may attend to whom."""

import numpy as np

from mha_numpy.dtypes import Array


def make_mask(lengths: Array, T_q: int, T_k: int, q_offset: int, left: int) -> Array:
    """Make a (B, 1, T_q, T_k) mask: causal, at most `left` keys back, no padding."""
    query = np.arange(T_q)[:, None] + q_offset  # (T_q, 1)
    key = np.arange(T_k)  # (T_k,)
    length = np.asarray(lengths)[:, None, None, None]  # (B, 1, 1, 1)
    past, near, token = is_past(key, query), is_near(key, query, left), is_token(key, length)
    return past & near & token


def is_past(key: Array, query: Array) -> Array:
    """Return which keys stand at a query's own position or before it."""
    return key <= query


def is_near(key: Array, query: Array, left: int) -> Array:
    """Return which keys stand at most `left` positions before a query."""
    return key >= query - left


def is_token(key: Array, length: Array) -> Array:
    """Return which keys are no padding."""
    return key < length
