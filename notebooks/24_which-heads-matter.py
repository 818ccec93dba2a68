# %% [markdown]
# # 24 · Which heads matter
#
# In notebook 10 we cut heads of our own small model. Here is the real model from notebook 23, with 72 heads. It turns
# each sentence into one vector, and sentences that mean the same should get similar vectors. Below are ten pairs of
# such sentences. First the whole model looks for the partner of each sentence. Then we cut **all 72 heads**, and it
# looks again.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy.layers import (
    cross_entropy_backward,
    cross_entropy_forward,
)
from mha_numpy.models import SentenceBert, minilm_or_random
from mha_numpy.models.analysis import (
    ablation_scores,
    attention_layers,
    cut_model,
    head_importance,
    heads_by_layer,
    least_important_first,
    mean_heads,
    prune_model,
)
from mha_numpy.show.pictures import line_chart, matrices

# %%
# partners: the first two, the next two, and so on
sentences = """\
The bank by the river had willow trees.
Old willows stood along the stream.
The bank raised its interest rates.
Loans have become more expensive.
The animal was too tired to walk.
The weary dog would not move.
The street was too wide to cross.
Nobody got over the broad avenue.
A man plays the guitar on stage.
Somebody makes music for a crowd.
She cooked a soup of carrots.
Dinner was a pot of vegetables.
He won the race by a second.
The fastest runner took the gold.
The doctor told me to rest.
Stay in bed, said the physician.
Snow fell on the mountains.
The peaks are white in winter.
The computer lost all my files.
My data were gone after the crash.
""".splitlines()
bert, note = minilm_or_random()
model = SentenceBert(bert).eval()
layers = attention_layers(model)
ids, mask, _ = bert.tokenizer(sentences)
partner = np.arange(20) ^ 1  # of 0 it is 1, of 1 it is 0, ...


def similarities():
    """Return the cosines of all sentences, -inf with themselves."""
    vectors = model(ids, mask=mask)
    found = vectors @ vectors.T  # (20, 20)
    np.fill_diagonal(found, -np.inf)
    return found


def partners_found(cosines):
    return (cosines.argmax(axis=1) == partner).sum()


all_heads = {name: range(12) for name in layers}
whole = similarities()
with cut_model(model, all_heads):
    without = similarities()
print(note)
print("whole, partners found:        ", partners_found(whole))
print("without heads, partners found:", partners_found(without))

# %% [markdown]
# It finds all of them, both times. So are heads useless? No, the question was too easy. Without heads no token sees
# another, so a sentence's vector is a mean over its separate words. Here, related words such as "guitar" and "music"
# or "doctor" and "physician" are enough to find a partner. **How many heads can go depends on what you ask.** So let's
# ask a question that can't be answered without the heads.
#
# **By the end you can** rank the heads of a real model by gradients and by cuts, say how many can go
# before a measure of your choice breaks, remove them for good, and check a claim about heads against your numbers.
#
# All of this is about one model, after training, on these twenty sentences.
#
# ## A measure that notices
#
# Twenty sentences give 190 similarities. We ask whether their **order** stays the same: which two sentences are the
# most alike, which come next, and so on. *Spearman's correlation* compares the ranks: it is 1 for the same order and
# near 0 for unrelated ones.

# %%
upper = np.triu_indices(20, 1)  # each pair once


def spearman(a, b):
    """Return the correlation of the ranks of two arrays."""
    ranks = [each.ravel().argsort().argsort() for each in (a, b)]
    return np.corrcoef(ranks)[0, 1]


def agreement():
    """Compare 190 similarities with those of the whole model."""
    return spearman(similarities()[upper], whole[upper])


with cut_model(model, all_heads):
    print(f"without all heads: {agreement():.2f}")
for name, found in {"whole": whole, "without": without}.items():
    print(f"mean cosine, {name}: {found[upper].mean():.2f}")
cosines = {"whole": np.nan_to_num(whole, neginf=1)}
cosines["without heads"] = np.nan_to_num(without, neginf=1)
matrices(cosines, title=f"Cosines of 20 sentences. {note}")

# %% [markdown]
# Now the heads are missed. Without them, the correlation is only 0.54, and all sentences look more alike: the mean
# cosine rises from 0.08 to 0.49.
#
# From here on, we call the order *kept* if the correlation is at least 0.95 and all partners are found.
#
# ## One by one
#
# > **Predict first.** We cut one head at a time, by setting its output to 0. In which layer does a cut cost most? And
# > how far does the correlation fall: to 0.5, 0.9, 0.97?
#
# <details><summary>Answer</summary>
#
# A cut costs most in the last layer. The lowest correlation, 0.968, comes from cutting head 5.10. So no single cut
# breaks the order.
# </details>

