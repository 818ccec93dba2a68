"""What runs beside somebody's function: the calls, and how they are told in bytes.

NumPy is all that it imports, so that it also runs where nothing else of this package can be seen.
"""

import builtins
import copy
import io
import json
import linecache
import os
import re
import sys
import time
import traceback
import tracemalloc
import warnings
import zipfile
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from itertools import dropwhile, takewhile
from pathlib import Path
from types import CodeType, EllipsisType, FrameType, ModuleType
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np

HEADER = 8  # bytes that tell a frame's length
DEEPEST = 50  # lists in lists of an answer
TEXT, DIRECTORY = 2**22, 2**20  # bytes of a frame's tree, and of the list of its arrays
PLAIN_END, LONG_END = b"PK\5\6\0\0\0\0", b"PK\6\7"  # how an archive's last 22 bytes begin, or 42
NUMBERS = "biufc"  # the kinds of dtypes that an answer may have
TREE = "tree.json"
STATM = Path("/proc/self/statm")  # Linux: pages of address space, and more
FILES = 64  # that an isolated run may have open
SPARE = 32 * 2**20  # bytes that are kept to tell that memory has run out
LONGEST = 240  # characters of an error's message: all of what NumPy says, but for few
OURS = Path(__file__).parents[2]
INSIDE = f"{OURS}{os.sep}"  # how the files of this package begin
# these only pass a call on
PASSING = {f"{OURS / file}" for file in ("calls.py", "layers/runs.py")}
# parts of this package that compute no answer
HELPERS = (
    "checking", "checks", "dtypes", "errors", "progress", "show/pictures", "tables",
    "teach/exercises",
)  # fmt: skip
HELPING = (__file__, *(f"{INSIDE}{name}{end}" for name in HELPERS for end in (os.sep, ".py")))
INSTALLED = re.compile(  # files that nobody wrote for an exercise
    rf"<(frozen|__array_function__)|.*(site|dist)-packages"
    rf"|{re.escape(INSIDE)}|{re.escape(f'{Path(os.__file__).parent}{os.sep}')}"
)


@dataclass(frozen=True)
class Foreign:
    """Stands for a value that is no array, number or text; its repr says what it was."""

    text: str

    def __repr__(self) -> str:
        return self.text


class Call(NamedTuple):
    """What came of one call."""

    answer: Any  # None where the call failed, ... where the function is not written yet
    error: str  # in a line, with the line that raised it; "" without one
    changed: tuple[str, ...]  # dotted names of inputs that the function changed in place
    seconds: float
    called: tuple[str, ...] = ()  # what of this package it called, where that is to be seen


class Asked(NamedTuple):
    """What a function calls that is not there, and waits for."""

    given: tuple[Any, ...]
    named: dict[str, Any]


# a question, a call, why there are no more, that the function is loaded (None), that nothing is yet
# (...)
Message = Asked | Call | str | EllipsisType | None


class Limits(NamedTuple):
    """What a run may take: loading and all calls together."""

    seconds: float = 10.0  # of wall time
    memory: int = 2 * 2**30  # bytes, beyond those that the process has already
    output: int = 20_000  # characters that are kept of what it prints
    answers: int = 2**26  # bytes of all answers


def messages(
    get_function: Callable[[], Callable[..., Any]], inputs: Sequence[Mapping[str, Any]]
) -> Iterator[Message]:
    """Load the function and make the calls."""
    function = get_function()
    yield None
    for given in inputs:
        yield call(function, given)


def call(function: Callable[..., Any], given: Mapping[str, Any]) -> Call:
    """Make one call; an exit and a lack of memory pass."""
    inputs = copy.deepcopy(dict(given))
    before = _fingerprints(inputs)
    answer, error, called, start = None, "", list[str](), time.perf_counter()
    try:
        with _noting(called):
            answer = function(*inputs.values())
    except NotImplementedError:
        answer = ...
    except MemoryError:
        raise
    except Exception as raised:
        error = told(raised)
    seconds = time.perf_counter() - start
    after = _fingerprints(inputs)
    changed = [name for name in before | after if before.get(name) != after.get(name)]
    return Call(plain(answer), error, tuple(changed), seconds, tuple(called))


