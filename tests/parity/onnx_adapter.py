"""ONNX operators run on `mha_numpy.layers` and `mha_numpy.core`.

Names, layouts and dtypes are mapped, axes moved and merged; all that is computed is computed by
layers and core, save the weights of classes in the loss, which layers have not.
"""

import math
from typing import NamedTuple

import numpy as np

from mha_numpy.core import (
    KVCache,
    RopeCache,
    attention_forward,
    attention_stages,
    combine_masks,
    merge_heads,
    padding_mask,
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

STAGES = ("scores", "capped", "masked", "weights")  # by qk_matmul_output_mode
SOFTMAX_DTYPES = {1: "float32", 10: "float16", 11: "float64", 16: "float32"}  # by TensorProto type


class Inputs(NamedTuple):
    """The inputs of Attention (opsets 23 to 25), in the order of a node's."""

    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    attn_mask: np.ndarray | None = None
    past_key: np.ndarray | None = None
    past_value: np.ndarray | None = None
    nonpad_kv_seqlen: np.ndarray | None = None


class Outputs(NamedTuple):
    """Its outputs, in the order of a node's; None for one that was not asked for."""

    Y: np.ndarray | None = None
    present_key: np.ndarray | None = None
    present_value: np.ndarray | None = None
    qk_matmul_output: np.ndarray | None = None


class Attributes(NamedTuple):
    """Its attributes, with their defaults."""

    is_causal: int = 0
    kv_num_heads: int | None = None
    left_window_size: int = -1
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None


def run_attention(inputs, attributes, wanted):
    """Return the Outputs whose names are in `wanted`; inputs and attributes come by name."""
    given, options = Inputs(**inputs), Attributes(**attributes)
    Q, K, V, attn_mask, past_key, past_value, nonpad = _widened(given, options.softmax_precision)
    if Q.ndim == 3:
        Q = split_heads(Q, options.q_num_heads)
        K, V = split_heads(K, options.kv_num_heads), split_heads(V, options.kv_num_heads)

    kv_cache = KVCache()
    if past_key is not None:
        kv_cache.append(past_key, past_value)
    q_offset = kv_cache.length
    K, V = kv_cache.append(K, V)

    T_q, T_k = Q.shape[2], K.shape[2]
    mask, bias = _mask_or_bias(attn_mask, T_k)
    if nonpad is not None:
        mask = combine_masks(mask, padding_mask(nonpad, T_k))
        q_offset = nonpad - T_q
    heads, cache = attention_forward(
        Q, K, V, mask=mask, bias=bias, is_causal=bool(options.is_causal), q_offset=q_offset,
        window=(_bound(options.left_window_size), _bound(options.right_window_size)),
        softcap=options.softcap or None, scale=options.scale,
    )  # fmt: skip

    found = {"Y": merge_heads(heads) if given.Q.ndim == 3 else heads}
    found |= {"present_key": K, "present_value": V}
    if "qk_matmul_output" in wanted:
        stage = STAGES[options.qk_matmul_output_mode]
        found["qk_matmul_output"] = getattr(attention_stages(cache), stage)
    dtypes = {"present_key": given.K.dtype, "present_value": given.V.dtype}
    return Outputs(**{x: found[x].astype(dtypes.get(x, given.Q.dtype)) for x in wanted})


def _widened(given, softmax_precision):
    """Return the inputs with their floats widened, never narrowed, to the dtype to compute in.

    Core knows no bfloat16, and computes its softmax in the dtype of everything else.
    """
    dtype = np.dtype(SOFTMAX_DTYPES.get(softmax_precision, "float16"))
    return Inputs(*(_widen(array, dtype) for array in given))


def _widen(array, dtype):
    """Return floats in at least `dtype`, and anything else as it is."""
    if array is None or array.dtype.kind in "bi":
        return array
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    return array.astype(np.result_type(array, dtype), copy=False)


def _mask_or_bias(attn_mask, T_k):
    """Sort an attn_mask by its dtype; keys beyond its end are hidden."""
    if attn_mask is None:
        return None, None
    is_mask = attn_mask.dtype == bool
    missing = T_k - attn_mask.shape[-1]
    pad_width = [(0, 0)] * (attn_mask.ndim - 1) + [(0, missing)]
    padded = np.pad(attn_mask, pad_width, constant_values=False if is_mask else -np.inf)
    return (padded, None) if is_mask else (None, padded)


def _bound(size):
    """Return one side of a window: -1 is unbounded."""
    return None if size == -1 else size


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


def run_node(node, attributes, inputs):
    """Return the outputs of a node, in its order."""
    if node.op_type != "Attention":
        return OPERATORS[node.op_type](*inputs, **attributes)
    # a slot that is left out is the empty string
    named = [name for name, slot in zip(Inputs._fields, node.input, strict=False) if slot]
    wanted = [name for name, slot in zip(Outputs._fields, node.output, strict=False) if slot]
    found = run_attention(dict(zip(named, inputs, strict=True)), attributes, wanted)
    return [getattr(found, name) for name in wanted]
