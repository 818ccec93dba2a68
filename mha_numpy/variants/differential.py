"""Differential attention: one attention minus a learned share of another, on the same values."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Unpack

import numpy as np

from mha_numpy.backends import backend
from mha_numpy.checks import check_number, check_shape, check_type
from mha_numpy.core.attention import (
    AttentionCache,
    AttentionGrads,
    attention_backward,
    attention_forward,
)
from mha_numpy.core.attention_jvp import attention_jvp
from mha_numpy.core.options import AXES, AttentionOptions, takes_attention_options
from mha_numpy.core.pair import Pair, as_gradient, axes_of
from mha_numpy.core.rms_norm import (
    RMSNormCache,
    rms_norm_backward,
    rms_norm_forward,
    rms_norm_jvp,
)
from mha_numpy.core.tangents import shapes_of, tangents_with_params
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.steps import WATCHER, Relay, constant, renamed, step, watching


def difference_steps(
    out_1: Array, out_2: Array, lambda_q1: Array, lambda_k1: Array, lambda_q2: Array,
    lambda_k2: Array, lambda_init: float,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Subtract a share of the second output, (..., T_q, d_v), from the first."""
    # 2. the share, one number for all heads: near lambda_init at first, and free to move
    power_1 = np.exp((lambda_q1 * lambda_k1).sum())
    power_2 = np.exp((lambda_q2 * lambda_k2).sum())
    share = power_1 - power_2 + lambda_init

    # 3. subtract
    return power_1, power_2, share, out_1 - share * out_2


def difference_steps_backward(
    d_difference: Array, out_2: Array, lambda_q1: Array, lambda_k1: Array, lambda_q2: Array,
    lambda_k2: Array, power_1: Array, power_2: Array, share: Array,
) -> tuple[Array, ...]:  # fmt: skip
    """Pull back to both outputs and the four vectors."""
    # 3. difference = out_1 - share * out_2
    d_out_2 = -share * d_difference
    d_share = -(d_difference * out_2).sum()

    # 2. share = power_1 - power_2 + lambda_init, power_1 = e^(lambda_q1 . lambda_k1)
    d_dot_1, d_dot_2 = d_share * power_1, -d_share * power_2
    d_lambdas = d_dot_1 * lambda_k1, d_dot_1 * lambda_q1, d_dot_2 * lambda_k2, d_dot_2 * lambda_q2
    return d_difference, d_out_2, *d_lambdas


def difference_steps_jvp(
    out_1_dot: Array, out_2_dot: Array, lambda_q1_dot: Array, lambda_k1_dot: Array,
    lambda_q2_dot: Array, lambda_k2_dot: Array, out_2: Array, lambda_q1: Array, lambda_k1: Array,
    lambda_q2: Array, lambda_k2: Array, power_1: Array, power_2: Array, share: Array,
) -> Array:  # fmt: skip
    """Push the tangents of both outputs and the four vectors forward."""
    # 2. share = power_1 - power_2 + lambda_init, power_1 = e^(lambda_q1 . lambda_k1)
    dot_1_dot = (lambda_q1_dot * lambda_k1 + lambda_q1 * lambda_k1_dot).sum()
    dot_2_dot = (lambda_q2_dot * lambda_k2 + lambda_q2 * lambda_k2_dot).sum()
    share_dot = power_1 * dot_1_dot - power_2 * dot_2_dot

    # 3. difference = out_1 - share * out_2
    return out_1_dot - share_dot * out_2 - share * out_2_dot


class DifferenceCache(NamedTuple):
    """What the backward of steps 2 and 3 needs."""

    out_2: Array  # (..., T_q, d_v)
    lambda_q1: Array  # (d,), and so the others
    lambda_k1: Array
    lambda_q2: Array
    lambda_k2: Array
    power_1: Array
    power_2: Array
    share: Array
    dtype: np.dtype[Any]


class DifferenceGrads(NamedTuple):
    """Gradients of steps 2 and 3."""

    d_out_1: Array
    d_out_2: Array
    d_lambda_q1: Array
    d_lambda_k1: Array
    d_lambda_q2: Array
    d_lambda_k2: Array


class DifferentialParams(NamedTuple):
    """The learned arrays of differential attention; also their gradients."""

    lambda_q1: Array  # (d,): four vectors, together one number
    lambda_k1: Array
    lambda_q2: Array
    lambda_k2: Array
    gain: Array | None = None  # (d_v,): of the norm, the same for all heads


