"""Attention modules of today's models in transformers against ours: outputs and all gradients."""

from functools import partial
from importlib import import_module

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from mha_numpy import MultiHeadAttention, QKNormOptions, RopeOptions  # noqa: E402
from mha_numpy.core import relative_bias_backward, relative_bias_forward  # noqa: E402
from mha_numpy.core.relative_bias import distance_buckets  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers has its own

B, T, D, H, H_KV, D_K, BASE, EXACT = 2, 7, 24, 6, 2, 8, 500.0, 1e-9
CONFIG = {"hidden_size": D, "num_attention_heads": H, "num_key_value_heads": H_KV, "head_dim": D_K,
          "rms_norm_eps": 0.01, "num_hidden_layers": 2, "vocab_size": 11,
          "intermediate_size": 12}  # fmt: skip
MODULES = {  # of transformers.models, the prefix of its classes, its options, ours
    "qwen3": ("Qwen3", {"attention_bias": True}, {"qk_norm": QKNormOptions("heads", 0.01)}),
    "gemma3": (
        "Gemma3", {"query_pre_attn_scalar": 5},
        {"qk_norm": QKNormOptions("heads", 0.01), "bias": False},
    ),
    "olmo2": (
        "Olmo2", {"head_dim": 4},
        {"qk_norm": QKNormOptions("projection", 0.01), "bias": False, "head_dim": 4},
    ),
    "hunyuan_v1_dense": (
        "HunYuanDenseV1", {}, {"qk_norm": QKNormOptions("rotated", 0.01), "bias": False},
    ),
    "gemma2": (
        "Gemma2", {"query_pre_attn_scalar": 5, "attn_logit_softcapping": 1.5}, {"bias": False},
    ),
    "qwen3_next": (
        "Qwen3Next", {}, {"qk_norm": QKNormOptions("heads", 0.01), "bias": False, "gated": True},
    ),
    "gpt_oss": ("GptOss", {}, {"sink": True}),
}  # fmt: skip
OPTIONS = {  # of our forward
    "gemma2": {"scale": 5**-0.5, "softcap": 1.5}, "gemma3": {"scale": 5**-0.5},
}  # fmt: skip


def norm_in_float64(module, x):
    """Do what its forward does, which narrows every input to float32."""
    eps = module.eps if hasattr(module, "eps") else module.variance_epsilon
    gain = module.weight + 1 if hasattr(module, "eps") else module.weight
    return gain * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def make(name, monkeypatch):
    """Return their module in float64, without a number that is 0 or 1."""
    torch.manual_seed(0)
    prefix, options, _ = MODULES[name]
    suffix = "TextConfig" if name == "gemma3" else "Config"
    config = getattr(transformers, prefix + suffix)(**CONFIG | options)
    config._attn_implementation = "eager"
    module = import_module(f"transformers.models.{name}.modeling_{name}")
    theirs = getattr(module, f"{prefix}Attention")(config, 0).to(torch.float64).eval()
    with torch.no_grad():
        for param in theirs.parameters():
            param.copy_(torch.randn_like(param) / 2)
    for part in theirs.modules():
        if type(part).__name__.endswith("RMSNorm"):
            part.forward = partial(norm_in_float64, part)
    take_softmax_in_float64(monkeypatch)
    return theirs


def take_softmax_in_float64(monkeypatch):
    """Leave out the dtype that they ask for, float32."""
    softmax = torch.nn.functional.softmax
    monkeypatch.setattr(torch.nn.functional, "softmax", lambda x, dim, dtype=None: softmax(x, dim))


def as_ours(theirs, name, of):
    """Return their params, or the gradients, under our names and with our axes."""
    arrays = {key: of(param).numpy() for key, param in theirs.named_parameters()}
    found = {}
    for letter in "qkvo":
        found[f"w_{letter}"] = arrays[f"{letter}_proj.weight"].T
        if f"{letter}_proj.bias" in arrays:
            found[f"b_{letter}"] = arrays[f"{letter}_proj.bias"]
    if name == "qwen3_next":  # each head has its queries, then its gates
        q_and_gate = found["w_q"].reshape(D, H, 2, D_K)
        found["w_q"], found["w_gate"] = (q_and_gate[:, :, i].reshape(D, -1) for i in range(2))
    for key, array in arrays.items():
        if "norm" in key:
            found[f"gain_{key[0]}"] = array
    if "sinks" in arrays:
        found["sink"] = arrays["sinks"]
    return found


