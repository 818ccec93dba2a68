"""Scores of patterns, against sums by hand."""

import numpy as np
import pytest

from mha_numpy.models.analysis import (
    head_patterns,
    mean_distance,
    mean_entropy,
    pattern_score,
    token_patterns,
)
from tests.compare import assert_close

B, H, T = 2, 3, 5
IDS = np.array([[4, 6, 4, 6, 4], [0, 2, 9, 2, 2]])
COUNTED = np.array([[True] * 5, [False, True, True, True, True]])  # padding at the left
IS_DELIMITER = IDS == 9
# query -> places, in each sequence
PLACES = {
    "previous": [{1: [0], 2: [1], 3: [2], 4: [3]}, {2: [1], 3: [2], 4: [3]}],
    "itself": [{i: [i] for i in range(5)}, {i: [i] for i in range(1, 5)}],
    "next": [{0: [1], 1: [2], 2: [3], 3: [4]}, {1: [2], 2: [3], 3: [4]}],
    "first": [{1: [0], 2: [0], 3: [0], 4: [0]}, {2: [1], 3: [1], 4: [1]}],
    "duplicate": [{2: [0, 4], 3: [1], 4: [0, 2]}, {3: [1, 4], 4: [1, 3]}],
    "induction": [{2: [1], 3: [2], 4: [1, 3]}, {3: [2], 4: [2, 4]}],
    "delimiter": [{}, {1: [2], 2: [2], 3: [2], 4: [2]}],
}


@pytest.fixture
def weights(rng):
    return rng.dirichlet(np.ones(T), size=(B, H, T))


def test_where_each_pattern_lies_and_how_much_weight(weights):
    options = {"is_delimiter": IS_DELIMITER, "counted": COUNTED}
    found = token_patterns(IDS, **options)
    scores = head_patterns(weights, IDS, **options)
    assert found.keys() == scores.keys() == PLACES.keys()
    for name, places in PLACES.items():
        marked = {tuple(map(int, place)) for place in np.argwhere(found[name])}
        assert marked == {
            (b, i, j) for b in range(B) for i, keys in places[b].items() for j in keys
        }, name
        of_queries = [weights[b, :, i, keys].sum(0) for b in range(B) for i, keys in
                      places[b].items()]  # fmt: skip
        assert_close(scores[name], np.mean(of_queries, axis=0), name=name)


def test_without_options_all_tokens_count_and_none_is_a_delimiter():
    found = token_patterns(IDS)
    assert "delimiter" not in found
    assert_close(found["first"][1, :, 0], [False, True, True, True, True], "exact")


def test_a_pattern_of_ones_own_between_two_sequences(weights):
    crossing = weights[:, :, :3]  # three queries, five keys
    where = np.zeros((3, T), bool)
    where[0, [1, 4]] = where[2, 3] = True  # query 1 has no place
    of_queries = np.stack([crossing[:, :, 0, [1, 4]].sum(axis=2), crossing[:, :, 2, 3]])
    assert_close(pattern_score(crossing, where), of_queries.mean(axis=(0, 1)))
    counted = [[0, 1, 1], [1, 1, 0]]  # 0 and 1 will do
    expected = (of_queries[1, 0] + of_queries[0, 1]) / 2
    assert_close(pattern_score(crossing, where, counted), expected)
    assert np.isnan(pattern_score(crossing, np.zeros((3, T), bool))).all()


def test_how_far_and_how_wide_by_hand():
    weights = np.array([[[[1, 0, 0], [0.5, 0, 0.5], [0.25, 0.25, 0.5]]]])
    assert_close(mean_distance(weights), [(0 + 1 + 0.75) / 3])
    entropies = np.log(2) * np.array([0, 1, 1.5])
    assert_close(mean_entropy(weights), [entropies.mean()])
    counted = [[True, False, True]]
    assert_close(mean_distance(weights, counted), [0.75 / 2])
    assert_close(mean_entropy(weights[..., :2, :], [[False, True]]), [entropies[1]])
