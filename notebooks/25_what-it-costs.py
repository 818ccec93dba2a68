# %% [markdown]
# # 25 · What it costs
#
# "H heads cost the same as one", says the paper. We let 1, 4, 16 and 64 heads share a width of 256,
# and measure on your machine. (Noise only ever adds time, so the fastest of several runs tells most.)

# %%
import numpy as np

from mha_numpy import attention_forward, softmax_forward, split_heads
from mha_numpy.show.pictures import bar_chart, line_chart, weights_by_head
from mha_numpy.teach.exercises import check, hint

rng = np.random.default_rng(0)

# %%
from time import perf_counter


def seconds(H, T=256, D=256):
    q, k, v = (split_heads(a, H) for a in np.ones((3, 1, T, D), np.float32))
    start = perf_counter()
    attention_forward(q, k, v)
    return perf_counter() - start


rounds = [{f"H = {H}": seconds(H) for H in (1, 4, 16, 64)} for _ in range(15)]  # in turns
fastest = {name: 1000 * min(taken[name] for taken in rounds) for name in rounds[0]}
bar_chart(fastest, title="Attention, T = 256, D = 256, on your machine", unit="ms")

# %% [markdown]
# It is not the same. Is the paper wrong? Some texts say "heads are free", others "they cost more".
# Here we count.
#
# **What you can do afterwards:** you can count params, operations and bytes of attention before
# anything runs, and say which of them depend on the number of heads.
#
# ## Params: $4D^2$, whatever H is
#
# Four maps: `w_q`, `w_k`, `w_v` of shape (D, H·d_k), `w_o` of shape (H·d_k, D). With d_k = D / H the
# heads *share out* the D columns instead of adding to them: each map is D x D, and a bias has D
# numbers.
#
# $$3D^2 + D^2 = 4D^2 \quad (+\,4D \text{ biases})$$
#
# > **Predict first.** Layers of width 24 have 1, 2, 3, ... 24 heads. How many params has each? And
# > with heads of width 24, or one shared key/value head?

# %%
from mha_numpy import MultiHeadAttention


def size_of(*sizes, **options):
    return sum(param.size for param in MultiHeadAttention(*sizes, **options).params.values())


sizes = {f"H = {H}": size_of(24, H) for H in (1, 2, 3, 4, 6, 8, 12, 24)}
sizes |= {"H = 4, width 24": size_of(24, 4, head_dim=24), "H = 4, H_kv = 1": size_of(24, 4, 1)}
bar_chart(sizes, title="Params of a layer, D = 24")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 4 · 24² + 4 · 24 = 2400, for all of them. The rule needs H·d_k = D, and keys and values for every
# head: wider heads have more params, and shared keys fewer.
#
# </details>
#
# `count_parameters` does this for whole models. Their authors published the totals, so the counts
# can be checked. (A paper that says 175 billion has rounded.)

# %%
from mha_numpy.models.cost import CONFIGURATIONS, count_flops, count_parameters

models = CONFIGURATIONS
counts = {name: count_parameters(model) for name, model in models.items()}
print({name: f"{counts[name].total / m.published - 1:+.2%}" for name, m in models.items()})
share = {name: 100 * count.attention / count.total for name, count in counts.items()}
bar_chart(share, title="Attention's share of all params", unit="percent")

# %% [markdown]
# ## Operations
#
# A product (m, k) x (k, n) takes m·k·n multiply-adds, and one multiply-add is two operations.
#
# | product | shapes, for each sequence | operations |
# |---|---|---|
# | x w_q, x w_k, x w_v, merged w_o | (T, D) x (D, D), four times | $4 \cdot 2TD^2$ |
# | q k^T | H times (T, d_k) x (d_k, T) | $H \cdot 2T^2 d_k = 2T^2D$ |
# | weights v | H times (T, T) x (T, d_k) | $H \cdot 2T^2 d_k = 2T^2D$ |
#
# So a layer takes $8BTD^2$ for projections and $4BT^2D$ for scores and mix. The first grows with T,
# the second with $T^2$. They are equal at $8BTD^2 = 4BT^2D$, which is $T = 2D$.
#
# > **Predict first.** GPT-2 has D = 768 and reads up to 1024 tokens. "Attention is quadratic": at its
# > full length, which takes more operations, the projections or scores and mix?

# %%
gpt_2, lengths = models["gpt-2"], 2 ** np.arange(5, 15)
flops = [count_flops(gpt_2, int(T)) for T in lengths]
lines = {
    "projections": np.array([f.projections for f in flops], float),
    "scores and mix": np.array([f.scores + f.mix for f in flops], float),
    "feed-forward": np.array([f.feed_forward for f in flops], float),
}
labels = {"x_label": "T", "y_label": "operations", "log_x": True, "log_y": True}
line_chart(lengths, lines, title="GPT-2: operations of all layers", **labels)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The projections. Scores and mix take two thirds of that at 1024, and as much at 1536 = 2D.
#
# </details>
#
# The square wins in the end. (Backward takes twice the operations of forward: it makes two products
# of each, one for each factor's gradient.)

