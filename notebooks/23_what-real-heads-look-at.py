# %% [markdown]
# # 23 · What real heads look at
#
# So far, every model was small, and we trained it ourselves. Here is a real language model, all-MiniLM-L6-v2, which
# others trained on more than a billion pairs of sentences. It has 6 layers with 12 heads each, and D = 384. It reads
# one sentence, and we draw four of its 72 heads.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy.models import minilm_or_random
from mha_numpy.models.analysis import (
    attention_layers,
    head_patterns,
    mean_distance,
    mean_entropy,
    weights_times_norm,
)
from mha_numpy.show.pictures import matrices, weights_by_head

# %%
model, note = minilm_or_random()
layers = list(attention_layers(model).values())
print(note)


def read(text):
    """Return the tokens, and all heads' weights (L, H, T, T)."""
    tokens = model.tokenizer(text)
    model(tokens.ids)
    weights = np.stack([layer.weights[0] for layer in layers])
    return tokens.names[0], weights


text = "The animal didn't cross the street because it was too {}."
tired = text.format("tired")
names, weights = read(tired)
chosen = [(0, 2), (1, 8), (2, 7), (3, 1)]
shown = np.stack([weights[each] for each in chosen])
titles = [f"head {i}.{h}" for i, h in chosen]
weights_by_head(shown, names, head_names=titles, note=note)

# %% [markdown]
# Head 0.2 (layer 0, head 2) looks at the token before. Head 1.8 prefers the token after. In head 2.7 nearly all tokens
# look at `[CLS]`, a mark that begins every text (`[SEP]` ends it). And in head 3.1 "it" looks at "animal". Does every
# head have such a clear job? We picked these four, so let's measure all 72.
#
# **By the end you can** measure where the heads of a real model look, compare that with what they
# take from there, test a head's name with a control, and say what one text shows and what it doesn't.
#
# Without the model, everything below runs with random params. Each picture then says so, and how to install it. The
# text always describes the real one.
#
# ## Seventy-two heads at once
#
# `head_patterns` measures how much weight goes to the token before, to the token itself, to the one after, to the
# first one (`[CLS]`), to copies of the token, and to delimiters (here the full stop and `[SEP]`).
#
# > **Predict first.** How many of the 72 heads give more than half of their weight to the token before, to the one
# > after, to the first, and to the delimiters?
#
# <details><summary>Answer</summary>
#
# One head to the token before, one to the one after, 27 to the first, and none to the delimiters.
# </details>

# %%
ids = model.tokenizer(tired).ids
ends = np.array([[name in (".", "[SEP]") for name in names]])
all_heads = weights.reshape(1, 72, len(names), len(names))
found = head_patterns(all_heads, ids, is_delimiter=ends)
del found["induction"]  # for texts that repeat themselves
for name, score in found.items():
    print(f"{name:9} above 0.5: {(score > 0.5).sum():2} heads")

labels = {"row_labels": [f"layer {i}" for i in range(6)]}
labels["column_labels"] = [str(h) for h in range(12)]
scores = {name: s.reshape(6, 12) for name, s in found.items()}
matrices(scores, **labels, title=f"Weight on each pattern. {note}")

# %%
far, wide = mean_distance(all_heads), mean_entropy(all_heads)
spread = {"mean distance, in tokens": far.reshape(6, 12)}
spread["entropy, in nats"] = wide.reshape(6, 12)
title = f"How far, and how widely. {note}"
matrices(spread, **labels, shared=False, title=title)

# %% [markdown]
# Entropy says how widely a head spreads its weight. Equal weight on all 16 tokens would have log 16 = 2.77 nats. Ten
# heads of layer 0 have more than 2, while head 0.2 has 0. Most heads follow no pattern on this list.
#
# ## A sink
#
# The panel for the first token is the strongest. Layer by layer:

# %%
print(f"an even share would be {1 / len(names):.2f}")
on_first = weights[:, :, 1:, 0].mean(axis=(1, 2))
print("weight on [CLS], by layer:", on_first.round(2))
ends = [names.index("."), names.index("[SEP]")]
on_ends = weights[..., ends].mean(axis=(0, 1, 2))
print("weight on the full stop and on [SEP]:", on_ends.round(2))

