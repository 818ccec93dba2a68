"""Pages and tables: plain, whole, and nothing in them that a student has written as HTML."""

import csv
import io
import json

from mha_numpy.teach.classroom.alike import Pair
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.class_page import class_page
from mha_numpy.teach.classroom.feedback import (
    student_page,
    to_csv,
    to_gradescope,
    write_results,
)
from mha_numpy.teach.classroom.marks import MARKS
from mha_numpy.teach.classroom.results import Function, Grades, Result

GROUPS = {"shape": True, "invariants": True, "values": False, "robustness": True}
NAME = '<script>alert("1")</script>'


def result(student="ada", points=1.6, state="wrong", **more):
    function = Function(
        "softmax", points, 4, state, GROUPS, ["numbers are wrong"],
        "likely cause: columns sum to 1", ["softmax over queries"], "Compute `exp(1000)`",
        "<b>.py", 0.5,
    )  # fmt: skip
    given = {"name": "", "is_late": False, "is_isolated": True, "key": "", "trouble": [], **more}
    return Result(student, functions=[function], **given)


def grades(*results, alike=()):
    given = Assignment("hw", "Home & work", {"softmax": 4}, MARKS)
    return Grades(given, list(results), list(alike), 0)


def test_csv_quotes_and_is_no_formula():
    text = to_csv(grades(result(name='Lovelace, "Ada"'), result("=1+1", name="@SUM(A1)")))
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[1] == ["ada", 'Lovelace, "Ada"', "", "1.6", "1.6"]
    assert rows[2][:2] == ["'=1+1", "'@SUM(A1)"]
    text = to_csv(grades(result("x;=1+1", name="a, -2+3;b")))  # as if it were cut at semicolons
    assert text.splitlines()[1].startswith("x;'=1+1,\"a,' -2+3;b\",")


def test_gradescope():
    found = json.loads(json.dumps(to_gradescope(result(trouble=["x.py cannot be read"]))))
    assert (found["score"], found["output"]) == (1.6, "x.py cannot be read")
    (test,) = found["tests"]
    assert (test["name"], test["score"], test["max_score"]) == ("softmax", 1.6, 4)
    assert test["status"] == "failed"
    assert "likely cause: columns sum to 1" in test["output"]


def test_a_student_page_says_what_is_right_and_the_cause():
    page = student_page(result(is_late=True), "Home & work")
    for text in (
        "Home &amp; work", ">late<", "1.6 of 4", "&#10003; shape", "&#10007; values",
        "columns sum to 1", "<code>exp(1000)</code>", "&lt;b&gt;.py",
    ):  # fmt: skip
        assert text in page


def test_a_name_is_no_html():
    odd = result(NAME, name=NAME, trouble=[NAME])
    for page in (student_page(odd, NAME), class_page(grades(odd, alike=[Pair(NAME, "b", 1.0)]))):
        assert NAME not in page
        assert "http" not in page


def test_the_class_page_counts():
    results = [result(), result("bob"), result("eve", 4, "right"), result("zoe", 0, "not there")]
    page = class_page(grades(*results, alike=[Pair("ada", "bob", 0.9)]))
    assert "4 students, 1 of them with all 4 points; the median is 1.6." in page
    verdict = '<td class="what">softmax runs over the queries: columns sum to 1, rows do not</td>'
    row = page[page.index(verdict) : page.index("</tr>", page.index(verdict))]
    assert ">2</td>" in row or ">3</td>" in row
    assert '>ada</a>, <a href="feedback/bob.html">bob</a></td>' in page
    assert page.index("<h2>Students</h2>") < page.index("90%")  # there may be many pairs
    assert '<a href="#similar">1 pair of students has similar code</a>' in page


def test_the_class_page_has_kinds_that_are_not_listed_and_who_made_them():
    results = [result(name) for name in ("ada", "bob", "eve")]
    for one, kind in zip(results, ("a different axis", "a different axis", ""), strict=True):
        one.functions[0].mistakes, one.functions[0].kind = [], kind
    page = class_page(grades(*results))
    for what, count, who in (
        ("a different axis (not in the list of mistakes)", 2, ["ada", "bob"]),
        ("no known mistake", 1, ["eve"]),
    ):
        row = page.partition(f'<td class="what">{what}</td>')[2].partition("</tr>")[0]
        assert f">{count}</td>" in row
        assert [name for name in ("ada", "bob", "eve") if f">{name}</a>" in row] == who


def test_a_convention_stands_in_the_class_page_by_its_name():
    odd = result()
    odd.functions[0].mistakes = ["not followed: tokens as columns"]
    page = class_page(grades(odd))
    assert '<td class="what">not followed: tokens as columns</td>' in page


def test_what_belongs_to_nobody_is_listed():
    page = class_page(grades(result())._replace(strange=["<eve>: no student of the roster"]))
    assert "<li>&lt;eve&gt;: no student of the roster</li>" in page


def test_nobody():
    assert "No students were graded" in class_page(grades())


def test_files(tmp_path):
    written = write_results(grades(result(), result("a/b")), tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in written[:4]] == [
        "grades.csv", "class.html", "feedback/ada.html", "gradescope/ada/results.json",
    ]  # fmt: skip
    assert all(path.is_file() for path in written)
