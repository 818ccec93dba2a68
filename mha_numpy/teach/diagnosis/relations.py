"""Relations: how a wrong array follows from the right one, or from the inputs, on all inputs alike.

A relation predicts an array from the right one. It holds where it gives all of a student's numbers
on every input, so it explains them, in the same words for every input.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
import numpy as np

from mha_numpy.checking.trees import leaves
from mha_numpy.dtypes import Array
from mha_numpy.teach.conventions import conventions_of
from mha_numpy.teach.diagnosis.fingerprints import attempt, right_answers
from mha_numpy.teach.diagnosis.mutants import mutated
from mha_numpy.teach.diagnosis.sizes import axis_names, factor_of, indices_of, ratio
from mha_numpy.teach.diagnosis.wrong import Wrong, same

Place = Callable[[int, dict[str, float]], Array]  # which indices of an axis, by its size


def find_relation(wrong: Wrong) -> str:
    """Return how the array follows from the right one, in a clause; empty if it does not."""
    if any(array.size == 0 for array in wrong.right):
        return ""
    return next((told for find in RELATIONS for told in find(wrong)), "")


def _plain(wrong: Wrong) -> Iterator[str]:
    """Yield zeros, one number everywhere, an input, a mean of an input."""
    mine = wrong.mine
    if all(array.size and not array.any() for array in mine):
        shapes = wrong.fit
        yield "all of its numbers are 0" + ("" if shapes else ", and its shape is wrong")
    is_one = all(array.size > 1 and (array == array.flat[0]).all() for array in mine)
    if is_one and len({array.flat[0].item() for array in mine}) == 1 and np.isfinite(mine[0]).all():
        yield f"every number of it is {mine[0].flat[0]:.6g}"
    for name, value in wrong.probes[0].items():
        if not isinstance(value, np.ndarray) or value.ndim == 0:
            continue
        given = [np.asarray(probe[name]) for probe in wrong.probes]
        if len({one.ndim for one in given}) > 1:
            continue
        if wrong.is_given_by(given):
            yield f"it is the input {name}, unchanged"
        for turned, how in ((np.negative, "with its sign changed"), (_swapped, "transposed")):
            if value.dtype.kind == "f" and wrong.is_given_by([turned(one) for one in given]):
                yield f"it is the input {name}, {how}"
        if value.dtype.kind != "f" or not all(one.size for one in given):
            continue
        for axis in range(value.ndim):
            for take, word in ((np.mean, "mean"), (np.sum, "sum"), (np.max, "maximum")):
                reduced = [take(one, axis=axis, keepdims=True) for one in given]
                if wrong.is_given_by(list(map(_spread, reduced, wrong.right))):
                    yield f"it is the {word} of {name} over axis {axis}, the same everywhere along it"
    for other in _others(wrong):
        if wrong.is_given_by(other[1]):
            yield f"it is what belongs into {other[0]}"


def _swapped(array: Array) -> Array:
    return array.swapaxes(-1, -2) if array.ndim > 1 else array


def _spread(array: Array, like: Array) -> Array:
    try:
        return np.broadcast_to(array, like.shape)
    except ValueError:
        return array


def _others(wrong: Wrong) -> Iterator[tuple[str, list[Array]]]:
    """Yield the other results by name."""
    rights = [leaves(right) for right in right_answers(wrong.task)]
    if len(wrong.mine) == len(rights):
        for name in rights[0]:
            if name != wrong.name:
                yield name, [np.asarray(one[name]) for one in rights]


def _factor(wrong: Wrong) -> Iterator[str]:
    """Yield a factor made of the sizes."""
    values = list(map(ratio, wrong.mine, wrong.right, wrong.largest))
    told = factor_of(wrong.sizes, values)
    if told == "-1":
        yield "every number of it is right except for its sign"
    elif told:
        yield f"it is right except for a factor: yours is {told} times the right one"


PLACES: dict[str, Place] = {  # {one} and {all} are the words for an index and for indices
    "the first {one}": lambda n, _: np.arange(n) == 0,
    "the last {one}": lambda n, _: np.arange(n) == n - 1,
    "every {one} but the first": lambda n, _: np.arange(n) > 0,
    "every {one} but the last": lambda n, _: np.arange(n) < n - 1,
    "every other {one}, from the second on": lambda n, _: np.arange(n) % 2 == 1,
    "every other {one}, from the first on": lambda n, _: np.arange(n) % 2 == 0,
    "the first half of the {all}": lambda n, _: np.arange(n) < n // 2,
    "the second half of the {all}": lambda n, _: np.arange(n) >= (n + 1) // 2,
    "the last {one} of each whole block": lambda n, s: (np.arange(n) + 1) % s["block"] == 0,
    "the {all} after the last whole block":
        lambda n, s: np.arange(n) >= n - n % s["block"],
    "the first {one} of each group": lambda n, s: np.arange(n) % s["(H // H_kv)"] == 0,
    "the last {one} of each group": lambda n, s: (np.arange(n) + 1) % s["(H // H_kv)"] == 0,
    "every {one} of a group but the first": lambda n, s: np.arange(n) % s["(H // H_kv)"] > 0,
}  # fmt: skip


def _places(wrong: Wrong) -> Iterator[tuple[int, str, Place]]:
    """Yield axes, words and places, of which all wrong numbers are in the last."""
    names = axis_names(wrong.task, wrong.name, wrong.right[0].ndim)
    sizes = wrong.sizes[0]
    more = {f"the {{all}} from {s} on": _from(s) for s in sizes if s not in names}
    more |= {f"the first {s.strip('()')} {{all}}": _until(s) for s in sizes if s not in names}
    more |= {"the {all} from H_kv on": _from("H_kv")} if "H_kv" in sizes else {}
    ndim = wrong.right[0].ndim
    if any(array.ndim != ndim for array in (*wrong.right, *wrong.mine)):
        return
    for axis in range(ndim):
        one, several = indices_of(wrong.task, wrong.name, ndim, axis)
        for words, place in (PLACES | more).items():
            yield axis, words.format(one=one, all=several), place


def _from(size: str) -> Place:
    return lambda n, s: np.arange(n) >= s[size]


def _until(size: str) -> Place:
    return lambda n, s: np.arange(n) < s[size]


def _in_place(wrong: Wrong, axis: int, place: Place) -> list[Array] | None:
    """Return where the place is in each array; None if a size is unknown, or it is nowhere."""
    found = []
    for right, sizes in zip(wrong.right, wrong.sizes, strict=True):
        try:
            hit = place(right.shape[axis], sizes)
        except KeyError:
            return None
        found.append(
            np.moveaxis(np.broadcast_to(hit, np.moveaxis(right, axis, -1).shape), -1, axis)
        )
    return found if any(one.any() for one in found) else None


def _zeros(wrong: Wrong) -> Iterator[str]:
    """Yield zeros, or other numbers that follow from the right ones, in a place."""
    if not wrong.fit:
        return
    off = [~np.isclose(a, b, rtol=1e-9, atol=0, equal_nan=True) for a, b in _pairs(wrong)]
    for axis, words, place in _places(wrong):
        where = _in_place(wrong, axis, place)
        if where is None or any((bad & ~hit).any() for bad, hit in zip(off, where, strict=True)):
            continue
        for told, made in (
            ("0", lambda a, _: 0 * a), ("minus the right numbers", lambda a, _: -a),
            ("twice the right numbers", lambda a, _: 2 * a),
            ("half the right numbers", lambda a, _: a / 2),
            ("1", lambda a, _: 0 * a + 1),
            ("the numbers of the one before", lambda a, i: np.roll(a, 1, i)),
            ("the numbers of the one after", lambda a, i: np.roll(a, -1, i)),
            ("the numbers of the first", lambda a, i: a.take([0], i) + 0 * a),
            ("the numbers of the last", lambda a, i: a.take([-1], i) + 0 * a),
        ):  # fmt: skip
            made_of = [np.where(hit, made(right, axis), right)
                       for hit, right in zip(where, map(_float, wrong.right), strict=True)]  # fmt: skip
            if wrong.is_given_by(made_of):
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
        if len(usual) > 1 and all(order == usual[: len(order)] for order in orders if order) and (
            all(orders)
        ):  # fmt: skip
            told = ", ".join(f"{i} that of {j}" for i, j in enumerate(usual) if i != j)
            yield f"of the {several}, counted from 0, number {told}"


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
    sorted_ = [
        np.array_equal(np.sort(a, axis=None), np.sort(b, axis=None)) for a, b in _pairs(wrong)
    ]
    if not all(sorted_):
        return
    names = axis_names(wrong.task, wrong.name, ndim)
    yield from _turned(wrong, wrong.right, names, "the right array")
    if len(wrong.probes[0]) <= 2 and not conventions_of(wrong.task):  # one array, split or merged
        x = next(iter(wrong.probes[0].values()))
        if isinstance(x, np.ndarray):
            yield from _read(wrong)


def _turned(
    wrong: Wrong, arrays: Sequence[Array], names: Sequence[str], what: str
) -> Iterator[str]:
    for order in permutations(range(arrays[0].ndim)):
        turned = [array.transpose(order) for array in arrays]
        if order != tuple(range(len(order))) and wrong.is_given_by(turned):
            shape = f": yours is ({', '.join(names[i] for i in order)})" if all(names) else ""
            yield f"it is {what} with its axes in the order {order}{shape}"
        made = [one.reshape(mine.shape) for one, mine in zip(turned, wrong.mine, strict=True)]
        if wrong.is_given_by(made):
            if order == tuple(range(len(order))):
                yield f"its numbers are those of {what} in the same order, in another shape"
            else:
                yield f"it is {what}.transpose{order}, reshaped: the numbers are laid out in another order"


def _read(wrong: Wrong) -> Iterator[str]:
    """Yield the order in which the axes B, H, T, d of an input were read and written."""
    (name, _), *_ = wrong.probes[0].items()
    sizes = [dict(one) for one in wrong.sizes]
    for one, probe in zip(sizes, wrong.probes, strict=True):
        one["d"] = probe[name].shape[-1] / one["H"] if "d" not in one else one["d"]
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
                yield f"it is {first}{then}, and no other order of the axes fits"


def _flat_along(wrong: Wrong) -> Iterator[str]:
    """Yield what comes out if an input is 0, such as weights that are all equal."""
    for name, value in wrong.probes[0].items():
        is_array = isinstance(value, np.ndarray) and value.dtype.kind == "f"
        if not is_array or len(leaves(right_answers(wrong.task)[0])) > 1:
            continue
        function = mutated(wrong.task, ())
        assert function is not None
        empty = [{**probe, name: np.zeros_like(probe[name])} for probe in wrong.probes]
        given = [attempt(function, probe) for probe in empty]
        if all(one is not None for one in given) and wrong.is_given_by(given):
            equal = name in ("q", "k") and "attention" in wrong.task or wrong.task == "one_query"
            means = ": all weights of a query are equal, whatever the scores are" if equal else ""
            yield f"it is what comes out if {name} is 0{means}"


RELATIONS: tuple[Callable[[Wrong], Iterator[str]], ...] = (
    _plain, _factor, _flat_along, _zeros, _order, _layout,
)  # fmt: skip
