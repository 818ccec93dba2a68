"""Every task computed by the core, or another way that owes nothing to the solutions."""

import math
import sys
from fractions import Fraction

import numpy as np

from mha_numpy import core, layers, variants
from mha_numpy.layers import Dropout, Embedding, Layer, Linear, MultiHeadAttention
from mha_numpy.models import analysis
from mha_numpy.models.cost import CONFIGURATIONS, count_flops, count_parameters, kv_cache_bytes
from mha_numpy.models.train import optimizers
from mha_numpy.models.weights import from_layout, to_layout

BY_KERNELS = (  # take a backend
    "attention", "one_query", "grouped_attention", "masked_attention", "online_attention",
    "multi_head", "cross_attention", "attention_backward", "grouped_backward", "backward_from_lse",
    "multi_head_backward",
)  # fmt: skip

GPT2 = ("c_attn.weight", "c_attn.bias", "c_proj.weight", "c_proj.bias")

split_heads, merge_heads = core.split_heads, core.merge_heads


def by_core(task):
    """Return the function below of a task's name."""
    return getattr(sys.modules[__name__], task)


def forward_mode(q, k, v, q_dot, k_dot, v_dot):
    _, cache = core.attention_forward(q, k, v)
    return core.attention_jvp((q_dot, k_dot, v_dot), cache).out_dot


def round_to_digits(x, digits):
    def one(number):
        m, e = math.frexp(number)
        return math.ldexp(round(Fraction(m) * 2**digits), e - digits)  # halves to even, exactly

    return np.vectorize(one)(x)


def scores(q, k):
    _, cache = core.attention_forward(q, k, k)
    return core.attention_stages(cache).scores


def strongest_keys(weights):
    return np.argsort(weights, axis=-1)[..., -1]


def softmax(scores, mask):
    return core.softmax_forward(scores, mask=mask)[0]


def softmax_with_lse(scores, mask):
    weights, cache = core.softmax_forward(scores, mask=mask)
    return weights, cache.lse


def make_mask(lengths, T_q, T_k, q_offset, left):
    causal = core.causal_mask(T_q, T_k, q_offset=q_offset)
    near = core.window_mask(T_q, T_k, window=(left, None), q_offset=q_offset)
    return core.combine_masks(causal, near, core.padding_mask(lengths, T_k))


def sink_attention(scores, v, sink):
    # all products are 0, and the given scores are their bias
    q, k = np.zeros((*scores.shape[:3], 1)), np.zeros((*v.shape[:3], 1))
    heads, cache = core.attention_forward(q, k, v, bias=scores, sink=sink)
    return cache.weights, heads


def sink_backward(d_weights, weights):
    # with a unit matrix as values, heads are the weights; the sinks may be 0
    B, H, T_q, T_k = weights.shape
    mask = weights > 0
    bias = np.log(np.where(mask, weights, 1) / (1 - weights.sum(axis=-1, keepdims=True)))
    q, k = np.zeros((B, H, T_q, 1)), np.zeros((B, H, T_k, 1))
    v = np.zeros((B, H, T_k, T_k)) + np.eye(T_k)
    _, cache = core.attention_forward(q, k, v, bias=bias, mask=mask, sink=np.zeros(H))
    grads = core.attention_backward(d_weights, cache)
    return grads.d_bias, grads.d_sink


def draft_tree(parents, past):
    return core.tree_mask(parents, past), core.tree_positions(parents, past)


def attention(q, k, v, mask=None, softcap=None, backend="numpy"):
    return core.attention_forward(q, k, v, mask=mask, softcap=softcap, backend=backend)[0]


grouped_attention = masked_attention = attention


def one_query(q, k, v, backend="numpy"):
    return attention(q[None], k, v, backend=backend)[0]


