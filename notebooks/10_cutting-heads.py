# %% [markdown]
# # 10 · Cutting heads
#
# Take a trained model, switch one of its heads off, and measure again. Sometimes the model loses almost everything, and
# sometimes nothing. This notebook asks what a head adds, how much it matters, and what such a *cut* can show.
#
# **By the end you can** switch any head off in two ways, estimate the importance of all heads from one
# backward pass, and say what neither a cut nor a gradient proves.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import (
    compare,
    merge_heads,
    multi_head_attention_forward,
    split_heads,
    trace,
)
from mha_numpy.models.train import load_trained, share_right
from mha_numpy.show.pictures import (
    line_chart,
    matrices,
    weights_by_head,
)
from mha_numpy.teach.exercises import check, hint

# %% [markdown]
# ## Heads of a trained model
#
# This model has two attention layers with four heads each. When letters start to repeat, it carries on the sequence: a
# b c d a b c, and then d. `mha-numpy train induction` trained it. Everything below is about this one task and seed.

# %%
trained = load_trained("induction")
model, letters = trained.model, list("abcdabc")
model(np.array([[0, 1, 2, 3, 0, 1, 2]]))
# (4, 7, 7): heads 0 and 1 of both layers
weights = [layer.weights[0, :2] for layer in model.attentions]
weights = np.concatenate(weights)
names = [f"layer {i}, head {h}" for i in (0, 1) for h in (0, 1)]
note = "Trained. Two of the four heads in each layer."
weights_by_head(weights, letters, head_names=names, note=note)

# %% [markdown]
# Head 0 of layer 0 looks at the previous token. In layer 1, the last two rows look at what followed the same letter
# before. Nobody assigned these roles; they came out of training (notebook 20).
#
# > **Predict first.** We cut each head by itself, then three heads of layer 1, and then all four. When does the model
# > stop copying?

# %%
from mha_numpy.layers import cross_entropy_forward
from mha_numpy.models.analysis import cut_heads, mean_heads
from mha_numpy.models.train import IGNORED
from mha_numpy.tables import Table

rng = np.random.default_rng(1)
(ids,), targets = trained.task.draw_batch(rng, 64)
asked = {"targets": targets, "ignore_index": IGNORED}


def without(layer, heads):
    """Share right and loss without heads: by 0, by their mean."""
    attention, found = model.attentions[layer], []
    model(ids)  # the means are over these sequences
    for means in (None, mean_heads(attention)):
        with cut_heads(attention, heads, means=means):
            logits = model(ids)
        loss, _ = cross_entropy_forward(logits, **asked)
        found.append([share_right(logits, targets), loss])
    return found


cuts, all_heads = {"nothing": (0, [])}, {0, 1, 2, 3}
for i in (0, 1):
    cuts |= {f"{i}.{h}": (i, [h]) for h in all_heads}
for h in all_heads:
    cuts[f"all of layer 1 but 1.{h}"] = (1, [*all_heads - {h}])
cuts["all of layer 1"] = (1, [*all_heads])
rows = []
for name, cut in cuts.items():
    numbers = np.ravel(without(*cut))
    rows.append([name, *(f"{number:.3f}" for number in numbers)])
columns = ["cut", "right, by 0", "loss", "right, by mean", "loss"]
Table("Right answers and loss without some heads", columns, rows)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Without head 0.0 (layer 0, head 0), most answers are wrong. Without any other single head, all but a few stay right.
# If three of layer 1 go, 93 to 98% are still right, but much less surely: the loss rises from 0.02 to between 1.1 and
# 1.6. There, copying stops only without all four, because they share a job. (Both ways to cut are explained below.)
#
# </details>
#
# ## The output is a sum over heads
#
# Why can we take a head out at all? In a row of `merged`, the pieces of the heads lie side by side, so its product with
# $w_o$ splits into H parts. If $w_o^h$ is the h-th block of **rows** of $w_o$, then
#
# $$\mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, w_o + b_o
# = \sum_{h=1}^{H} \mathrm{head}_h\, w_o^h + b_o$$
#
# Let's check it with random params and sizes that all differ.

