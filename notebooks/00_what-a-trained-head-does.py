# %% [markdown]
# # 00 · What a trained head does
#
# Here is a small model that has learned to translate. Run the cell, then write a number of your own, below a
# million, and run it again.

# %%
import numpy as np

from mha_numpy.models import AttentionOnlyLM, translate
from mha_numpy.models.train import load_trained
from mha_numpy.models.train.tasks import GERMAN, english, german
from mha_numpy.show.pictures import bar_chart, weights_by_head

trained = load_trained("numbers")
model, task = trained.model, trained.task
your_number = "two hundred forty-five"


def say(text):
    """Translate English number words into German ones."""
    ids = translate(model, task.read(text))
    return " ".join(task.words(ids, GERMAN)).removesuffix(" <end>")


print(say(your_number))

# %% [markdown]
# German says the units before the tens: *fünf und vierzig* is "five and forty". So the words change places. A model
# that copied from left to right would be wrong here, and this one is right. How does it know where to look?
#
# **What you can do afterwards:** you can read a picture of attention weights, and you can find out what a head is
# good for: you switch it off.
#
# You need no definition for that. The definitions come in the next five notebooks, one at a time. Together they take
# an hour.
#
# ## It looks at one word while it writes another
#
# The model writes one word after the other. Each time, two *heads* take a share from each English word. These shares are
# the *attention weights*.
#
# > **Predict first.** The model writes *vierzig* (forty). Which English word has the longest bar?


# %%
def looks(n):
    """(heads, words written, words read): the attention weights for one number."""
    (source, target), _ = task.batch_of([n])
    model(source, target)
    return model.decoder[0].cross_attention.layer.weights[0]


written, read = [*german(245), "<end>"], english(245)
row = looks(245)[0, written.index("vierzig")]
title = "Where head 0 looks while it writes 'vierzig' (trained params)"
bar_chart(dict(zip(read, 100 * row, strict=True)), title=title, unit="percent")

# %% [markdown]
# <details><summary>Answer</summary>
#
# *Forty*, with 98 percent.
#
# </details>
#
# Now all words and both heads. Each bar chart has become a row: a row is a word that is written, a column is a word that
# is read.

# %%
names = {"query_name": "it writes", "key_name": "it looks at"}
weights_by_head(looks(245), written, read, note="Trained params.", **names)

# %% [markdown]
# Look at the rows *fünf* and *vierzig*: the model goes to the last English word, and then one back. This is the crossing.
#
# The rest of the picture tells something as well. *Und* (and) has no English word of its own, and the two heads look at
# different words. The training did not have to decide that. Each row sums to 1: what one word gains, the others lose.
#
# ## Switch a head off
#
# A picture suggests what a head does. A cut shows it: we let the head write zeros, and the rest of the model stays as
# it is.
#
# > **Predict first.** What does the model write without head 0? And without both heads?

# %%
from mha_numpy.models.analysis import cut_heads

layer = model.decoder[0].cross_attention.layer
cuts = {"whole": [], "without head 0": [0], "without head 1": [1], "without both": [0, 1]}
for name, heads in cuts.items():
    with cut_heads(layer, heads):
        print(f"{name:15}", *(f"{n}: {say(' '.join(english(n))):38}" for n in (245, 78)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Without one head it still translates: the other one is enough for these numbers. Without both it writes the same for
# every number: five hundred thousand and sixty-eight. The words and their order are good German. But nothing in them
# comes from the source, because these two heads were the only way from the source to the page.
#
# </details>
#
# Two numbers prove little. We count on 50 numbers that the training never used:

# %%
numbers = task.draw_held_out(np.random.default_rng(1), 50)
right = {}
for name, heads in cuts.items():
    with cut_heads(layer, heads):
        answers = [say(" ".join(english(n))) == " ".join(german(n)) for n in numbers]
    right[name] = 100 * np.mean(answers)
bar_chart(right, title="Numbers that are right to the last word", unit="percent of 50")

# %% [markdown]
# ## A head that is alone
#
# The next model is smaller still: one layer, **one head**. It reads twelve digits and has to say them in reverse.

# %%
reverser = load_trained("reverse").model
digits = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])
print("it reads:    ", *digits[0])
print("it says:     ", *reverser(digits).argmax(axis=-1)[0])
with cut_heads(reverser.attentions[0], 0):
    print("without head:", *reverser(digits).argmax(axis=-1)[0])

# %% [markdown]
# > **Predict first.** The first digit that it says is the last one that it has read. What pattern will its weights
# > make? And what pattern do they make in a model with random params, that has learned nothing?

# %%
untrained = AttentionOnlyLM(10, 12, embed_dim=32, num_heads=1, num_layers=1, is_causal=False, rng=0)
pair = [untrained, reverser]
for each in pair:
    each(digits)
