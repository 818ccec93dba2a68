# %% [markdown]
# # 19 · Rotary positions
#
# Five tokens move to the end of a long text, from places 0 to 4 to places 1000 to 1004. The distances between them stay
# the same. Do their scores? Let's compare two ways to tell a model where a token is: we add sinusoids to the tokens
# (notebook 18), or we *turn* queries and keys (RoPE, rotary position embedding). Nothing is trained here; tokens and
# params are random.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    KVCache,
    MultiHeadAttention,
    RopeOptions,
    attention_forward,
    gradcheck,
    rope_backward,
    rope_forward,
    sinusoidal_positions,
)
from mha_numpy.show.pictures import arrows, line_chart, matrices
from mha_numpy.teach.exercises import check, hint

# %%
rng, D = np.random.default_rng(0), 8
x = rng.normal(size=(5, D))
w_q, w_k = rng.normal(size=(2, D, D)) / np.sqrt(D)


def turn(a, **options):
    """Return a with its pairs turned; rows are tokens."""
    return rope_forward(a, **options)[0]


def with_sinusoids(start):
    placed = x + sinusoidal_positions(5, D, offset=start)
    return (placed @ w_q) @ (placed @ w_k).T


def with_rope(start):
    at = {"positions": start + np.arange(5)}
    return turn(x @ w_q, **at) @ turn(x @ w_k, **at).T


scores = {
    "sinusoids, from 0": with_sinusoids(0),
    "sinusoids, from 1000": with_sinusoids(1000),
    "RoPE, from 0": with_rope(0),
    "RoPE, from 1000": with_rope(1000),
}
matrices(scores)

# %% [markdown]
# With sinusoids the scores change. With RoPE they stay the same, down to the last digit shown, and it takes no params
# and no training. How?
#
# **By the end you can** turn queries and keys by their positions, turn gradients
# back, and recognise the mistakes that no shape shows.
#
# ## Turn queries and keys
#
# In notebook 18, shifting sinusoids turned out to be a rotation. So why not rotate right away? RoPE (Su et al. 2021)
# adds nothing to the tokens. It takes the finished q and k of each head, in pairs of features, and turns pair $i$ of
# the token at position $t$ by the angle $a = t\,\theta_i$:
#
# $$\begin{pmatrix} x_1 \\ x_2 \end{pmatrix} \to
# \begin{pmatrix} \cos a & -\sin a \\ \sin a & \cos a \end{pmatrix}
# \begin{pmatrix} x_1 \\ x_2 \end{pmatrix}, \qquad \theta_i = \mathrm{base}^{-2i/d_k}$$
#
# A pair is an arrow in the plane, so we can watch it. Here is the arrow (1, 0) at positions 0 to 5, in each of four
# pairs. (The base is 20 here, so that all four turn visibly; usually it is 10000.)

# %%
one_zero = np.repeat([1.0, 0.0], 4)  # pair i: features i and i + 4
turned, pairs = turn(np.tile(one_zero, (6, 1)), base=20), {}
for i in range(4):
    name = f"pair {i}: {20 ** (-i / 4):.2f} per token"
    pairs[name] = turned[:, [i, i + 4]]
arrows(pairs, title="One arrow at positions 0 to 5")

# %% [markdown]
# Pair 0 turns by 1 radian with each token, pair 3 by about a tenth of that. No arrow gets longer or shorter.
#
# ## Scores depend only on distance
#
# The transpose of a rotation turns back, and angles add up. So for a query at position $m$ and a key at position $n$:
#
# $$\big(R(m\theta)\,q\big)^\top \big(R(n\theta)\,k\big) = q^\top R(m\theta)^\top R(n\theta)\,k
# = q^\top R\big((n - m)\theta\big)\,k$$
#
# > **Predict first.** A query is at position 2 and a key at 0. Then (a) both move by 1000; (b) only the query moves on,
# > by
# > 2. What happens to the angle between the two arrows?


# %%
def q_and_k(m, n):
    pair = np.array([[0.6, 0.8], [1.0, 0.0]])  # q and k
    return turn(pair, positions=np.array([m, n]))


moves = {
    "q at 2, k at 0": (2, 0),
    "(a) 1002 and 1000": (1002, 1000),
    "(b) 4 and 0": (4, 0),
}
turned = {name: q_and_k(*places) for name, places in moves.items()}
for name, (q, k) in turned.items():
    print(f"{name}: score {q @ k:.3f}")
arrows(turned, title="A query and a key, turned", labels=["q", "k"])

# %% [markdown]
# <details><summary>Answer</summary>
#
# In (a) both arrows turn equally, so the angle between them stays the same, and so does the dot product. In (b) the
# distance has changed, and the angle with it.
#
# </details>
#
# **How far does it reach?** Let q and k be all ones, so that only position counts. The score at distance n is then
# $2\sum_i \cos(n\theta_i)$, divided by $\sqrt{d_k}$. A larger base makes all pairs except the first turn more slowly;
# Llama 3 uses 500000 for its long texts (Grattafiori et al. 2024, section 3.2).

