# %% [markdown]
# # 16 · Grouped and multi-query attention
#
# Llama 3 70B has read 8192 tokens and writes one more. In every layer, its new queries need all keys and values so far,
# which the model keeps in memory (notebook 17). How much must it read for this one token, if each of the 64 query heads
# has its own keys and values, if groups of 8 share them, as in the real model, or if all 64 do?

# %% tags=["hide-input"]
from dataclasses import replace

import numpy as np

from mha_numpy import (
    attention_backward,
    attention_forward,
    compare,
    trace,
)
from mha_numpy.models.cost import (
    CONFIGURATIONS,
    count_parameters,
    kv_cache_bytes,
)
from mha_numpy.show.pictures import (
    backward_film,
    bar_chart,
    experiment_chart,
    matrices,
    sharing_map,
)

# %%
llama = CONFIGURATIONS["llama-3-70b"]
cases = {"each has its own": 64, "groups of 8": 8, "all share": 1}
to_read, params = {}, {}
for name, H_kv in cases.items():
    model = replace(llama, num_kv_heads=H_kv)
    to_read[name] = kv_cache_bytes(model, 8192) / 2**30
    params[name] = count_parameters(model).total / 1e9
title = "Llama 3 70B: keys and values read for one token"
bar_chart(to_read, title=title, unit="GiB")

# %% [markdown]
# Do answers get worse if heads share? Is decoding 64 times as fast? And can a trained model start to share?
#
# **By the end you can** say what sharing saves and what it costs, let trained heads share, write the attention without
# a copy, and sum its gradients over the right heads.
#
# ## Who reads what
#
# H query heads read H_kv key/value heads, so each group of G = H / H_kv query heads shares one. Here are eight query
# heads in three ways: **multi-head**, **grouped-query**, **multi-query**.
#
# > **Predict first.** With 8 query heads and 2 key/value heads, counted from 0: which query heads read key/value head
# > 1?

# %%
display(sharing_map(8, 8))
display(sharing_map(8, 2))
sharing_map(8, 1)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Query heads 4 to 7 read it, because neighbours share.
#
# </details>
#
# (Some texts write G for the *number* of groups, 2 here; our G is 4.)
#
# ## What it costs
#
# **Quality.** You can't compute it from shapes. `mha-numpy experiment grouped` trains small language models with 8
# query heads and H_kv = 8, 2 or 1. The second line spends the saved params on the feed-forward network, the third the
# saved operations on more steps.
#
# > **Predict first.** Which loses quality?
# >
# > - H_kv = 2 and, more so, H_kv = 1
# > - only H_kv = 1
# > - five seeds can't tell them apart
# >
# > <!-- answer: five seeds can't tell them apart -->

# %%
experiment_chart("grouped")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Five seeds can't tell them apart, which doesn't prove them equal. H_kv = 1 has 0.03 nats more than H_kv = 8, with a
# 95% interval from -0.01 to 0.08.
#
# </details>
#
# *One head instead of eight* does lose: with the same cache and equal params it has 2.52 nats, eight that share 2.37.
# Elsewhere, multi-query cost a little quality (Shazeer 2019) or none (Chowdhery et al. 2022), and grouped-query came
# close to multi-head (Ainslie et al. 2023).
#
# **Memory and speed.** Their cache keeps 384 bytes per token with H_kv = 8, 96 with 2, and 48 with 1. We time a wider
# layer with random params.
#
# > **Predict first.** After 4096 tokens, how many times as fast as H_kv = 8 does H_kv = 1 decode?
# > <!-- answer: 2.4 within 0.4 -->

# %%
experiment_chart("grouped", 1)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It's 2.3 times as fast, not 8, and H_kv = 2 is 1.7 times (NumPy, one machine; runs vary).
#
# </details>
#
# Sharing saves reading, but each query head still computes its own scores and mix. So the gain depends on the machine:
# Shazeer's decoder, with 8 heads on a TPU, became 12 times as fast (table 3).
#
# **Params.** `w_k` and `w_v` become narrower:

# %%
for name, billions in params.items():
    print(f"Llama 3 70B, {name}: {billions:.1f} billion params")

