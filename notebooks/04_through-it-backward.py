# %% [markdown]
# # 04 · Through it backward
#
# *About 9 minutes. The exercise is for after the hour.*
#
# So far the params of our heads have been made up, random, or already trained. Here a head learns its own. It needs to
# know one thing about each of its numbers: if this number grows, does the loss rise or fall?
#
# **What you can do afterwards:** you can say what a gradient means, do one backward pass through a head by hand, and
# check your own backward pass against numbers computed without it.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import gradcheck, merge_heads, softmax_forward, split_heads
from mha_numpy.models.train import RECIPES, loss_and_gradients
from mha_numpy.show.page import training_page
from mha_numpy.show.pictures import line_chart, matrices, weights_by_head

# %% [markdown]
# ## Forty small steps
#
# The task is *reverse*, from notebook 00. The model has one head and 5,120 params, all of them random at first. The
# *loss*, measured in nats, is one number that says how wrong its answers are. In each step every param moves a little
# the way that lowers the loss, **against its slope**.

# %%
recipe = RECIPES["reverse"]
task = recipe.make_task()
model = recipe.make_model(task, backend="numpy", rng=0)
rng = np.random.default_rng(0)
digits = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])


def train_step():
    """Move every number of the model against its slope, and return the loss before that."""
    loss = loss_and_gradients(model, task.draw_batch(rng, 64))
    for layer in model.layers():
        layer.params |= {name: p - layer.grads[name] for name, p in layer.params.items()}
    return loss


print("random: ", model(digits)[0].argmax(axis=-1))
seen = [model.attentions[0].weights[0]]
losses = [train_step() for _ in range(40)]
print("trained:", model(digits)[0].argmax(axis=-1))
seen.append(model.attentions[0].weights[0])
names = ["random params", "after 40 steps"]
read, note = list(map(str, digits[0])), "One head. A row is a digit that it should write."
display(weights_by_head(np.concatenate(seen), read[::-1], read, head_names=names, note=note))
line_chart(np.arange(40), {"loss": losses}, title="The loss", x_label="steps", y_label="nats")

# %% [markdown]
# The head has learned to look at the mirrored place. No rule in the model says so. Each step only went a little
# downhill.
#
# Now watch it happen. Press **Start**, and a head of this kind learns before your eyes. **Forget** draws new random
# params.

# %%
training_page()

# %% [markdown]
# ## A gradient is a slope
#
# Take a single number of `w_v` in a new model with random params. We change only this number, and draw the loss as a
# curve. The slope of the curve at the number's present value is its **gradient**.

# %%
model = recipe.make_model(task, backend="numpy", rng=0)
batch = task.draw_batch(rng, 64)
loss = loss_and_gradients(model, batch)
w_v, slope = model.attentions[0].params["w_v"], model.attentions[0].grads["w_v"][14, 1]
start, moves = w_v[14, 1], np.linspace(-4, 4, 17)
curve = []
for move in [*moves, 0.1]:
    w_v[14, 1] = start + move
    curve.append(loss_and_gradients(model, batch))
print(f"0.1 more changes the loss by {curve.pop() - loss:+.6f}; the slope says {0.1 * slope:+.6f}")
lines = {"loss": curve, "tangent": loss + slope * moves}
title = "The loss over one number of w_v, all others fixed"
line_chart(moves, lines, title=title, x_label="change of the number", y_label="nats")

# %% [markdown]
# For a small change, curve and tangent agree, so a positive slope says "make this number smaller". For a large change
# they separate, which is why training takes many small steps.
#
# > **Predict first.** You could find each slope by trying it out, at the cost of one *forward pass* from the digits to
# > the loss. How many passes would one step of this model take? And one step of a model with a billion params?
#
# <details><summary>Answer</summary>
#
# 5,120 passes here and a billion there, for every single step. The *backward pass* finds all slopes at once, for about
# the cost of two forward passes.
#
# </details>
#
# ## Backward by hand
#
# How? It works through the computation from the end, and asks at each step how much the loss grows if *this* number
# grows a little. We write `d_a` for the gradient of `a`, which has the shape of `a`.
#
# Here is one query with three keys, with numbers that you can handle in your head.

# %%
scores = np.log([5.0, 3.0, 2.0])
v = np.array([10.0, 0.0, 5.0])  # each value is one number
weights, _ = softmax_forward(scores)
out, target = weights @ v, 4.0
print("weights", weights, " out", out, " loss", 0.5 * (out - target) ** 2)

# %% [markdown]
# Now we go back, one line for each line of the forward pass:
#
# - `loss = ½ (out - target)²`, so `d_out = out - target = 2`.
# - `out = 0.5·10 + 0.3·0 + 0.2·5`. If the first weight grows by a little, `out` grows by 10 times that, and the loss by
#   2·10 times that. So **`d_weights` is `d_out` times the value**, and in the same way, **`d_v` is `d_out` times the
#   weight**.
# - Softmax turns scores into *shares*. If one grows, the others shrink.
#
# > **Predict first.** `d_weights` is (20, 0, 10), so more weight on a key raises the loss or leaves it as it is. Should
# > all scores become smaller?
#
# <details><summary>Answer</summary>
#
# No. Lowering all scores equally changes no weight. What counts is whether a key is better or worse than the average of
# its row. The weighted average of (20, 0, 10) is 10 + 0 + 2 = 12.
#
# </details>
#
# So we subtract the row's mean, and multiply the rest by the share (derived in notebook 11):
#
# $$d\_scores_j = w_j \,\big(d\_weights_j - \textstyle\sum_l w_l\, d\_weights_l\big)$$

