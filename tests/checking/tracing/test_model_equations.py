"""A trace of a whole model is true: every layer records what it computes, and from what."""

import numpy as np
import pytest

from mha_numpy import QKNormOptions, RopeOptions
from mha_numpy.checking.tracing import trace
from mha_numpy.core import KVCache
from mha_numpy.layers import (
    Activation,
    DecoderBlock,
    DeltaOptions,
    Dropout,
    Embedding,
    EncoderBlock,
    EncoderDecoderBlock,
    ExpertOptions,
    FeedForward,
    GatedDeltaNet,
    Layer,
    LayerNorm,
    LearnedPositions,
    Linear,
    MixtureOfExperts,
    MultiHeadAttention,
    Residual,
    RMSNorm,
    Sequential,
    Softcap,
    Unembedding,
)
from mha_numpy.layers.activations import ACTIVATIONS
from mha_numpy.models import (
    GPT2,
    AttentionOnlyLM,
    Bert,
    Llama,
    SentenceBert,
    TransformerLM,
    Translator,
)
from mha_numpy.models.train import SGD, Batch, loss_and_gradients
from tests.checking.tracing.whole import assert_whole
from tests.compare import assert_close
from tests.gradients import randomize

B, T, S, D, H, V, N = 3, 5, 4, 8, 2, 7, 6
IDS = np.array([[1, 4, 4, 0, 6], [2, 0, 1, 5, 1], [3, 3, 0, 2, 0]])
SOURCE = np.array([[3, 4, 5, 0], [3, 3, 4, 6], [5, 6, 0, 0]])
MASK = np.arange(T) < np.array([[5], [3], [4]])
LEFT = np.arange(T) >= np.array([[0], [2], [1]])  # tokens, after padding
SMALL = {"embed_dim": D, "num_heads": H, "num_layers": 2, "rng": 0}


def x(T=T):
    return np.random.default_rng(T).normal(size=(B, T, D))


