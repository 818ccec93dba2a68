"""Values computed by hand; tests/layers/test_every_pair.py has what holds for all pairs."""

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
