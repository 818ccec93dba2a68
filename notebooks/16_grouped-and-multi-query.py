# %% [markdown]
# # 16 · Grouped and multi-query attention
#
# Llama 3 70B has read 8192 tokens and writes one more. In every layer, its new queries are compared with all keys so
# far, and they mix all values so far. The model computed these long ago and keeps them in memory (notebook 17). How
# many bytes of keys and values does it have to read for this one token? We compare three cases. Each of the 64 query
# heads has its own keys and values, or groups of 8 heads share them, as in the real model, or all 64 share them.

# %% tags=["hide-input"]
from dataclasses import replace

import numpy as np

from mha_numpy import (
    MultiHeadAttention,
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
    matrices,
    shape_film,
    sharing_map,
    weights_by_head,
)

# %%
llama = CONFIGURATIONS["llama-3-70b"]
cases = {"each has its own": 64, "groups of 8": 8, "all share": 1}
sharing, to_read = {}, {}
for name, H_kv in cases.items():
    model = sharing[name] = replace(llama, num_kv_heads=H_kv)
    to_read[name] = kv_cache_bytes(model, 8192) / 2**30
params = 2 * count_parameters(llama).total / 2**30
print(f"its params, also read for each step: {params:.0f} GiB")
title = "Llama 3 70B: keys and values read for one token"
bar_chart(to_read, title=title, unit="GiB")

# %% [markdown]
# One step reads the params once for all texts that the model is writing, but keys and values separately for each. And
# while attention *reads*, a graphics card could compute more: 153 times as much if every head has its own keys, and 2.4
# times if all share them (notebook 17 counts). A model that shares keys and values reads less and computes as much as
# before (Shazeer 2019, section 2.4).
#
# **By the end you can** write attention whose query heads share keys and values, without a copy, and
# sum its gradients over the right heads.
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
# (Some texts count from 1, and some write G for the *number* of groups, which is 2 here, while our G is 4. Check before
# you use a formula.)
#
# ## Repeat, never tile
#
# Query head h reads key/value head h // G. NumPy has two functions that make 6 heads out of 3, `repeat` and `tile`, and
# both results have the same shape.
#
# > **Predict first.** `np.repeat` of (0, 1, 2) gives 0, 0, 1, 1, 2, 2, and `np.tile` gives 0, 1, 2, 0, 1, 2. For how
# > many of the 6 query heads is tiling right by chance? And for which of H_kv = 1, 2, 3, 6 would a test notice tiling?

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
# It's right for two, the first and the last. With H_kv = 1 and H_kv = 6 the two functions agree, so a test of
# multi-query or of multi-head attention notices nothing. Test with 2 or 3.
#
# </details>
#
# The library repeats, as PyTorch, JAX, Keras and ONNX do. If you tile instead, no shape complains, but the numbers of
# four heads in six are wrong:

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
# `repeat` shows what we mean, but it would fill the memory that sharing saves. Instead, split the head axis of the
# *queries* in two, and give the keys an axis of size 1 in the same place:
#
# $$[B, H, T_q, d] \to [B, H_{kv}, G, T_q, d] \qquad\qquad [B, H_{kv}, T_k, d] \to [B, H_{kv}, 1, T_k, d]$$
#
# Both are views (notebook 09), and the product broadcasts over G.
#
# > **Predict first.** Stretched to G = 2, the keys have twice as many entries. How many more bytes do they take?

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
# <details><summary>Answer</summary>
#
# None. The group axis has a stride of 0, so the group's next query head reads the same bytes.
#
# </details>
#
# Here is a whole layer with H = 4 and H_kv = 2 (params and tokens are random). In the film, q has four colours, one for
# each head. k and v have two, each that of the first query head of its group (◆).

# %%
layer = MultiHeadAttention(8, 4, 2, rng=0)
with trace() as t:
    layer(rng.normal(size=(1, 5, 8)))
shape_film(t)

# %% [markdown]
# From the scores on there are four colours again, because two heads of a group read the same keys but ask different
# questions.
#
# ## Backward: what was shared is summed
#
# A key head serves G query heads. The loss depends on it in G ways, and the chain rule adds them up. With P for
# weights, S for scores, O for heads, and a bar for the gradient of each:
#
# $$\bar K_g = \sum_{h \,:\, h // G = g} \text{scale} \cdot \bar S_h^\top Q_h \qquad\qquad \bar V_g = \sum_{h \,:\, h // G = g} P_h^\top \bar O_h$$
#
# A broadcast in the forward pass is a sum in the backward pass. For an example, take 4 query heads, 2 key/value heads
# and one key, so that every weight is 1 and the outputs are the values. Let the upstream gradients be 1, 10, 100 and
# 1000.
#
# > **Predict first.** What are the gradients of the two values? And what would they be with tiled heads, or with a
# > mean?

# %%
ones = np.ones((1, 4, 1, 1))
upstream = np.array([1.0, 10, 100, 1000]).reshape(1, 4, 1, 1)
_, small = attention_forward(ones, ones[:, :2], ones[:, :2])
attention_backward(upstream, small).d_v.ravel()

# %% [markdown]
# <details><summary>Answer</summary>
#
# They are 11 and 1100. Tiled heads would give 101 and 1010, and a mean would give 5.5 and 550.
#
# </details>
#
# It works like this for all sizes: repeat k and v, compute the gradients of ordinary multi-head attention, and add up
# each group. Here are the two heads that read key head 0, and their sum:

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
print(compare(tried, dict.fromkeys(tried, grads.d_k)))
both = {f"query head {h}": d_k[0, 0, h] for h in (0, 1)}
matrices(both | {"d_k of head 0": grads.d_k[0, 0]})

