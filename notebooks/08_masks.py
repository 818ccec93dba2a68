# %% [markdown]
# # 08 · Masks
#
# Can a model predict random digits? Below, one head learns to say the *next* digit in a sequence of random digits. We
# train it twice, once with the whole sequence in view and once with a causal mask, which hides everything that comes
# later.
#
# **By the end you can** build the mask that a model needs, pass it in the right shape and the right
# way round, and show by experiment what it hides.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    MaskError,
    attention_backward,
    attention_forward,
    causal_mask,
)

# %%
from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.train import AdamW, Batch, fit
from mha_numpy.show.pictures import line_chart, matrices
from mha_numpy.teach.exercises import check, hint

small = {"embed_dim": 32, "num_heads": 1, "num_layers": 1, "rng": 0}
run = {"steps": 150, "max_norm": 1.0, "progress": False, "rng": 0}


def draw_batch(rng):
    digits = rng.integers(10, size=(64, 13))
    # the target of a digit is the next one
    return Batch((digits[:, :-1],), digits[:, 1:])


def train(is_causal):
    model = AttentionOnlyLM(10, 12, **small, is_causal=is_causal)
    optimizer = AdamW(model.astype(np.float32), 1e-2)
    return model, fit(model, draw_batch, optimizer=optimizer, **run)


# a few seconds
rng, curves = np.random.default_rng(0), {}
(read,), target = draw_batch(rng)
print("true:   ", target[0])
for name, is_causal in {"no mask": False, "causal": True}.items():
    model, history = train(is_causal)
    print(f"{name:8}", model(read).argmax(axis=-1)[0])
    curves[name] = np.array(history.losses)
looks = {"x_label": "steps", "y_label": "loss"}
line_chart(np.arange(150), curves, title="Random digits", **looks)

# %% [markdown]
# Without a mask, the trained model gets every digit right except the last, which isn't in its input. It has learned
# nothing about digits. It peeks at the answer, one place to the right. When a model has to write, that place is
# still empty. With the causal mask the loss stays at $\log 10 \approx 2.3$, no better than guessing, as it should be.
#
# ## Before softmax, minus infinity
#
# In a mask, **True = may attend**. Where the mask is False, we replace the score by $-\infty$ before softmax. Since
# $e^{-\infty} = 0$, the hidden key gets weight 0, and the weights of the others sum to 1.
#
# > **Predict first.** A row has the scores (2, 1, 1), and the first key is hidden. What are the weights?
#
# <details><summary>Answer</summary>
#
# They are (0, 0.5, 0.5).
#
# </details>

# %%
from mha_numpy import attention_stages

T, d = 6, 4
words = ["The", "cat", "sat", "on", "the", "mat"]
in_words = {"row_labels": words, "column_labels": words}
q, k, v = rng.normal(size=(3, T, d))
_, cache = attention_forward(q, k, v, mask=causal_mask(T))
stages = attention_stages(cache)
panels = {
    "scores": stages.biased,
    "masked": stages.masked,
    "weights": stages.weights,
}
title = "Random q and k: row = query, column = key"
matrices(panels, **in_words, title=title)

# %% [markdown]
# ## Three masks
#
# - **Causal**: query i sees key j only if $j \le i$, which is the lower triangle.
# - **Window**: query i sees the keys from `i - left` to `i + right`, both included.
# - **Padding**: the sequences of a batch are filled up to one length, and no query may read the filling. This mask
#   hides *keys*, so in cross-attention it describes the source.
#
# We combine them by AND: a cell is visible if every mask lets it through.
#
# > **Predict first.** How many cells does `window=(2, 0)` leave visible on 6 tokens?
#
# <details><summary>Answer</summary>
#
# There are 15, because the rows have 1, 2, 3, 3, 3 and 3.
#
# </details>

# %%
from mha_numpy import combine_masks, padding_mask, window_mask

causal, window = causal_mask(T), window_mask(T, window=(2, 0))
# (B, 1, 1, T_k): sequence 1 has four real tokens
padding = padding_mask(np.array([6, 4]), T)
panels = {
    "causal": causal,
    "window (2, 0)": window,
    "padding of sequence 1": padding[1, 0].repeat(T, axis=0),
    "all three": combine_masks(causal, window, padding)[1, 0],
}
matrices(panels, **in_words)

