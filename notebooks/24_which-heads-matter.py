# %% [markdown]
# # 24 · Which heads matter
#
# Notebook 10 cut heads of a small model of our own. Here is the model of notebook 23, which others have trained: 72
# heads. It makes one vector of each sentence, and sentences that mean the same should have similar vectors. There are
# ten pairs below. First the whole model looks for the partner of each sentence. Then **all 72 heads** are cut, and it
# looks again.

# %%
import numpy as np

from mha_numpy.models import SentenceBert, minilm_or_random
from mha_numpy.models.analysis import attention_layers, cut_model
from mha_numpy.show.pictures import line_chart, matrices

pairs = [
    ("The bank by the river had willow trees.", "Old willows stood along the stream."),
    ("The bank raised its interest rates.", "Loans have become more expensive."),
    ("The animal was too tired to walk.", "The weary dog would not move."),
    ("The street was too wide to cross.", "Nobody got over the broad avenue."),
    ("A man plays the guitar on stage.", "Somebody makes music for a crowd."),
    ("She cooked a soup of carrots.", "Dinner was a pot of vegetables."),
    ("He won the race by a second.", "The fastest runner took the gold."),
    ("The doctor told me to rest.", "Stay in bed, said the physician."),
    ("Snow fell on the mountains.", "The peaks are white in winter."),
    ("The computer lost all my files.", "My data were gone after the crash."),
]
bert, note = minilm_or_random()
model = SentenceBert(bert).eval()
ids, mask, _ = bert.tokenizer([sentence for pair in pairs for sentence in pair])
partner = np.arange(20) ^ 1  # of 0 it is 1, of 1 it is 0, of 2 it is 3, ...


def similarities():
    """Return the cosine of each two sentences, (20, 20), without each one's with itself."""
    vectors = model(ids, mask=mask)
    found = vectors @ vectors.T
    np.fill_diagonal(found, -np.inf)
    return found


whole, layers = similarities(), attention_layers(model)
with cut_model(model, {name: range(12) for name in layers}):
    without = similarities()
print(note)
for name, found in {"whole": whole, "without heads": without}.items():
    print(f"{name:13} partners found: {(found.argmax(axis=1) == partner).sum()} of 20")

# %% [markdown]
# All of them, and all of them. Are heads useless, then? No: the question was too easy. Without heads no token sees
# another, and the vector of a sentence is a mean over its words, each on its own. Related words, "guitar" and
# "music" or "doctor" and "physician", are enough to find a partner here. **How many heads can go depends on what you ask.** So we need a question that all heads
# work on.
#
# **What you can do afterwards:** you can rank the heads of a real model by gradients and by cuts, say how many can go
# before a measure of your choice breaks, take them out for good, and say what this shows of a claim about heads.
#
# What is said here is true for this model, these twenty sentences, and after training.
#
# ## A measure that notices
#
# Twenty sentences make 190 similarities. We ask whether their **order** stays: which two sentences are the most alike,
# which come next, and so on. *Spearman's correlation* is the correlation of ranks: 1 for the same order, 0 for none.

# %%
upper = np.triu_indices(20, 1)  # each pair once


def ranks(found):
    return found[upper].argsort().argsort()


def agreement():
    """Return Spearman's correlation of all 190 similarities with those of the whole model."""
    return np.corrcoef(ranks(similarities()), ranks(whole))[0, 1]


with cut_model(model, {name: range(12) for name in layers}):
    print(f"without all heads: {agreement():.2f}")
shown = {"whole": whole, "without heads": without}
cosines = {name: np.where(np.isinf(found), 1, found) for name, found in shown.items()}
matrices(cosines, title=f"Cosines of 20 sentences. {note}")

# %% [markdown]
# Now all heads are missed: the order agrees by 0.54 only, and without them everything is alike.
#
# We call an order *kept* if the correlation is at least 0.95, and all partners are found.
#
# ## One by one
#
# > **Predict first.** Each head is cut alone, by 0. In which layer does a cut cost most? And how low does the correlation
# > fall: to 0.5, 0.9, 0.97?
#
# <details><summary>Answer</summary>
#
# In the last layer. The lowest is 0.968, of head 5.10. No single cut breaks the order.
# </details>

# %%
from mha_numpy.models.analysis import ablation_scores, mean_heads

cut_by_0 = 1 - np.stack(list(ablation_scores(model, agreement).values()))  # (L, H), half a minute
labels = {"row_labels": [f"layer {i}" for i in range(6)]}
labels["column_labels"] = [str(h) for h in range(12)]
print(f"the largest loss: {cut_by_0.max():.3f}")
lost = {"1 - correlation, one head cut by 0": cut_by_0}
matrices(lost, **labels, title=f"What is lost without each head. {note}")

# %% [markdown]
# A cut by 0 may do harm only because zeros are strange to later layers. So we cut by the *mean* as well (notebook 10),
# the twelve heads of the last layer.