# %% [markdown]
# From layer 1 on, about half of this sentence's weight (0.37 to 0.58) goes to `[CLS]`, while the full stop and `[SEP]`
# get less than an even share. In BERT-base, they attract this much weight (Clark et al. 2019), and in large language
# models the first token does (Xiao et al. 2023). Such a place is called a **sink**.
#
# ## Where it looks, and what it takes
#
# Why there? A row of weights has to sum to 1 even if the head has nothing to say. Then it helps to have a place that
# contributes little. What token j contributes is not its weight but a vector, $\text{weight}_{ij}\, v_j w_o^h$,
# where $w_o^h$ is the head's block of $w_o$. This vector can be short. So we take its length (Kobayashi et al. 2020),
# and each token's share of the sum of lengths.
#
# > **Predict first.** Head 2.7 gives `[CLS]` 0.86 of its weight. What share of all that this head takes comes from
# > `[CLS]`? And on average over all 72 heads?
#
# <details><summary>Answer</summary>
#
# 0.09 in head 2.7, and 0.08 on average over all heads, where an even share would be 0.06. In the median head, the
# vector of `[CLS]` is a twentieth as long as that of other tokens, which cancels its large weight.
# </details>

# %%
taken = np.stack([weights_times_norm(layer)[0] for layer in layers])
shares = taken / taken.sum(axis=-1, keepdims=True)
on_first = {"its weight": weights[:, :, 1:, 0].mean(axis=-1)}
share = shares[:, :, 1:, 0].mean(axis=-1)
on_first["its share of what is taken"] = share
for name, each in on_first.items():
    print(f"[CLS], {name}: {each.mean():.2f}")

length = (taken / weights)[:, :, 1]  # (L, H, T_k): any row would do
ratio = length[..., 0] / np.median(length[..., 1:], axis=-1)
print(f"its length, if others have 1: {np.median(ratio):.2f}")
title = f"[CLS], seen by the other tokens. {note}"
matrices(on_first, **labels, title=title)

# %%
pair = np.stack([weights[3, 1], shares[3, 1]])
options = {"head_names": ["weights", "shares of what is taken"]}
options |= {"heads": [1, 1], "note": f"Head 3.1. {note}"}
weights_by_head(pair, names, **options)

# %% [markdown]
# On the right the sink has faded, and only the spots that head 3.1 works with are left.
#
# ## In longer texts
#
# So far the model has read 16 tokens. And if there are more?

# %%
from mha_numpy.models.train import load_trained

task = load_trained("text").task
whale = task.decode(task.trained_on[:3000])  # Moby-Dick
(ids,), *_ = model.tokenizer(whale)
for T in (16, 64, 120, 256):
    model(np.append(ids[: T - 1], ids[-1])[None])
    on_first, even_shares = [], []
    for layer in layers[1:]:
        on_first.append(layer.weights[0, :, 1:, 0].mean())
        parts = weights_times_norm(layer)[0]  # (H, T, T)
        of_first = parts[..., 0] / parts.sum(axis=-1)
        even_shares.append(T * of_first[:, 1:].mean())
    print(f"{T} tokens, [CLS] in layers 1 to 5: ", end="")
    print(f"{np.mean(on_first):.2f} of the weight, ", end="")
    print(f"{np.mean(even_shares):.1f} even shares")
    most = layers[0].weights[0, 2, 1:].argmax(axis=-1)
    there = (most == np.arange(T - 1)).mean()
    print(f"    head 0.2 looks at the token before: {there:.0%}")

# %% [markdown]
# In 64 tokens of *Moby-Dick* the sink gets a third of the weight, and contributes more than twice an even share. And
# head 0.2 looks at the token before only in texts of up to about 120 tokens.
#
# ## Where does "it" look?
#
# A classic claim is that some heads are *coreference heads*: they connect "it" with what it stands for. If the last
# word is *tired*, "it" is the animal; if it is *wide*, "it" is the street. So a head that finds the right one should
# look elsewhere when the last word changes.
#
# > **Predict first.** What happens to the 0.68 of head 3.1 if "tired" becomes "wide"? Does "it" turn to "street"?
#
# <details><summary>Answer</summary>
#
# It falls to 0.28, and "street" rises from 0.05 to 0.12. The weight moves as you'd expect, but "animal" stays ahead.
# </details>


