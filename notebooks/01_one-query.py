# %% [markdown]
# # 01 · One query
#
# *About 11 minutes, with the exercise.*
#
# What does a nectarine cost, if your price list has only apples, lemons and melons? A head has the same problem:
# nothing it reads is exactly what it's looking for. You'll do its sums by hand, first for a nectarine, then for a
# word. At the end, the same three lines reproduce a row of a trained model: *vierzig*, from notebook 00.
#
# **By the end you can** compute by hand what one query takes from its keys and values: the scores, the
# weights, and the mean.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy.models.analysis import attention_layers
from mha_numpy.models.train import load_trained
from mha_numpy.show.pictures import matrices

np.set_printoptions(precision=3, suppress=True)

# %% [markdown]
# ## A dictionary that can guess
#
# Ask a Python dictionary for a key, and it returns the value of the one that matches exactly.

# %%
prices = {"apple": 3.0, "lemon": 5.0, "melon": 8.0}
print(prices.get("nectarine"))

# %% [markdown]
# No key matches, so you have to guess. A nectarine is a little like an apple or a lemon, and a lot like a melon, so
# the melon's price should count most. That is how attention guesses. Every key answers, and the better it fits, the
# more its value counts.
#
# ## By hand
#
# Describe each fruit by four numbers: how sweet, sour, juicy and crisp it is. The nectarine, (2, 1, 2, 0), is the
# *query*. The other fruits are the *keys*, with (1, 0, 1, 2) for the apple, and their prices are the *values*.
#
# **1. Scores.** The dot product measures how well a query fits a key. We divide it by $\sqrt{d_k}$, where $d_k$ is the
# number of entries in a key, so here by $\sqrt 4 = 2$. (Notebook 06 shows why.)
#
# $$s_j = \frac{q \cdot k_j}{\sqrt{d_k}} \qquad \text{apple: } \frac{2 \cdot 1 + 1 \cdot 0 + 2 \cdot 1 + 0 \cdot 2}{2} = 2$$
#
# **2. Weights.** *Softmax* turns the scores into shares that sum to 1. The largest score gets the most, but not all.
# (Why *e*? A score that is larger by 1 gets 2.7 times the weight, whatever the others are.)
#
# $$w_j = \frac{e^{s_j}}{\sum_l e^{s_l}}$$
#
# **3. Mean.** The answer is the weighted mean of the values: $\sum_j w_j v_j$.
#
# > **Predict first.** The lemon also scores 2, and the melon 3. With $e^2 \approx 7.4$ and $e^3 \approx 20.1$, what
# > does the nectarine cost?
# >
# > <!-- answer: 6.3 within 0.2 -->

# %%
nectarine = np.array([2, 1, 2, 0])  # sweet, sour, juicy, crisp
keys = np.array([[1, 0, 1, 2], [0, 2, 1, 0], [2, 0, 1, 0]])
prices = np.array([3.0, 5.0, 8.0])

scores = keys @ nectarine / np.sqrt(4)
weights = np.exp(scores) / np.exp(scores).sum()
print("price:", (weights @ prices).round(2))

# %% tags=["hide-input"]
fruits = ["apple", "lemon", "melon"]
arrays = {"scores": scores, "weights": weights}
matrices(arrays, column_labels=fruits, shared=False)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The three powers sum to 7.4 + 7.4 + 20.1 = 34.9, so the melon has 20.1 / 34.9, about 0.58, and the others 0.21 each.
# The price is 0.21 · 3 + 0.21 · 5 + 0.58 · 8, about 6.3.
#
# </details>
#
# That is attention for one query: scores, weights, mean. From here on, only the numbers change.
#
# ## Words as vectors you can read
#
# > The bank by the river had willow trees
#
# A *bank* can be a place for money or the side of a river. You can tell which from the other words. To let a head do
# the same, we describe each word by five numbers, its row of `x`. (*Open* means that the word's meaning isn't settled
# yet.) These aren't learned; we made them up.

# %%
features = ["nature", "finance", "open", "noun", "article"]
meaning = {
    "the": [0, 0, 0, 0, 1],
    "bank": [0.5, 0.5, 1, 1, 0],
    "river": [1, 0, 0, 1, 0],
    "willow": [1, 0, 0, 0, 0],
    "trees": [1, 0, 0, 1, 0],
}
tokens = "The bank by the river had willow trees".split()
x = np.array([meaning.get(t.lower(), [0] * 5) for t in tokens])
matrices({"x": x}, row_labels=tokens, column_labels=features)

