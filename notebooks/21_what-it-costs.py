# %% [markdown]
# # 21 · What it costs
#
# "H heads cost the same as one" is said of multi-head attention, and so is "it costs more"; some
# texts say both. Here we count params, operations and numbers in memory, we measure on your machine
# what counting cannot tell, and we compute attention without ever holding its weights.
#
# **You will learn**
#
# - where $4D^2$, $8BTD^2$ and $4BT^2D$ come from, and at which length they meet;
# - what stays the same with more heads, and what grows with H;
# - how wide heads are in known models, and what the rules of thumb are worth;
# - what "too many" and "too few" heads mean, as numbers;
# - the online softmax: exact attention, a block of keys at a time.

# %%
import io
from contextlib import redirect_stderr
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from time import perf_counter

import numpy as np

from mha_numpy import MultiHeadAttention, attention_forward, softmax_forward, split_heads, trace
from mha_numpy.core import step
from mha_numpy.cost import CONFIGURATIONS, count_flops, count_parameters
from mha_numpy.draw import bar_chart, line_chart
from mha_numpy.exercises import check, hint
from mha_numpy.tables import Table

rng = np.random.default_rng(0)

# %% [markdown]
# ## Params: $4D^2$, whatever H is
#
# Four maps: `w_q`, `w_k`, `w_v` of shape (D, H·d_k), `w_o` of shape (H·d_k, D). With d_k = D / H,
# the heads *share out* the D columns instead of adding to them: each map is D x D, and a bias has D
# numbers.
#
# $$3D^2 + D^2 = 4D^2 \quad (+\,4D \text{ biases})$$
#
# > **Predict first.** Layers of width 24 with 1, 2, 3, ... 24 heads. How many params has each?


# %%
def size_of(layer):
    return sum(param.size for param in layer.params.values())


divisors = [H for H in range(1, 25) if 24 % H == 0]
{H: size_of(MultiHeadAttention(24, H)) for H in divisors}, 4 * 24**2 + 4 * 24

# %% [markdown]
# The rule needs H·d_k = D and keys and values for every head. Two ways out of it: wider heads, and
# shared keys.

# %%
{
    "as it was": size_of(MultiHeadAttention(24, 4)),
    "head_dim=24": size_of(MultiHeadAttention(24, 4, head_dim=24)),
    "num_kv_heads=1": size_of(MultiHeadAttention(24, 4, 1)),
}

# %% [markdown]
# `count_parameters` does this for whole models, and may be checked: their authors published the
# totals. Counted, and how far from published (a paper that says 175 billion has rounded):

# %%
rows = []
for name, model in CONFIGURATIONS.items():
    total, known = count_parameters(model).total, model.published
    rows.append([name, f"{total:,}", f"{total - known:+,.0f}", f"{total / known - 1:+.2%}"])
Table("Params", ["model", "counted", "counted - published", "off by"], rows)

# %% [markdown]
# How much of a model is attention at all? Between a tenth and a third; shared keys make it less.

# %%
share = {
    name: 100 * count_parameters(model).attention / count_parameters(model).total
    for name, model in CONFIGURATIONS.items()
}
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
# So a layer takes $8BTD^2$ for projections and $4BT^2D$ for scores and mix. Let us see whether
# `count_flops` says the same of GPT-2's twelve layers:

# %%
gpt_2 = CONFIGURATIONS["gpt-2"]
B, T, D, L = 3, 500, gpt_2.embed_dim, gpt_2.num_layers
counted = count_flops(gpt_2, T, batch=B)
counted.projections == L * 8 * B * T * D**2, counted.scores + counted.mix == L * 4 * B * T**2 * D

# %% [markdown]
# The first grows with T, the second with $T^2$. Set them equal:
#
# $$8BTD^2 = 4BT^2D \quad\Longleftrightarrow\quad T = 2D$$
#
# > **Predict first.** GPT-2 has D = 768 and reads up to 1024 tokens. "Attention is quadratic": at
# > its full length, what takes more operations, the projections or scores and mix?

# %%
lengths = 2 ** np.arange(5, 15)
flops = [count_flops(gpt_2, int(T)) for T in lengths]
line_chart(
    lengths,
    {
        "projections": np.array([f.projections for f in flops], float),
        "scores and mix": np.array([f.scores + f.mix for f in flops], float),
        "feed-forward": np.array([f.feed_forward for f in flops], float),
    },
    title="GPT-2: operations of all layers", x_label="T", y_label="operations",
    log_x=True, log_y=True,
)  # fmt: skip

