"""Dropout in JAX: keys as arguments, and functions that are compiled."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from tests.identifying.test_dropout import SCALED, facts  # noqa: E402


@jax.jit
def attend(q, k, v, key, rate=0.1):
    w = jax.nn.softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
    keep = jax.random.bernoulli(key, 1 - rate, w.shape)
    return jax.numpy.where(keep, w / (1 - rate), 0) @ v


@pytest.mark.slow
def test_what_is_dropped():
    expected = [
        ("dropout_when", "with a rate"),
        ("dropout", "weights"),
        ("dropout_rate", "rate", "rate"),
    ]
    assert facts(attend) == [*expected, SCALED]
    shapes = ((3, 4, 5, 8), (3, 4, 7, 8), (3, 4, 7, 10))  # as identify calls it
    given = [np.random.default_rng(0).normal(size=shape) for shape in shapes]
    one, two = (attend(*given, jax.random.PRNGKey(seed), 0.5) for seed in (0, 1))
    assert (one != two).any()  # no trace without dropout is left
