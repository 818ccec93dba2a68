"""using: seeds draw other numbers, conventions write them otherwise, mistakes keep their names."""

import re
from itertools import combinations

import numpy as np
import pytest

from mha_numpy.checking.trees import leaves
from mha_numpy.errors import ConfigError
from mha_numpy.teach.conventions import in_words_of
from mha_numpy.teach.diagnosis import (
    BANK,
    CONVENTIONS,
    TASKS,
    Variant,
    diagnose,
    find_task,
    fingerprints,
    make,
    right_answers,
    using,
)
from mha_numpy.teach.diagnosis.bank import EDITS as EDITS_OF
from mha_numpy.teach.diagnosis.bank import IGNORE_ALL
from mha_numpy.teach.diagnosis.fingerprints import _fingerprints, answers_with, attempt, fits
from mha_numpy.teach.diagnosis.mutants import by_function, edited
from mha_numpy.teach.exercises import EXERCISES
from mha_numpy.teach.exercises.child.messages import Call
from mha_numpy.teach.exercises.judge import judge_answers, probe_inputs
from mha_numpy.teach.exercises.sandbox import Run
from mha_numpy.teach.task import KEPT
from tests.sweeps import sweep
from tests.teach.diagnosis.conventions_by_edits import EDITS
from tests.teach.diagnosis.usual_words import USUAL_WORDS

CASES = [(name, task) for name, convention in CONVENTIONS.items() for task in convention.at]
each_case = pytest.mark.parametrize(("name", "task"), CASES)
SEEDS = (1, 2**255 + 7, 20240301)

BY_EDITS = {  # of the tasks in which no part that is not turned would read these edits
    "True = blocked": CONVENTIONS["True = blocked"].at,
    "0 and -inf": CONVENTIONS["0 and -inf"].at,
    "p = kept": CONVENTIONS["p = kept"].at,
    "groups in turn": CONVENTIONS["groups in turn"].at,
    "heads alternate": CONVENTIONS["heads alternate"].at,
    "packed as q, v, k": CONVENTIONS["packed as q, v, k"].at,
    "params as (outputs, inputs)": CONVENTIONS["params as (outputs, inputs)"].at.keys()
    - {"multi_head_backward"},
    "scores over d_k": CONVENTIONS["scores over d_k"].at,
    "scores without scale": CONVENTIONS["scores without scale"].at,
    "tokens as columns": {"scores", "softmax", "make_mask", "softmax_backward"},
    "heads after the tokens": {"split_heads", "merge_heads"},
    "heads first": {"split_heads", "merge_heads"},
    "tokens first": {"split_heads", "merge_heads"},
}


@pytest.mark.parametrize(("name", "task"), [
    (name, task) for name, tasks in BY_EDITS.items() for task in sorted(tasks)
])  # fmt: skip
def test_a_convention_is_what_an_edit_of_the_source_computes(name, task):
    with using(Variant(conventions=(name,))):
        probes, expected = TASKS[task].probes(), right_answers(task)
    function = edited(task, by_function(EDITS[name]))
    for probe, answer in zip(probes, expected, strict=True):
        assert fits([function(**probe)], [answer])


@each_case
def test_a_convention_matters_and_what_ignores_it_is_named(name, task):
    usual = make(task)
    with using(Variant(7, (name,))):
        answers = [attempt(usual, probe) for probe in TASKS[task].probes()]
        assert fits(answers_with(task, ()), right_answers(task))
        is_same = fits(answers, right_answers(task)) and all(one is not None for one in answers)
        assert is_same == (task in CONVENTIONS[name].same)
        if not fits(answers, right_answers(task)):  # else only its errors can be told
            found = diagnose(task, answers)
            assert [mistake.name for mistake in found.mistakes] == [f"not followed: {name}"]


def sets_of(task):
    """Return the largest sets of conventions that one student may have for a task."""
    known = [name for name, convention in CONVENTIONS.items() if task in convention.at]
    sets = [
        names
        for count in range(1, len(known) + 1)
        for names in combinations(known, count)
        if not any(CONVENTIONS[a].excludes(CONVENTIONS[b]) for a, b in combinations(names, 2))
    ]
    return [one for one in sets if not any(set(one) < set(other) for other in sets)]


TASKS_OF_CASES = sorted({task for _, task in CASES})
MOST = [(one, task) for task in TASKS_OF_CASES for one in sets_of(task)]


@pytest.mark.parametrize(
    "case",
    [*sweep([((name,), task) for name, task in CASES], 12, every=3), *sweep(MOST, 2, every=20)],
)
def test_mistakes_made_in_a_variant_are_named_there(case):
    names, task = case
    usual = set(fingerprints(task))
    with using(Variant(3, names)):
        prints, right = fingerprints(task), right_answers(task)
        is_false = {mistake for name in names for mistake in CONVENTIONS[name].false_here}
        ignored = [prints[name] for name in prints if name not in usual]
        for mistake in usual - set(prints) - is_false:
            answers = answers_with(task, [mistake])
            assert fits(answers, right) or any(fits(answers, one) for one in ignored), mistake
        for name, answers in prints.items():
            assert frozenset({name}) in diagnose(task, answers).causes


