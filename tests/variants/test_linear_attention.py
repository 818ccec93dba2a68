"""Linear attention: one state, three forms, and the kernel; decay, delta rule, both, neither."""

from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest

from mha_numpy import backend
from mha_numpy.checking.tracing import trace
from mha_numpy.errors import ConfigError, DTypeError, ShapeError
from mha_numpy.variants import (
    linear_attention_backward,
    linear_attention_forward,
    linear_attention_jvp,
)
from tests.compare import assert_close
from tests.gradients import assert_gradients
from tests.slopes import assert_forward_mode
from tests.sweeps import sweep

FORMS = ("recurrence", "chunks", "product")
RULES = list(product(("no decay", "decay", "decay of features"), ("sum", "delta")))
BY_KERNEL = pytest.param("chunks", "numba", marks=pytest.mark.kernel)
each_way = pytest.mark.parametrize(
    ("form", "by"), [*((form, "numpy") for form in FORMS), BY_KERNEL]
)
each_rule = pytest.mark.parametrize(("decay", "rule"), RULES)


def draw(rng, decay, rule, *, leading=(2, 6, 3), T=11, d_k=4, d_v=5, state=True):
    """Return random inputs; keys are short enough for a delta rule that does not explode."""
    of_queries, of_keys = (leading[:2], leading[::2]) if len(leading) == 3 else (leading, leading)
    drawn = {
        "q": rng.normal(size=(*of_queries, T, d_k)),
        "k": rng.normal(size=(*of_keys, T, d_k)) / np.sqrt(max(d_k, 1)),
        "v": rng.normal(size=(*of_keys, T, d_v)),
    }
    if decay != "no decay":
        shape = (*of_keys, T, d_k) if decay == "decay of features" else (*of_keys, T)
        drawn["log_decay"] = -rng.exponential(size=shape) / 2
    if rule == "delta":
        drawn["beta"] = rng.uniform(0, 1.2, size=(*of_keys, T))
    if state:
        drawn["state"] = rng.normal(size=(*of_keys, d_k, d_v))
    return drawn


def by_hand(q, k, v, log_decay=None, beta=None, state=None):
    """Run the recurrence one head and one token at a time."""
    (B, H_kv, T, d_k), d_v, G = k.shape, v.shape[3], q.shape[1] // k.shape[1]
    out, last = np.zeros((*q.shape[:3], d_v)), np.zeros((B, H_kv, d_k, d_v))
    for b, h in np.ndindex(B, H_kv):
        S = np.zeros((d_k, d_v)) if state is None else state[b, h]
        for t in range(T):
            a = np.ones(d_k) if log_decay is None else np.exp(log_decay[b, h, t]) * np.ones(d_k)
            S = a[:, None] * S
            wanted = v[b, h, t]
            if beta is not None:
                wanted = beta[b, h, t] * (wanted - S.T @ k[b, h, t])
            S = S + np.outer(k[b, h, t], wanted)
            for head in range(h * G, (h + 1) * G):
                out[b, head, t] = S.T @ q[b, head, t] / np.sqrt(d_k)
        last[b, h] = S
    return out, last


def run(inputs, rng, **options):
    """Return out, the final state and all gradients; both upstream gradients are random."""
    out, cache = linear_attention_forward(**inputs, **options)
    d_out, d_state = (rng.normal(size=x.shape).astype(x.dtype) for x in (out, cache.final_state))
    grads = linear_attention_backward(d_out, cache, d_final_state=d_state)
    return {"out": out, "final_state": cache.final_state, **grads._asdict()}


def assert_same(found, expected, tolerance="float64"):
    for name, array in expected.items():
        if array is None:
            assert found[name] is None, name
        else:
            assert_close(found[name], array, tolerance, name=name)


