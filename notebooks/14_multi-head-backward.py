# %% [markdown]
# # 14 · Multi-head backward
#
# Notebook 12 went back through attention itself. What lies around it looks harmless: a few linear maps and some moves.
# But that's where most mistakes of a first implementation happen, and most of them are silent. Here is one. It has the
# right shape and raises no error:

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    MultiHeadAttention,
    compare,
    gradcheck,
    linear_backward,
    linear_forward,
)
from mha_numpy.show.pictures import backward_film, matrices
from mha_numpy.teach.exercises import check, hint

# %%
layer = MultiHeadAttention(8, 2, rng=3)  # random params
z, d_z = np.random.default_rng(0).normal(size=(2, 7, 4, 8))
layer(z)
layer.backward(d_z)
right, wrong = layer.grads["w_q"], layer.grads["w_q"].T
matrices(
    {"d_w_q": right, "d_w_q, transposed by mistake": wrong},
    title="Random params",
)

# %% [markdown]
# Nothing stops you from training with the wrong one.
#
# **What you can do afterwards:** you can write the backward of every part around attention, and find the first wrong
# array when a backward fails.
#
# ## The road back
#
# $$x \to \text{projected} \to q, k, v \to \text{heads} \to \text{merged} \to \text{out}$$
#
# The first arrow multiplies by `w_q`, `w_k` and `w_v`; then come the split, attention and the merge, and the last arrow
# multiplies by `w_o`. Backward visits the same stations from right to left. `d_a` is the gradient of the loss with
# respect to `a`, written $\bar a$ in formulas, and it has the shape of `a`.
#
# | forward | backward |
# |---|---|
# | 4. `out = merged @ w_o + b_o` | `d_merged`, `d_w_o`, `d_b_o` |
# | 4. `merged = merge_heads(heads)` | `d_heads = split_heads(d_merged)` |
# | 3. `heads = attention(q, k, v)` | `d_q`, `d_k`, `d_v`: notebook 12 |
# | 1. `q = split_heads(q_projected)`, k, v | `d_q_projected = merge_heads(d_q)`, k, v |
# | 1. `q_projected = x @ w_q + b_q`, k, v | `d_w_q`, `d_b_q`, and q's share of `d_x`; k, v |
# | 0. one `x` for all three | `d_x` = via q + via k + via v |
#
# (Step 2 is the rotation of notebook 19, off here.) Only two things are new: the linear map, and an input that is used
# three times.
#
# ## A linear map, by hand
#
# Take two tokens, (1, 2) and (3, 4), and $w = (1, 10)^\top$. Each token gives one number.
#
# > **Predict first.** The upstream gradient is 1 for the first token and 2 for the second. $w_0$ touches *both*
# > outputs: how fast does the loss grow with it? And what is the gradient of the second token?

# %%
x = np.array([[[1.0, 2.0], [3.0, 4.0]]])  # (B=1, T=2, I=2)
w, b = np.array([[1.0], [10.0]]), np.zeros(1)  # (I=2, O=1)
d_out = np.array([[[1.0], [2.0]]])
out, cache = linear_forward(x, w, b)
grads = linear_backward(d_out, cache)
numbers = {
    "x": x[0],
    "d_out": d_out[0],
    "d_x": grads.d_x[0],
    "d_w": grads.d_w,
    "d_b": grads.d_b,
}
matrices(numbers, title="Rows of x, d_out and d_x are tokens")

# %% [markdown]
# <details><summary>Answer</summary>
#
# $\bar w_0 = 1 \cdot 1 + 2 \cdot 3 = 7$. For each use, it adds the upstream gradient times the number that $w_0$ was
# multiplied by. The gradient of a token is its upstream number times (1, 10), so it's (2, 20) for the second.
#
# </details>
#
# ## Why sums?
#
# The same $w$ serves every token of every sequence, so it is used B·T times. Let's take the sharing away, and give each
# token *its own copy*. Then each copy is used once, and there is nothing to sum:
#
# $$\mathrm{out}_{bto} = \sum_i x_{bti}\, w^{(bt)}_{io}, \qquad
# \bar w^{(bt)}_{io} = x_{bti}\; \overline{\mathrm{out}}_{bto}$$
#
# > **Predict first.** Now we tie all copies together again. How do you get the gradient of the one shared $w$ from
# > those of the copies?

