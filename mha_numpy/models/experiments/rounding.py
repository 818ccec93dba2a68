"""Which step of attention needs the digits: each is rounded alone, then all together."""

import ast

import numpy as np

from mha_numpy.checking.error_bounds import error_bounds
from mha_numpy.checking.replay import replay
from mha_numpy.checking.rounding import FORMATS, round_to
from mha_numpy.checking.tracing import Trace, trace
from mha_numpy.checking.tracing.equations import evaluate
from mha_numpy.checks import check_choice, check_type
from mha_numpy.core import attention_backward, attention_forward
from mha_numpy.dtypes import Array
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.steps import step

SHAPE = 4, 2, 64, 32  # B, H, T, d
RESULTS = ("heads", "d_q", "d_k", "d_v")
WIDER = ("float32", "tf32", "bfloat16", "float16")  # than 8 bits
NAMES, SIZES = (*WIDER, "e4m3", "e5m2"), (1, 4, 16)
KINDS = ("error", "bound")
ROOM = 4  # a scale leaves so much to the largest number of a format
FLOAT64 = 1e-12  # a relative error that float64 itself may make

# what a kernel does instead, which keeps lse and no weights: axes and equation of each step
AGAIN = {
    "lse": ("B H T_q 1", "np.log(np.exp(scores).sum(axis=-1, keepdims=True))"),
    "scores_again": ("B H T_q T_k", "scale * q @ k.swapaxes(-1, -2)"),
    "weights_again": ("B H T_q T_k", "np.exp(scores_again - lse)"),
    "row_mean": ("B H T_q 1", "(d_heads * heads).sum(axis=-1, keepdims=True)"),
    "d_scores_again": ("B H T_q T_k", "weights_again * (d_weights - row_mean)"),
    "d_q_again": ("B H T_q d_k", "scale * d_scores_again @ k"),
    "d_k_again": ("B H T_k d_k", "scale * d_scores_again.swapaxes(-1, -2) @ q"),
    "d_v_again": ("B H T_k d_v", "weights_again.swapaxes(-1, -2) @ d_heads"),
}
STEPS = ("q", "k", "v", "scores", "weights", "heads", "d_heads", "d_weights", "d_scores")
ALL, KERNEL = "all nine", "kernel: "
ROWS = {  # of the atlas: which steps are rounded, first with the plain backward
    **{name: (name,) for name in STEPS},
    ALL: STEPS,
    f"{KERNEL}both scores": ("scores", "scores_again"),
    f"{KERNEL}backward scores": ("scores_again",),
    f"{KERNEL}lse": ("lse",),
    f"{KERNEL}heads, for mean": ("heads",),
    f"{KERNEL}row mean": ("row_mean",),
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
    largest = np.abs(array).max(initial=0)
    if name in WIDER or not 0 < largest < np.inf:
        return 1.0
    return float(2.0 ** np.floor(np.log2(FORMATS[name].largest / ROOM / largest)))


@np.errstate(invalid="ignore", over="ignore")  # in 8 bits a weight may be beyond all numbers
def measure(
    name: str, size: float, seed: int, shape: tuple[int, int, int, int] = SHAPE
) -> Measured:
    """Round each row's steps to a format, and measure how far off the results are.

    Parameters
    ----------
    name : str
        The format.
    size : float
        The queries are multiplied by it.
    seed : int
        Of random queries, keys, values and upstream gradients.
    shape : (B, H, T, d)

    Returns
    -------
    dict
        Of each result x, "error: x" and "bound: x", a number for each row; "all: x", "stored: x".
        "used" is the largest error of any number, as a share of its bound.
    """
    q, k, v, d_out = np.random.default_rng(seed).normal(size=(4, *shape))
    t = traced(size * q, k, v, d_out)
    rows: dict[str, list[float]] = {f"{kind}: {x}": [] for kind in KINDS for x in RESULTS}
    used = 0.0
    for row, rounded in ROWS.items():
        formats = dict.fromkeys(rounded, name)
        scales = {step: scale_for(t[step], name) for step in rounded}
        found = replay(t, formats, scales=scales)
        bounds = error_bounds(t, formats, scales=scales)
        for x in RESULTS:
            of = f"{x}_again" if row.startswith(KERNEL) and x != "heads" else x
            off = found[of] - t[of]
            rows[f"error: {x}"].append(_relative(off, t[of]))
            rows[f"bound: {x}"].append(_relative(bounds[of], t[of]))
            used = max(used, float(np.nanmax(np.abs(off) / bounds[of])))
    at = list(ROWS).index(ALL)
    stored = {x: round_to(t[x], name, scale=scale_for(t[x], name)) - t[x] for x in RESULTS}
    return {
        **rows,
        **{f"all: {x}": rows[f"error: {x}"][at] for x in RESULTS},
        **{f"stored: {x}": _relative(stored[x], t[x]) for x in RESULTS},
        "used": used,
    }


def _run(arm: str, seed: int) -> Measured:
    return measure(*ARMS[arm], seed)


def _relative(off: Array, exact: Array) -> float:
    """Return the root mean square of what is off, as a share of that of the exact numbers."""
    return float(np.sqrt(np.mean(off**2) / np.mean(exact**2)))


def digits_lost(result: Result, of: str, name: str, *, kind: str = "error") -> dict[str, Array]:
    """Return how many decimal digits a result loses, for each row of the atlas.

    Parameters
    ----------
    result : Result
        Of this experiment.
    of : {"heads", "d_q", "d_k", "d_v"}
    name : {"float32", "tf32", "bfloat16", "float16", "e4m3", "e5m2"}
    kind : {"error", "bound"}
        Measured, or what bounds allow.

    Returns
    -------
    dict of (sizes,) arrays
        In the median over seeds. One digit means ten times the error of the exact result stored in
        that format; -inf means no error but float64's, NaN or inf that nothing is left.

    Examples
    --------
    >>> from mha_numpy.models.experiments import load_result
    >>> lost = digits_lost(load_result("rounding"), "d_k", "bfloat16")
    >>> dict(zip(SIZES, lost["scores"].round(1).tolist()))
    {1: 0.2, 4: 0.7, 16: 1.3}
    """
    check_type("result", result, Result, "run_experiment")
    check_choice("of", of, RESULTS)
    check_choice("name", name, NAMES)
    check_choice("kind", kind, KINDS)
    wanted, error, stored = (
        np.array([_median(result, f"{each}: {of}", name, size) for size in SIZES])
        for each in (kind, "error", "stored")
    )
    with np.errstate(divide="ignore"):
        lost = np.log10(np.where(error < FLOAT64, 0, wanted) / stored[:, None])
    return dict(zip(ROWS, lost.T, strict=True))


def _median(result: Result, measured: str, name: str, size: int) -> Array:
    return np.asarray(np.median(result.values(measured, arm_of(name, size)), axis=0))


def bounds_by_errors(result: Result) -> Array:
    """Return each bound of the atlas as a multiple of its error, where there is any."""
    found = []
    for of in RESULTS:
        for name in NAMES:
            lost, most = (digits_lost(result, of, name, kind=kind) for kind in KINDS)
            for row, digits in lost.items():
                is_off = np.isfinite(digits)
                found.append(10.0 ** (most[row][is_off] - digits[is_off]))
    return np.concatenate(found)


def spread_of_formats(result: Result) -> float:
    """Return by how many digits a step's cost differs at most between formats of 16 bits or more.

    The steps are those of the plain backward.
    """
    most = 0.0
    for of in RESULTS:
        by_format = [digits_lost(result, of, name) for name in WIDER]
        for row in STEPS:
            digits = np.array([lost[row] for lost in by_format])
            if np.isfinite(digits).all():
                most = max(most, float(np.ptp(digits, axis=0).max()))
    return most


def _findings(result: Result) -> list[Finding]:
    lost = {(of, name): digits_lost(result, of, name) for of in RESULTS for name in NAMES}
    of_keys = lost["d_k", "bfloat16"]
    large = {row: float(digits[SIZES.index(16)]) for row, digits in of_keys.items()}
    kernel = {row.removeprefix(KERNEL): large[row] for row in ROWS if row.startswith(KERNEL)}
    later = ("v", "weights", "heads", "d_heads", "d_weights", "d_scores")
    most_later = max(digits[row].max() for digits in lost.values() for row in later)
    of_8 = _median(result, "error: d_v", "e5m2", 16)[list(ROWS).index(f"{KERNEL}lse")]
    spread, bounds = spread_of_formats(result), bounds_by_errors(result)
    used = max(result.values("used", arm).max() for arm in ARMS)
    everything = {name: result.mean("all: d_k", arm_of(name, 16)) for name in NAMES}

    def percent(row: str, size: int) -> str:
        errors = result.values("error: d_k", arm_of("bfloat16", size)).mean(axis=0)
        return f"{100 * errors[list(ROWS).index(row)]:.2g}%"

    return [
        Finding(
            f"If only the scores are rounded to bfloat16, the gradient of the keys is off by "
            f"{percent('scores', 1)} for scores with a standard deviation of 1, and by "
            f"{percent('scores', 16)} for 16, which is {large['scores']:.1f} digits lost. A weight "
            "is e to the power of a score, so an absolute error of the score becomes a relative "
            "one of the weight, and large scores are rounded more coarsely.",
            large["scores"] > of_keys["scores"][0] + 0.9,
            None,
        ),
        Finding(
            "A softmax in float32 cannot repair queries and keys in 16 bits. With scores of 16, "
            f"rounding only the queries makes an error of {percent('q', 16)}, and only the keys "
            f"{percent('k', 16)}: about half as much as rounding the scores, because it is spread "
            "over all scores of a row and does not fall on the largest.",
            all(0.1 < large["scores"] - large[row] < 0.5 for row in "qk"),
            None,
        ),
        Finding(
            "Rounding values, weights, heads, upstream gradients, d_weights or d_scores costs at "
            f"most {most_later:.1f} digits of any result here. It costs more if the values have a "
            "large part in common, because softmax's backward pass then subtracts numbers that are "
            "nearly equal.",
            most_later < 0.6,
            None,
        ),
        Finding(
            "How many digits a step costs depends on the step and on the size of the scores, and "
            "hardly on the format: between float32, tf32, bfloat16 and float16 the first nine "
            f"rows differ by at most {spread:.2f}. So one of these formats shows what happens in "
            "another, which only begins with more digits or fewer. In 8 bits an error of a score "
            "can exceed 1, and its exponential grows out of proportion: lse in e5m2 makes the "
            f"error of d_v {of_8:.0f} times as large as d_v.",
            spread < 0.2 and of_8 > 2,
            None,
        ),
        Finding(
            "A kernel keeps no weights. Its backward computes the scores again, and the weights "
            "from them and lse, the log of a row's sum of exponentials. If both passes round their "
            f"scores, that costs as much as with weights that are kept "
            f"({kernel['both scores']:.1f} digits for scores of 16), because lse moves with the "
            f"scores. If only backward rounds them, it costs {kernel['backward scores']:.1f}, and "
            f"rounding lse costs {kernel['lse']:.1f}: lse no longer cancels what all scores of a "
            "row have in common. So keep lse in float32.",
            abs(kernel["both scores"] - large["scores"]) < 0.05
            and min(kernel["backward scores"], kernel["lse"]) > large["scores"] + 0.1,
            None,
        ),
        Finding(
            "Softmax's backward subtracts from d_weights their mean under the weights, which a "
            "kernel computes as the sum of d_heads times heads. From bfloat16 heads, that costs "
            f"{kernel['heads, for mean']:.1f} digits, and rounding the mean itself "
            f"{kernel['row mean']:.1f}. So a mean in float32 helps only if its heads are not "
            "rounded yet.",
            min(kernel["heads, for mean"], kernel["row mean"]) > 0.4
            and abs(kernel["heads, for mean"] - kernel["row mean"]) < 0.1,
            None,
        ),
        Finding(
            f"No error of any number exceeds its bound; the closest reaches {used:.1%}. In the "
            f"median over the atlas a bound is {np.median(bounds):.0f} times the error, as root "
            f"mean squares, and {np.mean(bounds < 50):.0%} of them are within 50 times. Bounds are "
            "loosest where queries or keys have 8 bits, because then each score may be off by more "
            f"than 1. Of the {len(bounds)} cells with an error, {np.isinf(bounds).sum()} have no "
            "bound, because a number could leave the range of 8 bits.",
            bool(np.median(bounds) < 50 and used <= 1),
            None,
        ),
        Finding(
            f"All steps together, with scores of 16: the gradient of the keys is off by "
            f"{everything['float16']:.1%} in float16, {everything['bfloat16']:.1%} in bfloat16, "
            f"{everything['e4m3']:.0%} in e4m3 and {everything['e5m2']:.0%} in e5m2.",
            everything["tf32"] < 2 * everything["float16"] < everything["bfloat16"]
            and everything["bfloat16"] < everything["e4m3"] < everything["e5m2"],
        ),
    ]  # fmt: skip


ROUNDING = Experiment(
    "rounding",
    "An atlas of rounded steps",
    "Softmax has to be computed in float32; queries, keys and values may have 16 bits.",
    "Dao-AILab/flash-attention, issue 118; huggingface/diffusers, issue 3483; Micikevicius et al. "
    "2018, *Mixed precision training*, section 3.3, about sums",
    "Half true. Rounding the scores costs most, the more so the larger they are. But rounding "
    "queries or keys costs about half as much with scores of 16, and nearly as much with scores of "
    "1. What comes after the softmax costs little, apart from lse and the row's mean in the "
    "backward of a kernel.",
    "Random queries, keys, values and upstream gradients: four sequences of 64 tokens, two heads "
    "of width 32. The queries are multiplied by 1, 4 or 16, and so are the scores. Forward and "
    "backward are computed once in float64, and then again with the result of one step rounded, or "
    "of all nine. A second backward computes the weights again, as kernels do. In 8 bits each "
    "array has its own scale. Sums within a step keep the digits of float64, so those of the "
    "softmax are not tried here. An error is a root mean square, relative to that of the exact "
    "numbers. A result has lost one decimal digit if its error is ten times that of the exact "
    "result, stored in the same format.",
    tuple(ARMS),
    {
        **{f"all: {x}": f"error of {x} if all nine steps are rounded" for x in RESULTS},
        **{f"stored: {x}": f"error of {x} if only the exact {x} is rounded" for x in RESULTS},
        **{f"error: {x}": f"error of {x} in each row of the atlas" for x in RESULTS},
        **{f"bound: {x}": f"what bounds allow {x} to be off by, in each row" for x in RESULTS},
        "used": "the largest error of any number, as a share of its bound",
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
