"""Steps: the lines of a student's own function in which the numbers cease to be right.

Our solution computes one expression after another, and what each of them gives is known for every
input. A student's function is called once more, and its variables are looked up among these
numbers. The result depends on some that are found there, so the mistake is in the lines between.
"""

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.differences import largest_of
from mha_numpy.checking.trees import leaves
from mha_numpy.dtypes import Array
from mha_numpy.teach.conventions import conventions_of
from mha_numpy.teach.diagnosis.clues import listed
from mha_numpy.teach.diagnosis.fingerprints import attempt, right_answers
from mha_numpy.teach.diagnosis.mutants import assembled, edited_source, edits_of
from mha_numpy.teach.diagnosis.sizes import factor_of, ratio, sizes_of
from mha_numpy.teach.diagnosis.solutions import called_by, code_of
from mha_numpy.teach.diagnosis.variables import RESULT, Trace, numbers_in
from mha_numpy.teach.diagnosis.wrong import is_even, is_nan_alone, same
from mha_numpy.teach.tasks import TASKS
from mha_numpy.teach.turns import follow

FEW = 3  # variables that are told
LOWEST = -1e8  # a lower score stands for -inf


class _Seeing(ast.NodeTransformer):
    """Let each expression of a function tell its value."""

    def __init__(self, function: str):
        self.function = function

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Subscript):  # not in what is between the brackets
            new: Any = ast.Subscript(self.visit(node.value), node.slice, node.ctx)
        elif isinstance(node, ast.FunctionDef):
            node.body = [self.visit(one) for one in node.body]
            return node
        else:
            text, new = "", node
            if not isinstance(node, ast.expr_context | ast.operator):
                text = ast.unparse(node) if isinstance(node, ast.expr) else ""
                new = self.generic_visit(node)
        is_value = isinstance(node, ast.expr) and not isinstance(
            node, ast.Constant | ast.Slice | ast.Starred | ast.JoinedStr | ast.FormattedValue
        )
        if not is_value or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return new
        text = ast.unparse(node) if isinstance(node, ast.Subscript) else text
        where = [ast.Constant(one) for one in (self.function, text)]
        return ast.Call(ast.Name("_see", ast.Load()), [*where, new], [])


class Seen(NamedTuple):
    """Numbers that expressions of our solution have."""

    array: Array  # its core
    total: float
    in_order: Array  # those that are finite
    texts: set[str]


See = Callable[[str, str, Any], Any]  # takes a function's name, an expression and its value


def numbers_of_ours(task: str, mistakes: Iterable[str] = ()) -> list[list[Seen]]:
    """Return the numbers of every input and expression of our solution, for each probe.

    They are those with some mistakes in it.
    """
    found: dict[tuple[Any, ...], Seen] = {}

    def see(_: str, text: str, value: Any) -> Any:
        for one in map(_core, numbers_in(value)):
            key = one.dtype, one.shape, one.tobytes()
            if key not in found:
                in_order = np.sort(one[np.isfinite(one)], axis=None)
                found[key] = Seen(one, _total(one), in_order, set())
            found[key].texts.add(text)
        return value

    of_probes = []
    for _ in _watched(task, see, mistakes):
        of_probes.append(list(found.values()))
        found.clear()
    return of_probes


class Place(NamedTuple):
    """Where a value of our solution arises."""

    function: str  # "" of an input
    text: str  # the expression
    number: int  # of its values


def values_of_ours(task: str) -> list[dict[Place, Any]]:
    """Return the arrays and numbers of our solution, and of its inputs, for each probe."""
    found: dict[Place, Any] = {}
    count = Counter[tuple[str, str]]()

    def see(function: str, text: str, value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic | int | float):
            found[Place(function, text, count[function, text])] = np.copy(value)
            count[function, text] += 1
        return value

    of_probes = []
    for _ in _watched(task, see):
        of_probes.append(dict(found))
        found.clear()
        count.clear()
    return of_probes


