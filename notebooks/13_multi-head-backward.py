# %% [markdown]
# # 13 · Multi-head backward
#
# Attention itself was notebook 12. What lies around it looks harmless: two linear maps and some
# moves. Here most mistakes of a first implementation happen, and most of them run silently: a
# sum that should be there, a branch that is forgotten, a transpose on a square matrix.
#
# **You will learn**
#
# - the backward of a linear map on (B, T, D), and why its params' gradients are *sums* over B and T;
# - the way from `d_out` to `d_x`, step by step, against the library;
# - the three branches of self-attention, what each one brings and what forgetting one does;
# - why the key bias has gradient 0, and what that does to a relative error;
# - how each of the usual mistakes shows itself, and how to find the first array that is wrong.

# %%
import numpy as np

from mha_numpy import (
    MultiHeadAttention,
    MultiHeadParams,
    attention_backward,
    compare,
    gradcheck,
    linear_backward,
    linear_forward,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    split_heads,
    trace,
)
from mha_numpy.core import step
from mha_numpy.draw import backward_film, matrices
from mha_numpy.exercises import check, hint
from mha_numpy.tables import Table

# %% [markdown]
# ## The road back
#
# $$x \xrightarrow{w_q, w_k, w_v} \text{projected} \xrightarrow{\text{split}} q, k, v
# \xrightarrow{\text{attention}} \text{heads} \xrightarrow{\text{merge}} \text{merged}
# \xrightarrow{w_o} \text{out}$$
#
# Backward visits the same stations from right to left. We write $\bar a$, in code `d_a`, for the
# gradient of the loss by `a`; it has the shape of `a`.
#
# | forward | backward | where |
# |---|---|---|
# | 4. `out = merged @ w_o + b_o` | `d_merged`, `d_w_o`, `d_b_o` | below |
# | 4. `merged = merge_heads(heads)` | `d_heads = split_heads(d_merged)` | below |
# | 3. `heads = attention(q, k, v)` | `d_q`, `d_k`, `d_v` | notebook 12 |
# | 1. `q = split_heads(q_projected)`, k, v | `d_q_projected = merge_heads(d_q)`, k, v | below |
# | 1. `q_projected = x @ w_q + b_q`, k, v | `d_w_q`, `d_b_q`, and the share of q in `d_x`; k, v | below |
# | 0. one `x` for all three | `d_x` = via q + via k + via v | below |
#
# (Step 2 is the rotation of notebook 16, off here.) So there are only two new things: the linear map,
# and an input that is used three times.
#
# ## A linear map, by hand
#
# Two tokens (1, 2) and (3, 4), and $w = (1, 10)^\top$: each token gives one number.
#
# > **Predict first.** The upstream gradient is 1 for the first token and 2 for the second. By how
# > much does the loss grow if $w_0$ grows by a little? It touches *both* outputs. And what is
# > $\bar x$ of the second token?

# %%
x = np.array([[[1.0, 2.0], [3.0, 4.0]]])  # (B=1, T=2, I=2)
w, b = np.array([[1.0], [10.0]]), np.zeros(1)  # (I=2, O=1)
d_out = np.array([[[1.0], [2.0]]])
out, cache = linear_forward(x, w, b)
grads = linear_backward(d_out, cache)
out.ravel(), grads.d_w.ravel(), grads.d_b, grads.d_x[0]

# %% [markdown]
# $\bar w_0 = 1 \cdot 1 + 2 \cdot 3 = 7$: over all uses, the upstream gradient times what $w_0$ was
# multiplied with. $\bar x$ of a token is its upstream number times (1, 10).
#
# ## Why sums?
#
# The same $w$ serves every token of every sequence: B·T uses. To see what that means, take the
# sharing away. Give each token *its own copy* of $w$. Then each copy is used once, and there is
# nothing to sum:
#
# $$\mathrm{out}_{bto} = \sum_i x_{bti}\, w^{(bt)}_{io}, \qquad
# \bar w^{(bt)}_{io} = x_{bti}\; \overline{\mathrm{out}}_{bto}$$
#
# > **Predict first.** All copies are then tied together: they must be equal. How does the gradient of
# > the one shared $w$ follow from the gradients of the copies?

