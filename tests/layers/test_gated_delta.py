"""The layer with the gated delta rule; that it is Qwen3-Next's is tested in tests/parity."""

import re

import numpy as np
import pytest

from mha_numpy.checking.tracing import trace
from mha_numpy.core import KVCache, RopeOptions
from mha_numpy.errors import ConfigError, MaskError, MhaError, ShapeError
from mha_numpy.layers import DecoderBlock, DeltaOptions, DeltaState, EncoderBlock, GatedDeltaNet
from mha_numpy.layers.gated_delta import BETA, DECAY
from mha_numpy.models import TransformerLM
from tests.compare import assert_close
from tests.gradients import assert_gradients, assert_layer_gradients, randomize
from tests.slopes import assert_slopes, random_tangents, slopes

X = np.ones((2, 3, 9))
SIZES = {"embed_dim": 9, "num_heads": 4, "num_key_heads": 2, "head_dim": 3, "value_dim": 5}


@pytest.fixture
def layer(rng):
    return randomize(GatedDeltaNet(**SIZES, kernel_size=3), rng)


@pytest.mark.usefixtures("backend")
def test_gradients(layer, rng):
    assert_layer_gradients(layer, {"x": rng.normal(size=(2, 7, 9))})


def test_a_head_by_hand():
    """One token: the state is k v^T, and a query as long as its key reads v back, scaled."""
    layer = GatedDeltaNet(1, 1, head_dim=1, kernel_size=1, rng=0)
    for name in layer.params:
        layer.params[name][...] = {"w_beta": 0.0, "w_o": 3.0, "dt_bias": 0.0}.get(name, 1.0)
    silu = 2 / (1 + np.exp(-2))
    # v = silu(2), of which beta = 1/2 is written and read; RMS norm leaves the sign
    assert_close(layer(np.array([[[2.0]]])), [[[3 * silu]]], (1e-5, 0, False))


def test_queries_and_keys_have_length_1(layer, rng):
    layer(rng.normal(size=(2, 5, 9)))
    rule = layer.forward_cache["rule"]
    for rows in (rule.q, rule.k):
        assert_close((rows**2).sum(axis=-1), np.ones((2, 4, 5)), (0, 1e-3, False))


def test_gates_by_hand_and_far_out():
    out, _ = BETA.forward(x=np.array([0.0, np.log(3.0), -1e4, 1e4]))
    assert_close(out, [0.5, 0.75, 0.0, 1.0])
    x = np.array([[0.0], [-1e4], [1e4]])
    inputs = {"a_log": np.log([2.0]), "dt_bias": np.zeros(1)}
    out, _ = DECAY.forward(x=x, **inputs)
    assert_close(out, [[-2 * np.log(2)], [0.0], [-2e4]])
    assert_gradients(DECAY.forward, DECAY.backward, {"x": np.array([[0.3], [-2.0]]), **inputs})


@pytest.mark.parametrize("pair", [BETA, DECAY])
def test_forward_mode_of_its_numbers(pair, rng):
    shapes = {"x": (2, 5, 3), "a_log": (3,), "dt_bias": (3,)}
    inputs = {name: rng.normal(size=shapes[name]) for name in pair.inputs}
    tangents = random_tangents(inputs, 0)
    _, cache = pair.forward(**inputs)
    expected = slopes(lambda **x: pair.forward(**x)[:1], inputs, tangents)
    assert_slopes([pair.jvp(tangents, cache)], expected)


@pytest.mark.parametrize("parts", [[4, 5], [1] * 9, [9]])
def test_decoding_is_the_whole_text(layer, rng, parts):
    x, state, found = rng.normal(size=(2, 9, 9)), DeltaState(), []
    for part in np.split(x, np.cumsum(parts)[:-1], axis=1):
        found.append(layer(part, state=state))
        assert state.conv.base is state.memory.base is None  # they hold no others alive
        assert state.nbytes == 8 * 2 * (2 * (2 * 6 + 20) + 4 * 3 * 5)
    assert_close(np.concatenate(found, axis=1), layer(x))


def test_padding_on_the_left_is_not_there(layer, rng):
    x, mask = rng.normal(size=(2, 6, 9)), np.arange(6) >= np.array([[2], [0]])
    out = layer(x, mask=mask)
    d_out = rng.normal(size=out.shape) * mask[..., None]
    d_x = layer.backward(d_out)
    grads = {name: gradient.copy() for name, gradient in layer.grads.items()}
    layer.zero_grads()
    for row, first in ((0, 2), (1, 0)):
        alone = (slice(row, row + 1), slice(first, None))
        assert_close(layer(x[alone]), out[alone])
        assert_close(layer.backward(d_out[alone]), d_x[alone])
    assert not d_x[0, :2].any()
    for name, gradient in grads.items():
        assert_close(layer.grads[name], gradient, name=name)


def test_a_model_keeps_states_where_it_has_no_attention(rng):
    options = {"delta": [DeltaOptions(2, 1, 3), None], "rope": RopeOptions(), "norm": "rms"}
    model = TransformerLM(7, 20, embed_dim=8, num_heads=2, **options, rng=0)
    ids, kv_caches = rng.integers(7, size=(3, 9)), model.new_kv_caches()
    assert [type(each) for each in kv_caches] == [DeltaState, KVCache]
    found = [model(part, kv_caches=kv_caches) for part in np.split(ids, [4, 5], axis=1)]
    assert_close(np.concatenate(found, axis=1), model(ids))
    assert [each.length for each in kv_caches] == [9, 9]
    assert repr(kv_caches[0]) == f"DeltaState(9 tokens, {kv_caches[0].nbytes} bytes)"
    held = [part.copy() for part in kv_caches[0].held]
    with pytest.raises(MaskError, match="^mask: "):  # the second block's error
        model(ids[:, :1], kv_caches=kv_caches, mask=np.ones((3, 1, 1, 8), bool))
    assert_close(kv_caches[0].memory, held[1], "exact")
    assert kv_caches[0].length == 9
    for kv_cache in kv_caches:
        kv_cache.select([2, 0])
    assert_close(model(ids[[2, 0], :1], kv_caches=kv_caches),
                 model(np.concatenate([ids, ids[:, :1]], axis=1))[[2, 0], -1:])  # fmt: skip


