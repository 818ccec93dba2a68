"""What the pairs around attention put on record is computed anew from what is on record."""

import numpy as np
import pytest

from mha_numpy.checking.tracing import trace
from tests.checking.tracing.whole import assert_equations_hold, assert_whole
from tests.layers.pairs import PAIRS
from tests.layers.test_every_pair import arrays

RECORDED = [name for name in PAIRS if "linear" not in name]  # whoever calls it records it
RANKS = [(), (4,), (2, 3), (2, 1, 3), (1, 2, 1, 3)]


@pytest.mark.parametrize(
    ("name", "tokens"),
    [(name, tokens) for name in RECORDED for tokens in RANKS[PAIRS[name].least_rank :]],
)
def test_equations_hold(name, tokens, rng):
    forward, inputs = PAIRS[name].ready(rng, tokens)
    with trace() as t:
        out, cache = forward(**inputs)
        d_out = np.asarray(rng.normal(size=out.shape))
        grads = PAIRS[name].backward(d_out, cache)
    given = [*arrays(inputs).values(), *forward.keywords.values(), d_out]
    assert_whole(t, given)
    # the output and every gradient stand there, under their names
    assert any(s.array.shape == out.shape and np.array_equal(s.array, out) for s in t)
    for name, gradient in arrays(grads).items():
        assert np.array_equal(t[f"d_{name.rpartition('.')[2]}"], gradient)


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (2, 1, 4)])
def test_a_dropout_mask_that_is_stretched(shape, rng):
    x, dropout_mask = rng.normal(size=(2, 3, 4)), rng.normal(size=shape)
    with trace() as t:
        PAIRS["dropout"].forward(x, dropout_mask)
    assert_equations_hold(t)
    (constant,) = t.constants
    assert len(constant.axes.split()) == len(shape)
