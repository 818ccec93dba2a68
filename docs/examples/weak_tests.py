"""Tests as many courses have them: one head, as many features as tokens, no mask, loss = sum."""

import numpy as np


def test_weights_sum_to_one(softmax):
    scores = np.random.default_rng(0).normal(size=(1, 1, 4, 4))
    assert np.allclose(softmax(scores, None).sum(axis=-1), 1)


def test_shape(attention):
    q, k, v = np.random.default_rng(0).normal(size=(3, 4, 4))
    assert attention(q, k, v).shape == (4, 4)


def test_gradients(attention_backward):
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 1, 4, 4))

    def weights(q, k):
        e = np.exp(q @ k.swapaxes(-1, -2) / 2)
        return e / e.sum(axis=-1, keepdims=True)

    d_q, d_k, d_v = attention_backward(np.ones((1, 1, 4, 4)), q, k, v, weights(q, k))
    for d_x, moved in ((d_q, (1, 0, 0)), (d_k, (0, 1, 0)), (d_v, (0, 0, 1))):
        up, down = (
            [x + sign * 1e-5 * is_moved for x, is_moved in zip((q, k, v), moved, strict=True)]
            for sign in (1, -1)
        )
        losses = [(weights(q, k) @ v).sum() for q, k, v in (up, down)]
        assert np.isclose(d_x.sum(), (losses[0] - losses[1]) / 2e-5, atol=1e-6)
