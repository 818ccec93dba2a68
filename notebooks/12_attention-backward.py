# %% [markdown]
# # 12 · Attention backward
#
# Here are eight random queries, keys and values. The output should become the values in reverse order, but we say so
# only with a loss. `attention_backward` computes the gradient of this loss, and we move q and k against it, 30 times:

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
panels = {}
for number in range(31):
    heads, cache = attention_forward(q, k, v)
    if number in (0, 30):
        panels[f"after {number} steps"] = cache.weights
    # the gradient of L = half the sum of all squared errors
    d_heads = heads - v[::-1]
    grads = attention_backward(d_heads, cache)
    q, k = q - grads.d_q, k - grads.d_k
matrices(panels, title="The weights: row = query, column = key")

# %% [markdown]
# The antidiagonal appears, so each output takes its value from the other end. Nobody wrote that down. The gradient led
# there. (With other seeds a row or two may still look elsewhere after 30 steps.)
#
# **By the end you can** derive each line of attention's backward pass from the matching forward line, in at most two
# lines of algebra, and tell which line is to blame when a backward pass is wrong.
#
# ## Gradients of what?
#
# A gradient always belongs to **one number**, the loss L. Attention sits somewhere in the middle of a model. From
# everything that follows, it needs only one array, the *upstream gradient* `d_heads`: for each number of the output, it
# says how fast L grows with it. Every `d_x` has the shape of `x`, because it has one slope for each number of `x`.
#
# From here on, the upstream gradient is random. (Careful: the field also uses $d_k$ and $d_v$ for the widths of a head.
# In code cells, `d_k` and `d_v` are gradients. In shapes, they are widths.)
#
# Forward for one head has three steps. They are numbered as in `mha_numpy/core/attention.py`, where the steps in
# between belong to options that we don't use here.

# %%
rng = np.random.default_rng(8)
q = rng.normal(size=(2, 5))  # 2 queries of width 5
k = rng.normal(size=(3, 5))  # 3 keys of width 5
v = rng.normal(size=(3, 4))  # 3 values of width 4
d_heads = rng.normal(size=(2, 4))  # the upstream gradient
scale = 1 / np.sqrt(5)

scores = scale * q @ k.T  # 1. match: (2, 3)
powers = np.exp(scores)
total = powers.sum(axis=-1, keepdims=True)
weights = powers / total  # 4. softmax: (2, 3)
heads = weights @ v  # 6. mix: (2, 4)
panels = {
    "1. scores": scores,
    "4. weights": weights,
    "6. heads": heads,
}
matrices(panels, title="Forward, random")

# %% [markdown]
# Backward visits the same steps in reverse order: 6, 4, 1.
#
# ## 6. heads = weights @ v
#
# Let's write the product with its indices, i for the query, j for the key and c for the column.
#
# $$\text{heads}_{ic} = \sum_j w_{ij}\, v_{jc}$$
#
# To find the gradient of one number, ask where it turns up in the output, and add up what comes back from all these
# places. The weight $w_{ij}$ turns up in row i, in every column c, each time multiplied by $v_{jc}$. The value $v_{jc}$
# turns up for every query i, multiplied by $w_{ij}$:
#
# $$\bar w_{ij} = \sum_c \bar h_{ic}\, v_{jc} \qquad\qquad \bar v_{jc} = \sum_i w_{ij}\, \bar h_{ic}$$
#
# A bar is what the code calls `d_`, so $\bar w$ is `d_weights` and $\bar h$ is `d_heads`. **We sum over each index that
# the array doesn't have.** `einsum` is this sentence as code: it sums over every index that is missing after the arrow.
#
# > **Predict first.** Write both as a product with `@` and `.T`. The shapes are enough: (2, 4) and (3, 4) must give (2,
# > 3); (2, 3) and (2, 4) must give (3, 4).
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
# "The gradient has the shape of its array, so there is only one way to multiply." You will hear this often. Is it true?
# Let's multiply the two arrays, transposed or not and in either order, and count the products that have the shape of
# `d_v`.
#
# > **Predict first.** How many fit for 3 queries, 4 keys and width 5? How many for 4 queries, 4 keys and width 5, as in
# > self-attention? And how many if all three are 4?
#
# <details><summary>Answer</summary>
#
# One, two and eight of them fit, and each time only one is right. In self-attention, `weights @ d_heads` runs as well
# as `weights.T @ d_heads`. So **derive, and test on sizes that differ**.
#
# </details>


