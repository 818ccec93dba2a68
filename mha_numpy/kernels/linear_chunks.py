"""Linear attention in chunks of 64 tokens: a thread takes all chunks of a head, one after another.

Steps and names are those of ``variants/linear_chunks.py``. There each operation goes through
memory; here what a chunk needs stays in the first- and second-level cache. Heads of one group
share a state, and so a thread. The last chunk is filled up with tokens of zeros, which write
nothing.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import from_dtype, types

from mha_numpy.kernels.compile import inner, kernel
from mha_numpy.kernels.parallel import count_threads, parallel
from mha_numpy.kernels.problem import divide_up, items_of, like_scratch
from mha_numpy.kernels.product import multiply
from mha_numpy.kernels.rows import (
    add_row_dots,
    add_rows,
    copy_rows,
    fill,
    multiply_rows,
    scale_each_row,
    scale_rows,
)
from mha_numpy.kernels.scratch import Layout, clear, free
from mha_numpy.kernels.simd import as_written, full, lanes, load, multiply_add, store, sum_of_lanes
from mha_numpy.kernels.tile import BLOCK, round_up
from mha_numpy.kernels.transpose import transpose

Array = npt.NDArray[Any]

STEP = 8  # rows that are solved for together
MULTIPLE = 16  # of tokens, with zeros at the end: whole steps, and whole Vectors of any processor
FORWARD = Layout(
    "d_k d_v",  # rows and columns: a row a token, but for the state's, which are features of k
    decay="1 block", beta="1 block", from_start="1 block", to_end="1 block",
    between="block block", cells="block block",
    q="block d_k", k="block d_k", k_T="d_k block", faded="block d_k",
    u="block d_v", out="block d_v", state="d_k d_v",
)  # fmt: skip
BACKWARD = Layout(
    "d_k d_v",
    decay="1 block", beta="1 block", from_start="1 block", to_end="1 block",
    between="block block", cells="block block", d_cells="block block",
    q="block d_k", k="block d_k", k_T="d_k block", faded="block d_k",
    d_q="block d_k", d_k="block d_k", d_k_read="block d_k",
    v="block d_v", u="block d_v", u_T="d_v block", d_u="block d_v", d_out="block d_v",
    state="d_k d_v", state_T="d_v d_k", d_state="d_k d_v", d_state_T="d_v d_k",
    d_fading="1 block", dots="1 block",
)  # fmt: skip
new_forward_tiles, new_backward_tiles = FORWARD.new_tiles, BACKWARD.new_tiles


# --- what Python does before and after ------------------------------------------------------------


def linear_attention(
    q: Array, k: Array, v: Array, log_decay: Array | None, beta: Array | None,
    state: Array | None, scale: float,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return states (B, H_kv, N + 1, d_k, d_v), u (B, H_kv, T, d_v) and out (B, H, T, d_v)."""
    (B, H_kv, T, d_k), d_v = k.shape, v.shape[3]
    states = np.empty((B, H_kv, -(-T // BLOCK) + 1, d_k, d_v), q.dtype)
    states[:, :, 0] = 0 if state is None else state
    u, out = np.empty(v.shape, v.dtype), np.empty((*q.shape[:3], d_v), q.dtype)
    given = (q, k, v, *_per_token(k, log_decay, beta), scale)
    _run(forward_chunks, given, states, u, out)
    return states, u, out


def linear_attention_backward(
    d_out: Array, d_state: Array | None, q: Array, k: Array, v: Array, log_decay: Array | None,
    beta: Array | None, states: Array, u: Array, scale: float,
) -> tuple[Array, ...]:  # fmt: skip
    """Return d_q, d_k, d_v, d_log_decay, d_beta (the last two for missing ones, too), d_state."""
    d_first = np.empty(states[:, :, 0].shape, q.dtype)
    d_first[...] = 0 if d_state is None else d_state  # of the last state, to be pulled back
    made = [np.empty(x.shape, x.dtype) for x in (q, k, v)]
    made += [np.empty(k.shape[:3], k.dtype) for _ in range(2)]
    given = (q, k, v, *_per_token(k, log_decay, beta), scale)
    _run(backward_chunks, given, d_out, states, u, *made, d_first)
    return *made, d_first


def _per_token(k: Array, log_decay: Array | None, beta: Array | None) -> tuple[Array, Array]:
    """Return decay and beta, empty if there is none."""
    nothing = np.empty((0, 0, 0), k.dtype)
    decay = nothing if log_decay is None else np.exp(log_decay)
    return decay, nothing if beta is None else beta


def _run(function: Any, given: tuple[Any, ...], *arrays: Array) -> None:
    """Share out the heads of keys among threads."""
    q, k, v = given[:3]
    threads = min(count_threads(q.size * (BLOCK + v.shape[3])), k.shape[0] * k.shape[1])
    compiled(function, q.dtype)(threads, (*given, *arrays))


@lru_cache
def compiled(function: Any, dtype: np.dtype[Any]) -> Any:
    """Compile a kernel for float32 or float64, or load it from disk."""
    number = from_dtype(dtype)

    def given(ndim: int) -> Any:
        return types.Array(number, ndim, "A", readonly=True, aligned=False)

    def made(ndim: int) -> Any:
        return types.Array(number, ndim, "C")

    arrays = {
        forward_chunks: (made(5), made(4), made(4)),
        backward_chunks: (given(4), made(5), made(4), *[made(4)] * 3, *[made(3)] * 2, made(4)),
    }
    inputs = (given(4), given(4), given(4), given(3), given(3), number)
    return parallel(function, types.Tuple((*inputs, *arrays[function])))


# --- the kernels ----------------------------------------------------------------------------------


@kernel
def forward_chunks(thread, threads, arguments):
    """Compute all chunks of a thread's heads."""
    as_written()
    q, k, v = like_scratch(arguments[0]), like_scratch(arguments[1]), like_scratch(arguments[2])
    decay, beta, scale, states, u, out = arguments[3:]
    (B, H_kv, T, d_k), d_v = k.shape, v.shape[3]
    G = q.shape[1] // H_kv
    memory, s = new_forward_tiles(q, (round_up(d_k, q), round_up(d_v, q)))
    clear(s)
    has_beta = beta.size > 0
    for item in items_of(thread, threads, B, H_kv):
        b, h = item // H_kv, item % H_kv
        load_tile(s.state, states[b, h, 0])
        for first in range(0, T, BLOCK):
            n = min(BLOCK, T - first)
            at, C = slice(first, first + n), divide_up(n, MULTIPLE) * MULTIPLE
            k_c, u_c, cells, k_T = s.k[:C], s.u[:C], s.cells[:C, :C], s.k_T[:, :C]
            load_tile(k_c, k[b, h, at])
            load_tile(u_c, v[b, h, at])
            transpose(k_T, k_c)
            # 1. forget
            fade(s, decay, b, h, first, n, C)
            # 2. delta rule: (1 + beta seen) u = beta (v - remembered)
            if has_beta:
                load_numbers(s.beta, beta[b, h, at], 0.0)
                scale_into(s.faded[:C], k_c, s.from_start, -1.0)
                multiply(u_c, s.faded[:C, :d_k], s.state[:d_k], u_c, True)
                scale_each_row(u_c, s.beta)
                load_minus_seen(cells, k_c[:, :d_k], k_T[:d_k], s.between, s.beta)
                solve(u_c, cells)
            copy_rows(u[b, h, at], u_c[:n, :d_v])
            # 4. read
            for head in range(h * G, (h + 1) * G):
                q_c, out_c = s.q[:C], s.out[:C]
                load_tile(q_c, q[b, head, at])
                scale_rows(q_c, scale)
                multiply(cells, q_c[:, :d_k], k_T[:d_k], cells, False)
                multiply_rows(cells, s.between)
                scale_each_row(q_c, s.from_start)
                multiply(out_c, q_c[:, :d_k], s.state[:d_k], out_c, False)
                multiply(out_c, cells, u_c, out_c, True)
                copy_rows(out[b, head, at], out_c[:n, :d_v])
            # 3. write
            scale_into(s.faded[:C], k_c, s.to_end, 1.0)
            scale_rows(s.state, s.from_start[0, C - 1])
            multiply(s.state[:d_k], s.faded[:C, :d_k].T, u_c, s.state[:d_k], True)
            copy_rows(states[b, h, first // BLOCK + 1], s.state[:d_k, :d_v])
    free(memory)


@kernel
def backward_chunks(thread, threads, arguments):
    """Pull back through all chunks of a thread's heads, last to first."""
    as_written()
    q, k, v = like_scratch(arguments[0]), like_scratch(arguments[1]), like_scratch(arguments[2])
    decay, beta, scale = arguments[3:6]
    d_out = like_scratch(arguments[6])
    states, u, d_q, d_k_, d_v_, d_log_decay, d_beta, d_state = arguments[7:]
    (B, H_kv, T, d_k), d_v = k.shape, v.shape[3]
    G = q.shape[1] // H_kv
    memory, s = new_backward_tiles(q, (round_up(d_k, q), round_up(d_v, q)))
    clear(s)
    has_beta = beta.size > 0
    for item in items_of(thread, threads, B, H_kv):
        b, h = item // H_kv, item % H_kv
        load_tile(s.d_state, d_state[b, h])
        for number in range(divide_up(T, BLOCK) - 1, -1, -1):
            first = number * BLOCK
            n = min(BLOCK, T - first)
            at, C = slice(first, first + n), divide_up(n, MULTIPLE) * MULTIPLE
            k_c, u_c, cells, k_T, u_T = (
                s.k[:C],
                s.u[:C],
                s.cells[:C, :C],
                s.k_T[:, :C],
                s.u_T[:, :C],
            )
            d_k_c, d_u_c, d_cells, faded = s.d_k[:C], s.d_u[:C], s.d_cells[:C, :C], s.faded[:C]
            load_tile(k_c, k[b, h, at])
            load_tile(u_c, u[b, h, at])
            transpose(k_T, k_c)
            transpose(u_T, u_c)
            fade(s, decay, b, h, first, n, C)
            fill(s.d_fading, 0.0)

            # 3. next_state = of_state state + (k to_end)^T u
            load_tile(s.state, states[b, h, number + 1])
            s.d_fading[0, n - 1] = dot_of_tiles(s.d_state, s.state)
            transpose(s.d_state_T, s.d_state)
            scale_into(faded, k_c, s.to_end, 1.0)
            multiply(d_u_c, faded[:, :d_k], s.d_state[:d_k], d_u_c, False)
            multiply(d_k_c, u_c[:, :d_v], s.d_state_T[:d_v], d_k_c, False)
            scale_each_row(d_k_c, s.to_end)
            scale_rows(s.d_state, s.from_start[0, C - 1])
            load_tile(s.state, states[b, h, number])
            transpose(s.state_T, s.state)

            # 4. out = scale * (q from_start @ state + scores @ u)
            for head in range(h * G, (h + 1) * G):
                q_c, d_q_c, d_out_c = s.q[:C], s.d_q[:C], s.d_out[:C]
                load_tile(q_c, q[b, head, at])
                scale_rows(q_c, scale)
                load_tile(d_out_c, d_out[b, head, at])
                multiply(cells, q_c[:, :d_k], k_T[:d_k], cells, False)
                multiply_rows(cells, s.between)
                multiply(d_cells, d_out_c[:, :d_v], u_T[:d_v], d_cells, False)
                multiply_rows(d_cells, s.between)
                multiply(d_q_c, d_out_c[:, :d_v], s.state_T[:d_v], d_q_c, False)
                scale_each_row(d_q_c, s.from_start)
                multiply(d_q_c, d_cells, k_c, d_q_c, True)
                multiply(d_k_c, d_cells.T, q_c, d_k_c, True)
                multiply(d_u_c, cells.T, d_out_c, d_u_c, True)
                add_row_dots(s.d_fading, q_c, d_q_c, 1.0)
                scale_into(faded, q_c, s.from_start, 1.0)
                multiply(s.d_state[:d_k], faded[:, :d_k].T, d_out_c, s.d_state[:d_k], True)
                scale_rows(d_q_c, scale)
                copy_rows(d_q[b, head, at], d_q_c[:n, :d_k])

            # 2. (1 + beta seen) u = beta (v - remembered)
            if has_beta:
                v_c, d_read_c = s.v[:C], s.d_k_read[:C]
                load_numbers(s.beta, beta[b, h, at], 0.0)
                load_tile(v_c, v[b, h, at])
                scale_into(faded, k_c, s.from_start, -1.0)
                fill(s.dots, -1.0)
                load_minus_seen(cells, k_c[:, :d_k], k_T[:d_k], s.between, s.dots)  # seen
                multiply(v_c, faded[:, :d_k], s.state[:d_k], v_c, True)
                scale_rows(cells, -1.0)
                multiply(v_c, cells, u_c, v_c, True)  # what the state lacks
                scale_each_row(cells, s.beta)
                solve_transposed(d_u_c, cells)  # d_written
                fill(s.dots, 0.0)
                add_row_dots(s.dots, d_u_c, v_c, 1.0)
                for i in range(n):
                    d_beta[b, h, first + i] = s.dots[0, i]
                scale_each_row(d_u_c, s.beta)  # d_v
                multiply(d_cells, d_u_c[:, :d_v], u_T[:d_v], d_cells, False)
                multiply_rows(d_cells, s.between)
                scale_rows(d_cells, -1.0)
                for i in range(C):
                    d_cells[i, i] = 0.0
                multiply(d_read_c, d_u_c[:, :d_v], s.state_T[:d_v], d_read_c, False)
                scale_each_row(d_read_c, s.from_start)
                scale_rows(d_read_c, -1.0)
                multiply(d_read_c, d_cells, k_c, d_read_c, True)
                multiply(d_k_c, d_cells.T, k_c, d_k_c, True)
                multiply(s.d_state[:d_k], faded[:, :d_k].T, d_u_c, s.d_state[:d_k], True)
                add_row_dots(s.d_fading, k_c, d_read_c, 1.0)
            copy_rows(d_v_[b, h, at], d_u_c[:n, :d_v])

            # 1. what is read has faded up to its token, what is written fades from there on
            add_row_dots(s.d_fading, k_c, d_k_c, -1.0)
            total = s.d_fading[0, 0] * 0.0
            for i in range(n - 1, -1, -1):
                total += s.d_fading[0, i]
                d_log_decay[b, h, first + i] = total
            if has_beta:
                add_rows(d_k_c, s.d_k_read)
            copy_rows(d_k_[b, h, at], d_k_c[:n, :d_k])
        copy_rows(d_state[b, h], s.d_state[:d_k, :d_v])
    free(memory)


@inner
def load_tile(tile, rows):
    """Copy rows into a tile, whose other rows become 0; columns beyond are 0 from the start."""
    copy_rows(tile, rows)
    if len(rows) < len(tile):
        fill(tile[len(rows) :], 0.0)


@inner
def load_numbers(tile, numbers, filling):
    """Copy a number of each token."""
    fill(tile, filling)
    for i in range(len(numbers)):
        tile[0, i] = numbers[i]


@inner
def fade(s, decay, b, h, first, n, C):
    """Multiply up decays: from the start to each token, between two tokens, from each to the end.

    ``between[i, j]`` is 0 for j > i, so that it is a mask, too.
    """
    fill(s.decay, 1.0)
    if decay.size > 0:
        load_numbers(s.decay, decay[b, h, first : first + n], 1.0)
    fill(s.between[:1], 0.0)
    s.between[0, 0] = 1.0
    s.from_start[0, 0] = s.decay[0, 0]
    for i in range(1, C):
        copy_rows(s.between[i : i + 1], s.between[i - 1 : i])
        scale_rows(s.between[i : i + 1], s.decay[0, i])
        s.between[i, i] = 1.0
        s.from_start[0, i] = s.from_start[0, i - 1] * s.decay[0, i]
    copy_rows(s.to_end, s.between[C - 1 : C])


@inner
def scale_into(target, source, factors, sign):
    """Do ``target[i] = sign * factors[i] * source[i]`` for each row."""
    for r in range(target.shape[0]):
        factor = sign * factors[0, r]
        for c in range(0, target.shape[1], lanes(target)):
            store(target, r, c, load(source, r, c) * factor)


@inner
def load_minus_seen(cells, k, k_T, between, beta):
    """Do ``cells = -beta * (k @ k^T) * between``, below the diagonal; 0 on it and above."""
    multiply(cells, k, k_T, cells, False)
    multiply_rows(cells, between)
    for i in range(len(cells)):
        cells[i, i] = 0.0
    scale_each_row(cells, beta)
    scale_rows(cells, -1.0)


@inner
def solve(x, minus_lower):
    """Replace x by the solution of ``(1 - minus_lower) x = x``, a few rows at a time."""
    for first in range(0, len(x), STEP):
        rows = slice(first, first + STEP)
        if first > 0:
            multiply(x[rows], minus_lower[rows, :first], x[:first], x[rows], True)
        for i in range(first + 1, first + STEP):
            for j in range(first, i):
                add_multiple(x, i, j, minus_lower[i, j])


@inner
def solve_transposed(x, minus_lower):
    """Replace x by the solution of ``(1 - minus_lower)^T x = x``, last rows first."""
    for first in range(len(x) - STEP, -1, -STEP):
        rows, after = slice(first, first + STEP), first + STEP
        if after < len(x):
            multiply(x[rows], minus_lower[after:, rows].T, x[after:], x[rows], True)
        for i in range(first + STEP - 2, first - 1, -1):
            for j in range(i + 1, first + STEP):
                add_multiple(x, i, j, minus_lower[j, i])


@inner
def add_multiple(x, i, j, factor):
    """Do ``x[i] += factor * x[j]``."""
    for c in range(0, x.shape[1], lanes(x)):
        store(x, i, c, multiply_add(load(x, j, c), factor, load(x, i, c)))


@inner
def dot_of_tiles(a, b):
    """Return the sum of all products of two tiles' numbers."""
    products = full(a, 0.0)
    for r in range(a.shape[0]):
        for c in range(0, a.shape[1], lanes(a)):
            products = multiply_add(load(a, r, c), load(b, r, c), products)
    return sum_of_lanes(products)


KERNELS = (forward_chunks, backward_chunks)
