"""The origin film: where every cell came from, through reshapes and transposes."""

import math
import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Rectangle

from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array, as_array
from mha_numpy.errors import ConfigError, DTypeError, ShapeError, describe
from mha_numpy.show.pictures.cells import cell_corners
from mha_numpy.show.pictures.colors import MUTED, NO_HEAD, fade, head_color, text_on
from mha_numpy.show.pictures.labels import MONO, MONO_WIDTH, write
from mha_numpy.show.pictures.layout import MAX_WIDTH, Box, flow, head_legend, patch, start_page
from mha_numpy.show.pictures.origin_words import Ramp, count_of, mark_of, sentence_of
from mha_numpy.show.pictures.panels import LINE, break_code
from mha_numpy.show.pictures.save import Picture

MAX_SIDE, MAX_CELLS = 64, 2000  # rows or columns of a block; cells of the film
TOLERANCE = 1e-9  # what a product with ones and zeros may add to a number
PALEST = 0.22  # shade of token 0; the last token has the full colour

# lengths in inches
NUMBER, MARK, TITLE_SIZE, SENTENCE = 6.5, 6.0, 9.0, 7.5  # font sizes, in points
BLOCKS_WIDTH = 6.1  # of blocks side by side, if they are several
CELL, SMALLEST = 0.25, 0.08  # at most and least, unless its number needs more
GAP, GUTTER = 0.16, 0.45  # between blocks, and between panels
LABEL_ROOM, TITLE_LINE, SENTENCE_LINE = 0.17, 0.17, 0.145
TEXT = 2.5  # what a panel's text has at least


class _Panel(NamedTuple):
    """One array, cut into blocks by its leading axes."""

    name: str
    shape: tuple[int, ...]
    blocks: Array  # (blocks, rows, columns) of the ramp's numbers
    labels: list[str]  # of each block; none where the array is one
    marks: list[list[str]]  # of each block's rows: where they came from
    across: int  # blocks in a line
    cell: float  # inches
    sentence: str

    @property
    def mark_width(self) -> float:
        """What the longest mark needs."""
        longest = max((len(mark) for rows in self.marks for mark in rows), default=0)
        return MARK * MONO_WIDTH * longest + 0.06 * bool(longest)

    @property
    def block_width(self) -> float:
        """One block with its marks or its label, and the gap behind it."""
        label = MARK * MONO_WIDTH * max(map(len, self.labels), default=0)
        cells = max(self.blocks.shape[2] * self.cell, label)
        return self.mark_width + cells + GAP

    @property
    def block_height(self) -> float:
        """One block with its label, and the gap below it."""
        return LABEL_ROOM * bool(self.labels) + self.blocks.shape[1] * self.cell + GAP

    @property
    def width(self) -> float:
        """What the blocks and the text need."""
        longest = TITLE_SIZE * MONO_WIDTH * min(len(self.name), 44)
        return max(self.across * self.block_width - GAP, longest, TEXT)

    @property
    def title(self) -> list[str]:
        """The name in lines."""
        return break_code(self.name, int(self.width / (TITLE_SIZE * MONO_WIDTH)))

    @property
    def told(self) -> list[str]:
        """The sentence in lines."""
        return textwrap.wrap(self.sentence, int(self.width / (SENTENCE * 0.56 / 72)))

    @property
    def head(self) -> float:
        """What title and shape need, above the blocks."""
        return TITLE_LINE * len(self.title) + LINE + 0.08

    @property
    def height(self) -> float:
        """Title, blocks and sentence."""
        last_line, _ = self.place(len(self.blocks) - 1)
        blocks = (last_line + 1) * self.block_height
        return self.head + blocks + SENTENCE_LINE * len(self.told)

    def place(self, i: int) -> tuple[int, int]:
        """Return the line and the place in it of block i; the outer axes begin new lines."""
        n = self.shape[-3] if len(self.shape) > 2 else 1
        outer, inner = divmod(i, n)
        return outer * math.ceil(n / self.across) + inner // self.across, inner % self.across


