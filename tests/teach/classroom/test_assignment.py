"""make_assignment and read_assignment: what is written, read again, kept secret, refused."""

import ast
import hashlib
import hmac
import json
import re
import subprocess
import sys
from datetime import datetime

import nbformat
import numpy as np
import pytest

from mha_numpy.cli import main
from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom import READY, Assignment, make_assignment, read_assignment
from mha_numpy.teach.classroom.handout import stub_text
from mha_numpy.teach.classroom.marks import MARKS
from mha_numpy.teach.diagnosis import CONVENTIONS, TASKS, Variant, using
from mha_numpy.teach.exercises import EXERCISES, find_exercise

STUDENTS = {f"s{number}": f"Student {number}" for number in range(40)}


@pytest.fixture
def roster(tmp_path):
    path = tmp_path / "ids.csv"
    path.write_text("id,name\ns1,Ada\ns2,Émilie\n", encoding="utf-8")
    return path


def assigned(name="hw1-forward", secret=b"x" * 32):
    ready = READY[name]
    points = dict.fromkeys(ready.exercises, 10.0)
    return Assignment(name, ready.title, points, {}, None, secret, STUDENTS, ready.exercises)


@pytest.mark.parametrize("name", READY)
def test_what_is_written_is_read_again(tmp_path, roster, name):
    made = make_assignment(name, tmp_path / "hw", roster=roster, deadline="2030-05-31")
    again = read_assignment(tmp_path / "hw")
    assert again == made.assignment
    assert again.deadline == datetime(2030, 5, 31, 23, 59)
    assert again.roster == {"s1": "Ada", "s2": "Émilie"}
    assert again.variant("s1") == made.assignment.variant("s1")
    assert again.marks == MARKS
    assert again.total == sum(again.exercises.values()) > 0
    secret = tmp_path / "hw" / "secret"
    assert secret.stat().st_mode & 0o777 == 0o600


def test_no_handout_holds_the_secret_or_a_seed(tmp_path, roster):
    made = make_assignment("hw1-forward", tmp_path / "hw", roster=roster, form="files")
    make_assignment("hw1-forward", tmp_path / "hw", roster=roster, force=True)
    told = "".join(
        path.read_text(encoding="utf-8") for path in (tmp_path / "hw/handouts").rglob("*.*")
    )
    assert made.assignment.secret.decode() not in told
    for student in ("s1", "s2"):
        for variant in made.assignment.variant(student).values():
            assert str(variant.seed) not in told
    assert "HMAC" not in told


def test_seeds_are_the_hmac_of_student_assignment_and_exercise():
    one = assigned()
    digest = hmac.new(b"x" * 32, b"s1|hw1-forward|softmax", hashlib.sha256).digest()
    assert one.variant("s1")["softmax"].seed == int.from_bytes(digest[:8], "big")
    seeds = {v.seed for student in STUDENTS for v in one.variant(student).values()}
    assert len(seeds) == len(STUDENTS) * len(one.exercises)
    assert assigned(secret=b"y" * 32).variant("s1") != one.variant("s1")


@pytest.mark.parametrize("name", READY)
def test_every_student_has_conventions_and_they_fit_together(name):
    one, sets = assigned(name), set()
    for student in STUDENTS:
        variants = one.variant(student)
        followed = {convention for v in variants.values() for convention in v.conventions}
        sets.add(frozenset(followed))
        for exercise, variant in variants.items():
            piece = find_exercise(exercise).task
            known = {c for c in CONVENTIONS if piece in CONVENTIONS[c].at}
            assert set(variant.conventions) == followed & known
            useful = {name for name in known if piece not in CONVENTIONS[name].same}
            assert len(useful) == 1 or useful & set(variant.conventions)
            assert len(variant.conventions) <= 3
            with using(variant):
                assert TASKS[piece].probes()
    assert len(sets) >= 8


def test_points_that_are_changed_change_no_variant(tmp_path, roster):
    before = make_assignment("hw1-forward", tmp_path / "hw", roster=roster).assignment
    table = tmp_path / "hw" / "assignment.toml"
    text = table.read_text().replace("split-heads = 10\n", "")
    table.write_text(text.replace("scores = 10", "scores = 2.5"))
    after = read_assignment(tmp_path / "hw")
    assert "split-heads" not in after.exercises
    assert after.exercises["scores"] == 2.5
    for student in ("s1", "s2"):
        assert after.variant(student).items() <= before.variant(student).items()


def test_force_keeps_the_secret_wherever_it_is(tmp_path, roster):
    secret = tmp_path / "elsewhere"
    secret.write_text("0123456789abcdef\n")
    one = make_assignment("hw1-forward", tmp_path / "hw", roster=roster, secret_file=secret)
    assert one.assignment.secret == b"0123456789abcdef"
    assert not (tmp_path / "hw" / "secret").exists()
    roster.write_text("s1,Ada\ns3,Emmy\n")
    two = make_assignment("hw1-forward", tmp_path / "hw", roster=roster, force=True)
    assert two.assignment.variant("s1") == one.assignment.variant("s1")
    assert read_assignment(tmp_path / "hw") == two.assignment


