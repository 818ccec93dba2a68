"""The shapes that people write beside arguments, and what identify makes of them."""

import ast

import numpy as np
import pytest

from mha_numpy.identifying import identify
from mha_numpy.identifying.calling.shapes import declared_shapes, fit_shapes, roles_by_shape
from mha_numpy.identifying.reporting.libraries import nearest


@pytest.mark.parametrize(
    ("said", "code", "shapes"),
    [
        ("a, b : (n, p)", "", {"a": [("n", "p")], "b": [("n", "p")]}),
        ("`a`: an array of shape [batch, T, 3*d]", "", {"a": [("batch", "T", "3*d")]}),
        ("a is Tk x dv, b is 4 by d.", "", {"a": [("Tk", "dv")], "b": [("4", "d")]}),
        ("b  float32 [rows][cols]", "", {"b": [("rows", "cols")]}),
        ("a : (n,) or (n, r) responses", "", {"a": [("n",), ("n", "r")]}),
        ("a (optional), b(x) is a function of sqrt(p)", "", {}),
        ("", "B, _, D = a.shape", {"a": [("B", "a_1", "D")]}),
        ("", "np.einsum('ij, jk -> ik', a, b)", {"a": [("i", "j")], "b": [("j", "k")]}),
        ("a: (m, n)", "B, T = a.shape", {"a": [("m", "n")]}),
    ],
)
def test_declared_shapes(said, code, shapes):
    assert declared_shapes(said, ast.parse(code), ["a", "b"]) == shapes


def test_shapes_fit_layouts_that_give_a_symbol_one_kind_of_axis():
    shapes = {"q": [("m", "p")], "k": [("n", "p")], "hide": [("m", "n")]}
    assert fit_shapes(shapes, {"q": "T d", "k": "S d", "hide": "T S"}) == 0
    assert fit_shapes(shapes, {"q": "T d", "k": "d S", "hide": "T S"}) is None
    assert fit_shapes(shapes, {"q": "T d", "k": "S d", "hide": "S"}) is None


def test_roles_by_shape_come_in_the_order_of_what_they_cost():
    shapes = {"u": [("m", "p")], "z": [("n", "p")], "r": [("n", "c")]}
    roles, tokens = next(roles_by_shape(shapes, {}))
    assert roles == {"u": "query", "z": "key", "r": "value"}
    assert tokens == "T d"


def plain(q, k, v, hidden=None):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = scores if hidden is None else np.where(hidden, -np.inf, scores)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def smooth(at, design, response, dropped=None):
    """Kernel regression.

    at        (m, p)
    design    (n, p)
    response  (n, c)
    dropped   (n,), True for what is left out
    """
    return plain(at, design, response, dropped)


def columns(probe, states, seen):
    """Mix what was seen: probe (d, N), states (d, M), seen (c, M); returns (c, N)."""
    return plain(probe.T, states.T, seen.T).T


def pick(now, stops, gone, A, B, C):
    """Look at stops.

    now (batch, width); stops (batch, n, width); gone (batch, n), True = hidden
    """
    q, k, v = (now @ A)[:, None], stops @ B, stops @ C
    return plain(q, k, v, gone[:, None])[:, 0]