BUCKETS = 10


@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_relative_bias_of_t5(bidirectional, monkeypatch, rng):
    torch.manual_seed(0)
    config = transformers.T5Config(
        d_model=D, d_kv=D_K, num_heads=H, is_decoder=not bidirectional,
        relative_attention_num_buckets=BUCKETS, relative_attention_max_distance=6,
    )  # fmt: skip
    config._attn_implementation = "eager"
    module = import_module("transformers.models.t5.modeling_t5")
    theirs = module.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    theirs = theirs.to(torch.float64).eval()
    take_softmax_in_float64(monkeypatch)
    ours = MultiHeadAttention(D, H, head_dim=D_K, bias=False)
    for letter in "qkvo":
        ours.params[f"w_{letter}"][...] = getattr(theirs, letter).weight.detach().numpy().T
    table = theirs.relative_attention_bias.weight

    x, d_out = rng.normal(size=(B, T, D)), rng.normal(size=(B, T, D))
    mask = torch.full((T, T), 0.0 if bidirectional else -torch.inf, dtype=torch.float64).triu(1)
    given = torch.tensor(x, requires_grad=True)
    expected, *_ = theirs(given, mask=mask[None, None])
    expected.backward(torch.tensor(d_out))

    bias, cache = relative_bias_forward(
        table.detach().numpy(), T, bidirectional=bidirectional, max_distance=6
    )
    out = ours(x, bias=bias, scale=1.0, is_causal=not bidirectional)
    d_x, *_ = ours.backward(d_out)
    d_table = relative_bias_backward(ours.d_options["bias"], cache).d_table
    pairs = [(out, expected.detach()), (d_x, given.grad), (d_table, table.grad)]
    pairs += [(ours.grads[f"w_{x}"].T, getattr(theirs, x).weight.grad) for x in "qkvo"]
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=EXACT)
        assert np.abs(found).max() > 1e-3


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("num_buckets", [8, 12, 20, 32, 128])
def test_the_buckets_of_t5(num_buckets, bidirectional):
    module = import_module("transformers.models.t5.modeling_t5")
    distance = np.arange(-3000, 3001)
    for max_distance in (65, 128, 1000):
        options = bidirectional, num_buckets, max_distance
        expected = module.T5Attention._relative_position_bucket(torch.tensor(distance), *options)
        found = distance_buckets(distance, num_buckets, bidirectional, max_distance)
        np.testing.assert_array_equal(found, expected.numpy())


@pytest.mark.parametrize("name", MODULES)
def test_outputs_and_all_gradients_are_theirs(name, monkeypatch, rng):
    theirs, (_, their_options, options) = make(name, monkeypatch), MODULES[name]
    sizes = {"embed_dim": D, "num_heads": H, "num_kv_heads": H_KV, "head_dim": D_K}
    ours = MultiHeadAttention(**sizes | {"rope": RopeOptions(base=BASE)} | options)
    params = as_ours(theirs, name, lambda p: p.detach())
    assert params.keys() == ours.params.keys()
    for key, param in params.items():
        is_one_less = name in ("gemma3", "qwen3_next") and key.startswith("gain")
        ours.params[key][...] = param + is_one_less

    x, d_out = rng.normal(size=(B, T, D)), rng.normal(size=(B, T, D))
    positions = rng.integers(0, 30, (B, T))
    width = their_options.get("head_dim", D_K)
    frequencies = BASE ** (-np.arange(0, width, 2) / width)
    angles = torch.tensor(positions[..., None] * frequencies)
    if name != "gpt_oss":
        angles = angles.repeat(1, 1, 2)
    causal = torch.full((T, T), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    given = torch.tensor(x, requires_grad=True)
    expected, _ = theirs(given, (angles.cos(), angles.sin()), causal)
    expected.backward(torch.tensor(d_out))

    out = ours(x, is_causal=True, positions=positions, **OPTIONS.get(name, {}))
    np.testing.assert_allclose(out, expected.detach().numpy(), rtol=0, atol=EXACT)
    d_x, *_ = ours.backward(d_out)
    np.testing.assert_allclose(d_x, given.grad.numpy(), rtol=0, atol=EXACT)
    for key, gradient in as_ours(theirs, name, lambda p: p.grad).items():
        np.testing.assert_allclose(ours.grads[key], gradient, rtol=0, atol=EXACT, err_msg=key)
        assert np.abs(gradient).max() > 1e-3 or key == "b_k", key
