"""Gradients from a backward function of any signature, or from a framework's autograd."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy, deepcopy
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.frameworks import to_framework, to_numpy
from mha_numpy.identifying.blaming.values import source_around
from mha_numpy.identifying.calling.arrays import hidden_arrays, inner_function, parts_of
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.layouts import arrange
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.roles import NUMBERS
from mha_numpy.identifying.calling.signatures import Argument
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.calling.ways import number_of
from mha_numpy.identifying.family import AXES, evaluate
from mha_numpy.identifying.gradients.trial import Leaf, Trial

OF_NAMES = ("grad", "grads", "gradients", "d", "data", "value", "params")  # of all params
SECONDS = 0.3  # at most, to find out how a backward is called
OF_BACKWARD = {  # what a backward may be given, and how people call it
    "d_out": r"up\w*|grad\w*|dout\w*|dldo",  # and what the role's own pattern says
    "cache": r"\w*(cache|saved|kept|memo|tape|store|residuals?)\w*|ctx|context|state|res|fwd|acts?"
    r"|activations",
    "weights": r"(attn|attention|att|soft)?(p|a|s|w|weights?|probs?|probabilities|alphas?|attn|att"
    r"|attention|max)",
    "out": r"(o|out|outputs?|y|z|heads|res|result)",
}  # fmt: skip
RULE = re.compile(r"\bFunction\):|\bdefvjp\(|\bcustom_gradient\b")  # a backward for autograd
IsRight = Callable[[Leaf, Array], bool]


class BackwardCall:
    """How a backward function is called: found by names, else by trying."""

    def __init__(self, trial: Trial, backward: Callable[..., Any], judge: IsRight) -> None:
        self.documentation = inspect.getdoc(backward) or ""
        self.subject = Subject(_without_star(backward))
        self.subject.state = None  # forward has left something there
        inner = inner_function(backward)
        self.subject.inner = trial.subject.inner if inner is pull_back else inner
        self.holder = getattr(backward, "__self__", None)
        self.is_both = backward is trial.subject.function  # forward, too
        self.subject.framework, self.subject.dtype = trial.subject.framework, trial.subject.dtype
        self.subject.until = trial.subject.until
        self.needed = [
            a for a in self.subject.whole
            if (a.is_required and not a.star) or (self.is_both and "d_out" in roles_by_name(a.name))
        ]  # fmt: skip
        pieces = _pieces(trial)
        roles = {slot.role: name for name, slot in trial.found.seen.way.slots.items()}
        self.labels: dict[str, str] = {}
        self.paths: dict[Leaf, str] = {}  # where each gradient is, if forward returns it
        self.trouble = ""  # the first error
        for a in self.subject.whole:  # of those that may be left out, what forward was given
            own = [a.name, *(roles.get(role, "") for role in roles_by_name(a.name))]
            label = next((each for each in own if each in trial.given()), "")
            if label and not a.is_required:
                self.labels[a.name] = label
        self._try(trial, judge, [_candidates(a, pieces, roles) for a in self.needed])

    def _try(self, trial: Trial, judge: IsRight, ranked: list[list[str]]) -> None:
        """Keep the call with the most right gradients; the first, if its names leave no doubt."""
        optional, most = self.labels, -1
        sure = [("d_out", "cache", a.name, f"cache.{a.name}") for a in self.needed]
        width = int(60_000 ** (1 / max(len(ranked), 1)))
        choices = product(*(range(min(len(each), width)) for each in ranked))
        until = clock() + SECONDS
        for choice in sorted(choices, key=sum):
            labels = [each[i] for each, i in zip(ranked, choice, strict=True)]
            if len({*labels}) < len(labels):
                continue
            if trial.subject.left < 0 or (self.trouble and clock() > until):
                break
            before, self.labels = self.labels, optional | {
                a.name: label for a, label in zip(self.needed, labels, strict=True)
            }  # fmt: skip
            found = self.gradients(trial, judge)
            count = sum(judge(leaf, array) for leaf, array in found.items())
            if not found or count <= most:
                self.labels = before
                continue
            most = count
            is_sure = all(label in names for label, names in zip(labels, sure, strict=True))
            if is_sure or count == len(found):
                break

    def gradients(self, trial: Trial, judge: IsRight) -> dict[Leaf, Array]:
        """Call forward and then backward; return the gradients by array."""
        with kept(self.holder):
            given = self.given(trial)
            if len(given) < len(self.labels):
                return {}
            before = deepcopy(hidden_arrays(self.holder))
            called = self.subject.call(given)
            after = hidden_arrays(self.holder)
        self.trouble = self.trouble or called.trouble
        outputs = [f.path or "[0]" for f in trial.found.fits if f.what and self.is_both]
        arrays = [(path, array) for path, array in called.arrays if path not in outputs]
        stored = [(n, a) for n, a in after.items() if not np.array_equal(a, before.get(n, ()))]
        return self._assign(type(called.result).__name__, arrays, stored, trial, judge)

    def given(self, trial: Trial) -> dict[str, Any]:
        """Call forward; return what to pass to backward."""
        pieces = _pieces(trial)
        return {name: pieces[label] for name, label in self.labels.items() if label in pieces}

    def _assign(
        self, kind: str, returned: list[tuple[str, Array]], stored: list[tuple[str, Array]],
        trial: Trial, judge: IsRight,
    ) -> dict[Leaf, Array]:  # fmt: skip
        """Say whose gradient each array is: by name, numbers; what is returned by place, shape."""
        order, shapes, arrays = trial.leaves, trial.shapes(), [*returned, *stored]
        is_complete = len(returned) == len(order)
        ways: list[Callable[[int, str, Array, Leaf], bool]] = [
            lambda i, path, array, leaf: _is_named(path, leaf),
            lambda i, path, array, leaf: judge(leaf, array),
            lambda i, path, array, leaf: order.index(leaf) == i and array.shape == shapes[leaf],
            lambda i, path, array, leaf: array.shape == shapes[leaf],
            lambda i, path, array, leaf: order.index(leaf) == i and is_complete,
        ]
        found: dict[int, Leaf] = {}  # by place
        for number, fits in enumerate(ways):
            for i, (path, array) in enumerate(arrays if number < 2 else returned):
                left = [leaf for leaf in order if leaf not in found.values() and i not in found]
                own = next((leaf for leaf in left if fits(i, path, array, leaf)), None)
                found |= {i: own} if own else {}
        moved = [i for i, leaf in enumerate(order) if found.get(i) != leaf]
        is_swapped = len(moved) == 2 and moved[1] - moved[0] == 1 and is_complete
        if is_swapped and kind == "tuple" and len(order) > 2 and not self._tells(found):
            found |= {i: order[i] for i in moved}  # by place: they are swapped
        self.paths = {leaf: arrays[i][0] for i, leaf in found.items() if self.is_both}
        return dict(sorted(
            ((leaf, arrays[i][1]) for i, leaf in found.items()),
            key=lambda each: order.index(each[0]),
        ))  # fmt: skip

    def _tells(self, found: Mapping[int, Leaf]) -> bool:
        """Return whether the docstring names the gradients in the order in which they come."""
        places = []
        for i in sorted(found):
            named = re.finditer(rf"(?i)\b(d|grad|g)_?{found[i].label}\b", self.documentation)
            places += [m.start() for m in named][-1:]
        return len(places) == len(found) and places == sorted(places)


class RuleCall:
    """What autograd calls where a function brings a framework its own backward."""

    holder = None
    trouble = ""

    def __init__(self, trial: Trial) -> None:
        own = trial._replace(subject=copy(trial.subject))
        own.subject.is_watched = True
        self.subject, self.paths = copy(trial.subject), dict[Leaf, str]()
        self.subject.function = lambda: [*by_autograd(own).values()]

    def gradients(self, trial: Trial, judge: IsRight) -> dict[Leaf, Array]:
        """Return the gradients by array."""
        return by_autograd(trial)

    def given(self, trial: Trial) -> dict[str, Any]:
        """Return what to pass: nothing, as the trial is known."""
        return {}


Call = BackwardCall | RuleCall


def call_of(trial: Trial, backward: Callable[..., Any] | None, judge: IsRight) -> Call | None:
    """Return how the backward of a function is called; None if it has none of its own."""
    if backward:
        return BackwardCall(trial, backward, judge)
    return RuleCall(trial) if RULE.search(source_around(trial.subject)) else None


def pull_back(cache: Callable[[Any], Any], d_out: Any) -> Any:
    """Call the backward that forward returns."""
    return cache(d_out)


def _without_star(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of (d_out, cache) for a backward of (d_out, *cache)."""
    kinds = [p.kind for p in inspect.signature(backward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return lambda d_out, cache: backward(d_out, *cache)
    return backward


def _pieces(trial: Trial) -> dict[str, Any]:
    """Call forward; return everything that a backward may be given, by a label."""
    fit = trial.found.fits[0]
    given = trial.given()
    whole = trial.subject.in_whole(given)
    stores = {n: x for n, x in whole.items() if isinstance(x, (dict, list)) and not x}
    called = trial.subject.call({**given, **stores})  # which forward may fill
    result, arrays = called.result, dict(called.arrays)
    defaults = {a.name: a.default for a in trial.subject.whole if not a.is_required}
    pieces = {**defaults, **given, **whole, "d_out": trial.d_passed}
    pieces |= dict.fromkeys(filter(None, [trial.found.seen.way.argument("d_out")]), trial.d_passed)
    parts = parts_of(result, fit.path)
    if isinstance(result, dict) or hasattr(result, "_asdict"):
        pieces["cache"] = result
    elif parts:
        rest = [*parts.values()]
        named = _returned_names(trial.subject, len(result))
        parts |= {name: parts[str(i)] for i, name in named if str(i) in parts}
        pieces["cache"] = rest[0] if len(rest) == 1 else tuple(rest)
    for part in [*parts.values()]:
        parts = parts_of(part, "") | parts
    pieces |= {f"cache.{name}": part for name, part in parts.items()}
    values = evaluate(trial.problem, trial.found.settings) or {}
    paths = {f.what: f.path for f in trial.found.fits}
    axes = fit.layout.split()
    for what, last in (("weights", "S"), ("lse", "")):
        if what in paths:
            pieces[what] = arrays.get(paths[what])
        elif fit.what == "out" and axes[-1] == "e":
            layout = " ".join([*axes[:-1], last]).strip()
            pieces[what] = arrange(values[what], AXES[what], layout, trial.problem.sizes)
    pieces["out"] = arrays.get(fit.path)
    pieces |= {role: number_of(role, trial.problem.sizes) for role in NUMBERS}
    return {label: piece for label, piece in pieces.items() if piece is not None}


def _returned_names(subject: Subject, count: int) -> list[tuple[int, str]]:
    """Return the names that the return statement has for the parts of a tuple."""
    for node in ast.walk(subject.tree):
        match node:
            case ast.Return(ast.Tuple(parts)) if len(parts) == count:
                return [(i, part.id) for i, part in enumerate(parts) if isinstance(part, ast.Name)]
    return []


def _candidates(
    argument: Argument, pieces: Mapping[str, Any], roles: Mapping[str, str]
) -> list[str]:
    """Return what an argument of a backward may be given, the likeliest first."""
    plain = re.sub(r"[\W_]", "", argument.name).lower()
    own = roles_by_name(argument.name)
    likely = [label for label in (argument.name, f"cache.{argument.name}") if label not in NUMBERS]
    likely += [
        what for what, pattern in OF_BACKWARD.items() if re.fullmatch(pattern, plain) or what in own
    ]
    likely += [roles[role] for role in own if role in roles]
    likely += [role for role in own if role in NUMBERS]
    others = [label for label in pieces if label not in NUMBERS]
    others.sort(key=lambda label: not label.startswith("cache."))
    known = [label for label in [*likely, *others] if label in pieces]
    first: dict[int, str] = {}  # the same piece may have several labels
    for label in known:
        first.setdefault(id(pieces[label]), label)
    return [*first.values()]


@contextmanager
def kept(holder: Any) -> Iterator[None]:
    """Put the attributes of an object back: gradients may be added to those of another call."""
    before = None
    with suppress(Exception):  # anybody's
        before = deepcopy(vars(holder))
    try:
        yield
    finally:
        if before is not None:
            vars(holder).clear()
            vars(holder).update(before)


def _is_named(path: str, leaf: Leaf) -> bool:
    """Return whether a name is that of a gradient: ``dq``, ``grads['Wq']``, ``q_proj.W.grad``."""
    words = [word for word in re.findall(r"[A-Za-z]\w*", path) if word not in OF_NAMES]
    whole = [word for word in re.findall(r"[A-Za-z]\w*", leaf.label) if word not in OF_NAMES]
    if not words:
        return False
    bare = re.sub(r"^(grad|d|g)_?(?=\w)|_?grad$", "", words[-1])
    names = [".".join([*words[:-1], last]).lower() for last in (words[-1], bare)]
    return ".".join(whole).lower() in names or leaf.role in roles_by_name(bare)[:1]


def by_autograd(trial: Trial) -> dict[Leaf, Array]:
    """Return the gradients that a framework computes; 0 where none arrives."""
    given, path = trial.given(), f"result{trial.found.fits[0].path}"
    if trial.subject.framework == "torch":
        torch = import_module("torch")
        params = dict(getattr(trial.subject.function, "named_parameters", dict)())
        tensors = []
        leaves = [x for x in trial.leaves if not x.is_hidden or x.argument in params]
        for leaf in leaves:
            if leaf.is_hidden:
                tensors.append(params[leaf.argument])
            else:
                tensors.append(_given_as(trial, leaf).requires_grad_())
                given = {**given, leaf.argument: tensors[-1]}
        out = eval(path, {}, {"result": trial.subject.call(given).result})
        d_out = to_framework(trial.d_passed, "torch").to(out.dtype)
        grads = torch.autograd.grad(out, tensors, d_out, allow_unused=True)
        found = {
            leaf: np.zeros(tensor.shape) if grad is None else to_numpy(grad)
            for leaf, tensor, grad in zip(leaves, tensors, grads, strict=True)
        }
        shapes = trial.shapes()  # a row of an additive score counts as a vector
        return {leaf: grad.reshape(shapes[leaf]) for leaf, grad in found.items()}
    if trial.subject.framework == "jax":
        shown = [leaf for leaf in trial.leaves if not leaf.is_hidden]

        def run(arrays: list[Any]) -> Any:
            own = given
            for leaf, array in zip(shown, arrays, strict=True):
                own = {**own, leaf.argument: array}
            return eval(path, {}, {"result": trial.subject.call(own).result})

        inputs = [_given_as(trial, leaf) for leaf in shown]
        out, pull = import_module("jax").vjp(run, inputs)
        grads = pull(to_framework(trial.d_passed, "jax").astype(out.dtype))[0]
        return {leaf: to_numpy(grad) for leaf, grad in zip(shown, grads, strict=True)}
    return {}


def _given_as(trial: Trial, leaf: Leaf) -> Any:
    """Return an array as the framework has it."""
    array = trial.given()[leaf.argument].astype(trial.subject.dtype)
    return to_framework(array, trial.subject.framework)
