"""find_submissions: each student's files, from the folder that a learning platform exports."""

import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from mha_numpy.errors import ConfigError
from mha_numpy.teach.exercises.child.errors import shown

ENDINGS = (".py", ".ipynb")
MOST_BYTES = 20_000_000  # of one file
MOST_FILES, DEEPEST = 200, 4  # of one student; folders in folders
LONG = 4  # characters of an id that may come anywhere in a name
HIDDEN = re.compile(r"\.|__")  # .ipynb_checkpoints, __MACOSX, __pycache__

PLATFORMS = [  # what Moodle, Canvas and Blackboard call a file; what comes last is the student's
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_?(?P<rest>.*)",
        r"(?P<name>[^\W_]+)_(?P<late>LATE_)?(?P<id>\d+)_(?P<order>\d+)_(?P<rest>.+)",
        r".*?_(?P<id>[^_]+)_attempt_(?P<order>\d{4}(-\d\d){5})(_(?P<rest>.+))?",
    )
]
COPY = re.compile(r"(.*?)(?: ?\((\d+)\)|-(\d{1,2}))")  # hw1 (2).py of a browser, hw1-2.py of Canvas
MARKS = re.compile(r"_assignsubmission_|_attempt_\d{4}-", re.IGNORECASE)
TWICE = "{name}: a platform's mark comes twice in this name, and the first of them counts"
TIME = "%Y-%m-%d-%H-%M-%S"


class File(NamedTuple):
    """What a student handed in, with its content; perhaps a zip file."""

    name: str  # as the student called it
    data: bytes
    order: tuple[int, ...] = ()  # later copies have larger ones
    attempt: tuple[int, ...] = ()  # to which it belongs; later ones have larger ones
    is_late: bool = False
    handed_in: str = ""  # in ISO format, if the platform records it


class HandedIn(NamedTuple):
    """Where a student's file is."""

    name: str
    path: Path
    is_late: bool = False
    order: tuple[int, ...] = ()
    attempt: tuple[int, ...] = ()
    time: datetime | None = None  # when it came, if the platform records it

    def read(self) -> File:
        """Return it with its content; raise an OSError if it cannot be read."""
        descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with open(descriptor, "rb") as file:
            data, when = file.read(MOST_BYTES), self.time.isoformat() if self.time else ""
            return File(self.name, data, self.order, self.attempt, self.is_late, when)


@dataclass
class Submission:
    """Everything that one student handed in."""

    student: str  # the id
    name: str = ""
    files: list[HandedIn] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)  # what was refused, and why

    @property
    def is_late(self) -> bool:
        """Whether a file is late, as far as its name says so."""
        return any(file.is_late for file in self.files)

    @property
    def handed_in(self) -> str:
        """When the last file came, in ISO format; "" if the platform does not record it."""
        return max((file.time.isoformat() for file in self.files if file.time), default="")


