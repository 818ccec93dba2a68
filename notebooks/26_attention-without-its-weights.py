# %% [markdown]
# # 26 · Attention without its weights
#
# A model reads a long text: 128 thousand tokens, 32 heads of width 128, 2 bytes per number. Here is what one layer
# would have to store for one sequence.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import attention_forward, softmax_forward
from mha_numpy.show.pictures import bar_chart, line_chart, matrices
from mha_numpy.teach.exercises import check, hint

# %%
rng = np.random.default_rng(0)

# %%
T, H, d = 128 * 1024, 32, 128
held = {"q, k, v and heads": 4 * H * T * d, "weights": H * T * T}
bar_chart(
    {name: 2 * n / 2**30 for name, n in held.items()},
    title="One layer stores",
    unit="GiB",
)

# %% [markdown]
# No machine has room for these weights, and yet such models run. They take the keys in blocks and never store a whole
# row of weights. And the result isn't an approximation; it is exactly the same.
#
# **What you can do afterwards:** you can compute exact attention from a few keys at a time.
#
# ## Softmax needs the whole row
#
# You can compute scores block by block, and you can add up the mix block by block. Softmax is the difficult part,
# because its maximum and its sum belong to the whole row. Suppose you take the softmax of each block separately and
# add the results.
#
# > **Predict first.** There are six scores in three blocks of two. What do all six weights add up to? Does dividing by
# > 3 fix it?

