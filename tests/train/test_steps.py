import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.nn import LayerNorm
from mha_numpy.train import SGD, Adam, AdamW, clip_gradients, warm_up_cosine


@pytest.mark.parametrize("optimizer", [SGD, Adam, AdamW])
def test_params_move_in_their_own_arrays_and_dtype(optimizer):
    layer = LayerNorm(2).astype(np.float32)
    gain, optimizer = layer.params["gain"], optimizer(layer, 0.1)
    layer.grads["gain"] = np.array([1, -1], np.float32)
    optimizer.step(scale=0.5)
    assert layer.params["gain"] is gain
    np.testing.assert_allclose(gain, [0.95, 1.05], rtol=1e-3)
    remembered = [array.dtype for memory in optimizer.memory.values() for array in memory]
    assert {gain.dtype, *remembered} == {np.dtype(np.float32)}


def test_a_rise_and_half_a_cosine():
    schedule = warm_up_cosine(steps=8, warm_up=2, last=0.2)
    expected = [0.5, 1, 0.2 + 0.8 * 0.75, 0.2 + 0.8 * 0.25, 0.2, 0.2]
    assert [schedule(step) for step in (1, 2, 4, 6, 8, 99)] == pytest.approx(expected)
    assert warm_up_cosine(steps=4)(2) == pytest.approx(0.5)


def test_clipping_shortens_all_gradients_by_one_factor():
    layer = LayerNorm(2)
    layer.grads = {"gain": np.array([2.0, -4.0]), "bias": np.array([4.0, 0.0])}
    assert clip_gradients(layer, 7.0) == 6
    assert clip_gradients(layer, 3.0) == 6
    np.testing.assert_array_equal(layer.grads["gain"], [1, -2])
    np.testing.assert_array_equal(layer.grads["bias"], [2, 0])
    layer.grads = {"gain": np.array([3e30, 4e30], np.float32)}  # whose squares are too large
    assert clip_gradients(layer, 1.0) == pytest.approx(5e30)
    np.testing.assert_allclose(layer.grads["gain"], [0.6, 0.8], rtol=1e-6)


IMPOSSIBLE = {
    "learning_rate": lambda: SGD(LayerNorm(2), 0.0),
    "momentum": lambda: SGD(LayerNorm(2), 0.1, momentum=1.0),
    "betas": lambda: Adam(LayerNorm(2), betas=(0.9, 1.0)),
    "weight_decay": lambda: AdamW(LayerNorm(2), weight_decay=-0.1),
    "warm_up": lambda: warm_up_cosine(10, warm_up=10),
    "max_norm": lambda: clip_gradients(LayerNorm(2), 0.0),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_value_is_named(name):
    with pytest.raises(ConfigError, match=f"^{name}: expected"):
        IMPOSSIBLE[name]()
