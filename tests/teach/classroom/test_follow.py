"""follows: a backward that is right for the student's own wrong forward, and only that."""

import numpy as np
import pytest

from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.follow import PAIRS, follows
from mha_numpy.teach.classroom.make import READY
from mha_numpy.teach.classroom.student import grade_one
from mha_numpy.teach.classroom.table import read_assignment
from mha_numpy.teach.conventions import CONVENTIONS
from mha_numpy.teach.diagnosis import TASKS, Variant, make, using
from mha_numpy.teach.exercises.catalogue import find_exercise
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.sandbox import run_calls
from tests.sweeps import sweep
from tests.teach.classroom.classes import assign, task_of


def caller(**functions):
    """Run some functions in place of the right ones."""

    def call(exercise_id, inputs):
        piece = find_exercise(exercise_id).task
        return run_calls(lambda: functions.get(piece) or make(piece), inputs)

    return call


@pytest.mark.parametrize("backward", PAIRS)
def test_right_follows_right(backward):
    assert follows(backward, caller())


@pytest.mark.parametrize("backward", PAIRS)
def test_right_follows_right_under_all_conventions_one_by_one(backward):
    pieces = [find_exercise(name).task for name in (backward, PAIRS[backward])]
    for name, convention in CONVENTIONS.items():
        if any(piece in convention.at for piece in pieces):
            with using(Variant(1, (name,))):
                assert follows(backward, caller()), name


@pytest.mark.parametrize("student", sweep([f"s{number}" for number in range(12)], 1))
def test_right_follows_right_in_the_variant_of_a_student(student):
    ids = READY["hw2-backward"].exercises
    hw2 = Assignment("hw2-backward", "", dict.fromkeys(ids, 1.0), {}, None, b"x" * 32, {})
    for exercise, variant in hw2.variant(student).items():
        if exercise in PAIRS and PAIRS[exercise] in hw2.exercises:
            with using(variant):
                assert follows(exercise, caller())


def unscaled(q, k):
    return q @ k.swapaxes(-1, -2)


def back_through_unscaled(d_scores, q, k):
    return d_scores @ k, d_scores.swapaxes(-1, -2) @ q


def over_queries(scores, mask):
    powers = np.exp(scores) * mask
    return powers / np.maximum(powers.sum(axis=-2, keepdims=True), 1e-300)


def back_over_queries(d_weights, weights):
    return weights * (d_weights - (weights * d_weights).sum(axis=-2, keepdims=True))


@pytest.mark.parametrize(
    ("backward", "forward", "derived"),
    [
        ("scores-backward", unscaled, back_through_unscaled),
        ("softmax-backward", over_queries, back_over_queries),
    ],
)
def test_one_mistake_in_both(backward, forward, derived):
    of_forward = find_exercise(PAIRS[backward]).task
    of_backward = find_exercise(backward).task
    assert follows(backward, caller(**{of_forward: forward, of_backward: derived}))
    assert not follows(backward, caller(**{of_forward: forward}))
    assert not follows(backward, caller(**{of_backward: derived}))


@pytest.mark.parametrize("transposed", ["k.T", "k.swapaxes(-1, -2)", "np.einsum('kd->dk', k)"])
def test_attention_is_called_with_the_matrices_of_its_docstring(transposed):
    functions = {"np": np}
    exec(ATTENTION.replace("k.T", transposed), functions)
    attention, backward = functions["attention"], functions["attention_backward"]
    assert follows("attention-backward", caller(attention=attention, attention_backward=backward))
    assert not follows("attention-backward", caller(attention=attention))


ATTENTION = """
def attention(q, k, v):
    scores = q @ k.T
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v

def attention_backward(d_heads, q, k, v, weights):
    d_weights = d_heads @ v.swapaxes(-1, -2)
    d_scores = weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
    d_v = weights.swapaxes(-1, -2) @ d_heads
    return d_scores @ k, d_scores.swapaxes(-1, -2) @ q, d_v
"""


def test_nothing_follows_nothing():
    zeros = {
        "scores": lambda q, k: unscaled(q, k) * 0.0,
        "scores_backward": lambda d, q, k: (q * 0.0, k * 0.0),
    }
    assert not follows("scores-backward", caller(**zeros))


@pytest.mark.parametrize("answer", [None, 3, "text", (1, 2), np.zeros((2, 2))])
def test_what_is_no_answer(answer):
    assert not follows("scores-backward", caller(scores=lambda q, k: answer))
    assert not follows("scores-backward", caller(scores_backward=lambda d, q, k: answer))


def test_what_fails():
    assert not follows("softmax-backward", caller(softmax=lambda scores, mask: 1 / 0))


BOTH = """
import numpy as np

def scores(q, k):
    return q @ k.swapaxes(-1, -2)

def scores_backward(d_scores, q, k):
    return d_scores @ k, d_scores.swapaxes(-1, -2) @ q
"""
ZEROS = """
def scores(q, k):
    return q @ k.swapaxes(-1, -2) * 0.0

def scores_backward(d_scores, q, k):
    return q * 0.0, k * 0.0
"""


def test_points_for_what_follows(tmp_path):
    given = read_assignment(assign(tmp_path / "hw", {"scores": 10, "scores-backward": 10}))

    def functions(text):
        return grade_one(task_of(text, given, limits=Limits())).functions

    forward, backward = functions(BOTH)
    assert (forward.points, backward.points) == (4.9, 10)  # without the scale, width 1 is right
    assert backward.state == "follows"
    assert backward.findings[-1] == (
        "it is right for your own scores, so its values count as right"
    )
    assert functions(BOTH.replace("d_scores @ k", "-d_scores @ k"))[1].points < 5
    assert functions(ZEROS)[1].points < 5


@pytest.mark.parametrize("backward", PAIRS)
def test_every_call_has_the_axes_that_the_task_states(backward):
    call = caller()

    def checked(exercise_id, inputs):
        stated = TASKS[find_exercise(exercise_id).task].probes()
        for given in inputs:
            for name, array in given.items():
                if isinstance(array, np.ndarray) and exercise_id != "softmax":  # (..., T_q, T_k)
                    assert array.ndim in {probe[name].ndim for probe in stated}
        return call(exercise_id, inputs)

    assert follows(backward, checked)