def test_a_state_by_hand():
    """Two tokens, one feature: 3 fades to 1.5, of the wanted 4 - 2 * 1.5 the half is written."""
    q, k, v = np.array([[1.0], [10.0]]), np.array([[1.0], [2.0]]), np.array([[1.0], [4.0]])
    options = {"log_decay": np.log([0.5, 0.5]), "scale": 1.0, "state": np.array([[4.0]])}
    out, cache = linear_attention_forward(q, k, v, **options)
    assert_close(out, [[3.0], [95.0]])  # 4 / 2 + 1 * 1, then 10 * (3 / 2 + 2 * 4)
    out, cache = linear_attention_forward(q, k, v, beta=np.array([1.0, 0.5]), **options)
    assert_close(out, [[1.0], [35.0]])  # 2 + 1 * (1 - 2), then 10 * (0.5 + 2 * (4 - 1) / 2)
    grads = linear_attention_backward(np.array([[0.0], [1.0]]), cache)
    # the second output is 40 - 10 * 0.5 * state_0, with state_0 = 2 + beta_0 * (1 - 2)
    assert_close(grads.d_beta, [5.0, 60.0])
    assert_close(grads.d_v, [[-5.0], [10.0]])


@each_rule
@pytest.mark.parametrize("backend_name", ["numpy", pytest.param("numba", marks=pytest.mark.kernel)])
def test_all_forms_are_the_recurrence(rng, decay, rule, backend_name):
    inputs = draw(rng, decay, rule, T=70)
    out, last = by_hand(**inputs)
    expected = run(inputs, np.random.default_rng(1), form="recurrence")
    assert_same(expected, {"out": out, "final_state": last})
    with backend(backend_name):
        for options in ({}, {"chunk": 7}, {"form": "product"}):
            assert_same(run(inputs, np.random.default_rng(1), **options), expected)


@pytest.mark.parametrize("seed", sweep(range(60), 12, every=3))
def test_all_forms_agree_on_random_sizes(seed):
    rng = np.random.default_rng(seed)
    H_kv, G = rng.integers(1, 4, size=2)
    leading = ((), (3,), (2, H_kv * G, H_kv))[seed % 3]
    T, d_k, d_v, chunk = rng.integers(1, 20, size=4)
    decay, rule = RULES[seed % len(RULES)]
    inputs = draw(rng, decay, rule, leading=leading, T=T, d_k=d_k, d_v=d_v, state=seed % 2 > 0)
    options = {"scale": 0.7} if seed % 5 == 0 else {}
    expected = run(inputs, np.random.default_rng(seed), form="recurrence", **options)
    for form in ("chunks", "product"):
        found = run(inputs, np.random.default_rng(seed), form=form, chunk=int(chunk), **options)
        assert_same(found, expected)


def assert_by_kernel(seed, dtype):
    """Fail unless the kernel computes a random problem as the equations do in float64."""
    rng = np.random.default_rng(seed)
    H_kv, G = rng.integers(1, 4, size=2)
    T, d_k, d_v = rng.integers(1, [150, 40, 40])
    decay, rule = RULES[:4][seed % 4]
    sizes = {"leading": (2, int(H_kv * G), int(H_kv)), "T": T, "d_k": d_k, "d_v": d_v}
    inputs = draw(rng, decay, rule, **sizes, state=seed % 3 > 0)
    inputs = {name: x.astype(dtype) for name, x in inputs.items()}
    exact = {name: x.astype(np.float64) for name, x in inputs.items()}
    with backend("numba"):
        found = run(inputs, np.random.default_rng(seed))
    expected = run(exact, np.random.default_rng(seed))
    assert_same(found, expected, "float64" if dtype == np.float64 else (1e-5, 1e-5, False))


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", sweep(range(60), 8, every=3))
def test_the_kernel_on_random_sizes(seed, dtype):
    assert_by_kernel(seed, dtype)


