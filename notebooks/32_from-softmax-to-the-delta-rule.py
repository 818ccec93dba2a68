# %% [markdown]
# # 32 · From softmax to the delta rule
#
# "Anna is in room 3. Ben is in room 5. Anna moves to room 8." Each sentence is a token: its key is a person, its value
# a room. Then a query asks for Anna. Three kinds of attention give three answers. The first keeps all three pairs and
# returns softmax's weighted mean. The other two keep only two numbers, one per feature of a key, however many sentences
# come.

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
softmax, cache = attention_forward(ask, k, rooms, scale=20.0)
print("softmax's weights:", cache.weights.round(2))
# We use only the states that are left. Queries can't change
# them, so any will do: here k once more.
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
# Softmax says 5.5, halfway between Anna's two rooms: both her keys match equally well, and nothing says which is newer.
# The sum says 3 + 8 = 11. Only the *delta rule* says 8, because it
# removed the 3 before it wrote the 8.
#
# **By the end you can** say why attention without a softmax needs only a state of fixed size, what that saves and what
# it loses, and write the delta rule.
#
# ## Without softmax, the order can change
#
# Softmax takes the exponential of each score, so every query has to meet every key. Without it only products remain,
# which you can compute in another order (Katharopoulos et al. 2020, who also make q and k positive and divide by a sum):
#
# $$(Q K^\top)\, V = Q\, (K^\top V)$$
#
# > **Predict first.** Q and K have shape (3, 2), V (3, 4). Which shape does each bracket have? And for 10,000 tokens?
#
# <details><summary>Answer</summary>
#
# The left one has (T, T): (3, 3), then a hundred million numbers. The right one has (d_k, d_v), (2, 4) both times.
#
# </details>
#
# A causal query may see only the keys so far. So we add one outer product per token, column times row, and let each
# query read in between. This running sum is the *state*:
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
display(matrices(states, row_labels=["feature 0", "feature 1"]))
scores = np.tril(q @ k.T)  # (T, T), 0 above the diagonal
same = np.allclose(out, scores @ v)
print("the same as the masked product:", same)

# %% [markdown]
# ## Three forms, one result
#
# You've seen two forms: the **recurrence**, token by token, and the **masked product**, all at once with T² scores. The
# third takes **chunks** of, say, 64 tokens: masked products inside a chunk, and a state from one chunk to the next.
# Models train with chunks and generate text with the recurrence.

# %%
rng = np.random.default_rng(0)
q, k, v = rng.normal(size=(3, 2, 300, 16))  # B=2, T=300
forms = {}  # scale 1: the default divides by sqrt(d_k)
for form in ("recurrence", "chunks", "product"):
    forms[form], _ = linear_attention_forward(
        q, k, v, form=form, scale=1.0
    )
by_hand = np.tril(q @ k.swapaxes(1, 2)) @ v  # as above
compare(forms, dict.fromkeys(forms, by_hand))

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
kv_heads = llama.num_layers * llama.num_kv_heads
cache = kv_cache_bytes(llama, 8192)
states = kv_heads * 128 * 128 * 2  # 2 bytes per number
print(f"cache: {cache / 2**20:.0f} MiB")
print(f"states: {states / 2**20:.0f} MiB")
print(f"the cache is {cache / states:.0f} times as large")

# %% [markdown]
# <details><summary>Answer</summary>
#
# After 64 tokens, because 64 · 256 = 128 · 128.
#
# </details>
#
# We printed the cache of Llama 3 70B at 8192 tokens (notebook 17), and a state per head in its place. Since a state never grows,
# the last token takes no more work than the first. Where is the catch?
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
# every other value whose key isn't at right angles to it. The shares don't sum to 1, so this is no mean.
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
# With beta 1 and a key of length 1, this key then reads exactly its value. If it had a value before, that value is gone.
#
# > **Predict first.** Anna is in room 3, Ben is in room 5, Anna moves to room 8. After each sentence, which of the two
# > does the state get right?

# %%
k, state, total = np.array([anna, ben, anna]), np.zeros((2, 1)), 0
by_delta, by_sum = [], []
for t in range(3):
    gap = rooms[t] - k[t] @ state  # (1,): what the state lacks
    state = state + np.outer(k[t], gap)  # beta = 1
    total = total + np.outer(k[t], rooms[t])
    by_delta.append((k[:2] @ state).ravel())
    by_sum.append((k[:2] @ total).ravel())
