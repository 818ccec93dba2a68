"""What holds for every right answer, whatever the inputs: found without the right numbers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array

Inputs = dict[str, Any]
Arrays = dict[str, Array]  # what a function returned, by name; a single array has the name ""


class Invariant(NamedTuple):
    """A sentence, and by how much an answer misses it: an array of zeros where it holds."""

    told: str
    off: Callable[[Inputs, Arrays], Array]


class Reaction(NamedTuple):
    """A change of the inputs, and the part of the answer that may not react to it."""

    told: str
    change: Callable[[Inputs], Inputs]
    kept: Callable[[Inputs, Arrays], Array]


def _outside(bounds: Array, heads: Array) -> Array:
    """Return how far heads lie outside of the values (..., T_k, d_v) that they are means of."""
    low = np.minimum(bounds.min(axis=-2, keepdims=True), 0)  # a row that sees nothing is 0
    high = np.maximum(bounds.max(axis=-2, keepdims=True), 0)
    return np.maximum(heads - high, 0) + np.maximum(low - heads, 0)


def _row_sums(given: Inputs, weights: Array) -> Array:
    """Return how far rows that see something are from the sum 1, and the others from 0."""
    mask = given["mask"]
    sees_any = True if mask is None else np.broadcast_to(mask, weights.shape).any(axis=-1)
    return weights.sum(axis=-1) - np.where(sees_any, 1.0, 0.0)


def _hidden_weights(given: Inputs, weights: Array) -> Array:
    """Return where the mask hides and a weight is not exactly 0."""
    mask = given["mask"]
    return np.zeros(()) if mask is None else np.where(mask, 0.0, weights != 0)


def _future(given: Inputs, mask: Array) -> Array:
    """Return where a query sees a key behind its own position."""
    key, query = np.arange(given["T_k"]), np.arange(given["T_q"]) + given["q_offset"]
    return (mask & (key > query[:, None])).astype(float)


def _padding(given: Inputs, mask: Array) -> Array:
    """Return where a query sees a key behind the end of its sequence."""
    key = np.arange(given["T_k"])
    return (mask & (key >= np.asarray(given["lengths"])[:, None, None, None])).astype(float)


def _pair_lengths(x: Array) -> Array:
    """Return the squared length of each pair of features i and i + d/2."""
    first, second = np.split(x, 2, axis=-1)
    return first**2 + second**2


def _turned(name: str) -> Invariant:
    """Return what holds where pairs of an input's features were turned."""
    return Invariant(
        "the pairs keep their lengths",
        lambda given, arrays: _pair_lengths(arrays[""]) - _pair_lengths(given[name]),
    )


def _euler(given: Inputs, arrays: Arrays) -> Array:
    """Return sum(d_q * q) - sum(d_k * k): both are sum(d_scores * scores)."""
    return np.asarray((arrays["d_q"] * given["q"]).sum() - (arrays["d_k"] * given["k"]).sum())


