"""Attention once more, in one plain implementation that makes mistakes on request.

Every function takes `made`, the names of the mistakes to make; without any it is right, and where a
mistake makes shapes that do not fit it raises ValueError, as NumPy does. A new mistake is a line
here and a row in the bank.
"""

from mha_numpy.mistakes.flawed.analysis import (
    d_head_gate,
    dropout_backward,
    head_importance,
    layer_norm_backward,
)
from mha_numpy.mistakes.flawed.backward import (
    attention_backward,
    backward_from_lse,
    grouped_backward,
    linear_backward,
    scores_backward,
    softmax_backward,
    sum_over_group,
)
from mha_numpy.mistakes.flawed.bridges import from_gpt2, to_gpt2
from mha_numpy.mistakes.flawed.costs import cost_table
from mha_numpy.mistakes.flawed.forward import (
    attend,
    attention,
    grouped_attention,
    masked_attention,
    scores,
    softmax,
    softmax_with_lse,
)
from mha_numpy.mistakes.flawed.heads import merge_heads, split_heads
from mha_numpy.mistakes.flawed.layer import (
    cross_attention,
    input_gradient,
    multi_head,
    multi_head_backward,
    run_layer,
)
from mha_numpy.mistakes.flawed.made import RIGHT, Made
from mha_numpy.mistakes.flawed.masks import make_mask
from mha_numpy.mistakes.flawed.memory import decode_step, online_attention
from mha_numpy.mistakes.flawed.positions import rope, rope_backward

__all__ = [
    "RIGHT", "Made", "attend", "attention", "attention_backward", "backward_from_lse",
    "cost_table", "cross_attention", "d_head_gate", "decode_step", "dropout_backward", "from_gpt2",
    "grouped_attention", "grouped_backward", "head_importance", "input_gradient",
    "layer_norm_backward", "linear_backward", "make_mask", "masked_attention", "merge_heads",
    "multi_head", "multi_head_backward", "online_attention", "rope", "rope_backward", "run_layer",
    "scores", "scores_backward", "softmax", "softmax_backward", "softmax_with_lse", "split_heads",
    "sum_over_group", "to_gpt2",
]  # fmt: skip
