"""The scores of attention at every stage, on request."""

from typing import NamedTuple

from mha_numpy.checks import check_type
from mha_numpy.core.attention import AttentionCache, attention_steps
from mha_numpy.dtypes import Array


class AttentionStages(NamedTuple):
    """The scores on their way to weights, each (B, H, T_q, T_k)."""

    scores: Array  # scale * q @ k^T
    capped: Array  # softcap * tanh(scores / softcap)
    biased: Array  # capped + bias
    masked: Array  # biased where visible, else -inf
    weights: Array  # softmax(masked), before dropout


def attention_stages(cache: AttentionCache) -> AttentionStages:
    """Run a forward pass once more and keep what the scores were at each stage.

    Parameters
    ----------
    cache : AttentionCache
        From `attention_forward`, by any backend: the stages are the reference's.

    Returns
    -------
    AttentionStages
        Each (B, H, T_q, T_k), or of lower rank like the query, in the dtype of the computation. A
        stage whose option was not given is the stage before it.

    Raises
    ------
    ConfigError
        `cache` is something else.

    Notes
    -----
    `attention_forward` keeps only what its backward needs. The ONNX Attention operator calls
    these ``qk_matmul_output``.

    Examples
    --------
    >>> import numpy as np
    >>> from mha_numpy.core import attention_forward
    >>> x = np.eye(2)
    >>> out, cache = attention_forward(x, x, x, is_causal=True, scale=1.0)
    >>> attention_stages(cache).masked
    array([[  1., -inf],
           [  0.,   1.]])
    """
    check_type("cache", cache, AttentionCache, "attention_forward")
    steps = attention_steps(cache.inputs)
    return AttentionStages._make(getattr(steps, stage) for stage in AttentionStages._fields)
