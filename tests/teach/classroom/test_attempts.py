"""Several attempts: the last one counts, or the best as a whole, after what lateness costs."""

import json
from dataclasses import asdict, replace
from datetime import datetime

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.attempts import MOST, attempts_of
from mha_numpy.teach.classroom.feedback import student_page
from mha_numpy.teach.classroom.grade import _task
from mha_numpy.teach.classroom.late import LateRule
from mha_numpy.teach.classroom.overrides import Override
from mha_numpy.teach.classroom.results import path_of, read_result
from mha_numpy.teach.classroom.settled import settle
from mha_numpy.teach.classroom.student import grade_one
from mha_numpy.teach.classroom.submissions import find_submissions
from mha_numpy.teach.classroom.table import read_assignment
from mha_numpy.teach.exercises.child.limits import Limits
from tests.teach.classroom.classes import assign, written
from tests.teach.classroom.test_feedback import result

BEST = Assignment("hw", "", {"softmax": 4, "split-heads": 2}, {}, attempts="best")
DATED = "HW_ada_attempt_2030-05-{}-12-00-00_hw.py"


def task(folder, names, given=BEST):
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"x = {number}")
    (one,) = find_submissions(folder)
    return _task(one, given, Limits(), True)


@pytest.mark.parametrize(
    "names",
    [
        [DATED.format(day) for day in ("29", "30", "31")],
        ["ada.py", "ada (1).py", "ada (2).py"],
        ["ada/hw.py", "ada/hw (1).py", "ada/hw-2.py"],
        [f"ada/{DATED.format(day)}" for day in ("29", "30", "31")],
    ],
)
def test_what_a_platform_or_a_browser_numbers_is_an_attempt(tmp_path, names):
    found = attempts_of(task(tmp_path, names))
    assert [len(one.files) for one in found] == [1, 2, 3]
    one_by_one = [{file.data for file in one.files} for one in found]
    assert [max(after) for after in one_by_one] == [b"x = 0", b"x = 1", b"x = 2"]
    assert len(attempts_of(task(tmp_path, names, replace(BEST, attempts="last")))) == 1


def test_a_name_inside_a_students_folder_sets_no_time(tmp_path):
    given = task(tmp_path, ["ada/" + DATED.format("01")])
    assert given.handed_in == given.files[0].handed_in == ""


def test_there_is_a_most(tmp_path):
    names = [f"ada ({number}).py" for number in range(1, MOST + 4)]
    found = attempts_of(task(tmp_path, names))
    assert len(found) == MOST
    assert found[0].trouble == (f"there are {MOST + 3} attempts, and only the last 10 were graded",)


def test_each_attempt_has_its_own_time_and_what_changes_nothing_is_none(tmp_path):
    given = task(tmp_path, [DATED.format(day) for day in ("27", "28", "29", "30")])

    def attempts(texts):
        pairs = zip(given.files, texts, strict=True)
        files = tuple(file._replace(data=text.encode()) for file, text in pairs)
        return attempts_of(given._replace(files=files, is_late=True))

    assert [one.handed_in[8:10] for one in attempts("xxyy")] == ["27", "29"]
    assert len(attempts("xxyx")) == 3  # the last is x with what only y has
    (only,) = attempts("xxxx")
    assert (only.handed_in[8:10], only.is_late) == ("27", False)


def settled(*points_and_days, overrides=(), **more):
    given = replace(BEST, deadline=datetime(2030, 5, 29, 12), late=LateRule(per_day=25))
    *earlier, last = [
        result(points=points, handed_in=f"2030-05-{29 + days}T12:00:00")
        for points, days in points_and_days
    ]
    return settle(replace(last, earlier=earlier), replace(given, **more), overrides)


def test_the_best_attempt_counts_after_what_is_taken_off():
    found = settled((2, 0), (3, 0), (1, 0))
    assert (found.points, found.attempt) == (3, "2 of 3")
    assert "Attempt 2 of 3 counts" in student_page(found, "Homework")
    assert settled((3, 0), (3.5, 1)).attempt == "1 of 2"  # 3.5 - 25% = 2.63
    assert settled((2, 0), (3.5, 1)).attempt == "2 of 2"
    assert settled((2, 0), (2, 0)).attempt == "2 of 2"
    assert settled((2, 0)).attempt == ""


def test_an_extension_may_make_another_attempt_the_best():
    extension = Override("ada", deadline=datetime(2030, 5, 30, 12))
    assert settled((3, 0), (3.5, 1), overrides=[extension]).attempt == "2 of 2"


def test_a_teachers_time_is_that_of_the_last_attempt():
    came = Override("ada", handed_in=datetime(2030, 5, 29, 11))
    found = settled((3, 1), (2.5, 2), overrides=[came])
    assert (found.attempt, found.points) == ("2 of 2", 2.5)


def test_with_a_teachers_total_the_attempt_that_is_shown_is_still_the_best():
    found = settled((3, 0), (1, 0), overrides=[Override("ada", points=2.0)])
    assert (found.attempt, found.earned, found.points) == ("1 of 2", 3, 2)


def test_the_best_is_not_mixed_from_several_and_is_kept(tmp_path):
    texts = [written("softmax over queries"), written("split without transpose"), "x = (\n"]
    for number, text in enumerate(texts):
        (tmp_path / "class").mkdir(exist_ok=True)
        (tmp_path / f"class/ada-{number + 1}.py").write_text(text)
    hw = read_assignment(assign(tmp_path / "hw", {"softmax": 4, "split-heads": 2}))
    (one,) = find_submissions(tmp_path / "class", {"ada": "Ada"})
    given = _task(one, replace(hw, attempts="best"), Limits(seconds=5), False)
    found = settle(grade_one(given), given.assignment)
    assert [function.points for function in found.functions] == [4, 0]
    assert found.attempt.endswith("of 3")


def test_a_result_with_attempts_is_read_again(tmp_path):
    given = replace(result(), earlier=[result(points=1)])
    path = path_of(tmp_path, "ada")
    path.parent.mkdir()
    path.write_text(json.dumps(asdict(given)))
    assert read_result(path) == given


def test_the_table_says_which_counts(tmp_path):
    path = assign(tmp_path / "hw") / "assignment.toml"
    text = path.read_text()
    assert 'attempts = "last"' in text
    path.write_text(text.replace('attempts = "last"', 'attempts = "best"'))
    assert read_assignment(tmp_path / "hw").attempts == "best"
    path.write_text(text.replace('attempts = "last"', 'attempts = "first"'))
    with pytest.raises(ConfigError, match="attempts: expected 'last' or 'best'; .* 'first'"):
        read_assignment(tmp_path / "hw")
