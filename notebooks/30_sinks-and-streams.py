# %% [markdown]
# # 30 · Sinks and streams
#
# Here is the beginning of a text that never ends. Its only rule: **after a star, the sign before the star comes
# again**. All other signs are drawn at random, each letter with its own favourites.

# %% tags=["hide-input"]
import string

import numpy as np

from mha_numpy import (
    KVCache,
    RollingKVCache,
    RopeOptions,
    attention_forward,
    softmax_forward,
)
from mha_numpy.show.pictures import (
    bar_chart,
    line_chart,
    matrices,
    weights_by_head,
)
from mha_numpy.tables import Table

# %%
signs = "|*" + string.ascii_letters + string.digits  # 64
follows = np.zeros((64, 64))  # p(column follows row)
drawn = np.random.default_rng(0).dirichlet(np.ones(62), 64)
follows[:, 2:], follows[2:, 1] = drawn, 0.15
follows[2:, 2:] *= 0.85


def draw_stream(rng, B, T):
    """Return ids (B, T + 1), and the least losses (B, T)."""
    ids, best = np.zeros((B, T + 1), int), np.zeros((B, T))
    for t in range(T):
        last, is_star = ids[:, t], ids[:, t] == 1
        edges = follows[last].cumsum(axis=1)
        new = (rng.random((B, 1)) > edges).sum(axis=1)
        ids[:, t + 1] = np.where(is_star, ids[:, t - 1], new)
        best[:, t] = np.where(
            is_star, 0, -np.log(follows[last, new])
        )
    return ids, best


ids, best = draw_stream(np.random.default_rng(1), 32, 256)
print("".join(signs[i] for i in ids[0, :64]))

# %% [markdown]
# A model that reads it needs two things: the last sign, and after a star the sign before it. We train one on pieces of
# 64 signs, which all begin with `|`. Then it reads on and on, but its memory has room for 64 keys. So when a sign
# comes, the oldest one is forgotten, and the first to go is `|`, which says nothing about what comes next.
#
# > **Predict first.** What happens to the loss when `|` leaves the memory?
# >
# > - it stays the same, as everything of use is still there
# > - it rises for a few signs and recovers
# > - it jumps, and stays there
# >
# > <!-- answer: it jumps, and stays there -->
#
# **By the end you can** explain why a window that drops the first token can break a model, repair it in two ways, and
# write attention with a learned sink.
#
# ## The first token leaves
#
# The model has one block and one head, with RoPE. We train it three times, from three seeds, which takes about 15
# seconds in all.

# %%
from mha_numpy.models import TransformerLM
from mha_numpy.models.train import AdamW, Batch, fit, warm_up_cosine

sizes = {"embed_dim": 32, "num_heads": 1, "num_layers": 1}
sizes |= {"hidden_dim": 64, "activation": "relu", "norm": "rms"}
training = {"steps": 300, "max_norm": 1.0, "progress": False}
training["schedule"] = warm_up_cosine(300, 30)


def draw_batch(rng):
    ids, _ = draw_stream(rng, 32, 64)
    return Batch((ids[:, :-1],), ids[:, 1:])


def train(seed, **options):
    rope = RopeOptions()
    model = TransformerLM(
        64,
        1024,
        rope=rope,
        bias=False,
        rng=seed,
        **sizes,
        **options,
    )
    optimizer = AdamW(model, 1e-2)
    fit(
        model, draw_batch, optimizer=optimizer, rng=seed, **training
    )
    return model


models = [train(seed) for seed in range(3)]

# %% [markdown]
# Each model now reads 32 streams of 256 signs, one sign at a time: once with a cache that forgets nothing, and once
# with one that keeps the last 64. We know the chances by which the signs were drawn, so we can subtract the loss of
# a perfect model. What is left is the model's own fault.


# %%
def read(model, new_cache):
    """Return its loss above the least, for 16 signs at a time."""
    kv_caches, losses = [new_cache()], []
    for t in range(256):
        logits = model(ids[:, t : t + 1], kv_caches=kv_caches)[:, 0]
        _, cache = softmax_forward(logits)
        losses.append(cache.lse - logits[range(32), ids[:, t + 1]])
    above = np.mean(losses, axis=1) - best.mean(axis=0)
    return above.reshape(16, 16).mean(axis=1)


def read_all(models, new_cache):
    return np.array([read(model, new_cache) for model in models])


