"""A teacher's own exercise: a folder becomes an assignment, and is graded like any other."""

import json
import os
import pickle
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from mha_numpy.cli import main
from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom import grade, make_assignment, public_check, read_assignment
from mha_numpy.teach.classroom.handout import notebook_text
from mha_numpy.teach.classroom.student import grade_one
from mha_numpy.teach.conventions import Variant, using
from mha_numpy.teach.diagnosis import BANK, TASKS, find_task, fingerprints, search
from mha_numpy.teach.documented import are_allowed, equal_letters, said_of, sizes_of_letters
from mha_numpy.teach.exercises import Limits, check_own, find_exercise, judge_own
from mha_numpy.teach.exercises.check_own import Checked
from mha_numpy.teach.load_own import load_own
from mha_numpy.teach.own import read_own
from tests.sweeps import sweep
from tests.teach.classroom.classes import task_of

ROOT = Path(__file__).parents[3]
LAYER_NORM = ROOT / "docs" / "examples" / "layer-norm"
HANDED_IN = ROOT / "docs" / "examples" / "handed-in"
QUICK = Limits(seconds=5)

ROUTE = '''"""Top-k routing."""

import numpy as np


def route(x, w_router, k):
    """Send each token to the k experts with the highest logits, with weights that sum to 1.

    Parameters
    ----------
    x : (T, D)
    w_router : (D, E)
    k : int

    Returns
    -------
    experts : (T, k)
        Best first.
    weights : (T, E)
        The softmax over the k logits; 0 elsewhere.
    """
    logits = x @ w_router
    experts = np.argsort(-logits, axis=-1)[:, :k]
    weights = np.zeros(logits.shape)
    chosen = _softmax(np.take_along_axis(logits, experts, axis=-1))
    np.put_along_axis(weights, experts, chosen, axis=-1)
    return experts, weights


_MOST = 1.0


def _softmax(scores):
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return _MOST * exps / exps.sum(axis=-1, keepdims=True)
'''
ROUTE_INPUTS = """
def draw(rng):
    return [
        {"k": rng.integers(k, k + 1), "x": rng.normal(size=(T, D)),
         "w_router": size * rng.normal(size=(D, E))}
        for T, D, E, k, size in ((5, 4, 6, 2, 1.0), (3, 3, 4, 3, 1.0), (6, 5, 7, 4, 500.0))
    ]
"""


def folder_of(path, file="", *changes):
    """Return a copy of the worked example with some texts changed in a file."""
    shutil.copytree(LAYER_NORM, path)
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        text = (path / file).read_text()
        assert old in text
        (path / file).write_text(text.replace(old, new))
    return path


def route_of(path):
    path.mkdir()
    (path / "solution.py").write_text(ROUTE)
    (path / "inputs.py").write_text(ROUTE_INPUTS)
    return path


