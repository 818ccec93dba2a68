from functools import partial

import numpy as np
import pytest

from mha_numpy import KVCache, RopeOptions, attention_forward, rope_forward
from mha_numpy.checking.tracing import trace
from mha_numpy.core import rms_norm_forward
from mha_numpy.errors import ConfigError
from mha_numpy.variants import (
    LatentAttentionParams,
    latent_attention_backward,
    latent_attention_decode,
    latent_attention_forward,
    latent_attention_jvp,
)
from tests.checking.tracing.whole import assert_equations_hold, trace_both
from tests.compare import assert_close
from tests.gradients import assert_gradients
from tests.slopes import assert_forward_mode

B, T, D, H, D_NOPE, D_ROPE, D_V, D_C, D_CQ, D_OUT = 2, 5, 9, 3, 6, 4, 8, 7, 10, 11
AXES = {
    "w_q_down": (D, D_CQ), "q_gain": (D_CQ,), "w_q": (D_CQ, H * (D_NOPE + D_ROPE)),
    "w_kv_down": (D, D_C + D_ROPE), "kv_gain": (D_C,), "w_k_up": (D_C, H * D_NOPE),
    "w_v_up": (D_C, H * D_V), "w_o": (H * D_V, D_OUT),
}  # fmt: skip
EXACT = 1e-12  # of a law: two ways to the same numbers
each_query = pytest.mark.parametrize("has_latent", [True, False])


def draw(rng, has_latent=True):
    """Return an input and params, with or without a latent of the queries."""
    arrays = {name: rng.normal(size=shape) / 2 for name, shape in AXES.items()}
    if not has_latent:
        arrays |= {"w_q_down": None, "q_gain": None}
        arrays["w_q"] = rng.normal(size=(D, H * (D_NOPE + D_ROPE))) / 2
    return rng.normal(size=(B, T, D)), LatentAttentionParams(**arrays)


def forward(x, params, **options):
    return latent_attention_forward(x, params=params, num_heads=H, **options)


def decode(x, params, kv_cache, **options):
    return latent_attention_decode(x, params=params, num_heads=H, kv_cache=kv_cache, **options)[0]


def plainly(x, params, rope, scale, visible):
    """Return the output from the paper's equations, head by head."""
    p, (d_c, d_k) = params, (D_C, D_NOPE + D_ROPE)
    at = {"positions": np.arange(T), **rope._asdict()}
    total = 0
    for h in range(H):
        c_q = x if p.w_q_down is None else rms_norm_forward(x @ p.w_q_down, p.q_gain)[0]
        q = c_q @ p.w_q[:, h * d_k : (h + 1) * d_k]
        q = np.concatenate([q[..., :D_NOPE], rope_forward(q[..., D_NOPE:], **at)[0]], axis=-1)
        c = rms_norm_forward((x @ p.w_kv_down)[..., :d_c], p.kv_gain)[0]
        k_rope = rope_forward((x @ p.w_kv_down)[..., d_c:], **at)[0]
        k = np.concatenate([c @ p.w_k_up[:, h * D_NOPE : (h + 1) * D_NOPE], k_rope], axis=-1)
        v = c @ p.w_v_up[:, h * D_V : (h + 1) * D_V]
        powers = np.exp(scale * np.einsum("bid,bjd->bij", q, k)) * visible
        weights = powers / powers.sum(axis=-1, keepdims=True)
        total = total + weights @ v @ p.w_o[h * D_V : (h + 1) * D_V]
    return total


def test_one_token_by_hand():
    """It sees only itself, so that neither queries nor keys matter."""
    params = LatentAttentionParams(
        w_q_down=None, q_gain=None, w_q=np.ones((1, 3)),
        w_kv_down=np.array([[3.0, -4.0, 7.0, 9.0]]), kv_gain=np.array([1.0, 2.0]),
        w_k_up=np.ones((2, 1)), w_v_up=np.ones((2, 1)),
        w_o=np.ones((1, 1)),
    )  # fmt: skip
    out, cache = latent_attention_forward(np.ones((1, 1, 1)), params=params, num_heads=1, eps=1e-15)
    assert_close(out, [[[-np.sqrt(2)]]])  # (3 - 2 * 4) / sqrt((9 + 16) / 2)
    assert cache.attention.weights.item() == 1


