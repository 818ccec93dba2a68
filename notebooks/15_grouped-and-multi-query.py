# %% [markdown]
# # 15 · Grouped and multi-query attention
#
# A model that writes text reads the keys and values of all tokens so far, again for every new
# token. Let several query heads share one key/value head, and there is less to read. The idea is
# three lines of code; the order of heads, the sum in backward and the arithmetic of the savings are
# where it goes wrong.
#
# **You will learn**
#
# - who reads what: query head h reads key/value head h // G, and why *repeat* is not *tile*;
# - how sharing works without a copy, and why backward then adds up;
# - what a KV cache holds, why not the queries, and that decoding token by token gives the same
#   numbers;
# - what it saves in models you know, in bytes, and what it does not save;
# - which statements in circulation about who uses what do not hold.

# %%
from dataclasses import replace

import numpy as np

from mha_numpy import (
    KVCache,
    MultiHeadAttention,
    MultiHeadParams,
    attention_backward,
    attention_forward,
    compare,
    multi_head_attention_decode,
    multi_head_attention_forward,
    trace,
)
from mha_numpy.core import step
from mha_numpy.cost import CONFIGURATIONS, count_flops, count_parameters, kv_cache_bytes
from mha_numpy.draw import (
    backward_film,
    bar_chart,
    line_chart,
    matrices,
    shape_film,
    sharing_map,
    weights_by_head,
)
from mha_numpy.exercises import check, hint
from mha_numpy.tables import Table
from mha_numpy.train import load_trained, share_right

# %% [markdown]
# ## Why share?
#
# Llama 3 70B writes its 8192nd token. The new query is compared with all keys so far, and mixes all
# values so far, in every layer. These keys and values were computed long ago and are kept: the *KV
# cache*. The model has 64 query heads. Suppose that each had keys and values of its own:

# %%
llama = CONFIGURATIONS["llama-3-70b"]
multi_head = replace(llama, num_kv_heads=llama.num_heads)
to_read = kv_cache_bytes(multi_head, 8192)
f"{to_read / 2**30} GiB to read, for one token"

# %% [markdown]
# And how much work is done with them? Each number that is read takes part in one multiply-add (two
# operations) for each query head that reads it.
#
# > **Predict first.** A number takes 2 bytes here. How many operations per byte? And if 8 query
# > heads share each key/value head, as they really do? If all 64 share one?

# %%
for config in (multi_head, llama, replace(llama, num_kv_heads=1)):
    flops = count_flops(config, 1, past=8191)
    per_byte = (flops.scores + flops.mix) / kv_cache_bytes(config, 8192)
    print(f"{config.num_kv_heads:2d} key/value heads: {per_byte} operations per byte read")

# %% [markdown]
# Is one operation per byte much or little? The data sheet of one graphics card that such models run
# on (NVIDIA A100, 80 GB) has $312 \cdot 10^{12}$ operations a second with 2-byte numbers, and
# $2.039 \cdot 10^{12}$ bytes read a second:

# %%
f"{312e12 / 2.039e12:.0f} operations could be done while one byte is read"

# %% [markdown]
# So in multi-head decoding the arithmetic waits: attention's time is the time of *reading*. Sharing
# makes the reading less and leaves the arithmetic as it is (Shazeer 2019, section 2.4).
#
# ## Who reads what
#
# H query heads, H_kv key/value heads; G = H / H_kv query heads form a group. Eight heads, shared in
# three ways. Each its own: **multi-head**.

# %%
sharing_map(8, 8)

# %% [markdown]
# > **Predict first.** Now 8 query heads and 2 key/value heads. Counted from 0: who reads key/value
# > head 1?

# %%
sharing_map(8, 2)

# %% [markdown]
# **Grouped-query**: neighbours share. (Texts that count from 1 say: heads 1 to 4 share the first, 5
# to 8 the second. And some write G for the *number* of groups, where it is 2 and not 4; check
# which, before you use a formula.) At the far end all read the same, **multi-query**:

# %%
sharing_map(8, 1)

# %% [markdown]
# ## Repeat, never tile
#
# Query head h reads key/value head h // G. NumPy has two functions that make 6 heads of 3, with the
# same shape:

# %%
heads = np.arange(3)
np.repeat(heads, 2), np.tile(heads, 2), np.arange(6) // 2

# %% [markdown]
# Ours is `repeat`; PyTorch, JAX, Keras and ONNX repeat as well (docs/conventions.md). Params
# trained with one order give nonsense in the other, and no shape complains.

