"""Small edits of a teacher's own solution, which may be written in any style.

The rules for edits know one style, that of the solutions here. So a teacher's is read as if it were
written like them, and a few slips are added that need the kinds of its arguments.
"""

import ast
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from itertools import combinations, product
from types import CodeType

from mha_numpy.teach.diagnosis.small_edits import EXCHANGED, NUMBER, Edit, Edited

REDUCTIONS = {"sum", "mean", "max", "min", "prod", "var", "std", "argmax", "argmin"}
RENAMED = {"amax": "max", "amin": "min"}
PRODUCTS = {"matmul", "dot"}
AXIS, PARENTHESIS = "a different axis", "a misplaced parenthesis"
OPERATION = "a different operation"
UNUSED = " is not used"
VALUES = {  # what is written instead of an argument
    "int": ("-1", "0", "1", "-2", "2", "None"),
    "float": ("0.0", "1.0", "1e-3", "1e-5", "1e-6", "1e-8", "1e-12", "100.0", "10000.0"),
    "bool": ("True", "False"),
}
Named = dict[str | None, ast.expr]  # of a call
OTHER_AXES = "tuple((i for i in range({array}.ndim) if i != {axis} % {array}.ndim))"


class OwnEdit(Edit):
    """An edit of a kind that has no place among those of the solutions here."""

    @property
    def rank(self) -> int:
        """The rank among edits with the same results: these are what many do."""
        return -1


class OwnEdited(Edited):
    """A teacher's function in the usual style, and all small edits of it."""

    def __init__(self, source: str):
        super().__init__(in_one_style(source))
        (function,) = self.module.body
        assert isinstance(function, ast.FunctionDef)
        for more in (edits_of_style, _of_arguments):
            self.edits += more(function)
        self._codes: dict[int, CodeType | None] = {}

    def code(self, edit: Edit) -> CodeType | None:
        """Return the code of the function with an edit; each is compiled once."""
        if id(edit) not in self._codes:
            self._codes[id(edit)] = super().code(edit)
        return self._codes[id(edit)]


@lru_cache(maxsize=16)
def read_own_edits(source: str) -> OwnEdited:
    """Read a function once."""
    return OwnEdited(source)


def in_one_style(source: str) -> str:
    r"""Return a function in the style of the solutions here, with its steps by their names.

    Examples
    --------
    >>> print(in_one_style("def f(x):\n    m = np.mean(x, 1)\n    return np.var(x, 1) + m"))
    def f(x):
        m = x.mean(axis=1)
        return ((x - x.mean(axis=1, keepdims=True)) ** 2).mean(axis=1) + m
    """
    module = InOneStyle().visit(ast.parse(source))
    (function,) = module.body
    steps = Steps()
    for statement in function.body:
        steps.visit(statement)
        steps.note(statement)
    return ast.unparse(module)


class Steps(ast.NodeTransformer):
    """Writes the name of a reduction that a line before has computed."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # of what is computed, by its text

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Write the name, if there is one."""
        self.generic_visit(node)
        name = self.names.get(ast.unparse(node))
        return node if name is None else ast.Name(name, ast.Load())

    def note(self, statement: ast.stmt) -> None:
        """Note what a statement computes, and forget what depends on names that it changes."""
        nodes = list(ast.walk(statement))
        stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            self.names.clear()  # a loop, or cells of an array
            return
        text = ast.unparse(statement.value)
        self.names = {old: name for old, name in self.names.items() if name not in stored}
        for old in list(self.names):
            used = {n.id for n in ast.walk(ast.parse(old)) if isinstance(n, ast.Name)}
            if used & stored:
                del self.names[old]
        if isinstance(statement.value, ast.Call) and not stored & {
            n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)
        }:
            self.names[text] = statement.targets[0].id


class InOneStyle(ast.NodeTransformer):
    """Rewrites np.mean(x, 1) as x.mean(axis=1), a variance as a mean, np.matmul as @."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Rewrite a call of NumPy, or of a method."""
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return node
        name, of_numpy = node.func.attr, ast.unparse(node.func.value) in ("np", "numpy")
        name = RENAMED.get(name, name)
        if of_numpy and name in PRODUCTS and len(node.args) == 2:
            product = ast.BinOp(node.args[0], ast.MatMult(), node.args[1])
            return ast.copy_location(product, node)
        if name not in REDUCTIONS or (of_numpy and not node.args):
            return node
        array, *others = node.args if of_numpy else [node.func.value, *node.args]
        named = {one.arg: one.value for one in node.keywords}
        if len(others) > 1 or (others and "axis" in named) or None in named:
            return node
        if others:
            named["axis"] = others[0]
        return ast.copy_location(_reduced(array, name, named), node)


def _reduced(array: ast.expr, name: str, named: Named) -> ast.expr:
    """Return a reduction; a variance is the mean of squares, and a deviation its root."""
    order = sorted(named, key=lambda one: one not in ("axis", "keepdims"))
    order.sort(key=lambda one: one != "axis")
    keywords = [ast.keyword(one, named[one]) for one in order]
    if name in ("var", "std") and named.keys() <= {"axis", "keepdims"}:
        kept: Named = {"axis": named["axis"]} if "axis" in named else {}
        mean = _reduced(array, "mean", {**kept, "keepdims": ast.Constant(True)})
        centred = ast.BinOp(deepcopy(array), ast.Sub(), mean)
        variance = _reduced(ast.BinOp(centred, ast.Pow(), ast.Constant(2)), "mean", named)
        root = ast.Attribute(ast.Name("np", ast.Load()), "sqrt", ast.Load())
        return variance if name == "var" else ast.Call(root, [variance], [])
    return ast.Call(ast.Attribute(array, name, ast.Load()), [], keywords)


