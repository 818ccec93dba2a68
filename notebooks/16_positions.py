# %% [markdown]
# # 16 · Positions
#
# Attention compares every token with every other, and nowhere asks who stands first. The order of
# the tokens has to be put in on purpose. Here are three places to do it, with their backwards: the
# tokens (sinusoids, learned tables), the queries and keys (RoPE), the scores (ALiBi).
#
# **You will learn**
#
# - what attention without positions cannot tell apart, and what a causal mask changes;
# - why a shift in sinusoids is a rotation, and how RoPE turns that into scores that know distances
#   alone;
# - that the same rotation has two layouts, how params go from one to the other, and what a mix
#   looks like;
# - three backwards: a sum over the batch, a turn the other way, a bias whose gradient nobody uses;
# - how to build a head that looks at the previous token, by hand.

# %%
import numpy as np

from mha_numpy import (
    KVCache,
    MultiHeadAttention,
    MultiHeadParams,
    RopeOptions,
    alibi_bias,
    attention_backward,
    attention_forward,
    gradcheck,
    multi_head_attention_decode,
    multi_head_attention_forward,
    rope_backward,
    rope_forward,
    sinusoidal_positions,
    trace,
)
from mha_numpy.cost import CONFIGURATIONS
from mha_numpy.draw import line_chart, matrices, weights_by_head
from mha_numpy.exercises import check, hint
from mha_numpy.train import load_trained
from mha_numpy.walk import embed, tokenize

rng = np.random.default_rng(0)


def largest(array):
    return float(np.abs(array).max())


# %% [markdown]
# ## Attention does not know order
#
# `embed` gives each word a vector and adds its position. We take the positions away again, and let
# one layer read "dog bites man" and "man bites dog".
#
# > **Predict first.** The words trade places. How are the two (3, 8) outputs related? In
# > particular: does "dog" get another output when it is bitten?

# %%
sentence, D = tokenize("dog bites man"), 8
x = embed(sentence, D) - sinusoidal_positions(3, D)
layer = MultiHeadAttention(D, num_heads=2, rng=1)
order = [2, 1, 0]
out, swapped = layer(x[None])[0], layer(x[order][None])[0]
matrices({"dog bites man": out, "man bites dog": swapped}, row_labels=["1st", "2nd", "3rd"])

# %% [markdown]
# The same three rows, in the other order. "dog" has the same output in both sentences, so nothing
# after this layer can know who bit whom. It holds for any permutation $\Pi$ of the rows of $x$:
# queries, keys and values are permuted with their tokens, so scores become $\Pi S \Pi^\top$;
# softmax works row by row, so weights become $\Pi P \Pi^\top$; and $\Pi^\top \Pi = 1$ in
#
# $$(\Pi P \Pi^\top)(\Pi V) = \Pi\,(P V).$$

# %%
largest(swapped - out[order])

# %% [markdown]
# **A causal mask is a kind of position.** It stays where it is when tokens move: who comes first
# sees less.
#
# > **Predict first.** With `is_causal=True`, is `layer(x[order])` still `layer(x)[order]`? And if
# > only the first two tokens trade places, does the output of the last one change? What if a second
# > layer follows?


# %%
def causal_layers(tokens, layers):
    for _ in range(layers):
        tokens = layer(tokens, is_causal=True)
    return tokens[0]


once, moved = causal_layers(x[None], 1), causal_layers(x[order][None], 1)
np.allclose(moved, once[order])

# %%
traded = x[[1, 0, 2]][None]
{n: np.allclose(causal_layers(traded, n)[2], causal_layers(x[None], n)[2]) for n in (1, 2)}

# %% [markdown]
# One causal layer knows *which* tokens came before, not in which order. But the two tokens that
# traded places have changed, for each now sees other neighbours; so two layers can tell. Causal
# language models without any positions do learn something about order (Haviv et al. 2022). Without
# a mask there is nothing to learn it from.
#
# ## 1. Add it to the tokens: sinusoids
#
# Give position $t$ a vector: D/2 clock hands, each with its own speed. Pair $i$ has the frequency
# $\theta_i$:
#
# $$p_{t,\,2i} = \sin(t\,\theta_i), \qquad p_{t,\,2i+1} = \cos(t\,\theta_i), \qquad
# \theta_i = 10000^{-2i/D}$$
#
# > **Predict first.** D = 8 gives four pairs with $\theta$ = 1, 0.1, 0.01, 0.001. Which columns
# > will look constant over ten tokens?

