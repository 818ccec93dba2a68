"""The gradients of a function: are they right, and if not, which mistake gives these numbers."""

import ast
import copy
import inspect
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import combinations, islice, product
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.arrays import to_framework, to_numpy
from mha_numpy.identifying.backward import Backward, Mistake, name_of, same
from mha_numpy.identifying.family import AXES, Problem, evaluate
from mha_numpy.identifying.layouts import JOINED, arrange
from mha_numpy.identifying.names import roles_by_name
from mha_numpy.identifying.search import ROLE_OF, Fit, Found
from mha_numpy.identifying.subject import Argument, Called, Subject
from mha_numpy.identifying.ways import NUMBERS, Slot, Way, number_of

GIVEN_ONLY = ("dropout_mask", "cos", "sin", "mask", "lengths", "positions")  # nobody wants d_cos
CACHE = re.compile(r"(\w*cache\w*|saved\w*|ctx|context|kept|state|tape|res|residuals?|mem\w*|store\w*|fwd)")
WEIGHTS = re.compile(r"(attn|attention|att|soft)?(p|a|s|w|weights?|probs?|probabilities|alphas?|attn|att|attention|softmax|max)")
UPSTREAM = re.compile(r"(d|g|grad|dl|dloss)_?(l?d?(o|y|z|out\w*|h|heads|ctx|context|attn|res\w*))?|up\w*|delta|grad\w*")
MOST_CALLS = 120  # of a backward function, to find out how it is called
FEW = 1e-5  # the largest relative difference of a right gradient


class GradientRow(NamedTuple):
    """What was found out about one gradient."""

    name: str  # "d_q", "d_w_o" ...
    argument: str  # whose gradient it is
    is_right: bool
    error: float  # the largest difference, relative to the largest right number
    says: str
    mistake: str = ""


class Leaf(NamedTuple):
    """An array that a function is given, or has itself, whose gradient can be asked for."""

    argument: str
    role: str
    layout: str
    key: str | None = None  # in the dict that the argument is
    is_hidden: bool = False

    @property
    def label(self) -> str:
        """Return how the array is called in the function."""
        return self.argument if self.key is None else self.key

    def of(self, given: Mapping[str, Any]) -> Any:
        """Return the array among the arguments."""
        return given[self.argument] if self.key is None else given[self.argument][self.key]

    def put(self, given: Mapping[str, Any], array: Any) -> dict[str, Any]:
        """Return the arguments with another array."""
        if self.key is None:
            return {**given, self.argument: array}
        return {**given, self.argument: {**given[self.argument], self.key: array}}


def find_leaves(way: Way, problem: Problem) -> list[Leaf]:
    """Return the arrays of floats, in the order of the arguments."""
    found = []
    for name, slot in way.slots.items():
        for key, part in slot.parts or ((None, slot),):
            found.append(Leaf(name, part.role, part.layout, key))
    found += [Leaf(n, slot.role, slot.layout, is_hidden=True) for n, slot in way.hidden.items()]
    return [leaf for leaf in found if leaf.layout and leaf.role in AXES and leaf.role not in GIVEN_ONLY]


def as_passed(d: Array, leaf: Leaf, problem: Problem) -> Array:
    """Return a gradient in the layout of its array: summed over the axes that this lacks."""
    wanted = leaf.layout.split()
    axes = AXES[leaf.role].split()
    if d.ndim != len(axes):
        return d
    for at, axis in enumerate(axes):
        if axis not in wanted and not {*JOINED.get(axis, axis).split()} <= {*wanted}:
            d = d.sum(at, keepdims=True)
    try:
        return arrange(d, AXES[leaf.role], leaf.layout, problem.sizes)
    except ValueError:
        return d


class Asked(NamedTuple):
    """A function, called in the way that was found, and the gradient that its output is given."""

    subject: Subject
    found: Found
    problem: Problem
    leaves: list[Leaf]
    d_out: Array  # with the axes of the family
    d_passed: Array  # as the function returns its output
    until: float

    @property
    def fit(self) -> Fit:
        """Return which returned array is the output."""
        return self.found.fits[0]

    def forward(self, given: Mapping[str, Any] | None = None) -> tuple[Called, Any]:
        """Call the function; return its arrays, and what it returned as it is."""
        kept: list[Any] = []
        recording = copy.copy(self.subject)
        function = self.subject.function

        def record(*args: Any, **kwargs: Any) -> Any:
            kept.append(function(*args, **kwargs))
            return kept[-1]

        recording.function = record
        called = recording.call(self.given() if given is None else given)
        return called, kept[-1] if kept else None

    def given(self) -> dict[str, Any]:
        """Return the arguments."""
        return self.found.seen.way.given(self.problem)

    def loss(self, given: Mapping[str, Any]) -> float:
        """Return the sum of the output times its gradient, as the function computes it."""
        arrays = dict(self.forward(given)[0].arrays)
        return _weighted(arrays.get(self.fit.path), self.d_passed)

    def family_loss(self, problem: Problem) -> float:
        """Return the same sum as the family computes it."""
        values = evaluate(problem, self.found.settings)
        return _weighted(values[self.fit.what] if values else None, self.d_out)


