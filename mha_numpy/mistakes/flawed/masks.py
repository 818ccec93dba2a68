"""Who may attend to whom."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.mistakes.flawed.made import RIGHT, Made


def make_mask(
    lengths: Array, T_q: int, T_k: int, q_offset: int, left: int, made: Made = RIGHT
) -> Array:
    """Make a (B, 1, T_q, T_k) mask: causal, at most `left` keys back, no padding."""
    if "aligned at the bottom right" in made:
        q_offset = T_k - T_q
    if "q_offset ignored" in made:
        q_offset = 0
    if "q_offset subtracted" in made:
        q_offset = -q_offset
    row, key = np.arange(T_q)[:, None], np.arange(T_k)[None, :]
    query = row + q_offset

    causal = key <= (row if "q_offset missing in causality" in made else query)
    if "causal, strict" in made:
        causal = key < query
    if "causal, leaks one key" in made:
        causal = key <= query + 1
    if "causal, wrong triangle" in made:
        causal = key >= query
    if "causal forgotten" in made:
        causal = key <= T_k

    near = key >= (row if "q_offset missing in the window" in made else query) - left
    if "window one too wide" in made:
        near = key >= query - left - 1
    if "window one too narrow" in made:
        near = key > query - left
    if "window forgotten" in made:
        near = key >= 0

    length = np.asarray(lengths)[:, None, None, None]
    if "one length for all" in made:
        length = np.broadcast_to(length[:1], length.shape)
    is_token = key < length
    if "padding one too many" in made:
        is_token = key <= length
    if "padding of the queries" in made:
        is_token = (query < length) & (key >= 0)
    if "padding forgotten" in made:
        is_token = np.broadcast_to(key >= 0, (len(lengths), 1, 1, T_k))
    if "padding inverted" in made:
        is_token = ~is_token

    mask = causal & near & is_token
    if "masks joined by or" in made:
        mask = causal & near | is_token
    if "mask inverted" in made:
        mask = ~mask
    return mask[:, 0] if "no axis for the heads" in made else mask
