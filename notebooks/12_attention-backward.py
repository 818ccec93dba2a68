# %% [markdown]
# # 12 · Attention backward
#
# A framework hands you gradients and you take them on trust. Here you derive each of them, one line of forward at a
# time, in at most two lines of algebra. Then you learn how to prove such a thing right, and how tests that look
# serious let mistakes through.
#
# **You will learn**
#
# - how to reverse a product by its indices: what was summed is spread, what was shared is summed;
# - why "the gradient has the shape of its array" nearly writes backward for you, and where this rule lies;
# - to check any gradient with differences and with the complex step, and which step to take;
# - which tests hide mistakes: ones, T = 1, equal sizes, nothing masked, a batch of one;
# - how FlashAttention does without the weights in backward.

# %%
from functools import partial

import numpy as np

from mha_numpy import (
    attention_backward,
    attention_forward,
    causal_mask,
    compare,
    gradcheck,
    softmax_forward,
    trace,
)
from mha_numpy.core import step
from mha_numpy.draw import backward_film, line_chart, matrices, stepper
from mha_numpy.exercises import check, hint
from mha_numpy.tables import Table

# %% [markdown]
# ## Gradients of what?
#
# A gradient is always that of **one number**, the loss L, at the very end. Attention sits somewhere in the middle,
# and all it has to know of what comes after is one array: the *upstream gradient*, which tells for each number of
# the output how fast L grows with it. Its name is `d_heads`. Every `d_x` has the shape of `x`, because it holds one
# slope for each number of `x`.
#
# To have an L at all, we take a weighted sum of the output, with random factors. Its upstream gradient is known
# without any work:
#
# $$L = \sum_{ic} \text{heads}_{ic}\, g_{ic} \quad\Longrightarrow\quad \frac{\partial L}{\partial \text{heads}_{ic}} = g_{ic}$$
#
# (By an old habit of the field, `d_k` and `d_v` are also the widths of a head. In the code cells of this notebook they
# are gradients, always; in shapes, as in [B, H, T_k, d_v], they are widths.)

# %%
rng = np.random.default_rng(8)
q = rng.normal(size=(3, 2))  # 3 queries of width 2
k = rng.normal(size=(4, 2))  # 4 keys
v = rng.normal(size=(4, 5))  # 4 values of width 5
d_heads = rng.normal(size=(3, 5))  # g, the upstream gradient
scale = 1 / np.sqrt(2)

# %% [markdown]
# Forward for one head has three lines. They are numbered as in `mha_numpy/core/attention.py`; the numbers between
# belong to options that are off here (2 softcap, 3 bias, 5 dropout, 7 head gate).

# %%
scores = scale * q @ k.T  # 1. match: (3, 4)
weights, softmax_cache = softmax_forward(scores)  # 4. softmax: (3, 4)
heads = weights @ v  # 6. mix: (3, 5)
scores.shape, weights.shape, heads.shape

# %% [markdown]
# Backward visits the same lines, last to first: 6, 4, 1.
#
# ## 6. heads = weights @ v
#
# Write the product with its indices, i for the query, j for the key, c for the column:
#
# $$\text{heads}_{ic} = \sum_j w_{ij}\, v_{jc}$$
#
# Nudge one number and ask where it turns up; then add up all these places. $w_{ij}$ turns up in row i of
# the output, in every column c, each time multiplied by $v_{jc}$. $v_{jc}$ turns up for every query i, multiplied by
# $w_{ij}$:
#
# $$\bar w_{ij} = \sum_c \bar h_{ic}\, v_{jc} \qquad\qquad \bar v_{jc} = \sum_i w_{ij}\, \bar h_{ic}$$
#
# A bar is what the code calls `d_`: $\bar w$ is `d_weights`, $\bar h$ is `d_heads`. Note what happened to the indices: **an index that the array does not have is
# summed over.** `einsum` is that sentence as code:

# %%
d_weights = np.einsum("ic,jc->ij", d_heads, v)
d_v = np.einsum("ij,ic->jc", weights, d_heads)
d_weights.shape, d_v.shape

# %% [markdown]
# > **Predict first.** Write both as a product with `@`, using a `.T` where one is needed. Only the shapes are
# > needed: (3, 5) and (4, 5) have to give (3, 4); (3, 4) and (3, 5) have to give (4, 5).

# %%
np.allclose(d_weights, d_heads @ v.T), np.allclose(d_v, weights.T @ d_heads)

