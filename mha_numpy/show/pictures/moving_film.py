"""A film that moves: every cell from array to array, forward and then the gradient's way back."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.show.pictures.blocks import Blocks, cut_step
from mha_numpy.show.pictures.labels import check_text
from mha_numpy.show.pictures.recorded import axis_labels, check_sequence, check_steps

WIDTH, HEIGHT, DPI = 7.2, 3.4, 100  # inches, and dots for each
HOLD, TICK, FRAMES = 1500, 80, 9  # milliseconds of rest and of one frame of motion; frames
BLOCK_GAP, ROW_GAP = 1.0, 0.7  # between heads apart, and between rows that are cut; in cells
TEXT = "#808080"  # readable on white and on black
FAINT = 0.12  # of a cell whose number is 0, so that it is still seen


class Scene(NamedTuple):
    """One array on the stage."""

    step: Step
    numbers: Array  # (cells,): which cells of the array they are; those of one sequence
    places: Array  # (cells, 2): the middle of each cell, in cells from the middle of the array
    colors: Array  # (cells, 4): of its head; the larger the number, the less transparent
    rows: Sequence[tuple[float, str]]  # where each token's row lies, and the token


def animate(
    trace: Trace,
    path: Path | str,
    *,
    sequence: int = 0,
    tokens: Sequence[str] | None = None,
    note: str = "",
) -> Path:
    """Write a film of the way that x takes to out, and that d_out takes back to d_x.

    Cells that an equation only moves are seen moving: the cut into heads, the turn of the head
    axis, the merge. Cells that are computed appear while those before them fade.

    Parameters
    ----------
    trace : Trace
        Filled inside ``with trace() as t:``; a few tokens and features, so that cells are seen.
    path : path
        A file that ends in .png: an animated PNG, without a background, for light and dark pages.
    sequence : int
        Which sequence of the batch.
    tokens : sequence of T_q strings, optional
        They stand at the rows of queries.
    note : str
        A sentence below, such as "Random params: nothing here is trained.".

    Returns
    -------
    Path

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from mha_numpy.core import split_heads, step
    >>> from mha_numpy.checking.tracing import trace
    >>> x = np.arange(8.0).reshape(1, 2, 4)
    >>> with trace() as t:
    ...     _ = step("x", x, "B T H*d")
    ...     _ = step("by_token", x.reshape(1, 2, 2, 2), "B T H d", "x.reshape(B, T, H, d)")
    >>> with TemporaryDirectory() as folder:
    ...     animate(t, Path(folder) / "film.png").name
    'film.png'
    """
    path = Path(path)
    if path.suffix != ".png":
        raise ConfigError(f"path: expected a file that ends in .png; got {str(path)!r}")
    steps = check_steps(trace, "film")
    check_sequence(steps, sequence)
    names = axis_labels(steps, tokens).get("T_q", [])
    scenes = [_scene(step, sequence, steps, names) for step in _way(trace)]
    stage = _Stage(check_text("note", note), scenes)
    frames: list[Image.Image] = []
    durations: list[int] = []
    for before, scene in zip([None, *scenes], scenes, strict=False):
        moving = list(stage.motion(before, scene, trace)) if before else []
        frames += [*moving, stage.draw(scene, scene.places, scene.colors)]
        durations += [TICK] * len(moving) + [HOLD]
    frames[0].save(
        path, save_all=True, append_images=frames[1:], duration=durations, loop=0, disposal=1,
    )  # fmt: skip
    return path


def _way(trace: Trace) -> list[Step]:
    """Return the steps from x to out, and from d_out to d_x: each the first source of the next."""
    found: list[Step] = []
    for backward in (False, True):
        before = [step for step in trace.steps if step.is_backward == backward][-1:]
        way: list[Step] = []
        while before:
            way.insert(0, before[0])
            sources = [source.step for source in trace.origin_of(way[0]).sources]
            before = [s for s in sources if not s.is_constant and s.is_backward == backward]
        found += way
    return found


def _scene(step: Step, sequence: int, recorded: Sequence[Step], tokens: Sequence[str]) -> Scene:
    """Place the cells of a step, in the order of its numbers."""
    numbered = np.arange(step.array.size, dtype=np.float64).reshape(step.array.shape)
    blocks = cut_step(replace(step, array=numbered), sequence, list(recorded))
    order = np.argsort(blocks.values, axis=None)  # of the cells of one sequence
    places = _places(blocks)[order]
    numbers = blocks.values.ravel()[order].astype(int)
    size = np.abs(np.where(np.isfinite(step.array), step.array, 0).ravel()[numbers])
    colors = np.empty((len(order), 4))
    heads = np.repeat(np.arange(len(blocks.colors)), blocks.values[0].size)
    colors[:, :3] = np.array([to_rgb(color) for color in blocks.colors])[heads[order]]
    colors[:, 3] = FAINT + (1 - FAINT) * size / max(size.max(initial=0), 1e-300)
    places -= (places.max(axis=0) + places.min(axis=0)) / 2
    axes = step.axes.split()
    rows = []
    if "T_q" in axes:
        at = np.unravel_index(numbers, step.array.shape)[axes.index("T_q")]
        rows = [(float(places[at == t, 1].mean()), token) for t, token in enumerate(tokens)]
    return Scene(step, numbers, places, colors, rows)


def _places(blocks: Blocks) -> Array:
    """Return where the cells lie, block by block and row by row: (cells, 2), x to the right."""
    count, rows, columns = blocks.values.shape
    block, row, column = np.unravel_index(np.arange(blocks.values.size), (count, rows, columns))
    pitch = 1 + ROW_GAP * (blocks.spread == "in row")
    if blocks.spread == "touching":
        across, down, gap = block % blocks.across, block // blocks.across, 0.0
    else:  # heads stand side by side
        across, down, gap = block, 0 * block, BLOCK_GAP
    x = across * (columns + gap) + column
    y = down * rows + pitch * row
    return np.stack([x, -y], axis=1).astype(float)


class _Stage:
    """A transparent picture whose cells and words change from frame to frame."""

    def __init__(self, note: str, scenes: Sequence[Scene]) -> None:
        figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI)
        figure.patch.set_alpha(0)
        self.canvas: Any = FigureCanvasAgg(figure)
        self.axes = figure.add_axes((0.1, 0.1, 0.8, 0.66))
        self.axes.set_axis_off()
        self.axes.set(xlim=(-1, 1), ylim=(-1, 1))
        mono: dict[str, Any] = {"family": "monospace", "color": TEXT}
        self.name = figure.text(0.03, 0.93, "", fontsize=15, weight="bold", va="center", **mono)
        self.shape = figure.text(0.97, 0.93, "", fontsize=11, ha="right", va="center", **mono)
        self.equation = figure.text(0.03, 0.83, "", fontsize=10, va="center", **mono)
        figure.text(0.97, 0.03, note, fontsize=8, color=TEXT, ha="right")
        box = self.axes.get_window_extent()
        room = np.array([box.width, box.height])
        extents = [np.ptp(scene.places, axis=0) + 1 for scene in scenes]
        cell = min(float(min(room / extent)) for extent in extents)  # all arrays fit, in dots
        self.scale = cell * 2 / room
        sizes = [(0.86 * cell * 72 / DPI) ** 2]
        self.cells: Any = self.axes.scatter([], [], sizes, marker="s", linewidths=0, clip_on=False)
        self.labels: list[Text] = []

    def draw(self, scene: Scene, places: Array, colors: Array) -> Image.Image:
        """Draw one frame."""
        step, scale = scene.step, self.scale
        sizes = zip(step.axes.split(), step.array.shape, strict=True)
        self.name.set_text(step.name)
        self.shape.set_text("  ".join(f"{axis}={n}" for axis, n in sizes if axis != "B"))
        self.equation.set_text(f"= {step.equation}" if step.equation else "")
        self.cells.set_offsets(places * scale)
        for label in self.labels:
            label.remove()
        left = (scene.places[:, 0].min() - 1) * scale[0]
        self.labels = [
            self.axes.text(
                left, y * scale[1], token, color=TEXT, fontsize=9, ha="right", va="center"
            )
            for y, token in scene.rows
        ]
        self.cells.set_facecolor(colors)
        self.canvas.draw()
        return Image.fromarray(np.array(self.canvas.buffer_rgba()))

    def motion(self, before: Scene, after: Scene, trace: Trace) -> Iterator[Image.Image]:
        """Yield the frames between two arrays: cells that move, or cells that take their place."""
        came = _came_from(before, after, trace)
        for frame in range(1, FRAMES):
            share = frame / FRAMES
            share = share * share * (3 - 2 * share)  # slow, fast, slow
            if came is None:
                places = np.concatenate([before.places, after.places])
                colors = np.concatenate([before.colors, after.colors])
                colors[: len(before.colors), 3] *= 1 - share
                colors[len(before.colors) :, 3] *= share
            else:
                places = (1 - share) * before.places[came] + share * after.places
                colors = (1 - share) * before.colors[came] + share * after.colors
            yield self.draw(after._replace(rows=()), places, colors)


def _came_from(before: Scene, after: Scene, trace: Trace) -> Array | None:
    """Return which cell of one array each cell of the next was; None if they were computed."""
    origin, shape = trace.origin_of(after.step), before.step.array.shape
    if origin.form != "moved" or origin.sources[0].step is not before.step:
        return None
    indices = zip(*np.unravel_index(after.numbers, after.step.array.shape), strict=True)
    cells = [tuple(span.start for span in origin.sources[0].at(index)) for index in indices]
    return np.searchsorted(
        before.numbers, np.ravel_multi_index(tuple(zip(*cells, strict=True)), shape)
    )
