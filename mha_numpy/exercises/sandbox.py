"""run_calls: call somebody's function in a process of its own, whatever it does there.

A guard against accidents, not against malice: the process may read, write and delete what its user
may, and what it starts in a session of its own outlives it.
"""

import builtins
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
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np

from mha_numpy.checks import check_count, check_number
from mha_numpy.cost.report import in_bytes
from mha_numpy.errors import ConfigError
from mha_numpy.exercises.runner import (
    Call,
    Message,
    messages,
    one_line,
    place,
    read_frames,
    told,
    write_frame,
)

DAY = 86_400  # seconds; timers hold little more
CHUNK = 2**16  # bytes: what a pipe holds
STOPS = (signal.SIGINT, signal.SIGTERM)
STATM = Path("/proc/self/statm")  # Linux: pages of address space, and more


class Limits(NamedTuple):
    """What a run may take: loading and all calls together."""

    seconds: float = 10.0  # of wall time
    memory: int = 2 * 2**30  # bytes, beyond those that the process has already
    output: int = 20_000  # characters that are kept of what it prints


LIMITS = Limits()


class Run(NamedTuple):
    """What came of all calls."""

    calls: list[Call]  # those that came to an end
    printed: str  # on stdout and stderr
    ended: str  # "" if all calls were made, else in a line why not


def run_calls(
    get_function: Callable[[], Callable[..., Any]],
    inputs: Sequence[Mapping[str, Any]],
    limits: Limits = LIMITS,
) -> Run:
    """Call a function once for each of the inputs, in a child process within limits.

    Parameters
    ----------
    get_function : callable
        Called in the child; returns the function. It may import somebody's file.
    inputs : sequence of mappings
        Arguments by name, handed over by position, in order. Each call gets deep copies, writable;
        one array under two names stays one.
    limits : Limits
        Wall time, memory and output.

    Returns
    -------
    Run
        The calls that came to an end, what was printed, and why there are no more calls. Answers
        hold arrays, numbers, strings, None and ``...``, in tuples, lists and dicts; a NamedTuple
        has become a dict, a NumPy scalar an array, and all else `Foreign`.

    Raises
    ------
    ConfigError
        A limit makes no sense, or is longer than a day.

    Notes
    -----
    The child is forked, so that a function of a notebook, which cannot be pickled, can be called;
    nothing that it does to its memory is seen here. Answers come back as bytes, from which nothing
    but builtins, arrays and `Foreign` is made. An error's line is the deepest one outside of
    installed packages. Warnings are ignored, as are overflow and division by zero in NumPy. Memory
    is limited on Linux alone. Where processes do not fork (Windows, a browser), the calls are made
    in this process, without any limit.

    Examples
    --------
    >>> def mine(x):
    ...     x /= x.sum()
    ...     return x
    >>> run_calls(lambda: mine, [{"x": np.array([1.0, 3.0])}]).calls[0][:3]
    (array([0.25, 0.75]), '', ('x',))
    """
    if check_number("limits.seconds", limits.seconds, positive=True) > DAY:
        raise ConfigError(f"limits.seconds: expected {DAY} (a day) or less; got {limits.seconds}")
    check_count("limits.memory", limits.memory)
    check_count("limits.output", limits.output, least=0)
    heard = _Heard(len(inputs), limits)
    told_of = messages(get_function, inputs)
    if hasattr(os, "fork"):
        _run_in_a_child(told_of, heard)
    else:
        _run_here(told_of, heard)
    return Run(heard.calls, heard.printed, heard.ended)


class _Heard:
    """What has been heard of a run so far."""

    def __init__(self, count: int, limits: Limits):
        self.count, self.limits = count, limits
        self.is_loaded, self.ended = False, ""
        self.calls: list[Call] = []
        self._output = bytearray()

    def hear(self, message: Message) -> None:
        """Take in the next message."""
        if message is None:
            self.is_loaded = True
        elif isinstance(message, str):
            self.ended = message
        else:
            self.calls.append(message)

    def hear_output(self, chunk: bytes) -> None:
        """Keep what was printed, as far as it is wanted."""
        if len(self._output) <= 4 * self.limits.output:  # a character has up to 4 bytes
            self._output += chunk

    @property
    def is_over(self) -> bool:
        """Whether no message is to come."""
        return bool(self.ended) or (self.is_loaded and len(self.calls) == self.count)

    @property
    def printed(self) -> str:
        """What was printed, cut to the limit."""
        text, most = self._output.decode(errors="replace"), self.limits.output
        return text if len(text) <= most else f"{text[:most]}\n... (cut after {most} characters)"

    @property
    def place(self) -> str:
        """Where the run is now."""
        return f"call {len(self.calls) + 1} of {self.count}" if self.is_loaded else "on loading"


def _run_here(messages: Iterator[Message], heard: _Heard) -> None:
    """Make the calls in this process."""
    output = io.StringIO()
    try:
        with _undisturbed(output):
            for message in messages:
                heard.hear(message)
    except (Exception, SystemExit) as error:
        heard.hear(_ending(error, heard.limits))
    heard.hear_output(output.getvalue().encode(errors="backslashreplace"))


