# %% [markdown]
# # 05 · The trained head, understood
#
# *About 9 minutes. The exercise is for after the hour.*
#
# Here is the head of notebook 00 again, which says twelve digits backwards. First we erase its `w_q`, so every query is
# 0 and the head looks everywhere equally. Then `w_q` takes **one** step against its gradient, as in notebook 04.

# %% tags=["hide-input"]
import numpy as np

from mha_numpy import compare, trace
from mha_numpy.models.analysis import cut_heads
from mha_numpy.models.train import load_trained, loss_and_gradients, share_right
from mha_numpy.show.pictures import matrices, weights_by_head

# %% tags=["hide-input"]
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
read, note = (
    list(map(str, digits[0])),
    "One head, three times. A row is a digit that it should write.",
)
weights_by_head(np.stack(pictures), read[::-1], read, head_names=names, note=note)

# %% [markdown]
# One step, and most answers are right again. How could the gradient know where the diagonal belongs?
#
# **What you can do afterwards:** you can open a trained head, say which numbers make it look where it does, and test
# your explanation.
#
# ## Why it looks there
#
# Each place starts with two learned vectors: $e$, the *embedding* of its digit, and $p$, for the place itself. Queries
# and keys are made from their sum. So the score of place i with place j is
#
# $$\frac{(e_i + p_i)\,w_q \cdot (e_j + p_j)\,w_k}{\sqrt{d_k}}$$
#
# Multiplied out, it has four parts: *place with place*, *place with digit*, *digit with place* and *digit with
# digit*.
#
# > **Predict first.** Which part makes the diagonal?
# >
# > - place with place
# > - place with digit
# > - digit with place
# > - digit with digit
# >
# > <!-- answer: place with place -->

# %% tags=["table"]
e, p = model.embedding.params["table"], model.positions.params["table"]
w_q, w_k = head.params["w_q"], head.params["w_k"]


def match(a, b):
    """The scores of queries made of a with keys made of b."""
    return (a @ w_q) @ (b @ w_k).T / np.sqrt(w_q.shape[1])


