# %% [markdown]
# # 15 · Cross-attention
#
# A small model reads English number words and writes German ones. German says the units before the tens, so the words
# cross. (It was trained with `mha-numpy train numbers`.) Here are the two heads with which its German side looks at the
# English words of 345:

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    MultiHeadAttention,
    attention_forward,
    compare,
    gradcheck,
    padding_mask,
    split_heads,
    trace,
)
from mha_numpy.models.train import load_trained
from mha_numpy.models.train.tasks import GERMAN
from mha_numpy.show.pictures import (
    matrices,
    shape_film,
    weights_by_head,
    weights_over_picture,
)

# %%
trained = load_trained("numbers")
(source, target), answers = trained.task.batch_of([345])
trained.model(source, target)
learned = trained.model.decoder[0].cross_attention.layer.weights
written = trained.task.words(answers[0], GERMAN)
read = trained.task.words(source[0])
note = "Trained: mha-numpy train numbers, seed 0."
weights_by_head(learned, written, read, note=note)

# %% [markdown]
# The rows are German and the columns English: two different sequences. The step that writes *fünf* looks at "five", and
# the step that writes *vierzig* looks back at "forty". No one told the model which word belongs to which; it learned
# this *alignment* in training. (This is one task and one seed. Koehn and Knowles 2017 found weights that are no
# alignment.)
#
# **By the end you can** let one sequence ask another, choose its masks, and say which gradient belongs
# to which sequence.
#
# ## One asks, the other answers
#
# Nothing in a head requires queries and keys to come from the same tokens. The *target* y has T_y tokens of width D;
# the *source* x has T_x tokens of width kdim (often D as well).
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
# Here is an example made by hand, with nothing trained. "The tired animal crossed the street" has six
# words with five features each. In French it's "L'animal fatigué a traversé la rue": seven words with six features, in
# a different order. ("a" is a helping word that marks the past.)

# %%
english = ["The", "tired", "animal", "crossed", "the", "street"]
concepts = ["article", "fatigue", "creature", "crossing", "road"]
x = np.eye(5)[[0, 1, 2, 3, 0, 4]]  # (T_x, kdim)
french = ["L'", "animal", "fatigué", "a", "traversé", "la", "rue"]
notions = "route traversée être fatigue article passé".split()
y = np.eye(6)[[4, 2, 3, 5, 1, 4, 0]]  # (T_y, D)
labels = {"row_labels": english, "column_labels": concepts}
display(matrices({"source x": x}, **labels))
matrices({"target y": y}, row_labels=french, column_labels=notions)

# %% [markdown]
# You can't compare six numbers with five. **The projections bring both into one space**, d_k wide, where a dot product
# makes sense. Here that space is the five English concepts: `w_k` and `w_v` leave the source as it is, and `w_q` is a
# small dictionary.
#
# > **Predict first.** French puts this adjective after its noun. What will the weights look like there? And where does
# > the weight of "la" go?

# %%
# (D, d_k); the helping word asks for the verb; 8: sharp weights
w_q = 8 * np.eye(5)[[4, 3, 2, 1, 0, 3]]
w_k, w_v = np.eye(5), np.eye(5)
q, k, v = y @ w_q, x @ w_k, x @ w_v
out, cache = attention_forward(q, k, v)
weights, note = cache.weights[None], "Made by hand."  # one head
display(weights_by_head(weights, french, english, note=note))
matrices({"out": out}, row_labels=french, column_labels=concepts)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The rows "animal" and "fatigué" form a cross, because noun and adjective trade places. "la" puts .47 on each of the
# two articles. They fit it equally well, because the head has no positions.
#
# </details>
#
# The output has a row for each *French* word, in features of the *English* ones, because each row is a mean of source
# values and nothing else.
#
# ## What moves what
#
# > **Predict first.** We change one target token, then one source token. Which rows of the output change? And which
# > change if you take keys and values from `y` by mistake?


# %%
def reactions(attend, x):
    """(outputs, tokens) bools: which output reacts to which?"""
    changes = np.eye(len(x))[:, :, None]  # one token at a time
    reacts = [attend(x + c) != attend(x) for c in changes]
    return np.any(reacts, axis=-1).T


