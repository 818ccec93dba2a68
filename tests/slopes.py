"""Derivatives by a complex step, and comparisons of tangents and gradients with them."""

import numpy as np

from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.dtypes import allow_complex
from tests.compare import Tolerance, assert_close

STEP = 1e-30  # nothing is subtracted, so nothing cancels


def random_tangents(inputs, seed):
    """Return random tangents like the inputs, nested as they are; a bias of -inf stands still."""
    rng = np.random.default_rng((seed, 99))
    arrays = {name: x for name, x in leaves(inputs).items() if isinstance(x, np.ndarray)}
    drawn = {
        name: np.where(np.isfinite(x), rng.normal(size=x.shape), 0)
        for name, x in arrays.items()
        if x.dtype.kind == "f"
    }
    return replaced(inputs, drawn)


def slopes(function, inputs, tangents):
    """Return how fast each of the arrays that a function returns moves along the tangents."""
    dots, arrays = leaves(tangents), leaves(inputs)
    moved = {name: arrays[name] + 1j * STEP * dot for name, dot in dots.items() if dot is not None}
    with allow_complex():
        return [np.asarray(array).imag / STEP for array in function(**replaced(inputs, moved))]


def assert_slopes(found, expected):
    """Fail unless all agree to 1e-12 of the largest."""
    largest = max([1.0, *(np.abs(array).max(initial=0) for array in expected)])
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert_close(one, other, Tolerance(0, 1e-12 * largest), name=f"array {number}")


def assert_forward_mode(forward, jvp, backward, inputs, seed=0):
    """Fail unless a jvp agrees with complex steps, and with backward: u . (J v) = (J^T u) . v.

    A jvp that returns two tangents is also about the final state.
    """
    tangents, rng = random_tangents(inputs, seed), np.random.default_rng(seed)
    _, cache = forward(**inputs)
    dots = jvp(tangents, cache)
    dots = dots if isinstance(dots, tuple) else (dots,)

    def outputs(**moved):
        out, kept = forward(**moved)
        return (out, kept.final_state) if len(dots) > 1 else (out,)

    assert_slopes(dots, slopes(outputs, inputs, tangents))
    d_outs = [rng.normal(size=array.shape) for array in outputs(**inputs)]
    d_final = {"d_final_state": d_outs[1]} if len(dots) > 1 else {}
    grads = backward(d_outs[0], cache, **d_final)._asdict()
    columns, size = inner_product(zip(d_outs, dots, strict=True))
    rows, more = inner_product([(grads[f"d_{name}"], dot) for name, dot in tangents.items()])
    assert abs(columns - rows) <= 1e-12 * max(1, size, more)


def inner_product(pairs):
    """Return the sum of all products, and that of their magnitudes; arrays may be nested."""
    total, size = 0.0, 0.0
    for one, other in pairs:
        ones, others = ([x for x in leaves(t).values() if x is not None] for t in (one, other))
        for a, b in zip(ones, others, strict=True):
            total, size = total + float((a * b).sum()), size + float(np.abs(a * b).sum())
    return total, size