def online_attention(q, k, v, block, backend="numpy"):
    """Attend to each block, and join the blocks by their lse."""
    heads, lse = np.zeros((len(q), v.shape[-1])), np.full(len(q), -np.inf)
    for start in range(0, len(k), block):
        keys = slice(start, start + block)
        of_block, cache = core.attention_forward(q, k[keys], v[keys], backend=backend)
        joined = np.logaddexp(lse, cache.lse)
        shares = np.exp(lse - joined), np.exp(cache.lse - joined)
        heads = shares[0][:, None] * heads + shares[1][:, None] * of_block
        lse = joined
    return heads


def multi_head(x, params, num_heads, mask=None, backend="numpy", source=None):
    return core.multi_head_attention_forward(
        x, source, params=params, num_heads=num_heads, mask=mask, backend=backend
    )[0]


def cross_attention(y, x, params, num_heads, backend="numpy"):
    return multi_head(y, params, num_heads, backend=backend, source=x)


def decode_step(x, k_past, v_past, params, num_heads):
    kv_cache, H_kv = core.KVCache(), k_past.shape[1]
    kv_cache.append(k_past.copy(), v_past.copy())  # for it writes to where it was empty
    out, cache = core.multi_head_attention_decode(
        x, kv_cache=kv_cache, params=params, num_heads=num_heads, num_kv_heads=H_kv
    )
    return out, cache.inputs.k, cache.inputs.v


def scores_backward(d_scores, q, k):
    d_q = np.einsum("bhqk,bhkd->bhqd", d_scores, k) / np.sqrt(q.shape[-1])
    return d_q, np.einsum("bhqk,bhqd->bhkd", d_scores, q) / np.sqrt(q.shape[-1])


def softmax_backward(d_weights, weights):
    with np.errstate(divide="ignore"):
        scores = np.log(weights)  # softmax of these are the weights
    _, cache = core.softmax_forward(scores, mask=weights > 0)
    return core.softmax_backward(d_weights, cache).d_scores


def attention_backward(d_heads, q, k, v, weights, backend="numpy"):
    _, cache = core.attention_forward(q, k, v, mask=weights > 0, backend=backend)
    return tuple(core.attention_backward(d_heads, cache)[:3])


grouped_backward = attention_backward


def backward_from_lse(d_heads, q, k, v, heads, lse, mask, backend="numpy"):
    return attention_backward(d_heads, q, k, v, mask, backend)


def absorbed_decode(q_nope, q_rope, kept, w_k_up, w_v_up):
    latents, k_rope = np.split(kept, [len(w_k_up)], axis=1)
    of_k, of_v = (np.split(w, len(q_nope), axis=1) for w in (w_k_up, w_v_up))
    k = np.stack([np.hstack([latents @ w, k_rope]) for w in of_k])
    v = np.stack([latents @ w for w in of_v])
    q = np.hstack([q_nope, q_rope])[:, None]
    heads, _ = core.attention_forward(q[None], k[None], v[None])
    return np.stack([one @ w.T for one, w in zip(q_nope, of_k, strict=True)]), heads[0, :, 0]


def delta_rule(q, k, v, log_decay, beta, state):
    options = {"log_decay": log_decay, "beta": beta, "state": state}
    out, cache = variants.linear_attention_forward(q, k, v, **options)
    return out, cache.final_state


def delta_step_backward(d_out, d_after, q, k, v, log_decay, beta, state):
    d_out, q, k, v, log_decay, beta = (
        array[None, :, None] for array in (d_out, q, k, v, log_decay, beta)
    )
    options = {"log_decay": log_decay, "beta": beta, "state": state[None]}
    _, cache = variants.linear_attention_forward(q, k, v, **options)
    grads = variants.linear_attention_backward(d_out, cache, d_final_state=d_after[None])
    *of_token, d_state = (gradient[0] for gradient in grads)
    return *(gradient[:, 0] for gradient in of_token), d_state


def sum_over_group(d_per_query_head, num_kv_heads):
    groups = np.split(d_per_query_head, num_kv_heads, axis=1)
    return np.stack([group.sum(axis=1) for group in groups], axis=1)


def linear_backward(d_out, x, w):
    _, cache = core.linear_forward(x, w, np.zeros(w.shape[1]))
    return tuple(core.linear_backward(d_out, cache))


