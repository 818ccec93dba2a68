"""What stands around attention: norms of queries and keys, an output gate, positions of tokens."""

import numpy as np
import pytest

from mha_numpy import (
    FullMultiHeadParams,
    KVCache,
    MultiHeadParams,
    QKNormOptions,
    RopeOptions,
    attention_forward,
    multi_head_attention_backward,
    multi_head_attention_decode,
    multi_head_attention_forward,
    rope_forward,
)
from mha_numpy.checking.tracing import trace
from mha_numpy.core.caches import RollingKVCache
from mha_numpy.core.qk_norm import GAIN_AXES
from mha_numpy.errors import ConfigError
from tests.checking.tracing.whole import assert_equations_hold
from tests.compare import assert_close
from tests.core.test_multihead import random_params

pytestmark = pytest.mark.usefixtures("backend")
B, H, H_KV, T, D, D_K, D_V = 2, 6, 3, 5, 7, 4, 9
HEADS, ROPE = {"num_heads": H, "num_kv_heads": H_KV}, RopeOptions(base=50.0)


@pytest.fixture
def x(rng):
    return rng.normal(size=(B, T, D))


@pytest.fixture
def params(rng):
    shapes = (D, H * D_K), (D, H_KV * D_K), (D, H_KV * D_V), (H * D_V, D)
    return FullMultiHeadParams(*random_params(rng, *shapes))


def forward(x, *others, **options):
    return multi_head_attention_forward(x, *others, **HEADS, **options)[0]


def normed(x, gain, eps):
    return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) / x.shape[-1] + eps) * gain


def split(x, heads):
    return np.stack(np.split(x, heads, axis=-1), axis=1)


@pytest.mark.parametrize("place", GAIN_AXES)
def test_each_place_of_a_norm(x, params, rng, place):
    p, qk_norm = params, QKNormOptions(place, eps=0.3)
    widths = [H * D_K, H_KV * D_K] if place == "projection" else [D_K, D_K]
    gains = [rng.normal(size=width) for width in widths]
    found = []
    for w, b, gain, heads in zip(p[0:4:2], p[1:4:2], gains, (H, H_KV), strict=True):
        z = x @ w + b
        if place == "projection":
            z = normed(z, gain, 0.3)
        z = split(z, heads)
        if place == "heads":
            z = normed(z, gain, 0.3)
        z, _ = rope_forward(z, **ROPE._asdict())
        if place == "rotated":
            z = normed(z, gain, 0.3)
        found.append(z)
    heads, _ = attention_forward(*found, split(x @ p.w_v + p.b_v, H_KV))
    expected = np.concatenate(list(heads.swapaxes(0, 1)), axis=-1) @ p.w_o + p.b_o
    p = p._replace(gain_q=gains[0], gain_k=gains[1])
    assert_close(forward(x, params=p, qk_norm=qk_norm, rope=ROPE), expected)


def test_norms_by_hand():
    """Both tokens have q = k = (3, 4), of root mean square 3.5355: normed, their product is 2."""
    one = np.array([[3.0, 4.0]])
    params = MultiHeadParams(one, None, one, None, np.ones((1, 1)), None, np.ones((1, 1)), None)
    x = np.array([[[1.0], [2.0]]])
    options = {"params": params, "num_heads": 1, "qk_norm": QKNormOptions(eps=1e-12), "scale": 1.0}
    out, cache = multi_head_attention_forward(x, bias=np.array([0.0, np.log(3)]), **options)
    assert_close(cache.attention.inputs.k[0, 0], [[3 / 12.5**0.5, 4 / 12.5**0.5]] * 2, "float32")
    assert_close(out, [[[1.75], [1.75]]], "float32")  # the scores are alike: 1 / 4 and 3 / 4


def test_a_norm_forgets_the_size_of_a_projection(x, params):
    """It takes the place of the scale: no score grows beyond the square root of d_k."""
    options = {"qk_norm": QKNormOptions(eps=1e-30), "rope": ROPE}
    larger = params._replace(w_q=9 * params.w_q, b_q=9 * params.b_q)
    assert_close(forward(x, params=larger, **options), forward(x, params=params, **options))
    assert np.abs(forward(x, params=larger) - forward(x, params=params)).max() > 0.1


