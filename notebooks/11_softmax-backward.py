# %% [markdown]
# # 11 · Softmax backward
#
# Below, eight rows of scores learn to choose: row i should give its weight to value 7 - i. We train them four times
# from the same random scores, each time with a different formula for the gradient. One formula is right, and the other
# three are common mistakes.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    causal_mask,
    compare,
    gradcheck,
    softmax_backward,
    softmax_forward,
)
from mha_numpy.show.pictures import line_chart, matrices
from mha_numpy.teach.exercises import check, hint


# %%
def row_sum(x):
    return x.sum(axis=-1, keepdims=True)


def row_mean(x):
    return x.mean(axis=-1, keepdims=True)


rules = {
    "right": lambda g, p: p * (g - row_sum(g * p)),
    "diagonal only": lambda g, p: p * (1 - p) * g,
    "no mean": lambda g, p: p * g,
    "plain mean": lambda g, p: p * (g - row_mean(g)),
}


def losses(rule, seed=0, steps=60):
    scores, v = np.random.default_rng(seed).normal(size=(2, 8, 8))
    found = []
    for _ in range(steps):
        weights, _ = softmax_forward(scores)
        error = weights @ v - v[::-1]
        found.append((error**2).sum() / 2)
        d_weights = error @ v.T
        scores = scores - rule(d_weights, weights)
    return np.array(found)


curves = {name: losses(rule) for name, rule in rules.items()}
ends = {  # after 60 steps, from 20 different random scores
    name: np.array([losses(rule, seed)[-1] for seed in range(20)])
    for name, rule in rules.items()
}
for name, end in ends.items():
    better = (end < ends["right"]).sum()
    print(f"{name}: better than the right one in {better} of 20")
looks = {"x_label": "steps", "y_label": "loss", "log_y": True}
line_chart(np.arange(60), curves, title="Four gradients", **looks)

# %% [markdown]
# All four losses fall. Two of the wrong formulas are even faster than the right one, here and from most of 20 random
# scores. (From the others, they get stuck.) **A falling loss proves nothing about a gradient.**
#
# **By the end you can** derive the two lines of softmax's backward pass, say what they mean, and recognise the usual
# mistakes.
#
# ## The derivative of one row, step by step
#
# With $Z = \sum_l e^{s_l}$, a weight is a quotient, $p_i = e^{s_i} / Z$. Let's move one score $s_j$. The numerator
# reacts only if it belongs to that score ($\delta_{ij}$ is 1 for $i = j$, else 0), but the denominator always reacts.
# The quotient rule gives
#
# $$\frac{\partial p_i}{\partial s_j}
# = \frac{\delta_{ij}\, e^{s_i}\, Z - e^{s_i}\, e^{s_j}}{Z^2}
# = p_i\,(\delta_{ij} - p_j)$$
#
# The derivatives for all i and j form a matrix, the *Jacobian* of the row:
#
# $$J = \mathrm{diag}(p) - p\,p^\top$$
#
# > **Predict first.** A row has the weights 0.1, 0.2, 0.3, 0.4. What are $J_{00}$ and $J_{03}$? And what does row 0 of
# > J sum to?
#
# <details><summary>Answer</summary>
#
# $J_{00} = 0.1 - 0.01 = 0.09$ and $J_{03} = -0.04$. The row sums to 0. If you raise a score, its own weight grows (on
# the diagonal), and all the others pay for it.
#
# </details>


# %%
def jacobian(p):
    return np.diag(p) - np.outer(p, p)


s = np.log([1.0, 2.0, 3.0, 4.0])  # e^s = 1, 2, 3, 4 of a sum of 10
p, _ = softmax_forward(s)
J = jacobian(p)
panels = {"diag(p)": np.diag(p), "p p^T": np.outer(p, p), "J": J}
matrices(panels, title="The Jacobian of one row")

# %% [markdown]
# We can also measure J, with no derivation at all. Column j says what happens when only $s_j$ moves a little. We move
# it by $\pm h$ and divide by 2h (notebook 13 explains how exact this is):