LAYERS = {  # layer, and what its forward takes
    "linear": lambda: (Linear(D, 3), (x(),), {}),
    "linear of a vector": lambda: (Linear(D, 3, bias=False), (x()[0, 0],), {}),
    "norm": lambda: (LayerNorm(D), (x(),), {}),
    "RMS norm": lambda: (RMSNorm(D), (x(),), {}),
    "dropout": lambda: (Dropout(0.3, rng=0), (x(),), {}),
    "embedding": lambda: (Embedding(V, D), (IDS,), {}),
    "unembedding": lambda: (Unembedding(Embedding(V, D)), (x(),), {}),
    "positions": lambda: (LearnedPositions(N, D), (x(),), {"offset": 1}),
    **{
        f"feed-forward, {name}": lambda name=name: (FeedForward(D, activation=name), (x(),), {})
        for name in ACTIVATIONS
    },
    "mixture of experts": lambda: (
        MixtureOfExperts(D, 5, num_experts=4, num_chosen=2, limit=0.5, rng=0), (x(),), {},
    ),
    "block of experts": lambda: (
        DecoderBlock(D, H, 5, bias=False, experts=ExpertOptions(4, 2), rng=0), (x(),), {},
    ),
    "layers one after the other": lambda: (
        Sequential(Linear(D, 5), Activation("gelu"), Linear(5, D)), (x(),), {},
    ),
    "attention": lambda: (MultiHeadAttention(D, H), (x(),), {"mask": MASK[:, None, None]}),
    "attention with dropout": lambda: (MultiHeadAttention(D, H, dropout_p=0.3, rng=0), (x(),), {}),
    "cross-attention": lambda: (MultiHeadAttention(D, H), (x(), x(S)), {"bias": np.ones((T, S))}),
    "attention with a learned key": lambda: (
        MultiHeadAttention(D, H, 1, add_bias_kv=True, rng=0), (x(),),
        {"mask": MASK[:, None, None], "is_causal": True},
    ),
    "attention with a key of zeros": lambda: (
        MultiHeadAttention(D, H, add_zero_attn=True, rope=RopeOptions(), rng=0), (x(),),
        {"window": (1, 1)},
    ),
    "cross-attention with both": lambda: (
        MultiHeadAttention(
            D, H, value_dim=3, add_bias_kv=True, add_zero_attn=True, dropout_p=0.3, rng=0
        ),
        (x(), x(S)), {"bias": np.where(np.eye(T, S), -np.inf, 1.5)},
    ),
    "residual": lambda: (Residual(FeedForward(D), LayerNorm(D), dropout_p=0.2, rng=0), (x(),), {}),
    "residual, post-norm": lambda: (
        Residual(FeedForward(D), RMSNorm(D), norm_first=False), (x(),), {},
    ),
    "a residual in a residual": lambda: (
        Residual(Residual(Linear(D, D), LayerNorm(D)), LayerNorm(D)), (x(),), {},
    ),
    "encoder": lambda: (
        EncoderBlock(D, H, dropout_p=0.2, rng=0), (x(),), {"mask": MASK[:, None, None]},
    ),
    "encoder, post-norm": lambda: (EncoderBlock(D, H, norm_first=False), (x(),), {}),
    "decoder": lambda: (
        DecoderBlock(D, H, num_kv_heads=1, window=(2, 0), rope=RopeOptions()), (x(),), {},
    ),
    "norms of queries and keys, and gates": lambda: (
        MultiHeadAttention(D, H, 1, qk_norm=QKNormOptions("rotated"), rope=RopeOptions(),
            gated="heads", sink=True, rng=0),
        (x(),), {"positions": np.array([4, 0, 1, 1, 7]), "is_causal": True},
    ),
    "decoder with all that Gemma has": lambda: (
        DecoderBlock(D, H, norm="rms", post_norms=True, qk_norm=QKNormOptions("projection"),
            gated=True, softcap=2.0, scale=0.4, rope=RopeOptions()),
        (x(),), {"positions": np.arange(B)[:, None] + np.arange(T)},
    ),
    "decoder as in OLMo 2": lambda: (
        DecoderBlock(D, H, norm="rms", post_norms=True, norm_first=False), (x(),), {},
    ),
    "positions of a sequence": lambda: (
        LearnedPositions(N, D), (x(),), {"positions": np.array([5, 0, 1, 1, 2])},
    ),
    "positions of each token": lambda: (
        LearnedPositions(N, D), (x(),), {"positions": IDS % 3},
    ),
    "softcap": lambda: (Softcap(1.5), (x(),), {}),
    "decoder that reads": lambda: (
        EncoderDecoderBlock(D, H), (x(), x(S)), {"memory_mask": np.arange(S) < 3},
    ),
    "decoder that reads, post-norm": lambda: (
        EncoderDecoderBlock(D, H, norm_first=False, norm="rms"), (x(), x(S)), {},
    ),
    "attention alone": lambda: (AttentionOnlyLM(V, N, **SMALL), (IDS,), {}),
    "transformer": lambda: (TransformerLM(V, N, dropout_p=0.1, **SMALL), (IDS,), {}),
    "scaled, capped, with one layer of windows and one of rotations": lambda: (
        TransformerLM(V, N, rope=[None, RopeOptions()], window=[(2, 0), None], embedding_scale=2.5,
            logit_softcap=1.5, sink=True, **SMALL),
        (IDS,), {"positions": np.arange(T) + np.arange(B)[:, None]},
    ),
    "a mixer with padding": lambda: (
        GatedDeltaNet(D, 4, 2, head_dim=3, kernel_size=2, rng=0), (x(),), {"mask": LEFT},
    ),
    "one layer with the delta rule": lambda: (
        TransformerLM(V, N, delta=[DeltaOptions(4, 2, 3), None], rope=RopeOptions(), **SMALL),
        (IDS,), {"mask": LEFT, "positions": np.maximum(LEFT.cumsum(axis=1) - 1, 0)},
    ),
    "learned positions of documents": lambda: (
        TransformerLM(V, N, **SMALL), (IDS,), {"positions": np.array([0, 1, 0, 1, 2])},
    ),
    "GPT-2": lambda: (GPT2(V, N, **SMALL), (IDS,), {}),
    "Llama": lambda: (Llama(V, N, num_kv_heads=1, **SMALL), (IDS,), {}),
    "BERT": lambda: (Bert(V, N, dropout_p=0.1, **SMALL), (IDS,), {"mask": MASK}),
    "BERT with segments": lambda: (Bert(V, N, **SMALL), (IDS,), {"segments": 1 * (IDS > 2)}),
    "sentence BERT": lambda: (SentenceBert(Bert(V, N, **SMALL)), (IDS,), {"mask": MASK}),
    "sentence BERT, no mask": lambda: (SentenceBert(Bert(V, N, **SMALL)), (IDS,), {}),
    "translator": lambda: (Translator(V, V + 2, N, **SMALL), (SOURCE, IDS), {}),
    "translator, post-norm": lambda: (
        Translator(V, V + 2, N, norm_first=False, **SMALL), (SOURCE, IDS), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["attention alone", "GPT-2", "Llama", "BERT", "translator"])
def test_numbers_are_rounded_between_layers_of_float16(name, rng):
    layer, inputs, options = LAYERS[name]()
    randomize(layer, rng).astype(np.float16)
    with trace() as t:
        out = layer(*inputs, **options)
        d_out = rng.normal(size=out.shape).astype(np.float16)
        layer.backward(d_out)
    assert_whole(t, [*inputs, *options.values(), d_out], "float16")


def recorded_for(t, array):
    return any(step.array is array for step in t)


@pytest.mark.parametrize("name", LAYERS)
def test_every_step_of_both_directions_holds(name, rng):
    layer, inputs, options = LAYERS[name]()
    randomize(layer, rng)
    with trace() as t:
        out = layer(*inputs, **options)
        d_out = rng.normal(size=out.shape)
        d_inputs = layer.backward(d_out)
    sinks = [param for name, param in layer.named_params() if name.endswith("sink")]
    assert_whole(t, [*inputs, *options.values(), d_out, *sinks])

    # the result, the gradients of the inputs and those of all params are on record
    assert recorded_for(t, out)
    for d_input in d_inputs if isinstance(d_inputs, tuple) else [d_inputs]:
        assert d_input is None or recorded_for(t, d_input)
    for param, gradient in layer.named_grads():
        place, _, letter = param.rpartition(".")
        places = {place, place.removesuffix("layer").removesuffix(".")}
        runs = places | {f"{place}_2"}  # whose gradients add up
        if place == "embedding":  # whose table is the unembedding's, too
            runs |= {"unembedding", ""}
        found = [s.array for s in t if s.place in runs and s.name.endswith(f"d_{letter}")]
        # a key of zeros, which is no param, comes after the learned one
        assert_close(sum(found)[: len(gradient)], gradient, name=param)


def test_a_step_of_training_is_one_trace(rng):
    model = randomize(TransformerLM(V, N, tied=True, **SMALL), rng)
    batch = Batch((IDS,), np.where(MASK, IDS, -100))
    with trace() as t:
        loss = loss_and_gradients(model, batch, label_smoothing=0.1)
    given = [s.array for s in t if s.name in ("embedding.ids", "d_loss")]
    assert_whole(t, given)
    assert t["loss"] == loss
    assert t["blocks.0.attention.scores"].shape == (B, H, T, T)
    assert_close(t["unembedding.d_table"] + t["embedding.d_table"], model.embedding.grads["table"])
    SGD(model, 1.0).step()
    assert_whole(t, given)  # of the params that they were


def test_float32_and_decoding(rng):
    model = randomize(Llama(V, N, **SMALL), rng).astype(np.float32)
    kv_caches = [KVCache() for _ in model.blocks]
    model(IDS[:, :3], kv_caches=kv_caches)
    with trace() as t:
        model(IDS[:, 3:], kv_caches=kv_caches)
    held = [s.array for s in t if s.name.endswith(("k_past", "v_past"))]
    assert len(held) == 2 * len(kv_caches)
    assert_whole(t, [t["ids"], *held], "float32")


def test_a_layer_that_runs_twice_has_two_names(rng):
    model = AttentionOnlyLM(V, N, **SMALL)
    with trace() as t:
        model.backward(model(IDS))
    names = [s.name for s in t]
    assert {"positions.out", "positions_2.out", "positions.d_table"} <= set(names)
    assert names.index("positions_2.d_x") < names.index("positions.d_x")


def test_a_block_that_runs_twice_has_two_names(rng):
    model = randomize(TransformerLM(V, N, **SMALL), rng)
    model.blocks[1] = model.blocks[0]
    with trace() as t:
        model(IDS)
    assert "blocks.0.attention_2.scores" in t
    assert_whole(t, [IDS])


def test_a_layer_that_is_another_and_more_runs_once(rng):
    class Doubled(Linear):
        def forward(self, x):
            return super().forward(2 * x)

        def backward(self, d_out):
            return 2 * super().backward(d_out)

    model = Sequential(Doubled(D, D), Linear(D, D))
    with trace() as t:
        model.backward(model(x()))
    assert {s.place for s in t} == {"", "parts.0", "parts.1"}


def test_one_place_of_a_model_is_a_trace(rng):
    model = TransformerLM(V, N, **SMALL)
    with trace() as t:
        model.backward(model(IDS))
    assert t["logits"] is t["unembedding.out"]
    with pytest.raises(KeyError, match=r"2 steps are named 'scores'; write one of blocks.0.att"):
        t["scores"]
    with pytest.raises(
        KeyError, match="^nothing was recorded at 'block.1'; did you mean 'blocks.1"
    ):
        t.part("block.1")
    assert "scores" in t
    assert "blocks.0.attention.scores" in t
    part = t.part("blocks.1.attention")
    assert part["scores"] is t["blocks.1.attention.scores"]
    assert [s.number for s in part] == list(range(1, len(part) + 1))
    x_q = next(s for s in part if s.name == "x_q")
    assert (x_q.equation, x_q.memory) == ("", "input")
    for step in part:
        if step.equation:
            assert_close(part.evaluate(step), step.array, name=step.name)
    assert {s.name: s.equation for s in part if "sum" in s.name or "skip" in s.name} == {
        "skip": "", "sum": "skip + out", "d_sum": "", "d_skip": "",
    }  # fmt: skip
    d_skip = next(s for s in t if s.name == "blocks.1.attention.d_skip")
    assert d_skip.equation == "d_sum + norm.d_x"
    whole = t.explain("blocks.1.attention.scores", (0, 1, 2, 3))
    assert whole == (
        "blocks.1.attention.scores[0,1,2,3] came from blocks.1.attention.q[0,1,2,:] "
        "and blocks.1.attention.k[0,1,3,:]"
    )
    assert part.explain("scores", (0, 1, 2, 3)) == whole.replace("blocks.1.attention.", "")


def test_a_layer_that_records_nothing(rng):
    class Twice(Layer):
        def forward(self, x):
            return 2 * x

        def backward(self, d_out):
            return 2 * d_out

    layer = Residual(Twice(), LayerNorm(D))
    with trace() as t:
        layer.backward(layer(x()))
    assert t.evaluate("sum").shape == (B, T, D)
    assert next(s.memory for s in t if s.name == "sum_part_1") == "input"
