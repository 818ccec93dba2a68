"""Schedules: the factor of each step's learning rate."""

import math
from collections.abc import Callable

from mha_numpy.checks import check_count, check_number
from mha_numpy.errors import ConfigError

Schedule = Callable[[int], float]  # from the number of a step, 1 for the first, to a factor


def constant(step: int) -> float:
    """Return 1 for every step.

    Examples
    --------
    >>> constant(7)
    1.0
    """
    return 1.0


def warm_up_cosine(steps: int, warm_up: int = 0, *, last: float = 0.0) -> Schedule:
    """Return a schedule that rises linearly from 0 to 1, then falls as a cosine to `last`.

    ``t / warm_up`` at first; then ``last + (1 - last) (1 + cos(pi r)) / 2``, where r goes from 0
    after the warm-up to 1 in step `steps`, and stays there.

    Parameters
    ----------
    steps : int
        Number of steps of the whole training.
    warm_up : int
        Number of steps in which it rises; 0 <= warm_up < steps. With 0.3 of the steps this is a
        one-cycle schedule.
    last : float
        Factor of the last step, at least 0.

    Notes
    -----
    Adam's first steps rest on few gradients, so small steps do less harm. Sources: Goyal et al.
    2017, section 2.2; Loshchilov and Hutter 2017, *SGDR*, equation 5; one cycle: Smith 2018.

    Examples
    --------
    >>> schedule = warm_up_cosine(steps=10, warm_up=4)
    >>> [round(schedule(step), 2) for step in (1, 2, 4, 7, 10)]
    [0.25, 0.5, 1.0, 0.5, 0.0]
    """
    steps, warm_up = check_count("steps", steps), check_count("warm_up", warm_up, least=0)
    last = check_number("last", last, least=0)
    if warm_up >= steps:
        raise ConfigError(f"warm_up: expected fewer than steps={steps}; got {warm_up}")

    def schedule(step: int) -> float:
        step = check_count("step", step, least=0)
        if step < warm_up:
            return step / warm_up
        share = min((step - warm_up) / (steps - warm_up), 1.0)
        return last + (1 - last) * (1 + math.cos(math.pi * share)) / 2

    return schedule
