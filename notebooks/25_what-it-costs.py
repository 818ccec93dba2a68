# %% [markdown]
# # 25 · What it costs
#
# "H heads cost the same as one", says the paper that introduced them. Let's have 1, 4, 16 and 64 heads share a width
# of 256, and time them on your machine.

# %% tags=["hide-input"]
from time import perf_counter

import numpy as np

from mha_numpy import (
    attention_forward,
    softmax_forward,
    split_heads,
)
from mha_numpy.show.pictures import (
    bar_chart,
    line_chart,
    weights_by_head,
)
from mha_numpy.teach.exercises import check, hint


# %%
def milliseconds(function, *arrays):
    """Return the fastest of 15 runs."""
    times = []
    for _ in range(15):
        start = perf_counter()
        function(*arrays)
        times.append(perf_counter() - start)
    return 1000 * min(times)


T = D = 256
x, bars = np.ones((3, 1, T, D), np.float32), {}
for H in (1, 4, 16, 64):
    q, k, v = (split_heads(a, H) for a in x)
    k_T = k.swapaxes(-1, -2)
    scores = q @ k_T
    weights, _ = softmax_forward(scores)
    bars[f"H = {H}: scores"] = milliseconds(np.matmul, q, k_T)
    bars[f"H = {H}: softmax"] = milliseconds(
        softmax_forward, scores
    )
    bars[f"H = {H}: mix"] = milliseconds(np.matmul, weights, v)
title = "Attention, T = 256, D = 256, on your machine"
bar_chart(bars, title=title, unit="ms")

# %% [markdown]
# The times are far from the same. So is the paper wrong? Let's count.
#
# **By the end you can** count params, operations and bytes of attention before
# anything runs, and say which of them depend on the number of heads.
#
# ## Params: $4D^2$, whatever H is
#
# A layer has four maps: `w_q`, `w_k` and `w_v` of shape (D, H·d_k), and `w_o` of shape (H·d_k, D). With d_k = D / H
# the heads *share* the D columns instead of adding to them, so each map is D x D. Its bias has D numbers.
#
# $$3D^2 + D^2 = 4D^2 \quad (+\,4D \text{ biases})$$
#
# > **Predict first.** We build layers of width 24 with 1, 2, 3, ... 24 heads. How many params does each have? And
# > what if every head is 24 wide, or if all heads share one key/value head?

# %%
from mha_numpy import MultiHeadAttention

heads = (1, 2, 3, 4, 6, 8, 12, 24)
layers = {f"H = {H}": MultiHeadAttention(24, H) for H in heads}
layers["H = 4, width 24"] = MultiHeadAttention(24, 4, head_dim=24)
layers["H = 4, H_kv = 1"] = MultiHeadAttention(24, 4, 1)
sizes = {n: layer.num_parameters for n, layer in layers.items()}
bar_chart(sizes, title="Params of a layer, D = 24")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 4 · 24² + 4 · 24 = 2400, whatever H is. The last two break the rule, which needs H·d_k = D and separate keys and
# values for every head.
#
# </details>
#
# `count_parameters` counts whole models in the same way. Does it agree with the published totals?

# %%
from mha_numpy.models.cost import (
    CONFIGURATIONS,
    count_flops,
    count_parameters,
)

models = CONFIGURATIONS
counts = {n: count_parameters(m) for n, m in models.items()}
for name, count in counts.items():
    off = count.total / models[name].published - 1
    print(f"{name:12} {count.total:15,} params, off by {off:+.2%}")
share = {n: 100 * c.attention / c.total for n, c in counts.items()}
title = "Attention's share of all params"
bar_chart(share, title=title, unit="percent")

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
# So for B sequences a layer takes $8BTD^2$ operations for projections and $4BT^2D$ for scores and mix. The first
# grows with T, the second with $T^2$. They are equal at $T = 2D$.
#
# > **Predict first.** GPT-2 has D = 768 and reads up to 1024 tokens. "Attention is quadratic", people say. At full
# > length, what takes more operations?
# >
# > - the projections
# > - scores and mix
# >
# > <!-- answer: the projections -->

