"""Whole models: gradients of all params through everything, and who depends on what."""

import numpy as np
import pytest

from mha_numpy.core import KVCache
from mha_numpy.errors import ConfigError
from mha_numpy.models import GPT2, AttentionOnlyLM, Llama, TransformerLM, Translator
from tests.compare import assert_close
from tests.gradients import assert_layer_gradients, randomize

V, TARGET_V, N = 7, 9, 6
IDS = np.array([[1, 4, 4, 0, 6], [2, 0, 1, 5, 1]])
SOURCE = np.array([[3, 4, 5, 0], [3, 3, 4, 6]])  # one with padding
TARGET = np.array([[1, 8, 2, 8, 3], [1, 5, 0, 7, 4]])

LANGUAGE_MODELS = {
    "attention alone": (AttentionOnlyLM, {}),
    "transformer": (TransformerLM, {}),
    "GPT-2": (GPT2, {"num_layers": 2}),
    "Llama": (Llama, {"num_kv_heads": 1, "head_dim": 6, "window": (2, 0), "eps": 0.1}),
    "transformer with dropout": (TransformerLM, {"dropout_p": 0.2}),
}


def language_model(name, rng):
    kind, options = LANGUAGE_MODELS[name]
    return randomize(kind(V, N, embed_dim=8, num_heads=2, **options), rng)


def translator(rng, **options):
    return randomize(
        Translator(V, TARGET_V, N, embed_dim=8, num_heads=2, num_layers=2, **options), rng
    )


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_gradients_of_a_language_model(name, rng):
    assert_layer_gradients(language_model(name, rng), {"ids": IDS})


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"norm_first": False, "dropout_p": 0.2}])
def test_gradients_of_a_translator(options, rng):
    assert_layer_gradients(translator(rng, **options), {"source": SOURCE, "target": TARGET})


@pytest.mark.parametrize("name", [name for name in LANGUAGE_MODELS if "dropout" not in name])
def test_what_comes_later_changes_nothing(name, rng):
    model, other = language_model(name, rng), IDS.copy()
    other[:, 3] = (other[:, 3] + 1) % V
    logits, changed = model(IDS), model(other)
    assert_close(changed[:, :3], logits[:, :3])
    assert (changed[:, 3:] != logits[:, 3:]).any(axis=-1).all()
    assert_close(model(IDS[:, :3]), logits[:, :3])


def test_a_translation_depends_on_the_source_and_on_what_is_written(rng):
    model = translator(rng)
    source, target = SOURCE.copy(), TARGET.copy()
    source[:, 2], target[:, 3] = 6, 6
    logits, by_source, by_target = (
        model(SOURCE, TARGET),
        model(source, TARGET),
        model(SOURCE, target),
    )
    assert (by_source != logits).any(axis=-1).all()
    assert_close(by_target[:, :3], logits[:, :3])
    assert (by_target[:, 3:] != logits[:, 3:]).any(axis=-1).all()


def test_padding_of_the_source_changes_nothing(rng):
    model, d_logits = translator(rng), rng.normal(size=(1, 5, TARGET_V))
    logits = model(SOURCE[:1, :3], TARGET[:1])
    model.backward(d_logits)
    grads = dict(model.named_grads())
    model.zero_grads()
    for padded in (SOURCE[:1], np.pad(SOURCE[:1], ((0, 0), (0, 2)))):
        assert_close(model(padded, TARGET[:1]), logits)
        model.backward(d_logits)
        for name, gradient in model.named_grads():
            assert_close(gradient, grads[name], name=name)
        model.zero_grads()


@pytest.mark.parametrize("name", ["transformer", "Llama"])
def test_decoding_equals_the_full_forward(name, rng):
    model = language_model(name, rng)
    kv_caches = [KVCache() for _ in model.blocks]
    with pytest.raises(ConfigError, match="kv_caches: expected one for each of the 2 blocks; got"):
        model(IDS, kv_caches=kv_caches[:1])
    parts = [model(IDS[:, a:b], kv_caches=kv_caches) for a, b in ((0, 3), (3, 4), (4, 5))]
    assert_close(np.concatenate(parts, axis=1), model(IDS))


def test_float32_stays(rng):
    for model, ids in ((language_model("transformer with dropout", rng), (IDS,)),
                       (translator(rng), (SOURCE, TARGET))):  # fmt: skip
        logits = model.astype(np.float32)(*ids)
        model.backward(logits)
        assert {logits.dtype, *(g.dtype for _, g in model.named_grads())} == {np.dtype(np.float32)}
