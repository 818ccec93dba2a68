"""Random inputs that the probes of several tasks share.

Large scores come from whole numbers and a width of 4, whose root is 2, so they are the same to the
last bit in any order of computation.
"""

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Inputs


def normal(rng: np.random.Generator, **shapes: tuple[int, ...]) -> Inputs:
    """Draw arrays by their names."""
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def random_mask(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Hide about a third, and all of row 0 of the first matrix."""
    mask = rng.random(shape) < 0.7
    mask[..., 1:, 0] = True
    mask[(0,) * (len(shape) - 1)] = False
    return mask


def causal_mask(T_q: int, T_k: int, *, first: int = 0) -> Array:
    """Let query i see keys up to i; with padding in front, row 0 sees nothing."""
    query, key = np.arange(T_q)[:, None], np.arange(T_k)
    return (first <= key) & (key <= query)


def whole_numbers(rng: np.random.Generator, largest: int, shape: tuple[int, ...]) -> Array:
    """Draw whole numbers of either sign."""
    return rng.integers(-largest, largest + 1, shape).astype(float)


def _draw_heads(rng: np.random.Generator, *given: tuple[tuple[int, ...], ...]) -> list[Inputs]:
    """Draw queries, keys and values: (B, H, H_kv) and (T_q, T_k, d_k, d_v) of each input."""
    return [
        normal(rng, q=(B, H, T_q, d_k), k=(B, H_kv, T_k, d_k), v=(B, H_kv, T_k, d_v))
        for (B, H, H_kv), (T_q, T_k, d_k, d_v) in given
    ]


def draw_heads(
    rng: np.random.Generator, *, rect: tuple[int, int, int], square: tuple[int, int, int]
) -> list[Inputs]:
    """Draw queries, keys, values: all sizes different, and a square; B, H, H_kv are given."""
    return _draw_heads(rng, (rect, (5, 7, 4, 3)), (square, (5, 5, 5, 5)))


def draw_odd_heads(
    rng: np.random.Generator, *, tall: tuple[int, int, int], low: tuple[int, int, int]
) -> list[Inputs]:
    """Draw more queries than keys, with values of width 1, and one query; B, H, H_kv of both."""
    return _draw_heads(rng, (tall, (6, 2, 3, 1)), (low, (1, 4, 2, 3)))


def large_scores(
    rng: np.random.Generator, q_shape: tuple[int, ...], k_shape: tuple[int, ...]
) -> list[Array]:
    """Draw q and k whose scores fall from 2200 to 1000 in row 0; row 1 has their opposites."""
    q, k = whole_numbers(rng, 2, q_shape), whole_numbers(rng, 3, k_shape)
    key = np.arange(k_shape[-2])
    k[..., 0] = np.where(key < 3, 20 + key, 7 + key)
    q[..., :2, :] = 0
    q[..., 0, 0], q[..., 1, 0] = 200, -200
    return [q, k]


def draw_params(
    rng: np.random.Generator, D: int, width: int, *, kdim: int = 0, kv_width: int = 0,
    v_width: int = 0,
) -> MultiHeadParams:  # fmt: skip
    """Draw the four projections with biases: D or kdim to their widths, and back to D."""
    wide, widths = kdim or D, (width, kv_width or width, v_width or kv_width or width)
    shapes = [
        shape for n, m in zip((D, wide, wide), widths, strict=True) for shape in ((n, m), (m,))
    ]
    shapes += [(v_width or width, D), (D,)]
    return MultiHeadParams(*(rng.normal(size=shape) / np.sqrt(D) for shape in shapes))


def opposite_tokens(rng: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """Draw tokens (B, T, D) that are positive and negative in turn."""
    sign = np.where(np.indices(shape[:2]).sum(axis=0) % 2, -1.0, 1.0)
    return sign[..., None] * rng.integers(2, 4, shape)


def opposite_params(params: MultiHeadParams) -> MultiHeadParams:
    """Make scores of about 1000 of opposite tokens, and as low ones of tokens of one sign."""
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = (
        np.rint(2 * array) for array in params if array is not None
    )
    w_q, w_k = np.where(w_q == 0, 1.0, 2.0), np.where(w_k == 0, -1.0, -2.0)
    return MultiHeadParams(w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o)


def draw_self(rng: np.random.Generator, *, value_dim: int) -> list[Inputs]:
    """Draw self-attention: causal with all sizes different, with all but D equal, and large scores.

    In the second, a token sees every other one: the mask is no triangle. Last comes a single head
    of a single sequence, whose tokens see only themselves and the last.
    """
    probes = []
    every_other = np.indices((3, 3)).sum(axis=0) % 2 == 0
    for B, T, D, H, d_k, d_v, mask in (
        (2, 5, 10, 3, 4, value_dim, causal_mask(5, 5)), (3, 3, 9, 3, 3, 3, every_other),
    ):  # fmt: skip
        x, params = rng.normal(size=(B, T, D)), draw_params(rng, D, H * d_k, v_width=H * d_v)
        probes.append({"x": x, "params": params, "num_heads": H, "mask": mask})
    x, params = opposite_tokens(rng, (2, 4, 8)), opposite_params(draw_params(rng, 8, 8))
    probes.append({"x": x, "params": params, "num_heads": 2, "mask": causal_mask(4, 4)})
    x, params = rng.normal(size=(1, 4, 5)), draw_params(rng, 5, 4, v_width=value_dim)
    mask = np.eye(4, dtype=bool) | (np.arange(4) == 3)
    return [*probes, {"x": x, "params": params, "num_heads": 1, "mask": mask}]