# %% [markdown]
# ## How a shape meets the scores
#
# Scores are (B, H, T_q, T_k). NumPy lines shapes up at the **right**, and repeats the mask along any axis that has size
# 1 or is missing on the left.
#
# | mask | meaning |
# |---|---|
# | (T_q, T_k) | one pattern for all sequences and heads: causal, window |
# | (B, 1, 1, T_k) | padding: each sequence hides its own keys |
# | (B, 1, T_q, T_k) | causal and padding |
# | (1, H, T_q, T_k) | each head has its own pattern |
#
# > **Predict first.** B=2, H=3, T_q=4, T_k=5. Which of these fail: (4, 5), (2, 5), (2, 1, 1, 5), (2, 4, 5), (4,)?
#
# <details><summary>Answer</summary>
#
# Three. In (2, 5) the 2 meets T_q = 4. A tokenizer returns this shape, and it needs `mask[:, None, None,
# :]`. In (2, 4, 5) the 2 meets H = 3, so it needs `mask[:, None]`. In (4,) the 4 meets T_k = 5.
#
# </details>

# %%
q = rng.normal(size=(2, 3, 4, 7))
k = v = rng.normal(size=(2, 3, 5, 7))


def fits(shape):
    """Ask whether the library accepts a mask of this shape."""
    try:
        attention_forward(q, k, v, mask=np.ones(shape, dtype=bool))
    except MaskError as error:
        print(error)
        return False
    return True


shapes = [(4, 5), (2, 5), (2, 1, 1, 5), (2, 4, 5), (4,)]
{shape: fits(shape) for shape in shapes}

# %% [markdown]
# If you get an error, you're lucky. Far worse is a mask that fits by accident.
#
# > **Predict first.** Now B = T_q = T_k = 4, and a padding mask (B, T_k) fits as it is. What does its row 1 do?
#
# <details><summary>Answer</summary>
#
# It becomes the mask of *query 1 in every sequence*. Sequence 1 should look only at its one real token. Instead, its
# queries 0, 2 and 3 look at padding, and query 1 of every other sequence sees only key 0.
#
# </details>

# %%
x = rng.normal(size=(4, 1, 4, 5))  # B, H, T, d: one head
# (B, T_k), True = a real token
real = np.arange(4) < np.array([4, 1, 3, 2])[:, None]
panels, masks = {}, {"meant": real[:, None, None], "got": real}
for name, mask in masks.items():
    _, cache = attention_forward(x, x, x, mask=mask)
    panels[f"sequence 0, {name}"] = cache.weights[0, 0]
    panels[f"sequence 1, {name}"] = cache.weights[1, 0]
matrices(panels, title="Padding of shape (B, T_k) fits by chance")

# %% [markdown]
# So test with sizes that differ, and write masks with all four axes.
#
# ## Four tricks that are not the same
#
# Code often hides a cell in other ways. Take the scores $s$ = (1, 2, 3, 0.5), and let $m$ = (1, 1, 0, 0) hide the last
# two.
#
# > **Predict first.** Which tricks leave weight on hidden cells? Which give weights that don't sum to 1?
#
# <details><summary>Answer</summary>
#
# *After softmax*, the sum is 0.32, because the hidden keys' share is thrown away. *Scores \* m* leaves 0.08 on each
# hidden key, since 0 is an ordinary score. Adding -10 only divides a power by 22,000, so a hidden score of 20 still
# gets through, as the last row shows. *Plus -1e9* looks right, but is it always?
#
# </details>


# %%
def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


m = np.array([True, True, False, False])
s = np.array([1.0, 2.0, 3.0, 0.5])
loud = np.array([1.0, 2.0, 20.0, 0.5])  # a high hidden score
tricks = {
    "-inf (right)": softmax(np.where(m, s, -np.inf)),
    "after softmax": softmax(s) * m,
    "scores * m": softmax(s * m),
    "plus -1e9": softmax(s - 1e9 * (1 - m)),
    "plus -10": softmax(s - 10 * (1 - m)),
    "-10, s[2]=20": softmax(loud - 10 * (1 - m)),
}
weights = {"weights": list(tricks.values())}
columns = ["key 0", "key 1", "hidden", "hidden"]
matrices(weights, row_labels=list(tricks), column_labels=columns)

# %% [markdown]
# Let's add -1e9 in three float types, to two scores and to all four:

# %%
types = (np.float64, np.float32, np.float16)
panels = {}
for name, mask in {"two hidden": m, "all hidden": 0 * m}.items():
    panels[name] = []
    for kind in types:
        with np.errstate(all="ignore"):  # of overflow
            added = kind(-1e9) * (1 - mask).astype(kind)
            panels[name].append(softmax(s.astype(kind) + added))
print("next to 1e9, float32 moves by", np.spacing(np.float32(1e9)))
matrices(panels, row_labels=[kind.__name__ for kind in types])

