# %% [markdown]
# # 09 · Shapes are strides
#
# Multi-head attention is a handful of matrix products and a softmax. What makes it hard to read is the
# shuffling in between: `reshape`, `transpose`, `reshape` again. This notebook is about that shuffling
# alone. Everything later stands on it.
#
# **You will learn**
#
# - what NumPy keeps besides the numbers: a shape and *strides*;
# - why `reshape` and `transpose` are usually free, and when one of them copies;
# - how a token's vector is cut into heads, and put together again;
# - why `x.reshape(B, H, T, d)` has the right shape and the wrong content, and how to see it.
#
# Sizes here: B sequences of T tokens, each a vector of width D, cut into H heads of width d = D / H.

# %%
import numpy as np

from mha_numpy import gradcheck, merge_heads, split_heads, trace
from mha_numpy.core import step
from mha_numpy.draw import origin_film
from mha_numpy.exercises import check, hint

# %% [markdown]
# ## A row of numbers, and a rule for reading it
#
# Memory is one long row. A *ramp*, the numbers 0, 1, 2, ..., is the best array to learn on, since each number
# says where it lies in that row.

# %%
B, T, H, d = 1, 4, 2, 3
D = H * d
x = np.arange(B * T * D, dtype=np.float64).reshape(B, T, D)
x

# %% [markdown]
# The shape says how far each index may go. The strides say how many bytes to move in memory when an index grows
# by one:
#
# $$\text{address}(b, t, c) = b\,s_0 + t\,s_1 + c\,s_2$$
#
# > **Predict first.** A float64 takes 8 bytes. What are the three strides of `x`, of shape (1, 4, 6)?

# %%
x.shape, x.strides

# %% [markdown]
# One step along the last axis is one number, 8 bytes. One step along the tokens is a whole row, 6 numbers, 48
# bytes. Here is the rule at work, by hand:

# %%
memory = x.ravel()  # the row itself
b, t, c = 0, 2, 5
address = b * x.strides[0] + t * x.strides[1] + c * x.strides[2]
print(f"byte {address}: {memory[address // 8]}; x[0, 2, 5]: {x[b, t, c]}")

# %% [markdown]
# ## Two moves that move nothing
#
# `reshape` cuts an axis in two, or joins two; `transpose` changes the order of the axes. Both usually leave the
# numbers where they are and only write down another shape and other strides: the result is a *view*.
#
# `step` gives an array a name while `trace` watches. The table then shows what was **measured**: shape, strides,
# and whether an array shares its memory with an earlier one.
#
# > **Predict first.** `x.reshape(B, T, H, d)` cuts each row of 6 into 2 pieces of 3. Its last stride
# > stays 8. What are the strides of the other axes? And after the axes T and H change places?

# %%
with trace() as moves:
    step("x", x, "B T H*d")
    by_token = step("by_token", x.reshape(B, T, H, d), "B T H d", "x.reshape(B, T, H, d)")
    step("heads", by_token.transpose(0, 2, 1, 3), "B H T d", "by_token.transpose(0, 2, 1, 3)")
moves

# %% [markdown]
# `transpose` exchanged two strides, 48 and 24, and that is all it did. No number moved: change one in the view
# and it changes in `x`.

# %%
heads = moves["heads"]
np.shares_memory(heads, x), heads.flags.c_contiguous

# %% [markdown]
# ## When a copy cannot be avoided
#
# On the way back the axes return to their places, and H and d are joined to one axis. If the heads were
# *computed* (as attention does), they lie in memory head after head.
#
# > **Predict first.** `heads` below is a fresh array. To go from (B, H, T, d) to (B, T, H\*d): which of the two
# > moves, transpose or reshape, has to copy? Why can strides not do it?

# %%
with trace() as back:
    fresh = step("heads", heads.copy(), "B H T d")
    turned = step("by_token", fresh.transpose(0, 2, 1, 3), "B T H d", "heads.transpose(0, 2, 1, 3)")
    step("merged", turned.reshape(B, T, D), "B T H*d", "by_token.reshape(B, T, H * d)")
back

# %% [markdown]
# A token's pieces lie apart: from the end of head 0's piece to the start of head 1's is a jump, but an axis has
# one stride only. So `reshape` gathers the numbers into new memory. Other libraries refuse instead: PyTorch's `view`
# raises an error here and makes you write `.contiguous()` first.
#
# ## Splitting into heads
#
# $$[B, T, H\,d] \;\to\; [B, T, H, d] \;\to\; [B, H, T, d]$$
#
# Each head gets *its columns of every token*. The picture colours each number by the head that its column
# belongs to, in `x`; wherever the number goes, it takes its colour along.

# %%
right = {
    "x": x,
    "x.reshape(B, T, H, d)": x.reshape(B, T, H, d),
    ".transpose(0, 2, 1, 3)": x.reshape(B, T, H, d).transpose(0, 2, 1, 3),
}
origin_film(right, H)

