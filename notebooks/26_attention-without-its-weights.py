# %% [markdown]
# # 26 · Attention without its weights
#
# A model reads a long text of 128 thousand tokens. It has 32 heads of width 128, and each number takes 2 bytes. Here
# is what one layer would have to store for this text.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import attention_forward, softmax_forward
from mha_numpy.show.pictures import bar_chart, line_chart, matrices
from mha_numpy.teach.exercises import check, hint

# %%
T, H, d = 128 * 1024, 32, 128
held = {"q, k, v and heads": 4 * H * T * d, "weights": H * T * T}
bars = {name: 2 * n / 2**30 for name, n in held.items()}
bar_chart(bars, title="One layer stores", unit="GiB")

# %% [markdown]
# A thousand GiB for the weights of a single layer: no graphics card has room for that, and yet such models run. They
# take the keys in blocks and never store a whole row of weights. And the result is no approximation. It is the same
# attention, up to rounding.
#
# **By the end you can** compute exact attention from a few keys at a time, and its weights again when the backward pass
# needs them.
#
# ## Softmax needs the whole row
#
# Scores can be computed block by block, and the mix can be added up block by block. The difficult part is softmax,
# because its maximum and its sum belong to the whole row. Suppose you take the softmax of each block separately, and
# put the blocks side by side.
#
# > **Predict first.** Six scores come in three blocks of two. What do all six weights add up to? Does dividing by 3
# > give the right weights?

# %%
scores = np.array([1.0, 2.0, 5.0, 3.0, 0.0, 4.0])
by_block = softmax_forward(scores.reshape(3, 2))[0].ravel()
whole, cache = softmax_forward(scores)
both = {"each block by itself, / 3": by_block / 3, "softmax": whole}
columns = [f"s = {s:.0f}" for s in scores]
matrices(both, column_labels=columns)

# %% [markdown]
# <details><summary>Answer</summary>
#
# They add up to 3, because each block adds up to 1. Dividing by 3 doesn't fix it, because the block with scores 1 and
# 2 still counts as much as the block with 5 and 3.
#
# </details>
#
# ## Online softmax
#
# Milakov and Gimelshein 2018 found a way. For each query we keep three things: the largest score so far, $m$; the sum
# so far, $\ell$; and the mix so far, $a$, not yet divided by that sum:
#
# $$\ell = \sum_{j\,\text{so far}} e^{s_j - m}, \qquad a = \sum_{j\,\text{so far}} e^{s_j - m}\,v_j$$
#
# A new block may bring a larger maximum $m'$. Then all terms so far used $m$ where they should have used $m'$. One
# factor corrects all of them, because $e^{s_j - m'} = e^{s_j - m}\; e^{m - m'}$. So, with $j$ running over the new
# block,
#
# $$m' = \max(m, \max_j s_j), \qquad \ell' = \ell\,e^{m - m'} + \sum_j e^{s_j - m'}, \qquad
# a' = a\,e^{m - m'} + \sum_j e^{s_j - m'} v_j$$
#
# We start from $m = -\infty$, $\ell = 0$, $a = 0$. After the last block the output is $a / \ell$. The row's *lse*,
# the log of the sum of all $e^{s_j}$ (notebook 07), is $m + \log \ell$.
#
# > **Predict first.** One query meets the same six scores in blocks of two. What is $m$ after each block? In which
# > blocks is the correction factor 1?

# %%
from mha_numpy.tables import Table

v = np.array([8.0, 2.0, 4.0, 6.0, 1.0, 3.0])
m, ell, a = -np.inf, 0.0, 0.0
rows, terms = [], np.full((3, 6), np.nan)
for i in range(3):
    block = slice(2 * i, 2 * i + 2)
    m_old, m = m, max(m, scores[block].max())
    factor, powers = np.exp(m_old - m), np.exp(scores[block] - m)
    ell = ell * factor + powers.sum()
    a = a * factor + powers @ v[block]
    numbers = [f"{number:.3f}" for number in (factor, m, ell, a)]
    rows.append([str(scores[block]), *numbers])
    terms[i, : block.stop] = np.exp(scores[: block.stop] - m)

