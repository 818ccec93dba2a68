# %% [markdown]
# # 00 · What a trained head does
#
# *About 10 minutes, with the exercise.*
#
# This small model has learned to say twelve digits backwards. Here we give it the first twelve `digits` of π. If you'd
# rather use your own, change `digits` and run the cell again. (On the website, first press **Run in your browser**.)

# %% tags=["hide-input"]
import numpy as np

from mha_numpy.models.analysis import cut_heads
from mha_numpy.models.train import load_trained, share_right
from mha_numpy.show.pictures import (
    bar_chart,
    matrices,
    weights_by_head,
)

# %%
digits = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
model = load_trained("reverse").model
head = model.attentions[0]  # it keeps the weights of the last run


def say(digits):
    """At each place, the digit that the model finds most likely."""
    return model(np.array([digits]))[0].argmax(axis=-1)


# %% tags=["hide-input"]
matrices(
    {"digit at each place": np.stack([digits, say(digits)])},
    row_labels=["reads", "says"],
    column_labels=range(12),
)

# %% [markdown]
# Nothing in its code says "backwards". The model is made of 5,120 numbers, its *parameters* (*params* for short), and
# training picked them. With other params the same code could copy the digits instead. So how does it know where to
# look?
#
# **By the end you can** read a picture of attention weights, and find out what a head is for by switching it off.
#
# ## Where it looks while it writes one digit
#
# The part of a model that looks is called a *head*. This model has one. For each digit the model writes, the head
# decides how much to take from each digit it has read. These shares are the *attention weights*, and they add up to
# 1.
#
# > **Predict first.** The third digit that it writes is a 3. There are two 3s to look at, one at place 0 and one at
# > place 9. Which bar will be the longest?
# >
# > - place 0
# > - place 9
# > - both the same
# >
# > <!-- answer: place 9 -->

# %% tags=["hide-input"]
third = 100 * head.weights[0, 0, 2].round(3)
names = [f"{d} (place {i})" for i, d in enumerate(digits)]
bars = dict(zip(names, third, strict=True))
bar_chart(
    bars, title="Taken from each digit", unit="percent", head=0
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Place 9, third from the end, gets almost everything, and the other 3 gets next to nothing. So the head isn't looking
# for *a 3*. It's going to *a place*.
#
# </details>
#
# ## All rows in one picture
#
# Now draw each bar as a cell: the larger the share, the stronger the colour. That way all twelve bar charts fit into
# one picture. Each row is a digit to write, and what it asks for is its *query*. Each column is a digit it has read,
# which answers with its *key*.
#
# > **Predict first.** What pattern will the coloured cells make?
# >
# > - a diagonal from the top left
# > - a diagonal from the top right
# > - no pattern
# >
# > <!-- answer: a diagonal from the top right -->

# %% tags=["hide-input"]
weights_by_head(
    head.weights[0],
    say(digits),
    digits,
    query_name="it writes",
    key_name="it reads",
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# A diagonal from the top right to the bottom left: the last digit first, the first digit last.
#
# </details>
#
# We didn't put it there. At first all params were random, and so was the picture. Training made the diagonal in many
# small steps, and in notebook 04 you can watch it appear.
#
# ## Switch the head off
#
# Does this head really do the reversing? Let's switch it off (a *cut*), so that it passes on nothing but zeros, and
# leave the rest of the model alone.
#
# > **Predict first.** What will the model write now?
# >
# > - the digits in their own order
# > - the digits in some other order
# > - something else
# >
# > <!-- answer: something else -->

# %%
print("it reads:        ", *digits)
print("with its head:   ", *say(digits))
with cut_heads(head, 0):
    print("without its head:", *say(digits))

# %%
task = load_trained("reverse").task
(rows,), answers = task.draw_batch(np.random.default_rng(1), 500)
print(f"with its head: {share_right(model(rows), answers):.0%}")
with cut_heads(head, 0):
    print(f"without it:    {share_right(model(rows), answers):.0%}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Something else. It even writes a 7 and a 0, which it never read, and in 500 new rows only 11% of its digits are right.
# Guessing gets 10%. The head was the only connection between places. Without it, each place sees nothing but
# its own digit.
#
# </details>
#
# ## When a cut changes nothing
#
# Does a cut always break something? A second model has learned to translate numbers from English into German, and it
# reads the English words with **two** heads. German puts the units before the tens, so *forty-five* becomes *fünf und
# vierzig*, "five and forty".

# %% tags=["hide-input"]
from mha_numpy.models import translate
from mha_numpy.models.analysis import attention_layers
from mha_numpy.models.train.tasks import GERMAN, english, german

numbers = load_trained("numbers")
translator, task = numbers.model, numbers.task
*_, readers = attention_layers(translator).values()


def in_german(number):
    """What the model makes of the English words for a number."""
    words = task.read(" ".join(english(number)))
    ids = translate(translator, words)
    return " ".join(task.words(ids, GERMAN)[:-1])


(source, target), _ = task.batch_of([245])
translator(source, target)
weights_by_head(
    readers.weights[0],
    [*german(245), "<end>"],
    english(245),
    query_name="it writes",
    key_name="it reads",
)

# %% [markdown]
# While it writes *fünf*, each head looks mostly at *five*. For *vierzig*, each goes back to *forty*. What if we switch
# one of them off?

# %%
for cut in [], [0], [1], [0, 1]:
    with cut_heads(readers, cut):
        print("without", cut, "it says", in_german(245))

# %% [markdown]
# For this number either head is enough. With both off, the model still writes good German, but it's the wrong number,
# because nothing from the English words gets through any more. So if a cut changes nothing, another head may be doing
# the same job.
#
# All of this is about two small models. In large models, most heads do several things.
#
# ## The first hour
#
# Each of the next notebooks answers one question, and leaves one open for the next:
#
# | notebook | minutes | what it answers | what it leaves open |
# |---|---|---|---|
# | 00 What a trained head does | 10 | What does a head do? | Where do the weights come from? |
# | [01 One query](01_one-query.ipynb) | 11 | How is one row computed? | What if every word asks? |
# | [02 One head](02_one-head.ipynb) | 9 | How are all rows computed at once? | What if a word needs several rows? |
# | [03 Many heads](03_many-heads.ipynb) | 10 | How can one word ask several questions? | Who chooses the params? |
# | [04 Going backwards](04_through-it-backward.ipynb) | 11 | How does training find good params? | How did training know where the head should look? |
# | [05 The trained head, understood](05_the-trained-head-understood.ipynb) | 9 | Why does our head look where it looks? | |
#
# After this hour you can read any of the other notebooks.
#
# ## Exercise: where does each query look? (3 minutes)
#
# Write a function that reads such a picture: for each row (query) of each head, it returns the number of the column
# (key) with the largest weight. One line is enough.


# %% tags=["exercise"]
def my_strongest_keys(weights):
    """weights (H, T_q, T_k) -> (H, T_q), whole numbers.

    For each query, the number of its strongest key.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("strongest-keys", my_strongest_keys)

# %% tags=["hint"]
# hint("strongest-keys")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - For each digit or word that the model writes, a head decides how much to take from each one that it reads.
# - These shares are the attention weights. A row belongs to a query, a column to a key, and each row sums to
#   1.
# - Switching a head off shows what the rest can do without it. If nothing breaks, another head may do the same job.
# - The diagonal is learned. We didn't write it into the model.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*; Bahdanau et al. 2015, *Neural Machine Translation by
# Jointly Learning to Align and Translate*, whose figure 3 is the first such picture.
#
# **Next:** [01, one query](01_one-query.ipynb), in which you compute the row *vierzig* yourself.
