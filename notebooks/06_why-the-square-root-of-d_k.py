# %% [markdown]
# # 06 · Why the square root of d_k
#
# Attention divides its scores by the square root of d_k, the width of a head. One number, often
# given with a wrong reason. Here the reason is derived, measured, and then tested on its limits.
#
# **You will learn**
#
# - why a dot product of d_k terms has variance d_k, and so a typical size of $\sqrt{d_k}$;
# - what large scores do to softmax, and to the gradient that has to come back through it;
# - why "the scale prevents exploding gradients" is the wrong story, and what grain of truth it has;
# - what happens with $1/d_k$, with $1/\sqrt D$, with a learned scale, with smaller params instead;
# - how the scale returns in backward, and how it looks when it was forgotten there.

# %%
import numpy as np

from mha_numpy import (
    MultiHeadAttention,
    attention_backward,
    attention_forward,
    compare,
    gradcheck,
    softmax_backward,
    softmax_forward,
    trace,
)
from mha_numpy.core import step
from mha_numpy.cost import CONFIGURATIONS
from mha_numpy.draw import backward_film, line_chart, matrices
from mha_numpy.exercises import check, hint
from mha_numpy.tables import Table

np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## A dot product is a sum of d_k terms
#
# A score compares a query with a key: it adds up d_k products.
#
# $$q \cdot k = \sum_{c=1}^{d_k} q_c\,k_c$$
#
# Assume, as at the start of training, that all these numbers are independent, with mean 0 and
# variance 1. Then for one product
#
# $$\mathbb{E}[q_c k_c] = \mathbb{E}[q_c]\,\mathbb{E}[k_c] = 0, \qquad
# \mathrm{Var}[q_c k_c] = \mathbb{E}[q_c^2]\,\mathbb{E}[k_c^2] - 0^2 = 1 \cdot 1 = 1.$$
#
# Variances of independent terms add up:
#
# $$\mathrm{Var}[q \cdot k] = \sum_{c=1}^{d_k} 1 = d_k, \qquad
# \text{standard deviation} = \sqrt{d_k}.$$
#
# > **Predict first.** q and k have 64 such numbers each. How large is q · k, typically: 1, 8, 64?

# %%
rng = np.random.default_rng(0)
q, k = rng.normal(size=(2, 20_000, 64))
dots = (q * k).sum(axis=-1)  # (20000,): as many independent pairs
print(f"mean {dots.mean():.2f}   variance {dots.var():.1f}   standard deviation {dots.std():.2f}")

# %% [markdown]
# Eight. The terms have random signs and mostly cancel; what is left over grows like a random walk,
# with the square root of the number of steps.
#
# The derivation used no bell curve. Numbers that are only +1 or -1, or spread evenly, do the same,
# so long as their variance is 1:

# %%
shape = (2, 20_000, 64)
kinds = {
    "only +1 and -1": rng.choice([-1.0, 1.0], size=shape),
    "even on -√3 .. √3": rng.uniform(-np.sqrt(3), np.sqrt(3), size=shape),
}
for name, (q, k) in kinds.items():
    print(f"{name:18} variance of q · k: {(q * k).sum(axis=-1).var():.1f}")

# %% [markdown]
# ## Divide by what?
#
# Dividing a quantity by a number divides its variance by the square of that number.
#
# > **Predict first.** The variance of q · k is d_k. Which divisor makes it 1, for every d_k? What
# > variance is left if you divide by d_k instead?

# %%
widths = 2 ** np.arange(11)  # d_k = 1, 2, 4, ..., 1024


def rows(d_k):
    """q and k: 250 sequences of 16 tokens, all numbers independent, variance 1."""
    return np.random.default_rng(d_k).normal(size=(2, 250, 16, d_k))


def all_products(d_k):
    q, k = rows(d_k)
    return q @ k.swapaxes(-1, -2)


