"""Back through one token of the delta rule."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import normal
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Slope, Task


class DeltaGrads(NamedTuple):
    """Gradients of a token's inputs, and of the state before it."""

    d_q: Array
    d_k: Array
    d_v: Array
    d_log_decay: Array
    d_beta: Array
    d_state: Array


def delta_step_backward(
    d_out: Array, d_after: Array, q: Array, k: Array, v: Array, log_decay: Array, beta: Array,
    state: Array,
) -> DeltaGrads:  # fmt: skip
    """Return the gradients of one token of the delta rule.

    Forward computed, separately for every head::

        kept = np.exp(log_decay) * state
        gap = v - k @ kept
        after = kept + np.outer(k, beta * gap)
        out = q @ after / np.sqrt(q.shape[-1])

    The loss depends on out, and on `after` through the tokens that follow.

    Parameters
    ----------
    d_out : (H, d_v)
    d_after : (H, d_k, d_v)
        The gradient of `after` that comes from later tokens.
    q, k : (H, d_k)
    v : (H, d_v)
    log_decay, beta : (H,)
    state : (H, d_k, d_v)
        The state before the token.

    Returns
    -------
    d_q, d_k : (H, d_k)
    d_v : (H, d_v)
    d_log_decay, d_beta : (H,)
    d_state : (H, d_k, d_v)
    """
    decay, b = np.exp(log_decay)[:, None, None], beta[:, None]
    kept = decay * state
    gap = v - state_read(k, kept)
    after = kept + outer_of_heads(k, b * gap)

    d_scaled = d_out / np.sqrt(q.shape[-1])
    d_q = key_gradient(after, d_scaled)
    d_after = d_after + outer_of_heads(q, d_scaled)
    d_written = state_read(k, d_after)
    d_beta = (d_written * gap).sum(axis=-1)
    d_gap = b * d_written
    d_k = key_gradient(d_after, b * gap) - key_gradient(kept, d_gap)
    d_kept = d_after - outer_of_heads(k, d_gap)
    d_log_decay = (d_kept * kept).sum(axis=(1, 2))
    return DeltaGrads(d_q, d_k, d_gap, d_log_decay, d_beta, decay * d_kept)


def state_read(key: Array, state: Array) -> Array:
    """Return key @ state of each head: (H, d_v)."""
    return (key[:, :, None] * state).sum(axis=1)


def key_gradient(state: Array, d_read: Array) -> Array:
    """Return the gradient of the key that has read: (H, d_k)."""
    return (state * d_read[:, None, :]).sum(axis=2)


def outer_of_heads(key: Array, written: Array) -> Array:
    """Return the outer product of each head: (H, d_k, d_v)."""
    return key[:, :, None] * written[:, None, :]


def _draw_step(rng: np.random.Generator) -> list[Inputs]:
    """Draw heads whose sizes all differ, a square, and a single head."""
    probes = []
    for H, d_k, d_v in ((3, 5, 4), (3, 3, 3), (1, 2, 6)):
        inputs = normal(
            rng, d_out=(H, d_v), d_after=(H, d_k, d_v), q=(H, d_k), k=(H, d_k), v=(H, d_v)
        )
        inputs["log_decay"], inputs["beta"] = -rng.uniform(0.1, 1.5, H), rng.uniform(0.2, 0.9, H)
        probes.append(inputs | {"state": rng.normal(size=(H, d_k, d_v))})
    return probes


def _slope_of_step(inputs: Inputs) -> Slope:
    """Differentiate the outputs and, in rows below them, the state that the token leaves."""

    def forward(q: Array, k: Array, v: Array, log_decay: Array, beta: Array, state: Array) -> Array:
        kept = np.exp(log_decay)[:, None, None] * state
        after = kept + outer_of_heads(k, beta[:, None] * (v - state_read(k, kept)))
        out = state_read(q, after) / np.sqrt(q.shape[-1])
        return np.concatenate([out[:, None], after], axis=1)

    names = ("q", "k", "v", "log_decay", "beta", "state")
    d_both = np.concatenate([inputs["d_out"][:, None], inputs["d_after"]], axis=1)
    return Slope(forward, {name: inputs[name] for name in names}, d_both)


