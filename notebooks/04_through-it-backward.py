# %% [markdown]
# # 04 · Going backwards
#
# *About 11 minutes. Leave the exercise until after the hour.*
#
# Here is a tiny head: one query and three keys. Their values are 10, 0 and 5, and its answer is 6. It should be 4.
# Which of the three scores should go up, and which down? You'll find out by trial, then by hand, going backwards from
# the answer. Then you'll watch a whole model learn the same way.
#
# **By the end you can** say what a gradient means, do the backward pass for one query by hand, and
# check your own backward pass against numbers computed without it.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import gradcheck, softmax_forward
from mha_numpy.models.train import RECIPES, loss_and_gradients
from mha_numpy.show.page import training_page
from mha_numpy.show.pictures import line_chart, weights_by_head

np.set_printoptions(precision=3, suppress=True)

# %%
scores = np.log([5.0, 3.0, 2.0])
v = np.array([10.0, 0.0, 5.0])  # each value is one number


def loss_of(scores):
    """How wrong the answer is: half its squared distance to 4."""
    return 0.5 * (softmax_forward(scores)[0] @ v - 4) ** 2


print("weights", softmax_forward(scores)[0])

# %% [markdown]
# With these weights the answer is 0.5·10 + 0.3·0 + 0.2·5 = 6. The *loss* is one number that says how wrong it is, here
# ½ (6 - 4)² = 2. (The page in notebook 03 goes uphill, towards a goal. A loss is a goal turned upside down, so here
# we go downhill.)
#
# ## A gradient is a slope
#
# > **Predict first.** We raise score 0 a little. The value that goes with it is 10. Does the loss rise or fall?
# >
# > - it rises
# > - it falls
# >
# > <!-- answer: it rises -->
#
# <details><summary>Answer</summary>
#
# It rises, because key 0 gets a larger share and pulls the answer up, further away from 4.
#
# </details>

# %% tags=["hide-input"]
moves = np.linspace(-2, 2, 17)
first = np.array([1, 0, 0])
curve = np.array([loss_of(scores + m * first) for m in moves])
line_chart(
    moves,
    {"loss": curve, "slope 4": loss_of(scores) + 4 * moves},
    title="The loss over score 0",
    x_label="change of score 0",
    y_label="loss",
)

# %% [markdown]
# Close to 0, the curve is almost a straight line, going up 4 for every 1 to the right. So if we raise score 0 by 0.1,
# the loss goes up by about 0.4. This 4 is the *slope*. Let's measure the slope of every score:


# %%
def slopes(scores):
    """Raise one score after the other a little, and compare."""
    moved = [loss_of(scores + move) for move in 1e-6 * np.eye(3)]
    return (np.array(moved) - loss_of(scores)) / 1e-6


print("slopes:", slopes(scores))

# %% [markdown]
# All slopes together are the **gradient**, an arrow that points uphill. To make the loss smaller, we go **against** the
# arrow. And we take small steps, because further out the line and the curve part company:

# %%
moving = scores.copy()
for _ in range(5):
    weights, _ = softmax_forward(moving)
    print(f"loss {loss_of(moving):.3f}  weights", weights)
    moving -= 0.05 * slopes(moving)

# %% [markdown]
# That is training. The loss goes down, and the share of key 0 with it. The factor 0.05 is the *step size*. With 5, the
# first step goes too far: the loss jumps to 8 and stays, because all slopes are almost 0.
#
# ## Backward by hand
#
# Trial and error costs one forward pass per number, and a model has thousands of numbers. The *backward pass* finds
# all slopes at once. It starts at the end and works backwards, asking at each step: if *this* number grows a little,
# how much does the loss grow? We write `d_a` for the gradient of `a`, which has the shape of `a`.
#
# - **The answer.** `loss = ½ (out - target)²`, so `d_out = out - target = 2`.
# - **The weights.** `out = 0.5·10 + 0.3·0 + 0.2·5`. If the first weight grows by a little, `out` grows by 10 times
#   that, and the loss by 2·10 times that. So `d_weights` is `d_out` times the value: (20, 0, 10). In the same way,
#   `d_v` is `d_out` times the weight: (1, 0.6, 0.4).
# - **The scores.** You already know their slopes, because you measured them: 4, -3.6 and -0.4.
#
# > **Predict first.** More weight on key 2 raises the loss, with slope 10. Why does a higher *score* of key 2 lower it?
# >
# > - its weight shrinks
# > - it takes weight from key 0, which is worse
# > - that's a rounding error
# >
# > <!-- answer: it takes weight from key 0, which is worse -->
#
# <details><summary>Answer</summary>
#
# It takes weight from key 0, which is worse. Weights are shares, so what counts is how a key compares with the others.
#
# </details>
#
# Better or worse than what? A raised score wins weight in proportion to the weight it has, and all keys pay for it in
# proportion to theirs. So each bit of weight gains its own slope and costs the mean of the row, 0.5·20 + 0.3·0 +
# 0.2·10 = 12. Subtract that mean, and multiply what's left by the weight (notebook 11 derives the rule):

# %%
weights, _ = softmax_forward(scores)
d_weights = 2 * v
print(weights * (d_weights - weights @ d_weights))