# %% [markdown]
# ## A rule of thumb, and where it lies
#
# The gradient has the shape of its array, so there is only one way to multiply. Is that so? Let us try every way:
# both arrays as they are or transposed, either one first, and count those with the right shape.


# %%
def ways(a, b, wanted):
    """Every product of a and b, transposed or not, either first, that has a wanted shape."""
    orders = [pair for x in (a, a.T) for y in (b, b.T) for pair in ((x, y), (y, x))]
    fitting = [x @ y for x, y in orders if x.shape[1] == y.shape[0]]
    return [product for product in fitting if product.shape == wanted]


# %% [markdown]
# > **Predict first.** How many ways fit for `d_v` with 3 queries, 4 keys and width 5? With 4 queries, 4 keys and
# > width 5, as in self-attention? And if all three are 4?

# %%
for T_q, T_k, width in ((3, 4, 5), (4, 4, 5), (4, 4, 4)):
    a, b = rng.normal(size=(T_q, T_k)), rng.normal(size=(T_q, width))
    fitting = ways(a, b, (T_k, width))
    good = sum(np.allclose(product, a.T @ b) for product in fitting)
    print(f"T_q={T_q} T_k={T_k} width={width}: {len(fitting)} fit, {good} right")

# %% [markdown]
# With three different sizes the rule holds. Where a text attends to itself, T_q = T_k, the weights are square, and
# `weights @ d_heads` runs as happily as `weights.T @ d_heads`. With everything equal, all eight run and one is
# right. So the rule is a fine guide, on one condition: **derive and test on sizes that differ**, all of them.
#
# ## 4. weights = softmax(scores)
#
# Notebook 11 derived this one. Here it is a box with a formula:
#
# $$\bar s_{ij} = w_{ij} \Big(\bar w_{ij} - \sum_l \bar w_{il}\, w_{il}\Big)$$
#
# In words: subtract the row's mean, *weighted by the weights*, then multiply by the weight.
#
# > **Predict first.** What does each row of `d_scores` sum to? (Add the same constant to a row of scores: what
# > happens to its weights?)

# %%
row_mean = (weights * d_weights).sum(axis=-1, keepdims=True)  # (3, 1)
d_scores = weights * (d_weights - row_mean)
np.allclose(d_scores.sum(axis=-1), 0), d_scores.shape

# %% [markdown]
# The constant changes nothing, so the slope in that direction is 0. This is the quickest test of a softmax backward.
#
# ## 1. scores = scale · q @ k.T
#
# Indices again, a for the feature:
#
# $$s_{ij} = \text{scale} \sum_a q_{ia}\, k_{ja}$$
#
# $q_{ia}$ turns up in row i, once for each key j. $k_{ja}$ turns up in column j, once for each query i. The scale
# multiplies every one of these places, so it is in both:
#
# $$\bar q_{ia} = \text{scale} \sum_j \bar s_{ij}\, k_{ja} \qquad\qquad \bar k_{ja} = \text{scale} \sum_i \bar s_{ij}\, q_{ia}$$
#
# > **Predict first.** As products: which of the two has a transpose, and on what?

# %%
d_q = scale * np.einsum("ij,ja->ia", d_scores, k)
d_k = scale * np.einsum("ij,ia->ja", d_scores, q)
np.allclose(d_q, scale * d_scores @ k), np.allclose(d_k, scale * d_scores.T @ q)

# %% [markdown]
# That is all of it: four products (forward had two) and one softmax. Beside the library:

# %%
out, cache = attention_forward(q, k, v)
compare((d_q, d_k, d_v), attention_backward(d_heads, cache))

# %% [markdown]
# `compare` knows more than right and wrong. Here the scale is missing in one place:

# %%
compare((d_q, d_scores.T @ q, d_v), attention_backward(d_heads, cache))

# %% [markdown]
# A factor of 1.41421 is $\sqrt{2}$, the root of the width: exactly the scale left out. When a number is wrong
# everywhere by one factor, look for a constant, not for a transpose.
#
# ## Forward and backward side by side
#
# Now two heads of their own, from the library. The recorder writes down every array of both passes:

# %%
Q, K, V = (rng.normal(size=(1, 2, T, width)) for T, width in ((3, 2), (4, 2), (4, 5)))
upstream = rng.normal(size=(1, 2, 3, 5))
with trace() as both:
    attention_backward(upstream, attention_forward(Q, K, V)[1])
both

