"""Linear attention with decay and delta rule: a state of fixed size instead of a row of weights.

The equations come first, token by token. ``linear_chunks.py`` has them for a chunk of tokens at
once, and ``mha_numpy.kernels`` computes the same. The public functions follow.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import LINEAR_ATTENTION_KERNELS
from mha_numpy.checks import check_choice, check_count, check_number, check_shape, check_type
from mha_numpy.core.grouped import group_heads
from mha_numpy.core.pair import Pair, Values
from mha_numpy.dtypes import Array
from mha_numpy.errors import ShapeError
from mha_numpy.steps import is_watched
from mha_numpy.variants.causal_conv import with_final_gradient
from mha_numpy.variants.linear_chunks import chunk_steps, chunk_steps_backward
from mha_numpy.variants.linear_recording import (
    LEADING,
    record_recurrence,
    record_recurrence_backward,
)


def recurrence_steps(
    q: Array, k: Array, v: Array, decay: Array, beta: Array | None, state: Array, scale: float
) -> tuple[Array, Array, Array]:
    """Return the state before and after each token, what each token writes, and the output.

    A token is a row: q is (..., G, T, d_k), and what its G query heads share is k (..., 1, T, d_k),
    v (..., 1, T, d_v), beta (..., 1, T, 1), decay (..., 1, T, 1 or d_k) and the state
    (..., 1, d_k, d_v).
    """
    states, u, out = (
        [state],
        np.empty(v.shape, v.dtype),
        np.empty((*q.shape[:-1], v.shape[-1]), v.dtype),
    )
    for t in range(q.shape[-2]):
        q_t, k_t, v_t = q[..., [t], :], k[..., [t], :], v[..., [t], :]
        # 1. forget
        kept = decay[..., [t], :].swapaxes(-1, -2) * states[-1]  # (..., 1, d_k, d_v)

        # 2. delta rule: write only what the state lacks
        u_t = v_t if beta is None else beta[..., [t], :] * (v_t - k_t @ kept)

        # 3. write
        states.append(kept + k_t.swapaxes(-1, -2) @ u_t)

        # 4. read
        out[..., [t], :] = scale * (q_t @ states[-1])
        u[..., [t], :] = u_t
    return np.stack(states, axis=-3), u, out


def recurrence_steps_backward(
    d_out: Array, d_state: Array, q: Array, k: Array, v: Array, decay: Array, beta: Array | None,
    states: Array, u: Array, scale: float,
) -> tuple[Array, Array, Array, Array, Array | None, Array, list[Array]]:  # fmt: skip
    """Pull back to q, k, v, log_decay, beta and the first state, from the last token to the first.

    Last come the gradients of the state after each token, from the last one on.
    """
    d_q, d_k, d_v = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    d_log_decay = np.empty_like(k)
    d_beta = None if beta is None else np.empty_like(beta)
    d_states = []
    for t in reversed(range(q.shape[-2])):
        q_t, k_t, v_t, u_t = q[..., [t], :], k[..., [t], :], v[..., [t], :], u[..., [t], :]
        decay_t = decay[..., [t], :].swapaxes(-1, -2)
        kept = decay_t * states[..., t, :, :]

        # 4. out = scale * q @ state; a state that a group shares gets the sum of its gradients
        d_out_t = scale * d_out[..., [t], :]
        d_q[..., [t], :] = d_out_t @ states[..., t + 1, :, :].swapaxes(-1, -2)
        d_state = d_state + (q_t.swapaxes(-1, -2) @ d_out_t).sum(axis=-3, keepdims=True)
        d_states.append(d_state)

        # 3. state = kept + k^T u
        d_u = k_t @ d_state
        d_k_t = u_t @ d_state.swapaxes(-1, -2)
        d_kept = d_state

        # 2. u = beta * (v - k @ kept)
        d_v_t = d_u
        if beta is not None and d_beta is not None:
            d_v_t = beta[..., [t], :] * d_u
            d_beta[..., [t], :] = (d_u * (v_t - k_t @ kept)).sum(axis=-1, keepdims=True)
            d_k_t = d_k_t - d_v_t @ kept.swapaxes(-1, -2)
            d_kept = d_kept - k_t.swapaxes(-1, -2) @ d_v_t

        # 1. kept = e^log_decay * state
        d_log_decay[..., [t], :] = (d_kept * kept).sum(axis=-1)[..., None, :]
        d_state = decay_t * d_kept
        d_k[..., [t], :], d_v[..., [t], :] = d_k_t, d_v_t
    return d_q, d_k, d_v, d_log_decay, d_beta, d_state, d_states


def recurrence_steps_jvp(
    q_dot: Array, k_dot: Array, v_dot: Array, log_decay_dot: Array | None, beta_dot: Array | None,
    state_dot: Array, q: Array, k: Array, v: Array, decay: Array, beta: Array | None,
    state: Array, scale: float,
) -> tuple[Array, Array]:  # fmt: skip
    """Push the tangents from the first token to the last: to the output and the last state."""
    out_dot = np.empty((*q.shape[:-1], v.shape[-1]), state_dot.dtype)
    for t in range(q.shape[-2]):
        q_t, k_t, v_t = q[..., [t], :], k[..., [t], :], v[..., [t], :]
        q_dot_t, k_dot_t, v_dot_t = q_dot[..., [t], :], k_dot[..., [t], :], v_dot[..., [t], :]
        # 1. kept = e^log_decay * state
        decay_t = decay[..., [t], :].swapaxes(-1, -2)
        kept, kept_dot = decay_t * state, decay_t * state_dot
        if log_decay_dot is not None:
            kept_dot = kept_dot + log_decay_dot[..., [t], :].swapaxes(-1, -2) * kept

        # 2. u = beta * (v - k @ kept)
        u_t, u_dot_t = v_t, v_dot_t
        if beta is not None and beta_dot is not None:
            lacks, lacks_dot = v_t - k_t @ kept, v_dot_t - k_dot_t @ kept - k_t @ kept_dot
            u_t = beta[..., [t], :] * lacks
            u_dot_t = beta_dot[..., [t], :] * lacks + beta[..., [t], :] * lacks_dot

        # 3. state = kept + k^T u
        state = kept + k_t.swapaxes(-1, -2) @ u_t
        state_dot = kept_dot + k_dot_t.swapaxes(-1, -2) @ u_t + k_t.swapaxes(-1, -2) @ u_dot_t

        # 4. out = scale * q @ state
        out_dot[..., [t], :] = scale * (q_dot_t @ state + q_t @ state_dot)
    return out_dot, state_dot


def linear_attention_steps(
    q: Array, k: Array, v: Array, log_decay: Array | None, beta: Array | None,
    state: Array | None, scale: float, form: str, chunk: int,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return the states, what each token writes, and the output, by one of the forms."""
    given: Any = (*_in_rows(q, k, v, log_decay, beta, state), scale)
    if form == "recurrence":
        states, u, out = recurrence_steps(*given)
    else:
        states, u, out = chunk_steps(*(*given, chunk))
    return states[..., 0, :, :, :], u[..., 0, :, :], out.reshape(*q.shape[:-1], v.shape[-1])