# %%
for T in (1024, 2 * D):
    f = count_flops(gpt_2, T)
    quadratic, feed_forward = (f.scores + f.mix) / f.projections, f.feed_forward / f.projections
    print(f"T={T}: scores and mix {quadratic:.3f}, feed-forward {feed_forward:.0f} x projections")

# %% [markdown]
# The projections: the quadratic part is two thirds of them at 1024, and equal at 1536 = 2D. Beside
# the feed-forward it is smaller still. The square wins in the end, though:

# %%
rows = []
for name in ("gpt-2", "llama-3-8b", "gpt-3"):
    model = CONFIGURATIONS[name]
    parts = [count_flops(model, T) for T in (1024, 8192, 131072)]
    shares = [f"{(f.scores + f.mix) / f.total:.0%}" for f in parts]
    rows.append([name, str(model.embed_dim), *shares])
columns = ["model", "D", "T = 1024", "8192", "131072"]
Table("Share of scores and mix in all operations", columns, rows)

# %% [markdown]
# Backward makes two products of each: one for each factor's gradient.

# %%
count_flops(gpt_2, 1024, backward=True).total / count_flops(gpt_2, 1024).total

# %% [markdown]
# ## H heads cost the same: true for products
#
# > **Predict first.** GPT-2 with 1, 2, 3, ... 768 heads, d_k = 768 / H each. Which of projections,
# > scores, mix change?


