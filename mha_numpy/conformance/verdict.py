"""What went wrong in a case, in a few lines."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from mha_numpy.checking import compare
from mha_numpy.conformance.cases import TOLERANCES, Case
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
    dtype = min(case.dtype, contender.conventions.dtype)
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


def explain(contender: Contender, case: Case, trouble: str) -> str:
    """Return a paragraph about a failed case: what it tests, what was mistaken, the numbers."""
    tested = [name for name in case.conventions if name not in COMMON]
    words = [f'{name} = "{word}"' for name, word in case.conventions.items() if name in tested]
    means = [WORDS[name][case.conventions[name]] for name in tested]
    lines = [trouble, f"    tests: {case.about}"]
    lines += [f"    needs: {word}: {meaning}" for word, meaning in zip(words, means, strict=True)]
    lines += [
        f'    hint: with {name} = "{word}" it agrees; correct the function, or declare that in the '
        "file of --conventions"
        for name, word in _other_words(contender, case)
    ]
    return "\n".join([*lines, *_inputs(case, trouble)])


def _other_words(contender: Contender, case: Case) -> Iterator[tuple[str, str]]:
    """Yield the conventions that would make a case agree."""
    for name in MISTAKEN:
        for word in WORDS[name]:
            words = {**contender.conventions.words, name: word}
            changed = contender.conventions._replace(words=words)
            if word != contender.conventions.word(name) and name in case.conventions:
                if not find_trouble(contender._replace(conventions=changed), case):
                    yield name, word


def _inputs(case: Case, trouble: str) -> Iterator[str]:
    """Yield the inputs of the head in which the largest difference is."""
    shapes = {name: case.inputs[name].shape for name in ("q", "k")}
    (B, H, T_q, _), (_, H_kv, T_k, _) = shapes["q"], shapes["k"]
    name, at = trouble.split(":")[0], re.search(r"most at \[(\d+), (\d+), \d", trouble)
    b, h = (int(at[1]), int(at[2])) if at else (0, 0)
    if name in ("d_k", "d_v"):
        h *= H // H_kv
    yield f"    inputs of sequence {b}, query head {h}, key/value head {h * H_kv // H}:"
    for name, value in {**case.inputs, **case.options, "d_out": case.d_out}.items():
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
