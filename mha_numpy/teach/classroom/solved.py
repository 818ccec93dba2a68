"""write_solutions: right functions for the teacher, graded before they are written."""

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from mha_numpy.checks import check_count
from mha_numpy.errors import ConfigError, SandboxError
from mha_numpy.progress import progress
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.grade import in_processes
from mha_numpy.teach.classroom.handout import GIVEN, UNWRITTEN, stub_text
from mha_numpy.teach.classroom.results import Task, file_name, write_atomically
from mha_numpy.teach.classroom.roster import EVERYBODY
from mha_numpy.teach.classroom.submissions import File
from mha_numpy.teach.classroom.table import read_assignment
from mha_numpy.teach.conventions import in_words_of
from mha_numpy.teach.diagnosis import Variant, using
from mha_numpy.teach.diagnosis.mutants import edited_source
from mha_numpy.teach.diagnosis.solutions import called_by, read_solutions
from mha_numpy.teach.exercises import Exercise
from mha_numpy.teach.exercises.child.calls import load
from mha_numpy.teach.exercises.judge import judge
from mha_numpy.teach.exercises.sandbox import LIMITS

FOLDER, FILE = "solutions", "solutions.py"
HEAD = '''\
"""Right functions for {whose}. Keep this file private: it is not for students.

The functions whose names begin with usual_ are helpers in the usual conventions. Those that were
asked for come after them, in the conventions of this variant. If one uses `follow`, it translates
its inputs, calls the helper of its name, and translates the result back.
"""

import numpy as np
'''
FOLLOWING = """\
    conventions = [CONVENTIONS[name] for name in {names}]
    function = follow("{name}", conventions, usual_{name})
    return function({arguments})
"""


def write_solutions(assignment: Path | str, *, jobs: int | None = None) -> list[Path]:
    """Write a file of right functions for each student of an assignment, into ``solutions``.

    Each file is graded like a submission, with the hidden numbers of its student. A ConfigError
    says which function of which student was not right, and then nothing is written for that one.
    These are our own functions and yours, so they run within limits and without the sandbox. An
    exercise that you wrote has its `solution.py` there as a separate file.

    Parameters
    ----------
    assignment : path
        A folder that `make_assignment` wrote.
    jobs : int, optional
        How many students at a time; default one for each core.

    Returns
    -------
    list of path
        The files, of each student of the roster, or one folder for all.
    """
    given, jobs = read_assignment(assignment), check_count("jobs", jobs or os.cpu_count())
    solvable = {one: given.exercises[one] for one in _solvable(given)}
    if not solvable:
        raise ConfigError("solutions: none of the exercises asks for a function with one solution")
    names = given.roster or {EVERYBODY: ""}
    of_all = {  # in separate files, because helpers of two may have the same name
        f"{one.function_name}.py": given.own[one.id].solution
        for one in given.catalogue
        if one.id in given.own
    }
    has_more = bool(solvable.keys() - given.own.keys())
    texts = {
        student: ({FILE: solutions_text(given, student)} if has_more else {}) | of_all
        for student in names
    }
    asked = replace(given, exercises=solvable, attempts="last")
    tasks = (
        Task(student, "", False, (), _as_files(found), asked, LIMITS, False, "")
        for student, found in texts.items()
    )
    written = []
    for result in progress(in_processes(tasks, jobs), len(texts), "checking"):
        wrong = [one.exercise for one in result.functions if one.points != one.out_of]
        if wrong:
            raise ConfigError(
                f"solutions: {', '.join(wrong)} of {result.student} did not come out right; please "
                "report this"
            )
        for name, text in texts[result.student].items():
            path = Path(assignment) / FOLDER / file_name(result.student) / name
            write_atomically(path, text)
            written.append(path)
    return sorted(written)


def _as_files(texts: dict[str, str]) -> tuple[File, ...]:
    return tuple(File(name, text.encode()) for name, text in texts.items())


