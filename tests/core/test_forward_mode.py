"""Forward mode and second derivatives of attention, against complex steps and each other."""

from functools import partial

import numpy as np
import pytest

from mha_numpy import core, layers, variants
from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.core import (
    FullMultiHeadParams,
    attention_backward,
    attention_backward_jvp,
    attention_double_backward,
    attention_forward,
    attention_jvp,
    linear_forward,
    linear_jvp,
    merge_backward,
    merge_forward,
    merge_jvp,
    multi_head_attention_backward,
    multi_head_attention_forward,
    multi_head_attention_jvp,
    relative_bias_backward,
    relative_bias_forward,
    relative_bias_jvp,
    rope_backward,
    rope_forward,
    rope_jvp,
    softmax_backward,
    softmax_forward,
    softmax_jvp,
)
from mha_numpy.errors import ConfigError, DTypeError, ShapeError
from tests.backends import BACKENDS_UNDER_TEST, EACH_BACKEND
from tests.compare import assert_close
from tests.core.configurations import SEEDS, attention_configuration
from tests.core.test_gradients import multi_head_configuration
from tests.slopes import assert_forward_mode, assert_slopes, inner_product, random_tangents, slopes
from tests.sweeps import sweep


def with_lse(**arguments):
    """Attend; return out and lse, 0 for a row that sees nothing."""
    out, cache = attention_forward(**arguments)
    return out, np.where(cache.lse == -np.inf, 0, cache.lse)


@pytest.mark.parametrize("backend", EACH_BACKEND)
@pytest.mark.parametrize("seed", sweep(SEEDS, 30, every=3))
def test_attention(seed, backend):
    inputs, options = attention_configuration(seed)
    tangents = random_tangents(inputs, seed)
    _, cache = attention_forward(**inputs, **options, backend=backend)
    expected = slopes(partial(with_lse, **options), inputs, tangents)
    assert_slopes(attention_jvp(tangents, cache), expected)


@pytest.mark.parametrize("backward", BACKENDS_UNDER_TEST)
@pytest.mark.parametrize("forward", BACKENDS_UNDER_TEST)
@pytest.mark.parametrize("seed", sweep(range(300), 10, every=5))
def test_forward_mode_and_backward_are_transposes(seed, forward, backward):
    """<u, J v> = <J^T u, v>, u of the outputs and v of the inputs."""
    inputs, options = attention_configuration(seed)
    out, cache = attention_forward(**inputs, **options, backend=forward)
    rng, tangents = np.random.default_rng(seed), random_tangents(inputs, seed)
    d_out, d_lse = rng.normal(size=out.shape), rng.normal(size=cache.lse.shape)
    out_dot, lse_dot = attention_jvp(tangents, cache)
    grads = attention_backward(d_out, cache, d_lse=d_lse, backend=backward)._asdict()
    columns, size = inner_product([(d_out, out_dot), (d_lse, lse_dot)])
    rows, more = inner_product([(grads[f"d_{name}"], dot) for name, dot in tangents.items()])
    assert abs(columns - rows) <= 1e-12 * max(1, size, more)


@pytest.mark.kernel
@pytest.mark.parametrize("options", [{"is_causal": True}, {"window": (600, 100)}, {"sink": True}])
def test_chunks_of_keys(options):
    """More keys than a chunk has, and more tiles than meet it at once."""
    rng, options = np.random.default_rng(0), dict(options)
    inputs = dict(zip("qkv", rng.normal(size=(3, 1, 2, 1300, 64)), strict=True))
    if options.pop("sink", False):
        inputs["sink"] = rng.normal(size=2)
    tangents, found = random_tangents(inputs, 0), []
    for backend in ("numpy", "numba"):
        _, cache = attention_forward(**inputs, **options, backend=backend)
        found.append(attention_jvp(tangents, cache))
    for expected, array in zip(*found, strict=True):
        assert_close(array, expected)