products = {d_k: all_products(d_k) for d_k in widths}  # each (250, 16, 16)


# %%
def chart(lines, title, y_label, log_y=True):
    """Lines over the widths."""
    looks = {"title": title, "x_label": "d_k", "y_label": y_label, "log_x": True, "log_y": log_y}
    return line_chart(widths, lines, **looks)


rules = {
    "no scale": lambda d_k: 1.0,
    "1/sqrt(d_k)": lambda d_k: 1 / np.sqrt(d_k),
    "1/d_k": lambda d_k: 1 / d_k,
}
variances = {
    name: np.array([(rule(d) * products[d]).var() for d in widths]) for name, rule in rules.items()
}
chart(variances, "Variance of the scores", "variance of scale * q · k")

# %% [markdown]
# Only the square root keeps the variance at 1: the scores then start alike, whatever the width of a
# head. Divided by d_k, 1/d_k is left. Known models are well to the right on this axis:

# %%
widths_in_use = [
    [model.name, str(model.head_dim), f"{np.sqrt(model.head_dim):.2f}"]
    for model in CONFIGURATIONS.values()
]
Table("The width of a head in known models", ["model", "d_k", "sqrt(d_k)"], widths_in_use)

# %% [markdown]
# ## What large scores do to softmax
#
# Softmax exponentiates: *differences* of scores become *ratios* of weights.
#
# $$\frac{p_i}{p_j} = e^{s_i - s_j}$$
#
# > **Predict first.** At d_k = 64 and without a scale, scores have a standard deviation of 8. The
# > difference of two has $\sqrt{2} \cdot 8 \approx 11.3$. How many times larger is then the larger
# > one's weight? And with the scale, where the difference is $\sqrt 2$?

# %%
print(f"without: {np.exp(np.sqrt(2) * 8):.0f} times; with: {np.exp(np.sqrt(2)):.1f} times")

# %% [markdown]
# Without the scale one of the two keys takes nearly everything. Now eight scores, at six sizes; each
# row of the picture is one softmax:

# %%
sizes = [0.125, 0.5, 1, 2, 8, 32]  # standard deviation of the scores
one_row = np.random.default_rng(3).normal(size=8)
one_row = one_row / one_row.std()
weights, _ = softmax_forward(np.outer(sizes, one_row))  # (6, 8)
matrices(
    {"weights": weights},
    row_labels=[f"std {size:g}" for size in sizes],
    column_labels=[f"key {j}" for j in range(8)],
    title="The same scores, larger from row to row",
)

# %% [markdown]
# Top: nearly a plain mean of all keys, whatever the scores. Bottom: a hard choice, *saturated*. The
# winner stays the winner when the scores move a little.
#
# **Entropy** puts a number on it. In bits, it is 4 for equal weights on 16 keys ($2^4 = 16$) and 0
# for a single key.
#
# $$\text{entropy}(p) = -\sum_j p_j \log_2 p_j$$
#
# > **Predict first.** Three curves over d_k = 1 .. 1024: no scale, $1/\sqrt{d_k}$, $1/d_k$. All
# > start at the same point. Which falls, which rises, which stays?


# %%
def entropy(weights):
    """Bits in each row of weights."""
    return -(weights * np.log2(np.where(weights > 0, weights, 1))).sum(axis=-1)


def mean_entropy(d_k, scale):
    weights, _ = softmax_forward(scale * products[d_k])
    return entropy(weights).mean()


means = {name: np.array([mean_entropy(d, rule(d)) for d in widths]) for name, rule in rules.items()}
chart(means, "Entropy of the weights, 16 keys", "bits, mean of 4000 rows", log_y=False)