# %% [markdown]
# -1e9 fails if a row sees *nothing*. In float64 it shifts all scores equally, so the weights are as if nothing were
# hidden. In float32, whose numbers are 64 apart there, it swallows scores below 32, and the weights come out as 1/4. In
# float16 it becomes $-\infty$, and even a visible cell gets $0 \cdot -\infty$, which is NaN. So **select, don't add or
# multiply**, with `np.where(mask, scores, -np.inf)`.
#
# ## A row that sees nothing
#
# Such rows occur in an empty sequence, or with padding on the left under a causal mask. A naive softmax computes
# $-\infty - (-\infty)$ there, which is NaN.
#
# > **Predict first.** One row of the naive weights is NaN. The loss ignores this row, so its upstream gradient is 0.
# > How much of `d_v` is NaN?
#
# <details><summary>Answer</summary>
#
# All of it. Each row of `d_v` sums over all queries, 0 · NaN is NaN, and NaN plus anything is NaN.
#
# </details>

# %%
q, k = rng.normal(size=(4, d)), rng.normal(size=(5, d))
v, d_out = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
mask = np.ones((4, 5), dtype=bool)
mask[2] = False  # query 2 sees nothing
d_out[2] = 0  # and the loss ignores its output
with np.errstate(invalid="ignore"):
    naive = softmax(np.where(mask, q @ k.T / np.sqrt(d), -np.inf))
_, cache = attention_forward(q, k, v, mask=mask)
panels = {
    "mask": mask,
    "naive weights": naive,
    "naive d_v": naive.T @ d_out,
    "library's weights": cache.weights,
    "library's d_v": attention_backward(d_out, cache).d_v,
}
matrices(panels, title="Random numbers; query 2 sees nothing")

# %% [markdown]
# In the library, such a row has weights 0, output 0 and gradients 0, because the mask decides. `explain_mask` names
# these rows:

# %%
from mha_numpy import explain_mask

is_token = np.array([False, False, True, True])
print(explain_mask(combine_masks(causal_mask(4), is_token)))

# %% [markdown]
# ## What does True mean?
#
# | who | True (or 1) means |
# |---|---|
# | here; PyTorch `scaled_dot_product_attention`; JAX; Keras; ONNX | may attend |
# | PyTorch `nn.MultiheadAttention`: `attn_mask` and `key_padding_mask` | **blocked** |
# | the classic TensorFlow tutorial: `mask * -1e9` added to the scores | **blocked** |
# | a tokenizer's `attention_mask` (integers) | 1 = a real token |
#
# An integer mask could mean either, so the library refuses it. But no error can catch a *bool* mask that is the wrong
# way round. So ask the code: change the key and value of one token, and see which outputs react.
#
# > **Predict first.** We change token j under a causal mask. Which outputs i react? And if the mask is the wrong way
# > round?
#
# <details><summary>Answer</summary>
#
# Under a causal mask, output j and all later ones react, and the others stay the same to the last bit. The wrong way
# round, only outputs *before* j react, because each token sees only the future.
# **What reacts by more than rounding is visible**, unless it is NaN. What stays is hidden, or weighs too little: use
# float64 and small numbers.
#
# </details>


# %%
def reactions(attend, x):
    """(T, T) bools: does output i react to changing token j?"""
    before = attend(x)
    reacts = np.zeros((len(x), len(x)), dtype=bool)
    for j in range(len(x)):
        changed = x.copy()
        changed[j] += 1
        # without tolerance: to the last bit
        reacts[:, j] = (attend(changed) != before).any(axis=-1)
    return reacts


def under(mask):
    def attend(x):
        return attention_forward(queries, x, x, mask=mask)[0]

    return reactions(attend, x)


x, queries = rng.normal(size=(2, T, d))
panels = {
    "causal": under(causal),
    "leaks: one too many": under(causal_mask(T, q_offset=1)),
    "inverted": under(~causal),
}
in_words |= {"meaning": ("reacts", "stays")}
title = "Row = output, column = changed token"
matrices(panels, **in_words, title=title)

# %% [markdown]
# This experiment would have caught the first model's leak.
#
# > **Predict first.** We pass PyTorch's function and PyTorch's layer the same `attn_mask`, a window (1, 0). Which one
# > lets the queries see the window?
#
# <details><summary>Answer</summary>
#
# The function does. With the layer, they see everything except the window.
#
# </details>

# %% tags=["needs-torch"]
from importlib.util import find_spec

if find_spec("torch") is None:
    print("PyTorch is not installed here: pip install torch")
