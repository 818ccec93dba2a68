"""run_calls: whatever a function does, one line says it, and this process is as it was before."""

import ctypes
import gc
import json
import os
import pickle
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.exercises import sandbox
from mha_numpy.teach.exercises.child import limits as child_limits
from mha_numpy.teach.exercises.child.calls import load
from mha_numpy.teach.exercises.child.values import Foreign
from mha_numpy.teach.exercises.sandbox import LIMITS, run_calls

resource = pytest.importorskip("resource", reason="there are no limits here")
ONCE = [{"x": np.array([1.0, np.nan, -3.0])}]
QUICK = LIMITS._replace(seconds=0.3)
SMALL = LIMITS._replace(memory=64 * 2**20)
Pair = namedtuple("Pair", "one other")


def run(function, inputs=ONCE, limits=LIMITS):
    return run_calls(lambda: function, inputs, limits)


def answer_of(function, inputs=ONCE):
    result = run(function, inputs)
    assert not result.ended
    assert not result.calls[0].error
    return result.calls[0].answer


def forever(x):
    while True:
        time.sleep(1)


def double(x):
    return 2 * x


@contextmanager
def let_go():
    """Have a pipe that children inherit; at the end wait until none of them lives."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)  # by programs too
    try:
        yield
        os.close(writer)
        assert select.select([reader], [], [], 8)[0], "somebody still lives"
    finally:
        os.close(reader)


@pytest.fixture
def ctrl_c():
    """Interrupt as at a terminal, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


PRELUDE = """
import atexit, ctypes, faulthandler, os, signal, sys, time
import numpy as np
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.sandbox import run_calls

def run(function, limits=Limits(memory=32 * 2**20)):
    return run_calls(lambda: function, [{"x": 1.0}], limits)
"""


