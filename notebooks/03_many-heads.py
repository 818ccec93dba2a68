# %% [markdown]
# # 03 · Many heads
#
# One head gives each token one row of weights, so one mean. Several heads give it several. This
# notebook follows every number through the cutting and joining that heads need, and then asks
# what each head adds, and how one is taken out.
#
# **You will learn**
#
# - why one row of weights is a compromise, and what a mean cannot tell apart;
# - the seven shapes from [B, T, D] to [B, H, T, d_h] and back, with all numbers in view;
# - that H narrow projections are one wide one, and that the output is a *sum* over heads;
# - what $w_o$ mixes, how a head is switched off, and how its importance is measured;
# - which operation mixes tokens and which mixes features.
#
# Sizes: B sequences, T tokens, width D, H heads of width $d_h = D / H$ (so $d_k = d_v = d_h$).

# %%
import numpy as np

from mha_numpy import (
    MultiHeadAttention,
    MultiHeadParams,
    attention_forward,
    causal_mask,
    compare,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    softmax_forward,
    split_heads,
    trace,
)
from mha_numpy.analysis import cut_heads
from mha_numpy.draw import matrices, origin_film, shape_film, stepper, weights_by_head
from mha_numpy.exercises import check, hint
from mha_numpy.tables import Table
from mha_numpy.train import load_trained, share_right
from mha_numpy.walk import tokenize

# %% [markdown]
# ## One row of weights is a compromise
#
# "The cat sat on the mat because it was soft." Words in it are related in several ways, and most
# words are in more than one relation:
#
# | kind | from | to | |
# |---|---|---|---|
# | syntactic | cat | sat | a subject and its verb |
# | positional | sat | on | a neighbour |
# | coreference | it | mat | a pronoun and what it stands for |
# | semantic | soft | mat | a property and its owner |
#
# Getting one wrong can be audible: in "The animal didn't cross the street because it was too
# tired", the French for "it" is "il" if it is the animal, and "elle" if it is the street.
#
# Let us write four heads by hand. Each has its own queries and keys, of features that we choose;
# the weights are then computed from them as always. To be clear: **we made these heads.** No
# training was involved, and the last one has its answers written into it.

# %%
tokens = tokenize("The cat sat on the mat because it was soft.")
T = len(tokens)
print(T, *tokens)
places = np.eye(T)  # row i: a 1 at place i
place_before = np.eye(T, k=-1)  # row i: a 1 at place i - 1
words = np.array([[a.lower() == b.lower() for b in tokens] for a in tokens], dtype=float)
asks_for_stop, is_stop, related = np.zeros((3, T, T))
asks_for_stop[:, 0] = 1  # every token asks for feature 0 ...
is_stop[tokens.index("."), 0] = 1  # ... and the full stop alone has it
for source, target in (("cat", "sat"), ("sat", "on"), ("it", "mat"), ("soft", "mat")):
    related[tokens.index(source), tokens.index(target)] = 1

# %% [markdown]
# | head | what a query asks for | what a key says |
# |---|---|---|
# | previous token | the place before mine | my place |
# | same word | my word | my word |
# | delimiter | a full stop | whether I am one |
# | relations | the place from the table above | my place |
#
# A match scores 8, anything else 0 (the scale is set to 8 for this).
#
# > **Predict first.** $e^8$ is about 2981. A row of 11 with one match: what weight has the match?
# > What does row 0 of *previous token* look like, where there is no token before? And the row of
# > "The" in *same word*?

# %%
jobs = ["previous token", "same word", "delimiter", "relations"]
queries = np.stack([place_before, words, asks_for_stop, related])[None]  # (1, H, T, d_k)
keys = np.stack([places, words, is_stop, places])[None]
values = np.broadcast_to(places, queries.shape)  # token j's value: a 1 at place j
_, cache = attention_forward(queries, keys, values, scale=8.0)
weights_by_head(cache.weights, tokens, head_names=jobs)

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
labels = [*jobs, "all in one head"]
matrices({'the row of "it"': rows}, row_labels=labels, column_labels=tokens)

# %% [markdown]
# A quarter for each. Weights of one row sum to 1: what one relation gets, another loses. And the
# head returns the *mean* of the four values. A mean does not say what came in as the word before
# and what as the antecedent. Let two tokens trade these roles:

# %%
because, mat = np.array([1.0, 5.0]), np.array([4.0, -2.0])  # two values
one_head = {"because, mat": (because + mat) / 2, "mat, because": (mat + because) / 2}
two_heads = {
    "because, mat": np.concatenate([because, mat]),
    "mat, because": np.concatenate([mat, because]),
}
one_head, two_heads

# %% [markdown]
# One head: the same output for two different situations. Two heads: different, since each writes
# into its own columns. (A mean can be enough, where both tokens say the same: in "The bank by the
# river had willow trees", "river" and "trees" both tell which bank is meant. And a value may carry
# its role within it, if a layer below has put it there.)
#
# So the point is not that one head "learns one kind of relation". It may learn several, and
# blend them in each row. Several heads keep them apart.
#
# ## Seven shapes, all numbers in view
#
# $$q_h = x\,w_q^h, \qquad k_h = x\,w_k^h, \qquad v_h = x\,w_v^h, \qquad
# \mathrm{head}_h = \mathrm{softmax}\!\Big(\frac{q_h k_h^\top}{\sqrt{d_h}}\Big)\, v_h$$
#
# $$\mathrm{out} = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, w_o$$
#
# | | shape | what it is |
# |---|---|---|
# | 1 | [B, T, D] | projected: `x @ w_q`, and so for k and v |
# | 2 | [B, T, H, d_h] | each token's row, cut into H pieces |
# | 3 | [B, H, T, d_h] | each head has all tokens |
# | 4 | [B, H, T, T] | scores, weights: one matrix for each head |
# | 5 | [B, H, T, d_h] | each head's means of the values |
# | 6 | [B, T, H, d_h] | back to each token's pieces |
# | 7 | [B, T, D] | merged, side by side; then `merged @ w_o` |
#
# Take D = 8 and H = 2, so $d_h = 4$, three tokens, small whole numbers, and no biases yet.

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
    title="Merged: columns 0 to 3 from head 0, 4 to 7 from head 1",
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
# And now walk through it. Click into it, then walk with the arrow keys, or use the slider. Point at a
# cell: the cells that it was computed from light up.

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
# The ramp comes out intact. Notebook 09 showed what happens without the transpose. Here is a
# subtler mistake, of the same shape: cut into $d_h$ pieces of H, not into H pieces of $d_h$.
#
# > **Predict first.** Would a model *trained* with this split work? And one whose params come from
# > a library that cuts in blocks?

# %%
interleaved = ramp.reshape(1, T, d_h, H).transpose(0, 3, 1, 2)
label = "interleaved: x.reshape(B, T, d_h, H).transpose(0, 3, 1, 2)"
origin_film({"x": ramp, "right: split_heads(x, H)": split, label: interleaved}, H)

# %% [markdown]
# Each head has all tokens, but columns 0, 2, 4, 6 instead of 0, 1, 2, 3. That is another numbering
# of the columns:

# %%
order = [0, 2, 4, 6, 1, 3, 5, 7]
np.array_equal(interleaved, split_heads(ramp[..., order], H))

# %% [markdown]
# Trained that way it works: the columns of $w_q$, $w_k$, $w_v$ just learn other places. With params
# from elsewhere it computes something else, and nothing complains.
#
# One warning: two wrong moves can cancel. Here both split and merge forget the transpose:

# %%
np.array_equal(ramp.reshape(1, H, T, d_h).reshape(1, T, D), ramp)

# %% [markdown]
# A ramp that comes out scrambled proves a mistake; one that comes out intact proves nothing yet.
# Look at the stages between.
#
# ## Sizes that you will meet
#
# > **Predict first.** D = 512, H = 8, ten tokens: what is $d_h$, and what is the shape of the
# > weights? Then (B, T, D) = (4, 128, 768) with H = 12.

# %%
sizes = {"D=512, H=8": (1, 10, 512, 8), "D=768, H=12": (4, 128, 768, 12)}
big = {}
for label, (B, T, D, H) in sizes.items():
    with trace() as big[label]:
        MultiHeadAttention(D, H, rng=0)(np.zeros((B, T, D)))
stages = ("q_projected", "q_by_token", "q", "weights", "heads", "heads_by_token", "merged", "out")
rows = [[name, *(str(t[name].shape) for t in big.values())] for name in stages]
Table("", ["", *sizes], rows)

