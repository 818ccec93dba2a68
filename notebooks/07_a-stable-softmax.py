# %% [markdown]
# # 07 · A stable softmax
#
# Softmax, typed as its formula stands, gives NaN for scores that are not even unusual. One
# subtraction repairs it, and leaves behind a number, `lse`, that losses, backward passes and tiled
# attention use.
#
# **You will learn**
#
# - where $e^x$ ends in float64, float32 and float16, on both sides;
# - why subtracting a row's largest score changes nothing, and why it has to be the *row's own*;
# - what `lse` is, and three things that it is for;
# - what to do with a row that may attend to nothing;
# - how to see from a few sums that softmax ran over the wrong axis.

# %%
import numpy as np

from mha_numpy import (
    MultiHeadAttention,
    RopeOptions,
    causal_mask,
    gradcheck,
    softmax_forward,
    trace,
)
from mha_numpy.core import step
from mha_numpy.draw import line_chart, matrices
from mha_numpy.exercises import check, hint
from mha_numpy.tables import Table

np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## As the formula says it
#
# $$p_j = \frac{e^{s_j}}{\sum_l e^{s_l}}$$
#
# NumPy warns when numbers overflow. Here that is the subject, so `errstate` keeps it quiet.


# %%
@np.errstate(all="ignore")
def naive_softmax(scores):
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


naive_softmax(np.log([[1.0, 3.0, 4.0]]))  # powers 1, 3, 4 of a sum of 8

# %% [markdown]
# > **Predict first.** Three rows, each with the same *differences*: 0, 1, 2. What are the weights
# > of each?

# %%
naive_softmax(np.array([[0.0, 1.0, 2.0], [1000.0, 1001.0, 1002.0], [-1000.0, -999.0, -998.0]]))

# %% [markdown]
# Large scores: every power is `inf`, and `inf / inf` is NaN. Very negative ones: every power is 0,
# and so is the sum: `0 / 0` is NaN too.
#
# ## Where e^x ends
#
# How large a score is too large? Halve the interval between one that works and one that does not,
# until no float lies between them:


# %%
@np.errstate(all="ignore")
def edge(works, good, bad):
    """The last number, on the way from good to bad, that works."""
    while True:
        middle = (good + bad) / 2  # in their own dtype
        if middle in (good, bad):
            return good
        good, bad = (middle, bad) if works(middle) else (good, middle)


# %% [markdown]
# > **Predict first.** The largest float16 is 65504, and $e^{11} \approx 59874$. What is about the
# > largest score that float16 can take?

# %%
kinds = (np.float64, np.float32, np.float16)
lines = []
for kind in kinds:
    top = edge(lambda x: np.isfinite(np.exp(x)), kind(0), kind(1000))
    bottom = edge(lambda x: np.exp(x) > 0, kind(0), kind(-1000))
    largest = np.finfo(kind).max
    lines.append([kind.__name__, f"{bottom:.2f}", f"{top:.2f}", f"{largest:.3g}"])
Table("Where e^x ends", ["dtype", "0 below", "inf above", "largest number"], lines)

# %% [markdown]
# The upper edge is $\log(\text{largest number})$. Notebook 06 has shown scores with a standard
# deviation of $\sqrt{d_k}$ where the scale is forgotten, 8 at d_k = 64: then 11 is nothing special.
#
# ## A map of where it breaks
#
# A row's scores lie around an *offset*, at most a *spread* away from it. In the map, +1 (blue) is a
# row where a power is `inf`, -1 (orange) one where all powers are 0.
#
# > **Predict first.** Spread a row *wider*, at the same offset. Does that help or harm at the upper
# > edge? And at the lower edge?

# %%
offsets = [-1000, -700, -110, -80, -20, -10, 0, 10, 80, 110, 700, 1000]
spreads = [0, 1, 5, 10, 50, 100, 500]


@np.errstate(all="ignore")
def trouble(kind, shift=lambda scores: 0):
    """+1, -1 or 0 for each offset and spread: (12, 7)."""
    between = np.array([-1, -0.5, 0.25, 1])
    scores = np.add.outer(offsets, np.outer(spreads, between)).astype(kind)  # (12, 7, 4)
    powers = np.exp(scores - shift(scores))
    return np.isinf(powers).any(axis=-1) * 1 - (powers == 0).all(axis=-1) * 1


