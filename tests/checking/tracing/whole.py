"""What every trace has to pass."""

import numpy as np

from tests.compare import assert_close


def is_same(array, other):
    """Return whether these are one array, or one and its cast to another dtype."""
    return array is other or (
        np.asarray(array).dtype != other.dtype and np.array_equal(array, other)
    )


def assert_equations_hold(t, tolerance="float64"):
    """Compute each step's equation, and compare it with what the step recorded."""
    computed = [s for s in t if s.equation]
    assert computed
    for s in computed:
        assert_close(t.evaluate(s), s.array, tolerance, name=f"{s.name} = {s.equation}")
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
