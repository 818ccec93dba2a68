# %% [markdown]
# # 23 · What real heads look at
#
# So far, all heads were trained on small tasks that we made up. Here is a real language model, all-MiniLM-L6-v2,
# trained by others on more than a billion pairs of sentences: 6 layers with 12 heads each, D = 384. It reads one
# sentence, and we draw four of its 72 heads.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy.models import minilm_or_random
from mha_numpy.models.analysis import attention_layers
from mha_numpy.show.pictures import matrices, weights_by_head

# %%
model, note = minilm_or_random()
layers = list(attention_layers(model).values())
print(note)


def read(text):
    """Return the names of the tokens, and the weights of all heads:
    (L, H, T, T).
    """
    tokens = model.tokenizer(text)
    model(tokens.ids)
    return tokens.names[0], np.stack(
        [layer.weights[0] for layer in layers]
    )


tired = (
    "The animal didn't cross the street because it was too tired."
)
names, weights = read(tired)
chosen = [(0, 2), (1, 8), (2, 7), (3, 1)]
shown = np.stack([weights[each] for each in chosen])
titles = [f"head {i}.{h}" for i, h in chosen]
weights_by_head(shown, names, head_names=titles, note=note)

# %% [markdown]
# Head 0.2 (layer 0, head 2) always looks at the token before. Head 1.8 likes the token after. In head 2.7 nearly all
# tokens look at `[CLS]`, a mark that begins every text (`[SEP]` ends it). And in head 3.1 "it" looks at "animal". So
# are the textbooks right? Be careful: we picked these four out of 72. Let's measure all of them.
#
# **What you can do afterwards:** you can measure where the heads of a real model look, compare it with what they take
# from there, test a name for a head with a control, and say what follows from one text and what does not.
#
# If the model isn't installed, everything below runs with random params. Each picture then says so, and names the two
# commands that install the model. The text describes the pictures of the real one.
#
# ## Seventy-two heads at once
#
# `head_patterns` measures how much weight goes to the token before, to the token itself, to the one after, to the
# first one (`[CLS]`), to copies of the token, and to delimiters (here the full stop and `[SEP]`).
#
# > **Predict first.** Introductory texts list positional heads, delimiter heads, and more. How many of the 72 heads
# > give more than half of their weight to the token before, to the one after, to the first, and to the delimiters?
#
# <details><summary>Answer</summary>
#
# One head to the token before, one to the one after, 27 to the first, and none to the delimiters.
# </details>

# %%
from mha_numpy.models.analysis import (
    head_patterns,
    mean_distance,
    mean_entropy,
)

ids = model.tokenizer(tired).ids
ends = np.array([[name in (".", "[SEP]") for name in names]])
found = [
    head_patterns(layer.weights, ids, is_delimiter=ends)
    for layer in layers
]
scores = {
    name: np.stack([of_layer[name] for of_layer in found])
    for name in found[0]
}
del scores["induction"]  # for texts that repeat themselves
print(
    {
        name: int((score > 0.5).sum())
        for name, score in scores.items()
    }
)
layer_names = [f"layer {i}" for i in range(6)]
head_names = [str(h) for h in range(12)]
labels = {"row_labels": layer_names, "column_labels": head_names}
matrices(scores, **labels, title=f"Weight on each pattern. {note}")

# %%
spread = {
    "mean distance, in tokens": [
        mean_distance(layer.weights) for layer in layers
    ]
}
spread["entropy, in nats"] = [
    mean_entropy(layer.weights) for layer in layers
]
spread = {
    name: np.stack(numbers) for name, numbers in spread.items()
}
matrices(
    spread,
    **labels,
    shared=False,
    title=f"How far, and how widely. {note}",
)

# %% [markdown]
# Equal weight on all 16 tokens would have an entropy of log 16 = 2.77. Many heads of layer 0 come near it, while head
# 0.2 has 0. Most heads show no clear pattern from this list.
#
# ## A sink
#
# The panel for the first token is the strongest. Here are its numbers, layer by layer:

# %%
even = 1 / len(names)
print(f"an even share would be {even:.2f}")
print(
    "weight on [CLS], by layer:",
    weights[:, :, 1:, 0].mean(axis=(1, 2)).round(2),
)
end = weights[..., [names.index("."), names.index("[SEP]")]].mean(
    axis=(0, 1, 2)
)
print(
    "weight on the full stop and on [SEP], all heads:", end.round(2)
)

