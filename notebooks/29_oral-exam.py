# %% [markdown]
# # 29 · Oral exam
#
# Both pictures show weights of the same queries and keys (16 of 64), which are random vectors of 1024 numbers. Only
# one factor is different. Which one is it, and which of the two heads could learn?

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import softmax_backward, softmax_forward
from mha_numpy.show.pictures import matrices

# %%
rng = np.random.default_rng(0)
q, k = rng.normal(size=(2, 64, 1024))
undivided, divided = (
    softmax_forward(scale * q @ k.T)
    for scale in (1, 1 / np.sqrt(1024))
)
matrices(
    {"A": undivided[0][:16, :16], "B": divided[0][:16, :16]},
    shared=False,
)

# %% [markdown]
# If you can answer in two sentences, you're ready. (If not, see question 2.) Here are twelve such questions from
# interviews and exams.
#
# **What you can do afterwards:** you can answer each question in a sentence or two (in bold), with the line of code or the number
# that proves it.
#
# > **Predict first.** Each time, say your answer aloud, then open ours and run the cell below it.
#
# Unless we say otherwise, params are random.
#
# ## 1. Why several heads and not one?
#
# <details><summary>Answer</summary>
#
# **One head gives each token one distribution over the others, and therefore one mean of values. Several heads give it
# several means, each through its own projections, side by side.** To read two tokens equally, one head must give 0.5
# to each, and then you can't tell which of them said what. Below: one head gives two sentences the same output. More:
# notebook 03.
# </details>

# %%
values = {
    "cat, mat": np.array([[1.0, 0.0], [0.0, 1.0]]),
    "mat, cat": np.array([[0.0, 1.0], [1.0, 0.0]]),
}
one_head = np.array([[0.5, 0.5]])  # reads both tokens at once
two_heads = np.array([[1.0, 0.0], [0.0, 1.0]])  # one token each
shown = {
    f"one head: {name}": one_head @ v for name, v in values.items()
}
shown |= {
    f"two heads: {name}": (two_heads @ v).reshape(1, 4)
    for name, v in values.items()
}
matrices(shown)

# %% [markdown]
# ## 2. Why is the dot product divided by the square root of d_k?
#
# <details><summary>Answer</summary>
#
# **The dot product of two independent vectors of d_k numbers, each with mean 0 and variance 1, has variance d_k. If
# you don't divide them, such scores drive softmax to weights near 0 and 1. There its Jacobian $\mathrm{diag}(p) -
# p\,p^\top$ is almost 0, and most gradients vanish.** Divided by $\sqrt{d_k}$, scores have variance 1 at any width. So
# B is the divided one. Below: how much of a random gradient softmax lets through, for the same 16 queries. More:
# notebook 06.
# </details>

# %%
d_weights = rng.normal(size=(64, 64))
passed = [
    softmax_backward(d_weights, cache).d_scores
    for _, cache in (undivided, divided)
]
norms = np.stack(
    [np.linalg.norm(d_scores, axis=-1)[:16] for d_scores in passed]
)
matrices(
    {"norm of each query's d_scores": norms},
    row_labels=["A: undivided", "B: divided"],
)

# %% [markdown]
# ## 3. Do all heads have the same params?
#
# <details><summary>Answer</summary>
#
# **No. Head h has its own $W_h^Q$, $W_h^K$, $W_h^V$: block h of the columns of `w_q`, `w_k`, `w_v`, and block h of the rows
# of `w_o`.** In grouped and multi-query attention several query heads share one $W^K$ and one $W^V$ (question 10).
#
# Two heads with equal params would get the same gradients and stay equal after every step. Random initial params make
# them different. Below: the gradients of two equal heads.
# </details>

# %%
from mha_numpy import (
    MultiHeadAttention,
    MultiHeadParams,
    compare,
    multi_head_attention_backward,
    multi_head_attention_forward,
)

layer = MultiHeadAttention(8, 2, rng=0)
alike = {name: array.copy() for name, array in layer.params.items()}
for name in ("w_q", "b_q", "w_k", "b_k", "w_v", "b_v"):
    alike[name][..., 4:] = alike[name][..., :4]  # head 1 = head 0
