"""What a model looks at in a picture: its weights over the patches, word by word."""

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO

import numpy as np
from PIL import Image  # matplotlib brings it

from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.show.pictures.labels import check_labels, check_text, decimal, sentences
from mha_numpy.show.pictures.save import GAP, Picture
from mha_numpy.show.pictures.svg import DESK, MARGIN, PHONE, Drawing, shortened

LEAST = 0.1  # a weight that is written
VEIL = 0.82  # over a patch of weight 0
DULL = 0.2  # what is 0 in a drawn pixel; 1 is as far from white
HALO = "paint-order:stroke;stroke:var(--m-card);stroke-width:3px;stroke-linejoin:round"
SIDES = {PHONE: 34, DESK: 26}  # units: the largest patch


def weights_over_picture(
    picture: Array, weights: Array, words: Sequence[str], *, note: str = ""
) -> Picture:
    """Draw a picture once for each word, with the weights of the word's query over its patches.

    Parameters
    ----------
    picture : (side, side, 3) float array
        Red, green and blue from 0 to 1; what is 0 in all of them is the ground.
    weights : (T_q, T_k) or (H, T_q, T_k) float array
        Attention weights, a row for each word, row by row over n by n patches; the mean of heads
        is drawn.
    words : T_q strings
        What the model writes.
    note : str
        A sentence under the heading, such as where the params are from.

    Returns
    -------
    Picture
        One panel for each word. A patch is veiled, the more the smaller its weight; in each panel
        that of the largest weight is clear.

    Examples
    --------
    >>> picture = np.zeros((4, 4, 3))
    >>> picture[2:, :2] = 1, 0, 0
    >>> drawn = weights_over_picture(picture, np.array([[0.1, 0.1, 0.7, 0.1]]), ["red"])
    >>> drawn.panels[0].desc
    'As it writes red, the largest weight is 0.70, on the patch in row 2, column 1.'
    """
    picture = as_float_array("picture", picture)
    weights = as_float_array("weights", weights)
    if weights.ndim == 3:
        weights = weights.mean(axis=0)
    across = round(weights.shape[-1] ** 0.5) if weights.ndim == 2 else 0
    side = len(picture)
    if picture.shape != (side, side, 3):
        raise ShapeError(f"picture: expected (side, side, 3); got {picture.shape}")
    if not across or across**2 != weights.shape[-1] or side % across:
        raise ShapeError(
            "weights: expected (T_q, n * n) or (H, T_q, n * n), for n by n patches of a picture of "
            f"{side} by {side}; got {weights.shape}"
        )
    for name, kind, array in (("weights", "numbers between 0 and 1", weights),
                              ("picture", "pixels from 0 to 1", picture)):  # fmt: skip
        if not -1e-3 <= array.min() <= array.max() <= 1 + 1e-3:
            raise ConfigError(
                f"{name}: expected {kind}; got {array.min():.4g} to {array.max():.4g}"
            )
    words = check_labels("words", words, T_q=len(weights))
    grids = weights.reshape(-1, across, across)

    def draw(width: int) -> list[Drawing]:
        return [_draw(picture, *each, SIDES[width]) for each in zip(grids, words, strict=True)]

    title = "What it looks at, word by word"
    notes = [check_text("note", note)]
    notes.append(
        f"The clearer a patch, the larger its weight. Weights from {decimal(LEAST)} are written."
    )
    panels, wide = draw(PHONE), draw(DESK)
    has_room = sum(panel.size[0] + GAP for panel in wide) - GAP <= DESK
    alt = f"{sentences(title, notes[0])} {' '.join(panel.desc for panel in panels)}"
    return Picture(panels, title=title, notes=notes, alt=alt, wide=wide if has_room else ())


def _draw(picture: Array, weights: Array, word: str, patch: int) -> Drawing:
    most = float(weights.max()) or 1.0
    row, column = np.unravel_index(weights.argmax(), weights.shape)
    drawn = Drawing(
        word,
        f"As it writes {word}, the largest weight is {weights.max():.2f}, on the patch in row "
        f"{row + 1}, column {column + 1}.",
    )
    n, left, top = len(weights), MARGIN, MARGIN + 24
    whole = patch * n
    drawn.text(left + whole / 2, MARGIN + 14, shortened(word, whole), "w", align="middle")
    drawn.box(left, top, whole, whole, fill="sunk")
    drawn.add(
        f'<image x="{left}" y="{top}" width="{whole}" height="{whole}" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{_png(picture)}"/>'
    )
    for (i, j), weight in np.ndenumerate(weights):
        x, y = left + j * patch, top + i * patch
        veil = VEIL * (1 - weight / most)
        drawn.add(
            f'<rect style="fill:{drawn.color("card")}" opacity="{veil:.2f}" x="{x}" y="{y}" '
            f'width="{patch}" height="{patch}"/>'
        )
        drawn.box(x, y, patch, patch, stroke="line")
    for (i, j), weight in np.ndenumerate(weights):
        if weight >= LEAST:
            x, y = left + j * patch, top + i * patch
            drawn.box(x + 1, y + 1, patch - 2, patch - 2, stroke="ink", thick=1 + 2 * weight / most)
            drawn.add(
                f'<text class="n s3 v" style="{HALO}" x="{x + patch / 2:g}" '
                f'y="{y + patch / 2 + 5:g}">{decimal(float(weight))}</text>'
            )
    return drawn


def _png(picture: Array) -> str:
    """Return the picture's file in base64; its ground lets through what is behind it."""
    is_drawn = picture.any(axis=-1, keepdims=True)
    colors = np.concatenate([DULL + (1 - 2 * DULL) * picture, is_drawn], axis=-1)
    file = BytesIO()
    Image.fromarray(np.round(255 * colors).astype(np.uint8)).save(file, "png")
    return b64encode(file.getvalue()).decode()