def test_without_a_roster_there_is_one_handout_with_the_usual_conventions(tmp_path):
    made = make_assignment("softmax,masks", tmp_path / "hw4", form="files")
    assert [path.name for path in made.handouts] == ["all"]
    assert made.assignment.name == "hw4"
    for variant in made.assignment.variant("whoever").values():
        assert variant.conventions == ()
        assert variant.seed != Variant().seed
    readme = (made.handouts[0] / "README.md").read_text()
    assert "variant of" not in readme
    assert "our variant" not in readme
    assert "| | | | | 40 |" in readme


def test_a_notebook_has_stubs_and_checks(tmp_path, roster):
    made = make_assignment("hw1-forward", tmp_path / "hw", roster=roster)
    notebook = nbformat.read(made.handouts[1] / "hw1-forward.ipynb", as_version=4)
    nbformat.validate(notebook)
    tagged = [cell for cell in notebook.cells if "exercise" in cell.metadata.get("tags", [])]
    variants = made.assignment.variant("s2")
    assert len(tagged) == len(variants)
    for cell, (exercise, variant) in zip(tagged, variants.items(), strict=True):
        (function,) = ast.parse(cell.source).body
        assert function.name == find_exercise(exercise).function_name
        assert cell.source == stub_text(find_exercise(exercise), variant).strip()
        for name in variant.conventions:
            told = " ".join(notebook.cells[0].source.split())
            assert " ".join(CONVENTIONS[name].sentence.split()) in told
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    (given,) = (cell for cell in code if "mha_numpy" in cell.source)
    assert given not in tagged
    assert "Émilie (s2)" in notebook.cells[0].source
    make_again = make_assignment("hw1-forward", tmp_path / "hw", roster=roster, force=True)
    again = (make_again.handouts[1] / "hw1-forward.ipynb").read_text()
    assert json.loads(again) == json.loads(nbformat.writes(notebook))


@pytest.mark.parametrize(
    "exercise", [e for e in EXERCISES if e.kind != "tests"], ids=lambda e: e.id
)
def test_every_stub_needs_numpy_alone(exercise):
    namespace = {"np": np}
    text = stub_text(exercise, Variant(1))
    exec(text, namespace)
    function = namespace[exercise.function_name]
    docstring = function.__doc__
    assert docstring.splitlines()[0] == exercise.stub.__doc__.splitlines()[0]
    assert max(map(len, text.splitlines())) <= 100
    names = list(TASKS[exercise.task].probes()[0])
    assert re.match(rf"def \w+\({', '.join(names)}\):", text)


def test_files_check_themselves(tmp_path, roster):
    made = make_assignment("merge-heads,scores", tmp_path / "hw", roster=roster, form="files")
    (made.handouts[0] / "02_scores.py").write_text("def scores(q, k):\n    return q\n")
    done = subprocess.run(
        [sys.executable, "check.py"], cwd=made.handouts[0], capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert "merge-heads, public checks: not right" in done.stdout
    assert "not written yet" in done.stdout
    assert "scores: expected shape" in done.stdout


@pytest.mark.parametrize("variants", ["none", "seeds", "conventions"])
def test_what_differs_between_students(tmp_path, roster, variants):
    made = make_assignment("hw1-forward", tmp_path / "hw", roster=roster, variants=variants)
    one, two = (made.assignment.variant(student) for student in ("s1", "s2"))
    assert (one == two) == (variants == "none")
    usual = all(variant.conventions == () for variant in one.values())
    assert usual == (variants != "conventions")
    assert all(variant.seed != Variant().seed for variant in one.values())
    assert f'variants = "{variants}"' in (tmp_path / "hw" / "assignment.toml").read_text()
    assert read_assignment(tmp_path / "hw") == made.assignment
    text = (made.handouts[0] / "README.md").read_text()
    assert ("our variant" in text) == (variants == "conventions")


@pytest.mark.parametrize(("with_roster", "variants"), [(True, "conventions"), (False, "seeds")])
def test_a_table_from_before_there_was_a_choice_is_read(tmp_path, roster, with_roster, variants):
    people = {"roster": roster} if with_roster else {}
    made = make_assignment("softmax,masks", tmp_path / "hw", **people)
    table = tmp_path / "hw" / "assignment.toml"
    lines = table.read_text().splitlines()
    table.write_text("\n".join(line for line in lines if not line.startswith("variants")))
    assert read_assignment(tmp_path / "hw") == made.assignment
    assert made.assignment.variants == variants


@pytest.mark.parametrize("variants", ['"seed"', "3", '"conventions"'])
def test_variants_that_are_not_known_or_need_a_roster(tmp_path, variants):
    make_assignment("softmax,masks", tmp_path / "hw")
    table = tmp_path / "hw" / "assignment.toml"
    table.write_text(table.read_text().replace('"seeds"  #', f"{variants}  #"))
    with pytest.raises(ConfigError, match="variants: expected one of none, seeds, conventions"):
        read_assignment(tmp_path / "hw")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variants": "seed"}, "variants: expected one of none, seeds, conventions; got 'seed'"),
        ({"variants": "conventions"}, "conventions differ between students, so add --roster"),
        ({"name": "hw1-foward"}, "name: expected hw1-forward, .*did you mean 'hw1-forward'"),
        ({"name": "softmax,nope"}, "name: expected .*; got 'softmax,nope'"),
        ({"name": ","}, "got none"),
        ({"name": "softmax,softmax"}, "softmax occurs twice"),
        ({"form": "pdf"}, "format: expected one of notebook, files, otter, nbgrader; got 'pdf'"),
        ({"deadline": "tomorrow"}, "deadline: expected a date such as .*; got 'tomorrow'"),
        ({"deadline": "2030-02-31"}, "deadline: expected"),
        ({"roster": "none.csv"}, "roster: cannot read none.csv"),
        ({"secret_file": "none"}, "secret-file: cannot read .*none"),
    ],
)
def test_wrong_use_writes_nothing(tmp_path, arguments, message):
    with pytest.raises(ConfigError, match=message):
        make_assignment(**{"name": "softmax", "out": tmp_path / "hw", **arguments})
    assert not (tmp_path / "hw").exists()


