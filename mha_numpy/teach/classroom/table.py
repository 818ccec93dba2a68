"""Assignment: which exercises a class does, for how many points, each student in a variant."""

import hmac
import json
import tomllib
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.roster import read_roster
from mha_numpy.teach.diagnosis import CONVENTIONS, Variant
from mha_numpy.teach.exercises import Exercise, find_exercise

# groups of stages, and how many percent of a function's points each is worth
MARKS = {"shape": 10, "invariants": 20, "values": 40, "gradients": 20, "robustness": 10}
SECRET_BYTES = 32
MOST = 2  # conventions of one exercise, if it can be helped
TABLE, ROSTER, SECRET = "assignment.toml", "roster.csv", "secret"


@dataclass(frozen=True)
class Assignment:
    """What a class is asked to do, as the folder of an assignment holds it."""

    name: str
    title: str
    exercises: dict[str, float]  # points, by the id of an exercise
    marks: dict[str, float]  # percent of these points, by group of stages
    deadline: datetime | None = None
    secret: bytes | None = None  # what variants are made of; None: all have the usual one
    roster: dict[str, str] | None = None  # names, by the id; None: all have the usual conventions
    handed_out: tuple[str, ...] = ()  # ids of the exercises as handed out; default: all of them

    @property
    def total(self) -> float:
        """The sum of all points."""
        return sum(self.exercises.values())

    @property
    def catalogue(self) -> list[Exercise]:
        """The exercises themselves, in their order."""
        return [find_exercise(exercise) for exercise in self.exercises]

    def variant(self, student: str) -> dict[str, Variant]:
        """Return the variant of each exercise that a student has.

        The seed of an exercise is ``HMAC-SHA256(secret, student|assignment|exercise)``. With a
        roster there are conventions, too: the same in all exercises of a student, as one function
        may use another. Each exercise that knows any has at least one; which, is found in the
        same way as the seed.

        Parameters
        ----------
        student : str
            The id, also of somebody who is not on the roster.

        Returns
        -------
        dict
            A Variant for each exercise.

        Examples
        --------
        >>> points = {"scores": 10.0, "rope": 20.0}
        >>> one = Assignment("hw", "", points, {}, secret=b"not told", roster={"ada": "Ada"})
        >>> {id: variant.conventions for id, variant in one.variant("ada").items()}
        {'scores': ('keys as rows', 'heads behind the tokens'), 'rope': ()}
        >>> Assignment("hw", "", {"rope": 10}, {}).variant("ada")
        {'rope': Variant(seed=20240229, conventions=())}
        """
        if self.secret is None:
            return {exercise: Variant() for exercise in self.exercises}
        followed = set() if self.roster is None else self._conventions(student)
        variants = {}
        for exercise in self.exercises:
            known = _conventions_for(find_exercise(exercise))
            seed = int.from_bytes(self._digest(student, exercise)[:8])
            variants[exercise] = Variant(seed, tuple(name for name in known if name in followed))
        return variants

    def _conventions(self, student: str) -> set[str]:
        """Return the conventions that a student follows."""
        order = sorted(CONVENTIONS, key=lambda name: self._digest(student, f"convention {name}"))
        ids = self.handed_out or tuple(self.exercises)
        known = [set(_conventions_for(find_exercise(exercise))) for exercise in ids]
        followed: list[str] = []
        for names in filter(None, known):
            if names.isdisjoint(followed):
                followed.append(next(name for name in order if name in names))
        for name in order:  # and some more, by the toss of a coin
            is_tossed = self._digest(student, f"coin {name}")[0] % 2
            more = {*followed, name}
            if is_tossed and all(len(names & more) <= MOST for names in known if name in names):
                followed.append(name)
        return set(followed)

    def _digest(self, student: str, what: str) -> bytes:
        """Return a digest that nobody can compute without the secret."""
        message = f"{student}|{self.name}|{what}".encode()
        return hmac.digest(self.secret or b"", message, "sha256")


def _conventions_for(exercise: Exercise) -> list[str]:
    """Return the conventions that an exercise knows; one that is handed out as code knows none."""
    if exercise.kind != "code":
        return []
    return [name for name, convention in CONVENTIONS.items() if exercise.task in convention.at]


