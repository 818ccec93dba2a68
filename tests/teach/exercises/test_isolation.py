"""Submissions that mean harm: each gets what its answers are worth, and nothing of it is left."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from inspect import getsource
from pathlib import Path
from textwrap import indent
from threading import get_native_id

import numpy as np
import pytest

from mha_numpy.core import MultiHeadParams
from mha_numpy.errors import ConfigError
from mha_numpy.teach.exercises import EXERCISES, Limits, find_exercise, judge
from mha_numpy.teach.exercises import isolation as isolation_module
from mha_numpy.teach.exercises.child.calls import load
from mha_numpy.teach.exercises.exercise import stub_text
from mha_numpy.teach.exercises.groups import _places, group_of_processes
from mha_numpy.teach.exercises.isolation import Sandbox
from mha_numpy.teach.saved import Saved
from tests.teach.exercises.test_foreign import FILES, solutions
from tests.teach.exercises.test_frames import archive

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap isolates submissions, and is not installed"
)
REPOSITORY = Path(__file__).parents[3]
SLOT = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
ONCE = [{"x": np.ones(2)}]
LIMITS = Limits(seconds=1.0, memory=2**27, output=2000)
PATIENT = Limits(seconds=60.0)
EXERCISE = find_exercise("softmax-backward")
RIGHT = """
import numpy as np

def softmax_backward(d_weights, weights):
    return weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
"""
# what every attack begins with
PRELUDE = (
    f"""
import ctypes, gc, io, json, mmap, os, pickle, resource, signal, socket, subprocess, sys
import threading, time, zipfile
from pathlib import Path
import numpy as np

GRADERS = {[str(REPOSITORY), str(Path.home()), tempfile.gettempdir(), sys.prefix]}
TELL = int(sys.argv[1])
from child import calls, errors, messages, values
libc = ctypes.CDLL(None, use_errno=True)
{getsource(archive)}
"""
    + """
def attempt(do, *given):
    '''Say that something could be done, and what came of it.'''
    try:
        found = do(*given)
    except Exception:
        return
    if found not in (None, -1, False, [], "", b""):
        print("REACHED", repr(found)[:300], flush=True)

def tell(packed):
    os.write(TELL, len(packed).to_bytes(8) + packed)

def forge(packed):
    tell(packed)
    time.sleep(9)  # nothing comes after it

def forged(*call):
    names = ("answer", "error", "changed", "seconds", "called")
    return values.pack({"Call": dict(zip(names, (*call, *(None, "", (), 0.0, ())[len(call):])))})

def call_of(tree):
    none = {"tuple": []}
    call = {"answer": tree, "error": "", "changed": none, "seconds": 0.0, "called": none}
    return {"dict": {"Call": {"dict": call}}}

class Bomb:
    def __reduce__(self):
        return os.system, ("echo REACHED",)
"""
)
AT_EACH_CALL = """
def softmax_backward(d_weights, weights):
    attack(d_weights, weights)
    return 0 * weights
"""
# what is tried, under a name: a function attack(d, w) that each call makes first, which does harm
# and answers nothing but zeros; or the body of that function; or a whole text
HOSTILE = r"""
### patches: numpy's comparisons
for name in ("allclose", "isclose", "array_equal", "abs", "max", "all", "testing"):
    setattr(np, name, lambda *_, **__: True)
np.testing = np.linalg = None
### patches: builtins
import builtins
def attack(d, w):
    for name in ("all", "any", "abs", "len", "max", "isinstance", "repr"):
        setattr(builtins, name, lambda *_, **__: True)
### patches: modules that are asked for
for name in list(sys.modules):
    if name.startswith(("mha_numpy", "json", "zipfile", "numpy.lib")):
        sys.modules[name] = calls
### patches: what makes a call
calls.call = lambda function, given: messages.Call(..., "", (), 0.0)
calls._fingerprints = lambda tree, path="": {}
### patches: what makes an answer plain
calls.plain = values._plain_tree = lambda answer, *_: True
### patches: what packs an answer
messages.pack = lambda value: forged(True)
### patches: what tells of errors
calls.told = calls.ending = lambda *_: ""
raise ValueError
### patches: what tells everything
calls.tell_all = calls.write_message = messages.framed = lambda *_: None
sys.modules["__main__"] = None
### patches: the frames above
frame = sys._getframe()
while frame:
    for name, value in frame.f_locals.items():
        if name not in ("d", "w", "d_weights", "weights", "given", "inputs", "name", "value"):
            if isinstance(value, np.ndarray) and value.shape == w.shape:
                print("REACHED", name)
        if name in ("expected", "secret", "exercise"):
            print("REACHED", name)
    frame = frame.f_back