alike["w_o"][4:] = alike["w_o"][:4]
x, d_out = rng.normal(size=(2, 3, 5, 8))
_, cache = multi_head_attention_forward(
    x, params=MultiHeadParams(**alike), num_heads=2
)
grads = multi_head_attention_backward(d_out, cache).d_params
matrices(
    {"d_w_q": grads.w_q, "d_w_v": grads.w_v},
    column_labels=["0"] * 4 + ["1"] * 4,
)

# %% [markdown]
# ## 4. What happens after the heads are concatenated?
#
# <details><summary>Answer</summary>
#
# **One linear map follows, `out = merged @ w_o + b_o`. Until here every column belonged to one head; `w_o` is the
# first place where they meet.** A product with a wide row is a sum over its pieces. So the output is the *sum* over
# heads of `head_h @ w_o[block h]`, and each head writes into all D columns. Below: the shares of two heads, and their
# sum. More: notebook 03.
# </details>

# %%
from mha_numpy import split_heads

out, cache = multi_head_attention_forward(
    x, params=MultiHeadParams(**layer.params), num_heads=2
)
# the input of w_o, split into heads
heads = split_heads(cache.project_out.x, 2)
# a block of rows for each head
w_o = layer.params["w_o"].reshape(2, 4, 8)
shares = heads @ w_o  # (B, H, T, D)
total = shares.sum(axis=1) + layer.params["b_o"]
display(compare(total, out, name="sum of the heads' shares"))
matrices(
    {"head 0": shares[0, 0], "head 1": shares[0, 1], "out": out[0]}
)

# %% [markdown]
# ## 5. Can heads have different sizes?
#
# <details><summary>Answer</summary>
#
# **Mathematically, yes: you can concatenate heads of any width, as long as `w_o` has a row for each of their columns.
# Code prefers equal sizes, because then all heads fit into one array and one product.** Also, d_v may differ from d_k,
# and H d_k from D. Below are heads of widths 2 and 6 side by side, and a layer of width 8 with d_k = 3, d_v = 5.
# </details>

# %%
from mha_numpy import attention_forward

narrow, wide = (
    attention_forward(*rng.normal(size=(3, 2, 5, d)))[0]
    for d in (2, 6)
)
print(
    "side by side:", np.concatenate([narrow, wide], axis=-1).shape
)
uneven = MultiHeadAttention(8, 2, head_dim=3, value_dim=5)
(
    {
        name: array.shape
        for name, array in uneven.params.items()
        if name[0] == "w"
    },
    uneven(x).shape,
)

# %% [markdown]
# ## 6. Why do H heads of width D / H cost the same as one of width D, and why does it matter?
#
# <details><summary>Answer</summary>
#
# **The maps are D by D either way, so there are $4 D^2$ params. Scores and mix take $4\,T^2 d_k$ operations per head,
# and $H d_k = D$. So H cancels in both, and you can choose it by what it does for the model.** That is only half the
# truth: there are $H T^2$ *weights*, so softmax grows with H, and so does memory if you store the weights. Below, both
# are counted in real layers. More: notebook 25.
# </details>

# %%
from mha_numpy.tables import Table

D, T, rows = 512, 128, []
for H in (1, 8, 64):
    sized = MultiHeadAttention(D, H)
    _, weights = sized(np.ones((1, T, D)), return_weights=True)
    params = sum(array.size for array in sized.params.values())
    products = (
        4 * 2 * T * D * D + 2 * 2 * weights.size * sized.head_dim
    )
    rows.append(
        [
            str(H),
            f"{params:,}",
            f"{products:,}",
            f"{weights.size:,}",
        ]
    )
Table(
    "D = 512, T = 128",
    ["H", "params", "operations", "weights"],
    rows,
)

# %% [markdown]
# ## 7. Write out multi-head attention
#
# <details><summary>Answer</summary>
#
# **Project, compare, softmax and mix in each head; concatenate the heads; project.** For h = 1 ... H: $Q_h = X W_h^Q$,
# $K_h = X W_h^K$, $V_h = X W_h^V$;
#
# $$\text{head}_h = \text{softmax}\left(Q_h K_h^\top / \sqrt{d_k}\right) V_h,
# \qquad \text{MHA}(X) = \text{Concat}(\text{head}_1, \ldots, \text{head}_H)\, W^O$$
#
# Softmax runs over the keys. The shapes are x (B, T, D), q and k (B, H, T, d_k), v (B, H, T, d_v), scores
# and weights (B, H, T, T), heads (B, H, T, d_v), merged (B, T, H d_v), out (B, T, D). Below are these lines in NumPy.
# </details>

