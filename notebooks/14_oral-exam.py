# %% [markdown]
# # 14 · Oral exam
#
# Twelve questions that are really asked about multi-head attention, in interviews and exams. Say your answer
# aloud before you open ours; then run the cell below it, which shows that the answer is true. After
# that come statements in circulation that are wrong or half right, each put right by a computation.
#
# **You will learn**
#
# - to answer each question in two or three sentences that survive a second question;
# - to name the line of code, or the number, that proves the answer;
# - which popular sentences not to repeat, and why.

# %%
from dataclasses import replace

import numpy as np

from mha_numpy import (
    MultiHeadParams,
    attention_backward,
    attention_forward,
    causal_mask,
    linear_forward,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    softmax_backward,
    softmax_forward,
    split_heads,
)
from mha_numpy.check import compare, gradcheck
from mha_numpy.cost import CONFIGURATIONS, count_flops, kv_cache_bytes
from mha_numpy.draw import bar_chart, matrices, sharing_map, weights_by_head
from mha_numpy.nn import MultiHeadAttention

rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. Why several heads, and not one?
#
# > **Predict first.** Answer aloud. Then: one head must give 0.5 to each of two tokens to read both. What
# > can it *not* give its reader that two heads can?
#
# <details><summary>Answer</summary>
#
# One head gives each token **one** distribution, and so one mean of values. A mean of two tokens is not the
# two tokens: who said what is lost. Two heads read them apart, each through its own projections, and
# lay both side by side in different columns of `merged`. It costs no more params (question 6).
#
# Shown below: two sentences whose means agree; with two heads their outputs differ. More: notebook 05.
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
# The dot product of two independent vectors of d_k numbers with variance 1 has variance d_k. Undivided, scores of
# size sqrt(d_k) drive softmax to weights near 0 and 1, where its Jacobian diag(p) - p p^T is almost
# 0: gradients **vanish**. Divided by sqrt(d_k), scores have variance 1 at any width.
#
# Shown below for d_k = 1024: variance of scores, and the gradient that gets through softmax. More: notebook 02.
# </details>

# %%
q, k = rng.normal(size=(2, 64, 1024))
d_weights = rng.normal(size=(64, 64))
for name, scale in (("q k^T", 1.0), ("q k^T / sqrt(d_k)", 1 / np.sqrt(1024))):
    scores = scale * q @ k.T
    d_scores = softmax_backward(d_weights, softmax_forward(scores)[1]).d_scores
    print(f"{name:18} variance {scores.var():8.2f}   |d_scores| {np.linalg.norm(d_scores):.3f}")

# %% [markdown]
# ## 3. Do all heads have the same params?
#
# <details><summary>Answer</summary>
#
# No. Head h has its own W_q, W_k, W_v: block h of the columns of `w_q`, `w_k`, `w_v`, and block h of the *rows*
# of `w_o`. In grouped and multi-query attention several query heads share one W_k and one W_v (question 10).
#
# Had they equal params, they would compute the same and get the same gradients, and so stay equal for ever. Shown
# below: two heads that begin alike have equal gradients. Random initialisation is what tells them apart.
# </details>

# %%
layer = MultiHeadAttention(8, 2, rng=0)
alike = {name: array.copy() for name, array in layer.params.items()}
for name in ("w_q", "w_k", "w_v"):
    alike[name][:, 4:] = alike[name][:, :4]  # head 1 = head 0
alike["w_o"][4:] = alike["w_o"][:4]
x, d_out = rng.normal(size=(2, 3, 5, 8))
_, cache = multi_head_attention_forward(x, params=MultiHeadParams(**alike), num_heads=2)
grads = multi_head_attention_backward(d_out, cache).d_params
compare(grads.w_q[:, 4:], grads.w_q[:, :4], name="d_w_q: head 1 against head 0")

