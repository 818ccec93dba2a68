"""Exercise: a stub or code with a bug to hand out, and the hints that go with it."""

import ast
import inspect
import re
from collections.abc import Callable
from functools import wraps
from textwrap import dedent, fill
from typing import Any, Literal, NamedTuple, NoReturn

from mha_numpy.teach.task import Hints, Task
from mha_numpy.teach.tasks import TASKS

Kind = Literal[
    "code",  # a stub is handed out, to be written
    "museum",  # code with a bug is handed out, to be fixed
    "tests",  # a function that tests a task's function is to be written
]


WIDTH = 100  # of a line
QUOTES = '"""\n'
IMPORTS = {  # what a stub's names need
    "Callable": "from collections.abc import Callable",
    "np": "import numpy as np",
    "MultiHeadParams": "from mha_numpy.core import MultiHeadParams",
    "Array": "from mha_numpy.dtypes import Array",
    "Saved": "from mha_numpy.teach.saved import Saved",
}


class Exercise(NamedTuple):
    """One function to write: the stub is handed out, the task knows its probes and mistakes."""

    id: str
    kind: Kind
    title: str
    difficulty: int  # 1 (a line or two) to 5 (an evening)
    minutes: int
    needs: tuple[str, ...]  # ids of the exercises before it
    hints: Hints
    task: str  # a key of `TASKS`
    stub: Callable[..., Any]  # what runs when a student has written nothing yet

    @property
    def function_name(self) -> str:
        """The name of a student's function."""
        return self.stub.__name__

    @property
    def stub_source(self) -> str:
        """The text of the stub: signature, docstring, and a body to be written or fixed."""
        is_code = self.kind == "code"
        solution = inspect.unwrap(self.stub) if is_code else TASKS[self.task].solution
        signature, docstring, body = _parts_of(solution)
        if is_code:
            if returns := self.task in TASKS and TASKS[self.task].returns:
                signature = _with_returns(signature, returns)
            return f"{signature}{docstring}    raise NotImplementedError\n"
        _, asked = docstring.split("\n\n", 1)
        signature, docstring, body = _parts_of(self.stub)
        if self.kind == "museum":  # its docstring has the story; the rest is the task's
            docstring = f"{docstring.removesuffix(QUOTES).rstrip()}\n\n{asked}"
        return signature + docstring + body


def _parts_of(function: Callable[..., Any]) -> tuple[str, str, str]:
    """Return the signature of a function, its docstring and its body, as text."""
    source = dedent(inspect.getsource(function))
    source = source[re.search(r"^def ", source, flags=re.MULTILINE).start() :]  # type: ignore[union-attr]
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.FunctionDef)
    lines, docstring = source.splitlines(keepends=True), tree.body[0]
    begin, end = docstring.lineno - 1, docstring.end_lineno
    return "".join(lines[:begin]), "".join(lines[begin:end]), "".join(lines[end:])


def _with_returns(signature: str, returns: str) -> str:
    """Return a signature with a different return annotation, in lines of WIDTH."""
    (tree,) = ast.parse(f"{signature}    pass").body
    assert isinstance(tree, ast.FunctionDef)
    arguments = [ast.unparse(argument) for argument in tree.args.args]
    line, end = ", ".join(arguments), f") -> {returns}:\n"
    if len(f"def {tree.name}({line}{end}") <= WIDTH + 1:
        return f"def {tree.name}({line}{end}"
    if len(line) > WIDTH - 4:
        line = ",\n    ".join(arguments) + ","
    return f"def {tree.name}(\n    {line}\n{end}"


def stub_text(exercise: Exercise) -> str:
    """Return the file that a student starts from: title, effort, commands, imports, the stub."""
    source = exercise.stub_source
    needs = f", after {', '.join(exercise.needs)}" if exercise.needs else ""
    about = f"Difficulty {exercise.difficulty} of 5, about {exercise.minutes} minutes{needs}."
    used = [
        line for name, line in IMPORTS.items() if name == "np" or re.search(rf"\b{name}\b", source)
    ]
    imports = "\n".join(used).replace("numpy as np\nfrom", "numpy as np\n\nfrom")
    return (
        f'"""{exercise.title.removesuffix("?")}.\n\n{fill(about, 96)}\n\n'
        f"Check it:  mha-numpy check . {exercise.id}\n"
        f'A hint:    mha-numpy hint . {exercise.id}\n"""\n\n'
        f"{imports}\n\n\n{source}"
    )


def exercise_of(task: Task) -> Exercise:
    """Return the exercise of writing a task's function."""

    @wraps(task.solution)
    def unwritten(*by_place: Any, **by_name: Any) -> NoReturn:
        raise NotImplementedError

    return Exercise(
        task.id or task.name.replace("_", "-"),
        "code", task.title, task.difficulty, task.minutes, task.needs, task.hints,
        task.name, unwritten,
    )  # fmt: skip


def exhibit(
    exhibit_id: str, *, title: str, difficulty: int, minutes: int, hints: Hints
) -> Callable[[Callable[..., Any]], Exercise]:
    """Turn the function below, which has a bug, into an exhibit of the museum.

    It has the name and the job of a task's function. Its docstring says where the bug shipped.
    """

    def enter(function: Callable[..., Any]) -> Exercise:
        task = TASKS[function.__name__]
        return Exercise(
            exhibit_id, "museum", title, difficulty, minutes, (exercise_of(task).id,), hints,
            task.name, function,
        )  # fmt: skip

    return enter
