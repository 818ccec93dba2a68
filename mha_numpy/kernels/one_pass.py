"""Activations, norms, sums, loss and Adam's step: each number is read and written once.

NumPy goes through memory once for every operation. Here each row passes once, and everything is
computed while it is in the cache. The loops are written for single numbers, and LLVM makes them
work on whole registers. Names and equations are those of `mha_numpy.layers`.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import from_dtype, types

from mha_numpy.kernels.compile import inner, kernel
from mha_numpy.kernels.exponential import exp, tanh
from mha_numpy.kernels.normal import normal_share
from mha_numpy.kernels.parallel import count_threads, parallel
from mha_numpy.kernels.problem import divide_up
from mha_numpy.kernels.simd import apart

Array = npt.NDArray[Any]

ROWS = 64  # whose sums are taken together: the same for any number of threads
NUM_ARRAYS = 8  # of every kernel, so that all have one type; those not needed are empty
LEAST_COLUMNS = 16  # that are worth a thread of their own
COST = 32  # a number here takes about as long as this many products
SLOPE, CUBIC = math.sqrt(2 / math.pi), 0.044715  # of GELU by tanh


# --- what Python does before and after ------------------------------------------------------------


def norm(
    x: Array, gain: Array, bias: Array | None, eps: float, *, centres: bool
) -> tuple[Array, ...]:
    """Return 1 / std (or 1 / rms without centring) of each token, x_hat and out."""
    bias = np.zeros_like(gain) if bias is None else bias
    made = [(*x.shape[:-1], 1), x.shape, x.shape]
    return run(norm_rows, [x, gain, bias], made, [eps, centres])


def norm_backward(
    d_out: Array, x_hat: Array, inverse: Array, gain: Array, *, centres: bool
) -> tuple[Array, Array, Array]:
    """Return d_x, d_gain and d_bias."""
    tokens = x_hat.size // len(gain)
    sums = np.zeros((2, -(-tokens // ROWS), len(gain)), x_hat.dtype)
    given = [d_out, x_hat, inverse, gain, *sums]
    (d_x,) = run(norm_rows_backward, given, [x_hat.shape], [centres])
    d_gain, d_bias = sums.sum(axis=1)
    return d_x, d_gain, d_bias


def sum_of_squares(x: Array) -> float:
    """Return the sum of all squares, taken in float64."""
    rows = as_rows(x)
    sums = np.empty((-(-len(rows) // ROWS), 1))
    compiled(square_rows, x.dtype)(count_threads(x.size), (rows, sums))
    return float(sums.sum())


def collect(x: Array, ids: Array, V: int) -> Array:
    """Return the sums (V, D) of those rows of x, (..., D), that have the same id."""
    sums = np.zeros((V, x.shape[-1]), x.dtype)
    threads = min(count_threads(COST * x.size), -(-x.shape[-1] // LEAST_COLUMNS))
    compiled(collect_rows, x.dtype)(threads, (as_rows(x), as_rows(ids[..., None]), sums))
    return sums


def cross_entropy(
    logits: Array, targets: Array, counted: Array, label_smoothing: float
) -> tuple[Array, Array, Array]:
    """Return log_probs, expected, and the loss of each token."""
    targets = np.where(counted, targets, -1)[..., None].astype(logits.dtype)
    options = [1 - label_smoothing, label_smoothing / logits.shape[-1]]
    made = [logits.shape, logits.shape, targets.shape]
    log_probs, expected, losses = run(cross_entropy_rows, [logits, targets], made, options)
    return log_probs, expected, losses[..., 0]


def cross_entropy_backward(
    d_losses: Array, log_probs: Array, expected: Array, counted: Array
) -> Array:
    """Return d_logits."""
    counted = counted[..., None].astype(log_probs.dtype)
    given = [log_probs, expected, d_losses[..., None], counted]
    (d_logits,) = run(cross_entropy_rows_backward, given, [log_probs.shape])
    return d_logits


def adam(
    param: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    t: int,
    learning_rate: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> tuple[Array, ...]:
    """Return param, mean and square after step t."""
    (beta_1, beta_2), shrink = betas, 1 - learning_rate * weight_decay
    options = [beta_1, 1 - beta_1, beta_2, 1 - beta_2, 1 - beta_1**t, 1 - beta_2**t]
    options += [shrink, learning_rate, eps]
    return run(adam_rows, [param, gradient, mean, square], [param.shape] * 3, options)


def run(
    kernel: Any,
    given: Sequence[Array],
    shapes: Sequence[tuple[int, ...]],
    options: Sequence[float] = (0,),
) -> tuple[Array, ...]:
    """Run a kernel on arrays (..., D); make, fill and return arrays of these shapes."""
    dtype = given[0].dtype
    made = tuple(np.empty(shape, dtype) for shape in shapes)
    rows = [as_rows(x) for x in (*given, *made)]
    rows += [np.empty((0, 0), dtype)] * (NUM_ARRAYS - 1 - len(rows))
    threads = count_threads(COST * given[0].size)
    compiled(kernel, dtype)(threads, (np.array([options], dtype), *rows))
    return made


def as_rows(x: Array) -> Array:
    """Return (..., D) as contiguous rows; a number is a row of one."""
    return np.ascontiguousarray(x).reshape(-1, x.shape[-1] if x.ndim else 1)


def of_rows(kernel: Any, makes: int = 1, *, knows_tanh: bool = False) -> Callable[..., Any]:
    """Return a function of arrays that returns `makes` arrays of the first one's shape.

    If the kernel has two forms, the function takes "tanh" or another word after the arrays.
    """

    def run_kernel(*given: Any) -> Any:
        options = (0,)
        if knows_tanh:
            given, options = given[:-1], (given[-1] == "tanh",)
        made = run(kernel, given, [given[0].shape] * makes, options)
        return made if makes > 1 else made[0]

    return run_kernel


@lru_cache
def compiled(kernel: Any, dtype: np.dtype[Any]) -> Any:
    """Compile a kernel for float32 or float64, or load it from disk."""
    dtypes = MIXED.get(kernel, [None] * NUM_ARRAYS)
    arrays = [types.Array(of or from_dtype(dtype), 2, "C", aligned=False) for of in dtypes]
    return parallel(kernel, types.Tuple(arrays))


# --- kernels --------------------------------------------------------------------------------------


@inner
def rows_of(thread, threads, x):
    """Return a thread's rows of x: neighbouring rows, an equal share of all."""
    share = divide_up(len(x), threads)
    return range(thread * share, min((thread + 1) * share, len(x)))


