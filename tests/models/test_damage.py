"""Whatever is in a model's or a run's files, it loads rightly or gives one error of ours, soon and
in little memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sweeps import sweep

pytest.importorskip("safetensors")
pytest.importorskip("resource")


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the memory in use")
@pytest.mark.parametrize("cases", sweep([50, 1000, 5000], 1, every=2))
@pytest.mark.parametrize("what", ["config", "tensors", "checkpoint"])
def test_damaged_files_load_rightly_or_give_one_error(what, cases):
    command = [sys.executable, "-m", "tests.models.damage", what, str(cases)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert not report["wrong"]
    assert set(report["outcomes"]) == {"loads", "FileError"}
    assert min(report["outcomes"].values()) > cases / 30
    assert report["seconds"][0] < 2
    assert report["megabytes"] < 500
