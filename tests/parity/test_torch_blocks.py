"""PyTorch's modules around attention: outputs and all gradients, in float64; its tensors."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from mha_numpy import layers
from mha_numpy.errors import DTypeError
from mha_numpy.layers import DecoderBlock, EncoderBlock, EncoderDecoderBlock, Linear
from mha_numpy.models.weights import from_layout, to_layout
from tests.compare import assert_close

pytest.importorskip("torch")

import torch
from torch.nn import functional

B, T, T_k, D, H, F, V = 3, 5, 4, 8, 2, 11, 6
IGNORED = -100


def normal(*shape):
    return 2 * np.random.default_rng(sum(shape)).normal(size=shape)


X, X_F, TABLE = normal(B, T, D), normal(B, T, F), normal(V, D)
GAIN, BIAS = normal(2, D)
IDS = np.random.default_rng(1).integers(0, V - 1, (B, T))  # the last row of the table gets nothing
TARGETS = np.where(np.random.default_rng(2).random((B, T)) < 0.3, IGNORED, IDS)


def torch_cross_entropy(logits, targets, **options):
    """Call PyTorch's, which wants V second."""
    return functional.cross_entropy(logits.movedim(-1, 1), torch.tensor(targets), **options)


PAIRS = {  # ours, theirs, and the inputs to differentiate by
    "layer norm": (
        "layer_norm", {"eps": 0.1}, (X, GAIN, BIAS),
        lambda x, gain, bias: functional.layer_norm(x, (D,), gain, bias, eps=0.1),
    ),
    "layer norm without bias": (
        "layer_norm", {}, (X, GAIN), lambda x, gain: functional.layer_norm(x, (D,), gain),
    ),
    "rms norm": (
        "rms_norm", {"eps": 0.1}, (X, GAIN),
        lambda x, gain: functional.rms_norm(x, (D,), gain, eps=0.1),
    ),
    "relu": ("relu", {}, (X_F,), functional.relu),
    "gelu": ("gelu", {}, (X_F,), functional.gelu),
    "gelu by tanh": (
        "gelu", {"approximate": "tanh"}, (X_F,), partial(functional.gelu, approximate="tanh"),
    ),
    "swiglu": ("swiglu", {}, (X_F, 3 - X_F**2), lambda gate, x: functional.silu(gate) * x),
    "embedding": (
        "embedding", {}, (TABLE,), lambda table: functional.embedding(torch.tensor(IDS), table),
    ),
    **{
        f"cross-entropy, {reduction}, {smoothing}{', ignored' * ignores}": (
            "cross_entropy",
            {"reduction": reduction, "label_smoothing": smoothing}
            | ({"ignore_index": IGNORED} if ignores else {}),
            (normal(B, T, V),),
            partial(
                torch_cross_entropy, targets=TARGETS if ignores else IDS, reduction=reduction,
                label_smoothing=smoothing,
            ),
        )
        for reduction, smoothing, ignores in product(("mean", "sum", "none"), (0.0, 0.2), (0, 1))
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name):
    function, options, inputs, theirs = PAIRS[name]
    forward, backward = (getattr(layers, f"{function}_{way}") for way in ("forward", "backward"))
    if function == "embedding":
        forward = partial(forward, IDS)
    if function == "cross_entropy":
        options = options | {"targets": TARGETS if "ignore_index" in options else IDS}
    out, cache = forward(*inputs, **options)
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    expected = theirs(*tensors)
    assert_close(out, expected.detach(), "framework")
    d_out = np.random.default_rng(3).normal(size=out.shape)
    expected.backward(torch.tensor(d_out))
    grads = backward(np.asarray(d_out), cache)
    for tensor, field in zip(tensors, grads._fields, strict=False):
        assert_close(getattr(grads, field), tensor.grad, "framework", name=field)


def blocks_of(kind, module_kind, layout, **options):
    """Return PyTorch's module with random params, and ours with the same."""
    torch.manual_seed(2017)
    module = module_kind(D, H, F, dropout=0.0, batch_first=True, dtype=torch.float64, **options)
    for param in module.parameters():
        torch.nn.init.normal_(param, std=0.5)
    block = kind(D, H, F, **options)
    arrays = {name: param.detach().numpy() for name, param in module.named_parameters()}
    return module, from_layout(block, arrays, layout)


def assert_same(block, module, layout, out, expected, inputs):
    """Compare the outputs and the gradients of all inputs and params."""
    assert_close(out, expected.detach(), "framework")
    d_out = normal(B, T, D)
    expected.backward(torch.tensor(d_out))
    d_inputs = block.backward(d_out)
    d_inputs = d_inputs if isinstance(d_inputs, tuple) else (d_inputs,)
    for actual, tensor in zip(d_inputs, inputs, strict=True):
        assert_close(actual, tensor.grad, "framework")
    grads = to_layout(block, layout, gradients=True)
    assert set(grads) == set(dict(module.named_parameters()))
    for name, param in module.named_parameters():
        assert_close(grads[name], param.grad, "framework", name=name)


each_order = pytest.mark.parametrize("norm_first", [True, False])
each_activation = pytest.mark.parametrize("activation", ["relu", "gelu"])
with_and_without_biases = pytest.mark.parametrize("bias", [True, False])


@each_order
@each_activation
@with_and_without_biases
@pytest.mark.parametrize("kind", [EncoderBlock, DecoderBlock])
def test_encoder_layer(kind, bias, activation, norm_first):
    module, block = blocks_of(
        kind, torch.nn.TransformerEncoderLayer, "torch-encoder-layer",
        activation=activation, norm_first=norm_first, bias=bias,
    )  # fmt: skip
    x = torch.tensor(normal(B, T, D), requires_grad=True)
    is_padding = np.arange(T) >= np.array([5, 3, 4])[:, None]  # (B, T)
    causal = torch.ones(T, T, dtype=torch.bool).triu(1) if kind.is_causal else None
    expected = module(x, src_mask=causal, src_key_padding_mask=torch.tensor(is_padding))
    out = block(x.detach().numpy(), mask=~is_padding[:, None, None])
    assert_same(block, module, "torch-encoder-layer", out, expected, [x])


@each_order
@each_activation
@with_and_without_biases
def test_decoder_layer(bias, activation, norm_first):
    module, block = blocks_of(
        EncoderDecoderBlock, torch.nn.TransformerDecoderLayer, "torch-decoder-layer",
        activation=activation, norm_first=norm_first, bias=bias,
    )  # fmt: skip
    x, memory = (torch.tensor(normal(B, n, D), requires_grad=True) for n in (T, T_k))
    is_padding = np.arange(T_k) >= np.array([4, 2, 3])[:, None]  # (B, T_k)
    causal = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected = module(x, memory, tgt_mask=causal, memory_key_padding_mask=torch.tensor(is_padding))
    out = block(x.detach().numpy(), memory.detach().numpy(), memory_mask=~is_padding[:, None, None])
    assert_same(block, module, "torch-decoder-layer", out, expected, [x, memory])


@pytest.mark.parametrize(
    ("tensor", "advice"),
    [
        (torch.ones(3, 4, requires_grad=True), r"x\.detach\(\)\.numpy\(\)"),
        (torch.ones(3, 4, device="meta"), r"x\.cpu\(\)\.numpy\(\)"),
        (torch.ones(3, 4).to_sparse(), r"x\.to_dense\(\)\.numpy\(\)"),
        (torch.ones(3, 4, dtype=torch.bfloat16), r"x\.float\(\)\.numpy\(\)"),
        (torch.ones(3, 4, device="meta", requires_grad=True), r"x\.detach\(\)\.cpu\(\)\.numpy\(\)"),
    ],
    ids=lambda value: "" if isinstance(value, str) else f"{value.device} {value.dtype}",
)
def test_a_tensor_that_numpy_cannot_read_is_told_how_it_becomes_an_array(tensor, advice):
    with pytest.raises(DTypeError, match=rf"^x: expected a float array; got .*; write {advice}$"):
        Linear(4, 2)(tensor)


def test_a_plain_tensor_is_read_as_it_is():
    layer, x = Linear(4, 2), torch.rand(3, 4)
    assert_close(layer(x), layer(x.numpy()), "exact")
