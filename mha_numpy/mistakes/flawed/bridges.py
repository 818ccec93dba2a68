"""Params as GPT-2 stores them, x @ w + b with queries, keys and values side by side, and back."""

from typing import NamedTuple

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.mistakes.flawed.made import RIGHT, Made


class GPT2Params(NamedTuple):
    """The params of GPT-2's attention, as Hugging Face names them."""

    c_attn_w: Array  # (D, 3*D)
    c_attn_b: Array  # (3*D,)
    c_proj_w: Array  # (D, D)
    c_proj_b: Array  # (D,)


def from_gpt2(
    c_attn_w: Array, c_attn_b: Array, c_proj_w: Array, c_proj_b: Array, made: Made = RIGHT
) -> MultiHeadParams:
    """Take (D, 3*D), (3*D,), (D, D), (D,) apart."""
    D = len(c_proj_b)
    columns = [slice(0, D), slice(D, 2 * D), slice(2 * D, 3 * D)]
    if "columns of q, k, v alternate" in made:
        columns = [slice(i, None, 3) for i in range(3)]
    ws, bs = [c_attn_w[:, part] for part in columns], [c_attn_b[part] for part in columns]
    if "q, k, v by reshape alone" in made:
        ws = list(c_attn_w.reshape(3, D, D))
    if "q, k, v along the rows" in made:
        ws = np.split(c_attn_w, 3, axis=0)
    arrays = {"w_o": c_proj_w, "b_o": c_proj_b}
    for letter, w, b in zip(_order(made), ws, bs, strict=True):
        arrays |= {f"w_{letter}": w, f"b_{letter}": b}
    return MultiHeadParams(**_changed(arrays, made))


def to_gpt2(params: MultiHeadParams, made: Made = RIGHT) -> GPT2Params:
    """Lay queries, keys and values side by side."""
    arrays = _changed(params._asdict(), made)
    ws = [arrays[f"w_{letter}"] for letter in _order(made)]
    bs = [arrays[f"b_{letter}"] for letter in _order(made)]
    D = len(ws[0])
    c_attn_w, c_attn_b = np.concatenate(ws, axis=1), np.concatenate(bs)
    if "columns of q, k, v alternate" in made:
        c_attn_w, c_attn_b = np.stack(ws, axis=-1).reshape(D, -1), np.stack(bs, axis=-1).ravel()
    if "q, k, v by reshape alone" in made:
        c_attn_w = np.stack(ws).reshape(D, -1)
    if "q, k, v along the rows" in made:
        c_attn_w = np.concatenate(ws, axis=0)
    return GPT2Params(c_attn_w, c_attn_b, arrays["w_o"], arrays["b_o"])


def _order(made: Made) -> str:
    """Return which of q, k, v stands first, second and third."""
    for order in ("kqv", "qvk", "vkq"):
        if f"in the order {', '.join(order)}" in made:
            return order
    return "qkv"


def _changed(arrays: dict[str, Array], made: Made) -> dict[str, Array]:
    """Transpose a w, or leave a b at 0."""
    changed = dict(arrays)
    for letter in "qkvo":
        w, b = f"w_{letter}", f"b_{letter}"
        if f"{w} transposed" in made or "every w transposed" in made:
            changed[w] = changed[w].T
        if f"{b} left out" in made or "biases left out" in made:
            changed[b] = np.zeros_like(changed[b])
    return changed
