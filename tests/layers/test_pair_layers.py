"""Each layer is its pair with params of its own."""

from functools import partial

import numpy as np
import pytest

from mha_numpy.errors import MhaError, ShapeError
from mha_numpy.layers import (
    Activation,
    DecoderBlock,
    Dropout,
    Embedding,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    MixtureOfExperts,
    MultiHeadAttention,
    Residual,
    RMSNorm,
)
from mha_numpy.models import GPT2, AttentionOnlyLM, Bert, TransformerLM, Translator
from tests.compare import assert_close
from tests.layers.pairs import PAIRS, C, D, E, F, N, V

X = np.random.default_rng(1).normal(size=(2, 5, D))
LAYERS = {  # by the name of its pair in the table of pairs
    "linear": Linear(D, F),
    "linear without bias": Linear(D, F, bias=False),
    "layer norm": LayerNorm(D),
    "layer norm without bias": LayerNorm(D, bias=False, eps=0.5),
    "rms norm": RMSNorm(D),
    "rms norm, large eps": RMSNorm(D, eps=0.5),
    "relu": Activation("relu"),
    "gelu": Activation("gelu"),
    "gelu by tanh": Activation("gelu_tanh"),
    "embedding": Embedding(V, D),
    "positions": LearnedPositions(N, D),
    "mixture of experts": MixtureOfExperts(D, F, num_experts=E, num_chosen=C, limit=1.5, alpha=1.3),
    "feed-forward, relu, no biases": FeedForward(D, F, activation="relu", bias=False),
    **{
        f"feed-forward, {name}": FeedForward(D, F, activation=name)
        for name in ("gelu", "gelu_tanh", "swiglu", "geglu_tanh")
    },
}


def named_arrays(fields):
    """Return the arrays of inputs, or of grads, those of params by their own names."""
    params = fields.get("params", fields.get("d_params"))
    fields = fields if params is None else {**fields, **params._asdict()}
    found = {name.removeprefix("d_"): x for name, x in fields.items() if isinstance(x, np.ndarray)}
    return found.pop("x", None), found


@pytest.mark.parametrize("name", LAYERS)
def test_equals_its_pair(name, rng):
    layer, (forward, inputs) = LAYERS[name], PAIRS[name].ready(rng, (2, 5))
    x, drawn = named_arrays(inputs)
    layer.params = drawn
    out, (expected, cache) = layer(forward.keywords.get("ids", x)), forward(**inputs)
    assert_close(out, expected, "exact")
    d_out = rng.normal(size=out.shape)
    d_x = layer.backward(d_out)
    d_expected, grads = named_arrays(PAIRS[name].backward(d_out, cache)._asdict())
    if name != "embedding":
        assert_close(d_x, d_expected, "exact")
    assert set(layer.grads) == set(grads) == set(drawn)
    for param, gradient in grads.items():
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
    FeedForward(7), MixtureOfExperts(7, num_experts=3, num_chosen=2), Dropout(0.5), Dropout(),
    DecoderBlock(8, 2),
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
    partial(FeedForward, 3), partial(MixtureOfExperts, 3, num_experts=3, num_chosen=2),
    partial(Dropout, 0.5), partial(MultiHeadAttention, 4, 2),
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
