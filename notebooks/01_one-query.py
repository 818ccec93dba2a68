# %% [markdown]
# # 01 · One query
#
# When the translator of notebook 00 writes *vierzig*, its head 0 gives *forty* 98 percent of the weight. Here is all that
# this head had before it: one vector for the word that it writes, the **query**, and one vector for each word that it
# reads, the **keys**. They come from trained params.

# %%
import numpy as np

from mha_numpy import attention_forward
from mha_numpy.models.train import load_trained
from mha_numpy.show.pictures import line_chart, matrices
from mha_numpy.show.walk import tokenize

np.set_printoptions(precision=3, suppress=True)
trained = load_trained("numbers")
(source, target), _ = trained.task.batch_of([245])
trained.model(source, target)
layer = trained.model.decoder[0].cross_attention.layer
known = layer.forward_cache.attention.inputs
vierzig, word_keys, word_values = known.q[0, 0, 4], known.k[0, 0], known.v[0, 0]
words = ["two", "hundred", "forty", "five"]
arrays = {"query of 'vierzig'": vierzig[None], "keys": word_keys}
matrices(arrays, row_labels=words, title="Made by trained params")

# %% [markdown]
# Which key fits the query best? Nobody sees that in 16 columns. Three lines of NumPy find it, and at the end of this
# notebook you will run them on these very numbers.
#
# **What you can do afterwards:** you can compute by hand what one query takes from its keys and values: the scores, the
# shares, and the mean.
#
# ## A dictionary that answers softly
#
# A Python dictionary compares a query with its keys and returns the value of the key that is *equal*. For a fruit that
# it does not hold, it has no answer.

# %%
prices = {"apple": 3.0, "lemon": 5.0, "melon": 8.0}
print(prices.get("nectarine"))

# %% [markdown]
# You would guess. A nectarine is a little like an apple and much like a melon, so its price is probably nearer to the
# melon's. Attention guesses in the same way: every key answers, and a key that fits better counts more.
#
# ## By hand
#
# Let each fruit be a vector of four numbers: sweet, sour, juicy, crisp. The nectarine is the query, the other fruits are
# the keys, and their prices are the values. You need three steps.
#
# **1. Scores.** The dot product tells how well a query fits a key. We divide it by $\sqrt{d_k}$, where $d_k$ is the
# number of entries of a key: here $\sqrt 4 = 2$. (Notebook 06 shows what goes wrong without it.)
#
# $$s_j = \frac{q \cdot k_j}{\sqrt{d_k}} \qquad \text{apple: } \frac{2 \cdot 1 + 1 \cdot 0 + 2 \cdot 1 + 0 \cdot 2}{2} = 2$$
#
# **2. Shares.** Softmax turns scores into weights: none is negative, and their sum is 1.
#
# $$w_j = \frac{e^{s_j}}{\sum_l e^{s_l}}$$
#
# **3. Mean.** The answer is the mean of the values, each counted by its weight: $\sum_j w_j v_j$.
#
# > **Predict first.** The scores of lemon and melon are 1 and 3. With $e^1 \approx 2.7$, $e^2 \approx 7.4$ and
# > $e^3 \approx 20.1$: what is the weight of the melon, and what is the price?

# %%
fruits = ["apple", "lemon", "melon"]
nectarine = np.array([2, 1, 2, 0])  # sweet, sour, juicy, crisp
fruit_keys = np.array([[1, 0, 1, 2], [0, 2, 0, 0], [2, 0, 1, 0]])
fruit_values = np.array([3.0, 5.0, 8.0])

