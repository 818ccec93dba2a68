"""The texts that a student gets: a stub for each exercise, a README, a file for pytest."""

import re
from textwrap import fill

from mha_numpy.teach.exercises.catalogue import EXERCISES
from mha_numpy.teach.exercises.exercise import Exercise

IMPORTS = {  # what a stub's names need
    "Callable": "from collections.abc import Callable",
    "np": "import numpy as np",
    "MultiHeadParams": "from mha_numpy.core import MultiHeadParams",
    "Array": "from mha_numpy.dtypes import Array",
    "Saved": "from mha_numpy.teach.saved import Saved",
}


def stub_text(exercise: Exercise) -> str:
    """Return the file that a student begins with: title, effort, commands, imports, the stub.

    Examples
    --------
    >>> from mha_numpy.teach.exercises import find_exercise
    >>> print(stub_text(find_exercise("softmax-backward"))[:43])
    \"\"\"Back through softmax.
    <BLANKLINE>
    Difficulty 3 of 5
    """
    source = exercise.stub_source
    needs = f", after {', '.join(exercise.needs)}" if exercise.needs else ""
    about = f"Difficulty {exercise.difficulty} of 5, about {exercise.minutes} minutes{needs}."
    used = [
        line for name, line in IMPORTS.items() if name == "np" or re.search(rf"\b{name}\b", source)
    ]
    imports = "\n".join(used).replace("numpy as np\nfrom", "numpy as np\n\nfrom")
    return (
        f'"""{exercise.title.removesuffix("?")}.\n\n{fill(about, 96)}\n\n'
        f"Check it:  mha-numpy check . {exercise.id}\n"
        f'A hint:    mha-numpy hint . {exercise.id}\n"""\n\n'
        f"{imports}\n\n\n{source}"
    )


def readme_text() -> str:
    """Return the README of a folder of exercises, as Markdown."""
    rows = "\n".join(
        f"| {number} | {e.id} | {e.title} | {e.difficulty} | {e.minutes} | {', '.join(e.needs)} |"
        for number, e in enumerate(EXERCISES, start=1)
    )
    hours = round(sum(exercise.minutes for exercise in EXERCISES) / 60)
    return README.format(count=len(EXERCISES), rows=rows, hours=hours)


README = """# Exercises in attention

{count} functions to write, one in each file, about {hours} hours in all. Each file says what its
function takes and returns. You need NumPy and this package, and nothing else.

    mha-numpy check .                  all of them, a line each
    mha-numpy check . softmax          one of them, stage by stage
    mha-numpy check . softmax --watch  and again whenever you save a file
    mha-numpy hint . softmax           the next of four hints
    mha-numpy exercises .              the list, with your progress
    pytest                             all of them, as tests (pip install pytest)

After the first, each hint needs a check since the one before, unless you add --force.

Each file stands alone: copy what you need from the earlier ones. Where a hint names a notebook,
`mha-numpy lab` opens it; the pages of docs/ are in the project's repository.

A check runs your function in a process of its own, on a few inputs in float64: sizes that all
differ, sizes that are equal, large numbers, rows that see nothing. It asks in this order whether
the function runs; whether type, dtype and shape are right; whether a number is NaN; whether the
inputs stay as they were; whether a second call returns the same; whether the result has what every
right answer has; whether the numbers are right; and whether numeric differentiation gives the same
gradients. If your numbers are those of a known mistake, the check names it. The files named museum
hold code with a bug, for you to find.

| | id | | difficulty | minutes | after |
|---|---|---|---|---|---|
{rows}
"""

PYTEST = '''"""Check the exercises in this folder: pytest, or pytest -k softmax for some of them."""

from pathlib import Path

import pytest

from mha_numpy.teach.exercises import exercises_in, judge_file

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("id", [exercise.id for exercise in exercises_in(FOLDER)])
def test_exercise(id):
    verdict = judge_file(FOLDER, id)
    if verdict.is_unwritten:
        pytest.skip(verdict.unwritten)
    if not verdict.passed:
        pytest.fail(f"{verdict.summary}\\n\\n{verdict}", pytrace=False)
'''
