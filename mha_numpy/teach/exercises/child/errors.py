"""An error in one line: its type, its message, and the line that raised it."""

import linecache
import traceback
from collections.abc import Iterable, Iterator
from itertools import dropwhile
from pathlib import Path
from types import CodeType, FrameType

from . import CHILD, INSTALLED
from .limits import Limits, in_bytes

COMPILED: dict[str, list[CodeType]] = {}  # all code that a file's own text became
LONGEST = 240  # characters of an error's message: all of what NumPy says, but for few


def ending(error: BaseException, limits: Limits) -> str:
    """Say why a run ended itself."""
    if isinstance(error, MemoryError):
        why = told(error).removeprefix(type(error).__name__)
        return f"asked for more than {in_bytes(limits.memory)} of memory{why}"
    if isinstance(error, SystemExit):
        code = "" if error.code is None else one_line(repr(error.code), 80)
        return f"ended the process: sys.exit({code}){_place(error)}"
    return told(error)


def told(error: BaseException) -> str:
    """Return an error in one line: its type, its message and its place."""
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:  # anybody's __str__
        text = "its message cannot be shown"
    return f"{type(error).__name__}{': ' if text else ''}{one_line(text, LONGEST)}{_place(error)}"


def note_compiled(code: CodeType, file: str) -> None:
    """Note the code of a file, and of every function in it: lines of no other code are its lines.

    Code that is made while the file runs can claim any file and line.
    """
    COMPILED[file] = list(_all_code(code))


def _all_code(code: CodeType) -> Iterator[CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _all_code(part)


def _place(error: BaseException) -> str:
    """Return the line that an error comes from, the deepest one outside of installed packages."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    last = frames[-1][0].co_filename if frames else CHILD
    is_of_file = last.startswith(CHILD) or INSTALLED.match(last)  # it cannot be loaded
    if isinstance(error, SyntaxError) and error.lineno and is_of_file:
        return _told_line(error.filename or "", error.lineno, error.text or "")
    return _deepest(reversed(frames))


def place_of(frame: FrameType | None) -> str:
    """Return the line being run, the deepest one outside of installed packages; or nothing."""
    frames = [(one.f_code, line) for one, line in traceback.walk_stack(frame)]
    called = dropwhile(lambda one: not one[0].co_filename.startswith(CHILD), reversed(frames))
    return _deepest(reversed(list(called)))


def _deepest(frames: Iterable[tuple[CodeType, int | None]]) -> str:
    for code, number in frames:
        file = code.co_filename
        known = COMPILED.get(file, [code])
        if not INSTALLED.match(file) and any(code is one for one in known):
            return _told_line(file, number or 0, linecache.getline(file, number or 0))
    return ""


def _told_line(file: str, number: int, line: str) -> str:
    name = "the cell" if "ipykernel_" in file or "<ipython-" in file else Path(file).name
    source = f": `{one_line(line, 80)}`" if line.strip() else ""
    return f" (line {number} of {name}{source})"


def shown(text: str) -> str:
    r"""Return a text in which characters that are not to be seen are written out.

    Those that let a text run from right to left could show another name than there is, and bytes
    of a file name that are not UTF-8 cannot be written at all.

    Examples
    --------
    >>> print(shown("ada\u202e21\udcff"), shown("Éva Łuczak"))
    ada\u202e21\udcff Éva Łuczak
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: str, most: int) -> str:
    """Return a text in one line, without control characters.

    If it is too long, words in its middle are left out, because the cause often comes last.
    """
    text = shown(" ".join(text[:9999].split()))
    if len(text) <= most:
        return text
    first, last = most * 3 // 5 - 2, most * 2 // 5 - 3
    begin, end = text[:first], text[-last:]
    begin = begin[: begin.rfind(" ", first // 2)] if " " in begin[first // 2 :] else begin
    return f"{begin} ... {end[end.find(' ', 0, last // 2) + 1 :]}"
