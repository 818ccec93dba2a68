# %% [markdown]
# # 27 · Bring your own layer
#
# Three sequences of 5, 3 and 4 tokens are padded to 5. You make the mask of real tokens, True = may attend, and pass
# it to PyTorch's layer as `key_padding_mask`. You get no error. Here is how far each output is from what it should be,
# with the mask and with its inverse (*needs PyTorch*):

# %% tags=["hide-input"]
from importlib.util import find_spec

import numpy as np

from mha_numpy import padding_mask

# %%
has_torch = find_spec("torch") is not None
HOW_TO_GET_TORCH = "These lines need PyTorch: pip install torch"
rng = np.random.default_rng(0)
x = rng.normal(size=(3, 5, 8))
# (B, T_k), True = may attend
visible = padding_mask([5, 3, 4], 5)[:, 0, 0]

# %% tags=["needs-torch"]
if has_torch:
    import torch

    # random
    mha = torch.nn.MultiheadAttention(
        8, 2, batch_first=True, dtype=torch.float64
    )
    torch.nn.init.normal_(mha.in_proj_bias)
    masks = {
        "as it is": torch.tensor(visible),
        "inverted": torch.tensor(~visible),
    }
    with torch.no_grad():
        outs = {
            n: mha(*[torch.tensor(x)] * 3, key_padding_mask=m)[0]
            for n, m in masks.items()
        }
    for name, each in outs.items():
        off = (
            (each - outs["inverted"]).abs().amax(dim=(1, 2)).numpy()
        )
        print(
            f"{name:9} largest difference in each sequence: {off}"
        )
else:
    print(HOW_TO_GET_TORCH)

# %% [markdown]
# In this layer True means *blocked*. So the first sequence, which has no padding, gets every key blocked and becomes
# NaN. The others look healthy but are wrong, because they read only the padding.
#
# Attention is the same everywhere; its conventions are not. Once you translate the arguments, PyTorch and Keras give
# the same numbers.
#
# **What you can do afterwards:** you can bring your own layer from PyTorch or Keras, get its numbers here, forward and
# backward, and prove that they are the same.
#
# Cells marked *needs PyTorch* or *needs Keras* run if these are installed. Unless we say otherwise, params are random.
#
# ## The operator: `scaled_dot_product_attention`
#
# Layout, (B, H, T, d), and formula are the same as ours. The names differ:
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
from mha_numpy import (
    attention_backward,
    attention_forward,
    causal_mask,
    compare,
)
from mha_numpy.show.pictures import matrices

q, k, v = (
    rng.normal(size=(2, 4, 3, 8)),
    *rng.normal(size=(2, 2, 4, 5, 8)),
)
d_out = rng.normal(size=(2, 4, 3, 8))
ours, cache = attention_forward(q, k, v, is_causal=True)
grads = attention_backward(d_out, cache)
matrices(
    {
        "top left, q_offset=0": causal_mask(3, 5),
        "q_offset=2": causal_mask(3, 5, q_offset=2),
    }
)

# %% [markdown]
# Output and gradients, compared with PyTorch's (*needs PyTorch*):

# %% tags=["needs-torch"]
if has_torch:
    import torch.nn.functional as F

    tensors = [
        torch.tensor(array, requires_grad=True)
        for array in (q, k, v)
    ]
    theirs = F.scaled_dot_product_attention(
        *tensors, is_causal=True
    )
    theirs.backward(torch.tensor(d_out))
    found = {"out": theirs.detach().numpy()}
    found |= dict(
        zip(
            ("d_q", "d_k", "d_v"),
            (t.grad.numpy() for t in tensors),
            strict=True,
        )
    )
    expected = {
        "out": ours,
        "d_q": grads.d_q,
        "d_k": grads.d_k,
        "d_v": grads.d_v,
    }
    display(compare(found, expected))
else:
    print(HOW_TO_GET_TORCH)

# %% [markdown]
# That function picks a fast kernel, so in a model you should call it. It returns no
# weights, because a fast kernel never has them all at once, and neither does ours (notebook 26).
#
# ## The formula, written out in PyTorch
#
# Most tutorials write attention in a few lines like these. You know each of them from notebook 03. `view` refuses to
# copy (notebook 09), so a merge needs `.contiguous()` between transpose and view.

# %%
from mha_numpy import MultiHeadAttention


