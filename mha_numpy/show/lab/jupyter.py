"""Starting JupyterLab."""

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from mha_numpy.errors import ConfigError


def open_lab(notebook: Path | str, options: Sequence[str] = ()) -> int:
    """Open a notebook in JupyterLab, wait until JupyterLab ends, and return its exit code.

    Parameters
    ----------
    notebook : path
        Its folder is what JupyterLab shows.
    options : strings
        Handed to JupyterLab, such as ``--no-browser``.

    Returns
    -------
    int

    Raises
    ------
    ConfigError
        JupyterLab is not installed in this environment, or there is no such notebook.

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
        raise ConfigError("JupyterLab is not installed here: pip install jupyterlab")
