# %% [markdown]
# # 26 · Attention without its weights
#
# A model reads a long text: 128 thousand tokens, 32 heads of width 128, two bytes a number. Here is
# what one layer would hold for one sequence.

# %%
import numpy as np

from mha_numpy import attention_forward, softmax_forward
from mha_numpy.show.pictures import bar_chart, line_chart, matrices
from mha_numpy.teach.exercises import check, hint

rng = np.random.default_rng(0)

# %%
T, H, d = 128 * 1024, 32, 128
held = {"q, k, v and heads": 4 * H * T * d, "weights": H * T * T}
bar_chart({name: 2 * n / 2**30 for name, n in held.items()}, title="One layer holds", unit="GiB")

# %% [markdown]
# No machine has room for these weights, and yet such models run. They take the keys in blocks, and
# never hold a whole row of weights. The result is the same, not an approximation.
#
# **What you can do afterwards:** you can compute exact attention from a few keys at a time.
#
# ## What stands in the way
#
# Scores can be computed block by block, and the mixing is a sum that can be made block by block.
# Softmax is the difficulty: its maximum and its sum belong to the whole row. Suppose that somebody
# takes the softmax of each block by itself and adds the results.
#
# > **Predict first.** Six scores in three blocks of two. What is the sum of the weights of all six?
# > Does a division by 3 mend it?

# %%
scores = np.array([1.0, 2.0, 5.0, 3.0, 0.0, 4.0])
by_block = softmax_forward(scores.reshape(3, 2))[0].ravel()
whole, cache = softmax_forward(scores)
columns = [f"s = {s:.0f}" for s in scores]
matrices({"each block by itself, / 3": by_block / 3, "softmax": whole}, column_labels=columns)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is 3, 1 for each block, and the division does not mend it: the block of 1 and 2 counts as much as
# the block of 5 and 3.
#
# </details>
#
# ## Online softmax
#
# Milakov and Gimelshein 2018 keep three things for each query: the largest score so far $m$, the sum
# so far $\ell$, and the output so far $a$, not yet divided:
#
# $$\ell = \sum_{j\,\text{so far}} e^{s_j - m}, \qquad a = \sum_{j\,\text{so far}} e^{s_j - m}\,v_j$$
#
# A new block may bring a larger maximum $m'$. All terms so far were made with $m$ and should have been
# made with $m'$. One factor corrects all of them, since $e^{s_j - m'} = e^{s_j - m}\; e^{m - m'}$. So,
# with $j$ over the new block,
#
# $$m' = \max(m, \max_j s_j), \qquad \ell' = \ell\,e^{m - m'} + \sum_j e^{s_j - m'}, \qquad
# a' = a\,e^{m - m'} + \sum_j e^{s_j - m'} v_j$$
#
# It starts from $m = -\infty$, $\ell = 0$, $a = 0$. After the last block the output is $a / \ell$, and
# $m + \log \ell$ is the row's lse (notebook 07).
#
# > **Predict first.** One query, the same six scores, blocks of two. What is $m$ after each block? In
# > which blocks is the correction factor 1?

# %%
from mha_numpy.tables import Table

v = np.array([8.0, 2.0, 4.0, 6.0, 1.0, 3.0])
m, ell, a, rows, terms = -np.inf, 0.0, 0.0, [], np.full((3, 6), np.nan)
for i, block in enumerate((slice(0, 2), slice(2, 4), slice(4, 6))):
    m_old, m = m, max(m, scores[block].max())
    factor, powers = np.exp(m_old - m), np.exp(scores[block] - m)
    ell, a = ell * factor + powers.sum(), a * factor + powers @ v[block]
    terms[i, : block.stop] = np.exp(scores[: block.stop] - m)
    rows.append([str(scores[block]), *(f"{number:.3f}" for number in (factor, m, ell, a))])
display(Table("After each block", ["scores", "factor", "m", "ell", "a"], rows))
labels = {"row_labels": [f"after block {i}" for i in range(3)], "column_labels": columns}
matrices({"terms of the sum ell": terms}, **labels)

# %% [markdown]
# <details><summary>Answer</summary>
#
# 2, 5 and 5. The first factor is $e^{-\infty} = 0$: there was nothing to correct. The second, $e^{2 -
# 5}$, moves the first block to the new maximum: see how its cells shrink. In the third block the
# maximum stays and the factor is 1.
#
# </details>
#
# Is it the same as the whole row at once? Output, and lse:

# %%
print("output:", a / ell, "at once:", whole @ v)
print("lse:   ", m + np.log(ell), "at once:", cache.lse)

# %% [markdown]
# ## Many queries
#
# The same lines serve many queries; m and ell get a row for each. `step` names what is held, so that
# the trace can show it.

# %%
from mha_numpy import trace
from mha_numpy.core import step


def one_block(q, k, v, state):
    """Take in some keys. state: m (T_q, 1), ell (T_q, 1), a (T_q, d_v)."""
    m_old, ell, a = state
    scores = step("scores", q @ k.T / np.sqrt(q.shape[-1]), "T_q block", "scale * q @ k_block.T")
    highest = scores.max(axis=-1, keepdims=True)
    m = step("m", np.maximum(m_old, highest), "T_q 1", "np.maximum(m_old, highest)")
    factor, powers = np.exp(m_old - m), np.exp(scores - m)
    ell = ell * factor + powers.sum(axis=-1, keepdims=True)
    return m, ell, step("a", a * factor + powers @ v, "T_q d_v", "a * factor + powers @ v_block")