def _weighted(out: Array | None, d: Array) -> float:
    if out is None or out.shape != d.shape:
        return np.nan
    return float(np.where(d == 0, 0, out * d).sum())


def look_at_gradients(
    subject: Subject, found: Found, backward: Callable[..., Any] | None, until: float
) -> list[GradientRow]:
    """Compare the gradients of a function with numerical derivatives; name the mistakes.

    Parameters
    ----------
    subject, found
        The function, and what it was found to compute.
    backward
        Its backward function, of any signature; None leaves it to the framework's autograd.
    until : float
        A moment of `time.monotonic`, when to stop.

    Returns
    -------
    list of GradientRow
        One for each gradient that is returned and could be judged.
    """
    problem = found.seen.problem
    values = evaluate(problem, found.settings)
    if values is None:
        return []
    fit = found.fits[0]
    out = values[fit.what]
    d_out = np.where(np.isfinite(out), np.random.default_rng(5).normal(size=out.shape), 0.0)
    role = ROLE_OF.get(fit.what, fit.what)
    d_passed = arrange(d_out, AXES[role], fit.layout, problem.sizes)
    leaves = find_leaves(found.seen.way, problem)
    asked = Asked(subject, found, problem, leaves, d_out, d_passed, until)
    way_back = Backward(problem, found.settings, fit.what, d_out)
    truth = {leaf: right for leaf in leaves if (right := _truth(asked, way_back, leaf)) is not None}
    if backward is None:
        returned = _by_autograd(asked, [*truth])
    else:
        returned = _by_call(asked, backward, truth)
    wrong = {
        leaf: array for leaf, array in returned.items() if not _is_right(array, truth[leaf], truth)
    }
    mistakes = _explain(asked, way_back, wrong, [*returned], truth)
    return [
        _row(leaf, array, truth, mistakes.get(leaf), way_back) for leaf, array in returned.items()
    ]


def _truth(asked: Asked, way_back: Backward, leaf: Leaf) -> Array | None:
    """Return the right gradient of an array; None if two ways to differentiate disagree.

    The formulas of backward are compared with differences of the family along a random direction,
    and so is the function itself. Where forward is so strange that the formulas do not hold, each
    number is differentiated.
    """
    problem, step = asked.problem, 1e-4
    if leaf.role not in problem.given:
        return None
    array = problem.given[leaf.role]
    direction = np.random.default_rng(6).normal(size=array.shape)

    def along(by: Array) -> float:
        return asked.family_loss(problem.but(**{leaf.role: array + by}))

    slope = (along(step * direction) - along(-step * direction)) / (2 * step)
    right = way_back.right.get(f"d_{leaf.role}")
    if right is None or abs((right * direction).sum() - slope) > 1e-5 * (1 + np.linalg.norm(right)):
        right = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            by = np.zeros(array.shape)
            by[index] = step
            right[index] = (along(by) - along(-by)) / (2 * step)
            if time.monotonic() > asked.until:
                return None
    passed = as_passed(right, leaf, problem)
    if leaf.is_hidden:
        return passed
    given = asked.given()
    own = leaf.of(given)
    step = 1e-4 if asked.fit.error < 1e-9 else 1e-2  # it computes in float32
    direction = np.random.default_rng(7).normal(size=own.shape)
    rise = asked.loss(leaf.put(given, own + step * direction))
    fall = asked.loss(leaf.put(given, own - step * direction))
    gap = abs((rise - fall) / (2 * step) - (passed * direction).sum())
    return passed if gap <= 1e-3 * (1 + np.linalg.norm(passed)) else None


def _size(right: Array, truth: Mapping[Leaf, Array]) -> float:
    """Return the largest right number; a gradient that is 0 is measured by the others."""
    return max(abs(right).max(initial=0), 1e-3 * max(abs(a).max(initial=0) for a in truth.values()))


def _error(array: Array, right: Array, truth: Mapping[Leaf, Array]) -> float:
    if array.shape != right.shape:
        return np.inf
    gap = abs(array - right).max(initial=0)
    return float(gap / _size(right, truth)) if np.isfinite(gap) else np.inf


