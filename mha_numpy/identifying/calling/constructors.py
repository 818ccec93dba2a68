"""What the source of a constructor says of its arguments: their roles, and how they are read."""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from mha_numpy.identifying.calling.arrays import is_number
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.roles import PARAMS
from mha_numpy.identifying.calling.signatures import REQUIRED, Argument

LENGTHS = ("H", "G", "D", "d", "R")  # sizes that a constructor may ask for
VALUES: dict[str, Any] = {"rate": 0.0, "T": 64, "eps": 1e-12, "rng": 0, "window": 3, "block": 2}
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
    is_one = "tanh" in ast.unparse(tree) and len(names) == len(needed) == 3
    return dict(zip(names, ("w_q", "w_k", "w_a"), strict=True)) if is_one else {}


def read_from(name: str, tree: ast.AST) -> tuple[list[str], bool]:
    """Return what a source looks up in an argument, and whether by keys that are texts.

    For example ``config.n_head``, ``cfg["n_head"]``; ``self.p["w" + name]`` after ``self.p = p``.
    """
    found, is_map = list[str](), False
    owners = {name, *(f"self.{stored}" for stored in _stored(name, tree))}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(owner, key) if ast.unparse(owner) in owners:
                found.append(key)
            case ast.Subscript(owner, key) if ast.unparse(owner) in owners:
                texts = [n.value for n in ast.walk(key) if isinstance(n, ast.Constant)]
                words = [text for text in texts if isinstance(text, str)]
                is_map |= bool(words)
                found += words if isinstance(key, ast.Constant) else []
    return [*dict.fromkeys(found)], is_map


def _stored(name: str, tree: ast.AST) -> Iterator[str]:
    """Yield the attributes in which an object keeps an argument."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) | ast.Assign(targets, values):
                values = values if isinstance(values, list) else [values] * len(targets)
                for target, value in zip(targets, values, strict=False):
                    is_own = isinstance(value, ast.Name) and value.id == name
                    if is_own and isinstance(target, ast.Attribute):
                        yield target.attr


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


def is_pair(name: str, tree: ast.AST) -> bool:
    """Return whether a source takes two from an argument: ``size[1]``, or ``h, w = size``."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(pair, ast.Constant(1)) | ast.Assign([ast.Tuple([_, _])], pair):
                if ast.unparse(pair) in (name, f"self.{name}"):
                    return True
    return False
