"""Calls that do not fit a signature: Python's TypeError in words that say what to write."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from mha_numpy.errors import ConfigError
from mha_numpy.foreign import UnknownArgumentError, our_name

P = ParamSpec("P")
R = TypeVar("R")


def explained(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that explains arguments which do not fit it."""

    @functools.wraps(function)
    def call(*given: P.args, **options: P.kwargs) -> R:
        try:
            return function(*given, **options)
        except TypeError:
            if misfit := find_misfit(function.__name__, function, given, options):
                raise misfit from None
            raise

    return call


class Explained(type):
    """The type of classes that explain arguments which do not fit their constructor.

    Signatures are read only after an error, so a call that fits costs no time.
    """

    def __call__(cls, *given: Any, **options: Any) -> Any:
        """Make an object."""
        try:
            return super().__call__(*given, **options)
        except UnknownArgumentError as error:  # of a part to which options are passed on
            name, known = error.args
            if name in options:
                error.args = name, (*_names_of(cls), *known)
            raise
        except TypeError:
            if misfit := find_misfit(cls.__name__, cls, given, options):
                raise misfit from None
            raise

    @property
    def __signature__(cls) -> inspect.Signature:
        """The constructor's signature, for `help` and `inspect`."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=[*signature.parameters.values()][1:])


def _names_of(cls: type) -> list[str]:
    """Return the names of all arguments of a class and of the classes that it is derived from."""
    inits = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)]
    parameters = [p for init in inits for p in inspect.signature(init).parameters.values()]
    return [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name != "self"]


def find_misfit(
    called: str, function: Callable[..., Any], given: tuple[Any, ...], options: Mapping[str, Any]
) -> ConfigError | None:
    """Return the error of a call that does not fit a function's signature; None if it fits.

    Parameters
    ----------
    called : str
        What the user called.
    function : callable
        The function with the signature.
    given, options
        The positional arguments, and the named ones.
    """
    parameters = inspect.signature(function).parameters.values()
    kinds = {p.kind for p in parameters}
    places = [p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    needed = [p.name for p in parameters if p.default is p.empty and p.name in (*places, *named)]
    for name in options:
        if name not in (*places, *named) and inspect.Parameter.VAR_KEYWORD not in kinds:
            return UnknownArgumentError(name, (*places, *named))
        if name in places[: len(given)]:
            return ConfigError(f"{name}: expected one value; got two, one of them without a name")
    if len(given) > len(places) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        plural = "s" * (len(places) != 1)
        rest = f"; write {', '.join(f'{name}=' for name in named)}" if named else ""
        return ConfigError(
            f"{called}: expected at most {len(places)} argument{plural} without a name "
            f"({', '.join(places)}); got {len(given)}{rest}"
        )
    for name in needed:
        if name not in (*places[: len(given)], *options):
            for theirs in options:
                if our_name(theirs, [name]):
                    return UnknownArgumentError(theirs, needed)
            call = ", ".join(name if name in places else f"{name}=..." for name in needed)
            return ConfigError(f"{name}: expected a value; got none; write {called}({call})")
    return None
