"""Solutions for the teacher: one file for each student, graded before it is written."""

import ast
from pathlib import Path

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom import make_assignment, write_solutions
from mha_numpy.teach.classroom import solved as module
from mha_numpy.teach.exercises import check_own

LAYER_NORM = Path(__file__).parents[3] / "docs" / "examples" / "layer-norm"
ROSTER = "id,name\ns1,Ada\ns2,Emmy\n"


@pytest.fixture
def homework(tmp_path):
    (tmp_path / "ids.csv").write_text(ROSTER)

    def make(exercises, **more):
        make_assignment(
            exercises, tmp_path / "hw", roster=tmp_path / "ids.csv", form="files", **more
        )
        return tmp_path / "hw"

    return make


def test_each_variant_has_its_own_and_it_is_right(homework):
    folder = homework("split-heads,masks,attention")
    paths = write_solutions(folder, jobs=1)
    assert paths == [folder / "solutions" / name / "solutions.py" for name in ("s1", "s2")]
    one, other = (path.read_text() for path in paths)
    assert one != other
    for text, whose in ((one, "Ada (s1)"), (other, "Emmy (s2)")):
        assert ast.get_docstring(ast.parse(text)).startswith(f"Right functions for {whose}. Keep")
        names = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        assert {"split_heads", "make_mask", "attention"} <= names
    handed_out = "".join(path.name for path in (folder / "handouts").rglob("*"))
    assert "solution" not in handed_out


def test_one_that_is_not_right_is_not_written(homework, monkeypatch):
    folder = homework("split-heads", variants="none")
    wrong = "def split_heads(x, num_heads):\n    return x\n"
    monkeypatch.setattr(module, "solutions_text", lambda *_: wrong)
    with pytest.raises(ConfigError, match="solutions: split-heads of s[12] did not come out right"):
        write_solutions(folder, jobs=1)
    assert not (folder / "solutions").exists()


@pytest.mark.slow
def test_a_teachers_own_has_a_file_of_its_own(homework):
    folder = homework("split-heads", own=[check_own(LAYER_NORM)])
    own, usual, *others = write_solutions(folder, jobs=1)
    assert (own.name, usual.name, len(others)) == ("layer_norm_over.py", "solutions.py", 2)
    assert own.read_text() == (LAYER_NORM / "solution.py").read_text()
    assert "layer_norm_over" not in usual.read_text()


@pytest.mark.slow
def test_a_teachers_own_may_be_all(homework):
    folder = homework("", own=[check_own(LAYER_NORM)])
    paths = write_solutions(folder, jobs=1)
    assert paths == [folder / "solutions" / name / "layer_norm_over.py" for name in ("s1", "s2")]


def test_tests_have_no_one_solution(homework):
    with pytest.raises(ConfigError, match="none of the exercises asks for a function"):
        write_solutions(homework("break-my-attention", variants="none"), jobs=1)
