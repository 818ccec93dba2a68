"""Rotary position embedding (RoPE), forward, forward mode and backward."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_count, check_flag
from mha_numpy.core.pair import Pair, Values
from mha_numpy.core.rope_scaling import Scaling, check_scaling, rope_frequencies
from mha_numpy.dtypes import Array, as_array
from mha_numpy.errors import ConfigError, DTypeError, ShapeError, describe


def rope_steps(
    x: Array, positions: Array, frequencies: Array, attention_factor: float, interleaved: bool
) -> tuple[Array, Array, Array]:
    """Rotate each pair of features by an angle that grows with the position."""
    # 1. the angle of each pair at each position
    angles = positions[..., None] * frequencies  # (T, rotary_dim / 2)
    # float64 up to here: a large position times a frequency would lose digits in float32
    cos, sin = ((attention_factor * f(angles)).astype(x.real.dtype) for f in (np.cos, np.sin))

    # 2. rotate
    return cos, sin, _rotate(x, cos, sin, interleaved)


def rope_steps_backward(d_out: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """Pull the gradient back to x: rotate it by the opposite angle."""
    # 2. out = m R(a) x, so d_x = m R(a)^T d_out = m R(-a) d_out; m is in cos and sin
    return _rotate(d_out, cos, -sin, interleaved)


def rope_steps_jvp(x_dot: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """Push the tangent of x forward: rotate it by the same angle."""
    # 2. out = m R(a) x
    return _rotate(x_dot, cos, sin, interleaved)


def _rotate(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """Rotate each pair of the leading features; the features after them stay as they are."""
    half = cos.shape[-1]
    if interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


class RopeOptions(NamedTuple):
    """How to rotate; the keyword arguments of `rope_forward`, except the positions."""

    base: float = 10000.0
    rotary_dim: int | None = None
    interleaved: bool = False
    scaling: Scaling | None = None
    length: float | None = None

    def __repr__(self) -> str:
        """Name what differs from the default."""
        options, defaults = self._asdict(), self._field_defaults
        given = [f"{name}={options[name]!r}" for name in options if options[name] != defaults[name]]
        return f"RopeOptions({', '.join(given)})"


class RopeCache(NamedTuple):
    """What `rope_backward` needs."""

    cos: Array  # broadcasts to (..., T, rotary_dim / 2); times the attention factor, and so sin
    sin: Array
    interleaved: bool
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class RopeGrads(NamedTuple):
    """The gradient of rope's one differentiable input."""

    d_x: Array


