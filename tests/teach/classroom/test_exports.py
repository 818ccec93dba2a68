"""Exports: source notebooks that otter-grader and nbgrader really turn into points."""

import json
import os
import re
import subprocess
import sys
import sysconfig

import nbformat
import numpy as np
import pytest

from mha_numpy.cli import main
from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom import assert_right, grade, make_assignment
from mha_numpy.teach.classroom.exports import EXPORTS, _solution
from mha_numpy.teach.classroom.marks import MARKS, rules
from mha_numpy.teach.classroom.roster import EVERYBODY
from mha_numpy.teach.diagnosis import Variant, using
from mha_numpy.teach.exercises import EXERCISES, find_exercise
from mha_numpy.teach.exercises.judge import probe_inputs

SCORES = find_exercise("scores")
RIGHT = "def scores(q, k):\n    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])\n"
OVERFLOWS = """
def softmax(scores, mask):
    powers = np.exp(scores) * (1 if mask is None else mask)
    return powers / powers.sum(axis=-1, keepdims=True)
"""
PARTLY = {"scores": RIGHT, "softmax": OVERFLOWS}


def defined(text, name):
    namespace = {"np": np}
    exec(text, namespace)
    return namespace[name]


def made(folder, form, name="scores,softmax"):
    """Return the assignment and the source notebook."""
    assignment, (where,) = make_assignment(name, folder / "hw", form=form)
    (path,) = where.rglob("*.ipynb")
    return assignment, where, nbformat.read(path, as_version=4)


def cell_of(notebook, name):
    (cell,) = (cell for cell in notebook.cells if cell.get("id") == name)
    return cell


# what the tests of both call


