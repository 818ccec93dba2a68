# %% [markdown]
# # 22 · A language model on a text of your own
#
# This model was **trained** for a few minutes on a few chapters of *Moby-Dick*. It reads "The captain " and goes on
# writing, one character after another:

# %% tags=["hide-input"]
import numpy as np
from numpy.random import default_rng

from mha_numpy.models import generate
from mha_numpy.models.train import load_trained
from mha_numpy.show.pictures import (
    bar_chart,
    line_chart,
    matrices,
    weights_by_head,
)

# %%
loaded = load_trained("text")
model, task = loaded.model, loaded.task


def write(model, beginning, steps=160, rng=0, **options):
    ids = task.encode(beginning)[None]
    ids = generate(model, ids, steps, rng=rng, **options)
    return task.decode(ids[0]).replace("\n", "↵")


write(model, "The captain ", temperature=0.7)

# %% [markdown]
# It looks like English, and some of it is. But how good is it, and would a plain table of counts do as well? A
# language model predicts what comes next. Ours predicts the next *character*, so any text will do: a chapter, your
# letters, a program. We start with counting, the simplest model of all, and then ask what attention adds.
#
# **By the end you can** train a small language model on your own file, judge its loss by comparing
# it with simple counts, and write its training loop.
#
# ## Characters
#
# Each character that occurs in the text gets a number. We hold out the last tenth of the text. Unless we say
# otherwise, every loss is measured there, on sentences that no model has read.

# %%
V = len(task.vocabulary)
print(f"{len(task.trained_on):,} characters to train on,")
print(f"{len(task.held_out):,} held out, {V} different ones")
print("".join(task.vocabulary).replace("\n", "↵"))
print(task.decode(task.held_out[:200]))

# %% [markdown]
# ## Counting
#
# How often does *h* follow *t*? Count all pairs and divide each row by its sum. That is already a model, called a
# *bigram* table, and three lines build it. (The counts begin at 1/10, so that an unseen pair isn't impossible.)

# %%
counts = np.full((V, V), 0.1)
np.add.at(counts, (task.trained_on[:-1], task.trained_on[1:]), 1)
bigram = counts / counts.sum(axis=1, keepdims=True)

shown = task.encode(" ehnorstuqQ")
names = [repr(task.vocabulary[i]) for i in shown]
table = {"p(column follows row)": bigram[np.ix_(shown, shown)]}
matrices(table, row_labels=names, column_labels=names)

# %% [markdown]
# After *q* comes *u*, and the table is sure of it. After a blank it knows little, because it can't see the word
# before the blank.
#
# How wrong is a guess? Its loss is $-\log p$ of the character that really came. With the natural logarithm the unit
# is the *nat*, and smaller is better. We compare means over the held-out text.
#
# > **Predict first.** There are 74 different characters. What is the loss of a model that finds them all equally
# > likely? How many nats will you save by counting characters, and how many more by counting pairs?
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
title = "Loss on held-out text"
bar_chart(losses, title=title, unit="nats per character")

# %% [markdown]
# ## Sixty steps of a transformer
#
# The model has two decoder blocks with four heads each, and it reads at most 64 characters. We start from random
# params, take 60 steps, which last about 8 seconds, and draw the training loss next to the loss of the pairs.

# %%
from mha_numpy.models.train import train_recipe

recipe = {"backend": "numpy", "progress": False}
young = train_recipe("text", steps=60, measure_every=60, **recipe)
print(f"{young.model.num_parameters:,} params")

of_three = np.reshape(young.history.losses, (20, 3)).mean(axis=1)
of_pairs = np.full(20, losses["counts of pairs"])
lines = {"transformer": of_three, "counts of pairs": of_pairs}
axes = {"x_label": "steps", "y_label": "nats per character"}
title = "Training loss, mean of three steps"
line_chart(np.arange(3, 61, 3), lines, title=title, **axes)

# %% [markdown]
# The loss falls quickly towards the level of counting, and then more slowly. To get below that line, the model has to
# use more than one character. The shipped params come from a longer run, `mha-numpy train text`, so let's add them to
# the comparison.

# %%
from mha_numpy.core import softmax_forward
from mha_numpy.layers import cross_entropy_forward

(held_out,), targets = task.draw_held_out(default_rng(1), 64)
(seen,), answers = task.draw_batch(default_rng(1), 64)


def loss_of(model, ids, targets):
    return float(cross_entropy_forward(model(ids), targets)[0])


losses |= {
    "60 steps": loss_of(young.model, held_out, targets),
    "shipped": loss_of(model, held_out, targets),
    "shipped, on its training text": loss_of(model, seen, answers),
    "60 steps, on that text": loss_of(young.model, seen, answers),
}
bar_chart(losses, title="Loss", unit="nats per character")

