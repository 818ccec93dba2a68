"""Layer: params, their gradients, and child layers."""

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from mha_numpy.calls import Explained, find_misfit
from mha_numpy.dtypes import Array, float_dtype
from mha_numpy.errors import ConfigError, MhaError, describe
from mha_numpy.foreign import missing_attribute
from mha_numpy.layers.params_file import PathLike, load_params, save_params
from mha_numpy.layers.tracked import tracked


@contextmanager
def in_eval_mode(layer: "Layer") -> Iterator[None]:
    """Switch dropout off inside the block; afterwards each layer is in its old mode."""
    modes = [(part, part.training) for part in layer.layers()]
    layer.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


class NoDraws(np.random.Generator):
    """A generator of zeros that take no memory: for a layer that will read params from a file.

    Sizes far beyond the file's raise a ConfigError before any time or memory goes into them.

    Parameters
    ----------
    arrays, numbers : int
        How many arrays there are in the file, and how many numbers in all of them.
    """

    def __init__(self, arrays: int, numbers: int) -> None:
        super().__init__(np.random.PCG64())
        self.held, self.drawn = (arrays, numbers), (0, 0)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Return zeros: a read-only view of a single one."""
        self.drawn = self.drawn[0] + 1, self.drawn[1] + math.prod(size)
        if any(drawn > 2 * held for drawn, held in zip(self.drawn, self.held, strict=True)):
            arrays, numbers = self.held
            raise ConfigError(
                f"sizes: expected those of the file's {arrays} arrays with {numbers} numbers in "
                f"all; got more than twice as many, the last of shape {size}"
            )
        return np.broadcast_to(0.0, size)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Return zeros: a read-only view of a single one."""
        return self.uniform(size=size)


def make_rng(rng: int | np.random.Generator | None) -> np.random.Generator:
    """Return a random generator: the same for the same seed, a fresh one for None."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as reason:
        raise ConfigError(
            f"rng: expected an integer >= 0, a numpy Generator or None; got {describe(rng)}"
        ) from reason


def check_layer(name: str, value: Any) -> None:
    """Raise a ConfigError unless `value` is a Layer."""
    if not isinstance(value, Layer):
        raise ConfigError(
            f"{name}: expected a Layer, such as a model or Linear(3, 4); got {describe(value)}"
        )


def _layers_in(
    name: str, value: Any, around: tuple[int, ...] = ()
) -> Iterator[tuple[str, "Layer"]]:
    """Yield (dotted name, layer) for a layer, or for those in a list, tuple or dict."""
    if isinstance(value, Layer):
        yield name, value
    elif isinstance(value, (list, tuple, dict)) and id(value) not in around:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(part, (Layer, list, tuple, dict)):
                yield from _layers_in(f"{name}.{key}", part, (*around, id(value)))


def _in_short(value: Any) -> str:
    """Return a value's text in one line of up to 70 characters; of an array shape and dtype."""
    text = describe(value) if isinstance(value, np.ndarray) else " ".join(repr(value).split())
    return text if len(text) <= 70 else f"{text[:67]}..."


class LayerType(Explained):
    """The type of all classes of layers: a layer keeps its arguments for its `repr`."""

    def __call__(cls, *given: Any, **options: Any) -> Any:  # noqa: N805
        """Make a layer."""
        layer = super().__call__(*given, **options)
        layer._made_with = given, options
        return layer


