"""The functions that students write, one per file: task, hints, solution, probes and mistakes.

`TASKS` contains every file of this folder, in the recommended order, or just a teacher's own
exercise while that is in force. A solution is attention once
more, as a student would write it: plain NumPy, and right. The sizes of a probe all differ, because
equal ones hide transposes. One square case is there for the mistakes that run only on a square.
Upstream gradients are random and biases are not zero. With a mask, one row sees nothing and one
probe has large scores.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from mha_numpy.errors import ConfigError
from mha_numpy.teach.in_force import InForce
from mha_numpy.teach.task import Task

_FOUND = [import_module(f"{__name__}.{file.name}").TASK for file in iter_modules(__path__)]
BUILT_IN = {task.name: task for task in sorted(_FOUND, key=lambda task: task.place)}
TASKS: Mapping[str, Task] = InForce(BUILT_IN, lambda own: {own.name: own})


def find_task(name: str) -> Task:
    """Return a task by its name, as the variant in force has it; raise a ConfigError if absent."""
    if name not in TASKS:
        raise ConfigError(f"task: expected one of {', '.join(TASKS)}; got {name!r}")
    return TASKS[name].varied()
