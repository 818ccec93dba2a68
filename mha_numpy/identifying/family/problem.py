"""A problem: arrays by role, each with its usual axes."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array

AXES = {  # by role; a role has its axes whatever a function's layout is
    "query": "B H T d", "key": "B G S d", "value": "B G S e",  # heads given
    "key_value": "B G S d",  # one array for both
    "wide_q": "B T M", "wide_k": "B S N", "wide_v": "B S O",  # heads inside, no params
    "x": "B T D", "x_q": "B T D", "memory": "B S C", "x_k": "B S C", "x_v": "B S E",
    "packed": "B T P",
    "w_q": "D M", "w_k": "C N", "w_v": "E O", "w_qkv": "D P", "w_kv": "C R", "w_o": "U W",
    "w_a": "M", "w_g": "D U", "w_qk": "L M", "w_c": "Y W",
    "b_q": "M", "b_k": "N", "b_v": "O", "b_qkv": "P", "b_kv": "R", "b_o": "W",
    "b_g": "U",
    "g_q": "d", "g_k": "d",
    "mask": "B H T S", "more_mask": "B H T S",
    "bias": "B H T S", "more_bias": "B H T S", "dropout_mask": "B H T S",
    "lengths": "B", "q_lengths": "B", "scale": "H", "slopes": "H",
    "positions": "B T", "k_positions": "B S", "segments": "B S", "q_segments": "B T",
    "cos": "T F", "sin": "T F", "cos_sin": "T F", "sink": "H", "head_gate": "H",
    "bias_table": "K H", "cache_k": "B G Z d", "cache_v": "B G Z e",
    "read": "B H T S",  # scores, up to a term for each query, of an output
    "out": "B H T e", "merged": "B T W", "weights": "B H T S", "lse": "B H T",
}  # fmt: skip
MOST_NUMBERS = 2**24  # in an array


class Sizes(NamedTuple):
    """The lengths of axes: all are different, so that a shape says which axes it has."""

    B: int = 3
    H: int = 4  # query heads
    G: int = 4  # key/value heads
    T: int = 5  # queries
    S: int = 7  # keys
    d: int = 8  # width of a query or key
    e: int = 10  # width of a value
    D: int = 0  # width of the model, 0 = that of all heads together
    C: int = 0  # of the memory, 0 = D
    W: int = 0  # of the output, 0 = D
    K: int = 9  # rows of a table of biases: 2 T - 1 distances
    Z: int = 0  # keys in a cache, which come before those that are passed

    def of(self, axis: str) -> int:
        """Return the length of an axis; D, M ... are the widths of all heads together."""
        if axis in "123":
            return int(axis)
        if axis in self._fields and (axis not in "DCW" or getattr(self, axis)):
            return int(getattr(self, axis))
        H, G, d, e = self.H, self.G, self.d, self.e
        wide = self.D or H * d
        return {
            "D": wide, "C": wide, "E": self.C or wide, "M": H * d, "N": G * d, "O": G * e,
            "r": H // G, "L": wide + (self.C or wide), "Y": wide + H * e,
            "R": G * (d + e), "P": H * d + G * (d + e), "U": H * e, "W": wide, "F": d // 2,
            "n": 2, "m": self.B // 2,
        }[axis]  # fmt: skip

    def shape(self, axes: str) -> tuple[int, ...]:
        """Return the shape of an array with these axes."""
        return tuple(self.of(axis) for axis in axes.split())


class Problem:
    """Arrays by role, and numbers by role; `memo` keeps what stages computed of them."""

    def __init__(self, sizes: Sizes, given: dict[str, Any]) -> None:
        self.sizes, self.given = sizes, given
        self.memo: dict[tuple[Any, ...], dict[str, Array] | None] = {}

    def but(self, **given: Any) -> "Problem":
        """Return a problem with other arrays for some roles; None takes one away."""
        merged = {**self.given, **given}
        return Problem(self.sizes, {role: x for role, x in merged.items() if x is not None})

    def get(self, role: str) -> Any:
        """Return what a role has, None if the problem has no such role."""
        return self.given.get(role)


def draw(role: str, sizes: Sizes, rng: np.random.Generator) -> Array:
    """Draw an array for a role."""
    axes = AXES[role].split()
    shape = sizes.shape(AXES[role])
    if np.prod(shape) > MOST_NUMBERS:  # sizes that were guessed
        raise ValueError(f"{role} is too large to draw")
    if role == "mask":  # each query has visible and hidden keys, whatever True means
        order = rng.random(shape).argsort(-1)
        return np.asarray(order % 2 == 0)
    if role == "more_mask":  # no query sees nothing, whatever the first mask hides
        return np.asarray(rng.random(shape).argsort(-1) % 3 > 0)
    if role == "dropout_mask":
        return np.asarray((rng.random(shape).argsort(-1) % 3 > 0) * 1.5)
    if role == "q_lengths":
        return np.asarray(sizes.T - np.arange(sizes.B) % max(sizes.T, 1))
    if role == "lengths":
        return np.asarray(2 + np.arange(sizes.B) * 2 % max(sizes.S - 2, 1))
    if role == "positions":
        return np.asarray(np.sort(rng.permutation(4 * sizes.T)[: sizes.T]) + np.zeros(shape, int))
    if role == "k_positions":  # the first is visible, each later one to the queries after it
        return np.asarray(4 * np.arange(shape[1]) + np.zeros(shape, int))
    if role in ("segments", "q_segments"):  # each is two tokens or more; 0 may be padding
        return np.asarray(np.arange(shape[1]) * 2 // shape[1] + np.ones(shape, int))
    if role in ("cos", "sin", "cos_sin"):
        angles = np.random.default_rng(7).uniform(0, 6, shape)
        if role == "cos_sin":
            return np.exp(1j * angles)
        return np.asarray(getattr(np, role)(angles))
    array: Array = rng.normal(size=sizes.shape(AXES[role]))
    if role.startswith("w_"):
        array *= 1.5 / np.sqrt(sizes.of(axes[0]))  # scores of a usual size
    if role in ("query", "key"):
        array *= 1.2
    if role in ("head_gate", "scale", "slopes"):
        array = rng.uniform(0.5, 1.5, array.shape)
    return array
