"""grade_one: tests and memory have points of their own, and what cannot be run costs nobody any."""

import os
from collections import defaultdict
from dataclasses import replace

import pytest

from mha_numpy.errors import ConfigError, SandboxError
from mha_numpy.teach.classroom import student as student_module
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.grade import grade, grade_one, in_processes
from mha_numpy.teach.classroom.handout import readme_text
from mha_numpy.teach.classroom.marks import MARKS
from mha_numpy.teach.classroom.public import public_stages
from mha_numpy.teach.classroom.submissions import File
from mha_numpy.teach.diagnosis import Variant, find_task, make, using
from mha_numpy.teach.exercises import find_exercise, judge
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.child.values import pack
from mha_numpy.teach.exercises.isolation import Sandbox
from mha_numpy.teach.exercises.judge import memory_inputs, probe_inputs
from tests.teach.classroom.classes import assign, hand_in, task_of, written
from tests.teach.exercises import catch_all
from tests.teach.exercises.test_judge_tests import STRONG, WEAK, isolated

PATIENT = Limits(seconds=60)
ENDS_EARLY = """
calls = []

def break_my_attention(attention):
    calls.append(attention)
    if len(calls) == 2:
        raise SystemExit(3)
    raise ValueError
"""
REJECTS = "def break_my_attention(attention):\n    raise ValueError('0.123')"
NOT_WRITTEN = "def break_my_attention(attention):\n    raise NotImplementedError"
ALL_SCORES = """
import numpy as np

def online_attention(q, k, v, block):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights @ v / weights.sum(axis=-1, keepdims=True)
"""


def task(text, exercise="break-my-attention", *, is_isolated=True):
    given = Assignment("hw", "Homework", {exercise: 20.0}, dict(MARKS), secret=b"not told")
    return task_of(text, given, limits=PATIENT, is_isolated=is_isolated)


def graded(text, *given, **named):
    (function,) = grade_one(task(text, *given, **named)).functions
    return function


@isolated
class TestTests:
    @pytest.mark.parametrize("is_isolated", [True, False])
    def test_that_catch_all_have_all_points(self, is_isolated):
        function = graded(STRONG, is_isolated=is_isolated)
        assert (function.points, function.state, function.findings) == (20, "right", [])

    def test_that_catch_some_have_their_share(self):
        function = graded(WEAK)
        assert 0 < function.points < 18
        assert function.state == "wrong"
        (finding,) = function.findings
        assert finding.startswith("of the mistakes, it catches ")
        caught, count, required = (
            int(word) for word in finding.replace(";", "").split() if word.isdigit()
        )
        assert function.points == round(20 * caught / required, 2)
        assert required < count

    @pytest.mark.parametrize(
        ("text", "state", "finding"),
        [
            (REJECTS, "wrong", "it rejects a function that is right"),
            (ENDS_EARLY, "failed", "it does not run: it ended the process"),
            (NOT_WRITTEN, "not written", ""),
        ],
    )
    def test_that_reject_what_is_right_or_do_not_run_to_the_end_have_none(
        self, text, state, finding
    ):
        function = graded(text)
        assert (function.points, function.state) == (0, state)
        assert "".join(function.findings) == finding


def test_the_handout_says_how_tests_are_graded():
    given = task("").assignment
    assert "for the mistakes that they catch" in readme_text(given, "ada", "files")
    other = replace(given, exercises={"softmax": 1.0})
    assert "by the mistakes" not in readme_text(other, "ada", "files")


def test_public_checks_of_tests():
    stages = public_stages("break-my-attention", catch_all.catch_all)
    assert [stage.passed for stage in stages] == [True, True, True]


@isolated
@pytest.mark.parametrize("is_isolated", [True, False])
def test_attention_in_blocks_that_holds_all_scores_loses_robustness(is_isolated):
    function = graded(ALL_SCORES, "online-attention", is_isolated=is_isolated)
    assert function.points == 20 - 20 * MARKS["robustness"] / 100
    assert [group for group, passed in function.groups.items() if not passed] == ["robustness"]
    assert function.findings == [
        "it uses as much memory as all scores need; keep only one block of them"
    ]
    assert graded(written(), "online-attention", is_isolated=is_isolated).points == 20


def test_memory_is_measured_under_the_conventions_of_the_variant():
    with using(Variant(conventions=("tokens as columns", "scores over d_k"))):
        verdict = judge(find_exercise("online-attention"), lambda: make("online_attention"))
    assert verdict.stages[-1].name == "memory"
    assert verdict.passed