# %%
h = 1e-5 * np.eye(4)  # row j moves score j
up, down = softmax_forward(s + h)[0], softmax_forward(s - h)[0]
measured = (up - down).T / 2e-5
panels = {
    "measured": measured,
    "formula": J,
    "difference": measured - J,
}
matrices(panels, shared=False, title="J, column by column")

# %% [markdown]
# ## What kind of matrix is J?
#
# **Columns sum to 0**, because the weights sum to 1 before and after. **Rows sum to 0**, because softmax is shift
# invariant (notebook 07): if all scores move by the same amount, no weight moves. And if we multiply J by a vector v
# from both sides, we get the variance of v when entry j is drawn with probability $p_j$:
#
# $$v^\top J\, v = \sum_j p_j v_j^2 - \Big(\sum_j p_j v_j\Big)^2 = \mathrm{Var}_p(v) \ge 0$$
#
# For T keys that all have some weight, it's 0 only if all entries of v are equal. So J loses one direction, that of a
# constant, and its rank is T - 1. J can't amplify either, because no eigenvalue is larger than the largest sum of
# absolute values in a row:
#
# $$p_i(1 - p_i) + \sum_{j \ne i} p_i\,p_j = 2\,p_i\,(1 - p_i) \le \tfrac12$$
#
# > **Predict first.** So softmax at least halves the norm of a gradient. Which of these rows of weights lets most of it
# > through: (1/4, 1/4, 1/4, 1/4), (1/2, 1/2, 0, 0) or (1, 0, 0, 0)?
#
# <details><summary>Answer</summary>
#
# (1/2, 1/2, 0, 0) lets the most through: two keys are level, and the bound of 1/2 is reached. For equal weights the
# largest eigenvalue is 1/4. For (1, 0, 0, 0) it is 0, and that's **saturation**. The picture shows J as the scores
# grow.
#
# </details>


# %%
def largest(J):
    return f"largest eigenvalue {np.linalg.eigvalsh(J).max():.4f}"


for row in ([1 / 4] * 4, [1 / 2, 1 / 2, 0, 0], [1, 0, 0, 0]):
    print(row, largest(jacobian(row)))
panels = {}
for factor in (0, 1, 4, 16, 64):
    J = jacobian(softmax_forward(factor * s)[0])
    print(f"{factor:2} s:", largest(J))
    panels[f"{factor} s"] = J
matrices(panels, title="J for larger and larger scores")

# %% [markdown]
# ## Multiplying without building
#
# The backward pass doesn't need J itself. It gets the *upstream gradient* $g_i = \partial L / \partial p_i$, which is
# `d_weights` in the code, and must return $\bar s_j = \partial L / \partial s_j$, which is `d_scores`:
#
# $$\bar s_j = \sum_i g_i\, p_i\, (\delta_{ij} - p_j)
# = g_j\, p_j - p_j \sum_i g_i\, p_i = p_j \Big( g_j - \sum_i g_i\, p_i \Big)$$
#
# The sum has no j in it, so it is *one number per row*. Here are the two lines:


# %%
def pull_back(g, p):
    """(T_q, T_k) and (T_q, T_k) -> d_scores (T_q, T_k)."""
    mean = (g * p).sum(axis=-1, keepdims=True)
    return p * (g - mean)


rng = np.random.default_rng(0)
weights, cache = softmax_forward(rng.normal(size=(5, 7)))
d_weights = rng.normal(size=(5, 7))
with_J = [jacobian(weights[i]) @ d_weights[i] for i in range(5)]
found = {
    "with J": np.array(with_J),
    "without J": pull_back(d_weights, weights),
}
library = softmax_backward(d_weights, cache).d_scores
compare(found, dict.fromkeys(found, library))

