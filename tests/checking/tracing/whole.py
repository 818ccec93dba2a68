"""What every trace has to pass."""

import numpy as np

from tests.compare import assert_close


def is_same(array, other):
    """Return whether these are one array, or one and its cast to another dtype."""
    return array is other or (
        np.asarray(array).dtype != other.dtype and np.array_equal(array, other)
    )


def assert_whole(t, given, tolerance="float64"):
    """Fail unless all that is no argument has an equation that holds, under a name of its own."""
    names = [step.name for step in t]
    assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1]
    for step in t:
        is_drawn = step.name.endswith("dropout_mask")
        if step.equation:
            name = f"{step.name} = {step.equation}"
            assert_close(t.evaluate(step), step.array, tolerance, name=name)
        else:
            is_given = any(is_same(array, step.array) for array in given)
            assert is_drawn or is_given, f"{step.name}: neither given nor computed"
    assert t.sizes
