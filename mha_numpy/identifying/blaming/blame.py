"""Which line of a function's source is to blame for a deviation: the first whose value shows it."""

import ast
import contextlib
import linecache
import re
from collections.abc import Iterator, Mapping
from itertools import permutations, product
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.blaming.expected import Expected, expected
from mha_numpy.identifying.blaming.values import values_of
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.family import USUAL, evaluate
from mha_numpy.identifying.family.stages import first_stage
from mha_numpy.identifying.searching.search import CLOSE, Seen, distance

SECONDS = 1.8  # to watch the expressions of a call, and to compare
TINY = 1e-11  # relative, for a single number, which may agree by chance
IN_CALLS = ("softmax_axis", "rotation", "rotated")  # a helper may be right, its call wrong
MADE_OF = {  # the names of what is made of an argument, and to blame
    "window_given": r"\w+", "lengths": r"\w+",
    "mask": r"\w*(?:hid|block|forbid|ban|see|visible|keep|allow)\w*",
}  # fmt: skip
RULES = ("causal", "window")  # of cells: a class may keep its own mask
MAKES_CELLS = re.compile(r"tri[lu]?\b|arange|[<>]=?")
AT_THE_END = ("w_o", "b_o")  # left out where the function returns


class Blame(NamedTuple):
    """A line of a function's source."""

    line: int
    text: str


def find_blame(
    subject: Subject, seen: Seen, settings: Mapping[str, Any], setting: str, right: Any = None
) -> Blame | None:
    """Return the first line whose value shows a deviation from the right setting, or the usual one.

    The function runs once more, and every array that one of its expressions makes is compared
    with what attention has under these settings, and under the same with one put right.
    """
    value = settings.get(setting, USUAL[setting])
    without = {**settings, setting: USUAL[setting] if right in (None, value) else right}
    settings = {**settings, setting: value}
    if setting == "rotation" and " of " in value:  # what a mistake comes from
        without[setting] = right or "halves"
    try:
        if setting in AT_THE_END:
            return find_output(subject, seen, settings, "")
        with np.errstate(all="ignore"), subject.within(SECONDS):
            hits = _hits(subject, seen, settings, without, setting)
            line, what = next(hits)
            if is_copied(setting, value):
                line = _copied(subject, seen, without, value) or line
            if setting in RULES:
                line = _in_constructor(subject, line)
            if setting in IN_CALLS:
                same = (n for n, name in hits if name == what)
                line = next((n for n in same if _is_at_call(subject, n, line)), line)
            if setting in MADE_OF:
                own = seen.way.argument(setting.removesuffix("_given"))
                line = _maker(subject, line, own, MADE_OF[setting])
        return _blame_of(subject, line)
    except Exception:  # anybody's code and arrays
        return None


def is_copied(setting: str, value: Any) -> bool:
    """Return whether projections of another array are used, as in "v := k"."""
    return setting == "params" and ":=" in str(value)


def _copied(subject: Subject, seen: Seen, usual: Mapping[str, Any], value: str) -> int | None:
    """Return the line that projects `v` once more as `k`, None if the right one is there, too."""
    values, made = values_of(subject, _given(seen)), evaluate(seen.problem, usual) or {}
    own, _, other = value.partition(" := ")
    right, copied = (Bank({n: [made[f"wide_{n}"]]}, "") for n in (own, other))
    if any(right.find(each.array) for each in values):
        return None
    lines = dict.fromkeys(each.line for each in values if copied.find(each.array))
    file = subject.inner.__code__.co_filename
    named = re.compile(rf"[^=(]*{own}[^=(]*=", re.I)
    return next((n for n in lines if named.match(linecache.getline(file, n))), None)


def _in_constructor(subject: Subject, line: int) -> int:
    """Return the line that makes the mask that an object keeps, for a line that uses it."""
    lines = linecache.getlines(subject.inner.__code__.co_filename)
    kept = re.findall(r"\bself\.(\w+)", lines[line - 1])
    if MAKES_CELLS.search(lines[line - 1]) or not kept:
        return line
    makes = re.compile(rf"self\.({'|'.join(kept)})\b *=|register_buffer\(.({'|'.join(kept)})\b")
    made = (n for n, text in enumerate(lines, 1) if makes.search(text) and MAKES_CELLS.search(text))
    return next(made, line)


