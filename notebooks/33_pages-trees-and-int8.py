# %% [markdown]
# # 33 · Pages, trees and int8
#
# A server answers twelve requests at once. It can't know how long an answer will be, so it reserves a row with room for
# the keys and values of 256 tokens each. Here is what the rows hold at the moment.

# %% tags=["hide-input"]
import numpy as np

import mha_numpy.core as core
from mha_numpy import BlockPool, Int8KVCache, KVCache, PagedKVCache
from mha_numpy.models.train import load_trained
from mha_numpy.show.pictures import bar_chart, line_chart, matrices

# %%
rng = np.random.default_rng(0)
lengths = np.minimum(rng.exponential(60, 12).astype(int) + 8, 256)
rooms = np.arange(0, 256, 8) < lengths[:, None]  # 8 tokens a cell
words = ("keys and values of 8 tokens", "reserved and empty")
title = f"{lengths.sum()} tokens in room for {12 * 256}"
matrices({"12 requests": rooms}, title=title, meaning=words)

# %% [markdown]
# Two thirds of the room is empty, and yet a thirteenth request has to wait. Does attention need its keys in one long
# row?
#
# It doesn't. **Attention only has to be handed the right keys and values in the right order.** Where they are kept,
# and how exactly, is up to you. A server uses this freedom three times: it keeps them in pages, in a tree, and in 8
# bits.
#
# **By the end you can** find a token's key in a pool of pages, write the mask and the positions for a tree of guesses,
# and compute how wrong 8-bit keys and values can make an output.
#
# ## Pages and a table
#
# Cut the memory into *blocks* of a few tokens. A sequence owns a *table*, the numbers of its blocks in order. Here a
# text of six tokens is forked, because two answers continue it; then each answer writes its seventh token. Blocks have
# four slots, and key number n is n itself (-7 for the second answer's seventh token).
#
# > **Predict first.** Two sequences of seven tokens need two blocks each. How many blocks are in use?


# %%
def key_and_value(n):
    return np.full((2, 1, 1, 1, 1), float(n))  # one head, width 1


pool = BlockPool(num_blocks=5, block_size=4)
answer_a = PagedKVCache(pool)
for n in range(1, 7):
    answer_a.append(*key_and_value(n))
answer_b = answer_a.fork()
answer_a.append(*key_and_value(7))
answer_b.append(*key_and_value(-7))
print("tables:", answer_a.table, answer_b.table)
print("users of each block:", pool.users)
slots = pool.room[0][:, 0, :, 0]  # (blocks, slots)
blocks = [f"block {i}" for i in range(5)]
drawn = {"keys in the pool": np.where(slots == 0, np.nan, slots)}
matrices(drawn, row_labels=blocks)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Three. Both tables begin with block 0, which is full, so no one writes into it again. The last block was shared
# too, until the first answer had to write. Then that answer got a copy of two keys, and the other kept the block.
# (Cross-hatched slots are empty.)
#
# </details>
#
# Reading is one line of indexing: take the blocks of the table, join them, drop the empty slots. So a model gets the
# same numbers in the same order. Let's ask a **trained** one (`mha-numpy train text`, on *Moby-Dick*).

# %%
print(slots[answer_b.table[0]].ravel()[: answer_b.length])

trained = load_trained("text")
model, task = trained.model, trained.task
rng = np.random.default_rng(1)
(pieces,), targets = task.draw_held_out(rng, 32)
pool = BlockPool(num_blocks=1024, block_size=16)
in_rows = model(pieces, kv_caches=[KVCache(), KVCache()])
caches = [PagedKVCache(pool), PagedKVCache(pool)]
in_pages = model(pieces, kv_caches=caches)
print("the same bits:", np.array_equal(in_rows, in_pages))

# %% [markdown]
# Now the twelve requests. A layer has 4 heads of width 16 and numbers of 4 bytes, so each token takes
# 2 · 4 · 16 · 4 = 512 bytes.
#
# > **Predict first.** At most how many slots can a request waste, with blocks of 16? Are smaller blocks always better?