def linear_attention_steps_backward(
    d_out: Array, d_final_state: Array | None, q: Array, k: Array, v: Array,
    log_decay: Array | None, beta: Array | None, state: Array | None, states: Array, u: Array,
    scale: float, form: str, chunk: int,
) -> tuple[Array, Array, Array, Array | None, Array | None, Array | None]:  # fmt: skip
    """Pull back through the same form, from the gradients of the output and of the last state."""
    *rows, d_last = _in_rows(q, k, v, log_decay, beta, d_final_state)
    d_out_rows = d_out.reshape(*rows[0].shape[:-1], v.shape[-1])
    given: Any = (
        d_out_rows, d_last, *rows, states[..., None, :, :, :], u[..., None, :, :], scale
    )  # fmt: skip
    d_rows: Any
    d_states: list[Array] = []
    if form == "recurrence":
        *d_rows, d_states = recurrence_steps_backward(*given)
        d_states = [d_state_t[..., 0, :, :] for d_state_t in d_states]
    else:
        d_rows = chunk_steps_backward(*(*given, chunk))
    d_q, d_k, d_v, d_log_decay, d_beta, d_first = d_rows
    d_log_decay = d_log_decay[..., 0, :, :]  # of each feature
    if log_decay is not None and log_decay.ndim < k.ndim:
        d_log_decay = d_log_decay.sum(axis=-1)
    grads = (
        d_q.reshape(q.shape), d_k[..., 0, :, :], d_v[..., 0, :, :],
        None if log_decay is None else d_log_decay,
        None if d_beta is None else d_beta[..., 0, :, 0],
        None if state is None else d_first[..., 0, :, :],
    )  # fmt: skip
    if is_watched():
        record_recurrence_backward(q, k, log_decay, beta, d_out, d_final_state, d_states, grads)
    return grads


