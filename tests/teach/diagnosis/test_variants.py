"""using: seeds draw other numbers, conventions write them otherwise, mistakes keep their names."""

from itertools import combinations

import numpy as np
import pytest

from mha_numpy.checking.trees import leaves
from mha_numpy.errors import ConfigError
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

CASES = [(name, task) for name, convention in CONVENTIONS.items() for task in convention.at]
each_case = pytest.mark.parametrize(("name", "task"), CASES)
SEEDS = (1, 2**255 + 7, 20240301)

ELSEWHERE = {  # tasks in which these edits would be read by a part that is not turned
    "direction of descent": {"multi_head_backward"},
    "loss times 1024": {"multi_head_backward"},
    "merged from last to first": {"multi_head_backward"},
    "params as (outputs, inputs)": {"multi_head_backward"},
    "keys as rows": {
        "softmax_with_lse", "masked_attention", "attention_backward", "grouped_backward",
        "backward_from_lse",
    },
    "heads behind the tokens": set(CONVENTIONS["heads behind the tokens"].at)
    - {"split_heads", "merge_heads"},
}  # fmt: skip


@pytest.mark.parametrize(("name", "task"), [
    (name, task) for name, task in CASES if task not in ELSEWHERE.get(name, set())
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
        assert not fits(answers, right_answers(task)) or None in answers
        if any(answer is not None for answer in answers):
            found = diagnose(task, answers)
            assert [mistake.name for mistake in found.mistakes] == [f"not followed: {name}"]


@pytest.mark.parametrize("task", sweep(sorted({task for _, task in CASES}), 8))
def test_mistakes_are_named_under_all_conventions_of_a_piece(task):
    names = tuple(name for name, convention in CONVENTIONS.items() if task in convention.at)
    usual = set(fingerprints(task))
    with using(Variant(3, names)):
        prints = fingerprints(task)
        lost = usual - set(prints) - {n for name in names for n in CONVENTIONS[name].false_here}
        same = {
            name
            for name in lost
            if any(
                fits(answers_with(task, [name]), prints[ignored])
                for ignored in prints
                if ignored in {f"not followed: {n}" for n in names} | {IGNORE_ALL.name}
            )
        }
        assert lost == same
        for name, answers in prints.items():
            assert frozenset({name}) in diagnose(task, answers).causes


@each_case
def test_laws_reactions_and_slopes_hold_for_right_answers(name, task):
    exercise = next(e for e in EXERCISES if e.task == task and e.kind == "code")
    with using(Variant(5, (name,))):
        function = make(task)
        calls = [Call(function(**inputs), "", (), 0.0) for inputs in probe_inputs(exercise)]
        verdict = judge_answers(exercise, Run(calls, "", ""))
        assert verdict.passed, str(verdict)
        piece_now = find_task(task)
        for law in piece_now.laws:
            assert law.statement.endswith("(in the usual conventions)")


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
    with using(Variant(conventions=("heads behind the tokens",))):
        assert "split without transpose" not in fingerprints("split_heads")


def test_conventions_of_other_pieces_change_nothing():
    usual = right_answers("rope")
    with using(Variant(conventions=tuple(CONVENTIONS))):
        assert right_answers("rope") is usual
        assert find_task("rope") is TASKS["rope"]


def test_no_convention_followed_is_one_mistake():
    names, usual = ("True = blocked", "groups in turn", "keys as rows"), make("masked_attention")
    with using(Variant(1, names)):
        answers = [attempt(usual, probe) for probe in TASKS["masked_attention"].probes()]
        assert diagnose("masked_attention", answers).mistakes == [IGNORE_ALL]


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
    [("True = blockd", "did you mean 'True = blocked'"), ("", "they are True = blocked, p = kept")],
)
def test_an_unknown_convention(name, message):
    with pytest.raises(ConfigError, match=message), using(Variant(1, (name,))):
        pass


def test_conventions_of_a_piece_can_be_joined():
    """In any two of them, what is turned there and back is as it was."""
    for one, other in combinations(CONVENTIONS, 2):
        for task in sorted(CONVENTIONS[one].at.keys() & CONVENTIONS[other].at.keys()):
            with using(Variant(1, (one, other))):
                assert fits([make(task)(**p) for p in TASKS[task].probes()], right_answers(task))
