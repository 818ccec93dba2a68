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
    return " ".join(
        task.words(
            translate(model, task.read(text), beams=beams), GERMAN
        )
    )


print("your number:", say(grown.model, your_number), "\n")
for n in (45, 17, 245, 90_021):
    print(
        f"{' '.join(english(n)):27} "
        f"{say(grown.model, ' '.join(english(n))):40} {n:>6}"
    )

# %% [markdown]
# German puts the units before the tens: forty-five is *fünf und vierzig*. (German writes it as one word; here we keep
# the parts apart.) In 245, *five* and *forty* trade places, and between them comes an *und* that has no English
# counterpart. So the words cross, and to write the next word the decoder often has to jump to a different place in the
# source. No rule in the model says where. How does it know?
#
# **What you can do afterwards:** you can explain how encoder, decoder and cross-attention translate together, measure
# on unseen numbers whether an alignment is there, and write the gradient that such a training begins with.
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
display(
    weights_by_head(
        encoder.weights, english(245), note="Encoder, trained."
    )
)
weights_by_head(
    decoder.weights,
    reads,
    visible=causal_mask(6),
    note="Decoder, trained.",
)

# %% [markdown]
# Several numbers make a batch, in which the shorter ones are padded:

# %%
(source, target), targets = task.batch_of([45, 245])
print(source, target, targets, sep="\n\n")
for which, ids, words in (
    ("source", source, ENGLISH),
    ("reads", target, GERMAN),
):
    print(f"{which:8}", [words[i] for i in ids[1]])
print("says    ", [GERMAN[i] for i in targets[1]])
matrices(
    {"source: what may be seen": source != 0},
    row_labels=["45", "245"],
)

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

young = train_recipe(
    "numbers",
    backend="numpy",
    steps=100,
    measure_every=50,
    progress=False,
)
print("after 100 steps: ", say(young.model, your_number))
losses = np.reshape(young.history.losses, (-1, 5)).mean(axis=1)
title = "The loss of the first 100 steps, mean of 5"
line_chart(
    np.arange(5, 101, 5),
    {"loss": losses},
    title=title,
    x_label="steps",
    y_label="nats",
)

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
    """(H, T_q, T_k): the weights of cross-attention, for one
    number.
    """
    (source, target), _ = task.batch_of([n])
    model(source, target)
    return model.decoder[0].cross_attention.layer.weights[0]


words = [*german(245), "<end>"]
weights_by_head(alignment(grown.model, 245), words, english(245))

# %% [markdown]
# Was the cross there from the start? Here is the mean of both heads, at three ages:

# %%
from mha_numpy.models import Translator

options = {
    "embed_dim": 32,
    "num_heads": 2,
    "hidden_dim": 64,
    "activation": "relu",
}
newborn = Translator(
    len(ENGLISH), len(GERMAN), task.max_tokens, **options, rng=0
)
ages = {
    "random params": newborn,
    "100 steps": young.model,
    "shipped": grown.model,
}
means = np.stack(
    [alignment(model, 245).mean(axis=0) for model in ages.values()]
)
note = "The mean of both heads, at three ages."
weights_by_head(
    means,
    words,
    english(245),
    head_names=list(ages),
    heads=[None, None, None],  # means belong to no head
    note=note,
)

# %% [markdown]
# ## Measured, not shown
#
# One picture proves nothing. So we take 2,000 numbers that training never drew, because every 89th number was *held
# out*. A number counts as right only if all its words are right. Some numbers have a crossing. Of these, *units look at
# units* counts those in which the step that writes the units puts more weight on the units than on the tens.

# %%
from mha_numpy.models.train import IGNORED

numbers = task.draw_held_out(np.random.default_rng(1), 2000)
(source, target), targets = task.batch_of(numbers)


def measure(model):
    """Which numbers are right; their share, and how often units
    look at units, tens at tens.
    """
    said = model(source, target).argmax(axis=-1)
    right = ((said == targets) | (targets == IGNORED)).all(axis=1)
    weights = model.decoder[0].cross_attention.layer.weights
    return right, (right.mean(), *task.crossing(weights, numbers))


