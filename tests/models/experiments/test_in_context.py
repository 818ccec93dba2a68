import numpy as np
import pytest

from mha_numpy.models import AttentionOnlyLM, induction_by_hand
from mha_numpy.models.experiments.in_context import (
    TASKS,
    T,
    V,
    ask_known,
    draw_again,
    draw_pairs,
    fix_head,
)
from mha_numpy.models.train import IGNORED, share_right


def test_the_same_letters_come_again_and_the_next_one_is_asked():
    (ids,), targets = draw_again(np.random.default_rng(0), 200)
    periods = set()
    for row, asked in zip(ids, targets, strict=True):
        period = len(set(row))
        periods.add(period)
        assert len(set(row[:period])) == period
        assert (row[period:] == row[:-period]).all()
        assert (asked[:-1] == row[1:]).all()
        assert asked[-1] == row[T - period]
    assert periods == set(range(4, 11))


def test_a_key_that_comes_again_has_its_value_and_another_one_in_other_sequences():
    (ids,), targets = draw_pairs(np.random.default_rng(0), 200)
    keys, values = ids[:, ::2], ids[:, 1::2]
    assert keys.max() < V // 2 <= values.min()
    for row in range(200):
        belongs = dict(zip(keys[row], values[row], strict=True))
        assert [belongs[key] for key in keys[row]] == values[row].tolist()
    assert (targets[:, ::2] == values).all()
    assert (targets[:, 1::2] == IGNORED).all()
    assert set(values[keys == 0]) == set(range(V // 2, V))


def test_only_answers_that_can_be_read_count():
    ids, targets = np.array([[5, 7, 6, 5, 7]]), np.array([[7, 6, 5, 7, 6]])
    assert ask_known(ids, targets).tolist() == [[IGNORED, IGNORED, IGNORED, 7, 6]]


@pytest.mark.parametrize("draw", TASKS.values(), ids=TASKS)
def test_the_circuit_set_by_hand_gets_all_of_them_right(draw):
    (ids,), targets = draw(np.random.default_rng(0), 32)
    model = induction_by_hand(V, T)
    assert share_right(model(ids), ask_known(ids, targets)) == 1


@pytest.mark.parametrize("back", [1, 2])
def test_a_fixed_head_looks_so_many_places_back_and_the_other_is_free(back):
    model = AttentionOnlyLM(V, T, embed_dim=8, num_heads=2, rng=0)
    fix_head(model, back)
    model(np.arange(T)[None] % V)
    fixed, free = model.attentions[0].weights[0]
    places = np.arange(T)
    assert (fixed[places, np.maximum(places - back, 0)] == 1).all()
    assert (free[np.tril_indices(T)] > 0).all()