def _watched(task: str, see: See, mistakes: Iterable[str] = ()) -> Iterator[None]:
    """Call our solution with one probe after another, and show all of its values."""
    codes, edits = {}, [edits_of(mistake) for mistake in mistakes]
    for name in called_by(task):
        of_name = {old: new for one in edits for old, new in one.get(name, {}).items()}
        tree = ast.parse(edited_source(name, of_name))
        tree.body = [_Seeing(name).visit(one) for one in tree.body]
        codes[name] = code_of(compile(ast.fix_missing_locations(tree), name, "exec"))
    made = assembled(task, codes)
    made.__globals__["_see"] = see
    function = follow(task, conventions_of(task), made)
    for probe in TASKS[task].probes():
        for name, leaf in leaves(probe).items():
            see("", name, leaf)
        attempt(function, probe, (Exception,))
        yield


def _total(array: Array) -> float:
    return float(np.where(np.isfinite(array), array, 0.0).sum())


def find_step(task: str, traces: Sequence[Trace | None]) -> str:
    """Return in which lines of a function the numbers cease to be right; "" if it is not known.

    Parameters
    ----------
    task : str
        A key of ``TASKS``.
    traces : sequence
        What a `traced` function returned for each probe; None where it failed.

    Examples
    --------
    >>> from mha_numpy.teach.diagnosis.variables import traced
    >>> def mine(q, k):
    ...     products = q @ k.swapaxes(-1, -2)
    ...     return products / q.shape[-1]
    >>> traces = [traced(mine)(**probe) for probe in TASKS["scores"].probes()]
    >>> find_step("scores", traces)
    '`products` in line 2 is the first of your variables whose numbers occur nowhere in our \
solution: they are np.sqrt(d_k) times numbers that do; look at lines 2 to 3'
    """
    if TASKS[task].named is not None or not any(traces):
        return ""
    with np.errstate(all="ignore"):
        return _Compared(task, traces, numbers_of_ours(task)).told()


def is_confirmed(task: str, traces: Sequence[Trace | None], mistakes: Collection[str]) -> bool:
    """Return whether NaN and inf arise in a function as they do where some mistakes are made.

    Numbers that are all NaN come about in many ways. Here they are in the same places before, too.
    """
    if TASKS[task].named is not None or not all(map(edits_of, mistakes)):
        return True
    with np.errstate(all="ignore"):
        made = numbers_of_ours(task, mistakes)
    for trace, ours in zip(traces, made, strict=False):
        known = {_broken(one.array, of) for one in ours for of in (np.isposinf, np.isneginf)}
        kinds = [any(map(any, of_kind)) for of_kind in zip(*known, strict=True)]
        for _, last, several in trace["values"].values() if trace else ():
            for one in map(np.squeeze, several or last):
                mine = _broken(one)
                is_known = mine in known or not any(map(any, mine))
                if not is_known and (not several or any(map(np.greater, map(any, mine), kinds))):
                    return False
    return True


