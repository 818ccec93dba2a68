"""Relations: how a wrong array follows from the right one, or from the inputs, on all inputs alike.

A relation predicts an array from the right one. It holds where it gives all of a student's numbers
on every input, so it explains them, in the same words for every input.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, permutations

import numpy as np

from mha_numpy.checking.trees import leaves
from mha_numpy.dtypes import Array
from mha_numpy.teach.conventions import conventions_of
from mha_numpy.teach.diagnosis.bank import BANK, Function
from mha_numpy.teach.diagnosis.fingerprints import attempt, fingerprints, right_answers
from mha_numpy.teach.diagnosis.mutants import assembled, make
from mha_numpy.teach.diagnosis.search import find_edit, has_table, step_of_edit
from mha_numpy.teach.diagnosis.sizes import (
    WORDS,
    axes_of,
    axis_names,
    factor_of,
    factors,
    indices_of,
    ratio,
    words_of,
)
from mha_numpy.teach.diagnosis.solutions import called_by
from mha_numpy.teach.diagnosis.wrong import (
    NONE,
    Wrong,
    arrays_of,
    have_shapes,
    is_even,
    names_of,
    same,
)
from mha_numpy.teach.task import Inputs

SIMPLE = 40  # factors that are divided out before an edit is looked up
FACTORS = "a part that does not belong there"  # edits that multiply
SCALES = 500  # factors that are tried as what the scores are divided by
MANY = 100  # edits that give the same: then none of them is the cause
Place = Callable[[int, dict[str, float]], Array]  # which indices of an axis, by its size


def find_relation(wrong: Wrong) -> str:
    """Return how the array follows from the right one, in a clause; empty if it does not."""
    asked, is_empty = len(right_answers(wrong.task)), any(one.size == 0 for one in wrong.right)
    if 2 * len(wrong.mine) < asked or is_empty or wrong.is_nan_alone:
        return ""  # too little to be a rule
    return next((told for find in RELATIONS for told in find(wrong)), "")


def _plain(wrong: Wrong) -> Iterator[str]:
    """Yield zeros, one number everywhere, an input, a mean of an input."""
    mine = wrong.mine
    pairs = zip(mine, wrong.largest, strict=True)
    if all(array.size and np.abs(array).max() <= 1e-12 * largest for array, largest in pairs):
        yield "all numbers are 0" + ", and the shape is wrong" * (
            not have_shapes(mine, wrong.right)
        )
    together = np.concatenate([array.ravel() for array in mine])
    if together.size > 1 and is_even(together) and np.isfinite(together).all():
        yield f"every number is {mine[0].flat[0]:.6g}"
    for name, value in wrong.probes[0].items():
        if not isinstance(value, np.ndarray) or value.ndim == 0:
            continue
        given = [np.asarray(probe[name]) for probe in wrong.probes]
        if len({one.ndim for one in given}) > 1:
            continue
        if wrong.is_given_by(given):
            yield f"the input {name}, unchanged"
        if value.dtype.kind != "f":
            continue
        for turned, how in ((np.negative, "with its sign changed"), (_swapped, "transposed")):
            if wrong.is_given_by([turned(one) for one in given]):
                yield f"the input {name}, {how}"
        if not all(one.size for one in given):
            continue
        letters = axes_of(wrong.task).get(name, ("",) * value.ndim)
        for axis, letter in enumerate(letters[: value.ndim]):
            for take, word in ((np.mean, "mean"), (np.sum, "sum"), (np.max, "maximum")):
                reduced = [take(one, axis=axis, keepdims=True) for one in given]
                if wrong.is_given_by(list(map(_spread, reduced, wrong.right))):
                    is_mix = (name, word) == ("v", "mean")
                    equal = ": every key has the same weight" * is_mix
                    yield f"the {word} of {name} over all {words_of(letter)[1]}{equal}"
    rights = right_answers(wrong.task)
    for name in names_of(wrong.task) if len(wrong.mine) == len(rights) else ():
        if name != wrong.name and wrong.is_given_by(wrong._replace(name=name).taken_from(rights)):
            yield f"what belongs into {name}"


def _swapped(array: Array) -> Array:
    return array.swapaxes(-1, -2) if array.ndim > 1 else array


def _spread(array: Array, like: Array) -> Array:
    try:
        return np.broadcast_to(array, like.shape)
    except ValueError:
        return array


def _factor(wrong: Wrong) -> Iterator[str]:
    """Yield a factor made of the sizes."""
    values = list(map(ratio, wrong.mine, wrong.right, wrong.largest))
    told = factor_of(wrong.sizes, values)
    if told == "-1":
        yield "right except for the sign"
    elif told:
        yield f"right except for a factor: yours is {told} times the right one"


G = "(H // H_kv)"
LIKE = {  # sizes that an axis may be taken for
    "T_q": ("T_k", "d_k", "block"), "T_k": ("T_q", "d_k", "block"), "T": ("d", "H"),
    "T_y": ("T_x",), "T_x": ("T_y",), "H": ("H_kv", G), "H_kv": (G,), "d": ("H", "T"),
    "d_k": ("d_v",), "d_v": ("d_k",), "B": ("H",), "T + 1": ("T",),
}  # fmt: skip
PLACES: dict[str, Place] = {  # {one} and {all} are the words for an index and for indices
    "the first {one}": lambda n, _: np.arange(n) == 0,
    "the last {one}": lambda n, _: np.arange(n) == n - 1,
    "every {one} but the first": lambda n, _: np.arange(n) > 0,
    "every {one} but the last": lambda n, _: np.arange(n) < n - 1,
    "every other {one}, from the second on": lambda n, _: np.arange(n) % 2 == 1,
    "every other {one}, from the first on": lambda n, _: np.arange(n) % 2 == 0,
    "the first half of the {all}": lambda n, _: np.arange(n) < n // 2,
    "the second half of the {all}": lambda n, _: np.arange(n) >= (n + 1) // 2,
    "the last block of {all}": lambda n, s: np.arange(n) >= (n - 1) // s["block"] * s["block"],
    "the first block of {all}": lambda n, s: np.arange(n) < s["block"],
    "the last {one} of each whole block": lambda n, s: (np.arange(n) + 1) % s["block"] == 0,
    "the {all} after the last whole block":
        lambda n, s: np.arange(n) >= n - n % s["block"],
    "the first {one} of each group": lambda n, s: np.arange(n) % s[G] == 0,
    "the last {one} of each group": lambda n, s: (np.arange(n) + 1) % s[G] == 0,
    "the last {one} of each group of several":
        lambda n, s: ((np.arange(n) + 1) % s[G] == 0) & (s[G] > 1),
    "every {one} of a group but the first": lambda n, s: np.arange(n) % s[G] > 0,
}  # fmt: skip


def _places(wrong: Wrong) -> Iterator[tuple[int, str, Place]]:
    """Yield axes, words and places, of which all wrong numbers are in the last."""
    names = axis_names(wrong.task, wrong.name, wrong.right[0].ndim)
    ndim = wrong.right[0].ndim
    if any(array.ndim != ndim for array in (*wrong.right, *wrong.mine)):
        return
    for axis in range(ndim):
        one, several = indices_of(wrong.task, wrong.name, ndim, axis)
        for words, place in places_of(names[axis]).items():
            yield axis, words.format(one=one, all=several), place


def places_of(letter: str) -> dict[str, Place]:
    """Return the places in an axis with a name."""
    found = dict(PLACES)
    for size in LIKE.get(letter, ()):
        found[f"the {{all}} from {size.strip('()')} on"] = _cut(size, is_before=False)
        found[f"the first {size.strip('()')} {{all}}"] = _cut(size, is_before=True)
    return found


def _cut(size: str, *, is_before: bool) -> Place:
    return lambda n, s: (np.arange(n) < s[size]) == is_before


def _in_place(wrong: Wrong, axis: int, place: Place) -> list[Array] | None:
    """Return where the place is in each array; None if a size is unknown, or nothing is left."""
    found = []
    for right, sizes in zip(wrong.right, wrong.sizes, strict=True):
        try:
            hit = place(right.shape[axis], sizes)
        except KeyError:
            return None
        found.append(
            np.moveaxis(np.broadcast_to(hit, np.moveaxis(right, axis, -1).shape), -1, axis)
        )
    return found if any(one.any() and not one.all() for one in found) else None


INSTEAD: dict[str, Callable[[Array, int], Array]] = {  # of the right numbers, in a place
    "0": lambda a, _: 0 * a,
    "minus the right numbers": lambda a, _: -a,
    "twice the right numbers": lambda a, _: 2 * a,
    "half the right numbers": lambda a, _: a / 2,
    "1": lambda a, _: 0 * a + 1,
    "the numbers of the one before": lambda a, i: np.roll(a, 1, i),
    "the numbers of the one after": lambda a, i: np.roll(a, -1, i),
    "the numbers of the first": lambda a, i: a.take([0], i) + 0 * a,
    "the numbers of the last": lambda a, i: a.take([-1], i) + 0 * a,
}


def _zeros(wrong: Wrong) -> Iterator[str]:
    """Yield zeros, or other numbers that follow from the right ones, in a place."""
    if not wrong.fit:
        return
    off = [~np.isclose(a, b, rtol=1e-9, atol=0, equal_nan=True) for a, b in _pairs(wrong)]
    for axis, words, place in _places(wrong):
        where = _in_place(wrong, axis, place)
        if where is None or any((bad & ~hit).any() for bad, hit in zip(off, where, strict=True)):
            continue
        for told, made in INSTEAD.items():
            there = [made(right, axis) for right in map(_float, wrong.right)]
            triples = zip(where, there, wrong.right, strict=True)
            if wrong.is_given_by([np.where(*one) for one in triples]):
                yield f"{words}: {told}; the rest is right"


def _float(array: Array) -> Array:
    return array.astype(float)


def _pairs(wrong: Wrong) -> Iterator[tuple[Array, Array]]:
    yield from zip(wrong.mine, wrong.right, strict=True)


def _order(wrong: Wrong) -> Iterator[str]:
    """Yield another order of an axis, or one index in place of all."""
    ndim = wrong.right[0].ndim
    if any(array.ndim != ndim for array in wrong.right):
        return
    for axis in range(ndim):
        one, several = indices_of(wrong.task, wrong.name, ndim, axis)
        for told, made in (
            (f"the {several} are in reverse order", lambda a, i: np.flip(a, i)),
            (f"each {one} has the numbers of the one before it, and the first those of the last",
             lambda a, i: np.roll(a, 1, i)),
            (f"each {one} has the numbers of the one after it, and the last those of the first",
             lambda a, i: np.roll(a, -1, i)),
            (f"every {one} has the numbers of the first", lambda a, i: a.take([0], i) + 0 * a),
            (f"every {one} has the numbers of the last", lambda a, i: a.take([-1], i) + 0 * a),
            (f"every {one} has the mean of all {several}",
             lambda a, i: a.mean(axis=i, keepdims=True) + 0 * a),
            (f"every {one} has the sum of all {several}",
             lambda a, i: a.sum(axis=i, keepdims=True) + 0 * a),
            (f"the {several} are added up from the first to the last: each has the sum so far",
             lambda a, i: np.cumsum(a, axis=i)),
            (f"there is only the first {one}", lambda a, i: a.take(0, i)),
            (f"there is only the last {one}", lambda a, i: a.take(-1, i)),
            (f"there is only the first {one}", lambda a, i: a.take([0], i)),
            (f"there is only the last {one}", lambda a, i: a.take([-1], i)),
            (f"the last {one} is missing", lambda a, i: a.take(range(a.shape[i] - 1), i)),
            (f"the first {one} is missing", lambda a, i: a.take(range(1, a.shape[i]), i)),
            (f"the {several} are summed, so that axis is missing", lambda a, i: a.sum(axis=i)),
            (f"the {several} are averaged, so that axis is missing", lambda a, i: a.mean(axis=i)),
        ):  # fmt: skip
            if wrong.is_given_by([made(_float(right), axis) for right in wrong.right]):
                yield told
        if not wrong.fit:
            continue
        orders = [
            _indices(*one, axis) for one in zip(wrong.mine, wrong.right, wrong.largest, strict=True)
        ]
        usual = max(orders, key=len)
        if len(usual) > 1 and all(order and order == usual[: len(order)] for order in orders):
            moved = [f"{i} has the numbers of {j}" for i, j in enumerate(usual) if i != j]
            yield f"counted from 0, {one} {', '.join(moved[:4])}{' ...' * (len(moved) > 4)}"


def _indices(mine: Array, right: Array, largest: float, axis: int) -> list[int]:
    """Return which index of the right array each index of a student's has; [] if one has none."""
    size = right.shape[axis]
    rows, theirs = (np.moveaxis(a, axis, 0).reshape(size, -1) for a in (mine, right))
    found = []
    for i, row in enumerate(rows):
        fitting = [j for j in [i, *range(size)] if same(row, theirs[j], largest)]
        if not fitting:
            return []
        found.append(fitting[0])
    return found


