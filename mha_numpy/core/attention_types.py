"""What attention takes, keeps and gives back: options, checked inputs, steps, gradients."""

from typing import Any, NamedTuple, TypedDict

import numpy as np

from mha_numpy.core.masks import Window
from mha_numpy.core.visibility import visible_cells
from mha_numpy.dtypes import Array


class AttentionAxes(NamedTuple):
    """The names of the axes of every array; a cell is a pair of query and key."""

    q: str
    k: str
    v: str
    heads: str
    cells: str


AXES = {  # by rank
    2: AttentionAxes("T_q d_k", "T_k d_k", "T_k d_v", "T_q d_v", "T_q T_k"),
    3: AttentionAxes("B T_q d_k", "B T_k d_k", "B T_k d_v", "B T_q d_v", "B T_q T_k"),
    4: AttentionAxes(
        "B H T_q d_k", "B H_kv T_k d_k", "B H_kv T_k d_v", "B H T_q d_v", "B H T_q T_k"
    ),
}  # fmt: skip


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
    backend: str | None


class AttentionInputs(NamedTuple):
    """Checked inputs, defaults filled in; arrays in the dtype of the computation."""

    q: Array  # (B, H, T_q, d_k)
    k: Array  # (B, H_kv, T_k, d_k)
    v: Array  # (B, H_kv, T_k, d_v)
    mask: Array | None  # bool, broadcasts to the scores
    bias: Array | None  # broadcasts to the scores
    window: Window | None  # with is_causal in it; None: unbounded on both sides
    q_offset: Array  # int64, () or (B,)
    scale: float
    softcap: float | None
    dropout_mask: Array | None  # broadcasts to the scores
    head_gate: Array | None  # (H,) or (B, H)
    dtype: np.dtype[Any]  # of the output and of all gradients

    @property
    def axes(self) -> AttentionAxes:
        """The names of the axes at this rank."""
        return AXES[self.q.ndim]

    @property
    def cells_shape(self) -> tuple[int, ...]:
        """The shape of the scores: (B, H, T_q, T_k)."""
        return (*self.q.shape[:-1], self.k.shape[-2])

    @property
    def visible(self) -> Array | None:
        """Who may attend to whom: bool, broadcasts to the scores; None where nothing is hidden.

        Made anew at each access: only the reference needs it in one piece.
        """
        return visible_cells(
            self.cells_shape,
            mask=self.mask, bias=self.bias, window=self.window, q_offset=self.q_offset,
        )  # fmt: skip


class AttentionSteps(NamedTuple):
    """What steps 1 to 6 compute; a step whose option was not given passes on the one before."""

    visible: Array | None  # broadcasts to the cells; None where nothing is hidden
    scores: Array  # (B, H, T_q, T_k), and so on to dropped
    capped: Array
    biased: Array
    masked: Array
    weights: Array
    dropped: Array
    heads: Array  # (B, H, T_q, d_v)
    lse: Array  # (B, H, T_q): log of each row's sum of e^scores; -inf where it sees nothing


class AttentionCells(NamedTuple):
    """What the equations keep of every cell for their backward."""

    visible: Array | None
    capped: Array | None  # (B, H, T_q, T_k): the scores after softcap; None without one
    weights: Array  # (B, H, T_q, T_k)
    dropped: Array  # (B, H, T_q, T_k): the weights after dropout


class AttentionStepsBackward(NamedTuple):
    """The gradients of what steps 6 to 1 read, each like its array."""

    d_dropped: Array
    d_weights: Array
    d_biased: Array
    d_scores: Array
    d_q: Array
    d_k: Array
    d_v: Array
    d_bias: Array | None


class AttentionGrads(NamedTuple):
    """Gradients, in the order of the inputs; None for an input that was not given."""

    d_q: Array  # (B, H, T_q, d_k)
    d_k: Array  # (B, H_kv, T_k, d_k)
    d_v: Array  # (B, H_kv, T_k, d_v)
    d_bias: Array | None  # like bias
    d_head_gate: Array | None  # like head_gate
