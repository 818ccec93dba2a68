"""An object of a class that was given instead of a function."""

import ast
import inspect
import re
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from mha_numpy.errors import ConfigError, one_line
from mha_numpy.identifying.calling.asked import Drawn
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.roles import PARAMS
from mha_numpy.identifying.calling.signatures import source_of
from mha_numpy.identifying.calling.ways import CHOICES, number_of
from mha_numpy.identifying.family import Sizes
from mha_numpy.identifying.family.problem import draw

METHODS = ("__call__", "forward", "call", "attend", "attention", "apply", "compute", "run")
SIZES = Sizes(e=8, S=5)
VALUES: dict[str, Any] = {"rate": 0.0, "T": 64, "eps": 1e-12, "rng": 0, "window": 3, "block": 2}


def make_instance(kind: type, **given: Any) -> Any:
    """Return an object of a class: sizes and params by the names of its arguments."""
    trouble = ""
    for sizes in (SIZES, SIZES._replace(G=2)):
        for default_params in (True, False):
            try:
                return kind(**{**_arguments(kind, sizes, default_params), **given})
            except (Exception, SystemExit) as error:  # anybody's
                trouble = trouble or f"{type(error).__name__}: {one_line(error)}"
    raise ConfigError(
        f"function: cannot make an object of the class {kind.__name__} ({trouble}); make one, "
        "such as layer = Attention(24, 4), and show that"
    )


def choices_of(kind: type) -> list[tuple[str, str, list[Any]]]:
    """Return the arguments of a constructor: name, role, and another value of a flag or number."""
    found = []
    for name, parameter in inspect.signature(kind).parameters.items():
        roles, default = roles_by_name(name), parameter.default
        role = "is_causal" if "is_causal" in roles else next(iter(roles), "")
        others = [*CHOICES[role][:1]] if role in ("window", "scale", "softcap") else []
        if isinstance(default, bool) or (role == "is_causal" and default is parameter.empty):
            role, others = role if role == "is_causal" else "flag", [default is False]
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            found.append((name, role, others))
    return found


def _param(sizes: Sizes, key: str) -> Any:
    """Draw the param that a name stands for."""
    role = next((role for role in roles_by_name(key) if role in (*PARAMS, "bias_table")), None)
    if role is None:
        raise KeyError(key)
    return draw(role, sizes, np.random.default_rng(len(key)))


def _arguments(kind: type, sizes: Sizes, is_plain: bool) -> dict[str, Any]:
    found = {}
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = _value(parameter.name, kind, sizes, is_plain)
        roles = roles_by_name(parameter.name)
        is_size = any(role in ("H", "D", "G") for role in roles[:1])
        if parameter.default is parameter.empty or is_size or roles[:1] == ("rate",):
            if parameter.default is None and roles[:1] == ("G",) and is_plain:
                continue
            found[parameter.name] = value
    return found


def _value(name: str, kind: type, sizes: Sizes, is_plain: bool) -> Any:
    roles = roles_by_name(name)
    if re.fullmatch(r"[wW]_?[a-z]", name):  # whatever the letter means
        return draw("w_q", sizes, np.random.default_rng(ord(name[-1])))
    for role in roles:
        if role in VALUES:
            return VALUES[role]
        if role in ("H", "G", "D", "d", "R"):
            return number_of(role, sizes)
        if role in (*PARAMS, "bias_table"):
            return draw(role, sizes, np.random.default_rng(len(name)))
        if role in ("is_causal", "flag", "training"):
            return role == "is_causal"
    if "params" in roles:
        return Drawn(partial(_param, sizes))
    attributes = _looked_up(kind, name)
    if attributes:
        return SimpleNamespace(**{each: _value(each, kind, sizes, is_plain) for each in attributes})
    return None


def _looked_up(kind: type, name: str) -> list[str]:
    """Return what the source of a class looks up in an argument, as ``config.n_head``."""
    found = []
    for node in ast.walk(source_of(kind)[1]):
        match node:
            case ast.Attribute(ast.Name(id=owner), attr) | ast.Subscript(
                ast.Name(id=owner), ast.Constant(value=str(attr))
            ) if owner == name:
                found.append(attr)
    return [*dict.fromkeys(found)]


def callable_of(thing: Any) -> Callable[..., Any]:
    """Return what is called: a function, or an object's method that attends."""
    if inspect.isclass(thing):
        thing = make_instance(thing)
    if callable(thing):
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