sizes = [abs(match(a, b)).max() for a, b in ((p, e), (e, p), (e, e))]
print("largest score of the parts with digits:", np.array(sizes).round(1))
matrices({"place with place": match(p, p)}, title="Rows: queries. Columns: keys. Trained.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# *Place with place*. The diagonal of notebook 00 contains the largest score of every row, from 8 to 16, and the three
# parts with digits are small. So the head asks by place, and twelve equal digits give the same diagonal.
#
# </details>
#
# Read row 0: the query of place 0 fits the key of place 11. Nothing in the code says so. Training wrote it into the
# numbers of `p`, `w_q` and `w_k`.
#
# ## Two tests
#
# An explanation has to survive a test. If the head asks by place, it must go wrong when we swap two places, or when
# some are missing.
#
# > **Predict first.** We swap the vectors of places 0 and 1. Which of the twelve answers change?
# >
# > - the first two
# > - the first two and the last two
# > - all of them
# >
# > <!-- answer: the first two and the last two -->

# %%
print("twelve digits:        ", *model(digits).argmax(axis=-1)[0])
p[[0, 1]] = p[[1, 0]]
print("places 0, 1 swapped:  ", *model(digits).argmax(axis=-1)[0])
p[[0, 1]] = p[[1, 0]]
print("six digits:           ", *model(digits[:, :6]).argmax(axis=-1)[0])

# %% [markdown]
# <details><summary>Answer</summary>
#
# The first two answers swap, because their queries did. So do the last two, because the keys of places 0 and 1 swapped
# too. With six digits most answers are wrong, because place 0 still asks for place 11, which isn't there. The model has
# learned twelve places, not the idea of reversing.
#
# </details>
#
# ## What it hands over
#
# The weights say where the head reads. What it brings back goes through `w_v`, `w_o` and the *unembedding*, which turns
# a vector into ten *logits*, one for each digit. The largest one wins. All three are matrix products, so we can
# multiply them out. A second path goes past the head, because each place's own embedding is added to the result.

# %%
to_logits = model.unembedding.params["w"]
through_head = e @ head.params["w_v"] @ head.params["w_o"] @ to_logits
past_head = e @ to_logits
print("own logit, through the head:  ", *through_head.diagonal().round().astype(int))
print("largest logit, past the head:  ", *past_head.max(axis=1).round(1))

# %% [markdown]
# Through the head each digit raises its own logit, by 13 to 28. Past the head the numbers are small. That sums up the
# whole model: *place with place* says where to read, and *through the head* writes down what is there.
#
# In notebook 00 we switched this head off, and the model wrote 1 9 2 9 0 5 7 2 0 1 0 2. Why these digits?

# %%
with cut_heads(head, 0):
    print("without the head:           ", *model(digits).argmax(axis=-1)[0])
print("largest logit past the head:", *past_head.argmax(axis=1)[digits[0]])

# %% [markdown]
# They come from the path past the head. There a 3 raises the logit of 1 most, a 1 raises that of 9, and so on, the same
# at every place. Training never needed this path to work by itself.
#
# So a cut doesn't show what a head does. It shows what the rest does without it.
#
# ## How the gradient knew
#
# Back to the surprise. With `w_q` erased all weights are equal, but the rest of the model is still trained. Here is the
# gradient of the scores, with its sign flipped, added up over the batch. Where this is positive, a larger score lowers
# the loss.

# %%
w_q[...] = 0
with trace() as t:
    loss_and_gradients(model, batch)
w_q[...] = learned_w_q
wish = -t["d_scores"].sum(axis=0)[0]  # (T_q, T_k)
print("largest in each row: place", *wish.argmax(axis=1))

# %% [markdown]
# There is the diagonal, before any weight shows it: place 0 asks for 11, place 1 for 10. With notebook 04 you can say
# why. The right answer at place 0 is the digit of place 11. The value from there raises the right logit, so more weight
# on it lowers the loss. Softmax passes this slope on to the score, the score to the query, and the query to `w_q`.
# (From random params it takes longer, because `w_k`, `w_v` and `w_o` have to be learned too.)
#
# ## The same numbers in PyTorch
#
# This is the whole model in ten lines of PyTorch, with our trained params (*needs PyTorch*):

# %% tags=["needs-torch"]
from importlib.util import find_spec

if find_spec("torch"):
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    params = {name: torch.tensor(array) for name, array in model.named_params()}
    x = params["embedding.table"][torch.tensor(digits)]  # (B, T, D)
    placed = x + params["positions.table"]
    q = placed @ params["attentions.0.w_q"]
    k = placed @ params["attentions.0.w_k"]
    v = x @ params["attentions.0.w_v"]
    x = x + scaled_dot_product_attention(q, k, v) @ params["attentions.0.w_o"]
    logits = x @ params["unembedding.w"]
    print("PyTorch says:", *logits.argmax(dim=-1)[0].numpy())
    display(compare({"logits": logits.numpy()}, {"logits": model(digits)}))
else:
    print("PyTorch is not installed here, so these lines did not run: pip install torch")

# %% [markdown]
# You know every line: embedding and positions, three projections, attention, `w_o`, and the *residual* `x + ...`, which
# is the path past the head.
#
# ## Where this is in a GPT
#
# A GPT has the same parts, more of them, and two new ones, *norm* and *feed-forward*:
#
# ```text
# ids ─► embedding + positions ─► the block, N times ─► norm ─► logits
#
# the block:  norm ─► attention ─► add ─► norm ─► feed-forward ─► add
# ```
#
# - **Norm** gives each token's vector mean 0 and variance 1.
# - **Attention** has many heads, and a token sees only itself and the tokens before it (notebook [08](08_masks.ipynb)).
# - **Add** is the residual.
# - **Feed-forward** is two products with a nonlinear *activation* in between, for each token separately.
#
# The ids are text as whole numbers, and the last logits score every possible next token. Notebook
# [22](22_a-text-of-your-own.ipynb) trains such a model, and [this map](https://mha-numpy.github.io/mha-numpy/gpt.html)
# leads from each part to its derivation and its file.
#
# ## Exercise: a head with a bug (after the hour, 10 minutes)
#
# This bug shipped in a well-known collection of models. Nothing failed: the model trained, and it drew good images. You
# know what a head has to do, so find the wrong line and fix it.
#
# To practise more: the museum in `mha-numpy exercises` has other bugs that shipped, such as `museum-merge`.


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
# | three roles | `q, k, v = x @ w_q, x @ w_k, x @ w_v` | what a token asks, how it is found, what it hands over |
# | scores | `q @ k.T / sqrt(d_k)` | how well each query fits each key; a row is a query |
# | weights | softmax along each row | shares: none negative, sum 1 |
# | output | `weights @ v` | a mean of values: it blends, it does not count |
# | many heads | split after the projection, merge, `@ w_o` | several rows of weights for one token |
# | backward | the same lines in reverse | how the loss changes with each number |
# | learning | `w -= rate * d_w` | `rate` is the step size; a score grows where a larger share lowers the loss |
#
# - Open the params, explain, then test the explanation: swap something, and see whether the answer follows.
# - All of this is about these small models. In large ones most heads do several things.
#
# **Reference:** Elhage et al. 2021, *A Mathematical Framework for Transformer Circuits*, for the two paths to the
# logits; Jain and Wallace 2019, *Attention is not Explanation*.
#
# **Next:** wherever you like. Deeper: [06, why the square root of d_k](06_why-the-square-root-of-d_k.ipynb). Variants:
# [15, cross-attention](15_cross-attention.ipynb). Learning: [20, induction heads
# appear](20_induction-heads-appear.ipynb).