def _is_right(array: Array, right: Array, truth: Mapping[Leaf, Array]) -> bool:
    """Return whether a gradient is right: also exactly 0 where nothing sees."""
    if _error(array, right, truth) > FEW:
        return False
    return bool((abs(array[right == 0]) <= 1e-12 * _size(right, truth)).all())


def _by_autograd(asked: Asked, leaves: Sequence[Leaf]) -> dict[Leaf, Array]:
    """Return the gradients that a framework computes; 0 where none arrives."""
    subject, given = asked.subject, asked.given()
    path = f"result{asked.fit.path}"
    if subject.framework == "torch":
        torch = import_module("torch")
        own = dict(getattr(subject.function, "named_parameters", dict)())
        tensors = {
            leaf: own[leaf.argument]
            if leaf.is_hidden
            else to_framework(leaf.of(given), "torch").requires_grad_()
            for leaf in leaves
        }
        for leaf, tensor in tensors.items():
            given = given if leaf.is_hidden else leaf.put(given, tensor)
        _, result = asked.forward(given)
        out = eval(path, {}, {"result": result})
        if not getattr(out, "requires_grad", False):
            return {leaf: np.zeros(tensor.shape) for leaf, tensor in tensors.items()}
        d_out = to_framework(asked.d_passed, "torch").to(out.dtype)
        grads = torch.autograd.grad(out, [*tensors.values()], d_out, allow_unused=True)
        return {
            leaf: np.zeros(tensor.shape) if grad is None else to_numpy(grad)
            for (leaf, tensor), grad in zip(tensors.items(), grads, strict=True)
        }
    if subject.framework == "jax":
        jax = import_module("jax")
        shown = [leaf for leaf in leaves if not leaf.is_hidden]

        def run(arrays: list[Any]) -> Any:
            own = given
            for leaf, array in zip(shown, arrays, strict=True):
                own = leaf.put(own, array)
            return eval(path, {}, {"result": asked.forward(own)[1]})

        out, pull = jax.vjp(run, [to_framework(leaf.of(given), "jax") for leaf in shown])
        grads = pull(to_framework(asked.d_passed, "jax").astype(out.dtype))[0]
        return {leaf: to_numpy(grad) for leaf, grad in zip(shown, grads, strict=True)}
    return {}


def _by_call(
    asked: Asked, backward: Callable[..., Any], truth: Mapping[Leaf, Array]
) -> dict[Leaf, Array]:
    """Call a backward function in the ways that its arguments suggest; return the best result."""
    subject = Subject(backward)
    subject.framework = asked.subject.framework
    needed = [a for a in subject.arguments if a.is_required]
    pieces = _pieces(asked, asked.forward())
    ranked = [_candidates(a, pieces, asked) for a in needed]
    optional = {a.name: a.name for a in subject.arguments if not a.is_required and a.name in asked.given()}
    is_sure = all(r[0] in ("d_out", "cache", a.name, f"cache.{a.name}") for a, r in zip(needed, ranked))
    best: dict[Leaf, Array] = {}
    most = -1
    choices = sorted(islice(product(*(range(len(r)) for r in ranked)), 5000), key=sum)
    for choice in choices[:MOST_CALLS]:
        labels = [r[i] for r, i in zip(ranked, choice, strict=True)]
        if len({*labels}) < len(labels) or (best and time.monotonic() > asked.until):
            continue
        pieces = _pieces(asked, asked.forward())  # anew: backward may change what it is given
        given = {a.name: pieces[label] for a, label in zip(needed, labels, strict=True)}
        called = subject.call(given | {name: pieces[label] for name, label in optional.items()})
        own = _assign(called, truth, backward)
        count = sum(_is_right(array, truth[leaf], truth) for leaf, array in own.items())
        if own and count > most:
            best, most = own, count
        if own and (count == len(own) or is_sure):
            break
    return best