# %% [markdown]
# Read it like a book whose second half runs backward. Each `d_` has the shape of its array. The film puts every
# gradient beside the array that it belongs to, in the order of backward:

# %%
backward_film(both)

# %% [markdown]
# Click into the next one, then walk with the arrow keys. Point at a cell, and the cells that it was computed from
# light up, forward and backward:

# %%
stepper(both)

# %% [markdown]
# ## A mistake, seen
#
# Here is a backward of somebody's own. It subtracts the plain sum of each row, where softmax wants the mean
# weighted by the weights. `step` gives each array the name that the library's has, so that the two can be laid side
# by side.

# %%
with trace() as right:
    attention_backward(d_heads, attention_forward(q, k, v)[1])
with trace() as mine:
    d_w = step("d_weights", d_heads @ v.T, "T_q T_k", "d_heads @ v.T")
    step("d_v", weights.T @ d_heads, "T_k d_v", "weights.T @ d_heads")
    d_s = weights * (d_w - d_w.sum(axis=-1, keepdims=True))
    equation = "weights * (d_weights - d_weights.sum(axis=-1, keepdims=True))"
    step("d_scores", d_s, "T_q T_k", equation)
    step("d_q", scale * d_s @ k, "T_q d_k", "scale * d_scores @ k")
    step("d_k", scale * d_s.T @ q, "T_k d_k", "scale * d_scores.T @ q")

# %% [markdown]
# > **Predict first.** Five gradients are recorded. Which of them are wrong? Which one should you look at?

# %%
backward_film(mine, reference=right)

# %% [markdown]
# Three differ, but `d_q` and `d_k` are only computed from the first one. Their lines are fine. **Look at the first
# array that differs, in the order of backward**, and at no other.
#
# ## Proof by numbers
#
# There is no library to compare with when the formula is your own. But the definition of a slope needs only forward:
# nudge one number a little up, then a little down, and see how L changes. No calculus is involved, so no mistake of
# calculus can repeat itself.
#
# $$\frac{\partial L}{\partial x} \approx \frac{L(x + h) - L(x - h)}{2h}$$


# %%
def loss(q, k, v):
    """Forward in the plainest words, down to one number."""
    powers = np.exp(scale * q @ k.T)
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return (weights @ v * d_heads).sum()


nudge = np.zeros_like(q)
nudge[1, 0] = 1  # the number to move: q[1, 0]
h = 1e-5
central = (loss(q + h * nudge, k, v) - loss(q - h * nudge, k, v)) / (2 * h)
print(f"by nudging {central:.15f}\nby formula {d_q[1, 0]:.15f}")

# %% [markdown]
# They agree to many digits; not to all. Two errors are at work. The curve is not a straight line: this *truncation*
# error falls with $h^2$. And the two losses are rounded at about the 16th digit; their difference is divided
# by 2h, so *rounding* grows with $1/h$. Beside it in the chart: the one-sided difference, and a trick that we come
# to next, the *complex step*.


# %%
def largest_error(slope, h):
    """How far a rule for slopes is from d_q, at worst over all numbers of q."""
    numeric = np.zeros_like(q)
    for index in np.ndindex(q.shape):
        unit = np.zeros_like(q)
        unit[index] = 1
        numeric[index] = slope(unit, h)
    return np.abs(numeric - d_q).max()


rules = {
    "one-sided": lambda u, h: (loss(q + h * u, k, v) - loss(q, k, v)) / h,
    "central": lambda u, h: (loss(q + h * u, k, v) - loss(q - h * u, k, v)) / (2 * h),
    "complex step": lambda u, h: loss(q + 1j * h * u, k, v).imag / h,
}

# %% [markdown]
# > **Predict first.** Which h is best for the central difference: 1e-2, 1e-5, 1e-8 or 1e-12? Smaller is not
# > better all the way: make truncation $h^2$ and rounding $10^{-16} / h$ equal.

# %%
steps = 10.0 ** np.arange(-13, 0)
errors = {name: np.array([largest_error(rule, h) for h in steps]) for name, rule in rules.items()}
line_chart(
    steps,
    {name: np.maximum(error, 1e-17) for name, error in errors.items()},  # no logarithm of 0
    title="How wrong is a numeric gradient?",
    x_label="step h",
    y_label="largest error in d_q",
    log_x=True,
    log_y=True,
)

