"""Latent attention of tiny random DeepSeek models of transformers: outputs, gradients, decoding."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2  # noqa: E402
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3  # noqa: E402

from mha_numpy import KVCache, RopeOptions  # noqa: E402
from mha_numpy.layers import LatentAttention  # noqa: E402
from mha_numpy.variants import LatentAttentionParams  # noqa: E402
from tests.parity.test_transformers import norm_in_float64  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

B, T, D, H, D_NOPE, D_ROPE, D_V, D_C, D_CQ, EXACT = 2, 7, 24, 3, 6, 4, 5, 9, 10, 1e-9
YARN = {
    "rope_type": "yarn", "rope_theta": 90.0, "factor": 4.0, "mscale": 0.8, "mscale_all_dim": 0.8,
    "original_max_position_embeddings": 8,
}  # fmt: skip
YARN_FACTOR = (0.1 * 0.8 * np.log(4.0) + 1) ** 2
CASES = {  # their module, what is special, our options
    "v3": (v3, {}, {}),
    "v3 without a latent of queries": (v3, {"q_lora_rank": None}, {}),
    "v3 by halves": (v3, {"rope_interleave": False}, {"interleaved": False}),
    "v3 with the scale of yarn": (v3, {"rope_parameters": YARN}, {"factor": YARN_FACTOR}),
    "v2": (v2, {}, {}),
    "v2 without a latent of queries": (v2, {"q_lora_rank": None}, {}),
}


def params_of(theirs, *, gradients=False):
    """Return their arrays, or gradients, by our names and in our layout."""

    def array(module):
        return None if module is None else (
            module.weight.grad if gradients else module.weight.detach()
        ).numpy()  # fmt: skip

    kv_up = array(theirs.kv_b_proj).reshape(H, D_NOPE + D_V, D_C)  # per head: keys, then values
    k_up, v_up = kv_up[:, :D_NOPE].reshape(-1, D_C), kv_up[:, D_NOPE:].reshape(-1, D_C)
    has_latent = theirs.q_lora_rank is not None
    matrices = {
        "w_q_down": array(theirs.q_a_proj),
        "w_q": array(theirs.q_b_proj if has_latent else theirs.q_proj),
        "w_kv_down": array(theirs.kv_a_proj_with_mqa), "w_k_up": k_up, "w_v_up": v_up,
        "w_o": array(theirs.o_proj),
    }  # fmt: skip
    gains = {"q_gain": array(theirs.q_a_layernorm), "kv_gain": array(theirs.kv_a_layernorm)}
    turned = {name: None if w is None else w.T for name, w in matrices.items()}
    return LatentAttentionParams(**turned, **gains)


def rotations(module, angles):
    """Return what their rotary embedding passes on, in float64."""
    if module is v2:
        return {"position_embeddings": torch.polar(torch.ones_like(angles), angles)}
    both = torch.cat([angles, angles], dim=-1)
    return {"position_embeddings": (both.cos(), both.sin())}


def apply_in_float64(xq, xk, turns):
    """Do what DeepSeek-V2's rotation does, which narrows every input to float32."""
    pairs = [torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous()) for x in (xq, xk)]
    return [torch.view_as_real(x * turns.unsqueeze(1)).flatten(3) for x in pairs]


@pytest.mark.parametrize("name", CASES)
def test_output_gradients_and_decoding_are_theirs(name, rng, monkeypatch):
    module, special, ours_only = CASES[name]
    monkeypatch.setattr(v2, "apply_rotary_emb", apply_in_float64)
    torch.manual_seed(0)
    version = module.__name__[-2:].upper()
    config = getattr(transformers, f"Deepseek{version}Config")(**{
        "hidden_size": D, "num_attention_heads": H, "num_key_value_heads": H, "q_lora_rank": D_CQ,
        "kv_lora_rank": D_C, "qk_nope_head_dim": D_NOPE, "qk_rope_head_dim": D_ROPE,
        "v_head_dim": D_V, "rope_parameters": {"rope_type": "default", "rope_theta": 90.0},
        "max_position_embeddings": 32, **special,
    })  # fmt: skip
    config._attn_implementation = "sdpa"  # "eager" has its softmax in float32
    theirs = getattr(module, f"Deepseek{version}Attention")(config, layer_idx=0).double().eval()
    for part in theirs.modules():
        if type(part).__name__.endswith("RMSNorm"):
            part.weight.data += 0.3 * torch.randn_like(part.weight)
            part.forward = norm_in_float64.__get__(part)
    angles = torch.arange(T)[:, None] * 90.0 ** (-torch.arange(0, D_ROPE, 2).double() / D_ROPE)
    angles = angles.expand(B, -1, -1)
    x, d_out = torch.randn(2, B, T, D, dtype=torch.float64)
    x.requires_grad_()
    out, _ = theirs(x, attention_mask=None, **rotations(module, angles))
    out.backward(d_out)

    ours = LatentAttention(
        D, H, latent_dim=D_C, nope_dim=D_NOPE, rope_dim=D_ROPE, value_dim=D_V,
        query_latent_dim=config.q_lora_rank, scale=ours_only.get("factor", 1) / np.sqrt(10),
        rope=RopeOptions(base=90.0, interleaved=ours_only.get("interleaved", True)),
    )  # fmt: skip
    given = {n: w for n, w in params_of(theirs)._asdict().items() if w is not None}
    assert {n: w.shape for n, w in ours.params.items()} == {n: w.shape for n, w in given.items()}
    ours.params.update(given)
    found = ours(x.detach().numpy(), is_causal=True)
    np.testing.assert_allclose(found, out.detach().numpy(), rtol=0, atol=EXACT)
    d_x = ours.backward(d_out.numpy())
    np.testing.assert_allclose(d_x, x.grad.numpy(), rtol=0, atol=EXACT)
    for param, gradient in params_of(theirs, gradients=True)._asdict().items():
        if gradient is not None:
            np.testing.assert_allclose(ours.grads[param], gradient, rtol=0, atol=EXACT)
            assert np.abs(gradient).max() > 1e-3

    kv_cache, their_cache = KVCache(), transformers.DynamicCache()
    for part in (slice(0, 4), slice(4, 5), slice(5, 6)):
        with torch.no_grad():
            mask = torch.arange(part.stop) <= torch.arange(part.start, part.stop)[:, None]
            expected, _ = theirs(
                x[:, part], attention_mask=mask[None, None], past_key_values=their_cache,
                **rotations(module, angles[:, part]),
            )  # fmt: skip
        decoded = ours(x.detach().numpy()[:, part], kv_cache=kv_cache, is_causal=True)
        np.testing.assert_allclose(decoded, expected.numpy(), rtol=0, atol=EXACT)
    layer = their_cache.layers[0]
    np.testing.assert_allclose(kv_cache.held[0][..., :D_C], layer.keys.numpy(), rtol=0, atol=EXACT)
    assert kv_cache.nbytes == layer.keys.numpy().nbytes + layer.values.numpy().nbytes
