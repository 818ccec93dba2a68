import numpy as np
import pytest

from mha_numpy.errors import FileError
from mha_numpy.models.train.recipes import load_trained, train_recipe
from mha_numpy.show.walk import walk
from mha_numpy.show.walk.trained import trained_setting
from tests.compare import assert_close


def test_a_number_is_translated_and_the_weights_are_the_models_own():
    seen = walk("three hundred forty-two", model="numbers")
    assert seen.said == ("the model says: drei hundert zwei und vierzig",)
    assert seen.tokens == ["drei", "hundert", "zwei", "und", "vierzig", "<end>"]
    assert seen.source_tokens == ["three", "hundred", "forty", "two"]
    assert_close(seen.weights, seen.layer.weights)
    crossed = seen.weights[0].mean(axis=0)[[2, 4]].argmax(axis=-1)
    assert crossed.tolist() == [3, 2]  # zwei looks at two, vierzig at forty
    assert seen.report
    assert seen.is_trained


def test_a_caption_is_looked_up_in_its_picture():
    seen = walk("red square left of blue circle", model="captions")
    assert seen.said == ("the model says: red square left of blue circle",)
    assert seen.tokens == ["red", "square", "left of", "blue", "circle"]
    assert seen.source_tokens[:5] == ["1.1", "1.2", "1.3", "1.4", "2.1"]
    assert seen.weights.shape == (1, 4, 5, 16)
    assert_close(seen.weights, seen.layer.weights)
    assert seen.report


def test_induction_says_what_followed_the_last_time():
    setting = trained_setting(load_trained("induction"), "x y z w x y z")
    word, probability = setting.said[1].rows[0]
    assert (word, float(probability) > 0.9) == ("w", True)
    assert list(setting.inputs) == ["x_q", "x_k", "x_v"]
    copied = setting.layer.weights[0, :, -1]  # of the last z
    assert copied[:, 3].mean() > 0.9


def test_digits_are_labelled_by_what_is_said():
    setting = trained_setting(load_trained("reverse"), "314159265358")
    assert setting.tokens == setting.source_tokens[::-1]
    antidiagonal = setting.layer.weights[0, 0, :, ::-1].diagonal()
    assert antidiagonal.min() > 0.5


def test_the_seed_draws_what_is_written():
    trained = load_trained("text")
    first, again, other = (trained_setting(trained, "The sea ", seed=s).said for s in (0, 0, 1))
    assert first == again
    assert np.char.find(first[0], "The sea |") >= 0
    assert first[0].split("|")[1] != other[0].split("|")[1]


def test_params_of_ones_own_are_walked(tmp_path):
    ours = train_recipe("reverse", steps=2, seed=3, backend="numpy", progress=False)
    ours.model.save(tmp_path / "params.npz")
    seen = walk("314159265358", model="reverse", params=tmp_path / "params.npz")
    assert_close(seen.layer.params["w_q"], ours.model.attentions[0].params["w_q"])
    assert "params of params.npz" in seen.note
    with pytest.raises(FileError, match=r"params\.npz"):
        walk("a b a", model="induction", params=tmp_path / "params.npz")
