# %% [markdown]
# # 05 · The trained head, understood
#
# *About 9 minutes. Leave the exercise until after the hour.*
#
# The head of notebook 00 says twelve digits backwards. Now you're going to bend it. Change one matrix, with no training
# at all, and it will say the digits forwards, or in any order you like. To do this you need to know exactly what makes
# it look where it does.
#
# **By the end you can** open a trained head, say which numbers make it look where it does, and test
# your explanation.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import compare, trace
from mha_numpy.models.train import (
    load_trained,
    loss_and_gradients,
    share_right,
)
from mha_numpy.show.pictures import matrices, weights_by_head

# %%
digits = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
model = load_trained("reverse").model
head = model.attentions[0]


def say(digits):
    return model(np.array([digits]))[0].argmax(axis=-1)


print("it reads:", *digits, "\nit says: ", *say(digits))

# %% [markdown]
# ## Why it looks there
#
# Each place starts with two learned vectors: $e$, the *embedding* of its digit, and $p$, for the place itself. In
# this model, queries and keys are made from their sum, but values only from $e$: the place is used to find a digit,
# but the digit is all that gets handed over. So the score of place i with place j is
#
# $$\frac{(e_i + p_i)\,w_q \cdot (e_j + p_j)\,w_k}{\sqrt{d_k}}$$
#
# Multiplied out, it has four parts: *place with place*, *place with digit*, *digit with place* and *digit with
# digit*.

# %%
e = model.embedding.params["table"]  # one row for each digit
p = model.positions.params["table"]  # one row for each place


def match(a, b):
    """The scores of queries made of a with keys made of b."""
    q, k = a @ head.params["w_q"], b @ head.params["w_k"]
    return q @ k.T / np.sqrt(32)


# %% [markdown]
# > **Predict first.** Which part makes the diagonal?
# >
# > - place with place
# > - place with digit
# > - digit with place
# > - digit with digit
# >
# > <!-- answer: place with place -->

# %%
parts = {
    "place with place": match(p, p),
    "place with digit": match(p, e),
    "digit with place": match(e, p),
    "digit with digit": match(e, e),
}
for name, part in parts.items():
    print(f"{name}: scores up to {abs(part).max():.1f}")
print("place asks for place:", *match(p, p).argmax(axis=1))

# %% [markdown]
# <details><summary>Answer</summary>
#
# *Place with place*. Its scores go up to 15.7, and those of the parts with digits only to 3.7.
#
# </details>
#
# So the head goes by place, whatever the digits are: the query of place 0 fits the key of place 11. Nothing in the code
# says so. Training wrote it into the numbers of `p`, `w_q` and `w_k`.
#
# ## Bend it
#
# An explanation has to survive a test. If the head goes by place and nothing else, a place with a *different*
# question should say a *different* digit. Place 0 has always asked for place 11. So if place 5 takes over place 0's
# question, it should say the last digit.
#
# The new `w_q` does this in two steps. First, a matrix `read_place` turns the vector $e + p$ into twelve numbers: a 1
# at its own place and eleven 0s. So each $p$ has to become such a row, and each $e$ has to become zeros. Those are 22
# equations for each column of `read_place`, which has 32 numbers. That's enough freedom, and NumPy finds a solution:

# %%
learned = head.params["w_q"].copy()
wanted = np.vstack([np.eye(12), np.zeros((10, 12))])
vectors = np.vstack([p, e])  # of all places, of all digits
read_place, *_ = np.linalg.lstsq(vectors, wanted, rcond=None)
nine_at_5 = (e[9] + p[5]) @ read_place
matrices(
    {"a 9 at place 5": nine_at_5.round(9)}, column_labels=range(12)
)

# %% [markdown]
# Second, each place gets the learned query of whichever place it stands in for.


# %%
def bend(order):
    """Make place i ask for place order[i]."""
    asks_like = 11 - np.array(order)
    head.params["w_q"] = read_place @ p[asks_like] @ learned


# %% [markdown]
# > **Predict first.** We let every place ask for itself. What will the model say?
# >
# > - the digits in their own order
# > - the digits backwards
# > - other digits
# >
# > <!-- answer: the digits in their own order -->

