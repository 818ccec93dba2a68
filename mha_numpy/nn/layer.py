"""Layer: params, their gradients, and child layers."""

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from mha_numpy.dtypes import Array, float_dtype
from mha_numpy.errors import ConfigError, MhaError, describe
from mha_numpy.nn.calls import LayerType, find_misfit
from mha_numpy.nn.foreign import missing_attribute
from mha_numpy.nn.params_file import PathLike, load_params, save_params
from mha_numpy.nn.places import placed


@contextmanager
def in_eval_mode(layer: "Layer") -> Iterator[None]:
    """Switch dropout off inside the block; then each layer is in the mode that it was in."""
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


def _place_and_text(child: tuple[str, "Layer"]) -> tuple[str, str]:
    """Return the name of the list that holds a child, or its own; and the child's text."""
    return child[0].partition(".")[0], repr(child[1])


class Layer(metaclass=LayerType):
    """Base of all layers.

    A subclass fills `params` in its constructor, and in `forward` keeps what its `backward`
    needs. `backward` adds to `grads` and returns the gradients of the inputs: nothing is learned
    there. An attribute that is a Layer, or a list of them, is a child.

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

    backend = "numpy"  # what computes; a layer that has the choice sets its own
    passes: tuple[str, ...] = (
        "forward",
        "backward",
    )  # the methods that record under the layer's name in a model
    at_its_place = ""  # the child that records under this layer's name, too
    runs = 0  # of forward, without those that a backward followed, while a recorder is active

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in cls.passes:
            if name in vars(cls):
                setattr(cls, name, placed(vars(cls)[name]))

    def __init__(self) -> None:
        self.params: dict[str, Array] = {}
        self.grads: dict[str, Array] = {}
        self.training = True
        self._cache: Any = None  # what the last forward left for backward

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute the output and keep what `backward` needs."""
        raise NotImplementedError

    def backward(self, d_out: Array) -> Any:
        """Add to `grads` and return the gradients of the inputs."""
        raise NotImplementedError

    @property
    def forward_cache(self) -> Any:
        """What the last forward left for backward.

        Raises
        ------
        MhaError
            There was no forward that can be followed by backward.
        """
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
            """Raise the error of an attribute that is not there."""
            if hasattr(type(self), name):  # a property that failed, which says why
                return object.__getattribute__(self, name)
            raise missing_attribute(self, name)

    def __repr__(self) -> str:
        """Show what the layer was made with, its number of parameters, and a line for each part."""
        count = self.num_parameters
        shown = [*self._shown_options(), *([f"{count:,} parameters"] if count else [])]
        lines = [f"{type(self).__name__}({', '.join(shown)})"]
        for (_, part), alike in groupby(self.children().items(), _place_and_text):
            first, *others = (name for name, _ in alike)
            lines.append(f"{first}{f' ... {others[-1]}' if others else ''}: {part}")
        return "\n".join(lines).replace("\n", "\n  ")

    def _shown_options(self) -> list[str]:
        """Return "name=value" for each argument of the constructor that is not the default."""
        parameters = inspect.signature(type(self)).parameters
        defaults = {name: parameter.default for name, parameter in parameters.items()}
        given, options = vars(self).get("_made_with", ((), {}))
        made_with = defaults | dict(zip(defaults, given, strict=False)) | options
        now = {name: vars(self).get(name, value) for name, value in made_with.items()}
        return [
            f"{name}={describe(value) if isinstance(value, np.ndarray) else repr(value)}"
            for name, value in now.items()
            if name != "rng" and not isinstance(value, Layer)
            if repr(value) != repr(defaults.get(name))
        ]

    def children(self) -> dict[str, "Layer"]:
        """Return the child layers by the name of their attribute; "blocks.0" in a list."""
        found: dict[str, Layer] = {}
        for name, value in vars(self).items():
            if isinstance(value, Layer):
                found[name] = value
            elif isinstance(value, (list, tuple)):
                parts = enumerate(value)
                found |= {f"{name}.{i}": part for i, part in parts if isinstance(part, Layer)}
        return found

    def named_layers(self) -> Iterator[tuple[str, "Layer"]]:
        """Yield (dotted name, layer) for this layer, whose name is "", and for all below it."""
        yield "", self
        seen = {id(self)}
        for name, child in self.children().items():
            for inner, layer in child.named_layers():
                if id(layer) not in seen:  # a layer that two share has the name of its first place
                    seen.add(id(layer))
                    yield f"{name}.{inner}" if inner else name, layer

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
        """Yield (dotted name, gradient) in the order of `named_params`; zeros where none came."""
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
        """Convert all params to a float dtype, here and below; forget gradients and caches.

        Raises
        ------
        DTypeError
            `dtype` is not a float dtype.
        """
        dtype = float_dtype(dtype)
        for layer in self.layers():
            layer.params = {name: array.astype(dtype) for name, array in layer.params.items()}
        return self.forget()

    def save(self, path: PathLike, *, dtype: npt.DTypeLike | None = None) -> None:
        """Write all params to a .npz file, here and below, by their dotted names.

        Parameters
        ----------
        path : str or path
            A file that is there already is replaced once the new one is whole.
        dtype : float dtype, optional
            To write the params in, compressed: float16 makes a small file and rounds each param to
            three digits. Default: as they are.

        Raises
        ------
        FileError
            The file cannot be written; what was there before stays.
        DTypeError, ConfigError
            `dtype` is not a float dtype, or a param is too large for it.
        """
        save_params(path, self.named_params(), dtype)

    def load(self, path: PathLike) -> Self:
        """Read all params from a file that `save` wrote, into this layer's dtypes.

        Of a checkpoint of `fit` only the params are read. Gradients and caches are forgotten.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        the layer itself

        Raises
        ------
        FileError
            There is no such file, it is damaged or foreign, or its names or shapes are not this
            layer's; the layer stays as it was.

        Examples
        --------
        >>> import tempfile
        >>> from mha_numpy.nn import Linear
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
            layer._cache = None
        self.zero_grads()
        return self

    def accumulate(self, name: str, gradient: Array | None) -> None:
        """Add to the gradient of one param; None adds nothing."""
        if gradient is None:
            return
        if name not in self.params:
            raise ConfigError(f"{name}: expected one of {list(self.params)}")
        self.grads[name] = self.grads[name] + gradient if name in self.grads else gradient