# %% [markdown]
# Without a scale a wide head starts as a hard choice of *one random key*, before it has learned
# anything. With $1/\sqrt{d_k}$ each head starts equally open. With $1/d_k$ it starts as a mean of
# all keys.
#
# ## The gradient that gets through softmax
#
# A hard choice is not bad by itself; it may be just what a head should learn. What is bad is to be
# unable to leave it. Let $g$ be the gradient that arrives at the weights of one row (`d_weights`),
# and $\bar s$ what softmax passes on to the scores (`d_scores`). Then (derived in notebook 11 and
# in docs/softmax.md)
#
# $$\bar s_j = p_j \Big( g_j - \sum_l p_l\, g_l \Big)$$
#
# > **Predict first.** Take a one-hot row, $p = (0, 1, 0)$, and any $g$. What is $\bar s$? Work out
# > both cases: $p_j = 0$, and $p_j = 1$.

# %%
g = np.array([[3.0, -5.0, 2.0]])
lines = []
for size in (1, 8, 64):
    scores = size * np.array([[0.0, 1.0, -1.0]])
    weights, cache = softmax_forward(scores)
    d_scores = softmax_backward(g, cache).d_scores
    lines.append([str(array[0]) for array in (scores, weights, d_scores)])
Table("One row, more and more saturated; g = (3, -5, 2)", ["scores", "weights", "d_scores"], lines)

# %% [markdown]
# Zero both times: where $p_j = 0$ the factor is 0, and where $p_j = 1$ the bracket is $g_j - g_j$.
# **A saturated softmax passes no gradient.** Now for random rows and a random $g$; the median row
# of 4000:


# %%
def row_norms(d_k, scale):
    """Norms of the rows of d_scores and of d_q, for a random upstream gradient: (2, 4000)."""
    _, k = rows(d_k)
    _, cache = softmax_forward(scale * products[d_k])
    d_weights = np.random.default_rng(1).normal(size=(250, 16, 16))
    d_scores = softmax_backward(d_weights, cache).d_scores
    d_q = scale * d_scores @ k
    return [np.linalg.norm(d_x, axis=-1).ravel() for d_x in (d_scores, d_q)]


norms = {
    name: np.array([row_norms(d, rule(d)) for d in widths])  # (11, 2, 4000)
    for name, rule in rules.items()
}

# %%
medians = {name: np.median(norms[name][:, 0], axis=-1) for name in rules}
chart(medians, "What softmax lets through, in the median row", "norm of a row of d_scores")

# %% [markdown]
# Without a scale the gradient of a typical row **vanishes**, by orders of magnitude. That is the
# reason given in the paper: large dot products push softmax "into regions where it has extremely
# small gradients".
#
# ## Does anything explode?
#
# You will also read that the scale is there "to prevent exploding gradients". Let us look for them.
#
# First, softmax itself cannot amplify. The norm of its Jacobian is at most 1/2 (notebook 11),
# whatever the scores are:

# %%
d_weights = np.random.default_rng(1).normal(size=(4000, 16))
arriving = np.linalg.norm(d_weights, axis=-1)
for name in rules:
    largest = (norms[name][:, 0] / arriving).max()
    print(f"{name:12} largest ratio of norms, d_scores to d_weights, of all rows: {largest:.3f}")

# %% [markdown]
# What is left is one more step, from the scores to the query:
#
# $$\bar q = \text{scale} \cdot \bar s\, k$$
#
# Without a scale that factor is missing too, and a row of k has d_k numbers: its norm is about
# $\sqrt{d_k}$.
#
# > **Predict first.** So two things pull in opposite directions. Without a scale, more and more rows
# > of `d_scores` vanish as d_k grows; but those that do not are multiplied by something $\sqrt{d_k}$
# > larger. What do the median, the mean and the largest row of `d_q` do?

# %%
plain, scaled = norms["no scale"][:, 1], norms["1/sqrt(d_k)"][:, 1]  # d_q: (11, 4000)
curves = {
    "no scale: largest": plain.max(axis=-1),
    "no scale: mean": plain.mean(axis=-1),
    "no scale: median": np.median(plain, axis=-1),
    "scaled: largest": scaled.max(axis=-1),
    "scaled: mean": scaled.mean(axis=-1),
    "scaled: median": np.median(scaled, axis=-1),
}
chart(curves, "The gradient of a query, over 4000 queries", "norm of a row of d_q")

