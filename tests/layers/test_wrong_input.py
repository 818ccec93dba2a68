"""What a user may get wrong: a typed error, one line, the argument, what was expected, what came."""

import numpy as np
import pytest

from mha_numpy.core import RopeOptions
from mha_numpy.errors import ConfigError, DTypeError, MhaError, ShapeError
from mha_numpy.layers import (
    Activation,
    DecoderBlock,
    Dropout,
    Embedding,
    EncoderBlock,
    EncoderDecoderBlock,
    ExpertOptions,
    FeedForward,
    FeedForwardParams,
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
    cross_entropy_forward,
    dropout_forward,
    embedding_forward,
    feed_forward_forward,
    geglu_forward,
    gelu_forward,
    layer_norm_forward,
    learned_positions_forward,
    mixture_of_experts_forward,
    rms_norm_forward,
    swiglu_forward,
)
from mha_numpy.models.weights import from_layout, to_layout

X, GAIN, TABLE = np.ones((2, 5, 7)), np.ones(7), np.ones((6, 7))
LOGITS, TARGETS, IDS = np.ones((2, 5, 6)), np.ones((2, 5), int), np.array([[1, 5], [0, 2]])
PARAMS = FeedForwardParams(np.ones((7, 9)), np.ones(9), np.ones((9, 7)), np.ones(7))


def loss(logits=LOGITS, targets=TARGETS, **options):
    return cross_entropy_forward(logits, targets, **options)


def feed_forward(x=X, activation="relu", **params):
    return feed_forward_forward(x, PARAMS._replace(**params), activation=activation)


def mixture(x=X, num_chosen=2, **params):
    given = dict(MixtureOfExperts(7, 9, num_experts=4, num_chosen=2, rng=0).params)
    return mixture_of_experts_forward(x, **given | params, num_chosen=num_chosen)


class Returns(Layer):
    def __init__(self, d_x):
        super().__init__()
        self.d_x = d_x

    def forward(self, x):
        return x

    def backward(self, d_out):
        return self.d_x


def through(layer):
    residual = Residual(layer, LayerNorm(7))
    return residual.backward(residual(X))