def test_what_is_there_is_kept(tmp_path):
    make_assignment("softmax", tmp_path / "hw", form="files")
    with pytest.raises(ConfigError, match=r"already has assignment.toml; add --force"):
        make_assignment("softmax", tmp_path / "hw")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="out: expected a folder; .* is a file"):
        make_assignment("softmax", tmp_path / "file")
    short = tmp_path / "short"
    short.write_text("abc")
    with pytest.raises(ConfigError, match="secret-file: expected 16 bytes or more.* has 3"):
        make_assignment("softmax", tmp_path / "hw2", secret_file=short)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "hw"', "name = 3", 'name: expected name = "..." in .*; got 3'),
        ("softmax = 20", "softmax = -1", "points: expected numbers of 0 or more; .* softmax = -1"),
        ("softmax = 20", "softmax = true", "softmax = True"),
        ("softmax = 20", "", "points: expected exercises that were handed out"),
        ("softmax = 20", "scores = 20", "points: expected exercises that were handed out"),
        ("softmax = 20", "softmx = 20", "did you mean 'softmax'"),
        ("shape = 10", "shape = 11", "marks: expected shape, .* with the sum 100"),
        ("shape = 10", "form = 10", "marks: expected shape, .* with the sum 100"),
        ("slip = 40", "slip = 101", "marks: expected shape, .* and slip up to 100"),
        ("[marks]", "[mark]", r"marks: expected a table \[marks\]"),
        ("# deadline = 2030-05-31T23:59:00", "deadline = 3", "deadline: expected 2030"),
        ("[points]", "[points", "assignment: expected TOML in .*"),
        ('secret_file = "secret"', 'secret_file = "none"', "secret-file: cannot read .*none"),
    ],
)
def test_a_table_that_cannot_be(tmp_path, old, new, message):
    make_assignment("softmax", tmp_path / "hw", form="files")
    path = tmp_path / "hw" / "assignment.toml"
    assert path.read_text().count(f"\n{old}\n") == 1
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        read_assignment(tmp_path / "hw")


def test_a_table_with_the_marks_of_before(tmp_path):
    made = make_assignment("softmax", tmp_path / "hw", form="files")
    path = tmp_path / "hw" / "assignment.toml"
    now = "shape = 10\nvalues = 80\nrobustness = 10\nslip = 40\n"
    before = "shape = 10\ninvariants = 20\nvalues = 40\ngradients = 20\nrobustness = 10\n"
    assert now in path.read_text()
    path.write_text(path.read_text().replace(now, before))
    assert read_assignment(tmp_path / "hw") == made.assignment


def test_no_assignment(tmp_path):
    with pytest.raises(ConfigError, match="there is no .*; `mha-numpy assignment NAME --out "):
        read_assignment(tmp_path)


def test_a_format_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nbformat", None)
    with pytest.raises(ConfigError, match="or write --format files"):
        make_assignment("softmax", tmp_path / "hw")


def test_the_command(tmp_path, roster, capsys):
    out = str(tmp_path / "hw")
    options = ["--out", out, "--roster", str(roster), "--format", "files"]
    assert main(["assignment", "hw3-grouped-and-cache", *options]) == 0
    told = capsys.readouterr().out
    assert f"{out}: hw3-grouped-and-cache, 6 functions, 170 points" in told
    assert f"hand out the 2 folders in {out}/handouts, each to its student, and nothing" in told
    assert main(["assignment", "hw3-grouped-and-cache", *options]) == 2
    assert "add --force" in capsys.readouterr().err
    assert main(["assignment", "softmax", "--out", f"{out}4", "--format", "files"]) == 0
    assert f"hand out {out}4/handouts/all, and nothing else" in capsys.readouterr().out
