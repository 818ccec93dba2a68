# %% [markdown]
# # 08 · Masks
#
# A mask says who may attend to whom. It is one array of True and False, and there is much to get wrong: its
# polarity, its shape, the moment it is applied, and what happens to a row that may see nothing. Here each of these
# mistakes is made on purpose, and measured.
#
# **You will learn**
#
# - the three masks of practice, causal, padding and window, and how they combine;
# - how a mask's shape meets the scores, (B, H, T_q, T_k), and when that goes wrong in silence;
# - why a hidden score is $-\infty$ *before* softmax, and four tricks that are not the same;
# - what True means in which library, and how to find out by experiment;
# - where a causal mask begins when T_q and T_k differ;
# - how to show, without tolerance, that no position sees the future.
#
# The rule of this library, as in PyTorch's `scaled_dot_product_attention`, JAX, Keras and ONNX:
# **True = may attend.**

# %%
from importlib.util import find_spec

import numpy as np

from mha_numpy import (
    MaskError,
    attention_backward,
    attention_forward,
    attention_stages,
    causal_mask,
    combine_masks,
    explain_mask,
    padding_mask,
    trace,
    window_mask,
)
from mha_numpy.draw import matrices, weights_by_head
from mha_numpy.exercises import check, hint
from mha_numpy.tables import Table

np.set_printoptions(precision=3, suppress=True)

# %% [markdown]
# ## Before softmax, minus infinity
#
# $$\text{masked}_{ij} = \begin{cases} s_{ij} & \text{where the mask is True} \\ -\infty & \text{where it is False} \end{cases}
# \qquad \text{weights} = \mathrm{softmax}(\text{masked})$$
#
# $e^{-\infty} = 0$, exactly. The hidden key gets the weight 0, and the others share all of the 1.
#
# > **Predict first.** Scores (2, 1, 1), the first key hidden. Which weights?

# %%
row, allowed = np.array([2.0, 1.0, 1.0]), np.array([False, True, True])
masked_row = np.where(allowed, row, -np.inf)
powers = np.exp(masked_row)
masked_row, powers / powers.sum()

# %% [markdown]
# The library does the same; `attention_stages` shows the scores on their way. Where the mask is False, the scores
# are $-\infty$ and the weights are 0, not just small (a small number would be drawn as .00):

# %%
rng = np.random.default_rng(0)
T, d = 6, 4
q, k, v = rng.normal(size=(3, T, d))
future_hidden = np.tril(np.ones((T, T), dtype=bool))
out, cache = attention_forward(q, k, v, mask=future_hidden)
stages = attention_stages(cache)
matrices({"scores": stages.biased, "masked": stages.masked, "weights": stages.weights})

# %% [markdown]
# ## Three masks
#
# **Causal**: query i sees key j only if $j \le i$: itself and the past. That is the lower triangle you just saw.
# A model that is trained to predict the next token must not see it.

# %%
words = ["The", "cat", "sat", "on", "the", "mat"]
causal = causal_mask(T)
print(explain_mask(causal, query_labels=words))
np.array_equal(causal, future_hidden)

# %% [markdown]
# **Window**: query i sees from `i - left` to `i + right`, inclusive; None is unbounded. Causal is the window (None,
# 0).
#
# > **Predict first.** `window=(2, 0)` on 6 tokens: how many cells are visible? (Count row by row: the
# > first rows have less past.)

# %%
window = window_mask(T, window=(2, 0))
print(window.sum(axis=1), "together", window.sum())

# %% [markdown]
# **Padding**: sequences of a batch are filled up to one length. The filling must not be attended to. It hides
# *keys*, the same for every query and every head, so its shape is (B, 1, 1, T_k).

# %%
lengths = np.array([6, 4])
padding = padding_mask(lengths, T)
padding.shape, padding[:, 0, 0]

# %% [markdown]
# **Together** they are joined by AND: a cell is visible if every mask lets it through. Shapes broadcast.

# %%
combined = combine_masks(causal, window, padding)
matrices(
    {
        "causal": causal,
        "window (2, 0)": window,
        "padding, sequence 1": np.broadcast_to(padding[1, 0], (T, T)),
        "all three": combined[1, 0],
    }
)

