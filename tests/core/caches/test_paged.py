import copy

import numpy as np
import pytest

from mha_numpy import (
    BlockPool,
    KVCache,
    PagedKVCache,
    RopeOptions,
    attention_forward,
    multi_head_attention_decode,
)
from mha_numpy.core import pad_batch
from mha_numpy.errors import ConfigError, MhaError, ShapeError
from tests.compare import assert_close
from tests.core.test_multihead import square_params

SIZE = 3  # tokens of a block


def tokens(rng, B, T):
    return rng.normal(size=(B, 2, T, 4)), rng.normal(size=(B, 2, T, 5))


def test_attention_is_that_of_the_contiguous_cache_bit_for_bit(rng):
    options = {"params": square_params(rng, 16, 8), "num_heads": 4, "num_kv_heads": 2}
    options |= {"rope": RopeOptions(), "is_causal": True}
    pool = BlockPool(24, SIZE)
    layers = [(PagedKVCache(pool), KVCache()) for _ in range(2)]  # in turns: blocks get mixed
    for T in (5, 1, 1, 3, 0, 1):
        for paged, whole in layers:
            x = rng.normal(size=(2, T, 16))
            outs = [
                multi_head_attention_decode(x, kv_cache=c, **options)[0] for c in (paged, whole)
            ]
            assert_close(*outs, "exact")
    assert (np.diff(layers[0][0].table) != 1).any()


def test_blocks_are_shared_until_written_and_freed_when_unused(rng):
    pool = BlockPool(10, SIZE)
    prompt = PagedKVCache(pool)
    prompt.append(*tokens(rng, 1, 5))
    assert prompt.table.tolist() == [[0, 1]]
    beams = prompt.fork()
    beams.select([0, 0])
    assert pool.users[:3].tolist() == [3, 3, 0]
    k, v = tokens(rng, 2, 2)
    found, _ = beams.append(k, v)  # into the shared last block, and a new one for each
    assert beams.table.tolist() == [[0, 2, 4], [0, 3, 5]]
    assert pool.users.tolist() == [3, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    assert_close(found, np.concatenate([prompt.held[0].repeat(2, axis=0), k], axis=2), "exact")
    bytes_of_block = 2 * SIZE * (4 + 5) * 8
    assert (pool.nbytes, pool.nbytes_used) == (10 * bytes_of_block, 6 * bytes_of_block)
    assert (prompt.nbytes, beams.nbytes) == (2 * bytes_of_block, 5 * bytes_of_block)
    assert pool.free_blocks == 4

    beams.truncate(5)
    assert pool.free_blocks == 6
    beams.select([1])
    assert (pool.free_blocks, beams.table.tolist()) == (7, [[0, 3]])
    with pytest.raises(ValueError, match="read-only"):
        beams.table[0] = 0
    other = copy.copy(beams)
    del beams
    assert pool.users.tolist() == [2, 1, 0, 1, 0, 0, 0, 0, 0, 0]
    other.truncate(0)
    del prompt
    assert pool.free_blocks == 10


def test_the_last_of_two_beams_writes_in_place(rng):
    pool = BlockPool(2, SIZE)
    kv_cache = PagedKVCache(pool)
    kv_cache.append(*tokens(rng, 1, 2))
    kv_cache.select([0, 0])
    kv_cache.append(*tokens(rng, 2, 1))
    assert kv_cache.table.tolist() == [[1], [0]]


def test_an_exhausted_pool_changes_nothing(rng):
    pool = BlockPool(4, SIZE)
    kv_cache, other = PagedKVCache(pool), PagedKVCache(pool)
    kv_cache.append(*tokens(rng, 1, 8))
    before, users = [part.copy() for part in kv_cache.held], pool.users.copy()
    message = "^pool: expected 2 free blocks for the new tokens; got 1 of 4; truncate"
    for call in (
        lambda: kv_cache.append(*tokens(rng, 1, 5)),
        lambda: other.append(*tokens(rng, 2, 1)),
    ):
        with pytest.raises(MhaError, match=message):
            call()
        assert (pool.users == users).all()
    assert other.held == []
    spare = kv_cache.fork()
    kv_cache.append(*tokens(rng, 1, 1))  # copies the last block
    kv_cache.truncate(8)
    users = pool.users.copy()
    with pytest.raises(MhaError, match="got 0 of 4"):
        kv_cache.fork().keep([1, 2, 3, 4, 5, 6, 7])  # a moved token must not be written for others
    assert (pool.users == users).all()
    for part, held in zip(before, spare.held, strict=True):
        assert_close(part, held, "exact")


def test_a_first_append_that_fails_decides_no_sizes(rng):
    pool = BlockPool(4, SIZE)
    kv_cache = PagedKVCache(pool)
    options = {"params": square_params(rng, 8, 8), "num_heads": 2, "kv_cache": kv_cache}
    with pytest.raises(ConfigError, match="^softcap"):
        multi_head_attention_decode(rng.normal(size=(1, 1, 8)), softcap=-1.0, **options)
    assert (pool.nbytes, pool.free_blocks, kv_cache.held) == (0, 4, [])
    kv_cache.append(*tokens(rng, 3, 2))
    with pytest.raises(ShapeError, match="^v: expected"):
        multi_head_attention_decode(rng.normal(size=(3, 1, 8)), **options)


def test_sequences_of_different_lengths_in_one_batch(rng):
    pool = BlockPool(20, SIZE)
    q, kv_caches = rng.normal(size=(4, 6, 1, 4)), []
    for T, B in ((7, 1), (2, 2), (0, 1)):
        kv_caches.append(PagedKVCache(pool))
        kv_caches[-1].append(*tokens(rng, B, T))
    k, v, mask = pad_batch(kv_caches)
    out, _ = attention_forward(q, k, v, mask=mask)
    rows = np.split(q, [1, 3])
    alone = [attention_forward(row, *c.held)[0] for row, c in zip(rows, kv_caches, strict=True)]
    assert_close(out, np.concatenate(alone))
    kv_caches[0].truncate(1)  # of one sequence
    assert pad_batch(kv_caches)[2].sum(axis=-1).ravel().tolist() == [1, 2, 2, 0]


def test_wrong_input(rng):
    for arguments, name in (
        ((0, 3), "num_blocks"),
        ((4, 0), "block_size"),
        ((4, 1.5), "block_size"),
    ):
        with pytest.raises(ConfigError, match=f"^{name}: expected"):
            BlockPool(*arguments)
    with pytest.raises(ConfigError, match="^pool: expected the BlockPool of mha_numpy; got 3"):
        PagedKVCache(3)
    pool = BlockPool(4, SIZE)
    PagedKVCache(pool).append(*tokens(rng, 1, 1))
    with pytest.raises(ShapeError, match=r"^k: expected \(B, H_kv=2, T, d_k=4\) to match the KV"):
        PagedKVCache(pool).append(np.ones((1, 3, 1, 4)), np.ones((1, 3, 1, 5)))
    for wrong, got in (([], "none"), ([KVCache()], r"KVCache\(empty\)")):
        with pytest.raises(ShapeError, match=f"^kv_caches: expected one or more .*; got {got}"):
            pad_batch(wrong)
    with pytest.raises(ConfigError, match=r"^kv_caches\[0\]: expected"):
        pad_batch([None])
