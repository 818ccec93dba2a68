"""grade: each kind of student gets what was earned, once, and nothing hidden comes out."""

import os
import shutil
import sys
from dataclasses import replace

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.grade import _in_roster, _task, grade, in_processes
from mha_numpy.teach.classroom.results import file_name
from mha_numpy.teach.classroom.submissions import Submission
from mha_numpy.teach.classroom.table import read_assignment
from mha_numpy.teach.diagnosis import find_task, using
from mha_numpy.teach.exercises.child.limits import Limits
from tests.teach.classroom.classes import (
    KINDS,
    assign,
    hand_in,
    task_of,
    written,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="submissions are isolated there")
QUICK = Limits(seconds=5)  # a processor may be busy

GRADES = """\
id,name,late,split-heads,softmax,softmax-backward,total
12,late,late,2,4,4,10
crash,crash,,0,4,4,8
hang,hang,,0,4,4,8
leak,leak,,0,0,0,0
missing,missing,,0,0,0,0
mistake,mistake,,0,1.28,4,5.28
notebook,notebook,,2,4,4,10
right,right,,2,4,4,10
syntax,syntax,,0,0,0,0
"""


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Return a folder with a class, an assignment and what came of it, and the grades."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    root = tmp_path_factory.mktemp("graded")
    hand_in(root / "class")
    assign(root / "hw")
    return root, again(root)


def again(root, **more):
    return grade(
        root / "class", assignment=root / "hw", out=root / "out", jobs=2, limits=QUICK, **more
    )


def copy_of(root, tmp_path):
    return shutil.copytree(root, tmp_path / "copy")


def grades_in(root):
    return (root / "out" / "grades.csv").read_text()


def test_each_kind_gets_what_was_earned(graded):
    root, grades = graded
    assert grades_in(root) == GRADES
    assert grades.graded == len(KINDS)


def test_states_and_causes(graded):
    root, grades = graded
    found = {result.student: result.functions for result in grades.results}
    states = {student: [f.state for f in functions] for student, functions in found.items()}
    assert states["mistake"] == ["wrong", "wrong", "right"]
    assert states["missing"] == ["not there"] * 3
    assert states["syntax"] == ["failed", "not there", "not there"]
    assert states["leak"] == ["failed"] * 3
    assert found["mistake"][0].mistakes == ["split without transpose"]
    assert found["hang"][0].findings == ["it does not run: it took too long and was stopped"]
    assert found["syntax"][0].findings[0].endswith("SyntaxError in `def split_heads(x, num_heads:`")
    assert not found["syntax"][0].hint
    assert found["leak"][0].findings == [
        "it does not run: a ValueError in `raise ValueError(repr(x))`"
    ]


def test_nothing_hidden_comes_out(graded):
    root, grades = graded
    texts = [
        path.read_text("utf-16" if path.suffix == ".xls" else "utf-8")
        for path in (root / "out").rglob("*")
        if path.is_file()
    ]
    assert len(texts) > 3 * len(KINDS)
    for exercise, variant in grades.assignment.variant("leak").items():
        with using(variant):
            for probe in find_task(exercise.replace("-", "_")).probes():
                number = next(iter(probe.values())).flat[0]
                assert not any(f"{number:.6f}"[:7] in text for text in texts)
    assert not any("array(" in text for text in texts)


def test_a_second_run_grades_nothing(graded, tmp_path):
    root = copy_of(graded[0], tmp_path)
    before = {path: path.read_bytes() for path in (root / "out").rglob("*") if path.is_file()}
    assert again(root).graded == 0
    after = {path: path.read_bytes() for path in (root / "out").rglob("*") if path.is_file()}
    assert before == after


@pytest.mark.slow
def test_what_is_gone_or_broken_or_changed_is_graded_again(graded, tmp_path):
    root = copy_of(graded[0], tmp_path)
    results = root / "out" / "by_student"
    (results / "right.json").unlink()
    (results / "missing.json").write_text((results / "missing.json").read_text()[:-20])
    (root / "class" / "leak.py").write_text(written("split without transpose"))
    assert again(root).graded == 3
    assert grades_in(root) == GRADES.replace("leak,leak,,0,0,0,0", "leak,leak,,0,4,4,8")


def test_decisions_change_the_results_and_grade_nothing_again(graded, tmp_path):
    root = copy_of(graded[0], tmp_path)
    overrides = root / "hw" / "overrides.csv"
    overrides.write_text("id,exercise,points,comment\nmistake,split-heads,1.5,nearly\nnobody,,3,\n")
    found = again(root)
    assert found.graded == 0
    assert "mistake,mistake,,1.5,1.28,4,6.78,split-heads,split-heads: nearly" in grades_in(root)
    assert (
        "overrides.csv, line 3: nothing was handed in by nobody"
        in (root / "out" / "class.html").read_text()
    )
    before = {path: path.read_bytes() for path in (root / "out").rglob("*") if path.is_file()}
    again(root)
    after = {path: path.read_bytes() for path in (root / "out").rglob("*") if path.is_file()}
    assert before == after
    overrides.unlink()
    again(root)
    assert grades_in(root) == GRADES


