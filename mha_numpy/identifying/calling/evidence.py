"""What the source and the docstring say of arguments: a number or an array, its rank, its role."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mha_numpy.identifying.calling.signatures import source_of

ARRAY, NUMBER = "array", "number"
FUNCTION = "function"  # that is called
FLAT = "flat"  # an array of one axis, as in C
MAP, MAPPED = "map", "mapped"  # uses: tokens @ it, it @ a map
DIVISOR, REPEATS = "divisor", "repeats"  # a width // it, repeat(k, it)
OF_ARRAYS = {
    "shape", "ndim", "T", "mT", "size", "reshape", "transpose", "swapaxes", "permute",
    "view", "astype", "mean", "sum", "max", "min", "dot", "copy", "ravel", "flatten", "unsqueeze",
    "squeeze", "masked_fill", "softmax", "expand", "dim", "at", "to", "float",
}  # fmt: skip
WITH_NUMBERS = frozenset(("range", "arange", "sqrt", "log", "linspace", "eye", "tri"))
MERGING = ("reshape", "concatenate", "hstack")  # of heads
DEEPEST = 3  # a function that the function calls, and what that calls
SAID = {  # words of a docstring, and the role that they name
    "query": r"(?:quer(?:y|ies)|asks?|decoder)\b", "key": r"keys?\b", "value": r"values?\b",
    "memory": r"(?:memory|context|encoder|source)\b", "packed": r"qkv\b|packed\b",
    "x": r"(?:tokens?|input|sequence|hidden|embeddings?|features?|activations?)\b",
    "mask": r"mask\b", "lengths": r"lengths?\b|number of real\b",
    "bias": r"bias\b|added to\b", "sink": r"sinks?\b",
    "H": r"(?:number of )?(?:query )?heads\b",
}  # fmt: skip
MOST_WORDS = 5  # between an argument and what it is


class Evidence(NamedTuple):
    """What is known of an argument before it is called."""

    kind: str = ""  # "array", "number", "flat", "function", or unknown
    rank: int = 0  # of an array, 0 if unknown
    roles: tuple[str, ...] = ()  # by the docstring
    use: str = ""  # "map", "mapped", "divisor", "repeats", or unknown


def evidence(tree: ast.AST, names: list[str], inner: Any) -> dict[str, Evidence]:
    """Return what is known of each argument."""
    kinds, ranks = _of_source(tree, {name: name for name in names}, inner, 0)
    said = _of_docstring(str(getattr(inner, "__doc__", "") or ""), names)
    uses = {name: use for name, use in _uses(tree, names) if name in names}
    return {
        name: Evidence(
            kinds.get(name, ""), ranks.get(name, 0), said.get(name, ()), uses.get(name, "")
        )
        for name in names
    }


def _uses(tree: ast.AST, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield names with what they are used for."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left, ast.MatMult(), ast.Name(id=name)):
                called = left.func if isinstance(left, ast.Call) else left
                if getattr(called, "id", "") in names or getattr(called, "attr", "") in MERGING:
                    yield from ((getattr(called, "id", ""), MAPPED), (name, MAP))
            case ast.BinOp(_, ast.FloorDiv(), ast.Name(id=name)):
                yield name, DIVISOR
            case ast.Call(ast.Attribute(attr="repeat"), [*_, ast.Name(id=name)]) | ast.Call(
                ast.Attribute(attr="repeat"), [_, ast.Name(id=name), _]
            ):
                yield name, REPEATS


def _of_source(
    tree: ast.AST, of: Mapping[str, str], inner: Any, depth: int
) -> tuple[dict[str, str], dict[str, int]]:
    """Return kinds and ranks; `of` gives the argument that a name of this function stands for."""
    numbers, arrays, flat, functions = set[str](), set[str](), set[str](), set[str]()
    ranks: dict[str, int] = {}
    changed: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                changed.add(name)
            case ast.Assign([ast.Tuple(elts)], value):
                array = _shape_of(value)
                if array in of and not any(isinstance(each, ast.Starred) for each in elts):
                    ranks.setdefault(array, len(elts))
            case ast.Attribute(ast.Name(id=name), attribute) if attribute in OF_ARRAYS:
                arrays.add(name)
            case ast.Subscript(ast.Name(id=name), ast.BinOp(op=ast.Add()) as at):  # as in C
                flat |= set() if any(map(_is_text, ast.walk(at))) else {name}
            case ast.Subscript(ast.Name(id=name), ast.Tuple() | ast.Slice()):
                arrays.add(name)
            case ast.BinOp(left, ast.MatMult(), right):
                arrays |= {each.id for each in (left, right) if isinstance(each, ast.Name)}
            case ast.BinOp(left, ast.FloorDiv() | ast.Mod(), right):
                numbers |= {each.id for each in (left, right) if isinstance(each, ast.Name)}
            case ast.Call(ast.Attribute(attr="einsum"), [ast.Constant(value=text), *operands]):
                terms = str(text).split("->")[0].replace(" ", "").split(",")
                for term, each in zip(terms, operands, strict=False):
                    if isinstance(each, ast.Name):
                        arrays.add(each.id)
                        ranks |= {each.id: len(term)} if "." not in term else {}
            case ast.Call(function, arguments):
                called = getattr(function, "attr", getattr(function, "id", ""))
                functions |= {function.id} if isinstance(function, ast.Name) else set()
                own = {each.id for each in arguments if isinstance(each, ast.Name)}
                if called in WITH_NUMBERS:
                    numbers |= own
                elif called in ("matmul", "tensordot", "dot"):
                    arrays |= own
                elif called == "reshape" and isinstance(function, ast.Attribute):
                    numbers |= own
                elif depth < DEEPEST and isinstance(function, ast.Name):
                    of_arrays, more = _of_callee(inner, called, arguments, depth)
                    numbers |= {name for name, kind in of_arrays.items() if kind == NUMBER}
                    arrays |= {name for name, kind in of_arrays.items() if kind == ARRAY}
                    functions |= {name for name, kind in of_arrays.items() if kind == FUNCTION}
                    ranks = more | ranks
    kinds = dict.fromkeys(numbers, NUMBER) | dict.fromkeys(arrays, ARRAY)
    kinds |= dict.fromkeys(flat - arrays, FLAT) | dict.fromkeys(functions, FUNCTION)
    for node in ast.walk(tree):  # what each of several names stands for in a loop
        match node:
            case ast.comprehension(ast.Name(id=one), ast.Tuple(elts)) | ast.For(
                ast.Name(id=one), ast.Tuple(elts)
            ):
                for name in (each.id for each in elts if isinstance(each, ast.Name)):
                    kinds |= {name: kinds[one]} if one in kinds else {}
                    ranks |= {name: ranks[one]} if one in ranks else {}
    return (
        {of[name]: kind for name, kind in kinds.items() if name in of},
        {of[name]: rank for name, rank in ranks.items() if name in of and name not in changed},
    )


def _of_callee(
    inner: Any, called: str, arguments: list[ast.expr], depth: int
) -> tuple[dict[str, str], dict[str, int]]:
    """Return what a function of the same file says of the arguments that it is called with."""
    helper: Any = getattr(inner, "__globals__", {}).get(called)
    if not inspect.isfunction(helper):
        return {}, {}
    passed = zip(helper.__code__.co_varnames, arguments, strict=False)
    of = {own: each.id for own, each in passed if isinstance(each, ast.Name)}
    return _of_source(source_of(helper)[1], of, helper, depth + 1)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _shape_of(value: ast.expr) -> str:
    """Return the name of the array whose shape an expression is, "" if it is none."""
    match value:
        case ast.Attribute(ast.Name(id=name), "shape"):
            return name
        case ast.Call(
            ast.Attribute(ast.Name(id="np" | "jnp" | "ops"), "shape"), [ast.Name(id=name)]
        ):
            return name
        case ast.Call(ast.Attribute(ast.Name(id=name), "size"), []):  # as PyTorch has it
            return name
    return ""


def _of_docstring(text: str, names: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the roles that a docstring gives arguments: "x queries (B, T, d)", "y: the keys"."""
    every = "|".join(map(re.escape, names)) or "-"
    found: dict[str, tuple[str, ...]] = {}
    for match in re.finditer(rf"(?<![\w.])({every})\b(?!\()(?=([^\n;]*))", text):
        words = re.split(rf"(?<![\w.])(?:{every})\b", match[2])[0]
        words = " ".join(re.sub(r"\([^()]*\)|\[[^\[\]]*\]", " ", words).split()[:MOST_WORDS])
        at = {
            role: own.start()
            for role, words_of in SAID.items()
            if (own := re.search(words_of, words, re.I))
        }
        if at and match[1] not in found:
            found[match[1]] = tuple(sorted(at, key=at.__getitem__))
    return found


def of_comments(kind: type, names: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the roles that comments give attributes: "self.w_f = w_f  # keys"."""
    found = re.findall(r"self\.(\w+) *=[^#\n]*#([^\n]*)", source_of(kind)[0])
    return _of_docstring("\n".join(f"{name} {text}" for name, text in found), names)
