# %% [markdown]
# # 03 · Many heads
#
# *About 10 minutes. Leave the exercise until after the hour.*
#
# > The cat sat on the mat because it was soft.
#
# "It" could ask three things: which is my verb, which word comes before me, and which noun do I mean? At the end of
# notebook 02, two questions had to share one row of weights. Here every question gets its own row:

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    attention_forward,
    compare,
    merge_heads,
    split_heads,
)
from mha_numpy.models.train import load_trained, share_right
from mha_numpy.show.pictures import matrices, weights_by_head

# %% tags=["hide-input"]
tokens = "The cat sat on the mat because it was soft .".split()
features = (
    "place x,place y,subject,verb,thing,stand-in,trait,animal"
)
features = features.split(",")
x = np.zeros((11, 8))  # (T, D)
hours = 2 * np.pi * np.arange(11) / 12
x[:, :2] = np.stack([np.cos(hours), np.sin(hours)], 1).round(15)
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
it = tokens.index("it")

w_q, w_k, w_v = np.zeros((3, 8, 8))
w_q[2, 0], w_k[3, 0] = 11, 1  # head 0: a subject asks for a verb
back = np.pi / 6  # an hour
turn = [[np.cos(back), -np.sin(back)], [np.sin(back), np.cos(back)]]
w_q[:2, 2:4], w_k[:2, 2:4] = 40 * np.array(turn), np.eye(2)
w_q[5, 4], w_k[4, 4] = 11, 1  # head 2: a stand-in, for a thing
w_q[4, 6], w_k[6, 6] = 11, 1  # head 3: a thing, for a trait
brings = [2, 3, 0, 1, 4, 7, 6, 5]  # two features for each head
w_v[brings, range(8)] = 1
w_o = w_v.T  # puts each of them back into its own column

questions = ["verb?", "word before?", "noun?", "trait?"]
q, k, v = (split_heads(x[None] @ w, 4) for w in (w_q, w_k, w_v))
heads, cache = attention_forward(q, k, v)
four = (merge_heads(heads) @ w_o)[0]  # (T, D)
weights_by_head(
    cache.weights[0, :, it : it + 1],
    ["it"],
    tokens,
    head_names=questions,
    note="Params that we made up.",
)

# %% [markdown]
# **By the end you can** write multi-head attention in plain NumPy, and say at each step which shape an array
# has, and why.
#
# ## Four relations in one sentence
#
# Three heads find what "it" is after: *was*, *because* and *mat*. The fourth is there for *mat*, which asks for its
# trait and finds *soft*. "It" doesn't ask that, so in the fourth head it just takes the plain mean.
#
# All four read the same `x`. A word has D = 8 numbers: two for its place, like a point on a clock face, and six for
# what it is.

# %%
matrices({"x": x}, row_labels=tokens, column_labels=features)

# %% [markdown]
# (The signs in subject and verb say which clause a word belongs to: that is why *it* fits *was* and not *sat*.) `w_q`,
# `w_k` and `w_v` are 8 by 8, and each head owns $d_h$ = 2 columns of them: head h has columns 2h and 2h + 1.
#
# ## One head has one row
#
# What if a single head owned all eight columns? It would have the same params and ask the same questions. Its dot
# products are the sums of theirs:

# %%
dots = (q @ k.swapaxes(-1, -2))[0, :, it]  # (H, T)
q, k, v = x @ w_q, x @ w_k, x @ w_v  # not split: (T, D)
matrices(
    {"dot products": np.vstack([dots, q[it] @ k.T]).round(9)},
    row_labels=[*questions, "all in one"],
    column_labels=tokens,
)

# %% [markdown]
# > **Predict first.** In the last row, the number for was is about 15 below the number for mat. The single head divides
# > by $\sqrt 8$, which leaves a gap of about 5. How much weight does it leave for *was*?
# >
# > - about a third
# > - about a tenth
# > - less than 1%
# >
# > <!-- answer: less than 1% -->

