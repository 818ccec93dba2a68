# %% [markdown]
# # 21 · Translating numbers
#
# The transformer was invented to translate. Here is a small **trained** one that reads English number words and writes
# German ones. Spell out any number below a million and run the cell again.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy.models import translate
from mha_numpy.models.train import load_trained
from mha_numpy.models.train.tasks import (
    ENGLISH,
    GERMAN,
    Numbers,
    english,
    german,
)

# %%
grown, task = load_trained("numbers"), Numbers()
your_number = "two hundred forty-five"


def say(model, text, beams=1):
    ids = translate(model, task.read(text), beams=beams)
    return " ".join(task.words(ids, GERMAN))


def in_english(n):
    return " ".join(english(n))


print("your number:", say(grown.model, your_number), "\n")
for n in (45, 17, 245, 90_021):
    text = in_english(n)
    print(f"{n:>6}  {text:27} {say(grown.model, text)}")

# %% [markdown]
# German puts the units before the tens: forty-five is *fünf und vierzig*. (German writes it as one word; here we keep
# the parts apart.) In 245, *five* and *forty* trade places, and between them comes an *und* that has no English
# counterpart. So the words cross. To write the next word, the *decoder*, the part that writes, often has to jump to a
# different place in the *source*, the English words. No rule in the model says where. How does it know?
#
# **By the end you can** explain how encoder, decoder and cross-attention translate together, measure
# on unseen numbers whether an alignment is there, and write the gradient that this kind of training starts from.
#
# All of this is about one task and one seed.
#
# ## Who reads what
#
# ```text
#   two hundred forty five          <start> zwei hundert fünf ...
#            │                                 │
#         encoder                        self-attention: causal
#   every word sees every word                 │
#            │                                 ▼
#            └────── keys, values ────► cross-attention ───► feed-forward ───► the next word
# ```
#
# The encoder reads the source once. The decoder reads the words written so far, and each of its places reads the source
# through cross-attention. In training, all places answer at once. The decoder reads the *right* words, shifted by one
# place, and has to say the next one at each place. This is called *teacher forcing*.
#
# Below are the two self-attentions of the trained model. In the encoder every word sees every word. In the decoder a
# word sees itself and the words before it.

# %%
from mha_numpy import causal_mask
from mha_numpy.show.pictures import matrices, weights_by_head

(source, target), _ = task.batch_of([245])
grown.model(source, target)
reads = task.words(target[0], GERMAN)
encoder = grown.model.encoder[0].attention.layer
decoder = grown.model.decoder[0].attention.layer
note = "Encoder, trained."
display(weights_by_head(encoder.weights, english(245), note=note))
options = {"visible": causal_mask(6), "note": "Decoder, trained."}
weights_by_head(decoder.weights, reads, **options)

# %% [markdown]
# Several numbers make a batch, in which the shorter ones are padded. Here are the ids of 45 and 245, then the words of
# 245:

# %%
(source, target), targets = task.batch_of([45, 245])
print("source", source, "reads", target, "says", targets, sep="\n")
print("source", [ENGLISH[i] for i in source[1]])
print("reads ", [GERMAN[i] for i in target[1]])
print("says  ", [GERMAN[i] for i in targets[1]])
seen = {"source: what may be seen": source != 0}
matrices(seen, row_labels=["45", "245"])

# %% [markdown]
# In the source, the padding has id 0, and a mask hides it from every query. In the targets it is `IGNORED`, -100: the
# model isn't asked anything at these places, so it must not learn anything there. The exercise below is about that.
#
# ## A hundred steps
#
# The model has one encoder block and one decoder block, with two heads in each attention. Its whole training takes 750
# steps. We run 100 of them, in about 8 seconds.
#
# > **Predict first.** There are 35 German words. What is the loss of a model that finds them all equally likely?
#
# <details><summary>Answer</summary>
#
# It is $\log 35 = 3.56$, and the curve begins there.
# </details>

# %%
from mha_numpy.models.train import train_recipe
from mha_numpy.show.pictures import line_chart

options = {"backend": "numpy", "progress": False}
young = train_recipe("numbers", steps=100, **options)
print("after 100 steps: ", say(young.model, your_number))
losses = np.reshape(young.history.losses, (-1, 5)).mean(axis=1)
title = "The loss of the first 100 steps, mean of 5"
axes = {"x_label": "steps", "y_label": "nats"}
steps = np.arange(5, 101, 5)
line_chart(steps, {"loss": losses}, title=title, **axes)