# %%
distance = np.unique(np.geomspace(1, 4096, 60).astype(int))
ones, reach = np.ones((len(distance), 64)), {}
for base in (10000, 500000):
    k_turned = turn(ones, positions=distance, base=base)
    reach[f"base {base}"] = k_turned.sum(axis=1) / np.sqrt(64)
axes = {"x_label": "distance", "y_label": "score"}
title = "Score of equal q and k, d_k = 64"
line_chart(distance, reach, title=title, log_x=True, **axes)

# %% [markdown]
# The score falls with distance, but not steadily, because arrows that have come full circle agree again. With the
# larger base, far tokens stay within reach.
#
# ## Which features form a pair? Two layouts
#
# The paper pairs neighbours, features 2i and 2i + 1 (*interleaved*). Others pair feature i of the first half with
# feature i of the second half (*halves*), which is the default here. `RopeOptions(interleaved=...)` chooses between
# them, and `rotary_dim` says how many features turn at all.
#
# > **Predict first.** For a turn by one position, the interleaved map is a row of $2 \times 2$ blocks along the
# > diagonal. Where are the non-zero cells of the map for halves?

# %%
basis, at_1 = np.eye(D), {"positions": np.ones(D)}
maps = {
    "interleaved": turn(basis, **at_1, interleaved=True),
    "halves": turn(basis, **at_1),
    "halves, rotary_dim=4": turn(basis, **at_1, rotary_dim=4),
}
matrices(maps)

# %% [markdown]
# <details><summary>Answer</summary>
#
# On the diagonal and four places away from it: the same angles in different places. If you permute the features, even
# ones first, one map becomes the other. (These maps multiply a row vector from the right.)
#
# </details>
#
# So what if you train params with one layout and run them with the other? Every shape is right.
#
# > **Predict first.** We take random q and k and both layouts. In some cells the scores must agree, whatever q and k
# > are. Which cells?

# %%
q, k = rng.normal(size=(2, 5, D))
layouts = {}
for name in ("interleaved", "halves"):
    option = {"interleaved": name == "interleaved"}
    layouts[name] = turn(q, **option) @ turn(k, **option).T
gap = layouts["halves"] - layouts["interleaved"]
matrices(layouts | {"difference": gap})

# %% [markdown]
# <details><summary>Answer</summary>
#
# The ones on the diagonal. At distance 0, q and k turn by the same angle, so a token's score with itself is right. All
# others are wrong.
#
# </details>
#
# That's why Llama's params, published interleaved, were permuted for Hugging Face's halves (transformers #25199). **The
# fix:** permute the columns of `w_q` and `w_k` (and `b_q`, `b_k`). As long as q and k are permuted in the same way,
# their dot product doesn't change.
#
# > **Predict first.** There are two heads of width 4. We run interleaved params in halves, in three ways: as they are;
# > with all 8 columns reordered, even ones first; with the 4 columns of each head reordered. Which weights come out
# > right?

# %%
x6 = rng.normal(size=(1, 6, D))


def weights_of(columns, interleaved):
    """Return head 1's weights, with reordered columns of params."""
    rope = RopeOptions(interleaved=interleaved)
    # random, the same each time
    layer = MultiHeadAttention(D, num_heads=2, rope=rope, rng=2)
    for name in ("w_q", "b_q", "w_k", "b_k"):
        layer.params[name] = 2 * layer.params[name][..., columns]
    _, weights = layer(x6, return_weights=True)
    return weights[0, 1]


orders = {
    "as they are": np.arange(D),
    "whole width": np.array([0, 2, 4, 6, 1, 3, 5, 7]),
    "each head": np.array([0, 2, 1, 3, 4, 6, 5, 7]),
}
shown = {"expected": weights_of(np.arange(D), interleaved=True)}
for name, order in orders.items():
    shown[name] = weights_of(order, interleaved=False)
matrices(shown)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only the last. A head is a block of d_k columns, and no column may leave its head.
#
# </details>
#
# ## Backward: turn the gradient back
#
# RoPE multiplies by a matrix that doesn't depend on the input, $\mathrm{out} = R(a)\,x$. So $\bar x = R(a)^\top\,
# \overline{\mathrm{out}}$, and the transpose of a rotation is the rotation by $-a$:
#
# $$R(a)^\top R(a) = \begin{pmatrix} \cos^2 a + \sin^2 a & 0 \\ 0 & \sin^2 a + \cos^2 a \end{pmatrix} = 1,
# \qquad \bar x = R(-a)\,\overline{\mathrm{out}}$$
#
# > **Predict first.** Suppose you forget the minus sign and turn the gradient *further*. At which positions is `d_x`
# > still right? Would its length give the mistake away?

