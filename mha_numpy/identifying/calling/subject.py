"""A function that is looked at: its arguments, its source, and calls of it."""

import ast
import contextlib
import io
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial, reduce
from importlib import import_module
from operator import getitem
from traceback import extract_tb
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe, one_line
from mha_numpy.frameworks import to_framework, to_numpy
from mha_numpy.identifying.calling.aftermath import State
from mha_numpy.identifying.calling.arrays import (
    buckets_of,
    call_in,
    eps_of_norms,
    flatten,
    frameworks_of,
    hidden_arrays,
    inner_function,
    is_keras,
    is_lazy,
    is_norm,
    is_number,
    is_torch,
    numbers_of,
    owner_of,
    parts_in,
)
from mha_numpy.identifying.calling.asked import MOST_KEYS, Drawn, Note, hold
from mha_numpy.identifying.calling.chance import Chance
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.containers import (
    EACH,
    OF_LISTS,
    Held,
    Path,
    fields_of,
    find_held,
    kinds_of,
    of_fields,
)
from mha_numpy.identifying.calling.evidence import Evidence, evidence
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.opening import is_opened, open_argument
from mha_numpy.identifying.calling.shapes import declared_shapes, said_of
from mha_numpy.identifying.calling.signatures import Argument, arguments_of, source_of

STACKS = {"jax": "jax.numpy", "keras": "keras.ops"}  # the modules that stack arrays
UNPACKED = re.compile(r"expected (\d+), got 0")
NO_ARRAY = re.compile(r"'(tuple|dict|Asked)' object has no attribute|tuple indices must be|"
                      r"argument of type 'Asked'")  # fmt: skip


NARROW = {
    ("float64", "float32"): "float32", ("float64", "float16"): "float16",
    ("complex128", "float32"): "complex64", ("complex128", "float16"): "complex64",
}  # fmt: skip


CASTS = {"float64": "double", "float32": "float", "float16": "half"}  # of a module


class Called(NamedTuple):
    """What a call did."""

    arrays: list[tuple[str, np.ndarray]]  # each with the way to it in the result
    trouble: str = ""  # the error, in a line
    result: Any = None  # as it is


