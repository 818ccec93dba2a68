"""RMS norm of queries and keys, and where it is taken; forward, forward mode and backward."""

from typing import Any, NamedTuple

from mha_numpy.checks import check_choice, check_number
from mha_numpy.core.rms_norm import (
    RMSNormCache,
    rms_norm_backward,
    rms_norm_forward,
    rms_norm_jvp,
)
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe
from mha_numpy.steps import watching

GAIN_AXES = {  # by place: what a gain counts
    "heads": ("d_k", "d_k"),
    "projection": ("H*d_k", "H_kv*d_k"),
    "rotated": ("d_k", "d_k"),
}


class QKNormOptions(NamedTuple):
    """Where queries and keys are divided by their root mean square, and its eps.

    "heads": each head, before its rotation (Qwen3, Gemma 3). "projection": the vector of all heads,
    before it is split (OLMo 2). "rotated": each head, after its rotation (HunYuan).
    """

    place: str = "heads"
    eps: float = 1e-6


class QKNormCache(NamedTuple):
    """The caches of both norms."""

    norm_q: RMSNormCache
    norm_k: RMSNormCache


def qk_norm_forward(
    q: Array, k: Array, gain_q: Array | None, gain_k: Array | None, eps: float
) -> tuple[Array, Array, QKNormCache]:
    """Normalise queries and keys, each vector by itself: (..., D) -> (..., D)."""
    with watching(None):  # attention records them, under the names that they have there
        q, norm_q = rms_norm_forward(q, gain_q, eps=eps)
        k, norm_k = rms_norm_forward(k, gain_k, eps=eps)
    return q, k, QKNormCache(norm_q, norm_k)


def qk_norm_backward(
    d_q: Array, d_k: Array, cache: QKNormCache
) -> tuple[Array, Array, tuple[Array | None, Array | None]]:
    """Pull both gradients back, to the queries, the keys and the two gains."""
    with watching(None):
        d_q, d_gain_q = rms_norm_backward(d_q, cache.norm_q)
        d_k, d_gain_k = rms_norm_backward(d_k, cache.norm_k)
    return d_q, d_k, (d_gain_q, d_gain_k)


def qk_norm_jvp(
    q_dot: Array, k_dot: Array, gain_q_dot: Array | None, gain_k_dot: Array | None,
    cache: QKNormCache,
) -> tuple[Array, Array]:  # fmt: skip
    """Push the tangents forward, to the normalised queries and keys."""
    q_dot = rms_norm_jvp((q_dot, gain_q_dot), cache.norm_q)
    return q_dot, rms_norm_jvp((k_dot, gain_k_dot), cache.norm_k)


def check_qk_norm(qk_norm: Any) -> None:
    """Check where to normalise, and eps."""
    if not isinstance(qk_norm, QKNormOptions):
        raise ConfigError(f"qk_norm: expected QKNormOptions(...) or None; got {describe(qk_norm)}")
    check_choice("place", qk_norm.place, GAIN_AXES)
    check_number("eps", qk_norm.eps, positive=True)
