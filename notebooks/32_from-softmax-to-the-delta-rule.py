# %% [markdown]
# # 32 · From softmax to the delta rule
#
# "Anna is in room 3. Ben is in room 5. Anna moves to room 8." Each sentence is a token, with a person as its key and a
# room as its value. Then a query asks for Anna. Three kinds of attention answer. The first keeps all three pairs and
# takes softmax's mean. The other two keep only two numbers, one per feature of a key, however many sentences come.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import attention_forward, compare
from mha_numpy.show.pictures import bar_chart, line_chart, matrices
from mha_numpy.variants import (
    linear_attention_backward,
    linear_attention_forward,
)

# %%
anna, ben = [1.0, 0.0], [0.0, 1.0]
k, rooms = np.array([anna, ben, anna]), np.array([[3.0], [5], [8]])
ask = np.array([anna])
softmax, _ = attention_forward(ask, k, rooms, scale=20.0)
_, summed = linear_attention_forward(k, k, rooms)
_, delta = linear_attention_forward(k, k, rooms, beta=np.ones(3))
answers = {
    "softmax": softmax,
    "sum": ask @ summed.final_state,
    "delta rule": ask @ delta.final_state,
}
bars = {name: answer.item() for name, answer in answers.items()}
bar_chart(bars, title="Where is Anna?", unit="room")

# %% [markdown]
# Softmax says 5.5, halfway between her two rooms. Both keys match equally well, and nothing here says which is newer.
# The second says 11, because it adds up. Only the *delta rule* says 8: before it wrote 8, it took the 3 out.
#
# **By the end you can** say why attention without a softmax needs only a state of fixed size, what that saves and what
# it loses, and write the delta rule.
#
# ## Without softmax, the order can change
#
# Softmax takes the exponential of each score, so every query has to meet every key. Leave it out, and only products
# remain, which you can compute in another order:
#
# $$(Q K^\top)\, V = Q\, (K^\top V)$$
#
# > **Predict first.** Let Q and K have shape (4, 2) and V shape (4, 3). What is the shape of the inner product on the
# > left, and on the right? And for 10,000 tokens?
#
# <details><summary>Answer</summary>
#
# It's (T, T) on the left: (4, 4), then a hundred million numbers. It's (d_k, d_v) on the right: (2, 3), both times.
#
# </details>
#
# A causal query may see only the keys so far. So we don't compute $K^\top V$ at once but add one outer product per
# token, column times row, and let each query read in between. This running sum is the *state*:
#
# $$S_t = S_{t-1} + k_t^\top v_t \qquad\qquad \mathrm{out}_t = q_t S_t$$

# %%
k = np.array([[1.0, 0], [0, 1], [1, 1], [0, 2]])  # (T, d_k)
v = np.array([[1.0, 2, 3], [4, 0, 0], [0, 5, 0], [0, 0, 1]])
q = np.array([[1.0, 1], [0, 1], [1, 0], [2, -1]])
state, states, out = np.zeros((2, 3)), {}, []
for t in range(4):
    wrote = np.outer(k[t], v[t])  # (d_k, 1) times (1, d_v)
    state = state + wrote
    out.append(q[t] @ state)  # (d_v,)
    states |= {f"token {t} writes": wrote, f"state {t}": state}
display(matrices(states, row_labels=["k 0", "k 1"]))
scores = np.tril(q @ k.T)  # (T, T), 0 above the diagonal
print("the same as masked scores @ v:", np.allclose(out, scores @ v))

# %% [markdown]
# ## Three forms, one result
#
# You've seen two forms. The **recurrence** goes token by token. The **masked product** computes all tokens at once,
# with T² scores. The third takes **chunks** of, say, 64 tokens: masked products inside a chunk, and a state from one
# chunk to the next. Models train with chunks and write with the recurrence. The library has all three, for all rules of
# this notebook:

# %%
rng = np.random.default_rng(0)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


q, k, v = rng.normal(size=(3, 2, 300, 16))  # B=2, T=300
options = {"beta": rng.random((2, 300)), "log_decay": -rng.random((2, 300))}
results = {}
for form in ("recurrence", "chunks", "product"):
    results[form], _ = linear_attention_forward(
        q, unit(k), v, form=form, **options
    )
