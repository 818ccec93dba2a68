# %% [markdown]
# # 02 · One head
#
# An attention head is a dictionary that never says "no such key". Every key answers, each as loudly as
# it fits the question, and what comes back is a mean of their values. This notebook builds one such
# head, looks into it with two sentences, and finds out what a single head can and cannot do.
#
# **You will learn**
#
# - what a query, a key and a value are, and why they are three different vectors of one token;
# - the four lines of a head: scores, scale, weights, mix, with every shape;
# - that an output is a *mean* of values, and what a mean can never do;
# - that a head does not know the order of its tokens;
# - why one head must compromise, and what attention weights do *not* tell.
#
# Sizes here: one sequence of T tokens, vectors of width D, queries and keys of width d_k, values of
# width d_v. Nothing is trained: all numbers are made by hand, so that each has a meaning you can read.

# %%
import numpy as np

from mha_numpy import attention_forward, compare, softmax_forward, trace
from mha_numpy.core import step
from mha_numpy.draw import line_chart, matrices, weights_by_head
from mha_numpy.exercises import check, hint
from mha_numpy.tables import Table
from mha_numpy.walk import tokenize

np.set_printoptions(precision=3, suppress=True)

# %% [markdown]
# ## A dictionary that answers softly
#
# A Python dictionary compares a query with its keys, and returns the value of the one that is *equal*.
# A fruit it has never met gets nothing.

# %%
prices = {"apple": 3.0, "lemon": 5.0, "melon": 8.0}
print(prices.get("nectarine"))

# %% [markdown]
# Now let keys be vectors, here (sweet, sour). A dot product says how well a query fits each key: a
# *score*. Softmax turns the scores into *weights*, none negative, with sum 1. The answer is the mean of the
# values by these weights:
#
# $$w_j = \frac{e^{s_j}}{\sum_l e^{s_l}}, \qquad s_j = q \cdot k_j, \qquad \text{answer} = \sum_j w_j v_j$$

# %%
names = ["apple", "lemon", "melon"]
keys = np.array([[0.8, 0.3], [0.1, 1.0], [0.9, 0.0]])  # sweet, sour
values = np.array([3.0, 5.0, 8.0])
nectarine = np.array([0.8, 0.5])  # sweet, and a little sour
fruit_scores = keys @ nectarine
fruit_weights, _ = softmax_forward(fruit_scores)
print(f"scores {fruit_scores}, weights {fruit_weights}, answer {fruit_weights @ values:.3f}")

# %% [markdown]
# The scores are close together, so all three are heard almost alike. Multiply the query by a factor.
#
# > **Predict first.** With the factor 0, what is the answer? And with a very large factor?

# %%
lines = []
for factor in (0, 1, 10, 100):
    row, _ = softmax_forward(factor * fruit_scores)
    lines.append([str(factor), *(f"{number:.3f}" for number in (*row, row @ values))])
Table("Weights and answer", ["factor", *names, "answer"], lines)

# %% [markdown]
# Factor 0: all scores are equal, and the answer is the plain mean of the prices, 16 / 3. A large factor: the best
# key takes all, and we have the Python dictionary back, except that it needs no exact hit. Between the two
# lies everything that attention does. Unlike the hard dictionary, it changes smoothly, so it has a gradient.

# %%
factors = 2.0 ** np.arange(-2, 9)
rows, _ = softmax_forward(factors[:, None] * fruit_scores)
line_chart(
    factors,
    dict(zip(names, rows.T, strict=True)),
    title="From the plain mean to the one best key",
    x_label="factor on the query",
    y_label="weight",
    log_x=True,
)

# %% [markdown]
# ## Words as vectors that we can read
#
# > The bank by the river had willow trees
#
# "bank" is half a word of nature, half a word of finance. Which one it is, the other words tell. We give each
# word five features. No training has found them; we wrote them down.

