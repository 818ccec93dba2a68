"""Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def run_python(*lines, folder=REPOSITORY, **environment):
    """Run lines of Python, where a warning is an error; return the lines printed, and stderr."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(lines)], cwd=folder,
        env=os.environ | {name: str(value) for name, value in environment.items()},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines(), result.stderr
