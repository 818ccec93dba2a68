# %% [markdown]
# # 12 · Attention backward
#
# Here are eight random queries, keys and values. We want the output to be the values in reverse order, and we say so
# only with a loss. `attention_backward` computes the gradient, and 30 times we move q and k a little against it:

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    attention_backward,
    attention_forward,
    compare,
    trace,
)
from mha_numpy.show.page import stepper
from mha_numpy.show.pictures import backward_film, matrices
from mha_numpy.teach.exercises import check, hint

# %%
rng = np.random.default_rng(8)
# random; that's all we start from
q, k, v = rng.normal(size=(3, 8, 8))
seen = {}
for number in range(31):
    heads, cache = attention_forward(q, k, v)
    if number in (0, 5, 30):
        seen[f"after {number} steps"] = cache.weights
    # the gradient of L = 1/2 of all squared errors
    d_heads = heads - v[::-1]
    grads = attention_backward(d_heads, cache)
    q, k = q - grads.d_q, k - grads.d_k
matrices(seen, title="The weights: row = query, column = key")

# %% [markdown]
# The antidiagonal appears. Nobody wrote it; the gradient found it.
#
# **What you can do afterwards:** you can derive each line of this backward from its line of forward, in at most two
# lines of algebra, and see which line is to blame when a backward is wrong.
#
# ## Gradients of what?
#
# A gradient is always that of **one number**, the loss L. Attention sits somewhere in the middle of a model. From
# everything that follows it needs one array, the *upstream gradient* `d_heads`: for each number of its output, how fast
# L grows with it. Every `d_x` has the shape of `x`, because it has one slope for each number of `x`.
#
# Here the upstream gradient is random. (By an old habit of the field, `d_k` and `d_v` are also widths of a head. In
# code cells they are gradients; in shapes they are widths.)
#
# Forward for one head has three lines. They are numbered as in `mha_numpy/core/attention.py`, where the lines in
# between belong to options that are off here.

# %%
rng = np.random.default_rng(8)
q = rng.normal(size=(3, 2))  # 3 queries of width 2
# 4 keys, 4 values of width 5
k, v = (rng.normal(size=(4, 2)), rng.normal(size=(4, 5)))
d_heads = rng.normal(size=(3, 5))  # the upstream gradient
scale = 1 / np.sqrt(2)

scores = scale * q @ k.T  # 1. match: (3, 4)
powers = np.exp(scores)
# 4. softmax: (3, 4)
weights = powers / powers.sum(axis=-1, keepdims=True)
heads = weights @ v  # 6. mix: (3, 5)
matrices(
    {"1. scores": scores, "4. weights": weights, "6. heads": heads},
    title="Forward, random",
)

# %% [markdown]
# Backward visits the same lines, last to first: 6, 4, 1.
#
# ## 6. heads = weights @ v
#
# Let's write the product with its indices: i for the query, j for the key, c for the column.
#
# $$\text{heads}_{ic} = \sum_j w_{ij}\, v_{jc}$$
#
# Nudge one number, ask where it turns up, and add up over all these places. $w_{ij}$ turns up in row i of the output,
# in every column c, each time multiplied by $v_{jc}$. $v_{jc}$ turns up for every query i, multiplied by $w_{ij}$:
#
# $$\bar w_{ij} = \sum_c \bar h_{ic}\, v_{jc} \qquad\qquad \bar v_{jc} = \sum_i w_{ij}\, \bar h_{ic}$$
#
# A bar is what the code calls `d_`, so $\bar w$ is `d_weights` and $\bar h$ is `d_heads`. **We sum over each index that
# the array doesn't have.** `einsum` is this sentence as code.
#
# > **Predict first.** Write both as a product with `@` and `.T`. The shapes are enough: (3, 5) and (4, 5) must give (3,
# > 4); (3, 4) and (3, 5) must give (4, 5).
#
# <details><summary>Answer</summary>
#
# `d_weights = d_heads @ v.T` and `d_v = weights.T @ d_heads`. The next cell checks both.
#
# </details>

# %%
d_weights = np.einsum("ic,jc->ij", d_heads, v)
d_v = np.einsum("ij,ic->jc", weights, d_heads)
assert np.allclose(d_weights, d_heads @ v.T)
assert np.allclose(d_v, weights.T @ d_heads)
panels = {"d_heads": d_heads, "d_weights": d_weights, "d_v": d_v}
matrices(panels, shared=False, title="Step 6, backward")

# %% [markdown]
# ## A rule of thumb, and where it fails
#
# "The gradient has the shape of its array, so there is only one way to multiply." Is that so? Let's count all products
# of the two arrays, transposed or not and in either order, that have the shape of `d_v`.
#
# > **Predict first.** How many fit for 3 queries, 4 keys and width 5? How many for 4 queries, 4 keys and width 5, as in
# > self-attention? And how many if all three are 4?
#
# <details><summary>Answer</summary>
#
# One, two and eight of them fit, and each time one of them is right. In self-attention, `weights @ d_heads` runs as
# well as `weights.T @ d_heads`. So **derive, and test on sizes that differ**.
#
# </details>


