"""Worker processes, single measurements, the plan, and the program from end to end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import perf_counter, sleep
from types import SimpleNamespace

import numpy as np
import pytest

from mha_numpy import cli
from mha_numpy.bench import Fact, Settings, benchmark, measure, worker
from mha_numpy.bench.contestants import CONTESTANTS, our_attention
from mha_numpy.bench.measure import CLEAR_REFS
from mha_numpy.bench.plan import cell_of, compare, compile_time, difference, peak, plan
from mha_numpy.bench.problems import SHAPES, Case, Problem, parse
from mha_numpy.bench.worker import THREADS, MeasurementError
from mha_numpy.errors import BackendError

NUMPY = {"ours": "numpy", "against": ("numpy",), "threads": 1, "seconds": 0.01}


@pytest.fixture
def ask():
    with worker.worker(threads=1) as ask:
        yield ask


def children_of(process="self"):
    """Return the process ids of a process's children, as Linux knows them."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return {child for thread in threads for child in (thread / "children").read_text().split()}


def state_of(child):
    """Return what a process is doing, as Linux abbreviates it: T is stopped."""
    return Path("/proc", child, "stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def script(monkeypatch):
    """Let workers run a script instead of the measurements."""

    def use(text):
        monkeypatch.setattr(worker, "COMMAND", [sys.executable, "-c", text])

    return use


class TestWorker:
    def test_threads_are_in_the_environment_before_anything_is_imported_and_in_each_job(
        self, script
    ):
        script(
            "import json, os\n"
            "while job := input(): print(json.dumps([json.loads(job), dict(os.environ)]))"
        )
        with worker.worker(threads=3, NUMBA_CACHE_DIR="there") as ask:
            for number in range(3):
                job, environment = ask("turn", number=number)
                assert job == {"measure": "turn", "threads": 3, "number": number}
        assert {environment[name] for name in THREADS} == {"3"}
        assert environment["NUMBA_CACHE_DIR"] == "there"
        assert environment["PATH"] == os.environ["PATH"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("input(); raise ValueError('first\\nlast')", "failed: last"),
            ("input(); import sys; sys.exit(3)", "failed: exit code 3"),
            ("raise SystemExit('at once')", "failed: at once"),
            ("input(); import os; os.abort()", "failed: exit code -6"),
        ],
    )
    def test_a_process_that_ends_says_why(self, script, text, message):
        script(text)
        with worker.worker(threads=1) as ask:
            for _ in range(2):  # and stays ended
                with pytest.raises(MeasurementError, match=f"^{message}$"):
                    ask("anything")

    @pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
    def test_it_is_stopped_between_jobs(self):
        before = children_of()
        with worker.worker(threads=1) as ask:
            ask("turn", who="numpy", shape="1,2,5,4", case=Case())
            (child,) = children_of() - before
            deadline = perf_counter() + 10
            while state_of(child) != "T":  # not at once, but soon
                assert perf_counter() < deadline, state_of(child)

    def test_nobody_waits_for_it_after_an_interruption(self, script):
        script("import time; time.sleep(10)")
        start = perf_counter()
        with pytest.raises(KeyboardInterrupt), worker.worker(threads=1):
            raise KeyboardInterrupt
        assert perf_counter() - start < 9


class TestMeasurements:
    def test_results(self, ask, tmp_path):
        case = Case(backward=True, is_causal=True)
        ask("results", who="numpy", shape="2,6/3,5,7,4", case=case, path=str(tmp_path / "x.npz"))
        expected = our_attention("numpy", parse("2,6/3,5,7,4").draw(case), case, 1).call()
        with np.load(tmp_path / "x.npz") as found:
            assert difference(list(found.values()), expected) == 0

    def test_turn(self, ask):
        short = ask("turn", who="numpy", shape="1,1,2,4", case=Case())
        long = ask("turn", who="numpy", shape="8,8,256,64", case=Case())
        assert 0 < short < long
        assert ask("first_call", who="numpy", shape="1,1,2,4", case=Case()) > 0

    @pytest.mark.slow
    @pytest.mark.skipif(not os.access(CLEAR_REFS, os.W_OK), reason="needs Linux's clear_refs")
    def test_memory_is_that_of_the_call_alone(self, ask):
        scores = 2 * 1024 * 1024 * 4  # bytes
        small = ask("memory", who="numpy", shape="1,2,1024,8")
        assert 2 * scores < small < 16 * scores
        assert 3 * small < ask("memory", who="numpy", shape="1,2,2048,8") < 5 * small
        assert ask("memory", who="numpy", shape="1,2,1024,8") < 1.2 * small

    def test_errors(self, ask):
        assert ask("errors", ours="numpy", other="numpy", count=4) == [1.0] * 4

    def test_difference(self):
        one, large = np.array([0.5, -1.0]), np.array([0.0, 50.0])
        assert difference([one, large], [one, large]) == 0
        assert difference([one + 0.25, large], [one, large]) == 0.25
        assert difference([one, large + 5], [one, large]) == 0.1
        assert difference([np.array([np.nan, 0.0]), large], [one, large]) is None
        assert difference([one, large], [one, np.array([np.nan, 0.0])]) is None
        with pytest.raises(ValueError):
            difference([one], [one, large])