# %%
rows = [
    [name, f"{steps[e.argmin()]:.0e}", f"{e.min():.0e}", f"{e[-2] / e[-3]:.0f}"]
    for name, e in errors.items()
]
Table("", ["rule", "best h", "error there", "error at 1e-2 / at 1e-3"], rows)

# %%
for dtype in (np.float64, np.float32):
    eps = np.finfo(dtype).eps
    best = eps ** (1 / 3)
    print(f"{dtype.__name__}: h = eps^(1/3) = {best:.0e}, error h^2 = {best**2:.0e}")

# %% [markdown]
# From $h^2 = \varepsilon / h$ follows $h = \varepsilon^{1/3}$, and the chart agrees: around 1e-5. To the right
# of it truncation rules (a tenth of h, a hundredth of the error), to the left rounding. In float32 the best that this
# rule can hope for leaves four or five digits, which is why gradients are checked in float64.
#
# ## The complex step
#
# The third line does not turn up again on the left. Move x by an *imaginary* amount, and Taylor gives
#
# $$f(x + ih) = f(x) + ih f'(x) - \tfrac{h^2}{2} f''(x) - \dots \quad\Longrightarrow\quad f'(x) = \frac{\operatorname{Im} f(x + ih)}{h} + O(h^2)$$
#
# Nothing is subtracted, so nothing cancels, and h may be so small that truncation is gone too. There is no step
# to tune:

# %%
float(largest_error(rules["complex step"], 1e-30))

# %% [markdown]
# The price: forward must be smooth, in the sense of complex numbers, and carry the imaginary part all the way.
#
# > **Predict first.** At x = -2, which of these come out right: $x^2$ and $e^x$ (surely), `abs(x)`,
# > `np.sqrt(x * x)`, `x * np.conj(x)`, and `x if x > 0 else 0`?

# %%
functions = {
    "x ** 2": (lambda x: x**2, "-4"),
    "exp(x)": (np.exp, "0.1353"),
    "abs(x)": (abs, "-1"),
    "sqrt(x * x)": (lambda x: np.sqrt(x * x), "-1"),
    "x * conj(x)": (lambda x: x * np.conj(x), "-4"),
    "x if x > 0 else 0": (lambda x: x if x > 0 else 0, "0"),
}


def complex_slope(function, x, h=1e-30):
    try:
        return f"{np.imag(function(complex(x, h))) / h:.4g}"
    except TypeError as error:
        return str(error)


rows = [[name, true, complex_slope(f, -2)] for name, (f, true) in functions.items()]
Table("At x = -2", ["f(x)", "slope", "complex step"], rows)

# %% [markdown]
# `abs` and `conj` throw the imaginary part away and say nothing. A comparison of complex numbers raises, in plain
# Python; that is the friendlier failure. Softmax needs a maximum, which is a comparison: the library takes it over
# the real parts, where it is only a shift. So its forward is safe.
#
# ## `gradcheck` does all this
#
# It moves every number of every input by both methods, against a random upstream gradient.

# %%
gradcheck(attention_forward, attention_backward, {"q": q, "k": k, "v": v})

# %% [markdown]
# The last column is the largest error as a share of the largest gradient: about 1e-11 with differences, 1e-16 with
# complex steps. Where forward drops the imaginary part, the report says so and uses differences alone:

# %%
gradcheck(lambda x: np.abs(x), lambda d_out, x: d_out * np.sign(x), {"x": np.array([-2.0, 3.0])})

# %% [markdown]
# ## Hidden cells
#
# A mask replaces a score by $-\infty$. What was replaced has no influence: weight 0, gradient 0. Not small: exactly
# 0.

# %%
q_4, k_4, v_4, g_4 = rng.normal(size=(4, 4, 3))
with trace() as masked:
    grads = attention_backward(g_4, attention_forward(q_4, k_4, v_4, is_causal=True)[1])
shown = {name: masked[name] for name in ("weights", "d_scores")}
matrices(shown, title="Causal: exact zeros")

# %% [markdown]
# Row 0 sees one key only: its weight is 1 whatever the score is, so its gradient is 0 too. Remember it for later.
#
# Where do the zeros come from? The formula of step 4 multiplies by the weight, and 0 times anything finite is 0. A
# backward that uses the *masked* weights needs no mask of its own. (The library selects with `where` all the same,
# for `0 * nan` is not 0; `docs/attention.md` says more.)
#
# > **Predict first.** With a causal mask, one value is read by a single query. Which? What is its gradient?

