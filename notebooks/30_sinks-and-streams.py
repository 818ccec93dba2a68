# %% [markdown]
# # 30 · Sinks and streams
#
# Here is the beginning of a text that never ends. Its only rule: **after a star, the sign before the star comes
# again**. All other signs are drawn at random, and each sign has its own favourites for what follows.

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
signs = "#*" + string.ascii_letters + string.digits  # 64
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
# 64 signs, which all begin with `#`. Then it reads on and on, but its memory has room for 64 keys. So when a sign
# comes, the oldest one is forgotten, and the first to go is `#`, which says nothing about what comes next.
#
# > **Predict first.** What happens to the loss when `#` leaves the memory?
# >
# > - it stays the same, as everything of use is still there
# > - it rises for a few signs and recovers
# > - it rises, and stays high
# >
# > <!-- answer: it rises, and stays high -->
#
# **By the end you can** say what a first token does in a model, read endless texts with a window in two ways, and write
# attention with a learned sink.
#
# ## The first token leaves
#
# The model has one block and one head. RoPE rotates its queries and keys by their positions (notebook 19). We train it
# from three seeds, in about 15 seconds on two free cores.

# %%
from mha_numpy.models import TransformerLM
from mha_numpy.models.train import AdamW, Batch, fit, warm_up_cosine

sizes = {"embed_dim": 32, "num_heads": 1, "num_layers": 1}
sizes |= {"hidden_dim": 64, "activation": "relu", "norm": "rms"}
training = {"steps": 300, "max_norm": 1.0, "progress": False}
training["schedule"] = warm_up_cosine(300, 30)  # of step sizes


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
# Each model now reads 32 streams of 256 signs, one sign at a time: once with a KV cache that forgets nothing, and once
# with one that keeps the last 64. We know the chances by which the signs were drawn, so we can subtract the least
# possible loss. What is left is the model's own fault, in nats.


# %%
def read(model, new_cache):
    """Return its loss above the least, (32, 256)."""
    kv_caches, losses = [new_cache()], []
    for t in range(256):
        logits = model(ids[:, t : t + 1], kv_caches=kv_caches)[:, 0]
        log_sum = np.logaddexp.reduce(logits, axis=-1)
        losses.append(log_sum - logits[range(32), ids[:, t + 1]])
    return np.stack(losses, axis=1) - best


def read_all(models, new_cache):
    return np.array([read(model, new_cache) for model in models])


def by_16(losses):
    """Return the mean of 16 signs at a time, for each seed."""
    return losses.mean(axis=1).reshape(-1, 16, 16).mean(axis=-1)


caches = {
    "keeps all": KVCache,
    "last 64": lambda: RollingKVCache(window=64, sinks=0),
    "first 1, last 63": lambda: RollingKVCache(window=63, sinks=1),
}
read_by = {
    name: read_all(models, new) for name, new in caches.items()
}
axes = {  # of all line charts
    "x_label": "signs so far",
    "y_label": "nats above the least",
}
title = "Loss on an endless text (bold: mean of three seeds)"
lines = {name: by_16(losses) for name, losses in read_by.items()}
line_chart(range(16, 257, 16), lines, title=title, **axes)

# %% [markdown]
# And sign by sign, around the 65th, where `#` leaves:

# %%
near = slice(56, 72)
lines = {n: read_by[n][0, :, near].mean(0) for n in caches}
title = "Seed 0, sign by sign"
line_chart(range(57, 73), lines, title=title, **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It rises in all three runs, and it stays high. With seed 0 it jumps at the very sign where `#` leaves. (We chose sizes
# at which it shows well.)
#
# </details>
#
# Why not keep everything? Such a cache grows without end, and its loss climbs as well: from sign 65 on, there are more
# keys than in training, at new distances. The third line is the repair: keep the one token that says nothing. So what
# is `#` for?
#
# ## Who looks at the first token
#
# Here are the weights of the three models on the same beginning.

# %%
for model in models:
    model(ids[:, :64])
layers = [model.blocks[0].attention.layer for model in models]
weights = np.stack([layer.weights[:, 0] for layer in layers])
labels = [signs[i] for i in ids[0, :16]]
names = {"head_names": [f"seed {n}" for n in range(3)]}
names["heads"] = [None] * 3  # no head's colour
weights_by_head(weights[:, 0, :16, :16], labels, **names)

# %% [markdown]
# At a star, the head has work to do: it looks one place back. At any other sign (call them all letters), nothing
# earlier helps. But a row of weights sums to 1, so the head has to look *somewhere*. Averages from the ninth sign on:

# %%
is_star, rows = ids[:, :256] == 1, []
kinds = {"letters": ~is_star, "stars": is_star}
for seed, w in enumerate(weights):
    places = {"#": w[:, 8:, 0]}
    places["itself"] = w.diagonal(axis1=1, axis2=2)[:, 8:]
    places["one before"] = w.diagonal(-1, axis1=1, axis2=2)[:, 7:]
    places["others"] = 1 - sum(places.values())
    for name, kind in kinds.items():
        chosen = kind[:, 8:64]
        means = [f"{p[chosen].mean():.2f}" for p in places.values()]
        rows.append([str(seed), name, *means])
Table("Mean weight on", ["seed", "from", *places], rows)

# %% [markdown]
# Each model has its own habits. With seed 0, *letters* put as much weight on `#` as on themselves. With seeds 1 and 2
# they hardly use it (with seed 2 they rest on others, such as earlier stars), but *stars* put about a quarter there. What `#` has over other signs is that it's always there,
# and always the same. A token that takes much weight without saying anything is called an *attention sink*. In large
# language models, the first tokens become sinks, no matter which words (Xiao et al. 2023).
#
# What happens in a row whose sink disappears? In a made-up row, `#` has a score of 3, and three other signs score 1, 0
# and 0.
#
# > **Predict first.** How much weight do these three have together, before and after?

# %%
scores = np.array([3.0, 1.0, 0.0, 0.0])
before, _ = softmax_forward(scores)
after, _ = softmax_forward(np.append(-np.inf, scores[1:]))
both = {"before": before, "after": after}
matrices(both, column_labels=["#", "a", "b", "c"])

# %% [markdown]
# <details><summary>Answer</summary>
#
# 19% before, and 100% after. Softmax knows only differences: three scores that meant "rather not" now mean "mostly a".
#
# </details>
#
# ## Is it the weight or the value?
#
# So when `#` leaves, a row loses *two* things: a place to put its weight, and the value of `#`. The usual explanation
# names the first: softmax has to spend everything, and without a sink it spends it on noise. The sink itself brings
# nothing, people add, because its value is close to 0. Let's measure how long each sign's contribution is, its value
# times w_o.
#
# > **Predict first.** Is it shorter for `#` than for a letter?

# %%
lengths = {}
for seed, layer in enumerate(layers):
    v = layer.forward_cache.attention.inputs.v[:, 0]
    norm = np.linalg.norm(v @ layer.params["w_o"], axis=-1)
    lengths[f"seed {seed}: #"] = norm[:, 0].mean()
    lengths[f"seed {seed}: letters"] = norm[ids[:, :64] > 1].mean()
bar_chart(lengths, title="Length of value times w_o")

# %% [markdown]
# <details><summary>Answer</summary>
#
# With seeds 0 and 1 it's more than twice as long, and with seed 2 a little shorter. It's far from 0 in all three. (Large
# models do have small values there, and so do the small ones of Guo et al. 2024, whose task is much like ours.)
#
# </details>
#
# Now we can separate the two: keep the key of `#`, so that rows can put their weight there as before, but set its
# *value* to 0.
#
# > **Predict first.** Does this place to rest keep the loss low?


# %%
class EmptySink(RollingKVCache):
    """Keeps the key of a first token, but not its value."""

    def append(self, k, v):
        k, v = super().append(k, v)
        empty = np.zeros_like(v[:, :, :1])
        return k, np.concatenate([empty, v[:, :, 1:]], axis=2)


arms = {"# kept": read_by["first 1, last 63"]}
arms["its value 0"] = read_all(models, lambda: EmptySink(63, 1))
arms["# gone"] = read_by["last 64"]
kinds["all signs"], rows = is_star | ~is_star, []
late = {name: losses[..., 128:] for name, losses in arms.items()}
for seed in range(3):
    for name, kind in kinds.items():
        chosen = kind[:, 128:]
        means = [
            loss[seed, chosen].mean() for loss in late.values()
        ]
        rows.append([str(seed), name, *(f"{m:.2f}" for m in means)])
columns = ["seed", "at", *arms]
Table("Loss above the least, signs 129 to 256", columns, rows)

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. The place to rest wins back about a quarter of the rise with seed 0, nothing with seed 1 and a seventh with seed 2;
# the rest is due to the value.
#
# </details>
#
# Each model suffers only where it looked at `#`: with seed 0 at letters, with seeds 1 and 2 at stars. And what it
# misses is mostly the *value*. These models don't just rest on `#`: they take a fixed vector from it, as from a bias.
# So the usual explanation is not the main reason *here*. In large models, where sinks have small values, it may be.
#
# ## Repair 1: keep the first token
#
# `RollingKVCache(window=63, sinks=1)` keeps it, key and value, and drops the second token instead. One detail matters.
# By true positions, the distance from `#` to the last sign would grow forever. So the cache keeps its keys *unrotated*,
# and rotates them by their **place in the cache**: `#` is at place 0, and the new sign at place 63, however long the
# text is.
#
# To compare, we read with true positions and a mask that shows the same 64 keys. We also keep four signs.

# %%
from mha_numpy import window_mask


def by_true_positions(model):
    mask = window_mask(256, 256, window=(62, 0))
    mask[:, 0] = True
    logits = model(ids[:, :-1], mask=mask[None, None])
    right = np.take_along_axis(logits, ids[:, 1:, None], axis=-1)
    log_sum = np.logaddexp.reduce(logits, axis=-1)
    return log_sum - right[..., 0] - best


some = {"first 1, last 63": read_by["first 1, last 63"]}
four = read_all(models, lambda: RollingKVCache(60, sinks=4))
some["first 4, last 60"] = four
true = [by_true_positions(model) for model in models]
some["first 1, true positions"] = np.array(true)
some["last 64"] = read_by["last 64"]
late = {n: runs[..., 128:].mean((1, 2)) for n, runs in some.items()}
kept, gone = late["first 1, last 63"], late["last 64"]
lost = (late["first 1, true positions"] - kept) / (gone - kept)
print("lost by true positions, seeds 0 to 2:", lost.round(2))
bars = {name: means.mean() for name, means in late.items()}
title = "Loss on signs 129 to 256, mean of three seeds"
bar_chart(bars, title=title, unit="nats above the least")

# %% [markdown]
# True positions lose between a fifth and three quarters of what the sink had saved. Four sinks are no better than one
# here, perhaps because all texts began with the same sign; Xiao et al. kept four.
#
# ## Repair 2: a window, and a score without a value
#
# A model that rarely sees `#` can't come to need it. And why should a token play this role at all? Give each head one more number $\beta$, which is learned like any other
# param. It joins the softmax of each of its rows but has no value:
#
# $$w_j = \frac{e^{s_j}}{e^{\beta} + \sum_l e^{s_l}}$$
#
# Now the weights of a row may sum to anything between 0 and 1. The rest goes to the *learned sink*, as in gpt-oss. This
# is the option `sink=` of attention. A larger $\beta$ takes more:

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
summed = {"sum of a row, by its sink": by_sink}
matrices(summed, row_labels=rows, column_labels=labels)

# %% [markdown]
# We train nine more models, about 45 seconds in all. Three have a learned sink and a window of 16 from the start, three
# have only this window, and three only the sink. Then they read with a window, so `#` is soon gone.

# %%
sink = {"sink": True}
window = {"window": (15, 0)}  # 15 keys before its own: 16 in all
made = {
    "sink, window": [train(n, **sink, **window) for n in range(3)]
}
made["window only"] = [train(n, **window) for n in range(3)]
sink_only = [train(n, **sink) for n in range(3)]


# %%
def last_16():
    return RollingKVCache(window=16, sinks=0)


read_late = {n: read_all(some, last_16) for n, some in made.items()}
lines = {name: by_16(losses) for name, losses in read_late.items()}
title = "Trained with a window, read without the first token"
line_chart(range(16, 257, 16), lines, title=title, **axes)

# %%
read_late["sink only, last 64"] = read_all(
    sink_only, caches["last 64"]
)
read_late["# kept (above)"] = read_by["first 1, last 63"]
rows = []
for name, runs in read_late.items():
    means = runs[..., 128:].mean(axis=(1, 2))
    rows.append([name, *(f"{mean:.2f}" for mean in means)])
columns = ["model", "seed 0", "seed 1", "seed 2"]
Table("Loss above the least, signs 129 to 256", columns, rows)

# %% [markdown]
# Both with a window stay flat, although `#` is long gone: in training, only the first 16 of 64 rows saw it. The window
# is what repairs. With only the sink, seeds 1 and 2 lose three times as much. But with a window, each seed's loss is
# lower with a learned sink than without, and lower than that of the first models, which saw 64 signs.
#
# How much do letters leave to the learned sink?

# %%
left = {}
for seed, model in enumerate(made["sink, window"]):
    model(ids[:, :64])
    total = model.blocks[0].attention.layer.weights[:, 0].sum(-1)
    for name in ("letters", "stars"):
        seen = total[:, 8:][kinds[name][:, 8:64]]
        left[f"seed {seed}: {name}"] = 1 - seen.mean()
bar_chart(left, title="Weight left to the learned sink")

# %% [markdown]
# Letters leave most of their weight to it, at least 66%, and stars less than a quarter. The head can say "nothing for
# me" without a token. All of this is about one tiny task with three seeds.
#
# ## Exercise: attention with a learned sink
#
# You get the scores of all heads, with -inf where a key is hidden. Return the weights of the keys, and the heads. Don't
# forget the row that sees nothing, and think about which number is the largest of a row.
#
# To practise more, try `sink-backward` in `mha-numpy exercises`. The sink learns, so it needs a gradient: that of one
# more cell in each row (notebook 11), whose d_weight is 0.


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
# - Softmax has to spend all its weight, and a first token is one place for it. When a window drops this token, its weight
#   goes elsewhere, and its value is gone.
# - In our three models the loss rose where they had looked at this token. A place to rest without its value won back a
#   quarter at most: they had come to need the value.
# - Keeping the token and rotating by the place in the cache repaired all three, without training.
# - Models trained with a window needed no first token. They did better with a learned sink, a score without a value.
#
# **In the code:** `core/caches/rolling.py`; in `core/softmax.py`, the lines with `sink`. Derivation: docs/merging.md.
#
# **Reference:** Xiao et al. 2023, *Efficient Streaming Language Models with Attention Sinks*; Guo et al. 2024,
# *Active-Dormant Attention Heads*, whose task ours follows; OpenAI 2025, *gpt-oss-120b & gpt-oss-20b Model Card*.