# %% [markdown]
# (`attention_forward` also takes `is_causal=True` and `window=(2, 0)` directly, and joins them with `mask` in the
# same way: none silently drops another. PyTorch's function either combines a mask and `is_causal` or raises an error:
# that depends on which of its implementations runs, see docs/conventions.md.)
#
# ## How a shape meets the scores
#
# Scores are (B, H, T_q, T_k). NumPy aligns shapes at the **right**; an axis of size 1, or one that is missing on
# the left, stands for all.
#
# | mask | meets | meaning |
# |---|---|---|
# | (T_q, T_k) | B, H: all | one pattern for everybody: causal, window |
# | (B, 1, 1, T_k) | H, T_q: all | padding: each sequence hides keys of its own |
# | (B, 1, T_q, T_k) | H: all | causal and padding |
# | (1, H, T_q, T_k) | B: all | each head a pattern of its own |
# | (T_k,) | all | the same keys hidden everywhere |
#
# > **Predict first.** B=2, H=3, T_q=4, T_k=5. Which of these fail: (4, 5), (2, 5), (2, 1, 1, 5), (2, 4, 5),
# > (2, 1, 4, 5), (5,), (4,)?

# %%
B, H, T_q, T_k = 2, 3, 4, 5
q, k, v = (rng.normal(size=(B, H, *shape)) for shape in ((T_q, 7), (T_k, 7), (T_k, 6)))


def fits(shape):
    """Whether the library takes a mask of this shape; if not, it says why."""
    try:
        attention_forward(q, k, v, mask=np.ones(shape, dtype=bool))
    except MaskError as error:
        print(error)
        return False
    return True


shapes = (4, 5), (2, 5), (2, 1, 1, 5), (2, 4, 5), (2, 1, 4, 5), (5,), (4,)
{shape: fits(shape) for shape in shapes}

# %% [markdown]
# (2, 5) is what a tokenizer gives, (B, T_k). Aligned at the right, its 2 meets T_q = 4: an error. It needs two new
# axes in the middle, `mask[:, None, None, :]`. (2, 4, 5) is (B, T_q, T_k); its 2 meets H = 3. It needs one new axis,
# `mask[:, None]`.
#
# Where does a mask meet the scores?

# %%
with trace() as t:
    attention_forward(q, k, v, mask=padding_mask(np.array([5, 3]), T_k))
t

# %% [markdown]
# In step `masked`, where 2 \* 1 \* 1 \* 5 cells of the mask stand for the 2 \* 3 \* 4 \* 5 of the scores.
#
# An error is the good case. The bad one comes when sizes happen to be equal.
#
# > **Predict first.** B = T_q = 4 now. A (B, T_k) padding mask is handed over as it is. It fits. Whom does its row 1
# > hide keys from?

# %%
x = rng.normal(size=(4, 1, 4, 5))  # B = T_q = T_k = 4, one head
real = np.arange(4) < np.array([4, 1, 3, 2])[:, None]  # (B, T_k), True = a real token
_, silent = attention_forward(x, x, x, mask=real)
_, meant = attention_forward(x, x, x, mask=real[:, None, None, :])
matrices(
    {
        "meant: sequence 0": meant.weights[0, 0],
        "meant: sequence 1": meant.weights[1, 0],
        "got: sequence 0": silent.weights[0, 0],
        "got: sequence 1": silent.weights[1, 0],
    }
)

# %% [markdown]
# Meant: sequence 1 has one real token, so all its queries look at key 0. Got: in *every* sequence, query 1 looks at
# key 0 alone, and the padding is in plain sight. The shape cannot tell. So test with sizes that differ, and write
# masks with all four axes.
#
# Each head may have a mask of its own, too, (1, H, T_q, T_k):

# %%
per_head = np.stack([window_mask(T, window=(1, 0)), causal, np.ones((T, T), dtype=bool)])[None]
x = rng.normal(size=(1, 3, T, d))
_, cache = attention_forward(x, x, x, mask=per_head)
names = ["window (1, 0)", "causal", "no mask"]
weights_by_head(cache.weights, words, visible=per_head, head_names=names)