# %%
matrices(
    {kind.__name__: trouble(kind) for kind in kinds},
    row_labels=[f"offset {offset}" for offset in offsets],
    column_labels=[f"spread {spread}" for spread in spreads],
    title="Naive softmax: 1 = a power is inf, -1 = all powers are 0",
)

# %% [markdown]
# Only the row's *largest* score decides, offset + spread: too high, and it overflows; too low, and
# nothing is left of the row. So spread harms at the upper edge and *helps* at the lower one. That
# the smaller scores vanish is harmless: their weights are close to 0. (The *sum* of the powers may
# overflow a little before a power does.)
#
# Before NaN come wrong digits. Powers close to the lower edge have hardly any bits left. The true
# ratio of these two weights is e:

# %%
weights = naive_softmax(np.array([-744.0, -745.0]))
print(f"weights: {weights}; ratio: {weights[0] / weights[1]:.4f}; e: {np.e:.4f}")

# %% [markdown]
# ## Adding a constant changes nothing
#
# $$\frac{e^{s_j + c}}{\sum_l e^{s_l + c}} = \frac{e^c\, e^{s_j}}{e^c \sum_l e^{s_l}} = p_j$$
#
# Softmax sees differences only: it is **shift invariant**. So any c may be chosen, and the map says
# which: one that brings the row's largest score to a safe place. With $c = -\max_l s_l$ that is 0.
# Then
#
# - every exponent is at most 0, so no power is above 1: nothing overflows;
# - the largest power is exactly 1, so the sum lies between 1 and T_k: never 0/0.


# %%
def stable_softmax(scores):
    """(T_q, T_k) -> weights (T_q, T_k)."""
    largest = scores.max(axis=-1, keepdims=True)
    step("largest", largest, "T_q 1", "scores.max(axis=-1, keepdims=True)")
    shifted = step("shifted", scores - largest, "T_q T_k", "scores - largest")
    powers = step("powers", np.exp(shifted), "T_q T_k", "np.exp(shifted)")
    total = powers.sum(axis=-1, keepdims=True)
    step("total", total, "T_q 1", "powers.sum(axis=-1, keepdims=True)")
    return step("weights", powers / total, "T_q T_k", "powers / total")


scores = np.array([[0.0, 1.0, 2.0, 2.0], [1e3, 1001, 1002, 1002], [-1e3, -999, -998, -998]])
with trace() as t:
    stable_softmax(step("scores", scores, "T_q T_k"))
t

# %% [markdown]
# `largest` and `total` are one number for each row. `keepdims=True` keeps their axis, at length 1.
# Without it a (T_q,) array would be lined up with the keys: an error, or, where T_q = T_k, a wrong
# result without one.

# %%
matrices(
    {name: t[name] for name in ("largest", "shifted", "powers", "total", "weights")},
    shared=False,
    title="Three rows with the same differences",
)

# %% [markdown]
# The same weights three times. And the map, in the smallest dtype, with the shift:

# %%
shifted = trouble(np.float16, shift=lambda scores: scores.max(axis=-1, keepdims=True))
print("rows in trouble:", np.count_nonzero(shifted), "of", shifted.size)

# %% [markdown]
# ## Why the row's own maximum
#
# One maximum for the whole array is simpler to write, and every exponent is at most 0 as well.
#
# > **Predict first.** Four rows, with offsets 0, -600, -740 and -800, in float64. The global
# > maximum is near 0. Which rows come out right?

# %%
apart = np.array([[0.0], [-600], [-740], [-800]]) + np.array([0.0, 1.0, 2.0, 0.5])
with np.errstate(all="ignore"):
    powers = np.exp(apart - apart.max())  # one for all
    with_global = powers / powers.sum(axis=-1, keepdims=True)
own = stable_softmax(apart)
matrices(
    {"global max": with_global, "own max": own, "difference": with_global - own},
    row_labels=["0", "-600", "-740", "-800"],
    title="One maximum for all rows",
)

# %% [markdown]
# Row -800 lies too far below: 0/0. Row -740 has no NaN; only the panel on the right shows that it
# is wrong, from the third digit on.
#
# With a global maximum the result of one row depends on its neighbours, even on another sequence of
# the batch.
#
# And the row's own *mean*? It is different for each row, but a score may lie far above it:

# %%
scores = np.array([[0.0, 0.0, 0.0, 3000.0]])
with np.errstate(all="ignore"):
    print("shift by the mean:", naive_softmax(scores - scores.mean(axis=-1, keepdims=True)))
