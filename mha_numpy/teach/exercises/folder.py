"""A folder of exercises: one file for each, a README, a file for pytest, the progress."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mha_numpy.errors import ConfigError
from mha_numpy.teach.conventions import Variant, using
from mha_numpy.teach.exercises.catalogue import EXERCISES, find_exercise
from mha_numpy.teach.exercises.child.calls import load
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.exercise import Exercise, exercise_of, stub_text
from mha_numpy.teach.exercises.hints import Hint
from mha_numpy.teach.exercises.judge import judge
from mha_numpy.teach.exercises.records import Records
from mha_numpy.teach.exercises.sandbox import LIMITS
from mha_numpy.teach.exercises.stages import NO_RETURN
from mha_numpy.teach.exercises.verdict import Verdict
from mha_numpy.teach.load_own import load_own
from mha_numpy.teach.own import Example

RECORD = "progress.json"
EXAMPLES = "examples.json"  # of exercises that a teacher wrote
README = """# Exercises in attention

{count} functions to write, one in each file, about {hours} hours in all. Each file says what its
function takes and returns. All you need is NumPy and this package.

    mha-numpy check .                  all of them, a line each
    mha-numpy check . softmax          one of them, stage by stage
    mha-numpy check . softmax --watch  again whenever you save a file
    mha-numpy hint . softmax           the next of four hints
    mha-numpy exercises .              the list, with your progress
    pytest                             all of them, as tests (pip install pytest)

After the first hint, check your answer again before you ask for the next one, or add --force.

Each file is independent, so copy what you need from the earlier ones. If a hint names a notebook,
`mha-numpy lab` opens it; the pages of docs/ are in the project's repository.

A check runs your function in a separate process, on a few inputs in float64: sizes that all differ,
equal sizes, large numbers, rows that see nothing. It asks in this order whether the function runs;
whether type, dtype and shape are right; whether a number is NaN; whether your inputs are unchanged;
whether a second call returns the same; whether the result obeys the rules that every right answer
obeys; whether the numbers are right; and whether numerical differentiation gives the same
gradients. If your numbers are those of a known mistake, the check names it. The files named museum
contain code with a bug for you to find.

| | id | | difficulty | minutes | after |
|---|---|---|---|---|---|
{rows}
"""

PYTEST = '''"""Check the exercises in this folder: pytest, or pytest -k softmax for some of them."""

from pathlib import Path

import pytest

from mha_numpy.teach.exercises import exercises_in, judge_file

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("id", [exercise.id for exercise in exercises_in(FOLDER)])
def test_exercise(id):
    verdict = judge_file(FOLDER, id)
    if verdict.is_unwritten:
        pytest.skip(verdict.unwritten)
    if not verdict.passed:
        pytest.fail(f"{verdict.summary}\\n\\n{verdict}", pytrace=False)
'''


class Started(NamedTuple):
    """What became of each file."""

    written: list[Path]
    kept: list[Path]  # were there already


def start(folder: Path | str) -> Started:
    """Write a stub for every exercise, a README and a file for pytest; keep what is there.

    Parameters
    ----------
    folder : path
        Made if missing.

    Returns
    -------
    Started
        ``written`` and ``kept``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     first, again = start(folder), start(folder)
    >>> len(first.written) == len(EXERCISES) + 2, again.written
    (True, [])
    """
    folder = Path(folder)
    texts = {
        file_name(exercise): stub_text(exercise)
        for exercise in EXERCISES
        if not _files(folder, exercise)
    }
    texts |= {"README.md": _readme(), "test_exercises.py": PYTEST}
    started = Started([], [path for e in EXERCISES for path in _files(folder, e)])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / name
            (started.kept if path.exists() else started.written).append(path)
            if not path.exists():
                path.write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise ConfigError(f"folder: expected a folder; {folder} is a file") from error
    except OSError as error:
        raise ConfigError(f"folder: cannot write to {folder}: {error.strerror}") from error
    return started


def _readme() -> str:
    """Return the README of a folder of exercises, as Markdown."""
    rows = "\n".join(
        f"| {number} | {e.id} | {e.title} | {e.difficulty} | {e.minutes} | {', '.join(e.needs)} |"
        for number, e in enumerate(EXERCISES, start=1)
    )
    hours = round(sum(exercise.minutes for exercise in EXERCISES) / 60)
    return README.format(count=len(EXERCISES), rows=rows, hours=hours)


def file_name(exercise: Exercise, number: int | None = None) -> str:
    """Return the name of an exercise's file, such as 04_softmax.py, by default among all."""
    if number is None:
        number = [other.id for other in EXERCISES].index(exercise.id) + 1
    return f"{number:02}_{exercise.id.replace('-', '_')}.py"


