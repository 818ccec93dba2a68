# %% [markdown]
# # 27 · Bring your own layer
#
# Three sequences of 5, 3 and 4 tokens are padded to 5. You make the mask of real tokens, True = may attend, and pass
# it to PyTorch's layer as `key_padding_mask`. You get no error. Here is how far each output is from the right one
# (*needs PyTorch*):

# %% tags=["hide-input"]
from importlib.util import find_spec

import numpy as np

from mha_numpy import (
    MultiHeadAttention,
    attention_backward,
    attention_forward,
    causal_mask,
    compare,
    identify,
    padding_mask,
    scaled_dot_product_attention,
    softmax_forward,
)
from mha_numpy.show.pictures import matrices, weights_by_head

has_torch = find_spec("torch") is not None
HOW_TO_GET_TORCH = "These lines need PyTorch: pip install torch"

# %%
rng = np.random.default_rng(0)
x = rng.normal(size=(3, 5, 8))
visible = padding_mask([5, 3, 4], 5)[:, 0, 0]  # (B, T_k)

# %% tags=["needs-torch"]
if has_torch:
    import torch

    torch.manual_seed(0)
    options = {"batch_first": True, "dtype": torch.float64}
    mha = torch.nn.MultiheadAttention(8, 2, **options)
    torch.nn.init.normal_(mha.in_proj_bias)
    qkv, mask = [torch.tensor(x)] * 3, torch.tensor(visible)
    with torch.no_grad():
        out, _ = mha(*qkv, key_padding_mask=mask)
        right, _ = mha(*qkv, key_padding_mask=~mask)
    off = (out - right).abs().amax(dim=(1, 2))
    print("largest difference in each sequence:", off.numpy())
else:
    print(HOW_TO_GET_TORCH)

# %% [markdown]
# In this layer True means *blocked*. So in the first sequence, which has no padding, every key is blocked, and its
# output is NaN. The others look healthy but are wrong, because they read nothing but padding.
#
# Attention is the same everywhere; its conventions are not.
#
# **By the end you can** bring your own layer from PyTorch or Keras, compute its output and its
# gradients here, and show that they are the same.
#
# Cells marked *needs PyTorch* or *needs Keras* run if these are installed. Unless we say otherwise, params are
# random.
#
# ## The operator: `scaled_dot_product_attention`
#
# Its arguments elsewhere:
#
# | here | PyTorch | JAX | ONNX |
# |---|---|---|---|
# | `q, k, v`: (B, H, T, d) | the same | (B, T, H, d) | (B, H, T, d) or (B, T, H\*d) |
# | `mask=`, True = may attend | `attn_mask=`, bool | `mask=` | `attn_mask` |
# | `bias=`, added to scores | `attn_mask=`, float | `bias=` | `attn_mask`, float |
# | `is_causal=`, `q_offset=0` | `is_causal=` | `is_causal=` | `is_causal` |
# | `scale=` | `scale=` | `scale=` | `scale` |
# | H_kv < H | `enable_gqa=True` | by shape | by shape, if (B, H, T, d) |
# | `dropout_mask=`, explicit | `dropout_p=`, random | none | none |
#
# > **Predict first.** There are 3 queries and 5 keys, and attention is causal. PyTorch aligns at the *top left*. Does
# > the last query see keys 0 to 2, or all five? And what does ours do by default?
#
# <details><summary>Answer</summary>
#
# In both it sees keys 0 to 2. Ours aligns at the top left as well, unless `q_offset` says otherwise.
# </details>

# %%
q = rng.normal(size=(2, 4, 3, 8))
k, v = rng.normal(size=(2, 2, 4, 5, 8))
d_out = rng.normal(size=(2, 4, 3, 8))
ours, cache = attention_forward(q, k, v, is_causal=True)
grads = attention_backward(d_out, cache)
left, moved = causal_mask(3, 5), causal_mask(3, 5, q_offset=2)
matrices({"top left, q_offset=0": left, "q_offset=2": moved})

# %% [markdown]
# Output and gradients, compared with PyTorch's (*needs PyTorch*):