def _maker(subject: Subject, line: int, argument: str, name: str) -> int:
    """Return the line that makes a bound or a mask of an argument, for a line that uses it."""
    lines = linecache.getlines(subject.inner.__code__.co_filename)
    names = {*re.findall(r"\w+", lines[line - 1])}
    makes = re.compile(rf"\s*({name})\b[^=]*=.*\b{argument}\b")
    earlier = range(subject.inner.__code__.co_firstlineno, line)
    made = [n for n in earlier if (m := makes.match(lines[n - 1])) and m[1] in names]
    return line if argument in names else next(iter(made), line)


def _is_at_call(subject: Subject, line: int, inner: int) -> bool:
    """Return whether a line is to blame for what a helper computes in its line `inner`.

    Not if the helper is for queries or keys alone, or has no axis to choose and is called once.
    """
    lines = linecache.getlines(subject.inner.__code__.co_filename)
    nodes = ast.walk(ast.parse("".join(lines)))
    around = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.lineno <= inner]
    helper = max(around, key=lambda node: node.lineno)
    if helper.lineno <= line <= (helper.end_lineno or 0):
        return False
    calls = [text for text in lines if re.search(rf"(?<!def )\b{helper.name}\(", text)]
    has_axis = {"axis", "dim", "dims"} & {each.arg for each in helper.args.args}
    is_general = has_axis or re.search(r"rot|rope|\b(axis|dim)\b|, ?-?\d", lines[line - 1])
    return bool(calls and (is_general or len(calls) > 1)) and not re.search(
        r"(^|_)(q|k|query|key)s?(_|$)", helper.name
    )


def find_first_nan(subject: Subject, seen: Seen, after: str = "") -> Blame | None:
    """Return the first line that makes NaN or infinity of finite numbers; -inf may hide a cell.

    If no line does, return that which fails. `after`: the last line before with this word.
    """
    with contextlib.suppress(Exception), np.errstate(all="ignore"), subject.within(SECONDS):
        values = values_of(subject, _given(seen))
        is_bad = [bool(np.isnan(x).any()) or _is_inf(x) for _, x in values]
        end = is_bad.index(True) + 1 if True in is_bad else len(values)
        file = subject.inner.__code__.co_filename
        lines = [value.line for value in values[:end]]
        named = [line for line in lines if after in linecache.getline(file, line)]
        return _blame_of(subject, (named or lines)[-1])
    return None


def overflows(subject: Subject, seen: Seen) -> bool:
    """Return whether infinity comes before NaN; else a sum that underflows to 0 makes NaN."""
    with contextlib.suppress(Exception), np.errstate(all="ignore"), subject.within(SECONDS):
        bad = (x for _, x in values_of(subject, _given(seen)) if np.isnan(x).any() or _is_inf(x))
        return _is_inf(next(bad))
    return True


def _is_inf(array: Array) -> bool:
    """Return whether an array has infinity; np.inf is a number that code may name."""
    return bool((np.isposinf(array) & (array.size > 1)).any())


def find_draw(subject: Subject, *, is_scale: bool) -> Blame | None:
    """Return the line that draws what to drop, or that which uses it, where a scale is missing."""
    file, line = subject.chance.place
    if file != subject.inner.__code__.co_filename:
        return None
    lines = linecache.getlines(file)
    drawn = re.match(r"\s*(\w+)\b[^=]*=", lines[line - 1]) if is_scale else None
    later = range(line + 1, len(lines) + 1) if drawn else ()
    uses = (n for n in later if drawn and re.search(rf"\b{drawn[1]}\b", lines[n - 1]))
    return _blame_of(subject, next(uses, line))


def find_use(subject: Subject, name: str, *, last: bool = True) -> Blame | None:
    """Return the last line that reads an argument, in vain, or the first that names a dtype."""
    nodes: Iterator[Any] = ast.walk(subject.tree)
    names = (name, name.strip("0123456789"))  # torch has x.float()
    lines = [
        node.lineno
        for node in nodes
        if name and (getattr(node, "id", "") == name or getattr(node, "attr", "") in names)
    ]
    first = subject.inner.__code__.co_firstlineno
    return _blame_of(subject, first + (max if last else min)(lines) - 1) if lines else None


