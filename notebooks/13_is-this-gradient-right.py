# %% [markdown]
# # 13 · Is this gradient right?
#
# The function below claims to be attention's backward pass. It returns zeros for `d_q` and `d_k`, so no head could ever
# learn where to look. Let's run a *gradient check* on it. It compares every number of a gradient with a slope that it
# measures on forward:

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    ConfigError,
    attention_backward,
    attention_forward,
    gradcheck,
)
from mha_numpy.show.pictures import line_chart, matrices
from mha_numpy.teach.exercises import check, hint


# %%
def values_only(g, cache):
    """Treat the weights as constants: d_q and d_k are 0."""
    grads = attention_backward(g, cache)
    return grads._replace(d_q=0 * grads.d_q, d_k=0 * grads.d_k)


rng = np.random.default_rng(8)
# random, T = 1
one_token = {name: rng.normal(size=(1, 4)) for name in "qkv"}
gradcheck(attention_forward, values_only, one_token)

# %% [markdown]
# Every line says "ok", and the check isn't wrong about these numbers. The *example* is to blame, and you'll soon see
# why.
#
# **By the end you can** check any gradient using nothing but the forward pass, and choose an example that exposes a
# wrong backward pass.
#
# ## A gradient is a slope
#
# The loss L is one number, here a weighted sum of the output of a small random head. Let's move one number of q and see
# how L changes:

# %%
q, k = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
v, d_heads = rng.normal(size=(4, 5)), rng.normal(size=(3, 5))
_, cache = attention_forward(q, k, v)
d_q = attention_backward(d_heads, cache).d_q


def loss(q):
    """Run forward in its plainest form, down to one number."""
    powers = np.exp(q @ k.T / np.sqrt(2))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return (weights @ v * d_heads).sum()


unit = np.zeros_like(q)
unit[1, 0] = 1  # the number that moves: q[1, 0]
moves = np.linspace(-2, 2, 41)
lines = {
    "L": np.array([loss(q + move * unit) for move in moves]),
    "tangent": loss(q) + d_q[1, 0] * moves,
}
title = "The loss over one number, and the slope d_q[1, 0]"
looks = {"x_label": "added to q[1, 0]", "y_label": "L"}
line_chart(moves, lines, title=title, **looks)

# %% [markdown]
# The tangent has the slope that backward returned, and it touches the curve where nothing is added. So we can also
# measure this slope, without any derivation: move the number by h to both sides, and divide the change in L by 2h.
# There is no calculus in this, so a mistake in our derivation can't hide here too. This is the *central difference*:
#
# $$\frac{\partial L}{\partial x} \approx \frac{L(x + h) - L(x - h)}{2h}$$

# %%
numeric, h = np.zeros_like(q), 1e-5
for index in np.ndindex(q.shape):
    unit = np.zeros_like(q)
    unit[index] = 1
    up, down = loss(q + h * unit), loss(q - h * unit)
    numeric[index] = (up - down) / (2 * h)
panels = {
    "backward's d_q": d_q,
    "measured": numeric,
    "difference": d_q - numeric,
}
title = "Twelve calls of forward against one of backward"
matrices(panels, shared=False, title=title)

# %% [markdown]
# ## How small should h be?
#
# Two errors compete. L isn't a straight line, which causes an error that falls with $h^2$ (*truncation*). And both
# losses are rounded at about the 16th digit. We divide their difference by 2h, so this error grows with $1/h$
# (*rounding*).
#
# > **Predict first.** Which h is best in float64: 1e-2, 1e-5, 1e-8 or 1e-12?
#
# <details><summary>Answer</summary>
#
# 1e-5 is best. Roughly, the two errors are equal where $h^2 = 10^{-16} / h$, so $h = 10^{-16/3} \approx$ 5e-6. In
# float32, which has 7 digits, the same rule leaves only four or five. That's why we check gradients in float64.
#
# </details>


# %%
def one_sided(unit, h):
    return (loss(q + h * unit) - loss(q)) / h


def central(unit, h):
    return (loss(q + h * unit) - loss(q - h * unit)) / (2 * h)


def complex_step(unit, h):
    return loss(q + 1j * h * unit).imag / h


units = np.eye(q.size).reshape(-1, *q.shape)  # one for each number


