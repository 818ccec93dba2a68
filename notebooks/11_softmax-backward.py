# %% [markdown]
# # 11 · Softmax backward
#
# In softmax every weight depends on every score of its row. So its derivative is a matrix per row,
# and its backward is easily copied without being understood. Here it is derived, checked twice,
# drawn, taken apart, and then written in two lines that never build the matrix.
#
# **You will learn**
#
# - the Jacobian of a row, $J = \mathrm{diag}(p) - p\,p^\top$, and why its rows and columns sum to
#   0;
# - how to multiply by it without building it, and what that saves;
# - what the result means: who does better than the average of the row;
# - how each of the usual mistakes shows itself, and why ones as a test gradient show so little;
# - why softmax followed by cross-entropy gives the famous $p - y$.

# %%
from time import perf_counter

import numpy as np

from mha_numpy import causal_mask, compare, gradcheck, softmax_backward, softmax_forward, trace
from mha_numpy.core import step
from mha_numpy.draw import line_chart, matrices
from mha_numpy.exercises import check, hint
from mha_numpy.tables import Table

np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## The derivative of one row, step by step
#
# With $Z = \sum_l e^{s_l}$ a weight is a quotient, $p_i = e^{s_i} / Z$. Move one score $s_j$. The
# numerator reacts only if it is the same one; $\delta_{ij}$ is 1 for $i = j$, else 0. The
# denominator always does.
#
# $$\frac{\partial e^{s_i}}{\partial s_j} = \delta_{ij}\, e^{s_i}, \qquad
# \frac{\partial Z}{\partial s_j} = e^{s_j}$$
#
# The quotient rule, and then each fraction read as a weight again:
#
# $$\frac{\partial p_i}{\partial s_j}
# = \frac{\delta_{ij}\, e^{s_i}\, Z - e^{s_i}\, e^{s_j}}{Z^2}
# = \delta_{ij}\, \frac{e^{s_i}}{Z} - \frac{e^{s_i}}{Z}\,\frac{e^{s_j}}{Z}
# = p_i\,(\delta_{ij} - p_j)$$
#
# All i and j together are a matrix, the Jacobian of the row:
#
# $$J = \mathrm{diag}(p) - p\,p^\top$$
#
# > **Predict first.** A row with the weights 0.1, 0.2, 0.3, 0.4. What are $J_{00}$ and $J_{03}$?
# > What does row 0 of J sum to?

# %%
s = np.log([1.0, 2.0, 3.0, 4.0])  # e^s = 1, 2, 3, 4 of a sum of 10
p = softmax_forward(s)[0]
J = np.diag(p) - np.outer(p, p)
matrices(
    {"diag(p)": np.diag(p), "p p^T": np.outer(p, p), "J": J},
    title="The Jacobian of one row: p = (0.1, 0.2, 0.3, 0.4)",
)

# %% [markdown]
# The diagonal is positive: raise a score and its own weight grows. All the rest is negative: the
# others pay for it.
#
# ## Believe it: column by column
#
# Column j of J says what happens when $s_j$ alone moves. That can be measured, with no derivation
# at all. A *central difference* moves it a little to both sides. A *complex step* moves it by $ih$
# and reads the derivative off the imaginary part; nothing is subtracted, so h can be tiny.
#
# $$\frac{p(s + h e_j) - p(s - h e_j)}{2h}, \qquad \frac{\mathrm{Im}\; p(s + i h e_j)}{h}$$
#
# > **Predict first.** A central difference subtracts two numbers that agree in most digits. With
# > $h = 10^{-5}$, how many of the 16 digits of J will it get right? And a complex step with
# > $h = 10^{-30}$?


# %%
def softmax(s):
    powers = np.exp(s - s.real.max())  # a shift may be any number: the real part will do
    return powers / powers.sum()


unit = np.eye(4)  # row j is e_j
central = np.stack([(softmax(s + 1e-5 * e) - softmax(s - 1e-5 * e)) / 2e-5 for e in unit], axis=1)
stepped = np.stack([softmax(s + 1e-30j * e).imag / 1e-30 for e in unit], axis=1)
lines = []
for j in range(4):
    errors = [np.abs(numeric - J)[:, j].max() for numeric in (central, stepped)]
    lines.append([str(j), *(f"{error:.0e}" for error in errors)])
Table("Largest error of each column of J", ["column", "central difference", "complex step"], lines)

