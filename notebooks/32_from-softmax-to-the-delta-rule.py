# %% [markdown]
# # 32 · From softmax to the delta rule
#
# "Anna is in room 3. Ben is in room 5. Anna moves to room 8." Each sentence is a token, with a person as its key and a
# room as its value. Then a query asks for Anna. Three kinds of attention answer. The first keeps all three pairs and
# takes softmax's mean. The other two keep only two numbers, one per feature of a key, however many sentences come.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import attention_backward, attention_forward, compare
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
bar_chart(bars, title="Where is Anna?", unit="room numbers")

# %% [markdown]
# Softmax says 5.5, halfway between her two rooms. Both keys match equally well, and nothing here says which is newer.
# The second says 11, because it adds up. Only the *delta rule* says 8: before it wrote 8, it took the 3 out.
#
# **By the end you can** say why attention without a softmax needs only a state of fixed size, what that saves and what
# it loses, and write the delta rule.
#
# ## Without softmax, the order can change
#
# Softmax takes the exponential of each score, so every query has to meet every key. Without it only products remain,
# which you can compute in another order:
#
# $$(Q K^\top)\, V = Q\, (K^\top V)$$
#
# > **Predict first.** Let Q and K have shape (3, 2) and V shape (3, 4). What is the shape of the bracket on the left,
# > and on the right? And for 10,000 tokens?
#
# <details><summary>Answer</summary>
#
# On the left it's (T, T): (3, 3), then a hundred million numbers. On the right it's (d_k, d_v), (2, 4) both times.
#
# </details>
#
# A causal query may see only the keys so far. So we don't compute $K^\top V$ at once but add one outer product per
# token, column times row, and let each query read in between. This running sum is the *state*:
#
# $$S_t = S_{t-1} + k_t^\top v_t \qquad\qquad \mathrm{out}_t = q_t S_t$$

# %%
k = np.array([[1.0, 0], [0, 1], [1, 2]])  # (T, d_k)
v = np.array([[1.0, 2, 3, 0], [4, 0, 0, 1], [0, 5, 1, 0]])
q = np.array([[1.0, 1], [0, 1], [2, -1]])
state, states, out = np.zeros((2, 4)), {}, []
for t in range(3):
    wrote = np.outer(k[t], v[t])  # (d_k, 1) times (1, d_v)
    state = state + wrote
    out.append(q[t] @ state)  # (d_v,)
    states |= {f"token {t} writes": wrote, f"state {t}": state}
display(matrices(states, row_labels=["k 0", "k 1"]))
scores = np.tril(q @ k.T)  # (T, T), 0 above the diagonal
same = np.allclose(out, scores @ v)
print("the same as the masked product:", same)

# %% [markdown]
# ## Three forms, one result
#
# You've seen two forms: the **recurrence**, token by token, and the **masked product**, all at once with T² scores. The
# third takes **chunks** of, say, 64 tokens: masked products inside a chunk, and a state from one chunk to the next.
# Models train with chunks and write with the recurrence.

# %%
rng = np.random.default_rng(0)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


q, k, v = rng.normal(size=(3, 2, 300, 16))  # B=2, T=300
options = {
    "beta": rng.random((2, 300)),
    "log_decay": -rng.random((2, 300)),
}
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
# After 64 tokens, because 64 · 256 = 128 · 128.
#
# </details>
#
# The printed lines are for Llama 3 70B at 8192 tokens (notebook 17), if states took the place of its cache. And every
# token takes the same time. Where is the catch?
#
# ## A sum blurs
#
# With two features only two keys can be at right angles. Let Ben's key lean towards Anna's: (0.6, 0.8), of length 1.
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
# It reads 3 + 0.6 · 5 = 6. Reading with $k_i$ gives $\sum_j (k_i \cdot k_j)\, v_j$: its own value, plus a share of
# every other value whose key isn't at right angles to it.
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
# Only the person it has just heard of. But what is written for Ben moves Anna to 4.92, and when she moves, Ben is taken
# along to 6.85. Overlaps still cost something.
#
# </details>
#
# Many models also let the state *fade* by a factor $e^{g_t}$ before each token. It comes as its log, `log_decay`. With
# both you have the *gated delta rule* (Yang et al. 2024), the one that you'll write:
#
# $$S_t = e^{g_t} S_{t-1} + \beta_t\, k_t^\top (v_t - k_t\, e^{g_t} S_{t-1}) \qquad \mathrm{out}_t = q_t S_t / \sqrt{d_k}$$
#
# ## How much fits?
#
# Nothing is trained yet. We draw random keys of length 1, with d_k = 16, and random values. We tell each pair once, and
# then ask for all of them. The error is the squared distance from the right values, divided by their square, so always
# answering 0 has error 1. We take five seeds. All states have 16 · 16 numbers; softmax, with scale
# 16, keeps every pair.
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
for name, runs in lines.items():
    print(f"{name}: {runs.mean(axis=0)[3]:.2f} with 8 pairs")