# %%
def looks(text, query, key):
    """Return each head's weight of one token on another (L, H)."""
    names, weights = read(text)
    return weights[:, :, names.index(query), names.index(key)]


of_it = {}
for key in ("animal", "street"):
    for word in ("tired", "wide"):
        each = looks(text.format(word), "it", key)
        print(f"{key}, {word}: {each.mean():.3f} on average")
        of_it[f"{key}, {word}"] = each
title = f'Weight of "it" on animal and street. {note}'
matrices(of_it, **labels, title=title)

# %% [markdown]
# In head 5.11, too, "it" looks at "animal", with either last word. Let's take four words for animals, four for
# streets, and a second sentence in which the nouns trade places. And do *all other* tokens look at "animal" as well?


# %%
def row_of(text):
    """Return what heads 3.1 and 5.11 give animal and street."""
    both = [looks(text, "it", key) for key in ("animal", "street")]
    return [each[h] for h in ((3, 1), (5, 11)) for each in both]


words = "tired hungry scared weak wide busy long narrow".split()
other = "The street kept back the animal since it was {}."
texts, halves = {"as above": text, "animal second": other}, {}
for name, each in texts.items():
    rows = [row_of(each.format(word)) for word in words]
    halves[name] = np.array(rows)
columns = ["3.1 animal", "3.1 street", "5.11 animal", "5.11 street"]
options = {"row_labels": words, "column_labels": columns}
display(matrices(halves, **options, title=f'From "it". {note}'))

names, weights = read(tired)
others = [i for i, name in enumerate(names) if name != "it"]
for i, h in ((3, 1), (5, 11)):
    mean = weights[i, h, others, names.index("animal")].mean()
    print(f"head {i}.{h}, all others on animal: {mean:.2f}")

# %% [markdown]
# - In head 3.1, "it" gives the animal more weight with each of the four animal words than with any of the four street
#   words. The same is true in the second sentence, apart from "long". Other tokens give "animal" only 0.11. So on these
#   texts, the weight depends on the pronoun *and* on what the sentence says about it.
# - In head 5.11 the last word matters little, and all other tokens look at "animal" as well, with 0.40. On this text
#   that is no coreference head.
#
# ## "Bank" by the river, and by other things
#
# In "The bank by the river had willow trees", what "bank" means depends on "river".
#
# > **Predict first.** Does "bank" look at "river" in early layers or in late ones? And what changes if "river"
# > becomes "money"?

# %%
bank = "The bank by the {} had willow trees."
places = "river lake water shore money office church cat".split()
found = {p: looks(bank.format(p), "bank", p) for p in places}
of_bank = {"to river": found["river"], "to money": found["money"]}
title = f'Weight of "bank". {note}'
display(matrices(of_bank, **labels, title=title))

heads = [(0, 4), (0, 10), (2, 5)]
rows = [[each[head] for head in heads] for each in found.values()]
columns = [f"head {i}.{h}" for i, h in heads]
options = {"row_labels": places, "column_labels": columns}
title = f'Weight of "bank" on the fifth word. {note}'
matrices({"weight": np.array(rows)}, **options, title=title)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It looks at "river" in layer 0. Heads 0.4 and 0.10 give "river" 0.68 and 0.56, and "money" 0.06 and 0.07. No head of
# a later layer gives "river" more than 0.16.
# </details>
#
# In head 0.4 the four words about water get more than 0.3, and the others less than 0.12. A head of layer 0 sees only
# words and positions. So it matches two words; it doesn't understand the sentence.
#
# ## Verbs and objects
#
# Is there a *syntactic* head, in which an object looks at its verb? Of each token's weights, apart from those on
# `[CLS]`, `[SEP]` and itself, we take the largest. The control: do the other tokens look at the verb, too?

