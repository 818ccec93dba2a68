# %% [markdown]
# # 06 · Why the square root of d_k
#
# Attention divides its scores by the square root of d_k, the width of a head. What happens if we don't? Below, we train
# the same small model three times to say 12 digits in reverse. Its one head is 64 wide, and all runs start from the
# same random params. They differ only in the *scale*, the number that we multiply the scores by.
#
# **By the end you can** say why the divisor is a square root, what goes wrong without it, and which
# gradients it appears in.

# %% tags=["hide-input"]
from functools import partial

import numpy as np

from mha_numpy import trace
from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.train import AdamW, fit, loss_and_gradients

# %%
from mha_numpy.models.train.tasks import Reverse
from mha_numpy.show.pictures import line_chart, matrices
from mha_numpy.teach.exercises import check, hint

rules = {
    "no scale": lambda d_k: 1.0,
    "1/sqrt(d_k)": lambda d_k: 1 / np.sqrt(d_k),
    "1/d_k": lambda d_k: 1 / d_k,
}
small = {"num_heads": 1, "num_layers": 1, "is_causal": False}
run = {"max_norm": 1.0, "progress": False, "rng": 0}


def losses(scale, start=1.0, width=64, steps=60):
    """Train with this scale, and with w_q times `start`."""
    model = AttentionOnlyLM(10, 12, embed_dim=width, rng=0, **small)
    head = model.attentions[0]
    head.params["w_q"] = start * head.params["w_q"]
    head.forward = partial(head.forward, scale=scale)
    adam = AdamW(model.astype(np.float32), 3e-3)
    draw = partial(Reverse().draw_batch, size=32)
    history = fit(model, draw, steps=steps, optimizer=adam, **run)
    return np.array(history.losses)


# a few seconds
curves = {name: losses(rule(64)) for name, rule in rules.items()}
looks = {"x_label": "steps", "y_label": "loss"}
line_chart(np.arange(60), curves, title="Three scales", **looks)

# %% [markdown]
# Without a scale, the head is still far from its goal when the other two have arrived. The rest of this notebook
# explains why. (On this easy task $1/d_k$ does well too.)
#
# ## A dot product is a sum of d_k terms
#
# A score compares a query with a key by adding up d_k products:
#
# $$q \cdot k = \sum_{c=1}^{d_k} q_c\,k_c$$
#
# At the start of training, all these numbers are random. Let's assume that they are independent, with mean 0 and
# variance 1. (If the tokens have that, a new layer of ours keeps it; PyTorch's `nn.MultiheadAttention` halves it.) Then
# each product has mean 0 and variance
#
# $$\mathrm{Var}[q_c k_c] = \mathbb{E}[q_c^2]\,\mathbb{E}[k_c^2] - 0^2 = 1.$$
#
# Variances of independent terms add up, so
#
# $$\mathrm{Var}[q \cdot k] = d_k, \qquad \text{standard deviation} = \sqrt{d_k}.$$
#
# > **Predict first.** q and k have 64 such numbers each. What is a typical size of q · k?
# >
# > - 1
# > - 8
# > - 64
# >
# > <!-- answer: 8 -->
#
# <details><summary>Answer</summary>
#
# It's 8, the square root of 64. The terms have random signs and mostly cancel each other.
#
# </details>

# %%
rng = np.random.default_rng(0)
q, k = rng.normal(size=(2, 20_000, 64))
dots = (q * k).sum(axis=-1)  # one for each of 20,000 pairs
print(f"mean {dots.mean():.2f}, variance {dots.var():.1f}")
print(f"standard deviation {dots.std():.2f}")

# %% [markdown]
# ## Divide by what?
#
# Dividing a quantity by a number divides its variance by the square of that number.
#
# > **Predict first.** The variance of q · k is d_k. Which divisor makes it 1 at every width? And what variance is left
# > if you divide by d_k?
#
# <details><summary>Answer</summary>
#
# The divisor is $\sqrt{d_k}$, because its square is d_k. Dividing by d_k leaves a variance of $d_k / d_k^2 = 1/d_k$.
#
# </details>

# %%
widths = 2 ** np.arange(11)  # d_k = 1, 2, 4, ..., 1024


def draw_rows(d_k):
    """Random q and k of 250 sequences, 16 tokens each."""
    return np.random.default_rng(d_k).normal(size=(2, 250, 16, d_k))


def by_rule(measure):
    """For each rule, measure(d_k, scale) at all widths."""
    return {
        name: np.array([measure(d, rule(d)) for d in widths])
        for name, rule in rules.items()
    }


