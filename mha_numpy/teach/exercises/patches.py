"""Patches: the first place in a student's text where right numbers make all after it right.

Our solution computes one expression after another. If one of these, put in place of what a line of
the student's computes, leads to the right answer on every input, then what comes after the line is
right. If what the line is made of is right as well, the mistake is in that line.
"""

import ast
import builtins
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.differences import largest_of
from mha_numpy.checking.trees import leaves
from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis import find_task, right_answers
from mha_numpy.teach.diagnosis.mutants import edited_source
from mha_numpy.teach.diagnosis.relations import find_relation
from mha_numpy.teach.diagnosis.sizes import sizes_of
from mha_numpy.teach.diagnosis.steps import Place, values_of_ours
from mha_numpy.teach.diagnosis.wrong import Wrong, same
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.mends import Mended, line_of, most_texts, those_with
from mha_numpy.teach.exercises.sandbox import Run
from mha_numpy.teach.task import Inputs

GIVEN, SEEN = "_ours", "_seen"  # the numbers of our solution, and those of the student's
OTHER = "other numbers belong there"  # the kind of a slip
MANY = 10_000  # texts after which no further place is tried, the same on any machine
MAKERS = {"zeros", "empty", "zeros_like", "empty_like", "full", "full_like"}  # of arrays to fill
SETTINGS = {"axis", "keepdims", "dtype", "shape", "optimize"}  # arguments that are no numbers
LONGEST = 160  # characters of an expression of ours that is quoted
Attempt = Callable[[Inputs], Run]


class Spot(NamedTuple):
    """An expression in a text, or a variable after a statement that sets it."""

    statement: ast.stmt
    body: list[ast.stmt]  # in which the statement is
    loops: tuple[str, ...]  # the counters of the loops around it
    what: ast.expr  # the expression, or the variable
    holder: ast.AST | None = None  # of the expression
    field: str = ""
    place: int | None = None  # in a list

    def put(self, new: ast.expr) -> None:
        """Put another expression in its place."""
        if self.place is None:
            setattr(self.holder, self.field, new)
        else:
            getattr(self.holder, self.field)[self.place] = new


class Candidate(NamedTuple):
    """An expression of our solution, and its values on all inputs."""

    place: Place
    turned: str  # ".swapaxes(-1, -2)", or another layout
    values: list[Array]


def find_patch(exercise: Exercise, text: str, number: int, attempt: Attempt) -> Mended | None:
    """Return the place where the numbers of our solution make a text right, if there is one.

    Parameters
    ----------
    exercise : Exercise
    text : str
        With line numbers as the student knows them.
    number : int
        Of a probe on which the function is wrong.
    attempt : callable
        Makes the call of `attempting`, whose first input is the texts.
    """
    patched = _patched(exercise, text, attempt)
    return patched.found(number) if patched else None


def sets_what_is_right(exercise: Exercise, text: str, line: int, attempt: Attempt) -> bool:
    """Return whether a line sets arrays, all of which have numbers of our solution.

    Then a change there that makes the function right only cancels a mistake in another line.
    """
    patched = _patched(exercise, text, attempt)
    return patched is not None and patched.sets_what_is_right(line)


