"""Attention layers of Keras and Flax: params both ways, outputs, weights, gradients."""

import os

import numpy as np
import pytest

from mha_numpy.layers import MultiHeadAttention
from mha_numpy.models.weights import from_layout, to_layout
from tests.compare import assert_close

pytestmark = pytest.mark.filterwarnings("ignore")  # their own

B, T_q, T_k, D, H, d_k, d_v = 3, 5, 7, 12, 6, 4, 5


def draw(rng):
    """Return a query, a memory, a mask that is not the same for all, and an upstream gradient."""
    mask = rng.random((B, 1, T_q, T_k)) < 0.7
    mask[..., 0] = True
    query, memory = rng.normal(size=(B, T_q, D)), rng.normal(size=(B, T_k, D))
    return query, memory, mask, rng.normal(size=(B, T_q, D))


@pytest.mark.parametrize("H_kv", [6, 2])
def test_a_layer_of_keras(H_kv, rng):
    torch = pytest.importorskip("torch")
    os.environ["KERAS_BACKEND"] = "torch"  # its backward is PyTorch's
    keras = pytest.importorskip("keras")
    normal = keras.initializers.RandomNormal(seed=1)
    if H_kv == H:
        options = {"num_heads": H, "key_dim": d_k, "value_dim": d_v}
        theirs = keras.layers.MultiHeadAttention(
            **options, bias_initializer=normal, dtype="float64"
        )
        sizes = {"head_dim": d_k, "value_dim": d_v}
    else:
        theirs = keras.layers.GroupQueryAttention(
            d_k, H, H_kv, bias_initializer=normal, dtype="float64"
        )
        sizes = {"head_dim": d_k, "num_kv_heads": H_kv}
    query, memory, mask, d_out = draw(rng)
    out, weights = theirs(
        torch.tensor(query), torch.tensor(memory), attention_mask=torch.tensor(mask[:, 0]),
        return_attention_scores=True,
    )  # fmt: skip
    out.backward(torch.tensor(d_out))
    named = {w.path.split("/", 1)[1]: w.value for w in theirs.weights}
    arrays = {name: w.detach().numpy() for name, w in named.items()}
    ours = from_layout(MultiHeadAttention(D, H, **sizes), arrays, "keras")
    found, found_weights = ours(query, memory, mask=mask, return_weights=True)
    assert_close(found, out.detach(), "framework")
    assert_close(found_weights, weights.detach(), "framework")
    ours.backward(d_out)
    for name, gradient in to_layout(ours, "keras", gradients=True).items():
        assert_close(gradient, named[name].grad, "framework", name=name)
    assert all((arrays[n] == a).all() for n, a in to_layout(ours, "keras").items())


def test_a_layer_of_flax(rng):
    jax = pytest.importorskip("jax")
    nnx = pytest.importorskip("flax.nnx")
    query, memory, mask, d_out = draw(rng)
    was_wide = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        theirs = nnx.MultiHeadAttention(
            H, D, qkv_features=H * d_k, decode=False, rngs=nnx.Rngs(0), dtype=np.float64,
            param_dtype=np.float64, bias_init=nnx.initializers.normal(),
        )  # fmt: skip
        graph, params = nnx.split(theirs)

        def loss(params):
            # without sow_weights JAX computes the scores, in float32
            out = nnx.merge(graph, params)(query, memory, mask=mask, sow_weights=True)
            return (out * d_out).sum(), out

        grads, out = jax.grad(loss, has_aux=True)(params)
        arrays, expected, out = flat(nnx, params), flat(nnx, grads), np.asarray(out)
    finally:
        jax.config.update("jax_enable_x64", was_wide)
    ours = from_layout(MultiHeadAttention(D, H, head_dim=d_k), arrays, "flax")
    assert_close(ours(query, memory, mask=mask), out, "framework")
    ours.backward(d_out)
    for name, gradient in to_layout(ours, "flax", gradients=True).items():
        assert_close(gradient, expected[name], "framework", name=name)


def flat(nnx, state):
    """Return a state's arrays by their dotted names."""
    return {".".join(path): np.asarray(v[...]) for path, v in nnx.to_flat_state(state)}
