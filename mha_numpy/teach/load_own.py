"""load_own: a teacher's own exercise as a task, with an error that says what to write instead."""

import ast
import linecache
import re
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from inspect import Parameter, cleandoc, getsource, signature
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from mha_numpy.checking.trees import children, leaves, replaced
from mha_numpy.dtypes import Array
from mha_numpy.errors import describe, did_you_mean, one_line
from mha_numpy.teach.own import Example, Own
from mha_numpy.teach.own_example import task_of_example
from mha_numpy.teach.own_table import table_of, wrong
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Task

MINUTES = 10  # for each step of difficulty
DIFFICULTY = 2
SECTIONS = re.compile(r"Parameters\n-{10}\n(.*?)\n\nReturns\n-{7}\n(.+)", re.DOTALL)
NUMPYDOC = (
    "after a summary write `Parameters` and `Returns`, each underlined with dashes, and below them "
    "a line such as `x : (T, D)` for each array"
)
KINDS: dict[Any, str] = {  # of arguments, as small edits know them
    np.ndarray: "Array",
    (bool, np.bool_): "bool",
    (int, np.integer): "int",
    (float, np.floating): "float",
}


@lru_cache(maxsize=64)
def load_own(own: Own | Example) -> Task:
    """Return the task of a teacher's own exercise, or of its public example.

    The code of a teacher is trusted as this package is, and runs here.
    """
    return task_of_example(own, _run) if isinstance(own, Example) else _of_folder(own)


def _of_folder(own: Own) -> Task:
    digest = sha256(repr(own).encode()).hexdigest()[:16]
    draw = _draw_of(_run(own.inputs, "inputs.py", digest))
    first = _one_function(_run(own.solution, "solution.py", digest))
    parameters, results = _documented(first)
    inputs = _drawn(draw, parameters)
    answer = _answer(first, inputs[0])
    named = _naming(results, answer)
    source = _annotated(own.solution, first.__name__, inputs, is_single=children(answer) is None)
    module = _run(source, "solution.py", digest)
    table = table_of(own)
    about = table.get("title") or str(module.__doc__ or "").strip().split("\n")[0]
    module.__doc__ = about or first.__name__.replace("_", " ").capitalize()
    difficulty = table.get("difficulty", DIFFICULTY)
    return Task(
        getattr(module, first.__name__),
        place=0,
        difficulty=difficulty,
        minutes=table.get("minutes", MINUTES * difficulty),
        hints=Hints(table.get("hint", ""), "", "", ""),
        draw=lambda rng: [_in_order(one, parameters) for one in draw(rng)],
        laws=_laws_of(
            _run(own.laws, "laws.py", digest), answer if named is None else named(answer)
        ),
        mistakes=[Mistake(fix="", **one) for one in table.get("mistake", ())],
        named=named,
    )


def _run(text: str, file: str, digest: str) -> ModuleType:
    """Run a file of the folder as a module of which errors and `inspect` know the source."""
    name = f"own_{digest}_{file.removesuffix('.py')}"
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = f"<{digest}>/{file}"
    linecache.cache[module.__file__] = (
        len(text), None, text.splitlines(keepends=True), module.__file__,
    )  # fmt: skip
    vars(module)["Array"] = Array
    try:
        exec(compile(text, module.__file__, "exec", dont_inherit=True), vars(module))
    except SyntaxError as error:
        wrong(file, f"Python cannot read it: {error.msg} (line {error.lineno})", error)
    except Exception as error:
        alone = "; use NumPy and what comes with Python" * isinstance(error, ImportError)
        wrong(file, f"running it raised {_told(error, file)}{alone}", error)
    return module


def _told(error: Exception, file: str) -> str:
    """Return an error with the last line of a file that it passed."""
    lines, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(f">/{file}"):
            lines.append(f" (line {trace.tb_lineno})")
        trace = trace.tb_next
    return f"{type(error).__name__}: {one_line(error)}{''.join(lines[-1:])}"


def _functions(module: ModuleType) -> dict[str, FunctionType]:
    """Return the functions that a file defines, and does not hide with _."""
    return {
        name: one
        for name, one in vars(module).items()
        if isinstance(one, FunctionType) and one.__module__ == module.__name__ and name[0] != "_"
    }


