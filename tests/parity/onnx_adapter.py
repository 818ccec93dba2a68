"""ONNX operators run on `mha_numpy.layers`, `mha_numpy.variants` and `mha_numpy.core`.

Names, layouts and dtypes are mapped, axes moved and merged; all that is computed is computed by
layers, variants and core, save the weights of classes in the loss, which layers have not.
"""

import math

import numpy as np
import onnx

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
from mha_numpy.variants import causal_conv_forward, linear_attention_forward

STAGES = ("scores", "capped", "masked", "weights")  # by qk_matmul_output_mode
SOFTMAX_DTYPES = {1: "float32", 10: "float16", 11: "float64", 16: "float32"}  # by TensorProto type


def attention(
    Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *,
    is_causal=0, kv_num_heads=None, left_window_size=-1, q_num_heads=None, qk_matmul_output_mode=0,
    right_window_size=-1, scale=None, softcap=0.0, softmax_precision=None,
):  # fmt: skip
    """Run Attention of opsets 23 to 25.

    Floats are widened, never narrowed, to the dtype to compute in: core knows no bfloat16, and
    computes its softmax in the dtype of everything else.
    """
    dtypes, is_merged = [x.dtype for x in (Q, K, V)], Q.ndim == 3
    wide = np.dtype(SOFTMAX_DTYPES.get(softmax_precision, "float16"))
    Q, K, V, attn_mask, past_key, past_value = (
        _widen(x, wide) for x in (Q, K, V, attn_mask, past_key, past_value)
    )
    if is_merged:
        Q = split_heads(Q, q_num_heads)
        K, V = split_heads(K, kv_num_heads), split_heads(V, kv_num_heads)

    kv_cache = KVCache()
    if past_key is not None:
        kv_cache.append(past_key, past_value)
    q_offset = kv_cache.length
    K, V = kv_cache.append(K, V)

    T_q, T_k = Q.shape[2], K.shape[2]
    mask, bias = _mask_or_bias(attn_mask, T_k)
    if nonpad_kv_seqlen is not None:
        mask = combine_masks(mask, padding_mask(nonpad_kv_seqlen, T_k))
        q_offset = nonpad_kv_seqlen - T_q
    heads, cache = attention_forward(
        Q, K, V, mask=mask, bias=bias, is_causal=bool(is_causal), q_offset=q_offset,
        window=(_bound(left_window_size), _bound(right_window_size)),
        softcap=softcap or None, scale=scale,
    )  # fmt: skip
    stage = getattr(attention_stages(cache), STAGES[qk_matmul_output_mode])
    found = merge_heads(heads) if is_merged else heads, K, V, stage
    return [x.astype(dtype) for x, dtype in zip(found, [*dtypes, dtypes[0]], strict=True)]


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


def flex_attention(Q, K, V, *, scale=None, score_mod=None, prob_mod=None, softmax_precision=None):
    """Run FlexAttention; what its cases do to scores and weights is an option here."""
    T_q, T_k = Q.shape[2], K.shape[2]
    options_of = {
        "score_mod_bias": lambda bias: {"bias": bias},
        "score_mod_causal_mask": lambda *_: {"is_causal": True},
        "score_mod_soft_cap": lambda cap: {"softcap": float(cap)},
        "score_mod_relative_positional": lambda *_: {
            "bias": np.subtract.outer(np.arange(T_q), np.arange(T_k)).astype(Q.dtype)
        },
        "prob_mod_scale": lambda factor: {"dropout_mask": factor},
    }
    options = {}
    for graph in filter(None, (score_mod, prob_mod)):
        constants = [onnx.numpy_helper.to_array(x) for x in graph.initializer]
        options |= options_of[graph.name](*constants)
    wide = np.dtype(SOFTMAX_DTYPES.get(softmax_precision, "float16"))
    heads, _ = attention_forward(*(_widen(x, wide) for x in (Q, K, V)), scale=scale, **options)
    return (heads.astype(V.dtype),)


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


def linear_attention(
    q, k, v, past_state=None, decay=None, beta=None, *, q_num_heads, kv_num_heads,
    update_rule=b"gated_delta", scale=0.0, chunk_size=64,
):  # fmt: skip
    assert (decay is not None) == (b"gated" in update_rule)
    assert (beta is not None) == (b"delta" in update_rule)
    q = split_heads(q, q_num_heads)
    k, v = split_heads(k, kv_num_heads), split_heads(v, kv_num_heads)
    if decay is not None:  # (B, T, H_kv), or (B, T, H_kv * d_k)
        decay = split_heads(decay, kv_num_heads)
        decay = decay if decay.shape[-1] == k.shape[-1] else decay[..., 0]
    if beta is not None:  # (B, T, H_kv), or (B, T, 1) for all heads
        beta = np.broadcast_to(beta.swapaxes(1, 2), k.shape[:3])
    out, cache = linear_attention_forward(
        q, k, v, log_decay=decay, beta=beta, state=past_state, scale=scale or None,
        chunk=chunk_size,
    )  # fmt: skip
    state_dtype = (q if past_state is None else past_state).dtype
    return merge_heads(out), cache.final_state.astype(state_dtype)


def causal_conv_with_state(x, w, bias=None, past_state=None, *, activation=b"none"):
    state = None if past_state is None else past_state.swapaxes(1, 2)  # (B, D, K - 1) there
    activation = activation.decode().replace("swish", "silu")  # another name for it
    out, cache = causal_conv_forward(
        x.swapaxes(1, 2), w[:, 0].T, bias, state=state, activation=activation
    )
    return out.swapaxes(1, 2), cache.final_state.swapaxes(1, 2).astype(x.dtype)


OPERATORS = {
    "LinearAttention": linear_attention,
    "CausalConvWithState": causal_conv_with_state,
    "Attention": attention,
    "FlexAttention": flex_attention,
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
    "Softmax": softmax,
    "Gelu": gelu,
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy_loss,
    "RotaryEmbedding": rotary_embedding,
}


def run_node(node, attributes, inputs):
    """Return those outputs of a node that are asked for; what is left out is the empty string."""
    given = iter(inputs)
    slots = [next(given) if slot else None for slot in node.input]
    outputs = OPERATORS[node.op_type](*slots, **attributes)
    return [x for x, slot in zip(outputs, node.output, strict=False) if slot]
