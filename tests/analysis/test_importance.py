"""How much a head matters, against losses with gates moved; how much is taken, against a loop."""

import numpy as np
import pytest

from mha_numpy.analysis import head_importance, weights_times_norm
from mha_numpy.blocks import cross_entropy_forward
from mha_numpy.errors import MhaError
from mha_numpy.models import Translator
from mha_numpy.nn import MultiHeadAttention
from mha_numpy.train import IGNORED, Batch
from tests.compare import assert_close
from tests.gradients import randomize

SOURCE = np.array([[3, 4, 5, 0], [3, 3, 4, 6], [5, 6, 4, 3]])
TARGET = np.array([[1, 8, 2], [1, 5, 3], [1, 7, 4]])
ASKED = np.array([[8, 2, IGNORED], [5, 3, 2], [IGNORED, 4, 2]])


def test_importance_is_the_slope_of_each_sequences_loss(rng):
    model = Translator(7, 9, 6, embed_dim=8, num_heads=2, dropout_p=0.5)
    randomize(model, rng)
    found = head_importance(model, Batch((SOURCE, TARGET), ASKED))
    assert model.training
    assert not any(layer.grads for layer in model.layers())
    layers = {
        name: layer for name, layer in model.named_layers() if isinstance(layer, MultiHeadAttention)
    }
    assert found.keys() == layers.keys()
    assert len(layers) == 3
    model.eval()

    def losses():
        """Return the sum of each sequence's losses."""
        logits = model(SOURCE, TARGET)
        return np.array([
            cross_entropy_forward(one, asked, ignore_index=IGNORED)[0] * (asked != IGNORED).sum()
            for one, asked in zip(logits, ASKED, strict=True)
        ])  # fmt: skip

    for name, layer in layers.items():
        assert layer.head_gate is None
        for h in range(2):
            both = []
            for sign in (-1, 1):
                layer.head_gate = np.ones(2)
                layer.head_gate[h] += sign * 1e-5
                both.append(losses())
            layer.head_gate = None
            slopes = (both[1] - both[0]) / 2e-5
            expected = np.abs(slopes).sum() / (ASKED != IGNORED).sum()
            assert found[name][h] == pytest.approx(expected, rel=1e-6)


def test_a_gate_that_is_there_stays(rng):
    model = randomize(Translator(7, 9, 6, embed_dim=8, num_heads=2), rng).eval()
    layer = model.decoder[0].cross_attention.layer
    layer.head_gate = gate = np.array([0.0, 1.0])
    batch = Batch((SOURCE, TARGET), ASKED)
    without = head_importance(model, batch)
    assert layer.head_gate is gate
    assert not model.training
    layer.params["w_o"][:4] = 0  # the rows of head 0
    layer.head_gate = None
    again = head_importance(model, batch)
    for name, importance in without.items():
        assert_close(importance[1:], again[name][1:])
    assert again["decoder.0.cross_attention.layer"][0] == 0


def test_weights_times_norm(rng):
    layer = randomize(MultiHeadAttention(12, 4, num_kv_heads=2, value_dim=5), rng)
    with pytest.raises(MhaError, match="expected a forward before"):
        weights_times_norm(layer)
    x = rng.normal(size=(3, 6, 12))
    layer(x, is_causal=True)
    values = x @ layer.params["w_v"] + layer.params["b_v"]
    for h in range(4):
        g = h // 2
        taken = values[..., 5 * g : 5 * (g + 1)] @ layer.params["w_o"][5 * h : 5 * (h + 1)]
        lengths = np.sqrt((taken**2).sum(axis=-1))
        expected = layer.weights[:, h] * lengths[:, None, :]
        assert_close(weights_times_norm(layer)[:, h], expected)
