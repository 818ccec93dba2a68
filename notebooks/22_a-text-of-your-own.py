# %% [markdown]
# # 22 · A language model on a text of your own
#
# This model was **trained** on a few chapters of *Moby-Dick* for a few minutes. It reads "The captain " and goes on
# writing, one character after another:

# %% tags=["hide-input"]
import numpy as np

from mha_numpy.models import generate
from mha_numpy.models.train import load_trained

# %%
model, task = (loaded := load_trained("text")).model, loaded.task


def write(model, beginning, steps=160, rng=0, **options):
    ids = generate(
        model,
        task.encode(beginning)[None],
        steps,
        rng=rng,
        **options,
    )
    return task.decode(ids[0]).replace("\n", "↵")


write(model, "The captain ", temperature=0.7)

# %% [markdown]
# It looks like English, and some of it is. How good is that, and would a simple table of counts do as well? A language
# model predicts what comes next. Ours predicts the next *character*, so any text will do: a chapter, your letters, a
# program. We start by counting, which is the simplest model of all, and then ask what attention adds.
#
# **What you can do afterwards:** you can train a small language model on a file of yours, say how good it is by its
# loss next to that of simple counts, and write its training loop.
#
# ## Characters
#
# Each character that occurs in the text gets a number. The last tenth of the text is held out, and whenever we say
# below how good a model is, we measured it there, on sentences that no model has read.

# %%
V = len(task.vocabulary)
print(
    f"{len(task.trained_on):,} characters to train on, "
    f"{len(task.held_out):,} held out, {V} different ones"
)
print("".join(task.vocabulary).replace("\n", "↵"))
print(task.decode(task.held_out[:200]))

# %% [markdown]
# ## Counting
#
# How often does *h* follow *t*? Count all pairs, divide each row by its sum, and you have a model, a *bigram* table. It
# takes two lines. (The counts begin at 1/10, so that an unseen pair isn't impossible.)

# %%
from mha_numpy.show.pictures import (
    bar_chart,
    line_chart,
    matrices,
    weights_by_head,
)

counts = np.full((V, V), 0.1)
np.add.at(counts, (task.trained_on[:-1], task.trained_on[1:]), 1)
bigram = counts / counts.sum(axis=1, keepdims=True)
shown = task.encode(" ehnorstuqQ")
names = [repr(task.vocabulary[i]) for i in shown]
matrices(
    {"p(column follows row)": bigram[np.ix_(shown, shown)]},
    row_labels=names,
    column_labels=names,
)

# %% [markdown]
# After *q* comes *u*, and the table is sure of it. After a blank it knows little, because it can't see the word
# before.
#
# The loss of a guess is $-\log p$ of the character that really came, in nats; smaller is better. We compare its mean
# over the held-out text.
#
# > **Predict first.** There are 74 different characters. What is the loss of a model that finds them all equally
# > likely? And how many nats will counting save?
#
# <details><summary>Answer</summary>
#
# $\log 74 = 4.30$. Counting characters saves 1.2 nats, and counting pairs saves 0.6 more.
# </details>

# %%
alone = counts.sum(axis=0) / counts.sum()
read, came = task.held_out[:-1], task.held_out[1:]
losses = {
    "all alike": np.log(V),
    "counts of characters": -np.log(alone[came]).mean(),
    "counts of pairs": -np.log(bigram[read, came]).mean(),
}
bar_chart(
    losses, title="Loss on held-out text", unit="nats per character"
)

# %% [markdown]
# ## Sixty steps of a transformer
#
# The model has two decoder blocks with four heads each, and it reads at most 64 characters. From random params we take
# 60 steps, in about 8 seconds, and draw the loss next to that of the pairs.

# %%
from mha_numpy.models.train import train_recipe

young = train_recipe(
    "text",
    backend="numpy",
    steps=60,
    measure_every=60,
    progress=False,
)
print(f"{young.model.num_parameters:,} params")
found = np.reshape(young.history.losses, (-1, 3)).mean(axis=1)
lines = {
    "transformer": found,
    "counts of pairs": np.full(20, losses["counts of pairs"]),
}
title = "The loss of 60 steps, mean of 3"
line_chart(
    np.arange(3, 61, 3),
    lines,
    title=title,
    x_label="steps",
    y_label="nats",
)

# %% [markdown]
# The loss quickly falls to the level that counting reaches, and slows down there, because to get below the line the
# model has to use more than one character. `mha-numpy train text` trained for longer; the shipped params come from
# there.

# %%
from mha_numpy.layers import cross_entropy_forward

(held_out,), targets = task.draw_held_out(
    np.random.default_rng(1), 64
)
(seen,), seen_targets = task.draw_batch(
    np.random.default_rng(1), 64
)


