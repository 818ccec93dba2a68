"""The core and its kernels pass every check that a student's code has to pass."""

import pytest

from mha_numpy.exercises import EXERCISES, find_exercise, judge
from tests.exercises.by_backend import solutions


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_the_core_is_right_at_every_stage(exercise):
    verdict = judge(exercise, lambda: exercise.reference)
    assert verdict.passed, f"\n{verdict}"
    assert all(stage.passed for stage in verdict.stages)


@pytest.mark.kernel
@pytest.mark.parametrize("backend", ["loops", "numba"])
def test_the_kernels_are_right_at_every_stage(backend):
    pytest.importorskip("numba")
    for name, function in solutions(backend).items():
        verdict = judge(find_exercise(name), lambda function=function: function)
        assert verdict.passed, f"\n{verdict}"