# %% [markdown]
# ## Four tricks that are not the same
#
# In code one meets other ways to hide a cell. Take a row with scores $s$ = (1, 2, 3, 0.5), of which the last two
# are hidden: $m$ = (1, 1, 0, 0).
#
# $$\text{after softmax: } \mathrm{softmax}(s) \cdot m \qquad \text{times the scores: } s \cdot m$$
# $$\text{plus: } s - 10\,(1 - m) \quad \text{or} \quad s - 10^9\,(1 - m)$$
#
# > **Predict first.** Which of them leaves weight on hidden cells? Which has weights that do not sum to 1?

# %%
s, m = np.array([1.0, 2.0, 3.0, 0.5]), np.array([True, True, False, False])


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


tricks = {
    "no mask": softmax(s),
    "-inf (right)": softmax(np.where(m, s, -np.inf)),
    "after softmax": softmax(s) * m,
    "times the scores": softmax(s * m),
    "plus -10": softmax(s - 10 * (1 - m)),
    "plus -1e9": softmax(s - 1e9 * (1 - m)),
}
matrices({"weights": np.stack(list(tricks.values()))}, row_labels=list(tricks))

# %%
rows = [[name, f"{w.sum():.4f}", f"{w[~m].sum():.2g}"] for name, w in tricks.items()]
Table("Where the weights of a row go", ["trick", "sum", "on hidden cells"], rows)

# %% [markdown]
# - **After softmax**: the sum is 0.32. Softmax has shared out the 1 with the hidden keys as well, and their part
#   is thrown away.
# - **Times the scores**: a score of 0 is an ordinary score. The hidden cells have the weight $e^0 / Z$ each, here
#   0.08; the last one even gains by being "hidden", for without a mask it had 0.05.
# - **Plus -10** leaks: it only divides by $e^{10}$, about 22000. A hidden score of 20 breaks through entirely:

# %%
softmax(np.array([1.0, 2.0, 20.0]) + np.array([0.0, 0.0, -10.0]))

# %% [markdown]
# - **Plus -1e9** looks right. It is, as long as a row sees something. Now take a row that sees nothing, say a
#   sequence that is all padding.
#
# > **Predict first.** All four scores get -1e9. Softmax does not notice a constant. So what are the weights? Does
# > float32, which has 7 digits, change the answer? And if -1e9 is put in place of the scores, not added?

# %%
for dtype in (np.float64, np.float32):
    print(f"{dtype.__name__}, added:  ", softmax(s.astype(dtype) + dtype(-1e9)))
print("in place of them:", softmax(np.where(False, s, -1e9)))

# %% [markdown]
# Added in float64, the weights are as if nobody had masked anything; in float32 the scores drown in -1e9, and the
# weights are uniform, as they are with -1e9 in place of the scores. Each time, the row that may see nothing sees
# *all*. And in float16 the largest number is 65504:

# %%
blocked = np.array([0, 0, 1, 1], dtype=np.float16)  # 1 = blocked, as some tutorials have it
with np.errstate(over="ignore", invalid="ignore"):
    big = np.float16(-1e9)
    print(big, s.astype(np.float16) + blocked * big)

# %% [markdown]
# -1e9 became $-\infty$, and $0 \cdot -\infty$ is NaN: the *visible* cells are lost. Hence the rule: **select; do
# not multiply or add.** `np.where(mask, scores, -np.inf)`.
#
# ## A row that sees nothing
#
# It happens: an empty sequence, padding on the left under a causal mask, a window that lies beyond the keys.
# There the naive softmax computes $-\infty - (-\infty)$, which is NaN.
#
# > **Predict first.** In naive code, one row of weights is NaN. Say that the loss ignores this row: its upstream
# > gradient is 0. After backward, how much of `d_v` is NaN?

