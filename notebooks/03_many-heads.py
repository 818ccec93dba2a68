# %% [markdown]
# # 03 · Many heads
#
# *About 11 minutes. Leave the exercise until after the hour.*
#
# At the end of notebook 02, "it" had two questions and only one row of weights, so its answer was a compromise. Here
# several heads look at the same sentence.
#
# **What you can do afterwards:** write multi-head attention in plain NumPy, and say at each step which shape an
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
from mha_numpy.show.pictures import matrices, weights_by_head

# %% [markdown]
# ## Four relations in one sentence
#
# > The cat sat on the mat because it was soft.
#
# Words are related in many ways. *Cat* is the subject of *sat*, *on* comes after *sat*, *it* means the *mat*, and
# *soft* is a property of the mat. Here is one head for each. We write their scores by hand (**nothing here is
# trained**): a score is 8 where one word looks for the other, and 0 everywhere else.

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
# This head returns the mean of three values, and you can't tell from a mean which word was the verb and which the noun.
# Several heads keep the answers apart.
#
# ## What if four heads share one row?
#
# Does a trained model need its separate rows? The model *induction* has learned to continue sequences that repeat: it
# reads a b c d a b c, and says d. These are the four heads of its first layer, in which a token sees only itself and
# earlier ones.

# %%
trained = load_trained("induction")
model = trained.model
answer = model(np.array([[0, 1, 2, 3, 0, 1, 2]]))[0, -1].argmax()
print("a b c d a b c, and then:", "abcd"[answer])
weights_by_head(model.attentions[0].weights[0], "abcdabc")

# %% [markdown]
# Head 0 looks at the letter before, and nowhere else. Head 3 does nearly the same. Heads 1 and 2 do so in some rows, and
# spread their weight in others.
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
# 89. It isn't fewer because, as you saw, some of the heads agreed already.
#
# </details>
#
# So *this* model uses its separate rows: sharing them makes every ninth answer wrong. (It was trained with
# them. We didn't train one without.)
#
# ## A list of heads
#
# So far we wrote down scores. Now the four heads of the cat sentence compute them from `x`, each with its own `w_q` and
# `w_k`, as in notebook 01. A word gets D = 8 numbers: two for its place, like a point on a clock face, and six for what
# it is.

# %% tags=["hide-input"]
features = (
    "place x,place y,subject,verb,thing,stand-in,trait,animal"
)
features = features.split(",")
x = np.zeros((11, 8))  # (T, D)
hours = 2 * np.pi * np.arange(11) / 12
x[:, 0], x[:, 1] = np.cos(hours), np.sin(hours)
nature = {
    "cat": {"subject": 1, "animal": 1},
    "sat": {"verb": 1},
    "mat": {"thing": 1},
    "it": {"subject": -1, "stand-in": 1},
    "was": {"verb": -1},
    "soft": {"trait": 1},
}
for word, numbers in nature.items():
    for feature, number in numbers.items():
        x[tokens.index(word), features.index(feature)] = number
matrices({"x": x}, row_labels=tokens, column_labels=features)

# %% [markdown]
# (Subject and verb have the sign of their clause, so *it* fits *was*, and not *sat*.) Every head has $d_h$ = 2 columns of
# `w_q`. A subject asks *verb?*, each place asks for the place an hour earlier, a stand-in asks *noun?*, and a trait
# *owner?*.

# %% tags=["hide-input"]
w_q, w_k, w_v = np.zeros((3, 8, 8))
w_q[2, 0], w_k[3, 0] = 11, 1  # subject, verb
back = np.pi / 6  # an hour
turn = [[np.cos(back), -np.sin(back)], [np.sin(back), np.cos(back)]]
w_q[:2, 2:4], w_k[:2, 2:4] = 40 * np.array(turn), np.eye(2)
w_q[5, 4], w_k[4, 4] = 11, 1  # stand-in, thing
w_q[6, 6], w_k[4, 6] = 11, 1  # trait, thing
asks = ["verb?", "", "word", "before?", "noun?", "", "owner?", ""]
brings = [2, 3, 0, 1, 4, 7, 4, 6]  # two features for each head
w_v[brings, range(8)] = 1
w_o = w_v.T  # puts each of them back into its own column
matrices(
    {"w_q": w_q},
    row_labels=features,
    column_labels=[f"{h}: {name}" for h, name in enumerate(asks)],
)

# %% [markdown]
# Head h owns columns 2h and 2h + 1. Let each head look:

# %%
results, rows = [], []
for h in range(4):
    own = slice(2 * h, 2 * h + 2)  # its columns
    q, k, v = x @ w_q[:, own], x @ w_k[:, own], x @ w_v[:, own]
    result, cache = attention_forward(q, k, v)
    results.append(result)  # (T, d_h)
    rows.append(cache.weights[it])
matrices(
    {"the row of 'it'": np.stack(rows)},
    row_labels=[*relations],
    column_labels=tokens,
)

# %% [markdown]
# *Was*, *because* and *mat*, as before, and now computed from `x`. The last head has no question for *it*, so it takes
# the plain mean.
#
# ## H narrow projections are one wide one
#
# Each column of `x @ w_q` depends on only one column of `w_q`. So the four narrow products, or *projections*, are the
# blocks of a wide one, and one wide product computes them all at once. This is how multi-head attention is written (B is
# the number of sentences, here 1):

# %%
q, k, v = (split_heads(x[None] @ w, 4) for w in (w_q, w_k, w_v))
scores = q @ k.swapaxes(-1, -2) / np.sqrt(2)
weights, _ = softmax_forward(scores)
heads = weights @ v
merged = merge_heads(heads)
out = merged @ w_o
compare({"merged": merged[0]}, {"merged": np.hstack(results)})

