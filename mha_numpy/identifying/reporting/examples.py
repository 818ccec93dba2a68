"""The smallest example of a finding: a few numbers that show it, and what comes of them."""

from collections.abc import Iterator
from itertools import product
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.layouts import arrange
from mha_numpy.identifying.calling.roles import TOKENS
from mha_numpy.identifying.calling.subject import Subject, narrow
from mha_numpy.identifying.calling.ways import Way
from mha_numpy.identifying.facts.probes import HIDING, LARGE, OF_KEYS, hide
from mha_numpy.identifying.family import AXES, SETTINGS, USUAL, Problem, Sizes, evaluate
from mha_numpy.identifying.searching.search import CLOSE, CONVENTIONS, ROLE_OF, Found, distance

SECONDS = 0.3  # for one example
VISIBLE = 0.05  # of the largest number: a difference that a few digits show
MEANT = {  # what a mistake was meant to be, where that is not the usual value
    "causal": dict.fromkeys(
        ("past", "one ahead", "future and itself", "future"), "past and itself"
    ),
    "rotation": {"halves of q, pairs of k": "halves", "pairs of q, halves of k": "pairs"},
    "alibi": dict.fromkeys(("slopes from 1", "wrong sign"), "slopes from 2^(-8/H)"),
    "qk_norm": {"l2 of q": "l2", "l2 of k": "l2"},
    "alignment": {"top left": "bottom right"},  # by a promise
}  # fmt: skip
WITHOUT_FAULT = {  # how the values of facts begin that need no example
    "hidden_nan": "no effect", "no_keys": "zeros", "float32": "float32", "float16": "float16",
    "blind": "nan",
}  # fmt: skip
TOLD_APART = ("scale", "rotation", "qk_norm", "blind")  # an example shows which convention it is
MOST_SHOWN = 100  # numbers of an array
NARROW = {"float32": "float32", "float16": "float16", "half_masked": "float16"}
SMALL = {  # numbers to pass for a role
    "window": (1, 2), "scale": (2.0, 0.5), "offset": (1, 2), "softcap": (1.0, 2.0), "block": (1, 2),
}  # fmt: skip
TRIES = (  # whether params change nothing, a factor of the tokens, and how far behind it comes
    (True, 1.0, 1.0), (False, 1.0, 1.1), (False, 1.0, 1.2), (False, 10.0, 4.0), (False, 100.0, 6.0),
)  # fmt: skip


