from typing import NamedTuple

import numpy as np
import pytest

from mha_numpy.layers import MultiHeadAttention
from mha_numpy.models.weights import from_layout
from tests.compare import assert_close

pytest.importorskip("torch")

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

pytestmark = pytest.mark.usefixtures("backend")

B, H, T_q, T_k, d_h = 4, 6, 5, 7, 11
D, kdim, vdim = H * d_h, 17, 19


class Drawn(NamedTuple):
    """The random arrays of one comparison, in our meaning: True = may attend."""

    inputs: dict[str, np.ndarray]
    mask: np.ndarray | None
    bias: np.ndarray | None
    padding: np.ndarray | None
    d_out: np.ndarray


# one comparison: which inputs are passed, and what hides or shifts the scores. "memory" is a key
# without a value, "added" is a float mask; "heads" makes a mask (B * H, T_q, T_k), not (T_q, T_k);
# where it is "blind", one sequence is padding alone; "learned" and "zeros" are keys of no token
CONFIGS = [
    "self", "self unbiased", "self causal", "self causal padding", "self mask heads", "alike",
    "cross", "memory", "cross unbiased", "cross padding", "cross causal", "cross mask",
    "cross mask heads", "cross mask padding", "memory mask heads padding", "cross added",
    "memory added heads", "equal mask",
    "self learned", "self unbiased learned", "self causal learned", "self causal padding learned",
    "cross learned", "memory padding learned", "cross padding blind learned", "cross mask learned",
    "cross mask heads padding learned", "cross added learned", "self added heads learned",
    "self zeros", "cross causal zeros", "cross added zeros",
    "self learned zeros", "cross mask padding learned zeros", "cross added learned zeros",
]  # fmt: skip


def draw(config):
    """Return random inputs, masks and a gradient of the output."""
    rng = np.random.default_rng(20170612)
    inputs = draw_inputs(config, rng)
    T = number_of_keys(inputs)
    padding = mask = bias = None
    if "padding" in config:
        lengths = np.array([3, 0 if "blind" in config else 4, T, 2])
        padding = np.arange(T) < lengths[:, None]  # (B, T)
    shape = (B, H, T_q, T) if "heads" in config else (T_q, T)
    if "mask" in config:
        mask = rng.random(shape) < 0.7
        mask[..., 0] = True  # no row is blind: PyTorch's weights would be NaN
    if "added" in config:
        bias = rng.normal(size=shape)
    return Drawn(inputs, mask, bias, padding, rng.normal(size=(B, T_q, D)))


def number_of_keys(inputs):
    """Return T_k, which is T_q where the query input serves as key."""
    return list(inputs.values())[-1].shape[1]


def draw_inputs(config, rng):
    """Return those of query, key and value that are passed."""
    query = rng.normal(size=(B, T_q, D))
    if "self" in config:
        return {"query": query}
    if "alike" in config:
        return {"query": query, "key": query, "value": query}
    if "equal" in config:
        key, value = rng.normal(size=(2, B, T_k, D))
        return {"query": query, "key": key, "value": value}
    key = rng.normal(size=(B, T_k, kdim))
    if "memory" in config:
        return {"query": query, "key": key}
    return {"query": query, "key": key, "value": rng.normal(size=(B, T_k, vdim))}


def torch_module(config):
    """Return a PyTorch module with random weights and, unlike a new one, random biases."""
    torch.manual_seed(1706)
    widths = (kdim, vdim) if "cross" in config else (kdim, kdim) if "memory" in config else (D, D)
    module = torch.nn.MultiheadAttention(
        D, H, bias="unbiased" not in config, kdim=widths[0], vdim=widths[1], batch_first=True,
        dtype=torch.float64, add_bias_kv="learned" in config, add_zero_attn="zeros" in config,
    )  # fmt: skip
    for name, param in module.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(param)
    return module


