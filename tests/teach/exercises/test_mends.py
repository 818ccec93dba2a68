"""Mends: the place of a slip in a student's own text, told only where undoing it helps."""

import ast

import pytest

from mha_numpy.teach.diagnosis.search import SmallEdit
from mha_numpy.teach.exercises import find_exercise, judge, mends
from mha_numpy.teach.exercises.child.calls import load
from mha_numpy.teach.exercises.mends import Mend, find_place, first_that_works

BACKWARD = """import numpy as np

def softmax_backward(d_weights, weights):
    inner = np.sum(weights * d_weights, axis=-1, keepdims=True)
    moved = d_weights - inner
    return weights * moved
"""


def place(exercise, right, old, new):
    """Return the verdict's edit, and its place in a text in which something is replaced."""
    exercise, text = find_exercise(exercise), right.replace(old, new)
    assert text != right

    def judged(text):
        return judge(exercise, lambda: load(text, "hw.py", exercise.function_name))

    verdict = judged(text)
    assert not verdict.passed
    return verdict.edit, find_place(verdict.edit, text, lambda text: judged(text).passed)


@pytest.mark.parametrize(
    ("exercise", "right", "old", "new", "line"),
    [
        ("softmax-backward", BACKWARD, "np.sum", "np.mean", 4),
    ],
)
def test_the_line_of_a_slip(exercise, right, old, new, line):
    _, told = place(exercise, right, old, new)
    own = right.replace(old, new).split("\n")[line - 1].strip()
    assert told == f". In your code it is in line {line}: `{own}`"


def test_slow_functions_are_not_tried_again_and_again(monkeypatch):
    monkeypatch.setattr(mends, "SECONDS", 0.0)
    node = ast.parse("f(1)").body[0].value
    tried = []
    assert first_that_works("f(1)", [Mend(node, "g(1)")] * 5, tried.append) == []
    assert not tried
    edit = SmallEdit("a different number", "f", "return a + 2", "return a + 1")
    assert find_place(edit, "b = 2", tried.append) == ""
    assert not tried


def test_no_line_where_it_is_not_certain():
    edit = SmallEdit("a different number", "f", "return a + 2", "return a + 1")
    text = "def f(a):\n    b = 2\n    return a + b"
    assert find_place(edit, text, lambda _: True) == ". In your code it is in line 2: `b = 2`"
    assert find_place(edit, text, lambda _: False) == ""
    assert find_place(edit, f"{text} + 2 - 2", lambda _: True) == ""
    assert find_place(None, text, lambda _: True) == ""
    assert find_place(edit, "def f(:", lambda _: True) == ""
    assert find_place(edit._replace(wrong="for i in x:"), text, lambda _: True) == ""
