"""The learned arrays of latent attention, and the checks of its inputs."""

from typing import Any, NamedTuple

from mha_numpy.checks import check_count, check_shape
from mha_numpy.core.rope import RopeOptions, check_rope
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError


class LatentAttentionParams(NamedTuple):
    """Matrices (inputs, outputs) and gains of latent attention; also their gradients.

    Block h of the columns of w_q, w_k_up and w_v_up, and block h of the rows of w_o, belong to head
    h. In a block of w_q, the first d_nope columns are not rotated, and the last d_rope are. The
    last d_rope columns of w_kv_down make the rotated key, which all heads share.
    """

    w_q_down: Array | None  # (D, d_cq): None if queries have no latent
    q_gain: Array | None  # (d_cq,): of the norm of that latent
    w_q: Array  # (d_cq, H*d_k), or (D, H*d_k) without a latent; d_k = d_nope + d_rope
    w_kv_down: Array  # (D, d_c + d_rope)
    kv_gain: Array  # (d_c,): of the norm of the latent
    w_k_up: Array  # (d_c, H*d_nope)
    w_v_up: Array  # (d_c, H*d_v)
    w_o: Array  # (H*d_v, D_out)


class LatentInputs(NamedTuple):
    """Checked inputs."""

    x: Array
    params: LatentAttentionParams
    num_heads: int
    d_nope: int
    d_rope: int
    rope: RopeOptions
    positions: Any  # None counts on from the tokens before
    eps: Any


def check_latent_inputs(
    x: Any, params: Any, num_heads: Any, rope: Any, positions: Any, eps: Any
) -> LatentInputs:
    """Check the input and the params, and that they fit each other; raise the first error found."""
    H = check_count("num_heads", num_heads)
    if not isinstance(params, LatentAttentionParams):
        raise ConfigError(f"params: expected LatentAttentionParams; got {type(params).__name__}")
    if (params.w_q_down is None) != (params.q_gain is None):
        raise ConfigError("params: expected both of w_q_down and q_gain, or None for both")
    x = as_float_array("x", x)
    sizes = {"H": H}
    check_shape("x", x, "B T D", sizes)
    given: dict[str, Any] = {
        name: None if array is None else as_float_array(name, array)
        for name, array in params._asdict().items()
    }
    of_queries = "D" if params.w_q_down is None else "d_cq"
    for name, axes in (
        ("w_q_down", "D d_cq"), ("q_gain", "d_cq"), ("kv_gain", "d_c"), ("w_kv_down", "D d_down"),
        ("w_k_up", "d_c H*d_nope"), ("w_v_up", "d_c H*d_v"), ("w_q", f"{of_queries} H*d_k"),
        ("w_o", "H*d_v D_out"),
    ):  # fmt: skip
        array, width = given[name], axes.rpartition("*")[2]
        if array is None and name in ("w_q_down", "q_gain"):
            continue
        if array is None:
            raise ConfigError(f"params: expected an array as {name}; got None")
        if width in ("d_nope", "d_v") and array.ndim == 2:
            if array.shape[1] % H:
                raise ShapeError(f"{name}: expected H={H} to divide its columns; got {array.shape}")
            sizes[width] = array.shape[1] // H
        check_shape(name, array, axes, sizes, to_match="x, the heads and the other params")
        if name == "w_kv_down":
            sizes["d_rope"] = sizes["d_down"] - sizes["d_c"]
            if sizes["d_rope"] < 0:
                raise ShapeError(
                    f"w_kv_down: expected (D, d_c + d_rope) with d_c={sizes['d_c']}, as kv_gain; "
                    f"got {array.shape}"
                )
        if name == "w_k_up":
            sizes["d_k"] = sizes["d_nope"] + sizes["d_rope"]
    check_rope(rope, sizes["d_rope"])
    checked = LatentAttentionParams(**given)
    return LatentInputs(x, checked, H, sizes["d_nope"], sizes["d_rope"], rope, positions, eps)
