"""diagnose: name the known mistakes that give exactly these arrays."""

from collections.abc import Collection, Sequence
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np

from mha_numpy.checking.differences import differing
from mha_numpy.checking.trees import leaves
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.teach.diagnosis.bank import BANK, FLOAT32, IGNORE_ALL
from mha_numpy.teach.diagnosis.fingerprints import (
    TOLERANCE,
    Answer,
    attempt,
    fingerprints,
    fits,
    gives,
    right_answers,
)
from mha_numpy.teach.diagnosis.mutants import may_show, mutated
from mha_numpy.teach.diagnosis.relations import MANY, find_cause, find_relation
from mha_numpy.teach.diagnosis.search import SmallEdit, find_edit, find_edit_beside
from mha_numpy.teach.diagnosis.wrong import Wrong, have_shapes, names_of, wrong_of
from mha_numpy.teach.task import Mistake
from mha_numpy.teach.tasks import TASKS, find_task

# what shows only where another mistake makes a row see nothing
LATENT = ("NaN in a row that sees nothing", "-1e9 for -inf")
FEW = 5  # other edits that give the same: then a listed pair goes before
TRIALS = 1500  # edits that are made where they cannot be looked up; it takes about a second
PAIRS = 2000  # of known mistakes that are tried; the fewer there are, the more edits
NARROW = 2e-5  # float32 is closer to float64; a leak of e^-10 is not


class Diagnosis(NamedTuple):
    """A diagnosis of an answer: right, or its causes.

    ``causes`` are alternatives, each a set of mistakes that gives exactly the answer's arrays; none
    if no known mistake, nor two of them, does. Where they are partial, the mistake gives exactly
    those arrays that are wrong, and was not made in the others. ``edit`` is a small edit of the
    right function that gives the arrays, by itself or together with the mistake. ``apart`` are
    causes of single arrays, or of all of them alike. Beside two mistakes that give all,
    ``but_for_nan`` are those that by themselves give every number that is not NaN.
    """

    is_right: bool
    causes: tuple[frozenset[str], ...]
    is_partial: bool = False
    edit: SmallEdit | None = None
    apart: tuple[tuple[str, str], ...] = ()  # names of arrays, and the cause of each
    but_for_nan: tuple[frozenset[str], ...] = ()

    @property
    def mistakes(self) -> list[Mistake]:
        """The mistakes of the first alternative."""
        return [BANK[name] for name in sorted(self.causes[0])] if self.causes else []


