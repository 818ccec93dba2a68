# %% [markdown]
# # 34 · One direction, every output
#
# In this text of eight tokens, token 2 begins to change: its key and its value move in a random direction. How fast do
# the outputs of the eight tokens move?

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    attention_backward,
    attention_backward_jvp,
    attention_forward,
    attention_jvp,
    softmax_forward,
)
from mha_numpy.show.pictures import line_chart, matrices
from mha_numpy.teach.exercises import check, hint

# %%
rng = np.random.default_rng(0)
q, k, v = rng.normal(size=(3, 8, 4))  # random
out, cache = attention_forward(q, k, v, is_causal=True)

k_dot, v_dot = np.zeros_like(k), np.zeros_like(v)
k_dot[2], v_dot[2] = rng.normal(size=(2, 4))
out_dot, _ = attention_jvp({"k": k_dot, "v": v_dot}, cache)
matrices({"out_dot": out_dot}, title="How fast each output moves")

# %% [markdown]
# The first two rows are 0, because a causal mask hides token 2 from tokens 0 and 1. All the others react at once, and
# we needed a single pass for all of them.
#
# Backward can't do that. It starts at *one* number of the output, so it would have to run once for each of the 32.
#
# **By the end you can** push a velocity through attention, say when that beats a backward pass, and use second
# derivatives to find in a few steps what gradient descent needs a hundred for.
#
# ## A velocity for every number
#
# Let every number of the inputs have a velocity. We call it the number's *tangent*, and write `x_dot`. Each line of the
# forward pass then passes the velocities on. A product has two factors that may move, so its tangent has two terms:

# %%
q_dot, k_dot, v_dot = rng.normal(size=(3, 8, 4))
hidden = np.tri(8) == 0
scores = np.where(hidden, -np.inf, q @ k.T / 2)
weights, _ = softmax_forward(scores)

# 1. scores = q @ k.T / 2
scores_dot = (q_dot @ k.T + q @ k_dot.T) / 2

# 2. weights = softmax(scores)
mean = (weights * scores_dot).sum(axis=-1, keepdims=True)
weights_dot = weights * (scores_dot - mean)

# 3. out = weights @ v
out_dot = weights_dot @ v + weights @ v_dot

tangents = {"q": q_dot, "k": k_dot, "v": v_dot}
np.abs(out_dot - attention_jvp(tangents, cache).out_dot).max()

# %% [markdown]
# These are the same numbers, except for rounding. The second step looks familiar: softmax's backward pass has the same
# line, with gradients in place of tangents.
#
# > **Predict first.** A row of weights sums to 1. What does a row of `weights_dot` sum to?
# >
# > <!-- answer: 0 within 0.01 -->
#
# <details><summary>Answer</summary>
#
# It sums to 0. The weights of a row sum to 1 at any time, so what some of them gain, the others lose.
#
# </details>

# %%
np.abs(weights_dot.sum(axis=-1)).max()

# %% [markdown]
# ## Columns and rows
#
# All slopes together are a matrix, the *Jacobian*: a row for each number of the output, and a column for each number of
# the input. Forward mode with a single 1 among the tangents gives one column. Backward with a single 1 in `d_out` gives
# one row. Let's build the Jacobian of the output with respect to the queries, both ways, for four tokens of width 2:

# %%
small_q, small_k, small_v = rng.normal(size=(3, 4, 2))
_, small = attention_forward(small_q, small_k, small_v)
units = np.eye(8).reshape(8, 4, 2)

columns = [
    attention_jvp({"q": unit}, small).out_dot for unit in units
]
rows = [attention_backward(unit, small).d_q for unit in units]
by_columns = np.reshape(columns, (8, 8)).T
by_rows = np.reshape(rows, (8, 8))
panels = {"by columns": by_columns, "by rows": by_rows}
matrices(
    panels, title="The Jacobian of out by q, built in two ways"
)

# %%
np.abs(by_columns - by_rows).max()

# %% [markdown]
# The blocks on the diagonal say that a query moves only its own output. In training, the output is one number, the
# loss. So its Jacobian is a single row, and one backward pass computes all of it. That's why training runs backward.
# Forward mode wins if there are few directions and many outputs.
#
# > **Predict first.** A model has 1,000 params and 10 outputs, and you want the whole Jacobian. How many passes of
# > forward mode would that take, and how many of backward?
#
# <details><summary>Answer</summary>
#
# 1,000 passes of forward mode, one for each param, or 10 of backward, one for each output.
#
# </details>
#
# You can check one against the other without building the matrix. Weigh the velocities of the outputs by any gradient u,
# or weigh the velocities of the inputs by what backward makes of u. The sum is the same:

# %%
u = rng.normal(size=out.shape)
grads = attention_backward(u, cache)
forward_sum = (u * out_dot).sum()
backward_sum = sum(
    (getattr(grads, f"d_{name}") * dot).sum()
    for name, dot in tangents.items()
)
forward_sum, backward_sum

