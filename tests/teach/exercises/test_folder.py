"""The exercises in a folder: stubs, checks, hints, progress, pytest, the command line."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from mha_numpy.cli import main
from mha_numpy.errors import ConfigError
from mha_numpy.teach.exercises import (
    EXERCISES,
    Limits,
    exercises_in,
    hint_in,
    judge,
    judge_file,
    start,
)
from mha_numpy.teach.exercises.catalogue import find_exercise
from mha_numpy.teach.exercises.folder import RECORD, file_name
from mha_numpy.teach.exercises.records import Records
from mha_numpy.teach.exercises.report import Watch

RIGHT = """
def softmax_backward(d_weights, weights):
    return weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
"""
WRONG = RIGHT.replace("axis=-1", "axis=-2")
NAME = file_name(find_exercise("softmax-backward"))


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    folder = tmp_path_factory.mktemp("started")
    start(folder)
    return folder


@pytest.fixture
def folder(tmp_path, started):
    """Have a folder of one's own in which everything is as `start` wrote it."""
    return Path(copytree(started, tmp_path / "mine"))


def judged(folder, text=RIGHT, **limits):
    """Save a text as the exercise's file, and judge it."""
    (folder / NAME).write_text(text)
    return judge_file(folder, "softmax-backward", Limits(**limits))


def keep(folder, *names):
    for path in folder.glob("[0-9]*.py"):
        if path.name not in names:
            path.unlink()


@pytest.fixture
def program(capsys):
    """Run the program on some words; return its exit code and what it has printed."""

    def run(*words):
        code = main([str(word) for word in words])
        return code, capsys.readouterr().out

    return run


def test_start_writes_all_and_keeps_what_is_there(folder):
    assert len(list(folder.glob("[0-9][0-9]_*.py"))) == len(EXERCISES)
    (folder / NAME).write_text(RIGHT)
    (folder / "test_exercises.py").write_text("# mine")
    (folder / "README.md").unlink()
    again = start(folder)
    assert [path.name for path in again.written] == ["README.md"]
    assert (folder / NAME).read_text() == RIGHT
    assert (folder / "test_exercises.py").read_text() == "# mine"
    assert [e.id for e in exercises_in(folder)] == [e.id for e in EXERCISES]


def test_a_file_is_judged_and_noted(folder):
    assert judge_file(folder, "softmax-backward").is_unwritten
    assert not (folder / RECORD).exists()
    assert judged(folder, WRONG).mistakes == {"row sum over queries"}
    record = json.loads((folder / RECORD).read_text())["softmax-backward"]
    assert record == {
        "passed": False, "checks": 1, "hints": 0, "mistakes": ["row sum over queries"],
        "is_tried": True,
    }  # fmt: skip
    assert judged(folder)
    assert json.loads((folder / RECORD).read_text())["softmax-backward"]["passed"]


def test_a_file_without_its_return_is_no_stub(folder):
    verdict = judged(folder, RIGHT.replace("return", "answer ="))
    assert not verdict.is_unwritten
    assert verdict.summary == "not written yet, or its `return` is missing"
    assert Records(folder / RECORD)["softmax-backward"].checks == 1


def test_what_another_check_noted_meanwhile_is_kept(folder):
    verdict = judge(find_exercise("softmax"), lambda: abs)
    records = Records(folder / RECORD)
    judged(folder)
    records.note(verdict)
    assert set(json.loads((folder / RECORD).read_text())) == {"softmax", "softmax-backward"}