# %%
B, T, n_in, n_out = 3, 4, 5, 2
rng = np.random.default_rng(0)
x, w, d_out = (rng.normal(size=shape) for shape in ((B, T, n_in), (n_in, n_out), (B, T, n_out)))
copies = np.broadcast_to(w, (B, T, n_in, n_out)).copy()


def use_copies(copies):
    return np.einsum("bti,btio->bto", x, copies)


d_copies = x[..., :, None] * d_out[..., None, :]  # (B, T, n_in, n_out): one for each token
gradcheck(use_copies, lambda d, copies: (d_copies,), {"copies": copies}, d_out=d_out)

# %%
out, cache = linear_forward(x, w)
compare(d_copies.sum(axis=(0, 1)), linear_backward(d_out, cache).d_w, name="d_w")

# %% [markdown]
# They add up. A step of $w$ moves all copies at once, and small changes of the loss add. Not the
# mean: if the loss is a mean over tokens, then 1/(B·T) is already in `d_out`. It came in where
# the mean was taken, and it must not come in twice.
#
# ## Three gradients, three einsums
#
# Written with indices, a product's gradients need no thought: **exchange the roles of the letters.**
#
# $$\mathrm{out}_{bto} = \sum_i x_{bti} w_{io} + b_o: \qquad
# \bar x_{bti} = \sum_o \overline{\mathrm{out}}_{bto} w_{io}, \quad
# \bar w_{io} = \sum_{b,t} x_{bti} \overline{\mathrm{out}}_{bto}, \quad
# \bar b_o = \sum_{b,t} \overline{\mathrm{out}}_{bto}$$
#
# What is summed in each is every letter that the result does not have.

# %%
einsums = (
    np.einsum("bto,io->bti", d_out, w),  # d_x = d_out @ w.T
    np.einsum("bti,bto->io", x, d_out),  # d_w = (B*T rows of x).T @ (B*T rows of d_out)
    np.einsum("bto->o", d_out),  # d_b
)
_, cache = linear_forward(x, w, np.zeros(n_out))
compare(einsums, linear_backward(d_out, cache))

# %% [markdown]
# ## The moves
#
# Split and merge only carry numbers from place to place. Backward carries the gradients back to where
# the numbers came from: split's backward is merge, and merge's is split. In formulas: a move is a
# permutation matrix P, and its transpose is its inverse. The transpose is what every linear map
# has as its backward, and it is defined by $\langle P x, y \rangle = \langle x, P^\top y \rangle$:

# %%
x, y = rng.normal(size=(3, 4, 10)), rng.normal(size=(3, 2, 4, 5))  # y: B H T d
float((split_heads(x, 2) * y).sum()), float((x * merge_heads(y)).sum())

# %% [markdown]
# ## The whole way, step by step
#
# B = 7 sequences, T = 4 tokens, D = 5, H = 2 heads of width 3, so H·d = 6: no two sizes are equal, and
# a wrong transpose cannot hide. All biases are there and not zero; `d_out` is random.

# %%
B, T, D, H, d = 7, 4, 5, 2, 3
rng = np.random.default_rng(1)
inward = [(D, H * d), (H * d,)]  # w_q and b_q; likewise for k and v
shapes = [*inward, *inward, *inward, (H * d, D), (D,)]
params = MultiHeadParams(*(0.5 * rng.normal(size=shape) for shape in shapes))
x, d_out = rng.normal(size=(B, T, D)), rng.normal(size=(B, T, D))


def forward(*inputs, **options):
    return multi_head_attention_forward(*inputs, params=params, num_heads=H, **options)


with trace() as t:
    out, cache = forward(x)
t["q"].shape, t["merged"].shape, out.shape

# %% [markdown]
# **4. Back through $w_o$**, then apart into heads:

# %%
d_merged = d_out @ params.w_o.T  # (B, T, H*d)
d_w_o = np.einsum("btm,bto->mo", t["merged"], d_out)  # (H*d, D)
d_b_o = d_out.sum(axis=(0, 1))  # (D,)
d_heads = split_heads(d_merged, H)  # (B, H, T, d)
d_merged.shape, d_w_o.shape, d_b_o.shape, d_heads.shape

