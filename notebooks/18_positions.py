# %% [markdown]
# # 18 · Positions
#
# This model reads twelve digits and says them backwards. It learned to do so with a single head. (It was trained with
# `mha-numpy train reverse`; its params ship with the package.) Here it is:

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    MultiHeadAttention,
    alibi_bias,
    attention_backward,
    attention_forward,
    gradcheck,
    rope_forward,
    sinusoidal_positions,
    trace,
)
from mha_numpy.models.train import load_trained, share_right
from mha_numpy.show.pictures import (
    line_chart,
    matrices,
    weights_by_head,
)
from mha_numpy.show.walk import embed, tokenize

# %%
trained, rng = load_trained("reverse"), np.random.default_rng(0)
model = trained.model
digits = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])


def draw_reversal(note):
    said = model(digits).argmax(axis=-1)[0]
    rows = [f"says {d}" for d in said]
    columns = [str(d) for d in digits[0]]
    weights = model.attentions[0].weights
    return weights_by_head(weights, rows, columns, note=note)


draw_reversal("Trained: mha-numpy train reverse, seed 0.")

# %% [markdown]
# Place t looks at place 11 - t. We check that on 256 other texts. Then we set one array to zero, the table of its
# twelve positions.

# %%
(ids,), targets = trained.task.draw_batch(rng, 256)
before = share_right(model(ids), targets)
looks_at = model.attentions[0].weights[:, 0].argmax(axis=-1)
share = (looks_at == 11 - np.arange(12)).mean()
print(f"{share:.0%} of the places t look at 11 - t")
model.positions.params["table"][:] = 0
after = share_right(model(ids), targets)
print(f"right: {before:.0%}, without positions: {after:.0%}")
draw_reversal("Trained, then its positions were set to zero.")

# %% [markdown]
# Now the weights spread over all places, most answers are wrong, and equal digits even get equal rows. Attention itself
# doesn't know about order, so we have to put it in.
#
# **By the end you can** put order into the tokens or into the scores, and
# compute the gradient of each.
#
# ## Attention doesn't know about order
#
# `embed` gives each word a vector and adds its position. We subtract the positions, and let a layer with random
# params read "dog bites man" and "man bites dog".
#
# > **Predict first.** The words trade places. Does "dog" get a different output when it is bitten?

# %%
sentence, D = tokenize("dog bites man"), 8
x = embed(sentence, D) - sinusoidal_positions(3, D)
layer, order = MultiHeadAttention(D, num_heads=2, rng=1), [2, 1, 0]
out, swapped = layer(x[None])[0], layer(x[order][None])[0]
outputs = {"dog bites man": out, "man bites dog": swapped}
matrices(outputs, row_labels=["1st", "2nd", "3rd"])

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. The same three rows come out in a different order, so nothing after this layer can tell who
# bit whom, unless it has positions or a causal mask itself.
#
# </details>
#
# The same is true for any permutation $\Pi$ of the rows of $x$. The scores become $\Pi S \Pi^\top$. Softmax works row
# by row, so the weights become $\Pi P \Pi^\top$. And because $\Pi^\top \Pi = 1$, the output rows are permuted as the
# tokens were:
#
# $$(\Pi P \Pi^\top)(\Pi V) = \Pi\,(P V).$$
#
# **A causal mask is a kind of position**, because it stays put when tokens move.
#
# > **Predict first.** The first two words trade places, and the mask is causal. Which words keep
# > exactly the same output row after one layer? And after two?


# %%
def causal(tokens, layers):
    for _ in range(layers):
        tokens = layer(tokens[None], is_causal=True)[0]
    return tokens


def difference(layers):
    swapped = causal(x[[1, 0, 2]], layers)[[1, 0, 2]]
    return (swapped - causal(x, layers)).round(12)


changes = {"one layer": difference(1), "two layers": difference(2)}
matrices(changes, row_labels=sentence)

