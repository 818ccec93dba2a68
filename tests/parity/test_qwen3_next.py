"""The gated delta rule as transformers has it for Qwen3-Next, in float64."""

from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import DynamicCache  # noqa: E402
from transformers.models.qwen3_next import modeling_qwen3_next as theirs  # noqa: E402

from mha_numpy.layers import DeltaState, GatedDeltaNet  # noqa: E402
from mha_numpy.variants import (  # noqa: E402
    causal_conv_backward,
    causal_conv_forward,
    linear_attention_backward,
    linear_attention_forward,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers has its own

EXACT = 1e-9
B, H, T, D_K, D_V = 2, 3, 70, 5, 7


class Wide:
    """PyTorch, but for what it calls float32, which their code casts to."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(theirs, "torch", Wide())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def assert_same(found, expected, name):
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=0, atol=EXACT, err_msg=name)


def leaf(x):
    """Return a tensor that gets a gradient."""
    return torch.tensor(np.ascontiguousarray(x), requires_grad=True)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("rule", ["recurrent", "chunk"])
@pytest.mark.parametrize("with_state", [False, True])
def test_the_gated_delta_rule(rng, rule, with_state):
    ours = {
        "q": rng.normal(size=(B, H, T, D_K)), "k": rng.normal(size=(B, H, T, D_K)) / 2,
        "v": rng.normal(size=(B, H, T, D_V)), "log_decay": -rng.exponential(size=(B, H, T)),
        "beta": rng.random(size=(B, H, T)),
    }  # fmt: skip
    given = {name: leaf(x.swapaxes(1, 2)) for name, x in ours.items()}
    if with_state:
        ours["state"] = rng.normal(size=(B, H, D_K, D_V))
        given["state"] = leaf(ours["state"])
    form = "recurrence" if rule == "recurrent" else "chunks"
    function = getattr(theirs, f"torch_{rule}_gated_delta_rule")
    expected, last = function(
        *(given[name] for name in ("q", "k", "v", "log_decay", "beta")),
        initial_state=given.get("state"), output_final_state=True,
    )  # fmt: skip
    out, cache = linear_attention_forward(**ours, form=form)
    assert expected.dtype == torch.float64
    assert_same(out.swapaxes(1, 2), expected, "out")
    assert_same(cache.final_state, last, "final state")

    d_out, d_last = rng.normal(size=expected.shape), rng.normal(size=last.shape)
    torch.autograd.backward([expected, last], [torch.tensor(d_out), torch.tensor(d_last)])
    grads = linear_attention_backward(d_out.swapaxes(1, 2), cache, d_final_state=d_last)
    for name, x in given.items():
        gradient = getattr(grads, f"d_{name}")
        assert_same(gradient if name == "state" else gradient.swapaxes(1, 2), x.grad, name)


@pytest.mark.parametrize("activation", [None, "silu"])
def test_the_convolution_and_a_token_after_it(rng, activation):
    x, w, b = rng.normal(size=(B, T, D_K)), rng.normal(size=(4, D_K)), rng.normal(size=D_K)
    own = activation or "none"
    x_t, w_t, b_t = leaf(x.swapaxes(1, 2)), leaf(w.T), leaf(b)
    expected = theirs.causal_conv1d_fn(x_t, w_t, b_t, activation)
    out, cache = causal_conv_forward(x, w, b, activation=own)
    assert_same(out.swapaxes(1, 2), expected, "out")
    d_out = rng.normal(size=out.shape)
    expected.backward(torch.tensor(d_out.swapaxes(1, 2)))
    grads = causal_conv_backward(d_out, cache)
    for found, tensor in ((grads.d_x.swapaxes(1, 2), x_t), (grads.d_w.T, w_t), (grads.d_b, b_t)):
        assert_same(found, tensor.grad, "gradient")

    new, state = rng.normal(size=(B, 1, D_K)), torch.tensor(cache.final_state.swapaxes(1, 2))
    expected = theirs.causal_conv1d_update(
        torch.tensor(new.swapaxes(1, 2)), state, w_t, b_t, activation
    )
    out, cache = causal_conv_forward(new, w, b, state=cache.final_state, activation=own)
    assert_same(out.swapaxes(1, 2), expected, "next")
    assert_same(cache.final_state.swapaxes(1, 2), state, "state")


def unpack(module):
    """Return our params of their mixer, or its gradients if it has some: by head, then by part."""
    config = {name: param.grad if param.grad is not None else param
              for name, param in module.named_parameters()}  # fmt: skip
    found = {name: array.detach().numpy() for name, array in config.items()}
    groups, group = module.num_k_heads, module.num_v_heads // module.num_k_heads
    d_k, d_v = module.head_k_dim, module.head_v_dim
    widths = np.cumsum([d_k, d_k, group * d_v])
    packed = found["in_proj_qkvz.weight"].reshape(groups, -1, module.hidden_size)
    maps = dict(zip(("q", "k", "v", "gate"), np.split(packed, widths, axis=1), strict=True))
    packed = found["in_proj_ba.weight"].reshape(groups, -1, module.hidden_size)
    maps |= dict(zip(("beta", "decay"), np.split(packed, 2, axis=1), strict=True))
    return {
        **{f"w_{name}": w.reshape(-1, module.hidden_size).T for name, w in maps.items()},
        "w_conv": found["conv1d.weight"][:, 0].T, "w_o": found["out_proj.weight"].T,
        "a_log": found["A_log"], "dt_bias": found["dt_bias"], "gain": found["norm.weight"],
    }  # fmt: skip


@pytest.fixture
def mixers(wide):
    torch.manual_seed(0)
    config = theirs.Qwen3NextConfig(
        hidden_size=12, num_hidden_layers=1, layer_types=["linear_attention"],
        linear_num_value_heads=6, linear_num_key_heads=3, linear_key_head_dim=5,
        linear_value_head_dim=4, linear_conv_kernel_dim=3,
    )  # fmt: skip
    module = theirs.Qwen3NextGatedDeltaNet(config, 0).double()
    with torch.no_grad():
        for param in module.parameters():
            param += 0.1 * torch.randn_like(param)
    ours = GatedDeltaNet(12, 6, 3, head_dim=5, value_dim=4, kernel_size=3)
    params = unpack(module)
    assert {name: x.shape for name, x in ours.params.items()} == {
        name: x.shape for name, x in params.items()
    }
    ours.params = params
    return module, ours, config


@pytest.mark.usefixtures("backend")
def test_the_mixer_and_its_gradients(mixers, rng):
    module, ours, _ = mixers
    x, d_out = rng.normal(size=(2, B, T, 12))
    given = leaf(x)
    expected = module(given)
    expected.backward(torch.tensor(d_out))
    assert_same(ours(x), expected, "out")
    assert_same(ours.backward(d_out), given.grad, "d_x")
    grads = unpack(module)
    assert {*grads} == {*ours.grads}
    for name, gradient in grads.items():
        np.testing.assert_allclose(ours.grads[name], gradient, rtol=0, atol=EXACT, err_msg=name)
        assert np.abs(gradient).max() > 1e-6


@pytest.mark.parametrize("prompt", [1, 9])
def test_decoding_token_by_token(mixers, rng, prompt):
    module, ours, config = mixers
    x = rng.normal(size=(B, 15, 12))
    cache, state = DynamicCache(config=config), DeltaState()
    for first, last in pairwise([0, *range(prompt, 16)]):
        with torch.no_grad():
            expected = module(torch.tensor(x[:, first:last]), cache_params=cache)
        assert_same(ours(x[:, first:last], state=state), expected, f"tokens {first} to {last}")
    np.testing.assert_allclose(ours(x)[:, -1:], expected, rtol=0, atol=EXACT)