# %%
clauses = """\
The chef cooked a very spicy soup. cooked soup
Yesterday my brother sold his old car. sold car
She wrote a long and angry letter. wrote letter
The child broke the blue cup. broke cup
A thief stole the famous painting. stole painting
They quickly built three wooden houses. built houses
The teacher praised every single student. praised student
Our neighbour bought a small red tractor. bought tractor
The farmer planted some young apple trees. planted trees
He opened the heavy iron door. opened door
The company hired two more engineers. hired engineers
I forgot her exact address. forgot address
The cat chased a tiny grey mouse. chased mouse
The singer wore a bright yellow dress. wore dress
We visited an old stone church. visited church
The judge asked a difficult question. asked question
""".splitlines()


def on_verb(clause):
    """Does the object look at it? Do the others? How far is it?"""
    clause, verb, noun = clause.rsplit(" ", 2)
    names, weights = read(clause)
    v, o = (names.index(word) - 1 for word in (verb, noun))
    elsewhere = 1 - np.eye(len(names) - 2)
    inner = weights[:, :, 1:-1, 1:-1] * elsewhere
    found = inner.argmax(axis=-1) == v  # (L, H, T - 2)
    rest = np.delete(found, [v, o], axis=-1)
    return found[..., o], rest.mean(axis=-1), o - v  # (L, H) twice


def shares_on_verb(clauses):
    """Print what the usual distance finds; return both shares."""
    found = [on_verb(clause) for clause in clauses]
    objects, others, steps = zip(*found, strict=True)
    usual = np.bincount(steps).max()
    print(f"the usual distance: {usual} of {len(clauses)}")
    return np.mean(objects, axis=0), np.mean(others, axis=0)


objects, others = shares_on_verb(clauses)
both = {"the object": objects, "the other tokens": others}
title = f"Share that looks at the verb. {note}"
matrices(both, **labels, title=title)

# %% [markdown]
# In heads 1.0 and 2.0 the object looks at its verb in all 16 sentences and in 15; the usual distance finds 8. But
# in head 2.0, so do 71% of the other tokens. In head 1.0 only 25% do.
#
# We chose this head by these sentences, though. Here are 24 others:

# %%
new_clauses = """\
The old sailor repaired a small wooden boat. repaired boat
My sister painted the kitchen wall. painted wall
Two dogs followed the cat. followed cat
The bank refused his third loan application. refused application
Birds eat many kinds of seeds. eat seeds
The committee rejected our first proposal. rejected proposal
A storm destroyed the entire village. destroyed village
He washed the dirty dishes. washed dishes
The minister signed a new treaty. signed treaty
Children love sweet chocolate. love chocolate
The nurse carried an extremely heavy bag. carried bag
Their lawyer lost the important letter. lost letter
The gardener watered her pale pink roses. watered roses
Scientists discovered a distant planet. discovered planet
The boy kicked an empty can. kicked can
The queen visited a large hospital. visited hospital
Someone damaged the front door. damaged door
The engineer designed several fast trains. designed trains
I lost my only umbrella. lost umbrella
The owner sold a beautiful white horse. sold horse
The pilot saw a dark cloud. saw cloud
Our team won the final match. won match
The waiter brought some very cold water. brought water
Workers repaired the broken bridge. repaired bridge
""".splitlines()
objects, others = shares_on_verb(new_clauses)
print(f"head 1.0: {24 * objects[1, 0]:.0f} of 24", end=", ")
print(f"{others[1, 0]:.0%} of the other tokens")

# %% [markdown]
# Of these it finds only 13, fewer than the usual distance. So a name needs a control *and* new sentences.
#
# ## Early and late
#
# Positional heads are said to be early, *semantic* ones late. We take eight pairs of related words. Does "France" give
# "Paris" more weight than any of the seven other words in its place? Chance is 1 in 8.

