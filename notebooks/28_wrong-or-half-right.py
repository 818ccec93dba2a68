# %% [markdown]
# # 28 · Wrong, or half right
#
# "Each weight says how important a token is." The head below gives the first token nine times the weight of the
# second, yet all of its output comes from the second.

# %% tags=["hide-input"]
import numpy as np

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
from mha_numpy.show.pictures import (
    line_chart,
    matrices,
    weights_by_head,
)

# %%
weights = np.array([[0.9, 0.1]])
values = np.array([[0.0, 0.0], [5.0, -5.0]])
shown = {"weights": weights, "values": values}
shown["weights @ values"] = weights @ values
matrices(shown, shared=False)

# %% [markdown]
# Claims like this are copied from text to text. Some are wrong, others half right.
#
# **By the end you can** correct nineteen of these claims, and for any other find the
# computation that would prove it false. The exercise is a mistake of this kind, in code that shipped.
#
# > **Predict first.** Each time, say what is wrong before you open the correction. To begin with, what is wrong
# > at the top?
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
# A key with weight 0.9 adds nothing if its value is 0 (or `w_o` maps it to 0), as in the picture. And in a deep
# model, a token's own vector also flows past attention, on the residual path. So weights show where a head reads, but
# neither what it takes from there nor why. Next to the weights, show each weight times the length of what it
# multiplies (notebooks 20 and 23).
# </details>
#
# ## "Scaling prevents exploding gradients"
#
# <details><summary>Correction</summary>
#
# In a very wide head, the scale prevents *vanishing* gradients, because with undivided scores softmax lets almost
# nothing through in most rows (notebook 29, question 2; 06 tries other widths). Nor can softmax make a gradient larger,
# because the norm of its Jacobian is at most 1/2 (notebook 11). The claim is half right, though: d_q is d_scores times
# scale times k, so without the scale, d_q misses a factor of $1 / \sqrt{d_k}$, and the few rows that still let
# something through come out larger, here at most 14.2 instead of 0.27. But that factor is fixed by the width, and
# nothing explodes. Below: d_q of 16 queries.
# </details>

# %%
from mha_numpy import softmax_backward, softmax_forward

rng = np.random.default_rng(0)
q, k = rng.normal(size=(2, 64, 1024))
d_weights, norms = rng.normal(size=(64, 64)), []
scales = {"undivided": 1.0, "divided": 1 / np.sqrt(1024)}
for name, scale in scales.items():
    _, cache = softmax_forward(scale * q @ k.T)
    d_scores = softmax_backward(d_weights, cache).d_scores
    n = np.linalg.norm(scale * d_scores @ k, axis=-1)
    print(f"{name}: median {np.median(n):.3f}, most {n.max():.3f}")
    norms.append(n[:16])
matrices({"|d_q|": np.stack(norms)}, row_labels=list(scales))

# %% [markdown]
# ## "Multi-head attention is H times as expensive" and "it is free"
#
# <details><summary>Correction</summary>
#
# Each is half right. Multiply-adds and params stay the same, but there are $H T^2$ weights, so softmax and the memory
# for weights cost H times as much (notebook 29, question 6). And the usual "$O(n^2 d)$" leaves out the projections,
# $O(n d^2)$, which take more in a short sequence. Below are GPT-2's operations.
# </details>

# %%
from mha_numpy.models.cost import CONFIGURATIONS, count_flops

lengths, gpt_2 = 2 ** np.arange(7, 14), CONFIGURATIONS["gpt-2"]
flops = [count_flops(gpt_2, int(T)) for T in lengths]
lines = {
    "projections": [f.projections / 1e9 for f in flops],
    "scores and mix": [(f.scores + f.mix) / 1e9 for f in flops],
    "feed-forward": [f.feed_forward / 1e9 for f in flops],
}
axes = {"x_label": "T", "y_label": "billion operations"}
line_chart(lengths, lines, title="GPT-2, all layers", **axes)

