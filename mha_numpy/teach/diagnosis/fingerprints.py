"""Answers: the results of right and wrong functions for the probes of a task."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from mha_numpy.checking import agrees
from mha_numpy.checking.compare import agreeing
from mha_numpy.teach.conventions import conventions_of, variant_in_force
from mha_numpy.teach.diagnosis.bank import BANK, IGNORE_ALL, Function
from mha_numpy.teach.diagnosis.mutants import may_show, mutated
from mha_numpy.teach.in_force import cached
from mha_numpy.teach.task import KEPT, Inputs
from mha_numpy.teach.tasks import TASKS
from mha_numpy.teach.turns import Convention

Answer = Any  # an array, or several with their names; None where a function failed
MISFIT = (ValueError, IndexError, ZeroDivisionError)  # the last where a size of 0 is divided by
TOLERANCE = 1e-10  # of the largest number: two right ways are closer, a mistake is not


def right_answers(task: str) -> list[Answer]:
    """Return the right arrays for every probe of the variant in force."""
    return _right_answers(task, variant_in_force().seed, conventions_of(task))


@cached(KEPT)
def _right_answers(task: str, seed: int, conventions: tuple[Convention, ...]) -> list[Answer]:
    """Compute them once for each variant, which is the one in force."""
    return answers_with(task, ())


def answers_with(task: str, mistakes: Collection[str]) -> list[Answer]:
    """Return the results of a function with these mistakes for every probe; None where it fails.

    The list is empty if the mistakes are alternatives.
    """
    function = mutated(task, mistakes)
    return [attempt(function, probe) for probe in TASKS[task].probes()] if function else []


def fingerprints(task: str) -> dict[str, list[Answer]]:
    """Return the results of each known mistake for every probe, if any is wrong.

    A mistake that fails wherever it changes something leaves no fingerprint. If conventions are in
    force, not following them is a mistake, and mistakes with the same numbers are left out.
    """
    return _fingerprints(task, variant_in_force().seed, conventions_of(task))


@cached(KEPT)
def _fingerprints(
    task: str, seed: int, conventions: tuple[Convention, ...]
) -> dict[str, list[Answer]]:
    """Compute them once for each variant, which is the one in force."""
    names = [convention.ignored for convention in conventions]
    names += [IGNORE_ALL.name] * (len(names) > 1)
    right, ignoring = right_answers(task), {name: answers_with(task, [name]) for name in names}
    with_each = {name: answers_with(task, [name]) for name in BANK if may_show(task, name)}
    others = {
        name: answers
        for name, answers in with_each.items()
        if not any(fits(answers, ignored) for ignored in ignoring.values())
    }
    both = ignoring | others
    return {name: answers for name, answers in both.items() if not fits(answers, right)}


def fits(answers: Sequence[Answer], others: Sequence[Answer], tolerance: float = TOLERANCE) -> bool:
    """Return whether both have the same arrays wherever there is an answer."""
    return all(
        answer is None or (other is not None and agrees(answer, other, tolerance=tolerance))
        for answer, other in zip(answers, others, strict=True)
    )


def agreeing_arrays(answer: Answer, other: Answer) -> list[bool]:
    """Return which arrays agree."""
    return list(agreeing(answer, other, tolerance=TOLERANCE))


def gives(answers: Sequence[Answer], found: Sequence[Answer], wrong: Sequence[bool] = ()) -> bool:
    """Return whether `found` equals the answers, or at least their `wrong` arrays if given."""
    if not wrong:
        return fits(answers, found)
    return all(
        one is None or (other is not None and _gives_wrong(one, other, wrong))
        for one, other in zip(answers, found, strict=True)
    )


def _gives_wrong(answer: Answer, other: Answer, wrong: Sequence[bool]) -> bool:
    agree = agreeing_arrays(answer, other)
    return len(agree) == len(wrong) and all(
        one for one, is_wrong in zip(agree, wrong, strict=True) if is_wrong
    )


def attempt(
    function: Function,
    probe: Inputs,
    failures: tuple[type[Exception], ...] = MISFIT,
) -> Answer:
    """Return the result, or None if a mistake makes shapes that do not fit, or fails otherwise."""
    try:
        with np.errstate(all="ignore"):
            return function(**probe)
    except failures:
        return None
