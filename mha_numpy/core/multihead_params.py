"""The learned arrays of multi-head attention, and the checks of its inputs."""

from functools import lru_cache
from typing import Any, NamedTuple

from mha_numpy.checks import check_axes, check_count
from mha_numpy.core.qk_norm import GAIN_AXES, QKNormOptions, check_qk_norm
from mha_numpy.core.rope import RopeOptions, check_positions, check_rope
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError


class MultiHeadParams(NamedTuple):
    """Matrices (inputs, outputs) and biases of the four projections; also their gradients.

    Block h of the columns of w_q, w_k and w_v, and block h of the rows of w_o, belong to head h.
    Any bias may be None. `FullMultiHeadParams` has the params of options, too.
    """

    w_q: Array  # (D, H*d_k)
    b_q: Array | None  # (H*d_k,)
    w_k: Array  # (kdim, H_kv*d_k)
    b_k: Array | None  # (H_kv*d_k,)
    w_v: Array  # (vdim, H_kv*d_v)
    b_v: Array | None  # (H_kv*d_v,)
    w_o: Array  # (H*d_v, D_out)
    b_o: Array | None  # (D_out,)


class FullMultiHeadParams(NamedTuple):
    """`MultiHeadParams`, the gains for `qk_norm`, and an output gate; also their gradients.

    Examples
    --------
    >>> import numpy as np
    >>> w = np.ones((8, 8))
    >>> params = MultiHeadParams(w, None, w, None, w, None, w, None)
    >>> FullMultiHeadParams(*params, w_gate=np.ones((8, 4))).w_gate.shape
    (8, 4)
    """

    w_q: Array
    b_q: Array | None
    w_k: Array
    b_k: Array | None
    w_v: Array
    b_v: Array | None
    w_o: Array
    b_o: Array | None
    gain_q: Array | None = None  # (d_k,), or (H*d_k,) for a norm of the whole projection
    gain_k: Array | None = None  # (d_k,), or (H_kv*d_k,)
    w_gate: Array | None = None  # (D, H*d_v): a gate for each number; (D, H): for each head
    b_gate: Array | None = None  # (H*d_v,) or (H,)


AXES = {  # in the order in which they are checked
    "w_q": "D H*d_k", "b_q": "H*d_k", "w_k": "kdim H_kv*d_k", "b_k": "H_kv*d_k",
    "w_v": "vdim H_kv*d_v", "b_v": "H_kv*d_v", "w_o": "H*d_v D_out", "b_o": "D_out",
}  # fmt: skip
OPTIONAL = set(FullMultiHeadParams._fields) - {"w_q", "w_k", "w_v", "w_o"}


class MultiHeadInputs(NamedTuple):
    """Checked inputs, defaults filled in."""

    x_q: Array
    x_k: Array
    x_v: Array
    params: FullMultiHeadParams
    num_heads: int
    num_kv_heads: int
    rope: RopeOptions | None
    extra_k: Array | None
    extra_v: Array | None
    is_given: tuple[bool, bool]  # x_k, x_v
    params_kind: type[MultiHeadParams] | type[FullMultiHeadParams]  # as they were given
    qk_norm: QKNormOptions | None
    positions: Array | None  # of x_q, (T_q,) or (B, T_q); None counts on from q_offset
    key_positions: Array | None  # of x_k


def check_multi_head_inputs(
    x_q: Any,
    x_k: Any,
    x_v: Any,
    params: Any,
    num_heads: Any,
    num_kv_heads: Any,
    rope: Any,
    extra_k: Any,
    extra_v: Any,
    qk_norm: Any,
    positions: Any,
    key_positions: Any,
) -> MultiHeadInputs:
    """Check the inputs and params, and that they fit each other; raise the first error found."""
    H = check_count("num_heads", num_heads)
    H_kv = H if num_kv_heads is None else check_count("num_kv_heads", num_kv_heads)
    if H % H_kv:
        raise ConfigError(f"num_kv_heads: expected a divisor of num_heads={H}; got {H_kv}")
    if not isinstance(params, (MultiHeadParams, FullMultiHeadParams)):
        raise ConfigError(f"params: expected MultiHeadParams; got {type(params).__name__}")

    is_given = (x_k is not None, x_v is not None)
    x_q = as_float_array("x_q", x_q)
    x_k = x_q if x_k is None else as_float_array("x_k", x_k)
    x_v = x_k if x_v is None else as_float_array("x_v", x_v)
    if qk_norm is not None:
        check_qk_norm(qk_norm)
    kind, params = type(params), _check_params(FullMultiHeadParams(*params), qk_norm)
    if extra_k is not None or extra_v is not None:
        extra_k, extra_v = as_float_array("extra_k", extra_k), as_float_array("extra_v", extra_v)
    arrays = x_q, x_k, x_v, *params, extra_k, extra_v
    shapes = tuple([None if array is None else array.shape for array in arrays])
    d_k = _check_shapes(H, H_kv, None if qk_norm is None else qk_norm.place, shapes)
    if rope is not None:
        check_rope(rope, d_k)
    positions = _check_places("positions", positions, x_q, rope)
    key_positions = _check_places("key_positions", key_positions, x_k, rope)
    if key_positions is None and x_k is x_q:
        key_positions = positions
    return MultiHeadInputs(
        x_q, x_k, x_v, params, H, H_kv, rope, extra_k, extra_v, is_given, kind, qk_norm,
        positions, key_positions,
    )  # fmt: skip


