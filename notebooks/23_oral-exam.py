# %% [markdown]
# # 23 · Oral exam
#
# Twelve questions of the kind that interviews and exams ask about multi-head attention. Say your
# answer aloud before you open ours; then run the cell below it, which shows that the answer is
# true. After that come sentences in circulation that are wrong or half right, each put right, most
# of them with a cell.
#
# **You will learn**
#
# - an answer to each question in a sentence or two (in bold), and what to say when they ask on;
# - the line of code, or the number, that proves the answer;
# - which popular sentences not to repeat, and why.

# %%
from dataclasses import replace

import numpy as np

from mha_numpy import (
    MultiHeadAttention,
    MultiHeadParams,
    attention_forward,
    causal_mask,
    compare,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    softmax_backward,
    softmax_forward,
    split_heads,
)
from mha_numpy.analysis import head_importance
from mha_numpy.cost import CONFIGURATIONS, count_flops, kv_cache_bytes
from mha_numpy.draw import bar_chart, line_chart, matrices, sharing_map, weights_by_head
from mha_numpy.exercises import check, hint
from mha_numpy.tables import Table
from mha_numpy.train import load_trained, share_right

rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. Why several heads, and not one?
#
# > **Predict first.** Answer aloud. Then: to read two tokens, one head must give 0.5 to each. What
# > can it *not* tell its reader that two heads can?
#
# <details><summary>Answer</summary>
#
# **One head gives each token one distribution over the others, and so one mean of values. Several
# heads give it several, each by its own projections, and lay the results side by side.** A mean of
# two tokens is not the two tokens: which of them said what is lost. Params and products stay the
# same (question 6).
#
# Shown below: two sentences with the same mean; with two heads their outputs differ. More:
# notebook 03.
# </details>

# %%
values = {
    "cat, mat": np.array([[1.0, 0.0], [0.0, 1.0]]),
    "mat, cat": np.array([[0.0, 1.0], [1.0, 0.0]]),
}
one_head = np.array([[0.5, 0.5]])  # reads both tokens at once
two_heads = np.array([[1.0, 0.0], [0.0, 1.0]])  # one token each
shown = {f"one head: {name}": one_head @ v for name, v in values.items()}
shown |= {f"two heads: {name}": (two_heads @ v).reshape(1, 4) for name, v in values.items()}
matrices(shown)

# %% [markdown]
# ## 2. Why is the dot product divided by the square root of d_k?
#
# <details><summary>Answer</summary>
#
# **The dot product of two independent vectors of d_k numbers, each with mean 0 and variance 1, has
# variance d_k. Undivided, such scores drive softmax to weights near 0 and 1, where its Jacobian
# $\mathrm{diag}(p) - p\,p^\top$ is almost 0, and most gradients vanish.** Divided by $\sqrt{d_k}$,
# scores have variance 1 at any width.
#
# Shown below for d_k = 1024 and 64 queries: the variance, and of the middle query (the median) its
# largest weight and what softmax lets through of a random gradient. More: notebook 06.
# </details>

# %%
q, k = rng.normal(size=(2, 64, 1024))
d_weights = rng.normal(size=(64, 64))


def at_scale(scale):
    """Scores, weights, d_scores, d_q."""
    scores = scale * q @ k.T
    weights, cache = softmax_forward(scores)
    d_scores = softmax_backward(d_weights, cache).d_scores
    return scores, weights, d_scores, scale * d_scores @ k


undivided, divided = at_scale(1.0), at_scale(1 / np.sqrt(1024))

# %%
rows = []
for name, (scores, weights, d_scores, _) in {"no": undivided, "yes": divided}.items():
    largest, passed = weights.max(axis=-1), np.linalg.norm(d_scores, axis=-1)
    numbers = scores.var(), np.median(largest), np.median(passed)
    rows.append([name, *(f"{number:.4f}" for number in numbers)])
columns = ["divided", "variance of the scores", "largest weight", "norm of d_scores"]
Table("With and without the scale, d_k = 1024", columns, rows)

# %% [markdown]
# ## 3. Do all heads have the same params?
#
# <details><summary>Answer</summary>
#
# **No. Head h has its own $W_h^Q$, $W_h^K$, $W_h^V$: block h of the columns of `w_q`, `w_k`, `w_v`,
# and block h of the rows of `w_o`.** In grouped and multi-query attention several query heads share
# one $W^K$ and one $W^V$ (question 10).
#
# If two heads had equal params, they would compute the same, get the same gradients, and be equal
# after every step. Random initial params are what tells them apart. Shown below: the gradients of
# two heads that begin alike.
# </details>

