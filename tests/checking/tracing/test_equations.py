"""A trace is true: every equation of every step is computed anew from what is on record."""

import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest

from mha_numpy import (
    KVCache,
    MultiHeadParams,
    RopeOptions,
    attention_backward,
    attention_forward,
    attention_jvp,
)
from mha_numpy.checking.tracing import Trace, trace
from mha_numpy.core import (
    FullMultiHeadParams,
    QKNormOptions,
    YarnScaling,
    constant,
    multi_head_attention_decode,
    softmax_backward,
    softmax_forward,
    step,
)
from mha_numpy.core.attention_jvp import MOVING
from mha_numpy.core.qk_norm import GAIN_AXES
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.variants import (
    DifferentialParams,
    differential_attention_forward,
    differential_attention_jvp,
)
from tests.checking.tracing.whole import (
    assert_equations_hold,
    assert_whole,
    trace_attention,
    trace_both,
    trace_multi_head,
)
from tests.compare import assert_close
from tests.core.configurations import attention_configuration
from tests.core.test_gradients import multi_head_configuration
from tests.slopes import random_tangents

B, H, H_KV, T_Q, T_K, D, KDIM, VDIM, D_K, D_V, D_OUT = 3, 6, 2, 4, 5, 7, 8, 9, 10, 11, 12


OPTIONS = {  # of attention, each alone
    "nothing": lambda rng: {},
    "mask": lambda rng: {"mask": rng.random((B, 1, T_Q, T_K)) < 0.7},
    "a row that sees nothing": lambda rng: {"mask": np.arange(T_Q)[:, None] != np.ones(T_K)},
    "bias": lambda rng: {"bias": rng.normal(size=(H, 1, T_K))},
    "a bias of each head": lambda rng: {"bias": rng.normal(size=(H, 1, 1))},
    "a bias of -inf": lambda rng: {"bias": np.where(rng.random((T_Q, T_K)) < 0.2, -np.inf, 1.5)},
    "causal": lambda rng: {"is_causal": True},
    "causal with an offset": lambda rng: {"is_causal": True, "q_offset": 2},
    "an offset of each sequence": lambda rng: {"is_causal": True, "q_offset": np.arange(B)},
    "window": lambda rng: {"window": (1, 2), "q_offset": 1},
    "softcap": lambda rng: {"softcap": 1.5},
    "scale": lambda rng: {"scale": 0.3},
    "dropout": lambda rng: {"dropout_mask": (rng.random((B, H, T_Q, T_K)) > 0.3) / 0.7},
    "a sink of each head": lambda rng: {"sink": rng.normal(size=H)},
    "a sink of each sequence": lambda rng: {"sink": rng.normal(size=(B, H))},
    "a sink far above": lambda rng: {"sink": 1000 + rng.normal(size=H), "mask": np.ones(T_K, bool)},
    "a gate of each head": lambda rng: {"head_gate": rng.normal(size=H)},
    "a gate of each sequence": lambda rng: {"head_gate": rng.normal(size=(B, H))},
}


def some_params(rng, biases, *, kdim=KDIM, vdim=VDIM):
    """Return params, with the biases of the letters in `biases`."""
    shapes = {"q": (D, H * D_K), "k": (kdim, H_KV * D_K), "v": (vdim, H_KV * D_V),
              "o": (H * D_V, D_OUT)}  # fmt: skip
    arrays = {f"w_{letter}": rng.normal(size=shape) / 3 for letter, shape in shapes.items()}
    for letter, (_, width) in shapes.items():
        arrays[f"b_{letter}"] = rng.normal(size=width) if letter in biases else None
    return MultiHeadParams(**arrays)


def trace_layer(rng, given="xkv", biases="qkvo", **options):
    """Trace both passes of a layer; `given` says which inputs are: x alone, xk or xkv."""
    kdim = KDIM if "k" in given else D
    vdim = VDIM if "v" in given else kdim
    inputs = [rng.normal(size=(B, T_Q, D))]
    if "k" in given:
        inputs.append(rng.normal(size=(B, T_K, KDIM)))
    if "v" in given:
        inputs.append(rng.normal(size=(B, T_K, VDIM)))
    params = some_params(rng, biases, kdim=kdim, vdim=vdim)
    return trace_multi_head(rng, *inputs, params=params, num_heads=H, num_kv_heads=H_KV, **options)


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_alone(rng, option):
    assert_equations_hold(trace_layer(rng, **OPTIONS[option](rng)))


def extra_keys(rng, E=2):
    return {
        "extra_k": rng.normal(size=(E, H_KV * D_K)), "extra_v": rng.normal(size=(E, H_KV * D_V)),
    }  # fmt: skip


