"""grade: run what was handed in, one student after another, and write what came of it."""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from mha_numpy import __version__
from mha_numpy.checks import check_count
from mha_numpy.classroom.alike import Pair, find_alike, fingerprint
from mha_numpy.classroom.follow import PAIRS, follows
from mha_numpy.classroom.marks import groups_of, points_of
from mha_numpy.classroom.submissions import Source, Submission, find_submissions, sources_of
from mha_numpy.classroom.table import Assignment, read_assignment
from mha_numpy.classroom.wording import FAILED, cause_of, findings_of
from mha_numpy.errors import ConfigError
from mha_numpy.exercises.catalogue import find_exercise
from mha_numpy.exercises.exercise import Exercise
from mha_numpy.exercises.hints import give_hint
from mha_numpy.exercises.isolation import find_bubblewrap, run_isolated
from mha_numpy.exercises.judge import judge_answers, probe_inputs
from mha_numpy.exercises.runner import Limits, load
from mha_numpy.exercises.sandbox import LIMITS, Run, check_limits, run_calls
from mha_numpy.exercises.verdict import Verdict
from mha_numpy.mistakes import using
from mha_numpy.progress import progress
from mha_numpy.tables import Table

FORMAT = 1  # of the files in by_student
SLOTS = 5000  # users that runs may be: few, as a container may know no more than 65536
FOLLOWED = (FAILED["values"], FAILED["gradients"])
AHEAD = 2  # tasks for each process that are read before it can take them


class Task(NamedTuple):
    """All that is needed to grade one student, anywhere."""

    student: str
    name: str
    is_late: bool
    trouble: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]  # the newest last
    assignment: Assignment
    limits: Limits
    is_isolated: bool
    key: str


@dataclass
class Function:
    """What came of one function; its texts may be shown to the student."""

    exercise: str
    points: float
    out_of: float
    state: str  # "right", "follows", "wrong", "failed", "not written" or "not there"
    groups: dict[str, bool] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    cause: str = ""
    mistakes: list[str] = field(default_factory=list)  # names of the bank
    hint: str = ""
    file: str = ""
    seconds: float = 0.0


@dataclass
class Result:
    """What came of one student's work."""

    student: str
    name: str
    is_late: bool
    is_isolated: bool
    key: str
    trouble: list[str]
    functions: list[Function]
    fingerprint: list[int] = field(default_factory=list)  # see `alike`

    @property
    def points(self) -> float:
        """All points."""
        return round(sum(function.points for function in self.functions), 2)

    @property
    def out_of(self) -> float:
        """The points of work that is all right."""
        return round(sum(function.out_of for function in self.functions), 2)


