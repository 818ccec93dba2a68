import numpy as np
import pytest

from mha_numpy import (
    KVCache,
    RopeOptions,
    causal_mask,
    multi_head_attention_decode,
    multi_head_attention_forward,
)
from mha_numpy.errors import ConfigError, MaskError, ShapeError
from tests.compare import assert_close
from tests.core.test_multihead import square_params


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("H_kv", [1, 2, 4])
@pytest.mark.parametrize("rope", [None, RopeOptions(interleaved=True, rotary_dim=2)])
@pytest.mark.parametrize("pieces", [[1] * 7, [4, 1, 2], [7], [3, 0, 4]])
@pytest.mark.parametrize(("window", "E"), [(None, 0), ((2, 0), 0), ((2, 0), 2)])
def test_decode_in_pieces_equals_the_full_forward(rng, H_kv, rope, pieces, window, E):
    params = square_params(rng, 16, H_kv * 4)
    options = {"params": params, "num_heads": 4, "num_kv_heads": H_kv, "rope": rope}
    if E:
        options |= {f"extra_{letter}": rng.normal(size=(E, H_kv * 4)) for letter in "kv"}
    x = rng.normal(size=(3, 7, 16))
    expected, cache = multi_head_attention_forward(x, is_causal=True, window=window, **options)
    kv_cache = KVCache()
    outs, first = [], 0
    for T in pieces:
        out, attention = multi_head_attention_decode(
            x[:, first : first + T], kv_cache=kv_cache, is_causal=True, window=window, **options
        )
        outs.append(out)
        first += T
        assert attention.weights.shape == (3, 4, T, first + E)
        seen = [*range(first), *range(7, 7 + E)]
        assert_close(attention.weights, cache.attention.weights[:, :, first - T : first, seen])
    assert_close(np.concatenate(outs, axis=1), expected)
    assert kv_cache.length == 7
    assert kv_cache.nbytes == 2 * 3 * H_kv * 7 * 4 * 8


def test_append_copies_and_returns_read_only_views(rng):
    kv_cache = KVCache()
    k, v = rng.normal(size=(1, 2, 3, 4)), rng.normal(size=(1, 2, 3, 5))
    held_k, held_v = kv_cache.append(k, v)
    assert_close(held_k, k, "exact")
    k[:] = 0
    assert np.abs(held_k).min() > 0
    with pytest.raises(ValueError, match="read-only"):
        held_v[:] = 0


def test_truncate_then_append_replaces(rng):
    kv_cache = KVCache()
    parts = [rng.normal(size=(1, 2, 5, 4)) for _ in range(2)]
    kv_cache.append(parts[0], parts[0])
    kv_cache.truncate(2)
    assert kv_cache.length == 2
    k, _ = kv_cache.append(parts[1], parts[1])
    assert_close(k, np.concatenate([parts[0][:, :, :2], parts[1]], axis=2), "exact")
    kv_cache.truncate(0)
    assert (kv_cache.length, kv_cache.nbytes) == (0, 0)


@pytest.mark.parametrize("length", [6, -1, 2.0, None, True])
def test_truncate_to_an_impossible_length(length):
    kv_cache = KVCache()
    kv_cache.append(np.ones((1, 2, 5, 4)), np.ones((1, 2, 5, 4)))
    with pytest.raises(ConfigError, match="length: expected"):
        kv_cache.truncate(length)
    assert kv_cache.length == 5


def test_append_must_fit_what_is_held():
    kv_cache = KVCache()
    kv_cache.append(np.ones((1, 2, 5, 4)), np.ones((1, 2, 5, 3)))
    with pytest.raises(
        ShapeError, match=r"k: expected \(B=1, H_kv=2, T, d_k=4\) to match the KV cache"
    ):
        kv_cache.append(np.ones((1, 4, 1, 4)), np.ones((1, 4, 1, 3)))
    with pytest.raises(ShapeError, match=r"v: expected \(B=1, H_kv=2, T=1, d_v=3\)"):
        kv_cache.append(np.ones((1, 2, 1, 4)), np.ones((1, 2, 2, 3)))
    assert kv_cache.length == 5


