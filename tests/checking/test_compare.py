"""compare: right arrays pass in any style; wrong ones fail, and the finding says where."""

from collections import namedtuple

import numpy as np
import pytest

from mha_numpy.checking import agrees, compare
from mha_numpy.errors import ConfigError, DTypeError

Grads = namedtuple("Grads", "d_q d_k d_bias")


@pytest.fixture
def expected(rng):
    return rng.normal(size=(3, 4, 5))


def finding(actual, expected, **options):
    report = compare(actual, expected, **options)
    assert not report
    (row,) = (row for row in report.rows if not row.passed)
    assert row.finding in str(report)
    return row.finding


RIGHT = {
    "itself": lambda x: x,
    "a copy in Fortran order": np.asfortranarray,
    "a view": lambda x: x.swapaxes(0, 1).copy().swapaxes(0, 1),
    "rounded otherwise": lambda x: x * (1 + 1e-15),
    "narrower": lambda x: x.astype(np.float32),
}


@pytest.mark.parametrize("style", RIGHT)
def test_right_in_any_style(style, expected):
    report = compare(RIGHT[style](expected), expected)
    assert report
    assert report.rows[0].finding == "all 60 numbers agree"


def one_changed(change, *at):
    def changed(x):
        x = x.copy()
        x[at] = change(x[at])
        return x

    return changed


class Unspeakable:
    def __repr__(self):
        raise RuntimeError


def deep(x):
    for _ in range(5000):
        x = [x]
    return x