# %%
q, k, v = rng.normal(size=(4, d)), rng.normal(size=(5, d)), rng.normal(size=(5, 3))
d_out = rng.normal(size=(4, 3))
blind = np.ones((4, 5), dtype=bool)
blind[2], d_out[2] = False, 0  # nobody reads output 2
with np.errstate(invalid="ignore"):
    naive = softmax(np.where(blind, q @ k.T / np.sqrt(d), -np.inf))
matrices({"mask": blind, "naive weights": naive, "d_v = weights.T @ d_out": naive.T @ d_out})

# %% [markdown]
# All of it. Row 2 takes part in every key's gradient; its upstream 0 does not help, for 0 * NaN is NaN, and NaN plus
# anything is NaN. From there it goes on to `w_v` and to every layer below: one padded row ruins a training step.
#
# What should such a row be? Here: weights 0, output 0, all its gradients 0. (PyTorch's function and ONNX also give
# the output 0.) The log of its sum (`lse`) is log 0 = $-\infty$. All this is decided from the mask, not from a sum
# that came out odd:

# %%
out, cache = attention_forward(q, k, v, mask=blind)
grads = attention_backward(d_out, cache)
print("lse:", cache.lse)
matrices({"weights": cache.weights, "out": out, "d_q": grads.d_q, "d_v": grads.d_v})

# %% [markdown]
# `explain_mask` finds these rows before you run anything. Left padding with a causal mask, for example:

# %%
left_padded = combine_masks(causal_mask(4), np.array([False, False, True, True]))
print(explain_mask(left_padded))

# %% [markdown]
# Likewise for what lies under a mask: garbage in a hidden key or value must reach nothing. NaN in the padding is
# the test:

# %%
k_dirty, v_dirty = k.copy(), v.copy()
k_dirty[4] = v_dirty[4] = np.nan
real = np.arange(5) < 4
clean, _ = attention_forward(q, k, v, mask=real)
dirty, cache = attention_forward(q, k_dirty, v_dirty, mask=real)
grads = attention_backward(d_out, cache)
print("same output:", np.array_equal(clean, dirty))
print("d_k, d_v of the padding:", grads.d_k[4], grads.d_v[4])

# %% [markdown]
# ## What does True mean?
#
# | who | True (or 1) means |
# |---|---|
# | here; PyTorch `scaled_dot_product_attention`; JAX; Keras; ONNX | may attend |
# | PyTorch `nn.MultiheadAttention`: `attn_mask` and `key_padding_mask` | **blocked** |
# | the classic TensorFlow tutorial: `mask * -1e9` added to the scores | **blocked** |
# | code with `masked_fill(mask == 0, -inf)` | 1 = may attend |
# | a tokenizer's `attention_mask` (integers) | 1 = a real token |
#
# An integer mask may mean either, so it is refused, and the message says what to write. A float mask is most likely
# meant to be added:

# %%
for mask in (np.array([1, 1, 1, 0, 0]), np.array([0.0, 0.0, 0.0, -1e9, -1e9])):
    try:
        attention_forward(q, k, v, mask=mask)
    except MaskError as error:
        print(error)

# %% [markdown]
# What if a *bool* mask comes with the other polarity? No error can tell: it is a mask like any other. Turned round,
# causal shows each token nothing but the future, the very answer that it should predict:

# %%
print(explain_mask(~causal_mask(4)))

# %% [markdown]
# So ask the code, not its documentation. Change the key and the value of one token, and see which outputs react.
#
# > **Predict first.** Token j is changed. Under a causal mask, which outputs i react? What does the table of all
# > answers, i down and j across, look like?


# %%
def reactions(attend, x):
    """(T, T) bools: whether output i reacts to a change of token j."""
    before, reacts = attend(x), np.zeros((len(x), len(x)), dtype=bool)
    for j in range(len(x)):
        changed = x.copy()
        changed[j] += 1
        reacts[:, j] = (attend(changed) != before).any(axis=-1)
    return reacts


x, queries = rng.normal(size=(2, T, d))
seen = reactions(lambda x: attention_forward(queries, x, x, is_causal=True)[0], x)
in_words = {"row_labels": words, "column_labels": words, "meaning": ("reacts", "stays")}
matrices({"who reacts to whom": seen}, **in_words)

