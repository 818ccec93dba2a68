"""Params that an object stores in one array with an axis of maps."""

import numpy as np
import pytest

from mha_numpy.identifying import identify
from mha_numpy.identifying.calling.layouts import arrange
from mha_numpy.identifying.family import Sizes


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def draw(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape) / np.sqrt(shape[-1])


def attend(q, k, v, heads):
    q, k, v = (x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for x in (q, k, v))
    out = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    return out.swapaxes(1, 2).reshape(*out.shape[::2], -1)


class ThreeNamed:
    def __init__(self, units, parts=4):
        self.parts = parts
        self.Wqkv, self.bqkv = draw(3, units, units), draw(3, units)
        self.Wout, self.bout = draw(units, units), draw(units)

    def __call__(self, sents):
        q, k, v = (sents @ self.Wqkv[i] + self.bqkv[i] for i in range(3))
        return attend(q, k, v, self.parts) @ self.Wout + self.bout


class ThreeTransposed:
    def __init__(self, units, parts=4):
        self.parts = parts
        self.Win, self.bin, self.Wout = draw(3, units, units), draw(3, units), draw(units, units)

    def __call__(self, sents):
        q, k, v = (sents @ self.Win[i].T + self.bin[i] for i in range(3))
        return attend(q, k, v, self.parts) @ self.Wout.T


class Four:
    def __init__(self, units, parts=4):
        self.parts = parts
        self.W, self.b = draw(4, units, units), draw(4, units)

    def __call__(self, x):
        q, k, v = (x @ self.W[i] + self.b[i] for i in range(3))
        return attend(q, k, v, self.parts) @ self.W[3] + self.b[3]


class Two:
    def __init__(self, units, parts=4):
        self.parts = parts
        self.Wq, self.Wo = draw(units, units), draw(units, units)
        self.Wkv, self.bkv = draw(2, units, units), draw(2, units)

    def __call__(self, x, mem):
        k, v = (mem @ self.Wkv[i] + self.bkv[i] for i in range(2))
        return attend(x @ self.Wq, k, v, self.parts) @ self.Wo


@pytest.mark.parametrize(
    ("layer", "stored"),
    [
        (ThreeNamed, {"Wqkv": "(3, D, H*d_k)", "bqkv": "(3, H*d_k)"}),
        (ThreeTransposed, {"Win": "(3, H*d_k, D)", "bin": "(3, H*d_k)"}),
        (Four, {"W.0": "(D, H*d_k)", "b.3": "(D,)"}),
        (Two, {"Wkv": "(2, D, H*d_k)", "bkv": "(2, H*d_k)"}),
    ],
)
def test_maps_may_be_stored_in_one_array(layer, stored):
    sheet = identify(layer)
    assert sheet.is_found
    assert not sheet.mistakes
    assert stored.items() <= {each.name: each.axes for each in sheet.arguments}.items()


def test_an_axis_of_maps_comes_apart():
    packed = np.arange(2 * 96).reshape(2, 96)
    stacked = arrange(packed, "D P", "3 M D", Sizes())
    assert stacked.shape == (3, 32, 2)
    assert (stacked[1, :, 0] == packed[0, 32:64]).all()
