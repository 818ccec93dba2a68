"""take_in: a student's functions, read from the files by a child process within limits.

A file can be anything: a zip file that unpacks to terabytes, a notebook on which Python's parser
crashes. What goes wrong here is that student's finding, and costs no other student anything.
"""

import re
import stat
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.classroom.alike import fingerprint
from mha_numpy.teach.classroom.pieces import broken_line
from mha_numpy.teach.classroom.slices import Cell, cells_of, slice_of
from mha_numpy.teach.classroom.submissions import (
    ENDINGS,
    HIDDEN,
    MOST_BYTES,
    MOST_FILES,
    File,
    copy_number,
)
from mha_numpy.teach.exercises.child.errors import shown
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.sandbox import run_calls

LIMITS = Limits(seconds=20.0, memory=2**30)
DEFINED = re.compile(r"^def[ \t]+([A-Za-z_]\w{0,40})\b", re.MULTILINE)
MOST_NAMES, CLOSE = 200, 0.8  # of functions; how alike two names are
MOST_TOLD = 20  # of a student's files that cannot be read
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others unpack to any size at once
BROKEN = (
    "{name}: Python cannot read {lines}, because of a syntax error near line {line}. Everything "
    "else in the file was graded."
)
NONE = "none of the functions that were asked for is in {names}: was the right file handed in?"


class Source(NamedTuple):
    """A function as it was handed in, with what it needs."""

    text: str
    file: str


class Intake(NamedTuple):
    """What a student's files contain."""

    sources: dict[str, Source]  # by the name of the function
    trouble: list[str]  # what could not be read, and why
    fingerprint: list[int]  # see `alike`
    misspelt: dict[str, str]  # names of functions that are missing: names that are there


def take_in(
    files: Iterable[File], functions: Iterable[str], handed_out: Iterable[str] = ()
) -> Intake:
    r"""Find the functions in a student's files, in a child process.

    Examples
    --------
    >>> found = take_in([File("hw.py", b"def f():\n    return 1")], ["f", "g"])
    >>> found.sources, found.trouble
    ({'f': Source(text='def f():\n    return 1', file='hw.py')}, [])
    """
    functions = list(functions)

    def read() -> tuple[list[tuple[str, str, str]], list[str], Array, dict[str, str]]:
        opened, trouble = opened_files(files)
        sources, broken = sources_of(opened, functions)
        runs = fingerprint((source.text for source in sources.values()), handed_out)
        told = [(name, *source) for name, source in sources.items()]
        missing = [name for name in functions if name not in sources]
        names = misspelt_in(opened, missing, functions) if missing else {}
        if opened and not sources and not (trouble or broken or names):
            broken = [NONE.format(names=", ".join(shown(name) for name, _ in opened[:3]))]
        return told, [*trouble, *broken][:MOST_TOLD], np.array(runs, np.int64), names

    run = run_calls(lambda: read, [{}], LIMITS)
    if not run.calls or run.calls[0].error:
        ended = run.ended.removesuffix(" (call 1 of 1)")
        why = f"reading them {ended}" if ended else run.calls[0].error
        return Intake({}, [f"these files cannot be read: {why}"], [], {})
    told, trouble, runs, misspelt = run.calls[0].answer
    sources = {name: Source(text, file) for name, text, file in told}
    return Intake(sources, list(trouble), runs.tolist(), misspelt)


def opened_files(files: Iterable[File]) -> tuple[list[tuple[str, bytes]], list[str]]:
    """Return the files, the newest last, with those in zip files, and say what cannot be read."""
    trouble: list[str] = []
    found: list[File] = []
    for file in files:
        members = _members(file, trouble) if file.name.lower().endswith(".zip") else [file]
        found.extend(members)
    if len(found) > MOST_FILES:
        trouble.append(f"there are more than {MOST_FILES} files; the others are left out")
    newest_last = sorted(found[:MOST_FILES], key=lambda file: (file.order, file.name))
    return [(file.name, file.data) for file in newest_last], trouble


