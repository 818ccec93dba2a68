"""Functions as books, courses and papers have them."""

import numpy as np
import pytest

from mha_numpy.identifying import identify


def softmax(scores, axis=-1):
    e = np.exp(scores - scores.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def in_columns(X, omega_v, omega_q, omega_k, beta_v, beta_q, beta_k):
    V, Q, K = beta_v + omega_v @ X, beta_q + omega_q @ X, beta_k + omega_k @ X
    return V @ softmax(K.T @ Q / np.sqrt(K.shape[0]), axis=0)


def test_tokens_and_biases_may_be_columns():
    sheet = identify(in_columns)
    assert not sheet.mistakes
    axes = {each.name: each.axes for each in sheet.arguments}
    assert (axes["X"], axes["beta_q"]) == ("(D, T)", "(H*d_k, 1)")


def alibi(q, k, v, slopes):
    """softmax(q k^T / sqrt(d) + slope * (j - i)) v; q, k, v are (B, T, H, d)."""
    T, d = q.shape[1], q.shape[3]
    distance = np.arange(T) - np.arange(T)[:, None]
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(d) + slopes[:, None, None] * distance
    return np.einsum("bhij,bjhd->bihd", softmax(np.where(distance > 0, -np.inf, scores)), v)


def test_slopes_of_alibi_may_be_given():
    sheet = identify(alibi)
    assert not sheet.mistakes
    assert sheet.arguments[3].what == "slopes of ALiBi, one for each head"


def of_times(q, k, v, times, decay):
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    return softmax(scores - decay * abs(times[:, :, None] - times[:, None])) @ v


def test_scores_may_fall_with_time():
    sheet = identify(of_times)
    assert sheet.value("alibi") == "both sides"
    assert not sheet.mistakes


def rotated_in_part(q, k, v, rot_dim):
    angles = np.arange(q.shape[2])[:, None] * 1e4 ** (-np.arange(0, rot_dim, 2) / rot_dim)

    def turn(x):
        a, b = x[..., : rot_dim // 2], x[..., rot_dim // 2 : rot_dim]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., rot_dim:]], axis=-1)

    scores = turn(q) @ turn(k).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(np.tri(q.shape[2], dtype=bool), scores, -np.inf)) @ v


def half_rotated(q, k, v):
    return rotated_in_part(q, k, v, q.shape[-1] // 2)


@pytest.mark.parametrize(("function", "width"), [(rotated_in_part, None), (half_rotated, 0.5)])
def test_only_some_features_may_be_rotated(function, width):
    sheet = identify(function)
    assert (sheet.value("rotation"), sheet.value("turned")) == ("halves", width)
    assert not sheet.mistakes


class Head:
    def __init__(self, width, d, rng):
        self.query, self.key, self.value = rng.normal(size=(3, width, d)) / 4

    def __call__(self, x):
        q, k, v = x @ self.query, x @ self.key, x @ self.value
        return softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5) @ v


class Heads:
    def __init__(self, num_heads, head_size):
        rng = np.random.default_rng(0)
        self.heads = [Head(num_heads * head_size, head_size, rng) for _ in range(num_heads)]

    def __call__(self, x):
        return np.concatenate([head(x) for head in self.heads], axis=-1)


def test_each_head_may_be_an_object():
    sheet = identify(Heads)
    assert not sheet.mistakes
    axes = {each.name: each.axes for each in sheet.arguments}
    assert axes["heads.query"] == "(H, D, d_k)"


def test_a_module_may_get_its_widths_in_the_first_call():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class AdditiveAttention(nn.Module):
        def __init__(self, num_hiddens):
            super().__init__()
            self.W_k = nn.LazyLinear(num_hiddens, bias=False)
            self.W_q = nn.LazyLinear(num_hiddens, bias=False)
            self.w_v = nn.LazyLinear(1, bias=False)

        def forward(self, queries, keys, values, valid_lens):
            features = torch.tanh(self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1))
            scores = self.w_v(features).squeeze(-1)
            hidden = torch.arange(keys.shape[1]) >= valid_lens[:, None, None]
            return scores.masked_fill(hidden, -1e6).softmax(-1) @ values

    sheet = identify(AdditiveAttention)
    assert sheet.value("product") == "additive"
    assert not sheet.mistakes


