"""What the source of a constructor says of its arguments: their roles, texts and pairs."""

import ast
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from mha_numpy.identifying.calling.arrays import is_number
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.roles import PARAMS
from mha_numpy.identifying.calling.signatures import REQUIRED, Argument

LENGTHS = ("H", "G", "D", "d", "R")  # sizes that a constructor may ask for
VALUES: dict[str, Any] = {
    "rate": 0.0, "T": 64, "eps": 1e-12, "rng": 0, "window": 3, "block": 2, "base": 1e4,
}  # fmt: skip
SHAPED = ("Linear", "LayerNorm", "zeros", "ones", "empty", "randn", "normal")
OF_CONSTRUCTORS = (
    *VALUES, *LENGTHS, *PARAMS, "scale", "softcap", "is_causal", "flag", "training", "bias_table",
    "params",
)  # fmt: skip


def role_of(argument: Argument) -> str:
    """Return the role of an argument of a constructor: sizes and flags before arrays."""
    if isinstance(argument.default, bool) or re.search(r"\bbool\b", argument.annotation):
        return "is_causal" if "is_causal" in roles_by_name(argument.name) else "flag"
    roles = roles_by_name(argument.name)
    if re.fullmatch(r"[wW]_?[a-z\d]", argument.name):
        return "w_q"  # whatever the letter means
    return next((role for role in roles if role in OF_CONSTRUCTORS), "")


def is_length(argument: Argument, role: str) -> bool:
    """Return whether an argument takes a number, and not only one that is hardly ever passed."""
    default = argument.default
    is_own = default is None and (role != "d" or "head" in argument.name)
    return default is REQUIRED or is_own or (is_number(default) and default == int(default))


def divided(tree: ast.AST) -> dict[str, str]:
    """Return the roles of names in the first ``width // heads`` or ``width % heads``."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(ast.Name(width), ast.FloorDiv() | ast.Mod(), ast.Name(heads)):
                return {width: "D", heads: "H"}
    return {}


def of_squares(tree: ast.AST) -> dict[str, str]:
    """Return the role of each n of which there are n * n cells, as in ``ones(n, n)``: of tokens."""
    found = {}
    for node in ast.walk(tree):
        arguments = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
        for a, b in pairwise(arguments):
            name = getattr(a, "attr", getattr(a, "id", ""))
            if ast.dump(a) == ast.dump(b) and role_of(Argument(name)) in ("block", "T"):
                found[name] = "T"
    return found


def additive(tree: ast.AST, needed: Sequence[Argument]) -> dict[str, str]:
    """Return the roles of two maps and a vector, whatever their names: ``v @ tanh(W q + U k)``."""
    names = [argument.name for argument in needed if role_of(argument) not in LENGTHS]
    is_one = "tanh" in ast.unparse(tree) and len(names) == len(needed) == 3 and not of_layers(tree)
    return dict(zip(names, ("w_q", "w_k", "w_a"), strict=True)) if is_one else {}


def of_layers(tree: ast.AST) -> dict[str, str]:
    """Return the role of each name of which layers or arrays are made: ``Linear(c_s, 3 * c_h)``."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        called = getattr(node, "func", None)
        if getattr(called, "attr", getattr(called, "id", "")) in SHAPED:
            parted = (ast.Attribute, ast.Subscript)
            owners = [n.value for n in ast.walk(node) if isinstance(n, parted)]
            names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n not in owners]
            found |= {n: "D" for n in names if role_of(Argument(n)) not in (*VALUES, *LENGTHS)}
    return found


def compared(name: str, tree: ast.AST) -> list[str]:
    """Return the words that a source compares an argument with: ``self.method == "dot"``."""
    words = list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and name in (
            getattr(node.left, "attr", ""), getattr(node.left, "id", "")
        ):  # fmt: skip
            parts = [part for other in node.comparators for part in ast.walk(other)]
            words += [
                p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)
            ]
    return words


def is_turned(name: str, source: str) -> bool:
    """Return whether tokens meet the transposed map, and only in a backward the map itself."""
    used = re.findall(rf"@ *(?:\w+\.)*{name}\b(\.T\b)?", source)
    return bool(used[0] if used else re.search(rf"\b{name}\.T\b", source))


def is_text(name: str, tree: ast.AST) -> bool:
    """Return whether a source puts a text behind an argument: ``prefix + "weight"``."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(ast.Name(id=first), ast.Add(), ast.Constant(value=str())):
                if first == name:
                    return True
            case ast.JoinedStr([ast.FormattedValue(ast.Name(id=first)), *_]) if first == name:
                return True
    return False
