import math

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from mha_numpy.kernels.normal import normal_share  # noqa: E402

pytestmark = pytest.mark.kernel


@numba.njit
def each(x, out):
    for i in range(len(x)):
        out[i] = normal_share(x[i])


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1.5e-7), (np.float64, 1e-15)])
def test_the_share_below_every_x(dtype, tolerance):
    x = np.concatenate([np.linspace(-12, 12, 4801), [-1e-30, 0, 1e-30, 1e30, -1e30]]).astype(dtype)
    expected = [math.erfc(-float(number) / math.sqrt(2)) / 2 for number in x]
    out = np.empty_like(x)
    each(x, out)
    np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance)
    tail = (x < 0) & (x > -8)
    relative = np.abs(out[tail] / np.array(expected)[tail] - 1)
    assert relative.max() < 100 * tolerance  # z^2, up to 32, is rounded


def test_infinities_and_what_is_no_number():
    x, out = np.array([np.inf, -np.inf, np.nan]), np.empty(3)
    each(x, out)
    np.testing.assert_array_equal(out, [1, 0, np.nan])