# %%
def with_heads(model, H):
    return replace(model, num_heads=H, num_kv_heads=H, head_dim=model.embed_dim // H)


divisors = [H for H in range(1, D + 1) if D % H == 0]
{count_flops(with_heads(gpt_2, H), 1024).attention for H in divisors}  # a set: all the counts

# %% [markdown]
# One number for all 18 of them. One (T, T) product over D features, or H of them over D / H: the
# sum has the same length. This is the argument in Vaswani et al. 2017, section 3.2.2.
#
# | | one head | H heads |
# |---|---|---|
# | scores and mix | $O(T^2 D)$ | $O(H\,T^2 d_k) = O(T^2 D)$ |
# | params | $3D^2 + D^2$ | $3D^2 + D^2$ |
# | weights: numbers, exps | $T^2$ | $H\,T^2$ |
#
# ## ... and false for everything between the products
#
# Each head has a (T, T) array of its own: scores, exponentials, weights. Recorded, in bytes:


# %%
def record(H, T=64, D=48):
    q, k, v = (split_heads(a, H) for a in np.random.default_rng(0).normal(size=(3, 1, T, D)))
    with trace() as t:
        attention_forward(q, k, v)
    return t


pairs = zip(record(1), record(8), strict=True)
rows = [[one.name, *(f"{s.array.nbytes:,}" for s in (one, eight))] for one, eight in pairs]
Table("Bytes, T = 64, D = 48", ["array", "H = 1", "H = 8"], rows)

# %% [markdown]
# q, k, v and heads stay as they were; `scores` and `weights` grow by eight.
#
# > **Predict first.** From which T on is the array of weights, H·T·T numbers, larger than the
# > tokens themselves, T·D numbers? Answer for D = 768 and H = 12 before you look.

# %%
lengths = 2 ** np.arange(3, 14)
line_chart(
    lengths,
    {
        "tokens: T D": lengths * 768.0,
        "weights, 1 head": 1.0 * lengths**2,
        "weights, 12 heads": 12.0 * lengths**2,
    },
    title="Numbers held for one sequence, D = 768", x_label="T", y_label="numbers",
    log_x=True, log_y=True,
)  # fmt: skip

# %% [markdown]
# $H T^2 = T D$ gives $T = D / H = d_k$: 64 tokens. That is hardly a long text. The number of
# exponentials is the same $H T^2$, and a plain implementation reads and writes such an array
# several times.
#
# ### Measured
#
# The same D, cut into more and more heads, in NumPy on your machine. Times are noisy: other
# programs, clock rates, caches. So all are measured many times, in turns. Noise only ever adds, so
# the fastest run tells most; the middle one tells how noisy it was. Operations of the products are
# the same in every row.
#
# > **Predict first.** T = 256, D = 256. A cell of the scores costs $2 d_k$ multiply-adds (scores
# > and mix) and one exponential. How many multiply-adds is that for one head, and for 64? How much
# > longer will 64 heads take?


# %%
def seconds(runs, rounds=15):
    """Sorted times of each run; in turns, so that a disturbance hits all alike."""
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = perf_counter()
            run()
            times[name].append(perf_counter() - start)
    return {name: sorted(taken) for name, taken in times.items()}


def attend_with(H, T=256, D=256):
    q, k, v = (split_heads(a, H) for a in np.ones((3, 1, T, D), np.float32))
    return partial(attention_forward, q, k, v)


# %%
measured, rows = seconds({H: attend_with(H) for H in (1, 4, 16, 64)}), []
for H, times in measured.items():
    ratio = times[0] / measured[1][0]
    numbers = [f"{1e3 * t:.2f}" for t in (times[0], times[7])]
    rows.append([str(H), str(2 * 256 // H), *numbers, f"{ratio:.1f}"])
columns = ["H", "multiply-adds an exp", "fastest, ms", "middle, ms", "fastest / one head"]
Table("On your machine", columns, rows)

# %% [markdown]
# Not the same: 64 heads compute and move 64 times as many exponentials, for the same multiply-adds.
# Both half-truths are settled: **products the same, softmax H times, the weights' memory H times.**
#
# ## How many heads?
#
# ### What known models do
#
# From the library's data; `CONFIGURATIONS[name].source` has the paper of each.

# %%
sizes = ("embed_dim", "num_layers", "num_heads", "num_kv_heads", "head_dim", "variant")
rows = [[m.name, *(str(getattr(m, size)) for size in sizes)] for m in CONFIGURATIONS.values()]
Table("Known models", ["model", "D", "L", "H", "H_kv", "d_k", "variant"], rows)

# %% [markdown]
# > **Predict first.** It is often said that d_k is 64 to 128 "regardless of model size". Find the
# > exception above. And does H·d_k = D hold for all?

# %%
outside = {name: m.head_dim for name, m in CONFIGURATIONS.items() if not 64 <= m.head_dim <= 128}
uneven = {n: m for n, m in CONFIGURATIONS.items() if m.num_heads * m.head_dim != m.embed_dim}
outside, {name: (m.num_heads * m.head_dim, m.embed_dim) for name, m in uneven.items()}

# %% [markdown]
# PaLM is the exception to both. In the others the width of a head is 64 or 128, and **the number of
# heads follows from it: H = D / 64 or D / 128.** D grows 24-fold in this table, d_k fourfold at
# most.
#
# ### Rules of thumb, beside the data
#
# One table in circulation recommends 4 to 8 heads below 100 million params, 8 to 16 up to a
# billion, 16 to 96 above. Which models do *not* keep to it?

# %%
bands = {1e8: (4, 8), 1e9: (8, 16), float("inf"): (16, 96)}
beside = {}
for name, m in CONFIGURATIONS.items():
    low, high = next(band for limit, band in bands.items() if m.published < limit)
    if not low <= m.num_heads <= high:
        beside[name] = m.num_heads
beside

# %% [markdown]
# It fits all but one, and says little: "16 to 96" covers 32 for Llama 2 7B and 48 for PaLM 540B.
# (None of ours is below 100 million. The original Transformer, 65 million, has 8 heads: Vaswani et
# al. 2017, table 3.) Dividing D by 64 or 128 is the better rule.
#
# ### Too many: heads too narrow
#
# Scores of a head are a product of (T, d_k) and (d_k, T). Such a matrix has a rank of d_k at most.
#
# > **Predict first.** T = 32, D = 32. Scores of one head, as H goes 1, 2, 4, ... 32: their rank?
# > And the rank of the weights, after softmax?


# %%
def rank_of(H, T=32, D=32):
    """Ranks of head 0: of its scores, of its weights."""
    q, k = np.random.default_rng(1).normal(size=(2, T, D // H))
    scores = q @ k.T / np.sqrt(D // H)
    weights, _ = softmax_forward(scores)
    return np.linalg.matrix_rank(scores), np.linalg.matrix_rank(weights)


counts = [1, 2, 4, 8, 16, 32]
ranks = np.array([rank_of(H) for H in counts])
line_chart(
    counts, {"scores": ranks[:, 0], "weights": ranks[:, 1]}, log_x=True,
    title="Rank of one head, T = D = 32", x_label="H", y_label="rank",
)  # fmt: skip

# %% [markdown]
# Scores: D / H exactly. Weights: more, since softmax bends them. (That only 14 are counted at d_k =
# 1 is rounding: the other singular values are too small to see.) So a low rank does not mean that a
# narrow head can do nothing; it means that it cannot do *everything*. How much? Take an arbitrary
# pattern of weights as target. Its logarithm is the scores that would give it. Keep the best rank-r
# part of those scores (by singular values), and see how far the weights are off. (Another choice of
# scores might do a little better; this is an upper bound.)

# %%
target, _ = softmax_forward(np.random.default_rng(2).normal(size=(32, 32)) * 2)
wanted = np.log(target)
u, s, v_T = np.linalg.svd(wanted - wanted.mean(axis=-1, keepdims=True))
widths = np.array([1, 2, 4, 8, 16, 32])
near = [softmax_forward((u[:, :r] * s[:r]) @ v_T[:r])[0] for r in widths]
missed = np.array([np.abs(a - target).sum(axis=-1).mean() / 2 for a in near])
line_chart(
    widths, {"misplaced weight": missed}, log_x=True, x_label="d_k", y_label="share of a row",
    title="An arbitrary (32, 32) pattern, by a head of width d_k",
)  # fmt: skip

# %% [markdown]
# Made in this way, a head of width 1 puts most of its weight elsewhere; one as wide as the text can
# have any pattern. Bhojanapalli et al. 2020 call this the low-rank bottleneck. Patterns with a rule
# do not need so much: a previous-token head (notebook 16) needs one pair of features, points on a
# circle.

# %%
angle = 2 * np.pi * np.arange(32) / 32
circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)  # (T, 2)
weights, _ = softmax_forward(1000 * np.roll(circle, 1, axis=0) @ circle.T)
weights.argmax(axis=-1)  # query 0 wraps around to key 31

# %% [markdown]
# ### Too few: too few distributions
#
# H heads give a query H rows of weights. One head that wants two things gets their mixture, and the
# mixture of the values cannot be taken apart again: let two tokens trade their roles, and its output
# stays what it was. Two heads notice (notebook 03).
#
# ### Pruning
#
# Trained heads are not equally useful. Michel et al. 2019 removed up to about 20 % of the heads of
# a translation model and 40 % of BERT's at test time without a noticeable loss (section 4; the task
# for BERT was MNLI, one of GLUE's nine). What would that save? The cost of *attention* falls in
# proportion; the model's does not.
#
# > **Predict first.** BERT-base with 9 of 12 heads in every layer, T = 512. What is left of
# > attention's operations, and of all?

# %%
bert = CONFIGURATIONS["bert-base"]
pruned = replace(bert, num_heads=9, num_kv_heads=9)  # d_k stays 64
full, less = count_flops(bert, 512), count_flops(pruned, 512)
params = count_parameters(pruned).total / count_parameters(bert).total
left = {"attention's operations": less.attention / full.attention}
left | {"all operations": less.total / full.total, "all params": params}

# %% [markdown]
# DistilBERT (Sanh et al. 2019), sometimes named in this context as a model with fewer heads, has
# all 12 of them in each layer. It has half the *layers*, and no segment vectors and no pooler:

# %%
distilbert = replace(bert, num_layers=6, others=2 * 768)  # what is left: the embedding norm
smaller = count_parameters(distilbert).total
smaller, 1 - smaller / count_parameters(bert).total

# %% [markdown]
# 66 million params, about 40 % less: the figure that the paper gives.
#
# ## The KV cache
#
# While a text is generated, keys and values of all tokens are kept: $2\,L\,H_{kv}\,d_k$ numbers a
# token. H does not occur in it, H_kv does. Notebook 15 counts it, and asks when it outgrows the
# model.
#
# All of this for any model of the list, from a terminal: `mha-numpy cost --model llama-3-70b --context 8192`.
#
# ## Attention without its weights
#
# The products need not be done at once. Could we take the keys in blocks, and never hold T_k scores
# for a query? The mixing can be summed block by block. What stands in the way is softmax: its
# maximum and its sum belong to the whole row.
#
# **Online softmax** (Milakov and Gimelshein 2018): keep, for each query, the largest score so far
# $m$, the sum so far $\ell$, and the output so far $a$, not yet divided:
#
# $$\ell = \sum_{j\,\text{so far}} e^{s_j - m}, \qquad a = \sum_{j\,\text{so far}} e^{s_j - m}\,v_j$$
#
# A new block may bring a larger maximum $m'$. All terms so far were made with $m$ and should have
# been made with $m'$. One factor corrects all of them, since
#
# $$e^{s_j - m'} = e^{s_j - m}\; e^{m - m'}$$
#
# so that
#
# $$m' = \max(m, \max_j s_j), \qquad \ell' = \ell\,e^{m - m'} + \sum_j e^{s_j - m'}, \qquad
# a' = a\,e^{m - m'} + \sum_j e^{s_j - m'} v_j$$
#
# with $j$ over the new block. It starts from $m = -\infty$, $\ell = 0$, $a = 0$; after the last
# block the output is $a / \ell$, and $m + \log \ell$ is the row's lse.
#
# > **Predict first.** One query, six scores, blocks of two: (1, 2), (5, 3), (0, 4). What is $m$
# > after each block? In which blocks is the correction factor 1?

# %%
scores = np.array([1.0, 2.0, 5.0, 3.0, 0.0, 4.0])
v = np.array([8.0, 2.0, 4.0, 6.0, 1.0, 3.0])
m, ell, a, rows = -np.inf, 0.0, 0.0, []
for block in (slice(0, 2), slice(2, 4), slice(4, 6)):
    m_old, m = m, max(m, scores[block].max())
    factor, powers = np.exp(m_old - m), np.exp(scores[block] - m)
    ell, a = ell * factor + powers.sum(), a * factor + powers @ v[block]
    rows.append([str(scores[block]), *(f"{number:.3f}" for number in (factor, m, ell, a))])
Table("After each block", ["scores", "factor", "m", "ell", "a"], rows)

# %% [markdown]
# The first factor is $e^{-\infty} = 0$: there was nothing to correct. The second, $e^{2 - 5}$,
# moves what came before to the new maximum. In the third block the maximum stays, and nothing is
# corrected. Is it the same?

# %%
weights, cache = softmax_forward(scores)
whole = weights @ v
float(a / ell), float(abs(a / ell - whole)), float(abs(m + np.log(ell) - cache.lse))

# %% [markdown]
# This is not an approximation: what differs is rounding. Now many queries at once, with `step` to
# show what is held.


# %%
def one_block(q, k, v, state):
    """Take in some keys. state: m (T_q, 1), ell (T_q, 1), a (T_q, d_v)."""
    m_old, ell, a = state
    scores = step("scores", q @ k.T / np.sqrt(q.shape[-1]), "T_q block", "scale * q @ k_block.T")
    highest = scores.max(axis=-1, keepdims=True)
    m = step("m", np.maximum(m_old, highest), "T_q 1", "np.maximum(m_old, highest)")
    factor, powers = np.exp(m_old - m), np.exp(scores - m)
    ell = ell * factor + powers.sum(axis=-1, keepdims=True)
    step("ell", ell, "T_q 1", "ell * factor + powers.sum(axis=-1, keepdims=True)")
    return m, ell, step("a", a * factor + powers @ v, "T_q d_v", "a * factor + powers @ v_block")


q, k, v = rng.normal(size=(5, 8)), rng.normal(size=(1000, 8)), rng.normal(size=(1000, 3))
state = np.full((5, 1), -np.inf), np.zeros((5, 1)), np.zeros((5, 3))
with trace() as t:
    for start in (0, 500):
        state = one_block(q, k[start : start + 500], v[start : start + 500], state)
t

# %%
out, cache = attention_forward(q, k, v)
m, ell, a = state
float(np.abs(a / ell - out).max()), float(np.abs((m + np.log(ell))[:, 0] - cache.lse).max())

# %% [markdown]
# Equal, and no array was ever (5, 1000). This is the idea of FlashAttention (Dao et al. 2022): take
# blocks that fit into the processor's fast memory, and do scores, softmax and mix on them while
# they are there. **The operations are not fewer; the trips to memory are.** Backward has lse, and
# makes each weight anew as $e^{s - \mathrm{lse}}$:

# %%
again = np.exp(q @ k.T / np.sqrt(8) - cache.lse[:, None])
float(np.abs(again - cache.weights).max())

# %% [markdown]
# The library's `backend="numba"` does this, compiled, for 64 queries and 64 keys at a time. Blocks
# that nobody sees, under a causal mask or a window, are skipped. docs/kernels.md has a picture of
# the blocks of one head, of how one block is computed, and of how backward shares out its work.
#
# ### What a forward keeps for its backward
#
# NumPy's cache holds all weights. A kernel's holds `heads` and `lse`: d_v + 1 numbers a query. (The
# next cells need numba. The first one compiles the kernels, which may take half a minute, once for
# your machine.)

# %% tags=["needs-numba"]
if find_spec("numba") is None:
    print("numba is not installed here: pip install numba")
else:
    q, k, v = rng.normal(size=(3, 1, 8, 512, 64)).astype(np.float32)
    backends = ("numpy", "loops", "numba")
    with redirect_stderr(io.StringIO()):  # a notice that it takes a while
        caches = {name: attention_forward(q, k, v, backend=name)[1] for name in backends}
    print({name: "no weights" if c.cells is None else "weights" for name, c in caches.items()})

# %% tags=["needs-numba"]
if find_spec("numba") is not None:
    kept = {name: cache.heads.nbytes + cache.lse.nbytes for name, cache in caches.items()}
    kept["numpy"] += caches["numpy"].weights.nbytes
    mebibytes = {name: size / 2**20 for name, size in kept.items()}
    display(bar_chart(mebibytes, title="Kept for backward: H = 8, T = 512", unit="MiB"))

# %% [markdown]
# With twice the tokens the weights grow fourfold, heads and lse twofold. Now the time.

# %% tags=["needs-numba"]
if find_spec("numba") is not None:
    runs = {name: partial(attention_forward, q, k, v, backend=name) for name in backends}
    measured, rows = seconds(runs, rounds=7), []
    for name, times in measured.items():
        ratio = measured["numpy"][0] / times[0]
        rows.append([name, f"{1e3 * times[0]:.2f}", f"{1e3 * times[3]:.2f}", f"{ratio:.1f}"])
    columns = ["backend", "fastest, ms", "middle, ms", "numpy / this"]
    display(Table("Forward, H = 8, T = 512, on your machine", columns, rows))

# %% [markdown]
# Neither kernel holds weights. `loops` takes one number at a time; `numba` fills wide registers and
# uses all cores, which on a busy machine may be no help at all. For figures worth quoting, other
# libraries and longer texts: `mha-numpy bench` and docs/performance.md.
#
# ## Advantages and disadvantages, with figures
#
# | claim | what we saw |
# |---|---|
# | "H heads are free" | products and params: yes. Weights and exponentials: H times |
# | "higher computational cost" | not of products; measured time grew as heads became narrow |
# | "more memory" | $H T^2$ weights, more than the tokens once T > d_k; none with online softmax |
# | "several relationships at once" | H distributions a query; one head can only mix |
# | "redundant heads" | a quarter of BERT's heads is less than a tenth of its operations |
# | "more heads are better" | up to a point: scores have rank d_k = D / H at most |
#
# ## Exercise: attention in blocks
#
# Write attention for one head, taking `block` keys at a time. Never make an array with T_k columns
# of scores. Among the check's inputs are a last block that is shorter, and scores in the thousands;
# where all numbers are right, it measures how much memory you held (the row "memory").
#
# More of this kind in `mha-numpy exercises`: `cost-table`, the counts of this notebook as a function;
# `decode-step`; and `backward-from-lse`, the way back without stored weights.


# %% tags=["exercise"]
def my_online_attention(q, k, v, block):
    """q (T_q, d_k), k (T_k, d_k), v (T_k, d_v) -> (T_q, d_v): softmax(q k^T / sqrt(d_k)) v.

    The last block is shorter where `block` does not divide T_k. Nothing is hidden. Large scores
    must not overflow, in whichever block they stand.
    """
    ...  # your code


# %% tags=["check"]
check("online-attention", my_online_attention)

# %% tags=["hint"]
# hint("online-attention")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - Params $4D^2$, projections $8BTD^2$, scores and mix $4BT^2D$: none depends on H. They meet at T = 2D.
# - Weights, exponentials and the traffic between the products are $H T^2$. They pass the tokens at
#   T = d_k.
# - Heads are 64 or 128 wide in most known models, so H = D / 64 or D / 128. Narrower: scores of low
#   rank. Fewer: fewer distributions.
# - Online softmax carries $m$, $\ell$, $a$ and corrects by $e^{m - m'}$. Exact, in blocks, without
#   the weights.
#
# **In the code:** `mha_numpy/cost` counts; `mha_numpy/kernels/loops.py` is the online softmax in
# plain loops, `tiled_forward.py` in tiles. Derivation: docs/kernels.md. Figures:
# docs/performance.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.2 and table 1; Kaplan et al. 2020,
# *Scaling Laws for Neural Language Models*, table 1; Milakov and Gimelshein 2018, *Online normalizer
# calculation for softmax*; Dao et al. 2022, *FlashAttention*, section 3.1; Bhojanapalli et al. 2020, *Low-Rank
# Bottleneck in Multi-head Attention Models*; Michel et al. 2019, *Are Sixteen Heads Really Better than
# One?*, section 4; Sanh et al. 2019, *DistilBERT*.
#
# **Next:** [13, bridges](22_bridges.ipynb).
