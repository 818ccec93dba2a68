# %% [markdown]
# # 07 · A stable softmax
#
# Here are the scores of a **trained** head that has learned to say 12 digits in reverse. Let's compute its weights with
# the softmax formula from any textbook, in float16, the 2-byte floats that large models often use:

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import softmax_forward, trace
from mha_numpy.models.train import load_trained
from mha_numpy.show.pictures import line_chart, matrices
from mha_numpy.teach.exercises import check, hint


# %%
@np.errstate(all="ignore")  # without NumPy's warnings of overflow
def naive_softmax(scores):
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


digits = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])
with trace() as head:
    load_trained("reverse").model(digits)
scores = head["scores"][0, 0]  # (T_q, T_k) of the only head
half = scores.astype(np.float16)
panels = {
    "scores": scores,
    "formula, float16": naive_softmax(half),
    "stable, float16": softmax_forward(half)[0],
}
title = "A trained head that reverses 12 digits"
matrices(panels, shared=False, title=title)

# %% [markdown]
# In eight of the twelve rows, the one weight that matters is NaN, and everything that is computed from a row like that
# becomes NaN too. Yet the scores aren't unusual. One subtraction repairs the weights, as the last panel shows.
#
# **By the end you can** write a softmax that gets every score and mask right, and say what `lse`, the log of its sum,
# is for.
#
# ## The formula, taken at its word
#
# $$p_j = \frac{e^{s_j}}{\sum_l e^{s_l}}$$
#
# > **Predict first.** Three rows of scores have the same *differences*: (0, 1, 2), (1000, 1001, 1002) and (-1000, -999,
# > -998). What does the formula return for each of them, in float64 (NumPy's default)?
#
# <details><summary>Answer</summary>
#
# The first row is right. In the second, every power is `inf`, and `inf / inf` is NaN. In the third, every power is 0,
# and `0 / 0` is NaN too.
#
# </details>

# %%
differences = np.array([0.0, 1.0, 2.0])
rows = np.array([[0.0], [1000.0], [-1000.0]]) + differences
panels = {"scores": rows, "weights": naive_softmax(rows)}
matrices(panels, shared=False)

# %% [markdown]
# ## Where e^x ends
#
# How large may a score be? We start from one that works and one that doesn't, and halve the interval between them until
# no float is left in it.
#
# > **Predict first.** The largest float16 is 65504, and $e^{11} \approx 59874$. What is the largest score whose power
# > is still a float16?
#
# <details><summary>Answer</summary>
#
# It's about 11, because the edge is $\log(65504) = 11.09$. But the trained head above has scores up to 15.
#
# </details>

# %%
from mha_numpy.tables import Table


@np.errstate(all="ignore")
def edge(works, good, bad):
    """Halve the interval down to the last float that works."""
    while (middle := (good + bad) / 2) not in (good, bad):
        if works(middle):
            good = middle
        else:
            bad = middle
    return good


lines = []
for kind in (np.float64, np.float32, np.float16):
    zero, far = kind(0), kind(1000)
    low = edge(lambda x: np.exp(x) > 0, zero, -far)
    high = edge(lambda x: np.isfinite(np.exp(x)), zero, far)
    ends = [
        f"{low:.2f}",
        f"{high:.2f}",
        f"{np.finfo(kind).max:.3g}",
    ]
    lines.append([kind.__name__, *ends])
columns = ["dtype", "0 below", "inf above", "largest number"]
for row in [10.9, 10.9], [-16, -17.5, -17.5]:
    print(naive_softmax(np.array(row, dtype=np.float16)))
Table("Where e^x ends", columns, lines)

