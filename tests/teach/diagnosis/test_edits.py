"""Edits: each text stands once, each edit matters, each mistake shows; others are refused."""

from collections import Counter

import pytest

from mha_numpy.checking import agrees
from mha_numpy.errors import ConfigError
from mha_numpy.teach.diagnosis import MISBEHAVIOURS, TASKS, fingerprints
from mha_numpy.teach.diagnosis.bank import EDITS, MISTAKES
from mha_numpy.teach.diagnosis.fingerprints import attempt
from mha_numpy.teach.diagnosis.mutants import (
    apply_edits,
    by_function,
    edited,
    edits_of,
    may_show,
    mutated,
)
from mha_numpy.teach.diagnosis.solutions import called_by, read_solutions

FAILURES = (ValueError, IndexError, NameError)  # one edit may name what another one makes


def test_edits_are_applied_at_once():
    assert apply_edits("a + b", {"a": "b", "b": "a"}) == "b + a"


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"c": "d"}, "'c' occurs 0 times"),
        ({"a": "d"}, "'a' occurs 2 times"),
        ({"a + b": "", "b + a": ""}, "expected texts that do not overlap"),
    ],
)
def test_edits_that_cannot_be_made(edits, message):
    with pytest.raises(ConfigError, match=message):
        apply_edits("a + b + a", edits)


def test_names_are_unique():
    assert max(Counter(mistake.name for mistake in [*MISTAKES, *MISBEHAVIOURS]).values()) == 1


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_every_mistake_shows_somewhere_and_says_what_to_do(mistake):
    edits = edits_of(mistake.name)  # each text stands just once, in a function
    assert any(mistake.name in fingerprints(task) for task in TASKS)
    assert mistake.verdict
    assert mistake.fix
    assert "\n" not in mistake.fix
    assert set(edits) <= {name for task in TASKS for name in called_by(task)}


@pytest.mark.parametrize(
    "name", [name for name, edits in EDITS.items() if sum(map(len, edits.values())) > 1]
)
def test_every_edit_of_several_matters(name):
    """Without one of its edits, a mistake gives other numbers in some task."""
    all_edits = [(file, old) for file, edits in EDITS[name].items() for old in edits]
    for file, text in all_edits:
        rest = {
            other: {old: new for old, new in edits.items() if (other, old) != (file, text)}
            for other, edits in EDITS[name].items()
        }
        (function,) = by_function({file: {text: ""}})
        assert any(
            differs(task, edited(task, by_function(rest)), name)
            for task in TASKS
            if function in called_by(task)
        ), f"{file}.py: the edit of {text!r} changes nothing; leave it out"


def differs(task, function, mistake):
    """Return whether a function gives other numbers than a mistake does."""
    for probe in TASKS[task].probes():
        one, other = (attempt(f, probe, FAILURES) for f in (function, mutated(task, [mistake])))
        if (one is None) != (other is None) or (one is not None and not agrees(one, other)):
            return True
    return False


def test_a_mistake_that_lies_elsewhere_cannot_show():
    assert not may_show("rope", "scale missing")
    assert may_show("decode_step", "scale missing")


def test_alternatives_cannot_be_made_together():
    assert mutated("make_mask", ["causal, strict", "causal, leaks one key"]) is None
    assert mutated("make_mask", ["causal, strict", "padding forgotten"]) is not None


def test_a_text_outside_of_the_functions_is_refused():
    with pytest.raises(ConfigError, match="'class WeightsAndLse\\(' occurs 0 times"):
        by_function({"softmax_with_lse": {"class WeightsAndLse(": ""}})


def test_an_unedited_function_keeps_its_code():
    function = edited("softmax", edits_of("softmax over queries"))
    assert function.__code__ is read_solutions().cuts["softmax"].function.__code__
