"""How an array is laid out: its axes in some order, split or joined, one of them left out."""

from collections.abc import Sequence
from functools import cache
from itertools import permutations

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.family import AXES, Sizes

HEADS_GIVEN = (  # of the queries; then of the keys, where it is not the same with S for T
    "B H T d", "B T H d", "B T d", "T d", "H T d", "T H d", "T B H d", "T B d", "B d T", "d T",
    "H B T d",
    "B H T d|B S d", "B T H d|B S d", "H T d|S d", "T H d|S d", "B H d|B G S d", "B H d|B S G d",
    "B d T 1", "H d|G S d", "H d|S G d",
    "d T H B", "d T B", "d T H", "d H T B",  # columns first, as in Julia
    "T G r d|S G d", "B T G r d|B S G d",  # with an axis of the heads in a group
    "B d|B S d", "d|S d", "B d|S B d", "B H d T", "B H d|B S d",
    "B H T d|B G d S", "H d|G d", "B H d|B G d", "B d|B d",
)  # fmt: skip
HEADS_INSIDE = (
    "B T D", "T D", "T B D", "B D T", "D T", "B D|B S D", "D|S D", "1 B D|S B D", "B D|S B D",
    "B 1 D|B S D", "B D T 1",  # an image of T rows
    "D T B", "B D|B D", "B 1 D|B 1 D", "D|D",
)  # fmt: skip
RARE_GIVEN = (
    "T d|B S d", "d|B S d", "T H d|B S G d", "H d|B S G d",  # the same queries for all
    "n m T d", "n m H T d", "n m d|n m S d",  # two axes of sequences
)  # fmt: skip
RARE_INSIDE = ("T D|B S D", "D|B S D", "n m T D")
JOINED = {  # axes that are several axes in one
    "H": "G r", "M": "H d", "N": "G d", "O": "G e", "U": "H e", "P": "3 H d",
    "B": "n m",
    "R": "2 G d",
}  # fmt: skip
STACKED = {"P": "3 M", "R": "2 N"}  # the same, with all heads in one
CELLS = ("B H T S", "B T S", "T S", "B 1 T S", "B 1 1 S", "B S", "H T S", "S", "1 H T S", "1 1 T S",
         "1 T S", "B 1 S", "H 1 S", "B H 1 S", "1 S", "S B", "B H S", "S T")  # fmt: skip
ROWS = ("B S", "S", "B 1 1 S", "B 1 S", "S B")  # of a padding mask
OF_HEADS = ("H", "1 H 1 1", "H 1 1")
LAYOUTS = {  # layouts of arrays that are options
    "mask": CELLS,
    "bias": ("B H T S", "H T S", "B T S", "1 H T S", "T S", "B 1 T S", "1 1 T S", "T S H"),
    "dropout_mask": ("B H T S", "H T S", "B T S", "T S"), "lengths": ("B", "", "B T"),
    "q_lengths": ("B",),
    "positions": ("B T", "T"), "k_positions": ("B S", "S"),
    "segments": ("B S", "S"), "q_segments": ("B T", "T"),
    "cos": ("T F", "T FF", "T ff", "1 1 T F", "1 T 1 F", "1 1 T FF", "1 T FF", "1 T 1 FF"),
    "bias_table": ("K H", "H K"), "sink": OF_HEADS, "head_gate": OF_HEADS, "slopes": OF_HEADS,
    "cache_k": ("B G Z d", "B Z G d", "Z G d", "G Z d", "Z d", "B Z d"),
}  # fmt: skip
OF_LAYERS = (  # of PyTorch: one map for all heads; convolutions of single tokens
    ("d d", "W U"), ("M D 1", "W U 1"), ("M D 1 1", "W U 1 1"),
)  # fmt: skip
PARAM_LAYOUTS = (  # of w_q, and of w_o; those of the others follow
    ("D M", "U W"), ("M D", "W U"), ("D M", "W U"), ("M D", "U W"), ("H D d", "U W"),
    ("H D d", "H e W"), ("D H d", "H e W"), ("D H d", "U W"), ("H d D", "W U"), ("H d D", "U W"),
    ("3 D M", "U W"), ("3 M D", "W U"), ("3 D M", "W U"), ("3 M D", "U W"),
    ("D H d|d", "H e W"), ("H D d|d", "H W e"), *OF_LAYERS,  # one key head
)  # fmt: skip
PACKED = (
    "B T P", "T P", "B T 3 H d", "3 B H T d", "3 B T H d", "B 3 T H d", "T B P", "T 3 H d", "B P T",
    "3 B T d", "3 T d",
)  # fmt: skip
LAYOUTS["more_bias"] = LAYOUTS["bias"]
LAYOUTS["sin"] = LAYOUTS["cos"]
LAYOUTS["cos_sin"] = ("T F", "1 T F", "1 T 1 F", "1 1 T F")  # as complex numbers
LAYOUTS["cache_v"] = tuple(layout.replace("d", "e") for layout in LAYOUTS["cache_k"])


