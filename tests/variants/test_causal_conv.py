"""The short causal convolution with its state."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from mha_numpy.checking.tracing import trace
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.variants import causal_conv_backward, causal_conv_forward, causal_conv_jvp
from tests.compare import assert_close
from tests.gradients import assert_gradients
from tests.slopes import assert_forward_mode


def draw(rng, leading=(2,), T=6, K=4, D=3, *, bias=True, state=True):
    drawn = {"x": rng.normal(size=(*leading, T, D)), "w": rng.normal(size=(K, D))}
    if bias:
        drawn["b"] = rng.normal(size=D)
    if state:
        drawn["state"] = rng.normal(size=(*leading, K - 1, D))
    return drawn


def test_two_features_by_hand():
    x, w = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[10.0, 0.0], [1.0, -1.0]])
    state = np.array([[5.0, 7.0]])
    out, cache = causal_conv_forward(x, w, np.array([0.5, 0.0]), state=state)
    assert_close(out, [[51.5, -2.0], [13.5, -4.0]])
    assert_close(cache.final_state, [[3.0, 4.0]])
    out, _ = causal_conv_forward(x, w, state=state, activation="silu")
    assert_close(out[:, 1], [-2 / (1 + np.exp(2)), -4 / (1 + np.exp(4))])
    grads = causal_conv_backward(np.array([[1.0, 0.0], [1.0, 0.0]]), cache)
    assert_close(grads.d_x, [[11.0, 0.0], [1.0, 0.0]])
    assert_close(grads.d_w, [[5.0 + 1.0, 0.0], [1.0 + 3.0, 0.0]])
    assert_close(grads.d_b, [2.0, 0.0])
    assert_close(grads.d_state, [[10.0, 0.0]])


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize(
    "options", [{}, {"T": 2}, {"K": 1, "leading": ()}, {"bias": False, "leading": (2, 2)}]
)
def test_gradients_of_output_and_final_state(rng, activation, options):
    def forward(**inputs):
        out, cache = causal_conv_forward(**inputs, activation=activation)
        return np.concatenate([out, cache.final_state], axis=-2), cache

    def backward(d_both, cache):
        d_out, d_state = np.split(d_both, [cache.conv.shape[-2]], axis=-2)
        return causal_conv_backward(d_out, cache, d_final_state=d_state)

    assert_gradients(forward, backward, draw(rng, **options))


def test_without_a_state_it_starts_from_zeros(rng):
    inputs = draw(rng, state=False)
    out, cache = causal_conv_forward(**inputs)
    zeros = np.zeros((2, 3, 3))
    assert_close(out, causal_conv_forward(**inputs, state=zeros)[0], "exact")
    assert causal_conv_backward(out, cache).d_state.shape == zeros.shape


@pytest.mark.parametrize("cuts", [[0, 1, 2, 6], [0, 4, 6], [0, 0, 6]])
def test_a_text_in_parts_is_the_whole_text(rng, cuts):
    inputs = draw(rng)
    out, cache = causal_conv_forward(**inputs, activation="silu")
    x, state, parts = inputs.pop("x"), inputs.pop("state"), []
    for first, last in pairwise(cuts):
        part, own = causal_conv_forward(x[:, first:last], **inputs, state=state, activation="silu")
        parts.append(part)
        state = own.final_state
    assert_close(np.concatenate(parts, axis=1), out)
    assert_close(state, cache.final_state, "exact")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble])
def test_dtypes(rng, dtype):
    wide = draw(rng)
    out, cache = causal_conv_forward(**{n: x.astype(dtype) for n, x in wide.items()})
    expected, wide_cache = causal_conv_forward(**wide)
    tolerance = {np.float16: "float16", np.float32: "float32"}.get(dtype, "float64")
    for found, exact in zip(
        (out, *causal_conv_backward(out, cache)),
        (expected, *causal_conv_backward(expected, wide_cache)),
        strict=True,
    ):
        assert found.dtype == dtype
        assert_close(found, exact, tolerance)


def test_nan_reaches_the_next_tokens_only(rng):
    inputs = draw(rng, T=9)
    clean, _ = causal_conv_forward(**inputs, activation="silu")
    inputs["x"][1, 2, 0] = np.nan
    out, _ = causal_conv_forward(**inputs, activation="silu")
    assert np.isnan(out[1, 2:6, 0]).all()
    out[1, 2:6, 0] = clean[1, 2:6, 0]
    assert_close(out, clean, "exact")


def test_large_numbers_do_not_overflow_in_silu():
    x = np.array([[-1e4], [1e4]])
    out, cache = causal_conv_forward(x, np.ones((1, 1)), activation="silu")
    assert_close(out, [[0.0], [1e4]], "exact")
    assert_close(causal_conv_backward(out, cache).d_x, [[0.0], [1e4]], "exact")


@pytest.mark.parametrize("empty", [{"T": 0}, {"D": 0}, {"leading": (0,)}])
def test_empty_axes(rng, empty):
    inputs = draw(rng, **empty)
    out, cache = causal_conv_forward(**inputs, activation="silu")
    grads = causal_conv_backward(out, cache)
    for gradient, array in zip(grads, inputs.values(), strict=True):
        assert gradient.shape == array.shape
    assert cache.final_state.shape == inputs["state"].shape


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("leading", [(), (2,), (2, 5)])
def test_equations_of_a_trace(rng, activation, leading):
    inputs = draw(rng, leading, bias=len(leading) > 0)
    with trace() as t:
        out, cache = causal_conv_forward(**inputs, activation=activation)
        d_final = rng.normal(size=cache.final_state.shape) if leading else None
        causal_conv_backward(rng.normal(size=out.shape), cache, d_final_state=d_final)
    for step in t:
        if step.equation:
            assert_close(t.evaluate(step), step.array, name=f"{step.name} = {step.equation}")
    given = {"x", "state", "d_out", *(["d_final_state"] if leading else [])}
    assert {step.name for step in t if not step.equation} == given
    assert t.sizes["D"] == 3


def test_wrong_input(rng):
    inputs = draw(rng)
    for wrong, error, message in (
        ({"state": inputs["state"][:, 1:]}, ShapeError, r"^state: expected .*\(2, 3, 3\) to match"),
        ({"w": inputs["w"][:0]}, ShapeError, "^x, w: expected .*K >= 1"),
        ({"x": np.ones(3)}, ShapeError, "^x: expected"),
        ({"b": np.ones(4)}, ShapeError, r"^b: expected \(D=3,\)"),
        ({"activation": "relu"}, ConfigError, "^activation: expected one of .*silu"),
    ):
        with pytest.raises(error, match=message):
            causal_conv_forward(**inputs | wrong)
    out, cache = causal_conv_forward(**inputs)
    with pytest.raises(ShapeError, match=r"^d_final_state: expected \(2, 3, 3\), as final_state"):
        causal_conv_backward(out, cache, d_final_state=out)


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("given", [{}, {"T": 2}, {"bias": False, "state": False}])
def test_forward_mode(rng, activation, given):
    forward = partial(causal_conv_forward, activation=activation)
    assert_forward_mode(forward, causal_conv_jvp, causal_conv_backward, draw(rng, **given))
