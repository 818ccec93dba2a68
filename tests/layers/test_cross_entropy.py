import math

import numpy as np
import pytest

from mha_numpy.layers import cross_entropy_backward, cross_entropy_forward, cross_entropy_jvp
from tests.compare import assert_close

IGNORED = -100


def both(logits, targets, d_loss=1.0, **options):
    """Return the loss and the gradient of the logits."""
    loss, cache = cross_entropy_forward(logits, targets, **options)
    d_loss = np.broadcast_to(np.asarray(d_loss, logits.dtype), loss.shape)
    return loss, cross_entropy_backward(d_loss, cache).d_logits


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_huge_logits(dtype):
    huge = float(np.finfo(dtype).max) / 4
    logits = np.array([[0, huge, -huge], [-huge, huge, 0]], dtype)
    loss, d_logits = both(logits, np.array([1, 2]), reduction="none")
    assert_close(loss, [0, huge], "float16")
    assert_close(d_logits, [[0, 0, 0], [0, 1, -1]], "exact")


def test_an_entry_that_is_ruled_out():
    logits = np.array([[0.0, -np.inf, 0.0], [0.0, -np.inf, 0.0]])
    loss, d_logits = both(logits, np.array([0, 1]), reduction="none")
    assert_close(loss, [math.log(2), np.inf])
    assert_close(d_logits, [[-0.5, 0, 0.5], [0.5, -1, 0.5]])
    _, cache = cross_entropy_forward(logits[:1], np.array([0]))
    assert_close(cross_entropy_jvp(np.array([[1, np.nan, 0]]), cache), -0.5)


def test_the_same_shift_of_all_logits_changes_nothing(rng):
    logits, targets = rng.normal(size=(5, 7)), rng.integers(0, 7, 5)
    loss, d_logits = both(logits, targets, label_smoothing=0.2)
    again, d_again = both(logits + 50 * rng.normal(size=(5, 1)), targets, label_smoothing=0.2)
    assert_close(again, loss, "framework")
    assert_close(d_again, d_logits, "framework")
    assert_close(d_logits.sum(axis=-1), np.zeros(5))


@pytest.mark.parametrize("ignored", [IGNORED, 3, 0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ignored_tokens_are_as_if_absent(rng, ignored, reduction):
    logits, targets = rng.normal(size=(6, 4)), np.array([1, ignored, 2, 1, ignored, 2])
    logits[1] = np.nan  # whatever stands there
    rest = targets != ignored
    options = {"reduction": reduction, "label_smoothing": 0.1}
    loss, d_logits = both(logits, targets, 2.0, ignore_index=ignored, **options)
    expected, d_expected = both(logits[rest], targets[rest], 2.0, **options)
    assert_close(loss[rest] if reduction == "none" else loss, expected)
    assert_close(d_logits[rest], d_expected)
    assert_close(d_logits[~rest], np.zeros((2, 4)), "exact")
    if reduction == "none":
        assert_close(loss[~rest], [0, 0], "exact")


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_where_all_are_ignored_the_loss_is_zero(rng, reduction):
    logits, targets = rng.normal(size=(2, 3, 4)), np.full((2, 3), IGNORED)
    loss, d_logits = both(logits, targets, ignore_index=IGNORED, reduction=reduction)
    assert str(loss) == "0.0"  # not -0.0
    assert_close(d_logits, np.zeros((2, 3, 4)), "exact")


def test_smoothing_mixes_the_target_with_all(rng):
    logits, targets, V = rng.normal(size=(5, 7)), rng.integers(0, 7, 5), 7
    of_each = [both(logits, np.full(5, v))[0] for v in range(V)]
    hard, _ = both(logits, targets)
    smooth, _ = both(logits, targets, label_smoothing=0.3)
    assert_close(smooth, 0.7 * hard + 0.3 * np.mean(of_each))
    uniform, d_logits = both(np.zeros((1, V)), targets[:1], label_smoothing=1.0)
    assert_close(uniform, math.log(V))
    assert_close(d_logits, np.zeros((1, V)))