def _unseen_keys(given: Inputs, arrays: Arrays) -> Array:
    """Return where d_k and d_v are not 0 though no query sees the key."""
    weights = given["weights"]
    H_kv, (B, H, _, T_k) = given["k"].shape[1], weights.shape
    is_seen = (weights != 0).reshape(B, H_kv, H // H_kv, -1, T_k).any(axis=(2, 3))[..., None]
    parts = [np.where(is_seen, 0.0, arrays[name] != 0) for name in ("d_k", "d_v")]
    return np.concatenate(parts, axis=-1)


def _changed(name: str, index: Any) -> Callable[[Inputs], Inputs]:
    """Return what moves some cells of an input."""

    def change(given: Inputs) -> Inputs:
        array = given[name].copy()
        array[index] += 1.0
        return {**given, name: array}

    return change


def _reversed(*names: str) -> Callable[[Inputs], Inputs]:
    """Return what turns the last axis but one of some inputs around."""
    return lambda given: {
        name: value[..., ::-1, :] if name in names else value for name, value in given.items()
    }


def _shared_values(given: Inputs) -> Array:
    """Return the values that each query head reads: (B, H, T_k, d_v)."""
    return given["v"].repeat(given["q"].shape[1] // given["v"].shape[1], axis=1)


MEANS = Invariant(
    "heads lie between the smallest and the largest value",
    lambda given, arrays: _outside(given["v"], arrays[""]),
)
GROUPED_MEANS = Invariant(
    MEANS.told, lambda given, arrays: _outside(_shared_values(given), arrays[""])
)
SHIFT = Invariant(
    "d_k sums to 0 over the keys, as adding one vector to all keys changes no weight",
    lambda _, arrays: arrays["d_k"].sum(axis=-2),
)
EULER = Invariant("d_q * q and d_k * k have the same sum", _euler)
UNSEEN = Invariant("keys that no query sees have no gradient", _unseen_keys)
ROWS = Invariant(
    "rows that see something sum to 1, the others to 0",
    lambda given, arrays: _row_sums(given, arrays[""]),
)
HIDDEN = Invariant("hidden weights are 0", lambda given, arrays: _hidden_weights(given, arrays[""]))

INVARIANTS: dict[str, list[Invariant]] = {
    "softmax": [ROWS, HIDDEN],
    "softmax_with_lse": [
        Invariant(ROWS.told, lambda given, arrays: _row_sums(given, arrays["weights"])),
        Invariant(HIDDEN.told, lambda given, arrays: _hidden_weights(given, arrays["weights"])),
    ],
    "make_mask": [
        Invariant("no query sees the future", lambda given, arrays: _future(given, arrays[""])),
        Invariant("no query sees padding", lambda given, arrays: _padding(given, arrays[""])),
    ],
    "attention": [MEANS],
    "online_attention": [MEANS],
    "masked_attention": [GROUPED_MEANS],
    "grouped_attention": [GROUPED_MEANS],
    "scores_backward": [EULER],
    "softmax_backward": [
        Invariant("rows of d_scores sum to 0", lambda _, arrays: arrays[""].sum(axis=-1)),
        Invariant(
            "hidden cells have no gradient",
            lambda given, arrays: np.where(given["weights"] == 0, arrays[""], 0),
        ),
    ],
    "attention_backward": [UNSEEN, SHIFT, EULER],
    "grouped_backward": [UNSEEN, SHIFT, EULER],
    "backward_from_lse": [SHIFT, EULER],
    "linear_backward": [
        Invariant(
            "d_x * x and d_w * w have the same sum",
            lambda given, arrays: np.asarray(
                (arrays["d_x"] * given["x"]).sum() - (arrays["d_w"] * given["w"]).sum()
            ),
        )
    ],
    "multi_head_backward": [
        Invariant(
            "d_b_k is 0, as a bias of the keys moves all scores of a row alike",
            lambda _, arrays: arrays["d_params.b_k"],
        )
    ],
    "sum_over_group": [
        Invariant(
            "nothing is lost: the sum over all heads stays",
            lambda given, arrays: arrays[""].sum(axis=1) - given["d_per_query_head"].sum(axis=1),
        )
    ],
    "dropout_backward": [
        Invariant(
            "dropped weights have no gradient",
            lambda given, arrays: np.where(given["keep"], 0, arrays[""]),
        )
    ],
    "rope": [_turned("x")],
    "rope_backward": [_turned("d_out")],
    "decode_step": [
        Invariant(
            "the past keys and values stay in front, as they are",
            lambda given, arrays: np.concatenate(
                [arrays["k"][:, :, :-1] - given["k_past"], arrays["v"][:, :, :-1] - given["v_past"]]
            ),
        )
    ],
    "head_importance": [
        Invariant("no importance is negative", lambda _, arrays: np.minimum(arrays[""], 0))
    ],
    "layer_norm_backward": [
        Invariant(
            "d_x sums to 0 over the features, as moving all of them alike changes nothing",
            lambda _, arrays: arrays["d_x"].sum(axis=-1),
        )
    ],
}

REACTIONS: dict[str, list[Reaction]] = {
    "split_heads": [
        Reaction(
            "a change of the last token moves no other token",
            _changed("x", np.s_[:, -1]),
            lambda _, arrays: arrays[""][:, :, :-1],
        )
    ],
    "merge_heads": [
        Reaction(
            "a change of the last token moves no other token",
            _changed("heads", np.s_[:, :, -1]),
            lambda _, arrays: arrays[""][:, :-1],
        )
    ],
    "scores": [
        Reaction(
            "a change of the last key moves the last column alone",
            _changed("k", np.s_[:, :, -1]),
            lambda _, arrays: arrays[""][..., :-1],
        )
    ],
    "attention": [
        Reaction(
            "turning keys and values around together changes nothing",
            _reversed("k", "v"),
            lambda _, arrays: arrays[""],
        )
    ],
    "grouped_attention": [
        Reaction(
            "a change of the first key/value head moves the first group alone",
            _changed("v", np.s_[:, 0]),
            lambda given, arrays: arrays[""][:, given["q"].shape[1] // given["v"].shape[1] :],
        )
    ],
    "multi_head": [
        Reaction(
            "a change of the last token moves no output before it: the mask is causal",
            _changed("x", np.s_[:, -1]),
            lambda _, arrays: arrays[""][:, :-1],
        )
    ],
    "cross_attention": [
        Reaction(
            "the order of the source's tokens does not matter",
            _reversed("x"),
            lambda _, arrays: arrays[""],
        )
    ],
}