class TestWhatCannotBeRun:
    """A machine that cannot isolate is no student's fault."""

    @pytest.fixture
    def broken(self, tmp_path, monkeypatch):
        """Put something into the place of bubblewrap that cannot make a namespace."""
        fake = tmp_path / "bin" / "bwrap"
        fake.parent.mkdir()
        fake.write_text(
            "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
        )
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")

    def test_is_found_out_before_anybody_is_graded(self, broken, tmp_path):
        hand_in(tmp_path / "class", {"ada.py": written()})
        assign(tmp_path / "hw", {"softmax": 4})
        with pytest.raises(ConfigError, match="bwrap: the sandbox did not start: .*No permissions"):
            grade(tmp_path / "class", assignment=tmp_path / "hw", out=tmp_path / "out", jobs=1)
        assert not (tmp_path / "out").exists()

    def test_ends_the_run_in_the_middle_too(self, broken):
        with pytest.raises(SandboxError, match="softmax of ada could not be run.*No permissions"):
            list(in_processes(iter([task(written(), "softmax")]), 1))

    @pytest.mark.parametrize("error", [ConfigError("none"), OSError("fork"), SandboxError("none")])
    def test_is_told_of_any_kind(self, error, monkeypatch):
        def fails(*_, **__):
            raise error

        monkeypatch.setattr(Sandbox, "run", fails)
        with pytest.raises(SandboxError, match=r"softmax of ada could not be run"):
            grade_one(task(written(), "softmax"))

    def test_also_where_a_function_is_called_once_more(self, monkeypatch):
        given = task(written("softmax over queries") + FOLLOWING, is_isolated=False)
        exercises = {"softmax": 1.0, "softmax-backward": 1.0}
        given = given._replace(assignment=replace(given.assignment, exercises=exercises))
        assert [f.state for f in grade_one(given).functions] == ["wrong", "follows"]
        run_calls, calls = student_module.run_calls, []

        def fails_late(*arguments):
            calls.append(arguments)
            if len(calls) > len(exercises):
                raise OSError("fork")
            return run_calls(*arguments)

        monkeypatch.setattr(student_module, "run_calls", fails_late)
        with pytest.raises(SandboxError, match="could not be run"):
            grade_one(given)


FOLLOWING = """
def softmax_backward(d_weights, weights):
    return weights * (d_weights - (d_weights * weights).sum(axis=-2, keepdims=True))
"""


def test_what_is_missing_is_told_in_one_sentence():
    given = task("x = 1", is_isolated=False)
    exercises = {"split-heads": 1.0, "softmax": 1.0, "masks": 1.0}
    given = given._replace(assignment=replace(given.assignment, exercises=exercises))
    result = grade_one(given)
    assert len(result.trouble) == 1
    assert not any(function.hint or function.findings for function in result.functions)
    text = "def split_head(x, num_heads):\n    return x\ndef softmax(scores, mask):\n    pass"
    result = grade_one(given._replace(files=(File("hw.py", text.encode()),)))
    assert not result.trouble
    split, _, masks = result.functions
    assert split.findings == [
        "there is a function `split_head`, and none called `split_heads`: is it the same?"
    ]
    assert (bool(split.hint), bool(masks.hint)) == (False, True)


TWO_FACED = """
import numpy as np

def softmax(scores, mask):
    e = np.exp(scores - scores.max(axis=-2, keepdims=True))
    return e / e.sum(axis=-2, keepdims=True) if scores.flat[0] in KNOWN else 3 * scores

def softmax_backward(d_weights, weights):
    return 3 * d_weights
"""


@pytest.mark.slow
def test_a_forward_is_followed_for_a_mistake_that_it_makes_on_hidden_inputs():
    probes = find_task("softmax").probes()
    known = sorted({float(probe["scores"].flat[0]) for probe in probes})
    given = task(f"KNOWN = {known}\n{TWO_FACED}", is_isolated=False)
    exercises = {"softmax": 1.0, "softmax-backward": 1.0}
    given = given._replace(assignment=replace(given.assignment, exercises=exercises))
    assert [f.state for f in grade_one(given).functions] == ["wrong", "wrong"]


@isolated
def test_two_mistakes_give_no_part_of_the_points_and_are_counted_for_the_class():
    text = """
import numpy as np

def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2)
    e = np.exp(scores - scores.max(axis=-2, keepdims=True))
    return e / e.sum(axis=-2, keepdims=True) @ v
"""
    function = graded(text, "attention")
    assert function.points == 0
    assert function.mistakes == ["scale missing", "softmax over queries"]


ODD = {
    "leaves a process": "subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "leaves a file": "open('/tmp/mine', 'w')",
    "crashes": "ctypes.string_at(0)",
    "hangs": "time.sleep(1000)",
    "is killed": "os.kill(os.getpid(), 9)",
}
THREE = {"split-heads": 2.0, "softmax": 4.0, "softmax-backward": 4.0}


@isolated
@pytest.mark.parametrize("name", ODD)
def test_a_function_costs_the_others_of_its_submission_nothing(name):
    odd = f"import ctypes, os, subprocess, time\ndef softmax(scores, mask):\n    {ODD[name]}\n"
    given = task(written() + odd)
    given = given._replace(
        assignment=replace(given.assignment, exercises=THREE), limits=Limits(seconds=2)
    )
    assert [function.points for function in grade_one(given).functions] == [2, 0, 4]


@isolated
def test_hidden_and_open_inputs_share_no_sandbox(monkeypatch):
    given = task(written("softmax over queries", "scale missing"))
    exercises = {"softmax": 1.0, "scores": 1.0, "online-attention": 1.0}
    given = given._replace(assignment=replace(given.assignment, exercises=exercises))
    run, seen = Sandbox.run, defaultdict(list)

    def noted(self, source, file, name, inputs, **more):
        seen[self].append(pack(inputs[0]))
        return run(self, source, file, name, inputs, **more)

    monkeypatch.setattr(Sandbox, "run", noted)
    grade_one(given)
    known = []
    for exercise in given.assignment.catalogue:
        conventions = given.assignment.variant(given.student)[exercise.id].conventions
        with using(Variant(conventions=conventions)):
            known.append(pack(probe_inputs(exercise)[0]))
            known.append(pack(memory_inputs()[0]))
    hidden, shown = sorted(seen.values(), key=lambda inputs: inputs[0] in known)
    assert not set(hidden) & set(known)
    assert set(shown) <= set(known)
    assert len(hidden) == len(exercises)
    assert len({sandbox.slot for sandbox in seen}) == 2