# %% [markdown]
# We ran the remaining steps beforehand: the params that ship with the package come from `mha-numpy train numbers`.
#
# ## Where it looks while it writes
#
# > **Predict first.** Each row of the picture is a step, named after the word that the decoder writes there. In which
# > column will the weight of *fünf* be? Of *vierzig*? Of *und*?
#
# <details><summary>Answer</summary>
#
# The row *fünf* looks at *five*, and the row *vierzig* looks back at *forty*, which makes the cross. *Und* has no
# English counterpart, so the task leaves open where it looks. The same is true for *<end>*.
# </details>


# %%
def alignment(model, n):
    """(H, T_q, T_k): weights of cross-attention, for one number."""
    (source, target), _ = task.batch_of([n])
    model(source, target)
    return model.decoder[0].cross_attention.layer.weights[0]


words = [*german(245), "<end>"]
weights_by_head(alignment(grown.model, 245), words, english(245))

# %% [markdown]
# Was the cross there from the start? Here is the mean of both heads, at three ages:

# %%
from mha_numpy.models import Translator

sizes = {"embed_dim": 32, "num_heads": 2, "hidden_dim": 64}
sizes |= {"activation": "relu", "rng": 0}
num_words = len(ENGLISH), len(GERMAN)
newborn = Translator(*num_words, task.max_tokens, **sizes)
ages = {
    "random params": newborn,
    "100 steps": young.model,
    "shipped": grown.model,
}
means = [alignment(m, 245).mean(axis=0) for m in ages.values()]
note = "The mean of both heads, at three ages."
options = {"head_names": list(ages), "note": note}
options["heads"] = [None, None, None]  # means belong to no head
weights_by_head(np.stack(means), words, english(245), **options)

# %% [markdown]
# ## Measured, not shown
#
# It wasn't: with random params, *vierzig* looks most at *five*. But one picture proves nothing. So we take 2,000
# numbers that training never drew: every 89th number was *held out*. As in training, the decoder reads the right words
# and has to say the next one. A number counts as right only if all its words are right. Some numbers have a crossing.
# Of these, *units look at units* counts those in which the step that writes the units puts more weight on the units
# than on the tens.

# %%
from mha_numpy.models.train import IGNORED

numbers = task.draw_held_out(np.random.default_rng(1), 2000)
(source, target), targets = task.batch_of(numbers)


def measure(model):
    """Return which numbers are right, and the three shares."""
    said = model(source, target).argmax(axis=-1)
    right = ((said == targets) | (targets == IGNORED)).all(axis=1)
    weights = model.decoder[0].cross_attention.layer.weights
    return right, (right.mean(), *task.crossing(weights, numbers))


shares = np.array([measure(model)[1] for model in ages.values()])
columns = ["right", "units look at units", "tens at tens"]
labels = {"row_labels": list(ages), "column_labels": columns}
matrices({"share of 2,000 numbers": shares}, **labels)

# %% [markdown]
# Look at the first row before you admire the last. With random params, the decoder often looks at the right one of two
# words by chance, so a share only means something next to what chance gives. But the last row answers our question.
# Nothing but the loss taught the decoder to look at the right words.
#
# And what does the trained model get wrong?

# %%
right, _ = measure(grown.model)
wrong = np.array(numbers)[~right]
print(f"{len(wrong)} of {len(numbers)} are wrong")
for n in wrong[:3]:
    said = say(grown.model, in_english(n)).removesuffix(" <end>")
    print(f"{n:>7}  {said}, not {' '.join(german(n))}")
print()
for text in ("five forty", "hundred hundred", "seven and seven"):
    print(f"{text:16} {say(grown.model, text)}")

# %% [markdown]
# All three times it confuses *ein* and *eins*, the one number word here whose German form depends on the word after it.
# And it always answers, even if there is no number to read. It has learned which words follow which, but not what a
# number is.
#
# ## Greedy, and with beams
#
# While it writes, the decoder reads its *own* words. A wrong word can't be taken back, and all later words depend on
# it. Greedy writing takes the likeliest word at each step. A *beam search* keeps a few of the likeliest beginnings, so
# it can find a likelier sequence even if the first word was not the likeliest.
#
# Here is the model after 100 steps. Each row is named after the word that the decoder has just read, and shows how
# likely each next word is.

# %%
from mha_numpy.core import softmax_forward

(one, read), said = task.batch_of([245])
probs, _ = softmax_forward(young.model(one, read)[0])  # (T_q, V)
# first or second at some step
likely = np.unique(np.argsort(-probs, axis=-1)[:, :2])
rows = task.words(read[0], GERMAN)
columns = [GERMAN[i] for i in likely]
labels = {"row_labels": rows, "column_labels": columns}
matrices({"p(next word)": probs[:, likely]}, **labels)

