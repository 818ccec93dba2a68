"""What a class makes, or a function that returns a function: of which sizes, and how."""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.errors import ConfigError
from mha_numpy.identifying.calling.arrays import inner_function
from mha_numpy.identifying.calling.asked import Drawn
from mha_numpy.identifying.calling.constructors import (
    LENGTHS,
    VALUES,
    additive,
    compared,
    divided,
    is_length,
    is_text,
    is_turned,
    of_layers,
    of_squares,
    role_of,
)
from mha_numpy.identifying.calling.containers import Attribute, Path, find_held
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.opening import meant_by
from mha_numpy.identifying.calling.roles import MAINS, PARAMS
from mha_numpy.identifying.calling.shapes import MAIN
from mha_numpy.identifying.calling.signatures import REQUIRED, Argument, arguments_of, source_of
from mha_numpy.identifying.calling.subject import trouble_of, undisturbed
from mha_numpy.identifying.calling.turns import Turn, in_turn, stored_and_read
from mha_numpy.identifying.calling.ways import CHOICES, number_of
from mha_numpy.identifying.family import Sizes
from mha_numpy.identifying.family.problem import draw

METHODS = ("__call__", "forward", "call", "attend", "attention", "apply", "compute", "run")
SIZES = (  # those that show the most come first: groups, and heads narrower than their share
    Sizes(H=4, G=2, d=16, e=16, D=32, S=5), Sizes(H=4, G=2, e=8, S=5), Sizes(e=8, S=5),
    Sizes(H=8, G=2, d=16, e=16, D=128, S=5), Sizes(H=8, G=8, d=64, e=64, S=5),
)  # fmt: skip
SHARE = re.compile(r"rot\w*_(pct|percent\w*|factor|fraction|ratio)$")  # of features that rotate
BUCKETS = 32  # of distances, as T5 has them
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
        rngs = {a.name for a in self.arguments if (given.get(a.name) or role_of(a)) == "rng"}
        likely = SIZES[1:3] if has_params else SIZES  # code of params says d = D / H
        for sizes, is_full in product(likely, (True, False)):
            passed = dict(self._passed(sizes, is_full, given))
            text = str(Build(self, passed, None))
            is_drawn = any(isinstance(value, Drawn) for value in passed.values())
            if (text, is_drawn and sizes) in tried:
                continue
            tried.append((text, is_drawn and sizes))
            for source in _sources() if rngs & passed.keys() else (0,):
                try:
                    yield self.build(passed | dict.fromkeys(rngs & passed.keys(), source))
                    is_made = True
                    break
                except (Exception, SystemExit) as error:  # anybody's
                    made_of = Build(self, passed, None)
                    trouble = trouble or f"{made_of} raised {trouble_of(error)}"
        if not is_made:
            needed = [a for a in self.arguments if a.is_required]
            unknown = ", ".join(a.name for a in needed if role_of(a) in ("", "params"))
            example = ", ".join(f"{argument.name}=..." for argument in needed)
            raise ConfigError(
                f"function: cannot build {self.name} ({trouble or 'its arguments are not known'}); "
                + f"it may need something else for {unknown}: " * bool(unknown)
                + f"build one yourself and pass that, such as {self.name}({example})"
            )

    def joined(self) -> Callable[..., Any] | None:
        """Return one function that makes something of tokens and calls it; None if it makes layers.

        As a class that is given keys and values, whose objects are called with queries.
        """
        levels = [self.arguments]
        inner: Any = self.make
        if inspect.isclass(self.make):
            method = self._called(object.__new__(self.make))
            levels.append(arguments_of(method, method))
            inner = inner_function(method)
        else:
            levels += _returned(source_of(self.make)[1].body[0])  # type: ignore[attr-defined]
        if any(a.star for a in chain(*levels)) or not _is_parted(levels[0], [*chain(*levels[1:])]):
            return None

        turns = [Turn(self._called, level) for level in levels[1:]]
        return in_turn(self.name, inner, [Turn(lambda _: self.make, levels[0]), *turns])

    def _called(self, thing: Any) -> Callable[..., Any]:
        """Return the method that attends, of an object that was made."""
        return getattr(thing, self.method) if self.method else callable_of(thing)

    def _passed(
        self, sizes: Sizes, is_full: bool, given: Mapping[str, str]
    ) -> Iterator[tuple[str, Any]]:
        """Yield what to pass: what has to be, sizes that have a default too, and no dropout."""
        source, tree = self.source()
        roles = {a.name: given.get(a.name) or role_of(a) for a in self.arguments}
        needed = [a for a in self.arguments if a.is_required]
        known = additive(tree, needed) | of_layers(tree) | of_squares(tree) | divided(tree)
        texts = {name: "" for name in roles if is_text(name, tree)}
        inner = getattr(self.make, "__init__", None) if inspect.isclass(self.make) else self.make
        held = find_held(tree, [*roles], inner, texts)
        left = iter(role for role in ("D", "H", "T") if role not in roles.values())
        for argument in self.arguments:
            name, role = argument.name, roles[argument.name]
            is_size = role in LENGTHS and is_length(argument, role)
            if not argument.is_required and not (is_size and is_full) and role != "rate":
                continue
            read = {path: meant_by(name, path, "", [path]) for path in held[name].places
                    if isinstance(path[0], str)}  # fmt: skip
            inside = {role_of(Argument(word)) for word in read.values()}
            is_map = any(not isinstance(path[0], Attribute) for path in read)
            if not inside.isdisjoint(LENGTHS):
                role = ""
            elif is_map or not inside.isdisjoint(PARAMS):
                role = "params"
            role = role if role in LENGTHS else known.get(name, role)
            if name in texts:
                yield name, ""
            elif asked := compared(name, tree):
                yield name, asked[0]
            elif role == "params" and not read and held[name].places:  # in their order
                words = held[name].places
                each = (meant_by(name, path, words[path], [*words]) for path in sorted(words))
                yield name, tuple(_value(n, role_of(Argument(n)), sizes) for n in each)
            elif role == "params":
                draw = partial(_param, name, source=source, sizes=sizes)
                yield name, Drawn(draw, read, whole=True)
            elif {*held[name].places} == {(0,), (1,)}:
                yield name, (3, 2)
            elif name in SETTINGS or (read and not role):
                yield name, _config(self.make, [*read], known, sizes)
            else:
                value = _value(name, role or next(left, ""), sizes)
                yield name, value.T if np.ndim(value) == 2 and is_turned(name, source) else value

    def source(self) -> tuple[str, ast.Module]:
        """Return the source of a function, or of a class and what it inherits in its file."""
        kinds = [*self.make.__mro__] if inspect.isclass(self.make) else [self.make]
        own = [source_of(kind) for kind in kinds if kind.__module__ == self.make.__module__]
        return "\n".join(text for text, _ in own), ast.Module([tree for _, tree in own], [])  # type: ignore[misc]