# %%
similarities()  # the forward over which the mean is taken
means = {name: mean_heads(layer, mask) for name, layer in layers.items()}
last, both = list(layers)[-1], []
for h in range(12):
    with cut_model(model, {last: h}, means=means):
        both.append([cut_by_0[-1, h], 1 - agreement()])
print("largest difference:", np.ptp(both, axis=1).max().round(4))

# %% [markdown]
# In this layer the two cuts agree to 0.002. So it is not the zeros that do harm. In general this has to be measured.
#
# ## By a gradient
#
# Michel et al. (2019) do it with one backward: the importance of a head is how steeply a scalar changes with its gate.
# **Which scalar?** Not the agreement: ranks have no slope. And not the distance of the vectors from those of the whole
# model. It is 0 where all gates are 1, this is its minimum, and there *every* gradient is 0. We take the loss on which
# such models are trained: each sentence has to choose its partner among the other 19, by a softmax over 20 times the
# cosines.

# %%
from mha_numpy.layers import cross_entropy_backward, cross_entropy_forward
from mha_numpy.models.analysis import head_importance


def forward_and_backward():
    vectors = model(ids, mask=mask)  # (20, D)
    logits = 20 * vectors @ vectors.T
    np.fill_diagonal(logits, -np.inf)  # nobody chooses itself
    loss, cache = cross_entropy_forward(logits, partner)
    d_logits = cross_entropy_backward(np.ones_like(loss), cache).d_logits
    model.backward(20 * (d_logits + d_logits.T) @ vectors)  # a vector stands on both sides


importance = head_importance(model, forward_and_backward)
by_gradient = np.stack(list(importance.values()))
for name, of in {"all heads": slice(None), "layer 5 alone": slice(5, None)}.items():
    order = [each[of].ravel().argsort().argsort() for each in (by_gradient, cut_by_0)]
    print(f"rank correlation of gradients and cuts, {name}: {np.corrcoef(order)[0, 1]:.2f}")
title = f"Importance by the gates' gradients. {note}"
matrices({"mean of |gradient of the gate|": by_gradient}, **labels, title=title)

# %% [markdown]
# One forward and backward (a second) rank all heads much as 72 cuts do (half a minute): the ranks agree by 0.87. Above
# all, both see the last layer first. Within the last layer they agree by 0.48 only. And the two do not ask the same: a
# gradient is a slope of the loss, a cut is a step, measured by the order.
#
# ## More and more heads
#
# Now more and more heads are cut: the least important first and, for comparison, in two random orders.
#
# > **Predict first.** How many of the 72 can go, in each order, before the correlation falls below 0.95?
#
# <details><summary>Answer</summary>
#
# 27 by importance. In one random order fewer than 12, in the other one fewer than 18. So more than a third can go and
# the order is kept, if they are chosen well. Beyond 50 it matters no more what is chosen: a gradient at the whole model
# knows little about a model that is nearly empty.
#
# </details>

# %%
from mha_numpy.models.analysis import heads_by_layer, least_important_first


def curve(order, counts):
    """Return, for each count of heads cut, the agreement."""
    found = []
    for n in counts:
        with cut_model(model, heads_by_layer(order[:n])):
            found.append(agreement())
    return np.array(found)


by_importance = least_important_first(importance)
orders = {"least important first": by_importance}
for seed in (0, 1):
    mixed = np.random.default_rng(seed).permutation(72)
    orders[f"random order {seed}"] = [by_importance[i] for i in mixed]
counts = np.arange(0, 73, 6)
curves = {name: curve(order, counts) for name, order in orders.items()}
title = f"The order, as heads are cut. {note}"
print({name: line[1:4].round(3).tolist() for name, line in curves.items()}, "at 6, 12, 18")
line_chart(counts, curves, title=title, x_label="heads cut", y_label="Spearman's correlation")

# %% [markdown]
# Where exactly? And do all sentences still find their partners?

# %%
near = np.arange(24, 31)
print(dict(zip(near.tolist(), curve(by_importance, near).round(3).tolist(), strict=True)))
going = heads_by_layer(by_importance[:27])
print("of each layer:", [len(going.get(name, [])) for name in layers])
with cut_model(model, going):
    print("partners found:", (similarities().argmax(axis=1) == partner).sum())

# %% [markdown]
# The last layer keeps all twelve heads. The first five lose between three and seven each. (`pruning_curve` can also choose
# greedily, each time the head without which most is left. For 72 heads that takes 2,629 forwards.)
#
# ## Cut for good
#
# A gate of 0 saves nothing: the head is computed, and then multiplied by 0. To save something, its params have to go:
# its columns of $w_q$, $w_k$, $w_v$ with their biases, and its rows of $w_o$.

# %%
from mha_numpy import compare
from mha_numpy.models.analysis import prune_model

with cut_model(model, going):
    gated = model(ids, mask=mask)
