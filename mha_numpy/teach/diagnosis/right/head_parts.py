"""What a head takes from each token, and a layer without some of its heads."""

from typing import cast

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array


def weights_times_norm(weights: Array, v: Array, w_o: Array) -> Array:
    """Return the weights (B, H, T_q, T_k), each times the length of v_j w_o^h."""
    H, d_v = v.shape[1], v.shape[3]
    its_rows = w_o.reshape(H, d_v, -1)  # (H, d_v, D)
    brought = v @ its_rows  # (B, H, T_k, D)
    lengths = np.sqrt((brought**2).sum(axis=-1))  # (B, H, T_k)
    return lengths[:, :, None, :] * weights


def prune_heads(params: MultiHeadParams, num_heads: int, heads: Array) -> MultiHeadParams:
    """Take some heads' columns out of w_q, w_k, w_v, and their rows out of w_o."""
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = cast(tuple[Array, ...], params)
    stays = np.isin(np.arange(num_heads), heads, invert=True)  # (H,)
    of_qk = np.repeat(stays, w_q.shape[1] // num_heads)  # (H * d_k,)
    of_v = np.repeat(stays, w_v.shape[1] // num_heads)  # (H * d_v,)
    return MultiHeadParams(
        w_q[:, of_qk], b_q[of_qk], w_k[:, of_qk], b_k[of_qk],
        w_v[:, of_v], b_v[of_v], w_o[of_v], b_o,
    )  # fmt: skip
