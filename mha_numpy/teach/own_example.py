"""The public example of a teacher's own exercise: a call and its result, without the solution."""

import json
from collections import namedtuple
from collections.abc import Callable, Mapping
from hashlib import sha256
from types import ModuleType
from typing import Any

import numpy as np

from mha_numpy.errors import ConfigError
from mha_numpy.teach.own import Example
from mha_numpy.teach.task import Hints, Task

DIGITS = 3  # of the inputs, so that they can be read
FUNCTION = '''"""An exercise of your teacher."""


def {name}({given}) -> {kind}:
    """Return the answer of the example.

    Returns
    -------
    {returns}
    """
    return ANSWER
'''


def example_of(task: Task) -> Example:
    """Return the first input of a task, rounded, and what the solution returns for it.

    Examples
    --------
    >>> from mha_numpy.teach.tasks import find_task
    >>> example_of(find_task("strongest_keys")).text[:29]
    '{"function": "strongest_keys"'
    """
    exact = task.probes()[0]
    rounded = {name: _rounded(value) for name, value in exact.items()}
    answer = task.solution(**rounded)
    answer = answer if task.named is None else task.named(answer)
    told = {"function": task.name, "returns": task.results, "inputs": _plain(rounded)}
    return Example(json.dumps({**told, "answer": _plain(answer)}))


def task_of_example(example: Example, run: Callable[[str, str, str], ModuleType]) -> Task:
    """Return a task whose only input is that of the example, and whose solution knows its answer.

    `run` runs a text as a file of a module.
    """
    try:
        told = json.loads(example.text)
        name, inputs, answer = told["function"], _tree(told["inputs"]), _tree(told["answer"])
        returns = "\n    ".join(told["returns"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "example: expected the text that the handout has; copy it from there again"
        ) from error
    kind = "Array" if isinstance(answer, (np.ndarray, np.generic, float, int)) else "tuple"
    text = FUNCTION.format(name=name, given=", ".join(inputs), kind=kind, returns=returns)
    module = run(text, "example.py", sha256(example.text.encode()).hexdigest()[:16])
    vars(module)["ANSWER"] = answer
    return Task(
        vars(module)[name],
        place=0,
        difficulty=1,
        minutes=0,
        hints=Hints("", "", "", ""),
        draw=lambda _: [inputs],
    )


def _rounded(value: Any) -> Any:
    is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.round(DIGITS) if is_float else value


def _plain(tree: Any) -> Any:
    """Return a tree as JSON can have it: containers with their kind, arrays with their shape."""
    if isinstance(tree, (np.ndarray, np.generic)):
        return {"dtype": tree.dtype.str, "shape": tree.shape, "array": np.ravel(tree).tolist()}
    if isinstance(tree, Mapping):
        return {"dict": {name: _plain(part) for name, part in tree.items()}}
    if hasattr(tree, "_asdict"):
        return {"named": {name: _plain(part) for name, part in tree._asdict().items()}}
    if isinstance(tree, (tuple, list)):
        return {type(tree).__name__: [_plain(part) for part in tree]}
    return tree


def _tree(told: Any) -> Any:
    if not isinstance(told, dict):
        return told
    kind, parts = next(iter(told.items()))
    if kind == "dtype":
        return np.array(told["array"], np.dtype(parts)).reshape(told["shape"])[()]
    if kind in ("dict", "named"):
        found = {name: _tree(part) for name, part in parts.items()}
        return namedtuple("Results", found)(**found) if kind == "named" else found
    return (tuple if kind == "tuple" else list)(map(_tree, parts))