caches = {
    "keeps all": KVCache,
    "last 64": lambda: RollingKVCache(window=64, sinks=0),
    "first 1, last 63": lambda: RollingKVCache(window=63, sinks=1),
}
read_by = {
    name: read_all(models, new) for name, new in caches.items()
}
axes = {
    "x_label": "signs so far",
    "y_label": "nats above the least",
}
title = "Loss on an endless text (bold: mean of three seeds)"
line_chart(range(16, 257, 16), read_by, title=title, **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It jumps at the sign where `|` leaves, in all three runs, and it stays there.
#
# </details>
#
# (We chose sizes at which it shows well. Six models that we trained with batches of 16 instead of 32 rose as well, but
# by between 0.03 and 0.4 nats.)
#
# A cache that keeps all is no way out. It grows, and from sign 64 on, RoPE sees distances that it never saw in
# training; the loss climbs. The third line is the repair: keep the one token that says nothing. It stays where
# training left it. So what was `|` for?
#
# ## Where a head rests
#
# Here are the weights of two of the models on the same beginning.

# %%
for model in models:
    model(ids[:, :64])
layers = [model.blocks[0].attention.layer for model in models]
weights = np.stack([layer.weights[:, 0] for layer in layers])
labels = [signs[i] for i in ids[0, :16]]
names = {"head_names": ["seed 0", "seed 1"], "heads": [0, 0]}
weights_by_head(weights[:2, 0, :16, :16], labels, **names)

# %% [markdown]
# After a star, the head has work to do: it looks one place back. At a letter, it can't use anything that it sees. But
# the weights of a row sum to 1, so it has to look *somewhere*. This table averages over letters and over stars, from
# the ninth sign on:

# %%
is_star, rows = ids[:, 8:64] == 1, []
for seed, w in enumerate(weights):
    places = {"|": w[:, 8:, 0]}
    places["itself"] = w.diagonal(axis1=1, axis2=2)[:, 8:]
    places["one before"] = w.diagonal(-1, axis1=1, axis2=2)[:, 7:]
    for name, chosen in ("a letter", ~is_star), ("a star", is_star):
        means = [f"{p[chosen].mean():.2f}" for p in places.values()]
        rows.append([str(seed), name, *means])
Table("Mean weight", ["seed", "weight of", *places], rows)

# %% [markdown]
# The three have different habits. With seed 0, letters rest on `|` as much as on themselves. With seeds 1 and 2 they
# hardly use it, but the stars put about a quarter of their weight there. What `|` has over all other signs is that it's
# always there, and always the same. Such a token is called an *attention sink*. In large language models, the first
# tokens become sinks, no matter which words they are (Xiao et al. 2023).
#
# People often add that a sink brings nothing, because its value is close to 0. Let's measure it: how long is what each
# sign would add to the output, its value times w_o?
#
# > **Predict first.** Is it shorter for `|` than for a letter?

# %%
lengths = {}
for seed, layer in enumerate(layers):
    v = layer.forward_cache.attention.inputs.v[:, 0]
    norm = np.linalg.norm(v @ layer.params["w_o"], axis=-1)
    lengths[f"|, seed {seed}"] = norm[:, 0].mean()
    lengths[f"letters, seed {seed}"] = norm[ids[:, :64] > 1].mean()
bar_chart(lengths, title="Length of value times w_o")

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. With two seeds it's more than twice as long, and with the third nearly as long. Large models do have small values
# there (Guo et al. 2024), but a sink doesn't need one. It may bring something, if it's always the same, because the
# rest of the model can count on it.
#
# </details>
#
# ## Without the sink
#
# What happens in a row whose sink disappears? Take a letter that rests on `|` with a score of 6, where three other
# signs score 1, 0 and 0.
#
# > **Predict first.** How much weight do these three have together, before and after?

# %%
scores = np.array([6.0, 1.0, 0.0, 0.0])
before, _ = softmax_forward(scores)
after, _ = softmax_forward(scores[1:])
both = {"before": before, "after": np.append(np.nan, after)}
matrices(both, column_labels=["|", "a", "b", "c"])

# %% [markdown]
# <details><summary>Answer</summary>
#
# 1% before, and 100% after. Softmax knows only differences: three scores that meant "none of these" now mean "mostly
# a".
#
# </details>
#
# So the head that wanted nothing brings a mixture of letters, and the model takes it for something to say. A star's
# quarter goes astray in the same way. A window by itself is harmless, as we'll see; what breaks the model is that
# *softmax has to spend everything*.
#
# ## Repair 1: keep the first token
#
# `RollingKVCache(window=63, sinks=1)` keeps it, and it drops the second token instead. One detail matters. How far is
# `|` from the last sign, in RoPE's eyes? If we used true positions, the distance would grow forever. So the cache keeps
# its keys *unrotated*, and rotates them by their **place in the cache**: `|` is at place 0, and the new sign at place
# 63, however long the text is.
#
# To see that this matters, we read with true positions and the mask that shows the same 64 keys. And does it help to
# keep more than one?

# %%
from mha_numpy import window_mask


def by_true_positions(model):
    mask = window_mask(256, 256, window=(62, 0))
    mask[:, 0] = True
    logits = model(ids[:, :-1], mask=mask[None, None])
    _, cache = softmax_forward(logits)
    right = np.take_along_axis(logits, ids[:, 1:, None], axis=-1)
    return (cache.lse - right[..., 0] - best)[:, 128:].mean()


late = {name: runs[:, 8:].mean() for name, runs in read_by.items()}
bars = {"first 1, last 63": late["first 1, last 63"]}
four = read_all(models, lambda: RollingKVCache(60, sinks=4))
bars["first 4, last 60"] = four[:, 8:].mean()
true = [by_true_positions(model) for model in models]
bars["first 1, true positions"] = np.mean(true)
bars["last 64"] = late["last 64"]
title = "Loss on signs 129 to 256, mean of three seeds"
bar_chart(bars, title=title, unit="nats above the least")

# %% [markdown]
# True positions lose about a third of what the sink had saved. Four sinks are no better than one *here*: every single
# text that these models saw began with the same sign. Models trained on texts without such a sign spread the job over
# their first few tokens; Xiao et al. kept four.
#
# ## Repair 2: a score without a value
#
# Why should a token play this role at all? Give each head one more number $\beta$, learned like any param, that joins
# the softmax of each of its rows but has no value:
#
# $$w_j = \frac{e^{s_j}}{e^{\beta} + \sum_l e^{s_l}}$$
#
# Now the weights of a row may sum to anything between 0 and 1. The rest is left at the *learned sink*, as in gpt-oss.
# This is the option `sink=` of attention. A larger $\beta$ takes more:

# %%
rng = np.random.default_rng(2)
q, k, v = rng.normal(size=(3, 1, 1, 5, 4))
sums = {}
for beta in (-np.inf, 0.0, 2.0, 4.0):
    _, cache = attention_forward(q, k, v, sink=np.array([beta]))
    sums[f"sink {beta:.0f}"] = cache.weights[0].sum(axis=-1)
rows = [f"query {i}" for i in range(5)]
by_sink = np.concatenate(list(sums.values())).T
labels = ["-inf", "0", "2", "4"]
summed = {"sum of a row, by sink": by_sink}
matrices(summed, row_labels=rows, column_labels=labels)

# %% [markdown]
# In which model does it help? We train three more kinds, about 30 seconds in all. The first has a learned sink and a
# window of 16 from the start. The second has only this window. The third, trained from seed 1 only, has a learned sink
# but no window, so that `|` is in sight during training. They read with a window of 16, 16, and 64.

# %%
sink, near = {"sink": True}, {"window": (15, 0)}
made = {
    "sink, window": [train(n, **sink, **near) for n in range(3)]
}
made["window only"] = [train(n, **near) for n in range(3)]

# %%
made["sink, all in sight"] = [train(1, **sink)]


def last_16():
    return RollingKVCache(window=16, sinks=0)


rolling = [last_16, last_16, caches["last 64"]]
pairs = zip(made.items(), rolling, strict=True)
lines = {name: read_all(some, new) for (name, some), new in pairs}
title = "Trained differently, read without the first token"
line_chart(range(16, 257, 16), lines, title=title, **axes)

# %% [markdown]
# - **Sink and window:** flat, and below the first models, which had all 64 signs.
# - **Window only:** flat as well. A model that could rarely rest on `|` finds another place, such as the sign itself.
#   It does so at a price: from each of the three seeds, its loss is higher than that of the model with a sink.
# - **Sink, but all in sight:** it jumps. Where `|` is in sight, a model may use it next to its sink.
#
# How much do letters leave to the learned sink, if there's a window?

# %%
left = {}
for seed, model in enumerate(made["sink, window"]):
    model(ids[:, :64])
    total = model.blocks[0].attention.layer.weights[:, 0].sum(-1)
    left[f"letters, seed {seed}"] = (
        1 - total[:, 8:][~is_star].mean()
    )
    left[f"stars, seed {seed}"] = 1 - total[:, 8:][is_star].mean()
bar_chart(left, title="Weight left to the learned sink")

# %% [markdown]
# They leave two thirds or more, while stars leave a quarter at most. The head can say "nothing for me", and it needs no
# token to say so. All of this is about one tiny task with three seeds.
#
# ## Exercise: attention with a learned sink
#
# You get the scores of all heads, with -inf where a key is hidden. Return the weights of the keys, and the heads. Don't
# forget the row that sees nothing, and think about which number is the largest of a row.
#
# To practise more, try `sink-backward` in `mha-numpy exercises`: the sink learns, so it needs a gradient.


# %% tags=["exercise"]
def my_sink_attention(scores, v, sink):
    """scores (B, H, T_q, T_k), v (B, H, T_k, d_v), sink (H,) ->
    weights (B, H, T_q, T_k), heads (B, H, T_q, d_v).

    The sink of head h is one more score in each row of this head,
    and has no value. Scores and sinks may be in the thousands.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("sink-attention", my_sink_attention)

# %% tags=["hint"]
# hint("sink-attention")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - Softmax has to spend all its weight. A head that needs nothing spends it where it does no harm, and a first token
#   that is always in sight is such a place.
# - A window that drops this token changes every row that rested on it. In our three models the loss jumped.
# - Keeping one sink and rotating by the place in the cache repaired all three, without training.
# - A learned sink is a score without a value. It belongs into training, together with the window.
# - A sink isn't always empty: its value may be as long as any other, if it's always the same.
#
# **In the code:** `core/caches/rolling.py`; in `core/softmax.py`, the lines with `sink`. Derivation: docs/merging.md.
#
# **Reference:** Xiao et al. 2023, *Efficient Streaming Language Models with Attention Sinks*; Guo et al. 2024,
# *Active-Dormant Attention Heads*, whose task ours follows; OpenAI 2025, *gpt-oss-120b & gpt-oss-20b Model Card*.
