import numpy as np
import pytest

from mha_numpy import Int8KVCache, attention_forward, attention_stages
from mha_numpy.core import dequantise, int8_bounds, quantise
from mha_numpy.errors import ConfigError, DTypeError
from tests.compare import Tolerance, assert_close


def test_by_hand():
    x = np.array([[2.54, -0.01, 0.029], [0, 0, 0], [-6.35, 0.024, 0.026]])
    x_int8, scale = quantise(x)
    assert x_int8.tolist() == [[127, 0, 1], [0, 0, 0], [-127, 0, 1]]
    assert_close(scale, [[0.02], [0], [0.05]])
    assert_close(dequantise(x_int8, scale), [[2.54, 0, 0.02], [0, 0, 0], [-6.35, 0, 0.05]])
    per_channel, scale = quantise(x, axis=-2)
    assert per_channel.tolist() == [[51, -53, 127], [0, 0, 0], [-127, 127, 114]]
    assert_close(scale, [[0.05, 0.024 / 127, 0.029 / 127]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_no_number_is_off_by_more_than_half_a_step(rng, dtype):
    x = (rng.normal(size=(3, 2, 50, 16)) * 10 ** rng.uniform(-4, 4, (3, 2, 50, 1))).astype(dtype)
    x_int8, scale = quantise(x)
    assert scale.dtype == (np.float64 if dtype == np.float64 else np.float32)
    off = np.abs(dequantise(x_int8, scale).astype(np.float64) - x)
    rounding = np.finfo(scale.dtype).eps * np.abs(x.astype(np.float64))
    assert (off <= scale / 2 + rounding).all()
    assert (off / scale).max() > 0.45
    assert np.abs(x_int8).max(axis=-1).min() == 127
    k, _ = Int8KVCache().append(x, x)
    assert_close(k, dequantise(x_int8, scale, dtype), "exact")


def test_bytes_are_those_of_the_integers_and_their_scales(rng):
    kv_cache = Int8KVCache()
    kv_cache.append(rng.normal(size=(2, 3, 7, 64)), rng.normal(size=(2, 3, 7, 32)))
    assert kv_cache.nbytes == 2 * 3 * 7 * (64 + 32 + 2 * 8)
    narrow = rng.normal(size=(2, 3, 7, 64)).astype(np.float16)
    kv_cache = Int8KVCache()
    kv_cache.append(narrow, narrow)
    assert kv_cache.nbytes == 2 * 3 * 7 * 2 * (64 + 4)


def test_nan_and_inf_reach_their_own_token_only(rng):
    k, v = rng.normal(size=(2, 1, 2, 4, 8))
    k[0, 0, 1, 3], v[0, 1, 2, 0] = np.nan, -np.inf
    read = Int8KVCache().append(k, v)
    for part, (head, token) in zip(read, ((0, 1), (1, 2)), strict=True):
        odd = np.isnan(part).all(axis=-1)
        assert np.argwhere(odd).tolist() == [[0, head, token]]
        assert np.isfinite(part[~odd]).all()


@pytest.mark.parametrize("size", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("options", [{}, {"is_causal": True, "softcap": 2.0}, {"scale": -0.5}])
def test_the_error_is_within_its_bound_and_the_bound_is_near(rng, size, options):
    q, k, v = size * rng.normal(size=(3, 6, 40, 32)), *rng.normal(size=(2, 3, 2, 40, 32))
    _, exact = attention_forward(q, k, v, **options)
    _, rounded = attention_forward(q, *Int8KVCache().append(k, v), **options)
    bounds = int8_bounds(exact)
    pairs = {
        "scores": [attention_stages(cache).scores for cache in (exact, rounded)],
        "weights": (exact.weights, rounded.weights),
        "heads": (exact.heads, rounded.heads),
    }
    for name, (a, b) in pairs.items():
        bound, off = getattr(bounds, name), np.abs(a - b)
        assert (off <= bound + 1e-14).all(), name
        seen = bound > 1e-12
        assert bound.max() < 30 * off.max(), name
        assert bound[seen].mean() < 100 * off[seen].mean(), name


def test_the_bound_is_reached():
    """One channel: all keys are off by half a step, the worst for a weight."""
    k = np.array([[127.0, 0.5 - 1e-9], [127.0, 0.5 + 1e-9]])[None, None]  # 0 and 1 after rounding
    q, v = np.array([[[[0.0, 1.0]]]]), np.array([[[[127.0], [-127.0]]]])
    _, exact = attention_forward(q, k, v, scale=1.0)
    _, rounded = attention_forward(q, *Int8KVCache().append(k, v), scale=1.0)
    bounds = int8_bounds(exact)
    assert_close(bounds.scores, [[[[0.5, 0.5]]]])
    assert_close(bounds.weights, np.abs(rounded.weights - exact.weights), Tolerance(0, 1e-8))
    off = np.abs(rounded.heads - exact.heads)
    assert 0.4 < (off / bounds.heads).max() <= 1


def test_a_row_that_sees_nothing_has_no_error(rng):
    q, k, v = rng.normal(size=(3, 1, 2, 3, 4))
    _, cache = attention_forward(q, k, v, mask=np.arange(3)[:, None] > np.arange(3))
    bounds = int8_bounds(cache)
    assert not bounds.weights[:, :, 0].any()
    assert not bounds.heads[:, :, 0].any()


def test_wrong_input(rng):
    x = rng.normal(size=(3, 4))
    for call, error, message in (
        (lambda: quantise(x.astype(int)), DTypeError, "x: expected a float array"),
        (lambda: quantise(x, axis=2), ConfigError, r"axis: expected one of x \(3, 4\); got 2"),
        (lambda: dequantise(x, x), DTypeError, "x_int8: expected an int8 array"),
        (lambda: int8_bounds(x), ConfigError, "cache: expected the AttentionCache"),
        (lambda: int8_bounds(attention_forward(x, x, x)[1]), ConfigError, "cache: .* at rank 4"),
    ):
        with pytest.raises(error, match=f"^{message}"):
            call()
