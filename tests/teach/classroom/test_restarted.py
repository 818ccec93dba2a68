"""A run that was killed goes on where it was, and ends with the same grades."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sweeps import sweep
from tests.teach.classroom.classes import HANG, KINDS, assign, hand_in, notebook, written

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="submissions are isolated there")

CLASS = {
    **KINDS,
    "flood.py": written() + HANG.replace("pass", "print('x' * 999)"),
    "memory.py": written() + HANG.replace("pass", "x = np.ones(10**12)"),
    "other.ipynb": notebook(written("softmax over queries")),
}  # fmt: skip


@pytest.mark.parametrize("count", sweep([24, 60], 0, every=2))
def test_a_class_killed_and_restarted(tmp_path, count):
    kinds = {name: text for name, text in CLASS.items() if "LATE" not in name}
    hand_in(tmp_path / "class", kinds, count=count)
    table = assign(tmp_path / "hw") / "assignment.toml"
    text = table.read_text().replace("per_day = 0", "per_day = 10").replace('"last"', '"best"')
    table.write_text(text.replace("# deadline", "deadline"))
    (tmp_path / "hw" / "overrides.csv").write_text(
        "id,exercise,points,handed_in,comment\ns00_right,,,2030-06-02,\ns01_mistake,softmax,3,,ok\n"
    )
    command = [
        sys.executable, "-m", "mha_numpy", "grade", "class", "--assignment", "hw", "--jobs", "2",
        "--seconds", "5",
    ]  # fmt: skip

    def start(out):
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        return subprocess.Popen(
            [*command, "--out", out], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL
        )

    assert start("whole").wait() == 0
    stopped = start("stopped")
    while stopped.poll() is None and len(list(tmp_path.glob("stopped/by_student/s*"))) < count // 3:
        time.sleep(0.1)
    stopped.send_signal(signal.SIGKILL)
    stopped.wait()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("stopped/by_student/s*")}
    assert start("stopped").wait() == 0
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("stopped/by_student/s*")}
    assert before.items() <= after.items()
    for name in ("grades.csv", "gradebook/canvas.csv", "gradebook/blackboard.xls"):
        whole, restarted = (tmp_path / run / name for run in ("whole", "stopped"))
        assert whole.read_bytes() == restarted.read_bytes()
    grades = (tmp_path / "whole" / "grades.csv").read_text()
    assert len(grades.splitlines()) == count + 1
    assert "s00_right,s00_right,late,2,4,4,2,8,," in grades
    assert "s01_mistake,s01_mistake,,0,3,4,,7,softmax,softmax: ok" in grades
    time.sleep(1)
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in left