# %% [markdown]
# $d_h$ is 64 both times. The shapes of input and output do not tell H; the stages between do.
# (PyTorch's `nn.MultiheadAttention` returns weights of shape (4, 128, 128) for the second: by
# default it *averages* them over the heads, the very thing that heads are there to avoid.)
#
# ## H narrow projections are one wide one
#
# The formula has a $w_q^h$ of shape (D, $d_h$) for each head; the code one `w_q` of shape
# (D, H·$d_h$). It is the same thing. Column c of a product needs column c of the right factor alone, so
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
# every one of them.** The concatenation is how one product computes the sum.
#
# It also shows what $w_o$ is for. `merged` keeps the heads in separate columns, `out` does not.
#
# > **Predict first.** We double head 0's part of $w_v$. Which of the 18 columns of `merged` react,
# > and which of the 10 of `out`?

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
moved = {
    "with w_o's rows": multi_head_attention_forward(x, params=whole, num_heads=H)[0],
    "without": multi_head_attention_forward(x, params=half, num_heads=H)[0],
}
compare(moved, dict.fromkeys(moved, out))

# %% [markdown]
# The row blocks of $w_o$ go with them. "Head 3" of a model is therefore a mere label. (Heads
# concatenated in a wrong order are the same mistake: right shape, wrong output.)
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
# $w_q$, $w_k$, $w_v$ and its rows of $w_o$. That is *pruning*; notebook 23 does it.
#
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
#
# > **Predict first.** The output is linear in each gate, the loss quadratic in the output. Is the
# > first-order estimate exact, too high or too low?


# %%
def run(gate):
    """The output with the heads turned up or down, and what backward needs."""
    return multi_head_attention_forward(x, params=params, num_heads=H, head_gate=gate)


def loss_of(out):
    return 0.5 * ((out - target) ** 2).mean()


target, _ = run(np.array([1.0, 0.0, 0.5]))
out, cache = run(np.ones(H))
slopes = multi_head_attention_backward((out - target) / out.size, cache).d_head_gate

# %%
rows = []
for h in range(H):
    without, _ = run(np.where(np.arange(H) == h, 0.0, 1.0))
    first, measured = -slopes[h], loss_of(without) - loss_of(out)
    square = 0.5 * (shares[:, h] ** 2).mean()
    numbers = (first, measured, measured - first, square)
    rows.append([str(h), *(f"{number:.4f}" for number in numbers)])
titles = ["head", "first order", "measured", "difference", "half the share's mean square"]
Table("How the loss changes when a head is switched off", titles, rows)

# %% [markdown]
# The difference is the second-order term, here in closed form: half the mean square of the head's
# share. It is never negative, so this estimate is always too low, by the more the louder the head.
# Removing head 0 costs by far the most, and its slope is the smallest of the three: that head is near
# its best volume, where the curve is flat. **A small gradient does not mean a useless head.**
#
# Removing head 2 helps a little, though half of it was wanted: that makes up for some of head 1's
# harm. So a head's importance depends on which other heads are there. (In the literature it is often
# the mean *absolute* slope over samples: Michel et al. 2019, section 4.1. The exercise of notebook 23
# derives the slope.)
#
# ## Heads of a trained model
#
# So far all params were random. Nobody assigns roles: a head becomes what the training loss makes of it. Here is a
# small model of two attention layers with four heads each. `mha-numpy train induction` trained it to continue
# sequences in which parts come back; its params ship with the package. It reads a b c d a b c: what should follow?

# %%
trained = load_trained("induction")
letters = list("abcdabc")
ids = np.array([[5, 9, 2, 7, 5, 9, 2]])  # any seven of its 32 tokens, the first three twice
letters[ids[0].tolist().index(trained.model(ids)[0, -1].argmax())]

# %%
first, second = (attention.weights for attention in trained.model.attentions)
by = "Trained: mha-numpy train induction, seed 0."
weights_by_head(first, letters, visible=causal_mask(7), note=by)

# %%
weights_by_head(second, letters, visible=causal_mask(7), note=by)

# %% [markdown]
# On this task, in this seed, head 0 of the first layer looks at the token before. In the second layer all four heads
# do one thing together: the second b looks at the c that followed the first b, and the second c at the d. Notebook 18
# shows how they came about.
#
# > **Predict first.** One head of the second layer is switched off, then all of them one after the other. When does
# > the model stop copying?