@pytest.mark.parametrize("task", TASKS_OF_CASES)
def test_nothing_that_is_told_assumes_the_usual_convention(task):
    piece, made = TASKS[task], {}
    for name in (name for name, convention in CONVENTIONS.items() if task in convention.at):
        with using(Variant(3, (name,))):
            made[name] = {one for one in fingerprints(task) if EDITS_OF[one]}
    statements = [one.statement for one in (*piece.laws, *piece.reactions)]
    for names in [*((name,) for name in made), *sets_of(task)]:
        shown = set.intersection(*(made[name] for name in names))
        verdicts = (BANK[one].verdict for one in shown)
        for text in [*statements, piece.title, piece.hints.where, *verdicts]:
            told = in_words_of([CONVENTIONS[name] for name in names], text)
            for name in names:
                assert not re.search(USUAL_WORDS[name], re.sub(r'"[^"]*"', "", told)), (name, told)


@each_case
def test_laws_reactions_and_slopes_hold_for_right_answers(name, task):
    exercise = next(e for e in EXERCISES if e.task == task and e.kind == "code")
    with using(Variant(5, (name,))):
        function = make(task)
        calls = [Call(function(**inputs), "", (), 0.0) for inputs in probe_inputs(exercise)]
        verdict = judge_answers(exercise, Run(calls, "", ""))
        assert verdict.passed, str(verdict)


@pytest.mark.parametrize("task", sweep(TASKS, 8))
def test_every_seed_shows_the_same_mistakes(task):
    usual = list(fingerprints(task))
    for seed in SEEDS:
        with using(Variant(seed)):
            assert list(fingerprints(task)) == usual


def test_a_seed_changes_the_numbers_and_not_the_shapes():
    usual = TASKS["attention"].probes()
    with using(Variant(1)):
        other = TASKS["attention"].probes()
    assert TASKS["attention"].probes() is usual
    for one, two in zip(usual, other, strict=True):
        for name in "qkv":
            assert one[name].shape == two[name].shape
            assert not two[name].flags.writeable
        assert not np.array_equal(one["v"], two["v"])


@each_case
def test_arrays_lie_in_memory_as_usual(name, task):
    with using(Variant(1, (name,))):
        for tree in (*TASKS[task].probes(), *right_answers(task)):
            for path in (*CONVENTIONS[name].at[task].inputs, *CONVENTIONS[name].at[task].results):
                array = leaves(tree).get(path)
                assert not isinstance(array, np.ndarray) or array.flags.c_contiguous


def test_words_that_would_be_false_are_not_said():
    assert "split without transpose" in fingerprints("split_heads")
    with using(Variant(conventions=("heads after the tokens",))):
        assert "split without transpose" not in fingerprints("split_heads")


def test_conventions_of_other_pieces_change_nothing():
    usual = right_answers("rope")
    with using(Variant(conventions=("True = blocked", "scores over d_k", "heads first"))):
        assert right_answers("rope") is usual
        assert find_task("rope") is TASKS["rope"]


def test_no_convention_followed_is_one_mistake():
    names, usual = (
        ("True = blocked", "groups in turn", "tokens as columns"),
        make("masked_attention"),
    )
    with using(Variant(1, names)):
        answers = [attempt(usual, probe) for probe in TASKS["masked_attention"].probes()]
        assert diagnose("masked_attention", answers).mistakes == [IGNORE_ALL]


@pytest.mark.slow
@pytest.mark.parametrize("is_thorough", sweep([True, False], 1))
def test_one_mistake_beside_no_convention_followed(is_thorough):
    pair = {IGNORE_ALL.name, "scale missing"}
    with using(Variant(1, ("True = blocked", "groups in turn", "tokens as columns"))):
        answers = answers_with("masked_attention", pair)
        assert pair in diagnose("masked_attention", answers, is_thorough=is_thorough).causes


def test_variants_end_and_what_is_kept_is_bounded():
    first = right_answers("merge_heads")
    with pytest.raises(KeyError), using(Variant(1)):
        raise KeyError
    assert right_answers("merge_heads") is first
    for seed in range(KEPT + 5):
        with using(Variant(seed)):
            fingerprints("merge_heads")
    assert _fingerprints.cache_info().currsize == KEPT
    assert len(TASKS) < KEPT


def test_sentences_are_sentences_and_names_are_in_the_bank():
    for convention in CONVENTIONS.values():
        assert convention.sentence.endswith(".")
        assert convention.ignored in BANK
        assert convention.false_here <= BANK.keys()
        for task, turns in convention.at.items():
            probe, answer = TASKS[task].probes()[0], right_answers(task)[0]
            assert set(turns.inputs) <= set(leaves(probe))
            assert set(turns.results) <= set(leaves(answer))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("True = blockd", "did you mean 'True = blocked'"),
        ("", "they are True = blocked, 0 and -inf"),
    ],
)
def test_an_unknown_convention(name, message):
    with pytest.raises(ConfigError, match=message), using(Variant(1, (name,))):
        pass


def test_conventions_about_one_thing_exclude_each_other():
    with pytest.raises(ConfigError, match="'heads first' and 'tokens first' exclude each other"):  # noqa: SIM117
        with using(Variant(1, ("heads first", "tokens first"))):
            pass


def test_conventions_of_a_piece_can_be_joined():
    """In any two of them, what is turned there and back is as it was."""
    for one, other in combinations(CONVENTIONS, 2):
        if CONVENTIONS[one].excludes(CONVENTIONS[other]):
            continue
        for task in sorted(CONVENTIONS[one].at.keys() & CONVENTIONS[other].at.keys()):
            with using(Variant(1, (one, other))):
                assert fits([make(task)(**p) for p in TASKS[task].probes()], right_answers(task))