print("by the maximum:   ", stable_softmax(scores))

# %% [markdown]
# ## lse: the log of the sum
#
# Softmax has one number per row at hand that is worth keeping. Put the shift back into the sum:
#
# $$\mathrm{lse} = \log \sum_l e^{s_l} = m + \log \sum_l e^{s_l - m}, \qquad m = \max_l s_l$$
#
# > **Predict first.** A row of 8 equal scores, all 1000. What is lse? ($\log 8 \approx 2.08$.) In
# > general: between which two numbers must lse lie?

# %%
_, cache = softmax_forward(np.full((1, 8), 1000.0))
cache.lse

# %% [markdown]
# As the sum lies between 1 and T_k: $\;m \le \mathrm{lse} \le m + \log T_k$. It is a *smooth
# maximum*. For a row of two scores, s and 0:

# %%
s = np.linspace(-5, 5, 41)
_, cache = softmax_forward(np.stack([s, np.zeros_like(s)], axis=-1))  # 41 rows
line_chart(
    s,
    {"lse": cache.lse, "max": np.maximum(s, 0), "max + log 2": np.maximum(s, 0) + np.log(2)},
    title="lse of the row (s, 0) lies between max and max + log 2",
    x_label="s",
    y_label="",
)

# %% [markdown]
# Three uses:
#
# **1. The weights can be made again.** Divide by a sum, or subtract its log: the same.
#
# $$p_j = \frac{e^{s_j}}{e^{\mathrm{lse}}} = e^{s_j - \mathrm{lse}}$$
#
# So a backward pass needs no stored weights, T_q · T_k numbers per head: it makes them again from
# the scores, which are q times k, and lse, T_q numbers per head. That is how tiled attention
# (notebook 21) saves its memory.

# %%
rng = np.random.default_rng(0)
scores = 30 * rng.normal(size=(4, 512, 512))  # H, T_q, T_k
weights, cache = softmax_forward(scores)
again = np.exp(scores - cache.lse[..., None])
print(f"largest difference {np.abs(again - weights).max():.0e}")
print(f"bytes: weights {weights.nbytes:,}, lse {cache.lse.nbytes:,}")

# %% [markdown]
# **2. Log-probabilities.** $\log p_j = s_j - \mathrm{lse}$, without ever forming $p_j$.
#
# > **Predict first.** Scores 0 and -800. The second weight is $e^{-800}$. What is its log, if the
# > weight is computed first? And what is s - lse?

# %%
scores = np.array([0.0, -800.0])
weights, cache = softmax_forward(scores)
with np.errstate(divide="ignore"):
    print("log of the weights:", np.log(weights))
print("scores - lse:      ", scores - cache.lse)

# %% [markdown]
# A loss of 800 tells a model something; an infinite one ends the training.
#
# **3. Its gradient is softmax.**
# $\;\partial\,\mathrm{lse} / \partial s_j = e^{s_j} / \sum_l e^{s_l} = p_j$:

# %%
gradcheck(
    lambda scores: softmax_forward(scores)[1].lse,
    lambda d_lse, scores: (d_lse[..., None] * softmax_forward(scores)[0],),
    {"scores": rng.normal(size=(3, 5))},
)

# %% [markdown]
# ## A row that may attend to nothing
#
# A mask hides cells: their scores become -inf, $e^{-\infty} = 0$. The shift is unharmed as long as
# one visible cell is left. But rows without any do occur. Padding *in front* of a short sequence,
# together with a causal mask, makes them:

# %%
is_token = np.array([False, False, True, True, True])  # two places of padding, then three tokens
mask = causal_mask(5) & is_token
matrices({"causal": causal_mask(5), "and not padding": mask}, title="Rows 0 and 1 see nothing")

# %% [markdown]
# > **Predict first.** In such a row all scores are -inf. What is the largest of them, and what is
# > -inf - (-inf)?

# %%
scores = rng.normal(size=(5, 5))
with np.errstate(all="ignore"):
    broken = stable_softmax(np.where(mask, scores, -np.inf))
broken

# %% [markdown]
# NaN, and it does not stay there. Two rows of weights are enough to spoil the gradient of every
# value, for `d_v = weights.T @ d_out` sums over all queries:

# %%
d_out = rng.normal(size=(5, 3))  # T_q, d_v
print("rows of d_v with NaN:", np.isnan(broken.T @ d_out).any(axis=-1).sum(), "of 5")

