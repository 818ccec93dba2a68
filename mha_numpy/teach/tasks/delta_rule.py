"""The delta rule, token by token."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import normal
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Reaction, Task, moved


class Remembered(NamedTuple):
    """What the tokens read, and the state after the last one."""

    out: Array  # (T, d_v)
    last: Array  # (d_k, d_v)


def delta_rule(
    q: Array, k: Array, v: Array, log_decay: Array, beta: Array, state: Array
) -> Remembered:
    """Let each token of one head fade the state, correct it at its key, and read from it.

    One token after the other, from the first to the last:

    1. the state is multiplied by e^log_decay of the token;
    2. the token reads with its key what that state says, and takes it from its value: the *gap*;
    3. beta times the gap is written at the key: cell (i, j) of the state gains feature i of the key
       times feature j of what is written;
    4. the token reads its output with its query, divided by the square root of d_k, from the state
       that it has written to.

    Keys may have any length; take them as they are.

    Parameters
    ----------
    q, k : (T, d_k)
    v : (T, d_v)
    log_decay : (T,)
        0 or less.
    beta : (T,)
        Between 0 and 1.
    state : (d_k, d_v)
        What earlier tokens left.

    Returns
    -------
    out : (T, d_v)
    last : (d_k, d_v)
        The state after the last token.
    """
    out = np.empty((len(q), v.shape[-1]))
    for t in range(len(q)):
        kept = np.exp(log_decay[t]) * state
        gap = v[t] - k[t] @ kept
        state = kept + np.outer(k[t], beta[t] * gap)
        out[t] = q[t] @ state / np.sqrt(q.shape[-1])
    return Remembered(out, state)


def draw_delta(
    rng: np.random.Generator, T: int, d_k: int, d_v: int, *, length: float = 1.0
) -> Inputs:
    """Draw tokens whose keys have about the same length, and a state."""
    inputs = normal(rng, q=(T, d_k), k=(T, d_k), v=(T, d_v))
    inputs["k"] *= length / np.sqrt(d_k)
    inputs["log_decay"] = -rng.uniform(0.1, 1.5, T)
    inputs["beta"] = rng.uniform(0.2, 0.9, T)
    return inputs | {"state": rng.normal(size=(d_k, d_v))}


MISTAKES: list[Mistake] = [
    Mistake("old value not removed", "the old value is not taken off, so values at one key add up",
            "gap = v[t] - k[t] @ kept", {"v[t] - k[t] @ kept": "v[t]"}),
    Mistake("old value added", "the old value is added to the new one", "gap = v[t] - k[t] @ kept",
            {"v[t] - k[t] @ kept": "v[t] + k[t] @ kept"}),
    Mistake("old value read before it faded", "the old value is read from the state before it faded",
            "gap = v[t] - k[t] @ kept", {"k[t] @ kept": "k[t] @ state"}),
    Mistake("old value read with the query", "the old value is read with the query",
            "gap = v[t] - k[t] @ kept", {"k[t] @ kept": "q[t] @ kept"}),
    Mistake("old value scaled", "the old value is divided by sqrt(d_k)",
            "only the output is scaled", {"k[t] @ kept": "k[t] @ kept / np.sqrt(q.shape[-1])"}),
    Mistake("own new value taken off too", "each token takes off what it writes itself, too",
            "take off only what earlier tokens have written (at once: a strictly lower triangle)",
            {"v[t] - k[t] @ kept": "(v[t] - k[t] @ kept) / (1 + beta[t] * (k[t] @ k[t]))"}),
    Mistake("beta on the new value only", "beta multiplies the new value, but not the old one that is taken off",
            "beta[t] * (v[t] - k[t] @ kept)", {"v[t] - k[t] @ kept": "v[t] - k[t] @ kept / beta[t]"}),
    Mistake("beta on the old value only", "beta multiplies the old value that is taken off, but not the new one",
            "beta[t] * (v[t] - k[t] @ kept)", {"v[t] - k[t] @ kept": "v[t] / beta[t] - k[t] @ kept"}),
    Mistake("beta left out", "the whole gap is written: beta is not used", "beta[t] * gap",
            {"beta[t] * gap": "gap"}),
    Mistake("beta twice", "beta multiplies both the key and the gap", "one factor beta in what is written",
            {"beta[t] * gap": "beta[t] ** 2 * gap"}),
    Mistake("beta on the state", "the state is multiplied by 1 - beta, at all keys",
            "take off the old value of this key only",
            {"v[t] - k[t] @ kept": "v[t]", "= kept + np": "= (1 - beta[t]) * kept + np"}),
    Mistake("state does not fade", "log_decay is not used", "np.exp(log_decay[t]) * state",
            {"np.exp(log_decay[t]) * state": "state"}),
    Mistake("only the old value fades", "the old value is read from a faded state, but the state itself does not fade",
            "state = kept + ...", {"= kept + np": "= state + np"}),
    Mistake("decay not out of its log", "the state is multiplied by log_decay", "np.exp(log_decay[t])",
            {"np.exp(log_decay[t])": "log_decay[t]"}),
    Mistake("decay with the wrong sign", "the state is multiplied by e^-log_decay, so it grows", "np.exp(log_decay[t])",
            {"np.exp(log_decay[t])": "np.exp(-log_decay[t])"}),
    Mistake("decay 1 + log_decay", "the state is multiplied by 1 + log_decay", "np.exp(log_decay[t])",
            {"np.exp(log_decay[t])": "(1 + log_decay[t])"}),
    Mistake("decay through a sigmoid", "the state is multiplied by sigmoid(log_decay)", "np.exp(log_decay[t])",
            {"np.exp(log_decay[t])": "1 / (1 + np.exp(-log_decay[t]))"}),
    Mistake("faded after writing", "the state fades after the token has written, so the new value fades at once",
            "fade first, then write",
            {"kept = np.exp(log_decay[t]) * state": "kept = state",
             "kept + np.outer(k[t], beta[t] * gap)": "np.exp(log_decay[t]) * (kept + np.outer(k[t], beta[t] * gap))"}),
    Mistake("faded after reading", "the state fades after the token has read, so each token uses the decay of the one before",
            "fade first, then write and read",
            {"kept = np.exp(log_decay[t]) * state": "kept = (np.exp(log_decay[t - 1]) if t else 1.0) * state",
             "Remembered(out, state)": "Remembered(out, np.exp(log_decay[-1]) * state)"}),
    Mistake("output read before writing", "the output is read before the token has written", "write, then q[t] @ state",
            {"q[t] @ state": "q[t] @ kept"}),
    Mistake("output read from the token before", "the output is read from the state of the token before, which has not faded",
            "write, then q[t] @ state",
            {"kept = np.exp": "before = state\n        kept = np.exp", "q[t] @ state": "q[t] @ before"}),
    Mistake("all outputs read from the last state", "every query reads the state after the last token, so tokens see later ones",
            "each query reads the state of its own token: q[t] @ state in the loop",
            {"    return Remembered(out, state)": "    return Remembered(q @ state / np.sqrt(q.shape[-1]), state)"}),
    Mistake("new value fades instead of the state", "what is written is multiplied by e^log_decay, and the state before it is not",
            "kept = np.exp(log_decay[t]) * state, before anything is read or written",
            {"kept = np.exp(log_decay[t]) * state": "kept = state",
             "np.outer(k[t], beta[t] * gap)": "np.exp(log_decay[t]) * np.outer(k[t], beta[t] * gap)"}),
    Mistake("output read with the key", "the output is read with the key", "q[t] @ state", {"q[t] @ state": "k[t] @ state"}),
    Mistake("outer product transposed", "the outer product is transposed: features of the value are rows",
            "np.outer(k[t], beta[t] * gap)", {"np.outer(k[t], beta[t] * gap)": "np.outer(beta[t] * gap, k[t])"}),
    Mistake("written at the query", "the gap is written at the query", "np.outer(k[t], beta[t] * gap)",
            {"np.outer(k[t]": "np.outer(q[t]"}),
    Mistake("written with the scale", "what is written is divided by sqrt(d_k)", "only the output is scaled",
            {"beta[t] * gap": "beta[t] * gap / np.sqrt(q.shape[-1])"}),
    Mistake("state not carried", "each token starts from the state that is passed, not from the one that the token before it left", "state = kept + ...",
            {"for t in range(len(q)):": "first = state\n    for t in range(len(q)):",
             "np.exp(log_decay[t]) * state": "np.exp(log_decay[t]) * first"}),
    Mistake("state starts at 0", "the first token starts from zeros, not from the state that is passed", "start from `state`",
            {"for t in range(len(q)):": "state = np.zeros_like(state)\n    for t in range(len(q)):"}),
    Mistake("last token not in the state", "the returned state lacks the last token", "return the state after the loop",
            {"Remembered(out, state)": "Remembered(out, kept)"}),
    Mistake("first state returned", "the state is returned as it came", "return the state after the loop",
            {"for t in range(len(q)):": "first = state\n    for t in range(len(q)):",
             "Remembered(out, state)": "Remembered(out, first)"}),
    Mistake("keys brought to length 1", "the keys are brought to length 1", "the keys as they are",
            {"for t in range(len(q)):": "k = k / np.linalg.norm(k, axis=-1, keepdims=True)\n    for t in range(len(q)):"}),
    Mistake("all gaps from the first state", "all gaps are computed from the first state, and then written one by one",
            "each token's gap from the state just before it writes",
            {"for t in range(len(q)):": "first = state\n    for t in range(len(q)):", "k[t] @ kept": "k[t] @ (np.exp(log_decay[: t + 1].sum()) * first)"}),
    Mistake("output not scaled", "the output is not divided by sqrt(d_k)", "q[t] @ state / np.sqrt(d_k)",
            {"q[t] @ state / np.sqrt(q.shape[-1])": "q[t] @ state"}),
    Mistake("output divided by d_k", "the output is divided by d_k instead of its root", "q[t] @ state / np.sqrt(d_k)",
            {"q[t] @ state / np.sqrt(q.shape[-1])": "q[t] @ state / q.shape[-1]"}),
    Mistake("output times sqrt(d_k)", "the output is multiplied by sqrt(d_k)", "q[t] @ state / np.sqrt(d_k)",
            {"q[t] @ state / np": "q[t] @ state * np"}),
]  # fmt: skip

TASK = Task(
    delta_rule,
    place=266,
    difficulty=3,
    minutes=25,
    needs=("one-query",),
    hints=Hints(
        where="What a token removes and writes is in notebook 32, "
        '"Remove before you write": the loop there, and the equation of the gated delta rule.',
        question="A state of zeros meets the key (1, 0) with the value 3 and beta 1, and then the "
        "same key with the value 5, without decay. What does the second token read with its key "
        "before it writes? So what is left to write?",
        mistake="old value not removed",
        fix="kept = np.exp(log_decay[t]) * state; gap = v[t] - k[t] @ kept; state = kept + "
        "np.outer(k[t], beta[t] * gap)\n"
        "then the token reads from the new state:\n"
        "out[t] = q[t] @ state / np.sqrt(q.shape[-1])",
    ),
    returns="tuple[Array, Array]",
    draw=lambda rng: [  # all sizes different, a square, a single token, long keys
        draw_delta(rng, 5, 4, 3),
        draw_delta(rng, 4, 4, 4),
        draw_delta(rng, 1, 3, 2),
        draw_delta(rng, 7, 2, 1, length=1.5),
    ],
    laws=[
        Law(
            "the last output, times sqrt(d_k), is what the last query reads from the last state",
            lambda inputs, arrays: (
                arrays["out"][-1] * np.sqrt(inputs["q"].shape[-1])
                - inputs["q"][-1] @ arrays["last"]
            ),
        )
    ],
    reactions=[
        Reaction(
            "changing the last query changes only the last row of out",
            moved("q", -1),
            lambda _, arrays: arrays["out"][:-1],
        ),
        Reaction(
            "changing the queries does not change the last state",
            moved("q", np.s_[:]),
            lambda _, arrays: arrays["last"],
        ),
    ],
    mistakes=MISTAKES,
)
