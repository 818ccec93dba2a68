"""The training step that the page computes again and again."""

import numpy as np

from mha_numpy.layers import MultiHeadAttention
from mha_numpy.show.page import training_page
from mha_numpy.show.page.training import describe_training, training_step
from tests.checking.tracing.test_equations import assert_equations_hold
from tests.show.pictures.helpers import assert_needs_no_network


def test_its_equations_hold():
    trace, _ = training_step(3)
    assert_equations_hold(trace)
    assert {"loss", "d_places", "d_w_q"} <= {step.name for step in trace}


def test_the_page_can_compute_all_but_what_is_given():
    arrays = describe_training()["trace"]["arrays"]
    given = {array["name"] for array in arrays if "tree" not in array}
    params = {"places", "w_q", "w_k", "w_v", "w_o"}
    assert given == params | {"x_v", "targets", "scale", "share", "d_loss"}


def test_its_random_params_begin_as_those_of_the_layer():
    bounds = describe_training()["bounds"]
    for name, w in MultiHeadAttention(10, 1, bias=False, rng=0).params.items():
        assert 0.9 * bounds[name] < np.abs(w).max() <= bounds[name]


def test_the_page_needs_no_network():
    assert_needs_no_network(training_page())
    assert len(training_page().to_html()) < 100_000