@each_rule
@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_output_and_final_state(rng, decay, rule, form):
    inputs = draw(rng, decay, rule, leading=(2, 4, 2), T=5, d_k=3, d_v=2)

    def forward(**inputs):
        out, cache = linear_attention_forward(**inputs, form=form, chunk=2)
        return np.concatenate([out.ravel(), cache.final_state.ravel()]), (out.shape, cache)

    def backward(d_both, cache):
        shape, cache = cache
        d_out, d_state = np.split(d_both, [np.prod(shape)])
        d_state = d_state.reshape(cache.final_state.shape)
        return linear_attention_backward(d_out.reshape(shape), cache, d_final_state=d_state)

    assert_gradients(forward, backward, inputs)


@each_rule
@pytest.mark.parametrize("form", FORMS[:2])
def test_a_text_in_parts_is_the_whole_text(rng, decay, rule, form):
    inputs = draw(rng, decay, rule)
    out, cache = linear_attention_forward(**inputs, form=form, chunk=3)
    d_out, d_state = rng.normal(size=out.shape), rng.normal(size=inputs["state"].shape)
    whole = linear_attention_backward(d_out, cache, d_final_state=d_state)

    state, parts, cuts = inputs.pop("state"), [], [0, 1, 2, 7, 11]  # two tokens one by one
    for first, last in pairwise(cuts):
        part = {name: x[:, :, first:last] for name, x in inputs.items()}
        parts.append(linear_attention_forward(**part, state=state, form=form, chunk=3))
        state = parts[-1][1].final_state
    assert_close(np.concatenate([part for part, _ in parts], axis=2), out)
    assert_close(state, cache.final_state)
    grads = []
    d_parts = np.split(d_out, cuts[1:-1], axis=2)
    for (_, part), d_part in zip(reversed(parts), reversed(d_parts), strict=True):
        grads.append(linear_attention_backward(d_part, part, d_final_state=d_state))
        d_state = grads[-1].d_state
    assert_close(d_state, whole.d_state)
    for name in (f"d_{name}" for name in inputs):
        joined = np.concatenate([getattr(g, name) for g in reversed(grads)], axis=2)
        assert_close(joined, getattr(whole, name), name=name)


@each_way
def test_a_cache_has_a_state_for_each_token_or_chunk(rng, form, by):
    with backend(by):
        _, cache = linear_attention_forward(**draw(rng, "decay", "delta", T=130), form=form)
    N = {"recurrence": 130, "chunks": 3, "product": 1}[form]  # chunks of 64, 64 and 2
    assert cache.states.shape == (2, 3, N + 1, 4, 5)
    assert cache.u.shape == cache.v.shape


def test_a_sum_is_attention_without_softmax(rng):
    q, k, v = rng.normal(size=(3, 2, 6, 9, 4))
    out, _ = linear_attention_forward(q, k, v, scale=0.3)
    assert_close(out, 0.3 * np.tril(q @ k.swapaxes(-1, -2)) @ v)


def test_a_delta_rule_maps_each_key_to_its_last_value(rng):
    """With beta = 1 and orthonormal keys, in any order and repeated."""
    keys = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    which = np.array([0, 3, 1, 3, 3, 4, 0])
    v = rng.normal(size=(7, 2))
    _, cache = linear_attention_forward(keys[which], keys[which], v, beta=np.ones(7))
    for key, last in ((0, 6), (1, 2), (3, 4), (4, 5)):
        assert_close(keys[key] @ cache.final_state, v[last])
    assert_close(keys[2] @ cache.final_state, [0.0, 0.0])


