# %% [markdown]
# # 31 · A cache that is a latent
#
# DeepSeek-V2 has 60 layers of 128 heads, each 128 wide (not counting a part for the position). If all of them kept
# such keys and values, one token would take 3840 KiB of memory. If groups of 16 heads shared (notebook 16), it would take 240, and if all did, 30. The model
# itself keeps 67.5 KiB, and yet each head has its own keys.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import KVCache, attention_forward, compare, trace
from mha_numpy.core import rope_forward
from mha_numpy.layers import LatentAttention, MultiHeadAttention
from mha_numpy.show.pictures import bar_chart, line_chart, matrices

# %%
numbers = {  # per token and layer
    "multi-head": 2 * 128 * 128,
    "grouped, 8 key/value heads": 2 * 8 * 128,
    "latent, as it is": 512 + 64,
    "multi-query": 2 * 128,
}
kib = {name: 60 * n * 2 / 1024 for name, n in numbers.items()}
title = "DeepSeek-V2, cache of one token, 2 bytes per number"
bar_chart(kib, title=title, unit="KiB")

# %% [markdown]
# How can 576 numbers per layer serve 128 heads? And doesn't the model have to make all keys again whenever it writes?
#
# **By the end you can** cache one short vector per token, decode from it without making a key, and say why rotary
# positions have to travel beside it.
#
# ## One short vector per token
#
# Each token's x is multiplied down to a *latent*, of width d_c. From it, every head makes its key and its value, with
# its own columns of two *up-projections*. Here are three tokens with D = 6 and d_c = 2, and two heads with keys of
# width 4 (d_nope: *no position*, you'll see why) and values of width 3. (Until we train, all params are random, and
# queries made up.)

# %%
rng = np.random.default_rng(57)
H, d_c, d_nope, d_v = 2, 2, 4, 3
x = np.array(
    [[1, 0, 2, 0, 0, 1.0], [0, 1, 0, 1, 1, 0], [2, 1, 0, 0, 1, 1]]
)  # (T, D)
w_down = rng.integers(-1, 2, (6, d_c))  # (D, d_c)
w_k_up = rng.integers(-2, 3, (d_c, H * d_nope))
w_v_up = rng.integers(-2, 3, (d_c, H * d_v))
latents = x @ w_down  # (T, d_c)
k, v = latents @ w_k_up, latents @ w_v_up  # (T, H * d)
arrays = {"x": x, "latents": latents, "k": k, "v": v}
rows = [f"token {t}" for t in range(3)]
heads = [[], [], [0, 1], [0, 1]]
matrices(arrays, row_labels=rows, heads=heads)

# %% [markdown]
# Instead of 14 numbers per token, we keep 2. In multi-query attention, all heads read the *same* key; here each has its
# own view of the latent.
#
# > **Predict first.** We put the keys and values of 1000 tokens into 1000 rows of 14 numbers. What is the rank?
# > <!-- answer: 2 within 0 -->

# %%
many = rng.normal(size=(1000, 6)) @ w_down
both = np.hstack([many @ w_k_up, many @ w_v_up])
print(both.shape, "of rank", np.linalg.matrix_rank(both))

# %% [markdown]
# <details><summary>Answer</summary>
#
# 2. What isn't in the latent, no head can see.
#
# </details>
#
# (Real models norm the latent, too.)
#
# ## Move the bracket
#
# A new token arrives. Must we make the keys of all old tokens again, for each head? Look at one score, with $W_h$ for
# head h's columns of `w_k_up`:
#
# $$q\,(c\,W_h)^\top = q\,W_h^\top c^\top = (q\,W_h^\top)\,c^\top$$
#
# On the left, every latent is taken to the keys; on the right, one query to the latents. For values, mix the
# latents first, and take the result to the values.
#
# > **Predict first.** Head 0's query is 4 wide. After it has *absorbed* $W_0^\top$, how wide is it?
# > <!-- answer: 2 within 0 -->