def _patched(exercise: Exercise, text: str, attempt: Attempt) -> "_Patched | None":
    """Return a text that can be patched; None if it can't."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    function = next((f for f in reversed(functions) if f.name == exercise.function_name), None)
    if function is None or function.args.vararg or function.args.kwonlyargs or function.args.kwarg:
        return None
    function.args.args.append(ast.arg(GIVEN))
    if function.args.defaults:
        function.args.defaults.append(ast.Constant(None))
    return _Patched(exercise, tree, function, text, attempt)


class _Patched:
    """The texts of a student's function with numbers of ours in some place."""

    def __init__(
        self,
        exercise: Exercise,
        tree: ast.Module,
        function: ast.FunctionDef,
        text: str,
        attempt: Attempt,
    ):
        self.task, self.text, self.attempt = exercise.task, text, attempt
        self.tree, self.function = tree, function
        self.unchanged = {one.arg for one in function.args.args} - set(_stored(function))
        self.probes = find_task(exercise.task).probes()
        self.expected = right_answers(exercise.task)
        self.ours = values_of_ours(exercise.task)
        self.all = _candidates(self.ours)
        self.sizes = [
            {size for one in leaves(probe).values() for size in np.shape(one)}
            for probe in self.probes
        ]
        self.given = [tuple(one.values[i] for one in self.all) for i in range(len(self.probes))]

    def found(self, number: int) -> Mended | None:
        """Return the first spot where numbers of ours lead to what is right on all inputs."""
        tried = 0
        for spot in _spots_in(self.function.body):
            texts = self.texts_with(spot)
            tried += len(texts)
            if tried > MANY:
                break
            for i in (number, *(i for i in range(len(self.probes)) if i != number)):
                texts = self.those_right(texts, i) if texts else {}
            if texts and not (spot.holder and self.are_right(spot, [ast.unparse(spot.what)])):
                return self.told(spot, [self.all[i] for i, _ in texts])
        return None

    def sets_what_is_right(self, line: int) -> bool:
        """Return whether a line sets arrays, all of which have numbers of our solution."""
        spots = [
            spot
            for spot in _spots_in(self.function.body)
            if spot.holder is None and spot.statement.lineno == line
        ]
        return bool(spots) and all(
            self.are_right(spot, [ast.unparse(spot.what)], is_array=True) for spot in spots
        )

    def texts_with(self, spot: Spot) -> dict[tuple[int, str], str]:
        """Return the texts with each candidate in a spot, in a loop each row of it."""
        row = ", ".join(spot.loops)
        found = {}
        for axes, which in enumerate((f"[{row}]", f"[{row}, ..., 0]") if row else ("",)):
            whole = self.text_with(spot, f"{GIVEN}[0]{which}")
            for i, one in enumerate(self.all):
                if one.values[0].ndim >= axes + len(spot.loops):
                    found[i, which] = whole.replace(f"{GIVEN}[0]", f"{GIVEN}[{i}]")
        return found

    def those_right(
        self, texts: dict[tuple[int, str], str], number: int
    ) -> dict[tuple[int, str], str]:
        """Return the texts that give the right answer on an input."""
        most = most_texts(self.text, self.expected[number])
        found: dict[tuple[int, str], str] = {}
        inputs = {**self.probes[number], GIVEN: self.given[number]}
        keys = list(texts)
        for first in range(0, len(keys), most):
            some = keys[first : first + most]
            asked = [texts[key] for key in some]
            fitting = those_with(asked, inputs, self.expected[number], self.attempt)
            found |= {some[i]: asked[i] for i in fitting}
        return found

    def text_with(self, spot: Spot, new: str) -> str:
        """Return the text with something new in a spot."""
        if spot.holder is None:
            place = spot.body.index(spot.statement) + 1
            spot.body.insert(place, *ast.parse(f"{ast.unparse(spot.what)} = {new}").body)
        else:
            spot.put(ast.parse(new, mode="eval").body)
        try:
            return ast.unparse(ast.fix_missing_locations(self.tree))
        finally:
            if spot.holder is None:
                del spot.body[place]
            else:
                spot.put(spot.what)

    def seen(self, spot: Spot, asked: Sequence[str], *, is_after: bool) -> list[list[Any]]:
        """Return what expressions are at a statement whenever it is reached, for each input.

        The counters of the loops around the statement come first.
        """
        each = ", ".join(f"getattr({one}, 'copy', lambda: {one})()" for one in asked)
        note = f"{SEEN}.append(([{', '.join(spot.loops)}], [{each}]))"
        place, whole = spot.body.index(spot.statement) + is_after, self.function.body
        spot.body.insert(place, *ast.parse(note).body)
        (shell,) = ast.parse(f"try:\n    pass\nfinally:\n    return {SEEN}").body
        shell.body = whole  # type: ignore[attr-defined]
        self.function.body = [*ast.parse(f"{SEEN} = []").body, shell]
        try:
            text = ast.unparse(ast.fix_missing_locations(self.tree))
        finally:
            del spot.body[place]
            self.function.body = whole
        found = []
        for probe in self.probes:
            calls = self.attempt({"the texts": (text,), **probe, GIVEN: ()}).calls
            answers = calls[0].answer if calls else None
            found.append(answers[0] if isinstance(answers, list) and answers else [])
        return found

    def told(self, spot: Spot, which: Sequence[Candidate]) -> Mended | None:
        """Say what is known of a place, if what it is made of is right."""
        if isinstance(spot.statement, ast.For | ast.While):
            return None
        if not self.are_right(spot, sorted(_read(spot) - self.unchanged)):
            return None
        what, line = ast.unparse(spot.what), getattr(spot.what, "lineno", spot.statement.lineno)
        quoted = min(filter(None, map(self.quoted, which)), key=len, default="")
        if spot.holder is spot.statement and isinstance(spot.statement, ast.Return) and not quoted:
            return None  # it says only that the answer is wrong
        quoted = quoted or self.in_numbers(spot, which[0])
        relation, old = self.relation(spot, which[0]), line_of(self.text, line)
        return Mended(OTHER, line, old, None, part=what, ours=quoted, relation=relation)

    def are_right(self, spot: Spot, asked: Sequence[str], *, is_array: bool = False) -> bool:
        """Return whether expressions have numbers that occur in our solution, before a spot.

        If they have to be arrays, those after the statement count.
        """
        of_probes = self.seen(spot, asked, is_after=is_array) if asked else []
        passes = [(n, *one) for n, seen in enumerate(of_probes) for one in seen]

        def is_right(i: int) -> bool:
            if is_array and any(np.size(values[i]) < 2 for *_, values in passes):
                return False
            return all(_is_one_of(values[i], self.sizes[n]) for n, _, values in passes) or any(
                all(_alike(values[i], one.values[n], counters) for n, counters, values in passes)
                for one in self.all
            )

        return all(of_probes) and all(map(is_right, range(len(asked))))

    def relation(self, spot: Spot, one: Candidate) -> str:
        """Return how the student's numbers follow from ours, if they do in a known way."""
        if (isinstance(spot.what, ast.Name | ast.Constant) and spot.holder) or spot.loops:
            return ""
        what = ast.unparse(spot.what)
        found = self.seen(spot, [what], is_after=spot.holder is None)
        arrays = {i: seen[0][1][0] for i, seen in enumerate(found) if seen}
        kept = [i for i, array in arrays.items() if isinstance(array, np.ndarray)]
        wrong = Wrong(
            self.task, what, [arrays[i] for i in kept], [one.values[i] for i in kept],
            [float(largest_of(one.values[i])) for i in kept], [self.probes[i] for i in kept],
            [sizes_of(self.task, self.probes[i]) for i in kept], kept,
        )  # fmt: skip
        return find_relation(wrong) if kept else ""

    def in_numbers(self, spot: Spot, one: Candidate) -> str:
        """Return the right number and the student's, on the first input where they differ."""
        if spot.holder is None or spot.loops or any(value.ndim for value in one.values):
            return ""
        seen = self.seen(spot, [ast.unparse(spot.what)], is_after=False)
        for number, (passes, right) in enumerate(zip(seen, one.values, strict=True), start=1):
            mine = passes[0][1][0] if passes else None
            if isinstance(mine, int | float | np.generic) and mine != right:
                return f"{right:.6g} instead of {mine:.6g} on input {number}, and so on"
        return ""

    def quoted(self, one: Candidate) -> str:
        """Return an expression of ours in terms of the inputs; "" if it has other names."""
        function, text, _ = one.place
        inputs = {name for name in self.probes[0] if self.is_input(function, name)}
        whole = _expanded(text, _definitions(function), inputs) if function else text
        return f"those of `{whole}{one.turned}`" if whole and len(whole) <= LONGEST else ""

    def is_input(self, function: str, name: str) -> bool:
        """Return whether a name in a function of ours stands for the input of that name."""
        if function == self.task:
            return True
        values = [of_probe.get(Place(function, name, 0)) for of_probe in self.ours]
        return all(
            value is not None and np.array_equal(value, np.asarray(probe[name]))
            for value, probe in zip(values, self.probes, strict=True)
        )


