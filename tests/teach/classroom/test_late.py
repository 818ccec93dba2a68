"""Late work: days, grace, extensions, and what is said where nothing records a time."""

import csv
import io
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.class_page import class_page
from mha_numpy.teach.classroom.feedback import student_page, to_csv, to_gradescope
from mha_numpy.teach.classroom.late import LateRule, read_late
from mha_numpy.teach.classroom.overrides import Override
from mha_numpy.teach.classroom.results import Grades
from mha_numpy.teach.classroom.settled import settle
from mha_numpy.teach.classroom.table import read_assignment
from tests.teach.classroom.classes import assign
from tests.teach.classroom.test_feedback import result

NOON = datetime(2030, 5, 31, 12)
RULE = LateRule(per_day=10, grace_minutes=15, most=50)
HW = Assignment("hw", "Homework", {"softmax": 4}, {}, NOON, late=RULE)


def settled(minutes=None, *overrides, hw=HW, **more):
    when = "" if minutes is None else (NOON + timedelta(minutes=minutes)).isoformat()
    return settle(result(handed_in=when, points=3, **more), hw, overrides)


@pytest.mark.parametrize(
    ("minutes", "days", "points"),
    [
        (-5, 0, 3), (0, 0, 3), (15, 0, 3), (15.1, 1, 2.7), (1440, 1, 2.7), (1441, 2, 2.4),
        (5 * 1440, 5, 1.5), (50 * 1440, 50, 1.5),
    ],
)  # fmt: skip
def test_each_day_that_has_begun_costs_up_to_the_most(minutes, days, points):
    found = settled(minutes)
    assert (found.days_late, found.points, found.is_late) == (days, points, days > 0)


def test_a_grace_has_no_limit():
    assert LateRule(per_day=10, grace_minutes=1e300).days(NOON, NOON - timedelta(days=99)) == 0


def test_nothing_is_taken_off_unless_the_table_says_so():
    found = settled(1441, hw=replace(HW, late=LateRule()))
    assert (found.points, found.is_late, found.unclear) == (3, True, "")
    assert "taken off" not in student_page(found, "Homework")
    assert "taken off" not in to_csv(Grades(HW, [found], [], 0))


def test_what_is_taken_off_has_its_own_line():
    found = settled(1441)
    line = "20% of 3 points are taken off, which is 0.6"
    page = student_page(found, "Homework")
    assert (
        f"Late by 2 days, as a day counts once it has begun (handed in 2030-06-01 12:01): {line}"
        in page
    )
    assert "2.4" in page
    assert line in to_gradescope(found)["output"]
    (row,) = csv.DictReader(io.StringIO(to_csv(Grades(HW, [found], [], 0))))
    assert (row["late"], row["taken off"], row["total"]) == ("late", "0.6", "2.4")
    assert "0.6 taken off" in class_page(Grades(HW, [found], [], 0))


def test_an_extension_counts_from_its_own_end():
    extension = Override("ada", deadline=NOON + timedelta(days=2))
    assert settled(2 * 1440, extension).points == 3
    found = settled(2 * 1440 + 16, extension)
    assert (found.days_late, found.points) == (1, 2.7)
    assert "Your deadline was extended to 2030-06-02 12:00." in student_page(found, "Homework")
    assert settled(1441, Override("bob", deadline=NOON + timedelta(days=2))).points == 2.4


def test_late_without_a_time_is_the_teachers_to_decide():
    found = settled(None, is_late=True)
    assert (found.points, found.is_late) == (3, True)
    page = class_page(Grades(HW, [found], [], 0))
    assert "nothing says by how much, so no points are taken off" in page
    assert "handed_in of overrides.csv" in page
    assert "overrides" not in student_page(found, "Homework")
    found = settled(None, Override("ada", handed_in=NOON + timedelta(hours=3)), is_late=True)
    assert (found.points, found.unclear) == (2.7, "")
    found = settled(None, Override("ada", deadline=NOON + timedelta(days=1)), is_late=True)
    assert (found.points, found.is_late) == (3, False)
    assert "there is an extension and no time" in found.unclear


def test_a_teachers_total_is_final():
    found = settled(1441, Override("ada", points=4.0))
    assert (found.points, found.taken_off) == (4, 0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"per_week": 3}, "late: expected per_day, grace_minutes, most"),
        ({"per_day": 120}, "at most 100%"),
        ({"most": 120}, "at most 100%"),
    ],
)
def test_a_rule_that_cannot_be(table, message):
    with pytest.raises(ConfigError, match=message):
        read_late(table, "assignment.toml")


def test_the_rule_is_in_the_table(tmp_path):
    path = assign(tmp_path / "hw") / "assignment.toml"
    text = path.read_text()
    assert "[late]\nper_day = 0\ngrace_minutes = 0\nmost = 100\n" in text
    path.write_text(text.replace("per_day = 0", "per_day = 12.5"))
    assert read_assignment(tmp_path / "hw").late == LateRule(per_day=12.5)
    path.write_text(text.replace("per_day = 0", "per_day = -1"))
    with pytest.raises(ConfigError, match="late: expected numbers of 0 or more"):
        read_assignment(tmp_path / "hw")
    path.write_text(text[: text.index("[late]")])
    assert read_assignment(tmp_path / "hw").late == LateRule()