# %% [markdown]
# Both agree with the formula: the central difference to about 11 digits, the complex step to the
# last one.
#
# ## What kind of matrix is J?
#
# > **Predict first.** Two sums can be known without any formula. If a score moves, by how much does
# > the *sum of all weights* change (a column of J)? If *all scores* move by the same amount, how
# > does a weight change (a row of J)?

# %%
print("symmetric:", np.array_equal(J, J.T))
print("largest sum of a column, but for its sign:", np.abs(J.sum(axis=0)).max())
print("largest sum of a row, but for its sign:   ", np.abs(J.sum(axis=1)).max())

# %% [markdown]
# 0, up to rounding.
#
# - **Columns sum to 0**, since the weights sum to 1 before and after: what one gains, others lose.
# - **Rows sum to 0**, since softmax is shift invariant (notebook 07): $J\,(1, 1, 1, 1)^\top = 0$.
#
# J is symmetric, so each follows from the other. Now multiply J by a vector v from both sides:
#
# $$v^\top J\, v = \sum_j p_j v_j^2 - \Big(\sum_j p_j v_j\Big)^2 = \mathrm{Var}_p(v)$$
#
# This is the *variance* of v if its entry j is drawn with probability $p_j$. A variance is never
# negative, and it is 0 only if all (visible) entries are equal. So J is positive semidefinite, and
# only constants are lost.
#
# > **Predict first.** How many of J's four eigenvalues are 0? What is its rank?

# %%
v = np.random.default_rng(0).normal(size=4)
variance = np.sum(p * v**2) - np.sum(p * v) ** 2
print("v^T J v =", v @ J @ v, " variance of v under p:", variance)
eigenvalues, directions = np.linalg.eigh(J)
print("eigenvalues:", np.abs(eigenvalues), " rank:", np.linalg.matrix_rank(J))
print("direction of the first:", directions[:, 0])

# %% [markdown]
# One eigenvalue is 0, with the constant direction, and the rank is T - 1. (Where weights are 0, as
# hidden ones are, the rank is one less than the number of the others.)
#
# How large can an eigenvalue be? No larger than the largest sum of absolute values in a row of J
# (Gershgorin):
#
# $$p_i(1 - p_i) + \sum_{j \ne i} p_i\,p_j = 2\,p_i\,(1 - p_i) \le \tfrac12$$
#
# So softmax never amplifies a gradient: it at least halves its norm. Notebook 06 stood on that.
#
# > **Predict first.** For which weights is the bound reached: `(1/4, 1/4, 1/4, 1/4)`,
# > `(1/2, 1/2, 0, 0)` or `(1, 0, 0, 0)`?