def solutions_text(assignment: Assignment, student: str) -> str:
    """Return a student's right functions, each with the docstring that the student has read.

    Those that the teacher wrote are not among them.

    Examples
    --------
    >>> hw = Assignment("hw", "", {"scores": 10}, {})
    >>> solutions_text(hw, "ada").splitlines()[-1].strip()
    'return scale * q @ k.swapaxes(-1, -2)'
    """
    name = (assignment.roster or {}).get(student, "")
    whose = f"{name} ({student})" if name else student
    variants = assignment.variant(student)
    solvable = [one for one in _solvable(assignment) if one not in assignment.own]
    tasks = [one.task for one in assignment.catalogue if one.id in solvable]
    everything = tuple(dict.fromkeys(name for v in variants.values() for name in v.conventions))
    with using(Variant(conventions=everything)):
        usual, classes = _usual(tasks)
    own = [
        _own(exercise, variants[exercise.id].conventions)
        for exercise in assignment.catalogue
        if exercise.id in solvable
    ]
    if any("follow(" in text for text in own):
        classes += [
            "from mha_numpy.teach.conventions import CONVENTIONS",
            "from mha_numpy.teach.turns import follow",
        ]
    head = HEAD.format(whose=whose) + "".join(f"{line}\n" for line in sorted(classes))
    return "\n\n".join([head, *usual, *own])


def _solvable(assignment: Assignment) -> list[str]:
    """Return the exercises that have one solution; tests that students write have many."""
    return [one.id for one in assignment.catalogue if one.kind != "tests"]


def _usual(tasks: list[str]) -> tuple[list[str], list[str]]:
    """Return the functions that solutions consist of, and the imports that these need."""
    cuts, namespace = read_solutions().cuts, read_solutions().namespace
    needed = frozenset[str]().union(*map(called_by, tasks))
    texts, imports = [], set[str]()
    for name in (name for name in cuts if name in needed):
        for used in cuts[name].function.__code__.co_names:
            module = getattr(namespace.get(used), "__module__", "")
            if used not in cuts and module.startswith("mha_numpy"):
                imports.add(f"from {module} import {used}")
            elif used == "math":
                imports.add("import math")
        texts.append(_renamed(_plain(edited_source(name, {}))))
    return texts, sorted(imports)


def _plain(source: str) -> str:
    """Return a function without annotations."""
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    body = source.splitlines(keepends=True)[function.body[0].lineno - 1 :]
    for argument in [*function.args.args, *function.args.kwonlyargs]:
        argument.annotation = None
    return f"def {function.name}({ast.unparse(function.args)}):\n{''.join(body)}"


def _renamed(source: str) -> str:
    """Return a source in which the functions of solutions have the names of the usual ones."""
    names = "|".join(read_solutions().cuts)
    return re.sub(rf"\b(?<!\.)({names})(?=\()", r"usual_\1", source)


@cache
def _own(exercise: Exercise, conventions: tuple[str, ...]) -> str:
    """Return a function as a student is asked for it: written directly, if that is right."""
    texts = list(_candidates(exercise, conventions))
    for text in texts[:-1]:
        if _is_right(exercise, conventions, text):
            return text
    return texts[-1]


def _candidates(exercise: Exercise, conventions: tuple[str, ...]) -> Iterator[str]:
    variant = Variant(conventions=conventions)
    followed = variant.of(exercise.task)
    stub = stub_text(exercise, variant).removesuffix(UNWRITTEN)
    with using(variant):
        source = _plain(edited_source(exercise.task, {}))
    body = _renamed("".join(source.splitlines(keepends=True)[1:]))
    turned = [one for one in followed if not one.source]
    if turned:
        yield stub + in_words_of(turned, body)
        arguments = stub.partition("(")[2].partition(")")[0]
        body = FOLLOWING.format(
            names=[one.name for one in turned], name=exercise.task, arguments=arguments
        )
    yield stub + body


def _is_right(exercise: Exercise, conventions: tuple[str, ...], text: str) -> bool:
    with using(Variant(conventions=conventions)):
        usual, imports = _usual([exercise.task])
        whole = "\n".join([GIVEN, *imports, *usual, text])
        try:
            return judge(exercise, partial(load, whole, FILE, exercise.function_name)).passed
        except SandboxError:
            return False
