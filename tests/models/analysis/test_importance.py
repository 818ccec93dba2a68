"""How much a head matters, against losses with gates moved; how much is taken, against a loop."""

import numpy as np
import pytest

from mha_numpy.layers import MultiHeadAttention, cross_entropy_forward
from mha_numpy.models import Translator
from mha_numpy.models.analysis import (
    attention_layers,
    gate_gradients,
    head_importance,
    weights_times_norm,
)
from mha_numpy.models.train import IGNORED, Batch, loss_and_gradients
from tests.compare import assert_close
from tests.gradients import randomize

SOURCE = np.array([[3, 4, 5, 0], [3, 3, 4, 6], [5, 6, 4, 3]])
TARGET = np.array([[1, 8, 2], [1, 5, 3], [1, 7, 4]])
ASKED = np.array([[8, 2, IGNORED], [5, 3, 2], [IGNORED, 4, 2]])


@pytest.fixture
def model(rng):
    return randomize(Translator(7, 9, 6, embed_dim=8, num_heads=2, dropout_p=0.5, rng=0), rng)


def differentiate(model):
    """Run forward and backward from the mean loss."""
    return loss_and_gradients(model, Batch((SOURCE, TARGET), ASKED))


def test_by_hand():
    # each head takes one of two numbers, and w_o adds them: with gates, out = g_0 x_0 + g_1 x_1
    layer = MultiHeadAttention(2, 2, bias=False)
    layer.params |= {"w_v": np.eye(2), "w_o": np.array([[1.0, 0], [1, 0]])}
    x = np.array([[[3.0, -5]], [[-2, 6]], [[1, -4]]])  # one token attends to itself alone
    d_out = np.array([[[1.0, 9]], [[1, 9]], [[2, 9]]])

    def run():
        for rows in (slice(1), slice(1, 3)):  # two batches
            layer(x[rows])
            layer.backward(d_out[rows])

    assert_close(gate_gradients(layer, run)[""], [[3, -5], [-2, 6], [2, -8]])
    assert_close(head_importance(layer, run)[""], [7, 19])
    assert_close(head_importance(layer, run, each_sequence=False)[""], [3, 7])
    normalized = head_importance(layer, run, normalize=True)[""]
    assert_close(normalized, np.array([7, 19]) / np.sqrt(7**2 + 19**2))
    layer.params["w_o"][:] = 0  # no head matters
    assert_close(head_importance(layer, run, normalize=True)[""], [0, 0])


def test_gradients_are_the_slopes_of_each_sequences_loss(model):
    found = gate_gradients(model, lambda: differentiate(model))
    assert model.training
    assert not any(layer.grads for layer in model.layers())
    layers = attention_layers(model)
    assert list(found) == list(layers)
    assert len(layers) == 3
    model.eval()

    def losses():
        """Return each sequence's share in the mean loss."""
        logits = model(SOURCE, TARGET)
        shares = [
            cross_entropy_forward(one, asked, ignore_index=IGNORED)[0] * (asked != IGNORED).sum()
            for one, asked in zip(logits, ASKED, strict=True)
        ]
        return np.array(shares) / (ASKED != IGNORED).sum()

    for name, layer in layers.items():
        assert layer.head_gate is None
        for h in range(2):
            both = []
            for sign in (-1, 1):
                layer.head_gate = np.ones(2)
                layer.head_gate[h] += sign * 1e-5
                both.append(losses())
            layer.head_gate = None
            assert found[name][:, h] == pytest.approx((both[1] - both[0]) / 2e-5, rel=1e-6)


def test_a_gate_that_is_there_stays(model):
    model.eval()
    layer = model.decoder[0].cross_attention.layer
    layer.head_gate = gate = np.array([0.0, 1.0])
    without = head_importance(model, lambda: differentiate(model))
    assert layer.head_gate is gate
    assert not model.training
    layer.params["w_o"][:4] = 0  # the rows of head 0
    layer.head_gate = None
    again = head_importance(model, lambda: differentiate(model))
    for name, importance in without.items():
        assert_close(importance[1:], again[name][1:])
    assert again["decoder.0.cross_attention.layer"][0] == 0


def test_an_error_leaves_the_model_as_it_was(model):
    with pytest.raises(ZeroDivisionError):
        head_importance(model, lambda: differentiate(model) / 0)
    assert model.training
    for layer in attention_layers(model).values():
        assert layer.head_gate is None
        assert not layer.grads
        assert "forward" not in vars(layer)


def test_weights_times_norm(rng):
    layer = randomize(MultiHeadAttention(12, 4, num_kv_heads=2, value_dim=5), rng)
    x = rng.normal(size=(3, 6, 12))
    layer(x, is_causal=True)
    values = x @ layer.params["w_v"] + layer.params["b_v"]
    for h in range(4):
        g = h // 2
        taken = values[..., 5 * g : 5 * (g + 1)] @ layer.params["w_o"][5 * h : 5 * (h + 1)]
        lengths = np.sqrt((taken**2).sum(axis=-1))
        expected = layer.weights[:, h] * lengths[:, None, :]
        assert_close(weights_times_norm(layer)[:, h], expected)
