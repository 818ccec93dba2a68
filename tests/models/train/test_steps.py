import copy
import re

import numpy as np
import pytest

from mha_numpy.errors import ConfigError, DTypeError, MhaError, ShapeError, TrainingError
from mha_numpy.layers import Dropout, Embedding, FeedForward, Layer, LayerNorm, Linear, Sequential
from mha_numpy.models.train import (
    SGD,
    Adam,
    AdamW,
    ParamGroup,
    adam_step,
    clip_gradients,
    sgd_step,
    warm_up_cosine,
)
from mha_numpy.models.train.finite import is_finite
from mha_numpy.models.train.options import ATTRIBUTES


@pytest.fixture
def norm():
    """A layer with params gain and bias, whose gradients are ones."""
    layer = LayerNorm(2)
    layer.grads = {"gain": np.ones(2), "bias": np.ones(2)}
    return layer


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_params_move_in_their_own_arrays_and_dtype(kind):
    layer = LayerNorm(2).astype(np.float32)
    gain, optimizer = layer.params["gain"], kind(layer, 0.1)
    layer.grads["gain"] = np.array([1, -1], np.float32)
    optimizer.step(scale=0.5)
    assert layer.params["gain"] is gain
    np.testing.assert_allclose(gain, [0.95, 1.05], rtol=1e-3)
    remembered = [array.dtype for memory in optimizer.memory.values() for array in memory]
    assert {gain.dtype, *remembered} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("bad", "error", "expected"),
    [
        ([np.nan, 1.0], TrainingError, "finite numbers in the gradient, before the step;"),
        ([1e308, 1.0], TrainingError, "finite numbers after the step; got nan or inf in "),
        (np.ones(3), ShapeError, r"a gradient \(2,\) like the param; got \(3,\)"),
    ],
)
@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_all_params_move_or_none(kind, bad, error, expected, norm):
    optimizer = kind(norm, 0.1)
    optimizer.step()
    before = {name: (param.copy(), optimizer.memory[name]) for name, param in norm.params.items()}
    norm.grads["bias"] = np.array(bad)
    with pytest.raises(error, match=f"^bias: expected {expected}"):
        optimizer.step(scale=100.0)
    assert optimizer.t == 1
    for name, (param, memory) in before.items():
        np.testing.assert_array_equal(norm.params[name], param)
        assert optimizer.memory[name] is memory


def test_a_param_has_the_options_of_the_first_group_that_matches():
    layer = FeedForward(2)  # w_in, b_in, w_out, b_out
    groups = [ParamGroup("b_* w_o*", weight_decay=0.0), ParamGroup("*_in", learning_rate=0.5)]
    optimizer = AdamW(layer, 0.1, weight_decay=0.2, groups=groups)
    before = {name: param.copy() for name, param in layer.params.items()}
    optimizer.step()  # without gradients only decay moves
    moved = {name: 1 - (layer.params[name] / w).mean() for name, w in before.items() if w.any()}
    assert moved == pytest.approx({"w_in": 0.5 * 0.2, "w_out": 0.0})
    assert optimizer.options_of("b_in")["learning_rate"] == 0.1
    assert repr(optimizer) == (
        "AdamW(FeedForward, learning_rate=0.1, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.2, "
        "backend=None, groups=[ParamGroup('b_* w_o*', weight_decay=0.0), "
        "ParamGroup('*_in', learning_rate=0.5)])"
    )
    expected = "SGD(FeedForward, learning_rate=1.0, momentum=0.0, nesterov=False)"
    assert repr(SGD(layer, 1)) == expected


def test_options_and_groups_can_be_set(norm):
    optimizer = SGD(norm, 0.1)
    optimizer.learning_rate, optimizer.groups = 0.5, [ParamGroup("bias", learning_rate=2.0)]
    optimizer.step()
    np.testing.assert_array_equal(norm.params["gain"], [0.5, 0.5])
    np.testing.assert_array_equal(norm.params["bias"], [-2.0, -2.0])
    optimizer.groups = [ParamGroup("gian", learning_rate=2.0)]
    with pytest.raises(ConfigError, match="^groups: expected 'gian' to match"):
        optimizer.step()