rng = np.random.default_rng(0)
any_q, any_k = rng.normal(size=(6, 5)), rng.normal(size=(5, 5))
any_v = rng.normal(size=(5, 3))


def cross(y, x):
    return attention_forward(y @ any_q, x @ any_k, x @ any_v)[0]


seen = {
    "to target tokens": reactions(lambda y: cross(y, x), y),
    "to source tokens": reactions(lambda x: cross(y, x), x),
    "k, v from y": reactions(lambda x: cross(y, y[:, :5]), x),
}
matrices(seen, row_labels=french, meaning=("reacts", "stays"))

# %% [markdown]
# <details><summary>Answer</summary>
#
# A target token changes only its own row, because target tokens don't meet here. A source token changes every row. With
# the mistake, no row reacts to the source at all, and if both widths are equal, no shape complains.
#
# </details>
#
# ## Masks: padding, and no causal mask
#
# Now a batch of two. The second sentence, "The animal crossed", is short, so we fill it up with zeros to six tokens.
# The mask hides these source *keys*. So its shape is (B, 1, 1, T_x), and we build it from the lengths of the
# **source**.
#
# > **Predict first.** A padding token has the key 0. Without a mask, is its weight 0?

# %%
x_batch, y_batch = np.stack([x, 0 * x]), np.stack([y, 0 * y])
x_batch[1, :3], y_batch[1, :4] = x[[0, 2, 3]], y[[0, 1, 3, 4]]
source_mask = padding_mask(np.array([6, 3]), 6)  # (2, 1, 1, 6)
q, k, v = y_batch @ w_q, x_batch @ w_k, x_batch @ w_v
one_head = q[:, None], k[:, None], v[:, None]  # H = 1
_, without = attention_forward(*one_head)
_, masked = attention_forward(*one_head, mask=source_mask)
both = np.stack([without.weights[1, 0], masked.weights[1, 0]])
rows = "L' animal a traversé (pad) (pad) (pad)".split()
columns = "The animal crossed (pad) (pad) (pad)".split()
options = {"head_names": ["no mask", "mask"], "heads": [0, 0]}
options["visible"] = np.array([[[True] * 6], source_mask[1, 0]])
weights_by_head(both, rows, columns, **options)

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. A score of 0 is an ordinary score, and softmax gives it a share.
#
# </details>
#
# The rows "(pad)" are padding of the *target*. They need no mask here, because the loss leaves them out.
#
# A causal mask keeps a decoder, the part that writes, from reading the words that it should *write*. But the source is
# complete before the first word is written, so there is nothing to hide.
#
# > **Predict first.** Suppose you set `is_causal=True` all the same, so row i sees columns 0 to i. Which French word
# > loses its partner?

# %%
q, k, v = y @ w_q, x @ w_k, x @ w_v
_, cut = attention_forward(q, k, v, is_causal=True)
visible = np.tril(np.ones((1, 7, 6), dtype=bool))
weights_by_head(cut.weights[None], french, english, visible=visible)

# %% [markdown]
# <details><summary>Answer</summary>
#
# "animal" does: it's at place 1 in French and at place 2 in English. Its row still sums to 1, so nothing looks
# broken.
#
# </details>
#
# ## The layer
#
# `MultiHeadAttention` takes the query first, then the key; the value defaults to the key. Only `w_k` and `w_v` have the
# width of the source. (The params are random.) The film shows one sequence: seven rows on the query's side, six on the
# key's side, and 7 by 6 where they meet.

# %%
layer = MultiHeadAttention(8, num_heads=2, kdim=5, rng=0)
y, x = rng.normal(size=(2, 7, 8)), rng.normal(size=(2, 6, 5))
d_out = rng.normal(size=(2, 7, 8))
with trace() as t:
    layer(y, x, mask=source_mask)
print({name: array.shape for name, array in layer.params.items()})
shape_film(t, sequence=1)

# %% [markdown]
# Key and value can even be two different sources of the same length. Then `vdim` is the width of the second.
#
# ## Which gradient belongs to which sequence
#
# We use the target once, as query, but the source twice, as key and as value. So the chain rule adds both: $\bar x =
# \bar x_k + \bar x_v$. Here sequence 1 has three tokens and three of padding.
#
# > **Predict first.** `layer.backward` returns (d_query, d_key, d_value). After `layer(y, x, x)`, which of them is the
# > gradient of x? And what is it where x is padding?

