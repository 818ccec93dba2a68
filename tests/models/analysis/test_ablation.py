"""Scores without heads, of a model whose score is known for each set of heads that is cut."""

import numpy as np
import pytest

from mha_numpy.layers import Layer, MultiHeadAttention
from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.analysis import (
    ablation_scores,
    attention_layers,
    least_important_first,
    mean_heads,
    pruning_curve,
)
from tests.compare import assert_close

# what each head adds to the output: its value, which is 1 for all tokens, times its w_o
WORTH = {"attentions.0": [1.0, 8.0], "attentions.1": [4.0, -2.0, 3.0]}
BIAS = 0.5  # of all outputs


class Sum(Layer):
    """Two layers that see the same tokens; the model's output is the sum of theirs."""

    def __init__(self):
        super().__init__()
        self.attentions = []
        for worth in WORTH.values():
            layer = MultiHeadAttention(1, len(worth), head_dim=1)
            layer.params["w_v"][:], layer.params["w_o"][:, 0] = 1, worth
            layer.params["b_o"][:] = BIAS / 2
            self.attentions.append(layer)

    def forward(self, x):
        return sum(attention(x) for attention in self.attentions)


@pytest.fixture
def model():
    return Sum()


@pytest.fixture
def score(model):
    """Return the mean of the output for tokens 1 and 1, whose heads are 1."""
    return lambda: model(np.ones((1, 2, 1))).mean()


def test_each_head_alone_by_0_and_by_its_mean(model, score):
    assert score() == 14.5
    found = ablation_scores(model, score)
    assert list(found) == list(WORTH)
    assert_close(found["attentions.0"], [13.5, 6.5])
    assert_close(found["attentions.1"], [10.5, 16.5, 11.5])
    means = {name: 2 * mean_heads(layer) for name, layer in attention_layers(model).items()}
    doubled = ablation_scores(model, score, means=means)
    assert_close(doubled["attentions.0"], [15.5, 22.5])
    assert_close(doubled["attentions.1"], [18.5, 12.5, 17.5])
    assert score() == 14.5


def test_heads_in_the_order_of_their_importance(model, score):
    importance = {name: np.abs(worth) for name, worth in WORTH.items()}
    order = least_important_first(importance)
    curve = pruning_curve(model, score, order)
    first, second = WORTH
    assert curve.heads == order == [(first, 0), (second, 1), (second, 2), (second, 0), (first, 1)]
    assert_close(curve.scores, [14.5, 13.5, 15.5, 12.5, 8.5, 0.5])
    assert curve.first(3) == {first: [0], second: [1, 2]}
    shorter = pruning_curve(model, score, order, num_cuts=2)
    assert shorter.heads == order[:2]
    assert_close(shorter.scores, curve.scores[:3], "exact")


def test_greedy_cuts_what_hurts_least(model, score):
    curve = pruning_curve(model, score)
    first, second = WORTH
    assert curve.heads == [(second, 1), (first, 0), (second, 2), (second, 0), (first, 1)]
    assert_close(curve.scores, [14.5, 16.5, 15.5, 12.5, 8.5, 0.5])
    assert pruning_curve(model, score, num_cuts=1).heads == curve.heads[:1]
    assert pruning_curve(model, score, num_cuts=0).heads == []
    assert score() == 14.5


def test_greedy_looks_again_after_each_cut():
    # two heads do the same work: one of them can go, and then the other cannot
    model = AttentionOnlyLM(4, 4, num_heads=3, embed_dim=6, num_layers=1)

    def score():
        gate = model.attentions[0].head_gate
        return max(gate[0], gate[2]) + 0.1 * gate[1] if gate is not None else 1.1

    assert [h for _, h in pruning_curve(model, score).heads] == [0, 1, 2]
