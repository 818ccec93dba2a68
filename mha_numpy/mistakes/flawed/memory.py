"""Attention that remembers: with kept keys and values, and from block to block of keys."""

from typing import NamedTuple

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.mistakes.flawed.forward import attend, find_scale, match, softmax
from mha_numpy.mistakes.flawed.heads import merge_heads, split_heads
from mha_numpy.mistakes.flawed.layer import project
from mha_numpy.mistakes.flawed.made import RIGHT, Made

# with one query and several keys, or heads that were split before, these are errors
NEVER_FITS = {
    "heads left behind the tokens", "q and k swapped", "weights transposed in the mix",
}  # fmt: skip


class Decoded(NamedTuple):
    """The output for the new token, and the keys and values of all."""

    out: Array  # (B, 1, D)
    k: Array  # (B, H_kv, T + 1, d)
    v: Array


def decode_step(
    x: Array,
    k_past: Array,
    v_past: Array,
    params: MultiHeadParams,
    num_heads: int,
    made: Made = RIGHT,
) -> Decoded:
    """Attend from one new token to all, whose keys and values (B, H_kv, T, d) were kept."""
    made = made - NEVER_FITS
    H_kv = k_past.shape[1]
    q = split_heads(project(x, "q", params, made), num_heads, made)
    k_new = split_heads(project(x, "q" if "keys by w_q" in made else "k", params, made), H_kv, made)
    v_new = split_heads(
        project(x, "k" if "values by w_k" in made else "v", params, made), H_kv, made
    )
    k, v = _append(k_past, k_new, made), _append(v_past, v_new, made)

    seen_k, seen_v = (k_past, v_past) if "own key not seen" in made else (k, v)
    if "decoded as position 0" in made:
        seen_k, seen_v = seen_k[:, :, :1], seen_v[:, :, :1]
    heads = attend(q, seen_k, seen_v, made=made).heads
    merged = merge_heads(heads, made)
    out = merged if "output projection left out" in made else project(merged, "o", params, made)
    if "nothing new is kept" in made:
        k, v = k_past, v_past
    if "new value not kept" in made:
        v = v_past
    return Decoded(out, k, v)


def _append(past: Array, new: Array, made: Made) -> Array:
    """Put what is new behind the past."""
    if "past forgotten" in made:
        return new
    if "last of the past overwritten" in made:
        past = past[:, :, :-1]
    if "first of the past dropped" in made:
        past = past[:, :, 1:]
    parts = [new, past] if "new key before the past" in made else [past, new]
    return np.concatenate(parts, axis=2)


def online_attention(q: Array, k: Array, v: Array, block: int, made: Made = RIGHT) -> Array:
    """Attend with one head to `block` keys at a time: (T_q, d_k), (T_k, d_k), (T_k, d_v)."""
    T_q, T_k = len(q), len(k)
    if "k and v swapped" in made:
        k, v = v, k
    if "last short block dropped" in made:
        T_k -= T_k % block
    blocks = [slice(start, min(start + block, T_k)) for start in range(0, T_k, block)]
    scale = find_scale(q, k, made)
    largest = np.full((T_q, 1), -np.inf)
    total, mixture = np.zeros((T_q, 1)), np.zeros((T_q, v.shape[-1]))
    if "maximum begins with 0" in made or "sum begins with 1" in made:
        largest = np.zeros((T_q, 1))
    if "sum begins with 1" in made:
        total = np.ones((T_q, 1))

    for keys in blocks:
        scores = match(q, k[keys], scale, made)
        before, of_block = largest, scores.max(axis=-1, keepdims=True)
        largest = np.maximum(before, of_block)
        if "maximum of the block alone" in made:
            largest = of_block
        if "no maximum subtracted" in made:
            before = largest = of_block = np.zeros((T_q, 1))
        shrink = np.exp(before - largest)
        if "rescaled the wrong way" in made and keys.start:
            shrink = np.exp(largest - before)
        powers = np.exp(scores - (of_block if "block by its own maximum" in made else largest))
        if "normalised in each block" in made or "blocks averaged" in made:
            powers, shrink = softmax(scores, None), np.ones((T_q, 1))
        total = powers.sum(axis=-1, keepdims=True) + (
            total if "old sum not rescaled" in made else shrink * total
        )
        mixture = powers @ v[keys] + (
            mixture if "old mixture not rescaled" in made else shrink * mixture
        )
    if "not normalised at the end" in made or "normalised in each block" in made:
        return mixture
    return mixture / (len(blocks) if "blocks averaged" in made else total)
