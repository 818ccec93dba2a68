"""The functions that people write, and inputs on which mistakes show themselves.

Sizes are pairwise different, as equal ones hide transposes, and one square case is there for those
that only a square lets run; upstream gradients are random, biases are not zero, and where there is
a mask, one row sees nothing and one probe has large scores.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.core.dtypes import Array
from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.mistakes import flawed
from mha_numpy.mistakes.flawed import Made

Inputs = dict[str, Any]


class Piece(NamedTuple):
    """One function: how `flawed` writes it, ``write(**inputs, made=...)``, and its probes."""

    name: str
    write: Callable[..., Any]
    draw: Callable[[np.random.Generator], list[Inputs]]

    def probes(self) -> list[Inputs]:
        """Return the inputs, the same each time and read-only."""
        return _probes(self.name)


def _random_mask(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Hide about a third, and all of row 0 of the first matrix."""
    mask = rng.random(shape) < 0.7
    mask[..., 1:, 0] = True
    mask[(0,) * (len(shape) - 1)] = False
    return mask


def _draw_scores(rng: np.random.Generator) -> list[Inputs]:
    """Draw scores of size 1 without a mask and with one, and a square of large ones."""
    shapes = ((2, 3, 4, 6), (2, 3, 4, 6), (2, 3, 5, 5))
    scores = [size * rng.normal(size=s) for size, s in zip((1, 1, 400), shapes, strict=True)]
    scores[2][0, 0, 1] -= 5000.0
    masks = [None, _random_mask(rng, shapes[1]), _random_mask(rng, shapes[2])]
    return [{"scores": s, "mask": m} for s, m in zip(scores, masks, strict=True)]


def _draw_weights(rng: np.random.Generator) -> list[Inputs]:
    """Draw weights as softmax makes them, and a random upstream gradient."""
    probes = []
    for given in _draw_scores(rng)[:2]:
        weights = flawed.softmax(given["scores"], given["mask"])
        probes.append({"d_weights": rng.normal(size=weights.shape), "weights": weights})
    return probes


def _draw_heads(rng: np.random.Generator, *, H_kv: int, is_single: bool) -> list[Inputs]:
    """Draw queries, keys and values: all sizes different, and a square."""
    H, probes = (1 if is_single else 6), []
    for T_q, T_k, d_k, d_v, size in ((5, 7, 4, 3, 1.0), (5, 5, 5, 5, 1.0), (4, 6, 8, 5, 30.0)):
        shapes = (3, H, T_q, d_k), (3, H_kv, T_k, d_k), (3, H_kv, T_k, d_v)
        q, k, v = (rng.normal(size=shape) for shape in shapes)
        arrays = (size * q, k, v)
        q, k, v = (a[0, 0] for a in arrays) if is_single else arrays
        probes.append({"q": q, "k": k, "v": v})
    return probes


def _draw_for_backward(rng: np.random.Generator, *, H_kv: int) -> list[Inputs]:
    """Draw what attention's backward gets: all sizes different, and a square."""
    probes = []
    for given in _draw_heads(rng, H_kv=H_kv, is_single=False)[:2]:
        q, k, v = given.values()
        T_q, T_k = q.shape[2], k.shape[2]
        causal = np.arange(T_k) <= np.arange(T_q)[:, None]
        weights = flawed.attention(q, k, v, causal).weights
        d_heads = rng.normal(size=(*q.shape[:3], v.shape[-1]))
        probes.append({"d_heads": d_heads, **given, "weights": weights})
    return probes


def _draw_params(rng: np.random.Generator, D: int) -> MultiHeadParams:
    """Draw square projections with biases."""
    shapes = ((D, D), (D,)) * 4
    return MultiHeadParams(*(rng.normal(size=shape) / np.sqrt(D) for shape in shapes))


def _draw_layer(rng: np.random.Generator, *, is_cross: bool) -> list[Inputs]:
    """Draw the inputs of multi-head attention."""
    probes = []
    for B, T, S, D, H in ((2, 5, 7, 12, 3), (3, 4, 4, 8, 2)):
        x, source = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D))
        mask = np.arange(T) <= np.arange(T)[:, None]
        given = {"source": source, "mask": None} if is_cross else {"source": x, "mask": mask}
        probes.append({"x": x, **given, "params": _draw_params(rng, D), "num_heads": H})
    return probes


