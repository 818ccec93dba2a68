"""gradcheck(layer, inputs): all inputs and all params, here and below."""

import numpy as np
import pytest

from mha_numpy.checking import gradcheck
from mha_numpy.errors import ConfigError
from mha_numpy.layers import (
    EncoderDecoderBlock,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    Residual,
)
from mha_numpy.models import GPT2, Bert, TransformerLM

IDS = np.array([[3, 0, 2], [2, 2, 1]])
SIZES = {"embed_dim": 4, "num_heads": 2, "rng": 0}
DIRECTIONS = {"max_full": 0, "samples": 0, "directions": 1}


class Halved(FeedForward):
    """A feed-forward network of which one gradient is half as large as it should be."""

    def __init__(self, wrong):
        super().__init__(4, 6, rng=0)
        self.wrong = wrong

    def backward(self, d_out):
        d_x = super().backward(d_out)
        if self.wrong == "x":
            return d_x / 2
        self.grads[self.wrong] /= 2
        return d_x


def failed(report):
    return {row.name for row in report.rows if not row.passed}


@pytest.mark.parametrize("spelled", [dict, lambda inputs: list(inputs.values())])
def test_inputs_and_params_by_both_methods(rng, spelled):
    layer = MultiHeadAttention(8, 4, 2, kdim=6, rng=0)
    inputs = {"query": rng.normal(size=(2, 3, 8)), "key": rng.normal(size=(2, 5, 6))}
    report = gradcheck(layer, spelled(inputs))
    assert report
    names = {*(f"params.{name}" for name in layer.params), *inputs}
    assert set(report.errors("central")) == set(report.errors("complex step")) == names
    assert max(report.errors("complex step").values()) < 1e-12


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (GPT2(5, 3, **SIZES).astype(np.float32), [IDS]),
        (Bert(5, 3, num_layers=1, dropout_p=0.3, **SIZES), {"ids": IDS, "mask": IDS > 0}),
        (EncoderDecoderBlock(4, 2, rng=0), {"x": np.eye(4)[None], "memory": np.eye(4)[None]}),
    ],
    ids=lambda case: type(case).__name__,
)
def test_models_and_blocks(layer, inputs):
    report = gradcheck(layer, inputs, **DIRECTIONS)
    assert report, str(report)
    names = {f"params.{name}" for name, _ in layer.named_params()}
    assert {row.name for row in report.rows} - {"x", "memory"} == names


@pytest.mark.parametrize("wrong", ["x", "w_in", "b_in", "w_out", "b_out"])
def test_a_wrong_backward_fails(rng, wrong):
    report = gradcheck(Halved(wrong), {"x": rng.normal(size=(2, 3, 4))})
    assert {name.removeprefix("params.") for name in failed(report)} == {wrong}


def test_a_wrong_backward_fails_deep_in_a_model():
    model = TransformerLM(5, 3, **SIZES)
    model.blocks[1].feed_forward.layer = Halved("w_in")
    report = gradcheck(model, {"ids": IDS}, **DIRECTIONS)
    assert failed(report) == {"params.blocks.1.feed_forward.layer.w_in"}


def test_the_layer_is_left_alone(rng):
    layer, x = FeedForward(4, 6, rng=0), rng.normal(size=(2, 3, 4))
    layer.backward(layer(x))
    model = Residual(layer, LayerNorm(4), dropout_p=0.5, rng=1)
    arrays, cache = [*layer.params.values(), *layer.grads.values()], layer._cache
    copies, state = [array.copy() for array in arrays], model.dropout.rng.bit_generator.state
    assert gradcheck(model, {"x": x})
    now = [*layer.params.values(), *layer.grads.values()]
    assert all(array is before for array, before in zip(now, arrays, strict=True))
    assert all(np.array_equal(array, copy) for array, copy in zip(now, copies, strict=True))
    assert layer._cache is cache
    assert model.dropout.rng.bit_generator.state == state


LAYER, X = FeedForward(4, rng=0), np.ones((2, 3, 4))
TWICE = r"backward: expected none with a layer, .*; got its own; write gradcheck\(layer, inputs\)$"
THOSE = r"inputs: expected those of FeedForward\(x\); got"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((LAYER, LAYER.backward, {"x": X}), TWICE),
        ((LAYER.forward, LAYER.backward, [X]), TWICE),
        ((LAYER, {"query": X}), rf"{THOSE} \['query'\]$"),
        ((LAYER, [X, X]), f"{THOSE} 2$"),
        ((LAYER, X), r"inputs: expected a dict, tuple or list; got an array \(2, 3, 4\)"),
        ((np.exp, [X]), r"inputs: expected gradcheck\(forward, backward, inputs\), or .*exp"),
    ],
)
def test_how_a_layer_is_not_checked(given, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        gradcheck(*given)
