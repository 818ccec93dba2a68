"""run_calls: call a student's function in a separate process, so that it may crash or hang.

A guard against accidents, not against malice. The process may read, write and delete anything that
its user may, and a child that it starts in a separate session outlives it.
"""

import faulthandler
import gc
import io
import os
import selectors
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, NamedTuple, NoReturn

from mha_numpy.checks import check_count, check_number
from mha_numpy.errors import ConfigError, SandboxError
from mha_numpy.teach.exercises.child.calls import make_calls, tell_all, undisturbed
from mha_numpy.teach.exercises.child.errors import ending, place_of
from mha_numpy.teach.exercises.child.limits import Limits, in_bytes
from mha_numpy.teach.exercises.child.messages import (
    Asked,
    Call,
    Ended,
    Loaded,
    Message,
    Started,
    read_messages,
    write_message,
)

DAY = 86_400  # seconds; timers hold little more
CHUNK = 2**16  # bytes: what a pipe holds
GRACE = 0.2  # seconds
ASKED = 1.0  # seconds for a line of Python to come to its end
START = 60.0  # seconds that a sandbox may take to start, on a busy machine
VMSTAT = Path("/proc/vmstat")  # Linux: how many processes were killed for lack of memory, and more
STOPS = (signal.SIGINT, signal.SIGTERM)
LIMITS = Limits()
UNREADABLE = "its answers cannot be read"


class Run(NamedTuple):
    """The results of all calls."""

    calls: list[Call]  # those that came to an end
    printed: str  # on stdout and stderr
    ended: str  # "" if all calls were made, else in a line why not
    seconds: float = 0.0  # that it took, without the start of its process


def run_calls(
    get_function: Callable[[], Callable[..., Any]],
    inputs: Sequence[Mapping[str, Any]],
    limits: Limits = LIMITS,
) -> Run:
    """Call a function once for each of the inputs, in a child process within limits.

    `get_function` is called in the child, and may import a student's file. Inputs are arguments by
    name, which are passed by position, in order. Each call gets writable deep copies; one array
    under two names stays one. Answers contain arrays, numbers, strings, None and ``...``, in
    tuples, lists and dicts; NamedTuples become dicts, NumPy scalars arrays, and anything else
    `Foreign`.

    Notes
    -----
    The child is forked, so that a notebook's functions can be called, which cannot be pickled.
    Changes in its memory do not show here. Answers come back as bytes, which become only builtins,
    arrays and `Foreign`. An error's line is the deepest one outside installed packages. Warnings
    are ignored, as are overflow and division by zero in NumPy. Memory is limited only on Linux.
    Where processes do not fork (Windows, a browser), the calls are made in this process, without
    any limit.
    """
    heard = Heard(len(inputs), check_limits(limits))
    return run_messages(make_calls(get_function, inputs), heard)


def run_messages(messages: Iterator[Message], heard: "Heard") -> Run:
    """Make the messages of a run in a child process, as `run_calls` does, and hear them here."""
    if can_fork():
        _run_in_a_child(lambda tell: _tell_there(messages, tell, heard.limits), heard)
    else:
        _run_here(messages, heard)
    return heard.run


def can_fork() -> bool:
    """Return whether a process can fork here: Python in a browser has the function, but cannot."""
    return hasattr(os, "fork") and sys.platform != "emscripten"


def check_limits(limits: Limits) -> Limits:
    """Return limits that make sense, or raise a ConfigError."""
    if check_number("limits.seconds", limits.seconds, positive=True) > DAY:
        raise ConfigError(f"limits.seconds: expected {DAY} (a day) or less; got {limits.seconds}")
    check_count("limits.memory", limits.memory)
    check_count("limits.output", limits.output, least=0)
    return limits


