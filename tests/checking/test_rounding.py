"""Formats of floats, and traces that are computed again with rounded steps."""

import math
from fractions import Fraction

import numpy as np
import pytest

from mha_numpy import attention_backward, attention_forward, trace
from mha_numpy.checking.error_bounds import error_bounds
from mha_numpy.checking.intervals import Interval
from mha_numpy.checking.replay import one_by_one, replay
from mha_numpy.checking.rounding import FORMATS, round_to
from mha_numpy.core import rms_norm_backward, rms_norm_forward, softmax_forward
from mha_numpy.errors import ConfigError
from mha_numpy.layers import gelu_forward
from mha_numpy.steps import step as record
from mha_numpy.variants import linear_attention_backward, linear_attention_forward
from tests.compare import Tolerance, assert_close
from tests.core.configurations import attention_configuration
from tests.sweeps import sweep

NAMES = {
    "bfloat16": "bfloat16", "float16": "float16", "e5m2": "float8_e5m2", "e4m3": "float8_e4m3fn"
}  # fmt: skip


def every_number(dtype):
    """Return all numbers of a format of 8 or 16 bits, in float64."""
    bits = np.arange(2 ** (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return bits.view(dtype).astype(np.float64)


@pytest.fixture(params=NAMES)
def narrow(request):
    """Return a format's name here, and its dtype."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    name = NAMES[request.param]
    return request.param, np.dtype(getattr(ml_dtypes, name, None) or name)


def test_a_number_of_the_format_stays(narrow):
    name, dtype = narrow
    numbers = every_number(dtype)
    np.testing.assert_array_equal(round_to(numbers, name), numbers)
    finite = numbers[np.isfinite(numbers)]
    assert finite.max() == FORMATS[name].largest
    assert (np.signbit(round_to(numbers, name)) == np.signbit(numbers))[~np.isnan(numbers)].all()


def test_between_two_numbers_the_nearer_one(narrow):
    """All middles of neighbours, and what is a little below and above them."""
    name, dtype = narrow
    finite = np.unique(every_number(dtype)[np.isfinite(every_number(dtype))])
    middle = (finite[:-1] + finite[1:]) / 2
    below, above = np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf)
    np.testing.assert_array_equal(round_to(below, name), finite[:-1])
    np.testing.assert_array_equal(round_to(above, name), finite[1:])
    # a middle has one binary digit more, so float32 holds it, and is rounded to even
    exact = middle.astype(np.float32).astype(dtype).astype(np.float64)
    np.testing.assert_array_equal(round_to(middle, name), exact)


def test_beyond_the_largest(narrow):
    name, dtype = narrow
    numbers = FORMATS[name].largest * np.array([1.01, 1.1, 2, 100]) * np.array([[1], [-1]])
    with np.errstate(over="ignore"):
        expected = numbers.astype(np.float32).astype(dtype).astype(np.float64)
    np.testing.assert_array_equal(round_to(numbers, name), expected)


def test_float32_and_float64(rng):
    x = rng.normal(size=1000) * 10.0 ** rng.integers(-50, 40, 1000)
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(round_to(x, "float32"), x.astype(np.float32))
    assert np.array_equal(round_to(x, "float64"), x)


def test_tf32_is_float32_with_the_digits_of_float16(rng):
    x = rng.uniform(1, 2, 1000)
    np.testing.assert_array_equal(round_to(x, "tf32"), round_to(x, "float16"))
    assert round_to(np.array(1e30), "tf32") == pytest.approx(1e30, rel=2**-11)


@pytest.mark.parametrize("name", FORMATS)
def test_the_error_is_at_most_the_unit(name, rng):
    x = rng.uniform(1, 4, 10_000)
    off = np.abs(round_to(x, name) / x - 1).max()
    unit = FORMATS[name].unit
    assert off <= unit
    assert off > unit / 4 or name == "float64"


def test_a_scale_moves_the_range():
    assert np.isinf(round_to(np.array(70000.0), "float16"))
    assert round_to(np.array(70000.0), "float16", scale=0.5) == 70016
    assert np.isinf(round_to(np.array(np.inf), "float16", scale=0.5))


def test_wrong_arguments():
    with pytest.raises(ConfigError, match="name: expected one of"):
        round_to(np.ones(2), "float8")
    with pytest.raises(ConfigError, match="scale: expected a number > 0"):
        round_to(np.ones(2), "float16", scale=0.0)
    with trace() as t:
        attention_forward(*np.ones((3, 2, 4)))
    with pytest.raises(ConfigError, match="formats: expected names of steps.*'score'"):
        replay(t, {"score": "float16"})


def traced(seed):
    inputs, options = attention_configuration(seed)
    with trace() as t:
        out, cache = attention_forward(**inputs, **options)
        attention_backward(np.random.default_rng(seed).normal(size=out.shape), cache)
    return t


@pytest.mark.parametrize("seed", range(30))
def test_without_rounding_a_trace_is_computed_again(seed):
    t = traced(seed)
    found = replay(t, {})
    assert list(found) == [step.name for step in t]
    for step in t:
        assert_close(found[step.name], step.array, name=step.name)


def test_a_rounded_step_reaches_the_later_ones_only():
    t = traced(0)
    found, plain = replay(t, {"weights": "bfloat16"}), replay(t, {})
    for name in ("scores", "q", "d_out"):
        if name in found:
            assert np.array_equal(found[name], plain[name])
    assert np.array_equal(found["weights"], round_to(plain["weights"], "bfloat16"))
    assert not np.array_equal(found["heads"], plain["heads"])
    assert not np.array_equal(found["d_v"], plain["d_v"])


def test_an_input_can_be_rounded():
    t = traced(0)
    found = replay(t, {"q": "e4m3"}, scales={"q": 8.0})
    assert np.array_equal(found["q"], round_to(t["q"], "e4m3", scale=8.0))
    assert not np.array_equal(found["scores"], t["scores"])


# --- bounds of errors -----------------------------------------------------------------------------


def random_formats(t, rng):
    """Return formats of some of the steps and inputs whose numbers are floats."""
    formats = list(FORMATS)
    floats = [step.name for step in t if step.array.dtype.kind == "f"]
    return {name: str(rng.choice(formats)) for name in floats if rng.random() < 0.7}


def excess(found, t, bounds):
    """Return the largest error of each step, as a share of its bound."""
    shares = {}
    for step in t:
        if step.name in bounds and step.array.size:
            finite = np.isfinite(step.array) & np.isfinite(found[step.name])
            off = np.abs(np.where(finite, found[step.name] - step.array, 0))
            assert (finite | (found[step.name] == step.array) | np.isinf(bounds[step.name])
                    | np.isnan(step.array)).all(), step.name  # fmt: skip
            shares[step.name] = float((off / np.maximum(bounds[step.name], 1e-300)).max())
    return shares


@pytest.mark.parametrize("seed", sweep(range(240), 40))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf, where a format overflows
def test_no_error_is_above_its_bound(seed):
    t, rng = traced(seed), np.random.default_rng(seed)
    formats, sums = random_formats(t, rng), str(rng.choice([*FORMATS]))
    shares = excess(replay(t, formats, sums=sums), t, error_bounds(t, formats, sums=sums))
    assert max(shares.values()) <= 1, shares


def test_bounds_are_not_far_above_the_errors(rng):
    """In the median over random problems, of out and of each gradient."""
    ratios = {name: [] for name in ("heads", "d_q", "d_k", "d_v")}
    for _ in range(20):
        q, k, v, d_out = rng.normal(size=(4, 2, 2, 32, 16))
        with trace() as t:
            _, cache = attention_forward(q, k, v)
            attention_backward(d_out, cache)
        formats = {step.name: "bfloat16" for step in t if step.equation}
        bounds, found = error_bounds(t, formats), replay(t, formats)
        for name, of_name in ratios.items():
            of_name.append(bounds[name].max() / np.abs(found[name] - t[name]).max())
    medians = {name: float(np.median(x)) for name, x in ratios.items()}
    assert min(medians.values()) > 1
    assert max(medians.values()) < 50, medians


def test_bounds_by_hand():
    """Scores of 2 and 0, the first off by at most 2 / 256: its weight is e^s / (e^s + 1)."""
    q, k, v = np.array([[1.0]]), np.array([[2.0], [0.0]]), np.array([[1.0], [0.0]])
    with trace() as t:
        attention_forward(q, k, v, scale=1.0)
    bounds = error_bounds(t, {"scores": "bfloat16"})
    assert_close(bounds["scores"], [[2 / 256, 0]], Tolerance(0, 1e-9))
    weight, least = (1 / (1 + np.exp(-score)) for score in (2.0, 2.0 - 2 / 256))
    assert_close(bounds["heads"], [[weight - least]], Tolerance(0, 1e-9))


def bounds_of_sums(scores, name):
    """Return bound and error of softmax, if its sums are added up in a format."""
    with trace() as t:
        softmax_forward(np.array(scores))
    off = np.abs(replay(t, {}, sums=name)["weights"] - t["weights"])
    return error_bounds(t, {}, sums=name)["weights"], off


def test_bounds_of_sums_by_hand():
    """Four ones, rounded four times, lose at most 4 / 256, and three numbers gain at most 3 / 8.

    The sum of the three is at least 7 / 8, for its first number is 1: that is the nearer end.
    """
    bounds, _ = bounds_of_sums(np.zeros(4), "bfloat16")
    assert_close(bounds, np.full(4, 1 / (4 - 4 * 4 / 256) - 1 / 4), Tolerance(0, 1e-9))
    powers = np.exp([0.0, -3.0, -3.0])
    bounds, off = bounds_of_sums([0.0, -3.0, -3.0], "e5m2")
    weights = powers / powers.sum()
    assert_close(bounds, weights - weights / (1 + 3 / 8), Tolerance(0, 1e-9))
    assert (bounds > powers / (7 / 8) - weights).all()
    assert (off <= bounds).all()


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32"])
def test_bounds_of_a_sum_that_stops(name):
    """However many numbers there are, a share of their sum stays below 1, or nearly."""
    bounds, off = bounds_of_sums(np.zeros(5000), name)
    assert (off <= bounds).all()
    assert (bounds <= 1 / (1 - FORMATS[name].unit)).all()
    assert name != "float32" or (bounds < 1e-3 / 5000).all()


def test_bounds_of_every_kind_of_sum(rng):
    """Of sums, means and products, with summands of both signs."""
    x, y = rng.normal(size=(6, 50)), rng.normal(size=(50, 3))
    kinds = {
        "one": "x.sum(axis=-1)",
        "all": "x.sum()",
        "mean": "x.mean(axis=0, keepdims=True)",
        "product": "x @ y",
        "selected": "np.where(x.ndim == 2, x, 0).sum()",
        "moved": "x.reshape(3, 100).sum()",
        "turned": "x.T.sum()",
        "part": "x[0].sum()",
        "of one": "(x[0, [0]] * x[0, [0]]).sum()",
        "constant": "np.ones((3, 50)) @ y",
    }
    with trace() as t:
        record("x", x, "a b")
        record("y", y, "b c")
        for name, equation in kinds.items():
            record(name, eval(equation), "a c"[: np.ndim(eval(equation)) * 2 - 1], equation)
    for sums in ("e4m3", "bfloat16"):
        bounds, found = error_bounds(t, {}, sums=sums), replay(t, {}, sums=sums)
        for name in kinds:
            off = np.abs(found[name] - t[name])
            assert (off.max() > 0) & (off <= bounds[name]).all(), name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf, where a format overflows
def test_no_error_is_above_its_bound_in_100_000_problems():
    """A head of a sequence is a problem: 256 at a time."""
    heads, largest = 0, 0.0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        T_q, T_k, d = rng.integers(1, 9, size=3)
        size = float(rng.choice([0.3, 1, 4, 16]))
        q, d_out = size * rng.normal(size=(16, 16, T_q, d)), rng.normal(size=(16, 16, T_q, d))
        k, v = rng.normal(size=(2, 16, 16, T_k, d))
        with trace() as t:
            _, cache = attention_forward(q, k, v, is_causal=bool(seed % 2))
            attention_backward(d_out, cache)
        formats, sums = random_formats(t, rng), str(rng.choice([*FORMATS, "float64"]))
        shares = excess(replay(t, formats, sums=sums), t, error_bounds(t, formats, sums=sums))
        heads, largest = heads + 256, max(largest, *shares.values())
    assert heads > 100_000
    assert 0.5 < largest <= 1


@pytest.mark.parametrize("size", [1.0, 30.0, 200.0])
def test_what_float64_rounds_is_in_the_bounds(size, rng):
    """The steps on record are computed in another order than their equations."""
    most = 0.0
    for _ in range(50):
        with trace() as t:
            softmax_forward(size * rng.normal(size=(3, 6)))
            rms_norm_forward(size * rng.normal(size=(3, 6)), rng.normal(size=6))
        found, bounds = replay(t, {}), error_bounds(t, {})
        for name, bound in bounds.items():
            off = np.abs(found[name] - t[name])
            assert (off <= bound).all(), name
            most = max(most, off.max())
    assert most > 0
    assert assert_bounded(traced(3), {})["d_q"].max() < 1e-10


def test_what_is_too_large_has_no_bound():
    with trace() as t:
        attention_forward(
            np.array([[300.0]]), np.array([[300.0], [1.0]]), np.ones((2, 1)), scale=1.0
        )
    bounds = error_bounds(t, {"scores": "float16"})
    assert np.isinf(bounds["scores"][0, 0])
    assert np.isfinite(bounds["scores"][0, 1])
    with pytest.raises(ConfigError, match=r"formats\['scores'\]: expected one of"):
        error_bounds(t, {"scores": "half"})


def test_a_bound_says_nothing_where_the_row_is_nan():
    q, k, v = np.array([[1.0]]), np.array([[1e5], [0.0], [-9e4]]), np.ones((3, 1))
    with trace() as t:
        attention_forward(q, k, v, scale=1.0)
    with np.errstate(invalid="ignore"):
        assert np.isnan(replay(t, {"k": "float16"})["weights"]).all()
    assert np.isinf(error_bounds(t, {"k": "float16"})["weights"]).all()


def test_bounds_behind_a_mask_warn_of_nothing():
    x = np.ones((2, 1))
    with trace() as t:
        attention_forward(x, x, x, is_causal=True)
    bounds = error_bounds(t, {"masked": "bfloat16"})
    assert bounds["masked"][0, 1] == 0


def hand_made(inputs, **equations):
    """Trace equations over inputs."""
    with trace() as t:
        arrays = dict(inputs)
        for name, array in inputs.items():
            record(name, array, "a b c d"[: 2 * array.ndim - 1])
        for name, equation in equations.items():
            with np.errstate(all="ignore"):
                arrays[name] = eval(equation, {"np": np}, arrays)
            record(name, arrays[name], "e f g h"[: max(0, 2 * arrays[name].ndim - 1)], equation)
    return t


def assert_bounded(t, formats, **options):
    """Fail unless each error, NaN included, is within its bound; return the bounds."""
    with np.errstate(all="ignore"):
        found, bounds = replay(t, formats, **options), error_bounds(t, formats, **options)
        for name, bound in bounds.items():
            off = np.abs(found[name] - t[name])
            is_same = (found[name] == t[name]) | np.isnan(t[name])
            assert (is_same | np.isinf(bound) | (off <= bound)).all(), name
    return bounds


def test_a_bias_that_becomes_a_mask():
    """Rounding makes -1e9 to -inf, which hides its cell."""
    with trace() as t:
        bias = np.array([-np.inf, -1e9, 0.0])
        out, cache = attention_forward(
            np.ones((1, 1)), np.ones((3, 1)), np.array([[5.0], [2.0], [3.0]]), bias=bias
        )
        attention_backward(np.ones(out.shape), cache)
    bounds = assert_bounded(t, {"bias": "float16"})
    assert bounds["d_weights"][0, 1] >= 2
    assert bounds["d_weights"][0, 2] < 1e-9
    assert bounds["d_weights"][0, 0] < 1e-9
    exact = assert_bounded(t, {"bias": "bfloat16"})
    assert exact["d_weights"].max() < 1e-9


OVERFLOWS = {
    "tanh": ({"s": [[25.0, 1.0]]}, {"s": "e4m3"}, {"c": "30 * np.tanh(s / 30)"}),
    "tanh of inf - inf": (
        {"k": [[7e4, 7e4], [1.0, 0.0]], "q": [[1.0], [-1.0]]}, {"k": "float16"},
        {"c": "np.tanh(k @ q)"},
    ),
    "a maximum": (
        {"s": [[700.0, 1.0]]}, {"s": "e4m3"}, {"e": "np.exp(s - s.max(axis=-1, keepdims=True))"}
    ),
    "a share": (
        {"s": [[700.0, 1.0]]}, {"s": "e4m3"}, {"w": "s / s.sum(axis=-1, keepdims=True)"}
    ),
    "one over": ({"s": [[700.0, 1.0]]}, {"s": "e4m3"}, {"r": "1 / s"}),
    "an exact inf": (
        {"s": [[709.9, 1.0]]}, {"s": "bfloat16"},
        {"lse": "np.log(np.exp(s).sum(axis=-1, keepdims=True))", "w": "np.exp(s - lse)"},
    ),
    "a log of 0": (
        {"s": [[-746.0, -747.0]]}, {"s": "bfloat16"}, {"lse": "np.log(np.exp(s).sum(axis=-1))"}
    ),
    "a root of what may be below 0": (
        {"x": [[0.1, 5.0]]}, {"x": "e4m3"}, {"r": "np.sqrt(x - 0.0999)", "l": "np.log(x - 0.0999)"}
    ),
    "a power that is a step": ({"x": [[1.7]], "n": 2.0078431372569256}, {"n": "bfloat16"},
                               {"p": "x ** n"}),
    "a tiny scale": ({"x": [[1.2345]]}, {"x": "float64"}, {"y": "x * 1"}),
    "0 / 0 in a share": (
        {"x": [[9e-4, 5e-4]]}, {"x": "e4m3"},
        {"w": "np.maximum(x, 0) / np.maximum(x, 0).sum(axis=-1, keepdims=True)"},
    ),
    "a row of nothing": (
        {"y": [[1.0, 2.0]]}, {"y": "e4m3"},
        {"w": "(y * 0) / (y * 0).sum(axis=-1, keepdims=True)", "l": "np.log(w)"},
    ),
    "conditions in a sum": (
        {"x": [[-np.inf] * 9]}, {"x": "e5m2"},
        {"n": "np.isneginf(x).sum(axis=-1) * 1.0", "m": "np.where(np.isneginf(x), 1.0, 0.0).sum()"},
    ),
    "no numbers": ({"x": np.ones((0, 4, 3))}, {"x": "e5m2"}, {"s": "x.sum(axis=-1)"}),
    "a huge scale": ({"x": [[1.2345]]}, {"x": "float16"}, {"y": "x * 1"}),
    "an array in a move": (
        {"x": [[1.3], [1.7]]}, {"x": "e4m3"},
        {"w": "x.repeat(np.array([1, 2]), axis=0) / x.repeat(np.array([2, 1]), axis=0).sum()"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OVERFLOWS)
def test_what_is_nan_or_infinite_has_no_bound(name):
    inputs, formats, equations = OVERFLOWS[name]
    t = hand_made({of: np.array(x) for of, x in inputs.items()}, **equations)
    scales = {"a tiny scale": {"x": 1e-322}, "a huge scale": {"x": 1e306}}.get(name, {})
    assert_bounded(t, formats, scales=scales)
    assert_bounded(t, formats, scales=scales, sums="e5m2")


def test_a_finite_bias_that_hides_costs_nothing(rng):
    """Each number has its own slack: that of -1e9 is not that of the scores beside it."""
    q, k, v = rng.normal(size=(3, 4, 5))
    for hides in (-1e9, -1e15, float(np.finfo(np.float32).min)):
        with trace() as t:
            attention_forward(q, k, v, bias=np.where(np.tri(4), 0.0, hides))
        assert assert_bounded(t, {})["heads"].max() < 1e-10
        assert assert_bounded(t, {"scores": "bfloat16"})["heads"].max() < 0.05
        # in float16 it is -inf for sure, and hides for sure
        narrow = assert_bounded(t, {"bias": "float16", "biased": "float16"})
        assert narrow["heads"].max() < 0.01
        assert np.isinf(narrow["bias"][0, 3])


def test_ends_that_go_beyond_a_format():
    """One end may be inf; a NaN, of which e4m3 is capable, leaves nothing known."""
    t = hand_made(
        {"x": np.array([6.6e4, 6.55e4, 1e9, -1e9, 450.0, 5.0])}, y="x * 1", z="x - x", w="1 / x"
    )
    bounds = assert_bounded(t, {"x": "float16"})
    assert np.isinf(bounds["x"]).tolist() == [True, False, True, True, False, False]
    assert np.isinf(bounds["z"][[0, 2, 3]]).all()  # inf - inf
    assert bounds["w"][[2, 3]].max() < 1e-8  # 0 for sure, instead of 1e-9
    of_8_bits = assert_bounded(t, {"y": "e4m3"})["y"]
    assert np.isinf(of_8_bits).tolist() == [True] * 5 + [False]


@pytest.mark.parametrize("form", ["masked", "causal"])
def test_bounds_with_a_mask_are_as_near(form, rng):
    q, k, v, d_out = rng.normal(size=(4, 2, 8, 4))
    options = {"is_causal": True} if form == "causal" else {"mask": rng.random((8, 8)) < 0.6}
    with trace() as t:
        _, cache = attention_forward(q, k, v, **options)
        attention_backward(d_out, cache)
    formats = {step.name: "bfloat16" for step in t if step.equation and step.name != "visible"}
    found, bounds = replay(t, formats), error_bounds(t, formats)
    for name in ("heads", "d_q", "d_k", "d_v"):
        assert 1 < bounds[name].max() / np.abs(found[name] - t[name]).max() < 50


def test_bounds_of_linear_attention(rng):
    """Whose steps are joined from tokens."""
    q, k, v, d_out = rng.normal(size=(4, 3, 4))
    with trace() as t:
        _, cache = linear_attention_forward(q, k, v, log_decay=-rng.random(3), beta=rng.random(3))
        linear_attention_backward(d_out, cache)
    formats = {step.name: "bfloat16" for step in t if step.array.dtype.kind == "f"}
    bounds = assert_bounded(t, formats)
    assert np.isfinite(bounds["d_k"]).all()


def test_bounds_of_norms(rng):
    x, gain = rng.normal(size=(5, 8)), rng.normal(size=8)
    with trace() as t:
        out, cache = rms_norm_forward(x, gain)
        rms_norm_backward(rng.normal(size=out.shape), cache)
    formats = {step.name: "bfloat16" for step in t}
    shares = excess(replay(t, formats), t, error_bounds(t, formats))
    assert 0.05 < max(shares.values()) <= 1


def traced_gelu(x):
    with trace() as t:
        gelu_forward(x)
    return t


@pytest.mark.parametrize("total", ["e.sum(axis=-1)", "e.sum(axis=-1, keepdims=True)", "e.sum()"])
def test_bounds_of_a_quotient_by_any_sum(rng, total):
    """A row divided by the sum of another row is no share of it."""
    for _ in range(40):
        scores = rng.normal(size=(3, 3))
        e = np.exp(scores)
        with trace() as t:
            record("scores", scores, "T_q T_k")
            record("e", e, "T_q T_k", "np.exp(scores)")
            record("w", eval(f"e / {total}"), "T_q T_k", f"e / {total}")
        formats = {"e": "e4m3"}
        off, bound = np.abs(replay(t, formats)["w"] - t["w"]), error_bounds(t, formats)["w"]
        assert (off <= bound).all()


FALSE_SHARES = {  # equal numbers when exact, but rounded apart
    "another order": "(p @ w) / (p[:, ::-1] @ w[::-1]).sum(axis=-1, keepdims=True)",
    "another array": "x / y.sum(axis=-1, keepdims=True)",
    "another order of sums": "p.sum(axis=-1, keepdims=True) / p[:, ::-1].sum(axis=-1).sum()",
    "another move": "m.swapaxes(0, 1) / m.swapaxes(0, 0).sum(axis=-1, keepdims=True)",
}


@pytest.mark.parametrize("name", FALSE_SHARES)
def test_only_a_share_of_the_same_numbers_is_below_1(name):
    rng, equation = np.random.default_rng(0), FALSE_SHARES[name]
    for _ in range(200):
        p, w = (rng.integers(1, 200, shape).astype(float) for shape in ((1, 9), (9, 1)))
        x, m = rng.uniform(1, 2, (2, 1)), rng.uniform(1, 2, (2, 2))
        arrays = {"p": p, "w": w, "x": x, "y": x.copy(), "m": m}
        with trace() as t:
            for of, array in arrays.items():
                record(of, array, "a b")
            record("r", eval(equation, {}, arrays), "a c", equation)
        formats, scales = dict.fromkeys("xym", "e4m3"), {"y": 3.0}
        found = replay(t, formats, scales=scales, sums="bfloat16")["r"]
        bounds = error_bounds(t, formats, scales=scales, sums="bfloat16")["r"]
        assert (np.abs(found - t["r"]) <= bounds).all()


def test_sums_hold_the_exact_one(rng):
    """In whatever order float64 adds up."""
    for _ in range(20):
        a, b = rng.normal(size=(2, 500))
        known = Interval(a, a)
        for found, exact in ((known.sum(), math.fsum(a)), (known @ b, _dot_exactly(a, b))):
            assert float(found.low) < exact < float(found.high)
            assert float(found.high - found.low) < 1e-9


def _dot_exactly(a, b):
    return float(sum(Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)))


def test_ends_of_sums_by_hand():
    """Of two numbers, in a format that keeps two digits: 2 / 4 of the sizes, at each end."""
    mixed = Interval(np.array([-1.0, 0.0]), np.array([3.0, 1.0]), 0.25)
    total, product = mixed.sum(), mixed @ np.array([1.0, 1.0])
    assert (float(total.low), float(total.high)) == (-1 - 0.5, 4 + 2)
    # in a product each number of the other factor may make the larger size count
    assert (float(product.low), float(product.high)) == (-1 - 2, 4 + 2)
    positive = Interval(np.array([1.0, 2.0]), np.array([1.0, 2.0]), 0.25)
    assert (float(positive.sum().low), float(positive.sum().high)) == (1.5, 4.5)  # not below 3 / 4
    assert_close([positive.mean().low, positive.mean().high], [0.75, 2.25])
    share = positive / positive.sum(keepdims=True)
    assert_close(share.low, np.array([1, 2]) / 4.5)
    assert_close(share.high, np.array([1, 2]) / 1.5)
    unknown = Interval(np.array([1.0, 2.0]), np.array([1.0, np.inf]), 0.0)
    assert_close(unknown.sum().low, 3)
    share = unknown / unknown.sum(keepdims=True)
    assert share.low[0] == 0
    assert_close(share.high[:1], [1 / 3])
    assert np.isinf(share.high[1])


def test_steps_that_share_a_name_are_bounded_apart(rng):
    with trace() as t:
        for T in (4, 6):
            attention_forward(*rng.normal(size=(3, T, 8)))
    formats = {"scores": "bfloat16"}
    found, bounds = replay(t, formats), error_bounds(t, formats)
    for name in ("scores", "weights", "heads"):
        assert bounds[name].shape == t[name].shape
        assert (np.abs(found[name] - t[name]) <= bounds[name]).all()


def in_float16(summands):
    """Add up one after another, rounding to float16 each time."""
    total = 0.0
    for summand in summands:
        total = float(np.float16(total + summand))
    return total


def test_a_sum_of_ones_in_float16_stops_at_2048():
    with trace() as t:
        softmax_forward(np.zeros((1, 4096)))
    found = replay(t, {}, sums="float16")["weights"]
    assert (found == 1 / 2048).all()
    assert (replay(t, {})["weights"] == 1 / 4096).all()


def test_products_are_added_up_one_after_another(rng):
    q, k, v = rng.normal(size=(3, 2, 40, 4))
    with trace() as t:
        attention_forward(q, k, v)
    found = replay(t, {}, sums="float16")
    weights = found["weights"]
    expected = [
        [[in_float16(row * column) for column in v[b].T] for row in weights[b]] for b in range(2)
    ]
    assert np.array_equal(found["heads"], expected)
    assert type(weights) is np.ndarray


def test_every_kind_of_sum(rng):
    x, y = rng.normal(size=(3, 4, 5)), rng.normal(size=5)
    few = one_by_one(x, 11)
    for axis in (None, 0, -1, (0, 2), (-2, -1)):
        exact = x.sum(axis=axis, keepdims=True)
        found = few.sum(axis=axis, keepdims=True)
        assert found.shape == exact.shape
        assert 0 < np.abs(found - exact).max() < 0.1
    assert few.sum(axis=1).tolist() == [
        [in_float16(x[i, :, j]) for j in range(5)] for i in range(3)
    ]
    assert np.abs(few.mean(axis=-1) - x.mean(axis=-1)).max() < 0.01
    for a, b in ((x, y), (y, x.swapaxes(1, 2)), (y, y)):
        found = one_by_one(a, 11) @ b
        assert found.shape == (a @ b).shape
        assert np.allclose(found, a @ b, atol=0.02)
    assert isinstance((few * 2)[0] @ y, type(few))


def test_sums_in_float32_are_as_good_as_float32(rng):
    q, k, v, d_out = rng.normal(size=(4, 2, 50, 8))
    with trace() as t:
        _, cache = attention_forward(q, k, v, is_causal=True)
        attention_backward(d_out, cache)
    found = replay(t, {}, sums="float32")
    for name in ("weights", "heads", "d_q", "d_k", "d_v"):
        off = np.abs(found[name] - t[name]).max()
        assert 1e-9 < off < 2e-6 * np.abs(t[name]).max()


def renamed_input():
    """Return a trace whose equation names no step."""
    with trace() as t:
        record("x", np.ones(2), "a")
        record("y", np.ones(2), "a", "2 * z")
    return t


WRONG = {
    "sums": (lambda t: replay(t, {}, sums="half"), "sums: expected one of .*; got 'half'"),
    "no rule": (
        lambda t: error_bounds(traced_gelu(np.ones(3)), {}),
        r"recorded: expected equations",
    ),
    "no trace": (lambda t: replay(np.ones(3), {}), r"recorded: expected the Trace of trace\(\)"),
    "a list": (lambda t: replay(t, ["weights"]), "formats: expected a dict by"),
    "sums of bounds": (
        lambda t: error_bounds(t, {}, sums="half"),
        "sums: expected one of .*; got 'half'",
    ),
    "a scale of no step": (lambda t: replay(t, {}, scales={"foo": 2.0}), "scales: expected names"),
    "a scale below 0": (
        lambda t: error_bounds(t, {"weights": "float16"}, scales={"weights": -1.0}),
        r"scales\['weights'\]: expected a number > 0",
    ),
    "a scale without a format": (
        lambda t: replay(t, {}, scales={"weights": 2.0}),
        "scales: expected steps that have a",
    ),
    "scales in a list": (lambda t: replay(t, {}, scales=[]), "scales: expected a dict"),
    "a trace in float32": (
        lambda t: error_bounds(hand_made({"x": np.ones(2, np.float32)}), {}),
        "recorded: expected a trace in float64; x is float32; write",
    ),
    "a format of a mask": (
        lambda t: replay(hand_made({"m": np.ones(2, bool)}), {"m": "float16"}),
        "formats: expected names of steps",
    ),
    "a method without a rule": (
        lambda t: error_bounds(hand_made({"x": np.ones(2)}, y="x.astype(np.float64)"), {}),
        "recorded: expected equations of .*; got astype, for which there is no rule",
    ),
    "where with one argument": (
        lambda t: error_bounds(hand_made({"x": np.ones((1, 2))}, y="np.where(x)[0] * 1.0"), {}),
        "recorded: expected equations of .*; got where, for",
    ),
    "a sum with where": (
        lambda t: error_bounds(
            hand_made({"x": np.ones(2), "m": np.ones(2, bool)}, y="x.sum(where=m)"), {}
        ),
        "recorded: expected equations of .*; got sum with where, for",
    ),
    "a mean with where": (
        lambda t: error_bounds(
            hand_made({"x": np.ones(2), "m": np.ones(2, bool)}, y="x.mean(where=m)"), {}
        ),
        "recorded: expected equations of .*; got mean with where, for",
    ),
    "a choice": (
        lambda t: error_bounds(hand_made({"x": np.array(0.0)}, y="x + 1 if x else x"), {}),
        "recorded: expected equations of .*; got a choice of Python, for",
    ),
    "another function": (
        lambda t: error_bounds(hand_made({"x": np.ones(2)}, y="np.sinh(x)"), {}),
        "recorded: expected equations of .*; got sinh, for",
    ),
    "an unknown name": (
        lambda t: replay(renamed_input(), {}),
        "y: its equation cannot be computed: name 'z' is",
    ),
    "a word for a scale": (lambda t: round_to(np.ones(2), "float16", scale="a"), "scale: expected"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name):
    call, words = WRONG[name]
    with pytest.raises(ConfigError, match=words):
        call(traced(0))
