# %% [markdown]
# # 29 · Oral exam
#
# Both pictures show weights of the same 64 queries and keys, random vectors of 1024 numbers; you see 16 of each. The
# scores of A and B differ by one factor. Which is it, and which of the two heads could learn?

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    MultiHeadAttention,
    MultiHeadParams,
    attention_forward,
    compare,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    softmax_backward,
    softmax_forward,
    split_heads,
)
from mha_numpy.show.pictures import (
    bar_chart,
    matrices,
    sharing_map,
    weights_by_head,
)
from mha_numpy.tables import Table

# %% tags=["hide-input"]
rng = np.random.default_rng(0)
q, k = rng.normal(size=(2, 64, 1024))
A, cache_A = softmax_forward(q @ k.T)
B, cache_B = softmax_forward(q @ k.T / np.sqrt(1024))
matrices({"A": A[:16, :16], "B": B[:16, :16]}, shared=False)

# %% [markdown]
# If you can answer in two sentences, you're ready. (If not, see question 2.) Here are twelve such questions.
#
# **By the end you can** answer each question in a sentence or two, and show the line of code or the
# number that proves it.
#
# > **Predict first.** Each time, say your answer aloud, then open ours and run its cell.
#
# Unless we say otherwise, params are random.
#
# ## 1. Why several heads and not one?
#
# <details><summary>Answer</summary>
#
# **One head gives each token one distribution over the others, and therefore one mean of values. Several heads give
# it several means, each through its own projections, side by side.** To read two tokens equally, one head must give
# 0.5 to each, and then you can't tell which said what. (With unequal weights an MLP may learn to. A linear
# map needs values with places, or a third token.) Here, one head gives both sentences one output. More: 03 and 25.
# </details>

# %%
sentences = {"cat, mat": np.eye(2), "mat, cat": np.eye(2)[::-1]}
one_head = np.array([[0.5, 0.5]])  # reads both tokens at once
two_heads = np.array([[1.0, 0.0], [0.0, 1.0]])  # one token each
shown = {}
for name, values in sentences.items():
    shown[f"one head: {name}"] = one_head @ values
for name, values in sentences.items():
    shown[f"two heads: {name}"] = (two_heads @ values).reshape(1, 4)
matrices(shown)

# %% [markdown]
# ## 2. Why is the dot product divided by the square root of d_k?
#
# <details><summary>Answer</summary>
#
# **The dot product of two independent vectors of d_k numbers, each with mean 0 and variance 1, has variance d_k. If
# you don't divide them, such scores drive softmax to weights near 0 and 1. There, its Jacobian $\mathrm{diag}(p) -
# p\,p^\top$ is almost 0, and it passes little gradient on.** Divided by $\sqrt{d_k}$, scores have variance 1 at any
# width. So B is the divided one. Below: how much of a gradient softmax lets through. More: notebook 06.
# </details>

# %%
d_weights, norms = rng.normal(size=(64, 64)), []
for cache in (cache_A, cache_B):
    d_scores = softmax_backward(d_weights, cache).d_scores
    norms.append(np.linalg.norm(d_scores, axis=-1)[:16])
shown = {"norm of each query's d_scores": np.stack(norms)}
matrices(shown, row_labels=["A: undivided", "B: divided"])

# %% [markdown]
# ## 3. Do all heads have the same params?
#
# <details><summary>Answer</summary>
#
# **No. Head h has its own $W_h^Q$, $W_h^K$, $W_h^V$: block h of the columns of `w_q`, `w_k`, `w_v`, and block h of
# the rows of `w_o`.** In grouped and multi-query attention several query heads share one $W^K$ and one $W^V$
# (question 10).
#
# Two heads with equal params, treated equally, get the same gradients and stay equal, up to rounding. Random
# initial params differ. Below: the gradients of two.
# </details>

# %%
layer = MultiHeadAttention(8, 2, rng=0)
alike = {name: array.copy() for name, array in layer.params.items()}
for name in ("w_q", "b_q", "w_k", "b_k", "w_v", "b_v"):
    alike[name][..., 4:] = alike[name][..., :4]  # head 1 = head 0
alike["w_o"][4:] = alike["w_o"][:4]

x, d_out = rng.normal(size=(2, 3, 5, 8))
w = MultiHeadParams(**alike)
_, cache = multi_head_attention_forward(x, params=w, num_heads=2)
grads = multi_head_attention_backward(d_out, cache).d_params
heads = ["0"] * 4 + ["1"] * 4
shown = {"d_w_q": grads.w_q, "d_w_v": grads.w_v}
matrices(shown, column_labels=heads)

# %% [markdown]
# ## 4. What happens after the heads are concatenated?
#
# <details><summary>Answer</summary>
#
# **One linear map follows, `out = merged @ w_o + b_o`. Until here every column belonged to one head; `w_o` is the
# first place where they meet.** A wide row times `w_o` is the sum of its pieces times blocks of rows. So the output
# is the *sum* over heads of `head_h @ w_o[block h]`, and each head writes into all D columns. Below are both
# shares and the output. More: notebook 03.
# </details>