def written_out(x, w_q, w_k, w_v, w_o, num_heads, mask):
    B, T, D = x.shape
    q, k, v = (
        (x @ w).view(B, T, num_heads, -1).transpose(1, 2)
        for w in (w_q, w_k, w_v)
    )
    scores = q @ k.transpose(-2, -1) / (D // num_heads) ** 0.5
    scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(dim=-1)
    merged = (
        (weights @ v).transpose(1, 2).contiguous().view(B, T, D)
    )
    return merged @ w_o, weights


# %% tags=["needs-torch"]
layer = MultiHeadAttention(8, 2, bias=False, rng=1)
ours, our_weights = layer(x, is_causal=True, return_weights=True)
if has_torch:
    arrays = [
        torch.tensor(a)
        for a in (
            x,
            *(layer.params[f"w_{name}"] for name in "qkvo"),
        )
    ]
    out, weights = written_out(
        *arrays, 2, torch.tensor(causal_mask(5))
    )
    theirs = {"out": out.numpy(), "weights": weights.numpy()}
    expected = {"out": ours, "weights": our_weights}
    display(compare(theirs, expected))
else:
    print(HOW_TO_GET_TORCH)

# %% [markdown]
# Here `mask` was (T, T); (1, 1, T, T) or (B, 1, 1, T) works as well.
#
# > **Predict first.** Three sequences of 3, 1 and 2 real tokens are padded to 3. You pass the (B, T) mask of real
# > tokens as it is. Which keys does each query of sequence 1 see? And what happens if B and T differ?
#
# <details><summary>Answer</summary>
#
# Shapes align at the right, in NumPy and in PyTorch, so the mask's T meets T_k, and its B meets T_q. Every sequence
# gets the same square, in which query 1 sees what *sequence* 1 should see. If B and T differ, you get an error. Write
# `mask[:, None, None, :]`, or `padding_mask(lengths, T)`.
# </details>

# %%
right = padding_mask([3, 1, 2], 3)  # (B, 1, 1, T)
as_it_is = right[:, 0, 0]  # (B, T)
seen = {"(B, T)": as_it_is, "(B, 1, 1, T)": right}
matrices(
    {
        name: np.broadcast_to(mask, (3, 1, 3, 3))[1, 0]
        for name, mask in seen.items()
    }
)

# %% [markdown]
# ## The layer: `nn.MultiheadAttention`
#
# It stores its params the other way round: a linear map in PyTorch is `x @ w.T`, with `w` of shape (outputs, inputs).
# And it stacks the three projections in one array:
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
# `mha_numpy.models.weights` has a table for each library. A row of it says what they call an array, which of our
# params are side by side in it, and how it is stored. `from_layout` reads the table in one direction, `to_layout` in
# the other.

# %%
from mha_numpy.models.weights import LAYOUTS, from_layout, to_layout

for row in LAYOUTS["torch"].rows:
    print(f"{row.theirs:16} {row.ours:12} {row.stored}")
row_numbers = np.arange(3.0 * 768)
# params are random
arrays = to_layout(MultiHeadAttention(768, 12), "torch")
# (3D, D)
arrays["in_proj_weight"] = np.repeat(
    row_numbers[:, None], 768, axis=1
)
# (D, D)
w_k = from_layout(
    MultiHeadAttention(768, 12), arrays, "torch"
).params["w_k"]
# the first and the last column of head 0
print(arrays["in_proj_weight"].shape, w_k[0, [0, 63]])
# D = 4: 1 is q, 2 is k, 3 is v
of_kind = np.repeat([[1.0, 2.0, 3.0]], 4, axis=0).repeat(4, axis=1)
matrices(
    {
        "PyTorch: in_proj_weight": of_kind.T,
        "GPT-2: c_attn": of_kind,
        "w_k": of_kind[:, 4:8],
    }
)

# %% [markdown]
# Now with numbers, at the size of BERT-base and GPT-2: 4 sequences of 128 tokens, width 768, 12 heads (*needs
# PyTorch*; float32 is PyTorch's default). PyTorch's biases start as zeros, which would hide a mistake, so we draw
# random ones.

# %% tags=["needs-torch"]
batch = rng.normal(size=(4, 128, 768)).astype(np.float32)
if has_torch:
    torch.manual_seed(0)
    large = torch.nn.MultiheadAttention(768, 12, batch_first=True)
    with torch.no_grad():
        for name in ("in_proj_bias", "out_proj.bias"):
            large.get_parameter(name).normal_()
        out, averaged = large(*[torch.tensor(batch)] * 3)
        per_head = large(
            *[torch.tensor(batch)] * 3, average_attn_weights=False
        )[1]
    arrays = {
        name: param.detach().numpy()
        for name, param in large.named_parameters()
    }
    same = from_layout(
        MultiHeadAttention(768, 12).astype(np.float32),
        arrays,
        "torch",
    )
    ours, weights = same(batch, return_weights=True)
    print(
        "by default",
        tuple(averaged.shape),
        "on request",
        tuple(per_head.shape),
    )
    theirs = {"out": out.numpy(), "weights": per_head.numpy()}
    expected = {"out": ours, "weights": weights}
    theirs["mean"] = averaged.numpy()
    expected["mean"] = weights.mean(axis=1)
    display(compare(theirs, expected))
else:
    print(HOW_TO_GET_TORCH)

# %% [markdown]
# By default the layer returns the **mean over the heads**, (4, 128, 128). A picture of it shows something that no
# single head does:

# %%
from mha_numpy.models.train import load_trained
from mha_numpy.show.pictures import weights_by_head

trained = load_trained("induction").model
trained(np.array([[0, 1, 2, 3, 0, 1, 2]]))
heads = trained.attentions[0].weights[0]
shown = np.stack([*heads[:3], heads.mean(axis=0)])
names = ["head 0", "head 1", "head 2"]
names, note = (
    [*names, "mean of all four heads"],
    "Trained: mha-numpy train induction.",
)
weights_by_head(
    shown,
    list("abcdabc"),
    visible=causal_mask(7),
    head_names=names,
    note=note,
)

# %% [markdown]
# Its arguments, and ours:
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
# Back to the three sequences from the beginning. These are the masks for both sides:

# %%
key_padding_mask = ~visible
matrices(
    {
        "mask: True = may attend": visible,
        "key_padding_mask: 1 = blocked": 1.0 * ~visible,
    }
)

# %% [markdown]
# With the right mask the output and the gradients agree (*needs PyTorch*). To test your own layer, put it in place of
# `mha`:

# %% tags=["needs-torch"]
if has_torch:
    # (B, 1, 1, T_k)
    d_out, mask = (rng.normal(size=x.shape), visible[:, None, None])
    out = mha(
        *[torch.tensor(x)] * 3,
        key_padding_mask=torch.tensor(key_padding_mask),
    )[0]
    out.backward(torch.tensor(d_out))
    theirs = {
        name: param.detach().numpy()
        for name, param in mha.named_parameters()
    }
    same = from_layout(MultiHeadAttention(8, 2), theirs, "torch")
    display(
        compare(
            out.detach().numpy(), same(x, mask=mask), name="out"
        )
    )
    same.backward(d_out)
    theirs = {
        name: param.grad.numpy()
        for name, param in mha.named_parameters()
    }
    display(
        compare(theirs, to_layout(same, "torch", gradients=True))
    )
else:
    print(HOW_TO_GET_TORCH)

# %% [markdown]
# ## Keras
#
# `keras.layers.MultiHeadAttention(num_heads, key_dim)` is called with **query, value, key**: value comes before key.
# Its params keep the head axis, (D, H, d_k) for the projections and (H, d_v, D) for the output. The table lists them
# axis by axis, and a reshape turns them into ours.
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
# > compute? Will there be an error about a shape?
#
# <details><summary>Answer</summary>
#
# Key and value trade places, and there is no error.
# </details>

# %% tags=["needs-keras"]
import os

os.environ.setdefault(
    "KERAS_BACKEND", "torch" if has_torch else "tensorflow"
)
has_keras = find_spec("keras") and find_spec(
    os.environ["KERAS_BACKEND"]
)
query, key, value = rng.normal(size=(3, 2, 5, 8)).astype(np.float32)
if has_keras:
    import keras

    # zeros would hide a mistake
    biases = keras.initializers.RandomNormal(seed=0)
    # float32
    keras_layer = keras.layers.MultiHeadAttention(
        2, 4, bias_initializer=biases
    )
    out = keras_layer(query, value, key)  # query, value, key
    # "query/kernel", ...
    named = {
        w.path.split("/", 1)[1]: w for w in keras_layer.weights
    }
    arrays = {
        name: keras.ops.convert_to_numpy(w)
        for name, w in named.items()
    }
    same = from_layout(
        MultiHeadAttention(8, 2).astype(np.float32), arrays, "keras"
    )
    ours = same(query, key, value)
    swapped = keras_layer(query, key, value)
    both = {"in Keras's order": out, "in PyTorch's order": swapped}
    both = {
        name: keras.ops.convert_to_numpy(array)
        for name, array in both.items()
    }
    display(compare(both, dict.fromkeys(both, ours)))
    # then its backward is PyTorch's
    if keras.backend.backend() == "torch":
        d_out = rng.normal(size=ours.shape).astype(np.float32)
        out.backward(torch.tensor(d_out))
        same.backward(d_out)
        theirs = {
            name: w.value.grad.numpy() for name, w in named.items()
        }
        display(
            compare(
                theirs, to_layout(same, "keras", gradients=True)
            )
        )
else:
    print(
        "Keras is not installed here: pip install keras torch, "
        "then run this cell again"
    )

# %% [markdown]
# ## The layer of the older TensorFlow tutorial
#
# People still copy it everywhere. Its `call(v, k, q, mask)` has yet another order, and its mask is a float with **1 =
# blocked**, used as `scores += mask * -1e9`. In float64 and float32 this is nearly the same as a mask, except in a row
# that sees nothing:
#
# $$e^{s - 10^9} / \sum_j e^{s_j - 10^9} = e^{s} / \sum_j e^{s_j}$$
#
# > **Predict first.** By shift invariance (notebook 07), which weights does a row get if *every* key is blocked in
# > this way? And in float32, where -1e9 plus a score of size 1 is -1e9?
#
# <details><summary>Answer</summary>
#
# The row mixes exactly what it should not see: by the scores in float64, evenly in float32. In float16 the largest
# number is 65504, so -1e9 becomes -inf. Then the row's maximum is -inf as well, and their difference is NaN. In this
# library a row that sees nothing is 0, as in PyTorch's operator and ONNX.
# </details>

# %%
from mha_numpy import scaled_dot_product_attention, softmax_forward
from mha_numpy.teach.exercises import check, hint

scores = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
blocked = np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
in_64, in_32 = (
    softmax_forward((scores + blocked * -1e9).astype(dtype))[
        0
    ].astype(float)
    for dtype in (np.float64, np.float32)
)
ours = softmax_forward(scores, mask=blocked == 0)[0]
nothing = np.zeros((1, 5), dtype=bool)
print(
    scaled_dot_product_attention(
        q[0, 0, :1], k[0, 0], v[0, 0], mask=nothing
    )
)
matrices(
    {"-1e9, float64": in_64, "-1e9, float32": in_32, "mask": ours}
)

# %% [markdown]
# ## Exercise: the params of GPT-2
#
# Hugging Face's GPT-2 stores its projections in yet another way: `c_attn` of shape (D, 3D) is used as `x @ w + b`,
# **not** transposed, with queries, keys and values side by side in its columns; `c_proj` is (D, D). Write the map and
# its inverse. The inverse works for gradients as well, because entries only move. The check compares every entry.
#
# To practise more, try `museum-float-mask` in `mha-numpy exercises`, a bug that shipped where one convention for masks
# met another.


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
# - All libraries share the formula, but not the layout, the polarity of masks, the order of arguments or the defaults.
#   Translate these, and the numbers agree up to rounding, gradients included.
# - PyTorch's two attentions disagree about True. Put *may attend* or *blocked* into the name of your variable.
# - The weights you get back may be a mean over heads, or come after dropout. Find out before you draw them.
# - A bridge for params is a table: which array holds which, and how it is stored.
# - Params are (inputs, outputs) here and in GPT-2, (outputs, inputs) in PyTorch, and have a head axis in Keras. A
#   square array that you forgot to transpose has the right shape and the wrong content.
# - Test a bridge with different sizes, random biases, one row of padding, and the gradients.
#
# **In the code:** docs/conventions.md has all tables, with JAX and ONNX. `tests/parity` compares
# with PyTorch and ONNX, forward and, for PyTorch, backward.
#
# **Reference:** the documentation of `torch.nn.functional.scaled_dot_product_attention`,
# `torch.nn.MultiheadAttention`, `keras.layers.MultiHeadAttention`, and the ONNX operator
# `Attention`.
#
# **Next:** [28, wrong, or half right](28_wrong-or-half-right.ipynb).
