"""Signatures as people write them: which argument, or part of an object, has which role."""

import numpy as np
import pytest

from mha_numpy.identifying import identify
from mha_numpy.identifying.calling.roles import hidden_roles
from mha_numpy.identifying.calling.subject import Subject


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def written_into(q, k, v, cache_k, cache_v, pos):
    stop = pos + q.shape[1]
    cache_k[:, pos:stop], cache_v[:, pos:stop] = k, v
    scores = np.einsum("bthd,bshd->bhts", q, cache_k[:, :stop]) / np.sqrt(q.shape[-1])
    visible = np.arange(stop) <= pos + np.arange(q.shape[1])[:, None]
    return np.einsum(
        "bhts,bshd->bthd", softmax(np.where(visible, scores, -1e30)), cache_v[:, :stop]
    )


def of_one_token(q, k_new, v_new, k_cache, v_cache, pos):
    k_cache[pos], v_cache[pos] = k_new, v_new
    scores = np.einsum("hd,shd->hs", q, k_cache[: pos + 1]) / np.sqrt(q.shape[-1])
    return np.einsum("hs,shd->hd", softmax(scores), v_cache[: pos + 1])


def of_one_step(x_t, wq, wk, wv):
    scores = (x_t @ wq) @ (x_t @ wk).swapaxes(-1, -2) / np.sqrt(wq.shape[1])
    return softmax(scores) @ (x_t @ wv)


def with_gains(q, k, v, q_gain, k_gain, eps=1e-6):
    q, k = (t / np.sqrt((t * t).mean(-1, keepdims=True) + eps) for t in (q, k))
    scores = (q * q_gain) @ (k * k_gain).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(scores) @ v


def as_lists(out_len, q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[1])
    scores[np.arange(len(k)) > np.arange(out_len)[:, None] + len(k) - out_len] = -1e30
    return [(softmax(scores) @ v).tolist(), softmax(scores).tolist()]


def as_in_c(q, k, v, NH, T, HS):
    out = np.zeros((len(q), NH, T, HS))
    for b, h, t in np.ndindex(out.shape[:-1]):
        scores = k[b, h, : t + 1] @ q[b, h, t] / np.sqrt(HS)
        out[b, h, t] = softmax(scores) @ v[b, h, : t + 1]
    return out


def of_anything(what, where, payload, peek=False):
    scores = what @ where.swapaxes(-1, -2)
    visible = np.tri(*scores.shape[-2:], dtype=bool) | peek
    return softmax(np.where(visible, scores, -1e30)) @ payload


@pytest.mark.parametrize(
    ("function", "roles"),
    [
        (written_into, "queries, keys, values, keys of earlier tokens, values of earlier tokens, "
         "position of the first query"),
        (of_one_token, "queries, keys, values, keys of earlier tokens, values of earlier tokens, "
         "position of the first query"),
        (of_one_step, "tokens of queries, keys and values, params of the queries, "
         "params of the keys, params of the values"),
        (with_gains,
         "queries, keys, values, gain of the queries, gain of the keys, a small number"),
        (as_lists, "number of tokens, queries, keys, values"),
        (as_in_c,
         "queries, keys, values, number of query heads, number of tokens, width of a head"),
        (of_anything, "queries, keys, values, switches causality"),
    ],
)  # fmt: skip
def test_roles(function, roles):
    sheet = identify(function)
    assert sheet.is_found, sheet.saw
    assert ", ".join(argument.what for argument in sheet.arguments) == roles
    assert not sheet.mistakes


def test_a_wrong_name_costs_time_and_no_answer():
    def attend(mask, k, v):
        return softmax(mask @ k.swapaxes(-1, -2)) @ v

    assert identify(attend).arguments[0].what == "queries"


class Layer:
    def __init__(self):
        rng = np.random.default_rng(0)
        self.c_attn, self.c_bias = rng.normal(size=(12, 36)), rng.normal(size=36)
        self.c_proj = rng.normal(size=(12, 12))

    def __call__(self, x):
        pass


def test_a_bias_belongs_to_the_map_before_it():
    roles = {"c_attn": "w_qkv", "c_proj": "w_o", "c_bias": "b_qkv"}
    assert hidden_roles(Subject(Layer())) == roles


def test_values_from_the_wrong_side():
    def attend(tgt, w_q, w_k, w_v, memory=None):
        memory = tgt if memory is None else memory
        scores = (tgt @ w_q) @ (memory @ w_k).swapaxes(-1, -2) / np.sqrt(w_q.shape[1])
        return softmax(scores) @ (tgt @ w_v)

    assert [row.value for row in identify(attend).mistakes] == ["v := q"]