# %% [markdown]
# From layer 1 on, about half of all weight (0.37 to 0.58) goes to a mark that begins every text, while the full stop
# and `[SEP]` get less than an even share. (One head, 3.11, leans towards the full stop.) In BERT-base, `[SEP]` and the
# full stop attract this much weight (Clark et al. 2019). In large language models it is the first token (Xiao et al.
# 2023). *That* there is such a **sink** is common; *where* it is depends on the model.
#
# ## Where it looks, and what it takes
#
# Why there? A row of weights has to sum to 1 even if the head has nothing to say. Then it helps to have a place that
# contributes nothing. Token j contributes not its weight but a vector, $\text{weight}_{ij}\, v_j w_o^h$, and this
# vector can be short. So we take its length (Kobayashi et al. 2020), and each token's share in the sum of lengths.
#
# > **Predict first.** Head 2.7 gives `[CLS]` 0.86 of its weight. What share of all that the head takes comes from
# > `[CLS]`? And over all 72 heads?
#
# <details><summary>Answer</summary>
#
# 0.09 in head 2.7, and 0.08 over all heads, close to the even share of 0.06. In the median head, the vector of `[CLS]`
# is a twentieth as long as that of other tokens. So a head that "looks at `[CLS]`" mostly does nothing there, though
# not always: head 2.9 takes 0.46 from it.
# </details>

# %%
from mha_numpy.models.analysis import weights_times_norm

taken = np.stack([weights_times_norm(layer)[0] for layer in layers])
shares = taken / taken.sum(axis=-1, keepdims=True)
on_first = {"its weight": weights[:, :, 1:, 0].mean(axis=-1)}
on_first["its share of what is taken"] = shares[:, :, 1:, 0].mean(
    axis=-1
)
length = (taken / weights)[:, :, 1]  # (L, H, T_k): any row would do
ratio = length[..., 0] / np.median(length[..., 1:], axis=-1)
print(
    {name: f"{each.mean():.2f}" for name, each in on_first.items()}
)
print(
    "length of [CLS]'s vector, relative to other tokens: "
    f"{np.median(ratio):.2f}"
)
matrices(
    on_first,
    **labels,
    title=f"[CLS], seen by the other tokens. {note}",
)

# %%
note_31 = f"Head 3.1. {note}"
pair = np.stack([weights[3, 1], shares[3, 1]])
weights_by_head(
    pair,
    names,
    head_names=["weights", "shares of what is taken"],
    heads=[1, 1],
    note=note_31,
)

# %% [markdown]
# On the left you see a sink with a few spots. On the right the sink has faded, and only the spots that head 3.1 works
# with are left.
#
# ## Where does "it" look?
#
# A classic claim is that a coreference head connects "it" with what it stands for. If the last word is *tired*, "it"
# is the animal; if it is *wide*, "it" is the street. So a head that finds the right one should look elsewhere when the
# last word changes.
#
# > **Predict first.** What happens to the 0.68 of head 3.1 if "tired" becomes "wide"? Does "it" turn to "street"?
#
# <details><summary>Answer</summary>
#
# It falls to 0.28, and "street" rises from 0.05 to 0.12. So the weight moves as a reader expects, but "animal" stays
# ahead, and this head doesn't decide the question. Over all heads, "animal" falls from 0.07 to 0.06, and "street"
# rises from 0.046 to 0.051.
# </details>


# %%
def looks(text, query, key):
    """Return the weight of one token on another in each head: (L,
    H).
    """
    names, weights = read(text)
    return weights[:, :, names.index(query), names.index(key)]


wide = tired.replace("tired", "wide")
keys = {
    f"{key}, {word}": (word, key)
    for key in ("animal", "street")
    for word in ("tired", "wide")
}
of_it = {
    name: looks(tired.replace("tired", w), "it", key)
    for name, (w, key) in keys.items()
}
print({name: f"{each.mean():.3f}" for name, each in of_it.items()})
matrices(
    of_it,
    **labels,
    title=f'Weight of "it" on animal and street. {note}',
)

# %% [markdown]
# In head 5.11, too, "it" looks at "animal", whatever the last word is. So are these two coreference heads? One text and
# one pair of words can't settle that. Let's take four words that fit animals, four that fit streets, and a second
# sentence in which the two nouns trade places. And let's ask a question that is often forgotten: do *all other* tokens
# look at "animal" as well?

# %%
words = [
    "tired",
    "hungry",
    "scared",
    "weak",
    "wide",
    "busy",
    "long",
    "narrow",
]
rows = []
for text in (
    tired,
    "The street kept back the animal since it was tired.",
):
    for word in words:
        both = [
            looks(text.replace("tired", word), "it", key)
            for key in ("animal", "street")
        ]
        rows.append(
            [
                each[head]
                for head in ((3, 1), (5, 11))
                for each in both
            ]
        )
columns = [
    f"{head} {key}"
    for head in ("3.1", "5.11")
    for key in ("animal", "street")
]
halves = {
    "as above": np.array(rows[:8]),
    "animal comes second": np.array(rows[8:]),
}
display(
    matrices(
        halves,
        row_labels=words,
        column_labels=columns,
        title=f'From "it". {note}',
    )
)
names, weights = read(tired)
others = [i for i, name in enumerate(names) if name != "it"]
for i, h in ((3, 1), (5, 11)):
    print(
        f"head {i}.{h}, all others on animal: "
        f"{weights[i, h, others, 2].mean():.2f}"
    )