def _sources() -> Iterator[Any]:
    """Yield what a constructor may draw its params from: a seed, and the sources of frameworks."""
    yield from (0, np.random.default_rng(0))
    jax: Any = sys.modules.get("jax")
    torch: Any = sys.modules.get("torch")
    yield from [jax.random.PRNGKey(0)] if jax else []
    yield from [torch.Generator()] if torch else []


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
            case ast.Tuple(elts):  # init, apply
                return all(map(makes, elts))
            case ast.Call(_, [ast.Name(name)], []):  # jit(attend)
                return name in inner
            case ast.Call(ast.Name(name)):
                made = around.get(name)
                own = (getattr(made, n, None) for n in METHODS if inspect.isclass(made))
                return any(map(inspect.isfunction, own))
        return False

    returns = [node.value for node in _own_nodes(own) if isinstance(node, ast.Return)]
    return bool(returns) and all(map(makes, returns))


def _is_parted(made: Sequence[Argument], called: Sequence[Argument]) -> bool:
    """Return whether names say that a thing is made of some of the tokens and called with others.

    A name may be that of a param, too, as v: then it counts only where tokens are missing.
    """
    names = {a: roles_by_name(a.name) for a in (*made, *called) if a.is_required}
    main = {a: next(filter(MAIN.__contains__, own), "") for a, own in names.items()}
    main = {a: role for a, role in main.items() if role and role_of(a) in ("", *names[a])}
    clear = {a: role for a, role in main.items() if {*names[a]}.isdisjoint(PARAMS)}
    early = main if {main[a] for a in called if a in main} not in MAINS[:5] else clear
    is_early = any(a in early and role_of(a) not in (*LENGTHS, *VALUES) for a in made)
    return is_early and any({*clear.values()} <= each <= {*main.values()} for each in MAINS[:5])


def _returned(function: Any) -> Iterator[list[Argument]]:
    """Yield the arguments of the function that a function returns, and of the one that it does."""
    inner: dict[str, Any] = {
        n.name: n for n in ast.walk(function) if isinstance(n, ast.FunctionDef)
    }
    returns = [n.value for n in _own_nodes(function) if isinstance(n, ast.Return)]
    value: Any = function.body if isinstance(function, ast.Lambda) else (*returns, None)[0]
    value = inner.get(value.id) if isinstance(value, ast.Name) else value
    if isinstance(value, (ast.FunctionDef, ast.Lambda)):
        names = [each.arg for each in value.args.args]
        needed = len(names) - len(value.args.defaults)
        yield [Argument(n, REQUIRED if i < needed else None) for i, n in enumerate(names)]
        yield from _returned(value)


