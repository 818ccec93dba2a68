"""make_assignment: a folder with points, a secret, and a handout for each student."""

import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.teach.classroom.assignment import VARIANTS, Assignment
from mha_numpy.teach.classroom.exports import EXPORTS, check_export, export_texts
from mha_numpy.teach.classroom.handout import FORMS, handout_texts, load_nbformat
from mha_numpy.teach.classroom.marks import MARKS
from mha_numpy.teach.classroom.moments import read_moment
from mha_numpy.teach.classroom.overrides import COLUMNS, OVERRIDES
from mha_numpy.teach.classroom.roster import EVERYBODY, NO_ID, read_roster, write_roster
from mha_numpy.teach.classroom.table import (
    OWN,
    ROSTER,
    SECRET,
    SECRET_BYTES,
    TABLE,
    as_toml,
    read_secret,
    secret_name,
)
from mha_numpy.teach.exercises import Exercise, find_exercise
from mha_numpy.teach.exercises.check_own import Checked
from mha_numpy.teach.own import write_own

TITLE = "Exercises in attention"
POINTS = 10  # for each step of difficulty
HANDOUTS = "handouts"


class Ready(NamedTuple):
    """A ready-made assignment, only to be handed out."""

    title: str
    exercises: tuple[str, ...]


READY = {
    "hw1-forward": Ready(
        "Attention, forward",
        ("split-heads", "merge-heads", "scores", "softmax", "masks", "attention", "multi-head"),
    ),
    "hw2-backward": Ready(
        "Attention, backward",
        (
            "attention", "scores-backward", "softmax-backward", "attention-backward",
            "linear-backward", "input-gradient", "multi-head-backward",
        ),
    ),
    "hw3-grouped-and-cache": Ready(
        "Shared heads, masks, and keys that are kept",
        (
            "grouped-attention", "masked-attention", "sum-over-group", "grouped-backward",
            "decode-step", "online-attention",
        ),
    ),
}  # fmt: skip


class Made(NamedTuple):
    """What `make_assignment` wrote."""

    assignment: Assignment
    handouts: list[Path]  # a folder for each student, or one for all; or what is not for students


