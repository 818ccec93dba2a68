# %% [markdown]
# # 24 · Which heads matter
#
# In notebook 10 we cut heads of our own small model. Here is the real model from notebook 23, with 72 heads. It turns
# each sentence into one vector, and sentences that mean the same should get similar vectors. Below are ten pairs.
# First the whole model looks for each sentence's partner. Then we cut **all 72 heads**, and it looks again.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy.models import SentenceBert, minilm_or_random
from mha_numpy.models.analysis import attention_layers, cut_model
from mha_numpy.show.pictures import line_chart, matrices

# %%
pairs = [
    (
        "The bank by the river had willow trees.",
        "Old willows stood along the stream.",
    ),
    (
        "The bank raised its interest rates.",
        "Loans have become more expensive.",
    ),
    (
        "The animal was too tired to walk.",
        "The weary dog would not move.",
    ),
    (
        "The street was too wide to cross.",
        "Nobody got over the broad avenue.",
    ),
    (
        "A man plays the guitar on stage.",
        "Somebody makes music for a crowd.",
    ),
    (
        "She cooked a soup of carrots.",
        "Dinner was a pot of vegetables.",
    ),
    (
        "He won the race by a second.",
        "The fastest runner took the gold.",
    ),
    (
        "The doctor told me to rest.",
        "Stay in bed, said the physician.",
    ),
    (
        "Snow fell on the mountains.",
        "The peaks are white in winter.",
    ),
    (
        "The computer lost all my files.",
        "My data were gone after the crash.",
    ),
]
bert, note = minilm_or_random()
model = SentenceBert(bert).eval()
ids, mask, _ = bert.tokenizer(
    [sentence for pair in pairs for sentence in pair]
)
# of 0 it is 1, of 1 it is 0, of 2 it is 3, ...
partner = np.arange(20) ^ 1


def similarities():
    """Return the cosine of every two sentences, (20, 20), leaving
    out each one with itself.
    """
    vectors = model(ids, mask=mask)
    found = vectors @ vectors.T
    np.fill_diagonal(found, -np.inf)
    return found


whole, layers = similarities(), attention_layers(model)
with cut_model(model, {name: range(12) for name in layers}):
    without = similarities()
print(note)
for name, found in {
    "whole": whole,
    "without heads": without,
}.items():
    print(
        f"{name:13} partners found: "
        f"{(found.argmax(axis=1) == partner).sum()} of 20"
    )

# %% [markdown]
# All of them, both times. So are heads useless? No, the question was too easy. Without heads no token sees another, so
# a sentence's vector is a mean over its separate words. Here, related words such as "guitar" and "music" or "doctor"
# and "physician" are enough to find a partner. **How many heads can go depends on what you ask.** So we need a
# question that needs the heads.
#
# **What you can do afterwards:** you can rank the heads of a real model by gradients and by cuts, say how many can go
# before a measure of your choice breaks, take them out for good, and say what this shows about a claim on heads.
#
# All of this is about one model, after training, on these twenty sentences.
#
# ## A measure that notices
#
# Twenty sentences give 190 similarities. We ask whether their **order** stays the same: which two sentences are the
# most alike, which come next, and so on. *Spearman's correlation* is the correlation of ranks, 1 for the same order
# and 0 for no relation.

# %%
upper = np.triu_indices(20, 1)  # each pair once


def ranks(found):
    return found[upper].argsort().argsort()


def agreement():
    """Return Spearman's correlation of all 190 similarities with
    those of the whole model.
    """
    return np.corrcoef(ranks(similarities()), ranks(whole))[0, 1]


with cut_model(model, {name: range(12) for name in layers}):
    print(f"without all heads: {agreement():.2f}")
shown = {"whole": whole, "without heads": without}
cosines = {
    name: np.where(np.isinf(found), 1, found)
    for name, found in shown.items()
}
matrices(cosines, title=f"Cosines of 20 sentences. {note}")

# %% [markdown]
# Now the heads are missed. The order agrees only by 0.54, and without them all sentences look alike.
#
# From here on, we call the order *kept* if the correlation is at least 0.95 and all partners are found.
#
# ## One by one
#
# > **Predict first.** We cut each head by itself, by 0. In which layer does a cut cost most? And how far does the
# > correlation fall: to 0.5, 0.9, 0.97?
#
# <details><summary>Answer</summary>
#
# A cut costs most in the last layer. The lowest correlation, 0.968, comes from cutting head 5.10. So no single cut
# breaks the order.
# </details>

# %%
from mha_numpy.models.analysis import ablation_scores, mean_heads

# (L, H), half a minute
cut_by_0 = 1 - np.stack(
    list(ablation_scores(model, agreement).values())
)
labels = {"row_labels": [f"layer {i}" for i in range(6)]}
labels["column_labels"] = [str(h) for h in range(12)]
print(f"the largest loss: {cut_by_0.max():.3f}")
lost = {"1 - correlation, one head cut by 0": cut_by_0}
matrices(
    lost, **labels, title=f"The loss without each head. {note}"
)