def our_layer(module, of=lambda param: param.detach()):
    """Return a layer like the module, with `of` each of its params."""
    layer = MultiHeadAttention(
        D, H, kdim=module.kdim, vdim=module.vdim, bias=module.in_proj_bias is not None,
        add_bias_kv=module.bias_k is not None, add_zero_attn=module.add_zero_attn,
        rng=0,
    )  # fmt: skip
    layout = "torch-separate" if module.in_proj_weight is None else "torch"
    arrays = {name: of(param).numpy() for name, param in module.named_parameters()}
    return from_layout(layer, arrays, layout)


def theirs(config, need_weights):
    """Return output, weights and all gradients of PyTorch, in our layout, by our names."""
    module, drawn = torch_module(config), draw(config)
    inputs = {name: torch.tensor(x, requires_grad=True) for name, x in drawn.inputs.items()}
    query = inputs["query"]
    key = inputs.get("key", query)
    value = inputs.get("value", key)
    attn_mask = their_mask(drawn, config)
    # without weights the hint lets it drop the mask, and then causality hides the extra keys too
    is_causal = "causal" in config and "learned" not in config and "zeros" not in config
    with sdpa_kernel(SDPBackend.MATH):
        out, weights = module(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal,
            key_padding_mask=None if drawn.padding is None else torch.tensor(~drawn.padding),
            need_weights=need_weights, average_attn_weights=False,
        )  # fmt: skip
    out.backward(torch.tensor(drawn.d_out))
    found = {"out": out.detach()}
    if need_weights:
        found["weights"] = weights.detach()
    found |= {f"d_{name}": x.grad for name, x in inputs.items()}
    found |= {f"d_{name}": g for name, g in our_layer(module, lambda p: p.grad).named_params()}
    if drawn.bias is not None:
        found["d_bias"] = attn_mask.grad.reshape(drawn.bias.shape)
    return found


def their_mask(drawn, config):
    """Return attn_mask as PyTorch's module takes it: True = blocked, batch and heads in one axis.

    Its is_causal is but a hint; the mask has to be given along with it.
    """
    T = number_of_keys(drawn.inputs)
    if "causal" in config:
        return torch.ones(T_q, T, dtype=torch.bool).triu(1)
    cells = drawn.bias if drawn.mask is None else ~drawn.mask
    if cells is None:
        return None
    cells = cells.reshape(B * H, T_q, T) if "heads" in config else cells
    return torch.tensor(cells, requires_grad=cells.dtype != bool)


def ours(config):
    """Return output, weights and all gradients of our layer."""
    drawn, layer = draw(config), our_layer(torch_module(config))
    mask = drawn.mask
    if drawn.padding is not None:
        padding = drawn.padding[:, None, None]  # (B, 1, 1, T_k)
        mask = padding if mask is None else mask & padding
    out, weights = layer(
        *drawn.inputs.values(), mask=mask, bias=drawn.bias, is_causal="causal" in config,
        return_weights=True,
    )  # fmt: skip
    d_inputs = layer.backward(drawn.d_out)
    found = {"out": out, "weights": weights, "d_bias": layer.d_options.get("bias")}
    found |= dict(zip(("d_query", "d_key", "d_value"), d_inputs, strict=True))
    return found | {f"d_{name}": gradient for name, gradient in layer.named_grads()}


def assert_same(actual, expected):
    """Compare all arrays one by one; weights may be missing in theirs."""
    found = {name for name, array in actual.items() if array is not None}
    assert found - {"weights"} == set(expected) - {"weights"}
    for name, array in expected.items():
        assert_close(actual[name], array, "framework", name=name)


@pytest.mark.parametrize("config", CONFIGS)
def test_output_weights_and_gradients(config):
    actual = ours(config)
    for need_weights in (True, False):  # which PyTorch computes in two ways
        assert_same(actual, theirs(config, need_weights))


# Only without weights does PyTorch give 0 for a row that sees nothing; with them it gives NaN.
@pytest.mark.parametrize("config", ["self padding blind", "cross padding blind"])
def test_a_sequence_without_keys(config):
    actual = ours(config)
    assert_same(actual, theirs(config, need_weights=False))
    assert not actual["weights"][1].any()
    assert_close(actual["out"][1], np.tile(torch_module(config).out_proj.bias.detach(), (T_q, 1)))