head = ["scores", "factor", "m", "ell", "a"]
display(Table("After each block", head, rows))
names = [f"after block {i}" for i in range(3)]
labels = {"row_labels": names, "column_labels": columns}
matrices({"terms of the sum ell": terms}, **labels)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The maximum is 2, then 5, and 5 again. The first factor is $e^{-\infty} = 0$, because there was nothing to correct
# yet. The second, $e^{2 - 5}$, moves the first block to the new maximum; you can see its cells shrink. In the third
# block the maximum stays, so the factor is 1.
#
# </details>
#
# Is the result the same as for the whole row at once? We compare the output and the lse:

# %%
print("output:", a / ell, "at once:", whole @ v)
print("lse:   ", m + np.log(ell), "at once:", cache.lse)

# %% [markdown]
# ## Many queries
#
# The same lines work for many queries, if m and ell get a row for each. The function also returns its scores, so that
# we can see how large the arrays become.


# %%
def one_block(q, k, v, state):
    """Take in some keys. State: m, ell (T_q, 1), a (T_q, d_v)."""
    m_old, ell, a = state
    scores = q @ k.T / np.sqrt(q.shape[-1])
    m = np.maximum(m_old, scores.max(axis=-1, keepdims=True))
    factor, powers = np.exp(m_old - m), np.exp(scores - m)
    ell = ell * factor + powers.sum(axis=-1, keepdims=True)
    a = a * factor + powers @ v
    return scores, (m, ell, a)


# %%
rng = np.random.default_rng(0)
q = 2 * rng.normal(size=(5, 8))
k, v = rng.normal(size=(1000, 8)), rng.normal(size=(1000, 3))

state = np.full((5, 1), -np.inf), np.zeros((5, 1)), np.zeros((5, 3))
so_far, shapes = [], set()
for start in range(0, 1000, 50):
    part = slice(start, start + 50)
    scores, state = one_block(q, k[part], v[part], state)
    so_far.append(state[2] / state[1])
    shapes |= {scores.shape, *(array.shape for array in state)}

out, cache = attention_forward(q, k, v)
print("shapes:", sorted(shapes))
print("largest difference:", np.abs(so_far[-1] - out).max())
lines = {f"query {i}": [a[i, 0] for a in so_far] for i in range(5)}
axes = {"x_label": "keys so far", "y_label": "first feature"}
title = "The output so far, a / ell"
line_chart(range(50, 1001, 50), lines, title=title, **axes)

# %% [markdown]
# After each block, the output is attention over the keys so far; after the last block it is complete. No array ever
# had shape (5, 1000).
#
# This is the idea behind FlashAttention (Dao et al. 2022): take blocks that fit into the processor's fast memory, and
# compute scores, softmax and mix while they are there. **Forward does as many operations as before, but makes fewer
# trips to memory.** (With a causal mask, it can skip the blocks that no query sees, nearly half of all.)
#
# ## Backward recomputes each weight
#
# The backward pass needs the weights P, which we never stored. But one number per query, its lse, is enough:
#
# $$P_{ij} = e^{S_{ij} - \mathrm{lse}_i}$$
#
# so any block of weights comes back from the scores S, that is, from q and k.
#
# > **Predict first.** Forward keeps the output and the lse for its backward. How many numbers is that per query, if
# > values are d_v wide? And how many would it be with the weights?

# %%
scores = q @ k[:8].T / np.sqrt(8)  # only the first eight keys
again = np.exp(scores - cache.lse[:, None])
stored = cache.weights[:, :8]
matrices({"recomputed": again, "by attention_forward": stored})

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is d_v + 1 without the weights, and d_v + 1 + T_k with them.
#
# </details>
#
# ## Kernels
#
# The library's `backend="numba"` works like this, in compiled code and with 64 queries and 64 keys at a time. It
# skips blocks that a causal mask or a window hides. `backend="loops"` does the same in plain loops, one number at a
# time. (The next cells need numba. The first one compiles the kernels, which may take half a minute, once for your
# machine.)