# %% [markdown]
# ## 4. What happens after the heads are concatenated?
#
# <details><summary>Answer</summary>
#
# `out = merged @ w_o + b_o`. Until here every column belonged to one head; `w_o` is the first place where they
# meet. Since a product with a wide row is a sum over its pieces, the output is the **sum** over heads of
# `head_h @ w_o[block h]`: each head writes into all D columns, and their shares add up.
#
# Shown below. More: notebook 05.
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
# In the mathematics yes: concatenation does not care how wide its pieces are, as long as `w_o` has H d_v rows
# in all. Code prefers equal sizes, as they make one array and one product. What really
# differs in use is d_v against d_k (values of another width than keys), and the total H d_k, which need
# not be D. Shown below: heads of widths 2 and 6, one after the other, and d_k = 3, d_v = 5 in a layer of width 8.
# </details>

# %%
narrow, wide = (attention_forward(*rng.normal(size=(3, 2, 5, d)))[0] for d in (2, 6))
merged = np.concatenate([narrow, wide], axis=-1)
uneven = MultiHeadAttention(8, 2, head_dim=3, value_dim=5)
merged.shape, {name: array.shape for name, array in uneven.params.items() if name[0] == "w"}

# %% [markdown]
# ## 6. Why do H heads of width D / H cost the same as one of width D, and why does it matter?
#
# <details><summary>Answer</summary>
#
# Params: the projections are D by D either way, 4 D^2 in all. Operations: matching costs 2 T^2 d_k for each head, and
# H d_k = D. So H drops out of both: one may choose H by what it does for the model, without paying in params
# or products. Half right, though: the number of *weights* is H T^2, so softmax, and memory where
# weights are kept, grow with H.
#
# Shown below: operations of the products for H = 1 to 64; weights beside them. More: notebook 12.
# </details>

