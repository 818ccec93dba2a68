# %% [markdown]
# # 19 · Translating numbers
#
# The transformer was invented to translate. Here a small one does: it reads English number words and writes German
# ones. German says the units before the tens, *fünf und vierzig* for forty-five, so the words cross. To write the
# next word, the decoder has to look at another place of the source than the one it has just left.
#
# **You will learn**
#
# - how encoder, decoder and cross-attention work together in a trained model;
# - what the decoder reads while it is trained, and what it reads while it writes;
# - how an alignment appears by training, and how to measure it instead of looking at one picture;
# - what a search with several beams does;
# - how to say what a model can do: on numbers that it has never seen.
#
# All that is said here about a head is said about this task and this seed.

# %%
import numpy as np

from mha_numpy.analysis import cut_heads
from mha_numpy.core import softmax_forward
from mha_numpy.draw import line_chart, matrices, weights_by_head
from mha_numpy.exercises import check, hint
from mha_numpy.models import Translator, translate
from mha_numpy.tables import Table
from mha_numpy.train import IGNORED, load_trained, train_recipe
from mha_numpy.train.tasks import ENGLISH, GERMAN, Numbers, english, german

np.set_printoptions(precision=3, suppress=True)

# %% [markdown]
# ## Words that cross
#
# German writes a number as one word; we write its parts apart.

# %%
for n in (45, 17, 245, 90_021):
    print(f"{n:>6}  {' '.join(english(n)):34} {' '.join(german(n))}")

# %% [markdown]
# Seventeen is one word in both. In 245, *five* and *forty* change places, and an *und* comes between them that has no
# English word at all.
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
# The encoder reads the source once. The decoder reads what is written so far, and at each of its places asks the
# source. In training all places are asked at once: the decoder reads the *right* words, moved by one place, and
# has to say the next one at each. This is *teacher forcing*.

# %%
task = Numbers()
(source, target), targets = task.batch_of([45, 245])
print(source, target, targets, sep="\n\n")

# %%
for which, ids, words in (("source", source, ENGLISH), ("reads", target, GERMAN)):
    print(f"{which:8}", [words[i] for i in ids[1]])
print("says    ", [GERMAN[i] for i in targets[1]])

# %% [markdown]
# 45 is shorter than 245 and is filled up. In the source the filling is id 0, and a mask hides it from every query. In
# the targets it is `IGNORED`, -100: there nothing is asked, and nothing may be learned. The exercise below is about
# that.
#
# ## A hundred steps
#
# The model has one encoder block and one decoder block, with two heads in each attention. A whole training takes 750
# steps; we take 100, in a few seconds.
#
# > **Predict first.** What is the loss of a model that finds all German words equally likely?

# %%
young = train_recipe("numbers", backend="numpy", steps=100, measure_every=50, progress=False)
print(f"{len(GERMAN)} words equally likely: {np.log(len(GERMAN)):.2f}")
losses = np.reshape(young.history.losses, (-1, 5)).mean(axis=1)
title = "The loss of 100 steps, mean of 5"
line_chart(np.arange(5, 101, 5), {"loss": losses}, title=title, x_label="steps", y_label="nats")

# %% [markdown]
# The rest was done before: `mha-numpy train numbers` made the params that are shipped with the package.
#
# ## Your number
#
# Write any number below a million in words, and run the cell again.

# %%
grown = load_trained("numbers")
your_number = "two hundred forty-five"


def say(model, text, beams=1):
    return " ".join(task.words(translate(model, task.read(text), beams=beams), GERMAN))


print("after 100 steps:", say(young.model, your_number))
print("shipped:        ", say(grown.model, your_number))

# %% [markdown]
# ## Where it looks while it writes
#
# > **Predict first.** A row of the picture is the word that the decoder writes at this step. In which column is the
# > weight of *fünf*, of *vierzig*, of *und*?


# %%
def alignment(model, n):
    """(H, T_q, T_k): the weights of cross-attention, for one number."""
    (source, target), _ = task.batch_of([n])
    model(source, target)
    return model.decoder[0].cross_attention.layer.weights[0]


words = [*german(245), "<end>"]
weights_by_head(alignment(grown.model, 245), words, english(245))

# %% [markdown]
# The cross is there: the row *fünf* looks at *five*, and the row *vierzig* looks back at *forty*. *Und* has no word
# of its own, so where it looks is not set by the task. The same holds for *<end>*.
#
# Was it there from the start? Here is the mean of both heads at three ages:

# %%
options = {"embed_dim": 32, "num_heads": 2, "hidden_dim": 64, "activation": "relu"}
newborn = Translator(len(ENGLISH), len(GERMAN), task.max_tokens, **options)
ages = {"random params": newborn, "100 steps": young.model, "shipped": grown.model}
means = np.stack([alignment(model, 245).mean(axis=0) for model in ages.values()])
note = "The mean of both heads, at three ages."
weights_by_head(means, words, english(245), head_names=list(ages), note=note)

# %% [markdown]
# ## Measured, not shown
#
# One picture proves nothing. So we take 2,000 numbers, and only such as the training never drew: every 89th number
# was *held out*. The share of right answers counts a number only if all its words are right. *Units look at units* is
# the share of numbers with a crossing in which the step that writes the units has more weight on the units than on
# the tens.

# %%
numbers = task.draw_held_out(np.random.default_rng(1), 2000)
(source, target), targets = task.batch_of(numbers)


def measure(model):
    """Which numbers are right; their share, and how often units look at units, tens at tens."""
    said = model(source, target).argmax(axis=-1)
    right = ((said == targets) | (targets == IGNORED)).all(axis=1)
    weights = model.decoder[0].cross_attention.layer.weights
    return right, (right.mean(), *task.crossing(weights, numbers))