@kernel
def add_rows(thread, threads, arguments):
    """Fill out with a + b."""
    apart()
    _, a, b, out = arguments[:4]
    for r in rows_of(thread, threads, out):
        row = r % len(b)
        for i in range(out.shape[1]):
            out[r, i] = a[r, i] + b[row, i]


@kernel(regroup=True)
def square_rows(thread, threads, arguments):
    """Fill sums: one for each block of rows."""
    apart()
    x, sums = arguments
    for block in range(thread, len(sums), threads):
        total = 0.0
        for r in range(block * ROWS, min((block + 1) * ROWS, len(x))):
            for c in range(x.shape[1]):
                number = np.float64(x[r, c])
                total += number * number
        sums[block, 0] = total


@kernel(regroup=True)
def collect_rows(thread, threads, arguments):
    """Add to sums: a thread has some columns of all rows."""
    apart()
    x, ids, sums = arguments
    share = divide_up(x.shape[1], threads)
    # as numbers without a sign, for an index that may be negative is looked at before its use
    first = np.uint64(thread * share)
    last = np.uint64(min((thread + 1) * share, x.shape[1]))
    for r in range(len(x)):
        row = np.uint64(ids[r, 0])
        for c in range(first, last):
            sums[row, c] += x[r, c]


@kernel(regroup=True)
def relu_rows(thread, threads, arguments):
    """Fill out."""
    apart()
    _, x, out = arguments[:3]
    for r in rows_of(thread, threads, x):
        for c in range(x.shape[1]):
            out[r, c] = x.dtype.type(0) if x[r, c] <= 0 else x[r, c]


@kernel(regroup=True)
def relu_rows_backward(thread, threads, arguments):
    """Fill d_x."""
    apart()
    _, d_out, x, d_x = arguments[:4]
    for r in rows_of(thread, threads, x):
        for c in range(x.shape[1]):
            d_x[r, c] = x.dtype.type(0) if x[r, c] <= 0 else d_out[r, c]


