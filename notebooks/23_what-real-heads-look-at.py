# %% [markdown]
# # 23 · What real heads look at
#
# The heads so far were trained on tasks of our own. Here is a language model that others have trained on more than a
# billion pairs of sentences, all-MiniLM-L6-v2: 6 layers with 12 heads each, D = 384. It reads one sentence, and four of
# its 72 heads are drawn.

# %%
import numpy as np

from mha_numpy.models import minilm_or_random
from mha_numpy.models.analysis import attention_layers
from mha_numpy.show.pictures import matrices, weights_by_head

model, note = minilm_or_random()
layers = list(attention_layers(model).values())
print(note)


def read(text):
    """Return the names of the tokens, and the weights of all heads: (L, H, T, T)."""
    tokens = model.tokenizer(text)
    model(tokens.ids)
    return tokens.names[0], np.stack([layer.weights[0] for layer in layers])


tired = "The animal didn't cross the street because it was too tired."
names, weights = read(tired)
chosen = [(0, 2), (1, 8), (2, 7), (3, 1)]
shown, titles = np.stack([weights[each] for each in chosen]), [f"head {i}.{h}" for i, h in chosen]
weights_by_head(shown, names, head_names=titles, note=note)

# %% [markdown]
# Head 0.2 (layer 0, head 2) looks at the token before, always. Head 1.8 likes the token after. In head 2.7 nearly all
# tokens look at `[CLS]`, a mark that stands before every text (`[SEP]` ends it). In head 3.1 "it" looks at "animal". So
# the textbooks are right? We chose these four out of 72. Now you measure all of them.
#
# **What you can do afterwards:** you can measure where the heads of a real model look, set beside it what they take from
# there, test a name for a head by a control, and say what follows from one text, and what does not.
#
# Where the model is not installed, everything below runs with random params and says so in each picture, together with
# the two commands that install it. The text then speaks of pictures that you do not see.
#
# ## Seventy-two heads at once
#
# `head_patterns` returns how much weight lies on the token before, on the token itself, on the one after, on the first
# one (`[CLS]`), on copies of a token, and on delimiters (here the full stop and `[SEP]`).
#
# > **Predict first.** Introductory texts list positional heads, delimiter heads, and more. Of 72 heads, how many give
# > more than half of their weight to the token before? To the one after? To the first? To the delimiters?
#
# <details><summary>Answer</summary>
#
# One, one, 27, and none.
# </details>

# %%
from mha_numpy.models.analysis import head_patterns, mean_distance, mean_entropy

ids = model.tokenizer(tired).ids
ends = np.array([[name in (".", "[SEP]") for name in names]])
found = [head_patterns(layer.weights, ids, is_delimiter=ends) for layer in layers]
scores = {name: np.stack([of_layer[name] for of_layer in found]) for name in found[0]}
del scores["induction"]  # for texts that repeat themselves
print({name: int((score > 0.5).sum()) for name, score in scores.items()})
layer_names, head_names = [f"layer {i}" for i in range(6)], [str(h) for h in range(12)]
labels = {"row_labels": layer_names, "column_labels": head_names}
matrices(scores, **labels, title=f"Weight on each pattern. {note}")

# %%
spread = {"mean distance, in tokens": [mean_distance(layer.weights) for layer in layers]}
spread["entropy, in nats"] = [mean_entropy(layer.weights) for layer in layers]
spread = {name: np.stack(numbers) for name, numbers in spread.items()}
matrices(spread, **labels, shared=False, title=f"How far, and how widely. {note}")

# %% [markdown]
# Equal weight on all 16 tokens would have an entropy of log 16 = 2.77. Many heads of layer 0 are near it. Head 0.2 has
# 0. Most heads have no clear pattern in this list.
#
# ## A sink
#
# The blue panel is the one of the first token. Here are its numbers by layer:

# %%
even = 1 / len(names)
print(f"an even share would be {even:.2f}")
print("weight on [CLS], by layer:", weights[:, :, 1:, 0].mean(axis=(1, 2)).round(2))
end = weights[..., [names.index("."), names.index("[SEP]")]].mean(axis=(0, 1, 2))
print("weight on the full stop and on [SEP], all heads:", end.round(2))

