"""A function of JAX with the heads in the third axis."""

import jax
import jax.numpy as jnp


@jax.jit
def dot_product_attention(query, key, value, bias=None):
    """query: [batch, q_len, heads, depth]; key, value: [batch, kv_len, heads, depth]."""
    query = query / jnp.sqrt(query.shape[-1])
    logits = jnp.einsum("bqhd,bkhd->bhqk", query, key)
    if bias is not None:
        logits = logits + bias
    weights = jax.nn.softmax(logits, axis=1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)