# %% [markdown]
# Read the last panel: block 0 is one colour, and has every token. That is what attention needs: **a head compares
# all tokens, in its own columns.**
#
# ## The mistake with the right shape
#
# Why not go to (B, H, T, d) at once? The shape fits, nothing complains, and a model even trains.
#
# > **Predict first.** `x.reshape(B, H, T, d)` deals out the row of memory in order: the first T \* d = 12 numbers
# > go to head 0. Which tokens are these? Which columns?

# %%
wrong = x.reshape(B, H, T, d)
origin_film({"x": x, "x.reshape(B, H, T, d)": wrong}, H)

# %% [markdown]
# Head 0 has got tokens 0 and 1 with *all* their columns, cut in half and stacked as if they were four tokens. Head 0
# never sees tokens 2 and 3, so no head can relate token 0 to token 3.
#
# The colours show it because we drew a ramp. In a model nobody draws, so here is a test that needs no picture:
# change one token, and see which rows of each head react.

# %%
changed = x.copy()
changed[0, 3] += 100  # token 3 alone
reacts_right = split_heads(changed, H) != split_heads(x, H)
reacts_wrong = changed.reshape(B, H, T, d) != wrong
reacts_right.any(axis=-1)[0], reacts_wrong.any(axis=-1)[0]  # (H, T): which rows of which head

# %% [markdown]
# Split rightly, token 3 moves row 3 of both heads. Split wrongly, it moves rows 2 and 3 of head 1.
#
# The mistake also happens on the way back, where `heads.reshape(B, T, H * d)` forgets to transpose:

# %%
heads = split_heads(x, H)
origin_film(
    {
        "x": x,
        "split_heads(x, H)": heads,
        "merge_heads(heads)": merge_heads(heads),
        "heads.reshape(B, T, H * d)": heads.reshape(B, T, D),
    },
    H,
)

# %% [markdown]
# ## Backward is the same road in the other direction
#
# Splitting only moves numbers: each number of `x` becomes one number of `heads`. A gradient therefore moves
# back to where its number came from. The backward of `split_heads` is `merge_heads`, and the other way round.
# `gradcheck` compares a backward with forward alone: it differentiates numerically, in two ways (notebook 12
# explains them and the table's columns). For now "ok" is enough.

# %%
gradcheck(lambda x: split_heads(x, 2), lambda d_heads, x: (merge_heads(d_heads),), {"x": x})

# %% [markdown]
# ## Exercise: split and merge
#
# Write both, with `reshape` and `transpose` (or `swapaxes`) only, and run the cell with `check`. It calls your
# functions in a process of their own and asks, one thing after the other: does it run; are type, dtype and shape
# right; is anything NaN; are the inputs still as they were (make new arrays); does a second call give the same; does
# the answer have what every right one has, here the test from above, a change of one token; are the numbers right?
# Where they are those of a known mistake, the check says which mistake, and draws what differs. Take the `#` away
# before `hint`, and it gives you one of four hints; each tells more than the one before. So it is in all notebooks.
#
# `mha-numpy exercises` lists more exercises, and `mha-numpy exercises start my-exercises` writes them into a
# folder. One of this kind is `museum-split`: find a bug that really shipped.


# %% tags=["exercise"]
def my_split_heads(x, num_heads):
    """(B, T, H*d) -> (B, H, T, d): head h has columns h*d to (h + 1)*d - 1 of every token."""
    ...  # your code


def my_merge_heads(heads):
    """(B, H, T, d) -> (B, T, H*d): the heads of every token side by side, head 0 first."""
    ...  # your code


# %% tags=["check"]
check("split-heads", my_split_heads)
check("merge-heads", my_merge_heads)

# %% tags=["hint"]
# hint("split-heads")  # shows the next of four hints
# hint("merge-heads")

# %% [markdown]
# ## Summary
#
# - An array is a row of memory with a shape and strides; `reshape` and `transpose` change those two and leave the
#   numbers alone, where strides can express the result.
# - Split: reshape to (B, T, H, d), *then* transpose to (B, H, T, d). Merge: transpose back, then reshape (this one copies).
# - A right shape proves nothing about the content. Draw a ramp, or change one token and see what reacts.
# - Moves have no numbers of their own: their backward is the opposite move.
#
# **In the code:** `split_heads`, `merge_heads` in `mha_numpy/core/shapes.py`; `split_heads??` in a cell shows a
# function's source. (The pages of `docs/` and the files of `tests/` that the notebooks name are in the project's
# repository.)
#
# **Reference:** the NumPy reference, *The N-dimensional array*, on strides; Vaswani et al. 2017, *Attention Is All You
# Need*, section 3.2.2, for the heads.
#
# **Next:** [01, one head](02_one-head.ipynb).