@each_rule
@each_way
def test_strong_decay_forgets_and_nothing_overflows(rng, decay, rule, form, by):
    """A log decay of -inf starts a new text: as in packed documents."""
    inputs = draw(rng, decay, rule, T=100)
    if decay == "no decay":
        inputs["log_decay"] = np.zeros((2, 3, 100))
    inputs["log_decay"][:, :, ::3] *= 1e4
    inputs["log_decay"][:, :, 70] = -np.inf
    new = {name: x[:, :, 70:] for name, x in inputs.items() if name != "state"}
    new["log_decay"] = new["log_decay"].copy()
    new["log_decay"][:, :, 0] = 0.0
    with backend(by):
        found = run(inputs, np.random.default_rng(0), form=form)
        out, new_cache = linear_attention_forward(**new, form=form)
        _, cache = linear_attention_forward(**inputs, form=form)
        d_out = np.concatenate([np.zeros((2, 6, 70, 5)), rng.normal(size=out.shape)], axis=2)
        grads = linear_attention_backward(d_out, cache)
    assert_close(found["out"][:, :, 70:], out)
    assert_close(found["final_state"], new_cache.final_state)
    assert all(np.isfinite(x).all() for x in found.values() if x is not None)
    assert not grads.d_state.any()
    assert not grads.d_v[:, :, :70].any()


@each_way
@pytest.mark.parametrize("name", ["q", "k", "v", "log_decay", "beta"])
def test_nan_reaches_no_earlier_token(rng, name, form, by):
    inputs = draw(rng, "decay", "delta", T=70)
    clean, cache = linear_attention_forward(**inputs)
    clean_grads = linear_attention_backward(clean, cache)
    inputs[name][1, 2, 30] = np.nan
    # as split_heads lays them out
    inputs["v"] = np.ascontiguousarray(inputs["v"].swapaxes(1, 2)).swapaxes(1, 2)
    with backend(by):
        out, cache = linear_attention_forward(**inputs, form=form)
        grads = linear_attention_backward(clean, cache)
    head = 2 if name == "q" else slice(4, 6)
    assert np.isnan(out[1, head, 30]).all()
    assert np.isnan(out[1, head, 31:]).all() == (name != "q")
    out[1, head, 30:] = clean[1, head, 30:]
    assert_close(out, clean)
    for gradient, of_clean in zip(grads, clean_grads, strict=True):
        assert_close(gradient[0], of_clean[0])  # of the other sequence


@each_way
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble])
def test_dtypes(rng, dtype, form, by):
    inputs = draw(rng, "decay", "delta", T=70)
    inputs = {name: x.astype(dtype) for name, x in inputs.items()}
    wide = {name: x.astype(np.float64) for name, x in inputs.items()}
    with backend(by):
        found = run(inputs, np.random.default_rng(0), form=form)
    inner = found.pop("final_state")
    assert inner.dtype == (np.float32 if dtype == np.float16 else dtype)
    assert {x.dtype for x in found.values()} == {np.dtype(dtype)}
    expected = run(wide, np.random.default_rng(0))
    tolerance = {np.float16: "float16", np.float32: "float32"}.get(dtype, "float64")
    assert_same(found | {"final_state": inner}, expected, tolerance)


def test_mixed_floats_promote(rng):
    inputs = draw(rng, "decay", "delta")
    inputs["q"] = inputs["q"].astype(np.float32)
    assert run(inputs, rng)["d_q"].dtype == np.float64


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("empty", [{"T": 0}, {"d_k": 0}, {"d_v": 0}, {"leading": (0, 6, 3)}])
def test_empty_axes(rng, form, empty):
    inputs = draw(rng, "decay", "delta", **empty)
    found = run(inputs, rng, form=form)
    for name, array in inputs.items():
        assert found[f"d_{name}"].shape == array.shape
    assert found["out"].shape == (*inputs["q"].shape[:-1], inputs["v"].shape[-1])
    if empty == {"T": 0}:
        assert_close(found["final_state"], inputs["state"], "exact")


@each_rule
@pytest.mark.parametrize("leading", [(), (2, 6, 3), (2, 3, 3)])
def test_a_trace_tells_the_recurrence(rng, decay, rule, leading):
    state = rule == "delta"
    inputs = draw(rng, decay, rule, leading=leading, T=3, state=state)
    with trace() as t, backend("numba"):  # a kernel has no steps to show
        found = run(inputs, rng)
    names = [step.name for step in t]
    assert len(names) == len(set(names))
    given = {*inputs, "d_out", "d_final_state"}
    assert {step.name for step in t if not step.equation} == given
    for step in t:
        if step.equation:
            assert_close(t.evaluate(step), step.array, name=f"{step.name} = {step.equation}")
    assert_close(t["out"], found["out"], "exact")
    assert {name for name in found if name[:2] == "d_" and found[name] is not None} <= {*names}
    assert t.sizes["d_v"] == 5