def _layout(wrong: Wrong) -> Iterator[str]:
    """Yield an order of the axes in which the right numbers were written."""
    ndim = wrong.right[0].ndim
    if any(a.size != b.size or b.ndim != ndim for a, b in _pairs(wrong)) or ndim > 4:
        return
    in_order = [[np.sort(a, axis=None) for a in arrays] for arrays in (wrong.mine, wrong.right)]
    if not wrong.are_same(*in_order):
        return
    names = axis_names(wrong.task, wrong.name, ndim)
    yield from _turned(wrong, names)
    x = next(iter(wrong.probes[0].values()))
    is_one_array = len(wrong.probes[0]) <= 2 and isinstance(x, np.ndarray)  # split or merged
    if is_one_array and not conventions_of(wrong.task):
        yield from _read(wrong)


def _turned(wrong: Wrong, names: Sequence[str]) -> Iterator[str]:
    what, usual = "the right array", tuple(range(len(names)))
    for order in permutations(usual):
        turned = [array.transpose(order) for array in wrong.right]
        if order != usual and wrong.is_given_by(turned):
            shape = f": yours is ({', '.join(names[i] for i in order)})" if all(names) else ""
            if order == (1, 0):
                yield f"{what}, transposed{shape * (len(set(names)) > 1)}"
            yield f"{what} with its axes in the order {order}{shape}"
        made = [one.reshape(mine.shape) for one, mine in zip(turned, wrong.mine, strict=True)]
        if wrong.is_given_by(made):
            if order == usual:
                yield f"its numbers are those of {what} in the same order, in another shape"
            else:
                yield f"{what}.transpose{order}, reshaped: the numbers lie in another order"


