"""Every exercise: complete, and not solved by its stub."""

import ast
import re
from inspect import signature

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.diagnosis import BANK, TASKS, fingerprints
from mha_numpy.teach.exercises import EXERCISES, find_exercise, give_hint, judge
from mha_numpy.teach.exercises.exercise import stub_text

each_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
SINGLE_NUMBERS = {  # are all that differs: there is nothing to draw
    "cost-table", "cross-entropy", "museum-mean-of-means", "museum-evaluated-with-dropout",
}  # fmt: skip
museum = [e for e in EXERCISES if e.id.startswith("museum-")]


def test_ids_are_unique_and_needs_come_before():
    ids = [e.id for e in EXERCISES]
    assert len(set(ids)) == len(ids)
    for n, exercise in enumerate(EXERCISES):
        assert set(exercise.needs) <= set(ids[:n]), exercise.id


@each_exercise
def test_an_entry_is_complete(exercise):
    assert exercise.title
    assert 1 <= exercise.difficulty <= 5
    assert 1 <= exercise.minutes <= 180
    assert exercise.hints.mistake in fingerprints(exercise.task)
    texts = [give_hint(exercise, number).text for number in (1, 2, 3, 4)]
    assert all(texts)
    assert len(set(texts)) == 4
    assert "Parameters" in exercise.stub_source


@each_exercise
def test_the_fourth_hint_has_its_code_in_blocks(exercise):
    hint = give_hint(exercise, 4)
    code = [line[4:] for line in hint.text.split("\n") if line.startswith("    ")]
    prose = [line for line in hint.text.split("\n") if not line.startswith("    ")]
    ast.parse("\n".join(code))
    assert code or exercise.id in ("museum-batch-mean", "break-my-attention")
    assert not any(mark in line for line in prose for mark in ("np.", " @ ", "params."))
    assert str(hint).startswith(f"{exercise.id}, hint 4 of 4:")
    assert hint._repr_html_().count("<pre") == len(re.findall(r"(?m)(^    .*\n?)+", hint.text))


def test_a_fix_in_words_is_not_shown_as_code():
    hint = give_hint(find_exercise("softmax"), 4, ["mask multiplied into the scores"])
    assert "\nnp.where(mask, scores, -np.inf), not scores * mask\n" in str(hint)


@each_exercise
def test_the_third_hint_has_a_picture(exercise):
    hint = give_hint(exercise, 3)
    assert BANK[exercise.hints.mistake].verdict in hint.text
    assert (hint.difference is None) == (exercise.id in SINGLE_NUMBERS)
    if hint.difference:
        assert hint.difference.names == ("right", "with this mistake")


@each_exercise
def test_a_stub_is_a_module_that_runs_and_has_the_arguments_of_its_probes(exercise):
    text = stub_text(exercise)
    namespace = {}
    exec(compile(text, exercise.id, "exec"), namespace)
    function = namespace[exercise.function_name]
    (definition,) = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    assert not definition.decorator_list
    names = [a.arg for a in definition.args.args]
    assert all(a.annotation for a in definition.args.args)
    assert definition.returns
    if exercise.kind != "tests":
        assert names == list(TASKS[exercise.task].probes()[0])
    assert function.__doc__


@each_exercise
def test_the_stub_is_not_right(exercise):
    verdict = judge(exercise, lambda: exercise.stub)
    assert not verdict.passed
    assert verdict.is_unwritten
    if exercise in museum:  # a bug that has a name, which is not told yet
        assert verdict.stages[0].passed, f"\n{verdict}"
        assert verdict.mistakes == {exercise.hints.mistake}
        assert verdict.summary == "the bug is still there"
        assert BANK[exercise.hints.mistake].verdict not in str(verdict)


def test_an_exhibit_takes_and_returns_what_its_task_says():
    for exhibit in museum:
        task = next(e for e in EXERCISES if (e.task, e.kind) == (exhibit.task, "code"))
        _, described = task.stub_source.split("    Parameters\n")
        assert described.removesuffix("    raise NotImplementedError\n") in exhibit.stub_source
        assert signature(exhibit.stub).parameters == signature(task.stub).parameters


def test_an_unknown_id():
    with pytest.raises(ConfigError, match="got 'sotfmax'; did you mean 'softmax'"):
        find_exercise("sotfmax")
    with pytest.raises(ConfigError, match="`mha-numpy exercises` lists them"):
        find_exercise("zzz")
