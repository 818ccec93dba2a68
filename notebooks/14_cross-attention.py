# %% [markdown]
# # 14 · Cross-attention
#
# So far every token asked tokens of its own sequence. Nothing in a head demands that. Let one sequence ask and
# another answer, and you have cross-attention: a translation looks into its source, a caption into an
# image. The lines of code stay the same; what changes is who owns which axis.
#
# **You will learn**
#
# - which of the arrays belong to the asking sequence, and which to the answering one;
# - how an alignment shows in a T_y by T_x picture, and what the output is made of;
# - why the source gets a padding mask and no causal mask;
# - which gradient goes to whom, and what happens to a source that serves as key *and* value;
# - how a decoder stacks self- and cross-attention, and what it computes only once;
# - the argument orders that libraries disagree about.
#
# Sizes: the target y has T_y tokens of width D, the source x has T_x tokens of width kdim (often D as well).

# %%
from importlib.util import find_spec

import numpy as np

from mha_numpy import (
    ConfigError,
    KVCache,
    MultiHeadAttention,
    MultiHeadParams,
    ShapeError,
    attention_forward,
    compare,
    gradcheck,
    linear_forward,
    multi_head_attention_backward,
    multi_head_attention_forward,
    padding_mask,
    split_heads,
    trace,
)
from mha_numpy.core import step
from mha_numpy.draw import matrices, shape_film, weights_by_head
from mha_numpy.exercises import check, hint
from mha_numpy.train import load_trained
from mha_numpy.train.tasks import GERMAN

np.set_printoptions(precision=3, suppress=True)

# %% [markdown]
# ## One asks, the other answers
#
# $$q = y\,w_q, \qquad k = x\,w_k, \qquad v = x\,w_v, \qquad
# \text{out} = \mathrm{softmax}\left(\frac{q\,k^\top}{\sqrt{d_k}}\right) v$$
#
# | | self-attention | cross-attention |
# |---|---|---|
# | queries from | the sequence | the target: T_y of them |
# | keys and values from | the same sequence | the source: T_x of each |
# | scores and weights | T by T | **T_y by T_x** |
# | output | T rows | **T_y rows** |
#
# In a translating transformer an *encoder* reads the source, a *decoder* writes the target. The decoder's vectors
# ask; the encoder's outputs are keys and values.
#
# Our toy translates "The tired animal crossed the street" to French. The words' vectors are made by hand, to be
# read, and nothing is trained. English words have five features.

# %%
english = ["The", "tired", "animal", "crossed", "the", "street"]
CONCEPTS = ["article", "fatigue", "creature", "crossing", "road"]
x = np.zeros((6, 5))  # (T_x, kdim)
x[range(6), [0, 1, 2, 3, 0, 4]] = 1  # one concept for each word
matrices({"source x": x}, row_labels=english, column_labels=CONCEPTS)

# %% [markdown]
# The French side has a width and an order of its own: six features. A decoder's row t stands for what it is about
# to write, so rows are named by that word. "a" is a helping word: it has no concept, it marks the past.

# %%
french = ["L'", "animal", "fatigué", "a", "traversé", "la", "rue"]
NOTIONS = ["route", "traversée", "être", "fatigue", "article", "passé"]
y = np.zeros((7, 6))  # (T_y, D)
y[range(7), [4, 2, 3, 5, 1, 4, 0]] = 1
matrices({"target y": y}, row_labels=french, column_labels=NOTIONS)

# %% [markdown]
# Six numbers cannot be compared with five. **The projections bring both into one space**, d_k wide, where a dot
# product makes sense. Here that space is the five concepts: `w_k` and `w_v` leave the source as it is, and `w_q` is
# a small dictionary. The helping word asks for the verb.

# %%
article, fatigue, creature, crossing, road = range(5)
w_q = np.zeros((6, 5))
w_q[range(6), [road, crossing, creature, fatigue, article, crossing]] = 8
w_k, w_v = np.eye(5), np.eye(5)

with trace() as t:
    step("y", y, "T_y D")
    step("x", x, "T_x kdim")
    q = step("q", y @ w_q, "T_y d_k", "y @ w_q")
    k = step("k", x @ w_k, "T_x d_k", "x @ w_k")
    v = step("v", x @ w_v, "T_x d_v", "x @ w_v")
    out, cache = attention_forward(q, k, v)
t

# %% [markdown]
# (The library calls the lengths T_q and T_k: queries and keys. Here these are T_y and T_x.)
#
# > **Predict first.** French puts this adjective behind its noun. What will the picture of the weights show there?
# > And whom does "la" look at?