@each_query
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_head_by_head(rng, backend, has_latent, interleaved, scale):
    x, params = draw(rng, has_latent)
    rope = RopeOptions(base=50.0, interleaved=interleaved)
    out, _ = forward(x, params, rope=rope, scale=scale, is_causal=True)
    of_whole_head = (D_NOPE + D_ROPE) ** -0.5
    expected = plainly(x, params, rope, scale or of_whole_head, np.tri(T))
    assert_close(out, expected)
    if interleaved:
        assert_close(forward(x, params, rope=RopeOptions(50.0, interleaved=True))[0],
                     plainly(x, params, rope, of_whole_head, 1))  # fmt: skip


@each_query
def test_gradients(rng, has_latent):
    """By all backends: see the tests of the layer."""
    x, params = draw(rng, has_latent)
    x = x[:1]
    inputs = {"x": x, "params": params, "bias": rng.normal(size=(H, 1, T)),
              "sink": rng.normal(size=H), "head_gate": rng.normal(size=H)}  # fmt: skip
    positions = rng.permutation(T)

    def with_options(x, params, **options):
        return forward(x, params, is_causal=True, softcap=3.0, positions=positions, **options)

    assert_gradients(with_options, latent_attention_backward, inputs)


@each_query
@pytest.mark.parametrize("interleaved", [True, False])
def test_forward_mode(rng, backend, has_latent, interleaved):
    x, params = draw(rng, has_latent)
    inputs = {"x": x, "params": params, "bias": rng.normal(size=(H, 1, T)),
              "sink": rng.normal(size=H), "head_gate": rng.normal(size=H)}  # fmt: skip
    given = partial(
        forward, rope=RopeOptions(interleaved=interleaved), is_causal=True, softcap=3.0,
        positions=rng.permutation(T),
    )  # fmt: skip
    assert_forward_mode(given, latent_attention_jvp, latent_attention_backward, inputs)


@each_query
@pytest.mark.parametrize("scale", [None, 0.7])
def test_absorbed_expanded_and_whole_are_the_same(rng, backend, has_latent, scale):
    x, params = draw(rng, has_latent)
    options = {"is_causal": True, "scale": scale, "sink": rng.normal(size=H),
               "head_gate": rng.normal(size=H)}  # fmt: skip
    expected, _ = forward(x, params, **options)
    for absorb in (True, False):
        kv_cache = KVCache()
        parts = [decode(x[:, i:j], params, kv_cache, absorb=absorb, **options)
                 for i, j in ((0, 3), (3, 4), (4, 5))]  # fmt: skip
        off = np.abs(np.concatenate(parts, axis=1) - expected).max()
        assert off < EXACT, absorb
        assert kv_cache.nbytes == B * T * (D_C + D_ROPE) * 8


def test_absorbed_is_multi_query_attention_to_the_latents(rng):
    x, params = draw(rng)
    kv_cache = KVCache()
    args = {"params": params, "num_heads": H, "kv_cache": kv_cache}
    _, cache = latent_attention_decode(x, is_causal=True, **args)
    (kept, _), inputs = kv_cache.held, cache.inputs
    assert inputs.q.shape == (B, H, T, D_C + D_ROPE)
    assert np.shares_memory(inputs.k, kept)  # nothing is copied
    assert np.shares_memory(inputs.v, kept)
    assert inputs.v.shape == (B, 1, T, D_C)
    _, whole = forward(x, params, is_causal=True)
    assert_close(cache.weights, whole.attention.weights)
    again, _ = attention_forward(
        inputs.q, kept, kept[..., :D_C], is_causal=True, scale=(D_NOPE + D_ROPE) ** -0.5
    )
    assert_close(again, cache.heads)


def test_positions_move_with_all_tokens_and_are_those_of_the_cache(rng):
    x, params = draw(rng)
    expected, _ = forward(x, params)
    assert_close(forward(x, params, positions=np.arange(T) + 90)[0], expected, "float32")
    far = np.arange(T) * np.array([[1], [3]])
    spread, _ = forward(x, params, positions=far)
    assert_close(spread[0], expected[0])
    assert np.abs(spread[1] - expected[1]).max() > 0.01
    kv_cache = KVCache()
    decode(x[:, :2], params, kv_cache, positions=far[:, :2])
    last = decode(x[:, 2:], params, kv_cache, positions=far[:, 2:])
    assert_close(last, spread[:, 2:])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("absorb", [True, False])
