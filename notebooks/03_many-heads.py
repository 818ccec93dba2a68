# %% [markdown]
# # 03 · Many heads
#
# *About 10 minutes. The exercise is for after the hour.*
#
# At the end of notebook 02, "it" had two questions and only one row of weights, so its answer was a compromise. So we
# let several heads look at the same sentence.
#
# **What you can do afterwards:** you can write multi-head attention in plain NumPy, and say at each step which shape an
# array has, and why.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    attention_forward,
    compare,
    merge_heads,
    softmax_forward,
    split_heads,
)
from mha_numpy.models.train import load_trained, share_right
from mha_numpy.show.pictures import (
    matrices,
    origin_film,
    weights_by_head,
)

# %% [markdown]
# ## Four relations in one sentence
#
# > The cat sat on the mat because it was soft.
#
# Words are related in many ways. *Cat* is the subject of *sat*, *on* comes after *sat*, *it* means the *mat*, and
# *soft* is a property of the mat. Here is one head for each. We write their scores by hand (**nothing here is
# trained**): a score is 8 where one word looks for the other, and else 0.

# %%
tokens = "The cat sat on the mat because it was soft .".split()
before = list(zip(tokens[1:], tokens, strict=False))
relations = {
    "verb?": [("cat", "sat"), ("it", "was")],
    "word before?": before,
    "noun?": [("it", "mat")],
    "owner?": [("soft", "mat")],
}
scores = np.zeros((4, 11, 11))  # (H, T, T)
for h, pairs in enumerate(relations.values()):
    for a, b in pairs:
        scores[h, tokens.index(a), tokens.index(b)] = 8
weights, _ = softmax_forward(scores)

# %% [markdown]
# Each head now has its own 11 by 11 weights. Here is one row of each.

# %%
asking = ["cat", "on", "it", "soft"]
shown = [weights[h, tokens.index(a)] for h, a in enumerate(asking)]
matrices(
    {"one row of each head": np.stack(shown)},
    row_labels=asking,
    column_labels=tokens,
)

# %% [markdown]
# > **Predict first.** Now *one* head asks all four questions: its scores are the sums of theirs. What are the weights
# > of *it*?
# >
# > - one word gets almost everything
# > - three words get a third each
# > - all words get the same
# >
# > <!-- answer: three words get a third each -->

