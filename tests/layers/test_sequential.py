import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.layers import (
    Activation,
    EncoderBlock,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    Residual,
    Sequential,
)
from tests.compare import assert_close
from tests.gradients import assert_layer_gradients


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_gradients_of_layers_one_after_the_other(activation, rng):
    parts = Linear(3, 5, rng=0), Activation(activation), LayerNorm(5), Linear(5, 2, rng=1)
    layer = Sequential(*parts)
    assert_layer_gradients(layer, {"x": rng.normal(size=(2, 4, 3))})
    names = [name for name, _ in layer.named_params()]
    assert names[0] == "parts.0.w"
    assert names[-1] == "parts.3.b"


def test_the_order_is_that_of_the_arguments(rng):
    x, (first, second) = rng.normal(size=(4, 3)), (Linear(3, 3, rng=i) for i in (0, 1))
    assert_close(Sequential(first, second)(x), second(first(x)), "exact")
    assert np.array_equal(Activation("relu")(x), np.maximum(x, 0))


def test_gradients_through_parts_whose_backward_returns_a_tuple(rng):
    attention = MultiHeadAttention(4, 2, rng=0)
    residual = Residual(MultiHeadAttention(4, 2, rng=1), LayerNorm(4))
    layer = Sequential(Linear(3, 4, rng=2), attention, residual, EncoderBlock(4, 2, rng=3))
    assert_layer_gradients(layer, {"x": rng.normal(size=(2, 5, 3))})


def test_parts_by_number(rng):
    first, *_, last = parts = Linear(3, 5), Activation("relu"), Linear(5, 2)
    layer, x = Sequential(*parts), rng.normal(size=(4, 3))
    assert (len(layer), list(layer), layer[0], layer[-1]) == (3, list(parts), first, last)
    assert layer[1:].parts == layer.parts[1:]
    assert_close(layer[1:](layer[0](x)), layer(x), "exact")
    with pytest.raises(IndexError):
        layer[3]
    with pytest.raises(ConfigError, match="^parts: expected at least one layer; got none"):
        layer[3:]
