"""grade: run the submissions, one student after another, and write the results."""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace
from pathlib import Path

from mha_numpy.checks import check_count
from mha_numpy.errors import ConfigError
from mha_numpy.progress import QUIET, progress
from mha_numpy.teach.classroom.alike import find_alike
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.cluster import as_finished, grade_in_cluster
from mha_numpy.teach.classroom.feedback import write_results
from mha_numpy.teach.classroom.overrides import OVERRIDES, read_overrides
from mha_numpy.teach.classroom.results import (
    NOTHING,
    Grades,
    Result,
    Task,
    given_up,
    path_of,
    read_result,
    write_atomically,
)
from mha_numpy.teach.classroom.settled import settle
from mha_numpy.teach.classroom.student import grade_one
from mha_numpy.teach.classroom.submissions import Submission, find_submissions
from mha_numpy.teach.classroom.table import read_assignment
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.isolation import try_isolation
from mha_numpy.teach.exercises.sandbox import LIMITS, check_limits

__all__ = ["grade", "grade_one"]

FORMAT = 5  # of the files in by_student
WHOLE = 720_720_000.0  # points of each function there: with so many, any share of them is exact
AHEAD = 2  # tasks for each process that are read before it can take them


def grade(
    submissions: Path | str,
    *,
    assignment: Path | str,
    out: Path | str,
    jobs: int | None = None,
    dask: str | None = None,
    is_isolated: bool = True,
    limits: Limits = LIMITS,
) -> Grades:
    """Grade a class, and write grades.csv, a page for each student and one for the class.

    Parameters
    ----------
    submissions : path
        A folder: see `find_submissions`.
    assignment : path
        A folder that `make_assignment` wrote.
    out : path
        A folder, made if missing. Results that it already has are not graded again.
    jobs : int, optional
        How many students are graded at a time; default one for each core.
    dask : str, optional
        The address of a Dask scheduler, whose workers grade instead. They need this package, and
        bubblewrap, but none of the folders.
    is_isolated : bool
        False runs the functions with limits only, and says so in all results.
    limits : Limits
        Of each function.

    Returns
    -------
    Grades

    Notes
    -----
    A SandboxError says that a function could not be run, through no fault of the student. All
    grades up to then are kept.

    Each student's result is written at once, as a whole, with a hash of the files, of the
    assignment and of this version. A run that was stopped continues where it was, and
    ends with the same bytes.
    """
    given, out = read_assignment(assignment), Path(out)
    overrides = read_overrides(assignment, given)
    jobs = check_count("jobs", os.cpu_count() if jobs is None else jobs)
    check_limits(limits)
    if is_isolated and dask is None:
        try_isolation()
    try:
        (out / "by_student").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out: cannot make {out}: {error.strerror}") from error
    found, strange = _in_roster(find_submissions(submissions, given.roster), given)
    asked = replace(given, exercises=dict.fromkeys(given.exercises, WHOLE))
    kept: dict[str, Result] = {}
    anew: list[Submission] = []
    for one in found:
        before = read_result(path_of(out, one.student))
        if before is None or before.key != _task(one, asked, limits, is_isolated).key:
            anew.append(one)
        else:
            kept[one.student] = before
    tasks = (_task(one, asked, limits, is_isolated) for one in anew)
    graded = in_processes(tasks, jobs) if dask is None else grade_in_cluster(tasks, dask)
    for result in progress(graded, len(anew), "grading"):
        write_atomically(path_of(out, result.student), json.dumps(asdict(result), indent=1))
        kept[result.student] = result
    results = [settle(kept[student], given, overrides) for student in sorted(kept)]
    strange += [
        f"{OVERRIDES}, line {one.line}: {NOTHING} by {one.student}"
        for one in overrides
        if one.student not in kept
    ]
    alike = find_alike({result.student: result.fingerprint for result in results})
    grades = Grades(given, results, alike, len(anew), strange)
    write_results(grades, out)
    return grades


# who is to be graded


def _in_roster(
    found: list[Submission], assignment: Assignment
) -> tuple[list[Submission], list[str]]:
    """Return the submissions of all students of the roster, and a remark for each other one."""
    if assignment.roster is None:
        return found, []
    there = {
        student: Submission(student, name, trouble=[NOTHING])
        for student, name in assignment.roster.items()
    }
    strange = [
        f"{one.student}: no student of the roster; not graded ("
        f"{', '.join(file.name for file in one.files) or 'no files'})"
        for one in found
        if one.student not in there
    ]
    there |= {one.student: one for one in found if one.student in there}
    return [there[student] for student in sorted(there)], strange


def _task(one: Submission, assignment: Assignment, limits: Limits, is_isolated: bool) -> Task:
    """Read a student's files, and hash everything that the result depends on."""
    files, trouble = [], list(one.trouble)
    for file in one.files:
        try:
            files.append(file.read())
        except OSError:
            trouble.append(f"{file.name} cannot be read")
    who = (one.student, one.name, one.is_late, one.handed_in, trouble, files)
    variant = assignment.variant(one.student)
    given = (FORMAT, assignment.version, tuple(limits), is_isolated, variant, who)
    key = hashlib.sha256(repr(given).encode()).hexdigest()
    return Task(
        one.student, one.name, one.is_late, tuple(trouble), tuple(files), assignment, limits,
        is_isolated, key, one.handed_in,
    )  # fmt: skip


# processes


def in_processes(tasks: Iterable[Task], jobs: int, *, is_last: bool = False) -> Iterator[Result]:
    """Grade in several processes; give up only a task that ends its process twice."""
    tasks, broken = iter(tasks), list[Task]()

    def until_broken() -> Iterator[Task]:
        for task in tasks:
            yield task
            if broken:
                return

    with _pool(jobs) as pool:
        try:
            for task, future in as_finished(pool, until_broken(), AHEAD * jobs):
                if isinstance(future.exception(), BrokenProcessPool):
                    broken.append(task)
                else:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    if is_last:
        yield from map(given_up, broken)
    elif broken:
        for task in broken:
            yield from in_processes([task], 1, is_last=True)
        yield from in_processes(tasks, jobs)


def _pool(jobs: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, initializer=_begin_to_work)


def _begin_to_work() -> None:
    """Leave Ctrl-C to the parent, and end when it ends, for any reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    QUIET.set(True)  # the parent has a bar
    parent = multiprocessing.parent_process()

    def end_with() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with, daemon=True).start()