# %% [markdown]
# With the scale, three nearly flat lines: rows get a gradient of the same kind at every width.
# Without it, three different stories. The **median** row goes to nothing. The **largest** grows:
# here is its softmax at d_k = 1024, the three largest of its weights:

# %%
weights, _ = softmax_forward(products[1024])
np.sort(weights.reshape(-1, 16)[plain[-1].argmax()])[:-4:-1]

# %% [markdown]
# Its best two keys happen to share the weight, so softmax is still open. Count such rows (largest
# weight below 0.9). Beside it, the *growth*: the largest row of `d_q` without the scale, divided by
# the largest with it.

# %%
lines = []
for d_k, unscaled, other in zip(widths[4:], plain[4:], scaled[4:], strict=True):
    is_open = (softmax_forward(products[d_k])[0].max(axis=-1) < 0.9).mean()
    ratio = unscaled.max() / other.max()
    figures = (is_open, is_open * np.sqrt(d_k), ratio, ratio / np.sqrt(d_k))
    lines.append([str(d_k), *(f"{figure:.2f}" for figure in figures)])
columns = ["d_k", "open rows", "open rows · sqrt(d_k)", "growth", "growth / sqrt(d_k)"]
Table("Without a scale: the share of open rows, and the largest gradient", columns, lines)

# %% [markdown]
# The largest row grows about like $\sqrt{d_k}$ and no faster: it is the missing factor, nothing
# else. The share of open rows shrinks about like $1/\sqrt{d_k}$. So the mean, in the chart above, is
# nearly level from about d_k = 16 on. (In narrower heads nearly all rows are open, and it grows.)
#
# At the widths in use, 64 and 128, both effects are at work at once. Look at the median again, and
# at how unevenly the gradient is spread: the share that the tenth of the rows with the most has.

# %%
lines = []
for d_k in (64, 128, 1024):
    for name in ("no scale", "1/sqrt(d_k)"):
        d_scores, d_q = norms[name][widths.tolist().index(d_k)]
        top = np.sort(d_q)[-400:].sum() / d_q.sum()
        medians = f"{np.median(d_scores):.2g}", f"{np.median(d_q):.2g}"
        lines.append([str(d_k), name, *medians, f"{top:.0%}"])
columns = ["d_k", "rule", "median d_scores", "median d_q", "share of the top tenth in d_q"]
Table("Norms of rows", columns, lines)

# %% [markdown]
# At d_k = 64 softmax already passes far less, but in `d_q` the missing factor of 8 covers it up. At
# 128 it no longer does. And the gradient gathers in ever fewer rows.
#
# So the honest sentence is: **without the scale, the wider the head, the more rows lose their
# gradient in softmax; those still open get one about $\sqrt{d_k}$ times as large; nothing runs
# away.** (All this is within one layer, at the start, with 16 keys.) "Exploding" names one side of
# it and misses the cause. The cause is the saturated softmax, and what it does to a gradient is to
# make it vanish.
#
# ## Four other ways
#
# ### 1/d_k
#
# Scores then start with a standard deviation of $1/\sqrt{d_k}$: too even. The gradient does come
# through softmax, but now the step to the query makes it small:

# %%
lines = []
for d_k, both in zip(widths[::2], norms["1/d_k"][::2], strict=True):
    weights, _ = softmax_forward(products[d_k] / d_k)
    figures = (weights.min(), weights.max(), *np.median(both, axis=-1))
    lines.append([str(d_k), *(f"{figure:.4f}" for figure in figures)])
columns = ["d_k", "smallest weight", "largest weight", "median d_scores", "median d_q"]
Table("1/d_k, 16 keys: each weight goes to 1/16 = 0.0625", columns, lines)