# %% [markdown]
# Those are the slopes you measured. They sum to 0, because raising all scores equally changes no weight.
#
# ## Your own backward, checked
#
# Here are the same lines as code. `gradcheck` does to every score and value what you did above: it moves each number a
# little, and compares the measured slope with yours. (It measures in two ways, which notebook 13 explains.)


# %%
def forward(scores, v):
    weights, _ = softmax_forward(scores)
    return weights @ v, (weights, v)  # and what backward needs


def backward(d_out, saved):
    weights, v = saved
    d_weights = d_out * v
    mean = weights @ d_weights
    return weights * (d_weights - mean), d_out * weights


gradcheck(forward, backward, {"scores": scores, "v": v}, d_out=2.0)

# %% [markdown]
# Without `- mean` it fails. Try it. `gradcheck` knows nothing about attention, so you can use it on functions that
# you write. Notebook 12 goes on from the scores to q and k, with matrices.
#
# ## Forty small steps
#
# Now the model of notebook 00, before any training. Its 5,120 params are random, so its answers are noise. It doesn't
# answer with one number, but gives each of the ten digits a probability. So its loss is a different one: -log of the
# right digit's probability, on average. A blind guess costs log 10 = 2.30.
#
# Forty times over, we do what you did with three scores: we compute the slope of every param and move the param
# against it. (`loss_and_gradients` does the first: forward, loss, backward.) The step size is 1, so a param moves by
# its whole slope. It's still a small step, because the slopes are small:

# %% tags=["hide-input"]
recipe = RECIPES["reverse"]
task = recipe.make_task()
model = recipe.make_model(task, backend="numpy", rng=0)
head = model.attentions[0]
digits = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


def look():
    """Print what the model says, and return the head's weights."""
    print("says", *model(np.array([digits]))[0].argmax(axis=-1))
    return head.weights[0, 0]


weights = [look()]
first_batch = task.draw_batch(np.random.default_rng(0), 64)
loss_and_gradients(model, first_batch)
largest = max(
    abs(slope).max()
    for layer in model.layers()
    for slope in layer.grads.values()
)
print(f"largest slope: {largest:.2f}")


# %%
def train_step():  # every param moves a little against its slope
    batch = task.draw_batch(rng, 64)
    losses.append(loss_and_gradients(model, batch))
    for layer in model.layers():
        for name, slope in layer.grads.items():
            layer.params[name] = layer.params[name] - slope


# %%
rng, losses = np.random.default_rng(0), []
for _ in range(40):
    train_step()
print(f"loss {losses[0]:.2f}, then {losses[-1]:.3f}")
weights.append(look())

# %% tags=["hide-input"]
weights_by_head(
    np.stack(weights),
    digits[::-1],
    digits,
    head_names=["random params", "after 40 steps"],
    heads=[0, 0],
)

# %% [markdown]
# The head has learned to look at the mirrored place (the rows are the digits that it should write). Each step went a
# little way downhill.
#
# Press **Start**, and watch a smaller head learn. It mostly takes 150 to 210 steps. They move each param by about
# 0.003; at a learning rate of 0.032, about 40 are enough. **Start again** draws new random params.

# %%
training_page()

# %% [markdown]
# ## One x, used three times
#
# The model's backward pass does one thing that yours didn't have to. In *self-attention* q, k and v come from the
# same `x`. Nudge one number in `x`, and it reaches the loss by three routes at once. The three small effects add up.
# To go back through a product, multiply by the other factor, here a transposed matrix:
#
# ```text
# d_x = d_q @ w_q.T + d_k @ w_k.T + d_v @ w_v.T
# ```
#
# And with H heads? `split_heads` only moves numbers, so the backward pass only moves their gradients back, which is
# what `merge_heads` does.
#
# ## Exercise: one input, three branches (after the hour, 15 minutes)
#
# Go from the gradients of q, k and v to the gradient of x, with H heads (`from mha_numpy import merge_heads`). The
# check compares your numbers first, and then nudges each number in `x`.
#
# To practise more: `museum-jacobian`, from the museum of bugs in `mha-numpy exercises`.


# %% tags=["exercise"]
def my_input_gradient(d_q, d_k, d_v, params):
    """Three gradients (B, H, T, d) -> d_x (B, T, D).

    params.w_q, .w_k, .w_v are (D, H*d). Forward was
    q = split_heads(x @ params.w_q + params.b_q, H),
    and so for k and v, from one x.
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
# - The backward pass goes through the forward lines from last to first. To take a slope back through a product,
#   multiply by the other factor. If a number was used several times, add up its slopes.
# - Weights are shares. So softmax's backward subtracts the row's mean, and the gradients of a row of scores sum to 0.
# - Training does this over and over, one small step downhill at a time. Forty steps taught a head to reverse.
#
# One question is still open: how did the slopes know where the diagonal belongs? (The full derivations are in notebooks
# 11 to 14.)
#
# **In the code:** `mha_numpy/core/attention.py`, where the backward lines are next to the forward lines.
#
# **Reference:** Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 6.5.
#
# **Next:** [05, the trained head, understood](05_the-trained-head-understood.ipynb).