# %% [markdown]
# > **Predict first.** A layer has 12 heads, 1024 queries and 1024 keys, in float32. How much memory do its weights
# > take? And how much would all the Jacobians take?
#
# <details><summary>Answer</summary>
#
# The weights take 12 · 1024² · 4 bytes, about 50 MB. *Each row* has its own Jacobian of 1024² numbers, so together they
# take about 52 GB. A row needs about 4 T² operations with J, and 4 T without.
#
# </details>
#
# ## What it means
#
# The sum $\sum_i g_i p_i$ is the *mean of g under p*, that is, what the row gets now, on average. The gradient of a
# score is how much better its key is than that, times the weight that the key has:
#
# $$\bar s_j = \underbrace{p_j}_{\text{its weight}}
# \big(\underbrace{g_j - \mathbb{E}_p[g]}_{\text{better than average?}}\big)$$
#
# > **Predict first.** p = (0.1, 0.2, 0.3, 0.4) and g = (4, -2, 3, 0). What is the mean? Suppose we want to raise L.
# > Which key's score should grow most? Is it the one with the largest g?
#
# <details><summary>Answer</summary>
#
# The mean is 0.9. Key 2 gains most. Key 0 has the largest g, but key 2 has three times its weight. Key 3 has g = 0 and
# loses, because that is below the average. A key without weight can't gain at all, however large its g.
#
# </details>

# %%
g = np.array([4.0, -2.0, 3.0, 0.0])
mean = np.sum(g * p)
panels = {
    "p": p,
    "g": g,
    "g - mean": g - mean,
    "d_scores": p * (g - mean),
}
keys = [f"key {j}" for j in range(4)]
title = f"The mean is {mean:.1f}"
matrices(panels, shared=False, column_labels=keys, title=title)

# %% [markdown]
# ## Rows of d_scores sum to 0, columns don't
#
# > **Predict first.** What does a row of `d_scores` sum to? And what does a column sum to (one key, all queries)?
#
# <details><summary>Answer</summary>
#
# A row sums to $\sum_j p_j g_j - \sum_i g_i p_i = 0$, because the weights don't react if all its scores move together.
# A column can sum to anything, because all queries may agree that a key should have more weight.
#
# </details>

# %%
sums = library.sum(axis=-1)
print(f"sums of the rows: at most {np.abs(sums).max():.0e} from 0")
panels = {"d_scores": library}
panels["sums of the columns"] = library.sum(axis=0, keepdims=True)
matrices(panels, title="Random weights and upstream gradient")

# %% [markdown]
# ## Hidden cells
#
# A hidden cell has $p_j = 0$, so the formula makes its gradient 0 and needs no mask. There is one exception.
#
# > **Predict first.** Something has put a NaN into `d_weights`, in a cell that is hidden from query 1. Which cells of
# > `d_scores` does it reach?
#
# <details><summary>Answer</summary>
#
# It reaches all of row 1, because 0 · NaN is NaN, and the sum carries it through the whole row. That's why the library
# *selects* the visible cells with `where`.
#
# </details>

# %%
scores, g = rng.normal(size=(2, 4, 4))
weights, cache = softmax_forward(scores, mask=causal_mask(4))
g[1, 3] = np.nan  # hidden from query 1
panels = {
    "d_weights": g,
    "formula alone": pull_back(g, weights),
    "softmax_backward": softmax_backward(g, cache).d_scores,
}
matrices(panels, title="A NaN that nobody may see")

# %% [markdown]
# ## Which test catches which mistake?
#
# Here are nine wrong formulas whose results have the right shape, and four tests to catch them. Do rows sum to 0? Are
# hidden cells 0? Are the numbers right for a random upstream gradient? And are they right for an upstream gradient of
# *ones*, as when the loss is `weights.sum()`?
#
# > **Predict first.** Which test catches them all? And what is the true gradient of the sum of all weights?
#
# <details><summary>Answer</summary>
#
# Only the third does, which compares numbers for a random upstream gradient. The weights of a row sum to 1 whatever the
# scores are, so the true gradient for ones is 0. Six mistakes also return 0 there, even "all zeros", which computes
# nothing. "Divided by B" passes all the cheap tests.
#
# </details>


# %%
def column_sum(x):
    return x.sum(axis=-2, keepdims=True)