# %% [markdown]
# > **Predict first.** Which of the two models gains from beams: the one after 100 steps, which is often unsure, or the
# > shipped one?
#
# <details><summary>Answer</summary>
#
# On these 40 numbers, neither gains. The shipped model is sure and right, so both ways of writing agree. For the
# younger one, a likelier sequence is no closer to the truth, because beams search for what the *model* thinks is
# likely.
# </details>

# %%
some = numbers[:40]  # about 10 seconds


def share_right(model, beams):
    asked = [" ".join([*german(n), "<end>"]) for n in some]
    said = [say(model, in_english(n), beams) for n in some]
    return np.mean(np.array(asked) == np.array(said))


rows, columns = ["100 steps", "shipped"], ["greedy", "4 beams"]
shares = [[share_right(ages[a], b) for b in (1, 4)] for a in rows]
labels = {"row_labels": rows, "column_labels": columns}
matrices({"right to the end": np.array(shares)}, **labels)

# %% [markdown]
# ## Which heads are needed
#
# Each of the three attentions has two heads. We cut each head, and then both together, in two ways: by 0, and by the
# mean of what the head writes (notebook 10).
#
# > **Predict first.** Without both heads of cross-attention, the decoder knows nothing about the source. How many
# > numbers will it get right? And how many without only one of them?
#
# <details><summary>Answer</summary>
#
# Without both, it gets none right. Cutting either of the two costs little, so each of them can do most of the job.
# Cutting both heads of a self-attention costs much less than both of these: the words of a number come in a fixed
# order, and most numbers work without it.
#
# The mean isn't always the milder cut. Without head 0 of cross-attention, 99.4% of the numbers are right by 0, but
# 95.6% by the mean.
# </details>

# %%
from mha_numpy.models.analysis import cut_heads, mean_heads

layers = {"encoder": encoder, "decoder": decoder}
layers["cross"] = grown.model.decoder[0].cross_attention.layer
grown.model(source, target)
# of real words only
words_of = [source != 0, targets != IGNORED, targets != IGNORED]
pairs = zip(layers.values(), words_of, strict=True)
means = [mean_heads(layer, words) for layer, words in pairs]
found = {"cut by 0": np.zeros((3, 3)), "by mean": np.zeros((3, 3))}
for i, layer in enumerate(layers.values()):
    for j, heads in enumerate([[0], [1], [0, 1]]):
        for way, mean in zip(found, (None, means[i]), strict=True):
            with cut_heads(layer, heads, means=mean):
                found[way][i, j] = measure(grown.model)[1][0]
columns = ["head 0", "head 1", "both"]
labels = {"row_labels": list(layers), "column_labels": columns}
matrices(found, **labels)

# %% [markdown]
# We measured this after training. It doesn't show that training could have done without these heads.
#
# ## Exercise: back through cross-entropy
#
# The backward pass begins at the logits. Their gradient is the softmax minus the target. Here some targets are ignored,
# like padding, so they must not cause any gradient, and they don't count in the mean. The check compares numbers, then
# differentiates the loss numerically.
#
# To practise more, try these in `mha-numpy exercises`: `cross-entropy`, the loss itself; `museum-mean-of-means`, a bug
# that shipped; and `layer-norm` and `rms-norm`, two norms from such blocks.


# %% tags=["exercise"]
def my_cross_entropy_backward(d_loss, logits, targets, ignored):
    """logits (B, T, V), targets (B, T) int -> d_logits (B, T, V).

    Forward was the mean of -log softmax(logits)[target] over all
    tokens whose target is not `ignored`. Logits may be in the
    thousands.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("cross-entropy-backward", my_cross_entropy_backward)

# %% tags=["hint"]
# hint("cross-entropy-backward")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# Now you can say how the number that you typed became German.
#
# - The encoder reads the source once; each place of the decoder reads it through cross-attention.
# - In training, the decoder reads the right words, shifted by one. While it writes, it reads its own.
# - The alignment crosses where the words cross, and nothing but the loss put it there. For words without a partner,
#   the task leaves the weights open.
# - Report what a model can do as a share of held-out examples, next to what chance gives.
# - Beams find what the model thinks is likely, which may not be right.
#
# **In the code:** `mha_numpy/models/translator.py`, `translate` in `mha_numpy/models/generate.py`,
# `mha_numpy/models/train/tasks/numbers.py`.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3; Bahdanau et al. 2015, *Neural Machine
# Translation by Jointly Learning to Align and Translate*; Sutskever et al. 2014, *Sequence to Sequence Learning with
# Neural Networks*, for beams; Koehn and Knowles 2017, *Six Challenges for Neural Machine Translation*, for weights
# that are no alignment.
#
# **Next:** [22, a language model on a text of your own](22_a-text-of-your-own.ipynb).