# %% [markdown]
# **The reactions are the mask.** This reads a mask off the behaviour of attention, and it is the test of
# causality: outputs up to t stay *bit for bit* the same, whatever comes after t. (Compare with `!=`, without a
# tolerance: a leak may be small.) Three mistakes, found by it:

# %%
patterns = {
    "causal": causal_mask(T),
    "strict: off by one": causal_mask(T, q_offset=-1),
    "leaks: one too many": causal_mask(T, q_offset=1),
    "inverted": ~causal_mask(T),
}
found = {
    name: reactions(lambda x, mask=mask: attention_forward(queries, x, x, mask=mask)[0], x)
    for name, mask in patterns.items()
}
print([np.array_equal(found[name], patterns[name]) for name in patterns])
matrices(found, title="Who reacts to whom", meaning=("reacts", "stays"))

# %% [markdown]
# In a model you can only change tokens, and a token is also its own query. (Through several layers a window also
# reaches further: token to token to token. Causal stays causal.)
#
# > **Predict first.** Six tokens, the last two are padding, hidden as keys; now tokens are changed, and with them
# > queries, keys and values. Which cells of the last two columns react?

# %%
real = np.arange(T) < 4
seen = reactions(lambda x: attention_forward(x, x, x, mask=real)[0], x)
matrices({"who reacts to whom": seen}, **in_words)

# %% [markdown]
# Their own outputs, and no other. So the diagonal says little about the mask; look beside it. And note: a padding
# mask hides *keys*. Padded tokens still ask, and something comes out for them. It is not wrong, only nobody should
# read it: leave these rows out of the loss.
#
# The other direction holds for gradients. A loss at position t alone must give 0 to all tokens after t; here t = 2,
# and columns are features:

# %%
only_at_2 = np.zeros((T, d))
only_at_2[2] = rng.normal(size=d)
grads = attention_backward(only_at_2, attention_forward(x, x, x, is_causal=True)[1])
matrices({"d_q": grads.d_q, "d_k": grads.d_k, "d_v": grads.d_v}, row_labels=words)

# %% [markdown]
# Now PyTorch's two polarities, measured in the same way.
#
# > **Predict first.** `nn.MultiheadAttention` and `scaled_dot_product_attention` get the same window, (1, 0), as
# > `attn_mask`. Who reacts to whom?

# %% tags=["needs-torch"]
if find_spec("torch") is None:
    print("PyTorch is not installed here: pip install torch")
else:
    import torch

    layer = torch.nn.MultiheadAttention(d, 1, batch_first=True, dtype=torch.float64)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    near = torch.tensor(window_mask(T, window=(1, 0)))
    asks = torch.tensor(queries)[None]

    def by_function(x):
        x = torch.tensor(x)[None]
        return sdpa(asks, x, x, attn_mask=near)[0].numpy()

    def by_layer(x):
        x = torch.tensor(x)[None]
        return layer(asks, x, x, attn_mask=near)[0][0].detach().numpy()

    both = {"function": reactions(by_function, x), "layer": reactions(by_layer, x)}
    title = "The same window, (1, 0), handed to both"
    display(matrices(both, title=title, meaning=("reacts", "stays")))

# %% [markdown]
# The function sees the window; the layer sees all but the window.
#
# ## Causal with more keys than queries
#
# When tokens are generated one by one, the keys of the past are kept (a KV cache), and only the new token asks: T_q
# = 1, T_k = all so far. Which key does "query 0" stand at?
#
# > **Predict first.** One new query, five keys, `is_causal=True` and nothing else. What does the query see? What is
# > its output?

# %%
q, k, v = rng.normal(size=(3, 5, d))
whole, _ = attention_forward(q, k, v, is_causal=True)  # all five at once
newest, _ = attention_forward(q[4:], k, v, is_causal=True)
matrices({"newest": newest, "whole[4]": whole[4:], "v[0]": v[:1]})

# %% [markdown]
# It saw key 0 alone. The triangle was laid at the **top left**, where query 0 stands at key 0; that is the
# default here and in PyTorch, Keras and JAX. But this query stands at key 4. `q_offset` says so:
#
# $$\text{query } i \text{ sees key } j \iff j \le i + \texttt{q\_offset}$$