# %%
from mha_numpy import MultiHeadParams

B, T, D, H, d_k, d_v = 2, 5, 10, 3, 4, 6
rng = np.random.default_rng(7)
x = rng.normal(size=(B, T, D))
arrays = {}
for s, width in {"q": d_k, "k": d_k, "v": d_v}.items():
    arrays[f"w_{s}"] = rng.normal(size=(D, H * width)) / np.sqrt(D)
    arrays[f"b_{s}"] = rng.normal(size=H * width)
arrays["w_o"] = rng.normal(size=(H * d_v, D)) / np.sqrt(d_v)
arrays["b_o"] = rng.normal(size=D)
params = MultiHeadParams(**arrays)

options = {"params": params, "num_heads": H}
with trace() as t:
    out, _ = multi_head_attention_forward(x, **options)
# (B, H, T, D): what each head adds
shares = t["heads"] @ params.w_o.reshape(H, d_v, D)
compare(shares.sum(axis=1) + params.b_o, out, name="sum over heads")

# %%
panels = {f"head {h}'s share": shares[0, h] for h in range(H)}
title = "Random params: out is the sum of the heads, plus b_o"
matrices(panels | {"out": out[0]}, title=title)

# %% [markdown]
# So you can describe a layer in two ways. The code joins the pieces and multiplies once. But you can also say that
# **each head reads the tokens and adds something to every one of them**. In `merged`, every head has its own columns.
# In `out`, after $w_o$, all heads write into all columns, and that's what $w_o$ is for.
#
# A sum has no order. Put the column blocks of $w_q$, $w_k$, $w_v$ and the row blocks of $w_o$ in a different order, and
# the output stays the same. So the number in "head 3" means nothing.
#
# ## Switching a head off
#
# `head_gate` multiplies each head by a number $g_h$, usually 1. With $g_h = 0$ the head's share is gone:
#
# $$\mathrm{out} = \sum_h g_h\,\mathrm{head}_h\, w_o^h + b_o$$
#
# If a head stays switched off, its params can go too, which is called *pruning*. For head 1, we delete its columns of
# $w_q$, $w_k$, $w_v$ and their biases, and its rows of $w_o$:

# %%
gate = np.array([1.0, 0.0, 1.0])
gated = options | {"head_gate": gate}
without_1, _ = multi_head_attention_forward(x, **gated)

# pruning: the same, without head 1's params
its_rows = slice(d_v, 2 * d_v)
smaller = {"w_o": np.delete(params.w_o, its_rows, axis=0)}
for s, width in {"q": d_k, "k": d_k, "v": d_v}.items():
    its_columns = slice(width, 2 * width)
    for name in (f"w_{s}", f"b_{s}"):
        smaller[name] = np.delete(
            arrays[name], its_columns, axis=-1
        )
fewer = {"params": params._replace(**smaller), "num_heads": 2}
pruned, _ = multi_head_attention_forward(x, **fewer)
found = {"gate": out - without_1, "pruned": pruned}
compare(found, {"gate": shares[:, 1], "pruned": without_1})

# %% [markdown]
# Replacing a head with zeros has a flaw: the later layers are used to getting a vector from this head, and may never
# have seen zeros there. We can also replace it with its *mean*: the head writes its average, the same for every token,
# so all we lose is what it says about *these* tokens. In our first table both ways agree. Elsewhere the
# mean can even cost more (notebook 21).
#
# ## How much does a head matter?
#
# Cutting the heads of a large model one by one takes a forward pass for each. A gradient is cheaper. How does the loss
# L change with a gate? Since $\mathrm{gated}_h = g_h\,\mathrm{head}_h$, the slope is
#
# $$\frac{\partial L}{\partial g_h} = \sum \overline{\mathrm{gated}}_h \cdot \mathrm{head}_h ,$$
#
# summed over tokens and features, where a bar marks the gradient of the loss. One backward pass computes this for all
# heads. Michel et al. 2019 (section 4.1) take its absolute value, averaged over the sequences, as the head's
# importance.
#
# > **Predict first.** Cutting head 0.0 costs the most. Will its importance be by far the largest?