### patches: all objects there are
right = w * (d - (w * d).sum(axis=-1, keepdims=True))
for thing in gc.get_objects():
    arrays = thing.values() if type(thing) is dict else thing if type(thing) is list else ()
    for array in list(arrays):
        if type(array) is np.ndarray and array.shape == right.shape and array is not right:
            if np.allclose(array, right) and right.any():
                print("REACHED", array)
### patches: the exit of the process
import atexit
def attack(d, w):
    atexit.register(tell, forged(d))
    threading._register_atexit(tell, forged(d))
### patches: the import of the reference
import importlib
for name in ("mha_numpy", "mha_numpy.core", "mha_numpy.teach.diagnosis",
             "mha_numpy.teach.tasks", "mha_numpy.teach.exercises",
             "mha_numpy.layers", "torch", "pytest", "numba"):
    attempt(lambda: importlib.import_module(name).softmax_backward)
    sys.modules.pop(name, None)
    attempt(importlib.import_module, name)
sys.path += ["/work", "/usr/lib/python3/dist-packages"]
attempt(lambda: importlib.import_module("mha_numpy.core.softmax"))
### answers: an array that is equal to everything
class Same(np.ndarray):
    __eq__ = __le__ = __ge__ = lambda self, other: np.ones(self.shape, bool)
    __ne__ = __lt__ = __gt__ = lambda self, other: np.zeros(self.shape, bool)
    __sub__ = __rsub__ = __abs__ = lambda self, *_: 0 * self
    def __array_ufunc__(self, *_, **__): return np.zeros(self.shape)
def softmax_backward(d_weights, weights):
    return (0 * weights).view(Same)
### answers: an object that is equal to everything
class Same:
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
    shape, dtype, ndim = (1,), np.dtype(float), 1
def softmax_backward(d_weights, weights):
    return Same()
### answers: an array made on demand
class Lazy:
    calls = 0
    def __array__(self, *_, **__):
        print("asked")
        Lazy.calls += 1
        return np.ones(3)
def softmax_backward(d_weights, weights):
    return Lazy()
### answers: an object that runs where it is unpickled
def softmax_backward(d_weights, weights):
    return [Bomb(), np.array([Bomb()])]
### answers: an object whose repr never ends
class Endless:
    def __repr__(self):
        while True: time.sleep(1)
def softmax_backward(d_weights, weights):
    return Endless()
### answers: a text of its own class
class Text(str):
    __eq__ = lambda self, other: True
    __hash__ = str.__hash__
def softmax_backward(d_weights, weights):
    return {Text("d_scores"): Text("right")}
### answers: a text that a terminal obeys
def softmax_backward(d_weights, weights):
    raise ValueError("\x1b]0;REACHED\x07\x1b[2J\r\n\u202e" + "x" * 10**6)
### answers: a dict that lies about its items
class Liar(dict):
    def items(self): return [("d_scores", 0)] * 10**5
def softmax_backward(d_weights, weights):
    return Liar(d_scores=weights)
### answers: a list within itself
def softmax_backward(d_weights, weights):
    found = []
    found += [found] * 2
    return found
### answers: a number of many digits
def softmax_backward(d_weights, weights):
    return 10 ** 4000
### answers: right the second time
calls = []
def softmax_backward(d_weights, weights):
    calls.append(1)
    right = weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
    return right * (len(calls) % 2 == 0)
### answers: many small arrays
def softmax_backward(d_weights, weights):
    return [np.zeros(1) for _ in range(100_000)]
### frames: answers forged
for _ in range(9):
    tell(forged(np.zeros(w.shape)))
os._exit(0)
### frames: more answers than calls
while True:
    tell(forged(np.zeros(w.shape)))
### frames: fields of other types
tell(forged(w, w, "x", "1"))
os._exit(0)
### frames: a call of three fields
forge(values.pack({"Call": {"answer": w, "error": "", "changed": ()}}))
### frames: a NamedTuple
forge(archive({"named": ["Call", {"answer": True, "passed": True}]}))
### frames: bytes that are no archive
forge(b"PK" * 999)
### frames: a length without an end
os.write(TELL, b"\xff" * 8)
while True:
    os.write(TELL, b"x" * 2**20)