# %%
P = sinusoidal_positions(10, D)
clock = [f"{f} {i}" for i in range(4) for f in ("sin", "cos")]
matrices({"positions": P}, row_labels=[f"t={t}" for t in range(10)], column_labels=clock)

# %% [markdown]
# Fast hands tell neighbours apart, slow ones tell far from near. How many tokens one turn takes,
# for D = 64:

# %%
turn_takes = 2 * np.pi * 10000 ** (2 * np.arange(32) / 64)
turn_takes.round().astype(int)

# %% [markdown]
# **A shift is a rotation of each pair.** Write the angle sums:
#
# $$\begin{aligned}\sin(a + b) &= \sin a \cos b + \cos a \sin b\\
# \cos(a + b) &= \cos a \cos b - \sin a \sin b\end{aligned}$$
#
# So $(\sin, \cos)$ at $t + s$ is $(\sin, \cos)$ at $t$ times a 2 x 2 matrix that depends on the
# shift $s$ and not on $t$. All pairs together are one (D, D) matrix.


# %%
def turn(shift, D):
    """(D, D): p @ turn(shift) is the position vector `shift` tokens further."""
    angle = shift * 10000.0 ** (-2 * np.arange(D // 2) / D)
    matrix, even, odd = np.zeros((D, D)), np.arange(0, D, 2), np.arange(1, D, 2)
    matrix[even, even] = matrix[odd, odd] = np.cos(angle)
    matrix[odd, even], matrix[even, odd] = np.sin(angle), -np.sin(angle)
    return matrix


matrices({"turn(3)": turn(3, D)}, row_labels=clock, column_labels=clock)

# %%
largest(P[:-3] @ turn(3, D) - P[3:])  # every position, moved on by 3

# %% [markdown]
# **Dot products depend on the distance.** In each pair $\sin a \sin b + \cos a \cos b = \cos(a -
# b)$:
#
# $$p_t \cdot p_u = \sum_i \cos\big((t - u)\,\theta_i\big)$$
#
# But attention does not compare $p_t$ with $p_u$. Learned maps stand between.
#
# > **Predict first.** The left picture is $P P^\top$: constant along each diagonal. The right one
# > is $(P W_Q)(P W_K)^\top$ with random params. Still constant along diagonals?

# %%
w_q, w_k = rng.normal(size=(2, D, D)) / np.sqrt(D)
matrices({"P P.T": P @ P.T, "(P w_q) (P w_k).T": (P @ w_q) @ (P @ w_k).T}, shared=False)

# %% [markdown]
# No. Sinusoids *offer* distances; the model has to learn maps that read them. And since position is
# added, each score has four parts: for $q = (x + p) W_Q$ and $k = (x' + p') W_K$, with $M = W_Q
# W_K^\top$,
#
# $$q\,k^\top = x M x'^\top + x M p'^\top + p M x'^\top + p M p'^\top$$
#
# what meets what, what meets where, where meets what, where meets where. Here they are for three
# tokens:

# %%
x3, p3, M = x, P[:3], w_q @ w_k.T
parts = {"what-what": x3 @ M @ x3.T, "what-where": x3 @ M @ p3.T}
parts |= {"where-what": p3 @ M @ x3.T, "where-where": p3 @ M @ p3.T}
whole = ((x3 + p3) @ w_q) @ ((x3 + p3) @ w_k).T
matrices(parts | {"sum": sum(parts.values()), "scores": whole})

# %% [markdown]
# ### Backward of an addition
#
# `x + P` has the gradient 1 in both. Sinusoids are constants, so the gradient of the sum just
# passes through to `x`. A *learned* table is the same forward with a second gradient: the table was
# used once by every sequence of the batch (NumPy's broadcast), so it collects the sum over the
# batch.
#
# $$\bar x = \overline{\mathrm{out}}, \qquad \bar P_t = \sum_b \overline{\mathrm{out}}_{b,t}$$
#
# > **Predict first.** The table below has 7 rows, the batch is 3 sequences of 4 tokens, and the
# > upstream gradient is 1 everywhere. What is the gradient of each row of the table?


# %%
def add_table(x, table):
    return x + table[: x.shape[1]]


def add_table_backward(d_out, x, table):
    d_table = np.zeros_like(table)
    d_table[: x.shape[1]] = d_out.sum(axis=0)
    return d_out, d_table


tokens, table = rng.normal(size=(3, 4, 5)), rng.normal(size=(7, 5))  # B=3, T=4, D=5
add_table_backward(np.ones((3, 4, 5)), tokens, table)[1]

# %%
gradcheck(add_table, add_table_backward, {"x": tokens, "table": table})

# %% [markdown]
# Rows 4 to 6 got nothing: positions that do not occur in training are never learned, and beyond the
# last row there is nothing at all. So a learned table sets the longest text that a model can read:

# %%
{name: model.context for name, model in CONFIGURATIONS.items() if model.learned_positions}

# %% [markdown]
# ## 2. Turn queries and keys: RoPE
#
# If a shift is a rotation, why not rotate? RoPE (Su et al. 2021) adds nothing to `x`. It takes the
# finished q and k of each head and turns every pair of features by the angle $t\,\theta_i$:
#
# $$\begin{pmatrix} x_1 \\ x_2 \end{pmatrix} \to
# \begin{pmatrix} \cos a & -\sin a \\ \sin a & \cos a \end{pmatrix}
# \begin{pmatrix} x_1 \\ x_2 \end{pmatrix}, \qquad a = t\,\theta_i, \qquad \theta_i = 10000^{-2i/d_k}$$
#
# One pair, with $\theta_0 = 1$: the same vector at twelve positions, turned by 1 radian each time.

# %%
turned, _ = rope_forward(np.tile([1.0, 0.0], (12, 1)))
line_chart(
    np.arange(12), {"first feature": turned[:, 0], "second feature": turned[:, 1]},
    title="(1, 0), turned by RoPE", x_label="position", y_label="value",
)  # fmt: skip

# %% [markdown]
# It never gets longer or shorter: that is what a rotation is.
#
# **Scores know distances alone.** Turning back is transposing, and angles add up. For a query at
# position $m$ and a key at position $n$:
#
# $$\big(R(m\theta)\,q\big)^\top \big(R(n\theta)\,k\big) = q^\top R(m\theta)^\top R(n\theta)\,k
# = q^\top R\big((n - m)\theta\big)\,k$$
#
# > **Predict first.** Five queries and keys at positions 0 to 4. Now (a) everything moves to 1000
# > to 1004; (b) only the queries move by 2. Which scores change?

# %%
q, k = rng.normal(size=(2, 5, D))
here = np.arange(5)


def scores_at(query_positions, key_positions):
    q_turned, _ = rope_forward(q, positions=query_positions)
    k_turned, _ = rope_forward(k, positions=key_positions)
    return q_turned @ k_turned.T


both, moved = scores_at(here + 1000, here + 1000), scores_at(here + 2, here)
matrices({"0 to 4": scores_at(here, here), "(a) both + 1000": both, "(b) queries + 2": moved})

# %%
largest(both - scores_at(here, here))

# %% [markdown]
# **How far does it reach?** Take q and k equal, all ones, so that only position speaks. The score
# at distance n is $2\sum_i \cos(n\theta_i)$, over $\sqrt{d_k}$. A larger base makes all hands but
# the first slower; Llama 3 uses 500000 for its long texts (Grattafiori et al. 2024, section 3.2).

# %%
distance = np.unique(np.geomspace(1, 4096, 60).astype(int))
ones = np.ones((len(distance), 64))
reach = {
    f"base {base}": rope_forward(ones, positions=distance, base=base)[0].sum(axis=1) / np.sqrt(64)
    for base in (10000, 500000)
}
line_chart(
    distance, reach, log_x=True,
    title="Score of equal q and k, d_k = 64", x_label="distance", y_label="score",
)  # fmt: skip

# %% [markdown]
# It falls with distance, but not steadily: hands that have come round agree again. The larger base
# keeps far tokens within reach.
#
# ### Which features form a pair? Two layouts
#
# The paper pairs neighbours, features 2i and 2i + 1 (*interleaved*). Others pair feature i of the
# first half with feature i of the second (*halves*); it is the default here.
# `RopeOptions(interleaved=...)` says which, and `rotary_dim` how many features turn at all.
#
# > **Predict first.** Turned by one position, the interleaved map is a row of 2 x 2 blocks along
# > the diagonal. Where are the non-zero cells of the other one?

# %%
basis, once = np.eye(D), np.ones(D)  # every row of the identity at position 1
maps = {
    "interleaved": rope_forward(basis, positions=once, interleaved=True)[0],
    "halves": rope_forward(basis, positions=once)[0],
}
matrices(maps | {"halves, rotary_dim=4": rope_forward(basis, positions=once, rotary_dim=4)[0]})

# %% [markdown]
# (A row vector is multiplied by this from the right.) Same angles, other places. Permute the
# features, even ones first, and one map becomes the other:

# %%
to_halves = np.concatenate([np.arange(0, D, 2), np.arange(1, D, 2)])
to_halves, np.array_equal(maps["interleaved"][to_halves][:, to_halves], maps["halves"])

# %% [markdown]
# Now the mistake. Params were trained with one layout and are run with the other. Every shape is
# right.
#
# > **Predict first.** Random q and k, both layouts, all scores. In some cells the two must agree,
# > whatever q and k are. Which?

# %%
layouts = {}
for interleaved in (True, False):
    q_turned, k_turned = (rope_forward(a, interleaved=interleaved)[0] for a in (q, k))
    layouts["interleaved" if interleaved else "halves"] = q_turned @ k_turned.T
matrices(layouts | {"difference": layouts["halves"] - layouts["interleaved"]})

# %% [markdown]
# Only at distance 0, where q and k are turned alike. So in a model that is run in the wrong layout,
# a token's score with itself is right and all others are wrong. This is why Llama's params,
# published interleaved, were permuted for Hugging Face's halves, and why people who compare the two
# sources are puzzled (transformers #25199).
#
# **The cure:** permute the columns of `w_q` and `w_k` (and `b_q`, `b_k`). Both q and k are then
# permuted alike, and a dot product does not mind. Within *each head*: a head is a block of d_k
# columns.
#
# > **Predict first.** Two heads of width 4. Three ways to run interleaved params in halves: as they
# > are; with all 8 columns reordered, even ones first; with each head's 4 columns reordered. Which
# > output is right?

# %%
trained = MultiHeadAttention(D, num_heads=2, rng=2)
params, tokens = MultiHeadParams(**trained.params), rng.normal(size=(1, 6, D))


def attend(columns, interleaved):
    """Run with the columns of w_q, b_q, w_k, b_k in another order."""
    reordered = {name: getattr(params, name)[..., columns] for name in ("w_q", "b_q", "w_k", "b_k")}
    rope = RopeOptions(interleaved=interleaved)
    return multi_head_attention_forward(
        tokens, params=params._replace(**reordered), num_heads=2, rope=rope
    )[0]


in_a_head = np.array([0, 2, 1, 3])  # of width 4: the even ones, then the odd ones
per_head = np.concatenate([in_a_head, 4 + in_a_head])
expected = attend(np.arange(D), interleaved=True)
orders = {"as they are": np.arange(D), "whole width": to_halves, "each head": per_head}
{name: largest(attend(columns, False) - expected) for name, columns in orders.items()}

# %% [markdown]
# ### Backward: turn the gradient back
#
# RoPE is a matrix with no input in it: $\mathrm{out} = R(a)\,x$. So $\bar x =
# R(a)^\top\,\overline{\mathrm{out}}$, and the transpose of a rotation is the rotation by $-a$:
#
# $$R(a)^\top R(a) = \begin{pmatrix} \cos^2 a + \sin^2 a & 0 \\ 0 & \sin^2 a + \cos^2 a \end{pmatrix} = 1,
# \qquad \bar x = R(-a)\,\overline{\mathrm{out}}$$

# %%
z, d_out = rng.normal(size=(2, 6, D))
out, cache = rope_forward(z)
by_hand, _ = rope_forward(d_out, positions=-np.arange(6))  # forward, at minus the positions
largest(rope_backward(d_out, cache).d_x - by_hand)

# %%
gradcheck(rope_forward, rope_backward, {"x": rng.normal(size=(2, 3, 5, 4))})

# %% [markdown]
# > **Predict first.** Somebody forgets the minus sign and turns the gradient *on*. At which
# > positions is `d_x` still right? Would its length give the mistake away?

# %%
forgot, _ = rope_forward(d_out)
off = np.abs(forgot - by_hand).max(axis=-1)
length = np.linalg.norm(forgot, axis=-1) / np.linalg.norm(by_hand, axis=-1)
matrices({"error, by position": off[None], "length, wrong / right": length[None]}, shared=False)

# %% [markdown]
# Right at position 0 alone, and the length is right everywhere. A test with T = 1 sees nothing.
#
# ### Values are not turned
#
# Positions decide who is matched, not what is mixed. If values were turned too, the sum would
# consist of vectors turned by different angles, and depend on where the whole text stands:

# %%
v = rng.normal(size=(5, D))


def attend_at(shift, with_values):
    positions = here + shift
    q_turned, k_turned, v_turned = (rope_forward(a, positions=positions)[0] for a in (q, k, v))
    return attention_forward(q_turned, k_turned, v_turned if with_values else v)[0]


{
    "values as they are": largest(attend_at(7, False) - attend_at(0, False)),
    "values turned": largest(attend_at(7, True) - attend_at(0, True)),
}

# %% [markdown]
# The first is a rounding error, the second is not.
#
# ### In a KV cache keys are stored turned
#
# A key's angle depends on its own position and on nothing else. So it is turned once, when it
# arrives, and kept as it is. A new query is turned by *its* position: the number of tokens before
# it. Watch a seventh token being decoded.

# %%
x7, rope = 3 * rng.normal(size=(1, 7, D)), RopeOptions()
options = {"params": params, "num_heads": 2, "rope": rope}
kv_cache = KVCache()
multi_head_attention_decode(x7[:, :6], kv_cache=kv_cache, is_causal=True, **options)
with trace() as decoded:
    last, cache = multi_head_attention_decode(x7[:, 6:], kv_cache=kv_cache, **options)
decoded

# %% [markdown]
# `k_new` is what was appended, turned by its position. The result equals the last row of a pass over all seven, and
# of a pass of one query that is told where it stands, by `q_offset`:

# %%
whole, _ = multi_head_attention_forward(x7, is_causal=True, **options)
told, _ = multi_head_attention_forward(x7[:, 6:], x7, q_offset=6, **options)
largest(last - whole[:, 6:]), largest(last - told)

# %% [markdown]
# > **Predict first.** The usual mistake: the decode step starts at position 0 again. For which *first* call
# > would that go unnoticed?

# %%
forgot, wrong = multi_head_attention_forward(x7[:, 6:], x7, **options)  # q_offset=0
shown = {"weights": cache.weights[0, :, 0], "query at position 0": wrong.attention.weights[0, :, 0]}
matrices(shown, row_labels=["head 0", "head 1"], column_labels=[f"key {j}" for j in range(7)])

# %% [markdown]
# The right weights, and those of a query that is turned as if it stood at the beginning. The first
# call, into an empty cache, does start at 0: a test that decodes one token, and no more, sees
# nothing.
#
# ## 3. Add it to the scores: ALiBi
#
# ALiBi (Press et al. 2022) leaves tokens, q and k alone. Each head subtracts from its scores a
# number that grows with the distance, with a slope of its own (in the paper for causal attention, j
# <= i):
#
# $$\mathrm{bias}_{h,i,j} = -m_h\,|i - j|, \qquad m_h = 2^{-8h/H}, \quad h = 1 \dots H$$
#
# > **Predict first.** With H = 4 the slopes are 1/4, 1/16, 1/64, 1/256. By which factor does head
# > 1's weight fall with each token of distance, all else equal? And head 4's?

# %%
H = 4
slopes = 2.0 ** (-8 * np.arange(1, H + 1) / H)
np.exp(-slopes).round(3)

# %%
bias = alibi_bias(H, 6)
matrices({f"slope 1/{1 / slope:.0f}": bias[h] for h, slope in enumerate(slopes)})

# %% [markdown]
# One head is near-sighted, the last one hardly sees a difference. The bias has no batch axis and no
# params.
#
# ### Backward of a bias
#
# Scores plus bias: the gradient of the bias is that of the scores, **summed over every axis along
# which the bias was broadcast**. Here that is the batch.

# %%
B, T, d_k = 2, 6, 3
q4, k4, v4 = rng.normal(size=(3, B, H, T, d_k))
with trace() as back:
    out, cache = attention_forward(q4, k4, v4, bias=bias)
    grads = attention_backward(rng.normal(size=out.shape), cache)
back

# %%
grads.d_bias.shape, largest(grads.d_bias - back["d_scores"].sum(axis=0))

# %% [markdown]
# And then? The bias was made of constants, so nobody takes this gradient. For q, k and v the formulas
# are those without a bias. The numbers are not, for the bias has changed the weights.
#
# Press et al. tried learned slopes and kept the constants (section 3). T5 (Raffel et al. 2020, section
# 2.1) does learn a bias: a number for each head and distance, far distances sharing one. There
# `d_bias` is summed over all cells of a distance, into that table.
#
# ## One question to all three
#
# Where does a head look if **all tokens are the same**, so that q and k are equal everywhere?
# Whatever is not uniform then comes from positions.
#
# > **Predict first.** Four heads: no positions; sinusoids (q = k = p); RoPE (q = k = ones); ALiBi
# > with slope 1/4. All but the first look nearby. One of them falls steadily with distance; the
# > other two rise again. At which distance, and why there?

# %%
T, d_k = 10, 16
same, no_bias = np.ones((T, d_k)), np.zeros((T, T))
turned, P = rope_forward(same)[0], sinusoidal_positions(T, d_k)
q = np.stack([same, P, turned, same])[None]  # (1, 4, T, d_k): a head for each way
bias = np.stack([no_bias, no_bias, no_bias, alibi_bias(4, T)[0]])
_, cache = attention_forward(q, q, same[None, None].repeat(4, axis=1), bias=bias)
ways = ["no positions", "sinusoids", "RoPE", "ALiBi"]
weights_by_head(cache.weights, [f"{t}" for t in range(T)], head_names=ways)

# %% [markdown]
# Without positions a head is uniform: it cannot know better. Sinusoids and RoPE rise again at
# distances of 6 and 7: their fastest hand comes round after $2\pi \approx 6.28$ tokens. ALiBi falls
# steadily. In all three the pattern moves along with the query; at the edges it is shared out among
# fewer keys.
#
# The three ways side by side:
#
# | | learned table, sinusoids | RoPE | ALiBi |
# |---|---|---|---|
# | where it enters | the tokens, once | q and k, every layer | the scores, every layer |
# | what scores depend on | both positions | the distance | the distance |
# | params | a table, or none | none | none |
# | backward | sum over the batch, or pass on | turn back | `d_bias`, unused |
# | in a KV cache | keys as they are | keys turned | keys as they are, bias made anew |
#
# ## A positional head, by hand
#
# Trained models have heads that attend to the previous token or to the next, whatever the tokens
# are (Clark et al. 2019 in BERT; Voita et al. 2019 in translation). We have all that it takes to
# make one. A query should match the key whose position is one less, so turn it back by one:
#
# $$q_i = p_i\,\mathrm{turn}(-1) = p_{i-1}, \qquad k_j = p_j$$
#
# `turn(-1)` is a matrix, so it can be `w_q`. Put content into the first 16 columns and positions
# into the last 16, let `w_q` and `w_k` read positions alone, and make three heads: previous, same,
# next. (The factor 60 makes the weights sharp.)

# %%
text = tokenize("The animal didn't cross the street because it was too tired")
T, d = len(text), 16
content = embed(text, d) - sinusoidal_positions(T, d)
x = np.concatenate([content, sinusoidal_positions(T, d)], axis=1)[None]  # (1, T, 32)
reads = {name: np.zeros((2 * d, 3 * d)) for name in ("w_q", "w_k")}
for head, shift in enumerate((-1, 0, 1)):
    columns = slice(head * d, (head + 1) * d)
    reads["w_q"][d:, columns], reads["w_k"][d:, columns] = 60 * turn(shift, d), np.eye(d)
pick = np.tile(np.eye(2 * d, d), (1, 3))  # values: the content
heads = MultiHeadParams(reads["w_q"], None, reads["w_k"], None, pick, None, pick.T, None)

# %% [markdown]
# > **Predict first.** Query 0 has no previous token, the last has no next one. Where will they
# > look?

# %%
out, cache = multi_head_attention_forward(x, params=heads, num_heads=3)
weights_by_head(cache.attention.weights, text, head_names=["previous", "same", "next"])

# %% [markdown]
# To the nearest there is: themselves. A softmax has to spend its weight somewhere. Now check the
# claim that the head is blind to content: other words, the same weights.

# %%
other = x.copy()
other[..., :d] = rng.normal(size=(T, d))
_, again = multi_head_attention_forward(other, params=heads, num_heads=3)
np.array_equal(again.attention.weights, cache.attention.weights)

# %% [markdown]
# Texts on heads like to give "word to next word, i to i + 1" as the example of a positional head.
#
# > **Predict first.** In a causal model, where does the next-token head look?

# %%
_, causal = multi_head_attention_forward(x, params=heads, num_heads=3, is_causal=True)
causal.attention.weights[0].argmax(axis=-1)  # (H, T): the key with most weight

# %% [markdown]
# At itself: the next token is hidden, so "same" and "next" (rows 1 and 2) now agree. Next-token
# heads need attention that looks both ways, as in BERT.
#
# ## A positional head that was learned
#
# The model of `mha-numpy train reverse` read twelve digits and learned to say them backwards, with one head. Its
# positions are a learned table, added to queries and keys alone. Nobody told it where to look.

# %%
trained = load_trained("reverse")
digits = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])
said = trained.model(digits).argmax(axis=-1)[0]
learned = trained.model.attentions[0].weights
rows, columns = [f"says {d}" for d in said], [str(d) for d in digits[0]]
weights_by_head(learned, rows, columns, note="Trained: mha-numpy train reverse, seed 0.")