# %%
hidden = ~causal_mask(4)
only_reader = masked["weights"][3, 3] * g_4[3]
bool((masked["d_scores"][hidden] == 0).all()), np.allclose(grads.d_v[3], only_reader)

# %% [markdown]
# The last: only query 3 sees key 3, so `d_v[3] = weights[3, 3] * d_heads[3]` (the upstream gradient is `g_4` here).
#
# ## Backward without stored weights
#
# Forward keeps the weights for backward: T_q · T_k numbers for each head. But each row can be rebuilt from one
# number, the log of its sum of exponentials:
#
# $$\text{lse}_i = \log \sum_j e^{s_{ij}} \quad\Longrightarrow\quad w_{ij} = e^{s_{ij} - \text{lse}_i}$$

# %%
rebuilt = np.exp(scale * q @ k.T - cache.lse[:, None])
np.allclose(rebuilt, weights), cache.lse.shape

# %% [markdown]
# One trouble is left. The row mean of softmax's backward needs a whole row at once, and whole rows are what we want
# to avoid. Put step 6 into it and exchange the sums:
#
# $$\sum_j \bar w_{ij} w_{ij} = \sum_j w_{ij} \sum_c \bar h_{ic} v_{jc} = \sum_c \bar h_{ic} \sum_j w_{ij} v_{jc} = \sum_c \bar h_{ic}\, \text{heads}_{ic} =: D_i$$
#
# The row mean can be had from the output, before any key is looked at. (D is the usual name for it, not a width.)

# %%
D = (d_heads * heads).sum(axis=-1, keepdims=True)
np.allclose(D, row_mean)

# %% [markdown]
# So keys can be dealt with a few at a time: their weights are made, used and forgotten. Here two keys at a time:

# %%
by_block = {"d_q": np.zeros_like(q), "d_k": np.zeros_like(k), "d_v": np.zeros_like(v)}
for block in (slice(0, 2), slice(2, 4)):
    w = np.exp(scale * q @ k[block].T - cache.lse[:, None])  # (3, 2): never more than this
    d_s = w * (d_heads @ v[block].T - D)
    by_block["d_q"] += scale * d_s @ k[block]  # every block adds its share
    by_block["d_k"][block] = scale * d_s.T @ q
    by_block["d_v"][block] = w.T @ d_heads
compare(by_block, {"d_q": d_q, "d_k": d_k, "d_v": d_v})

# %% [markdown]
# This is how FlashAttention's backward works (Dao et al. 2022), and the kernels of this library. The price is that
# the scores are computed a second time. Notebook 21 has the forward half, and what it saves.
#
# ## What hides mistakes
#
# A wrong backward passes a weak test. The most popular one is an upstream gradient of ones, that is, L =
# `out.sum()`. Notebook 11 has seen it pass a softmax backward that returns zeros: the weights of a row always sum to
# 1, so ones ask a question with a trivial answer.
#
# Here are five backwards of attention that are wrong in five real ways. Two of them make the weights anew, as above,
# and forget an option of forward; one takes the upstream gradient apart by a reshape without transpose (notebook 09).


# %%
def values_only(g, cache):
    """As if the weights were constants: d_q and d_k are 0."""
    grads = attention_backward(g, cache)
    return grads._replace(d_q=0 * grads.d_q, d_k=0 * grads.d_k)


def out_of_order(g, cache):
    """The upstream gradient split into heads by a reshape alone."""
    return attention_backward(g.swapaxes(1, 2).reshape(g.shape), cache)


def rebuilt_backward(g, cache, **options):
    """A backward that makes the weights anew, with only some of forward's options."""
    given = cache.inputs
    return attention_backward(g, attention_forward(given.q, given.k, given.v, **options)[1])


# %%
wrong = {
    "d_q and d_k are 0": values_only,
    "heads out of order": out_of_order,
    "divided by B": lambda g, c: attention_backward(g / len(g), c),
    "mask forgotten": lambda g, c: rebuilt_backward(g, c, bias=c.inputs.bias),
    "bias forgotten": lambda g, c: rebuilt_backward(g, c, mask=c.inputs.visible),
}

# %% [markdown]
# And six tests. All of them are the same full gradient check, every number against both methods. They differ
# only in the example that they run on.