CASE = Case(backward=True)
OPERATIONS = parse("2,4,16,16").operations(CASE)
# seconds, operations a second, seconds: the second round is disturbed, the third at half the speed
ROUNDS = [
    (1.0, 4.0 * OPERATIONS, 2.0), (8.0, 4.0 * OPERATIONS, 2.5), (2.0, 2.0 * OPERATIONS, 4.0),
]  # fmt: skip


def test_fractions_are_taken_of_the_peak_of_the_same_round_if_it_is_known():
    cell = cell_of("2,4,16,16", CASE, "numpy", ROUNDS, 0.0)
    assert (cell.ratio.median, cell.ours_ms, cell.other_ms, cell.pairs) == (2.0, 2000, 2500, 3)
    assert cell[-3:] == (4 * OPERATIONS / 1e9, 0.25, 0.125)
    unknown = [(ours, None, other) for ours, _, other in ROUNDS]
    assert cell_of("2,4,16,16", CASE, "numpy", unknown, 0.0) == (*cell[:-3], None, None, None)


class TestPeak:
    @pytest.mark.kernel
    def test_the_loop_does_as_many_multiply_adds_as_are_counted(self):
        peak = pytest.importorskip("mha_numpy.bench.peak")
        from mha_numpy.kernels.host import HOST

        counts = peak.count_up(2, 5)
        assert counts.shape == (2, HOST.register_bytes // 4)
        assert (counts == 5 * peak.SUMS).all()

    @pytest.mark.slow
    @pytest.mark.kernel
    def test_rate(self, ask):
        pytest.importorskip("numba")
        assert 0 < ask("peak") < float("inf")

    def test_without_numba(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "numba", None)
        monkeypatch.delitem(sys.modules, "mha_numpy.bench.peak", raising=False)
        assert measure.peak(1) is None

    def test_facts_or_why_there_are_none(self, script):
        script("while input(): print(2e9)")
        assert peak(Settings(**NUMPY | {"threads": 3})) == [
            Fact(f"FMA peak of {threads}", "the processor", 2.0, "GFLOP/s")
            for threads in ("1 thread", "3 threads")
        ]
        script("while input(): print('null')")
        with pytest.raises(MeasurementError, match="^skipped: numba cannot run here$"):
            peak(Settings(**NUMPY))


def test_first_calls_are_of_new_processes_with_an_empty_folder_and_a_filled_one(
    script, monkeypatch
):
    """The stand-in replies with how many have met its folder."""
    monkeypatch.setitem(CONTESTANTS, "numpy", CONTESTANTS["numpy"]._replace(packages=("numpy",)))
    script(
        "import os; from pathlib import Path\n"
        "folder = Path(os.environ['NUMBA_CACHE_DIR'])\n"
        "folder.joinpath(str(os.getpid())).touch()\n"
        "while 'first_call' in input(): print(len(list(folder.iterdir())))"
    )
    assert [(fact.what, fact.value) for fact in compile_time(Settings(**NUMPY))] == [
        ("first fwd, nothing compiled yet", 1),
        ("first fwd of a process, compiled before", 2),
        ("first fwd+bwd, nothing compiled yet", 1),
        ("first fwd+bwd of a process, compiled before", 2),
    ]


@pytest.mark.slow
def test_compare():
    cells = compare(Settings(**NUMPY, mask=True), "2,4,16,16", "numpy")
    assert [cell.case for cell in cells] == [
        case.name for case in parse("2,4,16,16").cases(masks=True)
    ]
    for cell in cells:
        assert (cell.shape, cell.other, cell.difference) == ("2,4,16,16", "numpy", 0)
        assert cell.pairs >= 5
        assert 0 < cell.ratio.low <= cell.ratio.median <= cell.ratio.high
        assert 0 < cell.ours_ms < 1000


@pytest.mark.slow
def test_only_those_with_a_backward_are_asked_for_it(monkeypatch):
    monkeypatch.setitem(CONTESTANTS, "numpy", CONTESTANTS["numpy"]._replace(has_backward=False))
    cells = compare(Settings(**NUMPY), "1,2,4,4", "numpy")
    assert [cell.case for cell in cells] == ["fwd", "fwd causal"]


class TestPlan:
    def test_everything(self):
        names = [task.name for task in plan(Settings(**NUMPY))]
        assert names == [*SHAPES, "peak", "import", "compile", "memory", "scaling", "error"]

    def test_quick(self):
        names = [task.name for task in plan(Settings(**NUMPY, quick=True))]
        assert names == [
            "2,4,16,16", "4,12,128,64", "4,8,128,512,64", "8,32/8,1,4096,128",
            "AttentionOnlyLM 64,48,64,4,2,32", "peak", "import",
        ]  # fmt: skip

    def test_who_has_no_layer_is_not_compared_with_it(self, monkeypatch):
        alone = {Problem: CONTESTANTS["numpy"].adapters[Problem]}
        monkeypatch.setitem(CONTESTANTS, "numpy", CONTESTANTS["numpy"]._replace(adapters=alone))
        assert not [task for task in plan(Settings(**NUMPY)) if "layer" in task.name]

    def test_what_cannot_be_measured_says_why(self):
        found = [
            benchmark(Settings(**NUMPY, only=name)).facts[0] for name in ("compile", "scaling")
        ]
        assert found == [
            Fact("compile", "our NumPy", None, "", "skipped: nothing is compiled"),
            Fact("scaling", "our NumPy", None, "", "skipped: there is only one thread"),
        ]

    def test_a_measurement_that_fails_leaves_the_others(self, monkeypatch):
        monkeypatch.setattr(worker, "COMMAND", [sys.executable, "-c", "raise SystemExit('broken')"])
        found = benchmark(Settings(**NUMPY, only="layer"))
        assert found.cells == []
        assert found.facts == [
            Fact(shape, "our NumPy", None, "", "failed: broken") for shape in SHAPES[-4:-2]
        ]


def test_a_backend_that_cannot_run(monkeypatch):
    absent = CONTESTANTS["numba"]._replace(packages=("no_such_package",))
    monkeypatch.setitem(CONTESTANTS, "numba", absent)
    with pytest.raises(BackendError, match="^ours: numba is not installed: pip install numba$"):
        Settings()


class TestCommand:
    QUICK = ("bench", "--ours", "numpy", "--against", "numpy", "--quick", "--seconds", "0.1")

    @pytest.mark.slow
    def test_from_end_to_end(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        page = tmp_path / "page.md"
        page.write_text(
            "# How fast\n\n<!-- benchmark: Z80: begin -->\n<!-- benchmark: Z80: end -->\n"
        )
        code = cli.main([
            *self.QUICK, "--only", "2,4,16", "--threads", "1", "--json", "all.json",
            "--markdown", "report.md", "--write", "page.md", "--chart", "chart.svg",
        ])  # fmt: skip
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, "")
        assert "our NumPy: its time / that of our NumPy, median (quartiles)" in printed.out
        assert printed.out.count("\n2,4,16,16 ") == 2 + CONTESTANTS["numba"].is_here
        assert printed.out.splitlines()[-4:] == [
            "wrote all.json", "wrote report.md", "wrote page.md", "wrote chart.svg",
        ]  # fmt: skip
        report = (tmp_path / "report.md").read_text()
        assert page.read_text().count("<!-- benchmark: ") == 4
        assert report in page.read_text()
        command = "mha-numpy bench --ours numpy --against numpy --only 2,4,16 --threads 1"
        assert f"Measured by `{command} --seconds 0.1 --quick` on:" in report
        found = json.loads((tmp_path / "all.json").read_text())
        assert [cell["case"] for cell in found["cells"]] == [
            "fwd", "fwd causal", "fwd+bwd", "fwd+bwd causal",
        ]  # fmt: skip
        assert (tmp_path / "chart.svg").read_text().startswith("<svg")

    @pytest.mark.slow
    def test_results_that_differ_are_exit_code_1(self, monkeypatch, capsys):
        monkeypatch.setattr("mha_numpy.bench.results.TOLERANCE", -1.0)
        assert cli.main([*self.QUICK, "--only", "2,4,16"]) == 1
        assert "RESULTS DIFFER: 0e+00" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--only", "9,9"], "only: expected part of one of '2,4,16,16' '4,12,128,64'"),
            (["--against", "torch,tf"], "against: expected some of torch,jax,"),
            (["--against", ""], "against: expected some of torch,jax,"),
            (["--ours", "torch"], "ours: expected one of numba, loops, numpy; got 'torch'"),
            (["--threads", "0"], "threads: expected an integer >= 1; got 0"),
            (["--threads", "two"], "argument --threads: invalid int value: 'two'"),
            (["--seconds", "-1"], "seconds: expected a number > 0; got -1.0"),
            (["--seconds", "0"], "seconds: expected a number > 0; got 0.0"),
            (["--seconds", "inf"], "seconds: expected a finite number; got inf"),
            (["--json", "missing/all.json"], "json: expected a file in a folder that exists"),
            (["--markdown", "."], "markdown: expected a file in a folder that exists; got ."),
            (["--write", "missing.md"], "write: cannot read missing.md"),
            (["--write", "page.md"], "write: expected a page with reports, one for each FAMILY"),
            (["--write", "bytes.md"], "write: cannot read bytes.md as text"),
            (["--json", "x", "--markdown", "./x"], "json: expected a separate file; got x twice"),
            (["--chart", "chart.gif"], "chart: expected an .svg file; got chart.gif"),
        ],
    )
    def test_wrong_use_is_one_line_before_anything_is_measured(
        self, tmp_path, monkeypatch, program, arguments, message
    ):
        monkeypatch.chdir(tmp_path)
        Path("page.md").write_text("no place")
        Path("bytes.md").write_bytes(b"\xff\xfe\xff")
        monkeypatch.setattr(worker, "COMMAND", ["no such program"])
        done = program(*self.QUICK, *arguments)
        assert (done.code, done.out) == (2, "")
        assert message in done.err
        assert done.err.count("\n") == 1

    @pytest.mark.slow
    def test_a_folder_that_cannot_be_written_to(self, monkeypatch, capsys):
        if not Path("/proc/self").exists():
            pytest.skip("needs a folder that nobody can write to")
        assert cli.main([*self.QUICK, "--only", "import", "--json", "/proc/self/all.json"]) == 2
        printed = capsys.readouterr()
        assert "cannot write /proc/self/all.json: " in printed.err
        assert "import" in printed.out  # what was measured is not lost

    @pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
    @pytest.mark.slow
    def test_who_is_terminated_leaves_no_process_behind(self):
        command = [sys.executable, "-m", "mha_numpy", "bench", "--only", "2,4,16,16"]
        options = ["--ours", "numpy", "--against", "numpy", "--seconds", "60"]
        with subprocess.Popen([*command, *options], stderr=subprocess.PIPE) as process:
            workers, deadline = set(), perf_counter() + 30
            while len(workers) < 2:
                assert perf_counter() < deadline
                sleep(0.05)
                workers = children_of(process.pid)
            sleep(0.5)
            process.terminate()
            assert process.wait(timeout=30) == 128 + signal.SIGTERM
        assert not [pid for pid in workers if Path("/proc", pid).exists()]