# %%
rng = np.random.default_rng(10)
q = rng.normal(size=(2, 6, 4, 5))  # B=2, H=6, 4 queries of width 5
k = rng.normal(size=(2, 3, 7, 5))  # H_kv=3, 7 keys
v = rng.normal(size=(2, 3, 7, 8))  # 7 values of width 8
shared, cache = attention_forward(q, k, v)
repeated = attention_forward(q, k.repeat(2, axis=1), v.repeat(2, axis=1))[0]
tiled = attention_forward(q, np.tile(k, (1, 2, 1, 1)), np.tile(v, (1, 2, 1, 1)))[0]
compare({"repeated": repeated, "tiled": tiled}, {"repeated": shared, "tiled": shared})

# %% [markdown]
# > **Predict first.** Of the 6 heads, in how many does tiling happen to be right? (Compare the
# > first two rows above.) And with 8 query heads: for which of H_kv = 1, 2, 4, 8 does a test notice
# > tiling at all?

# %%
right_heads = [h for h in range(6) if np.allclose(tiled[:, h], shared[:, h])]
differs = {
    H_kv: bool((np.repeat(range(H_kv), 8 // H_kv) != np.tile(range(H_kv), 8 // H_kv)).any())
    for H_kv in (1, 2, 4, 8)
}
right_heads, differs

# %% [markdown]
# Heads 0 and 5, the first and the last. At both ends, H_kv = 1 and G = 1, repeat and tile are the
# same: a test of multi-head and of multi-query attention sees nothing. Test in between.
#
# ## Sharing without a copy
#
# `repeat` shows what is meant. To do it would throw the memory away again that sharing saves. Cut
# the head axis of the *queries* in two instead, and give the keys an axis of size 1 in the same
# place:
#
# $$[B, H, T_q, d] \to [B, H_{kv}, G, T_q, d] \qquad\qquad [B, H_{kv}, T_k, d] \to [B, H_{kv}, 1, T_k, d]$$
#
# Both are views (notebook 09), and the product broadcasts over G by itself.

# %%
with trace() as views:
    step("q", q, "B H T_q d_k")
    in_groups = q.reshape(2, 3, 2, 4, 5)
    step("q_in_groups", in_groups, "B H_kv G T_q d_k", "q.reshape(B, H_kv, G, T_q, d_k)")
    step("k", k, "B H_kv T_k d_k")
    one_each = step("k_for_all", k[:, :, None], "B H_kv 1 T_k d_k", "k[:, :, None]")
    scores = in_groups @ one_each.swapaxes(-1, -2) / np.sqrt(5)
    step("scores", scores, "B H_kv G T_q T_k", "scale * q_in_groups @ k_for_all.swapaxes(-1, -2)")
views

# %% [markdown]
# What does the broadcast do in memory? It gives the group axis a stride of 0: to get to the keys of
# the group's next query head, move by nothing.
#
# > **Predict first.** `k_for_all` stretched to G = 2 has twice the shape. How many more bytes?

# %%
stretched = np.broadcast_to(one_each, (2, 3, 2, 7, 5))
stretched.strides, np.shares_memory(stretched, k), k.repeat(2, axis=1).nbytes - k.nbytes

# %% [markdown]
# None; a real `repeat` would take the last number, as much again as `k` has. The rest of attention,
# softmax and mixing, you will write yourself below.
#
# Here is the whole layer, with H = 4 and H_kv = 2. In the film, q (step 6) has four colours; k and
# v (9 and 12) have two, each that of the first query head of its group (◆); from the scores (13) on
# there are four again.

# %%
B, T, D, H, H_kv, d = 1, 5, 8, 4, 2, 3
sizes = ((D, H * d), (D, H_kv * d), (D, H_kv * d), (H * d, D))
w_q, w_k, w_v, w_o = (rng.normal(size=size) / np.sqrt(D) for size in sizes)
params = MultiHeadParams(w_q, None, w_k, None, w_v, None, w_o, None)
x = rng.normal(size=(B, T, D))
with trace() as t:
    out, layer_cache = multi_head_attention_forward(
        x, params=params, num_heads=H, num_kv_heads=H_kv
    )
t

# %%
shape_film(t)

# %% [markdown]
# The scores have H blocks, as ever: every query head has weights of its own. Sharing keys does not
# mean sharing attention. Two heads of a group look into the same memory and ask different
# questions.
#
# ## Backward: what was shared is summed
#
# A key head serves G query heads. The loss depends on it along G ways, and the chain rule adds them
# up. With P for weights, S for scores, O for heads, and a bar for the gradient of each:
#
# $$\bar K_g = \sum_{h \,:\, h // G = g} \text{scale} \cdot \bar S_h^\top Q_h \qquad\qquad \bar V_g = \sum_{h \,:\, h // G = g} P_h^\top \bar O_h$$
#
# A broadcast in forward is a sum in backward, here as anywhere. By hand: 4 query heads, 2 key/value
# heads, one key, so that every weight is 1. The outputs are just the values, and the upstream
# gradients shall be 1, 10, 100, 1000.
#
# > **Predict first.** The gradient of the two values? And what would it be with tiled heads? With a
# > mean?

# %%
one_q, one_k, two_v = np.ones((1, 4, 1, 1)), np.ones((1, 2, 1, 1)), np.array([[[[3.0]], [[5.0]]]])
small_out, small_cache = attention_forward(one_q, one_k, two_v)
upstream = np.array([1.0, 10.0, 100.0, 1000.0]).reshape(1, 4, 1, 1)
small_out.ravel(), attention_backward(upstream, small_cache).d_v.ravel()

# %% [markdown]
# Tiled heads would have given 101 and 1010, a mean 5.5 and 550. Now for all sizes: repeat k and v,
# take the gradients of ordinary multi-head attention, and add up each group.

# %%
d_out = rng.normal(size=shared.shape)
grads = attention_backward(d_out, cache)
k6, v6 = k.repeat(2, axis=1), v.repeat(2, axis=1)
each = attention_backward(d_out, attention_forward(q, k6, v6)[1])  # one gradient for each of 6
d_k, d_v = (np.stack([d6[:, 0] + d6[:, 1], d6[:, 2] + d6[:, 3], d6[:, 4] + d6[:, 5]], axis=1)
            for d6 in (each.d_k, each.d_v))  # fmt: skip
compare((each.d_q, d_k, d_v), grads)

# %% [markdown]
# Four ways to get it wrong, and how each shows itself:

# %%
mistakes = {
    "mean": d_k / 2,
    "the first only": each.d_k[:, ::2],
    "tiled groups": each.d_k.reshape(2, 2, 3, 7, 5).sum(axis=1),
    "no sum": each.d_k,
}
compare(mistakes, dict.fromkeys(mistakes, grads.d_k))

# %% [markdown]
# Only the last one has a wrong shape. The mean betrays itself by its factor, 1/G (at the end of its
# row). `d_q` is not summed: queries are not shared. In the backward film of the same small layer's
# attention, d_v and d_k (steps 9 and 12) have two colours, all other gradients four:

# %%
with trace() as there_and_back:
    heads, small_cache = attention_forward(t["q"], t["k"], t["v"])
    attention_backward(rng.normal(size=heads.shape), small_cache)
backward_film(there_and_back)

# %% [markdown]
# ## What it saves in params, and what it does not save
#
# `w_k` and `w_v` have H_kv · d columns instead of H · d.
#
# > **Predict first.** w_q, w_k, w_v, w_o are four matrices of one size in multi-head attention.
# > With H = 8 and H_kv = 1, what share of their params is left?

# %%
for H_kv in (8, 2, 1):
    print(MultiHeadAttention(512, 8, H_kv, bias=False))

# %% [markdown]
# $(1 + \tfrac18 + \tfrac18 + 1) / 4 = 0.5625$ of them. Now a whole model.
#
# > **Predict first.** Are fewer operations needed for scores and mixing?

# %%
rows = []
for H_kv in (64, 8, 1):
    config = replace(llama, num_kv_heads=H_kv)
    params_of, flops = count_parameters(config), count_flops(config, 8192)
    billions = [f"{n / 1e9:.2f}" for n in (params_of.attention, params_of.total)]
    operations = [f"{n:.2e}" for n in (flops.projections, flops.scores + flops.mix)]
    rows.append([str(H_kv), *billions, *operations])
columns = ["H_kv", "params of attention, 1e9", "all params, 1e9", "projections", "scores and mix"]
Table("Llama 3 70B: params; operations for 8192 tokens", columns, rows)

# %% [markdown]
# Attention has at most about a quarter of the params, so the whole model shrinks less than attention
# does. Fewer columns to project into means fewer operations there. Scores and mix cost what they did:
# H blocks of T_q · T_k, as before. The large saving is elsewhere: in what must be **kept and read**.
#
# ## The KV cache: decoding token by token
#
# A causal model's old tokens never see new ones. Their keys and values, once computed, stay as they
# are. So keep them; then a new token costs one row of attention instead of all rows. We read a
# prompt of 3 tokens at once, then go on one token at a time.

# %%
T, D, H, H_kv, d = 7, 24, 6, 3, 4
sizes = ((D, H * d), (D, H_kv * d), (D, H_kv * d), (H * d, D))
w_q, w_k, w_v, w_o = (rng.normal(size=size) / np.sqrt(D) for size in sizes)
options = {
    "params": MultiHeadParams(w_q, None, w_k, None, w_v, None, w_o, None),
    "num_heads": H,
    "num_kv_heads": H_kv,
    "is_causal": True,
}
x = rng.normal(size=(2, T, D))
whole, _ = multi_head_attention_forward(x, **options)

# %% [markdown]
# > **Predict first.** Float64, B = 2. How many bytes does the cache gain with each token? (Keys and
# > values, H_kv heads of width 4.) And the last row below: over how many keys does its single query
# > attend?

# %%
kv_cache, rows = KVCache(), []
for tokens in (slice(0, 3), slice(3, 4), slice(4, 5), slice(5, 6), slice(6, 7)):
    q_offset = kv_cache.length
    part, part_cache = multi_head_attention_decode(x[:, tokens], kv_cache=kv_cache, **options)
    same = np.allclose(part, whole[:, tokens])
    facts = q_offset, part_cache.weights.shape, kv_cache.nbytes, same
    rows.append([f"{tokens.start} to {tokens.stop - 1}", *map(str, facts)])
columns = ["tokens", "q_offset", "weights (B, H, T_q, T_k)", "cache bytes", "as the whole"]
Table("A prompt of 3 tokens, then one at a time", columns, rows)

# %% [markdown]
# T_k grows, T_q stays 1 after the prompt, and every row is the row of the whole computation. Each
# token adds 2 · B · H_kv · d · 8 bytes = 2 · 2 · 3 · 4 · 8 = 384: H does not occur in it.
#
# **Why are queries not kept?** Row i of the output needs q of token i and the keys and values up to
# i. No later row ever asks for that query again. In the loop above, old tokens are not even passed
# in, and nothing is missing.
#
# **What q_offset is for.** A single new query stands at the end of the keys, not at the beginning.
# Without the offset a causal mask lets it see only key 0. It runs, and its shape is right. Weights
# of the last token in each of 6 heads, without and with the offset:

# %%
held_k, held_v = part_cache.inputs.k, part_cache.inputs.v
last_q = part_cache.inputs.q
at_the_start = attention_forward(last_q, held_k, held_v, is_causal=True)[1].weights
at_the_end = attention_forward(last_q, held_k, held_v, is_causal=True, q_offset=T - 1)[1].weights
matrices({"q_offset = 0": at_the_start[0, :, 0], f"q_offset = {T - 1}": at_the_end[0, :, 0]})

# %% [markdown]
# `multi_head_attention_decode` takes the offset from the cache, so it cannot be forgotten.
# PyTorch's `is_causal=True` means the first of the two, whatever the number of keys.
#
# ## Bytes in models you know
#
# Keys *and* values, of all L layers, for every sequence:
#
# $$\text{bytes} = 2 \cdot L \cdot B \cdot H_{kv} \cdot T \cdot d \cdot (\text{bytes per number})$$
#
# > **Predict first.** Llama 3 70B: L = 80, H = 64, H_kv = 8, d = 128, one sequence of 8192 tokens,
# > 2 bytes per number. In powers of two, if you take 80 as 5 · 2^4: how many GiB? How many were it
# > multi-head; multi-query?

# %%
{
    H_kv: kv_cache_bytes(replace(llama, num_kv_heads=H_kv), 8192) / 2**30 for H_kv in (64, 8, 1)
}  # GiB

# %% [markdown]
# Another one to do in your head: 32 query heads that share 4 key/value heads. How many times
# smaller is the cache?

# %%
mistral = CONFIGURATIONS["mistral-7b"]
kv_cache_bytes(replace(mistral, num_kv_heads=32), 8192) / kv_cache_bytes(
    replace(mistral, num_kv_heads=4), 8192
)

# %% [markdown]
# H / H_kv, whatever else the model is. Now the models that `mha_numpy.cost` knows. BERT is left
# out: it is an encoder, sees all of its tokens at once and never decodes, so it has no KV cache,
# although lists of "who uses which cache" have it.

# %%
decoders = [config for name, config in CONFIGURATIONS.items() if "bert" not in name]
rows = [
    [c.name, c.variant, *map(str, (c.num_heads, c.num_kv_heads, c.num_heads // c.num_kv_heads)),
     f"{kv_cache_bytes(c, 1) / 1024:.0f}"]
    for c in decoders
]  # fmt: skip
columns = ["model", "variant", "H", "H_kv", "times smaller", "KiB a token"]
Table("KV cache, 2 bytes a number", columns, rows)

# %%
bar_chart(
    {c.name: kv_cache_bytes(c, 1) / 1024 for c in decoders},
    title="KV cache of one token, all layers, 2 bytes a number",
    unit="KiB",
    against={
        c.name: kv_cache_bytes(replace(c, num_kv_heads=c.num_heads), 1) / 1024
        for c in decoders
        if c.variant != "multi-head"
    },
    against_label="were it multi-head",
)

# %% [markdown]
# The table corrects what is often said:
#
# - "Llama 2 uses grouped-query": the 70B does (and the paper's 34B), 7B and 13B are multi-head.
#   Llama 3 groups in both sizes here.
# - "Falcon is multi-query": the 7B is; the 40B has 8 key/value heads for 128.
# - "Multi-query has the smallest cache": of one model, yes. But PaLM 540B, multi-query, keeps more
#   per token than GPT-2, multi-head, for L and d count too.
# - From the papers, not in the table: the first Gemma is multi-query at 2B and multi-head at 7B
#   (Gemma Team 2024, table 1), so "Gemma is grouped" holds from Gemma 2 on; StarCoder is
#   multi-query (Li et al. 2023).
#
# ## When is the cache larger than the model?
#
# Params are there once; the cache is there for every sequence that is served at the same time.
#
# > **Predict first.** Llama 3 70B has 70.6 billion params, 2 bytes each. One sequence of 8192
# > tokens takes 2.5 GiB. From how many sequences on does the cache take more than the params? And
# > were it multi-head?

# %%
rows = []
for H_kv in (64, 8, 1):
    config = replace(llama, num_kv_heads=H_kv)
    params_gib = 2 * count_parameters(config).total / 2**30
    cache_gib = kv_cache_bytes(config, 8192) / 2**30
    more_from = int(params_gib // cache_gib) + 1
    rows.append([str(H_kv), f"{params_gib:.1f}", f"{cache_gib:.4g}", str(more_from)])
columns = ["H_kv", "params, GiB", "cache of a sequence, GiB", "cache larger from B ="]
Table("Llama 3 70B, sequences of 8192 tokens", columns, rows)

# %%
batch = 2 ** np.arange(0, 10)
as_it_is = np.full(10, 2 * count_parameters(llama).total / 2**30)
lines = {
    f"cache, H_kv = {H_kv}": [
        kv_cache_bytes(replace(llama, num_kv_heads=H_kv), 8192, batch=int(B)) / 2**30 for B in batch
    ]
    for H_kv in (64, 8, 1)
}
line_chart(
    batch,
    {name: np.array(line) for name, line in lines.items()} | {"params, as it is": as_it_is},
    title="Llama 3 70B: KV cache at 8192 tokens beside the params",
    x_label="sequences at the same time, B",
    y_label="GiB",
    log_x=True,
    log_y=True,
)

# %% [markdown]
# With keys and values for each of 64 heads, eight such texts at once would take more memory than
# the model; as it is, 53. "The cache often exceeds the params" is true or not, depending on H_kv, T
# and B: compute it for yours.
#
# ## What it costs
#
# The quality of a model cannot be computed from shapes. What the papers report:
#
# - Shazeer 2019 (section 4): multi-query decodes much faster than multi-head, at a small loss of
#   quality.
# - Ainslie et al. 2023 (section 3): grouped-query comes close to multi-head in quality and to
#   multi-query in speed, and a multi-head model can be converted with a small part of its original
#   training.
# - Chowdhery et al. 2022 (PaLM, section 2) found no loss of quality with multi-query; so the loss,
#   where there is one, depends on model and training, and a general ranking with stars is more than
#   is known.
#
# | variant | H_kv | KV cache, as a share | choose it when |
# |---|---|---|---|
# | multi-head | H | 1 | there is no decoding (encoders), contexts are short, or quality alone counts |
# | grouped-query | between | H_kv / H | text is generated, contexts are long or users many |
# | multi-query | 1 | 1 / H | memory decides everything |
#
# "Training from scratch: multi-head" is not a rule either: Llama 3 was trained grouped from the
# start (Grattafiori et al. 2024, section 3.2).
#
# ## A trained model loses its own keys
#
# Ainslie et al. 2023 make a grouped model of a multi-head one: each group shares the *mean* of its heads' `w_k` and
# `w_v`, and then the model is trained a little more. How much is lost before that? Take a trained model of four heads
# a layer that copies what comes back (`mha-numpy train induction`, notebook 18), and share in the second layer.


# %%
def share_keys(attention, H_kv):
    """Let each group of a layer's heads share the mean of its key and value params."""
    for name in ("w_k", "w_v"):
        w = attention.params[name]  # (D, H * d)
        groups = w.reshape(len(w), H_kv, attention.num_kv_heads // H_kv, attention.head_dim)
        attention.params[name] = groups.mean(axis=2).reshape(len(w), -1)
    attention.num_kv_heads = H_kv


def draw(title):
    """The weights of the second layer on a b c d a b c."""
    model(np.array([[5, 9, 2, 7, 5, 9, 2]]))
    names, by = [f"{title}, head {h}" for h in range(4)], "Trained: mha-numpy train induction."
    return weights_by_head(model.attentions[1].weights, list("abcdabc"), head_names=names, note=by)


trained = load_trained("induction")
model, (held_out, answers) = trained.model, trained.task.draw_batch(np.random.default_rng(1), 256)
draw("H_kv = 4")

# %%
right = {4: share_right(model(*held_out), answers)}
for shared in (2, 1):
    share_keys(model.attentions[1], shared)
    right[shared] = share_right(model(*held_out), answers)
print({H_kv: f"{share:.1%}" for H_kv, share in right.items()})
draw("H_kv = 1")

# %% [markdown]
# Each head's queries were trained to match its own keys. The mean of four keys fits none of them well: the share of
# right answers falls, and only more training can bring it back.
#
# ## Exercise: share and sum
#
# Write attention with shared keys and values, without a copy of either: view the queries in groups,
# (B, H_kv, G, T_q, d), and let broadcasting do the rest; give the result its H heads back at the
# end. Then the heart of backward: sum the gradients of each group. Before it compares numbers, the
# check changes one key/value head: no other group may move. Your sum is also held against
# numeric differentiation of the sharing.
#
# More of this kind in `mha-numpy exercises`: `grouped-backward`; `decode-step`, one more token with a KV
# cache; and `museum-repeat`, a bug that shipped.


# %% tags=["exercise"]
def my_grouped_attention(q, k, v):
    """q (B, H, T_q, d_k), k (B, H_kv, T_k, d_k), v (B, H_kv, T_k, d_v) -> heads (B, H, T_q, d_v).

    Query head h reads key/value head h // (H // H_kv). Nothing is hidden. Large scores must not
    overflow.
    """
    ...  # your code


def my_sum_over_group(d_per_query_head, num_kv_heads):
    """(B, H, T, d) -> (B, H_kv, T, d): the sum over each group of neighbours; H_kv divides H."""
    ...  # your code


# %% tags=["check"]
check("grouped-attention", my_grouped_attention)
check("sum-over-group", my_sum_over_group)

# %% tags=["hint"]
# hint("grouped-attention")  # shows the next of four hints
# hint("sum-over-group")

# %% [markdown]
# ## Summary
#
# - Query head h reads key/value head h // G: neighbours share. Tiling has the right shape and the
#   wrong heads, and no test at H_kv = 1 or H_kv = H can tell.
# - Sharing is a broadcast, a stride of 0, and copies nothing. In backward it is a sum over the
#   group, not a mean.
# - The KV cache holds keys and values, not queries, of H_kv heads. Decoding with it gives the same
#   rows as the whole sequence, if the query's offset is right.
# - It saves what must be kept and read, by H / H_kv. It saves few params, and no operations of the
#   scores.
# - H_kv is a fact of each checkpoint, not of a family: look it up.
#
# **In the code:** `mha_numpy/core/grouped.py`, `decode.py` and `kv_cache.py` beside it,
# `mha_numpy/cost/`; the derivation again: docs/grouped.md.
#
# **Reference:** Shazeer 2019, *Fast Transformer Decoding: One Write-Head is All You Need*; Ainslie et al. 2023, *GQA:
# Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*, section 2.2; the sources of every
# model's sizes: `CONFIGURATIONS[name].source`.
#
# **Next:** [11, positions](16_positions.ipynb).
