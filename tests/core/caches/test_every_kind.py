"""Every kind of KV cache does what `KVCache` does, and none changes if something fails."""

import numpy as np
import pytest

from mha_numpy import (
    BlockPool,
    Int8KVCache,
    KVCache,
    PagedKVCache,
    RollingKVCache,
    RopeOptions,
    causal_mask,
    multi_head_attention_decode,
    multi_head_attention_forward,
    trace,
)
from mha_numpy.core import dequantise, quantise
from mha_numpy.errors import ConfigError, DTypeError, MaskError, ShapeError
from tests.checking.tracing.whole import assert_equations_hold
from tests.compare import Tolerance, assert_close
from tests.core.test_multihead import square_params

KINDS = {
    "whole": KVCache,
    "rolling": lambda: RollingKVCache(window=60, sinks=3),
    "paged": lambda: PagedKVCache(BlockPool(150, block_size=3)),
    "int8": Int8KVCache,
}
INT8 = Tolerance(0.01, 0.01)  # test_int8 has the bound
each_kind = pytest.mark.parametrize("kind", KINDS)


def append_and_fail(kv_cache, B):
    with kv_cache.unchanged_on_error():
        kv_cache.append(np.ones((B, 3, 4, 4)), np.ones((B, 3, 4, 5)))
        raise ZeroDivisionError


def rounded(x):
    return dequantise(*quantise(x), x.dtype)


@each_kind
@pytest.mark.parametrize("seed", range(4))
def test_any_operations_leave_what_they_leave_in_a_kv_cache(kind, seed):
    rng, kv_cache, expected = np.random.default_rng(seed), KINDS[kind](), KVCache()
    stored = rounded if kind == "int8" else lambda x: x
    done = set()
    for _ in range(60):
        B, T = (kv_cache.held[0].shape[0] if kv_cache.held else 2), kv_cache.length
        action = rng.choice(["append", "append", "truncate", "select", "keep", "fail", "refuse"])
        if action == "append" and T < 40 and (B or not kv_cache.held):
            new = rng.integers(6)
            k, v = rng.normal(size=(B, 3, new, 4)), rng.normal(size=(B, 3, new, 5))
            found = kv_cache.append(k, v)
            for part, whole in zip(found, expected.append(stored(k), stored(v)), strict=True):
                assert_close(part, whole, "exact")
                assert not part.flags.writeable
        elif action == "truncate":
            length = T - rng.integers(min(T, 4) + 1)
            kv_cache.truncate(length)
            expected.truncate(length)
        elif action == "select" and kv_cache.held:
            rows = rng.integers(B, size=rng.integers(1, 4))
            kv_cache.select(rows)
            expected.select(rows)
        elif action == "keep":
            tokens = np.flatnonzero(rng.random(T) < 0.9)
            kv_cache.keep(tokens)
            expected.keep(tokens)
        elif action == "fail" and kv_cache.held:
            with pytest.raises(ZeroDivisionError):
                append_and_fail(kv_cache, B)
        elif action == "refuse" and kv_cache.held:
            with pytest.raises(ShapeError, match="^v: expected"):
                kv_cache.append(np.ones((B, 3, 1, 4)), np.ones((B, 3, 1, 6)))
        else:
            continue
        done.add(action)
        assert kv_cache.length == expected.length
        for part, whole in zip(kv_cache.held, expected.held, strict=True):
            assert_close(part, whole, "exact")
    assert len(done) == 6