def _read(wrong: Wrong) -> Iterator[str]:
    """Yield the order in which the axes B, H, T, d of an input were read and written."""
    (name, _), *_ = wrong.probes[0].items()
    sizes = [dict(one) for one in wrong.sizes]
    for one, probe in zip(sizes, wrong.probes, strict=True):
        if "d" not in one and "H" in one:
            one["d"] = probe[name].shape[-1] / one["H"]
    letters = ("B", "H", "T", "d")
    if any(letter not in one for one in sizes for letter in letters):
        return
    for read in permutations(letters):
        shapes = [[int(one[letter]) for letter in read] for one in sizes]
        given = [probe[name].reshape(s) for probe, s in zip(wrong.probes, shapes, strict=True)]
        for order in permutations(range(4)):
            made = [
                one.transpose(order).reshape(mine.shape)
                for one, mine in zip(given, wrong.mine, strict=True)
            ]
            if wrong.is_given_by(made):
                first = f"{name}.reshape({', '.join(read)})"
                then = f".transpose{order}" if order != (0, 1, 2, 3) else ""
                yield f"{first}{then}"


def _reshaped(wrong: Wrong) -> Iterator[str]:
    """Yield that the numbers are right and only the shape is not."""
    flat = [[array.ravel() for array in arrays] for arrays in (wrong.mine, wrong.right)]
    if not wrong.are_same(*flat) or all(a.shape == b.shape for a, b in _pairs(wrong)):
        return
    if all(a.shape == b.squeeze().shape for a, b in _pairs(wrong)):
        yield "the numbers are right, but axes of length 1 are dropped, as by squeeze"
    yield "the numbers are right and in the right order, but the shape is not"


