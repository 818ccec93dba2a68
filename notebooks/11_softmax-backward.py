# %% [markdown]
# # 11 · Softmax backward
#
# Eight rows of scores learn to choose: row i shall give its weight to value 7 - i. Each of the four runs below starts
# from the same random scores and follows a gradient. One gradient is right. The other three are famous mistakes.

# %%
import numpy as np

from mha_numpy import causal_mask, compare, gradcheck, softmax_backward, softmax_forward
from mha_numpy.show.pictures import line_chart, matrices
from mha_numpy.teach.exercises import check, hint

# %%
rules = {
    "right": lambda g, p: p * (g - (g * p).sum(-1, keepdims=True)),
    "diagonal only": lambda g, p: p * (1 - p) * g,
    "row mean left out": lambda g, p: p * g,
    "mean not weighted": lambda g, p: p * (g - g.mean(-1, keepdims=True)),
}


def losses(rule, steps=60):
    scores, v = np.random.default_rng(0).normal(size=(2, 8, 8))
    found = []
    for _ in range(steps):
        weights, _ = softmax_forward(scores)
        error = weights @ v - v[::-1]
        found.append((error**2).sum() / 2)
        scores = scores - rule(error @ v.T, weights)  # error @ v.T is d_weights
    return np.array(found)


curves = {name: losses(rule) for name, rule in rules.items()}
looks = {"x_label": "steps", "y_label": "loss", "log_y": True}
line_chart(np.arange(60), curves, title="Four gradients", **looks)

# %% [markdown]
# All four losses fall, and on this easy task two of the wrong ones fall faster than the right one. **A falling loss
# proves nothing about a gradient.**
#
# **What you can do afterwards:** you can derive the two lines of softmax's backward, say what they mean, and tell them
# from their usual mistakes.
#
# ## The derivative of one row, step by step
#
# With $Z = \sum_l e^{s_l}$ a weight is a quotient, $p_i = e^{s_i} / Z$. Move one score $s_j$. The numerator reacts only
# if it is the same one ($\delta_{ij}$ is 1 for $i = j$, else 0). The denominator always reacts. The quotient rule
# gives
#
# $$\frac{\partial p_i}{\partial s_j}
# = \frac{\delta_{ij}\, e^{s_i}\, Z - e^{s_i}\, e^{s_j}}{Z^2}
# = p_i\,(\delta_{ij} - p_j)$$
#
# All i and j together are a matrix, the Jacobian of the row:
#
# $$J = \mathrm{diag}(p) - p\,p^\top$$
#
# > **Predict first.** A row has the weights 0.1, 0.2, 0.3, 0.4. What are $J_{00}$ and $J_{03}$? What does row 0 of J sum
# > to?
#
# <details><summary>Answer</summary>
#
# $J_{00} = 0.1 - 0.01 = 0.09$ and $J_{03} = -0.04$. The row sums to 0. Raise a score, and its own weight grows (the
# diagonal); all the others pay for it.
#
# </details>

# %%
s = np.log([1.0, 2.0, 3.0, 4.0])  # e^s = 1, 2, 3, 4 of a sum of 10
p = softmax_forward(s)[0]
J = np.diag(p) - np.outer(p, p)
matrices({"diag(p)": np.diag(p), "p p^T": np.outer(p, p), "J": J}, title="The Jacobian of one row")

# %% [markdown]
# This can be measured with no derivation at all. Column j says what happens when $s_j$ alone moves a little. We move
# it by $\pm h$ and divide by 2h (notebook 13 explains how exact this is):

# %%
h = 1e-5 * np.eye(4)  # row j moves score j
measured = (softmax_forward(s + h)[0] - softmax_forward(s - h)[0]).T / 2e-5
panels = {"measured": measured, "formula": J, "difference": measured - J}
matrices(panels, shared=False, title="J, column by column")

# %% [markdown]
# ## What kind of matrix is J?
#
# **Columns sum to 0**, since the weights sum to 1 before and after. **Rows sum to 0**, since softmax is shift
# invariant (notebook 07): if all scores move by the same amount, no weight moves. Multiplied from both sides, J gives a
# variance, that of v if entry j is drawn with probability $p_j$:
#
# $$v^\top J\, v = \sum_j p_j v_j^2 - \Big(\sum_j p_j v_j\Big)^2 = \mathrm{Var}_p(v) \ge 0$$
#
# It is 0 only if all visible entries are equal. So J loses one direction, the constant, and no other: its rank is T - 1.
# Nor can J amplify. No eigenvalue is larger than the largest sum of absolute values in a row:
#
# $$p_i(1 - p_i) + \sum_{j \ne i} p_i\,p_j = 2\,p_i\,(1 - p_i) \le \tfrac12$$
#
# > **Predict first.** So softmax at least halves the norm of a gradient. For which of these weights does most come
# > through: (1/4, 1/4, 1/4, 1/4), (1/2, 1/2, 0, 0) or (1, 0, 0, 0)?
#
# <details><summary>Answer</summary>
#
# Most comes through for (1/2, 1/2, 0, 0), where the bound of 1/2 is reached: two keys are level. For equal weights
# the largest eigenvalue is 1/4. For (1, 0, 0, 0) it is 0: that is **saturation**. The picture shows J as the scores grow.
#
# </details>