def _one_function(module: ModuleType) -> FunctionType:
    file, found = "solution.py", _functions(module)
    if len(found) != 1:
        got = f"got {', '.join(found)}: begin the names of helpers with _" if found else "got none"
        wrong(file, f"expected one def without a decorator, for students to write; {got}")
    (function,) = found.values()
    decorated = [
        one.name
        for one in ast.parse(getsource(module)).body
        if isinstance(one, ast.FunctionDef) and one.decorator_list
    ]
    if decorated:
        wrong(file, f"{decorated[0]}: expected no decorator; write what it does into the function")
    kinds = {one.kind for one in signature(function).parameters.values()}
    if not kinds or kinds != {Parameter.POSITIONAL_OR_KEYWORD}:
        wrong(
            file, f"{function.__name__}: expected plain arguments such as (x, axis), no * and no /"
        )
    return function


def _documented(function: FunctionType) -> tuple[list[str], list[str]]:
    """Return the names of arguments and results, as the docstring has them."""
    where = f"{function.__name__}: expected a docstring that states the task"
    if not function.__doc__:
        wrong("solution.py", f"{where}; {NUMPYDOC}")
    found = SECTIONS.search(cleandoc(function.__doc__))
    if not found:
        wrong("solution.py", f"{where} with its arguments and results; {NUMPYDOC}")
    given, returned = ([*_names(part)] for part in found.groups())
    wanted = list(signature(function).parameters)
    if given != wanted:
        wrong(
            "solution.py",
            f"{function.__name__} takes {', '.join(wanted)}; its docstring has {', '.join(given)}"
            " below Parameters: expected the same names in the same order",
        )
    odd = next((name for name in returned if not name.isidentifier()), None)
    if odd is not None:
        wrong(
            "solution.py",
            f"Returns: expected a name and a shape, such as `out : (T, D)`; got {odd!r}",
        )
    return wanted, returned


def _names(section: str) -> list[str]:
    text, *_ = re.split(r"\n\n\S.*\n---", section)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(" ")]
    return [name.strip() for line in lines for name in line.partition(" :")[0].split(",")]


def _draw_of(module: ModuleType) -> Callable[[np.random.Generator], Any]:
    draw: Any = vars(module).get("draw")
    if not isinstance(draw, FunctionType) or len(signature(draw).parameters) != 1:
        wrong("inputs.py", "expected def draw(rng), which returns a list of dicts of arguments")
    return draw


def _drawn(draw: Callable[[np.random.Generator], Any], parameters: list[str]) -> list[Inputs]:
    """Return some inputs, after a look at their kinds."""
    try:
        drawn = draw(np.random.default_rng(0))
    except Exception as error:
        wrong("inputs.py", f"draw(rng) raised {_told(error, 'inputs.py')}", error)
    if not isinstance(drawn, (list, tuple)) or not drawn:
        wrong("inputs.py", f"draw(rng): expected a list of dicts; got a {type(drawn).__name__}")
    for number, one in enumerate(drawn, start=1):
        if not isinstance(one, dict):
            wrong("inputs.py", f"draw(rng): expected dicts; input {number} is {describe(one)}")
        for name in {*one} ^ {*parameters}:
            is_extra = name in one
            meant = did_you_mean(str(name), parameters) if is_extra else f"add {name!r}"
            wrong(
                "inputs.py",
                f"input {number}: expected the arguments {', '.join(parameters)}; "
                f"{f'got {name!r} too' if is_extra else f'{name!r} is missing'}"
                + f"; {meant}"
                * bool(meant),
            )
        for name, value in one.items():
            parts = leaves(value).values() if isinstance(value, list) else [None]
            if all(isinstance(part, int | float) for part in parts):
                got = f"{name} of input {number} is a list"
                wrong("inputs.py", f"expected arrays of numbers; {got}: write np.array({name})")
        for name, value in leaves(one).items():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)  # a solution that writes into it shows
            if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
                wrong("inputs.py", f"{name} of input {number}: expected numbers; {describe(value)}")
    return list(drawn)


