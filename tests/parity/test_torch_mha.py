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


class Config(NamedTuple):
    """One comparison: which inputs, and what hides or shifts the scores."""

    kind: str  # which inputs are passed, see `draw_inputs`
    has_bias: bool = True
    padding: bool = False
    attn_mask: str | None = None  # "bool" or "float"
    per_head: bool = False  # attn_mask is (B * H, T_q, T_k) instead of (T_q, T_k)
    is_causal: bool = False
    blind: bool = False  # one sequence is padding alone
    bias_kv: bool = False  # add_bias_kv
    zero_attn: bool = False  # add_zero_attn


class Drawn(NamedTuple):
    """The random arrays of one comparison, in our meaning: True = may attend."""

    inputs: dict[str, np.ndarray]
    mask: np.ndarray | None
    bias: np.ndarray | None
    padding: np.ndarray | None
    d_out: np.ndarray


CONFIGS = {
    "self": Config("self"),
    "self, without biases": Config("self", has_bias=False),
    "self, causal": Config("self", is_causal=True),
    "self, causal and padding": Config("self", is_causal=True, padding=True),
    "self, mask for each head": Config("self", attn_mask="bool", per_head=True),
    "query, key and value alike": Config("alike"),
    "cross": Config("cross"),
    "cross, one memory": Config("memory"),
    "cross, without biases": Config("cross", has_bias=False),
    "cross, padding": Config("cross", padding=True),
    "cross, causal": Config("cross", is_causal=True),
    "cross, mask": Config("cross", attn_mask="bool"),
    "cross, mask for each head": Config("cross", attn_mask="bool", per_head=True),
    "cross, mask and padding": Config("cross", attn_mask="bool", padding=True),
    "cross, mask for each head and padding": Config(
        "memory", attn_mask="bool", per_head=True, padding=True
    ),
    "cross, added numbers": Config("cross", attn_mask="float"),
    "cross, added numbers for each head": Config("memory", attn_mask="float", per_head=True),
    "three inputs of one width": Config("equal widths", attn_mask="bool"),
    "learned key, self": Config("self", bias_kv=True),
    "learned key, without biases": Config("self", has_bias=False, bias_kv=True),
    "learned key, causal": Config("self", is_causal=True, bias_kv=True),
    "learned key, causal and padding": Config("self", is_causal=True, padding=True, bias_kv=True),
    "learned key, cross": Config("cross", bias_kv=True),
    "learned key, one memory": Config("memory", padding=True, bias_kv=True),
    "learned key, all tokens hidden": Config("cross", padding=True, blind=True, bias_kv=True),
    "learned key, mask": Config("cross", attn_mask="bool", bias_kv=True),
    "learned key, mask for each head and padding": Config(
        "cross", attn_mask="bool", per_head=True, padding=True, bias_kv=True
    ),
    "learned key, added numbers": Config("cross", attn_mask="float", bias_kv=True),
    "learned key, added numbers for each head": Config(
        "self", attn_mask="float", per_head=True, bias_kv=True
    ),
    "key of zeros, self": Config("self", zero_attn=True),
    "key of zeros, causal": Config("cross", is_causal=True, zero_attn=True),
    "key of zeros, added numbers": Config("cross", attn_mask="float", zero_attn=True),
    "both, self": Config("self", bias_kv=True, zero_attn=True),
    "both, mask and padding": Config(
        "cross", attn_mask="bool", padding=True, bias_kv=True, zero_attn=True
    ),
    "both, added numbers": Config("cross", attn_mask="float", bias_kv=True, zero_attn=True),
}


