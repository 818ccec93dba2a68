from functools import partial

import numpy as np
import pytest

from mha_numpy.variants import (
    DifferentialParams,
    differential_attention_backward,
    differential_attention_forward,
    differential_attention_jvp,
)
from mha_numpy.variants.differential import DIFFERENCE
from tests.checking.tracing.whole import assert_whole, trace_both
from tests.compare import assert_close
from tests.gradients import assert_gradients
from tests.slopes import assert_forward_mode, assert_slopes, random_tangents, slopes

LAMBDAS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
B, H, H_KV, T_Q, T_K, D, D_V, INIT = 2, 6, 3, 4, 5, 7, 8, 0.3


def draw(rng, rank=4, has_gain=True, tokens=(T_Q, T_K)):
    """Return two queries, two keys, the values and params, of one rank."""
    T_q, T_k = tokens
    shapes = {"q1": (B, H, T_q, D), "k1": (B, H_KV, T_k, D), "q2": (B, H, T_q, D),
              "k2": (B, H_KV, T_k, D), "v": (B, H_KV, T_k, D_V)}  # fmt: skip
    arrays = {
        name: rng.normal(size=(*shape[: rank - 2][: 1 if rank == 3 else 2], *shape[2:]))
        for name, shape in shapes.items()
    }
    gain = rng.normal(size=D_V) if has_gain else None
    return arrays, DifferentialParams(*rng.normal(size=(4, D)) / 2, gain)


def softmax(scores):
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


def test_one_key_by_hand():
    """Both softmaxes are 1, so that 1 - share of the value is left, and only its sign survives."""
    one, v = np.ones((1, 2)), np.array([[3.0, -4.0]])
    of_length_1 = 0.8 * v / np.sqrt(12.5)  # the root of (9 + 16) / 2
    for power, sign in ((0.0, 1), (1.0, -1)):  # share: 0.2, and e^2 - 1 + 0.2 > 1
        params = DifferentialParams(*np.full((2, 2), power), *np.zeros((2, 2)))
        out, cache = differential_attention_forward(
            one, one, one, one, v, params=params, lambda_init=0.2, eps=1e-15
        )
        assert_close(out, sign * of_length_1)
        assert_close(cache.weights, [[1 - (np.exp(2 * power**2) - 1 + 0.2)]])


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_the_published_equations(rng, backend, rank):
    arrays, params = draw(rng, rank)
    out, cache = differential_attention_forward(
        **arrays, params=params, lambda_init=INIT, scale=0.4, is_causal=True, q_offset=1
    )
    q1, k1, q2, k2, v = (
        a.repeat(2, axis=1) if n[0] in "kv" and rank == 4 else a for n, a in arrays.items()
    )
    hidden = np.where(np.tri(T_Q, T_K, 1) == 1, 0, -np.inf)
    p = params
    share = np.exp(p.lambda_q1 @ p.lambda_k1) - np.exp(p.lambda_q2 @ p.lambda_k2) + INIT
    first, second = (
        softmax(0.4 * q @ k.swapaxes(-1, -2) + hidden) for q, k in ((q1, k1), (q2, k2))
    )
    heads = (first - share * second) @ v
    root = np.sqrt((heads**2).mean(axis=-1, keepdims=True) + 1e-5)
    assert_close(out, (1 - INIT) * p.gain * heads / root)
    assert_close(cache.weights, first - share * second)


@pytest.mark.parametrize("has_gain", [True, False])
def test_gradients(rng, backend, has_gain):
    arrays, params = draw(rng, has_gain=has_gain)
    arrays = {name: array[:1] for name, array in arrays.items()}
    options = {"bias": rng.normal(size=(H, 1, T_K)), "sink": rng.normal(size=H),
               "head_gate": rng.normal(size=H)}  # fmt: skip

    def forward(params, **inputs):
        return differential_attention_forward(
            **inputs, params=params, lambda_init=INIT, eps=0.5, softcap=2.0, window=(1, 1)
        )

    inputs = arrays | options | {"params": params}
    assert_gradients(forward, differential_attention_backward, inputs)


@pytest.mark.parametrize("has_gain", [True, False])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_forward_mode(rng, backend, rank, has_gain):
    arrays, params = draw(rng, rank, has_gain)
    inputs = arrays | {"params": params, "bias": rng.normal(size=T_K)}
    if rank == 4:
        inputs |= {"sink": rng.normal(size=H), "head_gate": rng.normal(size=H)}
    forward = partial(
        differential_attention_forward, lambda_init=INIT, eps=0.5, softcap=2.0, window=(1, 1)
    )
    jvp, backward = differential_attention_jvp, differential_attention_backward
    assert_forward_mode(forward, jvp, backward, inputs)