scores = fruit_keys @ nectarine / np.sqrt(4)
weights = np.exp(scores) / np.exp(scores).sum()
price = weights @ fruit_values
print(f"price: {price:.2f}")
matrices(
    {"scores": scores, "weights": weights, "weight times price": weights * fruit_values},
    column_labels=fruits,
    shared=False,
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The three powers sum to 7.4 + 2.7 + 20.1 = 30.2. So the melon has 20.1 / 30.2, about 0.67, the apple 0.24 and the lemon
# 0.09. The price is 0.24 · 3 + 0.09 · 5 + 0.67 · 8, about 6.5.
#
# </details>
#
# These three lines are attention for one query. There is no more to come in this notebook, only other numbers.
#
# > **Predict first.** Multiply the query by a factor. What is the price for the factor 0, and what is it for a very
# > large one?

# %%
factors = 2.0 ** np.arange(-4, 4)
powers = np.exp(factors[:, None] * scores)
rows = powers / powers.sum(axis=1, keepdims=True)
title = "From the plain mean to the one best key"
lines = dict(zip(fruits, rows.T, strict=True))
line_chart(factors, lines, title=title, x_label="factor on the query", y_label="weight", log_x=True)

# %% [markdown]
# <details><summary>Answer</summary>
#
# For 0 all scores are 0, all weights are a third, and the price is the plain mean, 16 / 3. For a very large factor the
# melon takes everything: that is the Python dictionary again, but it needs no exact hit. Between the two everything
# changes smoothly. So there is a gradient, and a model can learn.
#
# </details>
#
# ## Words as vectors that we can read
#
# > The bank by the river had willow trees
#
# A *bank* can be a place for money or the side of a river. The other words tell which. We give each word five numbers
# that we can read. No training has found them; we wrote them down.

# %%
features = ["nature", "finance", "open", "noun", "article"]
meaning = {
    "the": (0, 0, 0, 0, 1),
    "bank": (0.5, 0.5, 1, 1, 0),  # open: this word waits for a hint
    "river": (1, 0, 0, 1, 0),
    "willow": (1, 0, 0, 0, 0),
    "trees": (1, 0, 0, 1, 0),
}
tokens = tokenize("The bank by the river had willow trees")
x = np.array([meaning.get(token.lower(), (0,) * 5) for token in tokens], dtype=float)
matrices({"x": x}, row_labels=tokens, column_labels=features)

# %% [markdown]
# ## Three roles of one token
#
# In a sentence every word, or *token*, plays all three roles. Each role has its own vector, made by its own matrix:
#
# $$q = x\,w_q, \qquad k = x\,w_k, \qquad v = x\,w_v$$
#
# - the **query** says what the token looks for;
# - the **key** says by what it can be found;
# - the **value** is what it hands over when it is found.
#
# `w_q`, `w_k` and `w_v` are the *params* of the head. A model learns them; here we write them down. Why is one vector
# not enough? What a word looks for is not what it is: "bank" looks for a *hint*, and it is not a hint itself.
#
# | column | `w_q`: who asks | `w_k`: who answers |
# |---|---|---|
# | a hint? | a word that is open | a word with a topic that is not open |
# | a noun? | an article | a noun |
#
# The value hands over the first three numbers: nature, finance, and whether the word is open.

# %%
w_q = np.array([[0, 0], [0, 0], [5, 0], [0, 0], [0, 5]])  # a row for each feature
w_k = np.array([[1, 0], [1, 0], [-1, 0], [0, 1], [0, 0]])
w_v = np.eye(5)[:, :3]
matrices({"w_q": w_q, "w_k": w_k}, row_labels=features, column_labels=["a hint?", "a noun?"])

# %% [markdown]
# ## One query, by hand
#
# Follow "bank", token 1. Its query is (5, 0): it asks for a hint, five times as loudly as 1.
#
# > **Predict first.** Which words get a score above 0? Roughly how much weight has each of them? ($5 / \sqrt 2$ is about
# > 3.54, and $e^{3.54}$ is about 34.)

# %%
q, k, v = x[1] @ w_q, x @ w_k, x @ w_v
bank_scores = k @ q / np.sqrt(2)
bank_weights = np.exp(bank_scores) / np.exp(bank_scores).sum()
arrays = {"scores of 'bank'": bank_scores, "weights of 'bank'": bank_weights}
matrices(arrays, column_labels=tokens, shared=False)

# %% [markdown]
# <details><summary>Answer</summary>
#
# *River*, *willow* and *trees* score 3.54; all others score 0, "bank" too: 0.5 + 0.5 - 1. The powers sum to
# 3 · 34 + 5 · 1 = 107, so each of the three has 34 / 107, a little less than a third.
#
# </details>
#
# The mean of the values by these weights is what "bank" receives. It is no longer half nature and half finance:

# %%
out = bank_weights @ v
rows = np.stack([v[1], out])
matrices({"bank": rows}, row_labels=["before", "after"], column_labels=features[:3])

# %% [markdown]
# ## The library, and the trained head
#
# `attention_forward` does the same three steps. It also subtracts the largest score before it takes powers: that
# changes no weight, and large scores do not overflow (notebook 07). It takes several queries at a time, so we give it a
# matrix of one row.

# %%
library_out, cache = attention_forward(q[None], k, v)
print("by hand:", out, " library:", library_out[0])

# %% [markdown]
# And now the three lines on the numbers from the top, with 16 columns and trained params. Below them stands what the model
# itself computed when it wrote *vierzig*.

# %%
trained_scores = word_keys @ vierzig / np.sqrt(16)
trained_weights = np.exp(trained_scores) / np.exp(trained_scores).sum()
by_the_model = layer.weights[0, 0, 4]
print("equal:", np.allclose(trained_weights, by_the_model))
arrays = {"your scores": trained_scores, "your weights": trained_weights}
arrays |= {"the model's weights": by_the_model}
matrices(arrays, column_labels=words, title="The row 'vierzig'", shared=False)

# %% [markdown]
# The weights are equal. The row of the picture in notebook 00 is no riddle any more: a dot product with each key,
# shares, done.
#
# One thing is left open. Here *one* token asked. In a sentence every token asks, and each has a row of its own. The next
# notebook computes all rows at once.
#
# ## Exercise: one query
#
# Write the three steps as a function. One of the check's inputs has scores in the thousands, for which `np.exp` is
# infinite. Subtract the largest score from all scores first: all powers shrink by the same factor, so no weight changes.
#
# More of this kind in `mha-numpy exercises`: `softmax`, the second step alone, for whole matrices.


# %% tags=["exercise"]
def my_one_query(q, k, v):
    """q (d_k,), k (T_k, d_k), v (T_k, d_v) -> (d_v,): softmax(k q / sqrt(d_k)) v."""
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("one-query", my_one_query)

# %% tags=["hint"]
# hint("one-query")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - A query is compared with each key by a dot product, divided by $\sqrt{d_k}$: a *score*.
# - Softmax turns the scores into *weights*: none is negative, and they sum to 1.
# - The result is the mean of the *values* by these weights.
# - Every token has all three vectors: what it looks for, by what it is found, and what it hands over.
#
# **In the code:** steps 1, 4 and 6 of `attention_steps` in `mha_numpy/core/attention.py`.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.1; Bahdanau et al. 2015 for the idea of a
# soft search.
#
# **Next:** [02, one head](02_one-head.ipynb).
