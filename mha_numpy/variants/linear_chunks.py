"""Linear attention by chunks: matrix products inside a chunk, a state from chunk to chunk.

These are the equations of the recurrence in ``linear_attention.py``, solved for all tokens of a
chunk at once. A token is a row: q is (..., G, T, d_k), and what G query heads share is k
(..., 1, T, d_k), v (..., 1, T, d_v), the state (..., 1, d_k, d_v), beta (..., 1, T, 1) and decay
(..., 1, T, 1), or (..., 1, T, d_k) if each feature of the key fades at its own rate.
"""

from typing import NamedTuple

import numpy as np

from mha_numpy.core.grouped import matmul_visible
from mha_numpy.dtypes import Array


def chunk_steps(
    q: Array, k: Array, v: Array, decay: Array, beta: Array | None, state: Array, scale: float,
    chunk: int,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return the states before and after each chunk, what each token writes, and the output."""
    states, u, out = (
        [state],
        np.empty(v.shape, v.dtype),
        np.empty((*q.shape[:-1], v.shape[-1]), v.dtype),
    )
    for at in _chunks(q, chunk):
        q_c, k_c, v_c, state = q[..., at, :], k[..., at, :], v[..., at, :], states[-1]
        # 1. forget: what is left after fading
        left = fade(decay[..., at, :])

        # 2. delta rule: each token writes what the state before it lacks, which the chunk's tokens
        #    before it have changed: (1 + beta seen) u = beta (v - remembered)
        u_c = v_c
        if beta is not None:
            beta_c = beta[..., at, :]
            remembered = (k_c * left.from_start) @ state
            seen = np.tril(match(k_c, k_c, left), -1)  # strictly lower: not the token itself
            u_c = solve_unit_lower(beta_c * seen, beta_c * (v_c - remembered))
        u[..., at, :] = u_c

        # 3. write
        writes = (k_c * left.to_end).swapaxes(-1, -2) @ u_c
        states.append(left.of_state * state + writes)

        # 4. read: the state before the chunk, and what its tokens wrote since
        scores = match(q_c, k_c, left)  # lower: the token itself, too
        from_chunk = matmul_visible(scores, u_c, np.tri(scores.shape[-1], dtype=bool))
        out[..., at, :] = scale * ((q_c * left.from_start) @ state + from_chunk)
    return np.stack(states, axis=-3), u, out


def chunk_steps_backward(
    d_out: Array, d_state: Array, q: Array, k: Array, v: Array, decay: Array, beta: Array | None,
    states: Array, u: Array, scale: float, chunk: int,
) -> tuple[Array, Array, Array, Array, Array | None, Array]:  # fmt: skip
    """Pull back to q, k, v, log_decay, beta and the first state, from the last chunk to the first.

    A key counts three times: where its token reads by the delta rule (`d_k_read`), where others
    match it, and where it is written (both `d_k`).
    """
    d_q, d_k, d_v = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    d_log_decay = np.empty_like(k)
    d_beta = None if beta is None else np.empty_like(beta)
    for n, at in reversed([*enumerate(_chunks(q, chunk))]):
        q_c, k_c, u_c, state = q[..., at, :], k[..., at, :], u[..., at, :], states[..., n, :, :]
        left, next_state = fade(decay[..., at, :]), states[..., n + 1, :, :]
        d_next, d_out_c = d_state, scale * d_out[..., at, :]

        # 4. out = scale * (q from_start @ state + scores @ u)
        q_faded, scores = q_c * left.from_start, match(q_c, k_c, left)
        d_scores = np.tril(d_out_c @ u_c.swapaxes(-1, -2))
        d_q_c, d_k_c = match_backward(d_scores, q_c, k_c, left)
        d_q_c = d_q_c + left.from_start * (d_out_c @ state.swapaxes(-1, -2))
        # what a group shares gets the sum of its gradients
        d_k_c, d_u = _of_group(d_k_c), _of_group(scores.swapaxes(-1, -2) @ d_out_c)
        d_state = _of_group(q_faded.swapaxes(-1, -2) @ d_out_c)

        # 3. next_state = of_state state + (k to_end)^T u
        d_u = d_u + (k_c * left.to_end) @ d_next
        d_k_c = d_k_c + left.to_end * (u_c @ d_next.swapaxes(-1, -2))
        d_state = d_state + left.of_state * d_next

        # 2. (1 + beta seen) u = beta (v - remembered): the transposed system gives the way back
        d_v_c, d_k_read = d_u, np.zeros_like(k_c)
        if beta is not None and d_beta is not None:
            beta_c, k_faded = beta[..., at, :], k_c * left.from_start
            seen = np.tril(match(k_c, k_c, left), -1)
            d_written = solve_unit_lower_transposed(beta_c * seen, d_u)
            lacks = v[..., at, :] - k_faded @ state - seen @ u_c  # u = beta lacks
            d_beta[..., at, :] = (d_written * lacks).sum(axis=-1, keepdims=True)
            d_v_c = beta_c * d_written
            d_seen = -np.tril(d_v_c @ u_c.swapaxes(-1, -2), -1)
            d_k_read, d_k_seen = match_backward(d_seen, k_c, k_c, left)
            d_k_read = d_k_read - left.from_start * (d_v_c @ state.swapaxes(-1, -2))
            d_k_c = d_k_c + d_k_seen
            d_state = d_state - k_faded.swapaxes(-1, -2) @ d_v_c

        # 1. a product's log changes by what its factors change: what is read at token t has faded
        #    up to t, and what is written at t fades from there on
        d_fading = _of_group(q_c * d_q_c) + k_c * (d_k_read - d_k_c)
        d_fading[..., -1, :] += (d_next * next_state).sum(axis=-1)
        d_log_decay[..., at, :] = d_fading[..., ::-1, :].cumsum(axis=-2)[..., ::-1, :]
        d_q[..., at, :], d_k[..., at, :], d_v[..., at, :] = d_q_c, d_k_c + d_k_read, d_v_c
    return d_q, d_k, d_v, d_log_decay, d_beta, d_state


class Left(NamedTuple):
    """Which share is left after fading; each is a product of decays, so none can overflow."""

    from_start: Array  # (..., C, 1 or d_k): of the state before the chunk, at each token
    between: Array  # (..., C, C, 1 or d_k): at token i of what token j wrote; 1 where j >= i
    to_end: Array  # (..., C, 1 or d_k): of what each token wrote, at the chunk's end
    of_state: Array  # (..., 1 or d_k, 1): of the state before the chunk, at its end


def fade(decay: Array) -> Left:
    """Multiply up the decays of a chunk, (..., C, 1 or d_k)."""
    later = np.tri(decay.shape[-2], k=-1, dtype=bool)[..., None]  # i > j
    between = np.cumprod(np.where(later, decay[..., :, None, :], 1), axis=-3)
    from_start = np.cumprod(decay, axis=-2)
    of_state = from_start[..., -1:, :].swapaxes(-1, -2)
    return Left(from_start, between, between[..., -1, :, :], of_state)


def match(a: Array, b: Array, left: Left) -> Array:
    """Return (..., C, C): a_i · b_j for j <= i, faded from token j to token i; else 0."""
    if left.between.shape[-1] == 1:  # all features fade alike
        return np.tril((a @ b.swapaxes(-1, -2)) * left.between[..., 0])
    return np.tril(np.einsum("...ic,...jc,...ijc->...ij", a, b, left.between))


def match_backward(d_match: Array, a: Array, b: Array, left: Left) -> tuple[Array, Array]:
    """Pull the gradient, which is 0 for j > i, back to a and b."""
    if left.between.shape[-1] == 1:
        d_product = d_match * left.between[..., 0]
        return d_product @ b, d_product.swapaxes(-1, -2) @ a
    return (
        np.einsum("...ij,...jc,...ijc->...ic", d_match, b, left.between),
        np.einsum("...ij,...ic,...ijc->...jc", d_match, a, left.between),
    )


def solve_unit_lower(lower: Array, right: Array) -> Array:
    """Return x with (1 + lower) x = right, where `lower` is strictly lower triangular.

    Solve for the first half, subtract its part from the second, and solve for that.
    """
    half = lower.shape[-1] // 2
    if half == 0:
        return right
    first = solve_unit_lower(lower[..., :half, :half], right[..., :half, :])
    rest = right[..., half:, :] - lower[..., half:, :half] @ first
    return np.concatenate([first, solve_unit_lower(lower[..., half:, half:], rest)], axis=-2)


def solve_unit_lower_transposed(lower: Array, right: Array) -> Array:
    """Return x with (1 + lower)^T x = right: last to first, this matrix is a lower one, too."""
    flipped = lower.swapaxes(-1, -2)[..., ::-1, ::-1]
    return solve_unit_lower(flipped, right[..., ::-1, :])[..., ::-1, :]


def _chunks(q: Array, chunk: int) -> list[slice]:
    """Return where each chunk's tokens are; the last chunk may be shorter."""
    T = q.shape[-2]
    return [slice(first, min(first + chunk, T)) for first in range(0, T, chunk)]


def _of_group(x: Array) -> Array:
    """Sum over a group's heads, the third axis from the end."""
    return x.sum(axis=-3, keepdims=True) if x.shape[-3] > 1 else x
