"""Each layer is its pair with params of its own."""

from functools import partial

import numpy as np
import pytest

from mha_numpy import core, layers
from mha_numpy.errors import MhaError, ShapeError
from mha_numpy.layers import (
    DecoderBlock,
    Dropout,
    Embedding,
    FeedForward,
    FeedForwardParams,
    LayerNorm,
    LearnedPositions,
    Linear,
    MultiHeadAttention,
    Residual,
    RMSNorm,
)
from mha_numpy.models import GPT2, AttentionOnlyLM, Bert, TransformerLM, Translator
from tests.compare import assert_close
from tests.gradients import randomize

X, IDS = np.random.default_rng(1).normal(size=(2, 5, 7)), np.array([[3, 0, 3], [1, 2, 3]])


LAYERS = [  # a layer, its input, its pair and the pair's options
    (Linear(7, 3), X, "linear", {}),
    (Linear(7, 3, bias=False), X, "linear", {}),
    (LayerNorm(7, eps=0.3), X, "layer_norm", {"eps": 0.3}),
    (LayerNorm(7, bias=False), X, "layer_norm", {}),
    (RMSNorm(7, eps=0.3), X, "rms_norm", {"eps": 0.3}),
    (Embedding(4, 7), IDS, "embedding", {}),
    (LearnedPositions(6, 7), X, "learned_positions", {}),
    (FeedForward(7, 9, activation="relu", bias=False), X, "feed_forward", {"activation": "relu"}),
    *[
        (FeedForward(7, 9, activation=name), X, "feed_forward", {"activation": name})
        for name in ("gelu", "gelu_tanh", "swiglu")
    ],
]


@pytest.mark.parametrize(("layer", "x", "name", "options"), LAYERS, ids=str)
def test_equals_its_pair(layer, x, name, options, rng):
    room = core if name == "linear" else layers
    forward, backward = (getattr(room, f"{name}_{way}") for way in ("forward", "backward"))
    randomize(layer, rng)
    params = layer.params
    if name == "feed_forward":
        params = {"params": FeedForwardParams(*map(params.get, FeedForwardParams._fields))}
    out = layer(x)
    expected, cache = forward(x, **params, **options)
    assert_close(out, expected, "exact")
    d_out = rng.normal(size=out.shape)
    layer.zero_grads()
    d_x = layer.backward(d_out)
    grads = backward(d_out, cache)._asdict()
    if "d_params" in grads:
        grads |= {f"d_{param}": g for param, g in grads.pop("d_params")._asdict().items()}
    if name != "embedding":
        assert_close(d_x, grads.pop("d_x"), "exact")
    expected = {param[2:]: gradient for param, gradient in grads.items() if gradient is not None}
    assert set(expected) == set(layer.grads) == set(layer.params)
    for param, gradient in expected.items():
        assert_close(layer.grads[param], gradient, "exact")


class TestDropout:
    def test_draws_by_its_generator_and_scales_what_is_kept(self):
        layer = Dropout(0.25, rng=3)
        x = np.full((100, 100), 3.0)
        out = layer(x)
        assert_close(np.unique(out), [0, 4])
        assert abs((out == 0).mean() - 0.25) < 0.02
        assert_close(Dropout(0.25, rng=3)(x), out, "exact")
        assert (layer(x) != out).any()  # anew each time

    def test_the_gradient_passes_where_x_did(self, rng):
        layer, x = Dropout(0.5), rng.normal(size=(4, 5))
        out = layer(x)
        assert_close(layer.backward(x), out)

    @pytest.mark.parametrize("layer", [Dropout(0.5).eval(), Dropout(0.0)])
    def test_drops_nothing(self, layer, rng):
        x = rng.normal(size=(4, 5))
        assert_close(layer(x), x, "exact")
        assert_close(layer.backward(2 * x), 2 * x, "exact")

    def test_float32_stays(self):
        assert Dropout(0.5)(np.ones(3, np.float32)).dtype == np.float32


@pytest.mark.parametrize("layer", [
    Linear(7, 7), LayerNorm(7), RMSNorm(7), Embedding(4, 7), LearnedPositions(6, 7),
    FeedForward(7), Dropout(0.5), Dropout(), DecoderBlock(8, 2),
], ids=lambda layer: type(layer).__name__)  # fmt: skip
def test_backward_before_forward(layer):
    with pytest.raises(MhaError, match="^backward: expected a forward before it"):
        layer.backward(np.ones((2, 5, 8 if isinstance(layer, DecoderBlock) else 7)))


def test_offset_of_positions(rng):
    layer = LearnedPositions(6, 7)
    assert_close(layer(X[:, 2:], offset=2), layer(X)[:, 2:], "exact")
    with pytest.raises(ShapeError, match="x: expected at most N=6 positions"):
        layer(X, offset=2)


def test_params_begin_as_they_should():
    w = Linear(100, 50, rng=1).params["w"]
    assert 0.099 < np.abs(w).max() <= 0.1
    assert_close(Linear(100, 50, rng=np.random.default_rng(1)).params["w"], w, "exact")
    table = Embedding(300, 40, rng=1).params["table"]
    assert abs(table.std() / 0.02 - 1) < 0.05
    layer = FeedForward(100, rng=1)
    assert layer.params["w_in"].shape == (100, 400)
    assert 0.049 < np.abs(layer.params["w_out"]).max() <= 0.05  # 1 / sqrt(400)
    assert not layer.params["b_in"].any()


def drawn(layer):
    """Return all that a layer has drawn, and what it draws next."""
    generators = [part.rng.random(8) for part in layer.layers() if hasattr(part, "rng")]
    return np.concatenate([array.ravel() for _, array in layer.named_params()] + generators)


@pytest.mark.parametrize("make", [
    partial(Linear, 3, 3), partial(Embedding, 3, 3), partial(LearnedPositions, 3, 3),
    partial(FeedForward, 3), partial(Dropout, 0.5), partial(MultiHeadAttention, 4, 2),
    partial(Residual, Linear(3, 3, rng=0), LayerNorm(3)), partial(DecoderBlock, 4, 2),
    partial(AttentionOnlyLM, 5, 3, embed_dim=4), partial(TransformerLM, 5, 3, embed_dim=4),
    partial(Translator, 5, 5, 3, embed_dim=4), partial(GPT2, 5, 3, embed_dim=4),
    partial(Bert, 5, 3, embed_dim=4, num_heads=2, num_layers=2),
], ids=lambda make: make.func.__name__)  # fmt: skip
def test_only_a_seed_draws_the_same_again(make):
    assert_close(drawn(make(rng=1)), drawn(make(rng=np.random.default_rng(1))), "exact")
    assert (drawn(make(rng=1)) != drawn(make(rng=2))).any()
    assert (drawn(make()) != drawn(make())).any()
    same = [layer for layer in make(rng=1).layers() if isinstance(layer, (Linear, FeedForward))]
    firsts = [next(iter(layer.params.values())).flat[0] for layer in same]
    assert len(set(firsts)) == len(same)  # one seed does not make the parts alike