def read_assignment(folder: Path | str) -> Assignment:
    """Read what `make_assignment` wrote, and what was changed in it since.

    Parameters
    ----------
    folder : path

    Returns
    -------
    Assignment

    Raises
    ------
    ConfigError
        A file is missing, or its table does not say what it should.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from mha_numpy.teach.classroom import make_assignment
    >>> with TemporaryDirectory() as folder:
    ...     made = make_assignment("hw1-forward", folder)
    ...     read_assignment(folder) == made.assignment
    True
    """
    path = Path(folder) / TABLE
    table = _parsed(path)
    name, title = (_text(table, key, path) for key in ("name", "title"))
    exercises = {
        find_exercise(key).id: value for key, value in _numbers(table, "points", path).items()
    }
    marks = _numbers(table, "marks", path)
    if set(marks) != set(MARKS) or abs(sum(marks.values()) - 100) > 1e-9:
        raise ConfigError(
            f"marks: expected {', '.join(MARKS)} with the sum 100; {path} has {marks}"
        )
    ids = table.get("handed_out", list(exercises))
    if not exercises or not isinstance(ids, list) or not set(exercises) <= set(ids):
        raise ConfigError(
            f"points: expected exercises that were handed out, {ids}; {path} has {list(exercises)}"
        )
    deadline = table.get("deadline")
    if deadline is not None and not isinstance(deadline, date):
        raise ConfigError(f"deadline: expected 2030-05-31T12:00:00; {path} has {deadline!r}")
    roster = Path(folder) / ROSTER
    students = read_roster(roster) if roster.exists() else None
    secret = read_secret(Path(folder) / _text(table, "secret_file", path))
    when = None if deadline is None else end_of(deadline)
    return Assignment(name, title, exercises, marks, when, secret, students, tuple(ids))


def _parsed(path: Path) -> dict[str, Any]:
    """Return what a TOML file holds."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"assignment: there is no {path}; `mha-numpy assignment NAME --out {path.parent}` "
            "writes it"
        ) from error
    except OSError as error:
        raise ConfigError(f"assignment: cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(f"assignment: expected TOML in {path}; {error}") from error


def end_of(day: date) -> datetime:
    """Return a time as it is, and of a day its last minute."""
    return day if isinstance(day, datetime) else datetime.combine(day, time(23, 59))


def secret_name(folder: Path) -> str:
    """Return where the secret of an assignment is, as its table says, if there is one."""
    if not (folder / TABLE).exists():
        return SECRET
    return _text(_parsed(folder / TABLE), "secret_file", folder / TABLE)


def read_secret(path: Path) -> bytes:
    """Return what a file holds, without a newline at its end."""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"secret-file: cannot read {path}: {error.strerror}") from error
    if len(secret) < SECRET_BYTES // 2:
        raise ConfigError(
            f"secret-file: expected {SECRET_BYTES // 2} bytes or more, drawn at random; {path} "
            f"has {len(secret)}"
        )
    return secret


def as_toml(assignment: Assignment, secret_file: str) -> str:
    """Return the table of an assignment."""
    when = assignment.deadline
    return TOML.format(
        name=_quoted(assignment.name),
        title=_quoted(assignment.title),
        deadline=f"deadline = {when.isoformat()}" if when else "# deadline = 2030-05-31T23:59:00",
        secret_file=_quoted(secret_file),
        handed_out="\n".join(f"    {_quoted(exercise)}," for exercise in assignment.handed_out),
        points="\n".join(
            f"{exercise} = {points:g}" for exercise, points in assignment.exercises.items()
        ),
        marks="\n".join(f"{group} = {share:g}" for group, share in assignment.marks.items()),
    )


TOML = """\
# Written by `mha-numpy assignment`, read by `mha-numpy grade`. Title, deadline, points and marks
# may be changed at any time. The rest is what the students' variants are made of.

name = {name}
title = {title}
{deadline}
secret_file = {secret_file}
handed_out = [
{handed_out}
]

# An exercise that has no line here is not graded.
[points]
{points}

# Percent of a function's points, by what is asked of it.
[marks]
{marks}
"""


def _quoted(text: str) -> str:
    """Return a text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _text(table: dict[str, Any], key: str, path: Path) -> str:
    """Return a text of a table."""
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f'{key}: expected {key} = "..." in {path}; got {value!r}')
    return value


def _numbers(table: dict[str, Any], key: str, path: Path) -> dict[str, float]:
    """Return a table of numbers that are 0 or more."""
    values = table.get(key)
    if not isinstance(values, dict):
        raise ConfigError(f"{key}: expected a table [{key}] in {path}; got {values!r}")
    for name, value in values.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < float("inf"):
            raise ConfigError(
                f"{key}: expected numbers of 0 or more; {path} has {name} = {value!r}"
            )
    return values