# %% [markdown]
# On its training text the shipped model is 0.5 nats better, mostly because it knows that text. (Part of it is because
# the last tenth of the book is harder: after 60 steps, too, the loss there is higher.) That's why only held-out text
# counts.
#
# The shipped model is 0.6 nats below the counts of pairs, because it sees more than one character. How many does it
# use? Let's show it only the last few. And let's be fair to counting: tables can use more characters, too, if each
# takes 0.8 off its counts and lends that to a shorter table, which counts after how many *different* characters a piece
# came (Kneser and Ney 1995).
#
# > **Predict first.** The model reads up to 64 characters. With how many is its loss within 0.1 nats of the best? And
# > how close do tables come?
#
# <details><summary>Answer</summary>
#
# With 4 characters, and from 6 to 8 on more of them don't help. Tables of 3 are nearly as good as the model, and tables
# of 5 are better: they reach 1.76 nats. So on this short text, careful counting beats our small model.
# </details>

# %%
from collections import Counter

text, rest = (
    task.decode(t) for t in (task.trained_on, task.held_out)
)
places = np.arange(64, len(rest), 3)


def pieces_of(n):
    """All pieces of n characters."""
    return [text[i - n : i] for i in range(n, len(text) + 1)]


def lean(pieces, p):
    """Count pieces by their beginning; lean on p, one shorter."""
    counts = Counter(pieces)
    both = [Counter(x[:-1] for x in y) for y in (pieces, counts)]
    n = len(pieces[0])
    seen = [rest[i + 1 - n : i + 1] for i in places]
    came = np.array([counts[s] for s in seen])
    total, k = (np.array([c[s[:-1]] for s in seen]) for c in both)
    mixed = np.maximum(came - 0.8, 0) + 0.8 * k * p
    return np.where(total > 0, mixed / np.maximum(total, 1), p)


def shorter(n, p):
    """Count each piece of n once per character before it."""
    return lean([piece[1:] for piece in set(pieces_of(n + 1))], p)


def model_with(n):
    """Return its p of what came, from the last n characters."""
    read = task.held_out[places[:, None] - np.arange(n, 0, -1)]
    probs, _ = softmax_forward(model(read)[:, -1])
    return probs[np.arange(len(places)), task.held_out[places]]


p = shorter(1, np.full(len(places), 1 / V))
lines = {"model": [], "tables": []}
for n in range(1, 9):
    by_table = lean(pieces_of(n + 1), p)
    lines["tables"].append(-np.log(by_table).mean())
    lines["model"].append(-np.log(model_with(n)).mean())
    p = shorter(n + 1, p)
print(f"model, 32 characters: {-np.log(model_with(32)).mean():.2f}")
axes = {"x_label": "characters", "y_label": "nats per character"}
title = "Loss, from the last few characters"
line_chart(range(1, 9), lines, title=title, **axes)

# %% [markdown]
# ## Where it is sure
#
# > **Predict first.** Where in a sentence is the next character easy to guess, and where is it hard?
#
# <details><summary>Answer</summary>
#
# Within a word, the model usually becomes more certain. At the first letter of a word it hesitates, because many
# words are possible there. The table of pairs sees only one character, so the rest of the word doesn't help it.
# </details>

# %%
sentence = "the captain spoke "
ids = task.encode(sentence)[None]
probs, _ = softmax_forward(model(ids))
read, came = ids[0, :-1], ids[0, 1:]
by_model = probs[0, np.arange(len(came)), came]
compared = np.stack([bigram[read, came], by_model])

letters = list(sentence.replace(" ", "·")[1:])
labels = {"row_labels": ["pairs", "model"]}
labels["column_labels"] = letters
matrices({"p of what came, · is a blank": compared}, **labels)

# %% [markdown]
# ## Writing
#
# To write, the program draws a character from the probabilities, appends it, and starts over. The **temperature**
# divides the logits before softmax. Below 1 the likely characters become even likelier; above 1 all probabilities
# move closer together. At 0 the likeliest character always wins. Here it is at work on the next character:

# %%
logits = model(ids)[0, -1]
order = np.argsort(-logits)[:12]
heat = (0.5, 1.0, 2.0)
rows = [softmax_forward(logits / t)[0][order] for t in heat]

labels = {"row_labels": [f"temperature {t}" for t in heat]}
labels["column_labels"] = [repr(task.vocabulary[i]) for i in order]
matrices({"p, the 12 likeliest": np.stack(rows)}, **labels)

# %%
for t in (0, 0.5, 1, 2):
    text = write(model, "The captain ", temperature=t)
    print(f"temperature {t}: {text}\n")

# %% [markdown]
# At a low temperature the text repeats itself; at a high one it falls apart into letters. From one small text, the
# model has learned spelling and a little about which words follow which. It has not learned what a whale is.
#
# **Top-k** draws only from the k likeliest characters. **Top-p** draws from the likeliest ones that together reach
# probability p: few where the model is sure, many where it isn't. Both cut off the long tail of unlikely
# characters. Otherwise, one of them is drawn every now and then, and spoils what comes after it.
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
matrices({title: kept}, column_labels=letters)

# %%
print("top-k 5:  ", write(model, "The captain ", top_k=5), "\n")
print("top-p 0.9:", write(model, "The captain ", top_p=0.9), "\n")
print("60 steps: ", write(young.model, "The captain ", top_p=0.9))

# %% [markdown]
# ## What the heads look at
#
# Do any of them look back at an earlier copy? Here are the eight heads on a phrase that begins to repeat itself,
# first the four of layer 0, then the four of layer 1.

