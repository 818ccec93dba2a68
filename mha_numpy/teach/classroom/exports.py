"""Exports: an assignment as a source notebook for otter-grader or nbgrader.

Both run a student's notebook as it is, with the tests in the same process. Of `grade`
they keep only the check of each function: no sandbox for the notebook, no variants, no partial
points.
"""

import ast
import json
from collections.abc import Sequence
from importlib import import_module
from textwrap import dedent, fill, indent
from typing import Any

from mha_numpy import __version__
from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.handout import (
    GIVEN,
    UNWRITTEN,
    WIDTH,
    as_notebook,
    cut_function,
    load_nbformat,
    readme_text,
    stub_text,
    title_cell,
)
from mha_numpy.teach.diagnosis import Variant
from mha_numpy.teach.diagnosis.solutions import read_solutions
from mha_numpy.teach.exercises import Exercise, find_exercise

EXPORTS = ("otter", "nbgrader")


def check_export(ids: Sequence[str], form: str, *, has_roster: bool, has_own: bool) -> None:
    """Raise ConfigError if one notebook for the whole class cannot contain this assignment."""
    if has_roster:
        raise ConfigError(
            f"roster: expected none with --format {form}, which makes one notebook for the whole "
            "class, without variants; leave --roster out, or write --format notebook"
        )
    if has_own:
        raise ConfigError(
            f"from: expected no exercises of your own with --format {form}, whose tests ask this "
            "package; write --format notebook or files"
        )
    given = next((one for one in ids if find_exercise(one).kind != "code"), None)
    if given:
        raise ConfigError(
            f"name: expected exercises that ask for a whole function with --format {form}; {given} "
            "asks for something else; leave it out, or write --format notebook"
        )


def export_texts(assignment: Assignment, student: str, form: str) -> dict[str, str]:
    """Return the source notebook of a class, with the solutions, and instructions for the teacher.

    For "otter" that is a notebook for ``otter assign``, for "nbgrader" a course for ``nbgrader
    generate_assignment``. The notebook contains no expected values: its tests call `assert_right`.
    Only the hidden tests contain the assignment's seed.

    Examples
    --------
    >>> one = Assignment("hw", "Homework", {"scores": 10}, {})
    >>> list(export_texts(one, "all", "nbgrader"))
    ['README.md', 'source/hw/hw.ipynb', 'nbgrader_config.py']
    """
    v4, variants = load_nbformat().v4, assignment.variant(student)
    make_cells = _otter_cells if form == "otter" else _nbgrader_cells
    cells = [
        v4.new_markdown_cell(readme_text(assignment, student, form), id="instructions"),
        v4.new_code_cell(GIVEN, id="given"),
    ]
    for number, exercise in enumerate(assignment.catalogue, start=1):
        title, points = title_cell(assignment, exercise, number), assignment.exercises[exercise.id]
        cells += make_cells(v4, title, exercise, points, variants[exercise.id].seed)
    name = assignment.name
    texts = {"README.md": README.format(title=assignment.title, how=HOW[form].format(name=name))}
    if form == "otter":
        config = OTTER_CONFIG.format(name=json.dumps(name), version=__version__)
        cells.insert(0, v4.new_raw_cell(config, id="config"))
        return {**texts, f"{name}.ipynb": as_notebook(cells)}
    notebook = as_notebook(cells)
    return {**texts, f"source/{name}/{name}.ipynb": notebook, "nbgrader_config.py": NBGRADER_CONFIG}


def _otter_cells(v4: Any, title: Any, exercise: Exercise, points: float, seed: int) -> list[Any]:
    def raw(text: str, more: str = "") -> Any:
        return v4.new_raw_cell(f"# {text}{more}", id=f"{text.replace(' ', '-')}-{exercise.id}")

    def code(text: str, name: str) -> Any:
        return v4.new_code_cell(text, id=f"{name}-{exercise.id}")

    return [
        raw("BEGIN QUESTION", f"\nname: {exercise.id}\npoints: [0, {points:g}]"),
        title,
        raw("BEGIN SOLUTION"),
        code(_solution(exercise, "#"), "exercise"),
        raw("END SOLUTION"),
        raw("BEGIN TESTS"),
        code(_test(exercise), "public"),
        code(f"# HIDDEN\n{_test(exercise, seed)}", "hidden"),
        raw("END TESTS"),
        raw("END QUESTION"),
    ]