# %% [markdown]
# From layer 1 on, about half of all weight (0.37 to 0.58) lies on a mark that stands before every text, while the full
# stop and `[SEP]` have less than an even share. (One head, 3.11, leans to the full stop.) In BERT-base it is `[SEP]` and
# the full stop that draw so much weight (Clark et al. 2019). In large language models it is the first token (Xiao et al.
# 2023). *That* there is such a **sink** is common; *where* it is depends on the model.
#
# ## Where it looks, and what it takes
#
# Why there? A row of weights has to sum to 1, also where a head has nothing to say. It helps to have a place from which
# nothing comes. What comes from token j is not its weight but a vector, $\text{weight}_{ij}\, v_j w_o^h$, and this
# vector may be short. So we take its length (Kobayashi et al. 2020), and the share of each token in the sum of lengths.
#
# > **Predict first.** Head 2.7 gives `[CLS]` 0.86 of its weight. Which share has `[CLS]` in what the head takes? And over
# > all 72 heads?
#
# <details><summary>Answer</summary>
#
# 0.09 in head 2.7, and 0.08 over all heads, near the even share of 0.06. In the middle one of the heads, the vector of
# `[CLS]` is a twentieth as long as that of another token. A head that "looks at `[CLS]`" mostly does nothing there. Not
# always: head 2.9 takes 0.46 from it.
# </details>

# %%
from mha_numpy.models.analysis import weights_times_norm

taken = np.stack([weights_times_norm(layer)[0] for layer in layers])
shares = taken / taken.sum(axis=-1, keepdims=True)
on_first = {"its weight": weights[:, :, 1:, 0].mean(axis=-1)}
on_first["its share of what is taken"] = shares[:, :, 1:, 0].mean(axis=-1)
length = (taken / weights)[:, :, 1]  # (L, H, T_k): row 1 says it as well as any other
ratio = length[..., 0] / np.median(length[..., 1:], axis=-1)
print({name: f"{each.mean():.2f}" for name, each in on_first.items()})
print(f"length of [CLS]'s vector, beside that of other tokens: {np.median(ratio):.2f}")
matrices(on_first, **labels, title=f"[CLS], seen by the other tokens. {note}")

# %%
note_31 = f"Head 3.1. {note}"
pair = np.stack([weights[3, 1], shares[3, 1]])
weights_by_head(pair, names, head_names=["weights", "shares of what is taken"], note=note_31)

# %% [markdown]
# On the left you see a sink with a few spots. On the right the sink has faded, and the spots are what head 3.1 works
# with.
#
# ## Where does "it" look?
#
# A classic claim is that a coreference head connects "it" with what it stands for. If the last word is *tired*, it is the
# animal. If it is *wide*, it is the street. A head that finds the right one should then look elsewhere.
#
# > **Predict first.** What happens to the 0.68 of head 3.1 if "tired" becomes "wide"? Does "it" turn to "street"?
#
# <details><summary>Answer</summary>
#
# It falls to 0.28, and "street" rises from 0.05 to 0.12. So the weight moves as a reader expects, but "animal" stays
# ahead: this head does not decide. Over all heads, "animal" falls from 0.07 to 0.06, and "street" goes from 0.046 to
# 0.051.
# </details>


# %%
def looks(text, query, key):
    """Return the weight of one token on another in each head: (L, H)."""
    names, weights = read(text)
    return weights[:, :, names.index(query), names.index(key)]


wide = tired.replace("tired", "wide")
keys = {f"{key}, {word}": (word, key) for key in ("animal", "street") for word in ("tired", "wide")}
of_it = {name: looks(tired.replace("tired", w), "it", key) for name, (w, key) in keys.items()}
print({name: f"{each.mean():.3f}" for name, each in of_it.items()})
matrices(of_it, **labels, title=f'Weight of "it" on animal and street. {note}')

# %% [markdown]
# In head 5.11, too, "it" looks at "animal", whatever the last word is. Two heads for coreference, then? One text and one
# pair of words are no test. We take four words for animals and four for streets, and a second sentence in which the two
# have changed places. And we ask a question that is often forgotten: do *all other* tokens look at "animal" as well?

# %%
words = ["tired", "hungry", "scared", "weak", "wide", "busy", "long", "narrow"]
rows = []
for text in (tired, "The street kept back the animal since it was tired."):
    for word in words:
        both = [looks(text.replace("tired", word), "it", key) for key in ("animal", "street")]
        rows.append([each[head] for head in ((3, 1), (5, 11)) for each in both])
columns = [f"{head} {key}" for head in ("3.1", "5.11") for key in ("animal", "street")]
halves = {"as above": np.array(rows[:8]), "animal comes second": np.array(rows[8:])}
display(matrices(halves, row_labels=words, column_labels=columns, title=f'From "it". {note}'))
names, weights = read(tired)
others = [i for i, name in enumerate(names) if name != "it"]
for i, h in ((3, 1), (5, 11)):
    print(f"head {i}.{h}, all others on animal: {weights[i, h, others, 2].mean():.2f}")

# %% [markdown]
# - In head 3.1, "it" gives the animal more for each of the four animal words than for any of the four street words. In
#   the second sentence, too, apart from "long"; there the street comes out ahead twice. Other tokens give "animal" only
#   0.11. So on these texts the weight depends on the pronoun *and* on what is said of it.
# - In head 5.11 the last word matters little, and all other tokens look at "animal" as well, with 0.40. Nothing here
#   makes it a coreference head: on this text it looks at "animal" from everywhere.
#
# ## "Bank" by the river, and by other things
#
# "The bank by the river had willow trees": a head that resolves the meaning of "bank" should look for its company.
#
# > **Predict first.** In which layers does "bank" look at "river": early or late? And if "river" becomes "money"?