def script(text, **options):
    """Run a program that calls run_calls as its user."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + dedent(text)],
        capture_output=True, text=True, check=False, timeout=30,
        cwd=Path(__file__).parents[3], **options,
    )  # fmt: skip


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


class TestAnswers:
    def test_numbers_texts_and_containers_come_back(self):
        answer = (None, ..., True, 10**50, 0.5, 2j, "é\ud800", [1, (2,)], {"a": {"b": []}})
        got = answer_of(lambda x: (*answer, Pair(3, 4), {5: 6}, {1}, np.float32(1)))
        *others, number = got
        assert others == [*answer, {"one": 3, "other": 4}, {"5": 6}, Foreign("{1} of type set")]
        assert [type(part) for part in got[: len(answer)]] == [type(part) for part in answer]
        assert (type(number), number.dtype) == (np.ndarray, np.float32)

    def test_nothing_of_an_answer_is_executed_here(self, tmp_path):
        bomb = Bomb(str(tmp_path / "executed"))
        assert type(answer_of(lambda x: [bomb])[0]) is Foreign

        def forge(x):
            frame = sys._getframe()
            while frame.f_code.co_name != "tell_all":
                frame = frame.f_back
            message = pickle.dumps(bomb)
            frame.f_locals["tell"].write(len(message).to_bytes(8) + message)
            return x

        assert run(forge).ended == "its answers cannot be read"
        assert not list(tmp_path.iterdir())

    def test_a_call_takes_its_time(self):
        assert 0.05 < run(lambda x: time.sleep(0.05)).calls[0].seconds < 5


class TestInputs:
    def test_they_go_by_position_in_order(self):
        given = {"b": np.ones(2), "a": 3}
        assert answer_of(lambda first, second: [len(first), second], [given]) == [2, 3]

    def test_each_call_gets_writable_copies_of_its_own(self):
        x, y = np.ones(3), np.arange(6).reshape(2, 3).T
        x.flags.writeable = y.flags.writeable = False

        def add(pair, more):
            pair.one[0] += 1
            more["deep"][0] += 1
            return type(pair) is Pair, pair.one, more["deep"][0], more["deep"][0].strides

        result = run(add, [{"pair": Pair(x, None), "more": {"deep": [y]}}] * 2)
        for call in result.calls:
            assert call.error == ""
            is_pair, one, deep, strides = call.answer
            assert is_pair
            assert one.tolist() == [2, 1, 1]
            assert deep.tolist() == (y + 1).tolist()
            assert strides == y.strides
        assert x.tolist() == [1, 1, 1]

    def test_one_array_under_two_names_stays_one(self):
        def scale(q, k):
            q *= 2
            return k

        x = np.ones(1)
        call = run(scale, [{"q": x, "k": x}]).calls[0]
        assert (call.answer.item(), call.changed) == (2, ("q", "k"))

    def test_what_changed_is_named(self):
        def change(x, pair, more, number):
            pair.other[:] = 5
            more["left"] = more["left"] + 1
            more["list"].append(3)
            x[2] = np.nan
            return x

        given = {
            "x": np.array([1.0, np.nan, np.nan]), "pair": Pair(np.ones(2), np.ones(2)),
            "more": {"left": np.ones(1), "right": np.ones(1), "list": [1]}, "number": np.nan,
        }  # fmt: skip
        changed = run(change, [given]).calls[0].changed
        assert set(changed) == {"pair.other", "more.left", "more.list.1"}
        assert run(double).calls[0].changed == ()

    @pytest.mark.parametrize(
        "change",
        [
            lambda x: x.resize((2, 1), refcheck=False),
            lambda x: setattr(x.flags, "writeable", False),
            lambda x: np.negative(x, out=x),  # 0.0 becomes -0.0
        ],
    )
    def test_shape_flags_and_signs_of_zero_count(self, change):
        assert run(change, [{"x": np.zeros(2)}]).calls[0].changed == ("x",)

    def test_it_is_told_of_a_failed_call_too(self):
        def fail(x):
            x[0] = 7
            raise ValueError

        call = run(fail).calls[0]
        assert (call.error[:10], call.changed, call.answer) == ("ValueError", ("x",), None)


def inner(row):
    raise KeyError(row.size)


class SilentError(Exception):
    def __str__(self):
        raise ValueError


def raises_silently(x):
    raise SilentError


def raises_lines(x):
    raise ValueError("a\n\n b\x1b[31m" + "c" * 1000 + " in the end")


def endless(x):
    return endless(x)


ERRORS = [  # a function, how its error begins, and the line of this file that is told
    (
        lambda x: x @ np.ones((2, 2)), "ValueError: matmul: Input operand 1 has a mismatch",
        "lambda x: x @ np.ones((2, 2)), ",
    ),
    (endless, "RecursionError: maximum recursion depth", ""),
    (raises_silently, "SilentError: its message cannot be shown (line", "raise SilentError"),
    (raises_lines, "ValueError: a b\\x1b[31mccc", "raise ValueError("),
    (lambda x: input(), "EOFError: input() does not work here (line", "(lambda x: input(),"),
    # the deepest line that is nobody's package
    (lambda x: np.apply_along_axis(inner, 0, x), "KeyError: 3 (line", "raise KeyError(row.size)"),
    (lambda x: np.linalg.inv(x), "LinAlgError", "(lambda x: np.linalg.inv(x),"),
    (lambda x: json.loads("{"), "JSONDecodeError", '(lambda x: json.loads("{"),'),
    (lambda x, y: x, "TypeError: <lambda>() missing 1 required positional argument: 'y'", None),
    (3, "TypeError: 'int' object is not callable", None),
]  # fmt: skip


class TestErrors:
    @pytest.mark.parametrize(("function", "begin", "line"), ERRORS)
    def test_type_message_line_and_source(self, function, begin, line):
        error = run(function).calls[0].error
        assert error.startswith(begin)
        assert len(error) < 450
        if line is None:
            assert error == begin
            return
        number, told = re.search(r"\(line (\d+) of test_sandbox.py: `(.*)`\)$", error).groups()
        assert told.startswith(line.strip())
        assert line in Path(__file__).read_text().splitlines()[int(number) - 1]

    def test_other_calls_go_on(self):
        failed, right = run(lambda x: 1 // x, [{"x": 0}, {"x": 1}]).calls
        assert (failed.answer, failed.error[:17]) == (None, "ZeroDivisionError")
        assert (right.answer, right.error) == (1, "")

    def test_a_cell_is_called_a_cell(self):
        result = run_calls(lambda: load("def f(x): x.no", "/tmp/ipykernel_12/34.py", "f"), ONCE)
        assert "(line 1 of the cell: `def f(x): x.no`)" in result.calls[0].error

    def test_not_written_yet(self):
        def stub(x):
            raise NotImplementedError

        assert run(stub).calls[0][:2] == (..., "")


class TestLoading:
    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("\nx = = 2", "SyntaxError: invalid syntax (line 2 of mine.py: `x = = 2`)"),
            ("1 / 0", "ZeroDivisionError: division by zero (line 1 of mine.py: `1 / 0`)"),
            ("exit(3)", "ended the process: sys.exit(3) (line 1 of mine.py: `exit(3)`)"),
            ("import os; os._exit(4)", "ended the process: os._exit(4) (while loading)"),
            (
                "while True: pass",
                "took longer than 0.3 s and was stopped (line 1 of mine.py: `while True: pass`) "
                "(while loading)",
            ),
        ],
    )
    def test_trouble(self, text, told):
        result = run_calls(lambda: load(text, "mine.py", "f"), ONCE, QUICK)
        assert (result.calls, result.ended) == ([], told)

    def test_nothing_to_call(self):
        assert run(double, [])[:3] == ([], "", "")

    def test_warnings_of_the_file_are_none(self):
        result = run_calls(lambda: load("def f(x): return '\\d'", "mine.py", "f"), ONCE)
        assert result.calls[0].answer == "\\d"


def catches_everything(x):
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        with suppress(BaseException):
            forever(x)


class TestTime:
    @pytest.mark.slow
    def test_the_time_is_for_all_calls_and_may_end_while_an_answer_is_written(self):
        result = run(lambda x: x, [{"x": n} for n in range(400_000)], QUICK)
        assert re.fullmatch("took longer than 0.3 s and was stopped( .*)?", result.ended)

    def test_a_loop_is_stopped_and_earlier_calls_are_kept(self):
        def mine(x):
            while x == 3:
                np.mean([x])
            return x

        start = time.perf_counter()
        result = run(mine, [{"x": n} for n in (1, 2, 3, 4)], QUICK)
        assert [call.answer for call in result.calls] == [1, 2]
        assert re.fullmatch(
            r"took longer than 0.3 s and was stopped "
            r"\(line \d+ of test_sandbox.py: `(while x == 3:|np.mean\(\[x\]\))`\) \(call 3 of 4\)",
            result.ended,
        ), result.ended
        assert time.perf_counter() - start < 3

    def test_this_process_sleeps_meanwhile(self, monkeypatch):
        def close(x):
            os.closerange(0, 3)
            forever(x)

        looks, clock = [], time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: looks.append(clock()) or looks[-1])
        run(close, limits=QUICK)
        # two of them since a late child is asked for its line, and one for the seconds of the run
        assert 2 < len(looks) < 11


class TestMemory:
    @pytest.mark.slow
    def test_many_small_pieces(self):
        result = script("""
            def hog(step):
                def mine(x):
                    x = []
                    while True:
                        x = step(x)
                return mine

            print(run(hog(lambda x: [*x, np.ones(10**5)])).ended)
            print(run(hog(lambda x: x.append([x]) or x)).ended)
            print(run(hog(lambda x: x.append(str(len(x))) or x)).ended)
            print(run(hog(lambda x: (x,))).ended)
        """)  # a process that has run for long has room left in what it had
        told = result.stdout.splitlines()
        assert len(told) == 4, result
        for line in told:
            assert line.startswith("asked for more than 32 MiB of memory"), result

    def test_this_process_takes_no_more_either(self, monkeypatch, tmp_path):
        monkeypatch.setattr(child_limits, "STATM", tmp_path / "no such file")  # as on macOS
        result = run(lambda x: np.ones(10**6), ONCE * 9, LIMITS._replace(answers=20 * 2**20))
        assert len(result.calls) == 2
        assert result.ended == "returned more than 20 MiB"

    def test_a_lower_limit_of_ours_holds(self):
        with of_ours(resource.RLIMIT_AS, 2**40) as hard:
            limits = LIMITS._replace(memory=2**41)
            found = run(lambda x: resource.getrlimit(resource.RLIMIT_AS), limits=limits)
        assert found.calls[0].answer == (2**40, hard)

    def test_a_file_has_its_limit_too_and_there_is_no_core(self, tmp_path):
        def write(x):
            with open(tmp_path / "large", "wb") as file:
                file.truncate(SMALL.memory + 1)

        assert run(write, limits=SMALL).calls[0].error.startswith("OSError: [Errno 27] File too")
        with of_ours(resource.RLIMIT_CORE):
            assert answer_of(lambda x: resource.getrlimit(resource.RLIMIT_CORE)[0]) == 0


@contextmanager
def of_ours(kind, soft=None):
    """Have another soft limit in this process, by default the hard one."""
    before, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (hard if soft is None else soft, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(kind, (before, hard))


TOO_LARGE = (
    "asked for more than 64 MiB of memory: Unable to allocate 7.28 TiB for an array with shape "
    "(1000000, 1000000) and data type float64"
)
ENDS = [  # what ends a run, within which limits, and how that is told
    (lambda x: sys.exit(0), LIMITS, "ended the process: sys.exit(0) (line"),
    (lambda x: sys.exit(), LIMITS, "ended the process: sys.exit() (line"),
    (lambda x: sys.exit("by\ne"), LIMITS, "ended the process: sys.exit('by\\ne') (line"),
    (lambda x: os._exit(5), LIMITS, "ended the process: os._exit(5) (call 1 of 1)"),
    (lambda x: os._exit(0), LIMITS, "ended the process: os._exit(0) (call 1 of 1)"),
    (lambda x: ctypes.string_at(0), LIMITS, "crashed: segmentation fault (call 1 of 1)"),
    (lambda x: os.abort(), LIMITS, "crashed: aborted (call 1 of 1)"),
    (lambda x: os.kill(os.getpid(), 9), LIMITS, "was killed (SIGKILL) (call 1 of 1)"),
    (lambda x: os.kill(os.getpid(), 24), LIMITS, "used up its processor time (SIGXCPU) (call"),
    (lambda x: os.kill(os.getpid(), 2), LIMITS, "crashed: interrupt (call 1 of 1)"),
    (lambda x: os.kill(os.getpid(), 15), LIMITS, "crashed: terminated (call 1 of 1)"),
    (lambda x: (_ for _ in ()).throw(KeyboardInterrupt), LIMITS, "KeyboardInterrupt (line"),
    (catches_everything, QUICK, "took longer than 0.3 s"),
    (lambda x: os.kill(os.getpid(), signal.SIGSTOP), QUICK, "took longer than 0.3 s"),
    # holds the interpreter's lock
    (lambda x: ctypes.PyDLL(None).sleep(100), QUICK, "took longer than 0.3 s"),
    (lambda x: np.ones((10**6, 10**6)), SMALL, TOO_LARGE),
    (lambda x: np.broadcast_to(1.0, (10**6, 10**6)), SMALL, TOO_LARGE),  # as an answer
]


class TestEnd:
    @pytest.mark.parametrize(("function", "limits", "told"), ENDS)
    def test_is_told(self, capfd, function, limits, told):
        result = run(function, ONCE, limits)
        assert result.calls == []
        assert result.ended.startswith(told)
        assert result.printed == ""
        assert capfd.readouterr() == ("", "")

    def test_a_lack_of_memory_is_told_where_the_kernel_has_killed(self, monkeypatch, tmp_path):
        counted = tmp_path / "vmstat"
        counted.write_text("nr_free_pages 1\noom_kill 3\n")
        monkeypatch.setattr(sandbox, "VMSTAT", counted)

        def starved(x):
            counted.write_text("nr_free_pages 1\noom_kill 4\n")
            os.kill(os.getpid(), 9)

        assert run(starved).ended == "was killed for lack of memory (call 1 of 1)"
        assert run(lambda x: os.kill(os.getpid(), 9)).ended.startswith("was killed (SIGKILL)")

    def test_where_nobody_is_told_of_dead_children(self):
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            assert run(double).ended == ""
            assert run(forever, limits=QUICK).ended.startswith("took longer")
        finally:
            signal.signal(signal.SIGCHLD, before)


class TestOutput:
    def test_all_ways_of_printing(self, capfd):
        def speak(x):
            print("one", end=" ")
            sys.stderr.write("two ")
            os.write(1, b"three ")
            os.system("echo four; echo five >&2")
            print("\ud800é")
            os.write(2, b"\xff")
            os._exit(0)

        assert run(speak).printed == "one two three four\nfive\n\\ud800é\n\ufffd"
        assert capfd.readouterr() == ("", "")

    def test_a_lot_is_cut(self):
        def speak(x):
            sys.stdout.write("é" * 5 * 10**6)
            return 1

        result = run(speak, limits=LIMITS._replace(output=9))
        assert result.printed == "ééééééééé\n... (cut after 9 characters)"
        assert result.calls[0].answer == 1
        few = run(lambda x: print("12345678"), limits=LIMITS._replace(output=9))
        assert few.printed == "12345678\n"

    def test_without_end(self):
        def speak(x):
            while True:
                print("again")

        result = run(speak, limits=QUICK)
        assert result.printed.startswith("again\nagain\n")
        assert result.printed.endswith("... (cut after 20000 characters)")
        assert result.ended.startswith("took longer")

    def test_what_is_kept_does_not_grow(self):
        heard = sandbox.Heard(1, LIMITS._replace(output=10))
        for _ in range(10):
            heard.hear_output("€".encode())
        assert heard.printed == "€" * 10
        for _ in range(100):
            heard.hear_output(b"x" * 1000)
        assert len(heard._output) <= 2000

    def test_nothing_is_lost_at_the_end(self, monkeypatch):
        def read_no_output(heard, results, output):
            while os.read(results.fileno(), 1000):
                pass

        monkeypatch.setattr(sandbox, "listen", read_no_output)
        assert run(lambda x: print("last") or os._exit(0)).printed == "last\n"

    def test_there_is_no_input(self):
        reader, writer = os.pipe()
        before = os.dup(0)
        try:
            os.write(writer, b"ours")
            os.dup2(reader, 0)
            assert answer_of(lambda x: [sys.stdin.read(), len(os.read(0, 1))]) == ["", 0]
        finally:
            os.dup2(before, 0)
            for descriptor in (reader, writer, before):
                os.close(descriptor)


class TestOtherProcesses:
    def test_what_was_started_ends_with_it(self):
        def start(x):
            if os.fork() == 0:
                time.sleep(100)
            subprocess.Popen(["sleep", "100"], close_fds=False)
            threading.Thread(target=time.sleep, args=(100,)).start()
            return x

        with let_go():
            assert len(run(start).calls) == 1
        with let_go():
            run(lambda x: start(x) and forever(x), limits=QUICK)

    @pytest.mark.parametrize("exits", [False, True])
    def test_a_forked_twin_says_nothing(self, exits):
        def fork(x):
            child = os.fork()
            if child == 0 and exits:
                sys.exit()
            if child:
                os.waitpid(child, 0)
            return x

        result = run(fork, [{"x": n} for n in (1, 2, 3)])
        assert [call.answer for call in result.calls] == [1, 2, 3]
        assert result.ended == ""

    def test_one_that_escapes_does_not_hold_us_up(self):
        def escape(x):
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.setsid()
                os.write(writer, b"!")
                while True:
                    os.write(1, b"x" * 999)  # until nobody reads
            return len(os.read(reader, 1))

        with let_go():
            assert answer_of(escape) == 1


class TestThisProcess:
    @pytest.fixture(autouse=True)
    def descriptors_signals_and_streams_are_as_before(self):
        def state():
            with open(os.devnull) as file:
                descriptor = file.fileno()
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
            handlers = [signal.getsignal(number) for number in sandbox.STOPS]
            return descriptor, mask, handlers, sys.stdout, sys.stdin, np.geterr(), input

        before = state()
        yield
        assert state() == before

    def test_nobody_is_left_to_be_waited_for(self):
        pids = [
            run(function, limits=QUICK).printed.strip()
            for function in (
                lambda x: print(os.getpid()),
                lambda x: print(os.getpid()) or forever(x),
                lambda x: print(os.getpid()) or os._exit(1),
            )
        ]
        run_calls(lambda: 1 / 0, ONCE)
        for pid in pids:
            with pytest.raises(ChildProcessError):
                os.waitpid(int(pid), os.WNOHANG)

    @pytest.mark.usefixtures("ctrl_c")
    def test_ctrl_c_ends_the_child(self, monkeypatch):
        forked, fork = [], sandbox._fork
        monkeypatch.setattr(sandbox, "_fork", lambda: forked.append(fork()) or forked[-1])
        start = time.perf_counter()
        with let_go():
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                run(lambda x: os.fork() + forever(x))
        assert time.perf_counter() - start < 5
        with pytest.raises(ChildProcessError):  # nothing of it is left to be waited for
            os.waitpid(forked[0], os.WNOHANG)

    def test_a_fork_that_fails(self, monkeypatch):
        def fork():
            raise BlockingIOError("no more processes")

        monkeypatch.setattr(os, "fork", fork)
        with pytest.raises(BlockingIOError):
            run(double)

    @pytest.mark.slow
    def test_ctrl_c_just_after_the_fork_does_not_make_two_of_us(self):
        result = script("""
            os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGINT))
            print("ended", run(abs).ended, flush=True)
        """)
        assert (result.stdout, result.stderr) == ("ended crashed: interrupt (while loading)\n", "")

    @pytest.mark.slow
    def test_nothing_is_printed_twice_and_no_handler_runs_in_the_child(self):
        result = script("""
            atexit.register(print, "last")
            print("first")  # still in the buffer: stdout is a pipe
            assert run(lambda x: atexit.register(print, "never")).printed == ""
            run(sys.exit)
            faulthandler.enable()
            assert run(lambda x: ctypes.string_at(0)).printed == ""
        """)
        assert (result.stdout, result.stderr) == ("first\nlast\n", "")

    @pytest.mark.slow
    def test_the_child_ends_even_if_we_are_killed(self):
        with let_go():
            result = script(
                "run(lambda x: os.kill(os.getppid(), 9) or time.sleep(100), Limits(seconds=0.3))",
                close_fds=False,
            )
            assert result.returncode == -signal.SIGKILL

    @pytest.mark.slow
    def test_our_garbage_is_not_finalized_there(self, tmp_path):
        class Garbage:
            def __del__(self):
                (tmp_path / str(os.getpid())).touch()

        gc.disable()
        try:
            thing = Garbage()
            thing.cycle = thing
            del thing
            answer_of(lambda x: gc.collect())
            assert not list(tmp_path.iterdir())
        finally:
            gc.enable()
            gc.collect()
        assert len(list(tmp_path.iterdir())) == 1

    def test_signals_there_do_not_wake_us(self):
        def handle(x):
            signal.signal(signal.SIGUSR1, lambda *_: None)
            os.kill(os.getpid(), signal.SIGUSR1)

        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        with ours, theirs:
            before = signal.set_wakeup_fd(theirs.fileno())
            try:
                answer_of(handle)
            finally:
                signal.set_wakeup_fd(before)
            assert not select.select([ours], [], [], 0)[0]

    def test_warnings_and_errors_of_numpy_stay_ours(self):
        def careless(x):
            warnings.warn("careless", stacklevel=1)
            return np.float32(1e30) * np.float32(1e30)

        with np.errstate(all="raise"), warnings.catch_warnings():
            warnings.simplefilter("error")
            assert answer_of(careless) == np.inf
            with pytest.raises(FloatingPointError):
                careless(0) if not warnings.simplefilter("ignore") else None

    def test_no_warning_about_threads(self, monkeypatch):
        real = os.fork

        def fork():
            child = real()
            if child:  # as Python 3.12 does
                warnings.warn("This process is multi-threaded, use of fork()", stacklevel=1)
            return child

        monkeypatch.setattr(os, "fork", fork)
        assert answer_of(double)[0] == 2

    @pytest.mark.slow
    def test_in_a_thread(self):
        with ThreadPoolExecutor(9) as pool:
            found = list(pool.map(lambda n: answer_of(double, [{"x": n}]), range(50)))
        assert found == list(range(0, 100, 2))

    @pytest.mark.parametrize(
        "wrong",
        [{"seconds": 0}, {"seconds": np.nan}, {"seconds": 86401}, {"memory": 0.5}, {"output": -1}],
    )
    def test_limits_are_checked(self, wrong):
        with pytest.raises(ConfigError, match=f"limits.{next(iter(wrong))}: expected"):
            run(double, limits=LIMITS._replace(**wrong))


class TestWithoutFork:
    @pytest.fixture(autouse=True)
    def no_fork(self, monkeypatch):
        monkeypatch.delattr(os, "fork")

    def test_calls_are_made_here(self, capfd):
        def mine(x):
            print("é\ud800")
            x += 1
            return Pair(x, os.getpid())

        result = run(mine)
        assert result.calls[0].answer["other"] == os.getpid()
        assert result.calls[0].changed == ("x",)
        assert result.printed == "é\\ud800\n"
        assert ONCE[0]["x"][0] == 1
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize(
        ("get_function", "told"),
        [
            (lambda: sys.exit, "ended the process: sys.exit(0)"),
            (lambda: 1 / 0, "ZeroDivisionError: division by zero (line"),
            (lambda: lambda x: np.ones((10**7, 10**7)), "asked for more than 2 GiB of memory: Una"),
        ],
    )
    def test_ends(self, get_function, told):
        result = run_calls(get_function, [{"x": 0}])
        assert result.calls == []
        assert result.ended.startswith(told)

    @pytest.mark.usefixtures("ctrl_c")
    def test_ctrl_c_is_the_readers(self):
        with pytest.raises(KeyboardInterrupt):
            run(lambda x: signal.raise_signal(signal.SIGINT))


CELLS = [
    """