def _nbgrader_cells(v4: Any, title: Any, exercise: Exercise, points: float, seed: int) -> list[Any]:
    """Return the cells of a function, with the metadata that nbgrader reads."""

    def code(text: str, name: str, **more: Any) -> Any:
        name, is_test = f"{name}-{exercise.id}", "points" in more
        told = {"grade": is_test, "locked": is_test, "solution": not is_test, "grade_id": name}
        told |= {"schema_version": 3, "task": False, **more}
        return v4.new_code_cell(text, id=name, metadata={"nbgrader": told})

    public = f'public_check("{exercise.id}", {exercise.function_name})'
    test = NBGRADER_TEST.format(public=public, hidden=_test(exercise, seed))
    return [title, code(_solution(exercise, "###"), "exercise"), code(test, "test", points=points)]


def _solution(exercise: Exercise, mark: str) -> str:
    """Return the stub with a right body between marks; what the body uses is imported in it."""
    cut = read_solutions().cuts[exercise.task]
    function, body = cut_function(cut.source)
    used = {
        name.id for one in function.body for name in ast.walk(one) if isinstance(name, ast.Name)
    } - {"np", *cut.function.__code__.co_varnames}
    names = sorted(used & vars(import_module(cut.function.__module__)).keys())
    if names:
        lines = indent(fill(", ".join(names), WIDTH - 8), "    ")
        body = f"from {cut.function.__module__} import (\n{lines},\n)\n\n" + dedent(body)
        body = indent(body, "    ")
    stub = stub_text(exercise, Variant()).removesuffix(UNWRITTEN)
    return f"{stub}    {mark} BEGIN SOLUTION\n{body}    {mark} END SOLUTION"


def _test(exercise: Exercise, seed: int | None = None) -> str:
    """Return the lines of a test; it imports what the notebook may have overwritten."""
    numbers = "" if seed is None else f", seed={seed}"
    call = f'assert_right("{exercise.id}", {exercise.function_name}{numbers})'
    return f"from mha_numpy.teach.classroom import assert_right\n\n{call}"


OTTER_CONFIG = """\
# ASSIGNMENT CONFIG
name: {name}
requirements: [mha-numpy=={version}]
export_cell:
  pdf: false"""
NBGRADER_TEST = """\
from mha_numpy.teach.classroom import public_check

{public}
### BEGIN HIDDEN TESTS
{hidden}
### END HIDDEN TESTS"""
NBGRADER_CONFIG = '''"""Run nbgrader in this folder."""

c = get_config()
c.Execute.timeout = 120  # seconds for a cell: each check stops by itself long before
'''
HOW = {
    "otter": """\
    pip install 'mha-numpy[graders]'
    otter assign {name}.ipynb dist

The folder `dist/student` is for the students. The zip file in `dist/autograder` is for Gradescope,
which installs `mha-numpy` as the first cell of `{name}.ipynb` says, and for `otter run`:

    otter run -a dist/autograder/{name}-autograder_*.zip SUBMISSION.ipynb""",
    "nbgrader": """\
    pip install 'mha-numpy[graders]'
    nbgrader generate_assignment {name}

The folder `release/{name}` is for the students. Save the notebook of each student as
`submitted/STUDENT/{name}/{name}.ipynb`:

    nbgrader autograde {name}
    nbgrader generate_feedback {name}
    nbgrader export

The feedback shows the hidden tests, so give it back only when all students have handed in.""",
}
README = """# {title}

This folder contains the solutions, so do not give it to students. Run these commands in it:

{how}

`mha-numpy grade SUBMISSIONS --assignment .. --out ../results` takes the same notebooks and does
more:

- It runs only the functions, and they see nothing but Python and NumPy. Here the notebook runs as
  it is, with the tests in the same process, so a student's code can import the right functions from
  `mha_numpy`, read the hidden tests, or replace what they call. Each check calls its function in a
  separate process, within 10 seconds, but that helps only against accidents.
- It divides up the points of a function, as `[marks]` in `assignment.toml` says, and a backward
  that is right for the student's own wrong forward gets most of its points. Here a function gets
  all of its points or none.
- It gives each student different numbers, and compares submissions. Here all students have the same
  hidden numbers.
"""
