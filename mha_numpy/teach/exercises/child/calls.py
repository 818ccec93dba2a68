"""Loading a student's function and calling it, with a message about each call."""

import builtins
import copy
import io
import linecache
import os
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn

import numpy as np

from .errors import ending, note_compiled, told
from .library import noting
from .limits import Limits, limit_softly
from .messages import Call, Ended, Loaded, Message, write_message
from .values import parts_of, plain


def load(source: str | bytes, file: str, name: str) -> Callable[..., Any]:
    """Run a source, as text or as the bytes of a file, and return its function."""
    path = Path(file)
    module = sys.modules[path.stem] = ModuleType(path.stem)
    module.__file__ = file
    if isinstance(source, str):  # which errors can quote
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    code = compile(source, file, "exec")
    note_compiled(code, file)
    exec(code, module.__dict__)
    if not callable(getattr(module, name, None)):
        raise NameError(f"there is no function {name} in {path.name}")
    return getattr(module, name)


def make_calls(
    get_function: Callable[[], Callable[..., Any]], inputs: Sequence[Mapping[str, Any]]
) -> Iterator[Message]:
    """Load the function and make the calls."""
    function = get_function()
    yield Loaded()
    for given in inputs:
        yield call(function, given)


def call(function: Callable[..., Any], given: Mapping[str, Any]) -> Call:
    """Make one call; let an exit or a MemoryError pass."""
    inputs = copy.deepcopy(dict(given))
    before = _fingerprints(inputs)
    answer, error, called, start = None, "", list[str](), time.perf_counter()
    try:
        with noting(called):
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


def _fingerprints(tree: Any, path: str = "") -> dict[str, tuple[Any, ...]]:
    """Return a fingerprint of every input, to detect changes; bytes, because NaN is not NaN."""
    parts = parts_of(tree)
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


def measured(function: Callable[..., Any]) -> Callable[..., int]:
    """Return a function that calls another one and returns the most bytes that it held.

    The counter runs in the same process, so the called function can falsify it.
    """

    def measure(*given: Any) -> int:
        tracemalloc.start()
        try:
            function(*given)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return measure


def _no_input(*_: object) -> NoReturn:
    """Replace `input`, which would ask the reader of a notebook."""
    raise EOFError("input() does not work here")


@contextmanager
def undisturbed(output: IO[str]) -> Iterator[None]:
    """Collect printed text, and suppress warnings."""
    with (
        redirect_stdout(output),
        redirect_stderr(output),
        np.errstate(all="ignore"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def tell_all(messages: Iterator[Message], tell: IO[bytes], limits: Limits) -> None:
    """Write every message, and the reason if they stop early.

    Printed text goes to file descriptor 1 at once, and may be anything.
    """
    child = os.getpid()
    builtins.input = _no_input
    raw = open(1, "wb", buffering=0, closefd=False)  # noqa: SIM115
    output = io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)

    def write(message: Message) -> None:
        if os.getpid() != child:
            os._exit(0)  # forked by the function
        write_message(tell, message)

    with undisturbed(output):
        lift_limit = limit_softly(limits)
        try:
            for message in messages:
                write(message)
        except BaseException as error:
            lift_limit()
            write(Ended(ending(error, limits)))
