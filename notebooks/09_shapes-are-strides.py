# %% [markdown]
# # 09 · Shapes are strides
#
# A model computes the queries and keys of all its heads in one product, and then splits them into heads. Below, we do
# this in two ways for a **trained** model. Both ways give the same shape, (B, H, T, d) for sequences, heads, tokens and
# the width of a head, from the same numbers, and neither raises an error. We watch head 0, which has learned to look at
# the previous token.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    attention_forward,
    gradcheck,
    merge_heads,
    split_heads,
    trace,
)
from mha_numpy.models.train import load_trained
from mha_numpy.show.pictures import matrices, origin_film
from mha_numpy.teach.exercises import check, hint

# %%
model = load_trained("induction").model
first = model.attentions[0]
# (B, T, D) = (1, 12, 64)
x = model.positions(model.embedding(np.arange(12)[None]))
q, k = x @ first.params["w_q"], x @ first.params["w_k"]


def reshape_then_transpose(a):
    return a.reshape(1, 12, 4, 16).transpose(0, 2, 1, 3)


def only_reshape(a):
    return a.reshape(1, 4, 12, 16)


panels = {}
for split in (reshape_then_transpose, only_reshape):
    qs, ks = split(q), split(k)
    # any values will do, because we only want the weights
    _, cache = attention_forward(qs, ks, ks, is_causal=True)
    panels[split.__name__] = cache.weights[0, 0]
matrices(panels, title="Head 0: row = query, column = key")

# %% [markdown]
# In the first panel, the head does its job: each row looks one place back. In the second, the pattern is gone.
#
# **By the end you can** split tokens into heads and merge them again, say when NumPy copies, and catch
# a wrong split without a picture.
#
# ## A row of numbers, and a rule for reading it
#
# Memory is one long row. The best array to learn on is a *ramp*, the numbers 0, 1, 2, ..., because each of them says
# where it lies in this row. Below are B sequences of T tokens. Each token is a vector of width D, which we'll split
# into H heads of width d = D / H.
#
# The shape says how far each index can go. The *strides* say how many bytes we move in memory when an index grows by
# one. So the number at index (b, t, c) is at
#
# $$\text{address}(b, t, c) = b\,s_0 + t\,s_1 + c\,s_2$$
#
# > **Predict first.** A float64 takes 8 bytes. What are the three strides of an array of shape (1, 4, 6)?
#
# <details><summary>Answer</summary>
#
# They are 192, 48 and 8. One step along the last axis is one number, one step along the tokens is a whole row of 6
# numbers, and one step along the sequences is 4 such rows.
#
# </details>

