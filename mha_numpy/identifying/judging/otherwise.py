"""What a function does that is no attention as the family knows it."""

from collections.abc import Sequence

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.roles import MAIN, TOKENS
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.facts.probes import moved
from mha_numpy.identifying.reporting.rows import ROLES
from mha_numpy.identifying.searching.reading import CLOSE, read_weights
from mha_numpy.identifying.searching.search import Seen


def describe_unknown(subject: Subject, seen: Sequence[Seen], trouble: str) -> str:
    """Say in two sentences what was seen, and what to tell `identify`."""
    if not seen:
        names = [argument.name for argument in subject.arguments]
        guesses = ", ".join(map(_guess, names)) or "none"
        because = f"; the likeliest one raised {trouble}" if trouble else ""
        return (
            f"no call worked{because}. The arguments were taken for: {guesses}. "
            f"If one of them is something else, say so, for example given={{{_other(names)}}}"
        )
    known = _mixture(seen) or _reach(subject, seen[0])
    return (
        "identify can call it, but knows no attention that gives its numbers, even with a few "
        f"mistakes in it. {known[0].upper()}{known[1:]}"
    )


def _mixture(seen: Sequence[Seen]) -> str:
    """Say of which kind the weights are that an output has, if it is a weighted sum of values."""
    for one in seen:
        weights = read_weights(one, {})
        if weights is None:
            continue
        earlier, later = np.tril(weights, -1), np.triu(weights, 1)
        if abs(earlier + later).max() > CLOSE:
            sums = "sum to 1" if abs(weights.sum(-1) - 1).max() < CLOSE else "do not sum to 1"
            causal = " and are 0 for later keys" if abs(later).max() < CLOSE else ""
            return (
                f"it mixes the values with weights that {sums}{causal}, "
                "but identify does not know how these follow from the queries and keys"
            )
    return ""


def _guess(name: str) -> str:
    roles = [role for role in roles_by_name(name) if role in ROLES]
    return f"{name} = {ROLES[roles[0]].split(',')[0]}" if roles else f"{name} = ?"


def _other(names: Sequence[str]) -> str:
    """Return an argument with what else it may be, one without a role if there is one."""
    roles = [[r for r in roles_by_name(name) if r in (*MAIN, "mask")] for name in names]
    order = sorted(range(len(names)), key=lambda at: (len(roles[at]) > 0, len(roles[at]) == 1))
    at = next(iter(order), None)
    return '"query": "x"' if at is None else f'"{[*roles[at], "mask", "mask"][1]}": "{names[at]}"'


def _reach(subject: Subject, seen: Seen) -> str:
    """Say which tokens an output depends on."""
    role = next((role for role in TOKENS if role in seen.problem.given), "")
    T = seen.problem.sizes.T
    array = seen.called.arrays[0][1]
    layout = seen.way.roles().get(role, "").split()
    shape = seen.problem.sizes.shape(" ".join(layout[:-1]))
    is_odd = "T" not in layout[:-1] or layout[-1] == "1" or array.shape[:-1] != shape
    if not seen.way.is_self or T < 2 or is_odd:
        return f"its output has the shape {array.shape}"
    axis = layout.index("T")
    reach = np.zeros((T, T), bool)
    for token in range(T):
        problem = moved(seen.problem, role, token)
        called = subject.call(seen.way.given(problem), seen.way.argument("result"))
        if not called.arrays or called.arrays[0][1].shape != array.shape:
            return f"its output has the shape {array.shape}"
        reach[:, token] = _changed(called.arrays[0][1], array, axis)
    if (reach == np.eye(T, dtype=bool)).all():
        return "each token's output depends on that token alone, so nothing attends"
    if not reach.any():
        return "its output is the same for all inputs"
    distance = np.subtract.outer(np.arange(T), np.arange(T))[reach]
    if not reach.all() and abs(distance).max(initial=0) < T - 1:
        before, after = distance.max(initial=0), -distance.min(initial=0)
        return f"each token's output depends on {before} tokens before it and {after} after it"
    return "each token's output depends on other tokens, in a way that identify does not know"


def _changed(new: Array, old: Array, axis: int) -> Array:
    rest = tuple(other for other in range(old.ndim) if other != axis)
    return np.asarray((new != old).any(axis=rest))