# %% [markdown]
# ### 1/sqrt(D)
#
# A slip: the width of the model in place of the width of a head. It is right with one head, so a
# test with one head does not see it. `compare` looks for a factor between all numbers:
#
# > **Predict first.** D = 512 in H = 8 heads of d_k = 64. By what factor are the scores wrong?

# %%
H, d_k = 8, 64
q, k = np.random.default_rng(0).normal(size=(2, H, 5, d_k))
q_k = q @ k.swapaxes(-1, -2)
compare({"scores": q_k / np.sqrt(H * d_k)}, {"scores": q_k / np.sqrt(d_k)})

# %% [markdown]
# Each is 0.354 times what was expected: $\sqrt{d_k / D} = 1/\sqrt H$.
#
# ### A learned scale
#
# The scale can be a param $a$. All scores share it, so its gradient is a sum over all of them:
#
# $$s_{ij} = a\, (q_i \cdot k_j) \quad\Longrightarrow\quad
# \bar a = \sum_{i,j} \bar s_{ij}\, (q_i \cdot k_j)$$

# %%
one_head = q_k[0]  # (5, 5)


def learned_scale_forward(a):
    return softmax_forward(a * one_head)


def learned_scale_backward(d_weights, cache):
    d_scores = softmax_backward(d_weights, cache).d_scores
    return (np.array([np.sum(d_scores * one_head)]),)


gradcheck(learned_scale_forward, learned_scale_backward, {"a": np.array([0.1])})

# %% [markdown]
# It is learned, so it has to start somewhere. Where q and k are first normalised to length 1 (Henry
# et al. 2020), the products lie between -1 and 1. With $a = 1$ no weight could then be more than
# $e^2$ times another: too even for many keys, so $a$ should start larger.
#
# ### Smaller params instead of a scale
#
# Where q comes from a linear map, the scale can move into the params:
#
# $$\frac{q}{\sqrt{d_k}} = \frac{x\,w_q + b_q}{\sqrt{d_k}} =
# x\,\frac{w_q}{\sqrt{d_k}} + \frac{b_q}{\sqrt{d_k}}$$
#
# > **Predict first.** Are the two results equal to the last bit? Think of a width of 64, then of
# > 48.

# %%
for d_k in (64, 48):
    rng = np.random.default_rng(0)
    x, w_q = rng.normal(size=(5, 96)), rng.normal(size=(96, d_k)) / np.sqrt(96)
    b_q, k = rng.normal(size=d_k), rng.normal(size=(7, d_k))
    root = np.sqrt(d_k)
    outside = (x @ w_q + b_q) @ k.T / root
    inside = (x @ (w_q / root) + b_q / root) @ k.T
    error = np.abs(outside - inside).max()
    print(f"d_k {d_k}: the same bits: {np.array_equal(outside, inside)}, largest error {error:.0e}")

# %% [markdown]
# The same function: to the last bit where $\sqrt{d_k}$ is a power of two, to rounding where it is
# not. Note $b_q$: leave it unscaled and the two differ. Also: scaling q before the product takes
# T_q · d_k multiplications, scaling the scores takes T_q · T_k.
#
# The same function, but *not the same training*. Call the small params $w' = w_q / \sqrt{d_k}$. By
# the chain rule their gradient is $\sqrt{d_k}$ times larger, and they are $\sqrt{d_k}$ times
# smaller.
#
# > **Predict first.** One step of gradient descent with the same learning rate on either: how much
# > larger is the *relative* change of $w'$?