@kernel(regroup=True)
def gelu_rows(thread, threads, arguments):
    """Fill share and out."""
    apart()
    options, x, share, out = arguments[:4]
    number = x.dtype.type
    for r in rows_of(thread, threads, x):
        if options[0, 0]:
            for c in range(x.shape[1]):
                at = number(SLOPE) * x[r, c] * (number(1) + number(CUBIC) * x[r, c] * x[r, c])
                share[r, c] = number(0.5) + number(0.5) * tanh(at)
                out[r, c] = x[r, c] * share[r, c]
        else:
            for c in range(x.shape[1]):
                share[r, c] = normal_share(x[r, c])
                out[r, c] = x[r, c] * share[r, c]


@kernel(regroup=True)
def gelu_rows_backward(thread, threads, arguments):
    """Fill d_x."""
    apart()
    options, d_out, x, share, d_x = arguments[:5]
    number = x.dtype.type
    for r in rows_of(thread, threads, x):
        if options[0, 0]:
            for c in range(x.shape[1]):
                at = number(SLOPE) + number(3 * SLOPE * CUBIC) * x[r, c] * x[r, c]
                slope = number(2) * share[r, c] * (number(1) - share[r, c]) * at
                d_x[r, c] = d_out[r, c] * (share[r, c] + x[r, c] * slope)
        else:
            for c in range(x.shape[1]):
                slope = exp(number(-0.5) * x[r, c] * x[r, c]) * number(1 / math.sqrt(2 * math.pi))
                d_x[r, c] = d_out[r, c] * (share[r, c] + x[r, c] * slope)


@kernel(regroup=True)
def swiglu_rows(thread, threads, arguments):
    """Fill share, silu and out."""
    apart()
    _, gate, x, share, silu, out = arguments[:6]
    number = x.dtype.type
    for r in rows_of(thread, threads, x):
        for c in range(x.shape[1]):
            share[r, c] = number(0.5) + number(0.5) * tanh(number(0.5) * gate[r, c])
            silu[r, c] = gate[r, c] * share[r, c]
            out[r, c] = silu[r, c] * x[r, c]


@kernel(regroup=True)
def swiglu_rows_backward(thread, threads, arguments):
    """Fill d_gate and d_x."""
    apart()
    _, d_out, _, x, share, silu, d_gate, d_x = arguments
    number = x.dtype.type
    for r in rows_of(thread, threads, x):
        for c in range(x.shape[1]):
            slope = share[r, c] + silu[r, c] * (number(1) - share[r, c])
            d_gate[r, c] = d_out[r, c] * x[r, c] * slope
            d_x[r, c] = d_out[r, c] * silu[r, c]


@kernel(regroup=True)
def norm_rows(thread, threads, arguments):
    """Fill inverse, x_hat and out."""
    apart()
    options, x, gain, bias, inverse, x_hat, out = arguments[:7]
    number = x.dtype.type
    D, eps, centres = number(x.shape[1]), options[0, 0], options[0, 1]
    for r in rows_of(thread, threads, x):
        mean = squares = number(0)
        for c in range(x.shape[1]):
            mean += x[r, c]
        mean = mean / D if centres else number(0)
        for c in range(x.shape[1]):
            squares += (x[r, c] - mean) * (x[r, c] - mean)
        factor = number(1) / np.sqrt(squares / D + eps)
        for c in range(x.shape[1]):
            x_hat[r, c] = (x[r, c] - mean) * factor
            out[r, c] = x_hat[r, c] * gain[0, c] + bias[0, c]
        inverse[r, 0] = factor


@kernel(regroup=True)
def norm_rows_backward(thread, threads, arguments):
    """Fill d_x, and add to the sums of each block."""
    apart()
    options, d_out, x_hat, inverse, gain, d_gain, d_bias, d_x = arguments
    number = d_x.dtype.type
    D, centres = number(d_x.shape[1]), options[0, 0]
    for block in range(thread, len(d_gain), threads):
        for r in range(block * ROWS, min((block + 1) * ROWS, len(d_x))):
            by_mean = by_size = number(0)
            for c in range(d_x.shape[1]):
                d_gain[block, c] += d_out[r, c] * x_hat[r, c]
                d_bias[block, c] += d_out[r, c]
                by_mean += d_out[r, c] * gain[0, c]
                by_size += d_out[r, c] * gain[0, c] * x_hat[r, c]
            by_mean, by_size = by_mean / D if centres else number(0), by_size / D
            for c in range(d_x.shape[1]):
                d_x_hat = d_out[r, c] * gain[0, c]
                d_x[r, c] = inverse[r, 0] * (d_x_hat - by_mean - x_hat[r, c] * by_size)