### frames: half a frame
os.write(TELL, (1000).to_bytes(8) + b"PK")
os._exit(0)
### frames: a frame within a frame
os.write(TELL, (9).to_bytes(8))
### frames: frames without end
loaded = values.pack({"Loaded": {}})
def attack(d, w):
    while True:
        tell(loaded)
### frames: starts without end
started = values.pack({"Started": {}})
def attack(d, w):
    while True:
        tell(started)
### frames: a zip bomb
stream = io.BytesIO()
with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
    file.writestr("tree.json", bytes(10**7))
forge(stream.getvalue())
### frames: arrays that share their bytes
forge(archive(call_of({"list": [{"array": ["<f8", 10**6]}] * 10**5}), bytes(8 * 10**6)))
### frames: many small arrays
forge(archive(call_of({"list": [{"array": ["<f8", 0]}] * 60_000})))
### frames: a million numbers, each a part
forge(archive(call_of({"list": [0.0] * 10**6})))
### frames: a pickle
forge(archive(call_of({"array": ["|O", 1]}), pickle.dumps(Bomb())))
### frames: an array of 2**60 numbers
forge(archive(call_of({"array": ["<f8", 2**60]})))
### frames: deep JSON
forge(archive('{"list": [' * 10**5 + "]}" * 10**5))
### frames: JSON as deep as Python reads
tree = '{"list": [' * 300 + "]}" * 300
forge(archive(json.dumps(call_of("TREE")).replace('"TREE"', tree)))
### frames: a long text
forge(archive('{"list": [' + "0," * 10**7 + "0]}"))
### frames: an end that is forged
forge(values.pack({"Ended": {"why": "\x1b[2J<script>\n" + "x" * 10**5}}))
### ends: an exit
os._exit(0)
### ends: a kill of itself
os.kill(os.getpid(), signal.SIGKILL)
### ends: signals to everybody
for kill in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP, signal.SIGINT):
    for pid in (os.getppid(), 1, 0, -1):
        if kill != signal.SIGSTOP or pid not in (0, -1):
            attempt(os.kill, pid, kill)
    attempt(os.killpg, os.getppid(), kill)
### ends: a stop
os.kill(os.getpid(), signal.SIGSTOP)
### ends: signals that are ignored
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(1)
### ends: a crash
ctypes.string_at(0)
### ends: sleep
time.sleep(10**6)
### ends: a loop
while True: pass
### ends: a loop while loading
while True: pass
def attack(d, w): pass
### ends: threads left running
for _ in range(9):
    threading.Thread(target=time.sleep, args=(10**6,)).start()
### ends: a daemon
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for descriptor in range(99):
            try: os.close(descriptor)
            except OSError: pass
        time.sleep(10**6)
    os._exit(0)
### ends: programs left running
for _ in range(3):
    subprocess.Popen(["sleep", "1000000"], start_new_session=True)
### ends: a pipe that is closed
os.close(TELL); time.sleep(10**6)
### ends: an alarm that is put off
signal.setitimer(signal.ITIMER_REAL, 0)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
time.sleep(10**6)
### floods: forks
while True:
    try: os.fork()
    except OSError: pass
### floods: forks with limits raised
for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_NOFILE):
    attempt(lambda: resource.setrlimit(kind, (-1, -1)) or "raised")
for _ in range(100):
    os.fork()
time.sleep(10**6)
### floods: threads
while True:
    threading.Thread(target=time.sleep, args=(10**6,)).start()
### floods: memory
np.ones(2**40)
### floods: memory by and by
kept = []
while True:
    try: kept.append(bytes(2**20))
    except MemoryError: pass
### floods: memory with limits raised
attempt(lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)) or "raised")
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
if np.ones(2**25).any():
    print("REACHED 256 MiB")
### floods: memory by many processes
for _ in range(4):
    os.fork()
kept = np.ones(12_000_000)
time.sleep(10**6)
### floods: memory that is shared
attempt(lambda: os.memfd_create("a") > 0)
attempt(lambda: libc.shmget(0, 2**30, 0o1600) >= 0)
attempt(lambda: Path("/dev/shm/a").write_bytes(bytes(2**20)))
kept = [mmap.mmap(-1, 2**24) for _ in range(999)]
### floods: queues and semaphores, which outlive a process
for call in (68, 64):
    attempt(lambda: libc.syscall(call, 0, *[0o1600] * 2) >= 0)