class DifferentialCache(NamedTuple):
    """The caches of the parts, in forward's order."""

    first: AttentionCache
    second: AttentionCache
    difference: DifferenceCache
    norm: RMSNormCache
    lambda_init: float

    @property
    def weights(self) -> Array:
        """The differential weights (..., T_q, T_k), before dropout: a row sums to 1 - share."""
        return self.first.weights - self.difference.share * self.second.weights


class DifferentialGrads(NamedTuple):
    """Gradients, in the order of the inputs; None for an input that was not passed."""

    d_q1: Array
    d_k1: Array
    d_q2: Array
    d_k2: Array
    d_v: Array
    d_params: DifferentialParams
    d_bias: Array | None  # this and the following: of options, as in AttentionGrads
    d_sink: Array | None
    d_head_gate: Array | None


@takes_attention_options
def differential_attention_forward(
    q1: Array,
    k1: Array,
    q2: Array,
    k2: Array,
    v: Array,
    *,
    params: DifferentialParams,
    lambda_init: float,
    eps: float = 1e-5,
    **options: Unpack[AttentionOptions],
) -> tuple[Array, DifferentialCache]:
    """Subtract one attention from another, and norm each head.

    ``out = (1 - lambda_init) norm((softmax(q1 k1^T) - share softmax(q2 k2^T)) v)`` with scaled
    scores, and ``share = e^(lambda_q1 . lambda_k1) - e^(lambda_q2 . lambda_k2) + lambda_init``.

    Parameters
    ----------
    q1, q2 : (B, H, T_q, d) float array, or of lower rank as in `attention_forward`
        Both queries of each head. How a model packs the two into one matrix is its caller's to
        undo: the paper has them side by side in each head.
    k1, k2 : (B, H_kv, T_k, d) float array, or of lower rank
    v : (B, H_kv, T_k, d_v) float array, or of lower rank
        In the paper d_v = 2 d.
    params : DifferentialParams
    lambda_init : float
        In the paper ``0.8 - 0.6 * exp(-0.3 * layer)``, with layers counted from 0 on.
    eps : float
        Of the norm.
    {names}
        As `attention_forward` explains them; both attentions get all of them, so that a
        `dropout_mask` drops cells of the difference. The norm undoes the size of a `head_gate`.

    Returns
    -------
    out : (B, H, T_q, d_v) array, or of lower rank
        Of each head; to be merged and projected as in multi-head attention.
    cache : DifferentialCache

    Notes
    -----
    Twice the operations of attention with d_k = d; keys and values take as many bytes as those of
    a head with d_k = d_v = 2 d. A row that sees nothing is 0. Source: Ye et al. 2024,
    *Differential Transformer*, eq. 1 to 3. Derivation: ``docs/differential.md``.

    Examples
    --------
    >>> q1, k1, q2, k2 = np.ones((4, 2, 6, 5, 3))
    >>> params = DifferentialParams(*np.zeros((4, 3)))
    >>> out, cache = differential_attention_forward(
    ...     q1, k1, q2, k2, np.ones((2, 6, 5, 6)), params=params, lambda_init=0.2)
    >>> out.shape, cache.weights.sum(axis=-1).round(3)[0, 0]
    ((2, 6, 5, 6), array([0.8, 0.8, 0.8, 0.8, 0.8]))
    """
    if not isinstance(params, DifferentialParams):
        raise ConfigError(f"params: expected DifferentialParams; got {type(params).__name__}")
    _check_inputs(params.gain, q1=q1, k1=k1, v=v, q2=q2, k2=k2)
    lambda_init = check_number("lambda_init", lambda_init)
    *lambdas, gain = params
    with backend(options.pop("backend", None)):
        # 1. attend twice
        with _inside("first"):
            out_1, first = attention_forward(q1, k1, v, **options)
        with _inside("second"):
            out_2, second = attention_forward(q2, k2, v, **options)

        # 2. and 3. subtract a share of the second
        difference, of_difference = DIFFERENCE.forward(
            out_1=out_1, out_2=out_2, lambda_init=lambda_init,
            **dict(zip(DifferentialParams._fields, lambdas, strict=False)),
        )  # fmt: skip

        # 4. norm each head by itself
        with renamed(x="difference", out="normed", D="d_v"):
            normed, norm = rms_norm_forward(difference, gain, eps=eps)

    # 5. scale: what is left of a row at first
    out = (1 - lambda_init) * normed
    constant("lambda_init", lambda_init)
    step("out", out, axes_of(out, "... d_v"), "(1 - lambda_init) * normed")
    return out, DifferentialCache(first, second, of_difference, norm, lambda_init)


