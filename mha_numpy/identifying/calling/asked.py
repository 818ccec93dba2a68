"""Dicts of params that are not known before a call: they note, or draw, what they are asked for."""

from collections.abc import Callable, Mapping
from typing import Any


class Asked(dict[str, Any]):
    """A dict that notes what it is asked for and does not have, also as an attribute."""

    def __init__(self, values: Mapping[str, Any], asked: list[str]) -> None:
        super().__init__(values)
        self._asked = asked

    def __missing__(self, key: str) -> Any:
        if isinstance(key, str):
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
    """Params or settings of an object that are drawn when they are first asked for."""

    def __init__(self, draw: Callable[[str], Any]) -> None:
        super().__init__()
        self._draw = draw

    def __missing__(self, key: str) -> Any:
        self[key] = self._draw(key)
        return self[key]

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None