def test_dropout_drops_cells_of_the_difference(rng):
    arrays, params = draw(rng, 2, has_gain=False)
    dropped = (rng.random((T_Q, T_K)) > 0.4) / 0.6
    args = {"params": params, "lambda_init": INIT}
    out, cache = differential_attention_forward(**arrays, **args, dropout_mask=dropped)
    heads = (cache.weights * dropped) @ arrays["v"]
    assert_close(out, 0.7 * heads / np.sqrt((heads**2).mean(axis=-1, keepdims=True) + 1e-5))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_dtype_is_kept_and_close_to_float64(rng, dtype):
    arrays, params = draw(rng)
    d_out = rng.normal(size=(B, H, T_Q, D_V))

    def run(dtype, params_dtype):
        out, cache = differential_attention_forward(
            **{name: a.astype(dtype) for name, a in arrays.items()}, lambda_init=INIT, eps=0.5,
            params=DifferentialParams._make(a.astype(params_dtype) for a in params),
        )  # fmt: skip
        grads = differential_attention_backward(d_out.astype(dtype), cache)
        tangents = {"q1": arrays["q1"].astype(dtype)}
        out_dot = differential_attention_jvp(tangents, cache)
        return [out, *grads[:5], *grads.d_params, out_dot]

    allowed = 30 * float(np.finfo(dtype).eps)
    for found, exact in zip(run(dtype, dtype), run(np.float64, np.float64), strict=True):
        assert found.dtype == dtype
        assert np.abs(found - exact).max() <= allowed * max(1, np.abs(exact).max())
    assert run(dtype, np.float64)[0].dtype == np.float64


@pytest.mark.parametrize("tokens", [(0, 3), (3, 0)])
def test_empty_axes(rng, tokens):
    arrays, params = draw(rng, tokens=tokens)
    out, cache = differential_attention_forward(**arrays, params=params, lambda_init=INIT)
    assert out.shape == (B, H, tokens[0], D_V)
    assert not out.any()
    grads = differential_attention_backward(np.ones(out.shape), cache)
    assert [g.shape for g in grads[:5]] == [a.shape for a in arrays.values()]
    assert not any(g.any() for g in (*grads[:5], *grads.d_params))


def test_rows_that_see_nothing_are_0_and_nan_stays_in_its_rows(rng):
    arrays, params = draw(rng)
    mask = np.arange(T_Q)[:, None] > np.arange(T_K)
    args = {"params": params, "lambda_init": INIT, "mask": mask}
    out, cache = differential_attention_forward(**arrays, **args)
    assert not out[:, :, 0].any()
    odd = arrays | {"k2": arrays["k2"].copy()}
    odd["k2"][0, 1, 2] = np.nan  # seen by the last query
    odd_out, _ = differential_attention_forward(**odd, **args)
    assert np.isnan(odd_out[0, 2:4, 3]).all()
    odd_out[0, 2:4, 3] = out[0, 2:4, 3]
    assert_close(odd_out, out, "exact")


def test_every_equation_of_a_trace_holds(rng):
    for rank in (2, 4):
        arrays, params = draw(rng, rank)
        options = {"bias": rng.normal(size=T_K)}
        if rank == 4:
            options |= {
                "sink": rng.normal(size=H),
                "head_gate": rng.normal(size=H),
                "mask": rng.random((T_Q, T_K)) < 0.7,
            }
        t = trace_both(
            differential_attention_forward, differential_attention_backward, *arrays.values(),
            rng=rng, params=params, lambda_init=INIT, **options,
        )  # fmt: skip
        (d_out,) = (s.array for s in t if s.name == "d_out")
        assert_whole(t, [*arrays.values(), *options.values(), d_out])
        assert t["second.v"] is t["first.v"]


def test_forward_mode_of_the_difference(rng):
    shapes = {"out_1": (B, T_Q, D_V), "out_2": (B, T_Q, D_V), **dict.fromkeys(LAMBDAS, (D,))}
    inputs = {name: rng.normal(size=shape) / 2 for name, shape in shapes.items()}
    tangents = random_tangents(inputs, 0)
    _, cache = DIFFERENCE.forward(**inputs, lambda_init=INIT)
    expected = slopes(lambda **x: DIFFERENCE.forward(**x, lambda_init=INIT)[:1], inputs, tangents)
    assert_slopes([DIFFERENCE.jvp(tangents, cache)], expected)
