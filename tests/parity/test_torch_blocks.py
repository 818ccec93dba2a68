"""PyTorch's modules around attention: outputs and all gradients, in float64; its tensors."""

import numpy as np
import pytest

from mha_numpy.errors import DTypeError
from mha_numpy.layers import DecoderBlock, EncoderBlock, EncoderDecoderBlock, Linear
from mha_numpy.models.weights import from_layout, to_layout
from tests.compare import assert_close
from tests.layers.pairs import PAIRS

pytest.importorskip("torch")

import torch
from torch.nn import functional

B, T, T_k, D, H, F = 3, 5, 4, 8, 2, 11


def torch_cross_entropy(logits, targets, **options):
    """Call PyTorch's, which wants V second."""
    return functional.cross_entropy(logits.movedim(-1, 1), torch.tensor(targets), **options)


THEIRS = {  # by the names in the table of pairs; ids, targets and options are those drawn there
    "linear": lambda x, w, b: functional.linear(x, w.T, b),
    "layer norm": lambda x, gain, bias: functional.layer_norm(x, gain.shape, gain, bias),
    "layer norm without bias": (
        lambda x, gain: functional.layer_norm(x, gain.shape, gain, eps=0.5)
    ),
    "rms norm": lambda x, gain: functional.rms_norm(x, gain.shape, gain, eps=1e-6),
    "rms norm, large eps": lambda x, gain: functional.rms_norm(x, gain.shape, gain, eps=0.5),
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu by tanh": functional.gelu,
    "swiglu": lambda gate, x: functional.silu(gate) * x,
    "embedding": lambda table, ids: functional.embedding(torch.tensor(ids), table),
    **{name: torch_cross_entropy for name in PAIRS if name.startswith("cross-entropy")},
}


@pytest.mark.parametrize("name", THEIRS)
def test_pairs(name, rng):
    forward, inputs = PAIRS[name].ready(rng, (B, T))
    out, cache = forward(**inputs)
    tensors = {name: torch.tensor(x, requires_grad=True) for name, x in inputs.items()}
    options = {} if "eps" in forward.keywords else forward.keywords
    expected = THEIRS[name](*tensors.values(), **options)
    assert_close(out, expected.detach(), "framework")
    d_out = np.asarray(rng.normal(size=out.shape))
    expected.backward(torch.tensor(d_out))
    grads = PAIRS[name].backward(d_out, cache)._asdict()
    for name, tensor in tensors.items():
        assert_close(grads[f"d_{name}"], tensor.grad, "framework", name=name)


def normal(*shape):
    return 2 * np.random.default_rng(sum(shape)).normal(size=shape)


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
