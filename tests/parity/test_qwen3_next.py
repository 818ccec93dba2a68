"""The gated delta rule as transformers has it for Qwen3-Next, in float64."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers.models.qwen3_next import modeling_qwen3_next as theirs  # noqa: E402

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
