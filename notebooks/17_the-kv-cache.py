# %% [markdown]
# # 17 · The KV cache
#
# A model writes one token at a time. The plain way to write the next one is to read the whole text again. Here a
# trained model (from `mha-numpy train text`, on pieces of *Moby-Dick*) goes through four texts of 64 characters and
# predicts each next character in two ways: it starts again from the beginning every time, or it uses what it has kept.

# %% tags=["hide-input"]
from time import perf_counter

import numpy as np

from mha_numpy import (
    KVCache,
    MultiHeadAttention,
    attention_forward,
    trace,
)
from mha_numpy.models.train import load_trained
from mha_numpy.show.pictures import bar_chart, line_chart, matrices

# %%
trained, rng = load_trained("text"), np.random.default_rng(0)
model = trained.model
(ids,), _ = trained.task.draw_held_out(rng, 4)  # (4, 64)
T, kv_caches = ids.shape[1], [KVCache() for _ in model.blocks]
tokens = [ids[:, t : t + 1] for t in range(T)]
start = perf_counter()
again = [model(ids[:, : t + 1])[:, -1] for t in range(T)]
middle = perf_counter()
kept = [model(one, kv_caches=kv_caches)[:, -1] for one in tokens]
end = perf_counter()
gap = np.abs(np.array(again) - kept).max()
print(f"largest difference between their predictions: {gap:.0e}")
times = {"from the beginning": middle - start}
times["with a cache"] = end - middle
title = f"{T} tokens, one at a time, on your machine"
bar_chart(times, title=title, unit="seconds")

# %% [markdown]
# Both ways predict the same, but on 64 characters the second takes a fraction of the time, and the longer the text, the
# larger the difference. (On the first few characters it saves nothing, because reading them takes hardly longer than
# reading one.)
#
# **By the end you can** write the step of a model that keeps its keys and values, and say how many
# bytes they take in a model that you know.
#
# ## What is kept
#
# In a causal model, old tokens never see new ones. So once we have computed their keys and values, these never change,
# as long as the text keeps its beginning. (If the beginning slides out of the model's window, all places shift, and
# what deeper layers know of the lost tokens is out of date.) Keep them, and a new token costs one row of attention
# instead of all rows. This store is the *KV cache*. Here a layer with 6 query heads and 3 key/value heads (random
# params; notebook 16 says why heads share) reads 3 tokens at once, then four more, one at a time.
#
# > **Predict first.** We use float64, 8 bytes per number, two sequences and heads of width 4. How many bytes does the
# > cache gain with each token? And how many keys does the last query attend to?

# %%
from mha_numpy.tables import Table

layer = MultiHeadAttention(24, 6, 3, rng=0)
x = 2 * rng.normal(size=(2, 7, 24))
options = {"is_causal": True, "return_weights": True}
whole, whole_weights = layer(x, **options)
kv_cache, rows, triangle = KVCache(), [], np.full((7, 7), np.nan)
for first, past in ((0, 3), (3, 4), (4, 5), (5, 6), (6, 7)):
    new = x[:, first:past]
    out, weights = layer(new, kv_cache=kv_cache, **options)
    triangle[first:past, :past] = weights[0, 0]
    same = np.allclose(out, whole[:, first:past])
    came = [*range(first, past)]
    row = came, weights.shape, kv_cache.nbytes, same
    rows.append([str(cell) for cell in row])
title = "Bytes in the cache; is the output as of all at once?"
columns = ["tokens", "weights (B, H, T_q, T_k)", "bytes", "same"]
Table(title, columns, rows)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It gains 2 · B · H_kv · d · 8 = 2 · 2 · 3 · 4 · 8 = 384 bytes, in which H doesn't appear. The last query attends to
# all 7 keys.
#
# </details>
#
# Row by row, the steps build the same triangle of weights as one pass over all tokens. (Cross-hatched cells were never
# computed.)

# %%
steps = {"head 0, step by step": triangle}
matrices(steps | {"head 0, all at once": whole_weights[0, 0]})

# %% [markdown]
# **Why don't we keep the queries?** Row i of the output needs the query of token i, and the keys and values up to i. No
# later row asks for that query again.
#
# ## The place of the new query
#
# A single new query belongs at the end of the keys, not at the beginning. Its position is the number of tokens before
# it, called `q_offset`. Here is the last of our seven queries, with two offsets.
#
# > **Predict first.** Without the offset, a causal mask counts the query as number 0. Which keys does it see?

