# %% [markdown]
# # 03 · Many heads
#
# A head gives each token one row of weights, so one mean of what the other tokens hold. A trained model shows what
# happens when several heads have to share one row.
#
# **What you can do afterwards:** you can write multi-head attention in plain NumPy, and say at each step which shape an array
# has, and why.

# %%
import numpy as np

from mha_numpy import attention_forward, merge_heads, split_heads
from mha_numpy.models.train import load_trained, share_right
from mha_numpy.show.pictures import matrices, weights_by_head
from mha_numpy.teach.exercises import check, hint

# %% [markdown]
# ## Four heads are given one row
#
# The model *induction* was trained to continue letters that come back: it reads a b c d a b c, and says d. Its first
# layer has four heads. The last panel is not a head: it is the mean of the four.

# %%
trained = load_trained("induction")
model, letters = trained.model, list("abcdabc")
answer = model(np.array([[0, 1, 2, 3, 0, 1, 2]]))[0, -1].argmax()
print("a b c d a b c, and then:", "abcd"[answer])
four = model.attentions[0].weights[0]  # (H, T, T)
panels = np.concatenate([four, four.mean(axis=0, keepdims=True)])
names = [*(f"head {h}" for h in range(4)), "mean of the four"]
by = "Trained: mha-numpy train induction, seed 0."
weights_by_head(panels, letters, head_names=names, note=by)

# %% [markdown]
# Head 0 looks at the letter before, and nowhere else. In the mean, this clear look is blurred.
#
# > **Predict first.** Now every head has to use the mean, in both layers. How many answers stay right?


# %%
def with_one_row(layer):
    """What the layer puts out if all its heads have the same weights: the mean of theirs."""
    mean = layer.weights.mean(axis=1, keepdims=True)  # (B, 1, T, T)
    return merge_heads(mean @ layer.forward_cache.attention.inputs.v) @ layer.params["w_o"]


def run(ids, one_row):
    x = model.embedding(ids)
    for layer in model.attentions:
        placed = model.positions(x)
        out = layer(placed, placed, x, is_causal=True)
        x = x + (with_one_row(layer) if one_row else out)
    return model.unembedding(x)


(ids,), targets = trained.task.draw_batch(np.random.default_rng(1), 256)
{f"one row: {one}": round(share_right(run(ids, one), targets), 3) for one in (False, True)}

# %% [markdown]
# <details><summary>Answer</summary>
#
# About 89 of 100 instead of more than 99: there are some twenty times as many errors. The values and all params are
# the same. Only the weights had to agree.
#
# </details>
#
# ## One row of weights is a compromise
#
# Why? Take a sentence in which the words are related in several ways.
#
# | kind | from | to | |
# |---|---|---|---|
# | syntactic | cat | sat | a subject and its verb |
# | positional | sat | on | a neighbour |
# | coreference | it | mat | a pronoun and what it stands for |
# | semantic | soft | mat | a property and its owner |
#
# We write four heads by hand; **nothing here is trained**. Each has queries and keys of its own: the place before
# mine, the same word, the full stop, and the relations of the table. A match scores 8, everything else 0.

# %%
tokens = ["The", "cat", "sat", "on", "the", "mat", "because", "it", "was", "soft", "."]
T = len(tokens)
places, before, stop, related = np.eye(T), np.eye(T, k=-1), np.zeros((T, T)), np.zeros((T, T))
same = np.array([[a.lower() == b.lower() for b in tokens] for a in tokens], dtype=float)
stop[:, -1] = 1  # every word asks for the place of the full stop
for source, target in (("cat", "sat"), ("sat", "on"), ("it", "mat"), ("soft", "mat")):
    related[tokens.index(source), tokens.index(target)] = 1
queries = np.stack([before, same, stop, related])[None]  # (1, H, T, d_k): what each word asks for
keys = np.broadcast_to(places, queries.shape)
_, cache = attention_forward(queries, keys, keys, scale=8.0)
jobs = ["previous token", "same word", "full stop", "relations"]
weights_by_head(cache.weights, tokens, head_names=jobs, note="Four heads by hand.")

# %% [markdown]
# > **Predict first.** Now *one* head does all four jobs: it adds up the four scores. The word "it" matches "because"
# > (the word before), "it", "mat" and the full stop. What are its weights?