# %% [markdown]
# ## "Each head needs its own projection, so H products"
#
# <details><summary>Correction</summary>
#
# Each head has its own params, but one wide product computes all heads: block h of the columns of `x @ w_q`
# is `x @ w_q[:, block h]`.
# </details>

# %%
from mha_numpy import MultiHeadAttention, compare

layer = MultiHeadAttention(8, 2, rng=0)
x, w_q = rng.normal(size=(3, 5, 8)), layer.params["w_q"]
wide = x @ w_q
narrow = [x @ w_q[:, 4 * h : 4 * h + 4] for h in range(2)]
both = np.concatenate(narrow, axis=-1)
display(compare(both, wide, name="two narrow products against one"))
shown = {"head 0": narrow[0][0], "head 1": narrow[1][0]}
matrices(shown | {"x @ w_q": wide[0]})

# %% [markdown]
# ## "Q_h = X W_h^O"
#
# <details><summary>Correction</summary>
#
# A common misprint. Queries come from $W_h^Q$, (D, d_k). $W^O$ is the single output
# projection, (H d_v, D), used once after concatenation. The shapes show it: with d_k = 3, d_v = 5, H = 2 and D = 8,
# `w_q` is (8, 6) and `w_o` is (10, 8).
# </details>
#
# ## "The output of a head is (seq_len, d_k)"
#
# <details><summary>Correction</summary>
#
# It is (T_q, d_v), one row per query, and each row is a mean of values. That d_v equals d_k is only a choice. The
# cell below has 5 queries, 7 keys, d_k = 3 and d_v = 4.
# </details>

# %%
from mha_numpy import attention_forward

q, k, v = np.ones((5, 3)), np.ones((7, 3)), np.ones((7, 4))
attention_forward(q, k, v)[0].shape

# %% [markdown]
# ## "A single head can learn only one type of relation"
#
# <details><summary>Correction</summary>
#
# A head has one *distribution* per token, but that distribution depends on the token's content, so different tokens
# can follow different relations in the same head. Below is one head made by hand: "it" reads the noun that it stands
# for, "sat" its subject, and "soft" the noun that it describes.
#
# What a head can't do is follow two relations for *one* token and keep them apart: it mixes. Is a mixture lost? With
# unequal weights, say 0.7 and 0.3, an MLP after the head can take it apart, but a linear map such as `w_o` can't, if
# values know only the token: in the last cell the best by least squares finds the first and guesses the second. (In
# training, 3 of 5 MLPs learn to: `mha-numpy experiment heads`.) So a second head does what would otherwise be left to
# the next layer.
# </details>

# %%
tokens = ["cat", "sat", "mat", "it", "soft"]
cat, mat, neither = np.eye(3)
wants = np.array([cat, cat, mat, cat, mat])  # of the queries
offers = np.array([cat, neither, mat, neither, neither])  # keys
made, _ = softmax_forward(6.0 * wants @ offers.T)
weights_by_head(made[None], tokens, note="Made by hand.")

# %%
first, second = np.indices((8, 8)).reshape(2, 64)  # all pairs
answers = np.stack([np.eye(8)[first], np.eye(8)[second]], axis=1)
mixed = 0.7 * answers[:, 0] + 0.3 * answers[:, 1]  # (64, 8)
hidden = [np.maximum(mixed - bend, 0) for bend in (0, 0.3, 0.7)]
for name, seen in {
    "linear": mixed,
    "MLP": np.hstack(hidden),
}.items():
    fitted = np.linalg.lstsq(seen, answers.reshape(64, 16))[0]
    said = (seen @ fitted).reshape(64, 2, 8).argmax(axis=-1)
    right = (said == answers.argmax(axis=-1)).mean(axis=0)
    print(f"{name}: first {right[0]:.1%}, second {right[1]:.1%}")

