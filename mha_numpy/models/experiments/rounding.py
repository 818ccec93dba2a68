"""Which step of attention needs the digits: each is rounded alone, then all together."""

import ast

import numpy as np

from mha_numpy.checking.error_bounds import error_bounds
from mha_numpy.checking.replay import replay
from mha_numpy.checking.rounding import FORMATS, round_to
from mha_numpy.checking.tracing import Trace, trace
from mha_numpy.checking.tracing.equations import evaluate
from mha_numpy.core import attention_backward, attention_forward
from mha_numpy.dtypes import Array
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.steps import step

SHAPE = 4, 2, 64, 32  # B, H, T, d
STEPS = ("q", "k", "v", "scores", "weights", "heads", "d_heads", "d_weights", "d_scores")
RESULTS = ("heads", "d_q", "d_k", "d_v")
NAMES, SIZES = ("float32", "tf32", "bfloat16", "float16", "e4m3", "e5m2"), (1, 4, 16)
KINDS = ("one", "bound")  # measured, and what bounds allow
ROOM = 4  # a scale leaves so much to the largest number of a format
FLOAT64 = 1e-12  # a relative error that float64 itself may make

# what a kernel does instead, which keeps lse and no weights: axes and equation of each step
AGAIN = {
    "lse": ("B H T_q 1", "np.log(np.exp(scores).sum(axis=-1, keepdims=True))"),
    "scores_again": ("B H T_q T_k", "scale * q @ k.swapaxes(-1, -2)"),
    "weights_again": ("B H T_q T_k", "np.exp(scores_again - lse)"),
    "mean": ("B H T_q 1", "(d_heads * heads).sum(axis=-1, keepdims=True)"),
    "d_scores_again": ("B H T_q T_k", "weights_again * (d_weights - mean)"),
    "d_q_again": ("B H T_q d_k", "scale * d_scores_again @ k"),
    "d_k_again": ("B H T_k d_k", "scale * d_scores_again.swapaxes(-1, -2) @ q"),
    "d_v_again": ("B H T_k d_v", "weights_again.swapaxes(-1, -2) @ d_heads"),
}
KERNEL = "again: "  # before a row of the atlas that is about that backward
ALL = "all of these"
ROWS = {  # of the atlas: which steps are rounded
    **{name: (name,) for name in STEPS},
    ALL: STEPS,
    f"{KERNEL}scores": ("scores_again",),
    **{KERNEL + name: (name,) for name in ("lse", "heads", "mean")},
}


def arm_of(name: str, size: int) -> str:
    """Return the name of an arm.

    Examples
    --------
    >>> arm_of("bfloat16", 4)
    'bfloat16, scores of 4'
    """
    return f"{name}, scores of {size}"


ARMS = {arm_of(name, size): (name, size) for name in NAMES for size in SIZES}


def traced(q: Array, k: Array, v: Array, d_out: Array) -> Trace:
    """Return a trace of forward, backward, and backward once more as a kernel computes it."""
    with trace() as t:
        _, cache = attention_forward(q, k, v)
        attention_backward(d_out, cache)
        arrays = {of.name: of.array for of in (*t.constants, *t.steps)}
        for name, (axes, equation) in AGAIN.items():
            tree = ast.parse(equation, mode="eval").body
            arrays[name] = step(name, evaluate(tree, arrays), axes, equation)
    return t


def scale_for(array: Array, name: str) -> float:
    """Return the factor that 8 bits need: a power of two that brings an array near the largest."""
    if name not in ("e4m3", "e5m2"):
        return 1.0
    return float(2.0 ** np.floor(np.log2(FORMATS[name].largest / ROOM / np.abs(array).max())))


@np.errstate(invalid="ignore", over="ignore")  # in 8 bits a weight may be beyond all numbers
def _run(arm: str, seed: int) -> Measured:
    name, size = ARMS[arm]
    q, k, v, d_out = np.random.default_rng(seed).normal(size=(4, *SHAPE))
    t = traced(size * q, k, v, d_out)
    measured: dict[str, list[float]] = {f"{kind}: {x}": [] for kind in KINDS for x in RESULTS}
    for row, steps in ROWS.items():
        scales = {step: scale_for(t[step], name) for step in steps}
        formats = dict.fromkeys(steps, name)
        found = replay(t, formats, scales=scales)
        bounds = error_bounds(t, formats, scales=scales)
        for x in RESULTS:
            of = f"{x}_again" if row.startswith(KERNEL) and x != "heads" else x
            measured[f"one: {x}"].append(_relative(found[of] - t[of], t[of]))
            measured[f"bound: {x}"].append(_relative(bounds[of], t[of]))
    at = list(ROWS).index(ALL)
    stored = {x: round_to(t[x], name, scale=scale_for(t[x], name)) - t[x] for x in RESULTS}
    return {
        **measured,
        **{f"all: {x}": measured[f"one: {x}"][at] for x in RESULTS},
        **{f"stored: {x}": _relative(stored[x], t[x]) for x in RESULTS},
    }