# %%
from functools import partial

from mha_numpy.models.analysis import head_importance
from mha_numpy.models.train import Batch, loss_and_gradients

batch = Batch((ids,), targets)


def loss_with(layer, gate):
    model.attentions[layer].head_gate = gate
    loss = loss_and_gradients(model, batch)
    model.attentions[layer].head_gate = None
    return loss


run = partial(loss_and_gradients, model, batch)
importance = head_importance(model, run)
whole = run()
off = 1 - np.eye(4)  # in row h, head h has gate 0
costs = [[loss_with(i, gate) for gate in off] for i in (0, 1)]
panels = {
    "importance": np.stack(list(importance.values())),
    "added loss, when cut": np.array(costs) - whole,
}
labels = {
    "row_labels": ["layer 0", "layer 1"],
    "column_labels": [f"head {h}" for h in range(4)],
}
matrices(panels, **labels, shared=False)

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. All eight are small, and in these sequences head 1.3 comes out more important than head 0.0, even though cutting
# it costs only 0.03. Cutting head 0.0 costs hundreds of times more than its importance says.
#
# </details>
#
# A gate is like a volume knob, and a gradient is the slope of the loss *here*, where all knobs are at 1. Training has
# turned head 0.0 to its best volume, and at the lowest point of the loss, the curve is flat. Let's look at the curve.

# %%
volumes = np.linspace(0, 1.5, 13)
curves = {}
for h in (0, 1):
    gates = np.ones((13, 4))
    gates[:, h] = volumes
    losses = [loss_with(0, gate) for gate in gates]
    curves[f"head 0.{h}"] = np.array(losses)
title = "The loss over one gate, with all others at 1"
looks = {"x_label": "gate of the head", "y_label": "loss"}
line_chart(volumes, curves, title=title, **looks)

# %% [markdown]
# Both curves are flat at 1. One of them is flat everywhere, while the other has a cliff on its way to 0. **A small
# gradient does not mean a useless head.** So use gradients for a first look at many heads, and a cut to find out about
# one.
#
# ## Two kinds of mixing
#
# Whichever head you cut, you lose the same kind of thing: a way for *tokens* to reach each other. Which operations mix
# tokens, and which mix features? We change one number, feature 1 of token 2, and see what reacts.
#
# > **Predict first.** Which rows and columns react in each of the five panels?

# %%
from mha_numpy import MultiHeadAttention, attention_forward


def reacts(f, x):
    """(T, D): what changes in f(x) with token 2's feature 1?"""
    moved = x.copy()
    moved[0, 2, 1] += 1
    return (abs(f(moved) - f(x)) > 1e-9)[0]


def mix(x):  # with fixed weights
    return merge_heads(fixed @ split_heads(x, 3))


def attend(x):  # the scores depend on x, too
    x = split_heads(x, 3)
    return merge_heads(attention_forward(x, x, x)[0])


rng = np.random.default_rng(4)
x = rng.normal(size=(1, 4, 6))
fixed = rng.dirichlet(np.ones(4), size=(1, 3, 4))
w_o, w_1 = rng.normal(size=(6, 6)), rng.normal(size=(6, 9))
w_2 = rng.normal(size=(9, 6))
operations = {
    "weights @ v": mix,
    "attention alone": attend,
    "x @ w_o": lambda x: x @ w_o,
    "feed-forward": lambda x: np.tanh(x @ w_1) @ w_2,
    "whole layer": MultiHeadAttention(6, 3, rng=5),
}
panels = {name: reacts(f, x) for name, f in operations.items()}
title = "What reacts to token 2's feature 1? (Random params)"
matrices(panels, title=title, meaning=("reacts", "stays"))

