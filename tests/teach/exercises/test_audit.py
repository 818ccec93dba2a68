"""Tests of tests: what they catch is counted, and nothing that they do does harm."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from textwrap import dedent

import pytest

from mha_numpy import cli
from mha_numpy.errors import ConfigError
from mha_numpy.teach import exercises
from mha_numpy.teach.diagnosis import BANK, fingerprints
from mha_numpy.teach.exercises import audit as audit_module
from mha_numpy.teach.exercises.audit import Audit, audit_tests
from tests.sweeps import sweep

ROOT = Path(__file__).parents[3]
PAGE, EXAMPLES = ROOT / "docs" / "audit-tests.md", ROOT / "docs" / "examples"
ALL = {("split_heads", name) for name in fingerprints("split_heads")}

SPLIT_TEST = """
    import numpy as np
    import pytest

    X = np.arange(24.0).reshape(1, 3, 8)
    EXPECTED = np.stack([X[:, :, 2 * h : 2 * h + 2] for h in range(4)], axis=1)

    def check(heads):
        assert np.array_equal(heads, EXPECTED)
"""


def write(folder, text, name="test_mine.py"):
    path = folder / name
    path.write_text(dedent(text), encoding="utf-8")
    return path


@pytest.fixture
def audit(tmp_path):
    """Audit a test of split_heads that ends with some text."""

    def run(text, **options):
        return audit_tests(write(tmp_path, dedent(SPLIT_TEST) + dedent(text)), **options)

    return run


class TestCounting:
    def test_each_failing_test_is_named_and_skipped_ones_do_not_count(self, audit):
        found = audit("""
            def test_shape(split_heads):
                assert split_heads(X, 4).shape == (1, 4, 3, 2)

            def test_first(split_heads):
                assert np.array_equal(split_heads(X, 4)[0, 0], X[0, :, :2])

            def test_all(split_heads):
                check(split_heads(X, 4))

            @pytest.mark.skip
            def test_skipped(softmax):
                softmax(X)

            @pytest.mark.xfail
            def test_known(softmax):
                assert softmax(X).sum() == 0

            @pytest.mark.xfail(strict=True)
            def test_mended(softmax):
                softmax(X)
        """)
        assert found.tests == ["test_shape", "test_first", "test_all"]
        assert list(found.pieces) == ["split_heads"]
        assert set(found.caught) == ALL
        assert found.caught["split_heads", "split without transpose"] == ["test_first", "test_all"]
        assert all("test_all" in by for by in found.caught.values())

    @pytest.mark.slow
    def test_functions_that_are_compared_with_each_other(self, tmp_path):
        text = """
            import numpy as np
            def test_attention_is_softmax_of_scores(attention, softmax):
                q, k, v = np.random.default_rng(0).normal(size=(3, 4, 4))
                weights = softmax((q @ k.T / 2)[None, None])[0, 0]
                assert np.allclose(attention(q, k, v), weights @ v)
        """
        found = audit_tests(write(tmp_path, text))
        both = {("softmax", "softmax over queries"), ("attention", "softmax over queries")}
        assert both <= set(found.missed)
        assert both <= found.together
        assert ("attention", "scale missing") in found.caught  # softmax has no scale
        assert ("softmax", "mask forgotten") in found.missed
        assert ("softmax", "mask forgotten") not in found.together
        assert "together: the tests catch these mistakes if one function has them" in str(found)
        text += """
            def test_rows(softmax):
                scores = np.random.default_rng(0).normal(size=(1, 1, 4, 4))
                assert np.allclose(softmax(scores).sum(axis=-1), 1)
        """
        assert both <= set(audit_tests(write(tmp_path, text)).caught)


WAYS = dict(re.findall(r"### (\w+)\n([^#]+)", """
### parameter
def test_heads(split_heads):
    check(split_heads(X, 4))
### named_arguments
def test_heads(split_heads):
    check(split_heads(num_heads=4, x=X))
### class
class TestHeads:
    @pytest.mark.parametrize("num_heads", [4])
    def test_heads(self, split_heads, num_heads):
        check(split_heads(X, num_heads))
### wide_fixture
made = []

@pytest.fixture(scope="module")
def heads(split_heads):
    made.append(split_heads(X, 4))
    return made[0]