# %% [markdown]
# Perhaps a cut by 0 does harm only because later layers have never seen zeros. So for the twelve heads of the last
# layer, let's also cut by the *mean* (notebook 10).

# %%
similarities()  # the forward over which the mean is taken
means = {
    name: mean_heads(layer, mask) for name, layer in layers.items()
}
last, both = list(layers)[-1], []
for h in range(12):
    with cut_model(model, {last: h}, means=means):
        both.append([cut_by_0[-1, h], 1 - agreement()])
print("largest difference:", np.ptp(both, axis=1).max().round(4))

# %% [markdown]
# In this layer the two cuts agree to 0.002, so the zeros are not to blame. In general you have to measure this.
#
# ## By a gradient
#
# Michel et al. (2019) need only one backward: the importance of a head is how steeply a scalar changes with its gate.
# **Which scalar?** It can't be the agreement, because ranks have no slope. Nor can it be the distance of the vectors
# from those of the whole model: that is 0 where all gates are 1, which is its minimum, so *every* gradient there is 0.
# We take the loss that such models are trained on: each sentence has to pick its partner among the other 19, by a
# softmax over 20 times the cosines.

# %%
from mha_numpy.layers import (
    cross_entropy_backward,
    cross_entropy_forward,
)
from mha_numpy.models.analysis import head_importance


def forward_and_backward():
    vectors = model(ids, mask=mask)  # (20, D)
    logits = 20 * vectors @ vectors.T
    np.fill_diagonal(logits, -np.inf)  # no sentence picks itself
    loss, cache = cross_entropy_forward(logits, partner)
    d_logits = cross_entropy_backward(
        np.ones_like(loss), cache
    ).d_logits
    # each vector is on both sides
    model.backward(20 * (d_logits + d_logits.T) @ vectors)


importance = head_importance(model, forward_and_backward)
by_gradient = np.stack(list(importance.values()))
for name, of in {
    "all heads": slice(None),
    "only layer 5": slice(5, None),
}.items():
    order = [
        each[of].ravel().argsort().argsort()
        for each in (by_gradient, cut_by_0)
    ]
    print(
        f"rank correlation of gradients and cuts, {name}: "
        f"{np.corrcoef(order)[0, 1]:.2f}"
    )
title = f"Importance by the gates' gradients. {note}"
matrices(
    {"mean of |gradient of the gate|": by_gradient},
    **labels,
    title=title,
)

# %% [markdown]
# One forward and backward (a second) rank the heads much as 72 cuts do (half a minute): the ranks agree by 0.87,
# mostly because both put the last layer first. Within the last layer they agree only by 0.48. The two also measure
# different things. A gradient is a slope of the loss; a cut is a whole step, judged by the order.
#
# ## More and more heads
#
# Now we cut more and more heads: the least important ones first and, for comparison, in two random orders.
#
# > **Predict first.** How many of the 72 can go, in each order, before the correlation falls below 0.95?
#
# <details><summary>Answer</summary>
#
# 27 by importance; in the random orders, fewer than 12 and fewer than 18. So if you choose well, more than a third can
# go and the order is kept. Beyond 50 the choice no longer matters, because a gradient taken at the whole model says
# little about a model that is nearly empty.
#
# </details>

# %%
from mha_numpy.models.analysis import (
    heads_by_layer,
    least_important_first,
)


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
    orders[f"random order {seed}"] = [
        by_importance[i] for i in mixed
    ]
counts = np.arange(0, 73, 6)
curves = {
    name: curve(order, counts) for name, order in orders.items()
}
title = f"The order, as heads are cut. {note}"
print(
    {
        name: line[1:4].round(3).tolist()
        for name, line in curves.items()
    },
    "at 6, 12, 18",
)
line_chart(
    counts,
    curves,
    title=title,
    x_label="heads cut",
    y_label="Spearman's correlation",
)

# %% [markdown]
# Where exactly does it fall below 0.95? And do all sentences still find their partners?

# %%
near = np.arange(24, 31)
print(
    dict(
        zip(
            near.tolist(),
            curve(by_importance, near).round(3).tolist(),
            strict=True,
        )
    )
)
going = heads_by_layer(by_importance[:27])
print(
    "of each layer:", [len(going.get(name, [])) for name in layers]
)
with cut_model(model, going):
    print(
        "partners found:",
        (similarities().argmax(axis=1) == partner).sum(),
    )

# %% [markdown]
# The last layer keeps all twelve heads, and the first five lose between three and seven each. (`pruning_curve` can
# also choose greedily, each time cutting the head whose loss hurts least. For 72 heads that takes 2,629 forwards.)
#
# ## Cut for good
#
# A gate of 0 saves nothing, because the head is still computed and only then multiplied by 0. To save something, you
# have to remove its params: its columns of $w_q$, $w_k$, $w_v$ with their biases, and its rows of $w_o$.

# %%
from mha_numpy import compare
from mha_numpy.models.analysis import prune_model

with cut_model(model, going):
    gated = model(ids, mask=mask)
