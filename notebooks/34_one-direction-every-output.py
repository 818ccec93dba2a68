# %% [markdown]
# # 34 · One direction, every output
#
# Eight tokens attend to each other, and none looks ahead. Now the key and the value of token 2 begin to move, in a
# random direction. How fast do the outputs of the eight tokens move?

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
# Backward can't do that. It starts from one weighted sum of the outputs, so it would have to run once for each of the 32
# numbers.
#
# **By the end you can** push a velocity through attention, say when that beats a backward pass, and use second
# derivatives to take a better step than gradient descent.
#
# ## A velocity for every number
#
# Give every input number a velocity. We call it the number's *tangent*, and write `x_dot`. Each line of the forward pass
# then passes the velocities on. A product has two factors that may move, so its tangent has two terms. (The 2 below is
# the root of the width, 4. A hidden cell has weight 0, so its score may move as it likes.)

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
off = np.abs(out_dot - attention_jvp(tangents, cache).out_dot)
print(f"largest difference: {off.max():.1e}")

# %% [markdown]
# These are the same numbers, except for rounding. The second step looks familiar: softmax's backward pass has the same
# line, with gradients in place of tangents. That's because its matrix of slopes is its own transpose.
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
sums = np.abs(weights_dot.sum(axis=-1))
print(f"largest sum of a row: {sums.max():.1e}")

# %% [markdown]
# ## Columns and rows
#
# All slopes together are a matrix, the *Jacobian*: a row for each number of the output, and a column for each number of
# the input. Forward mode with a single 1 among the tangents gives one column. Backward with a single 1 in `d_out` gives
# one row. Let's build the Jacobian of the output with respect to the queries, both ways, for four tokens of width 2,
# without a mask:

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
off = np.abs(by_columns - by_rows)
print(f"largest difference: {off.max():.1e}")

# %% [markdown]
# The zeros off the diagonal blocks say that a query moves only its own output. In training, the output is one number, the
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
# You can check one against the other without building the matrix. Weigh the velocities of the outputs by any numbers u,
# or weigh the velocities of the inputs by the gradients that backward computes from u. Both sums are equal:

# %%
u = rng.normal(size=out.shape)
grads = attention_backward(u, cache)
forward_sum = (u * out_dot).sum()
backward_sum = sum(
    (getattr(grads, f"d_{name}") * dot).sum()
    for name, dot in tangents.items()
)
print(f"{forward_sum:.12f}, {backward_sum:.12f}")

# %% [markdown]
# ## Backward moves, too
#
# Here is a task for second derivatives. One query of two numbers looks at six keys, and its output should come as close
# as possible to a target of three numbers. In general it can't get all the way. The loss is half the squared distance,
# and only the query may change. Gradient descent walks downhill in small steps. We try seven step sizes (*learning
# rates*) and keep the best. At the bottom the gradient is 0, so we watch its length:

# %%
rng = np.random.default_rng(5)  # random keys, values and target
keys, values = rng.normal(size=(6, 2)), rng.normal(size=(6, 3))
near, noise = rng.normal(size=(1, 2)), rng.normal(size=(1, 3))
target = attention_forward(near, keys, values)[0] + 0.3 * noise
begin = near + 0.5


def look(query):
    """Return gradient, what the output misses, and cache."""
    out, cache = attention_forward(query, keys, values)
    miss = out - target
    return attention_backward(miss, cache).d_q, miss, cache


def walk(next_step, steps):
    """Return the gradient's length before and after each step."""
    query, lengths = begin, []
    for _ in range(steps):
        d_q, miss, cache = look(query)
        lengths.append(np.linalg.norm(d_q))
        query = query + next_step(d_q, miss, cache)
    return [*lengths, np.linalg.norm(look(query)[0])]


def downhill(rate):
    return lambda d_q, miss, cache: -rate * d_q


runs = {
    rate: walk(downhill(rate), 100) for rate in 2.0 ** np.arange(7)
}
for rate, lengths in runs.items():
    print(f"rate {rate:4}: {lengths[0]:.1e} -> {lengths[-1]:.1e}")
descent = min(runs.values(), key=lambda lengths: lengths[-1])

# %% [markdown]
# The gradient says which way is down, but not how far away the bottom is. That depends on how fast the gradient itself
# changes along the way, and this is what forward mode through *backward* tells us. `attention_backward_jvp` returns how
# fast `d_q` moves. It needs to know how fast backward's own input moves. That input is output minus target, and the
# target is at rest, so it moves exactly as fast as the output: `d_out_dot=out_dot`.
#
# Two directions are enough for a query of two numbers. They give the *Hessian* H, the matrix of second derivatives, and
# *Newton's step* goes to where the gradient would be 0 if it kept changing at this rate: it solves H step = -gradient.
#
# Is it worth the trouble? If only the output moves, and attention's own slopes are taken as constant, first derivatives
# are enough for a step of this kind. It is called *Gauss-Newton*, and we try it as well.


# %%
def newton(d_q, miss, cache, whole=True):
    """Solve H step = -gradient; H by columns."""
    columns = []
    for unit in np.eye(2)[:, None]:
        moved, _ = attention_jvp({"q": unit}, cache)
        slopes = attention_backward(moved, cache)
        if whole:
            slopes = attention_backward_jvp(
                {"q": unit}, miss, cache, d_out_dot=moved
            )
        columns.append(slopes.d_q[0])
    return np.linalg.solve(np.array(columns).T, -d_q[0])


def gauss_newton(d_q, miss, cache):
    return newton(d_q, miss, cache, whole=False)


by_newton, by_gauss = walk(newton, 6), walk(gauss_newton, 6)
for n, lengths in enumerate(zip(by_newton, by_gauss, strict=True)):
    print(
        f"step {n}: {lengths[0]:.1e}, Gauss-Newton {lengths[1]:.1e}"
    )

# %%
steps, lines = (
    np.arange(101),
    {"gradient descent": np.array(descent)},
)
for name, few in (
    ("Newton", by_newton),
    ("Gauss-Newton", by_gauss),
):
    lines[name] = np.full(101, np.nan)
    lines[name][: len(few)] = few
looks = {"x_label": "step", "y_label": "length of the gradient"}
line_chart(
    steps, lines, title="Three ways down", log_y=True, **looks
)

# %%
below = [length <= descent[-1] for length in by_newton]
first = below.index(True)
print(f"Newton, step {first}: {by_newton[first]:.1e}")
print(f"descent, step 100: {descent[-1]:.1e}")

# %% [markdown]
# Newton's steps get better and better: close to the bottom, each one about doubles the number of right digits. Without
# the second derivatives of attention, a step only wins a fixed share, because the target can't be reached. Large models
# aren't trained like this, because H has a row and a column for every param. But a product of H with *one* direction
# costs a fixed multiple of a backward pass, however many params there are, and many methods need no more than that.
#
# This is one problem with one start. Further away, H may be far from what it is at the bottom, and then a step of
# Newton's method can lead anywhere.
#
# ## Exercise: forward mode of attention
#
# Write it for a batch of single heads, without a mask. Forward was softmax(q k^T / sqrt(d_k)) v.


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
