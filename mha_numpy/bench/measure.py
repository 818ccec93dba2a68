"""The jobs of a worker process: they come as lines of JSON on stdin, replies go to stdout.

`worker.Worker` starts ``python -m mha_numpy.bench.measure`` with the threads in its environment,
which the libraries read when they are imported.
"""

import gc
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy.bench.contestants import CONTESTANTS, our_attention
from mha_numpy.bench.problems import Case, Drawn, Problem, Ready, parse
from mha_numpy.bench.timing import take_turn, timed
from mha_numpy.dtypes import Array
from mha_numpy.errors import BackendError

CLEAR_REFS = Path("/proc/self/clear_refs")
FORWARD_BACKWARD = Case(backward=True)
CAUSAL = FORWARD_BACKWARD._replace(is_causal=True)


@lru_cache(maxsize=1)
def ready(who: str, shape: str, case: Case, threads: int) -> Ready:
    """Make a problem ready for a contestant; the last one stays ready."""
    problem = parse(shape)
    return CONTESTANTS[who].adapters[type(problem)](problem.draw(case), case, threads)


def results(path: str, who: str, shape: str, case: list[Any], threads: int) -> None:
    """Write a contestant's results to an .npz file."""
    call, read = ready(who, shape, Case(*case), threads)
    np.savez(path, *read(call()))


def turn(who: str, shape: str, case: list[Any], threads: int) -> float:
    """Return the seconds of a call."""
    return take_turn(ready(who, shape, Case(*case), threads).call)


def peak(threads: int) -> float | None:
    """Return how many operations a second the processor reaches; None if numba cannot run."""
    try:
        from mha_numpy.bench.peak import peak_rate
    except (ImportError, BackendError):
        return None
    return peak_rate(threads)


def first_call(who: str, shape: str, case: list[Any], threads: int) -> float:
    """Return the seconds of the first call, libraries loaded on the way."""
    return timed(ready(who, shape, Case(*case), threads).call)


def memory(who: str, shape: str, threads: int) -> int:
    """Return the peak memory of causal forward and backward in bytes, results included."""
    ready(who, "1,2,64,64", CAUSAL, threads).call()  # compiles, starts threads
    call = ready(who, shape, CAUSAL, threads).call
    gc.collect()
    CLEAR_REFS.write_text("5")  # the peak starts again
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def errors(ours: str, other: str, count: int, threads: int) -> list[float]:
    """Return, for out, d_q, d_k and d_v, the median of our float32 error over the other's.

    Both errors are the largest of the array, against our reference in float64.
    """
    rng = np.random.default_rng(0)
    ratios = []
    for seed in range(count):
        case = (FORWARD_BACKWARD, CAUSAL, FORWARD_BACKWARD._replace(mask="full"))[seed % 3]
        H_kv, G, T_q, T_k = (int(n) for n in rng.integers((1, 1, 16, 16), (4, 4, 400, 400)))
        d = int(rng.choice([16, 32, 64, 80, 128]))
        drawn = Problem(1, G * H_kv, H_kv, T_q, T_k, d).draw(case, seed=seed)
        q, k, v, d_out = (x.astype(float) for x in drawn[:4])
        wide = Drawn(q, k, v, d_out, drawn.mask)
        truth = our_attention("numpy", wide, case, threads).call()
        found = (CONTESTANTS[who].adapters[Problem](drawn, case, threads) for who in (ours, other))
        ours_off, other_off = (_errors(contestant, truth) for contestant in found)
        ratios.append(ours_off / other_off)
    return [float(ratio) for ratio in np.median(ratios, axis=0)]


def _errors(contestant: Ready, truth: list[Array]) -> Array:
    found = contestant.read(contestant.call())
    return np.array([np.abs(x - y).max() for x, y in zip(found, truth, strict=True)])


def _status(field: str) -> int:
    """Return a size in bytes from the operating system's account of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"no {field} in /proc/self/status")


MEASURES: dict[str, Callable[..., Any]] = {
    "results": results, "turn": turn, "peak": peak, "first_call": first_call, "memory": memory,
    "errors": errors,
}  # fmt: skip

if __name__ == "__main__":
    replies = sys.stdout
    with redirect_stdout(sys.stderr):  # where a library may print
        for line in sys.stdin:
            job = json.loads(line)
            reply = MEASURES[job.pop("measure")](**job)
            print(json.dumps(reply), file=replies, flush=True)
