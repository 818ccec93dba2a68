"""Layouts: arrays in another order of axes, and the order of an array that was seen."""

import numpy as np
import pytest

from mha_numpy.identifying.calling.layouts import arrange, find_orders, in_order, layout_of
from mha_numpy.identifying.family import Sizes

SIZES = Sizes(B=2, H=3, G=3, T=4, S=5, d=2, e=2)


@pytest.mark.parametrize(
    ("axes", "layout", "made"),
    [
        ("B T M", "B H T d", lambda x: x.reshape(2, 4, 3, 2).swapaxes(1, 2)),
        ("B T M", "T B M", lambda x: x.swapaxes(0, 1)),
        ("B T M", "M T", lambda x: x[0].T),
        ("B T M", "B 1 T M", lambda x: x[:, None]),
    ],
)
def test_arrange(axes, layout, made, rng):
    x = rng.normal(size=(2, 4, 6))
    np.testing.assert_array_equal(arrange(x, axes, layout, SIZES), made(x))


def test_arrange_repeats_cosines_for_both_features_of_a_pair():
    cos = np.array([[1.0, 2.0]])
    assert arrange(cos, "T F", "T FF", SIZES).tolist() == [[1, 2, 1, 2]]
    assert arrange(cos, "T F", "T ff", SIZES).tolist() == [[1, 1, 2, 2]]


def test_find_orders_of_different_lengths():
    assert find_orders((2, 3, 4), (4, 2, 3)) == ((2, 0, 1),)
    assert find_orders((2, 3, 4), (4, 2, 5)) == ()


def test_find_orders_of_equal_lengths_are_all():
    assert find_orders((3, 3), (3, 3)) == ((0, 1), (1, 0))


def test_axes_of_length_1_may_come_and_go():
    (order,) = find_orders((1, 3, 4), (4, 1, 3))
    assert order == (2, 1)
    x = np.arange(12).reshape(1, 3, 4)
    np.testing.assert_array_equal(in_order(x, order, (4, 1, 3)), x[0].T[:, None])
    assert layout_of("lse", order, (4, 1, 3)) == "T 1 H"