def _check_places(name: str, positions: Any, x: Array, rope: RopeOptions | None) -> Array | None:
    """Check the positions of an input's tokens."""
    if positions is None:
        return None
    if rope is None:
        raise ConfigError(f"{name}: expected rope= with them, because nothing else reads them")
    return check_positions(positions, x.shape, name)


def _check_params(
    params: FullMultiHeadParams, qk_norm: QKNormOptions | None
) -> FullMultiHeadParams:
    """Check that they are arrays of floats, and that each has what reads it."""
    params = FullMultiHeadParams._make([
        array if array is None and name in OPTIONAL else as_float_array(name, array)
        for name, array in zip(FullMultiHeadParams._fields, params, strict=True)
    ])  # fmt: skip
    needs = {"gain_q": ("qk_norm", qk_norm), "gain_k": ("qk_norm", qk_norm),
             "b_gate": ("w_gate", params.w_gate)}  # fmt: skip
    for name, (needed, value) in needs.items():
        if value is None and getattr(params, name) is not None:
            raise ConfigError(f"{name}: expected {needed}= with it; got None")
    return params


@lru_cache(maxsize=256)  # for tiny arrays a look at all axes takes as long as attention
def _check_shapes(H: int, H_kv: int, norm_place: str | None, shapes: tuple[Any, ...]) -> int:
    """Check each array's shape, and return d_k; the widths of a head follow from w_q and w_v."""
    x_q, x_k, x_v, *of_params, extra_k, extra_v = shapes
    of = dict(zip(FullMultiHeadParams._fields, of_params, strict=True))
    sizes = {"H": H, "H_kv": H_kv}
    check_axes("x_q", x_q, "B T_q D", sizes)
    check_axes("x_k", x_k, "B T_k kdim", sizes, to_match=f"x_q {x_q}")
    check_axes("x_v", x_v, "B T_k vdim", sizes, to_match=f"x_k {x_k}")
    sizes["d_k"] = _head_width("w_q", of["w_q"], "H", sizes)
    sizes["d_v"] = _head_width("w_v", of["w_v"], "H_kv", sizes)
    all_axes = dict(AXES)
    if norm_place is not None:
        all_axes["gain_q"], all_axes["gain_k"] = GAIN_AXES[norm_place]
    if of["w_gate"] is not None:
        gates = "H" if of["w_gate"][1:] == (H,) else "H*d_v"
        all_axes |= {"w_gate": f"D {gates}", "b_gate": gates}
    for name, axes in all_axes.items():
        if of[name] is not None:
            kind, _, letter = name.partition("_")
            to_match = "the inputs and heads" if kind == "w" else f"w_{letter}"
            check_axes(name, of[name], axes, sizes, to_match=to_match)
    if extra_k is not None and extra_v is not None:  # the same number of both
        check_axes("extra_k", extra_k, "E H_kv*d_k", sizes, to_match="w_k")
        check_axes("extra_v", extra_v, "E H_kv*d_v", sizes, to_match="w_v and extra_k")
    return sizes["d_k"]


def _head_width(name: str, w: tuple[int, ...], heads: str, sizes: dict[str, int]) -> int:
    """Return the width that the columns of a matrix give each head."""
    check_axes(name, w, "inputs outputs", {})
    if w[1] % sizes[heads]:
        raise ShapeError(f"{name}: expected {heads}={sizes[heads]} to divide its columns; got {w}")
    return w[1] // sizes[heads]
