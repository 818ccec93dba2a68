# %% [markdown]
# # 05 · The trained head, understood
#
# Here is the head of notebook 00 again, which says twelve digits in reverse. We erase all numbers of its `w_q`: then
# every query is 0, and the head looks everywhere alike. After that we let the gradient of notebook 04 take **one** step.

# %%
import numpy as np

from mha_numpy import trace
from mha_numpy.models.analysis import cut_heads
from mha_numpy.models.train import load_trained, loss_and_gradients, share_right
from mha_numpy.show.pictures import line_chart, matrices, weights_by_head

trained = load_trained("reverse")
model, head = trained.model, trained.model.attentions[0]
batch = trained.task.draw_batch(np.random.default_rng(0), 64)
digits = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])
w_q = head.params["w_q"]
learned_w_q, pictures = w_q.copy(), []


def look(name):
    """Remember the weights for our digits, and print how many answers of the batch are right."""
    print(f"{name:15} {share_right(model(batch.inputs[0]), batch.targets):.0%} right")
    model(digits)
    pictures.append(head.weights[0, 0].copy())


look("trained")
w_q[...] = 0
look("w_q erased")
loss_and_gradients(model, batch)
w_q -= head.grads["w_q"]
look("one step later")
w_q[...] = learned_w_q
names = ["trained", "w_q erased", "one step later"]
labels = list(map(str, digits[0]))
weights_by_head(np.stack(pictures), labels, head_names=names, note="One head, three times.")

# %% [markdown]
# One step, and most answers are right again. How could the gradient know where the diagonal belongs, when no picture
# showed it?
#
# **What you can do afterwards:** you can open a trained head, say by which numbers it looks where it looks, and test
# your explanation.
#
# ## Why it looks there
#
# Every place starts with two vectors, and training has set both: $e$ for its digit, and $p$ for its place. Queries and
# keys are made of their sum. So the score of place i with place j has four parts:
#
# $$(e_i + p_i)\,w_q \cdot (e_j + p_j)\,w_k \;=\; \text{place with place} + \text{place with digit} + \text{digit with place} +
# \text{digit with digit}$$
#
# > **Predict first.** Which part makes the diagonal? Would the head look elsewhere if all digits were equal?

# %%
e, p = model.embedding.params["table"], model.positions.params["table"]
w_q, w_k = head.params["w_q"], head.params["w_k"]


def match(a, b):
    """The scores of queries made of a with keys made of b."""
    return (a @ w_q) @ (b @ w_k).T / np.sqrt(w_q.shape[1])


parts = {"place with place": match(p, p), "place with digit": match(p, e)}
parts |= {"digit with place": match(e, p), "digit with digit": match(e, e)}
matrices(parts, title="The four parts of a score (rows: queries, columns: keys; trained)")

# %% [markdown]
# <details><summary>Answer</summary>
#
# *Place with place*: the other diagonal holds the largest score of every row, from 8 to 16, and the three parts with digits
# are small. So the head asks by place, and the digits hardly matter: twelve equal digits give the same diagonal.
#
# </details>
#
# Read row 0: the query of place 0 fits the key of place 11. Nothing in the code says so. The numbers in `p`, `w_q` and
# `w_k` have come to say so.
#
# ## Two tests
#
# An explanation has to survive a test. If the head asks by place, then it must fail where places mean something else.
#
# > **Predict first.** We exchange the vectors of places 0 and 1. Which answers change? And what happens if the model reads
# > six digits instead of twelve?

# %%
print("twelve digits:         ", *model(digits).argmax(axis=-1)[0])
p[[0, 1]] = p[[1, 0]]
print("places 0, 1 exchanged: ", *model(digits).argmax(axis=-1)[0])
p[[0, 1]] = p[[1, 0]]
print("six digits:            ", *model(digits[:, :6]).argmax(axis=-1)[0])

# %% [markdown]
# <details><summary>Answer</summary>
#
# The first two answers change places, because their queries did. The last two change as well, because the keys of places
# 0 and 1 did. With six digits most answers are wrong: place 0 still asks for place 11, which is not there. The model has
# learned twelve places, not the idea of reversing.
#
# </details>
#
# ## What it hands over
#
# The weights say where the head reads. What it brings from there goes through `w_v`, `w_o` and the unembedding, which
# turns a vector into ten logits, one for each digit. All three are matrix products, so we can multiply them out: each
# row is a digit that the head looks at, each column is a logit.
#
# A second way leads past the head: a place's own digit is added to the result, and it reaches the logits, too.

# %%
to_logits = model.unembedding.params["w"]
through_head = e @ head.params["w_v"] @ head.params["w_o"] @ to_logits
past_head = e @ to_logits
ways = {"through the head": through_head, "past the head": past_head}
matrices(ways, title="Row: the digit. Column: the logit that it raises or lowers.")

