"""Mends: a change in a student's own text, told only if it is proved to help."""

import ast

import numpy as np
import pytest

from mha_numpy.teach.classroom.wording import cause_of
from mha_numpy.teach.conventions import variant_in_force
from mha_numpy.teach.diagnosis.changes import changes_of
from mha_numpy.teach.exercises import find_exercise, judge, mends
from mha_numpy.teach.exercises.child.calls import load
from mha_numpy.teach.exercises.mends import (
    Mend,
    Mended,
    attempting,
    attempting_source,
    find_mended,
    first_that_works,
)
from mha_numpy.teach.exercises.sandbox import run_calls
from tests.sweeps import every

BACKWARD = """import numpy as np

def softmax_backward(d_weights, weights):
    # the sum of each row
    inner = np.einsum("...ij,...ij->...i", weights, d_weights)
    out = np.zeros_like(weights)
    for j in range(weights.shape[-1]):
        moved = d_weights[..., j] - inner
        out[..., j] = weights[..., j] * moved
    return out
"""
GELU = """import numpy as np

def gelu(x):
    c = np.sqrt(2 / np.pi)
    cubed = x * x * x
    return 0.5 * x * (1 + np.tanh(c * (x + 0.044715 * cubed)))
"""


def verdict_on(exercise, text):
    exercise = find_exercise(exercise)
    return judge(exercise, lambda: load(text, "hw.py", exercise.function_name))


@pytest.mark.parametrize(
    ("exercise", "right", "old", "new", "slip"),
    every(
        3,
        [
            ("softmax-backward", BACKWARD, "->...i", "->...j", "a different axis"),
            (
                "softmax-backward",
                BACKWARD,
                "[..., j] - inner",
                "[..., 0] - inner",
                "a different number",
            ),
            ("softmax-backward", BACKWARD, "(weights.shape[-1])", "(weights.shape[-1] - 1)", ""),
            ("gelu", GELU, "2 / np.pi", "2 * np.pi", "a different operation"),
            ("gelu", GELU, "x * x * x", "x * x * x * x", "a part that does not belong there"),
        ],
    ),
)
def test_the_line_of_a_slip_and_what_is_right_there(exercise, right, old, new, slip):
    assert verdict_on(exercise, right).passed
    text = right.replace(old, new)
    verdict = verdict_on(exercise, text)
    mended = verdict.mended
    lines = text.split("\n")
    line = next(i for i, one in enumerate(lines, 1) if new in one)
    assert (mended.line, mended.old) == (line, lines[line - 1].strip())
    assert mended.slip == slip or not slip
    lines[line - 1] = " " * (len(lines[line - 1]) - len(lines[line - 1].lstrip())) + mended.new
    if not mended.new.endswith(":"):
        assert verdict_on(exercise, "\n".join(lines)).passed
    assert verdict.remarks["likely cause"] == mended.told
    assert (
        cause_of(verdict)
        == f"likely cause: {mended.place}. One change there makes your function pass"
    )
    assert verdict.as_dict()["mend"]["line"] == line


@pytest.mark.slow
def test_what_is_known_has_its_own_words_and_what_needs_two_changes_none():
    verdict = verdict_on("softmax-backward", BACKWARD.replace(" - inner", ""))
    assert verdict.mistakes
    assert verdict.mended is None
    two = GELU.replace("2 / np.pi", "2 * np.pi").replace("0.5 * x", "0.6 * x")
    assert verdict_on("gelu", two).mended is None


def test_a_function_without_a_text_has_no_mend():
    names = {"np": np}
    exec(GELU.replace("2 / np.pi", "2 * np.pi"), names)
    verdict = judge(find_exercise("gelu"), lambda: names["gelu"])
    assert not verdict.passed
    assert verdict.mended is None


def test_changes_are_of_one_place_and_lines_are_the_student_s():
    text = GELU.replace("c = np.sqrt", "# a comment\n    c = np.sqrt")
    changes = list(changes_of(text))
    usual = ast.unparse(ast.parse(text)).split("\n")
    assert len({one.text for one in changes}) == len(changes) > 300
    for one in changes:
        ast.parse(one.text)
        lines = one.text.split("\n")
        if len(lines) == len(usual):
            (changed,) = [
                n for n, pair in enumerate(zip(lines, usual, strict=True)) if pair[0] != pair[1]
            ]
            assert one.new == lines[changed].strip()
            assert one.line == {2: 5, 3: 6, 4: 7}[changed]


def test_lambdas_and_functions_in_functions_have_changes_too():
    text = "def f(x):\n    g = lambda y: y - x\n    def h(z):\n        return g(z)\n    return h(x)"
    new = {one.new for one in changes_of(text)}
    assert {"g = lambda y: x - y", "return -g(z)"} <= new


