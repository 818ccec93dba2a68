"""Differential attention of a tiny random DiffLlama of transformers: outputs and all gradients."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention  # noqa: E402

from mha_numpy.core import (  # noqa: E402
    linear_backward,
    linear_forward,
    merge_heads,
    rope_backward,
    rope_forward,
    split_heads,
)
from mha_numpy.variants import (  # noqa: E402
    DifferentialParams,
    differential_attention_backward,
    differential_attention_forward,
)

B, T, WIDTH, H, H_KV, D, LAYER, BASE, EPS, EXACT = 2, 5, 24, 8, 4, 6, 2, 90.0, 1e-3, 1e-9
NAMES = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


def halves(x):
    """Split 2 n heads as they do: head i is the pair of i and n + i."""
    return np.split(x, 2, axis=1)


@pytest.mark.filterwarnings("ignore")
def test_output_and_gradients_are_theirs():
    torch.manual_seed(0)
    config = transformers.DiffLlamaConfig(
        hidden_size=WIDTH, num_attention_heads=H, num_key_value_heads=H_KV, head_dim=D,
        rms_norm_eps=EPS, lambda_std_dev=0.5, attention_bias=False,
    )  # fmt: skip
    config._attn_implementation = "sdpa"  # "eager" has its softmax in float32
    theirs = DiffLlamaAttention(config, layer_idx=LAYER).double().eval()
    given_sum = torch.sum  # they add up the products of lambda in float32
    x, d_out = torch.randn(2, B, T, WIDTH, dtype=torch.float64)
    x.requires_grad_()
    angles = torch.arange(T)[:, None] * BASE ** (-torch.arange(0, D, 2).double() / D)
    angles = torch.cat([angles, angles], dim=-1).expand(B, -1, -1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "sum", lambda a, dim, dtype: given_sum(a, dim=dim))
        out, _ = theirs(x, (angles.cos(), angles.sin()))
    out.backward(d_out)

    w = {n: getattr(theirs, f"{n}_proj").weight.detach().numpy().T for n in "qkvo"}
    params = DifferentialParams(*(getattr(theirs, name).detach().numpy() for name in NAMES))
    lambda_init = 0.8 - 0.6 * np.exp(-0.3 * LAYER)
    of_maps = {n: linear_forward(x.detach().numpy(), w[n]) for n in "qkv"}
    q, k, v = (split_heads(of_maps[n][0], h) for n, h in (("q", H), ("k", H_KV), ("v", H_KV)))
    (q, rotate_q), (k, rotate_k) = rope_forward(q, base=BASE), rope_forward(k, base=BASE)
    (q1, q2), (k1, k2) = halves(q), halves(k)
    wide_v = np.concatenate(halves(v), axis=-1)  # values too: two heads of theirs are one
    heads, cache = differential_attention_forward(
        q1, k1, q2, k2, wide_v, params=params, lambda_init=lambda_init, eps=EPS, is_causal=True
    )
    found, of_out = linear_forward(merge_heads(heads), w["o"])
    np.testing.assert_allclose(found, out.detach().numpy(), rtol=0, atol=EXACT)

    d_merged, d_w_o, _ = linear_backward(d_out.numpy(), of_out)
    grads = differential_attention_backward(split_heads(d_merged, H // 2), cache)
    d_q = rope_backward(np.concatenate([grads.d_q1, grads.d_q2], axis=1), rotate_q).d_x
    d_k = rope_backward(np.concatenate([grads.d_k1, grads.d_k2], axis=1), rotate_k).d_x
    d_v = np.concatenate(np.split(grads.d_v, 2, axis=-1), axis=1)
    d_x, d_w = 0, {"o": d_w_o}
    for name, d in (("q", d_q), ("k", d_k), ("v", d_v)):
        one, d_w[name], _ = linear_backward(merge_heads(d), of_maps[name][1])
        d_x = d_x + one
    np.testing.assert_allclose(d_x, x.grad.numpy(), rtol=0, atol=EXACT)
    for name, gradient in d_w.items():
        expected = getattr(theirs, f"{name}_proj").weight.grad.numpy().T
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=EXACT)
    for name in NAMES:
        expected = getattr(theirs, name).grad.numpy()
        np.testing.assert_allclose(getattr(grads.d_params, name), expected, rtol=0, atol=EXACT)
        assert np.abs(expected).max() > 1e-3