# %% tags=["needs-torch"]
if has_torch:
    import torch.nn.functional as F

    qkv = [torch.tensor(a, requires_grad=True) for a in (q, k, v)]
    out = F.scaled_dot_product_attention(*qkv, is_causal=True)
    out.backward(torch.tensor(d_out))
    theirs, expected = {"out": out.detach().numpy()}, {"out": ours}
    names = ("d_q", "d_k", "d_v")
    for name, tensor in zip(names, qkv, strict=True):
        theirs[name] = tensor.grad.numpy()
        expected[name] = getattr(grads, name)
    display(compare(theirs, expected))
else:
    print(HOW_TO_GET_TORCH)

# %% [markdown]
# In your own models, call this function, because it picks a fast kernel. It returns no weights, as
# notebook 26 explains.
#
# ## The formula, written out in PyTorch
#
# Most tutorials write attention in lines like these, which you know from notebook 03. `view` refuses to copy (notebook
# 09), so merging the heads takes a `.contiguous()`.


# %%
def written_out(x, w_q, w_k, w_v, w_o, H, mask):
    B, T, D = x.shape
    q, k, v = (
        (x @ w).view(B, T, H, -1).transpose(1, 2)
        for w in (w_q, w_k, w_v)
    )
    scores = q @ k.transpose(-2, -1) / (D // H) ** 0.5
    scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(dim=-1)
    heads = (weights @ v).transpose(1, 2).contiguous()
    return heads.view(B, T, D) @ w_o, weights


# %% tags=["needs-torch"]
layer = MultiHeadAttention(8, 2, bias=False, rng=1)
ours, our_weights = layer(x, is_causal=True, return_weights=True)
if has_torch:
    w = [torch.tensor(layer.params[f"w_{name}"]) for name in "qkvo"]
    mask = torch.tensor(causal_mask(5))
    out, weights = written_out(torch.tensor(x), *w, 2, mask)
    theirs = {"out": out.numpy(), "weights": weights.numpy()}
    display(compare(theirs, {"out": ours, "weights": our_weights}))
else:
    print(HOW_TO_GET_TORCH)

# %% [markdown]
# Here the mask is (T, T). Shapes (1, 1, T, T) and (B, 1, 1, T) work too.
#
# > **Predict first.** Three sequences of 3, 1 and 2 real tokens are padded to 3. You pass the (B, T) mask of real
# > tokens as it is. Which keys does each query of sequence 1 see? And what happens if B and T differ?
#
# <details><summary>Answer</summary>
#
# In NumPy and in PyTorch, shapes are matched from the right, so the mask's T meets T_k, and its B meets T_q. Every
# sequence gets the same square, in which query 1 sees what *sequence* 1 should see. If B and T differ, you get an
# error, except that B = 1 works, so you notice nothing until the first real batch. Write `mask[:, None, None, :]`, or
# `padding_mask(lengths, T)`.
# </details>

# %%
real = padding_mask([3, 1, 2], 3)  # (B, 1, 1, T)
full = (3, 1, 3, 3)  # (B, 1, T_q, T_k)
as_it_is = np.broadcast_to(real[:, 0, 0], full)
right = np.broadcast_to(real, full)
matrices({"(B, T)": as_it_is[1, 0], "(B, 1, 1, T)": right[1, 0]})

# %% [markdown]
# ## The layer: `nn.MultiheadAttention`
#
# PyTorch's layer stores its params the other way round: a linear map there is `x @ w.T`, with `w` of shape (outputs,
# inputs). And it stacks the three projections in one array:
#
# $$\text{in\_proj\_weight} = \begin{bmatrix} W_q^\top \\ W_k^\top \\ W_v^\top \end{bmatrix}
# \qquad [3D, D]$$
#
# > **Predict first.** D = 768, H = 12. What shape does `in_proj_weight` have? Which of its rows belong to the keys of
# > head 0? (The cell below fills each row with its own number.)
#
# <details><summary>Answer</summary>
#
# Its shape is (2304, 768), and the keys of head 0 are rows 768 to 831.
# </details>
#
# `LAYOUTS` has a table for each library: what it calls an array, which of our params are in it, and how they are
# stored. `from_layout` reads the table in one direction, `to_layout` in the other. In the picture, q is 1, k is 2 and v
# is 3: rows in PyTorch, columns in GPT-2.

# %%
from mha_numpy.models.weights import LAYOUTS, from_layout, to_layout

for row in LAYOUTS["torch"].rows:
    print(f"{row.theirs:16} {row.ours:12} {row.stored}")

large = MultiHeadAttention(768, 12)  # random params
arrays = to_layout(large, "torch")
numbers = np.arange(3.0 * 768)[:, None]  # of the rows
arrays["in_proj_weight"] = np.repeat(numbers, 768, axis=1)
w_k = from_layout(large, arrays, "torch").params["w_k"]  # (D, D)
print("shape:", arrays["in_proj_weight"].shape)
print(f"keys of head 0: {w_k[0, 0]:.0f} to {w_k[0, 63]:.0f}")

# for D = 4: 1 is q, 2 is k, 3 is v
kinds = np.repeat([[1.0, 2.0, 3.0]], 4, axis=0).repeat(4, axis=1)
shown = {"PyTorch: in_proj_weight": kinds.T, "GPT-2: c_attn": kinds}
matrices(shown | {"w_k": kinds[:, 4:8]})

# %% [markdown]
# Now let's compare at the size of BERT-base and GPT-2: width 768, 12 heads, float32 (*needs PyTorch*).
# PyTorch's biases start as zeros, which would hide a mistake, so we draw random ones.


# %% tags=["needs-torch"]
def arrays_of(module):
    """Return the params of a layer in PyTorch, by name."""
    named = module.named_parameters()
    return {name: param.detach().numpy() for name, param in named}


batch = rng.normal(size=(4, 128, 768)).astype(np.float32)
if has_torch:
    large = torch.nn.MultiheadAttention(768, 12, batch_first=True)
    qkv = [torch.tensor(batch)] * 3
    with torch.no_grad():
        large.in_proj_bias.normal_()
        large.out_proj.bias.normal_()
        out, mean = large(*qkv)
        _, per_head = large(*qkv, average_attn_weights=False)
    print("weights by default:", tuple(mean.shape))
    print("weights on request:", tuple(per_head.shape))

    same = MultiHeadAttention(768, 12).astype(np.float32)
    same = from_layout(same, arrays_of(large), "torch")
    ours, weights = same(batch, return_weights=True)
    theirs = {"out": out.numpy(), "weights": per_head.numpy()}
    expected = {"out": ours, "weights": weights}
    theirs["mean"] = mean.numpy()
    expected["mean"] = weights.mean(axis=1)
    display(compare(theirs, expected))
else:
    print(HOW_TO_GET_TORCH)

# %% [markdown]
# By default the layer returns the **mean over the heads**, (4, 128, 128). A picture of it shows something that no
# single head does:

# %%
from mha_numpy.models.train import load_trained

trained = load_trained("induction").model
trained(np.array([[0, 1, 2, 3, 0, 1, 2]]))
heads = trained.attentions[0].weights[0]
shown = np.stack([*heads[:3], heads.mean(axis=0)])
names = ["head 0", "head 1", "head 2", "mean of all four heads"]
options = {"head_names": names, "heads": [0, 1, 2, None]}
options["note"] = "Trained: mha-numpy train induction."
options["visible"] = causal_mask(7)
weights_by_head(shown, list("abcdabc"), **options)

# %% [markdown]
# Its arguments, next to ours:
#
# | here | `nn.MultiheadAttention` |
# |---|---|
# | x: (B, T, D) | (T, B, D), unless `batch_first=True` |
# | `layer(query, key, value)`; key and value have defaults | `mha(query, key, value)`; all three are needed |
# | `mask`, True = may attend | `attn_mask`, `key_padding_mask`: True = **blocked** |
# | `is_causal=True` | `is_causal=True` is a hint: the mask is needed as well |
# | `return_weights=True`: per head, before dropout | `need_weights=True`: mean, after dropout |
# | cross-attention: `kdim=`, `vdim=` | the same; then `q_proj_weight`, ... are separate |
#
# Back to the three sequences from the beginning. Each side needs its own mask:

# %%
key_padding_mask = ~visible
masks = {"mask: True = may attend": visible}
masks["key_padding_mask: 1 = blocked"] = 1.0 * key_padding_mask
matrices(masks)

# %% [markdown]
# With the right mask the output and the gradients agree (*needs PyTorch*). To test your own layer, put it in place of
# `mha`:

# %% tags=["needs-torch"]
if has_torch:
    d_out, qkv = rng.normal(size=x.shape), [torch.tensor(x)] * 3
    blocked = torch.tensor(key_padding_mask)
    out, _ = mha(*qkv, key_padding_mask=blocked)
    out.backward(torch.tensor(d_out))
    named = mha.named_parameters()
    theirs = {name: param.grad.numpy() for name, param in named}

    same = MultiHeadAttention(8, 2)
    same = from_layout(same, arrays_of(mha), "torch")
    ours = same(x, mask=visible[:, None, None])  # (B, 1, 1, T_k)
    same.backward(d_out)
    expected = to_layout(same, "torch", gradients=True)
    display(compare(out.detach().numpy(), ours, name="out"))
    display(compare(theirs, expected))
else:
    print(HOW_TO_GET_TORCH)

# %% [markdown]
# ## Keras
#
# `keras.layers.MultiHeadAttention(num_heads, key_dim)` is called with **query, value, key**.
# Its params keep the head axis, (D, H, d_k) for the projections and (H, d_v, D) for the output. A reshape turns
# them into ours.
#
# | here | Keras |
# |---|---|
# | `layer(query, key, value)` | `layer(query, value, key=None)`; key defaults to value |
# | `mask`, True = may attend | `attention_mask`, the same |
# | `is_causal=True` | `use_causal_mask=True` |
# | `return_weights=True` | `return_attention_scores=True`: these are weights, per head |
# | `num_kv_heads=` | another layer, `GroupQueryAttention` |
#
# > **Predict first.** You pass three different inputs as in PyTorch, `layer(query, key, value)`. What does Keras
# > compute? Is there an error?
#
# <details><summary>Answer</summary>
#
# Key and value trade places. They have the same shape, so there is no error.
# </details>

# %% tags=["needs-keras"]
import os

backend = "torch" if has_torch else "tensorflow"
backend = os.environ.setdefault("KERAS_BACKEND", backend)
query, key, value = rng.normal(size=(3, 2, 5, 8)).astype(np.float32)
if find_spec("keras") and find_spec(backend):
    import keras
    from keras.ops import convert_to_numpy

    # zeros, the default, would hide a mistake
    biases = keras.initializers.RandomNormal(seed=0)
    options = {"bias_initializer": biases}
    keras_layer = keras.layers.MultiHeadAttention(2, 4, **options)
    out = keras_layer(query, value, key)
    both = {"in Keras's order": convert_to_numpy(out)}
    swapped = keras_layer(query, key, value)
    both["in PyTorch's order"] = convert_to_numpy(swapped)

    # "query/kernel", ...
    weights = keras_layer.weights
    named = {w.path.split("/", 1)[1]: w for w in weights}
    arrays = {n: convert_to_numpy(w) for n, w in named.items()}
    same = MultiHeadAttention(8, 2).astype(np.float32)
    same = from_layout(same, arrays, "keras")
    ours = same(query, key, value)
    display(compare(both, dict.fromkeys(both, ours)))

    if backend == "torch":  # then Keras's backward is PyTorch's
        d_out = rng.normal(size=ours.shape).astype(np.float32)
        out.backward(torch.tensor(d_out))
        same.backward(d_out)
        theirs = {n: w.value.grad.numpy() for n, w in named.items()}
        expected = to_layout(same, "keras", gradients=True)
        display(compare(theirs, expected))
else:
    print("These lines need Keras: pip install keras torch")

# %% [markdown]
# ## The layer of the older TensorFlow tutorial
#
# Its `call(v, k, q, mask)` has yet another order, and its mask is a float with **1 = blocked**, used as `scores += mask *
# -1e9`. In float64 and float32 this is nearly the same as a mask, except in a row that sees nothing. There the large
# number cancels:
#
# $$e^{s - 10^9} / \sum_j e^{s_j - 10^9} = e^{s} / \sum_j e^{s_j}$$
#
# > **Predict first.** By shift invariance (notebook 07), which weights does a row get if *every* key is blocked in
# > this way? And in float32, where -1e9 plus a score of size 1 is -1e9?
#
# <details><summary>Answer</summary>
#
# The row mixes exactly what it should not see. In float64 it goes by the scores, in float32 it is even. In float16,
# -1e9 becomes -inf, so a *visible* cell gets 0 · (-inf), which is NaN, and so does its whole row. In this library a
# row that sees nothing is 0, as in PyTorch's operator and ONNX.
# </details>

# %%
from mha_numpy.teach.exercises import check, hint

scores = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
blocked = np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
shown, added = {}, scores + blocked * -1e9
for dtype in ("float64", "float32"):
    weights, _ = softmax_forward(added.astype(dtype))
    shown[f"-1e9, {dtype}"] = weights.astype(float)
shown["mask"], _ = softmax_forward(scores, mask=blocked == 0)

qkv = q[0, 0, :1], k[0, 0], v[0, 0]
nothing = np.zeros((1, 5), dtype=bool)
print(scaled_dot_product_attention(*qkv, mask=nothing))
matrices(shown)

# %% [markdown]
# ## Ask the function
#
# What does True mean in code without a manual? `identify` calls a function and reports its conventions. Here is the
# mistake from the beginning, in NumPy. The docstring promises one meaning of True, and the code computes the other:


# %%
def attend(q, k, v, real):
    """(B, H, T, d); real is (B, T_k), True for real tokens."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    hidden = real[:, None, None]
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


sheet = identify(attend)
same = identify(lambda q, k, v, m: attend(q, k, v, m))
print("mistakes:", len(sheet.mistakes), "and", len(same.mistakes))
print("the second mask:", same.value("mask"))
sheet

# %% [markdown]
# The second function computes the same numbers but promises nothing, so its mask is only a convention.
#
# ## Exercise: the params of GPT-2
#
# Hugging Face's GPT-2 stores its projections in yet another way: `c_attn` of shape (D, 3D) is used as `x @ w + b`,
# **not** transposed, with queries, keys and values side by side in its columns; `c_proj` is (D, D). Write the map to
# our params and its inverse, which also works for gradients, because entries only move.
#
# To practise more, try `museum-float-mask` in `mha-numpy exercises`, a bug that shipped where two conventions for
# masks met.


# %% tags=["exercise"]
from mha_numpy import MultiHeadParams


def my_from_gpt2(
    c_attn_w, c_attn_b, c_proj_w, c_proj_b
) -> MultiHeadParams:
    """(D, 3D), (3D,), (D, D), (D,) -> MultiHeadParams(w_q, b_q,
    w_k, b_k, w_v, b_v, w_o, b_o).
    """
    ...  # your code


def my_to_gpt2(params: MultiHeadParams):
    """MultiHeadParams -> c_attn_w (D, 3D), c_attn_b (3D,), c_proj_w
    (D, D), c_proj_b (D,).
    """
    ...  # your code


# %% tags=["check"]
check("from-gpt2", my_from_gpt2)
check("to-gpt2", my_to_gpt2)

# %% tags=["hint"]
# hint("from-gpt2")  # shows the next of four hints
# hint("to-gpt2")

# %% [markdown]
# ## Summary
#
# Now you can say why nothing warned you at the beginning: the mask had the right shape and dtype, but the wrong
# meaning.
#
# - All libraries share the formula, but not the layout, the polarity of masks, the order of arguments or the
#   defaults. Translate these, and the numbers agree up to rounding, gradients included, except in rows that see
#   nothing.
# - PyTorch's two attentions disagree about True. Put *may attend* or *blocked* into the name of your variable.
# - The weights you get back may be a mean over heads, or come after dropout.
# - A bridge for params is a table: which array holds which, and how it is stored.
# - Params are (inputs, outputs) here and in GPT-2, (outputs, inputs) in PyTorch, and have a head axis in Keras. A
#   square array that you forgot to transpose has the right shape and the wrong content.
# - Test a bridge with different sizes, random biases, one row of padding, and the gradients.
#
# **In the code:** docs/conventions.md has all tables, docs/identify.md more datasheets.
#
# **Reference:** the documentation of `torch.nn.functional.scaled_dot_product_attention`,
# `torch.nn.MultiheadAttention`, `keras.layers.MultiHeadAttention`, and the ONNX operator
# `Attention`.
#
# **Next:** [28, wrong, or half right](28_wrong-or-half-right.ipynb).
