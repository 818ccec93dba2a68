"""find_submissions: each student's files, from the folder that a learning platform exports."""

import os
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.slices import broken_line, cells_of, slice_of

ENDINGS = (".py", ".ipynb")
MOST_BYTES = 20_000_000  # of one file
MOST_FILES, DEEPEST = 200, 4  # of one student; folders in folders
HIDDEN = re.compile(r"\.|__")  # .ipynb_checkpoints, __MACOSX, __pycache__

PLATFORMS = [  # what Moodle, Canvas and Blackboard call a file
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<name>.+)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_?(?P<rest>.*)",
        r"(?P<name>[^\W_]+)_(?P<late>LATE_)?(?P<id>\d+)_(?P<order>\d+)_(?P<rest>.+)",
        r".*_(?P<id>[^_]+)_attempt_(?P<order>\d{4}(-\d\d){5})(_(?P<rest>.+))?",
    )
]
BROKEN = (
    "{name}: Python cannot read this file, because of a syntax error near line {line}, so none of "
    "its functions could run. They may well be right apart from that."
)
COPY = re.compile(r"(.*?)(?: ?\((\d+)\)|-(\d{1,2}))")  # hw1 (2).py of a browser, hw1-2.py of Canvas
TIME = "%Y-%m-%d-%H-%M-%S"


class HandedIn(NamedTuple):
    """One file of a student."""

    name: str  # as the student called it
    path: Path
    member: str = ""  # of a zip file
    is_late: bool = False
    order: tuple[int, ...] = ()  # later copies have larger ones

    def read(self) -> bytes:
        """Return its content; raise an OSError or a BadZipFile if it cannot be read."""
        if self.member:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as member:
                return member.read(MOST_BYTES)
        descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with open(descriptor, "rb") as file:
            return file.read(MOST_BYTES)


@dataclass
class Submission:
    """Everything that one student handed in."""

    student: str  # the id
    name: str = ""
    files: list[HandedIn] = field(default_factory=list)  # the newest last
    trouble: list[str] = field(default_factory=list)  # what was refused, and why

    @property
    def is_late(self) -> bool:
        """Whether a file is late, as far as its name says so."""
        return any(file.is_late for file in self.files)


class Source(NamedTuple):
    """A function as it was handed in, with what it needs."""

    text: str
    file: str


def find_submissions(
    folder: Path | str, roster: Mapping[str, str] | None = None, deadline: datetime | None = None
) -> list[Submission]:
    """Return each student's submission, in the order of their ids.

    Each student has a folder, or files that are named after the student's id or by Moodle, Canvas
    or Blackboard. If a platform's names have no id of yours, the names are looked up in the roster.
    Late files are marked, as far as the platform records when they came or that they are late.
    Links are refused, and so are files that are far too large. A zip file is read, but never
    unpacked.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "ada_LATE_17_204_hw1.py").write_text("x = 1")
    ...     _ = Path(folder, "bob.ipynb").write_text("{}")
    ...     for one in find_submissions(folder):
    ...         print(one.student, [file.name for file in one.files], one.is_late)
    17 ['hw1.py'] True
    bob ['bob.ipynb'] False
    """
    folder = Path(folder)
    if not folder.is_dir():
        what = (
            f"{folder} is a file: unpack it first" if folder.exists() else f"there is no {folder}"
        )
        raise ConfigError(f"submissions: expected a folder; {what}")
    found: dict[str, Submission] = {}
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        is_work = entry.is_symlink() or entry.is_dir() or entry.name.lower().endswith(
            (*ENDINGS, ".zip")
        )  # fmt: skip
        if HIDDEN.match(entry.name) or not is_work:
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        stem = entry.name if is_folder else Path(entry.name).stem
        owner = _owner(stem, roster or {})
        one = found.setdefault(owner.student, Submission(owner.student, owner.name))
        _add(one, Path(entry.path), owner, deadline)
    if not found:
        raise ConfigError(
            f"submissions: expected a folder or a .py or .ipynb file for each student; {folder} "
            "has none"
        )
    for one in found.values():
        one.files.sort(key=lambda file: (file.order, file.name))
    return [found[student] for student in sorted(found)]


class _Owner(NamedTuple):
    """The owner of a file, judged only by its name."""

    student: str
    name: str
    is_late: bool = False
    order: tuple[int, ...] = ()
    file: str = ""  # the student's own name for it, without its ending
    time: datetime | None = None