def test_a_dtype_is_kept_and_close_to_float64(rng, dtype, absorb):
    x, params = draw(rng)
    exact, exact_cache = forward(x, params)
    d_out = rng.normal(size=exact.shape)
    narrow = LatentAttentionParams._make(array.astype(dtype) for array in params)
    out, cache = forward(x.astype(dtype), narrow)
    grads = latent_attention_backward(d_out.astype(dtype), cache)
    kv_cache = KVCache()
    decoded = decode(x.astype(dtype), narrow, kv_cache, absorb=absorb)
    found = [out, decoded, grads.d_x, *grads.d_params]
    exact_grads = latent_attention_backward(d_out, exact_cache)
    allowed = 30 * float(np.finfo(dtype).eps)
    for one, other in zip(
        found, [exact, exact, exact_grads.d_x, *exact_grads.d_params], strict=True
    ):
        assert one.dtype == dtype
        assert np.abs(one - other).max() <= allowed * max(1, np.abs(other).max())
    assert kv_cache.held[0].dtype == dtype
    mixed, _ = forward(x.astype(dtype), params)
    assert mixed.dtype == np.float64


@pytest.mark.parametrize("shape", [(0, 3, D), (2, 0, D)])
def test_empty_axes(rng, shape):
    _, params = draw(rng)
    out, cache = forward(np.zeros(shape), params)
    assert out.shape == (*shape[:2], D_OUT)
    grads = latent_attention_backward(out, cache)
    assert grads.d_x.shape == shape
    assert not any(gradient.any() for gradient in grads.d_params)
    assert decode(np.zeros(shape), params, KVCache()).shape == out.shape


def test_nan_reaches_only_later_tokens(rng):
    x, params = draw(rng)
    odd = x.copy()
    odd[0, 2] = np.nan
    out, odd_out = (forward(one, params, is_causal=True)[0] for one in (x, odd))
    assert_close(odd_out[0, :2], out[0, :2], "exact")
    assert_close(odd_out[1], out[1], "exact")
    assert np.isnan(odd_out[0, 2:]).all()
    absorbed = decode(odd, params, KVCache(), is_causal=True)
    assert_close(absorbed, odd_out)


@each_query
def test_every_equation_of_a_trace_holds(rng, has_latent):
    x, params = draw(rng, has_latent)
    options = {"params": params, "num_heads": H, "is_causal": True}
    for more in ({}, {"head_gate": rng.normal(size=H), "sink": rng.normal(size=H),
                      "positions": np.arange(T) * [[2], [3]]},
                 {"rope": RopeOptions(rotary_dim=2)}):  # fmt: skip
        passes = latent_attention_forward, latent_attention_backward
        t = trace_both(*passes, x, rng=rng, **options, **more)
        assert_equations_hold(t)
        names = [s.name for s in t]
        assert len(names) == len(set(names))
        given = [s.name for s in t if not s.equation]
        assert set(given) <= {"x", "d_out", "sink", "head_gate"}
    assert t.sizes["d_kept"] == D_C + D_ROPE
    for absorb in (True, False):
        kv_cache = KVCache()
        for part in (x[:, :3], x[:, 3:]):
            with trace() as t:
                latent_attention_decode(part, kv_cache=kv_cache, absorb=absorb, **options,
                                        head_gate=rng.normal(size=H))  # fmt: skip
            assert_equations_hold(t)
            given = [s.name for s in t if not s.equation]
            assert set(given) <= {"x", "head_gate", "kept_past"}
        assert (t.sizes["T_q"], t.sizes["T_k"], "q_absorbed" in t) == (2, T, absorb)


def test_a_cache_is_unchanged_by_an_error(rng):
    x, params = draw(rng)
    kv_cache = KVCache()
    with pytest.raises(ConfigError):
        decode(x, params, kv_cache, window=3)
    assert kv_cache.length == 0