# %%
q, k, v = 2 * rng.normal(size=(5, 8)), rng.normal(size=(1000, 8)), rng.normal(size=(1000, 3))
state = np.full((5, 1), -np.inf), np.zeros((5, 1)), np.zeros((5, 3))
so_far = []
with trace() as t:
    for start in range(0, 1000, 50):
        state = one_block(q, k[start : start + 50], v[start : start + 50], state)
        so_far.append(state[2] / state[1])
out, cache = attention_forward(q, k, v)
largest = {step.array.shape for step in t}
print("arrays held:", largest, "; largest difference:", np.abs(so_far[-1] - out).max())
lines = {f"query {i}": np.array([a[i, 0] for a in so_far]) for i in range(5)}
labels = {"x_label": "keys so far", "y_label": "first feature of the output"}
line_chart(range(50, 1001, 50), lines, title="The output so far, a / ell", **labels)

# %% [markdown]
# After each block the output is that of attention to the keys so far; after the last block it is the
# whole. No array was ever (5, 1000).
#
# This is the idea of FlashAttention (Dao et al. 2022): take blocks that fit into the processor's fast
# memory, and do scores, softmax and mix on them while they are there. **The operations are not fewer;
# the trips to memory are.**
#
# ## Backward: each weight is made anew
#
# Backward needs the weights. They were never held, but lse was, and
#
# $$P_{ij} = e^{S_{ij} - \mathrm{lse}_i}$$
#
# gives any block of them again from q and k.
#
# > **Predict first.** A forward keeps heads and lse for its backward: how many numbers for each query,
# > if values are d_v wide? And how many does it keep with the weights?

# %%
again = np.exp(q @ k[:8].T / np.sqrt(8) - cache.lse[:, None])  # of the first eight keys alone
matrices({"made anew": again, "held by attention_forward": cache.weights[:, :8]})

# %% [markdown]
# <details><summary>Answer</summary>
#
# d_v + 1 without the weights; d_v + 1 + T_k with them.
#
# </details>
#
# ## Kernels
#
# The library's `backend="numba"` does this, compiled, for 64 queries and 64 keys at a time. Blocks that
# a causal mask or a window hides are skipped. `backend="loops"` is the same in plain
# loops, one number at a time. (The next cells need numba. The first one compiles the kernels, which may
# take half a minute, once for your machine.)

# %% tags=["needs-numba"]
import io
from contextlib import redirect_stderr
from importlib.util import find_spec

has_numba = find_spec("numba") is not None
if has_numba:
    q, k, v = rng.normal(size=(3, 1, 8, 512, 64)).astype(np.float32)
    backends = ("numpy", "loops", "numba")
    with redirect_stderr(io.StringIO()):  # a notice that it takes a while
        caches = {name: attention_forward(q, k, v, backend=name)[1] for name in backends}
    kept = {name: cache.heads.nbytes + cache.lse.nbytes for name, cache in caches.items()}
    kept["numpy"] += caches["numpy"].weights.nbytes
    mebibytes = {name: size / 2**20 for name, size in kept.items()}
    display(bar_chart(mebibytes, title="Kept for backward: H = 8, T = 512", unit="MiB"))
else:
    print("numba is not installed here: pip install numba")

# %% [markdown]
# With twice the tokens the weights grow fourfold, heads and lse twofold. Now the time:

# %% tags=["needs-numba"]
from time import perf_counter


def seconds(backend):
    start = perf_counter()
    attention_forward(q, k, v, backend=backend)
    return perf_counter() - start


if has_numba:
    rounds = [{name: 1000 * seconds(name) for name in backends} for _ in range(7)]  # in turns
    fastest = {name: min(taken[name] for taken in rounds) for name in backends}
    display(bar_chart(fastest, title="Forward, H = 8, T = 512, on your machine", unit="ms"))

# %% [markdown]
# `numba` fills wide registers and uses all cores, which on a busy machine may be no help at all. For
# figures worth quoting, other libraries and longer texts: `mha-numpy bench` and docs/performance.md.
#
# ## Exercise: attention in blocks
#
# Write attention for one head, taking `block` keys at a time. Never make an array with T_k columns of
# scores. Among the check's inputs are a last block that is shorter, and scores in the thousands; where
# all numbers are right, it measures how much memory you held (the row "memory").
#
# More of this kind in `mha-numpy exercises`: `backward-from-lse`, the way back without stored weights.


# %% tags=["exercise"]
def my_online_attention(q, k, v, block):
    """q (T_q, d_k), k (T_k, d_k), v (T_k, d_v) -> (T_q, d_v): softmax(q k^T / sqrt(d_k)) v.

    The last block is shorter where `block` does not divide T_k. Nothing is hidden. Large scores
    must not overflow, in whichever block they stand.
    """
    ...  # your code


# %% tags=["check"]
check("online-attention", my_online_attention)

# %% tags=["hint"]
# hint("online-attention")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now explain how the model of the first picture runs: the large bar is never there.
#
# - Online softmax carries $m$, $\ell$, $a$ and corrects them by $e^{m - m'}$. It is exact, in blocks,
#   without the weights.
# - Backward makes each weight anew as $e^{s - \mathrm{lse}}$: d_v + 1 numbers a query are enough.
# - The operations are not fewer; the trips to memory are.
#
# **In the code:** `mha_numpy/kernels/loops.py` in plain loops, `tiled_forward.py` in tiles. Derivation,
# and pictures of the blocks: docs/kernels.md.
#
# **Reference:** Milakov and Gimelshein 2018, *Online normalizer calculation for softmax*; Dao et al.
# 2022, *FlashAttention*, section 3.1.
#
# **Next:** [27, bring your own layer](27_bring-your-own-layer.ipynb).