def arrange(array: Array, axes: str, layout: str, sizes: Sizes) -> Array:
    """Return an array with these axes in another layout.

    Axes that the layout leaves out are taken at 0, and a 1 is a new axis.

    Examples
    --------
    >>> arrange(np.zeros((3, 32)), "B M", "H d B", Sizes()).shape
    (4, 8, 3)
    """
    if "ff" in layout.lower():  # cos and sin for both features of each pair
        array = np.concatenate([array, array], -1) if "FF" in layout else array.repeat(2, -1)
        layout = layout.replace("FF", "F").replace("ff", "F")
    have, wanted = axes.split(), layout.split()
    for axis in [*have]:
        parts = parts_of_axis(axis, wanted)
        if axis not in wanted and len(parts) > 1 and {*parts} <= {*wanted, "H", "G"}:
            at = have.index(axis)
            shape = tuple(sizes.of(part) for part in parts)
            array = array.reshape(*array.shape[:at], *shape, *array.shape[at + 1 :])
            have[at : at + 1] = parts
    for axis in [*have]:
        if axis not in wanted:
            array = array.take(0, have.index(axis))
            have.remove(axis)
    named = [axis for axis in wanted if axis != "1"]
    array = array.transpose([have.index(axis) for axis in named])
    new = tuple(at for at, axis in enumerate(wanted) if axis == "1")
    return np.ascontiguousarray(np.expand_dims(array, new))


def parts_of_axis(axis: str, layout: Sequence[str]) -> list[str]:
    """Return the axes that are one axis together, as a layout has them.

    Examples
    --------
    >>> parts_of_axis("P", ["3", "D", "M"]), parts_of_axis("P", ["D", "3", "H", "d"])
    (['3', 'M'], ['3', 'H', 'd'])
    """
    stacked = STACKED.get(axis, "").split()
    return stacked if stacked and {*stacked} <= {*layout} else JOINED.get(axis, axis).split()


def param_layout(role: str, of_params: tuple[str, str]) -> str:
    """Return the layout of a param, given those of w_q and w_o.

    Examples
    --------
    >>> param_layout("w_v", ("M D", "W U")), param_layout("b_k", ("H D d", "U W"))
    ('O E', 'G d')
    """
    of_q, of_o = of_params
    of_q, _, is_shared = of_q.partition("|")
    if is_shared and role[2:] in ("k", "v"):
        return param_layout(role, (of_q, of_o)).replace("G ", "")
    if role == "bias_table":
        return "K H"
    if role == "bias":
        return "T S H"
    if role in ("w_o", "w_c"):
        return of_o if role == "w_o" else of_o.replace("U", "Y").replace("H e", "Y")
    if role == "w_qkv" and {"H", "3"} & {*of_q.split()}:
        return of_q if "3" in of_q else of_q.replace("H d", "3 H d").replace("H D d", "3 H D d")
    if role == "b_qkv" and "3" in of_q:
        return "3 M"
    if role in ("w_kv", "b_kv") and "3" in of_q:  # two of three
        return f"2 {param_layout(f'{role[:2]}k', (of_q.removeprefix('3 '), of_o))}"
    of_q = of_q.removeprefix("3 ")
    if role == "w_qk":
        return of_q.replace("D", "L")
    if role in ("w_q", "w_k", "w_v", "w_g"):
        others = {"k": "CNGSd", "v": "EOGSe", "g": "DUHTe"}
        return of_q.translate(str.maketrans("DMHTd", others.get(role[2], "DMHTd")))
    if role == "w_kv" and "H" in of_q.split():
        return f"2 {param_layout('w_k', of_params)}"
    axes = AXES[role].split()
    if role in ("w_qkv", "w_kv") and of_q.split()[0] != "D":
        axes = axes[::-1]
    if role in ("b_q", "b_k", "b_v") and of_q == "d d":
        return "d"
    if role in ("b_q", "b_k", "b_v", "b_g") and "H" in of_q.split():
        axes = JOINED[axes[0]].split()
    return " ".join(axes)


@cache
def find_orders(shape: tuple[int, ...], seen: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the orders of an array's axes that give a shape which was seen.

    Axes of length 1 may be missing.
    """
    long = tuple(axis for axis, size in enumerate(shape) if size != 1)
    wanted = tuple(size for size in seen if size != 1)
    if sorted(wanted) != sorted(shape[axis] for axis in long):
        return ()
    return tuple(
        order for order in permutations(long) if tuple(shape[axis] for axis in order) == wanted
    )


def in_order(array: Array, order: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Return an array with its axes in an order of `find_orders`."""
    ones = [axis for axis in range(array.ndim) if axis not in order]
    return array.transpose(*ones, *order).reshape(shape)


def layout_of(role: str, order: tuple[int, ...], seen: tuple[int, ...]) -> str:
    """Return the layout of what was seen, by the order of a role's axes."""
    names = iter([AXES[role].split()[axis] for axis in order])
    return " ".join("1" if size == 1 else next(names) for size in seen)