# %%
layer = MultiHeadAttention(8, 2, rng=0)
alike = {name: array.copy() for name, array in layer.params.items()}
for name in ("w_q", "b_q", "w_k", "b_k", "w_v", "b_v"):
    alike[name][..., 4:] = alike[name][..., :4]  # head 1 = head 0
alike["w_o"][4:] = alike["w_o"][:4]
x, d_out = rng.normal(size=(2, 3, 5, 8))
_, cache = multi_head_attention_forward(x, params=MultiHeadParams(**alike), num_heads=2)
grads = multi_head_attention_backward(d_out, cache).d_params
blocks = {f"d_{name}": np.split(getattr(grads, name), 2, axis=1) for name in ("w_q", "w_k", "w_v")}
blocks["d_w_o"] = np.split(grads.w_o, 2)
compare({name: b[1] for name, b in blocks.items()}, {name: b[0] for name, b in blocks.items()})

# %% [markdown]
# ## 4. What happens after the heads are concatenated?
#
# <details><summary>Answer</summary>
#
# **One linear map, `out = merged @ w_o + b_o`. Until here every column belonged to one head; `w_o`
# is the first place where they meet.** A product with a wide row is a sum over its pieces, so the
# output is the *sum* over heads of `head_h @ w_o[block h]`: each head writes into all D columns,
# and the shares add up.
#
# Shown below: the sum of the shares against the layer's output. More: notebook 03.
# </details>

# %%
out, cache = multi_head_attention_forward(x, params=MultiHeadParams(**layer.params), num_heads=2)
heads = split_heads(cache.project_out.x, 2)  # what w_o reads, cut into heads
w_o = layer.params["w_o"].reshape(2, 4, 8)  # a block of rows for each head
shares = heads @ w_o  # (B, H, T, D)
compare(shares.sum(axis=1) + layer.params["b_o"], out, name="sum of the heads' shares")

# %% [markdown]
# ## 5. Can heads have different sizes?
#
# <details><summary>Answer</summary>
#
# **In the mathematics yes: concatenation does not care how wide its pieces are, as long as `w_o`
# has a row for each of their columns. Code prefers equal sizes: they make one array and one
# product.** Two other sizes are free as well: d_v may differ from d_k, and H d_k from D.
#
# Shown below: heads of widths 2 and 6 side by side; and a layer of width 8 with d_k = 3, d_v = 5.
# </details>

# %%
narrow, wide = (attention_forward(*rng.normal(size=(3, 2, 5, d)))[0] for d in (2, 6))
np.concatenate([narrow, wide], axis=-1).shape

# %%
uneven = MultiHeadAttention(8, 2, head_dim=3, value_dim=5)
{name: array.shape for name, array in uneven.params.items() if name[0] == "w"}, uneven(x).shape

# %% [markdown]
# ## 6. Why do H heads of width D / H cost the same as one of width D, and why does it matter?
#
# <details><summary>Answer</summary>
#
# **Params: the maps are D by D either way, $4 D^2$ in all. Operations: scores and mix take
# $4\,T^2 d_k$ for each head, and $H d_k = D$. So H drops out of both, and may be chosen by what it does for
# the model.** Only half the truth, though: there are $H T^2$ *weights*, so softmax, and memory where
# weights are kept, grow with H.
#
# Shown below: params and weights, counted in real layers, and operations of the products, by their
# sizes. More: notebook 21.
# </details>

# %%
D, T, rows = 512, 128, []
for H in (1, 8, 64):
    sized = MultiHeadAttention(D, H)
    _, weights = sized(np.ones((1, T, D)), return_weights=True)
    params = sum(array.size for array in sized.params.values())
    products = 4 * 2 * T * D * D + 2 * 2 * weights.size * sized.head_dim
    rows.append([str(H), f"{params:,}", f"{products:,}", f"{weights.size:,}"])
