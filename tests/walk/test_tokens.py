import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.walk import embed, tokenize
from tests.compare import assert_close


def test_words_and_punctuation():
    assert tokenize("Don't stop, it\u2019s  10%!") == [
        "Don't",
        "stop",
        ",",
        "it\u2019s",
        "10",
        "%",
        "!",
    ]
    assert tokenize("les \u00e9l\u00e8ves \u5b66\u751f") == [
        "les",
        "\u00e9l\u00e8ves",
        "\u5b66\u751f",
    ]


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