def _run_in_a_child(messages: Iterator[Message], heard: _Heard) -> None:
    """Have the calls made by a child; end it with all that it started, and say why if early."""
    limits, child = heard.limits, None
    with _pipe() as (results, tell), _pipe() as (output, show):
        held = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # until it is known who is who
        try:
            child = _fork()
            if child == 0:
                results.close()  # who holds an end to read from can wait forever for a reader
                output.close()
                _be_the_child(messages, tell, show, limits)
            deadline = time.monotonic() + limits.seconds
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            tell.close()  # so that results end with the child; output has no end
            _listen(heard, results, output, deadline)
            is_late = time.monotonic() >= deadline
        finally:
            code = _end(child) if child else 0
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        if not heard.is_over:
            heard.hear(f"{_death(code, limits, is_late=is_late)} ({heard.place})")
        os.set_blocking(output.fileno(), False)
        with suppress(BlockingIOError):  # nothing is left
            heard.hear_output(os.read(output.fileno(), CHUNK))


@contextmanager
def _pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open the two ends of a pipe."""
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as reader, open(write, "wb") as writer:
        yield reader, writer


def _fork() -> int:
    """Fork, without Python's (3.12) and JAX's warnings about threads: the child uses none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*fork")
        return os.fork()


def _listen(heard: _Heard, results: IO[bytes], output: IO[bytes], deadline: float) -> None:
    """Take in messages and output until the run is over, the child gone, or the time up."""
    unread, size = bytearray(), 0
    with selectors.DefaultSelector() as selector:
        for pipe in (results, output):
            selector.register(pipe, selectors.EVENT_READ)
        while not heard.is_over and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, CHUNK)
                if key.fileobj is output:
                    heard.hear_output(chunk)
                    continue
                if not chunk:
                    return
                unread += chunk
                size += len(chunk)
                if size > heard.limits.memory:
                    heard.hear(_too_much(heard.limits))
                    return
                try:
                    for message in read_frames(unread):
                        heard.hear(message)
                except Exception:  # written by somebody else
                    heard.hear("its answers cannot be read")


def _end(child: int) -> int:
    """Kill a child and its group; return its exit code, or the negative number of a signal."""
    for kill in (os.killpg, os.kill):  # it may not have a group yet
        with suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):  # SIGCHLD is ignored: nobody knows
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return -signal.SIGKILL


def _death(code: int, limits: Limits, *, is_late: bool) -> str:
    """Say how a child ended that had more to tell."""
    if code >= 0:
        return f"ended the process: os._exit({code})"
    if is_late and -code in (signal.SIGKILL, signal.SIGALRM):
        return f"took longer than {limits.seconds:g} s and was stopped"
    if -code == signal.SIGKILL:
        return "was killed, perhaps for lack of memory"
    return f"crashed: {signal.strsignal(-code)}".lower()


def _be_the_child(
    messages: Iterator[Message], tell: IO[bytes], show: IO[bytes], limits: Limits
) -> NoReturn:
    """Make the calls and tell of each, and never come back."""
    try:
        _cut_loose(show, limits)
        raw = open(1, "wb", buffering=0, closefd=False)  # noqa: SIM115
        output = io.TextIOWrapper(
            raw, encoding="utf-8", errors="backslashreplace", write_through=True
        )
        with _undisturbed(output):
            _tell_all(messages, tell, limits)
    finally:
        os._exit(0)


def _cut_loose(show: IO[bytes], limits: Limits) -> None:
    """Let go of the parent's terminal, signals, input and output."""
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
    builtins.input = _no_input


def _no_input(*_: object) -> NoReturn:
    """Stand for `input`, which would ask the reader of a notebook."""
    raise EOFError("input() cannot be answered here")


@contextmanager
def _undisturbed(output: IO[str]) -> Iterator[None]:
    """Collect what is printed, and have no warnings."""
    with (
        redirect_stdout(output),
        redirect_stderr(output),
        np.errstate(all="ignore"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def _tell_all(messages: Iterator[Message], tell: IO[bytes], limits: Limits) -> None:
    """Write every message, and at last why there are no more."""
    import resource  # not on Windows

    def limit(kind: int, most: int) -> None:
        soft, hard = resource.getrlimit(kind)
        least = min(n for n in (most, soft, hard) if n != resource.RLIM_INFINITY)
        resource.setrlimit(kind, (least, hard))

    def write(message: Message) -> None:
        if os.getpid() != child:
            os._exit(0)  # forked by the function
        write_frame(tell, message)

    child, unlimited = os.getpid(), resource.getrlimit(resource.RLIMIT_AS)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_FSIZE, limits.memory)
    try:
        if STATM.exists():
            pages = int(STATM.read_text().split()[0])
            limit(resource.RLIMIT_AS, pages * resource.getpagesize() + limits.memory)
        for message in messages:
            write(message)
    except BaseException as error:
        resource.setrlimit(resource.RLIMIT_AS, unlimited)  # to tell of it takes some
        write(_ending(error, limits))


def _ending(error: BaseException, limits: Limits) -> str:
    """Say what ended a run from within."""
    if isinstance(error, MemoryError):
        return _too_much(limits) + told(error).removeprefix(type(error).__name__)
    if isinstance(error, SystemExit):
        code = "" if error.code is None else one_line(repr(error.code), 80)
        return f"ended the process: sys.exit({code}){place(error)}"
    return told(error)


def _too_much(limits: Limits) -> str:
    """Say that memory has been at its limit."""
    return f"asked for more than {in_bytes(limits.memory)} of memory"
