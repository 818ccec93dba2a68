"""Whole models: gradients of all params through everything, and who depends on what."""

import numpy as np
import pytest

from mha_numpy.core import KVCache, RopeOptions
from mha_numpy.errors import ConfigError, MaskError, ShapeError
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
    return randomize(kind(V, N, embed_dim=8, num_heads=2, rng=0, **options), rng)


def translator(rng, **options):
    return randomize(
        Translator(V, TARGET_V, N, embed_dim=8, num_heads=2, num_layers=2, rng=0, **options), rng
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


STRETCHES = ((0, 3), (3, 4), (4, 5))


@pytest.mark.parametrize("name", ["transformer", "Llama", "attention alone"])
def test_decoding_equals_the_full_forward(name, rng):
    model = language_model(name, rng)
    kv_caches = model.new_kv_caches()
    for wrong in (kv_caches[:1], 7, [None, None], [(KVCache(), KVCache())] * 3):
        with pytest.raises(ConfigError, match="^kv_caches: expected .* model.new_kv_caches\\(\\)"):
            model(IDS, kv_caches=wrong)
    parts = [model(IDS[:, a:b], kv_caches=kv_caches) for a, b in STRETCHES]
    assert_close(np.concatenate(parts, axis=1), model(IDS))


def filled(*shapes):
    """Return a KV cache for each shape of keys and values."""
    kv_caches = [KVCache() for _ in shapes]
    for kv_cache, shape in zip(kv_caches, shapes, strict=True):
        kv_cache.append(np.ones(shape), np.ones(shape))
    return kv_caches


@pytest.mark.parametrize(
    ("kv_caches", "got"),
    [
        ([KVCache()] * 2, "the same one twice"),
        (filled((2, 2, 1, 4), (2, 2, 2, 4)), "KVCache.k .2, 2, 1, 4.*, KVCache.k .2, 2, 2, 4.*"),
        (filled((2, 2, 1, 4), (2, 2, 1, 5)), "KVCache.k .2, 2, 1, 4.*, KVCache.k .2, 2, 1, 5.*"),
        ([*filled((2, 2, 1, 4)), KVCache()], "KVCache.k .2, 2, 1, 4.*, KVCache.empty."),
        ([(KVCache(), KVCache()), (KVCache(), KVCache())], ".KVCache.empty., KVCache.empty.."),
    ],
)
def test_kv_caches_that_do_not_belong_together(kv_caches, got, rng):
    model, ids = TransformerLM(V, N, embed_dim=8, num_heads=2, num_layers=2), IDS[:, :1]
    with pytest.raises(ConfigError, match=f"^kv_caches: expected .*; got {got}"):
        model(ids, kv_caches=kv_caches)
    model = translator(rng)
    memory, mask = model.encode(SOURCE), SOURCE[:, None, None] > 0
    with pytest.raises(ConfigError, match="^kv_caches: expected .*; got "):
        model.decode(memory, mask, TARGET[:, :1], kv_caches=[KVCache() for _ in model.decoder])
    shared = model.new_kv_caches()[:1] * len(model.decoder)
    with pytest.raises(ConfigError, match="^kv_caches: expected .*; got "):
        model.decode(memory, mask, TARGET[:, :1], kv_caches=shared)


def test_kv_caches_of_a_wider_model_are_refused_and_stay_as_they_were():
    model = TransformerLM(V, N, embed_dim=8, num_heads=2, num_layers=2)
    kv_caches = filled((2, 2, 1, 5), (2, 2, 1, 5))
    with pytest.raises(ShapeError, match="^k: expected .* to match the KV cache"):
        model(IDS[:, :1], kv_caches=kv_caches)
    assert {kv_cache.length for kv_cache in kv_caches} == {1}


@pytest.mark.parametrize(
    "options", [{}, {"norm_first": False, "num_kv_heads": 1}, {"rope": RopeOptions()}]
)
def test_a_translator_computes_the_memory_once(options, rng):
    model, kv_caches = translator(rng, **options), None
    memory, mask, kv_caches = model.encode(SOURCE), SOURCE[:, None, None] > 0, model.new_kv_caches()
    parts = [model.decode(memory, mask, TARGET[:, a:b], kv_caches=kv_caches) for a, b in STRETCHES]
    assert_close(np.concatenate(parts, axis=1), model(SOURCE, TARGET))
    assert {cache.length for pair in kv_caches for cache in pair} == {TARGET.shape[1], 4}


LENGTHS = np.array([[3], [5]])  # of IDS, if the first has padding


@pytest.mark.parametrize("name", ["transformer", "Llama", "GPT-2"])
def test_padding_changes_nothing(name, rng):
    model, is_token = language_model(name, rng), np.arange(5) < LENGTHS
    left = np.array([IDS[0, [3, 4, 0, 1, 2]], IDS[1]])  # padding first: a row that sees nothing
    logits = model(IDS, mask=is_token)
    assert_close(logits[0, :3], model(IDS[:1, :3])[0])
    assert_close(logits[1], model(IDS[1:])[0])
    model(left, mask=np.arange(5) >= 5 - LENGTHS)
    kv_caches = model.new_kv_caches()
    parts = [model(IDS[:, a:b], mask=is_token[:, :b], kv_caches=kv_caches) for a, b in STRETCHES]
    assert_close(np.concatenate(parts, axis=1), logits)


def test_documents_in_one_sequence_see_only_themselves(rng):
    model, of_document = language_model("Llama", rng), np.array([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    same = of_document[:, None, :, None] == of_document[:, None, None, :]
    logits = model(IDS, mask=same)  # positions are relative
    assert_close(logits[:1, 2:], model(IDS[:1, 2:]))
    assert_close(logits[1:, 1:3], model(IDS[1:, 1:3]))


def test_gradients_with_a_mask(rng):
    model = language_model("transformer", rng)
    assert_layer_gradients(model, {"ids": IDS}, mask=np.arange(5) < LENGTHS)


@pytest.mark.parametrize("mask", [np.ones((2, 4), bool), np.ones((2, 5)), np.ones((2, 5, 5), bool)])
def test_what_is_no_mask_of_tokens(mask, rng):
    with pytest.raises(MaskError, match=r"mask: expected bool \(B, T\) = \(2, 5\), True = a token"):
        language_model("transformer", rng)(IDS, mask=mask)


def test_float32_stays(rng):
    for model, ids in ((language_model("transformer with dropout", rng), (IDS,)),
                       (translator(rng), (SOURCE, TARGET))):  # fmt: skip
        logits = model.astype(np.float32)(*ids)
        model.backward(logits)
        assert {logits.dtype, *(g.dtype for _, g in model.named_grads())} == {np.dtype(np.float32)}
