"""A captioner: a decoder that reads the patches of a picture and writes words about it."""

from typing import Any

import numpy as np

from mha_numpy.checks import check_choice, check_count
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ShapeError
from mha_numpy.layers import Layer, LearnedPositions, Linear
from mha_numpy.layers.layer import make_rng
from mha_numpy.models.translator import Translator

STD = 0.4  # of the first positions: pixels, 0 to 1, begin about as loud


class GridPositions(Layer):
    """Add to each patch a vector for its row and one for its column; all are learned.

    Parameters
    ----------
    side : int
        Patches in a row, and rows.
    embed_dim : int
        D.
    rng : int or numpy Generator, optional
        Default: fresh randomness.

    Examples
    --------
    >>> GridPositions(4, 8)(np.zeros((2, 16, 8))).shape
    (2, 16, 8)
    """

    def __init__(
        self, side: int, embed_dim: int, *, rng: int | np.random.Generator | None = None
    ) -> None:
        super().__init__()
        rng, shape = make_rng(rng), (check_count("side", side), check_count("embed_dim", embed_dim))
        for name in ("rows", "columns"):
            self.params[name] = rng.normal(0.0, STD / np.sqrt(2), shape)

    def forward(self, x: Array) -> Array:
        """Add them, row by row: (B, side * side, D) -> (B, side * side, D)."""
        side, D = self.params["rows"].shape
        table = self.params["rows"][:, None] + self.params["columns"]  # (side, side, D)
        return x + table.reshape(side * side, D)

    def backward(self, d_out: Array) -> Array:
        """Add to both tables' gradients and return that of `x`."""
        d_table = d_out.sum(axis=0).reshape(*self.params["rows"].shape[:1], -1, d_out.shape[-1])
        self.accumulate("rows", d_table.sum(axis=1))
        self.accumulate("columns", d_table.sum(axis=0))
        return d_out


class Captioner(Translator):
    """A translator whose source is a picture: keys and values come from its patches.

    Parameters
    ----------
    vocab_size : int
        V, of the words.
    side, patch : int
        Pixels of a picture's side and of a patch's.
    positions : {"2-D", "1-D", "none"}
        What is learned of a patch's place: a vector for its row and one for its column, or one for
        its place in the list, or nothing.
    num_encoder_layers : int
        Blocks in which patches read one another before the decoder reads them. Without one, a key
        knows only its own patch.
    max_words, embed_dim, num_heads, num_layers, hidden_dim, backend, rng, **block_options
        As for `Translator`; `num_layers` are the decoder's.

    Notes
    -----
    Patches as tokens: Dosovitskiy et al. 2021, *An image is worth 16x16 words*, section 3.1.
    Attention in captions: Xu et al. 2015, *Show, attend and tell*.

    Examples
    --------
    >>> model = Captioner(11, side=16, patch=4, embed_dim=16, num_heads=2)
    >>> model(np.zeros((1, 16, 16, 3)), np.array([[0, 3, 4]])).shape
    (1, 3, 11)
    """

    def __init__(
        self,
        vocab_size: int,
        side: int,
        patch: int,
        *,
        positions: str = "2-D",
        num_encoder_layers: int = 0,
        max_words: int = 5,
        rng: int | np.random.Generator | None = None,
        **options: Any,
    ) -> None:
        rng = make_rng(rng)
        check_choice("positions", positions, ("2-D", "1-D", "none"))
        self.patch, self.across = check_count("patch", patch), check_count("side", side) // patch
        super().__init__(1, vocab_size, max_words, rng=rng, **options)
        D = self.embed_dim
        self.encoder = self.encoder[
            : check_count("num_encoder_layers", num_encoder_layers, least=0)
        ]
        self.source_embedding = Linear(patch * patch * 3, D, rng=rng)
        self.source_positions = None
        if positions == "2-D":
            self.source_positions = GridPositions(self.across, D, rng=rng)
        elif positions == "1-D":
            self.source_positions = LearnedPositions(self.across**2, D, std=STD, rng=rng)

    def encode(self, pictures: Array) -> Array:
        """Read pictures: (B, side, side, 3) -> (B, T_k, D), a row for each patch."""
        pictures = as_float_array("pictures", pictures)
        side = self.across * self.patch
        if pictures.ndim != 4 or pictures.shape[1:] != (side, side, 3):
            raise ShapeError(f"pictures: expected (B, {side}, {side}, 3); got {pictures.shape}")
        x = self.source_embedding(to_patches(pictures, self.patch))
        if self.source_positions is not None:
            x = self.source_positions(x)
        for block in self.encoder:
            x = block(x)
        return self.encoder_norm(x)

    def forward(self, pictures: Array, words: Array) -> Array:
        """Score what comes next after each word: (B, side, side, 3), (B, T_q) -> (B, T_q, V)."""
        words = self._check_target(words)
        return self.decode(self.encode(pictures), np.ones((1, 1, 1, 1), bool), words)


def to_patches(pixels: Array, patch: int) -> Array:
    """Cut pictures into square patches, row by row: (B, side, side, C) -> (B, patches, pixels C).

    Examples
    --------
    >>> to_patches(np.arange(16).reshape(1, 4, 4, 1), 2)[0]
    array([[ 0,  1,  4,  5],
           [ 2,  3,  6,  7],
           [ 8,  9, 12, 13],
           [10, 11, 14, 15]])
    """
    B, side, _, channels = pixels.shape
    cut = pixels.reshape(B, side // patch, patch, side // patch, patch, channels)
    return cut.swapaxes(2, 3).reshape(B, -1, patch * patch * channels)
