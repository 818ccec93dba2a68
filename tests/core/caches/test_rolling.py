import numpy as np
import pytest

from mha_numpy import (
    KVCache,
    RollingKVCache,
    RopeOptions,
    multi_head_attention_decode,
    multi_head_attention_forward,
    trace,
)
from mha_numpy.errors import ConfigError
from tests.checking.tracing.whole import assert_equations_hold
from tests.compare import assert_close
from tests.core.test_multihead import square_params

T = 13


def decode(x, kv_cache, **options):
    """Return the outputs of one token after another."""
    outs = [
        multi_head_attention_decode(x[:, i : i + 1], kv_cache=kv_cache, is_causal=True, **options)[
            0
        ]
        for i in range(x.shape[1])
    ]
    return np.concatenate(outs, axis=1)


@pytest.fixture
def options(rng):
    params = square_params(rng, 16, 8)
    return {"params": params, "num_heads": 4, "num_kv_heads": 2, "rope": RopeOptions(base=7.0)}


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("window", "sinks"), [(4, 2), (1, 3), (5, 0)])
def test_equals_a_text_of_only_the_kept_tokens(rng, options, window, sinks):
    x = rng.normal(size=(2, T, 16))
    kv_cache = RollingKVCache(window, sinks)
    outs = decode(x, kv_cache, **options)
    for t in range(T):
        kept = [*range(min(sinks, t + 1)), *range(max(sinks, t + 1 - window), t + 1)]
        expected, _ = multi_head_attention_forward(x[:, kept], is_causal=True, **options)
        assert_close(outs[:, t], expected[:, -1])
    assert kv_cache.length == window + sinks
    if sinks == 0:
        expected, _ = multi_head_attention_forward(
            x, is_causal=True, window=(window - 1, 0), **options
        )
        assert_close(outs, expected)


def test_memory_is_constant(rng):
    kv_cache, rooms, sizes = RollingKVCache(window=6, sinks=1), set(), set()
    for _ in range(50):
        kv_cache.append(*rng.normal(size=(2, 2, 3, 1, 4)))
        if kv_cache.length == 7:
            rooms.add(sum(part.nbytes for part in kv_cache._room))
            sizes.add(kv_cache.nbytes)
    assert sizes == {2 * 2 * 3 * 7 * 4 * 8}
    assert max(rooms) <= 2 * min(sizes)


def test_places_stay_in_the_cache_and_the_steps_are_recorded(rng, options):
    kv_cache, whole = RollingKVCache(window=2, sinks=1), KVCache()
    assert (kv_cache.at_once, kv_cache.place(1), kv_cache.place(3)) == (3, 0, 0)
    for t in range(5):
        x = rng.normal(size=(2, 1, 16))
        with trace() as recorded:
            multi_head_attention_decode(x, kv_cache=kv_cache, **options)
        assert_equations_hold(recorded)
        assert recorded["k_unrotated"].shape == recorded["k"].shape == (2, 2, min(t + 1, 3), 4)
        multi_head_attention_decode(x, kv_cache=whole, **options)
    assert (kv_cache.at_once, kv_cache.place(1), kv_cache.place(0)) == (1, 2, 3)
    assert (whole.at_once, whole.place(1)) == (None, 5)
    assert_close(recorded["k_unrotated"], kv_cache.held[0], "exact")
    assert_close(recorded["v"], whole.held[1][:, :, [0, 3, 4]], "exact")


def test_what_has_no_room_at_once_is_refused(rng, options):
    kv_cache, x = RollingKVCache(window=3, sinks=2), rng.normal(size=(1, 6, 16))
    with pytest.raises(
        ConfigError, match="^k: expected at most T=5 new tokens .* 0 of the 5 places"
    ):
        multi_head_attention_decode(x, kv_cache=kv_cache, **options)
    assert kv_cache.held == []
    multi_head_attention_decode(x[:, :4], kv_cache=kv_cache, **options)
    before = kv_cache.held
    with pytest.raises(ConfigError, match="^k: expected at most T=1 .* 4 of the 5 .*; got 2; pass"):
        multi_head_attention_decode(x[:, 4:], kv_cache=kv_cache, **options)
    for part, held in zip(before, kv_cache.held, strict=True):
        assert_close(part, held, "exact")
    for window, sinks, name in ((0, 4, "window"), (2.0, 4, "window"), (3, -1, "sinks")):
        with pytest.raises(ConfigError, match=f"^{name}: expected an integer"):
            RollingKVCache(window, sinks)


def test_a_failure_brings_back_what_was_forgotten(rng, options):
    kv_cache, x = RollingKVCache(window=2, sinks=1), rng.normal(size=(1, 5, 16))
    decode(x, kv_cache, **options)
    before = [part.copy() for part in kv_cache.held]
    with pytest.raises(ConfigError, match="^softcap"):
        multi_head_attention_decode(x[:, :1], kv_cache=kv_cache, softcap=-1.0, **options)
    for part, held in zip(before, kv_cache.held, strict=True):
        assert_close(part, held, "exact")
