"""The smallest model that learns *reverse*, one step of its training on record for the page."""

from typing import Any

import numpy as np

from mha_numpy.checking.tracing import Trace, trace
from mha_numpy.layers import MultiHeadAttention, cross_entropy_backward, cross_entropy_forward
from mha_numpy.models.train.tasks import Reverse
from mha_numpy.show.page.data import describe_trace
from mha_numpy.steps import constant, renamed, step

NUM_TOKENS = 8
BATCH_SIZE = 16
LEARNING_RATE = 10**-2.5  # mostly learns in 150 to 210 steps, tried with 160 seeds
PLACES_BOUND = 0.5  # of the random numbers that the rows for places begin with


def training_step(rng: np.random.Generator | int = 0) -> tuple[Trace, MultiHeadAttention]:
    """Record one training step of a single head that says digits backwards.

    A digit is a row with one 1. Queries and keys also get the row of their place, values do not:
    what is looked for may be a place, what is passed on is a digit. The head's output has a
    number for each digit, so that it is the answer already: nothing else is in this model. `rng`
    draws the params and the batch.
    """
    rng = np.random.default_rng(rng)
    task = Reverse(NUM_TOKENS)
    head = MultiHeadAttention(task.vocab_size, num_heads=1, bias=False, rng=rng)
    places = rng.uniform(-PLACES_BOUND, PLACES_BOUND, (NUM_TOKENS, task.vocab_size))
    (ids,), targets = task.draw_batch(rng, BATCH_SIZE)
    with trace() as t:
        # 1. digits and places
        digits = step("x_v", np.eye(task.vocab_size)[ids], "B T_k vdim")
        constant("places", places, "T_q D")
        x = step("x_q", digits + places, "B T_q D", "x_v + places")
        step("x_k", x, "B T_k kdim", "x_q")

        # 2. the head, whose output is the answer
        out = head(x, x, digits)
        with renamed(logits="out"):
            _, cache = cross_entropy_forward(out, targets)
            d_out = cross_entropy_backward(np.array(1.0), cache).d_logits
        d_query, d_key, _ = head.backward(d_out)

        # 1. a place serves every sequence, as query and as key
        assert d_key is not None
        d_places = (d_query + d_key).sum(axis=0)
        step("d_places", d_places, "T_q D", "(d_x_q + d_x_k).sum(axis=0)")
    return t, head


def describe_training() -> dict[str, Any]:
    """Return what the page trains with: the equations of a step, and where params begin."""
    recorded, head = training_step()
    described = describe_trace(recorded)
    bounds = {name: _bound(name, w.shape) for name, w in head.params.items()}
    return {
        "trace": {part: described[part] for part in ("arrays", "gradients")},
        "bounds": {"places": PLACES_BOUND, **bounds},
        "learningRate": LEARNING_RATE,
    }


def _bound(name: str, shape: tuple[int, ...]) -> float:
    """Return the largest random number that MultiHeadAttention begins with."""
    inputs, outputs = shape
    return float(np.sqrt(1 / inputs) if name == "w_o" else np.sqrt(6 / (inputs + outputs)))
