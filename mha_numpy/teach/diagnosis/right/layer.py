"""Multi-head attention: project, split, attend, merge, project."""

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.right.attention import attend
from mha_numpy.teach.diagnosis.right.heads import merge_heads, split_heads
from mha_numpy.teach.diagnosis.saved import Saved


def project_q(x: Array, params: MultiHeadParams) -> Array:
    """Make queries, all heads side by side."""
    return x @ params.w_q + params.b_q


def project_k(x: Array, params: MultiHeadParams) -> Array:
    """Make keys."""
    return x @ params.w_k + params.b_k


def project_v(x: Array, params: MultiHeadParams) -> Array:
    """Make values."""
    return x @ params.w_v + params.b_v


def project_o(x: Array, params: MultiHeadParams) -> Array:
    """Make the output of the merged heads."""
    return x @ params.w_o + params.b_o


def run_layer(
    y: Array, x: Array, params: MultiHeadParams, num_heads: int, mask: Array | None = None
) -> tuple[Array, Saved]:
    """Attend from y (B, T_q, D) to x (B, T_k, kdim): the output, and what backward needs."""
    q = split_heads(project_q(y, params), num_heads)
    k = split_heads(project_k(x, params), num_heads)
    v = split_heads(project_v(x, params), num_heads)
    weights, heads = attend(q, k, v, mask)
    merged = merge_heads(heads)
    return project_o(merged, params), Saved(x, q, k, v, weights, merged)


def multi_head(x: Array, params: MultiHeadParams, num_heads: int, mask: Array) -> Array:
    """Let the tokens of x (B, T, D) attend to one another, as the mask (T, T) lets them."""
    return run_layer(x, x, params, num_heads, mask)[0]


def cross_attention(y: Array, x: Array, params: MultiHeadParams, num_heads: int) -> Array:
    """Let the tokens of y (B, T_y, D) attend to those of x (B, T_x, kdim)."""
    return run_layer(y, x, params, num_heads)[0]