shares = np.array([measure(model)[1] for model in ages.values()])
columns = ["right", "units look at units", "tens at tens"]
matrices(
    {"share of 2,000 numbers": shares},
    row_labels=list(ages),
    column_labels=columns,
)

# %% [markdown]
# Look at the first row before you admire the last. With random params, the decoder often looks at the right one of two
# words by chance, and a share only means something next to what chance gives. But the last row answers our question.
# Nothing but the loss taught the decoder to look at the right words.
#
# And what does the trained model get wrong?

# %%
right, _ = measure(grown.model)
wrong = [
    n
    for n, is_right in zip(numbers, right, strict=True)
    if not is_right
]
print(f"{len(wrong)} of {len(numbers)} are wrong")
for n in wrong[:3]:
    print(
        f"{n:>7}  {say(grown.model, ' '.join(english(n)))[:-6]}, "
        f"not {' '.join(german(n))}"
    )
for text in (
    "five forty",
    "hundred hundred hundred",
    "seven and seven and seven",
):
    print(f"{text:26} {say(grown.model, text)}")

# %% [markdown]
# Where it goes wrong, it confuses *ein* and *eins*, the one word here whose German form depends on the next word. And
# it always answers, even if there is no number to read. It has learned which words follow which, but not what a number
# is.
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
matrices(
    {"p(next word)": probs[:, likely]},
    row_labels=rows,
    column_labels=columns,
)

# %% [markdown]
# > **Predict first.** Which of the two models gains from beams: the one after 100 steps, which is often unsure, or the
# > shipped one?
#
# <details><summary>Answer</summary>
#
# On these 40 numbers, neither gains. The shipped model is sure and right, so both ways of writing agree. For the
# younger one, a likelier sequence is no closer to the truth, because beams search for what the *model* finds likely.
# </details>

# %%
some = numbers[:40]  # about 10 seconds


def share_right(model, beams):
    asked = [" ".join([*german(n), "<end>"]) for n in some]
    said = [say(model, " ".join(english(n)), beams) for n in some]
    return np.mean(np.array(asked) == np.array(said))


rows = list(ages)[1:]
shares = np.array(
    [
        [share_right(ages[age], beams) for beams in (1, 4)]
        for age in rows
    ]
)
matrices(
    {"right to the end": shares},
    row_labels=rows,
    column_labels=["greedy", "4 beams"],
)

# %% [markdown]
# ## Which heads are needed
#
# Each of the three attentions has two heads. We multiply each head by 0 to cut it, and then each pair of heads.
#
# > **Predict first.** Without both heads of cross-attention, the decoder knows nothing about the source. How many
# > numbers will it get right? And how many without only one of them?
#
# <details><summary>Answer</summary>
#
# Without both, it gets none right. Cutting either of the two costs little, because in this model both do much the same
# job. Cutting self-attention costs less: the words of a number come in a fixed order, and most numbers work without it.
# </details>

# %%
from mha_numpy.models.analysis import cut_heads
from mha_numpy.teach.exercises import check, hint

layers = {"encoder": encoder, "decoder": decoder}
layers["cross"] = grown.model.decoder[0].cross_attention.layer
found = np.zeros((3, 3))
for row, layer in zip(found, layers.values(), strict=True):
    for i, heads in enumerate([[0], [1], [0, 1]]):
        with cut_heads(layer, heads):
            row[i] = measure(grown.model)[1][0]
columns = ["head 0", "head 1", "both"]
matrices(
    {"right without": found},
    row_labels=list(layers),
    column_labels=columns,
)

# %% [markdown]
# We measured this after training. It doesn't show that training could have done without these heads.
#
# ## Exercise: back through cross-entropy
#
# Backward begins at the logits. Their gradient is the softmax minus the target. Here some targets are ignored, like
# padding, so they must not cause any gradient, and they don't count in the mean. The check compares numbers, then
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
# - Beams find what the model finds likely, which need not be right.
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
