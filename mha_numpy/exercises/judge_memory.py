"""judge_memory: whether attention in blocks really holds no more than blocks."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from mha_numpy.cost.report import in_bytes
from mha_numpy.exercises.runner import Limits
from mha_numpy.exercises.sandbox import run_calls
from mha_numpy.exercises.stages import Stage

FRUGAL = "online_attention"  # the piece that is asked
T_Q, T_K, WIDTH, BLOCK = 32, 2048, 4, 64


def judge_memory(get_function: Callable[[], Callable[..., Any]], limits: Limits) -> Stage:
    """Run a function on many keys, and compare its largest need of memory with all scores."""
    rng = np.random.default_rng(0)
    shapes = {"q": (T_Q, WIDTH), "k": (T_K, WIDTH), "v": (T_K, WIDTH)}
    given: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    run = run_calls(lambda: _measured(get_function()), [{**given, "block": BLOCK}], limits)
    if run.ended or run.calls[0].error:
        return Stage("memory", False, run.ended or run.calls[0].error)
    peak, all_scores = int(run.calls[0].answer), 8 * T_Q * T_K
    found = f"{in_bytes(peak)} at most for {T_K} keys; all scores would take {in_bytes(all_scores)}"
    return Stage("memory", peak < all_scores, found)


def _measured(function: Callable[..., Any]) -> Callable[..., int]:
    """Return a function that runs another, and returns the most bytes that it held."""

    def measured(q: Any, k: Any, v: Any, block: int) -> int:
        few = slice(0, block)
        function(q[few], k[few], v[few], block)  # what is loaded at first does not count
        tracemalloc.start()
        try:
            function(q, k, v, block)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return measured