# %% [markdown]
# That is little. The large saving is in what the model must **keep and read**:
#
# | variant | H_kv | to keep and read | choose it when |
# |---|---|---|---|
# | multi-head | H | 1 | nothing is written (encoders), contexts are short, or only quality counts |
# | grouped-query | between | H_kv / H | the model writes text, contexts are long or users many |
# | multi-query | 1 | 1 / H | memory decides everything |
#
# ## Can a trained model start to share?
#
# Ainslie et al. give each group the *mean* of its heads' `w_k` and `w_v`, and then train a little more. We don't, and
# take a **trained** model that copies what comes back (`mha-numpy train induction`, notebook 20).
#
# > **Predict first.** 99% of its answers are right. What percentage is right if the four heads of its second layer
# > share one mean key and value head?
# > <!-- answer: 29.5 within 5 -->

# %%
from mha_numpy.models.train import load_trained, share_right

trained, rng = load_trained("induction"), np.random.default_rng(1)
(ids,), answers = trained.task.draw_batch(rng, 256)


def share_mean(attention):
    """Let all heads share the mean of their w_k and w_v."""
    for name in ("w_k", "w_v"):
        w = attention.params[name]  # (D, H * d)
        per_head = w.reshape(len(w), -1, attention.head_dim)
        attention.params[name] = per_head.mean(axis=1)
    attention.num_kv_heads = 1


def percent_right(model):
    return 100 * share_right(model(ids), answers)


right = {"as trained": percent_right(trained.model)}
model = load_trained("induction").model
share_mean(model.attentions[1])
right["mean"] = percent_right(model)
print(", ".join(f"{way}: {x:.1f}%" for way, x in right.items()))

# %% [markdown]
# <details><summary>Answer</summary>
#
# 29.5%. Do four heads need four different keys, then?
#
# </details>
#
# Not so fast. Turn the queries and keys of one head by a rotation R, with $R R^\top = 1$, and its values by S:
#
# $$(qR)(kR)^\top = q R R^\top k^\top = q k^\top \qquad\qquad (PvS)(S^\top W_o) = P v W_o$$
#
# No output changes, so nothing made training choose the same R for all heads. Each head has **its own basis**. Let's
# turn every head at random before we take the mean:


# %%
def turn(attention, h, R, S):
    """Turn q and k of head h by R, v by S; w_o turns back."""
    d, params = attention.head_dim, attention.params
    own = slice(h * d, (h + 1) * d)
    for name, by in (("w_q", R), ("w_k", R), ("w_v", S)):
        params[name][:, own] = params[name][:, own] @ by
    params["w_o"][own] = S.T @ params["w_o"][own]


for _ in range(3):
    model = load_trained("induction").model
    for h in range(4):
        R, S = np.linalg.qr(rng.normal(size=(2, 16, 16))).Q
        turn(model.attentions[1], h, R, S)
    change = abs(model(ids) - trained.model(ids)).max()
    share_mean(model.attentions[1])
    mean = f"mean: {percent_right(model):.1f}% right"
    print(f"outputs change by {change:.0e};", mean)

# %% [markdown]
# The mean does about as badly. So let's *choose* R and S, to bring the keys and values of each head, on other texts, as
# near as possible to those of head 0.
#
# > **Predict first.** What percentage does the mean of these aligned heads get right?
# > <!-- answer: 99.4 within 1 -->


# %%
def nearest(x, target):
    """Return the R, with R R^T = 1, that brings x @ R nearest."""
    u, _, vt = np.linalg.svd(x.T @ target)
    return u @ vt


model = load_trained("induction").model
model(*trained.task.draw_batch(rng, 64).inputs)
attention = model.attentions[1]
seen = attention.forward_cache.attention.inputs
k = seen.k.swapaxes(0, 1).reshape(4, -1, 16)  # (H, B * T, d)
v = seen.v.swapaxes(0, 1).reshape(4, -1, 16)
R = [nearest(k[h], k[0]) for h in range(4)]
for h in range(4):
    turn(attention, h, R[h], nearest(v[h], v[0]))
share_mean(attention)
right["aligned, then mean"] = percent_right(model)
model = load_trained("induction").model
model.attentions[1].head_gate = np.array([1.0, 0, 0, 0])
right["only head 0"] = percent_right(model)
title = "Trained model: right answers after sharing"
bar_chart(right, title=title, unit="percent")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 99.4%, without a step of training. The plain mean had added columns that don't belong together.
#
# </details>
#
# Turned, head 1's keys look like head 0's:

# %%
keys = {
    "head 0": k[0],
    "head 1": k[1],
    "head 1, turned": k[1] @ R[1],
}
matrices({f"k of {name}": x[:8] for name, x in keys.items()})

# %% [markdown]
# These heads partly repeat one another: head 0 by itself gets 92.8%. Now five seeds (`mha-numpy experiment sharing`):

# %%
experiment_chart("sharing", 2)

# %% [markdown]
# Aligned, no seed loses more than 0.8 points. With *both* layers shared, they lose 2.4 to 15.8. Four heads that read
# four different places get 98% aligned, but eight of half the width get 68%, although models that share from the start
# learn that task. And rotary positions (notebook 19) rule out most rotations.
#
# ## Repeat, never tile
#
# Query head h reads key/value head h // G. Two functions of NumPy make 6 heads out of 3, `repeat` and `tile`.
#
# > **Predict first.** `np.repeat` of (0, 1, 2) gives 0, 0, 1, 1, 2, 2, and `np.tile` gives 0, 1, 2, 0, 1, 2. For how
# > many query heads is tiling right by chance? And for which of H_kv = 1, 2, 3, 6 would a test notice it?

# %%
one_each = np.eye(3, dtype=bool)
reads = {
    "repeat: right": one_each.repeat(2, axis=0),
    "tile": np.tile(one_each, (2, 1)),
}
rows = [f"query head {h}" for h in range(6)]
labels = {"row_labels": rows, "column_labels": ["0", "1", "2"]}
matrices(reads, meaning=("reads it", "doesn't"), **labels)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It's right for two, the first and the last. With H_kv = 1 and 6 the two agree, so test with 2 or 3.
#
# </details>
#
# The library repeats, as PyTorch, JAX, Keras and ONNX do. If you tile, no shape complains, but the numbers are wrong:

# %%
rng = np.random.default_rng(10)
q = rng.normal(size=(2, 6, 4, 5))  # B=2, H=6, 4 queries of width 5
k = rng.normal(size=(2, 3, 7, 5))  # H_kv=3, 7 keys
v = rng.normal(size=(2, 3, 7, 8))
shared, cache = attention_forward(q, k, v)
k_repeated, v_repeated = k.repeat(2, axis=1), v.repeat(2, axis=1)
repeated, again = attention_forward(q, k_repeated, v_repeated)
k_tiled, v_tiled = (np.tile(a, (1, 2, 1, 1)) for a in (k, v))
tiled, _ = attention_forward(q, k_tiled, v_tiled)
results = {"repeated": repeated, "tiled": tiled}
compare(results, dict.fromkeys(results, shared))

# %% [markdown]
# ## Sharing without a copy
#
# `repeat` would fill the memory that sharing saves. Instead, split the head axis of the *queries* in two, and give the
# keys an axis of size 1 in the same place:
#
# $$[B, H, T_q, d] \to [B, H_{kv}, G, T_q, d] \quad [B, H_{kv}, T_k, d] \to [B, H_{kv}, 1, T_k, d]$$
#
# Both are views (notebook 09). The product stretches the keys over G with a stride of 0, so all query heads of a group
# read the same bytes.

# %%
in_groups, one_each = q.reshape(2, 3, 2, 4, 5), k[:, :, None]
# (B, H_kv, G, T_q, T_k)
scores = in_groups @ one_each.swapaxes(-1, -2) / np.sqrt(5)
# what the product does to the keys
stretched = np.broadcast_to(one_each, (2, 3, 2, 7, 5))
print("bytes to the next head of a group:", stretched.strides[2])
print("same memory as k:", np.shares_memory(stretched, k))
powers = np.exp(scores).reshape(2, 6, 4, 7)
weights = powers / powers.sum(axis=-1, keepdims=True)
print("same weights:", np.allclose(weights, cache.weights))

