import numpy as np

from mha_numpy.checking import gradcheck
from mha_numpy.layers import cross_entropy_forward
from mha_numpy.models.experiments.distillation import (
    V,
    draw_ids,
    excess_loss,
    soft_cross_entropy,
    soft_cross_entropy_backward,
    true_probs,
)


def test_ids_follow_the_table(rng):
    table = np.zeros((V, V, V))
    i, j = np.ogrid[:V, :V]
    table[i, j, (2 * i + j + 1) % V] = 1  # after 0 0 comes 1, after 0 1 comes 2, after 1 2 comes 5
    ids = draw_ids(table, rng, 3)
    assert (ids[:, :6] == [0, 1, 2, 5, 2, 5]).all()
    probs = true_probs(table, ids[:, :-1])
    assert (probs.argmax(axis=-1) == ids[:, 1:]).all()

    table[0, 0] = [0.5, 0, 0.25, 0.25, 0, 0, 0, 0]
    first = draw_ids(table, rng, 4000)[:, 1]
    np.testing.assert_allclose(np.bincount(first, minlength=V) / 4000, table[0, 0], atol=0.03)


def test_the_loss_with_labels_is_the_cross_entropy(rng):
    logits, labels = rng.normal(size=(4, 5, V)), rng.integers(V, size=(4, 5))
    loss, _ = soft_cross_entropy(logits, np.eye(V)[labels])
    np.testing.assert_allclose(loss, cross_entropy_forward(logits, labels)[0])


def test_gradient_of_the_loss(rng):
    targets = rng.dirichlet(np.ones(V), size=(4, 5))
    assert gradcheck(
        lambda logits: soft_cross_entropy(logits, targets),
        lambda d_loss, cache: (soft_cross_entropy_backward(d_loss, cache),),
        {"logits": rng.normal(size=(4, 5, V))},
    )


def test_the_excess_loss_of_the_truth_is_0_and_of_a_guess_known():
    probs = np.array([[0.5, 0.5, 0, 0]])
    with np.errstate(divide="ignore"):
        assert abs(excess_loss(np.log(probs), probs)) < 1e-12
    np.testing.assert_allclose(excess_loss(np.zeros((1, 4)), probs), np.log(2))  # 4 ways, not 2
