# %% [markdown]
# # 13 · Is this gradient right?
#
# The function below claims to be the backward of attention. It returns zeros for q and for k, so no head could ever
# learn where to look. Let's run a gradient check on it, which compares it with forward, number by number:

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
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
# Every line says "ok", and the check is right. The *example* is to blame.
#
# **What you can do afterwards:** you can check any gradient with nothing but forward, and choose an example that no
# wrong backward passes.
#
# ## A gradient is a slope
#
# The loss L is one number, here a weighted sum of the output of a small random head. Let's move one number of q, and
# see how L changes:

# %%
q, k, v, d_heads = (
    rng.normal(size=shape)
    for shape in ((3, 2), (4, 2), (4, 5), (3, 5))
)
d_q = attention_backward(d_heads, attention_forward(q, k, v)[1]).d_q


def loss(q):
    """Run forward in its plainest form, down to one number."""
    powers = np.exp(q @ k.T / np.sqrt(2))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return (weights @ v * d_heads).sum()


unit = np.zeros_like(q)
unit[1, 0] = 1  # the number that moves: q[1, 0]
moves = np.linspace(-2, 2, 41)
curve = np.array([loss(q + move * unit) for move in moves])
tangent = loss(q) + d_q[1, 0] * moves
title = "The loss over one number, and the slope d_q[1, 0]"
x_label = "added to q[1, 0]"
line_chart(
    moves,
    {"L": curve, "tangent": tangent},
    title=title,
    x_label=x_label,
    y_label="L",
)

# %% [markdown]
# The tangent has the slope that backward returned, and it fits the curve. So we can measure a slope without any
# derivation: move the number by h to both sides, and divide the change of L by 2h. No calculus is involved, so no
# mistake of calculus can repeat itself. This is the *central difference*:
#
# $$\frac{\partial L}{\partial x} \approx \frac{L(x + h) - L(x - h)}{2h}$$

# %%
numeric, h = np.zeros_like(q), 1e-5
for index in np.ndindex(q.shape):
    unit = np.zeros_like(q)
    unit[index] = 1
    numeric[index] = (loss(q + h * unit) - loss(q - h * unit)) / (
        2 * h
    )
panels = {
    "backward's d_q": d_q,
    "measured": numeric,
    "difference": d_q - numeric,
}
matrices(
    panels,
    shared=False,
    title="Twelve calls of forward against one of backward",
)

# %% [markdown]
# ## How small should h be?
#
# Two errors are at work. L isn't a straight line, which costs an error that falls with $h^2$ (*truncation*). And both
# losses are rounded at about the 16th digit. We divide their difference by 2h, so this error grows with $1/h$
# (*rounding*).
#
# > **Predict first.** Which h is best in float64: 1e-2, 1e-5, 1e-8 or 1e-12?
#
# <details><summary>Answer</summary>
#
# 1e-5 is best. The two errors are equal where $h^2 = 10^{-16} / h$, so $h = 10^{-16/3} \approx$ 5e-6. In float32 the
# same rule leaves only four or five digits. That's why we check gradients in float64.
#
# </details>


# %%
def largest_error(slope, h):
    """Return how far a rule for slopes is from d_q, at worst over
    all numbers of q.
    """
    units = np.eye(q.size).reshape(-1, *q.shape)
    numeric = np.array([slope(unit, h) for unit in units]).reshape(
        q.shape
    )
    # 0 has no logarithm
    return max(np.abs(numeric - d_q).max(), 1e-17)


slopes = {
    "one-sided": lambda u, h: (loss(q + h * u) - loss(q)) / h,
    "central": lambda u, h: (
        (loss(q + h * u) - loss(q - h * u)) / (2 * h)
    ),
    "complex step": lambda u, h: loss(q + 1j * h * u).imag / h,
}
sizes = 10.0 ** np.arange(-13, 0)
errors = {
    name: np.array([largest_error(rule, h) for h in sizes])
    for name, rule in slopes.items()
}
looks = {
    "x_label": "step h",
    "y_label": "largest error in d_q",
    "log_x": True,
    "log_y": True,
}
line_chart(
    sizes, errors, title="How wrong is a numeric gradient?", **looks
)

# %% [markdown]
# ## The complex step
#
# The third line doesn't rise again on the left. It moves x by an *imaginary* amount, and then Taylor's series gives
#
# $$f(x + ih) = f(x) + ih f'(x) - \tfrac{h^2}{2} f''(x) - \dots \quad\Longrightarrow\quad f'(x) = \frac{\operatorname{Im} f(x + ih)}{h} + O(h^2)$$
#
# We subtract nothing, so nothing cancels, and h = 1e-30 is fine. There is a price: forward must carry the imaginary
# part all the way.
#
# > **Predict first.** At x = -2, which of these come out right: $x^2$, $e^x$, `abs(x)`, `np.sqrt(x * x)`, `x *
# > np.conj(x)`?
#
# <details><summary>Answer</summary>
#
# `abs(x)` and `x * np.conj(x)` lose the imaginary part and return 0 without a word. The other three are right. (In
# plain Python, a comparison such as `x > 0` raises an error.)
#
# </details>

