# %% [markdown]
# # 28 · Wrong, or half right
#
# "Each weight says how important a token is." The head below gives the first token nine times the weight of the second,
# yet all of its output comes from the second.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy.show.pictures import (
    line_chart,
    matrices,
    weights_by_head,
)

# %%
weights = np.array([[0.9, 0.1]])
values = np.array([[0.0, 0.0], [5.0, -5.0]])
matrices(
    {
        "weights": weights,
        "values": values,
        "weights @ values": weights @ values,
    },
    shared=False,
)

# %% [markdown]
# Claims like this are copied from text to text. Some of them are wrong, and others are half right.
#
# **What you can do afterwards:** you can correct fifteen of these claims, and for any other you can find the
# computation that would prove it false. The exercise is one of them, as code that shipped.
#
# > **Predict first.** Each time, say what is wrong before you open the correction. To begin with: what is wrong with
# > the sentence at the top?
#
# <details><summary>Answer</summary>
#
# A weight multiplies a value. The weight shows where a head reads, but the value there may be 0, as the next section
# explains.
# </details>
#
# Unless we say otherwise, params are random.
#
# ## "The weights are the importance of each token"
#
# <details><summary>Correction</summary>
#
# A key with weight 0.9 adds nothing if its value is 0 (or `w_o` maps it to 0), as in the picture. And in a deep model,
# a token's own vector also flows past attention, on the residual path. So weights show where a head reads, not why.
# Next to them, show each weight times the length of its value (notebook 20).
# </details>
#
# ## "Scaling prevents exploding gradients"
#
# <details><summary>Correction</summary>
#
# The scale prevents *vanishing* gradients: with undivided scores, softmax lets almost nothing through in most rows
# (notebook 29, question 2). Nor can softmax make a gradient much larger, because the norm of its Jacobian is at most
# 1/2 (notebook 07). The claim is half right, though: d_q is d_scores times scale times k, so without the scale, the
# few rows that still let something through get more, by a factor of about $\sqrt{d_k}$. But nothing explodes. Below
# you see the norms of the rows of d_q, for 16 of 64 queries.
# </details>

# %%
from mha_numpy import softmax_backward, softmax_forward

rng = np.random.default_rng(0)
q, k = rng.normal(size=(2, 64, 1024))
d_weights, norms = rng.normal(size=(64, 64)), {}
for name, scale in {
    "undivided": 1.0,
    "divided": 1 / np.sqrt(1024),
}.items():
    _, cache = softmax_forward(scale * q @ k.T)
    d_q = scale * softmax_backward(d_weights, cache).d_scores @ k
    norms[name] = np.linalg.norm(d_q, axis=-1)
print(
    {
        name: f"median {np.median(n):.3f}, largest {n.max():.3f}"
        for name, n in norms.items()
    }
)
matrices(
    {"|d_q|": np.stack(list(norms.values()))[:, :16]},
    row_labels=list(norms),
)

# %% [markdown]
# ## "Multi-head attention is H times as expensive" and "it is free"
#
# <details><summary>Correction</summary>
#
# Products and params stay the same, but there are $H T^2$ weights, so memory and softmax cost H times as much (notebook
# 29, question 6). And "$O(n^2 d)$" leaves out the projections, $O(n d^2)$, which take more for a short sequence. Below
# are GPT-2's operations.
# </details>

# %%
from mha_numpy.models.cost import CONFIGURATIONS, count_flops

lengths = 2 ** np.arange(7, 14)
counted = [
    count_flops(CONFIGURATIONS["gpt-2"], int(T)) for T in lengths
]
parts = {"projections": [f.projections for f in counted]}
parts |= {"scores and mix": [f.scores + f.mix for f in counted]}
parts |= {"feed-forward": [f.feed_forward for f in counted]}
parts = {
    name: np.array(numbers) / 1e9 for name, numbers in parts.items()
}
line_chart(
    lengths,
    parts,
    title="GPT-2, all layers",
    x_label="T",
    y_label="billion operations",
)

# %% [markdown]
# ## "Each head needs its own projection, so H products"
#
# <details><summary>Correction</summary>
#
# Each head has its own params, but one wide product computes all heads at once: block h of the columns of `x @ w_q` is
# `x @ w_q[:, block h]`.
# </details>

# %%
from mha_numpy import MultiHeadAttention, compare

