"""The gradients of a function: are they right, and if not, which mistake gives these numbers."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.asked import Asked, Leaf, ask
from mha_numpy.identifying.backward import Backward, same
from mha_numpy.identifying.backward_calls import BackwardCall, by_autograd
from mha_numpy.identifying.backward_mistakes import Mistake, mistakes_in, name_of
from mha_numpy.identifying.search import Found
from mha_numpy.identifying.subject import Subject

FEW = 1e-5  # the largest relative difference of a right gradient


class GradientRow(NamedTuple):
    """What was found out about one gradient."""

    name: str  # "d_q", "d_w_o" ...
    argument: str  # whose gradient it is
    is_right: bool
    error: float  # the largest difference, relative to the largest right number
    says: str
    mistake: str = ""


def look_at_gradients(
    subject: Subject, found: Found, backward: Callable[..., Any] | None, until: float
) -> list[GradientRow]:
    """Compare the gradients of a function with numerical derivatives; name the mistakes.

    Parameters
    ----------
    subject, found
        The function, and what it was found to compute.
    backward
        Its backward function, of any signature; None for the framework's autograd.
    until : float
        When to stop, as `time.monotonic` counts.

    Returns
    -------
    list of GradientRow
        One for each gradient that was returned and could be judged.
    """
    asked = ask(subject, found, until)
    way_back = _way_back(asked)
    truth = {leaf: d for leaf in asked.leaves if (d := _truth(asked, way_back, leaf)) is not None}

    def judge(leaf: Leaf, array: Array) -> bool:
        return leaf in truth and _is_right(array, truth[leaf], truth)

    if backward is None:
        returned, blind = by_autograd(asked), by_autograd
    else:
        call = BackwardCall(asked, backward, judge)
        returned, blind = call.gradients(asked, judge), lambda a: call.gradients(a, judge)
    returned = {leaf: array for leaf, array in returned.items() if leaf in truth}
    wrong = {x: a for x, a in returned.items() if _error(a, truth[x], truth) > FEW}
    mistakes = _explain(asked, way_back, wrong, [*returned], truth) if way_back else {}
    rows = {
        leaf: _row(leaf, array, truth, mistakes.get(leaf, ())) for leaf, array in returned.items()
    }
    return [*(rows | _look_at_blind_rows(asked, blind, rows)).values()]


def _way_back(asked: Asked) -> Backward | None:
    """Return the backward pass in formulas; None if forward is too strange for them."""
    try:
        return Backward(asked.problem, asked.found.settings, asked.found.fits[0].what, asked.d_out)
    except (ValueError, IndexError, KeyError, NameError, AttributeError, TypeError):
        return None


def _truth(asked: Asked, way_back: Backward | None, leaf: Leaf) -> Array | None:
    """Return the right gradient of an array; None if two ways to differentiate disagree.

    The formulas of backward are compared with differences of the family along a random direction,
    and so is the function itself. Where the formulas do not hold, because forward is strange, each
    number is differentiated.
    """
    problem, rng = asked.problem, np.random.default_rng(6)
    if leaf.role not in problem.given:
        return None
    array = problem.given[leaf.role]

    def slope(by: Array) -> float:
        up, down = (asked.family_loss(problem.but(**{leaf.role: array + d})) for d in (by, -by))
        return (up - down) / 2e-4

    direction = rng.normal(size=array.shape)
    right = way_back.right.get(f"d_{leaf.role}") if way_back else None
    if right is None or not _is_close((right * direction).sum(), slope(1e-4 * direction), right):
        right = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            by = np.zeros(array.shape)
            by[index] = 1e-4
            right[index] = slope(by)
            if time.monotonic() > asked.until:
                return None
    passed = leaf.as_passed(right, problem)
    if leaf.is_hidden:
        return passed
    direction = rng.normal(size=passed.shape)
    own = asked.slope(leaf, direction)
    return passed if _is_close((passed * direction).sum(), own, passed, 1e-3) else None


def _is_close(a: float, b: float, gradient: Array, close: float = 1e-5) -> bool:
    return bool(abs(a - b) <= close * (1 + np.linalg.norm(gradient)))


def _error(array: Array, right: Array, truth: Mapping[Leaf, Array]) -> float:
    """Return the largest difference; a gradient that is 0 is measured by the others."""
    if array.shape != right.shape:
        return np.inf
    size = max(abs(right).max(initial=0), 1e-3 * max(abs(a).max(initial=0) for a in truth.values()))
    gap = abs(array - right).max(initial=0)
    return float(gap / size) if np.isfinite(gap) else np.inf


def _is_right(array: Array, right: Array, truth: Mapping[Leaf, Array]) -> bool:
    """Return whether a gradient is right: exactly 0, too, where nothing sees."""
    if _error(array, right, truth) > FEW:
        return False
    return _error(np.where(right == 0, array, right), right, truth) <= 1e-12


def _explain(
    asked: Asked, way_back: Backward, wrong: Mapping[Leaf, Array], returned: Sequence[Leaf],
    truth: Mapping[Leaf, Array],
) -> dict[Leaf, tuple[Mistake, ...]]:  # fmt: skip
    """Return the fewest mistakes that give each wrong gradient, the same for many if possible."""
    right = way_back.run({}) or {}

    def explained_by(own: Mapping[str, Array] | None) -> list[Leaf]:
        return [
            leaf for leaf, array in wrong.items()
            if own and leaf.role in own and same(array, leaf.as_passed(own[leaf.role], asked.problem))
        ]  # fmt: skip

    found: dict[Leaf, tuple[Mistake, ...]] = {}
    single = []
    for mistake, own in mistakes_in(way_back) if wrong else ():
        changed = {x for x in returned if x.role in own and not same(own[x.role], right[x.role])}
        single.append((mistake, changed, explained_by(own)))
    single.sort(key=lambda each: (not each[1] <= {*wrong}, -len(each[2])))
    for mistake, _, explained in single:
        found = dict.fromkeys(explained, (mistake,)) | found
    told = {mistake.name for each in found.values() for mistake in each}
    single.sort(key=lambda each: each[0].name not in told)
    for leaf, array in wrong.items():
        if leaf in found or _factor(array, truth[leaf]) is not None:
            continue
        most = 0
        inside = [mistake for mistake, changed, _ in single if leaf in changed <= {*wrong}]
        for one, two in combinations(inside, 2):
            if time.monotonic() > asked.until or most == len(wrong):
                break
            if one.edits.keys() & two.edits.keys():
                continue
            explained = explained_by(way_back.run(one.edits | two.edits))
            if leaf in explained and len(explained) > most:
                most = len(explained)
                found |= {each: (one, two) for each in explained if len(found.get(each, "..")) > 1}
    return found


def _factor(array: Array, right: Array) -> float | None:
    """Return by which factor a gradient is wrong, if it is only a factor."""
    if array.shape != right.shape or not right.any():
        return None
    factor = float((array * right).sum() / (right * right).sum())
    return factor if same(array, factor * right) else None


def _row(
    leaf: Leaf, array: Array, truth: Mapping[Leaf, Array], mistakes: Sequence[Mistake]
) -> GradientRow:
    """Say what was found out about a gradient."""
    d, right = name_of(leaf.role), truth[leaf]
    argument = leaf.argument if leaf.key is None else f"{leaf.argument}[{leaf.key!r}]"
    error = _error(array, right, truth)
    if _is_right(array, right, truth):
        return GradientRow(d, argument, True, error, f"{d} agrees with the numerical derivative")
    factor = _factor(array, right)
    if mistakes:
        says, mistake = ("; ".join(texts) for texts in list(zip(*mistakes, strict=True))[1::-1])
    elif array.shape != right.shape:
        is_turned = array.shape == right.T.shape and same(array, right.T)
        says = f"{d} has the shape {array.shape}, but {argument} has {right.shape}"
        says, mistake = (f"{d} is transposed", f"{d} transposed") if is_turned else (says, "shape")
    elif not np.isfinite(array).all():
        says, mistake = f"{d} has NaN or inf", "NaN"
    elif error <= FEW:
        says, mistake = f"{d} is not exactly 0 where no query sees", "hidden cells get gradients"
    elif factor is not None:
        says, mistake = f"{d} is {factor:.4g} times the right gradient", f"{d} has a wrong factor"
    else:
        says = f"{d} differs from the numerical derivative by up to {error:.2g} of its largest number"
        mistake = ""
    return GradientRow(d, argument, False, error, says, mistake)


def _look_at_blind_rows(
    asked: Asked, gradients: Callable[[Asked], Mapping[Leaf, Array]], rows: Mapping[Leaf, GradientRow]
) -> dict[Leaf, GradientRow]:
    """Return rows for gradients that go wrong only if a query sees nothing.

    Where forward returns NaN for such a query, nothing is expected of backward.
    """
    mask = asked.problem.get("mask")
    if mask is None or mask.dtype != bool or mask.shape[2] == 1:
        return {}
    mask = mask.copy()
    mask[:, :, 0] = asked.found.settings.get("mask") == "true = blocked"
    blind = asked._replace(problem=asked.problem.but(mask=mask))
    out = blind.output(blind.given())
    if out is None or not np.isfinite(out).all():
        return {}
    found = {}
    for leaf, array in gradients(blind).items():
        if leaf not in rows or not rows[leaf].is_right:
            continue
        direction = np.random.default_rng(8).normal(size=array.shape)
        is_finite = np.isfinite(array).all()
        if not is_finite or not (
            leaf.is_hidden or _is_close((array * direction).sum(), blind.slope(leaf, direction), array, 1e-3)
        ):
            says = f"{rows[leaf].name} is {'wrong' if is_finite else 'NaN'} where a query sees nothing"
            found[leaf] = rows[leaf]._replace(is_right=False, error=np.inf, says=says, mistake="a query sees nothing")
    return found