def _relative(off: Array, exact: Array) -> float:
    """Return the root mean square of what is off, as a share of that of the exact numbers."""
    return float(np.sqrt(np.mean(off**2) / np.mean(exact**2)))


def digits_lost(result: Result, of: str, name: str, *, kind: str = "one") -> Array:
    """Return how many decimal digits a result loses, for each row of the atlas and each size.

    Parameters
    ----------
    result : Result
        Of this experiment.
    of : {"heads", "d_q", "d_k", "d_v"}
    name : {"float32", "tf32", "bfloat16", "float16", "e4m3", "e5m2"}
    kind : {"one", "bound"}
        Measured, or what bounds allow.

    Returns
    -------
    (rows, sizes) array
        In the median over seeds. One digit means ten times the error of the exact result stored in
        that format; -inf means no error but float64's, NaN or inf that nothing is left.

    Examples
    --------
    >>> from mha_numpy.models.experiments import load_result
    >>> lost = digits_lost(load_result("rounding"), "d_k", "bfloat16")
    >>> dict(zip(SIZES, lost[list(ROWS).index("scores")].round(1).tolist()))
    {1: 0.2, 4: 0.7, 16: 1.4}
    """
    error, measured = (
        np.median([result.values(f"{each}: {of}", arm_of(name, size)) for size in SIZES], axis=1).T
        for each in (kind, "one")
    )
    stored = np.array([result.mean(f"stored: {of}", arm_of(name, size)) for size in SIZES])
    with np.errstate(divide="ignore"):
        return np.asarray(np.log10(np.where(measured < FLOAT64, 0, error) / stored))


def bounds_by_errors(result: Result) -> Array:
    """Return each bound of the atlas as a multiple of its error, where there is any."""
    found = []
    for of in RESULTS:
        for name in NAMES:
            lost, most = (digits_lost(result, of, name, kind=kind) for kind in KINDS)
            is_off = np.isfinite(lost)
            found.append(10.0 ** (most[is_off] - lost[is_off]))
    return np.concatenate(found)


