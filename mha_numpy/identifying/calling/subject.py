"""A function that is looked at: its arguments, its source, and calls of it."""

import ast
import contextlib
import io
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe, one_line
from mha_numpy.frameworks import to_framework, to_numpy
from mha_numpy.identifying.calling.aftermath import State
from mha_numpy.identifying.calling.arrays import (
    call_in,
    flatten,
    frameworks_of,
    hidden_arrays,
    inner_function,
    is_keras,
    is_number,
    is_torch,
    numbers_of,
    owner_of,
)
from mha_numpy.identifying.calling.asked import Asked, Drawn
from mha_numpy.identifying.calling.chance import Chance
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.evidence import evidence
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.signatures import arguments_of, source_of

MOST_KEYS = 64  # of a dict
NOT_NESTED = ("must be a mapping", "string index", "only integers, slices", "indices must be int")


class Called(NamedTuple):
    """What a call did."""

    arrays: list[tuple[str, np.ndarray]]  # each with the way to it in the result
    trouble: str = ""  # the error, in a line
    result: Any = None  # as it is


class Subject:
    """Anybody's function, or an object that can be called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ConfigError(f"function: expected a function or a layer; got {describe(function)}")
        self.until = np.inf  # when its time is over, as `clock` counts
        self.function = function
        self.inner = inner_function(function)
        name = str(getattr(function, "__qualname__", type(function).__name__))
        self.name = name.rpartition("<locals>.")[2]
        self.frameworks = frameworks_of(function)
        self.framework = self.frameworks[0]
        self.is_module = is_torch(function)
        if self.is_module:
            module = _copy_module(function)
            module.eval()
            rng = np.random.default_rng(0)
            for param in module.parameters():
                if not param.any():  # biases, as they begin
                    param.data += to_framework(rng.normal(size=param.shape), "torch")
            self.exact = function = module
        self.narrow("float64")
        self.source, self.tree = source_of(self.inner)
        self.arguments = arguments_of(function, self.inner)
        self.evidence = evidence(self.tree, [a.name for a in self.arguments], self.inner)
        self.hidden = hidden_arrays(function)
        self.numbers = numbers_of(function)
        self.keys: dict[str, list[str]] = {}  # of arguments that are dicts
        self.is_watched = False  # line by line, so that nothing may be compiled
        self.has_nested = False  # dicts of params have dicts inside, of a matrix and a bias
        self.asked: dict[str, list[str]] = {}
        self.chance = Chance(function)
        self.state: State | None = State(self.function)  # None for one that reads what was kept

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.until - clock()

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Let the time be over after some seconds; later no call is made."""
        before = self.until
        self.until = min(before, clock() + seconds)
        try:
            yield
        finally:
            self.until = before

    @contextlib.contextmanager
    def keeping(self, kept: bool = True) -> Iterator[None]:
        """Let an object keep what it has of the last call."""
        state = self.state
        self.state = None if kept else state
        try:
            yield
        finally:
            self.state = state

    def constants(self) -> list[float]:
        """Return the numbers that may be conventions: of the source, attributes and defaults."""
        values = [node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant)]
        values += [*self.numbers.values(), *(argument.default for argument in self.arguments)]
        return [*dict.fromkeys(abs(float(n)) for n in values if is_number(n) and n)]

    def narrow(self, dtype: str) -> None:
        """Let calls have arrays of another dtype, and a module of PyTorch its params."""
        self.dtype = dtype
        if self.is_module:
            module = self.exact if dtype == "float64" else _copy_module(self.exact)
            self.function = module.to(getattr(sys.modules["torch"], dtype))
            self.state = State(self.function)

    def learn(self, trouble: str = "") -> bool:
        """Take up the names that a call asked of dicts; return whether there are new ones."""
        new = any(words in trouble for words in NOT_NESTED) and not self.has_nested
        self.has_nested = self.has_nested or new
        for name, asked in self.asked.items():
            known = self.keys.setdefault(name, [])
            more = [key for key in asked[:MOST_KEYS] if key not in known][: MOST_KEYS - len(known)]
            known += more
            new = new or bool(more)
        holder = owner_of(self.function)
        drawn = {
            f"{name}.{key}": array
            for name, value in getattr(holder, "__dict__", {}).items()
            if isinstance(value, Drawn)
            for key, array in value.items()
            if isinstance(array, np.ndarray)
        }
        if drawn.keys() - self.hidden.keys():
            self.hidden, new = {**self.hidden, **drawn}, True
        layer: Any = self.function
        if not self.hidden and is_keras(layer) and layer.weights:  # since a call
            rng = np.random.default_rng(0)
            for weight in layer.weights:  # which are 0 where chance is switched off
                weight.assign(0.3 * rng.normal(size=weight.shape))
            self.hidden, new = hidden_arrays(self.function), True
        return new

    def looks_up(self, argument: str) -> bool:
        """Return whether the source looks params up in an argument, as ``p["w"]`` or ``p.w``."""
        found = re.findall(rf"\b{argument}(?:\[['\"](\w+)['\"]\]|\.(\w+))", self.source)
        return any(
            key or any(role[:2] in ("w_", "H") for role in roles_by_name(attribute))
            for key, attribute in found
        )

    def unpacks(self, argument: str, key: str = "") -> bool:
        """Return whether the source passes ``**argument`` on, or ``**argument[key]``."""
        if key and self.has_nested:
            return True
        text = f"{argument}[{key!r}]" if key else argument
        return any(
            isinstance(node, ast.keyword) and node.arg is None and ast.unparse(node.value) == text
            for node in ast.walk(self.tree)
        )

    def _passed(self, value: Any) -> Any:
        if isinstance(value, str) and value == "rng":
            return self.chance.source(self.framework)
        return in_arrays(value, partial(to_framework, framework=self.framework))

    def call(self, given: Mapping[str, Any], filled: str = "") -> Called:
        """Call the function; return its arrays, or the error.

        `filled` is the argument that it writes its output into, if there is one.
        """
        if self.left < 0:
            return Called([])
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
        if self.state:
            self.state.put_back()
        try:
            with undisturbed(), self.chance.control():
                compiler = "" if self.is_watched else self.framework
                result = call_in(compiler, self.function, positional, named)
            if filled:
                at = [a.name for a in self.arguments].index(filled)
                result = (named[filled] if filled in named else positional[at], result)
            return Called([*flatten(result)], result=result)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # anybody's
            return Called([], trouble_of(error))

    def changed(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """Call the function; return the arguments that it changed, as they are afterwards."""
        if self.framework == "jax":  # its arrays never change
            return {}
        passed = {name: self._passed(narrow(value, self.dtype)) for name, value in given.items()}
        order = [a for a in self.arguments if a.name in passed]
        with contextlib.suppress(Exception, SystemExit), undisturbed(), self.chance.control():
            self.function(
                *(passed[a.name] for a in order if a.is_positional),
                **{a.name: passed[a.name] for a in order if not a.is_positional},
            )
        arrays = {name: x for name, x in given.items() if isinstance(x, np.ndarray)}
        after = {name: np.asarray(to_numpy(passed[name])) for name in arrays}
        same_dtype = {name: array.astype(after[name].dtype) for name, array in arrays.items()}
        return {n: x for n, x in after.items() if not np.array_equal(x, same_dtype[n])}


@contextlib.contextmanager
def undisturbed() -> Iterator[io.StringIO]:
    """Let a function print and warn where nobody sees it; yield what it prints."""
    printed, stdin = io.StringIO(), sys.stdin
    with (
        warnings.catch_warnings(), np.errstate(all="ignore"),
        contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        sys.stdin = io.StringIO()  # nobody answers
        try:
            yield printed
        finally:
            sys.stdin = stdin


def trouble_of(error: BaseException) -> str:
    """Return an error in a line, also if its text cannot be had."""
    with contextlib.suppress(Exception):
        return f"{type(error).__name__}: {one_line(error)}"
    return type(error).__name__


def _copy_module(module: Any) -> Any:
    """Return a copy of a PyTorch module, also if it keeps results of a call, which have no copy."""
    kept = [value for part in module.modules() for value in vars(part).values()]
    return deepcopy(module, {id(t): t.detach() for t in kept if getattr(t, "grad_fn", None)})


def in_arrays(value: Any, change: Callable[[Array], Any]) -> Any:
    """Return an array, or a dict or list of arrays, with each of them changed."""
    if isinstance(value, dict) and value:  # an empty one is to be filled
        return {name: in_arrays(each, change) for name, each in value.items()}
    if isinstance(value, list):
        return [in_arrays(each, change) for each in value]
    return change(value) if isinstance(value, np.ndarray) else value


def narrow(value: Any, dtype: str) -> Any:
    """Return arrays of floats in another dtype."""
    return in_arrays(value, lambda a: a.astype(dtype) if a.dtype == np.float64 else a)