# %%
def ways(a, b, wanted):
    """Return each product of a and b, transposed or not, in either
    order, of the wanted shape.
    """
    orders = [
        pair
        for x in (a, a.T)
        for y in (b, b.T)
        for pair in ((x, y), (y, x))
    ]
    fitting = [x @ y for x, y in orders if x.shape[1] == y.shape[0]]
    return [
        product for product in fitting if product.shape == wanted
    ]


for T_q, T_k, width in ((3, 4, 5), (4, 4, 5), (4, 4, 4)):
    a = rng.normal(size=(T_q, T_k))
    b = rng.normal(size=(T_q, width))
    fitting = ways(a, b, (T_k, width))
    good = sum(np.allclose(product, a.T @ b) for product in fitting)
    print(
        f"T_q={T_q} T_k={T_k} width={width}: {len(fitting)} fit, "
        f"{good} right"
    )

# %% [markdown]
# ## 4. weights = softmax(scores)
#
# Notebook 11 derived this formula: subtract the row's mean, *weighted by the weights*, then multiply by the weight.
#
# $$\bar s_{ij} = w_{ij} \Big(\bar w_{ij} - \sum_l \bar w_{il}\, w_{il}\Big)$$
#
# > **Predict first.** What does each row of `d_scores` sum to? (What happens to the weights if you add the same
# > constant to all scores of a row?)
#
# <details><summary>Answer</summary>
#
# Each row sums to 0. The constant changes no weight, so the slope in this direction is 0. This is the quickest test of
# a softmax backward.
#
# </details>

# %%
# (3, 1)
row_mean = (weights * d_weights).sum(axis=-1, keepdims=True)
d_scores = weights * (d_weights - row_mean)
panels = {
    "d_weights": d_weights,
    "row_mean": row_mean,
    "weights": weights,
    "d_scores": d_scores,
}
assert np.allclose(d_scores.sum(axis=-1), 0)
matrices(panels, shared=False, title="Step 4, backward")

# %% [markdown]
# ## 1. scores = scale · q @ k.T
#
# Here are the indices again, with a for the feature:
#
# $$s_{ij} = \text{scale} \sum_a q_{ia}\, k_{ja}$$
#
# $q_{ia}$ turns up in row i, once for each key j. $k_{ja}$ turns up in column j, once for each query i. The scale
# multiplies every one of these places, so it appears in both gradients:
#
# $$\bar q_{ia} = \text{scale} \sum_j \bar s_{ij}\, k_{ja} \qquad\qquad \bar k_{ja} = \text{scale} \sum_i \bar s_{ij}\, q_{ia}$$

# %%
d_q = scale * d_scores @ k  # the sum over j
d_k = scale * d_scores.T @ q  # the sum over i
library = attention_backward(d_heads, attention_forward(q, k, v)[1])
compare((d_q, d_k, d_v), library)

# %% [markdown]
# That's all of it: four products (forward had two), one softmax, and the scale twice. `compare` can say more than right
# or wrong. Here we leave the scale out in one place:

# %%
compare((d_q, d_scores.T @ q, d_v), library)

# %% [markdown]
# The factor 1.41421 is $\sqrt{2}$, the square root of the width. When all numbers are wrong by one factor, look for a
# constant, not for a transpose.
#
# ## Forward and backward side by side
#
# Now the library runs two random heads. The recorder notes every array of both passes, and the film shows every
# gradient next to its array, in the order of backward:

# %%
Q, K, V = (
    rng.normal(size=(1, 2, T, width))
    for T, width in ((3, 2), (4, 2), (4, 5))
)
with trace() as both:
    attention_backward(
        rng.normal(size=(1, 2, 3, 5)), attention_forward(Q, K, V)[1]
    )
backward_film(both)

# %% [markdown]
# In the next picture you can point at a cell, and the cells that it was computed from light up, forward and backward.

# %%
stepper(both)

# %% [markdown]
# ## A mistake, and where to look
#
# Suppose your backward subtracts the plain sum of each row, where softmax needs the mean weighted by the weights.
# `step` gives each array the name that it has in the library, so the film can show the two side by side.
#
# > **Predict first.** Which of the four gradients are wrong? And which line should you look at?
#
# <details><summary>Answer</summary>
#
# `d_scores`, `d_q` and `d_k` differ. But the lines of `d_q` and `d_k` are right; they only pass the error on. **Look at
# the first array that differs, in the order of backward**, and at no other. It has the strong frame.
#
# </details>

# %%
from mha_numpy.core import step

with trace() as right:
    attention_backward(d_heads, attention_forward(q, k, v)[1])
with trace() as mine:
    d_w = step(
        "d_weights", d_heads @ v.T, "T_q T_k", "d_heads @ v.T"
    )
    d_s = weights * (d_w - d_w.sum(axis=-1, keepdims=True))
    total = "d_weights.sum(axis=-1, keepdims=True)"
    equation = f"weights * (d_weights - {total})"
    step("d_scores", d_s, "T_q T_k", equation)
    step("d_q", scale * d_s @ k, "T_q d_k", "scale * d_scores @ k")
    step(
        "d_k",
        scale * d_s.T @ q,
        "T_k d_k",
        "scale * d_scores.T @ q",
    )
