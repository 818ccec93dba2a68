"""Backend "loops": attention as plain loops over single numbers, to be read.

No weights are kept: forward visits the keys one after another with a running softmax, and backward
recomputes each weight from its row's lse. So the memory grows with T, not T^2 (except for the
gradient of a bias). With ``NUMBA_DISABLE_JIT=1`` in the environment all of it is plain Python, to
be stepped through.

Sources: Milakov and Gimelshein 2018, *Online normalizer calculation for softmax*, algorithm 3;
Dao et al. 2022, *FlashAttention*, algorithms 1 and 4, with tiles of one query and one key.
"""

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import config, from_dtype, get_num_threads, types

from mha_numpy.kernels.compile import REGROUP, jit
from mha_numpy.kernels.host import LEAST_WORK
from mha_numpy.kernels.problem import Problem


@jit(fastmath=REGROUP)
def dot(x, y, j):
    """Return the dot product of x and row j of y."""
    total = x.dtype.type(0)
    for c in range(len(x)):
        total += x[c] * y[j, c]
    return total


@jit(fastmath=REGROUP, nogil=True)
def forward(problem, heads, lse):
    """Fill one head's heads (T_q, d_v), which come as zeros, and lse (T_q,)."""
    q, k, v, mask, bias, dropout_mask, sink, q_offset, left, right, scale, softcap = problem
    zero, inf, nan = q.dtype.type(0), q.dtype.type(np.inf), q.dtype.type(np.nan)
    for i in range(len(q)):
        q_i, head = q[i], heads[i]
        # the sink is the first score, and has no value
        largest, has_sink, sees_any = sink, sink != -inf, False
        total = np.exp(sink - largest) if has_sink else zero  # 1, or NaN
        at = i + q_offset
        for j in range(max(0, at - left), min(len(k), at + right + 1)):
            if not mask[i, j] or bias[i, j] == -inf:
                continue
            sees_any = True
            # 1. to 3. match, softcap, bias
            score = scale * dot(q_i, k, j)
            capped = softcap * np.tanh(score / softcap) if softcap else score
            biased = capped + bias[i, j]

            # 4. softmax so far: a score above all before it shrinks what these have given
            if biased > largest:
                shrink = np.exp(largest - biased)
                total *= shrink
                for c in range(len(head)):
                    head[c] *= shrink
                largest = biased
            power = np.exp(biased - largest) if biased != -inf else zero
            total += power

            # 5. and 6. dropout, mix
            dropped = power * dropout_mask[i, j]
            for c in range(len(head)):
                head[c] += dropped * v[j, c]

        if sees_any:
            total = total if total != 0 else nan  # only scores of -inf: 0 / 0
            for c in range(len(head)):
                head[c] /= total
        lse[i] = largest + np.log(total) if sees_any or has_sink else -inf


@jit(fastmath=REGROUP, nogil=True)
def backward(problem, d_q, d_k, d_v, d_biased, d_heads, d_lse, heads, lse):
    """Add one query head's share to d_q, d_k, d_v, and to d_biased if that has columns."""
    q, k, v, mask, bias, dropout_mask, _, q_offset, left, right, scale, softcap = problem
    one, inf = q.dtype.type(1), q.dtype.type(np.inf)
    for i in range(len(q)):
        q_i, d_q_i, d_head = q[i], d_q[i], d_heads[i]
        # sum_j weights_j d_weights_j; lse's own slope along a score is the score's weight
        row_mean = dot(d_head, heads, i) - d_lse[i]
        at = i + q_offset
        for j in range(max(0, at - left), min(len(k), at + right + 1)):
            if not mask[i, j] or bias[i, j] == -inf:
                continue
            # forward once more
            score = scale * dot(q_i, k, j)
            capped = softcap * np.tanh(score / softcap) if softcap else score
            weight = np.exp(capped + bias[i, j] - lse[i])

            # 6. heads = dropped @ v
            dropped = weight * dropout_mask[i, j]
            d_dropped = dot(d_head, v, j)
            for c in range(len(d_head)):
                d_v[j, c] += dropped * d_head[c]

            # 5. to 3. dropped = weights * dropout_mask, weights = softmax(capped + bias)
            d_capped = weight * (d_dropped * dropout_mask[i, j] - row_mean)
            if d_biased.size:
                d_biased[i, j] = d_capped

            # 2. capped = softcap * tanh(scores / softcap)
            d_score = d_capped * (one - (capped / softcap) ** 2) if softcap else d_capped

            # 1. scores = scale * q @ k^T
            d_match = scale * d_score
            for c in range(len(q_i)):
                d_q_i[c] += d_match * k[j, c]
                d_k[j, c] += d_match * q_i[c]