# %%
def ways(a, b, shape):
    """All products of a and b, transposed or not, of this shape."""
    pairs = [(x, y) for x in (a, a.T) for y in (b, b.T)]
    pairs += [(y, x) for x, y in pairs]
    fit = [x @ y for x, y in pairs if x.shape[1] == y.shape[0]]
    return [product for product in fit if product.shape == shape]


for T_q, T_k, width in ((3, 4, 5), (4, 4, 5), (4, 4, 4)):
    a = rng.normal(size=(T_q, T_k))
    b = rng.normal(size=(T_q, width))
    fit = ways(a, b, (T_k, width))
    right = sum(np.allclose(product, a.T @ b) for product in fit)
    print(f"T_q={T_q} T_k={T_k} width={width}:", end=" ")
    print(f"{len(fit)} fit, {right} right")

# %% [markdown]
# ## 4. weights = softmax(scores)
#
# Notebook 11 derived the formula. Subtract the mean of the row, *weighted by the weights*, and then multiply by the
# weight.
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
row_mean = (weights * d_weights).sum(axis=-1, keepdims=True)
d_scores = weights * (d_weights - row_mean)
assert np.allclose(d_scores.sum(axis=-1), 0)
panels = {
    "d_weights": d_weights,
    "row_mean": row_mean,
    "d_scores": d_scores,
}
matrices(panels, shared=False, title="Step 4, backward")

# %% [markdown]
# ## 1. scores = scale · q @ k.T
#
# Here are the indices again, with a for the feature:
#
# $$s_{ij} = \text{scale} \sum_a q_{ia}\, k_{ja}$$
#
# $q_{ia}$ turns up in row i, once for each key j, and $k_{ja}$ turns up in column j, once for each query i. Each time
# the scale multiplies it, so the scale appears in both gradients:
#
# $$\bar q_{ia} = \text{scale} \sum_j \bar s_{ij}\, k_{ja} \qquad\qquad \bar k_{ja} = \text{scale} \sum_i \bar s_{ij}\, q_{ia}$$

# %%
d_q = scale * d_scores @ k  # the sum over j
d_k = scale * d_scores.T @ q  # the sum over i
library = attention_backward(d_heads, attention_forward(q, k, v)[1])
compare((d_q, d_k, d_v), library)

# %% [markdown]
# That's the whole backward: four products (forward had two), one softmax, and the scale twice. `compare` can say more
# than right or wrong. Let's leave out the scale in `d_k`:

# %%
compare((d_q, d_scores.T @ q, d_v), library)

# %% [markdown]
# The factor 2.23607 is $\sqrt{5}$, the square root of the width. If all numbers are wrong by the same factor, look for
# a constant, not for a transpose.
#
# ## Forward and backward side by side
#
# Now the library runs two random heads. `trace` records every array of both passes, and the film shows each gradient
# next to its array, in the order of backward:

# %%
Q = rng.normal(size=(1, 2, 3, 2))  # one sequence, two heads
K = rng.normal(size=(1, 2, 4, 2))
V = rng.normal(size=(1, 2, 4, 5))
with trace() as both:
    out, cache = attention_forward(Q, K, V)
    attention_backward(rng.normal(size=out.shape), cache)
backward_film(both)

# %% [markdown]
# On the page below, point at a cell, forward or backward, and the cells that it was computed from light up.

# %%
stepper(both)

# %% [markdown]
# ## A mistake, and where to look
#
# Suppose your backward subtracts the plain sum of each row, where softmax needs the mean weighted by the weights.
# `step` gives each of your arrays its name in the library, so the film can compare them.
#
# > **Predict first.** Which of your four gradients are wrong? And which line should you look at?
#
# <details><summary>Answer</summary>
#
# `d_scores`, `d_q` and `d_k` differ. But the lines of `d_q` and `d_k` are right. They only pass the error on. **Look at
# the first array that differs, in the order of backward.** It has the strong frame.
#
# </details>

# %%
from mha_numpy.core import step

with trace() as right:
    attention_backward(d_heads, attention_forward(q, k, v)[1])