# %% [markdown]
# The antidiagonal is a positional head: whatever the digits are, place t looks at place 11 - t. On this task that is
# all there is to learn; in a language model a head seldom has so pure a job.

# %% [markdown]
# ## Exercise: rotate, and rotate back
#
# Write RoPE in the *halves* layout, and its backward. Positions are given and need not be 0, 1, 2, ... For
# both the check asks first whether every pair keeps its length, then for the numbers; the backward it also
# holds against numeric differentiation.
#
# More of this kind in `mha-numpy exercises`: `museum-cached-mask`, a bug that shipped, got the positions wrong once
# there was a KV cache.


# %% tags=["exercise"]
def my_rope(x, positions, base):
    """(B, H, T, d), positions (T,), a float -> (B, H, T, d): each pair turned by its angle.

    Features i and i + d/2 form pair i, for i from 0 to d/2 - 1; at position p it turns by
    p * base ** (-2 * i / d).
    """
    ...  # your code


def my_rope_backward(d_out, positions, base):
    """(B, H, T, d), positions (T,), a float -> d_x (B, H, T, d)."""
    ...  # your code


# %% tags=["check"]
check("rope", my_rope)
check("rope-backward", my_rope_backward)

# %% tags=["hint"]
# hint("rope")  # shows the next of four hints
# hint("rope-backward")