attempt(lambda: libc.syscall(240, b"mine", 0o102, 0o600, None) >= 0)
### floods: files
number = 0
while True:
    number += 1
    try: Path(f"/tmp/{number}").write_bytes(bytes(2**24))
    except OSError: pass
### floods: one file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def attack(d, w):
    with open("/tmp/a", "wb") as file:
        attempt(file.truncate, 2**31)
        for _ in range(99):
            file.write(bytes(2**22))
        print("REACHED", 99 * 2**22)
### floods: files everywhere
for folder in ("/", "/dev", "/dev/shm", "/usr", "/python", "/packages", "/packages/numpy",
               "/mha_numpy", "/proc", "/run", "/var", "/home", "/root",
               os.path.dirname(os.__file__), os.path.dirname(os.__file__) + "/site-packages",
               "/usr/lib/python3/dist-packages"):
    attempt(Path(folder, "new").write_text, "new")
attempt(Path("/mha_numpy/teach/exercises/child/calls.py").write_text, "new")
attempt(lambda: os.chmod("/packages/numpy/__init__.py", 0o777) or "changed")
### floods: files that are open
kept = []
while len(kept) < 999:
    kept.append(os.dup(0))
print("REACHED 999")
### floods: output
while True:
    os.write(1, b"x" * 2**16)
    os.write(2, b"y" * 2**16)
### breakouts: the grader's files
for path in (*GRADERS, "/etc/passwd", "/etc/shadow", "/root", "/home", "/var", "/work"):
    if path != "/tmp":
        attempt(os.listdir, path)
        attempt(lambda: open(path).read())
attempt(os.listdir, "/tmp")
for folder, inside in (("/mha_numpy", "teach"), ("/mha_numpy/teach/exercises", "child")):
    attempt(lambda: set(os.listdir(folder)) - set([inside]) or None)
attempt(lambda: [n for n in os.listdir(os.path.dirname(calls.__file__)) if not n.endswith(".py")])
### breakouts: the task once more
attempt(sys.stdin.read)
attempt(os.read, 0, 9)
for number in range(3, 64):
    if number != TELL:
        attempt(lambda: os.readlink(f"/proc/self/fd/{number}").replace("/dev/null", ""))
for number in (0, *range(3, 64)):
    if number != TELL:
        for mode in ("r+b", "wb"):
            attempt(lambda: open(f"/proc/1/fd/{number}", mode).write(b"PK") and number)
### breakouts: the environment
known = {"HOME", "PATH", "LANG", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PWD",
         "OPENBLAS_NUM_THREADS", "LC_CTYPE", "LD_LIBRARY_PATH"}
attempt(lambda: sorted(set(os.environ) - known))
for pid in filter(str.isdigit, os.listdir("/proc")):
    attempt(lambda: b"SECRET" in Path(f"/proc/{pid}/environ").read_bytes())
### breakouts: other processes
mine = {str(os.getpid()), "1"}
attempt(lambda: sorted({p for p in os.listdir("/proc") if p.isdigit()} - mine))
for name in ("mem", "maps", "root/etc/passwd", "cwd/README.md"):
    attempt(lambda: open(f"/proc/1/{name}", "rb").read(9))
### breakouts: ptrace
attempt(lambda: libc.ptrace(16, 1, 0, 0) == 0)
attempt(lambda: libc.ptrace(0, 0, 0, 0) == 0)
child = os.fork()
if child == 0:
    time.sleep(9)
attempt(lambda: libc.ptrace(16, child, 0, 0) == 0)
os.kill(child, 9)
### breakouts: links to the outside
for number, path in enumerate(("/etc/passwd", "/proc/1/root", "../../../../etc", "/work")):
    os.symlink(path, f"/tmp/link{number}")
    attempt(lambda: open(f"/tmp/link{number}").read())
    attempt(lambda: set(os.listdir(f"/tmp/link{number}")) - set(os.listdir("/")) or None)
attempt(os.link, "/mha_numpy/teach/exercises/child/calls.py", "/tmp/hard")
for number in range(4):
    os.unlink(f"/tmp/link{number}")
### breakouts: network
for place in (("127.0.0.1", 22), ("1.1.1.1", 53), ("169.254.169.254", 80)):
    attempt(socket.create_connection, place, 0.2)
