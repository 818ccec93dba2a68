"""gradcheck of forward mode and of double backward."""

from functools import partial

import numpy as np
import pytest

from mha_numpy import (
    attention_backward,
    attention_double_backward,
    attention_forward,
    attention_jvp,
    gradcheck,
    multi_head_attention_backward,
    multi_head_attention_forward,
    multi_head_attention_jvp,
)
from mha_numpy.errors import ConfigError, DTypeError, ShapeError
from tests.core.test_gradients import multi_head_configuration


def square(x):
    return x**2, x


def square_backward(d_out, x):
    return (2 * x * d_out,)


def square_jvp(tangents, x):
    (x_dot,) = tangents
    return 2 * x * x_dot


def square_double_backward(d_grads, d_out, x):
    (d_d_x,) = d_grads
    return {"d_d_out": 2 * x * d_d_x, "d_0": 2 * d_out * d_d_x}


X = np.array([[1.0, -3.0, 0.5]])


@pytest.fixture
def attention(rng):
    q, k, v = rng.normal(size=(3, 2, 3, 5, 4))
    inputs = {"q": q, "k": k, "v": v, "bias": rng.normal(size=(5, 5)), "sink": rng.normal(size=3)}
    return partial(attention_forward, is_causal=True, softcap=2.0), inputs


def test_of_attention(attention):
    forward, inputs = attention
    report = gradcheck(
        forward, attention_backward, inputs, max_full=0, samples=0, directions=1,
        jvp=attention_jvp, double_backward=attention_double_backward,
    )  # fmt: skip
    assert report, str(report)
    assert list(report.errors("jvp")) == list(inputs)
    assert list(report.errors("double backward")) == [*inputs, "d_out"]
    assert max(report.errors("jvp").values()) < 1e-12
    assert max(report.errors("double backward").values()) < 1e-12


def test_of_nested_params():
    inputs, options = multi_head_configuration(2)
    report = gradcheck(
        partial(multi_head_attention_forward, **options), multi_head_attention_backward, inputs,
        max_full=0, samples=0, directions=1, jvp=multi_head_attention_jvp,
    )  # fmt: skip
    assert report, str(report)
    assert "params.w_q" in report.errors("jvp")


def test_of_functions_without_names():
    report = gradcheck(
        square, square_backward, [X], jvp=square_jvp, double_backward=square_double_backward
    )
    assert report, str(report)
    assert list(report.errors("double backward")) == ["0", "d_out"]


def test_without_a_cache():
    report = gradcheck(
        lambda x: x**2,
        lambda d_out, x: 2 * x * d_out,
        {"x": X},
        jvp=lambda tangents, x: 2 * x * tangents["x"],
        double_backward=lambda d_grads, d_out, x: {
            "d_d_out": 2 * x * d_grads["x"], "d_x": 2 * d_out * d_grads["x"]
        },
    )  # fmt: skip
    assert report, str(report)


def test_by_central_differences():
    """abs of a complex number has no slope, so the central difference decides."""
    report = gradcheck(
        lambda x: (x * abs(x), x),
        lambda d_out, x: (2 * abs(x) * d_out,),
        [X],
        jvp=lambda tangents, x: 2 * abs(x) * tangents[0],
        double_backward=lambda d_grads, d_out, x: {
            "d_d_out": 2 * abs(x) * d_grads[0], "d_0": 2 * np.sign(x) * d_out * d_grads[0]
        },
    )  # fmt: skip
    assert not report.errors("complex step")
    assert report, str(report)
    assert set(report.errors("jvp")) == {"0"}


WRONG = {
    "half of the slope": ({"jvp": lambda tangents, x: x * tangents[0]}, "jvp"),
    "nothing": ({"jvp": lambda tangents, x: 0 * x}, "jvp"),
    "NaN": ({"jvp": lambda tangents, x: np.nan * x}, "jvp"),
    "a part of double backward": (
        {"double_backward": lambda d_grads, d_out, x: {
            "d_d_out": 2 * x * d_grads[0], "d_0": 0 * d_out}}, "double backward",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_one_fails(name):
    mode, method = WRONG[name]
    report = gradcheck(square, square_backward, [X], **mode)
    assert not report
    failed = {row.method for row in report.rows if not row.passed}
    assert failed == {method}
    assert method in str(report)


def test_a_wrong_attention_jvp_fails(attention):
    forward, inputs = attention

    def without_k(tangents, cache):
        return attention_jvp(tangents | {"k": None}, cache)

    report = gradcheck(forward, attention_backward, inputs, jvp=without_k)
    assert [row.name for row in report.rows if not row.passed] == ["k"]


def test_what_it_may_return():
    with pytest.raises(ShapeError, match=r"out_dot: expected \(1, 3\), as out; jvp returned"):
        gradcheck(square, square_backward, [X], jvp=lambda tangents, x: x[0])
    with pytest.raises(ConfigError, match="double_backward: expected d_d_out and d_<name>"):
        gradcheck(square, square_backward, [X], double_backward=lambda *_: (X,))
    with pytest.raises(ConfigError, match="d_0: double_backward returns no such gradient"):
        gradcheck(square, square_backward, [X], double_backward=lambda *_: {"d_d_out": X})


def test_it_leaves_its_inputs_alone():
    def in_place(tangents, x):
        x += 1
        return x

    with pytest.raises(ConfigError, match="0: jvp changes its input in place"):
        gradcheck(lambda x: x**2, lambda d_out, x: 2 * x * d_out, [X], jvp=in_place)


def test_attention_in_order(rng):
    """With inputs in a list, gradients come in order, too; that of lse is left out."""
    q, k, v = rng.normal(size=(3, 2, 3, 4))
    report = gradcheck(
        attention_forward, attention_backward, [q, k, v],
        jvp=attention_jvp, double_backward=attention_double_backward,
    )  # fmt: skip
    assert report, str(report)
    assert list(report.errors("double backward")) == ["0", "1", "2", "d_out"]


def overwrite(tangents, x):
    tangents[0][...] = 0
    return x


CALLED = r"called as jvp\(tangents, cache\), it raised"
WRONG_CALLS = {
    "too few arguments": ({"jvp": lambda tangents: 0}, ConfigError, f"jvp: {CALLED}"),
    "no function": ({"jvp": 3}, ConfigError, f"jvp: {CALLED}"),
    "nothing": (
        {"jvp": lambda *_: ()}, ShapeError,
        r"out_dot: expected \(1, 3\), as out; jvp returned \(0,\)",
    ),
    "overwritten tangents": ({"jvp": overwrite}, ConfigError, "tangents: jvp changes them"),
    "double backward of one argument": (
        {"double_backward": lambda d_grads: 0}, ConfigError,
        r"double_backward: called as double_backward\(d_grads, d_out, cache\), it raised",
    ),
    "a shape": (
        {"double_backward": lambda *_: {"d_d_out": X, "d_0": X[0]}}, ShapeError,
        r"d_0: expected \(1, 3\); got \(3,\)",
    ),
    "complex numbers": (
        {"double_backward": lambda *_: {"d_d_out": X, "d_0": X + 1j}}, DTypeError,
        "d_0: expected a float array",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_calls(name):
    mode, error, words = WRONG_CALLS[name]
    with pytest.raises(error, match=words):
        gradcheck(square, square_backward, [X], **mode)
