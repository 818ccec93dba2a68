"""Points: the share of right arrays; form takes off its own part; what ignores its inputs has none.

The rules are new, so are the tests of them: a group that was asked and passed used to earn its
points whatever the numbers were.
"""

import numpy as np
import pytest

from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.teach.classroom.make import READY
from mha_numpy.teach.classroom.marks import (
    MARKS,
    Values,
    count_values,
    groups_of,
    points_of,
    read_marks,
    rules,
)
from mha_numpy.teach.diagnosis import BANK, CONVENTIONS, find_task, right_answers
from mha_numpy.teach.exercises import find_exercise
from mha_numpy.teach.exercises.child.messages import Call
from mha_numpy.teach.exercises.sandbox import Run
from mha_numpy.teach.exercises.stages import STAGES, Evidence, Stage, examine
from mha_numpy.teach.exercises.verdict import Verdict

ASSIGNED = list(dict.fromkeys(name for ready in READY.values() for name in ready.exercises))
SLIP = frozenset({"scale missing"})  # any known mistake


def counted(exercise_id, change, mistakes=SLIP):
    """Count values where each right answer is changed; `change` takes its probe, too."""
    exercise = find_exercise(exercise_id)
    probes, rights = find_task(exercise.task).probes(), right_answers(exercise.task)
    answers = [change(*pair) for pair in zip(probes, rights, strict=True)]
    calls = [Call(answer, "", (), 0.0) for answer in answers for _ in range(2)]
    run = Run(calls, "", "")
    with np.errstate(all="ignore"):
        stages = examine(Evidence(exercise, run))
    values = count_values(exercise, run, Verdict(exercise, stages, "", mistakes=mistakes))
    return values, groups_of(stages, values)


def percent(exercise_id, change, mistakes=SLIP):
    return points_of(*counted(exercise_id, change, mistakes), 100, MARKS)


def each(function):
    """Return a change of every array of an answer."""
    return lambda probe, right: replaced(
        right, {name: function(np.asarray(leaf), probe) for name, leaf in leaves(right).items()}
    )


def input_of(place):
    """Return a change to copies of an input: the one at this place that has as many numbers."""

    def copy(array, probe):
        found = [np.asarray(leaf) for leaf in leaves(probe).values() if leaf is not None]
        fit = [leaf for leaf in found if leaf.size == array.size] or found
        one = fit[place % len(fit)]
        return one.reshape(array.shape) if one.size == array.size else one

    return copy


def stages(**answers):
    """Return all stages passed, but for some."""
    answers = {name.replace("_", " "): passed for name, passed in answers.items()}
    return [Stage(name, answers.get(name, True), "") for name in STAGES]


EASY = {
    "zeros": lambda array, _: np.zeros_like(array),
    "ones": lambda array, _: np.ones_like(array),
    "a constant": lambda array, _: np.full(array.shape, -0.3),
    "the first input that fits": input_of(0),
    "the second input that fits": input_of(1),
    "the last input that fits": input_of(-1),
    "NaN": lambda array, _: np.full(array.shape, np.nan),
}


@pytest.mark.parametrize("exercise_id", ASSIGNED)
@pytest.mark.parametrize("what", EASY)
def test_zeros_constants_and_copies_earn_nothing(exercise_id, what):
    # not even if a known mistake gives them, except for NaN, which several give
    mistakes = frozenset() if what == "NaN" else SLIP
    assert percent(exercise_id, each(EASY[what]), mistakes) == 0


@pytest.mark.parametrize("exercise_id", ASSIGNED)
def test_right_answers_earn_all(exercise_id):
    assert percent(exercise_id, lambda _, right: right, frozenset()) == 100


def one_wrong(probe, right):
    return right._replace(d_b=right.d_b / 2)