# %%
FEATURES = ["nature", "finance", "open", "noun", "article"]
MEANING = {
    "the": (0, 0, 0, 0, 1),
    "bank": (0.5, 0.5, 1, 1, 0),  # open: this word waits for a hint
    "river": (1, 0, 0, 1, 0),
    "willow": (1, 0, 0, 0, 0),
    "trees": (1, 0, 0, 1, 0),
}


def vectors(tokens, meaning):
    """(T, D): a word that is not listed has no feature at all."""
    nothing = (0,) * len(next(iter(meaning.values())))
    return np.array([meaning.get(token.lower(), nothing) for token in tokens], dtype=float)


tokens = tokenize("The bank by the river had willow trees")
x = vectors(tokens, MEANING)
matrices({"x": x}, row_labels=tokens, column_labels=FEATURES)

# %% [markdown]
# ## Three roles of one token
#
# Each token plays three roles, and each role has a vector of its own, made by a linear map:
#
# $$q = x\,w_q, \qquad k = x\,w_k, \qquad v = x\,w_v$$
#
# `w_q`, `w_k` and `w_v` are the head's *params*: a model learns them, we write them down.
#
# - the **query**: what does this token look for?
# - the **key**: what can it be found by?
# - the **value**: what does it hand over, once found?
#
# Why not compare `x` with itself? Because what a word looks for is not what it is. "bank" is open, and
# looks for a *hint*, a word that is not open. Two kinds of question, so d_k = 2:
#
# | asks for a | who asks (`w_q`) | who answers (`w_k`) |
# |---|---|---|
# | hint | what is open | what has a topic, nature or finance, and is not open |
# | noun | an article | a noun |
#
# The value hands over the first three features: the two topics, and whether the word is open itself.
# So `w_v` copies three columns, and the picture leaves it out.

# %%
nature, finance, is_open, noun, article = range(5)  # rows: features of x
for_hint, for_noun = range(2)  # columns: kinds of question
w_q, w_k, w_v = np.zeros((5, 2)), np.zeros((5, 2)), np.zeros((5, 3))
w_q[is_open, for_hint] = 5
w_q[article, for_noun] = 5
w_k[[nature, finance], for_hint] = 1
w_k[is_open, for_hint] = -1
w_k[noun, for_noun] = 1
w_v[:3, :3] = np.eye(3)
matrices({"w_q": w_q, "w_k": w_k}, row_labels=FEATURES, column_labels=["a hint?", "a noun?"])

# %% [markdown]
# ## One query, by hand
#
# Follow "bank", token 1. Its query against every key gives eight scores, divided by $\sqrt{d_k}$
# (why: notebook 06):
#
# $$s_j = \frac{q_1 \cdot k_j}{\sqrt{d_k}}$$
#
# > **Predict first.** Which words get a score above 0? How much weight has each of them, roughly?
# > ($5 / \sqrt 2$ is about 3.54, and $e^{3.54}$ about 34.)

# %%
q, k, v = x @ w_q, x @ w_k, x @ w_v
d_k = k.shape[-1]
row_scores = q[1] @ k.T / np.sqrt(d_k)
row_weights = np.exp(row_scores) / np.exp(row_scores).sum()
matrices(
    {"of 'bank'": np.stack([row_scores, row_weights])},
    row_labels=["scores", "weights"],
    column_labels=tokens,
)

# %% [markdown]
# Three words answer alike, so each has a little less than a third; the other five share the rest. "bank" itself
# is among the five: its topics count for it, its openness against it, 0.5 + 0.5 - 1 = 0.
#
# The mean of the values by these weights is the output for "bank", and it is no longer half and half:

# %%
row_weights @ v, v[1]  # (nature, finance, open): after, before

# %% [markdown]
# ## All queries at once
#
# Nothing in these lines is special to "bank". With all queries as the rows of a matrix:
#
# $$\text{out} = \mathrm{softmax}\left(\frac{q\,k^\top}{\sqrt{d_k}}\right) v$$
#
# The softmax is taken along each *row*: one distribution over the keys for each query. `trace` records every
# step. (The scale takes d_k, the width of a key: not D and not T.)