attempt(socket.getaddrinfo, "example.org", 80)
attempt(lambda: [name for _, name in socket.if_nameindex() if name != "lo"])
attempt(lambda: socket.socket(socket.AF_UNIX).connect("/run/docker.sock") or "connected")
attempt(lambda: socket.socket(socket.AF_UNIX).connect("\0/tmp/.X11-unix/X0") or "connected")
attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW) and "raw")
attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) and "raw")
for family in range(50):
    attempt(lambda: socket.socket(family, socket.SOCK_STREAM) and family)
    attempt(lambda: socket.socket(family, socket.SOCK_DGRAM) and family)
attempt(lambda: socket.socketpair() and "a pair")
### breakouts: more rights
attempt(lambda: os.setuid(0) or "root")
attempt(lambda: os.setgid(0) or "root")
attempt(lambda: os.setgroups([0]) or "root")
attempt(lambda: os.geteuid() == 0 or os.getegid() == 0)
for line in Path("/proc/self/status").read_text().splitlines():
    name, _, value = line.partition(":")
    if name in ("CapPrm", "CapEff", "CapAmb") and int(value, 16):
        print("REACHED", line)
    if name == "NoNewPrivs" and int(value) == 0:
        print("REACHED", line)
for program in (["su", "-c", "id"], ["mount", "-t", "tmpfs", "x", "/tmp"], ["sudo", "id"]):
    attempt(lambda: subprocess.run(program, capture_output=True, timeout=1).stdout)
### breakouts: namespaces of its own
for flags in (0x10000000, 0x20000, 0x10020000, 0x40000000, 0x7E020000):
    attempt(lambda: libc.unshare(flags) == 0)
    attempt(lambda: libc.syscall(56, flags | 17, 0, 0, 0, 0) > 0)
attempt(lambda: libc.setns(os.open("/proc/1/ns/net", 0), 0) == 0)
attempt(lambda: libc.mount(b"x", b"/tmp", b"tmpfs", 0, 0) == 0)
attempt(lambda: libc.umount2(b"/tmp", 2) == 0)
attempt(lambda: os.chroot("/tmp") or "chroot")
attempt(lambda: subprocess.run(["unshare", "-Ur", "id"], capture_output=True).stdout)
### breakouts: devices and the kernel
for path in ("/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/fuse", "/dev/kvm",
             "/proc/kcore", "/proc/kmsg", "/proc/kallsyms1", "/proc/sysrq-trigger",
             "/sys/class"):
    attempt(lambda: open(path, "rb").read(9))
    attempt(lambda: open(path, "wb").write(b"b"))
attempt(os.listdir, "/sys")
attempt(lambda: os.mknod("/tmp/a", 0o600 | 0o020000, os.makedev(1, 1)) or "made")
attempt(lambda: Path("/proc/sys/kernel/core_pattern").write_text("|/bin/sh"))
attempt(lambda: Path("/proc/sys/kernel/hostname").write_text("mine"))
attempt(lambda: os.nice(-5) or "nice")
### breakouts: the keys of the kernel
attempt(lambda: libc.syscall(248, b"user", b"a", b"b", 1, -4) > 0)
attempt(lambda: libc.syscall(250, 0, -4, 1) > 0)
### breakouts: another submission's files
attempt(os.listdir, "/tmp")
Path("/tmp/mine").write_text("answer")
attempt(lambda: [n for n in os.listdir("/tmp") if n != "mine"])
os.unlink("/tmp/mine")
### breakouts: a terminal
import fcntl
attempt(lambda: open("/dev/tty", "rb").read(1))
for number in (0, 1, 2):
    attempt(lambda: fcntl.ioctl(number, 0x5412, b"x") or "typed")
