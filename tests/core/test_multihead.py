import numpy as np
import pytest

from mha_numpy import (
    MultiHeadParams,
    attention_forward,
    attention_stages,
    multi_head_attention_backward,
    multi_head_attention_forward,
)
from tests.compare import assert_close

pytestmark = pytest.mark.usefixtures("backend")


def random_params(rng, *shapes):
    """Return params of the four projections, each of shape (inputs, outputs)."""
    arrays = [(rng.normal(size=shape) / np.sqrt(shape[0]), rng.normal(size=shape[1]))
              for shape in shapes]  # fmt: skip
    return MultiHeadParams(*(array for w_and_b in arrays for array in w_and_b))


def square_params(rng, D, H_kv_times_d):
    return random_params(rng, (D, D), (D, H_kv_times_d), (D, H_kv_times_d), (D, D))


@pytest.fixture
def params(rng, sizes):
    """Params of grouped cross-attention with three input widths and non-zero biases."""
    s = sizes
    shapes = (s.D, s.H * s.d_k), (19, s.H_kv * s.d_k), (23, s.H_kv * s.d_v), (s.H * s.d_v, s.D)
    return random_params(rng, *shapes)


@pytest.fixture
def inputs(rng, sizes):
    s = sizes
    return tuple(rng.normal(size=(s.B, T, n)) for T, n in ((s.T_q, s.D), (s.T_k, 19), (s.T_k, 23)))


def test_equals_head_after_head(inputs, params, sizes):
    s, p = sizes, params
    x_q, x_k, x_v = inputs
    out, _ = multi_head_attention_forward(
        x_q, x_k, x_v, params=params, num_heads=s.H, num_kv_heads=s.H_kv, is_causal=True
    )
    expected = np.zeros((s.B, s.T_q, s.D)) + p.b_o
    for h in range(s.H):
        q_columns = slice(h * s.d_k, (h + 1) * s.d_k)
        g = h // (s.H // s.H_kv)
        k_columns, v_columns = (slice(g * d, (g + 1) * d) for d in (s.d_k, s.d_v))
        head, _ = attention_forward(
            x_q @ p.w_q[:, q_columns] + p.b_q[q_columns],
            x_k @ p.w_k[:, k_columns] + p.b_k[k_columns],
            x_v @ p.w_v[:, v_columns] + p.b_v[v_columns],
            is_causal=True,
        )
        expected += head @ p.w_o[h * s.d_v : (h + 1) * s.d_v]
    assert_close(out, expected)


def test_self_attention_collects_three_branches(rng):
    params = square_params(rng, 12, 6)
    x, d_out = rng.normal(size=(2, 5, 12)), rng.normal(size=(2, 5, 12))
    options = {"params": params, "num_heads": 4, "num_kv_heads": 2}
    out, cache = multi_head_attention_forward(x, **options)
    apart, apart_cache = multi_head_attention_forward(x, x.copy(), x.copy(), **options)
    assert_close(out, apart)
    grads = multi_head_attention_backward(d_out, cache)
    branches = multi_head_attention_backward(d_out, apart_cache)
    assert grads.d_x_k is None
    assert grads.d_x_v is None
    assert_close(grads.d_x_q, branches.d_x_q + branches.d_x_k + branches.d_x_v)
    half, half_cache = multi_head_attention_forward(x, x.copy(), **options)
    half_grads = multi_head_attention_backward(d_out, half_cache)
    assert_close(half_grads.d_x_k, branches.d_x_k + branches.d_x_v)
    assert half_grads.d_x_v is None
    value_only, value_cache = multi_head_attention_forward(x, None, x.copy(), **options)
    value_grads = multi_head_attention_backward(d_out, value_cache)
    assert_close(value_grads.d_x_q, branches.d_x_q + branches.d_x_k)
    assert_close(value_grads.d_x_v, branches.d_x_v)


def test_cross_attention_reacts_to_its_source(inputs, params, sizes):
    options = {"params": params, "num_heads": sizes.H, "num_kv_heads": sizes.H_kv}
    x_q, x_k, x_v = inputs
    out, _ = multi_head_attention_forward(x_q, x_k, x_v, **options)
    for moved in ((x_q, x_k + 1.0 * (np.arange(7)[:, None] == 2), x_v), (x_q, x_k, x_v + 1)):
        assert np.abs(multi_head_attention_forward(*moved, **options)[0] - out).max() > 1e-3


def test_a_key_bias_changes_nothing_and_its_gradient_is_0(inputs, params, sizes, rng):
    options = {"num_heads": sizes.H, "num_kv_heads": sizes.H_kv}
    out, cache = multi_head_attention_forward(*inputs, params=params, **options)
    without, other = multi_head_attention_forward(
        *inputs, params=params._replace(b_k=None), **options
    )
    assert_close(out, without, "framework")
    scores, other_scores = (attention_stages(c.attention).scores for c in (cache, other))
    assert np.abs(scores - other_scores).max() > 0.1
    d_params = multi_head_attention_backward(rng.normal(size=out.shape), cache).d_params
    assert np.abs(d_params.b_k).max() < 1e-10 < np.abs(d_params.b_q).max()


def test_without_biases(inputs, params, sizes, rng):
    bare = MultiHeadParams(params.w_q, None, params.w_k, None, params.w_v, None, params.w_o, None)
    zero = MultiHeadParams(*(x * (x.ndim > 1) for x in params))
    options = {"num_heads": sizes.H, "num_kv_heads": sizes.H_kv}
    out, cache = multi_head_attention_forward(*inputs, params=bare, **options)
    assert_close(out, multi_head_attention_forward(*inputs, params=zero, **options)[0])
    d_params = multi_head_attention_backward(rng.normal(size=out.shape), cache).d_params
    assert {name for name, g in d_params._asdict().items() if g is None} == {
        "b_q", "b_k", "b_v", "b_o",
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept(inputs, params, sizes, dtype):
    narrow = MultiHeadParams(*(x.astype(dtype) for x in params))
    options = {"params": narrow, "num_heads": sizes.H, "num_kv_heads": sizes.H_kv}
    out, cache = multi_head_attention_forward(*(x.astype(dtype) for x in inputs), **options)
    grads = multi_head_attention_backward(out, cache)
    assert {x.dtype for x in (out, *grads[:3], *grads.d_params)} == {np.dtype(dtype)}