before = model.num_parameters
attention = sum(layer.num_parameters for layer in layers.values())
prune_model(model, going)
gone = before - model.num_parameters
print(
    f"params: {before:,} before, {model.num_parameters:,} now; "
    f"{gone / before:.1%} less"
)
print(
    f"of attention's {attention:,} params {gone / attention:.0%} "
    "are gone"
)
compare(model(ids, mask=mask), gated, name="vectors")

# %% [markdown]
# The vectors are the same as with gates of 0. Attention loses 37% of its params, but the whole model only 6%, because
# most params are in the table of words and in the feed-forward layers.
#
# ## Are heads alike?
#
# Textbooks say that heads are *redundant*, that is, some do the same as others. So we compare patterns. For each head
# we correlate its weights with those of every other head, over all sentences; the head with the highest correlation is
# its *twin*.
#
# > **Predict first.** How many of the 72 heads have a twin above 0.9? And how many if we leave out `[CLS]`, the sink
# > from notebook 23?

# %%
bert, note = minilm_or_random()  # whole again
bert(ids, mask=mask)
weights = np.concatenate(
    [layer.weights for layer in attention_layers(bert).values()],
    axis=1,
)
real = mask[:, :, None] & mask[:, None, :]  # (B, T, T)
away = real.copy()
away[:, :, 0] = away[:, 0] = False


def twins(where):
    """Return the highest correlation of each head's pattern with
    that of another: (72,).
    """
    rest = np.where(where[:, None], weights, 0)
    shares = rest / np.maximum(
        rest.sum(axis=-1, keepdims=True), 1e-9
    )
    alike = np.corrcoef(shares.swapaxes(0, 1)[:, where])
    return (alike - 2 * np.eye(72)).max(axis=1)


for name, where in {
    "with [CLS]": real,
    "without [CLS]": away,
}.items():
    found = twins(where)
    print(
        f"{name:13} twins above 0.9: {(found > 0.9).sum()} heads, "
        f"above 0.7: {(found > 0.7).sum()}"
    )

# %% [markdown]
# <details><summary>Answer</summary>
#
# 37, and then only 2. Half of the heads seem to have a twin, but what they share is the sink. Everywhere else they
# look at different things.
# </details>
#
# ## What the introductory texts say
#
# | claim | on this model, these sentences |
# |---|---|
# | "Heads specialise: positional, delimiter, coreference" | One or two clear positional heads, 27 with more than half of their weight on `[CLS]`, one head that leans towards coreference (notebook 23). Most have no clear pattern. |
# | "Some learned heads may be redundant" | 27 of 72 can go, but apart from the sink only 2 have a twin. That you can remove a head doesn't show that another does the same. |
# | "As many as 20% of heads can be removed" | 38%, by *this* measure and order; less than 25% in two random orders; all of them, if you only ask for the partner. |
# | "Some heads improve performance when removed" | We can't tell: the whole model is our measure, so nothing can be better. It takes a task with right answers. |
# | "Pruning saves in proportion" | For attention, yes. For the whole model, far less. A gate of 0 saves nothing. |
#
# None of this shows that "heads are useless", or that you should "train with fewer heads": fewer heads *before*
# training are worse (Behnke and Heafield 2020). And a cut gives only a rough lower bound, since other heads may take
# over (McGrath et al. 2023).
#
# > **Try it.** How alike are "The dog bit the man." and "The man bit the dog."? Without heads the cosine is 1.00. With
# > all heads it is 0.98, and for "The man was bitten by the dog." it is only 0.83. Who did it to whom hardly matters
# > to this model.
#
# ## Exercise: prune a layer
#
# Write what `prune_model` does in each layer.


# %% tags=["exercise"]
def my_prune_heads(params, num_heads, heads):
    """MultiHeadParams, H, numbers of the heads that go -> the
    smaller MultiHeadParams.

    w_q, w_k (D, H*d_k), w_v (D, H*d_v), w_o (H*d_v, D), b_q, b_k
    (H*d_k,), b_v (H*d_v,), b_o (D,). The other heads keep their
    order.
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
# - How many heads can go depends on the measure: all 72 if you ask for partners; 27 if the order of 190 similarities
#   has to agree by 0.95.
# - One backward ranks heads much as cutting each of them does. It needs a scalar whose gradient is not 0 at the whole
#   model.
# - The order matters: least important first, 27; at random, fewer than 12 or 18.
# - Pruning removes columns of $w_q$, $w_k$, $w_v$ and rows of $w_o$, with the same result as gates of 0.
# - Heads look alike only as long as you count the sink.
#
# **In the code:** `mha_numpy/models/analysis/importance.py`, `ablation.py` and `pruning.py` beside it; `SentenceBert` in
# `mha_numpy/models/bert.py`.
#
# **Reference:** Michel et al. 2019, *Are Sixteen Heads Really Better than One?*; Voita et al. 2019, *Analyzing Multi-Head
# Self-Attention*; Behnke and Heafield 2020, *Losing Heads in the Lottery*; McGrath et al. 2023, *The Hydra Effect*;
# Reimers and Gurevych 2019, *Sentence-BERT*.
#
# **Next:** [25, what it costs](25_what-it-costs.ipynb).
