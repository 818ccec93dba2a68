"""find_step: the lines of a student's own function in which the numbers cease to be right."""

from copy import deepcopy

import numpy as np
import pytest

from mha_numpy.teach.diagnosis import TASKS, Variant, steps, using
from mha_numpy.teach.diagnosis.fingerprints import attempt
from mha_numpy.teach.diagnosis.solutions import read_solutions
from mha_numpy.teach.diagnosis.steps import find_step
from mha_numpy.teach.diagnosis.variables import traced
from mha_numpy.teach.exercises import find_exercise, judge
from mha_numpy.teach.exercises.causes import AtHand
from mha_numpy.teach.exercises.judge import judge_answers, probe_inputs
from mha_numpy.teach.exercises.sandbox import LIMITS, run_calls
from tests.sweeps import sweep

NOWHERE = "is the first of your variables whose numbers occur nowhere in our solution"
HEADS = """
def attention(q, k, v):
    s = q @ k.T / np.sqrt({width})
    w = np.exp(s - s.max(axis=-1, keepdims=True))
    w /= w.sum(axis={axis}, keepdims=True)
    return w @ v
"""
IN_TURN = """
def attention(q, k, v):
    scale = np.sqrt(q.shape[-1])
    out = np.empty((len(q), v.shape[-1]))
    for i, row in enumerate(q):
        w = np.exp(k @ row / scale)
        out[i] = (w / (1 + w.sum())) @ v
    return out
"""
BLOCKS = """
def online_attention(q, k, v, block):
    top, total, out = np.full((len(q), 1), -np.inf), np.zeros((len(q), 1)), 0
    for at in range(0, len(k), block):
        s = q @ k[at : at + block].T / np.sqrt(q.shape[-1])
        new = np.maximum(top, s.max(axis=-1, keepdims=True))
        old, e = np.exp(top - new), np.exp(s - new)
        total = total + e.sum(axis=-1, keepdims=True)
        out = out * old + e @ v[at : at + block]
        top = new
    return out / total
"""
VARIANCE = """
def layer_norm(x, gain, bias, eps):
    mu = x.mean(axis=-1, keepdims=True)
    var = (x**2).mean(axis=-1, keepdims=True) - mu
    normed = (x - mu) / np.sqrt(var + eps)
    return normed * gain + bias
"""
PASSED = """
def sum_over_group(d_per_query_head, num_kv_heads):
    B, H, T, d = d_per_query_head.shape
    if num_kv_heads == 1:
        return d_per_query_head
    return d_per_query_head.reshape(B, num_kv_heads, -1, T, d).sum(axis=2)
"""
CHANGED = """
def gelu(x):
    inner = x
    inner += 0.044715 * x**3
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * inner))
"""
HEAD_0 = """
def attention_backward(d_heads, q, k, v, weights):
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for b in range(len(q)):
        for h in range(q.shape[1]):
            w, g = weights[b, h], d_heads[b, h]
            mean = (w @ v[b, 0] * g).sum(-1, keepdims=True)
            d_s = w * (g @ v[b, h].T - mean) / np.sqrt(q.shape[-1])
            d_q[b, h] = d_s @ k[b, h]
            d_k[b, h] = d_s.T @ q[b, h]
            d_v[b, h] = w.T @ g
    return d_q, d_k, d_v
"""
UNTURNED = """
def d_head_gate(d_gated, heads):
    B, H, T, d = heads.shape
    left = d_gated.transpose(0, 2, 1, 3).reshape(B * T, H, d)
    right = heads.reshape(B * T, H, d)
    return np.einsum("nhc,nhc->h", left, right)
"""
BEST = """
def strongest_keys(weights):
    H, T_q, T_k = weights.shape
    out = np.zeros((H, T_q), int)
    for h in range(H):
        for i in range(T_q):
            best, at = 0.3, 0
            for j in range(T_k):
                if weights[h, i, j] > best:
                    best, at = weights[h, i, j], j
            out[h, i] = at
    return out
"""
SCALED = """
def attention_backward(d_heads, q, k, v, weights):
    a, b = q / np.sqrt(q.shape[-1]), k / np.sqrt(q.shape[-1])
    d_w = d_heads @ v.swapaxes(-1, -2)
    d_s = weights * (d_w - (weights * d_w).sum(-1, keepdims=True) ** 2)
    return d_s @ b, d_s.swapaxes(-1, -2) @ a, weights.swapaxes(-1, -2) @ d_heads
"""
SHIFTED = """
def masked_attention(q, k, v, mask, softcap):
    B, H, T, d = q.shape
    s = q.reshape(B, k.shape[1], -1, T, d) @ k[:, :, None].swapaxes(-1, -2)
    cap = 1e30 if softcap is None else softcap
    see = np.array(np.broadcast_to(mask[:, :, None], s.shape))
    see[..., 1:] &= see[..., :-1]
    x = cap * np.tanh(s / np.sqrt(d) / cap) - np.where(see, 0, np.inf)
    top = x.max(axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    e = np.exp(x - top)
    total = e.sum(axis=-1, keepdims=True)
    out = e / np.where(total == 0, 1, total) @ v[:, :, None]
    return out.reshape(B, H, T, -1)
"""
HIDDEN = """
def masked_attention(q, k, v, mask, softcap):
    s = q @ k.repeat(q.shape[1] // k.shape[1], axis=1).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    s = s if softcap is None else softcap * np.tanh(s / softcap)
    block = np.where(mask, 0, np.inf)
    x = s * (1 + np.arange(s.shape[2])[:, None]) - np.sqrt(block)
    top = x.max(axis=-1, keepdims=True)
    e = np.exp(x - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v.repeat(q.shape[1] // k.shape[1], axis=1)
"""
ROWS = """
def backward_from_lse(d_heads, q, k, v, heads, lse, mask):
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for b, h, i in np.ndindex(*lse.shape):
        seen = np.flatnonzero(mask[i])
        if len(seen):
            keys, g = k[b, h, seen], d_heads[b, h, i]
            w = np.exp(keys @ q[b, h, i] / np.sqrt(q.shape[-1]) - lse[b, h, i])
            d_w = v[b, h, : len(seen)] @ g
            d_s = w * (d_w - g @ heads[b, h, i]) / np.sqrt(q.shape[-1])
            d_q[b, h, i] = d_s @ keys
            d_k[b, h, seen] += np.outer(d_s, q[b, h, i])
            d_v[b, h, seen] += np.outer(w, g)
    return d_q, d_k, d_v
"""
COUNTED = """
def masked_attention(q, k, v, mask, softcap):
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        keys, values = (a[b, h // (q.shape[1] // k.shape[1])] for a in (k, v))
        see = mask[b, 0, i]
        if see.any():
            s = keys[see] @ q[b, h, i] / np.sqrt(q.shape[-1])
            s = s if softcap is None else softcap * np.tanh(s / softcap)
            w = np.exp(s - s.max())
            out[b, h, i] = (w / len(w)) @ values[see]
    return out
"""
ALL_NAN = """
def attention(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[-1])
    w = s / np.zeros_like(s) * 0
    return w @ v
"""
CASES = [
    (ALL_NAN, f"`w` in line 4 {NOWHERE}: some are NaN or infinite; those of `s` do; look at lines"),
    (COUNTED, f"`out` in line 11 {NOWHERE}; those of `values`, `see` and `w` do; look at line 11"),
    (BEST, f"`out` in line 11 {NOWHERE}"),
    (SCALED, f"`d_s` in line 5 {NOWHERE}; those of `d_w` do; look at lines 5 to 6"),
    (SHIFTED, f"`see` in line 7 {NOWHERE}; look at lines 7 to 14"),
    (HIDDEN, f"`block` in line 5 {NOWHERE}; those of `s` do"),
    (ROWS, f"`d_s` in line 10 {NOWHERE}"),
    (HEAD_0, f"`mean` in line 7 {NOWHERE}; in the first round of the loop it is right"),
    (UNTURNED, "look at lines 4 to 6"),
    (HEADS.format(width="v.shape[-1]", axis=-1), f"`s` in line 3 {NOWHERE}: they are np.sqrt(d_k) "
     "/ np.sqrt(d_v) times numbers that do; look at lines 3 to 6"),
    (HEADS.format(width="q.shape[-1]", axis=0), f"`w` in line 5 {NOWHERE}; look at lines 5 to 6"),
    (IN_TURN, f"`w` in line 6 {NOWHERE}: some are NaN or infinite; those of `row` do; look at "
     "lines 6 to 7"),
    (BLOCKS, f"`total` in line 8 {NOWHERE}; in the first round of the loop it is right; those of "
     "`e` and `out` do; look at lines 8 to 11"),
    (VARIANCE, f"`var` in line 4 {NOWHERE}; those of `mu` do; look at lines 4 to 6"),
    (CHANGED, "the input `x` is changed in place, in line 4 or before"),
    (PASSED, "look at line 5"),
]  # fmt: skip


