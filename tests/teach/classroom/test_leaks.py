"""What comes back to a student contains no line of a solution, and nothing of a hidden input."""

import ast
import json
import math
import re
from itertools import compress, product
from pathlib import Path

import pytest

from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.feedback import student_page, to_gradescope
from mha_numpy.teach.classroom.grade import grade_one
from mha_numpy.teach.classroom.marks import MARKS
from mha_numpy.teach.classroom.results import Result
from mha_numpy.teach.classroom.wording import ENDS, cause_of, hint_of
from mha_numpy.teach.diagnosis import BANK, TASKS, Variant, find_task, using
from mha_numpy.teach.diagnosis.search import SmallEdit, candidates
from mha_numpy.teach.diagnosis.solutions import called_by, read_solutions
from mha_numpy.teach.exercises.catalogue import EXERCISES, find_exercise
from mha_numpy.teach.exercises.causes import _told_edit
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.verdict import Verdict
from tests.sweeps import sweep
from tests.teach.classroom.classes import task_of, written
from tests.teach.exercises.test_judge_tests import isolated

SHORT = 16  # characters of a line without spaces: shorter ones are trivial
KEPT = 40  # small edits of each task
QUICK = Limits(seconds=1.5, memory=2**28)
STUDENTS = ("ada", "bob", "eve", "zoe")


def squeezed(text):
    return re.sub(r"\s", "", text)


def lines_of_solution(task):
    """Return the lines and the right sides of a task's function, and of those that it calls."""
    found = set()
    for name in called_by(task):
        for part in ast.walk(ast.parse(read_solutions().cuts[name].source)):
            value = getattr(part, "value", None)
            if isinstance(part, (ast.Assign, ast.AugAssign, ast.Return)) and value:
                found |= {ast.unparse(part), ast.unparse(value)}
    return {line for line in map(squeezed, found) if len(line) >= SHORT}