def _pieces(asked: Asked, forward: tuple[Called, Any]) -> dict[str, Any]:
    """Return everything that a backward may be given, by name."""
    called, result = forward
    fit, way = asked.fit, asked.found.seen.way
    arrays = dict(called.arrays)
    pieces = {"d_out": asked.d_passed, **asked.given()}
    rest: Any = None
    if isinstance(result, (tuple, list)) and not hasattr(result, "_asdict"):
        others = [each for i, each in enumerate(result) if f"[{i}]" != fit.path]
        rest = others[0] if len(others) == 1 else tuple(others)
    elif isinstance(result, dict) or hasattr(result, "_asdict"):
        rest = result
    if rest is not None:
        pieces["cache"] = rest
        items = rest if isinstance(rest, dict) else getattr(rest, "_asdict", dict)()
        if isinstance(result, tuple):
            items |= _by_return(asked.subject, result)
        pieces |= {f"cache.{name}": item for name, item in items.items()}
    values = evaluate(asked.problem, asked.found.settings) or {}
    pieces["out"] = arrays.get(fit.path)
    for what in ("weights", "lse"):
        seen = next((arrays[f.path] for f in asked.found.fits if f.what == what), None)
        layout = asked.fit.layout.replace("e", "S") if what == "weights" else asked.fit.layout.replace(" e", "")
        pieces[what] = seen
        if seen is None and what in values and "e" in asked.fit.layout.split():
            pieces[what] = arrange(values[what], AXES[what], layout, asked.problem.sizes)
    pieces |= {role: number_of(role, asked.problem.sizes) for role in NUMBERS}
    return {label: piece for label, piece in pieces.items() if piece is not None}


def _by_return(subject: Subject, result: tuple[Any, ...]) -> dict[str, Any]:
    """Return the parts of a result by the names that the return statement has for them."""
    found = {str(i): each for i, each in enumerate(result)}
    for node in ast.walk(subject.tree or ast.Pass()):
        match node:
            case ast.Return(ast.Tuple(parts)) if len(parts) == len(result):
                names = [part.id if isinstance(part, ast.Name) else "" for part in parts]
                found |= {n: each for n, each in zip(names, result, strict=True) if n}
    return found


def _candidates(argument: Argument, pieces: Mapping[str, Any], asked: Asked) -> list[str]:
    """Return what an argument of a backward may be given, the likeliest first."""
    name = argument.name
    plain = re.sub(r"[\W_]", "", name).lower()
    leaves = {leaf.role: leaf.argument for leaf in asked.leaves}
    roles = roles_by_name(name)
    likely = [label for label in (name, f"cache.{name}") if label in pieces and label not in NUMBERS]
    if ("d_out" in roles and name not in asked.given()) or UPSTREAM.fullmatch(plain):
        likely.append("d_out")
    if CACHE.fullmatch(plain):
        likely.append("cache")
    if WEIGHTS.fullmatch(plain):
        likely.append("weights")
    if plain in ("o", "out", "output", "y", "z"):
        likely.append("out")
    likely += [leaves[role] for role in roles if role in leaves]
    likely += [role for role in roles if role in NUMBERS]
    known = [label for label in dict.fromkeys(likely) if label in pieces]
    others = [label for label in pieces if label not in known and label not in NUMBERS]
    return [*known, *sorted(others, key=lambda label: not label.startswith("cache."))]


def _assign(
    called: Called, truth: Mapping[Leaf, Array], backward: Callable[..., Any]
) -> dict[Leaf, Array]:
    """Say which returned array is the gradient of which array: by names, numbers, place, shape."""
    found: dict[Leaf, Array] = {}
    left = dict(called.arrays)
    places = {path: i for i, (path, _) in enumerate(called.arrays)}
    order, at = [*truth], {}

    def is_named(path: str, leaf: Leaf, array: Array) -> bool:
        last = re.sub(r"\W+$", "", path)
        last = re.sub(r"^.*\W", "", last)
        return bool(last) and not last.isdigit() and _names(last, leaf)

    def is_equal(path: str, leaf: Leaf, array: Array) -> bool:
        return _is_right(array, truth[leaf], truth)

    def is_in_place(path: str, leaf: Leaf, array: Array) -> bool:
        return array.shape == truth[leaf].shape and order.index(leaf) == places[path]

    def has_shape(path: str, leaf: Leaf, array: Array) -> bool:
        return array.shape == truth[leaf].shape

    def is_alone(path: str, leaf: Leaf, array: Array) -> bool:
        return order.index(leaf) == places[path] and len(places) == len(order)

    for fits in (is_named, is_equal, is_in_place, has_shape, is_alone):
        for path, array in [*left.items()]:
            for leaf in order:
                if leaf not in found and fits(path, leaf, array):
                    found[leaf] = left.pop(path)
                    at[places[path]] = leaf
                    break
    moved = [i for i, leaf in enumerate(order) if at.get(i) is not leaf]
    if len(moved) == 2 and moved[1] - moved[0] == 1 and len(at) == len(order) > 2:
        if called.kind == "tuple" and not _is_documented([at[i] for i in sorted(at)], backward):
            one, two = (order[i] for i in moved)
            found[one], found[two] = found[two], found[one]
    return found


