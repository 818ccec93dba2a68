# %% [markdown]
# # 18 · Induction heads appear
#
# You have derived the backward of attention line by line, and checked it. Here it does what it is for: it trains.
# First one head learns to read backwards. Then two layers learn to copy, and we watch the heads that do it appear.
#
# **You will learn**
#
# - how a head gets its job from nothing but a loss;
# - what an induction head is, which two heads make one, and why both appear at the same time;
# - how a head is cut, by 0 and by its mean, and what a cut does not tell;
# - how the same circuit looks when it is set by hand.
#
# All that is said here about a head is said about this task and this seed. In large models most heads do several
# things.

# %%
import numpy as np

from mha_numpy.analysis import (
    cut_heads,
    induction_score,
    mean_heads,
    previous_token_score,
    weights_times_norm,
)
from mha_numpy.draw import line_chart, matrices, weights_by_head
from mha_numpy.exercises import check, hint
from mha_numpy.models import AttentionOnlyLM, induction_by_hand
from mha_numpy.train import IGNORED, AdamW, fit, load_trained, train_recipe, warm_up_cosine
from mha_numpy.train.tasks import Induction

np.set_printoptions(precision=3, suppress=True)

# %% [markdown]
# ## One head learns to read backwards
#
# The task: read 12 digits, say them in reverse. The model has an embedding, one layer with **one head**, and an
# unembedding. Nothing else.
#
# > **Predict first.** The answer at place 0 is the digit at place 11. When the head has learned its job, where will
# > its weights be?

# %%
untrained = AttentionOnlyLM(10, 12, embed_dim=32, num_heads=1, num_layers=1, is_causal=False)
learned = train_recipe("reverse", backend="numpy", measure_every=10, progress=False)
digits = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])
print("before:", untrained(digits).argmax(axis=-1)[0])
print("after: ", learned.model(digits).argmax(axis=-1)[0])

# %%
both = [model.attentions[0].weights[0, 0] for model in (untrained, learned.model)]
names = ["before: random params", "after 150 steps"]
note = "One head, twice."
weights_by_head(np.stack(both), list(map(str, digits[0])), head_names=names, note=note)

# %% [markdown]
# The antidiagonal. Nobody wrote it: there is no rule about places in the model. There is a loss, and the gradient
# that your backward carries from the logits through `w_o`, the weights and the scores to `w_q` and `w_k`. Each of 150
# batches moved the params a little against it.

# %%
steps, right = learned.history.curve("right")
_, antidiagonal = learned.history.curve("antidiagonal")
lines = {"right digits": right, "weight on the antidiagonal": antidiagonal}
line_chart(steps, lines, title="One head learns to reverse", x_label="steps", y_label="share")

# %% [markdown]
# ## A task that needs two steps
#
# Now pieces of random letters come back, and the model has to say each letter before it is there. The first time
# nobody can know. When a piece comes back, its first letter is a surprise, and all the others can be known: they
# are *asked*.

# %%
V, T = 16, 24
task = Induction(V, T)
(ids,), targets = task.draw_batch(np.random.default_rng(1), 128)
asked = targets != IGNORED
letters = np.array(list("abcdefghijklmnopqrstuvwxyzABCDEF"))
print("read:", " ".join(letters[ids[0]]))
print("say: ", " ".join(np.where(asked[0], letters[targets[0] % V], ".")))

# %% [markdown]
# How would you do it? You find the present letter where it stood before, and you say what came *after* it. For a
# head that is awkward. Its query is the present letter. It wants the token whose *predecessor* is this letter, but
# in the first layer a key is made of its own token and place alone: it does not know who stands before it.
#
# So two layers share the work. A head of the first layer looks at the token before, and notes it. A head of the
# second layer compares its letter with these notes:
#
# ```text
#    a    b    c    d    a
#    └───►b                     layer 0, a previous-token head: b notes "before me stands a"
#         ▲              │
#         └──────────────┘      layer 1, an induction head: a asks "who has noted a?"; b answers
# ```
#
# The pair is called an *induction circuit* (Elhage et al. 2021; Olsson et al. 2022). With one layer it is
# impractical, not impossible: a single layer needs exponentially more size (Sanford et al. 2024).
#
# ## Watch it learn
#
# Two scores tell where a head looks: how much of its weight lies on the token before, and how much lies on the
# token after an earlier copy of the present one. They are measured every 10 steps.