def _is_given(
    wrong: Wrong,
    change: Callable[[Inputs, dict[str, float]], Inputs],
    function: Function | None = None,
) -> bool:
    """Return whether the array is the right one of changed inputs, and stop where it is not."""
    function = function or make(wrong.task)
    given: list[Array] = []
    for probe, sizes, number in zip(wrong.probes, wrong.sizes, wrong.numbers, strict=True):
        try:
            answer = attempt(function, change(probe, sizes), (Exception,))
        except (KeyError, IndexError):
            return False
        given.append(dict(arrays_of(wrong.task, answer, number)).get(wrong.name, NONE))
        if not wrong.are_same(wrong.mine[: len(given)], given):
            return False
    return wrong.is_given_by(given)


def _of_other_inputs(wrong: Wrong) -> Iterator[str]:
    """Yield what comes out if an input is 0 or very large, or without some indices of an axis."""
    if conventions_of(wrong.task):
        return
    names = [
        n for n, v in wrong.probes[0].items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"
    ]
    has_scores = {"q", "k"} <= set(names)
    for name in names:
        if _is_given(wrong, partial(_scaled, name=name, by=0.0)):
            equal = has_scores and name in ("q", "k")
            same_ = "all weights of a query are equal: its scores make no difference"
            yield same_ if equal else f"what comes out if {name} is 0"
    if has_scores and _is_given(wrong, partial(_scaled, name="q", by=1e9)):
        yield "the key with the largest score has all the weight"
    for letter in dict.fromkeys(
        axis for name in names for axis in axes_of(wrong.task).get(name, ())
    ):
        if letter not in WORDS or letter in axis_names(wrong.task, wrong.name, wrong.right[0].ndim):
            continue
        one, several = words_of(letter)
        for words, place in places_of(letter).items():
            words = words.format(one=one, all=several)
            if _is_given(wrong, partial(_without, task=wrong.task, letter=letter, place=place)):
                yield f"what comes out {_left(words)}"
    if "params" in wrong.probes[0] and "H" in wrong.sizes[0]:
        for words, place in places_of("H").items():
            if _is_given(wrong, partial(_without_heads, place=place)):
                yield f"what comes out {_left(words.format(one='head', all='heads'))}"


