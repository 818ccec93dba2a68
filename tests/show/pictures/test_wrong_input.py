"""What pictures and pages cannot show: a typed error in one line that names the argument."""

from functools import cache, partial

import numpy as np
import pytest

from mha_numpy.checking.tracing import Trace, trace
from mha_numpy.core import attention_forward
from mha_numpy.errors import ConfigError, DTypeError, MaskError, ShapeError
from mha_numpy.show.page import stepper
from mha_numpy.show.pictures import (
    Picture,
    animate,
    arrows,
    backward_film,
    bar_chart,
    group_color,
    head_color,
    line_chart,
    matrices,
    origin_film,
    save_figure,
    shape_film,
    sharing_map,
    weights_by_head,
)
from tests.show.pictures.helpers import recorded, recorded_rank_2, steps_of

NAN, INF = np.nan, np.inf
ARROWS, BARS = partial(arrows, title="t"), partial(bar_chart, title="t")
LINES = partial(line_chart, title="t", x_label="x", y_label="y")
FILM = partial(animate, path="film.png")
WEIGHTS, ROWS, KEYS = np.full((2, 2, 3, 4), 1 / 4), list("abc"), list("wxyz")
RAMP = np.arange(32).reshape(1, 4, 8)
HEADS = RAMP.reshape(1, 4, 2, 4).transpose(0, 2, 1, 3)
VECTOR, EYE = np.ones(3), np.eye(2)


@cache
def layer(B):
    return recorded(B=B)[0]


def one(name="x", array=VECTOR, axes="D"):
    return steps_of((name, array, axes))


def many(name):
    return steps_of(*((f"{name}{i}", np.full(1, i), "D") for i in range(301)))


def of_size(T_q, T_k):
    q, k = np.zeros((T_q, 2)), np.zeros((T_k, 2))
    with trace() as t:
        attention_forward(q, k, k.copy())
    return t


def ramp(*shape):
    return np.arange(np.prod(shape)).reshape(shape)


def with_ramp(array):
    return {"x": RAMP, "a": array}


def assert_refused(call, given, options, message, error):
    with pytest.raises(error) as raised:
        call(*given, **options)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


