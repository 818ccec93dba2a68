"""An answer to the exercise break-my-attention: tests that catch every known mistake."""

import numpy as np


def catch_all(attention):
    """Ask for properties and for a few numbers that can be found by hand."""
    # by hand, d_k = 4: scores (0, log 3) for key head 0, so weights 1/4 and 3/4; equal for head 1
    q = np.zeros((1, 4, 3, 4))
    k, v = np.zeros((1, 2, 2, 4)), np.array([[[[0.0], [4.0]], [[10.0], [20.0]]]])
    q[..., 0], k[0, 0, 1, 0] = 2.0, np.log(3)
    visible = np.ones((1, 1, 3, 2), dtype=bool)
    by_hand = np.array([3.0, 3.0, 15.0, 15.0])[:, None, None]  # heads 0 and 1 read key head 0
    np.testing.assert_allclose(attention(q, k, v, visible, None)[0], by_hand + np.zeros((3, 1)))
    # capped to log 3 halfway up the tanh: c tanh(s / c) = c / 2 where s / c = log(3) / 2
    cap = 2 * np.log(3)
    capped = attention(q * np.log(3), k, v, visible, cap)[0]
    np.testing.assert_allclose(capped, by_hand + np.zeros((3, 1)))
    # large scores: the larger one wins, the smaller where query 1 is negative, or 2 does not see
    q[:, :, 1], k[..., 0], visible[..., 2, 1] = -q[:, :, 0], [1.0, 2.0], False
    large = attention(1e4 * q, k, v, visible, None)[0, :, :, 0]
    np.testing.assert_allclose(large, np.repeat([[4, 0, 0], [20, 10, 10]], 2, axis=0))

    rng = np.random.default_rng(0)
    for T_q, T_k, softcap in ((4, 6, None), (5, 5, 3.0)):
        q, k = rng.normal(size=(3, 4, T_q, 5)), rng.normal(size=(3, 2, T_k, 5))
        mask = rng.random((3, 1, T_q, T_k)) < 0.6
        mask[..., 0], mask[0, :, 1] = True, False  # query 1 of sequence 0 sees nothing
        # values that are unit vectors: the heads are the weights
        weights = attention(q, k, np.broadcast_to(np.eye(T_k), (3, 2, T_k, T_k)), mask, softcap)
        assert (np.where(mask, 0, weights) == 0).all(), "a hidden key has a weight"
        sees_any = np.broadcast_to(mask.any(axis=-1), weights.shape[:-1])
        np.testing.assert_allclose(weights.sum(axis=-1), sees_any, atol=1e-12)
        # keys and values in another order
        order = rng.permutation(T_k)
        v = rng.normal(size=(3, 2, T_k, 2))
        heads = attention(q, k, v, mask, softcap)
        shuffled = attention(q, k[:, :, order], v[:, :, order], mask[..., order], softcap)
        np.testing.assert_allclose(shuffled, heads, atol=1e-12)
        np.testing.assert_allclose(weights @ np.repeat(v, 2, axis=1), heads, atol=1e-12)
