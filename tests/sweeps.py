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


def every(nth, problems, nth_in_ci=1):
    """Return problems, each a tuple of arguments: some always, more in `.ci/run`, as `sweep`."""
    marks = [
        () if number % nth == 0 else "slow" if number % nth_in_ci == 0 else "release"
        for number in range(len(problems))
    ]
    return [
        pytest.param(*problem, marks=getattr(pytest.mark, mark) if mark else ())
        for problem, mark in zip(problems, marks, strict=True)
    ]
