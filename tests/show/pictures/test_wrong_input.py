"""What pictures and pages cannot show: a typed error in one line that names the argument."""

from functools import cache, partial

import numpy as np
import pytest

from mha_numpy.checking.tracing import Trace, trace
from mha_numpy.core import RopeOptions, attention_forward
from mha_numpy.errors import ConfigError, DTypeError, MaskError, ShapeError
from mha_numpy.show.page import stepper
from mha_numpy.show.pictures import (
    Picture,
    arrows,
    backward_film,
    bar_chart,
    film,
    line_chart,
    matrices,
    origin_film,
    save_figure,
    shape_film,
    sharing_map,
    wavelength_chart,
    weights_by_head,
)
from mha_numpy.show.scenes import story_of
from tests.show.pictures.helpers import ramp, recorded, recorded_rank_2, steps_of

NAN, INF = np.nan, np.inf
ARROWS, BARS = partial(arrows, title="t"), partial(bar_chart, title="t")
LINES = partial(line_chart, title="t", x_label="x", y_label="y")
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


def no_way_back():
    q = np.ones((1, 1, 2, 2))
    with trace() as t:
        attention_forward(q, q, q)
    return t


def with_ramp(array):
    return {"x": RAMP, "a": array}


CASES = {
    ConfigError: [
        (lambda: save_figure("film", "x"), "fig: expected a Picture of"),
        (lambda: save_figure(Picture([], alt=""), ""),
         "stem: expected a path that ends in a file's name"),
        (lambda: matrices({}), "arrays: expected a Mapping of at least one name to its array"),
        (lambda: matrices([EYE]), "arrays: expected a Mapping of at least one name"),
        (lambda: matrices({"a": EYE}, row_labels="abc"),
         "row_labels: expected 2 of them for arrays['a']; got 3"),
        (lambda: matrices({"a": EYE, "b": np.eye(3)}, column_labels="ab"),
         "column_labels: expected 3 of them for arrays['b']; got 2"),
        (lambda: matrices({"a": np.eye(1)}, row_labels=[]), "row_labels: expected 1 of"),
        (lambda: matrices({"a": EYE}, row_labels=3), "row_labels: expected a list of"),
        (lambda: matrices({"a": EYE}, shared=1), "shared: expected True or False; got 1"),
        (lambda: matrices({"a": EYE}, meaning="yes"), "meaning: expected two strings"),
        (lambda: matrices({"a": EYE}, meaning=("yes", 0)), "meaning: expected a string"),
        (lambda: matrices({"a": EYE}, title=None), "title: expected a string; got None"),
        (lambda: LINES([1, 1], {"a": [1, 2]}), "x: expected finite numbers that increase"),
        (lambda: LINES([1, NAN], {"a": [1, 2]}), "x: expected finite numbers"),
        (lambda: LINES([-1.7e308, 1.7e308], {"a": [1, 2]}), "x: expected numbers up to 1e+300"),
        (lambda: LINES([1], {}), "lines: expected a Mapping of at least one name"),
        (lambda: LINES([1], [1]), "lines: expected a Mapping of at least one name"),
        (lambda: LINES([1], {name: [1] for name in "abcdefghi"}),
         "lines: expected at most 8; got 9"),
        (lambda: LINES([1], {"a": [INF]}), "lines['a']: expected numbers up to 1e+300"),
        (lambda: LINES([0], {"a": [1]}, log_x=True), "x: expected numbers > 0 with log_x=True"),
        (lambda: LINES([1], {"a": [0]}, log_y=True), "lines['a']: expected numbers > 0 with"),
        (lambda: LINES([1], {"a": [0]}, log_y=1), "log_y: expected True or False; got 1"),
        (lambda: LINES([1], {"a": [0]}, title=1), "title: expected a string; got 1"),
        (lambda: LINES([1], {"a": [0]}, x_label=1), "x_label: expected a string; got 1"),
        (lambda: BARS({}), "bars: expected a Mapping of at least one name to its number; got {}"),
        (lambda: BARS([1]), "bars: expected a Mapping of at least one name to its number; got [1]"),
        (lambda: BARS({"a": -1}), "bars['a']: expected a number >= 0; got -1"),
        (lambda: BARS({"a": NAN}), "bars['a']: expected a finite number; got nan"),
        (lambda: BARS({"a": "1"}), "bars['a']: expected a finite number; got '1'"),
        (lambda: BARS({"a": 1}, title=None), "title: expected a string; got None"),
        (lambda: BARS({"a": 1}, unit=1), "unit: expected a string; got 1"),
        (lambda: ARROWS({}), "panels: expected a Mapping"),
        (lambda: ARROWS({"x": np.array([[NAN, 1]])}), "expected finite numbers"),
        (lambda: ARROWS({"x": np.ones((3, 2))}, labels=["a"]), "labels: expected 3, one for"),
        (lambda: wavelength_chart({}, 8), "rotations: expected a mapping of name to RopeOptions; "),
        (lambda: wavelength_chart({"a": 5}, 8), "rope: expected RopeOptions(...) or None; got 5"),
        (lambda: wavelength_chart({"a": RopeOptions(), "b": RopeOptions(rotary_dim=4)}, 8),
         "rotations['b']: expected as many pairs as the first has, at least 1; got 2 for 4"),
        (lambda: sharing_map(6, 4), "num_kv_heads: expected a divisor of num_heads=6; got 4"),
        (lambda: sharing_map(0, 1), "num_heads: expected an integer >= 1; got 0"),
        (lambda: sharing_map(4, 2.0), "num_kv_heads: expected an integer; got 2.0"),
        (lambda: weights_by_head(WEIGHTS, 3), "query_labels: expected a list of strings; got 3"),
        (lambda: weights_by_head(WEIGHTS, ROWS[:2], KEYS),
         "query_labels: expected T_q=3 of them; got 2"),
        (lambda: weights_by_head(WEIGHTS, ROWS, ROWS), "key_labels: expected T_k=4 of them; got 3"),
        (lambda: weights_by_head(WEIGHTS, ROWS), "key_labels: expected T_k=4 of them; got 3"),
        (lambda: weights_by_head(WEIGHTS - 3.25, ROWS, KEYS),
         "weights: expected numbers between 0 and 1; got -3 to"),
        (lambda: weights_by_head(WEIGHTS + np.array([0, 0, 0, 1]), ROWS, KEYS),
         "weights: expected numbers between 0 and 1; got 0.25 to 1.25"),
        (lambda: weights_by_head(WEIGHTS, ROWS, KEYS, head_names=["one"]),
         "head_names: expected H=2 of them; got 1"),
        (lambda: weights_by_head(WEIGHTS, ROWS, KEYS, heads=[0]),
         "heads: expected H=2 of them; got 1"),
        (lambda: origin_film({}, 2),
         "arrays: expected a Mapping of at least one name to its array"),
        (lambda: origin_film([RAMP], 2), "arrays: expected a Mapping"),
        (lambda: origin_film({"x": RAMP + 1}, 2),
         "x: expected the first array to be the ramp np.arange"),
        (lambda: origin_film({"x": HEADS}, 2), "x: expected the first array to be the ramp"),
        (lambda: origin_film({"x": RAMP}, 3), "num_heads: expected a divisor of D=8; got 3"),
        (lambda: origin_film({"x": RAMP}, 0), "num_heads: expected an integer >= 1; got 0"),
        (lambda: origin_film(with_ramp(RAMP[0] + 0.5), 2),
         "a: expected numbers of the ramp, 0 to 31; got 0.5 at [0, 0]: this picture follows "
         "moved cells; use shape_film for computed ones"),
        (lambda: origin_film(with_ramp(np.array([31, 32])), 2), "; got 32 at [1]"),
        (lambda: origin_film(with_ramp(np.array([-1])), 2), "; got -1 at [0]"),
        (lambda: origin_film(with_ramp(np.array([3.0, NAN])), 2), "; got nan at [1]"),
        (lambda: origin_film(with_ramp(np.array([INF])), 2), "; got inf at [0]"),
        (lambda: origin_film(with_ramp(np.array([1 + 1e-8])), 2), "; got 1.00000001 at [0]"),
        (lambda: origin_film({"x": ramp(65, 2)}, 2), "x: expected at most 64 rows and columns"),
        (lambda: origin_film({"x": ramp(2, 65)}, 5), "x: expected at most 64 rows and columns"),
        (lambda: origin_film({"x": ramp(3, 20, 40)}, 2),
         "x: expected at most 64 rows and columns, and 2000 cells; got (3, 20, 40)"),
        (lambda: shape_film(layer(2), sequence=2), "sequence: expected"),
        (lambda: shape_film(layer(2), sequence=-1), "sequence: expected"),
        (lambda: shape_film(layer(2), sequence=0.5), "sequence: expected"),
        (lambda: shape_film(one(), sequence=1),
         "sequence: expected 0, as no step has an axis B; got 1"),
        (lambda: shape_film(steps_of()), "trace: expected at least one step of forward; got 0"),
        (lambda: shape_film([]), "trace: expected the Trace of `with trace"),
        (lambda: shape_film(many("x")), "at most 300 steps for one film; got 301"),
        (lambda: shape_film(one(), note=1), "note: expected a string; got 1"),
        (lambda: backward_film(layer(2), sequence=2), "sequence: expected an index into the batch"),
        (lambda: backward_film(layer(2), sequence=-1),
         "sequence: expected an index into the batch"),
        (lambda: backward_film([]), "trace: expected the Trace of"),
        (lambda: backward_film(one()),
         "trace: expected at least one gradient, a step named d_...; got 1 others"),
        (lambda: backward_film(many("d_x")), "at most 300 steps for one film; got"),
        (lambda: backward_film(layer(2), reference=3),
         "reference: expected a Trace or a mapping of names to arrays; got 3"),
        (lambda: film(layer(1)), "story: expected a Story of story_of(trace, ...); got"),
        (lambda: film(story_of(no_way_back()), back=True),
         "back: expected a trace with a backward"),
        (lambda: stepper(""), "trace: expected the Trace of `with trace"),
        (lambda: stepper(Trace()), "trace: expected at least one step of forward; got 0"),
        (lambda: stepper(of_size(33, 4)),
         "expected T_q <= 32; got T_q=33 (q): take fewer tokens, or draw a shape film"),
        (lambda: stepper(of_size(4, 33)), "expected T_k <= 32; got T_k=33"),
        (lambda: stepper(one("w", np.ones((1500, 1500)), "D F")),
         "at most 2,000,000 numbers in a page; got 2,250,000: take a smaller layer"),
        (lambda: stepper(many("x")), "at most 300 steps for one stepper; got 301"),
        (lambda: stepper(one("x", np.ones(3, complex))),
         "expected arrays of real numbers; got x of complex128"),
        (lambda: stepper(layer(1), tokens=["a"]),
         "tokens: expected T_q=5 of them; got 1"),
        (lambda: stepper(layer(1), tokens=5), "tokens: expected a list of strings; got 5"),
        (lambda: stepper(layer(1), source_tokens=["a"]), "source_tokens: expected"),
        (lambda: stepper(one("x", VECTOR, "T"), features=["a"]),
         "features: expected D=0 of them; got 1"),
        (lambda: stepper(layer(2), sequence=2), "0 <= sequence < B=2"),
        (lambda: stepper(layer(2), sequence=1.0), "sequence: expected an integer"),
        (lambda: stepper(recorded_rank_2(), sequence=1), "sequence: expected 0"),
        *((lambda nothing=nothing: backward_film(layer(2), reference=nothing),
           "trace's (d_out, d_merged,") for nothing in ({"d_foo": VECTOR}, {}, one("q"))),
    ],
    ShapeError: [
        (lambda: matrices({"a": 1.0}),
         "arrays['a']: expected (columns,) or (rows, columns); got ()"),
        (lambda: matrices({"a": np.ones((1, 2, 3))}),
         "arrays['a']: expected (columns,) or (rows, columns); got (1, 2, 3); draw one head of"),
        (lambda: matrices({"a": np.ones(513)}),
         "arrays['a']: expected at most 512 rows and columns; got (513,); draw a part"),
        (lambda: LINES([], {"a": []}), "x: expected (N,) with N >= 1; got (0,)"),
        (lambda: LINES([[1]], {"a": [1]}), "x: expected (N,) with N >= 1; got (1, 1)"),
        (lambda: LINES([1, 2], {"a": [1]}),
         "lines['a']: expected (N=2,) or (runs, N=2) to match x; got (1,)"),
        (lambda: LINES([1, 2], {"a": np.ones((2, 3, 2))}),
         "lines['a']: expected (N=2,) or (runs, N=2) to match x; got (2, 3, 2)"),
        (lambda: LINES([1, 2], {"a": np.ones((0, 2))}),
         "lines['a']: expected (N=2,) or (runs, N=2) to match x; got (0, 2)"),
        (lambda: ARROWS({"x": np.ones(2)}), "panels['x']: expected (n, 2) with n >= 1; got"),
        (lambda: weights_by_head(WEIGHTS[0, 0], ROWS, KEYS),
         "weights: expected (H, T_q, T_k) or (B, H, T_q, T_k), no axis empty; got (3, 4)"),
        (lambda: weights_by_head(WEIGHTS[0, :, :0], [], KEYS), "no axis empty; got (2, 0, 4)"),
        (lambda: origin_film(with_ramp(RAMP[0, 0, 0]), 2), "a: expected an array of rank 1 to 4"),
        (lambda: origin_film(with_ramp(RAMP[:0]), 2), "no axis empty; got (0, 4, 8)"),
        (lambda: origin_film(with_ramp(HEADS[None]), 2), "; got (1, 1, 2, 4, 4)"),
        (lambda: shape_film(one("x", np.ones((3, 2)))),
         "x: expected one axis name per axis of shape (3, 2)"),
        (lambda: backward_film(one("d_x", np.ones((3, 2)))),
         "d_x: expected one axis name per axis"),
        (lambda: stepper(one("x", np.ones((2, 3)), "T")), "x: expected one axis"),
    ],
    DTypeError: [
        (lambda: backward_film(layer(2), reference={"d_out": "text"}),
         "expected['d_out']: expected an array of numbers"),
        (lambda: matrices({"a": ["x"]}), "arrays['a']: expected an array of numbers or"),
        (lambda: matrices({"a": [1j]}), "arrays['a']: expected an array of numbers or bool"),
        (lambda: matrices({"a": [[1], [1, 2]]}), "arrays['a']: expected an array of number"),
        (lambda: LINES([1], {"a": ["x"]}), "lines['a']: expected an array of numbers; got"),
        (lambda: LINES([1], {"a": [True]}), "lines['a']: expected an array of numbers; got"),
        (lambda: origin_film(with_ramp(np.array(["1"])), 2),
         "arrays['a']: expected an array of numbers"),
        (lambda: origin_film(with_ramp([[1], [2, 3]]), 2), "arrays['a']: expected an array of"),
        (lambda: origin_film(with_ramp(RAMP > 3), 2), "arrays['a']: expected an array of numbers"),
    ],
    MaskError: [
        (lambda: weights_by_head(WEIGHTS, ROWS, KEYS, visible=np.ones((3, 4))), "visible: "),
        (lambda: weights_by_head(WEIGHTS, ROWS, KEYS, visible=np.ones((4, 4), bool)),
         "visible: expected a shape that broadcasts"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("error", "draw", "message"),
    [(error, *case) for error, cases in CASES.items() for case in cases],
)
def test_what_cannot_be_drawn_is_an_error(error, draw, message):
    with pytest.raises(error) as raised:
        draw()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "odd", [np.array(["a"]), np.array([None]), np.zeros(2, "m8[s]"), np.zeros(2, [("a", int)])]
)
def test_what_is_no_number_is_not_drawn(odd):
    with pytest.raises(ConfigError, match="expected arrays of numbers; got odd of "):
        shape_film(one("odd", odd))
    with pytest.raises(ConfigError, match="expected arrays of numbers; got odd of "):
        backward_film(steps_of(("odd", odd, "D"), ("d_odd", np.ones(odd.shape), "D")))


def test_as_many_as_are_named_fit():
    assert stepper(of_size(32, 32)).steps == 6
    assert stepper(one("w", np.ones((500, 500)), "D F")).steps == 1