def find_output(
    subject: Subject, seen: Seen, settings: Mapping[str, Any], what: str
) -> Blame | None:
    """Return the first line whose value is this output, or else that which returns."""
    with contextlib.suppress(Exception), np.errstate(all="ignore"), subject.within(SECONDS):
        values = values_of(subject, _given(seen))
        made = evaluate(seen.problem, settings) or {}
        bank = Bank({name: [made[name]] for name in (what,) if name in made}, "")
        lines = [value.line for value in values if bank.find(value.array)] if what else []
        return _blame_of(subject, [*lines, values[-1].line][0])
    return None


def find_change(subject: Subject, argument: str) -> Blame | None:
    """Return the first line that writes into an argument under its name."""
    part = rf"{argument}\b(?:\[.*\])*"
    writes = re.compile(rf"\s*{part} ?[-+*/@]+=|\s*{argument}\[.*\] ?=[^=]|.*\bout=\(?{part}")
    lines = subject.source.splitlines()
    found = (at for at, line in enumerate(lines) if writes.match(line))
    first = subject.inner.__code__.co_firstlineno
    return next((_blame_of(subject, first + at) for at in found), None)


def find_wrong(
    subject: Subject, given: Mapping[str, Any], right: Expected, wrong: Expected, before: set[str]
) -> tuple[Blame | None, set[str]]:
    """Return the first line of a backward pass that goes wrong, and the steps that nothing was.

    It comes after the last right value of the steps that lead to the gradient. Its own value is
    one of a known mistake; else it comes next.
    """
    with contextlib.suppress(Exception), np.errstate(all="ignore"), subject.within(SECONDS):
        hides, shows = Bank(right, ""), Bank(wrong, "")
        after: list[tuple[int, int]] = []
        for line, array in values_of(subject, given):
            known, shown = {*hides.find(array)}, {*shows.find(array)}
            if before & known:
                before, after = before - known, []
            elif known & shown:  # transposed
                after.append((1, line))
            elif not known and (array != array.flat[0]).any():
                after.append((0 if shown else 2, line))
        # where it returns, if all values are right
        line = min(after, key=itemgetter(0), default=(3, line))[1]
        return _blame_of(subject, line), before
    return None, before


def _given(seen: Seen) -> dict[str, Any]:
    return seen.way.given(seen.problem)


def _blame_of(subject: Subject, line: int) -> Blame:
    return Blame(line, linecache.getline(subject.inner.__code__.co_filename, line).strip())


def _hits(
    subject: Subject, seen: Seen, settings: Mapping[str, Any], without: Mapping[str, Any],
    setting: str,
) -> Iterator[tuple[int, str]]:  # fmt: skip
    """Yield the lines whose value is the deviant one and not the usual one, with its name."""
    deviant = expected(seen.problem, settings, setting)
    usual = expected(seen.problem, without, setting)
    names = [n for n in deviant if n not in usual or not _is_equal(deviant[n], usual[n])]
    value = settings[setting]  # if exchanged, k is the usual v, wherever it shows
    is_exchanged = setting == "exchanged" or is_copied(setting, value)
    hidden = {n: usual[n] for n in (usual if is_exchanged else names) if n in usual}
    shows = Bank({n: deviant[n] for n in names}, setting)
    hides = Bank(hidden, setting)
    same = Bank({n: usual[n] for n in deviant if n not in names and n not in hidden}, setting)
    for line, array in values_of(subject, _given(seen)):
        what = shows.find(array)
        if what and same.find(array):  # as frequencies, which are the angles of position 1
            continue
        usually = hides.find(array) if what else []
        left = [n for n in what if n not in usually and not (usually and is_exchanged)]
        if left:
            is_row = left[0] == "masked" and first_stage(setting) == "match"
            yield line, "scores" if is_row else left[0]
        if subject.left < 0:
            return


def _is_equal(arrays: list[Array], others: list[Array]) -> bool:
    return len(arrays) == len(others) and all(
        a.shape == b.shape and distance(a, b) < 1e-9 for a, b in zip(arrays, others, strict=True)
    )