# %% [markdown]
# Through the head every digit raises its own logit, by 13 to 28. Past the head the numbers are small. So the whole model
# is these two pictures: the places say where to read, and what is read there is written down.
#
# > **Predict first.** In notebook 00 we cut this head off, and the model said 1 9 2 9 0 5 7 2 0 1 0 2 for 3 1 4 1 5 9 2 6 5 3
# > 5 8. Can you say where that came from?

# %%
with cut_heads(head, 0):
    print("without the head:          ", *model(digits).argmax(axis=-1)[0])
print("largest logit past the head:", *past_head.argmax(axis=1)[digits[0]])

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only the way past the head is left. There a 3 raises the logit of 1 most, a 1 that of 9, and so on: always the same answer
# for the same digit, wherever it stands. Training never asked this way to be right alone.
#
# </details>
#
# So a cut does not show what a head does. It shows what the rest does without it. In this small model the two are easy to
# tell apart; in a large one another head may take over the work.
#
# ## How the gradient knew
#
# Back to the surprise. With `w_q` erased all scores are 0, so the weights tell nothing. But the rest of the model is whole.
# Here is minus the gradient of the scores, added up over the batch: where it is positive, a larger score lowers the loss.

# %%
w_q[...] = 0
with trace() as t:
    loss_and_gradients(model, batch)
w_q[...] = learned_w_q
matrices({"-d_scores": -t["d_scores"].sum(axis=0)[0]}, title="What the loss asks for, w_q erased")

# %% [markdown]
# There is the diagonal, before any weight shows it. You can follow it with notebook 04: the right answer at place 0 is
# the digit of place 11. The value from there raises the right logit, so more weight on it lowers the loss. Softmax
# passes that on to the score; the score passes it on to the query, and the query to `w_q`.
#
# One more look, over ten such steps of size 1:

# %%
w_q[...] = 0
right, rng = [], np.random.default_rng(1)
for _ in range(10):
    right.append(share_right(model(batch.inputs[0]), batch.targets))
    loss_and_gradients(model, trained.task.draw_batch(rng, 64))
    w_q -= head.grads["w_q"]
w_q[...] = learned_w_q
title = "w_q learned anew, all else trained"
line_chart(np.arange(10), {"right": right}, title=title, x_label="steps", y_label="share")

# %% [markdown]
# It was this fast because `w_k`, `w_v` and `w_o` were trained already. From random params all of them have to come
# together: notebook 04 trained such a model, and `mha-numpy train reverse` takes 150 steps.
#
# ## The same look at another head
#
# Head 0.0 of notebook 00 looked at the letter before. Open it in the same way, and multiply place with place. It
# is the first of four heads, so its block is the first quarter of the columns of `w_q` and `w_k`.

# %%
copier = load_trained("induction").model
p, first = copier.positions.params["table"][:12], copier.attentions[0]
w_q, w_k = (first.params[name][:, :16] for name in ("w_q", "w_k"))
matrices({"place with place": match(p, p)}, title="Scores of a head that looks one place back")

# %% [markdown]
# The large scores stand one place left of the diagonal: the query of place 5 fits the key of place 4. Cells right of the
# diagonal do not count, because this model hides what comes later (notebook 08).
#
# ## Exercise: a head with a bug
#
# This code shipped in a well-known collection, and nobody noticed: the model trained, and its pictures looked good. You
# know what a head has to do. Find the line, and mend it.
#
# More of this kind in `mha-numpy exercises`: the other exhibits of the museum, such as `museum-merge`.


# %% tags=["exercise"]
def my_attention(q, k, v):
    """q (T_q, d_k), k (T_k, d_k), v (T_k, d_v) -> (T_q, d_v); one of these lines is wrong."""

    def softmax(scores, axis):
        powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
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
# ## Summary of the first hour
#
# | step | in one line | what it means |
# |---|---|---|
# | three roles | `q, k, v = x @ w_q, x @ w_k, x @ w_v` | what a token asks, by what it is found, what it hands over |
# | scores | `q @ k.T / sqrt(d_k)` | how well each query fits each key; a row is a query |
# | weights | softmax along each row | shares: none negative, sum 1 |
# | output | `weights @ v` | a mean of values: it blends, it does not count |
# | many heads | cut after the projection, merge, `@ w_o` | several rows of weights for one token, added up |
# | backward | the same lines in reverse | how the loss changes with each number |
# | learning | `w -= rate * d_w` | a score grows where a larger share lowers the loss |
#
# - A picture of weights shows where a head reads. The values, `w_o` and all that follows decide what comes of it.
# - A cut shows what the rest does without the head.
# - Open the params, explain, then test the explanation: exchange something, and see whether the answer follows.
# - What is said here is said of these models. In large ones most heads do several things.
#
# **Reference:** Elhage et al. 2021, *A Mathematical Framework for Transformer Circuits*, for the two ways to the logits;
# Jain and Wallace 2019, *Attention is not Explanation*.
#
# **Next:** where you like. Deeper: [06, why the square root of d_k](06_why-the-square-root-of-d_k.ipynb). Variants: [15,
# cross-attention](15_cross-attention.ipynb). Learning: [20, induction heads appear](20_induction-heads-appear.ipynb).