@pytest.mark.parametrize("option", [*OPTIONS, "one number as bias", "a mask of each query"])
def test_each_option_with_extra_keys(rng, option):
    more = {"one number as bias": {"bias": np.array(0.5)},
            "a mask of each query": {"mask": rng.random((T_Q, 1)) < 0.5}}  # fmt: skip
    options = more[option] if option in more else OPTIONS[option](rng)
    if option == "dropout":
        options["dropout_mask"] = (rng.random((B, H, T_Q, T_K + 2)) > 0.3) / 0.7
    t = trace_layer(rng, **options, **extra_keys(rng))
    assert_equations_hold(t)
    names = [s.name for s in t]
    assert len(names) == len(set(names))
    assert (t.sizes["T_kv"], t.sizes["T_k"], t.sizes["E"]) == (T_K, T_K + 2, 2)


@pytest.mark.parametrize("seed", range(30))
def test_options_together_at_every_rank(seed, rng):
    inputs, options = attention_configuration(seed)
    t = trace_attention(rng, **inputs, **options)
    d_out = next(step.array for step in t if step.is_backward)
    assert_whole(t, [*inputs.values(), *options.values(), d_out])
    assert t.sizes["d_k"] == inputs["q"].shape[-1]


@pytest.mark.parametrize("seed", range(30))
def test_forward_mode_at_every_rank(seed):
    inputs, options = attention_configuration(seed)
    moving = {name: x for name, x in {**inputs, **options}.items() if name in MOVING}
    tangents = random_tangents(moving, seed)
    with trace() as t:
        _, cache = attention_forward(**inputs, **options)
        tangents_of_outputs = attention_jvp(tangents, cache)
    given = [*inputs.values(), *options.values(), *tangents.values()]
    if "sink_dot" in t:  # another array, if a sink is -inf
        assert_close(t["sink_dot"], tangents["sink"], "exact")
        given.append(t["sink_dot"])
    assert_whole(t, given)
    names = [step.name for step in t]
    out_dot = t["gated_dot" if "gated_dot" in t else "heads_dot"]
    assert_close(tangents_of_outputs.out_dot, out_dot, "exact")
    assert_close(tangents_of_outputs.lse_dot, t["lse_dot"], "exact")
    assert {f"{name}_dot" for name in moving} <= set(names)
    assert names.index("scores_dot") < names.index("lse_dot") < names.index("heads_dot")


