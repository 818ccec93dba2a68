"""A scene of the story as a drawing: its title, its tables of cells, and its sentence."""

import math
import re

import numpy as np

from mha_numpy.show.pictures.labels import MINUS
from mha_numpy.show.pictures.svg import MARGIN, Drawing, shortened, width_of, wrapped
from mha_numpy.show.scenes import Cell, Still, Story, Table

# units
WIDTH = 340  # of a scene
ROW, HIGH, SIGN, BAR, GAP = 36, 32, 18, 110, 3  # a row and its cells; other columns; between cells
LEAST_SLOPE = 0.06  # of the largest: a smaller one has no arrow
SPOKEN = 90  # characters that are read in a few seconds


def draw_scene(shown: Still, *, words: str, is_back: bool) -> Drawing:
    """Draw a scene, with its words below."""
    drawn = Drawing(shown.title, words)
    drawn.text(MARGIN, MARGIN + 16, shown.title, "t")
    y = MARGIN + 34.0
    columns: tuple[str, ...] = ()
    for table in shown.tables:
        if not table.rows:
            drawn.text(MARGIN + 78, y + 15, table.caption, "s")
            y += 26
            continue
        y = _draw_table(drawn, table, y, has_names=table.columns != columns, is_back=is_back)
        columns = table.columns
    y += 18
    for line in wrapped(words, WIDTH - 2 * MARGIN, "says"):
        drawn.text(MARGIN, y, line, "says")
        y += 21
    drawn.reach(WIDTH - MARGIN, 0)
    return drawn


def draw_names(drawn: Drawing, story: Story, number: int, y: float) -> None:
    """Write the names of all scenes at a height, that of this one strong."""
    wide = [width_of(scene.name, "s") * (1.1 if i == number else 1)
            for i, scene in enumerate(story.scenes)]  # fmt: skip
    x, gap = float(MARGIN), (WIDTH - 2 * MARGIN - sum(wide)) / (len(wide) - 1)
    for i, (scene, long) in enumerate(zip(story.scenes, wide, strict=True)):
        drawn.text(x + long / 2, y, scene.name, "s b i" if i == number else "s", align="middle")
        if i == number:
            drawn.box(x, y + 6, long, 3, fill="ink")
        x += long + gap


def _draw_table(drawn: Drawing, table: Table, y: float, *, has_names: bool, is_back: bool) -> float:
    """Draw a table from y on; return where it ends."""
    left = MARGIN + 78.0
    rows = [line.cells for line in table.rows if not line.is_rule]
    kinds = [
        "cell" if any(isinstance(cell, Cell) for cell in column)
        else "bar" if "bar" in column else "sign"
        for column in zip(*rows, strict=True)
    ]  # fmt: skip
    sizes = {"bar": BAR, "sign": SIGN, "cell": 0.0}
    room = WIDTH - MARGIN - left - sum(sizes[kind] for kind in kinds)
    wide = sizes["cell"] = min(48.0, math.floor(room / max(1, kinds.count("cell")) - GAP))
    widths = [sizes[kind] for kind in kinds]
    places = left + np.cumsum([0.0, *(width + GAP for width in widths)])
    if has_names:
        longest = max(map(width_of, table.columns))
        is_turned = longest > wide + 8
        for x, width, name in zip(places.tolist(), widths, table.columns, strict=False):
            if is_turned:
                drawn.text(x + width / 2 + 4, y + longest, name, "s", is_turned=True)
            else:
                drawn.text(x + width / 2, y + 12, name, "s", align="middle")
        y += longest + 6 if is_turned else 20
    for line in table.rows:
        if line.is_rule:
            style = f"stroke:{drawn.color('edge')}"
            drawn.add(f'<path style="{style}" d="M{left:g} {y + 2:g}H{places[-1] - GAP:g}"/>')
            y += 6
            continue
        kind = "w b" if line.is_chosen else "w"
        drawn.text(left - 8, y + (14 if line.role else 22), line.word, kind, align="end")
        if line.role:
            drawn.text(left - 8, y + 29, shortened(line.role, 72, "s"), "s", align="end")
        share = 0.0
        for x, width, cell in zip(places.tolist(), widths, line.cells, strict=False):
            if isinstance(cell, Cell):
                _draw_cell(drawn, cell, x, y, width, is_back=is_back)
                share = max(0.0, cell.value)
            elif cell == "bar":
                drawn.box(x, y + 9, max(1, BAR * share), 14, fill="plain", rx=3)
                drawn.reach(x + BAR, y + 23)
            elif cell:
                drawn.text(x + width / 2, y + 21, cell, "n")
        y += ROW
    return y


def _draw_cell(
    drawn: Drawing, cell: Cell, x: float, y: float, width: float, *, is_back: bool
) -> None:
    color = "fill-x" if cell.head is None else f"fill-{cell.head % 8}"
    sign = -1 if cell.value < 0 else 1
    drawn.cells(
        (x, y), np.array([[sign * cell.level * (cell.value != 0)]]), color, (width, HIGH),
        hidden=np.array([[cell.is_hidden]]),
    )  # fmt: skip
    has_arrow = is_back and abs(cell.lift) >= LEAST_SLOPE
    text = cell.text if width >= 36 else re.sub(rf"^({MINUS}?)0\.", r"\1.", cell.text)
    middle = x + width / 2
    kind = f"n{' s3' * (width < 36)}{' z' * (cell.value == 0)}"
    drawn.text(middle, y + (17 if has_arrow else 21), text, kind)
    if has_arrow:
        size = 4 + 5 * abs(cell.lift)
        tip, foot = (y + 30 - size, y + 30) if cell.lift > 0 else (y + 30, y + 30 - size)
        drawn.add(
            f'<path class="slope" style="fill:{drawn.color("ink")}" '
            f'd="M{middle:.1f} {tip:.1f}L{middle - size:.1f} {foot:.1f}h{2 * size:.1f}z"/>'
        )


def spoken(text: str, *, is_last: bool) -> str:
    """Return the sentences that fit into a few seconds; in the last scene, the last ones."""
    sentences = re.split(r"(?<=[.?!”]) ", text)
    order = sentences[::-1] if is_last else sentences
    kept: list[str] = []
    for sentence in order:
        if not kept or len(" ".join([*kept, sentence])) <= SPOKEN:
            kept.append(sentence)
    return " ".join(sentence for sentence in sentences if sentence in kept)