Pair = namedtuple("Pair", "out weights")
ONE_OFF = one_changed(lambda number: 1.001 * number, 2, 1, 3)
ONE_NAN = one_changed(lambda number: np.nan, 1, 0, 2)
WRONG = {
    "nothing": (lambda x: None, "not written yet: the function returned None"),
    "dots": (lambda x: ..., "not written yet: the function returned Ellipsis"),
    "a text": (lambda x: "abc", "expected an array (3, 4, 5) of float64; got 'abc'"),
    "integers": (lambda x: x.astype(int), "expected float64; got int64"),
    "transposed": (
        lambda x: x.swapaxes(1, 2),
        "expected shape (3, 4, 5); got (3, 5, 4): the last two axes are swapped",
    ),
    "reshaped": (
        lambda x: x.reshape(12, 5),
        "expected shape (3, 4, 5); got (12, 5): the same number of numbers, other axes",
    ),
    "cut": (lambda x: x[:2], "expected shape (3, 4, 5); got (2, 4, 5)"),
    "one off": (ONE_OFF, "1 of 60 numbers differ, most at [2, 1, 3]"),
    "one NaN": (ONE_NAN, "1 of 60 numbers differ, most at [1, 0, 2]: nan, expected "),
    "a factor": (lambda x: 2.5 * x, "each is 2.5 times the expected number"),
    "a sign": (lambda x: -x, "each is -1 times the expected number"),
    "zeros": (np.zeros_like, "all are 0"),
    "a class": (lambda x: Pair, "expected an array (3, 4, 5) of float64; got <class"),
    "masked": (lambda x: np.ma.array(x + 100, mask=True), "got a masked one: return x.filled(0)"),
    "objects": (lambda x: x.astype(object), "expected float64; got object"),
    "strings": (lambda x: x.astype(str), "expected float64; got <U"),
    "a generator": (lambda x: (row for row in x), "of float64; got <generator object"),
    "a list": (
        lambda x: x.tolist(),
        "expected an array (3, 4, 5) of float64; got a list of 3: np.array(x) makes one",
    ),
    "a failing repr": (lambda x: Unspeakable(), "of float64; got an object of type Unspeakable"),
    "deep lists": (deep, "of float64; got a list of 1"),
    "a huge integer": (lambda x: 10**400, "of float64; got 1000"),
    "huge": (lambda x: np.where(x > 0, 1e308, -1e308), "60 of 60 numbers differ"),
    "a matrix": (lambda x: np.matrix(x[0]), "expected shape (3, 4, 5); got (4, 5)"),
    "wide": (lambda x: np.where(x > 0, x, np.longdouble("1e4000")), "numbers differ, most at"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_wrong_ones_fail_and_say_where_in_a_line(kind, expected):
    change, said = WRONG[kind]
    told = finding(change(expected), expected)
    assert said in told
    assert "\n" not in told
    report = compare({"a": change(expected), "b\nc": expected}, {"a": expected, "d": expected})
    assert [row.passed for row in report.rows] == [False] * 3
    assert len(str(report).splitlines()) == 3 + 3


def test_a_narrower_dtype_is_named_where_it_alone_is_to_blame(expected):
    narrow = expected.astype(np.float32)
    assert "; right to the precision of float32, but float64 is expected" in finding(
        narrow, expected, tolerance=1e-12
    )
    assert "each is 2 times" in finding(2 * narrow, expected, tolerance=1e-12)


def test_no_factor_is_named_where_there_is_none(expected):
    assert "times" not in finding(expected + 1, expected)
    assert "times" not in finding(np.where(expected > 0, 2.0, 1.0) * expected, expected)


def test_infinities_agree_with_themselves_alone():
    expected = np.array([-np.inf, 1.0, np.nan])
    assert compare(expected.copy(), expected)
    assert "at [0]: 0, expected -inf" in finding(np.array([0.0, 1.0, np.nan]), expected)
    assert "at [2]: 3, expected nan" in finding(np.array([-np.inf, 1.0, 3.0]), expected)
    assert "at [1]: inf, expected 1" in finding(np.array([-np.inf, np.inf, np.nan]), expected)
    assert "2 of 3 numbers differ, most at [2]" in finding(np.array([-np.inf, 2, 3.0]), expected)


def test_truths_are_values_and_no_numbers():
    assert "1 of 2 values differ, most at [1]: False" in finding(
        np.array([True, False]), np.ones(2, bool)
    )


def test_tolerance_is_relative_to_the_largest(expected):
    small = np.abs(expected).max() * 1e-3
    assert not compare(expected + small, expected)
    assert compare(expected + small, expected, tolerance=1.001e-3)
    assert not compare(expected + small, expected, tolerance=0.999e-3)


def test_a_zero_gradient_may_hold_rounding_errors_of_its_set(expected):
    assert compare(np.zeros(3), np.zeros(3))
    assert "3 of 3" in finding(np.full(3, 1e-9), np.zeros(3))
    noise = np.full(3, 1e-17)
    assert compare({"d_w": expected, "d_b": -noise}, {"d_w": expected, "d_b": noise})
    assert not compare({"d_w": expected, "d_b": noise * 1e9}, {"d_w": expected, "d_b": noise})


def test_named_results_by_name_and_by_position(rng):
    q, k = rng.normal(size=(2, 3, 4))
    grads = Grads(q, k, None)
    assert compare(grads, grads)
    assert compare(tuple(grads), grads)
    assert compare({"d_q": grads.d_q, "d_k": grads.d_k}, grads)
    report = compare(grads._replace(d_k=grads.d_k / 2), grads)
    assert [row.name for row in report.rows if not row.passed] == ["d_k"]
    assert report.rows[1].finding.endswith("each is 0.5 times the expected number")
    assert finding((*grads, q), grads) == "expected d_q, d_k, d_bias; got a tuple of 4"
    assert [row.name for row in compare((q,), grads).rows if not row.passed] == ["d_k"]
    assert finding({**grads._asdict(), "d_x": q}, grads) == "no array of this name was expected"
    assert finding(q, grads).startswith("expected d_q, d_k, d_bias; got an array")
    assert not any(row.passed for row in compare(None, grads).rows)


def test_trees_within_trees(expected):
    wanted = {"params": {"w": expected, "b": None}, "out": (expected, 2 * expected)}
    assert compare({"params": {"w": expected}, "out": [expected, 2 * expected]}, wanted)
    unwritten = compare({"params": None, "out": ...}, wanted)
    assert [row.name for row in unwritten.rows] == ["params.w", "out[0]", "out[1]"]
    assert all("not written yet" in row.finding for row in unwritten.rows)
    assert finding({"out": (expected, 2 * expected)}, wanted).startswith("missing")


def test_integers_must_be_equal():
    assert compare(np.arange(4), np.arange(4))
    assert "at [3]: 4, expected 3" in finding(np.array([0, 1, 2, 4]), np.arange(4))


def test_single_numbers():
    assert compare(np.float64(2.0), np.float64(2.0)).rows[0].finding == "the number agrees"
    assert finding(np.float64(2.5), np.float64(2.0)) == "2.5, expected 2"
    assert finding(np.int64(17641), np.int64(17640)) == "17641, expected 17640"


def test_python_numbers_stand_for_arrays_without_axes(expected):
    wanted = {"loss": 2.0, "grad": expected}
    assert compare({"loss": 2.0, "grad": expected}, wanted)
    assert compare({"loss": np.float32(2.0), "grad": expected}, wanted)
    assert finding({"loss": 2.5, "grad": expected}, wanted).endswith("2.5, expected 2")
    assert finding({"loss": 2, "grad": expected}, wanted) == "expected float64; got int64"


def test_numbers_near_the_limits_of_their_dtype():
    for dtype in (np.float16, np.float32, np.float64, np.longdouble):
        most = np.full(2, np.finfo(dtype).max)
        assert compare(most, most.copy())
        assert "2 of 2 numbers differ" in finding(-most, most)
        least = np.full(2, np.finfo(dtype).smallest_subnormal)
        assert "2 of 2 numbers differ" in finding(most, least)
    most = np.array([2**63 - 1, 2**63 - 2])
    assert "1 of 2 numbers differ, most at [1]" in finding(np.full(2, 2**63 - 1), most)
    assert "at [0]: False, expected True" in finding(np.zeros(2, bool), np.array([True, False]))


def test_html_marks_the_bad_rows(expected):
    report = compare(-expected, expected)
    assert repr(report) == str(report) == report.table().to_text()
    assert "border-left" in compare(-expected, expected)._repr_html_()
    assert "border-left" not in compare(expected, expected)._repr_html_()


def test_wrong_use():
    with pytest.raises(ConfigError, match="expected: expected at least one array; got 3"):
        compare(1.0, 3)
    for odd in (np.array(["a"]), np.array([None]), np.datetime64("2024-01-01"), "text"):
        with pytest.raises(DTypeError, match=r"expected\['b'\]: expected an array of numbers or"):
            compare(np.ones(2), {"a": np.ones(2), "b": odd})
    with pytest.raises(ConfigError, match="tolerance"):
        compare(np.ones(2), np.ones(2), tolerance=0)


def test_names_may_be_spelled_otherwise():
    expected = {"d_q": np.ones(2), "d_k": np.zeros(3)}
    assert compare({"dQ": np.ones(2), "dk": np.zeros(3)}, expected)
    report = compare({"grad_q": np.ones(2), "dk": np.zeros(3)}, expected)
    assert [row.name for row in report.rows if not row.passed] == ["d_q", "grad_q"]


@pytest.mark.parametrize(
    ("actual", "trouble"),
    [
        (None, "unwritten"), ("text", "type"), (np.ones(3, int), "type"), (np.ones(2), "shape"),
        (np.full(3, np.nan), "finite"), (np.zeros(3), "values"), (np.ones(3), ""),
    ],
)  # fmt: skip
def test_the_kind_of_trouble(actual, trouble):
    (row,) = compare(actual, np.ones(3)).rows
    assert row.trouble == trouble
    assert row.passed == (not trouble)
    assert agrees(actual, np.ones(3)) == row.passed