@jit(fastmath=REGROUP, nogil=True)
def jvp(problem, heads_dot, lse_dot, q_dot, k_dot, v_dot, bias_dot, sink_dot, heads, lse):
    """Fill one query head's heads_dot (T_q, d_v), which come as zeros, and lse_dot (T_q,)."""
    q, k, v, mask, bias, dropout_mask, sink, q_offset, left, right, scale, softcap = problem
    zero, one, inf = q.dtype.type(0), q.dtype.type(1), q.dtype.type(np.inf)
    for i in range(len(q)):
        q_i, q_dot_i, head_dot = q[i], q_dot[i], heads_dot[i]
        # the sink is a score without a value
        row_dot = np.exp(sink - lse[i]) * sink_dot if sink != -inf else zero
        at = i + q_offset
        for j in range(max(0, at - left), min(len(k), at + right + 1)):
            if not mask[i, j] or bias[i, j] == -inf:
                continue
            # forward once more
            score = scale * dot(q_i, k, j)
            capped = softcap * np.tanh(score / softcap) if softcap else score
            weight = np.exp(capped + bias[i, j] - lse[i])

            # 1. to 3. scores = scale * q @ k^T, capped, biased
            score_dot = scale * (dot(q_dot_i, k, j) + dot(q_i, k_dot, j))
            capped_dot = score_dot * (one - (capped / softcap) ** 2) if softcap else score_dot
            biased_dot = capped_dot + bias_dot[i, j]

            # 4. lse_dot is the mean of biased_dot, and weights_dot = weights (biased_dot - lse_dot)
            moved = weight * biased_dot
            row_dot += moved

            # 5. and 6. heads = dropped @ v; what lse_dot takes off comes last
            for c in range(len(head_dot)):
                shift = moved * v[j, c] + weight * v_dot[j, c]
                head_dot[c] += dropout_mask[i, j] * shift
        for c in range(len(head_dot)):
            head_dot[c] -= row_dot * heads[i, c]
        lse_dot[i] = row_dot


def attention_forward(*inputs: Any) -> tuple[Any, Any]:
    """Return heads and lse; the inputs are the fields of a Problem, None for a missing one."""
    problem = _completed(*inputs)
    (B, H, T_q, _), d_v, dtype = problem.q.shape, problem.v.shape[3], problem.q.dtype
    heads, lse = np.zeros((B, H, T_q, d_v), dtype), np.empty((B, H, T_q), dtype)
    _run(forward, problem, heads, lse, parts=H)
    return heads, lse


def attention_backward(
    d_heads: Any, d_lse: Any, heads: Any, lse: Any, *inputs: Any
) -> tuple[Any, Any, Any, Any | None, None]:
    """Return d_q, d_k, d_v and d_biased, which is None without a bias; no means of rows."""
    problem, has_bias = _completed(*inputs), inputs[4] is not None
    q, k, v = problem[:3]
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    d_biased = np.zeros((*q.shape[:3], k.shape[2] if has_bias else 0), q.dtype)
    given = (np.ascontiguousarray(x) for x in (d_heads, d_lse, heads, lse))
    # the query heads that add to one head's d_k and d_v are one thread's
    _run(backward, problem, d_q, d_k, d_v, d_biased, *given, parts=k.shape[1])
    return d_q, d_k, d_v, d_biased if has_bias else None, None


