"""Parts of the keys, merged; the sink, which is a part without an output."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from mha_numpy import attention_backward, attention_forward, merge_backward, merge_forward
from mha_numpy.checking.tracing import trace
from tests.checking.tracing.whole import assert_whole
from tests.compare import assert_close
from tests.core.configurations import attention_configuration
from tests.gradients import assert_gradients

ROOT = Path(__file__).parents[2]


def test_hand_computed_values():
    # shares 3/4 and 1/4; d_share = d_out . out_p = 4 and 8, whose mean is 5
    out, cache = merge_forward(np.array([[[4.0]], [[8.0]]]), np.log([[3.0], [1.0]]))
    assert_close(out, [[5.0]])
    assert_close(cache.lse, [np.log(4)])
    grads = merge_backward(np.array([[1.0]]), cache, d_lse=np.array([2.0]))
    assert_close(grads.d_outs, [[[0.75]], [[0.25]]])
    assert_close(grads.d_lses, [[0.75 * (4 - 5 + 2)], [0.25 * (8 - 5 + 2)]])


def attend_in_parts(q, k, v, cuts, **options):
    """Return out and lse of parts merged, and a function from d_out, d_lse to d_q, d_k, d_v."""
    parts = [attention_forward(q, k[..., s, :], v[..., s, :], **options) for s in cuts]
    out, merged = merge_forward([out for out, _ in parts], [cache.lse for _, cache in parts])

    def backward(d_out, d_lse):
        d_parts = merge_backward(d_out, merged, d_lse=d_lse)
        grads = [
            attention_backward(d, cache, d_lse=d_lse)
            for d, d_lse, (_, cache) in zip(*d_parts, parts, strict=True)
        ]
        d_k, d_v = (np.concatenate([g[n] for g in grads], axis=-2) for n in (1, 2))
        return sum(g.d_q for g in grads), d_k, d_v

    return out, merged.lse, backward


def test_parts_of_the_keys_make_a_whole(qkv, rng, backend):
    cuts = [slice(0, 1), slice(1, 5), slice(5, 7)]
    out, lse, backward = attend_in_parts(*qkv, cuts)
    whole, cache = attention_forward(*qkv)
    assert_close(out, whole)
    assert_close(lse, cache.lse)
    d_out, d_lse = rng.normal(size=out.shape), rng.normal(size=lse.shape)
    expected = attention_backward(d_out, cache, d_lse=d_lse)
    for found, array in zip(backward(d_out, d_lse), expected[:3], strict=True):
        assert_close(found, array)


def test_merging_by_twos_in_any_order_is_merging_at_once(rng):
    outs, lses = rng.normal(size=(3, 2, 5, 4)), 5 * rng.normal(size=(3, 2, 5))
    expected, whole = merge_forward(outs, lses)
    for order in [(0, 1, 2), (2, 0, 1)]:
        out, lse = outs[order[0]], lses[order[0]]
        for p in order[1:]:
            out, cache = merge_forward([out, outs[p]], [lse, lses[p]])
            lse = cache.lse
        assert_close(out, expected)
        assert_close(lse, whole.lse)


def test_a_part_that_saw_nothing_counts_for_nothing(rng):
    outs, lses = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3))
    lses[0, :2] = lses[1, 1] = -np.inf  # row 1 saw nothing anywhere
    outs[0, :2] = np.nan
    outs[1, 1] = np.nan
    out, cache = merge_forward(outs, lses)
    assert_close(out[0], outs[1, 0], "exact")
    assert_close(out[1], np.zeros(4), "exact")
    assert_close(cache.lse[:2], [lses[1, 0], -np.inf], "exact")
    grads = merge_backward(np.ones((3, 4)), cache, d_lse=np.ones(3))
    assert (grads.d_lses[0, :2] == 0).all()
    assert (grads.d_outs[:, 1] == 0).all()
    assert_close(grads.d_lses[1, 0], 1.0)  # the only part: lse is its own


def test_far_lses_do_not_overflow():
    out, cache = merge_forward(np.array([[[1.0]], [[2.0]]]), np.array([[1e8], [1e8]]))
    assert_close(out, [[1.5]])
    assert_close(cache.lse, [1e8 + np.log(2)])


@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 2, 2, 3, 4), (1, 3, 4)])
def test_gradients(rng, shape):
    def forward(outs, lses):
        out, cache = merge_forward(outs, lses)
        return np.concatenate([out, cache.lse[..., None]], axis=-1), cache

    def backward(d_both, cache):
        return merge_backward(d_both[..., :-1], cache, d_lse=d_both[..., -1])

    inputs = {"outs": rng.normal(size=shape), "lses": rng.normal(size=shape[:-1])}
    assert_gradients(forward, backward, inputs)


def test_dtypes_are_kept_and_float16_computes_in_float32(rng):
    outs, lses = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3))
    expected, _ = merge_forward(outs, lses)
    for dtype in (np.float16, np.float32):
        out, cache = merge_forward(outs.astype(dtype), lses.astype(dtype))
        grads = merge_backward(out, cache)
        assert {x.dtype for x in (out, *grads)} == {np.dtype(dtype)}
        assert cache.lse.dtype == np.float32
        assert_close(out, expected, np.dtype(dtype).name)
    assert merge_forward(outs.astype(np.float32), lses)[0].dtype == np.float64


@pytest.mark.parametrize("axes", [(), (2,), (2, 6)])
@pytest.mark.parametrize("is_blind", [False, True])
def test_a_trace_is_true(rng, axes, is_blind):
    outs, lses = rng.normal(size=(3, *axes, 5, 4)), rng.normal(size=(3, *axes, 5))
    if is_blind:
        lses[1] = -np.inf
    d_out, d_lse = rng.normal(size=(*axes, 5, 4)), rng.normal(size=(*axes, 5))
    for more in ({}, {"d_lse": d_lse}):
        with trace() as t:
            merge_backward(d_out, merge_forward(outs, lses)[1], **more)
        assert_whole(t, [outs, lses, d_out, d_lse])


@pytest.mark.parametrize("shape", [(2, 0, 4), (2, 3, 0), (2, 0, 3, 4)])
def test_empty_axes(shape):
    out, cache = merge_forward(np.zeros(shape), np.zeros(shape[:-1]))
    assert out.shape == shape[1:]
    assert merge_backward(out, cache).d_outs.shape == shape


class TestSink:
    @pytest.mark.parametrize("sink_axes", [(6,), (4, 6)])
    def test_is_a_merge_with_a_part_without_an_output(self, qkv, rng, backend, sink_axes):
        sink = rng.normal(size=sink_axes)
        out, cache = attention_forward(*qkv, sink=sink)
        plain, without = attention_forward(*qkv)
        gate = 1 / (1 + np.exp(sink[..., None] - without.lse))  # sigmoid(lse - sink)
        assert_close(out, plain * gate[..., None])
        empty = np.broadcast_to(sink[..., None], without.lse.shape)
        merged, merge_cache = merge_forward([plain, np.zeros_like(plain)], [without.lse, empty])
        assert_close(merged, out)
        assert_close(merge_cache.lse, cache.lse)

        d_out = rng.normal(size=out.shape)
        d_sink = attention_backward(d_out, cache).d_sink
        per_row = -(d_out * plain).sum(axis=-1) * gate * (1 - gate)
        assert_close(d_sink, per_row.sum(axis=-1 if len(sink_axes) == 2 else (0, 2)))

    def test_is_one_more_key_with_a_value_of_zeros(self, qkv, rng, backend):
        q, k, v = qkv
        sink = rng.normal(size=6)
        out, cache = attention_forward(q, k, v, sink=sink)
        k_more, v_more = (np.pad(x, [(0, 0), (0, 0), (0, 1), (0, 0)]) for x in (k, v))
        bias = np.zeros((6, 1, 8))
        bias[:, 0, -1] = sink
        expected, other = attention_forward(q, k_more, v_more, bias=bias)
        assert_close(out, expected)
        assert_close(cache.weights, other.weights[..., :-1])
        of_sink = np.exp(sink[:, None] - cache.lse)
        assert_close(cache.weights.sum(axis=-1) + of_sink, np.ones_like(of_sink))

    def test_of_minus_infinity_is_none(self, qkv, backend):
        mask = np.arange(5)[:, None] != np.full(7, 2)  # row 2 sees nothing
        found, cache = attention_forward(*qkv, mask=mask, sink=np.full(6, -np.inf))
        expected, other = attention_forward(*qkv, mask=mask)
        assert_close(found, expected, "exact")
        assert_close(cache.lse, other.lse, "exact")
        assert (attention_backward(found, cache).d_sink == 0).all()

    def test_in_a_row_that_sees_nothing_takes_all(self, qkv, backend):
        out, cache = attention_forward(*qkv, mask=np.zeros(7, bool), sink=np.arange(6.0))
        assert (out == 0).all()
        assert_close(cache.lse, np.broadcast_to(np.arange(6.0)[:, None], (4, 6, 5)))
        grads = attention_backward(out + 1, cache, d_lse=np.ones((4, 6, 5)))
        assert (grads.d_q == 0).all()
        assert_close(grads.d_sink, np.full(6, 4 * 5.0))  # lse is the sink: a slope of 1 each

    def test_far_above_all_scores_leaves_nothing(self, qkv, backend):
        out, cache = attention_forward(*qkv, sink=np.full(6, 1e4))
        assert (out == 0).all()
        assert_close(cache.lse, np.full((4, 6, 5), 1e4))


@pytest.mark.kernel
def test_a_kernel_cuts_many_keys_into_parts(rng):
    q, k, v = rng.normal(size=(1, 4, 3, 16)), *rng.normal(size=(2, 1, 2, 3 * 4096 + 5, 16))
    bias = np.where(rng.random((1, 1, 3, k.shape[2])) < 0.1, -np.inf, 1.0)
    many = {"bias": bias, "dropout_mask": 2.0 * (bias[..., ::-1] > 0), "softcap": 3.0}
    for options in (
        {},
        {"sink": rng.normal(size=4)},
        {"q_offset": 9000, "window": (4500, 0)},
        many,
    ):
        expected, reference = attention_forward(q, k, v, **options)
        out, cache = attention_forward(q, k, v, **options, backend="numba")
        assert_close(out, expected)
        assert_close(cache.lse, reference.lse)
        d_out = rng.normal(size=out.shape)
        found, wanted = attention_backward(d_out, cache), attention_backward(d_out, reference)
        for name, array in wanted._asdict().items():
            if array is not None:
                assert_close(getattr(found, name), array, name=name)


def test_all_options_in_parts(rng, backend):
    """A cut through the keys cuts mask and bias too, and moves the first key."""
    for seed in range(0, 40, 5):
        inputs, options = attention_configuration(seed)
        if inputs["k"].shape[-2] < 2:
            continue
        gate = inputs.pop("head_gate", None)
        out, cache = attention_forward(**inputs, **options, head_gate=gate)
        parts = []
        for keys in (slice(0, 1), slice(1, None)):
            cut = partial(cut_keys, keys=keys)
            of_part = {name: cut(name, x) for name, x in (inputs | options).items()}
            of_part["q_offset"] = np.asarray(options.get("q_offset", 0)) - keys.start
            if keys.start:
                of_part.pop("sink", None)  # counts once
            parts.append(attention_forward(**of_part, head_gate=gate))
        merged, merge_cache = merge_forward([o for o, _ in parts], [c.lse for _, c in parts])
        assert_close(merged, out)
        assert_close(merge_cache.lse, cache.lse)


def cut_keys(name, value, keys):
    """Return an argument of attention for some of the keys."""
    if name in ("k", "v"):
        return value[..., keys, :]
    if name in ("mask", "bias", "dropout_mask") and value.ndim and value.shape[-1] > 1:
        return value[..., keys]
    return value


@pytest.mark.slow
def test_the_example_of_a_cluster_gives_what_one_machine_gives():
    pytest.importorskip("distributed")
    example = (ROOT / "docs/examples/keys_on_workers.py").read_text(encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=True, timeout=120
    )
    differences = dict(re.findall(r"(\w+): largest difference (\S+)", result.stdout))
    assert differences.keys() == {"out", "d_q", "d_k", "d_v"}
    assert max(map(float, differences.values())) < 1e-12