# %%
firsts = "Paris doctor guitar king river dog bread snow".split()
seconds = "France nurse music queen water cat butter winter".split()
frame = "We talked about {} and later about {} for an hour."
texts = [frame.format(a, b) for b in seconds for a in firsts]
model(model.tokenizer(texts).ids)
pairs = np.stack([layer.weights[..., 8, 4] for layer in layers])
pairs = pairs.reshape(6, 8, 8, 12)  # (L, second, first, H)
is_own = pairs.argmax(axis=2) == np.arange(8)[:, None]
related = is_own.mean(axis=1)  # (L, H)
print("related words, by layer:", related.mean(axis=1).round(2))
beside = np.maximum(scores["previous"], scores["next"])
panels = {"token before or after": beside, "related words": related}
matrices(panels, **labels, title=f"Early and late. {note}")

# %% [markdown]
# Positional heads are early: the two clear ones are in layers 0 and 1. But heads that match related words are
# everywhere. Heads 0.1 and 0.8 get all eight, as do 2.4 and 4.5.
#
# ## A sentence of your own
#
# > **Try it.** Change `sentence` and `query`. The cell draws the four heads in which this token gives another one the
# > most weight. Say *first* what you expect.

# %%
sentence = "The doctor called the nurse because she needed help."
query = "she"
names, weights = read(sentence)
row = weights[:, :, names.index(query)].copy()  # (L, H, T_k)
row[..., [0, names.index(query)]] = 0
strongest = np.argsort(-row.max(axis=-1), axis=None)[:4]
best = [divmod(int(n), 12) for n in strongest]  # (layer, head)
shown = np.stack([weights[each] for each in best])
keys = [names[row[each].argmax()] for each in best]
titles = [f"{i}.{h}: to {keys[n]}" for n, (i, h) in enumerate(best)]
weights_by_head(shown, names, head_names=titles, note=note)

# %% [markdown]
# ## What you can conclude
#
# - **You can say "on these texts, in this model, head 3.1 ..."** You can't say "coreference heads connect pronouns
#   with what they stand for", because we found one head that leans this way, by looking for it.
# - **Where, not why.** That "it" looks at "animal" doesn't show that the model *uses* what it finds there. To show
#   that, cut the head (next notebook), and even then you get only a rough lower bound.
# - **A name isn't everything.** In large models, most heads do several things (Kissane et al. 2024).
#
# ## Exercise: what a head takes
#
# Compute the lengths that made the sink fade.


# %% tags=["exercise"]
def my_weights_times_norm(weights, v, w_o):
    """weights (B, H, T_q, T_k), v (B, H, T_k, d_v), w_o (H*d_v, D)
    -> (B, H, T_q, T_k).

    Head h writes the sum over j of weights_ij (v_j w_o^h) into
    token i, where w_o^h is the h-th block of d_v rows of w_o.
    Return the length of each term: weights_ij |v_j w_o^h|.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("weights-times-norm", my_weights_times_norm)

# %% tags=["hint"]
# hint("weights-times-norm")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - In a sentence of 16 tokens, two of 72 real heads look mostly at a neighbour, and 27 mostly at the first token.
# - There, from layer 1 on, about half of the weight goes to a sink, `[CLS]`, which contributes about an even share. In
#   64 tokens it's a third, and more than twice an even share.
# - In one head, "it" looks at the animal, and less so if the last word fits the street. In another, every token does.
# - In one head, objects look at their verbs in all of our 16 sentences, but in only 13 of 24 others.
# - Related words match in early layers as well as in late ones.
#
# **In the code:** `mha_numpy/models/analysis/patterns.py`, `weights_times_norm` in
# `mha_numpy/models/analysis/importance.py`, `mha_numpy/models/bert.py`.
#
# **Reference:** Reimers and Gurevych 2019, *Sentence-BERT*, and Wang et al. 2020, *MiniLM*, for the model; Clark et
# al. 2019, *What Does BERT Look At?*; Kobayashi et al. 2020, *Attention is Not Only a Weight*; Xiao et al. 2023,
# *Efficient Streaming Language Models with Attention Sinks*; Kissane et al. 2024, on GPT-2 small.
#
# **Next:** [24, which heads matter](24_which-heads-matter.ipynb).