def _of_arguments(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield functions that set an argument to something else before they begin."""
    for name, kind in _kinds(function).items():
        for text in VALUES.get(kind, ()):
            yield OwnEdit(name + UNUSED, *_before(function, f"{name} = {text}"))
        if kind == "int":
            for text in ("{0} + 1", "{0} - 1", "abs({0})"):
                new = f"{name} = {text.format(name)}"
                yield Edit(NUMBER, *_before(function, new), is_of_input=True)


def _kinds(function: ast.FunctionDef) -> dict[str, str]:
    return {one.arg: ast.unparse(one.annotation or ast.Name("")) for one in function.args.args}


def _before(function: ast.FunctionDef, text: str) -> tuple[ast.FunctionDef, str, list[ast.stmt]]:
    return function, "body", [*ast.parse(text).body, *function.body]


def edits_of_style(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield edits that the solutions here have no use for, being written in one style."""
    for more in (_of_axes, _of_subscripts, _of_indices, _of_lines, _of_sums, _of_parts):
        yield from more(function)


def _of_axes(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield functions in which all reductions along an axis take another one."""
    array = next((name for name, kind in _kinds(function).items() if kind == "Array"), "")
    axes = [
        one.value
        for one in ast.walk(function)
        if isinstance(one, ast.keyword) and one.arg == "axis"
    ]
    for axis in {ast.unparse(one) for one in axes if ast.unparse(one) != "None"}:
        others = ["-1", "-2", "0", "1", "2", "None"]
        others += [OTHER_AXES.format(array=array, axis=axis)] * bool(array)
        for other in others:
            if other != axis:
                change = Axes(axis, ast.parse(other, mode="eval").body)
                body = [change.visit(deepcopy(one)) for one in function.body]
                yield OwnEdit(AXIS, function, "body", body)


class Axes(ast.NodeTransformer):
    """Writes another axis wherever some axis is an argument by name."""

    def __init__(self, old: str, new: ast.expr):
        self.old, self.new = old, new

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        """Write the other axis."""
        self.generic_visit(node)
        if node.arg == "axis" and ast.unparse(node.value) == self.old:
            return ast.keyword("axis", self.new)
        return node


def _of_subscripts(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield functions in which one letter of an einsum is another, or two of its result change."""
    for call in ast.walk(function):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("einsum"):
            continue
        match call.args:
            case [ast.Constant(str(text)), *others]:
                for changed in sorted(_with_other_letters(text) - {text}):
                    yield Edit(AXIS, call, "args", [ast.Constant(changed), *others])


def _of_indices(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield functions in which a number of an index is what a loop counts."""
    nodes = list(ast.walk(function))
    loops = [one.target for one in nodes if isinstance(one, ast.For | ast.comprehension)]
    names = {part.id for loop in loops for part in ast.walk(loop) if isinstance(part, ast.Name)}
    for one in nodes:
        if not isinstance(one, ast.Subscript):
            continue
        places = one.slice.elts if isinstance(one.slice, ast.Tuple) else [one.slice]
        for (i, place), name in product(enumerate(places), sorted(names)):
            if isinstance(place, ast.Constant) and isinstance(place.value, int):
                others = [*places[:i], ast.Name(name, ast.Load()), *places[i + 1 :]]
                index = ast.Tuple(others, ast.Load()) if len(others) > 1 else others[0]
                yield Edit(NUMBER, one, "slice", index)


def _with_other_letters(text: str) -> set[str]:
    """Return subscripts with another letter in one place, or two of the result exchanged."""
    places = [i for i, letter in enumerate(text) if letter.isalpha()]
    found = {text[:i] + text[j] + text[i + 1 :] for i in places for j in places}
    result = [i for i in places if 0 <= text.find("->") < i]
    for i, j in combinations(result, 2):
        found.add(text[:i] + text[j] + text[i + 1 : j] + text[i] + text[j + 1 :])
    return found


def _of_lines(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield functions in which two lines, one below the other, have each other's values."""
    for i, (one, other) in enumerate(zip(function.body, function.body[1:], strict=False)):
        if isinstance(one, ast.Assign) and isinstance(other, ast.Assign):
            both = [ast.Assign(one.targets, other.value), ast.Assign(other.targets, one.value)]
            body = [*function.body[:i], *both, *function.body[i + 2 :]]
            yield Edit(EXCHANGED, function, "body", body)


def _of_sums(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield `a += b` with other operations, and as `a = b`, and the other way round."""
    for holder in ast.walk(function):
        if isinstance(holder, ast.AugAssign):
            others = (ast.Add, ast.Sub, ast.Mult, ast.Div)
            yield from (Edit(OPERATION, holder, "op", other()) for other in others)
        if not isinstance(holder, ast.FunctionDef | ast.For):
            continue
        for i, one in enumerate(holder.body):
            new: ast.stmt
            match one:
                case ast.AugAssign():
                    new = ast.Assign([one.target], one.value)
                case ast.Assign([ast.Name() | ast.Subscript() as target]):
                    new = ast.AugAssign(target, ast.Add(), one.value)
                case _:
                    continue
            body = [*holder.body[:i], new, *holder.body[i + 1 :]]
            yield Edit(OPERATION, holder, "body", body)


def _of_parts(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield A * B + C as (A + C) * B."""
    for holder in ast.walk(function):
        for field, old in ast.iter_fields(holder):
            is_sum = isinstance(old, ast.BinOp) and isinstance(old.op, ast.Add | ast.Sub)
            if is_sum and isinstance(old.left, ast.BinOp) and isinstance(old.left.op, ast.Mult):
                inner = ast.BinOp(old.left.left, old.op, old.right)
                new = ast.BinOp(inner, ast.Mult(), old.left.right)
                yield Edit(PARENTHESIS, holder, field, new)