def test_a_failed_decode_leaves_the_cache_as_it_was(rng):
    options = {"params": square_params(rng, 8, 8), "num_heads": 2, "kv_cache": KVCache()}
    for B, T, length in ((2, 1, 0), (1, 2, 3)):  # the first decides no sizes either
        with pytest.raises(MaskError):
            multi_head_attention_decode(rng.normal(size=(B, T, 8)), mask=causal_mask(7), **options)
        assert options["kv_cache"].length == length
        multi_head_attention_decode(rng.normal(size=(1, 3, 8)), **options)


def test_repr():
    kv_cache = KVCache()
    assert repr(kv_cache) == "KVCache(empty)"
    kv_cache.append(np.ones((1, 2, 5, 4)), np.ones((1, 2, 5, 3)))
    assert repr(kv_cache) == "KVCache(k (1, 2, 5, 4), v (1, 2, 5, 3), float64, 560 bytes)"


def test_room_grows_seldom():
    kv_cache = KVCache()
    rooms = set()
    for _ in range(100):
        kv_cache.append(np.ones((1, 1, 1, 2)), np.ones((1, 1, 1, 2)))
        rooms.add(kv_cache._room[0].shape[2])
    assert len(rooms) <= 8


def test_a_wider_dtype_is_not_narrowed():
    kv_cache = KVCache()
    narrow = np.ones((1, 1, 3, 2), np.float32)
    kv_cache.append(narrow, narrow)
    kv_cache.append(narrow[:, :, :1], narrow[:, :, :1])  # leaves room for two more
    k, v = kv_cache.append(np.full((1, 1, 1, 2), 1 + 1e-9), narrow[:, :, :1])
    assert (k.dtype, v.dtype) == (np.float64, np.float32)
    assert k[0, 0, 4, 0] == 1 + 1e-9


def test_an_empty_read_only_beginning():
    empty = np.zeros((2, 3, 0, 4))
    empty.setflags(write=False)
    kv_cache = KVCache()
    kv_cache.append(empty, empty)
    k, _ = kv_cache.append(np.ones((2, 3, 1, 4)), np.ones((2, 3, 1, 4)))
    assert k.shape == (2, 3, 1, 4)


def test_beams_keep_their_own_past(rng):
    k, v = rng.normal(size=(2, 3, 2, 4, 5))  # each (3, 2, 4, 5)
    kv_cache, beams = KVCache(), [2, 0, 2]
    kv_cache.append(k, v)
    kv_cache.select(beams)
    new_k, new_v = rng.normal(size=(2, 3, 2, 1, 5))
    held_k, held_v = kv_cache.append(new_k, new_v)
    assert_close(held_k, np.concatenate([k[beams], new_k], axis=2), "exact")
    assert_close(held_v, np.concatenate([v[beams], new_v], axis=2), "exact")
    for wrong in ([3], [-1], [[0]], [0.5], None, "x"):
        with pytest.raises(ConfigError, match="^rows: expected integers"):
            kv_cache.select(wrong)
    with pytest.raises(ConfigError, match="^rows: expected"):
        KVCache().select([0])
    assert kv_cache.length == 5


def test_cross_attention_appends_the_memory_once(rng):
    params = square_params(rng, 8, 8)
    x, memory = rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 5, 8))
    expected, _ = multi_head_attention_forward(x, memory, params=params, num_heads=2)
    kv_cache, options = KVCache(), {"params": params, "num_heads": 2}
    parts = [
        multi_head_attention_decode(x[:, a:b], new, kv_cache=kv_cache, **options)[0]
        for a, b, new in ((0, 1, memory), (1, 3, memory[:, :0]))
    ]
    assert_close(np.concatenate(parts, axis=1), expected)
    assert kv_cache.length == 5
    for places in ({"is_causal": True}, {"rope": RopeOptions()}, {"window": (1, 1)}):
        with pytest.raises(ShapeError, match="x_k: expected 3 tokens like x, because rope"):
            multi_head_attention_decode(x, memory, kv_cache=kv_cache, **options, **places)
