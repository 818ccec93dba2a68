"""A mixture: weights that an output shows, where no scores that are known give them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.calling.ways import Way
from mha_numpy.identifying.family import Problem, Settings, evaluate
from mha_numpy.identifying.searching.calls import call_way, call_with
from mha_numpy.identifying.searching.reading import (
    CLOSE,
    CLOSE_SCORES,
    read_weights,
    readings,
    settings_of,
)
from mha_numpy.identifying.searching.search import Found, Seen, search

OF_PATTERN = settings_of("see")
SMALL = 1e-11  # smaller weights are 0, but for rounding
LINE = (0.0, 0.5, 1.0, 1.5)  # points
DIFFERENCES = ((1, -1), (1, -2, 1), (1, -3, 3, -1))  # 0 for polynomials of degree 0, 1, 2
PRODUCT = "up to a term for each query, their logs are a product of queries and keys"
SCALED = "scaling tokens does not change them"
PARTS = {
    "queries": ("query", "x_q", "wide_q"),
    "keys": ("key", "x_k", "wide_k", "memory", "key_value"),
    "tokens": ("x", "packed"),
}
TOKENS = [role for roles in PARTS.values() for role in roles]
OF_KEYS = (*PARTS["keys"], *PARTS["tokens"], "value", "x_v", "wide_v")
LOWEST = float(np.log(SMALL))
OTHERS = "other tokens"  # than the query and the key, on which weights may depend
MOST = 12  # readings that are tried


class Mixture(NamedTuple):
    """Weights that were read, though nothing that is known gives them."""

    found: Found  # the scores that were read, and the settings around them
    complete: Callable[[Problem], Problem]  # reads the scores for another problem
    has_gaps: bool  # cells without weight, by no rule that is known
    depend: tuple[str, ...]  # on what the weights depend
    logs: str  # what their logs are of it


def find_mixture(
    subject: Subject, seen: Sequence[Seen], numbers: Sequence[float]
) -> Mixture | None:
    """Return a way whose output has weights that reach other tokens, the best understood one."""
    read = [
        (group[0].way, {**of_values, **sums})
        for group, of_values, weights in islice(
            readings([[one] for one in seen], subject.until), MOST
        )
        if (sums := _sums(weights)) is not None
        and abs(weights * (1 - np.eye(*weights.shape[-2:]))).max() > CLOSE
    ]
    for (floor, most), (way, base) in product(((0.0, 3), (LOWEST, 0)), read):  # a rule, or none
        with subject.completing(partial(with_scores, subject, way, base, floor)) as complete:
            calls = [call_way(subject, way, seed=seed)[0] for seed in (0, 1)]
            group = [one for one in calls if one and "read" in one.problem.given]
            found = group[1:] and search(
                [group], numbers, until=subject.until, most=dict.fromkeys(range(most + 1), 1),
                bases=(base,), only=OF_PATTERN,
            )  # fmt: skip
            if found:
                return Mixture(found, complete, floor < 0, *look_at_weights(subject, found))
    return None


def _sums(weights: Array) -> Settings | None:
    """Return the setting that says where weights sum to 1, None if they do not."""
    for name, axis in (("keys", -1), ("queries", -2), ("heads", 1)):
        if weights.min() > -CLOSE and abs(weights.sum(axis) - 1).max() < CLOSE:
            return {} if name == "keys" else {"softmax_axis": name}
    return None


def with_scores(
    subject: Subject, way: Way, settings: Settings, floor: float, problem: Problem
) -> Problem:
    """Return a problem with the scores that a call has, or `floor` where a weight is 0."""
    way, best = way._replace(sizes=problem.sizes), np.zeros(1)
    for plain in _unmasked(problem):
        try:
            called = call_with(subject, way, plain)
        except KeyError:  # what was taken away has to be passed
            continue
        weights = read_weights(Seen(way, plain, called), settings)
        if weights is not None and np.count_nonzero(abs(weights) > SMALL) > np.count_nonzero(best):
            best = np.where(abs(weights) > SMALL, weights, 0)
    scores = np.where(best > 0, np.log(np.maximum(best, SMALL)), floor)
    return problem.but(read=scores) if best.ndim == 4 else problem


def _unmasked(problem: Problem) -> Iterator[Problem]:
    """Yield problems in which nothing is hidden, whichever value of a mask hides."""
    S, T = problem.sizes.S, problem.sizes.T
    for value in (True, False)[: 1 + ("mask" in problem.given)]:
        idle = {"bias": 0, "more_bias": 0, "lengths": S, "q_lengths": T}
        idle |= {"mask": value, "more_mask": value}
        arrays = {role: x for role, x in problem.given.items() if isinstance(x, np.ndarray)}
        yield problem.but(
            **{
                role: np.full_like(x, idle[role]) if role in idle else np.nan_to_num(x)
                for role, x in arrays.items()
            }
        )


def look_at_weights(subject: Subject, found: Found) -> tuple[tuple[str, ...], str]:
    """Return what weights depend on, and a sentence about their logs."""
    read = partial(_logs, subject, found)
    plain, own = read(TOKENS, lambda x: x), found.seen.way.roles().keys()
    degrees = {name: _degree(read, each) for name, each in PARTS.items() if {*each} & own}
    depend = [name for name, degree in degrees.items() if degree != 0]
    if depend == ["tokens"]:  # as queries, or as keys?
        gaps = {t: plain - read(TOKENS, partial(_step, token=t)) for t in (0, -1)}
        of_queries = (np.delete(gap[:, :, [t]], t, -1) for t, gap in gaps.items())
        of_keys = (np.delete(gap, t, -2) for t, gap in gaps.items())
        parts = {"queries": of_queries, "keys": of_keys}
        depend = [name for name, each in parts.items() if not all(map(_is_constant, each))]
        depend = depend or ["tokens"]
    if not depend:
        return (), ""
    others = plain - read(TOKENS, partial(_step, token=0))  # as far as it is of other pairs
    if not _is_constant(others[..., 1:, 1:]):
        depend.append(OTHERS)
    moved = _exchanged(_exchanged(plain, -2) if "tokens" in degrees else plain, -1)
    if not _is_constant(moved - read(OF_KEYS, partial(_exchanged, axis=-2))):
        depend.append("positions")
    is_product = [*degrees.values()] in ([1, 1], [2])
    is_free = _is_constant(plain - read(TOKENS, lambda x: 2 * x), False)
    return (*depend,), PRODUCT if is_product else SCALED if is_free else ""


def _logs(
    subject: Subject, found: Found, roles: Sequence[str], change: Callable[[Array], Array]
) -> Array:
    """Return the logs of weights with some arrays changed, NaN where they are not exact."""
    seen, _ = call_way(
        subject, found.seen.way, change=lambda problem: problem.but(
            **{role: change(x) for role, x in problem.given.items() if role in roles}
        ),
    )  # fmt: skip
    values = (evaluate(seen.problem, found.settings) if seen else None) or {"weights": [[[[0.0]]]]}
    weights = np.asarray(values["weights"])
    return np.log(np.where(weights > CLOSE, weights, np.nan))


def _is_constant(gap: Array, if_unknown: bool = True) -> bool:
    """Return whether all keys of a query have the same number, where there are numbers."""
    count = np.isfinite(gap).sum(-1, keepdims=True)
    if not (count > 1).any():
        return if_unknown
    gap = gap - np.nan_to_num(gap).sum(-1, keepdims=True) / np.maximum(count, 1)
    return bool(np.nan_to_num(abs(gap)).max(initial=0.0) < CLOSE_SCORES)


def _step(x: Array, size: float = 1.0, token: int | None = None) -> Array:
    """Return tokens, or one of them, moved in a direction."""
    step = size * np.random.default_rng(1).normal(size=x.shape)
    return x + (step if token is None else step * np.eye(x.shape[-2])[token, :, None])


def _exchanged(x: Array, axis: int) -> Array:
    """Return an array with the first two places of an axis exchanged."""
    order = [*range(x.shape[axis])]
    return x.take(order[1::-1] + order[2:], axis)


def _degree(read: Callable[..., Array], roles: Sequence[str]) -> int | None:
    """Return the degree of logs as a polynomial of some arrays, None if it is above 2 or none."""
    points = [read(roles, partial(_step, size=at)) for at in LINE]
    for degree, signs in enumerate(DIFFERENCES):
        terms = [sign * point for sign, point in zip(signs, points, strict=False)]
        if _is_constant(np.sum(np.broadcast_arrays(*terms), axis=0), False):
            return degree
    return None