# %%
it = tokens.index("it")
_, together = attention_forward(queries.sum(axis=1), places[None], places[None], scale=8.0)
rows = np.vstack([cache.weights[0, :, it], together.weights[0, it]])
matrices({'the row of "it"': rows}, row_labels=[*jobs, "all in one head"], column_labels=tokens)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Each of the four has a quarter. A row sums to 1: what one relation gets, another loses.
#
# </details>
#
# The one head returns the mean of four values. From this mean nobody can read which word stood before "it" and which
# one "it" stands for. With four heads the four answers stay apart: each has columns of its own.
#
# ## A list of heads
#
# So we take several heads. Each has its own three params, reads the whole `x`, and returns `d_h` numbers for each
# token. Their results are put side by side, and a last product, `w_o`, brings them together:
#
# $$\mathrm{head}_h = \mathrm{softmax}\!\Big(\frac{q_h k_h^\top}{\sqrt{d_h}}\Big)\, v_h, \qquad
# \mathrm{out} = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, w_o$$
#
# We take small whole numbers, random ones: 3 tokens of width D = 8, and H = 2 heads of width $d_h = D / H = 4$.

# %%
B, T, D, H, d_h = 1, 3, 8, 2, 4
rng = np.random.default_rng(24)
x = rng.integers(-1, 2, size=(B, T, D)).astype(float)
w_q, w_k, w_v, w_o = (rng.integers(-1, 2, size=(D, D)).astype(float) for _ in range(4))
columns = [slice(0, 4), slice(4, 8)]  # of w_q, w_k and w_v: head 0's, head 1's
results = []
for own in columns:
    head, _ = attention_forward(x @ w_q[:, own], x @ w_k[:, own], x @ w_v[:, own])
    results.append(head)  # (B, T, d_h)
from_list = np.concatenate(results, axis=-1) @ w_o  # (B, T, D)
parts = {"x": x[0], **{f"head {h}": head[0] for h, head in enumerate(results)}}
matrices(parts | {"out": from_list[0]}, title="Random params: two heads, one after the other")

# %% [markdown]
# ## H narrow projections are one wide one
#
# A column of a product depends on one column of the right factor. So `x @ w_q[:, 0:4]` and `x @ w_q[:, 4:8]` are the
# two halves of `x @ w_q`. One wide product serves all heads, and they run in parallel. This is how one big `w_q` is
# really H heads: head h owns a block of its **columns**.

# %%
wide = x @ w_q
halves = [x @ w_q[:, own] for own in columns]
matrices({"x @ w_q": wide[0], "head 0's": halves[0][0], "head 1's": halves[1][0]})

# %% [markdown]
# ## Seven shapes, all numbers in view
#
# | | shape | what it is |
# |---|---|---|
# | 1 | [B, T, D] | projected: `x @ w_q`, and so for k and v |
# | 2 | [B, T, H, d_h] | the row of each token, cut into H pieces |
# | 3 | [B, H, T, d_h] | each head has all tokens |
# | 4 | [B, H, T, T] | scores, then weights: one matrix for each head |
# | 5 | [B, H, T, d_h] | for each head, means of its values |
# | 6 | [B, T, H, d_h] | back to each token's pieces |
# | 7 | [B, T, D] | merged, side by side; then `merged @ w_o` |
#
# > **Predict first.** `q[0, 1, 2]` is head 1's query of token 2. Which four numbers of `x @ w_q` above are these?

# %%
from mha_numpy import MultiHeadParams, compare, multi_head_attention_forward, trace
from mha_numpy.show.page import stepper
from mha_numpy.show.pictures import shape_film

params = MultiHeadParams(w_q, None, w_k, None, w_v, None, w_o, None)  # None: no biases here
with trace() as t:
    out, _ = multi_head_attention_forward(x, params=params, num_heads=H)
print("q[0, 1, 2] is", t["q"][0, 1, 2])
compare(from_list, out, name="the list of heads against all at once")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The last four numbers of the last row: row 2 belongs to token 2, columns 4 to 7 to head 1.
#
# </details>
#
# The film shows every step. A colour is a head, a shade is the size of a number, and a minus marks a negative one.

# %%
shape_film(t, note="Random params: nothing here is trained.")

# %% [markdown]
# Now walk through it: click into it, use the arrow keys, and point at any cell to see where it came from.

# %%
stepper(t)

# %% [markdown]
# ## Why the transpose
#
# Step 3 moves the head axis before the token axis. `@` on four axes multiplies the last two, so these have to be
# tokens and features; then each head is matched on its own. But why not `x.reshape(B, H, T, d_h)` at once? That has
# the right shape, too. Let us number the cells of three tokens, and look.

# %%
from mha_numpy.show.pictures import origin_film

numbered = np.arange(T * D, dtype=float).reshape(B, T, D)
stages = {
    "x: a row is a token": numbered,
    "reshape(B, T, H, d_h).transpose(0, 2, 1, 3)": split_heads(numbered, H),
    "wrong: reshape(B, H, T, d_h)": numbered.reshape(B, H, T, d_h),
}
origin_film(stages, H)