# %% [markdown]
# - In head 3.1, "it" gives the animal more weight with each of the four animal words than with any of the four street
#   words. The same is true in the second sentence, apart from "long", and there the street comes out ahead twice. Other
#   tokens give "animal" only 0.11. So on these texts, the weight depends on the pronoun *and* on what the sentence says
#   about it.
# - In head 5.11 the last word matters little, and all other tokens look at "animal" as well, with 0.40. Nothing here
#   makes it a coreference head, because on this text it looks at "animal" from everywhere.
#
# ## "Bank" by the river, and by other things
#
# "The bank by the river had willow trees": a head that works out the meaning of "bank" should look at the words that
# settle it.
#
# > **Predict first.** Does "bank" look at "river" in early layers or in late ones? And what changes if "river" becomes
# > "money"?

# %%
bank = "The bank by the river had willow trees."
places = [
    "river",
    "lake",
    "water",
    "shore",
    "money",
    "office",
    "church",
    "cat",
]
by_place = [
    looks(bank.replace("river", place), "bank", place)
    for place in places
]
of_bank = {"to river": by_place[0], "to money": by_place[4]}
display(
    matrices(of_bank, **labels, title=f'Weight of "bank". {note}')
)
heads = [(0, 4), (0, 10), (2, 5)]
table = np.array(
    [[each[head] for head in heads] for each in by_place]
)
columns = [f"head {i}.{h}" for i, h in heads]
title = f'Weight of "bank" on the fifth word. {note}'
matrices(
    {"weight": table},
    row_labels=places,
    column_labels=columns,
    title=title,
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It looks at "river" in layer 0. Heads 0.4 and 0.10 give "river" 0.68 and 0.56, and "money" 0.06 and 0.07. No head of a
# later layer gives "river" more than 0.16.
# </details>
#
# In head 0.4 the words about water get 0.32 or more, and the others 0.11 or less; money gets a little in head 2.5. A
# head of layer 0 sees nothing but words and places. So this is a match between two words, "bank" and "river", not an
# understanding of the sentence. It may still be where understanding begins, because later layers work with what it
# took.
#
# ## A sentence of your own
#
# > **Try it.** Change `sentence` and `query`. The cell draws the four heads in which this token gives the most weight
# > to a single token other than `[CLS]` and itself. Say what you expect *before* you run it.

# %%
sentence = "The doctor called the nurse because she needed help."
query = "she"
names, weights = read(sentence)
row = weights[:, :, names.index(query)].copy()  # (L, H, T_k)
row[..., [0, names.index(query)]] = 0
strongest = np.argsort(-row.max(axis=-1), axis=None)[:4]
best = [
    tuple(map(int, np.unravel_index(each, (6, 12))))
    for each in strongest
]
titles = [
    f"{i}.{h}: {query} to {names[row[i, h].argmax()]}"
    for i, h in best
]
weights_by_head(
    np.stack([weights[each] for each in best]),
    names,
    head_names=titles,
    note=note,
)

# %% [markdown]
# ## What you can conclude
#
# - **You can say "on these texts, in this model, head 3.1 ..."** You can't say "coreference heads connect pronouns
#   with what they stand for", because we found one head that leans this way, and we found it by looking for it.
# - **Where, not why.** That "it" looks at "animal" doesn't show that the model *uses* it. To show that, you have to
#   cut the head (next notebook), and even then you get only a rough lower bound.
# - **Weights are only half the story.** Without the lengths, half of all attention seems to go to `[CLS]`.
# - **A name needs a control.** Head 5.11 looked like head 3.1 until we asked the other tokens. In large models, most
#   heads do several things (Kissane et al. 2024).
# - **Each model is different.** This one is small, and it was trained to give sentences good vectors. Nothing in its
#   training asks who "it" is.
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
# - Of 72 real heads, a few have one clear pattern. Most have none that anyone has a name for.
# - About half of all weight goes to a sink, here `[CLS]`, which contributes next to nothing. Weight times length shows
#   it.
# - In one head, "it" looks at the animal, and less so if the last word fits the street. In another, every token looks
#   at the animal. Only a control tells the two apart.
# - "Bank" meets "river" in layer 0, word by word.
#
# **In the code:** `mha_numpy/models/analysis/patterns.py`, `weights_times_norm` in
# `mha_numpy/models/analysis/importance.py`, `mha_numpy/models/bert.py`.
#
# **Reference:** Reimers and Gurevych 2019, *Sentence-BERT*, and Wang et al. 2020, *MiniLM*, for the model; Clark et al.
# 2019, *What Does BERT Look At?*; Kobayashi et al. 2020, *Attention is Not Only a Weight*; Xiao et al. 2023, *Efficient
# Streaming Language Models with Attention Sinks*; Kissane et al. 2024, on GPT-2 small.
#
# **Next:** [24, which heads matter](24_which-heads-matter.ipynb).