# %%
w_k = w_k_up.reshape(d_c, H, d_nope).transpose(1, 0, 2)  # per head
w_v = w_v_up.reshape(d_c, H, d_v).transpose(1, 0, 2)
q = np.array([[[0, 0, -1, 1.0]], [[1, 1, 0, 0]]])  # (H, 1, d_nope)
q_absorbed = q @ w_k.swapaxes(1, 2)  # (H, 1, d_c)
k, v = latents @ w_k, latents @ w_v  # (H, T, d)
left, right = q @ k.swapaxes(1, 2), q_absorbed @ latents.T
scores = {"from keys": left[:, 0], "from latents": right[:, 0]}
labels = {"row_labels": ["head 0", "head 1"]}
display(matrices({"q, absorbed": q_absorbed[:, 0]}, **labels))
matrices(scores, column_labels=rows, **labels)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is as wide as the latent: 2.
#
# </details>
#
# The scores agree. And look at what the second way *is*: all query heads read the same keys, the latents, and the same
# values, the latents again. That's **multi-query attention**, so `attention_forward` can compute it, with H_kv = 1. But
# pass the scale: the default takes the latent's width, 2, while the heads' own keys are 4 wide.

# %%
c = latents[None, None]  # (B, 1, T, d_c): one key/value head
expanded, _ = attention_forward(q[None], k[None], v[None])
mixed, _ = attention_forward(q_absorbed[None], c, c, scale=0.5)
wrong, _ = attention_forward(q_absorbed[None], c, c)
tried = {"absorbed": mixed @ w_v, "default scale": wrong @ w_v}
compare(tried, dict.fromkeys(tried, expanded))

# %% [markdown]
# ## A rotation in between
#
# Rotary positions (notebook 19) turn each key by its token's position, t. Let's turn our keys, turn the query to
# position 2, and then let it absorb.
#
# > **Predict first.** At which of the positions 0, 1 and 2 does the absorbed score still come out right?
# > <!-- answer: 0 within 0 -->

# %%
k_turned, _ = rope_forward(k)  # by positions 0, 1, 2
q_turned, _ = rope_forward(q, positions=np.array([2]))
absorbed = q_turned @ w_k.swapaxes(1, 2)
right = (q_turned @ k_turned.swapaxes(1, 2))[:, 0]
both = np.vstack([right, (absorbed @ latents.T)[:, 0]])
ways = ("from rotated keys", "absorbed")
names = [f"head {h}, {way}" for way in ways for h in (0, 1)]
matrices({"scores": both}, column_labels=rows, row_labels=names)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only at position 0, where the key isn't turned. (Without its turn, the query would be right only at position 2.)
#
# </details>
#
# The rotation sits between the two matrices that we wanted to multiply:
#
# $$q_s R_s\,(c_t W_h R_t)^\top = q_s\,R_s\,R_t^\top\,W_h^\top\,c_t^\top$$
#
# Now there's a different matrix between query and latent for each distance s - t. We can absorb $R_t^\top W_h^\top$,
# but that helps with token t only:

# %%
R, _ = rope_forward(np.eye(d_nope)[:, None].repeat(3, axis=1))
for t in range(3):  # R[:, t] turns a row by position t
    own = q_turned @ R[:, t].T @ w_k.swapaxes(1, 2)
    score = (own @ latents[t])[:, 0]
    print(f"absorbed for token {t}:", score.round(2))

# %% [markdown]
# These are the right columns. But a query per token is too many, so DeepSeek-V2 leaves these keys unrotated and lets the
# position travel **beside** the latent. One more matrix makes d_rope features of x, and they are rotated. All heads share this one rotated key, but each has its own rotated query.
# A score is the sum of both products, with the scale of the whole head:
#
# $$\frac{q_{\mathrm{absorbed}}\cdot c \;+\;
# q_{\mathrm{rope}}\cdot k_{\mathrm{rope}}}{\sqrt{d_{\mathrm{nope}} + d_{\mathrm{rope}}}}$$
#
# ## All of its shapes
#
# `LatentAttention` does all this, norm included. It has read four tokens, and now decodes a fifth, with D = 10, H = 2,
# d_c = 6, d_nope = 4, d_rope = 2 and d_v = 3.

