"""The gradients of a function: are they right, and if not, which mistake gives these numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.derivatives import central_difference
from mha_numpy.dtypes import Array
from mha_numpy.identifying.blaming.blame import find_wrong
from mha_numpy.identifying.calling.layouts import arrange
from mha_numpy.identifying.calling.subject import Subject, trouble_of
from mha_numpy.identifying.family import AXES, evaluate
from mha_numpy.identifying.gradients.backward import Backward, same
from mha_numpy.identifying.gradients.calls import Call, by_autograd, call_of, kept, pull_back
from mha_numpy.identifying.gradients.mistakes import Mistake, instead_of, mistakes_in, name_of
from mha_numpy.identifying.gradients.trial import Leaf, Trial, make_trial
from mha_numpy.identifying.searching.calls import call_way
from mha_numpy.identifying.searching.search import ROLE_OF, Found, explain

Returned = Mapping[Leaf, Array]
STEP = 1e-4  # of central differences
READ = {"p", "mixed", "own_k", "own_v", "d_out", "d_heads"}  # for several gradients
EXACT = 1e-3  # a larger difference may come of an output that is not exact


class GradientRow(NamedTuple):
    """What was found out about one gradient."""

    name: str  # "d_q", "d_w_o" ...
    argument: str  # whose gradient it is
    is_right: bool
    error: float  # the largest difference, relative to the largest right number
    says: str
    mistake: str = ""
    instead: str = ""
    line: int = 0
    code: str = ""
    path: str = ""  # where it comes back, if forward returns it


def look_at_gradients(
    subject: Subject, found: Found, backward: Callable[..., Any] | None
) -> list[GradientRow]:
    """Compare the gradients of a function with numerical derivatives; name the mistakes.

    Parameters
    ----------
    subject, found
        The function, and what it was found to compute.
    backward
        Its backward function, of any signature; None for the framework's autograd.

    Returns
    -------
    list of GradientRow
        One for each gradient that was returned and could be judged, more if several mistakes are
        in it; a single one without a name if backward could not be called.
    """
    trouble = ""
    if backward is None and subject.framework not in ("torch", "jax"):
        return []
    for each in _other_sizes(subject, found):
        try:
            rows, own = _look(make_trial(subject, each), backward)
        except Exception as error:  # anybody's, in autograd
            rows, own = [], trouble_of(error)
        if rows or subject.left < 0:
            return rows if subject.left > 0 else []
        trouble = trouble or own
    says = f"no way to call backward was found; the likeliest ends with {trouble}"
    is_own = backward not in (None, subject.function, pull_back)
    return [GradientRow("", "", False, np.inf, says)] if trouble and is_own else []


def _other_sizes(subject: Subject, found: Found) -> Iterator[Found]:
    """Yield what was found, with grouped heads first; then with square matrices.

    Only groups show whether their gradients are summed. Some mistakes run with square params only,
    and some functions with keys and values that have one shape.
    """
    way = found.seen.way
    sizes = way.sizes
    square = sizes._replace(T=6, S=6, d=6, e=6, D=0, C=0, W=0)
    alike = sizes._replace(e=sizes.d, S=sizes.T)
    for own in (sizes._replace(G=2), alike._replace(G=2), sizes, square):
        if own == sizes:
            yield found
        elif own is square or (not way.is_inside and sizes.G == sizes.H == 4):
            seen, _ = call_way(subject, way._replace(sizes=own))
            fits = explain(seen, found.settings) if seen else ()
            if seen and fits:
                yield Found(seen, found.settings, fits)


def _look(trial: Trial, backward: Callable[..., Any] | None) -> tuple[list[GradientRow], str]:
    """Return what was found out with these sizes, and the error if backward ends with one."""
    judge = Judge(trial)
    gradients: Callable[[Trial], dict[Leaf, Array]] = by_autograd
    call = call_of(trial, backward, judge.is_right)
    if call is not None:
        gradients = partial(call.gradients, judge=judge.is_right)
    returned = judge.shared(gradients(trial))
    with trial.subject.within(trial.subject.left / 2):
        mistakes = judge.explain(returned)
    rows = {
        leaf: [
            row._replace(path=call.paths.get(leaf, "") if call else "")
            for row in judge.rows(leaf, array, mistakes.get(leaf, ()), call)
        ]
        for leaf, array in returned.items()
    }
    rows |= _look_at_blind_rows(trial, gradients, rows)
    return [row for each in rows.values() for row in each], call.trouble if call else ""


class Judge:
    """The right gradients, and every known mistake."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.few = trial, trial.few
        try:
            what = trial.found.fits[0].what
            self.way_back: Backward | None = Backward(
                trial.problem, trial.found.settings, what, trial.d_out
            )
        except (ValueError, IndexError, KeyError, NameError, AttributeError, TypeError):
            self.way_back = None  # forward is too strange for formulas
        truth = {leaf: self._truth(leaf) for leaf in trial.leaves}
        self.truth = {leaf: right for leaf, right in truth.items() if right is not None}

    def _truth(self, leaf: Leaf) -> Array | None:
        """Return the right gradient of an array; None if two ways to differentiate disagree.

        The formulas of backward are compared with differences of the family along a random
        direction, and so is the function itself. Where the formulas do not hold, because forward
        is strange, each number is differentiated.
        """
        trial, rng = self.trial, np.random.default_rng(6)
        if leaf.role not in trial.problem.given:
            return None
        array = trial.problem.given[leaf.role]

        def slope(direction: Array) -> float:
            def moved(by: float) -> float:
                problem = trial.problem.but(**{leaf.role: array + by * direction})
                return trial.family_loss(problem)

            return float(central_difference(moved, STEP))

        direction = rng.normal(size=array.shape)
        right = self.way_back.right.get(f"d_{leaf.role}") if self.way_back else None
        if right is None or not _is_slope(slope(direction), right, direction, 1e-5):
            right = np.zeros(array.shape)
            for unit in np.eye(array.size).reshape(-1, *array.shape):
                right[unit == 1] = slope(unit)
                if trial.subject.left < 0:
                    return None
        passed = leaf.as_passed(right, trial.problem)
        direction = rng.normal(size=passed.shape)
        if leaf.is_hidden or _is_slope(trial.slope(leaf, direction), passed, direction, 1e-2):
            return passed
        return None

    def shared(self, returned: Returned) -> dict[Leaf, Array]:
        """Return the gradients that can be judged.

        That of a bias may have fewer axes than what was passed: the function is meant for a bias
        that all sequences, or all heads, share.
        """
        found = {}
        for leaf, array in returned.items():
            right = self.truth.get(leaf)
            is_nan = (self.trial.d_out == 0).any() and not np.isfinite(array).all()
            if right is None or is_nan:  # forward has NaN, and so has every backward
                continue
            more = right.ndim - array.ndim
            if leaf.role == "bias" and more > 0 and array.shape == right.shape[more:]:
                leaf = leaf._replace(layout=" ".join(leaf.layout.split()[more:]))
                self.truth[leaf] = right.sum(tuple(range(more)))
            found[leaf] = array
        return found

    def error(self, leaf: Leaf, array: Array) -> float:
        """Return the largest difference; a gradient that is 0 is measured by the others."""
        right = self.truth[leaf]
        if array.shape != right.shape or not np.isfinite(array).all():
            return np.inf
        largest = max(abs(a).max(initial=0) for a in self.truth.values())
        size = max(abs(right).max(initial=0), 1e-2 * largest)
        return float(abs(array - right).max(initial=0) / size)

    def is_right(self, leaf: Leaf, array: Array) -> bool:
        """Return whether a gradient is right: exactly 0, too, where nothing sees."""
        right = self.truth.get(leaf)
        if right is None or self.error(leaf, array) > self.few:
            return False
        if leaf.role[:2] in ("w_", "b_"):  # nothing hides a param
            return True
        return self.error(leaf, np.where(right == 0, array, right)) <= 1e-12

    def explain(self, returned: Returned) -> dict[Leaf, tuple[Mistake, ...]]:
        """Return the fewest mistakes that give each wrong gradient, one for many if possible."""
        way_back, problem = self.way_back, self.trial.problem
        wrong = {x: a for x, a in returned.items() if self.error(x, a) > self.few}
        if way_back is None or not wrong:
            return {}
        right = way_back.run({}) or {}

        def explained_by(own: Mapping[str, Array] | None) -> list[Leaf]:
            given = {x: x.as_passed(own[x.role], problem) for x in wrong if own and x.role in own}
            return [leaf for leaf, d in given.items() if same(wrong[leaf], d, self.few)]

        found: dict[Leaf, tuple[Mistake, ...]] = {}
        single = []
        for mistake, own in mistakes_in(way_back):
            changed = {
                x for x in returned if x.role in own and not same(own[x.role], right[x.role])
            }
            single.append((mistake, changed, explained_by(own)))
        single.sort(key=lambda each: (not each[1] <= {*wrong}, -len(each[2]), len(each[1])))
        for mistake, _, explained in single:
            found = dict.fromkeys(explained, (mistake,)) | found
        told = {mistake.name for each in found.values() for mistake in each}
        single.sort(key=lambda each: each[0].name not in told)
        for leaf, array in wrong.items():
            if leaf in found or self._factor(leaf, array) is not None:
                continue
            most = 0
            inside = [mistake for mistake, changed, _ in single if leaf in changed <= {*wrong}]
            for one, two in combinations(inside, 2):
                if self.trial.subject.left < 0 or most == len(wrong):
                    break
                if one.edits.keys() & two.edits.keys():
                    continue
                explained = explained_by(way_back.run(one.edits | two.edits))
                if leaf in explained and len(explained) > most:
                    most = len(explained)
                    found |= {
                        x: (one, two) for x in explained if x not in found or len(found[x]) > 1
                    }
        shared = {m.name for each in found.values() if len(each) > 1 for m in each}
        for mistake, _, explained in single:  # one of two in another gradient is the same here
            if mistake.name in shared:
                found |= dict.fromkeys(explained, (mistake,))
        return found

    def _factor(self, leaf: Leaf, array: Array) -> float | None:
        """Return by which factor a gradient is wrong, if it is only a factor."""
        right = self.truth[leaf]
        if array.shape != right.shape or not right.any():
            return None
        factor = float((array * right).sum() / (right * right).sum())
        return factor if same(array, factor * right, self.few) else None

    def rows(
        self, leaf: Leaf, array: Array, mistakes: Sequence[Mistake], call: Call | None
    ) -> Iterator[GradientRow]:
        """Say what was found out about a gradient, and which line each mistake is in."""
        d, error = name_of(leaf.role), self.error(leaf, array)
        whole = leaf.argument
        if self.is_right(leaf, array):
            yield GradientRow(d, whole, True, error, f"{d} agrees with the numerical derivative")
            return
        if not mistakes or not array.any():
            says, name = self._verdict(leaf, array)
            if not name and EXACT < error < 10 * self.few:  # the output itself is not exact
                return
            mistakes = [Mistake(name, says, {})]
        for mistake in mistakes:
            others = [each for each in mistakes if each is not mistake]
            row = GradientRow(d, whole, False, error, mistake.says, mistake.name)
            yield self._with_line(row, leaf.role, mistake, others, call) if call else row

    def _with_line(
        self, row: GradientRow, role: str, mistake: Mistake, others: Sequence[Mistake],
        call: Call,
    ) -> GradientRow:  # fmt: skip
        """Find the line that goes wrong, where other mistakes are as they are."""
        if self.way_back is None:
            return row
        edits = {step: text for each in others for step, text in each.edits.items()}
        right = self.way_back.arrays({})
        usual = self.way_back.arrays(edits) or right
        known = {n: [a] if usual[n] is a else [a, usual[n]] for n, a in right.items()}
        known |= {n: [a] for n, a in self.way_back.values.items() if isinstance(a, np.ndarray)}
        own = self.way_back.arrays(edits | mistake.edits)
        wrong = {n: [a] for n, a in own.items() if not any(same(a, b) for b in known[n])}
        before = self.way_back.leading_to([*mistake.edits, f"d_{role}"][:1]) - READ
        with kept(call.holder):
            blame, unseen = find_wrong(call.subject, call.given(self.trial), known, wrong, before)
        steps = [*mistake.edits]
        if not steps:  # the one after the last right one
            last = max((i for i, step in enumerate(right) if step in before - unseen), default=-1)
            steps = [step for step in [*right][last + 1 :] if step in {*unseen, f"d_{role}"}][:1]
        row = row._replace(instead=instead_of(steps))
        return row._replace(line=blame.line, code=blame.text) if blame else row

    def _verdict(self, leaf: Leaf, array: Array) -> tuple[str, str]:
        """Return what is wrong with a gradient that no known mistake gives, and its name."""
        d, shape, error = name_of(leaf.role), self.truth[leaf].shape, self.error(leaf, array)
        factor = self._factor(leaf, array)
        if factor is not None and not array.any():
            return f"{d} is 0: no gradient arrives", f"{d} zero"
        if array.shape != shape:
            return f"{d} has the shape {array.shape}, but {leaf.label} has {shape}", f"shape of {d}"
        if not np.isfinite(array).all():
            return f"{d} has NaN or inf", f"NaN in {d}"
        if error <= self.few:
            return f"{d} is not exactly 0 where no query sees", "masked keys get gradients"
        if factor is not None:
            return f"{d} is {factor:.4g} times the right gradient", f"wrong factor of {d}"
        return f"{d} is off by up to {error:.2g} of the largest right number", ""


