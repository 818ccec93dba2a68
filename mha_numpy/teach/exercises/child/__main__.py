"""The first process in a sandbox: it gives each run a process of its own."""

import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import IO, Any

import numpy as np

from .calls import load, make_calls, measured, tell_all
from .limits import Limits, limit_for_good
from .messages import Asked, Started, write_message
from .values import HEADER, Foreign, plain, record, unpack

PR_SET_DUMPABLE = 4
MOST = 4  # descriptors that come with a run


def main() -> None:
    """Serve, over the socket that the last argument names, until a run has left anything behind.

    Each message brings the descriptors of a run: its task, and where to tell and to show what comes
    of it. The reply is "clean", or the code with which the run's process ended.
    """
    control = int(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which process 1 ignores
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)  # no run of the same user can look in here
    gc.freeze()
    grader = socket.socket(fileno=control)
    grader.send(b"ready")
    reply = "clean"
    while reply == "clean":
        _, given, *_ = socket.recv_fds(grader, 1, MOST)
        if not given:  # the grader has ended
            return
        child = os.fork()
        if child == 0:
            _run(control, *given)
        for descriptor in given:
            os.close(descriptor)
        code = _code_of(child)
        is_clean = code == 0 and _is_alone() and not os.listdir()
        reply = "clean" if is_clean else str(code)
        grader.send(reply.encode())


def _code_of(child: int) -> int:
    """Wait for a child, and bury all whose parents have ended before them."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            return os.waitstatus_to_exitcode(status)


def _is_alone() -> bool:
    """Return whether no other process is there: those without a parent are children of this one."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return False
    return True


def _run(control: int, given: int, told: int, shown: int, replies: int = 0) -> None:
    """Do a task, and end."""
    # what is told goes where the grader was, so that nothing from here can reach the server's end
    for descriptor, place in ((given, 0), (shown, 1), (shown, 2), (told, control)):
        os.dup2(descriptor, place)
    for descriptor in (given, told, shown):
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(control, "wb") as tell:
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
        with open(replies, "rb") as answers:
            inputs = [_with_functions(given, tell, answers) for given in task["inputs"]]
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