title, axes = "Recall, untrained", {"x_label": "pairs"}
line_chart(pairs, lines, title=title, y_label="error", **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# 15 other pairs bring 1/16 each: 15/16 = 0.94.
#
# </details>
#
# - The sum's error grows by 1/d_k per pair. A decay gives up old pairs and stays lower.
# - Told once, the delta rule is well below the sum, but not exact, and from 16 pairs on no better than this decay.
# - Told four times, it's close to exact for 8 pairs, because each round corrects what the last one left. (The sum would
#   grow four times as large, blur included.) Beyond d_k = 16 pairs, no matrix maps all keys to their values.
# - Softmax is close to exact throughout. It keeps everything.
#
# ## Keys that come again
#
# Now 8 keys get new values in every round, in random order, and only the latest count. We also try softmax with a bias
# of 1 per token in favour of newer ones.
#
# > **Predict first.** Which errors grow from round to round?

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
    newer = {
        "scale": 16.0,
        "bias": np.arange(float(8 * rounds))[None],
    }
    read = {"softmax": attention_forward(k, told, v, scale=16.0)[0]}
    read["sum"] = recall(k, told, v)
    read["decay 0.9"] = recall(k, told, v, log_decay=np.log(0.9))
    read["delta rule"] = recall(k, told, v, beta=1.0)
    read["softmax, newer first"] = attention_forward(
        k, told, v, **newer
    )[0]
    return {
        name: error(each, newest) for name, each in read.items()
    }


rounds = [2, 4, 8, 16]
lines = five_seeds(rewrite, rounds)
title = "8 keys, told again with new values"
axes = {"x_label": "rounds", "log_x": True, "log_y": True}
line_chart(rounds, lines, title=title, y_label="error", **axes)

# %% [markdown]
# The sum's does, because it drowns in old values, and so does softmax's, because it can't tell old from new by itself.
# The bias fixes that. The delta rule replaces old values: its error settles below 0.4, as overlaps remain, and the
# decay's above 0.5.
#
# ## Can training choose better keys?
#
# A model can *learn* its keys. So let's train one for each rule, with d_k = d_v = 8 and a state of 64 numbers. It
# learns a vector for each of 16 keys and 16 values, and beta and decay (softmax: its scale and bias). It reads 1 to 32
# pairs of a random key and a random value, and then names the latest value of every key that it has met.
#
# > **Predict first.** The sum names 85% of the values right after 8 pairs. Which percentage does the delta rule get?
# > <!-- answer: 97 within 3 -->

# %% tags=["hide-input"]
from mha_numpy.layers import Embedding, Layer, Linear
from mha_numpy.models.train import (
    IGNORED,
    AdamW,
    Batch,
    fit,
    share_right,
    warm_up_cosine,
)


def draw(rng, B=32, T=None):
    T = T or rng.integers(1, 33)
    keys, values = rng.integers(16, size=(2, B, T))
    latest = np.full((B, 16), IGNORED)
    for t in range(T):
        latest[np.arange(B), keys[:, t]] = values[:, t]
    return Batch((keys, values), latest)


def with_softmax(model, q, k, v):
    """Return what the queries read."""
    scale, slope = np.exp(model.params["numbers"])
    age = np.arange(1.0 - k.shape[1], 1)[None]
    bias, model.kept = slope * age, (q, slope * age)
    read, model.cache = attention_forward(
        q, k, v, scale=scale, bias=bias
    )
    return read


def with_softmax_backward(model, d_read):
    grads, (q, bias) = (
        attention_backward(d_read, model.cache),
        model.kept,
    )
    d_numbers = [(grads.d_q * q).sum(), (grads.d_bias * bias).sum()]
    model.accumulate("numbers", np.array(d_numbers))
    return grads.d_q, grads.d_k, grads.d_v


def with_state(model, q, k, v):
    """Return what the queries read."""
    share = 1 / (1 + np.exp(-model.params["numbers"]))  # 0 to 1
    each = {"beta": share[0], "log_decay": np.log(share[1])}
    each = {n: np.full(k.shape[:2], each[n]) for n in model.rule}
    _, model.cache = linear_attention_forward(k, k, v, **each)
    model.kept = q, (1 - share) * [share[0], 1]
    return q @ model.cache.final_state


def with_state_backward(model, d_read):
    cache, (q, slopes) = model.cache, model.kept
    end = {"d_final_state": q.swapaxes(1, 2) @ d_read}
    grads = linear_attention_backward(0 * cache.v, cache, **end)
    found = grads.d_beta, grads.d_log_decay
    sums = [0 if d is None else d.sum() for d in found]
    model.accumulate("numbers", slopes * sums)
    d_q = d_read @ cache.final_state.swapaxes(1, 2)
    return d_q, grads.d_k, grads.d_v


MEMORIES = {
    True: (with_softmax, with_softmax_backward),
    False: (with_state, with_state_backward),
}


def setup(model, rule, seed):
    rng = np.random.default_rng(seed)
    super(Recall, model).__init__()
    is_softmax, model.rule = rule == "softmax", rule.split()
    model.memory = MEMORIES[is_softmax]
    tables = [Embedding(16, 8, rng=rng) for _ in "kv"]
    model.keys, model.values = tables
    model.answer = Linear(8, 16, rng=rng)
    start = [2.0, -1.0] if is_softmax else [1.0, 3.0]
    model.params["numbers"] = np.array(start)


def forward(model, keys, values):
    T, asked = keys.shape[1], np.tile(np.arange(16), (len(keys), 1))
    x = model.keys(np.concatenate([keys, asked], axis=1))
    model.length = np.linalg.norm(x, axis=-1, keepdims=True)
    model.unit = unit(x)
    k, q = model.unit[:, :T], model.unit[:, T:]
    read = model.memory[0](model, q, k, model.values(values))
    return model.answer(read)


def backward(model, d_logits):
    d_read = model.answer.backward(d_logits)
    d_q, d_k, d_v = model.memory[1](model, d_read)
    model.values.backward(d_v)
    d_unit = np.concatenate([d_k, d_q], axis=1)
    along = (d_unit * model.unit).sum(axis=-1, keepdims=True)
    model.keys.backward(
        (d_unit - along * model.unit) / model.length
    )


class Recall(Layer):
    """Tables of keys and values, a memory, an answer."""

    __init__, forward, backward = setup, forward, backward


# %%
rules = {"softmax": "softmax", "sum": "", "decay": "log_decay"}
rules |= {
    "delta rule": "beta",
    "gated delta rule": "beta log_decay",
}
lengths, right = [1, 2, 4, 8, 12, 16, 24, 32], {}
for name, rule in rules.items():  # about 15 seconds
    right[name] = []
    for seed in range(3):
        model = Recall(rule, seed)
        fit(
            model,
            draw,
            steps=300,
            rng=seed,
            optimizer=AdamW(model, 2e-2, weight_decay=0.0),
            schedule=warm_up_cosine(300, 30),
            progress=False,
        )
        rng = np.random.default_rng(9)
        tests = [draw(rng, 256, T) for T in lengths]
        right[name].append(
            [share_right(model(*x), y) for x, y in tests]
        )
lines = {name: np.array(runs) for name, runs in right.items()}
for name, runs in lines.items():
    _, _, _, of_8, *_, of_32 = runs.mean(axis=0)
    print(f"{name}: {of_8:.0%} with 8 pairs, {of_32:.0%} with 32")
title, axes = "Trained: latest values named", {"x_label": "pairs"}
line_chart(lengths, lines, title=title, y_label="share", **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The delta rule names 97%, decay 90% and the sum 85%.
#
# </details>
#
# With equal states, and from 4 pairs on, the order is the same with each seed: sum, decay, delta rule. Adding decay to
# the delta rule gains nothing in this task, where a new value already removes the old one. Softmax forgets next to
# nothing, but for 32 pairs it keeps 512 numbers, the others 64.
#
# That's one task, whose tokens contain both key and value, and 300 steps. (With 1,200, decay comes closer: 68% against
# 70% with 32 pairs.) Qwen3-Next uses both: the gated delta rule in three of four layers, and softmax in the fourth.
#
# ## Exercise: the gated delta rule
#
# Write the loop over the tokens of one head: fade, read with the key, write what is missing, read with the query.
#
# To practise more, try `delta-step-backward` in `mha-numpy exercises`, the way back through one token.


# %% tags=["exercise"]
def my_delta_rule(q, k, v, log_decay, beta, state):
    """q, k (T, d_k), v (T, d_v), log_decay and beta (T,), state
    (d_k, d_v) -> out (T, d_v), and the state after the last token.

    kept = e^log_decay * state; the token writes beta * (v - k kept)
    at its key, and then reads with q, divided by sqrt(d_k).
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("delta-rule", my_delta_rule)

# %% tags=["hint"]
# hint("delta-rule")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now explain the three bars from the beginning: softmax kept both of Anna's rooms, the sum added them up, and
# the delta rule removed the first.
#
# - Without softmax, attention is a running sum of outer products, of d_k · d_v numbers, however long the text.
#   Recurrence, chunks and masked product compute the same.
# - Each key reads a share of every value whose key overlaps with its own. With random keys, the sum's error grows by
#   1/d_k per pair.
# - The delta rule removes what the state says for a key before it writes. So it can overwrite, and correct itself when
#   it hears a pair again.
# - With equal states, our trained models recalled more by the delta rule than by sum or decay. Softmax recalled most, but
#   it keeps everything.
#
# **In the code:** `mha_numpy/variants/linear_attention.py` has the recurrence, `linear_chunks.py` the chunks.
# Derivation and backward: docs/linear-attention.md.
#
# **Reference:** Katharopoulos et al. 2020, *Transformers are RNNs*; Schlag et al. 2021, *Linear Transformers Are
# Secretly Fast Weight Programmers*; Sun et al. 2023, *Retentive Network*; Yang et al. 2024, *Gated Delta Networks*.
