# %% [markdown]
# # 20 · Induction heads appear
#
# Here is a small **trained** model of two layers with four heads each. It reads twelve letters in a random order that
# it has never seen, and then the same twelve again. Before each letter, it has to say which one comes next. How likely
# does it think the right one is?

# %% tags=["hide-input"]
import numpy as np

from mha_numpy.core import softmax_forward
from mha_numpy.models.analysis import cut_heads, mean_heads
from mha_numpy.models.train import load_trained
from mha_numpy.show.pictures import matrices

# %%
model = load_trained("induction").model
letters = np.array(list("abcdefghijklmnopqrstuvwxyzABCDEF"))
twice = np.tile(np.random.default_rng(3).permutation(12), 2)[None]


def chances():
    """How likely the model finds each letter of the second half."""
    probs, _ = softmax_forward(model(twice)[0, 12:-1])
    return probs[np.arange(11), twice[0, 13:]]


whole = chances()
layer = model.attentions[0]
with cut_heads(layer, 0, means=mean_heads(layer)):
    both = np.stack([whole, chances()])
labels = {"row_labels": ["whole", "one head of 8 cut"]}
labels["column_labels"] = letters[twice[0, 13:]]
matrices({"p(right letter), trained": both}, **labels)

# %% [markdown]
# The model is nearly sure of every letter. Then we cut one of its eight heads, so that it writes the same average
# everywhere, and almost everything is lost. No one wrote a rule for copying into this model. Its heads grew out of a
# loss, by the backward pass you've derived.
#
# **By the end you can** find the two heads that copy in a trained model, prove by cuts that one needs
# the other, and write the step of the optimizer that made them.
#
# All of this is about one task and one seed, except for one chart: `mha-numpy experiment in-context` tries two other
# tasks with five seeds each.
#
# ## A task that needs two steps
#
# We train a smaller model. In its texts, pieces of random letters repeat. When a piece repeats, its first letter is a
# surprise, but a model can know all the others. We *ask* only for those; the loss ignores every other place.

# %%
from mha_numpy.models.train import IGNORED, share_right
from mha_numpy.models.train.tasks import Induction

V, T = 16, 24
task = Induction(V, T)
(ids,), targets = task.draw_batch(np.random.default_rng(1), 128)
asked = targets[0] != IGNORED
print("read:", " ".join(letters[ids[0]]))
say = np.where(asked, letters[targets[0] % V], ".")
print("say: ", " ".join(say))

# %% [markdown]
# How would you do it? You'd look for the place where the current letter came before, and say what came *after* it. A
# head of the first layer can't do this. It would have to find the key of the token *after* the earlier copy, and that
# key is made from its own token and place only. It says nothing about the token before.
#
# So two layers share the work. A head in the first layer writes a note into each token, saying which token came before.
# A head of the second layer compares its own letter with these notes:
#
# ```text
#    a    b    c    d    a
#    └───►b                     layer 0, a previous-token head: b gets the note "after a"
#         ▲              │
#         └──────────────┘      layer 1, an induction head: a looks for the note "a", and finds b
# ```
#
# The pair is called an *induction circuit* (Elhage et al. 2021; Olsson et al. 2022). A single layer would
# have to be exponentially larger (Sanford et al. 2024).
#
# ## Watch it learn
#
# Two scores measure where a head looks: its weight on the token before, and on the token after an earlier copy of the
# current one.

# %%
from functools import partial

from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.analysis import head_patterns
from mha_numpy.models.train import AdamW, fit, warm_up_cosine
from mha_numpy.show.pictures import line_chart, weights_by_head


def measure(model, step):
    """Return the share of right answers and the heads' scores."""
    found = {"right": share_right(model(ids), targets)}
    for i, attention in enumerate(model.attentions):
        scores = head_patterns(attention.weights, ids)
        for h in range(attention.num_heads):
            found[f"previous token {i}.{h}"] = scores["previous"][h]
            found[f"induction {i}.{h}"] = scores["induction"][h]
    return found


def newborn(num_layers, seed=0, num_heads=2):
    sizes = {"embed_dim": 32, "num_heads": num_heads}
    sizes["num_layers"] = num_layers
    return AttentionOnlyLM(V, T, **sizes, rng=seed)


