import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mutations import MUTATIONS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the mutation runner forks")
def test_the_suite_catches_every_known_mistake():
    result = subprocess.run(
        [sys.executable, "-m", "tests.mutation.runner"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    missed = [line for line in result.stdout.splitlines() if line.startswith("MISSED")]
    assert result.returncode == 0, "\n".join(missed) + result.stderr
    assert result.stdout.count("caught  ") == len(MUTATIONS) >= 30
