"""Sandbox: run a submission's source text where it can see only Python and NumPy.

The stronger of the two ways to run a function; `run_calls` is the other. What the two share is in
`sandbox.py` (the child, its limits, its end) and in `child` (the calls, and their messages).
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from mha_numpy.core import MultiHeadParams
from mha_numpy.errors import ConfigError, SandboxError
from mha_numpy.teach.exercises.child import FOLDER
from mha_numpy.teach.exercises.child.errors import one_line
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.child.messages import Asked, framed
from mha_numpy.teach.exercises.child.values import Foreign, pack, plain
from mha_numpy.teach.exercises.groups import group_of_processes
from mha_numpy.teach.exercises.refused import refused_calls
from mha_numpy.teach.exercises.sandbox import (
    CHUNK,
    START,
    Heard,
    Run,
    check_limits,
    conclude,
    listen,
    pipe,
)
from mha_numpy.teach.saved import Saved

FIRST_USER = 60_001  # unused ids of users; each slot has its own
THREADS = 32  # that a run may have, each process being one
ROOM = 64 * 2**20  # bytes that may be written, into memory
SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin")  # where libraries are; none but to read
PACKAGES, CHILD = Path("/packages"), Path("/mha_numpy/teach/exercises/child")  # inside
ENDED = 5.0  # seconds that the processes of a run may take to be gone, when they are killed
ANSWER = 2**20  # bytes that an answer to a submission may have
GRACE = 1.0  # seconds that a run may take to end when its calls are over
CHILDREN = "/proc/{0}/task/{0}/children"
LONGEST = 64  # bytes of what the first process says
ENVIRONMENT = {
    "PATH": "/usr/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip
# of this package nothing else is to be seen than what stubs import
PARAMS, SAVED = list(MultiHeadParams._fields), list(Saved._fields)
MODULES: dict[str, dict[str, list[str]]] = {
    "mha_numpy": {"MultiHeadParams": PARAMS},
    "mha_numpy.core": {"MultiHeadParams": PARAMS},
    "mha_numpy.dtypes": {"Array": []},
    "mha_numpy.teach": {},
    "mha_numpy.teach.saved": {"Saved": SAVED},
}


class Sandbox:
    """Calls the functions of one submission, each in a process of its own, in isolation.

    It starts when it is first used, and ends with its context. A `slot` is a number that no other
    sandbox uses at the same time.

    Notes
    -----
    The processes have their own view of processes, network, users and files. They can read Python's
    library and NumPy, they have their own home in memory, and they see no expected answers. They
    end, with all that they started, when their calls are done, when the time is up, or when this
    process ends.

    The first process inside imports NumPy, and forks another one for each run, so that this takes
    no time. It runs nothing of a submission itself, no signal from inside reaches it, and it gets
    the task of a run when all before are over. A run that ends in any other way than by itself, or
    leaves a process or file behind, is the last one in its sandbox, and the next starts a new one.
    So no run can see or disturb another, with one exception: if this process is not root's, the
    first one has the same user as the others, which can change its limits and priority.

    The time limit covers loading and all calls of a run, but not the start of the sandbox. Memory
    is limited for each process. If this process may make a control group (Linux has two kinds),
    memory is also limited for all processes together, including files in memory. Otherwise each of
    the allowed processes could use the whole limit. Such a group limits the number of processes
    too. Without one, the number is limited per user: each of root's sandboxes has a separate user,
    chosen by its slot. Other users' sandboxes share one limit, on top of the processes that the
    user already has.

    Anything that a submission writes into the pipe of a run counts as that run's answers, and can
    say no more than an answer can. Whether inputs were changed in place, and how many bytes were
    held, is measured in its process, where it can be falsified, so a mark for either is a matter of
    trust. Files in memory have room for `ROOM` bytes; only the time limits their number.
    """

    def __init__(self, limits: Limits, *, slot: int = 0):
        self.limits, self.slot = check_limits(limits), slot
        self._started = ExitStack()
        self._server: socket.socket | None = None  # to the first process, if it can take a run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; the next run starts others."""
        self._server = None
        self._started.close()

    def run(
        self,
        source: str,
        file: str,
        name: str,
        inputs: Sequence[Mapping[str, Any]],
        *,
        is_measured: bool = False,
    ) -> Run:
        """Call a function of a source text once for each of the inputs.

        Errors call the source `file`. Only the inputs go in, as for `run_calls`. With
        `is_measured`, calls return the most bytes that they held, instead of their answers.

        A ConfigError says that bubblewrap is missing or cannot isolate here; no submitted code has
        run then. A SandboxError says that memory has run out in this process. A TypeError says that
        an input is not a function, number, text, array, or container of these.

        If an input is a function, a proxy inside sends its arguments here, and the function of the
        same call answers with at most `ANSWER` bytes. If it raises an error, only the error's type
        goes in. Its source and name do not go in, and a call that has ended can ask nothing more.
        The function has to check its arguments, which may be anything, before it computes. The
        run's time limit keeps counting meanwhile, but does not stop the function.
        """
        away = Foreign("a function")
        given = [{key: away if callable(p) else p for key, p in one.items()} for one in inputs]
        task = pack({
            "source": source, "file": file, "name": name, "inputs": given, "modules": MODULES,
            "limits": self.limits._asdict(), "room": ROOM,
            "threads": THREADS + _threads_of_this_user(), "is_measured": is_measured,
            "user": FIRST_USER + self.slot if os.geteuid() == 0 else 0,
        })  # fmt: skip
        is_used = self._server is not None
        heard = self._heard(task, inputs)
        if is_used and not heard.is_started:  # an earlier run may be the reason
            heard = self._heard(task, inputs)
        if not heard.is_started:
            raise ConfigError(_not_started(heard.printed))
        return heard.run

    def _heard(self, task: bytes, inputs: Sequence[Mapping[str, Any]]) -> Heard:
        """Have a process do a task, and take in its messages."""
        asks = any(callable(part) for given in inputs for part in given.values())
        with (
            _replies() if asks else nullcontext((0, 0)) as (replies, answers),
            _readable(task) as given,
            pipe() as (results, tell),
            pipe() as (output, show),
        ):

            def reply(number: int, asked: Asked) -> str:
                """Answer a call's request; return the reason to stop if it does not read."""
                (function,) = filter(callable, inputs[number].values())
                packed = _answer(function, asked)
                with suppress(BlockingIOError):
                    if os.write(answers, packed) == len(packed):
                        return ""
                return "asked for answers and did not read them"

            server, self._server = self._server or self._start(), None
            heard = Heard(len(inputs), self.limits, is_started=False, reply=reply)
            with suppress(OSError):  # it has ended
                handed = [given, tell.fileno(), show.fileno(), *[replies] * asks]
                socket.send_fds(server, [b"run"], handed)
            tell.close()  # so that results end with the process; output has no end
            listen(heard, results, output)
            is_late = time.monotonic() >= heard.deadline
            conclude(heard, output, self._end(server, is_late=is_late), is_late=is_late)
        return heard

    def _start(self) -> socket.socket:
        """Start a first process in place of any old one; return a socket to it when it is ready."""
        self.close()
        bubblewrap = find_bubblewrap()
        enter = self._started.enter_context(group_of_processes(self.limits.memory + ROOM, THREADS))
        refused = self._started.enter_context(_readable(refused_calls()))
        output, show = self._started.enter_context(pipe())
        server, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._started.enter_context(server)
        with inside:
            command = [*_command(bubblewrap, refused), str(inside.fileno())]
            self._started.enter_context(_process(command, (inside.fileno(), refused), show, enter))
        server.settimeout(START)
        with suppress(OSError):
            if server.recv(LONGEST):
                return server
        os.set_blocking(output.fileno(), False)
        raise ConfigError(_not_started((output.read(CHUNK) or b"").decode(errors="replace")))

    def _end(self, server: socket.socket, *, is_late: bool) -> int:
        """Return the exit code of a run's process, or the negative number of a signal.

        Unless it has left nothing behind, all processes are ended.
        """
        told = b""
        if not is_late:
            server.settimeout(GRACE)
            with suppress(OSError):
                told = server.recv(LONGEST)
        if told == b"clean":
            self._server = server
            return 0
        self.close()
        return int(told or -signal.SIGKILL)