told = ["Anna 3", "Ben 5", "Anna 8"]
labels = {"row_labels": told, "column_labels": ["Anna", "Ben"]}
read = {"by the delta rule": by_delta, "by the sum": by_sum}
read = {name: np.array(rows) for name, rows in read.items()}
matrices(read, **labels)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only the person in the latest sentence. The keys overlap, so writing Ben's room changes Anna's to 4.92, and writing
# Anna's new room changes Ben's to 6.85. But the sum is further off: 14 and 11.6.
#
# </details>
#
# Many models also let the state *fade* by a factor $e^{g_t}$ before each token (the same for all tokens in Sun et al.
# 2023). In code, $g_t$ is `log_decay`. With both you have the *gated delta rule* (Yang et al. 2024), the one that
# you'll write. It also divides by $\sqrt{d_k}$, as attention does:
#
# $$S_t = e^{g_t} S_{t-1} + \beta_t\, k_t^\top (v_t - k_t\, e^{g_t} S_{t-1}) \qquad \mathrm{out}_t = q_t S_t / \sqrt{d_k}$$
#
# ## How much fits?
#
# Nothing is trained yet. We draw random keys of length 1, with d_k = 16, and random values, tell each pair once, then
# ask for all. The error is the squared distance from the right values, divided by their squared length, so always
# answering 0 has error 1. All states have 16 · 16 numbers, but softmax keeps every pair. (A scale of 16 gives its best
# match nearly all the weight.)
#
# > **Predict first.** What is the error of the sum with 16 pairs? Two random keys have $(k_i \cdot k_j)^2 = 1/16$ on
# > average.
# > <!-- answer: 0.94 within 0.1 -->


# %%
def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def error(read, values):
    return ((read - values) ** 2).sum() / (values**2).sum()


def recall(keys, k, v, **numbers):
    """Tell pairs k, v of shape (B, T, 16); read with the keys.

    A number, such as beta=1.0, is the same for all tokens. Only
    the final state is used, so k may serve as queries, too.
    """
    per_token = {
        name: np.full(k.shape[:2], number)
        for name, number in numbers.items()
    }
    _, cache = linear_attention_forward(k, k, v, **per_token)
    return keys @ cache.final_state


def by_state(keys, k, v):
    """Return what each rule's state says for the keys."""
    return {
        "sum": recall(keys, k, v),
        "decay 0.9": recall(keys, k, v, log_decay=np.log(0.9)),
        "delta rule": recall(keys, k, v, beta=1.0),
    }


def tell_once(n, rng):
    """Return the error of each rule after n pairs."""
    k = unit(rng.normal(size=(50, n, 16)))
    v = rng.normal(size=(50, n, 16))
    again = np.tile(k, (1, 4, 1)), np.tile(v, (1, 4, 1))
    sharp, _ = attention_forward(k, k, v, scale=16.0)
    read = {"softmax, scale 16": sharp} | by_state(k, k, v)
    read["delta rule, told 4 times"] = recall(k, *again, beta=1.0)
    return {name: error(x, v) for name, x in read.items()}


def five_seeds(measure, sizes):
    """Measure each size with five seeds.

    Return the errors of each name, (5, len(sizes)).
    """
    runs = [
        [measure(n, np.random.default_rng(seed)) for n in sizes]
        for seed in range(5)
    ]
    return {
        name: np.array([[one[name] for one in run] for run in runs])
        for name in runs[0][0]
    }


def show_means(lines, sizes, chosen):
    print(f"{'mean error with':26}", *(f"{n:6}" for n in chosen))
    for name, runs in lines.items():
        means = dict(zip(sizes, runs.mean(axis=0), strict=True))
        print(f"{name:26}", *(f"{means[n]:6.2f}" for n in chosen))