def draw(config):
    """Return random inputs, masks and a gradient of the output."""
    rng = np.random.default_rng(20170612)
    inputs = draw_inputs(config.kind, rng)
    T = number_of_keys(inputs)
    padding = mask = bias = None
    if config.padding:
        lengths = np.array([3, 0 if config.blind else 4, T, 2])
        padding = np.arange(T) < lengths[:, None]  # (B, T)
    shape = (B, H, T_q, T) if config.per_head else (T_q, T)
    if config.attn_mask == "bool":
        mask = rng.random(shape) < 0.7
        mask[..., 0] = True  # no row is blind: PyTorch's weights would be NaN
    if config.attn_mask == "float":
        bias = rng.normal(size=shape)
    return Drawn(inputs, mask, bias, padding, rng.normal(size=(B, T_q, D)))


def number_of_keys(inputs):
    """Return T_k, which is T_q where the query input serves as key."""
    return list(inputs.values())[-1].shape[1]


def draw_inputs(kind, rng):
    """Return those of query, key and value that are passed."""
    query = rng.normal(size=(B, T_q, D))
    if kind == "self":
        return {"query": query}
    if kind == "alike":
        return {"query": query, "key": query, "value": query}
    if kind == "equal widths":
        key, value = rng.normal(size=(2, B, T_k, D))
        return {"query": query, "key": key, "value": value}
    key = rng.normal(size=(B, T_k, kdim))
    if kind == "memory":
        return {"query": query, "key": key}
    return {"query": query, "key": key, "value": rng.normal(size=(B, T_k, vdim))}


def torch_module(config):
    """Return a PyTorch module with random weights and, unlike a new one, random biases."""
    torch.manual_seed(1706)
    widths = {"cross": (kdim, vdim), "memory": (kdim, kdim)}.get(config.kind, (D, D))
    module = torch.nn.MultiheadAttention(
        D, H, bias=config.has_bias, kdim=widths[0], vdim=widths[1], batch_first=True,
        dtype=torch.float64, add_bias_kv=config.bias_kv, add_zero_attn=config.zero_attn,
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
    is_causal = config.is_causal and not (config.bias_kv or config.zero_attn)
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
    if config.is_causal:
        return torch.ones(T_q, T, dtype=torch.bool).triu(1)
    cells = drawn.bias if drawn.mask is None else ~drawn.mask
    if cells is None:
        return None
    cells = cells.reshape(B * H, T_q, T) if config.per_head else cells
    return torch.tensor(cells, requires_grad=cells.dtype != bool)


def ours(config):
    """Return output, weights and all gradients of our layer."""
    drawn, layer = draw(config), our_layer(torch_module(config))
    mask = drawn.mask
    if drawn.padding is not None:
        padding = drawn.padding[:, None, None]  # (B, 1, 1, T_k)
        mask = padding if mask is None else mask & padding
    out, weights = layer(
        *drawn.inputs.values(), mask=mask, bias=drawn.bias, is_causal=config.is_causal,
        return_weights=True,
    )  # fmt: skip
    d_inputs = layer.backward(drawn.d_out)
    found = {"out": out, "weights": weights, "d_bias": layer.d_bias}
    found |= dict(zip(("d_query", "d_key", "d_value"), d_inputs, strict=True))
    return found | {f"d_{name}": gradient for name, gradient in layer.named_grads()}


def assert_same(actual, expected):
    """Compare all arrays one by one; weights may be missing in theirs."""
    found = {name for name, array in actual.items() if array is not None}
    assert found - {"weights"} == set(expected) - {"weights"}
    for name, array in expected.items():
        assert_close(actual[name], array, "framework", name=name)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("name", CONFIGS)
def test_output_weights_and_gradients(name, need_weights):
    assert_same(ours(CONFIGS[name]), theirs(CONFIGS[name], need_weights))


# Only without weights does PyTorch give 0 for a row that sees nothing; with them it gives NaN.
@pytest.mark.parametrize("kind", ["self", "cross"])
def test_a_sequence_without_keys(kind):
    config = Config(kind, padding=True, blind=True)
    actual = ours(config)
    assert_same(actual, theirs(config, need_weights=False))
    assert not actual["weights"][1].any()
    assert_close(actual["out"][1], np.tile(torch_module(config).out_proj.bias.detach(), (T_q, 1)))
