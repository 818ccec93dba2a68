"""Submissions by somebody who had not read the list of known mistakes, in many styles.

Each file of `foreign` holds right solutions of one exercise, judged in `test_right.py`, and wrong
ones as edits of them: common mistakes, and unlisted ones, which their author did not expect on such
a list. What each did wrong stands beside it in a sentence. Rules and clues were chosen with the
unlisted ones in view; the fresh ones came afterwards, from somebody else, and nothing was changed
for them.
"""

import tomllib
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from mha_numpy.checking.trees import leaves
from mha_numpy.teach.diagnosis import TASKS, Variant, diagnose, right_answers, using
from mha_numpy.teach.diagnosis.bank import FLOAT32
from mha_numpy.teach.diagnosis.clues import find_clues
from mha_numpy.teach.diagnosis.diagnose import NARROW
from mha_numpy.teach.diagnosis.fingerprints import TOLERANCE, answers_with, attempt, fits
from mha_numpy.teach.diagnosis.mutants import apply_edits
from mha_numpy.teach.diagnosis.relations import find_relation
from mha_numpy.teach.diagnosis.search import candidates
from mha_numpy.teach.diagnosis.wrong import wrong_of
from mha_numpy.teach.exercises import find_exercise
from tests.sweeps import sweep

FILES = sorted((Path(__file__).parent / "foreign").glob("*.toml"))
EXPLAINED = {"common": 0.97, "unlisted": 0.85, "fresh": 0.85}  # the least share of each kind


def solutions(file):
    return tomllib.loads(file.read_text(encoding="utf-8"))["solution"]


def wrong_codes(file):
    for solution in solutions(file):
        for mistake in solution.get("mistake", ()):
            yield mistake, apply_edits(solution["code"], dict(mistake["edit"]))


def load(code, name):
    names = {"np": np}
    exec(code, names)
    return names[name]


def answers_of(exercise, code):
    function = load(code, exercise.function_name)
    return [attempt(function, probe, (Exception,)) for probe in TASKS[exercise.task].probes()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.filterwarnings("ignore")
def test_wrong_ones_are_not_right(file):
    exercise = find_exercise(file.stem)
    right = right_answers(exercise.task)
    for mistake, code in wrong_codes(file):
        answers = answers_of(exercise, code)
        assert any(one is None for one in answers) or not fits(answers, right), mistake["what"]


def same_without_nan(answers, made, tolerance):
    """Return whether numbers agree; a hidden cell in a row of NaN is NaN in some styles alone."""
    for answer, other in zip(answers, made, strict=True):
        if answer is None or other is None:
            continue
        both = list(zip(leaves(answer).values(), leaves(other).values(), strict=True))
        if any(np.shape(mine) != np.shape(theirs) for mine, theirs in both):
            return False
        is_nan = [np.isnan(mine) | np.isnan(theirs) for mine, theirs in both]
        pairs = zip(both, is_nan, strict=True)
        cleared = [[np.where(nan, 0, one) for one in pair] for pair, nan in pairs]
        mine, theirs = zip(*cleared, strict=True)
        if not fits([mine], [theirs], tolerance):
            return False
    return True


def relations(exercise, code):
    """Return how each wrong array follows from the right one, where it does."""
    wrong = wrong_of(exercise.task, answers_of(exercise, code))
    return {one.name: find_relation(one) for one in wrong}


def explained(exercise, code):
    """Return whether an answer is explained: by a mistake or edit that is one for other numbers."""
    found = diagnose(exercise.task, answers_of(exercise, code))
    if found.apart:
        told = relations(exercise, code).items() & set(found.apart)
        with using(Variant(seed=1)):
            assert told <= relations(exercise, code).items(), code
        return True
    if not found.causes and not found.edit:
        return bool(find_clues(exercise.task, answers_of(exercise, code)))
    if found.is_partial or (found.causes and found.edit):
        return True
    with using(Variant(seed=1)):
        answers = answers_of(exercise, code)
        if found.causes:
            assert any(
                same_without_nan(
                    answers,
                    answers_with(exercise.task, cause),
                    NARROW if FLOAT32 in cause else TOLERANCE,
                )
                for cause in found.causes
            ), (found.causes, code)
        else:
            made = [
                one
                for one in candidates(exercise.task)
                if (one.function, one.edit.group) == (found.edit.function, found.edit.group)
                and one.edited.lines(one.edit) == (found.edit.wrong, found.edit.right)
            ]
            assert any(fits(answers, list(one.answers(exercise.task))) for one in made), code
    return True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("some", sweep(product(EXPLAINED, range(3)), 0, every=3))
def test_unlisted_mistakes_are_explained_and_none_of_them_wrongly(some):
    kind, part = some
    found = [
        explained(find_exercise(file.stem), code)
        for file in FILES[part::3]
        for mistake, code in wrong_codes(file)
        if mistake["kind"] == kind
    ]
    assert np.mean(found) >= EXPLAINED[kind]
