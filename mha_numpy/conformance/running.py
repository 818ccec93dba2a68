"""A case run on the function that is tested."""

import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.conformance.case import Case, own_offset, solve
from mha_numpy.conformance.conventions import Conventions, load, options, parameters_of
from mha_numpy.conformance.converting import Converter
from mha_numpy.dtypes import Array
from mha_numpy.errors import one_line


class UnfitError(Exception):
    """What a function did instead of returning something to compare."""


class Contender(NamedTuple):
    """A function that is tested."""

    attention: Callable[..., Any]
    backward: Callable[..., Any] | None
    names: dict[str, str]  # of options: ours, theirs
    conventions: Conventions

    def own_offset(self, case: Case) -> int:
        """Return the offset of causality that it has without an argument for it."""
        is_bottom = self.conventions.word("causal_alignment") == "bottom-right"
        return own_offset(case) if is_bottom else 0

    def unused(self) -> list[str]:
        """Return the names of its arguments that no case passes."""
        passed = (*self.names.values(), *self.conventions.constants, "backend", "return_weights")
        return [name for name in parameters_of(self.attention) if name not in passed]


def make_contender(function: Callable[..., Any], conventions: Conventions) -> Contender:
    """Find out which options a function takes, and import its backward."""
    backward = load(conventions.backward, "backward") if conventions.backward else None
    own = {name: name for name in parameters_of(function) if name in options()}
    return Contender(function, backward, own | conventions.arguments, conventions)


def reason_to_skip(contender: Contender, case: Case) -> str:
    """Return why a function cannot run a case; "" if it can."""
    words = contender.conventions.words
    given = {name for name in (*case.inputs, *case.options) if name not in ("q", "k", "v")}
    if "rope" in words:
        given.discard("rope_interleaved")
    if np.array_equal(case.options.get("q_offset", 0), contender.own_offset(case)):
        given.discard("q_offset")
    for name in sorted(given - contender.names.keys()):
        return f"it has no argument for {name}"
    for group in contender.conventions.exclusive:
        if given.issuperset(group):
            return f"it does not take {' and '.join(group)} together"
    for name in ("hidden_numbers", "rope"):
        if name in words and case.conventions.get(name, words[name]) != words[name]:
            return f"{name} is {words[name]!r}"
    if words.get("window") == "count" and "window" in given and _count(case) is None:
        return "its window is one number"
    return ""


def _count(case: Case) -> int | None:
    """Return a window as one number, which counts the query's own key; None if it has two ends."""
    left, right = case.options["window"]
    if left is None or not (right == 0 or "is_causal" in case.options):
        return None
    return int(left) + 1


def expected_of(contender: Contender, case: Case) -> dict[str, Array]:
    """Return what a function of these conventions computes, in the layout of the cases."""
    if "q_offset" not in contender.names:
        case = case._replace(options={**case.options, "q_offset": contender.own_offset(case)})
    expected = solve(case)
    is_blind = np.isneginf(expected["lse"])[..., None]
    word = contender.conventions.word("blind_rows")
    v = case.inputs["v"]
    T_k = v.shape[2]
    if word == "zeros" or not is_blind.any() or T_k == 0:
        return expected
    mean = v.mean(axis=2, keepdims=True).repeat(is_blind.shape[1] // v.shape[1], axis=1)
    rows = {"out": mean, "weights": 1 / T_k}
    if word == "nan":
        rows = dict.fromkeys(rows, np.nan)
    return {name: np.where(is_blind, row, expected[name]) for name, row in rows.items()}


def results_of(contender: Contender, case: Case) -> dict[str, Any]:
    """Call the function, and its backward; return their results in the layout of the cases."""
    conventions, inputs = contender.conventions, case.inputs
    converter = Converter(conventions, inputs["q"].shape[1], inputs["k"].shape[1])
    qkv = [converter.theirs(name, inputs[name]) for name in ("q", "k", "v")]
    arguments = _arguments(contender, case)
    named = {contender.names[name]: converter.theirs(name, x) for name, x in arguments.items()}
    named = {**conventions.constants, **named}
    found = _by_name(_called(contender.attention, *qkv, **named), conventions.returns, "returns")
    cache = found.pop("cache", None)
    if contender.backward:
        d_out = converter.theirs("out", case.d_out)
        given = _called(contender.backward, d_out, *qkv, **named) if cache is None else (
            _called(contender.backward, d_out, cache))  # fmt: skip
        found |= _by_name(given, conventions.gradients, "gradients")
    return {name: converter.ours(name, x) for name, x in found.items() if x is not None}


def _arguments(contender: Contender, case: Case) -> dict[str, Any]:
    """Return the options of a case as the function means them, by our names."""
    words, names = contender.conventions.words, contender.names
    given = {**case.options, **case.inputs}
    if "q_offset" in names and {"is_causal", "window"} & given.keys():
        given["q_offset"] = given.get("q_offset", 0) - contender.own_offset(case)
    if words.get("window") == "count" and "window" in given:
        given["window"] = _count(case)
    if "mask" in given and "bias" in given and names["mask"] == names["bias"]:
        given["bias"] = np.where(given.pop("mask"), given["bias"], -np.inf)
    elif "mask" in given and words.get("mask") == "true = blocked":
        given["mask"] = ~given["mask"]
    return {name: given[name] for name in names if name in given}


def _called(function: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*inputs, **named)
    except Exception as error:  # anybody's
        _, *frames = traceback.extract_tb(error.__traceback__)  # the first is this one
        own = [frame for frame in frames if frame.filename == frames[0].filename]
        where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
        raise UnfitError(f"it raised {type(error).__name__}: {one_line(error)}{where}") from error


def _by_name(returned: Any, names: tuple[str, ...], entry: str) -> dict[str, Any]:
    """Return results by name: that of a dict or a NamedTuple, or the declared one."""
    if hasattr(returned, "_asdict"):
        returned = returned._asdict()
    if isinstance(returned, dict):
        return {**returned}
    parts = returned if isinstance(returned, (tuple, list)) else (returned,)
    if len(parts) != len(names):
        count = f"{len(parts)} result{'s' * (len(parts) != 1)}"
        raise UnfitError(f"it returned {count}, and {entry} names {len(names)}: {', '.join(names)}")
    return dict(zip(names, parts, strict=True))
