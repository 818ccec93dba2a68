import numpy as np

from mha_numpy.models.analysis import attention_layers
from mha_numpy.models.experiments.redundancy import (
    ARMS,
    draw,
    heads_fail,
    make_model,
    noise_on_heads,
)


def test_models_of_equal_width_have_the_same_number_of_params():
    sizes = {arm: make_model(*shape, seed=0).num_parameters for arm, shape in ARMS.items()}
    for task in ("copying", "places"):
        equal = {
            sizes[arm]
            for arm, (name, num_heads, width) in ARMS.items()
            if (name, num_heads * width) == (task, 32)
        }
        assert len(equal) == 1


def test_heads_fail_as_often_as_is_said_and_work_again(rng):
    model = make_model("copying", 4, 8, seed=0)
    (ids,), _ = draw(rng, "copying", 512)
    before = model(ids)
    with heads_fail(model, 0.25, len(ids), rng):
        gates = [layer.head_gate for layer in attention_layers(model).values()]
        np.testing.assert_allclose(np.mean(gates), 0.75, atol=0.03)
        assert (model(ids) != before).any()
    with heads_fail(model, 1.0, len(ids), rng):  # only the residual path is left
        np.testing.assert_array_equal(model(ids), model.unembedding(model.embedding(ids)))
    np.testing.assert_array_equal(model(ids), before)


def test_noise_is_as_large_as_what_the_heads_write(rng):
    model = make_model("places", 4, 8, seed=0)
    layer = model.attention
    (ids,), _ = draw(rng, "places", 256)
    layer.params["w_o"] = np.eye(32, dtype=np.float32)  # so that heads are read side by side
    written = []
    model.readout = lambda x: written.append(x) or np.zeros((*x.shape[:2], 32))
    model(ids)
    heads = layer.forward_cache.attention.heads
    with noise_on_heads(model, 2.0, rng):
        model(ids)
    noise = (written[1] - written[0]).reshape(*ids.shape, 4, 8)
    sizes = [np.sqrt((each**2).mean(axis=(0, 1, 3))) for each in (noise, heads.swapaxes(1, 2))]
    np.testing.assert_allclose(sizes[0], 2 * sizes[1], rtol=0.03)
    assert "forward" not in vars(layer)