# %%
B, T, H, d = 1, 4, 2, 3
D = H * d
x = np.arange(B * T * D, dtype=np.float64).reshape(B, T, D)
b, t, c = 0, 2, 5
address = b * x.strides[0] + t * x.strides[1] + c * x.strides[2]
print("strides:", x.strides)
print(f"byte {address}:", x.ravel()[address // 8])
print("x[0, 2, 5]:", x[b, t, c])
panels = {"memory": x.ravel(), "x[0]: T down, D across": x[0]}
matrices(panels, title="One row, and how we read it")

# %% [markdown]
# ## Two moves that move nothing
#
# `reshape` splits an axis in two, or joins two axes; `transpose` changes the order of the axes. Both usually leave the
# numbers where they are, and only note a new shape and new strides. The result is a *view* of the same memory.
#
# While `trace` watches, `step` gives an array a name. The table shows what `trace` **measured**: shapes, strides, and
# whether an array shares its memory with an earlier one.
#
# > **Predict first.** `x.reshape(B, T, H, d)` splits each row of 6 into 2 pieces of 3. What are its strides? And what
# > are they once the axes T and H have changed places?
#
# <details><summary>Answer</summary>
#
# They are (192, 48, 24, 8), and then (192, 24, 48, 8). All that `transpose` did was swap two strides. If you change a
# number in the view, it changes in `x` too.
#
# </details>

# %%
from mha_numpy.core import step

with trace() as moves:
    step("x", x, "B T H*d")
    by_token = x.reshape(B, T, H, d)
    step("by_token", by_token, "B T H d", "x.reshape(B, T, H, d)")
    heads = by_token.transpose(0, 2, 1, 3)
    how = "by_token.transpose(0, 2, 1, 3)"
    step("heads", heads, "B H T d", how)
moves

# %% [markdown]
# ## When NumPy has to copy
#
# On the way back, the axes H and T change places again, and H and d are joined. But attention has *computed* new heads
# in between, and in memory these lie one head after the other.
#
# > **Predict first.** Below, `heads` is a fresh array like that. On the way from (B, H, T, d) to (B, T, H\*d), which of
# > the two moves has to copy: transpose or reshape?
#
# <details><summary>Answer</summary>
#
# `reshape` has to copy. The pieces of a token lie apart. From the end of head 0's piece to the start of head 1's there
# is a jump, and one axis with one stride can't describe it. PyTorch's `view` raises an error here; its `reshape`
# copies, as NumPy's does.
#
# </details>

# %%
with trace() as back:
    fresh = step("heads", heads.copy(), "B H T d")
    turned = fresh.transpose(0, 2, 1, 3)
    how = "heads.transpose(0, 2, 1, 3)"
    step("by_token", turned, "B T H d", how)
    merged = turned.reshape(B, T, D)
    how = "by_token.reshape(B, T, H * d)"
    step("merged", merged, "B T H*d", how)
back

# %% [markdown]
# ## Splitting into heads
#
# $$[B, T, H\,d] \;\to\; [B, T, H, d] \;\to\; [B, H, T, d]$$
#
# Each head gets *its columns of every token*. In the picture, each number has the colour of the head that its column of
# `x` belongs to, and keeps it wherever it goes.

# %%
by_token = x.reshape(B, T, H, d)
film = {
    "x": x,
    "x.reshape(B, T, H, d)": by_token,
    ".transpose(0, 2, 1, 3)": by_token.transpose(0, 2, 1, 3),
}
origin_film(film, H)

# %% [markdown]
# In the last panel, block 0 has one colour and every token. This is what attention needs, because **a head compares all
# tokens, in its own columns.**
#
# ## The mistake with the right shape
#
# Why not go to (B, H, T, d) at once? The shape fits, there is no error, and you can even train a model like that.
#
# > **Predict first.** `x.reshape(B, H, T, d)` deals out the row of memory in order: the first T · d = 12 numbers go to
# > head 0. Which tokens are these, and which columns?
#
# <details><summary>Answer</summary>
#
# They are tokens 0 and 1 with *all* their columns, chopped in half and stacked as if they were four tokens. Head 0
# never sees tokens 2 and 3, so no head can relate token 0 to token 3.
#
# </details>

# %%
wrong = x.reshape(B, H, T, d)
origin_film({"x": x, "x.reshape(B, H, T, d)": wrong}, H)

# %% [markdown]
# The colours show the mistake because we drew a ramp. Here's a test that needs no ramp: change one token, and see which
# rows of each head react.
#
# > **Predict first.** We change only token 3. Which rows of the two heads react, with the right split and with the
# > wrong one?
#
# <details><summary>Answer</summary>
#
# With the right split, row 3 of both heads reacts. With the wrong one, rows 2 and 3 of head 1 react.
#
# </details>

# %%
changed = x.copy()
changed[0, 3] += 100  # only token 3
right = split_heads(changed, H) != split_heads(x, H)
mixed = changed.reshape(B, H, T, d) != wrong
# a row reacts if any of its numbers does: (H, T)
panels = {"right": right[0].any(-1), "wrong": mixed[0].any(-1)}
labels = {
    "row_labels": ["head 0", "head 1"],
    "column_labels": [f"row {t}" for t in range(T)],
    "meaning": ("reacts", "stays"),
}
matrices(panels, **labels, title="What reacts to token 3")

# %% [markdown]
# You make the same mistake on the way back if you write `heads.reshape(B, T, H * d)` and forget the transpose:

# %%
heads = split_heads(x, H)
film = {
    "x": x,
    "split_heads(x, H)": heads,
    "merge_heads(heads)": merge_heads(heads),
    "heads.reshape(B, T, H * d)": heads.reshape(B, T, D),
}
origin_film(film, H)

# %% [markdown]
# ## Backward takes each number back
#
# Splitting only moves numbers, and each number of `x` appears once in `heads`. Its gradient moves back to where it came
# from, so the backward pass of `split_heads` is `merge_heads`, and the other way round. `gradcheck` tests a backward
# with nothing but forward (notebook 13 explains how; here "ok" is enough).


# %%
def split_backward(d_heads, x):
    return (merge_heads(d_heads),)


gradcheck(lambda x: split_heads(x, 2), split_backward, {"x": x})

# %% [markdown]
# ## Why not split `x` instead?
#
# We could also split `x` before the projection, so that each head projects its own part of the features. Then no
# feature could reach another head. Everything in `w_q` outside the diagonal blocks would be wasted: half of it with two
# heads, three quarters with four.
#
# Split after the projection, each head reads **all** D features, and `w_q` decides which d mixtures of them it works
# with: its *subspace*. Does the trained model need this freedom? In one layer at a time, we let each of its four heads
# read only its own quarter of the features. As a control, we keep a random quarter of the same numbers.

# %%
from mha_numpy.models.train import share_right

task = load_trained("induction").task
rng = np.random.default_rng(1)
(ids,), targets = task.draw_batch(rng, 256)
kept = {  # D = 64, H = 4
    "own quarter": lambda _: np.kron(np.eye(4), np.ones((16, 16))),
    "random quarter": lambda w: rng.random(w.shape) < 1 / 4,
    "largest quarter": lambda w: abs(w) > np.quantile(abs(w), 0.75),
}
print(f"as trained: {share_right(model(ids), targets):.0%} right")
for layer in model.attentions:
    learned = dict(layer.params)
    for name, part in kept.items():
        for w in ("w_q", "w_k", "w_v"):
            layer.params[w] = learned[w] * part(learned[w])
        right = share_right(model(ids), targets)
        print(f"{name}: {right:.0%} right")
    layer.params |= learned

# %% [markdown]
# Accuracy falls from 99% to 25% with the first layer changed, and to 10% with the second. But it falls as far in the
# control: take three quarters of its numbers away at random, and the model breaks as well. (The largest quarter is
# enough.) So this says nothing about the split. What it costs, you only see if you train a model that way from the
# start. We did, with two seeds: after the usual 500 steps, 98.1% and 98.7% are right. On this task, reading all
# features is worth about one point.
#
# ## Sizes that you will meet
#
# Here are the shapes in a layer at two usual sizes. Inside, `MultiHeadAttention` makes the moves that we made above.

# %%
from mha_numpy import MultiHeadAttention
from mha_numpy.tables import Table


def shapes(D, H, B, T):
    """The shapes of the main arrays of a layer."""
    with trace() as steps:
        MultiHeadAttention(D, H, rng=0)(np.zeros((B, T, D)))
    names = "q_projected q_by_token q weights heads".split()
    names += "heads_by_token merged out".split()
    return {name: str(steps[name].shape) for name in names}


small = shapes(D=512, H=8, B=1, T=10)
large = shapes(D=768, H=12, B=4, T=128)
rows = [[name, small[name], large[name]] for name in small]
Table("", ["", "D=512, H=8", "D=768, H=12"], rows)

# %% [markdown]
# A head is 64 wide both times. As long as a head is D / H wide, more heads need no more params and no larger products;
# only the weights grow with H. Notebook 25 measures that. (For the second size, PyTorch's `nn.MultiheadAttention`
# returns weights of shape (4, 128, 128), because by default it returns their mean over the heads.)
#
# ## Exercise: split and merge
#
# Write both functions, using only `reshape` and `transpose` (or `swapaxes`), and run the cell with `check`. The check
# asks one question after the other. Does your function run, and are type, dtype and shape right? Is anything NaN, are
# the inputs unchanged, and does a second call return the same? If one token changes, do the right rows react? And are
# the numbers right? If your numbers are those of a known mistake, the check names it and draws what differs. Remove the
# `#` before `hint` for one of four hints.
#
# To practise more, look in `mha-numpy exercises`: `museum-split` is a bug that shipped.


# %% tags=["exercise"]
def my_split_heads(x, num_heads):
    """(B, T, H*d) -> (B, H, T, d): head h has columns h*d to (h +
    1)*d - 1 of every token.
    """
    ...  # your code


def my_merge_heads(heads):
    """(B, H, T, d) -> (B, T, H*d): the heads of every token side by
    side, head 0 first.
    """
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
# You can now say what broke the trained head: the wrong split dealt out its tokens in the order of memory. To split,
# reshape to (B, T, H, d) and *then* transpose. To merge, transpose back and then reshape, which copies. A shape with
# strides is a rule for reading one row of memory. A right shape proves nothing about the content, so change one token
# and see what reacts.
#
# **In the code:** `split_heads`, `merge_heads` in `mha_numpy/core/shapes.py`; `split_heads??` in a cell shows a
# function's source.
#
# **Reference:** the NumPy reference, *The N-dimensional array*, on strides; Vaswani et al. 2017, *Attention Is All You
# Need*, section 3.2.2, for the heads.
#
# **Next:** [10, cutting heads](10_cutting-heads.ipynb).