def judge_file(
    folder: Path | str, exercise_id: str, limits: Limits = LIMITS, *, strict: bool = False
) -> Verdict:
    """Judge the function in an exercise's file, and note it in the folder's progress.

    Parameters
    ----------
    folder : path
        Made by `start`.
    exercise_id : str
    limits : Limits
        On the time, memory and output of the student's code.
    strict : bool
        As for `judge`.

    Returns
    -------
    Verdict
    """
    folder, example = Path(folder), examples_in(folder).get(exercise_id)
    exercise = find_exercise(exercise_id) if example is None else exercise_of(load_own(example))
    path, records = find_file(folder, exercise), Records(folder / RECORD)
    with using(Variant(own=example)):
        verdict = judge(
            exercise, lambda: load_function(path, exercise.function_name), limits, strict=strict
        )
    if verdict.unwritten == NO_RETURN:  # the stub of a file raises an error
        verdict = replace(verdict, unwritten="")
    try:
        records.note(verdict)
    except ConfigError as error:  # a folder that may only be read
        verdict.remarks["progress"] = str(error)
    return verdict


def hint_in(
    folder: Path | str, exercise_id: str, number: int | None = None, *, force: bool = False
) -> tuple[Hint, Path | None]:
    """Return a hint on an exercise in a folder, and the path of its picture, if it has one.

    Parameters
    ----------
    folder : path
        Made by `start`; its record has the number of hints given, and the last mistake.
    exercise_id : str
    number : int, optional
        1 to 4; default the next.
    force : bool
        Whether to give a hint after the first one even if nothing was checked since the last hint.

    Returns
    -------
    hint : Hint
        If a check has to come first, `is_given` is False and the text says so.
    picture : Path or None
        An SVG file.
    """
    exercise, records = find_exercise(exercise_id), Records(Path(folder) / RECORD)
    find_file(Path(folder), exercise)
    hint = records.give_hint(exercise, number, force=force)
    if hint.difference is None:
        return hint, None
    from mha_numpy.show.pictures import save_figure

    (path,) = save_figure(
        hint.difference.draw(), Path(folder) / f"hint_{exercise.id.replace('-', '_')}"
    )
    return hint, path


def exercises_in(folder: Path | str) -> list[Exercise]:
    """Return the exercises whose files are in a folder; raise a ConfigError if there is none."""
    own = [exercise_of(load_own(example)) for example in examples_in(folder).values()]
    found = [exercise for exercise in [*EXERCISES, *own] if _files(Path(folder), exercise)]
    if not found:
        raise ConfigError(
            f"folder: there are no exercises in {folder}; "
            f"`mha-numpy exercises start {folder}` writes them"
        )
    return found


def examples_in(folder: Path | str) -> dict[str, Example]:
    """Return the examples of exercises that a teacher wrote, by the id."""
    try:
        told = json.loads((Path(folder) / EXAMPLES).read_text(encoding="utf-8"))
        return {str(exercise): Example(str(text)) for exercise, text in told.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"folder: cannot read {Path(folder) / EXAMPLES}: {error}") from error


def find_file(folder: Path, exercise: Exercise) -> Path:
    """Return an exercise's file; its number may be that of another version."""
    found = _files(folder, exercise)
    if not found:
        raise ConfigError(
            f"folder: there is no {folder / file_name(exercise)}; "
            f"`mha-numpy exercises start {folder}` writes it"
        )
    return found[0]


def _files(folder: Path, exercise: Exercise) -> list[Path]:
    return sorted(folder.glob(f"[0-9]*_{exercise.id.replace('-', '_')}.py"))


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """Run a student's file and return its function; for a separate process."""
    sys.path.insert(0, str(path.parent))  # helpers in neighbouring files
    sys.dont_write_bytecode = True  # what was saved in the same second would be taken for new
    return load(path.read_bytes(), str(path), name)