# %%
# one pair, the same upstream gradient at five positions
d_out = np.tile([0.6, 0.8], (5, 1))
_, cache = rope_forward(np.ones((5, 2)))
right, forgot = rope_backward(d_out, cache).d_x, turn(d_out)
three = np.stack([d_out, right, forgot], axis=1)  # (5, 3, 2)
inputs = {"x": rng.normal(size=(2, 3, 5, 4))}
display(gradcheck(rope_forward, rope_backward, inputs))
steps = {f"position {t}": three[t] for t in (1, 2, 4)}
title = "The gradient, turned back and turned further"
arrows(steps, title=title, labels=["d_out", "d_x", "wrong"])

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only at position 0, where nothing turns. The length doesn't give it away, because every arrow keeps its length of 1.
# So a test with T = 1 finds nothing.
#
# </details>
#
# ## Values are not turned
#
# Positions decide which key matches, not what gets mixed. If we turned the values too, the output would be a sum of
# vectors turned by different angles, and it would depend on where the whole text begins. Here the text moves by 7:

# %%
v = rng.normal(size=(5, D))


def attend_at(start, turns_values):
    at = {"positions": start + np.arange(5)}
    q_turned, k_turned = turn(q, **at), turn(k, **at)
    values = turn(v, **at) if turns_values else v
    return attention_forward(q_turned, k_turned, values)[0]


def change(turns_values):
    before, after = (attend_at(s, turns_values) for s in (0, 7))
    return (after - before).round(12)


changes = {"values as they are": change(turns_values=False)}
changes["values turned"] = change(turns_values=True)
matrices(changes, title="Change of the output")

# %% [markdown]
# ## A KV cache stores turned keys
#
# A model that writes keeps the keys of old tokens (notebook 17). A key's angle depends only on its own position, so the
# model turns it once, when it arrives. It turns a new query by *that query's* position, the number of tokens before it,
# `q_offset`.
#
# > **Predict first.** The usual mistake is to turn the new query as if it were at position 0. For which token would you
# > not notice?

# %%
rope, kv_cache = RopeOptions(), KVCache()
layer = MultiHeadAttention(D, num_heads=2, rope=rope, rng=2)
x7 = 2 * rng.normal(size=(1, 7, D))
# six tokens are kept
layer(x7[:, :6], kv_cache=kv_cache, is_causal=True)
_, right = layer(x7[:, 6:], kv_cache=kv_cache, return_weights=True)
# one query, which counts from 0
_, at_zero = layer(x7[:, 6:], x7, return_weights=True)
shown = {"token 6, turned by 6": right[0, :, 0]}
shown["turned by 0"] = at_zero[0, :, 0]
rows, columns = ["head 0", "head 1"], [f"key {j}" for j in range(7)]
matrices(shown, row_labels=rows, column_labels=columns)

# %% [markdown]
# <details><summary>Answer</summary>
#
# For the one at position 0, while the cache is empty. A test that decodes a single token finds nothing.
#
# </details>
#
# ## Exercise: rotate, and rotate back
#
# Write RoPE in the *halves* layout, and its backward pass. The positions are an argument and need not be 0, 1, 2, ...
# The check first makes sure that every pair keeps its length, then compares the numbers. It also compares your backward
# with numerical derivatives.
#
# To practise more, try `museum-cached-mask` in `mha-numpy exercises`, a bug that shipped: positions were wrong as soon
# as there was a KV cache.


# %% tags=["exercise"]
def my_rope(x, positions, base):
    """(B, H, T, d), positions (T,), a float -> (B, H, T, d): each
    pair turned by its angle.

    Features i and i + d/2 form pair i, for i from 0 to d/2 - 1; at
    position p it turns by p * base ** (-2 * i / d).
    """
    ...  # your code


def my_rope_backward(d_out, positions, base):
    """(B, H, T, d), positions (T,), a float -> d_x (B, H, T, d)."""
    ...  # your code


# %% tags=["check"]
check("rope", my_rope)
check("rope-backward", my_rope_backward)

# %% tags=["hint"]
# hint("rope")  # shows the next of four hints
# hint("rope-backward")

# %% [markdown]
# ## Summary
#
# You can now explain why the five tokens kept their scores: both arrows of every pair turned by the
# same amount.
#
# - RoPE turns q and k of every head, in pairs of features. Scores depend on the distance; lengths
#   stay. Values stay as they are.
# - Both layouts do the same, on different features. To go from one to the other, permute the
#   columns of `w_q` and `w_k` within each head. If you mix the layouts up, only the diagonal is
#   right.
# - The backward pass turns by minus the angle.
# - A KV cache contains turned keys, and queries start at `q_offset`.
#
# **In the code:** `rope_forward` and `rope_backward` in `mha_numpy/core/rope.py`. Derivation:
# docs/rope.md.
#
# **Reference:** Su et al. 2021, *RoFormer*, sections 3.2 and 3.4; Grattafiori et al. 2024, *The Llama
# 3 Herd of Models*, section 3.2.
#
# **Next:** [20, induction heads appear](20_induction-heads-appear.ipynb).