def _findings(result: Result) -> list[Finding]:
    lost = {(of, name): digits_lost(result, of, name) for of in RESULTS for name in NAMES}
    at = {row: i for i, row in enumerate(ROWS)}
    narrow = lost["d_k", "bfloat16"]

    def percent(row: str, size: int, name: str = "bfloat16") -> str:
        x = 100 * result.values("one: d_k", arm_of(name, size)).mean(axis=0)[at[row]]
        return f"{x:.2g}%" if x < 10 else f"{x:.0f}%"

    later = [at[row] for row in ("v", "weights", "heads", "d_heads", "d_weights", "d_scores")]
    most_later = max(array[later].max() for array in lost.values())
    wide = np.stack([lost[of, name][: at[ALL]] for of in RESULTS for name in NAMES[:4]])
    wide = wide.reshape(len(RESULTS), 4, *wide.shape[1:])
    known = wide.min(axis=1) > -np.inf
    spread = (wide.max(axis=1) - wide.min(axis=1, where=np.isfinite(wide), initial=9))[known].max()
    again = {row: narrow[at[KERNEL + row]] for row in ("lse", "heads", "mean", "scores")}
    bounds = bounds_by_errors(result)
    everything = {name: result.mean("all: d_k", arm_of(name, 16)) for name in NAMES}
    return [
        Finding(
            f"If only the scores are rounded to bfloat16, the gradient of the keys is off by "
            f"{percent('scores', 1)} for scores with a standard deviation of 1, and by "
            f"{percent('scores', 16)} for 16, which is {narrow[at['scores'], 2]:.1f} digits lost. "
            "A weight is e to the power of a score, so an absolute error of the score becomes a "
            "relative one of the weight, and large scores are rounded more coarsely. Queries and "
            f"keys count alike ({percent('k', 16)} for keys), because the scores inherit their "
            "relative errors: scores in float32 help only as far as queries and keys are accurate.",
            narrow[at["scores"], 2] > narrow[at["scores"], 0] + 0.9
            and narrow[at["k"], 2] > narrow[at["k"], 0] + 0.6,
            None,
        ),
        Finding(
            f"Rounding values, weights, heads, upstream gradients, d_weights or d_scores costs at "
            f"most {most_later:.1f} digits of any result, in any format and at any of these sizes.",
            most_later < 0.6,
            None,
        ),
        Finding(
            "How many digits a step costs depends on the step and on the size of the scores, and "
            f"hardly on the format: between float32, tf32, bfloat16 and float16 the numbers of the "
            f"first nine rows differ by at most {spread:.2f}. So one format shows what happens in "
            "another; it only begins with more digits or fewer.",
            spread < 0.2,
            None,
        ),
        Finding(
            "A kernel keeps no weights. It computes scores again, and from them and lse the "
            "weights. That costs nothing if backward rounds its scores as forward did, because "
            "then lse has moved with them. If only backward rounds its scores to bfloat16, that "
            f"costs {again['scores'][2]:.1f} digits for scores of 16, and rounding lse costs "
            f"{again['lse'][2]:.1f}: the softmax sum no longer cancels what all scores of a row "
            f"have in common. Reading the heads in bfloat16 for a row's mean costs "
            f"{again['heads'][2]:.1f}, and a rounded mean {again['mean'][2]:.1f}. So lse and mean "
            "are worth four bytes per row.",
            again["scores"][2] > narrow[at["scores"], 2] + 0.1
            and again["lse"][2] > narrow[at["scores"], 2] + 0.1
            and min(again["heads"][2], again["mean"][2]) > 0.4,
            None,
        ),
        Finding(
            f"In the median over the atlas a computed bound is {np.median(bounds):.0f} times the "
            f"error, and {np.mean(bounds < 50):.0%} of them are within 50 times. They say least if "
            "queries or keys have 8 bits, because then each score may be off by more than 1. "
            f"{np.isinf(bounds).sum()} of {len(bounds)} cells have no bound: if all steps have 8 "
            "bits, a number could leave their range.",
            bool(np.median(bounds) < 50 and bounds.min() >= 1),
            None,
        ),
        Finding(
            f"All steps together, with scores of 16: the gradient of the keys is off by "
            f"{everything['float16']:.1%} in float16, {everything['bfloat16']:.0%} in bfloat16, "
            f"{everything['e4m3']:.0%} in e4m3 and {everything['e5m2']:.0%} in e5m2.",
            everything["tf32"] < 2 * everything["float16"] < everything["bfloat16"]
            and everything["bfloat16"] < everything["e4m3"] < everything["e5m2"],
        ),
    ]  # fmt: skip


ROUNDING = Experiment(
    "rounding",
    "Which step needs the digits?",
    "In half precision softmax has to be in float32; products may be narrow.",
    "Micikevicius et al. 2018, *Mixed precision training*, section 3.3; Dao-AILab/flash-attention, "
    "issue 118",
    "True of the scores, the more so the larger they are, and of lse where weights are computed "
    "again. What comes after softmax costs little.",
    "Random queries, keys, values and upstream gradients: four sequences of 64 tokens, two heads "
    "of width 32. The queries are multiplied by 1, 4 or 16, and so are the scores. Forward and "
    "backward are computed once in float64, and then again with the result of one step rounded, or "
    "of all nine. A second backward computes the weights again, as kernels do. In 8 bits each "
    "array has its own scale. Sums keep the digits of float64. An error is a root mean square, "
    "relative to that of the exact numbers. A result has lost one digit if its error is ten times "
    "that of the exact result, stored in the same format.",
    tuple(ARMS),
    {
        **{f"all: {x}": f"error of {x} if all nine steps are rounded" for x in RESULTS},
        **{f"stored: {x}": f"error of {x} if only the exact {x} is rounded" for x in RESULTS},
        **{f"one: {x}": f"error of {x} in each row of the atlas" for x in RESULTS},
        **{f"bound: {x}": f"what bounds allow {x} to be off by, in each row" for x in RESULTS},
    },
    _run,
    (
        Chart(
            "Error of d_k if all nine steps are rounded", "all: d_k", SIZES,
            {name: [arm_of(name, size) for size in SIZES] for name in NAMES},
            "standard deviation of the scores", "relative error", log_x=True, log_y=True,
        ),
    ),
    _findings,
)  # fmt: skip
