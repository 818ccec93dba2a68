"""The first place where right numbers make a function right, in functions with known mistakes."""

import numpy as np
import pytest

from mha_numpy.teach.exercises import find_exercise
from mha_numpy.teach.exercises.mends import attempting
from mha_numpy.teach.exercises.patches import find_patch
from mha_numpy.teach.exercises.sandbox import run_calls

SCALED = """def scores(q, k):
    width = q.shape[-1]
    factor = {}
    return factor * np.einsum("bhid,bhjd->bhij", q, k)
"""
LOOPED = """def layer_norm(x, gain, bias, eps):
    out = np.zeros_like(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            mean = {}
            var = ((x[b, t] - mean) ** 2).mean()
            out[b, t] = (x[b, t] - mean) / np.sqrt(var + eps) * gain + bias
    return out
"""


def patch_of(exercise_id, text):
    exercise = find_exercise(exercise_id)

    def attempt(inputs):
        names = {"np": np}
        return run_calls(lambda: attempting(exercise.function_name, names), [inputs])

    return find_patch(exercise, text, 0, attempt)


@pytest.mark.parametrize(
    ("exercise", "text", "part", "line", "ours"),
    [
        ("scores", SCALED.format("1 / np.log2(width) ** 0.7"), "np.log2(width) ** 0.7", 3,
         "those of `np.sqrt(q.shape[-1])`"),
        ("layer-norm", LOOPED.format("np.median(x[b, t])"), "np.median(x[b, t])", 5,
         "those of `x.mean(axis=-1, keepdims=True)`"),
    ],
)  # fmt: skip
def test_the_smallest_part_is_told_in_whose_place_other_numbers_belong(
    exercise, text, part, line, ours
):
    found = patch_of(exercise, text)
    assert (found.part, found.line) == (part, line)
    assert found.ours == ours
    assert found.old == text.split("\n")[line - 1].strip()
    assert ours in found.told
    assert ours not in found.place


def test_a_number_that_has_no_name_in_the_task_is_told_as_a_number():
    text = """def split_heads(x, num_heads):
    B, T, D = x.shape
    width = (D + T) // num_heads
    return x.reshape(B, T, num_heads, width).transpose(0, 2, 1, 3)
"""
    found = patch_of("split-heads", text)
    assert found.told.startswith("other numbers belong in place of `D + T`, in line 3")
    assert found.told.endswith("on input 1, and so on, your function passes")


@pytest.mark.slow
def test_a_line_is_not_blamed_for_what_it_reads():
    text = SCALED.format("1 / width").replace("q.shape[-1]", "np.log2(q.shape[-1]) ** 0.7 * 1.1")
    found = patch_of("scores", text)
    assert found.line == 2
    assert patch_of("scores", text.replace(" * 1.1", " * 1.1\n    q = q * 2.2")) is None


def test_a_shape_is_not_blamed_for_what_is_made_of_it():
    text = SCALED.format("1 / (width + 1) ** 0.5").replace(
        "width = q.shape[-1]", "*_, width = q.shape"
    )
    found = patch_of("scores", text)
    assert (found.line, found.part) == (3, "width + 1")


@pytest.mark.slow
def test_a_line_in_a_loop_is_not_blamed_for_what_it_reads_in_later_rounds():
    text = LOOPED.format("total / x.shape[2]").replace(
        "            mean =",
        "            total = x[b, t].sum() + (t > 0) * 1.5\n            mean =",
    )
    found = patch_of("layer-norm", text)
    assert found is None or found.line == 5, found


@pytest.mark.parametrize(
    "text",
    [
        "def scores(q, k",
        "def scores(*both):\n    return both[0]",
        "def scores(q, k):\n    raise ValueError",
        "def other(q, k):\n    return q",
        pytest.param(
            "def scores(q, k):\n    while True:\n        q = q + 1", marks=pytest.mark.slow
        ),
    ],
)
def test_texts_without_such_a_place(text):
    assert patch_of("scores", text) is None