# %%
w = MultiHeadParams(**layer.params)
out, cache = multi_head_attention_forward(x, params=w, num_heads=2)
heads = split_heads(cache.project_out.x, 2)  # the input of w_o
blocks = w.w_o.reshape(2, 4, 8)  # a block of rows for each head
shares = heads @ blocks  # (B, H, T, D)
total = shares.sum(axis=1) + w.b_o
display(compare(total, out, name="sum of the heads' shares"))
shown = {"head 0": shares[0, 0], "head 1": shares[0, 1]}
matrices(shown | {"out": out[0]})

# %% [markdown]
# ## 5. Can heads have different sizes?
#
# <details><summary>Answer</summary>
#
# **Yes: you can concatenate heads of any width, as long as `w_o` has a row for each of their columns.
# Code prefers equal sizes, because then all heads fit into one array and one product.** Also, d_v may differ from
# d_k, and H d_k from D. Below are heads of widths 2 and 6 side by side, and a layer with d_k = 3 and d_v = 5.
# </details>

# %%
narrow, _ = attention_forward(*rng.normal(size=(3, 2, 5, 2)))
wide, _ = attention_forward(*rng.normal(size=(3, 2, 5, 6)))
both = np.concatenate([narrow, wide], axis=-1)
print("side by side:", both.shape)
uneven = MultiHeadAttention(8, 2, head_dim=3, value_dim=5)
for name in ("w_q", "w_k", "w_v", "w_o"):
    print(f"{name}:", uneven.params[name].shape)
print("out:", uneven(x).shape)

# %% [markdown]
# ## 6. Why do H heads of width D / H cost the same as one of width D, and why does it matter?
#
# <details><summary>Answer</summary>
#
# **The maps are D by D either way, so there are $4 D^2$ params. Scores and mix take $4\,T^2 d_k$ operations per head,
# and $H d_k = D$. So H cancels in both, and you can choose it by what it does for the model.** That's only half the
# truth: there are $H T^2$ *weights*, so softmax grows with H, and so does memory if you store the weights. More:
# notebook 25.
# </details>

# %%
D, T, rows = 512, 128, []
for H in (1, 8, 64):
    sized = MultiHeadAttention(D, H)
    _, weights = sized(np.ones((1, T, D)), return_weights=True)
    operations = 4 * 2 * T * D * D  # four projections
    operations += 2 * 2 * weights.size * sized.head_dim
    counts = (sized.num_parameters, operations, weights.size)
    rows.append([str(H), *(f"{count:,}" for count in counts)])
columns = ["H", "params", "operations", "weights"]
Table("D = 512, T = 128", columns, rows)

# %% [markdown]
# ## 7. Write out multi-head attention
#
# <details><summary>Answer</summary>
#
# **Project, compare, softmax and mix in each head; concatenate the heads; project.** For h = 1 ... H:
# $Q_h = X W_h^Q$, $K_h = X W_h^K$, $V_h = X W_h^V$;
#
# $$\text{head}_h = \text{softmax}\left(Q_h K_h^\top / \sqrt{d_k}\right) V_h,
# \qquad \text{MHA}(X) = \text{Concat}(\text{head}_1, \ldots, \text{head}_H)\, W^O$$
#
# Softmax runs over the keys. The shapes are x (B, T, D), q and k (B, H, T, d_k), v (B, H, T, d_v), scores and weights
# (B, H, T, T), heads (B, H, T, d_v), merged (B, T, H d_v), out (B, T, D).
# </details>

# %%
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
# Also: rare words (Voita et al.), induction heads (question 9). Nobody assigned these roles. People saw them in trained
# models, and in large models most heads have several. Below are two **trained**
# heads. With this task and seed, one is positional, and the other continues what came before. More: notebooks 10, 20
# and 23.
# </details>

# %%
from mha_numpy.models.train import load_trained

model = load_trained("induction").model
model(np.array([[5, 9, 2, 7, 5, 9, 2]]))
pair = np.stack([a.weights[0, 0] for a in model.attentions])
names = ["layer 0: positional", "layer 1: induction"]
by = "Trained: mha-numpy train induction."
weights_by_head(pair, list("abcdabc"), head_names=names, note=by)

# %% [markdown]
# ## 9. What is an induction head, which circuit builds it, and why does it matter?
#
# <details><summary>Answer</summary>
#
# **An induction head continues a pattern: after ... A B ... A it predicts B. A previous-token head in an earlier
# layer writes into each token which token came before it. The induction head's query, A, then matches the token that
# carries the note "A came before me". That token is B, and the head copies it.** The key has to know something about
# its neighbour, so in practice the circuit takes two layers. It matters because such heads copy repeats; in training
# they appear together with a sudden improvement at exactly that (Olsson et al. 2022). How much of learning from a
# prompt depends on them is debated. Below is the circuit, made by hand. In the last row of layer 2, the second A
# attends to B.
# </details>


# %%
see = {"is_causal": True, "scale": 30.0}  # weights near 0 and 1


