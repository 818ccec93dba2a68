"""A row of a datasheet: a setting or a fact, in words."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mha_numpy.identifying.family import USUAL


class Row(NamedTuple):
    """One finding."""

    name: str
    says: str
    kind: str  # "usual", "convention" or "mistake"
    setting: str = ""
    value: Any = None
    argument: str = ""  # that it is about
    instead: str = ""  # what to write, for a mistake
    line: int = 0  # of the source, 0 if unknown
    code: str = ""


@cache
def _meanings() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("meanings.toml").read_text("utf-8"))


def make_row(setting: str, value: Any, argument: str = "") -> Row:
    """Return the row of a setting or a fact.

    Examples
    --------
    >>> make_row("scale", "1/d")[:3]
    ('scale', "1 / d, which is 1 / sqrt(d) applied twice, or muP's scale", 'convention')
    """
    table = _meanings()[setting]
    text = table.get(str(value))
    if text is None:
        text = table.get("any", "{}").format(*_shown(value))
    text = text.replace("{}", argument or "an argument")
    says, _, instead = text.removeprefix("!").partition(" -> ")
    kind = (
        "mistake"
        if text.startswith("!")
        else "usual"
        if value == USUAL.get(setting)
        else "convention"
    )
    return Row(table["row"], says, kind, setting, value, argument, instead)


def _shown(value: Any) -> tuple[str, ...]:
    parts = value if isinstance(value, tuple) else (value,)
    return tuple("all" if part is None else f"{part:g}" for part in parts)