def loss_of(model, ids, targets):
    return float(cross_entropy_forward(model(ids), targets)[0])


losses["60 steps"] = loss_of(young.model, held_out, targets)
losses["shipped"] = loss_of(model, held_out, targets)
losses["shipped, on its training text"] = loss_of(
    model, seen, seen_targets
)
bar_chart(losses, title="Loss", unit="nats per character")

# %% [markdown]
# The shipped model is 0.6 nats below the counts of pairs; that is what attention adds here. The last two bars differ
# because the model knows its training text better than the rest of the book. That's why only held-out text counts.
#
# ## Where it is sure
#
# > **Predict first.** Where in a sentence is the next character easy to guess, and where is it hard?
#
# <details><summary>Answer</summary>
#
# Within a word, the model usually becomes more certain. At the first letter of a word it hesitates, because many words
# are possible there. The table of pairs sees only one character, so it can't become more certain.
# </details>

# %%
from mha_numpy.core import softmax_forward

sentence = "the captain spoke "
ids = task.encode(sentence)[None]
probs, _ = softmax_forward(model(ids))
of_next = np.take_along_axis(
    probs[:, :-1], ids[:, 1:, None], axis=-1
)[..., 0]
pair_probs = bigram[ids[0, :-1], ids[0, 1:]]
compared = np.stack([pair_probs, of_next[0]])
labels = list(sentence.replace(" ", "·")[1:])
matrices(
    {"p of what came, · is a blank": compared},
    row_labels=["pairs", "model"],
    column_labels=labels,
)

# %% [markdown]
# ## Writing
#
# To write, the program draws a character from the probabilities, appends it, and goes on. The **temperature** divides
# the logits before softmax. Below 1 the likely characters become even likelier; above 1 all probabilities move closer
# together. At 0 the likeliest character always wins.

# %%
logits = model(ids)[:, -1]
order = np.argsort(-logits[0])[:12]
temperatures = (0.5, 1.0, 2.0)
rows = np.concatenate(
    [softmax_forward(logits / t)[0][:, order] for t in temperatures]
)
labels = [repr(task.vocabulary[i]) for i in order]
names = [f"temperature {t}" for t in temperatures]
matrices(
    {"p, the 12 likeliest": rows},
    row_labels=names,
    column_labels=labels,
)

# %%
for temperature in (0, 0.5, 1, 2):
    print(
        f"temperature {temperature}: "
        f"{write(model, 'The captain ', temperature=temperature)}\n"
    )

# %% [markdown]
# At a low temperature the text repeats itself; at a high one it falls apart into letters. From one small text, the
# model has learned spelling and a little about which words follow which. It has not learned what a whale is.
#
# **Top-k** draws only from the k likeliest characters. **Top-p** draws from the likeliest ones that together reach
# probability p: a few where the model is sure, many where it isn't. Both cut off the long tail of unlikely characters.
# Without such a cut, one of them is drawn every now and then, and it spoils everything after it.
#
# > **Predict first.** How many characters does top-p 0.9 leave at the first letter of a word, and how many in the
# > middle of one?
#
# <details><summary>Answer</summary>
#
# At the first letters of the two words below, it leaves 21 and 14. Within a word it leaves fewer, and at the n of
# *captain* only one.
# </details>

# %%
sorted_probs = -np.sort(-probs[0], axis=-1)
before = sorted_probs.cumsum(axis=-1) - sorted_probs
kept = (before < 0.9).sum(axis=-1)[:-1]
title = "How many characters top-p 0.9 leaves"
matrices(
    {title: kept},
    column_labels=list(sentence.replace(" ", "·")[1:]),
)

# %%
print("top-k 5:  ", write(model, "The captain ", top_k=5), "\n")
print("top-p 0.9:", write(model, "The captain ", top_p=0.9), "\n")
print("60 steps: ", write(young.model, "The captain ", top_p=0.9))

# %% [markdown]
# ## What the heads look at

# %%
from mha_numpy import causal_mask

phrase = "the whale, the wha"
model(task.encode(phrase)[None])
layers = [block.attention.layer for block in model.blocks]
labels = list(phrase.replace(" ", "·"))
names = [f"head 0.{h}" for h in range(4)]
weights_by_head(
    layers[0].weights,
    labels,
    visible=causal_mask(len(phrase)),
    head_names=names,
)

# %%
names = [f"head 1.{h}" for h in range(4)]
weights_by_head(
    layers[1].weights,
    labels,
    visible=causal_mask(len(phrase)),
    head_names=names,
)

# %% [markdown]
# One phrase proves nothing. So we measure three things on held-out text: how much of each head's weight is on the
# character before, how much on the character that followed an earlier copy, and how much the loss rises if we cut the
# head by its mean.