CASES = {
    ConfigError: [
        (head_color, (-1,), {}, "head: expected an integer >= 0; got -1"),
        (head_color, (1.5,), {}, "head: expected"),
        (head_color, (True,), {}, "head: expected"),
        (group_color, (0, 0), {}, "group_size: expected"),
        (save_figure, ("film", "x"), {}, "fig: expected a matplotlib Figure; got str"),
        (save_figure, (Picture(), ""), {}, "stem: expected a path that ends in a file's name"),
        (matrices, ({},), {}, "arrays: expected a Mapping of at least one name to its array"),
        (matrices, ([EYE],), {}, "arrays: expected a Mapping of at least one name"),
        (matrices, ({"a": EYE},), {"row_labels": "abc"},
         "row_labels: expected 2 of them for arrays['a']; got 3"),
        (matrices, ({"a": EYE, "b": np.eye(3)},), {"column_labels": "ab"},
         "column_labels: expected 3 of them for arrays['b']; got 2"),
        (matrices, ({"a": np.eye(1)},), {"row_labels": []}, "row_labels: expected 1 of"),
        (matrices, ({"a": EYE},), {"row_labels": 3}, "row_labels: expected a list of"),
        (matrices, ({"a": EYE},), {"shared": 1}, "shared: expected True or False; got 1"),
        (matrices, ({"a": EYE},), {"meaning": "yes"}, "meaning: expected two strings"),
        (matrices, ({"a": EYE},), {"meaning": ("yes", 0)}, "meaning: expected a string"),
        (matrices, ({"a": EYE},), {"title": None}, "title: expected a string; got None"),
        (LINES, ([1, 1], {"a": [1, 2]}), {}, "x: expected finite numbers that increase"),
        (LINES, ([1, NAN], {"a": [1, 2]}), {}, "x: expected finite numbers"),
        (LINES, ([-1.7e308, 1.7e308], {"a": [1, 2]}), {}, "x: expected numbers up to 1e+300"),
        (LINES, ([1], {}), {}, "lines: expected a Mapping of at least one name"),
        (LINES, ([1], [1]), {}, "lines: expected a Mapping of at least one name"),
        (LINES, ([1], {name: [1] for name in "abcdefghi"}), {}, "lines: expected at most 8; got 9"),
        (LINES, ([1], {"a": [INF]}), {}, "lines['a']: expected numbers up to 1e+300"),
        (LINES, ([0], {"a": [1]}), {"log_x": True}, "x: expected numbers > 0 with log_x=True"),
        (LINES, ([1], {"a": [0]}), {"log_y": True}, "lines['a']: expected numbers > 0 with"),
        (LINES, ([1], {"a": [0]}), {"log_y": 1}, "log_y: expected True or False; got 1"),
        (LINES, ([1], {"a": [0]}), {"title": 1}, "title: expected a string; got 1"),
        (LINES, ([1], {"a": [0]}), {"x_label": 1}, "x_label: expected a string; got 1"),
        (BARS, ({},), {}, "bars: expected a Mapping of at least one name to its number; got {}"),
        (BARS, ([1],), {}, "bars: expected a Mapping of at least one name to its number; got [1]"),
        (BARS, ({"a": -1},), {}, "bars['a']: expected a number >= 0; got -1"),
        (BARS, ({"a": NAN},), {}, "bars['a']: expected a finite number; got nan"),
        (BARS, ({"a": "1"},), {}, "bars['a']: expected a finite number; got '1'"),
        (BARS, ({"a": 1},), {"against": {"b": 1}}, "against: expected names of bars; got 'b'"),
        (BARS, ({"a": 1},), {"against": {"a": -1}}, "against['a']: expected a number >= 0; got -1"),
        (BARS, ({"a": 1},), {"title": None}, "title: expected a string; got None"),
        (BARS, ({"a": 1},), {"unit": 1}, "unit: expected a string; got 1"),
        (BARS, ({"a": 1},), {"against_label": 1}, "against_label: expected a string; got"),
        (ARROWS, ({},), {}, "panels: expected a Mapping"),
        (ARROWS, ({"x": np.array([[NAN, 1]])},), {}, "expected finite numbers"),
        (ARROWS, ({"x": np.ones((3, 2))},), {"labels": ["a"]}, "labels: expected 3, one for"),
        (sharing_map, (6, 4), {}, "num_kv_heads: expected a divisor of num_heads=6; got 4"),
        (sharing_map, (0, 1), {}, "num_heads: expected an integer >= 1; got 0"),
        (sharing_map, (4, 2.0), {}, "num_kv_heads: expected an integer; got 2.0"),
        (weights_by_head, (WEIGHTS, 3), {}, "query_labels: expected a list of strings; got 3"),
        (weights_by_head, (WEIGHTS, ROWS[:2], KEYS), {},
         "query_labels: expected T_q=3 of them; got 2"),
        (weights_by_head, (WEIGHTS, ROWS, ROWS), {}, "key_labels: expected T_k=4 of them; got 3"),
        (weights_by_head, (WEIGHTS, ROWS), {}, "key_labels: expected T_k=4 of them; got none"),
        (weights_by_head, (WEIGHTS, ROWS, KEYS), {"sequence": 2},
         "sequence: expected an index into the batch"),
        (weights_by_head, (WEIGHTS, ROWS, KEYS), {"sequence": -1},
         "sequence: expected an index into the batch"),
        (weights_by_head, (WEIGHTS - 3.25, ROWS, KEYS), {},
         "weights: expected numbers between 0 and 1; got -3 to"),
        (weights_by_head, (WEIGHTS + np.array([0, 0, 0, 1]), ROWS, KEYS), {},
         "weights: expected numbers between 0 and 1; got 0.25 to 1.25"),
        (weights_by_head, (WEIGHTS, ROWS, KEYS), {"head_names": ["one"]},
         "head_names: expected H=2 of them; got 1"),
        (origin_film, ({}, 2), {}, "arrays: expected a mapping of names to arrays, the ramp first"),
        (origin_film, ([RAMP], 2), {}, "arrays: expected a mapping of names"),
        (origin_film, ({"x": RAMP + 1}, 2), {},
         "x: expected the first array to be the ramp np.arange"),
        (origin_film, ({"x": HEADS}, 2), {}, "x: expected the first array to be the ramp"),
        (origin_film, ({"x": RAMP}, 3), {}, "num_heads: expected a divisor of D=8; got 3"),
        (origin_film, ({"x": RAMP}, 0), {}, "num_heads: expected an integer >= 1; got 0"),
        (origin_film, (with_ramp(RAMP[0] + 0.5), 2), {},
         "a: expected numbers of the ramp, 0 to 31; got 0.5 at [0, 0]: this picture follows "
         "moved cells; use shape_film for computed ones"),
        (origin_film, (with_ramp(np.array([31, 32])), 2), {}, "; got 32 at [1]"),
        (origin_film, (with_ramp(np.array([-1])), 2), {}, "; got -1 at [0]"),
        (origin_film, (with_ramp(np.array([3.0, NAN])), 2), {}, "; got nan at [1]"),
        (origin_film, (with_ramp(np.array([INF])), 2), {}, "; got inf at [0]"),
        (origin_film, (with_ramp(np.array([1 + 1e-8])), 2), {}, "; got 1.00000001 at [0]"),
        (origin_film, ({"x": ramp(65, 2)}, 2), {}, "x: expected at most 64 rows and columns"),
        (origin_film, ({"x": ramp(2, 65)}, 5), {}, "x: expected at most 64 rows and columns"),
        (origin_film, (dict.fromkeys("xab", ramp(40, 20)), 2), {},
         "arrays: expected at most 2000 cells in all; got 2400: show fewer arrays"),
    ],
    ShapeError: [
        (matrices, ({"a": 1.0},), {},
         "arrays['a']: expected (columns,) or (rows, columns); got ()"),
        (matrices, ({"a": np.ones((1, 2, 3))},), {},
         "arrays['a']: expected (columns,) or (rows, columns); got (1, 2, 3); draw one head of"),
        (matrices, ({"a": np.ones(513)},), {},
         "arrays['a']: expected at most 512 rows and columns; got (513,); draw a part"),
        (LINES, ([], {"a": []}), {}, "x: expected (N,) with N >= 1; got (0,)"),
        (LINES, ([[1]], {"a": [1]}), {}, "x: expected (N,) with N >= 1; got (1, 1)"),
        (LINES, ([1, 2], {"a": [1]}), {}, "lines['a']: expected (N=2,) to match x; got (1,)"),
        (ARROWS, ({"x": np.ones(2)},), {}, "panels['x']: expected (n, 2) with n >= 1; got"),
        (weights_by_head, (WEIGHTS[0, 0], ROWS, KEYS), {},
         "weights: expected (H, T_q, T_k) or (B, H, T_q, T_k), no axis empty; got (3, 4)"),
        (weights_by_head, (WEIGHTS[0, :, :0], [], KEYS), {}, "no axis empty; got (2, 0, 4)"),
        (origin_film, (with_ramp(RAMP[0, 0, 0]), 2), {}, "a: expected an array of rank 1 to 4"),
        (origin_film, (with_ramp(RAMP[:0]), 2), {}, "no axis empty; got (0, 4, 8)"),
        (origin_film, (with_ramp(HEADS[None]), 2), {}, "; got (1, 1, 2, 4, 4)"),
    ],
    DTypeError: [
        (matrices, ({"a": ["x"]},), {}, "arrays['a']: expected an array of numbers or"),
        (matrices, ({"a": [1j]},), {}, "arrays['a']: expected an array of numbers or bool"),
        (matrices, ({"a": [[1], [1, 2]]},), {}, "arrays['a']: expected an array of number"),
        (LINES, ([1], {"a": ["x"]}), {}, "lines['a']: expected an array of numbers; got"),
        (LINES, ([1], {"a": [True]}), {}, "lines['a']: expected an array of numbers; got"),
        (origin_film, (with_ramp(np.array(["1"])), 2), {}, "a: expected an array of real numbers"),
        (origin_film, (with_ramp([[1], [2, 3]]), 2), {}, "a: expected an array of real numbers"),
        (origin_film, (with_ramp(RAMP > 3), 2), {}, "a: expected an array of real number"),
    ],
    MaskError: [
        (weights_by_head, (WEIGHTS, ROWS, KEYS), {"visible": np.ones((3, 4))}, "visible: "),
        (weights_by_head, (WEIGHTS, ROWS, KEYS), {"visible": np.ones((4, 4), bool)},
         "visible: expected a shape that broadcasts"),
    ],
}  # fmt: skip