def train(num_layers, seed=0, num_heads=2, steps=300, given=None):
    model = newborn(num_layers, seed, num_heads).astype(np.float32)
    if given is not None:  # a bias on the scores of layer 0
        first = model.attentions[0]
        first.forward = partial(first.forward, bias=given)
    options = {
        "optimizer": AdamW(model, 5e-3, weight_decay=0.01),
        "schedule": warm_up_cosine(steps, 30),
        "max_norm": 1.0,
        "measure": measure,
        "measure_every": 10,
        "progress": False,
    }
    return model, fit(model, draw, steps=steps, rng=seed, **options)


def draw(rng):
    return task.draw_batch(rng, 64)


# %% [markdown]
# > **Predict first.** What is the loss of a model that thinks all 16 letters are equally likely? With two layers, will
# > the loss fall steadily or drop suddenly? And with one?
#
# <details><summary>Answer</summary>
#
# The first loss is $\log 16 = 2.77$. With two layers you see a plateau and then a **drop**: more than half of the whole
# fall happens in 40 of the 300 steps. With one layer the loss slides down slowly and stays far above. (Yet it learns
# something: of the experiment's letters, one layer gets 44% right, or 51% in three times as many steps; two get 93%.)
# </details>

# %%
grown, two_layers = train(2)  # about 15 seconds for both
_, one_layer = train(1)
histories = {"2 layers": two_layers, "1 layer": one_layer}
lines = {}
for name, history in histories.items():
    lines[name] = np.reshape(history.losses, (-1, 10)).mean(axis=1)
fall = lines["2 layers"][0] - lines["2 layers"][-1]
steepest = (lines["2 layers"][:-4] - lines["2 layers"][4:]).max()
print(f"all letters equally likely: {np.log(V):.2f}")
print(f"2 layers: {steepest / fall:.0%} of the fall in 40 steps")
title, axes = "The loss, mean of 10 steps", {"x_label": "steps"}
tens = np.arange(10, 301, 10)
line_chart(tens, lines, title=title, y_label="nats", **axes)

# %% [markdown]
# What happens in the drop? Here are the heads' scores. We also train a model that is *given* head 0.0 from the start,
# by a bias on its scores. Does it drop sooner?

# %%
before = np.zeros((1, 2, T, T), np.float32)  # for both heads
before[0, 0] = 30 * np.eye(T, k=-1)  # head 0.0 looks one back
_, helped = train(2, given=before)
steps, _ = two_layers.curve("right")
names = ["right", "previous token 0.0", "previous token 0.1"]
names += ["induction 1.0", "induction 1.1"]
lines = {name: two_layers.curve(name)[1] for name in names}
lines["right, head 0.0 given"] = helped.curve("right")[1]
title = "Two layers: scores of the heads"
line_chart(steps, lines, title=title, y_label="share", **axes)

# %%
young = newborn(2)
young(ids[:1]), grown(ids[:1])
ages = [age.attentions[1].weights[0, 0] for age in (young, grown)]
names = ["random params", "trained, 300 steps"]
note = "Head 1.0 (layer 1, head 0) at two ages."
options = {"head_names": names, "heads": [0, 0], "note": note}
weights_by_head(np.stack(ages), letters[ids[0]], **options)

# %% [markdown]
# The induction scores of layer 1 and the previous-token score of head 0.0 (layer 0, head 0) rise in the same steps. Do
# they wait for each other? Looking for notes is worth little while there are none, and with head 0.0 given, the drop
# does come about 30 steps sooner. Only with this seed? In the experiment, letters come again and again, and we
# can fix head 0.0 to look one back, or two:

# %%
from mha_numpy.show.pictures import experiment_chart

experiment_chart("in-context", 2)

# %% [markdown]
# With a head fixed one back, every run is faster than any without, and on average they need a third of the steps. With
# one fixed two back we see no sure gain. So training waits for the *right* first head. Whether that one also waits for
# the second, we haven't tried.
#
# > **Try it.** Call `train(2, seed=1)`. Which head of layer 0 gets the job now? And with `num_heads` 1, 4 or 16, how
# > much is right after 300 steps? (Seeds 0 to 2: 98 to 99%, 92 to 96%, 29 to 37%.)
#
# ## The two layers of the larger model
#
# Back to the model from the beginning (`mha-numpy train induction`). It reads a b c d a b c:

# %%
abc = np.array([[0, 1, 2, 3, 0, 1, 2]])
answer = model(abc).argmax(axis=-1)[0, -1]
print("a b c d a b c, and then:", letters[answer])


def draw_layer(i):
    names = [f"head {i}.{h}" for h in range(4)]
    weights = model.attentions[i].weights
    return weights_by_head(weights, [*"abcdabc"], head_names=names)


draw_layer(0)

# %% [markdown]
# Head 0.0 is the previous-token head: in every row its weight is one step left of the diagonal. The others do this
# only in some rows. Now layer 1:

# %%
draw_layer(1)

# %% [markdown]
# In the last three rows, the second a looks at the first b, the second b at c, and the second c at d: each looks
# at the letter that came next the last time. **All four heads** do it, except that head 1.0 misses the b. One head
# would have been enough, but training had no reason to stop at one. In the first four rows there is nothing to copy.
#
# ## Which head needs which
#
# Does layer 1 really read the notes of layer 0? To find out, we cut one head of layer 0 and measure the induction
# score of each head of layer 1. We cut by the *mean*, as before.
#
# > **Predict first.** The picture has one row for each head that we cut. Which row will be pale?
#
# <details><summary>Answer</summary>
#
# The first row. Without head 0.0, all four heads of layer 1 look elsewhere. Without any other head, nothing changes.
# </details>

# %%
rng = np.random.default_rng(2)
(ids,), targets = Induction().draw_batch(rng, 128)
model(ids)
means = [mean_heads(attention) for attention in model.attentions]
first, second = model.attentions
left = []
for h in range(4):
    with cut_heads(first, h, means=means[0]):
        model(ids)
        patterns = head_patterns(second.weights, ids)
    left.append(patterns["induction"])
labels = {"row_labels": [f"without 0.{h}" for h in range(4)]}
labels["column_labels"] = [f"1.{h}" for h in range(4)]
matrices({"induction score": np.stack(left)}, **labels)

# %% [markdown]
# ## Which cuts spoil the answers
#
# > **Predict first.** Which single cut spoils the answers: 0.0, or one in layer 1? And what happens if you cut three
# > of the four in layer 1?
#
# <details><summary>Answer</summary>
#
# Without 0.0 most answers are wrong. In layer 1 a single head still gets 92 to 98% right, though far less surely
# (notebook 10 shows the loss); without all four almost everything is lost. So a head may do the job even if
# cutting it does no harm, because others do it too or take over.
# </details>


# %%
def right_without(layer, heads):
    """Return two shares right: heads cut by 0, and by mean."""
    shares = []
    for mean in (None, means[layer]):
        with cut_heads(model.attentions[layer], heads, means=mean):
            shares.append(share_right(model(ids), targets))
    return shares


cuts = {f"{i}.{h}": (i, [h]) for i in (0, 1) for h in range(4)}
every = {0, 1, 2, 3}
cuts |= {f"all of 1 but 1.{h}": (1, [*every - {h}]) for h in every}
cuts["all of 1"] = (1, [0, 1, 2, 3])
shares = np.array([right_without(*cut) for cut in cuts.values()])
labels = {"row_labels": list(cuts)}
labels["column_labels"] = ["by 0", "by mean"]
matrices({"right": shares}, **labels)

# %% [markdown]
# ## The circuit by hand
#
# If this explanation is right, two heads that are *set* to do exactly this must copy as well. `induction_by_hand` has
# two layers of one head, whose params are 0, except for a few blocks of ones.

# %%
from mha_numpy.models import induction_by_hand

by_hand = induction_by_hand()
said = by_hand(twice).argmax(axis=-1)[0, 12:-1]
print("asked:  ", "".join(letters[twice[0, 13:]]))
print("by hand:", "".join(letters[said]))
model(abc), by_hand(abc)
found = [
    by_hand.attentions[0].weights[0, 0],
    model.attentions[0].weights[0, 0],
    by_hand.attentions[1].weights[0, 0],
    model.attentions[1].weights[0, 3],
]
names = ["0.0 by hand", "0.0 learned", "1.0 by hand", "1.3 learned"]
note = "Two heads set by hand, and two learned ones."
options = {"head_names": names, "heads": [0, 0, 0, 3], "note": note}
weights_by_head(np.stack(found), list("abcdabc"), **options)

