"""Params as GPT-2 stores them, x @ w + b with queries, keys and values side by side, and back."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array


class GPT2Params(NamedTuple):
    """The params of GPT-2's attention, as Hugging Face names them."""

    c_attn_w: Array  # (D, 3*D)
    c_attn_b: Array  # (3*D,)
    c_proj_w: Array  # (D, D)
    c_proj_b: Array | None  # (D,)


def from_gpt2(
    c_attn_w: Array, c_attn_b: Array, c_proj_w: Array, c_proj_b: Array
) -> MultiHeadParams:
    """Take (D, 3*D), (3*D,), (D, D), (D,) apart."""
    w_q, w_k, w_v = np.split(c_attn_w, 3, axis=1)
    b_q, b_k, b_v = np.split(c_attn_b, 3)
    w_o, b_o = c_proj_w, c_proj_b
    return MultiHeadParams(w_q=w_q, b_q=b_q, w_k=w_k, b_k=b_k, w_v=w_v, b_v=b_v, w_o=w_o, b_o=b_o)


def to_gpt2(params: MultiHeadParams) -> GPT2Params:
    """Lay queries, keys and values side by side."""
    w_q, b_q = params.w_q, params.b_q
    w_k, b_k = params.w_k, params.b_k
    w_v, b_v = params.w_v, params.b_v
    w_o, b_o = params.w_o, params.b_o
    ws: list[Any] = [w_q, w_k, w_v]
    bs: list[Any] = [b_q, b_k, b_v]
    c_attn_w = np.concatenate(ws, axis=1)
    c_attn_b = np.concatenate(bs)
    return GPT2Params(c_attn_w, c_attn_b, w_o, b_o)