d_w = d_heads @ v.T
d_s = weights * (d_w - d_w.sum(axis=-1, keepdims=True))
d_q, d_k = scale * d_s @ k, scale * d_s.T @ q
how = "weights * (d_weights - d_weights.sum(-1, keepdims=True))"
with trace() as mine:
    step("d_weights", d_w, "T_q T_k", "d_heads @ v.T")
    step("d_scores", d_s, "T_q T_k", how)
    step("d_q", d_q, "T_q d_k", "scale * d_scores @ k")
    step("d_k", d_k, "T_k d_k", "scale * d_scores.T @ q")
backward_film(mine, reference=right)

# %% [markdown]
# ## Hidden cells
#
# A mask replaces a score by $-\infty$. The score that was there has no influence, so its weight and its gradient are
# exactly 0. The formula of step 4 multiplies by the weight, so it doesn't need its own mask.
#
# > **Predict first.** Under a causal mask, which value is read by only one query? And why is row 0 of `d_scores` all 0?
#
# <details><summary>Answer</summary>
#
# It's the last value, because only the last query sees it: `d_v[3] = weights[3, 3] * d_heads[3]`. Query 0 sees only key
# 0, and its weight is 1 whatever the score is.
#
# </details>

# %%
q_4, k_4, v_4, g_4 = rng.normal(size=(4, 4, 3))
with trace() as masked:
    _, cache = attention_forward(q_4, k_4, v_4, is_causal=True)
    attention_backward(g_4, cache)
names = ("weights", "d_scores", "d_v")
panels = {name: masked[name] for name in names}
matrices(panels, title="Causal, random")

# %% [markdown]
# ## Backward without stored weights
#
# Forward keeps the weights for backward, which takes T_q · T_k numbers per head. But we can compute each row again from
# the scores and one number, the log of the row's sum of powers (notebook 07):
#
# $$\text{lse}_i = \log \sum_j e^{s_{ij}} \quad\Longrightarrow\quad w_{ij} = e^{s_{ij} - \text{lse}_i}$$
#
# The row mean of step 4 seems to need a whole row at once. But insert $\bar w$ from step 6, and swap the sums:
#
# $$\sum_j \bar w_{ij} w_{ij} = \sum_c \bar h_{ic} \sum_j w_{ij} v_{jc} = \sum_c \bar h_{ic}\, \text{heads}_{ic}$$
#
# So we get the row mean, `D` below, from the output, before we look at any key. Then we can read the keys in small
# blocks, here at most two at a time:

# %%
lse = np.log(total)
D = (d_heads * heads).sum(axis=-1, keepdims=True)
d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
for two in (slice(0, 2), slice(2, 3)):
    # (2, 2): never more than this
    w = np.exp(scale * q @ k[two].T - lse)
    d_s = w * (d_heads @ v[two].T - D)
    d_q += scale * d_s @ k[two]  # both blocks add their share
    d_k[two] = scale * d_s.T @ q
    d_v[two] = w.T @ d_heads
compare((d_q, d_k, d_v), library)

# %% [markdown]
# FlashAttention's backward works like this (Dao et al. 2022), and so do the kernels of this library. The price is that
# they compute the scores a second time.
#
# ## Exercise: backward for many heads
#
# Write the whole backward, for arrays with batch and heads in front. Careful: `.T` of an array with four axes reverses
# *all* of them; `swapaxes(-1, -2)` swaps the last two. The weights are those after the mask.
#
# Three things are true of every right answer, and the check tests them first: keys that no query sees have no gradient,
# `d_k` sums to 0 over the keys, and `d_q * q` and `d_k * k` have the same sum. Then it compares numbers, and finally it
# differentiates forward numerically.
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
# You have derived the gradient that led to the antidiagonal. Backward visits forward's steps in reverse. In a product,
# put the gradient in place of the result, and sum over the indices that the array doesn't have. Shapes guide you as
# long as all sizes differ. Fix a wrong backward pass where it first differs. And with lse and D, backward needs no
# stored weights.
#
# **In the code:** `attention_backward` and `attention_steps_backward` in `mha_numpy/core/attention.py`; the derivation
# with all options: docs/attention.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, eq. 1; Giles 2008, *Collected matrix derivative
# results for forward and reverse mode algorithmic differentiation*; Dao et al. 2022, *FlashAttention*, appendix B.2.
#
# **Next:** [13, is this gradient right?](13_is-this-gradient-right.ipynb)
