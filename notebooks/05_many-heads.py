# %% [markdown]
# # 05 · Many heads
#
# One head gives each token one row of weights, so one mean. Several heads give it several. This
# notebook follows every number through the cutting and joining that heads need, and then asks
# what heads buy, what they cost, and what can be said about any one of them.
#
# **You will learn**
#
# - why one distribution per token is a compromise, and what a mean cannot tell apart;
# - the seven shapes from (B, T, D) to (B, H, T, d) and back, with all numbers in view;
# - that H narrow projections are one wide one, and that the output is a *sum* over heads;
# - what $w_o$ mixes, how a head is switched off, and how its importance is measured;
# - which operation mixes tokens and which mixes features.
#
# Sizes: B sequences, T tokens, width D, H heads of width $d_h = D / H$ (so $d_k = d_v = d_h$).

# %%
from dataclasses import replace

import numpy as np

from mha_numpy import (
    MultiHeadParams,
    attention_forward,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    softmax_forward,
    split_heads,
)
from mha_numpy.check import compare, gradcheck
from mha_numpy.cost import CONFIGURATIONS, count_flops
from mha_numpy.draw import matrices, origin_film, shape_film, stepper, weights_by_head
from mha_numpy.nn import MultiHeadAttention
from mha_numpy.trace import trace
from mha_numpy.walk import tokenize

# %% [markdown]
# ## One distribution is a compromise
#
# "The cat sat on the mat because it was soft." Words in it are related in several ways, and most words
# are in more than one relation:
#
# | kind | from | to | |
# |---|---|---|---|
# | syntactic | cat | sat | a subject and its verb |
# | positional | sat | on | a neighbour |
# | coreference | it | mat | a pronoun and what it stands for |
# | semantic | soft | mat | a property and its owner |
#
# "it" also has neighbours, "sat" also has a subject. Getting one wrong can be audible: "The animal didn't cross the street because it was too tired"
# becomes "il" in French if "it" is the animal, and "elle" if it is the street.
#
# Let us write four heads by hand. Each has its own queries and keys, of features that we choose;
# the weights are then computed from them as always. To be clear: **we made these heads.** No
# training was involved, and the last one has its answers written into it.

# %%
tokens = tokenize("The cat sat on the mat because it was soft.")
T = len(tokens)
places = np.eye(T)  # a feature for each place
words = np.array([[a.lower() == b.lower() for b in tokens] for a in tokens], dtype=float)
is_dot = np.zeros((T, T))
is_dot[tokens.index("."), 0] = 1  # one feature: am I the full stop?
relations = [("cat", "sat"), ("sat", "on"), ("it", "mat"), ("soft", "mat")]
asks_dot = np.zeros((T, T))
asks_dot[:, 0] = 1  # every token asks for it
wanted = np.zeros((T, T))
for source, target in relations:
    wanted[tokens.index(source), tokens.index(target)] = 1
T, tokens

# %% [markdown]
# | head | what a query asks for | what a key says |
# |---|---|---|
# | 0, previous token | the place before mine | my place |
# | 1, same word | my word | my word |
# | 2, delimiter | a full stop | whether I am one |
# | 3, the relations above | the place from the list | my place |
#
# A match scores 8, anything else 0 (the scale is set to 8 for this).
#
# > **Predict first.** $e^8$ is about 2981. A row of 11 with one match: what weight has the match?
# > What does row 0 of head 0 look like, where there is no token before? And "The" in head 1?

# %%
queries = np.stack([np.eye(T, k=-1), words, asks_dot, wanted])[None]  # (1, H, T, d_k)
keys = np.stack([places, words, is_dot, places])[None]
values = np.broadcast_to(places, queries.shape)  # token j's value: a 1 at place j
heads, cache = attention_forward(queries, keys, values, scale=8.0)
weights_by_head(cache.weights, tokens)

# %% [markdown]
# One match takes $2981 / 2991 = 0.997$. A query that matches nothing has 11 equal scores, so 1/11
# each: it takes the mean of everything. "The" and "the" share.
#
# Now let *one* head do all four jobs: it adds up the four scores.
#
# > **Predict first.** "it" matches "because" (before it), "it" (same word), "." (delimiter) and
# > "mat" (what it stands for), each with score 8. What are its weights in the one head?

# %%
four = 8.0 * queries @ keys.swapaxes(-1, -2)  # (1, H, T, T)
one_head, _ = softmax_forward(four.sum(axis=1))
it = tokens.index("it")
rows = np.vstack([cache.weights[0, :, it], one_head[0, it]])  # (5, T)
row_labels = ["previous token", "same word", "delimiter", "relations", "all in one head"]
matrices({'the row of "it"': rows}, row_labels=row_labels, column_labels=tokens)