# %%
lengths, shares = 2 ** np.arange(9, 19), {}
for name in ("gpt-2", "llama-3-8b", "gpt-3"):
    flops = [count_flops(models[name], int(T)) for T in lengths]
    shares[f"{name}, D = {models[name].embed_dim}"] = np.array(
        [100 * (f.scores + f.mix) / f.total for f in flops]
    )
labels = {"x_label": "T", "y_label": "percent", "log_x": True}
line_chart(lengths, shares, title="Share of scores and mix in all operations", **labels)

# %% [markdown]
# ## H heads cost the same: true for products
#
# One (T, T) product over D features, or H of them over D / H: the sum has the same length (Vaswani et
# al. 2017, section 3.2.2).
#
# | | one head | H heads |
# |---|---|---|
# | scores and mix | $O(T^2 D)$ | $O(H\,T^2 d_k) = O(T^2 D)$ |
# | params | $3D^2 + D^2$ | $3D^2 + D^2$ |
# | weights: numbers, exps | $T^2$ | $H\,T^2$ |
#
# ## ... and false for everything between the products
#
# > **Predict first.** Each head has a (T, T) array of its own. Which of these arrays grow with 8
# > heads?

# %%
from mha_numpy import trace


def bytes_of(H, T=64, D=48):
    with trace() as t:
        attention_forward(*(split_heads(a, H) for a in rng.normal(size=(3, 1, T, D))))
    return {step.name: step.array.nbytes / 1024 for step in t}


eight, one = bytes_of(8), bytes_of(1)
bars = {f"{name}, H = {H}": kept[name] for name in one for H, kept in ((1, one), (8, eight))}
bar_chart(bars, title="Recorded bytes, T = 64, D = 48", unit="KiB")

# %% [markdown]
# <details><summary>Answer</summary>
#
# `scores` and `weights`, by eight.
#
# </details>
#
# > **Predict first.** From which T on is the array of weights, H·T·T numbers, larger than the tokens,
# > T·D numbers? Answer for D = 768 and H = 12.

# %%
lengths = 2 ** np.arange(3, 14)
lines = {"tokens: T D": lengths * 768.0} | {f"weights, H = {H}": H * lengths**2.0 for H in (1, 12)}
labels = {"x_label": "T", "y_label": "numbers", "log_x": True, "log_y": True}
line_chart(lengths, lines, title="Numbers held for one sequence, D = 768", **labels)

# %% [markdown]
# <details><summary>Answer</summary>
#
# $H T^2 = T D$ gives $T = D / H = d_k$: 64 tokens.
#
# </details>
#
# This explains the first picture: 64 heads compute and move 64 times as many exponentials, for the
# same multiply-adds. Both half-truths are settled: **products the same, softmax H times, the weights'
# memory H times.** Notebook 26 computes attention without holding the weights.
#
# ## How many heads?
#
# ### What known models do
#
# > **Predict first.** It is often said that d_k is 64 to 128 "regardless of model size". Which model
# > is the exception? And does H·d_k = D hold for all?

# %%
names = {n: f"{n}: D {m.embed_dim}, H {m.num_heads}" for n, m in models.items()}
uneven = [n for n, m in models.items() if m.num_heads * m.head_dim != m.embed_dim]
print("H d_k is not D:", uneven)
widths = {names[n]: m.head_dim for n, m in models.items()}
bar_chart(widths, title="Width of a head, d_k")

# %% [markdown]
# <details><summary>Answer</summary>
#
# PaLM is the exception to both.
#
# </details>
#
# D grows 24-fold here, d_k fourfold at most: **the number of heads follows, H = D / 64 or D / 128.**
#
# ### Rules of thumb, beside the data
#
# One table in circulation recommends 4 to 8 heads below 100 million params, 8 to 16 up to a billion,
# 16 to 96 above. Which models do *not* keep to it?

# %%
bands = {1e8: (4, 8), 1e9: (8, 16), float("inf"): (16, 96)}
band_of = {
    n: next(b for limit, b in bands.items() if m.published < limit) for n, m in models.items()
}
{n: m.num_heads for n, m in models.items() if not band_of[n][0] <= m.num_heads <= band_of[n][1]}

# %% [markdown]
# It fits all but one, and it says little: "16 to 96" covers 32 for Llama 2 7B and 48 for PaLM 540B.
# (The original Transformer, 65 million, has 8 heads: Vaswani et al. 2017, table 3.)
#
# ### Too many: heads too narrow
#
# Scores of a head are a product of (T, d_k) and (d_k, T): their rank is d_k at most (Bhojanapalli et
# al. 2020). How much does that matter? We take an arbitrary pattern of weights; its logarithm is the
# scores that would give it. We keep the best part of rank d_k, and see how much weight is misplaced.
# (Other scores might do a little better.)