def linear_attention_steps_jvp(
    q_dot: Array, k_dot: Array, v_dot: Array, log_decay_dot: Array | None, beta_dot: Array | None,
    state_dot: Array | None, q: Array, k: Array, v: Array, log_decay: Array | None,
    beta: Array | None, state: Array | None, scale: float,
) -> tuple[Array, Array]:  # fmt: skip
    """Push the tangents forward by the recurrence, whichever form forward had."""
    dots: Any = _in_rows(q_dot, k_dot, v_dot, None, beta_dot, state_dot)
    if log_decay_dot is not None:
        of_features = log_decay_dot.ndim == k.ndim
        log_decay_dot = log_decay_dot if of_features else log_decay_dot[..., None]
        log_decay_dot = log_decay_dot[..., None, :, :]
    rows = _in_rows(q, k, v, log_decay, beta, state)
    given: Any = (*dots[:3], log_decay_dot, *dots[4:], *rows, scale)
    out_dot, last_dot = recurrence_steps_jvp(*given)
    return out_dot.reshape(*q.shape[:-1], v.shape[-1]), last_dot[..., 0, :, :]


def _in_rows(
    q: Array, k: Array, v: Array, log_decay: Array | None, beta: Array | None, state: Array | None
) -> tuple[Any, ...]:
    """Give all arrays an axis for the heads of a group, and numbers per token an axis of one."""
    decay = np.ones((k.shape[-2], 1), k.dtype)
    if log_decay is not None:
        decay = np.exp(log_decay if log_decay.ndim == k.ndim else log_decay[..., None])
        decay = decay[..., None, :, :]
    if state is None:
        state = np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]), k.dtype)
    return (
        group_heads(q, k.shape[1]) if q.ndim == 4 else q[..., None, :, :],
        k[..., None, :, :], v[..., None, :, :], decay,
        None if beta is None else beta[..., None, :, None], state[..., None, :, :],
    )  # fmt: skip


class LinearAttentionCache(NamedTuple):
    """What `linear_attention_backward` needs, and the state to continue from."""

    q: Array  # (B, H, T, d_k)
    k: Array  # (B, H_kv, T, d_k)
    v: Array  # (B, H_kv, T, d_v)
    log_decay: Array | None  # (B, H_kv, T) or (B, H_kv, T, d_k)
    beta: Array | None  # (B, H_kv, T)
    state: Array | None  # (B, H_kv, d_k, d_v)
    states: Array  # (B, H_kv, N + 1, d_k, d_v): first, and after each token or chunk
    u: Array  # (B, H_kv, T, d_v): what each token writes
    scale: float
    form: str
    chunk: int
    d_final_state: Array | None  # backward's last argument
    dtype: np.dtype[Any]
    backend: str

    @property
    def final_state(self) -> Array:
        """The state after the last token, (B, H_kv, d_k, d_v), in the dtype of the computation."""
        return self.states[..., -1, :, :]


class LinearAttentionGrads(NamedTuple):
    """Gradients, in the order of the inputs; None for an input that was not passed."""

    d_q: Array  # (B, H, T, d_k)
    d_k: Array  # (B, H_kv, T, d_k)
    d_v: Array  # (B, H_kv, T, d_v)
    d_log_decay: Array | None  # like log_decay
    d_beta: Array | None  # (B, H_kv, T)
    d_state: Array | None  # (B, H_kv, d_k, d_v): of the first state


class LinearAttentionTangents(NamedTuple):
    """Tangents of the output and of the state to continue from."""

    out_dot: Array  # (B, H, T, d_v)
    final_state_dot: Array  # (B, H_kv, d_k, d_v)