def differential_attention_backward(d_out: Array, cache: DifferentialCache) -> DifferentialGrads:
    """Pull a gradient back through differential attention: forward's steps, last to first.

    Parameters
    ----------
    d_out : (B, H, T_q, d_v) float array, or of lower rank
    cache : DifferentialCache

    Returns
    -------
    DifferentialGrads
        ``d_q1, d_k1, d_q2, d_k2, d_v, d_params, d_bias, d_sink, d_head_gate``; `d_v` and
        those of options are sums over both attentions.

    Examples
    --------
    >>> q1, k1, q2, k2 = np.ones((4, 2, 6, 5, 3))
    >>> params = DifferentialParams(*np.zeros((4, 3)))
    >>> out, cache = differential_attention_forward(
    ...     q1, k1, q2, k2, np.ones((2, 6, 5, 6)), params=params, lambda_init=0.2)
    >>> grads = differential_attention_backward(np.ones_like(out), cache)
    >>> grads.d_q1.shape, grads.d_v.shape, grads.d_params.lambda_q1.shape
    ((2, 6, 5, 3), (2, 6, 5, 6), (3,))
    """
    check_type("cache", cache, DifferentialCache, "differential_attention_forward")
    x_hat = cache.norm.x_hat
    d_out = as_gradient("d_out", d_out, x_hat.shape, x_hat.dtype)
    axes = axes_of(d_out, "... d_v")

    # 5. out = (1 - lambda_init) * normed
    d_normed = (1 - cache.lambda_init) * d_out
    step("d_out", d_out, axes)
    constant("lambda_init", cache.lambda_init)
    step("d_normed", d_normed, axes, "(1 - lambda_init) * d_out")

    # 4. normed = norm(difference)
    with renamed(x="difference", out="normed", D="d_v"):
        d_difference, d_gain = rms_norm_backward(d_normed, cache.norm)

    # 3. and 2. difference = out_1 - share * out_2
    d_out_1, d_out_2, *d_lambdas = DIFFERENCE.backward(d_difference, cache.difference)

    # 1. out_1 = attention(q1, k1, v), out_2 = attention(q2, k2, v): both read v and the options
    with _inside("second"):
        second = attention_backward(d_out_2, cache.second)
    with _inside("first"):
        first = attention_backward(d_out_1, cache.first)
    d_v = first.d_v + second.d_v
    d_options = [
        None if one is None or other is None else one + other
        for one, other in zip(first[3:], second[3:], strict=True)
    ]
    _record_sums([d_v, *d_options])
    return DifferentialGrads(
        first.d_q, first.d_k, second.d_q, second.d_k, d_v,
        DifferentialParams._make([*d_lambdas, d_gain]), *d_options,
    )  # fmt: skip


def differential_attention_jvp(tangents: Any, cache: DifferentialCache) -> Array:
    """Push tangents through differential attention: forward's steps, first to last.

    Parameters
    ----------
    tangents : tuple or dict
        In the order of the gradients, ``q1, k1, q2, k2, v, params, bias, sink, head_gate``, or by
        these names. Those of params are DifferentialParams, or a dict by the names of its fields.
        None, or a missing one, does not move.
    cache : DifferentialCache

    Returns
    -------
    out_dot : (B, H, T_q, d_v) array, or of lower rank
        How fast the output moves.

    Examples
    --------
    >>> q1, k1, q2, k2 = np.ones((4, 2, 6, 5, 3))
    >>> params = DifferentialParams(*np.zeros((4, 3)), np.ones(6))
    >>> out, cache = differential_attention_forward(
    ...     q1, k1, q2, k2, np.ones((2, 6, 5, 6)), params=params, lambda_init=0.2)
    >>> out_dot = differential_attention_jvp({"params": {"gain": np.ones(6)}}, cache)
    >>> np.array_equal(out_dot, out)  # linear in the gain
    True
    """
    check_type("cache", cache, DifferentialCache, "differential_attention_forward")
    dots, params_dot = _tangents(tangents, cache)
    of_both = [dots[name] for name in ("v", "bias", "sink", "head_gate")]

    # 1. out_1 = attention(q1, k1, v), out_2 = attention(q2, k2, v)
    with _inside("first"):
        out_1_dot, _ = attention_jvp((dots["q1"], dots["k1"], *of_both), cache.first)
    with _inside("second"):
        out_2_dot, _ = attention_jvp((dots["q2"], dots["k2"], *of_both), cache.second)

    # 2. and 3. difference = out_1 - share * out_2
    gain_dot = params_dot.pop("gain")
    moving = {"out_1": out_1_dot, "out_2": out_2_dot, **params_dot}
    difference_dot = DIFFERENCE.jvp(moving, cache.difference)

    # 4. normed = norm(difference)
    normed_dot = rms_norm_jvp((difference_dot, gain_dot), cache.norm)

    # 5. out = (1 - lambda_init) * normed
    return (1 - cache.lambda_init) * normed_dot