# %%
with trace() as t:
    step("x", x, "T D")
    q = step("q", x @ w_q, "T d_k", "x @ w_q")
    k = step("k", x @ w_k, "T d_k", "x @ w_k")
    v = step("v", x @ w_v, "T d_v", "x @ w_v")
    matches = step("matches", q @ k.T, "T T", "q @ k.T")
    scores = step("scores", matches / np.sqrt(d_k), "T T", "matches / np.sqrt(d_k)")
    powers = step("powers", np.exp(scores), "T T", "np.exp(scores)")
    weights = powers / powers.sum(axis=-1, keepdims=True)
    step("weights", weights, "T T", "powers / powers.sum(axis=-1, keepdims=True)")
    out = step("out", weights @ v, "T d_v", "weights @ v")
t

# %% [markdown]
# Two shapes to keep in mind. The weights are T by T: every token against every token. The width D has left the
# scene after the projections: the weights know d_k, the output knows d_v.
#
# The library's `attention_forward` starts at q, k, v and does the same. It also subtracts each row's maximum
# before `exp`, which changes nothing but keeps large scores from overflowing (derivation: docs/softmax.md):

# %%
library_out, cache = attention_forward(q, k, v)
compare({"weights": weights, "out": out}, {"weights": cache.weights, "out": library_out})

# %% [markdown]
# And who attends to whom? Queries go down, keys go across.

# %%
weights_by_head(weights[None], tokens)

# %% [markdown]
# Read three kinds of rows:
#
# - "bank" looks at river, willow, trees: **hints**.
# - "The" and "the" look at bank, river, trees: **nouns**. One often hears that a head learns *one* relation.
#   This one holds two. What it cannot have is two distributions *for the same token*.
# - "by" and the others ask nothing. All their scores are 0, and they get the plain mean of everything. Softmax has
#   no way of saying "nobody".
#
# ## An output is a mean
#
# > **Predict first.** What do the rows of the weights sum to? And the columns? Can any number of the output be
# > larger than the largest number in that column of `v`?

# %%
weights.sum(axis=1), weights.sum(axis=0)

# %%
matrices(
    {
        "v": np.stack([v.min(axis=0), v.max(axis=0)]),
        "out": np.stack([out.min(axis=0), out.max(axis=0)]),
    },
    row_labels=["smallest", "largest"],
    column_labels=FEATURES[:3],
)

# %% [markdown]
# Rows sum to 1. Columns do not: a word may be listened to by many ("river": 1.58) or by few ("by": 0.65).
#
# Weights that are not negative and sum to 1 make a mean, so each output lies *between* the values. A head
# picks and blends; it cannot make anything larger than what is there. And it tells shares, not counts:
#
# > **Predict first.** Write the whole sentence twice: sixteen keys and values, twice as many hints. What happens
# > to the output for "bank"?

# %%
twice, _ = attention_forward(q, np.concatenate([k, k]), np.concatenate([v, v]))
twice[1], out[1]

# %% [markdown]
# Nothing. Each word shares its weight with its double, and the mean stays.
#
# ## Other company, other meaning
#
# The vector of "bank" and the params stay as they are. We only change the words around it. Two sentences of equal
# length make a batch: `x` becomes (B, T, D), the same lines hold, and the output is (B, T, d_v).
#
# > **Predict first.** Where does "bank" lean now? And which of the weights in its row change?

# %%
MEANING |= {"market": (0, 1, 0, 1, 0), "cheap": (0, 1, 0, 0, 0), "loans": (0, 1, 0, 1, 0)}
others = tokenize("The bank by the market had cheap loans")
both = np.stack([x, vectors(others, MEANING)])  # (B, T, D)


def head(x, w_q, w_k, w_v):
    """(B, T, D) or (T, D) -> output and weights of one head."""
    out, cache = attention_forward(x @ w_q, x @ w_k, x @ w_v)
    return out, cache.weights


out_both, weights_both = head(both, w_q, w_k, w_v)
both.shape, weights_both.shape, out_both.shape

