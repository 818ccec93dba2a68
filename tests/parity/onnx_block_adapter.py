"""ONNX operators beside Attention, run on `mha_numpy.layers` and `mha_numpy.core`.

Each takes its inputs by position and its attributes by name, and returns its outputs in order.
Axes are moved and merged; all that is computed is computed by blocks and core, save the weights of
classes in the loss, which it has not.
"""

import math

import numpy as np

from mha_numpy.core import (
    RopeCache,
    merge_heads,
    rope_backward,
    softmax_forward,
    split_heads,
)
from mha_numpy.layers import (
    cross_entropy_forward,
    gelu_forward,
    layer_norm_forward,
    rms_norm_forward,
)


def layer_normalization(x, gain, bias=None, *, axis=-1, epsilon=1e-5):
    merged, unmerged = _merge_from(x, axis)
    bias = None if bias is None else bias.ravel()
    out, cache = layer_norm_forward(merged, gain.ravel(), bias, eps=epsilon)
    mean = (merged - cache.x_hat / cache.inverse_std)[..., :1]  # the same from each feature
    return out.reshape(x.shape), mean.reshape(unmerged), cache.inverse_std.reshape(unmerged)


def rms_normalization(x, gain, *, axis=-1, epsilon=1e-5):
    merged, _ = _merge_from(x, axis)
    out, _ = rms_norm_forward(merged, gain.ravel(), eps=epsilon)
    return (out.reshape(x.shape),)


def _merge_from(x, axis):
    """Merge all axes from `axis` on; return also the shape of one number for each row."""
    kept = x.shape[:axis] if axis >= 0 else x.shape[: x.ndim + axis]
    size = math.prod(x.shape[len(kept) :])
    return x.reshape(*kept, size), (*kept, *(1,) * (x.ndim - len(kept)))


def softmax(x, *, axis=-1):
    weights, _ = softmax_forward(np.moveaxis(x, axis, -1))
    return (np.moveaxis(weights, -1, axis),)


def gelu(x, *, approximate=b"none"):
    return (gelu_forward(x, approximate=approximate.decode())[0],)


def softmax_cross_entropy_loss(
    logits, targets, class_weights=None, *, ignore_index=None, reduction=b"mean"
):
    logits = np.moveaxis(logits, 1, -1)
    options = {"ignore_index": ignore_index, "reduction": reduction.decode()}
    if class_weights is None:
        loss, cache = cross_entropy_forward(logits, targets, **options)
    else:
        losses, cache = cross_entropy_forward(logits, targets, **options | {"reduction": "none"})
        of_each = np.where(cache.counted, class_weights[np.where(cache.counted, targets, 0)], 0)
        total = {"mean": of_each.sum(), "sum": 1, "none": None}[options["reduction"]]
        loss = of_each * losses if total is None else (of_each * losses).sum() / total
    return loss.astype(logits.dtype), np.moveaxis(cache.log_probs, -1, 1)


def rotary_embedding(
    x, cos, sin, positions=None, *, interleaved=0, num_heads=None, rotary_embedding_dim=0
):
    heads = x if x.ndim == 4 else split_heads(x, num_heads)
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = cos[:, None], sin[:, None]  # (B, 1, T, rotary_dim / 2)
    assert rotary_embedding_dim in (0, 2 * cos.shape[-1])
    # the operator is given any cosines and sines, where forward computes its own from positions;
    # backward takes those of a cache, and turns by the opposite angle
    cache = RopeCache(cos, -sin, bool(interleaved), heads.shape, heads.dtype)
    turned = rope_backward(heads, cache).d_x
    return (turned if x.ndim == 4 else merge_heads(turned),)


OPERATORS = {
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
    "Softmax": softmax,
    "Gelu": gelu,
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy_loss,
    "RotaryEmbedding": rotary_embedding,
}
