"""Signatures as people have them: what is passed comes in tuples, dicts and objects, or is odd."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from mha_numpy.identifying import identify
from mha_numpy.identifying.calling.containers import find_held
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.facts.options import UNCLEAR


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def split(x, heads):
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def join(heads):
    return heads.swapaxes(-2, -3).reshape(*heads.shape[:-3], heads.shape[-2], -1)


# params


def stacked(x, W, n_heads):
    return join(attend(*(split(x @ W[i], n_heads) for i in range(3))))


def dense(x, params, name):
    return x @ params[name + ".weight"].T + params[name + ".bias"]


def of_state(x, params, num_heads):
    q, k, v = (split(dense(x, params, f"self.{n}"), num_heads) for n in ("query", "key", "value"))
    return dense(join(attend(q, k, v)), params, "output.dense")


def of_projections(query_proj, key_proj, value_proj, query_pre_attn_scalar=None):
    scalar = query_pre_attn_scalar or query_proj.shape[-1]
    return softmax(query_proj @ key_proj.swapaxes(-1, -2) * scalar**-0.5) @ value_proj


class Attended(NamedTuple):
    output: np.ndarray
    attention: np.ndarray


def with_fields(q, k, v):
    weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return Attended(weights @ v, weights)


def four_in_one(x, weights, heads):
    wq, wk, wv, wo = weights
    return join(attend(*(split(x @ w, heads) for w in (wq, wk, wv)))) @ wo


def maps_and_biases(x, ws, bs, num_heads):
    q, k, v = (split(x @ ws[i] + bs[i], num_heads) for i in range(3))
    return join(attend(q, k, v)) @ ws[3] + bs[3]


def pairs(x, params, num_heads):
    (w_in, b_in), (w_out, b_out) = params
    q, k, v = (split(part, num_heads) for part in np.split(x @ w_in + b_in, 3, -1))
    return join(attend(q, k, v)) @ w_out + b_out


def by_head(x, w_qkv, w_out):
    q, k, v = np.einsum("btd,nhde->nbhte", x, w_qkv)
    return np.einsum("bhte,hed->btd", attend(q, k, v), w_out)


def one_letter(x, w):
    return attend(*np.einsum("btd,dnhe->nbhte", x, w)).swapaxes(1, 2)


cross = lambda c, x, W: attend(x @ W[0], c @ W[1], c @ W[2]) @ W[3]  # noqa: E731


class Params(NamedTuple):
    wq: np.ndarray
    wk: np.ndarray
    wv: np.ndarray
    wo: np.ndarray


def in_a_named_tuple(x, p: Params, n_heads: int):
    return join(attend(*(split(x @ w, n_heads) for w in (p.wq, p.wk, p.wv)))) @ p.wo


@dataclass
class Config:
    n_embd: int
    n_head: int
    block_size: int = 64


def with_config(x, w_qkv, w_proj, config: Config):
    q, k, v = (split(part, config.n_head) for part in np.split(x @ w_qkv, 3, -1))
    return join(attend(q, k, v)) @ w_proj


# classes


class OfConfig:
    def __init__(self, cfg):
        rng = np.random.default_rng(0)
        self.c_attn = rng.normal(size=(cfg.n_embd, 3 * cfg.n_embd)) / 4
        self.c_proj = rng.normal(size=(cfg.n_embd, cfg.n_embd)) / 4
        self.cfg = cfg
        self.mask = np.tril(np.ones((cfg.block_size, cfg.block_size), bool))

    def forward(self, x):
        q, k, v = (split(part, self.cfg.n_head) for part in np.split(x @ self.c_attn, 3, -1))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        scores = np.where(self.mask[: x.shape[1], : x.shape[1]], scores, -np.inf)
        return join(softmax(scores) @ v) @ self.c_proj


class OfAdditive:
    def __init__(self, W1, W2, v):
        self.W1, self.W2, self.v = W1, W2, v

    def __call__(self, decoder_state, encoder_outputs):
        e = np.tanh((decoder_state @ self.W1.T)[:, None] + encoder_outputs @ self.W2.T) @ self.v
        return (softmax(e)[:, None] @ encoder_outputs)[:, 0]


class OfWords:
    def __init__(self, d_model, d_head):
        rng = np.random.default_rng(0)
        names = ("query", "key", "value")
        self.W = {name: rng.normal(size=(d_model, d_head)) / 3 for name in names}

    def transform(self, X):
        return attend(X @ self.W["query"], X @ self.W["key"], X @ self.W["value"])


class OfLetters:
    """Scores without a scale, as in T5."""

    def __init__(self, params, n_heads):
        self.p, self.n_heads = params, n_heads

    def __call__(self, x):
        q, k, v = (split(x @ self.p[name], self.n_heads) for name in ("q", "k", "v"))
        return join(softmax(q @ k.swapaxes(-1, -2)) @ v) @ self.p["o"]


# caches


def into_a_dict(x, cache, wq, wk, wv, wo, n_heads):
    q, k, v = (split(x @ w, n_heads) for w in (wq, wk, wv))
    if "k" in cache:
        k, v = (np.concatenate([cache[n], new], 2) for n, new in (("k", k), ("v", v)))
    cache["k"], cache["v"] = k, v
    before = k.shape[2] - x.shape[1]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    visible = np.tri(*scores.shape[-2:], before, dtype=bool)
    return join(softmax(np.where(visible, scores, -np.inf)) @ v) @ wo


def with_a_state(q, k, v, state):
    if state is not None:
        k, v = np.concatenate([state[0], k], -2), np.concatenate([state[1], v], -2)
    return attend(q, k, v), (k, v)


def one_token(x_t, state, wts, n_heads):
    wq, wk, wv, wo = wts
    q, k, v = ((x_t @ w).reshape(len(x_t), n_heads, 1, -1) for w in (wq, wk, wv))
    if state is not None:
        k, v = np.concatenate([state["k"], k], 2), np.concatenate([state["v"], v], 2)
    return attend(q, k, v).reshape(x_t.shape) @ wo, {"k": k, "v": v}


# tokens


def of_stars(*args):
    q, k, v = args
    return attend(q, k, v)


def of_names(**inputs):
    return attend(inputs["query"], inputs["key"], inputs["value"])


def of_a_batch(batch):
    q, k, v = batch["q"], batch["k"], batch["v"]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(batch["mask"], scores, -np.inf)) @ v


class Qkv(NamedTuple):
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray


def of_a_named_tuple(qkv: Qkv):
    return Qkv(attend(qkv.q, qkv.k, qkv.v), qkv.k, qkv.v)


def latents(latents, x, wq, wk, wv, wo, heads):
    return join(attend(split(latents @ wq, heads), split(x @ wk, heads), split(x @ wv, heads))) @ wo


def pooled(pool_query, tokens):
    weights = softmax(tokens @ pool_query / np.sqrt(len(pool_query)))
    return (weights[..., None] * tokens).sum(1)


def own_items(user, items):
    weights = softmax(np.einsum("btd,btnd->btn", user, items) / np.sqrt(user.shape[-1]))
    return np.einsum("btn,btnd->btd", weights, items)


def rows_of_images(x, wq, wk, wv):
    _, _, _, _ = x.shape
    return attend(x @ wq, x @ wk, x @ wv)


def as_c_returns(q, k, v, B, H, T, d):
    return attend(*(x.reshape(B, H, T, d) for x in (q, k, v))).reshape(-1)


def cut(q, k, v, cu_seqlens):
    out = np.empty((*q.shape[:2], v.shape[-1]))
    for own in map(slice, cu_seqlens[:-1], cu_seqlens[1:]):
        out[own] = attend(*(x[own].swapaxes(0, 1) for x in (q, k, v))).swapaxes(0, 1)
    return out


def cut_apart(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, scale=None):
    out = np.empty((*q.shape[:2], v.shape[-1]))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    of_queries = map(slice, cu_seqlens_q[:-1], cu_seqlens_q[1:])
    for i, j in zip(of_queries, map(slice, cu_seqlens_k[:-1], cu_seqlens_k[1:]), strict=True):
        scores = np.einsum("qhd,khd->hqk", q[i], k[j]) * scale
        out[i] = np.einsum("hqk,khd->qhd", softmax(scores), v[j])
    return out


def packed_documents(q, k, v, segment_ids):
    same = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(same, scores, -np.inf)) @ v


def by_positions(q, k, v, q_pos, k_pos):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(k_pos[None, :] <= q_pos[:, None], scores, -np.inf)) @ v


RIGHT = [
    of_state, of_projections, with_fields,
    stacked, four_in_one, maps_and_biases, pairs, by_head, one_letter, cross, in_a_named_tuple,
    with_config, OfConfig, OfAdditive, OfWords, OfLetters, into_a_dict, with_a_state, one_token,
    of_stars, of_names, of_a_batch, of_a_named_tuple, latents, pooled, own_items, rows_of_images,
    as_c_returns, cut, cut_apart, packed_documents, by_positions,
]  # fmt: skip


@pytest.mark.parametrize("function", RIGHT)
def test_signatures_are_understood_and_nothing_is_called_a_mistake(function):
    sheet = identify(function)
    assert sheet.is_found, sheet.saw
    assert not sheet.mistakes


def test_what_an_argument_holds_has_roles_of_its_own():
    roles = {each.name: each.what for each in identify(of_a_batch).arguments}
    assert roles["batch['mask']"] == "mask"
    assert roles["batch['q']"] == "queries"
    assert identify(of_a_batch).value("mask") == "true = visible"


def product_of_three(q, k, v):
    return np.matmul(q, np.matmul(np.swapaxes(k, 1, 2), v))


@pytest.mark.slow
def test_a_product_of_three_matrices_is_no_attention():
    assert not identify(product_of_three, seconds=2).is_found


def test_sequences_in_one_array_and_positions_have_roles():
    said = [each.what for each in identify(cut_apart).arguments]
    assert said[3:5] == [
        "sequences that the queries belong to",
        "sequences that the keys belong to",
    ]
    assert identify(by_positions).value("causal") == "past and itself"


def test_what_may_be_missing_is_an_option():
    notes = {each.name: each.note for each in identify(into_a_dict).arguments}
    assert UNCLEAR not in (notes["cache['k']"], notes["cache['v']"])


def reads(p, other):
    def project(name):
        return other @ p[f"{name}_w"] + p[name + "_b"]

    for name in ("q", "k"):
        project(name)
    return helper(p["out"]), other.shape, p.get("scale"), other[0]


def helper(layer):
    w, b = layer
    return w + b


def test_the_source_tells_what_is_looked_up():
    subject = Subject(reads)
    held = find_held(subject.tree, ["p", "other"], reads)
    assert {*held["p"].places} == {
        ("q_w",), ("k_w",), ("q_b",), ("k_b",), ("out", 0), ("out", 1), ("scale",),
    }  # fmt: skip
    assert held["p"].places["out", 0] == "w"
    assert held["p"].optional == {("scale",)}
    assert [a.name for a in subject.arguments if not a.holder] == ["other"]


def with_an_object(q, k, v, past=None):
    if past is not None:
        k, v = past.update(k, v)
        past.seen += k.shape[-2]
    return attend(q, k, v)


def test_an_object_that_may_be_left_out_is_one_argument():
    assert [a.name for a in Subject(with_an_object).arguments] == ["q", "k", "v", "past"]


def with_rows(q, k, v, query_mask=None):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if query_mask is not None:
        scores = scores - 1e9 * (1 - query_mask[..., None])
    return softmax(scores) @ v


def test_a_mask_of_queries_may_change_nothing():
    assert not identify(with_rows).mistakes


def test_cosines_are_no_params():
    assert roles_by_name("cos") == ("cos",)