# %%
matrices(
    {"the topics of 'bank'": np.stack([v[1], *out_both[:, 1]])},
    row_labels=["before", "by the river", "by the market"],
    column_labels=FEATURES[:3],
)

# %% [markdown]
# By the river it leans to nature, by the market to finance, and in both it is hardly open any more. The
# *weights* are the same in both sentences, for the new words are found by the same keys (they are hints). What
# they hand over is different:

# %%
np.array_equal(weights_both[0], weights_both[1]), both[:, [4, 6, 7]] @ w_v

# %% [markdown]
# (In a transformer the output is added to the token's own vector, so that the token keeps what it was. We do that
# below.)
#
# ## A head does not know the order
#
# > **Predict first.** Shuffle the keys, and shuffle the values in the same way. Does the output of "bank" change?
# > What if only the values are shuffled?

# %%
order = np.random.default_rng(0).permutation(len(tokens))
together, _ = attention_forward(q, k[order], v[order])
apart, _ = attention_forward(q, k, v[order])
np.allclose(together, out), np.allclose(apart, out)

# %% [markdown]
# A dictionary has no first entry. Keys and values travel in pairs, and a sum over pairs does not care in which
# order they come. (A few last digits may differ: floating-point sums do care.) Shuffle the *tokens*, and the
# outputs are shuffled with them, nothing else:

# %%
shuffled, _ = head(x[order], w_q, w_k, w_v)
print(" ".join(tokens[i] for i in order))
np.allclose(shuffled, out[order])

# %% [markdown]
# To this head a sentence is a bag of words. You can see it in the picture above: "The" and "the" stand at
# different places, yet have the same row; each looks for *a* noun, and cannot prefer the one next to it. So order
# has to come from elsewhere: from positions that are written into the vectors (notebook 16), or from a mask (08).
#
# ## Two candidates for "it"
#
# > The animal didn't cross the street because it was too tired
#
# "it" could be the animal or the street. With "tired" at the end it is the animal; with "wide" it is the
# street. Again features by hand. The last two words say something about what they describe: only what is alive
# gets tired, only a place is wide.

# %%
ROLES = ["noun", "alive", "place", "pronoun", "trait"]
MEANS = {
    "animal": (1, 1, 0, 0, 0),
    "street": (1, 0, 1, 0, 0),
    "it": (0, 0, 0, 1, 0),
    "tired": (0, 1, 0, 0, 1),
    "wide": (0, 0, 1, 0, 1),
}
start = "The animal didn't cross the street because it was too "
sentence = {last: tokenize(start + last) for last in ("tired", "wide")}
story = {last: vectors(words, MEANS) for last, words in sentence.items()}
matrices({"x": story["tired"]}, row_labels=sentence["tired"], column_labels=ROLES)

# %% [markdown]
# The head: a pronoun asks for a noun; and whoever is alive, or a place, asks for its like. A trait is not what
# a pronoun looks for, so it gets -1 on that question. The value hands over alive and place, as they are.

# %%
noun, alive, place, pronoun, trait = range(5)
refer_q, refer_k, hands_over = np.zeros((5, 3)), np.zeros((5, 3)), np.zeros((5, 2))
refer_q[[pronoun, alive, place], [0, 1, 2]] = 6
refer_k[[noun, alive, place], [0, 1, 2]] = 1
refer_k[trait, 0] = -1
hands_over[[alive, place], [0, 1]] = 1
asks_for = ["a noun?", "alive?", "a place?"]
matrices({"w_q": refer_q, "w_k": refer_k}, row_labels=ROLES, column_labels=asks_for)

# %% [markdown]
# > **Predict first.** How does "it" share its weight between "animal" and "street"? Now "tired" becomes "wide",
# > and the story is another one. How does the share change?

# %%
it, animal, street = (sentence["tired"].index(word) for word in ("it", "animal", "street"))
first = {last: head(x, refer_q, refer_k, hands_over) for last, x in story.items()}
columns = [*sentence["tired"][:-1], "last word"]
matrices(
    {"weights of 'it'": np.stack([row_weights[it] for _, row_weights in first.values()])},
    row_labels=["... too tired", "... too wide"],
    column_labels=columns,
)

