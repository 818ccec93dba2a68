"""Randomness under control: calls that drop nothing, and calls where one draw is random."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.frameworks import to_numpy
from mha_numpy.identifying.calling.arrays import FRAMEWORKS, holders, inner_function, owner_of
from mha_numpy.identifying.calling.names import roles_by_name

Site = tuple[tuple[str, int], ...]  # the files and lines that lead to a draw, the last first
CALM = 0.5  # every uniform number: what u >= p or u < 1 - p keeps is kept, for rates p below 0.5
DRAWS = {  # by module: what draws, how, and where the probability is among the arguments
    "random": {"random": ("uniform", 0), "uniform": ("uniform", 0)},
    "numpy.random": {
        "rand": ("uniform", 0), "random": ("uniform", 0), "random_sample": ("uniform", 0),
        "uniform": ("uniform", 0), "binomial": ("bernoulli", 1),
    },
    "torch": {
        "rand": ("uniform", 0), "rand_like": ("uniform", 0), "bernoulli": ("bernoulli", 1),
        "dropout": ("dropout", 1), "Tensor.uniform_": ("uniform", 0),
        "Tensor.bernoulli_": ("bernoulli", 1), "Tensor.bernoulli": ("bernoulli", 1),
    },
    "torch.nn.functional": {"dropout": ("dropout", 1), "scaled_dot_product_attention": ("sdpa", 4)},
    "jax.random": {"uniform": ("uniform", 0), "bernoulli": ("bernoulli", 1)},
    "keras.src.backend.torch.random": {"dropout": ("dropout", 1)},
    "keras.src.backend.jax.random": {"dropout": ("dropout", 1)},
    "keras.src.backend.tensorflow.random": {"dropout": ("dropout", 1)},
}  # fmt: skip

_default_rng = np.random.default_rng


def is_kept(name: str) -> bool:
    """Return whether a name is that of the share that is kept."""
    own = name.rpartition(".")[2].lower()
    return "keep" in own or "retain" in own


class Draw(NamedTuple):
    """What random numbers were asked for."""

    kind: str  # "uniform", "bernoulli", "dropout" or "sdpa"
    p: float | None  # of a 1, or the rate of a dropout


class Replacement(NamedTuple):
    """An attribute that is replaced during a call."""

    holder: Any
    name: str
    original: Any
    new: Any
    is_inherited: bool = False


class Chance:
    """The sources of randomness of a function, replaced during each call of it.

    Examples
    --------
    >>> chance = Chance(lambda: np.random.default_rng(0).random(3))
    >>> with chance.control():
    ...     chance.function()
    array([0.5, 0.5, 0.5])
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.rate = 0.0  # of what the function has itself
        self.live: Site | bool = False  # the place that stays random, or all, or none
        self.draws: dict[Site, Draw] = {}  # of the last call
        self.place: tuple[str, int] = ("", 0)  # the file and line of the last draw
        self.kept = 1.0  # what kept weights are multiplied by, if nothing can be dropped at 0
        self._is_inside = self._is_traced = False
        self._loaded: list[str] = []
        self._generators = self._controlled(np.random.Generator)
        self._states = self._controlled(np.random.RandomState)
        inner = inner_function(function)
        self._home = getattr(inner, "__globals__", {})
        self._used = getattr(getattr(inner, "__code__", None), "co_names", ())
        held = [("", self._home), *holders(owner_of(function))]
        self._holders = [own for _, own in held]
        self.rates = [  # the names of what is set to `rate`, with the way to them
            path.replace("_modules.", "") + name
            for path, own in held
            for name, value in own.items()
            if self._is_rate(own, name, value)
        ]

    @contextlib.contextmanager
    def control(self) -> Iterator[None]:
        """Replace all sources of randomness, and set the rates that a function has itself."""
        self.draws, self._is_traced = {}, False
        loaded = [module for module in DRAWS if sys.modules.get(module)]
        if loaded != self._loaded:
            self._loaded, self._replaced = loaded, [*self._replacements(loaded)]
            new = {id(each.original): each.new for each in self._replaced}
            self._own = [
                (holder, name, new.get(id(value)))
                for holder in self._holders
                for name, value in holder.items()
                if id(value) in new or self._put(holder, name, value) is not None
            ]
        own = [(h, name, h[name], by) for h, name, by in self._own if name in h]
        try:
            for each in self._replaced:
                setattr(each.holder, each.name, each.new)
            for holder, name, value, by in own:
                holder[name] = by or self._put(holder, name, value)
            yield
        finally:
            for holder, name, value, _ in own:
                holder[name] = value
            for each in self._replaced:
                if each.is_inherited:
                    delattr(each.holder, each.name)
                else:
                    setattr(each.holder, each.name, each.original)
            if self._is_traced:
                self.forget()

    def forget(self) -> None:
        """Take away what a function compiled with draws that are not its own."""
        getattr(self.function, "clear_cache", sys.modules["jax"].clear_caches)()

    def source(self, framework: str) -> Any:
        """Return something to draw from, to pass as an argument."""
        if framework == "torch":
            return import_module("torch").Generator()
        if framework == "jax":
            return import_module("jax").random.PRNGKey(0)
        return self._generator(0)

    def scaled(self, constants: Sequence[float]) -> list[float]:
        """Return by what the last call may have multiplied everything, as nothing was dropped."""
        drawn = [draw for draw in self.draws.values() if draw.kind in ("uniform", "bernoulli")]
        known = [draw.p for draw in drawn if draw.p] or constants if drawn else ()
        return [*dict.fromkeys(1 / n for p in known if 0 < p < 1 for n in (p, 1 - p))]

    def _is_rate(self, holder: dict[str, Any], name: str, value: Any) -> bool:
        is_ours = holder is not self._home or name in self._used
        is_share = type(value) is float and 0 <= value <= 1
        return is_ours and is_share and roles_by_name(name)[:1] == ("rate",)

    def _put(self, holder: dict[str, Any], name: str, value: Any) -> Any:
        """Return what to put in place of something that the function has itself."""
        if isinstance(value, np.random.Generator):
            return self._generators(value.bit_generator)
        if isinstance(value, np.random.RandomState):
            return self._states(value._bit_generator)
        if not self._is_rate(holder, name, value):
            return None
        return 1 - self.rate if is_kept(name) else self.rate

    def _replacements(self, modules: Sequence[str]) -> Iterator[Replacement]:
        """Yield what to put in place of all that draws in some modules."""
        for module in modules:
            for path, (kind, at) in DRAWS[module].items():
                inside, _, name = path.rpartition(".")
                holder = getattr(sys.modules[module], inside) if inside else sys.modules[module]
                original = getattr(holder, name)
                new = self._drawing(original, kind, at, module)
                yield Replacement(holder, name, original, new, name not in vars(holder))
        for name, made in (("default_rng", self._generator), ("RandomState", self._states)):
            yield Replacement(np.random, name, getattr(np.random, name), made)

    def _generator(self, seed: Any = None) -> Any:
        return self._generators(_default_rng(seed).bit_generator)

    def _controlled(self, kind: type) -> type:
        """Return a class of sources of randomness whose draws are under control."""
        methods = {
            name: self._drawing(getattr(kind, name), how, at + 1)
            for name, (how, at) in DRAWS["numpy.random"].items()
            if hasattr(kind, name)
        }
        return type(kind.__name__, (kind,), methods)

    def _drawing(
        self, original: Callable[..., Any], kind: str, at: int, home: str = ""
    ) -> Callable[..., Any]:
        """Return what to put in place of a function that draws."""

        def draw(*args: Any, **kwargs: Any) -> Any:
            if self._is_inside:  # of a function that draws by another
                return original(*args, **kwargs)
            named = [kwargs[name] for name in ("p", "rate", "dropout_p") if name in kwargs]
            p = next(iter([*named, *args[at:]]), args[0] if kind == "bernoulli" else None)
            site = _site()
            if kind != "sdpa" or p:
                self.place = next(iter(site), self.place)
                self.draws[site] = Draw(kind, None if kind == "uniform" else _number(p))
            is_live = self.live is True or self.live == site
            if kind == "dropout" and not is_live:
                return args[0] if args else kwargs["input"]
            if kind == "sdpa" and p and not is_live:
                args = (*args[:at], 0.0, *args[at + 1 :]) if len(args) > at else args
                kwargs = {name: 0.0 if name == "dropout_p" else x for name, x in kwargs.items()}
            if any(type(arg).__name__.endswith("Tracer") for arg in args):
                self._is_traced = True
            self._is_inside = True
            try:
                if is_live or kind in ("dropout", "sdpa"):
                    return original(*args, **kwargs)
                value = CALM if kind == "uniform" else _likelier(p)
                if home == "jax.random":  # it would compile for seconds
                    return _full_in_jax(partial(original, *args, **kwargs), value)
                return _full(original(*args, **kwargs), value)
            finally:
                self._is_inside = False

        return draw


def _number(p: Any) -> float | None:
    with contextlib.suppress(Exception):  # it may be traced
        return float(np.mean(to_numpy(p)))
    return None


def _likelier(p: Any) -> Any:
    """Return the likelier of 0 and 1."""
    number = _number(p)
    return p > CALM if number is None else float(number > CALM)


def _full(result: Any, value: float) -> Any:
    """Return an array like this one, of equal numbers."""
    if hasattr(result, "fill_"):  # torch, which may have been asked to fill it in place
        return result.fill_(value)
    filled = result * 0 + value
    return filled.astype(result.dtype) if hasattr(result, "astype") else filled


def _full_in_jax(draw: Callable[[], Any], value: Any) -> Any:
    jax = sys.modules["jax"]
    like = jax.eval_shape(draw)
    return jax.numpy.full(like.shape, value, like.dtype)


def _site() -> Site:
    """Return the lines that lead to a draw, outside of the frameworks."""
    lines: list[tuple[str, int]] = []
    frame: FrameType | None = sys._getframe(2)
    while frame and frame.f_code.co_name != "call_way":
        name = frame.f_code.co_filename
        home = frame.f_globals.get("__name__", "").split(".")[0]
        if home not in FRAMEWORKS and name != __file__:
            lines.append((name, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)