# %%
weights_by_head(cache.weights[None], french, english)

# %% [markdown]
# An **alignment**: each row shows where the word comes from. The cross at "animal", "fatigué" is the exchange of
# noun and adjective. Two words, "a" and "traversé", share one source. And "la" cannot decide: two articles fit it
# equally, .47 each, for the head knows nothing of positions.
#
# The output has a row for each *French* word, in features of the *English* ones: a mean of source values, and of
# nothing else.

# %%
matrices({"out": out}, row_labels=french, column_labels=CONCEPTS)

# %% [markdown]
# Those vectors were made by hand. The next ones were learned: a translator of number words, trained by
# `mha-numpy train numbers`, whose params ship with the package. German writes the units before the tens, so its
# alignment has to cross as well. Rows are named by the word that each step writes.

# %%
trained = load_trained("numbers")
(source, target), answers = trained.task.batch_of([345])
trained.model(source, target)
learned = trained.model.decoder[0].cross_attention.layer.weights
written, read = trained.task.words(answers[0], GERMAN), trained.task.words(source[0])
weights_by_head(learned, written, read, note="Trained: mha-numpy train numbers, seed 0.")

# %% [markdown]
# On this task, in this seed, the step that writes *fünf* looks at "five" and the step that writes *vierzig* at
# "forty": nobody told it so. But weights need not be an alignment (Koehn and Knowles 2017 found some that diverge
# from it), and notebook 02 shows what weights do not tell. Notebook 19 trains this model.
#
# ## What moves what
#
# > **Predict first.** Change one target token. Which rows of the output react? Change one source token. Which rows
# > now?


# %%
def reactions(attend, x):
    """(rows of the output, tokens of x) bools: whether the row reacts to the token."""
    changes = np.eye(len(x))[:, :, None]  # (changed token, token, 1)
    reacts = [(attend(x + c) != attend(x)).any(axis=-1) for c in changes]
    return np.stack(reacts, axis=1)


rng = np.random.default_rng(0)
any_q, any_k, any_v = rng.normal(size=(6, 5)), rng.normal(size=(5, 5)), rng.normal(size=(5, 3))


def cross(y, x):
    return attention_forward(y @ any_q, x @ any_k, x @ any_v)[0]


by_target, by_source = reactions(lambda y: cross(y, x), y), reactions(lambda x: cross(y, x), x)
seen = {"to target tokens": by_target, "to source tokens": by_source}
matrices(seen, row_labels=french, meaning=("reacts", "stays"))

# %% [markdown]
# Target tokens do not meet here: each row of the output depends on its own query alone. Every row depends on the
# whole source.
#
# That is also the test for a typical mistake: keys and values taken from the wrong array. Then the output does not
# react to the source at all. With equal widths nothing complains:

# %%
square = rng.normal(size=(3, 6, 6))  # w_q, w_k, w_v, all 6 wide


def forgets_its_source(y, x):
    w_q, w_k, w_v = square
    return attention_forward(y @ w_q, y @ w_k, y @ w_v)[0]  # y, y, y


wide_x = rng.normal(size=(6, 6))
print("reacts to its source:", reactions(lambda x: forgets_its_source(y, x), wide_x).any())

# %% [markdown]
# The order of the source does not matter either, as long as keys and values keep together. A source is a bag:

# %%
order = rng.permutation(len(x))
np.allclose(cross(y, x[order]), cross(y, x))

# %% [markdown]
# ## A batch with sources of two lengths
#
# The second pair is short, "The animal crossed" and "L'animal a traversé". Both sides are filled with zeros to the
# longest.
#
# > **Predict first.** A filled source token has the key 0. Without a mask, is its weight 0?

# %%
x_batch, y_batch = np.zeros((2, 6, 5)), np.zeros((2, 7, 6))
x_batch[0], y_batch[0] = x, y
x_batch[1, :3], y_batch[1, :4] = x[[0, 2, 3]], y[[0, 1, 3, 4]]
q, k, v = (y_batch @ w_q)[:, None], (x_batch @ w_k)[:, None], (x_batch @ w_v)[:, None]  # H = 1
_, open_cache = attention_forward(q, k, v)
open_cache.weights[1, 0, :, 3:].sum(axis=-1)  # sequence 1: weight on padding, for each query

# %% [markdown]
# No: a score of 0 is an ordinary score. The mask hides source *keys*, so its shape is (B, 1, 1, T_x), made of the
# lengths of the **source**:

# %%
source_mask = padding_mask(np.array([6, 3]), 6)
out_batch, cache = attention_forward(q, k, v, mask=source_mask)
rows = ["L'", "animal", "a", "traversé", "(pad)", "(pad)", "(pad)"]
columns = ["The", "animal", "crossed", "(pad)", "(pad)", "(pad)"]
weights_by_head(cache.weights[1], rows, columns, visible=source_mask[1])  # sequence 1

# %% [markdown]
# The three rows "(pad)" are filled *targets*. They ask, and get something; nobody reads it, and the loss leaves it out.
# They need no mask here. What counts: the four real rows are those of the short pair alone.

# %%
alone, _ = attention_forward(q[1:, :, :4], k[1:, :, :3], v[1:, :, :3])
compare(out_batch[1:, :, :4], alone, name="the short pair")

# %% [markdown]
# ## No causal mask on the source
#
# A causal mask keeps a decoder from reading the words that it should *write*. The source is there, whole, before
# the first word is written. There is nothing to hide, and "key j is later than query i" has no meaning across two
# sequences.
#
# > **Predict first.** Somebody sets `is_causal=True` all the same. Row i then sees columns 0 to i. Which
# > French word loses its partner?

# %%
_, cut = attention_forward(y @ w_q, x @ w_k, x @ w_v, is_causal=True)
visible = np.tril(np.ones((7, 6), dtype=bool))
weights_by_head(cut.weights[None], french, english, visible=visible[None])

# %% [markdown]
# "animal" stands at place 1 in French and at place 2 in English: hidden. The row sums to 1 as always, so nothing
# looks broken; the weight has merely gone elsewhere.
#
# ## The layer
#
# `MultiHeadAttention` does it with many heads: query first, then key. The value defaults to the key. Shapes:
#
# $$[B, T_y, D],\ [B, T_x, \text{kdim}] \;\to\; [B, T_y, D]$$

# %%
B, T_y, T_x, D, kdim = 2, 7, 6, 8, 5
layer = MultiHeadAttention(D, num_heads=2, kdim=kdim)
y, x, d_out = (rng.normal(size=(B, T, width)) for T, width in ((T_y, D), (T_x, kdim), (T_y, D)))
with trace() as t:
    out = layer(y, x, mask=source_mask)
    d_y, d_x, _ = layer.backward(d_out)
{name: array.shape for name, array in layer.params.items()}, out.shape

# %% [markdown]
# Only `w_k` and `w_v` know the width of the source. The film shows sequence 1: seven rows on the query side (steps
# 1 and 4 to 6), six on the key side (2, 3 and 7 to 12), 7 by 6 where both meet (13 to 15), and seven from there on.

# %%
shape_film(t, sequence=1)

# %% [markdown]
# Key and value may even be two different sources, as long as they are equally long: `vdim`.

# %%
three = MultiHeadAttention(D, num_heads=2, kdim=5, vdim=3)
three(y, x, rng.normal(size=(B, T_x, 3))).shape, three.params["w_v"].shape

# %% [markdown]
# ## Which gradient goes to whom
#
# The target is used once, as query input. The source is used twice, as key input and as value input, so the chain
# rule adds both: $\bar x = \bar x_k + \bar x_v$ (derivation: docs/multi-head.md, "Three branches").
#
# > **Predict first.** The layer returns (d_query, d_key, d_value). Which is None after `layer(y, x)`? And after
# > `layer(y, x, x)`, which of the three is *the* gradient of x?

# %%
layer(y, x)
d_y, d_x, nothing = layer.backward(d_out)
layer(y, x, x)
d_y_again, d_key, d_value = layer.backward(d_out)
print("d_value of layer(y, x):", nothing)
compare({"d_y": d_y_again, "d_x": d_key + d_value}, {"d_y": d_y, "d_x": d_x})

# %% [markdown]
# None of them: `d_key` and `d_value` are shares, and x gets their **sum**. What was not passed has None, and its
# share is in what it defaulted to. Take `d_key` alone, and no error tells you how much is missing. Cell by cell, for
# sequence 0:

# %%
matrices({"d_key[0]": d_key[0], "d_value[0]": d_value[0], "their sum, d_x[0]": d_x[0]})

# %% [markdown]
# Every row of `d_x` is a sum over all seven queries, since every query has read it. A source token that is padding
# was read by nobody, so its gradient is exactly 0:

# %%
layer(y, x, mask=source_mask)
_, d_x_masked, _ = layer.backward(d_out)
matrices({"d_x, sequence 0": d_x_masked[0], "d_x, sequence 1": d_x_masked[1]})