# %%
from mha_numpy import merge_heads

w = layer.params
q, k, v = (
    split_heads(x @ w[f"w_{name}"] + w[f"b_{name}"], 2)
    for name in "qkv"
)
scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
weights, _ = softmax_forward(scores)
written = merge_heads(weights @ v) @ w["w_o"] + w["b_o"]
compare(written, out, name="out")

# %% [markdown]
# ## 8. Name four kinds of specialised heads, and what each attends to
#
# <details><summary>Answer</summary>
#
# - **Positional**: the token at a fixed distance, before or after (Clark et al. 2019; Voita et al. 2019).
# - **Syntactic**: a word that this one depends on or governs, such as a verb's object (both papers).
# - **Coreference**: what a mention refers to, such as "it" to "the animal" (Clark et al.).
# - **Delimiter**: [CLS], [SEP] or the full stop, perhaps when the head has nothing to do (Clark et al.).
#
# If they want more: rare words (Voita et al.), induction heads (question 9). Nobody assigned these roles. People
# observed them in trained models, and in large models most heads do several things. Below are two **trained** heads.
# On this task and with this seed, one is positional, and the other continues what came before. More: notebooks 10, 20
# and 22.
# </details>

# %%
from mha_numpy.models.train import load_trained
from mha_numpy.show.pictures import weights_by_head

trained = load_trained("induction")
trained.model(np.array([[5, 9, 2, 7, 5, 9, 2]]))
pair = np.stack(
    [trained.model.attentions[i].weights[0, 0] for i in (0, 1)]
)
names = ["layer 0: positional", "layer 1: induction"]
by = "Trained: mha-numpy train induction."
weights_by_head(pair, list("abcdabc"), head_names=names, note=by)

# %% [markdown]
# ## 9. What is an induction head, which circuit builds it, and why does it matter?
#
# <details><summary>Answer</summary>
#
# **An induction head continues a pattern: after ... A B ... A it predicts B. A previous-token head in an earlier layer
# writes into each token which token came before it. The induction head's query, A, then matches the token that carries
# the note "A came before me". That token is B, and the head copies it.** The key has to know something about its
# neighbour, so in practice the circuit takes two layers. It matters because such heads copy repeats; in training they
# appear together with a sudden improvement at exactly that (Olsson et al. 2022). How much of learning from a prompt
# depends on them is debated. Below is the circuit, made by hand. In its last row the second A attends to B.
# </details>


# %%
def continue_pattern(text):
    """What two causal layers, made by hand, expect next."""
    place = np.eye(len(text))
    own = np.eye(26)[[ord(letter) - ord("A") for letter in text]]
    # large: weights close to 0 and 1
    see = {"is_causal": True, "scale": 30.0}
    # token t asks for place t - 1
    previous = np.eye(len(text), k=-1)
    # layer 1
    came_before, first = attention_forward(
        previous, place, own, **see
    )
    came_before[0] = 0  # no token comes before the first
    # layer 2
    copied, second = attention_forward(own, came_before, own, **see)
    return chr(ord("A") + copied[-1].argmax()), np.stack(
        [first.weights, second.weights]
    )


print(
    {
        text: continue_pattern(text)[0]
        for text in ("ABCDA", "ADCBA", "XYZZYX", "HELPHE")
    }
)
names = ["layer 1: previous token", "layer 2: induction"]
weights_by_head(
    continue_pattern("ABCDA")[1],
    list("ABCDA"),
    head_names=names,
    note="By hand.",
)

# %% [markdown]
# ## 10. Grouped-query attention against multi-head and multi-query: why do fewer key/value heads save memory?
#
# <details><summary>Answer</summary>
#
# **H query heads share H_kv key/value heads: H_kv = H is multi-head, 1 < H_kv < H grouped, H_kv = 1 multi-query. While
# it generates text, a model keeps the keys and values of all tokens so far in every layer. These are
# $2\,L\,H_{kv}\,T\,d_k$ numbers per sequence, and H doesn't appear in the formula.** Queries are used once and not
# kept. So the cache is G = H / H_kv times smaller, and each step reads that much less of it. Below: which head reads
# which, and one cache in three variants. More: notebook 17.
# </details>