# %% [markdown]
# The popular way out is a large negative number instead of -inf, added to the hidden scores.
#
# > **Predict first.** What are the weights of row 0, where *every* score has got -1e9 added: in
# > float64, float32, float16? Think of shift invariance, and of how many digits each has.

# %%
for kind in kinds:
    with np.errstate(all="ignore"):
        added = scores.astype(kind) + np.where(mask, 0, -1e9).astype(kind)
        print(f"{kind.__name__}, row 0: {stable_softmax(added)[0]}")
print("without any mask:", stable_softmax(scores)[0])

# %% [markdown]
# Three dtypes, three answers. float64 has digits enough to keep the scores beside -1e9: the shift
# takes it away again, as if nothing were masked. float32 rounds the scores away: a plain mean.
# float16 knows no -1e9: -inf, and NaN.
#
# The library decides from the *mask* who sees anything, and gives such a row weights 0 and
# $\mathrm{lse} = \log 0 = -\infty$. Hidden cells are *selected* with `where`, nothing is added:

# %%
weights, cache = softmax_forward(scores, mask=mask)
matrices(
    {
        "mask": mask,
        "weights": weights,
        "sum": weights.sum(axis=-1, keepdims=True),
        "lse": cache.lse[:, None],
    },
    title="softmax_forward with rows that see nothing",
)

# %% [markdown]
# The order matters: hide *first*, then take the maximum. Otherwise a large hidden score pushes every
# visible power down to 0, and 0/0 is back:

# %%
scores = np.array([[1.0, 2.0, 3000.0]])  # the last one is hidden
visible = np.array([[True, True, False]])
with np.errstate(all="ignore"):
    powers = np.where(visible, np.exp(scores - scores.max()), 0)
    print("maximum first:", powers / powers.sum())
print("hide first:   ", softmax_forward(scores, mask=visible)[0])

# %% [markdown]
# ## Temperature: not invariant to a factor
#
# A shift changes nothing; a factor does. $\mathrm{softmax}(s / \tau)$ with a *temperature* $\tau$:
#
# > **Predict first.** What is left of a row of four weights as $\tau \to 0$, and as
# > $\tau \to \infty$?

# %%
scores = np.array([2.0, 1.0, 0.0, 1.5])
temperatures = [0.001, 0.2, 0.5, 1.0, 2.0, 10.0, 1000.0]
matrices(
    {"weights": stable_softmax(np.divide.outer(scores, temperatures).T)},
    row_labels=[f"τ = {temperature:g}" for temperature in temperatures],
    column_labels=[f"score {score:g}" for score in scores],
    title="One row of scores at seven temperatures",
)

# %% [markdown]
# From all on the largest to a plain mean. $\tau = 0.001$ makes scores of 2000, and the stable form
# takes them. The scale $1/\sqrt{d_k}$ of notebook 06 is a temperature of $\sqrt{d_k}$.
#
# ## Half precision
#
# The shift keeps every *power* small. The *sum* is at most T_k, and that can be too much for
# float16:

# %%
scores = np.zeros((1, 70_000), dtype=np.float16)  # 70000 keys, all alike
with np.errstate(all="ignore"):
    print("in float16:     ", stable_softmax(scores)[0, 0])
weights, cache = softmax_forward(scores)
print("softmax_forward:", weights[0, 0], weights.dtype, "- computed in", cache.weights.dtype)
print("1 / 70000 =     ", 1 / 70_000)

# %% [markdown]
# So the library computes float16 in float32 and rounds the result.
#
# ## A bias that does nothing
#
# Shift invariance has a curious consequence. A bias on the keys adds to a query's scores
#
# $$q_i \cdot (k_j + b) = q_i \cdot k_j + q_i \cdot b,$$
#
# the same number for every key j. So $b_k$, which many layers have and train, changes no weight.
# Forget it, and no output differs; its true gradient is 0.
#
# > **Predict first.** RoPE turns every key by an angle that depends on its position, *after* the
# > bias was added. Does the bias still do nothing?

# %%
x = rng.normal(size=(1, 6, 8))
for rope in (None, RopeOptions()):
    layer = MultiHeadAttention(embed_dim=8, num_heads=2, rope=rope, rng=0)
    before = layer(x)
    layer.params["b_k"] = 5 * rng.normal(size=8)
    change = np.abs(layer(x) - before).max()
    layer.backward(rng.normal(size=x.shape))
    print(f"RoPE: {rope is not None!s:5}  output changes by {change:.1e}", end="")
    print(f"  largest |d_b_k| {np.abs(layer.grads['b_k']).max():.1e}")