# %%
it = tokens.index("it")
together, _ = softmax_forward(scores.sum(axis=0))
matrices(
    {"the row of 'it'": np.vstack([weights[:, it], together[it]])},
    row_labels=[*relations, "all in one"],
    column_labels=tokens,
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# *Was*, *because* and *mat* get a third each.
#
# </details>
#
# This head returns the mean of three values. You can't tell from this mean which word was the verb and which the noun.
# Several heads keep the answers apart.
#
# ## What if four heads share one row?
#
# Does a trained model need its separate rows? The model *induction* has learned to continue sequences that come back:
# it reads a b c d a b c, and says d. These are the four heads of its first layer, in which a token sees only itself and
# earlier ones.

# %%
trained = load_trained("induction")
model = trained.model
answer = model(np.array([[0, 1, 2, 3, 0, 1, 2]]))[0, -1].argmax()
print("a b c d a b c, and then:", "abcd"[answer])
weights_by_head(model.attentions[0].weights[0], "abcdabc")

# %% [markdown]
# Head 0 looks at the letter before, and nowhere else. The other three spread their weight.
#
# Now we force the heads to agree. In every layer each head gets the same row, the mean of all four. The params stay as
# they are.
#
# > **Predict first.** With separate rows more than 99 of 100 answers are right. How many are right with shared rows?
# >
# > <!-- answer: 89 within 5 -->


# %% tags=["hide-input"]
def with_one_row(ids):
    """Run the model, but all heads of a layer share one row."""
    x = model.embedding(ids)
    for layer in model.attentions:
        placed = model.positions(x)
        layer(placed, placed, x, is_causal=True)
        v = layer.forward_cache.attention.inputs.v
        mean = layer.weights.mean(axis=1, keepdims=True)
        x = x + merge_heads(mean @ v) @ layer.params["w_o"]
    return model.unembedding(x)


rng = np.random.default_rng(1)
(ids,), targets = trained.task.draw_batch(rng, 256)
separate = share_right(model(ids), targets)
shared = share_right(with_one_row(ids), targets)
print(f"separate rows: {separate:.1%} right, shared: {shared:.1%}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 89, and only the weights were changed.
#
# </details>
#
# So *this* model uses its separate rows. It was trained with them, so we can't tell from here how well a model with a
# single row would have learned the task.
#
# ## A list of heads
#
# How do several heads become one layer? Each has its own `w_q`, `w_k` and `w_v`, reads the whole `x`, and returns $d_h$
# numbers per token. We put their results side by side, and a last product with `w_o` mixes them:
#
# $$\mathrm{head}_h = \mathrm{softmax}\!\Big(\frac{q_h k_h^\top}{\sqrt{d_h}}\Big)\, v_h, \qquad
# \mathrm{out} = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, w_o$$
#
# Here are 3 tokens of width D = 8, and H = 2 heads of width $d_h = D / H = 4$, all of small random integers.

# %%
B, T, D, H = 1, 3, 8, 2
rng = np.random.default_rng(24)
x = rng.integers(-1, 2, (B, T, D)).astype(float)
w_q, w_k, w_v, w_o = rng.integers(-1, 2, (4, D, D)).astype(float)
columns = [slice(0, 4), slice(4, 8)]  # head 0's, head 1's
heads = []
for own in columns:
    q, k, v = x @ w_q[:, own], x @ w_k[:, own], x @ w_v[:, own]
    head, _ = attention_forward(q, k, v)
    heads.append(head)  # (B, T, d_h)
from_list = np.concatenate(heads, axis=-1) @ w_o  # (B, T, D)
first, second = heads
parts = {"head 0": first[0], "head 1": second[0]}
matrices(parts | {"out": from_list[0]})

# %% [markdown]
# ## H narrow projections are one wide one
#
# Multiplying `x` by `w_q` is called a *projection*. Each column of the result depends on only one column of `w_q`. So
# `x @ w_q[:, 0:4]` and `x @ w_q[:, 4:8]` are the two halves of `x @ w_q`. One big `w_q` is H narrow ones, because head
# h owns a block of its **columns**. A single wide product serves them all, and they run in parallel.

# %%
wide = x @ w_q
first, second = (x @ w_q[:, own] for own in columns)
halves = {"head 0": first[0], "head 1": second[0]}
matrices({"x @ w_q": wide[0]} | halves)

# %% [markdown]
# ## Seven shapes, all numbers in view
#
# | | shape | what it is |
# |---|---|---|
# | 1 | [B, T, D] | projected: `x @ w_q`, and the same for k and v |
# | 2 | [B, T, H, d_h] | each token's row, split into H pieces |
# | 3 | [B, H, T, d_h] | each head has all tokens |
# | 4 | [B, H, T, T] | scores, then weights: one matrix per head |
# | 5 | [B, H, T, d_h] | for each head, means of its values |
# | 6 | [B, T, H, d_h] | back to each token's pieces |
# | 7 | [B, T, D] | merged, side by side; then `merged @ w_o` |
#
# > **Predict first.** `q[0, 1, 2]` is head 1's query of token 2. Which four numbers of `x @ w_q` above are these?
# >
# > - the first four of the last row
# > - the last four of the middle row
# > - the last four of the last row
# >
# > <!-- answer: the last four of the last row -->

# %%
from mha_numpy import MultiHeadParams, multi_head_attention_forward

params = MultiHeadParams(w_q, None, w_k, None, w_v, None, w_o, None)
out, _ = multi_head_attention_forward(x, params=params, num_heads=H)
print("q[0, 1, 2] is", split_heads(wide, H)[0, 1, 2])
compare(from_list, out, name="a list of heads, and all at once")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The last four of the last row, because row 2 belongs to token 2, and columns 4 to 7 belong to head 1. (Each None is a
# *bias* that we leave out. You meet biases in the exercise.)
#
# </details>
#
# ## Why the transpose
#
# Step 3 moves the head axis before the token axis. `@` multiplies the last two axes, so these have to be tokens and
# features. Then each head works on its own matrix. `split_heads` does it with `reshape(B, T, H, d_h)` and
# `transpose(0, 2, 1, 3)`. But why not `reshape(B, H, T, d_h)` at once? That has the right shape too. Let's number the
# cells.

# %%
numbered = np.arange(T * D, dtype=float).reshape(B, T, D)
stages = {
    "x: a row is a token": numbered,
    "reshape, then transpose": split_heads(numbered, H),
    "wrong: reshape only": numbered.reshape(B, H, T, D // H),
}
origin_film(stages, H)

# %% [markdown]
# `reshape` never moves a number. It only divides the same sequence of numbers differently. Without the transpose, head
# 0 gets all of token 0 and half of token 1, as if they were three tokens, and no error is raised. Notebook 09 shows
# this in memory.
#
# ## Why heads are split after the projection
#
# We could also split `x` first: head 0 would get features 0 to 3, head 1 features 4 to 7, and each would project its
# own piece. Then no feature could reach a different head, and that part of `w_q` would go unused, half of it with two
# heads and three quarters with four.
#
# If we split after the projection, each head reads **all** D features, and `w_q` decides which $d_h$ mixtures of them
# it works with: its *subspace*. Does a trained model use this freedom? From `w_q`, `w_k` and `w_v` of one layer of
# *induction* we erase everything that splitting first would never use.

# %%
own_part = np.kron(np.eye(4), np.ones((16, 16)))  # D = 64, H = 4
for layer in model.attentions:
    learned = dict(layer.params)
    for name in ("w_q", "w_k", "w_v"):
        layer.params[name] = learned[name] * own_part
    print(f"{share_right(model(ids), targets):.0%} right")
    layer.params |= learned

# %% [markdown]
# It does: accuracy falls from 99% to 25% with the first layer changed, and to 10% with the second. (A model trained to
# split first would find other ways, but most features would stay out of each head's reach.)
#
# ## Exercise: multi-head attention (after the hour, 20 minutes)
#
# Write the forward pass in a few lines, with `split_heads`, `merge_heads` and `attention_forward`. This time each
# projection adds a vector, its *bias*. H·$d_k$ and H·$d_v$ needn't be D, and a mask says which keys a query may see;
# pass it on as `mask=mask`.
#
# To practise more: `museum-merge` in `mha-numpy exercises`, a bug that shipped.


# %% tags=["exercise"]
def my_multi_head(x, params, num_heads, mask):
    """(B, T, D) -> (B, T, D).

    params.w_q, .w_k: (D, H*d_k); .w_v: (D, H*d_v);
    .w_o: (H*d_v, D); biases .b_q, .b_k, .b_v, .b_o.
    mask: (T, T) bool, rows are queries, True = may attend; every
    token sees at least one. Large scores must not overflow.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("multi-head", my_multi_head)

# %% tags=["hint"]
# hint("multi-head")  # shows the next of four hints

# %% [markdown]
# ## After the hour: walk through the seven shapes
#
# Use the arrow keys, and point at a cell to see where it came from.

# %% tags=["after-the-hour"]
from mha_numpy import trace
from mha_numpy.show.page import stepper

with trace() as t:
    multi_head_attention_forward(x, params=params, num_heads=H)
stepper(t)

# %% [markdown]
# ## Summary
#
# - A head has one row for each token, which sums to 1. With several heads, a token has several rows.
# - The trained model uses its separate rows. Forced to share one, it falls from 99% to 89%.
# - H heads are one wide product, split into column blocks: [B, T, D] → [B, T, H, d_h] → [B, H, T, d_h] → [B, H, T, T]
#   → [B, H, T, d_h] → [B, T, H, d_h] → [B, T, D].
# - The split comes after the projection, so that each head reads all features.
# - The transpose gives each head all tokens. Without it the shape is right and the numbers are wrong.
#
# One question is still open. Our params were made up or random. How does a model find good ones?
#
# **In the code:** `mha_numpy/core/multihead.py`, with `multihead_params.py` and `shapes.py` next to it. Derivation:
# docs/multi-head.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.2.
#
# **Next:** [04, through it backward](04_through-it-backward.ipynb).