# %% [markdown]
# For the formula, the *largest* scores of a row matter. If one is too high, a power overflows. (Or their sum does: in
# float16, two scores of 10.9 are enough, and both weights become 0.) If all are too low, all powers are 0. If only
# the smaller powers vanish, that does no harm as long as the largest is far from the edge, because their weights are
# close to 0 anyway. Near the edge it does: for the scores -16, -17.5 and -17.5, float16 returns (1, 0, 0) instead of
# (0.69, 0.15, 0.15).
#
# ## Adding a constant changes nothing
#
# $$\frac{e^{s_j + c}}{\sum_l e^{s_l + c}} = \frac{e^c\, e^{s_j}}{e^c \sum_l e^{s_l}} = p_j$$
#
# Softmax sees only differences: it is **shift invariant**. So we are free to choose c, and we choose the one that moves
# the row's largest score to 0, $c = -\max_l s_l$. Then
#
# - every exponent is at most 0, so no power is above 1, and nothing overflows;
# - the largest power is exactly 1, so the sum lies between 1 and T_k, and 0/0 can't occur.


# %%
largest = rows.max(axis=-1, keepdims=True)  # (T_q, 1)
shifted = rows - largest
powers = np.exp(shifted)
total = powers.sum(axis=-1, keepdims=True)  # (T_q, 1)
panels = {
    "largest": largest,
    "shifted": shifted,
    "powers": powers,
    "total": total,
    "weights": powers / total,
}
matrices(panels, shared=False, title="The same three rows")


# %% [markdown]
# `keepdims=True` keeps one number per row as a column, so that it lines up with its row. In one function:


# %%
def stable_softmax(scores):
    """(..., T_k) -> weights of this shape, row by row."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


# %% [markdown]
# ## Why each row needs its own maximum
#
# One maximum for the whole array would be simpler to write, and every exponent would still be at most 0. What could go
# wrong?
#
# > **Predict first.** Four rows lie around 0, -600, -740 and -800, in float64. The global maximum is near 0. Which rows
# > come out right?
#
# <details><summary>Answer</summary>
#
# The first two are right. Row -800 lies so far below the maximum that it becomes 0/0. Row -740 has no NaN, but it's
# wrong from the third decimal on, because powers so close to the edge have hardly any bits left. Only the panel
# "difference" shows this.
#
# </details>

# %%
row = np.array([0.0, 1.0, 2.0, 0.5])
apart = np.array([[0.0], [-600.0], [-740.0], [-800.0]]) + row
with_global = naive_softmax(apart - apart.max())
own = stable_softmax(apart)
panels = {
    "one maximum": with_global,
    "own maximum": own,
    "difference": with_global - own,
}
names = [f"around {level}" for level in (0, -600, -740, -800)]
title = "One maximum for all rows"
matrices(panels, row_labels=names, shared=False, title=title)

# %% [markdown]
# With a global maximum, the result of one row depends on the rows around it, even on those of another sequence in the
# batch.
#
# ## lse: the log of the sum
#
# Softmax computes one number per row that is worth keeping, the sum of the powers. Its log is called lse,
# *log-sum-exp*. To get it without overflow, we add the shift m back after taking the log:
#
# $$\mathrm{lse} = \log \sum_l e^{s_l} = m + \log \sum_l e^{s_l - m}, \qquad m = \max_l s_l$$
#
# > **Predict first.** A row has 8 equal scores, all 1000. What is its lse? ($\log 8 \approx 2.08$.) And between which
# > two numbers does lse lie in general?
#
# <details><summary>Answer</summary>
#
# It's 1002.08, because each of the 8 shifted powers is 1. In general, their sum lies between 1 and T_k, so $m \le
# \mathrm{lse} \le m + \log T_k$. That makes lse a *smooth maximum*, as the chart shows for a row of two scores.
#
# </details>

# %%
s = np.linspace(-5, 5, 41)
pairs = np.stack([s, np.zeros_like(s)], axis=-1)  # 41 rows (s, 0)
_, cache = softmax_forward(pairs)
largest = np.maximum(s, 0)
curves = {
    "lse": cache.lse,
    "max": largest,
    "max + log 2": largest + np.log(2),
}
title = "lse lies between max and max + log 2"
line_chart(s, curves, title=title, x_label="s", y_label="")

# %% [markdown]
# What is lse good for? Three things:
#
# 1. **It brings the weights back**, since $p_j = e^{s_j} / e^{\mathrm{lse}} = e^{s_j - \mathrm{lse}}$. So backward
#    needs no stored weights (T_q · T_k numbers per head), only lse (T_q numbers), as notebook 12 shows.
# 2. **It gives log-probabilities**, $\log p_j = s_j - \mathrm{lse}$, without forming $p_j$. For the scores 0 and -800,
#    the second weight is rounded to 0 and its log is $-\infty$, but s - lse is -800. A model can learn from a loss of
#    800; an infinite one ends the training.
# 3. **Its gradient is softmax**: the derivative of $\log \sum_l e^{s_l}$ by $s_j$ is $e^{s_j} / \sum_l e^{s_l} = p_j$.

# %%
pair = np.array([0.0, -800.0])
weights, cache = softmax_forward(pair)
with np.errstate(divide="ignore"):
    print("log of the weights:", np.log(weights))
print("scores - lse:      ", pair - cache.lse)

weights, cache = softmax_forward(scores)  # the trained head
lse = cache.lse[:, None]
again = np.exp(scores - lse)
panels = {"weights": weights, "from lse": again, "lse": lse}
matrices(panels, shared=False)

# %% [markdown]
# ## A row that may attend to nothing
#
# A *mask* hides keys from a query: it turns their scores into -inf, and $e^{-\infty} = 0$, as it should be. A *causal*
# mask hides all later keys. If a short sequence is also filled up *in front* with padding, which is hidden as well,
# then some rows see nothing at all.
#
# > **Predict first.** In a row like this, all scores are -inf. What is -inf - (-inf)? And how far does this spread in
# > the gradient of the values, `d_v = weights.T @ d_out`?
#
# <details><summary>Answer</summary>
#
# It's NaN. `d_v` sums over all queries, so one such row spoils the gradient of every value. The library decides from
# the *mask* which rows see nothing, and gives them weights of 0 and $\mathrm{lse} = \log 0 = -\infty$.
#
# </details>

# %%
from mha_numpy import causal_mask

# two places of padding, then three tokens
is_token = np.array([False, False, True, True, True])
mask = causal_mask(5) & is_token
rng = np.random.default_rng(0)
scores, d_out = rng.normal(size=(5, 5)), rng.normal(size=(5, 3))
with np.errstate(all="ignore"):
    naive = stable_softmax(np.where(mask, scores, -np.inf))
weights, cache = softmax_forward(scores, mask=mask)
panels = {
    "mask": mask,
    "ours so far": naive,
    "our d_v": naive.T @ d_out,
    "library": weights,
    "its lse": cache.lse[:, None],
    "its d_v": weights.T @ d_out,
}
title = "Random scores; rows 0 and 1 see nothing"
matrices(panels, shared=False, title=title)

# %% [markdown]
# A large negative number such as -1e9 instead of -inf is no way out, as notebook 08 shows. The order matters as well.
# Hide *first*, then take the maximum, because otherwise a large hidden score pushes every visible power down to 0.
#
# ## Temperature: a factor is not a shift
#
# A shift changes nothing, but a factor does. Suppose we divide the scores by a *temperature* $\tau$.
#
# > **Predict first.** What happens to a row of four weights as $\tau \to 0$, and as $\tau \to \infty$?
#
# <details><summary>Answer</summary>
#
# As $\tau \to 0$, the largest score gets everything, and as $\tau \to \infty$, all weights become equal. At $\tau =
# 0.001$ the scores go up to 2000, and the stable form copes. The scale $1/\sqrt{d_k}$ is a temperature of $\sqrt{d_k}$.
#
# </details>

# %%
row = np.array([2.0, 1.0, 0.0, 1.5])
temperatures = [0.001, 0.2, 0.5, 1.0, 2.0, 10.0, 1000.0]
weights = stable_softmax(np.divide.outer(row, temperatures).T)
labels = {
    "row_labels": [f"τ = {tau:g}" for tau in temperatures],
    "column_labels": [f"score {score:g}" for score in row],
}
title = "One row at seven temperatures"
matrices({"weights": weights}, **labels, title=title)

# %% [markdown]
# Adding one vector b to all keys is a shift, too, because it adds $q_i \cdot b$ to *all* scores of query i. So a bias
# on the keys changes no weight. (With RoPE, which turns each key by a different angle, it does: notebook 19.)
#
# Two dangers are left in float16, both in the *sum*. It overflows at 65,520 equal scores. And added one by one, as NumPy
# does if a row isn't contiguous, ones stop counting at 2048. So the library computes float16 in float32.
#
# ## The wrong axis
#
# Scores have the shape (B, H, T_q, T_k). Each *query* divides its attention among the *keys*, so softmax runs over the
# last axis. Any other axis gives the same shape and no error.
#
# > **Predict first.** How can you tell from sums which axis softmax ran over?
#
# <details><summary>Answer</summary>
#
# The sums are 1 along that axis, and can be anything along the others. So `weights.sum(axis=-1)` must be 1 in every row
# that sees something, and 0 in the others.
#
# </details>

# %%
# B, H, T_q, T_k: all different
scores = rng.normal(size=(2, 3, 4, 5))
panels = {}
for name, axis in {"T_k": -1, "T_q": -2, "heads": 1}.items():
    powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
    weights = powers / powers.sum(axis=axis, keepdims=True)
    sums = weights.sum(axis=-1, keepdims=True)
    panels[f"over {name}"] = weights[0, 0]
    panels[f"{name}: row sums"] = sums[0, 0]
matrices(panels, title="Random scores: softmax over three axes")

# %% [markdown]
# ## Exercise: a stable, masked softmax
#
# Write it, and return `lse` as well. The check tries scores in the thousands, a row far below all others, hidden cells
# far above the visible ones, rows that see nothing, and scores without a mask. Before it compares numbers, it checks
# that rows that see something sum to 1 and that hidden weights are 0.
#
# To practise more, look in `mha-numpy exercises`: `softmax` is the same without lse, and `museum-nan-row` and
# `museum-float-mask` are two bugs that shipped.


# %% tags=["exercise"]
def my_softmax_with_lse(scores, mask):
    """(..., T_q, T_k) -> weights (..., T_q, T_k), lse (..., T_q);
    softmax along the last axis.

    mask: bool, of the scores' shape, True = may attend; or None,
    which hides nothing. A hidden cell has weight 0, however large
    its score. A row that sees nothing has weights 0 and lse -inf.
    Scores may be in the thousands, and rows may lie far apart.
    Nothing becomes NaN, and lse is finite in every row that sees
    something.
    """
    ...  # your code


# %% tags=["check"]
check("softmax-with-lse", my_softmax_with_lse)

# %% tags=["hint"]
# hint("softmax-with-lse")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now repair the trained head of the first picture. Softmax is shift invariant, so subtract the row's own
# maximum: no exponent is above 0, and the sum lies between 1 and T_k. Hide with -inf before that; a row that sees
# nothing has weights 0. $\mathrm{lse} = m + \log \sum e^{s - m}$ brings the weights back, gives log-probabilities, and
# has softmax as its gradient. Sums of 1 show which axis softmax ran over.
#
# **In the code:** `softmax_forward` in `mha_numpy/core/softmax.py`. **Derivation:** docs/softmax.md.
#
# **Reference:** Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 4.1; Dao 2023, *FlashAttention-2*,
# section 3.1, for lse.
#
# **Next:** [08, masks](08_masks.ipynb). The softmax that reads its row in pieces (*online softmax*) is in notebook 26.
