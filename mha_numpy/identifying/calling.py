"""A call of a function in one way."""

import numpy as np

from mha_numpy.identifying.search import Seen
from mha_numpy.identifying.subject import Subject
from mha_numpy.identifying.ways import Way


def call_way(
    subject: Subject, way: Way, trouble: str = "", seed: int = 0
) -> tuple[Seen | None, str]:
    """Call a function in one way; return what was seen, or the trouble."""
    try:
        problem = way.problem(subject, seed)
        passed = way.given(problem)
    except ValueError:  # sizes that do not fit each other
        return None, trouble
    called = subject.call(passed, way.argument("result"))
    is_fine = called.arrays and np.isfinite(called.arrays[0][1]).all()
    return (Seen(way, problem, called) if is_fine else None), called.trouble or trouble