# %%
gpt_2, lengths = models["gpt-2"], 2 ** np.arange(5, 15)
flops = [count_flops(gpt_2, int(T)) for T in lengths]
lines = {
    "projections": [f.projections for f in flops],
    "scores and mix": [f.scores + f.mix for f in flops],
    "feed-forward": [f.feed_forward for f in flops],
}
log = {"log_x": True, "log_y": True}
axes = {"x_label": "T", "y_label": "operations"} | log
title = "GPT-2: operations of all layers"
line_chart(lengths, lines, title=title, **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The projections do. At 1024 tokens scores and mix take two thirds as many, and they catch up at 1536 = 2D.
#
# </details>
#
# So when does the square win?

# %%
lengths, lines = 2 ** np.arange(9, 19), {}
for name in ("gpt-2", "llama-3-8b", "gpt-3"):
    flops = [count_flops(models[name], int(T)) for T in lengths]
    share = [(f.scores + f.mix) / f.total for f in flops]
    label = f"{name}, D = {models[name].embed_dim}"
    lines[label] = 100 * np.array(share)
axes = {"x_label": "T", "y_label": "percent", "log_x": True}
title = "Share of scores and mix in all operations"
line_chart(lengths, lines, title=title, **axes)

# %% [markdown]
# The wider the model, the longer its text has to be before the square wins.
#
# ## "H heads cost the same" is true for multiply-adds
#
# One product over D features takes as many multiply-adds as H products over D / H features each (Vaswani et al. 2017,
# section 3.2.2).
#
# | | one head | H heads |
# |---|---|---|
# | scores and mix | $O(T^2 D)$ | $O(H\,T^2 d_k) = O(T^2 D)$ |
# | weights: numbers, exps | $T^2$ | $H\,T^2$ |
#
# ## ... and false for everything in between
#
# > **Predict first.** We record every array of attention. Which of them grow if there are 8 heads instead of one?

# %%
from mha_numpy import trace

rng = np.random.default_rng(0)


def kib_of(H, T=64, D=48):
    x = rng.normal(size=(3, 1, T, D))
    with trace() as t:
        attention_forward(*(split_heads(a, H) for a in x))
    return {step.name: step.array.nbytes / 1024 for step in t}


eight, one, bars = kib_of(8), kib_of(1), {}
for name in one:
    bars[f"{name}, H = 1"] = one[name]
    bars[f"{name}, H = 8"] = eight[name]
bar_chart(bars, title="Recorded bytes, T = 64, D = 48", unit="KiB")

# %% [markdown]
# <details><summary>Answer</summary>
#
# `scores` and `weights` grow eightfold, because each head has its own (T, T) array.
#
# </details>
#
# > **Predict first.** From which T on do the weights, H·T·T numbers, outgrow the tokens, T·D
# > numbers? Answer for D = 768 and H = 12.

# %%
lengths = 2 ** np.arange(3, 14)
lines = {"tokens: T D": lengths * 768}
for H in (1, 12):
    lines[f"weights, H = {H}"] = H * lengths**2
axes = {"x_label": "T", "y_label": "numbers"} | log
title = "Numbers held for one sequence, D = 768"
line_chart(lengths, lines, title=title, **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Setting $H T^2 = T D$ gives $T = D / H = d_k$, which is 64 tokens here.
#
# </details>
#
# This explains the first picture: 64 heads compute and move 64 times as many exponentials for the same multiply-adds.
# Even the products take longer, because they write and read 64 times as many numbers. **Products take the same
# operations; softmax and the memory for weights cost H times as much.**
#
# ## How many heads?
#
# ### What known models do
#
# > **Predict first.** Many texts say that d_k is 64 to 128 "regardless of model size". Which models
# > are exceptions? And is H·d_k = D true for all of them?

# %%
widths = {}
for name, m in models.items():
    widths[f"{name}: D {m.embed_dim}, H {m.num_heads}"] = m.head_dim
    if m.num_heads * m.head_dim != m.embed_dim:
        print("H d_k is not D:", name)
bar_chart(widths, title="Width of a head, d_k")

# %% [markdown]
# <details><summary>Answer</summary>
#
# PaLM and Gemma have heads of width 256. In these, and in other new models, H·d_k is not D.
#
# </details>
#
# D grows 24-fold, but d_k only fourfold. **Until 2023, except in PaLM, H is D / 64 or D / 128.** That was a habit, not
# a law.
#
# ### Rules of thumb and the data
#
# Many texts copy a table that recommends 4 to 8 heads below 100 million params, 8 to 16 up to a billion, and 16 to 96
# above. Which models don't follow it?


# %%
def recommended(params):
    """The fewest and the most heads, by that table."""
    if params < 1e8:
        return 4, 8
    return (8, 16) if params < 1e9 else (16, 96)


for name, m in models.items():
    fewest, most = recommended(m.published)
    if not fewest <= m.num_heads <= most:
        print(f"{name}: {m.num_heads} heads")

# %% [markdown]
# It fits most of them, but "16 to 96" says little.
#
# ### Too many heads are too narrow
#
# The scores of a head are a product of (T, d_k) and (d_k, T), so their rank is at most d_k (Bhojanapalli et al.
# 2020). How much does that matter? Take an arbitrary pattern of weights, and replace its scores by the nearest ones of
# rank d_k. How much weight ends up in the wrong place, before and after 1000 steps of gradient descent?

# %%
target, _ = softmax_forward(2 * rng.normal(size=(32, 32)))
scores = np.log(target)
scores -= scores.mean(axis=-1, keepdims=True)  # the same weights
u, s, v_T = np.linalg.svd(scores)
widths, lines = [1, 2, 4, 8, 16, 32], {"nearest": [], "fitted": []}
for d in widths:
    q, k = u[:, :d] * np.sqrt(s[:d]), v_T[:d].T * np.sqrt(s[:d])
    for step in range(1001):
        near, _ = softmax_forward(q @ k.T)
        off = near - target  # the gradient of the scores
        if step in (0, 1000):
            misplaced = np.abs(off).sum(axis=-1).mean() / 2
            lines["fitted" if step else "nearest"].append(misplaced)
        q, k = q - 0.1 * off @ k, k - 0.1 * off.T @ q
axes = {"x_label": "d_k", "y_label": "share of a row"}
title = "An arbitrary (32, 32) pattern: misplaced weight"
line_chart(widths, lines, title=title, log_x=True, **axes)

# %% [markdown]
# Fitted like this, a head of width 1 misplaces half its weight, and one of width 4 a third. But that is about *mixing*.
# To look at one key, two features are enough, if the tokens are on a circle: one head looks for the point before, the
# other for a random one. (The more points, the larger the scores have to be.)

# %%
angle = 2 * np.pi * np.arange(10) / 10
circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)  # (T, 2)
before, any_one = (
    np.roll(circle, 1, axis=0),
    rng.permutation(circle),
)
wanted = np.stack([before, any_one])  # (H, T, 2)
weights, _ = softmax_forward(30 * wanted @ circle.T)
tokens, names = [str(i) for i in range(10)], ["before", "any one"]
options = {"head_names": names, "note": "By hand, d_k = 2."}
weights_by_head(weights, tokens, **options)

# %% [markdown]
# ### Too few heads give too few distributions
#
# H heads give a query H rows of weights. One head that looks for two things has to share one row
# between them (notebook 03). In `mha-numpy experiment heads`, small models learn to name one, two or four other tokens.
#
# > **Predict first.** With equal params, how many heads learn to name four in the fewest steps: 1, 2, 4, 8 or 16?
# >
# > <!-- answer: 8 within 0 -->

# %%
from mha_numpy.show.pictures import experiment_chart

experiment_chart("heads", 2)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Eight. With fewer heads than places no run gets there, a few to spare help, and too many slow training down: sixteen
# heads, 2 wide, take 87 steps, four take 69. (Learning to copy takes eight heads 194 steps and one as wide 115, but
# that one fails with one of five seeds: `mha-numpy experiment redundancy`.)
#
# This readout is linear, and values know only the token. An MLP can take one head's mixture of two places apart, but
# 2 of 5 runs fail, one even in five times the steps.
#
# </details>
#
# ### Pruning
#
# Michel et al. 2019 (section 4) removed up to about 20% of the heads of a translation model, and 40% of BERT's, at
# test time, without a noticeable loss. DistilBERT (Sanh et al. 2019) has half the *layers* instead, with all 12 heads
# in each, and learned from BERT's probabilities. In `mha-numpy experiment distillation` a student with half of the
# heads learns more that way than from labels, and even beats its teacher.
#
# > **Predict first.** Suppose BERT-base keeps 9 of its 12 heads in every layer, and T = 512. How much is left of
# > attention's operations, and of all?

# %%
from dataclasses import replace

bert, left = models["bert-base"], {}
changed = {  # d_k stays 64
    "9 heads": replace(bert, num_heads=9, num_kv_heads=9),
    "6 layers": replace(bert, num_layers=6, others=2 * 768),
}
full, params = count_flops(bert, 512), counts["bert-base"].total
for name, model in changed.items():
    now = count_flops(model, 512)
    share = now.attention / full.attention
    left[f"{name}: attention's operations"] = 100 * share
    left[f"{name}: all operations"] = 100 * now.total / full.total
    share = count_parameters(model).total / params
    left[f"{name}: all params"] = 100 * share
bar_chart(left, title="What is left of BERT-base", unit="percent")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Three quarters of attention's operations are left, and more than nine tenths of all.
#
# </details>
#
# ## What the claims come down to
#
# | claim | what we saw |
# |---|---|
# | "H heads are free", "higher computational cost" | multiply-adds and params: the same. Weights and exponentials: H times |
# | "more memory" | $H T^2$ weights, more than the tokens once T > d_k |
# | "several relationships at once" | H distributions per query; one head mixes, and an MLP may learn to undo that |
# | "redundant heads" | a quarter of BERT's heads is less than a tenth of its operations |
# | "more heads are better" | up to a point: too many train slowly, and scores have rank d_k at most |
#
# `mha-numpy cost --model llama-3-70b --context 8192` shows this for any listed model.
#
# ## Exercise: what a layer costs before it runs
#
# Write the counts as a function. H_kv may be less than H, and H·d need not be D. The last entry is
# the KV cache (notebook 17).
#
# To practise more, try `online-attention` in `mha-numpy exercises`.


# %% tags=["exercise"]
def my_cost_table(B, T, D, H, H_kv, d, itemsize):
    """Integers -> a dict: attention_params, projection_flops,
    score_flops, weights_bytes, kv_cache_bytes of one layer. A
    multiply-add is two operations; biases do not count.
    """
    ...  # your code


# %% tags=["check"]
check("cost-table", my_cost_table)

# %% tags=["hint"]
# hint("cost-table")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - Params $4D^2$, projections $8BTD^2$, scores and mix $4BT^2D$: none of these depends on H. Both counts of
#   operations are equal at T = 2D.
# - There are $H T^2$ weights and exponentials. They outgrow the tokens at T = d_k.
# - In most known models, heads are 64 or 128 wide. Narrower heads have scores of low rank; fewer
#   heads give fewer distributions.
#
# **In the code:** `mha_numpy/models/cost`. Figures: docs/performance.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*; Bhojanapalli et al. 2020, *Low-Rank Bottleneck in
# Multi-head Attention Models*; Michel et al. 2019, *Are Sixteen Heads Really Better than One?*; Sanh et al. 2019,
# *DistilBERT*.
#
# **Next:** [26, attention without its weights](26_attention-without-its-weights.ipynb).