def make_assignment(
    name: str,
    out: Path | str,
    *,
    own: Iterable[Checked] = (),
    roster: Path | str | None = None,
    secret_file: Path | str | None = None,
    form: str = "notebook",
    deadline: str | None = None,
    variants: str | None = None,
    force: bool = False,
) -> Made:
    """Write an assignment: its table of points, its secret, and a handout for each student.

    Parameters
    ----------
    name : str
        A key of ``READY``, or ids of exercises with commas between them; then the assignment has
        the name of the folder `out`.
    out : path
        The folder, made if missing. Only ``handouts`` in it is for students.
    own : iterable of Checked
        Exercises that you wrote, from `check_own`, which are made once `out` may be written to.
        They come after the others, and `out` keeps a copy. With any, `name` may be "".
    roster : path, optional
        A CSV file for `read_roster`, with which each student gets their own handout. Without
        it there is one for all.
    secret_file : path, optional
        The source of seeds and conventions. Default: the secret of the assignment in `out`, else
        ``secret`` in `out`, which only its owner may read.
    form : str
        "notebook" or "files"; or, for the whole class in one notebook, "otter" or "nbgrader", see
        `export_texts`: then the folder ``otter`` or ``nbgrader`` in `out` is the teacher's.
    deadline : str, optional
        Such as ``2030-05-31`` (the end of that day) or ``2030-05-31T12:00``.
    variants : str, optional
        What differs between students: "conventions" and hidden numbers (the default with a roster),
        only hidden numbers: "seeds" (the default without one), or "none".
    force : bool
        Whether to overwrite an existing assignment; its secret stays.

    Returns
    -------
    Made
        The assignment, and the folders to hand out.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     made = make_assignment("softmax,masks", Path(folder) / "hw", form="files")
    ...     sorted(path.name for path in made.handouts[0].iterdir())
    ['01_softmax.py', '02_masks.py', 'README.md', 'check.py']
    """
    out = Path(out)
    if form not in (*FORMS, *EXPORTS):
        forms = ", ".join((*FORMS, *EXPORTS))
        raise ConfigError(f"format: expected one of {forms}; got {form!r}")
    if os.path.lexists(out / TABLE) and not force:
        raise ConfigError(f"out: {out} already has {TABLE}; add --force to overwrite it")
    differing = variants or ("seeds" if roster is None else "conventions")
    if differing not in VARIANTS:
        raise ConfigError(f"variants: expected one of {', '.join(VARIANTS)}; got {variants!r}")
    if differing == "conventions" and roster is None:
        raise ConfigError("variants: conventions differ between students, so add --roster FILE.csv")
    if form == FORMS[0]:
        load_nbformat()
    own = list(own)
    usual = own[0].exercise.title if len(own) == 1 and not name else TITLE
    title, ids = READY.get(name) or Ready(usual, _ids(name) if name or not own else ())
    if form in EXPORTS:
        check_export(ids, form, has_roster=roster is not None, has_own=bool(own))
    folders = {one.exercise.id: one.own for one in own}
    students = None if roster is None else read_roster(roster)
    where = {student: out / HANDOUTS / student for student in students or (EVERYBODY,)}
    texts_of = handout_texts
    if form in EXPORTS:
        where, texts_of = {EVERYBODY: out / form}, export_texts
    kept = secret_name(out) if secret_file is None else str(Path(secret_file).resolve())
    if kept != SECRET:
        read_secret(out / kept)
    exercises: dict[str, float] = {
        exercise: POINTS * find_exercise(exercise).difficulty for exercise in ids
    } | {one.exercise.id: one.points(POINTS) for one in own}
    ids = _all_different([*map(find_exercise, ids), *(one.exercise for one in own)])
    own_name = name if name in READY else out.resolve().name
    if NO_ID.search(own_name) or not own_name:
        raise ConfigError(f"out: expected a folder whose name has no | in it; got {own_name!r}")
    when = None if deadline is None else read_moment(deadline, "deadline")
    try:
        out.mkdir(parents=True, exist_ok=True)
        secret = _make_secret(out / SECRET) if kept == SECRET else read_secret(out / kept)
        assignment = Assignment(
            own_name, title, exercises, dict(MARKS), when, secret, students, ids, differing,
            own=folders,
        )  # fmt: skip
        rmtree(out / OWN, ignore_errors=True)
        for exercise, one in folders.items():
            write_own(one, out / OWN / exercise)
        if students is not None:
            write_roster(out / ROSTER, students)
        else:
            (out / ROSTER).unlink(missing_ok=True)
        for student, folder in where.items():
            for path, written in texts_of(assignment, student, form).items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(written, encoding="utf-8")
        if not (out / OVERRIDES).exists():  # else it has decisions
            (out / OVERRIDES).write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
        text = as_toml(assignment, kept)
        (out / TABLE).write_text(text, encoding="utf-8")  # last: then all is there
    except FileExistsError as error:
        raise ConfigError(f"out: expected a folder; {out} is a file") from error
    except OSError as error:
        raise ConfigError(f"out: cannot write to {out}: {error.strerror}") from error
    return Made(assignment, list(where.values()))


def _ids(text: str) -> tuple[str, ...]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    try:
        exercises = [find_exercise(name) for name in names]
    except ConfigError as error:
        known = did_you_mean(text, READY) or str(error)
        ready = ", ".join(READY)
        raise ConfigError(
            f"name: expected {ready}, or ids of exercises with commas between them; got "
            f"{text!r}; {known}"
        ) from error
    return _all_different(exercises)


def _all_different(exercises: Sequence[Exercise]) -> tuple[str, ...]:
    """Return the ids of exercises that ask for different functions."""
    ids = tuple(exercise.id for exercise in exercises)
    functions = [exercise.function_name for exercise in exercises]
    twice = next((one for one in functions if functions.count(one) > 1), None)
    if not ids or twice:
        which = f"{twice} occurs twice" if twice else "got none"
        raise ConfigError(f"name: expected exercises for different functions; {which}")
    return ids


def _make_secret(path: Path) -> bytes:
    """Draw a secret that only its owner can read; an existing one stays."""
    if not path.exists():
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as stream:
            stream.write(secrets.token_hex(SECRET_BYTES) + "\n")
    return read_secret(path)