def chart(lines, title, y_label, log_y=True):
    looks = {"title": title, "x_label": "d_k", "y_label": y_label}
    looks |= {"log_x": True, "log_y": log_y}
    return line_chart(widths, lines, **looks)


pairs = {d: draw_rows(d) for d in widths}
products = {}  # for each width, (250, 16, 16)
for d, (q, k) in pairs.items():
    products[d] = q @ k.swapaxes(-1, -2)


def variance(d_k, scale):
    return (scale * products[d_k]).var()


chart(by_rule(variance), "Variance of the scores", "variance")

# %% [markdown]
# Only the square root keeps the variance at 1.
#
# ## What large scores do to softmax
#
# Softmax turns *differences* of scores into *ratios* of weights: $p_i / p_j = e^{s_i - s_j}$. Take d_k = 64 and no
# scale. The difference of two scores has twice the variance of one, so it is typically $\sqrt 2 \cdot 8 \approx 11.3$.
# Then one weight is $e^{11.3}$ times the other, a factor of about 80,000. With the scale, the difference is 1.4 and the
# factor is 4.
#
# > **Predict first.** We multiply eight random scores by larger and larger numbers. What do their weights look like
# > when the scores are very small? And when they are very large?
#
# <details><summary>Answer</summary>
#
# When the scores are very small, the weights are nearly equal, 1/8 each. When they are very large, one key gets the
# whole weight. Such a softmax is called *saturated*.
#
# </details>

# %%
from mha_numpy import softmax_backward, softmax_forward

sizes = [0.125, 0.5, 1, 2, 8, 32]  # standard deviations
row = np.random.default_rng(3).normal(size=8)
weights, _ = softmax_forward(np.outer(sizes, row / row.std()))
labels = {
    "row_labels": [f"std {size:g}" for size in sizes],
    "column_labels": [f"key {j}" for j in range(8)],
}
title = "The same random scores, scaled up"
matrices({"weights": weights}, **labels, title=title)

# %% [markdown]
# **Entropy** measures in one number how evenly a row spreads its weight. For 16 keys it is 4 bits if all weights are
# equal ($2^4 = 16$), and 0 if one key has everything:
#
# $$\text{entropy}(p) = -\sum_j p_j \log_2 p_j$$


# %%
def entropy(d_k, scale):
    """Bits in a row of weights, on average over 4000 rows."""
    weights, _ = softmax_forward(scale * products[d_k])
    logs = np.log2(np.where(weights > 0, weights, 1))
    return -(weights * logs).sum(axis=-1).mean()


title = "Entropy of random weights, 16 keys"
chart(by_rule(entropy), title, "bits", log_y=False)

# %% [markdown]
# Without a scale, a wide head starts with a hard choice of *one random key*, before it has learned anything.
#
# ## The gradient that gets through softmax
#
# A hard choice isn't bad in itself, and a trained head may need one. But a head must also be able to leave a wrong
# choice. Let $g$ be the gradient that arrives at the weights of one row (`d_weights`), and $\bar s$ the gradient that
# softmax passes on to the scores (`d_scores`). Notebook 11 derives
#
# $$\bar s_j = p_j \Big( g_j - \sum_l p_l\, g_l \Big)$$
#
# > **Predict first.** Take a saturated row, p = (0, 1, 0), and any g. What is $\bar s$?
#
# <details><summary>Answer</summary>
#
# It's 0 everywhere. Where $p_j = 0$, the factor in front is 0. Where $p_j = 1$, the bracket is $g_j - g_j$.
#
# </details>

# %%
g = np.array([[3.0, -5.0, 2.0]] * 5)
scores = np.outer([0.5, 1, 2, 8, 64], [0.0, 1.0, -1.0])
weights, cache = softmax_forward(scores)
d_scores = softmax_backward(g, cache).d_scores
panels = {
    "scores": scores,
    "weights": weights,
    "d_scores": d_scores,
}
title = "Five rows, more and more saturated"
matrices(panels, shared=False, title=title)

# %% [markdown]
# **A saturated softmax passes no gradient.** Let's measure this on 4000 random rows at each width:


# %%
def row_norms(d_k, scale):
    """Norms of the rows of d_scores and of d_q: (2, 4000)."""
    _, cache = softmax_forward(scale * products[d_k])
    g = np.random.default_rng(1).normal(size=(250, 16, 16))
    d_scores = softmax_backward(g, cache).d_scores
    both = d_scores, scale * d_scores @ pairs[d_k][1]
    return [np.linalg.norm(d_x, axis=-1).ravel() for d_x in both]


