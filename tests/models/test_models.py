"""Whole models: gradients of all params through everything, and who depends on what."""

import numpy as np
import pytest

from mha_numpy.core import KVCache, QKNormOptions, RopeOptions
from mha_numpy.errors import ConfigError, MaskError, ShapeError
from mha_numpy.models import (
    GPT2,
    AttentionOnlyLM,
    Bert,
    Llama,
    SentenceBert,
    TransformerLM,
    Translator,
)
from tests.compare import assert_close
from tests.gradients import assert_layer_gradients, randomize

V, TARGET_V, N = 7, 9, 6
SIZES = {"embed_dim": 8, "num_heads": 2, "num_layers": 2}
IDS = np.array([[1, 4, 4, 0, 6], [2, 0, 1, 5, 1]])
MASK = np.arange(5) < [[3], [5]]  # the first has padding
SEGMENTS = np.array([[0, 0, 1, 1, 2], [0, 1, 1, 0, 0]])
SOURCE = np.array([[3, 4, 5, 0], [3, 3, 4, 6]])  # one with padding
TARGET = np.array([[1, 8, 2, 8, 3], [1, 5, 0, 7, 4]])
STRETCHES = ((0, 3), (3, 4), (4, 5))  # that are decoded one after the other

LANGUAGE_MODELS = {
    "attention alone": (AttentionOnlyLM, {}),
    "transformer": (TransformerLM, {}),
    "GPT-2": (GPT2, {}),
    "Llama": (Llama, {"num_kv_heads": 1, "head_dim": 6, "window": (2, 0), "eps": 0.1}),
}
ROPE = RopeOptions(base=50.0)
LANGUAGE_MODELS |= {
    "with all that Gemma has": (Llama, {
        "embedding_scale": 8**0.5, "logit_softcap": 2.0, "post_norms": True, "eps": 0.1,
        "rope": [RopeOptions(base=9.0), ROPE], "window": [(1, 0), None], "softcap": 1.5,
        "scale": 0.4, "qk_norm": QKNormOptions(eps=0.1), "sink": True, "gated": "heads",
    }),
    "every other layer without positions": (Llama, {"rope": [ROPE, None], "tied": True}),
}  # fmt: skip
WITH_MASK = [name for name in LANGUAGE_MODELS if name != "attention alone"]


def language_model(name, rng, **more):
    kind, options = LANGUAGE_MODELS[name]
    return randomize(kind(V, N, rng=0, **SIZES, **options, **more), rng)


def translator(rng, **options):
    return randomize(Translator(V, TARGET_V, N, rng=0, **SIZES, **options), rng)


def bert(rng, **options):
    return randomize(Bert(V, N, rng=0, num_segments=3, **SIZES, **options), rng)


def sentence_bert(rng):
    return SentenceBert(bert(rng))


TRANSLATION = {"source": SOURCE, "target": TARGET}
PASSES = {  # a model, and what it is differentiated for
    **{name: (lambda rng, name=name: language_model(name, rng), {}) for name in LANGUAGE_MODELS},
    "transformer": (lambda rng: language_model("transformer", rng, dropout_p=0.2), {"mask": MASK}),
    "transformer with positions": (
        lambda rng: language_model("transformer", rng), {"positions": SEGMENTS},
    ),
    "Bert": (bert, {"mask": MASK, "segments": SEGMENTS}),
    "Bert with dropout": (
        lambda rng: bert(rng, dropout_p=0.2, activation="gelu_tanh"),
        {"mask": MASK, "segments": SEGMENTS},
    ),
    "sentences": (sentence_bert, {"mask": MASK}),
    "translator": (translator, TRANSLATION),
    "translator of another kind": (
        lambda rng: translator(rng, norm_first=False, dropout_p=0.2), TRANSLATION,
    ),
}  # fmt: skip
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in PASSES if "translator" in name]


@pytest.mark.parametrize("name", [*(name for name in PASSES if "translator" not in name), *SLOW])
def test_gradients(name, rng):
    make, inputs = PASSES[name]
    assert_layer_gradients(make(rng), inputs if "source" in inputs else {"ids": IDS, **inputs})


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
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
    logits, by_target = model(SOURCE, TARGET), model(SOURCE, target)
    assert (model(source, TARGET) != logits).any(axis=-1).all()
    assert_close(by_target[:, :3], logits[:, :3])
    assert (by_target[:, 3:] != logits[:, 3:]).any(axis=-1).all()