def answer(name):
    return runpy.run_path(str(HANDED_IN / f"{name}.py"))["layer_norm_over"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return an assignment of two own exercises and one of this package, and its folder."""
    root = tmp_path_factory.mktemp("own")
    folders = [folder_of(root / "mine"), route_of(root / "routing")]
    own = [check_own(folder) for folder in folders]
    shutil.rmtree(folders[0])  # the assignment is complete without it
    return make_assignment("scores", root / "hw", own=own, form="files").assignment, root / "hw"


def test_it_is_an_exercise_among_others(made):
    assignment, folder = made
    assert assignment.exercises == {"scores": 10, "layer-norm-over": 12, "route": 20}
    assert read_assignment(folder) == assignment
    assert [one.function_name for one in assignment.catalogue] == [
        "scores", "layer_norm_over", "route",
    ]  # fmt: skip
    readme = (folder / "handouts" / "all" / "README.md").read_text()
    assert "| 2 | Layer norm over a chosen axis | `layer_norm_over` | 10 | 12 |" in readme


def test_students_get_no_line_of_the_solution(made):
    given = "".join(path.read_text() for path in (made[1] / "handouts" / "all").iterdir())
    assert "def layer_norm_over(x, gain, bias, axis, eps):" in given
    for line in ("np.var(x", "np.sqrt(variance", "put_along_axis", "_softmax", "sample variance"):
        assert line not in given


def test_a_notebook_has_the_example_in_it(made, capsys):
    pytest.importorskip("nbformat")
    cells = json.loads(notebook_text(made[0], "all"))["cells"]
    texts = {cell["id"]: "".join(cell["source"]) for cell in cells}
    scope = {}
    for text in (texts["check"], (HANDED_IN / "ada.py").read_text()):
        exec(text, scope)
    exec(texts["check-layer-norm-over"], scope)
    assert "layer-norm-over, public checks: right" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "is_right"), [("ada", True), ("ben", True), ("chiara", False)])
def test_the_public_check_knows_one_example(made, capsys, name, is_right):
    # the example is along the last axis, where Ben is right
    example = made[0].examples["layer-norm-over"].text
    public_check("layer-norm-over", answer(name), example=example)
    state = "right" if is_right else "not right"
    assert f"layer-norm-over, public checks: {state}\n" in capsys.readouterr().out


def test_students_check_the_files(made, tmp_path, capsys):
    folder = shutil.copytree(made[1] / "handouts" / "all", tmp_path / "mine")
    assert main(["check", str(folder)]) == 1
    assert "layer-norm-over  not written yet" in capsys.readouterr().out
    (folder / "02_layer_norm_over.py").write_text((HANDED_IN / "ada.py").read_text())
    assert main(["check", str(folder), "layer-norm-over"]) == 0
    (folder / "02_layer_norm_over.py").write_text((HANDED_IN / "chiara.py").read_text())
    assert main(["check", str(folder), "layer-norm-over"]) == 1
    told = capsys.readouterr().out
    assert "24 of 24 numbers differ" in told
    assert "cause" not in told  # there is no solution that could tell
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "check.py"], cwd=folder, env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert run.stdout.count("public checks: not right") == 3


@pytest.mark.slow
def test_it_is_graded_in_isolation(made, tmp_path):
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    assignment, folder = made
    handed_in = shutil.copytree(HANDED_IN, tmp_path / "handed-in")
    spy = (
        "from pathlib import Path\ndef layer_norm_over(x, gain, bias, axis, eps):\n"
        f"    return Path({str(folder)!r}, 'exercises', 'layer-norm-over').exists() + 0 * x\n"
        "def route(x, w_router, k):\n    import sys\n"
        "    return [name for name in sys.modules if 'own' in name] or None\n"
    )
    (handed_in / "spy.py").write_text(spy)
    grades = grade(handed_in, assignment=folder, out=tmp_path / "out", jobs=1, limits=QUICK)
    found = {one.student: one.functions[1] for one in grades.results}
    assert [found[name].state for name in ("ada", "ben", "chiara", "dora", "spy")] == [
        "right", "wrong", "wrong", "wrong", "wrong",
    ]  # fmt: skip
    assert "a different axis" in found["ben"].cause
    assert "in line 6 of your code: `variance = np.sum(" in found["dora"].cause
    assert found["chiara"].mistakes == ["sample variance"]
    assert any("sum to 0" in text for text in found["ben"].findings)
    assert "out: all numbers are 0" in found["spy"].cause  # it has not seen the folder
    page = (tmp_path / "out" / "class.html").read_text()
    assert "the variance is divided by n - 1 instead of n" in page
    assert "Layer norm over a chosen axis" in (tmp_path / "out/feedback/ben.html").read_text()


def test_a_task_carries_the_exercise(made, tmp_path):
    task = task_of((HANDED_IN / "ben.py").read_text(), made[0], limits=QUICK)
    carried = pickle.loads(pickle.dumps(task))
    result = grade_one(carried)
    assert [one.state for one in result.functions] == ["not there", "wrong", "not there"]
    assert "a different axis" in result.functions[1].cause


def test_several_results_have_the_names_in_the_docstring(made):
    text = ROUTE.replace("argsort(-logits", "argsort(logits")
    task = task_of(text, made[0], limits=QUICK)
    cause = grade_one(task).functions[2].cause
    assert cause.startswith("likely cause: a wrong sign, in line 23 of your code: `experts = np.ar")
    swapped = ROUTE.replace("return experts, weights", "return weights, experts")
    cause = grade_one(task_of(swapped, made[0], limits=QUICK)).functions[2].cause
    assert "weights is in the place of experts" in cause


def test_while_it_is_in_force_there_is_nothing_else(tmp_path):
    own = read_own(LAYER_NORM)
    count = len(TASKS)
    with using(Variant(own=own)):
        assert list(TASKS) == ["layer_norm_over"]
        assert list(fingerprints("layer_norm_over")) == ["sample variance"]
        assert "mask inverted" not in BANK
        with using(Variant(seed=3)):
            assert list(TASKS) == ["layer_norm_over"]
    assert len(TASKS) == count
    assert "mask inverted" in BANK
    with pytest.raises(ConfigError):
        find_task("layer_norm_over")


def test_two_versions_of_one_exercise_are_kept_apart(tmp_path):
    other = folder_of(tmp_path / "other", "solution.py", "* gain + bias", "* gain - bias")
    (other / "laws.py").unlink()
    right = answer("ada")
    assert judge_own(LAYER_NORM, right).passed
    assert not judge_own(other, right).passed
    assert judge_own(LAYER_NORM, right).passed
    assert load_own(read_own(other)).laws == []


UNLISTED = {  # wrong answers that no file of the example mentions, and what the verdict says
    "eps outside the root": ("d / (np.sqrt(v) + eps) * gain + bias", "a misplaced parenthesis"),
    "no root": ("d / (v + eps) * gain + bias", "a missing part"),
    "no mean": ("x / np.sqrt(v + eps) * gain + bias", "a missing part"),
    "rms norm": (
        "x / np.sqrt((x * x).mean(axis, keepdims=True) + eps) * gain + bias",
        "0 * x.mean(axis=axis, keepdims=True)",
    ),
    "bias before gain": ("(d / np.sqrt(v + eps) + bias) * gain", "a misplaced parenthesis"),
    "no gain": ("d / np.sqrt(v + eps) + bias", "a missing part"),
    "bias subtracted": ("d / np.sqrt(v + eps) * gain - bias", "-2 times bias is added"),
    "1 + gain": ("d / np.sqrt(v + eps) * (1 + gain) + bias", "a part that does not belong there"),
    "own eps": ("d / np.sqrt(v + 1e-5) * gain + bias", "eps is not used"),
    "eps left out": ("d / np.sqrt(v) * gain + bias", "eps is not used"),
    "gain and bias swapped": ("d / np.sqrt(v + eps) * bias + gain", "two things swapped"),
    "whole array": ("(x - x.mean()) / np.sqrt(x.var() + eps) * gain + bias", "a different axis"),
    "sum of squares": (
        "d / np.sqrt((d**2).sum(axis, keepdims=True) + eps) * gain + bias", "a different reduction",
    ),
    "positive axes only": ("of(abs(axis))", "axis = abs(axis)"),
    "sign": ("-d / np.sqrt(v + eps) * gain + bias", "a different order"),
}  # fmt: skip


@pytest.mark.parametrize("name", sweep(UNLISTED, 1))
def test_mistakes_that_are_not_listed_are_named(name):
    text, words = UNLISTED[name]

    def mine(x, gain, bias, axis, eps):
        def of(axis):
            d, v = x - x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
            return d / np.sqrt(v + eps) * gain + bias

        d, v = x - x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
        return eval(text, {"np": np}, {**locals()})

    assert words in judge_own(LAYER_NORM, mine).remarks["likely cause"]


@pytest.mark.slow
def test_a_slow_machine_finds_the_same(monkeypatch):
    seconds, made = [1.0], search.attempt  # of the first trial

    def slow(*asked):
        ends = process_time() + (seconds.pop() if seconds else 0)
        while process_time() < ends:
            pass
        return made(*asked)

    monkeypatch.setattr(search, "attempt", slow)

    def no_mean(x, gain, bias, axis, eps):
        return x / np.sqrt(x.var(axis, keepdims=True) + eps) * gain + bias

    assert judge_own(LAYER_NORM, no_mean).edit.group == "a missing part"


@pytest.mark.parametrize("is_steady", [True, False])
def test_a_clue_has_to_be_true_of_other_draws(tmp_path, is_steady):
    folder = folder_of(tmp_path / "own", "inputs.py", "1 + 2 *", "(1 if axis == 2 else 1000) *")
    shown = [one["x"].tolist() for one in load_own(read_own(folder)).probes()]
    ada = answer("ada")

    def is_right(x):
        return np.abs(x).max() > 10 and (is_steady or x.tolist() in shown)

    def mine(x, gain, bias, axis, eps):
        return ada(x, gain, bias, axis, eps) if is_right(x) else np.cos(97 * x)

    told = str(judge_own(folder, mine))
    clue = "of our inputs, yours is right only on those where x has numbers far above 1"
    assert (clue in told) == is_steady


# the check of a folder


@pytest.mark.slow
def test_inputs_that_miss_something(tmp_path):
    axes = "((2, 0.1), (0, 0.5), (-2, 0.2))", "((2, 0.1), (2, 0.5))"
    found = check_own(folder_of(tmp_path / "own", "inputs.py", *axes))
    assert isinstance(found, Checked)
    (edits,) = found.unnoticed.values()
    assert any("`mean = x.mean(axis=-1, keepdims=True)` in place of" in one for one in edits)
    assert found.equal == []
    assert "- no input shows `axis = 2` as an extra line, nor 204 other edits. If the" in str(found)
    assert (
        "add an input that this line would draw: `for axis, eps in ((1, 0.1), (2, 0.5)):`"
        in str(found)
    )


@pytest.mark.slow
def test_inputs_that_the_task_rules_out_are_not_asked_for(tmp_path):
    # x.shape[axis] and gain.shape[axis] differ only where gain does not belong to the axis
    mean = "np.mean(x, axis, keepdims=True)", "np.sum(x, axis, keepdims=True) / x.shape[axis]"
    assert check_own(folder_of(tmp_path / "own", "solution.py", *mean)).unnoticed == {}


@pytest.mark.slow
def test_numbers_that_the_docstring_rules_out_are_not_asked_for(tmp_path):
    folder = folder_of(tmp_path / "own", "inputs.py", "(-2, 0.2)", "(1, 0.2)")
    assert "(-1, 0.5), (1, 0.2)):`" in str(check_own(folder))  # abs(axis) is the same as axis
    text = (folder / "solution.py").read_text()
    (folder / "solution.py").write_text(text.replace("From -3 to 2.", "From 0 to 2."))
    assert check_own(folder).unnoticed == {}


def test_sizes_that_are_equal_are_told(tmp_path):
    sizes = equal_letters([{"A": 3, "B": 3, "C": 2}, {"A": 4, "B": 4, "C": 4}], said_of(DOC)[0])
    assert sizes == [["A", "B"]]
    own = Checked(read_own(LAYER_NORM), find_exercise("softmax"), 1, 1, {}, sizes)
    assert "your 1 input shows 1 of 1 small edits" in str(own)
    assert "- A and B are equal in every input; choose sizes that differ" in str(own)


DOC = "Parameters\n---\nx : (A, B)\ny : bool (C,)\nk : int\n    Above 0.\n\nReturns\n---\no : (k,)"


def test_what_a_docstring_says():
    given, returned = said_of(DOC)
    assert given["y"].shapes == [["C"]]
    assert are_allowed({"k": 1}, given)
    assert not are_allowed({"k": 0}, given)
    assert sizes_of_letters([("o", np.ones(2), returned["o"])], {"k": 2})[1] == ""
    assert "a number, where k = 2" in sizes_of_letters([("o", 1.0, returned["o"])], {"k": 2})[1]


PARAMETERS = "    eps : float\n        Above 0; not always small compared with the variance.\n"
RETURNS = "    Returns\n    -------\n    out : (A, B, C)\n"
WRONG = [  # file, what stands there, what is written instead, what the error says
    ("solution.py", "return (x", "return ((x", "Python cannot read it: '(' was never closed"),
    ("solution.py", "def layer", "def two(x):\n    1\n\n\ndef layer", "got two, layer_norm_over"),
    ("solution.py", "def layer", "def _layer", "got none"),
    ("solution.py", "def layer", "@np.vectorize\ndef layer", "without a decorator"),
    ("solution.py", "axis, eps):", "*, axis, eps):", "expected plain arguments such as (x, axis)"),
    ("solution.py", "layer_norm_over", "layer_norm", "is the name of an exercise that is here"),
    ("solution.py", RETURNS, "", "after a summary write `Parameters` and `Returns`"),
    ("solution.py", PARAMETERS, "", "expected the same names in the same order"),
    ("solution.py", "    out : (", "    array of shape (", "such as `out : (T, D)`; got"),
    ("solution.py", RETURNS, f"{RETURNS}    mean : (A,)\n", "it returns 1 and lists out, mean"),
    ("solution.py", "return (x", "(x", "numbers as results; the result is None"),
    ("solution.py", "    mean =", "    x *= 2\n    mean =", "work on a copy: x = x * 2, not"),
    ("solution.py", "+ bias\n", "+ bias + np.random.normal()\n", "no random numbers in a solution"),
    ("solution.py", "+ bias\n", "* np.nan + bias\n", "the result of input 1 has NaN or inf"),
    ("solution.py", "import numpy", "import nowhere\nimport numpy", "No module named 'nowhere' ("),
    ("solution.py", "out : (A, B, C)", "out : (A, B)", "of shape (2, 3, 4), where A = 2, B = 3;"),
    ("solution.py", "out : (A, B, C)", "out : (C, ..., A)", "it is of shape (2, 3, 4), where"),
    ("solution.py", "gain, bias : (A, 1, 1), ", "gain, bias : ", "`gain : (1, B, 1) or (1, 1, C)`"),
    ("solution.py", "    mean =", "    x = x @ x\n    mean =", "called with input 1 of inputs.py"),
    ("inputs.py", "return inputs", "return inputs[0]", "expected a list of dicts; got a dict"),
    ("inputs.py", "return inputs", "return inputs[3]", "IndexError: list index out of range (line"),
    ("inputs.py", ', "eps": eps', "", "'eps' is missing; add 'eps'"),
    ("inputs.py", '"eps": eps', '"eps": eps, "ep": 1', "got 'ep' too; did you mean 'eps'?"),
    ("inputs.py", '"gain": gain', '"gain": [1, 2]', "gain of input 1 is a list: write np.array("),
    ("inputs.py", "def draw(rng)", "def draw()", "expected def draw(rng), which returns"),
    ("inputs.py", "    inputs = []", "    rng = RNG(3)\n    inputs = []", "for every student"),
    ("inputs.py", "    inputs = []", "    rng = RNG()\n    inputs = []", "called again"),
    ("laws.py", "result - ", "result + ", "or inputs.py draws what the task does not allow: minus"),
    ("laws.py", '"gain"]', '"gian"]', "laws.py: mean_is_zero raised KeyError: 'gian'"),
    ("laws.py", "return normed", "normed", "expected numbers that are 0 where the rule holds"),
    ("laws.py", "(inputs, result)", "(result)", "expected def mean_is_zero(inputs, result)"),
    ("mistakes.toml", "difficulty = 1", "difficulty =", "mistakes.toml: expected TOML; "),
    ("mistakes.toml", "difficulty", "dificulty", "did you mean 'difficulty'?"),
    ("mistakes.toml", "difficulty = 1", "difficulty = 7", "difficulty: expected 1 to 5; got 7"),
    ("mistakes.toml", "[[mistake]]", "[mistake]", "expected [[mistake]], with two brackets"),
    ("mistakes.toml", "verdict =", "verdit =", "edits; got 'verdit'; did you mean 'verdict'?"),
    ("mistakes.toml", "verdict =", "# verdict =", 'mistake 1: expected verdict = "..."; got None'),
    ("mistakes.toml", '"np.var(x, axis, keepdims=True)" =', '"np.var(x)" =', "occurs 0 times; "),
    ("mistakes.toml", "=True, ddof=1)", "=bool(1))", "the numbers are the same as without it"),
    ("mistakes.toml", "ddof=1", "dof=1", "with this edit the solution raises TypeError"),
    ("mistakes.toml", '"sample variance"', '"float32 inside"', "there is a mistake of this name"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "words"), WRONG, ids=lambda one: str(one)[:30])
def test_what_is_wrong_with_a_folder(tmp_path, file, old, new, words):
    folder = folder_of(tmp_path / "own", file, old, new)
    if file == "inputs.py":
        text = "import numpy as np\n\nRNG = np.random.default_rng\n"
        (folder / file).write_text(text + (folder / file).read_text())
    with pytest.raises(ConfigError) as error:
        check_own(folder)
    assert str(error.value).startswith(f"from: {folder}/")
    assert words in str(error.value)


def test_an_argument_that_cannot_reach_a_student(tmp_path):
    folder = route_of(tmp_path / "own")
    odd = "class K:\n    __index__ = lambda self: 2\n"
    text = ROUTE_INPUTS.replace("rng.integers(k, k + 1)", "K()")
    (folder / "inputs.py").write_text(odd + text)
    with pytest.raises(ConfigError, match="nothing else reaches a student's function; an object"):
        check_own(folder)


def test_a_folder_without_files(tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):
        check_own(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"there is no .*solution.py; write it: the function"):
        check_own(tmp_path)


@pytest.mark.slow
def test_a_solution_in_another_style(tmp_path):
    head = "def layer_norm_over(x, gain, bias, axis, eps):"
    long = (
        "EPS = 0.0\n\n\ndef _centred(x, a): return x - np.mean(x, a, keepdims=True)\n\n\n"
        "def layer_norm_over(\n    x: np.ndarray, gain: np.ndarray,\n"
        "    bias: np.ndarray, axis: int = -1,  # of x\n    eps: float = 1e-5,\n) -> np.ndarray:"
    )
    body = "    return (x - mean)", "    return _centred(x, axis)"
    assert check_own(folder_of(tmp_path / "own", "solution.py", head, long, *body)).unnoticed == {}


def test_an_assignment_has_the_title_of_its_only_exercise(made, tmp_path):
    own = Checked(made[0].own["route"], made[0].find("route"), 3, 1, {})
    alone = make_assignment("", tmp_path / "hw", own=[own], form="files").assignment
    assert (alone.title, made[0].title) == ("Top-k routing", "Exercises in attention")


def test_formats_of_other_graders_are_refused(made, tmp_path):
    own = Checked(made[0].own["route"], made[0].find("route"), 3, 1, {})
    with pytest.raises(ConfigError, match="expected no exercises of your own with --format otter"):
        make_assignment("", tmp_path / "hw", own=[own], form="otter")


def test_an_exercise_that_was_renamed_afterwards(made, tmp_path):
    folder = shutil.copytree(made[1], tmp_path / "hw")
    path = folder / "exercises" / "layer-norm-over" / "solution.py"
    path.write_text(path.read_text().replace("layer_norm_over", "norm_over"))
    with pytest.raises(ConfigError, match="has been renamed to norm_over; make the assignment"):
        read_assignment(folder)


def test_the_command_line(tmp_path, capsys):
    out = tmp_path / "hw"
    command = ["assignment", "scores", "--from", str(LAYER_NORM), "--out", str(out)]
    assert main([*command, "--format", "files"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("layer-norm-over: your solution passes; your 3 inputs show")
    assert f"{out}: 2 functions, 22 points" in told
    assert main(["assignment", "--out", str(tmp_path / "none")]) == 2
    assert "expected exercises for different functions; got none" in capsys.readouterr().err
