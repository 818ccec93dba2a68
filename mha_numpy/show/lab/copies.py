"""Copies of the notebooks in a folder of the user's, and JupyterLab started on them."""

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from mha_numpy.errors import ConfigError

INSTALLED = Path(__file__).parent / "notebooks"
CHECKOUT = Path(__file__).parents[3] / "notebooks"


class Copies(NamedTuple):
    """Which notebooks were written, and which were kept."""

    written: list[Path]
    kept: list[Path]  # were there already


def copy_notebooks(folder: Path | str, *, force: bool = False) -> Copies:
    """Copy all notebooks into a folder, and leave those that are there already untouched.

    Parameters
    ----------
    folder : path
        Made if missing.
    force : bool
        Overwrite notebooks that differ from ours; what you wrote into them is lost.

    Returns
    -------
    Copies
        ``written`` and ``kept``, in the order of the notebooks.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     first, again = copy_notebooks(folder), copy_notebooks(folder)
    >>> first.written[0].name, len(first.kept), len(again.written), len(again.kept)
    ('00_what-a-trained-head-does.ipynb', 0, 0, 36)
    """
    folder = Path(folder)
    copies = Copies([], [])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for original in our_notebooks():
            copy = folder / original.name
            is_new = force or not copy.exists()
            if is_new:
                copy.write_bytes(original.read_bytes())
            (copies.written if is_new else copies.kept).append(copy)
    except FileExistsError as error:
        raise ConfigError(f"folder: expected a folder; {folder} is a file") from error
    except OSError as error:
        raise ConfigError(f"folder: cannot write to {folder}: {error.strerror}") from error
    return copies


def notebook_name(number: str) -> str:
    """Return the file name of a notebook by its number, such as "5" or "05".

    Examples
    --------
    >>> notebook_name("5")
    '05_the-trained-head-understood.ipynb'
    """
    names = {path.name[:2]: path.name for path in our_notebooks()}
    if number.zfill(2) not in names:
        raise ConfigError(f"open: expected one of {', '.join(names)}; got {number}")
    return names[number.zfill(2)]


def our_notebooks() -> list[Path]:
    """Return the notebooks of the package, or those of the checkout, in order."""
    folder = INSTALLED if INSTALLED.is_dir() else CHECKOUT
    return sorted(folder.glob("[0-9][0-9]_*.ipynb"))


def open_lab(notebook: Path | str, options: Sequence[str] = ()) -> int:
    """Open a notebook in JupyterLab, wait until JupyterLab ends, and return its exit code.

    Parameters
    ----------
    notebook : path
        Its folder is what JupyterLab shows.
    options : strings
        Passed on to JupyterLab, such as ``--no-browser``.

    Examples
    --------
    >>> open_lab("no-such.ipynb")
    Traceback (most recent call last):
    mha_numpy.errors.ConfigError: notebook: there is no no-such.ipynb
    """
    if not Path(notebook).is_file():
        raise ConfigError(f"notebook: there is no {notebook}")
    check_installed()
    return subprocess.call([sys.executable, "-m", "jupyterlab", str(notebook), *options])


def check_installed() -> None:
    """Raise a ConfigError where JupyterLab is not installed."""
    if find_spec("jupyterlab") is None:
        raise ConfigError("JupyterLab is not installed: pip install jupyterlab")