# %% [markdown]
# **3. Back through attention**: the box of notebook 12.

# %%
d_q, d_k, d_v, _, _ = attention_backward(d_heads, cache.attention)
d_q.shape, d_k.shape, d_v.shape

# %% [markdown]
# **1. Together again, and back through the projections.** Each projection gives the gradients of its
# own params, and a share of the gradient of x.

# %%
projected = {"q": merge_heads(d_q), "k": merge_heads(d_k), "v": merge_heads(d_v)}  # (B, T, H*d)
d_w = {f"w_{s}": np.einsum("bti,bto->io", x, g) for s, g in projected.items()}
d_b = {f"b_{s}": g.sum(axis=(0, 1)) for s, g in projected.items()}
via = {s: g @ getattr(params, f"w_{s}").T for s, g in projected.items()}  # (B, T, D) each
{name: array.shape for name, array in via.items()}

# %% [markdown]
# **0. One x was three inputs.** It collects what comes from all three:
#
# $$\bar x = \bar q_{\text{proj}} w_q^\top + \bar k_{\text{proj}} w_k^\top + \bar v_{\text{proj}} w_v^\top$$

# %%
d_x = via["q"] + via["k"] + via["v"]
right = multi_head_attention_backward(d_out, cache)
mine = {"d_x": d_x, **d_w, **d_b, "w_o": d_w_o, "b_o": d_b_o}
compare(mine, {"d_x": right.d_x_q, **right.d_params._asdict()})

# %% [markdown]
# That is the whole backward pass: some lines for each line of forward. And against numbers that owe
# nothing to it:


# %%
def forward_with_params(x_q, params):
    return multi_head_attention_forward(x_q, params=params, num_heads=H)


gradcheck(forward_with_params, multi_head_attention_backward, {"x_q": x, "params": params})

# %% [markdown]
# ## What the library does, seen
#
# Forward and backward recorded together; here is the second half. Read it next to forward's table in
# notebook 03, from its bottom up.

# %%
with trace() as full:
    out, cache = forward(x)
    right = multi_head_attention_backward(d_out, cache)
full.table(backward=True)

# %% [markdown]
# Now one of the three ways, the one via k: each gradient beside the array that it belongs to. Same
# shape, always. (The params themselves are not recorded, so their places on the left are empty.)

# %%
on_the_way = {"out", "merged", "w_o", "b_o", "heads", "k", "k_projected", "w_k", "b_k", "x_k"}
with trace() as via_k:
    for recorded in full:
        if recorded.name.removeprefix("d_") in on_the_way:
            step(recorded.name, recorded.array, recorded.axes, recorded.equation)
backward_film(via_k)

# %% [markdown]
# One panel deceives. `d_b_k` looks like any other, because each panel is shaded by its own largest
# number; we shall see how large that is.
#
# ## Three branches
#
# x reaches the loss by three ways: as what asks, as what is matched, as what is mixed. The
# chain rule adds over all ways. To see one way alone, **freeze the others**: the forward takes three
# inputs, so hand it the same x three times, and move only one.
#
# > **Predict first.** `multi_head_attention_backward` then returns three gradients. What is their sum?

# %%
_, cache_3 = forward(x, x, x)
three = multi_head_attention_backward(d_out, cache_3)
compare(
    {"via q": via["q"], "via k": via["k"], "via v": via["v"], "sum": d_x},
    {"via q": three.d_x_q, "via k": three.d_x_k, "via v": three.d_x_v, "sum": right.d_x_q},
)

# %% [markdown]
# The three are not only formulas: each is what numeric differentiation finds when the other two
# inputs stay where they are.

# %%
gradcheck(
    lambda x_q, x_k, x_v: forward(x_q, x_k, x_v),
    multi_head_attention_backward,
    {"x_q": x, "x_k": x.copy(), "x_v": x.copy()},
)

# %%
branches = {f"via {s}": g[0] for s, g in via.items()} | {"d_x": d_x[0]}
matrices(branches, title="Sequence 0: three shares, and their sum")

