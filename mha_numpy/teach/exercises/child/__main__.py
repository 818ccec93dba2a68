"""A process that contains only what it runs: it does the task on stdin, and reports on it."""

import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import IO, Any

import numpy as np

from .calls import load, make_calls, measured, tell_all
from .limits import Limits, limit_for_good
from .messages import Asked, Started, write_message
from .values import HEADER, Foreign, plain, record, unpack


def main() -> None:
    """Do the task on stdin, and report to the pipe that the last argument names."""
    with open(int(sys.argv[1]), "wb") as tell:
        task = unpack(sys.stdin.buffer.read(), record)
        sys.stdin = open(os.devnull)  # noqa: SIM115
        os.dup2(sys.stdin.fileno(), 0)
        limits = Limits(**task["limits"])
        if task["user"]:  # its own user, so that its processes are counted separately
            os.setgroups([])
            os.setgid(task["user"])
            os.setuid(task["user"])
        limit_for_good(limits, task["room"], task["threads"])
        _show(task["modules"])
        source, file, name = task["source"], task["file"], task["name"]
        write_message(tell, Started())
        wrap = measured if task["is_measured"] else lambda function: function
        with open(task["replies"], "rb") as replies:
            inputs = [_with_functions(given, tell, replies) for given in task["inputs"]]
            calls = make_calls(lambda: wrap(load(source, file, name)), inputs)
            tell_all(calls, tell, limits)
    os._exit(0)  # threads that were left running end here


def _with_functions(
    given: Mapping[str, Any], tell: IO[bytes], replies: IO[bytes]
) -> dict[str, Any]:
    """Return inputs in which a proxy replaces each function that stayed outside."""

    def ask(*given: Any, **named: Any) -> Any:
        write_message(tell, Asked(plain(given), plain(named)))
        answer, error = unpack(replies.read(int.from_bytes(replies.read(HEADER))))
        if error:
            raise RuntimeError(error)
        return answer

    return {name: ask if isinstance(part, Foreign) else part for name, part in given.items()}


def _show(modules: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Make modules with only these NamedTuples, of a package that is otherwise hidden."""
    for name, members in modules.items():
        module = sys.modules[name] = ModuleType(name)
        module.__path__ = []
        for member, fields in members.items():  # one without fields is an array, for annotations
            setattr(module, member, record(member, *fields) if fields else np.ndarray)
    sys.meta_path.insert(0, _Absent(frozenset(name.partition(".")[0] for name in modules)))


class _Absent:
    """Reports that a package is missing."""

    def __init__(self, packages: frozenset[str]):
        self.packages = packages

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in self.packages:
            raise ImportError(f"{name} is not available when you are graded: write it yourself")


if __name__ == "__main__":
    main()