norms = by_rule(row_norms)  # for each rule, (11, 2, 4000)
medians = {
    name: np.median(norm[:, 0], axis=-1)
    for name, norm in norms.items()
}
at_64 = medians["no scale"][6] / medians["1/sqrt(d_k)"][6]
print(f"d_k = 64: {at_64:.0%} of d_scores with the scale")
title = "What softmax lets through, in the median row"
chart(medians, title, "norm of a row of d_scores")

# %% [markdown]
# Without a scale, `d_scores` of a typical row **vanishes** as the head gets wider. That's the reason given in
# *Attention Is All You Need*: large dot products push softmax "into regions where it has extremely small gradients". At
# d_k = 64, a quarter is left.
#
# ## Does anything explode?
#
# Many texts say that the scale "prevents exploding gradients". Softmax itself can't amplify a gradient, because it at
# least halves its norm (notebook 11). That leaves one step, from the scores to the query: $\bar q = \text{scale} \cdot
# \bar s\, k$. Without a scale, nothing in it makes up for the norm of a key, which is about $\sqrt{d_k}$.
#
# > **Predict first.** As d_k grows, less gets through softmax in most rows, but it is multiplied by something larger.
# > What happens to the median row of `d_q`, and to the largest one?
#
# <details><summary>Answer</summary>
#
# Unscaled, the median first *grows*, to almost three times the scaled one, because longer keys more than make up for
# what softmax loses. Only from 128 on is it smaller, and at 1024 nothing is left. The largest row grows like
# $\sqrt{d_k}$, because in a few rows two keys are level.
#
# </details>

# %%
lines = {}
for name in ("no scale", "1/sqrt(d_k)"):
    d_q = norms[name][:, 1]  # (11, 4000)
    lines[f"{name}: largest"] = d_q.max(axis=-1)
    lines[f"{name}: median"] = np.median(d_q, axis=-1)
larger = norms["no scale"][6, 1] > norms["1/sqrt(d_k)"][6, 1]
print(f"d_k = 64: larger without the scale in {larger.mean():.0%}")
title = "The gradient of a query, 4000 random queries"
chart(lines, title, "norm of a row of d_q")

# %% [markdown]
# So the honest version is: **Without the scale, the gradients of queries grow apart: in a very wide head most vanish, a
# few are about $\sqrt{d_k}$ times as large, but nothing explodes.** And the head of the first chart?


# %%
def first_step(scale):
    """Norms of the rows of d_q, and of the gradient of w_q."""
    model = AttentionOnlyLM(10, 12, embed_dim=64, rng=0, **small)
    head = model.attentions[0]
    head.forward = partial(head.forward, scale=scale)
    batch = Reverse().draw_batch(np.random.default_rng(0), 32)
    with trace() as t:
        loss_and_gradients(model, batch)
    d_q = np.linalg.norm(t["d_q"], axis=-1)
    return d_q, np.linalg.norm(head.grads["w_q"])


for name in ("no scale", "1/sqrt(d_k)"):
    d_q, d_w_q = first_step(rules[name](64))
    median = np.median(d_q)
    print(f"{name}: median d_q {median:.6f}, d_w_q {d_w_q:.2f}")

# %% [markdown]
# Most of its queries do lose their gradient, but that of `w_q` is *larger*, because a few queries speak for all. So it
# isn't short of gradient, and Adam hardly cares about size.
#
# $1/d_k$ errs on the other side. All weights start nearly equal, but `d_scores` still gets its gradient. In
# `mha-numpy experiment scale`, at width 64, its loss ends lower than with the root in all 15 runs, though at one of
# three rates by little. A narrower head:

# %%
for name in ("1/sqrt(d_k)", "1/d_k"):  # a few seconds
    end = losses(rules[name](16), width=16, steps=120)[-10:]
    print(f"width 16, {name}: loss {end.mean():.2f}")

# %% [markdown]
# So the root isn't the only good divisor, but $1/d_k$ isn't good at every width.
#
# ## The square root of d_k, not of D
#
# A common slip is to divide by the square root of D, the width of the whole model. One head can't show it, because
# then d_k = D. With D = 512, H = 8:

# %%
from mha_numpy import compare

H, T, d_k = 8, 5, 64
q, k = np.random.default_rng(0).normal(size=(2, H, T, d_k))
dots = q @ k.swapaxes(-1, -2)
right, wrong = dots / np.sqrt(d_k), dots / np.sqrt(H * d_k)
compare(wrong, right, name="scores")