MISTAKES = [
    Mistake("gradient of later tokens left out", "d_after is not used: only this token's output reaches the loss",
            "d_after + np.outer(q, d_out / np.sqrt(d_k))", {"d_after = d_after + outer_of_heads(q, d_scaled)": "d_after = outer_of_heads(q, d_scaled)"}),
    Mistake("gradient of the output left out", "the state gets no gradient from this token's output",
            "d_after + np.outer(q, d_out / np.sqrt(d_k))", {"d_after = d_after + outer_of_heads(q, d_scaled)": "d_after = d_after + 0.0"}),
    Mistake("output read back with the key", "the output's gradient reaches the state through the key", "np.outer(q, d_out / np.sqrt(d_k))",
            {"outer_of_heads(q, d_scaled)": "outer_of_heads(k, d_scaled)"}),
    Mistake("d_q from the state before writing", "d_q is computed from the state before the token wrote", "d_q from `after`",
            {"key_gradient(after, d_scaled)": "key_gradient(kept, d_scaled)"}),
    Mistake("d_q from the state before the token", "d_q is computed from `state`", "d_q from `after`",
            {"key_gradient(after, d_scaled)": "key_gradient(state, d_scaled)"}),
    Mistake("scale left out of the output's gradient", "the output's gradient is not divided by sqrt(d_k)", "d_out / np.sqrt(d_k)",
            {"d_out / np.sqrt(q.shape[-1])": "d_out"}),
    Mistake("scale left out of d_q only", "d_q is too large by sqrt(d_k)", "d_out / np.sqrt(d_k), in both places",
            {"key_gradient(after, d_scaled)": "key_gradient(after, d_out)"}),
    Mistake("scale left out of the state's gradient", "the gradient that the output sends to the state is too large by sqrt(d_k)",
            "d_out / np.sqrt(d_k), in both places", {"outer_of_heads(q, d_scaled)": "outer_of_heads(q, d_out)"}),
    Mistake("d_k: only where it writes", "d_k lacks the key's second use, where it reads the old value",
            "subtract kept @ d_gap", {" - key_gradient(kept, d_gap)": ""}),
    Mistake("d_k: only where it reads", "d_k lacks the key's first use, where it writes", "add d_after @ (beta * gap)",
            {"key_gradient(d_after, b * gap) - key_gradient(kept, d_gap)": "-key_gradient(kept, d_gap)"}),
    Mistake("d_k: what it reads is added", "the part of d_k that comes from reading the old value has the wrong sign",
            "gap is v minus the old value", {"b * gap) - key_gradient(kept": "b * gap) + key_gradient(kept"}),
    Mistake("d_k: reads the state before it faded", "the part of d_k that comes from reading the old value is computed from `state`",
            "k reads `kept`", {"key_gradient(kept, d_gap)": "key_gradient(state, d_gap)"}),
    Mistake("d_k: beta left out where it writes", "the part of d_k that comes from writing lacks beta", "d_after @ (beta * gap)",
            {"key_gradient(d_after, b * gap)": "key_gradient(d_after, gap)"}),
    Mistake("d_k from v instead of the gap", "the part of d_k that comes from writing is computed from v, as in a plain sum",
            "d_after @ (beta * gap)", {"key_gradient(d_after, b * gap)": "key_gradient(d_after, b * v)"}),
    Mistake("d_v without beta", "the gap's gradient lacks beta, so d_v is too large", "beta * (k @ d_after)",
            {"d_gap = b * d_written": "d_gap = d_written"}),
    Mistake("sign of d_v in the delta rule", "d_v has the wrong sign", "gap is v minus the old value, so d_v = d_gap",
            {"DeltaGrads(d_q, d_k, d_gap,": "DeltaGrads(d_q, d_k, -d_gap,"}),
    Mistake("d_beta from v", "d_beta is computed from v instead of the gap", "(d_written * gap).sum(axis=-1)",
            {"(d_written * gap)": "(d_written * v)"}),
    Mistake("d_beta from what was written", "d_beta is computed from beta * gap", "(d_written * gap).sum(axis=-1)",
            {"(d_written * gap)": "(d_written * b * gap)"}),
    Mistake("old value not taken off backward", "the state's gradient is passed on as if nothing had been taken off",
            "d_kept = d_after - np.outer(k, d_gap)", {"d_after - outer_of_heads(k, d_gap)": "d_after"}),
    Mistake("old value's gradient added", "the gradient through the old value is added to the state's instead of subtracted",
            "d_kept = d_after - np.outer(k, d_gap)", {"d_after - outer_of_heads(k, d_gap)": "d_after + outer_of_heads(k, d_gap)"}),
    Mistake("d_log_decay: gradient of the decay itself", "d_log_decay is the gradient of e^log_decay: the factor e^log_decay is missing",
            "(d_kept * kept).sum()", {"(d_kept * kept)": "(d_kept * state)"}),
    Mistake("d_log_decay: decay twice", "d_log_decay has the factor e^log_decay twice", "(d_kept * kept).sum()",
            {"(d_kept * kept)": "(d_kept * decay * kept)"}),
    Mistake("d_log_decay from the state after", "d_log_decay is computed from the state after writing", "(d_kept * kept).sum()",
            {"(d_kept * kept)": "(d_kept * after)"}),
    Mistake("d_log_decay before the old value is taken off", "d_log_decay is computed from d_after: it lacks the path through the old value",
            "d_kept = d_after - np.outer(k, d_gap) first", {"(d_kept * kept)": "(d_after * kept)"}),
    Mistake("d_state without decay", "d_state lacks the factor e^log_decay", "np.exp(log_decay) * d_kept",
            {"d_beta, decay * d_kept": "d_beta, d_kept"}),
    Mistake("d_state times the log", "d_state is multiplied by log_decay", "np.exp(log_decay) * d_kept",
            {"d_beta, decay * d_kept": "d_beta, log_decay[:, None, None] * d_kept"}),
]  # fmt: skip

