"""identify_file: what a function in a file computes; the file runs in a separate process."""

import ast
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import takewhile
from pathlib import Path
from traceback import walk_stack
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from mha_numpy.errors import ConfigError, MhaError, describe, did_you_mean
from mha_numpy.identifying.calling.subject import trouble_of
from mha_numpy.identifying.entry import identify
from mha_numpy.identifying.reporting.sheet import Datasheet
from mha_numpy.progress import busy
from mha_numpy.tables import Table, plain
from mha_numpy.teach.exercises.child import CHILD, INSIDE, INSTALLED
from mha_numpy.teach.exercises.child.errors import place_of
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.child.messages import Call, Loaded, Message
from mha_numpy.teach.exercises.sandbox import Heard, can_fork, check_limits, run_messages

MEMORY = 4 * 2**30  # bytes: JAX takes a third of it
ONE_CALL = 1 / 6  # of the time, after which a call is interrupted
ENOUGH = 0.8  # of the time that is left after loading, in which identify ends by itself
TICK = 0.1  # seconds of processor time
MISSING = object()


class FileSheet(NamedTuple):
    """The datasheet of a function in a file."""

    sections: tuple[Table | str, ...]  # for a terminal
    html: str
    json: str
    is_found: bool  # whether it is known what the function computes
    has_mistake: bool
    is_as_given: bool = True  # whether the roles that were given fit

    @property
    def text(self) -> str:
        """The sections, one after another."""
        return plain(self.sections)


def identify_file(
    function: str, *, backward: str | None = None, given: Mapping[str, str] | None = None,
    seconds: float = 60.0, memory: int = MEMORY, examples: bool = False,
) -> FileSheet:  # fmt: skip
    """Say what a function in a file computes, whatever the file does.

    Parameters
    ----------
    function : str
        ``path/to/file.py:NAME``. NAME is a function, an object that can be called, a class, or an
        attribute of one of these, as ``Class.method``.
    backward : str, optional
        The name of the function in the same file that computes the gradients.
    given : mapping, optional
        The arguments whose roles are known: ``{"mask": "attn"}``.
    seconds : float
        The most time for loading the file and for identifying the function.
    memory : int
        The most bytes that the process may use.
    examples : bool
        Add to each row that is not usual the smallest inputs that show it.

    Returns
    -------
    FileSheet
        If the function ended its process or took too long, its text says so.

    Raises
    ------
    ConfigError
        The file cannot be loaded, or has no such function.

    Notes
    -----
    The file runs in a child process within limits, as an exercise does in `mha-numpy check`. It can
    import its neighbours. A call that takes a sixth of the time gets a TimeoutError.
    """
    file, name = _parted(function)
    path = Path(file).absolute()
    if path.suffix != ".py":
        raise ConfigError(f"function: expected FILE.py:NAME; got {function!r}")
    if not path.is_file():
        raise ConfigError(f"function: there is no file {file}")
    if not name:
        own = _defined_in(path)
        first = min(own, key=lambda each: "att" not in each.lower(), default="NAME")
        others = ", ".join(own) or "no function and no class"
        raise ConfigError(f"function: say which, such as {file}:{first}; it defines {others}")
    heard = _Heard(1, check_limits(Limits(seconds=seconds, memory=memory)))
    with busy(f"identifying {name}"):
        run = run_messages(_looked_at(path, name, backward, given or {}, seconds, examples), heard)
    if not heard.is_loaded:
        raise ConfigError(f"function: cannot load {path.name}: {run.ended}")
    if not run.calls:
        text = f"{path.name}:{name} {run.ended}\nSo identify cannot say what it computes."
        ended = Datasheet(f"{path.name}:{name}", "", False, run.ended)
        about = json.dumps(ended.to_dict(), indent=1)
        return FileSheet((text,), ended.to_html(), about, False, False)
    if run.calls[0].error:
        raise ConfigError(run.calls[0].error)
    parts, *others = run.calls[0].answer
    tables = (Table(title, (), rows, frozenset(bad)) for title, rows, bad in parts)
    return FileSheet(tuple(tables), *others)


def _parted(function: str) -> tuple[str, str]:
    """Return the file and the name, which may be an expression that has colons, too."""
    file, end, name = function.partition(".py:")
    return (file + ".py", name) if end else (function, "")


def _defined_in(path: Path) -> list[str]:
    """Return the functions and classes of a file, without running it."""
    with suppress(SyntaxError, ValueError):
        kinds = ast.FunctionDef, ast.ClassDef
        tree = ast.parse(path.read_bytes())
        return [n.name for n in tree.body if isinstance(n, kinds) and n.name[0] != "_"]
    return []


