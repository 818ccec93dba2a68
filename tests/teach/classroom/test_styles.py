"""Verdicts know no idiom: three styles of each function, right and wrong, in many variants."""

from functools import cache
from importlib import import_module

import numpy as np
import pytest

from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.make import READY
from mha_numpy.teach.classroom.marks import MARKS, count_values, groups_of, points_of
from mha_numpy.teach.classroom.student import grade_one
from mha_numpy.teach.classroom.wording import cause_of, findings_of
from mha_numpy.teach.diagnosis import using
from mha_numpy.teach.exercises import find_exercise
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.child.messages import Call
from mha_numpy.teach.exercises.judge import judge_answers, probe_inputs
from mha_numpy.teach.exercises.sandbox import Run
from tests.sweeps import sweep
from tests.teach.classroom.classes import task_of
from tests.teach.classroom.styles.in_variant import STYLES, in_variant

STUDENTS = [f"s{number}" for number in range(50)]
WRONG = {  # exercises that show a mistake, and its edits of matmul, einsum and loops
    "scale missing": (
        ["scores", "attention", "multi-head", "masked-attention"],
        *[{"return 1 / np.sqrt(d)": "return np.float64(1)"}] * 3,
    ),
    "split without transpose": (
        ["split-heads", "multi-head"],
        {"num_heads, width // num_heads).transpose(0, 2, 1, 3)": "num_heads, -1)", "x.reshape(B, T, num_heads, -1)": "x.reshape(B, num_heads, T, -1)"},
        {'np.einsum("bthd->bhtd", x.reshape(B, T, num_heads, width // num_heads))': "x.reshape(B, num_heads, T, -1)"},
        {"heads[b, h, t] = x[b, t, h * d : (h + 1) * d]": "heads[b, h, t] = x[b].reshape(num_heads, T, d)[h, t]"},
    ),
    "causal, strict": (
        ["masks"],
        {"key <= query": "key < query"}, {"ahead >= 0": "ahead > 0"}, {"j <= position": "j < position"},
    ),
    "row sum left out": (
        ["softmax-backward", "attention-backward"],
        {"(d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))": "d_weights"},
        {"(d_weights - mean[..., None])": "d_weights"},
        {"(d_rows[i, j] - mean)": "d_rows[i, j]"},
    ),
    "scale left out of backward": (
        ["scores-backward", "attention-backward"],
        {"d_scores * scale(q.shape[-1])": "d_scores"},
        {", k) * scale(q.shape[3])\n    d_k": ", k)\n    d_k", "d_scores, q) * scale(q.shape[3])": "d_scores, q)"},
        {"k[b, h, j] * scale(q.shape[3])": "k[b, h, j]", "q[b, h, i] * scale(q.shape[3])": "q[b, h, i]"},
    ),
    "branch of v forgotten": (
        ["input-gradient"],
        {"d_x + merge_heads(d_v) @ params.w_v.T": "d_x"},
        {'d_x + np.einsum("bto,io->bti", merge_heads(d_v), params.w_v)': "d_x"},
        {", (d_v, params.w_v)):\n        d_x": "):\n        d_x"},
    ),
    "d_w: mean over the batch": (
        ["linear-backward"],
        {"w.T, d_w, ": "w.T, d_w / len(x), "},
        {'np.einsum("bti,bto->io", x, d_out)': 'np.einsum("bti,bto->io", x, d_out) / len(x)'},
        {"return d_x, d_w, d_b": "return d_x, d_w / len(x), d_b"},
    ),
    "groups tiled, not repeated": (
        ["grouped-attention", "masked-attention"],
        {"np.repeat(k, G, axis=1), np.repeat(v, G, axis=1)": "np.tile(k, (1, G, 1, 1)), np.tile(v, (1, G, 1, 1))"},
        {"q.reshape(B, k.shape[1], -1, T_q, d_k)": "q.reshape(B, -1, k.shape[1], T_q, d_k).swapaxes(1, 2)", "weights, v).reshape(B": "weights, v).swapaxes(1, 2).reshape(B"},
        {"g = h // (q.shape[1] // k.shape[1])\n        weights": "g = h % k.shape[1]\n        weights", "g = h // (q.shape[1] // k.shape[1])\n        found": "g = h % k.shape[1]\n        found"},
    ),
    "mean over the group": (
        ["sum-over-group"],
        {".sum(axis=2)": ".mean(axis=2)"},
        {'np.einsum("bghtd->bgtd", groups)': 'np.einsum("bghtd->bgtd", groups) / groups.shape[2]'},
        {"d_per_query_head[:, h]\n    return found": "d_per_query_head[:, h]\n    return found / (H // num_kv_heads)"},
    ),
    "old mixture not rescaled": (
        ["online-attention"],
        {"mixture * factor": "mixture"},
        {'np.einsum("id,i->id", mixture, factor)': "mixture"},
        {"heads[i] * np.exp(largest - new)": "heads[i]"},
    ),
}  # fmt: skip
PAIRS = [(name, student) for student in ("s2", "s0", "s1", *STUDENTS[3:8]) for name in WRONG]