Table("D = 512, T = 128", ["H", "params", "operations", "weights"], rows)

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
# with $W_h^Q, W_h^K$: (D, d_k), $W_h^V$: (D, d_v), $W^O$: (H d_v, D); each product may have a bias.
# Softmax goes over the keys. Say the shapes as you write: x (B, T, D), q and k (B, H, T, d_k), v
# (B, H, T, d_v), scores and weights (B, H, T, T), heads (B, H, T, d_v), merged (B, T, H d_v), out
# (B, T, D).
#
# Shown below: these lines in NumPy against the library.
# </details>

# %%
w = layer.params
q, k, v = (split_heads(x @ w[f"w_{name}"] + w[f"b_{name}"], 2) for name in "qkv")
scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
weights, _ = softmax_forward(scores)
written = merge_heads(weights @ v) @ w["w_o"] + w["b_o"]
compare(written, out, name="out")

# %% [markdown]
# ## 8. Name four kinds of specialised heads, and what each attends to
#
# <details><summary>Answer</summary>
#
# - **Positional**: the token before or after, at a fixed distance (Clark et al. 2019; Voita et al.
#   2019).
# - **Syntactic**: a word that this one depends on or governs, such as a verb's object (both
#   papers).
# - **Coreference**: what a mention stands for, as "it" for "the animal" (Clark et al.).
# - **Delimiter**: [CLS], [SEP] or the full stop, perhaps where the head has nothing to do (Clark et
#   al.).
#
# If they ask on: heads that point to the rarest words of a sentence (Voita et al.), induction heads
# (question 9). "Semantic" heads are on many lists; the two papers have no kind of that name. And
# these are observations on trained models, not roles that anybody assigned. Weights say where a
# head *reads*; what it does to the output also depends on values, `w_o` and later layers.
#
# Shown below: two heads that were trained, by `mha-numpy train induction`, on "a b c d a b c". On this task, in this
# seed, one is positional, the other continues what came before. More: notebooks 03, 16 and 18.
# </details>

# %%
trained = load_trained("induction")
trained.model(np.array([[5, 9, 2, 7, 5, 9, 2]]))
pair = np.stack([trained.model.attentions[i].weights[0, 0] for i in (0, 1)])
names, by = ["layer 0: positional", "layer 1: induction"], "Trained: mha-numpy train induction."
weights_by_head(pair, list("abcdabc"), head_names=names, note=by)

# %% [markdown]
# ## 9. What is an induction head, which circuit makes it, and why does it matter?
#
# <details><summary>Answer</summary>
#
# **A head that continues a pattern: after ... A B ... A it predicts B. A previous-token head in an
# earlier layer writes into each token which token stood before it; the induction head's query, A,
# then matches the token into which "A stood before me" is written. That is B, and B is copied.**
# The usual circuit takes two layers, since the key has to know about a neighbour. It matters
# because it lets a model follow examples in its prompt with no change of params; in training, such
# heads appear together with a sudden improvement at just that (Olsson et al. 2022).
#
# Shown below: the circuit in one-hot vectors, causal, made by hand, on four texts.
# </details>


# %%
def continue_pattern(text):
    """The letter that two causal layers, made by hand, expect next, and their weights."""
    place, own = np.eye(len(text)), np.eye(26)[[ord(letter) - ord("A") for letter in text]]
    see = {"is_causal": True, "scale": 30.0}  # large: weights close to 0 and 1
    previous = np.eye(len(text), k=-1)  # token t asks for place t - 1
    stood_before, first = attention_forward(previous, place, own, **see)  # layer 1
    stood_before[0] = 0  # nothing stands before the first token
    copied, second = attention_forward(own, stood_before, own, **see)  # layer 2
    return chr(ord("A") + copied[-1].argmax()), np.stack([first.weights, second.weights])


{text: continue_pattern(text)[0] for text in ("ABCDA", "ADCBA", "XYZZYX", "HELPHE")}

# %%
weights_by_head(
    continue_pattern("ABCDA")[1],
    list("ABCDA"),
    visible=causal_mask(5),
    head_names=["layer 1: previous token", "layer 2: induction"],
)

# %% [markdown]
# Look at the last row of layer 2: the second A attends to B. The rows of B, C and D find nothing
# that matches, and are uniform.
#
# ## 10. Grouped-query attention against multi-head and multi-query: why do fewer key/value heads save memory?
#
# <details><summary>Answer</summary>
#
# **H query heads share H_kv key/value heads: H_kv = H is multi-head, 1 < H_kv < H grouped, H_kv = 1
# multi-query. While text is generated, keys and values of all tokens so far are kept in every
# layer, $2\,L\,H_{kv}\,T\,d_k$ numbers a sequence, and H does not occur in that.** The G = H / H_kv query
# heads of a group have queries of their own and read the same keys and values. Queries are not
# kept: each is used once. So the cache is G times smaller, and so is what each step must read of
# it.
#
# Shown below: who reads whom; the cache of Llama 3 70B in three variants. More: notebook 15.
# </details>