def _broken(array: Array, is_inf: Any = np.isposinf) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Return which numbers are NaN, and which are inf; -inf is what a hidden score may be."""
    return tuple(np.isnan(array).ravel()), tuple(is_inf(array).ravel())


class _Compared:
    """The variables of a student's function among our numbers."""

    def __init__(self, task: str, traces: Sequence[Trace | None], ours: Sequence[list[Seen]]):
        self.pairs = [(trace, seen) for trace, seen in zip(traces, ours, strict=False) if trace]
        probes = zip(TASKS[task].probes(), traces, strict=False)
        self.sizes = [sizes_of(task, probe) for probe, trace in probes if trace]
        self.wrong = set[str]()  # what is returned
        self.needs: dict[str, set[str]] = {}
        self.known: dict[tuple[str, int], bool] = {}
        self.guilty = set[bytes]()  # wrong arrays that are returned
        self.filled = {key for trace, _ in self.pairs for key in trace["filled"]}
        self.is_passed = True  # whether all wrong results are variables
        self.is_nan_alone = True  # whether all wrong numbers are NaN or inf
        self.breaks = False  # whether some are
        for trace, right in zip(traces, right_answers(task), strict=False):
            for key, needs in (trace["needs"] if trace else {}).items():
                self.needs.setdefault(key, set()).update(needs)
                if trace and key.endswith(f" {RESULT}"):
                    mine, theirs = trace["values"].get(key, [[]])[0], numbers_in(right)
                    wrong = [not _close(*pair) for pair in zip(mine, theirs, strict=False)]
                    if any(wrong) or len(mine) != len(theirs):
                        self.wrong.add(key)
                    self.guilty |= {a.tobytes() for a, b in zip(mine, wrong, strict=False) if b}
                    self.is_nan_alone &= all(map(is_nan_alone, mine, theirs, map(_scale, theirs)))
                    self.breaks |= any(map(_breaks, mine, theirs))
                    pairs = zip(wrong, trace["passed"], strict=False)
                    self.is_passed &= all(passed for is_wrong, passed in pairs if is_wrong)

    def values_of(self, key: str) -> list[tuple[Any, list[Seen]]]:
        """Return the values of a variable on each input where it has some, with our numbers."""
        return [(trace["values"][key], o) for trace, o in self.pairs if key in trace["values"]]

    def last_of(self, key: str) -> list[Array]:
        """Return the last arrays and numbers of a variable on all inputs."""
        return [one for (_, last, _), _ in self.values_of(key) for one in last]

    def is_right(self, key: str, which: int = 1) -> bool:
        """Return whether some expression of ours has the numbers of a variable on all inputs."""
        if (key, which) not in self.known:
            sums = key in self.needs[key]  # a loop may end with what is right
            texts = [
                _texts_of(values, ours, which, sums)
                for values, ours in self.values_of(key)
                if not all(map(_says_nothing, values[which]))
            ]
            is_found = not texts or bool(set.intersection(*texts))
            self.known[key, which] = self.is_plain(key) or is_found
        return self.known[key, which]

    def begins_right(self, key: str) -> bool:
        """Return whether the first numbers of a variable are right, and more than zeros."""
        first = [one for values, _ in self.values_of(key) for one in values[0]]
        is_new = not all(map(_says_nothing, first))
        return self.is_repeated(key) and self.is_right(key, 0) and is_new

    def is_guilty(self, key: str) -> bool:
        """Return whether a variable is a wrong result."""
        found = (one for one in self.last_of(key) if not _says_nothing(one))
        return any(one.tobytes() in self.guilty for one in found)

    def is_in_order(self, key: str) -> bool:
        """Return whether a variable has our numbers in our order, as far as it can be told."""
        pairs = [(one, ours) for (_, last, _), ours in self.values_of(key) for one in last]
        return self.is_repeated(key) or all(
            any(_close(_core(one), seen.array) for seen in ours) for one, ours in pairs
        )

    def trait(self, key: str) -> str:
        """Say that a variable has numbers of ours times a factor, or NaN or inf, if it has."""
        if self.breaks and self.is_broken(key):
            return ": some are NaN or infinite"
        told = self.factor(key)
        return f": they are {told} times numbers that do" if told else ""

    def factor(self, key: str) -> str:
        """Return by what the numbers of a variable are those of an expression of ours."""
        pairs = self.values_of(key)
        if self.is_repeated(key) or len(pairs) < len(self.pairs) or not self.is_array(key):
            return ""
        common = set.intersection(*({text for one in o for text in one.texts} for _, o in pairs))
        for text in sorted(common, key=lambda text: (len(text), text)):
            values = []
            for (_, (mine, *_), _), ours in pairs:
                other = next(one.array for one in ours if text in one.texts)
                values.append(ratio(mine.ravel(), other.ravel(), _scale(other)))
            if told := factor_of(self.sizes, values):
                return told
        return ""

    def is_broken(self, key: str) -> bool:
        """Return whether a variable ever has NaN or inf."""
        found = [one for (_, last, several), _ in self.values_of(key) for one in several or last]
        return any(any(map(any, _broken(one))) for one in found)

    def is_plain(self, key: str) -> bool:
        """Return whether a variable is a counter, a size of an input, or has equal numbers."""
        if self.is_array(key):
            is_new = self.is_repeated(key) and key not in self.filled  # in each round
            is_of_indices = is_new and not self.is_array(key, "fb")
            return is_of_indices or all(map(_says_nothing, self.last_of(key)))
        found = [(one, ours) for (_, last, _), ours in self.values_of(key) for one in last]
        return all(
            one.dtype.kind in "iu" and (self.is_repeated(key) or _is_size(int(one), ours))
            for one, ours in found
        )

    def is_repeated(self, key: str) -> bool:
        """Return whether a variable has several values in a call."""
        return any(several for (_, _, several), _ in self.values_of(key))

    def is_array(self, key: str, kinds: str = "fbiu") -> bool:
        """Return whether a variable ever is an array of some kind."""
        return any(one.ndim and one.dtype.kind in kinds for one in self.last_of(key))

    def walk(self) -> tuple[set[str], set[str]]:
        """Return what the wrong results depend on, back to what is right, and that."""
        waiting, between, right = set(self.wrong), set[str](), set[str]()
        while waiting:
            key = waiting.pop()
            if key not in self.wrong and self.is_right(key) and not self.is_guilty(key):
                right.add(key)
            elif key not in between:
                between.add(key)
                waiting |= self.needs[key]
        return between - self.wrong, right

    def first_of(self, steps: set[str]) -> str:
        """Return the first step that needs no wrong one, an array if there is one.

        In a loop the first round counts. A step may give other numbers than ours and yet lead to
        right ones in that round; then it is not to blame.
        """
        excused, more = set[str](), {key for key in steps if self.is_right(key, 0)}
        late = more
        while more:
            excused |= more
            more = {
                key
                for key in steps - excused
                if excused.issuperset(one for one in steps | self.wrong if key in self.needs[one])
                or (
                    (key in self.filled and self.needs[key] & excused)
                    and excused.issuperset(self.needs[key] & steps - {key})
                )
            }
        blamed = {
            key
            for key in steps - excused
            if not (self.needs[key] - {key}) & (steps - excused if self.is_repeated(key) else steps)
        }
        blamed = blamed or {key for key in late if not (self.needs[key] - {key}) & steps} or steps

        def rank(key: str) -> tuple[bool, bool, bool, int, str]:
            is_scaled = len(blamed) > 1 and bool(self.factor(key))  # as it may be, earlier or later
            is_array = self.is_array(key)
            return not is_array, self.is_array(key, "iu"), is_scaled, _line(key), key

        return min(blamed, key=rank, default="")

    def told(self) -> str:
        """Return what to tell."""
        steps, right = self.walk()
        if not self.wrong or self.wrong == self.needs.keys():  # one line says nothing
            return ""
        if changed := [key for trace, _ in self.pairs for key in trace["changed"]]:
            where = f"in line {_line(changed[0])} or before"
            return f"the input `{_name(changed[0])}` is changed in place, {where}"
        broken = {one for one in steps if self.is_broken(one) and self.is_nan_alone}
        arrays = {one for one in steps if self.is_array(one)}
        first = next(filter(None, map(self.first_of, (broken, arrays, steps))), "")
        has_parts = any(len(last) > 1 for (_, last, _), _ in self.values_of(first))
        if has_parts and not self.is_array(first):
            return ""  # a dict of numbers
        found = {one for one in right if self.is_array(one) and not self.is_plain(one)}
        wrong = (k for k in self.needs for a in self.last_of(k) if a.tobytes() in self.guilty)
        returned = set(map(_name, wrong))
        good = {one for one in found if self.is_in_order(one) and _name(one) not in returned}
        later = {_name(one) for one in steps | found - good}  # where these names are something else
        in_order = dict.fromkeys(_name(one) for one in sorted(sorted(good), key=_line))
        others = [f"`{name}`" for name in in_order if name not in later][-FEW:]
        names = listed(others) if others else ""
        if not first:
            of = f"the numbers of {names} occur in our solution, so " if names else ""
            return of + _look(map(_line, self.wrong | found - good))
        scalars = [f"`{_name(one)}`" for one in sorted(self.needs[first] & steps - arrays)]
        also = f" (with {listed(scalars)})" if scalars else ""
        last = max(map(_line, steps if self.is_passed else steps | self.wrong))
        clauses = [
            f"`{_name(first)}`{also} in line {_line(first)} is the first of your variables whose "
            f"numbers occur nowhere in our solution{self.trait(first)}",
            "in the first round of the loop it is right" if self.begins_right(first) else "",
            f"those of {names} do" if names else "",
            _look((_line(first), last)),
        ]
        return "; ".join(filter(None, clauses))


