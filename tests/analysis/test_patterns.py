"""Scores of patterns, against sums by hand."""

import numpy as np
import pytest

from mha_numpy.analysis import induction_score, previous_token_score
from mha_numpy.errors import DTypeError, ShapeError
from tests.compare import assert_close

B, H, T = 2, 3, 5
IDS = np.array([[4, 6, 4, 6, 4], [1, 2, 3, 1, 1]])
# query -> what came right after its earlier copies, in each sequence
AFTER = [{2: [1], 3: [2], 4: [1, 3]}, {3: [1], 4: [1, 4]}]


@pytest.fixture
def weights(rng):
    weights = np.tril(rng.random((B, H, T, T)))
    return weights / weights.sum(axis=-1, keepdims=True)


def test_previous_token_score(weights):
    expected = np.mean([weights[b, :, t, t - 1] for b in range(B) for t in range(1, T)], axis=0)
    assert_close(previous_token_score(weights), expected)


def test_induction_score(weights):
    each = {
        (b, q): sum(weights[b, :, q, k] for k in keys)
        for b, after in enumerate(AFTER)
        for q, keys in after.items()
    }
    assert_close(induction_score(weights, IDS), np.mean(list(each.values()), axis=0))
    counted = np.zeros((B, T), int)  # 0 and 1 will do
    counted[0, 4] = counted[1, 3] = 1
    assert_close(induction_score(weights, IDS, counted), (each[0, 4] + each[1, 3]) / 2)


def test_impossible_arguments_are_named(weights):
    with pytest.raises(ShapeError, match=r"^weights: expected \(B, H, T, T\); got \(2, 3, 4, 5\)"):
        previous_token_score(weights[:, :, 1:])
    with pytest.raises(DTypeError, match="^weights: "):
        previous_token_score(weights > 0)
    with pytest.raises(ShapeError, match=r"^ids: expected \(B=2, T=5\) to match weights"):
        induction_score(weights, IDS[:, 1:])
    with pytest.raises(ShapeError, match=r"^counted: expected \(B=2, T=5\) to match weights"):
        induction_score(weights, IDS, np.ones((B, 1), bool))