# %%
from mha_numpy.models.analysis import (
    ablation_scores,
    attention_layers,
    head_patterns,
    mean_heads,
)

whole = loss_of(model, held_out, targets)
layers = attention_layers(model)
means = {name: mean_heads(layer) for name, layer in layers.items()}
scores = [
    head_patterns(layer.weights, held_out)
    for layer in layers.values()
]
cut = ablation_scores(
    model, lambda: loss_of(model, held_out, targets), means=means
)
table = np.zeros((8, 3))
table[:, 0] = np.concatenate(
    [of_layer["previous"] for of_layer in scores]
)
table[:, 1] = np.concatenate(
    [of_layer["induction"] for of_layer in scores]
)
table[:, 2] = np.concatenate(list(cut.values())) - whole
names = [f"{i}.{h}" for i, h in np.ndindex(2, 4)]
columns = {
    "previous, induction": table[:, :2],
    "nats lost": table[:, 2:],
}
matrices(columns, row_labels=names, shared=False)

# %% [markdown]
# On this text and with this seed, head 0.1 nearly always looks at the character before, and cutting it costs most. The
# other heads of the first layer look at near characters too, but less sharply, and cutting any of them costs a lot. A
# cut in the second layer costs little. All these costs are roughly lower bounds, because other heads may do the same
# job.
#
# No head has a high induction score. In notebook 20, copying was all that the loss asked for. Here it hardly pays,
# because in 64 characters of a novel hardly anything repeats at length. A head becomes what the loss makes of it.
#
# ## A text of your own
#
# In a terminal, with any text of a few thousand characters or more:
#
# ```sh
# mha-numpy train text my-text.txt
# ```
#
# Or do it here. The next cell uses the source of one file of this package as its text; put yours in its place. It
# takes 40 steps, in about 5 seconds; the recipe takes 1,500.

# %%
import inspect

from mha_numpy import attention_forward
from mha_numpy.teach.exercises import check, hint

# or open(...).read()
my_text = inspect.getsource(inspect.getmodule(attention_forward))
own = train_recipe(
    "text", text=my_text, backend="numpy", steps=40, progress=False
)
beginning = own.task.encode(my_text[:20])[None]
print(
    own.task.decode(
        generate(own.model, beginning, 240, temperature=0.7, rng=0)[
            0
        ]
    )
)

# %% [markdown]
# After so few steps it writes lines, blanks and pieces of words. Before you call a model good, compare its held-out
# loss with the counts of pairs in *your* text.
#
# ## Exercise: a training loop
#
# You can also learn the table of pairs instead of counting it. A model reads one character and guesses the next:
# `logits = table[token] @ w + b`. Write the whole loop: forward, loss, backward, step, next batch. You need nothing
# from this library.
#
# To practise more, try these in `mha-numpy exercises`: `gelu` and `gelu-backward`, which this model's blocks use;
# `museum-not-zeroed`, `museum-shifted-twice` and `museum-evaluated-with-dropout`, three bugs that shipped.


# %% tags=["exercise"]
def my_train_steps(tokens, table, w, b, learning_rate):
    """tokens (N, B, T + 1) int, table (V, D), w (D, V), b (V,) ->
    table, w, b, losses (N,).

    Each of the N batches makes one step of gradient descent on the
    mean of -log p(next token). The arrays that are handed in stay
    as they are.
    """
    ...  # your code


# %% tags=["check"]
check("train-steps", my_train_steps)

# %% tags=["hint"]
# hint("train-steps")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# Now you can say how good the text at the beginning is: 1.85 nats per character, where counts of pairs reach 2.47.
#
# - A language model predicts what comes next. Its loss is the mean of -log p of what really came, on text that it has
#   not read.
# - A loss means something only next to others: all characters equally likely, counts, pairs.
# - A table of pairs uses one character, attention uses up to 64, so its loss is lower.
# - Temperature makes the choice sharper or more even. Top-k and top-p cut off the tail; top-p cuts more where the model
#   is sure.
# - Measure what heads do on held-out text, and say which text and which seed it was.
#
# **In the code:** `mha_numpy/models/transformer_lm.py`, `generate` and `choose` in `mha_numpy/models/generate.py`,
# `mha_numpy/models/train/tasks/text.py`.
#
# **Reference:** Shannon 1948, *A Mathematical Theory of Communication*, section 3, for texts written by counts;
# Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*; Fan et al. 2018, *Hierarchical Neural
# Story Generation*, for top-k; Holtzman et al. 2020, *The Curious Case of Neural Text Degeneration*, for top-p.
#
# **Next:** [23, what real heads look at](23_what-real-heads-look-at.ipynb).