def _is_slope(slope: float, gradient: Array, direction: Array, close: float) -> bool:
    """Return whether a gradient gives the slope along a direction."""
    gap = abs((gradient * direction).sum() - slope)
    return bool(gap <= close * (1 + np.linalg.norm(gradient)))


def _with_means(trial: Trial) -> Array:
    """Return the output that has the mean of all values for a query with no keys left."""
    fit, settings = trial.found.fits[0], {**trial.found.settings, "blind": "mean of all values"}
    axes = AXES[ROLE_OF.get(fit.what, fit.what)]
    values = evaluate(trial.problem, settings) or {}
    return arrange(values[fit.what], axes, fit.layout, trial.problem.sizes)


def _look_at_blind_rows(
    trial: Trial, gradients: Callable[[Trial], Returned], rows: Mapping[Leaf, list[GradientRow]]
) -> dict[Leaf, list[GradientRow]]:
    """Return rows for gradients that go wrong only where a query has no keys left.

    Nothing is expected of backward where forward returns NaN for such a query, or a mean, because
    scores of -1e9 are usual there.
    """
    mask = trial.problem.get("mask")
    if mask is None or mask.dtype != bool or mask.shape[2] == 1:
        return {}
    mask = mask.copy()
    mask[:, :, 0] = trial.found.settings.get("mask") == "true = blocked"
    blind = trial._replace(problem=trial.problem.but(mask=mask))
    out = blind.output(blind.given())
    if out is None or not np.isfinite(out).all():
        return {}
    is_mean = same(out, _with_means(blind), trial.few)
    found = {}
    for leaf, array in gradients(blind).items():
        if leaf not in rows or not rows[leaf][0].is_right or leaf.is_hidden:
            continue
        row = rows[leaf][0]
        direction = np.random.default_rng(8).normal(size=array.shape)
        is_finite = np.isfinite(array).all()
        if is_finite and is_mean:
            continue
        if not is_finite or not _is_slope(blind.slope(leaf, direction), array, direction, 1e-2):
            says = f"{row.name} is {'wrong' if is_finite else 'NaN'} where a query has no keys left"
            row = row._replace(is_right=False, error=np.inf, says=says)
            found[leaf] = [row._replace(mistake="a query has no keys left")]
    return found