def test_the_public_check_passes_what_the_full_check_does_not():
    overflows = defined(OVERFLOWS, "softmax")
    assert_right("softmax", overflows)
    with pytest.raises(AssertionError, match="softmax: there are NaN or infinite numbers"):
        assert_right("softmax", overflows, seed=1)


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("...", "not written yet"),
        ("raise NotImplementedError", "not written yet"),
        ("return q", "shape"),
        ("return q @ k.swapaxes(-1, -2)", "numbers are wrong|example: "),
        ("return 1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_is_not_right_is_told(body, told, seed):
    function = defined(f"def scores(q, k):\n    {body}\n", "scores")
    with pytest.raises(AssertionError, match=f"^scores: .*({told})"):
        assert_right("scores", function, seed)


def test_the_full_check_tells_no_number_and_no_text_of_the_function():
    function = defined("def scores(q, k):\n    raise ValueError(repr(q[0, 0, 0, 0]))\n", "scores")
    with pytest.raises(AssertionError) as caught:
        assert_right("scores", function, seed=1)
    assert str(caught.value) == "scores: it does not run: a ValueError"


def test_answers_that_are_known_by_heart_are_those_of_one_seed():
    right = defined(RIGHT, "scores")
    with using(Variant(1)):
        known = {
            (inputs["q"].tobytes(), inputs["k"].tobytes()): right(**inputs)
            for inputs in probe_inputs(SCORES)
        }

    def by_heart(q, k):
        return known.get((q.tobytes(), k.tobytes()), np.zeros((*q.shape[:-1], k.shape[-2])))

    assert_right("scores", by_heart, seed=1)
    with pytest.raises(AssertionError, match="numbers are wrong"):
        assert_right("scores", by_heart, seed=2)


def test_wrong_use():
    with pytest.raises(ConfigError, match="function: expected a function; got 3"):
        assert_right("scores", 3)
    with pytest.raises(ConfigError, match="did you mean 'scores'"):
        assert_right("score", np.dot)


# the notebooks


@pytest.mark.parametrize("exercise", [e for e in EXERCISES if e.kind == "code"], ids=lambda e: e.id)
def test_every_solution_is_right(exercise):
    text = _solution(exercise, "#")
    assert max(map(len, text.splitlines())) <= 100
    assert_right(exercise.id, defined(text, exercise.function_name), seed=3)


@pytest.mark.parametrize(
    ("form", "mark", "command"),
    [("otter", "#", "otter assign hw.ipynb dist"),
     ("nbgrader", "###", "nbgrader generate_assignment hw\n")],
)  # fmt: skip
def test_a_source_notebook(tmp_path, form, mark, command):
    assignment, where, notebook = made(tmp_path, form)
    solution = cell_of(notebook, "exercise-scores").source
    assert solution.count(f"    {mark} BEGIN SOLUTION\n") == 1
    assert solution.count(f"    {mark} END SOLUTION") == 1
    seed = assignment.variant(EVERYBODY)["scores"].seed
    (hidden,) = (cell.source for cell in notebook.cells if str(seed) in cell.source)
    assert f'assert_right("scores", scores, seed={seed})' in hidden
    assert command in (where / "README.md").read_text()
    told = " ".join(cell_of(notebook, "instructions").source.split())
    assert "if everything about it is right, and none otherwise" in told
    assert rules(MARKS) not in told
    assert "| | | | | 30 |" in told
    before = {path: path.read_bytes() for path in where.rglob("*.*")}
    make_assignment("scores,softmax", tmp_path / "hw", form=form, force=True)
    assert {path: path.read_bytes() for path in where.rglob("*.*")} == before


def test_a_notebook_for_otter(tmp_path):
    _, where, notebook = made(tmp_path, "otter")
    raw = [cell.source.split("\n") for cell in notebook.cells if cell.cell_type == "raw"]
    marks = [
        "# BEGIN QUESTION", "# BEGIN SOLUTION", "# END SOLUTION", "# BEGIN TESTS", "# END TESTS",
        "# END QUESTION",
    ]  # fmt: skip
    assert [lines[0] for lines in raw] == ["# ASSIGNMENT CONFIG", *marks, *marks]
    assert raw[0][1] == 'name: "hw"'
    assert re.fullmatch(r"requirements: \[mha-numpy==[\d.]+\]", raw[0][2])
    assert raw[1][1:] == ["name: scores", "points: [0, 10]"]
    assert raw[7][1:] == ["name: softmax", "points: [0, 20]"]
    assert cell_of(notebook, "hidden-scores").source.startswith("# HIDDEN\n")
    assert 'assert_right("scores", scores)' in cell_of(notebook, "public-scores").source


def test_a_course_folder_for_nbgrader(tmp_path):
    _, where, notebook = made(tmp_path, "nbgrader")
    assert (where / "source/hw/hw.ipynb").exists()
    told = [cell.metadata.nbgrader for cell in notebook.cells if "nbgrader" in cell.metadata]
    fields = ("grade_id", "grade", "solution", "locked", "points")
    assert [tuple(map(one.get, fields)) for one in told] == [
        ("exercise-scores", False, True, False, None),
        ("test-scores", True, False, True, 10),
        ("exercise-softmax", False, True, False, None),
        ("test-softmax", True, False, True, 20),
    ]
    public, hidden = cell_of(notebook, "test-scores").source.split("### BEGIN HIDDEN TESTS\n")
    assert 'public_check("scores", scores)' in public
    assert hidden.endswith(")\n### END HIDDEN TESTS")


@pytest.mark.parametrize("form", EXPORTS)
def test_what_one_notebook_cannot_hold_is_refused(tmp_path, form):
    roster = tmp_path / "ids.csv"
    roster.write_text("id,name\ns1,Ada\n")
    with pytest.raises(ConfigError, match=f"roster: expected none with --format {form}"):
        make_assignment("scores", tmp_path / "hw", form=form, roster=roster)
    for other in ("museum-split", "break-my-attention"):
        with pytest.raises(ConfigError, match=f"name: .*; {other} asks for something else"):
            make_assignment(f"scores,{other}", tmp_path / "hw", form=form)
    assert not (tmp_path / "hw").exists()


@pytest.mark.parametrize("form", EXPORTS)
def test_the_command_hands_nothing_out(tmp_path, capsys, form):
    out = str(tmp_path / "hw")
    assert main(["assignment", "hw2-backward", "--out", out, "--format", form]) == 0
    told = capsys.readouterr().out
    assert f"{out}/{form}/README.md next; the folder contains the solutions" in told
    assert "hand out" not in told
    assert not (tmp_path / "hw" / "handouts").exists()


def hand_in(notebook, path, right):
    """Write what a student hands in: the notebook with some functions."""
    for name, written in right.items():
        cell_of(notebook, f"exercise-{name}").source = written
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


def test_our_own_grade_takes_what_was_handed_in(tmp_path):
    _, where, notebook = made(tmp_path, "nbgrader")
    hand_in(notebook, where / "submitted" / "ada" / "hw" / "hw.ipynb", PARTLY)
    grades = grade(
        where / "submitted", assignment=tmp_path / "hw", out=tmp_path / "out", jobs=1,
        is_isolated=False,
    )  # fmt: skip
    (result,) = grades.results
    assert result.student == "ada"
    scores, softmax = result.functions
    assert scores.points == 10
    assert 0 < softmax.points < 20


# the graders themselves


def run(*command, cwd):
    """Run Python, and return what it printed; nbgrader calls another command of its environment."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PATH": path}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=environment, timeout=300,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def handed_out(path):
    """Return the notebook that a grader made for students: it tells nothing."""
    notebook = nbformat.read(path, as_version=4)
    text = json.dumps(notebook)
    assert "seed" not in text
    assert "swapaxes" not in text
    return notebook


def solutions(notebook):
    """Return the right functions of the source notebook."""
    names = ("scores", "softmax")
    return {name: cell_of(notebook, f"exercise-{name}").source for name in names}


@pytest.mark.slow
def test_otter_makes_a_student_notebook_and_grades(tmp_path):
    pytest.importorskip("otter")
    _, where, notebook = made(tmp_path, "otter")
    run("-m", "otter", "assign", "hw.ipynb", "dist", cwd=where)  # which runs the solutions, too
    (autograder,) = (where / "dist/autograder").glob("hw-autograder_*.zip")
    assert "mha-numpy==" in (where / "dist/autograder/requirements.txt").read_text()
    points = {}
    for kind, written in {"right": solutions(notebook), "partly": PARTLY}.items():
        student = handed_out(where / "dist/student/hw.ipynb")
        hand_in(student, tmp_path / kind / "hw.ipynb", written)
        run("-m", "otter", "run", "-a", autograder, "hw.ipynb", cwd=tmp_path / kind)
        tests = json.loads((tmp_path / kind / "results.json").read_text())["tests"]
        points[kind] = {one["name"]: one["score"] for one in tests if "score" in one}
        assert tests[0]["status"] == "passed"  # the public tests
    assert points == {
        "right": {"scores": 10, "softmax": 20}, "partly": {"scores": 10, "softmax": 0},
    }  # fmt: skip


@pytest.mark.slow
def test_nbgrader_releases_a_notebook_and_grades(tmp_path):
    pytest.importorskip("nbgrader")
    _, where, notebook = made(tmp_path, "nbgrader")
    run("-m", "nbgrader", "generate_assignment", "hw", cwd=where)
    kinds = {"right": solutions(notebook), "partly": PARTLY, "untouched": {}}
    for kind, written in kinds.items():
        path = where / "submitted" / kind / "hw" / "hw.ipynb"
        hand_in(handed_out(where / "release/hw/hw.ipynb"), path, written)
    run("-m", "nbgrader", "autograde", "hw", cwd=where)
    read = (
        "from nbgrader.api import Gradebook\n"
        "with Gradebook('sqlite:///gradebook.db') as book:\n"
        "    for one in book.assignment_submissions('hw'):\n"
        "        print(one.student.id, one.score, one.max_score)\n"
    )
    points = sorted(run("-c", read, cwd=where).splitlines())
    assert points == ["partly 10.0 30.0", "right 30.0 30.0", "untouched 0.0 30.0"]