before = model.num_parameters
attention = sum(layer.num_parameters for layer in layers.values())
prune_model(model, going)
gone = before - model.num_parameters
print(f"params: {before:,} before, {model.num_parameters:,} now; {gone / before:.1%} less")
print(f"of attention's {attention:,} params {gone / attention:.0%} are gone")
compare(model(ids, mask=mask), gated, name="vectors")

# %% [markdown]
# The vectors are those of gates of 0. Of attention 37 % is gone, but of the model only 6 %: most params are in the table
# of words and in the feed-forward layers.
#
# ## Are heads alike?
#
# Texts say that heads are *redundant*: they do the same as others. We compare patterns: for each head the correlation of
# its weights with those of each other head, over all sentences. What is the highest, its *twin*?
#
# > **Predict first.** How many of the 72 heads have a twin above 0.9? And if `[CLS]`, the sink of notebook 23, is left
# > out of the comparison?

# %%
bert, note = minilm_or_random()  # whole again
bert(ids, mask=mask)
weights = np.concatenate([layer.weights for layer in attention_layers(bert).values()], axis=1)
real = mask[:, :, None] & mask[:, None, :]  # (B, T, T)
away = real.copy()
away[:, :, 0] = away[:, 0] = False


def twins(where):
    """Return the highest correlation of each head's pattern with that of another: (72,)."""
    rest = np.where(where[:, None], weights, 0)
    shares = rest / np.maximum(rest.sum(axis=-1, keepdims=True), 1e-9)
    alike = np.corrcoef(shares.swapaxes(0, 1)[:, where])
    return (alike - 2 * np.eye(72)).max(axis=1)


for name, where in {"with [CLS]": real, "without [CLS]": away}.items():
    found = twins(where)
    print(
        f"{name:13} twins above 0.9: {(found > 0.9).sum()} heads, above 0.7: {(found > 0.7).sum()}"
    )

# %% [markdown]
# <details><summary>Answer</summary>
#
# 37, and 2. Half of the heads seem to have a twin, but what they share is the sink. Where they look *besides*, they
# differ.
# </details>
#
# ## What the introductory texts say
#
# | claim | on this model, these sentences |
# |---|---|
# | "Heads specialise: positional, delimiter, coreference" | One or two clear positional heads, 27 with more than half of their weight on `[CLS]`, one head that leans towards coreference (notebook 23). Most have no clear pattern. |
# | "Some learned heads may be redundant" | 27 of 72 can go. But only 2 have a twin in where they look besides the sink. That a head can go does not show that another does the same. |
# | "As many as 20 % of heads can be removed" | 38 %, by *this* measure and order; less than 25 % in two random orders; all, if only the partner is asked for. |
# | "Some heads improve performance when removed" | Not asked: the whole model is the measure, so nothing can be better. It takes a task with right answers. |
# | "Pruning saves in proportion" | Of attention, yes. Of the whole model far less. A gate of 0 saves nothing. |
#
# "Heads are useless" follows from none of it, and neither does "train with fewer heads": fewer heads *before* training
# are worse (Behnke and Heafield 2020). And a cut says roughly a lower bound, since others may take over (McGrath et al.
# 2023).
#
# > **Try it.** How alike are "The dog bit the man." and "The man bit the dog."? Without heads the cosine is 1.00. The whole
# > model says 0.98, and gives "The man was bitten by the dog." only 0.83. Who did it to whom hardly matters to it.
#
# ## Exercise: prune a layer
#
# Write what `prune_model` does in each layer.


# %% tags=["exercise"]
def my_prune_heads(params, num_heads, heads):
    """MultiHeadParams, H, numbers of the heads that go -> the smaller MultiHeadParams.

    w_q, w_k (D, H*d_k), w_v (D, H*d_v), w_o (H*d_v, D), b_q, b_k (H*d_k,), b_v (H*d_v,), b_o (D,).
    The other heads keep their order.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("prune-heads", my_prune_heads)

# %% tags=["hint"]
# hint("prune-heads")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - How many heads can go depends on the measure: all 72, if partners are to be found; 27, if the order of 190
#   similarities has to agree by 0.95.
# - One backward ranks heads much as a cut of each does. It needs a scalar whose gradient is not 0 at the whole model.
# - The order matters: least important first, 27; at random, fewer than 12 or 18.
# - Pruning removes columns of $w_q$, $w_k$, $w_v$ and rows of $w_o$, and the result is that of gates of 0.
# - Heads look alike as long as the sink is counted.
#
# **In the code:** `mha_numpy/models/analysis/importance.py`, `ablation.py` and `pruning.py` beside it; `SentenceBert` in
# `mha_numpy/models/bert.py`.
#
# **Reference:** Michel et al. 2019, *Are Sixteen Heads Really Better than One?*; Voita et al. 2019, *Analyzing Multi-Head
# Self-Attention*; Behnke and Heafield 2020, *Losing Heads in the Lottery*; McGrath et al. 2023, *The Hydra Effect*;
# Reimers and Gurevych 2019, *Sentence-BERT*.
#
# **Next:** [25, what it costs](25_what-it-costs.ipynb).
