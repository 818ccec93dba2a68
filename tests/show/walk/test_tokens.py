import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.show.walk import embed, tokenize
from tests.compare import assert_close


def test_words_and_punctuation():
    for text, tokens in (
        ("Don't stop, it\u2019s  10%!", "Don't stop , it\u2019s 10 % !"),
        ("les \u00e9l\u00e8ves \u5b66\u751f", "les \u00e9l\u00e8ves \u5b66\u751f"),
    ):
        assert tokenize(text) == tokens.split()


def test_what_belongs_to_a_letter_stays_with_it():
    hindi = "\u0939\u093f\u0928\u094d\u0926\u0940"
    assert tokenize(hindi) == [hindi]
    assert tokenize("cafe\u0301 cr\u00e8me") == ["caf\u00e9", "cr\u00e8me"]
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert tokenize(f"a {family}!") == ["a", family, "!"]
    assert tokenize("dogs' 'quoted'") == ["dogs", "'", "'", "quoted", "'"]


@pytest.mark.parametrize("text", ["", "  ", "\n\t"])
def test_an_empty_sentence(text):
    with pytest.raises(ConfigError, match="text: expected at least one word"):
        tokenize(text)


def test_a_token_has_one_vector_in_every_sentence():
    first, second = embed(["a", "b"], 6), embed(["b", "b", "a"], 6)
    positions = embed(["x"] * 3, 6) - embed(["x"], 6)[0]  # what a position adds
    assert_close(first[1] - positions[1], second[1] - positions[1])
    assert_close(first[0], second[2] - positions[2])


def test_the_seed_decides():
    assert_close(embed(["a", "b"], 6, seed=3), embed(["a", "b"], 6, seed=3), "exact")
    assert np.abs(embed(["a"], 6, seed=3) - embed(["a"], 6, seed=4)).max() > 0.1
    assert embed([], 6).shape == (0, 6)


@pytest.mark.parametrize("options", [{"D": 0}, {"D": 4, "seed": -1}, {"D": 4, "seed": 1.5}])
def test_wrong_options(options):
    with pytest.raises(ConfigError, match=r"dim|seed"):
        embed(["a"], **options)
