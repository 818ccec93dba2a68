"""Picture: drawings that carry their title, notes and description, in a notebook and in files."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path

from mha_numpy.errors import ConfigError, describe
from mha_numpy.show.pictures.svg import DESK, MARGIN, Drawing, wrapped

GAP = 8  # between drawings side by side

# A card as wide as a column of text; in it all begins at one edge. A notebook keeps no <style>.
CARD = (
    "box-sizing:border-box;max-width:42rem;margin:0 0 16px;padding:14px;text-align:left;"
    "background:var(--card,transparent);border:1px solid var(--line,#8884);border-radius:12px"
)
CAPTION = (
    "margin:0 0 10px;padding:0;text-align:left;font:400 15px/1.45 var(--sans,sans-serif);"
    "color:var(--soft,inherit)"
)
TITLE = "display:block;font-weight:600;color:var(--ink,inherit)"
ROWS = f"display:flex;flex-wrap:wrap;align-items:flex-start;gap:{GAP}px;margin:0 -{MARGIN}px"


class Picture:
    """Small drawings side by side, under them a title and notes; a notebook shows them as images.

    ``alt`` says in words what is seen. Each of ``panels`` is an SVG for a phone; ``wide`` are those
    with more room, where there are such.

    Examples
    --------
    >>> drawing = Drawing("One head looks at one token.")
    >>> picture = Picture([drawing], title="One head", alt="One head looks at one token.")
    >>> 'alt="One head looks at one token."' in picture._repr_html_()
    True
    """

    def __init__(
        self,
        panels: Sequence[Drawing],
        *,
        alt: str,
        title: str = "",
        notes: Sequence[str] = (),
        wide: Sequence[Drawing | None] = (),
    ) -> None:
        self.panels, self.wide = list(panels), list(wide)
        self.title, self.notes, self.alt = title, [note for note in notes if note], alt

    def __repr__(self) -> str:
        return f"Picture({self.alt!r})"

    def _repr_html_(self) -> str:
        """Return images with a caption: they survive in a notebook not yet trusted."""
        across = sum(drawing.size[0] + GAP for drawing in self.wide if drawing) - GAP
        wide = self.wide if across <= DESK else []  # what is compared is side by side
        images = "".join(
            _image_of(panel, larger, self.alt if len(self.panels) == 1 else panel.desc)
            for panel, larger in zip_longest(self.panels, wide)
        )
        title = f'<strong style="{TITLE}">{escape(self.title)}</strong>' if self.title else ""
        caption = title + " ".join(escape(note) for note in self.notes)
        caption = f'<figcaption style="{CAPTION}">{caption}</figcaption>' if caption else ""
        inside = f'{caption}<div style="{ROWS}">{images}</div>'
        return f'<figure class="mha-figure" style="{CARD}">{inside}</figure>'

    def svg(self, width: int = DESK) -> str:
        """Return the picture as one SVG for a file: title, notes, and the drawings in rows."""
        pairs = zip_longest(self.panels, self.wide)
        drawn = [wide if wide and width >= DESK else panel for panel, wide in pairs]
        whole = Drawing(self.title or self.alt.split(". ")[0], self.alt)
        rows: list[list[Drawing]] = [[]]
        for panel in drawn:
            if rows[-1] and sum(p.size[0] + GAP for p in [*rows[-1], panel]) - GAP > width:
                rows.append([])
            rows[-1].append(panel)
        widths = [sum(panel.size[0] + GAP for panel in row) - GAP for row in rows]
        across = max(*widths, 300) - 2 * MARGIN
        top = float(MARGIN)
        for text, kind, line in [(self.title, "t", 21), *((note, "s", 18) for note in self.notes)]:
            for part in wrapped(text, across, kind):
                whole.text(MARGIN, top + 14, part, kind)
                top += line
        top -= MARGIN if top == MARGIN else 0
        for row in rows:
            left = 0.0
            for panel in row:
                width, height = panel.size
                whole.add(panel.svg(nested=(left, top)), left + width - MARGIN, top + height)
                whole.used |= panel.used
                left += width + GAP
            top += max(panel.size[1] for panel in row)
        whole.height = top - MARGIN
        return whole.svg()


def _image_of(panel: Drawing, wide: Drawing | None, alt: str) -> str:
    """Return an image of a drawing, and of the wider one where a page has the room."""
    look = 'style="max-width:100%;height:auto"'
    image = f'<img class="mha-picture" alt="{escape(alt)}" {look} {_source("src", panel)}>'
    if wide is None:
        return image
    source = f'<source media="(min-width: 45rem)" {_source("srcset", wide)}>'
    return f"<picture>{source}{image}</picture>"


def _source(attribute: str, drawing: Drawing) -> str:
    width, height = drawing.size
    data = b64encode(drawing.svg().encode()).decode()
    return f'width="{width}" height="{height}" {attribute}="data:image/svg+xml;base64,{data}"'


def save_figure(fig: Picture, stem: Path | str) -> list[Path]:
    """Write a picture as SVG, the same bytes each time.

    Parameters
    ----------
    fig : Picture
        Its ``alt`` is written into the file as a description.
    stem : path
        Where to, without ``.svg``. Missing folders are made.

    Returns
    -------
    list of Path
        The SVG.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> picture = Picture([Drawing("nothing")], alt="Nothing.")
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in save_figure(picture, Path(folder) / "empty")]
    ['empty.svg']
    """
    if not isinstance(fig, Picture):
        raise ConfigError(
            f"fig: expected a Picture of mha_numpy.show.pictures; got {describe(fig)}"
        )
    stem = Path(stem)
    if not stem.name:
        raise ConfigError(f"stem: expected a path that ends in a file's name; got {str(stem)!r}")
    stem.parent.mkdir(parents=True, exist_ok=True)
    path = stem.with_name(f"{stem.name.removesuffix('.svg')}.svg")
    path.write_text(fig.svg(), encoding="utf-8", newline="\n")
    return [path]


def save_all(
    folder: Path, pictures: Mapping[str, Picture], texts: Mapping[str, str] | None = None
) -> list[Path]:
    """Write pictures by their stems, and texts by their names, for a command's ``--save``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [
            path for stem, each in pictures.items() for path in save_figure(each, folder / stem)
        ]
        for name, text in (texts or {}).items():
            (folder / name).write_text(text, encoding="utf-8")
            paths.append(folder / name)
    except OSError as error:
        raise ConfigError(f"save: cannot write to {folder}: {error.strerror}") from error
    return paths
