"""What went wrong in a case, in a few lines."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from mha_numpy.checking import compare
from mha_numpy.conformance.case import TOLERANCES, Case
from mha_numpy.conformance.running import Contender, UnfitError, expected_of, results_of
from mha_numpy.conformance.words import WORDS

COMMON = ("layout", "scale")  # conventions of nearly all cases
MISTAKEN = ("mask", "grouping", "causal_alignment", "blind_rows", "layout")  # often otherwise


def find_trouble(contender: Contender, case: Case) -> str:
    """Run a case; return the first difference in a line, "" if there is none."""
    try:
        found = results_of(contender, case)
    except UnfitError as unfit:
        return str(unfit)
    dtype = min(case.dtype, contender.conventions.dtype)  # the narrower: "float32" < "float64"
    expected = {
        name: array.astype(dtype)
        for name, array in expected_of(contender, case).items()
        if name in found
    }
    if not expected:
        return ""
    found = {name: array for name, array in found.items() if name in expected}
    rows = compare(found, expected, tolerance=TOLERANCES[dtype]).rows
    return next((f"{row.name}: {row.finding}" for row in rows if not row.passed), "")


def explain(case: Case, trouble: str, hint: str) -> str:
    """Return a paragraph about a failed case: what it tests, what to do, and its numbers."""
    tested = {name: word for name, word in case.conventions.items() if name not in COMMON}
    needs = [f'    needs: {name} = "{word}": {WORDS[name][word]}' for name, word in tested.items()]
    hints = [f"    hint: {hint}"] if hint else []
    return "\n".join([trouble, f"    tests: {case.about}", *needs, *hints, *_inputs(case, trouble)])


def find_hint(contender: Contender, case: Case, trouble: str) -> str:
    """Return other conventions, one or two, that would make a case agree; "" if there are none."""
    conventions = contender.conventions
    if "hidden_numbers" in case.conventions and "nan" in trouble:
        return 'declare hidden_numbers = "read" if this is how it should be; such cases are skipped'
    others = [
        (name, word)
        for name in MISTAKEN
        for word in WORDS[name]
        if name in case.conventions and word != conventions.word(name)
    ]
    if conventions.dtype != "float32":
        others.append(("dtype", "float32"))
    for words in (*combinations(others, 1), *combinations(others, 2)):
        changed = contender._replace(conventions=conventions.declare(dict(words)))
        if not find_trouble(changed, case):
            found = " and ".join(f'{name} = "{word}"' for name, word in words)
            return f"with {found} it agrees: correct the function, or declare this"
    return ""


def _inputs(case: Case, trouble: str) -> Iterator[str]:
    """Yield the inputs of the head in which the largest difference is."""
    shapes = {name: case.inputs[name].shape for name in ("q", "k")}
    (B, H, T_q, _), (_, H_kv, T_k, _) = shapes["q"], shapes["k"]
    name, at = trouble.split(":")[0], re.search(r"most at \[(\d+), (\d+), \d", trouble)
    b, h = (int(at[1]), int(at[2])) if at else (0, 0)
    if name in ("d_k", "d_v"):
        h *= H // H_kv
    yield f"    inputs of sequence {b}, query head {h}, key/value head {h * H_kv // H}:"
    d_out = {"d_out": case.d_out} if name.startswith("d_") else {}
    for name, value in {**case.inputs, **case.options, **d_out}.items():
        if name in ("k", "v"):
            value = value[b, h * H_kv // H]
        elif name in ("mask", "bias", "dropout_mask"):
            value = np.broadcast_to(value, (B, H, T_q, T_k))[b, h]
        elif name in ("q", "d_out"):
            value = value[b, h]
        elif name in ("sink", "head_gate"):
            value = value[..., h]
        yield f"      {name} = {_told(value)}"


def _told(value: Any) -> str:
    return str(value.tolist() if isinstance(value, np.ndarray) else value)