# %% [markdown]
# ## Backward moves, too
#
# Here is a task for second derivatives. One query looks at six keys, and we want its output to hit a target. The loss is
# half the squared distance, and only the query may change. Gradient descent walks downhill in small steps. We try five
# step sizes (*learning rates*), and keep the best:

# %%
rng = np.random.default_rng(1)
k, v = rng.normal(size=(2, 6, 2))  # random
goal = rng.normal(
    size=(1, 2)
)  # the query that we pretend not to know
target, _ = attention_forward(goal, k, v)
begin = goal + 0.5


def look(query):
    """Return loss, gradient, what out misses, and cache."""
    out, cache = attention_forward(query, k, v)
    miss = out - target
    d_q = attention_backward(miss, cache).d_q
    return (miss**2).sum() / 2, d_q, miss, cache


def descend(rate):
    """Return the loss before each step, and at the end."""
    query, losses = begin, []
    for _ in range(100):
        loss, d_q, *_ = look(query)
        losses.append(loss)
        query = query - rate * d_q
    return [*losses, look(query)[0]]


runs = {rate: descend(rate) for rate in (1.0, 2.0, 4.0, 8.0, 16.0)}
for rate, losses in runs.items():
    print(
        f"rate {rate:4}: loss {losses[0]:.1e} -> {losses[-1]:.1e}"
    )
descent = min(runs.values(), key=lambda losses: losses[-1])

# %% [markdown]
# The gradient says which way is down, but not how far the valley is. That depends on how fast the gradient itself
# changes along the way, and this is what forward mode through *backward* tells us. `attention_backward_jvp` returns how
# fast `d_q` moves. Here the upstream gradient, output minus target, moves as well, as fast as the output does.
#
# Two directions are enough for a query of two numbers. They give the *Hessian* H, the matrix of second derivatives, and
# *Newton's step* goes to where the gradient would be 0 if it kept changing at this rate: it solves H step = -gradient.


# %%
def hessian(miss, cache):
    """Return the loss's second derivatives, by columns."""
    columns = []
    for unit in np.eye(2)[:, None]:
        out_dot, _ = attention_jvp({"q": unit}, cache)
        moved = attention_backward_jvp(
            {"q": unit}, miss, cache, d_out_dot=out_dot
        )
        columns.append(moved.d_q[0])
    return np.array(columns).T


query, newton = begin, []
for _ in range(6):
    loss, d_q, miss, small = look(query)
    newton.append(loss)
    step = np.linalg.solve(hessian(miss, small), -d_q[0])
    query = query + step
newton.append(look(query)[0])
for number, loss in enumerate(newton):
    print(f"after {number} of Newton's steps: {loss:.1e}")

# %%
steps = np.arange(101)
padded = np.full(101, np.nan)
padded[: len(newton)] = np.maximum(newton, 1e-32)
lines = {"gradient descent": np.array(descent), "Newton": padded}
looks = {"x_label": "step", "y_label": "loss", "log_y": True}
line_chart(steps, lines, title="Two ways down", **looks)

# %%
reached = next(
    n for n, loss in enumerate(newton) if loss <= descent[-1]
)
print(f"Newton's step {reached} lands below descent's step 100:")
print(f"{newton[reached]:.1e} and {descent[-1]:.1e}")

# %% [markdown]
# Newton's steps get better and better: close to the goal, each one about doubles the number of right digits. You can't
# train large models like this, because H has a row and a column for every param. But a product of H with *one*
# direction costs only a few times as much as a backward pass, however many params there are, and many methods need no
# more than that.
#
# This is one problem with one start. Further away, H may be far from what it is at the goal, and then a step of
# Newton's method can lead anywhere.
#
# ## Exercise: forward mode of attention
#
# Write it for a batch of single heads. In which order do the lines come?


# %% tags=["exercise"]
def my_forward_mode(q, k, v, q_dot, k_dot, v_dot):
    """q, q_dot (B, T_q, d_k), k, k_dot (B, T_k, d_k),
    v, v_dot (B, T_k, d_v) -> heads_dot (B, T_q, d_v).
    """
    ...  # your code


# %% tags=["check"]
check("forward-mode", my_forward_mode)

# %% tags=["hint"]
# hint("forward-mode")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - A tangent says how fast a number moves. Forward mode passes tangents on, line by line, in forward's order.
# - It gives a column of the Jacobian, and backward gives a row.
# - Backward has a forward mode too. It multiplies the Hessian by a direction and never builds it.
#
# **In the code:** `mha_numpy/core/attention_jvp.py` and `attention_second_order.py`; docs/forward-mode.md derives them.
#
# **Reference:** Griewank and Walther 2008, *Evaluating Derivatives*; Pearlmutter 1994, *Fast exact multiplication by
# the Hessian*.