def _owner(stem: str, roster: Mapping[str, str]) -> _Owner:
    """Return the owner of a folder or file."""
    if stem in roster:
        return _Owner(stem, roster[stem])
    for found in filter(None, (platform.fullmatch(stem) for platform in PLATFORMS)):
        parts = {"name": found["id"], "late": "", "order": "", **found.groupdict()}
        student = _known(found["id"], parts["name"], roster)
        try:
            time = datetime.strptime(parts["order"], TIME)
        except ValueError:  # only Blackboard records it
            time = None
        order = tuple(map(int, re.findall(r"\d+", parts["order"])))
        name = roster.get(student, parts["name"])
        return _Owner(student, name, bool(parts["late"]), order, parts["rest"] or "", time)
    copy = COPY.fullmatch(stem)
    if copy and copy[1] and (copy[1] in roster or (copy[2] and not roster)):  # ada (2).py
        return _Owner(copy[1], roster.get(copy[1], copy[1]), order=_copy_number(stem))
    student = _known(stem, stem, roster)
    return _Owner(student, roster.get(student, student))


def _known(student: str, name: str, roster: Mapping[str, str]) -> str:
    """Return the roster's id of a student whose id on the platform is different."""
    if student in roster:
        return student
    letters = _letters(name)  # Canvas writes lovelaceada
    alike = [known for known, called in roster.items() if letters in (_letters(called), known)]
    return alike[0] if len(alike) == 1 else student


def _letters(name: str) -> str:
    """Return the letters of a name, in an order that does not depend on which part is first."""
    return "".join(sorted(c for c in name.casefold() if c.isalnum()))


def _copy_number(stem: str) -> tuple[int, ...]:
    """Return the number of a copy: of hw1 (2) or hw1-2."""
    copy = COPY.fullmatch(stem)
    return (int(copy[2] or copy[3]),) if copy else (0,)


def _add(one: Submission, path: Path, owner: _Owner, deadline: datetime | None) -> None:
    """Add a file, or those in a folder or zip file, to a student's work."""
    is_late = owner.is_late
    if deadline is not None and owner.time is not None:
        is_late = owner.time > deadline.replace(tzinfo=None)
    is_own = path.is_dir() and not path.is_symlink()
    for name, found, member in _walk(path, one.trouble, DEEPEST):
        if len(one.files) == MOST_FILES:
            one.trouble.append(f"there are more than {MOST_FILES} files; the others are left out")
            return
        if not (is_own or member) and owner.file:
            name = owner.file + Path(name).suffix
        inner = _owner(Path(name).stem, {}) if is_own else _Owner("", "")
        order = (*owner.order, *inner.order, *_copy_number(Path(name).stem))
        one.files.append(HandedIn(name, found, member, is_late or inner.is_late, order))


def _walk(path: Path, trouble: list[str], depth: int) -> Iterator[tuple[str, Path, str]]:
    """Yield the files at a path: name, path, member of a zip; note refused ones in `trouble`."""
    status = path.lstat()
    name, size = path.name, status.st_size
    if stat.S_ISLNK(status.st_mode):
        trouble.append(f"{name} is a link, which is not followed")
    elif stat.S_ISDIR(status.st_mode):
        inner = sorted(entry for entry in path.iterdir() if not HIDDEN.match(entry.name))
        if depth == 0:
            trouble.append(f"{name} is nested in too many folders")
            return
        for entry in inner:
            yield from _walk(entry, trouble, depth - 1)
    elif not stat.S_ISREG(status.st_mode):
        trouble.append(f"{name} is not a plain file")
    elif name.lower().endswith(".zip"):
        yield from _members(path, trouble)
    elif name.lower().endswith(ENDINGS):
        if size < MOST_BYTES:
            yield name, path, ""
        else:
            trouble.append(f"{name} has {size:,} bytes; the limit is {MOST_BYTES:,}")


def _members(path: Path, trouble: list[str]) -> Iterator[tuple[str, Path, str]]:
    """Yield the files in a zip file that may be read; nothing of it is written anywhere."""
    try:
        with zipfile.ZipFile(path) as file:
            infos = file.infolist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        trouble.append(f"{path.name} is not a readable zip file")
        return
    if len(infos) > 10 * MOST_FILES or sum(info.file_size for info in infos) > 2 * MOST_BYTES:
        trouble.append(f"{path.name} would be too large unpacked")
        return
    for info in infos:
        *folders, name = info.filename.split("/")
        is_link, is_locked = stat.S_ISLNK(info.external_attr >> 16), info.flag_bits & 1
        is_hidden = any(HIDDEN.match(part) for part in (*folders, name) if part.strip("."))
        if is_hidden or not name.lower().endswith(ENDINGS):
            continue
        if is_link or is_locked or info.file_size >= MOST_BYTES:
            trouble.append(f"{name} in {path.name} is a link, locked or too large")
        else:
            yield name, path, info.filename


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
    trouble = []
    functions = list(functions)
    for name, data in files:
        try:
            cells = cells_of(name, data)
        except ValueError as error:
            trouble.append(f"{name}: {error}")
            continue
        for function in functions:
            text = slice_of(cells, function)
            if text is not None:
                found[function] = Source(text, name)
    files_of = {source.file: source.text for source in found.values()}
    for name, text in files_of.items():
        line = broken_line(text) if name.lower().endswith(".py") else None
        if line is not None:  # then the text is the whole file
            trouble.append(BROKEN.format(name=name, line=line))
    return found, trouble
