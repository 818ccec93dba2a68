"""judge_memory: whether attention in blocks really holds no more than blocks."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mha_numpy.models.cost.report import in_bytes
from mha_numpy.teach.conventions import conventions_of, give_inputs
from mha_numpy.teach.exercises.child.calls import measured
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.sandbox import Run, run_calls
from mha_numpy.teach.exercises.stages import Stage

FRUGAL = "online_attention"  # the piece that is asked
ADVICE = "keep the scores of one block of keys alone"
T_Q, T_K, WIDTH, BLOCK = 32, 2048, 4, 64


def memory_inputs() -> list[dict[str, Any]]:
    """Return a few keys, as what is loaded at first does not count, and then many."""
    rng = np.random.default_rng(0)
    shapes = {"q": (T_Q, WIDTH), "k": (T_K, WIDTH), "v": (T_K, WIDTH)}
    many: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    few = {name: array[:BLOCK] for name, array in many.items()}
    conventions = conventions_of(FRUGAL)
    return [give_inputs(FRUGAL, conventions, {**some, "block": BLOCK}) for some in (few, many)]


def judge_memory(get_function: Callable[[], Callable[..., Any]], limits: Limits) -> Stage:
    """Run a function on many keys, and compare its largest need of memory with all scores."""
    return memory_stage(run_calls(lambda: measured(get_function()), memory_inputs(), limits))


def memory_stage(run: Run) -> Stage:
    """Say what came of the calls, each of which returned the most bytes that it held."""
    errors = [run.ended, *(call.error for call in run.calls)]
    if any(errors):
        return Stage("memory", False, next(filter(None, errors)))
    answer, all_scores = run.calls[-1].answer, 8 * T_Q * T_K
    if not isinstance(answer, int):
        return Stage("memory", False, "cannot be told")
    found = (
        f"it held {in_bytes(answer)} at most; the limit is {in_bytes(all_scores)}, which all "
        f"scores of {T_K} keys would take"
    )
    passed = answer < all_scores
    return Stage("memory", passed, found if passed else f"{found}: {ADVICE}")