# %%
grown = {f"{factor} s": softmax_forward(factor * s)[0] for factor in (0, 1, 4, 16, 64)}
for name, row in grown.items():
    largest = np.linalg.eigvalsh(np.diag(row) - np.outer(row, row)).max()
    print(f"{name:5} largest eigenvalue {largest:.4f}")
jacobians = {name: np.diag(row) - np.outer(row, row) for name, row in grown.items()}
matrices(jacobians, title="J for larger and larger scores")

# %% [markdown]
# ## Multiplying without building
#
# Backward needs no J. It is given $g_i = \partial L / \partial p_i$ (`d_weights`) and wants `d_scores`:
#
# $$\bar s_j = \sum_i g_i\, p_i\, (\delta_{ij} - p_j)
# = g_j\, p_j - p_j \sum_i g_i\, p_i = p_j \Big( g_j - \sum_i g_i\, p_i \Big)$$
#
# The sum has no j in it: it is *one number for each row*. These are the two lines:


# %%
def pull_back(g, p):
    """(T_q, T_k) and (T_q, T_k) -> d_scores (T_q, T_k)."""
    row_mean = (g * p).sum(axis=-1, keepdims=True)
    return p * (g - row_mean)


rng = np.random.default_rng(0)
weights, cache = softmax_forward(rng.normal(size=(5, 7)))  # T_q, T_k
d_weights = rng.normal(size=(5, 7))
pairs = zip(weights, d_weights, strict=True)
with_J = np.stack([(np.diag(row) - np.outer(row, row)) @ g for row, g in pairs])
library = softmax_backward(d_weights, cache).d_scores
found = {"with J": with_J, "without J": pull_back(d_weights, weights)}
compare(found, dict.fromkeys(found, library))

# %% [markdown]
# > **Predict first.** A layer has 12 heads, 1024 queries and 1024 keys, in float32. How much memory do its weights take?
# > And how much would all Jacobians take?
#
# <details><summary>Answer</summary>
#
# The weights take 12 · 1024² · 4 bytes, about 50 MB. There is one Jacobian of 1024² numbers for *each row*: about 52 GB.
# In operations it is about 4 T² for each row with J, and 4 T without.
#
# </details>
#
# ## What it means
#
# $\sum_i g_i p_i$ is the *mean of g under p*: what the row gets now, on average. The gradient of a score is how much
# its key is better than that, times the weight that it has:
#
# $$\bar s_j = \underbrace{p_j}_{\text{its weight}}
# \big(\underbrace{g_j - \mathbb{E}_p[g]}_{\text{better than average?}}\big)$$
#
# > **Predict first.** p = (0.1, 0.2, 0.3, 0.4) and g = (4, -2, 3, 0). What is the mean? L shall be raised: which key's
# > score grows most? Is it the one with the largest g?
#
# <details><summary>Answer</summary>
#
# The mean is 0.9. Key 2 gains most, although key 0 has the largest g: key 2 has three times its weight. Key 3 has g = 0
# and loses, since it is below the average. A key without weight cannot gain, however good it would be.
#
# </details>

# %%
g = np.array([4.0, -2.0, 3.0, 0.0])
mean = np.sum(g * p)
panels = {"p": p, "g": g, "g - mean": g - mean, "d_scores": p * (g - mean)}
labels = {"column_labels": [f"key {j}" for j in range(4)], "title": f"The mean is {mean:.1f}"}
matrices(panels, shared=False, **labels)

# %% [markdown]
# ## Rows of d_scores sum to 0. Columns do not
#
# > **Predict first.** What does a row of `d_scores` sum to, and what does a column sum to (one key, all queries)?
#
# <details><summary>Answer</summary>
#
# A row sums to $\sum_j p_j g_j - \sum_i g_i p_i = 0$: shift invariance once more. A column may sum to anything, since
# all queries may agree that a key should have more weight.
#
# </details>

# %%
sums = {"sums of the columns": library.sum(axis=0, keepdims=True)}
print("largest sum of a row, but for its sign:", np.abs(library.sum(axis=-1)).max())
matrices({"d_scores": library} | sums, title="Random weights and upstream gradient")

# %% [markdown]
# ## Hidden cells
#
# A hidden cell has $p_j = 0$, so the formula makes its gradient 0 and needs no mask. There is one exception.
#
# > **Predict first.** Something put a NaN into `d_weights`, in a cell that is hidden from query 1. Which cells of
# > `d_scores` does it reach?
#
# <details><summary>Answer</summary>
#
# 0 · NaN is NaN, and the sum carries it through the whole row. The library therefore *selects* the visible cells with
# `where`.
#
# </details>

# %%
scores, g = rng.normal(size=(2, 4, 4))
weights, cache = softmax_forward(scores, mask=causal_mask(4))
g[1, 3] = np.nan  # hidden from query 1
panels = {"d_weights": g, "formula alone": pull_back(g, weights)}
panels["softmax_backward"] = softmax_backward(g, cache).d_scores
matrices(panels, title="A NaN that nobody may see")