pairs = [1, 2, 4, 8, 12, 16, 20, 24, 28, 32]
lines = five_seeds(tell_once, pairs)
show_means(lines, pairs, [8, 12, 16, 20, 32])
title, axes = "Recall, untrained", {"x_label": "pairs"}
line_chart(pairs, lines, title=title, y_label="error", **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# 15 other pairs bring 1/16 each: 15/16 = 0.94.
#
# </details>
#
# - The sum's error grows by about 1/d_k per pair. From 20 pairs on, answering 0 would be better.
# - Told four times, the delta rule is close to exact for 8 pairs, because each round corrects the last. For 16, a
#   matrix that maps all keys to their values exists, but 0.29 remains.
# - Softmax is close to exact throughout.
#
# How much of it is only length, which real layers norm? Let's multiply by the best factor:


# %%
def best_error(read, values):
    factor = (read * values).sum() / (read**2).sum()
    return error(factor * read, values)


def tell_and_scale(n, rng):
    k = unit(rng.normal(size=(50, n, 16)))
    v = rng.normal(size=(50, n, 16))
    read = by_state(k, k, v)
    return {name: best_error(x, v) for name, x in read.items()}


chosen = [8, 12, 16, 32]
show_means(five_seeds(tell_and_scale, chosen), chosen, chosen)

# %% [markdown]
# Most of the sum's: with 16 pairs or more, it's the best of the three now. So why remove anything?
#
# ## Keys that come again
#
# Now 8 keys get new values in every round, in random order, and only the latest count. The second softmax has a bias: 1
# more for each token than for the one before.
#
# > **Predict first.** Which error has no bound?

# %%


def tell_again(rounds, rng):
    """Return 8 keys, the told keys and values, and the latest."""
    k = unit(rng.normal(size=(50, 8, 16)))
    turns = np.tile(np.arange(8), (rounds, 50, 1))
    # which key comes, (50, 8 rounds)
    who = np.concatenate(rng.permuted(turns, axis=2), axis=1)
    told = np.take_along_axis(k, who[..., None], axis=1)
    v = rng.normal(size=told.shape)
    # of each key, in the last round
    place = np.argsort(who[:, -8:], axis=1)[..., None]
    newest = np.take_along_axis(v[:, -8:], place, axis=1)
    return k, told, v, newest


def rewrite(rounds, rng):
    """Return the error of each rule after these rounds."""
    k, told, v, newest = tell_again(rounds, rng)
    sharp = {"scale": 16.0}
    newer = sharp | {"bias": np.arange(8.0 * rounds)[None]}
    plain, _ = attention_forward(k, told, v, **sharp)
    biased, _ = attention_forward(k, told, v, **newer)
    read = {"softmax, scale 16": plain} | by_state(k, told, v)
    read["softmax, bias"] = biased
    return {name: error(x, newest) for name, x in read.items()}


rounds = [2, 4, 8, 16]
lines = five_seeds(rewrite, rounds)
show_means(lines, rounds, rounds)
title = "8 keys, told again with new values"
axes = {"x_label": "rounds", "log_x": True, "log_y": True}
line_chart(rounds, lines, title=title, y_label="error", **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The sum's: it drowns in old values. Softmax's goes to 1, because it can't tell old from new without the bias. The delta
# rule replaces old values, but overlaps remain: its error grows by less and less, to 0.39.
#
# </details>
#
# ## Can training choose better keys?
#
# A model can *learn* its keys. So we train one for each rule, with d_k = d_v = 8 and a state of 64 numbers. It learns a
# vector for each of 16 keys and 16 values, and beta and decay (softmax: its scale and bias). It reads 1 to 32 random
# pairs, and then names the latest value of every key in them.
#
# > **Predict first.** Which rules name most after 8 pairs? From worst to best:
# >
# > - sum, decay, delta rule
# > - decay, sum, delta rule
# > - no difference: learned keys don't overlap
# >
# > <!-- answer: sum, decay, delta rule -->

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


def draw(rng, B=32, T=None, distinct=False):
    T = T or rng.integers(1, 33)
    keys, values = rng.integers(16, size=(2, B, T))
    if distinct:  # no key comes again
        keys = rng.permuted(np.tile(np.arange(16), (B, 1)), axis=1)
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


BY_STATE = with_state, with_state_backward
BY_SOFTMAX = with_softmax, with_softmax_backward


def add_params(model, seed):
    """Add both tables, the answer's layer and two numbers."""
    rng = np.random.default_rng(seed)
    tables = [Embedding(16, 8, rng=rng) for _ in "kv"]
    model.keys, model.values = tables
    model.answer = Linear(8, 16, rng=rng)
    start = [1.0, 3.0] if model.has_state else [2.0, -1.0]
    model.params["numbers"] = np.array(start)


def name_latest(model, keys, values):
    """Read the pairs, ask for all 16 keys; return logits."""
    T, asked = keys.shape[1], np.tile(np.arange(16), (len(keys), 1))
    x = model.keys(np.concatenate([keys, asked], axis=1))
    model.length = np.linalg.norm(x, axis=-1, keepdims=True)
    model.unit = unit(x)
    k, q = model.unit[:, :T], model.unit[:, T:]
    memory, _ = BY_STATE if model.has_state else BY_SOFTMAX
    read = memory(model, q, k, model.values(values))
    return model.answer(read)


def name_latest_backward(model, d_logits):
    d_read = model.answer.backward(d_logits)
    _, back = BY_STATE if model.has_state else BY_SOFTMAX
    d_q, d_k, d_v = back(model, d_read)
    model.values.backward(d_v)
    d_unit = np.concatenate([d_k, d_q], axis=1)
    along = (d_unit * model.unit).sum(axis=-1, keepdims=True)
    model.keys.backward(
        (d_unit - along * model.unit) / model.length
    )


class Recall(Layer):
    """Tables of keys and values, a memory, an answer."""

    def __init__(self, rule, seed):
        super().__init__()
        self.has_state, self.rule = rule != "softmax", rule.split()
        add_params(self, seed)

    def forward(self, keys, values):
        return name_latest(self, keys, values)

    def backward(self, d_logits):
        name_latest_backward(self, d_logits)


# %%
lengths = [1, 2, 4, 8, 12, 16, 24, 32]


def train(rule, seed, steps=300):
    """Return the share of right answers after each length.

    The last is after 16 pairs with 16 different keys.
    """
    model = Recall(rule, seed)
    fit(
        model,
        draw,
        steps=steps,
        rng=seed,
        optimizer=AdamW(model, 2e-2, weight_decay=0.0),
        schedule=warm_up_cosine(steps, 30),
        progress=False,
    )
    rng = np.random.default_rng(9)
    tests = [draw(rng, 256, T) for T in lengths]
    tests.append(draw(rng, 256, 16, distinct=True))
    return [share_right(model(*x), y) for x, y in tests]


rules = {"softmax": "softmax", "sum": "", "decay": "log_decay"}
rules |= {
    "delta rule": "beta",
    "gated delta rule": "beta log_decay",
}
lines = {  # about 15 seconds
    name: np.array([train(rule, seed) for seed in range(3)])
    for name, rule in rules.items()
}
for name, runs in lines.items():
    of_8, of_32, different = runs.mean(axis=0)[[3, 7, 8]]
    print(f"{name}: {of_8:.0%} with 8 pairs, {of_32:.0%}", end=" ")
    print(f"with 32, {different:.0%} with 16 different keys")
ranked = np.array(
    [lines[n] for n in ("sum", "decay", "delta rule")]
)
same = (np.diff(ranked[..., 2:8], axis=0) > 0).all()
print("sum < decay < delta rule, each seed, from 4 pairs:", same)
turned = (np.diff(ranked[..., 8], axis=0) < 0).all()
print("the other way round with 16 different keys:", turned)
title, axes = "Trained: latest values named", {"x_label": "pairs"}
shares = {name: runs[:, :8] for name, runs in lines.items()}
line_chart(lengths, shares, title=title, y_label="share", **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The sum names 85%, decay 90% and the delta rule 97%.
#
# </details>
#
# From 4 pairs on, each seed gives this order, and it comes from keys that come again. Told 16 pairs with 16 different
# keys, the same models give the opposite order, with each seed: there is nothing to overwrite. Softmax forgets next to
# nothing, but for 32 pairs it keeps 512 numbers, the others 64.
#
# And if we train longer than 300 steps?

# %%
for name in ("decay", "delta rule"):  # about 15 seconds
    longer = train(rules[name], seed=0, steps=1200)
    for i, n in ((3, 8), (7, 32)):
        before = lines[name][0, i]
        print(
            f"{name}: {longer[i]:.1%} with {n}, before {before:.1%}"
        )

# %% [markdown]
# With this seed, decay comes close with 32 pairs, but not with 8. Qwen3-Next mixes: three of four layers have the gated
# delta rule, the fourth softmax.
#
# ## Exercise: the gated delta rule
#
# Write its equation as a loop over the tokens of one head. Which state does each product read?
#
# To practise more: `delta-step-backward` in `mha-numpy exercises` goes back through one token. Each array's gradient is
# a sum over all its uses.


# %% tags=["exercise"]
def my_delta_rule(q, k, v, log_decay, beta, state):
    """q, k (T, d_k), v (T, d_v), log_decay and beta (T,), state
    (d_k, d_v) -> out (T, d_v), and the state after the last token.
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
# The three bars: softmax kept both of Anna's rooms, the sum added them, and the delta rule removed the first.
#
# - Without softmax, attention is a running sum of outer products, of d_k · d_v numbers, however long the text.
# - Each key reads a share of every value whose key overlaps with its own. With random keys, the sum's error grows by
#   about 1/d_k per pair.
# - The delta rule removes what the state says for a key before it writes. So it can overwrite: our models recalled more
#   by it than by sum or decay where keys came again, and less where none did. Softmax keeps everything.
#
# **In the code:** `mha_numpy/variants/linear_attention.py` has the recurrence, `linear_chunks.py` the chunks.
# Derivation and backward: docs/linear-attention.md.
#
# **Reference:** Katharopoulos et al. 2020, *Transformers are RNNs*; Schlag et al. 2021, *Linear Transformers Are
# Secretly Fast Weight Programmers*; Sun et al. 2023, *Retentive Network*; Yang et al. 2024, *Gated Delta Networks*.