def load(code):
    names = {"np": np}
    exec(code, names)
    return names[code.split("(")[0].split()[-1]]


def step_of(task, function):
    probes = TASKS[task].probes()
    call = traced(function)
    return find_step(task, [attempt(call, deepcopy(probe), (Exception,)) for probe in probes])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("code", "words"), CASES)
def test_the_first_wrong_step_is_told_and_so_it_is_on_other_inputs(code, words):
    function = load(code)
    assert step_of(function.__name__, function).startswith(words)
    with using(Variant(seed=1)):
        assert step_of(function.__name__, function).startswith(words)


@pytest.mark.parametrize("task", sweep(TASKS, 12))
def test_nothing_is_told_of_a_right_function(task):
    function = read_solutions().namespace[task]
    assert step_of(task, function) == ""


def test_without_a_trace_nothing_is_computed(monkeypatch):
    monkeypatch.setattr(steps, "numbers_of_ours", None)
    assert find_step("gelu", [None] * len(TASKS["gelu"].probes())) == ""
    assert find_step("gelu", []) == ""


def test_a_function_without_python_code_has_no_steps():
    assert step_of("gelu", np.tanh) == ""


def test_a_verdict_tells_the_step():
    verdict = judge(find_exercise("layer-norm"), lambda: load(VARIANCE))
    assert verdict.remarks["clue"].startswith("`var` in line 4")