rules |= {
    "column mean": lambda g, p: p * (g - column_sum(g * p)),
    "no factor p": lambda g, p: g - row_sum(g * p),
    "no p at all": lambda g, p: g - row_mean(g),
    "divided by B": lambda g, p: rules["right"](g, p) / len(g),
    "wrong sign": lambda g, p: -rules["right"](g, p),
    "all zeros": lambda g, p: np.zeros_like(p),
}
mask = causal_mask(4, 5, q_offset=1)
p, _ = softmax_forward(rng.normal(size=(3, 4, 5)), mask=mask)
g = rng.normal(size=(3, 4, 5))
right, ones = rules["right"](g, p), np.ones_like(g)
caught = []
for rule in rules.values():
    found = rule(g, p)
    # what is 0 if the backward passes
    faults = (
        row_sum(found),
        found * ~mask,
        found - right,
        rule(ones, p),
    )
    caught.append([np.abs(fault).max() > 1e-9 for fault in faults])
tests = ["row sums", "hidden cells", "random g", "g of ones"]
labels = {
    "row_labels": list(rules),
    "column_labels": tests,
    "meaning": ("caught", "passes"),
    "title": "Ten backwards, four tests",
}
matrices({"caught": np.array(caught)}, **labels)

# %% [markdown]
# ## With cross-entropy: p - y
#
# Suppose a model classifies with softmax, and its loss is $L = -\log p_y$ (*cross-entropy*), where y is the right
# class. Then $g_y = -1/p_y$, and all other $g_j$ are 0. The row mean is $g_y\,p_y = -1$, so
#
# $$\bar s_j = p_j\,(g_j + 1) = \begin{cases} p_j & j \ne y \\ p_y - 1 & j = y \end{cases}
# \qquad\text{that is}\qquad \bar s = p - \text{onehot}(y)$$

# %%
onehot = np.eye(5)[[2, 0, 3]]  # the right class of three rows


def loss_forward(scores):
    weights, cache = softmax_forward(scores)
    # -log p_y = lse - s_y
    return cache.lse - (scores * onehot).sum(axis=-1), weights


def loss_backward(d_loss, p):
    return (d_loss[:, None] * (p - onehot),)


scores = rng.normal(size=(3, 5))
gradcheck(loss_forward, loss_backward, {"scores": scores})

# %% [markdown]
# > **Predict first.** A saturated softmax passes no gradient. So does a classifier that is certain and *wrong* learn
# > nothing?
#
# <details><summary>Answer</summary>
#
# No, it learns at full strength, because $p_y - 1$ goes to -1 as $p_y \to 0$: the upstream $1/p_y$ grows just as $p_y$
# shrinks. Inside attention nothing grows to match, so there saturation does stop the gradient (notebook 06).
#
# </details>
#
# ## Exercise: softmax backward
#
# Write the two lines, without J, for any number of leading axes. The check tries hidden cells, a row that sees nothing,
# and a random upstream gradient. First it looks for what every right answer has (rows sum to 0, hidden cells have no
# gradient). Then it compares numbers, and then it differentiates softmax numerically.
#
# To practise more, look in `mha-numpy exercises`: `museum-jacobian` is a bug that shipped.


# %% tags=["exercise"]
def my_softmax_backward(d_weights, weights):
    """d_weights, weights (..., T_q, T_k) -> d_scores (..., T_q,
    T_k), along the last axis.

    A hidden cell has weight 0, and so has every cell of a row that
    sees nothing. Their gradient is 0, whatever is in d_weights
    there.
    """
    ...  # your code


# %% tags=["check"]
check("softmax-backward", my_softmax_backward)

# %% tags=["hint"]
# hint("softmax-backward")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now say which of the four formulas is right, and name the test that shows it. Backward is $p\,(g - \sum
# g\,p)$: how much better a key is than the average of its row, times its weight. It needs no Jacobian, and a saturated
# row passes nothing. Rows of `d_scores` sum to 0 and hidden cells are 0, but only numbers with a random upstream
# gradient catch every mistake. With cross-entropy, the same formula gives p - y.
#
# **In the code:** `softmax_backward` in `mha_numpy/core/softmax.py`. **Derivation:** docs/softmax.md.
#
# **Reference:** Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 6.2.2.3, for softmax with
# cross-entropy.
#
# **Next:** [12, attention backward](12_attention-backward.ipynb).