# %%
from mha_numpy import causal_mask

phrase = "the whale, the wha"
model(task.encode(phrase)[None])
layers = [block.attention.layer for block in model.blocks]
letters = list(phrase.replace(" ", "·"))
options = {"visible": causal_mask(len(phrase))}
options["head_names"] = [f"head 0.{h}" for h in range(4)]
weights_by_head(layers[0].weights, letters, **options)

# %%
options["head_names"] = [f"head 1.{h}" for h in range(4)]
weights_by_head(layers[1].weights, letters, **options)

# %% [markdown]
# One phrase proves nothing. So we measure three things on held-out text: how much of each head's weight is on the
# character before (*previous*), how much on the character that followed an earlier copy (*induction*), and how much
# the loss rises if we replace the head by its mean (notebook 10).

# %%
from mha_numpy.models.analysis import (
    ablation_scores,
    attention_layers,
    cut_heads,
    head_patterns,
    mean_heads,
)


def loss():
    return loss_of(model, held_out, targets)


whole, layers = loss(), attention_layers(model)
means = {name: mean_heads(layer) for name, layer in layers.items()}
weights = [layer.weights for layer in layers.values()]
found = head_patterns(np.concatenate(weights, axis=1), held_out)
looks = np.stack([found["previous"], found["induction"]], axis=1)
cut = ablation_scores(model, loss, means=means)
lost = np.concatenate(list(cut.values())) - whole
first = next(iter(layers))
for pair in [1, 2], [2, 3]:
    with cut_heads(layers[first], pair, means=means[first]):
        print(f"heads {pair} of layer 0: {loss() - whole:.2f}")

columns = {"previous, induction": looks, "nats lost": lost[:, None]}
names = [f"{i}.{h}" for i, h in np.ndindex(2, 4)]
matrices(columns, row_labels=names, shared=False)

# %% [markdown]
# On this text and with this seed, head 0.1 puts 89% of its weight on the character before, and cutting it costs most,
# 1.46 nats. The other heads of layer 0 look at nearby characters too, but less sharply, and cutting any one of them
# costs more than 0.6 nats. A cut in layer 1 costs less than 0.1. Such costs don't add up: heads 0.2 and 0.3 together
# cost more than their sum, 1.89 instead of 1.43, and 0.1 and 0.2 less, 1.81 instead of 2.20.
#
# No head has a high induction score. In notebook 20, copying was all that the loss asked for. Here it hardly pays,
# because a novel seldom repeats itself at length within 64 characters. A head becomes what the loss makes of it.
#
# ## A text of your own
#
# In a terminal, with any text of a few thousand characters or more:
#
# ```sh
# mha-numpy train text my-text.txt
# ```
#
# Or do it here. The next cell learns from the source of one file of this package; put your own text in its place. It
# takes 40 steps, about 5 seconds. The full recipe takes 1,500.

# %%
import inspect

from mha_numpy import attention_forward
from mha_numpy.teach.exercises import check, hint

# yours: my_text = open("my-text.txt").read()
my_text = inspect.getsource(inspect.getmodule(attention_forward))
own = train_recipe("text", text=my_text, steps=40, **recipe)

ids = own.task.encode(my_text[:20])[None]
ids = generate(own.model, ids, 240, temperature=0.7, rng=0)
print(own.task.decode(ids[0]))

# %% [markdown]
# After so few steps, all it writes is lines, blanks and pieces of words. Before you call a model good, compare its
# held-out loss with the counts of pairs in *your* text.
#
# ## Exercise: a training loop
#
# You can also *learn* a table of pairs, instead of counting it. A model reads one character and guesses the next:
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
# Now you can say how good the text at the beginning is: 1.85 nats per character, where counts of pairs reach 2.47, and
# tables of five characters 1.76.
#
# - A language model predicts what comes next. Its loss is the mean of -log p of what really came, on text that it has
#   not read.
# - A loss means little until you compare it with others: all characters equally likely, counts of characters, counts
#   of pairs.
# - A table of pairs uses one character. This model reads 64 but gains nothing beyond eight, and tables of four or more
#   do better.
# - Temperature makes the choice sharper or more even. Top-k and top-p cut off the tail; where the model is sure,
#   top-p leaves fewer.
# - Measure what heads do on held-out text, and say which text and which seed it was.
#
# **In the code:** `mha_numpy/models/transformer_lm.py`, `generate` and `choose` in `mha_numpy/models/generate.py`,
# `mha_numpy/models/train/tasks/text.py`.
#
# **Reference:** Shannon 1948, *A Mathematical Theory of Communication*, section 3, for texts written by counts;
# Kneser and Ney 1995, *Improved Backing-off for M-gram Language Modeling*, for such tables; Radford et al. 2019,
# *Language Models are Unsupervised Multitask Learners*; Fan et al. 2018, *Hierarchical Neural
# Story Generation*, for top-k; Holtzman et al. 2020, *The Curious Case of Neural Text Degeneration*, for top-p.
#
# **Next:** [23, what real heads look at](23_what-real-heads-look-at.ipynb).