# %% [markdown]
# Each number is 0.354 times what it should be. That's $1/\sqrt 8$, or $1/\sqrt H$.
#
# ## Is the scale only about the start?
#
# We assumed that q and k are independent. Training ends that, because a query should match the keys that it needs. If q
# and k agree with a correlation $\rho$, the terms no longer cancel. Each is $\rho$ on average, so the scaled score is
# $\rho\, d_k / \sqrt{d_k} = \rho \sqrt{d_k}$ on average.


# %%
def matching_score(d_k, rho):
    """Mean of the scaled score of q with k, correlated by rho."""
    k, noise = np.random.default_rng(0).normal(size=(2, 2000, d_k))
    q = rho * k + np.sqrt(1 - rho**2) * noise  # variance 1 again
    return (q * k).sum(axis=-1).mean() / np.sqrt(d_k)


lines = {}
for rho in (0, 0.25, 0.5, 1):
    scores = [matching_score(d, rho) for d in widths]
    lines[f"ρ = {rho:g}"] = np.array(scores)
title = "A query and a key that agree"
chart(lines, title, "mean of q · k / sqrt(d_k)", log_y=False)

# %% [markdown]
# At d_k = 64, a modest $\rho = 0.5$ gives 4, so this pair is four standard deviations above the noise. A trained head
# can therefore choose sharply even with the scale in place.
#
# Is a good start enough? Without scaling, we divide `w_q` by 8 before training:

# %%
curves["no scale, w_q / 8"] = losses(1.0, start=1 / 8)
line_chart(np.arange(60), curves, title="A smaller start", **looks)

# %% [markdown]
# This head learns too, so much of it is the start. But a step of `w_q` now moves the scores 8 times as far. In the
# experiment, two of 15 such runs fail. Without either, eight fail, and with the scale, none.
#
# ## The scale in backward
#
# The scores are linear in q and in k, so the scale appears in *both* gradients. It doesn't touch v:
#
# $$\bar q = \text{scale} \cdot \bar s\,k, \qquad \bar k = \text{scale} \cdot \bar s^\top q$$
#
# > **Predict first.** Suppose you forget the scale in the backward pass, and d_k is 4. Which gradients are wrong, and
# > by what factor? Does the model still learn?
#
# <details><summary>Answer</summary>
#
# `d_q` and `d_k` are twice as large as they should be, and `d_v` is right. The directions are right too, so a model
# still learns. Only a comparison of numbers catches this mistake.
#
# </details>

# %%
from mha_numpy import attention_backward, attention_forward
from mha_numpy.core import step
from mha_numpy.show.pictures import backward_film

rng = np.random.default_rng(5)
q, d_out = rng.normal(size=(2, 5, 4))
k, v = rng.normal(size=(2, 7, 4))
with trace() as right:
    attention_backward(d_out, attention_forward(q, k, v)[1])
d_scores = right["d_scores"]
with trace() as forgotten:  # step gives an array its name
    step("d_scores", d_scores, "T_q T_k")
    step("d_q", d_scores @ k, "T_q d_k", "d_scores @ k")
    step("d_k", d_scores.T @ q, "T_k d_k", "d_scores.T @ q")
backward_film(forgotten, reference=right)

# %% [markdown]
# ## Exercise: scores, forward and backward
#
# Write both functions. For the backward, the check also differentiates forward numerically.
#
# To practise more: `masked-attention` and `museum-softcap` in `mha-numpy exercises`.


# %% tags=["exercise"]
def my_scores(q, k):
    """(B, H, T_q, d_k), (B, H, T_k, d_k) -> scaled scores (B, H,
    T_q, T_k).
    """
    ...  # your code


def my_scores_backward(d_scores, q, k):
    """d_scores (B, H, T_q, T_k) and both inputs of my_scores ->
    d_q, d_k, each like its input.
    """
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
# You can now explain the first chart. A dot product of d_k random terms has variance d_k. Without a scale, a wide head
# therefore starts saturated: one random key has nearly all the weight, most queries get little gradient, and the
# head learns slowly. Dividing by $\sqrt{d_k}$ makes the variance 1 at every width. Most of this is about the start of
# training: once q and k agree, scores grow like $\rho\sqrt{d_k}$. In backward, the scale appears in `d_q` and `d_k`.
#
# **In the code:** step 1 of `attention_steps` and of `attention_steps_backward` in `mha_numpy/core/attention.py`.
# **Derivation:** docs/attention.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.1 and its footnote 4; Yang et al. 2022,
# *Tensor Programs V*, on $1/d_k$.
#
# **Next:** [07, a stable softmax](07_a-stable-softmax.ipynb).