BAD_FILES = {
    "a syntax error": ("def softmax_backward(:\n", "SyntaxError"),
    "no function": ("x = 1\n", "there is no function softmax_backward in " + NAME),
    "a hang on loading": ("import time\ntime.sleep(99)\n", "took longer than 1 s"),
    "an error inside": (
        "def softmax_backward(d, w):\n    return d @ w\n", f"line 2 of {NAME}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_cannot_be_used_is_told_in_a_line(folder, case):
    text, told = BAD_FILES[case]
    verdict = judged(folder, text, seconds=1.0)
    assert not verdict.passed
    assert told in verdict.summary


def test_hints_are_counted_and_know_the_last_mistake(folder):
    judged(folder, WRONG)
    hints = [hint_in(folder, "softmax-backward", force=True) for _ in range(5)]
    assert [hint.number for hint, _ in hints] == [1, 2, 3, 4, 4]
    third, picture = hints[2]
    assert (
        "the mistake that your last answer shows: the row sum of softmax is taken over the queries"
        in third.text
    )
    assert picture.read_text().startswith("<svg")
    judged(folder, WRONG.replace("axis=-2", "axis=0"))
    assert hint_in(folder, "softmax-backward")[0].number == 3  # there is something new to say


def test_after_the_first_a_hint_needs_a_check(folder, program):
    def given(*options):
        code, printed = program("hint", folder, "softmax-backward", *options)
        assert ("check your answer again" in printed) == (code == 1)
        return code == 0

    stub = (folder / NAME).read_text()
    judged(folder, WRONG)  # before the first hint: it does not count for the second
    assert given()
    assert not given()
    assert not given("--number", "4")
    judged(folder, stub)  # no attempt
    assert not given()
    judged(folder, WRONG)
    assert given()
    assert not given("--number", "3")
    assert given("--number", "2")  # once more
    assert not list(folder.glob("hint_*.svg"))
    assert given("--force")
    assert not given()


def test_a_check_of_an_exhibit_as_it_is_counts_as_an_attempt(folder):
    assert hint_in(folder, "museum-softmax-axis")[0].is_given
    assert not hint_in(folder, "museum-softmax-axis")[0].is_given
    assert judge_file(folder, "museum-softmax-axis").is_unwritten
    assert hint_in(folder, "museum-softmax-axis")[0].is_given


def test_what_a_star_brings_is_told_and_strictly_rejected(folder, program):
    (folder / "01_split_heads.py").write_text("from mha_numpy.core import *\n")
    for options, code, before, after in (
        ([], 0, "uses the library: ", ""), (["--strict"], 1, "", "; write it yourself"),
    ):  # fmt: skip
        found, printed = program("check", folder, "split-heads", *options)
        assert found == code
        assert f"{before}calls mha_numpy.core.split_heads{after}" in printed


def test_json_is_all_that_is_printed(folder, program):
    keep(folder, "01_split_heads.py", "02_merge_heads.py", NAME)
    (folder / NAME).write_text("print('loaded')\n" + WRONG)
    code, printed = program("check", folder, "softmax-backward", "--json")
    (found,) = json.loads(printed)
    assert code == 1
    assert 0 < found.pop("seconds") < 60
    first, *_, last = found.pop("stages")
    assert first == {"name": "runs", "passed": True, "finding": "on 4 inputs"}
    assert last["passed"] is False
    words = "the row sum of softmax is taken over the queries"
    assert list(found.items()) == [
        ("exercise", "softmax-backward"), ("passed", False), ("likely_cause", words),
        ("clue", None),
        ("causes", [{"name": "row sum over queries", "words": words}]), ("edit", None),
        ("mend", None), ("evidence", "this mistake reproduces all 4 of your arrays"),
    ]  # fmt: skip

    code, printed = program("check", folder, "--json")
    assert code == 1
    assert [one["exercise"] for one in json.loads(printed)] == [e.id for e in exercises_in(folder)]
    (folder / NAME).write_text(RIGHT)
    assert program("check", folder, "softmax-backward", "--json")[0] == 0
    for words in (["nothing", "--json"], ["--json", "--watch"]):
        assert program("check", folder, *words) == (2, "")


def test_wrong_use(folder, tmp_path):
    with pytest.raises(ConfigError, match="there are no exercises in"):
        list(exercises_in(tmp_path))
    with pytest.raises(ConfigError, match="`mha-numpy exercises start .*` writes it"):
        judge_file(tmp_path, "softmax")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="expected a folder"):
        start(tmp_path / "file")
    (folder / RECORD).write_text("[1, 2]")
    with pytest.raises(ConfigError, match="delete it to start over"):
        judge_file(folder, "softmax")


def test_what_was_saved_last_is_judged_not_its_bytecode(folder, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for _ in range(3):
        assert not judged(folder, WRONG).passed
        assert judged(folder, RIGHT).passed  # of the same size, in the same second
    assert not (folder / "__pycache__").exists()


def test_a_file_may_import_another_beside_it(folder):
    (folder / "helper.py").write_text(RIGHT)
    assert judged(folder, "from helper import softmax_backward\n").passed


def test_a_number_of_another_version_is_found(folder):
    (folder / NAME).unlink()
    (folder / "99_softmax_backward.py").write_text(RIGHT)
    assert judge_file(folder, "softmax-backward").passed
    assert start(folder).written == []


@pytest.mark.parametrize("entry", ['{"checks": "many"}', '{"hints": -7}', '{"mistakes": [3]}', "7"])
def test_a_record_that_holds_something_else(folder, entry):
    (folder / RECORD).write_text(f'{{"softmax": {entry}}}')
    with pytest.raises(ConfigError, match="expected the record of a student's progress"):
        hint_in(folder, "softmax")


def test_a_verdict_is_told_where_nothing_can_be_written(folder, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    (folder / NAME).write_text(RIGHT)
    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    verdict = judge_file(folder, "softmax-backward")
    assert verdict.passed
    assert "cannot be written: Permission denied" in str(verdict)


@pytest.mark.slow
def test_plain_pytest_checks_the_folder(folder):
    (folder / NAME).write_text(WRONG)
    (folder / file_name(find_exercise("merge-heads"))).write_text(
        "def merge_heads(heads):\n    B, H, T, d = heads.shape\n"
        "    return heads.swapaxes(1, 2).reshape(B, T, H * d)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "softmax-backward or merge-heads or split-h"],
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "1 failed, 1 passed, 1 skipped" in done.stdout
    assert "the row sum of softmax is taken over the queries" in done.stdout


def test_the_command_line(folder, program, capsys, monkeypatch):
    (folder / NAME).write_text(WRONG)
    code, printed = program("check", folder, "softmax-backward")
    assert code == 1
    for text in ("likely cause: the row sum of softmax is taken over the queries", "invariants",
                 f"mha-numpy hint {folder} softmax-backward"):  # fmt: skip
        assert text in printed
    (folder / NAME).write_text(RIGHT)
    keep(folder, NAME, "01_split_heads.py")
    for words, told in (
        (["check", folder, "softmax-backward"], "softmax-backward: right"),
        (["check", folder, "softmax-backward"], f"next: mha-numpy check {folder} split-heads\n"),
        (["exercises", folder], f"{len(EXERCISES)} exercises, 1 of them done"),
        (["hint", folder, "softmax-backward"], "hint 1 of 4"),
    ):
        code, printed = program(*words)
        assert code == 0
        assert told in printed
    (folder / NAME).write_text(WRONG)
    code, printed = program("check", folder)
    assert code == 1
    assert printed.endswith(f"next: mha-numpy check {folder} softmax-backward\n")
    (folder / NAME).write_text(RIGHT)
    keep(folder, NAME)
    assert "1 of 1 right" in program("check", folder)[1]

    monkeypatch.chdir(folder)
    assert "1 of them done" in program("exercises")[1]
    assert "files written" in program("exercises", "start", "other")[1]
    for words in (["exercises", "start"], ["exercises", "a", "b"], ["check", "nowhere"],
                  ["check", ".", "nothing"], ["hint", ".", "nothing"]):  # fmt: skip
        assert main(words) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_watch_names_what_was_saved(folder, monkeypatch):
    files = {2: NAME, 3: "notes.txt", 5: "helper.py"}  # saved before this look
    looks = iter(range(9))  # an error where there are more

    def sleep(seconds):
        name = files.get(next(looks))
        if name:
            (folder / name).write_text(RIGHT)

    monkeypatch.setattr(time, "sleep", sleep)
    saved = iter(Watch(folder))
    assert next(saved) == [folder / NAME]
    assert next(saved) == [folder / "helper.py"]
    rmtree(folder)
    with pytest.raises(ConfigError, match="there is no folder"):
        next(saved)


@pytest.mark.slow
def test_watch_checks_again_when_a_file_is_saved(folder):
    (folder / NAME).write_text(WRONG)
    watching = subprocess.Popen(
        [sys.executable, "-u", "-m", "mha_numpy", "check", str(folder), "softmax-backward",
         "--watch"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # a shell that runs the tests in the background has told us to ignore it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        lines = iter(watching.stdout.readline, "")
        assert any("softmax-backward: not right" in line for line in lines)
        assert any("a hint" in line for line in lines)
        (folder / NAME).write_text(RIGHT + "\n\n")
        assert any("softmax-backward: right" in line for line in lines)
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=20)
    finally:
        watching.kill()
        watching.communicate()
    assert errors.strip() == "interrupted"
    assert watching.returncode == 130
