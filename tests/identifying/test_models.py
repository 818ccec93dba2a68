"""Attention as the repositories of well-known models write it."""

import numpy as np
import pytest

from mha_numpy.identifying import identify
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.facts import dropout
from mha_numpy.identifying.look import look


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def turned(x, freqs_cis):
    pairs = np.ascontiguousarray(x).view(complex) * freqs_cis[None, :, None, :]
    return pairs.view(float)


def with_complex_angles(xq, xk, xv, freqs_cis):
    """xq, xk, xv: (B, T, H, d), as in Meta's Llama."""
    xq, xk = turned(xq, freqs_cis), turned(xk, freqs_cis)
    scores = np.einsum("bthd,bshd->bhts", xq, xk) / np.sqrt(xq.shape[-1])
    return np.einsum("bhts,bshd->bthd", softmax(scores), xv)


def test_angles_of_a_rotation_as_complex_numbers():
    sheet = identify(with_complex_angles)
    assert sheet.value("rotation") == "pairs"
    assert {each.name: each.axes for each in sheet.arguments}["freqs_cis"] == "(T_q, d_k/2)"
    assert not sheet.mistakes


class Block:
    """RMS norm, heads with sinks, a map of its own name, and a residual connection."""

    def __init__(self, dim=16, heads=4, seed=0):
        draw = np.random.default_rng(seed).normal
        self.heads, self.sinks = heads, draw(size=heads)
        self.wq, self.wk, self.wv, self.blend = (draw(size=(dim, dim)) / 4 for _ in "qkvb")

    def __call__(self, x, eps=1e-6):
        B, T, D = x.shape
        h = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
        q, k, v = (
            (h @ w).reshape(B, T, self.heads, -1).swapaxes(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        sinks = np.broadcast_to(self.sinks[:, None, None], (B, self.heads, T, 1))
        weights = softmax(np.concatenate([scores, sinks], -1))[..., :-1]
        return x + (weights @ v).swapaxes(1, 2).reshape(B, T, D) @ self.blend


def test_a_norm_before_sinks_of_its_own_and_the_only_map_that_is_left():
    sheet = identify(Block())
    assert (sheet.value("before"), sheet.value("after")) == ("rms norm", "+ x")
    what = {each.name: each.what for each in sheet.arguments}
    assert what["blend"] == "params of the output projection"
    assert what["sinks"].startswith("sinks")
    assert not sheet.mistakes


def test_norms_of_pytorch_are_no_maps():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Residual(nn.Module):
        def __init__(self, d_model, n_head):
            super().__init__()
            self.ln_1 = nn.LayerNorm(d_model)
            self.attn = nn.MultiheadAttention(d_model, n_head)

        def forward(self, x):
            normed = self.ln_1(x)
            return x + self.attn(normed, normed, normed, need_weights=False)[0]

    sheet = identify(Residual(16, 2))
    assert (sheet.value("before"), sheet.value("after")) == ("layer norm", "+ x")
    assert not sheet.mistakes


def odd(x, w_q, w_k, w_v):
    q, k, v = (x @ w for w in (w_q, w_k, w_v))
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(len(w_q))) @ v + np.sin(7 * x.cumsum(1))


def test_what_is_not_known_takes_no_more_time_than_it_may():
    start = clock()
    assert not identify(odd, seconds=0.5).is_found
    assert clock() - start < 5


def with_scores(x, w_q, w_k, w_v, kv_cache=None):
    """A cache that only reading fills, as in Whisper: scores come back, and are none."""
    q, k, v = x @ w_q, *(kv_cache if type(kv_cache) is tuple else (x @ w_k, x @ w_v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(scores) @ v, scores


def test_scores_that_come_back_are_no_cache():
    assert not identify(with_scores).mistakes


def hidden_by_a_sum(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(scores + np.triu(np.full(scores.shape[-2:], -10000.0), 1)) @ v


def test_a_large_number_hides_as_long_as_no_score_is_as_large():
    sheet = identify(hidden_by_a_sum)
    assert sheet.value("causal") == "past and itself"
    assert not sheet.mistakes


class Windows:
    """Swin's windows of 2 x 3 tokens: a table of biases that an index looks up."""

    def __init__(self, dim, window_size, num_heads, seed=0):
        draw = np.random.default_rng(seed).normal
        rows, columns = window_size[0], window_size[1]
        at = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")).reshape(
            2, -1
        )
        apart = at[:, :, None] - at[:, None] + np.array([rows - 1, columns - 1])[:, None, None]
        self.index = apart[0] * (2 * columns - 1) + apart[1]
        self.table = draw(size=((2 * rows - 1) * (2 * columns - 1), num_heads))
        self.num_heads = num_heads
        self.qkv, self.proj = draw(size=(dim, 3 * dim)) / 4, draw(size=(dim, dim)) / 4

    def __call__(self, x, mask=None):
        B, N, C = x.shape
        q, k, v = np.moveaxis((x @ self.qkv).reshape(B, N, 3, self.num_heads, -1), (2, 3), (0, 2))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + self.table[self.index].T.swapaxes(
            1, 2
        )
        if mask is not None:
            parts = scores.reshape(-1, len(mask), self.num_heads, N, N) + mask[None, :, None]
            scores = parts.reshape(-1, self.num_heads, N, N)
        return (softmax(scores) @ v).swapaxes(1, 2).reshape(B, N, C) @ self.proj


def test_a_table_that_an_index_of_its_own_looks_up():
    sheet = identify(Windows)
    axes = {each.name: each.axes for each in sheet.arguments}
    assert axes["table[index]"] == "(T_q, T_k, H)"
    assert axes["mask"] == "(B, T_q, T_k)"
    assert not sheet.mistakes


def with_einsum(params, x):
    """Keys and values have one array of params, (2, K, D, d), as in Gemma."""
    q = np.einsum("btd,ndh->btnh", x, params["q_einsum"]["w"])
    k, v = np.einsum("bsd,ckdh->cbskh", x, params["kv_einsum"]["w"])
    B, T, N, d = q.shape
    q = q.reshape(B, T, k.shape[2], -1, d)
    scores = np.einsum("btkgh,bskh->bkgts", q, k) / np.sqrt(d)
    heads = np.einsum("bkgts,bskh->btkgh", softmax(scores), v).reshape(B, T, N, d)
    return np.einsum("btnh,nhd->btd", heads, params["attn_vec_einsum"]["w"])


def test_keys_and_values_in_one_array_with_an_axis_of_heads():
    sheet = identify(with_einsum)
    axes = {each.what: each.axes for each in sheet.arguments}
    assert axes["params of keys and values in one"] == "(2, H_kv, D, d_k)"
    assert not sheet.mistakes


def test_query_key_value_is_one_map():
    assert roles_by_name("query_key_value")[0] == "w_qkv"


def causal_without_a_mask(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    is_causal = mask is None
    visible = np.tri(*scores.shape[-2:], dtype=bool) if is_causal else mask
    return softmax(np.where(visible, scores, -1e30)) @ v


def test_a_mask_that_takes_the_place_of_causality_on_purpose():
    assert not identify(causal_without_a_mask).mistakes


def plain(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def test_a_call_that_rounds_differently_drops_nothing():
    found = look(plain).found
    subject = Subject(plain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dropout, "explain", lambda seen, settings: ())
        assert not [*dropout.find_dropout(subject, found, [])]