import sys
import numpy as np
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.sandbox import run_calls

def told(function, limits=Limits()):
    result = run_calls(lambda: function, [{"x": np.ones(2)}], limits)
    print([(c.answer, c.error) for c in result.calls], result.ended, result.printed[:7])
""",
    """
def closure(more):
    def mine(x):
        print("hello")
        return (x.sum() + more).item()
    return mine
def forever(x):
    while True:
        pass
told(closure(3))
told(forever, Limits(seconds=0.5))
told(lambda x: print("x" * 50_000_000))
told(lambda x: sys.exit(4))
told(lambda x: input("name?"))
""",
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # in the program that runs the kernel
def test_in_a_notebook():
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=60).execute()
    shown = [output.text for cell in notebook.cells for output in cell.outputs]
    no_input = "EOFError: input() does not work here"
    assert "".join(shown).splitlines() == [
        "[(5.0, '')]  hello",
        "",
        "[] took longer than 0.5 s and was stopped "
        "(line 7 of the cell: `while True:`) (call 1 of 1) ",
        "[(None, '')]  xxxxxxx",
        "[] ended the process: sys.exit(4) (line 12 of the cell: `told(lambda x: sys.exit(4))`) ",
        f"""[(None, '{no_input} (line 13 of the cell: `told(lambda x: input("name?"))`)')]  """,
    ]