def _tangents(tangents: Any, cache: DifferentialCache) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tangents of the inputs and options by name, and those of the params."""
    first, second, difference = cache.first.inputs, cache.second.inputs, cache.difference
    arrays = {
        "q1": first.q, "k1": first.k, "q2": second.q, "k2": second.k, "v": first.v,
        "bias": first.bias, "sink": first.sink, "head_gate": first.head_gate,
    }  # fmt: skip
    params = {
        name: getattr(difference, name, cache.norm.gain) for name in DifferentialParams._fields
    }
    return tangents_with_params(
        tangents, DifferentialGrads._fields, shapes_of(arrays), shapes_of(params), first.q.dtype
    )


def _check_inputs(gain: Any, **arrays: Any) -> None:
    """Check that both attentions have the same sizes; the rest is theirs to check."""
    sizes: dict[str, int] = {}
    q1 = as_float_array("q1", arrays["q1"])
    if q1.ndim not in AXES:
        raise ShapeError(f"q1: expected (B, H, T_q, d), (B, T_q, d) or (T_q, d); got {q1.shape}")
    for name, array in arrays.items():
        axes = getattr(AXES[q1.ndim], name[0])
        to_match = "" if name == "q1" else f"q1 {q1.shape}"
        check_shape(name, as_float_array(name, array), axes, sizes, to_match=to_match)
    if gain is not None:
        check_shape("gain", as_float_array("gain", gain), "d_v", sizes, to_match="v")


@contextmanager
def _inside(place: str) -> Iterator[None]:
    """Record what runs in the block under the name of one of the two attentions."""
    watcher = WATCHER.get()
    with watching(None if watcher is None else Relay(watcher, prefix=f"{place}.")):
        yield


def _record_sums(sums: list[Array | None]) -> None:
    """Record the gradients of what both attentions read."""
    for name, total in zip(AttentionGrads._fields[2:], sums, strict=True):
        if total is not None:
            axes = " ".join(f"{name}_{i}" for i in range(total.ndim))
            step(name, total, axes, f"first.{name} + second.{name}")


DIFFERENCE = Pair(
    difference_steps,
    difference_steps_backward,
    difference_steps_jvp,
    DifferenceCache,
    DifferenceGrads,
    inputs={"lambda_q1": "d", "lambda_k1": "d", "lambda_q2": "d", "lambda_k2": "d",
            "out_1": "", "out_2": ""},
    computes="power_1 power_2 share difference",
    like="out_2",
    shapes=lambda cache: {
        "out_1": cache.out_2.shape, "out_2": cache.out_2.shape,
        **{f"lambda_{name}": cache.lambda_q1.shape for name in ("q1", "k1", "q2", "k2")},
    },
    records=[
        ("out_1", "... d_v", ""),
        ("out_2", "... d_v", ""),
        *((f"lambda_{letter}{i}", "d") for i in (1, 2) for letter in "qk"),
        ("lambda_init", ""),
        ("power_1", "", "np.exp((lambda_q1 * lambda_k1).sum())"),
        ("power_2", "", "np.exp((lambda_q2 * lambda_k2).sum())"),
        ("share", "", "power_1 - power_2 + lambda_init"),
        ("difference", "... d_v", "out_1 - share * out_2"),
    ],
    records_backward=[
        ("d_difference", "... d_v", ""),
        ("d_out_1", "... d_v", "d_difference"),
        ("d_out_2", "... d_v", "-share * d_difference"),
        ("d_lambda_q1", "d", "-(d_difference * out_2).sum() * power_1 * lambda_k1"),
        ("d_lambda_k1", "d", "-(d_difference * out_2).sum() * power_1 * lambda_q1"),
        ("d_lambda_q2", "d", "(d_difference * out_2).sum() * power_2 * lambda_k2"),
        ("d_lambda_k2", "d", "(d_difference * out_2).sum() * power_2 * lambda_q2"),
    ],
)  # fmt: skip