def test_a_block_size_may_be_the_most_tokens():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class CausalSelfAttention(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
            ones = torch.ones(config.block_size, config.block_size)
            self.register_buffer("bias", torch.tril(ones))
            self.n_head = config.n_head

        def forward(self, x):
            T = x.shape[1]
            q, k, v = (
                part.unflatten(-1, (self.n_head, -1)).transpose(1, 2)
                for part in self.c_attn(x).chunk(3, dim=-1)
            )
            scores = q @ k.mT / q.shape[-1] ** 0.5
            scores = scores.masked_fill(self.bias[:T, :T] == 0, -torch.inf)
            return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    sheet = identify(CausalSelfAttention)
    assert sheet.value("causal") == "past and itself"
    assert not sheet.mistakes


def of_lengths(q, k, v, valid_lens):
    hidden = np.arange(k.shape[1]) >= valid_lens[:, None, None]
    return softmax(np.where(hidden, -1e6, q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]))) @ v


def test_large_scores_of_keys_behind_the_length_say_nothing():
    assert not identify(of_lengths).mistakes


def concat(h_t, h_s, W_a, v_a):
    queries = np.repeat(h_t[:, None], h_s.shape[1], axis=1)
    weights = softmax(np.tanh(np.concatenate([h_s, queries], axis=-1) @ W_a) @ v_a)
    return (weights[:, :, None] * h_s).sum(1)


def test_an_additive_score_may_have_one_map_for_query_and_key():
    sheet = identify(concat)
    assert (sheet.value("product"), sheet.value("joined")) == ("additive", "k, q")
    assert not sheet.mistakes


def of_both_lengths(query, memory, Wq, Wk, Wv, query_lens, memory_lens):
    q, k, v = query @ Wq, memory @ Wk, memory @ Wv
    scores = q @ k.swapaxes(1, 2) / np.sqrt(k.shape[-1])
    seen, real = (
        np.arange(x.shape[1]) < lens[:, None]
        for x, lens in ((memory, memory_lens), (query, query_lens))
    )
    return softmax(np.where(seen[:, None], scores, -1e9)) @ v * real[:, :, None]


def test_queries_and_keys_may_each_have_lengths():
    sheet = identify(of_both_lengths)
    assert [each.what for each in sheet.arguments][-2:] == [
        "lengths of the queries", "lengths of the sequences",
    ]  # fmt: skip
    assert not sheet.mistakes


def gated(q_data, m_data, bias, pair_bias, query_w, key_w, value_w, gating_w, gating_b, output_w):
    """The weights have the axes (inputs, heads, width)."""
    q = np.einsum("bqa,ahc->bhqc", q_data, query_w) * query_w.shape[-1] ** -0.5
    k, v = (np.einsum("bka,ahc->bhkc", m_data, w) for w in (key_w, value_w))
    heads = softmax(q @ k.swapaxes(-1, -2) + bias + pair_bias[None]) @ v
    gate = 1 / (1 + np.exp(-np.einsum("bqa,ahc->bhqc", q_data, gating_w) - gating_b[:, None]))
    return np.einsum("bhqc,hco->bqo", heads * gate, output_w)


def test_a_gate_may_have_a_bias_and_scores_may_have_two():
    sheet = identify(gated)
    assert [each.what for each in sheet.arguments][2:4] == [
        "bias, added to the scores", "another bias, added to the scores",
    ]  # fmt: skip
    assert not sheet.mistakes


def step(x, params, cache, n_heads):
    """x (dim,) is the newest token; params are (outputs, inputs)."""
    d, at = len(x) // n_heads, len(cache["k"])
    q, k, v = (np.reshape(params[name] @ x, (n_heads, d)) for name in ("wq", "wk", "wv"))
    angles = at * 1e4 ** (-2 * np.arange(d // 2) / d)

    def turn(x):
        a, b = np.split(x, 2, axis=-1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    cache["k"].append(turn(k))
    cache["v"].append(v)
    weights = softmax(np.einsum("hd,thd->ht", turn(q), np.stack(cache["k"])) / np.sqrt(d))
    return np.einsum("ht,thd->hd", weights, np.stack(cache["v"])).ravel()


def test_a_cache_may_be_lists_to_which_a_step_appends():
    sheet = identify(step)
    assert (sheet.value("rotation"), sheet.value("q_position")) == ("halves", "after the cache")
    assert not sheet.mistakes
