"""The one table of options, and what is filled from it."""

import inspect
import re

import numpy as np
import pytest

from mha_numpy import (
    MultiHeadAttention,
    attention_forward,
    backends,
    multi_head_attention_decode,
    multi_head_attention_forward,
    scaled_dot_product_attention,
)
from mha_numpy.core.options import OPTIONS
from mha_numpy.errors import ConfigError

TAKERS = [
    attention_forward,
    scaled_dot_product_attention,
    multi_head_attention_forward,
    multi_head_attention_decode,
    MultiHeadAttention.forward,
]
by_taker = pytest.mark.parametrize("function", TAKERS, ids=lambda function: function.__name__)
X = np.ones((3, 4))


@by_taker
def test_signatures_and_docstrings_name_every_option(function):
    parameters = inspect.signature(function).parameters
    assert {name: parameters[name].default for name in OPTIONS} == {
        name: option.default for name, option in OPTIONS.items()
    }
    assert "options" not in parameters
    documented = function.__doc__.partition("Parameters")[2].partition("Returns")[0]
    assert OPTIONS.keys() <= {*re.findall(r"\w+", documented)}
    assert "{" not in documented.replace('{"numpy", "loops", "numba"}', "")
    assert all(len(line) <= 100 for line in function.__doc__.splitlines())


def test_the_parameters_of_attention_are_explained_one_by_one():
    for name, option in OPTIONS.items():
        assert (
            f"\n    {name} : {option.kind}\n        {option.text[:40]}" in attention_forward.__doc__
        )


def test_what_is_the_default_is_as_if_it_were_not_given():
    defaults = {name: option.default for name, option in OPTIONS.items()}
    out, cache = attention_forward(X, X, X, **defaults)
    expected, other = attention_forward(X, X, X)
    assert np.array_equal(out, expected)
    assert repr(cache.inputs) == repr(other.inputs)


def test_arrays_of_an_option_decide_the_dtype():
    narrow = X.astype(np.float32)
    for name in ("bias", "dropout_mask"):
        out, cache = attention_forward(narrow, narrow, narrow, **{name: np.ones((3, 3))})
        assert out.dtype == cache.inputs.q.dtype == np.float64, name
    half = X.astype(np.float16)
    out, cache = attention_forward(half, half, half, mask=np.ones(3, bool))
    assert (out.dtype, cache.inputs.q.dtype) == (np.float16, np.float32)


def test_an_option_that_no_kernel_covers_is_the_equations(monkeypatch):
    def load(*_):
        raise AssertionError("a kernel")

    monkeypatch.setattr(backends, "_load", load)
    with pytest.raises(AssertionError, match="a kernel"):
        attention_forward(X, X, X, softcap=2.0, backend="loops")
    monkeypatch.setitem(OPTIONS, "softcap", OPTIONS["softcap"]._replace(in_kernels=False))
    attention_forward(X, X, X, softcap=2.0, backend="loops")


def test_a_layer_takes_every_option_and_refuses_others():
    layer, x = MultiHeadAttention(4, 2, rng=0), np.random.default_rng(0).normal(size=(1, 3, 4))
    assert not np.array_equal(layer(x), layer(x, scale=3.0))
    assert not np.array_equal(layer(x, is_causal=True), layer(x, is_causal=True, q_offset=1))
    message = "^return_weight: there is no such argument here; did you mean 'return_weights'"
    for call in (layer, layer.forward):
        with pytest.raises(ConfigError, match=message):
            call(x, return_weight=True)
