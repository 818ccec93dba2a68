# %% [markdown]
# # 04 · Through it backward
#
# *About 10 minutes. The exercise is for after the hour.*
#
# So far the params of our heads have been made up, random, or already trained. Here a head learns its own. It needs to
# know one thing about each of its numbers: if this number grows, does the loss rise or fall?
#
# **What you can do afterwards:** you can say what a gradient means, do the backward pass for one query by hand, and
# check your own backward pass against numbers computed without it.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import gradcheck, softmax_forward
from mha_numpy.models.train import RECIPES, loss_and_gradients
from mha_numpy.show.page import training_page
from mha_numpy.show.pictures import line_chart, weights_by_head

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
# Now watch it happen. Press **Start**, and a head of this kind learns before your eyes. **Start again** draws new
# random params.

# %%
training_page()

# %% [markdown]
# ## A gradient is a slope
#
# Take a single number of `w_v` in a new model with random params. We change only this number, and draw the loss as a
# curve. The slope of the curve at the number's present value is its **gradient**.

# %% tags=["hide-input"]
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
# You could find each slope by trying it out, at the cost of one *forward pass* from the digits to the loss. That would
# be 5,120 passes for every step. The *backward pass* finds all slopes at once, for about the cost of two forward
# passes.
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
#   2·10 times that. So **`d_weights` is `d_out` times the value**, (20, 0, 10). In the same way, **`d_v` is `d_out`
#   times the weight**.
# - The scores come last. Each weight is a power over the sum of the powers, 5, 3 and 2 over 10.
#
# > **Predict first.** More weight on key 0 or key 2 raises the loss. Should all scores become smaller?
# >
# > - yes
# > - no
# >
# > <!-- answer: no -->
#
# <details><summary>Answer</summary>
#
# No. Lowering all scores equally changes no weight. A key matters only as far as it is better or worse than the others.
#
# </details>
#
# Raise score 0 by 0.01, and its power grows by 1%, from 5 to 5.05. The sum grows from 10 to 10.05. So the weights go
#
# ```text
# from  0.5               0.3               0.2
# to    5.05 / 10.05      3 / 10.05         2 / 10.05
#       = 0.5025          = 0.2985          = 0.1990
# ```
#
# Weight 0 gains 1% of itself, which is 0.01·0.5, and raises the loss by 20 times that. But the sum grows too, by 0.5%,
# which is again 0.01·0.5. So all three weights shrink by that share of themselves, and this lowers the loss by 12 times
# that, where 0.5·20 + 0.3·0 + 0.2·10 = 12 is the row's weighted mean. Together it makes 0.01·0.5·(20 - 12) = 0.04. The
# other scores work in the same way (derived in notebook 11):
#
# $$d\_scores_j = w_j \,\big(d\_weights_j - \textstyle\sum_l w_l\, d\_weights_l\big)$$

# %%
moved, _ = softmax_forward(scores + np.array([0.01, 0, 0]))
change = 0.5 * (moved @ v - target) ** 2 - 0.5 * (out - target) ** 2
print(f"the slope says 0.04, and the loss really changes by {change:.4f}")

# %% [markdown]
# The three slopes are 0.5·8 = 4, 0.3·(-12) = -3.6 and 0.2·(-2) = -0.4. They sum to 0, because raising all scores
# equally changes nothing.
#
# ## Your own backward, checked
#
# Here are the same lines as code. `gradcheck` does to every score and value what we did to one. It moves each number a
# little and compares the measured slope with yours, by two methods. *Central* moves it both up and down, and *complex
# step* moves it in the imaginary direction, where nothing gets lost in rounding (notebook 13).


# %%
def forward(scores, v):
    weights, _ = softmax_forward(scores)
    return weights @ v, (weights, v)  # and what backward needs


def backward(d_out, saved):
    weights, v = saved
    d_weights = d_out * v
    return weights * (d_weights - weights @ d_weights), d_out * weights


gradcheck(forward, backward, {"scores": scores, "v": v}, d_out=out - target)

# %% [markdown]
# Nothing in `gradcheck` is about attention, so you can use it on any function that you write. In a whole head, a score
# is a product, $q_i \cdot k_j / \sqrt{d_k}$, so its slope in one factor is the other factor over $\sqrt{d_k}$. Notebook
# 12 writes all of this with matrices.
#
# ## One x, used three times
#
# In *self-attention* q, k and v come from the same `x`. If a number of `x` grows, the loss reacts in three ways at
# once, and small reactions add up. A product passes a gradient back through its other factor, here a transposed param:
#
# ```text
# d_x = d_q @ w_q.T + d_k @ w_k.T + d_v @ w_v.T
# ```
#
# And with H heads? `split_heads` only moves numbers, so the backward pass only moves their gradients back, and
# `merge_heads` does that.
#
# ## Exercise: one input, three branches (after the hour, 15 minutes)
#
# Go from the gradients of q, k and v to the gradient of x, with H heads (`from mha_numpy import merge_heads`). The
# check compares numbers first, and then moves each number of `x`.
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
# One question is still open: how did the slopes know where the diagonal belongs? (The full derivations are in notebooks
# 11 to 14.)
#
# **In the code:** `mha_numpy/core/attention.py`, where the backward lines are next to the forward lines.
#
# **Reference:** Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 6.5.
#
# **Next:** [05, the trained head, understood](05_the-trained-head-understood.ipynb).