# %%
d_k, root = 64, 8.0
rng = np.random.default_rng(0)
x, w_q, k = rng.normal(size=(5, 96)), rng.normal(size=(96, d_k)), rng.normal(size=(7, d_k))
d_scores = rng.normal(size=(5, 7))
d_outside = x.T @ (d_scores @ k / root)  # by w_q, where scores = (x w_q) k^T / root
d_inside = x.T @ (d_scores @ k)  # by w', where scores = (x w') k^T
sizes = [np.linalg.norm(w) for w in (w_q, w_q / root)]
steps = [np.linalg.norm(d_w) for d_w in (d_outside, d_inside)]
print("plain step, relative change: ", steps[1] / sizes[1] / (steps[0] / sizes[0]), "times larger")
print("step of fixed size, relative:", 1 / sizes[1] / (1 / sizes[0]), "times larger")

# %% [markdown]
# $d_k$ times. An optimizer whose steps do not grow with the gradient, as Adam's, still moves it
# $\sqrt{d_k}$ times as far. A scale outside of the params keeps them, and their learning rate, at
# the usual size.
#
# ## Where the assumption holds, and where it ends
#
# Everything above assumed independent entries of variance 1. At the start this is about right. Here
# is a fresh layer on tokens of variance 1. Its params are drawn by Glorot's rule ("Xavier
# uniform"): evenly between plus and minus $\sqrt{6 / (\text{inputs} + \text{outputs})}$. PyTorch's
# `nn.MultiheadAttention` has the same rule, but draws w_q, w_k and w_v as one array with 3 D
# outputs. The bound of all three is then smaller, and the scores by its square:

# %%
layer = MultiHeadAttention(embed_dim=512, num_heads=8, rng=0)
x = np.random.default_rng(0).normal(size=(2, 32, 512))
with trace() as start:
    layer(x)
for name in ("q", "k", "scores"):
    print(f"{name:7} standard deviation {start[name].std():.2f}")
packed = np.sqrt(6 / (512 + 3 * 512)) / np.sqrt(6 / (512 + 512))  # one bound against the other
print(f"scores, packed: {packed**2 * start['scores'].std():.2f}")

# %% [markdown]
# So "variance 1" is a property of the initialisation too. The square root keeps what there is the
# same for every width of a head.
#
# Training then exists to *end* independence: a query shall match the keys it needs. Let the numbers
# of q and k agree by a correlation $\rho$. The terms no longer cancel; each is $\rho$ on average:
#
# $$\mathbb{E}[q \cdot k] = \rho\, d_k, \qquad
# \mathbb{E}\Big[\frac{q \cdot k}{\sqrt{d_k}}\Big] = \rho \sqrt{d_k}$$
#
# > **Predict first.** d_k = 64 and a modest $\rho = 0.5$: what is the scaled score of such a pair?
# > Other pairs have a standard deviation of 1.


# %%
def matching_score(d_k, rho):
    rng = np.random.default_rng(0)
    k, noise = rng.normal(size=(2, 2000, d_k))
    q = rho * k + np.sqrt(1 - rho**2) * noise  # variance 1 again
    return (q * k).sum(axis=-1).mean() / np.sqrt(d_k)


curves = {f"ρ = {r:g}": np.array([matching_score(d, r) for d in widths]) for r in (0, 0.25, 0.5, 1)}
chart(curves, "A query and a key that agree", "mean of q · k / sqrt(d_k)", log_y=False)

# %% [markdown]
# For $\rho = 0.5$ and d_k = 64 it is 4: four standard deviations above the others. In general a pair
# that agrees stands out from the noise by $\rho\sqrt{d_k}$ standard deviations. That is what
# a head learns with; and it can saturate softmax, with the scale in place. The scale is about the
# *start*. (This is also the argument of Yang et al. 2022 for $1/d_k$: if q and k will be
# correlated, their product grows like d_k.)
#
# ## The scale in backward
#
# $s = \text{scale} \cdot q k^\top$ is linear in q and in k. So the scale stands in *both*
# gradients, the last two lines of the trace. v was never scaled:
#
# $$\bar q = \text{scale} \cdot \bar s\,k, \qquad \bar k = \text{scale} \cdot \bar s^\top q$$

