"""What a function does that is no attention as the family knows it."""

from collections.abc import Mapping, Sequence

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.roles import TOKENS, hidden_roles
from mha_numpy.identifying.calling.shapes import MAIN
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.facts.probes import moved
from mha_numpy.identifying.reporting.rows import ROLES
from mha_numpy.identifying.searching.mixture import OTHERS, Mixture
from mha_numpy.identifying.searching.search import Seen


def describe_unknown(
    subject: Subject, seen: Sequence[Seen], trouble: str, mixture: Mixture | None = None
) -> str:
    """Say in two sentences what was seen, and what to tell `identify`."""
    if mixture:
        return _mixture(mixture)
    if not seen:
        names = [argument.name for argument in subject.arguments]
        guesses = ", ".join(_guess(name, subject.given) for name in names) or "none"
        because = f"; the likeliest one raised {trouble}" if trouble else ""
        stored = "" if trouble else _stored(subject)
        example = _other(names, subject.given, _alone(subject))
        return (
            f"no call worked{because}. The arguments were taken for: {guesses}. {stored}"
            f"If one of them is something else, give its role{example}"
        )
    known = _reach(subject, seen[0])
    return (
        "identify can call it, but knows no attention that gives its numbers, even with a few "
        f"mistakes in it. {known[0].upper()}{known[1:]}"
    )


def _mixture(mixture: Mixture) -> str:
    """Say of which kind the weights are, and what is known of the scores."""
    sums = f"sum to 1 over the {mixture.found.settings.get('softmax_axis', 'keys')}"
    if not mixture.depend:
        return (
            f"it mixes the values with weights that {sums}, but these are the same for all inputs, "
            "so nothing attends"
        )
    zeros = ", some of which are 0 by a rule that it does not know" * mixture.has_gaps
    *others, last = (f"the {each}" for each in mixture.depend if each != OTHERS)
    depend = f"{', '.join(others)} and {last}" if others else f"{last} alone"
    depend += ", and the weight of a key changes with other tokens" * (OTHERS in mixture.depend)
    return (
        f"it attends, but identify does not know its scores. It mixes the values with weights that "
        f"{sums}{zeros}. They depend on {depend}{'; ' * bool(mixture.logs)}{mixture.logs}. "
        "The rest of this report does not depend on the scores"
    )


def _guess(name: str, given: Mapping[str, str]) -> str:
    own = given.get(name) or next(iter(_named(name)), "")
    return f"{name} = {ROLES.get(own, own or '?').split(',')[0]}"


def _named(name: str) -> list[str]:
    """Return the roles that a name suggests, as datasheets call them."""
    roles = ("mask" if role == "padding" else role for role in roles_by_name(name))
    return [role for role in roles if role in ROLES]


def _stored(subject: Subject) -> str:
    """Say what its own params were taken for, whose shapes may be why there is no call to make."""
    roles = hidden_roles(subject)
    shapes = {name: subject.hidden[name].shape for name in roles}
    taken = (f"{name} {shapes[name]} = {ROLES.get(role, role)}" for name, role in roles.items())
    return f"The params that it stores were taken for: {', '.join(taken)}. " if roles else ""


def _alone(subject: Subject) -> str:
    """Return the only argument that may have tokens among those that have to be passed."""
    roles = {a.name: roles_by_name(a.word) for a in subject.arguments if a.is_required}
    tokens = [name for name, own in roles.items() if not own or {*own} & {*MAIN}]
    return tokens[0] if len(tokens) == 1 else ""


def _other(names: Sequence[str], given: Mapping[str, str], alone: str = "") -> str:
    """Return an example of a role for an argument whose name says nothing or several things."""
    roles = {n: _named(n) for n in names if n not in given}
    main = {n: [r for r in own if r in MAIN] for n, own in roles.items()}
    unclear = [name for name, own in roles.items() if not own or len(main[name]) > 1]
    name = min(unclear, key=lambda name: len(roles[name]), default="")
    taken = {*given.values(), *(own[0] for own in roles.values() if own)}
    usual = ("memory",) if "x" in taken else ("query", "key", "value")
    if name and name == alone and taken.isdisjoint(MAIN):
        usual = ("x",)
    left = (*main.get(name, ())[1:], *usual, "mask", "bias", "lengths")
    role = next((role for role in left if role not in taken), "window")
    if not roles:  # all are given
        return ""
    return f', for example given={{"{role}": "{name or "NAME"}"}}'


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
