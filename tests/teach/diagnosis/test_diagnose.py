"""diagnose: every mistake is rejected and named, two of them together, and nothing is guessed."""

from importlib import import_module
from itertools import combinations

import numpy as np
import pytest

from mha_numpy.checking import agrees
from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.errors import ConfigError
from mha_numpy.teach.diagnosis import TASKS, diagnose, find_confusion, fingerprints, right_answers
from mha_numpy.teach.diagnosis.fingerprints import TOLERANCE, answers_with, fits
from mha_numpy.teach.diagnosis.wrong import wrong_of
from tests.sweeps import sweep

each_task = pytest.mark.parametrize("task", TASKS)
some_tasks = pytest.mark.parametrize("task", sweep(TASKS, 10))

SAME = [  # two names for one function, or for one that shows in the probes of a task
    {"-1e9 for -inf", "the mean in a row that sees nothing"},
    {"keys mixed instead of values", "values from w_k"},
    {"sign of d_logits", "steps uphill"},
    {
        "maximum includes hidden scores",
        "maximum includes hidden scores, NaN in a row that sees nothing",
    },
    *(
        {"powers times the mask", f"powers times the mask, {more}"}
        for more in ("low rows become 0", "except in rows that see nothing")
    ),
    {
        "powers times the mask, low rows become 0",
        "powers times the mask, except in rows that see nothing",
    },
    {"maximum at least 0", "maximum includes hidden scores"},
    {"maximum at least 0", "maximum includes hidden scores, NaN in a row that sees nothing"},
    {"maximum at least 0", "one maximum for all"},
    *(
        {"no maximum subtracted", f"powers times the mask{more}"}
        for more in ("", ", low rows become 0", ", except in rows that see nothing")
    ),
]
FEWER_PROBES = {  # one of them fails where the other shows another number
    "multi_head_backward": {"heads left after the tokens": "split without transpose"},
}


def each_array(change, answer):
    """Return a copy whose arrays are changed."""
    return replaced(answer, {name: change(np.asarray(a)) for name, a in leaves(answer).items()})


@some_tasks
def test_each_single_mistake_is_rejected_and_named_and_some_pairs_are(task):
    (found,) = find_confusion([task], pairs=2)
    counts = found.counts
    assert counts.singles == len(fingerprints(task)) > 0
    assert counts.rejected == counts.among == counts.singles
    assert len(found.mixed_up) == counts.singles - counts.on_top
    for name, causes in found.mixed_up:
        assert {causes[0], name} in SAME or FEWER_PROBES[task][name] == causes[0]
    assert counts.pairs_named >= counts.pairs_rejected - 1


@pytest.mark.parametrize("task", sweep(TASKS, 0, every=4))
def test_two_mistakes_are_named_or_a_single_one_that_gives_the_same(task, monkeypatch):
    monkeypatch.setattr(import_module("mha_numpy.teach.diagnosis.diagnose"), "PAIRS", 10_000)
    pairs = list(combinations(fingerprints(task), 2))
    tried = named = 0
    for i in np.random.default_rng(0).permutation(len(pairs))[:25]:
        pair = frozenset(pairs[i])
        answers = answers_with(task, pair)
        if all(answer is None for answer in answers):
            continue
        found = diagnose(task, answers)
        if found.is_right:
            continue
        if found.causes:
            assert pair in found.causes or {len(cause) for cause in found.causes} == {1}
        else:  # an edit, or a relation of every wrong array, that gives the same
            wrong = {one.name for one in wrong_of(task, answers)}
            assert found.edit or {name for name, _ in found.apart} == wrong
        tried += 1
        named += bool(found.causes[0] & pair) if found.causes else 1
    assert named >= 0.8 * tried


@each_task
def test_every_mistake_that_shows_gives_a_wrong_array_beyond_rounding(task):
    for name, answers in fingerprints(task).items():
        assert not fits(answers, right_answers(task), 1e-5), name


@each_task
def test_no_two_mistakes_look_the_same(task):
    prints = fingerprints(task)
    for one, other in combinations(prints, 2):
        same = all(
            a is b if a is None or b is None else agrees(a, b, tolerance=TOLERANCE)
            for a, b in zip(prints[one], prints[other], strict=True)
        )
        assert not same or {one, other} in SAME, (one, other)


@each_task
def test_right_answers_in_any_order_of_memory_are_right(task):
    answers = [each_array(lambda a: a.copy(order="F"), answer) for answer in right_answers(task)]
    assert diagnose(task, answers).is_right


@some_tasks
def test_nothing_is_guessed(task):
    rng = np.random.default_rng(1)
    answers = [
        each_array(lambda a: rng.normal(size=a.shape), answer) for answer in right_answers(task)
    ]
    found = diagnose(task, answers)
    assert not found.is_right
    assert found.causes == ()
    assert found.mistakes == []


def test_rounding_to_float32_is_named():
    answers = [
        each_array(lambda a: a.astype(np.float32).astype(float), answer)
        for answer in right_answers("attention_backward")
    ]
    assert [m.name for m in diagnose("attention_backward", answers).mistakes] == ["float32 inside"]


def test_two_mistakes_are_named_together():
    pair = frozenset({"scale missing", "softmax over queries"})
    assert diagnose("attention", answers_with("attention", pair)).causes[0] == pair


def test_without_a_search_one_mistake_is_named_and_two_are_not():
    wrong = answers_with("attention", {"scale missing"})
    assert diagnose("attention", wrong, is_thorough=False) == diagnose("attention", wrong)
    both = answers_with("attention", {"scale missing", "softmax over queries"})
    assert diagnose("attention", both, is_thorough=False).causes == ()


def test_a_mistake_that_shows_only_beside_another_is_named():
    pair = frozenset({"mask inverted", "NaN in a row that sees nothing"})
    assert "NaN in a row that sees nothing" not in fingerprints("multi_head")
    assert pair in diagnose("multi_head", answers_with("multi_head", pair)).causes


@each_task
def test_an_answer_that_failed_everywhere_has_no_cause(task):
    found = diagnose(task, [None] * len(TASKS[task].probes()))
    assert (found.is_right, found.causes) == (False, ())


def test_a_mistake_that_fails_wherever_it_shows_leaves_no_fingerprint():
    answers = answers_with("decode_step", ["q and k swapped"])
    assert [answer is None for answer in answers] == [True, False, True, True, True]
    assert "q and k swapped" not in fingerprints("decode_step")


def test_wrong_use():
    with pytest.raises(ConfigError, match="task: expected one of split_heads, .*; got 'x'"):
        diagnose("x", [])
    with pytest.raises(ConfigError, match="answers: expected 4 of them; got 0"):
        diagnose("split_heads", [])