# %%
newest, _ = attention_forward(q[4:], k, v, is_causal=True, q_offset=4)
np.allclose(newest, whole[4])

# %%
top_left, bottom_right = causal_mask(2, 5), causal_mask(2, 5, q_offset=3)
matrices({"top left, q_offset=0": top_left, "bottom right, q_offset=T_k-T_q": bottom_right})

# %% [markdown]
# With a cache, `q_offset` is the number of keys before: bottom right. flash-attn aligns there from version 2.1 on.
# In a batch each sequence may stand elsewhere; an array (B,) gives each its own:

# %%
print(explain_mask(causal_mask(2, 5, q_offset=np.array([1, 3]))))

# %% [markdown]
# ## A mask or a bias?
#
# A **bias** is a float array that is *added* to the scores. It can do more than hide: 0 leaves a score, -1 divides
# its power by $e$, and $-\infty$ hides the cell (the library then treats the cell as masked). And it can be learned,
# so it has a gradient.

# %%
hiding = np.where(causal_mask(5), 0.0, -np.inf)
by_bias, _ = attention_forward(q, k, v, bias=hiding)
np.array_equal(by_bias, whole)

# %%
distance = np.arange(5)[:, None] - np.arange(5)
fading, cache = attention_forward(q, k, v, bias=0.5 * -np.abs(distance), is_causal=True)
d_bias = attention_backward(rng.normal(size=(5, d)), cache).d_bias
matrices({"bias": cache.inputs.bias, "weights": cache.weights, "d_bias": d_bias})

# %% [markdown]
# | | bool mask | float bias |
# |---|---|---|
# | means | may or may not | how much more or less |
# | where hidden | exactly 0, always | exactly 0 with -inf; a leak with -10; see above for -1e9 |
# | gradient | none | `d_bias`, 0 where hidden |
# | handed over as the other | an error | an error here; PyTorch adds it; Keras casts it to bool: -1e9 is True |
#
# ## Exercise: one mask for all
#
# Build, without `causal_mask`, `window_mask` and `padding_mask`, the mask of a decoder. Two `np.arange` and
# broadcasting are enough. Before it compares cells, the check asks whether a query sees the future, or padding.
#
# More of this kind in `mha-numpy exercises`: `masked-attention`, which uses such a mask; `museum-cached-mask` and
# `museum-zero-times-inf`, two bugs that shipped; and `break-my-attention`, where you write the tests.


# %% tags=["exercise"]
def my_make_mask(lengths, T_q, T_k, q_offset, left):
    """lengths (B,), four ints -> (B, 1, T_q, T_k) bool, True = may attend.

    Query i stands at key i + q_offset. It sees that key and at most `left` keys before it, and no
    padding: sequence b has lengths[b] real keys (0 to T_k), and padding after them. Some queries
    may see nothing.
    """
    ...  # your code


# %% tags=["check"]
check("masks", my_make_mask)

# %% tags=["hint"]
# hint("masks")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - True = may attend. Masks combine by AND and broadcast to (B, H, T_q, T_k), aligned at the right. Write padding as
#   (B, 1, 1, T_k).
# - Hide by *selecting* -inf before softmax. After softmax, times the scores, plus -10 and plus -1e9 each fail in
#   their own way.
# - A row that sees nothing has weights, output and gradients 0, decided from the mask. In naive code it is NaN, and
#   all gradients with it.
# - Polarity differs between libraries, and a wrong one is silent. Change a token and see what reacts: the reactions
#   are the mask.
# - Causal needs to know where query 0 stands: `q_offset`, the number of keys before. The default is top left.
#
# **In the code:** `mha_numpy/core/masks.py`, `mask_report.py`, and `visibility.py`, which selects. More frameworks:
# docs/conventions.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, sections 3.1 and 3.2.3 (the causal mask); Beltagy
# et al. 2020, *Longformer*, section 3.1 (windows).
#
# **Next:** [05, many heads](03_many-heads.ipynb).