def _not_started(printed: str) -> str:
    return f"bwrap: the sandbox did not start: {one_line(printed, 300)}"


@contextmanager
def _process(
    command: list[str], handed: Collection[int], show: IO[bytes], enter: Callable[[], None]
) -> Iterator[None]:
    """Have a process that bubblewrap starts; end it with all that it started.

    What it started is ended first: it controls all others, and is the only one that needs time.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*fork")  # the child uses no threads
        process = subprocess.Popen(
            command, env={}, stdin=subprocess.DEVNULL, stdout=show, stderr=show,
            pass_fds=handed, start_new_session=True, preexec_fn=enter,
        )  # fmt: skip
    try:
        yield
    finally:
        with suppress(OSError):
            for started in Path(CHILDREN.format(process.pid)).read_text().split():
                os.kill(int(started), signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDED)
        process.kill()
        process.wait()


def _threads_of_this_user() -> int:
    """Return how many threads this user has; the limit on them is per user, except for root."""
    if os.geteuid() == 0:
        return 0
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if process.stat().st_uid == os.geteuid():
                count += len(os.listdir(process / "task"))
    return count


@contextmanager
def _replies() -> Iterator[tuple[int, int]]:
    """Open a pipe that holds a whole answer, so that this process never waits for a reader."""
    import fcntl

    with pipe() as (reader, writer):
        os.set_blocking(writer.fileno(), False)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, ANSWER)
        yield reader.fileno(), writer.fileno()


def _answer(function: Callable[..., Any], asked: Asked) -> bytes:
    """Return an answer, or the type of an error, as framed bytes."""
    answer, error = None, ""
    try:
        answer = plain(function(*asked.given, **asked.named))
    except MemoryError as lack:
        raise SandboxError("memory ran out while a submission was being answered") from lack
    except Exception as raised:
        error = f"the function that you called raised a {type(raised).__name__}"
    return framed((answer, error))


@contextmanager
def _readable(content: bytes) -> Iterator[int]:
    """Open a read-only file in memory."""
    import fcntl

    with open(os.memfd_create("given", os.MFD_ALLOW_SEALING), "r+b", buffering=0) as opened:
        opened.write(content)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(opened, fcntl.F_ADD_SEALS, seals)
        opened.seek(0)
        yield opened.fileno()


def try_isolation() -> None:
    """Try to run something in isolation; raise a ConfigError if this machine cannot."""
    with Sandbox(Limits()) as sandbox:
        run = sandbox.run("def f(x): return x", "trial.py", "f", [{"x": 1}])
    if [call.answer for call in run.calls] != [1]:
        raise ConfigError(f"bwrap: nothing can be run in isolation here: {run.ended}")


def find_bubblewrap() -> str:
    """Return where bubblewrap is, or raise a ConfigError that says how to get it."""
    found = shutil.which("bwrap")
    if found is None:
        raise ConfigError(
            "bwrap: bubblewrap, which isolates submissions, is not installed; "
            "apt-get install bubblewrap (Linux only)"
        )
    return found


def _command(bubblewrap: str, refused: int) -> list[str]:
    """Return the command that runs the child, except its last argument."""
    prefix, executable = Path(sys.base_prefix), Path(sys.executable).resolve()
    python = prefix if str(prefix) in SYSTEM else Path("/python")  # another user may not see it
    command = [bubblewrap, "--die-with-parent", "--new-session", "--as-pid-1"]
    command += ["--cap-drop", "ALL"]
    command += ["--seccomp", str(refused)]
    if os.geteuid() == 0:
        # root needs no other users to shut everything else off, and keeps real ones: the limit on
        # processes holds for them, and would not for a root by another name
        command += [f"--unshare-{what}" for what in ("ipc", "pid", "net", "uts", "cgroup-try")]
        # to become a user that is counted separately
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-all"]
    for folder in SYSTEM:
        if Path(folder).is_symlink():
            command += ["--symlink", os.readlink(folder), folder]
        elif Path(folder).exists():
            command += ["--ro-bind", folder, folder]
    if python != prefix:
        command += ["--ro-bind", str(prefix), str(python)]
        command += ["--setenv", "LD_LIBRARY_PATH", f"{python}/lib"]  # libpython, if it is apart
    for folder in _package_folders(python):  # what else is installed is not to be seen
        command += ["--tmpfs", folder, "--remount-ro", folder]
    for parent in (PACKAGES, *reversed(CHILD.parents[:-1]), CHILD):
        # else only root could enter those in between
        command += ["--perms", "0755", "--dir", str(parent)]
    numpy = Path(np.__file__).parent
    for path in (numpy, numpy.with_name("numpy.libs")):
        command += ["--ro-bind-try", str(path), f"{PACKAGES}/{path.name}"]
    for file in FOLDER.glob("*.py"):  # compiled ones hold the names of folders here
        command += ["--ro-bind", str(file), f"{CHILD}/{file.name}"]
    command += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    command += ["--size", str(ROOM), "--perms", "1777", "--tmpfs", "/tmp", "--chdir", "/tmp"]
    command += ["--remount-ro", "/"]
    paths = f"{PACKAGES}:{CHILD.parent}"
    for name, value in {**ENVIRONMENT, "HOME": "/tmp", "PYTHONPATH": paths}.items():
        command += ["--setenv", name, value]
    return [*command, str(python / executable.relative_to(prefix)), "-P", "-s", "-m", CHILD.name]


def _package_folders(python: Path) -> Iterator[str]:
    """Yield the folders of installed packages, under their names inside."""
    version = f"python{sysconfig.get_python_version()}"
    if python not in map(Path, SYSTEM):
        yield f"{python}/lib/{version}/site-packages"
    for folder in ("/usr/lib/python3", f"/usr/lib/{version}", f"/usr/local/lib/{version}"):
        for packages in ("dist-packages", "site-packages"):
            if Path(folder, packages).exists():
                yield f"{folder}/{packages}"