weights_by_head(
    np.stack([each.attentions[0].weights[0, 0] for each in pair]),
    list(map(str, digits[0])),
    head_names=["random params", "trained params"],
    note="One head, before and after its training.",
    query_name="it answers at",
    key_name="it looks at",
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The other diagonal: from the top right to the bottom left. With random params the head looks here and there, and
# nothing in the task explains where.
#
# </details>
#
# Nobody wrote this diagonal into the model. There is no rule about places in its code. Training has put it there, by
# many small steps, and you will see how.
#
# ## Two heads that work together
#
# The third model reads letters, each time new ones, and guesses the next. When letters come back, it can know what
# follows. Here are two of its eight heads, one of each layer:

# %%
copier = load_trained("induction").model
letters = np.array(list("abcdefghijklmnopqrstuvwxyzABCDEF"))
ids = np.array([[7, 2, 9, 4, 0, 7, 2, 9, 4]])
text = list(letters[ids[0]])
print("it reads:        ", *text)
print("it guesses next: ", letters[copier(ids).argmax(axis=-1)[0, -1]])
two = np.stack([copier.attentions[0].weights[0, 0], copier.attentions[1].weights[0, 3]])
with cut_heads(copier.attentions[0], 0):
    print("without head 0.0:", letters[copier(ids).argmax(axis=-1)[0, -1]])
names = {"query_name": "at this letter", "key_name": "it looks at"}
weights_by_head(two, text, head_names=["head 0.0", "head 1.3"], note="Trained params.", **names)

# %% [markdown]
# Head 0.0 looks at the letter before: in every row but the first, which has none before it, the dark cell is one place
# left of the diagonal. Head 1.3 uses that. In the last rows it looks at the letter that *followed* the last time, and this
# is the guess. Without head 0.0, the model no longer knows how the letters go on.
#
# Three models, three patterns. Be careful with general sentences, though: what is said here is said of these tasks and
# these training runs. In large models most heads do several things.
#
# ## The first hour
#
# You have seen *that* it works. Each of the next notebooks answers one question, and leaves another one open, which
# the notebook after it takes up:
#
# | notebook | minutes | what it answers | what it leaves open |
# |---|---|---|---|
# | 00 What a trained head does | 8 | What does a head do? | Where do the weights come from? |
# | [01 One query](01_one-query.ipynb) | 10 | How does one row come about? | Every word asks, not one. |
# | [02 One head](02_one-head.ipynb) | 12 | How are all rows computed at once? | A word has one row: two questions share it. |
# | [03 Many heads](03_many-heads.ipynb) | 12 | How does a word get several rows? | Who sets the numbers in the params? |
# | [04 Through it backward](04_through-it-backward.ipynb) | 10 | How does a loss reach every param? | Does that really make such a diagonal? |
# | [05 The trained head, understood](05_the-trained-head-understood.ipynb) | 8 | Why does the head of this notebook look where it looks? | |
#
# After the first hour you can go wherever you like:
#
# - **deeper**, 06 to 14: the square root of d_k, a stable softmax, masks, memory, cutting heads, and each backward;
# - **variants**, 15 to 19: cross-attention, shared keys and values, positions;
# - **learning**, 20 to 22: watch heads appear, train the translator, train on a text of your own;
# - **real heads**, 23 and 24: what the heads of a pretrained model look at, and how many of them it needs;
# - **cost, bridges, exam**, 25 to 29: what it costs, PyTorch and Keras, questions as in an oral exam.
#
# ## Exercise: where does each query look?
#
# In these pictures a row is called a *query*, and a column is called a *key*. Write the function that reads such a
# picture: for each row of each head it returns the number of the column with the largest weight. One line is
# enough. The check names your mistake if there is one.
#
# The other exercises are listed by `mha-numpy exercises`; each notebook names those that belong to it. The one of the
# next notebook is `one-query`.


# %% tags=["exercise"]
def my_strongest_keys(weights):
    """weights (H, T_q, T_k) -> (H, T_q): for each query, the number of its strongest key."""
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("strongest-keys", my_strongest_keys)

# %% tags=["hint"]
# hint("strongest-keys")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - A head decides, for each place where something is written, how much it takes from each place that is read.
# - These shares are the attention weights. A row is a query, a column is a key, and a row sums to 1.
# - A cut shows what a head is needed for. If nothing breaks, another head may have done its work.
# - The patterns were learned. With random params there are none.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*; Bahdanau et al. 2015, *Neural Machine Translation by
# Jointly Learning to Align and Translate*, whose figure 3 is the first such picture; Olsson et al. 2022, *In-context
# Learning and Induction Heads*.
#
# **Next:** [01, one query](01_one-query.ipynb): you compute the row *vierzig* yourself.