# %% [markdown]
# And all of it against numeric derivatives, inputs and params:

# %%
params = MultiHeadParams(**layer.params)


def forward(x_q, x_k, params):
    return multi_head_attention_forward(x_q, x_k, params=params, num_heads=2, mask=source_mask)


gradcheck(forward, multi_head_attention_backward, {"x_q": y, "x_k": x, "params": params})

# %% [markdown]
# ## A decoder in two lines
#
# A decoder layer first lets the target tokens talk to each other, causally; then each asks the source. Each result
# is *added* to what was there. (A real one has layer norm and a feed-forward part besides.)

# %%
self_attention = MultiHeadAttention(D, num_heads=2, rng=1)
cross_attention = MultiHeadAttention(D, num_heads=2, kdim=kdim, rng=2)


def decoder(y, x):
    y = y + self_attention(y, is_causal=True)
    return y + cross_attention(y, x, mask=source_mask[: len(y)])


decoder(y, x).shape

# %% [markdown]
# > **Predict first.** Which outputs react to which target tokens now? And to which source tokens?

# %%
matrices(
    {
        "to target tokens": reactions(lambda y_0: decoder(y_0[None], x[:1])[0], y[0]),
        "to source tokens": reactions(lambda x_0: decoder(y[:1], x_0[None])[0], x[0]),
    },
    meaning=("reacts", "stays"),
)

# %% [markdown]
# Causal in the left panel, open in the right one. The triangle comes from self-attention; cross-attention never mixes target
# tokens, so it needs no triangle to keep the promise.
#
# Backward goes through the two lines in reverse. A sum hands its gradient to both of its parts:


# %%
def decoder_backward(d_out, y, x):
    decoder(y, x)  # the layers keep what backward needs
    d_query, d_x, _ = cross_attention.backward(d_out)
    d_between = d_out + d_query  # y, and y as the query
    d_y, _, _ = self_attention.backward(d_between)
    return d_between + d_y, d_x


gradcheck(decoder, decoder_backward, {"y": y, "x": x})

# %% [markdown]
# ## The source's keys and values are computed once
#
# A decoder writes word by word. Its own keys grow by one each step. Those of the source do not depend on the target
# at all: the same k and v serve every step.

# %%
p = cross_attention.params
k = split_heads(linear_forward(x, p["w_k"], p["b_k"])[0], 2)  # once: (B, H, T_x, d_k)
v = split_heads(linear_forward(x, p["w_v"], p["b_v"])[0], 2)
rows = []
for i in range(T_y):  # step by step: one new query each
    q = split_heads(linear_forward(y[:, i : i + 1], p["w_q"], p["b_q"])[0], 2)
    rows.append(attention_forward(q, k, v, mask=source_mask)[0])
with trace() as whole:
    cross_attention(y, x, mask=source_mask)
compare(np.concatenate(rows, axis=2), whole["heads"], name="heads")

# %% [markdown]
# Projecting the source anew at each of the T_y steps would cost T_y times as much. Note that a `KVCache` is something
# else: it grows with the *target*, for self-attention. The layer says so:

# %%
try:
    cross_attention(y[:, :1], x, kv_cache=KVCache())
except ConfigError as error:
    print(error)

# %% [markdown]
# ## In which order?
#
# | who | order of arguments |
# |---|---|
# | here; PyTorch, function and layer; JAX; ONNX | query, key, value |
# | Keras `MultiHeadAttention` | query, **value, key**; key defaults to value |
# | the layer of the classic TensorFlow tutorial | **v, k, q**, mask |
#
# In PyTorch a call is `mha(target, source, source)`, and in Keras `mha(target, source)`.
#
# > **Predict first.** Here is our layer with its arguments in Keras' order. Somebody who comes from PyTorch calls
# > it with (query, key, value), one source for both. What breaks?


# %%
def in_keras_order(query, value, key):
    return layer(query, key, value)


np.array_equal(in_keras_order(y, x, x), layer(y, x, x))

# %% [markdown]
# Nothing, and so nobody notices: key and value are one array. It breaks on the day that they differ, say when
# positions are added to the keys alone. The shapes still fit:

# %%
x_key = x + rng.normal(size=x.shape)
compare(in_keras_order(y, x_key, x), layer(y, x_key, x), name="out")

# %% [markdown]
# The tutorial's order is worse. Call a layer that takes (v, k, q) with (q, k, v), and the source asks while the
# target hands over its values.
#
# > **Predict first.** When does an error save you: with sequences of different length, or of the same?