class Heard:
    """The messages of a run so far."""

    def __init__(
        self,
        count: int,
        limits: Limits,
        *,
        is_started: bool = True,
        reply: Callable[[int, Asked], str] | None = None,  # to the call with this number
    ):
        self.count, self.limits, self.is_started = count, limits, is_started
        self.reply = reply
        self.begun = time.monotonic()
        self.deadline = self.begun + (limits.seconds if is_started else START)
        self.starved = _count_starved()
        self.is_loaded, self.ended = False, ""
        self.calls: list[Call] = []
        self.unread, self._output = bytearray(), bytearray()

    def hear(self, message: Message) -> None:
        """Take in the next message, if one is due."""
        if self.is_over:
            return
        match message:
            case Started() if not self.is_started:
                self.is_started, self.begun = True, time.monotonic()
                self.deadline = self.begun + self.limits.seconds
            case Loaded():
                self.is_loaded = True
            case Call():
                self.calls.append(message)
            case Asked():
                self.ended = self.reply(len(self.calls), message) if self.reply else UNREADABLE
            case Ended(why):
                self.ended = why

    def hear_output(self, chunk: bytes) -> None:
        """Keep the printed text, up to a limit."""
        if len(self._output) <= 4 * self.limits.output:  # a character has up to 4 bytes
            self._output += chunk

    @property
    def is_over(self) -> bool:
        """Whether no more messages are due."""
        return bool(self.ended) or (self.is_loaded and len(self.calls) == self.count)

    @property
    def run(self) -> Run:
        """The results so far."""
        return Run(self.calls, self.printed, self.ended, time.monotonic() - self.begun)

    @property
    def printed(self) -> str:
        """The printed text, cut to the limit."""
        text, most = self._output.decode(errors="replace"), self.limits.output
        return text if len(text) <= most else f"{text[:most]}\n... (cut after {most} characters)"

    @property
    def place(self) -> str:
        """The place that the run has reached."""
        return f"call {len(self.calls) + 1} of {self.count}" if self.is_loaded else "while loading"


def _run_here(messages: Iterator[Message], heard: Heard) -> None:
    output = io.StringIO()
    try:
        with undisturbed(output):
            for message in messages:
                heard.hear(message)
    except (Exception, SystemExit) as error:
        heard.hear(Ended(ending(error, heard.limits)))
    heard.hear_output(output.getvalue().encode(errors="backslashreplace"))


def _run_in_a_child(work: Callable[[IO[bytes]], None], heard: Heard) -> None:
    """Let a child do the work; end it with all that it started, and say why if it ends early."""
    child, is_late = 0, True
    with pipe() as (results, tell), pipe() as (output, show):
        held = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # until it is known who is who
        try:
            child = _fork()
            if child == 0:
                results.close()  # who holds an end to read from can wait forever for a reader
                output.close()
                _be_the_child(work, tell, show, heard.limits)
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            tell.close()  # so that results end with the child; output has no end
            listen(heard, results, output)
            is_late = time.monotonic() >= heard.deadline
            if is_late and not heard.is_over:
                _ask_where(child, heard, results, output)
        finally:
            code = _end(child, 0.0 if heard.is_over or is_late else GRACE) if child else 0
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        conclude(heard, output, code, is_late=is_late)


def conclude(heard: Heard, output: IO[bytes], code: int, *, is_late: bool) -> None:
    """Take in what is left after a child's end, and say why if it ended early."""
    if not heard.is_over:
        death = _death(code, heard.limits, is_late, _count_starved() > heard.starved)
        heard.hear(Ended(f"{death} ({heard.place})"))
    os.set_blocking(output.fileno(), False)
    with suppress(BlockingIOError):  # nothing is left
        heard.hear_output(os.read(output.fileno(), CHUNK))


@contextmanager
def pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open the two ends of a pipe."""
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as reader, open(write, "wb") as writer:
        yield reader, writer


def _fork() -> int:
    """Fork, without Python's (3.12) and JAX's warnings about threads: the child uses none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*fork")
        return os.fork()


