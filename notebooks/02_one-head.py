# %% [markdown]
# # 02 · One head
#
# *About 9 minutes. Leave the exercise until after the hour.*
#
# In notebook 01 only one word did the asking: "bank", in "The bank by the river had willow trees". Here all eight ask
# at once, and each has its own row in this picture. What does such a picture tell you about the head, and what
# doesn't it tell you? (The folded cells have the imports, and the vectors and params of notebook 01.)

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import attention_forward, compare
from mha_numpy.show.pictures import matrices, weights_by_head

np.set_printoptions(precision=3, suppress=True)

# %% tags=["hide-input"]
features = ["nature", "finance", "open", "noun", "article"]
meaning = {
    "the": [0, 0, 0, 0, 1],
    "bank": [0.5, 0.5, 1, 1, 0],
    "river": [1, 0, 0, 1, 0],
    "willow": [1, 0, 0, 0, 0],
    "trees": [1, 0, 0, 1, 0],
}


def vectors(tokens):
    """(T, D): a word that is not listed has no feature at all."""
    rows = [meaning.get(t.lower(), [0] * 5) for t in tokens]
    return np.array(rows)


w_q = np.array([[0, 0], [0, 0], [5, 0], [0, 0], [0, 5]])
w_k = np.array([[1, 0], [1, 0], [-1, 0], [0, 1], [0, 0]])
w_v = np.eye(5)[:, :3]  # hands over nature, finance, open
tokens = "The bank by the river had willow trees".split()
x = vectors(tokens)
q, k, v = x @ w_q, x @ w_k, x @ w_v
_, cache = attention_forward(q, k, v)
weights_by_head(
    cache.weights[None], tokens, note="Params that we made up."
)

# %% [markdown]
# **By the end you can** write a head for all queries at once, name the shape of every array in it, and
# explain what a picture of its weights shows and what it doesn't.
#
# ## All queries at once
#
# First, where the picture comes from. We could loop over the queries, as in notebook 01, but one line of matrix
# products computes the same numbers:
#
# $$\text{out} = \mathrm{softmax}\left(\frac{q\,k^\top}{\sqrt{d_k}}\right) v$$


# %%
def softmax(scores):
    """Along each row: shares of the keys, for one query."""
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


# %%
one_by_one = [softmax(k @ row / np.sqrt(2)) @ v for row in q]
at_once = softmax(q @ k.T / np.sqrt(2)) @ v
compare({"out": at_once}, {"out": np.stack(one_by_one)})

# %% [markdown]
# > **Predict first.** There are T = 8 tokens. A query and a key have d_k = 2 numbers, and a value has d_v = 3. What is
# > the shape of the weights?
# >
# > - 8 by 2
# > - 8 by 3
# > - 8 by 8
# >
# > <!-- answer: 8 by 8 -->

# %%
scores = q @ k.T / np.sqrt(2)
weights = softmax(scores)
out = weights @ v
print("q", q.shape, "scores", scores.shape)
print("weights", weights.shape, "out", out.shape)
matrices({"scores": scores}, row_labels=tokens)

# %% [markdown]
# <details><summary>Answer</summary>
#
# `q` is 8 by 2. Scores and weights are 8 by 8, every token against every token. The output is 8 by 3.
#
# </details>
#
# Now go back to the picture at the top. It has three kinds of rows:
#
# - "bank" asks for a hint, and looks at *river*, *willow* and *trees*;
# - "The" and "the" ask for a noun, and look at *bank*, *river* and *trees*;
# - "by" and the others ask for nothing, so all their scores are 0. A softmax can't say "nobody", so they get the
#   plain mean of everything.
#
# ## An output is a mean
#
# > **Predict first.** Add up the weights. Which sums are all 1?
# >
# > - only those of the rows
# > - only those of the columns
# > - both
# >
# > <!-- answer: only those of the rows -->

# %%
rows, columns = weights.sum(axis=1), weights.sum(axis=0)
sums = {"sum of each row": rows, "sum of each column": columns}
matrices(sums, column_labels=tokens)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Every row sums to 1. The columns don't, because three tokens ask for words like *river*, and none asks for *by*.
#
# </details>
#
# The weights of a row are shares, so each output is a mean, and a mean lies between the values. A head can choose and
# blend. It can't produce anything bigger than what's already there.
#
# Now let's test the picture. We change one thing at a time. Does the picture change? And does the output?
#
# ## New neighbours, new meaning
#
# First we change the words. Keep "bank" and the params, but give it three new neighbours:
#
# > The bank by the market had cheap loans
#
# Two sentences of the same length make a *batch*. So `x` becomes [B, T, D]: B = 2 sentences of T = 8 words, and D = 5
# numbers for each word. The same line computes both outputs, [B, T, d_v].
#
# > **Predict first.** In this sentence "bank" leans towards finance. Which weights in its row change?
# >
# > - all of them
# > - only those of the new words
# > - none
# >
# > <!-- answer: none -->

# %%
meaning |= {
    "market": [0, 1, 0, 1, 0],
    "cheap": [0, 1, 0, 0, 0],
    "loans": [0, 1, 0, 1, 0],
}
others = "The bank by the market had cheap loans".split()
both = np.stack([x, vectors(others)])  # (B, T, D)
out, cache = attention_forward(both @ w_q, both @ w_k, both @ w_v)
print(both.shape, "->", cache.weights.shape, "->", out.shape)