def _candidates(ours: Sequence[Mapping[Place, Any]]) -> list[Candidate]:
    """Return the expressions that have a value on all inputs, one for each value."""
    found: dict[tuple[Any, ...], Candidate] = {}
    places = [one for one in ours[0] if all(one in of_probe for of_probe in ours)]
    for turned, axes in (
        ("", ()),
        (".swapaxes(-1, -2)", (-1, -2)),
        (".swapaxes(-2, -3)", (-2, -3)),
    ):
        for place in places:
            values = [of_probe[place] for of_probe in ours]
            if axes and min(value.ndim for value in values) < -min(axes):
                continue
            values = [np.swapaxes(value, *axes) if axes else value for value in values]
            key = tuple((v.dtype.kind, v.shape, v.tobytes()) for v in values)
            found.setdefault(key, Candidate(place, turned, values))
    return list(found.values())


def _definitions(function: str) -> dict[str, ast.expr]:
    """Return what the variables of a function of ours are that are set once."""
    found: dict[str, list[ast.expr]] = {}
    for one in ast.walk(ast.parse(edited_source(function, {}))):
        if isinstance(one, ast.Assign):
            for target in one.targets:
                names = [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
                for name in names:
                    found.setdefault(name, []).append(one.value if len(names) == 1 else target)
        elif isinstance(one, ast.AugAssign | ast.For | ast.comprehension):
            for part in ast.walk(one.target):
                if isinstance(part, ast.Name):
                    found.setdefault(part.id, []).extend([part, part])
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _expanded(text: str, defined: Mapping[str, ast.expr], inputs: set[str]) -> str:
    """Return an expression in terms of the inputs; "" if that is not possible."""

    class Expand(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            if node.id in inputs or node.id in ("np", "len", "range", "int", "float"):
                return node
            if node.id not in defined or not isinstance(node.ctx, ast.Load):
                raise KeyError(node.id)
            return self.visit(ast.parse(ast.unparse(defined[node.id]), mode="eval").body)

    try:
        return ast.unparse(Expand().visit(ast.parse(text, mode="eval").body))
    except (KeyError, RecursionError):
        return ""


def _is_one_of(value: Any, sizes: set[int]) -> bool:
    return isinstance(value, int | np.integer) and int(value) in sizes


def _alike(mine: Any, theirs: Array, counters: Sequence[int]) -> bool:
    """Return whether numbers are the same in any order of the axes, in a loop those of its row."""
    rows = [theirs]
    if counters and all(map(operator.lt, counters, theirs.shape)) and theirs.ndim >= len(counters):
        rows.append(theirs[tuple(counters)])
    if not isinstance(mine, np.ndarray | np.generic | int | float):
        return False
    one = np.squeeze(mine)
    for other in map(np.squeeze, rows):
        if sorted(one.shape) == sorted(other.shape) and "O" not in (
            one.dtype.kind,
            other.dtype.kind,
        ):
            largest = max(1e-3, float(largest_of(other)))
            orders = permutations(range(other.ndim))
            if any(same(one, other.transpose(order), largest) for order in orders):
                return True
    return False


def _spots_in(body: list[ast.stmt], loops: tuple[str, ...] = ()) -> Iterator[Spot]:
    """Yield the places of a function where numbers can be put, in their order."""
    for one in body:
        if isinstance(one, ast.If | ast.With | ast.For):
            inside = (*loops, *_counter(one)) if isinstance(one, ast.For) else loops
            yield from _spots_in(one.body, inside)
            yield from _spots_in(getattr(one, "orelse", []), loops)
        elif isinstance(one, ast.Assign | ast.AugAssign | ast.Return) and not _is_no_computation(
            one
        ):
            within = [Spot(one, body, loops, *where) for where in _expressions(one, "value")]
            yield from sorted(within, key=lambda spot: len(list(ast.walk(spot.what))))
        if isinstance(one, ast.For | ast.While | ast.Assign | ast.AugAssign | ast.Expr):
            names = [] if _is_no_computation(one) else _stored(one)
            yield from (Spot(one, body, loops, ast.Name(name, ast.Load())) for name in names)


def _expressions(holder: ast.AST, *fields: str) -> Iterator[tuple[Any, ...]]:
    """Yield the expressions in a part of a text that may have other numbers."""
    for field in fields or holder._fields:
        value = getattr(holder, field)
        many = value if isinstance(value, list) else [value]
        for i, one in enumerate(many):
            if not isinstance(one, ast.expr | ast.keyword) or field == "slice":
                continue
            if isinstance(one, ast.keyword):
                yield from () if one.arg in SETTINGS else _expressions(one)
            elif isinstance(one, ast.Constant) and isinstance(one.value, int):
                continue  # other whole numbers are tried before
            elif isinstance(one, ast.Call):
                yield one, holder, field, i if value is many else None
                yield from _expressions(one, "args", "keywords")
                if isinstance(one.func, ast.Attribute) and not isinstance(one.func.value, ast.Name):
                    yield from _expressions(one.func, "value")
            elif not (isinstance(one, ast.Name) and one.id == "np"):
                yield one, holder, field, i if value is many else None
                yield from _expressions(one)


def _counter(loop: ast.For) -> list[str]:
    """Return the variable of a loop that counts."""
    target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
    is_counted = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) in (
        "range",
        "enumerate",
    )
    return [target.id] if is_counted and isinstance(target, ast.Name) else []


def _is_no_computation(statement: ast.stmt) -> bool:
    """Return whether a statement makes an array that is filled later, or reads a shape."""
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Attribute):
        return value.attr == "shape"
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in MAKERS


def _stored(statement: ast.stmt) -> list[str]:
    """Return the variables that a statement sets or changes."""
    found: dict[str, None] = {}
    for one in ast.walk(statement):
        base: Any = one
        while isinstance(base, ast.Subscript | ast.Attribute):
            base = base.value
        if isinstance(getattr(one, "ctx", None), ast.Store) and isinstance(base, ast.Name):
            found[base.id] = None
    return list(found)


def _read(spot: Spot) -> set[str]:
    """Return the variables that the numbers of a spot are made of."""
    found: ast.AST = spot.what if spot.holder else spot.statement
    names = [one for one in ast.walk(found) if isinstance(one, ast.Name)]
    read = {one.id for one in names if isinstance(one.ctx, ast.Load)}
    made = {one.id for one in names if isinstance(one.ctx, ast.Store)}
    is_more = isinstance(spot.statement, ast.AugAssign) and not spot.holder
    known = {"np", *dir(builtins), *spot.loops}
    return read - known - made | (made if is_more else set())