def listen(heard: Heard, results: IO[bytes], output: IO[bytes]) -> None:
    """Take in messages and output until the run is over, the child has ended, or the time is up."""
    size = 0
    with selectors.DefaultSelector() as selector:
        for pipe in (results, output):
            selector.register(pipe, selectors.EVENT_READ)
        while not heard.is_over and (left := heard.deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, CHUNK)
                if key.fileobj is output:
                    heard.hear_output(chunk)
                    continue
                if not chunk:
                    return
                heard.unread += chunk
                size += len(chunk)
                if size > heard.limits.answers:
                    heard.hear(Ended(f"returned more than {in_bytes(heard.limits.answers)}"))
                    return
                try:
                    for message in read_messages(heard.unread):
                        heard.hear(message)
                except SandboxError:  # of this process
                    raise
                except Exception:  # written by somebody else
                    heard.hear(Ended(UNREADABLE))


def _ask_where(child: int, heard: Heard, results: IO[bytes], output: IO[bytes]) -> None:
    """Have a child report, if Python still runs in it, that it is late, and at which line."""
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGURG)
    heard.deadline = time.monotonic() + ASKED
    listen(heard, results, output)
    if heard.ended:
        heard.ended += f" ({heard.place})"


def _end(child: int, grace: float) -> int:
    """Kill a child and its group; return its exit code, or the negative number of a signal.

    It has a moment to end by itself.
    """
    _wait(child, grace)
    for kill in (os.killpg, os.kill):  # it may not have a group yet
        with suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):  # SIGCHLD is ignored: unknown
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return -signal.SIGKILL


def _wait(child: int, seconds: float) -> None:
    """Wait for the end of a child, and leave its exit code to be asked for."""
    until, is_there = time.monotonic() + seconds, os.WEXITED | os.WNOHANG | os.WNOWAIT
    with suppress(ChildProcessError):
        while time.monotonic() < until and os.waitid(os.P_PID, child, is_there) is None:
            time.sleep(0.002)


def _count_starved() -> int:
    """Return how many processes the kernel has killed for lack of memory, if it says so."""
    with suppress(OSError):
        counts = dict(line.split() for line in VMSTAT.read_text().splitlines())
        return int(counts.get("oom_kill", 0))
    return 0


def _death(code: int, limits: Limits, is_late: bool, is_starved: bool) -> str:
    if is_late and -code in (0, signal.SIGKILL, signal.SIGALRM):
        return _too_late(limits)
    if code >= 0:
        return f"ended the process: os._exit({code})"
    if -code == signal.SIGKILL:
        return f"was killed {'for lack of memory' if is_starved else '(SIGKILL)'}"
    if -code == signal.SIGXCPU:
        return "used up its processor time (SIGXCPU)"
    return f"crashed: {signal.strsignal(-code)}".lower()


def _too_late(limits: Limits) -> str:
    return f"took longer than {limits.seconds:g} s and was stopped"


def _be_the_child(
    work: Callable[[IO[bytes]], None], tell: IO[bytes], show: IO[bytes], limits: Limits
) -> NoReturn:
    """Let go of the parent's terminal, signals, input and output; work, and end."""
    try:
        os.setsid()
        gc.freeze()  # the parent's garbage is not finalized here
        faulthandler.disable()
        signal.set_wakeup_fd(-1)
        for stop in (*STOPS, signal.SIGALRM):
            signal.signal(stop, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limits.seconds + 1)  # if there is no parent any more
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*STOPS, signal.SIGALRM))
        sys.stdin = open(os.devnull)  # noqa: SIM115
        os.dup2(sys.stdin.fileno(), 0)
        for stream in (1, 2):
            os.dup2(show.fileno(), stream)
        work(tell)
    finally:
        os._exit(0)


def _tell_there(messages: Iterator[Message], tell: IO[bytes], limits: Limits) -> None:
    def say_where(_: int, frame: FrameType | None) -> None:
        if place := place_of(frame):  # else an answer may be half written
            write_message(tell, Ended(_too_late(limits) + place))

    signal.signal(signal.SIGURG, say_where)
    tell_all(messages, tell, limits)