class Layer(metaclass=LayerType):
    """Base of all layers.

    A subclass fills `params` in its constructor, and in `forward` keeps what its `backward`
    needs. `backward` adds to `grads` and returns the gradients of the inputs, but learns nothing.
    An attribute that is a Layer is a child, and so is each Layer in lists and dicts.

    Examples
    --------
    >>> class Scale(Layer):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.params["factor"] = np.array(2.0)
    >>> layer = Scale()
    >>> [name for name, _ in layer.named_params()], layer.num_parameters
    (['factor'], 1)
    """

    backend: str | None = None  # what computes here and below; None: as around it
    computed_by = "numpy"  # the last forward
    # the methods that record under the layer's name in a model
    passes: tuple[str, ...] = ("forward", "backward")
    at_its_place = ""  # the child that records under this layer's name, too
    is_alike_in_each_use = False  # so that backward may use the cache of any forward
    runs = 0  # of forward, without those that a backward followed, while a recorder is active

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in cls.passes:
            if name in vars(cls):
                setattr(cls, name, tracked(vars(cls)[name]))

    def __init__(self) -> None:
        self.params: dict[str, Array] = {}
        self.grads: dict[str, Array] = {}
        self.training = True
        self.uses: dict[bool, int] = {}  # forwards in a row, by mode
        self._cache: Any = None  # what the last forward left for backward

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute the output and keep what `backward` needs."""
        raise MhaError(f"forward: a {type(self).__name__} has none; write def forward(self, x)")

    def backward(self, d_out: Array) -> Any:
        """Add to `grads` and return the gradients of the inputs."""
        raise MhaError(
            f"backward: a {type(self).__name__} has none; write def backward(self, d_out)"
        )

    @property
    def forward_cache(self) -> Any:
        """The cache of the last forward, for backward."""
        if self._cache is None:
            raise MhaError("backward: expected a forward before it, without kv_cache")
        return self._cache

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Run `forward`."""
        try:
            return self.forward(*inputs, **options)
        except TypeError:
            if misfit := find_misfit("layer", self.forward, inputs, options):
                raise misfit from None
            raise

    if not TYPE_CHECKING:  # or a type checker would believe that layers have every attribute

        def __getattr__(self, name: str) -> Any:
            """Raise the error of a missing attribute."""
            if hasattr(type(self), name):  # a property that failed, which says why
                return object.__getattribute__(self, name)
            raise missing_attribute(self, name)

        def __setattr__(self, name: str, value: Any) -> None:
            """Set an attribute, unless it would hide a layer's own attribute, or have no effect."""
            if (
                name in HELD_BY_PARTS
                and name not in vars(self)
                and "_made_with" in vars(self)  # its constructor may set what it likes
                and any(name in vars(part) for part in self.layers())
            ):
                raise ConfigError(
                    f"{name}: expected to be set on the parts of a {type(self).__name__} that have "
                    f"it, because it has none itself; write part.{name} = ... for each such part "
                    "in layer.layers()"
                )
            if name in RESERVED:
                kind = "()" * callable(getattr(Layer, name))
                own = "blocks" if name in ("layers", "children") else f"{name}_"
                raise ConfigError(
                    f"{name}: expected a different name for an attribute; {name}{kind} is a "
                    f"{'method' if kind else 'property'} of every layer; write self.{own}"
                )
            if name in ("params", "grads") and not isinstance(value, dict):
                raise ConfigError(
                    f"{name}: expected a dict from names to arrays; got {describe(value)}; "
                    f"write self.{name}['w'] = array"
                )
            object.__setattr__(self, name, value)

    @recursive_repr("...")
    def __repr__(self) -> str:
        """Show the layer's arguments, its number of parameters, and a line for each part."""
        count = self.num_parameters
        shown = [*self.shown_options(), *([f"{count:,} parameters"] if count else [])]
        lines = [f"{type(self).__name__}({', '.join(shown)})"]
        parts = [(name, repr(part)) for name, part in self.children().items()]
        # those of one list that look alike share a line
        for (_, part), alike in groupby(parts, lambda each: (each[0].partition(".")[0], each[1])):
            first, *others = (name for name, _ in alike)
            lines.append(f"{first}{f' ... {others[-1]}' if others else ''}: {part}")
        return "\n".join(lines).replace("\n", "\n  ")

    def shown_options(self) -> list[str]:
        """Return "name=value" for each argument of the constructor that is not the default."""
        signature = inspect.signature(type(self))
        given, options = vars(self).get("_made_with", ((), {}))
        made_with: dict[str, Any] = {}
        for name, value in signature.bind_partial(*given, **options).arguments.items():
            is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            made_with |= value if is_rest else {name: value}
        defaults = {name: parameter.default for name, parameter in signature.parameters.items()}
        now = {
            name: vars(self).get(name, value) for name, value in {**defaults, **made_with}.items()
        }
        return [
            f"{name}={_in_short(value)}"
            for name, value in now.items()
            if name != "rng" and value is not inspect.Parameter.empty
            if not any(_layers_in(name, value))
            if repr(value) != repr(defaults.get(name))
        ]

    def children(self) -> dict[str, "Layer"]:
        """Return the child layers by name: "norm", "blocks.0" in a list, "parts.a" in a dict."""
        found: dict[str, Layer] = {}
        for name, value in vars(self).items():
            if name not in OWN:
                found |= _layers_in(name, value)
        return found

    def named_layers(self) -> Iterator[tuple[str, "Layer"]]:
        """Yield (dotted name, layer) for this layer, whose name is "", and for all below it.

        A layer that two share has the name of its first place.
        """
        seen: set[int] = set()
        left: list[tuple[str, Layer]] = [("", self)]
        while left:
            name, layer = left.pop()
            if id(layer) not in seen:
                seen.add(id(layer))
                yield name, layer
                below = [
                    (f"{name}.{part}" if name else part, child)
                    for part, child in layer.children().items()
                ]
                left += reversed(below)

    def layers(self) -> Iterator["Layer"]:
        """Yield this layer and all below it."""
        for _, layer in self.named_layers():
            yield layer

    def named_params(self) -> Iterator[tuple[str, Array]]:
        """Yield (dotted name, array) for the params of this layer and of all below it."""
        for place, layer in self.named_layers():
            for name, array in layer.params.items():
                yield f"{place}.{name}" if place else name, array

    def named_grads(self) -> Iterator[tuple[str, Array]]:
        """Yield (dotted name, gradient) in the order of `named_params`; zeros if none came."""
        for place, layer in self.named_layers():
            for name, array in layer.params.items():
                gradient = layer.grads[name] if name in layer.grads else np.zeros_like(array)
                yield f"{place}.{name}" if place else name, gradient

    @property
    def num_parameters(self) -> int:
        """Number of learned numbers in this layer and all below it."""
        return sum(array.size for _, array in self.named_params())

    def zero_grads(self) -> None:
        """Forget all gradients, here and below."""
        for layer in self.layers():
            layer.grads.clear()

    def train(self, mode: bool = True) -> Self:
        """Switch dropout on (or off), here and below."""
        for layer in self.layers():
            layer.training = mode
        return self

    def eval(self) -> Self:
        """Switch dropout off, here and below."""
        return self.train(False)

    def astype(self, dtype: npt.DTypeLike) -> Self:
        """Convert all params to a float dtype, here and below; forget gradients and caches."""
        dtype = float_dtype(dtype)
        for layer in self.layers():
            layer.params = {name: array.astype(dtype) for name, array in layer.params.items()}
        return self.forget()

    def save(self, path: PathLike, *, dtype: npt.DTypeLike | None = None) -> None:
        """Write all params to a .npz file, here and below, by their dotted names.

        Parameters
        ----------
        path : str or path
            An existing file is replaced once the new one is whole.
        dtype : float dtype, optional
            To write the params in, compressed: float16 makes a small file and rounds each param to
            three digits. Default: as they are.

        Raises
        ------
        FileError
            If the file cannot be written; a file that was there before stays.
        """
        save_params(path, self.named_params(), dtype)

    def load(self, path: PathLike) -> Self:
        """Read all params from a file that `save` wrote, into this layer's dtypes.

        From a checkpoint of `fit`, only the params are read. Gradients and caches are forgotten.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        the layer itself

        Raises
        ------
        FileError
            If there is no such file, it is damaged or foreign, or its names or shapes are not this
            layer's; the layer stays as it was.

        Examples
        --------
        >>> import tempfile
        >>> from mha_numpy.layers import Linear
        >>> layer = Linear(3, 4, rng=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     layer.save(f"{folder}/params.npz")
        ...     other = Linear(3, 4, rng=2).load(f"{folder}/params.npz")
        >>> bool((other.params["w"] == layer.params["w"]).all())
        True
        """
        load_params(path, self.named_params())
        return self.forget()

    def forget(self) -> Self:
        """Forget gradients and caches, which belong to other params."""
        for layer in self.layers():
            layer._cache, layer.uses = None, {}
        self.zero_grads()
        return self

    def accumulate(self, name: str, gradient: Array | None, *, copy: bool = True) -> None:
        """Add to the gradient of one param; None adds nothing.

        Parameters
        ----------
        name : str
            The param's.
        gradient : array or None
            Of its shape.
        copy : bool
            False keeps the first gradient itself, and not a copy: for an array that your code
            does not change later.
        """
        if gradient is None:
            return
        if name not in self.params:
            raise ConfigError(f"{name}: expected one of {list(self.params)}")
        stored = self.grads.get(name)
        if stored is None:
            self.grads[name] = np.array(gradient) if copy else gradient
        else:
            self.grads[name] = stored + gradient


RESERVED = {  # names that an attribute of a layer cannot have; a layer may get another forward
    name
    for name, value in vars(Layer).items()
    if name[0] != "_" and (callable(value) or isinstance(value, property))
} - {"forward", "backward"}
HELD_BY_PARTS = ("dropout_p", "head_gate")  # read by Dropout and attention, not by those around
OWN = {*vars(Layer()), "_made_with"}  # attributes of every layer: no children are there