@pytest.mark.parametrize("task", sweep(TASKS, 12))
def test_no_line_of_a_solution_is_told(task):
    exercise = next(one for one in EXERCISES if one.task == task)
    hints = [hint_of(one, Variant()) for one in EXERCISES if one.task == task]
    texts = [*hints, *(BANK[mistake.name].verdict for mistake in TASKS[task].mistakes)]
    found = candidates(task)
    for one in found[:: max(1, len(found) // KEPT)]:
        wrong, right = one.edited.lines(one.edit)
        edit = SmallEdit(one.edit.group, one.function, wrong, right)
        remarks = {"likely cause": _told_edit(edit, "numbers"), "and also": "- this\n- and that"}
        told = cause_of(Verdict(exercise, [], "", remarks, edit=edit))
        assert edit.group in told
        texts.append(told)
    for text in map(squeezed, texts):
        assert not [line for line in lines_of_solution(task) if line in text]


def graded(text, exercise="softmax", student="ada", *, is_isolated=False):
    """Return the result of a function, and all that its student reads about it, without points."""
    given = Assignment("hw", "Homework", {exercise: 10.0}, dict(MARKS), secret=b"not told")
    task = task_of(text, given, student, limits=QUICK, is_isolated=is_isolated)
    result = grade_one(task)
    (function,) = result.functions
    return function, [*function.findings, function.cause, function.hint]


@pytest.mark.parametrize("exercise", ["split-heads", "softmax", "softmax-backward"])
def test_zeros_read_no_solution(exercise):
    name, task = find_exercise(exercise).function_name, find_exercise(exercise).task
    text = written().replace(f"def {name}(", "def right(")
    _, told = graded(f"{text}\ndef {name}(*given):\n    return 0 * right(*given)\n", exercise)
    assert told[0]
    assert told[1]
    page = squeezed(" ".join(told))
    assert not [line for line in lines_of_solution(task) if line in page]


MANY = "\n".join(f"    line {n}" for n in range(50))
TEXT = f"    '''Take a line.\n{MANY}\n    '''\n    n = int(1e6 * abs(scores.flat[0])) % 50 + 3\n"
RAISED = f"""
def softmax(scores, mask):
{TEXT}
    exec(compile("\\n" * n + "raise ValueError", "hw.py", "exec"))
"""
CODE = f"""
def softmax(scores, mask):
{TEXT}
    def fail():
        raise ValueError
    type(fail)(fail.__code__.replace(co_firstlineno=n), {{}})()
"""
FORGED = f"""
import sys
def softmax(scores, mask):
{TEXT}
    calls = sys.modules["mha_numpy.teach.exercises.child.calls"]
    calls.told = lambda error: f"ValueError (line {{n}} of hw.py: `{{scores.flat[0]}}`)"
    raise ValueError
"""
LINES = """
def softmax(scores, mask):
    n = int(1e6 * abs(scores.flat[0])) % 50
""" + "\n".join(f"    if n == {n}: {['1 / 0', '[][0]'][n % 2]}" for n in range(50))
NAMES = """
class Odd(Exception):
    pass
def softmax(scores, mask):
    Odd.__name__ = f"E{abs(scores.flat[0])}"
    raise Odd(scores)
"""
KINDS = """
def softmax(scores, mask):
    n = int(1e6 * abs(scores.flat[0])) % 4
    raise [ValueError, KeyError, TypeError, IndexError][n]
"""
WRONG = """
import numpy as np
def softmax(scores, mask):
    n = int(1e6 * abs(scores.flat[0])) % 3
    e = np.exp(scores)
    return [e / e.sum(-2, keepdims=True), e, e.mean(-1, keepdims=True) + 0 * e][n]
"""
ATTACKS = [NAMES, RAISED, CODE, FORGED, LINES, KINDS, WRONG]


@pytest.mark.parametrize("text", sweep(ATTACKS, 1))
def test_what_is_told_does_not_depend_on_hidden_inputs(text):
    told = [graded(text, student=student)[1] for student in STUDENTS]
    assert all(one == told[0] for one in told)
    with using(Variant()):
        shown = find_task("softmax").probes()[0]["scores"].flat[0]
    assert not [text for text in told[0] if f"{abs(shown):.6f}"[:7] in text]


@pytest.mark.slow
@isolated
def test_nor_in_isolation():
    told = [graded(LINES, student=one, is_isolated=True)[1] for one in STUDENTS]
    assert all(one == told[0] for one in told)
    assert told[0][0].startswith("it does not run: a")


@pytest.mark.parametrize("text", [RAISED, CODE])
def test_a_line_is_one_that_was_handed_in_as_code(text):
    (finding,) = graded(text)[1][:1]
    assert finding.startswith("it does not run: a ValueError in `")
    assert "`line " not in finding


CHOICE = """
import numpy as np
calls = []

def softmax_backward(d_weights, weights):
    if weights.flat[0] == {known!r}:
        raise ValueError
    calls.append(1)
    kind, flags = {kind!r}, {flags!r}
    if kind == "crash":
        raise ValueError
    if kind.startswith("ended "):  # as a run says that it ended
        raise type(kind.removeprefix("ended "), (BaseException,), {{}})
    if kind == "unwritten":
        raise NotImplementedError
    if kind == "none":
        return None
    out = weights * (d_weights - (d_weights * weights).sum(axis=-1, keepdims=True))
    for flag in flags:
        if flag == "shape": out = out[..., :1]
        if flag == "dtype": out = out.astype(np.float32)
        if flag == "nan": out[..., 0] = np.nan
        if flag == "changed": weights[...] = 1
        if flag == "again": out = out * len(calls)
        if flag == "law": out = out + 1
        if flag == "values": out = out[..., ::-1, :]
    return out
"""
FLAGS = ("shape", "dtype", "nan", "changed", "again", "law", "values")
ENDINGS = ("crash", *(f"ended {start}" for start, _ in ENDS), "unwritten", "none")
PAGES = 42
PROMISES = Path(__file__).parents[3].joinpath("docs/sandbox.md").read_text()


@pytest.mark.release
def test_the_bits_that_a_function_can_still_carry_out():
    """All ways for a function to choose its result, by what it knows of the hidden inputs."""
    known = float(find_task("softmax_backward").probes()[0]["weights"].flat[0])
    sets = [tuple(compress(FLAGS, bits)) for bits in product((0, 1), repeat=len(FLAGS))]
    kinds = [*((kind, ()) for kind in ENDINGS), *(("", flags) for flags in sets)]
    seen = set()
    for kind, flags in kinds:
        function, _ = graded(CHOICE.format(known=known, kind=kind, flags=flags), "softmax-backward")
        one = Result("ada", "", False, True, "", [], [function])
        seen.add((student_page(one, "hw"), json.dumps(to_gradescope(one))))
    assert len(seen) == PAGES
    assert f"{PAGES} different pages,\n  which is {math.log2(PAGES):.1f} bits" in PROMISES