# %% [markdown]
# `reshape` never moves a number; it only cuts the same sequence of numbers at other places. Without the transpose,
# head 0 gets all of token 0 and half of token 1, as if they were three tokens. No error is raised. Notebook 09 shows
# the same in memory.
#
# ## Why heads are cut after the projection
#
# One could cut first: give head 0 the features 0 to 3 of `x`, head 1 the features 4 to 7, and project each piece.
#
# > **Predict first.** Which numbers of `w_q` are then never used?

# %%
own_block = np.kron(np.eye(H), np.ones((d_h, d_h)))  # 1 where a head meets its own features
cut_first = np.concatenate([x[..., own] @ w_q[own, own] for own in columns], axis=-1)
print("cut first = w_q without those:", np.array_equal(cut_first, x @ (w_q * own_block)))
matrices({"w_q": w_q, "used, if x is cut first": w_q * own_block}, title="Random params")

# %% [markdown]
# <details><summary>Answer</summary>
#
# All that carry a feature into another head: half of `w_q` with two heads, and all but one part in H in general.
#
# </details>
#
# Cut after the projection, each head reads **all** D features, and `w_q` decides which $d_h$ mixtures of them it
# works with: its own *subspace*. Does a trained model make use of this? We delete in the trained `w_q`, `w_k` and
# `w_v` what a cut before would never use.

# %%
used = np.kron(np.eye(4), np.ones((16, 16)))  # D = 64, H = 4
for name, layer in zip(("first layer ", "second layer"), model.attentions, strict=True):
    kept = dict(layer.params)
    layer.params |= {w: kept[w] * used for w in ("w_q", "w_k", "w_v")}
    print(f"{name}: {share_right(model(ids), targets):.0%} right")
    layer.params |= kept

# %% [markdown]
# It does: 25 % and 10 % are left of 99 %. (A model that was trained with the cut before would find other ways. It
# would still have heads that cannot see most features.)
#
# ## Sizes that you will meet

# %%
from mha_numpy import MultiHeadAttention
from mha_numpy.tables import Table

big = {"D=512, H=8": (1, 10, 512, 8), "D=768, H=12": (4, 128, 768, 12)}
found = []
for B, T, D, H in big.values():
    with trace() as steps:
        MultiHeadAttention(D, H, rng=0)(np.zeros((B, T, D)))
    found.append(steps)
stages = ("q_projected", "q_by_token", "q", "weights", "heads", "heads_by_token", "merged", "out")
rows = [[stage, *(str(steps[stage].shape) for steps in found)] for stage in stages]
Table("", ["", *big], rows)

# %% [markdown]
# $d_h$ is 64 both times. With $d_h = D / H$, more heads cost no more params and no larger products; only the weights
# grow with H. Notebook 25 measures that. (PyTorch's `nn.MultiheadAttention` returns weights of shape (4, 128, 128)
# for the second: by default it returns their mean over the heads.)
#
# ## Exercise: multi-head attention
#
# Write the forward pass: a few lines. `split_heads`, `merge_heads` and `attention_forward` are at hand. Biases are
# there now. H·$d_k$ and H·$d_v$ need not be D, and a mask says which keys a query may see: `mask=mask` hands it on.
#
# More of this kind in `mha-numpy exercises`: `museum-merge`, a bug that shipped.


# %% tags=["exercise"]
def my_multi_head(x, params, num_heads, mask):
    """(B, T, D) -> (B, T, D): project, split, attend, merge, project.

    params.w_q, .w_k: (D, H*d_k); .w_v: (D, H*d_v); .w_o: (H*d_v, D); biases .b_q, .b_k, .b_v, .b_o.
    mask: (T, T) bool, rows are queries, True = may attend; every token sees at least one.
    Large scores must not overflow.
    """
    ...  # your code


# %% tags=["check"]
check("multi-head", my_multi_head)

# %% tags=["hint"]
# hint("multi-head")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - A row of weights sums to 1, so one head has to compromise. The trained model made twenty times as many errors with
#   one row for all heads.
# - H heads are one wide product, cut into column blocks: [B, T, D] → [B, T, H, d_h] → [B, H, T, d_h] → [B, H, T, T]
#   → [B, H, T, d_h] → [B, T, H, d_h] → [B, T, D].
# - The cut comes after the projection, so that each head reads all features.
# - The transpose gives each head all tokens. Without it the shape is right and the numbers are wrong.
#
# What is still broken: the params here are random. How does a model find good ones? It needs to know for each number
# in which direction the loss falls.
#
# **In the code:** `mha_numpy/core/multihead.py`, with `projection.py` and `shapes.py` beside it. Derivation:
# docs/multi-head.md. What a single head is worth, and what happens if it is switched off: notebook 10.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.2.
#
# **Next:** [04, through it backward](04_through-it-backward.ipynb).