def _draw_layer_backward(rng: np.random.Generator) -> list[Inputs]:
    """Draw what multi-head self-attention's backward gets."""
    probes = []
    for given in _draw_layer(rng, is_cross=False):
        out, saved = flawed.multi_head(**given)
        d_out = rng.normal(size=out.shape)
        probes.append({"d_out": d_out, "params": given["params"], "saved": saved})
    return probes


def _draw_rope(rng: np.random.Generator, *, name: str) -> list[Inputs]:
    """Draw vectors at positions that do not begin with 0."""
    shapes = ((2, 3, 5, 8), (2, 1, 4, 6))
    return [
        {name: rng.normal(size=s), "positions": np.arange(3, 3 + s[2]), "base": 100.0}
        for s in shapes
    ]


def _draw_masks(_: np.random.Generator) -> list[Inputs]:
    """Return lengths with and without padding, and queries that begin later."""
    return [
        {"lengths": np.array(n), "T_q": T_q, "T_k": T_k, "q_offset": offset, "left": left}
        for n, T_q, T_k, offset, left in (
            ([6, 4, 2], 6, 6, 0, 9), ([7, 5], 4, 7, 2, 1), ([8, 3], 3, 8, 5, 3),
        )
    ]  # fmt: skip


def _draw_linear(rng: np.random.Generator) -> list[Inputs]:
    """Draw a rectangular map and a square one."""
    shapes = ((3, 4, 5, 6), (2, 4, 5, 5))
    return [
        {"d_out": rng.normal(size=(B, T, m)), "x": rng.normal(size=(B, T, n)),
         "w": rng.normal(size=(n, m))}
        for B, T, n, m in shapes
    ]  # fmt: skip


def _heads(*, made: Made, **given: Any) -> Array:
    """Attend, and keep the heads alone."""
    return flawed.attention(**given, made=made).heads


def _out(*, made: Made, **given: Any) -> Array:
    """Run the layer, and keep its output alone."""
    return flawed.multi_head(**given, made=made)[0]


PIECES = {
    piece.name: piece
    for piece in [
        Piece(
            "split_heads", flawed.split_heads,
            lambda rng: [{"x": rng.normal(size=(2, 5, 12)), "num_heads": 3}],
        ),
        Piece(
            "merge_heads", flawed.merge_heads,
            lambda rng: [{"heads": rng.normal(size=(2, 3, 5, 4))}],
        ),
        Piece("make_mask", flawed.make_mask, _draw_masks),
        Piece("softmax", flawed.softmax, _draw_scores),
        Piece("attention", _heads, partial(_draw_heads, H_kv=1, is_single=True)),
        Piece("grouped_attention", _heads, partial(_draw_heads, H_kv=2, is_single=False)),
        Piece("softmax_backward", flawed.softmax_backward, _draw_weights),
        Piece("attention_backward", flawed.attention_backward, partial(_draw_for_backward, H_kv=6)),
        Piece("grouped_backward", flawed.attention_backward, partial(_draw_for_backward, H_kv=2)),
        Piece("linear_backward", flawed.linear_backward, _draw_linear),
        Piece("multi_head", _out, partial(_draw_layer, is_cross=False)),
        Piece("cross_attention", _out, partial(_draw_layer, is_cross=True)),
        Piece("multi_head_backward", flawed.multi_head_backward, _draw_layer_backward),
        Piece("rope", flawed.rope, partial(_draw_rope, name="x")),
        Piece("rope_backward", flawed.rope_backward, partial(_draw_rope, name="d_out")),
    ]
}  # fmt: skip


@cache
def _probes(name: str) -> list[Inputs]:
    """Draw the probes of a piece once."""
    probes = PIECES[name].draw(np.random.default_rng(20240229))
    for given in probes:
        for value in given.values():
            for array in value if isinstance(value, tuple) else (value,):
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)
    return probes