# %% [markdown]
# In layer 0 the two heads look the same, and so do the rows of layer 1 that copy.
#
# ## Where it looks, and what it takes
#
# Weights show where a head looks, but not what it takes. It takes weight times value, and a value can be short. So we
# draw each weight times the length of its value, after `w_o` (Kobayashi et al. 2020).
#
# > **Predict first.** On this text, heads 0.0 and 0.3 look at nearly the same tokens. Yet the model fails without 0.0
# > and works without 0.3. What could be different?
#
# <details><summary>Answer</summary>
#
# The most that 0.3 brings, 1.7, is a sixth of the most that 0.0 brings, 10.4. And this text flatters it: on the 128
# texts above, 0.3 gives 0.35 of its weight to the token before, and 0.0 gives 0.87.
# </details>

# %%
from mha_numpy.models.analysis import weights_times_norm

layer = model.attentions[0]
two, options = layer.weights[0, [0, 3]], {"heads": [0, 3]}
options["head_names"] = ["head 0.0", "head 0.3"]
display(weights_by_head(two, list("abcdabc"), **options))
brought = weights_times_norm(layer)[0]
lengths = {f"weight times norm, 0.{h}": brought[h] for h in (0, 3)}
display(matrices(lengths, row_labels=list("abcdabc")))
model(ids)  # the 128 texts
patterns = head_patterns(layer.weights, ids)
print("on the token before:", patterns["previous"].round(2))

# %% [markdown]
# ## What this says about large models
#
# Olsson et al. 2022 found heads like these, and a similar drop, in language models of many sizes. That they copy
# repeats is agreed; whether they do more is debated. Several of them share the work (Singh et al. 2024), and other
# heads seem to matter more for learning from examples (Yin and Steinhardt 2025).
#
# ## Exercise: a step of Adam
#
# The backward pass gives the direction, and the optimizer decides how far to go. Write a step of Adam, which trained
# all models here.
#
# To practise more, try these in `mha-numpy exercises`: `embedding-backward`; `train-with-adam`; `museum-token-twice`
# and `museum-step-counter`, two bugs that shipped.


# %% tags=["exercise"]
def my_adam_step(
    param,
    gradient,
    mean,
    square,
    t,
    learning_rate,
    beta_1,
    beta_2,
    eps,
):
    """All arrays have one shape -> param, mean, square after step
    t, counted from 1.

    Mean and square are running means of the gradient and of its
    square. Both began at 0, so the step, but nothing else, takes
    them divided by 1 - beta_1**t and 1 - beta_2**t.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("adam-step", my_adam_step)

# %% tags=["hint"]
# hint("adam-step")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# - Copying takes two heads. One writes into each token which token came before it. The other looks for the note that
#   equals its own letter, and copies the letter that carries this note.
# - Both appear together, and the loss drops. Training waits for the first; the reverse is untested.
# - In this model, one head of layer 0 feeds all four of layer 1. That's why one cut ruined everything, while other
#   cuts did nothing. But a harmless cut doesn't prove that a head does nothing.
# - Next to weights, draw weights times the norm of values.
#
# **In the code:** `mha_numpy/models/train` (recipes and tasks), `mha_numpy/models/analysis` (scores and cuts),
# `mha_numpy/models/by_hand.py`.
#
# **Reference:** Elhage et al. 2021, *A Mathematical Framework for Transformer Circuits*; Olsson et al. 2022,
# *In-context Learning and Induction Heads*; Kobayashi et al. 2020, *Attention Is Not Only a Weight*; Sanford et al.
# 2024, *One-layer Transformers Fail to Solve the Induction Heads Task*; Singh et al. 2024, *What Needs to Go Right for
# an Induction Head?*; Yin and Steinhardt 2025, *Which Attention Heads Matter for In-context Learning?*; Kingma and Ba
# 2015, *Adam*.
#
# **Next:** [21, translating numbers](21_translating-numbers.ipynb).
