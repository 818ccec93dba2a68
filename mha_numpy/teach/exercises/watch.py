"""Waiting until a file is saved."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mha_numpy.errors import ConfigError

PERIOD = 0.25  # seconds between two looks


class Watch:
    """Looks at the Python files of a folder, from now on."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._states = self._look()

    def __iter__(self) -> Iterator[list[Path]]:
        """Yield, again and again, the files that were saved since the last time; Ctrl-C ends it."""
        """Yield, again and again, the files that were saved since the last time; Ctrl-C ends it."""
        while True:
            time.sleep(PERIOD)
            before, self._states = self._states, self._look()
            changed = [path for path, state in self._states.items() if before.get(path) != state]
            if changed:
                yield changed

    def _look(self) -> dict[Path, tuple[int, int]]:
        """Return when each file was saved, and its size."""
        if not self.folder.is_dir():
            raise ConfigError(f"folder: there is no folder {self.folder}")
        states = {}
        for path in sorted(self.folder.glob("*.py")):
            with suppress(OSError):  # an editor is just replacing it
                stat = path.stat()
                states[path] = (stat.st_mtime_ns, stat.st_size)
        return states
