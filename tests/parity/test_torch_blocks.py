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
    "geglu": lambda gate, x: functional.gelu(gate) * x,
    "geglu by tanh": lambda gate, x, **approximate: functional.gelu(gate, **approximate) * x,
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


ENCODER = torch.nn.TransformerEncoderLayer, "torch-encoder-layer"
THEIR_KINDS = {  # and the layout of their params
    EncoderBlock: ENCODER,
    DecoderBlock: ENCODER,
    EncoderDecoderBlock: (torch.nn.TransformerDecoderLayer, "torch-decoder-layer"),
}


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", THEIR_KINDS)
def test_blocks(kind, bias, activation, norm_first, rng):
    their_kind, layout = THEIR_KINDS[kind]
    options = {"norm_first": norm_first, "activation": activation, "bias": bias}
    theirs = their_kind(D, H, F, dropout=0.0, batch_first=True, dtype=torch.float64, **options)
    params = dict(theirs.named_parameters())
    with torch.no_grad():
        for param in params.values():
            param[...] = torch.tensor(rng.normal(size=param.shape) / 2)
    arrays = {name: param.detach().numpy() for name, param in params.items()}
    ours = from_layout(kind(D, H, F, **options), arrays, layout)

    lengths = (T, T_k) if kind.reads_memory else (T,)
    inputs = [torch.tensor(rng.normal(size=(B, n, D)), requires_grad=True) for n in lengths]
    is_padding = np.arange(lengths[-1]) >= np.array([4, 2, 3])[:, None]  # of the last input
    causal = torch.ones(T, T, dtype=torch.bool).triu(1) if kind.is_causal else None
    our_mask, their_mask = "mask", "src_key_padding_mask"
    if kind.reads_memory:
        our_mask, their_mask = "memory_mask", "memory_key_padding_mask"
    expected = theirs(*inputs, causal, **{their_mask: torch.tensor(is_padding)})
    out = ours(*(x.detach().numpy() for x in inputs), **{our_mask: ~is_padding[:, None, None]})
    assert_close(out, expected.detach(), "framework")

    d_out = rng.normal(size=out.shape)
    expected.backward(torch.tensor(d_out))
    d_inputs = ours.backward(d_out)
    d_inputs = d_inputs if isinstance(d_inputs, tuple) else (d_inputs,)
    for actual, tensor in zip(d_inputs, inputs, strict=True):
        assert_close(actual, tensor.grad, "framework")
    grads = to_layout(ours, layout, gradients=True)
    assert set(grads) == set(params)
    for name, param in params.items():
        assert_close(grads[name], param.grad, "framework", name=name)


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