compare(results, dict.fromkeys(results, results["recurrence"]))

# %% [markdown]
# ## What the state saves
#
# > **Predict first.** A head with d_k = d_v = 128 keeps 256 numbers per token in its KV cache. After how many tokens is
# > the cache larger than the state?
# > <!-- answer: 64 within 1 -->

# %%
from mha_numpy.models.cost import CONFIGURATIONS, kv_cache_bytes

T = 2 ** np.arange(3, 18)
lines = {"KV cache": T * 2 * 128, "state": np.full(15, 128 * 128)}
title, axes = "One head, d_k = d_v = 128", {"x_label": "tokens"}
axes |= {"log_x": True, "log_y": True, "y_label": "numbers kept"}
display(line_chart(T, lines, title=title, **axes))
llama = CONFIGURATIONS["llama-3-70b"]
heads = llama.num_layers * llama.num_kv_heads
print(f"cache: {kv_cache_bytes(llama, 8192) / 2**20:.0f} MiB")
print(f"states: {heads * 128 * 128 * 2 / 2**20:.0f} MiB")

# %% [markdown]
# <details><summary>Answer</summary>
#
# After 64 tokens, as 64 · 256 = 128 · 128.
#
# </details>
#
# The printed lines are for Llama 3 70B at 8192 tokens (notebook 17), if states took the place of its cache. A state
# also costs the same time for each token. So where is the catch?
#
# ## A sum blurs
#
# With two features only two keys can be at right angles. Let Ben's key lean towards Anna's: (0.6, 0.8), still of length
# 1.
#
# > **Predict first.** The state has summed up "Anna is in room 3" and "Ben is in room 5". What does Anna's key read?
# > <!-- answer: 6 within 0.1 -->

# %%
ben = [0.6, 0.8]
k = np.array([anna, ben])
reads = (k @ k.T) @ rooms[:2]
pair = {"row_labels": ["Anna", "Ben"]}
columns = {"overlaps, k @ k.T": k @ k.T, "told": rooms[:2]}
matrices(columns | {"read from the sum": reads}, **pair)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It reads 3 + 0.6 · 5 = 6. Reading with $k_i$ gives $\sum_j (k_i \cdot k_j)\, v_j$: your own value, plus a share of
# every other value whose key isn't at right angles to yours.
#
# </details>
#
# ## Remove before you write
#
# The *delta rule* (Schlag et al. 2021) first reads what the state already says for this key. Then it writes only the
# difference, times a *beta* between 0 and 1:
#
# $$S_t = S_{t-1} + \beta_t\, k_t^\top (v_t - k_t S_{t-1})$$
#
# With beta 1 and a key of length 1, the key then reads exactly its value. If it had a value before, that value is gone.
#
# > **Predict first.** Anna is in room 3, Ben is in room 5, Anna moves to room 8. After each sentence, which of the two
# > does the state get right?

# %%
k, state = np.array([anna, ben, anna]), np.zeros((2, 1))
after = []
for t in range(3):
    gap = rooms[t] - k[t] @ state  # (1,): what the state lacks
    state = state + np.outer(k[t], gap)  # beta = 1
    after.append((k[:2] @ state).ravel())
told = ["Anna 3", "Ben 5", "Anna 8"]
labels = {"row_labels": told, "column_labels": ["Anna", "Ben"]}
matrices({"read after each sentence": np.array(after)}, **labels)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Always the person it has just heard of. But what is written for Ben moves Anna, too: she's now at 4.92. When she
# moves, Ben is taken along to 6.848. Overlap still costs something, and the delta rule doesn't undo that in one pass.
#
# </details>
#
# Many models also let the state *fade* by a factor $e^{g_t}$ before each token, so that old sentences make room. The
# factor comes as its log, `log_decay`, because products of many factors become sums. With both you have the *gated
# delta rule* (Yang et al. 2024), the one that you'll write:
#
# $$S_t = e^{g_t} S_{t-1} + \beta_t\, k_t^\top (v_t - k_t\, e^{g_t} S_{t-1}) \qquad \mathrm{out}_t = q_t S_t / \sqrt{d_k}$$
#
# ## How much fits?
#
# Nothing is trained yet. We draw random keys of length 1 with d_k = 16, and random values. We tell each pair once, and
# then ask for all of them. The error is the mean squared distance from the right values, divided by their mean square,
# so that always answering 0 has error 1. Each chart shows five seeds. All states have 16 · 16 numbers; softmax keeps
# every pair.
#
# > **Predict first.** What is the error of the sum with 16 pairs? Two random keys have $(k_i \cdot k_j)^2 = 1/16$ on
# > average.
# > <!-- answer: 0.94 within 0.1 -->