# %% [markdown]
# Only the last mistake has a wrong shape. We don't sum the gradient of q, because queries aren't shared. In the film,
# d_v and d_k have two colours, and all other gradients have four.

# %%
with trace() as there_and_back:
    heads, small = attention_forward(t["q"], t["k"], t["v"])
    attention_backward(rng.normal(size=heads.shape), small)
backward_film(there_and_back)

# %% [markdown]
# ## What it costs
#
# `w_k` and `w_v` have H_kv · d columns instead of H · d, so there are fewer params:

# %%
billions = {}
for name, model in sharing.items():
    billions[name] = count_parameters(model).total / 1e9
own, _, one = billions.values()
print(f"the whole model shrinks by {1 - one / own:.0%} at most")
title = "Llama 3 70B: all params"
bar_chart(billions, title=title, unit="billions")

# %% [markdown]
# That is little, because `w_k` and `w_v` are a small part of the model. Scores and mix take as many operations as
# before, H blocks of T_q · T_k. The large saving is in what the model must **keep and read**: only H_kv / H of it is
# left.
#
# | variant | H_kv | to keep and read | choose it when |
# |---|---|---|---|
# | multi-head | H | 1 | nothing is written (encoders), contexts are short, or only quality counts |
# | grouped-query | between | H_kv / H | the model writes text, contexts are long or users many |
# | multi-query | 1 | 1 / H | memory decides everything |
#
# And the quality? You can't compute it from shapes. Shazeer 2019 (section 4) reports a small loss for multi-query.
# Ainslie et al. 2023 (section 3) find grouped-query close to multi-head in quality and to multi-query in speed.
# Chowdhery et al. 2022 (PaLM, section 2) found no loss. In `mha-numpy experiment grouped`, five seeds of a small model
# see none. So quality depends on the model and its training.
#
# ## Can a trained model start to share?
#
# Ainslie et al. turn a multi-head model into a grouped one: each group shares the *mean* of its heads' `w_k` and `w_v`,
# and then they train the model a little more. How much is lost before that? We take a trained model that copies what
# comes back (`mha-numpy train induction`, notebook 20).
#
# > **Predict first.** It has four heads per layer, and 99% of its answers are right. How many are right if all heads of
# > its second layer share one mean key and value head?


# %%
from mha_numpy.models.train import load_trained, share_right


def share_keys(attention, H_kv):
    """Let each group of heads share the mean of its w_k and w_v."""
    for name in ("w_k", "w_v"):
        w = attention.params[name]  # (D, H * d)
        groups = w.reshape(len(w), H_kv, -1, attention.head_dim)
        mean = groups.mean(axis=2)
        attention.params[name] = mean.reshape(len(w), -1)
    attention.num_kv_heads = H_kv


def draw(title):
    """Draw the weights of the second layer on a b c d a b c."""
    model(np.array([[5, 9, 2, 7, 5, 9, 2]]))
    weights = model.attentions[1].weights
    note = f"{title}. Trained: mha-numpy train induction."
    return weights_by_head(weights, list("abcdabc"), note=note)


trained = load_trained("induction")
model, rng = trained.model, np.random.default_rng(1)
(ids,), answers = trained.task.draw_batch(rng, 256)
display(draw("H_kv = 4"))
right = {"H_kv = 4": 100 * share_right(model(ids), answers)}
for H_kv in (2, 1):
    share_keys(model.attentions[1], H_kv)
    share = share_right(model(ids), answers)
    right[f"H_kv = {H_kv}"] = 100 * share
title = "Right answers after sharing, before retraining"
display(bar_chart(right, title=title, unit="percent"))
draw("H_kv = 1")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Fewer than a third. Training matched each head's queries to its own keys, and the mean of four keys fits none of them
# well. It takes more training to bring the answers back.
#
# </details>
#
# ## Exercise: share and sum
#
# Write attention with shared keys and values, without a copy of either: view the queries in groups, (B, H_kv, G, T_q,
# d), and give the result its H heads back at the end. Then write the heart of backward, the sum of the gradients over
# each group. The check first changes one key/value head, and then no other group may change.
#
# To practise more, look in `mha-numpy exercises`: `grouped-backward` is the whole way back, and `museum-repeat` is a
# bug that shipped.


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
# You can now explain the three bars at the beginning: the same queries, but fewer keys and values to read.
#
# - Query head h reads key/value head h // G. Tiling has the right shape and the wrong heads, and no test at H_kv = 1 or
#   H_kv = H notices it.
# - Sharing is a broadcast with a stride of 0. In the backward pass it's a sum over the group, not a mean.
# - Sharing saves some params but no operations on the scores. Above all, it saves what the model must keep and read.
# - The trained model gave most of its answers wrong as soon as its heads shared one mean key and value head.
#
# **In the code:** `mha_numpy/core/grouped.py`. Derivation: docs/grouped.md.
#
# **Reference:** Shazeer 2019, *Fast Transformer Decoding: One Write-Head is All You Need*; Ainslie et al. 2023, *GQA:
# Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*, section 2.2; Chowdhery et al. 2022,
# *PaLM*.
#
# **Next:** [17, the KV cache](17_the-kv-cache.ipynb).