# %% [markdown]
# A quarter for each. Weights of one row sum to 1: what one relation gets, another loses. And the
# head returns the *mean* of the four values. A mean has no places: it does not say what came in
# as the word before and what as the antecedent. Let two tokens trade their roles:

# %%
because, mat = np.array([1.0, 5.0]), np.array([4.0, -2.0])  # two values
one = {"before: because": (because + mat) / 2, "before: mat": (mat + because) / 2}
two = {
    "before: because": np.concatenate([because, mat]),
    "before: mat": np.concatenate([mat, because]),
}
one, two

# %% [markdown]
# One head: the same output for two different situations. Two heads: different, since each writes
# into its own columns. (A mean can be enough, where both tokens say the same: in "The bank by the
# river had willow trees", "river" and "trees" both tell which bank is meant. And a value may carry
# its role within it, if a layer below has put it there.)
#
# So the point is not that one head "learns one kind of relation". It may learn several, and
# blend them in each row. Several heads keep them apart.
#
# ## Two heads in a row: induction
#
# What comes next: *Tom Smith met Ann Lee and Tom ...*? Smith, since that followed Tom before. Two
# heads in two layers can do this. The first copies to each token the word before it. The second
# asks: where is the word before *my* word? Its keys are what the first head wrote.
#
# > **Predict first.** At which token does the last row of the second head (the second "Tom")
# > look: at the first "Tom", or at "Smith"?

# %%
names = ["<s>", *tokenize("Tom Smith met Ann Lee and Tom")]
N = len(names)
word = np.array([[a == b for b in names] for a in names], dtype=float)  # same word, same features
before, layer_1 = attention_forward(np.eye(N, k=-1), np.eye(N), word, is_causal=True, scale=9.0)
found, layer_2 = attention_forward(word, before, word, is_causal=True, scale=9.0)
sees = np.tril(np.ones((N, N), dtype=bool))
weights_by_head(np.stack([layer_1.weights, layer_2.weights]), names, visible=sees)

# %%
names[found[-1].argmax()]  # the last token has read this word's features

# %% [markdown]
# (Head 0 is the layer below, head 1 the layer above.) The second head looks at **"Smith"**, the
# token *after* the earlier "Tom", because that is the token whose word before was "Tom". Olsson et
# al. 2022 found such *induction heads* in trained language models, formed rather suddenly early
# in training, while the models became better at continuing patterns from their context. That the
# heads *cause* this they showed in small models of attention alone; in large ones they show that
# both go together.
#
# ## What is known about trained heads
#
# Nobody assigns roles; a head becomes what the training loss makes of it. People have looked
# and given names to what they saw:
#
# | kind | seen by |
# |---|---|
# | positional: the token before or after | Clark et al. 2019, section 3; Voita et al. 2019, section 5 |
# | delimiter: [SEP], [CLS], stops and commas | Clark et al. 2019, section 3 |
# | syntactic: a verb's object, a noun's determiner | Clark 2019, section 4; Voita 2019, section 5 |
# | coreference: a mention and its antecedent | Clark et al. 2019, section 4 |
# | rare tokens: the rarest word of the sentence | Voita et al. 2019, section 5 |
# | induction: what followed last time | Olsson et al. 2022 |
# | semantic: related in meaning | the loosest name: little that is measured head by head |
#
# Three cautions.
#
# - Most heads fit no name, and many fit several. Clark et al. 2019 read the much-used delimiters
#   as a place to look when there is nothing to do, not as a source of meaning.
# - "Syntax early, coreference in the middle, meaning late" is too neat. In the BERT of Clark et
#   al. 2019 the best head for direct objects is in layer 8 of 12, the best for coreference in layer 5.
# - **Weights are not explanations.** They say where a head looked, not what it took from there
#   (that is $v$) nor what becomes of it: $w_o$ mixes the heads, the residual path carries the token
#   around them, later layers change it again (Jain and Wallace 2019; for a defence with limits,
#   Wiegreffe and Pinter 2019). Below we measure how much a head matters instead of looking at it.
#
# ## Seven shapes, all numbers in view
#
# $$\mathrm{out} = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, w_o, \qquad
# \mathrm{head}_h = \mathrm{softmax}\!\Big(\frac{q_h k_h^\top}{\sqrt{d_h}}\Big) v_h, \qquad
# q_h = x\,w_q^h,\ k_h = x\,w_k^h,\ v_h = x\,w_v^h$$
#
# | | shape | what it is |
# |---|---|---|
# | 1 | [B, T, D] | projected: `x @ w_q` |
# | 2 | [B, T, H, d_h] | each token's row cut into H pieces |
# | 3 | [B, H, T, d_h] | each head has all tokens |
# | 4 | [B, H, T, T] | scores, weights: one matrix for each head |
# | 5 | [B, H, T, d_h] | each head's means of the values |
# | 6 | [B, T, H, d_h] | back to each token's pieces |
# | 7 | [B, T, D] | merged, side by side; then `merged @ w_o` |
#
# We take D = 8 and H = 2, so $d_h = 4$, three tokens, and small whole numbers. No biases yet.