# %% [markdown]
# <details><summary>Answer</summary>
#
# After one layer, only "man": it sees the same two words, but not their order. "dog" and "bites" see different words
# before them, so after two layers even "man" changes.
#
# </details>
#
# That's how causal models can learn order without positions (Haviv et al. 2022).
#
# ## Add it to the tokens: sinusoids
#
# We give position $t$ a vector made of D/2 clock hands, each with its own speed. From one token to the next, hand $i$
# turns by $\theta_i$, and the vector holds its sine and cosine:
#
# $$p_{t,\,2i} = \sin(t\,\theta_i), \qquad p_{t,\,2i+1} = \cos(t\,\theta_i), \qquad
# \theta_i = 10000^{-2i/D}$$
#
# > **Predict first.** D = 8 gives four pairs with $\theta$ = 1, 0.1, 0.01, 0.001. Which columns
# > will look constant over ten tokens?

# %%
P = sinusoidal_positions(10, D)
clock = [f"{f} {i}" for i in range(4) for f in ("sin", "cos")]
places = [f"t={t}" for t in range(10)]
matrices({"positions": P}, row_labels=places, column_labels=clock)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The columns of pairs 2 and 3. Fast hands tell neighbours apart, and slow hands tell far from near.
#
# </details>
#
# **A shift is a rotation of each pair**, because $\sin(a + b) = \sin a \cos b + \cos a \sin b$, and
# $\cos(a + b) = \cos a \cos b - \sin a \sin b$. So the pair at $t + s$ is the pair at $t$ times a $2 \times 2$ matrix
# that depends only on the shift $s$, not on $t$. All pairs together:


# %%
def turn(shift, D):
    """(D, D): p @ turn(shift, D) is p, moved on by `shift`."""
    angle = shift * 10000.0 ** (-2 * np.arange(D // 2) / D)
    matrix = np.zeros((D, D))
    even, odd = np.arange(0, D, 2), np.arange(1, D, 2)
    matrix[even, even] = matrix[odd, odd] = np.cos(angle)
    matrix[odd, even] = np.sin(angle)
    matrix[even, odd] = -np.sin(angle)
    return matrix


moved = P[:-3] @ turn(3, D)  # each moved on by 3
print(f"largest error: {np.abs(moved - P[3:]).max():.0e}")
labels = {"row_labels": clock, "column_labels": clock}
matrices({"turn(3)": turn(3, D)}, **labels)

# %% [markdown]
# **Dot products depend on the distance**, since $\sin a \sin b + \cos a \cos b = \cos(a - b)$. But attention doesn't
# compare $p_t$ with $p_u$ directly, because each goes through a learned map first.
#
# > **Predict first.** $P P^\top$ is constant along each diagonal. Is $(P W_Q)(P W_K)^\top$ constant
# > too, if the params are random?

# %%
w_q, w_k = rng.normal(size=(2, D, D)) / np.sqrt(D)
products = {"P P.T": P @ P.T}
products["(P w_q) (P w_k).T"] = (P @ w_q) @ (P @ w_k).T
matrices(products, shared=False)

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. Sinusoids *offer* distances, but the model has to learn maps that read them.
#
# </details>
#
# Words meet positions, too. With $M = W_Q W_K^\top$, each score has four parts:
#
# $$(x + p)\,M\,(x' + p')^\top = x M x'^\top + x M p'^\top + p M x'^\top + p M p'^\top$$

# %%
p, M = P[:3], w_q @ w_k.T
parts = {
    "word-word": x @ M @ x.T,
    "word-position": x @ M @ p.T,
    "position-word": p @ M @ x.T,
    "position-position": p @ M @ p.T,
}
parts["their sum"] = sum(parts.values())
matrices(parts | {"scores": (x + p) @ M @ (x + p).T})

# %% [markdown]
# ### Backward of an addition
#
# The gradient of `x + P` passes through to `x` unchanged. Sinusoids are constants, so they need no gradient. A
# *learned* table, such as the one in our model, does need one. Every sequence of the batch uses it, so its gradient is
# the sum over the batch.
#
# $$\bar x = \overline{\mathrm{out}}, \qquad \bar P_t = \sum_b \overline{\mathrm{out}}_{b,t}$$
#
# > **Predict first.** The table has 7 rows; the batch has 3 sequences of 4 tokens; the upstream
# > gradient is 1 everywhere. What is the gradient of each row of the table?


# %%
def add_table(x, table):
    return x + table[: x.shape[1]]


def add_table_backward(d_out, x, table):
    d_table = np.zeros_like(table)
    d_table[: x.shape[1]] = d_out.sum(axis=0)
    return d_out, d_table


tokens = rng.normal(size=(3, 4, 5))  # B=3, T=4, D=5
table = rng.normal(size=(7, 5))
inputs = {"x": tokens, "table": table}
display(gradcheck(add_table, add_table_backward, inputs))
_, d_table = add_table_backward(np.ones((3, 4, 5)), tokens, table)
matrices({"d_table": d_table})

# %% [markdown]
# <details><summary>Answer</summary>
#
# In rows 0 to 3 it is 3, the number of sequences. In rows 4 to 6 it is 0.
#
# </details>
#
# Positions that never occur in training are never learned, and beyond its last row the table has nothing to offer. So a
# learned table limits the length of text that a model can read: 512 tokens for BERT, 1024 for GPT-2.
#
# ## Add it to the scores: ALiBi
#
# ALiBi (*attention with linear biases*, Press et al. 2022) leaves tokens, q and k as they are. Instead, each head
# subtracts a number from its scores, and that number grows with the distance. There are no params:
#
# $$\mathrm{bias}_{h,i,j} = -m_h\,|i - j|, \qquad m_h = 2^{-8h/H}, \quad h = 1 \dots H$$

# %%
H, bias = 4, alibi_bias(4, 5)
matrices({f"slope 1/{4 ** (h + 1)}": bias[h] for h in range(H)})

# %% [markdown]
# > **Predict first.** All else equal, by which factor does a weight of the first head fall with each token of distance?
# > And of the last?
#
# <details><summary>Answer</summary>
#
# By $e^{-1/4} = 0.78$ and by $e^{-1/256} = 0.996$. The first head is near-sighted. To the last,
# near and far are almost the same in short texts.
#
# </details>
#
# **Backward.** The gradient of a bias is the gradient of the scores, summed over every axis along which the bias was
# broadcast (here, the batch). ALiBi's bias is made of constants, so nothing uses its gradient. T5 (Raffel et al. 2020,
# section 2.1) learns one number for each head and distance. There the gradients of all cells at that distance are added
# up.

# %%
q4, k4, v4 = rng.normal(size=(3, 2, H, 5, 3))  # B=2, T=5, d_k=3
with trace() as back:
    out, cache = attention_forward(q4, k4, v4, bias=bias)
    grads = attention_backward(rng.normal(size=out.shape), cache)
d_scores = back["d_scores"][:, 0]  # (B, T, T) of head 0
each = {f"d_scores, sequence {b}": d_scores[b] for b in (0, 1)}
matrices(each | {"d_bias": grads.d_bias[0]})

# %% [markdown]
# ## Three ways on equal tokens
#
# If **all tokens are the same**, any weights that aren't uniform come from positions. Let's compare sinusoids, ALiBi,
# and a third way, RoPE, which turns q and k (notebook 19).
#
# > **Predict first.** One of the three falls steadily with distance; two rise to a second peak. Where, and why there?

# %%
T, d_k = 12, 16
same = np.ones((T, d_k))
ways = {
    "no positions": same,
    "sinusoids": sinusoidal_positions(T, d_k),
    "RoPE": rope_forward(same)[0],
    "ALiBi": same,  # positions come as a bias
}
q, bias = np.stack(list(ways.values()))[None], np.zeros((4, T, T))
bias[3] = alibi_bias(4, T)[0]  # of slope 1/4
_, cache = attention_forward(q, q, np.ones_like(q), bias=bias)
lines = dict(zip(ways, cache.weights[0, :, 0], strict=True))
axes = {"x_label": "distance of the key", "y_label": "weight"}
title = "Query 0 among equal tokens; nothing is trained"
line_chart(range(T), lines, title=title, **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Sinusoids and RoPE peak again at distance 6, because their fastest hand comes round after $2\pi \approx 6.28$ tokens.
# ALiBi falls steadily. Without positions the weights are uniform.
#
# </details>
#
# | | learned table, sinusoids | RoPE | ALiBi |
# |---|---|---|---|
# | where it enters | the tokens, once | q and k, every layer | the scores, every layer |
# | what scores depend on | both positions | the distance | the distance |
# | params | a table, or none | none | none |
# | backward | sum over the batch, or pass on | turn back | `d_bias`, unused |
#
# ## A positional head, by hand
#
# Trained models have heads that attend to the previous token, or to the next, whatever the tokens are (Clark et al.
# 2019 in BERT; Voita et al. 2019 in translation). Let's build one. A query should match the key whose position is one
# less, so we turn it back by one: $q_i = p_i\,\mathrm{turn}(-1) = p_{i-1}$. `turn(-1)` is a matrix, so it can be the
# `w_q` of a head that reads only positions. Here are three: previous, same, next.
#
# > **Predict first.** Query 0 has no previous token, and the last has no next one. Where do they look? And in a causal
# > model, where does the head "next" look?

# %%
text, d = tokenize("The tired animal crossed the street"), 16
p = sinusoidal_positions(len(text), d)
# 60 makes the weights sharp
turned = [60 * p @ turn(shift, d) for shift in (-1, 0, 1)]
q, k = np.stack(turned)[None], np.stack([p, p, p])[None]
_, in_causal = attention_forward(q, k, k, is_causal=True)
next_looks = in_causal.weights[0, 2].argmax(axis=-1)
print("in a causal model, 'next' looks at:", next_looks)
_, cache = attention_forward(q, k, k)
names = ["previous", "same", "next"]
weights_by_head(cache.weights, text, head_names=names)

# %% [markdown]
# <details><summary>Answer</summary>
#
# They look at their own token, because a row's weights have to sum to 1 and the nearest position wins. In a causal
# model the next token is hidden, so "next" becomes "same". A next-token head needs attention that looks both ways, as
# in BERT.
#
# </details>
#
# ## Exercise: the gradient of a learned table
#
# A learned table of positions is an embedding whose ids are the positions. If two short texts share
# one row of the batch, positions start again in the middle, so one id occurs twice. Write the
# backward for any ids, so that it works for positions and for words.
#
# To practise more, try `museum-token-twice` and `museum-cached-mask` in `mha-numpy exercises`. Both
# are bugs that shipped.


# %% tags=["exercise"]
def my_embedding_backward(d_out, ids, V):
    """d_out (B, T, D), ids (B, T) of 0 to V - 1 -> d_table (V, D).
    Forward was table[ids].
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("embedding-backward", my_embedding_backward)

# %% tags=["hint"]
# hint("embedding-backward")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now explain the failure at the beginning. Without its table, the model could not tell one place from another.
#
# - Without positions, attention permutes its outputs with its inputs. A causal mask brings in a little order.
# - Sinusoids are added to `x`; a shift is a rotation of each pair. Gradients pass through, and a learned table gets the
#   sum over the batch.
# - ALiBi subtracts slope times distance. `d_bias` is `d_scores`, summed over the broadcast axes.
#
# **In the code:** `sinusoidal_positions` and `alibi_bias` in `mha_numpy/core/positions.py`.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.5; Press et al. 2022,
# *Train Short, Test Long*, section 3; Haviv et al. 2022, *Transformer Language Models without
# Positional Encodings Still Learn Positional Information*; Clark et al. 2019, *What Does BERT Look
# At?*; Voita et al. 2019, *Analyzing Multi-Head Self-Attention*.
#
# **Next:** [19, rotary positions](19_rotary-positions.ipynb).