def _breaks(mine: Array, theirs: Array) -> bool:
    """Return whether numbers are NaN or infinite where ours are not."""
    return mine.shape == theirs.shape and bool((np.isfinite(theirs) & ~np.isfinite(mine)).any())


def _look(lines: Iterable[int]) -> str:
    first, *_, last = sorted([*lines] * 2)
    return f"look at line {last}" if first == last else f"look at lines {first} to {last}"


def _line(key: str) -> int:
    return int(key.partition(" ")[0])


def _name(key: str) -> str:
    return key.partition(" ")[2]


def _says_nothing(array: Array) -> bool:
    return array.ndim > 0 and is_even(array)


def _is_size(number: int, ours: Sequence[Seen]) -> bool:
    """Return whether a number is a size, or the product of two."""
    sizes = {1}.union(*(one.array.shape for one in ours))
    sizes |= {
        int(one.array) for one in ours if one.array.ndim == 0 and one.array.dtype.kind in "iu"
    }
    return any(number % size == 0 and number // size in sizes for size in sizes - {0})


def _texts_of(
    values: Sequence[Sequence[Array]], ours: Sequence[Seen], which: int, sums: bool
) -> set[str]:
    """Return the expressions of ours that have the first or last numbers of a variable, or all."""
    arrays, several = values[which], values[2]
    if not arrays:
        return set()
    array = arrays[0] if len(arrays) == 1 else np.concatenate([one.ravel() for one in arrays])
    array = np.where(array < LOWEST, -np.inf, array) if array.dtype.kind == "f" else array
    is_each = several and which and not sums and array.dtype.kind == "f"
    texts = set() if is_each else _texts_with(array, ours)
    if several and array.dtype == bool:
        if array.ndim and several[0].size % (array.shape[-1] or 1) == 0:
            texts |= _texts_with_rows(several[0].reshape(-1, array.shape[-1] or 1), ours)
    elif several and not texts:
        texts = _texts_around(several[0] if which else array.ravel(), ours)
    return texts


def _texts_with(array: Array, ours: Sequence[Seen]) -> set[str]:
    """Return the expressions of ours with these numbers; in another order only in other shapes."""
    mine = _core(array)
    total = _total(mine)
    in_order = np.sort(mine[np.isfinite(mine)], axis=None)
    exact, turned, is_other = set[str](), set[str](), False
    for theirs, other, ordered, same_texts in ours:
        is_near = theirs.size == mine.size and abs(total - other) <= 1e-9 * max(1.0, abs(other))
        if not is_near or not _close(in_order, ordered):
            continue
        if any(_close(mine, theirs.transpose(one)) for one in permutations(range(theirs.ndim))):
            exact |= same_texts
        elif mine.dtype.kind == "f" and mine.size > FEW:
            turned |= same_texts
            is_other |= mine.shape == theirs.shape
    return exact or (set() if is_other else turned)


def _core(array: Array) -> Array:
    """Return an array without axes of length 1, and a mask without those along which it repeats."""
    is_mask = array.size and np.isin(array, (0, 1)).all()
    for axis in range(array.ndim) if is_mask else ():
        if (array == array.take([0], axis)).all():
            array = array.take([0], axis)
    return array.squeeze()


def _texts_with_rows(mine: Array, ours: Sequence[Seen]) -> set[str]:
    """Return the masks of ours that have all of these rows."""
    rows, masks = set(map(bytes, mine)), [one for one in ours if one.array.dtype == bool]
    fit = [one for one in masks if one.array.shape[-1:] == mine.shape[-1:]]
    of_each = [set(map(bytes, one.array.reshape(-1, mine.shape[-1]))) for one in fit]
    return {text for one, of in zip(fit, of_each, strict=True) if rows <= of for text in one.texts}


def _texts_around(mine: Array, ours: Sequence[Seen]) -> set[str]:
    """Return the expressions of ours in which all of these numbers occur."""
    if mine.dtype.kind != "f" or mine.size < 2:
        return set()
    found: dict[str, Array] = {}  # which numbers occur in an expression, which may be in a loop
    for theirs, _, ordered, texts in ours:
        if theirs.dtype.kind == "f" and ordered.size:
            limit = 1e-12 * max(1e-3, abs(ordered[0]), abs(ordered[-1]))
            near = np.append(ordered, np.inf)[np.searchsorted(ordered, mine - limit)]
            occurs = (near <= mine + limit) & np.isfinite(mine)
            if ordered.size < theirs.size:
                occurs |= np.isin(mine, theirs[~np.isfinite(theirs)])
            for text in texts if occurs.any() else ():
                found[text] = occurs | found.get(text, False)
    return {text for text, occurs in found.items() if occurs.all()}


def _close(mine: Array, theirs: Array) -> bool:
    return same(mine, theirs, _scale(theirs))


def _scale(array: Array) -> float:
    return max(1e-3, float(largest_of(array)))
