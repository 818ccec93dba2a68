import numpy as np
import pytest

from mha_numpy import attention_backward, attention_forward
from mha_numpy.variants import (
    block_selection_backward,
    block_selection_forward,
    block_selection_jvp,
)
from tests.checking.tracing.whole import assert_whole, trace_both
from tests.compare import assert_close
from tests.gradients import assert_gradients
from tests.slopes import assert_forward_mode

B, H, H_KV, T, D_K, D_V, BLOCK, TOP_K = 2, 6, 3, 11, 4, 5, 3, 2  # the last block has two keys
CAUSAL = {"block": BLOCK, "top_k": TOP_K, "is_causal": True}


def draw(rng, B=B, T=T):
    shapes = {"q": (B, H, T, D_K), "k": (B, H_KV, T, D_K), "v": (B, H_KV, T, D_V)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def chosen_one_by_one(q, k, is_causal):
    """Return the choice of one head, query by query, by the definition."""
    blocks = [range(start, min(start + BLOCK, T)) for start in range(0, T, BLOCK)]
    chosen = np.zeros((T, len(blocks)), bool)
    for i in range(T):
        own = i // BLOCK
        fit = {n: q[i] @ k[list(keys)].mean(axis=0) for n, keys in enumerate(blocks)
               if n != own and (n < own or not is_causal)}  # fmt: skip
        chosen[i, [own, *sorted(fit, key=fit.get, reverse=True)[: TOP_K - 1]]] = True
    return chosen


def test_two_blocks_by_hand():
    """Scores of blocks: 1.5 and 3.5; the third has the key of the query's own place."""
    k = np.array([[1.0], [2.0], [3.0], [4.0], [-9.0]])
    v = np.array([[10.0], [20.0], [30.0], [40.0], [50.0]])
    out, cache = block_selection_forward(np.ones((1, 1)), k, v, block=2, top_k=2, q_offset=4)
    assert_close(cache.block_scores, [[1.5, 3.5, -9]])
    assert cache.chosen.tolist() == [[False, True, True]]  # its own, although it fits worst
    powers = np.exp([3.0, 4.0, -9.0])
    assert_close(out, [[powers @ [30, 40, 50] / powers.sum()]])


@pytest.mark.parametrize("is_causal", [True, False])
def test_the_choice_is_that_of_the_definition(rng, backend, is_causal):
    arrays = draw(rng)
    options = CAUSAL | {"is_causal": is_causal}
    out, cache = block_selection_forward(**arrays, **options)
    for b, h in np.ndindex(B, H):
        expected = chosen_one_by_one(arrays["q"][b, h], arrays["k"][b, h // 2], is_causal)
        assert (cache.chosen[b, h] == expected).all()
    cells = cache.chosen.repeat(BLOCK, axis=-1)[..., :T]
    expected, _ = attention_forward(**arrays, mask=cells, is_causal=is_causal)
    assert_close(out, expected)


def test_all_blocks_are_plain_attention(rng):
    arrays = draw(rng)
    options = {"is_causal": True, "bias": rng.normal(size=T), "mask": rng.random((T, T)) < 0.6}
    for more in ({"block": BLOCK, "top_k": 4}, {"block": T + 1, "top_k": 1}):
        out, cache = block_selection_forward(**arrays, **options, **more)
        expected, plain = attention_forward(**arrays, **options)
        assert_close(out, expected, "exact")
        grads = block_selection_backward(expected, cache)
        for one, other in zip(grads, attention_backward(expected, plain), strict=True):
            if one is not None:
                assert_close(one, other, "exact")


def test_decoding_is_the_whole_and_shared_keys_are_repeated_keys(rng):
    arrays = draw(rng)
    whole, cache = block_selection_forward(**arrays, **CAUSAL)
    q, k, v = arrays.values()
    for t in (0, 5, 9):
        last, _ = block_selection_forward(
            q[:, :, t : t + 1], k[:, :, : t + 1], v[:, :, : t + 1], q_offset=t, **CAUSAL
        )
        assert_close(last[:, :, 0], whole[:, :, t])
    repeated = block_selection_forward(q, k.repeat(2, axis=1), v.repeat(2, axis=1), **CAUSAL)[0]
    assert_close(repeated, whole)
    offsets = np.array([0, 4])
    each = block_selection_forward(q[:, :, :7], k, v, q_offset=offsets, **CAUSAL)[0]
    for b, offset in enumerate(offsets):
        one = block_selection_forward(q[b, :, :7], k[b].repeat(2, axis=0), v[b].repeat(2, axis=0),
                                      q_offset=offset, **CAUSAL)[0]  # fmt: skip
        assert_close(each[b], one)


def test_gradients(rng, backend):
    few = 8
    inputs = draw(rng, T=few, B=1) | {
        "bias": rng.normal(size=(H, 1, few)), "sink": rng.normal(size=H),
        "head_gate": rng.normal(size=H),
    }  # fmt: skip
    mask = rng.random((few, few)) < 0.8

    def forward(**arrays):
        return block_selection_forward(**arrays, **CAUSAL, mask=mask, softcap=2.0)

    assert_gradients(forward, block_selection_backward, inputs)

    def jvp(tangents, cache):
        return block_selection_jvp(tangents, cache).out_dot

    assert_forward_mode(forward, jvp, block_selection_backward, inputs)


def test_the_choice_has_no_gradient(rng):
    """A small move leaves it as it is; a large one makes the output jump."""
    arrays = {name: array[0, 0] for name, array in draw(rng).items()}
    out, cache = block_selection_forward(**arrays, **CAUSAL)
    unread = ~cache.chosen[-1].repeat(BLOCK)[:T]  # by the last query
    d_out = np.zeros_like(out)
    d_out[-1] = rng.normal(size=D_V)
    grads = block_selection_backward(d_out, cache)
    for gradient in (grads.d_k, grads.d_v):
        assert (gradient.any(axis=-1) == ~unread).all()

    rows = np.where(unread)[0]
    best = np.sign(arrays["q"][-1])
    for move, is_same in ((1e-4, True), (1e3, False)):
        moved = arrays["k"].copy()
        moved[rows] += move * best
        other, other_cache = block_selection_forward(**arrays | {"k": moved}, **CAUSAL)
        assert (other_cache.chosen[-1] == cache.chosen[-1]).all() == is_same
        assert (other[-1] == out[-1]).all() == is_same


def test_ties_and_nan():
    k = np.array([[1.0], [1.0], [1.0], [1.0]])
    chosen = block_selection_forward(k, k, k, block=1, top_k=2, is_causal=True)[1].chosen
    assert chosen.astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]
    odd = k.copy()
    odd[0] = np.nan
    out, cache = block_selection_forward(k, odd, k, block=1, top_k=2, is_causal=True)
    assert cache.chosen.astype(int).tolist()[2:] == [[0, 1, 1, 0], [0, 1, 0, 1]]
    assert np.isnan(out[:, 0]).tolist() == [True, True, False, False]


def test_a_block_without_a_visible_key_is_no_candidate(rng):
    q, k, v = (rng.normal(size=(7, 4)) for _ in range(3))
    mask = np.arange(7) >= 2
    k[:2] = 100 * q[6]  # would be the best block by far
    options = {"block": 2, "top_k": 2, "is_causal": True}
    _, cache = block_selection_forward(q, k, v, mask=mask, **options)
    assert not cache.chosen[:, 0].any()
    assert cache.chosen[6].sum() == 2
    assert block_selection_forward(q, k, v, **options)[1].chosen[6, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_dtype_is_kept_and_close_to_float64(rng, dtype):
    narrow = {name: array.astype(dtype) for name, array in draw(rng).items()}
    wide = {name: array.astype(np.float64) for name, array in narrow.items()}
    (out, cache), (exact, exact_cache) = (
        block_selection_forward(**arrays, **CAUSAL) for arrays in (narrow, wide)
    )
    assert (cache.chosen == exact_cache.chosen).all()
    found = [out, *block_selection_backward(out, cache)[:3]]
    exacts = [exact, *block_selection_backward(exact, exact_cache)[:3]]
    for one, other in zip(found, exacts, strict=True):
        assert one.dtype == dtype
        assert np.abs(one - other).max() <= 20 * float(np.finfo(dtype).eps) * np.abs(other).max()


@pytest.mark.parametrize("tokens", [(0, 5), (3, 0)])
def test_empty_axes(tokens):
    T_q, T_k = tokens
    q, k = np.ones((B, H, T_q, D_K)), np.ones((B, H_KV, T_k, D_K))
    out, cache = block_selection_forward(q, k, k, **CAUSAL)
    assert out.shape == q.shape
    grads = block_selection_backward(out, cache)
    assert not any(array.any() for array in (out, grads.d_q, grads.d_k))


def test_every_equation_of_a_trace_holds(rng):
    arrays = draw(rng)
    mask = rng.random((T, T)) < 0.8
    for options in (CAUSAL, CAUSAL | {"mask": mask, "q_offset": np.arange(B)}):
        passes = block_selection_forward, block_selection_backward
        t = trace_both(*passes, *arrays.values(), rng=rng, **options)
        (d_out,) = (s.array for s in t if s.name == "d_heads")
        assert_whole(t, [*arrays.values(), d_out])
        assert t.sizes["N"] == 4
