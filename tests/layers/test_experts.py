"""A mixture of experts: which are chosen, and what each token leaves alone."""

import numpy as np
import pytest

from mha_numpy.layers import mixture_of_experts_backward, mixture_of_experts_forward
from mha_numpy.layers.experts import AXES
from tests.compare import assert_close
from tests.layers.pairs import PAIRS, E


def test_by_hand():
    """Two of three experts of one feature; the gate of one is clipped, and what it gates."""
    logits, w_gate, w_in = [0.0, np.log(3), -1.0], [0.0, 2.0, 9.0], [1.0, 1.5, 9.0]
    params = {
        "w_router": np.array([logits]) / 2, "b_router": np.zeros(3),
        "w_gate": np.reshape(w_gate, (3, 1, 1)), "b_gate": np.array([[1.0], [0.0], [9.0]]),
        "w_in": np.reshape(w_in, (3, 1, 1)), "b_in": np.array([[-4.0], [2.0], [9.0]]),
        "w_out": np.array([10.0, 100.0, 1e9]).reshape(3, 1, 1),
        "b_out": np.array([[5.0], [7.0], [1e9]]),
    }  # fmt: skip
    # at x = 2: gates 1 and 4, hidden -2 and 5, of which 3 is the limit
    out, cache = mixture_of_experts_forward(
        np.array([2.0]), **params, num_chosen=2, limit=3.0, alpha=np.log(2)
    )
    assert cache.chosen.tolist() == [1, 0]
    assert_close(cache.shares, [3 / 4, 1 / 4])
    first, second = 100 * (3 + 1) * 3 * 8 / 9 + 7, 10 * (-2 + 1) * 1 * 2 / 3 + 5
    assert_close(out, [3 / 4 * first + 1 / 4 * second])
    grads = mixture_of_experts_backward(np.array([8.0]), cache)
    d_share = 8 * (first - second) * 3 / 4 / 4
    assert_close(grads.d_b_router, [-d_share, d_share, 0])
    assert_close(grads.d_w_router, [[-2 * d_share, 2 * d_share, 0]])
    assert_close(grads.d_b_out, [[2], [6], [0]])
    assert_close(grads.d_w_out[:, 0, 0], [2 * -2 / 3, 6 * 32 / 3, 0])
    slope = 2 / 3 + np.log(2) * 2 / 3 / 3
    assert_close(grads.d_b_in, [[20 * 2 / 3], [0], [0]])
    assert_close(grads.d_b_gate, [[20 * -1 * slope], [0], [0]])
    d_x = -d_share * 0 + d_share * np.log(3) / 2 + 20 * 2 / 3
    assert_close(grads.d_x, [d_x])  # w_gate is 0


@pytest.mark.parametrize(
    ("logits", "chosen"),
    [
        ([1.0, 2.0, 2.0, 2.0], [1, 2]), ([0.0, -0.0, 0.0, -1.0], [0, 1]),
        ([np.nan, 1.0, np.nan, -np.inf], [1, 3]), ([-1.0, 4.0, 3.0, 5.0], [3, 1]),
    ],
)  # fmt: skip
def test_of_equal_experts_the_earlier_and_nan_last(logits, chosen):
    sizes = {"D": 2, "E": 4, "F": 3}
    params = {name: np.ones([sizes[a] for a in axes.split()]) for name, axes in AXES.items()}
    params |= {"w_router": np.zeros((2, 4)), "b_router": np.array(logits)}
    _, cache = mixture_of_experts_forward(np.ones((3, 2)), **params, num_chosen=2)
    assert cache.chosen.tolist() == [chosen] * 3


def test_an_expert_that_is_not_chosen_is_not_read_and_has_no_gradient(rng):
    forward, inputs = PAIRS["mixture of experts"].ready(rng, (2,))
    out, cache = forward(**inputs)
    others = np.setdiff1d(np.arange(E), cache.chosen)
    assert 3 <= len(others) <= 6
    for name in AXES:
        if "router" not in name:
            inputs[name][others] = np.nan
    again, cache = forward(**inputs)
    assert_close(again, out, "exact")
    grads = mixture_of_experts_backward(out, cache)._asdict()
    for name in AXES:
        gradient = grads[f"d_{name}"].T if name == "w_router" else grads[f"d_{name}"]
        has_any = gradient.reshape(E, -1).any(axis=1)
        assert has_any.tolist() == [e in cache.chosen for e in range(E)], name


def test_the_order_of_the_experts_does_not_matter(rng):
    forward, inputs = PAIRS["mixture of experts"].ready(rng, (2, 5))
    out, _ = forward(**inputs)
    order = rng.permutation(E)
    moved = {n: w[:, order] if n == "w_router" else w[order] for n, w in inputs.items() if n != "x"}
    assert_close(forward(inputs["x"], **moved)[0], out)