# %% [markdown]
# With RoPE the turned bias differs from key to key, and counts. Without it, changes are rounding
# only.
#
# ## The wrong axis
#
# `scores` is (B, H, T_q, T_k): each *query* distributes its attention over the *keys*, the last
# axis. Any other axis gives the same shape. Sums tell:
#
# > **Predict first.** Softmax over the last axis of (2, 3, 4, 5) makes 2 · 3 · 4 sums of 1. What
# > are the sums along T_q, on average?


# %%
def wrong_softmax(scores, axis):
    powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


scores = rng.normal(size=(2, 3, 4, 5))  # B, H, T_q, T_k: all different
axes = {"T_k": -1, "T_q": -2, "H": 1, "all but B": (1, 2, 3)}
lines = []
for name, axis in axes.items():
    weights = wrong_softmax(scores, axis)
    sums = [weights.sum(axis=over) for over in axes.values()]
    lines.append([name, *(f"{s.min():.2f} to {s.max():.2f}" for s in sums)])
Table("Sums of the weights", ["softmax over", *(f"sum over {name}" for name in axes)], lines)

# %% [markdown]
# In each line one cell is 1.00 to 1.00: that is the axis softmax ran over. For the right one the
# sums along T_q are anything; on average $T_q / T_k = 4/5$, since T_q rows of 1 are spread over T_k
# columns:

# %%
weights, _ = softmax_forward(scores)
print(f"{weights.sum(axis=-2).mean():.4f}")

# %% [markdown]
# One line in a test, `weights.sum(axis=-1)`, should give 1 in every row that sees something and 0
# in the others. It also finds a mask that came after softmax:

# %%
scores, causal = rng.normal(size=(4, 4)), causal_mask(4)
print("mask after softmax: ", np.where(causal, stable_softmax(scores), 0).sum(axis=-1))
print("mask inside softmax:", softmax_forward(scores, mask=causal)[0].sum(axis=-1))

# %% [markdown]
# ## Exercise: a stable, masked softmax
#
# Write it with `lse`. The check has scores in the thousands, a row far below all others, hidden
# cells far above what is visible, rows that see nothing, and scores without a mask. Before it
# compares numbers, it asks whether rows that see something sum to 1 and hidden weights are 0.
#
# More of this kind in `mha-numpy exercises`: `softmax`, the same without lse; `museum-nan-row` and
# `museum-float-mask`, two bugs that shipped.


# %% tags=["exercise"]
def my_softmax_with_lse(scores, mask):
    """(..., T_q, T_k) -> weights (..., T_q, T_k), lse (..., T_q); softmax along the last axis.

    mask: bool, of the scores' shape, True = may attend; or None, which hides nothing.
    A hidden cell has weight 0, however large its score. A row that sees nothing has weights 0
    and lse -inf. Scores may be in the thousands, one row far from another: nothing becomes NaN,
    and in the other rows lse is finite.
    """
    ...  # your code


# %% tags=["check"]
check("softmax-with-lse", my_softmax_with_lse)

# %% tags=["hint"]
# hint("softmax-with-lse")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - $e^x$ is inf above 709.78, 88.72 and 11.09 in float64, float32 and float16, and 0 below -745,
#   -104 and -17. A row's largest score decides.
# - Softmax is shift invariant. Subtract the row's own maximum: exponents at most 0, sum between 1
#   and T_k.
# - $\mathrm{lse} = m + \log \sum e^{s - m}$ rebuilds the weights, gives log-probabilities, and has
#   softmax as its gradient.
# - Hide with `where` and -inf, before the maximum. A row that sees nothing: weights 0, lse -inf,
#   read off the mask.
# - A bias on the keys shifts rows and so does nothing, unless RoPE comes between. A factor is no
#   shift: temperature matters.
# - Sums along the axes say over which one softmax ran.
#
# **In the code:** `softmax_forward` in `mha_numpy/core/softmax.py`. **Derivation:**
# docs/softmax.md.
#
# **Reference:** Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 4.1; Dao 2023,
# *FlashAttention-2*, section 3.1, for lse.
#
# **Next:** [04, masks](08_masks.ipynb). The softmax that meets its row
# in pieces (*online softmax*) is in notebook 21.
