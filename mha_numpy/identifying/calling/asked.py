"""Values of arguments that hold several things: they note, or draw, what they are asked for."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from mha_numpy.identifying.calling.containers import EACH, OF_LISTS, Path, is_of_arrays

MOST_KEYS = 64  # that a dict notes


class Note(NamedTuple):
    """Notes what is asked for in something that an argument holds."""

    store: Callable[[str, Path, bool], None]
    argument: str
    path: Path = ()

    def __call__(self, path: Path, is_optional: bool) -> None:
        """Note a way from here, and whether what is there may be missing."""
        self.store(self.argument, (*self.path, *path), is_optional)

    def inside(self, key: str | int) -> "Note":
        """Return what notes for a part."""
        return self._replace(path=(*self.path, key))


class Asked(dict[Any, Any]):
    """A dict that notes what it is asked for and does not have, also as an attribute."""

    def __init__(self, values: Mapping[Any, Any], note: Note) -> None:
        super().__init__(values)
        self._note = note
        self._left = MOST_KEYS

    def __missing__(self, key: Any) -> Any:
        self._note((key,), False)
        return Asked({}, self._note.inside(key))

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

    def update(self, *given: Any, **named: Any) -> Any:
        """Return keys and values as an empty cache does; else take entries, as a dict does."""
        return given[:2] if len(given) > 1 else super().update(*given, **named)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_") or is_of_arrays(key) or key in OF_LISTS:  # it is one itself
            raise AttributeError(key)
        return self[key]


class Drawn(dict[str, Any]):
    """Params or settings of an object that are drawn when they are first asked for.

    `inner` are the ways to what lies deeper, as ("query", "weight"); what may be missing is drawn,
    too, if it is `whole`.
    """

    def __init__(
        self, draw: Callable[[Path], Any], inner: Collection[Path] = (), *, whole: bool = False
    ) -> None:
        super().__init__()
        self._draw, self._inner, self._whole = draw, inner, whole

    def __missing__(self, key: str) -> Any:
        deeper = {path[1:] for path in self._inner if path[0] == key and len(path) > 1}
        inside = Drawn(lambda path: self._draw((key, *path)), deeper, whole=self._whole)
        self[key] = inside if deeper else self._draw((key,))
        return self[key]

    def __contains__(self, key: object) -> bool:
        try:
            return super().__contains__(key) or self[str(key)] is not None
        except KeyError:
            return False

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, as a dict does."""
        return self[key] if self._whole and key in self else super().get(key, default)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None


@cache
def register() -> None:
    """Let what JAX compiles take an `Asked` and look into it, as into any dict."""
    import_module("jax").tree_util.register_pytree_node(
        Asked,
        lambda asked: ([*asked.values()], ((*asked,), asked._note)),
        lambda known, values: Asked(dict(zip(known[0], values, strict=True)), known[1]),
    )


def hold(
    values: Mapping[Path, Any], note: Note,
    stack: Callable[[Any], Any] = tuple,
) -> Any:  # fmt: skip
    """Return values in dicts and tuples, by their places; numbers are places of a tuple.

    `stack` is what makes one array of a list of alike ones.

    Examples
    --------
    >>> hold({("w", 0): 3, ("w", 1): 4, ("b",): 5}, Note(print, "params"))
    {'w': (3, 4), 'b': 5}
    """
    parts: dict[Any, dict[Path, Any]] = {}
    for path, value in values.items():
        parts.setdefault(path[0], {})[path[1:]] = value
    if EACH in parts:
        of_each = parts[EACH]
        count = min(len(value) for value in of_each.values())
        items = [{path: value[i] for path, value in of_each.items()} for i in range(count)]
        items += [parts[-1]] if -1 in parts else []
        note_each = note.inside(EACH)
        return [part[()] if () in part else hold(part, note_each, stack) for part in items]
    whole = {
        key: part[()] if () in part else hold(part, note.inside(key), stack)
        for key, part in parts.items()
    }
    if not whole or [*whole] != [*range(len(whole))]:
        return Asked(whole, note)
    each = tuple(whole.values())
    return stack(each) if len({getattr(x, "shape", None) for x in each}) == 1 else each
