"""What functions are called with elsewhere: pages, edges, tuples with names, other languages."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from mha_numpy.identifying import identify
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.roles import find_roles
from mha_numpy.identifying.calling.subject import Subject


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("names", "role"),
    [
        ("requete anfragen consultas chaxun", "query"), ("cle schlüssel clave jian", "key"),
        ("valeurs werte valor zhi", "value"), ("masque maske máscara yanma", "mask"),
        ("nb_têtes anzahl_koepfe n_cabezas", "H"), ("poids_q gewichte_q pesos_q", "w_q"),
        ("n_rep kv_repeats", "R"), ("k_pages", "cache_k"), ("block_tables page_table", "pages"),
    ],
)  # fmt: skip
def test_names_in_other_languages_and_of_servers(names, role):
    assert {roles_by_name(name)[0] for name in names.split()} == {role}


def by_use_alone(x, a, b, c, d, n):
    q, k, v = x @ a, x @ b, x @ c
    heads = [softmax(q[:, i] @ k[:, i].T) @ v[:, i] for i in np.split(np.arange(len(a)), n)]
    return np.concatenate(heads, -1) @ d, len(a) // n


def test_a_map_is_what_tokens_are_multiplied_by():
    first = next(find_roles(Subject(by_use_alone), {})).arguments
    assert [*first.values()] == ["x", "w_q", "w_k", "w_v", "w_o", "H"]


def with_matrices(words, matriz_q, matriz_k, matriz_v):
    q, k, v = words @ matriz_q, words @ matriz_k, words @ matriz_v
    return softmax(q @ k.T) @ v


def test_maps_that_are_named_like_what_they_make():
    assert identify(with_matrices).value("scale") == "1"


def repeated(q, k, v, times):
    k, v = np.repeat(k, times, axis=1), np.repeat(v, times, axis=1)
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def test_keys_that_are_repeated_are_those_of_a_group():
    sheet = identify(repeated)
    assert sheet.is_found
    assert [a.what for a in sheet.arguments][3:] == ["query heads per key/value head"]


def paged(q, k_cache, v_cache, page_table, context_lens):
    out = np.zeros_like(q)
    for b, n in enumerate(context_lens):
        k, v = (np.concatenate(x[page_table[b]])[:n] for x in (k_cache, v_cache))
        scores = np.einsum("hd,jhd->hj", q[b], k) / np.sqrt(q.shape[-1])
        out[b] = np.einsum("hj,jhe->he", softmax(scores), v)
    return out


def one_paged(q, k_pages, v_pages, page_indices, context_len):
    k, v = (np.concatenate(x[page_indices], axis=1)[:, :context_len] for x in (k_pages, v_pages))
    return np.einsum("hj,hje->he", softmax(np.einsum("hd,hjd->hj", q, k)), v)


@pytest.mark.parametrize(
    ("function", "axes"),
    [(paged, "(pages, rows, H_kv, d_k)"), (one_paged, "(pages, H_kv, rows, d_k)")],
)
def test_keys_in_pages(function, axes):
    sheet = identify(function)
    assert sheet.is_found
    assert not sheet.mistakes
    assert (sheet.arguments[1].what, sheet.arguments[1].axes) == ("keys", axes)


def along_edges(nodes, edge_index, W_q, W_k, W_v):
    sees = np.zeros((len(nodes), len(nodes)), bool)
    sees[edge_index[1], edge_index[0]] = True
    scores = (nodes @ W_q) @ (nodes @ W_k).T / np.sqrt(W_k.shape[1])
    return softmax(np.where(sees, scores, -1e9)) @ (nodes @ W_v)


def test_edges_are_a_mask():
    sheet = identify(along_edges)
    assert sheet.value("mask") == "true = visible"
    assert not sheet.mistakes


def buckets_of(distance, num_buckets=16, most=128):
    distance = -np.minimum(distance, 0)
    half = num_buckets // 2
    ratio = np.log(np.maximum(distance, 1) / half) / np.log(most / half)
    far = np.minimum(half + (ratio * (num_buckets - half)).astype(int), num_buckets - 1)
    return np.where(distance < half, distance, far)


def with_table(q, k, v, rel_bias):
    distance = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None]
    bias = rel_bias[buckets_of(distance)].transpose(2, 0, 1)
    return softmax(q @ k.swapaxes(-1, -2) + bias) @ v


@pytest.mark.slow
def test_a_table_has_as_many_rows_as_a_default_says():
    assert identify(with_table).value("buckets") == "past"


class Params(NamedTuple):
    wq: np.ndarray
    wk: np.ndarray
    wv: np.ndarray


def of_a_tuple(params: Params, x):
    assert isinstance(params, Params)
    q, k, v = (x @ w for w in params)
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def test_params_in_a_tuple_with_names():
    sheet = identify(of_a_tuple)
    assert [a.name for a in sheet.arguments] == [
        "params['wk']", "params['wq']", "params['wv']", "x"
    ]  # fmt: skip
    assert sheet.is_found


@pytest.mark.slow
def test_params_of_what_is_compiled():
    jax = pytest.importorskip("jax")

    @jax.jit
    def compiled(params, x):
        q, k, v = (x @ params[name] for name in ("wq", "wk", "wv"))
        scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        return jax.nn.softmax(scores) @ v

    assert identify(compiled).is_found


def in_a_dict(batch, weights):
    q, k, v = (batch @ weights[name] for name in ("query", "key", "value"))
    return softmax(q @ k.swapaxes(-1, -2)) @ v


def test_what_params_hold_is_params():
    sheet = identify(in_a_dict)
    assert [each.what for each in sheet.arguments][1:] == [
        "params of the keys", "params of the queries", "params of the values"
    ]  # fmt: skip


def one_key_after_the_other(q, k, v):
    out = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        most, total = -np.inf, 0.0
        for j in range(len(k)):
            score = q[i] @ k[j] / np.sqrt(len(q[i]))
            largest = max(most, score)
            total = total * np.exp(most - largest) + np.exp(score - largest)
            out[i] += np.exp(score - largest) * v[j]
            most = largest
        out[i] /= total
    return out


@pytest.mark.slow
def test_an_output_that_is_not_rescaled_for_single_keys():
    sheet = identify(one_key_after_the_other)
    assert sheet.value("normaliser") == "streamed, output not rescaled"


def lengths_of_rows(q, k, v, valid_lens):
    hidden = np.arange(k.shape[1]) >= valid_lens[..., None]
    scores = np.where(hidden, -1e6, q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]))
    return softmax(scores) @ v


def test_a_length_for_each_query():
    sheet = identify(lengths_of_rows)
    assert (sheet.value("lengths"), sheet.arguments[3].axes) == ("j < n", "(B, T_q)")


def left_and_right(q, k, v, left, right):
    out = np.zeros_like(v)
    for i in range(q.shape[1]):
        near = slice(max(0, i - left), i + right + 1)
        scores = np.einsum("bd,bjd->bj", q[:, i], k[:, near]) / np.sqrt(q.shape[-1])
        out[:, i] = np.einsum("bj,bjd->bd", softmax(scores), v[:, near])
    return out


def test_a_window_of_two_numbers():
    sheet = identify(left_and_right)
    assert sheet.value("window_given") == "w both"
    assert [a.what for a in sheet.arguments][3:] == ["window", "window"]


@dataclass(frozen=True)
class Config:
    heads: int
    kv_heads: int = 2

    @property
    def group(self):
        return self.heads // self.kv_heads


def with_config(config: Config, x, w_q, w_k, w_v):
    B, T, D = x.shape
    q, k, v = ((x @ w).reshape(B, T, -1, D // config.heads) for w in (w_q, w_k, w_v))
    k, v = (np.repeat(each, config.group, axis=2) for each in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(D // config.heads)
    return np.einsum("bhqk,bkhd->bqhd", softmax(scores), v)


def test_a_dataclass_is_made_as_one_and_computes_the_rest_itself():
    sheet = identify(with_config)
    assert sheet.is_found
    assert "config['group']" not in [a.name for a in sheet.arguments]


def regions_and_words(img, txt, A, C):
    q, (k, v) = img @ A, np.split(txt @ C, 2, axis=-1)
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def test_tokens_are_what_a_map_is_multiplied_with():
    sheet = identify(regions_and_words)
    assert [a.what for a in sheet.arguments] == [
        "tokens of the queries", "tokens of keys and values", "params of the queries",
        "params of keys and values in one",
    ]  # fmt: skip


def next_token(x, w_qkv, k_cache, v_cache, pos, nh):
    q, k, v = (y.reshape(len(x), 1, nh, -1) for y in np.split(x @ w_qkv, 3, axis=-1))
    k_cache[:, pos : pos + 1], v_cache[:, pos : pos + 1] = k, v
    scores = np.einsum("bqhd,bkhd->bhqk", q, k_cache) / np.sqrt(q.shape[-1])
    weights = softmax(np.where(np.arange(k_cache.shape[1]) <= pos, scores, -np.inf))
    return np.einsum("bhqk,bkhd->bqhd", weights, v_cache).reshape(x.shape)


@pytest.mark.slow
def test_a_single_token_with_an_axis_and_a_cache_with_room():
    sheet = identify(next_token)
    assert sheet.is_found
    assert sheet.value("q_position") is None  # there is no rotation to tell of