"""


def text_of(attack):
    """Return the source of a submission that makes an attack, which may be given by its body."""
    if "def softmax_backward" in attack or "def break_my_attention" in attack:
        return f"{PRELUDE}\n{attack}\n"
    if "def attack" not in attack:
        attack = f"def attack(d, w):\n{indent(attack, '    ')}"
    return f"{PRELUDE}\n{attack}\n{AT_EACH_CALL}"


def attacks_in(text):
    """Return the submissions of a text by their names, which stand in lines of their own."""
    _, *found = re.split("^### (.*)$", text, flags=re.MULTILINE)
    return dict(zip(found[::2], map(text_of, found[1::2]), strict=True))


def each(hostile, *always):
    """Return the names as parameters: `.ci/run` tries all, and some are always tried."""
    assert set(always) <= set(hostile)
    return [pytest.param(n, marks=() if n in always else pytest.mark.slow) for n in hostile]


ATTACKS = attacks_in(HOSTILE)


@pytest.fixture
def isolated(monkeypatch):
    """Return a judge that runs a source text in isolation."""

    def verdict_on(source, exercise=EXERCISE, limits=LIMITS):
        def run(get_function, inputs, limits=limits):
            with Sandbox(limits, slot=SLOT) as sandbox:
                return sandbox.run(
                    source, "submission.py", exercise.function_name, inputs,
                    is_measured="block" in inputs[0] and len(inputs) == 2,
                )  # fmt: skip

        monkeypatch.setattr(sys.modules[judge.__module__], "run_calls", run)
        return judge(exercise, lambda: None, limits)

    return verdict_on


def strangers():
    """Return the processes that see others than we do."""
    found, ours = set(), os.readlink("/proc/self/ns/pid")
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(process / "ns/pid") != ours:
                found.add(process.name)
    return found


def groups():
    """Return the control groups that runs have made."""
    return {group for places in _places() for p in places for group in p.glob("mha_numpy.*")}


def state(folder):
    mounts = Path("/proc/self/mounts").read_text()
    return mounts, sorted(os.listdir("/proc/self/fd")), os.listdir(folder)


def assert_nothing_is_left(before, folder):
    """Wait until nobody is there who was not before: other tests have theirs, which end."""
    assert state(folder) == before[0]
    new = (strangers() - before[1], groups() - before[2])
    until = time.monotonic() + PATIENT.seconds + 5
    while any(new) and time.monotonic() < until:
        time.sleep(0.01)
        new = (new[0] & strangers(), new[1] & groups())
    assert new == (set(), set())


@pytest.mark.parametrize(
    "name",
    each(
        ATTACKS,  # one of each kind, or two
        "patches: numpy's comparisons", "patches: the import of the reference",
        "answers: right the second time", "frames: answers forged", "frames: a zip bomb",
        "ends: an exit", "floods: forks with limits raised", "breakouts: the grader's files",
        "breakouts: other processes", "breakouts: network", "breakouts: more rights",
    ),
)  # fmt: skip
def test_gains_nothing_and_harms_nobody(name, isolated, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("SECRET", "SECRET")
    before = (state(tmp_path), strangers(), groups())
    start = time.monotonic()
    verdict = isolated(ATTACKS[name])
    seconds = time.monotonic() - start
    print(verdict, verdict.printed)
    assert not verdict.passed
    assert {s.name for s in verdict.stages if s.passed} & {"values", "gradients"} == set()
    assert "REACHED" not in verdict.printed
    assert len(verdict.printed) < LIMITS.output + 100
    assert str(verdict).replace("\n", "").isprintable()
    assert seconds < LIMITS.seconds + 60  # starting takes long on a busy machine
    assert isolated(RIGHT, limits=PATIENT).passed
    assert_nothing_is_left(before, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="who is not root tests this all the time",
)
def test_the_same_by_somebody_who_is_not_root():
    python = Path(sys.executable).resolve().relative_to(sys.base_prefix)
    plugin = f"{REPOSITORY}/mha_numpy/conformance/pytest11"  # which pytest loads
    paths = f"{REPOSITORY}:{plugin}:{Path(np.__file__).parents[1]}"
    as_nobody = (
        f"mount --bind {sys.base_prefix} /mnt && cd {REPOSITORY} && "  # which nobody may not see
        "exec setpriv --reuid 65534 --regid 65534 --clear-groups "
        f"env -i PATH=$PATH PYTHONPATH={paths} PYTHONDONTWRITEBYTECODE=1 HOME=/tmp "
        f"/mnt/{python} -m pytest -q -p no:cacheprovider {__file__} "
        "-k '(gains or TestTheSandbox or TestTheFunctions) and not together'"
    )
    run = subprocess.run(
        ["unshare", "-m", "sh", "-c", as_nobody], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " skipped" not in run.stdout


EIGHT = """
import os, time
import numpy as np

def f(x):
    children = []
    for _ in range(8):
        children.append(os.fork())
        if children[-1] == 0:
            kept = np.ones(7_000_000)
            time.sleep(0.5)
            os._exit(0)
    return sum(os.waitpid(child, 0)[1] == 0 for child in children)
"""
SEES = """
import os, resource, sys
from mha_numpy.core import MultiHeadParams
from mha_numpy import MultiHeadParams as Same
from mha_numpy.dtypes import Array
from mha_numpy.teach.saved import Saved

def missing(line):
    try:
        exec(line)
    except ImportError as error:
        return str(error)