# %%
scores = ablation_scores(model, agreement)  # half a minute
cut_by_0 = 1 - np.stack(list(scores.values()))  # (L, H)
print(f"the largest loss: {cut_by_0.max():.3f}")

labels = {"row_labels": [f"layer {i}" for i in range(6)]}
labels["column_labels"] = [str(h) for h in range(12)]
lost = {"1 - correlation, one head cut by 0": cut_by_0}
title = f"The loss without each head. {note}"
matrices(lost, **labels, title=title)

# %% [markdown]
# Perhaps a cut does harm only because the model has never seen zeros. So let's cut the last layer's heads again, each
# by its *mean* (notebook 10).

# %%
similarities()  # the forward pass that the means are taken from
means = {n: mean_heads(layer, mask) for n, layer in layers.items()}
last, cut_by_mean = list(layers)[-1], []
for h in range(12):
    with cut_model(model, {last: h}, means=means):
        cut_by_mean.append(1 - agreement())
off = np.abs(cut_by_0[-1] - cut_by_mean).max()
print(f"largest difference: {off:.4f}")

# %% [markdown]
# In this layer the two cuts agree to within 0.002, so the zeros are not to blame.
#
# ## By a gradient
#
# Do we really have to cut every head to rank them? Put a *gate* on each head, a factor that is 1 as long as the head is
# whole. Michel et al. (2019) ask how steeply a scalar changes with each gate, and a single backward pass answers this
# for all heads. **Which scalar?** It can't be the agreement, because ranks have no slope. Nor can it be the distance of
# the vectors from those of the whole model: where all gates are 1, this distance is 0, its minimum, so *every* gradient
# is 0 there. We take the loss that such models are trained on: each sentence has to pick its partner among the other
# 19, by a softmax over 20 times the cosines.


# %%
def vectors_and_logits(texts=sentences):
    ids, mask, _ = bert.tokenizer(texts)
    vectors = model(ids, mask=mask)  # (20, D)
    logits = 20 * vectors @ vectors.T
    np.fill_diagonal(logits, -np.inf)  # no sentence picks itself
    return vectors, logits


def forward_and_backward():
    vectors, logits = vectors_and_logits()
    loss, cache = cross_entropy_forward(logits, partner)
    grads = cross_entropy_backward(np.ones_like(loss), cache)
    both = grads.d_logits + grads.d_logits.T  # rows and columns
    model.backward(20 * both @ vectors)


importance = head_importance(model, forward_and_backward)
by_gradient = np.stack(list(importance.values()))
print("rank correlation of gradients and cuts")
print(f"all heads:  {spearman(by_gradient, cut_by_0):.2f}")
print(f"layers 0-4: {spearman(by_gradient[:5], cut_by_0[:5]):.2f}")
print(f"layer 5:    {spearman(by_gradient[5], cut_by_0[5]):.2f}")

shown = {"mean of |gradient of the gate|": by_gradient}
title = f"Importance by the gates' gradients. {note}"
matrices(shown, **labels, title=title)

# %% [markdown]
# One forward and one backward pass take a second, the 72 cuts half a minute. Both rank the heads much alike, also
# without the last layer, which both put first. Within it they agree less.
#
# Can the model get *better* without some heads? We choose seven by these ten pairs, and test them on ten others.


# %%
others = """\
The train was an hour late.
We waited long at the station.
The baby cried all night.
Nobody slept because of the infant.
He forgot to water the roses.
The flowers dried up in the garden.
Two thieves broke into the shop.
The store was robbed.
Our team lost the match.
The players were beaten in the game.
The teacher explained the equation.
The pupils learned some algebra.
A storm sank the ship.
The boat went down in heavy wind.
The king died without a son.
The monarch left no heir.
The coffee was far too hot.
I burned my tongue on the drink.
Prices at the market went up.
Food costs more than last year.
""".splitlines()


def loss_of(texts=sentences):
    """Return the mean loss of ten pairs."""
    _, logits = vectors_and_logits(texts)
    return cross_entropy_forward(logits, partner)[0].mean()


def without_heads(heads):
    with cut_model(model, heads_by_layer(heads)):
        return loss_of(sentences), loss_of(others)


