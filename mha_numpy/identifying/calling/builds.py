"""What a class makes, or a function that returns a function: of which sizes, and how."""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.errors import ConfigError
from mha_numpy.identifying.calling.asked import Drawn
from mha_numpy.identifying.calling.constructors import (
    LENGTHS,
    VALUES,
    additive,
    divided,
    is_length,
    is_pair,
    is_text,
    of_squares,
    read_from,
    role_of,
)
from mha_numpy.identifying.calling.opening import meant_by
from mha_numpy.identifying.calling.roles import PARAMS
from mha_numpy.identifying.calling.signatures import Argument, arguments_of, source_of
from mha_numpy.identifying.calling.subject import trouble_of, undisturbed
from mha_numpy.identifying.calling.ways import CHOICES, number_of
from mha_numpy.identifying.family import Sizes
from mha_numpy.identifying.family.problem import draw

METHODS = ("__call__", "forward", "call", "attend", "attention", "apply", "compute", "run")
SIZES = (  # those that show the most come first: groups, and heads narrower than their share
    Sizes(H=4, G=2, d=16, e=16, D=32, S=5), Sizes(H=4, G=2, e=8, S=5), Sizes(e=8, S=5),
    Sizes(H=8, G=2, d=16, e=16, D=128, S=5), Sizes(H=8, G=8, d=64, e=64, S=5),
)  # fmt: skip
SETTINGS = ("config", "cfg", "conf", "args", "hparams", "hp", "opts", "options", "settings", "c")


class Build(NamedTuple):
    """What a maker made, and of what."""

    maker: "Maker"
    passed: dict[str, Any]
    thing: Any

    def but(self, **other: Any) -> "Build":
        """Make it again with other arguments."""
        return self.maker.build({**self.passed, **other})

    def __str__(self) -> str:
        shown = (f"{name}={_shown(value)}" for name, value in self.passed.items())
        return f"{self.maker.name}({', '.join(shown)})"


class Maker(NamedTuple):
    """A class or a factory, and the method of its objects that attends, if it is known."""

    make: Callable[..., Any]
    method: str = ""

    @property
    def name(self) -> str:
        """How it is called in the source."""
        return str(getattr(self.make, "__name__", "make"))

    @property
    def arguments(self) -> list[Argument]:
        """What it takes."""
        return [each for each in arguments_of(self.make, self.make) if not each.star]

    def build(self, passed: dict[str, Any]) -> Build:
        """Call it."""
        with undisturbed():
            thing = self.make(**passed)
        return Build(self, passed, getattr(thing, self.method) if self.method else thing)

    def builds(self, given: Mapping[str, str]) -> Iterator[Build]:
        """Yield what it makes with several sizes; `given` has roles of its arguments."""
        tried, trouble, is_made = list[Any](), "", False
        has_params = any(role_of(a) in (*PARAMS, "params") for a in self.arguments)
        likely = SIZES[1:3] if has_params else SIZES  # code of params says d = D / H
        for sizes, is_full in product(likely, (True, False)):
            passed = dict(self._passed(sizes, is_full, given))
            text = str(Build(self, passed, None))
            is_drawn = any(isinstance(value, Drawn) for value in passed.values())
            if (text, is_drawn and sizes) in tried:
                continue
            tried.append((text, is_drawn and sizes))
            try:
                yield self.build(passed)
                is_made = True
            except (Exception, SystemExit) as error:  # anybody's
                trouble = trouble or f"{text} raised {trouble_of(error)}"
        if not is_made:
            raise ConfigError(
                f"function: cannot build {self.name} ({trouble or 'its arguments are not known'}); "
                f"build one yourself and pass that, such as {self.name}({self._example()})"
            )

    def _example(self) -> str:
        needed = [a.name for a in self.arguments if a.is_required]
        return ", ".join(f"{name}=..." for name in needed)

    def _passed(
        self, sizes: Sizes, is_full: bool, given: Mapping[str, str]
    ) -> Iterator[tuple[str, Any]]:
        """Yield what to pass: what has to be, sizes that have a default too, and no dropout."""
        tree = source_of(self.make)[1]
        roles = {a.name: given.get(a.name) or role_of(a) for a in self.arguments}
        is_turned = ".T" in ast.unparse(tree)
        needed = [a for a in self.arguments if a.is_required]
        known = of_squares(tree) | divided(tree) | additive(tree, needed)
        left = iter(role for role in ("D", "H", "T") if role not in roles.values())
        for argument in self.arguments:
            name, role = argument.name, roles[argument.name]
            is_size = role in LENGTHS and is_length(argument, role)
            if not argument.is_required and not (is_size and is_full) and role != "rate":
                continue
            read, is_map = read_from(name, tree)
            if is_map:  # of params, or of settings
                role = "" if {*map(role_of, map(Argument, read))} & {*LENGTHS} else "params"
            read = read if role in ("", "params") else []
            role = role if role in LENGTHS else known.get(name, role)
            if is_text(name, tree):
                yield name, ""
            elif is_pair(name, tree):
                yield name, (3, 2)
            elif name in SETTINGS or (read and not role):
                yield name, _config(self.make, read, known, sizes)
            else:
                yield name, _value(name, role or next(left, ""), sizes, is_turned)