# %%
with trace() as t:
    layer(x)
q, k, v = t["q"][:, :, 6:], t["k"], t["v"]  # only the last query
last = {}
for n in (0, 6):
    options = {"is_causal": True, "q_offset": n}
    _, cache = attention_forward(q, k, v, **options)
    last[f"q_offset = {n}"] = cache.weights[0, :, 0]
matrices(last, row_labels=[f"head {h}" for h in range(6)])

# %% [markdown]
# <details><summary>Answer</summary>
#
# It sees only key 0. The code runs, and the shape is right.
#
# </details>
#
# The layer takes the offset from the cache, so you can't forget it. In PyTorch's `scaled_dot_product_attention`,
# `is_causal=True` always means `q_offset = 0`, however many keys there are.
#
# ## Bytes in models you know
#
# A model keeps keys *and* values, in all L layers, for every sequence:
#
# $$\text{bytes} = 2 \cdot L \cdot B \cdot H_{kv} \cdot T \cdot d \cdot (\text{bytes per number})$$
#
# > **Predict first.** Llama 3 70B has L = 80, H = 64, H_kv = 8 and d = 128. How many GiB does one sequence of 8192
# > tokens take, with 2 bytes per number? (Take 80 as 5 · 2^4.) And how many would it take with 64 key/value heads, or
# > with one?

# %%
from dataclasses import replace

from mha_numpy.models.cost import CONFIGURATIONS, kv_cache_bytes

llama, variants, gib = CONFIGURATIONS["llama-3-70b"], {}, {}
for n in (64, 8, 1):
    model = variants[f"H_kv = {n}"] = replace(llama, num_kv_heads=n)
    gib[f"H_kv = {n}"] = kv_cache_bytes(model, 8192) / 2**30
title = "Llama 3 70B: KV cache of 8192 tokens"
bar_chart(gib, title=title, unit="GiB")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Count in powers of two: $2 \cdot 5 \cdot 2^4 \cdot 2^3 \cdot 2^{13} \cdot 2^7 \cdot 2 = 5 \cdot 2^{29}$ bytes, which
# is 2.5 GiB. With 64 key/value heads it would be 8 times as much, and with one an eighth. In general, sharing makes the
# cache H / H_kv times smaller, for example 8 times with 32 query heads and 4 key/value heads.
#
# </details>
#
# Now let's compare models whose sizes the library knows, and the largest GPT-2. We leave out BERT, which reads all its
# tokens at once and never writes, so it has no KV cache, and newer models that are grouped like those we show.

# %%
kib, models = {}, dict(CONFIGURATIONS)
xl = {"embed_dim": 1600, "num_layers": 48}  # the largest GPT-2
xl |= {"num_heads": 25, "num_kv_heads": 25, "name": "gpt-2-xl"}
models["gpt-2-xl"] = replace(models["gpt-2"], **xl)
others = ("bert", "llama-3.", "qwen", "gemma", "olmo")
for name, m in models.items():
    if name.startswith(others):
        continue
    kept = "latent" if m.latent else m.num_kv_heads
    label = f"{m.name}: {m.num_heads}, {kept}"
    kib[label] = kv_cache_bytes(m, 1) / 1024
    if m.variant != "multi-head":
        unshared = replace(m, latent=None, num_kv_heads=m.num_heads)
        label = f"{m.name}, if multi-head"
        kib[label] = kv_cache_bytes(unshared, 1) / 1024
unit = "KiB; next to each name: H, H_kv"
title = "KV cache of one token, 2 bytes per number"
bar_chart(kib, title=title, unit=unit)

