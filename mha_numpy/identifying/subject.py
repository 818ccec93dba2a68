"""A function that is looked at: its arguments, its source, and calls of it."""

import ast
import contextlib
import inspect
import io
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe, one_line
from mha_numpy.identifying.arrays import (
    call_in,
    flatten,
    frameworks_of,
    hidden_arrays,
    inner_function,
    numbers_of,
    to_framework,
    to_numpy,
)
from mha_numpy.identifying.chance import Chance

REQUIRED = inspect.Parameter.empty


class Argument(NamedTuple):
    """An argument of a function."""

    name: str
    default: Any = REQUIRED
    is_positional: bool = False  # may only be passed by position
    annotation: str = ""

    @property
    def is_required(self) -> bool:
        """Whether it has to be passed."""
        return self.default is REQUIRED


class Called(NamedTuple):
    """What a call did."""

    arrays: list[tuple[str, np.ndarray]]  # each with the way to it in the result
    trouble: str = ""  # the error, in a line
    kind: str = ""  # of the result: "tuple", "dict" ...


class Asked(dict[str, Any]):
    """A dict that notes what it is asked for and does not have, also as an attribute."""

    def __init__(self, values: Mapping[str, Any], asked: list[str]) -> None:
        super().__init__(values)
        self._asked = asked

    def __missing__(self, key: str) -> Any:
        self._asked.append(key)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        if not super().__contains__(key):
            self._asked.append(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, as a dict does."""
        return self[key] if key in self else default  # noqa: SIM401

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None


class Drawn(dict[str, Any]):
    """Params of an object that are drawn when they are first asked for."""

    def __init__(self, draw: Callable[[str], Any]) -> None:
        super().__init__()
        self.draw = draw

    def __missing__(self, key: str) -> Any:
        self[key] = self.draw(key)
        return self[key]


class Subject:
    """Anybody's function, or an object that can be called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ConfigError(f"function: expected a function or a layer; got {describe(function)}")
        self.function = function
        self.inner = inner_function(function)
        name = getattr(function, "__qualname__", type(function).__name__)
        self.name = name.rpartition("<locals>.")[2]
        self.frameworks = frameworks_of(function)
        self.framework = self.frameworks[0]
        self.is_module = hasattr(function, "named_parameters") and not hasattr(
            function, "get_weights"
        )
        if self.is_module:
            module = _copy_module(function)
            module.eval()
            rng = np.random.default_rng(0)
            for param in module.parameters():
                if not param.any():  # biases, as they begin
                    param.data += to_framework(rng.normal(size=param.shape), "torch")
            self.exact = function = module
        self.narrow("float64")
        self.source, self.tree = _source(self.inner)
        self.arguments = _arguments(function, self.inner)
        self.hidden = hidden_arrays(function)
        self.numbers = numbers_of(function)
        self.keys: dict[str, list[str]] = {}  # of arguments that are dicts
        self.is_watched = False  # line by line, so that nothing may be compiled
        self.has_nested = False  # dicts of params have dicts inside, of a matrix and a bias
        self.asked: dict[str, list[str]] = {}
        self.chance = Chance(function)

    def constants(self) -> list[float]:
        """Return the numbers that may be conventions: of the source, attributes and defaults."""
        values = [
            node.value
            for node in ast.walk(self.tree or ast.Pass())
            if isinstance(node, ast.Constant)
        ]
        values += [*self.numbers.values(), *(argument.default for argument in self.arguments)]
        found = [
            float(n) for n in values if isinstance(n, (int, float)) and not isinstance(n, bool)
        ]
        return [*dict.fromkeys(abs(n) for n in found if n and abs(n) < 1e8)]

    def narrow(self, dtype: str) -> None:
        """Let calls have arrays of another dtype, and a module of PyTorch its params."""
        self.dtype = dtype
        if self.is_module:
            module = self.exact if dtype == "float64" else _copy_module(self.exact)
            self.function = module.to(getattr(sys.modules["torch"], dtype))

    def learn(self, trouble: str = "") -> bool:
        """Take up the names that a call asked of dicts; return whether there are new ones."""
        new = "must be a mapping" in trouble and not self.has_nested
        self.has_nested = self.has_nested or new
        for name, asked in self.asked.items():
            known = self.keys.setdefault(name, [])
            more = [key for key in asked if key not in known]
            known += more
            new = new or bool(more)
        holder = getattr(self.function, "__self__", self.function)
        drawn = {
            f"{name}.{key}": array
            for name, value in getattr(holder, "__dict__", {}).items()
            if isinstance(value, Drawn)
            for key, array in value.items()
        }
        if drawn.keys() - self.hidden.keys():
            self.hidden, new = {**self.hidden, **drawn}, True
        return new

    def looks_up(self, argument: str) -> bool:
        """Return whether the source looks something up in an argument by a name."""
        return any(
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id == argument
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
            for node in ast.walk(self.tree or ast.Pass())
        )

    def unpacks(self, argument: str, key: str = "") -> bool:
        """Return whether the source passes ``**argument`` on, or ``**argument[key]``."""
        if key and self.has_nested:
            return True
        text = f"{argument}[{key!r}]" if key else argument
        return any(
            isinstance(node, ast.keyword) and node.arg is None and ast.unparse(node.value) == text
            for node in ast.walk(self.tree or ast.Pass())
        )

    def _passed(self, value: Any) -> Any:
        if isinstance(value, str) and value == "rng":
            return self.chance.source(self.framework)
        return to_framework(value, self.framework)

    def call(self, given: Mapping[str, Any], filled: str = "") -> Called:
        """Call the function; return its arrays, or the error.

        `filled` is the argument that it writes its output into, if there is one.
        """
        positional, named = [], {}
        for argument in self.arguments:
            if argument.name in given:
                value = self._passed(narrow(given[argument.name], self.dtype))
                if isinstance(value, dict) and argument.name in self.keys:
                    value = Asked(value, self.asked.setdefault(argument.name, []))
                if argument.is_positional:
                    positional.append(value)
                else:
                    named[argument.name] = value
        try:
            with undisturbed(), self.chance.control():
                compiler = "" if self.is_watched else self.framework
                result = call_in(compiler, self.function, positional, named)
            if filled:
                at = [a.name for a in self.arguments].index(filled)
                result = (named[filled] if filled in named else positional[at], result)
            return Called([*flatten(result)], kind=type(result).__name__)
        except (Exception, SystemExit, GeneratorExit) as error:  # anybody's
            return Called([], f"{type(error).__name__}: {one_line(error)}")

    def changed(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """Call the function; return the arguments that it changed, as they are afterwards."""
        if self.framework == "jax":  # its arrays never change
            return {}
        passed = {name: self._passed(value) for name, value in given.items()}
        order = [a for a in self.arguments if a.name in passed]
        with contextlib.suppress(Exception), undisturbed(), self.chance.control():
            self.function(
                *(passed[a.name] for a in order if a.is_positional),
                **{a.name: passed[a.name] for a in order if not a.is_positional},
            )
        arrays = {name: x for name, x in given.items() if isinstance(x, np.ndarray)}
        after = {name: np.asarray(to_numpy(passed[name])) for name in arrays}
        return {n: x for n, x in after.items() if not np.array_equal(x, arrays[n])}


@contextlib.contextmanager
def undisturbed() -> Iterator[io.StringIO]:
    """Let a function print and warn where nobody sees it; yield what it prints."""
    printed = io.StringIO()
    with (
        warnings.catch_warnings(), np.errstate(all="ignore"),
        contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        yield printed


def _copy_module(module: Any) -> Any:
    """Return a copy of a PyTorch module, also if it keeps results of a call, which have no copy."""
    kept = [value for part in module.modules() for value in vars(part).values()]
    return deepcopy(module, {id(t): t.detach() for t in kept if getattr(t, "grad_fn", None)})


def narrow(value: Any, dtype: str) -> Any:
    """Return an array of floats in another dtype."""
    if isinstance(value, dict):
        return {name: narrow(each, dtype) for name, each in value.items()}
    if isinstance(value, list):
        return [narrow(each, dtype) for each in value]
    is_wide = isinstance(value, np.ndarray) and value.dtype == np.float64
    return value.astype(dtype) if is_wide else value


def _source(inner: Any) -> tuple[str, ast.AST | None]:
    try:
        source = textwrap.dedent(inspect.getsource(inner))
        return source, ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return "", None


def _arguments(function: Any, inner: Any) -> list[Argument]:
    """Return the arguments that can be named."""
    try:
        parameters = [*inspect.signature(function).parameters.values()]
        if all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            own = inspect.signature(inner).parameters.values()
            parameters = [p for p in own if p.name != "self"]
    except (TypeError, ValueError):
        return _documented(function)
    return [
        Argument(
            p.name, p.default, p.kind is p.POSITIONAL_ONLY,
            "" if p.annotation is REQUIRED else str(p.annotation),
        )
        for p in parameters
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]  # fmt: skip


def _documented(function: Any) -> list[Argument]:
    """Return the arguments that the first line of a docstring names: a function written in C."""
    line = (getattr(function, "__doc__", "") or "").strip().split("->")[0]
    start, end = line.find("("), line.rfind(")")
    try:
        tree: Any = ast.parse(f"def f{line[start : end + 1]}: pass").body[0]
    except SyntaxError:
        return []
    args, found = tree.args, []
    plain = [*args.posonlyargs, *args.args]
    defaults = [REQUIRED] * (len(plain) - len(args.defaults)) + [*args.defaults]
    pairs = zip([*plain, *args.kwonlyargs], [*defaults, *args.kw_defaults], strict=True)
    for arg, default in pairs:
        value: Any = REQUIRED
        if default is not REQUIRED:
            try:
                value = ast.literal_eval(default)
            except ValueError:
                value = None
        found.append(Argument(arg.arg, value))
    return found
