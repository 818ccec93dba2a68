"""The search: the fewest deviations, conventions before mistakes, and what arrays are."""

import numpy as np
import pytest

from mha_numpy.identifying.calling.subject import Called, Subject
from mha_numpy.identifying.calling.ways import find_ways
from mha_numpy.identifying.family import evaluate
from mha_numpy.identifying.reporting.rows import make_row
from mha_numpy.identifying.searching.reading import fits_scores, read_weights, search_by_weights
from mha_numpy.identifying.searching.search import (
    Near,
    Seen,
    choices_of,
    distance,
    explain,
    fit,
    search,
)

MOST = dict.fromkeys(range(6), 1)


def called(settings, *names):
    """Return what a function with these settings returns."""
    way = next(find_ways(Subject(lambda q, k, v, mask: None), {}))
    problem = way.problem(Subject(lambda q, k, v, mask: None))
    values = evaluate(problem, settings)
    return Seen(way, problem, Called([(f"[{i}]", values[n]) for i, n in enumerate(names)]))


def found(settings, numbers=(), **options):
    return search([[called(settings, "out")]], numbers, until=np.inf, most=MOST, **options)


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"scale": "1/d"}, {"softmax_axis": "queries"},
        {"scale": "1", "mask": "true = blocked"}, {"rotation": "halves", "rotated": "q"},
        {"hide": "after the softmax", "softmax_axis": "queries"},
    ],
)  # fmt: skip
def test_up_to_two_deviations_are_found(settings):
    assert found(settings).settings == settings


def test_numbers_of_the_source_are_tried():
    assert found({"scale": 0.3}, (0.3,)).settings == {"scale": 0.3}
    assert found({"scale": 0.3}) is None


def test_three_deviations_are_not_found_but_from_a_base():
    three = {"scale": "1/d", "mask": "true = blocked", "softmax_axis": "queries"}
    assert found(three) is None
    assert found(three, bases=({}, {"scale": "1/d"})).settings == three


def test_many_deviations_are_found_where_weights_are_read_from_the_output():
    settings = {"qk_norm": "rms", "rotation": "halves", "scale": "1", "mask": "true = blocked"}
    group = [called(settings, "out")]
    assert search_by_weights([group], (), until=np.inf, bases=({},)).settings == settings


def test_weights_are_read_from_an_output():
    seen = called({"scale": "1"}, "out")
    weights = evaluate(seen.problem, {"scale": "1"})["weights"]
    assert np.allclose(read_weights(seen, {}), weights)
    assert read_weights(seen, {"exchanged": "k v"}) is None
    for settings, fits in (({}, True), ({"scale": "1/d"}, True), ({"qk_norm": "l2"}, False)):
        own = evaluate(seen.problem, settings)
        assert fits_scores(own["scores"], weights) == fits


def test_a_scale_is_measured_in_each_head():
    scales = (1.5, 0.7, 2.25, 3.0)
    seen = called({"qk_norm": "l2", "scale": scales}, "out")
    found = search_by_weights([[seen]], (), until=np.inf, bases=({},)).settings
    assert np.allclose(found.pop("scale"), scales)
    assert found == {"qk_norm": "l2", "mask": "true = visible"} or found == {"qk_norm": "l2"}
    assert make_row("scale", scales).says == "another number for each head: 1.5, 0.7, 2.25, 3"


def test_weights_are_read_where_a_projection_has_fewer_features_than_the_heads():
    way = next(find_ways(Subject(lambda x, w_q, w_k, w_v, w_o, num_heads: None), {}))
    way = way._replace(sizes=way.sizes._replace(D=24, W=24))
    problem = way.problem(Subject(lambda x: None))
    values = evaluate(problem, {})
    seen = Seen(way, problem, Called([("", values["projected"])]))
    assert np.allclose(read_weights(seen, {}), values["weights"])


def test_only_some_settings_may_deviate():
    assert found({"scale": "1/d"}, only=("mask",)) is None


def test_settings_have_to_explain_all_calls_of_a_group():
    usual, other = called({}, "out"), called({"scale": "1"}, "out")
    assert search([[usual, other]], (), until=np.inf, most=MOST) is None


def test_cheap_settings_come_first_and_none_comes_twice():
    near = Near([called({}, "out")], {}, choices_of((), ()))
    assert [*near.at(0)] == [{}]
    assert {"scale": "1"} in near.at(1)
    twos = [frozenset(each.items()) for each in near.at(2)]
    assert len(twos) == len({*twos})
    assert frozenset({"softmax_axis": "queries"}.items()) in twos


def test_output_comes_first_and_the_others_are_named():
    fits = explain(called({}, "weights", "out", "lse"), {})
    assert [(each.path, each.what) for each in fits] == [
        ("[1]", "out"), ("[0]", "weights"), ("[2]", "lse"),
    ]  # fmt: skip
    assert explain(called({}, "weights"), {}) == ()


def test_fit_names_the_layout():
    one = called({}, "out")
    values = evaluate(one.problem, {})
    assert fit(values["out"].swapaxes(1, 2), values, ("out",)).layout == "B T H e"


def test_distance_is_relative_and_nan_has_to_match():
    nan, inf = np.nan, np.inf
    assert distance(np.array([1.0, 4.0]), np.array([2.0, 4.0])) == 0.25
    assert distance(np.array([1.0, nan, inf]), np.array([1.0, nan, inf])) == 0
    assert distance(np.array([1.0, 2.0]), np.array([1.0, nan])) == inf
    assert distance(np.array([True]), np.array([False])) == inf


def test_the_number_1_is_the_scale_that_has_a_name():
    scales = [
        value
        for each in choices_of((1.0, 3.0), ()).values()
        for name, value in each
        if name == "scale"
    ]
    assert 1.0 not in scales
    assert 3.0 in scales