# %% [markdown]
# Equal shares, .444 each, in both stories. What comes out for "it" is as much animal as street:

# %%
{last: out[it] for last, (out, _) in first.items()}  # (alive, place)

# %% [markdown]
# (The last digits differ: the last word is hardly heard, but it is "alive" or a "place" itself.)
#
# Did we choose bad params? No. No params let the last word tip the balance between the two. The ratio of two
# weights in a row is
#
# $$\frac{w_{\text{animal}}}{w_{\text{street}}} = \exp\frac{q_{\text{it}} \cdot (k_{\text{animal}} - k_{\text{street}})}{\sqrt{d_k}}$$
#
# and these three vectors are made of "it", "animal" and "street" alone. The last word does not occur. Random
# params, for both stories:

# %%
ratios = []
for seed in range(3):
    any_q, any_k = np.random.default_rng(seed).normal(size=(2, 5, 3))
    found = [head(x, any_q, any_k, hands_over)[1][it] for x in story.values()]
    ratios.append([str(seed), *(f"{w[animal] / w[street]:.6f}" for w in found)])
Table("animal / street", ["seed", "... too tired", "... too wide"], ratios)

# %% [markdown]
# ("bank" was easier: there the hint itself carried the answer, so *finding* it was enough. Here the hint has
# to *choose* between two others.)
#
# ## Asking both questions at once
#
# Could the head ask for the nouns *and* for the trait? It can, and then the one distribution has to serve both:

# %%
both_q, both_k = np.zeros((5, 1)), np.zeros((5, 1))
both_q[pronoun], both_k[[noun, trait]] = 6, 1
mixed_out, mixed = head(story["tired"], both_q, both_k, hands_over)
matrices({"weights of 'it'": mixed[it]}, column_labels=sentence["tired"])

# %%
mixed_out[it], mixed[it, [animal, street]]  # (alive, place); the two weights

# %% [markdown]
# A compromise: a third each. The blend leans to "alive", two to one, as the trait's own value is in it. But
# animal and street still come in equally, and the more questions share the row, the less is left for each.
#
# **Two heads** have two distributions for the same token, each with sum 1. One asks for nouns, the other for the
# trait; neither takes weight from the other:

# %%
trait_q, trait_k = np.zeros((5, 1)), np.zeros((5, 1))
trait_q[pronoun], trait_k[trait] = 6, 1
_, to_nouns = head(story["tired"], refer_q, refer_k, hands_over)
_, to_trait = head(story["tired"], trait_q, trait_k, hands_over)
both_heads = np.stack([to_nouns, to_trait])
weights_by_head(both_heads, sentence["tired"], head_names=["noun head", "trait head"])

# %% [markdown]
# The outputs of the two then lie side by side: both facts are there, unmixed, for whatever comes next. But note
# row "it" of the noun head: animal and street still have .44 each. Two heads *bring* both facts. They do not
# *choose*, for neither sees what the other has found.
#
# **Two rounds** choose. First the trait head runs, and its output is added to the vectors: now "it" itself is
# alive. Then the noun head runs, with the same params as before.
#
# > **Predict first.** `refer_q` lets whoever is alive ask for the alive. How many times the weight of "street" does
# > "animal" have in round two, roughly? ($6 / \sqrt 3$ is about 3.46, and $e^{3.46}$ about 32.)

# %%
second = []
for x_story in story.values():
    x_next = x_story.copy()
    x_next[:, [alive, place]] += head(x_story, trait_q, trait_k, hands_over)[0]  # round one
    second.append(head(x_next, refer_q, refer_k, hands_over)[1][it])  # round two
matrices(
    {"weights of 'it', second round": np.stack(second)},
    row_labels=["... too tired", "... too wide"],
    column_labels=columns,
)