def diagnose(task: str, answers: Sequence[Answer], *, is_thorough: bool = True) -> Diagnosis:
    """Find the known mistakes, one or two, that give exactly these arrays.

    Parameters
    ----------
    task : str
        Which function was written, a key of ``TASKS``.
    answers : sequence
        The function's results for the task's probes, each an array or a tuple of arrays; None where
        it failed, which any mistake may explain.
    is_thorough : bool
        Whether to search for what takes seconds: small edits, and two mistakes. Otherwise two are
        found only if one of them is that no convention is followed.

    Returns
    -------
    Diagnosis
        Right, or the causes that fit every answer; without causes if none fits, because a name is
        never guessed.

    Examples
    --------
    >>> def mine(x, num_heads):
    ...     B, T, width = x.shape
    ...     return x.reshape(B, num_heads, T, width // num_heads)
    >>> answers = [mine(**probe) for probe in TASKS["split_heads"].probes()]
    >>> print(*(mistake.name for mistake in diagnose("split_heads", answers).mistakes))
    split without transpose
    """
    right = right_answers(find_task(task).name)
    if len(answers) != len(right):
        raise ConfigError(f"answers: expected {len(right)} of them; got {len(answers)}")
    if fits(answers, right):
        return Diagnosis(all(answer is not None for answer in answers), ())
    made = fingerprints(task)
    singles = [name for name, wrong in made.items() if fits(answers, wrong)]
    if singles:
        return Diagnosis(False, tuple(frozenset({name}) for name in singles))
    if _is_narrow(answers):
        both = {frozenset({name, FLOAT32}): wrong for name, wrong in made.items()}
        narrow = {frozenset({FLOAT32}): right} | both
        causes = [cause for cause, wrong in narrow.items() if fits(answers, wrong, NARROW)]
        if causes:
            return Diagnosis(False, tuple(causes))
    each = wrong_of(task, answers)
    wrong = [name in {one.name for one in each} for name in names_of(task)]
    is_partial = any(wrong) and not all(wrong)
    is_broken = bool(each) and all(one.is_nan_alone for one in each)
    with np.errstate(all="ignore"):
        related = [(one.name, find_relation(one)) for one in each]
    is_related = bool(related) and all(told for _, told in related)
    if is_related:
        return Diagnosis(False, (), apart=tuple(related))
    if is_partial and not is_broken:
        partial = [name for name, one in made.items() if gives(answers, one, wrong)]
        if partial:
            return Diagnosis(False, tuple(frozenset({name}) for name in partial), is_partial=True)
    if not (is_thorough or _ignores_all_and_more(task, answers)):
        return Diagnosis(False, ())
    is_lost = bool(each) and all(one.is_lost for one in each)  # or infinities tell by their places
    edit = None if is_lost else find_edit(task, answers, TRIALS)
    if edit and edit.others <= FEW:
        return Diagnosis(False, (), edit=edit)
    tried = list(islice(combinations(_names(task), 2), PAIRS))
    pairs = [pair for pair in tried if _makes(task, pair, answers)]
    if pairs:
        pairs.sort(key=lambda pair: -_explained(each, [made[one] for one in pair if one in made]))
        nearly = (name for name, one in made.items() if _fits_but_for_nan(answers, one, right))
        alone = tuple(frozenset({name}) for name in nearly)
        return Diagnosis(False, tuple(map(frozenset, pairs)), but_for_nan=alone)
    if edit and edit.others <= MANY and not is_broken:
        return Diagnosis(False, (), edit=edit)
    edit = find_edit(task, answers, TRIALS, wrong) if is_partial and not is_broken else None
    if edit and edit.others <= MANY:
        return Diagnosis(False, (), is_partial=True, edit=edit)
    pairs_of = zip(each, related, strict=True)
    apart = [(one.name, told or find_cause(one)) for one, (_, told) in pairs_of]
    if any(told for _, told in apart):
        return Diagnosis(False, (), apart=tuple(pair for pair in apart if pair[1]))
    if is_broken:
        return Diagnosis(False, ())
    explained = {name: _explained(each, [made[name]]) for name in made}
    names = sorted(filter(explained.get, explained), key=lambda name: -explained[name])
    beside = find_edit_beside(task, answers, TRIALS * (PAIRS - len(tried)) // PAIRS, names)
    if beside is None:
        return Diagnosis(False, ())
    return Diagnosis(False, (frozenset({beside[0]}),), edit=beside[1])


def _fits_but_for_nan(
    answers: Sequence[Answer], made: Sequence[Answer], right: Sequence[Answer]
) -> bool:
    """Return whether a mistake gives all numbers that are not NaN, and some of them are wrong."""
    is_wrong = False
    for mine, other, ours in zip(answers, made, right, strict=True):
        here, there = (list(map(np.asarray, leaves(one).values())) for one in (mine, other))
        if mine is None or other is None or not have_shapes(here, there):
            return False
        is_nan = [np.isnan(one) for one in here]
        filled = list(map(np.where, is_nan, there, here))
        if not fits([filled], [there]):
            return False
        is_wrong |= not any(map(np.any, is_nan)) and not fits([mine], [ours])
    return is_wrong


def _explained(each: Sequence[Wrong], made: Sequence[Sequence[Answer]]) -> int:
    """Count the wrong numbers that one of some answers has as well."""
    count = 0
    for one in each:
        others = [one.taken_from(answers) for answers in made]
        for i, mine in enumerate(one.mine):
            off = [_off(mine, known[i], one.largest[i]) for known in (one.right, *others)]
            count += int((off[0] & ~np.all(off, axis=0)).sum())
    return count


def _off(mine: Array, other: Array, largest: float) -> Array:
    """Return which numbers of an array are not those of another."""
    if mine.shape != other.shape:
        return np.ones(mine.shape, dtype=bool)
    return differing(mine, other, np.float64(largest), TOLERANCE)


def _is_narrow(answers: Sequence[Answer]) -> bool:
    """Return whether every number is one of float32."""
    found = [leaf for answer in answers for leaf in leaves(answer).values() if leaf is not None]
    return all(
        array.dtype.kind == "f" and np.array_equal(array, np.float32(array), equal_nan=True)
        for array in map(np.asarray, found)
    )


def _names(task: str) -> list[str]:
    latent = (name for name in LATENT if may_show(task, name))
    return list(dict.fromkeys([*latent, *fingerprints(task)]))  # the usual ones first


def _ignores_all_and_more(task: str, answers: Sequence[Answer]) -> bool:
    """Return whether one mistake gives the answers if no convention is followed."""
    names = fingerprints(task).keys()
    others = names - {IGNORE_ALL.name} if IGNORE_ALL.name in names else ()
    return any(_makes(task, (IGNORE_ALL.name, name), answers) for name in others)


def _makes(task: str, pair: Collection[str], answers: Sequence[Answer]) -> bool:
    """Return whether two mistakes together give the answers; stop at the first that differs."""
    function = mutated(task, pair)
    return function is not None and all(
        answer is None or fits([answer], [attempt(function, probe)])
        for probe, answer in zip(TASKS[task].probes(), answers, strict=True)
    )