@pytest.mark.parametrize("time", [1, 2])
def test_heads(heads, time):
    assert len(made) == 1
    check(heads)
### imported
from mine import split_heads

def test_heads():
    check(split_heads(X, 4))
### assigned
from functools import partial
import mine

split_heads = partial(mine.split_heads)

def test_heads():
    check(split_heads(X, 4))
### unittest
import unittest
from mine import split_heads

class TestHeads(unittest.TestCase):
    def test_heads(self):
        check(split_heads(X, 4))
### own_fixture
@pytest.fixture(params=[print, repr])
def split_heads(request):
    return request.param

def test_heads(split_heads):
    check(split_heads(X, 4))
### parametrized
@pytest.mark.parametrize("split_heads", [print])
def test_heads(split_heads):
    check(split_heads(X, 4))
### kept
from functools import cache
from mine import split_heads

@cache
def heads():
    return split_heads(X, 4)

def test_heads():
    check(heads())
### arrays_of_these_names
rope = X

@pytest.fixture
def softmax():
    return X

def test_heads(split_heads, softmax):
    assert softmax is X and rope is X
    check(split_heads(X, 4))
"""))  # fmt: skip


class TestAiming:
    @pytest.mark.slow
    def test_every_way(self, tmp_path):
        write(tmp_path, "def split_heads(x, num_heads):\n    raise NotImplementedError", "mine.py")
        for way, text in WAYS.items():
            write(tmp_path, dedent(SPLIT_TEST) + text, f"test_{way}.py")
        found = audit_tests(tmp_path)
        assert found.rejected_right == []
        assert {test.partition(".py::")[0] for test in found.tests} == {f"test_{w}" for w in WAYS}
        assert "test_class.py::TestHeads::test_heads[4]" in found.tests
        assert set(found.caught) == ALL
        for tests in found.caught.values():
            assert set(tests) == set(found.tests)


class TestHarm:
    @pytest.mark.slow
    def test_with_a_mistake_is_catching_it(self, audit, tmp_path):
        found = audit(
            f"""
            import os, sys, time
            from pathlib import Path

            ROUNDS = Path({str(tmp_path / "rounds")!r})
            HARMS = [lambda: time.sleep(99), lambda: os._exit(0), lambda: sys.exit(1)]

            def test_heads(split_heads):
                if not np.array_equal(split_heads(X, 4), EXPECTED):
                    with ROUNDS.open("a") as rounds:
                        rounds.write("x")
                    HARMS[ROUNDS.stat().st_size % 3]()

            def test_shape(split_heads):
                assert split_heads(X, 4).shape == (1, 4, 3, 2)
            """,
            seconds=1,
        )
        assert (tmp_path / "rounds").stat().st_size == len(ALL) >= 3
        assert set(found.caught) == ALL
        assert {by[0] for by in found.caught.values()} == {"test_heads"}

    def test_with_right_functions_is_rejecting_them(self, audit):
        errors = {
            "assert False": r"AssertionError: assert False \(line \d+ of test_mine.py: `def ",
            "sys.exit(3)": r"^SystemExit: 3 \(line ",
            "split_heads(X)": r"^TypeError: missing a required argument: 'num_heads' \(line",
            "split_heads(X, 4, 5)": "^TypeError: too many positional arguments",
        }
        texts = [f"def test_{n}(split_heads): {harm}" for n, harm in enumerate(errors)]
        good = "def test_heads(split_heads): check(split_heads(X, 4))"
        no_mask = "def test_rows(softmax): softmax(np.eye(3)); softmax(scores=np.eye(3), mask=None)"
        lost = "def test_lost(split_head): pass"
        found = audit("\n".join(["import sys", good, no_mask, *texts, lost]))
        assert not found.passed
        *others, last = found.rejected_right
        assert [test for test, _ in others] == [f"test_{n}" for n in range(len(errors))]
        for (_, told), error in zip(others, errors.values(), strict=True):
            assert re.search(error, told), told
        assert last == ("test_lost", "there is no fixture split_head")
        assert (found.caught, found.missed, found.share) == ({}, [], 0)
        (section,) = found.sections
        assert section.rows == [[*row] for row in found.rejected_right]
        assert section.title.startswith("test_mine.py: nothing is counted")
        assert section.title.endswith("because 5 of 7 tests reject right functions")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("harm", "error"),
        [
            (
                "time.sleep(99)",
                "took longer than 5 s and was stopped (line 13 of test_mine.py: `time.sleep(99)`)",
            ),
            ("os._exit(3)", "ended the process: os._exit(3)"),
            (
                "pytest.exit('no more')",
                "Exit: no more (line 13 of test_mine.py: `pytest.exit('no more')`)",
            ),
            (
                "raise KeyboardInterrupt",
                "KeyboardInterrupt (line 13 of test_mine.py: `raise KeyboardInterrupt`)",
            ),
        ],
    )
    def test_even_if_they_end_the_process(self, audit, harm, error):
        good = "def test_heads(split_heads): check(split_heads(X, 4))"
        found = audit(f"import os, time\n{good}\ndef test_bad():\n    {harm}", seconds=5)
        assert found.rejected_right == [("test_bad", error)]

    @pytest.mark.slow
    def test_nothing_is_printed_or_left_and_options_of_others_do_not_count(
        self, audit, tmp_path, capfd, monkeypatch
    ):
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(scratch))
        monkeypatch.setenv("TMPDIR", str(scratch))
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        write(tmp_path, "[pytest]\naddopts = -k nothing\nrequired_plugins = no-such", "pytest.ini")
        monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
        (tmp_path / "other-1.dist-info").mkdir()
        write(tmp_path, "[pytest11]\nother = other", "other-1.dist-info/entry_points.txt")
        write(tmp_path, "Name: other\nVersion: 1", "other-1.dist-info/METADATA")
        write(tmp_path, "raise SystemExit", "other.py")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
        before = set(tmp_path.rglob("*"))
        found = audit("""
            import os, tempfile

            print("on loading")

            def test_heads(split_heads, tmp_path):
                (tmp_path / "file").write_text("x")
                tempfile.mkstemp()
                print("in a test")
                os.system("echo from below; echo from below >&2")
                check(split_heads(X, 4))
        """)
        assert set(found.caught) == ALL
        assert capfd.readouterr() == ("", "")
        assert set(tmp_path.rglob("*")) == before | {tmp_path / "test_mine.py"}

    @pytest.mark.slow
    def test_where_processes_do_not_fork(self, audit, monkeypatch):
        code = (
            "import os, sys; del os.fork\n"
            "from mha_numpy.teach.exercises.audit_run import main\n"
            "sys.exit(main(sys.argv[1], float(sys.argv[2])))"
        )
        monkeypatch.setattr(audit_module, "COMMAND", (sys.executable, "-B", "-c", code))
        found = audit(WAYS["wide_fixture"])
        assert set(found.caught) == ALL


LOADING = {  # the first one is always tried
    "import no_such": "No module named 'no_such' (line 1 of test_mine.py",
    "def test_x(:\n    pass": "SyntaxError: invalid syntax (line 1 of test_mine.py: `def",
    "": "it contains no tests",
    "import pytest\n@pytest.mark.skip\ndef test_x(softmax): pass": "it contains no tests",
    "def test_x(): pass": "no test calls any of the functions: take one by its name",
    "import sys\nsys.exit(3)": "SystemExit: 3 (line 2",
    "import os\nos._exit(0)": "ended its process with exit code 0",
    "import time\ntime.sleep(99)": "loading it took longer than 1 s",
}


class TestWrongUse:
    def assert_refused(self, tmp_path, text, error):
        start = time.monotonic()
        with pytest.raises(ConfigError, match=r"^file: .*test_mine\.py: ") as raised:
            audit_tests(write(tmp_path, text), seconds=1)
        assert error in str(raised.value)
        assert "\n" not in str(raised.value)
        assert time.monotonic() - start < 30  # and not 99 seconds

    @pytest.mark.parametrize("text", sweep(LOADING, 1))
    def test_a_file_that_cannot_be_used(self, tmp_path, text):
        self.assert_refused(tmp_path, text, LOADING[text])

    @pytest.mark.slow
    def test_a_conftest_that_cannot_be_loaded(self, tmp_path):
        write(tmp_path, "import no_such", "conftest.py")
        self.assert_refused(tmp_path, "def test_x(): pass", "No module named 'no_such'")

    def test_no_file(self, tmp_path):
        with pytest.raises(
            ConfigError,
            match=r"^file: expected a file or a folder of tests; there is no .*no_such\.py$",
        ):
            audit_tests(tmp_path / "no_such.py")

    @pytest.mark.parametrize("seconds", [0, -1, float("nan"), "1"])
    def test_seconds(self, tmp_path, seconds):
        with pytest.raises(ConfigError, match="^seconds: expected a"):
            audit_tests(tmp_path, seconds=seconds)

    def test_without_pytest(self, tmp_path, monkeypatch):
        monkeypatch.setattr(audit_module, "find_spec", lambda name: None)
        with pytest.raises(ConfigError, match="pip install pytest"):
            audit_tests(tmp_path)


CAUGHT = {
    ("softmax", "mask forgotten"): ["test_b"], ("rope", "positions ignored"): ["test_b", "test_c"],
}  # fmt: skip


def found_with(rejected=(), missed=(("softmax", "softmax over queries"),)):
    tests, pieces = ["test_a", "test_b", "test_c"], ["softmax", "rope"]
    return Audit(Path("t.py"), tests, pieces, rejected, CAUGHT, missed, frozenset())


def test_tables():
    found = found_with()
    assert not found
    assert found.share == 2 / 3
    scores, slipping, useful = found.sections
    assert scores.title == "t.py: 2 of 3 mistakes caught"
    assert scores.rows == [["softmax", "2", "1", "50%"], ["rope", "1", "1", "100%"]]
    assert scores.bad_rows == {0}
    assert slipping.title == "Slipped through: 1"
    assert slipping.rows == [["softmax", BANK["softmax over queries"].verdict, ""]]
    assert useful.title == "What each test catches: 1 of 3 catch nothing"
    assert useful.rows == [["test_a", "0", "0"], ["test_b", "2", "1"], ["test_c", "1", "0"]]
    assert useful.bad_rows == {0}
    assert str(found).count("\n\n") == 2


class TestProgram:
    @pytest.mark.parametrize(
        ("found", "code", "told"),
        [
            (found_with(missed=[]), 0, "t.py: 2 of 2 mistakes caught"),
            (found_with(), 1, "Slipped through: 1"),
            (found_with([("test_a", "error")]), 1, "because 1 of 3 tests reject right functions"),
        ],
    )
    def test_exit_codes(self, monkeypatch, capsys, found, code, told):
        asked = []
        monkeypatch.setattr(
            exercises, "audit_tests", lambda file, seconds: asked.append((file, seconds)) or found
        )
        assert cli.main(["audit-tests", "t.py", "--seconds", "7"]) == code
        assert told in capsys.readouterr().out
        ((file, seconds),) = asked
        assert (str(file), seconds) == ("t.py", 7)

    def test_no_file(self, tmp_path, capsys):
        assert cli.main(["audit-tests", str(tmp_path / "none.py")]) == 2
        assert "tests; there is no" in capsys.readouterr().err

    @pytest.mark.slow
    def test_ends_all_its_processes(self, tmp_path):
        file = write(tmp_path, f"""
            import os, time
            from pathlib import Path

            def test_heads(split_heads):
                Path({str(tmp_path / "pids")!r}).write_text(f"{{os.getppid()}} {{os.getpid()}}")
                time.sleep(99)
        """)  # fmt: skip
        program = subprocess.Popen(
            [sys.executable, "-m", "mha_numpy", "audit-tests", str(file), "--seconds", "60"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        pids = wait_for(lambda: (tmp_path / "pids").read_text().split(), 20)
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does
        assert program.communicate(timeout=10) == ("", "interrupted\n")
        assert program.returncode == 130
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)


def wait_for(get, seconds):
    """Return the first result that is not empty."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := get():
                return found
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError


class TestPage:
    def test_shows_the_example_as_it_is(self):
        text = PAGE.read_text(encoding="utf-8")
        weak = (EXAMPLES / "weak_tests.py").read_text(encoding="utf-8")
        assert f"```py\n{weak}```" in text
