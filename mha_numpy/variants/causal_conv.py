"""A short causal convolution of each feature by itself, forward and backward, with its state.

Before linear attention it lets each token see the few before it.
"""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_choice, check_type
from mha_numpy.core.pair import Pair, Records, Values, as_gradient, plus
from mha_numpy.core.tangents import Shapes
from mha_numpy.dtypes import Array
from mha_numpy.errors import ShapeError

ACTIVATIONS = ("none", "silu")


def causal_conv_steps(
    x: Array, w: Array, b: Array | None, state: Array, activation: str
) -> tuple[Array, Array, Array | None, Array]:
    """Sum up each token (..., T, D) and the K - 1 before it, feature by feature, weighted by w."""
    T = x.shape[-2]
    # 1. the tokens before the first are the state
    padded = np.concatenate([state, x], axis=-2)  # (..., K - 1 + T, D)

    # 2. convolve: w[-1] meets the token itself, w[0] the one K - 1 before it
    conv = sum(w[j] * padded[..., j : j + T, :] for j in range(len(w)))
    conv = conv if b is None else conv + b

    # 3. SiLU
    if activation == "none":
        return padded, conv, None, conv
    share = (1 + np.tanh(conv / 2)) / 2  # the sigmoid, which does not overflow like this
    return padded, conv, share, conv * share


def causal_conv_steps_backward(
    d_out: Array, d_final_state: Array | None, padded: Array, w: Array, has_bias: bool, conv: Array,
    share: Array | None,
) -> tuple[Array, Array, Array | None, Array]:  # fmt: skip
    """Pull back to x, w, b and the first state, from the output and the last state."""
    T = d_out.shape[-2]
    # 3. out = conv * share, with share = sigmoid(conv)
    d_conv = d_out if share is None else d_out * share * (1 + conv * (1 - share))

    # 2. conv = sum_j w[j] * padded[j : j + T] + b
    tokens = tuple(range(d_conv.ndim - 1))
    d_b = d_conv.sum(axis=tokens) if has_bias else None
    d_w = np.empty_like(w)
    d_padded = np.zeros(padded.shape, d_conv.dtype)
    for j in range(len(w)):
        d_w[j] = (d_conv * padded[..., j : j + T, :]).sum(axis=tokens)
        d_padded[..., j : j + T, :] += w[j] * d_conv

    # 1. padded = state, then x; the last state is its end
    if d_final_state is not None:
        d_padded[..., T:, :] += d_final_state
    before = len(w) - 1
    return d_padded[..., before:, :], d_w, d_b, d_padded[..., :before, :]