# %%
sharing_map(8, 2)

# %%
llama = CONFIGURATIONS["llama-3-70b"]
variants = {"multi-head": 64, "grouped (as it is)": 8, "multi-query": 1}
cache_of = {
    name: kv_cache_bytes(replace(llama, num_kv_heads=H_kv), 8192) / 2**30
    for name, H_kv in variants.items()
}
bar_chart(cache_of, title="KV cache of Llama 3 70B, 8192 tokens, 16-bit", unit="GiB")

# %% [markdown]
# ## 11. 32 query heads, 4 key/value heads: how much smaller is the cache?
#
# <details><summary>Answer</summary>
#
# **8 times: multi-head would keep 32 key/value heads, grouped keeps 4.** Layers, tokens and the
# width of a head cancel. (Texts that speak of "4 groups" mean the 4; a group then has 8 query
# heads.)
# </details>

# %%
mistral = CONFIGURATIONS["mistral-7b"]  # 32 query heads
multi_head, grouped = (replace(mistral, num_kv_heads=H_kv) for H_kv in (32, 4))
kv_cache_bytes(multi_head, 4096) / kv_cache_bytes(grouped, 4096)

# %% [markdown]
# ## 12. How does the number of heads affect quality and cost, and how is it chosen?
#
# <details><summary>Answer</summary>
#
# **Cost: with H d_k = D, params and products do not change; softmax and the memory of weights grow
# with H. Quality: more heads are more distributions, but narrower ones: the scores of a head have
# rank d_k at most. In practice one takes d_k = 64 or 128, and H = D / d_k follows.** Too few heads
# must compromise, too narrow ones cannot match well. H_kv is chosen by the cache. Many trained
# heads can be removed with little loss, so H is not a delicate choice.
#
# Shown below: the rank of a head's scores; which models have which d_k. More: notebook 21.
# </details>

# %%
for d_k in (2, 8, 64):
    q, k = rng.normal(size=(2, 32, d_k))
    print(f"d_k = {d_k:2}: 32 x 32 scores of rank {np.linalg.matrix_rank(q @ k.T)}")

# %%
widths = sorted({model.head_dim for model in CONFIGURATIONS.values()})
{d_k: [name for name, m in CONFIGURATIONS.items() if m.head_dim == d_k] for d_k in widths}

# %% [markdown]
# # Wrong, or half right
#
# Sentences that texts on attention repeat. Say what is wrong before you open the correction.
#
# ## "Scaling prevents exploding gradients"
#
# <details><summary>Correction</summary>
#
# The scale prevents *vanishing* ones: question 2 saw softmax let through almost nothing of most
# rows. And softmax cannot blow up a gradient: the norm of its Jacobian is at most 1/2 (notebook
# 07). The grain of truth: d_q is d_scores times scale times k, so without the scale the few rows
# that are still open get more, by a factor of the order of $\sqrt{d_k}$. Nothing runs away. Below:
# norms of the rows of d_q.
# </details>

# %%
rows = []
for name, (*_, d_q) in {"no": undivided, "yes": divided}.items():
    norms = np.linalg.norm(d_q, axis=-1)
    rows.append([name, f"{np.median(norms):.4f}", f"{norms.max():.4f}"])
Table("Rows of d_q, d_k = 1024", ["divided", "norm of the middle row", "of the largest"], rows)

# %% [markdown]
# ## "Multi-head attention is H times as expensive" and "it is free"
#
# <details><summary>Correction</summary>
#
# Products and params: the same. Weights, and softmax: $H T^2$, so H times as many (question 6). And
# "$O(n^2 d)$" leaves out the projections, $O(n d^2)$, which take more for a short sequence. Below:
# GPT-2's operations.
# </details>

# %%
rows = []
for T in (128, 1024, 8192):
    f = count_flops(CONFIGURATIONS["gpt-2"], T)
    rows.append([str(T), *(f"{n:.1e}" for n in (f.projections, f.scores + f.mix, f.feed_forward))])