# %%
bend([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
print("it reads:", *digits)
print("it says: ", *say(digits))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The digits in their own order. The model that used to reverse now copies.
#
# </details>
#
# Now write down any twelve places from 0 to 11, in any order, with repeats if you like:

# %%
order = [11, 0, 10, 1, 9, 2, 8, 3, 7, 4, 6, 5]
bend(order)
print("it says:  ", *say(digits))
print("we expect:", *(digits[place] for place in order))
weights_by_head(head.weights[0], order, range(12))

# %%
task = load_trained("reverse").task
(rows,), _ = task.draw_batch(np.random.default_rng(1), 500)
right = model(rows).argmax(axis=-1) == rows[:, order]
print(f"right in 500 new rows: {right.mean():.1%}")
head.params["w_q"] = learned  # as it was trained
print("six digits:", *digits[:6], "become", *say(digits[:6]))

# %% [markdown]
# Every digit is right, with no training at all. The explanation holds, and it even tells us where the model is bound
# to fail. With six digits, place 0 still asks for place 11, which isn't there. The model has learned twelve places,
# not the idea of reversing.
#
# ## What it hands over
#
# The weights say where the head reads. What it brings back goes through `w_v`, `w_o` and a last matrix, the
# *unembedding*. It turns a vector into ten numbers, the *logits*: one for each digit, and the model says the digit
# whose logit is the largest. All three are matrix products, so we can multiply them out. There is a second path, around
# the head, because each place's own embedding is added to the result.

# %%
to_logits = model.unembedding.params["w"]
through = e @ head.params["w_v"] @ head.params["w_o"] @ to_logits
around = e @ to_logits
print("around the head, at most:", around.max().round(1))
matrices(
    {"each digit read, to each logit": through.round()},
    row_labels=range(10),
    column_labels=range(10),
)

# %% [markdown]
# On the diagonal, each digit raises its own logit by 13 to 28, which puts it about 12 or more ahead of any other.
# Around the head the numbers are small. So the whole model fits into one sentence: the places decide where to read,
# and the head writes down what it finds there.
#
# (When you switched the head off in notebook 00, only the path around it was left. There, each place sees only its own
# digit.)
#
# ## How the gradient knew
#
# You changed `w_q` by hand. How did training find it? Let's erase it, so that every query is 0 and the head looks
# everywhere equally. The other params stay trained. Then `w_q` takes **one** step against its gradient, as in notebook
# 04.

# %%
head.params["w_q"] = np.zeros((32, 32))  # erased
with trace() as t:  # on 64 new rows
    loss_and_gradients(
        model, task.draw_batch(np.random.default_rng(0), 64)
    )
head.params["w_q"] = -head.grads["w_q"]  # one step from 0
print("one step later, it says:", *say(digits))
print(f"500 rows: {share_right(model(rows), rows[:, ::-1]):.0%}")

# %% [markdown]
# One step, and it says these digits backwards again, and 92% of those in the 500 new rows. While all the weights were
# still equal, the gradient of the scores already knew which way to go. We draw it with its sign flipped, added up over
# 64 rows of digits and times 100: filled where a larger score lowers the loss, a ring where a smaller one does.
#
# > **Predict first.** All twelve weights in each row are equal. What does the gradient look like?
# >
# > - equal everywhere, too
# > - a diagonal
# > - no pattern
# >
# > <!-- answer: a diagonal -->

# %%
head.params["w_q"] = learned  # as it was trained
wish = -100 * t["d_scores"].sum(axis=0)[0]  # (T_q, T_k)
matrices(
    {"raise or lower each score": wish.round()},
    row_labels=range(12),
    column_labels=range(12),
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The diagonal, before any weight shows it. Each row says: more weight there, and a little less almost everywhere else.
#
# </details>
#
# After notebook 04, you can say why. The right answer at place 0 is the digit of place 11. The value from there
# raises the right logit, so more weight on it lowers the loss. Softmax passes this slope on to the score, the score
# to the query, and the query to `w_q`. (From random params it takes longer, because `w_k`, `w_v` and `w_o` have to be
# learned too.)
#
# ## Exercise: a head with a bug (after the hour, 10 minutes)
#
# This bug shipped in a well-known collection of models. Nothing crashed: the model trained, and it drew good images.
# You know what a head has to do, so find the wrong line and fix it.
#
# To practise more: the museum in `mha-numpy exercises` has other bugs that shipped, such as `museum-merge`.


# %% tags=["exercise"]
def my_attention(q, k, v):
    """q (T_q, d_k), k (T_k, d_k), v (T_k, d_v) -> (T_q, d_v)."""

    def softmax(s, axis):
        powers = np.exp(s - s.max(axis=axis, keepdims=True))
        return powers / powers.sum(axis=axis, keepdims=True)

    scores = q @ k.T / np.sqrt(q.shape[-1])
    weights = softmax(scores, axis=0)
    return weights @ v


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("museum-softmax-axis", my_attention)

# %% tags=["hint"]
# hint("museum-softmax-axis")  # shows the next of four hints

# %% [markdown]
# ## After the hour: the same numbers in PyTorch
#
# Here is the whole model once more, in ten lines of PyTorch with our trained params (*needs PyTorch*):

# %% tags=["needs-torch", "after-the-hour"]
from importlib.util import find_spec

if find_spec("torch"):
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    learned = {n: torch.tensor(a) for n, a in model.named_params()}
    x = learned["embedding.table"][digits]  # (T, D)
    placed = x + learned["positions.table"]
    q = placed @ learned["attentions.0.w_q"]
    k = placed @ learned["attentions.0.w_k"]
    v = x @ learned["attentions.0.w_v"]
    heads = scaled_dot_product_attention(q, k, v)
    x = x + heads @ learned["attentions.0.w_o"]
    logits = (x @ learned["unembedding.w"]).numpy()
    print("PyTorch says:", *logits.argmax(axis=-1))
    ours = model(np.array([digits]))[0]
    display(compare({"logits": logits}, {"logits": ours}))
else:
    print("These lines need PyTorch: pip install torch")

# %% [markdown]
# You know every line: embedding and positions, three projections, attention, `w_o`, and the *residual* `x + ...`, which
# is the path around the head.
#
# ## After the hour: where this is in a GPT
#
# A GPT has the same parts, more of them, and two new ones:
#
# ```text
# text ─► embedding + positions ─► the block, N times ─► norm ─► logits
#
# the block:  norm ─► attention ─► add ─► norm ─► feed-forward ─► add
# ```
#
# *Norm* keeps the vectors at one size, and *feed-forward* computes on each token separately. The last logits score
# every possible next token. [This map](https://mha-numpy.github.io/mha-numpy/gpt.html) leads from each part to its
# derivation, and notebook [22](22_a-text-of-your-own.ipynb) trains such a model.
#
# ## Summary of the first hour
#
# | step | in one line | what it means |
# |---|---|---|
# | three roles | `q, k, v = x @ w_q, x @ w_k, x @ w_v` | what a token asks, how it is found, what it hands over |
# | scores | `q @ k.T / sqrt(d_k)` | how well each query fits each key; a row is a query |
# | weights | softmax along each row | shares: none negative, sum 1 |
# | output | `weights @ v` | a mean of values, so it lies between them |
# | many heads | split after the projection, merge, `@ w_o` | several rows of weights for one token |
# | backward | the same lines in reverse | how the loss changes with each number |
# | learning | `w -= rate * d_w` | `rate` is the step size; a score grows where a larger share lowers the loss more than average |
#
# - Open the params, explain, then test the explanation: bend something, and see whether the answer follows.
#
# **Reference:** Elhage et al. 2021, *A Mathematical Framework for Transformer Circuits*, for the two paths to the
# logits; Jain and Wallace 2019, *Attention is not Explanation*.
#
# **Next:** wherever you like. Deeper: [06, why the square root of d_k](06_why-the-square-root-of-d_k.ipynb). Variants:
# [15, cross-attention](15_cross-attention.ipynb). Learning: [20, induction heads
# appear](20_induction-heads-appear.ipynb).
