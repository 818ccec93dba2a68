"""Traces of both passes, and what every trace has to pass."""

import re

import numpy as np

from mha_numpy import attention_backward, attention_forward
from mha_numpy.checking.tracing import trace
from mha_numpy.core import multi_head_attention_backward, multi_head_attention_forward
from tests.compare import assert_close


def trace_both(forward, backward, *inputs, rng, **options):
    """Trace a forward, and its backward from a random gradient."""
    with trace() as t:
        out, cache = forward(*inputs, **options)
        backward(rng.normal(size=out.shape), cache)
    return t


def trace_attention(rng, *inputs, **options):
    return trace_both(attention_forward, attention_backward, *inputs, rng=rng, **options)


def trace_multi_head(rng, *inputs, **options):
    passes = multi_head_attention_forward, multi_head_attention_backward
    return trace_both(*passes, *inputs, rng=rng, **options)


def is_same(array, other):
    """Return whether these are one array, or one and its cast to another dtype."""
    return array is other or (
        np.asarray(array).dtype != other.dtype and np.array_equal(array, other)
    )


# of positions, put together of several, chosen by a mask within, rounded, looked up, cut
NOT_DERIVED = re.compile(
    r"np\.(arange|argsort|concatenate|full|isneginf|pad|take_along_axis|where)|astype"
    r"|\[[a-z\d]|, 0\]|\[\.\.\., :?\d"
)


def assert_equations_hold(t, tolerance="float64"):
    """Compute each step's equation, and compare it with what the step recorded.

    Nearly all of them say which cells each cell came from.
    """
    computed = [s for s in t if s.equation]
    assert computed
    for s in computed:
        assert_close(t.evaluate(s), s.array, tolerance, name=f"{s.name} = {s.equation}")
        is_of_a_vector = s.array.ndim == 1 and "@" in s.equation
        is_derived = t.origin_of(s).form != "unknown"
        assert is_derived or is_of_a_vector or NOT_DERIVED.search(s.equation), s
        assert s.axes.split() == list(dict.fromkeys(s.axes.split())) or "1" in s.axes
    assert t.sizes  # raises where axes do not fit their array, or two steps disagree


def assert_whole(t, given, tolerance="float64"):
    """Fail unless all that is no argument has an equation that holds, under a name of its own."""
    assert_equations_hold(t, tolerance)
    names = [step.name for step in t]
    assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1]
    for step in t:
        if not step.equation and not step.name.endswith("dropout_mask"):
            is_given = any(is_same(array, step.array) for array in given)
            assert is_given, f"{step.name}: neither given nor computed"
