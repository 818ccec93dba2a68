"""Picture: a figure that carries its own description, in a notebook and in files."""

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from mha_numpy.errors import ConfigError
from mha_numpy.look import ON_PAPER, PAPER

DPI = 150


class Picture(Figure):
    """A figure whose ``get_label()`` is its alt text; a notebook shows it as an image with it.

    It belongs to no window and to no pyplot: nothing has to be closed.

    Examples
    --------
    >>> picture = Picture(figsize=(1, 1))
    >>> picture.set_label("One head looks at one token.")
    >>> 'alt="One head looks at one token."' in picture._repr_html_()
    True
    """

    def _repr_html_(self) -> str:
        png = BytesIO()
        self.savefig(png, format="png", dpi=DPI)
        return (
            f'{ON_PAPER}<img class="{PAPER}" alt="{escape(str(self.get_label()))}" '
            f'style="width:{self.get_figwidth() * 96:.0f}px;max-width:100%;background:#ffffff" '
            f'src="data:image/png;base64,{b64encode(png.getvalue()).decode()}">'
        )


def save_figure(fig: Figure, stem: Path | str) -> list[Path]:
    """Write a figure as PNG and as SVG, the same bytes each time.

    Parameters
    ----------
    fig : Figure
        Its label, ``fig.get_label()``, is written into both files as title (the first sentence)
        and description.
    stem : path
        Where to, without ``.png`` or ``.svg``. Missing folders are made.

    Returns
    -------
    list of Path
        The PNG (150 dots per inch) and the SVG.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in save_figure(Picture(figsize=(1, 1)), Path(folder) / "empty")]
    ['empty.png', 'empty.svg']
    """
    if not isinstance(fig, Figure):
        raise ConfigError(f"fig: expected a matplotlib Figure; got {type(fig).__name__}")
    stem = Path(stem)
    if not stem.name:
        raise ConfigError(f"stem: expected a path that ends in a file's name; got {str(stem)!r}")
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, svg = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    description = str(fig.get_label())
    told = {"Title": description.split(". ")[0], "Description": description}
    fig.savefig(png, dpi=DPI, metadata={**told, "Software": None})
    with mpl.rc_context({"svg.hashsalt": "mha_numpy"}):
        fig.savefig(svg, dpi=DPI, metadata={**told, "Date": None, "Creator": None})
    return [png, svg]


def save_all(
    folder: Path, figures: Mapping[str, Figure], texts: Mapping[str, str] | None = None
) -> list[Path]:
    """Write figures by their stems, and texts by their names, for a command's ``--save``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [path for stem, fig in figures.items() for path in save_figure(fig, folder / stem)]
        for name, text in (texts or {}).items():
            (folder / name).write_text(text, encoding="utf-8")
            paths.append(folder / name)
    except OSError as error:
        raise ConfigError(f"save: cannot write to {folder}: {error.strerror}") from error
    return paths