def input_gradient(d_q, d_k, d_v, params):
    x = np.zeros((*merge_heads(d_q).shape[:2], len(params.w_q)))
    branches = ((d_q, params.w_q), (d_k, params.w_k), (d_v, params.w_v))
    return sum(linear_backward(merge_heads(d), x, w)[0] for d, w in branches)


def multi_head_backward(d_out, params, saved, backend="numpy"):
    _, cache = core.multi_head_attention_forward(
        saved.x, params=params, num_heads=saved.q.shape[1], mask=saved.weights > 0, backend=backend
    )
    grads = core.multi_head_attention_backward(d_out, cache)
    return grads.d_x_q, grads.d_params


def dropout_backward(d_dropped, keep, p):
    return np.where(keep, d_dropped / (1 - p), 0)


def rope(x, positions, base):
    return core.rope_forward(x, positions=positions, base=base)[0]


def rope_backward(d_out, positions, base):
    _, cache = core.rope_forward(d_out, positions=positions, base=base)
    return core.rope_backward(d_out, cache).d_x


def _gate_gradient(d_gated, heads, gate):
    """Let every query see its own key alone, so that the values are the heads."""
    own = np.eye(heads.shape[2], dtype=bool)
    _, cache = core.attention_forward(heads, heads, heads, mask=own, head_gate=gate)
    return core.attention_backward(d_gated, cache).d_head_gate


def d_head_gate(d_gated, heads):
    return _gate_gradient(d_gated, heads, np.ones(heads.shape[1]))


def head_importance(d_gated, heads):
    return np.abs(_gate_gradient(d_gated, heads, np.ones(heads.shape[:2]))).mean(axis=0)


def weights_times_norm(weights, v, w_o):
    """Measure what a token brings to a query that sees nothing else."""
    B, H, T_k, d_v = v.shape
    lengths = np.zeros((B, H, T_k))
    for b, h, j in np.ndindex(B, H, T_k):
        alone = np.zeros((B, T_k, H, d_v))
        alone[b, j, h] = v[b, h, j]
        out, _ = core.linear_forward(alone.reshape(B, T_k, -1), w_o, None)
        lengths[b, h, j] = np.linalg.norm(out)
    return np.einsum("bhij,bhj->bhij", weights, lengths)


def prune_heads(params, num_heads, heads):
    d_k, d_v = params.w_q.shape[1] // num_heads, params.w_v.shape[1] // num_heads
    layer = MultiHeadAttention(len(params.w_q), num_heads, head_dim=d_k, value_dim=d_v)
    layer.params = params._asdict()
    pruned = analysis.prune_heads(layer, heads)
    return tuple(pruned.params[name] for name in core.MultiHeadParams._fields)


def cost_table(B, T, D, H, H_kv, d, itemsize):
    """Count by `mha_numpy.models.cost`, and measure the weights and the params of a real layer."""
    config = CONFIGURATIONS["gpt-2"]
    config = type(config)(
        "one layer", D, num_layers=1, num_heads=H, num_kv_heads=H_kv, head_dim=d, feed_forward=1,
        vocabulary=1, context=T,
    )  # fmt: skip
    flops, params = count_flops(config, T, batch=B), count_parameters(config).attention
    layer = MultiHeadAttention(D, H, H_kv, head_dim=d, bias=False, rng=0)
    assert params == layer.num_parameters
    weights = layer(np.ones((B, T, D)), return_weights=True)[1]
    return {
        "attention_params": params,
        "projection_flops": flops.projections,
        "score_flops": flops.scores + flops.mix,
        "weights_bytes": weights.size * itemsize,
        "kv_cache_bytes": kv_cache_bytes(config, T, batch=B, itemsize=itemsize),
    }