def test_a_rotation_and_a_norm_commute_only_without_gain(x, params, rng):
    def difference(**gains):
        outs = [
            forward(x, params=params._replace(**gains), qk_norm=QKNormOptions(place), rope=ROPE)
            for place in ("heads", "rotated")
        ]
        return np.abs(outs[0] - outs[1]).max()

    gain = rng.normal(size=D_K)
    assert difference() < 1e-13
    assert difference(gain_q=np.tile(gain[:2], 2)) < 1e-13  # the same for both of a pair
    assert difference(gain_q=gain) > 1e-3


def gate_of(params, rng, gates):
    return params._replace(w_gate=rng.normal(size=(D, gates)), b_gate=rng.normal(size=gates))


@pytest.mark.parametrize("gates", [H, H * D_V])
def test_a_gate(x, params, rng, gates):
    p = gate_of(params, rng, gates)
    _, cache = multi_head_attention_forward(x, params=params, **HEADS)
    gate = 1 / (1 + np.exp(-(x @ p.w_gate + p.b_gate)))
    merged = cache.project_out.x
    gated = [merged[..., i] * gate[..., i * gates // (H * D_V)] for i in range(H * D_V)]
    assert_close(forward(x, params=p), np.stack(gated, axis=-1) @ p.w_o + p.b_o)


def test_a_gate_by_hand(x, params, rng):
    p = params._replace(w_gate=np.zeros((D, H)), b_o=None)
    assert_close(forward(x, params=p), forward(x, params=p._replace(w_gate=None)) / 2)
    far = p._replace(b_gate=np.full(H, 1000.0))  # without overflow
    assert_close(forward(x, params=far), forward(x, params=p._replace(w_gate=None)))
    far = p._replace(b_gate=np.full(H, -1000.0))
    assert not forward(x, params=far).any()


def test_a_gate_looks_at_the_query_input(x, params, rng):
    p, other = gate_of(params, rng, H), rng.normal(size=(B, 8, D))
    out, cache = multi_head_attention_forward(x, other, params=p, **HEADS)
    d_out = rng.normal(size=out.shape)
    d_x = multi_head_attention_backward(d_out, cache).d_x_q
    closed = p._replace(w_q=0 * p.w_q)  # the scores do not depend on x, but the gate does
    _, cache = multi_head_attention_forward(x, other, params=closed, **HEADS)
    assert np.abs(multi_head_attention_backward(d_out, cache).d_x_q).max() > 0.01
    assert d_x.shape == x.shape


class TestPositions:
    def test_default(self, x, params):
        options = {"params": params, "rope": ROPE}
        out = forward(x, **options)
        assert_close(forward(x, positions=np.arange(T), **options), out, "exact")
        assert_close(forward(x, x, positions=np.arange(T), **options), out, "exact")
        assert_close(
            forward(x, q_offset=2, **options),
            forward(x, x.copy(), positions=np.arange(T) + 2, **options),
        )
        # only distances count
        assert_close(forward(x, positions=np.arange(T) + np.array([[9.5], [-3]]), **options), out)

    def test_keys_of_another_input(self, x, params, rng):
        memory, options = rng.normal(size=(B, 8, D)), {"params": params, "rope": ROPE}
        order = rng.permutation(8)
        shuffled = forward(x, memory[:, order], key_positions=order, **options)
        assert_close(shuffled, forward(x, memory, **options))
        assert np.abs(shuffled - forward(x, memory[:, order], **options)).max() > 1e-3

    def test_two_documents_in_one_sequence(self, x, params):
        options = {"params": params, "rope": ROPE, "is_causal": True}
        number = np.array([0, 0, 0, 1, 1])
        mask = number[:, None] == number
        packed = forward(x, positions=np.array([0, 1, 2, 0, 1]), mask=mask, **options)
        apart = [forward(x[:, part], **options) for part in (slice(0, 3), slice(3, 5))]
        assert_close(packed, np.concatenate(apart, axis=1))

    def test_padding_at_the_left(self, x, params):
        """The second sequence has two tokens of padding."""
        pads = np.array([[0], [2]])
        positions, mask = np.arange(T) - pads, (np.arange(T) >= pads)[:, None, None]
        options = {"params": params, "rope": ROPE, "is_causal": True}
        out = forward(x, positions=positions, mask=mask, **options)
        assert_close(out[1:, 2:], forward(x[1:, 2:], **options))

    @pytest.mark.parametrize("place", GAIN_AXES)
    def test_decoding(self, x, params, rng, place):
        positions = np.cumsum(rng.integers(1, 4, (B, T)), axis=1)
        options = {"params": gate_of(params, rng, H), "rope": ROPE, "is_causal": True}
        options |= HEADS | {"qk_norm": QKNormOptions(place)}
        expected, _ = multi_head_attention_forward(x, positions=positions, **options)
        kv_cache = KVCache()
        for part in (slice(0, 3), slice(3, 4), slice(4, 5)):
            out, _ = multi_head_attention_decode(
                x[:, part], kv_cache=kv_cache, positions=positions[:, part], **options
            )
            assert_close(out, expected[:, part])


@pytest.mark.parametrize("rope", [None, ROPE])
@pytest.mark.parametrize("place", GAIN_AXES)
def test_a_cache_that_keeps_unrotated_keys(x, params, rng, place, rope):
    options = HEADS | {
        "rope": rope,
        "qk_norm": QKNormOptions(place),
        "params": gate_of(params, rng, H),
    }
    expected, _ = multi_head_attention_forward(x, is_causal=True, **options)
    kv_cache = RollingKVCache(window=T)
    for t in range(T):
        with trace() as steps:
            out, _ = multi_head_attention_decode(x[:, t : t + 1], kv_cache=kv_cache, **options)
        assert_close(out, expected[:, t : t + 1])
        assert_equations_hold(steps)
    if rope:
        with pytest.raises(ConfigError, match="^positions: expected none with a KV cache"):
            multi_head_attention_decode(
                x[:, :1], kv_cache=kv_cache, positions=np.array([7]), **options
            )


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtypes(x, params, rng, dtype):
    gains = {"gain_q": rng.normal(size=D_K), "gain_k": rng.normal(size=D_K)}
    wide = gate_of(params, rng, H)._replace(**gains)
    narrow = FullMultiHeadParams(*(array.astype(dtype) for array in wide))
    options = {"qk_norm": QKNormOptions(), "rope": ROPE, **HEADS}
    out, cache = multi_head_attention_forward(x.astype(dtype), params=narrow, **options)
    grads = multi_head_attention_backward(out, cache)
    assert {a.dtype for a in (out, grads.d_x_q, *grads.d_params)} == {np.dtype(dtype)}
    exact = forward(x, params=wide, qk_norm=QKNormOptions(), rope=ROPE)
    assert np.abs(out - exact).max() < 50 * float(np.finfo(dtype).eps)


def test_no_tokens(params, rng):
    p, options = gate_of(params, rng, H), {"qk_norm": QKNormOptions(), "rope": ROPE, **HEADS}
    for shape in ((0, T, D), (B, 0, D)):
        out, cache = multi_head_attention_forward(np.zeros(shape), params=p, **options)
        grads = multi_head_attention_backward(out, cache)
        assert (out.shape, grads.d_x_q.shape) == (shape, shape)
        assert not grads.d_params.w_gate.any()


def test_nan_stays_in_its_token(x, params, rng):
    p, options = gate_of(params, rng, H), {"qk_norm": QKNormOptions(), "is_causal": True}
    spoilt = x.copy()
    spoilt[1, 2] = np.nan
    out = forward(spoilt, params=p, **options)
    assert_close(out[0], forward(x, params=p, **options)[0])
    assert_close(out[1, :2], forward(x, params=p, **options)[1, :2])
    assert np.isnan(out[1, 2:]).all()