# %%
layer(y, x, x, mask=source_mask)
_, d_key, d_value = layer.backward(d_out)
layer(y, x, mask=source_mask)
d_y, d_x, nothing = layer.backward(d_out)
gap = np.abs(d_key + d_value - d_x).max()
print("d_key + d_value differs from d_x by", gap)
print("d_value of layer(y, x):", nothing)
shares = {"d_key": d_key[1], "d_value": d_value[1]}
matrices(shares | {"their sum, d_x": d_x[1]})

# %% [markdown]
# <details><summary>Answer</summary>
#
# It's the **sum** of d_key and d_value. After `layer(y, x)` the layer has added them itself, and d_value is None. Where
# x is padding, no query has read it, so its gradient is exactly 0.
#
# </details>
#
# ## A decoder in two lines
#
# A decoder layer first lets the target tokens attend to each other, causally. Then each of them asks the source. Each
# result is *added* to what was there before. (A real one also has layer norm and a feed-forward part.)
#
# > **Predict first.** Which outputs react to which target tokens now? And to which source tokens?

# %%
self_attention = MultiHeadAttention(8, num_heads=2, rng=1)
cross_attention = MultiHeadAttention(8, num_heads=2, kdim=5, rng=2)


def decoder(y, x):
    y = y + self_attention(y, is_causal=True)
    return y + cross_attention(y, x, mask=source_mask[: len(y)])


def decode(y, x):  # one sequence
    return decoder(y[None], x[None])[0]


y_0, x_0 = y[0], x[0]
seen = {
    "to target tokens": reactions(lambda y: decode(y, x_0), y_0),
    "to source tokens": reactions(lambda x: decode(y_0, x), x_0),
}
matrices(seen, meaning=("reacts", "stays"))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The left panel is a triangle, and the right one is full. Cross-attention never mixes target tokens, so it needs no
# triangle.
#
# </details>
#
# The backward pass goes through the two lines in reverse. A sum passes its gradient on to both of its parts:


# %%
def decoder_backward(d_out, y, x):
    decoder(y, x)  # the layers keep what backward needs
    d_query, d_x, _ = cross_attention.backward(d_out)
    d_between = d_out + d_query  # y, and y as the query
    d_y, _, _ = self_attention.backward(d_between)
    return d_between + d_y, d_x


gradcheck(decoder, decoder_backward, {"y": y, "x": x})

# %% [markdown]
# A decoder writes word by word while the source stays the same. So we compute the source's keys and values **once**,
# and they serve every step. (A `KVCache` is something else: it grows with the target. The layer refuses it here.)

# %%
p, rows = cross_attention.params, []
# once: (B, H, T_x, 4)
k, v = (split_heads(x @ p[f"w_{n}"] + p[f"b_{n}"], 2) for n in "kv")
for i in range(7):  # step by step: one new query each
    q = split_heads(y[:, i : i + 1] @ p["w_q"] + p["b_q"], 2)
    rows.append(attention_forward(q, k, v, mask=source_mask)[0])
with trace() as whole:
    cross_attention(y, x, mask=source_mask)
compare(np.concatenate(rows, axis=2), whole["heads"], name="heads")

# %% [markdown]
# ## The source can be a picture
#
# Cut into 16 patches, a picture has 16 keys and values, and the caption so far asks. The model:
# `mha-numpy train captions`.
#
# > **Predict first.** Where does it look as it writes each word?

# %%
captioner = load_trained("captions")
model, task = captioner.model, captioner.task
scene = task.read("red square left of blue circle", rng=4)
said = model(*task.batch_of(scene).inputs)[0].argmax(axis=-1)
seen = model.decoder[0].cross_attention.layer.weights[0]
scenes = task.draw_scenes(np.random.default_rng(0), 600)
model(*task.batch_of(scenes).inputs)
layer = model.decoder[0].cross_attention.layer
objects = task.shares(scenes).swapaxes(1, 2)  # (600, 16, 2)
on = (layer.weights.mean(axis=1) @ objects).mean(axis=0)
print("on the first and second object, as it writes")
print("colour, shape (of the first), colour, shape:")
print(on[[0, 1, 3, 4]].T.round(2))
picture, written = task.pictures(scene)[0], task.words(said)
weights_over_picture(picture, seen, written)

