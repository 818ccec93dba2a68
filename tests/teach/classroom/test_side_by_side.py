"""Two similar submissions next to each other, whatever is in them."""

import json
from html.parser import HTMLParser

from mha_numpy.teach.classroom.alike import Pair
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.class_page import class_page
from mha_numpy.teach.classroom.feedback import write_results
from mha_numpy.teach.classroom.grade import grade
from mha_numpy.teach.classroom.handout import stub_text
from mha_numpy.teach.classroom.marks import MARKS
from mha_numpy.teach.classroom.results import Grades
from mha_numpy.teach.classroom.side_by_side import address, aligned, side_by_side
from mha_numpy.teach.conventions import DEFAULT
from mha_numpy.teach.exercises import find_exercise
from tests.teach.classroom.classes import assign, notebook, written
from tests.teach.classroom.test_feedback import grades, result

ODD = "<script>alert('1')</script>"
PAIR = Pair("ada", "bob", 0.9)


def page(one, other, names=("ada", "bob")):
    both = [
        result(name, name=name, codes={"softmax": text})
        for name, text in zip(names, (one, other), strict=True)
    ]
    return side_by_side("Homework", Pair(*names, 0.9), *both)


def test_equal_lines_are_next_to_each_other():
    one = "def f(x):\n    # mine\n    y = x + 1\n    return y"
    other = "def f(x):\n    total = x + 1\n\n    return total * 2"
    found = [(line.one.strip(), line.mark, line.other.strip()) for line in aligned(one, other)]
    assert found[0] == ("def f(x):", "=", "def f(x):")
    assert ("y = x + 1", "≈", "total = x + 1") in found
    assert ("return y", "", "") in found
    assert all(not mark for mine, mark, _ in found if mine in ("# mine", ""))


def test_marks_are_words_and_not_only_colours():
    text = page("x = 1", "y = 1")
    assert '<td class="mark">≈</td>' in text
    assert "1 of 1 lines are marked" in text
    assert "≈ the same except for names" in text


def test_what_was_handed_out_is_not_marked(tmp_path):
    assignment = Assignment("hw", "", {"softmax": 4}, MARKS)
    stub = f"import numpy as np\n\n\n{stub_text(find_exercise('softmax'), DEFAULT)}"
    texts = [stub + "    y = scores\n    return y", stub + "    y = scores\n    return y + 1"]
    both = [
        result(student, codes={"softmax": text})
        for student, text in zip(PAIR[:2], texts, strict=True)
    ]
    write_results(Grades(assignment, both, [PAIR], 0), tmp_path)
    page = (tmp_path / address(PAIR)).read_text()
    assert "1 of 2 lines are marked" in page
    assert page.count('<td class="mark">=</td>') == 1


def test_nothing_in_it_is_html_or_hidden():
    text = page(f"x = '{ODD}'", "y = '\u202eabc\x1b[0m'", (ODD, ODD + "2"))
    assert ODD not in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "<script" not in text
    tags = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.append(tag)
    parser.feed(text)
    assert {"script", "img", "iframe"}.isdisjoint(tags)


def test_a_function_that_only_one_has():
    one = result("ada", name="Ada", codes={"softmax": "x = 1"})
    text = side_by_side("Homework", PAIR, one, result("bob", codes={"rope": "y = 1"}))
    assert "Only Ada handed this in." in text
    assert "Only bob handed this in." in text


def test_huge_code_is_cut():
    text = page("x = 1\n" * 10**5, "y = " + "1" * 10**6)
    assert len(text) < 200_000


def test_pages_of_pairs_that_are_no_more_go(tmp_path):
    both = grades(result(), result("bob"), alike=[PAIR])
    write_results(both, tmp_path)
    path = tmp_path / address(PAIR)
    assert path.is_file()
    assert f'href="{address(PAIR)}"' in class_page(both)
    write_results(both._replace(alike=[]), tmp_path)
    assert not path.exists()


def test_grading_keeps_the_code(tmp_path):
    (tmp_path / "class").mkdir()
    copied = written().replace("scores", "mine")
    cells = json.dumps(json.loads(notebook(copied)))
    for name, text in {"ada.py": written(), "bob.ipynb": cells, "eve.py": "x = 1"}.items():
        (tmp_path / "class" / name).write_text(text)
    assign(tmp_path / "hw", {"softmax": 4})
    more = {"assignment": tmp_path / "hw", "out": tmp_path / "out", "is_isolated": False}
    first = grade(tmp_path / "class", jobs=1, **more)
    assert [pair[:2] for pair in first.alike] == [("ada", "bob")]
    made = (tmp_path / "out" / address(first.alike[0])).read_bytes()
    assert b"def softmax" in made
    assert grade(tmp_path / "class", jobs=1, **more).graded == 0
    assert (tmp_path / "out" / address(first.alike[0])).read_bytes() == made