def test_left_out_lines_and_loops_say_what_changes():
    text = "def f(x):\n    y = 0\n    for i in x:\n        y += i\n        y = 2 * y\n    return y"
    new = {(one.slip, one.line): one.new for one in changes_of(text)}
    assert new["a line that does not belong there", 5] == ""
    assert new["a line moved into a loop", 3] is None
    chosen = changes_of("def f(a, b):\n    return np.exp(-a) if b else a")  # its body is one value
    assert (2, "return np.exp(a) if b else a") in {(one.line, one.new) for one in chosen}


def test_attempts_go_on_after_whatever_a_text_does():
    def given(x):
        return x

    names = {"np": np, "given": given}
    texts = [
        "def f(x):\n    x += 1\n    return given(x)", "def f(x:", "def f(x):\n    raise SystemExit",
        "def f(x):\n    while True:\n        pass", "def f(x):\n    return x",
    ]  # fmt: skip
    x = np.ones(2)
    answers = attempting("f", names)(texts, x)
    assert [None if one is None else one.tolist() for one in answers] == [
        [2, 2],
        None,
        None,
        None,
        [1, 1],
    ]
    there = load(attempting_source("f"), "tried.py", "f")
    assert [one.tolist() for one in there(texts[-1:], x)] == [[1, 1]]


def test_slow_functions_are_not_tried_again_and_again(monkeypatch):
    monkeypatch.setattr(mends, "SECONDS", 0.0)
    node = ast.parse("f(1)").body[0].value
    tried = []
    assert first_that_works("f(1)", [Mend(node, "g(1)")] * 5, tried.append) == []
    assert not tried


@pytest.mark.slow
def test_a_slip_made_twice_is_mended_in_both_places_at_once():
    text = "def f(x, y):\n    a = np.exp(x - y)\n    b = np.sin(x - y)\n    return a * b"
    twice = [one for one in changes_of(text) if one.places == 2 and one.slip == "a different order"]
    assert [(one.line, one.new, one.text.count("y - x")) for one in twice] == [(2, None, 2)]
    in_a_line = "def f(x, y):\n    return np.exp(x - y) * np.sin(x - y)"
    (both,) = [one for one in changes_of(in_a_line) if one.places == 2 and "y - x" in one.text]
    assert both.new == "return np.exp(y - x) * np.sin(y - x)"
    places = [one.places for one in changes_of(in_a_line) if one.slip == "a different order"]
    assert places.index(2) > places.index(1)
    mended = Mended(both.slip, both.line, "return", both.new, places=both.places)
    assert mended.place == "a different order, in two places, in line 2 of your code: `return`"


def test_a_change_that_fits_one_draw_only_is_no_mend():
    exercise = find_exercise("scores")
    text = "def scores(q, k):\n    return q @ k.swapaxes(-1, -2) * np.sqrt(q.shape[-1])"

    def attempt(inputs):
        return run_calls(lambda: attempting("scores", {"np": np}), [inputs])

    assert find_mended(exercise, text, 0, attempt, lambda _: True)
    assert not find_mended(exercise, text, 0, attempt, lambda _: variant_in_force().seed != 2)


def test_of_a_statement_on_several_lines_no_line_is_written_anew():
    text = "def f(x, y):\n    return np.where(\n        x > 0,\n        x - y,\n        y,\n    )"
    told = {(one.line, one.new) for one in changes_of(text) if one.slip == "a different order"}
    assert (4, None) in told


@pytest.mark.slow
def test_a_change_that_only_cancels_the_mistake_is_not_told():
    text = """def one_query(q, k, v):
    scores = np.array([q @ key for key in k]) / np.sqrt(q.shape[0])
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    return (weights[:, None] * v).mean(axis=0)
"""
    verdict = verdict_on("one-query", f"{mends.NUMPY}{text}")
    assert verdict.mended.line == 6
    assert verdict.mended.new == "return (weights[:, None] * v).sum(axis=0)"


def test_no_second_mistake_is_told_that_only_nan_speaks_for():
    text = """def decode_step(x, k_past, v_past, params, num_heads):
    def heads_of(w, b, n):
        y = x @ w + b
        return y.reshape(len(y), 1, n, -1).swapaxes(1, 2)

    H_kv = k_past.shape[1]
    q = heads_of(params.w_q, params.b_q, num_heads)
    k = np.concatenate([k_past, heads_of(params.w_k, params.b_k, H_kv)], axis=2)
    v = np.concatenate([v_past, heads_of(params.w_v, params.b_v, H_kv)], axis=2)
    many_k, many_v = (one.repeat(num_heads // H_kv, axis=1) for one in (k, v))
    scores = q @ many_k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = powers / powers.sum(axis=2, keepdims=True) @ many_v
    return heads.swapaxes(1, 2).reshape(len(x), 1, -1) @ params.w_o + params.b_o, k, v
"""
    verdict = verdict_on("decode-step", f"{mends.NUMPY}{text}")
    assert verdict.mistakes == {"softmax over queries"}
    assert verdict.remarks["evidence"] == (
        "this mistake reproduces every number of yours that is not NaN"
    )