def _own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions in it."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            yield from _own_nodes(node)


def _value(name: str, role: str, sizes: Sizes) -> Any:
    """Return what to pass for an argument of a role."""
    if role == "D" and "out" in name.lower():
        return sizes.H * sizes.d
    if role in LENGTHS:
        return number_of(role, sizes)
    if role in (*PARAMS, "bias_table"):
        return draw(role, sizes, np.random.default_rng(sum(map(ord, name))))
    return VALUES.get(role, role == "is_causal" if role else None)


def _param(holder: str, path: Path, source: str, sizes: Sizes) -> Any:
    """Return the param that a name stands for, ``"q.weight"``, maybe with outputs first."""
    key = ".".join(map(str, path))
    role = role_of(Argument(meant_by(holder, path, "", [path])))
    if role not in (*PARAMS, "bias_table"):
        raise KeyError(key)
    if role == "bias_table" and "bucket" in source:
        sizes = sizes._replace(K=BUCKETS)
    value = _value(key, role, sizes)
    is_turned = f"{path[-1]}.T" in source or (key.endswith("weight") and ".T" in source)
    return value.T.copy() if is_turned and role[:2] == "w_" else value


def _config(
    make: Callable[..., Any], read: Sequence[Path], known: Mapping[str, str], sizes: Sizes
) -> Any:
    """Return settings: an object of the class in the same file that has them, or what is asked."""
    around = vars(sys.modules.get(make.__module__) or SimpleNamespace())
    for kind in around.values():
        if inspect.isclass(kind) and kind is not make and kind.__module__ == make.__module__:
            own = Maker(kind)
            if read and {path[0] for path in read} <= {a.name for a in own.arguments}:
                return own.build(dict(own._passed(sizes, True, {}))).thing
    names = [str(path[-1]) for path in read]
    return Drawn(partial(_setting, read=names, known=known, sizes=sizes), read)


def _setting(path: Path, read: Sequence[str], known: Mapping[str, str], sizes: Sizes) -> Any:
    """Return the setting that a name stands for; a bias is a flag here."""
    key = str(path[-1])
    role = known.get(key) or role_of(Argument(key))
    if role in ("", "params") and key not in read:
        raise KeyError(key)
    if SHARE.search(key):
        return 0.5
    return _value(key, "flag" if role in (*PARAMS, "bias_table") else role, sizes)


def _shown(value: Any) -> str:
    """Return an argument as a datasheet says it."""
    if isinstance(value, Drawn):
        inside = ", ".join(f"{key}={_shown(each)}" for key, each in value.items())
        return f"{{{inside}}}"
    shape = getattr(value, "shape", None)
    if shape is None:
        return re.sub(r".* at 0x.*", f"<{type(value).__name__}>", repr(value))
    return f"<array {shape}>"


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
    """Return a function, the one of several that attends, or such a method of an object."""
    if callable(thing) and not inspect.isclass(thing):
        return thing
    if isinstance(thing, tuple):
        methods = sorted(filter(callable, thing), key=_has_no_tokens)
    else:
        stored = stored_and_read(thing)
        if stored:
            return stored
        usual = (method_of(thing, name) for name in METHODS)
        methods = [*filter(None, usual)] or _other_methods(thing)
    if not methods:
        raise ConfigError(f"function: expected a function or a layer; got {type(thing).__name__}")
    return methods[0]


def _other_methods(thing: Any) -> list[Callable[..., Any]]:
    """Return the public methods of an object that take something; those that others call last."""
    kinds = type(thing).__mro__[:-1]
    names = [n for kind in kinds for n, own in vars(kind).items() if inspect.isfunction(own)]
    names = [name for name in dict.fromkeys(names) if name[0] != "_"]
    methods = [getattr(thing, name) for name in names]
    methods = sorted((m for m in methods if arguments_of(m, m)), key=_has_no_tokens)
    source = source_of(type(thing))[0]
    return sorted(methods, key=lambda method: f"self.{method.__name__}(" in source)


def _has_no_tokens(method: Callable[..., Any]) -> bool:
    """Return whether no argument of a function is named as tokens are."""
    arguments = [a for a in arguments_of(method, method) if role_of(a) != "rng"]
    return all({*roles_by_name(a.name)}.isdisjoint(MAIN) for a in arguments)


def method_of(thing: Any, name: str) -> Callable[..., Any] | None:
    """Return a method, without the answers of a property or a ``__getattr__``."""
    is_one = callable(inspect.getattr_static(thing, name, None))
    return getattr(thing, name) if is_one else None