# %% [markdown]
# ## Seven shapes on the way
#
# | | shape | here | what it is |
# |---|---|---|---|
# | 1 | [B, T, D] | 1, 11, 8 | projected: `x @ w_q`, and the same for k and v |
# | 2 | [B, T, H, d_h] | 1, 11, 4, 2 | each word's row, split into H pieces |
# | 3 | [B, H, T, d_h] | 1, 4, 11, 2 | each head has all words; `split_heads` does 2 and 3 |
# | 4 | [B, H, T, T] | 1, 4, 11, 11 | scores, then weights: one matrix per head |
# | 5 | [B, H, T, d_h] | 1, 4, 11, 2 | for each head, means of its values |
# | 6 | [B, T, H, d_h] | 1, 11, 4, 2 | back to each word's pieces |
# | 7 | [B, T, D] | 1, 11, 8 | side by side; `merge_heads` does 6 and 7; then `@ w_o` |
#
# > **Predict first.** `q[0, 2, 7]` is what the head *noun?*, number 2, asks for *it*, word 7. Where in `x @ w_q` are its
# > two numbers?
# >
# > - row 2, columns 0 and 1
# > - row 7, columns 2 and 3
# > - row 7, columns 4 and 5
# >
# > <!-- answer: row 7, columns 4 and 5 -->

# %%
print("q[0, 2, 7]:  ", q[0, 2, 7])
print("(x @ w_q)[7]:", (x @ w_q)[7].round(1))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Row 7, columns 4 and 5. A row is a word, and head 2 owns columns 4 and 5.
#
# </details>
#
# ## What *it* takes home
#
# Last, `w_o` mixes what the heads found into one row. Ours puts each number back into the column of its feature:

# %%
matrices(
    {"it": np.stack([x[7], out[0, 7]])},
    row_labels=["before", "after"],
    column_labels=features,
)

# %% [markdown]
# Before, *it* stood in for something. Now its row says: a thing and no animal, with the verb of the second clause, right
# after the word at place (-1, 0), which is *because*. (Each 0.09 comes from the plain mean of *owner?*.) In one line:
#
# $$\mathrm{head}_h = \mathrm{softmax}\!\Big(\frac{q_h k_h^\top}{\sqrt{d_h}}\Big)\, v_h, \qquad
# \mathrm{out} = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, w_o$$
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
# Click any array, and point at a number to see where it came from.

# %% tags=["after-the-hour"]
from mha_numpy import (
    MultiHeadParams,
    multi_head_attention_forward,
    trace,
)
from mha_numpy.show.page import stepper

biases = dict.fromkeys(["b_q", "b_k", "b_v", "b_o"])  # none
params = MultiHeadParams(
    w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o, **biases
)
with trace() as t:
    multi_head_attention_forward(
        x[None], params=params, num_heads=4
    )
stepper(t, tokens=tokens, features=features)

# %% [markdown]
# ## After the hour: why the transpose
#
# `split_heads` is `reshape(B, T, H, d_h)` and then `transpose(0, 2, 1, 3)`, because `@` multiplies the last two axes, so
# these have to be tokens and features. Why not `reshape(B, H, T, d_h)` at once? That has the right shape too.

# %% tags=["after-the-hour"]
from mha_numpy.show.pictures import origin_film

numbered = np.arange(3 * 8, dtype=float).reshape(1, 3, 8)
stages = {
    "x: a row is a token": numbered,
    "reshape, then transpose": split_heads(numbered, 2),
    "wrong: reshape only": numbered.reshape(1, 2, 3, 4),
}
origin_film(stages, 2)

# %% [markdown]
# `reshape` never moves a number. Without the transpose, head 0 gets all of token 0 and half of token 1, as if they were
# three tokens, and no error is raised. Notebook 09 shows this in memory.
#
# ## After the hour: why heads are split after the projection
#
# We could also split `x` first, so that each of four heads projects its own quarter of the features. Then no feature
# could reach another head. Everything in `w_q` outside the diagonal blocks would be wasted: half of it with two heads,
# three quarters with four.
#
# If we split after the projection, each head reads **all** D features, and `w_q` decides which $d_h$ mixtures of them
# it works with: its *subspace*. To see whether *induction* uses this freedom, we erase everything outside the four
# blocks from `w_q`, `w_k` and `w_v` of one layer.

# %% tags=["after-the-hour"]
own_part = np.zeros((64, 64))  # D = 64, H = 4
for start in range(0, 64, 16):
    own_part[start : start + 16, start : start + 16] = 1
for layer in model.attentions:
    learned = dict(layer.params)
    for name in ("w_q", "w_k", "w_v"):
        layer.params[name] = learned[name] * own_part
    print(f"{share_right(model(ids), targets):.0%} right")
    layer.params |= learned

# %% [markdown]
# It does: accuracy falls from 99% to 25% with the first layer changed, and to 10% with the second.
#
# ## Summary
#
# - A head has one row for each token, which sums to 1. With several heads, a token has several rows.
# - The trained model uses its separate rows. Forced to share one, it falls from 99% to 89%.
# - H heads are one wide product, split into column blocks. Each block works on its own, and `w_o` mixes the results.
# - The split comes after the projection, so that each head reads all features.
# - The transpose gives each head all tokens. Without it the shape is right and the numbers are wrong.
#
# One question is still open. We made up the params of the cat sentence. How does a model find good ones?
#
# **In the code:** `mha_numpy/core/multihead.py`, with `multihead_params.py` and `shapes.py` next to it. Derivation:
# docs/multi-head.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.2.
#
# **Next:** [04, through it backward](04_through-it-backward.ipynb).