# %%
B, T, n_in, n_out = 3, 4, 5, 2
rng = np.random.default_rng(0)
x, w, d_out = (
    rng.normal(size=shape)
    for shape in ((B, T, n_in), (n_in, n_out), (B, T, n_out))
)
# one for each token
d_copies = np.einsum("bti,bto->btio", x, d_out)
out, cache = linear_forward(x, w, np.zeros(n_out))
by_letters = (
    np.einsum("bto,io->bti", d_out, w),  # d_x = d_out @ w.T
    # d_w = (B*T rows of x).T @ (B*T rows of d_out)
    np.einsum("bti,bto->io", x, d_out),
    np.einsum("bto->o", d_out),  # d_b
)
of_library = linear_backward(d_out, cache)
compare(
    {"copies": d_copies.sum(axis=(0, 1)), "letters": by_letters},
    {"copies": of_library.d_w, "letters": tuple(of_library)},
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Add them up: a step of $w$ moves all copies at once, and small changes of the loss add. It's a sum, not a mean. If the
# loss is a mean over tokens, then 1/(B·T) is already in `d_out` and must not come in twice.
#
# </details>
#
# With indices, the gradients of a product need no thought: **exchange the roles of the letters**, and sum over every
# letter that the result doesn't have. The cell above checks that too.
#
# The *moves* carry numbers from place to place, and backward carries the gradients home: split's backward is merge, and
# merge's is split.
#
# ## The whole way, step by step
#
# We take B = 7 sequences, T = 4 tokens, D = 5, and H = 2 heads of width 3, so H·d = 6. No two sizes are equal, so a
# wrong transpose can't hide. Params and `d_out` are random, and no bias is zero.

# %%
from mha_numpy import (
    MultiHeadParams,
    attention_backward,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    split_heads,
    trace,
)

B, T, D, H, d = 7, 4, 5, 2, 3
rng = np.random.default_rng(1)
inward = [(D, H * d), (H * d,)]  # w_q and b_q; the same for k and v
shapes = [*inward, *inward, *inward, (H * d, D), (D,)]
params = MultiHeadParams(
    *(0.5 * rng.normal(size=shape) for shape in shapes)
)
x, d_out = rng.normal(size=(B, T, D)), rng.normal(size=(B, T, D))


def forward(*inputs, params=params):
    return multi_head_attention_forward(
        *inputs, params=params, num_heads=H
    )


with trace() as full:
    out, cache = forward(x)
    right = multi_head_attention_backward(d_out, cache)

# %% [markdown]
# **4.** Back through $w_o$, then split into heads. **3.** Back through attention. **1.** Merge again, then back through
# the projections. Each returns the gradients of its params, and a share of the gradient of x. **0.** One x was three
# inputs, so it collects all three shares:

# %%
d_merged = d_out @ params.w_o.T  # (B, T, H*d)
d_w_o = np.einsum("btm,bto->mo", full["merged"], d_out)  # (H*d, D)
d_heads = split_heads(d_merged, H)  # (B, H, T, d)
d_q, d_k, d_v, *_ = attention_backward(d_heads, cache.attention)
# (B, T, H*d)
projected = {
    "q": merge_heads(d_q),
    "k": merge_heads(d_k),
    "v": merge_heads(d_v),
}
mine = {
    f"w_{s}": np.einsum("bti,bto->io", x, g)
    for s, g in projected.items()
}
mine |= {f"b_{s}": g.sum(axis=(0, 1)) for s, g in projected.items()}
# (B, T, D) each
via = {
    s: g @ getattr(params, f"w_{s}").T for s, g in projected.items()
}
d_x = via["q"] + via["k"] + via["v"]
mine |= {"w_o": d_w_o, "b_o": d_out.sum(axis=(0, 1)), "d_x": d_x}
compare(mine, {"d_x": right.d_x_q, **right.d_params._asdict()})

# %% [markdown]
# That's the whole backward pass. Let's check it against numbers computed without it:

# %%
gradcheck(
    lambda x_q, params: forward(x_q, params=params),
    multi_head_attention_backward,
    {"x_q": x, "params": params},
)

# %% [markdown]
# Here is the way via k as a film, with each gradient next to its array. The two always have the same shape. One panel
# deceives: `d_b_k` looks like any other, because each panel is shaded by its own largest number. We'll come back to it.

# %%
from mha_numpy.core import step

on_the_way = {
    "out",
    "merged",
    "w_o",
    "b_o",
    "heads",
    "k",
    "k_projected",
    "w_k",
    "b_k",
    "x_k",
}
with trace() as via_k:
    for recorded in full:
        if recorded.name.removeprefix("d_") in on_the_way:
            step(
                recorded.name,
                recorded.array,
                recorded.axes,
                recorded.equation,
            )
backward_film(via_k, note="Random params.")

# %% [markdown]
# ## Three branches
#
# x reaches the loss in three ways: it asks, it is matched, and it is mixed. To see only one of them, we **freeze the
# others**. Forward takes three inputs, so we pass it the same x three times.

# %%
_, cache_3 = forward(x, x, x)
three = multi_head_attention_backward(d_out, cache_3)
alone = dict(
    zip(via, (three.d_x_q, three.d_x_k, three.d_x_v), strict=True)
)
print(compare(via, alone))
branches = {f"via {s}": g[0] for s, g in via.items()} | {
    "d_x": d_x[0]
}
matrices(
    branches,
    title="Random params. Sequence 0: three shares, and their sum",
)

# %% [markdown]
# > **Predict first.** Suppose you return only the branch via q. The shape is right. Are the gradients of the *params*
# > wrong too?
#
# <details><summary>Answer</summary>
#
# No, because they were computed before `d_x`, and without it. The *layer below* suffers, since it gets a wrong upstream
# gradient. A test that looks only at params notices nothing.
#
# </details>
#
# In cross-attention, keys and values come from a source. Then x has one branch, and the source has two: the library
# returns `d_x_q`, and `d_x_k` with both shares.
#
# ## Gradients of the params
#
# Block h of the columns of $w_q$ belongs only to head h, and so does block h of its gradient: it's what head h by
# itself would give. For $w_o$ the blocks are rows. And $b_v$? The weights of a row sum to 1, so $b_v$ is added to every
# mean unchanged. Its gradient is therefore that of $b_o$, sent back through $w_o$.

# %%
block = slice(d, 2 * d)  # head 1's
w_q_of_1 = np.einsum("bti,btd->id", x, d_q[:, 1])
w_o_of_1 = np.einsum("btd,bto->do", full["heads"][:, 1], d_out)
expected = {
    "w_q": right.d_params.w_q[:, block],
    "w_o": right.d_params.w_o[block],
}
b_v = mine["b_o"] @ params.w_o.T
compare(
    {"w_q": w_q_of_1, "w_o": w_o_of_1, "b_v": b_v},
    expected | {"b_v": right.d_params.b_v},
)

# %% [markdown]
# ### The key bias has no gradient
#
# $b_k$ adds $q_i \cdot b_k / \sqrt{d_k}$ to every score of query i, the same number along the whole row. Softmax
# doesn't see a constant, so no output depends on $b_k$. (This needs plain scores; with a softcap or rotated keys it
# isn't so: docs/multi-head.md.)
#
# > **Predict first.** The gradient of $b_k$ is about 1e-16, and the measured slope about 1e-11. Both mean 0. What is
# > the relative error $|a - n| / \max(|a|, |n|)$?

# %%
sizes = {
    n: abs(g).max()
    for n, g in right.d_params._asdict().items()
    if n[0] == "b"
}
shifted, _ = forward(
    x, params=params._replace(b_k=params.b_k + 100.0)
)
print({name: f"{size:.1e}" for name, size in sizes.items()})
print(
    "b_k + 100 changes the output by "
    f"{abs(shifted - out).max():.1e}"
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It's about 1: not a single digit agrees, and yet both are right. So measure errors against the largest gradient of the
# whole set, as `gradcheck` does. Above, `b_k` passed.
#
# </details>
#
# ## A batch is a sum
#
# Sequences don't see each other. For a given `d_out`, the gradients of the params are sums over sequences, while those
# of the inputs stay side by side. So a layer *adds* to its `grads` in each `backward`, until `zero_grads`, and you can
# work through a batch that is too large for memory in pieces.

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
# > **Predict first.** For each mistake below: does the shape give it away? Is there one factor between wrong and right?

# %%
w_q, b_q, last = right.d_params.w_q, right.d_params.b_q, B - 1
unmerged = full["heads"].reshape(B, T, H * d)
mistakes = {
    "d_x: via v left out": (via["q"] + via["k"], d_x),
    "d_w_q: transposed": (w_q.T, w_q),
    "d_w_q: mean over the batch": (w_q / B, w_q),
    "d_w_q: only the last sequence": (
        x[last].T @ projected["q"][last],
        w_q,
    ),
    "d_b_q: summed over B only": (projected["q"].sum(axis=0), b_q),
    "d_w_o: from heads not merged": (
        np.einsum("btm,bto->mo", unmerged, d_out),
        d_w_o,
    ),
}
for name, (wrong, expected) in mistakes.items():
    print(f"{name}\n    {compare(wrong, expected).rows[0].finding}")

# %% [markdown]
# | finding | look for |
# |---|---|
# | last two axes swapped | `x.T @ d` written as `d.T @ x` |
# | a different number of axes | a missing sum over B or T |
# | each is 1/B, or 1/(B·T), of the expected number | a mean instead of a sum |
# | all differ, no factor | a branch, a sequence, a move |
#
# Here D = 5 and H·d = 6, so the shape gives the transposed one away. At the top of this notebook both were 8, and the
# mistake was silent. So take sizes that all differ.
#
# ### Find the first wrong array
#
# One wrong array makes everything after it wrong, so look for the *first* array that differs from the reference. Here
# we split `d_merged` without the transpose:

# %%
with trace() as wrong:
    step("d_out", d_out, "B T_q D_out")
    merged_gradient = step(
        "d_merged",
        d_out @ params.w_o.T,
        "B T_q H*d_v",
        "d_out @ w_o.T",
    )
    badly_split = merged_gradient.reshape(B, H, T, d)
    step(
        "d_heads",
        badly_split,
        "B H T_q d_v",
        "d_merged.reshape(B, H, T_q, d_v)",
    )
    attention_backward(badly_split, cache.attention)
backward_film(wrong, reference=full, note="Random params.")

# %% [markdown]
# `d_merged` is right and `d_heads` isn't, so the mistake is between the two. All that follows is wrong through no fault
# of its own.
#
# ## Exercise: the linear map
#
# Write the backward of `out = x @ w + b`. The check compares numbers, and then it differentiates forward numerically.
# The three branches were the exercise of notebook 04.
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
# - A move goes back by the opposite move. Self-attention's input has three branches, and `d_x` is their sum.
# - Head h's params have head h's gradient, block by block. The key bias has gradient 0.
# - Use sizes that all differ, biases that aren't zero and a random `d_out`, and look for the first array that differs.
#
# **In the code:** `mha_numpy/core/linear.py`, `projection.py` and `multihead.py`: backward visits forward's step
# numbers in reverse. Derivation: docs/multi-head.md.
#
# **Reference:** Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 6.5 (back-propagation); Vaswani et al.
# 2017, *Attention Is All You Need*, section 3.2.2; CS231n, *Gradient checks*, on relative errors.
#
# **Next:** [15, cross-attention](15_cross-attention.ipynb).