def linear_attention_forward(
    q: Array,
    k: Array,
    v: Array,
    *,
    log_decay: Array | None = None,
    beta: Array | None = None,
    state: Array | None = None,
    scale: float | None = None,
    form: str = "chunks",
    chunk: int | None = None,
) -> tuple[Array, LinearAttentionCache]:
    """Let each token write into a state of fixed size, and read from it with its query.

    ``S_t = a_t S_(t-1) + k_t u_t^T``, ``out_t = scale * q_t S_t`` with ``a_t = e^log_decay_t``.
    A plain sum writes ``u_t = v_t``; the delta rule, with `beta`, writes what the state lacks,
    ``u_t = beta_t (v_t - a_t S_(t-1)^T k_t)``.

    Parameters
    ----------
    q : (B, H, T, d_k), (B, T, d_k) or (T, d_k) float array
        Queries; a single head has no head axis.
    k : (B, H_kv, T, d_k) float array, or of lower rank like `q`
        Keys. Where H_kv < H, it divides H and query head h reads state ``h // (H // H_kv)``.
    v : (B, H_kv, T, d_v) float array, or of lower rank like `q`
        Values.
    log_decay : (B, H_kv, T) or (B, H_kv, T, d_k) float array, optional
        Log of the factor by which a state is multiplied before a token writes: for all of it, or
        for each feature of the key. At most 0, as a rule; -inf forgets everything.
    beta : (B, H_kv, T) float array, optional
        Between 0, which writes nothing, and 1, after which the state maps a key of length 1 to
        exactly its value. Passing it chooses the delta rule, which wants keys of length 1.
    state : (B, H_kv, d_k, d_v) float array, optional
        What to start from, such as the ``final_state`` of a cache. Default: zeros.
    scale : float, optional
        Default ``1 / sqrt(d_k)``.
    form : {"recurrence", "chunks", "product"}
        How to compute it; all agree to rounding. "product" is a single chunk.
    chunk : int, optional
        Tokens in a chunk; default 64, or 16 where each feature has its own decay.

    Returns
    -------
    out : (B, H, T, d_v) array, or of lower rank like `q`
    cache : LinearAttentionCache
        With ``cache.final_state``, to continue from; decoding a token is a call with T = 1.

    Notes
    -----
    For each head, the recurrence takes 4 T d_k d_v floating-point operations, and its cache has a
    state for each token. Chunks of C tokens take 4 T d_k d_v + 2 T C (d_k + d_v), and keep a state
    for each chunk. A product takes 2 T^2 (d_k + d_v), and T^2 numbers. A delta rule adds about half
    as much; a decay of each feature multiplies what is not a product with the state. The "numba"
    backend computes chunks of 64 tokens without such a decay; the equations compute everything
    else. A recorder sees the recurrence, in whichever form you ask for.
    The factors of a chunk are products of decays, never quotients, so strong decay cannot
    overflow. In the output, NaN reaches only its own and later tokens; in the gradients of chunks,
    it may reach all tokens of its chunk.
    Sources: sum: Katharopoulos et al. 2020, *Transformers are RNNs*, sections 3.2 to 3.4; delta
    rule: Schlag et al. 2021, *Linear transformers are secretly fast weight programmers*, section 4;
    decay: Sun et al. 2023, *Retentive network*, section 2.1; of each feature: Yang et al. 2023,
    *Gated linear attention transformers*, section 4; both: Yang et al. 2024, *Gated delta
    networks*, section 3; delta rule in chunks: Yang et al. 2024, *Parallelizing linear transformers
    with the delta rule*, section 3.
    Derivation: ``docs/linear-attention.md``.

    Examples
    --------
    >>> k, v = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[3.0], [5.0]])
    >>> linear_attention_forward(k, k, v, scale=1.0)[0]  # both values, added up
    array([[3.],
           [8.]])
    >>> out, cache = linear_attention_forward(k, k, v, beta=np.ones(2), scale=1.0)
    >>> out  # the second value in the place of the first
    array([[3.],
           [5.]])
    >>> cache.final_state
    array([[5.],
           [0.]])
    """
    return LINEAR_ATTENTION.forward(
        q=q, k=k, v=v, log_decay=log_decay, beta=beta, state=state, scale=scale, form=form,
        chunk=chunk, d_final_state=None,
    )  # fmt: skip


def linear_attention_backward(
    d_out: Array, cache: LinearAttentionCache, *, d_final_state: Array | None = None
) -> LinearAttentionGrads:
    """Pull a gradient back through linear attention, from the last token to the first.

    Parameters
    ----------
    d_out : (B, H, T, d_v) float array, or of lower rank like the output
    cache : LinearAttentionCache
    d_final_state : (B, H_kv, d_k, d_v) float array, optional
        The gradient of the final state, from what continued from it.

    Returns
    -------
    LinearAttentionGrads
        The last one is that of the state to start from, to be passed on as `d_final_state`.

    Examples
    --------
    >>> k, v = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[3.0], [5.0]])
    >>> out, cache = linear_attention_forward(k, k, v, beta=np.ones(2), scale=1.0)
    >>> linear_attention_backward(np.array([[0.0], [1.0]]), cache).d_v  # the first is forgotten
    array([[0.],
           [1.]])
    """
    check_type("cache", cache, LinearAttentionCache, "linear_attention_forward")
    cache = with_final_gradient(cache, d_final_state)
    return LINEAR_ATTENTION.backward(d_out, cache)