class TestCompile:
    @pytest.mark.parametrize(
        ("folder", "last"),
        [("here", "kept in here"), (None, "not kept: there is no writable cache folder")],
    )
    def test_a_line_for_each_step_and_the_place(self, folder, last, monkeypatch, capsys):
        ahead = pytest.importorskip("mha_numpy.kernels.ahead")
        kernel = SimpleNamespace(stats=SimpleNamespace(cache_path=folder))
        monkeypatch.setattr("mha_numpy.kernels.loops.forward", kernel)
        monkeypatch.setattr(ahead, "compile_all", lambda: iter(["one", "two"]))
        assert cli.main(["compile"]) == 0
        _, *steps, told = capsys.readouterr().out.splitlines()
        assert [step.split(" s  ")[1] for step in steps] == ["one", "two"]
        assert told == last

    @pytest.mark.kernel
    def test_the_real_kernels(self, capsys):
        pytest.importorskip("numba")
        assert cli.main(["compile"]) == 0
        *steps, last = capsys.readouterr().out.splitlines()
        assert [step.split("s  ")[1] for step in steps if "float64" in step]
        assert Path(last.removeprefix("kept in ")).is_dir()

    def test_without_numba(self):
        result = subprocess.run(
            [sys.executable, "-c", "import sys; sys.modules['numba'] = None\n"
             "from mha_numpy import cli; sys.exit(cli.main(['compile']))"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith("mha-numpy compile: numba cannot be used (import of numba ")
        assert result.stderr.endswith("): pip install numba\n")