@pytest.mark.parametrize("part", [Linear(2, 4), LayerNorm(2), FeedForward(2)])
@pytest.mark.parametrize("steps", [0, 1])
def test_a_layer_that_was_replaced_is_named(part, steps):
    model = Sequential(Linear(2, 3), Linear(3, 2))
    optimizer = Adam(model)
    for _ in range(steps):
        optimizer.step()
    model.parts = [part, *model.parts[1:]]
    with pytest.raises(ConfigError, match=r"^layer: expected the params .*; make a new Adam once"):
        optimizer.step()
    assert optimizer.t == steps


def test_a_param_that_was_replaced_is_checked(norm):
    optimizer = SGD(norm, 0.1)
    norm.params["gain"] = np.array([2.0, 2.0])
    optimizer.step()
    np.testing.assert_array_equal(norm.params["gain"], [1.9, 1.9])
    norm.params["gain"] = np.array([2, 2])
    with pytest.raises(ConfigError, match="^gain: expected a float32 or float64 array"):
        optimizer.step()


def test_a_rise_and_half_a_cosine():
    schedule = warm_up_cosine(steps=8, warm_up=2, last=0.2)
    expected = [0.5, 1, 0.2 + 0.8 * 0.75, 0.2 + 0.8 * 0.25, 0.2, 0.2]
    assert [schedule(step) for step in (1, 2, 4, 6, 8, 99)] == pytest.approx(expected)
    assert warm_up_cosine(steps=4)(2) == pytest.approx(0.5)


