"""Values of arguments that hold several things: they note, or draw, what they are asked for."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from mha_numpy.identifying.calling.containers import Path, is_of_arrays

MOST_KEYS = 64  # that a dict notes


class Asked(dict[Any, Any]):
    """A dict that notes what it is asked for and does not have, also as an attribute."""

    def __init__(self, values: Mapping[Any, Any], note: Callable[[Path, bool], None]) -> None:
        super().__init__(values)
        self._note = note
        self._left = MOST_KEYS

    def __missing__(self, key: Any) -> Any:
        self._note((key,), False)
        return Asked({}, partial(_note_inside, self._note, key))

    def __iter__(self) -> Iterator[Any]:
        if not self:
            self._note((), False)
        return super().__iter__()

    def __contains__(self, key: object) -> bool:
        has_it = super().__contains__(key)
        if not has_it and self._left and isinstance(key, str):
            self._left -= 1
            self._note((key,), True)
        return has_it

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, as a dict does."""
        return self[key] if key in self else default  # noqa: SIM401

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_") or is_of_arrays(key):  # what is missing here is an array itself
            raise AttributeError(key)
        return self[key]


class Drawn(dict[str, Any]):
    """Params or settings of an object that are drawn when they are first asked for."""

    def __init__(self, draw: Callable[[str], Any]) -> None:
        super().__init__()
        self._draw = draw

    def __missing__(self, key: str) -> Any:
        self[key] = self._draw(key)
        return self[key]

    def __contains__(self, key: object) -> bool:
        try:
            return super().__contains__(key) or self[str(key)] is not None
        except KeyError:
            return False

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None


def _note_inside(
    note: Callable[[Path, bool], None], key: str | int, path: Path, is_optional: bool
) -> None:
    note((key, *path), is_optional)


def hold(
    values: Mapping[Path, Any], note: Callable[[Path, bool], None],
    stack: Callable[[Any], Any] = tuple,
) -> Any:  # fmt: skip
    """Return values in dicts and tuples, by their places; numbers are places of a tuple.

    `stack` is what makes one array of a list of alike ones.

    Examples
    --------
    >>> hold({("w", 0): 3, ("w", 1): 4, ("b",): 5}, print)
    {'w': (3, 4), 'b': 5}
    """
    parts: dict[Any, dict[Path, Any]] = {}
    for path, value in values.items():
        parts.setdefault(path[0], {})[path[1:]] = value
    whole = {
        key: part[()] if () in part else hold(part, partial(_note_inside, note, key), stack)
        for key, part in parts.items()
    }
    if not whole or [*whole] != [*range(len(whole))]:
        return Asked(whole, note)
    each = tuple(whole.values())
    return stack(each) if len({getattr(x, "shape", None) for x in each}) == 1 else each
