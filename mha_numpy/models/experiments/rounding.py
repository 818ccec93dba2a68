"""Which step of attention needs the digits: each is rounded alone, then all together."""

import numpy as np

from mha_numpy.checking.error_bounds import error_bounds
from mha_numpy.checking.replay import replay
from mha_numpy.checking.tracing import trace
from mha_numpy.core import attention_backward, attention_forward
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result

SHAPE = 4, 2, 64, 32  # B, H, T, d
STEPS = ("q", "k", "v", "scores", "weights", "heads", "d_heads", "d_weights", "d_scores")
RESULTS = ("heads", "d_q", "d_k", "d_v")
MOST = 1000.0  # times the error: what a bound may be and still say something
FORMATS, SIZES = ("tf32", "bfloat16", "float16", "e5m2", "e4m3"), (1, 4, 16)


def arm_of(name: str, size: int) -> str:
    """Return the name of an arm.

    Examples
    --------
    >>> arm_of("bfloat16", 4)
    'bfloat16, scores of 4'
    """
    return f"{name}, scores of {size}"


ARMS = {arm_of(name, size): (name, size) for name in FORMATS for size in SIZES}


def _run(arm: str, seed: int) -> Measured:
    name, size = ARMS[arm]
    rng = np.random.default_rng(seed)
    q, k, v, d_out = rng.normal(size=(4, *SHAPE))
    with trace() as t:
        _, cache = attention_forward(size * q, k, v)
        attention_backward(d_out, cache)

    def errors(*steps: str) -> dict[str, float]:
        found = replay(t, dict.fromkeys(steps, name))
        return {x: _relative(found[x] - t[x], t[x]) for x in RESULTS}

    alone, together = [errors(step) for step in STEPS], errors(*STEPS)
    bounds = error_bounds(t, dict.fromkeys(STEPS, name))
    measured: dict[str, float | list[float]] = {f"all: {x}": together[x] for x in RESULTS}
    measured |= {f"one: {x}": [each[x] for each in alone] for x in RESULTS}
    found = replay(t, dict.fromkeys(STEPS, name))
    ratios = [bounds[x].max() / np.abs(found[x] - t[x]).max() for x in RESULTS]
    # a bound beyond all numbers of a format says nothing
    return {**measured, "bound / error": float(min(np.median(ratios), MOST))}


def _relative(off: np.ndarray, exact: np.ndarray) -> float:
    """Return the root mean square of what is off, as a share of that of the exact numbers."""
    return float(np.sqrt(np.mean(off**2) / np.mean(exact**2)))


def _findings(result: Result) -> list[Finding]:
    def alone(output: str, step: str, name: str, size: int) -> float:
        by_step = result.values(f"one: {output}", arm_of(name, size)).mean(axis=0)
        return float(by_step[STEPS.index(step)])

    def percent(x: float) -> str:
        return f"{x:.2g}%" if (x := 100 * x) < 10 else f"{x:.0f}%"

    small, large = (
        [alone("d_k", step, "bfloat16", size) for step in ("scores", "weights")] for size in (1, 16)
    )
    others = [
        alone("d_k", step, "bfloat16", size)
        for step in ("v", "weights", "d_heads", "d_scores")
        for size in SIZES
    ]
    narrow = {name: result.mean("all: d_k", arm_of(name, 16)) for name in FORMATS}
    bounds = [
        result.mean("bound / error", arm_of(name, size))
        for name in ("tf32", "float16", "bfloat16")
        for size in SIZES
    ]
    return [
        Finding(
            f"If only the scores are rounded to bfloat16, the gradient of the keys is off by "
            f"{percent(small[0])} for scores with a standard deviation of 1, and by "
            f"{percent(large[0])} for 16. A weight is e to the power of a score, so an absolute "
            "error of the score becomes a relative one of the weight, and large scores are rounded "
            "more coarsely.",
            large[0] > 8 * small[0],
        ),
        Finding(
            f"Rounding values, weights, upstream gradients or d_scores costs the same few digits "
            f"at any size: {percent(min(others))} to {percent(max(others))} of the gradient of the "
            "keys in bfloat16.",
            max(others) < 4 * min(others) and max(others) < large[0],
        ),
        Finding(
            "Queries and keys count like scores, because the scores inherit their relative errors: "
            f"with scores of 16, keys in bfloat16 cost "
            f"{percent(alone('d_k', 'k', 'bfloat16', 16))} of the gradient of the keys. So scores "
            "in float32 help only as far as queries and keys are accurate.",
            alone("d_k", "k", "bfloat16", 16) > 4 * alone("d_k", "k", "bfloat16", 1),
        ),
        Finding(
            f"All steps together, with scores of 16: the gradient of the keys is off by "
            f"{percent(narrow['float16'])} in float16, {percent(narrow['bfloat16'])} in bfloat16, "
            f"{percent(narrow['e4m3'])} in e4m3 and {percent(narrow['e5m2'])} in e5m2.",
            narrow["tf32"] < 2 * narrow["float16"] < narrow["bfloat16"] < narrow["e4m3"]
            and narrow["e4m3"] < narrow["e5m2"],
            1,
        ),
        Finding(
            f"The largest computed bound of an array is {min(bounds):.0f} to {max(bounds):.0f} "
            "times its largest error, in the median over the four, in tf32, float16 and bfloat16. "
            "In 8 bits bounds say less.",
            max(bounds) < 50 and min(bounds) > 1,
            1,
        ),
    ]  # fmt: skip


ROUNDING = Experiment(
    "rounding",
    "Which step needs the digits?",
    "In half precision softmax has to be in float32; products may be narrow.",
    "Micikevicius et al. 2018, *Mixed precision training*, section 3.3; Dao-AILab/flash-attention, "
    "issue 118",
    "True of the scores, the more so the larger they are. What comes after softmax costs little.",
    "Random queries, keys, values and upstream gradients, as many heads as sequences, 64 tokens of "
    "width 32. The queries are multiplied by 1, 4 or 16, and so are the scores. Forward and "
    "backward are computed once in float64, and then again with the result of one step rounded, or "
    "of all nine. Sums keep the digits of float64. An error is a root mean square, relative to "
    "that of the exact numbers.",
    tuple(ARMS),
    {
        **{f"all: {x}": f"error of {x} if all steps are rounded" for x in RESULTS},
        **{f"one: {x}": f"error of {x} if one is: {', '.join(STEPS)}" for x in RESULTS},
        "bound / error": "the largest of an array, all steps rounded; median of the four results",
    },
    _run,
    (
        Chart(
            "Error of d_k if one step is rounded to bfloat16", "one: d_k",
            range(1, len(STEPS) + 1),
            {f"scores of {size}": arm_of("bfloat16", size) for size in SIZES},
            "step: q, k, v, scores, weights, heads, d_heads, d_weights, d_scores",
            "relative error", log_y=True,
        ),
        Chart(
            "Error of d_k if all steps are rounded", "all: d_k", SIZES,
            {name: [arm_of(name, size) for size in SIZES] for name in FORMATS},
            "standard deviation of the scores", "relative error", log_x=True, log_y=True,
            point="All steps together",
        ),
    ),
    _findings,
)  # fmt: skip