# %% tags=["hide-input"]
names = "The bank by the river/market had willow/cheap trees/loans"
matrices(
    {"weights of 'bank'": cache.weights[:, 1]},
    row_labels=["by river", "by market"],
    column_labels=names.split(),
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# None. The new words are hints too, with the same keys. They just hand over something different:
#
# </details>

# %%
matrices(
    {"bank": np.stack([v[1], *out[:, 1]])},
    row_labels=["before", "by river", "by market"],
    column_labels=features[:3],
)

# %% [markdown]
# The same picture, and a different output. So the weights say *where* a head looks, and the values say *what* it brings
# back.
#
# ## A head doesn't know the order
#
# Next we shuffle the words it reads, write all of them twice, or only one of them:


# %%
def output(rows):
    """What the head returns if it reads these words."""
    return softmax(q @ k[rows].T / np.sqrt(2)) @ v[rows]


orders = {
    "shuffled": np.random.default_rng(0).permutation(8),
    "all twice": np.arange(8).repeat(2),
    "one twice": np.append(np.arange(8), 0),
}
compare(
    {name: output(rows) for name, rows in orders.items()},
    dict.fromkeys(orders, at_once),
)

# %% [markdown]
# Twice it's the same output. Each key keeps its value, and a mean doesn't care what order the values come in, or
# whether you write *all* of them twice. If you write only one twice, it counts twice. To this head a sentence is a bag
# of words. The order has to come from somewhere else: from positions or, layer by layer, from a causal mask (both in
# notebook 18).
#
# ## What weights show, and what they don't
#
# Last, we change a single key. A large weight looks like influence, but token j contributes its weight *times its
# value*, $w_j v_j$, and a value can be 0, like that of "by". Watch what happens if "by" gives the strongest answer when
# "bank" asks for a hint:

# %%
strong = k.copy()
strong[2, 0] = 1.5  # "by"
_, cache = attention_forward(q, strong, v)
heard = cache.weights[1]
arrives = np.linalg.norm(heard[:, None] * v, axis=1)
matrices(
    {"weight": heard, "length of weight times value": arrives},
    column_labels=tokens,
)

# %% [markdown]
# "By" takes most of the weight that "bank" has to give, and hands over nothing. That is how a head can choose "nobody"
# after all. (Clark et al. 2019 suggest that heads of BERT use a separator token for this.)
#
# So a picture of weights shows where a head reads. It doesn't show what the head finds there, nor what other heads and
# later layers make of it.
#
# ## Two candidates for "it"
#
# What does a row look like if a word has two questions?
#
# > The animal didn't cross the street because it was too tired
#
# "It" is the animal. Had the sentence ended in *too wide*, it would have been the street. To tell which, a reader
# needs two things: the nouns, and the describing word, *tired*. Let "it" ask for the nouns, then for the describing
# word, then for both. (We made up the scores; there are no params.)

# %% tags=["hide-input"]
story = [
    *"The animal didn't cross the street".split(),
    *"because it was too tired".split(),
]


def weights_of_it(answering):
    """A word that answers scores 5, and every other word 0."""
    return softmax(5.0 * np.isin(story, answering))


nouns, describing = ["animal", "street"], ["tired"]
asked = [nouns, describing, nouns + describing]
rows = [weights_of_it(words) for words in asked]
matrices(
    {"weights of 'it'": np.stack(rows)},
    row_labels=["nouns", "describing word", "both"],
    column_labels=story,
)

# %% [markdown]
# ## Asking both questions at once
#
# The third row is a compromise. If "it" asks only for nouns, each noun gets almost half. If it asks only for the
# describing word, *tired* gets almost everything. If it asks for both, the three get a third each. In a head each
# token has **one row**, which sums to 1, so a question with different answers takes weight from the others.
#
# So is "it" the animal or the street? A row can't say; it can only gather the nouns and *tired* for a later layer.
# But in one row they share the weight. In notebook 03 a word has two heads, and so a row for each question.
#
# ## Exercise: one head (after the hour, 10 minutes)
#
# Write attention for a single head. There may be more keys than queries, and some scores are in the thousands, so first
# subtract the maximum of each row. The check starts with two things you already know: each output lies between the
# values, and reversing the keys and values together changes nothing.
#
# To practise more: `softmax` in `mha-numpy exercises`, with a mask.


# %% tags=["exercise"]
def my_attention(q, k, v):
    """q (T_q, d_k), k (T_k, d_k), v (T_k, d_v) -> (T_q, d_v).

    softmax(q k^T / sqrt(d_k)) v. Large scores must not overflow.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("attention", my_attention)

# %% tags=["hint"]
# hint("attention")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - One line computes all rows: $\mathrm{softmax}(q k^\top / \sqrt{d_k})\, v$, from [B, T, D] to [B, T, d_v].
# - The weights are T by T. A row is a query and sums to 1; a column is a key.
# - An output is a mean of values. It lies between them, and doesn't care about their order, or whether you write all
#   of them twice.
# - A picture of weights shows where a head reads. With other values the same picture means something else, and a large
#   weight on a value of 0 means nothing.
# - A token has one row in a head, so two questions with different answers have to share it.
#
# **In the code:** `attention_steps` in `mha_numpy/core/attention.py`; `softmax_forward` in `mha_numpy/core/softmax.py`.
#
# **Reference:** Vaswani et al. 2017, section 3.2.1. On what weights show: Jain and Wallace 2019, *Attention is not
# Explanation*; Wiegreffe and Pinter 2019, *Attention is not not Explanation*; Kobayashi et al. 2020, *Attention is Not
# Only a Weight*; Clark et al. 2019, *What Does BERT Look At?*
#
# **Next:** [03, many heads](03_many-heads.ipynb).