class TestValues:
    def test_one_array_of_three(self):
        n = len(right_answers("linear_backward"))
        assert counted("linear-backward", one_wrong)[0] == Values(2 * n, 3 * n, slips=n)
        assert percent("linear-backward", one_wrong) == pytest.approx(200 / 3 + 80 * 0.4 / 3, 0.001)
        assert percent("linear-backward", one_wrong, frozenset()) == pytest.approx(66.67)

    def test_one_input_of_several(self):
        first, *others = right_answers("linear_backward")

        def change(_, right):
            return right if right is first else None

        assert counted("linear-backward", change)[0] == Values(3, 3 + 3 * len(others))

    def test_an_array_that_should_be_0_counts_if_it_is_wrong(self):
        def change(_, right):
            d_params = right.d_params
            return right._replace(d_params=d_params._replace(b_k=d_params.b_k + 1))

        n = len(right_answers("multi_head_backward"))
        assert counted("multi-head-backward", lambda _, right: right)[0] == Values(8 * n, 8 * n)
        assert counted("multi-head-backward", change, frozenset())[0] == Values(8 * n, 9 * n)

    def test_a_mistake_that_is_none_of_these_is_no_slip(self):
        convention = next(iter(CONVENTIONS.values())).ignored
        assert convention in BANK
        for mistakes in ({convention}, {"scale missing", "sign of d_scores"}, set()):
            assert counted("scores", each(lambda a, _: 2 * a), frozenset(mistakes))[0].slips == 0
        n = len(right_answers("scores"))
        assert counted("scores", each(lambda a, _: 2 * a))[0] == Values(0, n, slips=n)


class TestForm:
    """What has the right numbers loses only its own part."""

    @pytest.mark.parametrize("exercise_id", ["linear-backward", "attention", "softmax"])
    @pytest.mark.parametrize("inside", [False, True])
    def test_float32_loses_shape(self, exercise_id, inside):
        def change(array, _):
            return array.astype(np.float32).astype(array.dtype if inside else np.float32)

        values, groups = counted(exercise_id, each(change), frozenset({"float32 inside"}))
        assert values.are_right
        assert values.is_coarse
        assert points_of(values, groups, 100, MARKS) == 90
        assert [name for name, passed in groups.items() if not passed] == ["shape"]

    def test_a_small_number_added_loses_shape(self):
        assert percent("softmax", each(lambda array, _: array / (1 + 1e-9)), frozenset()) == 90

    @pytest.mark.parametrize("dtype", [int, float, np.uint8])
    def test_a_mask_of_numbers_loses_shape(self, dtype):
        assert percent("masks", each(lambda array, _: array.astype(dtype)), frozenset()) == 90

    def test_an_overflow_loses_robustness(self):
        def change(probe, right):
            is_large = max(np.abs(probe["q"]).max(), np.abs(probe["k"]).max()) > 30
            return right * np.nan if is_large else right

        assert percent("attention", change) == 90
        assert percent("attention", change, frozenset()) < 80  # unexplained, it costs its values

    def test_each_question_of_robustness(self):
        for name in ("finite", "inputs_left_alone", "the_same_twice", "memory", "runs"):
            found = groups_of(
                [*stages(**{name: False}), Stage("memory", name != "memory", "")], ALL
            )
            assert points_of(ALL, found, 10, MARKS) == 9, name

    def test_form_is_part_of_what_is_earned(self):
        groups = {"shape": False, "robustness": False}
        assert points_of(Values(1, 2), groups, 10, MARKS) == 4
        assert points_of(Values(0, 2), {"shape": True}, 10, MARKS) == 0


ALL = Values(3, 3)


def test_what_was_not_asked_is_not_marked():
    found = groups_of(stages(invariants=None, gradients=None), Values(1, 3))
    assert found == {"shape": True, "values": False, "robustness": True}
    assert groups_of([Stage("runs", False, "")], Values(0, 3)) == {}
    nothing = [Stage(name, None, "") for name in STAGES]
    assert points_of(Values(0, 3), groups_of(nothing, Values(0, 3)), 10, MARKS) == 0


def test_right_values_answer_what_is_asked_about_values():
    found = groups_of(stages(type_and_dtype=False, values=False, gradients=False), ALL)
    assert [name for name, passed in found.items() if not passed] == ["shape"]


def test_marks_of_an_older_table():
    older = {"shape": 10, "invariants": 20, "values": 40, "gradients": 20, "robustness": 10}
    assert read_marks(older) == MARKS
    assert read_marks({**MARKS, "slip": 0})["slip"] == 0
    assert "values" not in read_marks({"shape": 100})


def test_the_rules_have_the_marks_of_the_table():
    told = rules({"shape": 5, "values": 70, "robustness": 25, "slip": 33})
    for text in ("70% is for the numbers", "5% for types", "25% for robustness", "earns 33%"):
        assert text in told