@pytest.mark.parametrize(
    ("function", "roles"),
    [
        (smooth, {"at": "queries", "design": "keys", "response": "values"}),
        (columns, {"probe": "queries", "states": "keys", "seen": "values"}),
        pytest.param(
            pick,
            {"stops": "tokens of keys and values", "gone": "mask", "B": "params of the keys"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_arguments_whose_names_say_nothing_are_found_by_their_shapes(function, roles):
    sheet = identify(function)
    assert sheet.is_found
    assert sheet.mistakes == ()
    found = {each.name: each.what for each in sheet.arguments}
    assert {name: found[name] for name in roles} == roles


def by_name(x, layer, heads):
    """x (batch, time, width); layer has query, key, value and output, each (kernel, bias)."""
    B, T, D = x.shape

    def project(name):
        kernel, bias = layer[name]
        return (x @ kernel + bias).reshape(B, T, heads, -1).swapaxes(1, 2)

    out = plain(project("query"), project("key"), project("value"))
    kernel, bias = layer["output"]
    return out.swapaxes(1, 2).reshape(B, T, D) @ kernel + bias


def test_pairs_that_are_looked_up_by_a_name_are_found():
    sheet = identify(by_name)
    assert sheet.is_found
    assert {"layer['key'][1]", "layer['output'][0]"} <= {each.name for each in sheet.arguments}


def head(x, wq, wk, wv):
    return plain(x @ wq, x @ wk, x @ wv)


def starred(x, heads, w_o):
    return np.concatenate([head(x, *each) for each in heads], -1) @ w_o


def counted(x, heads, w_o):
    outs = []
    for _, (wq, wk, wv) in enumerate(heads):
        outs.append(head(x, wq, wk, wv))
    return np.concatenate(outs, -1) @ w_o


def with_the_last(x, maps):
    """One dict for each head, and one for the output."""
    outs = [head(x, each["q"], each["k"], each["v"]) for each in maps[:-1]]
    return np.concatenate(outs, -1) @ maps[-1]["out"]


@pytest.mark.parametrize("function", [starred, counted, with_the_last])
def test_params_may_be_in_a_list_with_an_item_for_each_head(function):
    sheet = identify(function)
    assert sheet.is_found
    assert sheet.mistakes == ()
    of_heads = [each for each in sheet.arguments if "[h]" in each.name]
    assert {each.axes for each in of_heads} == {"(H, D, d_k)", "(H_kv, D, d_k)"}


def in_columns(q, k, v, mask=None):
    scores = k.T @ q / np.sqrt(q.shape[0])
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(0))
    return v @ (e / e.sum(0))


def test_where_tokens_are_columns_a_mask_may_have_the_keys_first():
    sheet = identify(in_columns)
    assert {each.name: each.axes for each in sheet.arguments}["mask"] == "(T_k, T_q)"
    assert sheet.mistakes == ()


def with_itself(states, values):
    return plain(states, states, values)


def test_without_an_argument_of_keys_queries_are_keys_by_intent():
    sheet = identify(with_itself)
    assert sheet.mistakes == ()
    assert [each.what for each in sheet.arguments] == ["queries and keys", "values"]


def one_key_head(x, wq, wk, wv, wo):
    """x [n, D], wq [D, h, d], wk [D, d], wv [D, c], wo [h, c, D]."""
    q = np.einsum("nD,Dhd->hnd", x, wq)
    return np.einsum("hnc,hcD->nD", plain(q, x @ wk, x @ wv), wo)


def by_segment(x, segment):
    """x (T, D); segment (T,), 0 = padding."""
    same = (segment[:, None] == segment) & (segment > 0)
    return plain(x, x, x, ~same)


@pytest.mark.parametrize("function", [one_key_head, by_segment])
def test_shapes_of_one_key_head_and_of_segments(function):
    sheet = identify(function)
    assert sheet.is_found
    assert sheet.mistakes == ()


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def look(words, regions, w_q, w_k, w_v):
    scores = (words @ w_q) @ (regions @ w_k).swapaxes(-1, -2) / np.sqrt(w_q.shape[1])
    return softmax(scores) @ (regions @ w_v)


def align(dec, enc, w_q, w_k, va):
    scores = np.tanh((dec @ w_q)[:, :, None] + (enc @ w_k)[:, None]) @ va
    return softmax(scores) @ enc


def of_one_width(words, regions, w_q, w_k, w_v):
    return words * 0 + look(words, regions + 0 * words[:, :1], w_q, w_k, w_v)


@pytest.mark.parametrize(
    ("function", "tokens", "keys", "result"),
    [
        (look, "(B, T_q, D)", "(B, T_k, D_kv)", "(B, T_q, H*d_v)"),
        (align, "(B, T_q, D)", "(B, T_k, D_kv)", "(B, T_q, D_kv)"),
        (of_one_width, "(B, T_q, D)", "(B, T_k, D)", "(B, T_q, D)"),
    ],
)
def test_widths_that_may_differ_have_symbols_of_their_own(function, tokens, keys, result):
    sheet = identify(function)
    assert [each.axes for each in sheet.arguments[:2]] == [tokens, keys]
    assert sheet.returns[0].axes == result
    near = nearest(sheet)
    assert near is None or "axes" not in [row.setting for row, _ in near.rows]