Table("GPT-2, all layers", ["T", "projections", "scores and mix", "feed-forward"], rows)

# %% [markdown]
# ## "Each head needs its own projection, so H products"
#
# <details><summary>Correction</summary>
#
# Each head has its own params, but one wide product computes all: block h of the columns of
# `x @ w_q` is `x @ w_q[:, block h]`.
# </details>

# %%
wide = x @ layer.params["w_q"]
narrow = [x @ layer.params["w_q"][:, 4 * h : 4 * h + 4] for h in range(2)]
compare(np.concatenate(narrow, axis=-1), wide, name="two narrow products against a wide one")

# %% [markdown]
# ## "Q_h = X W_h^O"
#
# <details><summary>Correction</summary>
#
# A misprint that is copied: queries are made by $W_h^Q$, (D, d_k). $W^O$ is the one output projection,
# (H d_v, D), used once after concatenation. The shapes tell: in question 5, d_k = 3, d_v = 5, H = 2
# and D = 8 made `w_q` (8, 6) and `w_o` (10, 8).
# </details>
#
# ## "The output of a head is (seq_len, d_k)"
#
# <details><summary>Correction</summary>
#
# It is (T_q, d_v): a row for each query, a mean of values in it. d_v equals d_k by choice only.
# </details>

# %%
attention_forward(np.ones((5, 3)), np.ones((7, 3)), np.ones((7, 4)))[0].shape

# %% [markdown]
# ## "The weights are the importance of each token"
#
# <details><summary>Correction</summary>
#
# A weight multiplies a value. A key with weight 0.9 whose value is 0 (or is mapped to 0 by `w_o`)
# adds nothing. And in a deep model a token's own vector also flows past attention, on the residual
# path. Below: all of the output comes from the token with the smaller weight.
# </details>

# %%
weights = np.array([[0.9, 0.1]])
values = np.array([[0.0, 0.0], [5.0, -5.0]])
matrices({"weights": weights, "values": values, "weights @ values": weights @ values}, shared=False)

# %% [markdown]
# ## "A single head can learn one type of relation only"
#
# <details><summary>Correction</summary>
#
# One *distribution* per token, yes; but it depends on the token's content, so different tokens may
# follow different relations in the same head. Below, one head: "it" reads the noun that it stands
# for, "sat" its subject, "soft" the noun that it describes. What a head cannot do is to serve *one*
# token with two relations, apart (question 1).
# </details>

# %%
tokens = ["cat", "sat", "mat", "it", "soft"]
wants = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0]])  # what each query asks
offers = np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 0, 1]])  # what each key is
made, _ = softmax_forward(6.0 * wants @ offers.T)
weights_by_head(made[None], tokens)

# %% [markdown]
# ## "Heads naturally diverge during training"
#
# <details><summary>Correction</summary>
#
# Only because they begin different. Question 3: heads that begin equal get equal gradients. (Only
# something random, as dropout of weights, could tell them apart later.)
# </details>
#
# ## "Setting a head to zero saves its computation"
#
# <details><summary>Correction</summary>
#
# A gate of 0 (or a mask over heads) removes the head's *effect*; everything is still computed. To
# save, cut the columns of w_q, w_k, w_v and the rows of w_o: the same output with fewer params. How
# many may go? Michel et al. 2019 (section 4) removed up to 20 % of the heads of a translation model
# and 40 % of BERT's without a noticeable loss; the 20 % are sometimes quoted for BERT.
# </details>

# %%
gated, _ = multi_head_attention_forward(
    x, params=MultiHeadParams(**w), num_heads=2, head_gate=np.array([1.0, 0.0])
)
kept = {n: a[..., :4] for n, a in w.items() if n[-1] != "o"}  # head 0's columns
kept |= {"w_o": w["w_o"][:4], "b_o": w["b_o"]}  # and rows
cut, _ = multi_head_attention_forward(x, params=MultiHeadParams(**kept), num_heads=1)
print(sum(a.size for a in w.values()), "params gated,", sum(a.size for a in kept.values()), "cut")
compare(cut, gated, name="cut against gated")

# %% [markdown]
# How many may go in a model that you can measure? Cut the heads of the trained model of question 8 one after the
# other, always the one with the least $|d\_gate|$, Michel's measure of importance, and look at the right answers.