losses = ablation_scores(model, loss_of)  # a quarter of a minute
best_first = least_important_first(losses)
rng = np.random.default_rng(0)
drawn = [rng.permutation(best_first)[:7] for _ in range(20)]
drawn = [[(name, int(h)) for name, h in each] for each in drawn]
by_chance = [without_heads(each) for each in drawn]
print("loss on these pairs, and on the others")
print("whole:            ", np.round(without_heads([]), 3))
seven = without_heads(best_first[:7])
print("without seven:    ", np.round(seven, 3))
print("by chance, lowest:", np.min(by_chance, axis=0).round(3))
print("by chance, mean:  ", np.mean(by_chance, axis=0).round(3))
found = partners_found(vectors_and_logits(others)[1])
print("whole, partners of the others found:", found)

# %% [markdown]
# It can. On the others, the loss falls from 0.113 to 0.041. None of 20 random choices gets below 0.055. (All partners
# were found anyway.)
#
# ## More and more heads
#
# Now we cut more and more heads: the least important ones first and, for comparison, in two random orders.
#
# > **Predict first.** How many of the 72 can go, in each order, before the correlation falls below 0.95?
#
# <details><summary>Answer</summary>
#
# 27, if the least important go first. In the two random orders, fewer than 12 and fewer than 18. So if you choose
# well, more than a third can go and the order is kept.
#
# </details>


# %%
def curve(order, counts):
    """Return, for each count of heads cut, the agreement."""
    found = []
    for n in counts:
        with cut_model(model, heads_by_layer(order[:n])):
            found.append(agreement())
    return np.array(found)


ranked = least_important_first(importance)
orders = {"least important first": ranked}
for seed in (0, 1):
    mixed = np.random.default_rng(seed).permutation(72)
    orders[f"random order {seed}"] = [ranked[i] for i in mixed]

counts, curves = np.arange(0, 73, 6), {}
for name, order in orders.items():
    curves[name] = curve(order, counts)
    print(f"{name:21} at 6, 12, 18: {curves[name][1:4].round(3)}")
axes = {"x_label": "heads cut", "y_label": "Spearman's correlation"}
title = f"The order, as heads are cut. {note}"
line_chart(counts, curves, title=title, **axes)

# %% [markdown]
# Where exactly does it fall below 0.95?

# %%
near = np.arange(24, 31)
for n, each in zip(near, curve(ranked, near), strict=True):
    print(f"{n} heads cut: {each:.3f}")

going = heads_by_layer(ranked[:27])
lost = [len(going.get(name, [])) for name in layers]
print("27 cut, of each layer:", lost)
with cut_model(model, going):
    print("partners found:", partners_found(similarities()))

# %% [markdown]
# The last layer keeps all twelve heads, and the first five lose between three and seven each.
#
# ## Cut for good
#
# A gate of 0 saves nothing, because the head is still computed and only then multiplied by 0. To save something, you
# have to remove its params: its columns of $w_q$, $w_k$, $w_v$ with their biases, and its rows of $w_o$.

# %%
from mha_numpy import compare

with cut_model(model, going):
    gated = model(ids, mask=mask)
before = model.num_parameters
attention = sum(layer.num_parameters for layer in layers.values())
prune_model(model, going)
gone = before - model.num_parameters
print(f"params before: {before:,}, now {before - gone:,}")
print(f"the model loses {gone / before:.1%}")
print(f"attention loses {gone / attention:.0%} of {attention:,}")
compare(model(ids, mask=mask), gated, name="vectors")

# %% [markdown]
# The vectors are the same as with gates of 0. Attention loses 37% of its params, but the whole model only 6%, because
# most params are in the table of words and in the feed-forward layers.
#
# ## Are heads alike?
#
# Textbooks say that heads are *redundant*: some do the same as others. We correlate the weights of each head with those
# of every other head, over all sentences. The head with the highest correlation is its *twin*.
#
# > **Predict first.** How many of the 72 heads have a twin with a correlation above 0.9? And how many if we leave out
# > `[CLS]`, the sink from notebook 23?

# %%
bert, note = minilm_or_random()  # whole again
bert(ids, mask=mask)
attentions = attention_layers(bert).values()
weights = np.concatenate([a.weights for a in attentions], axis=1)
real = mask[:, :, None] & mask[:, None, :]  # (B, T, T)
away = real.copy()
away[:, :, 0] = away[:, 0] = False  # no [CLS], as key or as query


def twins(where):
    """Return each head's highest correlation with another (72,)."""
    rest = np.where(where[:, None], weights, 0)
    total = np.maximum(rest.sum(axis=-1, keepdims=True), 1e-9)
    shares = (rest / total).swapaxes(0, 1)  # (72, B, T, T)
    alike = np.corrcoef(shares[:, where]) - 2 * np.eye(72)
    return alike.max(axis=1)