# %%
B, T, D, H = 1, 3, 8, 2
d_h = D // H
rng = np.random.default_rng(24)
x = rng.integers(-1, 2, size=(B, T, D)).astype(float)
w_q, w_k, w_v, w_o = (rng.integers(-1, 2, size=(D, D)).astype(float) for _ in range(4))
matrices({"x": x[0], "w_q": w_q}, title="Three tokens of width 8, and the query projection")

# %% [markdown]
# **1. Project.** One product for both heads.

# %%
projected = x @ w_q  # [B, T, D]
projected[0]

# %% [markdown]
# **2. and 3. Split.** First each row in two pieces, then the head axis before the token axis.
#
# > **Predict first.** `q[0, 1, 2]` is head 1's query of token 2. Which four numbers of the matrix
# > above are these?

# %%
by_token = projected.reshape(B, T, H, d_h)  # [B, T, H, d_h]
q = by_token.transpose(0, 2, 1, 3)  # [B, H, T, d_h]
k, v = split_heads(x @ w_k, H), split_heads(x @ w_v, H)  # the same two moves
q[0, 1, 2], projected[0, 2, 4:8]

# %%
matrices(
    {
        f"{name}, head {h}": array[0, h]
        for name, array in zip("qkv", (q, k, v), strict=True)
        for h in (0, 1)
    },
    title="What each head works with: rows are tokens",
)

# %% [markdown]
# **4. Match, head by head.** $\sqrt{d_h} = 2$. A `@` on rank 4 multiplies the last two axes, for
# each sequence and each head on its own: no head sees another.
#
# > **Predict first.** Work out one score by hand from the picture: head 0, query 0, key 1: multiply
# > the two rows of four, add up, halve.

# %%
scores = q @ k.swapaxes(-1, -2) / np.sqrt(d_h)  # [B, H, T, T]
by_hand = (q[0, 0, 0] * k[0, 0, 1]).tolist()
print(" + ".join(map(str, by_hand)), "halved is", sum(by_hand) / 2)
scores[0, 0]

# %%
weights, _ = softmax_forward(scores)
weights_by_head(weights, ["token 0", "token 1", "token 2"])

# %% [markdown]
# Two heads, two matchings: H rows of weights for each token instead of one.
#
# **5. to 7. Mix, and merge.** Each head takes its means of its own values; the pieces of a token
# go side by side again; $w_o$ mixes them.

# %%
heads = weights @ v  # [B, H, T, d_h]
heads_by_token = heads.transpose(0, 2, 1, 3)  # [B, T, H, d_h]
merged = heads_by_token.reshape(B, T, D)  # [B, T, D]
out = merged @ w_o
matrices(
    {"head 0": heads[0, 0], "head 1": heads[0, 1], "merged": merged[0], "out": out[0]},
    title="Concat is: columns 0 to 3 from head 0, columns 4 to 7 from head 1",
)

# %% [markdown]
# The library does the same, and its trace says of every step what it is and where it lies in
# memory:

# %%
params = MultiHeadParams(w_q, None, w_k, None, w_v, None, w_o, None)
with trace() as t:
    library_out, cache = multi_head_attention_forward(x, params=params, num_heads=H)
compare({"out": out, "weights": weights}, {"out": library_out, "weights": cache.attention.weights})

# %%
t

# %% [markdown]
# The same steps as a film: colour is the head that a number belongs to, shade its size.

# %%
shape_film(t)

# %% [markdown]
# And to walk through it with the arrow keys or the slider. Point at a cell: it lights up the cells that
# it was computed from.

# %%
stepper(t)

# %% [markdown]
# ## Does the shuffling lose anything?
#
# Here is a test of all the moves at once. Let the input be a ramp, the projections the identity,
# and **let each token see only itself**. Then every mean is of one value, the token's own.
#
# > **Predict first.** What must come out at the end?

# %%
ramp = np.arange(T * D, dtype=float).reshape(1, T, D)
own = np.eye(T, dtype=bool)  # query i may attend to key i alone
split = split_heads(ramp, H)
alone, _ = attention_forward(split, split, split, mask=own)
stages = {
    "x": ramp,
    "x.reshape(B, T, H, d_h)": ramp.reshape(1, T, H, d_h),
    ".transpose(0, 2, 1, 3)": split,
    "attend, each to itself": alone,
    "merge_heads(...)": merge_heads(alone),
}
origin_film(stages, H)

# %%
np.array_equal(merge_heads(alone), ramp)

