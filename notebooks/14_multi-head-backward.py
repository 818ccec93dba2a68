# %% [markdown]
# # 14 · Multi-head backward
#
# In notebook 12 we went back through attention itself. The parts around it look harmless: a few matrix products, and a
# split and a merge that only move numbers. But many mistakes in them are silent. Here is one, with the right shape and
# no error:

# %% tags=["hide-input"]
from functools import partial

import numpy as np

from mha_numpy import (
    MultiHeadAttention,
    MultiHeadParams,
    attention_backward,
    compare,
    gradcheck,
    linear_backward,
    linear_forward,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    split_heads,
    trace,
)
from mha_numpy.show.pictures import backward_film, matrices
from mha_numpy.teach.exercises import check, hint

# %%
layer = MultiHeadAttention(8, 2, rng=3)  # random params
z, d_z = np.random.default_rng(0).normal(size=(2, 7, 4, 8))
layer(z)
layer.backward(d_z)
right, wrong = layer.grads["w_q"], layer.grads["w_q"].T
both = {"d_w_q": right, "d_w_q, transposed by mistake": wrong}
matrices(both, title="Random params")

# %% [markdown]
# Nothing would stop you from training with the wrong one.
#
# **By the end you can** write the backward pass of every part around attention, and find the first wrong array when one
# fails.
#
# ## The road back
#
# $$x \to \text{projected} \to q, k, v \to \text{heads} \to \text{merged} \to \text{out}$$
#
# The first arrow multiplies by `w_q`, `w_k` and `w_v`. Then come the split, attention and the merge, and the last arrow
# multiplies by `w_o`. The backward pass visits the same places from right to left. `d_a` is the gradient of the loss
# with respect to `a`, written $\bar a$ in formulas, and it has the shape of `a`.
#
# The table follows the backward pass, with the step numbers of our code. Step 1 is the same for k and v.
#
# | forward | backward |
# |---|---|
# | 4. `out = merged @ w_o + b_o` | `d_merged`, `d_w_o`, `d_b_o` |
# | 4. `merged = merge_heads(heads)` | `d_heads = split_heads(d_merged)` |
# | 3. `heads = attention(q, k, v)` | `d_q`, `d_k`, `d_v`: notebook 12 |
# | 1. `q = split_heads(q_projected)` | `d_q_projected = merge_heads(d_q)` |
# | 1. `q_projected = x @ w_q + b_q` | `d_w_q`, `d_b_q`, and q's share of `d_x` |
# | 0. one `x` for all three | `d_x` = via q + via k + via v |
#
# (Step 2 is the rotation of notebook 19, off here.) Only two things are new: the linear map, and an input that is used
# three times.
#
# ## A linear map, by hand
#
# Take two tokens, (1, 2) and (3, 4), and $w = (1, 10)^\top$. The map turns each token into one number.
#
# > **Predict first.** The upstream gradient is 1 for the first token and 2 for the second. $w_0$ touches *both*
# > outputs: how fast does the loss grow with it? And what is the gradient of the second token?

# %%
x = np.array([[[1.0, 2.0], [3.0, 4.0]]])  # (B=1, T=2, I=2)
w, b = np.array([[1.0], [10.0]]), np.zeros(1)  # (I=2, O=1)
d_out = np.array([[[1.0], [2.0]]])
out, cache = linear_forward(x, w, b)
grads = linear_backward(d_out, cache)
tokens = {"x": x[0], "d_out": d_out[0], "d_x": grads.d_x[0]}
title = "Rows of x, d_out and d_x are tokens"
matrices(tokens | {"d_w": grads.d_w, "d_b": grads.d_b}, title=title)

# %% [markdown]
# <details><summary>Answer</summary>
#
# $\bar w_0 = 1 \cdot 1 + 2 \cdot 3 = 7$: each use of $w_0$ adds the upstream gradient times the number that $w_0$ was
# multiplied by. The gradient of a token is its upstream gradient times (1, 10), so it's (2, 20) for the second.
#
# </details>
#
# ## Why sums?
#
# The same $w$ serves every token of every sequence, so it is used B·T times. Suppose each token had *its own copy*
# instead. Then each copy is used once, and there is nothing to sum:
#
# $$\mathrm{out}_{bto} = \sum_i x_{bti}\, w^{(bt)}_{io}, \qquad
# \bar w^{(bt)}_{io} = x_{bti}\; \overline{\mathrm{out}}_{bto}$$
#
# > **Predict first.** Now we tie all copies together again. How do you get the gradient of the one shared $w$ from
# > those of the copies?