# %%
for row in ([0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [0.97, 0.01, 0.01, 0.01], [1.0, 0, 0, 0]):
    largest = np.linalg.eigvalsh(np.diag(row) - np.outer(row, row)).max()
    print(f"p = {row!s:26} largest eigenvalue {abs(largest):.4f}")

# %% [markdown]
# Softmax listens best when two keys are level, and not at all when one has everything:
# **saturation**. Here is J as the scores of the same row grow:

# %%
grown = {f"{factor} s": softmax(factor * s) for factor in (0, 1, 4, 16, 64)}
matrices(
    {name: np.diag(row) - np.outer(row, row) for name, row in grown.items()},
    title="J for scores 0, 1, 4, 16, 64 times as large",
)

# %% [markdown]
# On the left, $s = 0$: equal weights, $J = \frac1T I - \frac1{T^2}\,\mathbf 1 \mathbf 1^\top$. On
# the right: next to nothing passes, whatever arrives.
#
# And the direction p itself? $J p$ is what the weights do if each score is raised in proportion to
# its weight:

# %%
moved = softmax(s + 0.01 * p) - p
J @ p, moved / 0.01

# %% [markdown]
# The large weights gain, the small ones lose: the row sharpens. $Jp = 0$ only where all non-zero
# weights are equal.
#
# ## Multiplying without building
#
# Backward needs no J. It is given $g_i = \partial L / \partial p_i$ (`d_weights`) and wants
# `d_scores`:
#
# $$\bar s_j = \sum_i g_i\, \frac{\partial p_i}{\partial s_j} = \sum_i g_i\, p_i\, (\delta_{ij} - p_j)
# = g_j\, p_j - p_j \sum_i g_i\, p_i = p_j \Big( g_j - \sum_i g_i\, p_i \Big)$$
#
# The sum has no j in it: it is *one number per row*.


# %%
def pull_back(g, p):
    """(T_q, T_k) and (T_q, T_k) -> d_scores (T_q, T_k)."""
    row_mean = (g * p).sum(axis=-1, keepdims=True)
    step("row_mean", row_mean, "T_q 1", "(d_weights * weights).sum(axis=-1, keepdims=True)")
    return step("d_scores", p * (g - row_mean), "T_q T_k", "weights * (d_weights - row_mean)")


rng = np.random.default_rng(0)
weights, cache = softmax_forward(rng.normal(size=(5, 7)))  # T_q, T_k
d_weights = rng.normal(size=(5, 7))
with trace() as t:
    pull_back(step("d_weights", d_weights, "T_q T_k"), step("weights", weights, "T_q T_k"))
t

# %%
with_J = [
    (np.diag(row) - np.outer(row, row)) @ g for row, g in zip(weights, d_weights, strict=True)
]
library = softmax_backward(d_weights, cache).d_scores
compare(
    {"with J": np.stack(with_J), "without": t["d_scores"]}, {"with J": library, "without": library}
)

# %% [markdown]
# ## What that saves
#
# For a row of T keys, in multiplications, additions and subtractions:
#
# | | with J | without |
# |---|---|---|
# | build J | T² products, T² differences | - |
# | apply | T² products, T (T - 1) sums | 2 T products, T - 1 sums, T differences |
# | numbers in memory, besides p and g | T² | T |
#
# About 4 T² against 4 T. Measured on your machine, for 4 rows (the best of three runs each):


# %%
def with_jacobians(g, p):
    return np.stack([(np.diag(a) - np.outer(a, a)) @ b for a, b in zip(p, g, strict=True)])


def milliseconds(function, T):
    g, p = np.random.default_rng(0).random((2, 4, T))
    runs = []
    for _ in range(3):
        start = perf_counter()
        function(g, p)
        runs.append(1e3 * (perf_counter() - start))
    return min(runs)


# %%
lengths = [64, 128, 256, 512, 1024]
line_chart(
    lengths,
    {
        "with J": np.array([milliseconds(with_jacobians, T) for T in lengths]),
        "without": np.array([milliseconds(pull_back, T) for T in lengths]),
    },
    title="Softmax backward of 4 rows, on this machine",
    x_label="T keys",
    y_label="milliseconds",
    log_x=True,
    log_y=True,
)

# %% [markdown]
# The counts are exact. A time also holds what memory, threads and other programs did, so the curves
# need not follow them closely; the gap they do show.
#
# > **Predict first.** One layer, 12 heads, 1024 queries and keys, in float32. How much memory do
# > all Jacobians take? And the weights?

# %%
H, T = 12, 1024
f"weights {H * T * T * 4 / 1e9:.2f} GB, Jacobians {H * T * T * T * 4 / 1e9:.1f} GB"

# %% [markdown]
# ## What it means
#
# $\sum_i g_i p_i$ is the *mean of g under p*: what the row gets now, on average. A score's gradient
# is how much its key is better than that, times how much weight it has:
#
# $$\bar s_j = \underbrace{p_j}_{\text{its weight}}
# \big(\underbrace{g_j - \mathbb{E}_p[g]}_{\text{better than average?}}\big)$$
#
# Read L for the moment as something to be raised. Then keys above the average gain score, those
# below lose. (With a loss, which is to be lowered, a step of gradient descent goes the other way:
# those above lose.)
#
# > **Predict first.** p = (0.1, 0.2, 0.3, 0.4) and g = (4, -2, 3, 0). What is the mean? Which keys
# > gain, and which gains the most? Is it the one with the largest g?

# %%
g = np.array([4.0, -2.0, 3.0, 0.0])
mean = np.sum(g * p)
matrices(
    {"p": p, "g": g, "g - mean": g - mean, "d_scores": p * (g - mean)},
    shared=False,
    column_labels=[f"key {j}" for j in range(4)],
    title=f"One row; the mean is {mean:.1f}",
)

# %% [markdown]
# Key 2 gains most, although key 0 has the largest g: it has three times the weight. Key 3 has
# $g = 0$ and loses all the same: it is below the average. The factor $p_j$ makes a key that has no
# weight unable to gain, however good it would be: softmax learns about keys that it looks at.
#
# ## Rows of d_scores sum to 0. Columns do not
#
# $$\sum_j \bar s_j = \sum_j p_j g_j - \Big(\sum_j p_j\Big) \sum_i g_i p_i = 0$$
#
# Shift invariance once more: moving the whole row changes nothing, so the derivative along that
# direction is 0.
#
# > **Predict first.** And the columns, one key over all queries?

# %%
d_scores = t["d_scores"]
row_sums = d_scores.sum(axis=-1, keepdims=True)
column_sums = d_scores.sum(axis=0, keepdims=True)
print("largest sum of a row, but for its sign:", np.abs(row_sums).max())
matrices({"d_scores": d_scores, "sums of the columns": column_sums}, title="d_scores, (T_q, T_k)")

# %% [markdown]
# A column has no reason to be 0: all queries may agree that a key should have more weight.
#
# ## Hidden cells
#
# A hidden cell has $p_j = 0$, so the factor makes its gradient 0, *exactly*, and it takes no part
# in the mean either. The formula needs no mask. With one exception:
#
# > **Predict first.** Something upstream put a NaN into `d_weights`, in a cell hidden from query 1.
# > What is 0 · NaN? Which cells of `d_scores` does it reach?

# %%
scores, g = rng.normal(size=(2, 4, 4))
weights, cache = softmax_forward(scores, mask=causal_mask(4))
g[1, 3] = np.nan  # hidden from query 1
matrices(
    {
        "d_weights": g,
        "formula alone": pull_back(g, weights),
        "softmax_backward": softmax_backward(g, cache).d_scores,
    },
    title="A NaN that nobody may see",
)

# %% [markdown]
# 0 · NaN is NaN, and the sum carries it through the row. The library therefore *selects* the
# visible cells before, and after. (A row that sees nothing has weights 0 everywhere, so all its
# gradients are 0.)
#
# ## The mistakes
#
# Seven wrong lines, beside the right one. Each gives the right shape:

# %%
mistakes = {
    "right": lambda g, p: p * (g - (g * p).sum(-1, keepdims=True)),
    "diagonal only": lambda g, p: p * (1 - p) * g,
    "row mean left out": lambda g, p: p * g,
    "mean not weighted": lambda g, p: p * (g - g.mean(-1, keepdims=True)),
    "mean over queries": lambda g, p: p * (g - (g * p).sum(-2, keepdims=True)),
    "factor p left out": lambda g, p: g - (g * p).sum(-1, keepdims=True),
    "both p left out": lambda g, p: g - g.mean(-1, keepdims=True),
    "divided by B": lambda g, p: p * (g - (g * p).sum(-1, keepdims=True)) / len(g),
}
mask = causal_mask(4, 5, q_offset=1)
p, cache = softmax_forward(rng.normal(size=(3, 4, 5)), mask=mask)  # B, T_q, T_k
g = rng.normal(size=(3, 4, 5))

# %% [markdown]
# > **Predict first.** Two cheap tests need no reference: rows sum to 0; hidden cells are 0. For
# > each of the seven: which of the two finds it?

# %%
lines = []
for name, mistake in mistakes.items():
    d_s = mistake(g, p)
    worst = [np.abs(a).max() for a in (d_s.sum(axis=-1), np.where(mask, 0, d_s), d_s.sum(axis=-2))]
    lines.append([name, *(f"{number:.4f}" for number in worst)])
columns = ["mistake", "row sums", "hidden cells", "column sums"]
Table("Largest number, but for its sign: which are 0?", columns, lines)

# %% [markdown]
# The sums of the rows find five, the hidden cells two. "Both p left out" passes the first test,
# "divided by B" passes both. The columns tell nothing: they are not 0 for the right one either, nor
# for the mean over queries, since a column of weights does not sum to 1.
#
# Only a comparison of numbers, or a gradient check, finds the division by B:

# %%
compare({"d_scores": mistakes["divided by B"](g, p)}, softmax_backward(g, cache))

# %% [markdown]
# Each is 1/3 of what was expected: B = 3.
#
# One sequence, right and with three of the mistakes. Only the last one shows itself to the eye, in
# the hidden cells at the upper right:

# %%
shown = ("right", "diagonal only", "mean over queries", "factor p left out")
matrices({name: mistakes[name](g, p)[0] for name in shown}, title="d_scores of one sequence")

# %% [markdown]
# ## Why ones are a bad test
#
# A quick test of a backward sums the output and looks at the gradient: the upstream gradient is
# then all ones.
#
# > **Predict first.** What is the sum of all weights? So what is the true gradient of it?

# %%
more = {
    "wrong sign": lambda g, p: -mistakes["right"](g, p),
    "never computed": lambda g, p: np.zeros_like(p),
}
lines = []
for name, mistake in (mistakes | more).items():
    off = [
        np.abs(mistake(d_w, p) - mistakes["right"](d_w, p)).max() for d_w in (g, np.ones_like(g))
    ]
    lines.append([name, *(f"{number:.4f}" for number in off)])
Table("Largest error", ["mistake", "with random g", "with ones"], lines)

# %% [markdown]
# The weights of a row sum to 1, whatever the scores are. Their sum is a *constant*, so the true
# gradient is 0. Six mistakes make 0 of it too, and look right; even a gradient that was never
# computed does. A constant upstream gradient lies in the one direction that J loses. Draw it at
# random.
#
# ## With cross-entropy: p - y
#
# Classify with softmax and the loss $L = -\log p_y$, where y is the right class. Upstream,
# $g_y = -1/p_y$ and all other $g_j = 0$. The row mean is $g_y\,p_y = -1$, so
#
# $$\bar s_j = p_j\,(g_j + 1) = \begin{cases} p_j & j \ne y \\
# p_y\,\big(1 - \tfrac{1}{p_y}\big) = p_y - 1 & j = y \end{cases}
# \qquad\text{that is}\qquad \bar s = p - \text{onehot}(y)$$
#
# The same formula, no new one. With $L = \mathrm{lse} - s_y$ (notebook 07) it can be checked at
# once:

# %%
y = np.array([2, 0, 3])  # the right class of three rows
onehot = np.eye(5)[y]


def loss_forward(scores):
    weights, cache = softmax_forward(scores)
    return cache.lse - (scores * onehot).sum(axis=-1), weights


gradcheck(
    loss_forward,
    lambda d_loss, p: (d_loss[:, None] * (p - onehot),),
    {"scores": rng.normal(size=(3, 5))},
)

# %% [markdown]
# > **Predict first.** A saturated softmax passes no gradient. Does a classifier that is sure and
# > *wrong* then learn nothing? Put $p_y \to 0$ into $p - y$.

# %%
lines = []
for gap in (1.0, 20.0, 700.0, 800.0):
    p, cache = softmax_forward(np.array([[gap, 0.0]]))  # class 1 would be right
    with np.errstate(divide="ignore", invalid="ignore"):
        g = np.array([[0.0, -1.0]]) / p
        in_two_steps = softmax_backward(g, cache).d_scores
    lines.append([f"{gap:.0f}", f"{p[0, 1]:.1e}", str(in_two_steps[0]), str(p[0] - [0, 1])])
columns = ["gap", "p_y", "softmax_backward of -1/p_y", "p - onehot(y)"]
Table("Sure and wrong: the wrong score leads by a gap", columns, lines)

# %% [markdown]
# It learns at full strength: $1/p_y$ grows just as $p_y$ shrinks. The vanishing of notebook 06
# needs an upstream gradient that does *not* grow to match, as in attention. In two steps the
# compensation breaks down when $p_y$ is rounded to 0 ($0 \cdot \infty$); as one formula it does
# not. That is a good reason to make the two one function.
#
# ## Exercise: softmax backward
#
# Two lines, without J, for any number of leading axes. The check has hidden cells, a row that sees
# nothing, and a random upstream gradient. It asks what every right answer has (rows of d_scores sum
# to 0, hidden cells have no gradient), then compares numbers, then differentiates softmax numerically.
#
# More of this kind in `mha-numpy exercises`: `dropout-backward`, and `museum-jacobian`, a bug that shipped.


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
# - $J = \mathrm{diag}(p) - p\,p^\top$: symmetric, rows and columns sum to 0, positive semidefinite,
#   rank T - 1 where no weight is 0, eigenvalues at most ½.
# - Backward is $p\,(g - \sum g\,p)$: about 4 T operations a row instead of 4 T².
# - It asks of each key: better than the row's average? Times its weight. A saturated row passes
#   nothing.
# - Rows of `d_scores` sum to 0, hidden cells are exactly 0: two quick tests. Columns mean nothing;
#   a wrong factor passes both.
# - Ones upstream make the true gradient 0 and hide mistakes. Use random numbers.
# - With cross-entropy the same formula gives p - y.
#
# **In the code:** `softmax_backward` in `mha_numpy/core/softmax.py`. **Derivation:**
# docs/softmax.md.
#
# **Reference:** Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 6.2.2.3, for
# softmax with cross-entropy; Squire and Trapp 1998, *Using Complex Variables to Estimate
# Derivatives of Real Functions*.
#
# **Next:** [08, attention backward](12_attention-backward.ipynb).
