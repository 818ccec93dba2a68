"""Dropout in PyTorch: functional, modules, fused attention, and numbers drawn by hand."""

import os

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.functional import dropout, scaled_dot_product_attention  # noqa: E402

from mha_numpy.identifying import identify  # noqa: E402
from tests.identifying.test_dropout import SCALED, facts  # noqa: E402


def softmax(q, k):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)


def always(q, k, v, p=0.1):
    return dropout(softmax(q, k), p) @ v


def fused(q, k, v, training=True):
    return scaled_dot_product_attention(q, k, v, dropout_p=0.1 if training else 0.0)


def in_place(q, k, v, p_drop=0.2, is_training=False):
    w = softmax(q, k)
    return w * torch.empty_like(w).bernoulli_(1 - p_drop) @ v if is_training else w @ v


def by_hand(q, k, v):
    w = softmax(q, k)
    return w.masked_fill(torch.rand_like(w) < 0.3, 0) / 0.7 @ v


class Layer(nn.Module):
    def __init__(self, is_right=True):
        super().__init__()
        self.qkv, self.proj, self.is_right = nn.Linear(24, 72), nn.Linear(24, 24), is_right
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 6)).permute(2, 0, 3, 1, 4)
        w = softmax(q, k)
        w = self.drop(w) if self.is_right else dropout(w, 0.3)
        return self.proj((w @ v).transpose(1, 2).flatten(2))


WEIGHTS = ("dropout", "weights")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (always, [("dropout_when", "with a rate"), WEIGHTS, ("dropout_rate", "rate", "p"), SCALED]),
        (fused, [("dropout_when", "if True", "training"), WEIGHTS, ("dropout_rate", "0.1"),
                 SCALED]),
        (in_place, [("dropout_when", "if True", "is_training"), WEIGHTS,
                    ("dropout_rate", "rate", "p_drop"), ("dropout_scale", "1")]),
        (by_hand, [("dropout_when", "always"), WEIGHTS, ("dropout_rate", "0.3"), SCALED]),
        (Layer(), [("dropout_when", "in train()"), WEIGHTS, ("dropout_rate", "rate", "drop.p"),
                   SCALED]),
        (Layer(is_right=False), [("dropout_when", "also without training"), WEIGHTS,
                                 ("dropout_rate", "0.3"), SCALED]),
    ],
)  # fmt: skip
def test_what_is_dropped(function, expected):
    assert facts(function) == expected
    assert torch.nn.functional.dropout is dropout
    assert "bernoulli_" not in vars(torch.Tensor)


def test_a_layer_of_keras():
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")

    class Attend(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.drop = keras.layers.Dropout(0.4)

        def call(self, q, k, v, training=False):
            scores = keras.ops.einsum("btd,bsd->bts", q, k) / q.shape[-1] ** 0.5
            weights = keras.ops.softmax(scores)
            return self.drop(weights, training=training) @ v

    when = ("dropout_when", "if True", "training")
    assert facts(Attend()) == [when, WEIGHTS, ("dropout_rate", "rate", "drop.rate"), SCALED]


def test_params_that_a_layer_draws_at_its_first_call_are_its_own():
    keras = pytest.importorskip("keras")

    class Attend(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (keras.layers.Dense(8) for _ in range(3))

        def call(self, x):
            q, k, v = self.q(x), self.k(x), self.v(x)
            scores = keras.ops.einsum("btd,bsd->bts", q, k) / 8**0.5
            return keras.ops.softmax(scores) @ v

    sheet = identify(Attend())
    assert sheet.value("scale") == "1/sqrt(d)"
    assert [each.name for each in sheet.arguments][:2] == ["x", "q.kernel"]


@pytest.mark.slow
def test_operations_of_keras_have_the_dtype_of_keras():
    os.environ.setdefault("KERAS_BACKEND", "torch")
    names = {"ops": pytest.importorskip("keras").ops}
    source = """
def attend(q, k, v):
    scores = ops.matmul(q * q.shape[-1] ** -0.5, ops.transpose(k, (0, 2, 1)))
    return ops.matmul(ops.softmax(scores), v)
"""
    exec(source, names)
    assert not identify(names["attend"]).mistakes


class Normed(torch.nn.Module):
    """Queries and keys through a layer norm; a causal mask that leaves the last row nothing."""

    def __init__(self, wrong):
        super().__init__()
        self.qkv, self.wrong = torch.nn.Linear(16, 48), wrong
        self.q_norm, self.k_norm = torch.nn.LayerNorm(4), torch.nn.LayerNorm(4)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(x).reshape(B, T, 3, 4, 4).permute(2, 0, 3, 1, 4)
        scores = self.q_norm(q) @ self.k_norm(k).transpose(2, 3) / 2
        if self.wrong:
            scores = scores.masked_fill(torch.ones(T, T).tril() == 1, -torch.inf)
        weights = torch.nn.functional.dropout(scores.softmax(-1), 0.1, self.training)
        return (weights @ v).transpose(1, 2).reshape(B, T, D)


@pytest.mark.slow
def test_norms_of_queries_and_keys_and_rows_of_nan():
    assert not identify(Normed(wrong=False)).mistakes
    assert [row.setting for row in identify(Normed(wrong=True)).mistakes] == ["causal"]
