import numpy as np

from mha_numpy.models.analysis import attention_layers
from mha_numpy.models.experiments.redundancy import (
    ARMS,
    draw,
    heads_fail,
    make_model,
    noise_on_heads,
)


def test_models_have_the_heads_that_their_arm_names_and_equal_params():
    sizes = []
    for task, num_heads, width in ARMS.values():
        model = make_model(task, num_heads, width, seed=0)
        heads = [(each.num_heads, each.head_dim) for each in attention_layers(model).values()]
        assert heads == [(num_heads, width)] * (2 if task == "copying" else 1)
        sizes.append(model.num_parameters)
    places, copying, (narrow, wide) = sizes[:3], sizes[3:7], sizes[7:]
    assert len({*places}) == len({*copying}) == 1
    assert narrow < copying[0] < wide


def test_heads_fail_as_often_as_is_said_and_work_again(rng):
    model = make_model("copying", 4, 8, seed=0)
    (ids,), _ = draw(rng, "copying", 512)
    before = model(ids)
    with heads_fail(model, 0.25, len(ids), rng):
        gates = [layer.head_gate for layer in attention_layers(model).values()]
        np.testing.assert_allclose(np.mean(gates), 0.75, atol=0.03)
        # each by itself
        np.testing.assert_allclose(np.all(gates, axis=-1).mean(), 0.75**4, atol=0.05)
        assert (model(ids) != before).any()
    with heads_fail(model, 1.0, len(ids), rng):  # only the residual path is left
        np.testing.assert_array_equal(model(ids), model.unembedding(model.embedding(ids)))
    np.testing.assert_array_equal(model(ids), before)


def test_noise_is_as_large_as_what_the_heads_write(rng):
    model = make_model("places", 4, 8, seed=0)
    layer = model.attention
    (ids,), _ = draw(rng, "places", 256)
    w_o, _ = np.linalg.qr(rng.normal(size=(32, 32)))  # its transpose takes what is written apart
    layer.params["w_o"] = w_o.astype(np.float32)
    written = []
    model.readout = lambda x: written.append(x) or np.zeros((*x.shape[:2], 32))
    model(ids)
    heads = layer.forward_cache.attention.heads
    with noise_on_heads(model, 2.0, rng):
        model(ids)
    noise = ((written[1] - written[0]) @ w_o.T).reshape(*ids.shape, 4, 8)
    sizes = [np.sqrt((each**2).mean(axis=(0, 1, 3))) for each in (noise, heads.swapaxes(1, 2))]
    np.testing.assert_allclose(sizes[0], 2 * sizes[1], rtol=0.03)


def test_noise_is_on_the_heads_of_every_layer_until_it_ends(rng):
    model = make_model("copying", 4, 8, seed=0)
    layers, x = attention_layers(model).values(), rng.normal(size=(2, 3, 32)).astype(np.float32)
    with noise_on_heads(model, 1.0, rng):
        assert all((layer(x) != layer(x)).any() for layer in layers)
    assert all((layer(x) == layer(x)).all() for layer in layers)