def attention_jvp(
    q_dot: Any, k_dot: Any, v_dot: Any, bias_dot: Any, sink_dot: Any, heads: Any, lse: Any,
    *inputs: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Return heads_dot and lse_dot; bias_dot and sink_dot may be None."""
    problem = _completed(*inputs)
    q, k, dtype = problem.q, problem.k, problem.q.dtype
    heads_dot, lse_dot = np.zeros(heads.shape, dtype), np.empty(lse.shape, dtype)
    given = [np.ascontiguousarray(x) for x in (q_dot, k_dot, v_dot)]
    bias_dot = np.broadcast_to(dtype.type(0) if bias_dot is None else bias_dot, problem.bias.shape)
    sink_dot = np.broadcast_to(dtype.type(0) if sink_dot is None else sink_dot, q.shape[:2])
    of_rows = [np.ascontiguousarray(x) for x in (heads, lse)]
    _run(jvp, problem, heads_dot, lse_dot, *given, bias_dot, sink_dot, *of_rows, parts=k.shape[1])
    return heads_dot, lse_dot


def _completed(
    q: Any, k: Any, v: Any, mask: Any, bias: Any, dropout_mask: Any, sink: Any,
    q_offset: Any, left: int, right: int, scale: float, softcap: float | None,
) -> Problem:  # fmt: skip
    """Replace missing inputs by arrays that change nothing; make rows contiguous."""
    cells, real = (*q.shape[:3], k.shape[2]), q.dtype.type
    return Problem(
        np.ascontiguousarray(q), np.ascontiguousarray(k), np.ascontiguousarray(v),
        np.broadcast_to(np.True_ if mask is None else mask, cells),
        np.broadcast_to(real(0) if bias is None else bias, cells),
        np.broadcast_to(real(1) if dropout_mask is None else dropout_mask, cells),
        np.broadcast_to(real(-np.inf) if sink is None else sink, q.shape[:2]),
        np.broadcast_to(q_offset, len(q)), left, right, real(scale), real(softcap or 0),
    )  # fmt: skip


def _run(function: Any, problem: Problem, *arrays: Any, parts: int) -> None:
    """Call a function for every query head: problem.q is (T_q, d_k), problem.mask (T_q, T_k), ...

    The heads of a sequence are split into `parts`, one for each thread. If it is not compiled, for
    a debugger, or if there is little to do, one thread does everything.
    """
    (B, H, _, _), (_, H_kv, T_k, _) = problem.q.shape, problem.k.shape
    q_offset, others, G = problem.q_offset, problem[8:], H // H_kv
    run = compiled(function, problem.q.dtype)
    all_arrays = [(x, G == 1 or x.shape[1] == H) for x in (*problem[:7], *arrays)]

    def part(n: int) -> None:
        b, first = n // parts, n % parts * (H // parts)
        for h in range(first, first + H // parts):
            query_head, key_head = (b, h), (b, h // G)
            given = [
                x[query_head if is_of_queries else key_head] for x, is_of_queries in all_arrays
            ]
            run(Problem._make([*given[:7], q_offset[b], *others]), *given[7:])

    work = problem.q.size * T_k
    threads = 1 if work < LEAST_WORK or config.DISABLE_JIT else get_num_threads()
    if threads == 1:
        for n in range(B * parts):
            part(n)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, range(B * parts)))


@functools.cache
def compiled(function: Any, dtype: Any) -> Any:
    """Compile once for a dtype: left to itself, numba would for every mix of memory orders."""
    if not hasattr(function, "compile"):  # NUMBA_DISABLE_JIT
        return function
    real: Any = from_dtype(dtype)
    rows, lse = (types.Array(real, ndim, "C", readonly=True) for ndim in (2, 1))
    mask, cells = (types.Array(x, 2, "A", readonly=True) for x in (types.boolean, real))
    given = [rows] * 3 + [mask, cells, cells, real] + [types.int64] * 3 + [real, real]
    arrays = [real[:, ::1], real[::1]]  # heads, lse
    if function is backward:
        arrays = [real[:, ::1]] * 4 + [rows, lse, rows, lse]  # d_q to d_biased, d_heads to lse
    if function is jvp:
        arrays += [rows] * 3 + [cells, real, rows, lse]  # q_dot to sink_dot, heads, lse
    return function.compile((types.NamedTuple(given, Problem), *arrays))