# %% [markdown]
# The ramp comes out intact. Two other ways to cut, each with a perfectly right shape:

# %%
B, T = 1, 4
ramp = np.arange(T * D, dtype=float).reshape(B, T, D)
no_transpose = ramp.reshape(B, H, T, d_h)
interleaved = ramp.reshape(B, T, d_h, H).transpose(0, 3, 1, 2)
slices = {
    "x": ramp,
    "right: reshape(B, T, H, d_h), transpose(0, 2, 1, 3)": split_heads(ramp, H),
    "no transpose: reshape(B, H, T, d_h)": no_transpose,
    "interleaved: reshape(B, T, d_h, H), transpose(0, 3, 1, 2)": interleaved,
}
origin_film(slices, H)

# %% [markdown]
# > **Predict first.** Merge both with the right `merge_heads`: does the ramp come back? And if somebody
# > also merges without the transpose, by `reshape(B, T, D)`?

# %%
for name, cut in (("no transpose", no_transpose), ("interleaved", interleaved)):
    print(f"{name:14}then merge_heads:", np.array_equal(merge_heads(cut), ramp))
print("no transpose, then reshape:   ", np.array_equal(no_transpose.reshape(B, T, D), ramp))

# %% [markdown]
# The last one passes: two wrong moves can cancel. So a ramp that comes out scrambled proves a mistake,
# but one that comes out intact proves nothing yet; look at the stage in between, as in the picture.
#
# Without the transpose a "head" holds whole rows of some tokens: it never meets the others.
# **Interleaved** is subtler: each head has all tokens, but columns 0, 2, 4, 6 instead of 0, 1, 2, 3.
# It is another numbering of the columns of $w_q$:
#
# > **Predict first.** Would a model *trained* with the interleaved split work? And one whose params
# > come from a library that cuts in blocks?

# %%
order = np.arange(D).reshape(d_h, H).T.ravel()  # 0, 2, 4, 6, then 1, 3, 5, 7
order, np.array_equal(interleaved, split_heads(ramp[..., order], H))

# %% [markdown]
# Trained that way it works: the columns just learn other places. With params from elsewhere it
# computes something else, and nothing complains: a thing to check whenever params are loaded.
#
# ## Sizes that you will meet
#
# > **Predict first.** D = 512, H = 8, ten tokens: what is $d_h$, and what is the shape of the
# > weights? Then (B, T, D) = (4, 128, 768) with H = 12.

# %%
STAGES = ("x_q", "q_by_token", "q", "weights", "heads", "heads_by_token", "merged", "out")
for B, T, D, H in ((1, 10, 512, 8), (4, 128, 768, 12)):
    layer = MultiHeadAttention(D, H, rng=0)
    with trace() as big:
        layer(np.random.default_rng(1).normal(size=(B, T, D)))
    print(f"D={D}, H={H}, d_h={D // H}")
    for name in STAGES:
        print(f"    {name:15}{big[name].shape}")

# %% [markdown]
# $d_h$ is 64 both times. The shapes of input and output do not tell H; the stages between do. (PyTorch's `nn.MultiheadAttention` returns weights of shape (4, 128, 128) for the second:
# by default it *averages* them over the heads, the very thing that heads are there to avoid.)

# %%
big["weights"].mean(axis=1).shape

# %% [markdown]
# ## H narrow projections are one wide one
#
# Papers write a $w_q^h$ of shape (D, $d_h$) for each head; code has one `w_q` of shape (D, H·$d_h$).
# It is the same thing. Column c of a product needs column c of the right factor alone, so
#
# $$x\,[\,w_q^1 \; w_q^2 \cdots w_q^H\,] = [\,x w_q^1 \;\; x w_q^2 \cdots x w_q^H\,]$$
#
# We use sizes that all differ from here on: 3 heads, D = 10, $d_k = 4$, $d_v = 6$, with biases.

# %%
B, T, D, H, d_k, d_v = 2, 5, 10, 3, 4, 6
rng = np.random.default_rng(7)
x = rng.normal(size=(B, T, D))
inner = {"q": H * d_k, "k": H * d_k, "v": H * d_v}
arrays = {f"w_{s}": rng.normal(size=(D, n)) / np.sqrt(D) for s, n in inner.items()}
arrays |= {f"b_{s}": rng.normal(size=n) for s, n in inner.items()}
arrays |= {"w_o": rng.normal(size=(H * d_v, D)) / np.sqrt(d_v), "b_o": rng.normal(size=D)}
params = MultiHeadParams(**arrays)
{name: array.shape for name, array in params._asdict().items()}


# %%
def narrow(x, w, b, d):
    """H products of width d, one after the other: (B, H, T, d)."""
    blocks = [slice(h * d, (h + 1) * d) for h in range(H)]
    return np.stack([x @ w[:, block] + b[block] for block in blocks], axis=1)