# %%
scores = np.array([1.0, 2.0, 5.0, 3.0, 0.0, 4.0])
by_block = softmax_forward(scores.reshape(3, 2))[0].ravel()
whole, cache = softmax_forward(scores)
columns = [f"s = {s:.0f}" for s in scores]
matrices(
    {"each block by itself, / 3": by_block / 3, "softmax": whole},
    column_labels=columns,
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# They add up to 3, 1 for each block. Dividing doesn't fix it, because the block with scores 1 and 2 still counts as
# much as the block with 5 and 3.
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
# A new block may bring a larger maximum $m'$. All terms so far used $m$ and should have used $m'$. One factor corrects
# all of them, since $e^{s_j - m'} = e^{s_j - m}\; e^{m - m'}$. So, with $j$ running over the new block,
#
# $$m' = \max(m, \max_j s_j), \qquad \ell' = \ell\,e^{m - m'} + \sum_j e^{s_j - m'}, \qquad
# a' = a\,e^{m - m'} + \sum_j e^{s_j - m'} v_j$$
#
# It starts from $m = -\infty$, $\ell = 0$, $a = 0$. After the last block the output is $a / \ell$, and
# $m + \log \ell$ is the row's lse (notebook 07).
#
# > **Predict first.** One query meets the same six scores in blocks of two. What is $m$ after each block? In which
# > blocks is the correction factor 1?

# %%
from mha_numpy.tables import Table

v = np.array([8.0, 2.0, 4.0, 6.0, 1.0, 3.0])
m = -np.inf
ell = 0.0
a = 0.0
rows = []
terms = np.full((3, 6), np.nan)
for i, block in enumerate((slice(0, 2), slice(2, 4), slice(4, 6))):
    m_old, m = m, max(m, scores[block].max())
    factor, powers = np.exp(m_old - m), np.exp(scores[block] - m)
    ell, a = (
        ell * factor + powers.sum(),
        a * factor + powers @ v[block],
    )
    terms[i, : block.stop] = np.exp(scores[: block.stop] - m)
    rows.append(
        [
            str(scores[block]),
            *(f"{number:.3f}" for number in (factor, m, ell, a)),
        ]
    )
display(
    Table(
        "After each block",
        ["scores", "factor", "m", "ell", "a"],
        rows,
    )
)
labels = {
    "row_labels": [f"after block {i}" for i in range(3)],
    "column_labels": columns,
}
matrices({"terms of the sum ell": terms}, **labels)

# %% [markdown]
# <details><summary>Answer</summary>
#
# 2, 5 and 5. The first factor is $e^{-\infty} = 0$, because there was nothing to correct yet. The second, $e^{2 - 5}$,
# moves the first block to the new maximum; you can see its cells shrink. In the third block the maximum stays, so the
# factor is 1.
#
# </details>
#
# Is the result the same as for the whole row at once? Compare the output and the lse:

# %%
print("output:", a / ell, "at once:", whole @ v)
print("lse:   ", m + np.log(ell), "at once:", cache.lse)

# %% [markdown]
# ## Many queries
#
# The same lines work for many queries; m and ell get a row for each. `step` gives the arrays that we store a name, so
# that the trace can show them.

# %%
from mha_numpy import trace
from mha_numpy.core import step


def one_block(q, k, v, state):
    """Take in some keys. State: m, ell (T_q, 1), a (T_q, d_v)."""
    m_old, ell, a = state
    scores = step(
        "scores",
        q @ k.T / np.sqrt(q.shape[-1]),
        "T_q block",
        "scale * q @ k_block.T",
    )
    highest = scores.max(axis=-1, keepdims=True)
    m = step(
        "m",
        np.maximum(m_old, highest),
        "T_q 1",
        "np.maximum(m_old, highest)",
    )
    factor, powers = np.exp(m_old - m), np.exp(scores - m)
    ell = ell * factor + powers.sum(axis=-1, keepdims=True)
    return (
        m,
        ell,
        step(
            "a",
            a * factor + powers @ v,
            "T_q d_v",
            "a * factor + powers @ v_block",
        ),
    )


# %%
q = 2 * rng.normal(size=(5, 8))
k = rng.normal(size=(1000, 8))
v = rng.normal(size=(1000, 3))
state = np.full((5, 1), -np.inf), np.zeros((5, 1)), np.zeros((5, 3))
so_far = []
with trace() as t:
    for start in range(0, 1000, 50):
        state = one_block(
            q, k[start : start + 50], v[start : start + 50], state
        )
        so_far.append(state[2] / state[1])
out, cache = attention_forward(q, k, v)
largest = {step.array.shape for step in t}
print(
    "shapes stored:",
    largest,
    "; largest difference:",
    np.abs(so_far[-1] - out).max(),
)
lines = {
    f"query {i}": np.array([a[i, 0] for a in so_far])
    for i in range(5)
}
labels = {
    "x_label": "keys so far",
    "y_label": "first feature of the output",
}
line_chart(
    range(50, 1001, 50),
    lines,
    title="The output so far, a / ell",
    **labels,
)

# %% [markdown]
# After each block, the output is attention over the keys so far; after the last block it is complete. No array ever
# had shape (5, 1000).
#
# This is the idea behind FlashAttention (Dao et al. 2022): take blocks that fit into the processor's fast memory, and
# do scores, softmax and mix while they are there. **There are not fewer operations, but fewer trips to memory.**
#
# ## Backward recomputes each weight
#
# Backward needs the weights. We never stored them, but we did store lse, and
#
# $$P_{ij} = e^{S_{ij} - \mathrm{lse}_i}$$
#
# gives back any block of them from q and k.
#
# > **Predict first.** A forward keeps heads and lse for its backward. How many numbers is that per query, if values
# > are d_v wide? And how many would it be with the weights?

# %%
# only the first eight keys
again = np.exp(q @ k[:8].T / np.sqrt(8) - cache.lse[:, None])
matrices(
    {
        "recomputed": again,
        "stored by attention_forward": cache.weights[:, :8],
    }
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# d_v + 1 without the weights; d_v + 1 + T_k with them.
#
# </details>
#
# ## Kernels
#
# The library's `backend="numba"` does this, compiled, for 64 queries and 64 keys at a time. It skips blocks that a
# causal mask or a window hides. `backend="loops"` is the same in plain loops, one number at a time. (The next cells
# need numba. The first one compiles the kernels, which may take half a minute, once for your machine.)

# %% tags=["needs-numba"]
import io
from contextlib import redirect_stderr
from importlib.util import find_spec

has_numba = find_spec("numba") is not None
if has_numba:
    q, k, v = rng.normal(size=(3, 1, 8, 512, 64)).astype(np.float32)
    backends = ("numpy", "loops", "numba")
    # a notice that it takes a while
    with redirect_stderr(io.StringIO()):
        caches = {
            name: attention_forward(q, k, v, backend=name)[1]
            for name in backends
        }
    kept = {
        name: cache.heads.nbytes + cache.lse.nbytes
        for name, cache in caches.items()
    }
    kept["numpy"] += caches["numpy"].weights.nbytes
    mebibytes = {name: size / 2**20 for name, size in kept.items()}
    display(
        bar_chart(
            mebibytes,
            title="Kept for backward: H = 8, T = 512",
            unit="MiB",
        )
    )
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
    # in turns
    rounds = [
        {name: 1000 * seconds(name) for name in backends}
        for _ in range(7)
    ]
    fastest = {
        name: min(taken[name] for taken in rounds)
        for name in backends
    }
    display(
        bar_chart(
            fastest,
            title="Forward, H = 8, T = 512, on your machine",
            unit="ms",
        )
    )

# %% [markdown]
# `numba` fills wide registers and uses all cores, which may not help at all on a busy machine. For figures worth
# quoting, other libraries and longer texts, see `mha-numpy bench` and docs/performance.md.
#
# ## Exercise: attention in blocks
#
# Write attention for one head, taking `block` keys at a time. Never build an array with T_k columns of scores. The
# check also tries a shorter last block, and scores in the thousands. If all numbers are right, it measures how much
# memory you used (the row "memory").
#
# To practise more, try `backward-from-lse` in `mha-numpy exercises`, the way back without stored weights.


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
# You can now explain how the model of the first picture runs: it never stores the large bar.
#
# - Online softmax carries $m$, $\ell$, $a$ and corrects them by $e^{m - m'}$. It is exact, in blocks,
#   without the weights.
# - Backward recomputes each weight as $e^{s - \mathrm{lse}}$, so d_v + 1 numbers per query are enough.
# - It saves trips to memory, not operations.
#
# **In the code:** `mha_numpy/kernels/loops.py` in plain loops, `tiled_forward.py` in tiles. Derivation,
# and pictures of the blocks: docs/kernels.md.
#
# **Reference:** Milakov and Gimelshein 2018, *Online normalizer calculation for softmax*; Dao et al.
# 2022, *FlashAttention*, section 3.1.
#
# **Next:** [27, bring your own layer](27_bring-your-own-layer.ipynb).