def maker_of(thing: Any) -> Maker | None:
    """Return what makes the thing that attends; None if it attends by itself."""
    with suppress(Exception):  # anybody's attributes
        return _maker_of(thing)
    return None


def _maker_of(thing: Any) -> Maker | None:
    if inspect.isclass(thing):
        return Maker(thing)
    if not inspect.isfunction(thing):
        return None
    first = next(iter(inspect.signature(thing).parameters), "")
    kind: Any = sys.modules.get(thing.__module__)
    for part in thing.__qualname__.split(".")[:-1] if first == "self" else ():
        kind = getattr(kind, part, None)
    if inspect.isclass(kind):
        return Maker(kind, thing.__name__)
    return Maker(thing) if _is_factory(thing) else None


def _is_factory(function: Callable[..., Any]) -> bool:
    """Return whether a function returns a function, or an object that attends."""
    body: Any = source_of(function)[1]
    own = body.body[0] if getattr(body, "body", None) else body
    inner = {n.name for n in ast.walk(own) if isinstance(n, ast.FunctionDef) and n is not own}
    around = getattr(function, "__globals__", {})

    def makes(value: Any) -> bool:
        match value:
            case ast.Lambda():
                return True
            case ast.Name(name):
                return name in inner
            case ast.Call(_, [ast.Name(name)], []):  # jit(attend)
                return name in inner
            case ast.Call(ast.Name(name)):
                made = around.get(name)
                own = (getattr(made, n, None) for n in METHODS if inspect.isclass(made))
                return any(map(inspect.isfunction, own))
        return False

    returns = [node.value for node in _own_nodes(own) if isinstance(node, ast.Return)]
    return bool(returns) and all(map(makes, returns))


def _own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions in it."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            yield from _own_nodes(node)


def _value(name: str, role: str, sizes: Sizes, is_turned: bool = False) -> Any:
    """Return what to pass for an argument of a role."""
    if role == "params":
        return Drawn(partial(_param, sizes=sizes, is_turned=is_turned))
    if role == "D" and "out" in name.lower():
        return sizes.H * sizes.d
    if role in LENGTHS:
        return number_of(role, sizes)
    if role in (*PARAMS, "bias_table"):
        return draw(role, sizes, np.random.default_rng(sum(map(ord, name))))
    return VALUES.get(role, role == "is_causal" if role else None)


def _param(key: str, sizes: Sizes, is_turned: bool) -> Any:
    """Return the param that a name stands for, ``"q.weight"``, maybe with outputs first."""
    role = role_of(Argument(meant_by("", (key,), "", [(key,)])))
    if role not in (*PARAMS, "bias_table"):
        raise KeyError(key)
    value = _value(key, role, sizes)
    return value.T.copy() if is_turned and key.endswith("weight") else value


def _config(
    make: Callable[..., Any], read: Sequence[str], known: Mapping[str, str], sizes: Sizes
) -> Any:
    """Return settings: an object of the class in the same file that has them, or what is asked."""
    around = vars(sys.modules.get(make.__module__) or SimpleNamespace())
    for kind in around.values():
        if inspect.isclass(kind) and kind is not make and kind.__module__ == make.__module__:
            own = Maker(kind)
            if read and {*read} <= {a.name for a in own.arguments}:
                return own.build(dict(own._passed(sizes, True, {}))).thing
    return Drawn(partial(_setting, read=read, known=known, sizes=sizes))


def _setting(key: str, read: Sequence[str], known: Mapping[str, str], sizes: Sizes) -> Any:
    """Return the setting that a name stands for; a bias is a flag here."""
    role = known.get(key) or role_of(Argument(key))
    if role in ("", "params") and key not in read:
        raise KeyError(key)
    return _value(key, "flag" if role in (*PARAMS, "bias_table") else role, sizes)


def _shown(value: Any) -> str:
    """Return an argument as a datasheet says it."""
    if isinstance(value, Drawn):
        inside = ", ".join(f"{key}={_shown(each)}" for key, each in value.items())
        return f"{{{inside}}}"
    shape = getattr(value, "shape", None)
    return f"<array {shape}>" if shape is not None else repr(value)


def choices_of(maker: Maker) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield the arguments of a maker: name, role, and another value of a flag or number."""
    for argument in maker.arguments:
        role = role_of(argument)
        others = [*CHOICES[role][:1]] if role in ("window", "scale", "softcap") else []
        if isinstance(argument.default, bool):
            others = [not argument.default]
        elif role == "is_causal" and argument.is_required:
            others = [False]
        yield argument.name, role or "config" * (argument.name in SETTINGS), others


def callable_of(thing: Any) -> Callable[..., Any]:
    """Return what is called: a function, or an object's method that attends."""
    if callable(thing) and not inspect.isclass(thing):
        return thing
    others = [n for n, own in vars(type(thing)).items() if inspect.isfunction(own) and n[0] != "_"]
    methods = (method_of(thing, name) for name in (*METHODS, *others))
    method = next((method for method in methods if method), None)
    if method is None:
        raise ConfigError(f"function: expected a function or a layer; got {type(thing).__name__}")
    return method


def method_of(thing: Any, name: str) -> Callable[..., Any] | None:
    """Return a method, without the answers of a property or a ``__getattr__``."""
    is_one = callable(inspect.getattr_static(thing, name, None))
    return getattr(thing, name) if is_one else None
