"""The files of `right` as one text, cut into functions, and the names that these see."""

import ast
import inspect
from functools import cache
from importlib import import_module
from itertools import accumulate
from pkgutil import iter_modules
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from mha_numpy.errors import ConfigError
from mha_numpy.teach.diagnosis import right
from mha_numpy.teach.diagnosis.edits import Place


class Cut(NamedTuple):
    """One function, and where it stands in the text of all files."""

    function: FunctionType
    start: int
    source: str


class Sources(NamedTuple):
    """All files of `right`."""

    text: str
    cuts: dict[str, Cut]
    namespace: dict[str, Any]  # functions, and what the files import and define besides

    def function_at(self, place: Place) -> str | None:
        """Return the function that a place of the text lies in, if it lies in one."""
        for name, cut in self.cuts.items():
            if cut.start <= place.start and place.end <= cut.start + len(cut.source):
                return name
        return None


@cache
def read_sources() -> Sources:
    """Read all files of `right`, whose functions have different names, and cut them."""
    text = ""
    cuts: dict[str, Cut] = {}
    namespace: dict[str, Any] = {}
    for info in iter_modules(right.__path__):
        module = import_module(f"{right.__name__}.{info.name}")
        source = inspect.getsource(module)
        lines = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
        for node in ast.parse(source).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            if node.name in cuts:
                raise ConfigError(f"right: there are two functions {node.name}")
            start, end = lines[node.lineno - 1], lines[node.end_lineno or node.lineno]
            function = getattr(module, node.name)
            cuts[node.name] = Cut(function, len(text) + start, source[start:end])
        namespace |= vars(module)
        text += source
    return Sources(text, cuts, namespace)


@cache
def called_by(function: str) -> frozenset[str]:
    """Return a function, those that it calls, those that they call, and so on."""
    cuts, seen, waiting = read_sources().cuts, set[str](), {function}
    while waiting:
        seen |= waiting
        names = {name for one in waiting for name in cuts[one].function.__code__.co_names}
        waiting = (names & cuts.keys()) - seen
    return frozenset(seen)


def code_of(module: CodeType) -> CodeType:
    """Return the code of the one function of a compiled module."""
    codes = (code for code in module.co_consts if isinstance(code, CodeType))
    return next(code for code in codes if code.co_name != "__annotate__")  # Python 3.14 has both