def test_an_equation_may_be_the_first_to_call_a_method_of_numpy():
    """NumPy imports a part of itself then, for which an equation has no builtins."""
    code = (
        "import ast, numpy as np; x = np.ones(2);"
        "from mha_numpy.checking.tracing.equations import evaluate;"
        "tree = ast.parse('x.mean() + x.min() + x.std()', mode='eval').body;"
        "print(evaluate(tree, {'x': x}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2.0\n"


def test_after_two_forwards_a_tangent_could_mean_either(rng):
    q, k, v = rng.normal(size=(3, 4, 5))
    with trace() as t:
        _, first = attention_forward(q, k, v)
        attention_forward(2 * q, k, v)
        attention_jvp({"k": k}, first)
    with pytest.raises(ConfigError, match="scores_dot: its equation cannot be computed"):
        t.evaluate("scores_dot")
    assert t.steps[-1].as_dict()["pass"] == "forward mode"


def test_forward_mode_of_differential_attention(rng):
    """Each of the two attentions has its place, as in the forward pass."""
    q1, k1, q2, k2, v = rng.normal(size=(5, 2, 3, 4, 5))
    params = DifferentialParams(*rng.normal(size=(4, 5)), rng.normal(size=5))
    with trace() as t:
        _, cache = differential_attention_forward(
            q1, k1, q2, k2, v, params=params, lambda_init=0.3, is_causal=True
        )
        differential_attention_jvp({"q1": q1, "k2": q2, "v": v}, cache)
    assert_equations_hold(t)
    assert {"first.weights_dot", "second.weights_dot"} <= {step.name for step in t}


@pytest.mark.parametrize("seed", range(40))
def test_options_of_a_layer_together(seed, rng):
    inputs, options = multi_head_configuration(seed)
    t = trace_multi_head(rng, **inputs, **options)
    assert_equations_hold(t)
    assert t.sizes["H"] == options["num_heads"]
    names = [s.name for s in t]
    assert len(names) == len(set(names))
    for name in names:
        if f"d_{name}" in names:
            assert t[f"d_{name}"].shape == t[name].shape


@pytest.mark.parametrize("biases", ["", "qkvo", "qo", "kv"])
@pytest.mark.parametrize("given", ["x", "xk", "xkv"])
def test_self_and_cross_with_and_without_biases(rng, given, biases):
    t = trace_layer(rng, given, biases)
    assert_equations_hold(t)
    for letter in "qkvo":
        name = "out" if letter == "o" else f"{letter}_projected"
        (equation,) = (s.equation for s in t if s.name == name)
        assert (f"b_{letter}" in equation) == (letter in biases)
        cell = (0,) * t[name].ndim
        assert (f"of b_{letter}" in t.explain(name, cell)) == (letter in biases)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_rope(rng, interleaved, rotary_dim):
    scaling = None if rotary_dim is None else YarnScaling(4.0, 20)
    rope = RopeOptions(interleaved=interleaved, rotary_dim=rotary_dim, scaling=scaling)
    assert_equations_hold(trace_layer(rng, "x", rope=rope, q_offset=np.arange(B)))
    extra = extra_keys(rng)
    assert_equations_hold(trace_layer(rng, "x", rope=rope, q_offset=np.arange(B), **extra))


def around(rng, place="heads", per_head=False, D=D):
    """Return what norms queries and keys and gates the output: new params, and the option."""
    widths = [H * D_K, H_KV * D_K] if place == "projection" else [D_K, D_K]
    gates = H if per_head else H * D_V
    arrays = {"gain_q": widths[0], "gain_k": widths[1], "w_gate": (D, gates), "b_gate": gates}
    return {name: rng.normal(size=size) for name, size in arrays.items()}, QKNormOptions(place, 0.1)


@pytest.mark.parametrize("rope", [None, RopeOptions()])
@pytest.mark.parametrize("place", GAIN_AXES)
@pytest.mark.parametrize("E", [0, 2])
def test_norms_and_gates(rng, place, rope, E):
    extra = extra_keys(rng, E) if E else {}
    params = some_params(rng, "kvo", kdim=D, vdim=D)
    for per_head, lacks in ((False, []), (True, ["gain_q", "b_gate"])):
        arrays, qk_norm = around(rng, place, per_head)
        arrays |= dict.fromkeys(lacks)
        full = FullMultiHeadParams(*params, **arrays)
        t = trace_multi_head(
            rng, rng.normal(size=(B, T_Q, D)), params=full, num_heads=H, num_kv_heads=H_KV,
            rope=rope, qk_norm=qk_norm, **extra,
        )  # fmt: skip
        assert_equations_hold(t)
        names = [s.name for s in t]
        assert len(names) == len(set(names))
        assert {f"d_{name}" in t for name in lacks} <= {False}
        for name in arrays.keys() - set(lacks):
            assert t[f"d_{name}"].shape == arrays[name].shape
        assert (t["gate"].shape[-1] == H) == per_head
        after = {"projection": "q_normed", "heads": "q_unrotated" if rope else "q", "rotated": "q"}
        assert names[names.index("q_hat") + 1] == after[place]


@pytest.mark.parametrize("E", [0, 2])
@pytest.mark.parametrize("rope", [None, RopeOptions()])
@pytest.mark.parametrize("biases", ["", "qkvo"])
@pytest.mark.parametrize("is_normed", [False, True])
def test_decoding(rng, is_normed, biases, rope, E):
    params, kv_cache = some_params(rng, biases, kdim=D, vdim=D), KVCache()
    options = {"params": params, "num_heads": H, "num_kv_heads": H_KV, "rope": rope}
    options |= extra_keys(rng, E) if E else {}
    if is_normed:
        arrays, options["qk_norm"] = around(rng, "projection" if rope is None else "rotated")
        options["params"] = FullMultiHeadParams(*params, **arrays)
    for T in (3, 1):  # a prompt, then one token
        x = rng.normal(size=(B, T, D))
        with trace() as t:
            multi_head_attention_decode(x, kv_cache=kv_cache, is_causal=True, **options)
        assert_equations_hold(t)
    assert (t.sizes["T_q"], t.sizes["T_k"]) == (1, 4 + E)
    names = [s.name for s in t]
    assert (names[0], names[1], names[-1]) == ("x_q", "q_projected", "out")
    between = "k_new v_new q k_past v_past k v merged"
    assert set(between.split()) <= set(names)
    told = "came from x_q[1,0,:] and column 13 of w_k"
    first = "k_new_unrotated" if rope else "k_new_projected" if is_normed else "k_new"
    assert told in t.explain(first, (1, 0, 13) if first == "k_new_projected" else (1, 1, 0, 3))


@pytest.mark.parametrize("is_masked", [False, True])
def test_softmax_alone(rng, is_masked):
    scores = rng.normal(size=(B, T_Q, T_K))
    mask = np.arange(T_Q)[:, None] > np.arange(T_K) if is_masked else None  # row 0 sees nothing
    assert_equations_hold(trace_both(softmax_forward, softmax_backward, scores, rng=rng, mask=mask))


@pytest.mark.parametrize("scale", [1000.0, -1000.0])
def test_scores_that_overflow(rng, scale):
    qkv = rng.normal(size=(3, T_Q, D_K))
    assert_equations_hold(trace_attention(rng, *qkv, scale=scale, is_causal=True))
    with trace() as t:
        softmax_forward(np.array([[-1000.0, -1001.0]]))
    assert_equations_hold(t)


def test_a_bias_without_axes(rng):
    t = trace_attention(rng, *rng.normal(size=(3, T_Q, D_K)), bias=np.array(0.5))
    assert_equations_hold(t)
    assert t.explain("biased", (0, 1)) == "biased[0,1] came from scores[0,1] and bias"


@pytest.mark.parametrize("narrow", [np.float16, np.float32])
def test_dtypes_that_are_promoted(rng, narrow):
    """Attention computes in a wider dtype: its inputs are no new arrays, and keep their origin."""
    params = some_params(rng, "qkvo", kdim=D, vdim=D)
    params = MultiHeadParams._make(a.astype(narrow) for a in params)._replace(w_k=params.w_k)
    x = rng.normal(size=(B, T_Q, D)).astype(narrow)
    t = trace_multi_head(rng, x, params=params, num_heads=H, num_kv_heads=H_KV)
    names = [s.name for s in t]
    assert len(names) == len(set(names))
    assert "of w_q" in t.explain("q", (0, 0, 0, 0))
    for s in t:
        if s.equation:
            assert np.allclose(t.evaluate(s.name), s.array, rtol=0.05, atol=0.05), s.name


class TestSeveralPasses:
    def test_the_same_input_comes_again(self, rng):
        q, other, k, v = rng.normal(size=(4, T_Q, D_K))
        with trace() as t:
            for one in (q, other, q):
                attention_forward(one, k, v)
        assert_close(t.evaluate("scores"), t["scores"])

    def test_layers_of_other_sizes(self, rng):
        with trace() as t:
            for heads in (4, 2):
                layer = MultiHeadAttention(8, heads, value_dim=heads + 1, rng=0)
                layer(rng.normal(size=(2, 3, 8)))
        assert_close(t.evaluate("merged"), t["merged"])

    def test_a_backward_does_not_take_the_constants_of_another(self, rng):
        q, k, v = rng.normal(size=(3, T_Q, D_K))
        with trace() as t:
            out, cache = attention_forward(q, k, v, scale=0.1)
            softmax_forward(rng.normal(size=3))
            constant("scale", 0.9)
            attention_backward(out.copy(), cache)
        with pytest.raises(ConfigError, match="scale"):
            t.evaluate("d_q")

    def test_what_comes_later_takes_nothing_away(self, rng):
        q, other, k, v = rng.normal(size=(4, T_Q, D_K))
        with trace() as t:
            out, cache = attention_forward(q, k, v, scale=0.1)
            attention_backward(out.copy(), cache)
            attention_forward(other, k, v, scale=0.9)
        assert_close(t.evaluate("d_k"), t["d_k"])


@pytest.mark.parametrize(
    ("equation", "axes", "wrong"),
    [
        ("x @ w", "T F", None),
        ("2 * x @ w", "T F", r"y = 2 \* x @ w: off by"),
        ("x @ w + b", "T F", r"y = x @ w \+ b: off by"),  # which was not added
        ("x @ w", "T D", "y: expected"),
    ],
)
def test_what_is_not_true_is_noticed(rng, equation, axes, wrong):
    x, w, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 5)), rng.normal(size=5)
    with trace() as t:
        step("x", x, "T D")
        constant("w", w, "D F")
        constant("b", b, "F")
        step("y", x @ w, axes, equation)
    with pytest.raises((AssertionError, ShapeError), match=wrong) if wrong else nullcontext():
        assert_equations_hold(t)


def test_an_input_has_no_equation(rng):
    with trace() as t:
        step("x", rng.normal(size=3), "T")
        step("y", rng.normal(size=3), "T", "the mean of x")
        step("z", rng.normal(size=3), "T", "x + noise")
    for name, words in (("x", "an input"), ("y", "`the mean of x`"), ("z", "noise")):
        with pytest.raises(ConfigError, match=words):
            t.evaluate(name)
    assert isinstance(t, Trace)