# %% [markdown]
# > **Predict first.** Someone returns only the branch via q. The shape is right. Are the
# > gradients of the *params* wrong too? Does the result at least point roughly the right way?

# %%
rows = []
for s, g in via.items():
    length, whole = np.sqrt((g**2).sum()), np.sqrt((d_x**2).sum())
    rows.append([f"via {s}", f"{length:.2f}", f"{(g * d_x).sum() / (length * whole):.2f}"])
Table("", ["branch", "length", "cosine with d_x"], rows)

# %% [markdown]
# The params' gradients were made before `d_x`, and without it: they are right. Who suffers is the *layer below*, which gets
# a wrong upstream gradient. A test that looks at params only sees nothing, and neither does training
# where nothing below is learned. And a gradient whose cosine with the right one is above 0 still
# points partly the right way: training may go on, only worse.
#
# ### Cross-attention: two inputs
#
# If keys and values come from another sequence, x asks and the source is matched and mixed: one
# branch for the one, two for the other.
#
# > **Predict first.** T_q = 4, T_k = 9, D = 5, and a source of width 8. What are the shapes of the
# > two input gradients?

# %%
source = rng.normal(size=(B, 9, 8))
wide = {n: 0.5 * rng.normal(size=(8, H * d)) for n in ("w_k", "w_v")}
cross, cross_cache = multi_head_attention_forward(
    x, source, params=params._replace(**wide), num_heads=H
)
crossed = multi_head_attention_backward(d_out, cross_cache)
crossed.d_x_q.shape, crossed.d_x_k.shape, crossed.d_x_v

# %% [markdown]
# `d_x_v` is None: no third input was given, and what came via v is in `d_x_k`, as x_k served for both.
#
# ## Gradients of the params
#
# Each has its param's shape. And since block h of the columns of $w_q$ belongs to head h alone, so
# does block h of its gradient: it is what head h by itself would give. For $w_o$ the blocks are rows.

# %%
head = [slice(h * d, (h + 1) * d) for h in range(H)]
blocks = {f"w_q, head {h}": np.einsum("bti,btd->id", x, d_q[:, h]) for h in range(H)}
blocks |= {f"w_o, head {h}": np.einsum("btd,bto->do", t["heads"][:, h], d_out) for h in range(H)}
expected = {f"w_q, head {h}": right.d_params.w_q[:, head[h]] for h in range(H)}
expected |= {f"w_o, head {h}": right.d_params.w_o[head[h]] for h in range(H)}
compare(blocks, expected)

# %% [markdown]
# Two of the biases are special. First the value bias. The weights of a row sum to 1, so $b_v$ is
# added to every mean unchanged, then goes through $w_o$: it does exactly what a part of $b_o$ could do.
#
# > **Predict first.** How does $\bar b_v$ follow from $\bar b_o$, without looking at attention at all?

# %%
compare(d_b_o @ params.w_o.T, right.d_params.b_v, name="b_v")

# %% [markdown]
# ### The key bias has no gradient
#
# $b_k$ adds $q_i \cdot b_k / \sqrt{d_k}$ to every score of query i: the same number along the row.
# Softmax does not see a constant. So no output depends on $b_k$, and its gradient is exactly 0. In
# numbers: 0 up to rounding.

# %%
print(right.d_params.b_k)
{name: float(abs(g).max()) for name, g in right.d_params._asdict().items() if name[0] == "b"}

# %%
shifted, _ = multi_head_attention_forward(
    x, params=params._replace(b_k=params.b_k + 100.0), num_heads=H
)
float(abs(shifted - out).max())  # how much the output changed

# %% [markdown]
# A key bias can be forgotten and no test of outputs or gradients will find it; only the scores show
# it. It also ruins a popular measure of correctness, the relative error $|a - n| / \max(|a|, |n|)$ of
# an analytic gradient a and a numeric one n.
#
# > **Predict first.** a is about 1e-16, n about 1e-11, both are "0". What is the relative error?


# %%
def loss_with(b_k):
    shifted = params._replace(b_k=b_k)
    return (multi_head_attention_forward(x, params=shifted, num_heads=H)[0] * d_out).sum()