# %%
bank = "The bank by the river had willow trees."
places = ["river", "lake", "water", "shore", "money", "office", "church", "cat"]
by_place = [looks(bank.replace("river", place), "bank", place) for place in places]
of_bank = {"to river": by_place[0], "to money": by_place[4]}
display(matrices(of_bank, **labels, title=f'Weight of "bank". {note}'))
heads = [(0, 4), (0, 10), (2, 5)]
table = np.array([[each[head] for head in heads] for each in by_place])
columns = [f"head {i}.{h}" for i, h in heads]
title = f'Weight of "bank" on the fifth word. {note}'
matrices({"weight": table}, row_labels=places, column_labels=columns, title=title)

# %% [markdown]
# <details><summary>Answer</summary>
#
# In layer 0: heads 0.4 and 0.10 give "river" 0.68 and 0.56, and "money" 0.06 and 0.07. No head of a later layer
# gives "river" more than 0.16.
# </details>
#
# In head 0.4 the words of water have 0.32 or more, and the others 0.11 or less; money finds a little in head 2.5. A head
# of layer 0 sees nothing but words and places. So this is a match between two words, "bank" and "river", and
# no understanding of the sentence. It may still be the beginning of one: later layers work with what it took.
#
# ## A sentence of your own
#
# > **Try it.** Change `sentence` and `query`. The four heads are those in which this token gives most weight to one token
# > other than `[CLS]` and itself. Say for each what you expect *before* you run the cell.

# %%
sentence, query = "The doctor called the nurse because she needed help.", "she"
names, weights = read(sentence)
row = weights[:, :, names.index(query)].copy()  # (L, H, T_k)
row[..., [0, names.index(query)]] = 0
strongest = np.argsort(-row.max(axis=-1), axis=None)[:4]
best = [tuple(map(int, np.unravel_index(each, (6, 12)))) for each in strongest]
titles = [f"{i}.{h}: {query} to {names[row[i, h].argmax()]}" for i, h in best]
weights_by_head(np.stack([weights[each] for each in best]), names, head_names=titles, note=note)

# %% [markdown]
# ## What may be concluded
#
# - **"On these texts, in this model, head 3.1 ..."** may be said. "Coreference heads connect pronouns with what they stand
#   for" may not: we found one head that leans this way, by looking for it.
# - **Where, and not why.** That "it" looks at "animal" does not show that the model *uses* it. For this a head has to be
#   cut (the next notebook), and even that is a lower bound, roughly.
# - **Weights are half of it.** Without the lengths, half of all attention seems to go to `[CLS]`.
# - **A name needs a control.** Head 5.11 looked like head 3.1 until other tokens were asked. In large models most heads do
#   several things (Kissane et al. 2024).
# - **Each model has its own.** This one is small, and it was trained for vectors of sentences. Nothing in its training
#   asks who "it" is.
#
# ## Exercise: what a head takes
#
# Write the lengths that made the sink fade.


# %% tags=["exercise"]
def my_weights_times_norm(weights, v, w_o):
    """weights (B, H, T_q, T_k), v (B, H, T_k, d_v), w_o (H*d_v, D) -> (B, H, T_q, T_k).

    Head h writes the sum over j of weights_ij (v_j w_o^h) into token i, where w_o^h is the h-th
    block of d_v rows of w_o. Return the length of each term: weights_ij |v_j w_o^h|.
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
# - Of 72 real heads a few have one clear pattern. Most have none that has a name.
# - About half of all weight rests on a sink, here `[CLS]`, from which next to nothing is taken. Weight times length shows
#   it.
# - In one head "it" looks at the animal, less if the last word fits the street. In another one everything looks at the
#   animal, and only a control tells the two apart.
# - Company is found in layer 0, word by word.
#
# **In the code:** `mha_numpy/models/analysis/patterns.py`, `weights_times_norm` in `mha_numpy/models/analysis/importance.py`,
# `mha_numpy/models/bert.py`.
#
# **Reference:** Reimers and Gurevych 2019, *Sentence-BERT*, and Wang et al. 2020, *MiniLM*, for the model; Clark et al.
# 2019, *What Does BERT Look At?*; Kobayashi et al. 2020, *Attention is Not Only a Weight*; Xiao et al. 2023, *Efficient
# Streaming Language Models with Attention Sinks*; Kissane et al. 2024, on GPT-2 small.
#
# **Next:** [24, which heads matter](24_which-heads-matter.ipynb).