def _left(words: str) -> str:
    """Return the words for what is left without a place."""
    kind, is_all_but, which = words.removeprefix("every ").partition(" but the ")
    return f"of the {which} {kind} alone" if is_all_but else f"without {words}"


def _scaled(probe: Inputs, _: dict[str, float], *, name: str, by: float) -> Inputs:
    """Return an input of which one array is multiplied."""
    return {**probe, name: by * probe[name]}


def _without_heads(probe: Inputs, sizes: dict[str, float], *, place: Place) -> Inputs:
    """Return an input in which some heads write nothing."""
    params, heads = probe["params"], int(sizes["H"])
    hit = np.repeat(place(heads, sizes), len(params.w_o) // heads)
    return {**probe, "params": params._replace(w_o=np.where(hit[:, None], 0, params.w_o))}


def _without(
    probe: Inputs, sizes: dict[str, float], *, task: str, letter: str, place: Place
) -> Inputs:
    """Return an input without some indices of an axis."""
    made = dict(probe)
    for name, axes in axes_of(task).items():
        value = probe.get(name)
        if isinstance(value, np.ndarray) and letter in axes and value.ndim == len(axes):
            axis = axes.index(letter)
            hit = place(value.shape[axis], sizes)
            if not hit.all():  # or nothing would be left
                made[name] = value.take(np.flatnonzero(~hit), axis)
    return made


def _off_by(wrong: Wrong) -> Iterator[str]:
    """Yield an input that is added to the right array, perhaps times a factor."""
    if not wrong.fit:
        return
    off = [a.astype(float) - b for a, b in _pairs(wrong)]
    for name, value in leaves(wrong.probes[0]).items():
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or not value.size:
            continue
        given = [np.asarray(leaves(probe)[name]) for probe in wrong.probes]
        spread = list(map(_spread, given, wrong.right))
        if any(a.shape != b.shape for a, b in zip(spread, wrong.right, strict=True)):
            continue
        values = list(map(ratio, off, spread, wrong.largest))
        for i, (array, largest) in enumerate(zip(off, wrong.largest, strict=True)):
            if np.abs(array).max(initial=0) <= 1e-10 * largest and values[i] is not None:
                values[i] = 0.0
        if all(value is None or abs(value - 1) < 1e-9 for value in values):
            yield f"{name} is added to the right numbers"
        told = factor_of(wrong.sizes, values)
        if told == "-1":
            yield f"{name} is missing in it, or subtracted once too often"
        elif told:
            yield f"{told} times {name} is added to the right numbers"


RULES: dict[str, Callable[[int, int, int], int]] = {  # which key head query head h reads
    "0": lambda h, H, K: 0,
    "H_kv - 1": lambda h, H, K: K - 1,
    "h % H_kv": lambda h, H, K: h % K,
    "h // H_kv, at most H_kv - 1": lambda h, H, K: min(h // K, K - 1),
    "h // H_kv % H_kv": lambda h, H, K: h // K % K,
    "h, at most H_kv - 1": lambda h, H, K: min(h, K - 1),
    "(h + 1) // G % H_kv": lambda h, H, K: (h + 1) // (H // K) % K,
    "(h + 1) // G, at most H_kv - 1": lambda h, H, K: min((h + 1) // (H // K), K - 1),
    "(h - 1) // G, at least 0": lambda h, H, K: max((h - 1) // (H // K), 0),
    "h % G, at most H_kv - 1": lambda h, H, K: min(h % (H // K), K - 1),
    "h % G % H_kv": lambda h, H, K: h % (H // K) % K,
    "H_kv - 1 - h // G": lambda h, H, K: K - 1 - h // (H // K),
    "h // G - 1, from the last on": lambda h, H, K: (h // (H // K) - 1) % K,
    "h // G + 1, and 0 after the last": lambda h, H, K: (h // (H // K) + 1) % K,
}


def _heads_read(wrong: Wrong) -> Iterator[str]:
    """Yield which key head, or which head of the values, each query head reads."""
    is_grouped = {"q", "k", "v"} <= set(wrong.probes[0]) and "H_kv" in wrong.sizes[0]
    if not is_grouped or not wrong.fit or conventions_of(wrong.task):
        return
    for of_what, names in (("key and value head", "kv"), ("key head", "k"), ("value head", "v")):
        for words, rule in RULES.items():
            if _is_given(wrong, partial(_with_heads, names=names, rule=rule)):
                of_inputs = [(int(one["H"]), int(one["H_kv"])) for one in wrong.sizes]
                H, K, h = next(
                    (H, K, h)
                    for H, K in of_inputs
                    for h in range(H)
                    if rule(h, H, K) != h // (H // K)
                )
                yield (
                    f"query head h reads {of_what} {words}, not h // G, with G = H // H_kv: of {H} "
                    f"and {K}, head {h} reads {rule(h, H, K)}, not {h // (H // K)}"
                )


def _with_heads(
    probe: Inputs, sizes: dict[str, float], *, names: str, rule: Callable[[int, int, int], int]
) -> Inputs:
    """Return an input with as many key heads as query heads, by a rule."""
    H, K = int(sizes["H"]), int(sizes["H_kv"])
    usual, read = [h // (H // K) for h in range(H)], [rule(h, H, K) for h in range(H)]
    given = {name: probe[name][:, read if name in names else usual] for name in "kv"}
    return {**probe, **given}


RELATIONS: tuple[Callable[[Wrong], Iterator[str]], ...] = (
    _plain, _reshaped, _factor, _order, _zeros, _of_other_inputs, _heads_read, _off_by, _layout,
)  # fmt: skip


def find_cause(wrong: Wrong) -> str:
    """Return why one array is wrong, in a clause, or an empty text; it follows from no relation."""
    if wrong.is_nan_alone:
        return ""
    with np.errstate(all="ignore"):
        for find in (_known, _edited, _known_times, _scaled_scores, _edited_times):
            if told := find(wrong):
                return told
    return ""


def _known(wrong: Wrong) -> str:
    """Return the known mistake that gives this array."""
    for name, answers in fingerprints(wrong.task).items():
        if wrong.is_given_by(wrong.taken_from(answers)):
            return f"this mistake gives exactly your numbers: {BANK[name].verdict}"
    return ""


def _known_times(wrong: Wrong) -> str:
    """Return the known mistake that gives this array times a factor, and the factor."""
    for name, answers in fingerprints(wrong.task).items():
        made = wrong.taken_from(answers)
        if not wrong.are_same(wrong.right, made):
            factor = factor_of(wrong.sizes, list(map(ratio, wrong.mine, made, wrong.largest)))
            if factor and factor.count("sqrt") < 2:  # two roots fit by chance
                return f"{BANK[name].verdict}; and all of it is {times(factor)}"
    return ""


def times(factor: str) -> str:
    """Return the words for a factor."""
    return "turned to the other sign" if factor == "-1" else f"multiplied by {factor}"


def _edited(wrong: Wrong, factor: Sequence[float] = (), words: str = "") -> str:
    """Return the small edit that gives this array, or this array times a factor."""
    if not has_table(wrong.task):  # it would take too long for each array
        return ""
    meant = [name == wrong.name for name in names_of(wrong.task)]
    edit = find_edit(wrong.task, wrong.as_answers(factor), MANY, meant)
    adds_one = bool(words) and edit is not None and edit.group == FACTORS
    if edit is None or edit.others > MANY or adds_one:  # and takes it away again
        return ""
    return f"{step_of_edit(edit)}{words}"


def _edited_times(wrong: Wrong) -> str:
    """Return the small edit that gives this array times a factor, and the factor."""
    for text, numbers in islice(factors(wrong.sizes), SIMPLE):
        told = _edited(wrong, (1 / numbers).tolist(), f"; and all of it is {times(text)}")
        if told:
            return told
    return ""


def _scaled_scores(wrong: Wrong) -> str:
    """Return what the scores were divided by, if that is all."""
    if "scores" not in called_by(wrong.task) - {wrong.task} or conventions_of(wrong.task):
        return ""
    function = assembled(wrong.task, {})
    namespace = function.__globals__
    scores = namespace["scores"]
    roots = [np.sqrt(one.get("d_k", one.get("d", 1.0))) for one in wrong.sizes]
    for text, numbers in [("1", np.ones(len(roots))), *islice(factors(wrong.sizes), SCALES)]:
        left = iter(roots / numbers)

        def scaling(probe: Inputs, _: dict[str, float], left: Iterator[float] = left) -> Inputs:
            c = next(left)
            namespace["scores"] = lambda q, k: np.asarray(scores(q, k) * c)
            return probe

        if _is_given(wrong, scaling, function):
            return f"the scores are divided by {text}, not by np.sqrt(d_k)"
    return ""