with trace() as t:
    out, cache = multi_head_attention_forward(x, params=params, num_heads=H)
q = narrow(x, params.w_q, params.b_q, d_k)
k = narrow(x, params.w_k, params.b_k, d_k)
v = narrow(x, params.w_v, params.b_v, d_v)
compare({"q": q, "k": k, "v": v}, {"q": t["q"], "k": t["k"], "v": t["v"]})

# %% [markdown]
# So heads do have params of their own, and "all heads at once" is a way of storing them. (It is
# also why heads run in parallel: one big product instead of H small ones.)
#
# Each head may even have another width: nothing in the formula asks for equal ones. Equal widths
# are what allows *one* array of shape (B, H, T, d).
#
# ## The output is a sum over heads
#
# The same argument for rows: a row of `merged` is the heads' pieces side by side, so its product
# with $w_o$ falls into H parts. With $w_o^h$ the h-th block of **rows**:
#
# $$\mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, w_o + b_o
# = \sum_{h=1}^{H} \mathrm{head}_h\, w_o^h + b_o$$
#
# > **Predict first.** What is the shape of one head's share of the output, (B, T, d_v) or (B, T, D)?

# %%
heads = t["heads"]  # (B, H, T, d_v)
w_o_blocks = params.w_o.reshape(H, d_v, D)
shares = heads @ w_o_blocks  # (B, H, T, D): what each head adds to the output
print(shares.shape)
compare(shares.sum(axis=1) + params.b_o, out, name="sum over heads")

# %%
matrices(
    {f"head {h}'s share": shares[0, h] for h in range(H)} | {"out": out[0]},
    title="Each head writes into all D columns; out is their sum and b_o",
)

# %% [markdown]
# Read that way there is no concatenation at all: **each head reads the tokens, and adds something to
# every one of them.** The concatenation is how one product computes the sum. It also shows what
# $w_o$ is for. `merged` keeps the heads in separate columns; change head 0's values and see what
# reacts:

# %%
louder = params._replace(w_v=params.w_v * np.repeat([2, 1, 1], d_v))  # head 0's columns alone
with trace() as loud:
    multi_head_attention_forward(x, params=louder, num_heads=H)
for name in ("merged", "out"):
    print(f"{name:7}", (abs(loud[name] - t[name]) > 1e-12).any(axis=(0, 1)).astype(int))

# %% [markdown]
# Six columns of `merged`, all ten of `out`. Without $w_o$, a head could only ever write into its
# own $d_v$ columns.
#
# ## The order of heads means nothing
#
# A sum has no order.
#
# > **Predict first.** We put the heads in the order 2, 0, 1: the column blocks of $w_q$, $w_k$, $w_v$
# > and their biases. What else must be moved for the output to stay the same?


# %%
def reordered(array, order, axis):
    """Put the heads' blocks along an axis in another order."""
    blocks = np.split(array, H, axis)
    return np.concatenate([blocks[h] for h in order], axis)


order = [2, 0, 1]
columns = ("w_q", "b_q", "w_k", "b_k", "w_v", "b_v")
half = params._replace(**{n: reordered(getattr(params, n), order, -1) for n in columns})
whole = half._replace(w_o=reordered(params.w_o, order, 0))
compare(multi_head_attention_forward(x, params=whole, num_heads=H)[0], out, name="with w_o's rows")

# %%
compare(multi_head_attention_forward(x, params=half, num_heads=H)[0], out, name="without")

# %% [markdown]
# The row blocks of $w_o$ go with them. "Head 3" of a model is therefore a label, and heads of two
# models with the same number have nothing to do with each other. (Heads concatenated in a wrong
# order are the same mistake: right shape, wrong output.)
#
# ## Switching a head off
#
# Since heads add up, one can be taken out: multiply it by 0. `head_gate` is that multiplier, one
# number $g_h$ for each head, usually 1:
#
# $$\mathrm{out} = \sum_h g_h\,\mathrm{head}_h\, w_o^h + b_o$$
#
# > **Predict first.** With $g = (1, 0, 1)$: by what does the output change?

# %%
without_1, _ = multi_head_attention_forward(
    x, params=params, num_heads=H, head_gate=np.array([1.0, 0.0, 1.0])
)
compare(out - without_1, shares[:, 1], name="what is missing")

# %% [markdown]
# Exactly by head 1's share. If a head stays switched off, its params can go too: its columns of
# $w_q$, $w_k$, $w_v$ and its rows of $w_o$. That is *pruning*; the layer becomes smaller and gives
# the same as with the gate at 0.