# %%
def catches(mistake, B=2, T_q=4, T_k=5, is_causal=True, bias=1.0, ones=False):
    """Whether the gradient check of an example finds fault with a backward."""
    rng = np.random.default_rng(0)
    shapes = {"q": (B, 3, T_q, 2), "k": (B, 3, T_k, 2), "v": (B, 3, T_k, 6)}
    inputs = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    options = {"bias": bias * rng.normal(size=(T_q, T_k)), "is_causal": is_causal}
    g = np.ones((B, 3, T_q, 6)) if ones else None  # None: random
    return not gradcheck(partial(attention_forward, **options), mistake, inputs, d_out=g)


# %%
tests = {
    "all different": {},
    "ones upstream": {"ones": True},
    "B = 1": {"B": 1},
    "T = 1": {"T_q": 1, "T_k": 1},
    "no mask": {"is_causal": False},
    "bias of 0": {"bias": 0.0},
}

# %% [markdown]
# > **Predict first.** Five mistakes, six tests. Which test misses which mistake? One of the tests misses four.

# %%
caught = np.array([[catches(m, **t) for t in tests.values()] for m in wrong.values()])
matrices(
    {"caught": caught},
    row_labels=list(wrong),
    column_labels=list(tests),
    title="The same check on six examples",
    meaning=("caught", "missed"),
)

# %% [markdown]
# At T = 1 every row is like row 0 above: the weight is 1, whatever the scores are. `d_q` and `d_k` *are* 0, mask and
# bias change nothing, and there are no tokens to be mixed up with heads. With ones, every shuffle of the upstream
# gradient is the same array. A batch of one cannot show a division by the batch.
#
# Equal sizes are another matter. They do not fool numbers; they fool tests that look at shapes, as we saw above.
#
# One more trap is a gradient that is truly 0, such as that of a bias on every key. A popular measure,
# $|a - n| / \max(|a|, |n|)$, is then a ratio of two roundings, and cries alarm where nothing is wrong. `gradcheck`
# measures all errors by the largest gradient of the whole set instead. Notebook 13 meets that bias.
#
# ## Exercise: backward for many heads
#
# Write the whole backward, for arrays with batch and heads in front. Careful: `.T` of an array with four axes
# turns *all* of them around; `swapaxes(-1, -2)` exchanges the last two. The weights are those after the mask, so
# nothing has to be hidden again.
#
# Three things hold for every right answer, and the check asks for them first: keys that no query sees have no
# gradient; `d_k` sums to 0 over the keys; `d_q * q` and `d_k * k` have the same sum. Then it compares numbers, and
# then it differentiates forward numerically.
#
# More of this kind in `mha-numpy exercises`: `backward-from-lse`, which has no weights, and `museum-batch-mean`, a
# bug that shipped.


# %% tags=["exercise"]
def my_attention_backward(d_heads, q, k, v, weights):
    """Gradients d_q, d_k, d_v, each of the shape of its array.

    d_heads (B, H, T_q, d_v), q (B, H, T_q, d_k), k (B, H, T_k, d_k), v (B, H, T_k, d_v),
    weights (B, H, T_q, T_k): 0 where a cell is hidden, and in all of a row that sees nothing.
    """
    ...  # your code


# %% tags=["check"]
check("attention-backward", my_attention_backward)

# %% tags=["hint"]
# hint("attention-backward")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - Backward runs forward's lines in reverse. For a product: exchange the result for its gradient, and sum over the
#   indices that the array does not have. Four products, one softmax, the scale on `d_q` and on `d_k`.
# - The shape tells which product it is, as long as all sizes differ. In self-attention they do not.
# - Central differences are best near h = 1e-5, in float64. The complex step has no h to tune, if forward is free of
#   `abs`, `conj` and comparisons.
# - A check is as good as its example: random upstream gradient, T > 1, B > 1, different sizes, a mask, a bias.
#   Measure errors by the largest gradient.
# - With lse and $D_i = \sum_c \bar h_{ic}\,\text{heads}_{ic}$ backward needs no stored weights.
#
# **In the code:** `attention_backward` and `attention_steps_backward` in `mha_numpy/core/attention.py`; `gradcheck` in
# `mha_numpy/checking/gradients.py`; the derivation again, with all options: docs/attention.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, eq. 1; Giles 2008, *Collected matrix derivative
# results for forward and reverse mode algorithmic differentiation*; Squire and Trapp 1998, *Using complex variables
# to estimate derivatives of real functions*; Dao et al. 2022, *FlashAttention*, appendix B.2.
#
# **Next:** [09, multi-head backward](13_multi-head-backward.ipynb).