# %% [markdown]
# About thirty times: .95 against .03. The tired one is the animal, the wide one is the street. Attention first
# *fetches* a hint, then *uses* it: two layers, one after the other. Several heads in one layer give width, not
# depth. Remember it when somebody says that a second head resolves "it". (A non-linear part after two heads could
# choose as well: both facts lie before it. And words that ask nothing have a little of everything added in round
# one: "animal" and "street" the same, so it cancels.)
#
# ## What weights tell, and what they do not
#
# They tell exactly one thing: how this head's output is mixed from this head's values. Three warnings, on our
# first sentence.
#
# **A large weight may hand over nothing.** What arrives from a token is $w_j v_j$, weight times value. Let "by"
# shout: give it a key that answers every hint. Its value is 0.

# %%
loud = k.copy()
loud[2, for_hint] = 1.5  # "by"
_, loud_cache = attention_forward(q, loud, v)
heard = loud_cache.weights[1]
matrices(
    {"weight": heard, "length of weight * value": np.linalg.norm(heard[:, None] * v, axis=1)},
    column_labels=tokens,
    title="What 'bank' hears",
)

# %% [markdown]
# So a head can say "nobody" after all, by looking at a token that hands over nothing. (Clark et al. 2019 suppose
# that heads of BERT use its separator token in this way.)
#
# **Other weights, the same output.** "river" and "trees" hold the same value. Move all weight of one to the
# other, and nobody downstream can tell:

# %%
moved = weights.copy()
moved[1, 4], moved[1, 7] = weights[1, 4] + weights[1, 7], 0
moved[1].round(2), weights[1].round(2), np.allclose(moved @ v, out)

# %% [markdown]
# **And the story goes on.** The output is projected, mixed with other heads, added to the token's own vector, and
# changed by later layers. A picture of weights is a good place to start looking, and no explanation by
# itself. How to measure the influence of a head: the head gates of docs/attention.md.
#
# ## Exercise: one head
#
# Write attention for a single head. Queries and keys need not be equally many, and one of the check's inputs has
# scores in the thousands; think of the row's maximum. Before it compares numbers, the check asks for two things that
# you know from above: each output lies between the values, and turning keys and values around together changes
# nothing.
#
# More of this kind in `mha-numpy exercises`: `museum-softmax-axis`, a bug that shipped.


# %% tags=["exercise"]
def my_attention(q, k, v):
    """q (T_q, d_k), k (T_k, d_k), v (T_k, d_v) -> (T_q, d_v): softmax(q k^T / sqrt(d_k)) v.

    Nothing is hidden. Large scores must not overflow.
    """
    ...  # your code


# %% tags=["check"]
check("attention", my_attention)

# %% tags=["hint"]
# hint("attention")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - A head is a soft dictionary: scores by dot products, divided by $\sqrt{d_k}$; softmax along each row; the mean of
#   the values by these weights.
# - A token has three vectors: what it asks (query), what it is found by (key), what it hands over (value).
# - Weights of a row sum to 1. So an output lies between the values and tells shares, not counts; "nobody" can only
#   be said by a token whose value is 0.
# - Shuffling keys and values together changes nothing: a head sees a bag of tokens.
# - Different tokens may ask different things of one head. But a token has one row of weights in it: two questions
#   share that row. Two heads give two rows; a hint that must first be found takes two layers.
# - Weights tell how values are mixed. They do not tell what the values hold, or what becomes of the mixture.
#
# **In the code:** `attention_steps` in `mha_numpy/core/attention.py`, steps 1, 4 and 6; `softmax_forward` in
# `mha_numpy/core/softmax.py`.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.1. On what weights tell: Jain and
# Wallace 2019, *Attention is not Explanation*; Wiegreffe and Pinter 2019, *Attention is not not Explanation*;
# Kobayashi et al. 2020, *Attention is Not Only a Weight*, for the length of weight times value; Clark et al. 2019,
# *What Does BERT Look At?*
#
# **Next:** [02, why the square root of d_k](06_why-the-square-root-of-d_k.ipynb).