# %% [markdown]
# <details><summary>Answer</summary>
#
# | operation | mixes tokens | mixes features |
# |---|---|---|
# | weights @ v | yes | no |
# | attention alone, with its scores | yes | within a head (features decide the scores) |
# | every projection: $w_q$, $w_k$, $w_v$, $w_o$ | no | yes |
# | feed-forward | no | yes |
# | the whole layer | yes | yes |
#
# </details>
#
# "Attention mixes positions, the feed-forward layer mixes features" is only half of it. Attention is the only part that
# mixes tokens, but its projections mix features as well.
#
# ## What a cut doesn't show
#
# - **A head that costs nothing may still do the job.** In layer 1, four heads share one job, and after a cut the others
#   may take over (*self-repair*: McGrath et al. 2023, Rushing and Nanda 2024). So the cost of a cut is roughly a lower
#   bound of what the head does.
# - **After training is not before training.** Voita et al. 2019 removed 38 of 48 encoder heads of a translation model
#   at a cost of 0.15 BLEU. Michel et al. 2019 left some layers with one head, but cross-attention needs more. Training
#   a translator with fewer heads from the start was worse (Behnke and Heafield 2020). Is it always? It depends on what
#   stays equal (`mha-numpy experiment redundancy`). One head as wide as eight learned to copy sooner than the eight,
#   but failed with one of five seeds. One as narrow as one of the eight succeeded with only one seed in time, whereas
#   the eight, trained and then cut to one a layer, were 98% right after 100 more steps. "Heads are useless" follows
#   from none of these.
# - **Names of heads are loose.** Clark et al. 2019 and Voita et al. 2019 found positional heads (the token before or
#   after), delimiter heads (stops and commas), syntactic heads (a verb's object), coreference heads, and heads for rare
#   tokens; "semantic" is the loosest name. At least nine in ten of GPT-2 small's heads have several roles (Kissane et
#   al. 2024).
# - **Weights are not an explanation.** They show where a head looks, but not what it takes from there (that's `v`), nor
#   what $w_o$, the residual path and later layers make of it (Jain and Wallace 2019; Wiegreffe and Pinter 2019 reply).
#
# ## Exercise: which heads matter
#
# Write the importance of Michel et al. One of the check's examples has a head that helps one sequence and hurts
# another. A head like that does matter.
#
# To practise more, look in `mha-numpy exercises`: `head-gates` is the slope without the absolute value.


# %% tags=["exercise"]
def my_head_importance(d_gated, heads):
    """d_gated, heads (B, H, T_q, d_v) -> (H,): how much each head
    matters.

    Forward was gated = heads * gate[:, None, None], with all gates
    1. In each sequence by itself, a gate has a gradient; the
    importance is the mean, over the sequences, of its absolute
    value.
    """
    ...  # your code


# %% tags=["check"]
check("head-importance", my_head_importance)

# %% tags=["hint"]
# hint("head-importance")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - The output is $\sum_h g_h\,\mathrm{head}_h w_o^h + b_o$. So heads have no order, and you can switch each one off by
#   itself, by 0 or by its mean.
# - A gate's gradient ranks all heads in one backward pass. But it is only the slope at gate 1, and the head that the
#   model couldn't do without was on flat ground near a cliff.
# - One head did one job alone; four heads shared another. So "this head can be cut" doesn't mean "this job isn't
#   needed".
# - Only the weights mix tokens, all projections mix features, and heads meet only in $w_o$.
#
# **In the code:** `head_gate` in `mha_numpy/core/attention.py`; `cuts.py`, `importance.py` and `pruning.py` in
# `mha_numpy/models/analysis`.
#
# **Reference:** Michel et al. 2019, *Are Sixteen Heads Really Better than One?*; Voita et al. 2019, *Analyzing
# Multi-Head Self-Attention*; Clark et al. 2019, *What Does BERT Look At?*; Behnke and Heafield 2020, *Losing Heads in
# the Lottery*; McGrath et al. 2023, *The Hydra Effect*; Jain and Wallace 2019, *Attention is not Explanation*;
# Wiegreffe and Pinter 2019, *Attention is not not Explanation*; Wang et al. 2022, *Interpretability in the Wild* (cuts
# by the mean).
#
# **Next:** [11, softmax backward](11_softmax-backward.ipynb).