def from_gpt2(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    layer = MultiHeadAttention(len(c_proj_w), 1)
    arrays = zip(GPT2, (c_attn_w, c_attn_b, c_proj_w, c_proj_b), strict=True)
    from_layout(layer, dict(arrays), "gpt2-attention")
    return tuple(layer.params[name] for name in core.MultiHeadParams._fields)


def to_gpt2(params):
    layer = MultiHeadAttention(len(params.w_q), 1)
    layer.params = params._asdict()
    arrays = to_layout(layer, "gpt2-attention")
    return tuple(arrays[name] for name in GPT2)


def layer_norm(x, gain, bias, eps):
    return layers.layer_norm_forward(x, gain, bias, eps=eps)[0]


def layer_norm_backward(d_out, x, gain, eps):
    _, cache = layers.layer_norm_forward(x, gain, np.zeros_like(gain), eps=eps)
    return tuple(layers.layer_norm_backward(d_out, cache))


def rms_norm(x, gain, eps):
    return layers.rms_norm_forward(x, gain, eps=eps)[0]


def gelu(x):
    return layers.gelu_forward(x, approximate="tanh")[0]


def gelu_backward(d_out, x):
    _, cache = layers.gelu_forward(x, approximate="tanh")
    return layers.gelu_backward(d_out, cache).d_x


def embedding_backward(d_out, ids, V):
    _, cache = layers.embedding_forward(ids, np.zeros((V, d_out.shape[-1])))
    return layers.embedding_backward(d_out, cache).d_table


def cross_entropy(logits, targets, ignored):
    return layers.cross_entropy_forward(logits, targets, ignore_index=ignored)[0]


def cross_entropy_backward(d_loss, logits, targets, ignored):
    _, cache = layers.cross_entropy_forward(logits, targets, ignore_index=ignored)
    return layers.cross_entropy_backward(np.asarray(d_loss), cache).d_logits


def adam_step(param, gradient, mean, square, t, learning_rate, beta_1, beta_2, eps):
    betas = beta_1, beta_2
    return optimizers.adam_step(
        param, gradient, mean, square, t, learning_rate=learning_rate, betas=betas, eps=eps
    )


class Model(Layer):
    """An embedding, dropout and a linear map, by the layers."""

    def __init__(self, table, w, b=None, p=0.0):
        super().__init__()
        self.embedding, self.dropout = Embedding(*table.shape), Dropout(p)
        self.linear = Linear(*w.shape, bias=b is not None)
        self.embedding.params["table"] = table.copy()
        self.linear.params |= {"w": w.copy()} | ({} if b is None else {"b": b.copy()})

    @property
    def arrays(self):
        return [array for _, array in self.named_params()]

    def evaluate(self, tokens):
        logits = self.linear(self.dropout(self.embedding(tokens[:, :-1])))
        return layers.cross_entropy_forward(logits, tokens[:, 1:])

    def learn(self, tokens, optimizer):
        """Return the loss before a step."""
        self.zero_grads()
        loss, cache = self.evaluate(tokens)
        d_logits = layers.cross_entropy_backward(np.array(1.0), cache).d_logits
        self.embedding.backward(self.dropout.backward(self.linear.backward(d_logits)))
        optimizer.step()
        return loss


def train_steps(tokens, table, w, b, learning_rate):
    model = Model(table, w, b)
    optimizer = optimizers.SGD(model, learning_rate)
    losses = [model.learn(batch, optimizer) for batch in tokens]
    return *model.arrays, np.array(losses)


class Kept:
    """Stands for the generator that dropout draws from, where it is given what is kept."""

    def __init__(self, keep):
        self.keep = keep

    def random(self, *_, **__):
        return np.where(self.keep, 1.0, 0.0)


def train_with_adam(tokens, held_out, keep, p, table, w, learning_rate):
    model = Model(table, w, p=p)
    optimizer = optimizers.Adam(model, learning_rate, betas=(0.9, 0.99), eps=0.001)
    for batch, kept in zip(tokens, keep, strict=True):
        model.dropout.rng = Kept(kept)
        model.learn(batch, optimizer)
    return *model.arrays, model.eval().evaluate(held_out)[0]
