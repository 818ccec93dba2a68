import numpy as np

from mha_numpy.models.experiments.norm_place import ARMS, PLACES, T, make_model

IDS = np.random.default_rng(0).integers(30, size=(4, T))


def out_of_blocks(place):
    """Return the embeddings and what each block returns: (L + 1, B, T, D)."""
    model = make_model(30, place, seed=0).astype(np.float64)
    rows = [model.positions(model.embedding(IDS))]
    for block in model.blocks:
        rows.append(block(rows[-1]))
    return np.stack(rows)


def test_the_models_start_with_the_same_params_whatever_the_place():
    before, after = (dict(make_model(30, place, seed=0).named_params()) for place in PLACES)
    assert before.keys() == after.keys()
    assert all((before[name] == after[name]).all() for name in before)


def test_embeddings_start_as_large_as_what_a_norm_returns():
    rows = out_of_blocks("after")
    assert abs(np.square(rows[0]).mean() - 2) < 0.3  # a token and a place, each with variance 1
    np.testing.assert_allclose(rows[1:].mean(axis=-1), 0, atol=1e-6)
    np.testing.assert_allclose(np.square(rows[1:]).mean(axis=-1), 1, atol=1e-4)


def test_with_the_norm_before_nothing_keeps_the_rows_at_one_size():
    sizes = np.square(out_of_blocks("before")).mean(axis=-1)  # (L + 1, B, T)
    assert sizes[-1].mean() > 1.2 * sizes[0].mean()
    assert sizes[-1].std() > 0.1


def test_every_place_start_and_rate_is_tried():
    assert len(ARMS) == len(set(ARMS.values())) == 12