# %%
from mha_numpy.tables import Table

sizes = {"latent_dim": 6, "nope_dim": 4, "rope_dim": 2}
layer = LatentAttention(10, 2, **sizes, value_dim=3, rng=0)
x, kv_cache = rng.normal(size=(1, 5, 10)), KVCache()
layer(x[:, :4], kv_cache=kv_cache, is_causal=True)
with trace() as t:
    out = layer(x[:, 4:], kv_cache=kv_cache)
seen = ["x", "kv_down", "latent", "k_rope", "kept", "q_nope"]
seen += ["q_rope", "q_absorbed", "q", "v", "scores", "weights"]
seen += ["latent_heads", "heads", "merged", "out"]
axes = {step.name: step.axes for step in t.steps}
made = [[name, axes[name], str(t[name].shape)] for name in seen]
display(Table("One new token", ["array", "axes", "shape"], made))
whole = layer(x, is_causal=True)[:, 4:]
kv_cache = KVCache()
layer(x[:, :4], kv_cache=kv_cache, is_causal=True)
again = layer(x[:, 4:], kv_cache=kv_cache, absorb=False)
tried = {"absorbed": out, "keys made again": again}
compare(tried, dict.fromkeys(tried, whole))

# %% [markdown]
# `kv_down` is the latent before its norm and the key before its rotation; `kept` has both afterwards. Every head reads
# it, with the first 6 columns as values. No head's own key or value is in the table.
#
# Absorbing isn't free. In DeepSeek-V2, one token after 8192 others takes 119 times fewer operations than with all keys
# made again. But a whole prompt takes 3.3 times more, so there the model does make keys (docs/latent.md).
#
# ## What there is to read
#
# The large models keep 512 + 64 numbers per token and layer, for 128 heads.
#
# > **Predict first.** In notebook 17, attention did 1, 8 or 64 operations per byte that it read, the number of query
# > heads that shared a key/value head. About how many does it do here?
# > <!-- answer: 242 within 20 -->

# %%
from mha_numpy.models.cost import CONFIGURATIONS, kv_cache_bytes

for name, L in {"DeepSeek-V2": 60, "DeepSeek-V3": 61}.items():
    print(f"{name}: {L * (512 + 64) * 2 / 1024:.1f} KiB per token")
