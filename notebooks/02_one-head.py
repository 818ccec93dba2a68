# %% [markdown]
# # 02 · One head
#
# In notebook 01 a single word asked: "bank", in "The bank by the river had willow trees". But every word has a query.
# We could ask for one after the other. We can also ask for all of them at once: one line of matrix products gives every
# row of this picture.

# %%
import numpy as np

from mha_numpy import attention_forward, compare, trace
from mha_numpy.core import step
from mha_numpy.show.pictures import matrices, weights_by_head
from mha_numpy.show.walk import tokenize

np.set_printoptions(precision=3, suppress=True)
features = ["nature", "finance", "open", "noun", "article"]
meaning = {
    "the": (0, 0, 0, 0, 1),
    "bank": (0.5, 0.5, 1, 1, 0),
    "river": (1, 0, 0, 1, 0),
    "willow": (1, 0, 0, 0, 0),
    "trees": (1, 0, 0, 1, 0),
}


def vectors(tokens):
    """(T, D): a word that is not listed has no feature at all."""
    return np.array([meaning.get(token.lower(), (0,) * 5) for token in tokens], dtype=float)


w_q = np.array([[0, 0], [0, 0], [5, 0], [0, 0], [0, 5]])  # who asks for a hint, for a noun
w_k = np.array([[1, 0], [1, 0], [-1, 0], [0, 1], [0, 0]])  # who answers
w_v = np.eye(5)[:, :3]  # hands over nature, finance, open
tokens = tokenize("The bank by the river had willow trees")
x = vectors(tokens)
_, cache = attention_forward(x @ w_q, x @ w_k, x @ w_v)
weights_by_head(cache.weights[None], tokens, note="One head with params that we wrote down.")

# %% [markdown]
# **What you can do afterwards:** you can write a head for all queries at once, say the shape of every array in it, and
# tell what a picture of its weights shows and what it does not.
#
# ## All queries at once
#
# First the way of notebook 01, in a loop over the queries. Then the same for all queries at once, by matrix products. Both
# give the same numbers.
#
# $$\text{out} = \mathrm{softmax}\left(\frac{q\,k^\top}{\sqrt{d_k}}\right) v$$

# %%
q, k, v = x @ w_q, x @ w_k, x @ w_v


def softmax(scores):
    """Along each row: one distribution over the keys for each query."""
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


one_by_one = np.stack([softmax(k @ query / np.sqrt(2)) @ v for query in q])
at_once = softmax(q @ k.T / np.sqrt(2)) @ v
compare({"out": at_once}, {"out": one_by_one})

# %% [markdown]
# > **Predict first.** There are T = 8 tokens, D = 5 features, d_k = 2 and d_v = 3. What are the shapes of `q`, of the
# > scores, of the weights and of the output?
#
# `trace` records every step with its shape.

# %%
with trace() as t:
    step("x", x, "T D")
    q = step("q", x @ w_q, "T d_k", "x @ w_q")
    k = step("k", x @ w_k, "T d_k", "x @ w_k")
    v = step("v", x @ w_v, "T d_v", "x @ w_v")
    scores = step("scores", q @ k.T / np.sqrt(2), "T T", "q @ k.T / np.sqrt(2)")
    powers = step("powers", np.exp(scores), "T T", "np.exp(scores)")
    weights = powers / powers.sum(axis=-1, keepdims=True)
    step("weights", weights, "T T", "powers / powers.sum(axis=-1, keepdims=True)")
    out = step("out", weights @ v, "T d_v", "weights @ v")
t

# %% [markdown]
# <details><summary>Answer</summary>
#
# `q` is 8 by 2. Scores and weights are 8 by 8: every token against every token. The output is 8 by 3. After the
# projections the width D is gone: the scores depend on d_k, the output on d_v.
#
# </details>
#
# These are the matrices. A row of the scores belongs to a query, and the softmax runs along each row.