# %%
cut = {n: reordered(getattr(params, n), [0, 2], -1) for n in columns}
pruned = params._replace(**cut, w_o=reordered(params.w_o, [0, 2], 0))
smaller, _ = multi_head_attention_forward(x, params=pruned, num_heads=2)
print(compare(smaller, without_1, name="pruned"))
[sum(array.size for array in some) for some in (params, pruned)]

# %% [markdown]
# ## How much does a head matter?
#
# Take a loss, and switch the heads off one by one: the change of the loss is a fair measure, at
# one forward pass for each head. A cheaper one is the gradient of the loss by the gate,
# `d_head_gate`: all heads at once, from a single backward pass. To first order, going from
# $g_h = 1$ to 0 changes the loss by $-\partial L / \partial g_h$.
#
# Let the loss be $L = \frac12\,\mathrm{mean}\,(\mathrm{out} - \mathrm{target})^2$, and the target
# what the same layer gives with the gates (1, 0, 0.5). So head 0 is right as it is, head 1 does
# harm, and head 2 speaks twice as loud as it should.


# %%
def run(gate):
    """The output with the heads turned up or down, and what backward needs."""
    return multi_head_attention_forward(x, params=params, num_heads=H, head_gate=gate)


def loss_of(out):
    return 0.5 * ((out - target) ** 2).mean()


target, _ = run(np.array([1.0, 0.0, 0.5]))
out, cache = run(np.ones(H))
loss = loss_of(out)
grads = multi_head_attention_backward((out - target) / out.size, cache)
print(f"loss {loss:.4f}, by the gates: {grads.d_head_gate.round(4)}")

# %% [markdown]
# > **Predict first.** Which head's removal makes the loss larger, which smaller? And is the
# > first-order estimate, minus the gradient, exact, too high or too low? (The output is linear in
# > each gate, the loss quadratic in the output.)

# %%
print("head   first order   measured    difference   half the share's mean square")
for h in range(H):
    without, _ = run(np.where(np.arange(H) == h, 0.0, 1.0))
    first, measured = -grads.d_head_gate[h], loss_of(without) - loss
    square = 0.5 * (shares[:, h] ** 2).mean()
    print(f"{h:<7}{first:<14.4f}{measured:<12.4f}{measured - first:<13.4f}{square:.4f}")

# %% [markdown]
# Removing head 0 costs by far the most, and its gradient is the smallest of the three: that head is
# near its best volume, where the slope is flat. The difference is the second-order term, here in closed form:
# half the mean square of the head's share. It is never negative, so this estimate is always too
# low, by the more the louder the head. **A small gradient does not mean a useless head.**
#
# Removing head 2 helps a little, though half of it was wanted: that makes up for some of head 1's harm.
#
# > **Predict first.** Head 1 is gone. Head 2 is at 1 where 0.5 would be right. What happens to the
# > loss if head 2 goes too?

# %%
for gate in ([1.0, 0.0, 1.0], [1.0, 0.0, 0.0]):
    print(gate, f"{loss_of(run(np.array(gate))[0]):.6f}")

# %% [markdown]
# Nothing: 0.5 too much and 0.5 too little are equally wrong. A head's importance depends on which
# other heads are there; it is not a property of the head alone.
#
# In a trained model the slope is near 0 for *every* head, if one averages over the data. Michel et
# al. 2019 (section 4.1) therefore average its absolute value, sample by sample. A gate of shape
# (B, H) gives one gradient for each sequence:

# %%
_, cache = run(np.ones((B, H)))
each = multi_head_attention_backward((out - target) / out.size, cache).d_head_gate
print(each.round(4), "sum to", each.sum(axis=0).round(4))
abs(each).mean(axis=0).round(4)

# %% [markdown]
# The gate's gradient itself is exact, as a check says:


# %%
def gate_gradient(d_out, gate):
    return (multi_head_attention_backward(d_out, run(gate)[1]).d_head_gate,)


gradcheck(lambda gate: run(gate)[0], gate_gradient, {"gate": np.ones(H)})

# %% [markdown]
# ### Redundant heads
#
# Two heads are redundant if one can take over for the other. The clearest case is a twin: same
# columns in $w_q$, $w_k$, $w_v$. Then both heads compute the same, and $h\,w_o^0 + h\,w_o^1 =
# h\,(w_o^0 + w_o^1)$: one head with the sum of both row blocks replaces them.

# %%
twins = params._replace(**{n: reordered(getattr(params, n), [0, 0, 2], -1) for n in columns})
blocks = params.w_o.reshape(H, d_v, D)
taken_over = np.concatenate([blocks[0] + blocks[1], blocks[2]])
two_heads = {n: reordered(getattr(params, n), [0, 2], -1) for n in columns}
both, _ = multi_head_attention_forward(x, params=twins, num_heads=H)
one, _ = multi_head_attention_forward(
    x, params=params._replace(**two_heads, w_o=taken_over), num_heads=2
)
compare(one, both, name="two heads for three")