# %% [markdown]
# ## Three roles of one token
#
# In a sentence every word, or *token*, plays all three roles. A separate matrix makes its vector for each role:
#
# $$q = x\,w_q, \qquad k = x\,w_k, \qquad v = x\,w_v$$
#
# - the **query** says what the token looks for;
# - the **key** says how it can be found;
# - the **value** is what it hands over once it's found.
#
# These matrices are the head's *params*. Why isn't one vector enough? Because what a word is looking for isn't what
# it is. "Bank" is looking for a *hint*; it isn't one.
#
# Our `w_q` and `w_k` have two columns. In the first, an open word asks for a hint, and any word that has a topic and
# isn't open itself answers. In the second, an article asks for a noun, and a noun answers.
#
# As its value, a word hands over its first three numbers: nature, finance, open.

# %%
w_q = np.array([[0, 0], [0, 0], [5, 0], [0, 0], [0, 5]])
w_k = np.array([[1, 0], [1, 0], [-1, 0], [0, 1], [0, 0]])
w_v = np.eye(5)[:, :3]
matrices(
    {"w_q": w_q, "w_k": w_k},
    row_labels=features,
    column_labels=["a hint?", "a noun?"],
)

# %% [markdown]
# ## One query, by hand
#
# The query of "bank", token 1, is (5, 0), so it asks for a hint, with strength 5: each score is 5 times the key's
# answer, divided by $\sqrt 2$.
#
# > **Predict first.** Three words get a score above 0. How much weight does each of them get? ($5 / \sqrt 2$ is about
# > 3.54, and $e^{3.54}$ is about 34.)
# >
# > <!-- answer: 0.32 within 0.03 -->

# %%
q, k, v = x[1] @ w_q, x @ w_k, x @ w_v
scores = k @ q / np.sqrt(2)
weights = np.exp(scores) / np.exp(scores).sum()
matrices(
    {"scores of 'bank'": scores, "weights of 'bank'": weights},
    column_labels=tokens,
    shared=False,
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# *River*, *willow* and *trees* score 3.54, and all others score 0. The powers sum to 3 · 34 + 5 · 1 = 107, so each of
# the three gets 34 / 107, about 0.32.
#
# </details>
#
# "Bank" receives the weighted mean of the values. It is no longer half nature and half finance:

# %%
matrices(
    {"bank": np.stack([v[1], weights @ v])},
    row_labels=["before", "after"],
    column_labels=features[:3],
)

# %% [markdown]
# ## The trained head
#
# The translator from notebook 00 has read *two hundred forty five*. While it writes *vierzig*, its head 0 has a query
# of 16 numbers, and a key of 16 numbers for each English word. Can you see which key fits best?

# %% tags=["hide-input"]
trained = load_trained("numbers")
(source, target), _ = trained.task.batch_of([245])
trained.model(source, target)
*_, layer = attention_layers(trained.model).values()
inputs = layer.forward_cache.attention.inputs
vierzig, word_keys = inputs.q[0, 0, 4], inputs.k[0, 0]
words = ["two", "hundred", "forty", "five"]
matrices(
    {"query of 'vierzig'": vierzig[None], "keys": word_keys},
    row_labels=words,
)

# %% [markdown]
# Not by eye. Two lines of code can:

# %%
scores = word_keys @ vierzig / np.sqrt(16)
weights = np.exp(scores) / np.exp(scores).sum()
matrices(
    {"vierzig": np.stack([weights, layer.weights[0, 0, 4]])},
    row_labels=["yours", "the model's"],
    column_labels=words,
)

# %% [markdown]
# So far only *one* token has asked. In the next notebook they all ask at once.
#
# ## Exercise: one query (5 minutes)
#
# Write the three steps as a function. One of the check's inputs has scores in the thousands, where `np.exp` overflows.
# So first subtract the largest score from all of them. That divides every power by the same number, so the weights
# don't change.
#
# To practise more: `softmax` in `mha-numpy exercises`, the second step for whole matrices.


# %% tags=["exercise"]
def my_one_query(q, k, v):
    """q (d_k,), k (T_k, d_k), v (T_k, d_v) -> (d_v,).

    softmax(k q / sqrt(d_k)) v
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("one-query", my_one_query)

# %% tags=["hint"]
# hint("one-query")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - A *score* is the dot product of a query and a key, divided by $\sqrt{d_k}$.
# - Softmax turns the scores into *weights*, shares that sum to 1.
# - The result is the weighted mean of the *values*.
# - Every token has all three vectors: what it looks for, how it is found, and what it hands over.
#
# **In the code:** steps 1, 4 and 6 of `attention_steps` in `mha_numpy/core/attention.py`.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.1; Bahdanau et al. 2015 for the idea of a
# soft search.
#
# **Next:** [02, one head](02_one-head.ipynb).