def largest_error(slope, h):
    """How far the slopes are from d_q, at worst."""
    numeric = np.array([slope(unit, h) for unit in units])
    error = np.abs(numeric.reshape(q.shape) - d_q).max()
    return max(error, 1e-17)  # 0 has no logarithm


slopes = {
    "one-sided": one_sided,
    "central": central,
    "complex step": complex_step,
}
sizes, errors = 10.0 ** np.arange(-13, 0), {}
for name, slope in slopes.items():
    worst = [largest_error(slope, h) for h in sizes]
    errors[name] = np.array(worst)
looks = {"x_label": "step h", "y_label": "largest error in d_q"}
looks |= {"log_x": True, "log_y": True}
title = "How wrong is a numerical gradient?"
line_chart(sizes, errors, title=title, **looks)

# %% [markdown]
# ## The complex step
#
# In the chart, the third line doesn't rise again on the left. This method moves x by an *imaginary* amount, ih. Then
# Taylor's series gives
#
# $$f(x + ih) = f(x) + ih f'(x) - \tfrac{h^2}{2} f''(x) - \dots \quad\Longrightarrow\quad f'(x) = \frac{\operatorname{Im} f(x + ih)}{h} + O(h^2)$$
#
# We subtract nothing, so no digits are lost, and even h = 1e-30 is fine. The price is that forward must carry the
# imaginary part all the way.
#
# > **Predict first.** At x = -2, for which of these is the slope right: $x^2$, $e^x$, `abs(x)`, `np.sqrt(x * x)`, `x *
# > np.conj(x)`?
#
# <details><summary>Answer</summary>
#
# `abs(x)` and `x * np.conj(x)` lose the imaginary part, so the slope is 0, without any warning. The other three are
# right. (In plain Python, a comparison such as `x > 0` raises an error.)
#
# </details>

# %%
functions = {
    "x ** 2": (lambda x: x**2, -4),
    "exp(x)": (np.exp, np.exp(-2)),
    "abs(x)": (abs, -1),
    "sqrt(x * x)": (lambda x: np.sqrt(x * x), -1),
    "x * conj(x)": (lambda x: x * np.conj(x), -4),
}
found = []
for f, true_slope in functions.values():
    found.append([true_slope, np.imag(f(-2 + 1e-30j)) / 1e-30])
labels = {
    "row_labels": list(functions),
    "column_labels": ["true slope", "complex step"],
    "title": "Where the complex step fails",
}
matrices({"at x = -2": np.array(found)}, **labels)

# %% [markdown]
# `gradcheck` moves every number of every input by both methods, central differences and complex steps, with a random
# upstream gradient. The last column shows the largest error as a share of the largest gradient. If forward drops the
# imaginary part, the report says so.

# %%
inputs = {"q": q, "k": k, "v": v}
gradcheck(attention_forward, attention_backward, inputs)

# %% [markdown]
# ## What hides mistakes
#
# Here are six backward functions for attention, each with a different mistake that people really make. We run the same
# full check on all of them, with seven different examples.


# %%
def out_of_order(g, cache):
    """Split g into heads with only a reshape."""
    mixed = g.swapaxes(1, 2).reshape(g.shape)
    return attention_backward(mixed, cache)


def divided(g, cache):
    return attention_backward(g / len(g), cache)


def rebuilt(g, cache, **options):
    """Compute the weights again, with only these options."""
    q, k, v = cache.inputs.q, cache.inputs.k, cache.inputs.v
    _, again = attention_forward(q, k, v, **options)
    return attention_backward(g, again)


def no_mask(g, cache):
    return rebuilt(g, cache, bias=cache.inputs.bias)


def no_bias(g, cache):
    return rebuilt(g, cache, mask=cache.inputs.visible)


def wrong_width(g, cache):
    """Scale by 1/sqrt(d_v), where forward has 1/sqrt(d_k)."""
    grads = attention_backward(g, cache)
    factor = np.sqrt(grads.d_q.shape[-1] / grads.d_v.shape[-1])
    d_q, d_k = factor * grads.d_q, factor * grads.d_k
    return grads._replace(d_q=d_q, d_k=d_k)


wrong = {
    "d_q, d_k = 0": values_only,
    "mixed heads": out_of_order,
    "divided by B": divided,
    "forgot mask": no_mask,
    "forgot bias": no_bias,
    "1/sqrt(d_v)": wrong_width,
}