rows = [[age, *(f"{share:.1%}" for share in measure(model)[1])] for age, model in ages.items()]
Table("2,000 held-out numbers", ["params", "right", "units look at units", "tens at tens"], rows)

# %% [markdown]
# Look at the first row before you admire the last. Random params look at the right one of two words in many cases, by
# chance. A share means something only beside what chance gives.
#
# What does the shipped model get wrong, if anything?

# %%
right, _ = measure(grown.model)
wrong = [n for n, is_right in zip(numbers, right, strict=True) if not is_right]
print(f"{len(wrong)} of {len(numbers)} are wrong")
for n in wrong[:3]:
    print(f"{n:>7}  {say(grown.model, ' '.join(english(n)))[:-6]}, not {' '.join(german(n))}")

# %% [markdown]
# Where it errs, it takes *ein* for *eins* or the reverse: the one word here whose German form depends on what follows.
#
# And it always answers. It has learned which words follow which, and not what a number is:

# %%
for text in ("five forty", "hundred hundred hundred", "seven and seven and seven"):
    print(f"{text:26} {say(grown.model, text)}")

# %% [markdown]
# ## Greedy, and with beams
#
# While it writes, the decoder reads its *own* words. A wrong word stays, and all later words stand on it. Greedy
# writing takes the likeliest word at each step. A *beam search* keeps the likeliest few beginnings, and may find a
# whole that is likelier although its first word was not.
#
# First one step after the other, after 100 steps of training: a row is named by the word that was just read, and
# shows how likely each next word is.

# %%
(one, read), said = task.batch_of([245])
probs, _ = softmax_forward(young.model(one, read)[0])  # (T_q, V)
likely = np.unique(np.argsort(-probs, axis=-1)[:, :2])  # first or second at some step
rows, columns = task.words(read[0], GERMAN), [GERMAN[i] for i in likely]
matrices({"p(next word)": probs[:, likely]}, row_labels=rows, column_labels=columns)

# %% [markdown]
# > **Predict first.** Which of the two models gains by beams: the young one, which often hesitates, or the shipped
# > one?

# %%
some = numbers[:40]


def share_right(model, beams):
    asked = [" ".join([*german(n), "<end>"]) for n in some]
    said = [say(model, " ".join(english(n)), beams) for n in some]
    return f"{np.mean(np.array(asked) == np.array(said)):.0%}"


rows = [[age, *(share_right(ages[age], beams) for beams in (1, 4))] for age in list(ages)[1:]]
Table("40 held-out numbers, right to the last word", ["params", "greedy", "4 beams"], rows)

# %% [markdown]
# A likelier whole need not be a righter one: beams search for what the *model* finds likely. Where it is sure and
# right, greedy and beams agree.
#
# ## Which heads are needed
#
# Each of the three attentions has two heads. We cut each by 0, and each pair.
#
# > **Predict first.** Without both heads of cross-attention the decoder knows nothing of the source. How many numbers
# > will be right?

# %%
decoder = grown.model.decoder[0]
layers = {"encoder": grown.model.encoder[0].attention, "decoder": decoder.attention}
layers = {name: residual.layer for name, residual in layers.items()}
layers["cross"] = decoder.cross_attention.layer
found = np.zeros((3, 3))
for row, layer in zip(found, layers.values(), strict=True):
    for i, heads in enumerate([[0], [1], [0, 1]]):
        with cut_heads(layer, heads):
            row[i] = measure(grown.model)[1][0]
columns = ["head 0", "head 1", "both"]
matrices({"right without": found}, row_labels=list(layers), column_labels=columns)

# %% [markdown]
# Without cross-attention nothing is right. Of its two heads either may go at little cost: on this task, in this seed,
# both do much the same. The self-attentions cost less: the words of a number stand in a fixed order, and most numbers
# can do without. That was measured after training, on this task; it does not show that training did not need them.
#
# ## Exercise: back through cross-entropy
#
# Backward begins with the logits: what softmax says, less what was asked. Here some targets are ignored, as padding
# is. They must give no gradient, and they do not count in the mean. The check compares numbers, then differentiates
# the loss numerically.
#
# More of this kind in `mha-numpy exercises`: `cross-entropy`, the loss itself; `museum-mean-of-means`, a bug that
# shipped; and two norms that stand in such blocks, `layer-norm` and `rms-norm`.


# %% tags=["exercise"]
def my_cross_entropy_backward(d_loss, logits, targets, ignored):
    """logits (B, T, V), targets (B, T) int -> d_logits (B, T, V).

    Forward was the mean of -log softmax(logits)[target] over all tokens whose target is not
    `ignored`. Logits may be in the thousands.
    """
    ...  # your code


# %% tags=["check"]
check("cross-entropy-backward", my_cross_entropy_backward)

# %% tags=["hint"]
# hint("cross-entropy-backward")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - The encoder reads the source once; each place of the decoder asks it through cross-attention.
# - In training the decoder reads the right words, moved by one; while it writes, its own.
# - The alignment crosses where the words cross. Nobody gave it; the loss did. On words that have no partner the
#   weights are not bound.
# - Say what a model can do as a share of what was held out, beside what chance gives.
# - Beams find what the model finds likely, which need not be right.
#
# **In the code:** `mha_numpy/models/translator.py`, `translate` in `mha_numpy/models/generate.py`,
# `mha_numpy/train/tasks/numbers.py`.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3; Bahdanau et al. 2015, *Neural Machine
# Translation by Jointly Learning to Align and Translate*; Sutskever et al. 2014, *Sequence to Sequence Learning with
# Neural Networks*, for beams; Koehn and Knowles 2017, *Six Challenges for Neural Machine Translation*, for weights
# that are no alignment.
#
# **Next:** [17, a language model on a text of your own](20_a-text-of-your-own.ipynb).