# %%
B, T, n_in, n_out = 3, 4, 5, 2
rng = np.random.default_rng(0)
x = rng.normal(size=(B, T, n_in))
w = rng.normal(size=(n_in, n_out))
d_out = rng.normal(size=(B, T, n_out))
d_copies = np.einsum("bti,bto->btio", x, d_out)  # one per token
out, cache = linear_forward(x, w, np.zeros(n_out))
of_library = linear_backward(d_out, cache)._asdict()
mine = {
    "d_x": np.einsum("bto,io->bti", d_out, w),
    "d_w": np.einsum("bti,bto->io", x, d_out),
    "d_b": np.einsum("bto->o", d_out),
    "sum of copies": d_copies.sum(axis=(0, 1)),
}
compare(mine, of_library | {"sum of copies": of_library["d_w"]})

# %% [markdown]
# <details><summary>Answer</summary>
#
# Add them up: a step of $w$ moves all copies at once, and small changes of the loss add. It's a sum, not a mean. If the
# loss is a mean over tokens, then 1/(B·T) is already in `d_out` and must not come in twice.
#
# </details>
#
# The same cell computes the gradients by **exchanging letters**: forward is `bti,io->bto`, so `bto,io->bti` gives `d_x`
# and `bti,bto->io` gives `d_w`. Letters that the result doesn't have are summed.
#
# The split and the merge only move numbers: each is the other's backward.
#
# ## The whole way, step by step
#
# We take B = 7 sequences, T = 4 tokens, D = 5, and H = 2 heads of width 3, so H·d = 6. No two sizes are equal, so in a
# projection no wrong transpose can hide. (Inside attention only numbers tell.) Params and `d_out` are
# random, and no bias is zero.

# %%
B, T, D, H, d = 7, 4, 5, 2, 3
rng = np.random.default_rng(1)
inward = [(D, H * d), (H * d,)]  # w_q and b_q; the same for k and v
shapes = [*inward, *inward, *inward, (H * d, D), (D,)]
arrays = [0.5 * rng.normal(size=shape) for shape in shapes]
params = MultiHeadParams(*arrays)
x, d_out = rng.normal(size=(2, B, T, D))
forward = partial(multi_head_attention_forward, num_heads=H)
backward = multi_head_attention_backward

with trace() as full:
    out, cache = forward(x, params=params)
    right = backward(d_out, cache)

# %% [markdown]
# **4.** Back through $w_o$, then split into heads. **3.** Back through attention. **1.** Merge q, k and v, then go back
# through each projection, which returns the gradients of its params and a share of the gradient of x. **0.** x was used
# three times, so it collects all three shares:

# %%
d_merged = d_out @ params.w_o.T  # (B, T, H*d)
d_w_o = np.einsum("btm,bto->mo", full["merged"], d_out)  # (H*d, D)
d_heads = split_heads(d_merged, H)  # (B, H, T, d)
d_q, d_k, d_v, *_ = attention_backward(d_heads, cache.attention)
mine = {"w_o": d_w_o, "b_o": d_out.sum(axis=(0, 1))}
projected, via = {}, {}
for s, d_s in {"q": d_q, "k": d_k, "v": d_v}.items():
    g = projected[s] = merge_heads(d_s)  # (B, T, H*d)
    mine[f"w_{s}"] = np.einsum("bti,bto->io", x, g)  # (D, H*d)
    mine[f"b_{s}"] = g.sum(axis=(0, 1))  # (H*d,)
    via[s] = g @ getattr(params, f"w_{s}").T  # (B, T, D)
mine["d_x"] = d_x = via["q"] + via["k"] + via["v"]
compare(mine, right.d_params._asdict() | {"d_x": right.d_x_q})

# %% [markdown]
# That's the whole backward pass, and the library agrees. Let's check both against slopes, measured without backward:

# %%
gradcheck(forward, backward, {"x_q": x, "params": params})

# %% [markdown]
# Here is the way via k as a film, with each gradient next to its array. One panel deceives you: `d_b_k` looks like any
# other, because each panel is shaded by its own largest number.