def origin_film(arrays: Mapping[str, Array], num_heads: int) -> Picture:
    """Draw where every cell came from: its colour is the head, its shade the token of origin.

    The first array is a ramp, so that a number tells its place; the others were made of it by
    reshapes, transposes, copies and slices. A right split then shows blocks of one colour with
    all tokens down their rows; a reshape without the transpose shows blocks of mixed colours.

    Parameters
    ----------
    arrays : mapping of names to arrays
        In order. First ``np.arange(B * T * D).reshape(B, T, D)``, or (T, D); then arrays of rank 1
        to 4 that hold numbers of it. A name is the title, often the code that made the array.
    num_heads : int
        H; must divide D. Columns ``h * d`` to ``(h + 1) * d - 1`` of the ramp are head h.

    Returns
    -------
    Picture
        A matplotlib Figure; ``get_label()`` is its alt text, ``.axes`` are the arrays.

    Notes
    -----
    The last two axes are rows and columns, the leading ones make blocks. At a row stands what it
    holds: ``t1 h0`` is token 1 of head 0 (``b``: of which sequence). The sentence under a panel is
    measured. Numbers may be off by 1e-9: attention in which every token sees itself alone keeps
    the ramp, and can stand between the split and the merge.

    Examples
    --------
    >>> x = np.arange(12).reshape(1, 3, 4)
    >>> right = x.reshape(1, 3, 2, 2).transpose(0, 2, 1, 3)
    >>> film = origin_film({"x": x, "right": right, "wrong": x.reshape(1, 2, 3, 2)}, 2)
    >>> for sentence in film.get_label().split("; ")[1:]:
    ...     print(sentence)
    right (1, 2, 3, 2): each block: one head, all 3 tokens, one in each row
    wrong (1, 2, 3, 2): blocks mix heads: block [0, 0] holds tokens 0 and 1 of both heads.
    """
    ramp, cells = _check_arrays(arrays, check_count("num_heads", num_heads))
    panels = _prepare(ramp, cells)
    parts = [
        count_of(ramp.H, "head"),
        f"{count_of(ramp.d, 'column')} each",
        count_of(ramp.T, "token"),
    ]
    title = f"Where every cell came from: {', '.join(parts)}"
    rows = flow([Box(panel.width, panel.height) for panel in panels], GUTTER)
    told = "; ".join(f"{panel.name} {panel.shape}: {panel.sentence}" for panel in panels)
    film, axes = start_page(
        rows, title, [_notes(ramp)], alt=f"{title}. {told}.", legend=_legend(ramp), gutter=GUTTER
    )
    for ax, panel in zip(axes, panels, strict=True):
        ax.set_label(panel.name)
        _paint(ax, panel, ramp)
    return film


def _check_arrays(arrays: Mapping[str, Array], H: int) -> tuple[Ramp, dict[str, Array]]:
    if not isinstance(arrays, Mapping) or not arrays:
        raise ConfigError(
            f"arrays: expected a mapping of names to arrays, the ramp first; got {describe(arrays)}"
        )
    given = {str(name): _check_array(str(name), array) for name, array in arrays.items()}
    name, first = next(iter(given.items()))
    numbers = np.arange(first.size).reshape(first.shape)
    if first.ndim not in (2, 3) or not np.array_equal(first, numbers):
        raise ConfigError(
            f"{name}: expected the first array to be the ramp np.arange(B * T * D).reshape(B, T, "
            f"D), whose numbers tell where they stand; got {describe(first)}"
        )
    B, T, D = (1, *first.shape)[-3:]
    if D % H:
        raise ConfigError(f"num_heads: expected a divisor of D={D}; got {H}")
    total = sum(array.size for array in given.values())
    if total > MAX_CELLS:
        raise ConfigError(
            f"arrays: expected at most {MAX_CELLS} cells in all; got {total}: show fewer arrays, "
            "or a smaller ramp"
        )
    return Ramp(name, B, T, D, H), {
        name: _whole(name, array, first.size) for name, array in given.items()
    }


def _check_array(name: str, array: Array) -> Array:
    array = as_array(name, array, "an array of real numbers", DTypeError)
    if array.dtype.kind not in "iuf":
        raise DTypeError(f"{name}: expected an array of real numbers; got {describe(array)}")
    if not 1 <= array.ndim <= 4 or array.size == 0:
        raise ShapeError(
            f"{name}: expected an array of rank 1 to 4, no axis empty; got {array.shape}"
        )
    if max(array.shape[-2:]) > MAX_SIDE:
        raise ConfigError(
            f"{name}: expected at most {MAX_SIDE} rows and columns; got {array.shape}: "
            "take a smaller ramp, the mistake is the same"
        )
    return array


def _whole(name: str, array: Array, size: int) -> Array:
    """Return an array's numbers as integers of the ramp, or raise a ConfigError that names one."""
    nearest = np.rint(array)
    with np.errstate(invalid="ignore"):  # inf - inf is no number of the ramp either
        off = ~((np.abs(array - nearest) <= TOLERANCE) & (nearest >= 0) & (nearest < size))
    if off.any():
        at = np.argwhere(off)[0].tolist()
        raise ConfigError(
            f"{name}: expected numbers of the ramp, 0 to {size - 1}; got {array[tuple(at)]:.10g} "
            f"at {at}: this picture follows moved cells; use shape_film for computed ones"
        )
    return nearest.astype(np.int64)