def _in_order(inputs: Inputs, parameters: list[str]) -> Inputs:
    """Return arguments in their order, with NumPy's numbers as Python's."""
    scalars = {n: one.item() for n, one in leaves(inputs).items() if isinstance(one, np.generic)}
    plain = replaced(inputs, scalars)
    return {name: plain[name] for name in parameters}


def _answer(function: Callable[..., Any], inputs: Inputs) -> Any:
    try:
        return function(**inputs)
    except Exception as error:
        wrong(
            "solution.py",
            f"called with input 1 of inputs.py it raised {_told(error, 'solution.py')}"
            + "; work on a copy: x = x * 2, not x *= 2" * ("read-only" in str(error)),
            error,
        )


def _naming(results: list[str], answer: Any) -> Callable[[Any], Any] | None:
    """Return what gives the parts of an answer the names in the docstring, if they have none."""
    parts = children(answer)
    names = ["" if parts is None else name for name in (parts or {"": answer})]
    for name, one in (parts or {"the result": answer}).items():
        if not all(np.asarray(leaf).dtype.kind in "biuf" for leaf in leaves(one).values()):
            wrong("solution.py", f"expected numbers as results; {name} is {describe(one)}")
    if len(names) != len(results):
        wrong(
            "solution.py",
            f"expected a line such as `out : (T, D)` below Returns for each array; it returns "
            f"{len(names)} and lists {', '.join(results)}",
        )
    if not isinstance(answer, (tuple, list)) or hasattr(answer, "_fields"):
        return None
    made = namedtuple("Results", results)  # type: ignore[misc]

    def named(result: Any) -> Any:
        is_plain = isinstance(result, (tuple, list)) and len(result) == len(results)
        return made(*result) if is_plain else result

    return named


def _annotated(text: str, name: str, inputs: list[Inputs], *, is_single: bool) -> str:
    """Return a solution whose function says what its arguments are, as small edits need it."""
    (function,) = (
        one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef) and one.name == name
    )
    lines = text.splitlines(keepends=True)
    before, first = function.lineno - 1, function.body[0].lineno - 1
    for argument in function.args.args:
        values = [one[argument.arg] for one in inputs if one[argument.arg] is not None]
        kinds = (kind for one, kind in KINDS.items() if values and isinstance(values[0], one))
        kind = next(kinds, None)
        argument.annotation = None if kind is None else ast.Name(kind)
    function.returns = ast.Name("Array" if is_single else "tuple")
    function.body = [ast.Pass()]
    head = ast.unparse(ast.fix_missing_locations(function)).rsplit("\n", 1)[0]
    return "".join([*lines[:before], head, "\n" * (first - before), *lines[first:]])


def _laws_of(module: ModuleType, like: Any) -> list[Law]:
    laws = []
    for name, function in _functions(module).items():
        if len(signature(function).parameters) != 2 or not function.__doc__:
            wrong(
                "laws.py",
                f"{name}: expected def {name}(inputs, result) with the rule as its docstring, in "
                "words that a student understands; it returns an array that is 0 where it holds",
            )
        statement = " ".join(cleandoc(function.__doc__).split("\n\n")[0].split()).rstrip(".")
        laws.append(Law(statement[:1].lower() + statement[1:], Rule(function, like)))
    return laws


class Rule:
    """A function of laws.py, which takes what a function returned, not its arrays by name."""

    def __init__(self, function: Callable[..., Any], like: Any):
        self.function, self.like = function, like

    def __call__(self, inputs: Inputs, arrays: Mapping[str, Array]) -> Array:
        """Return how far it is broken; infinitely where an odd answer makes it fail."""
        try:
            return self.off(inputs, replaced(self.like, arrays))
        except Exception:
            return np.array(np.inf)

    def off(self, inputs: Inputs, result: Any) -> Array:
        """Return how far it is broken."""
        off = np.asarray(self.function(inputs, result))
        if off.dtype.kind not in "iuf":
            name, got = self.function.__name__, describe(off[()])
            wrong(
                "laws.py",
                f"{name}: expected numbers that are 0 where the rule holds, such as "
                f"result.sum(axis=-1) - 1; got {got}",
            )
        return off.astype(float)