def test_other_points_change_the_results_and_grade_nothing_again(graded, tmp_path):
    root = copy_of(graded[0], tmp_path)
    table = root / "hw" / "assignment.toml"
    table.write_text(table.read_text().replace("\nsoftmax = 4", "\nsoftmax = 7"))
    found = again(root)
    assert found.graded == 0
    assert "mistake,mistake,,0,2.24,4,6.24" in grades_in(root)  # 0.32 of 7
    assert {result.version for result in found.results} == {found.assignment.version}


def test_results_depend_on_the_assignment_the_limits_and_the_isolation(tmp_path):
    hw = read_assignment(assign(tmp_path / "hw"))
    one = Submission("ada")
    keys = [
        _task(*given).key
        for given in (
            (one, hw, QUICK, True),
            (one, replace(hw, exercises={"softmax": 4}), QUICK, True),
            (one, replace(hw, secret=b"another"), QUICK, True),
            (one, hw, Limits(), True),
            (one, hw, QUICK, False),
            (Submission("eve"), hw, QUICK, True),
        )
    ]
    assert len(set(keys)) == len(keys)
    changed = replace(hw, title="another", deadline=None)
    assert _task(one, changed, QUICK, True).key == keys[0]


def test_a_result_says_which_version_of_the_assignment_made_it(graded):
    root, grades = graded
    version = grades.assignment.version
    assert {result.version for result in grades.results} == {version}
    for name in ("class.html", "feedback/crash.html", "gradescope/crash/results.json"):
        assert version in (root / "out" / name).read_text()
    assert replace(grades.assignment, exercises={"softmax": 5}).version != version
    assert replace(grades.assignment, secret=b"another").version == version


def test_the_roster_lists_who_is_absent(tmp_path):
    given = read_assignment(assign(tmp_path / "hw"))
    given = replace(given, roster={"ada": "Ada Lovelace", "absent": "Bob Noyce"})
    found, strange = _in_roster([Submission("ada", "Ada Lovelace"), Submission("eve")], given)
    assert [(one.student, one.name, one.trouble) for one in found] == [
        ("absent", "Bob Noyce", ["nothing was handed in"]),
        ("ada", "Ada Lovelace", []),
    ]
    assert strange == ["eve: no student of the roster; not graded (no files)"]


def test_unsafe_local_is_told_everywhere(tmp_path):
    hand_in(tmp_path / "class", {"ada.py": written(), "bob.py": "def softmax(:"})
    assign(tmp_path / "hw", {"softmax": 4})
    again(tmp_path, is_isolated=False)
    assert grades_in(tmp_path) == (
        "id,name,late,softmax,total,isolation\nada,ada,,4,4,unsafe-local\n"
        "bob,bob,,0,0,unsafe-local\n"
    )
    for path in ("class.html", "feedback/ada.html", "gradescope/bob/results.json"):
        assert "--unsafe-local" in (tmp_path / "out" / path).read_text()


def test_without_bubblewrap_it_says_how_to_install_it(tmp_path, monkeypatch):
    hand_in(tmp_path / "class", {"ada.py": ""})
    assign(tmp_path / "hw")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="apt-get install bubblewrap"):
        again(tmp_path)
    assert not (tmp_path / "out").exists()


class Deadly:
    """Ends the process that is handed it."""

    exercises, version = {"softmax": 4}, ""

    def __reduce__(self):
        return os._exit, (1,)


@pytest.mark.slow
def test_a_process_that_ends_costs_nobody_else(tmp_path):
    given = read_assignment(assign(tmp_path / "hw", {"softmax": 4}))
    tasks = [
        task_of(written(), assignment, name, limits=QUICK)
        for name, assignment in (("ada", given), ("bob", Deadly()), ("eve", given), ("zoe", given))
    ]
    found = {result.student: result for result in in_processes(iter(tasks), 1)}
    assert {name: result.points for name, result in found.items()} == {
        "ada": 4, "bob": 0, "eve": 4, "zoe": 4,
    }  # fmt: skip
    assert found["bob"].trouble == ["grading ended early: please look at it yourself"]


def test_an_id_that_is_no_file_name():
    names = ["ada", "a/b", "a:b", "..", ".x", "x" * 300, "é", "é" * 120, "語" * 80, ""]
    assert len({file_name(name) for name in names}) == len(names)
    assert all("/" not in file_name(name) and file_name(name)[0] != "." for name in names[:-1])
    assert max(len(file_name(name).encode()) for name in names) < 110  # two of them name a page
