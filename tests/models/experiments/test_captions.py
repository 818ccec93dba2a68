"""Pictures to words: the scenes, their captions, the model and what is measured of it."""

import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.layers import Layer
from mha_numpy.models import Captioner
from mha_numpy.models.captioner import to_patches
from mha_numpy.models.experiments.captions import looks
from mha_numpy.models.train.tasks import Scenes
from mha_numpy.models.train.tasks.scenes import SIZE, WORDS
from tests.compare import assert_close
from tests.gradients import assert_layer_gradients, randomize

TASK = Scenes()
SCENES = np.array([
    [[0, 0, 4, 0], [2, 1, 2, 10]],  # a red circle left of a blue square
    [[3, 2, 0, 4], [1, 3, 8, 6]],  # a yellow triangle above a green cross
])  # fmt: skip


def test_captions_by_hand():
    said = [" ".join(TASK.words(ids)) for ids in TASK.captions(SCENES)]
    assert said == ["red circle left of blue square", "yellow triangle above green cross"]
    (_, read), targets = TASK.batch_of(SCENES)
    assert [WORDS[i] for i in read[0]] == ["<start>", "red", "circle", "left of", "blue"]
    assert np.array_equal(targets, TASK.captions(SCENES))


def test_pictures_by_hand():
    picture = TASK.pictures(SCENES)[0]
    assert picture[2:8, 10:16].tolist() == [[[0, 0, 1]] * 6] * 6
    assert picture[4, :6, 0].tolist() == [0, 0, 1, 1, 0, 0]
    assert picture[..., 1].sum() == 0
    assert picture.sum() == 36 + 24
    shares = TASK.shares(SCENES)  # the circle: rows 4 to 9, columns 0 to 5
    assert np.flatnonzero(shares[0, 0]).tolist() == [4, 5, 8, 9]
    assert np.flatnonzero(shares[0, 1]).tolist() == [2, 3, 6, 7]


@pytest.mark.parametrize("held_out", [False, True])
def test_scenes(held_out):
    scenes = TASK.draw_scenes(np.random.default_rng(0), 500, held_out=held_out)
    first, second = scenes[:, 0], scenes[:, 1]
    assert (first[:, 0] != second[:, 0]).all()
    is_new = scenes[..., :2].sum(axis=-1) % 4 == 0
    assert (is_new.any(axis=1) == held_out).all()
    apart = second[:, 2:] - first[:, 2:]
    assert (apart.max(axis=1) >= SIZE).all()  # they never overlap
    assert (np.abs(apart).min(axis=1) <= 2).all()
    said = TASK.captions(scenes)
    assert np.array_equal(said[:, 2] == WORDS.index("left of"), apart[:, 1] >= SIZE)
    assert [len(np.unique(column)) for column in said.T] == [4, 4, 2, 4, 4]


def test_a_caption_is_read():
    scene = TASK.read("Green cross above red circle", rng=0)
    assert TASK.words(TASK.captions(scene)[0]) == ["green", "cross", "above", "red", "circle"]
    for text in ("red circle", "red circle left of red square", "circle red above blue square", ""):
        with pytest.raises(ConfigError, match=r"^text: expected two objects of different colours"):
            TASK.read(text, rng=0)


class OfPictures(Layer):
    """A captioner with its pictures, which have no gradient."""

    def __init__(self, model, pictures):
        super().__init__()
        self.model, self.pictures = model, pictures

    def forward(self, words):
        return self.model(self.pictures, words)

    def backward(self, d_logits):
        self.model.backward(d_logits)


@pytest.mark.parametrize(
    "options", [{"positions": "2-D", "num_encoder_layers": 1}, {"positions": "1-D"}]
)
def test_gradients(options, rng):
    model = Captioner(5, 6, 2, embed_dim=4, num_heads=2, max_words=3, rng=0, **options)
    pictures = rng.random((2, 6, 6, 3))
    words = np.array([[0, 3, 4], [0, 1, 1]])
    assert_layer_gradients(OfPictures(randomize(model, rng), pictures), {"words": words})


def test_patches_that_do_not_know_their_place_may_be_shuffled(rng):
    pictures, words = rng.random((1, 4, 4, 3)), np.array([[0, 1]])
    flipped = pictures[:, ::-1].reshape(1, 2, 2, 4, 3)[:, :, ::-1].reshape(pictures.shape)
    assert np.array_equal(to_patches(flipped, 2)[:, [2, 3, 0, 1]], to_patches(pictures, 2))
    for positions in ("none", "2-D"):
        model = Captioner(5, 4, 2, positions=positions, embed_dim=4, max_words=2, rng=0)
        same = np.abs(model(pictures, words) - model(flipped, words)).max() < 1e-12
        assert same == (positions == "none")


def test_looks_are_counted_for_the_named_object():
    weights = np.zeros((1, 1, 5, 16))
    weights[0, 0, [0, 1, 2, 3], 4] = 1  # a patch of the first object, for all but the last word
    weights[0, 0, 4, [2, 0]] = 0.75, 0.25  # a patch of the second, and the ground
    on_named, on_other = looks(weights, TASK.shares(SCENES[:1]))
    assert_close(on_named, np.array([[1, 1, 0, 0.75]]))
    assert_close(on_other, np.array([[0, 0, 1, 0]]))
