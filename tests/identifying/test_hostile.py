"""Functions and objects that would end identify with a traceback, or stay changed after it."""

import os
import random
import sys
import threading
import time
from unittest.mock import MagicMock

import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.identifying import identify


def attend(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


class Layer:
    def __call__(self, q, k, v):
        return attend(q, k, v)


class AnswersAll(Layer):
    def __getattr__(self, name):
        return self


class RaisesAll(Layer):
    def __getattribute__(self, name):
        raise RuntimeError(name)


class Properties:
    @property
    def forward(self):
        raise RuntimeError("no")

    shape = backward = forward

    def attend(self, q, k, v):
        return attend(q, k, v)


class Fakes(Layer):
    __module__ = None
    __self__ = backward = property(lambda self: 1 / 0)

    def get_weights(self):
        return []

    def named_parameters(self):
        raise RuntimeError("no")

    def train(self, mode):
        raise RuntimeError("no")


class Strange(Layer):
    def __init__(self):
        self.me, self.list, self.dict = self, [self], {"me": self}
        self.list.append(self.list)
        self.heads, self.size, self.width = float("nan"), float("inf"), 10**400
        self.scale, self.words = np.array(0.3), np.array([None, "a"], object)
        self.lock, self.empty, self.module = threading.Lock(), np.array([]), np


def returning(make):
    def function(q, k, v):
        return make(attend(q, k, v))

    return function


def in_itself(array):
    found = [array]
    found.append(found)
    return found


def with_parent(array):
    found = Layer()
    found.out, found.parent = array, found
    return found


def circling():
    function, other = returning(np.copy), returning(np.copy)
    function.__wrapped__, other.__wrapped__ = other, function
    return function


def with_attributes(**attributes):
    function = returning(np.copy)
    vars(function).update(attributes)
    return function


def with_empty_cell():
    if sys is None:
        late = 1

    def function(q, k, v):
        return attend(q, k, v) if q is not None else late

    return function


@pytest.mark.parametrize(
    "function",
    [
        Properties(), Fakes(), Strange(), circling(), with_attributes(__wrapped__=None),
        with_empty_cell(), returning(in_itself), returning(with_parent),
        returning(lambda a: {"out": a, "of": np.array(["a"])}),
        returning(lambda a: a.astype(object)),
    ],
)  # fmt: skip
def test_attention_is_found_in_strange_surroundings(function):
    sheet = identify(function)
    assert sheet.is_found
    assert not sheet.mistakes


class BadError(BaseException):
    def __str__(self):
        raise ValueError("no text")


def raising(q, k, v):
    raise BadError


def asking(q, k, v):
    return attend(q, k, v) * float(input("how much? "))


def asking_a_dict(x, params):
    number = 0
    while f"p{number}" not in params and number < 10**5:
        number += 1
    return x


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (MagicMock(), "no call worked"),
        pytest.param(AnswersAll(), "no call worked", marks=pytest.mark.slow),
        (with_attributes(__signature__="nonsense"), "no call worked"),
        pytest.param(raising, "the likeliest one raised BadError", marks=pytest.mark.slow),
        (asking, "EOFError"),
        pytest.param(asking_a_dict, "nothing attends", marks=pytest.mark.slow),
        pytest.param(returning(lambda _: in_itself([])), "no call worked", marks=pytest.mark.slow),
    ],
)
def test_other_functions_get_a_sentence(function, says):
    sheet = identify(function)
    assert not sheet.is_found
    assert says in " ".join(str(sheet).split())


@pytest.mark.parametrize(
    ("make", "says"),
    [(str, "got str"), (lambda: np, "got module"), (RaisesAll, "cannot look into it")],
)
def test_what_is_no_function_gets_an_error(make, says):
    with pytest.raises(ConfigError, match=says):
        identify(make())


class Keeping(Layer):
    def __init__(self):
        self.keys, self.calls, self.last, self.array = [], 0, None, np.zeros(1)

    def __call__(self, q, k, v):
        self.keys.append(k)
        self.calls += 1
        self.array += 1
        self.last, self.new = attend(q, k, v), q
        return self.last


def test_an_object_stays_as_it_was():
    layer = Keeping()
    array, keys = layer.array, layer.keys
    assert identify(layer).is_found
    assert vars(layer) == {"keys": [], "calls": 0, "last": None, "array": array}
    assert layer.keys is keys
    assert array == 0


KEPT: list[int] = []


def test_closures_and_globals_stay_as_they_were():
    own, array = {}, np.zeros(1)

    def function(q, k, v):
        KEPT.append(1)
        own["last"] = q
        array[0] += 1
        return attend(q, k, v)

    assert identify(function).is_found
    assert (KEPT, own, array[0]) == ([], {}, 0)


def test_what_is_global_stays_as_it_was():
    plt = pytest.importorskip("matplotlib.pyplot")

    def function(q, k, v):
        os.chdir("/")
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        plt.figure()
        plt.show()
        return attend(q, k, v)

    def state():
        drawn = np.random.get_state()[1].tolist()  # noqa: NPY002
        return os.getcwd(), random.getstate(), drawn, plt.get_fignums(), plt.show

    before = state()
    assert identify(function).is_found
    assert state() == before


def test_settings_of_jax_stay_as_they_were():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", False)

    def function(q, k, v):
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
        return weights @ v

    try:
        assert identify(function, seconds=0.2).framework == "jax"
        assert not jax.config.jax_enable_x64
    finally:
        jax.config.update("jax_enable_x64", True)


def test_a_slow_function_ends_in_time():
    def function(q, k, v, mask=None, scale=None):
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        return attend(q, k, v) if mask is None else attend(np.where(mask, q, 0), k, v)

    start = time.process_time()
    sheet = identify(function, seconds=0.5)
    assert time.process_time() - start < 1
    assert sheet.is_found
    assert not sheet.mistakes
    assert "it ran out of time before everything was tried" in str(sheet)