else:
    import torch

    sdpa = torch.nn.functional.scaled_dot_product_attention
    attention = torch.nn.MultiheadAttention
    layer = attention(d, 1, batch_first=True).double()
    near = torch.tensor(window_mask(T, window=(1, 0)))
    asks = torch.tensor(queries)[None]

    def by_function(x):
        x = torch.tensor(x)[None]
        return sdpa(asks, x, x, attn_mask=near)[0].numpy()

    def by_layer(x):
        x = torch.tensor(x)[None]
        out, _ = layer(asks, x, x, attn_mask=near)
        return out[0].detach().numpy()

    panels = {
        "function": reactions(by_function, x),
        "layer": reactions(by_layer, x),
    }
    title = "The same mask, passed to both"
    display(matrices(panels, **in_words, title=title))

# %% [markdown]
# ## Causal with more keys than queries
#
# When a model writes, it keeps the keys of the past (a KV cache), and only the new token asks, so T_q = 1.
#
# > **Predict first.** There is one new query and five keys, with only `is_causal=True`. What does it see?
#
# <details><summary>Answer</summary>
#
# It sees only key 0. The triangle starts at the **top left**, so query 0 is at key 0. This is the default here and in
# PyTorch, Keras and JAX. But the new query belongs at key 4, and `q_offset=4` says so: query i sees key j if `j <= i +
# q_offset`.
#
# </details>

# %%
q, k, v = rng.normal(size=(3, 5, d))
# all five queries at once, then only the newest
whole, _ = attention_forward(q, k, v, is_causal=True)
new = q[4:]
plain, _ = attention_forward(new, k, v, is_causal=True)
right, _ = attention_forward(new, k, v, is_causal=True, q_offset=4)
panels = {
    "two queries, q_offset=0": causal_mask(2, 5),
    "two queries, q_offset=3": causal_mask(2, 5, q_offset=3),
    "output, offset 0": plain,
    "v[0]": v[:1],
    "output, offset 4": right,
    "wanted": whole[4:],
}
matrices(panels, title="At which key is query 0?")

# %% [markdown]
# With a cache, `q_offset` is the number of earlier keys. An array (B,) gives each sequence its own.
#
# ## A mask or a bias?
#
# A **bias** is a float array that we *add* to the scores. With -inf it hides a cell as a mask does, and other numbers
# say "more" or "less". It can be learned, because it has a gradient, which is 0 where a cell is hidden.

# %%
distance = np.arange(5)[:, None] - np.arange(5)
bias = -0.5 * np.abs(distance)
_, cache = attention_forward(q, k, v, bias=bias, is_causal=True)
d_bias = attention_backward(rng.normal(size=(5, d)), cache).d_bias
panels = {"bias": bias, "weights": cache.weights, "d_bias": d_bias}
title = "A bias that fades with distance, under a causal mask"
matrices(panels, shared=False, title=title)

# %% [markdown]
# ## Exercise: one mask for all
#
# Build the mask of a decoder without `causal_mask`, `window_mask` and `padding_mask`. Two `np.arange` and broadcasting
# are enough. Before the check compares cells, it looks for a query that sees the future, or padding.
#
# To practise more, look in `mha-numpy exercises`: `masked-attention` uses such a mask, `museum-cached-mask` and
# `museum-zero-times-inf` are bugs that shipped, and in `break-my-attention` you write tests.


# %% tags=["exercise"]
def my_make_mask(lengths, T_q, T_k, q_offset, left):
    """lengths (B,), four ints -> (B, 1, T_q, T_k) bool, True = may
    attend.

    Query i is at key i + q_offset. It sees that key and at most
    `left` keys before it, but no padding: sequence b has lengths[b]
    real keys (0 to T_k), and padding after them. Some queries may
    see nothing.
    """
    ...  # your code


# %% tags=["check"]
check("masks", my_make_mask)

# %% tags=["hint"]
# hint("masks")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now find the leak of the first model, and prevent it. True = may attend. Masks combine by AND and meet (B, H,
# T_q, T_k) from the right. Hide by *selecting* -inf before softmax. A row that sees nothing has weights, output and
# gradients of 0. A causal mask needs `q_offset`, the number of keys before. If you don't trust a mask, change a token
# and see what reacts: that shows you the mask.
#
# **In the code:** `mha_numpy/core/masks.py`, `mask_report.py`, and `visibility.py`, which selects. More frameworks:
# docs/conventions.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, sections 3.1 and 3.2.3 (the causal mask); Beltagy et
# al. 2020, *Longformer*, section 3.1 (windows).
#
# **Next:** [09, shapes are strides](09_shapes-are-strides.ipynb).
