"""What a function that is tested calls its arguments, and what it means by them."""

import inspect
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from mha_numpy.checks import check_choice, read_text
from mha_numpy.conformance.case import INPUTS, TOLERANCES
from mha_numpy.conformance.cases import cases
from mha_numpy.conformance.words import USUAL, WORDS
from mha_numpy.errors import ConfigError, describe, did_you_mean

FRAMEWORKS = ("numpy", "torch", "jax")
RESULTS = ("out", "weights", "lse", "cache")
GRADIENTS = tuple(f"d_{name}" for name in INPUTS)
OTHER = tuple(name for name, words in WORDS.items() if len(words) > 1)  # may be declared


class Conventions(NamedTuple):
    """The entries of a TOML file; `words` are those of WORDS that it declares."""

    words: dict[str, str] = {}  # noqa: RUF012
    arguments: dict[str, str] = {}  # our name: theirs  # noqa: RUF012
    constants: dict[str, Any] = {}  # passed at every call  # noqa: RUF012
    exclusive: tuple[tuple[str, ...], ...] = ()  # arguments that cannot be passed together
    returns: tuple[str, ...] = ("out",)
    gradients: tuple[str, ...] = GRADIENTS[:3]
    backward: str | None = None
    framework: str = "numpy"
    dtype: str = "float64"

    def word(self, name: str) -> str:
        """Return the function's word for a convention."""
        return self.dtype if name == "dtype" else self.words.get(name, USUAL[name])

    def declare(self, words: Mapping[str, str]) -> "Conventions":
        """Return conventions with other words; dtype is one of them."""
        rest = {name: word for name, word in words.items() if name != "dtype"}
        return self._replace(words={**self.words, **rest}, dtype=words.get("dtype", self.dtype))


def read_conventions(path: str | Path) -> Conventions:
    """Read a TOML file."""
    try:
        table = tomllib.loads(read_text("conventions", Path(path)))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"conventions: expected TOML in {path}; {error}") from error
    return make_conventions(table)


def make_conventions(table: Mapping[str, Any]) -> Conventions:
    """Check the entries of a file.

    Examples
    --------
    >>> make_conventions({"mask": "true = blocked", "arguments": {"mask": "attn_mask"}}).words
    {'mask': 'true = blocked'}
    """
    known = (*OTHER, *Conventions._fields[1:])
    for name in table:
        if name not in known:
            advice = did_you_mean(name, known) or f"the names are {', '.join(known)}"
            raise ConfigError(f"conventions: there is no entry {name!r}; {advice}")
    words = {name: check_choice(name, table[name], WORDS[name]) for name in OTHER if name in table}
    given: dict[str, Any] = {name: value for name, value in table.items() if name not in words}
    for name, choices in (("framework", FRAMEWORKS), ("dtype", TOLERANCES)):
        if name in given:
            check_choice(name, given[name], choices)
    for name, each in (("returns", RESULTS), ("gradients", GRADIENTS), ("exclusive", ())):
        if name in given:
            given[name] = _check_list(name, given[name], each)
    for name in ("arguments", "constants"):
        if not isinstance(given.get(name, {}), dict):
            raise ConfigError(f"{name}: expected a table, [{name}]; got {describe(given[name])}")
    for name in given.get("arguments", {}):
        check_choice("arguments", name, options())
    return Conventions(words=words, **given)


def _check_list(name: str, value: Any, known: tuple[str, ...]) -> tuple[Any, ...]:
    """Return a list of names, or of lists of options, as a tuple."""
    if not isinstance(value, list):
        raise ConfigError(f"{name}: expected a list; got {describe(value)}")
    if known:
        return tuple(check_choice(name, each, known) for each in value)
    return tuple(_check_list(name, each, options()) for each in value)


@cache
def options() -> tuple[str, ...]:
    """Return the names of all arguments of cases but q, k and v."""
    found = dict.fromkeys(name for case in cases() for name in (*case.inputs, *case.options))
    return tuple(name for name in found if name not in ("q", "k", "v"))


def load(path: str, option: str = "attention") -> Callable[..., Any]:
    """Import ``package.module:function``.

    Examples
    --------
    >>> load("mha_numpy:attention_forward").__name__
    'attention_forward'
    """
    home, _, name = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not home or not name:
        raise ConfigError(f"{option}: expected package.module:function; got {path!r}")
    try:
        found: Any = import_module(home.removesuffix(".py"))
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        advice = did_you_mean(name, dir(sys.modules[home.removesuffix(".py")]))
        raise ConfigError(f"{option}: {home} has no {name!r}; {advice}".rstrip("; ")) from error
    except Exception as error:  # anybody's module
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{option}: cannot import {home} ({reason})") from error
    if not callable(found):
        raise ConfigError(f"{option}: expected a function; {path} is {describe(found)}")
    return found


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments after q, k and v; [] where Python cannot read them."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return []
    named = [
        p for p in signature.parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    return [p.name for p in named][3:]