def _members(packed: File, trouble: list[str]) -> Iterator[File]:
    """Yield the files in a zip file; nothing of it is written anywhere."""
    left = 2 * MOST_BYTES
    try:
        with zipfile.ZipFile(BytesIO(packed.data)) as archive:
            for info in archive.infolist():
                *folders, name = info.filename.split("/")
                is_hidden = any(HIDDEN.match(part) for part in (*folders, name) if part.strip("."))
                if is_hidden or not name.lower().endswith(ENDINGS):
                    continue
                data, why = _unpacked(archive, info, left + 1)
                left -= len(data)
                if left < 0:
                    trouble.append(f"{packed.name} is too large unpacked; its rest is left out")
                    return
                if why:
                    trouble.append(f"{shown(name)} in {packed.name} {why}")
                else:
                    order = (*packed.order, *copy_number(Path(name).stem))
                    yield packed._replace(name=shown(name), data=data, order=order)
    except Exception:  # anything that a broken one makes the library raise
        trouble.append(f"{packed.name} is not a readable zip file")


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> tuple[bytes, str]:
    """Return a member's content up to a number of bytes, and why it does not count, or ""."""
    if stat.S_ISLNK(info.external_attr >> 16) or info.flag_bits & 1:
        return b"", "is a link or locked"
    if info.compress_type not in PACKINGS:
        return b"", "is packed in an unusual way; zip it again"
    try:
        with archive.open(info) as member:
            data = member.read(most)
    except Exception:  # zlib's and others'
        return b"", "cannot be unpacked"
    return data, "is too large" if len(data) >= MOST_BYTES else ""


def sources_of(
    files: Iterable[tuple[str, bytes]], functions: Iterable[str]
) -> tuple[dict[str, Source], list[str]]:
    r"""Return each function from the last file that contains it, and say which files are broken.

    Examples
    --------
    >>> sources, trouble = sources_of([("a.py", b"def f():\n    pass"), ("b.ipynb", b"?")], "fg")
    >>> sources, trouble  # doctest: +NORMALIZE_WHITESPACE
    ({'f': Source(text='def f():\n    pass', file='a.py')},
     ['b.ipynb: it is not a readable notebook'])
    """
    found: dict[str, Source] = {}
    trouble, broken = [], {}
    functions = list(functions)
    for name, data in files:
        try:
            cells = cells_of(name, data)
        except ValueError as error:
            trouble.append(f"{name}: {error}")
            continue
        broken[name] = list(_broken(name, cells)) if name.lower().endswith(".py") else []
        for function in functions:
            text = slice_of(cells, function)
            if text is not None:
                found[function] = Source(text, name)
    used = dict.fromkeys(source.file for source in found.values())
    return found, [*trouble, *(line for name in used for line in broken[name])]


def _broken(name: str, cells: Iterable[Cell]) -> Iterator[str]:
    """Say which lines of a file Python cannot read."""
    for cell in cells:
        line = broken_line(cell.text)
        if line is None:
            continue
        written = [n for n, text in enumerate(cell.text.split("\n"), start=1) if text.strip()]
        first, last = written[0], written[-1]
        lines = f"line {first}" if first == last else f"lines {first} to {last}"
        yield BROKEN.format(name=name, lines=lines, line=line)


def misspelt_in(
    files: Iterable[tuple[str, bytes]], missing: Iterable[str], asked: Iterable[str]
) -> dict[str, str]:
    """Return for missing functions the names of others that were probably meant.

    Examples
    --------
    >>> misspelt_in([("a.py", b"def split_head(x): pass")], ["split_heads"], ["split_heads"])
    {'split_heads': 'split_head'}
    """
    written = set[str]()
    for name, data in files:
        with suppress(ValueError):
            for cell in cells_of(name, data):
                written.update(DEFINED.findall(cell.text))
    own = {name.lower(): name for name in sorted(written.difference(asked))[:MOST_NAMES]}
    close = ((name, get_close_matches(name, own, 1, CLOSE)) for name in missing)
    return {name: own[found[0]] for name, found in close if found}