# %%
layers = trained.model.attentions
batch = trained.task.draw_batch(np.random.default_rng(1), 256)
gates, curve, cut = np.ones((2, 4)), [], []
for _ in range(8):
    curve.append(share_right(trained.model(*batch.inputs), batch.targets))
    sizes = np.stack(list(head_importance(trained.model, batch).values()))  # (layer, head)
    layer, head = np.unravel_index(np.where(gates == 1, sizes, np.inf).argmin(), gates.shape)
    cut.append(f"{layer}.{head}")
    gates[layer, head] = 0
    layers[layer].head_gate = gates[layer]
title = f"Cut in this order: {', '.join(cut)} (layer.head)"
line_chart(range(8), {"right": np.array(curve)}, title=title, x_label="heads cut", y_label="share")

# %% [markdown]
# After training, on this task, some heads can go without a loss: several share one job. That does not show that
# training did not need them.
#
# ## "DistilBERT removes heads", "BERT's KV cache", "Llama 2 is grouped", "Falcon is multi-query"
#
# <details><summary>Correction</summary>
#
# - DistilBERT (Sanh et al. 2019) has half the *layers*, with 12 heads in each (notebook 21 counts).
# - BERT is an encoder: it generates nothing and has no KV cache. Tables that give it one mean
#   "multi-head".
# - Llama 2: in the table below, 7B and 13B are multi-head; 70B is grouped (and 34B, by the paper).
# - Falcon: 7B is multi-query, 40B has 8 key/value heads.
# </details>

# %%
rows = [
    [name, str(m.num_heads), str(m.num_kv_heads), m.variant]
    for name, m in CONFIGURATIONS.items()
    if name.startswith(("llama", "falcon"))
]
Table("Who shares keys and values", ["model", "H", "H_kv", "variant"], rows)

# %% [markdown]
# ## "Add -1e9 where the mask is 0"
#
# <details><summary>Correction</summary>
#
# Nearly right, save for a row that may attend to nothing: it becomes a mean over everything hidden,
# where it should be 0. Use -inf, and decide such rows from the mask (notebook 08). In float16, -1e9
# does not even exist. And ask first whether 1 means *may attend* or *blocked*: notebook 22 has
# both.
# </details>

# %%
scores = rng.normal(size=(1, 4))
nothing = np.zeros((1, 4), dtype=bool)
softmax_forward(scores - 1e9)[0], softmax_forward(scores, mask=nothing)[0]

# %% [markdown]
# ## Exercise: which head matters?
#
# A practical one, as at the end of a real exam. Multiply head h by a gate $g_h$, all gates 1. The
# gradient of the gates tells how the loss reacts when a head is weakened: Michel et al. use its
# size as the head's importance. Derive it: `gated = heads * gate[:, None, None]`, so the gate of
# shape (H,) is broadcast over B, T_q and d_v. The check compares numbers, and then differentiates
# this line numerically.
#
# More of this kind in `mha-numpy exercises`: `head-importance`, the size itself; the whole museum (`museum-split` and
# eleven more), code with bugs that shipped; and at the end `break-my-attention`: write the tests
# that catch the mistakes.


# %% tags=["exercise"]
def my_d_head_gate(d_gated, heads):
    """d_gated, heads (B, H, T_q, d_v) -> (H,): the gradient of the gates, one for each head."""
    ...  # your code


# %% tags=["check"]
check("head-gates", my_d_head_gate)

# %% tags=["hint"]
# hint("head-gates")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - Heads: separate distributions, shared cost; they meet in `w_o`, where their shares add up.
# - The scale keeps softmax where gradients pass. Products do not depend on H; weights do.
# - Fewer key/value heads shrink what decoding must keep and read.
# - Before you repeat a sentence about attention, ask which computation would show it false, and run
#   that.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*; Michel et al. 2019, *Are Sixteen
# Heads Really Better than One?*; Voita et al. 2019, *Analyzing Multi-Head Self-Attention*; Clark et
# al. 2019, *What Does BERT Look At?*; Sanh et al. 2019, *DistilBERT*; Olsson et al. 2022,
# *In-context Learning and Induction Heads*; Ainslie et al. 2023, *GQA*; Shazeer 2019, *Fast
# Transformer Decoding*.
#
# **Next:** [15, induction heads appear](18_induction-heads-appear.ipynb).
