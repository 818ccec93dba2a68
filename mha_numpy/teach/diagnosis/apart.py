"""Causes of a single array, which need not be those of the others."""

from collections.abc import Sequence
from itertools import islice

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.conventions import conventions_of
from mha_numpy.teach.diagnosis.bank import BANK
from mha_numpy.teach.diagnosis.fingerprints import attempt, fingerprints
from mha_numpy.teach.diagnosis.mutants import assembled
from mha_numpy.teach.diagnosis.search import find_edit, has_table, step_of_edit
from mha_numpy.teach.diagnosis.sizes import factor_of, factors, ratio
from mha_numpy.teach.diagnosis.solutions import called_by
from mha_numpy.teach.diagnosis.wrong import NONE, Wrong, arrays_of, names_of

SIMPLE = 40  # factors that are divided out before an edit is looked up
FACTORS = "a part that does not belong there"  # edits that multiply
SCALES = 500  # factors that are tried as what the scores are divided by
MANY = 100  # edits that give the same: then none of them is the cause


def find_cause(wrong: Wrong) -> str:
    """Return why one array is wrong, in a clause, or an empty text; it follows from no relation."""
    if wrong.is_nan_alone:
        return ""
    with np.errstate(all="ignore"):
        for find in (_known, _edited, _known_times, _scaled_scores, _edited_times):
            if told := find(wrong):
                return told
    return ""


def _known(wrong: Wrong) -> str:
    """Return the known mistake that gives this array."""
    for name, answers in fingerprints(wrong.task).items():
        if wrong.is_given_by(wrong.taken_from(answers)):
            return f"this mistake gives exactly your numbers: {BANK[name].verdict}"
    return ""


def _known_times(wrong: Wrong) -> str:
    """Return the known mistake that gives this array times a factor, and the factor."""
    for name, answers in fingerprints(wrong.task).items():
        made = wrong.taken_from(answers)
        if not wrong.are_same(wrong.right, made):
            factor = factor_of(wrong.sizes, list(map(ratio, wrong.mine, made, wrong.largest)))
            if factor and factor.count("sqrt") < 2:  # two roots fit by chance
                return f"{BANK[name].verdict}; and all of it is {times(factor)}"
    return ""


def times(factor: str) -> str:
    """Return the words for a factor."""
    return "turned to the other sign" if factor == "-1" else f"multiplied by {factor}"


def _edited(wrong: Wrong, factor: Sequence[float] = (), words: str = "") -> str:
    """Return the small edit that gives this array, or this array times a factor."""
    if not has_table(wrong.task):  # it would take too long for each array
        return ""
    meant = [name == wrong.name for name in names_of(wrong.task)]
    edit = find_edit(wrong.task, wrong.as_answers(factor), MANY, meant)
    adds_one = bool(words) and edit is not None and edit.group == FACTORS
    if edit is None or edit.others > MANY or adds_one:  # and takes it away again
        return ""
    return f"{step_of_edit(edit)}{words}"


def _edited_times(wrong: Wrong) -> str:
    """Return the small edit that gives this array times a factor, and the factor."""
    for text, numbers in islice(factors(wrong.sizes), SIMPLE):
        told = _edited(wrong, (1 / numbers).tolist(), f"; and all of it is {times(text)}")
        if told:
            return told
    return ""


def _scaled_scores(wrong: Wrong) -> str:
    """Return what the scores were divided by, if that is all."""
    if "scores" not in called_by(wrong.task) - {wrong.task} or conventions_of(wrong.task):
        return ""
    function = assembled(wrong.task, {})
    namespace = function.__globals__
    scores = namespace["scores"]
    roots = [np.sqrt(one.get("d_k", one.get("d", 1.0))) for one in wrong.sizes]
    for text, numbers in [("1", np.ones(len(roots))), *islice(factors(wrong.sizes), SCALES)]:
        given: list[Array] = []
        for number, probe, c in zip(wrong.numbers, wrong.probes, roots / numbers, strict=True):

            def scaled(q: Array, k: Array, c: float = c) -> Array:
                return np.asarray(scores(q, k) * c)

            namespace["scores"] = scaled
            answer = attempt(function, probe, (Exception,))
            given.append(dict(arrays_of(wrong.task, answer, number)).get(wrong.name, NONE))
            if not wrong.are_same(wrong.mine[: len(given)], given):
                break
        else:
            return f"the scores are divided by {text}, not by np.sqrt(d_k)"
    return ""