@kernel(regroup=True)
def cross_entropy_rows(thread, threads, arguments):
    """Fill log_probs, expected and losses; the target of a token that does not count is -1."""
    apart()
    options, logits, targets, log_probs, expected, losses = arguments[:6]
    number = logits.dtype.type
    at_target, of_each = options[0, 0], options[0, 1]
    for r in rows_of(thread, threads, logits):
        largest, powers, log_of_all = logits[r, 0], number(0), number(0)
        for c in range(logits.shape[1]):
            largest = logits[r, c] if logits[r, c] > largest else largest  # NaN shows in the sum
        for c in range(logits.shape[1]):
            powers += exp(logits[r, c] - largest)
        log_of_sum, counts = np.log(powers), targets[r, 0] >= 0
        for c in range(logits.shape[1]):
            log_prob = logits[r, c] - largest - log_of_sum
            log_of_all += log_prob
            log_probs[r, c] = log_prob
            expected[r, c] = of_each if counts else number(0)
        losses[r, 0] = number(0)
        if counts:
            target = int(targets[r, 0])
            expected[r, target] += at_target
            # what is not asked for may have probability 0
            if at_target > 0:
                losses[r, 0] -= at_target * log_probs[r, target]
            if of_each > 0:
                losses[r, 0] -= of_each * log_of_all


@kernel(regroup=True)
def cross_entropy_rows_backward(thread, threads, arguments):
    """Fill d_logits."""
    apart()
    _, log_probs, expected, d_losses, counted, d_logits = arguments[:6]
    for r in rows_of(thread, threads, d_logits):
        if counted[r, 0] > 0:
            for c in range(d_logits.shape[1]):
                d_logits[r, c] = d_losses[r, 0] * (exp(log_probs[r, c]) - expected[r, c])
        else:
            for c in range(d_logits.shape[1]):
                d_logits[r, c] = 0


@kernel(regroup=True)
def adam_rows(thread, threads, arguments):
    """Fill new_param, new_mean and new_square."""
    apart()
    options, param, gradient, mean, square, new_param, new_mean, new_square = arguments
    beta_1, rest_1, beta_2, rest_2 = options[0, 0], options[0, 1], options[0, 2], options[0, 3]
    by_mean, by_square, shrink = options[0, 4], options[0, 5], options[0, 6]
    rate, eps = options[0, 7], options[0, 8]
    for r in rows_of(thread, threads, param):
        for c in range(param.shape[1]):
            g = gradient[r, c]
            new_mean[r, c] = beta_1 * mean[r, c] + rest_1 * g
            new_square[r, c] = beta_2 * square[r, c] + rest_2 * g * g
            step = new_mean[r, c] / by_mean / (np.sqrt(new_square[r, c] / by_square) + eps)
            new_param[r, c] = shrink * param[r, c] - rate * step


add = of_rows(add_rows)  # of arrays of one shape; rows of the second are repeated if too few
relu, relu_backward = of_rows(relu_rows), of_rows(relu_rows_backward)
gelu = of_rows(gelu_rows, makes=2, knows_tanh=True)
gelu_backward = of_rows(gelu_rows_backward, knows_tanh=True)
swiglu, swiglu_backward = of_rows(swiglu_rows, makes=3), of_rows(swiglu_rows_backward, makes=2)

# those whose arrays are not all of one dtype, which is None here
MIXED = {square_rows: (None, types.float64), collect_rows: (None, types.int64, None)}
KERNELS = (
    *MIXED, add_rows, relu_rows, relu_rows_backward, gelu_rows, gelu_rows_backward, swiglu_rows,
    swiglu_rows_backward, norm_rows, norm_rows_backward, cross_entropy_rows,
    cross_entropy_rows_backward, adam_rows,
)  # fmt: skip