def continue_pattern(text):
    """What two causal layers, made by hand, expect next."""
    place = np.eye(len(text))
    own = np.eye(26)[[ord(letter) - ord("A") for letter in text]]
    back = np.eye(len(text), k=-1)  # token t asks for place t - 1
    before, first = attention_forward(back, place, own, **see)
    before[0] = 0  # no token comes before the first
    copied, second = attention_forward(own, before, own, **see)
    weights = np.stack([first.weights, second.weights])
    return chr(ord("A") + copied[-1].argmax()), weights


for text in ("ABCDA", "ADCBA", "XYZZYX", "HELPHE"):
    print(f"{text}: next is {continue_pattern(text)[0]}")
_, weights = continue_pattern("ABCDA")
names = ["layer 1: previous token", "layer 2: induction"]
options = {"head_names": names, "note": "By hand."}
weights_by_head(weights, list("ABCDA"), **options)

# %% [markdown]
# ## 10. Grouped-query attention against multi-head and multi-query: why do fewer key/value heads save memory?
#
# <details><summary>Answer</summary>
#
# **H query heads share H_kv key/value heads: H_kv = H is multi-head, 1 < H_kv < H grouped, H_kv = 1 multi-query.
# While it generates text, a model keeps the keys and values of all T tokens so far, in each of its L layers. These
# are $2\,L\,H_{kv}\,T\,d_k$ numbers per sequence, and H doesn't appear in the formula.** Queries are used once and
# not kept. So the cache is H / H_kv times smaller, and each step has that much less to read. Below: which head reads
# which, and one cache in three variants. More: notebook 17.
# </details>

# %%
from dataclasses import replace

from mha_numpy.models.cost import CONFIGURATIONS, kv_cache_bytes
from mha_numpy.teach.exercises import check, hint

display(sharing_map(8, 2))
llama, gib = CONFIGURATIONS["llama-3-70b"], {}
sizes = {"multi-head": 64, "grouped, as it is": 8, "multi-query": 1}
for name, H_kv in sizes.items():
    variant = replace(llama, num_kv_heads=H_kv)
    gib[name] = kv_cache_bytes(variant, 8192) / 2**30
title = "KV cache of Llama 3 70B, 8192 tokens, 16-bit"
bar_chart(gib, title=title, unit="GiB")

# %% [markdown]
# ## 11. 32 query heads, 4 key/value heads: how much smaller is the cache?
#
# <details><summary>Answer</summary>
#
# **8 times: multi-head would keep 32 key/value heads, grouped keeps 4.** (Texts that say "4 groups" mean these 4; a
# group then has 8 query heads.)
# </details>

# %%
mistral = CONFIGURATIONS["mistral-7b"]  # 32 query heads
multi_head = replace(mistral, num_kv_heads=32)
grouped = replace(mistral, num_kv_heads=4)
kv_cache_bytes(multi_head, 4096) / kv_cache_bytes(grouped, 4096)

# %% [markdown]
# ## 12. How does the number of heads affect quality and cost, and how do you choose it?
#
# <details><summary>Answer</summary>
#
# **With H d_k = D, only softmax and the memory for weights grow with H. For quality, more heads mean more
# distributions, but from narrower heads, whose scores have rank d_k at most. Most models take d_k = 64 or 128, and
# often H = D / d_k.** Far too many train slowly (notebook 25). For H_kv, the size of the cache decides. Removing heads
# after training often costs little, which says little about *starting* with fewer. For a translator it was worse
# (Behnke and Heafield 2020). In `mha-numpy experiment redundancy`, one wide head learned sooner than eight that share
# its width, but failed with one of five seeds; one as narrow as theirs failed with four. Below: ranks, and known
# widths.
# </details>

# %%
for d_k in (2, 8, 64):
    q, k = rng.normal(size=(2, 32, d_k))
    rank = np.linalg.matrix_rank(q @ k.T)
    print(f"d_k = {d_k:2}: 32 x 32 scores of rank {rank}")
widths = [model.head_dim for model in CONFIGURATIONS.values()]
counts = {f"d_k = {d}": widths.count(d) for d in (64, 128, 256)}
bar_chart(counts, title="Widths of a head", unit="known models")

# %% [markdown]
# ## Exercise: which head matters?
#
# Multiply head h by a gate $g_h$, where all gates are 1. The gradient of a gate says how the loss reacts if you
# weaken that head, so Michel et al. use its size as the head's importance. Derive it from
# `gated = heads * gate[:, None, None]`.
#
# To practise more, try `head-importance` and `museum-split` in `mha-numpy exercises`.


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
# - Heads have separate distributions, at the cost of one wide head. They meet in `w_o`, where their shares add up.
# - The scale keeps softmax where gradients pass. Multiply-adds don't depend on H; weights do.
# - With fewer key/value heads, decoding has less to keep and less to read.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*; Michel et al. 2019, *Are Sixteen Heads Really
# Better than One?*; Behnke and Heafield 2020, *Losing Heads in the Lottery*; Voita et al. 2019, *Analyzing Multi-Head
# Self-Attention*; Clark et al. 2019, *What Does BERT Look At?*; Olsson et al. 2022, *In-context Learning and
# Induction Heads*; Ainslie et al. 2023, *GQA*; Shazeer 2019, *Fast Transformer Decoding*.
