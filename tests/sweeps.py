"""Wide sweeps: a few of their problems always, all of them where there is time."""

import pytest


def sweep(problems, always):
    """Return the problems as parameters; those after the first `always` are marked slow."""
    return [
        problem if number < always else pytest.param(problem, marks=pytest.mark.slow)
        for number, problem in enumerate(problems)
    ]