# %% [markdown]
# ## Backward: what was shared is summed
#
# The loss depends on a key head in G ways, which add up. With P for weights, S for scores, O for heads, and a bar for
# gradients:
#
# $$\bar K_g = \sum_{h \,:\, h // G = g} \text{scale} \cdot \bar S_h^\top Q_h \qquad\qquad \bar V_g = \sum_{h \,:\, h // G = g} P_h^\top \bar O_h$$
#
# A broadcast in the forward pass is a sum in the backward pass. Take 4 query heads, 2 key/value heads and one key, so
# that every weight is 1. Let the upstream gradients be 1, 10, 100 and 1000.
#
# > **Predict first.** What are the gradients of the two values? And with tiled heads, or with a mean?

# %%
ones = np.ones((1, 4, 1, 1))
upstream = np.array([1.0, 10, 100, 1000]).reshape(1, 4, 1, 1)
_, small = attention_forward(ones, ones[:, :2], ones[:, :2])
attention_backward(upstream, small).d_v.ravel()

# %% [markdown]
# <details><summary>Answer</summary>
#
# They are 11 and 1100. Tiled heads would give 101 and 1010, and a mean 5.5 and 550.
#
# </details>
#
# In general: repeat k and v, compute the gradients of multi-head attention, and add up each group. Here are the two
# heads that read key head 0, and their sum:

# %%
d_out = rng.normal(size=shared.shape)
each = attention_backward(d_out, again)
grads = attention_backward(d_out, cache)
# (B, H_kv, G, T_k, d_k): one gradient for each query head
d_k = each.d_k.reshape(2, 3, 2, 7, 5)
mistakes = {
    "mean": d_k.mean(axis=2),
    "first of the group": d_k[:, :, 0],
    "no sum": each.d_k,
}
tried = {"sum": d_k.sum(axis=2)} | mistakes
display(compare(tried, dict.fromkeys(tried, grads.d_k)))
both = {f"query head {h}": d_k[0, 0, h] for h in (0, 1)}
matrices(both | {"d_k of head 0": grads.d_k[0, 0]})

# %% [markdown]
# Only the last mistake has a wrong shape. In the film (random numbers, H = 4, H_kv = 2), d_v and d_k have two colours.
# All other gradients have four, because queries aren't shared.

# %%
q, k, v = (rng.normal(size=(1, heads, 5, 2)) for heads in (4, 2, 2))
with trace() as there_and_back:
    heads, small = attention_forward(q, k, v)
    attention_backward(rng.normal(size=heads.shape), small)
backward_film(there_and_back)

# %% [markdown]
# ## Exercise: share and sum
#
# Write attention with shared keys and values, without a copy of either. Then write the sum of the gradients over each
# group. The check first changes one key/value head, and then no other group may change.
#
# To practise more: `grouped-backward` is the whole way back, and `museum-repeat` is a bug that shipped.


# %% tags=["exercise"]
def my_grouped_attention(q, k, v):
    """q (B, H, T_q, d_k), k (B, H_kv, T_k, d_k), v (B, H_kv, T_k,
    d_v) -> heads (B, H, T_q, d_v).

    Query head h reads key/value head h // (H // H_kv). Nothing is
    hidden. Large scores must not overflow.
    """
    ...  # your code


def my_sum_over_group(d_per_query_head, num_kv_heads):
    """(B, H, T, d) -> (B, H_kv, T, d): the sum over each group of
    neighbours; H_kv divides H.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("grouped-attention", my_grouped_attention)
check("sum-over-group", my_sum_over_group)

# %% tags=["hint"]
# hint("grouped-attention")  # shows the next of four hints
# hint("sum-over-group")

# %% [markdown]
# ## Summary
#
# - Here, five seeds couldn't tell H_kv = 8, 2 and 1 apart, and an eighth of the cache decoded 2.3 times as fast.
# - Each trained head has its own basis. Align the heads before you take their mean.
# - Query head h reads key/value head h // G. No test at H_kv = 1 or H_kv = H notices tiling.
# - Sharing is a broadcast with a stride of 0. In the backward pass it's a sum over the group, not a mean.
#
# **In the code:** `mha_numpy/core/grouped.py`. Derivation: docs/grouped.md.
#
# **Reference:** Shazeer 2019, *Fast Transformer Decoding*; Ainslie et al. 2023, *GQA*, sections 2 and 3; Chowdhery et
# al. 2022, *PaLM*; Schönemann 1966 (the nearest rotation); Jin et al. 2024 (aligning heads).
#
# **Next:** [17, the KV cache](17_the-kv-cache.ipynb).