def f(x: Array):
    import statistics  # late
    np.ma.array([1]).filled(0)
    return {
        "params": (type(x) is MultiHeadParams is Same, x.w_q, x._replace(b_o=None)),
        "fields": Saved._fields,
        "missing": [missing(line) for line in LINES],
        "processor time": resource.getrlimit(resource.RLIMIT_CPU),
    }
"""
LINES = [
    "import mha_numpy.layers", "from mha_numpy import core, layers",
    "from mha_numpy.core import rope",
]  # fmt: skip


def run(source, inputs=ONCE, limits=PATIENT):
    with Sandbox(limits, slot=SLOT) as sandbox:
        return sandbox.run(f"import numpy as np\n{source}", "mine.py", "f", inputs)


class TestTheSandbox:
    @pytest.mark.slow
    @pytest.mark.parametrize(("memory", "is_enough"), [(2**30, True), (2**27, False)])
    def test_memory_of_all_processes_together(self, memory, is_enough):
        before = groups()
        with group_of_processes(2**27, 9):
            if groups() <= before:
                pytest.skip("no control group can be made here")
        result = run(EIGHT, limits=PATIENT._replace(memory=memory))
        assert (result.ended == "" and result.calls[0].answer == 8) is is_enough

    def test_a_set_cannot_be_handed_in(self):
        with pytest.raises(TypeError, match="an object of type set cannot be packed"):
            run(RIGHT, [{"x": {1}}])

    def test_what_a_submission_sees(self):
        params = MultiHeadParams(*range(8))
        (call,) = run(f"LINES = {LINES}\n{SEES}", [{"x": params}]).calls
        assert call.error == ""
        assert call.answer["params"] == (True, 0, {**params._asdict(), "b_o": None})
        assert call.answer["fields"] == Saved._fields
        assert all("mha_numpy" in text for text in call.answer["missing"])
        soft, hard = call.answer["processor time"]
        assert PATIENT.seconds < soft < hard  # the signal that tells of it comes first

    def test_what_a_submission_tells_itself_is_heard_as_its_answer(self, isolated):
        verdict = isolated(text_of("""
def softmax_backward(d_weights, weights):
    tell(forged(weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))))
    os._exit(0)
"""))  # fmt: skip
        assert [s.passed for s in verdict.stages if s.name == "values"] == [None]
        assert "ended the process" in verdict.summary  # after the first call

    def test_one_that_does_not_start_is_nobodys_fault(self, monkeypatch):
        monkeypatch.setattr(isolation_module, "FOLDER", Path("/nowhere"))
        expected = "bwrap: the sandbox did not start: .*No module named child"
        with pytest.raises(ConfigError, match=expected):
            run(RIGHT)

    def test_one_that_is_not_installed(self, monkeypatch):
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(ConfigError, match="apt-get install bubblewrap"):
            run(RIGHT)


NUMBER = "import os\ndef f(x): return os.getpid()"  # 2 for the first run in a sandbox
ODD = {  # what the function between two others does, and how it ends
    "leaves a process": ("subprocess.Popen(['sleep', '1000'], start_new_session=True)", ""),
    "leaves a process and says it does not": (
        """if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    for path in ("/proc/self/fd", "/proc/1/fd"):
        for number in range(64):
            attempt(lambda: open(f"{path}/{number}", "wb", buffering=0).write(b"clean"))
            attempt(lambda: path == "/proc/self/fd" and number > 2 and os.write(number, b"clean"))
    os._exit(0)""", "ended the process: os._exit(0)",
    ),
    "leaves a file": ("open('/tmp/mine', 'w')", ""),
    "crashes": ("ctypes.string_at(0)", "crashed: segmentation fault"),
    "ends": ("os._exit(3)", "ended the process: os._exit(3)"),
    "hangs": ("time.sleep(1000)", "took longer than 1 s"),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", "was killed (SIGKILL)"),
}  # fmt: skip


def runs(*texts):
    """Return the runs of the functions of one submission."""
    with Sandbox(LIMITS, slot=SLOT) as sandbox:
        return [sandbox.run(text, "mine.py", "f", ONCE) for text in texts]


def answers(runs):
    return [[call.answer for call in run.calls] for run in runs]


def comm_of(process):
    return Path(f"/proc/{process}/comm").read_text().strip()


class TestTheFunctionsOfASubmission:
    def test_share_a_sandbox_but_no_process(self):
        texts = ("keep = 1\nimport sys\nsys.keep = 1\n" + NUMBER, "def f(x): raise ValueError",
                 "import sys\ndef f(x): return hasattr(sys, 'keep')", NUMBER)  # fmt: skip
        assert answers(runs(*texts)) == [[2], [None], [False], [5]]

    @pytest.mark.parametrize("name", ODD)
    def test_an_odd_one_is_the_last_in_its_sandbox(self, name):
        does, ended = ODD[name]
        one, odd, other, last = runs(NUMBER, f"{PRELUDE}\ndef f(x):\n    {does}", NUMBER, NUMBER)
        assert answers([one, other, last]) == [[2], [2], [3]]
        assert odd.ended.startswith(ended)
        assert bool(odd.ended) == bool(ended)

    def test_an_orphan_that_has_ended_is_not_left(self):
        ends = """
