# %% [markdown]
# # 03 · Many heads
#
# *About 10 minutes. Leave the exercise until after the hour.*
#
# > The cat ate fish. It purred.
#
# Who is "It"? A head can look for something alive. But "It" may also ask which word comes before it. At the end of
# notebook 02, two questions had to share one row of weights. Here each has its own head, and so its own row.
#
# **By the end you can** write multi-head attention in plain NumPy, and say at each step which shape an array
# has, and why.
#
# ## Two questions, two rows
#
# Here are both heads at work, with params that we made up. Above the sentence you see where head 0 looks, below it
# where head 1 looks. Press the black button to make *fish* alive, and compare the arcs. Then step through the scenes.

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

np.set_printoptions(precision=1, suppress=True)

# %% tags=["hide-input"]
from mha_numpy.show.page import stepper
from mha_numpy.show.walk import walk

seen = walk()  # the example: six words, two heads
tokens, meaning = seen.tokens, seen.meaning
it = tokens.index("It")
x = seen.inputs["x_q"][0]  # (T, D)
w_q, w_k, w_v, w_o = seen.layer.params.values()
stepper(
    seen.trace,
    tokens=tokens,
    features=seen.features,
    meaning=meaning,
    note=seen.note,
)

# %% [markdown]
# At first, head 0 gives *cat* 78%, and head 1 gives *fish* 92%. Once *fish* is alive, head 0 can't decide: *cat* and
# *fish* get 48% each. Head 1 doesn't care, because *fish* still comes right before *It*. The two rows don't get in each
# other's way.
#
# ## One head has one row
#
# What if a single head had to ask both questions? Each word has D = 8 numbers, its row of `x`. From these, `w_q`
# makes the eight numbers it asks for, and `w_k` the eight it offers. Head 0 owns the first four (blue), and head 1
# the last four (orange):

# %%
q, k, v = x @ w_q, x @ w_k, x @ w_v  # (T, D) each
matrices(
    {"q of 'It', and all keys": np.vstack([q[it], k])},
    heads=[[0, 1]],
    row_labels=["It asks", *tokens],
    column_labels=np.ravel(meaning.matched),
)

# %% [markdown]
# "It" asks for a thing, with strength 2, and for something alive, with strength 1. Multiply that by a key, number by
# number, and add up: in head 0, *cat* gets 2·3 + 1·3 = 9, and *fish* gets 2·3 = 6. The orange numbers
# ask for the place one step back. There *cat* gets 0, and *fish* gets 4·2.8 + 4·2.8, about 22. (*Place x* and *place
# y* are a point on a circle, an eighth of a turn further for each word. Head 1 turns the point of *It* one step back,
# to where *fish* is, so their dot product is the largest.)
#
# > **Predict first.** Now let one head own all eight columns, with the same numbers in them. Its dot products run over
# > blue and orange together. Which word does "It" look at most?
# >
# > - cat
# > - fish
# > - both the same
# >
# > <!-- answer: fish -->

# %%
blue, orange = q[it, :4] @ k[:, :4].T, q[it, 4:] @ k[:, 4:].T
dots = np.stack([blue, orange, q[it] @ k.T])
labels = {
    "row_labels": ["head 0", "head 1", "one head"],
    "column_labels": tokens,
}
matrices({"dot products of 'It'": dots}, **labels)

# %%
one, cache = attention_forward(q, k, v)
weights = np.vstack([seen.weights[0, :, it], cache.weights[it]])
matrices({"weights of 'It'": weights}, **labels)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Fish. The dot products add up, to 9 + 0 for *cat* and 6 + 22.4 for *fish*. So *fish* takes 96% of the row, and *cat*
# gets nothing.
#
# </details>
#
# In one row, questions with different answers compete, and the louder one wins. This is what "It" brings back, with one head and with two:

# %% tags=["hide-input"]
parts = (split_heads(a[None], 2) for a in (q, k, v))
two = merge_heads(attention_forward(*parts)[0])[0]
matrices(
    {
        "one head": one[it],
        "one head, half and half": (v[1] + v[3]) / 2,
        "two heads": two[it],
    },
    heads=[[], [], [0, 1]],
    column_labels=np.ravel(meaning.handed),
)

# %% [markdown]
# With one head "It" is food and not alive, as if the fish had purred. With two heads both answers arrive, side by side:
# something mostly alive from head 0, and a thing, the word before, from head 1.
#
# Would other params help? A row sums to 1, so it could look half and half, as above. But for *The fish ate cat* that
# mean would be the same, so you can't tell which word answered which question. In `mha-numpy experiment heads`, where
# values don't know their places, each token must name two others. One head learned to find one and guess the other: 56%
# right. Two get 100%. (Sometimes an MLP takes the mixture apart.)
#
# ## H narrow projections are one wide one
#
# Written as a loop, each head multiplies `x` by its own columns of `w_q`, `w_k` and `w_v`, and then attends as in
# notebook 02:

# %%
results = []
for own in slice(0, 4), slice(4, 8):  # its columns
    q, k, v = x @ w_q[:, own], x @ w_k[:, own], x @ w_v[:, own]
    results.append(attention_forward(q, k, v)[0])  # (T, d_h)

# %% [markdown]
# But each column of `x @ w_q` depends on only one column of `w_q`. So the narrow products, called *projections*, are
# just blocks of a wide one. We multiply once, and split afterwards:

# %%
wide = x @ w_q  # (T, D)
(q,) = split_heads(wide[None], 2)  # (H, T, d_h)
matrices(
    {"x @ w_q": wide, "q of head 0": q[0], "q of head 1": q[1]},
    heads=[[0, 1], [0], [1]],
    row_labels=tokens,
)

# %% [markdown]
# Each head gets every word, but only $d_h$ = 4 columns: four mixtures of all eight features. (`split_heads` is a
# reshape and a transpose. Notebook 09 shows why both are needed, and why we don't split `x` instead.)
#
# > **Predict first.** `q[1, 4]` is what head 1 asks for *It*, word 4. Where are its numbers in `x @ w_q`?
# >
# > - row 1, columns 4 to 7
# > - row 4, columns 0 to 3
# > - row 4, columns 4 to 7
# >
# > <!-- answer: row 4, columns 4 to 7 -->

# %%
print("q[1, 4]:     ", q[1, 4])
print("(x @ w_q)[4]:", wide[4])

# %% [markdown]
# <details><summary>Answer</summary>
#
# Row 4, columns 4 to 7. A row is a word, and the second half of its columns belongs to head 1.
#
# </details>
#
# ## Split, attend, merge
#
# That's all you need for multi-head attention. At the end the results go back side by side: read the last picture
# from bottom to top. Then `w_o` mixes them. (B is the number of sentences, here 1.)

# %%
q, k, v = (split_heads(x[None] @ w, 2) for w in (w_q, w_k, w_v))
heads, cache = attention_forward(q, k, v)  # both heads at once
merged = merge_heads(heads)
out = merged @ w_o
compare({"merged": merged[0]}, {"merged": np.hstack(results)})

# %%
print("q, k, v", q.shape, "B, H, T, d_h")
print("weights", cache.weights.shape, "B, H, T, T")
print("heads  ", heads.shape, "B, H, T, d_h")
print("out    ", out.shape, "   B, T, D; as x and merged")

# %% [markdown]
# As a formula:
#
# $$\mathrm{head}_h = \mathrm{softmax}\!\Big(\frac{q_h k_h^\top}{\sqrt{d_h}}\Big)\, v_h, \qquad
# \mathrm{out} = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, w_o$$
#
# ## Does a trained model use its rows?
#
# We gave each of our heads its own job. What does training do? A model called *induction* has learned to carry on
# sequences that repeat. Its first layer has four heads, and in each of them the last letter has its own row:

# %% tags=["hide-input"]
trained = load_trained("induction")
model = trained.model
answer = model(np.array([[0, 1, 2, 3, 0, 1, 2]]))[0, -1].argmax()
print("a b c d a b c, and then:", "abcd"[answer])
last = model.attentions[0].weights[0, :, -1:]
weights_by_head(last, ["c"], "abcdabc")

# %% [markdown]
# Head 0 has found our second question: which letter comes before? Here head 3 looks there too. Heads 1 and 2 spread
# their weight.
#
# Now let's make them agree: all four get the same row, first the mean of their own, then head 0's, and so on.
#
# > **Predict first.** With separate rows, more than 99% of the answers are right. What share is right with the mean row?
# >
# > <!-- answer: 89 within 5 -->


# %% tags=["hide-input"]
def with_one_row(ids, heads):
    """Run it; in layer 0 all share the mean row of these heads."""
    x = model.embedding(ids)
    for i, layer in enumerate(model.attentions):
        placed = model.positions(x)
        layer(placed, placed, x, is_causal=True)
        w, v = layer.weights, layer.forward_cache.attention.inputs.v
        w = w if i else w[:, heads].mean(axis=1, keepdims=True)
        x = x + merge_heads(w @ v) @ layer.params["w_o"]
    return model.unembedding(x)


rng = np.random.default_rng(1)
(ids,), targets = trained.task.draw_batch(rng, 256)
print(f"as trained: {share_right(model(ids), targets):.1%} right")
for heads in [0, 1, 2, 3], [0], [1], [2], [3]:
    right = share_right(with_one_row(ids, heads), targets)
    print(f"the row of {heads}: {right:.1%} right")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 89%. The mean blurs head 0's row. If all four share that row itself, nothing is lost. With head 3's, only 60% are right.
#
# </details>
#
# So *this* layer needs only head 0's row. The two questions of `experiment heads` need two.
#
# Nobody chose the params. Training changed random ones until the heads looked like this. How does it know which number
# to change, and which way? Notebook 04 shows you.
#
# ## Exercise: multi-head attention (after the hour, 20 minutes)
#
# Write the forward pass in a few lines, with `split_heads`, `merge_heads` and `attention_forward`. This time each
# projection adds a vector, its *bias*. H·$d_k$ and H·$d_v$ needn't be D, and a mask says which keys a query may see;
# pass it on as `mask=mask`.
#
# To practise more: `museum-merge` in `mha-numpy exercises`, real code that was published with a mistake in it.


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
# ## Summary
#
# - In one head, each token has one row, which sums to 1, so questions with different answers compete for it.
# - With several heads a token has several rows. In the first layer of our model one is enough, that of head 0.
# - H heads are one wide product, split into column blocks. Each block works on its own, and `w_o` mixes the results.
# - Each head reads every word and all of its features, but has only its own $d_h$ mixtures of them to work with.
#
# **In the code:** `mha_numpy/core/multihead.py`, with `multihead_params.py` and `shapes.py` next to it. Derivation:
# docs/multi-head.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.2.
#
# **Next:** [04, going backwards](04_through-it-backward.ipynb).