# %%
arrays = {"q": q, "k": k, "scores": scores, "v": v, "out": out}
matrices(arrays, row_labels=tokens, shared=False, title="Rows are tokens; in the scores, queries")

# %% [markdown]
# Now read the rows of the first picture. There are three kinds:
#
# - "bank" asks for a hint, and looks at *river*, *willow* and *trees*;
# - "The" and "the" ask for a noun, and look at *bank*, *river* and *trees*;
# - "by" and the others ask for nothing. All their scores are 0, and they take the plain mean of everything. A softmax
#   cannot say "nobody".
#
# ## An output is a mean
#
# > **Predict first.** What do the rows of the weights sum to? And the columns? Can a number of the output be larger than
# > the largest number in that column of `v`?

# %%
sums = {"sum of each row": weights.sum(axis=1), "sum of each column": weights.sum(axis=0)}
matrices(sums, column_labels=tokens)

# %%
ends = {name: np.stack([a.min(axis=0), a.max(axis=0)]) for name, a in {"v": v, "out": out}.items()}
matrices(ends, row_labels=["smallest", "largest"], column_labels=features[:3])

# %% [markdown]
# <details><summary>Answer</summary>
#
# Every row sums to 1. The columns do not: many tokens look at *river*, few look at *by*. The weights are not negative and
# sum to 1, so each output is a mean, and a mean lies between the values. A head can choose and blend. It cannot make
# anything larger than what is there, and it cannot count: twice as many equal tokens leave the mean as it is.
#
# </details>
#
# ## Other company, other meaning
#
# "Bank" and the params stay as they are; only the words around it change. Two sentences of the same length make a batch:
# `x` becomes [B, T, D], the same line holds, and the output is [B, T, d_v].
#
# > **Predict first.** To which side does "bank" lean in the second sentence? Which weights in its row change?

# %%
meaning |= {"market": (0, 1, 0, 1, 0), "cheap": (0, 1, 0, 0, 0), "loans": (0, 1, 0, 1, 0)}
others = tokenize("The bank by the market had cheap loans")
both = np.stack([x, vectors(others)])  # (B, T, D)
out_both, cache = attention_forward(both @ w_q, both @ w_k, both @ w_v)
print(both.shape, "->", cache.weights.shape, "->", out_both.shape)
rows = {"bank": np.stack([v[1], *out_both[:, 1]])}
labels = ["before", "by the river", "by the market"]
matrices(rows, row_labels=labels, column_labels=features[:3])

# %%
columns = [a if a == b else f"{a}, {b}" for a, b in zip(tokens, others, strict=True)]
rows = {"weights of 'bank'": cache.weights[:, 1]}
matrices(rows, row_labels=labels[1:], column_labels=columns)

# %% [markdown]
# <details><summary>Answer</summary>
#
# With *market*, *cheap* and *loans* it leans to finance. The weights do not change at all: the new words are found by
# the same keys, because they are hints too. What they hand over is different.
#
# </details>
#
# ## A head does not know the order
#
# > **Predict first.** Shuffle the keys, and shuffle the values in the same way. What happens to the output of "bank"? And
# > if only the values are shuffled?

# %%
order = np.random.default_rng(0).permutation(8)
together, _ = attention_forward(q, k[order], v[order])
apart, _ = attention_forward(q, k, v[order])
rows = {"bank": np.stack([out[1], together[1], apart[1]])}
labels = ["as it was", "both shuffled", "only values shuffled"]
matrices(rows, row_labels=labels, column_labels=features[:3])

# %% [markdown]
# <details><summary>Answer</summary>
#
# When pairs of key and value stay together, nothing changes: a sum over pairs has no order. When only the values move,
# the output is wrong. So for this head a sentence is a bag of words. "The" and "the" have equal rows, although they stand
# at different places. Order must come from elsewhere: from positions (notebook 18), or from a mask (08).
#
# </details>
#
# ## What weights tell, and what they do not
#
# Weights tell one thing exactly: how the output of this head is mixed from its values. They do not tell what arrives.
# From token j arrives weight times value, $w_j v_j$, and a value may be 0. We give "by" a key that answers every hint:

# %%
loud = k.copy()
loud[2, 0] = 1.5  # "by"
_, cache = attention_forward(q, loud, v)
heard = cache.weights[1]
arrives = np.linalg.norm(heard[:, None] * v, axis=1)
rows = {"weight": heard, "length of weight times value": arrives}
matrices(rows, column_labels=tokens, title="What 'bank' receives when 'by' is loud")

# %% [markdown]
# "By" takes most of the weight and hands over nothing. A head can say "nobody" in this way. (Clark et al. 2019 suppose
# that heads of BERT use a separator token for it.) Two more warnings:
#
# - *River* and *trees* have equal values. All weight of one could go to the other, and the output would be the same.
# - The output goes on: other heads and later layers change it. A picture of weights shows where a head reads, and not
#   why, nor what comes of it.
#
# ## Two candidates for "it"
#
# > The animal didn't cross the street because it was too tired
#
# "It" is the animal. If the last word is *wide*, it is the street. To find out, a reader needs two things: the nouns, and
# the last word. We let "it" ask for both, with one head. Again the params are ours.

# %%
story = tokenize("The animal didn't cross the street because it was too tired")
it, animal, street, tired = (story.index(word) for word in ("it", "animal", "street", "tired"))
noun_key, trait_key, it_query = (np.zeros((len(story), 1)) for _ in range(3))
noun_key[[animal, street]], trait_key[tired], it_query[it] = 1, 1, 5
facts = np.eye(len(story))  # the value of a token: which token it is


def row_of_it(key):
    """The weights of "it", if a key answers it."""
    return attention_forward(it_query, key, facts)[1].weights[it]


rows = [row_of_it(key) for key in (noun_key, trait_key, noun_key + trait_key)]
labels = ["asks for nouns", "asks for the trait", "asks for both"]
matrices({"weights of 'it'": np.stack(rows)}, row_labels=labels, column_labels=story)

# %% [markdown]
# ## Asking both questions at once
#
# The third row is a compromise. The two nouns had almost a half each, and the trait had almost everything. Together they
# have a third each. A token has **one row** in a head, its sum is 1, and every further question takes weight from
# the others.
#
# This is what a single head leaves broken, and notebook 03 mends it: with two heads the same token has two rows. (To
# *choose* the animal, a second layer has to use what the first one has found: notebook 20 shows two such layers.)
#
# ## Exercise: one head
#
# Write attention for a single head. There may be more keys than queries, and one of the check's inputs has scores in the
# thousands: subtract the maximum of each row. Before it compares numbers, the check asks for two things that you know:
# each output lies between the values, and turning keys and values around together changes nothing.
#
# More of this kind in `mha-numpy exercises`: `softmax`, with a mask.


# %% tags=["exercise"]
def my_attention(q, k, v):
    """q (T_q, d_k), k (T_k, d_k), v (T_k, d_v) -> (T_q, d_v): softmax(q k^T / sqrt(d_k)) v.

    Nothing is hidden. Large scores must not overflow.
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
# - An output is a mean of values: it lies between them, and it does not count.
# - A head without positions sees a bag of tokens.
# - Weights tell how values are mixed. They do not tell what the values hold, or what becomes of the mixture.
# - A token has one row in a head, so two questions share it.
#
# **In the code:** `attention_steps` in `mha_numpy/core/attention.py`; `softmax_forward` in `mha_numpy/core/softmax.py`.
#
# **Reference:** Vaswani et al. 2017, section 3.2.1. On what weights tell: Jain and Wallace 2019, *Attention is not
# Explanation*; Wiegreffe and Pinter 2019, *Attention is not not Explanation*; Kobayashi et al. 2020, *Attention is Not
# Only a Weight*; Clark et al. 2019, *What Does BERT Look At?*
#
# **Next:** [03, many heads](03_many-heads.ipynb).