class Example(NamedTuple):
    """Inputs that show a finding."""

    inputs: dict[str, Any]  # by argument, as they are passed
    got: Any  # the array that the function returns, or the error
    usual: Array  # what it would return, were this finding as usual
    says: str

    def __str__(self) -> str:
        parts = [
            f"{name}{key} = {show(part)}".replace(" ", "\0")
            for name, value in self.inputs.items()
            for key, part in (_items(value) if isinstance(value, dict) else [("", value)])
        ]
        passed = wrap(", ".join(parts), 60, break_long_words=False, break_on_hyphens=False)
        lines = [self.says, *(line.replace("\0", " ") for line in passed)]
        return "\n".join([*lines, f"returned: {show(self.got)}", f"usual:    {show(self.usual)}"])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as what JSON knows."""
        return {name: _plain(value) for name, value in self._asdict().items()}


class Small(NamedTuple):
    """A small problem for a function whose settings are known."""

    subject: Subject
    found: Found
    way: Way
    problem: Problem

    def array(
        self, problem: Problem, settings: dict[str, Any], blank: Array | None = None
    ) -> Array:
        """Return the output of settings as the function lays it out, an empty array if none.

        It is NaN in the rows that are blank.
        """
        fit, values = self.found.fits[0], evaluate(problem, settings)
        if values is None:
            return np.empty(0)
        out = values[fit.what]
        if blank is not None:
            out = np.where(blank if fit.what == "out" else blank.any(1), np.nan, out)
        return arrange(out, AXES[ROLE_OF.get(fit.what, fit.what)], fit.layout, problem.sizes)

    def call(self, problem: Problem, dtype: str = "") -> Any:
        """Return the output of the function, or its error."""
        with self.subject.passing(dtype or self.subject.dtype):
            called = self.subject.call(self.way.given(problem), self.way.argument("result"))
        return dict(called.arrays).get(self.found.fits[0].path, called.trouble)

    def is_known(self) -> bool:
        """Return whether the settings that were found explain this problem, too."""
        return is_close(self.call(self.problem), self.array(self.problem, self.found.settings))

    def example(self, got: Any, usual: Array, problem: Problem, dtype: str = "") -> Example:
        """Return an example of a call."""
        passed = narrow(self.way.given(problem), dtype or self.subject.dtype)
        start = f"from {dtype}, " if dtype else ""
        return Example(passed, got, usual, start + _compared(got, usual))


def make_example(subject: Subject, found: Found, setting: str, value: Any) -> Example | None:
    """Return the smallest example of a setting or a fact, None if it is usual or none is found.

    `found` explains calls with the argument that the finding is about.
    """
    until = clock() + SECONDS
    if str(value).startswith(WITHOUT_FAULT.get(setting, "always")):
        return None
    for way, problem in _small_problems(subject, found):
        small = Small(subject, found, way, problem)
        make = _of_setting if setting in SETTINGS else _of_fact
        example = make(small, setting, value)
        if subject.left < 0:
            return None
        if example or clock() > until:
            return example
    return None


def _hidden(problem: Problem, settings: dict[str, Any], *, last: bool) -> Problem:
    """Hide the last key, or all keys of the first query, if an argument can."""
    return hide(problem, settings, last=last) if {*HIDING} & problem.given.keys() else problem


def _of_setting(small: Small, setting: str, value: Any) -> Example | None:
    problem, settings = small.problem, {**small.found.settings, setting: value}
    usually = {**settings, setting: MEANT.get(setting, {}).get(value, USUAL[setting])}
    if setting == "blind":
        usually.pop("hide", None)
        problem = _hidden(problem, settings, last=False)
    usual, own = small.array(problem, usually), small.array(problem, settings)
    if setting == "blind" and value not in SETTINGS[setting]:  # "error" or "other"
        got = small.call(problem)
        is_so = isinstance(got, str) == (value == "error") and got_visibly(got, usual)
        return small.example(got, usual, problem) if is_so and small.is_known() else None
    is_finite = setting == "blind" or bool(np.isfinite(own).all() and np.isfinite(usual).all())
    if not own.size or not is_finite or not got_visibly(own, usual):
        return None
    rivals = CONVENTIONS[setting] - {value} if setting in TOLD_APART else ()
    for other in rivals:
        if not got_visibly(own, small.array(problem, {**settings, setting: other}), is_new=True):
            return None
    got = small.call(problem)
    return small.example(got, usual, problem) if is_close(got, own) else None


def _of_fact(small: Small, name: str, value: Any) -> Example | None:
    problem, settings, way = small.problem, small.found.settings, small.way
    keys = next((role for role in OF_KEYS if role in problem.given), "")
    tokens = next((role for role in TOKENS if role in problem.given), "")
    dtype, blank, inner = NARROW.get(name, ""), None, small
    if name == "inputs":
        return _of_inputs(small)
    if name == "hidden_nan" and keys:
        problem = _hidden(problem, settings, last=True)
        values = evaluate(problem, settings) or {"weights": np.ones((1, 1, 1, 1))}
        blank = values["weights"][..., -1:] != 0  # B H T 1: they see the NaN
        blank[..., -1, :] |= keys in TOKENS
        if blank.all():
            return None
    elif tokens and (name == "large_scores" or (name == "uneven_scores" and way.sizes.T > 1)):
        array = problem.given[tokens].copy()
        array.swapaxes(0, -2)[slice(None) if name == "large_scores" else 0] *= LARGE
        problem = problem.but(**{tokens: array})
    elif name == "no_keys":
        inner = small._replace(way=way._replace(sizes=way.sizes._replace(S=0)))
        rest = {role: x for role, x in problem.given.items() if "S" not in AXES.get(role, "S")}
        problem, settings = inner.way.problem(small.subject).but(**rest), {}
    elif name == "sums" and keys:
        problem = problem.but(**{keys: np.full_like(problem.given[keys], 2**24 + 1)})
    elif not dtype or (value == "error" and way.hidden):
        return None  # params of its own do not become narrow
    usual = inner.array(problem, settings, blank)
    usual = usual.astype(dtype or small.subject.dtype)
    if blank is not None:
        array = problem.given[keys].copy()
        array[..., -1, :] = np.nan
        problem = problem.but(**{keys: array})
    got = inner.call(problem, dtype)
    is_wide = getattr(got, "dtype", usual.dtype) != usual.dtype and str(value).startswith("float")
    is_so = isinstance(got, str) == (value == "error") and (is_wide or got_visibly(got, usual))
    return inner.example(got, usual, problem, dtype) if is_so and small.is_known() else None


def _of_inputs(small: Small) -> Example | None:
    """Show an argument after the call in place of an output."""
    passed = small.way.given(small.problem)
    for argument, after in small.subject.changed(passed).items():
        return Example(passed, after, passed[argument], f"the call changes {argument}")
    return None


def _small_problems(subject: Subject, found: Found) -> Iterator[tuple[Way, Problem]]:
    """Yield problems with whole numbers, the smallest first."""
    way = found.seen.way
    own = {slot.role for slot in way.hidden.values()}
    choices = [
        (sizes.B**2 * sizes.d * (sizes.H * sizes.T + 2 * sizes.G * sizes.S) * weight, sizes, i)
        for sizes in _small_sizes(way, (2, 4) if found.settings.get("rotation") else (1, 2, 4))
        for i, (_, _, weight) in enumerate(TRIES)
    ]
    for _, sizes, i in sorted(choices):
        slots = dict(way.slots)
        for name, slot in slots.items():
            if slot.role in SMALL and type(slot.value) in (int, float):
                slots[name] = slot._replace(value=(*SMALL[slot.role], slot.value)[i % 3])
            if slot.role == "is_causal" and found.settings.get("causal"):
                slots[name] = slot._replace(value=True)
        own_way, rng = way._replace(slots=slots, sizes=sizes), np.random.default_rng(i)
        try:
            problem = own_way.problem(subject)
            whole = {
                role: _whole(role, array, sizes.S, rng, *TRIES[i][:2])
                for role, array in problem.given.items()
                if role not in own and isinstance(array, np.ndarray)
            }
        except ValueError:  # sizes that do not fit each other
            continue
        yield own_way, problem.but(**whole)


def _whole(
    role: str, array: Array, S: int, rng: np.random.Generator, is_plain: bool, factor: float
) -> Array:
    """Return whole numbers for a role."""
    if role == "lengths":
        return rng.integers(1, max(S, 2), array.shape)
    if role in ("cos", "sin", "cos_sin"):  # quarter turns
        turns = np.pi / 2 * np.arange(len(array))[:, None]
        turned = np.exp(1j * turns) if role == "cos_sin" else getattr(np, role)(turns)
        return np.asarray(np.round(turned) + 0 * array)
    if role == "dropout_mask":
        return np.asarray(2.0 * (array > 0))
    if array.dtype != float:
        return array
    if is_plain and role[:2] in ("w_", "b_"):
        return np.eye(*array.shape) if array.ndim == 2 else np.zeros(array.shape)
    return (factor if role in TOKENS else 1.0) * rng.integers(-1, 4, array.shape)


def _small_sizes(way: Way, widths: tuple[int, ...]) -> Iterator[Sizes]:
    """Yield sizes that a function may accept: axes that it does not have stay at 1."""
    own = way.sizes
    is_self = way.is_self
    lengths = [(n, n) for n in (1, 2, 3, 4, 5, 6, 8)]
    lengths += [] if is_self else [(T, S) for T, S in product(range(1, 5), range(1, 7)) if T != S]
    heads = [(1, 1), (2, 1), (2, 2), (4, 2)]
    heads = [(H, G) for H, G in heads if H <= own.H and G <= own.G] + [(own.H, own.G)]
    for (T, S), B in product(lengths, (1, 2)):
        sizes = own._replace(B=B, T=T, S=S, Z=min(own.Z, 1))
        if B > own.B or T > own.T == 1:
            continue
        if way.hidden:
            yield sizes
        else:
            for (H, G), d in product(dict.fromkeys(heads), widths):
                yield sizes._replace(H=H, G=G, d=d, e=d, K=min(own.K, 4))


def got_visibly(got: Any, usual: Array, *, is_new: bool = False) -> bool:
    """Return whether what was returned is not what is usual, and a few digits show it.

    Where there is nothing usual to compare with, the answer is `is_new`.
    """
    if not usual.size:
        return is_new
    if isinstance(got, str) or got.shape != usual.shape:
        return len(got) > 0
    return bool(_gaps(got, usual).any())


def _gaps(got: Array, usual: Array) -> Array:
    """Return how far numbers are apart, 0 where a few digits do not show it."""
    with np.errstate(all="ignore"):
        gap = abs(got - usual)
    size = float(abs(usual[np.isfinite(usual)]).max(initial=0.1))
    gap = np.where(np.isnan(got) != np.isnan(usual), np.inf, np.where(np.isnan(gap), 0, gap))
    return np.where((gap > VISIBLE * size) | ((gap >= 1) & (size > 2**24)), gap, 0)


def is_close(got: Any, own: Array) -> bool:
    """Return whether an output has the numbers of some settings."""
    if isinstance(got, str) or got.shape != own.shape:
        return False
    return distance(got, own) <= CLOSE.get(got.dtype.name, 0.0)


def _compared(got: Any, usual: Array) -> str:
    """Say where what was returned and what is usual differ most."""
    if isinstance(got, str):
        return f"it raises {got.partition(':')[0]}"
    if got.shape != usual.shape:
        return f"the output has the shape {got.shape}, not {usual.shape}"
    gaps = _gaps(got, usual)
    if not gaps.any():
        return f"the output is {got.dtype}, not {usual.dtype}"
    at = np.unravel_index(gaps.argmax(), gaps.shape)
    where = f" at {[int(i) for i in at]}" if got.size > 1 else ""
    return f"the output{where} is {_number(got[at])}, not {_number(usual[at])}"


def _number(x: Any) -> str:
    return f"{x:.3g}" if not abs(x) >= 1e3 else f"{x:.9g}"


def show(value: Any) -> str:
    """Return an array, a number or a text in a short line.

    Examples
    --------
    >>> show(np.array([[1.0, 0.73106]]))
    '[[1, 0.731]]'
    """
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(show, value))}]"
    if not isinstance(value, np.ndarray):
        return str(value)
    if not value.size:
        return f"empty, with shape {value.shape}"
    if value.ndim == 2 and len(value) > 1 and np.array_equal(value, np.eye(len(value))):
        return f"eye({len(value)})"
    forms: Any = {"float_kind": _number, "bool": str}
    text = np.array2string(
        value, separator=", ", threshold=MOST_SHOWN, edgeitems=2, formatter=forms
    )
    return " ".join(text.split()).replace("[ ", "[")


def _items(params: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(f"[{name!r}]", value) for name, value in params.items()]


def _plain(value: Any) -> Any:
    """Return lists, texts and numbers; what is not finite becomes a text."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    is_number = isinstance(value, (int, float)) and bool(np.isfinite(value))
    return value if value is None or is_number else str(value)