# %% [markdown]
# ## "Heads naturally diverge during training"
#
# <details><summary>Correction</summary>
#
# They do, but only because they start out different. Heads with equal params, rows of `w_o` included,
# get equal gradients if treated equally (notebook 29, question 3), and stay equal. Dropout of weights makes
# them differ, and so does ALiBi, where nothing is random.
# </details>
#
# ## "Setting a head to zero saves its computation"
#
# <details><summary>Correction</summary>
#
# A gate of 0 (or a mask over heads) removes the head's *effect*, but everything is still computed. To save something,
# remove the head's columns of w_q, w_k, w_v and its rows of w_o. The output is the same, with fewer params. How many
# heads can go? Michel et al. 2019 (section 4) removed up to 20% of the heads of a translation model and 40% of BERT's
# without a noticeable loss; some texts quote the 20% for BERT.
# </details>

# %%
from mha_numpy import MultiHeadParams, multi_head_attention_forward

w = layer.params
options = {"head_gate": np.array([1.0, 0.0]), "num_heads": 2}
whole = MultiHeadParams(**w)
gated, _ = multi_head_attention_forward(x, params=whole, **options)

# the columns of head 0, then its rows
kept = {n: a[..., :4] for n, a in w.items() if n[-1] != "o"}
kept |= {"w_o": w["w_o"][:4], "b_o": w["b_o"]}
small = MultiHeadParams(**kept)
cut, _ = multi_head_attention_forward(x, params=small, num_heads=1)
for name, arrays in {"gated": w, "cut": kept}.items():
    print(name, sum(a.size for a in arrays.values()), "params")
compare(cut, gated, name="cut against gated")

# %% [markdown]
# How many heads can go, in numbers? We cut the heads of a **trained** model (`mha-numpy
# train induction`) one after another, the least important first. The importance is Michel's measure, the size of the
# gate's gradient. The picture shows the share of right answers.

# %%
trained = load_trained("induction")
model = trained.model
batch = trained.task.draw_batch(np.random.default_rng(1), 256)


def forward_and_backward():
    loss_and_gradients(model, batch)


def right():
    return share_right(model(*batch.inputs), batch.targets)


importance = head_importance(model, forward_and_backward)
ranked = least_important_first(importance)
curve = pruning_curve(model, right, ranked)
order = ", ".join(f"{name[-1]}.{h}" for name, h in curve.heads)
title = f"Cut in this order: {order} (layer.head)"
axes = {"x_label": "heads cut", "y_label": "share"}
line_chart(range(9), {"right": curve.scores}, title=title, **axes)

# %% [markdown]
# After training, on this task, four heads can go, hardly an answer lost, and six with 98.6% still right, because
# several share one job (notebook 20). But the model is much less sure of them, and its loss rises from 0.02 to more
# than 1 (notebook 10). Nor does this show that training could have done without these heads.
#
# ## "DistilBERT removes heads", "BERT's KV cache", "Llama 2 is grouped", "Falcon is multi-query"
#
# <details><summary>Correction</summary>
#
# - DistilBERT (Sanh et al. 2019) has half the *layers*, with 12 heads in each (notebook 25 counts them). A student
#   with half of the heads is in `mha-numpy experiment distillation`: it beats its teacher.
# - BERT is an encoder: it generates nothing and has no KV cache. Tables that give it one mean "multi-head".
# - Llama 2: in the picture below, 7B and 13B are multi-head; 70B is grouped (and so is 34B, according to the paper).
# - Falcon: 7B is multi-query, 40B has 8 key/value heads.
# </details>

# %%
families = ("llama", "falcon")
names = [n for n in CONFIGURATIONS if n.startswith(families)]
models = [CONFIGURATIONS[name] for name in names]
heads = np.array([[m.num_heads, m.num_kv_heads] for m in models])
labels = {"row_labels": names, "column_labels": ["H", "H_kv"]}
matrices({"heads": heads}, **labels)