# %%
(held_out,), targets = trained.task.draw_batch(np.random.default_rng(1), 256)


def right_without(heads, layer):
    """The share of right answers while some heads of one layer are cut."""
    with cut_heads(trained.model.attentions[layer], heads):
        return f"{share_right(trained.model(held_out), targets):.1%}"


cuts = {f"head {h}": h for h in range(4)}
cuts |= {f"heads 0 to {last}": range(last + 1) for last in (1, 2, 3)}
rows = [[name, *(right_without(heads, layer) for layer in (0, 1))] for name, heads in cuts.items()]
Table("Right answers without some heads of one layer", ["cut", "layer 0", "layer 1"], rows)

# %% [markdown]
# In the first layer one head does its job alone: without it the model copies no better than it guesses. In the second,
# four heads share one job: any one of them can go, even three, for the last does it too. So "this head can be cut" does
# not say "this job is not needed". Published cuts are of this kind: Voita et al. 2019 removed 38 of 48
# encoder heads of a translation model for 0.15 BLEU, and Michel et al. 2019 found cross-attention harder to prune.
#
# # Four cautions.
#
# - In large models most heads fit no name, and at least nine in ten of GPT-2's heads do several things (Kissane et
#   al. 2024). Names that people gave come from Clark et al. 2019 and Voita et al. 2019: positional heads (the
#   token before or after), delimiter heads (stops and commas), syntactic heads (a verb's object), coreference heads,
#   heads for rare tokens. "Semantic" is the loosest name: little is measured head by head.
# - **Weights are not explanations.** They say where a head looked, not what it took from there
#   (that is $v$) nor what becomes of it: $w_o$ mixes the heads, the residual path carries the token
#   around them, later layers change it again (Jain and Wallace 2019; for a defence with limits,
#   Wiegreffe and Pinter 2019).
# - That a head can be removed *after* training does not show that training did not need it.
#
# ## Why split the width?
#
# H heads of full width D would cost H times as much. With $d_h = D / H$ the total stays:
#
# > **Predict first.** D = 768, 1024 tokens, from 1 head to 24. How do the params change, the
# > multiply-adds of $q k^\top$, the number of weights?

# %%
width, length = 768, 1024  # D, T
rows = []
for n in (1, 12, 24):
    size = MultiHeadAttention(width, n).num_parameters
    numbers = (n, width // n, size, n * length**2 * (width // n), n * length**2)
    rows.append([f"{number:,}" for number in numbers])
Table("", ["H", "d_h", "params", "multiply-adds of q k^T", "weights"], rows)

# %% [markdown]
# Params and products are the same: $4D^2 + 4D$ and $H \cdot T^2 \cdot d_h = T^2 D$. The weights grow
# with H, and so do their memory and the exponentials of softmax. So "many heads cost nothing" is half
# true, and so is "many heads cost more".
#
# The other price is width: scores of a head are a product of $d_h$ columns, so of rank $d_h$ at most,
# and a narrow head cannot form every pattern (Bhojanapalli et al. 2020). In table 3 of Vaswani et
# al. 2017, one head was 0.9 BLEU worse than the best, and 32 were also worse than 8. Notebook 21
# measures all this, and shows how many heads known models have.
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
    {name: reacts(f, x4) for name, f in operations.items()},
    title="What reacts to token 2's feature 1? Rows are tokens, columns features",
    meaning=("reacts", "stays"),
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
# `softmax_forward`, or plain NumPy). Biases are there, $d_k$ need not be $d_v$, and neither H·$d_k$ nor
# H·$d_v$ need be D. New is the mask (notebook 08): one for all sequences and heads, and in the check
# a causal one. So before it compares numbers, the check changes the last token: no output before
# it may move.
#
# More of this kind in `mha-numpy exercises`: `museum-merge`, a bug that shipped, and
# `head-importance`, for "How much does a head matter?".


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
# - A head has one row of weights for each token and returns one mean, in which roles can no longer
#   be told apart. H heads have H, each in its own columns.
# - [B, T, D] → [B, T, H, d_h] → [B, H, T, d_h] → [B, H, T, T] → [B, H, T, d_h] → [B, T, H, d_h] →
#   [B, T, D].
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
# Explanation*.
#
# **Next:** [06, cross-attention](14_cross-attention.ipynb).
