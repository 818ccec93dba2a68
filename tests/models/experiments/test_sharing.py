import numpy as np
import pytest

from mha_numpy.core import softmax_forward
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.models.experiments.sharing import (
    align_heads,
    average_heads,
    keep_first,
    rotation,
)


@pytest.fixture
def layer():
    return MultiHeadAttention(12, 6, head_dim=2, bias=False, rng=0)


@pytest.fixture
def x(rng):
    return rng.normal(size=(4, 5, 12))


def test_a_rotation_is_found_again(rng):
    quarter = np.array([[0.0, 1.0], [-1.0, 0.0]])
    head = rng.normal(size=(7, 2))
    assert np.allclose(rotation(head, head @ quarter), quarter)


def test_alignment_changes_keys_and_no_output(layer, x):
    out = layer(x)
    before = layer.params["w_k"].copy()
    align_heads(layer, num_kv_heads=2)
    assert np.allclose(layer(x), out)
    moved = abs(layer.params["w_k"] - before).reshape(12, 6, 2).max(axis=(0, 2)) > 1e-9
    assert moved.tolist() == [False, True, True, False, True, True]


def test_heads_that_differ_by_rotations_share_without_loss(layer, x, rng):
    for name in ("w_k", "w_v"):
        first = layer.params[name][:, :2]
        turned = [first @ np.linalg.qr(rng.normal(size=(2, 2)))[0] for _ in range(6)]
        layer.params[name] = np.concatenate(turned, axis=1)
    out = layer(x)
    align_heads(layer, num_kv_heads=1)
    average_heads(layer, num_kv_heads=1)
    assert layer.params["w_k"].shape == (12, 2)
    assert np.allclose(layer(x), out)


def test_the_mean_is_taken_of_neighbours(layer, x):
    w_k, w_v = (layer.params[name].reshape(12, 6, 2) for name in ("w_k", "w_v"))
    average_heads(layer, num_kv_heads=2)
    w_q, w_o = layer.params["w_q"], layer.params["w_o"]
    out = 0
    for h in range(6):
        group = slice(0, 3) if h < 3 else slice(3, 6)
        own = slice(2 * h, 2 * h + 2)
        q, k, v = x @ w_q[:, own], x @ w_k[:, group].mean(axis=1), x @ w_v[:, group].mean(axis=1)
        weights, _ = softmax_forward(q @ k.swapaxes(1, 2) / np.sqrt(2))
        out = out + weights @ v @ w_o[own]
    assert np.allclose(layer(x), out)


def test_the_first_head_of_each_group_is_kept(layer, x):
    keep_first(layer, num_kv_heads=2)
    assert layer.head_gate.tolist() == [1, 0, 0, 1, 0, 0]