# %%
from dataclasses import replace

from mha_numpy.models.cost import CONFIGURATIONS, kv_cache_bytes
from mha_numpy.show.pictures import bar_chart, sharing_map
from mha_numpy.teach.exercises import check, hint

display(sharing_map(8, 2))
llama = CONFIGURATIONS["llama-3-70b"]
variants = {
    "multi-head": 64,
    "grouped (as it is)": 8,
    "multi-query": 1,
}
cache_of = {
    name: kv_cache_bytes(replace(llama, num_kv_heads=H_kv), 8192)
    / 2**30
    for name, H_kv in variants.items()
}
bar_chart(
    cache_of,
    title="KV cache of Llama 3 70B, 8192 tokens, 16-bit",
    unit="GiB",
)

# %% [markdown]
# ## 11. 32 query heads, 4 key/value heads: how much smaller is the cache?
#
# <details><summary>Answer</summary>
#
# **8 times: multi-head would keep 32 key/value heads, grouped keeps 4.** Everything else cancels. (Texts that say "4
# groups" mean these 4; a group then has 8 query heads.)
# </details>

# %%
mistral = CONFIGURATIONS["mistral-7b"]  # 32 query heads
multi_head, grouped = (
    replace(mistral, num_kv_heads=H_kv) for H_kv in (32, 4)
)
kv_cache_bytes(multi_head, 4096) / kv_cache_bytes(grouped, 4096)

# %% [markdown]
# ## 12. How does the number of heads affect quality and cost, and how do you choose it?
#
# <details><summary>Answer</summary>
#
# **With H d_k = D, only softmax and the memory for weights grow with H. For quality, more heads mean more
# distributions, but from narrower heads, whose scores have rank d_k at most. In practice you take d_k = 64 or 128, and
# H = D / d_k follows.** The cache decides about H_kv. After training, you can remove many heads at little cost,
# measured by the loss on one task; starting with fewer heads *before* training is worse. Below: the rank of scores,
# and how many known models have which d_k. More: notebook 25.
# </details>

# %%
for d_k in (2, 8, 64):
    q, k = rng.normal(size=(2, 32, d_k))
    print(
        f"d_k = {d_k:2}: 32 x 32 scores of rank "
        f"{np.linalg.matrix_rank(q @ k.T)}"
    )
widths = [model.head_dim for model in CONFIGURATIONS.values()]
counts = {
    f"d_k = {d_k}": widths.count(d_k) for d_k in sorted(set(widths))
}
bar_chart(counts, title="Widths of a head", unit="known models")

# %% [markdown]
# ## Exercise: which head matters?
#
# Multiply head h by a gate $g_h$; all gates are 1. The gradient of a gate says how the loss reacts if you weaken its
# head. Michel et al. use its size as the head's importance. Derive it: `gated = heads * gate[:, None, None]`.
#
# To practise more, try `head-importance` (the size itself) and `museum-split` (a bug that shipped) in `mha-numpy
# exercises`.


# %% tags=["exercise"]
def my_d_head_gate(d_gated, heads):
    """d_gated, heads (B, H, T_q, d_v) -> (H,): the gradient of the
    gates, one for each head.
    """
    ...  # your code


# %% tags=["check"]
check("head-gates", my_d_head_gate)

# %% tags=["hint"]
# hint("head-gates")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# For each answer you now know a cell that proves it.
#
# - Heads have separate distributions at a shared cost. They meet in `w_o`, where their shares add up.
# - The scale keeps softmax where gradients pass. Products do not depend on H; weights do.
# - With fewer key/value heads, decoding has less to keep and less to read.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*; Michel et al. 2019, *Are Sixteen Heads Really Better
# than One?*; Behnke and Heafield 2020, *Losing Heads in the Lottery*; Voita et al. 2019, *Analyzing Multi-Head
# Self-Attention*; Clark et al. 2019, *What Does BERT Look At?*; Olsson et al. 2022, *In-context Learning and Induction
# Heads*; Ainslie et al. 2023, *GQA*; Shazeer 2019, *Fast Transformer Decoding*.