def find_submissions(
    folder: Path | str, roster: Mapping[str, str] | None = None
) -> list[Submission]:
    """Return each student's submission, in the order of their ids.

    Each student has a folder, or files that are named after the student's id or by Moodle, Canvas
    or Blackboard. With a roster, only its ids and names count, in whatever case, and a file's name
    may have other words beside an id. Who is not in it is returned under the name that was found.
    Files are late if the platform says so, and have a time if it records one. Links are refused,
    and so are files that are far too large. Nothing is read yet: see `take_in`.

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
        names = map(shown, (owner.student, entry.name, repr(entry.name)))
        student = next(name for name in names if name.strip())  # a name may be only spaces
        one = found.setdefault(student, Submission(student, shown(owner.name)))
        if len(MARKS.findall(stem)) > 1:
            one.trouble.append(TWICE.format(name=shown(entry.name)))
        _add(one, Path(entry.path), owner)
    if not found:
        raise ConfigError(
            f"submissions: expected a folder or a .py or .ipynb file for each student; {folder} "
            "has none"
        )
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
    known = _known(stem, "", roster)
    if known:
        return _Owner(known, roster[known])
    for found in filter(None, (platform.fullmatch(stem) for platform in PLATFORMS)):
        parts = {"name": found["id"], "late": "", "order": "", **found.groupdict()}
        student = _known(found["id"], parts["name"], roster) or found["id"]
        try:
            time = datetime.strptime(parts["order"], TIME)
        except ValueError:  # only Blackboard records it
            time = None
        order = tuple(map(int, re.findall(r"\d+", parts["order"])))
        name = roster.get(student, parts["name"])
        return _Owner(student, name, bool(parts["late"]), order, parts["rest"] or "", time)
    copy = COPY.fullmatch(stem)
    whose = _known(copy[1], "", roster) if copy else ""
    if copy and copy[1] and (whose or (copy[2] and not roster)):  # ada (2).py
        student = whose or copy[1]
        return _Owner(student, roster.get(student, student), order=copy_number(stem))
    student = _known(stem, stem, roster) or _named_in(stem, roster)
    return _Owner(student, roster.get(student, student))


def _known(student: str, name: str, roster: Mapping[str, str]) -> str:
    """Return the roster's id for a student's id, or for the name of one; "" if it has none."""
    same = [known for known in roster if _same(known) == _same(student)]
    if len(same) > 1:  # 007 and 7
        same = [known for known in same if known == student]
    if same or not name:
        return next(iter(same), "")
    letters = _letters(name)  # Canvas writes lovelaceada
    alike = [known for known, called in roster.items() if letters in (_letters(called), known)]
    return alike[0] if len(alike) == 1 else ""


def _same(student: str) -> str:
    """Return an id without what a file system or a spreadsheet may have changed in it."""
    plain = unicodedata.normalize("NFKC", student).casefold().strip()
    return plain.lstrip("0") or plain if plain.isdecimal() else plain


def _named_in(stem: str, roster: Mapping[str, str]) -> str:
    """Return the one id of the roster that a name has beside other words, else the name.

    A name with two ids belongs to nobody. A short id has to come first: hw1_7.py is not work of 7.
    """
    text = unicodedata.normalize("NFKC", stem).casefold()
    found = []
    for known in roster:
        before = r"(?<![^\W_])" if len(known) >= LONG else "^"
        own = _same(known)
        if own in text and re.search(rf"{before}{re.escape(own)}(?![^\W_])", text):
            found.append(known)
    longest = [one for one in found if not any(one != other and one in other for other in found)]
    return longest[0] if len(longest) == 1 else stem


def _letters(name: str) -> str:
    """Return the letters of a name, in an order that does not depend on which part is first."""
    return "".join(sorted(c for c in unicodedata.normalize("NFC", name).casefold() if c.isalnum()))


def copy_number(stem: str) -> tuple[int, ...]:
    """Return the number of a copy: of hw1 (2) or hw1-2."""
    copy = COPY.fullmatch(stem)
    return (int(copy[2] or copy[3]),) if copy else (0,)


def _add(one: Submission, path: Path, owner: _Owner) -> None:
    """Add a file, or those in a folder or zip file, to a student's work."""
    is_own = path.is_dir() and not path.is_symlink()
    for found in _walk(path, one.trouble, DEEPEST):
        if len(one.files) == MOST_FILES:
            one.trouble.append(f"there are more than {MOST_FILES} files; the others are left out")
            return
        name = found.name if is_own or not owner.file else owner.file + found.suffix
        inner = _owner(found.stem, {}) if is_own else _Owner("", "")
        copy = copy_number(Path(name).stem)
        order, is_late = (*owner.order, *inner.order, *copy), owner.is_late or inner.is_late
        attempt = next((of.order for of in (owner, inner) if of.time), copy)
        one.files.append(HandedIn(shown(name), found, is_late, order, attempt, owner.time))


def _walk(path: Path, trouble: list[str], depth: int) -> Iterator[Path]:
    """Yield the files at a path; note refused ones in `trouble`."""
    status = path.lstat()
    name, size = shown(path.name), status.st_size
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
    elif name.lower().endswith((*ENDINGS, ".zip")):
        if size < MOST_BYTES:
            yield path
        else:
            trouble.append(f"{name} has {size:,} bytes; the limit is {MOST_BYTES:,}")