# %%
D, T = 512, 128
for H in (1, 8, 64):
    sized = MultiHeadAttention(D, H)
    params = sum(array.size for array in sized.params.values())
    products = 2 * T * 4 * D * D + 2 * H * (2 * T * T * (D // H))  # projections; match and mix
    print(f"H = {H:2}: {params} params, {products:,} operations, {H * T * T:,} weights")

# %% [markdown]
# ## 7. Write out multi-head attention
#
# <details><summary>Answer</summary>
#
# For h = 1 ... H: $Q_h = X W_h^Q$, $K_h = X W_h^K$, $V_h = X W_h^V$, of widths d_k, d_k, d_v;
#
# $$\text{head}_h = \text{softmax}\left(Q_h K_h^\top / \sqrt{d_k}\right) V_h,
# \qquad \text{MHA}(X) = \text{Concat}(\text{head}_1, \ldots, \text{head}_H)\, W^O$$
#
# with $W_h^Q, W_h^K$: (D, d_k), $W_h^V$: (D, d_v), $W^O$: (H d_v, D). Say the shapes as you write: (B, T, D), (B, H, T, d_k),
# (B, H, T, T), (B, H, T, d_v), (B, T, H d_v), (B, T, D).
# </details>

# %%
w = layer.params
q, k, v = (split_heads(x @ w[f"w_{name}"] + w[f"b_{name}"], 2) for name in "qkv")
scores = q @ k.swapaxes(-1, -2) / np.sqrt(4)
weights, _ = softmax_forward(scores)
written = merge_heads(weights @ v) @ w["w_o"] + w["b_o"]
compare(written, out, name="out")

# %% [markdown]
# ## 8. Name four kinds of specialised heads, and what each attends to
#
# <details><summary>Answer</summary>
#
# - *Positional*: the token before, or after, at a fixed distance. Often in early layers.
# - *Syntactic*: from a word to what it depends on (verb to subject, noun to adjective), also far away.
# - *Coreference*: from a pronoun to what it stands for ("it" to "animal").
# - *Semantic*: to tokens of related meaning; *delimiter* heads rest on [CLS], [SEP] or the full stop when there is
#   nothing to do; *rare-token* heads pick unusual words.
#
# These are observations on trained models (Clark et al. 2019; Voita et al. 2019), not roles that anybody assigned. Weights
# say where a head *reads*; what it then does to the output depends on values, `w_o`, and later layers.
#
# Shown below: a positional and a delimiter head made by hand. More: notebook 05.
# </details>

# %%
tokens = ["[CLS]", "it", "was", "too", "tired"]
position = np.eye(5)
before = np.eye(5, k=-1)  # row t asks for position t - 1
delimiter = np.zeros((5, 5)) + position[0]  # every row asks for position 0
made, _ = softmax_forward(9.0 * np.stack([before, delimiter]) @ position)
weights_by_head(made, tokens)

# %% [markdown]
# ## 9. What is an induction head, which circuit makes it, and why does it matter?
#
# <details><summary>Answer</summary>
#
# A head that continues a pattern: after ... A B ... A it predicts B. It takes **two layers**. A *previous-token
# head* in the first writes into each token which token stood before it. The *induction head* in the second
# lets A's query match the token that has "A stood before me" written into it: that is B, and it copies B.
# So a model follows examples in its prompt without changing a param. In training these heads appear together with a
# sudden drop of the loss (Olsson et al. 2022).
#
# Shown below: the circuit in one-hot vectors, causal, made by hand. It predicts B.
# </details>

# %%
text = list("ABCDA")
letters = sorted(set(text))
own = np.eye(4)[[letters.index(token) for token in text]]  # (T, 4): which letter stands here
place = np.eye(5)
see = {"is_causal": True, "scale": 30.0}  # large: weights close to 0 and 1
stood_before, first = attention_forward(np.eye(5, k=-1), place, own, **see)  # layer 1
stood_before[0] = 0  # nothing stands before the first token
copied, second = attention_forward(own, stood_before, own, **see)  # layer 2
print("after", *text, "comes", letters[copied[-1].argmax()])
weights_by_head(np.stack([first.weights, second.weights]), text, visible=causal_mask(5))

# %% [markdown]
# Head 0 here is layer 1, head 1 is layer 2. Look at the last row of head 1: the second A attends to B.
#
# ## 10. Grouped-query attention against multi-head and multi-query: why do fewer key/value heads save memory?
#
# <details><summary>Answer</summary>
#
# H query heads share H_kv key/value heads: H_kv = H is multi-head, 1 < H_kv < H grouped, H_kv = 1 multi-query. Each group of G
# = H / H_kv query heads has queries of its own but reads the same keys and values. While text is generated, the keys and
# values of all tokens so far are kept, for each layer: 2 L H_kv T d_k numbers. Queries are not kept: each is used once. So
# the cache shrinks by G, and so does the memory traffic of each step.
#
# Shown below: who reads whom; the cache of Llama 3 70B in three variants. More: notebook 10.
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
# ## 11. 32 query heads, 4 key/value groups: how much smaller is the cache?
#
# <details><summary>Answer</summary>
#
# Multi-head would keep 32 key/value heads, grouped keeps 4: **8 times** smaller, one eighth. Layers, tokens and the width
# of a head cancel.
# </details>

# %%
full = replace(CONFIGURATIONS["mistral-7b"], num_heads=32, num_kv_heads=32)
kv_cache_bytes(full, 4096) / kv_cache_bytes(replace(full, num_kv_heads=4), 4096)

# %% [markdown]
# ## 12. How does the number of heads affect quality and cost, and how is it chosen?
#
# <details><summary>Answer</summary>
#
# Cost: params and products do not change with H as long as H d_k = D (question 6); softmax and the memory of weights grow
# with H. Quality: more heads are more distributions, but each is narrower: the scores of a head have rank
# at most d_k, so a head of width 4 cannot express an arbitrary pattern. Too few: compromises; too many: heads that cannot match well.
# In practice d_k is 64 to 128 and H = D / d_k follows from the width; H_kv is chosen by the cache, and sizes are powers of
# two that divide well over devices. After training, many heads can go with little loss (question 8's caution applies).
#
# Shown below: the rank of a head's scores; d_k in known models. More: notebook 12.
# </details>

# %%
for d_k in (2, 8, 64):
    q, k = rng.normal(size=(2, 32, d_k))
    print(f"d_k = {d_k:2}: 32 x 32 scores of rank {np.linalg.matrix_rank(q @ k.T)}")
bar_chart({name: m.head_dim for name, m in CONFIGURATIONS.items()}, title="width of a head")

# %% [markdown]
# # Wrong, or half right
#
# Sentences that texts on attention repeat. Say what is wrong before you open the correction.
#
# ## "Scaling prevents exploding gradients"
#
# <details><summary>Correction</summary>
#
# Question 2 measured the opposite: unscaled scores let *less* gradient through softmax. It vanishes; nothing explodes.
# </details>
#
# ## "Multi-head attention is H times as expensive" and "it is free"
#
# <details><summary>Correction</summary>
#
# Both circulate. Products and params: the same. Weights, and softmax: H T^2, so H times as many. Also, "O(n^2 d)" leaves out
# the projections, O(n d^2), which are the larger part of a short sequence:
# </details>

# %%
gpt2 = CONFIGURATIONS["gpt-2"]
for tokens in (128, 1024, 8192):
    flops = count_flops(gpt2, tokens)
    print(f"T = {tokens:4}:", {name: f"{value:.2e}" for name, value in flops._asdict().items()})

# %% [markdown]
# ## "Each head needs its own projection, so H products"
#
# <details><summary>Correction</summary>
#
# Each head has its own params, but one wide product computes all: block h of the columns of `x @ w_q` is `x @ w_q[:, block h]`.
# </details>

# %%
wide, _ = linear_forward(x, layer.params["w_q"])
narrow = [x @ layer.params["w_q"][:, 4 * h : 4 * h + 4] for h in range(2)]
compare(np.concatenate(narrow, axis=-1), wide, name="two narrow products against a wide one")

# %% [markdown]
# ## "Q_h = X W_h^O"
#
# <details><summary>Correction</summary>
#
# A misprint that is copied: queries are made by W_h^Q, (D, d_k). W^O is the one output projection, (H d_v, D), used once after concatenation.
# The shapes tell: with d_k = 3, d_v = 5, H = 2, D = 8 (question 5) w_q is (8, 6) and w_o (10, 8).
# </details>
#
# ## "The output of a head is (seq_len, d_k)"
#
# <details><summary>Correction</summary>
#
# It is (T, d_v): a head's output is a mean of values. It equals d_k by choice only.
# </details>

# %%
attention_forward(np.ones((5, 3)), np.ones((7, 3)), np.ones((7, 4)))[0].shape

# %% [markdown]
# ## "The weights are the importance of each token"
#
# <details><summary>Correction</summary>
#
# A weight multiplies a value. A key with weight 0.9 whose value is 0 (or that `w_o` maps to 0) adds nothing. And in a deep model
# the token's own vector also flows past attention on the residual path. Below: the most attended token can be removed
# without any change; the least attended cannot.
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
# One *distribution* per token, yes; but it depends on the token's content, so different tokens may follow different relations in the same
# head. Below, one head: "it" reads "cat" (a pronoun's relation), "sat" reads its subject too, and "soft" reads "mat". What it cannot do is
# serve one token with two relations apart (question 1).
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
# Only because they begin different. Question 3: heads that begin equal get equal gradients and stay equal.
# </details>
#
# ## "Setting a head to zero saves its computation"
#
# <details><summary>Correction</summary>
#
# A gate of 0 (or a mask over heads) removes its *effect*; everything is still computed. To save, cut the columns of w_q, w_k, w_v and the
# rows of w_o, which gives the same output with fewer params. Michel et al. 2019 found that up to 20 % of a translation model's heads and
# 40 % of BERT's can go, by their ranking, without noticeable loss; texts often quote 20 % for BERT.
# </details>

# %%
gated, _ = multi_head_attention_forward(
    x, params=MultiHeadParams(**w), num_heads=2, head_gate=np.array([1.0, 0.0])
)
kept = {n: a[:, :4] if n[0] == "w" else a[:4] for n, a in w.items() if n[-1] != "o"}
kept |= {"w_o": w["w_o"][:4], "b_o": w["b_o"]}
cut, _ = multi_head_attention_forward(x, params=MultiHeadParams(**kept), num_heads=1)
print(sum(a.size for a in w.values()), "params gated,", sum(a.size for a in kept.values()), "cut")
compare(cut, gated, name="cut against gated")

# %% [markdown]
# ## "DistilBERT removes heads", "BERT's KV cache", "Llama 2 is grouped", "Falcon is multi-query"
#
# <details><summary>Correction</summary>
#
# DistilBERT (Sanh et al. 2019) halves the number of *layers*; each keeps 12 heads. It is 40 % smaller and keeps 97 % of BERT's
# score. BERT is an encoder: it generates nothing and has no KV cache; tables that give it one mean "multi-head". Of Llama 2 only the 34B and 70B
# models are grouped; 7B and 13B are multi-head. Falcon 7B is multi-query; 40B has 8 key/value heads.
# "Olah et al. 2022" on induction heads is Olsson et al. 2022; two layers are not where they tend to appear but the least that can have them (question 9).
# </details>

# %%
for name, model in CONFIGURATIONS.items():
    H, H_kv = model.num_heads, model.num_kv_heads
    kind = "multi-head" if H_kv == H else "multi-query" if H_kv == 1 else "grouped"
    print(f"{name:14} {H:3} query heads, {H_kv:3} key/value heads: {kind}")

# %% [markdown]
# ## "Add -1e9 where the mask is 0"
#
# <details><summary>Correction</summary>
#
# Nearly right in float32; a row that sees nothing becomes a mean over everything hidden, and in float16 NaN. Use -inf and decide blind rows
# from the mask (notebook 04). And ask first whether 1 means *may attend* or *blocked*: notebook 13 has both.
# </details>

# %%
blind = np.full((1, 4), -1e9) + rng.normal(size=(1, 4))
softmax_forward(blind)[0], softmax_forward(blind, mask=np.zeros((1, 4), dtype=bool))[0]

# %% [markdown]
# ## Exercise: which head matters?
#
# A practical one, as at the end of a real exam. Multiply head h by a gate $g_h$, all gates 1. The gradient with respect to the gates
# tells how the loss reacts to weakening each head: Michel et al. use its size as the head's importance. Derive it: `gated = heads * gate`, with
# gate of shape (H,), broadcast over B, T and d_v. Then check it.


# %% tags=["exercise"]
def my_d_head_gate(d_gated, heads):
    """(B, H, T, d_v), (B, H, T, d_v) -> (H,): the gradient of the gates."""
    ...  # your code


# %% tags=["check"]
arrays = [
    rng.normal(size=(2, 3, 4, 5)),
    rng.normal(size=(2, 3, 6, 5)),
    rng.normal(size=(2, 3, 6, 7)),
]
gate, d_gated = np.ones(3), rng.normal(size=(2, 3, 4, 7))
out, cache = attention_forward(*arrays, head_gate=gate)
expected = attention_backward(d_gated, cache).d_head_gate
report = compare(my_d_head_gate(d_gated, cache.heads), expected, name="d_head_gate")
display(report)


def gated_forward(head_gate):
    return attention_forward(*arrays, head_gate=head_gate)


if report:
    display(
        gradcheck(
            gated_forward, lambda d, cache: (my_d_head_gate(d, cache.heads),), {"head_gate": gate}
        )
    )

# %% [markdown]
# ## Summary
#
# - Heads: separate distributions, shared cost; they meet in `w_o`, where their shares add up.
# - The scale keeps softmax where gradients pass. Products do not depend on H; weights do.
# - Fewer key/value heads shrink what decoding must keep and read.
# - Before repeating a sentence about attention, ask which computation would show it false, and run it.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*; Michel et al. 2019, *Are Sixteen Heads Really Better
# than One?*; Voita et al. 2019, *Analyzing Multi-Head Self-Attention*; Clark et al. 2019, *What Does BERT Look At?*; Olsson et
# al. 2022, *In-context Learning and Induction Heads*; Ainslie et al. 2023, *GQA*; Shazeer 2019, *Fast Transformer Decoding*.