# %%
from mha_numpy.core import step

names = "out merged w_o b_o heads k k_projected w_k b_k x_k".split()
with trace() as via_k:
    for s in full:
        if s.name.removeprefix("d_") in names:
            step(s.name, s.array, s.axes, s.equation)
backward_film(via_k, note="Random params.")

# %% [markdown]
# ## Three branches
#
# x reaches the loss in three ways: it asks, it is matched, and it is mixed. To tell them apart, we pass x as three
# inputs. Each gradient then treats **the other two as constant**.

# %%
_, cache_3 = forward(x, x, x, params=params)
three = backward(d_out, cache_3)
apart = {"q": three.d_x_q, "k": three.d_x_k, "v": three.d_x_v}
print(compare(via, apart))
shares = {f"via {s}": g[0] for s, g in via.items()}
title = "Random params. Sequence 0: three shares, and their sum"
matrices(shares | {"d_x": d_x[0]}, title=title)

# %% [markdown]
# > **Predict first.** Suppose you return only the branch via q. The shape is right. Are the gradients of the *params*
# > wrong too?
#
# <details><summary>Answer</summary>
#
# No, because their gradients were computed before `d_x`, and without it. The *layer below* suffers, since it gets a
# wrong upstream gradient. A test that looks only at params notices nothing.
#
# </details>
#
# In cross-attention (notebook 15), keys and values come from a second sequence, the *source*. Then x has one branch and
# the source has two, so the library returns `d_x_q`, and `d_x_k` with both shares.
#
# ## Gradients of the params
#
# Block h of the columns of $w_q$ belongs only to head h, and so does block h of its gradient. For $w_o$ the blocks are
# rows. And $b_v$? Here the weights of each row sum to 1, so $b_v$ is added to every mean unchanged. Its gradient is therefore
# that of $b_o$, sent back through $w_o$.

# %%
grads, block = right.d_params, slice(d, 2 * d)  # head 1's block
of_head_1 = {
    "w_q": np.einsum("bti,btd->id", x, d_q[:, 1]),
    "w_o": np.einsum("btd,bto->do", full["heads"][:, 1], d_out),
}
expected = {"w_q": grads.w_q[:, block], "w_o": grads.w_o[block]}
of_head_1["b_v"] = mine["b_o"] @ params.w_o.T
compare(of_head_1, expected | {"b_v": grads.b_v})

# %% [markdown]
# ### The gradient of the key bias is 0
#
# $b_k$ adds $q_i \cdot b_k / \sqrt{d_k}$ to every score of query i, the same number along the whole row. Softmax
# doesn't see a constant, so no output depends on $b_k$. (Rotated keys, softcap and extra keys break this:
# docs/multi-head.md.)
#
# > **Predict first.** In floating point, backward's number a and the measured slope n are 0 only up to rounding. Is the
# > relative error, $|a - n| / \max(|a|, |n|)$, about 0 or about 1?


# %%
def loss_with(change):
    moved = params._replace(b_k=params.b_k + change)
    return (forward(x, params=moved)[0] * d_out).sum()


i = abs(grads.b_k).argmax()
h = 1e-5 * np.eye(H * d)[i]  # one number of b_k moves
a, n = grads.b_k[i], (loss_with(h) - loss_with(-h)) / 2e-5
error = abs(a - n) / max(abs(a), abs(n))
print(f"a = {a:.0e}, n = {n:.0e}, relative error {error:.2f}")
for name in ("b_q", "b_k", "b_v", "b_o"):
    largest = abs(getattr(grads, name)).max()
    print(f"largest gradient of {name}: {largest:.0e}")