# %% [markdown]
# ## "For a head to be silent, give it a sink token", or "put + 1 into the softmax"
#
# <details><summary>Correction</summary>
#
# Neither is needed. A *sink* is one more key, with its own score $s$ and the value 0. Without it, the output comes out
# larger by one factor, so multiply by it afterwards: $\text{out} \cdot \sigma(\text{lse} - s)$, where lse is the log of
# the sum of all $e^{\text{score}}$ and $\sigma$ the sigmoid. The "+ 1" is the sink with $s = 0$, because $e^0 = 1$.
# </details>

# %%
from mha_numpy.layers import rms_norm_forward

q, k, v = rng.normal(size=(3, 5, 8))
out, cache = attention_forward(q, k, v)
s, values = 0.0, np.vstack([v, np.zeros(8)])
scores = np.hstack([q @ k.T / np.sqrt(8), np.full((5, 1), s)])
with_sink = softmax_forward(scores)[0] @ values
gate = 1 / (1 + np.exp(s - cache.lse))  # (T_q,)
display(compare(gate[:, None] * out, with_sink, name="gate"))
plus_one = np.exp(scores[:, :5])
plus_one /= 1 + plus_one.sum(axis=-1, keepdims=True)
compare(plus_one @ v, with_sink, name="+ 1")

# %% [markdown]
# ## "Normalise queries before RoPE" and "the order doesn't matter"
#
# <details><summary>Correction</summary>
#
# It depends on the gain. RMS norm divides by a length, and a rotation leaves lengths as they are (notebook 19), so the
# two commute. But a gain for each feature stretches the two features of a pair differently, and then the order counts.
# With one gain per pair it wouldn't.
# </details>

# %%
from mha_numpy import rope_forward


def difference(gain):
    """Between norm first and rotation first."""
    normed, _ = rms_norm_forward(q, gain)
    turned, _ = rope_forward(q)
    after, _ = rms_norm_forward(turned, gain)
    return np.abs(rope_forward(normed)[0] - after).max()


gain = rng.uniform(0.5, 2.0, size=8)
of_pairs = np.tile(gain[:4], 2)  # features i and i + 4 are a pair
gains = {"no gain": np.ones(8), "gain": gain, "per pair": of_pairs}
for name, each in gains.items():
    print(f"{name}: {difference(each):.1e}")

# %% [markdown]
# ## "Add -1e9 where the mask is 0"
#
# <details><summary>Correction</summary>
#
# This is nearly right. The exception is a row that may attend to nothing: it becomes a mean over everything hidden,
# but should be 0. Use -inf, and decide such rows from the mask. In float16, -1e9 is -inf, and
# times the 0 of every *visible* cell it is NaN (notebook 08).
# First find out whether 1 means *may attend* or *blocked* (notebook 27).
# </details>

# %%
from mha_numpy.teach.exercises import check, hint

scores = rng.normal(size=(1, 4))
nothing = np.zeros((1, 4), dtype=bool)
added, _ = softmax_forward(scores - 1e9)
by_mask, _ = softmax_forward(scores, mask=nothing)
matrices({"-1e9 added": added, "mask": by_mask})

# %% [markdown]
# ## Exercise: one row ruins a model
#
# Here is the opposite of -1e9, in code that shipped: -inf, with a guard in the last line. In a row that sees nothing
# it still gives NaN. Losing the output of that one row wouldn't matter, but on the way back the NaN reaches all
# params.


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
# Now you can correct the claim from the beginning, and many like it, with a single cell.
#
# - Before you repeat a claim about attention, ask which computation would prove it false, and run it.
# - Most of these claims confuse two things that often coincide: d_k and d_v, params and weights, effect and cost, a
#   model and its relatives.
# - A measurement after training, on one task, is evidence about that task only.
#
# **Reference:** Michel et al. 2019, *Are Sixteen Heads Really Better than One?*; Sanh et al. 2019, *DistilBERT*; Jain
# and Wallace 2019, *Attention is not Explanation*, and Wiegreffe and Pinter 2019, *Attention is not not Explanation*.
#
# **Next:** [29, the oral exam](29_oral-exam.ipynb).