# %%
target, _ = softmax_forward(2 * rng.normal(size=(32, 32)))
wanted = np.log(target)
u, s, v_T = np.linalg.svd(wanted - wanted.mean(axis=-1, keepdims=True))
widths = np.array([1, 2, 4, 8, 16, 32])
near = [softmax_forward((u[:, :d] * s[:d]) @ v_T[:d])[0] for d in widths]
missed = np.array([np.abs(a - target).sum(axis=-1).mean() / 2 for a in near])
labels = {"x_label": "d_k", "y_label": "share of a row", "log_x": True}
line_chart(widths, {"misplaced": missed}, title="An arbitrary (32, 32) pattern", **labels)

# %% [markdown]
# A head of width 1 misplaces most of its weight. But patterns with a rule need little: a
# previous-token head needs one pair of features, points on a circle.

# %%
angle = 2 * np.pi * np.arange(10) / 10
circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)  # (T, 2)
weights, _ = softmax_forward(30 * np.roll(circle, 1, axis=0) @ circle.T)
weights_by_head(weights[None], list(map(str, range(10))), note="Made by hand, d_k = 2.")

# %% [markdown]
# ### Too few: too few distributions
#
# H heads give a query H rows of weights. One head that wants two things gets their mixture, and the
# mixture of the values cannot be taken apart again (notebook 03).
#
# ### Pruning
#
# Michel et al. 2019 (section 4) removed up to about 20 % of the heads of a translation model, and 40 %
# of BERT's, at test time without a noticeable loss. DistilBERT (Sanh et al. 2019) is another thing:
# half the *layers*, with all 12 heads in each.
#
# > **Predict first.** BERT-base with 9 of 12 heads in every layer, T = 512. What is left of
# > attention's operations, and of all?

# %%
from dataclasses import replace

bert = models["bert-base"]
smaller = {"9 heads": replace(bert, num_heads=9, num_kv_heads=9),  # d_k stays 64
           "6 layers": replace(bert, num_layers=6, others=2 * 768)}  # fmt: skip
left = {}
for name, model in smaller.items():
    full, less = count_flops(bert, 512), count_flops(model, 512)
    left[f"{name}: attention's operations"] = 100 * less.attention / full.attention
    left[f"{name}: all operations"] = 100 * less.total / full.total
    left[f"{name}: all params"] = 100 * count_parameters(model).total / counts["bert-base"].total
bar_chart(left, title="What is left of BERT-base", unit="percent")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Three quarters of attention's operations, and more than nine tenths of all.
#
# </details>
#
# ## Advantages and disadvantages, with figures
#
# | claim | what we saw |
# |---|---|
# | "H heads are free" | products and params: yes. Weights and exponentials: H times |
# | "higher computational cost" | not of products; measured time grew as heads became narrow |
# | "more memory" | $H T^2$ weights, more than the tokens once T > d_k |
# | "several relationships at once" | H distributions a query; one head can only mix |
# | "redundant heads" | a quarter of BERT's heads is less than a tenth of its operations |
# | "more heads are better" | up to a point: scores have rank d_k = D / H at most |
#
# All of this for a model of the list, from a terminal: `mha-numpy cost --model llama-3-70b --context
# 8192`.
#
# ## Exercise: what a layer costs, before it runs
#
# Write the counts as a function. H_kv may be less than H, and H·d need not be D. The last row is the
# KV cache: keys and values of all tokens, kept while a text is written (notebook 17).
#
# More of this kind in `mha-numpy exercises`: `online-attention`, which holds no row of weights.


# %% tags=["exercise"]
def my_cost_table(B, T, D, H, H_kv, d, itemsize):
    """Integers -> a dict: attention_params, projection_flops, score_flops, weights_bytes,
    kv_cache_bytes of one layer. A multiply-add is two operations; biases do not count.
    """
    ...  # your code


# %% tags=["check"]
check("cost-table", my_cost_table)

# %% tags=["hint"]
# hint("cost-table")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now explain the first picture: the products cost the same, and what stands between them
# costs H times as much.
#
# - Params $4D^2$, projections $8BTD^2$, scores and mix $4BT^2D$: none depends on H. Operations meet
#   at T = 2D.
# - Weights and exponentials are $H T^2$. They pass the tokens at T = d_k.
# - Heads are 64 or 128 wide in most known models. Narrower: scores of low rank. Fewer: fewer
#   distributions.
#
# **In the code:** `mha_numpy/models/cost`. Figures: docs/performance.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.2 and table 1; Kaplan et
# al. 2020, *Scaling Laws for Neural Language Models*, table 1; Bhojanapalli et al. 2020, *Low-Rank
# Bottleneck in Multi-head Attention Models*; Michel et al. 2019, *Are Sixteen Heads Really Better
# than One?*; Sanh et al. 2019, *DistilBERT*.
#
# **Next:** [26, attention without its weights](26_attention-without-its-weights.ipynb).