moved = params._replace(b_k=params.b_k + 100)
change = abs(forward(x, params=moved)[0] - out).max()
print(f"b_k + 100 changes the output by {change:.0e}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# About 1. Not a single digit agrees, and yet both are right. So measure errors against the largest gradient of the
# whole set, as `gradcheck` did above.
#
# </details>
#
# ## A batch is a sum
#
# Sequences don't see each other. For a given `d_out`, the gradients of the params are sums over sequences, while those
# of the inputs stay separate. That's why a layer *adds* to its `grads` in each `backward`, until you call `zero_grads`.
# A batch that is too large for memory can go through in pieces:

# %%
layer = MultiHeadAttention(D, H, head_dim=d, rng=0)
layer.params.update(params._asdict())
for piece in (slice(0, 1), slice(1, B)):  # one sequence, then six
    layer(x[piece])
    layer.backward(d_out[piece])
compare(layer.grads, right.d_params._asdict())

# %% [markdown]
# ## What mistakes look like
#
# > **Predict first.** The cell below makes six mistakes. Which ones does the shape give away? In which is every number
# > off by the same factor?

# %%
d_w_q, d_b_q, per_token = grads.w_q, grads.b_q, projected["q"]
unmerged = full["heads"].reshape(B, T, H * d)
bad_w_o = np.einsum("btm,bto->mo", unmerged, d_out)
one_w_q = x[-1].T @ per_token[-1]
mistakes = {
    "d_x: via v left out": (via["q"] + via["k"], d_x),
    "d_w_q: transposed": (d_w_q.T, d_w_q),
    "d_w_q: mean over the batch": (d_w_q / B, d_w_q),
    "d_w_q: only the last sequence": (one_w_q, d_w_q),
    "d_b_q: summed over B only": (per_token.sum(axis=0), d_b_q),
    "d_w_o: from heads not merged": (bad_w_o, d_w_o),
}
for name, (wrong, expected) in mistakes.items():
    print(f"{name}\n    {compare(wrong, expected).rows[0].finding}")

# %% [markdown]
# The shape gives away two, and the factor 1/7 one. The other three show no pattern.
#
# | finding | look for |
# |---|---|
# | last two axes swapped | `x.T @ d` written as `d.T @ x` |
# | a different number of axes | a missing sum over B or T |
# | each is 1/B, or 1/(B·T), of the expected number | a mean instead of a sum |
# | all differ, no factor | a branch or a sequence left out, a wrong split or merge |
#
# The shapes helped because D = 5 and H·d = 6. At the top of this notebook both were 8, and the transposed one was
# silent. So choose sizes that all differ.
#
# ### Find the first wrong array
#
# One wrong array makes everything after it wrong, so look for the *first* array that differs from the reference. In the
# next film we split `d_merged` without the transpose:

# %%
with trace() as wrong:
    step("d_out", d_out, "B T_q D_out")
    step("d_merged", d_merged, "B T_q H*d_v", "d_out @ w_o.T")
    badly_split = d_merged.reshape(B, H, T, d)
    step("d_heads", badly_split, "B H T_q d_v", "d_merged.reshape")
    attention_backward(badly_split, cache.attention)
backward_film(wrong, reference=full, note="Random params.")

# %% [markdown]
# `d_merged` is right and `d_heads` isn't, so the mistake is between the two. All the code after it is right.
#
# ## Exercise: the linear map
#
# Write the backward pass of `out = x @ w + b`. The check compares numbers, then differentiates forward numerically.
#
# To practise more, look in `mha-numpy exercises`: `multi-head-backward` is the whole way, `layer-norm-backward` another
# part, and `museum-one-token` a bug that shipped.


# %% tags=["exercise"]
def my_linear_backward(d_out, x, w):
    """d_out (B, T, O), x (B, T, I), w (I, O) -> d_x (B, T, I), d_w
    (I, O), d_b (O,).
    """
    ...  # your code


# %% tags=["check"]
check("linear-backward", my_linear_backward)

# %% tags=["hint"]
# hint("linear-backward")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - `d_x = d_out @ w.T`, `d_w = x.T @ d_out`, `d_b = d_out`, the last two *summed over B and T*, because each param is
#   used B·T times. A mean belongs to the loss and arrives in `d_out`.
# - Self-attention's input has three branches, and `d_x` is their sum.
# - Each head's block of the params gets its gradient from that head. Here the key bias has gradient 0.
# - Use sizes that all differ, biases that aren't zero and a random `d_out`, and look for the first array that differs.
#
# **In the code:** `mha_numpy/core/linear.py`, `projection.py` and `multihead.py`: backward visits forward's step
# numbers in reverse. Derivation: docs/multi-head.md.
#
# **Reference:** Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 6.5 (back-propagation); Vaswani et al.
# 2017, *Attention Is All You Need*, section 3.2.2; CS231n, *Gradient checks*, on relative errors.
#
# **Next:** [15, cross-attention](15_cross-attention.ipynb).