class Grades(NamedTuple):
    """What came of a class."""

    assignment: Assignment
    results: list[Result]  # in the order of the ids
    alike: list[Pair]
    graded: int  # that had not been graded before

    def table(self) -> Table:
        """Return how each exercise went, for a terminal."""
        rows = []
        for name, out_of in self.assignment.exercises.items():
            functions = [f for result in self.results for f in result.functions]
            of_this = [function for function in functions if function.exercise == name]
            right = sum(function.state == "right" for function in of_this)
            mean = sum(function.points for function in of_this) / len(of_this)
            causes = Counter(mistake for function in of_this for mistake in function.mistakes)
            most = "".join(f"{cause} ({count})" for cause, count in causes.most_common(1))
            rows.append([name, f"{right} of {len(of_this)}", f"{mean:.1f} of {out_of:g}", most])
        columns = ["exercise", "right", "mean", "most frequent mistake"]
        return Table(self.assignment.title, columns, rows)


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
        A folder, made if missing. What it holds already is not graded again.
    jobs : int, optional
        How many students are graded at a time; default one for each core.
    dask : str, optional
        The address of a Dask scheduler, whose workers grade instead. They need this package, and
        bubblewrap, but none of the folders.
    is_isolated : bool
        False runs the functions with limits alone, and says so in all results.
    limits : Limits
        Of each function.

    Returns
    -------
    Grades

    Raises
    ------
    ConfigError
        A folder is not there or holds something else, or bubblewrap is not installed.

    Notes
    -----
    What came of each student is written at once, as a whole, under a hash of the files, of the
    assignment and of this version. A run that was stopped goes on where it was, to the same bytes.
    """
    from mha_numpy.classroom.cluster import grade_in_cluster
    from mha_numpy.classroom.feedback import write_results  # it shows what is made here

    given, out = read_assignment(assignment), Path(out)
    jobs = check_count("jobs", os.cpu_count() if jobs is None else jobs)
    check_limits(limits)
    if is_isolated and dask is None:
        find_bubblewrap()
    try:
        (out / "by_student").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out: cannot make {out}: {error.strerror}") from error
    found = _with_absent(find_submissions(submissions, given.roster, given.deadline), given)
    kept: dict[str, Result] = {}
    anew: list[Submission] = []
    for one in found:
        before = read_result(_path_of(out, one.student))
        if before is None or before.key != _task(one, given, limits, is_isolated).key:
            anew.append(one)
        else:
            kept[one.student] = before
    tasks = (_task(one, given, limits, is_isolated) for one in anew)
    graded = _in_processes(tasks, jobs) if dask is None else grade_in_cluster(tasks, dask)
    for result in progress(graded, len(anew), "grading"):
        write_atomically(_path_of(out, result.student), json.dumps(asdict(result), indent=1))
        kept[result.student] = result
    results = [kept[student] for student in sorted(kept)]
    alike = find_alike({result.student: result.fingerprint for result in results})
    grades = Grades(given, results, alike, len(anew))
    write_results(grades, out)
    return grades


def grade_one(task: Task) -> Result:
    """Grade one student; nothing but the task goes in, and nothing is written anywhere.

    Parameters
    ----------
    task : Task

    Returns
    -------
    Result
    """
    exercises = [find_exercise(name) for name in task.assignment.exercises]
    names = [exercise.function_name for exercise in exercises]
    sources, broken = sources_of(task.files, names)
    variants = task.assignment.variant(task.student)
    functions = []
    for exercise in exercises:
        with using(variants[exercise.id]):
            functions.append(_grade_function(exercise, sources.get(exercise.function_name), task))
    by_id = {exercise.id: sources.get(exercise.function_name) for exercise in exercises}
    for number, function in enumerate(functions):
        with using(variants[function.exercise]):
            functions[number] = _followed(function, functions, by_id, task)
    texts = [source.text for source in sources.values()]
    stubs = [exercise.stub_source for exercise in exercises]
    return Result(
        task.student, task.name, task.is_late, task.is_isolated, task.key,
        [*task.trouble, *broken], functions, fingerprint(texts, stubs),
    )  # fmt: skip


def _grade_function(exercise: Exercise, source: Source | None, task: Task) -> Function:
    """Run and judge one function under the student's variant."""
    out_of = task.assignment.exercises[exercise.id]
    hint = give_hint(exercise, 1).text
    if source is None:
        return Function(exercise.id, 0.0, out_of, "not there", hint=hint)
    start = time.monotonic()
    run = _run(exercise, source, probe_inputs(exercise), task)
    seconds = round(time.monotonic() - start, 2)
    try:
        verdict = judge_answers(exercise, run)
    except Exception:  # an answer that nobody has thought of costs this function alone
        return Function(
            exercise.id, 0.0, out_of, "failed", findings=["its answers could not be judged"],
            hint=hint, file=source.file, seconds=seconds,
        )  # fmt: skip
    if verdict.is_unwritten:
        return Function(
            exercise.id, 0.0, out_of, "not written", hint=hint, file=source.file, seconds=seconds
        )
    groups = groups_of(verdict.stages)
    return Function(
        exercise.id, points_of(groups, out_of, task.assignment.marks), out_of, _state(verdict),
        groups, findings_of(verdict, _error(run), source), cause_of(verdict),
        sorted(verdict.mistakes), "" if verdict.passed else hint, source.file, seconds,
    )  # fmt: skip


def _followed(
    function: Function, functions: list[Function], sources: dict[str, Source | None], task: Task
) -> Function:
    """Return a backward with credit for its values, where it is right for the own wrong forward.

    The forward's mistake has to be a known one: a forward that returns nothing but zeros has an
    easy backward.
    """
    pair = PAIRS.get(function.exercise)
    forward = next((one for one in functions if pair and one.exercise == pair.forward), None)
    if forward is None or not forward.mistakes or not forward.groups.get("shape"):
        return function
    if function.state != "wrong" or not function.groups["shape"] or function.groups["values"]:
        return function

    def call(exercise_id: str, inputs: Sequence[dict[str, Any]]) -> Run:
        source = sources[exercise_id]
        if source is None:
            raise KeyError(exercise_id)
        return _run(find_exercise(exercise_id), source, inputs, task)

    if not follows(function.exercise, call):
        return function
    groups = {
        group: passed or group in ("values", "gradients")
        for group, passed in function.groups.items()
    }
    findings = [text for text in function.findings if text not in FOLLOWED]
    name = find_exercise(forward.exercise).function_name
    findings.append(f"it is right for your own {name}, so its values are counted as right")
    points = points_of(groups, function.out_of, task.assignment.marks)
    return replace(function, state="follows", groups=groups, findings=findings, points=points)


def _run(exercise: Exercise, source: Source, inputs: Sequence[dict[str, Any]], task: Task) -> Run:
    """Make the calls: in isolation, or within limits alone."""
    name = exercise.function_name
    if task.is_isolated:
        slot = threading.get_native_id() % SLOTS  # of this machine
        return run_isolated(source.text, source.file, name, inputs, task.limits, slot=slot)
    return run_calls(lambda: load(source.text, source.file, name), inputs, task.limits)