layer = MultiHeadAttention(8, 2, rng=0)
x = rng.normal(size=(3, 5, 8))
wide = x @ layer.params["w_q"]
narrow = [
    x @ layer.params["w_q"][:, 4 * h : 4 * h + 4] for h in range(2)
]
display(
    compare(
        np.concatenate(narrow, axis=-1),
        wide,
        name="two narrow products against one",
    )
)
matrices(
    {
        "head 0": narrow[0][0],
        "head 1": narrow[1][0],
        "x @ w_q": wide[0],
    }
)

# %% [markdown]
# ## "Q_h = X W_h^O"
#
# <details><summary>Correction</summary>
#
# This is a misprint that people keep copying. Queries come from $W_h^Q$, (D, d_k). $W^O$ is the single output
# projection, (H d_v, D), used once after concatenation. The shapes show it: with d_k = 3, d_v = 5, H = 2 and D = 8,
# `w_q` is (8, 6) and `w_o` is (10, 8).
# </details>
#
# ## "The output of a head is (seq_len, d_k)"
#
# <details><summary>Correction</summary>
#
# It is (T_q, d_v), one row per query, and each row is a mean of values. That d_v equals d_k is only a choice. The cell
# below has 5 queries, 7 keys, d_k = 3 and d_v = 4.
# </details>

# %%
from mha_numpy import attention_forward

attention_forward(
    np.ones((5, 3)), np.ones((7, 3)), np.ones((7, 4))
)[0].shape

# %% [markdown]
# ## "A single head can learn only one type of relation"
#
# <details><summary>Correction</summary>
#
# A head has one *distribution* per token, but that distribution depends on the token's content, so different tokens can
# follow different relations in the same head. Below is one head made by hand: "it" reads the noun that it stands for,
# "sat" its subject, and "soft" the noun that it describes. What a head can't do is follow two relations for *one* token
# and keep them apart.
# </details>

# %%
tokens = ["cat", "sat", "mat", "it", "soft"]
# what each query asks
wants = np.array(
    [[1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0]]
)
# what each key is
offers = np.array(
    [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 0, 1]]
)
made, _ = softmax_forward(6.0 * wants @ offers.T)
weights_by_head(made[None], tokens, note="Made by hand.")

# %% [markdown]
# ## "Heads naturally diverge during training"
#
# <details><summary>Correction</summary>
#
# They do, but only because they start out different. Heads that start equal get equal gradients (notebook 29, question
# 3). After that, only something random, such as dropout of weights, could make them differ.
# </details>
#
# ## "Setting a head to zero saves its computation"
#
# <details><summary>Correction</summary>
#
# A gate of 0 (or a mask over heads) removes the head's *effect*, but everything is still computed. To save something,
# cut the columns of w_q, w_k, w_v and the rows of w_o; the output is the same with fewer params. How many heads can
# go? Michel et al. 2019 (section 4) removed up to 20% of the heads of a translation model and 40% of BERT's without a
# noticeable loss; some texts quote the 20% for BERT.
# </details>

# %%
from mha_numpy import MultiHeadParams, multi_head_attention_forward

w, gate = layer.params, np.array([1.0, 0.0])
gated, _ = multi_head_attention_forward(
    x, params=MultiHeadParams(**w), num_heads=2, head_gate=gate
)
# head 0's columns
kept = {n: a[..., :4] for n, a in w.items() if n[-1] != "o"}
kept |= {"w_o": w["w_o"][:4], "b_o": w["b_o"]}  # and rows
cut, _ = multi_head_attention_forward(
    x, params=MultiHeadParams(**kept), num_heads=1
)
print(
    sum(a.size for a in w.values()),
    "params gated,",
    sum(a.size for a in kept.values()),
    "cut",
)
compare(cut, gated, name="cut against gated")

# %% [markdown]
# How many heads can go in a model that you can measure yourself? We cut the heads of a **trained** model
# (`mha-numpy train induction`) one after another, least important first, by Michel's measure, $|d\_gate|$. The picture
# shows the share of right answers.

# %%
from mha_numpy.models.analysis import (
    head_importance,
    least_important_first,
    pruning_curve,
)
from mha_numpy.models.train import (
    load_trained,
    loss_and_gradients,
    share_right,
)