# %% [markdown]
# ## Summary
#
# - Attention without positions permutes its outputs with its inputs. A causal mask breaks that, a
#   little.
# - Sinusoids: a shift is a rotation of each pair. Added to `x`; gradients pass through, a learned
#   table gets the sum over the batch.
# - RoPE rotates q and k of every head: scores depend on the distance, lengths stay. Backward
#   rotates by minus the angle. Values stay as they are; a KV cache holds turned keys, and queries
#   start at `q_offset`.
# - Two layouts, one map: permute the columns of `w_q` and `w_k` within each head. Mixed up, only
#   the diagonal is right.
# - ALiBi subtracts slope times distance. `d_bias` is `d_scores`, summed over the broadcast axes.
#
# **In the code:** `sinusoidal_positions`, `alibi_bias` in `mha_numpy/core/positions.py`;
# `rope_forward` and `rope_backward` in `mha_numpy/core/rope.py`. Derivation: docs/rope.md.
#
# **Reference:** Vaswani et al. 2017, *Attention Is All You Need*, section 3.5; Su et al. 2021, *RoFormer*,
# sections 3.2 and 3.4; Press et al. 2022, *Train Short, Test Long*, section 3; Haviv et al. 2022, *Transformer
# Language Models without Positional Encodings Still Learn Positional Information*; Clark et al. 2019, *What Does
# BERT Look At?*; Voita et al. 2019, *Analyzing Multi-Head Self-Attention*.
#
# **Next:** [12, what it costs](21_what-it-costs.ipynb).