def _prepare(ramp: Ramp, arrays: dict[str, Array]) -> list[_Panel]:
    """Cut the arrays into blocks, with cells of one size that holds the numbers if it can."""
    widest = max(array.shape[-1] for array in arrays.values())
    cell = max(SMALLEST, min(CELL, (MAX_WIDTH - 1.0) / widest))
    is_marked = cell >= MARK * 1.25 / 72
    panels = []
    for name, array in arrays.items():
        rows, columns = (1, *array.shape)[-2:]
        blocks, leading = array.reshape(-1, rows, columns), array.shape[:-2]
        labels = [str(list(index)) for index in np.ndindex(*leading)] if leading else []
        marks = [[mark_of(ramp, row) for row in block] for block in blocks] if is_marked else []
        sentence = sentence_of(ramp, array.shape, blocks, labels)
        panel = _Panel(name, array.shape, blocks, labels, marks, 1, cell, sentence)
        across = _across(leading[-1] if leading else 1, panel.block_width)
        panels.append(panel._replace(across=across))
    return panels


def _across(n: int, block_width: float) -> int:
    """Choose how many blocks of an axis stand side by side, in few lines and best without holes."""
    most = max(1, int((BLOCKS_WIDTH + GAP) / block_width))
    if n > 2 * most:  # the whole width
        most = max(1, int((MAX_WIDTH + GAP) / block_width))
    divisor = max(part for part in range(1, min(n, most) + 1) if n % part == 0)
    return divisor if 2 * divisor > min(n, most) else min(n, most)


def _notes(ramp: Ramp) -> str:
    """Say how to read the film."""
    letters = ["b sequence"] * (ramp.B > 1) + ["t token"] + ["h head"] * (ramp.H > 1)
    return (
        f"A number is a cell of {ramp.name} and goes with it wherever it is moved: its colour is "
        "the head that its column belongs to, its shade the token, from pale (first) to strong "
        f"(last). At each row: where its cells came from ({', '.join(letters)})."
    )


def _legend(ramp: Ramp) -> dict[str, Rectangle]:
    """Return a patch for every head, and grey ones for the first and the last token."""
    shades = {f"token {t}": fade(NO_HEAD)(_shade(ramp, np.array(t))) for t in (0, ramp.T - 1)}
    tokens = {text: patch(facecolor=shade) for text, shade in shades.items()}
    return head_legend(ramp.H) | tokens


def _shade(ramp: Ramp, tokens: Array) -> Array:
    """Return the shade of tokens, from pale to strong."""
    return PALEST + (1 - PALEST) * (tokens / (ramp.T - 1) if ramp.T > 1 else tokens + 0.5)


# painting


def _paint(ax: Axes, panel: _Panel, ramp: Ramp) -> None:
    ax.set_axis_off()
    for i, words in enumerate(panel.title):
        write(ax, 0, TITLE_LINE * i, words, TITLE_SIZE, fontweight="bold", **MONO)
    write(ax, 0, TITLE_LINE * len(panel.title), str(panel.shape), 7, color=MUTED, **MONO)
    for i in range(len(panel.blocks)):
        line, column = panel.place(i)
        _paint_block(
            ax, panel, i, ramp, column * panel.block_width, panel.head + line * panel.block_height
        )
    below = panel.height - SENTENCE_LINE * len(panel.told)
    for i, words in enumerate(panel.told):
        write(ax, 0, below + SENTENCE_LINE * i, words, SENTENCE, label="sentence")


def _paint_block(ax: Axes, panel: _Panel, i: int, ramp: Ramp, left: float, top: float) -> None:
    numbers, cell = panel.blocks[i], panel.cell
    x, y = left + panel.mark_width, top + LABEL_ROOM * bool(panel.labels)
    if panel.labels:
        write(ax, x, y - 0.03, panel.labels[i], MARK, "left bottom", label="block", **MONO)
    style: dict[str, Any] = {"align": "right center_baseline", "color": MUTED, **MONO}
    for row, mark in enumerate(panel.marks[i] if panel.marks else []):
        write(ax, x - 0.05, y + (row + 0.5) * cell, mark, MARK, label="mark", **style)
    _, tokens, heads = ramp.came_from(numbers.ravel())
    colors = [head_color(h) for h in heads.tolist()]
    faces = [fade(c)(shade) for c, shade in zip(colors, _shade(ramp, tokens), strict=True)]
    squares = PolyCollection(
        cell_corners(numbers.shape, (x, y), cell, inset=0.04), facecolors=faces,
        edgecolors=colors, linewidths=0.4, clip_on=False, label="cells",
    )  # fmt: skip
    ax.add_collection(squares, autolim=False)
    if cell < NUMBER * MONO_WIDTH * len(str(ramp.size - 1)) + 0.03:
        return
    style = {"align": "center center_baseline", "label": "number"}
    for ((row, column), number), face in zip(np.ndenumerate(numbers), faces, strict=True):
        middle = (x + (column + 0.5) * cell, y + (row + 0.5) * cell)
        write(ax, *middle, str(number), NUMBER, color=text_on(face), **style)