h, first = 1e-5, np.eye(H * d)[0]
n = (loss_with(params.b_k + h * first) - loss_with(params.b_k - h * first)) / (2 * h)
a = right.d_params.b_k[0]
print(f"a = {a:.1e}, n = {n:.1e}, relative error {abs(a - n) / max(abs(a), abs(n)):.2g}")
largest = max(abs(g).max() for g in right.d_params)
print(f"error relative to the largest gradient of all params: {abs(a - n) / largest:.1e}")

# %% [markdown]
# About 1: not one digit agrees, and yet both are right. So measure errors against the largest gradient
# of the whole set, as `gradcheck` does: above, `b_k` passed. (The argument needs plain scores. With a
# softcap, or with rotated keys, the shift is not constant along the row and $\bar b_k$ is not 0;
# docs/multi-head.md has both.)

# %%
_, capped_cache = forward(x, softcap=1.0)
float(abs(multi_head_attention_backward(d_out, capped_cache).d_params.b_k).max())

# %% [markdown]
# ## A batch is a sum
#
# Sequences do not see each other. So, for a given `d_out`, the gradients of what they share are sums
# over sequences.
#
# > **Predict first.** We run each sequence alone. What must be done with the seven `d_w_q`, and
# > what with the seven `d_x`?

# %%
pairs = zip(np.split(x, B), np.split(d_out, B), strict=True)  # each (1, T, D)
alone = [multi_head_attention_backward(d_one, forward(one)[1]) for one, d_one in pairs]
summed = {n: sum(getattr(g.d_params, n) for g in alone) for n in MultiHeadParams._fields}
joined = np.concatenate([g.d_x_q for g in alone])
compare({"d_x": joined, **summed}, {"d_x": right.d_x_q, **right.d_params._asdict()})

# %% [markdown]
# Params: add. Inputs: side by side. And if your loss is a *mean* over the batch? Then its gradient
# brings 1/B along, once, in `d_out`; backward is linear in `d_out` and hands it on by itself:

# %%
of_mean = multi_head_attention_backward(d_out / B, cache)
compare(of_mean.d_params, right.d_params).rows[0].finding

# %% [markdown]
# ## Layers accumulate
#
# `nn.MultiHeadAttention` keeps its gradients in `grads`, and every `backward` *adds* to them. Call it
# twice and they double; `zero_grads` starts anew. That is on purpose: a batch too large for memory
# can be worked through in pieces.

# %%
layer = MultiHeadAttention(D, H, head_dim=d, rng=0)
layer.params.update(params._asdict())
layer(x)
layer.backward(d_out)
once = dict(layer.grads)
layer.backward(d_out)
compare(layer.grads["w_q"], once["w_q"], name="w_q, after two backwards").rows[0].finding

# %%
layer.zero_grads()
for piece in (slice(0, 1), slice(1, B)):  # one sequence, then six
    layer(x[piece])
    layer.backward(d_out[piece])
compare(layer.grads, once)

# %% [markdown]
# ## What mistakes look like
#
# Eight ways to go wrong, and what a comparison says of each.
#
# > **Predict first.** For each: does the shape give it away? Is there one factor between wrong and
# > right?

# %%
d_q_projected = projected["q"]
last, w_q, b_q = B - 1, right.d_params.w_q, right.d_params.b_q
mistakes = {
    "d_x: via q alone": (via["q"], d_x),
    "d_x: via v left out": (via["q"] + via["k"], d_x),
    "d_w_q: transposed": (w_q.T, w_q),
    "d_w_q: mean over the batch": (w_q / B, w_q),
    "d_w_q: the last sequence alone": (x[last].T @ d_q_projected[last], w_q),
    "d_b_q: summed over B only": (d_q_projected.sum(axis=0), b_q),
    "d_b_q: mean over B and T": (d_q_projected.mean(axis=(0, 1)), b_q),
    "d_w_o: from heads not merged": (
        np.einsum("btm,bto->mo", t["heads"].reshape(B, T, H * d), d_out),
        d_w_o,
    ),
}
for name, (wrong, expected) in mistakes.items():
    print(f"{name}\n    {compare(wrong, expected).rows[0].finding}")