@contextmanager
def _noting(called: list[str]) -> Iterator[None]:
    """Note what of this package is called from outside of it.

    The interpreter itself tells of every call, so that no alias hides one, no star, and no import
    in a function.
    """

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not _is_ours(code) or code.co_filename.startswith(HELPING):
            return
        if code.co_name == "<module>" or _is_between(code):  # an import; a call that is passed on
            return
        caller = frame.f_back  # None where numba calls
        while caller and _is_between(caller.f_code):
            caller = caller.f_back
        is_from_outside = not (called if caller is None else _is_ours(caller.f_code))
        if is_from_outside and (name := _public_name(code)) not in called:
            called.append(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def _is_ours(code: CodeType) -> bool:
    """Return whether code is of this package, but not the caller of what is judged."""
    return code.co_filename.startswith(INSIDE) and code.co_filename != __file__


def _is_between(code: CodeType) -> bool:
    """Return whether code only passes calls on, such as contextlib's."""
    file = code.co_filename
    if file.startswith(INSIDE):
        return file in PASSING or code.co_qualname == "LayerType.__call__"
    return INSTALLED.match(file) is not None


def _public_name(code: CodeType) -> str:
    """Return the name of a function of this package: as its room has it, or where it stands.

    What is private is left out, with all that stands behind it.
    """
    path = Path(code.co_filename).relative_to(OURS.parent).with_suffix("")
    room, outer = ".".join(path.parts[:2]), code.co_qualname.partition(".")[0]
    is_public = hasattr(sys.modules.get(room), outer)
    names = f"{room if is_public else '.'.join(path.parts)}.{code.co_qualname}".split(".")
    return ".".join(takewhile(lambda name: not name.startswith(("_", "<")), names))


def _fingerprints(tree: Any, path: str = "") -> dict[str, tuple[Any, ...]]:
    """Return what tells every input from itself changed; bytes, as NaN is not NaN."""
    parts = _parts(tree)
    if parts is None:
        is_array = isinstance(tree, np.ndarray)
        return {
            path: (tree.shape, tree.dtype, tree.flags.writeable, tree.tobytes())
            if is_array
            else (tree,)
        }
    found: dict[str, tuple[Any, ...]] = {}
    for name, part in parts.items():
        found |= _fingerprints(part, f"{path}.{name}" if path else name)
    return found


def _parts(tree: Any) -> dict[str, Any] | None:
    """Return what a container holds, by name; None for anything else."""
    if isinstance(tree, Mapping):
        return {str(name): part for name, part in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_asdict"):
        return dict(tree._asdict())
    if isinstance(tree, (tuple, list)):
        return {str(i): part for i, part in enumerate(tree)}
    return None


def measured(function: Callable[..., Any]) -> Callable[..., int]:
    """Return what calls a function and returns the most bytes that it held.

    What tells them is in the process of the function, which can make it say anything.
    """

    def measure(*given: Any) -> int:
        tracemalloc.start()
        try:
            function(*given)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return measure


# how a process makes the calls and tells of them


def no_input(*_: object) -> NoReturn:
    """Stand for `input`, which would ask the reader of a notebook."""
    raise EOFError("input() cannot be answered here")


def open_output() -> IO[str]:
    """Return a stream to file descriptor 1 that keeps nothing back and can write any text."""
    raw = open(1, "wb", buffering=0, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


@contextmanager
def undisturbed(output: IO[str]) -> Iterator[None]:
    """Collect what is printed, and have no warnings."""
    with (
        redirect_stdout(output),
        redirect_stderr(output),
        np.errstate(all="ignore"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def tell_all(messages: Iterator[Message], tell: IO[bytes], limits: Limits) -> None:
    """Write every message, and at last why there are no more."""
    import resource  # not on Windows

    def limit(kind: int, most: int) -> None:
        soft, hard = resource.getrlimit(kind)
        least = min(n for n in (most, soft, hard) if n != resource.RLIM_INFINITY)
        resource.setrlimit(kind, (least, hard))

    def write(message: Message) -> None:
        if os.getpid() != child:
            os._exit(0)  # forked by the function
        write_frame(tell, tuple(message) if isinstance(message, Call) else message)

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
        write(ending(error, limits))


def ending(error: BaseException, limits: Limits) -> str:
    """Say what ended a run from within."""
    if isinstance(error, MemoryError):
        return too_much(limits) + told(error).removeprefix(type(error).__name__)
    if isinstance(error, SystemExit):
        code = "" if error.code is None else one_line(repr(error.code), 80)
        return f"ended the process: sys.exit({code}){place(error)}"
    return told(error)


def too_much(limits: Limits) -> str:
    """Say that memory has been at its limit."""
    return f"asked for more than {in_bytes(limits.memory)} of memory"


def in_bytes(number: int) -> str:
    """Return a number of bytes in three digits and a unit."""
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} B"


# what an error was, in a line


def told(error: BaseException) -> str:
    """Return an error in a line: its type, its message and its place."""
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:  # anybody's __str__
        text = "its message cannot be shown"
    return f"{type(error).__name__}{': ' if text else ''}{one_line(text, LONGEST)}{place(error)}"


def place(error: BaseException) -> str:
    """Return the line that an error comes from, the deepest one that is nobody's package."""
    if isinstance(error, SyntaxError) and error.lineno:
        return _told_line(error.filename or "", error.lineno, error.text or "")
    return _deepest(reversed(traceback.extract_tb(error.__traceback__)))


def place_of(frame: FrameType | None) -> str:
    """Return the line that is being run, the deepest one that is nobody's package; or nothing."""
    frames = dropwhile(lambda one: one.filename != __file__, traceback.extract_stack(frame))
    return _deepest(reversed(list(frames)))


def _deepest(frames: Iterable[traceback.FrameSummary]) -> str:
    """Return the first line that is nobody's package."""
    frame = next((f for f in frames if not INSTALLED.match(f.filename)), None)
    return _told_line(frame.filename, frame.lineno or 0, frame.line or "") if frame else ""


def _told_line(file: str, number: int, line: str) -> str:
    """Return a line's number, file and text."""
    name = "the cell" if "ipykernel_" in file or "<ipython-" in file else Path(file).name
    source = f": `{one_line(line, 80)}`" if line.strip() else ""
    return f" (line {number} of {name}{source})"


def one_line(text: str, most: int) -> str:
    """Return a text in one line, without anything that a terminal obeys.

    Where it is too long, words in its middle are left out: what is wrong often stands at the end.
    """
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text[:9999].split()))
    if len(text) <= most:
        return text
    first, last = most * 3 // 5 - 2, most * 2 // 5 - 3
    begin, end = text[:first], text[-last:]
    begin = begin[: begin.rfind(" ", first // 2)] if " " in begin[first // 2 :] else begin
    return f"{begin} ... {end[end.find(' ', 0, last // 2) + 1 :]}"


# answers as plain values


def plain(answer: Any) -> Any:
    """Return an answer in builtins and plain arrays, with `Foreign` for all else."""
    try:
        return _plain_tree(answer, DEEPEST)
    except RecursionError:
        return Foreign(f"a {type(answer).__name__} nested too deep")
    except MemoryError:
        raise
    except Exception:  # anybody's methods
        return Foreign(f"an object of type {type(answer).__name__}")


def _plain_tree(value: Any, depth: int) -> Any:
    """Return a value and all in it, down to a depth."""
    if value is None or value is ... or type(value) in (bool, int, float, complex, str):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        if hasattr(value, "mask"):  # not asked of np.ma, which would have to be loaded first
            return Foreign(f"a masked array {value.shape}: x.filled(0) is plain")
        is_known = value.dtype.kind in NUMBERS
        text = f"an array {value.shape} of {value.dtype}"
        return np.array(value, order="C") if is_known else Foreign(text)
    parts = _parts(value)
    if parts is None:
        return Foreign(_description(value))
    if depth == 0:
        raise RecursionError
    parts = {name: _plain_tree(part, depth - 1) for name, part in parts.items()}
    if isinstance(value, Mapping) or hasattr(value, "_asdict"):
        return parts
    return (list if isinstance(value, list) else tuple)(parts.values())


def _description(value: object) -> str:
    """Return what a value is, in a line: with its repr where that says more than an address."""
    try:
        text = repr(value)
    except Exception:  # anybody's __repr__
        text = "<>"
    what = "an object" if text.startswith("<") else one_line(text, 80)
    return f"{what} of type {type(value).__name__}"


# plain values as bytes: a frame is its length, then an .npz of a tree and its arrays


def write_frame(stream: IO[bytes], value: Any) -> None:
    """Write a value with its length before it."""
    packed = pack(value)
    stream.write(len(packed).to_bytes(HEADER))
    stream.write(packed)
    stream.flush()


def pack(value: Any) -> bytes:
    """Return a plain value as the bytes of an .npz file; NamedTuples keep their names."""
    arrays: list[Any] = []
    tree = json.dumps(_as_json(value, arrays))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr(TREE, tree)
        for number, array in enumerate(arrays):
            with file.open(f"{number}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def _as_json(value: Any, arrays: list[Any]) -> Any:
    """Return a value as JSON knows it; its arrays go into the list."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if value is ...:
        return {"unwritten": True}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, Foreign):
        return {"foreign": value.text}
    found = _parts(value)
    if found is None:
        raise TypeError(f"an object of type {type(value).__name__} cannot be packed")
    parts = {name: _as_json(part, arrays) for name, part in found.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {"named": [type(value).__name__, parts]}
    kind = "dict" if isinstance(value, Mapping) else type(value).__name__
    return {kind: parts if kind == "dict" else list(parts.values())}


def refuse(name: str, *_: str) -> NoReturn:
    """Make no NamedTuple of what somebody else has written."""
    raise ValueError(f"a NamedTuple {name}")


@cache
def record(name: str, *fields: str) -> Callable[..., Any]:
    """Return the NamedTuple of a name, the same each time."""
    return namedtuple(name, fields)


def unpack(packed: bytes, record: Callable[..., Callable[..., Any]] = refuse) -> Any:
    """Return the value of `pack`; any error, where the bytes are something else.

    Nothing is made of them but builtins, arrays of numbers and `Foreign`, and NamedTuples where
    `record` makes these; and nothing that is much longer than they are.
    """
    is_plain = packed[-22:].startswith(PLAIN_END) and packed[-2:] == b"\0\0"
    is_long = packed[-42:-38] == LONG_END or int.from_bytes(packed[-10:-6], "little") > DIRECTORY
    if is_long or not is_plain:
        raise ValueError("no archive, or one of too many arrays")
    with zipfile.ZipFile(io.BytesIO(packed)) as file:
        sizes = {info.filename: info.file_size for info in file.infolist()}
        if any(info.compress_type != zipfile.ZIP_STORED for info in file.infolist()):
            raise ValueError("a compressed member")
        if sizes[TREE] > TEXT or sum(sizes.values()) > len(packed):
            raise ValueError("a long tree, or arrays that share their bytes")
        arrays = set(range(len(sizes) - 1))

        def array(number: int) -> Any:
            arrays.remove(number)  # each is there once
            with file.open(f"{number}.npy") as member:
                np.lib.format.read_magic(member)
                shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(member)
                if dtype.kind not in NUMBERS or is_fortran:
                    raise ValueError("an array of something else than numbers, or not C-ordered")
                return np.frombuffer(bytearray(member.read()), dtype).reshape(shape)

        return _from_json(json.loads(file.read(TREE)), array, record, DEEPEST + 3)


def read_frames(unread: bytearray) -> Iterator[Message]:
    """Take all messages that are complete from what has come; any error where one is none."""
    while len(unread) >= HEADER:
        end = HEADER + int.from_bytes(unread[:HEADER])
        if len(unread) < end:
            return
        message = unpack(bytes(unread[HEADER:end]))
        del unread[:end]
        yield _as_message(message)


def _as_message(value: Any) -> Message:
    """Return what was told as a message; any error where it is none."""
    if value is None or value is ...:
        return value
    if isinstance(value, str):
        return one_line(value, 3 * LONGEST)
    if isinstance(value, dict):
        return Asked(tuple(value["given"]), dict(value["named"]))
    answer, error, changed, seconds, called = value
    names = (changed, called)
    if not (isinstance(seconds, float) and all(isinstance(v, tuple) for v in (value, *names))):
        raise TypeError("no call")
    changed, called = (tuple(one_line(name, 80) for name in some) for some in names)
    return Call(answer, one_line(error, 3 * LONGEST), changed, seconds, called)


def _from_json(
    value: Any, array: Callable[[int], Any], record: Callable[..., Callable[..., Any]], depth: int
) -> Any:
    """Return the value that `_as_json` has made JSON of, down to a depth."""
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError("a bare list")
        return value
    if depth == 0:
        raise ValueError("nested too deep")
    ((kind, inner),) = value.items()
    if kind in ("list", "tuple"):
        items = [_from_json(part, array, record, depth - 1) for part in inner]
        return items if kind == "list" else tuple(items)
    if kind in ("dict", "named"):
        parts = inner if kind == "dict" else inner[1]
        found = {name: _from_json(part, array, record, depth - 1) for name, part in parts.items()}
        return found if kind == "dict" else record(inner[0], *found)(**found)
    made: dict[str, Callable[[Any], Any]] = {
        "unwritten": lambda _: ..., "complex": lambda pair: complex(*pair), "array": array,
        "foreign": lambda text: Foreign(one_line(text, LONGEST)),
    }  # fmt: skip
    return made[kind](inner)


# a process that holds nothing but what it runs


def main() -> None:
    """Do the task on stdin in this process, which nothing else is in, and tell of it on a pipe."""
    with open(int(sys.argv[1]), "wb") as tell:
        task = unpack(sys.stdin.buffer.read(), record)
        sys.stdin = open(os.devnull)  # noqa: SIM115
        os.dup2(sys.stdin.fileno(), 0)
        limits = Limits(**task["limits"])
        if task["user"]:  # of its own: what it starts is counted alone
            os.setgroups([])
            os.setgid(task["user"])
            os.setuid(task["user"])
        _limit(limits, task["room"], task["threads"])
        builtins.input = no_input
        _show(task["modules"])
        source, file, name = task["source"], task["file"], task["name"]
        write_frame(tell, ...)
        with undisturbed(open_output()):
            wrap = measured if task["is_measured"] else lambda function: function
            with open(task["replies"], "rb") as replies:
                inputs = [_with_functions(given, tell, replies) for given in task["inputs"]]
                calls = messages(lambda: wrap(load(source, file, name)), inputs)
                tell_all(calls, tell, limits)
    os._exit(0)  # threads that were left running end here


def _with_functions(
    given: Mapping[str, Any], tell: IO[bytes], replies: IO[bytes]
) -> dict[str, Any]:
    """Return inputs with something to call where a function has stayed outside."""

    def ask(*given: Any, **named: Any) -> Any:
        write_frame(tell, {"given": plain(given), "named": plain(named)})
        answer, error = unpack(replies.read(int.from_bytes(replies.read(HEADER))))
        if error:
            raise RuntimeError(error)
        return answer

    return {name: ask if isinstance(part, Foreign) else part for name, part in given.items()}


def _limit(limits: Limits, room: int, threads: int) -> None:
    """Set the limits that nobody here can raise again."""
    import resource

    most = {
        resource.RLIMIT_NPROC: threads, resource.RLIMIT_NOFILE: FILES, resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: int(limits.seconds) + 2, resource.RLIMIT_FSIZE: room,
    }  # fmt: skip
    if STATM.exists():
        has = int(STATM.read_text().split()[0]) * resource.getpagesize()
        most[resource.RLIMIT_AS] = has + limits.memory + SPARE
    for kind, number in most.items():
        hard = resource.getrlimit(kind)[1]
        number = number if hard == resource.RLIM_INFINITY else min(number, hard)
        soft = number - (kind == resource.RLIMIT_CPU)  # a signal that tells why comes first
        resource.setrlimit(kind, (soft, number))


def _show(modules: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Have modules with these NamedTuples alone, of a package that is not to be seen otherwise."""
    for name, members in modules.items():
        module = sys.modules[name] = ModuleType(name)
        module.__path__ = []
        for member, fields in members.items():  # one without fields is an array, for annotations
            setattr(module, member, record(member, *fields) if fields else np.ndarray)
    sys.meta_path.insert(0, _Absent(frozenset(name.partition(".")[0] for name in modules)))


class _Absent:
    """Finds that a package is not there."""

    def __init__(self, packages: frozenset[str]):
        self.packages = packages

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in self.packages:
            raise ImportError(f"{name} is not there when you are graded: write it yourself")


def load(source: str, file: str, name: str) -> Callable[..., Any]:
    """Run a source text as a file's, and return its function."""
    module = sys.modules[Path(file).stem] = ModuleType(Path(file).stem)
    module.__file__ = file
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), module.__dict__)
    if not callable(getattr(module, name, None)):
        raise NameError(f"there is no function {name} in {Path(file).name}")
    return getattr(module, name)


if __name__ == "__main__":
    main()
