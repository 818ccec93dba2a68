"""Wide sweeps: a few of their problems always, more in `.ci/run`, all of them before a release."""

import pytest


def sweep(problems, always, every=1):
    """Return the problems as parameters: the first `always`, then each `every`-th in `.ci/run`."""
    return [
        problem
        if number < always
        else pytest.param(
            problem, marks=pytest.mark.release if (number - always) % every else pytest.mark.slow
        )
        for number, problem in enumerate(problems)
    ]


def every(nth, problems):
    """Return each n-th problem, a tuple of arguments, always, and the others in `.ci/run`."""
    return [
        pytest.param(*problem, marks=pytest.mark.slow if number % nth else ())
        for number, problem in enumerate(problems)
    ]