# %%
def measure(model, step):
    """Return the share of right answers, and both scores of every head."""
    found = {"right": (model(ids).argmax(axis=-1) == targets)[asked].mean()}
    for i, attention in enumerate(model.attentions):
        before = previous_token_score(attention.weights)
        copying = induction_score(attention.weights, ids, asked)
        found |= {f"previous token {i}.{h}": score for h, score in enumerate(before)}
        found |= {f"induction {i}.{h}": score for h, score in enumerate(copying)}
    return found


def train(num_layers, seed=0, steps=300):
    model = AttentionOnlyLM(V, T, embed_dim=32, num_heads=2, num_layers=num_layers, rng=seed)
    optimizer = AdamW(model.astype(np.float32), 5e-3, weight_decay=0.01)
    options = {"schedule": warm_up_cosine(steps, 30), "max_norm": 1.0, "rng": seed}
    options |= {"measure": measure, "measure_every": 10, "progress": False}
    options |= {"steps": steps, "optimizer": optimizer}
    return fit(model, lambda rng: task.draw_batch(rng, 64), **options)


# %% [markdown]
# > **Predict first.** What is the loss of a model that finds all 16 letters equally likely? And how will the loss of
# > two layers fall: evenly, or in a drop?

# %%
two_layers, one_layer = train(2), train(1)  # about 20 seconds
print(f"all letters equally likely: {np.log(V):.2f}")

# %%
tens = {"2 layers": two_layers, "1 layer": one_layer}
lines = {name: np.reshape(h.losses, (-1, 10)).mean(axis=1) for name, h in tens.items()}
title = "The loss, mean of 10 steps"
line_chart(np.arange(10, 301, 10), lines, title=title, x_label="steps", y_label="nats")

# %% [markdown]
# With two layers there is a plateau, and then a **drop**: in about 40 of the 300 steps the loss falls by more than
# half of what it ever falls. One layer, with the same steps, goes down a slope and stays far above. (It learns
# something else: letters that were there before get most of the probability, but
# which of them is next it cannot say.)
#
# What happened in the drop?

# %%
steps, _ = two_layers.curve("right")
names = [f"previous token 0.{h}" for h in (0, 1)] + [f"induction 1.{h}" for h in (0, 1)]
lines = {name: two_layers.curve(name)[1] for name in ["right", *names]}
title = "Two layers: scores of the heads"
line_chart(steps, lines, title=title, x_label="steps", y_label="share")

# %% [markdown]
# The induction scores of layer 1 and the previous-token score of a head of layer 0 rise in the same steps, as the
# circuit lets us expect. Asking for notes is worth little while nobody writes any,
# and notes are worth little while nobody asks. Each makes the other useful: progress is slow at first, and fast once
# both have begun.
#
# > **Try it.** Call `train(2, seed=1)`. Which head of the first layer takes the job now?
#
# ## The two layers of a larger model
#
# `mha-numpy train induction` trained a larger one, with 32 tokens and four heads in each layer. Its params are
# shipped with the package. We let it read a b c d a b c.

# %%
model = load_trained("induction").model
abc = np.array([[0, 1, 2, 3, 0, 1, 2]])
answer = model(abc).argmax(axis=-1)[0, -1]
print("a b c d a b c, and then:", letters[answer])
first, second = (attention.weights for attention in model.attentions)
weights_by_head(first, list("abcdabc"), head_names=[f"head 0.{h}" for h in range(4)])

# %% [markdown]
# On this task, in this seed, head 0.0 is the previous-token head: its weights are one step below the diagonal in
# every row. The others do it in some rows, and other things besides. Now layer 1:

# %%
weights_by_head(second, list("abcdabc"), head_names=[f"head 1.{h}" for h in range(4)])

# %% [markdown]
# Look at the last three rows. The second a looks at the first b, the second b at c, the second c at d: at what
# came next the last time. **All four heads** do it; head 1.0 alone misses the b. One would have been enough; training
# had no reason to stop at one. In the first four rows nothing can be copied, and each head rests somewhere.
#
# ## Who feeds whom
#
# Does the second layer really read what the first has noted? Cut a head of layer 0 off, and measure the induction
# score of each head of layer 1. A cut by 0 lets the head write zeros. That is a vector that the layer behind has
# never seen. The milder cut is by the *mean*: the head writes its average, the same for every token.

# %%
(ids,), targets = Induction().draw_batch(np.random.default_rng(2), 128)
asked = targets != IGNORED
model(ids)
means = [mean_heads(attention) for attention in model.attentions]
left = []
for h in range(4):
    with cut_heads(model.attentions[0], h, means=means[0]):
        model(ids)
        left.append(induction_score(model.attentions[1].weights, ids, asked))
rows, columns = [f"without 0.{h}" for h in range(4)], [f"1.{h}" for h in range(4)]
matrices({"induction score": np.stack(left)}, row_labels=rows, column_labels=columns)

# %% [markdown]
# Without head 0.0 all four lose their way; without one of the others none does. So on this task, in this seed, 0.0
# feeds all four heads of layer 1.
#
# ## Copying, seen to fail
#
# > **Predict first.** Which single cut spoils the answers: 0.0? One of layer 1? And what if three of the four in
# > layer 1 are cut?


# %%
def right_without(layer, heads):
    """(2,): the share of right answers with these heads cut by 0, and by their means."""
    shares = []
    for cut_to in (None, means[layer]):
        with cut_heads(model.attentions[layer], heads, means=cut_to):
            shares.append((model(ids).argmax(axis=-1) == targets)[asked].mean())
    return shares


cuts = {f"{i}.{h}": (i, [h]) for i in (0, 1) for h in range(4)}
cuts |= {"all of 1 but 1.3": (1, [0, 1, 2]), "all of 1": (1, [0, 1, 2, 3])}
shares = np.array([right_without(*cut) for cut in cuts.values()])
matrices({"right": shares}, row_labels=list(cuts), column_labels=["by 0", "by mean"])

# %% [markdown]
# Without 0.0 nearly nothing is copied. Without any single head of layer 1 nothing is lost, and even one of the four
# is enough. Without all four, all is lost. So a head whose cut does no harm may still do the job: others do it too,
# or take it over. What a cut costs is a lower bound, roughly, of what the head does. Here both kinds of cut agree; in
# larger models they need not.
#
# The answers themselves, for twelve letters that come twice:

# %%
twice = np.tile(np.arange(12), 2)[None]
print("should say: ", "".join(letters[twice[0, 13:]]))
print("whole:      ", "".join(letters[model(twice).argmax(axis=-1)[0, 12:-1]]))
with cut_heads(model.attentions[0], 0, means=means[0]):
    print("without 0.0:", "".join(letters[model(twice).argmax(axis=-1)[0, 12:-1]]))

# %% [markdown]
# ## The circuit by hand
#
# If the story is true, two heads that are *set* to do just this must copy as well. `induction_by_hand` has two layers
# of one head. Every param is 0 but for a few blocks of ones, each with its reason. Nothing in it is trained.

# %%
by_hand = induction_by_hand()
print("by hand:    ", "".join(letters[by_hand(twice).argmax(axis=-1)[0, 12:-1]]))
model(abc), by_hand(abc)
pairs = [(by_hand, 0, 0), (model, 0, 0), (by_hand, 1, 0), (model, 1, 3)]
names = ["0.0 by hand", "0.0 learned", "1.0 by hand", "1.3 learned"]
found = [each.attentions[layer].weights[0, head] for each, layer, head in pairs]
note = "Two heads set by hand, and two learned ones."
weights_by_head(np.stack(found), list("abcdabc"), head_names=names, note=note)