# the first argument is made when its test runs: a trace takes a while
OF_TRACES = {
    ConfigError: [
        (shape_film, lambda: layer(2), {"sequence": 2}, "sequence: expected"),
        (shape_film, lambda: layer(2), {"sequence": -1}, "sequence: expected"),
        (shape_film, lambda: layer(2), {"sequence": 0.5}, "sequence: expected"),
        (shape_film, one, {"sequence": 1}, "sequence: expected 0, as no step has an axis B; got 1"),
        (shape_film, one, {"backward": True}, "trace: expected at least one backward step; got 1"),
        (shape_film, steps_of, {}, "trace: expected at least one forward step; got 0"),
        (shape_film, list, {}, "trace: expected the Trace of `with trace"),
        (shape_film, one, {"backward": "yes"}, "backward: expected True or False"),
        (shape_film, lambda: many("x"), {}, "at most 300 steps for one film; got 301"),
        (shape_film, one, {"columns": 0}, "columns: expected"),
        (shape_film, one, {"note": 1}, "note: expected a string; got 1"),
        (backward_film, lambda: layer(2), {"sequence": 2},
         "sequence: expected an index into the batch"),
        (backward_film, lambda: layer(2), {"sequence": -1},
         "sequence: expected an index into the batch"),
        (backward_film, list, {}, "trace: expected the Trace of"),
        (backward_film, one, {},
         "trace: expected at least one gradient, a step named d_...; got 1 forward"),
        (backward_film, lambda: many("d_x"), {}, "at most 300 steps for one film; got"),
        (backward_film, lambda: layer(2), {"reference": 3},
         "reference: expected a Trace or a mapping of names to arrays; got 3"),
        (backward_film, lambda: layer(2), {"reference": {"d_out": "text"}},
         "reference: expected d_out as an array of numbers"),
        (FILM, one, {"path": "film.gif"}, "path: expected a file that ends in .png; got"),
        (FILM, Trace, {}, "trace: expected at least one step"),
        (FILM, lambda: layer(2), {"sequence": 2}, "sequence: expected an index"),
        (FILM, lambda: layer(2), {"tokens": list("abcd")},
         "tokens: expected one label for each of T_q"),
        (stepper, str, {}, "trace: expected the Trace of `with trace"),
        (stepper, Trace, {}, "trace: expected at least one step; got none"),
        (stepper, lambda: of_size(33, 4), {},
         "expected T_q <= 32; got T_q=33 (q): record a shorter sequence, or draw it with draw"),
        (stepper, lambda: of_size(4, 33), {}, "expected T_k <= 32; got T_k=33"),
        (stepper, lambda: one("w", np.ones((1500, 1500)), "D F"), {},
         "at most 2,000,000 numbers for one page; got 2,250,000: record a smaller layer"),
        (stepper, lambda: many("x"), {}, "at most 300 steps for one stepper; got 301"),
        (stepper, lambda: one("x", np.ones(3, complex)), {},
         "expected arrays of real numbers; got x of complex128"),
        (stepper, lambda: layer(1), {"tokens": ["a"]},
         "tokens: expected one label for each of T_q (T_q=5); got ['a']"),
        (stepper, lambda: layer(1), {"tokens": "abcde"}, "tokens: expected one label"),
        (stepper, lambda: layer(1), {"source_tokens": ["a"]}, "source_tokens: expected"),
        (stepper, lambda: one("x", VECTOR, "T"), {"features": ["a"]},
         "features: expected one label for each of D (no step has that axis); got"),
        (stepper, lambda: layer(2), {"sequence": 2}, "0 <= sequence < B=2"),
        (stepper, lambda: layer(2), {"sequence": 1.0}, "sequence: expected an integer"),
        (stepper, recorded_rank_2, {"sequence": 1}, "sequence: expected 0"),
        *((backward_film, lambda: layer(2), {"reference": nothing}, "trace's (d_out, d_merged,")
          for nothing in ({"d_foo": VECTOR}, {}, one("q"))),
    ],
    ShapeError: [
        (shape_film, lambda: one("x", np.ones((3, 2))), {},
         "x: expected one axis name per axis of shape (3, 2)"),
        (backward_film, lambda: one("d_x", np.ones((3, 2))), {},
         "d_x: expected one axis name per axis"),
        (stepper, lambda: one("x", np.ones((2, 3)), "T"), {}, "x: expected one axis"),
    ],
}  # fmt: skip


def flat(table):
    return [(*case, error) for error, cases in table.items() for case in cases]


@pytest.mark.parametrize(("call", "given", "options", "message", "error"), flat(CASES))
def test_what_cannot_be_drawn_is_an_error(call, given, options, message, error):
    assert_refused(call, given, options, message, error)


@pytest.mark.parametrize(("call", "make", "options", "message", "error"), flat(OF_TRACES))
def test_what_cannot_be_shown_of_a_trace_is_an_error(call, make, options, message, error):
    assert_refused(call, [make()], options, message, error)


@pytest.mark.parametrize(
    "odd", [np.array(["a"]), np.array([None]), np.zeros(2, "m8[s]"), np.zeros(2, [("a", int)])]
)
def test_what_is_no_number_is_not_drawn(odd):
    message = "expected arrays of numbers; got odd of "
    assert_refused(shape_film, [one("odd", odd)], {}, message, ConfigError)
    with_gradient = steps_of(("odd", odd, "D"), ("d_odd", np.ones(odd.shape), "D"))
    assert_refused(backward_film, [with_gradient], {}, message, ConfigError)