# %%
def tutorial_call(v, k, q):
    return attention_forward(q, k, v)[0]


source = rng.normal(size=(6, 4))
for length in (7, 6):
    target = rng.normal(size=(length, 4))
    try:
        same = np.allclose(
            tutorial_call(target, source, source), tutorial_call(source, source, target)
        )
        print(f"target of {length}: no error; same as the right call: {same}")
    except ShapeError as error:
        print(f"target of {length}: {error}")

# %% [markdown]
# And PyTorch's layer beside ours, with the same params. Two of its habits to know: `key_padding_mask` has True for
# **blocked**, and the weights that it returns are, by default, the **mean over the heads**, (B, T_y, T_x).

# %% tags=["needs-torch"]
if find_spec("torch") is None:
    print("PyTorch is not installed here: pip install torch")
else:
    import torch

    options = {"kdim": kdim, "vdim": kdim, "bias": False, "dtype": torch.float64}
    mha = torch.nn.MultiheadAttention(D, 2, batch_first=True, **options)
    theirs = [mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight, mha.out_proj.weight]
    w = [matrix.detach().numpy().T for matrix in theirs]  # theirs are (outputs, inputs)
    same = MultiHeadParams(w[0], None, w[1], None, w[2], None, w[3], None)
    target, source = torch.tensor(y), torch.tensor(x)
    blocked = torch.tensor(~source_mask[:, 0, 0])
    found = [a.detach().numpy() for a in mha(target, source, source, key_padding_mask=blocked)]
    ours, cache = forward(y, x, same)
    display(compare(found, {"out": ours, "weights": cache.attention.weights.mean(axis=1)}))

# %% [markdown]
# ## Where it is used
#
# The same operator everywhere; what changes is who asks, who answers, and what is hidden.
#
# | task | who asks | who answers | hidden |
# |---|---|---|---|
# | translation, summaries (decoder) | the text so far | the encoded source | padding of the source |
# | question answering, with an encoder | question and passage | both | padding |
# | sentiment, classification | the text, or its [CLS] token | the text | padding |
# | captions | the caption so far | regions of the image | nothing |
# | language models | the text | the text | the future |
#
# Only the first and the fourth are cross-attention. Self-attention is the case where both are one.

# %% [markdown]
# ## Exercise: cross-attention with heads
#
# Project, split, attend, merge, project. Use `split_heads` and `attention_forward`, or write it all yourself; every
# head takes its block of columns. In one of the check's inputs both sequences have one length and one width: there no
# shape tells which of the two you took. Before it compares numbers, the check turns the source's tokens around:
# their order may not matter.
#
# More of this kind in `mha-numpy exercises`: `masked-attention`, where queries and keys differ in number, and some keys
# are hidden.


# %% tags=["exercise"]
def my_cross_attention(y, x, params, num_heads):
    """y (B, T_y, D), which asks, and x (B, T_x, kdim), which is asked -> (B, T_y, D).

    params.w_q: (D, H*d_k); .w_k: (kdim, H*d_k); .w_v: (kdim, H*d_v); .w_o: (H*d_v, D); biases
    .b_q, .b_k, .b_v, .b_o. Nothing is hidden. Large scores must not overflow.
    """
    ...  # your code


# %% tags=["check"]
check("cross-attention", my_cross_attention)

# %% tags=["hint"]
# hint("cross-attention")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - Queries come from the target, keys and values from the source: weights are T_y by T_x, the output has T_y rows,
#   made of source values.
# - The projections bring two widths into one space, where dot products make sense.
# - The source gets a padding mask, (B, 1, 1, T_x), and no causal mask. Filled target rows are left out of the loss.
# - The source is key and value input at once: its gradient is d_key + d_value, and 0 where it is padding.
# - A decoder layer is causal self-attention, then cross-attention. The source's keys and values are computed once.
# - Orders differ: here (query, key, value), in Keras (query, value, key). With one source for both it does not show.
#
# **In the code:** `multi_head_attention_forward` and `_backward` in `mha_numpy/core/multihead.py` (`x_k`, `x_v`;
# step 0 of backward); `MultiHeadAttention` in `mha_numpy/nn/attention.py`.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.3 (encoder-decoder attention);
# Bahdanau et al. 2015, *Neural Machine Translation by Jointly Learning to Align and Translate*, section 5.2.1
# (alignments); Koehn and Knowles 2017, *Six Challenges for Neural Machine Translation*.
#
# **Next:** [07, softmax backward](11_softmax-backward.ipynb).