class Bank:
    """Arrays by name, to be recognised: whole or in part, in any layout."""

    def __init__(self, arrays: Expected, setting: str) -> None:
        self.setting = setting
        self.cells = arrays.get("visible", [])
        plain = [(name, a) for name, each in arrays.items() for a in each if name != "visible"]
        self.parts: dict[int, list[tuple[str, Array]]] = {}  # by size
        for name, array in plain:
            for part in _parts(_filled(array, setting)):
                self.parts.setdefault(part.size, []).append((name, part))
        self.marks = {
            size: np.array([_mark(a) for _, a in each]) for size, each in self.parts.items()
        }
        numbers = sorted((x, name) for name, a in plain for x in a[np.isfinite(a)].tolist())
        self.numbers = np.array([x for x, _ in numbers])
        self.owners = [name for _, name in numbers]

    def find(self, array: Array) -> list[str]:
        """Return the names of the arrays that this one is, or is a part of."""
        if array.size == 1:  # of a loop over cells
            x = array.item()
            ends = np.searchsorted(self.numbers, sorted((x * (1 - TINY), x * (1 + TINY))))
            is_telling = np.isfinite(x) and x != round(x)
            return [*dict.fromkeys(self.owners[slice(*ends)])] if is_telling else []
        cells = _as_cells(array)
        if cells is not None:
            is_seen = any(_is_mask(c, own) for own in self.cells for c in (cells, ~cells))
            return ["visible"] if is_seen else []
        one = _squeeze(_filled(array, self.setting))
        mark = _mark(one)
        near = abs(self.marks.get(one.size, np.empty(0)) - mark) <= 1e-5 * mark
        alike = [self.parts[one.size][at] for at in np.flatnonzero(near)]
        return [*dict.fromkeys(name for name, part in alike if _is_same(one, part))]


def _filled(array: Array, setting: str) -> Array:
    """Return scores with the same number in hidden cells, whatever large number is there."""
    if setting == "hide":
        return np.where((array < -5e3) & np.isfinite(array), -1e4, array)
    return np.where(array < -5e3, -np.inf, array)


def _parts(array: Array) -> Iterator[Array]:
    """Yield an array, and the parts that loops over sequences, heads and queries make."""
    leading = array.shape[: min(3, array.ndim - 1)]
    for at in product(*([slice(None), *range(n)] for n in leading)):
        part = _squeeze(array[at])
        finite = part[np.isfinite(part)]
        if finite.size > 1 and np.ptp(finite) > 0:
            yield part


def _squeeze(array: Array) -> Array:
    """Return an array without axes of length 1; a row without hidden cells."""
    array = array.squeeze()
    return array[np.isfinite(array) & (array != 0)] if array.ndim == 1 else array


def _mark(array: Array) -> float:
    """Return a number that the order of axes does not change."""
    return float((array[np.isfinite(array)] ** 2).sum())


def _is_same(array: Array, own: Array) -> bool:
    """Return whether an array is another with its axes in some order, split or joined."""
    ends = {*np.cumprod(array.shape)}
    for order in permutations(range(own.ndim)):
        moved = own.transpose(order)
        own_ends = {*np.cumprod(moved.shape)}
        if (ends <= own_ends or own_ends <= ends) and (
            distance(array.reshape(-1), moved.reshape(-1)) <= CLOSE["float64"]
        ):
            return True
    return False


def _as_cells(array: Array) -> Array | None:
    """Return which cells a mask has, None for an array that is no mask."""
    if array.dtype == bool:
        return array
    if ((array == 0) | (array == 1)).all():
        return array == 1
    return array == 0 if ((array == 0) | (array < -1e3)).all() else None


def _is_mask(cells: Array, own: Array) -> bool:
    """Return whether a mask is this one, for all sequences and heads or for one sequence."""
    if cells.all() or not cells.any():
        return False
    if cells.shape == (own.shape[0], own.shape[-1]):
        cells = cells[:, None, None]
    for wanted in (own, own[:, 0], *own[:, 0]):
        with contextlib.suppress(ValueError):
            if np.array_equal(np.broadcast_to(cells, wanted.shape), wanted):
                return True
    return False