CASES = [
    (lambda: layer_norm_forward(X[..., :3], GAIN), ShapeError, r"x: expected \(..., D=7\) to match gain \(7,\); got \(2, 5, 3\)"),
    (lambda: layer_norm_forward(X, X), ShapeError, r"gain: expected \(D,\); got \(2, 5, 7\)"),
    (lambda: layer_norm_forward(X, GAIN, np.ones(3)), ShapeError, r"bias: expected \(D=7,\) to match gain \(7,\); got \(3,\)"),
    (lambda: layer_norm_forward(X, GAIN, GAIN > 0), DTypeError, "bias: expected a float array; got an array .* of bool"),
    (lambda: layer_norm_forward(X, GAIN, eps=0), ConfigError, "eps: expected a number > 0; got 0"),
    (lambda: layer_norm_forward(np.float64(1), GAIN), ShapeError, r"x: expected \(..., D=7\).*got \(\)"),
    (lambda: layer_norm_forward(X[..., :0], GAIN[:0]), ShapeError, r"gain: expected \(D,\) with D >= 1; got \(0,\)"),
    (lambda: rms_norm_forward(X[..., :0], GAIN[:0]), ShapeError, r"gain: expected \(D,\) with D >= 1; got \(0,\)"),
    (lambda: rms_norm_forward(X[..., :0]), ShapeError, r"x: expected \(..., D\) with D >= 1; got \("),
    (lambda: rms_norm_forward(X, GAIN[:, None]), ShapeError, r"gain: expected \(D,\); got \(7, 1\)"),
    (lambda: gelu_forward(X, approximate="sigmoid"), ConfigError, r"approximate: expected one of \('none', 'tanh'\); got 'sigmoid'"),
    (lambda: gelu_forward(None), DTypeError, "x: expected a float array; got None"),
    (lambda: geglu_forward(X, X[0]), ShapeError, r"x: expected \(2, 5, 7\), as gate; got \(5, 7\)"),
    (lambda: geglu_forward(X, X, approximate="erf"), ConfigError, r"approximate: expected one of \('none', 'tanh'\); got 'erf'"),
    (lambda: swiglu_forward(X, X[0]), ShapeError, r"x: expected \(2, 5, 7\), as gate; got \(5, 7\)"),
    (lambda: dropout_forward(X, np.ones((2, 1))), ShapeError, r"dropout_mask: expected a shape that broadcasts to \(B=2, T=5, D=7\)"),
    (lambda: dropout_forward(np.float64(1), np.ones(2)), ShapeError, r"dropout_mask: expected a shape that broadcasts to \(\)"),
    (lambda: dropout_forward(X, X > 0), DTypeError, "dropout_mask: expected a float array"),
    (lambda: embedding_forward(IDS.astype(float), TABLE), ConfigError, r"ids: expected an integer array; got an array \(2, 2\) of float64"),
    (lambda: embedding_forward(IDS > 0, TABLE), ConfigError, "ids: expected an integer array; got .* bool"),
    (lambda: embedding_forward(IDS + 1, TABLE), ConfigError, "ids: expected 0 <= id < V=6; got 6"),
    (lambda: embedding_forward(IDS - 1, TABLE), ConfigError, "ids: expected 0 <= id < V=6; got -1"),
    (lambda: embedding_forward(IDS, TABLE[0]), ShapeError, r"table: expected \(V, D\); got \(7,\)"),
    (lambda: learned_positions_forward(X[..., :3], TABLE), ShapeError, r"x: expected \(..., T, D=7\) to match table \(6, 7\); got \(2, 5, 3\)"),
    (lambda: learned_positions_forward(GAIN, TABLE), ShapeError, r"x: expected \(..., T, D=7\).*got \(7,\)"),
    (lambda: learned_positions_forward(X, TABLE[:4]), ShapeError, "x: expected at most N=4 positions, the rows of table; got T=5 tokens$"),
    (lambda: learned_positions_forward(X, TABLE, offset=2), ShapeError, "x: .*; got T=5 tokens from position 2$"),
    (lambda: learned_positions_forward(X, TABLE, offset=-1), ConfigError, "offset: expected an integer >= 0; got -1"),
    (lambda: loss(targets=TARGETS[:, :4]), ShapeError, r"targets: expected \(2, 5\), as logits \(2, 5, 6\) without the last axis; got \(2, 4\)"),
    (lambda: loss(logits=LOGITS.swapaxes(1, 2)), ShapeError, r"targets: expected \(2, 6\)"),
    (lambda: loss(targets=TARGETS.astype(float)), ConfigError, "targets: expected an integer array, an id for each token; got .*float64"),
    (lambda: loss(targets=TARGETS - 101), ConfigError, "targets: expected 0 <= id < V=6; got -100; where nothing is asked, pass ignore_index="),
    (lambda: loss(targets=TARGETS + 5, ignore_index=0), ConfigError, "targets: expected 0 <= id < V=6; got 6; where nothing is asked, write 0, the ignore_index$"),
    (lambda: loss(logits=np.float64(1)), ShapeError, r"logits: expected \(..., V\) with V >= 1; got \(\)"),
    (lambda: loss(logits=LOGITS[..., :0]), ShapeError, r"logits: expected \(..., V\) with V >= 1"),
    (lambda: loss(ignore_index=0.5), ConfigError, "ignore_index: expected an integer; got 0.5"),
    (lambda: loss(label_smoothing=1.5), ConfigError, "label_smoothing: expected 0 to 1; got 1.5"),
    (lambda: loss(reduction="average"), ConfigError, r"reduction: expected one of \('mean', 'sum', 'none'\); got 'average'"),
    (lambda: feed_forward_forward(X, tuple(PARAMS)), ConfigError, "params: expected FeedForwardParams; got "),
    (lambda: feed_forward(activation="silu"), ConfigError, r"activation: expected one of \('relu', .*; got 'silu'"),
    (lambda: feed_forward(activation="swiglu"), ConfigError, r"w_gate: expected an array \(D, F\) with activation='swiglu'; got None"),
    (lambda: feed_forward(w_gate=PARAMS.w_in), ConfigError, "w_gate: expected None with activation='relu'; got an array"),
    (lambda: feed_forward(b_gate=PARAMS.b_in), ConfigError, "b_gate: expected None without w_gate; got an array"),
    (lambda: feed_forward(w_in=None), DTypeError, "w_in: expected a float array; got None"),
    (lambda: feed_forward(w_out=None), DTypeError, "w_out: expected a float array; got None"),
    (lambda: feed_forward(x=X[..., :3]), ShapeError, r"x: expected \(..., D=7\) to match w_in \(7, 9\); got \(2, 5, 3\)"),
    (lambda: feed_forward(w_out=np.ones((7, 9))), ShapeError, r"w_out: expected \(F=9, D=7\) to match w_in; got \(7, 9\)"),
    (lambda: feed_forward(b_out=np.ones(9)), ShapeError, r"b_out: expected \(D=7,\) to match w_in; got \(9,\)"),
    (lambda: mixture(x=X[..., :3]), ShapeError, r"x: expected \(..., D=7\) to match w_router \(7, 4\); got \(2, 5, 3\)"),
    (lambda: mixture(w_out=np.ones((4, 7, 9))), ShapeError, r"w_out: expected \(E=4, F=9, D=7\) to match w_router \(7, 4\); got \(4, 7, 9\)"),
    (lambda: mixture(b_in=None), DTypeError, "b_in: expected a float array; got None"),
    (lambda: mixture(num_chosen=5), ConfigError, "num_chosen: expected at most E=4; got 5"),
    (lambda: mixture(num_chosen=0), ConfigError, "num_chosen: expected an integer >= 1; got 0"),
    (lambda: MixtureOfExperts(7, num_experts=2, num_chosen=3), ConfigError, "num_chosen: expected at most E=2; got 3"),
    (lambda: MixtureOfExperts(7, num_experts=0, num_chosen=1), ConfigError, "num_experts: expected an integer >= 1; got 0"),
    (lambda: MixtureOfExperts(7, num_experts=2, num_chosen=1, limit=0), ConfigError, "limit: expected a number > 0; got 0"),
    (lambda: DecoderBlock(8, 2, experts=ExpertOptions(2, 3)), ConfigError, "num_chosen: expected at most E=2; got 3"),
    (lambda: DecoderBlock(8, 2, experts=4), ConfigError, r"experts: expected ExpertOptions\(...\) or None; got 4"),
    (lambda: Linear(0, 3), ConfigError, "inputs: expected an integer >= 1; got 0"),
    (lambda: Linear(3, 3, bias=1), ConfigError, "bias: expected True or False; got 1"),
    (lambda: LayerNorm(0), ConfigError, "embed_dim: expected an integer >= 1; got 0"),
    (lambda: MultiHeadAttention(8, 2, gated="all"), ConfigError, r"gated: expected one of \('heads',\); got 'all'"),
    (lambda: MultiHeadAttention(8, 2, gated=2), ConfigError, "gated: expected True or False; got 2"),
    (lambda: MultiHeadAttention(8, 2, sink=0.0), ConfigError, "sink: expected True or False; got 0.0"),
    (lambda: MultiHeadAttention(8, 2, qk_norm="heads"), ConfigError, "qk_norm: expected QKNormOptions"),
    (lambda: EncoderBlock(8, 2, post_norms=1), ConfigError, "post_norms: expected True or False; got 1"),
    (lambda: EncoderBlock(8, 2, softcap=0), ConfigError, "softcap: expected a number > 0; got 0"),
    (lambda: EncoderBlock(8, 2, scale="1"), ConfigError, "scale: expected a finite number; got '1'"),
    (lambda: Softcap(0), ConfigError, "cap: expected a number > 0; got 0"),
    (lambda: LearnedPositions(6, 7)(X, positions=[0, 6]), ConfigError, r"positions: expected 0 <= id < V=6; got 6"),
    (lambda: RMSNorm(3, eps=-1), ConfigError, "eps: expected a number > 0; got -1"),
    (lambda: Embedding(3.0, 3), ConfigError, "vocab_size: expected an integer; got 3.0"),
    (lambda: LearnedPositions(0, 3), ConfigError, "max_tokens: expected an integer >= 1; got 0"),
    (lambda: FeedForward(3, activation="silu"), ConfigError, r"activation: expected one of .*; got 'silu'"),
    (lambda: FeedForward(3, 0), ConfigError, "hidden_dim: expected an integer >= 1; got 0"),
    (lambda: FeedForward(3, backend="gpu"), ConfigError, "backend: expected one of .*; got 'gpu'"),
    (lambda: Linear(3, 3, rng=-1), ConfigError, "rng: expected an integer >= 0, a numpy Generator"),
    (lambda: Dropout(rng="0"), ConfigError, "rng: expected an integer >= 0, .*; got '0'"),
    (lambda: Dropout(1.0), ConfigError, "dropout_p: expected 0 <= p < 1; got 1.0"),
    (lambda: DecoderBlock(8, 2, norm="batch"), ConfigError, r"norm: expected one of .*; got 'batch'"),
    (lambda: DecoderBlock(8, 2, norm_first=0), ConfigError, "norm_first: expected True or False; got 0"),
    (lambda: DecoderBlock(8, 3), ConfigError, "num_heads: expected a divisor of embed_dim=8"),
    (lambda: Sequential(), ConfigError, "parts: expected at least one layer; got none"),
    (lambda: Sequential(Linear(2, 2), np.tanh), ConfigError, r"parts\[1\]: expected a Layer, such as"),
    (lambda: Activation("swiglu"), ConfigError, r"activation: expected one of \('relu', 'gelu', 'gelu_t"),
    (lambda: EncoderDecoderBlock(7, 1)(X), ConfigError, "memory: expected the encoder's output in an EncoderDecoderBlock; got None"),
    (lambda: DecoderBlock(7, 1)(X, X), ConfigError, "memory: expected None in a DecoderBlock; got an array"),
    (lambda: EncoderBlock(7, 1)(X, memory=X), ConfigError, "memory: expected None in an EncoderBlock; got an array"),
    (lambda: EncoderDecoderBlock(7, 1)(X, X[..., :5]), ShapeError, r"key: expected \(B=2, T_k, kdim=7\) to match the layer"),
    (lambda: MultiHeadAttention(7, 1, kdim=5)(X), ShapeError, r"key: expected \(B, T_k, kdim=5\); got None"),
    (lambda: MultiHeadAttention(7, 1, vdim=5)(X), ShapeError, r"value: expected \(B, T_k, vdim=5\); got None"),
    (lambda: MultiHeadAttention(9, 3, rope=RopeOptions()), ConfigError, "rope: expected an even d_k"),
    (lambda: Residual(None, LayerNorm(8)), ConfigError, "layer: expected a Layer, .*; got None"),
    (lambda: Residual(Linear(8, 8), np.tanh), ConfigError, "norm: expected a Layer, .*'tanh'"),
    (lambda: through(Linear(7, 1)), ShapeError, r"layer: expected an output like x \(2, 5, 7\); got \(2, 5, 1\)$"),
    (lambda: through(Returns(None)), MhaError, "layer: expected backward of a Returns to return the gradient of x; got None"),
    (lambda: through(Returns((None, X))), MhaError, "layer: .*; got None"),
    (lambda: Layer()(X), MhaError, r"forward: a Layer has none; write def forward\(self, x\)"),
    (lambda: Layer().backward(X), MhaError, r"backward: a Layer has none; write def backward\(self, d_out\)"),
    (lambda: from_layout({"w": X}, Linear(3, 4), "torch"), ConfigError, "layer: expected a Layer, .*; got {"),
    (lambda: to_layout("torch", Linear(3, 4)), ConfigError, "layer: .*; got 'torch'"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_wrong_input(number):
    call, error, message = CASES[number]
    with pytest.raises(error, match=f"^{message}") as caught:
        call()
    assert "\n" not in str(caught.value)