def causal_conv_steps_jvp(
    x_dot: Array, w_dot: Array, b_dot: Array | None, state_dot: Array, padded: Array, w: Array,
    conv: Array, share: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    """Push the tangents of x, w, b and the first state to the output and the last state."""
    T = x_dot.shape[-2]
    # 1. padded = state, then x; the last state is its end
    padded_dot = np.concatenate([state_dot, x_dot], axis=-2)

    # 2. conv = sum_j w[j] * padded[j : j + T] + b
    conv_dot = sum(
        w[j] * padded_dot[..., j : j + T, :] + w_dot[j] * padded[..., j : j + T, :]
        for j in range(len(w))
    )
    conv_dot = conv_dot if b_dot is None else conv_dot + b_dot

    # 3. out = conv * share, with share = sigmoid(conv)
    out_dot = conv_dot if share is None else conv_dot * share * (1 + conv * (1 - share))
    return out_dot, padded_dot[..., T:, :]


class CausalConvCache(NamedTuple):
    """What `causal_conv_backward` needs, and the state to continue from."""

    padded: Array  # (..., K - 1 + T, D)
    w: Array  # (K, D)
    has_bias: bool
    conv: Array  # (..., T, D)
    share: Array | None  # (..., T, D)
    d_final_state: Array | None  # backward's last argument
    dtype: np.dtype[Any]

    @property
    def final_state(self) -> Array:
        """The last K - 1 tokens, (..., K - 1, D), in the dtype of the computation."""
        return self.padded[..., self.conv.shape[-2] :, :]


class CausalConvGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_x: Array  # (..., T, D)
    d_w: Array  # (K, D)
    d_b: Array | None  # (D,)
    d_state: Array  # (..., K - 1, D): of the first state, of zeros if none was passed


class CausalConvTangents(NamedTuple):
    """Tangents of the output and of the state to continue from."""

    out_dot: Array  # (..., T, D)
    final_state_dot: Array  # (..., K - 1, D)


def causal_conv_forward(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    state: Array | None = None,
    activation: str = "none",
) -> tuple[Array, CausalConvCache]:
    """Mix each token with the K - 1 before it: ``conv_t = sum_j w_j * x_(t - K + 1 + j) + b``.

    Parameters
    ----------
    x : (..., T, D) float array
        Any number of leading axes; (B, T, D) for tokens.
    w : (K, D) float array
        K params for each feature; the last meets the token itself. PyTorch stores (D, 1, K).
    b : (D,) float array, optional
    state : (..., K - 1, D) float array, optional
        The tokens before the first, such as the ``final_state`` of a cache. Default: zeros.
    activation : {"none", "silu"}
        What follows: nothing, or ``conv * sigmoid(conv)``.

    Returns
    -------
    out : (..., T, D) array
    cache : CausalConvCache
        With ``cache.final_state``, to continue from.

    Notes
    -----
    A token takes 2 K D floating-point operations. Sources: Gu and Dao 2023, *Mamba*, section 3.4;
    before a delta rule: Yang et al. 2024, *Parallelizing linear transformers with the delta rule*.

    Examples
    --------
    >>> x, w = np.array([[1.0], [2.0], [3.0]]), np.array([[10.0], [1.0]])
    >>> causal_conv_forward(x, w)[0]  # ten times the token before, and the token
    array([[ 1.],
           [12.],
           [23.]])
    """
    return CAUSAL_CONV.forward(
        x=x, w=w, b=b, state=state, activation=activation, d_final_state=None
    )


def causal_conv_backward(
    d_out: Array, cache: CausalConvCache, *, d_final_state: Array | None = None
) -> CausalConvGrads:
    """Pull a gradient back through the convolution: each token's goes to it and K - 1 before it.

    `d_final_state` is the gradient of the final state, from what continued from it.

    Examples
    --------
    >>> x, w = np.array([[1.0], [2.0], [3.0]]), np.array([[10.0], [1.0]])
    >>> out, cache = causal_conv_forward(x, w)
    >>> causal_conv_backward(np.ones((3, 1)), cache).d_x  # the last token has none after it
    array([[11.],
           [11.],
           [ 1.]])
    """
    check_type("cache", cache, CausalConvCache, "causal_conv_forward")
    cache = with_final_gradient(cache, d_final_state)
    return CAUSAL_CONV.backward(d_out, cache)


def with_final_gradient(cache: Any, d_final_state: Array | None) -> Any:
    """Return a cache that contains the gradient of its final state, checked."""
    if d_final_state is None:
        return cache._replace(d_final_state=None)
    last = cache.final_state
    d_final_state = as_gradient("d_final_state", d_final_state, last.shape, last.dtype)
    return cache._replace(d_final_state=d_final_state)


def causal_conv_jvp(tangents: Any, cache: CausalConvCache) -> CausalConvTangents:
    """Push tangents through the convolution, in the order x, w, b, state; or by name.

    Examples
    --------
    >>> w = np.array([[1.0], [2.0]])
    >>> out, cache = causal_conv_forward(np.ones((4, 1)), w, activation="none")
    >>> causal_conv_jvp({"x": np.array([[1.0], [0.0], [0.0], [0.0]])}, cache).out_dot.ravel()
    array([2., 1., 0., 0.])
    """
    return CAUSAL_CONV.jvp(tangents, cache)


def _check(values: Values) -> None:
    x, w, state = values["x"], values["w"], values["state"]
    before = (*x.shape[:-2], len(w) - 1, w.shape[1])
    if x.ndim < 2 or len(w) == 0:
        raise ShapeError(f"x, w: expected (..., T, D) and (K >= 1, D); got {x.shape}, {w.shape}")
    values["is_first"] = state is None
    if state is None:
        values["state"] = np.zeros(before, x.dtype)
    elif state.shape != before:
        raise ShapeError(
            f"state: expected (..., K - 1, D) = {before} to match x {x.shape} and w {w.shape}; "
            f"got {state.shape}"
        )
    values["has_bias"] = values["b"] is not None


def _axes(x: Array, last: str) -> str:
    """Name the axes: one before the last two is that of the batch."""
    leading = ["B"] if x.ndim == 3 else [f"N_{i}" for i in range(x.ndim - 2)]
    return " ".join([*leading, last])


def _records(values: Values) -> Records:
    x, w = values["x"], values["w"]
    axes, T = _axes(x, "T D"), x.shape[-2]
    yield "x", axes, ""
    yield "w", "K D"
    yield "b", "D"
    state = "state", _axes(x, "T_before D")
    yield state if values["is_first"] else (*state, "")
    yield "padded", _axes(x, "T_padded D"), "np.concatenate([state, x], axis=-2)"
    total = " + ".join(f"w[{j}] * padded[..., {j}:{j + T}, :]" for j in range(len(w)))
    has_silu = values["share"] is not None
    yield "conv" if has_silu else "out", axes, total + plus("b", values["b"])
    yield "share", axes, "1 / (1 + np.exp(-conv))"
    if has_silu:
        yield "out", axes, "conv * share"


def _records_backward(values: Values) -> Records:
    d_out, conv, share, w = (values[name] for name in ("d_out", "conv", "share", "w"))
    (*leading, T, _), K, d_conv = conv.shape, len(w), "d_out"
    axes, over = _axes(conv, "T D"), tuple(range(conv.ndim - 1))
    yield "d_out", axes, ""
    yield "d_final_state", _axes(conv, "T_before D"), ""
    if share is not None:
        d_conv, values["d_conv"] = "d_conv", d_out * share * (1 + conv * (1 - share))
        yield "d_conv", axes, "d_out * share * (1 + conv * (1 - share))"
    rows = [f"({d_conv} * padded[..., {j}:{j + T}, :]).sum(axis={over})" for j in range(K)]
    yield "d_w", "K D", f"np.stack([{', '.join(rows)}])"
    yield "d_b", "D", f"{d_conv}.sum(axis={over})"
    pads = [(f"w[{j}] * {d_conv}", (j, K - 1 - j)) for j in range(K)]
    if values["d_final_state"] is not None:
        pads.append(("d_final_state", (T, 0)))
    whole = [f"np.pad({x}, {[*[(0, 0)] * len(leading), pad, (0, 0)]})" for x, pad in pads]
    values["d_padded"] = np.concatenate([values["d_state"], values["d_x"]], axis=-2)
    yield "d_padded", _axes(conv, "T_padded D"), " + ".join(whole)
    yield "d_x", axes, f"d_padded[..., {K - 1}:, :]"
    yield "d_state", _axes(conv, "T_before D"), f"d_padded[..., :{K - 1}, :]"


def _shapes(cache: CausalConvCache) -> Shapes:
    (*leading, T, D), K = cache.conv.shape, len(cache.w)
    b = (D,) if cache.has_bias else None
    return {"x": (*leading, T, D), "w": (K, D), "b": b, "state": (*leading, K - 1, D)}


CAUSAL_CONV = Pair(
    causal_conv_steps,
    causal_conv_steps_backward,
    causal_conv_steps_jvp,
    CausalConvCache,
    CausalConvGrads,
    inputs={"w": "K D", "x": "... T D", "b": "D", "state": ""},
    tangents=CausalConvTangents,
    optional=("b", "state"),
    options={"activation": lambda name, value: check_choice(name, value, ACTIVATIONS)},
    check=_check,
    computes="padded conv share out",
    like="conv",
    shapes=_shapes,
    records=_records,
    records_backward=_records_backward,
)
