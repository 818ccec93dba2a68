"""What stands above the panels of a film: heading, verdict, how to read it, legend."""

import math
import textwrap
from typing import Any, NamedTuple

from matplotlib.patches import Rectangle
from matplotlib.transforms import Transform

from mha_numpy.draw.colors import INK, MUTED
from mha_numpy.draw.panels import LINE, MARGIN
from mha_numpy.draw.save import Picture

# lengths in inches
HEADING, VERDICT_LINE, NOTE_LINE, LEGEND_LINE = 0.32, 0.19, 1.1 * LINE, 0.21
PATCH = 0.14  # side of a legend's square
HEADING_CHARACTER, VERDICT_CHARACTER, NOTE_CHARACTER = 0.115, 0.095, 0.062  # widths, at most


class Heading(NamedTuple):
    """The texts and the legend of a film, in lines of one width."""

    title: str
    verdict: list[str]  # what was measured; none where nothing was compared
    notes: list[str]
    legend: dict[str, Rectangle]
    width: float

    @property
    def height(self) -> float:
        """All lines, and the room below them."""
        return self._legend_at + LEGEND_LINE * math.ceil(len(self.legend) / self._in_line) + 0.2

    @property
    def _notes_at(self) -> float:
        return HEADING + VERDICT_LINE * len(self.verdict) + 0.04 * bool(self.verdict)

    @property
    def _legend_at(self) -> float:
        return self._notes_at + NOTE_LINE * len(self.notes) + 0.1

    @property
    def _entry(self) -> float:
        """What the longest entry of the legend takes."""
        return 0.42 + NOTE_CHARACTER * max(map(len, self.legend))

    @property
    def _in_line(self) -> int:
        return max(1, int(self.width / self._entry))

    def paint(self, picture: Picture, inches: Transform) -> None:
        """Write everything into the upper left corner; `inches` counts from there."""
        bold: dict[str, Any] = {"fontweight": "bold", "color": INK}
        lines: dict[str, Any] = {"linespacing": 1.3}
        for at, texts, style in (
            (0.0, [self.title], {"fontsize": 13, **bold}),
            (HEADING, self.verdict, {"fontsize": 9.5, **bold, **lines}),
            (self._notes_at, self.notes, {"fontsize": 8, "color": MUTED, **lines}),
        ):
            picture.text(
                MARGIN, MARGIN + at, "\n".join(texts), transform=inches, va="top",
                parse_math=False, **style,
            )  # fmt: skip
        for i, (text, patch) in enumerate(self.legend.items()):
            row, column = divmod(i, self._in_line)
            left = MARGIN + column * self._entry
            top = MARGIN + self._legend_at + LEGEND_LINE * row
            patch.set(bounds=(left, top, PATCH, PATCH), transform=inches)
            picture.add_artist(patch)
            picture.text(
                left + 0.2, top + PATCH / 2, text, transform=inches, va="center", fontsize=8,
                color=INK, parse_math=False,
            )  # fmt: skip


def compose(
    title: str, verdict: str, notes: str, legend: dict[str, Rectangle], least_width: float
) -> Heading:
    """Break the texts into lines of the panels' width, or of what the title needs."""
    width = max(least_width, 7.0, HEADING_CHARACTER * len(title))
    return Heading(
        title,
        textwrap.wrap(verdict, int(width / VERDICT_CHARACTER)),
        textwrap.wrap(notes, int(width / NOTE_CHARACTER)),
        legend,
        width,
    )