def _error(run: Run) -> str:
    """Return the first error of a run, as the run tells it."""
    return next((call.error for call in run.calls if call.error), run.ended)


def _state(verdict: Verdict) -> str:
    """Return how a function stands, in a word."""
    if verdict.passed:
        return "right"
    has_run = all(stage.passed for stage in verdict.stages if stage.name == "runs")
    return "wrong" if has_run else "failed"


def given_up(task: Task) -> Result:
    """Return the result of a task that has ended its process more than once."""
    points = task.assignment.exercises
    return Result(
        task.student, task.name, task.is_late, task.is_isolated, task.key,
        [*task.trouble, "grading ended early: please look at it yourself"],
        [Function(name, 0.0, out_of, "failed") for name, out_of in points.items()],
    )  # fmt: skip


# who is to be graded


def _with_absent(found: list[Submission], assignment: Assignment) -> list[Submission]:
    """Return all students of the roster, and those that are not in it, with a remark."""
    if assignment.roster is None:
        return found
    there = {one.student: one for one in found}
    for one in found:
        if one.student not in assignment.roster:
            one.trouble.append("this id is not in the roster")
    for student, name in assignment.roster.items():
        if student not in there:
            there[student] = Submission(student, name, trouble=["nothing was handed in"])
    return [there[student] for student in sorted(there)]


def _task(one: Submission, assignment: Assignment, limits: Limits, is_isolated: bool) -> Task:
    """Read a student's files, and hash all that the result depends on."""
    files, trouble = [], list(one.trouble)
    for file in one.files:
        try:
            files.append((file.name, file.read()))
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError):
            trouble.append(f"{file.name} cannot be read")
        except Exception:  # zlib's and others' of a broken zip file
            trouble.append(f"{file.name} cannot be unpacked")
    asked = (assignment.exercises, assignment.marks, assignment.variant(one.student))
    who = (one.student, one.name, one.is_late, trouble, files)
    given = (FORMAT, __version__, tuple(limits), is_isolated, asked, who)
    key = hashlib.sha256(repr(given).encode()).hexdigest()
    return Task(
        one.student, one.name, one.is_late, tuple(trouble), tuple(files), assignment, limits,
        is_isolated, key,
    )  # fmt: skip


# files


def _path_of(out: Path, student: str) -> Path:
    """Return where a student's result is kept."""
    return out / "by_student" / f"{file_name(student)}.json"


def file_name(student: str) -> str:
    """Return a file name for an id, whatever is in it.

    Examples
    --------
    >>> file_name("ada"), file_name("../x")
    ('ada', '_x-d6b96a97')
    """
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in student)[:100]
    if plain == student and not plain.startswith("."):
        return plain
    return f"{plain.lstrip('.')}-{hashlib.sha256(student.encode(errors='replace')).hexdigest()[:8]}"


def read_result(path: Path) -> Result | None:
    """Return a result that was written before; None where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        functions = [Function(**function) for function in found.pop("functions")]
        return Result(functions=functions, **found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_atomically(path: Path, text: str) -> None:
    """Write a file as a whole: whoever is stopped in between leaves the former one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(text + "\n" * (not text.endswith("\n")), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise ConfigError(f"out: cannot write {path}: {error.strerror}") from error


# processes


def _in_processes(tasks: Iterable[Task], jobs: int) -> Iterator[Result]:
    """Grade in some processes; a task that ends its process twice is given up, and no other."""
    waiting: dict[Future[Result], Task] = {}
    again: list[Task] = []
    tasks = iter(tasks)
    with _pool(jobs) as pool:
        try:
            for task in tasks:
                waiting[_submitted(pool, task)] = task
                if len(waiting) == AHEAD * jobs:
                    yield from _finished(waiting)
            while waiting:
                yield from _finished(waiting)
        except BrokenProcessPool:
            again = list(waiting.values())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    yield from map(_alone, again)
    if again:
        yield from _in_processes(tasks, jobs)


def _submitted(pool: ProcessPoolExecutor, task: Task) -> Future[Result]:
    """Hand a task to the processes; if they have ended, the result says so."""
    try:
        return pool.submit(grade_one, task)
    except BrokenProcessPool as error:
        future: Future[Result] = Future()
        future.set_exception(error)
        return future


def _finished(waiting: dict[Future[Result], Task]) -> Iterator[Result]:
    """Wait for results, and take them out."""
    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
        result = future.result()
        del waiting[future]
        yield result


def _pool(jobs: int) -> ProcessPoolExecutor:
    """Return processes that share nothing with this one."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, initializer=_begin_to_work)


def _begin_to_work() -> None:
    """Leave Ctrl-C to the parent, and end with it whatever ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end_with() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with, daemon=True).start()


def _alone(task: Task) -> Result:
    """Grade in a process of its own; without any points where that ends once more."""
    try:
        with _pool(1) as pool:
            return pool.submit(grade_one, task).result()
    except BrokenProcessPool:
        return given_up(task)
