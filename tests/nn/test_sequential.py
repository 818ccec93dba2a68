import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.nn import Activation, LayerNorm, Linear, Sequential
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sequential(), "parts: expected at least one layer; got none"),
        (lambda: Sequential(Linear(2, 2), np.tanh), r"parts\[1\]: expected a Layer, such as"),
        (lambda: Activation("swiglu"), r"activation: expected one of \('relu', 'gelu', 'gelu_t"),
    ],
)
def test_what_is_no_part(make, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        make()
