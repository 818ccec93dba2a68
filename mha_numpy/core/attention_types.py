"""What attention takes and hands on: its options, its cache, its gradients."""

from typing import Any, NamedTuple, TypedDict

import numpy as np

from mha_numpy.core.dtypes import Array
from mha_numpy.core.masks import Window
from mha_numpy.core.softmax import SoftmaxCache

LEADING_AXES = {2: ("", ""), 3: ("B", "B"), 4: ("B H", "B H_kv")}  # by rank: of queries, of keys


class AttentionOptions(TypedDict, total=False):
    """The keyword arguments of `attention_forward`, for functions that pass them on."""

    mask: Array | None
    bias: Array | None
    is_causal: bool
    q_offset: int | Array
    window: Window | None
    softcap: float | None
    scale: float | None
    dropout_mask: Array | None
    head_gate: Array | None
    backend: str


class AttentionInputs(NamedTuple):
    """Checked inputs, defaults filled in; arrays in the dtype of the computation."""

    q: Array  # (B, H, T_q, d_k)
    k: Array  # (B, H_kv, T_k, d_k)
    v: Array  # (B, H_kv, T_k, d_v)
    bias: Array | None  # broadcasts to the scores
    visible: Array | None  # bool, broadcasts to the scores; None: nothing is hidden
    scale: float
    softcap: float | None
    dropout_mask: Array | None  # broadcasts to the scores
    head_gate: Array | None  # (H,) or (B, H)
    dtype: np.dtype[Any]  # of the output and of all gradients

    @property
    def query_axes(self) -> str:
        """The leading axes of a query and of all that belongs to it."""
        return LEADING_AXES[self.q.ndim][0]

    @property
    def key_axes(self) -> str:
        """The leading axes of a key and of a value."""
        return LEADING_AXES[self.q.ndim][1]

    @property
    def cell_axes(self) -> str:
        """The axes of the scores: a cell is a pair of query and key."""
        return f"{self.query_axes} T_q T_k"


class AttentionCache(NamedTuple):
    """What `attention_backward` needs."""

    inputs: AttentionInputs
    capped: Array | None  # (B, H, T_q, T_k): the scores after softcap; None without one
    softmax: SoftmaxCache
    dropped: Array  # (B, H, T_q, T_k): the weights after dropout
    gated: Array  # (B, H, T_q, T_k): the weights after dropout and head gate

    @property
    def weights(self) -> Array:
        """The weights before dropout and head gate: (B, H, T_q, T_k)."""
        return self.softmax.weights

    @property
    def lse(self) -> Array:
        """The log of each row's sum of e^scores: (B, H, T_q), -inf where it sees nothing."""
        return self.softmax.lse


class AttentionGrads(NamedTuple):
    """Gradients, in the order of the inputs; None for an input that was not given."""

    d_q: Array  # (B, H, T_q, d_k)
    d_k: Array  # (B, H_kv, T_k, d_k)
    d_v: Array  # (B, H_kv, T_k, d_v)
    d_bias: Array | None  # like bias
    d_head_gate: Array | None  # like head_gate