def test_nan_that_comes_about_in_another_way_is_not_called_by_a_known_mistake():
    def softmax(scores, mask):
        mask = np.ones(scores.shape, bool) if mask is None else mask
        top = np.where(mask, scores, -np.inf).max(axis=-1, keepdims=True)
        powers = np.exp(scores - np.where(np.isfinite(top), top, 0)) * mask
        total = powers.sum(axis=-1, keepdims=True)
        return powers / np.where(total == 0, 1, total)

    exercise, count = find_exercise("softmax"), []
    run = run_calls(lambda: softmax, probe_inputs(exercise), LIMITS)

    def trace():
        count.append(1)  # NaN is confirmed, and a step looked for, by the same calls
        return [traced(softmax)(**deepcopy(probe)) for probe in TASKS["softmax"].probes()]

    with np.errstate(all="ignore"):
        verdict = judge_answers(exercise, run, at_hand=AtHand(trace))
    assert len(count) == 1
    assert "likely cause" not in verdict.remarks
    assert verdict.remarks["clue"].startswith("`powers` in line ")
    assert ": some are NaN or infinite" in verdict.remarks["clue"]


def test_a_mask_times_infinity_is_named_also_where_it_is_subtracted():
    def masked_attention(q, k, v, mask, softcap):
        k, v = (a.repeat(q.shape[1] // a.shape[1], axis=1) for a in (k, v))
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        s = s if softcap is None else softcap * np.tanh(s / softcap)
        block = (1 - mask) * np.inf
        x = s - block
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True) @ v

    verdict = judge(find_exercise("masked-attention"), lambda: masked_attention)
    assert "0 * -inf = NaN" in verdict.remarks["likely cause"]


def test_a_maximum_that_the_heads_of_a_group_share_is_not_right():
    def grouped_attention(q, k, v):
        B, H, T, d = q.shape
        grouped = q.reshape(B, k.shape[1], -1, T, d)
        s = grouped @ k[:, :, None].swapaxes(-1, -2) / np.sqrt(d)
        w = np.exp(s - s.max(axis=(2, 4), keepdims=True))
        return (w / w.sum(axis=-1, keepdims=True) @ v[:, :, None]).reshape(B, H, T, -1)

    verdict = judge(find_exercise("grouped-attention"), lambda: grouped_attention)
    assert {stage.name for stage in verdict.stages if stage.passed is False} == {"invariants"}
