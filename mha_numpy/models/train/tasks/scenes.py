"""Scenes: say in words what is in a small picture, such as "red square left of blue circle"."""

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.layers.layer import make_rng
from mha_numpy.models.captioner import to_patches
from mha_numpy.models.train.batch import Batch

COLORS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0)}
SHAPES = {  # row by row
    "circle": "..##.. .####. ###### ###### .####. ..##..",
    "square": "###### ###### ###### ###### ###### ######",
    "triangle": "..##.. ..##.. .####. .####. ###### ######",
    "cross": "..##.. ..##.. ###### ###### ..##.. ..##..",
}
RELATIONS = "left of", "above"
WORDS = ("<start>", *COLORS, *SHAPES, *RELATIONS)
COLOR, SHAPE, RELATION = 1, 5, 9  # where each kind of word begins
SIDE, SIZE, PATCH = 16, 6, 4  # pixels: of a picture, an object, a patch

_RGB = np.array(list(COLORS.values()), float)
_STENCILS = np.array([[[c == "#" for c in row] for row in s.split()] for s in SHAPES.values()])


class Scenes:
    """The model sees two objects of different colours and writes five words about them.

    The object on the left comes first, or the upper one. A scene is a row of ints (2, 4): of each
    object its colour, its shape, and the row and column of its upper left pixel. For each colour
    one shape is never drawn in it: these four combinations are held out.

    Examples
    --------
    >>> task = Scenes()
    >>> scenes = task.draw_scenes(np.random.default_rng(0), 2)
    >>> [" ".join(task.words(ids)) for ids in task.captions(scenes)]
    ['blue cross left of red square', 'yellow circle above blue circle']
    >>> task.pictures(scenes).shape
    (2, 16, 16, 3)
    """

    vocab_size, num_words = len(WORDS), 5

    def draw_scenes(self, rng: np.random.Generator, size: int, *, held_out: bool = False) -> Array:
        """Draw scenes (size, 2, 4); in those held out, one object is a new combination."""
        check_count("size", size)
        colors = rng.permuted(np.tile(np.arange(4), (size, 1)), axis=1)[:, :2]
        apart = rng.integers(1, 4, (size, 2))
        apart[np.arange(size), rng.integers(2, size=size)] *= not held_out
        shapes = (apart - colors) % 4
        # along one axis at least an object's side apart, along the other less; on even pixels
        last = (SIDE - SIZE) // 2
        near = rng.integers(last - SIZE // 2 + 1, size=size)
        far = near + SIZE // 2 + rng.integers(last - SIZE // 2 + 1 - near)
        across = rng.integers(last + 1, size=size)
        aside = np.clip(across + rng.integers(-1, 2, size), 0, last)
        places = 2 * np.array([[across, near], [aside, far]]).transpose(2, 0, 1)  # row, column
        is_turned = rng.random(size) < 0.5
        places[is_turned] = places[is_turned][:, :, ::-1]
        return np.concatenate([np.stack([colors, shapes], -1), places], axis=-1)

    def captions(self, scenes: Array) -> Array:
        """Return the words for each scene, (B, 5) ids."""
        words = scenes[..., :2] + [COLOR, SHAPE]
        rows, columns = np.moveaxis(scenes[:, 1, 2:] - scenes[:, 0, 2:], -1, 0)
        relation = RELATION + (rows > columns)[:, None]
        return np.concatenate([words[:, 0], relation, words[:, 1]], axis=-1)

    def pictures(self, scenes: Array) -> Array:
        """Return pixels (B, 16, 16, 3), from 0 to 1; 0 is the ground."""
        return (self.covered(scenes)[..., None] * _RGB[scenes[..., 0]][:, :, None, None]).sum(
            axis=1
        )

    def covered(self, scenes: Array) -> Array:
        """Return which pixels each object covers: (B, 2, 16, 16) bools."""
        found = np.zeros((len(scenes), 2, SIDE, SIDE), bool)
        inside = np.arange(SIZE)
        rows, columns = scenes[..., 2, None] + inside, scenes[..., 3, None] + inside
        scene, each = np.ogrid[: len(scenes), :2]
        at = scene[..., None, None], each[..., None, None], rows[..., None], columns[..., None, :]
        found[at] = _STENCILS[scenes[..., 1]]
        return found

    def shares(self, scenes: Array) -> Array:
        """Return how much of each patch's drawn pixels belongs to each object: (B, 2, 16)."""
        pixels = np.moveaxis(self.covered(scenes), 1, -1)
        drawn = to_patches(pixels, PATCH).reshape(len(scenes), -1, PATCH**2, 2).sum(axis=2)
        return np.swapaxes(drawn / np.maximum(drawn.sum(axis=-1, keepdims=True), 1), 1, 2)

    def draw_batch(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw scenes and their captions, without the combinations that are held out."""
        return self.batch_of(self.draw_scenes(rng, size))

    def read(self, text: str, rng: int | np.random.Generator) -> Array:
        """Return a scene (1, 2, 4) of which the text is right, with places drawn.

        Any two objects can be asked for, also those held out.
        """
        rng, words = make_rng(rng), text.lower().replace("left of", "left_of").split()
        ids = [WORDS.index(each) for word in words if (each := word.replace("_", " ")) in WORDS]
        kinds = np.searchsorted([COLOR, SHAPE, RELATION], ids, side="right").tolist()
        if len(ids) != len(words) or kinds != [1, 2, 3, 1, 2] or ids[0] == ids[3]:
            raise ConfigError(
                "text: expected two objects of different colours, such as 'red square left of blue "
                f"circle'; got {text!r}"
            )
        scene = self.draw_scenes(rng, 1)
        while self.captions(scene)[0, 2] != ids[2]:
            scene = self.draw_scenes(rng, 1)
        scene[0, :, :2] = np.reshape(ids[:2] + ids[3:], (2, 2)) - [COLOR, SHAPE]
        return scene

    def words(self, ids: Array) -> list[str]:
        """Return the words that ids stand for."""
        return [WORDS[i] for i in ids]

    def batch_of(self, scenes: Array) -> Batch:
        """Return pictures, the words so far, and the words to write."""
        targets = self.captions(scenes)
        read = np.roll(targets, 1, axis=1)
        read[:, 0] = 0
        return Batch((self.pictures(scenes).astype(np.float32), read), targets)