# %%
d_out = out - target
d_weights, d_v = d_out * v, d_out * weights
mean = weights @ d_weights
d_scores = weights * (d_weights - mean)
rows = {"weights": weights, "d_weights": d_weights, "d_weights - 12": d_weights - mean}
matrices(
    {"backward": np.stack([*rows.values(), d_scores])},
    row_labels=[*rows, "d_scores"],
    column_labels=["key 0", "key 1", "key 2"],
    title="By hand: one query, three keys",
)

# %% [markdown]
# The last row, 0.5·8 = 4, 0.3·(-12) = -3.6 and 0.2·(-2) = -0.4, sums to 0, because raising all scores equally changes
# nothing. Key 0 pulls `out` away from the target, so its score has to fall. Is that true? Raise it by 0.01 and see.

# %%
moved, _ = softmax_forward(scores + np.array([0.01, 0, 0]))
change = 0.5 * (moved @ v - target) ** 2 - 0.5 * (out - target) ** 2
print(f"0.01 * 4 is 0.04, and the loss really changes by {change:.4f}")

# %% [markdown]
# ## Your own backward, checked
#
# Two steps are left. A score is a product, $q_i \cdot k_j / \sqrt{d_k}$, so its slope in one factor is the other factor
# over $\sqrt{d_k}$. And since every query uses the same keys, a key's gradient is a *sum* over the queries. That's all:


# %%
def head(q, k, v):
    """q (T_q, d_k), k (T_k, d_k), v (T_k, d_v) -> (T_q, d_v), and what backward needs."""
    weights, _ = softmax_forward(q @ k.T / np.sqrt(q.shape[-1]))
    return weights @ v, (weights, q, k, v)


def head_backward(d_out, saved):
    weights, q, k, v = saved
    d_v = weights.T @ d_out
    d_weights = d_out @ v.T
    mean = (weights * d_weights).sum(axis=-1, keepdims=True)
    d_scores = weights * (d_weights - mean)
    d_products = d_scores / np.sqrt(q.shape[-1])
    return d_products @ k, d_products.T @ q, d_v


rng = np.random.default_rng(0)
inputs = {"q": rng.normal(size=(4, 3)), "k": rng.normal(size=(5, 3)), "v": rng.normal(size=(5, 2))}
gradcheck(head, head_backward, inputs)

# %% [markdown]
# `gradcheck` does what we did with the number of `w_v`. It moves each number a little (by two methods), runs `head`
# again, and compares the measured slope with yours. Nothing in it is about attention, so you can use it on any function
# that you write.
#
# > **Predict first.** Suppose you forget to subtract the row's mean. Which of the three gradients stay right?


# %%
def without_mean(d_out, saved):
    weights, q, k, v = saved
    d_products = weights * (d_out @ v.T) / np.sqrt(q.shape[-1])  # and the mean?
    return d_products @ k, d_products.T @ q, weights.T @ d_out


gradcheck(head, without_mean, inputs)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only `d_v`, because it doesn't come through softmax. This mistake is common, and training may even make progress with
# it for a while.
#
# </details>
#
# ## One x, used three times
#
# In *self-attention* q, k and v come from the same `x`. If a number of `x` grows, the loss reacts in three ways at
# once, and small reactions add up. A product passes a gradient back through its other factor, here the transposed
# `w_q`: `d_q @ w_q.T`.

# %%
T, D, d = 3, 4, 2
x, d_out = rng.normal(size=(T, D)), rng.normal(size=(T, d))
params = {s: rng.normal(size=(D, d)) for s in "qkv"}


def self_attention(x):
    return head(*(x @ w for w in params.values()))


_, saved = self_attention(x)
grads = dict(zip(params, head_backward(d_out, saved), strict=True))
ways = {f"by way of {s}": grads[s] @ w.T for s, w in params.items()}
d_x = sum(ways.values())
display(matrices(ways | {"d_x": d_x}, title="Random params: three ways, and their sum"))
gradcheck(lambda x: self_attention(x)[0], lambda d_out, x: (d_x,), {"x": x}, d_out=d_out)

# %% [markdown]
# And with H heads? `split_heads` only moves numbers, so the backward pass only moves their gradients back, and
# `merge_heads` does that:

# %%
np.array_equal(merge_heads(split_heads(x[None], 2)), x[None])

# %% [markdown]
# ## Exercise: one input, three branches (after the hour, 15 minutes)
#
# Go from the gradients of q, k and v to the gradient of x, with H heads. The check compares numbers first, and then
# moves each number of `x`.
#
# To practise more: `museum-jacobian` in `mha-numpy exercises`, a bug that shipped: half of softmax's backward is
# missing.


# %% tags=["exercise"]
def my_input_gradient(d_q, d_k, d_v, params):
    """Three gradients (B, H, T, d) -> d_x (B, T, D); params.w_q, .w_k, .w_v are (D, H*d).

    Forward was q = split_heads(x @ params.w_q + params.b_q, H), and so for k and v, from one x.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("input-gradient", my_input_gradient)

# %% tags=["hint"]
# hint("input-gradient")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - A gradient is a slope: 0.1 more of this number changes the loss by about 0.1 times its gradient.
# - The backward pass goes through the forward lines from last to first. A product passes a slope on through its other
#   factor, and slopes add up where a number was used several times.
# - Weights are shares. So softmax's backward subtracts the row's mean, and the gradients of a row of scores sum to 0.
# - Training repeats this, each time with one small step against all slopes. Forty steps taught a head to reverse.
#
# One question is still open: how did the slopes know where the diagonal belongs? (Full derivations: softmax in notebook
# 11, attention with masks in 12, the layer with all its params in 14.)
#
# **In the code:** `mha_numpy/core/attention.py`, where the backward lines are next to the forward lines.
#
# **Reference:** Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 6.5.
#
# **Next:** [05, the trained head, understood](05_the-trained-head-understood.ipynb).
