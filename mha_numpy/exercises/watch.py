"""Waiting until a file is saved."""

import time
from collections.abc import Iterator
from pathlib import Path

PERIOD = 0.25  # seconds between two looks


def saved(folder: Path) -> Iterator[list[Path]]:
    """Yield, again and again, the Python files of a folder that have changed since the last time.

    Parameters
    ----------
    folder : Path

    Yields
    ------
    list of Path
        New files, and those with another time or size. Ends never: Ctrl-C does.
    """
    before = _states(folder)
    while True:
        time.sleep(PERIOD)
        now = _states(folder)
        changed = [path for path, state in now.items() if before.get(path) != state]
        before = now
        if changed:
            yield changed


def _states(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return when each file was saved, and its size."""
    states = {}
    for path in sorted(folder.glob("*.py")):
        try:
            found = path.stat()
        except OSError:  # an editor is just replacing it
            continue
        states[path] = (found.st_mtime_ns, found.st_size)
    return states