TASK = Task(
    delta_step_backward,
    place=268,
    difficulty=5,
    minutes=45,
    needs=("delta-rule", "linear-backward"),
    hints=Hints(
        where="Go through the four lines from the last to the first. k appears in two of them and "
        'kept in two, so their gradients are sums: docs/linear-attention.md; notebook 32, "Remove '
        'before you write".',
        question="Two things depend on `after`. What is the gradient of each with respect to it? "
        "Their sum goes back through the third line. What does it give to kept, to k, and to "
        "beta * gap?",
        mistake="d_k: only where it writes",
        fix="in a loop over the heads, for each of them:\n"
        "d_after = d_after + np.outer(q, d_out / np.sqrt(d_k)); d_gap = beta * (k @ d_after); "
        "d_k = d_after @ (beta * gap) - kept @ d_gap; d_kept = d_after - np.outer(k, d_gap)\n"
        "and then the other three:\n"
        "d_beta = (k @ d_after * gap).sum(); d_log_decay = (d_kept * kept).sum(); d_state = "
        "np.exp(log_decay) * d_kept",
    ),
    returns="tuple[Array, Array, Array, Array, Array, Array]",
    draw=_draw_step,
    laws=[
        Law(
            "d_log_decay is the sum of d_state * state, because both enter only as their product",
            lambda inputs, arrays: (
                (arrays["d_state"] * inputs["state"]).sum(axis=(1, 2)) - arrays["d_log_decay"]
            ),
        )
    ],
    slope=_slope_of_step,
    mistakes=MISTAKES,
)
