"""The functions of this package that a student's function calls."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from . import CHILD, INSIDE, INSTALLED, PACKAGE

# these only pass a call on
PASSING = {f"{PACKAGE / file}" for file in ("backends.py", "calls.py", "layers/tracked.py")}
# parts of this package that compute no answer
HELPERS = (
    "backends", "checking", "checks", "dtypes", "errors", "foreign", "names", "progress",
    "show/pictures", "tables", "teach/exercises",
)  # fmt: skip
HELPING = tuple(f"{INSIDE}{name}{end}" for name in HELPERS for end in (os.sep, ".py"))


@contextmanager
def noting(called: list[str]) -> Iterator[None]:
    """Note which functions of this package are called from outside it.

    The interpreter itself reports every call, so no alias, star import or import in a function
    hides one.
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
    """Return whether code belongs to this package, and is not the caller of the judged function."""
    return code.co_filename.startswith(INSIDE) and not code.co_filename.startswith(CHILD)


def _is_between(code: CodeType) -> bool:
    """Return whether code only passes calls on, such as contextlib's."""
    file = code.co_filename
    if file.startswith(INSIDE):
        return file in PASSING or code.co_qualname == "LayerType.__call__"
    return INSTALLED.match(file) is not None


def _public_name(code: CodeType) -> str:
    """Return the public name of a function of this package, or its place.

    Private parts of the name are left out, with everything after them.
    """
    path = Path(code.co_filename).relative_to(PACKAGE.parent).with_suffix("")
    room, outer = ".".join(path.parts[:2]), code.co_qualname.partition(".")[0]
    is_public = hasattr(sys.modules.get(room), outer)
    names = f"{room if is_public else '.'.join(path.parts)}.{code.co_qualname}".split(".")
    return ".".join(takewhile(lambda name: not name.startswith(("_", "<")), names))
