"""Points: groups that a function does not have share their weight; one passed in part is not."""

from mha_numpy.teach.classroom.marks import MARKS, groups_of, points_of
from mha_numpy.teach.exercises.stages import STAGES, Stage


def stages(**answers):
    """Return all stages passed, but for some; those that are `...` are not asked."""
    answers = {name.replace("_", " "): passed for name, passed in answers.items()}
    return [
        Stage(name, answers.get(name, True), "")
        for name in STAGES
        if answers.get(name, True) is not ...
    ]


def points(out_of=10, **answers):
    return points_of(groups_of(stages(**answers)), out_of, MARKS)


def test_each_group():
    assert points() == 10
    assert points(shape=False) == 9
    assert points(type_and_dtype=False, shape=False) == 9
    assert points(finite=None) == 9
    assert points(invariants=False) == 8
    assert points(values=False) == 6
    assert points(gradients=False) == 8
    assert points(values=False, gradients=None) == 4


def test_the_weight_of_what_is_not_there_is_shared():
    assert points(16, gradients=...) == 16
    assert points(16, gradients=..., values=False) == 8
    assert points(12, gradients=..., invariants=..., values=None) == 4


def test_what_does_not_run_has_no_points():
    assert points(runs=False) == 0


def test_weights_of_the_teacher():
    groups = groups_of(stages(invariants=False))
    assert points_of(groups, 3, {"values": 2, "invariants": 1}) == 2
    assert points_of(groups, 3, {"gradients": 0}) == 0
    assert points_of({}, 3, MARKS) == 0
