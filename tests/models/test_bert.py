import numpy as np
import pytest

from mha_numpy.errors import ConfigError, MaskError, ShapeError
from mha_numpy.models import Bert, SentenceBert
from tests.compare import assert_close
from tests.gradients import assert_layer_gradients, randomize

IDS = np.array([[1, 4, 4, 3, 6], [2, 5, 1, 0, 0]])
MASK = IDS > 0
INPUTS = {"ids": IDS, "mask": MASK}
SEGMENTS = np.array([[0, 0, 1, 1, 2], [0, 1, 1, 0, 0]])


def make_bert(rng, **options):
    sizes = {"embed_dim": 8, "num_heads": 2, "num_layers": 2, "num_segments": 3}
    return randomize(Bert(7, 6, rng=0, **sizes, **options), rng)


@pytest.mark.parametrize("options", [{}, {"dropout_p": 0.2, "activation": "gelu_tanh"}])
def test_gradients_of_bert(options, rng):
    assert_layer_gradients(make_bert(rng, **options), INPUTS, segments=SEGMENTS)


def test_gradients_of_sentence_vectors(rng):
    assert_layer_gradients(SentenceBert(make_bert(rng)), INPUTS)


def test_padding_changes_nothing(rng):
    model = make_bert(rng)
    assert_close(model(IDS, mask=MASK)[1, :3], model(IDS[1:, :3])[0])
    vectors = SentenceBert(model)(IDS, mask=MASK)
    assert_close(vectors[1:], SentenceBert(model)(IDS[1:, :3]))
    assert_close((vectors**2).sum(axis=1), np.ones(2))


def test_a_token_sees_what_is_before_and_after_and_which_text_it_is_of(rng):
    model = make_bert(rng)
    hidden = model(IDS[:1])
    for at in (0, 4):
        other = IDS[:1].copy()
        other[0, at] = 2
        assert (model(other) != hidden).any(axis=-1).all()
    assert_close(model(IDS[:1], segments=np.zeros((1, 5), int)), hidden)
    assert (model(IDS[:1], segments=SEGMENTS[:1]) != hidden).any(axis=-1).all()


def test_what_is_not_a_mask_or_ids_is_refused(rng):
    model = make_bert(rng)
    expected = r"^mask: expected bool \(B, T\) = \(2, 5\), True = a token, or .*; got an array "
    with pytest.raises(MaskError, match=expected + r"\(2, 5\) of int64"):
        model(IDS, mask=MASK.astype(int))
    with pytest.raises(MaskError, match=expected + r"\(1, 5\) of bool"):
        model(IDS, mask=MASK[:1])
    with pytest.raises(ShapeError, match=r"^ids: expected \(B, T\); got \(5,\)"):
        model(IDS[0])
    for segments in (SEGMENTS[0], SEGMENTS[:1], SEGMENTS[:, :1]):
        with pytest.raises(ShapeError, match=r"^segments: expected \(2, 5\), as ids; got "):
            model(IDS, segments=segments)
    with pytest.raises(ConfigError, match="^segments: expected an integer array"):
        model(IDS, segments=MASK)


@pytest.mark.parametrize(
    ("ids", "mask", "error", "message"),
    [
        (IDS, MASK[:, None, None], MaskError, r"mask: expected bool \(B, T\) = \(2, 5\), .*; got "),
        (IDS, 1 * MASK, MaskError, r"mask: expected bool \(B, T\) = \(2, 5\), .* of int64"),
        (IDS, MASK & [[True], [False]], MaskError, "mask: expected a token .*; got none in text 1"),
        (IDS[:, :0], None, ShapeError, "ids: expected a token in each text; got none in text 0"),
    ],
)
def test_a_sentence_has_a_mask_of_its_tokens(ids, mask, error, message, rng):
    with pytest.raises(error, match=f"^{message}"):
        SentenceBert(make_bert(rng))(ids, mask=mask)