def test_bert_sees_what_is_before_and_after_and_which_text_it_is_of(rng):
    model = bert(rng)
    hidden = model(IDS[:1])
    for at in (0, 4):
        other = IDS[:1].copy()
        other[0, at] = 2
        assert (model(other) != hidden).any(axis=-1).all()
    assert_close(model(IDS[:1], segments=np.zeros((1, 5), int)), hidden)
    assert (model(IDS[:1], segments=SEGMENTS[:1]) != hidden).any(axis=-1).all()


def test_padding_of_the_source_changes_nothing(rng):
    model, d_logits = translator(rng), rng.normal(size=(1, 5, TARGET_V))
    logits = model(SOURCE[:1, :3], TARGET[:1])
    model.backward(d_logits)
    grads = dict(model.named_grads())
    for padded in (SOURCE[:1], np.pad(SOURCE[:1], ((0, 0), (0, 2)))):
        model.zero_grads()
        assert_close(model(padded, TARGET[:1]), logits)
        model.backward(d_logits)
        for name, gradient in model.named_grads():
            assert_close(gradient, grads[name], name=name)


@pytest.mark.parametrize("name", [*WITH_MASK, "Bert"])
def test_padding_changes_nothing(name, rng):
    model = bert(rng) if name == "Bert" else language_model(name, rng)
    out = model(IDS, mask=MASK)
    assert_close(out[0, :3], model(IDS[:1, :3])[0])
    assert_close(out[1], model(IDS[1:])[0])
    if name == "Bert":
        vectors = SentenceBert(model)(IDS, mask=MASK)
        assert_close(vectors[:1], SentenceBert(model)(IDS[:1, :3]))
        assert_close((vectors**2).sum(axis=1), np.ones(2))
        return
    model(IDS, mask=MASK[:, ::-1])  # padding first: a row that sees nothing
    kv_caches = model.new_kv_caches()
    parts = [model(IDS[:, a:b], mask=MASK[:, :b], kv_caches=kv_caches) for a, b in STRETCHES]
    assert_close(np.concatenate(parts, axis=1), out)