backward_film(mine, reference=right)

# %% [markdown]
# ## Hidden cells
#
# A mask replaces a score by $-\infty$. The score that was there has no influence: its weight is 0 and its gradient is
# exactly 0. The formula of step 4 multiplies by the weight, so it doesn't need its own mask.
#
# > **Predict first.** Under a causal mask, which value does only a single query read? And why is row 0 of `d_scores`
# > all 0?
#
# <details><summary>Answer</summary>
#
# It's the last value, because only the last query sees it: `d_v[3] = weights[3, 3] * d_heads[3]`. Row 0 sees one key,
# and its weight is 1 whatever the score is.
#
# </details>

# %%
q_4, k_4, v_4, g_4 = rng.normal(size=(4, 4, 3))
with trace() as masked:
    attention_backward(
        g_4, attention_forward(q_4, k_4, v_4, is_causal=True)[1]
    )
matrices(
    {name: masked[name] for name in ("weights", "d_scores", "d_v")},
    title="Causal, random",
)

# %% [markdown]
# ## Backward without stored weights
#
# Forward keeps the weights for backward, which takes T_q · T_k numbers per head. But we can compute each row again from
# one number, the log of its sum of powers:
#
# $$\text{lse}_i = \log \sum_j e^{s_{ij}} \quad\Longrightarrow\quad w_{ij} = e^{s_{ij} - \text{lse}_i}$$
#
# The row mean of step 4 seems to need a whole row at once. Put step 6 into it, and exchange the sums:
#
# $$\sum_j \bar w_{ij} w_{ij} = \sum_c \bar h_{ic} \sum_j w_{ij} v_{jc} = \sum_c \bar h_{ic}\, \text{heads}_{ic}$$
#
# So the row mean, `D` below, comes from the output, before we look at any key. Then we can read the keys a few at a
# time. Here it's two at a time:

# %%
lse = np.log(powers.sum(axis=-1, keepdims=True))
D = (d_heads * heads).sum(axis=-1, keepdims=True)
by_block = {
    "d_q": np.zeros_like(q),
    "d_k": np.zeros_like(k),
    "d_v": np.zeros_like(v),
}
for block in (slice(0, 2), slice(2, 4)):
    # (3, 2): never more than this
    w = np.exp(scale * q @ k[block].T - lse)
    d_s = w * (d_heads @ v[block].T - D)
    # every block adds its share
    by_block["d_q"] += scale * d_s @ k[block]
    by_block["d_k"][block] = scale * d_s.T @ q
    by_block["d_v"][block] = w.T @ d_heads
compare(by_block, {"d_q": d_q, "d_k": d_k, "d_v": d_v})

# %% [markdown]
# FlashAttention's backward works like this (Dao et al. 2022), and so do the kernels of this library. The price is that
# they compute the scores a second time.
#
# ## Exercise: backward for many heads
#
# Write the whole backward, for arrays with batch and heads in front. Careful: `.T` of an array with four axes reverses
# *all* of them; `swapaxes(-1, -2)` swaps the last two. The weights are those after the mask.
#
# Three things are true of every right answer, and the check asks for them first: keys that no query sees have no
# gradient; `d_k` sums to 0 over the keys; `d_q * q` and `d_k * k` have the same sum. Then it compares numbers, and then
# it differentiates forward numerically.
#
# To practise more, look in `mha-numpy exercises`: `backward-from-lse` works without the weights, and
# `museum-batch-mean` is a bug that shipped.


# %% tags=["exercise"]
def my_attention_backward(d_heads, q, k, v, weights):
    """Return the gradients d_q, d_k, d_v, each in the shape of its
    array.

    d_heads (B, H, T_q, d_v), q (B, H, T_q, d_k), k (B, H, T_k,
    d_k), v (B, H, T_k, d_v), weights (B, H, T_q, T_k): 0 where a
    cell is hidden, and all along a row that sees nothing.
    """
    ...  # your code


# %% tags=["check"]
check("attention-backward", my_attention_backward)

# %% tags=["hint"]
# hint("attention-backward")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You have derived the gradient that found the antidiagonal. Backward runs forward's lines in reverse. For a product,
# put the gradient in place of the result, and sum over the indices that the array doesn't have. Shapes guide you as
# long as all sizes differ. Fix a wrong backward where it first differs. And with lse and D, backward needs no stored
# weights.
#
# **In the code:** `attention_backward` and `attention_steps_backward` in `mha_numpy/core/attention.py`; the derivation
# with all options: docs/attention.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, eq. 1; Giles 2008, *Collected matrix derivative
# results for forward and reverse mode algorithmic differentiation*; Dao et al. 2022, *FlashAttention*, appendix B.2.
#
# **Next:** [13, is this gradient right?](13_is-this-gradient-right.ipynb)