# %%
sizes, kib = (1, 4, 16, 64), {"keys and values": lengths.sum() / 2}
for size in sizes:
    pool = BlockPool(12 * 256 // size, size)
    requests = [PagedKVCache(pool) for _ in lengths]
    for request, n in zip(requests, lengths, strict=True):
        request.append(*np.ones((2, 1, 4, n, 16), np.float32))
    tables = sum(request.table.nbytes for request in requests)
    total = (pool.nbytes_used + tables) / 1024
    kib[f"blocks of {size}, with tables"] = total
kib["rooms of 256"] = 12 * 256 / 2
title = "Memory for the twelve requests, one layer"
bar_chart(kib, title=title, unit="KiB")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 15, all in its last block. Smaller blocks waste less, but every block has an entry in a table (8 bytes here), and a
# processor likes to read long stretches. Blocks of 16 are a common choice.
#
# </details>
#
# ## A tree of guesses
#
# Writing a token takes one forward, which reads all params and the whole cache, and then computes hardly anything
# (notebook 17). Where memory is what it waits for, reading seven tokens takes little longer. So let something cheap
# guess how the text goes on, and let the model check all guesses at once. This is *speculative decoding* (Leviathan et
# al. 2023). The guesses may branch:
#
# ```text
# past        drafts
# t h e _ w   h ─┬─ a ─┬─ l
#             0  │  1  └─ t      parents = [-1, 0, 1, 1, 0, 4]
#                └─ i ─── t
#                   4     5      (2 is l, 3 is the first t)
# ```
#
# Draft 0 is the last token of the text, which no cache has yet. All six go through the model in one list.
#
# > **Predict first.** The past has five tokens, at positions 0 to 4. What is the position of draft 5, and which keys
# > does it see?

# %%
parents, past = [-1, 0, 1, 1, 0, 4], 5
mask = core.tree_mask(parents, past)
positions = core.tree_positions(parents, past)
at = zip("haltit", positions, strict=True)
names = [f"{c}, at {p}" for c, p in at]
labels = {"row_labels": names, "column_labels": list("the_whaltit")}
matrices({"what each draft sees": mask}, **labels)

# %% [markdown]
# <details><summary>Answer</summary>
#
# At position 7, like both drafts after "a": position counts depth, not place in the list. It sees the past, "h", "i"
# and itself. It doesn't see 1, 2 and 3, because in its text they don't exist.
#
# </details>
#
# Then each path should give what it would give as a text without branches. We try the path h, i, t: first with
# positions by depth, then with the place in the list instead.

# %%
ids = task.encode("the whaltit")
alone = model(ids[None, [0, 1, 2, 3, 4, 5, 9, 10]])[0, 5:]
ways = {"by depth": positions, "by place": past + np.arange(6)}
for name, at in ways.items():
    kv_caches = [KVCache(), KVCache()]
    model(ids[None, :past], kv_caches=kv_caches)
    grid = {"mask": mask[None, None], "positions": at}
    tree = model(ids[None, past:], kv_caches=kv_caches, **grid)[0]
    gap = np.abs(tree[[0, 4, 5]] - alone).max(axis=-1)
    print(name, "- difference after h, i, t:", gap.round(6))

# %% [markdown]
# By place, every shape is right, and so is "h". The mistake begins after the first branch.
#
# ## Accept the longest agreeing path
#
# Now we let the model write. The cheap guesser knows only how often each letter of the training text followed the same
# 2 or 3 letters (a space is one, too). It grows the tree where its guesses are likeliest; with `width=1` the tree is a
# chain.

# %%
from collections import Counter, defaultdict
from heapq import heappop, heappush

text, after = task.trained_on.tolist(), defaultdict(Counter)
for n in (2, 3):
    for i in range(n, len(text)):
        after[tuple(text[i - n : i])][text[i]] += 1


# parents and ids of up to `size` tokens, root first
def draft(text, size, n, width):
    waiting, tree = [(-1.0, -1, text)], []
    while waiting and len(tree) < size:
        chance, parent, path = heappop(waiting)  # the likeliest
        tree.append((parent, path[-1]))
        counts = after[tuple(path[-n:])]
        for token, count in counts.most_common(width):
            p = chance * count / counts.total()
            heappush(waiting, (p, len(tree) - 1, [*path, token]))
    return np.transpose(tree)


# %% [markdown]
# One step: a forward over the tree says what the model would write after each draft. From the root, we follow the
# drafts that agree with it. Their keys and values stay, all others go, and the model's last choice comes on top. So
# even a step without any right guess writes one token.


# %%
def chosen_after(parents, ids, kv_caches):
    """Return what the model would write after each draft."""
    past = kv_caches[0].length
    grid = {"mask": core.tree_mask(parents, past)[None, None]}
    grid["positions"] = core.tree_positions(parents, past)
    logits = model(ids[None], kv_caches=kv_caches, **grid)
    return logits[0].argmax(axis=-1)


def one_step(text, kv_caches, *options):
    """Return the tokens that one forward adds to the text."""
    past = kv_caches[0].length
    parents, ids = draft(text, *options)
    chosen = chosen_after(parents, ids, kv_caches)
    path = core.accepted_path(parents, ids, chosen)
    for kv_cache in kv_caches:
        kv_cache.keep([*range(past), *(past + path)])
    return chosen[path].tolist()


def write(start, *options):
    """Return a text of 44 tokens or more, and its steps."""
    text, kv_caches = start.tolist(), [KVCache(), KVCache()]
    model(np.array([text[:-1]]), kv_caches=kv_caches)
    steps = []
    while len(text) < 44:
        steps.append(one_step(text, kv_caches, *options))
        text += steps[-1]
    return text, steps


plain, _ = write(pieces[0, :16], 1, 3, 1)  # a tree of 1: no drafts
text, steps = write(pieces[0, :16], 7, 3, 3)
print("starts:", repr(task.decode(text[:16])))
print("steps: ", [task.decode(step) for step in steps])
print("same text as without drafts:", text[:44] == plain)

# %% [markdown]
# > **Predict first.** With seven tokens per forward, which is better: a chain of six guesses, or a tree that hedges?

# %%
sizes, lines, same = [1, 3, 5, 7, 11, 15], {}, []
starts = pieces[:8, :16]
plain = [write(start, 1, 3, 1)[0] for start in starts]
for n in (2, 3):
    each = np.empty((2, 8, len(sizes)))  # chain or tree, text, size
    for at in np.ndindex(each.shape):
        options = sizes[at[2]], n, (1, 3)[at[0]]
        text, steps = write(starts[at[1]], *options)
        each[at] = (len(text) - 16) / len(steps)
        same.append(text[:44] == plain[at[1]])
    chain, tree = each
    names = f"chain, {n} letters", f"tree, {n} letters"
    lines |= dict(zip(names, each.mean(axis=1), strict=True))
    wins = (tree > chain).sum(axis=0)
    print(n, "letters: the tree wins on", wins, "of 8 texts")
print(f"same text as without drafts: {sum(same)} of {len(same)}")
axes = {"x_label": "tokens in one forward", "y_label": "written"}
title = "Tokens written per step, mean of eight texts"
line_chart(sizes, lines, title=title, **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It depends on the guesser. Three letters are often enough to be sure, and then branches waste their places: with
# seven tokens or more, the tree wins on 2 of the 8 texts. With two letters the guesser is less sure. At
# seven tokens the two are close, then the chain hardly gains anything, and at fifteen the tree wins on 6.
#
# </details>
#
# **Not one of the texts changed.** Guesses only decide how many steps it takes. (Here a forward over 15 tokens does
# more arithmetic than one over a single token. It saves time only where reading the params is what takes long.)
#
# ## Eight bits
#
# The third freedom costs exactness, but you can say how much. Take one key of the model. The largest number decides the
# *scale*, largest / 127. Divide by it, round, and keep one byte per number; reading multiplies again.
#
# > **Predict first.** By how many steps of the scale can a number be off? How many bytes does a key of 16 numbers take
# > with its scale, if both were 4-byte floats before?

# %%
from mha_numpy import attention_forward, trace
from mha_numpy.tables import Table

with trace() as t:
    model(pieces)
layer = "blocks.1.attention."
q, k, v = (t[layer + name] for name in "qkv")  # (32, 4, 64, 16)
key = k[0, 0, 5]
whole, scale = core.quantise(key)
back = core.dequantise(whole, scale)
steps = [key, whole, back, (back - key) / scale]
rows = [[f"{n:.4g}" for n in row] for row in np.transpose(steps)]
head = ["key", "int8", "read back", "off by, in steps"]
title = f"A quarter of a key; one step is {scale[0]:.5f}"
display(Table(title, head, rows[:4]))
for kind in (KVCache, Int8KVCache):
    kv_cache = kind()
    kv_cache.append(k.astype(np.float32), v.astype(np.float32))
    size = kv_cache.nbytes / (2 * 32 * 4 * 64)
    print(f"{kind.__name__}: {size:.0f} bytes per key or value")

line = np.linspace(-1, 1, 121)  # a key with numbers of every size
coarse = {"8 bits": 127, "3 bits": 3}
stairs = {n: np.rint(line * m) / m for n, m in coarse.items()}
axes = {"x_label": "number / largest", "y_label": "read back"}
line_chart(line, stairs, title="Rounding", **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# By half a step at most. The key takes 16 + 4 = 20 bytes instead of 64, so less than a third, but more than a quarter.
#
# </details>
#
# Half a step per number bounds each score: $|\tilde S_{ij} - S_{ij}| \le \tfrac12\, s_j \sum_c |q_{ic}| / \sqrt{d_k}$,
# with $s_j$ the scale of key j. From the scores follow bounds for the weights and the output (docs/caches.md), which
# `int8_bounds` computes.

# %%
mask = np.tri(64, dtype=bool)
exact, cache = attention_forward(q, k, v, mask=mask)
rounded = Int8KVCache().append(k, v)
near, _ = attention_forward(q, *rounded, mask=mask)
bound = core.int8_bounds(cache).heads
error = np.abs(near - exact)
print("always within the bound:", (error <= bound).all())
bars = {"typical number": np.abs(exact).mean()}
bars |= {"largest bound": bound.max(), "mean bound": bound.mean()}
bars |= {"largest error": error.max(), "mean error": error.mean()}
bar_chart(bars, title="Outputs of layer 1, keys and values in int8")

# %% [markdown]
# The bound assumes that all roundings conspire. They mostly cancel.
#
# ## What the model notices
#
# What counts in the end is the loss. We also try fewer bits, and a scale per *channel* for the keys, one for each of
# the 16 columns of a head. (Here it may look at the whole text, which a cache can't while the text grows.) And we
# build a trap: one channel of each head's keys gets 30 times as large, and the same channel of its queries 30 times as
# small. No score changes.
#
# > **Predict first.** Which of the two scales falls into the trap?


# %%
class Rounded(KVCache):
    def __init__(self, bits, axis):
        super().__init__()
        self.levels, self.axis = 2 ** (bits - 1) - 1, axis

    def append(self, k, v):
        k, v = super().append(k, v)
        return self.rounded(k, self.axis), self.rounded(v, -1)

    def rounded(self, x, axis):
        step = np.abs(x).max(axis=axis, keepdims=True) / self.levels
        return np.rint(x / step) * step


# %%
from mha_numpy.layers import cross_entropy_forward


def losses(model, *options):
    """Return the loss of each text."""
    kind = Rounded if options else KVCache
    kinds = [kind(*options) for _ in model.blocks]
    logits = model(pieces, kv_caches=kinds)
    pairs = zip(logits, targets, strict=True)
    return np.array(
        [cross_entropy_forward(*pair)[0] for pair in pairs]
    )


trap = load_trained("text").model
for block in trap.blocks:
    for name, factor in (("q", 1 / 30), ("k", 30)):
        params = block.attention.layer.params
        params[f"w_{name}"][:, 3::16] *= factor
        params[f"b_{name}"][3::16] *= factor
exact, lines, bits = losses(model), {}, [3, 4, 5, 6, 7, 8]
for name, one in (("as trained", model), ("trap", trap)):
    print(name, "- loss in floats:", losses(one).mean().round(6))
    for axis, scale in ((-1, "per token"), (-2, "per channel")):
        more = [losses(one, b, axis) - exact for b in bits]
        lines[f"{name}, {scale}"] = np.mean(more, axis=1)
        means = lines[f"{name}, {scale}"][[1, -1]].round(4)
        print(f"  {scale}: 4 and 8 bits add {means},", end=" ")
        print(f"at 8 a text {np.abs(more[-1]).max():.4f} at most")
axes = {"x_label": "bits per number", "y_label": "nats more"}
title = "Mean loss of 32 texts, above that in floats"
line_chart(bits, lines, title=title, **axes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The scale per token does, because the large channel decides it and the other 15 lose their digits. At 4 bits that
# costs 1.4 nats. With a scale per channel, the trap changes nothing at all. As trained, the two scales hardly differ,
# because this model's keys have no such channels. Those of large models often do (Liu et al. 2024), so look first.
#
# </details>
#
# At 8 bits, the mean loss as trained changes by 0.0002 at most, and that of a single text by less than 0.005.
#
# ## Exercise: who sees whom in a tree
#
# Write the mask and the positions for any tree of drafts. The check tries several roots, no past, and branches in every
# order.


# %% tags=["exercise"]
def my_draft_tree(parents, past):
    """parents (T,), past -> mask (T, past + T), positions (T,).

    A parent is an earlier draft, or -1: right after the past. A
    draft sees the past, its ancestors and itself (True). The first
    keys are the past's. Positions count from 0 at the past's first.
    """
    ...  # your code


# %% tags=["check"]
from mha_numpy.teach.exercises import check, hint

check("draft-tree", my_draft_tree)

# %% tags=["hint"]
# hint("draft-tree")  # shows the next of four hints

# %% [markdown]
# ## Summary
#
# You can now serve the twelve requests of the first picture in 553 KiB instead of 1536, because attention asks only for
# the right keys and values in the right order.
#
# - **Pages** hold the same numbers elsewhere. A table finds them, forks share blocks, and only the last block of a
#   sequence has empty slots. The output is equal bit for bit.
# - **A tree** holds several texts at once. With a mask by ancestors and positions by depth, each path is computed
#   as if it were the text, and the text that comes out is the one without guesses.
# - **int8** changes the numbers, by half a step at most. The error of the output has a bound that you can compute, and
#   the largest number decides the step.
#
# **In the code:** `mha_numpy/core/caches`, derived in docs/caches.md.
#
# **Reference:** Kwon et al. 2023, *PagedAttention*; Leviathan et al. 2023, *Fast Inference from Transformers via
# Speculative Decoding*; Miao et al. 2023, *SpecInfer*; Dettmers et al. 2022, *LLM.int8()*; Liu et al. 2024, *KIVI*.
