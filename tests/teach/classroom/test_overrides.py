"""overrides.csv: a teacher's decisions, read with care, and shown as the teacher's."""

import csv
import io
import re
from pathlib import Path

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.class_page import class_page
from mha_numpy.teach.classroom.feedback import student_page, to_csv, to_gradescope
from mha_numpy.teach.classroom.overrides import Override, read_overrides
from mha_numpy.teach.classroom.results import Grades
from mha_numpy.teach.classroom.settled import settle
from mha_numpy.teach.classroom.table import read_assignment
from tests.teach.classroom.classes import assign
from tests.teach.classroom.test_feedback import result

ROSTER = {"ada": "Ada", "bob": "Bob"}
HW = Assignment("hw", "Homework", {"softmax": 4, "rope": 6}, {}, roster=ROSTER)


def read(tmp_path, text, hw=HW):
    (tmp_path / "overrides.csv").write_bytes(text.encode())
    return read_overrides(tmp_path, hw)


def test_no_file_decides_nothing(tmp_path):
    assert read_overrides(tmp_path, HW) == []


def test_what_spreadsheets_write(tmp_path):
    text = "\ufeffID;points;Exercise;comment\r\nada;3,5;softmax;well, well\r\n\r\nbob;9;;\r\n"
    one, other = read(tmp_path, text)
    assert one == Override("ada", "softmax", 3.5, comment="well, well", line=2)
    assert other == Override("bob", points=9.0, line=4)
    (one,) = read(tmp_path, "id,deadline,handed_in,comment\nada,2030-06-03,2030-06-02 12:00,ill\n")
    assert f"{one.deadline} {one.handed_in}" == "2030-06-03 23:59:00 2030-06-02 12:00:00"


def test_a_comment_may_have_lines(tmp_path):
    found = read(tmp_path, 'id,comment\nada,"right\nin principle"\nbob,a\u2028b\n')
    assert [(one.comment, one.line) for one in found] == [("right in principle", 2), ("a b", 4)]


@pytest.mark.parametrize("rest", ["bob,3,\n", 'bob,3,"well done"\n'])
def test_a_quote_that_is_not_closed_takes_no_other_row(tmp_path, rest):
    """Else a student would read what was decided about the next one, and it would not count."""
    with pytest.raises(ConfigError, match=r"overrides: .*overrides\.csv, line 3: .*quote"):
        read(tmp_path, f'id,points,comment\nada,1,fine\nada,,"see me\n{rest}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the columns id, exercise, .* it has nothing"),
        ("id,point\nada,3\n", "it has id, point"),
        ("ada,softmax,3\n", "expected the columns"),
        ("id,points,points\nada,3,4\n", "each at most once"),
        ("id,points\neve,3\n", "column id: expected a student of the roster; .*line 2 has 'eve'"),
        ("id,points\nbop,3\n", "did you mean 'bob'"),
        ("id,points\n,3\n", "column id: expected an id; .*line 2 has none"),
        ("id,exercise,points\nada,soft,3\n", "column exercise: .* 'soft'; did you mean 'softmax'"),
        ("id,exercise,points\nada,softmax,5\n", "column points: .* 0 to 4, .* of softmax; .*'5'"),
        ("id,points\nada,11\n", "0 to 10, the points of the whole assignment; .*'11'"),
        ("id,points\nada,-1\n", "column points"),
        ("id,points\nada,nan\n", "column points"),
        ("id,points\nada,eight\n", "column points: .*line 2 has 'eight'"),
        ("id,deadline\n\nada,31.5.2030\n", "column deadline: .*line 3: .*2030-05-31.*'31.5.2030'"),
        ("id,exercise,deadline\nada,rope,2030-06-03\n", "in a row without an exercise"),
        ("id,points\nada,\n", "expected points, deadline, handed_in or a comment; .*line 2"),
        ("id,comment\nada,late, but ill\n", "expected 2 cells; .*line 2 has 3; put quotes"),
        ("id,points\nada,1\nbob,1\nada,2\n", "one row for ada; .*has lines 2 and 4; delete one"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_column(tmp_path, text, message):
    with pytest.raises(ConfigError, match=f"overrides: .*{message}"):
        read(tmp_path, text)


def test_a_teachers_points_are_shown_as_the_teachers():
    given = [
        Override("ada", "softmax", 3.5, comment="<b>as we discussed</b>"),
        Override("ada", comment="=come and see me"),
        Override("bob", "softmax", 0.0),
    ]
    found = settle(result(), HW, given)
    assert (found.points, found.functions[0].graded) == (3.5, 1.6)
    page = student_page(found, "Homework")
    assert "<b>The teacher's points</b>, instead of 1.6 from the grader" in page
    assert "3.5 of 4" in page
    assert "&lt;b&gt;as we discussed&lt;/b&gt;" in page
    assert "<b>as we" not in page
    assert "come and see me" in page
    grades = Grades(HW, [found], [], 0)
    (row,) = csv.DictReader(io.StringIO(to_csv(grades)))
    assert (row["softmax"], row["total"]) == ("3.5", "3.5")
    assert row["decided by the teacher"] == "softmax"
    assert row["comment"] == "'=come and see me; softmax: <b>as we discussed</b>"
    (test,) = to_gradescope(found)["tests"]
    assert test["score"] == 3.5
    assert "the teacher's points, instead of 1.6 from the grader" in test["output"]
    assert "teacher" in class_page(grades)


def test_points_for_the_whole_work():
    found = settle(result(), HW, [Override("ada", points=4.0)])
    assert (found.points, found.earned, found.decided) == (4.0, 1.6, ["total"])
    assert "for the whole work, instead of 1.6 from the grader" in student_page(found, "Homework")


@pytest.mark.parametrize(("exercise", "of"), [("", "the whole work"), ("softmax", "softmax")])
def test_work_that_earns_more_than_the_teachers_points_is_to_be_looked_at(exercise, of):
    given = [Override("ada", exercise, 1.0)]
    grades = Grades(HW, [settle(result(), HW, given)], [], 0)
    assert f"points for {of} (1) replace 1.6 from the grader, which is more" in class_page(grades)
    grades = Grades(HW, [settle(result(points=0.5), HW, given)], [], 0)
    assert "which is more" not in class_page(grades)


def test_without_decisions_there_is_no_column_for_them():
    assert (
        to_csv(Grades(HW, [result()], [], 0)).splitlines()[0] == "id,name,late,softmax,rope,total"
    )


def test_the_samples_of_the_docs_are_read(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "teaching.md").read_text()
    blocks = re.findall(r"```(?:text|toml)\n(.*?)```", page, re.DOTALL)
    sample = next(block for block in blocks if block.startswith("id,exercise"))
    table = assign(tmp_path / "hw", {"softmax": 20, "masks": 80}) / "assignment.toml"
    own = [block for block in blocks if block.startswith(("[late]", "[gradebook]"))]
    text = table.read_text()
    table.write_text("\n".join([text[: text.index("# For each day")], *own]))
    given = read_assignment(tmp_path / "hw")
    assert (given.late.per_day, given.late.grace_minutes, given.late.most) == (10, 15, 50)
    assert set(given.columns) == {"canvas", "blackboard"}
    assert len(read(tmp_path, sample, given)) == 5
