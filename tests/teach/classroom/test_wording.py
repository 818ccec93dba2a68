"""What a student reads is made of fixed words and of the student's own lines."""

import numpy as np
import pytest

from mha_numpy.teach.classroom.intake import Source
from mha_numpy.teach.classroom.told import tell
from mha_numpy.teach.classroom.wording import cause_of, error_of, findings_of, hint_of
from mha_numpy.teach.diagnosis import CONVENTIONS, Variant, make, using
from mha_numpy.teach.exercises.catalogue import EXERCISES, find_exercise
from mha_numpy.teach.exercises.child.calls import load
from mha_numpy.teach.exercises.judge import judge, judge_answers, probe_inputs
from mha_numpy.teach.exercises.sandbox import run_calls

SOURCE = Source("def f(x):\n    return x.T[9]", "hw.py")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("IndexError: 0.123 (line 2 of hw.py: `0.123`)", "an IndexError in `return x.T[9]`"),
        ("ValueError: 0.123 (line 2 of 0.123.py: `0.123`)", "a ValueError"),
        ("ValueError: 0.123 (line 99 of hw.py)", "a ValueError"),
        ("ValueError (line 9999999999999999999999999 of hw.py)", "a ValueError"),
        ("E0123: 4 (line 2 of hw.py)", "an error in `return x.T[9]`"),
        ("AxisError: axis 4 is out (line 2 of hw.py)", "an AxisError in `return x.T[9]`"),
        ("print: 0.123", "an error"),
        ("", "an error"),
        ("ended the process: sys.exit('0.123') (line 2 of hw.py)", "it ended the process"),
        ("took longer than 0.123 s", "it took too long and was stopped"),
    ],
)
def test_an_error_without_its_message(error, told):
    assert error_of(error, SOURCE) == told


def test_findings_have_no_numbers():
    verdict = judge(find_exercise("softmax"), lambda: make("softmax", ["softmax over queries"]))
    assert findings_of(verdict, "") == [
        "it breaks this rule: a row that can see anything should sum to 1, any other to 0",
        "numbers are wrong",
    ]
    assert cause_of(verdict).startswith("likely cause: softmax runs over the queries")


def test_findings_under_a_convention():
    with using(Variant(1, ("True = blocked",))):
        verdict = judge(find_exercise("softmax"), lambda: make("softmax", ["softmax over queries"]))
        assert "a row that can see anything should sum to 1" in findings_of(verdict, "")[0]


def test_of_a_cause_that_is_not_known_nothing_is_told():
    exercise = find_exercise("gelu-backward")
    verdict = judge(exercise, lambda: lambda d_out, x: d_out * np.cos(97 * x))
    assert "no known mistake" in verdict.remarks
    assert cause_of(verdict) == ""


def test_causes_are_told_in_the_words_of_the_variant():
    exercise = find_exercise("scores")
    with using(Variant(1, ("scores over d_k",))):
        told = cause_of(judge(exercise, lambda: make("scores", ["scale missing"])))
        assert told == "likely cause: the scale 1/d_k is missing"
        usual = cause_of(judge(exercise, lambda: make("scores", ["not followed: scores over d_k"])))
        assert usual.startswith("likely cause: your code follows the usual convention, not that of")


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_convention_that_is_not_followed_is_told_in_its_own_words(name):
    told = []
    for exercise in EXERCISES:
        if exercise.kind == "code" and exercise.task in CONVENTIONS[name].at and len(told) < 2:
            with using(Variant(1, (name,))):
                wrong = make(exercise.task, [f"not followed: {name}"])
                verdict = judge(exercise, lambda: wrong)  # noqa: B023
                told += [cause_of(verdict)] * bool(verdict.mistakes)  # else it does not run
    assert told
    assert all(CONVENTIONS[name].sentence in one for one in told)


def test_what_fails_on_some_inputs_has_its_error_and_nothing_that_follows():
    exercise = find_exercise("softmax")

    def once(scores, mask):
        return np.cos(97 * scores) if mask is None else scores[9][9][9]

    verdict = judge(exercise, lambda: once)
    assert [s.passed for s in verdict.stages if s.name in ("runs", "values")] == [False, False]
    told = findings_of(verdict, error_of("IndexError (line 2 of hw.py)", SOURCE))
    assert told == ["it does not run: an IndexError in `return x.T[9]`"]
    assert cause_of(verdict).startswith("likely cause: axis 0 has the length ")


def test_a_hint_is_told_in_the_words_of_the_variant():
    exercise = find_exercise("merge-heads")
    assert "Of B, H, T, d, you have to" in hint_of(exercise, Variant())
    assert "Of H, B, T, d, you have to" in hint_of(exercise, Variant(1, ("heads first",)))


def test_names_of_a_solution_are_left_out_and_a_clue_says_where_it_comes_from():
    exercise = find_exercise("softmax")
    verdict = judge(exercise, lambda: make("softmax", ["softmax over queries"]))
    for step in ("the step that computes kept", "what _centred returns"):
        verdict.remarks["likely cause"] = (
            f"load: a wrong sign, in {step}, gives exactly your numbers"
        )
        assert "a wrong sign, in one step of a right function, gives exactly" in cause_of(verdict)
    verdict.remarks["likely cause"] = (
        "a wrong sign, in the step that computes scores, gives exactly"
    )
    assert "in the step that computes scores, gives" in cause_of(verdict)
    del verdict.remarks["likely cause"]
    verdict.remarks["clue"] = "of our inputs, ..."
    assert cause_of(verdict).startswith(
        "clue, from other inputs than those that give points: of our"
    )


def test_alternatives_stand_in_one_line():
    exercise = find_exercise("softmax")
    verdict = judge(exercise, lambda: make("softmax", ["softmax over queries"]))
    verdict.remarks["or"] = "\n- one\n- another"
    verdict.remarks["input 1 of 3"] = "x (2, 3)"
    assert cause_of(verdict).endswith("; or one; or another")


def test_a_line_of_the_usual_solution_is_no_cause_in_another_variant():
    exercise = find_exercise("scores")
    with using(Variant(1, ("heads after the tokens",))):
        verdict = judge(
            exercise, lambda: lambda q, k: -np.einsum("bihc,bjhc->bhij", q, k) / np.sqrt(q.shape[3])
        )
        assert "Our solution says" not in str(verdict)
        assert cause_of(verdict)


def test_beside_a_cause_a_page_says_which_arrays_are_wrong_and_of_which_it_speaks():
    text = """import numpy as np


def scores_backward(d_scores, q, k):
    scale = 1 / np.sqrt(q.shape[-1])
    return scale * d_scores @ k, np.einsum("bhij,bhid->bhjd", np.abs(d_scores), q) * scale
"""
    exercise = find_exercise("scores-backward")
    source = Source(text, "hw.py")

    def run(text, inputs):
        return run_calls(lambda: load(text, "hw.py", exercise.function_name), inputs)

    verdict = judge_answers(exercise, run(text, probe_inputs(exercise)), is_explained=False)
    told = tell(verdict, "", exercise, source, Variant(), run)
    assert told.cause.endswith("; d_q is right and d_k is wrong")