# %% [markdown]
# The lower layers are the same. In the upper ones the rows that copy are the same; in the first four rows nothing is
# asked, and by hand the weight is spread, while the learned head found places of its own. What a head does where
# nothing depends on it is left to chance.
#
# ## Where it looks, and what it takes
#
# Weights say where a head looks, not what it takes from there. What it takes is weight times value, and a value may
# be short. So we draw each weight times the length of the value that it brings, after `w_o` (Kobayashi et al. 2020).
#
# > **Predict first.** Heads 0.0 and 0.3 look at nearly the same tokens. Yet without 0.0 the model fails, and without
# > 0.3 it does not. What may differ?

# %%
layer = model.attentions[0]
brought = weights_times_norm(layer)[0]
weights_by_head(layer.weights[0, [0, 3]], list("abcdabc"), head_names=["head 0.0", "head 0.3"])

# %%
matrices({f"weight times norm, 0.{h}": brought[h] for h in (0, 3)}, row_labels=list("abcdabc"))

# %% [markdown]
# Head 0.3 looks, and brings a sixth or less of what 0.0 brings. Two pictures of weights can be alike while the heads
# are not: weights show where a head reads, and not why, nor how much comes of it.
#
# ## What this says of large models
#
# Olsson et al. 2022 found such heads, and such a drop, in language models of many sizes. They copy repeats; more is
# debated. Several such heads share the work (Singh et al. 2024), and for learning from examples other heads seem to
# matter more (Yin and Steinhardt 2025).
#
# ## Exercise: a step of Adam
#
# Backward says in which direction. The optimizer says how far, and all models here were trained with Adam. Write its
# step. The check compares the param, and also what you hand to the next step.
#
# More of this kind in `mha-numpy exercises`: `embedding-backward`, where gradients end; `train-with-adam`, the whole
# loop; `museum-token-twice` and `museum-step-counter`, two bugs that shipped.


# %% tags=["exercise"]
def my_adam_step(param, gradient, mean, square, t, learning_rate, beta_1, beta_2, eps):
    """All arrays have one shape -> param, mean, square after step t, counted from 1.

    Mean and square are running means of the gradient and of its square. Both began at 0, so the
    step, but only the step, takes them divided by 1 - beta_1**t and 1 - beta_2**t.
    """
    ...  # your code


# %% tags=["check"]
check("adam-step", my_adam_step)

# %% tags=["hint"]
# hint("adam-step")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - A head gets its job from the loss alone: one head reversed digits after some 30 steps.
# - An induction circuit has two parts: a head that notes the token before, and a head that asks who noted the present
#   one. Each makes the other useful; so both come together, and the loss drops.
# - On this task, in this seed, one head of layer 0 feeds four heads of layer 1 that share one job.
# - Cut by 0 and by the mean. A cut without harm does not show that a head does nothing.
# - Draw weights times the norm of values beside weights.
#
# **In the code:** `mha_numpy/train` (recipes and tasks), `mha_numpy/analysis` (scores and cuts),
# `mha_numpy/models/by_hand.py`.
#
# **Reference:** Elhage et al. 2021, *A Mathematical Framework for Transformer Circuits*; Olsson et al. 2022,
# *In-context Learning and Induction Heads*; Michel et al. 2019, *Are Sixteen Heads Really Better than One?*;
# Kobayashi et al. 2020, *Attention Is Not Only a Weight*; Sanford et al. 2024, *One-layer Transformers Fail to Solve
# the Induction Heads Task*; Singh et al. 2024, *What Needs to Go Right for an Induction Head?*; Yin and Steinhardt
# 2025, *Which Attention Heads Matter for In-context Learning?*; Kingma and Ba 2015, *Adam*.
#
# **Next:** [16, translating numbers](19_translating-numbers.ipynb).