class _Heard(Heard):
    @property
    def place(self) -> str:
        return "while identify called it" if self.is_loaded else "while loading"


def _looked_at(
    path: Path,
    name: str,
    backward: str | None,
    given: Mapping[str, str],
    seconds: float,
    examples: bool,
) -> Iterator[Message]:
    """Load a file and identify its function; for a separate process."""
    until = time.monotonic() + seconds
    module = _load(path)
    yield Loaded()
    if can_fork():
        os.register_at_fork(after_in_child=partial(sys.setprofile, _end_here))
        signal.signal(signal.SIGPROF, _Patience(seconds * ONE_CALL))
        signal.setitimer(signal.ITIMER_PROF, TICK, TICK)
    try:
        sheet = identify(
            _find(module, "function", name),
            backward=_find(module, "backward", backward) if backward else None,
            given=dict(given),
            seconds=ENOUGH * max(until - time.monotonic(), TICK),
            examples=examples,
        )
    except MhaError as error:
        yield Call(None, _for_command(str(error), path), (), 0.0)
        return
    if isinstance(sheet, Datasheet):
        sheet = sheet._replace(saw=_for_command(sheet.saw, path))
    about = sheet.to_dict()
    parts = [(t.title, t.rows, [*t.bad_rows]) for t in sheet.sections()]
    answer = (
        parts, sheet.to_html(), json.dumps(about, indent=1), sheet.is_found,
        bool(about.get("mistakes")), sheet.is_as_given,
    )  # fmt: skip
    yield Call(answer, "", (), 0.0)


def _for_command(text: str, path: Path) -> str:
    """Return a hint as the command line has it, where the text has it as Python does."""

    def given(found: re.Match[str]) -> str:
        pairs = re.findall(r"['\"](\w+)['\"]: ['\"](.*?)['\"]", found[1])
        return f"--given {' '.join(f'{role}={argument}' for role, argument in pairs)}"

    text = re.sub(
        r"build one yourself and pass that, such as (.*)", rf"say how: '{path.name}:\1'", text
    )
    return re.sub(r"given=\{(.*?)\}", given, text)


def _load(path: Path) -> ModuleType:
    """Run a file as the module that it is for its neighbours, in a package if it is part of one."""
    package, folder = "", path.parent
    while (folder / "__init__.py").is_file():
        package, folder = f"{folder.name}.{package}", folder.parent
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # what was saved in the same second would be taken for new
    name = package + path.stem.replace(".", "_")
    if package:
        import_module(package[:-1])
        if name in sys.modules:
            return sys.modules[name]
    spec: Any = spec_from_file_location(name if name not in sys.modules else f"{name}_", path)
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _find(module: ModuleType, argument: str, name: str) -> Any:
    """Return what has a dotted name, or what an expression that calls something gives."""
    if "(" in name:
        return _made(module, argument, name)
    found: Any = module
    for part in name.split("."):
        owner, found = found, getattr(found, part, MISSING)
        if found is MISSING:
            known = [n for n in dir(owner) if n[0] != "_" and callable(getattr(owner, n, None))]
            advice = did_you_mean(part, known) or f"it has {', '.join(known[:8]) or 'none'}"
            raise ConfigError(f"{argument}: there is no function {name}; {advice}")
    if not callable(found) and not hasattr(found, "__dict__"):  # an object may have a method
        raise ConfigError(
            f"{argument}: expected a function or a layer; {name} is {describe(found)}"
        )
    return found


def _made(module: ModuleType, argument: str, text: str) -> Any:
    """Return what an expression makes, such as ``Attention(32, heads=4)``."""
    try:
        return eval(text, vars(module))
    except Exception as error:  # anybody's
        raise ConfigError(f"{argument}: {text} raised {trouble_of(error)}") from error


def _end_here(frame: FrameType, *_: Any) -> None:
    """End a process that the function forked, as soon as it returns into this package."""
    if frame.f_code.co_filename.startswith(INSIDE):
        os._exit(0)


class _Patience:
    """Interrupts a call of the function that takes too long, so that identify can go on."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.since = seconds, 0.0
        self.running: FrameType | None = None  # the call at the last tick

    def __call__(self, _: int, frame: FrameType | None) -> None:
        frames = [one for one, _ in walk_stack(frame)]
        inner = takewhile(lambda one: not one.f_code.co_filename.startswith(CHILD), frames)
        own = [one for one in inner if not INSTALLED.match(one.f_code.co_filename)]
        running = own[-1] if own else None
        if running is not self.running:
            self.running, self.since = running, time.monotonic()
        elif running and time.monotonic() > self.since + self.seconds:
            self.since = time.monotonic()
            raise TimeoutError(f"took longer than {self.seconds:.3g} s{place_of(frame)}")
