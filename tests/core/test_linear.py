import numpy as np
import pytest

from mha_numpy.core import linear_backward, linear_forward
from tests.compare import assert_close

pytestmark = pytest.mark.usefixtures("backend")


def test_hand_computed_values():
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    w = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 3.0]])
    out, cache = linear_forward(x, w, np.array([10.0, 20.0, 30.0]))
    assert_close(out, [[11, 22, 38], [13, 24, 48]])
    d_x, d_w, d_b = linear_backward(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), cache)
    assert_close(d_x, [[1, 0], [2, 3]])
    assert_close(d_w, [[1, 0, 3], [2, 0, 4]])
    assert_close(d_b, [1, 0, 1])


def test_params_collect_from_every_token_of_every_sequence(rng):
    x, w, d_out = rng.normal(size=(4, 5, 3)), rng.normal(size=(3, 2)), rng.normal(size=(4, 5, 2))
    _, cache = linear_forward(x, w, np.zeros(2))
    _, d_w, d_b = linear_backward(d_out, cache)
    assert_close(d_w, sum(np.outer(x[b, t], d_out[b, t]) for b in range(4) for t in range(5)))
    assert_close(d_b, sum(d_out[b, t] for b in range(4) for t in range(5)))


def test_without_bias(rng):
    out, cache = linear_forward(rng.normal(size=(5, 3)), rng.normal(size=(3, 2)))
    assert linear_backward(np.ones_like(out), cache).d_b is None


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (2, 4, 5, 3), (0, 3), (2, 0, 3)])
def test_any_leading_axes(rng, shape):
    out, cache = linear_forward(rng.normal(size=shape), rng.normal(size=(3, 2)), np.ones(2))
    assert out.shape == (*shape[:-1], 2)
    d_x, d_w, d_b = linear_backward(out, cache)
    assert (d_x.shape, d_w.shape, d_b.shape) == (shape, (3, 2), (2,))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtype_is_kept(rng, dtype):
    x, w, b = (rng.normal(size=s).astype(dtype) for s in [(5, 3), (3, 2), (2,)])
    out, cache = linear_forward(x, w, b)
    assert {g.dtype for g in (out, *linear_backward(out, cache))} == {np.dtype(dtype)}


def test_mixed_floats_promote():
    out, cache = linear_forward(np.ones((5, 3), np.float32), np.ones((3, 2)))
    assert out.dtype == linear_backward(out, cache).d_x.dtype == np.float64
