"""The core and its kernels pass every check that a student's code has to pass."""

from functools import partial

import pytest

from mha_numpy.teach.diagnosis import TASKS
from mha_numpy.teach.exercises import Limits, judge
from tests.sweeps import sweep
from tests.teach.diagnosis.by_core import BY_KERNELS, by_core
from tests.teach.exercises.test_right import OF_PIECE


@pytest.mark.parametrize("piece", TASKS)
def test_the_core_is_right_at_every_stage(piece):
    verdict = judge(OF_PIECE[piece], lambda: by_core(piece))
    assert verdict.passed, f"\n{verdict}"
    assert all(stage.passed for stage in verdict.stages)


@pytest.mark.kernel
@pytest.mark.parametrize("backend", ["loops", "numba"])
@pytest.mark.parametrize("piece", sweep(BY_KERNELS, 3))
def test_the_kernels_are_right_at_every_stage(piece, backend):
    pytest.importorskip("numba")
    limits = Limits(seconds=120.0)  # the first of them compiles
    verdict = judge(OF_PIECE[piece], lambda: partial(by_core(piece), backend=backend), limits)
    assert verdict.passed, f"\n{verdict}"