for name, where in {"with": real, "without": away}.items():
    found = twins(where)
    for limit in (0.9, 0.7):
        n = (found > limit).sum()
        print(f"{name} [CLS], twins above {limit}: {n} heads")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 37 with `[CLS]`, and only 2 without. Half of the heads seem to have a twin, but what they share is mostly the sink.
# </details>
#
# ## What the introductory texts say
#
# | claim | on this model, these sentences |
# |---|---|
# | "Heads specialise: positional, delimiter, coreference" | One or two clear positional heads, 27 with over half of their weight on `[CLS]` in a short sentence, one for verbs of objects (in 13 of 24 new sentences), one that leans towards coreference (notebook 23). Most have none. |
# | "Some learned heads may be redundant" | 27 of 72 can go, but apart from the sink only 2 have a twin. That you can remove a head doesn't show that another does the same. |
# | "As many as 20% of heads can be removed" | 38%, by *this* measure and order; less than 25% in two random orders; all of them, if you only ask for the partner. |
# | "Some heads improve performance when removed" | Yes, by the loss: seven chosen on ten pairs help on ten others. |
# | "Pruning saves in proportion" | For attention, yes. For the whole model, far less. A gate of 0 saves nothing. |
#
# None of this shows that "heads are useless": a cut gives only a rough lower bound, since other heads may take over
# (McGrath et al. 2023). Nor does it show that you should "train with fewer heads". For a translator, starting with
# fewer was worse (Behnke and Heafield 2020). For small models that copy, as in notebook 20, it depends on what stays
# equal. Here are five seeds of each in `mha-numpy experiment redundancy`:

# %%
from mha_numpy.models.experiments import load_result
from mha_numpy.show.pictures import experiment_chart

display(experiment_chart("redundancy"))
result = load_result("redundancy")
for n in ("8 heads", "1 head"):
    arm = f"copying, {n} of width 4"
    one = result.values("one head a layer", arm)
    later = result.values("trained on", arm)
    print(f"{n}: {one.mean():.0%} right with one a layer, and")
    print(f"{later.min():.0%} to {later.max():.0%} 100 steps later")

# %% [markdown]
# **With equal params**, one wide head a layer learns sooner than eight that share its width, but fails with one seed.
# **With heads of equal width**, one narrow head rarely gets there in time, and eight always do. Once they have, seven
# of them can go: 100 steps later the one left does the whole job. A narrow head that was always alone does it with some
# seeds only. So here, it's safer to cut heads after training than before.
#
# > **Try it.** To this model, how alike are "The dog bit the man." and "The man bit the dog."? And what about "The
# > man was bitten by the dog.", which means the same as the first? Say what you expect, with and without heads. Then
# > try other sentences.

# %%
model = SentenceBert(bert).eval()
texts = ["The dog bit the man.", "The man bit the dog."]
texts.append("The man was bitten by the dog.")
ids, mask, _ = bert.tokenizer(texts)
to_first = similarities()[0, 1:]
with cut_model(model, all_heads):
    without = similarities()[0, 1:]
print("all heads:    ", to_first.round(2))
print("without heads:", without.round(2))

# %% [markdown]
# To this model, who did it to whom hardly matters. The man who bites is closer to the first sentence than the passive
# that means the same, with or without heads.
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
#   has to stay much the same, with a correlation of 0.95.
# - One backward pass ranks the heads much as cutting them one by one does. It needs a scalar whose gradient isn't 0
#   when every head is in place.
# - The order of cutting matters: at random, fewer than 12 or 18 heads can go.
# - Pruning removes columns of $w_q$, $w_k$, $w_v$ and rows of $w_o$, with the same result as gates of 0.
# - Heads look alike only as long as you count the sink.
#
# **In the code:** `mha_numpy/models/analysis/importance.py`, `ablation.py` and `pruning.py` next to it;
# `SentenceBert` in `mha_numpy/models/bert.py`.
#
# **Reference:** Michel et al. 2019, *Are Sixteen Heads Really Better than One?*; Voita et al. 2019, *Analyzing
# Multi-Head Self-Attention*; Behnke and Heafield 2020, *Losing Heads in the Lottery*; McGrath et al. 2023, *The Hydra
# Effect*; Reimers and Gurevych 2019, *Sentence-BERT*.
#
# **Next:** [25, what it costs](25_what-it-costs.ipynb).
