"""Files for gradebooks: read here as Canvas, Moodle and Blackboard read them."""

import csv
import io
from datetime import datetime

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.class_page import class_page
from mha_numpy.teach.classroom.feedback import write_results
from mha_numpy.teach.classroom.gradebooks import blackboard, canvas, moodle
from mha_numpy.teach.classroom.marks import MARKS
from mha_numpy.teach.classroom.overrides import Override
from mha_numpy.teach.classroom.results import NOTHING, Grades
from mha_numpy.teach.classroom.settled import settle
from mha_numpy.teach.classroom.table import read_assignment
from tests.teach.classroom.classes import assign
from tests.teach.classroom.test_feedback import result

ROSTER = {"s1": "Lovelace, Ada", "s2": "Éva Noyce"}
HW = Assignment("hw", "Homework; 1", {"softmax": 4}, MARKS, roster=ROSTER)


def grades(given=HW):
    one = settle(
        result("s1", 1.25, name="Lovelace, Ada", is_late=True),
        given,
        [Override("s1", comment="=see me; softmax: +3")],
    )
    return Grades(given, [one, result("s2", 4, name="Éva Noyce")], [], 0)


def rows_of(text, delimiter=","):
    return list(csv.reader(io.StringIO(text), delimiter=delimiter))


def test_canvas_finds_students_columns_and_possible_points():
    head, possible, one, other = rows_of(canvas(grades()))
    # as its importer asks, column by column
    assert "Student" in head[0]
    assert "ID" in head[1]
    assert head[2:5] == ["SIS User ID", "SIS Login ID", "Section"]
    assert "Points Possible" in possible[0]
    assert possible[5] == "4"
    assert one == ["Lovelace, Ada", "", "s1", "s1", "", "1.25"]
    assert other[5] == "4"


def test_without_a_roster_canvas_gets_the_id_of_its_own_file_names():
    bare = Assignment("hw", "Homework", {"softmax": 4}, {})
    rows = rows_of(canvas(Grades(bare, [result("17", 4), result("ada", 4)], [], 0)))
    assert [row[1] for row in rows[2:]] == ["17", ""]


def test_canvas_sees_commas_even_where_a_title_has_semicolons():
    """Its importer counts fields in the first three lines with ; and with , and takes more."""
    lines = canvas(grades()).splitlines()[:3]
    assert {len(next(csv.reader([line]))) for line in lines} == {6}
    assert len({len(next(csv.reader([line], delimiter=";"))) for line in lines}) > 1


def test_moodle_has_points_percent_and_feedback():
    head, one, other = rows_of(moodle(grades()))
    assert head[:2] == ["ID number", "Name"]
    assert one == ["s1", "Lovelace, Ada", "1.25", "31.25", "late;' =see me; softmax: +3"]
    assert other == ["s2", "Éva Noyce", "4", "100", ""]


def test_blackboard_is_tabs_in_utf_16(tmp_path):
    write_results(grades(), tmp_path)
    data = (tmp_path / "gradebook" / "blackboard.xls").read_bytes()
    assert data[:2] in (b"\xff\xfe", b"\xfe\xff")
    head, one, other = rows_of(data.decode("utf-16"), "\t")
    assert head == ["Last Name", "First Name", "Username", "Homework; 1"]
    assert one == ["Lovelace", "Ada", "s1", "1.25"]
    assert other == ["Noyce", "Éva", "s2", "4"]


def test_who_has_an_extension_and_nothing_handed_in_yet_has_no_grade():
    later = Override("s1", deadline=datetime(2030, 6, 3), comment="ill")
    none = result("s1", 0, "not there", trouble=[NOTHING])
    for text, delimiter in ((canvas, ","), (moodle, ","), (blackboard, "\t")):
        for overrides, points in (
            ([later], ""),
            ([], "0"),
            ([later, Override("s1", points=1)], "1"),
        ):
            found = Grades(HW, [settle(none, HW, overrides)], [], 0)
            row = rows_of(text(found), delimiter)[-1]
            assert row[2 if text is moodle else -1] == points
    found = Grades(HW, [settle(none, HW, [later])], [], 0)
    assert rows_of(moodle(found))[1][2:] == ["", "", "ill"]
    assert "extended to 2030-06-03 00:00, so gradebooks have no grade yet" in class_page(found)


@pytest.mark.parametrize("write", [canvas, moodle, blackboard])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_no_cell_is_a_formula_wherever_a_spreadsheet_cuts(write, delimiter):
    odd = result("=1+1", 4, name="x;=cmd|'/c calc'!A0,@SUM(1)\t+2\n-3")
    text = write(Grades(Assignment("hw", "=Homework", {"softmax": 4}, {}), [odd], [], 0))
    for line in text.splitlines():
        for cell in line.split(delimiter):
            assert not cell.strip().strip('"').startswith(("=", "+", "-", "@")), cell


def test_a_column_that_is_there_already_is_named_in_the_table(tmp_path):
    path = assign(tmp_path / "hw") / "assignment.toml"
    path.write_text(path.read_text().replace('# canvas = "', 'canvas = "'))
    given = read_assignment(tmp_path / "hw")
    assert rows_of(canvas(grades(given)))[0][5] == "Homework 1 (1234)"
    assert rows_of(moodle(grades(given)))[0][2] == given.title
    path.write_text(path.read_text().replace("canvas =", "canvass ="))
    with pytest.raises(ConfigError, match="gradebook: expected titles .* canvas, moodle, black"):
        read_assignment(tmp_path / "hw")