def linear_attention_jvp(tangents: Any, cache: LinearAttentionCache) -> LinearAttentionTangents:
    """Push tangents through linear attention, from the first token to the last.

    Parameters
    ----------
    tangents : tuple or dict
        In the order q, k, v, log_decay, beta, state, or by name. None does not move.
    cache : LinearAttentionCache
        From any form of forward.

    Returns
    -------
    LinearAttentionTangents
        The second one is that of ``cache.final_state``, to be passed on as that of `state`.

    Examples
    --------
    >>> x = np.ones((3, 2))
    >>> out, cache = linear_attention_forward(x, x, x, scale=1.0)
    >>> linear_attention_jvp({"v": x}, cache).out_dot  # linear in v: its own output again
    array([[2., 2.],
           [4., 4.],
           [6., 6.]])
    """
    return LINEAR_ATTENTION.jvp(tangents, cache)


FORMS = ("recurrence", "chunks", "product")
CHUNK, CHUNK_OF_FEATURES = 64, 16


def _check(values: Values) -> None:
    """Check all shapes, and decide on the form."""
    q, k, log_decay = values["q"], values["k"], values["log_decay"]
    if q.ndim not in LEADING:
        raise ShapeError(f"q: expected (B, H, T, d_k), (B, T, d_k) or (T, d_k); got {q.shape}")
    leading, to_match = LEADING[q.ndim], f"q {q.shape}"
    sizes: dict[str, int] = {}
    per_feature = log_decay is not None and log_decay.ndim == q.ndim
    check_shape("q", q, f"{leading.replace('H_kv', 'H')}T d_k", sizes)
    check_shape("k", k, f"{leading}T d_k", sizes, to_match=to_match)
    if q.ndim == 4 and (k.shape[1] == 0 or q.shape[1] % k.shape[1]):
        raise ShapeError(
            f"k: expected (B, H_kv, T, d_k) with H_kv dividing H={q.shape[1]} to match q "
            f"{q.shape}; got {k.shape}"
        )
    others = {"v": "T d_v", "log_decay": "T d_k" if per_feature else "T", "beta": "T",
              "state": "d_k d_v"}  # fmt: skip
    for name, axes in others.items():
        if values[name] is not None:
            check_shape(name, values[name], leading + axes, sizes, to_match=to_match)
    if values["scale"] is None:
        values["scale"] = 1 / math.sqrt(q.shape[-1] or 1)
    if is_watched():
        values["form"] = "recurrence"
    if values["chunk"] is None:
        values["chunk"] = CHUNK_OF_FEATURES if per_feature else CHUNK
    if values["form"] == "product":
        values["chunk"] = max(q.shape[-2], 1)


def _is_covered(k: Array, log_decay: Array | None, form: str, chunk: int) -> bool:
    per_head = log_decay is None or log_decay.ndim < k.ndim
    return k.ndim == 4 and per_head and form == "chunks" and chunk == CHUNK


def _kernel(kernels: Any, *given: Any) -> Any:
    if _is_covered(given[1], given[3], *given[-2:]):
        computed = kernels.linear_attention(*given[:-2])
        if np.isfinite(computed[-1]).all():  # a kernel spreads NaN over its chunk
            return computed
    return linear_attention_steps(*given)


def _kernel_backward(kernels: Any, *given: Any) -> Any:
    d_out, d_final, q, k, v, log_decay, beta, state, states, u, scale, form, chunk = given
    if not _is_covered(k, log_decay, form, chunk):
        return linear_attention_steps_backward(*given)
    *d_qkv, d_log_decay, d_beta, d_first = kernels.linear_attention_backward(
        d_out.astype(q.dtype, copy=False),
        None if d_final is None else d_final.astype(q.dtype, copy=False),
        q, k, v, log_decay, beta, states, u, scale,
    )  # fmt: skip
    return (
        *d_qkv, None if log_decay is None else d_log_decay, None if beta is None else d_beta,
        None if state is None else d_first,
    )  # fmt: skip


LINEAR_ATTENTION = Pair(
    linear_attention_steps,
    linear_attention_steps_backward,
    linear_attention_steps_jvp,
    LinearAttentionCache,
    LinearAttentionGrads,
    inputs=dict.fromkeys(("q", "k", "v", "log_decay", "beta", "state"), ""),
    tangents=LinearAttentionTangents,
    optional=("log_decay", "beta", "state"),
    options={
        "scale": lambda name, scale: None if scale is None else check_number(name, scale),
        "form": lambda name, form: check_choice(name, form, FORMS),
        "chunk": lambda name, chunk: None if chunk is None else check_count(name, chunk),
    },
    check=_check,
    computes="states u out",
    kernels=LINEAR_ATTENTION_KERNELS,
    kernel=_kernel,
    kernel_backward=_kernel_backward,
    like=lambda cache: ((*cache.q.shape[:-1], cache.v.shape[-1]), cache.q.dtype),
    records=record_recurrence,
)