def test_documents_in_one_sequence_see_only_themselves(rng):
    model, of_document = language_model("Llama", rng), np.array([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    same = of_document[:, None, :, None] == of_document[:, None, None, :]
    logits = model(IDS, mask=same)  # positions are relative
    assert_close(logits[:1, 2:], model(IDS[:1, 2:]))
    assert_close(logits[1:, 1:3], model(IDS[1:, 1:3]))


@pytest.mark.parametrize("name", WITH_MASK)
def test_positions_start_anew_after_padding_and_with_each_document(name, rng):
    """The first sequence has two tokens of padding, then two documents; the second is one."""
    model, ids = language_model(name, rng), IDS
    of_document = np.array([[-1, -1, 0, 1, 1], [0, 0, 0, 0, 0]])
    same = of_document[:, None, :, None] == of_document[:, None, None, :]
    positions = np.array([[0, 0, 0, 0, 1], [0, 1, 2, 3, 4]])
    logits = model(ids, mask=same, positions=positions)
    apart = [model(ids[:1, 2:3]), model(ids[:1, 3:]), model(ids[1:])]
    for found, expected in zip((logits[:1, 2:3], logits[:1, 3:], logits[1:]), apart, strict=True):
        assert_close(found, expected)
    assert_close(model(ids, positions=np.arange(5)), model(ids))
    kv_caches = model.new_kv_caches()
    parts = [
        model(
            ids[:, a:b], mask=same[:, :, a:b, :b], kv_caches=kv_caches, positions=positions[:, a:b]
        )
        for a, b in STRETCHES
    ]
    assert_close(np.concatenate(parts, axis=1), logits)


def test_a_scale_and_a_cap_are_of_embeddings_and_logits(rng):
    model = language_model("GPT-2", rng)
    other = language_model("GPT-2", rng, embedding_scale=3.0, logit_softcap=0.5)
    for (_, param), (_, theirs) in zip(other.named_params(), model.named_params(), strict=True):
        param[...] = theirs
    other.embedding.params["table"] = model.embedding.params["table"] / 3
    logits = model(IDS)  # whose table scores, too
    assert_close(other(IDS), 0.5 * np.tanh(logits / 3 / 0.5))


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_decoding_equals_the_full_forward(name, rng):
    model = language_model(name, rng)
    kv_caches = model.new_kv_caches()
    for wrong in (kv_caches[:1], 7, [None, None], [(KVCache(), KVCache())] * 3):
        with pytest.raises(ConfigError, match="^kv_caches: expected .* model.new_kv_caches\\(\\)"):
            model(IDS, kv_caches=wrong)
    parts = [model(IDS[:, a:b], kv_caches=kv_caches) for a, b in STRETCHES]
    assert_close(np.concatenate(parts, axis=1), model(IDS))


@pytest.mark.parametrize(
    "options", [{}, {"norm_first": False, "num_kv_heads": 1}, {"rope": RopeOptions()}]
)
def test_a_translator_computes_the_memory_once(options, rng):
    model = translator(rng, **options)
    memory, mask, kv_caches = model.encode(SOURCE), SOURCE[:, None, None] > 0, model.new_kv_caches()
    parts = [model.decode(memory, mask, TARGET[:, a:b], kv_caches=kv_caches) for a, b in STRETCHES]
    assert_close(np.concatenate(parts, axis=1), model(SOURCE, TARGET))
    assert {cache.length for pair in kv_caches for cache in pair} == {TARGET.shape[1], 4}


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
def test_kv_caches_that_do_not_belong_together(kv_caches, got):
    with pytest.raises(ConfigError, match=f"^kv_caches: expected .*; got {got}"):
        TransformerLM(V, N, **SIZES)(IDS[:, :1], kv_caches=kv_caches)


@pytest.mark.parametrize("kv_caches", [[KVCache(), KVCache()], [(KVCache(), KVCache())] * 2])
def test_kv_caches_of_a_translator_are_pairs(kv_caches, rng):
    model = translator(rng)
    memory, mask = model.encode(SOURCE), SOURCE[:, None, None] > 0
    with pytest.raises(ConfigError, match="^kv_caches: expected .*; got "):
        model.decode(memory, mask, TARGET[:, :1], kv_caches=kv_caches)


def test_kv_caches_of_a_wider_model_are_refused_and_stay_as_they_were():
    kv_caches = filled((2, 2, 1, 5), (2, 2, 1, 5))
    with pytest.raises(ShapeError, match="^k: expected .* to match the KV cache"):
        TransformerLM(V, N, **SIZES)(IDS[:, :1], kv_caches=kv_caches)
    assert {kv_cache.length for kv_cache in kv_caches} == {1}


OF_TOKENS = r"mask: expected bool \(B, T\) = \(2, 5\), True = a token"
WRONG = [  # a model, its ids and mask, and what is said
    (bert, IDS, 1 * MASK, MaskError, OF_TOKENS + r", or .*; got an array \(2, 5\) of int64"),
    (bert, IDS, MASK[:1], MaskError, OF_TOKENS + r", or .*; got an array \(1, 5\) of bool"),
    *[(lambda rng: language_model("transformer", rng), IDS, np.ones(shape, bool), MaskError,
       OF_TOKENS) for shape in ((2, 4), (2, 5, 5))],
    (sentence_bert, IDS, MASK[:, None, None], MaskError, OF_TOKENS),
    (sentence_bert, IDS, 1 * MASK, MaskError, OF_TOKENS + ".* of int64"),
    (sentence_bert, IDS, MASK & [[True], [False]], MaskError,
     "mask: expected a token .*; got none in text 1"),
    (sentence_bert, IDS[:, :0], None, ShapeError, "ids: expected a token in each text; got none"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "ids", "mask", "error", "message"), WRONG)
def test_what_is_no_mask_of_tokens(make, ids, mask, error, message, rng):
    with pytest.raises(error, match=f"^{message}"):
        make(rng)(ids, mask=mask)


@pytest.mark.parametrize(
    ("segments", "error", "message"),
    [
        (SEGMENTS[0], ShapeError, r"expected \(2, 5\), as ids; got \(5,\)"),
        (SEGMENTS[:1], ShapeError, r"expected \(2, 5\), as ids; got \(1, 5\)"),
        (SEGMENTS[:, :1], ShapeError, r"expected \(2, 5\), as ids; got \(2, 1\)"),
        (SEGMENTS + 1, ConfigError, "expected 0 <= id < V=3; got 3"),
        (MASK, ConfigError, "expected an integer array"),
    ],
)
def test_what_are_no_segments(segments, error, message, rng):
    with pytest.raises(error, match=f"^segments: {message}"):
        bert(rng)(IDS, segments=segments)


def test_float32_stays(rng):
    for model, ids in ((language_model("transformer", rng, dropout_p=0.2), (IDS,)),
                       (translator(rng), (SOURCE, TARGET))):  # fmt: skip
        logits = model.astype(np.float32)(*ids)
        model.backward(logits)
        assert {logits.dtype, *(g.dtype for _, g in model.named_grads())} == {np.dtype(np.float32)}
