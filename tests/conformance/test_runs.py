"""pytest as a user starts it, in an empty folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mha_numpy.conformance import cases

ROOT = Path(__file__).parents[2]
STARTED = ROOT / "mha_numpy" / "conformance" / "pytest11"  # on the path once it is installed
OURS = "mha_numpy:scaled_dot_product_attention"
ON_CI = ("CI", "BUILD_NUMBER")  # with one of these pytest repeats whole messages in its summary
WRONG = """
import numpy as np
def attention(q, k, v, mask=None, dropout_p=0.0):
    scores = q @ np.tile(k, (1, q.shape[1] // k.shape[1], 1, 1)).swapaxes(-1, -2)
    scores = scores / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, -1e9, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e9))
    weights /= weights.sum(-1, keepdims=True)
    return weights @ np.tile(v, (1, q.shape[1] // k.shape[1], 1, 1))
"""


@pytest.fixture
def run(tmp_path):
    """A function that runs pytest with what an installation loads, and nothing of this suite."""

    def run(*arguments):
        environment = {name: value for name, value in os.environ.items() if name not in ON_CI}
        plugins = ("-p", "no:mha_numpy_conformance", "-p", "mha_numpy_pytest")
        return subprocess.run(
            [sys.executable, "-m", "pytest", *plugins, "-p", "no:cacheprovider", *arguments],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
            env={**environment, "PYTHONPATH": f"{ROOT}{os.pathsep}{STARTED}"},
        )  # fmt: skip

    return run


ROOM = ("--pyargs", "mha_numpy.conformance")


def test_ours_passes_from_an_empty_folder(run):
    result = run(*ROOM, "--attention", OURS)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"cases: {len(cases()) - 2} agree, 0 differ, 2 skipped\n" in result.stdout
    assert "skipped, because it has no argument for rope_base: rope-halves, rope-pairs" in (
        result.stdout
    )


def test_a_wrong_function_is_told_kindly(run, tmp_path):
    (tmp_path / "mine.py").write_text(WRONG)
    result = run(*ROOM, "--attention", "mine:attention")
    assert result.returncode == 1
    out = result.stdout
    for words in ('mask = "true = blocked"', 'grouping = "tile"'):
        assert out.count(f"    hint: with {words} it agrees: correct the function") == 1
    assert out.count(": see mask-T_k\n") > 8
    assert "no case passes its arguments dropout_p\n" in out
    assert "Traceback" not in out
    assert "plugin.py" not in out

    (tmp_path / "conventions.toml").write_text(
        'mask = "true = blocked"\ngrouping = "tile"\nhidden_numbers = "read"\nblind_rows = "mean"\n'
    )
    result = run(*ROOM, "--attention", "mine:attention", "--conventions", "conventions.toml")
    assert result.returncode == 0, result.stdout
    assert 'declared: mask = "true = blocked"\n' in result.stdout


def test_without_a_function_it_says_what_to_write(run):
    result = run(*ROOM)
    assert result.returncode == 4
    assert "which function? Write --attention package.module:function" in result.stderr
    result = run(*ROOM, "--attention", "mha_numpy:attend")
    assert "attention: mha_numpy has no 'attend'; did you mean" in result.stderr
    assert "Traceback" not in result.stderr


def test_other_runs_start_without_numpy_and_may_have_an_option_of_this_name(run, tmp_path):
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--attention')\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it(pytestconfig):\n"
        "    assert pytestconfig.option.attention == 'flash'\n"
        "    assert not {'numpy', 'mha_numpy'} & {*sys.modules}\n"
    )
    result = run("--attention", "flash")
    assert result.returncode == 0, result.stdout + result.stderr


def test_one_case_by_its_name_also_under_other_settings(run, tmp_path):
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-config -q\npython_files = check_*.py\ntestpaths = nowhere\n"
        "filterwarnings = error\n"
    )
    result = run(*ROOM, "--attention", OURS, "-k", "causal-top-left and not tall")
    assert "cases: 1 agree, 0 differ, 0 skipped" in result.stdout