# %% [markdown]
# Trained models have no exact twins, but much that comes close. What was measured:
#
# - Michel et al. 2019 (section 3) switched off heads of trained models one at a time. Of the 96 heads
#   in the encoder of a translation model, 8 made a significant difference, and half of these made
#   the translations *better* by their absence. Many layers could do with a single head. Removing
#   heads *together*, least important first by the gradient above, went on without noticeable loss up
#   to about 20 % of the heads of the translation model and 40 % of BERT's (section 4); then scores
#   fell fast.
# - Voita et al. 2019 let gates be learned, with a penalty for open ones: 38 of 48 encoder heads of
#   a translation model went, for 0.15 BLEU. Those that stayed were mostly those with a name.
# - DistilBERT (Sanh et al. 2019), often told in this context, has half of BERT's *layers*, each with
#   all of its 12 heads.
#
# That a head can be removed *after* training does not show that training did not need it.
#
# ## Why split the width?
#
# H heads of full width D would cost H times as much. So each head gets $d_h = D / H$, and the
# total stays. Take GPT-2's width of 768 and its 1024 tokens, one layer:
#
# > **Predict first.** From 1 head to 24: how do the params change, how the operations of $q k^\top$
# > and of `weights @ v`, how the number of weights?

# %%
gpt_2 = replace(CONFIGURATIONS["gpt-2"], num_layers=1)
print("H    d_h   params      4 D^2 + 4 D   q k^T and weights v   weights")
for n in (1, 2, 6, 12, 24):
    config = replace(gpt_2, num_heads=n, num_kv_heads=n, head_dim=768 // n)
    flops, counted = count_flops(config, 1024), MultiHeadAttention(768, n).num_parameters
    print(
        f"{n:<5}{768 // n:<6}{counted:<12,}{4 * 768**2 + 4 * 768:<14,}"
        f"{flops.scores + flops.mix:<22,}{n * 1024**2:,}"
    )

# %% [markdown]
# Params and matrix products are the same: $H \cdot T^2 \cdot d_h = T^2 D$. What grows is the number of
# weights, and with it the memory for them and the exponentials of softmax: $H T^2$. So "many heads
# cost nothing" is nearly right, and "many heads cost more" is right for softmax and memory. Notebook
# 12 counts all of it.
#
# ### Too many heads are too narrow
#
# A head's scores are $q k^\top$ with $d_h$ columns each: a T × T matrix of rank at most $d_h$. A narrow
# head cannot form every pattern of scores (Bhojanapalli et al. 2020).
#
# > **Predict first.** Ten tokens, D = 16. The rank of one head's scores with 1, 2, 4, 8, 16 heads?

# %%
x_10 = np.random.default_rng(2).normal(size=(1, 10, 16))
for n in (1, 2, 4, 8, 16):
    with trace() as narrower:
        MultiHeadAttention(16, n, rng=3)(x_10)
    ranks = np.linalg.matrix_rank(narrower["scores"][0])
    print(f"H={n:<4}d_h={16 // n:<4}rank of each head's scores: {sorted(set(ranks.tolist()))}")

# %% [markdown]
# Few heads: few patterns. Many heads: each can only form simple ones. Models have settled on widths
# of 64 to 128 or so, whatever D is, so H grows with D:

# %%
for name in ("bert-base", "bert-large", "gpt-2", "gpt-3", "llama-3-70b", "palm-540b"):
    c = CONFIGURATIONS[name]
    print(f"{c.name:14}D={c.embed_dim:<7}H={c.num_heads:<5}d_h={c.head_dim}")

# %% [markdown]
# Vaswani et al. 2017 (table 3, rows A) tried 1, 4, 8, 16 and 32 heads at equal cost: one head was 0.9
# BLEU worse than the best, 32 were also worse than 8. (PaLM shows that the rule is a habit: $d_h = 256$. And that $H d_h$ need not be D: 48 · 256 = 12288.)
#
# ## Two kinds of mixing
#
# Which operation carries information between tokens, and which between features? No need to
# argue: change one number, token 2's feature 1, and see which numbers of the result react.
#
# > **Predict first.** Four tokens, six features, three heads of width 2. For each of these, which rows
# > and which columns react: (a) `weights @ v` with the weights held fixed, (b) attention without
# > any projection, (c) the product with $w_o$, (d) a feed-forward layer
# > $\tanh(x w_1)\,w_2$, (e) the whole layer?


# %%
def reacts(f, x):
    """(T, D) bools: which numbers of f(x) change with token 2's feature 1."""
    moved = x.copy()
    moved[0, 2, 1] += 1
    return (abs(f(moved) - f(x)) > 1e-9)[0]


rng = np.random.default_rng(4)
x4, fixed = rng.normal(size=(1, 4, 6)), rng.dirichlet(np.ones(4), size=(1, 3, 4))
w, w_1, w_2 = (rng.normal(size=shape) for shape in ((6, 6), (6, 9), (9, 6)))
layer = MultiHeadAttention(6, 3, rng=5)

# %%
operations = {
    "(a) weights @ v": lambda x: merge_heads(fixed @ split_heads(x, 3)),
    "(b) attention alone": lambda x: merge_heads(attention_forward(*[split_heads(x, 3)] * 3)[0]),
    "(c) x @ w_o": lambda x: x @ w,
    "(d) feed-forward": lambda x: np.tanh(x @ w_1) @ w_2,
    "(e) whole layer": layer,
}
matrices(
    {name: reacts(f, x4).astype(float) for name, f in operations.items()},
    title="Rows are tokens, columns features: 1 = reacts to token 2's feature 1",
)

# %% [markdown]
# | operation | mixes tokens | mixes features |
# |---|---|---|
# | weights @ v | yes | no |
# | attention alone, with its scores | yes | within a head (features decide the scores) |
# | every projection: $w_q$, $w_k$, $w_v$, $w_o$ | no | yes |
# | feed-forward | no | yes |
# | the whole layer | yes | yes |
#
# The usual summary, "attention mixes positions, the feed-forward layer mixes features", is half of
# it: attention is the only part that mixes tokens, but its projections mix features as well,
# and $w_o$ is the only place where *heads* meet.
#
# ## Exercise: multi-head attention
#
# Write the forward pass: a few lines. Use what you like from above (`split_heads`, `merge_heads`,
# `softmax_forward`, or plain NumPy). Biases are there, $d_k \neq d_v$, and neither H·$d_k$ nor H·$d_v$ is D.
# The gradient check then takes the library's backward as the gradient of *your* forward.


# %% tags=["exercise"]
def my_multi_head(x, params, num_heads):
    """(B, T, D) -> (B, T, D): project, split, attend, merge, project.

    params.w_q, .w_k: (D, H*d_k); .w_v: (D, H*d_v); .w_o: (H*d_v, D); biases .b_q, .b_k, .b_v, .b_o.
    """
    ...  # your code


# %% tags=["check"]
def its_backward(d_out, x, params):
    _, cache = multi_head_attention_forward(x, params=params, num_heads=3)
    grads = multi_head_attention_backward(d_out, cache)
    return grads.d_x_q, grads.d_params


x = np.random.default_rng(0).normal(size=(2, 5, 10))  # B=2, T=5, D=10; params from above: 3 heads
expected, _ = multi_head_attention_forward(x, params=params, num_heads=3)
actual = my_multi_head(x, params, 3)
report = compare(actual, expected, name="out")
display(report)
if report:
    inputs = {"x": x, "params": params}
    display(gradcheck(lambda x, params: my_multi_head(x, params, 3), its_backward, inputs))
elif getattr(actual, "shape", None) == expected.shape:
    pairs = {"expected": expected[0], "actual": actual[0], "difference": (actual - expected)[0]}
    display(matrices(pairs, title="Sequence 0"))

# %% [markdown]
# ## Summary
#
# - A head has one distribution for each token and returns one mean, in which roles can no longer
#   be told apart. H heads have H, each in its own columns.
# - [B, T, D] → [B, T, H, d] → [B, H, T, d] → [B, H, T, T] → [B, H, T, d] → [B, T, H, d] → [B, T, D].
#   If each token sees only itself, a ramp must come out intact.
# - Column blocks of $w_q$, $w_k$, $w_v$ and row blocks of $w_o$ belong to heads: the output is
#   $\sum_h \mathrm{head}_h w_o^h + b_o$. So heads have no order, and each can be switched off alone.
# - A head's importance: the loss without it, or to first order `d_head_gate`. Not its picture.
# - With $d_h = D / H$ the params and matrix products do not depend on H; the number of weights does.
# - Only the weights mix tokens; all projections mix features; heads meet in $w_o$ alone.
#
# **In the code:** `mha_numpy/core/multihead.py`, with `projection.py` and `shapes.py` beside it.
# Derivation: docs/multi-head.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.2. On heads: Clark et al.
# 2019, *What Does BERT Look At?*; Voita et al. 2019, *Analyzing Multi-Head Self-Attention*; Michel et al.
# 2019, *Are Sixteen Heads Really Better than One?*; Olsson et al. 2022, *In-context Learning and
# Induction Heads*; Bhojanapalli et al. 2020, *Low-Rank Bottleneck in Multi-head Attention Models*; Jain
# and Wallace 2019, *Attention is not Explanation*; Wiegreffe and Pinter 2019, *Attention is not not
# Explanation*. **Next:** 06, cross-attention.