WRONG = [
    (lambda layer: layer(X, mask=np.ones((2, 3))), MaskError, "mask: expected bool (B, T) = (2"),
    (lambda layer: layer(X, mask=np.ones(3, bool)), MaskError, "mask: expected bool (B, T) = (2"),
    (lambda layer: layer(X, state=KVCache()), ConfigError, "state: expected a DeltaState; got KVC"),
    (lambda layer: DeltaState().append(X, X), ConfigError, "kv_cache: expected one for keys and"),
    (lambda layer: DeltaState().truncate(0), ConfigError, "length: expected no truncate of a D"),
    (lambda layer: DeltaState().keep([0]), ConfigError, "tokens: expected no keep of a DeltaS"),
    (lambda layer: EncoderBlock(8, 2, delta=DeltaOptions(2)), ConfigError,
     "delta: expected none, because it reads from left to right, as a DecoderBlock does; got it in "
     "a EncoderBlock"),
    (lambda layer: DecoderBlock(9, 3, delta=DeltaOptions(3))(X, mask=np.ones((3, 3), bool)),
     MaskError, "mask: expected bool (B, T) = (2, 3), True = a token"),
    (lambda layer: DecoderBlock(9, 3, delta=DeltaOptions(3))(X, mask=np.ones((2, 1, 3, 3), bool)),
     MaskError, "mask: expected (B, 1, 1, T_k), which tokens there are, because a GatedDeltaNet"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), WRONG, ids=[case[2] for case in WRONG])
def test_what_is_not_possible_is_said(layer, call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call(layer)


@pytest.mark.parametrize("decodes", [False, True])
def test_each_equation_of_a_trace_holds(layer, rng, decodes):
    x, state = rng.normal(size=(2, 3, 9)), DeltaState() if decodes else None
    if decodes:
        layer(x, state=state)
    with trace() as t:
        out = layer(x, state=state)
        if not decodes:
            layer.backward(rng.normal(size=out.shape))
    names = [step.name for step in t]
    assert len(names) == len(set(names))
    given = {"x", "joined_before", "state"} if decodes else {"x", "d_out"}
    assert {step.name for step in t if not step.equation} == given
    for step in t:
        if step.equation:
            assert_close(t.evaluate(step), step.array, name=f"{step.name} = {step.equation}")
    if not decodes:
        assert {f"d_{name}" for name in layer.params} <= {*names}
    assert (t.sizes["H"], t.sizes["H_k"], t.sizes["d_v"]) == (4, 2, 5)


def test_no_token_sees_a_later_one(layer, rng):
    x = rng.normal(size=(2, 9, 9))
    before = layer(x)
    x[:, 6] += 1
    after = layer(x)
    assert_close(after[:, :6], before[:, :6], "exact")
    assert (after[:, 6:] != before[:, 6:]).all()


def test_head_h_reads_key_h_over_the_group(layer, rng):
    """A layer with as many key heads, each repeated, is the same."""
    many = GatedDeltaNet(**SIZES | {"num_key_heads": 4}, kernel_size=3)

    def repeated(w, heads):
        return w.reshape(len(w), heads, -1).repeat(2, axis=1).reshape(len(w), -1)

    many.params = dict(layer.params)
    for name in ("w_q", "w_k"):
        many.params[name] = repeated(layer.params[name], 2)
    q, k, v = np.split(layer.params["w_conv"], [6, 12], axis=1)
    many.params["w_conv"] = np.concatenate([repeated(q, 2), repeated(k, 2), v], axis=1)
    x = rng.normal(size=(2, 5, 9))
    assert_close(many(x), layer(x))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtypes(layer, rng, dtype):
    x = rng.normal(size=(2, 9, 9))
    exact, _ = layer(x), layer.backward(x)
    grads = dict(layer.grads)
    narrow = layer.astype(dtype)
    narrow.zero_grads()
    out, d_x = narrow(x.astype(dtype)), narrow.backward(x.astype(dtype))
    assert {out.dtype, d_x.dtype, *(g.dtype for g in narrow.grads.values())} == {np.dtype(dtype)}
    rounding = 30 * np.finfo(dtype).eps
    assert_close(out, exact, (rounding, rounding, False))
    for name, gradient in narrow.grads.items():
        assert_close(gradient, grads[name], (rounding, rounding, False), name=name)


def test_wrong_calls(layer, rng):
    with pytest.raises(ShapeError, match=r"^x: expected \(B, T, D=9\) to match the layer"):
        layer(rng.normal(size=(2, 7, 8)))
    layer(rng.normal(size=(2, 7, 9)), state=DeltaState())
    with pytest.raises(MhaError, match="^backward: expected a forward before it"):
        layer.backward(np.ones((2, 7, 9)))
    for wrong, message in (
        ({"num_key_heads": 3}, "^num_key_heads: expected a divisor of num_heads=4; got 3"),
        ({"head_dim": None}, "^num_heads: expected a divisor of embed_dim=9"),
        ({"kernel_size": 0}, "^kernel_size: expected an integer >= 1"),
        ({"num_key_heads": 0}, "^num_key_heads: expected an integer >= 1"),
        ({"value_dim": 0}, "^value_dim: expected an integer >= 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            GatedDeltaNet(**SIZES | wrong)