# %%
functions = {
    "x ** 2": (lambda x: x**2, -4),
    "exp(x)": (np.exp, 0.1353),
    "abs(x)": (abs, -1),
    "sqrt(x * x)": (lambda x: np.sqrt(x * x), -1),
    "x * conj(x)": (lambda x: x * np.conj(x), -4),
}
found = [
    [true, np.imag(f(-2 + 1e-30j)) / 1e-30]
    for f, true in functions.values()
]
titles = {
    "row_labels": list(functions),
    "column_labels": ["true slope", "complex step"],
}
matrices(
    {"at x = -2": np.array(found)},
    **titles,
    title="Where the complex step fails",
)

# %% [markdown]
# `gradcheck` moves every number of every input by both methods, against a random upstream gradient. The last column
# shows the largest error as a share of the largest gradient. If forward drops the imaginary part, the report says so.

# %%
gradcheck(
    attention_forward, attention_backward, {"q": q, "k": k, "v": v}
)

# %% [markdown]
# ## What hides mistakes
#
# Here are five backwards of attention, wrong in five real ways. Six tests run the same full check on each of them, and
# differ only in their example.


# %%
def out_of_order(g, cache):
    """Split the upstream gradient into heads with nothing but a
    reshape.
    """
    return attention_backward(
        g.swapaxes(1, 2).reshape(g.shape), cache
    )


def rebuilt(g, cache, **options):
    """Compute the weights again, with only some of forward's
    options.
    """
    given = cache.inputs
    return attention_backward(
        g,
        attention_forward(given.q, given.k, given.v, **options)[1],
    )


wrong = {
    "d_q and d_k are 0": values_only,
    "heads out of order": out_of_order,
    "divided by B": lambda g, cache: attention_backward(
        g / len(g), cache
    ),
    "mask forgotten": lambda g, cache: rebuilt(
        g, cache, bias=cache.inputs.bias
    ),
    "bias forgotten": lambda g, cache: rebuilt(
        g, cache, mask=cache.inputs.visible
    ),
}

# %% [markdown]
# > **Predict first.** One example has different sizes, a mask, a bias and a random upstream gradient. The others change
# > one thing each. Which one misses four of the five mistakes?
#
# <details><summary>Answer</summary>
#
# T = 1 misses four. A single key has weight 1, whatever the scores are, so `d_q` and `d_k` *are* 0. Mask and bias
# change nothing, and there are no tokens to mix up with heads. With ones as the upstream gradient, every shuffle of it
# is the same array. And one sequence can't show a division by the batch.
#
# </details>

# %%
from functools import partial


def catches(
    mistake, B=2, T_q=4, T_k=5, is_causal=True, bias=1.0, ones=False
):
    """Return whether the gradient check, on one example, finds
    fault with a backward.
    """
    rng = np.random.default_rng(0)
    shapes = {
        "q": (B, 3, T_q, 2),
        "k": (B, 3, T_k, 2),
        "v": (B, 3, T_k, 6),
    }
    inputs = {
        name: rng.normal(size=shape)
        for name, shape in shapes.items()
    }
    options = {
        "bias": bias * rng.normal(size=(T_q, T_k)),
        "is_causal": is_causal,
    }
    g = np.ones((B, 3, T_q, 6)) if ones else None  # None: random
    return not gradcheck(
        partial(attention_forward, **options),
        mistake,
        inputs,
        d_out=g,
    )


tests = {
    "all different": {},
    "ones upstream": {"ones": True},
    "B = 1": {"B": 1},
}
tests |= {"T = 1": {"T_q": 1, "T_k": 1}}
tests |= {
    "no mask": {"is_causal": False},
    "bias of 0": {"bias": 0.0},
}
caught = np.array(
    [
        [catches(m, **t) for t in tests.values()]
        for m in wrong.values()
    ]
)
labels = {"row_labels": list(wrong), "column_labels": list(tests)}
labels |= {
    "title": "One check, six examples",
    "meaning": ("caught", "missed"),
}
matrices({"caught": caught}, **labels)

# %% [markdown]
# Only the first example catches all of them. (In softmax by itself, ones hide even more: notebook 11.)
#
# Equal sizes don't fool a comparison of numbers, but they do fool tests that look at shapes. And a gradient that is
# truly 0 fools a popular measure, $|a - n| / \max(|a|, |n|)$, which becomes a ratio of two roundings and warns where
# nothing is wrong. So `gradcheck` divides by the largest gradient of the whole set instead.
#
# ## Exercise: a backward, and its proof
#
# Dropout multiplies each weight by 0, or by $1/(1-p)$. Write its backward. Then prove it with `gradcheck` and your own
# example, *before* you run the cell with `check`. Forward is `lambda w: w * keep / (1 - p)`, with a `keep` that you
# draw once; backward gets the upstream gradient and w.
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
# You can now say why the first check was silent, and build one that isn't. A gradient is a slope, and forward is all
# you need to measure it: by central differences near h = 1e-5 in float64, or by complex steps of 1e-30. A check is only
# as good as its example, so take a random upstream gradient, T > 1, B > 1, different sizes, a mask and a bias.
#
# **In the code:** `gradcheck` in `mha_numpy/checking/gradients.py`.
#
# **Reference:** Squire and Trapp 1998, *Using complex variables to estimate derivatives of real functions*.
#
# **Next:** [14, multi-head backward](14_multi-head-backward.ipynb).
