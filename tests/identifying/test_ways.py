"""Names, roles and ways: what is passed to a function of an ordinary signature."""

from itertools import islice

import numpy as np
import pytest

from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.roles import find_roles, hidden_roles
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.calling.ways import find_ways
from mha_numpy.identifying.family import evaluate


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("num_heads", "H"), ("numKVHeads", "G"), ("W_Q", "w_q"), ("q_proj", "w_q"), ("Wo", "w_o"),
        ("encoder_outputs", "memory"), ("is_causal", "is_causal"), ("past_k", "cache_k"),
        ("softmax_scale", "scale"), ("valid_lens", "lengths"), ("attn_bias", "bias"),
        ("cos", "cos"), ("hidden_states", "x"), ("dropout_p", "rate"), ("sliding_window", "window"),
    ],
)  # fmt: skip
def test_first_role_by_name(name, role):
    assert roles_by_name(name)[0] == role


def test_a_name_that_says_nothing_has_no_role():
    assert roles_by_name("foo") == ()


def made(signature):
    scope = {}
    exec(f"def f({signature}): pass", scope)
    return Subject(scope["f"])


@pytest.mark.parametrize(
    ("signature", "slots"),
    [
        ("q, k, v", "query|B H T d, key|B G S d, value|B G S e"),
        ("value, key, query", "value|B G S e, key|B G S d, query|B H T d"),
        ("q, k, v, mask", "query|B H T d, key|B G S d, value|B G S e, mask|B H T S"),
        ("q, k, v, num_heads", "wide_q|B T M, wide_k|B S N, wide_v|B S O, H|"),
        ("q, k, v, dropout=0.1", "query|B H T d, key|B G S d, value|B G S e, rate|"),
        ("x, w_q, w_k, w_v, w_o, n_heads", "x|B T D, w_q|D M, w_k|C N, w_v|E O, w_o|U W, H|"),
        ("x, memory, w_q, w_kv, n_heads", "x|B T D, memory|B S C, w_q|D M, w_kv|C R, H|"),
        ("query, key, value, w_q, w_k, w_v, n_heads",
         "x_q|B T D, x_k|B S C, x_v|B S E, w_q|D M, w_k|C N, w_v|E O, H|"),
        ("qkv, num_heads", "packed|B T P, H|"),
        ("q, k, v, past_k, past_v",
         "query|B H T d, key|B G S d, value|B G S e, cache_k|B G Z d, cache_v|B G Z e"),
    ],
)  # fmt: skip
def test_first_way(signature, slots):
    way = next(find_ways(made(signature), {}))
    assert ", ".join(f"{slot.role}|{slot.layout}" for slot in way.slots.values()) == slots


def test_names_that_say_nothing_may_be_anything():
    roles = [[*each.arguments.values()] for each in find_roles(made("foo, bar, baz"), {})]
    assert roles[0] == ["query", "key", "value"]
    assert ["value", "key", "query"] in roles


def test_a_given_role_is_kept():
    ways = islice(find_ways(made("foo, bar, baz"), {"foo": "value"}), 80)
    assert {way.slots["foo"].role for way in ways} == {"value", "wide_v"}


def test_no_way_of_arguments_that_are_no_attention():
    assert [*find_ways(made("mask, scale"), {})] == []


def test_arrays_that_come_in_pairs_have_one_layout():
    ways = islice(find_ways(made("q, k, v, cos, sin"), {}), 0, 700, 20)
    pairs = {(way.slots["cos"].layout, way.slots["sin"].layout) for way in ways}
    assert len(pairs) > 3
    assert all(cos == sin for cos, sin in pairs)


class Layer:
    def __init__(self):
        rng = np.random.default_rng(0)
        self.num_heads = 3
        self.wq, self.wk, self.wv = (rng.normal(size=(12, 12)) for _ in range(3))
        self.c_proj = {"weight": rng.normal(size=(12, 12)), "bias": rng.normal(size=12)}

    def __call__(self, x):
        pass


def test_params_of_an_object_are_taken_from_it():
    layer = Layer()
    subject = Subject(layer)
    assert [*hidden_roles(subject).values()] == ["w_q", "w_k", "w_v", "w_o", "b_o"]
    way = next(find_ways(subject, {}))
    assert (way.sizes.H, way.sizes.d, way.sizes.of("D")) == (3, 4, 12)
    problem = way.problem(subject)
    np.testing.assert_array_equal(problem.given["w_q"], layer.wq)
    assert evaluate(problem, {})["projected"].shape == (3, 5, 12)


def test_what_is_passed_is_the_problem_in_another_layout():
    subject = made("q, k, v")
    way = next(way for way in find_ways(subject, {}) if way.slots["k"].layout == "S G d")
    problem = way.problem(subject)
    np.testing.assert_array_equal(
        way.given(problem)["k"], problem.given["key"][0].transpose(1, 0, 2)
    )