# %% [markdown]
# | finding | look for |
# |---|---|
# | last two axes exchanged | `x.T @ d` written as `d.T @ x` |
# | another number of axes | a sum over B or T left out |
# | each is 1/B, or 1/(B·T), of what was expected | a mean for a sum |
# | all differ, no factor | a branch, a sequence, a move |
#
# The transposed gradient was caught by its shape, since D = 5 and H·d = 6. In most models
# H·d = D. There the shape is silent:

# %%
square = MultiHeadAttention(8, 2, rng=3)
z, d_z = rng.normal(size=(2, B, T, 8))
square(z)
square.backward(d_z)
compare(square.grads["w_q"].T, square.grads["w_q"], name="w_q.T").rows[0].finding

# %% [markdown]
# So take sizes that all differ; notebook 12 counts what other weak tests miss.
#
# ### Find the first one
#
# One wrong array makes everything after it wrong. So do not look at `d_x`; look for the *first*
# array that leaves the reference. Here somebody splits `d_merged` without the transpose:
#
# > **Predict first.** Which gradients will be right, which one is the first to differ? Will `d_v` be
# > right?

# %%
with trace() as wrong:
    step("d_out", d_out, "B T_q D_out")
    merged_gradient = step("d_merged", d_out @ params.w_o.T, "B T_q H*d_v", "d_out @ w_o.T")
    badly_split = merged_gradient.reshape(B, H, T, d)
    step("d_heads", badly_split, "B H T_q d_v", "d_merged.reshape(B, H, T_q, d_v)")
    attention_backward(badly_split, cache.attention)
backward_film(wrong, reference=full)

# %% [markdown]
# `d_merged` is right, `d_heads` is not: the mistake sits between the two. All that follows is wrong
# without any fault of its own; `d_v` too, for it is made from `d_heads`.
#
# ## Exercise: the linear map and the three branches
#
# Write the backward of `out = x @ w + b`, and the way from `d_q`, `d_k`, `d_v` to `d_x` in
# self-attention. (`merge_heads` is at hand.) The check compares numbers, and then differentiates both
# forwards numerically.
#
# More of this kind in `mha-numpy exercises`: `multi-head-backward`, the whole way; `layer-norm-backward`;
# and `museum-one-token`, a bug that shipped.


# %% tags=["exercise"]
def my_linear_backward(d_out, x, w):
    """d_out (B, T, O), x (B, T, I), w (I, O) -> d_x (B, T, I), d_w (I, O), d_b (O,)."""
    ...  # your code


def my_input_gradient(d_q, d_k, d_v, params):
    """Three gradients (B, H, T, d) -> d_x (B, T, D); params.w_q, .w_k, .w_v are (D, H*d).

    Forward was q = split_heads(x @ params.w_q + params.b_q, H), and so for k and v, from one x.
    """
    ...  # your code


# %% tags=["check"]
check("linear-backward", my_linear_backward)
check("input-gradient", my_input_gradient)

# %% tags=["hint"]
# hint("linear-backward")  # shows the next of four hints
# hint("input-gradient")

# %% [markdown]
# ## Summary
#
# - `d_x = d_out @ w.T`, `d_w = x.T @ d_out`, `d_b = d_out`, the last two *summed over B and T*: one
#   param is used B·T times. A mean belongs to the loss and arrives in `d_out`.
# - Moves go back by the opposite move; attention is a box; everything else is the linear map again.
# - Self-attention's input has three branches: `d_x` is their sum. Forget one and only the layers
#   below suffer.
# - Head h's params have head h's gradient, block by block. The key bias has gradient 0.
# - Use sizes that all differ, biases that are not zero, a random `d_out`, and look for the first
#   array that differs.
#
# **In the code:** `mha_numpy/core/linear.py`, `projection.py` and `multihead.py`: backward visits
# forward's step numbers in reverse. Derivation: docs/multi-head.md.
#
# **Reference:** Goodfellow, Bengio and Courville 2016, *Deep Learning*, section 6.5 (back-propagation);
# Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.2; CS231n, *Gradient checks*, on relative
# errors.
#
# **Next:** [10, grouped and multi-query attention](15_grouped-and-multi-query.ipynb).