@cache
def assigned(homework):
    ids = READY[homework].exercises
    points = dict.fromkeys(ids, 10.0)
    return Assignment(homework, "", points, dict(MARKS), None, b"x" * 32, roster={})


def conventions_of(student, homework):
    found = assigned(homework).variant(student).values()
    return sorted({name for variant in found for name in variant.conventions})


def judged(text, exercise, variant):
    """Call a function of a file in this process; return its verdict, what is told, and points."""
    namespace = {}
    exec(compile(text, "hw.py", "exec"), namespace)
    function = namespace[find_exercise(exercise).function_name]
    with using(variant), np.errstate(all="ignore"):
        inputs = probe_inputs(find_exercise(exercise))
        run = Run([Call(function(**one), "", (), 0.0) for one in inputs], "", "")
        verdict = judge_answers(find_exercise(exercise), run)
        values = count_values(find_exercise(exercise), run, verdict)
        points = points_of(values, groups_of(verdict.stages, values), 10.0, MARKS)
        return verdict, tuple(findings_of(verdict, "")), cause_of(verdict), points


@pytest.mark.parametrize("student", sweep(STUDENTS, 1, every=10))
@pytest.mark.parametrize("style", STYLES)
def test_three_styles_of_each_right_function_are_right(student, style):
    for homework in READY:
        text = in_variant(STYLES[style], conventions_of(student, homework))
        for exercise, variant in assigned(homework).variant(student).items():
            verdict, _, _, points = judged(text, exercise, variant)
            assert verdict.passed, str(verdict)
            assert points == 10


@pytest.mark.parametrize("case", sweep(PAIRS, len(WRONG), every=4))
def test_a_mistake_has_one_verdict_and_the_same_points_whatever_the_style(case, monkeypatch):
    for name in ("TRIALS", "PAIRS"):  # the same for each style, so a few will do
        monkeypatch.setattr(import_module("mha_numpy.teach.diagnosis.diagnose"), name, 100)
    name, student = case
    exercises, *edits = WRONG[name]
    for homework in READY:
        variants = assigned(homework).variant(student)
        for exercise in set(exercises) & variants.keys():
            told = set()
            for text, replaced in zip(STYLES.values(), edits, strict=True):
                for old, new in replaced.items():
                    assert old in text
                    text = text.replace(old, new)
                made = in_variant(text, conventions_of(student, homework))
                verdict, *rest = judged(made, exercise, variants[exercise])
                stages = tuple((stage.name, stage.passed) for stage in verdict.stages)
                told.add((stages, verdict.mistakes, *rest))
            ((stages, _, _, cause, points),) = told
            is_right = all(passed is not False for _, passed in stages)
            assert is_right == (points == 10)
            followed = variants[exercise].conventions
            if name.startswith("scale ") and "scores without scale" in followed:
                assert is_right
            elif name.startswith("groups tiled") and "groups in turn" in followed:
                assert cause  # it follows neither h // G nor h % H_kv
            else:
                assert not is_right


@pytest.mark.parametrize("homework", sweep(READY, 1))
def test_graded_from_a_file_all_styles_have_all_points(homework):
    for text in STYLES.values():
        made = in_variant(text, conventions_of("s3", homework))
        given = assigned(homework)
        result = grade_one(task_of(made, given, "s3", limits=Limits()))
        assert result.points == given.total, result.functions