size = kv_cache_bytes(CONFIGURATIONS["llama-3-70b"], 1) / 1024
print(f"Llama 3 70B, grouped: {size:.1f} KiB per token")
per_token = 2 * 128 * (512 + 64) + 2 * 128 * 512  # scores and mix
print(f"operations per byte: {per_token / (2 * (512 + 64)):.0f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# It does 242, because 128 heads read each number, and use most of them twice, for the scores and for the mix. Notebook
# 17's A100 could do 153 per byte, so it would no longer wait for its memory.
#
# </details>
#
# ## What is it worth?
#
# Shapes can't say what heads lose. So we train small causal models of one layer with 8 heads. Each caches **32 numbers
# per token**, in one of four ways. (That takes a minute or two.)
#
# They read 8 *records*. A record is one token with four features, such as a colour and a shape. Each has 16 possible
# values, and none occurs twice. Then come 4 questions. One token asks four things at once: the second feature of the
# record whose *first* is this (what shape is the red one?), the third of the one whose *second* is that, and so on,
# around. So heads have to look for different things in different records.
#
# In a second task, records have eight features, four to look for and four to answer with.
#
# > **Predict first.** In the first task, the four features that we look for are also the answers. Who can store each of
# > them only once?
# >
# > - all four models
# > - multi-head and grouped
# > - only the latent
# >
# > <!-- answer: only the latent -->

# %% tags=["hide-input"]
from functools import partial

from mha_numpy.layers import Embedding, Layer, Linear
from mha_numpy.models.train import (
    AdamW,
    Batch,
    fit,
    share_right,
    warm_up_cosine,
)


def draw(rng, features=4, B=32):
    """Return 8 records, 4 questions, and the answers."""
    each = np.tile(np.arange(16), (B, features, 1))
    records = rng.permuted(each, axis=2)[..., :8].swapaxes(1, 2)
    which = rng.integers(8, size=(B, 4, 4))
    told = np.roll(records, -1 if features == 4 else -4, axis=2)
    asked = np.take_along_axis(records[..., :4], which, axis=1)
    answers = np.take_along_axis(told[..., :4], which, axis=1)
    own = 16 * np.arange(features)  # each feature has its own ids
    return Batch((records + own, asked + own[:4]), answers)


def setup(model, attention, features, rng):
    super(Lookup, model).__init__()
    model.records = Embedding(16 * features, 64, std=0.5, rng=rng)
    model.questions = Embedding(64, 64, std=0.5, rng=rng)
    model.attention = attention
    model.answer = Linear(64, 64, rng=rng)


def forward(model, records, asked):
    model.features = records.shape[2]
    x = model.records(records).sum(axis=2)
    questions = model.questions(asked).sum(axis=2)
    x = np.concatenate([x, questions], axis=1)
    out = model.attention(x, is_causal=True)[:, 8:]
    return model.answer(out).reshape(*asked.shape, 16)


def backward(model, d_logits):
    d_out = model.answer.backward(d_logits.reshape(-1, 4, 64))
    d_out = np.pad(d_out, ((0, 0), (8, 0), (0, 0)))
    d_x = model.attention.backward(d_out)
    if isinstance(d_x, tuple):  # of query, key and value
        d_x, *_ = d_x
    d_x = d_x[:, :, None]
    of_record = d_x[:, :8].repeat(model.features, axis=2)
    model.records.backward(of_record)
    model.questions.backward(d_x[:, 8:].repeat(4, axis=2))


class Lookup(Layer):
    """Tables of features, one layer of attention, answers."""

    __init__, forward, backward = setup, forward, backward


def shared(H_kv):
    d = 16 // H_kv  # so that 2 * H_kv * d = 32
    return partial(MultiHeadAttention, 64, 8, H_kv, head_dim=d)


sizes = {"latent_dim": 30, "nope_dim": 6, "rope_dim": 2}
kinds = {
    "multi-head, 8 of width 2": shared(8),
    "grouped, 2 of width 8": shared(2),
    "multi-query, 1 of width 16": shared(1),
    "latent, 30 + 2": partial(
        LatentAttention, 64, 8, **sizes, value_dim=8
    ),
}


def train(kind, features, seed, steps=500):
    rng = np.random.default_rng(seed)
    model = Lookup(kinds[kind](rng=rng), features, rng)
    options = {
        "optimizer": AdamW(model, 1e-2, weight_decay=0.0),
        "schedule": warm_up_cosine(steps, steps // 10),
    }
    options |= {"max_norm": 1.0, "rng": seed, "progress": False}
    one = partial(draw, features=features)
    return model, fit(model, one, steps=steps, **options).losses


# %%
for kind, new in kinds.items():
    layer, kv_cache = new(rng=0), KVCache()
    layer(np.ones((1, 1, 64)), kv_cache=kv_cache)
    params = sum(array.size for array in layer.params.values())
    cached = kv_cache.nbytes // 8
    print(f"{kind}: {cached} numbers cached, {params:,} params")


# %%
def right(model, features):
    """Return the share of right answers about fresh records."""
    asked, answers = draw(np.random.default_rng(99), features, 256)
    return f"{share_right(model(*asked), answers):.0%}"


def compare_kinds(features):
    """Train all kinds with three seeds; return their losses."""
    lines = {}
    for kind in kinds:
        runs = [train(kind, features, seed) for seed in range(3)]
        print(f"{kind}:", *(right(m, features) for m, _ in runs))
        losses = np.array([losses for _, losses in runs])
        lines[kind] = losses.reshape(3, -1, 20).mean(axis=2)
    return lines


tens = np.arange(20, 501, 20)
axes = {"x_label": "steps", "y_label": "nats"}
title = "Looked for and answered with: the same features"
line_chart(tens, compare_kinds(4), title=title, **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only the latent. The others keep a key *and* a value, and the heads together need every feature in both.
#
# </details>
#
# With all three seeds, the latent gets nearly everything right, and the others between 54% and 78%. (A model that knows
# two of the four things and guesses the rest is right in (2 + 2/16) / 4 = 53% of cases, and one that knows three in
# 77%.) Is it because features are stored once? Then the lead should vanish in the second task, where keys and values
# have nothing in common.

# %%
title = "Looked for and answered with: different features"
line_chart(tens, compare_kinds(8), title=title, **axes)

# %% [markdown]
# The lead over grouped and multi-query is gone: with all three seeds, the latent is behind them. And if we train longer?
# Other runs, of 2000 steps each, get this percentage right:
#
# | kind | same features | different features |
# |---|---|---|
# | multi-head | 99.7, 76.5, 100 | 76.5, 99.8, 75.7 |
# | grouped | 77.6, 76.9, 100 | 53.9, 53.7, 53.3 |
# | multi-query | 53.9, 76.7, 76.7 | 53.4, 53.5, 53.4 |
# | latent | 100, 100, 100 | 76.4, 76.7, 76.8 |
#
# Where nothing can be shared, the latent no longer gets everything right, which fits the explanation. But it's ahead of
# grouped and multi-query again, so there is more to it: the models differ in params and in a norm, too. And multi-head
# *can* do both tasks, though not with every seed. We've measured how easily training finds a solution, at one size and
# learning rate.
#
# For large models, DeepSeek-AI report that the latent did better than multi-head attention (appendix D).
#
# ## Exercise: decode from latents
#
# Write the step of one new token: absorb, score, mix, and expand the result. The check looks at the absorbed queries,
# too.


# %% tags=["exercise"]
def my_absorbed_decode(q_nope, q_rope, kept, w_k_up, w_v_up):
    """q_nope (H, d_nope), q_rope (H, d_rope), kept (T, d_c +
    d_rope), w_k_up (d_c, H*d_nope), w_v_up (d_c, H*d_v) ->
    q_absorbed (H, d_c), not scaled, and heads (H, d_v).

    heads is softmax(q k^T / sqrt(d_nope + d_rope)) v. Head h has
    block h of the columns of both maps. kept has each token's
    latent, and then its rotated key, which is for all heads. The
    new token is one of them. Large scores must not overflow.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("absorbed-decode", my_absorbed_decode)

# %% tags=["hint"]
# hint("absorbed-decode")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# The third bar from the beginning is a latent of 512 numbers and a rotated key of 64, of which each head makes what it
# needs.
#
# - All heads make their keys and values from one latent per token, which is all they can know of it.
# - Move the bracket, and decoding never makes a key. Queries absorb the key's up-projection, and the value's comes after the
#   mix. This is multi-query attention with wide heads, and the scale of the whole head.
# - A rotation between the two matrices would depend on the distance. So the position travels beside the latent, in one
#   rotated key for all heads.
# - With 32 numbers per token, our latent got nearly everything right only when keys and values shared features.
#
# **In the code:** `mha_numpy/variants/latent.py`, `mha_numpy/layers/latent_attention.py`. Derivation and backward:
# docs/latent.md.
#
# **Reference:** DeepSeek-AI 2024, *DeepSeek-V2*, sections 2.1 and 3.1.2, appendix D; DeepSeek-AI 2024, *DeepSeek-V3
# Technical Report*, section 4.2.
#
# **Next:** [32, from softmax to the delta rule](32_from-softmax-to-the-delta-rule.ipynb).