@pytest.mark.kernel
def test_the_same_for_any_number_of_threads(monkeypatch):
    inputs, options = attention_configuration(4, many_tiles=True)
    _, cache = attention_forward(**inputs, **options, backend="numba")
    tangents, found = random_tangents(inputs, 0), []
    for threads in (1, 2):
        monkeypatch.setattr("mha_numpy.kernels.tiled.count_threads", lambda work, n=threads: n)
        found.append(attention_jvp(tangents, cache))
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("backend", EACH_BACKEND)
def test_what_is_hidden_reaches_nothing(backend):
    """Keys that nobody sees may contain anything, and so may their tangents."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 2, 3, 5, 4))
    mask = np.ones((5, 5), bool)
    mask[:, 2], mask[1] = False, False
    k[..., 2, :], v[..., 2, :] = np.nan, np.inf
    tangents = {"k": k.copy(), "v": v.copy(), "q": rng.normal(size=q.shape)}
    _, cache = attention_forward(q, k, v, mask=mask, backend=backend)
    out_dot, lse_dot = attention_jvp(tangents, cache)
    assert np.isfinite(out_dot).all()
    assert not out_dot[..., 1, :].any()
    assert not lse_dot[..., 1].any()
    grads = attention_backward_jvp(tangents, rng.normal(size=q.shape), cache)
    assert all(np.isfinite(grad).all() for grad in grads[:3])


@pytest.mark.parametrize("backend", EACH_BACKEND)
def test_a_sink_of_minus_infinity_is_none(backend, rng):
    """Whatever its tangent says."""
    q, k, v = rng.normal(size=(3, 2, 3, 5, 4))
    sink, sink_dot = np.array([-np.inf, 0.5, -np.inf]), np.array([np.nan, 1.0, np.inf])
    _, cache = attention_forward(q, k, v, sink=sink, backend=backend)
    tangents = {"q": q, "sink": sink_dot}
    grads = attention_backward_jvp(tangents, q, cache)
    for array in (*attention_jvp(tangents, cache), grads.d_q, grads.d_sink):
        assert np.isfinite(array).all()
    assert grads.d_sink[0] == 0


def test_by_hand():
    """Two keys of weight 1/4 and 3/4: the Jacobian of softmax is 3/16 times [[1, -1], [-1, 1]]."""
    q, k, v = np.array([[1.0]]), np.log([[1.0], [3.0]]), np.array([[0.0], [16.0]])
    _, cache = attention_forward(q, k, v, scale=1.0)
    out_dot, lse_dot = attention_jvp({"k": np.array([[1.0], [0.0]])}, cache)
    assert_close(out_dot, [[-3.0]])
    assert_close(lse_dot, [0.25])
    out_dot, lse_dot = attention_jvp({"v": np.array([[4.0], [8.0]])}, cache)
    assert_close(out_dot, [[7.0]])
    assert_close(lse_dot, [0.0])


@pytest.mark.parametrize("seed", range(40))
def test_multi_head(seed):
    inputs, options = multi_head_configuration(seed)
    if seed % 4 == 3:
        rng, params = np.random.default_rng(seed), inputs["params"]
        inputs |= {f"extra_{x}": rng.normal(size=(2, w.shape[1]))
                   for x, w in (("k", params.w_k), ("v", params.w_v))}  # fmt: skip
    forward = partial(multi_head_attention_forward, **options)
    assert_forward_mode(
        forward, multi_head_attention_jvp, multi_head_attention_backward, inputs, seed
    )


def test_tangents_of_params_by_name(rng):
    inputs, options = multi_head_configuration(1)
    _, cache = multi_head_attention_forward(**inputs, **options)
    w_dot = rng.normal(size=inputs["params"].w_o.shape)
    by_name = multi_head_attention_jvp({"params": {"w_o": w_dot}}, cache)
    nothing = FullMultiHeadParams(*[None] * len(FullMultiHeadParams._fields))
    as_params = multi_head_attention_jvp({"params": nothing._replace(w_o=w_dot)}, cache)
    assert np.array_equal(by_name, as_params)
    assert by_name.any()


OTHERS = {
    "softmax": (softmax_forward, softmax_jvp, softmax_backward, {"scores": (2, 3, 4)}, {}),
    "masked softmax": (
        softmax_forward, softmax_jvp, softmax_backward, {"scores": (3, 4)},
        {"mask": np.arange(12).reshape(3, 4) % 5 < 2},
    ),
    "rope": (rope_forward, rope_jvp, rope_backward, {"x": (2, 3, 5, 6)}, {"rotary_dim": 4}),
    "interleaved rope": (rope_forward, rope_jvp, rope_backward, {"x": (5, 6)},
                         {"interleaved": True}),
    "relative bias": (
        relative_bias_forward, relative_bias_jvp, relative_bias_backward, {"table": (8, 3)},
        {"T_q": 4, "T_k": 6, "bidirectional": True},
    ),
    "merge": (merge_forward, merge_jvp, merge_backward, {"outs": (3, 4, 5), "lses": (3, 4)}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_pairs_of_core(name, rng):
    forward, jvp, backward, shapes, options = OTHERS[name]
    inputs = {of: rng.normal(size=shape) for of, shape in shapes.items()}
    tangents = random_tangents(inputs, 0)
    out, cache = forward(**inputs, **options)
    found = jvp(tangents if len(shapes) > 1 else next(iter(tangents.values())), cache)
    out_dot = found[0] if isinstance(found, tuple) else found
    assert_slopes([out_dot], slopes(lambda **x: forward(**x, **options)[:1], inputs, tangents))
    d_out = rng.normal(size=out.shape)
    columns, _ = inner_product([(d_out, out_dot)])
    rows, _ = inner_product(zip(backward(d_out, cache), tangents.values(), strict=True))
    assert abs(columns - rows) < 1e-12


@pytest.mark.parametrize("backend", EACH_BACKEND)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf: NumPy says so
@pytest.mark.parametrize(("sink", "sink_dot"), [(np.nan, 1.0), (np.inf, 1.0), (0.0, np.inf)])
def test_a_row_that_sees_a_sink_alone_stands_still(backend, sink, sink_dot, rng):
    q, k, v = rng.normal(size=(3, 1, 2, 3, 4))
    mask = np.zeros((3, 3), bool)
    _, cache = attention_forward(q, k, v, mask=mask, sink=np.full(2, sink), backend=backend)
    assert not attention_jvp({"q": q, "sink": np.full(2, sink_dot)}, cache).out_dot.any()


# --- second derivatives ---------------------------------------------------------------------------


def gradients_with_lse(d_out, d_lse, options, **inputs):
    _, cache = attention_forward(**inputs, **options)
    return [g for g in attention_backward(d_out, cache, d_lse=d_lse) if g is not None]


@pytest.mark.parametrize("seed", sweep(SEEDS, 30, every=3))
def test_gradients_move(seed):
    """Against a complex step through forward and backward; d_out and d_lse move, too."""
    inputs, options = attention_configuration(seed)
    rng, tangents = np.random.default_rng(seed), random_tangents(inputs, seed)
    out, cache = attention_forward(**inputs, **options)
    upstream = {"d_out": rng.normal(size=out.shape), "d_lse": rng.normal(size=cache.lse.shape)}
    upstream_dot = random_tangents(upstream, seed + 1)
    found = attention_backward_jvp(
        tangents, **upstream, cache=cache,
        **{f"{name}_dot": dot for name, dot in upstream_dot.items()},
    )  # fmt: skip
    expected = slopes(
        partial(gradients_with_lse, options=options), inputs | upstream, tangents | upstream_dot
    )
    assert_slopes([g for g in found if g is not None], expected)


@pytest.mark.parametrize("seed", sweep(SEEDS[:60], 20))
def test_double_backward(seed):
    """Each of its gradients, against the slope of sum(d_grads * grads) along a direction."""
    inputs, options = attention_configuration(seed)
    rng, tangents = np.random.default_rng(seed), random_tangents(inputs, seed)
    out, cache = attention_forward(**inputs, **options)
    upstream = {"d_out": rng.normal(size=out.shape), "d_lse": rng.normal(size=cache.lse.shape)}
    d_grads = random_tangents(inputs, seed + 1)
    found = attention_double_backward(d_grads, **upstream, cache=cache)._asdict()
    upstream_dot = random_tangents(upstream, seed + 2)

    def penalty(**given):
        grads = gradients_with_lse(options=options, **given)
        names = [n for n in ("q", "k", "v", "bias", "sink", "head_gate") if n in inputs]
        pairs = zip(names, grads, strict=True)
        return [np.asarray(sum((d_grads[name] * grad).sum() for name, grad in pairs))]

    for name, dot in (tangents | upstream_dot).items():
        still = {other: np.zeros_like(x) for other, x in (inputs | upstream).items()}
        (expected,) = slopes(penalty, inputs | upstream, still | {name: dot})
        along, size = inner_product([(found[f"d_{name}"], dot)])
        assert abs(along - expected) <= 1e-11 * max(1, size), name


def test_the_hessian_is_symmetric(rng):
    inputs, options = attention_configuration(3)
    out, cache = attention_forward(**inputs, **options)
    d_out = rng.normal(size=out.shape)
    u, v = random_tangents(inputs, 1), random_tangents(inputs, 2)
    products = []
    for left, right in ((u, v), (v, u)):
        moved = attention_backward_jvp(right, d_out, cache)._asdict()
        products.append(inner_product([(moved[f"d_{n}"], dot) for n, dot in left.items()])[0])
    assert abs(products[0] - products[1]) < 1e-12 * max(1, abs(products[0]))


def test_what_is_exactly_zero(rng):
    """The output is linear in the values, and a shift of all keys along a query changes nothing."""
    q, k, v = rng.normal(size=(3, 2, 3, 5, 4))
    _, cache = attention_forward(q, k, v, is_causal=True)
    d_out = rng.normal(size=q.shape)
    assert not attention_backward_jvp({"v": rng.normal(size=v.shape)}, d_out, cache).d_v.any()
    shift = np.broadcast_to(rng.normal(size=(2, 3, 1, 4)), k.shape)
    out_dot, lse_dot = attention_jvp({"k": shift}, cache)
    assert_close(out_dot, np.zeros_like(out_dot))
    assert_close(lse_dot, (q * shift).sum(axis=-1) / 2)


# --- arguments ------------------------------------------------------------------------------------


def test_the_order_and_the_names_of_tangents(rng):
    x, w = rng.normal(size=(2, 3)), rng.normal(size=(3, 4))
    _, cache = linear_forward(x, w)
    assert np.array_equal(linear_jvp((x, None), cache), linear_jvp({"x": x}, cache))
    assert not linear_jvp((), cache).any()
    assert linear_jvp({"w": w.astype(np.float32)}, cache).dtype == np.float64


WRONG = {
    "a name that is none": ({"y": np.ones((2, 3))}, ConfigError, r"tangents: .*\['x', 'w', 'b'\]"),
    "too many": ([None] * 4, ConfigError, "tangents: expected 3"),
    "an array for three inputs": (np.ones((2, 3)), ConfigError, "a dict by the names"),
    "a shape": ({"x": np.ones((3, 2))}, ShapeError, r"x_dot: expected \(2, 3\), as x; got"),
    "integers": ({"x": np.ones((2, 3), int)}, DTypeError, "x_dot: expected a float array"),
    "of an input that was not there": ({"b": np.ones(4)}, ConfigError, "b_dot: expected None"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tangents(name):
    tangents, error, words = WRONG[name]
    _, cache = linear_forward(np.ones((2, 3)), np.ones((3, 4)))
    with pytest.raises(error, match=words):
        linear_jvp(tangents, cache)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_multi_head_keeps_the_dtype(dtype):
    inputs, options = multi_head_configuration(0)
    inputs = replaced(
        inputs, {n: x.astype(dtype) for n, x in leaves(inputs).items() if x is not None}
    )
    out, cache = multi_head_attention_forward(**inputs, **options)
    tangents = {"x_q": inputs["x_q"]}
    assert multi_head_attention_jvp(tangents, cache).dtype == out.dtype == dtype


def test_multi_head_in_float16_takes_a_tangent_in_bfloat16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    inputs, options = multi_head_configuration(0)
    half = {n: x.astype(np.float16) for n, x in leaves(inputs).items() if x is not None}
    inputs = replaced(inputs, half)
    _, cache = multi_head_attention_forward(**inputs, **options)
    narrow = inputs["x_q"].astype(bfloat16)
    found = multi_head_attention_jvp({"x_q": narrow}, cache)
    expected = multi_head_attention_jvp({"x_q": narrow.astype(np.float32)}, cache)
    assert_close(found, expected, "exact")


def test_a_tuple_of_one_tangent(rng):
    x = rng.normal(size=(3, 4))
    _, cache = softmax_forward(x)
    assert np.array_equal(softmax_jvp((x,), cache), softmax_jvp(x, cache))


WRONG_D_GRADS = {
    "whole numbers": (
        {"q": np.ones((2, 3), int)},
        DTypeError,
        r"^d_grads\['q'\]: expected a float",
    ),
    "a name of a gradient": (
        {"d_q": np.ones((2, 3))},
        ConfigError,
        r"d_grads: expected names among",
    ),
    "a shape": ({"q": np.ones((3, 2))}, ShapeError, r"d_grads\['q'\]: expected \(2, 3\), as d_q"),
    "of no input": ({"bias": np.ones((2, 2))}, ShapeError, r"d_grads\['bias'\]: expected none, as"),
}


@pytest.mark.parametrize("name", WRONG_D_GRADS)
def test_wrong_gradients_of_gradients(name):
    d_grads, error, words = WRONG_D_GRADS[name]
    x = np.ones((2, 3))
    out, cache = attention_forward(x, x, x)
    with pytest.raises(error, match=words):
        attention_double_backward(d_grads, out, cache)


def test_wrong_params_are_called_params():
    inputs, options = multi_head_configuration(0)
    _, cache = multi_head_attention_forward(**inputs, **options)
    with pytest.raises(ConfigError, match="^params: expected a dict by the names"):
        multi_head_attention_jvp({"params": np.ones(3)}, cache)


def test_wrong_caches():
    x = np.ones((2, 3))
    _, cache = linear_forward(x, np.ones((3, 4)))
    for jvp in (attention_jvp, multi_head_attention_jvp, merge_jvp, softmax_jvp):
        with pytest.raises(ConfigError, match="^cache: expected the "):
            jvp(x, cache)
    for second in (attention_backward_jvp, attention_double_backward):
        with pytest.raises(ConfigError, match="^cache: expected the AttentionCache"):
            second({}, x, cache)
    _, cache = attention_forward(x, x, x)
    with pytest.raises(ShapeError, match="^d_out: expected"):
        attention_backward_jvp({}, x[:1], cache)
    with pytest.raises(ShapeError, match="^d_lse_dot: expected"):
        attention_backward_jvp({}, x, cache, d_lse_dot=x)
    with pytest.raises(ConfigError, match="^backend: expected one of"):
        attention_jvp({}, cache, backend="fast")


@pytest.mark.parametrize("package", [core, layers, variants], ids=lambda package: package.__name__)
def test_each_backward_has_a_jvp(package):
    names = {name for name in package.__all__ if name.endswith("_backward")}
    expected = {name.replace("_backward", "_jvp") for name in names - {"attention_double_backward"}}
    assert expected <= set(package.__all__)
