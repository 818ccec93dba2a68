import numpy as np
import pytest

from mha_numpy import merge_heads, split_heads
from mha_numpy.checks import check_shape
from mha_numpy.core.shapes import sum_to_shape
from mha_numpy.errors import ShapeError
from tests.compare import assert_close


def test_head_h_holds_its_own_columns_of_every_token():
    B, T, H, d = 2, 3, 4, 5
    ramp = np.arange(B * T * H * d, dtype=float).reshape(B, T, H * d)
    heads = split_heads(ramp, H)
    assert heads.shape == (B, H, T, d)
    for h in range(H):
        assert_close(heads[:, h], ramp[:, :, h * d : (h + 1) * d], "exact")
    # reshape alone has the same shape and other content
    assert not np.array_equal(heads, ramp.reshape(B, H, T, d))


def test_split_is_a_view_and_merge_its_inverse(rng):
    x = rng.normal(size=(2, 3, 20))
    assert np.shares_memory(split_heads(x, 4), x)
    assert_close(merge_heads(split_heads(x, 4)), x, "exact")


def test_split_and_merge_are_each_others_backward(rng):
    # <split(x), y> = <x, merge(y)> for all x, y: the transposed linear map
    x, y = rng.normal(size=(2, 3, 20)), rng.normal(size=(2, 4, 3, 5))
    assert_close((split_heads(x, 4) * y).sum(), (x * merge_heads(y)).sum())


@pytest.mark.parametrize("shape", [(0, 3, 8), (2, 0, 8), (2, 3, 0)])
def test_empty_axes(shape):
    assert merge_heads(split_heads(np.zeros(shape), 4)).shape == shape


@pytest.mark.parametrize(
    "shape", [(5,), (1, 5), (4, 1), (1, 1), (3, 1, 5), (1, 4, 5), (3, 4, 5), ()]
)
def test_sum_to_shape_is_the_transpose_of_broadcasting(rng, shape):
    small, d_big = rng.normal(size=shape), rng.normal(size=(3, 4, 5))
    expected = (np.broadcast_to(small, (3, 4, 5)) * d_big).sum()
    assert_close((small * sum_to_shape(d_big, shape)).sum(), expected)
    assert sum_to_shape(d_big, shape).shape == shape


def test_check_shape_learns_sizes_and_checks_products():
    sizes = {}
    check_shape("q", np.zeros((2, 8, 10, 64)), "B H T_q d_k", sizes)
    check_shape("merged", np.zeros((2, 10, 512)), "B T_q H*d_k", sizes)
    assert sizes == {"B": 2, "H": 8, "T_q": 10, "d_k": 64}
    with pytest.raises(ShapeError) as error:
        check_shape(
            "k", np.zeros((2, 8, 10, 32)), "B H_kv T_k d_k", sizes, to_match="q (2, 8, 10, 64)"
        )
    assert str(error.value) == (
        "k: expected (B=2, H_kv, T_k, d_k=64) to match q (2, 8, 10, 64); got (2, 8, 10, 32)"
    )
    with pytest.raises(ShapeError, match=r"expected \(B=2, T_q=10, H\*d_k=512\)"):
        check_shape("merged", np.zeros((2, 10, 511)), "B T_q H*d_k", sizes)