def test_clipping_shortens_all_gradients_by_one_factor(norm):
    norm.grads = {"gain": np.array([2.0, -4.0]), "bias": np.array([4.0, 0.0])}
    assert clip_gradients(norm, 7.0) == 6
    assert clip_gradients(norm, 3.0) == 6
    np.testing.assert_array_equal(norm.grads["gain"], [1, -2])
    np.testing.assert_array_equal(norm.grads["bias"], [2, 0])
    for large in (np.float32(1e30), 1e200):  # whose squares are too large
        norm.grads = {"gain": np.array([3, 4], np.asarray(large).dtype) * large}
        assert clip_gradients(norm, 1.0) == pytest.approx(5 * large)
        np.testing.assert_allclose(norm.grads["gain"], [0.6, 0.8], rtol=1e-6)
    norm.grads = {"gain": [1.0, "a"]}
    with pytest.raises(DTypeError, match="^gain: expected a float array"):
        clip_gradients(norm, 1.0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_numbers_whose_squares_overflow_are_finite(dtype):
    large = np.full((3, 2), np.finfo(dtype).max)
    assert is_finite([large, (large.T, None)])
    for odd in (np.nan, np.inf, -np.inf):
        large[1, 1] = odd
        assert not is_finite([np.ones(2), (large,)])


NORM, NO_SUCH = LayerNorm(2), "there is no such argument here"  # each line has it as %
CALLS = [
    (lambda: Adam(NORM, lr=1e-3), "lr: %; write learning_rate="),
    (lambda: Adam(params=NORM), "params: %; write layer="),
    (lambda: Adam(NORM, beta_1=0.9), "beta_1: %; write betas="),
    (lambda: Adam(NORM, weight_decay=0.1), "weight_decay: %; write AdamW(...), which has it"),
    (lambda: SGD(NORM, 0.1, momentun=0.9), "momentun: %; did you mean 'momentum'?"),
    (lambda: SGD(NORM),
     "learning_rate: expected a value; got none; write SGD(layer, learning_rate)"),
    (lambda: SGD(NORM, 0.1, 0.9), "SGD: expected at most 2 arguments without a name "
     "(layer, learning_rate); got 3; write momentum=, nesterov=, groups="),
    (lambda: ParamGroup("*", lr=0.0), "lr: %; write learning_rate="),
    (lambda: ParamGroup("*", weight_deca=0.0), "weight_deca: %; did you mean 'weight_decay'?"),
    (lambda: ParamGroup(), "names: expected a value; got none; write ParamGroup(names)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), CALLS, ids=[message[:40] for _, message in CALLS])
def test_a_call_that_does_not_fit(call, message):
    with pytest.raises(ConfigError) as error:
        call()
    assert str(error.value) == message.replace("%", NO_SUCH)


@pytest.mark.parametrize("name", [*ATTRIBUTES, "stepp"])
def test_an_attribute_that_other_libraries_have(name):
    optimizer = Adam(LayerNorm(2))
    message = rf"^{name}: an Adam has no such attribute; (write .*|did you mean 'step'\?)$"
    with pytest.raises(AttributeError, match=message) as error:
        getattr(optimizer, name)
    with pytest.raises(AttributeError, match=message):
        setattr(optimizer, name, 1e-4)
    assert isinstance(error.value, MhaError)
    for ours in re.findall(r"optimizer\.(\w+)", str(error.value)):
        assert hasattr(optimizer, ours)
    assert copy.deepcopy(optimizer).t == 0


def in_group(names="*", kind=SGD, **options):
    return kind(LayerNorm(2), 0.1, groups=[ParamGroup(names, **options)])


IMPOSSIBLE = {
    "learning_rate": lambda: SGD(NORM, 0.0),
    "momentum": lambda: SGD(NORM, 0.1, momentum=1.0),
    "betas": lambda: Adam(NORM, betas=(0.9, 1.0)),
    "weight_decay": lambda: AdamW(NORM, weight_decay=-0.1),
    "warm_up": lambda: warm_up_cosine(10, warm_up=10),
    "max_norm": lambda: clip_gradients(NORM, 0.0),
    "layer": lambda: SGD([np.ones(2)], 0.1),
    "scale": lambda: SGD(NORM, 0.1).step(np.nan),
    "betas: expected two numbers, such as": lambda: Adam(NORM, betas=0.9),
    "nesterov: expected momentum > 0": lambda: SGD(NORM, 0.1, nesterov=True),
    "groups: expected a list of ParamGroup": lambda: SGD(NORM, 0.1, groups="gain"),
    "groups: expected 'gian' to match .* names like it: gain, bias": lambda: in_group("bias gian"),
    "groups: expected 'gain' to match a param that no earlier": lambda: SGD(
        NORM, 0.1, groups=[ParamGroup("*"), ParamGroup("gain")]
    ),
    "groups: expected options of the optimizer, learning_rate, .* got 'weight_decay'": lambda: (
        in_group(weight_decay=0.1)
    ),
    "weight_decay: expected a number >= 0": lambda: in_group(kind=AdamW, weight_decay=-1),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_value_is_named(name):
    with pytest.raises(ConfigError, match=f"^{name}{'' if ':' in name else ': expected'}"):
        IMPOSSIBLE[name]()


class Own(Layer):
    """Somebody's own layer, with these params and parts."""

    def __init__(self, params, *parts):
        super().__init__()
        self.params, self.parts = params, parts


def tied_by_hand(flip=False):
    token, head = Embedding(5, 3), Linear(3, 5)
    head.params["w"] = token.params["table"].T[:: -1 if flip else 1]
    return Own({}, token, head)


BUFFER = np.zeros((4, 6))
FLOATS = "expected a float32 or float64 array, which can move in small steps; got "
UNFIT = [
    (Own({"n": np.arange(3)}),
     f"n: {FLOATS}an array (3,) of int64; write params['n'].astype(float)"),
    (Own({}, Own({"w": [1.0, 2.0]})),
     f"parts.0.w: {FLOATS}[1.0, 2.0]; write np.array(params['w'], float)"),
    (LayerNorm(2).astype(np.float16),
     f"gain: {FLOATS}an array (2,) of float16; write layer.astype(np.float32)"),
    (Dropout(0.1), "layer: expected one with params; got a Dropout without any"),
    (tied_by_hand(), "parts.1.w: expected its own memory; it shares some with parts.0.table; write "
     "Unembedding(embedding) for a table that two layers use, and .copy() otherwise"),
    (tied_by_hand(flip=True), "parts.1.w: expected its own memory; it shares some with "),
    (Own({"a": BUFFER[:3], "b": BUFFER[3:], "c": BUFFER[2:]}), "c: expected its own memory"),
    (Own({"a": BUFFER[:3, :2], "b": BUFFER[:3, 2:], "c": BUFFER[3:]}), None),
    (Own({"a": np.zeros(0), "b": np.zeros(0), "c": np.zeros(())}), None),
    (Own({}, *[Embedding(5, 3)] * 2), None),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "message"), UNFIT)
def test_params_that_cannot_move(layer, message):
    if message is None:
        SGD(layer, 0.1).step()
        return
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        Adam(layer)


def test_an_option_of_numpy_leaves_the_dtype():
    one = np.ones(2, np.float32)
    made = [
        *sgd_step(one, one, one, learning_rate=np.float64(0.1), momentum=np.float64(0.5)),
        *adam_step(one, one, one, one, 1, learning_rate=np.float64(0.1), eps=np.float64(1e-8)),
    ]
    assert {array.dtype for array in made} == {np.dtype(np.float32)}
