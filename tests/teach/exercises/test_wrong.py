"""Every known mistake is rejected, and named in the verdict."""

import numpy as np
import pytest

from mha_numpy.checking.trees import leaves
from mha_numpy.teach.diagnosis import BANK, MISBEHAVIOURS, TASKS, fingerprints, make, right_answers
from mha_numpy.teach.exercises import judge
from tests.sweeps import sweep
from tests.teach.diagnosis.test_diagnose import SAME
from tests.teach.exercises.test_right import OF_PIECE

some_pieces = pytest.mark.parametrize("piece", sweep(TASKS, 4))


def assert_named(piece, name):
    verdict = judge(OF_PIECE[piece], lambda: make(piece, [name]))
    assert not verdict.passed, name
    names = {name}.union(*(pair for pair in SAME if name in pair))  # of NaN alike, one is told
    told = " ".join(verdict.remarks.values())
    assert any(BANK[one].verdict in told for one in names), f"{name}\n{verdict}"


@some_pieces
def test_a_mistake_is_rejected_and_named(piece):
    assert_named(piece, list(fingerprints(piece))[-1])


@pytest.mark.parametrize("piece", sweep(TASKS, 0, every=3))
def test_every_mistake_is_rejected_and_named(piece):
    for name in fingerprints(piece):
        assert_named(piece, name)


def has_floats(tree):
    return any(
        isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" for leaf in leaves(tree).values()
    )


@some_pieces
@pytest.mark.parametrize("manner", [manner.name for manner in MISBEHAVIOURS])
def test_manners_are_named(piece, manner):
    function = make(piece, [manner])
    probe, expected = TASKS[piece].probes()[0], right_answers(piece)[0]
    if not has_floats(probe if manner == "an input changed in place" else expected):
        pytest.skip("there are no floats to do it with")
    verdict = judge(OF_PIECE[piece], lambda: function)
    assert not verdict.passed
    assert verdict.mistakes == {manner}, f"\n{verdict}"