# %%
one, cache = attention_forward(q, k, v)
matrices(
    {"weights of 'it', one head": cache.weights[it]},
    column_labels=tokens,
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Less than 1%. Two of the questions favour mat, so it takes 86%.
#
# </details>
#
# In one row, questions compete, and here the verb loses. You could choose params that treat all three words the same,
# but a row sums to 1, so each would get a third at most. To give almost everything to each of the three, you need three
# rows, and that means three heads.
#
# ## What "it" brings back
#
# The heads' results are put side by side, and one more matrix, `w_o`, mixes them into one row. Ours puts each number
# back into the column of its feature, so we can compare what arrives:

# %%
matrices(
    {"it": np.stack([x[it], (one @ w_o)[it], four[it]])},
    row_labels=["before", "one head", "four heads"],
    column_labels=features,
)

# %% [markdown]
# One head brings back most of *mat*, next to nothing of the verb, and a place between *mat* and *because*. Four heads
# bring back a thing, the verb of the second clause, and the place of *because*. (Each 0.09 comes from the plain mean of
# *trait?*.)
#
# ## H narrow projections are one wide one
#
# Written out as a loop, each head multiplies `x` by its own columns and then attends, as in notebook 02:

# %%
results = []
for h in range(4):
    own = slice(2 * h, 2 * h + 2)  # its columns
    q, k, v = x @ w_q[:, own], x @ w_k[:, own], x @ w_v[:, own]
    results.append(attention_forward(q, k, v)[0])  # (T, d_h)

# %% [markdown]
# But each column of `x @ w_q` depends on only one column of `w_q`. So the four narrow products, or *projections*, are
# the blocks of a wide one. We multiply once and split afterwards, and that is how multi-head attention is written (B is
# the number of sentences, here 1):

# %%
q, k, v = (split_heads(x[None] @ w, 4) for w in (w_q, w_k, w_v))
heads, cache = attention_forward(q, k, v)  # all four at once
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
# > **Predict first.** `q[0, 2, 7]` is what the head *noun?*, number 2, asks for *it*, word 7. Where in `x @ w_q` are
# > its two numbers?
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
# In one line:
#
# $$\mathrm{head}_h = \mathrm{softmax}\!\Big(\frac{q_h k_h^\top}{\sqrt{d_h}}\Big)\, v_h, \qquad
# \mathrm{out} = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, w_o$$
#
# ## Does a trained model use its rows?
#
# We chose these params so that each head has its own job. What does training do? The model *induction* has learned to
# continue sequences that repeat. These are the four heads of its first layer, in which a token sees only itself and
# earlier ones:

# %%
trained = load_trained("induction")
model = trained.model
answer = model(np.array([[0, 1, 2, 3, 0, 1, 2]]))[0, -1].argmax()
print("a b c d a b c, and then:", "abcd"[answer])
weights_by_head(model.attentions[0].weights[0], "abcdabc")

# %% [markdown]
# Head 0 looks at the letter before, and nowhere else. Head 3 does nearly the same. Heads 1 and 2 do so in some rows,
# and spread their weight in others.
#
# Now let's make them agree: in every layer, we give all four heads the same row, the mean of their own.
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
# 89. The drop isn't bigger because, as you saw, some of the heads agreed already.
#
# </details>
#
# So *this* model really uses its separate rows: make it share, and one answer in nine is wrong. (It was trained with
# them. We didn't train one without.) And nobody wrote down its params. They were random at first, and training changed
# them until the heads looked like this. How? That's the question of notebook 04.
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
# Click any array, then a number, to see where it came from.

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
# `split_heads` is `reshape(B, T, H, d_h)` and then `transpose(0, 2, 1, 3)`, because `@` multiplies the last two axes,
# so these have to be tokens and features. Why not `reshape(B, H, T, d_h)` at once? That has the right shape too.

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
# It does. Change the first layer, and accuracy falls from 99% to 25%; change the second, and it falls to 10%.
#
# ## Summary
#
# - A head has one row for each token, which sums to 1, so several questions in one head compete for it.
# - With several heads a token has several rows. The trained model uses them: forced to share one, it falls from 99% to
#   89%.
# - H heads are one wide product, split into column blocks. Each block works on its own, and `w_o` mixes the results.
# - The split comes after the projection, so that each head reads all features.
# - The transpose gives each head all tokens. Without it the shape is right and the numbers are wrong.
#
# **In the code:** `mha_numpy/core/multihead.py`, with `multihead_params.py` and `shapes.py` next to it. Derivation:
# docs/multi-head.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.2.
#
# **Next:** [04, through it backward](04_through-it-backward.ipynb).
