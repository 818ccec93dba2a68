import os
import subprocess
import sys
from pathlib import Path

import pytest

from mha_numpy.teach.diagnosis.mutants import apply_edits
from tests.mutation.mutations import MUTATIONS

ROOT = Path(__file__).parents[2]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the mutation runner forks")


def python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.mistake)
def test_what_a_mutation_replaces_stands_once(mutation):
    source = (ROOT / "mha_numpy" / mutation.path).read_text(encoding="utf-8")
    assert apply_edits(source, mutation.edits) != source


@pytest.mark.slow
@needs_fork
def test_three_of_them_are_caught():
    result = python(
        "-c",
        "from tests.mutation.runner import MUTATIONS, UNCHANGED, outcomes, suite_for\n"
        "some = MUTATIONS[0], MUTATIONS[len(MUTATIONS) // 2], MUTATIONS[-1]\n"
        "jobs = [(m, suite_for(m)) for m in some]\n"
        "jobs.append((UNCHANGED, suite_for(UNCHANGED)[:1]))\n"
        "print(*sorted(code for _, code in outcomes(jobs)))",
    )
    assert result.stdout == "0 1 1 1\n", result.stderr


@needs_fork
@pytest.mark.parametrize("share", [
    pytest.param(["--third"], marks=pytest.mark.slow), pytest.param([], marks=pytest.mark.release),
])  # fmt: skip
def test_the_suite_catches_every_known_mistake(share):
    result = python("-m", "tests.mutation.runner", *share)
    missed = [line for line in result.stdout.splitlines() if line.startswith("MISSED")]
    assert result.returncode == 0, "\n".join(missed) + result.stderr
    assert result.stdout.count("caught  ") == len(MUTATIONS[:: 3 if share else 1]) >= 30
