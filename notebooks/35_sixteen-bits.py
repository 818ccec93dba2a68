# %% [markdown]
# # 35 · Sixteen bits
#
# A number of 16 bits takes a quarter of the memory of one of 64, and GPUs multiply it much faster. It also has fewer
# digits. Here 64 random tokens attend to each other, and the same attention is computed again with its inputs and every
# result rounded to bfloat16, a format of 16 bits:

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import attention_backward, attention_forward, trace
from mha_numpy.checking import error_bounds, replay, round_to
from mha_numpy.show.pictures import line_chart, precision_atlas
from mha_numpy.teach.exercises import check, hint

# %%
rng = np.random.default_rng(0)
q, k, v, d_out = rng.normal(size=(4, 64, 32))  # random


def traced(q):
    """Record attention, forward and backward, step by step."""
    with trace() as t:
        _, cache = attention_forward(q, k, v)
        attention_backward(d_out, cache)
    return t


def error(t, formats, name, **options):
    """Compute all steps again, and return the error of one."""
    found = replay(t, formats, **options)[name]
    return np.linalg.norm(found - t[name]) / np.linalg.norm(t[name])


for size in (1, 4, 16):
    t = traced(size * q)
    everything = {step.name: "bfloat16" for step in t}
    out, d_k = (
        error(t, everything, "heads"),
        error(t, everything, "d_k"),
    )
    print(f"queries times {size:2}: heads {out:.1%}, d_k {d_k:.1%}")

# %% [markdown]
# These are relative errors: the length (norm) of the error, divided by the length of the exact array. With the queries
# we drew, the gradient of the keys is right to two digits. With queries 16 times as long, it no longer is. Which of the
# steps loses the digits?
#
# **By the end you can** round a number to any format, find the step that loses the digits, and say why kernels read 16
# bits but add up in 32.
#
# ## Digits and powers of two
#
# A float is a whole number of a few binary digits, times a power of two. So the distance from one number to the next
# follows the size of the number. *bfloat16* keeps 8 digits, and *float16* keeps 11. `round_to` gives the nearest number
# of a format:

# %%
for x in (1.001, 3.14159265, 300.3, 70000.0):
    near = [
        f"{name} {round_to(np.array(x), name):.7g}"
        for name in ("bfloat16", "float16")
    ]
    print(f"{x:12}:", ", ".join(near))

# %% [markdown]
# float16 has more digits, but its largest number is 65,504, and what lies beyond becomes inf. A format has to choose:
# the bits that bfloat16 spends on larger and smaller powers of two are missing in its digits.
#
# The next picture shows the distance to the next larger number, at powers of two. Between two of them it stays the
# same:

# %%
x = 2.0 ** np.arange(-4, 13)
gaps = {
    "bfloat16 (8 digits)": x * 2.0**-7,
    "float16 (11 digits)": x * 2.0**-10,
}
line_chart(
    x,
    gaps,
    title="The distance to the next number",
    x_label="number",
    y_label="distance",
    log_x=True,
    log_y=True,
)

# %% [markdown]
# ## Which step?
#
# A trace names every step and holds the equation that computed it, so we can compute it again with *one* result rounded
# and all others exact. First queries, keys and scores, then three more steps.
#
# > **Predict first.** The scores are rounded to bfloat16, which is off by at most 0.4%. With queries 16 times as long,
# > the scores are 16 times as large. What happens to the error of d_k?
# >
# > - it stays the same, because the relative error of a score is the same
# > - it is about 16 times as large
# > - it is millions of times as large, because softmax takes powers of e
# > <!-- answer: it is about 16 times as large -->
#
# <details><summary>Answer</summary>
#
# It is about 16 times as large. Before softmax divides by the row's sum, a weight is e to the power of its score, so an
# *absolute* error of the score becomes a *relative* error of the weight. A format keeps the relative error of a score,
# so its absolute error grows with it.
#
# </details>

# %%
small, large = traced(q), traced(16 * q)
for name in (
    "q",
    "k",
    "scores",
    "weights",
    "d_weights",
    "d_scores",
):
    errors = [
        error(t, {name: "bfloat16"}, "d_k") for t in (small, large)
    ]
    print(f"{name:9}: {errors[0]:.2%}, and {errors[1]:.2%}")

# %% [markdown]
# With the long queries the scores need the most digits of these six, because softmax comes next. Queries and keys come
# close, because the scores inherit their relative errors. That's why kernels keep scores in float32 until the weights
# are computed. (Other data can shift this: docs/precision.md has a case in which `d_weights` loses 19%.)
#
# Here are all steps at once, for scores of three sizes, as an experiment with five seeds measured them. One digit lost
# is an error ten times that of storing the exact gradient in bfloat16:

# %%
precision_atlas("bfloat16", ["d_q", "d_k"])

# %% [markdown]
# The last five rows belong to a kernel, which keeps one number per query instead of the weights: lse, the log of the
# softmax's sum. Its backward pass computes the weights again from lse, and no step costs more digits than rounding
# that one. So kernels store it in 32 bits.
#
# ## Sums
#
# A step like `weights @ v` is a long sum. Each addition is rounded, too. In float16 a sum of ones stops at 2048: 2049
# is exactly halfway between 2048 and the next number of the format, 2050. A tie goes to the number whose last digit is
# 0, which is 2048, so the sum never moves again. With `sums`, `replay` adds up one number after another, and rounds
# nothing else:

# %%
lengths = [64, 256, 1024, 4096]
names = ("bfloat16", "float16", "float32")
lines = {name: [] for name in names}
for T_k in lengths:
    many_k, many_v = rng.normal(size=(2, T_k, 32))  # random
    with trace() as t:
        attention_forward(q[:8], many_k, many_v)
    for name in names:
        lines[name].append(error(t, {}, "heads", sums=name))
line_chart(
    np.array(lengths),
    {name: np.array(errors) for name, errors in lines.items()},
    title="Error of the output, if only sums are rounded",
    x_label="keys",
    y_label="relative error",
    log_x=True,
    log_y=True,
)

# %%
for name in names:
    print(
        f"{name:8}: {lines[name][0]:.1g} to {lines[name][-1]:.1g}"
    )

# %% [markdown]
# In bfloat16 the sum over 4,096 keys is useless, and in float32 it is off by a few millionths. So a kernel has to add
# up in 32 bits, even if it *reads* 16.
#
# ## Gradients that are too small
#
# If a loss is a mean over many tokens, each gradient is small. We imitate that with the factor 1e-7. float16 loses
# digits below 0.00006, and numbers below 0.00000003 become 0. Multiply the loss by a *loss scale* and all gradients
# grow with it, because backward is linear. Afterwards we divide by it again. (`replay` does so after each step. With a
# power of two the result is the same.)

# %%
with trace() as t:
    _, cache = attention_forward(q, k, v)
    attention_backward(1e-7 * d_out, cache)
steps = [step.name for step in t if step.name.startswith("d_")]
narrow = dict.fromkeys(steps, "float16")
for scale in 2.0 ** np.array([0, 10, 20, 30]):
    off = error(
        t, narrow, "d_k", scales=dict.fromkeys(steps, scale)
    )
    print(f"{scale:12.0f}: {off:.2%}")

# %% [markdown]
# ## How wrong can it be?
#
# So far we've measured one example, with the roundings it happened to have. `error_bounds` says how far off each number
# can be at most, whatever way the roundings fall. It carries the lowest and the highest possible value of each number
# through all steps:

# %%
formats = {"scores": "bfloat16", "weights": "bfloat16"}
bounds, found = error_bounds(small, formats), replay(small, formats)
for name in ("scores", "weights", "heads"):
    off = np.abs(found[name] - small[name]).max()
    print(f"{name:8}: {off:.4f}, at most {bounds[name].max():.4f}")

# %% [markdown]
# The first number is the largest error, and the second the largest bound. The bound is larger for two reasons: it
# assumes the worst relative error of the format for every number, and it lets all errors push the same way, although
# real ones partly cancel. It holds however these roundings fall, but only for these inputs and for the two steps that
# we round.
#
# ## Exercise: fewer digits
#
# Keep as many binary digits as asked. Any power of two is allowed, so no number is too large or too small. Of two
# numbers that are equally near, take the one whose last kept digit is 0.


# %% tags=["exercise"]
def my_round_to_digits(x, digits):
    """x of any shape, digits: a whole number -> rounded, like x."""
    ...  # your code


# %% tags=["check"]
check("round-to-digits", my_round_to_digits)

# %% tags=["hint"]
# hint("round-to-digits")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - Within its range a format keeps a fixed number of binary digits, so an error follows the size of a number.
# - Softmax turns an absolute error of a score into a relative one of a weight. So large scores need more digits than small ones.
# - Kernels add up in 32 bits, even if they read 16. With long queries, reading 16 costs digits as well.
# - A loss scale moves small gradients into the range of float16. bfloat16, with the range of float32, needs
#   none (docs/precision.md shows it).
#
# **In the code:** `mha_numpy/checking/rounding.py`, `replay.py` and `error_bounds.py`; docs/precision.md goes further.
#
# **Reference:** Micikevicius et al. 2018, *Mixed precision training*; Higham 2002, *Accuracy and Stability of Numerical
# Algorithms*, chapters 2 to 4.