# %% [markdown]
# <details><summary>Answer</summary>
#
# More at the object that it names than at the other: 43–50% against 9–22% in 600 scenes (four heads' average).
# Much goes to empty ground. As it writes "left of", it looks at the circle.
#
# </details>
#
# That isn't enough. In training no circle was red. What does it call one?

# %%
scene = task.read("red circle left of blue square", rng=4)
said = model(*task.batch_of(scene).inputs)[0].argmax(axis=-1)
print(*task.words(said))

# %% [markdown]
# ## In which order?
#
# | library | order of arguments |
# |---|---|
# | here; PyTorch, function and layer; JAX; ONNX | query, key, value |
# | Keras `MultiHeadAttention` | query, **value, key**; key defaults to value |
# | the layer of the classic TensorFlow tutorial | **v, k, q**, mask |
#
# > **Predict first.** Suppose you pass (query, key, value) to a layer with Keras' order, or with the tutorial's. Key
# > and value come from one source, and both sequences have the same length. What breaks?


# %%
def in_keras_order(query, value, key):
    return attention_forward(query, key, value)[0]


def in_tutorial_order(v, k, q):
    return attention_forward(q, k, v)[0]


y, x = rng.normal(size=(2, 5, 4))  # the same length and width
calls = {
    "Keras' order": in_keras_order(y, x, x),
    "the tutorial's": in_tutorial_order(y, x, x),
}
display(matrices({"right": attention_forward(y, x, x)[0]} | calls))
itself = attention_forward(x, x, y)[0]  # x asks x, values of y
compare(calls["the tutorial's"], itself, name="x asks itself")

# %% [markdown]
# <details><summary>Answer</summary>
#
# With Keras' order, nothing breaks as long as key and value are one array, but it will once they differ. With the
# tutorial's order, the source asks itself and mixes the target's values. Here only different lengths would raise an
# error.
#
# </details>
#
# ## Where it is used
#
# Translations and summaries ask an encoded text, and captions a picture. In question answering, classification and
# language models both sequences are the same.
#
# ## Exercise: cross-attention with heads
#
# Project, split, attend, merge, project. You may use `split_heads` and `attention_forward`. In one of the check's
# inputs, both sequences have the same length and the same width, so no shape tells you which of the two you took.
#
# To practise more, look in `mha-numpy exercises`: in `masked-attention`, queries and keys differ in number, and some
# keys are hidden.


# %% tags=["exercise"]
def my_cross_attention(y, x, params, num_heads):
    """y (B, T_y, D), which asks, and x (B, T_x, kdim), which is
    asked -> (B, T_y, D).

    params.w_q: (D, H*d_k); .w_k: (kdim, H*d_k); .w_v: (kdim,
    H*d_v); .w_o: (H*d_v, D); biases .b_q, .b_k, .b_v, .b_o. Nothing
    is hidden. Large scores must not overflow.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("cross-attention", my_cross_attention)

# %% tags=["hint"]
# hint("cross-attention")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now read the first picture: its rows are queries of the target, its columns keys of the source, and nothing is
# hidden.
#
# - Weights are T_y by T_x; the output has T_y rows, made of source values.
# - The projections bring two widths into one space.
# - The source gets a padding mask, (B, 1, 1, T_x), and no causal mask.
# - The source's gradient is d_key + d_value, and 0 where it is padding.
# - A decoder layer is causal self-attention, then cross-attention.
#
# **In the code:** `multi_head_attention_forward` and `_backward` in `mha_numpy/core/multihead.py` (`x_k`, `x_v`; step 0
# of backward). Derivation: docs/multi-head.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.3; Bahdanau et al. 2015, *Neural Machine
# Translation by Jointly Learning to Align and Translate*; Koehn and Knowles 2017, *Six Challenges for Neural Machine
# Translation*.
#
# **Next:** [16, grouped and multi-query attention](16_grouped-and-multi-query.ipynb).
