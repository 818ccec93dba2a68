"""Tests that no known mistake passes: sizes all different and a square, masks, random gradients."""

import numpy as np
import pytest

rng = np.random.default_rng(0)
SIZES = [(5, 7, 4, 3), (6, 6, 6, 6)]  # T_q, T_k, d_k, d_v


def plain_softmax(row, seen):
    """Turn the scores of one query into weights."""
    if not seen.any():
        return np.zeros_like(row)
    e = np.exp(np.where(seen, row - row[seen].max(), -np.inf))
    return e / e.sum()


@pytest.mark.parametrize("size", [1, 300])
@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (5, 5)])
def test_softmax(softmax, shape, size):
    scores = size * rng.normal(size=shape)
    scores[..., 1, :] -= 20 * size
    mask = rng.random(shape) < 0.7
    mask[..., 0, :] = False
    scores[~mask] += 20 * size
    for seen, given in ((mask, mask), (np.ones_like(mask), None)):
        weights = softmax(scores, given)
        for at in np.ndindex(shape[:-1]):
            assert np.allclose(weights[at], plain_softmax(scores[at], seen[at]), atol=1e-12)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("size", [1, 300])
def test_attention(attention, sizes, size):
    T_q, T_k, d_k, d_v = sizes
    q, k, v = (
        size * rng.normal(size=(T_q, d_k)),
        rng.normal(size=(T_k, d_k)),
        rng.normal(size=(T_k, d_v)),
    )
    seen = np.ones(T_k, dtype=bool)
    below = -1e3 * np.abs(q), np.abs(k)  # whose scores are all far below 0
    for queries, keys in ((q, k), below):
        scores = queries @ keys.T / np.sqrt(d_k)
        expected = [plain_softmax(row, seen) @ v for row in scores]
        assert np.allclose(attention(queries, keys, v), expected, atol=1e-12)


def heads_of(q, k, v, seen):
    """Attend, and return the weights too."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    e = np.where(seen, np.exp(scores), 0)
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ v, weights


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_attention_backward(attention_backward, sizes, name):
    T_q, T_k, d_k, d_v = sizes
    shapes = {"q": (2, 3, T_q, d_k), "k": (2, 3, T_k, d_k), "v": (2, 3, T_k, d_v)}
    given = {of: rng.normal(size=shape) for of, shape in shapes.items()}
    seen = np.tri(T_q, T_k, dtype=bool)
    heads, weights = heads_of(**given, seen=seen)
    d_heads = rng.normal(size=heads.shape)
    grads = dict(zip("qkv", attention_backward(d_heads, **given, weights=weights), strict=True))
    step = 1e-20  # of a complex step: exact to the last digits
    for at in np.ndindex(1, 2, *shapes[name][2:]):
        moved = given[name].astype(complex)
        moved[at] += 1j * step
        slope = (d_heads * heads_of(**{**given, name: moved}, seen=seen)[0].imag).sum() / step
        assert np.isclose(grads[name][at], slope, rtol=1e-10, atol=1e-12)