trained = load_trained("induction")
model = trained.model
batch = trained.task.draw_batch(np.random.default_rng(1), 256)
importance = head_importance(
    model, lambda: loss_and_gradients(model, batch)
)
curve = pruning_curve(
    model,
    lambda: share_right(model(*batch.inputs), batch.targets),
    least_important_first(importance),
)
order = ", ".join(f"{name[-1]}.{h}" for name, h in curve.heads)
title = f"Cut in this order: {order} (layer.head)"
line_chart(
    range(9),
    {"right": curve.scores},
    title=title,
    x_label="heads cut",
    y_label="share",
)

# %% [markdown]
# After training, on this task, some heads can go without a loss, because several share one job. That doesn't show that
# training could have done without them.
#
# ## "DistilBERT removes heads", "BERT's KV cache", "Llama 2 is grouped", "Falcon is multi-query"
#
# <details><summary>Correction</summary>
#
# - DistilBERT (Sanh et al. 2019) has half the *layers*, with 12 heads in each (notebook 25 counts them).
# - BERT is an encoder: it generates nothing and has no KV cache. Tables that give it one mean "multi-head".
# - Llama 2: in the picture below, 7B and 13B are multi-head; 70B is grouped (and so is 34B, according to the paper).
# - Falcon: 7B is multi-query, 40B has 8 key/value heads.
# </details>

# %%
named = {
    n: m
    for n, m in CONFIGURATIONS.items()
    if n.startswith(("llama", "falcon"))
}
heads = np.array(
    [[m.num_heads, m.num_kv_heads] for m in named.values()]
)
matrices(
    {"heads": heads},
    row_labels=list(named),
    column_labels=["H", "H_kv"],
)

# %% [markdown]
# ## "Add -1e9 where the mask is 0"
#
# <details><summary>Correction</summary>
#
# This is nearly right. The exception is a row that may attend to nothing, which becomes a mean over everything hidden
# but should be 0. Use -inf, and decide such rows from the mask (notebook 08). In float16, -1e9 doesn't even exist. And
# first find out whether 1 means *may attend* or *blocked* (notebook 27).
# </details>

# %%
from mha_numpy.teach.exercises import check, hint

scores = rng.normal(size=(1, 4))
nothing = np.zeros((1, 4), dtype=bool)
by_mask = softmax_forward(scores, mask=nothing)[0]
matrices(
    {
        "-1e9 added": softmax_forward(scores - 1e9)[0],
        "mask": by_mask,
    }
)

# %% [markdown]
# ## Exercise: one row ruins a model
#
# Here is the opposite of -1e9, in code that shipped: -inf, with a guard in the last line. It still gives NaN in a row
# that sees nothing. Losing that row's own output would not matter, but on the way back the NaN reaches all params.


# %%
def shipped_softmax(scores, mask):
    scores = np.where(mask, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - largest)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


with np.errstate(invalid="ignore"):
    print(shipped_softmax(scores, nothing))

# %% [markdown]
# Write it correctly: a row that sees nothing has weights 0.
#
# To practise more, try these in `mha-numpy exercises`: `museum-zero-times-inf` and `museum-split`, bugs that shipped;
# and at the very end `break-my-attention`, where you write the tests that catch the mistakes.


# %% tags=["exercise"]
def my_softmax(scores, mask):
    """scores (..., T_q, T_k), mask of this shape or None, True =
    may attend -> weights.

    A hidden cell has weight 0, and a row that sees nothing weights
    0. Scores may be in the thousands.
    """
    ...  # your code


# %% tags=["check"]
check("museum-nan-row", my_softmax)

# %% tags=["hint"]
# hint("museum-nan-row")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# Now a single cell is enough for you to correct the claim from the beginning, and others like it.
#
# - Before you repeat a claim about attention, ask which computation would prove it false, and run that.
# - Most of these claims confuse two things that often coincide: d_k and d_v, params and weights, effect and cost, a
#   model and its relatives.
# - A measurement after training, on one task, is evidence about that task only.
#
# **Reference:** Michel et al. 2019, *Are Sixteen Heads Really Better than One?*; Sanh et al. 2019, *DistilBERT*; Jain
# and Wallace 2019, *Attention is not Explanation*, and Wiegreffe and Pinter 2019, *Attention is not not Explanation*.
#
# **Next:** [29, the oral exam](29_oral-exam.ipynb).
