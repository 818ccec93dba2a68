"""The solutions of all tasks, cut into functions, and the names that these see."""

import ast
import inspect
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from mha_numpy.errors import ConfigError
from mha_numpy.teach.in_force import cached
from mha_numpy.teach.tasks import TASKS


class Cut(NamedTuple):
    """One function of a solution."""

    function: FunctionType
    task: str  # in whose file it is
    source: str


class Solutions(NamedTuple):
    """The functions of all solutions, each of which has its own name."""

    cuts: dict[str, Cut]
    namespace: dict[str, Any]  # functions, and what the files import and define besides


@cached()
def read_solutions() -> Solutions:
    """Read the files of all tasks, and cut the functions that their solutions consist of."""
    cuts: dict[str, Cut] = {}
    namespace: dict[str, Any] = {}
    for task in TASKS.values():
        module = inspect.getmodule(task.solution)
        assert module is not None
        namespace |= vars(module)
        for name, source in _functions_of(module, task.name).items():
            if name in cuts:
                raise ConfigError(f"solutions: there are two functions {name}")
            cuts[name] = Cut(getattr(module, name), task.name, source)
    return Solutions(cuts, namespace | {name: cut.function for name, cut in cuts.items()})


def _functions_of(module: ModuleType, solution: str) -> dict[str, str]:
    """Return the sources of a function and of all that it calls in its file, in their order.

    They come without docstrings, whose words an edit might match by accident.
    """
    source = inspect.getsource(module)
    lines = source.splitlines(keepends=True)
    found = {one.name: one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef)}
    seen, waiting = set[str](), {solution}
    while waiting:
        seen |= waiting
        used = {name for one in waiting for name in getattr(module, one).__code__.co_names}
        waiting = used & found.keys() - seen
    sources = {}
    for name, function in found.items():
        if name in seen:
            first, end = function.body[0], function.end_lineno
            if ast.get_docstring(function, clean=False) is None:
                sources[name] = "".join(lines[function.lineno - 1 : end])
                continue
            head = lines[function.lineno - 1 : first.lineno - 1]
            sources[name] = "".join(head + lines[first.end_lineno : end])
    return sources


@cached()
def called_by(function: str) -> frozenset[str]:
    """Return a function, those that it calls, those that they call, and so on."""
    cuts, seen, waiting = read_solutions().cuts, set[str](), {function}
    while waiting:
        seen |= waiting
        names = {name for one in waiting for name in cuts[one].function.__code__.co_names}
        waiting = (names & cuts.keys()) - seen
    return frozenset(seen)


def code_of(module: CodeType) -> CodeType:
    """Return the code of the one function of a compiled module."""
    codes = (code for code in module.co_consts if isinstance(code, CodeType))
    return next(code for code in codes if code.co_name != "__annotate__")  # Python 3.14 has both
