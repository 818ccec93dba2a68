"""The learned arrays of multi-head attention, and the checks of its inputs."""

from typing import Any, NamedTuple

from mha_numpy.checks import check_count, check_shape
from mha_numpy.core.rope import RopeOptions, check_rope
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError


class MultiHeadParams(NamedTuple):
    """Matrices (inputs, outputs) and biases of the four projections; also their gradients.

    Block h of the columns of w_q, w_k and w_v, and block h of the rows of w_o, belong to head h.
    Any bias may be None.
    """

    w_q: Array  # (D, H*d_k)
    b_q: Array | None  # (H*d_k,)
    w_k: Array  # (kdim, H_kv*d_k)
    b_k: Array | None  # (H_kv*d_k,)
    w_v: Array  # (vdim, H_kv*d_v)
    b_v: Array | None  # (H_kv*d_v,)
    w_o: Array  # (H*d_v, D_out)
    b_o: Array | None  # (D_out,)


AXES = {  # in the order in which they are checked
    "w_q": "D H*d_k", "b_q": "H*d_k", "w_k": "kdim H_kv*d_k", "b_k": "H_kv*d_k",
    "w_v": "vdim H_kv*d_v", "b_v": "H_kv*d_v", "w_o": "H*d_v D_out", "b_o": "D_out",
}  # fmt: skip


class MultiHeadInputs(NamedTuple):
    """Checked inputs, defaults filled in."""

    x_q: Array
    x_k: Array
    x_v: Array
    params: MultiHeadParams
    num_heads: int
    num_kv_heads: int
    rope: RopeOptions | None
    extra_k: Array | None
    extra_v: Array | None
    is_given: tuple[bool, bool]  # x_k, x_v


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
) -> MultiHeadInputs:
    """Check the inputs and params, and that they fit each other; raise the first error found."""
    H = check_count("num_heads", num_heads)
    H_kv = H if num_kv_heads is None else check_count("num_kv_heads", num_kv_heads)
    if H % H_kv:
        raise ConfigError(f"num_kv_heads: expected a divisor of num_heads={H}; got {H_kv}")
    if not isinstance(params, MultiHeadParams):
        raise ConfigError(f"params: expected MultiHeadParams; got {type(params).__name__}")

    is_given = (x_k is not None, x_v is not None)
    x_q = as_float_array("x_q", x_q)
    x_k = x_q if x_k is None else as_float_array("x_k", x_k)
    x_v = x_k if x_v is None else as_float_array("x_v", x_v)
    sizes = {"H": H, "H_kv": H_kv}
    check_shape("x_q", x_q, "B T_q D", sizes)
    check_shape("x_k", x_k, "B T_k kdim", sizes, to_match=f"x_q {x_q.shape}")
    check_shape("x_v", x_v, "B T_k vdim", sizes, to_match=f"x_k {x_k.shape}")
    params = _check_params(params, sizes)
    if extra_k is not None or extra_v is not None:
        extra_k, extra_v = _check_extra(extra_k, extra_v, sizes)
    if rope is not None:
        check_rope(rope, sizes["d_k"])
    return MultiHeadInputs(x_q, x_k, x_v, params, H, H_kv, rope, extra_k, extra_v, is_given)


def _check_params(params: MultiHeadParams, sizes: dict[str, int]) -> MultiHeadParams:
    """Check each array's shape; the widths of a head follow from w_q and w_v."""
    arrays: dict[str, Any] = {
        name: array if array is None and name.startswith("b_") else as_float_array(name, array)
        for name, array in params._asdict().items()
    }
    sizes["d_k"] = _head_width("w_q", arrays["w_q"], "H", sizes)
    sizes["d_v"] = _head_width("w_v", arrays["w_v"], "H_kv", sizes)
    for name, axes in AXES.items():
        if arrays[name] is not None:
            to_match = "the inputs and heads" if name.startswith("w_") else f"w_{name[2:]}"
            check_shape(name, arrays[name], axes, sizes, to_match=to_match)
    return MultiHeadParams(**arrays)


def _check_extra(extra_k: Any, extra_v: Any, sizes: dict[str, int]) -> tuple[Array, Array]:
    """Check the extra keys and values: the same number of both."""
    extra_k, extra_v = as_float_array("extra_k", extra_k), as_float_array("extra_v", extra_v)
    check_shape("extra_k", extra_k, "E H_kv*d_k", sizes, to_match="w_k")
    check_shape("extra_v", extra_v, "E H_kv*d_v", sizes, to_match="w_v and extra_k")
    return extra_k, extra_v


def _head_width(name: str, w: Array, heads: str, sizes: dict[str, int]) -> int:
    """Return the width that the columns of `w` give each head."""
    check_shape(name, w, "inputs outputs", {})
    if w.shape[1] % sizes[heads]:
        raise ShapeError(
            f"{name}: expected {heads}={sizes[heads]} to divide its columns; got {w.shape}"
        )
    return int(w.shape[1]) // sizes[heads]