class Subject:
    """Anybody's function, or an object that can be called."""

    dtype: str  # of the arrays that are passed

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ConfigError(f"function: expected a function or a layer; got {describe(function)}")
        self.given: dict[str, str] = {}  # roles that somebody gave, by argument
        self.until = np.inf  # when its time is over, as `clock` counts
        self.state: State | None = None  # also for one that reads what was kept
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
            _prepare(module)
            self.exact = function = module
        self.narrow("float64")
        self.source, self.tree = source_of(self.inner)
        self.literals = _literals(self.tree)
        self.said = said_of(self.inner, owner_of(function))
        self.whole = arguments_of(function, self.inner)  # as the signature has them
        names = [argument.name for argument in self.whole]
        self.evidence = defaultdict(Evidence, evidence(self.tree, names, self.inner))
        self.held = find_held(self.tree, names, self.inner)
        self.kinds = kinds_of(self.inner)
        for name, kind in self.kinds.items():
            if name in self.held:
                self.held[name] = of_fields(self.held[name], fields_of(kind))
        self.stacked: set[str] = set()  # arguments whose parts are one array
        self.asked: dict[str, dict[Path, bool]] = {}  # by argument; whether it may be missing
        self.open()
        self.hidden = hidden_arrays(function)
        self.numbers = numbers_of(function)
        self.norm_eps = eps_of_norms(function)
        self.buckets = buckets_of(self.inner)
        self.is_watched = False  # line by line, so that nothing may be compiled
        self.feeding = ""  # "d" or "1 d": what it is given in each of many calls, one for a token
        self.chance = Chance(function)
        self.complete: Callable[[Any], Any] = lambda problem: problem  # with what a call shows
        self.state = State(self.function)

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
    def completing(self, complete: Callable[[Any], Any]) -> Iterator[Callable[[Any], Any]]:
        """Add something to each problem before it is passed."""
        before, self.complete = self.complete, complete
        try:
            yield complete
        finally:
            self.complete = before

    @contextlib.contextmanager
    def keeping(self, kept: bool = True) -> Iterator[None]:
        """Let an object keep what it has of the last call."""
        state = self.state
        self.state = None if kept else state
        try:
            yield
        finally:
            self.state = state

    @contextlib.contextmanager
    def after(self, given: Mapping[str, Any]) -> Iterator[None]:
        """Let each call begin with what an object keeps of a first one."""
        self.call(given)
        before, self.state = self.state, State(self.function)
        try:
            yield
        finally:
            self.state = before

    def constants(self) -> list[float]:
        """Return the numbers that may be conventions: of the source, attributes and defaults."""
        own = [*self.numbers.values(), *(argument.default for argument in self.arguments)]
        values = (n for n in (*self.literals, *own) if is_number(n) and n)
        return [*dict.fromkeys(abs(float(n)) for n in values)]

    @contextlib.contextmanager
    def passing(self, dtype: str) -> Iterator[None]:
        """Let calls have arrays of another dtype; params stay as they are."""
        before, self.dtype = self.dtype, dtype
        try:
            yield
        finally:
            self.dtype = before

    def narrow(self, dtype: str) -> None:
        """Let calls have arrays of another dtype, and a module of PyTorch its params."""
        self.dtype = dtype
        if self.is_module:
            if self.state:  # what calls have kept may have no copy
                self.state.put_back()
            module = self.exact if dtype == "float64" else _copy_module(self.exact)
            self.function = _cast(module, CASTS[dtype])
            self.state = State(self.function)

    def learn(self, trouble: str = "") -> bool:
        """Take up the names that a call asked of dicts; return whether there are new ones."""
        new = False
        for name, asked in self.asked.items():
            held = self.held.setdefault(name, Held({}, set(), set(), may_be_none=False))
            count = UNPACKED.search(trouble)
            last = next(reversed(asked), None)  # it was unpacked
            if count and last is not None and last not in held.places and not asked[last]:
                asked |= {(*last, i): False for i in range(int(count[1]))}
            more = [
                path
                for path, is_optional in asked.items()
                if path and all(known[: len(path)] != path for known in held.places)
                and not (is_optional and not roles_by_name(str(path[-1])))
            ]  # fmt: skip
            for path in more:
                held.places[path] = ""
                held.optional.update({path} if asked[path] else ())
                for end in range(len(path)):  # what has parts is no part
                    held.places.pop(path[:end], None)
                new = True
            if held.places and name not in self.stacked and NO_ARRAY.search(trouble):
                self.stacked.add(name)
                new = True
        if new:
            self.open()
        holder = owner_of(self.function)
        drawn = {
            f"{name}{path}".replace("['", ".").replace("']", ""): array
            for name, value in getattr(holder, "__dict__", {}).items()
            if isinstance(value, Drawn)
            for path, array in flatten(value)
        }
        if drawn.keys() - self.hidden.keys():
            self.hidden, new = {**self.hidden, **drawn}, True
        layer: Any = self.function
        if not self.hidden and is_keras(layer) and layer.weights:  # since a call
            rng = np.random.default_rng(0)
            of_norms = {id(w) for part in parts_in(layer) if is_norm(part) for w in part.weights}
            for weight in layer.weights:  # which are 0 where chance is switched off
                if id(weight) in of_norms:
                    continue
                weight.assign(0.3 * rng.normal(size=weight.shape))
            self.hidden, new = hidden_arrays(self.function), True
        if self.is_module and hidden_arrays(layer).keys() - self.hidden.keys():  # since a call
            _prepare(layer)
            self.exact, self.state = layer, State(layer)
            self.hidden, new = hidden_arrays(layer), True
        return new

    def open(self) -> None:
        """Put what arguments hold in their place."""
        self.arguments: list[Argument] = []
        for argument in self.whole:
            held = self.held.get(argument.name)
            is_asked = bool(self.asked.get(argument.name))
            if held and (is_asked or is_opened(argument, held, self.evidence[argument.name])):
                self.asked.setdefault(argument.name, {})
                self.arguments += open_argument(argument, held)
            elif not argument.star:
                self.arguments.append(argument)
        self.has_pages = any(roles_by_name(a.word)[:1] == ("pages",) for a in self.arguments)
        self.by_head = {a.name for a in self.arguments if EACH in a.path}
        words = {str(a.path[-1]) if a.path else a.name: a.name for a in self.arguments}
        declared = declared_shapes(self.said, self.tree, [*words])
        self.shapes = {words[word]: shapes for word, shapes in declared.items()}

    def in_whole(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the signature has them; `given` may have their parts."""
        found = {}
        for argument in self.whole:
            name = argument.name
            parts = [part for part in self.arguments if part.holder == name]
            values = {p.path: given[p.name] for p in parts if p.name in given}
            if name in given and not (type(given[name]) is dict and not given[name]):
                found[name] = given[name]
            elif name in given or values or (name in self.asked and argument.is_required):
                found[name] = self._hold(name, values)
        return found

    def _hold(self, name: str, values: Mapping[Path, Any]) -> Any:
        """Return what an argument is given that holds these values."""
        held = self.held[name]
        if not values and held.may_be_none:
            return None
        if not values and held.methods & {*OF_LISTS}:
            return []
        stack = import_module(STACKS.get(self.framework, self.framework)).stack
        note = Note(self._note, name)
        whole = hold(values, note, stack if name in self.stacked else tuple)
        known = fields_of(self.kinds.get(name))
        needed = {field for field, has_default in known.items() if not has_default}
        is_whole = isinstance(whole, dict) and known.keys() >= whole.keys() >= needed
        return self.kinds[name](**whole) if known and is_whole else whole

    def _placed(self, whole: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return what is passed by position and what by name."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        stars = [argument.name for argument in self.whole if argument.star == "*"]
        is_before = any(name in whole for name in stars)  # those before it have places, too
        for argument in self.whole:
            if argument.name not in whole:
                continue
            value = whole[argument.name]
            if argument.star:
                positional += value if argument.star == "*" else ()
                named |= value if argument.star == "**" else {}
                is_before = is_before and argument.star != "*"
            elif argument.is_positional or is_before:
                positional.append(value)
            else:
                named[argument.name] = value
        return positional, named

    def _note(self, name: str, path: Path, is_optional: bool) -> None:
        asked = self.asked.setdefault(name, {})
        if len(asked) < MOST_KEYS:
            asked.setdefault(path, is_optional)

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
        passed = {name: self._passed(narrow(value, self.dtype)) for name, value in given.items()}
        positional, named = self._placed(self.in_whole(passed))
        if self.state:
            self.state.put_back()
        try:
            with undisturbed(), self.chance.control():
                compiler = "" if self.is_watched else self.framework
                run = partial(call_in, compiler, self.function)
                result = self._feed(positional, named) if self.feeding else run(positional, named)
            if filled:
                result = (passed[filled], result)
            return Called([*flatten(result)], result=result)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # anybody's
            return Called([], trouble_of(error))

    def _feed(self, positional: list[Any], named: dict[str, Any]) -> Any:
        """Call it with one token after the other; return the outputs as one array."""
        every = [*positional, *named.values()]
        count = max(x.shape[-2] for x in every if getattr(x, "ndim", 0) > 1)

        def token(x: Any, t: int) -> Any:
            if getattr(x, "ndim", 0) < 2:
                return x
            return x[..., t : t + 1, :] if self.feeding == "1 d" else x[..., t, :]

        outputs = []
        for t in range(count):
            own = {name: token(x, t) for name, x in named.items()}
            output = self.function(*(token(x, t) for x in positional), **own)
            output = output[0] if isinstance(output, tuple) else output
            outputs.append(output[..., 0, :] if self.feeding == "1 d" else output)
        return import_module(STACKS.get(self.framework, self.framework)).stack(outputs, -2)

    def changed(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """Call the function; return the arguments that it changed, as they are afterwards."""
        if self.framework == "jax":  # its arrays never change
            return {}
        passed = {name: self._passed(narrow(value, self.dtype)) for name, value in given.items()}
        whole = self.in_whole(passed)
        positional, named = self._placed(whole)
        with contextlib.suppress(Exception, SystemExit), undisturbed(), self.chance.control():
            self.function(*positional, **named)
        arrays = {name: x for name, x in given.items() if isinstance(x, np.ndarray)}
        for part in (part for part in self.arguments if part.path and part.name in arrays):
            with contextlib.suppress(Exception):  # a dict may have got another array
                now = reduce(getitem, part.path, whole[part.holder])
                passed[part.name] = now if hasattr(now, "shape") else passed[part.name]
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


def _literals(tree: ast.AST) -> list[Any]:
    """Return the constants of a source, without those that say which axis of a shape is meant."""
    parts = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    shapes = [node for node in parts if getattr(node.value, "attr", "") == "shape"]
    axes = {id(part) for node in shapes for part in ast.walk(node.slice)}  # as in x.shape[-2]
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [node.value for node in nodes if id(node) not in axes]


def trouble_of(error: BaseException) -> str:
    """Return an error in a line, also if its text cannot be had."""
    with contextlib.suppress(Exception):
        text = one_line(error)
        if not text and error.__traceback__:
            line = extract_tb(error.__traceback__)[-1]
            text = f"line {line.lineno}, {line.line}"
        return ": ".join(filter(None, (type(error).__name__, text)))
    return type(error).__name__


def _copy_module(module: Any) -> Any:
    """Return a copy of a PyTorch module, also if it keeps results of a call, which have no copy."""
    kept = [x for part in module.modules() for x in (*vars(part).values(), *part.buffers(False))]
    return deepcopy(module, {id(t): t.detach() for t in kept if getattr(t, "grad_fn", None)})


def _prepare(module: Any) -> None:
    """Draw the params of a PyTorch module that are 0, as biases are in the beginning."""
    rng = np.random.default_rng(0)
    for part in module.modules():
        if is_norm(part) and getattr(part, "eps", None):
            part.eps = 1e-12  # the family divides by what is there
        for param in part.parameters(recurse=False):
            if not (is_lazy(param) or param.any() or is_norm(part)):
                param.data += to_framework(rng.normal(size=param.shape), "torch").to(param.dtype)


def in_arrays(value: Any, change: Callable[[Array], Any]) -> Any:
    """Return an array, or a dict or list of arrays, with each of them changed."""
    if isinstance(value, dict) and value:  # an empty one is to be filled
        return {name: in_arrays(each, change) for name, each in value.items()}
    if isinstance(value, list) and value:
        return [in_arrays(each, change) for each in value]
    return change(value) if isinstance(value, np.ndarray) else value


def _cast(module: Any, how: str) -> Any:
    """Return a module whose floats have another dtype, those of plain attributes, too."""
    for part in module.modules():
        for name, value in [*vars(part).items()]:
            if getattr(value, "is_floating_point", bool)():  # a tensor
                setattr(part, name, getattr(value, how)())
    return getattr(module, how)()  # which leaves complex numbers alone


def narrow(value: Any, dtype: str) -> Any:
    """Return arrays of floats in another dtype."""
    return in_arrays(value, lambda a: a.astype(NARROW.get((a.dtype.name, dtype), a.dtype)))