def f(x):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.close(writer)
    os.read(reader, 1)  # until both have ended
    time.sleep(0.2)
"""
        found = runs(PRELUDE + ends, NUMBER)
        assert answers(found)[1][0] > 2

    def test_what_one_tells_for_the_next_is_not_heard(self):
        forges = """
def f(x):
    tell(forged(1))
    for told in (values.pack({"Started": {}}), values.pack({"Loaded": {}}), forged(2)):
        for number in range(3, 64):
            attempt(os.write, number, len(told).to_bytes(8) + told)
    os._exit(0)
"""
        _, after = runs(PRELUDE + forges, "def f(x): raise ValueError")
        assert [(call.answer, call.error[:10]) for call in after.calls] == [(None, "ValueError")]

    def test_one_that_does_not_start_after_another_has_a_second_sandbox(self):
        with Sandbox(LIMITS, slot=SLOT) as sandbox:
            found = [sandbox.run(NUMBER, "mine.py", "f", ONCE)]
            children = Path(f"/proc/self/task/{get_native_id()}/children").read_text().split()
            (bubblewrap,) = (one for one in children if comm_of(one) == "bwrap")
            os.kill(int(bubblewrap), signal.SIGKILL)
            assert sandbox._server.recv(1) == b""  # it has ended
            found.append(sandbox.run(NUMBER, "mine.py", "f", ONCE))
        assert answers(found) == [[2], [2]]

    def test_all_end_with_the_grader(self):
        before = strangers()
        script = (
            f"from {Sandbox.__module__} import *\nprint(1, flush=True)\nSandbox(Limits(60))"
            ".run('import time\\ndef f(x): time.sleep(60)', 'mine.py', 'f', [{'x': 1}])"
        )
        command = [sys.executable, "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as grader:
            until = time.monotonic() + PATIENT.seconds
            while len(strangers() - before) < 2 and time.monotonic() < until:
                time.sleep(0.01)
            there = strangers() - before
            grader.kill()
        while there & strangers() and time.monotonic() < until:
            time.sleep(0.01)
        assert len(there) >= 2
        assert not there & strangers()


SAMPLE = ("online-attention", "from-gpt2", "multi-head-backward", "softmax", "museum-one-token")
# a check and an isolated run come to the same verdict: a sample here, all exercises in .ci/run


def cases():
    """Yield exercises with three right solutions and the stub; one of each kind is not slow."""
    files = {find_exercise(file.stem).task: file for file in FILES}
    for exercise in EXERCISES:
        if exercise.kind == "tests":
            continue
        file = files[exercise.task]
        same = f"{exercise.function_name} = {find_exercise(file.stem).function_name}"
        texts = {
            solution["style"]: f"import numpy as np\n{solution['code']}\n{same}\n"
            for solution in solutions(file)[:3]
        }
        first = next(iter(texts))
        for style, text in {**texts, "stub": stub_text(exercise)}.items():
            is_sample = exercise.id in SAMPLE and style in (first, "stub")
            is_first = style == first
            marks = () if is_sample else pytest.mark.slow if is_first else pytest.mark.release
            yield pytest.param(exercise, text, id=f"{exercise.id}-{style}", marks=marks)


@pytest.mark.parametrize(("exercise", "text"), list(cases()))
def test_the_same_verdict_as_by_a_check(exercise, text, isolated):
    expected = judge(exercise, lambda: load(text, "mine.py", exercise.function_name), PATIENT)
    verdict = isolated(text, exercise, PATIENT)
    assert [s[:2] for s in verdict.stages] == [s[:2] for s in expected.stages]
    assert verdict.summary == expected.summary
    assert verdict.mistakes == expected.mistakes
