"""What a trace of linear attention notes: the recurrence, token by token.

``state_t``, ``kept_t`` and ``u_t`` belong to token t; ``states``, ``kept`` and ``u`` stack them.
"""

import numpy as np

from mha_numpy.core.pair import Records, Values
from mha_numpy.dtypes import Array
from mha_numpy.steps import step

LEADING = {2: "", 3: "B ", 4: "B H_kv "}  # axes, by rank


def record_recurrence(values: Values) -> Records:
    """Yield the steps of forward, and add to the values what they name."""
    q, k, log_decay, beta, states, u = (
        values[name] for name in ("q", "k", "log_decay", "beta", "states", "u")
    )
    leading, T = LEADING[k.ndim], k.shape[-2]
    yield "q", f"{leading}T d_k".replace("H_kv", "H"), ""
    yield "k", f"{leading}T d_k", ""
    yield "v", f"{leading}T d_v", ""
    yield "scale", ""
    kept = states[..., :-1, :, :]
    if log_decay is not None:
        per_feature = log_decay.ndim == k.ndim
        axes = f"{leading}T d_k" if per_feature else f"{leading}T"
        values["decay"] = decay = np.exp(log_decay)
        yield "log_decay", axes, ""
        yield "decay", axes, "np.exp(log_decay)"
        kept = kept * (decay[..., None] if per_feature else decay[..., None, None])
    yield "beta", f"{leading}T", ""
    if values["state"] is None:
        values["state"] = states[..., 0, :, :]
        yield "state", f"{leading}d_k d_v"
    else:
        yield "state", f"{leading}d_k d_v", ""
    before, names = "state", []
    for t in range(T):
        values |= {
            f"kept_{t}": kept[..., t, :, :], f"u_{t}": u[..., t, :],
            f"state_{t}": states[..., t + 1, :, :],
        }  # fmt: skip
        names.append(before)
        if log_decay is not None:
            names[t] = f"kept_{t}"
            faded = f"decay[..., {t}, :, None]" if per_feature else f"decay[..., {t}, None, None]"
            yield names[t], f"{leading}d_k d_v", f"{faded} * {before}"
        lacks = f"v[..., {t}, :] - (k[..., {t}, None, :] @ {names[t]})[..., 0, :]"
        written = f"v[..., {t}, :]" if beta is None else f"beta[..., {t}, None] * ({lacks})"
        yield f"u_{t}", f"{leading}d_v", written
        wrote = f"k[..., {t}, :, None] * u_{t}[..., None, :]"
        before = f"state_{t}"
        yield before, f"{leading}d_k d_v", f"{names[t]} + {wrote}"
    if T:
        values |= {"kept": kept, "states": states[..., 1:, :, :]}
        yield "kept", f"{leading}T d_k d_v", f"np.stack([{', '.join(names)}], axis=-3)"
        yield "u", f"{leading}T d_v", _stack("u", T, -2)
        yield "states", f"{leading}T d_k d_v", _stack("state", T, -3)
        equation = f"scale * (q[..., None, :] @ {_states_of(q, k)})[..., 0, :]"
        yield "out", f"{leading}T d_v".replace("H_kv", "H"), equation
        values["states"] = states  # for the cache


def record_recurrence_backward(
    q: Array, k: Array, log_decay: Array | None, beta: Array | None, d_out: Array,
    d_final: Array | None, d_states: list[Array], grads: tuple[Array | None, ...],
) -> None:  # fmt: skip
    """Record backward; chunks record nothing."""
    d_q, d_k, d_v, d_log_decay, d_beta, d_first = grads
    leading, T = LEADING[k.ndim], k.shape[-2]
    of_queries = leading.replace("H_kv", "H")
    if not d_states or d_v is None or d_q is None or d_k is None:
        return
    step("d_out", d_out, f"{of_queries}T d_v")
    later = [] if d_final is None else ["d_final_state"]
    if d_final is not None:
        step("d_final_state", d_final, f"{leading}d_k d_v")
    rows = "q[..., {t}, :, None] * d_out[..., {t}, None, :]"
    if q.shape[:-2] != k.shape[:-2]:  # what a group shares gets the sum of its gradients
        groups = f".reshape(B, H_kv, {q.shape[1] // k.shape[1]}, T, d_"
        rows = f"q{groups}k)[..., {{t}}, :, None] * d_out{groups}v)[..., {{t}}, None, :]"
        rows = f"({rows}).sum(axis=2)"
    per_feature = log_decay is not None and log_decay.ndim == k.ndim
    for t, d_state in zip(reversed(range(T)), d_states, strict=True):
        read = f"scale * {rows.format(t=t)}"
        step(f"d_state_{t}", d_state, f"{leading}d_k d_v", " + ".join([*later, read]))
        d_u = f"(k[..., {t}, None, :] @ d_state_{t})[..., 0, :]"
        d_u = d_u if beta is None else f"beta[..., {t}, None] * {d_u}"
        step(f"d_v_{t}", d_v[..., t, :], f"{leading}d_v", d_u)
        d_kept = f"d_state_{t}"
        if beta is not None:
            d_kept = f"({d_kept} - k[..., {t}, :, None] * d_v_{t}[..., None, :])"
        faded = f"decay[..., {t}, :, None]" if per_feature else f"decay[..., {t}, None, None]"
        later = [d_kept if log_decay is None else f"{faded} * {d_kept}"]
    step("d_v", d_v, f"{leading}T d_v", _stack("d_v", T, -2))
    stacked = np.stack(d_states[::-1], axis=-3)
    step("d_states", stacked, f"{leading}T d_k d_v", _stack("d_state", T, -3))
    equation = f"scale * (d_out[..., None, :] @ {_states_of(q, k)}.swapaxes(-1, -2))[..., 0, :]"
    step("d_q", d_q, f"{of_queries}T d_k", equation)
    by_delta = "" if beta is None else " - (kept @ d_v[..., None])[..., 0]"
    step("d_k", d_k, f"{leading}T d_k", f"(d_states @ u[..., None])[..., 0]{by_delta}")
    if d_log_decay is not None:
        by_delta = "" if beta is None else " - k[..., :, None] * d_v[..., None, :]"
        equation = f"((d_states{by_delta}) * kept).sum(axis=-1)"
        axes, total = ("T d_k", "") if per_feature else ("T", ".sum(axis=-1)")
        step("d_log_decay", d_log_decay, leading + axes, equation + total)
    if d_beta is not None:
        d_u, lacks = (f"(k[..., None, :] @ {x})[..., 0, :]" for x in ("d_states", "kept"))
        step("d_beta", d_beta, f"{leading}T", f"({d_u} * (v - {lacks})).sum(axis=-1)")
    if d_first is not None:
        step("d_state", d_first, f"{leading}d_k d_v", later[0])


def _stack(name: str, T: int, axis: int) -> str:
    """Write a stack of what each token has."""
    return f"np.stack([{', '.join(f'{name}_{t}' for t in range(T))}], axis={axis})"


def _states_of(q: Array, k: Array) -> str:
    """Write the state after each token, once for each query head."""
    G = q.shape[1] // k.shape[1] if q.ndim == 4 else 1
    return "states" if G == 1 else f"states.repeat({G}, axis=1)"