# %% [markdown]
# The picture corrects what you often read:
#
# - "Llama 2 uses grouped-query": the 70B does (and the paper's 34B), but 7B and 13B are multi-head.
# - "Falcon is multi-query": the 7B is, but the 40B has 8 key/value heads for 128 query heads.
# - "Multi-query has the smallest cache": of one model, yes. But PaLM 540B, which is multi-query, keeps 118 KiB per token,
#   more than the smallest GPT-2 (36) but less than the largest (300). These are multi-head: L, H and d count too.
# - DeepSeek-V3 keeps 69 KiB with 128 heads: one small *latent* per token and layer, from which all heads make their
#   keys and values. Multi-head would take 57 times as much.
# - From the papers, not in the picture: the first Gemma is multi-query at 2B and multi-head at 7B (Gemma Team 2024,
#   table 1); StarCoder is multi-query (Li et al. 2023).
#
# ## When is the cache larger than the model?
#
# A model has only one set of params, but it needs a cache for every sequence that it's serving at the time.
#
# > **Predict first.** Llama 3 70B has 70.6 billion params of 2 bytes each, and a sequence of 8192 tokens takes 2.5 GiB.
# > At about how many sequences does the cache overtake the params?

# %%
from mha_numpy.models.cost import count_flops, count_parameters

B = 2.0 ** np.arange(10)
lines = {f"cache, {name}": B * size for name, size in gib.items()}
for name, model in variants.items():
    size = 2 * count_parameters(model).total / 2**30
    print(f"{name}: from B = {int(size // gib[name]) + 1}")
    if name == "H_kv = 8":
        lines[f"params, {name}"] = np.full(10, size)
axes = {"x_label": "sequences at the same time", "y_label": "GiB"}
title = "Llama 3 70B, 8192 tokens each"
line_chart(B, lines, title=title, log_x=True, log_y=True, **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# At 53. If each of the 64 query heads had its own keys and values, eight texts would be enough. So whether the cache is
# larger than the model depends on H_kv, T and B. Compute it for yours.
#
# </details>
#
# ## Why reading takes the time
#
# For a new token, the model has to read the whole cache. Each number takes part in one multiply-add, two operations,
# for each query head that reads it.
#
# > **Predict first.** A number takes 2 bytes. How many operations does the model do per byte that it reads, with 64, 8
# > or 1 key/value heads?

# %%
intensity = {}
for name, model in variants.items():
    flops = count_flops(model, 1, past=8191)
    size = kv_cache_bytes(model, 8192)
    intensity[name] = (flops.scores + flops.mix) / size
# operations and bytes per second
intensity["what an A100 could do"] = 312e12 / 2.039e12
title = "Operations of attention per byte read"
bar_chart(intensity, title=title, unit="operations")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 1, 8 and 64: the number of query heads that share each key/value head.
#
# </details>
#
# The last bar is from the data sheet of a graphics card (NVIDIA A100, 80 GB, 2-byte numbers). In all three cases it
# would be waiting for its memory, and longest in the first.
#
# ## Exercise: one more token
#
# You get a new token, and the keys and values of the tokens before it. Compute its output, and return the keys and
# values for the next step. At the very first token, nothing has been kept.
#
# To practise more, look in `mha-numpy exercises`: `museum-cached-mask` is a bug that shipped and hid most of the past.


# %% tags=["exercise"]
def my_decode_step(x, k_past, v_past, params, num_heads):
    """x (B, 1, D), k_past and v_past (B, H_kv, T, d) -> out (B, 1,
    D), k, v (B, H_kv, T + 1, d).

    params.w_q (D, H*d), .w_k and .w_v (D, H_kv*d), .w_o (H*d, D);
    biases .b_q to .b_o. The new token attends to itself as well.
    Query head h reads key/value head h // (H // H_kv).
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("decode-step", my_decode_step)

# %% tags=["hint"]
# hint("decode-step")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now explain the two bars at the beginning: for each token, the second way computes one row, and the first way
# all rows.
#
# - The KV cache keeps the keys and values of H_kv heads, but no queries. Decoding with it gives the same rows as a pass
#   over the whole text, if the query's offset is right.
# - It takes 2 L B H_kv T d numbers, more than the params if sequences are long or many.
# - H_kv is a fact about each checkpoint, not about a family, so look it up.
#
# **In the code:** `decode.py` and `kv_cache.py` in `mha_numpy/core`; `mha_numpy/models/cost/`.
#
# **Reference:** Shazeer 2019, *Fast Transformer Decoding: One Write-Head is All You Need*, section 2.4; the sources of
# every model's sizes: `CONFIGURATIONS[name].source`.
#
# **Next:** [18, positions](18_positions.ipynb).