def _is_documented(returned: Sequence[Leaf], backward: Callable[..., Any]) -> bool:
    """Return whether the docstring of a backward names the gradients in the returned order."""
    text = inspect.getdoc(backward) or ""
    places = [
        [m.start() for m in re.finditer(rf"(?i)\b(d|grad|g)_?{leaf.label}\b", text)][-1:]
        for leaf in returned
    ]
    return all(places) and places == sorted(places)


def _names(name: str, leaf: Leaf) -> bool:
    """Return whether a name is that of an array's gradient: ``dq``, ``grad_query`` or ``Wq``."""
    bare = re.sub(r"^(grad|d|g)_?(?=\w)", "", name)
    return leaf.label.lower() in (name.lower(), bare.lower()) or (
        leaf.role in roles_by_name(bare)[:1]
    )


def _explain(
    asked: Asked, way_back: Backward, wrong: Mapping[Leaf, Array], returned: Sequence[Leaf],
    truth: Mapping[Leaf, Array],
) -> dict[Leaf, tuple[Mistake, ...]]:  # fmt: skip
    """Return the fewest mistakes that give each wrong gradient, those of most gradients first."""
    found: dict[Leaf, tuple[Mistake, ...]] = {}
    if not wrong:
        return found

    def gives(own: Mapping[str, Array] | None, leaf: Leaf) -> bool:
        given = (own or {}).get(leaf.role)
        return given is not None and same(wrong[leaf], as_passed(given, leaf, asked.problem))

    right = way_back.run({}) or {}
    single = []
    for mistake, own in way_back.mistakes:
        changed = {x for x in returned if x.role in own and not same(own[x.role], right[x.role])}
        explained = [leaf for leaf in wrong if gives(own, leaf)]
        single.append((mistake, changed, explained))
    single.sort(key=lambda each: (not each[1] <= {*wrong}, -len(each[2])))
    for mistake, _, explained in single:
        found = dict.fromkeys(explained, (mistake,)) | found
    told = {mistake.name for each in found.values() for mistake in each}
    inside = [each for each in single if each[1] and each[1] <= {*wrong}]
    inside.sort(key=lambda each: each[0].name not in told)
    for leaf, array in wrong.items():
        if leaf in found or _factor(array, truth[leaf]) is not None:
            continue
        best: list[Leaf] = []
        for one, two in combinations([each[0] for each in inside if leaf in each[1]], 2):
            if time.monotonic() > asked.until or len(best) == len(wrong):
                break
            both = {**two.edits, **one.edits}
            own = way_back.run(both) if len(both) == len(one.edits) + len(two.edits) else None
            explained = [each for each in wrong if gives(own, each)]
            if leaf in explained and len(explained) > len(best):
                best = explained
                found |= {each: (one, two) for each in best if len(found.get(each, "12")) > 1}
    return found


def _factor(array: Array, right: Array) -> float | None:
    """Return by which factor a gradient is wrong, if it is only a factor."""
    if array.shape != right.shape or not right.any():
        return None
    factor = float((array * right).sum() / (right * right).sum())
    return factor if same(array, factor * right) else None


def _row(
    leaf: Leaf, array: Array, truth: Mapping[Leaf, Array], mistakes: Sequence[Mistake] | None,
    way_back: Backward,
) -> GradientRow:  # fmt: skip
    """Say what was found out about a gradient."""
    name, right = name_of(leaf.role), truth[leaf]
    whole = leaf.argument if leaf.key is None else f"{leaf.argument}[{leaf.key!r}]"
    error = _error(array, right, truth)
    if _is_right(array, right, truth):
        return GradientRow(name, whole, True, error, f"{name} agrees with the numerical derivative")
    if mistakes:
        return GradientRow(name, whole, False, error, "; ".join(m.says for m in mistakes),
                           "; ".join(m.name for m in mistakes))  # fmt: skip
    if array.shape != right.shape:
        says = f"{name} has shape {array.shape} where {whole} has {right.shape}"
        if array.shape == right.T.shape and same(array, right.T):
            says = f"{name} is transposed"
        return GradientRow(name, whole, False, error, says, says.split(" where")[0])
    if not np.isfinite(array).all():
        return GradientRow(name, whole, False, error, f"{name} has NaN or inf", "NaN")
    if error <= FEW:
        says = f"{name} is not exactly 0 for what no query sees"
        return GradientRow(name, whole, False, error, says, "hidden cells get gradients")
    factor = _factor(array, right)
    if factor is not None:
        says = f"{name} is {factor:.4g} times the right gradient"
        return GradientRow(name, whole, False, error, says, f"{name} has a wrong factor")
    says = f"{name} differs from the numerical derivative by up to {error:.2g} of its largest number"
    return GradientRow(name, whole, False, error, says)