# %% tags=["needs-numba"]
import io
from contextlib import redirect_stderr
from importlib.util import find_spec

backends, kept = ("numpy", "loops", "numba"), {}
has_numba = find_spec("numba") is not None
if has_numba:
    q, k, v = rng.normal(size=(3, 1, 8, 512, 64)).astype(np.float32)
    for name in backends:
        with redirect_stderr(io.StringIO()):  # "compiling ..."
            _, cache = attention_forward(q, k, v, backend=name)
        size = cache.heads.nbytes + cache.lse.nbytes
        if name == "numpy":
            size += cache.weights.nbytes
        kept[name] = size / 2**20
    title = "Kept for backward: H = 8, T = 512"
    display(bar_chart(kept, title=title, unit="MiB"))
else:
    print("numba is not installed here: pip install numba")

# %% [markdown]
# With twice as many tokens, the weights need four times the memory, but output and lse only twice. How about time?

# %% tags=["needs-numba"]
from time import perf_counter


def milliseconds(backend):
    start = perf_counter()
    attention_forward(q, k, v, backend=backend)
    return 1000 * (perf_counter() - start)


if has_numba:
    rounds = [[milliseconds(b) for b in backends] for _ in range(7)]
    fastest = np.min(rounds, axis=0)
    bars = dict(zip(backends, fastest, strict=True))
    title = "Forward, H = 8, T = 512, on your machine"
    display(bar_chart(bars, title=title, unit="ms"))

# %% [markdown]
# `numba` computes several numbers at a time and uses all cores, which may not help at all on a busy machine. For
# figures worth quoting, for other libraries and longer texts, see `mha-numpy bench` and docs/performance.md.
#
# ## Exercise: attention in blocks
#
# Write attention for one head, taking `block` keys at a time. Never build an array with T_k columns of scores. The
# check also tries a shorter last block, and scores in the thousands. If all numbers are right, it also measures how
# much memory your code used (the row "memory").
#
# To practise more, try `backward-from-lse` in `mha-numpy exercises`: the way back without stored weights.


# %% tags=["exercise"]
def my_online_attention(q, k, v, block):
    """q (T_q, d_k), k (T_k, d_k), v (T_k, d_v) -> (T_q, d_v):
    softmax(q k^T / sqrt(d_k)) v.

    The last block is shorter where `block` does not divide T_k.
    Nothing is hidden. Large scores must not overflow, whichever
    block they are in.
    """
    ...  # your code


# %% tags=["check"]
check("online-attention", my_online_attention)

# %% tags=["hint"]
# hint("online-attention")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# Now you can explain how the model from the first picture runs: it never stores the large bar.
#
# - Online softmax keeps $m$, $\ell$ and $a$ for each query, and corrects $\ell$ and $a$ by $e^{m - m'}$ when a larger
#   score comes. It is exact. (If a mask hides a whole block at the start, shift by 0 while $m$ is $-\infty$.)
# - The backward pass recomputes each weight as $e^{s - \mathrm{lse}}$, so d_v + 1 numbers per query are enough.
# - Attention in blocks saves memory and trips to memory. It saves operations only where a mask hides whole blocks, and
#   its backward does more: five products instead of four, because it computes the scores again.
#
# **In the code:** `mha_numpy/kernels/loops.py` in plain loops, `tiled_forward.py` in tiles. Derivation,
# and pictures of the blocks: docs/kernels.md.
#
# **Reference:** Milakov and Gimelshein 2018, *Online normalizer calculation for softmax*; Dao et al.
# 2022, *FlashAttention*, section 3.1.
#
# **Next:** [27, bring your own layer](27_bring-your-own-layer.ipynb).