# %%
rng = np.random.default_rng(0)
q, k, v, d_out = (rng.normal(size=(T, 4)) for T in (5, 7, 7, 5))
with trace() as right:
    out, cache = attention_forward(q, k, v)
    attention_backward(d_out, cache)
right

# %% [markdown]
# ## The scale forgotten in backward
#
# > **Predict first.** Forward is right, backward forgets the scale. d_k is 4. Which of the
# > gradients are wrong, and by how much? Does the model still train?

# %%
d_scores = right["d_scores"]
forgotten = {"d_q": d_scores @ k, "d_k": d_scores.T @ q, "d_v": right["d_v"]}
compare(forgotten, {name: right[name] for name in forgotten})

# %% [markdown]
# `d_v` is right, `d_q` and `d_k` are $\sqrt{d_k} = 2$ times too large, in the right *direction*. A
# small step along them still lowers the loss: training goes on, with a learning rate for q and k
# that nobody chose. Only a comparison of numbers finds it. (Apply the scale twice, in `d_scores`
# and again in `d_q`, and the factor is $1/\sqrt{d_k}$.) In the film, the first gradient that
# differs from the right one has the strong frame:

# %%
with trace() as mine:
    step("d_scores", d_scores, "T_q T_k", "weights * (d_weights - row_mean)")
    step("d_v", forgotten["d_v"], "T_k d_v", "weights.T @ d_out")
    step("d_q", forgotten["d_q"], "T_q d_k", "d_scores @ k")
    step("d_k", forgotten["d_k"], "T_k d_k", "d_scores.T @ q")
backward_film(mine, reference=right)

# %% [markdown]
# ## Exercise: scores, forward and backward
#
# Write both. For the backward the check also asks numeric differentiation (the row "gradients"), which owes nothing
# to anybody's formula: a forgotten scale shows there as well.
#
# More of this kind in `mha-numpy exercises`: in `masked-attention` scores are bounded after they are scaled, and
# `museum-softcap` did it in the wrong place.


# %% tags=["exercise"]
def my_scores(q, k):
    """(B, H, T_q, d_k), (B, H, T_k, d_k) -> scaled scores (B, H, T_q, T_k)."""
    ...  # your code


def my_scores_backward(d_scores, q, k):
    """d_scores (B, H, T_q, T_k) and both inputs of my_scores -> d_q, d_k, each like its input."""
    ...  # your code


# %% tags=["check"]
check("scores", my_scores)
check("scores-backward", my_scores_backward)

# %% tags=["hint"]
# hint("scores")  # shows the next of four hints
# hint("scores-backward")

# %% [markdown]
# ## Summary
#
# - A dot product of d_k independent terms of variance 1 has variance d_k. Dividing by $\sqrt{d_k}$
#   makes it 1, at every width.
# - Unscaled, wide heads start saturated: one random key takes all, and softmax passes no gradient.
# - As heads get wider, gradients *vanish* in more and more rows; in those still open they are about
#   $\sqrt{d_k}$ times as large. Nothing runs away.
# - $1/d_k$ starts too even, $1/\sqrt D$ is off by $1/\sqrt H$; a scale inside of $w_q$ is the same
#   function, but a plain gradient step changes it, relatively, d_k times as much.
# - The scale belongs to the start. Once q and k agree, scores grow like $\rho\sqrt{d_k}$.
# - In backward it stands in `d_q` and `d_k`, not in `d_v`.
#
# **In the code:** step 1 of `attention_steps` and of `attention_steps_backward` in
# `mha_numpy/core/attention.py`. **Derivation:** docs/attention.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.1 and its footnote 4;
# Henry et al. 2020, *Query-Key Normalization for Transformers*; Yang et al. 2022, *Tensor Programs
# V*, on $1/d_k$.
#
# **Next:** [03, a stable softmax](07_a-stable-softmax.ipynb).