# %% [markdown]
# > **Predict first.** The first example has different sizes, a mask, a bias and a random upstream gradient. Each of the
# > others changes one thing. Which one misses five of the six mistakes?
#
# <details><summary>Answer</summary>
#
# T = 1 misses five. A single key has weight 1, whatever the scores are, so `d_q` and `d_k` *are* 0. Mask and bias
# change nothing, and there are no tokens to mix up with heads. The other examples miss one mistake each. With ones as
# the upstream gradient, shuffling it changes nothing. A single sequence can't show a division by B, and
# with d_k = d_v you can't see which of the two was taken.
#
# </details>

# %%
from functools import partial


def catches(
    backward, B=2, T_q=4, T_k=5, d_v=6, ones=False, **changed
):
    """Does the check, on one example, find a mistake?"""
    rng = np.random.default_rng(0)
    shapes = {"q": (T_q, 2), "k": (T_k, 2), "v": (T_k, d_v)}
    inputs = {
        name: rng.normal(size=(B, 3, *shape))
        for name, shape in shapes.items()
    }
    bias = rng.normal(size=(T_q, T_k))
    options = {"bias": bias, "is_causal": True} | changed
    forward = partial(attention_forward, **options)
    g = np.ones((B, 3, T_q, d_v)) if ones else None  # None: random
    return not gradcheck(forward, backward, inputs, d_out=g)


examples = {
    "all different": {},
    "g of ones": {"ones": True},
    "B = 1": {"B": 1},
    "T = 1": {"T_q": 1, "T_k": 1},
    "no mask": {"is_causal": False},
    "bias of 0": {"bias": np.zeros((4, 5))},
    "d_k = d_v": {"d_v": 2},
}
caught = [
    [catches(backward, **example) for example in examples.values()]
    for backward in wrong.values()
]
labels = {
    "row_labels": list(wrong),
    "column_labels": list(examples),
    "meaning": ("caught", "missed"),
    "title": "One check, seven examples",
}
matrices({"caught": np.array(caught)}, **labels)

# %% [markdown]
# Only the first example catches all of them. (For softmax by itself, ones hide even more, as notebook 11 shows.)
#
# So let all sizes differ: equal ones hide every mistake that takes the wrong size. And a gradient that is truly 0 fools
# a popular measure of the error, $|a - n| / \max(|a|, |n|)$ for the analytic a and the numeric n. It becomes a ratio of
# two roundings and warns you where nothing is wrong. So `gradcheck` divides by the largest gradient of the whole set
# instead.
#
# ## Dropout: what it does to a row
#
# In training, many models set some of the weights to 0, each with probability p, and draw again in every step. This is
# *dropout*. The weights that are kept get multiplied by $1/(1-p)$. Here is one row of weights, and three such masks of
# 0 and $1/(1-p)$ for p = 0.4:
#
# > **Predict first.** The weights sum to 1. What do the three rows sum to after dropout?
# >
# > - all to 1
# > - all to 1 - p, which is 0.6
# > - each to a different number
# >
# > <!-- answer: each to a different number -->
#
# <details><summary>Answer</summary>
#
# They sum to 1.42, 1.17 and 0.25. The third mask drops the three largest weights, and nothing fills up the row
# afterwards. So the output is no longer a mean of the values: it comes out too large or too small.
#
# </details>

# %%
row, p = np.array([0.4, 0.3, 0.15, 0.1, 0.05]), 0.4
draw = np.random.default_rng(7)
masks = (draw.random((3, 5)) >= p) / (1 - p)
dropped = row * masks
panels = {
    "weights": row,
    "masks": masks,
    "weights * mask": dropped,
    "sum": dropped.sum(axis=-1, keepdims=True),
}
matrices(panels, title="One row, dropped three times")

# %% [markdown]
# So why this factor? Each number of the mask is 0 with probability p, and otherwise $1/(1-p)$. Its mean is
#
# $$p \cdot 0 + (1 - p) \cdot \frac{1}{1 - p} = 1$$
#
# Over many masks, then, the mean row is the plain row. The output is a sum of weights times values, so its mean is the
# plain output. A single output is off, and that's intended: the rest of the model shouldn't rely on any one weight.
#
# There are two other ways to drop. One leaves out the factor. The other hides *scores*, as a mask does, so softmax
# shares out the whole row among the keys that are left. Let's draw 100,000 masks and compare:

# %%
keep = draw.random((100_000, 5)) >= p
kept = np.maximum((row * keep).sum(-1, keepdims=True), 1e-9)
ways = {
    "plain": row * np.ones_like(keep),
    "factor": row * keep / (1 - p),
    "no factor": row * keep,
    "scores": row * keep / kept,
}
values = np.array([1, 2, 3, 4, 5])
outputs = [rows @ values for rows in ways.values()]
panels = {
    "mean row": [rows.mean(axis=0) for rows in ways.values()],
    "output: mean, spread": [(o.mean(), o.std()) for o in outputs],
}
panels = {name: np.array(panel) for name, panel in panels.items()}
title = "Over 100,000 masks, with the values 1 to 5"
matrices(panels, row_labels=list(ways), shared=False, title=title)

# %% [markdown]
# - **factor**: the mean row is the plain row, and the mean output is the plain 2.1. A single output misses it by about
#   0.8, the spread.
# - **no factor**: everything is 0.6 times as large.
# - **scores**: nearly every single row sums to 1 (in 1% of the draws no key is left, and the row is 0). But their mean
#   isn't the plain row, because 0.4 has become 0.33, and 0.05 has become 0.08. The row is divided by what was kept, and
#   a large weight makes this sum large itself.
#
# After training, `layer.eval()` switches dropout off, and every row is the plain one. With the factor, that's the mean
# of the rows on which the later layers were trained. Without it, the rows suddenly become $1/0.6 \approx 1.67$ times as
# large as that mean. In an experiment with a small model and p = 0.5, all that dropout had gained on unseen text was
# lost in this way, and multiplying the rows by 1 - p brought it back (`mha-numpy experiment dropout`).
#
# And the gradient? Forward now draws at random, so let's ask `gradcheck`:


# %%
def attend_and_drop(q, k, v):
    mask = (draw.random((3, 4)) >= p) / (1 - p)
    return attention_forward(q, k, v, dropout_mask=mask)


try:
    gradcheck(attend_and_drop, attention_backward, inputs)
except ConfigError as error:
    print(error)

# %% [markdown]
# A slope compares two outputs. With a new mask for each, their difference says nothing about q. So `attention_forward`
# never draws. You pass the mask in, and it is the same in every call, and in backward. (A *layer* with `dropout_p=0.4`
# draws its masks, but only in training.)

# %%
mask = (draw.random((3, 4)) >= p) / (1 - p)
fixed = partial(attention_forward, dropout_mask=mask)
gradcheck(fixed, attention_backward, inputs)

# %% [markdown]
# ## Exercise: a backward, and its proof
#
# What happens to a gradient on its way back through dropout? Write this step. Then test it with `gradcheck` and your
# own example, *before* you run the cell with `check`. Forward is `lambda w: w * keep / (1 - p)`, with a `keep` that you
# draw once. Backward gets the upstream gradient and w.
#
# To practise more, look in `mha-numpy exercises`: in `break-my-attention` your tests have to catch the mistakes, and
# `museum-jacobian` is a bug that shipped.


# %% tags=["exercise"]
def my_dropout_backward(d_dropped, keep, p):
    """(B, H, T_q, T_k), bools of this shape, a float from 0 to
    below 1 -> the gradient of w.

    Forward was w * keep / (1 - p).
    """
    ...  # your code


# %% tags=["check"]
check("dropout-backward", my_dropout_backward)

# %% tags=["hint"]
# hint("dropout-backward")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now say why the first check was silent, and choose an example on which it isn't. A gradient is a slope, and
# forward is all you need to measure it: by central differences near h = 1e-5 in float64, or by complex steps of 1e-30.
# A check is only as good as its example, so take a random upstream gradient, T > 1, B > 1, different sizes, a mask and
# a bias. Dropout multiplies the weights by a mask whose numbers are 1 on average, and backward multiplies by the same
# mask, so it has to stay fixed while you check.
#
# **In the code:** `gradcheck` in `mha_numpy/checking/gradients.py`; dropout of weights is step 5 in docs/attention.md.
#
# **Reference:** Srivastava et al. 2014, *Dropout: a simple way to prevent neural networks from overfitting*; Squire
# and Trapp 1998, *Using complex variables to estimate derivatives of real functions*.
#
# **Next:** [14, multi-head backward](14_multi-head-backward.ipynb).