# %%
def error(read, values):
    return ((read - values) ** 2).sum() / (values**2).sum()


def recall(keys, k, v, **options):
    """Tell pairs k, v of shape (B, T, 16); read with the keys."""
    each = {
        name: np.full(k.shape[:2], number)
        for name, number in options.items()
    }
    _, cache = linear_attention_forward(k, k, v, **each)
    return keys @ cache.final_state


def tell_once(n, rng):
    k = unit(rng.normal(size=(50, n, 16)))
    v = rng.normal(size=(50, n, 16))
    again = np.tile(k, (1, 4, 1)), np.tile(v, (1, 4, 1))
    read = {"softmax": attention_forward(k, k, v, scale=16.0)[0]}
    read["sum"] = recall(k, k, v)
    read["decay 0.9"] = recall(k, k, v, log_decay=np.log(0.9))
    read["delta rule"] = recall(k, k, v, beta=1.0)
    read["delta rule, told 4 times"] = recall(k, *again, beta=1.0)
    return {name: error(each, v) for name, each in read.items()}


def five_seeds(measure, sizes):
    """Return for each name an array (5, len(sizes))."""
    runs = [
        [measure(n, np.random.default_rng(seed)) for n in sizes]
        for seed in range(5)
    ]
    return {
        name: np.array([[one[name] for one in run] for run in runs])
        for name in runs[0][0]
    }


pairs = [1, 2, 4, 8, 12, 16, 20, 24, 28, 32]
lines = five_seeds(tell_once, pairs)
title, axes = "Recall, untrained", {"x_label": "pairs"}
line_chart(pairs, lines, title=title, y_label="error", **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# 15 other pairs bring 1/16 each: 15/16 = 0.94.
#
# </details>
#
# What do these curves show?
#
# - The sum grows by 1/d_k per pair. A decay stays lower by giving up old pairs.
# - Told once, the delta rule's error is well below the sum's, but not zero: 0.28 with 8 pairs. With 16, it is no better
#   than this decay.
# - Told four times, it's close to exact for 8 pairs, because each round corrects what the last one left. (Four times
#   the sum is only four times the same blur.) But beyond 16, d_k, no matrix maps all keys to their values.
# - Softmax isn't troubled. It keeps everything.
#
# ## Keys that come again
#
# Now we use only 8 keys, and every round tells new values for all of them, in random order. Only the latest count. We
# also give softmax a bias of 1 per token in favour of newer tokens.

# %%


def tell_again(rounds, rng):
    k = unit(rng.normal(size=(50, 8, 16)))
    turns = np.tile(np.arange(8), (rounds, 50, 1))
    who = np.concatenate(rng.permuted(turns, axis=2), axis=1)
    told = np.take_along_axis(k, who[..., None], axis=1)
    v = rng.normal(size=told.shape)
    last = np.argsort(who[:, -8:], axis=1)[..., None]
    newest = np.take_along_axis(v[:, -8:], last, axis=1)
    return k, told, v, newest


def rewrite(rounds, rng):
    k, told, v, newest = tell_again(rounds, rng)
    newer = {"scale": 16.0, "bias": np.arange(float(8 * rounds))[None]}
    read = {"softmax": attention_forward(k, told, v, scale=16.0)[0]}
    read["softmax, newer first"] = attention_forward(
        k, told, v, **newer
    )[0]
    read["sum"] = recall(k, told, v)
    read["decay 0.9"] = recall(k, told, v, log_decay=np.log(0.9))
    read["delta rule"] = recall(k, told, v, beta=1.0)
    return {name: error(each, newest) for name, each in read.items()}


rounds = [1, 2, 4, 8, 16]
lines = five_seeds(rewrite, rounds)
title = "8 keys, told again with new values"
axes = {"x_label": "rounds", "log_x": True, "log_y": True}
line_chart(rounds, lines, title=title, y_label="error", **axes)
