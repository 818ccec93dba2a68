"""Scenes: say in words what is in a small picture, such as "red circle left of blue square"."""

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array
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
SIDE, SIZE, PATCH = 16, 6, 4  # pixels: of a picture, a shape, a patch

_RGB = np.array(list(COLORS.values()), float)
_STENCILS = np.array([[[c == "#" for c in row] for row in s.split()] for s in SHAPES.values()])


class Scenes:
    """The model sees two shapes of different colours and writes five words about them.

    The shape on the left comes first, or the upper one. A scene is a row of ints (2, 4): of each
    shape its colour, its kind, and the row and column of its upper left pixel. Each colour is never
    drawn in one kind of shape: these four combinations are held out.

    Examples
    --------
    >>> task = Scenes()
    >>> scenes = task.draw_scenes(np.random.default_rng(0), 2)
    >>> [" ".join(WORDS[i] for i in ids) for ids in task.captions(scenes)]
    >>> task.pictures(scenes).shape
    (2, 16, 16, 3)
    """

    vocab_size, num_words = len(WORDS), 5

    def draw_scenes(self, rng: np.random.Generator, size: int, *, held_out: bool = False) -> Array:
        """Draw scenes (size, 2, 4); in those held out, one shape is a new combination."""
        check_count("size", size)
        colors = rng.permuted(np.tile(np.arange(4), (size, 1)), axis=1)[:, :2]
        apart = rng.integers(1, 4, (size, 2))
        apart[np.arange(size), rng.integers(2, size=size)] *= not held_out
        kinds = (apart - colors) % 4
        # along one axis they are at least a shape apart, along the other less; on even pixels
        last = (SIDE - SIZE) // 2
        near = rng.integers(last - SIZE // 2 + 1, size=size)
        far = near + SIZE // 2 + rng.integers(last - SIZE // 2 + 1 - near)
        across = rng.integers(last + 1, size=size)
        aside = np.clip(across + rng.integers(-1, 2, size), 0, last)
        places = 2 * np.array([[across, near], [aside, far]]).transpose(2, 0, 1)  # row, column
        is_turned = rng.random(size) < 0.5
        places[is_turned] = places[is_turned][:, :, ::-1]
        return np.concatenate([np.stack([colors, kinds], -1), places], axis=-1)

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
        """Return which pixels each shape covers: (B, 2, 16, 16) bools."""
        found = np.zeros((len(scenes), 2, SIDE, SIDE), bool)
        inside = np.arange(SIZE)
        rows, columns = scenes[..., 2, None] + inside, scenes[..., 3, None] + inside
        scene, shape = np.ogrid[: len(scenes), :2]
        at = scene[..., None, None], shape[..., None, None], rows[..., None], columns[..., None, :]
        found[at] = _STENCILS[scenes[..., 1]]
        return found

    def shares(self, scenes: Array) -> Array:
        """Return how much of each patch's drawn pixels belongs to each shape: (B, 2, 16)."""
        pixels = np.moveaxis(self.covered(scenes), 1, -1)
        drawn = to_patches(pixels, PATCH).reshape(len(scenes), -1, PATCH * PATCH, 2).sum(axis=2)
        return np.swapaxes(drawn / np.maximum(drawn.sum(axis=-1, keepdims=True), 1), 1, 2)

    def draw_batch(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw scenes and their captions, without the combinations that are held out."""
        return self.batch_of(self.draw_scenes(rng, size))

    def batch_of(self, scenes: Array) -> Batch:
        """Return pictures, the words so far, and the words to write."""
        targets = self.captions(scenes)
        read = np.roll(targets, 1, axis=1)
        read[:, 0] = 0
        return Batch((self.pictures(scenes).astype(np.float32), read), targets)