def rope_forward(
    x: Array,
    *,
    positions: Array | None = None,
    base: float = 10000.0,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    scaling: Scaling | None = None,
    length: float | None = None,
) -> tuple[Array, RopeCache]:
    """Rotate pairs of features by angles proportional to the token's position.

    ``(x1, x2) -> (x1 cos a - x2 sin a, x2 cos a + x1 sin a)`` with
    ``a = position * base^(-2 i / rotary_dim)`` for pair i, if nothing is scaled. The product of a
    rotated query and a rotated key depends only on their distance.

    Parameters
    ----------
    x : (B, H, T, d), (B, T, d) or (T, d) float array
        Queries or keys.
    positions : (T,) or (B, T) array of numbers, optional
        Default ``0, 1, ..., T - 1``.
    base : float
        Larger is slower: the wavelengths grow from 2 pi towards ``2 pi base``, in tokens.
    rotary_dim : int, optional
        Rotate only the first `rotary_dim` features, an even number; default all d.
    interleaved : bool
        Which features form pair i: 2 i and 2 i + 1 (the paper, GPT-J), or else i and
        ``i + rotary_dim / 2`` (GPT-NeoX, Llama in Hugging Face's layout).
    scaling : Scaling, optional
        Slower rotations for longer texts, such as ``YarnScaling(4.0, 32768)``: see
        `rope_frequencies`. Cosines and sines are multiplied by its attention factor.
    length : float, optional
        Length of the text, for a scaling that depends on it; default: the last position + 1.
        Queries and keys need the same, and so do all calls that share a KV cache.

    Returns
    -------
    out : array like `x`
    cache : RopeCache

    Notes
    -----
    Both layouts are the same map up to a permutation of features; params trained for one give
    nonsense in the other. Source: Su et al. 2021, *RoFormer*, eq. 34. Derivation:
    ``docs/rope.md``.

    Examples
    --------
    >>> out, cache = rope_forward(np.array([[1.0, 0.0], [1.0, 0.0]]))
    >>> out.round(4)  # token 1 is turned by 1 radian
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    return ROPE.forward(
        x=x, positions=positions, base=base, rotary_dim=rotary_dim, interleaved=interleaved,
        scaling=scaling, length=length,
    )  # fmt: skip


def rope_backward(d_out: Array, cache: RopeCache) -> RopeGrads:
    """Pull a gradient back through the rotation: rotate it by the opposite angle.

    A rotation is orthogonal: its transpose is its inverse. An attention factor is a factor here
    too.

    Examples
    --------
    >>> x = np.arange(6.0).reshape(3, 2)
    >>> out, cache = rope_forward(x)
    >>> np.allclose(rope_backward(out, cache).d_x, x)
    True
    """
    return ROPE.backward(d_out, cache)


def rope_jvp(x_dot: Array, cache: RopeCache) -> Array:
    """Push a tangent through the rotation, which is linear: it is rotated as `x` is.

    Examples
    --------
    >>> x = np.arange(6.0).reshape(3, 2)
    >>> out, cache = rope_forward(x)
    >>> np.array_equal(rope_jvp(x, cache), out)
    True
    """
    return ROPE.jvp(x_dot, cache)


def check_rope(rope: Any, d_k: int) -> None:
    """Check the options of a layer of heads that are d_k wide."""
    if not isinstance(rope, RopeOptions):
        raise ConfigError(f"rope: expected RopeOptions(...) or None; got {describe(rope)}")
    if rope.rotary_dim is None and d_k % 2:
        raise ConfigError(f"rope: expected an even d_k, or rotary_dim= given; got d_k={d_k}")
    check_scaling(rope.scaling, _check_rotary_dim(rope.rotary_dim, d_k), rope.base)


def _check_rotary_dim(rotary_dim: Any, d: int) -> int:
    if rotary_dim is None and d % 2:
        raise ShapeError(f"x: expected an even last axis to pair its features; got d={d}")
    rotary_dim = d if rotary_dim is None else check_count("rotary_dim", rotary_dim, least=0)
    if rotary_dim % 2 or rotary_dim > d:
        raise ConfigError(f"rotary_dim: expected an even number up to d={d}; got {rotary_dim}")
    return rotary_dim


def text_length(*positions: Array) -> float:
    """Return the last position + 1; NaN is no position."""
    return float(max(np.fmax.reduce(at, axis=None, initial=-1) for at in positions) + 1)


def check_positions(positions: Any, shape: tuple[int, ...], name: str = "positions") -> Array:
    """Return positions that broadcast to x without its last axis, in float64."""
    B, T = shape[0], shape[-2]
    if positions is None:
        return np.arange(T, dtype=np.float64)
    allowed = f"(T={T},)" if len(shape) == 2 else f"(T={T},) or (B={B}, T={T})"
    positions = as_array(name, positions, f"numbers of shape {allowed}", DTypeError)
    if positions.dtype.kind not in "iuf":
        raise DTypeError(f"{name}: expected numbers of shape {allowed}; got {positions.dtype}")
    per_sequence = len(shape) > 2 and positions.shape == (B, T)
    if positions.shape != (T,) and not per_sequence:
        raise ShapeError(f"{name}: expected {allowed} to match x {shape}; got {positions.shape}")
    positions = positions.astype(np.float64)
    return positions[:, None] if per_sequence and len(shape) == 4 else positions


def _check(values: Values) -> None:
    shape = values["shape"] = values["x"].shape
    if len(shape) not in (2, 3, 4):
        raise ShapeError(f"x: expected (B, H, T, d), (B, T, d) or (T, d); got {shape}")
    values["rotary_dim"] = _check_rotary_dim(values["rotary_dim"], shape[-1])
    positions = values["positions"] = check_positions(values["positions"], shape)
    length = values["length"]
    if length is None and values["scaling"] is not None:
        length = text_length(positions)
    values["frequencies"], values["attention_factor"] = rope_frequencies(
        values["rotary_dim"], base=values["base"], scaling=values["scaling"], length=length
    )


ROPE = Pair(
    rope_steps,
    rope_steps_backward,
    rope_steps_jvp,
    RopeCache,
    RopeGrads,
    inputs={"x": ""},
    options={"interleaved": check_flag},
    check=_check,
    computes="cos sin out",
    like=lambda cache: (cache.shape, cache.cos.dtype),
    shapes=lambda cache: {"x": cache.shape},
)
