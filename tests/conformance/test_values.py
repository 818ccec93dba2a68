"""The expected numbers, confirmed by plain loops and by numerical derivatives."""

import math

import numpy as np
import pytest

from mha_numpy.checking import gradcheck
from mha_numpy.conformance import cases, solve
from mha_numpy.core import attention_forward, rope_forward
from mha_numpy.core.options import OPTIONS
from tests.compare import GRADIENT_ERRORS, assert_close
from tests.core.naive import naive_attention

EACH_CASE = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)


def turned(x, *, interleaved, base):
    """Turn each pair of features of each token, one after the other."""
    out, half = x.copy(), x.shape[-1] // 2
    for *at, token, pair in np.ndindex(*x.shape[:-1], half):
        a, b = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + half)
        angle = token * base ** (-pair / half)
        row, new = x[(*at, token)], out[(*at, token)]
        new[a] = row[a] * math.cos(angle) - row[b] * math.sin(angle)
        new[b] = row[b] * math.cos(angle) + row[a] * math.sin(angle)
    return out


def split(case):
    """Return inputs in float64, the options of attention, and those of the rotation before it."""
    inputs = {name: x.astype(np.float64) for name, x in case.inputs.items()}
    rope = {n.removeprefix("rope_"): x for n, x in case.options.items() if n.startswith("rope_")}
    return inputs, {n: x for n, x in case.options.items() if not n.startswith("rope_")}, rope


@EACH_CASE
def test_loops_give_the_same_values(case):
    inputs, options, rope = split(case)
    if rope:
        inputs |= {name: turned(inputs[name], **rope) for name in "qk"}
    by_loops = zip(("out", "weights", "lse"), naive_attention(**inputs, **options), strict=True)
    for name, array in by_loops:
        assert_close(solve(case)[name], array, "framework", name=name)


@EACH_CASE
def test_derivatives_give_the_same_gradients(case):
    """NaN and infinity cannot be moved; no query sees them, so that other numbers do as well."""
    inputs, options, rope = split(case)
    if not all(x.size for x in inputs.values()):
        assert not any(solve(case)[f"d_{name}"].any() for name in inputs)
        return
    for name in {"q", "k", "v", *inputs} - {"bias", "sink"}:
        inputs[name][~np.isfinite(inputs[name])] = 0.5
    if "bias" in inputs:
        inputs["bias"][np.isnan(inputs["bias"])] = 0.5

    def forward(q, k, **rest):
        if rope:
            q, k = rope_forward(q, **rope)[0], rope_forward(k, **rope)[0]
        return attention_forward(q, k, **rest, **options)[0]

    grads = {f"d_{name}": solve(case)[f"d_{name}"] for name in inputs}
    d_out = case.d_out.astype(np.float64)
    report = gradcheck(forward, lambda d_out, **inputs: grads, inputs, d_out=d_out)
    assert report, str(report)
    assert max(report.errors("complex step").values()) <= GRADIENT_ERRORS["complex step"]


def test_every_option_of_core_has_a_case():
    named = {name for case in cases() for name in (*case.inputs, *case.options)}
    assert {*OPTIONS} - {"backend"} <= named


@EACH_CASE
def test_every_option_matters(case):
    """Without it the output is another; only a number added to a whole row changes nothing."""
    inputs, options, _ = split(case)
    names = [*options, *(inputs.keys() - {"q", "k", "v"})]
    for name in [] if case.name == "bias-B-1-T_q-1" else names:
        rest = case._replace(
            inputs={n: x for n, x in case.inputs.items() if n != name},
            options={n: x for n, x in case.options.items() if n != name},
        )
        with np.errstate(invalid="ignore"):  # of infinity that was hidden
            assert not np.allclose(solve(rest)["out"], solve(case)["out"]), name
