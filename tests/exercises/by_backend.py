"""The exercises solved by the core with a backend."""

import numpy as np

from mha_numpy import (
    attention_backward,
    attention_forward,
    multi_head_attention_backward,
    multi_head_attention_forward,
)


def solutions(backend):
    """Return a right function for each exercise that a kernel can do, by id."""

    def heads(q, k, v, **options):
        return np.array(attention_forward(q, k, v, backend=backend, **options)[0])

    def masked(q, k, v, mask, softcap):
        return heads(q, k, v, mask=mask, softcap=softcap)

    def layer(x, source, params, num_heads, **options):
        return multi_head_attention_forward(
            x, source, params=params, num_heads=num_heads, backend=backend, **options
        )

    def multi_head(x, params, num_heads, mask):
        return layer(x, None, params, num_heads, mask=mask)[0]

    def cross(y, x, params, num_heads):
        return layer(y, x, params, num_heads)[0]

    def backward(d_heads, q, k, v, weights):
        _, cache = attention_forward(q, k, v, mask=weights > 0, backend=backend)
        return tuple(attention_backward(d_heads, cache)[:3])

    def from_lse(d_heads, q, k, v, heads, lse, mask):
        _, cache = attention_forward(q, k, v, mask=mask, backend=backend)
        return tuple(attention_backward(d_heads, cache)[:3])

    def layer_backward(d_out, params, saved):
        H, mask = saved.q.shape[1], saved.weights > 0
        _, cache = layer(saved.x, None, params, H, mask=mask)
        grads = multi_head_attention_backward(d_out, cache)
        return grads.d_x_q, grads.d_params

    return {
        "attention": heads, "grouped-attention": heads, "museum-softcap": masked,
        "multi-head": multi_head, "cross-attention": cross,
        "online-attention": lambda q, k, v, block: heads(q, k, v),
        "attention-backward": backward, "grouped-backward": backward,
        "backward-from-lse": from_lse, "multi-head-backward": layer_backward,
    }  # fmt: skip
