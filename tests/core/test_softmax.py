import numpy as np
import pytest

from mha_numpy.core import softmax_backward, softmax_forward
from tests.compare import assert_close


def test_hand_computed_values():
    weights, cache = softmax_forward(np.log([[1.0, 2.0, 5.0]]))
    assert_close(weights, [[1 / 8, 2 / 8, 5 / 8]])
    assert_close(cache.lse, [np.log(8)])
    d_scores = softmax_backward(np.array([[8.0, 0.0, 0.0]]), cache).d_scores
    # row mean: 8 * 1/8 = 1; d_scores = weights * (d_weights - 1)
    assert_close(d_scores, [[7 / 8, -2 / 8, -5 / 8]])


def test_backward_equals_the_jacobian(rng):
    weights, cache = softmax_forward(rng.normal(size=(3, 5)))
    d_weights = rng.normal(size=(3, 5))
    expected = [(np.diag(p) - np.outer(p, p)) @ d for p, d in zip(weights, d_weights, strict=True)]
    assert_close(softmax_backward(d_weights, cache).d_scores, expected)


def test_rows_of_weights_sum_to_1_and_rows_of_d_scores_to_0(rng):
    weights, cache = softmax_forward(rng.normal(size=(4, 6, 5, 7)))
    assert_close(weights.sum(axis=-1), np.ones((4, 6, 5)))
    d_scores = softmax_backward(rng.normal(size=weights.shape), cache).d_scores
    assert np.abs(d_scores).max() > 0.01
    assert_close(d_scores.sum(axis=-1), np.zeros((4, 6, 5)))


def test_a_constant_added_to_a_row_changes_nothing_but_lse(rng):
    scores, shift = rng.normal(size=(3, 5)), rng.normal(size=(3, 1)) * 50
    weights, cache = softmax_forward(scores)
    shifted, shifted_cache = softmax_forward(scores + shift)
    assert_close(shifted, weights)
    assert_close(shifted_cache.lse, cache.lse + shift[:, 0])


def test_a_hidden_cell_counts_for_nothing_beside_far_lower_scores():
    weights, cache = softmax_forward(
        np.array([[-1e12, -1e12, 0.0]]), mask=np.array([[True, True, False]])
    )
    assert_close(weights, [[0.5, 0.5, 0]])
    assert_close(cache.lse, [-1e12 + np.log(2)])


@pytest.mark.parametrize("far", [1e3, 1e8, -1e8])
def test_large_scores_do_not_overflow(far):
    weights, cache = softmax_forward(np.array([[far, far - 1, -np.inf]]))
    assert_close(weights, [[1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0]])
    assert np.isfinite(cache.lse).all()


def test_a_masked_cell_is_exactly_0_and_the_rest_a_softmax_of_their_own(rng):
    scores = rng.normal(size=(2, 4))
    mask = np.array([[True, False, True, True], [False, False, True, False]])
    weights, cache = softmax_forward(scores, mask=mask)
    assert (weights[~mask] == 0).all()
    assert_close(weights[0, mask[0]], softmax_forward(scores[0, mask[0]])[0])
    assert weights[1, 2] == 1
    d_scores = softmax_backward(rng.normal(size=(2, 4)), cache).d_scores
    assert (d_scores[~mask] == 0).all()


def test_a_row_that_sees_nothing_is_0_and_lse_minus_inf():
    weights, cache = softmax_forward(np.ones((2, 3)), mask=np.array([[True] * 3, [False] * 3]))
    assert_close(weights, [[1 / 3] * 3, [0] * 3])
    assert cache.lse[1] == -np.inf
    assert (softmax_backward(np.ones((2, 3)), cache).d_scores[1] == 0).all()


def test_nan_stays_in_its_row_and_out_of_hidden_cells():
    scores = np.array([[np.nan, 1.0, 2.0], [1.0, 2.0, np.nan], [1.0, 2.0, 3.0]])
    mask = np.array([[True, True, False], [True, True, False], [True, True, True]])
    weights, cache = softmax_forward(scores, mask=mask)
    assert np.isnan(weights[0, :2]).all()
    assert (weights[:2, 2] == 0).all()
    assert np.isfinite(weights[1:]).all()
    d_weights = np.array([[1.0, 2.0, np.nan], [1.0, 2.0, np.nan], [1.0, 2.0, 3.0]])
    d_scores = softmax_backward(d_weights, cache).d_scores
    assert (d_scores[:2, 2] == 0).all()
    assert np.isfinite(d_scores[1:]).all()


@pytest.mark.parametrize("shape", [(0,), (5, 0), (0, 7), (2, 0, 3), (2, 3, 4, 0)])
def test_empty_axes(shape):
    weights, cache = softmax_forward(np.zeros(shape))
    assert weights.shape == shape
    assert (cache.lse == -np.inf).all()
    assert softmax_backward(np.zeros(shape), cache).d_scores.shape == shape


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtype_is_kept(rng, dtype):
    scores = rng.normal(size=(3, 5))
    weights, cache = softmax_forward(scores.astype(dtype))
    d_scores = softmax_backward(np.ones((3, 5), dtype), cache).d_scores
    assert weights.dtype == d_scores.dtype == dtype
    other = np.float32 if dtype is np.float64 else np.float64
    assert softmax_backward(np.ones((3, 5), other), cache).d_scores.dtype == dtype
    assert_close(weights, softmax_forward(scores)[0], np.dtype(dtype).name)


def test_float16_computes_in_float32():
    # in float16 the sum of 4096 equal powers stops growing at 2048
    weights, cache = softmax_forward(np.zeros((1, 4096), np.float16))
    assert cache.lse.dtype == np.float32
    assert_close(cache.lse, [np.log(4096)], "float32")
    assert weights[0, 0] == np.float16(1 / 4096)