WRONG = [
    ({"q": np.ones(3)}, ShapeError, r"q: expected \(B, H, T, d_k\), .*; got \(3,\)"),
    ({"k": np.ones((2, 3, 11, 5))}, ShapeError, r"k: expected \(B=2, H_kv, T=11, d_k=4\) to"),
    ({"k": np.ones((2, 4, 11, 4))}, ShapeError, "k: expected .* H_kv dividing H=6"),
    ({"v": np.ones((2, 3, 10, 5))}, ShapeError, r"v: expected \(B=2, H_kv=3, T=11, d_v\)"),
    ({"beta": np.ones((2, 3, 11, 1))}, ShapeError, r"beta: expected \(B=2, H_kv=3, T=11\)"),
    ({"log_decay": np.ones((2, 3))}, ShapeError, r"log_decay: expected \(B=2, H_kv=3, T=11\)"),
    ({"log_decay": np.ones((2, 3, 11, 1))}, ShapeError, r"log_decay: expected .*, d_k=4\)"),
    ({"state": np.ones((2, 3, 5, 4))}, ShapeError, r"state: expected .*, d_k=4, d_v=5\)"),
    ({"beta": np.ones((2, 3, 11), int)}, DTypeError, "beta: expected a float array"),
    ({"form": "chunk"}, ConfigError, "form: expected one of .*'product'"),
    ({"chunk": 0}, ConfigError, "chunk: expected an integer >= 1"),
    ({"scale": "auto"}, ConfigError, "scale: expected a finite number"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "error", "message"), WRONG)
def test_wrong_input(rng, wrong, error, message):
    with pytest.raises(error, match=f"^{message}"):
        linear_attention_forward(**draw(rng, "decay", "delta") | wrong)


def test_wrong_gradients(rng):
    out, cache = linear_attention_forward(**draw(rng, "decay", "delta"))
    with pytest.raises(ConfigError, match="^cache: expected the LinearAttentionCache of"):
        linear_attention_backward(out, None)
    with pytest.raises(ShapeError, match=r"^d_out: expected \(2, 6, 11, 5\), as out"):
        linear_attention_backward(out[..., 0], cache)
    with pytest.raises(ShapeError, match=r"^d_final_state: expected \(2, 3, 4, 5\), as final"):
        linear_attention_backward(out, cache, d_final_state=out)


def test_arguments_stay_as_they_are(rng):
    inputs = draw(rng, "decay of features", "delta")
    before = {name: x.copy() for name, x in inputs.items()}
    for form in FORMS:
        run(inputs, rng, form=form)
    assert_same(inputs, before, "exact")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_tangents_have_the_dtypes_of_output_and_state(dtype, rng):
    """The state is kept in the dtype of the computation."""
    inputs = {name: x.astype(dtype) for name, x in draw(rng, "decay", "delta").items()}
    out, cache = linear_attention_forward(**inputs)
    tangents = {name: x.astype(np.float64) for name, x in inputs.items()}
    out_dot, state_dot = linear_attention_jvp(tangents, cache)
    assert out_dot.dtype == out.dtype == dtype
    assert state_dot.dtype == cache.final_state.dtype == np.float32


@each_rule
@pytest.mark.parametrize("leading", [(2, 6, 3), ()])
def test_forward_mode(decay, rule, leading, rng):
    inputs = draw(rng, decay, rule, leading=leading)
    for form in FORMS:
        forward = partial(linear_attention_forward, form=form)
        assert_forward_mode(forward, linear_attention_jvp, linear_attention_backward, inputs)
