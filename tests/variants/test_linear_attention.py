"""Linear attention: one state, three forms, and the kernel; decay, delta rule, both, neither."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from mha_numpy import backend
from mha_numpy.checking.tracing import trace
from mha_numpy.errors import ConfigError, DTypeError, ShapeError
from mha_numpy.variants import linear_attention_backward, linear_attention_forward
from tests.compare import assert_close
from tests.gradients import assert_gradients
from tests.sweeps import sweep

FORMS = ("recurrence", "chunks", "product")
RULES = list(product(("no decay", "decay", "decay of features"), ("sum", "delta")))
each_rule = pytest.mark.parametrize(("decay", "rule"), RULES)


def draw(rng, decay, rule, *, leading=(2, 6, 3), T=11, d_k=4, d_v=5, state=True):
    """Return random inputs; keys are short enough for a delta rule that does not explode."""
    of_queries, of_keys = (leading[:2], leading[::2]) if len(leading) == 3 else (leading, leading)
    drawn = {
        "q": rng.normal(size=(*of_queries, T, d_k)),
        "k": rng.normal(size=(*of_keys, T, d_k)) / np.sqrt(max(d_k, 1)),
        "v": rng.normal(size=(*of_keys, T, d_v)),
    }
    if decay != "no decay":
        shape = (*of_keys, T, d_k) if decay == "decay of features" else (*of_keys, T)
        drawn["log_decay"] = -rng.exponential(size=shape) / 2
    if rule == "delta":
        drawn["beta"] = rng.uniform(0, 1.2, size=(*of_keys, T))
    if state:
        drawn["state"] = rng.normal(size=(*of_keys, d_k, d_v))
    return drawn


def by_hand(q, k, v, log_decay=None, beta=None, state=None):
    """Run the recurrence one head and one number at a time, with heads repeated."""
    G = q.shape[1] // k.shape[1]
    out, S = np.zeros((*q.shape[:3], v.shape[3])), np.zeros((*k.shape[:2], k.shape[3], v.shape[3]))
    S = S if state is None else state.copy()
    for b, h, t in np.ndindex(q.shape[:3]):
        g = h // G
        if h % G == 0:
            if log_decay is not None:
                S[b, g] *= np.exp(log_decay[b, g, t] * np.ones(k.shape[3]))[:, None]
            write = v[b, g, t]
            if beta is not None:
                write = beta[b, g, t] * (write - S[b, g].T @ k[b, g, t])
            S[b, g] += np.outer(k[b, g, t], write)
            kept = (b, g, t)
        states[kept] = S[b, g].copy()
    return out, S