@each_kind
@pytest.mark.parametrize("pieces", [[1] * 7, [4, 0, 3]])
@pytest.mark.parametrize("rope", [None, RopeOptions(interleaved=True, rotary_dim=2)])
def test_decode_equals_the_full_forward_and_its_equations_hold(rng, kind, pieces, rope):
    options = {"params": square_params(rng, 16, 8), "num_heads": 4, "num_kv_heads": 2}
    options |= {"rope": rope, "extra_k": np.ones((1, 8)), "extra_v": np.ones((1, 8))}
    x = rng.normal(size=(3, 7, 16))
    expected, _ = multi_head_attention_forward(x, is_causal=True, window=(4, 0), **options)
    kv_cache, first = KINDS[kind](), 0
    for T in pieces:
        with trace() as t:
            out, _ = multi_head_attention_decode(
                x[:, first : first + T], kv_cache=kv_cache, is_causal=True, window=(4, 0), **options
            )
        if T:
            assert_equations_hold(t)
        first += T
        assert_close(out, expected[:, first - T : first], INT8 if kind == "int8" else "float64")
    assert kv_cache.length == 7
    with pytest.raises(MaskError):
        multi_head_attention_decode(x[:, :1], kv_cache=kv_cache, mask=causal_mask(6), **options)
    assert kv_cache.length == 7


@each_kind
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtypes_and_empty_axes(kind, dtype):
    for B, T in ((0, 2), (2, 0)):
        kv_cache = KINDS[kind]()
        assert (kv_cache.held, kv_cache.length, kv_cache.nbytes) == ([], 0, 0)
        kv_cache.truncate(0)
        kv_cache.keep([])
        assert repr(kv_cache).endswith("KVCache(empty)")
        k, v = kv_cache.append(np.ones((B, 3, T, 4), dtype), np.ones((B, 3, T, 5), dtype))
        assert (k.shape, v.shape, k.dtype, v.dtype) == ((B, 3, T, 4), (B, 3, T, 5), dtype, dtype)
        k, _ = kv_cache.append(np.ones((B, 3, 1, 4), dtype), np.ones((B, 3, 1, 5), dtype))
        assert (k.shape, k.dtype) == ((B, 3, T + 1, 4), dtype)
        assert repr(kv_cache).startswith(f"{type(kv_cache).__name__}(k {k.shape}, v ")
    narrow, wide = np.ones((2, 3, 1, 4), np.float32), np.full((2, 3, 1, 4), 1 + 1e-9)
    kv_cache = KINDS[kind]()
    kv_cache.append(narrow, narrow)
    if kind == "paged":
        with pytest.raises(DTypeError, match="^k: expected float32, as the pool has; got float64"):
            kv_cache.append(wide, narrow)
        return
    k, v = kv_cache.append(wide, narrow)
    assert (k.dtype, v.dtype, k[0, 0, 1, 0]) == (np.float64, np.float32, 1 + 1e-9)


@each_kind
def test_wrong_input(kind):
    kv_cache = KINDS[kind]()
    kv_cache.append(np.ones((2, 3, 5, 4)), np.ones((2, 3, 5, 4)))
    new = np.ones((2, 3, 1, 4))
    for call, error, message in (
        (lambda: kv_cache.append(new.astype(int), new), DTypeError, "k: expected a float array"),
        (lambda: kv_cache.append(new[:1], new), ShapeError, r"k: expected \(B=2, H_kv=3, T, d_k=4"),
        (lambda: kv_cache.append(new, new[0]), ShapeError, "v: expected"),
        (lambda: kv_cache.truncate(6), ConfigError, "length: expected at most 5"),
        (lambda: kv_cache.truncate(-1), ConfigError, "length: expected"),
        (lambda: kv_cache.select([2]), ConfigError, "rows: expected integers from 0 to 1"),
        (lambda: kv_cache.select([[0]]), ConfigError, "rows: expected integers from 0 to 1"),
        (lambda: kv_cache.keep([5]), ConfigError, "tokens: expected integers from 0 to 4"),
        (
            lambda: kv_cache.keep([0.0]),
            ConfigError,
            "tokens: expected integers, one for each token",
        ),
    ):
        with pytest.raises(error, match=f"^{message}"):
            call()
        assert (kv_cache.length, len(kv_cache.held[0])) == (5, 2)