# %% [markdown]
# ## Which test finds which mistake?
#
# Nine wrong lines have the right shape. Four tests shall find them: rows sum to 0; hidden cells are 0; the numbers are
# right for a random upstream gradient; the numbers are right for an upstream gradient of *ones*, as in `out.sum()`.
#
# > **Predict first.** Which test finds all? And what is the true gradient of the sum of all weights?
#
# <details><summary>Answer</summary>
#
# Only numbers, with a random upstream gradient, find all. The weights of a row sum to 1 whatever the scores are, so
# the true gradient for ones is 0. Six mistakes also return 0 there, even "never computed". "Divided by B" passes all
# the cheap tests.
#
# </details>

# %%
rules |= {
    "mean over queries": lambda g, p: p * (g - (g * p).sum(-2, keepdims=True)),
    "factor p left out": lambda g, p: g - (g * p).sum(-1, keepdims=True),
    "both p left out": lambda g, p: g - g.mean(-1, keepdims=True),
    "divided by B": lambda g, p: rules["right"](g, p) / len(g),
    "wrong sign": lambda g, p: -rules["right"](g, p),
    "never computed": lambda g, p: np.zeros_like(p),
}
mask = causal_mask(4, 5, q_offset=1)
p, g = softmax_forward(rng.normal(size=(3, 4, 5)), mask=mask)[0], rng.normal(size=(3, 4, 5))
right, ones = rules["right"](g, p), np.ones_like(g)
misses = []  # each of them is 0 where a backward passes
for rule in rules.values():
    found = rule(g, p)
    misses.append((found.sum(-1), np.where(mask, 0, found), found - right, rule(ones, p)))
caught = np.array([[np.abs(miss).max() > 1e-9 for miss in row] for row in misses])
tests = ["row sums", "hidden cells", "random upstream", "ones upstream"]
labels = {"row_labels": list(rules), "column_labels": tests, "meaning": ("found", "passes")}
matrices({"found": caught}, **labels, title="Ten backwards, four tests")

# %% [markdown]
# ## With cross-entropy: p - y
#
# Classify with softmax and the loss $L = -\log p_y$, where y is the right class. Then $g_y = -1/p_y$, and all other
# $g_j$ are 0. The row mean is $g_y\,p_y = -1$, so
#
# $$\bar s_j = p_j\,(g_j + 1) = \begin{cases} p_j & j \ne y \\ p_y - 1 & j = y \end{cases}
# \qquad\text{that is}\qquad \bar s = p - \text{onehot}(y)$$

# %%
onehot = np.eye(5)[[2, 0, 3]]  # the right class of three rows


def loss_forward(scores):
    weights, cache = softmax_forward(scores)
    return cache.lse - (scores * onehot).sum(axis=-1), weights  # -log p_y = lse - s_y


def loss_backward(d_loss, p):
    return (d_loss[:, None] * (p - onehot),)


gradcheck(loss_forward, loss_backward, {"scores": rng.normal(size=(3, 5))})

# %% [markdown]
# > **Predict first.** A saturated softmax passes no gradient. Does a classifier that is sure and *wrong* learn nothing?
#
# <details><summary>Answer</summary>
#
# It learns at full strength: for $p_y \to 0$, $p_y - 1$ goes to -1. The upstream $1/p_y$ grows just as $p_y$ shrinks.
# Inside attention nothing grows to match, so there saturation does stop the gradient (notebook 06).
#
# </details>
#
# ## Exercise: softmax backward
#
# Write the two lines, without J, for any number of leading axes. The check has hidden cells, a row that sees nothing,
# and a random upstream gradient. It asks what every right answer has (rows sum to 0, hidden cells have no gradient),
# then compares numbers, then differentiates softmax numerically.
#
# One more of this kind in `mha-numpy exercises`: `museum-jacobian`, a bug that shipped.


# %% tags=["exercise"]
def my_softmax_backward(d_weights, weights):
    """d_weights, weights (..., T_q, T_k) -> d_scores (..., T_q, T_k), along the last axis.

    A hidden cell has weight 0, and so have all cells of a row that sees nothing: their gradient is
    0, whatever d_weights holds there.
    """
    ...  # your code


# %% tags=["check"]
check("softmax-backward", my_softmax_backward)

# %% tags=["hint"]
# hint("softmax-backward")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now say which of the four gradients is right, and name the test that shows it. Backward is
# $p\,(g - \sum g\,p)$: is a key better than the average of its row, times its weight. It needs no Jacobian. A saturated
# row passes nothing. Rows of `d_scores` sum to 0 and hidden cells are 0, but only numbers with a random upstream
# gradient find every mistake. With cross-entropy the same formula gives p - y.
#
# **In the code:** `softmax_backward` in `mha_numpy/core/softmax.py`. **Derivation:** docs/softmax.md.
#
# **Reference:** Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 6.2.2.3, for softmax with
# cross-entropy.
#
# **Next:** [12, attention backward](12_attention-backward.ipynb).
